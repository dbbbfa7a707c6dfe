//! The ways in which clients log in: conversations of SCRAM, and the certificate that a client has shown when
//! the connection began (MONGODB-X509).
//!
//! Invariants: only a certificate that an authority of the server's has issued counts; a name that does not
//! exist and a password that is wrong take the same work and give the same answer; a connection keeps one
//! conversation at most, of a few hundred bytes.

use super::mechanisms::MONGODB_X509;
use super::slowing::{Held, Try};
use super::store;
use super::{EXTERNAL, Said, USERS, log_out, tell, who};
use crate::audit::Login;
use crate::connections::{ConnShared, address_of};
use crate::context::ConnLocal;
use crate::state::ServerState;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muniment_auth::names::UserName;
use muniment_auth::scram::{ClientFirst, Credentials, Exchange, Mechanism};
use muniment_logger::Severity;
use muniment_op::Interrupt;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, array, doc};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The longest name of a user that can log in, in bytes.
const LONGEST_NAME: usize = 1024;
/// The longest name of a database.
const LONGEST_DB: usize = 63;
/// So much of a name is shown that a client has chosen freely.
const SHOWN: usize = 100;
/// The largest payload of a client, in bytes.
const MAX_PAYLOAD: usize = 4096;
/// The bytes of randomness in a server's nonce.
const NONCE: usize = 24;
/// A conversation may last so long.
const LONGEST: Duration = Duration::from_secs(60);
/// A conversation that has begun.
pub struct Conversation {
    name: UserName,
    mechanism: Mechanism,
    exchange: Exchange,
    /// The hash of the user's document when the conversation began.
    stored: [u8; 32],
    began: Instant,
    /// The client does not want to send an empty last message.
    skips_empty: bool,
    /// The client has proven itself, and only the empty last message is missing.
    proven: bool,
    /// Its turn, until it has succeeded or failed.
    turn: Turn,
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
    match first_message(server, conn, local, on, begin) {
        Ok(answer) => Ok(answer),
        Err(Ended::Failed(e)) => {
            if !begin.speculative {
                // The try has failed, whether or not that can be written.
                let login = Login {
                    user: "",
                    db: begin.db,
                    mechanism: begin.mechanism,
                };
                let _ = audit(server, conn, local, &login, Some(&e));
            }
            Err(e)
        }
        // That is told of seldom, or refused tries would fill the disk faster than others.
        Err(Ended::Refused) => Err(failed()),
    }
}

/// How a conversation ended that has not begun.
enum Ended {
    /// With this error.
    Failed(Error),
    /// Too many tries for the name or from the address wait.
    Refused,
}

impl From<Error> for Ended {
    fn from(e: Error) -> Ended {
        Ended::Failed(e)
    }
}

