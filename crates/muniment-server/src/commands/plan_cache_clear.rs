//! `planCacheClear`, and what the planCache commands share: the query shape that they name.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn, Target};
use muniment_auth::action::Action;
use muniment_exec::{ShapeSpec, shape_without_query};
use muniment_value::{Doc, Error, Result, Value};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "planCacheClear",
    doc: "Forgets the cached plans of a collection, or the plan of one query shape",
    kind: Kind::Admin,
    target: Target::Collection,
    open_fields: true,
    run,
    runs_on: Some(RunsOn::Readable),
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::ddl::everywhere),
        Needs::collection(&[Action::PlanCacheWrite]),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    cx.reject_view()?;
    if cx.engine().store.collection(cx.ns()).is_none() {
        return Ok(());
    }
    match shape(cx)? {
        None => cx.engine().clear_plan_cache(Some(cx.ns())),
        Some(spec) => cx.engine().clear_cached_plan(cx.ns(), &spec)?,
    }
    Ok(())
}

/// A field of the command; a null counts as a missing field.
pub(super) fn field<'a>(cx: &CommandContext<'a>, name: &str) -> Option<Value<'a>> {
    cx.request
        .body
        .get(name)
        .filter(|v| !matches!(v, Value::Null))
}

/// The shape that `query`, `sort`, `projection` and `collation` name; `None` for none.
///
/// # Errors
/// 2 BadValue for a part that is no document, and for parts without a query.
pub(super) fn shape<'a>(cx: &CommandContext<'a>) -> Result<Option<ShapeSpec<'a>>> {
    let part = |name: &str| match field(cx, name) {
        None => Ok(None),
        Some(Value::Document(d)) => Ok(Some(d)),
        Some(v) => Err(not_an_object(name, v)),
    };
    let (sort, projection, collation) = (part("sort")?, part("projection")?, part("collation")?);
    let Some(query) = part("query")? else {
        return match (sort, projection, collation) {
            (None, None, None) => Ok(None),
            _ => Err(shape_without_query()),
        };
    };
    Ok(Some(ShapeSpec {
        query,
        sort: sort.unwrap_or(Doc::EMPTY),
        projection: projection.unwrap_or(Doc::EMPTY),
        collation: collation.unwrap_or(Doc::EMPTY),
        op: cx.op.clone(),
    }))
}

/// 2 BadValue: the field is no document.
pub(super) fn not_an_object(name: &str, v: Value<'_>) -> Error {
    Error::bad_value(format!(
        "optional field {name} must be an object, but was {}",
        v.type_name()
    ))
}
