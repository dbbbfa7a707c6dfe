//! What a client needs besides the address of a server to get in: TLS and its login.
//!
//! Invariant: nothing here prints a password.

use crate::fail::{Context, Failure, Result};
use base64::{Engine, prelude::BASE64_STANDARD};
use muniment_auth::scram::Mechanism;
use muniment_auth::scram::client::Client;
use muniment_tls::Endpoint;
use muniment_value::{DocBuf, Value, doc};
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// What a connection is opened with besides the address. Settings that hold for every connection to a
/// deployment (those of TLS, too) are fields of this structure, so that
/// [`Conn::connect`](crate::conn::Conn::connect) can honour them and no caller can forget them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The certificates with which each connection uses TLS; `None` for one that does not.
    pub tls: Option<Arc<Endpoint>>,
    /// The user that each connection logs in as; `None` for a server that asks for none.
    pub login: Option<Login>,
}

/// A user, and how the user proves to be that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// By a password.
    Password(Password),
    /// By the certificate of the connection (MONGODB-X509), with the name of its owner if that is given.
    Certificate(Option<String>),
}

/// A user with a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Password {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: Zeroizing<String>,
    /// The database that the user belongs to.
    pub source: String,
    /// The mechanism; `None` asks the server which ones the user has, and takes the strongest.
    pub mechanism: Option<Mechanism>,
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Password")
            .field("user", &self.user)
            .field("source", &self.source)
            .field("mechanism", &self.mechanism)
            .finish_non_exhaustive()
    }
}

/// One server: its address, and how to get in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    address: String,
    access: Arc<Access>,
}

impl Peer {
    /// The server at `host:port`, with this access.
    pub fn new(address: impl Into<String>, access: Arc<Access>) -> Peer {
        Peer {
            address: address.into(),
            access,
        }
    }

    /// A server at `host:port` that lets everybody in, as those do that the lab starts itself.
    pub fn open(address: impl Into<String>) -> Peer {
        Peer::new(address, Arc::default())
    }

    /// Another server of the same deployment.
    pub fn sibling(&self, address: impl Into<String>) -> Peer {
        Peer::new(address, self.access.clone())
    }

    /// Its `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How to get in.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl Login {
    /// Logs a connection to the server at `address` in. `ask` sends a command to a database over that
    /// connection and returns the reply, unless it is an error.
    ///
    /// # Errors
    /// The server refuses the login, or does not prove that it knows the user; the message names the user and
    /// the mechanism.
    pub(crate) fn run(&self, address: &str, ask: &mut Ask<'_>) -> Result<()> {
        let user = match self {
            Login::Password(password) => return password.run(address, ask),
            Login::Certificate(user) => user.as_deref(),
        };
        let mut command = doc! { "authenticate": 1, "mechanism": X509 };
        command.append_some("user", user);
        let named = user.unwrap_or("the owner of the certificate");
        ask("$external", &command).map(|_| ()).context(&format!(
            "cannot log in to {address} as {named} with {X509}"
        ))
    }
}

/// The mechanism of certificates.
pub const X509: &str = "MONGODB-X509";

impl Password {
    fn run(&self, address: &str, ask: &mut Ask<'_>) -> Result<()> {
        let who = format!(
            "cannot log in to {address} as {}@{}",
            self.user, self.source
        );
        let mechanism = self.mechanism.map_or_else(|| self.negotiate(ask), Ok);
        let mechanism = mechanism.context(&who)?;
        self.converse(ask, mechanism)
            .context(&format!("{who} with {}", mechanism.name()))
    }

    /// Asks the server which mechanisms the user has, as drivers do. A server that does not say (because it
    /// does not know the user, or is older than SCRAM-SHA-256) gets SCRAM-SHA-1.
    fn negotiate(&self, ask: &mut Ask<'_>) -> Result<Mechanism> {
        let user = format!("{}.{}", self.source, self.user);
        let mut hello = |name: &str| {
            let mut body = DocBuf::new();
            body.append(name, 1)
                .append("saslSupportedMechs", user.as_str());
            ask("admin", &body)
        };
        let reply = hello("hello").or_else(|_| hello("isMaster"))?;
        let said = reply.as_doc().get_array("saslSupportedMechs");
        let strong = Mechanism::Sha256.name();
        let has = said.is_some_and(|all| all.values().any(|m| m.as_str() == Some(strong)));
        Ok(match has {
            true => Mechanism::Sha256,
            false => Mechanism::Sha1,
        })
    }