/// Answers the first message of a conversation.
fn first_message(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    on: &dyn Interrupt,
    begin: &Begin<'_>,
) -> std::result::Result<DocBuf, Ended> {
    check_enabled(server, begin.mechanism)?;
    // The reply to a hello must not wait. Its client then begins by saslStart, where it waits.
    let waits = !begin.speculative;
    check_known(server, waits)?;
    let mechanism = Mechanism::from_name(begin.mechanism);
    let mechanism = mechanism.ok_or_else(|| unavailable(begin.mechanism))?;
    if begin.payload.len() > MAX_PAYLOAD {
        return Err(Ended::Failed(Error::bad_value(format!(
            "the payload of a login has {} bytes, and at most {MAX_PAYLOAD} are allowed",
            begin.payload.len()
        ))));
    }
    server.auth.figures.tried(mechanism.name(), false);
    if begin.speculative {
        server.auth.figures.tried(mechanism.name(), true);
    }
    let first = ClientFirst::parse(begin.payload)?;
    // A conversation is kept, and its names are logged.
    if first.user().len() > LONGEST_NAME || begin.db.len() > LONGEST_DB {
        return Err(failed().into());
    }
    let name = UserName {
        user: first.user().to_string(),
        db: begin.db.to_string(),
    };
    let named = Login {
        user: cut(&name.user),
        db: begin.db,
        mechanism: begin.mechanism,
    };
    let turn = hold_back(server, conn, local, on, &name, &named, waits)?;
    let Some(turn) = turn else {
        return Err(Ended::Refused);
    };
    let found = store::find(server, USERS, &name.id())?;
    let exists = found.is_some();
    // From here on the same work is done for a user that does not exist.
    let stored = found.unwrap_or_else(|| server.auth.nobody.clone());
    let all = stored.as_doc().get_doc("credentials");
    let of_mechanism = all.and_then(|all| all.get_doc(mechanism.name()));
    let real = of_mechanism.and_then(|d| Credentials::from_doc(mechanism, d).ok());
    let decoy = decoy(server, mechanism, &name);
    let known = exists && real.is_some();
    // The client would take the answer for one in the mechanism that it then chooses for this user.
    if begin.speculative && exists && !known {
        return Err(failed().into());
    }
    let credentials = real.filter(|_| exists).unwrap_or(decoy);
    let (exchange, answer) = Exchange::begin(first, credentials, &nonce()?, known);
    local.login = Some(Box::new(Conversation {
        mechanism,
        name,
        exchange,
        stored: hash(&stored),
        began: Instant::now(),
        skips_empty: begin.skips_empty,
        proven: false,
        turn,
    }));
    Ok(reply(false, answer.as_bytes()))
}

/// # Errors
/// 6 HostUnreachable at a router that has not read users and roles yet, or may not wait until it has.
fn check_known(server: &ServerState, waits: bool) -> Result<()> {
    match &server.router {
        Some(router) => router.accounts.ready(server, router, waits),
        None => Ok(()),
    }
}

/// What a user is tried with that is not known.
fn decoy(server: &ServerState, mechanism: Mechanism, name: &UserName) -> Credentials {
    let iterations = server.parameters.scram.of(mechanism);
    let secret = &server.auth.secret;
    Credentials::decoy(mechanism, &name.user, &name.db, secret, iterations)
}

/// The document of a user that does not exist, of the size and the parts of others.
pub fn nobody(secret: &[u8]) -> DocBuf {
    let mut credentials = DocBuf::new();
    for mechanism in Mechanism::ALL {
        let iterations = mechanism.default_iterations();
        let decoy = Credentials::decoy(mechanism, "nobody", "nowhere", secret, iterations);
        credentials.append(mechanism.name(), decoy.to_doc());
    }
    let uuid = Value::Binary {
        subtype: 4,
        bytes: &[0; 16],
    };
    let role = doc! { "role": "readWrite", "db": "nowhere" };
    doc! {
        "_id": "nowhere.nobody", "userId": uuid, "user": "nobody", "db": "nowhere",
        "credentials": credentials, "roles": array![role],
    }
}

/// # Errors
/// If the system has no random bytes.
fn nonce() -> Result<String> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce)
        .map_err(|e| Error::internal(format!("the system has no random bytes: {e}")))?;
    Ok(STANDARD.encode(nonce))
}

/// # Errors
/// 334 MechanismUnavailable for a mechanism that is not known or not enabled.
fn check_enabled(server: &ServerState, mechanism: &str) -> Result<()> {
    match server.parameters.mechanisms.names().contains(&mechanism) {
        true => Ok(()),
        false => Err(unavailable(mechanism)),
    }
}

fn unavailable(mechanism: &str) -> Error {
    Error::new(
        Code::MechanismUnavailable,
        format!(
            "Received authentication for mechanism {} which is unknown or not enabled",
            cut(mechanism)
        ),
    )
}

/// The beginning of a name that nobody has checked.
fn cut(name: &str) -> &str {
    let end = name
        .char_indices()
        .nth(SHOWN)
        .map_or(name.len(), |(i, _)| i);
    name.get(..end).unwrap_or_default()
}

