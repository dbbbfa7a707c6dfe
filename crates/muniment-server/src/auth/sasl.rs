//! The conversations in which clients log in.
//!
//! Invariants: a name that does not exist and a password that is wrong take the same work and give the same
//! answer; a connection keeps one conversation at most, of a few hundred bytes.

use super::store::{self, USERS};
use super::{Said, log_out, tell, who};
use crate::audit::Login;
use crate::connections::{ConnShared, address_of};
use crate::context::ConnLocal;
use crate::state::ServerState;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muniment_auth::names::UserName;
use muniment_auth::scram::{ClientFirst, Credentials, Exchange, Mechanism};
use muniment_op::Interrupt;
use muniment_value::{Code, DocBuf, Error, Result, Value, doc};
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The largest payload of a client, in bytes.
const MAX_PAYLOAD: usize = 4096;
/// The bytes of randomness in a server's nonce.
const NONCE: usize = 24;
/// After so many failures in a row, an address has to wait before each further try.
const FREE_FAILURES: u32 = 5;
/// The first wait; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// After so long without a failure an address begins anew.
const FORGIVEN: Duration = Duration::from_secs(60);
/// A conversation may last so long.
const LONGEST: Duration = Duration::from_secs(60);
/// So many addresses are remembered.
const ADDRESSES: usize = 10_000;

/// The failed tries from one address.
pub struct Failures {
    count: u32,
    last: Instant,
}

/// Logins that were tried and that succeeded, for serverStatus.
#[derive(Default)]
pub struct Figures {
    all: [[AtomicU64; 3]; 2],
}

impl Figures {
    fn of(&self, mechanism: Mechanism) -> &[AtomicU64; 3] {
        let [sha1, sha256] = &self.all;
        match mechanism {
            Mechanism::Sha1 => sha1,
            Mechanism::Sha256 => sha256,
        }
    }

    /// `security.authentication.mechanisms` of serverStatus.
    pub fn to_doc(&self) -> DocBuf {
        let mut d = DocBuf::new();
        for mechanism in [Mechanism::Sha1, Mechanism::Sha256] {
            let [tried, succeeded, speculative] = self.of(mechanism);
            d.append(
                mechanism.name(),
                doc! {
                    "speculativeAuthenticate": doc! { "received": speculative.load(Relaxed) as i64 },
                    "authenticate": doc! {
                        "received": tried.load(Relaxed) as i64,
                        "successful": succeeded.load(Relaxed) as i64,
                    },
                },
            );
        }
        d
    }
}

/// A conversation that has begun.
pub struct Conversation {
    name: UserName,
    mechanism: Mechanism,
    exchange: Exchange,
    /// The hash of the user's document when the conversation began.
    stored: Option<[u8; 32]>,
    began: Instant,
    /// The client does not want to send an empty last message.
    skips_empty: bool,
    /// The client has proven itself, and only the empty last message is missing.
    proven: bool,
}

/// The error for everything that a client may not be told apart.
fn failed() -> Error {
    Error::new(Code::AuthenticationFailed, "Authentication failed.")
}

/// Begins a conversation; the reply of saslStart.
///
/// # Errors
/// 18 AuthenticationFailed; 334 MechanismUnavailable; 2 and 9 for a malformed payload.
pub fn start(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    on: &dyn Interrupt,
    begin: &Begin<'_>,
) -> Result<DocBuf> {
    local.login = None;
    let begun = first_message(server, conn, local, on, begin);
    if let (Err(e), false) = (&begun, begin.speculative) {
        // The try has failed, whether or not that can be written.
        let login = Login {
            user: "",
            db: begin.db,
            mechanism: begin.mechanism,
        };
        let _ = audit(server, conn, local, &login, Some(e));
    }
    begun
}

