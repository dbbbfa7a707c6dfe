//! This server as one that calls other members, and its side of the proof: see [`prove`](crate::prove).

use super::key::{Exchange, Keys, Nonce, Side, random};
use muniment_value::{ArrayBuf, Code, Error, Result, Value, doc};
use muniment_wire::Connection;
use std::sync::Arc;
use std::time::Duration;

/// This server as a caller of other members.
#[derive(Clone, Debug)]
pub struct Caller {
    set: String,
    own: String,
    keys: Option<Arc<Keys>>,
}

impl Caller {
    /// A member of the set with this name, at its own address, with the keys that it has.
    pub fn new(set: String, own: String, keys: Option<Arc<Keys>>) -> Caller {
        Caller { set, own, keys }
    }

    /// Connects to the member at `host`, by way of `dialled`, and proves both to be members. `step`:
    /// longest wait for each step, and, until it is set anew, for each answer.
    ///
    /// # Errors
    /// 6 if the member cannot be reached; 18 if one side does not prove itself.
    pub fn call(&self, host: &str, dialled: &str, step: Duration) -> Result<Connection> {
        let mut c = Connection::connect_timeout(dialled, step)?;
        c.set_timeout(Some(step))?;
        self.prove(&mut c, host)?;
        Ok(c)
    }

    /// Proves both ends of a connection to `host` to be members.
    ///
    /// # Errors
    /// 18 if one side does not prove itself.
    pub fn prove(&self, c: &mut Connection, host: &str) -> Result<()> {
        let mut first =
            doc! { "_replSetProve": self.set.as_str(), "from": self.own.as_str(), "to": host };
        let Some(keys) = &self.keys else {
            return c.command("admin", &first).map(|_| ());
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
        };
        let proofs = keys.proofs(Side::Caller, &exchange);
        let proofs: ArrayBuf = proofs.iter().map(|p| binary(p)).collect();
        let second = doc! { "_replSetProve": self.set.as_str(), "proofs": proofs };
        let reply = c.command("admin", &second)?;
        let proof = bytes_of(reply.as_doc().get("proof"));
        match keys.proven(Side::Called, &exchange, proof.into_iter()) {
            Some(_) => Ok(()),
            None => Err(failed(format!(
                "{host} does not show that it knows the key"
            ))),
        }
    }
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
