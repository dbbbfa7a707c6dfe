//! The right to change what the configuration says of a collection: a document of `config.ddl`, which one router at a
//! time can insert.
//!
//! The change itself is a transaction that removes the document, so it fails if another router has taken the right away
//! meanwhile. That may be done when the document is so old that its router must be gone; how the change ended is then
//! to be read from the configuration ([`settle`](super::settle)).

use crate::context::CommandContext;
use crate::router::configuration::{read, read_after};
use crate::router::forward::run;
use crate::router::{Reach, Router};
use crate::transactions::{is_retryable, is_transient};
use crate::uuid::uuid_value;
use muniment_op::{Interrupt, sleep_until};
use muniment_shard::Timestamp;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, array, doc};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// So many chunks are deleted in one transaction, whose size is limited.
const CHUNKS: usize = 10_000;

/// A document older than this may be removed. Commands wait longer than this for a change to be settled.
const OLD: Duration = Duration::from_secs(8);
/// How often the right is renewed during work that may take long.
const OFTEN: Duration = Duration::from_secs(2);
/// How long another router's right is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a change is tried whose transaction has ended with its primary.
const ATTEMPTS: usize = 5;
/// How often it is looked for.
const PAUSE: Duration = Duration::from_millis(100);

/// The right to change one collection.
pub struct Lease {
    ns: String,
    /// The UUID that tells this document from others of the collection.
    token: [u8; 16],
    /// The time of the cluster at which it was inserted.
    pub at: Timestamp,
}

impl Lease {
    /// Takes the right for `what`, after waiting for another router that has it.
    ///
    /// # Errors
    /// 46 LockBusy after a minute; those of the configuration's set.
    pub fn take(cx: &CommandContext<'_>, router: &Router, ns: &str, what: &str) -> Result<Lease> {
        Lease::take_on(&**cx.op, router, ns, what)
    }

    /// As [`Lease::take`].
    ///
    /// # Errors
    /// As [`Lease::take`].
    pub fn take_on(on: &dyn Interrupt, router: &Router, ns: &str, what: &str) -> Result<Lease> {
        let until = muniment_op::now() + PATIENCE;
        loop {
            if let Some(lease) = Lease::attempt(on, router, ns, what)? {
                return Ok(lease);
            }
            if muniment_op::now() >= until {
                let why = format!("{ns} is being changed by another router");
                return Err(Error::new(Code::LockBusy, why));
            }
            remove_old(on, router, ns)?;
            sleep_until(muniment_op::now() + PAUSE, on)?;
        }
    }

    /// Takes the right, unless another router has it and may still be there.
    ///
    /// # Errors
    /// Those of the configuration's set.
    fn try_take(
        on: &dyn Interrupt,
        router: &Router,
        ns: &str,
        what: &str,
    ) -> Result<Option<Lease>> {
        remove_old(on, router, ns)?;
        Lease::attempt(on, router, ns, what)
    }

    /// Takes the right if no router has it.
    fn attempt(on: &dyn Interrupt, router: &Router, ns: &str, what: &str) -> Result<Option<Lease>> {
        let token = crate::uuid::random_uuid();
        let update = doc! {
            "q": doc! { "_id": ns, "token": uuid_value(&token) },
            "u": array![doc! { "$set": doc! { "what": what, "at": "$$NOW" } }],
            "upsert": true,
        };
        let command = doc! {
            "update": "ddl", "updates": array![update], "writeConcern": doc! { "w": "majority" },
        };
        let begun = muniment_op::now();
        let reply = run(on, router, &router.config, "config", &command, true)?;
        let errors = reply.as_doc().get_array("writeErrors");
        if !errors.unwrap_or(Doc::EMPTY).is_empty() {
            return Ok(None);
        }
        Lease::taken(on, router, (ns, token, begun), &reply)
    }