/// Answers the first message of a conversation.
fn first_message(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    on: &dyn Interrupt,
    begin: &Begin<'_>,
) -> Result<DocBuf> {
    let Some(mechanism) = Mechanism::from_name(begin.mechanism) else {
        return Err(Error::new(
            Code::MechanismUnavailable,
            format!(
                "Received authentication for mechanism {} which is unknown or not enabled",
                begin.mechanism
            ),
        ));
    };
    if begin.payload.len() > MAX_PAYLOAD {
        return Err(Error::bad_value(format!(
            "the payload of a login has {} bytes, and at most {MAX_PAYLOAD} are allowed",
            begin.payload.len()
        )));
    }
    let [tried, _, speculative] = server.auth.figures.of(mechanism);
    tried.fetch_add(1, Relaxed);
    if begin.speculative {
        speculative.fetch_add(1, Relaxed);
    }
    hold_back(server, conn, on)?;
    let first = ClientFirst::parse(begin.payload)?;
    let name = UserName {
        user: first.user().to_string(),
        db: begin.db.to_string(),
    };
    let stored = store::find(server, USERS, &name.id())?;
    let credentials = stored.as_ref().and_then(|d| {
        let all = d.as_doc().get_doc("credentials")?;
        Credentials::from_doc(mechanism, all.get_doc(mechanism.name())?).ok()
    });
    let known = credentials.is_some();
    // The client would take the answer for one in the mechanism that it then chooses for this user.
    if begin.speculative && stored.is_some() && !known {
        return Err(failed());
    }
    let iterations = mechanism.default_iterations();
    let credentials = credentials.unwrap_or_else(|| {
        Credentials::decoy(
            mechanism,
            &name.user,
            &name.db,
            &server.auth.secret,
            iterations,
        )
    });
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce)
        .map_err(|e| Error::internal(format!("the system has no random bytes: {e}")))?;
    let nonce = STANDARD.encode(nonce);
    let (exchange, answer) = Exchange::begin(first, credentials, &nonce, known);
    local.login = Some(Box::new(Conversation {
        mechanism,
        name,
        exchange,
        stored: stored.as_ref().map(hash),
        began: Instant::now(),
        skips_empty: begin.skips_empty,
        proven: false,
    }));
    Ok(reply(false, answer.as_bytes()))
}

/// What a client begins a conversation with.
pub struct Begin<'a> {
    /// The user's database.
    pub db: &'a str,
    /// The mechanism's name.
    pub mechanism: &'a str,
    /// The first message.
    pub payload: &'a [u8],
    /// The client does not want to send an empty last message.
    pub skips_empty: bool,
    /// It came with a hello.
    pub speculative: bool,
}

/// Begins a conversation that came with a hello. Whatever fails, the client then begins one by saslStart.
pub fn speculative(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    on: &dyn Interrupt,
    d: muniment_value::Doc<'_>,
) -> Option<DocBuf> {
    d.get("saslStart")?;
    let Some(Value::Binary { bytes: payload, .. }) = d.get("payload") else {
        return None;
    };
    let options = d.get_doc("options");
    let skips = options.and_then(|d| d.get("skipEmptyExchange"));
    let begin = Begin {
        db: d.get_str("db")?,
        mechanism: d.get_str("mechanism")?,
        payload,
        skips_empty: skips.is_some_and(|v| v.truthy()),
        speculative: true,
    };
    start(server, conn, local, on, &begin).ok()
}

/// Goes on with the connection's conversation; the reply of saslContinue.
///
/// # Errors
/// 17 ProtocolError without a conversation; 18 AuthenticationFailed.
pub fn go_on(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    id: i64,
    payload: &[u8],
) -> Result<DocBuf> {
    let Some(mut login) = local.login.take() else {
        return Err(Error::new(
            Code::ProtocolError,
            "No SASL session state found",
        ));
    };
    if id != 1 {
        return Err(Error::new(
            Code::ProtocolError,
            "sasl: Mismatched conversation id",
        ));
    }
    if login.proven {
        return match payload.is_empty() {
            true => Ok(reply(true, &[])),
            false => Err(failed()),
        };
    }
    let tried = prove_and_audit(server, conn, local, &mut login, payload);
    let said = |error| Said {
        mechanism: login.mechanism.name(),
        user: &login.name.user,
        db: &login.name.db,
        error,
    };
    match tried {
        Ok(answer) => {
            tell(server, conn, said(None));
            let done = login.skips_empty;
            login.proven = true;
            if !done {
                local.login = Some(login);
            }
            Ok(reply(done, answer.as_bytes()))
        }
        Err(e) => {
            tell(server, conn, said(Some(&e)));
            // A login that cannot be audited says nothing about the client.
            if e.code() != Code::OperationFailed {
                note_failure(server, conn);
            }
            Err(match e.code() {
                Code::ProtocolError | Code::OperationFailed => e,
                _ => failed(),
            })
        }
    }
}

