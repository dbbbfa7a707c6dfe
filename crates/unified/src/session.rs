//! Sessions and their transactions, by the drivers' specifications.

use crate::client::{Call, Client, Kind, Settings, idle};
use crate::failure::{Done, Failure, Trouble, broken};
use bson::{Bson, Document, Timestamp, doc};
use std::cell::RefCell;
use std::rc::Rc;

/// The part of a session that the server knows.
#[derive(Clone, Debug)]
pub(crate) struct ServerSession {
    /// Its id.
    pub lsid: Document,
    /// The number of the last transaction or retryable write.
    pub txn_number: i64,
    /// True after a connection broke. Such a session is never used again.
    pub dirty: bool,
}

impl Default for ServerSession {
    fn default() -> ServerSession {
        ServerSession {
            lsid: doc! { "id": bson::Uuid::new() },
            txn_number: 0,
            dirty: false,
        }
    }
}

/// The state of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxnState {
    /// There was no transaction.
    None,
    /// It has begun, but nothing was sent.
    Starting,
    /// The server knows of it.
    InProgress,
    /// It was committed, or the client has tried to.
    Committed,
    /// It was aborted.
    Aborted,
}

impl TxnState {
    /// The state's name in the tests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TxnState::None => "none",
            TxnState::Starting => "starting",
            TxnState::InProgress => "in_progress",
            TxnState::Committed => "committed",
            TxnState::Aborted => "aborted",
        }
    }
}

/// A session that several holders share.
pub(crate) type SessionRef = Rc<RefCell<Session>>;

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    client: Rc<Client>,
    server: Option<ServerSession>,
    /// The id, which is kept after the end for comparisons.
    lsid: Document,
    explicit: bool,
    causal: bool,
    snapshot: bool,
    snapshot_time: Option<Timestamp>,
    operation_time: Option<Timestamp>,
    defaults: Settings,
    default_commit_ms: Option<Bson>,
    /// The state of its transaction.
    pub state: TxnState,
    txn: Settings,
    commit_ms: Option<Bson>,
    /// True if the transaction ended without having sent anything.
    empty: bool,
}

impl Session {
    /// A session with its part on the server. `options` are those of an entity, if the session is explicit.
    ///
    /// # Errors
    /// For unknown options.
    pub(crate) fn new(
        client: Rc<Client>,
        server: ServerSession,
        options: Option<Document>,
    ) -> Done<SessionRef> {
        let explicit = options.is_some();
        let mut options = options.unwrap_or_default();
        let snapshot = flag(&mut options, "snapshot").unwrap_or(false);
        let causal = flag(&mut options, "causalConsistency").unwrap_or(explicit && !snapshot);
        let snapshot_time = match options.remove("snapshotTime") {
            Some(Bson::Timestamp(t)) => Some(t),
            None => None,
            Some(other) => return broken(format!("snapshotTime is {other}")),
        };
        let mut defaults = match options.remove("defaultTransactionOptions") {
            Some(Bson::Document(d)) => d,
            _ => Document::new(),
        };
        if !options.is_empty() {
            return broken(format!("session options: {options}"));
        }
        if snapshot && causal {
            return broken("a snapshot session cannot be causally consistent");
        }
        let settings = client.settings.with(&mut defaults);
        Ok(Rc::new(RefCell::new(Session {
            defaults: settings.clone(),
            default_commit_ms: defaults.remove("maxCommitTimeMS"),
            client,
            lsid: server.lsid.clone(),
            server: Some(server),
            explicit,
            causal,
            snapshot,
            snapshot_time,
            operation_time: None,
            state: TxnState::None,
            txn: settings,
            commit_ms: None,
            empty: false,
        })))
    }

    /// True if the test has made it.
    pub(crate) fn is_explicit(&self) -> bool {
        self.explicit
    }

    /// The session's id.
    pub(crate) fn lsid(&self) -> Document {
        self.lsid.clone()
    }

    /// True after a connection broke while it used the session.
    pub(crate) fn is_dirty(&self) -> bool {
        self.server.as_ref().is_some_and(|s| s.dirty)
    }

    /// The time at which a snapshot session reads.
    pub(crate) fn snapshot_time(&self) -> Option<Timestamp> {
        self.snapshot_time
    }

    /// The client that it belongs to.
    pub(crate) fn client(&self) -> Rc<Client> {
        self.client.clone()
    }

