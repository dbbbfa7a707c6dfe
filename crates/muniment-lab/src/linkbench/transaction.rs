//! Multi-document transactions of one connection, as v2's store causes the Java driver to send
//! them; and checks whether the target has transactions.
//!
//! Source: the MongoDB specifications "Driver Sessions" and "Transactions". A commit whose outcome
//! is unknown is repeated here with the same transaction number, as a driver does by itself. After any
//! other failure the caller has to begin a new transaction.

use super::store::LINKS;
use crate::lab::DB;
use muniment_load::conn::{Conn, Message, check, number_at};
use muniment_load::fail::{Failure, Result};
use muniment_load::rng::Rng;
use muniment_value::{Doc, DocBuf, Value, array, doc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number of times that an operation of v2 is tried, as in the original.
pub(crate) const TRIES: u32 = 16;

/// The pause after failed try number `n`.
pub(crate) fn pause(n: u32) -> Duration {
    Duration::from_millis(20) * n
}

/// The reason why an operation was not done.
#[derive(Debug)]
pub enum Fault {
    /// The server refused it.
    Refused(Refusal),
    /// The connection cannot be used any more.
    Broken(Failure),
}

/// The content of a server's refusal.
#[derive(Debug)]
pub struct Refusal {
    /// The error's code, 0 if there is none.
    pub code: i32,
    /// The whole transaction may be repeated.
    pub transient: bool,
    /// The commit alone may be repeated, because its outcome is unknown.
    pub unknown_commit: bool,
    /// The refusal in words.
    pub failure: Failure,
}

impl From<Fault> for Failure {
    fn from(f: Fault) -> Failure {
        match f {
            Fault::Refused(r) => r.failure,
            Fault::Broken(e) => e,
        }
    }
}

/// Codes on which the original repeats an operation although they carry no label: lock timeouts,
/// write conflicts, snapshots that are gone, and transactions that the server has ended.
const AGAIN: [i32; 10] = [24, 46, 112, 117, 208, 225, 226, 239, 246, 251];

/// Codes of servers that have no transactions: illegal operation, no such command, invalid options,
/// not supported, not implemented, not in a transaction, and unknown field.
const NONE: [i32; 7] = [20, 59, 72, 115, 238, 263, 40415];

impl Refusal {
    fn of(reply: Doc<'_>, failure: Failure) -> Refusal {
        let first = reply.get_array("writeErrors").and_then(|w| w.get_doc("0"));
        let concern = reply.get_doc("writeConcernError");
        let code = [Some(reply), first, concern]
            .into_iter()
            .flatten()
            .find_map(|d| number_at(d, "code"))
            .map_or(0, |c| c as i32);
        let labels = reply.get_array("errorLabels").unwrap_or(Doc::EMPTY);
        let label = |name: &str| labels.values().any(|l| l.as_str() == Some(name));
        Refusal {
            code,
            transient: label("TransientTransactionError") || AGAIN.contains(&code),
            unknown_commit: label("UnknownTransactionCommitResult"),
            failure,
        }
    }
}

/// Sends a message, within `session`'s transaction if one is open, and checks the reply.
///
/// # Errors
/// The server refused the message, or the connection ended.
pub(crate) fn call<'c>(
    conn: &'c mut Conn,
    session: Option<&mut Session>,
    message: &mut Message,
) -> std::result::Result<Doc<'c>, Fault> {
    if let Some(fields) = session.and_then(Session::fields) {
        message.append(&fields);
    }
    let reply = conn.call(message).map_err(Fault::Broken)?;
    match check(reply) {
        Ok(()) => Ok(reply),
        Err(e) => Err(Fault::Refused(Refusal::of(reply, e))),
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    None,
    /// The transaction has begun here; the server learns of it with the first command.
    Begun,
    Open,
}

/// A server session.
#[derive(Debug)]
pub(crate) struct Session {
    id: [u8; 16],
    number: i64,
    state: State,
    /// The write concern of its commits.
    concern: Option<DocBuf>,
}