    /// The right that a reply of the configuration's set tells of; `None` if it is lost already.
    ///
    /// The time in the reply is that of the reply. If that came late, another router may have taken the right away
    /// meanwhile, at an earlier time: the renewal shows that nobody has taken it until after this time.
    fn taken(
        on: &dyn Interrupt,
        router: &Router,
        (ns, token, begun): (&str, [u8; 16], Instant),
        reply: &DocBuf,
    ) -> Result<Option<Lease>> {
        let Some(Value::Timestamp { t, i }) = reply.as_doc().get("operationTime") else {
            return Err(Error::internal("the configuration's set tells no time"));
        };
        let lease = Lease {
            ns: ns.to_string(),
            token,
            at: Timestamp::new(t, i),
        };
        if muniment_op::since(begun) < OFTEN {
            return Ok(Some(lease));
        }
        match lease.renewed(on, router) {
            Ok(()) => Ok(Some(lease)),
            Err(e) if e.code() == Code::ConflictingOperationInProgress => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Takes the right away from a router that has it for `what`, which can decide nothing from here on. If no router has
    /// it for that, it is taken as usual.
    ///
    /// # Errors
    /// Those of [`Lease::take`].
    pub fn seize(
        cx: &CommandContext<'_>,
        router: &Router,
        ns: &str,
        (from, what): (&str, &str),
    ) -> Result<Lease> {
        let token = crate::uuid::random_uuid();
        let set = doc! { "token": uuid_value(&token), "what": what, "at": "$$NOW" };
        let update = doc! {
            "q": doc! { "_id": ns, "what": from }, "u": array![doc! { "$set": set }],
        };
        let command = doc! {
            "update": "ddl", "updates": array![update], "writeConcern": doc! { "w": "majority" },
        };
        let begun = muniment_op::now();
        let reply = run(&**cx.op, router, &router.config, "config", &command, false)?;
        let n = reply.as_doc().get("n").and_then(|v| v.as_i64_exact());
        let seized = match n {
            Some(1) => Lease::taken(&**cx.op, router, (ns, token, begun), &reply)?,
            _ => None,
        };
        match seized {
            Some(lease) => Ok(lease),
            None => Lease::take(cx, router, ns, what),
        }
    }

    /// Commits inserts into collections of the configuration, and deletions from them, and gives the right back with
    /// them. `statements` are commands on the database `config`.
    ///
    /// # Errors
    /// 117 ConflictingOperationInProgress if another router has taken the right away; those of the configuration's set.
    /// After any of them the change may have been made, unless the right is still there ([`Lease::renew`],
    /// [`Lease::release`]).
    pub fn commit(
        &self,
        cx: &CommandContext<'_>,
        router: &Router,
        statements: Vec<DocBuf>,
    ) -> Result<()> {
        self.commit_with(&[], cx, router, statements)
    }

    /// As [`Lease::commit`], if each deletion of one document finds it.
    ///
    /// # Errors
    /// As [`Lease::commit`]; 117 also if a document is not there.
    pub fn commit_whole(
        &self,
        cx: &CommandContext<'_>,
        router: &Router,
        statements: Vec<DocBuf>,
    ) -> Result<()> {
        let claims = vec![(self, self.removal())];
        let change = Change {
            claims,
            statements,
            whole: true,
        };
        change.run(cx, router)
    }

    /// As [`Lease::commit`]; the rights to change other collections are given back in the same step.
    ///
    /// # Errors
    /// As [`Lease::commit`].
    pub fn commit_with(
        &self,
        others: &[&Lease],
        cx: &CommandContext<'_>,
        router: &Router,
        statements: Vec<DocBuf>,
    ) -> Result<()> {
        let rights = [self].into_iter().chain(others.iter().copied());
        let change = Change {
            claims: rights.map(|lease| (lease, lease.removal())).collect(),
            statements,
            whole: false,
        };
        change.run(cx, router)
    }

    fn removal(&self) -> DocBuf {
        let of = doc! { "_id": &self.ns, "token": uuid_value(&self.token) };
        doc! { "delete": "ddl", "deletes": array![doc! { "q": of, "limit": 1 }] }
    }

    /// Deletes the chunks of a collection if this right is still there, and keeps the right. Another router that has taken
    /// it may have written chunks of the same UUID.
    ///
    /// # Errors
    /// As [`Lease::commit`].
    pub fn delete_chunks(
        &self,
        cx: &CommandContext<'_>,
        router: &Router,
        uuid: &[u8; 16],
    ) -> Result<()> {
        loop {
            let of = doc! { "uuid": uuid_value(uuid) };
            let page = ("_id", CHUNKS);
            let some = read_after(&**cx.op, router, "chunks", of, page, Reach::Primary)?;
            let ids: ArrayBuf = some.iter().filter_map(|d| d.as_doc().get("_id")).collect();
            let these = doc! { "uuid": uuid_value(uuid), "_id": doc! { "$in": ids } };
            let these = doc! { "q": these, "limit": 0 };
            let delete = doc! { "delete": "chunks", "deletes": array![these] };
            let change = Change {
                claims: vec![(self, self.renewal())],
                statements: vec![delete],
                whole: false,
            };
            change.run(cx, router)?;
            if some.len() < CHUNKS {
                return Ok(());
            }
        }
    }

    /// Deletes the chunks of a collection that the configuration has forgotten. Another router may be dividing it anew,
    /// under the same UUID: that one deletes what it finds.
    ///
    /// # Errors
    /// Those of the configuration's set.
    pub fn forget_chunks(
        cx: &CommandContext<'_>,
        router: &Router,
        ns: &str,
        uuid: &[u8; 16],
    ) -> Result<()> {
        let work = |lease: &Lease| {
            let of = doc! { "uuid": uuid_value(uuid) };
            match read(&**cx.op, router, "collections", of)?.is_empty() {
                true => lease.delete_chunks(cx, router, uuid),
                false => Ok(()),
            }
        };
        Lease::if_free(cx, router, (ns, "forget"), work).map(drop)
    }

    /// Keeps the right, before a step that may take some time.
    ///
    /// # Errors
    /// 117 ConflictingOperationInProgress if another router has taken it away; those of the configuration's set.
    pub fn renew(&self, cx: &CommandContext<'_>, router: &Router) -> Result<()> {
        self.renewed(&**cx.op, router)
    }

    fn renewal(&self) -> DocBuf {
        let update = doc! {
            "q": doc! { "_id": &self.ns, "token": uuid_value(&self.token) },
            "u": array![doc! { "$set": doc! { "at": "$$NOW" } }],
        };
        doc! { "update": "ddl", "updates": array![update] }
    }

    fn renewed(&self, on: &dyn Interrupt, router: &Router) -> Result<()> {
        let mut command = self.renewal();
        command.append("writeConcern", doc! { "w": "majority" });
        let reply = run(on, router, &router.config, "config", &command, true)?;
        match reply.as_doc().get("n").and_then(|v| v.as_i64_exact()) {
            Some(1) => Ok(()),
            _ => Err(self.lost()),
        }
    }

    /// Does something that may take long, and keeps the right meanwhile. If it is lost, that shows in the next step.
    pub fn keep<T>(&self, cx: &CommandContext<'_>, router: &Router, work: impl FnOnce() -> T) -> T {
        // There it is lost if the work takes long by the simulation's time.
        if muniment_op::is_simulated() {
            return work();
        }
        let on = Arc::clone(cx.op);
        let (done, ends) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(OFTEN) {
                    match self.renewed(&*on, router) {
                        Err(e) if e.code() == Code::ConflictingOperationInProgress => return,
                        // After another error the next attempt may succeed while the right is still young enough.
                        _ => {}
                    }
                }
            });
            let worked = work();
            drop(done);
            worked
        })
    }

    fn lost(&self) -> Error {
        Error::new(
            Code::ConflictingOperationInProgress,
            format!("another router has changed {} meanwhile", self.ns),
        )
    }

    /// Does something that has to be done while no other router is at work, and keeps the right meanwhile. `None` if one is.
    ///
    /// # Errors
    /// Those of the work; those of the configuration's set.
    pub fn if_free<T>(
        cx: &CommandContext<'_>,
        router: &Router,
        (ns, what): (&str, &str),
        work: impl FnOnce(&Lease) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(lease) = Lease::try_take(&**cx.op, router, ns, what)? else {
            return Ok(None);
        };
        let done = lease.keep(cx, router, || work(&lease));
        lease.give_back(cx, router, done).map(Some)
    }

    /// Gives the right back after work; what that came to.
    ///
    /// # Errors
    /// Those of the work, and otherwise those of the configuration's set.
    pub fn give_back<T>(
        self,
        cx: &CommandContext<'_>,
        router: &Router,
        done: Result<T>,
    ) -> Result<T> {
        let released = self.release(cx, router);
        let done = done?;
        released?;
        Ok(done)
    }

    /// Gives the right back. False if it was lost or given back by a change.
    ///
    /// # Errors
    /// Those of the configuration's set.
    pub fn release(&self, cx: &CommandContext<'_>, router: &Router) -> Result<bool> {
        self.release_on(&**cx.op, router)
    }

    /// As [`Lease::release`].
    ///
    /// # Errors
    /// As [`Lease::release`].
    pub fn release_on(&self, on: &dyn Interrupt, router: &Router) -> Result<bool> {
        let filter = doc! { "_id": &self.ns, "token": uuid_value(&self.token) };
        delete(on, router, "ddl", filter).map(|n| n > 0)
    }
}

