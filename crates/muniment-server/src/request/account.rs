//! The fifth step: the reply's end, the counters, `top`, the profiler and the log of slow operations.

use super::Caller;
use crate::context::{CommandContext, ConnLocal};
use crate::failpoint::Failure;
use crate::metrics::{LatencyKind, OpKind, TopEntry};
use crate::registry::{CommandSpec, Kind, Statements, Target};
use crate::replica_set;
use crate::state::ServerState;
use crate::transactions;
use muniment_exec::OpContext;
use muniment_member::topology_of_error;
use muniment_value::{Code, Doc, DocBuf, Error};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How a command is to be counted, and whether more replies follow.
pub struct Counted {
    /// Another reply follows without a request.
    pub exhaust: bool,
    /// How many operations of its own kind it counts as; `None`: one.
    pub ops: Option<u64>,
    /// How many operations of other kinds it counts as in addition.
    pub more_ops: Vec<(OpKind, u64)>,
}

impl Counted {
    /// Takes what the command has noted in its context while it ran.
    pub fn of(cx: &mut CommandContext<'_>) -> Counted {
        Counted {
            exhaust: cx.exhaust,
            ops: cx.op_count,
            more_ops: std::mem::take(&mut cx.more_ops),
        }
    }
}

/// Ends the reply with the `writeConcernError` (`concern`), the additions of fail points, and `ok`. Returns
/// whether the client gets a bare `{ok: 1}` instead of this reply, as for an unacknowledged write.
pub fn finish_reply(
    mut cx: CommandContext<'_>,
    failure: Option<&Failure>,
    concern: Option<DocBuf>,
) -> bool {
    let failed = failure.and_then(|f| Some((f, f.write_concern_error.as_ref()?)));
    if let Some((f, wce)) = failed {
        say_concern(&mut cx, wce.as_doc(), f.labels.clone());
    } else if let Some(e) = concern {
        say_concern(&mut cx, e.as_doc(), None);
    } else if let Some(e) = replica_set::write_concern_error(&cx) {
        cx.reply.field("writeConcernError", e);
    }
    if !cx.said_ok {
        cx.reply.field("ok", 1.0);
    }
    let bare =
        matches!(cx.spec.statements, Statements::List { .. }) && cx.write_concern.unacknowledged();
    cx.reply.finish();
    bare
}

/// Appends a `writeConcernError` with the labels and the topology that tell a driver how to go on.
fn say_concern(
    cx: &mut CommandContext<'_>,
    concern: Doc<'_>,
    labels: Option<muniment_value::ArrayBuf>,
) {
    let code = concern.get("code").and_then(|c| c.as_i64_exact());
    let code = Code(code.and_then(|c| i32::try_from(c).ok()).unwrap_or_default());
    cx.reply.field("writeConcernError", concern);
    let labels = labels.or_else(|| transactions::labels_of_concern(cx.spec, &cx.generic, code));
    if let Some(labels) = labels {
        cx.reply.field("errorLabels", labels);
    }
    if let Some(topology) = topology_of_error(cx.server.replica_set.as_deref(), code) {
        cx.reply.field("topologyVersion", topology);
    }
}

/// An operation that has just ended.
pub struct Finished<'f> {
    /// The request.
    pub caller: &'f Caller<'f>,
    /// The command.
    pub spec: &'static CommandSpec,
    /// The operation's context, which has what it counted.
    pub op: &'f Arc<OpContext>,
    /// How long it took, without the time in which it waited for news.
    pub took: Duration,
    /// How it is to be counted.
    pub counted: &'f Counted,
    /// The error, if the operation failed.
    pub error: Option<&'f Error>,
    /// Bytes of the reply.
    pub reply_bytes: usize,
}

/// The entry of `top` for a command on a collection. The connection keeps the entry that it used last.
fn top_line<'l>(
    server: &ServerState,
    local: &'l mut ConnLocal,
    spec: &CommandSpec,
    op: &OpContext,
) -> Option<&'l TopEntry> {
    let counted = match spec.kind {
        Kind::Read | Kind::Write => true,
        // A command that drops or renames a collection removes the collection's entry of `top`.
        Kind::Ddl => spec.target == Target::Collection && !spec.drops_collection,
        _ => false,
    };
    if !counted {
        return None;
    }
    let ns = op.namespace();
    let is_it = |(kept, entry): &(String, Arc<TopEntry>)| {
        kept == ns && !entry.forgotten.load(Ordering::Relaxed)
    };
    if !local.top.as_ref().is_some_and(is_it) {
        local.top = Some((ns.to_string(), server.metrics.top_entry(ns)));
    }
    local.top.as_ref().map(|(_, entry)| &**entry)
}

/// Counts a finished operation and logs it if it was slow.
pub fn account(f: &Finished<'_>, local: &mut ConnLocal) {
    let counter = f.caller.counter;
    let micros = f.took.as_micros() as u64;
    let counted_as = f.spec.counted_as.unwrap_or(f.spec.op);
    counter.op(counted_as, f.counted.ops.unwrap_or(1));
    for (kind, n) in &f.counted.more_ops {
        counter.op(*kind, *n);
    }
    let kind = match f.spec.kind {
        Kind::Read => LatencyKind::Reads,
        Kind::Write => LatencyKind::Writes,
        _ => LatencyKind::Commands,
    };
    counter.latency(kind, micros);
    let done = &f.op.counters;
    let (returned, written) = (
        done.returned.load(Ordering::Relaxed),
        done.written.load(Ordering::Relaxed),
    );
    match f.spec.op {
        OpKind::Insert => counter.documents(returned, written, 0, 0),
        OpKind::Update => counter.documents(returned, 0, written, 0),
        OpKind::Delete => counter.documents(returned, 0, 0, written),
        _ => counter.documents(returned, 0, 0, 0),
    }
    if let Some(top) = top_line(f.caller.server, local, f.spec, f.op) {
        top.add(f.spec.op, kind, micros);
    }
    crate::profiler::finished(f);
}
