//! `planCacheListFilters`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn, Target};
use muniment_auth::action::Action;
use muniment_value::{ArrayBuf, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "planCacheListFilters",
    doc: "The index filters of a collection",
    kind: Kind::Admin,
    target: Target::Collection,
    open_fields: true,
    run,
    runs_on: Some(RunsOn::Readable),
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::ddl::anywhere),
        Needs::collection(&[Action::PlanCacheIndexFilter]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    cx.reject_view()?;
    let all = cx.engine().list_index_filters(cx.ns());
    cx.reply.field("filters", all.iter().collect::<ArrayBuf>());
    Ok(())
}
