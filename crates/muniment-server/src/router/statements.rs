//! The statements of clients' transactions. Each shard begins its part of a transaction with the first statement
//! that it gets; any error aborts the transaction on all of them.

use super::forward::{Own, Part, ask_own_of_all, ask_part, lsid};
use super::transactions::{Id, Known, no_such_transaction};
use super::{Reach, Router, SetPool};
use crate::context::CommandContext;
use crate::sets::{Reply, Until};
use muniment_value::{Doc, DocBuf, Result, doc};
use muniment_wire::client;
use std::sync::Arc;
use std::time::Duration;

/// The longest time for which a shard is told to abort its part.
const ABORTING: Duration = Duration::from_secs(2);

/// Sends a statement of a transaction to a shard, which begins its part if it has none yet.
///
/// # Errors
/// Those of the way there; 251 if the transaction was aborted before. It is aborted on all shards then.
pub fn statement(
    cx: &CommandContext<'_>,
    router: &Router,
    id: &Id,
    part: &Part<'_>,
) -> Result<Reply> {
    let set = part.set;
    let transactions = &router.transactions;
    // The first statement may go to several shards.
    if cx.generic.start_transaction.is_some() && !transactions.has_begun(id) {
        transactions.begin(*id, cx.generic.read_concern)?;
    }
    let reply = match transactions.goes_to(id, set)? {
        // The router's second message of a first statement begins nothing.
        None if cx.generic.start_transaction.is_some() => {
            let body = without_beginning(part.body);
            let part = Part {
                body: body.as_doc(),
                ..*part
            };
            ask_part(cx, router, &part)
        }
        None => ask_part(cx, router, part),
        Some(concern) => {
            let body = first_of_part(part.body, concern);
            let part = Part {
                body: body.as_doc(),
                ..*part
            };
            ask_part(cx, router, &part)
        }
    };
    let failed = match &reply {
        Ok(reply) => {
            let said = reply.body.as_doc();
            transactions.told(id, set, said);
            let in_part = said.get("writeErrors").is_some()
                || said.get("nErrors").is_some_and(|n| n.truthy());
            client::check_ok(said).is_err() || in_part
        }
        Err(_) => true,
    };
    if failed {
        transactions.fails(id);
        if let Some(known) = transactions.of(id) {
            abort(cx, router, &known);
        }
    } else if !transactions.goes_on(id) {
        // It was aborted meanwhile, for a later one, and this part may have begun after that.
        abort_on(cx, router, id.1, &[Arc::clone(set)]);
        return Err(no_such_transaction(id.1));
    }
    reply
}

/// The statement for a shard that begins its part with it.
fn first_of_part(body: Doc<'_>, concern: Option<DocBuf>) -> DocBuf {
    let mut part = without_beginning(body);
    part.append("startTransaction", true);
    part.append_some("readConcern", concern.as_ref());
    part
}

/// A statement that does not begin a transaction.
fn without_beginning(body: Doc<'_>) -> DocBuf {
    let mut part = DocBuf::new();
    for e in body {
        if !["startTransaction", "readConcern"].contains(&e.name()) {
            part.append_elem(e);
        }
    }
    part
}

/// Aborts all parts. A shard that cannot be told aborts its part by itself, when it has lasted for too long.
pub fn abort(cx: &CommandContext<'_>, router: &Router, known: &Known) {
    let number = cx.generic.txn_number.unwrap_or_default();
    abort_on(cx, router, number, &sets_of(known));
}

/// Aborts the transaction that the client's session has left open for a later one, as a single server does. Otherwise
/// its parts on shards to which the later one does not come would hold up others until they have lasted too long.
pub fn abort_earlier(cx: &CommandContext<'_>, router: &Router) {
    let id = cx.generic.session.zip(cx.generic.txn_number);
    if let Some((number, known)) = id.and_then(|id| router.transactions.left_open(&id)) {
        abort_on(cx, router, number, &sets_of(&known));
    }
}

fn sets_of(known: &Known) -> Vec<Arc<SetPool>> {
    known.parts.iter().map(|p| Arc::clone(&p.set)).collect()
}

/// Tells all sets at once to abort their parts.
fn abort_on(cx: &CommandContext<'_>, router: &Router, number: i64, sets: &[Arc<SetPool>]) {
    let Some(session) = &cx.generic.session else {
        return;
    };
    let mut abort = abort_of(number);
    abort.append("lsid", lsid(session));
    let asked: Vec<Own<'_>> = sets
        .iter()
        .map(|set| Own {
            set,
            db: "admin",
            command: &abort,
            versions: None,
            reach: Reach::Primary,
        })
        .collect();
    let on = Until {
        on: &**cx.op,
        until: muniment_op::now() + ABORTING,
    };
    ask_own_of_all(&on, router, &asked);
}

/// abortTransaction, for a transaction of the session in which the client's command came.
pub fn abort_of(number: i64) -> DocBuf {
    doc! {
        "abortTransaction": 1,
        "txnNumber": number,
        "autocommit": false,
    }
}
