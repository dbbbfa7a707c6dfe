//! This server as one that calls other members, and its side of the proof: see [`prove`](crate::prove).

use super::key::{Exchange, Nonce, Side, random};
use crate::host_port::HostPort;
use crate::near::{Spot, Spots};
use crate::routes::Routes;
use crate::trust::Trust;
use muniment_value::{ArrayBuf, Code, Error, Result, Value, doc};
use muniment_wire::{Connection, Stream, parse_address};
use std::io;
use std::time::Duration;

/// This server as a caller of other members.
#[derive(Clone, Debug)]
pub struct Caller {
    set: String,
    own: String,
    trust: Trust,
    routes: Routes,
    /// The Unix sockets of those that are on this host, if it calls them often.
    near: Option<Spots>,
}

impl Caller {
    /// A member of the set with this name, at its own address, with what it can show, and with its ways to others.
    pub fn new(set: String, own: String, trust: Trust, routes: Routes) -> Caller {
        Caller {
            set,
            own,
            trust,
            routes,
            near: None,
        }
    }

    /// The same, which remembers whose Unix socket it may call, and calls that.
    #[must_use]
    pub fn that_calls_often(mut self) -> Caller {
        self.near = Some(Spots::default());
        self
    }

    /// Connects to the member at `host`, and proves both to be members. `step`: longest wait for each step, and, until
    /// it is set anew, for each answer.
    ///
    /// # Errors
    /// 6 if the member cannot be reached; 18 if one side does not prove itself.
    pub fn call(&self, host: &str, step: Duration) -> Result<Connection> {
        let dialled = self.routes.to(host);
        if let Some(c) = self.call_near(host, &dialled, step)? {
            return Ok(c);
        }
        let dialling = self.dial(host, &dialled, step);
        let mut c = dialling.map_err(|e| unreachable(&dialled, &e))?;
        c.set_timeout(Some(step))?;
        let told = self.prove(&mut c, host)?;
        let Some(near) = &self.near else {
            return Ok(c);
        };
        near.learn(&dialled, c.stream(), told);
        // This one has told of the way that the others take.
        Ok(self
            .call_near(host, &dialled, step)
            .unwrap_or(None)
            .unwrap_or(c))
    }

    /// Connects to a member over its Unix socket if that is known. `None` if it has to be dialled.
    fn call_near(&self, host: &str, dialled: &str, step: Duration) -> Result<Option<Connection>> {
        let near = self.near.as_ref();
        let near = near.filter(|_| self.trust.tls_to_others().is_none());
        let Some((near, (stream, spot))) = near.and_then(|n| Some((n, n.connect(dialled)?))) else {
            return Ok(None);
        };
        let mut c = Connection::over(stream);
        c.set_timeout(Some(step))?;
        match self.prove(&mut c, host) {
            Ok(Some(told)) if told == spot => Ok(Some(c)),
            // A server that does not answer does not answer over TCP either. But it may be another one.
            Err(e) if e.code() == Code::NetworkTimeout => {
                near.fails(dialled, &spot);
                Err(e)
            }
            // It is another server, or one that ends.
            _ => {
                near.fails(dialled, &spot);
                Ok(None)
            }
        }
    }

    /// Connects to the member at `host`, by way of `dialled`, with TLS if that is to be used between members.
    ///
    /// # Errors
    /// The socket's; one of the kind `InvalidData` if the handshake fails.
    pub fn dial(&self, host: &str, dialled: &str, step: Duration) -> io::Result<Connection> {
        let address = parse_address(dialled).map_err(io::Error::other)?;
        let stream = Stream::connect(&address, Some(step))?;
        let stream = match self.trust.tls_to_others() {
            // The certificate is that of the member that is meant, whatever the way to it.
            Some(tls) => {
                let name = HostPort::parse(host).map_or(host.to_string(), |h| h.host().to_string());
                stream.secured(tls, &name, step)?
            }
            None => stream,
        };
        Ok(Connection::over(stream))
    }

    /// Proves both ends of a connection to `host` to be members; the Unix socket of which the other one tells.
    ///
    /// # Errors
    /// 18 if one side does not prove itself.
    pub fn prove(&self, c: &mut Connection, host: &str) -> Result<Option<Spot>> {
        let mut first =
            doc! { "_replSetProve": self.set.as_str(), "from": self.own.as_str(), "to": host };
        if self.trust.by.sends_certificate() {
            first.append("x509", true);
            c.command("admin", &first)?;
            let shown = c.stream().tls().and_then(|s| s.certificate());
            return match self.trust.knows(shown) {
                true => Ok(None),
                false => Err(failed(format!(
                    "the certificate of {host} is not that of a member"
                ))),
            };
        }
        let Some(keys) = &self.trust.keys else {
            let reply = c.command("admin", &first)?;
            return Ok(Spot::of(reply.as_doc()));
        };
        let caller = random()?;
        first.append("nonce", binary(&caller));
        let challenge = c.command("admin", &first)?;
        let called = bytes_of(challenge.as_doc().get("nonce"));
        let called = called.and_then(|b| Nonce::try_from(b).ok());
        let exchange = Exchange {
            set: self.set.clone(),
            from: self.own.clone(),
            to: host.to_string(),
            caller,
            called: called.ok_or_else(|| failed(format!("{host} has no key file")))?,
            channel: c.stream().tls().and_then(|s| s.binding().copied()),
        };
        let proofs = keys.proofs(Side::Caller, &exchange);
        let proofs: ArrayBuf = proofs.iter().map(|p| binary(p)).collect();
        let second = doc! { "_replSetProve": self.set.as_str(), "proofs": proofs };
        let reply = c.command("admin", &second)?;
        let proof = bytes_of(reply.as_doc().get("proof"));
        match keys.proven(Side::Called, &exchange, proof.into_iter()) {
            Some(_) => Ok(Spot::of(reply.as_doc())),
            None => Err(failed(format!(
                "{host} does not show that it knows the key"
            ))),
        }
    }
}

/// 6 HostUnreachable.
pub fn unreachable(dialled: &str, e: &io::Error) -> Error {
    Error::new(Code::HostUnreachable, format!("{dialled}: {e}"))
}

/// 18 AuthenticationFailed.
pub fn failed(why: impl std::fmt::Display) -> Error {
    Error::new(
        Code::AuthenticationFailed,
        format!("Authentication failed: {why}"),
    )
}

/// As a field of a message.
pub fn binary(bytes: &[u8]) -> Value<'_> {
    Value::Binary { subtype: 0, bytes }
}

/// From a field of a message.
pub fn bytes_of(v: Option<Value<'_>>) -> Option<&[u8]> {
    match v {
        Some(Value::Binary { bytes, .. }) => Some(bytes),
        _ => None,
    }
}
