//! The ends of clients' transactions, which may concern several shards.
//!
//! A commit first ends the parts that have only read. If one shard has written it commits alone; else the
//! first that was written to coordinates (`crate::distributed`).
//!
//! Invariant: a commit that is sent again, here or at another router, gives the same outcome.

use super::forward::{ask, ask_own};
use super::relay::{back, tell};
use super::statements::{abort, abort_of};
use super::transactions::{Id, Known, Part, no_such_transaction};
use super::{Reach, Router, SetPool};
use crate::context::CommandContext;
use crate::registry::Ends;
use crate::transactions::not_in_transaction;
use muniment_exec::session_doc;
use muniment_value::{ArrayBuf, Code, Error, Result, doc};
use muniment_wire::client;
use std::sync::Arc;

/// Ends a transaction as commitTransaction and abortTransaction ask.
///
/// # Errors
/// 125 outside a transaction; 251 if no shard has it, or it was aborted; the shards'.
pub fn end(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let id = cx.generic.session.zip(cx.generic.txn_number);
    if id.is_none() {
        return Err(not_in_transaction(cx.spec.name));
    }
    let known = id.and_then(|id| Some((id, router.transactions.ending(&id)?)));
    let token = cx.request.body.get_doc("recoveryToken");
    let named = token.and_then(|t| t.get_str("recoveryShardId"));
    let commits = cx.spec.ends_transaction == Some(Ends::Commit);
    let set = match (known, named) {
        (Some((id, known)), _) if commits && known.failed => {
            abort(cx, router, &known);
            return Err(no_such_transaction(id.1));
        }
        (Some((id, known)), _) if known.parts.len() > 1 => match commits {
            true => return commit(cx, router, &id, known),
            // A commit has begun, and its outcome may not be known.
            false if known.ended => {
                return Err(Error::new(
                    Code::TransactionCommitted,
                    format!(
                        "Transaction with {{ txnNumber: {} }} has been committed.",
                        id.1
                    ),
                ));
            }
            false => return abort_all(cx, router, &id, &known),
        },
        (Some((_, known)), _) => known.coordinator().map(Arc::clone),
        (None, Some(name)) => {
            let set = named_set(cx, router, name)?;
            if commits && recover(cx, router, &set)? {
                tell(cx, router, &set);
                return Ok(());
            }
            Some(set)
        }
        (None, None) => None,
    };
    let set = set.ok_or_else(|| {
        Error::new(
            Code::NoSuchTransaction,
            "no statement of the transaction was sent to a shard by this router",
        )
    })?;
    let reply = ask(cx, router, &set, cx.request.body, Reach::Primary)?;
    back(cx, router, &set, &reply)
}

/// Aborts a transaction as the client asks.
fn abort_all(cx: &mut CommandContext<'_>, router: &Router, id: &Id, known: &Known) -> Result<()> {
    router.transactions.fails(id);
    abort(cx, router, known);
    let Some(set) = known.coordinator() else {
        return Err(no_such_transaction(id.1));
    };
    tell(cx, router, set);
    Ok(())
}

/// Commits a transaction that has parts on several shards.
fn commit(cx: &mut CommandContext<'_>, router: &Router, id: &Id, known: Known) -> Result<()> {
    let (writers, readers): (Vec<Part>, Vec<Part>) =
        known.parts.iter().cloned().partition(|part| part.wrote);
    // If the commit is sent again, the shards may know no more of parts that have only read.
    if !known.ended {
        for part in &readers {
            let ended = ask(cx, router, &part.set, cx.request.body, Reach::Primary)
                .and_then(|reply| client::check_ok(reply.body.as_doc()));
            if let Err(e) = ended {
                router.transactions.fails(id);
                abort(cx, router, &known);
                return Err(e);
            }
        }
        router.transactions.ends(id);
    }
    let Some(first) = known.coordinator() else {
        return Err(no_such_transaction(id.1));
    };
    match &writers[..] {
        [] => {
            tell(cx, router, first);
            Ok(())
        }
        [one] => {
            let reply = ask(cx, router, &one.set, cx.request.body, Reach::Primary)?;
            back(cx, router, &one.set, &reply)
        }
        all => {
            let sets = all.iter().map(|part| part.set.text()).collect();
            match coordinate(cx, router, id, first, sets)? {
                true => {
                    tell(cx, router, first);
                    Ok(())
                }
                false => Err(no_such_transaction(id.1)),
            }
        }
    }
}

/// Has a shard commit a transaction with these participants; with none it only says how it has ended. True if
/// it is committed.
///
/// # Errors
/// Those of the way there, and of the shard.
pub fn coordinate(
    cx: &CommandContext<'_>,
    router: &Router,
    (session, number): &Id,
    set: &SetPool,
    participants: ArrayBuf,
) -> Result<bool> {
    let command = doc! {
        "_clusterCommit": 1,
        "transaction": doc! { "lsid": session_doc(session), "txnNumber": *number },
        "participants": participants,
    };
    let time = router.times.newest();
    let reply = set.run("admin", &command, time, true, &**cx.op)?;
    router.times.heard(reply.as_doc());
    Ok(reply.as_doc().get_str("outcome") == Some("committed"))
}

/// The shard that a token names, which is the name of its set.
///
/// # Errors
/// 70 ShardNotFound.
fn named_set(cx: &CommandContext<'_>, router: &Router, name: &str) -> Result<Arc<SetPool>> {
    let shards = router.catalog.shards(&**cx.op, router)?;
    let mut sets = shards.into_iter().map(|(_, set)| set);
    let found = sets.find(|set| set.name == name);
    found.ok_or_else(|| Error::new(Code::ShardNotFound, format!("Shard {name} not found")))
}

/// Learns how a transaction has ended that another router has begun. If it has not, it is aborted: that router may
/// know of a statement that has failed. True if nothing more is to be done; false if the shard knows it as
/// committed, and can be sent the commit again.
///
/// # Errors
/// 251 if it was not committed; the shard's.
fn recover(cx: &CommandContext<'_>, router: &Router, set: &Arc<SetPool>) -> Result<bool> {
    let number = cx.generic.txn_number.unwrap_or_default();
    let reply = ask_own(
        cx,
        router,
        set,
        ("admin", abort_of(number).as_doc()),
        &**cx.op,
    )?;
    match client::check_ok(reply.body.as_doc()) {
        Err(e) if e.code() == Code::TransactionCommitted => Ok(false),
        // The shard coordinates it, or waits for the one that does. Or it does not know it: what a member says that leads no
        // more, and does not know that, is not relied on.
        Err(e)
            if matches!(
                e.code(),
                Code::PreparedTransactionInProgress | Code::NoSuchTransaction
            ) =>
        {
            let id = cx.generic.session.map(|session| (session, number));
            let id = id.ok_or_else(|| no_such_transaction(number))?;
            match coordinate(cx, router, &id, set, ArrayBuf::new())? {
                true => Ok(true),
                false => Err(no_such_transaction(number)),
            }
        }
        Err(e) => Err(e),
        Ok(()) => Err(no_such_transaction(number)),
    }
}