/// A transaction on the configuration.
struct Change<'l> {
    /// Statements that find the documents of these rights.
    claims: Vec<(&'l Lease, DocBuf)>,
    /// Commands on the database `config`.
    statements: Vec<DocBuf>,
    /// Each deletion of one document has to find it.
    whole: bool,
}

/// Where a transaction has failed.
enum Failed {
    /// Before it was to be committed.
    Before(Error),
    /// When it was to be committed.
    AtCommit(Error),
}

impl Change<'_> {
    /// Makes the change. Its rights say whether that is still possible, so a transaction that has ended with its primary is
    /// run again.
    ///
    /// # Errors
    /// As [`Lease::commit`].
    fn run(&self, cx: &CommandContext<'_>, router: &Router) -> Result<()> {
        let mut attempts = 0;
        loop {
            let (error, passing) = match self.attempt(cx, router) {
                Ok(()) => return Ok(()),
                Err(Failed::Before(e)) => {
                    let passing = is_transient(e.code()) || is_retryable(e.code());
                    (e, passing)
                }
                Err(Failed::AtCommit(e)) => {
                    let passing = is_transient(e.code());
                    (e, passing)
                }
            };
            cx.op.check()?;
            attempts += 1;
            if passing && attempts < ATTEMPTS {
                sleep_until(muniment_op::now() + PAUSE, &**cx.op)?;
                continue;
            }
            // The client knows nothing of this transaction, so it is told no code or label of one.
            let code = match error.code() {
                Code::NoSuchTransaction => Code::InterruptedDueToReplStateChange,
                code => code,
            };
            let why = format!(
                "the configuration could not be changed: {}",
                error.message()
            );
            return Err(Error::new(code, why));
        }
    }

    fn attempt(&self, cx: &CommandContext<'_>, router: &Router) -> Result<(), Failed> {
        let session = crate::uuid::random_uuid();
        let send = |command: &DocBuf, db: &str, starts: bool, repeatable: bool| {
            let mut command = command.clone();
            command.append("lsid", doc! { "id": uuid_value(&session) });
            command.append("txnNumber", 1_i64);
            command.append("autocommit", false);
            command.append_some("startTransaction", starts.then_some(true));
            run(&**cx.op, router, &router.config, db, &command, repeatable)
        };
        let commit = doc! { "commitTransaction": 1, "writeConcern": doc! { "w": "majority" } };
        let written = self.write(|command, starts| send(command, "config", starts, false));
        // The commit may be repeated: the session remembers how its transaction has ended. It does not know one that was
        // not committed before its primary ended.
        let committed = written.map_err(Failed::Before).and_then(|()| {
            let committed = send(&commit, "admin", false, true);
            committed.map(drop).map_err(Failed::AtCommit)
        });
        committed.inspect_err(|_| {
            // It would be in the way of the next attempt.
            let _ = send(&doc! { "abortTransaction": 1 }, "admin", false, false);
        })
    }

    /// Writes what is to be committed. `send` sends a statement, and is told whether it is the first one.
    fn write(&self, send: impl Fn(&DocBuf, bool) -> Result<DocBuf>) -> Result<()> {
        let count = |reply: &DocBuf| reply.as_doc().get("n").and_then(|v| v.as_i64_exact());
        for (i, (lease, claim)) in self.claims.iter().enumerate() {
            let found = send(claim, i == 0)?;
            if count(&found) != Some(1) {
                return Err(lease.lost());
            }
        }
        for statement in &self.statements {
            let deletes = statement.as_doc().get_array("deletes");
            let wanted = deletes.filter(|_| self.whole).map(|all| all.count() as i64);
            let reply = send(statement, false)?;
            check_statements(reply.as_doc())?;
            if wanted.is_some_and(|wanted| count(&reply) != Some(wanted)) {
                let why = "what was to be replaced has changed meanwhile";
                return Err(Error::new(Code::ConflictingOperationInProgress, why));
            }
        }
        Ok(())
    }
}