    /// The conversation itself.
    fn converse(&self, ask: &mut Ask<'_>, mechanism: Mechanism) -> Result<()> {
        let mut client = Client::new(mechanism, &self.user, &self.password, &nonce()?)?;
        let mut send = |command: &DocBuf| Step::of(&ask(&self.source, command)?);
        let mut step = send(&doc! {
            "saslStart": 1,
            "mechanism": mechanism.name(),
            "payload": binary(client.first().as_bytes()),
            "options": doc! { "skipEmptyExchange": true },
        })?;
        let answer = client.next(&step.payload)?;
        step = send(&step.next(answer.as_bytes()))?;
        client.verify(&step.payload)?;
        // Some servers want an empty message before they call the conversation done.
        if !step.done {
            step = send(&step.next(&[]))?;
        }
        match step.done {
            true => Ok(()),
            false => Err(Failure::new("the server does not come to an end")),
        }
    }
}

/// Sends a command to a database, and returns the reply if it is `ok: 1`.
type Ask<'a> = dyn FnMut(&str, &DocBuf) -> Result<DocBuf> + 'a;

/// A server's answer in the conversation.
struct Step {
    conversation: i32,
    payload: Vec<u8>,
    done: bool,
}

impl Step {
    fn of(reply: &DocBuf) -> Result<Step> {
        let reply = reply.as_doc();
        let payload = match reply.get("payload") {
            Some(Value::Binary { bytes, .. }) => bytes.to_vec(),
            _ => return Err(Failure::new("the server's answer has no payload")),
        };
        let id = reply.get("conversationId").and_then(|v| v.as_i64_exact());
        Ok(Step {
            conversation: id.and_then(|n| i32::try_from(n).ok()).unwrap_or(1),
            payload,
            done: reply.get("done").and_then(|v| v.as_bool()) == Some(true),
        })
    }

    /// The command that answers.
    fn next(&self, payload: &[u8]) -> DocBuf {
        doc! {
            "saslContinue": 1,
            "conversationId": self.conversation,
            "payload": binary(payload),
        }
    }
}

fn binary(bytes: &[u8]) -> Value<'_> {
    Value::Binary { subtype: 0, bytes }
}

/// A nonce that was never used before.
fn nonce() -> Result<String> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).context("random bytes for the login")?;
    Ok(BASE64_STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::conn::Conn;
    use crate::fake;

    fn peer(address: &str, mechanism: Option<Mechanism>) -> Peer {
        let login = Login::Password(Password {
            user: "u".into(),
            password: Zeroizing::new("hidden".into()),
            source: "shop".into(),
            mechanism,
        });
        let access = Access {
            login: Some(login),
            ..Access::default()
        };
        Peer::new(address, Arc::new(access))
    }

    #[test]
    fn a_refused_login_names_user_and_mechanism_and_no_password() {
        for (mechanism, offered, named) in [
            (None, Some("SCRAM-SHA-256"), "SCRAM-SHA-256"),
            (None, Some("SCRAM-SHA-1"), "SCRAM-SHA-1"),
            (None, None, "SCRAM-SHA-1"),
            (Some(Mechanism::Sha256), None, "SCRAM-SHA-256"),
        ] {
            let (address, _) = fake::server(move |_, command| {
                if command.first().is_some_and(|e| e.name() == "hello") {
                    assert_eq!(command.get_str("saslSupportedMechs"), Some("shop.u"));
                    let all: muniment_value::ArrayBuf = offered.into_iter().collect();
                    return doc! { "ok": 1.0, "saslSupportedMechs": all };
                }
                assert_eq!(command.get_str("mechanism"), Some(named));
                doc! { "ok": 0.0, "errmsg": "no", "code": 18, "codeName": "AuthenticationFailed" }
            });
            let e = Conn::connect(&peer(&address, mechanism)).err().unwrap().0;
            let want = format!(
                "cannot log in to {address} as u@shop with {named}: no (18 AuthenticationFailed)"
            );
            assert_eq!(e, want);
        }
        let shown = format!("{:?}", peer("h:1", None));
        assert!(
            shown.contains("shop") && !shown.contains("hidden"),
            "{shown}"
        );
    }

    #[test]
    fn a_server_that_proves_nothing_is_not_trusted() {
        let (address, _) = fake::server(|_, _| {
            doc! { "ok": 1.0, "done": true, "conversationId": 1, "payload": binary(b"v=AAAA") }
        });
        let e = Conn::connect(&peer(&address, None)).err().unwrap().0;
        assert!(e.contains("cannot log in") && e.contains("SCRAM"), "{e}");
    }
}
