//! Reserves ports for servers that are started later.

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

/// A port of the loopback address that no server listens on yet, reserved for a server that is started later
/// or again. As long as this value lives, a process that asks the system for any port gets another one, while
/// a server that is told this port can listen on it.
///
/// On Linux a socket does this which is bound, does not listen, and has `SO_REUSEADDR`: another socket with
/// that option may be bound to the same port by number, but neither `bind` with port 0 nor `connect` chooses
/// the port.
#[derive(Debug)]
pub struct Reserved {
    port: u16,
    _socket: OwnedFd,
}

impl Reserved {
    /// Reserves a free port.
    ///
    /// # Errors
    /// There is no free port, or no descriptor is left.
    pub fn new() -> io::Result<Reserved> {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let port = SocketAddr::try_from(getsockname(&socket)?)?.port();
        Ok(Reserved {
            port,
            _socket: socket,
        })
    }

    /// The port's number.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The loopback address with this port.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn only_a_server_that_is_told_the_port_gets_it() {
        let reserved: Vec<Reserved> = (0..200).map(|_| Reserved::new().unwrap()).collect();
        let taken = |port: u16| reserved.iter().any(|r| r.port() == port);
        let listener = TcpListener::bind(reserved[0].address()).unwrap();
        for _ in 0..500 {
            let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            assert!(!taken(any.local_addr().unwrap().port()));
            let client = TcpStream::connect(reserved[0].address()).unwrap();
            assert!(!taken(client.local_addr().unwrap().port()));
            listener.accept().unwrap();
        }
        // A second server is refused, but a server that is started again is not.
        TcpListener::bind(reserved[0].address()).unwrap_err();
        drop(listener);
        TcpListener::bind(reserved[0].address()).unwrap();
    }
}
