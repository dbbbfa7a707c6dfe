//! The third step: the command runs.

use super::Caller;
use super::parse::Parsed;
use crate::concern::WriteConcern;
use crate::context::{CommandContext, ConnLocal};
use crate::guard::{Caught, guarded};
use crate::log::Severity;
use crate::transactions::{self, CheckedOut, Transactions};
use muniment_exec::{OpContext, Ticket};
use muniment_value::{Error, Result, doc};
use muniment_wire::DocWriter;
use std::sync::Arc;

/// How a command ran.
pub struct Ran {
    /// Its result.
    pub result: Result<()>,
    /// A fail point wants the client not to hear of it.
    pub loses_reply: bool,
}

/// What the command sees while it runs.
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

/// Runs it and ends its part in a transaction. A command that panics fails, and the server goes on.
pub fn run(cx: &mut CommandContext<'_>, ticket: Option<Ticket<'_>>) -> Ran {
    let running = muniment_query::running::enter(cx.op.clone());
    let (loses_reply, refused) = loses_write(cx);
    let result = guarded(|| refused.map_or_else(|| (cx.spec.run)(cx), Err))
        .unwrap_or_else(|caught| Err(panicked(cx, &caught)));
    // A result that was cut short by an interrupt on the way is replaced by the interrupt's error.
    let result = result.and_then(|()| muniment_query::running::give_up());
    drop(running);
    let result = Transactions::end_command(cx, result);
    // The ticket is given back before other members are waited for.
    drop(ticket);
    Ran {
        result,
        loses_reply,
    }
}

/// Whether a fail point loses the reply, and what it makes of the command.
fn loses_write(cx: &CommandContext<'_>) -> (bool, Option<Error>) {
    let points = &cx.server.failpoints;
    match cx.op.retry() {
        // The fail point is about writes, and a command that is answered by what was done before makes none.
        Some(retry) if points.any() && !retry.is_again() => {
            points.loses_write(transactions::statements(cx.request, cx.spec))
        }
        _ => (false, None),
    }
}

fn panicked(cx: &CommandContext<'_>, caught: &Caught) -> Error {
    let what = doc! {
        "command": cx.spec.name,
        "what": caught.message.as_str(),
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
