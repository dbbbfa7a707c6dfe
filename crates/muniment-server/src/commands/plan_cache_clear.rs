//! `planCacheClear`.

use crate::registry::{CommandSpec, Kind, Target};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "planCacheClear",
    doc: "Forgets the cached plans of a collection",
    kind: Kind::Admin,
    target: Target::Collection,
    run: |cx| {
        cx.engine().clear_plan_cache(Some(cx.ns()));
        Ok(())
    },
    ..CommandSpec::DEFAULT
};
