//! `planCacheClearFilters`.

use super::plan_cache_clear::shape;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn, Target};
use muniment_auth::action::Action;
use muniment_value::Result;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "planCacheClearFilters",
    doc: "Removes index filters of a collection",
    kind: Kind::Admin,
    target: Target::Collection,
    open_fields: true,
    run,
    runs_on: Some(RunsOn::Readable),
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::ddl::everywhere),
        Needs::collection(&[Action::PlanCacheIndexFilter]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    cx.reject_view()?;
    if cx.engine().store.collection(cx.ns()).is_none() {
        return Ok(());
    }
    let spec = shape(cx)?;
    cx.engine().clear_index_filters(cx.ns(), spec.as_ref())
}