    /// True while a transaction accepts commands.
    pub(crate) fn in_transaction(&self) -> bool {
        matches!(self.state, TxnState::Starting | TxnState::InProgress)
    }

    /// Ends the session, whose server part goes back to the client.
    pub(crate) fn end(&mut self) {
        if let Some(s) = self.server.take() {
            self.client.give_back(s);
        }
    }

    /// The read concern of a command that asks for `concern`. It gets the time of a snapshot session (in
    /// every command that begins something) and that of a causally consistent session (in reads and writes:
    /// `operation`).
    pub(crate) fn read_concern(
        &self,
        mut concern: Document,
        body: &Document,
        operation: bool,
    ) -> Document {
        /// These commands belong to something that has begun already.
        const LATER: &[&str] = &[
            "getMore",
            "killCursors",
            "commitTransaction",
            "abortTransaction",
        ];
        let name = body.keys().next().map_or("", String::as_str);
        if self.snapshot && !LATER.contains(&name) {
            concern = doc! { "level": "snapshot" };
            if let Some(t) = self.snapshot_time {
                concern.insert("atClusterTime", t);
            }
        } else if let (true, true, Some(t)) = (self.causal, operation, self.operation_time) {
            concern.insert("afterClusterTime", t);
        }
        concern
    }

    /// Checks where a read in a transaction would go. `own` is the command's read preference.
    ///
    /// # Errors
    /// If the preference is not the primary.
    pub(crate) fn check_preference(&self, own: Option<&Document>) -> Result<(), Failure> {
        let preference = own.or(self.txn.read_preference.as_ref());
        match preference.and_then(|p| p.get_str("mode").ok()) {
            None | Some("primary") => Ok(()),
            Some(_) => Err(Failure::of_client(
                "read preference in a transaction must be primary",
            )),
        }
    }

    /// Adds the session's fields to a command.
    ///
    /// # Errors
    /// For a session that has ended.
    pub(crate) fn apply(&mut self, body: &mut Document, numbered: bool) -> Result<(), Failure> {
        let ends = body.contains_key("commitTransaction") || body.contains_key("abortTransaction");
        if !ends && idle(self.state) {
            self.state = TxnState::None;
        }
        let first = self.state == TxnState::Starting;
        let begins = match first {
            true => {
                let concern = self.txn.read_concern.clone().unwrap_or_default();
                self.read_concern(concern, body, true)
            }
            false => Document::new(),
        };
        let Some(server) = &mut self.server else {
            return Err(Failure::of_client("the session has ended"));
        };
        body.insert("lsid", server.lsid.clone());
        if numbered {
            server.txn_number += 1;
            body.insert("txnNumber", server.txn_number);
        }
        if self.state != TxnState::None {
            if first {
                body.insert("startTransaction", true);
                if !begins.is_empty() {
                    body.insert("readConcern", begins);
                }
                self.state = TxnState::InProgress;
            }
            body.insert("txnNumber", server.txn_number);
            body.insert("autocommit", false);
        }
        Ok(())
    }

    /// Keeps the times in a reply.
    pub(crate) fn learn(&mut self, reply: &Document) {
        if let Ok(t) = reply.get_timestamp("operationTime") {
            self.operation_time = Some(t);
        }
        if self.snapshot && self.snapshot_time.is_none() {
            let cursor = reply.get_document("cursor").unwrap_or(reply);
            self.snapshot_time = cursor.get_timestamp("atClusterTime").ok();
        }
    }