/// What is shown of the name of a user: all of it if the login succeeded.
fn shown(name: &str, failed: bool) -> &str {
    if failed { cut(name) } else { name }
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
    d: Doc<'_>,
) -> Option<DocBuf> {
    if d.get("authenticate").is_some() {
        return speculative_certificate(server, conn, local, on, d);
    }
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
    let proven = prove(server, conn, local, &mut login, payload);
    let named = Login {
        user: shown(&login.name.user, proven.is_err()),
        db: &login.name.db,
        mechanism: login.mechanism.name(),
    };
    let tried = audited(server, conn, local, &named, proven);
    let said = |error| Said {
        mechanism: login.mechanism.name(),
        user: named.user,
        db: named.db,
        error,
    };
    login.turn.ends(&tried);
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
            Err(told_of_failure(e))
        }
    }
}

/// What the client is told of a failure.
fn told_of_failure(e: Error) -> Error {
    match e.code() {
        Code::ProtocolError | Code::OperationFailed => e,
        _ => failed(),
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

/// Notes how a try to log in came out. A login that the audit log cannot tell of ends at once.
fn audited<T>(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    login: &Login<'_>,
    came: Result<T>,
) -> Result<T> {
    match audit(server, conn, local, login, came.as_ref().err()) {
        Err(e) if came.is_ok() => {
            log_out(conn, local);
            Err(e)
        }
        _ => came,
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
    // The user may have been dropped, or have got another password, since the conversation began.
    let same = |stored: &DocBuf| login.stored == hash(stored);
    let (name, mechanism) = (&login.name, login.mechanism.name());
    enter(server, conn, local, name, mechanism, same)?;
    Ok(answer)
}

/// Makes a user that of the connection, after the client has proven to be that user. `same` says whether what
/// is stored of the user is what the proof was checked with.
///
/// # Errors
/// 18 if there is no such user any more; what keeps the user from this connection.
fn enter(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    name: &UserName,
    mechanism: &str,
    same: impl FnOnce(&DocBuf) -> bool,
) -> Result<()> {
    // Read before the user is, so that a change in between is noticed with the next command.
    let generation = server.engine.store.accounts_generation();
    let stored = store::find(server, USERS, &name.id())?.ok_or_else(failed)?;
    if !same(&stored) {
        return Err(failed());
    }
    let user = store::user(server, name, stored.as_doc(), generation)?;
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
    server.auth.figures.succeeded(mechanism);
    *conn.user.lock() = Some(Arc::clone(&user.key));
    local.user = Some(Arc::new(user));
    Ok(())
}

/// Makes the owner of the connection's certificate its user; the reply of `authenticate`. `claimed` is the name
/// that the client gives, if it gives one. `waits` says whether a try may wait for its turn.
///
/// # Errors
/// 18 AuthenticationFailed; 334 MechanismUnavailable.
pub fn by_certificate(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    on: &dyn Interrupt,
    claimed: Option<&str>,
    waits: bool,
) -> Result<DocBuf> {
    check_enabled(server, MONGODB_X509)?;
    check_known(server, waits)?;
    server.auth.figures.tried(MONGODB_X509, false);
    let subject = subject(server, conn, claimed);
    let own = subject.as_deref().unwrap_or_default();
    let name = UserName {
        user: own.to_string(),
        db: EXTERNAL.to_string(),
    };
    let mut named = Login {
        user: cut(claimed.unwrap_or(own)),
        db: EXTERNAL,
        mechanism: MONGODB_X509,
    };
    // A certificate that was checked cannot be guessed.
    let mut turn = match subject.is_ok() {
        true => Turn(None),
        false => hold_back(server, conn, local, on, &name, &named, waits)?.ok_or_else(failed)?,
    };
    let came = match &subject {
        Ok(_) => enter(server, conn, local, &name, MONGODB_X509, |_| true),
        Err(e) => Err(e.clone()),
    };
    named.user = shown(claimed.unwrap_or(own), came.is_err());
    let came = audited(server, conn, local, &named, came);
    turn.ends(&came);
    tell(
        server,
        conn,
        Said {
            mechanism: named.mechanism,
            user: named.user,
            db: named.db,
            error: came.as_ref().err(),
        },
    );
    came.map_err(told_of_failure)?;
    Ok(doc! { "dbname": EXTERNAL, "user": own })
}

/// The name of the certificate's owner.
fn subject(server: &ServerState, conn: &ConnShared, claimed: Option<&str>) -> Result<String> {
    let refused = |why: &str| Error::new(Code::AuthenticationFailed, why.to_string());
    let tls = server.trust.tls.as_ref();
    let tls = tls.ok_or_else(|| refused("the server uses no TLS"))?;
    if tls.settings().allow_invalid_certificates {
        return Err(refused(
            "the server accepts any certificate (tlsAllowInvalidCertificates), so none counts",
        ));
    }
    let shown = conn.stream.tls().and_then(|s| s.certificate());
    let shown = shown.ok_or_else(|| refused("the client has shown no certificate"))?;
    // The connection may be older than that.
    if shown.is_expired() {
        return Err(refused("the certificate has expired"));
    }
    match claimed.is_none_or(|claimed| claimed == shown.subject) {
        true => Ok(shown.subject.clone()),
        false => Err(refused(
            "the user's name is not that of the certificate's owner",
        )),
    }
}

/// As [`by_certificate`], for a login that came with a hello. Whatever fails, the client then logs in by
/// `authenticate`.
fn speculative_certificate(
    server: &ServerState,
    conn: &ConnShared,
    local: &mut ConnLocal,
    on: &dyn Interrupt,
    d: Doc<'_>,
) -> Option<DocBuf> {
    d.get("authenticate")?;
    if d.get_str("mechanism") != Some(MONGODB_X509) {
        return None;
    }
    server.auth.figures.tried(MONGODB_X509, true);
    by_certificate(server, conn, local, on, d.get_str("user"), false).ok()
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

/// The turn of a try to log in. There is none if tries are not slowed.
struct Turn(Option<Try>);

impl Turn {
    /// The try has come out so.
    fn ends<T>(&mut self, came: &Result<T>) {
        match (self.0.take(), came) {
            (Some(turn), Ok(_)) => turn.succeeded(),
            // A login that cannot be audited says nothing about the client.
            (Some(turn), Err(e)) if e.code() != Code::OperationFailed => turn.failed(),
            _ => {}
        }
    }
}

/// Has a try wait for its turn, if tries for this name or from this address have failed repeatedly. There is no
/// turn if too many wait already, or if the try would have to wait and may not.
///
/// # Errors
/// What ends the wait.
fn hold_back(
    server: &ServerState,
    conn: &ConnShared,
    local: &ConnLocal,
    on: &dyn Interrupt,
    name: &UserName,
    login: &Login<'_>,
    waits: bool,
) -> Result<Option<Turn>> {
    if !server.parameters.slows_logins.load(Relaxed) {
        return Ok(Some(Turn(None)));
    }
    let slowing = &server.auth.slowing;
    let pair = slowing.pair(address_of(&conn.peer), &name.user, &name.db);
    match slowing.enter(pair, waits, on)? {
        Ok(turn) => Ok(Some(Turn(Some(turn)))),
        Err(held) => {
            if let Held::Refused(Some(tries)) = held {
                tell_of_refused(server, conn, login, tries);
                // The try has failed, whether or not that can be written.
                let _ = audit(server, conn, local, login, Some(&failed()));
            }
            Ok(None)
        }
    }
}

/// Logs that tries to log in were refused at once.
fn tell_of_refused(server: &ServerState, conn: &ConnShared, login: &Login<'_>, tries: u64) {
    server.log.log(
        Severity::Warning,
        "ACCESS",
        7_340_028,
        &format!("conn{}", conn.id),
        "Logins are refused at once, because too many have failed and too many wait",
        Some(&doc! {
            "client": &*conn.peer,
            "user": login.user,
            "db": login.db,
            "refused": tries as i64,
        }),
    );
}
