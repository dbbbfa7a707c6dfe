//! `getDiagnosticData`: all figures that monitoring programs need, in one reply. MongoDB replies with the
//! newest sample of its recorder; here everything is measured when the command asks.

use super::{coll_stats, repl_set_get_status, server_status};
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::machine_figures;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_exec::{OPLOG, Source};
use muniment_logger::now_ms;
use muniment_value::{DocBuf, Result, Value, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "getDiagnosticData",
    doc: "Figures of the server, its set and its machine in one document",
    kind: Kind::Admin,
    admin_only: true,
    run,
    ..CommandSpec::new(
        Routed::Here,
        Needs::cluster(&[Action::ServerStatus, Action::ReplSetGetStatus]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    cx.reply.open_document("data");
    cx.reply.field("start", Value::DateTime(now_ms()));
    section(cx, "serverStatus", server_status::run)?;
    let set = cx.server.replica_set.as_ref();
    if set.is_some_and(|s| s.initialized().is_ok()) {
        section(cx, "replSetGetStatus", repl_set_get_status::run)?;
        section(cx, "local.oplog.rs.stats", oplog)?;
    }
    section(cx, "systemMetrics", |cx| {
        let options = &cx.server.options;
        let machine = machine_figures::document(&options.dbpath, &*options.machine.disk);
        cx.reply.elements(machine.as_doc());
        Ok(())
    })?;
    cx.reply.field("end", Value::DateTime(now_ms()));
    cx.reply.close();
    Ok(())
}

/// Writes one section of the reply, with the times at which its figures began and ended.
fn section(
    cx: &mut CommandContext<'_>,
    name: &str,
    write: impl FnOnce(&mut CommandContext<'_>) -> Result<()>,
) -> Result<()> {
    cx.reply.open_document(name);
    cx.reply.field("start", Value::DateTime(now_ms()));
    write(cx)?;
    cx.reply.field("end", Value::DateTime(now_ms()));
    cx.reply.close();
    Ok(())
}

fn oplog(cx: &mut CommandContext<'_>) -> Result<()> {
    let figures = match cx.engine().source(OPLOG)? {
        Source::Generated(of) => {
            coll_stats::generated(cx.engine().generated_figures(cx.op, of)?, 1)
        }
        _ => DocBuf::new(),
    };
    let stats = doc! {
        "ns": OPLOG,
        "host": cx.server.address.host.as_str(),
        "localTime": Value::DateTime(now_ms()),
        "storageStats": figures,
    };
    cx.reply.elements(stats.as_doc());
    Ok(())
}
