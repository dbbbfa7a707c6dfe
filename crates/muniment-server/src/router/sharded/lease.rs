//! The right to change what the configuration says of a collection: a document of `config.ddl`, which one router at a
//! time can insert.
//!
//! The change itself is a transaction that removes the document, so it fails if another router has taken the right away
//! meanwhile. That may be done when the document is so old that its router must be gone; how the change ended is then
//! to be read from the configuration ([`settle`](super::settle)).

use crate::context::CommandContext;
use crate::router::Router;
use crate::router::forward::run;
use muniment_op::sleep_until;
use muniment_shard::Timestamp;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, array, doc};
use std::time::{Duration, Instant};

/// A document older than this may be removed. Commands wait longer than this for a change to be settled.
const OLD: Duration = Duration::from_secs(8);
/// How long another router's right is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
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
        let token = crate::uuid::random_uuid();
        let until = Instant::now() + PATIENCE;
        loop {
            let update = doc! {
                "q": doc! { "_id": ns, "token": binary(&token) },
                "u": array![doc! { "$set": doc! { "what": what, "at": "$$NOW" } }],
                "upsert": true,
            };
            let command = doc! {
                "update": "ddl", "updates": array![update], "writeConcern": doc! { "w": "majority" },
            };
            let reply = run(&**cx.op, router, &router.config, "config", &command, true)?;
            let errors = reply
                .as_doc()
                .get_array("writeErrors")
                .unwrap_or(Doc::EMPTY);
            if errors.is_empty() {
                let at = match reply.as_doc().get("operationTime") {
                    Some(Value::Timestamp { t, i }) => Timestamp::new(t, i),
                    _ => return Err(Error::internal("the configuration's set tells no time")),
                };
                return Ok(Lease {
                    ns: ns.to_string(),
                    token,
                    at,
                });
            }
            if Instant::now() >= until {
                let why = format!("{ns} is being changed by another router");
                return Err(Error::new(Code::LockBusy, why));
            }
            remove_old(cx, router, ns)?;
            sleep_until(Instant::now() + PAUSE, &**cx.op)?;
        }
    }

    /// Commits inserts into collections of the configuration, and deletions from them, and gives the right back with
    /// them. `statements` are commands on the database `config`.
    ///
    /// # Errors
    /// 117 ConflictingOperationInProgress if another router has taken the right away: nothing is changed then; those
    /// of the configuration's set, after which the change may have been made.
    pub fn commit(
        &self,
        cx: &CommandContext<'_>,
        router: &Router,
        statements: Vec<DocBuf>,
    ) -> Result<()> {
        let session = crate::uuid::random_uuid();
        let send = |mut command: DocBuf, starts: bool| {
            command.append("lsid", doc! { "id": binary(&session) });
            command.append("txnNumber", 1_i64);
            command.append("autocommit", false);
            command.append_some("startTransaction", starts.then_some(true));
            command
        };
        let ask =
            |command: DocBuf, db: &str| run(&**cx.op, router, &router.config, db, &command, false);
        let remove = doc! {
            "delete": "ddl",
            "deletes": array![doc! { "q": doc! { "_id": &self.ns, "token": binary(&self.token) }, "limit": 1 }],
        };
        let removed = ask(send(remove, true), "config")?;
        if removed.as_doc().get("n").and_then(|v| v.as_i64_exact()) != Some(1) {
            let _ = ask(send(doc! { "abortTransaction": 1 }, false), "admin");
            return Err(self.lost());
        }
        for statement in statements {
            let reply = ask(send(statement, false), "config")?;
            let errors = reply
                .as_doc()
                .get_array("writeErrors")
                .unwrap_or(Doc::EMPTY);
            if let Some(e) = errors.values().next().and_then(|v| v.as_doc()) {
                let code = muniment_wire::client::code_of(e).unwrap_or(Code::UnknownError);
                return Err(Error::new(code, e.get_str("errmsg").unwrap_or_default()));
            }
        }
        let commit = doc! { "commitTransaction": 1, "writeConcern": doc! { "w": "majority" } };
        // It may be repeated: the session remembers how its transaction has ended.
        run(
            &**cx.op,
            router,
            &router.config,
            "admin",
            &send(commit, false),
            true,
        )
        .map(drop)
    }

    /// Keeps the right, before a step that may take some time.
    ///
    /// # Errors
    /// 117 ConflictingOperationInProgress if another router has taken it away; those of the configuration's set.
    pub fn renew(&self, cx: &CommandContext<'_>, router: &Router) -> Result<()> {
        let update = doc! {
            "q": doc! { "_id": &self.ns, "token": binary(&self.token) },
            "u": array![doc! { "$set": doc! { "at": "$$NOW" } }],
        };
        let command = doc! {
            "update": "ddl", "updates": array![update], "writeConcern": doc! { "w": "majority" },
        };
        let reply = run(&**cx.op, router, &router.config, "config", &command, true)?;
        match reply.as_doc().get("n").and_then(|v| v.as_i64_exact()) {
            Some(1) => Ok(()),
            _ => Err(self.lost()),
        }
    }

    fn lost(&self) -> Error {
        Error::new(
            Code::ConflictingOperationInProgress,
            format!("another router has changed {} meanwhile", self.ns),
        )
    }

    /// Gives the right back. False if it was lost or given back by a change.
    ///
    /// # Errors
    /// Those of the configuration's set.
    pub fn release(&self, cx: &CommandContext<'_>, router: &Router) -> Result<bool> {
        let filter = doc! { "_id": &self.ns, "token": binary(&self.token) };
        delete(cx, router, "ddl", filter).map(|n| n > 0)
    }
}

/// Whether a router has the right to change a collection, and may still be there.
///
/// # Errors
/// Those of the configuration's set.
pub fn is_taken(cx: &CommandContext<'_>, router: &Router, ns: &str) -> Result<bool> {
    remove_old(cx, router, ns)?;
    let found = crate::router::catalog::read(&**cx.op, router, "ddl", doc! { "_id": ns })?;
    Ok(!found.is_empty())
}

/// Removes the document of a router that must be gone.
fn remove_old(cx: &CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let age = doc! { "$subtract": array!["$$NOW", "$at"] };
    let old = doc! { "$gt": array![age, OLD.as_millis() as i64] };
    delete(cx, router, "ddl", doc! { "_id": ns, "$expr": old }).map(drop)
}

/// Deletes documents of the configuration; their number.
///
/// # Errors
/// Those of the configuration's set.
pub fn delete(cx: &CommandContext<'_>, router: &Router, from: &str, filter: DocBuf) -> Result<i64> {
    let command = doc! {
        "delete": from, "deletes": array![doc! { "q": filter, "limit": 0 }],
        "writeConcern": doc! { "w": "majority" },
    };
    let reply = run(&**cx.op, router, &router.config, "config", &command, true)?;
    Ok(reply
        .as_doc()
        .get("n")
        .and_then(|v| v.as_i64_exact())
        .unwrap_or(0))
}

/// A UUID as a value.
pub fn binary(uuid: &[u8; 16]) -> Value<'_> {
    Value::Binary {
        subtype: 4,
        bytes: uuid,
    }
}