/// Notes a try to log in in the audit log.
fn audit(
    server: &ServerState,
    conn: &ConnShared,
    local: &ConnLocal,
    login: &Login<'_>,
    error: Option<&Error>,
) -> Result<()> {
    match &server.audit {
        Some(audit) => audit.authenticated(&who(conn, local), login, error),
        None => Ok(()),
    }
}

/// As [`prove`]; a login that the audit log cannot tell of ends at once.
fn prove_and_audit(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    login: &mut Conversation,
    payload: &[u8],
) -> Result<String> {
    let proven = prove(server, conn, local, login, payload);
    let said = Login {
        user: &login.name.user,
        db: &login.name.db,
        mechanism: login.mechanism.name(),
    };
    let error = proven.as_ref().err();
    match audit(server, conn, local, &said, error) {
        Err(e) if proven.is_ok() => {
            log_out(conn, local);
            Err(e)
        }
        _ => proven,
    }
}

/// Checks the client's proof, and makes its user that of the connection.
fn prove(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    login: &mut Conversation,
    payload: &[u8],
) -> Result<String> {
    if payload.len() > MAX_PAYLOAD {
        return Err(failed());
    }
    if login.began.elapsed() > LONGEST {
        return Err(failed());
    }
    let answer = login.exchange.finish(payload)?;
    // Read before the user is, so that a change in between is noticed with the next command.
    let generation = server.auth.generation();
    let stored = store::find(server, USERS, &login.name.id())?.ok_or_else(failed)?;
    // The user may have been dropped, or have got another password, since the conversation began.
    if login.stored != Some(hash(&stored)) {
        return Err(failed());
    }
    let user = store::user(server, &login.name, stored.as_doc(), generation)?;
    if !user.may_come_from(conn) {
        return Err(Error::new(
            Code::AuthenticationRestrictionUnmet,
            "the restrictions of the user or of a role do not allow this connection",
        ));
    }
    if let Some(before) = &local.user
        && before.name != user.name
    {
        return Err(Error::new(
            Code::ProtocolError,
            format!(
                "Each client connection may only be authenticated once. Previously authenticated \
                 as: {}",
                before.key
            ),
        ));
    }
    log_out(conn, local);
    let [_, succeeded, _] = server.auth.figures.of(login.mechanism);
    succeeded.fetch_add(1, Relaxed);
    if let Some(address) = address_of(&conn.peer) {
        server.auth.failures.lock().remove(&address);
    }
    *conn.user.lock() = Some(Arc::clone(&user.key));
    local.user = Some(Arc::new(user));
    Ok(answer)
}

fn hash(stored: &DocBuf) -> [u8; 32] {
    Sha256::digest(stored.as_bytes()).into()
}

fn reply(done: bool, payload: &[u8]) -> DocBuf {
    let payload = Value::Binary {
        subtype: 0,
        bytes: payload,
    };
    doc! { "conversationId": 1, "done": done, "payload": payload }
}

/// Has an address wait from which logins have failed repeatedly.
fn hold_back(server: &ServerState, conn: &ConnShared, on: &dyn Interrupt) -> Result<()> {
    match wait_of(server, address_of(&conn.peer)) {
        Some(wait) => muniment_op::sleep_until(Instant::now() + wait, on),
        None => Ok(()),
    }
}

fn wait_of(server: &ServerState, address: Option<IpAddr>) -> Option<Duration> {
    let failures = server.auth.failures.lock();
    let of = failures.get(&address?)?;
    let more = of.count.checked_sub(FREE_FAILURES)?;
    let wait = FIRST_WAIT.saturating_mul(1 << more.min(10));
    (of.last.elapsed() < FORGIVEN).then(|| wait.min(LONGEST_WAIT))
}

fn note_failure(server: &ServerState, conn: &ConnShared) {
    let Some(address) = address_of(&conn.peer) else {
        return;
    };
    let mut failures = server.auth.failures.lock();
    if failures.len() >= ADDRESSES {
        failures.retain(|_, f| f.last.elapsed() < FORGIVEN);
        if failures.len() >= ADDRESSES {
            failures.clear();
        }
    }
    let now = Instant::now();
    let of = failures.entry(address).or_insert(Failures {
        count: 0,
        last: now,
    });
    if of.last.elapsed() >= FORGIVEN {
        of.count = 0;
    }
    of.count += 1;
    of.last = now;
}
