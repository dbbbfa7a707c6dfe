//! Waiting until a write is acknowledged as its write concern asks.
//!
//! A failure to acknowledge is no failure of the write, which stays: it is told as
//! `writeConcernError` in a reply with `ok: 1`.

use crate::concern::WriteConcern;
use crate::context::CommandContext;
use crate::registry::{Ends, Kind, Statements};
use crate::state::ServerState;
use crate::transactions;
use muniment_consensus::Concern;
use muniment_member::{KeptBack, Node, W, counts};
use muniment_op::Interrupt;
use muniment_storage::CommitId;
use muniment_value::{Code, DocBuf, Error, Result, doc};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waits for what the command's write concern asks. Returns `writeConcernError`, if there is one.
/// `kept_back` has the command's record, if it is not announced yet.
///
/// # Errors
/// Those of the journal, if only this server is waited for.
pub fn acknowledge(
    cx: &CommandContext<'_>,
    kept_back: Option<&KeptBack<'_>>,
) -> Result<Option<DocBuf>> {
    // A command that reads has a write concern only for the sake of stages that write.
    let reads = cx.spec.kind == Kind::Read && !(cx.spec.writes_output)(cx.request.body);
    if !asks(cx) || reads {
        return Ok(None);
    }
    let (wc, store) = (&cx.write_concern, &cx.engine().store);
    let interrupt: &dyn Interrupt = &**cx.op;
    // A write that changed nothing still promises that what it saw is acknowledged.
    let commit = || cx.commit.map_or_else(|| store.last_commit(), Ok);
    let Some(node) = with_others(cx.server) else {
        if wc.waits_for_journal() {
            store.wait_journaled(commit()?, interrupt)?;
        }
        return Ok(None);
    };
    let Some(concern) = concern_of(wc) else {
        if wc.journal {
            store.wait_journaled(commit()?, interrupt)?;
        }
        return Ok(None);
    };
    let until = (wc.wtimeout > 0).then(|| {
        let time = Duration::from_millis(wc.wtimeout as u64);
        Instant::now() + time
    });
    let waited = match concern.check(&node.members()) {
        Ok(()) => commit().and_then(|c| node.wait(c.index, &concern, until, kept_back, interrupt)),
        Err(e) => Err(e),
    };
    Ok(match waited {
        Ok(true) => None,
        Ok(false) => Some(timed_out(wc)),
        Err(e) => Some(failed(wc, &e)),
    })
}

/// Where the command's record can be kept back until the command waits for others to have it
/// ([`Node::keep_back`]): if it does, and is one that makes a record soon and does little after it.
pub fn keeper(cx: &CommandContext<'_>) -> Option<Arc<Node>> {
    if !asks(cx) || concern_of(&cx.write_concern).is_none() {
        return None;
    }
    let spec = cx.spec;
    let soon = match spec.statements {
        Statements::One => true,
        Statements::List { field, many, .. } => {
            let mut all = cx.request.documents(field);
            all.next().is_some_and(|s| !many(s)) && all.next().is_none()
        }
        Statements::None => spec.ends_transaction == Some(Ends::Commit),
    };
    soon.then(|| with_others(cx.server)).flatten()
}

/// The node, by which the others are waited for, if there are other members.
fn with_others(server: &ServerState) -> Option<Arc<Node>> {
    let set = server.replica_set.as_ref()?;
    set.node().filter(|_| set.has_others())
}

/// Waits until the majority has what was committed, where there are other members.
///
/// # Errors
/// 189 if this member leads no more; what `interrupt` says.
pub fn of_majority(
    server: &ServerState,
    commit: CommitId,
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let concern = Concern {
        w: muniment_consensus::W::Majority,
        journaled: true,
    };
    let node = with_others(server);
    node.map_or(Ok(true), |node| {
        node.wait(commit.index, &concern, None, None, interrupt)
    })
    .map(|_| ())
}

/// Whether the command's write concern is to be waited for here. What a transaction has done is
/// acknowledged with its end: before that there is nothing that other members could have.
fn asks(cx: &CommandContext<'_>) -> bool {
    let within = cx.generic.in_transaction() && !transactions::ends(cx.spec);
    cx.spec.write_concern && !cx.elsewhere && !within
}

/// What there is to wait for beyond this member; `None`: nothing.
fn concern_of(wc: &WriteConcern) -> Option<Concern> {
    let w = match &wc.w {
        W::Nodes(n) if *n > 1 => muniment_consensus::W::Members(*n as u32),
        W::Nodes(_) => return None,
        W::Majority => muniment_consensus::W::Majority,
        W::Mode(name) => muniment_consensus::W::Mode(name.to_string()),
        W::Tags(d) => muniment_consensus::W::Tags(counts(d.as_doc())),
    };
    Some(Concern {
        w,
        journaled: wc.journal,
    })
}

fn asked(wc: &WriteConcern) -> DocBuf {
    let mut asked = wc.to_doc();
    asked.append("provenance", wc.provenance.name());
    asked
}

fn timed_out(wc: &WriteConcern) -> DocBuf {
    doc! {
        "code": Code::WriteConcernFailed.0,
        "codeName": Code::WriteConcernFailed.name().as_ref(),
        "errmsg": "waiting for replication timed out",
        "errInfo": doc! { "wtimeout": true, "writeConcern": asked(wc) },
    }
}

fn failed(wc: &WriteConcern, e: &Error) -> DocBuf {
    doc! {
        "code": e.code().0,
        "codeName": e.code().name().as_ref(),
        "errmsg": e.message(),
        "errInfo": doc! { "writeConcern": asked(wc) },
    }
}

/// `writeConcernError` of a command whose write concern the set can never satisfy.
pub fn write_concern_error(cx: &CommandContext<'_>) -> Option<DocBuf> {
    let set = cx.server.replica_set.as_ref()?;
    let wc = &cx.write_concern;
    if !asks(cx) || matches!(wc.w, W::Majority | W::Nodes(..=1)) {
        return None;
    }
    let e = set.member().config?.unsatisfiable(&wc.w)?;
    Some(failed(wc, &e))
}