    /// Notes that a connection broke while it used the session.
    pub(crate) fn broken(&mut self, e: &mut Failure) {
        if let Some(s) = &mut self.server {
            s.dirty = true;
        }
        if self.in_transaction() {
            e.labels.push("TransientTransactionError".into());
        }
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// If there is one already.
    pub(crate) fn start_transaction(&mut self, options: &mut Document) -> Result<(), Failure> {
        if self.snapshot {
            return Err(Failure::of_client(
                "Transactions are not supported in snapshot sessions",
            ));
        }
        if self.in_transaction() {
            return Err(Failure::of_client("Transaction already in progress"));
        }
        self.txn = self.defaults.with(options);
        if self.txn.unacknowledged() {
            return Err(Failure::of_client(
                "transactions do not support unacknowledged write concern",
            ));
        }
        let ms = options.remove("maxCommitTimeMS");
        self.commit_ms = ms.or_else(|| self.default_commit_ms.clone());
        if let Some(s) = &mut self.server {
            s.txn_number += 1;
        }
        self.state = TxnState::Starting;
        Ok(())
    }

    /// Notes that the transaction ends. Returns its state before.
    ///
    /// # Errors
    /// If it cannot end so.
    fn close_transaction(&mut self, commit: bool) -> Result<TxnState, Failure> {
        let before = self.state;
        let refused = match (before, commit) {
            (TxnState::None, _) => Some("No transaction started"),
            (TxnState::Aborted, true) => {
                Some("Cannot call commitTransaction after calling abortTransaction")
            }
            (TxnState::Aborted, false) => Some("Cannot call abortTransaction twice"),
            (TxnState::Committed, false) => {
                Some("Cannot call abortTransaction after calling commitTransaction")
            }
            _ => None,
        };
        if let Some(why) = refused {
            return Err(Failure::of_client(why));
        }
        self.state = match commit {
            true => TxnState::Committed,
            false => TxnState::Aborted,
        };
        match before {
            TxnState::Starting => self.empty = true,
            TxnState::InProgress => self.empty = false,
            _ => {}
        }
        Ok(before)
    }
}

fn flag(options: &mut Document, name: &str) -> Option<bool> {
    options.remove(name).and_then(|v| v.as_bool())
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends a session's transaction with `commitTransaction` or `abortTransaction`.
///
/// # Errors
/// The server's error, with the labels that drivers add; an abort has no errors.
pub(crate) fn end_transaction(session: &SessionRef, commit: bool) -> Result<(), Failure> {
    let (client, mut concern, ms, before) = {
        let mut s = session.borrow_mut();
        let before = s.close_transaction(commit)?;
        if s.empty {
            return Ok(());
        }
        let concern = s.txn.write_concern.clone().unwrap_or_default();
        (s.client.clone(), concern, s.commit_ms.clone(), before)
    };
    // A commit that is sent again must not succeed before the first one is safe.
    let stronger = |concern: &mut Document| {
        concern.insert("w", "majority");
        if !concern.contains_key("wtimeout") {
            concern.insert("wtimeout", 10_000);
        }
    };
    if before == TxnState::Committed {
        stronger(&mut concern);
    }
    let send = |concern: &Document| {
        let name = if commit {
            "commitTransaction"
        } else {
            "abortTransaction"
        };
        let mut body = doc! { name: 1 };
        if let (true, Some(ms)) = (commit, &ms) {
            body.insert("maxTimeMS", ms.clone());
        }
        if !concern.is_empty() {
            body.insert("writeConcern", concern.clone());
        }
        let reply = client.run(Call {
            db: "admin",
            body,
            sequences: Vec::new(),
            session: Some(session),
            kind: Kind::Bare,
            settings: &Settings::default(),
        })?;
        crate::client::check_write(&reply)
    };
    let again = |e: &Failure| e.network || e.has_label("RetryableWriteError");
    let mut result = send(&concern);
    if result.as_ref().is_err_and(again) {
        if commit {
            stronger(&mut concern);
        }
        result = send(&concern);
    }
    match result {
        Err(mut e) if commit => {
            let unknown = match e.write_concern_errors.first() {
                Some(_) => !matches!(e.code, Some(79 | 100)),
                None => again(&e) || e.code == Some(50),
            };
            if unknown && !e.has_label("UnknownTransactionCommitResult") {
                e.labels.push("UnknownTransactionCommitResult".into());
            }
            Err(e)
        }
        Err(_) if !commit => Ok(()),
        other => other,
    }
}

/// Runs `callback` in a transaction, again and again as the labels of errors ask for it.
///
/// # Errors
/// The errors of the callback and of the commit.
pub(crate) fn with_transaction(
    session: &SessionRef,
    options: &Document,
    mut callback: impl FnMut() -> Done<()>,
) -> Done<()> {
    /// A limit, so that this is not an endless loop.
    const TURNS: usize = 20;
    for _ in 0..TURNS {
        session
            .borrow_mut()
            .start_transaction(&mut options.clone())?;
        if let Err(e) = callback() {
            if session.borrow().in_transaction() {
                end_transaction(session, false)?;
            }
            match e {
                Trouble::Failed(f) if f.has_label("TransientTransactionError") => continue,
                other => return Err(other),
            }
        }
        if !session.borrow().in_transaction() {
            return Ok(());
        }
        let mut result = end_transaction(session, true);
        for _ in 0..TURNS {
            let again = |e: &Failure| {
                e.has_label("UnknownTransactionCommitResult") && e.code.is_none_or(|c| c != 50)
            };
            if !result.as_ref().is_err_and(again) {
                break;
            }
            result = end_transaction(session, true);
        }
        match result {
            Err(e) if e.has_label("TransientTransactionError") => {}
            other => return Ok(other?),
        }
    }
    broken("withTransaction does not come to an end")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::client::Topology;
    use crate::test::Deployment;

    fn session(options: Document) -> SessionRef {
        let deployment = Deployment {
            address: "127.0.0.1:1".into(),
            topology: Topology::ReplicaSet,
            version: [8, 0, 0],
            parameters: doc! {},
        };
        let client = Client::new(&deployment, &doc! {}).ok().unwrap();
        client.session(Some(options)).ok().unwrap()
    }

    fn applied(s: &SessionRef, name: &str, numbered: bool) -> Document {
        let mut body = doc! { name: 1 };
        s.borrow_mut().apply(&mut body, numbered).unwrap();
        body.remove("lsid").unwrap();
        body
    }

    #[test]
    fn a_transaction_begins_with_its_first_command() {
        let s = session(doc! {});
        assert_eq!(applied(&s, "insert", false), doc! { "insert": 1 });
        assert_eq!(
            applied(&s, "insert", true),
            doc! { "insert": 1, "txnNumber": 1_i64 }
        );
        let mut options = doc! { "readConcern": { "level": "snapshot" } };
        s.borrow_mut().start_transaction(&mut options).unwrap();
        let first = doc! {
            "find": 1, "startTransaction": true, "readConcern": { "level": "snapshot" },
            "txnNumber": 2_i64, "autocommit": false,
        };
        assert_eq!(applied(&s, "find", false), first);
        let later = doc! { "find": 1, "txnNumber": 2_i64, "autocommit": false };
        assert_eq!(applied(&s, "find", false), later);
        assert!(s.borrow_mut().start_transaction(&mut doc! {}).is_err());
        let secondary = doc! { "mode": "secondary" };
        assert!(s.borrow().check_preference(None).is_ok());
        assert!(s.borrow().check_preference(Some(&secondary)).is_err());
        s.borrow_mut().state = TxnState::Committed;
        assert_eq!(applied(&s, "commitTransaction", false).len(), 3);
        assert_eq!(applied(&s, "find", false), doc! { "find": 1 });
    }

    #[test]
    fn a_transaction_that_sent_nothing_is_ended_without_a_command() {
        let s = session(doc! {});
        assert!(end_transaction(&s, true).unwrap_err().client);
        s.borrow_mut().start_transaction(&mut doc! {}).unwrap();
        // There is no server that could be asked.
        end_transaction(&s, true).unwrap();
        end_transaction(&s, true).unwrap();
        assert!(end_transaction(&s, false).is_err());
    }

    #[test]
    fn times_go_into_read_concerns() {
        let t = Timestamp {
            time: 5,
            increment: 1,
        };
        let reply = doc! { "operationTime": t, "atClusterTime": t };
        let causal = session(doc! {});
        let of = |s: &SessionRef, name: &str, operation| {
            s.borrow()
                .read_concern(doc! {}, &doc! { name: 1 }, operation)
        };
        assert_eq!(of(&causal, "find", true), doc! {});
        causal.borrow_mut().learn(&reply);
        assert_eq!(of(&causal, "find", true), doc! { "afterClusterTime": t });
        assert_eq!(of(&causal, "ping", false), doc! {});
        let snapshot = session(doc! { "snapshot": true });
        assert_eq!(of(&snapshot, "find", true), doc! { "level": "snapshot" });
        snapshot.borrow_mut().learn(&reply);
        let at = doc! { "level": "snapshot", "atClusterTime": t };
        assert_eq!(of(&snapshot, "listCollections", false), at);
        assert_eq!(of(&snapshot, "getMore", false), doc! {});
        let both = doc! { "snapshot": true, "causalConsistency": true };
        assert!(matches!(
            Session::new(
                snapshot.borrow().client(),
                ServerSession::default(),
                Some(both)
            ),
            Err(Trouble::Broken(_))
        ));
    }
}