/// Fails if a statement of a reply has failed.
fn check_statements(reply: Doc<'_>) -> Result<()> {
    let errors = reply.get_array("writeErrors").unwrap_or(Doc::EMPTY);
    match errors.values().next().and_then(|v| v.as_doc()) {
        None => Ok(()),
        Some(e) => {
            let code = muniment_wire::client::code_of(e).unwrap_or(Code::UnknownError);
            Err(Error::new(code, e.get_str("errmsg").unwrap_or_default()))
        }
    }
}

/// Whether a router has the right to change a collection, and may still be there.
///
/// # Errors
/// Those of the configuration's set.
pub fn is_taken(cx: &CommandContext<'_>, router: &Router, ns: &str) -> Result<bool> {
    remove_old(&**cx.op, router, ns)?;
    let found = read(&**cx.op, router, "ddl", doc! { "_id": ns })?;
    Ok(!found.is_empty())
}

/// Removes the document of a router that must be gone.
fn remove_old(on: &dyn Interrupt, router: &Router, ns: &str) -> Result<()> {
    let age = doc! { "$subtract": array!["$$NOW", "$at"] };
    let old = doc! { "$gt": array![age, OLD.as_millis() as i64] };
    delete(on, router, "ddl", doc! { "_id": ns, "$expr": old }).map(drop)
}

/// Deletes documents of the configuration; their number.
///
/// # Errors
/// Those of the configuration's set.
pub fn delete(on: &dyn Interrupt, router: &Router, from: &str, filter: DocBuf) -> Result<i64> {
    let command = doc! {
        "delete": from, "deletes": array![doc! { "q": filter, "limit": 0 }],
        "writeConcern": doc! { "w": "majority" },
    };
    let reply = run(on, router, &router.config, "config", &command, true)?;
    let reply = reply.as_doc();
    check_statements(reply)?;
    Ok(reply.get("n").and_then(|v| v.as_i64_exact()).unwrap_or(0))
}
