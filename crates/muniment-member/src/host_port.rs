//! A member's address, and which of them are this server's.
//!
//! Source: observed configurations and messages of MongoDB.

use muniment_value::{Error, Result};
use std::net::{ToSocketAddrs, UdpSocket};

/// The port of a host without one.
const DEFAULT_PORT: u16 = 27017;

/// A member's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    /// `host`, `host:port` or `[ipv6]:port`.
    ///
    /// # Errors
    /// 9 FailedToParse.
    pub fn parse(text: &str) -> Result<HostPort> {
        let wrong = |why: &str| {
            Error::failed_to_parse(format!("{why} parsing HostAndPort from \"{text}\""))
        };
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, behind) = rest.split_once(']').ok_or_else(|| wrong("Missing ']'"))?;
                match behind.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if behind.is_empty() => (host, None),
                    None => return Err(wrong("Extraneous characters after ']'")),
                }
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err(wrong("Empty host component"));
        }
        let port = match port.map(str::parse::<u16>) {
            None => DEFAULT_PORT,
            Some(Ok(n)) if n > 0 => n,
            Some(_) => return Err(wrong("Port number is out of range")),
        };
        Ok(HostPort {
            host: host.to_string(),
            port,
        })
    }

    /// The host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The address of a server that listens on `port` of these addresses, as MongoDB chooses it: the
    /// first that others can reach, the machine's name where it listens on all, else the first one.
    pub fn of_listener(bind_ip: &[String], port: u16, machine: &str) -> HostPort {
        let mut addresses = bind_ip.iter().filter(|a| !a.contains('/'));
        let mut all = false;
        for a in addresses.clone() {
            let name = if a == "*" { "0.0.0.0" } else { a };
            for found in (name, port).to_socket_addrs().into_iter().flatten() {
                if found.ip().is_unspecified() {
                    all = true;
                } else if !found.ip().is_loopback() {
                    let host = a.clone();
                    return HostPort { host, port };
                }
            }
        }
        let host = match all {
            true => machine.to_string(),
            false => addresses
                .next()
                .map_or_else(|| "localhost".to_string(), Clone::clone),
        };
        HostPort { host, port }
    }

    /// Whether the name means the machine on which it is looked up.
    pub fn is_local(&self) -> bool {
        self.host == "localhost"
            || (self.host.parse::<std::net::IpAddr>()).is_ok_and(|ip| ip.is_loopback())
    }

    /// Whether it leads to a server of this machine that listens on `port`.
    pub fn is_own(&self, port: u16, machine: &str) -> bool {
        if self.port != port {
            return false;
        }
        if self.host == machine || self.host == "localhost" {
            return true;
        }
        let found = (self.host.as_str(), port).to_socket_addrs();
        // Only what is an address of this machine can be bound.
        found.into_iter().flatten().any(|a| {
            !a.ip().is_unspecified()
                && (a.ip().is_loopback() || UdpSocket::bind((a.ip(), 0)).is_ok())
        })
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::Code;

    #[test]
    fn addresses() {
        for (text, shown) in [
            ("h", "h:27017"),
            ("h:1", "h:1"),
            ("[::1]:2", "[::1]:2"),
            ("[::1]", "[::1]:27017"),
        ] {
            assert_eq!(HostPort::parse(text).unwrap().to_string(), shown);
        }
        for text in ["", ":1", "h:", "h:0", "h:70000", "h:x", "[::1", "[::1]x"] {
            assert_eq!(
                HostPort::parse(text).unwrap_err().code(),
                Code::FailedToParse
            );
        }
        let own = |text: &str| HostPort::parse(text).unwrap().is_own(7, "machine");
        assert!(own("127.0.0.1:7") && own("localhost:7") && own("machine:7") && own("[::1]:7"));
        assert!(
            !own("127.0.0.1:8") && !own("machine:8") && !own("0.0.0.0:7") && !own("192.0.2.1:7")
        );
        let chosen = |all: &[&str]| {
            let all: Vec<_> = all.iter().map(|s| (*s).to_string()).collect();
            HostPort::of_listener(&all, 7, "machine").to_string()
        };
        assert_eq!(chosen(&["127.0.0.1", "::1"]), "127.0.0.1:7");
        assert_eq!(chosen(&["/tmp/x.sock"]), "localhost:7");
        assert_eq!(chosen(&["127.0.0.1", "192.0.2.1"]), "192.0.2.1:7");
        assert_eq!(chosen(&["0.0.0.0"]), "machine:7");
    }
}
