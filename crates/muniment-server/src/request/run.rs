//! The third step: runs the command.

use super::Caller;
use super::parse::Parsed;
use crate::audit;
use crate::concern::WriteConcern;
use crate::context::{CommandContext, ConnLocal};
use crate::router;
use crate::transactions::{self, CheckedOut, Transactions};
use muniment_exec::{OpContext, Ticket};
use muniment_logger::{Caught, Severity, guarded};
use muniment_value::{Error, Result, doc};
use muniment_wire::DocWriter;
use std::sync::Arc;

/// The outcome of a command.
pub struct Ran {
    /// Its result.
    pub result: Result<()>,
    /// The client gets no reply, because a fail point asks for it.
    pub loses_reply: bool,
}

/// The context of a command: all that it sees while it runs.
pub fn context<'a>(
    caller: &Caller<'a>,
    local: &'a mut ConnLocal,
    parsed: Parsed<'a>,
    transaction: Option<CheckedOut>,
    write_concern: WriteConcern,
    op: &'a Arc<OpContext>,
    out: &'a mut Vec<u8>,
) -> CommandContext<'a> {
    CommandContext {
        server: caller.server,
        conn: caller.conn,
        local,
        op,
        spec: parsed.spec,
        request: caller.request,
        args: parsed.args,
        generic: parsed.generic,
        write_concern,
        reply: DocWriter::begin(out),
        commit: None,
        exhaust: false,
        op_count: None,
        more_ops: Vec::new(),
        uuid: None,
        transaction,
        said_ok: false,
        elsewhere: false,
    }
}

/// Runs the command, and ends its part in a transaction. A command that panics fails; the server goes on.
pub fn run(cx: &mut CommandContext<'_>, ticket: Option<Ticket<'_>>) -> Ran {
    let (loses_reply, refused) = loses_write(cx);
    let begun = audit::begin(cx);
    let refused = refused.or_else(|| begun.as_ref().err().cloned());
    let result = guarded(|| refused.map_or_else(|| run_it(cx), Err))
        .unwrap_or_else(|caught| Err(panicked(cx, &caught)));
    cx.op.end_kept();
    let result = Transactions::end_command(cx, result);
    // Gives the ticket back first, since waiting for other members takes long and uses no CPU.
    drop(ticket);
    let result = audit::end(cx, begun, result);
    Ran {
        result,
        loses_reply,
    }
}

fn run_it(cx: &mut CommandContext<'_>) -> Result<()> {
    match &cx.server.router {
        Some(router) => router::run(cx, router),
        None => (cx.spec.run)(cx),
    }
}

/// Whether a fail point loses the reply, and the error that it gives the command.
fn loses_write(cx: &CommandContext<'_>) -> (bool, Option<Error>) {
    let points = &cx.server.failpoints;
    match cx.op.retry() {
        // The fail point is about writes; a command that is answered from an earlier run's results writes
        // nothing.
        Some(retry) if points.any() && !retry.is_again() => {
            points.loses_write(transactions::statements(cx.request, cx.spec))
        }
        _ => (false, None),
    }
}

fn panicked(cx: &CommandContext<'_>, caught: &Caught) -> Error {
    let what = doc! {
        "command": cx.spec.name,
        "what": cx.server.log.text(&caught.message),
        "backtrace": caught.report.as_str(),
    };
    cx.server.log.log(
        Severity::Error,
        "ASSERT",
        23081,
        &format!("conn{}", cx.conn.id),
        "A command panicked; this is a bug",
        Some(&what),
    );
    Error::internal(format!(
        "{} failed because of a bug: {}",
        cx.spec.name, caught.message
    ))
}
