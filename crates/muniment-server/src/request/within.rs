//! Runs a command as a part of another one.

use super::parse::{namespace_of, words};
use crate::audit;
use crate::auth;
use crate::context::{CommandContext, Request};
use muniment_exec::OpStart;
use muniment_op::Interrupt;
use muniment_value::{Doc, Result};
use muniment_wire::DocWriter;
use std::sync::Arc;

/// Runs a command as a part of another one, with whose connection, write concern and interrupts it runs. It
/// is not counted. `uuid` is the UUID of the collection that it creates.
///
/// # Errors
/// 59 CommandNotFound; 13 Unauthorized; the command's own; the interrupt that ends the outer command.
pub fn run_within(
    cx: &mut CommandContext<'_>,
    db: &str,
    body: Doc<'_>,
    uuid: Option<[u8; 16]>,
) -> Result<()> {
    let name = body.first().map_or("", |e| e.name());
    let spec = crate::registry::find(name).ok_or_else(|| crate::registry::unknown(name))?;
    let request = Request {
        db,
        name,
        body,
        sequences: &[],
        exhaust_allowed: false,
        unacknowledged: false,
        // The database is given beside the command, as in OP_QUERY.
        legacy: true,
    };
    let (args, generic) = words(cx.server, spec, &request)?;
    let namespace = namespace_of(cx.server, spec, &request)?;
    auth::check(cx.server, cx.local, spec, &request, &namespace)?;
    let op = cx.server.engine.operations.begin(OpStart {
        command: spec.name,
        namespace,
        connection_id: cx.conn.id,
        client: Some(Arc::clone(&cx.conn.peer)),
        part_of: Some(Arc::clone(cx.op)),
        audited: cx.server.audit.is_some(),
        opens: auth::opens(cx.server, cx.local),
        ..OpStart::default()
    });
    let mut reply = Vec::new();
    let mut part = CommandContext {
        server: cx.server,
        conn: cx.conn,
        local: &mut *cx.local,
        op: &op,
        spec,
        request: &request,
        args,
        generic,
        write_concern: cx.write_concern.clone(),
        reply: DocWriter::begin(&mut reply),
        commit: None,
        exhaust: false,
        op_count: None,
        more_ops: Vec::new(),
        uuid,
        transaction: None,
        said_ok: false,
        elsewhere: false,
    };
    let begun = audit::begin(&part);
    let result = match &begun {
        Ok(_) => (spec.run)(&mut part),
        Err(e) => Err(e.clone()),
    };
    let result = audit::end(&part, begun, result);
    let commit = part.commit;
    drop(part);
    cx.note_commit(commit);
    cx.op.check()?;
    result
}
