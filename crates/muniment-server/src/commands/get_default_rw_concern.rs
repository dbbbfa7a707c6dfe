//! `getDefaultRWConcern`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_logger::now_ms;
use muniment_value::args::{Types, idle};
use muniment_value::{Result, Value, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "getDefaultRWConcern",
    doc: "The default read and write concern",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[idle(
        "inMemory",
        Types::SAFE_BOOL,
        "memory and disk always agree here",
    )],
    run: |cx| write(cx),
    ..CommandSpec::new(
        Routed::Config,
        Needs::cluster(&[Action::GetDefaultRWConcern]),
    )
};

/// Writes the defaults that are in force into the reply.
pub(super) fn write(cx: &mut CommandContext<'_>) -> Result<()> {
    let set = cx.server.settings.default_concern.read().clone();
    let source = |custom: bool| if custom { "global" } else { "implicit" };
    let write = cx.server.default_write_concern();
    let w = &mut cx.reply;
    w.field(
        "defaultReadConcern",
        doc! { "level": set.read.as_deref().unwrap_or("local") },
    );
    w.field("defaultWriteConcern", write.to_doc());
    w.field("defaultWriteConcernSource", source(set.write.is_some()));
    w.field("defaultReadConcernSource", source(set.read.is_some()));
    if let Some(ms) = set.set_at_ms {
        let t = Value::Timestamp {
            t: (ms / 1000) as u32,
            i: 1,
        };
        w.field("updateOpTime", t);
        w.field("updateWallClockTime", Value::DateTime(ms));
    }
    w.field("localUpdateWallClockTime", Value::DateTime(now_ms()));
    Ok(())
}