impl Session {
    /// Makes a session with a random id; `n` distinguishes sessions made at the same moment.
    pub(crate) fn new(n: u64) -> Session {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as u64);
        let mut rng = Rng::new(now ^ u64::from(std::process::id()).rotate_left(40) ^ n << 20);
        let mut id = (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).to_be_bytes();
        // The bits that RFC 9562 sets for a random UUID, version 4.
        id[6] = id[6] & 0x0f | 0x40;
        id[8] = id[8] & 0x3f | 0x80;
        Session {
            id,
            number: 0,
            state: State::None,
            concern: None,
        }
    }

    /// Sets the write concern of its commits, which is the server's default otherwise.
    #[must_use]
    pub(crate) fn committing(self, concern: DocBuf) -> Session {
        Session {
            concern: Some(concern),
            ..self
        }
    }

    /// The `lsid` that commands carry.
    pub(crate) fn lsid(&self) -> DocBuf {
        let id = Value::Binary {
            subtype: 4,
            bytes: &self.id,
        };
        doc! { "id": id }
    }

    /// Begins a transaction, to which the next commands belong.
    pub(crate) fn begin(&mut self) {
        self.number += 1;
        self.state = State::Begun;
    }

    /// The fields that the next command of the open transaction carries.
    fn fields(&mut self) -> Option<DocBuf> {
        if self.state == State::None {
            return None;
        }
        let mut fields = doc! { "lsid": self.lsid(), "txnNumber": self.number };
        if std::mem::replace(&mut self.state, State::Open) == State::Begun {
            fields.append("startTransaction", true);
        }
        fields.append("autocommit", false);
        Some(fields)
    }

    /// Commits. A commit whose outcome is unknown is repeated with the same number, up to [`TRIES`]
    /// times in all; `again` is called for each repetition.
    ///
    /// # Errors
    /// The server refused the commit.
    pub(crate) fn commit(
        &mut self,
        conn: &mut Conn,
        mut again: impl FnMut(),
    ) -> std::result::Result<(), Fault> {
        if std::mem::replace(&mut self.state, State::None) != State::Open {
            return Ok(());
        }
        let mut tries = 0;
        loop {
            let mut body = doc! { "commitTransaction": 1 };
            if let Some(c) = &self.concern {
                body.append("writeConcern", c);
            } else if tries > 0 {
                // Repetitions ask for a majority, as drivers do: the answer of a primary that has
                // been replaced could be wrong.
                body.append("writeConcern", doc! { "w": "majority", "wtimeout": 10_000 });
            }
            match self.end(conn, &body) {
                Err(Fault::Refused(r)) if r.unknown_commit && tries + 1 < TRIES => {
                    tries += 1;
                    again();
                    std::thread::sleep(pause(tries));
                }
                other => return other,
            }
        }
    }

    /// Aborts the open transaction. A server aborts by itself after a refusal and then refuses this
    /// command, so its answer is ignored.
    ///
    /// # Errors
    /// The connection ended.
    pub(crate) fn abort(&mut self, conn: &mut Conn) -> Result<()> {
        if std::mem::replace(&mut self.state, State::None) != State::Open {
            return Ok(());
        }
        match self.end(conn, &doc! { "abortTransaction": 1 }) {
            Err(Fault::Broken(e)) => Err(e),
            _ => Ok(()),
        }
    }

    fn end(&mut self, conn: &mut Conn, body: &DocBuf) -> std::result::Result<(), Fault> {
        let mut message = Message::command("admin", body);
        message
            .append(&doc! { "lsid": self.lsid(), "txnNumber": self.number, "autocommit": false });
        call(conn, None, &mut message).map(|_| ())
    }

    /// Tells the server that the session is over. A server that refuses this is ignored.
    ///
    /// # Errors
    /// The connection ended.
    pub(crate) fn over(&mut self, conn: &mut Conn) -> Result<()> {
        let mut message = Message::command("admin", &doc! { "endSessions": array![self.lsid()] });
        conn.call(&mut message).map(|_| ())
    }
}

/// The reason why the target cannot do retryable writes; `None` if it accepted one.
///
/// # Errors
/// The connection failed, or the server refused for a reason that says nothing about retryable
/// writes.
pub(crate) fn no_retries(conn: &mut Conn) -> Result<Option<String>> {
    let none = doc! { "q": doc! { "_id": Value::MinKey }, "u": doc! { "$set": doc! { "n": 1 } } };
    let mut session = Session::new(u64::MAX);
    let mut write = Message::command(
        DB,
        &doc! {
            "update": LINKS, "updates": array![none], "lsid": session.lsid(), "txnNumber": 1i64,
        },
    );
    match call(conn, None, &mut write).map(|_| ()) {
        Ok(()) => {
            session.over(conn)?;
            Ok(None)
        }
        Err(Fault::Refused(r)) if NONE.contains(&r.code) => Ok(Some(r.failure.0)),
        Err(e) => Err(Failure::from(e).while_doing("trying a retryable write")),
    }
}

/// The reason why the target cannot do transactions; `None` if it did one.
///
/// # Errors
/// The connection failed, or the server refused for a reason that says nothing about transactions.
pub(crate) fn unsupported(conn: &mut Conn) -> Result<Option<String>> {
    let mut session = Session::new(u64::MAX);
    session.begin();
    let mut read = Message::command(DB, &doc! { "find": LINKS, "limit": 1, "singleBatch": true });
    let tried = call(conn, Some(&mut session), &mut read).map(|_| ());
    let done = match tried {
        Ok(()) => session.commit(conn, || ()),
        Err(e) => session.abort(conn).map_err(Fault::Broken).and(Err(e)),
    };
    match done {
        Ok(()) => {
            session.over(conn)?;
            Ok(None)
        }
        Err(Fault::Refused(r)) if NONE.contains(&r.code) => Ok(Some(r.failure.0)),
        Err(e) => Err(Failure::from(e).while_doing("trying a transaction")),
    }
}
