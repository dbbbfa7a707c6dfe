//! `planCacheSetFilter`.

use super::plan_cache_clear::not_an_object;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn, Target};
use muniment_auth::action::Action;
use muniment_exec::ShapeSpec;
use muniment_value::args::missing_field;
use muniment_value::{Doc, Error, Result, Value, ValueBuf};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "planCacheSetFilter",
    doc: "Leaves the planner only some indexes for a query shape",
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
    let body = cx.request.body;
    let part = |name: &str| match body.get(name) {
        None => Ok(Doc::EMPTY),
        Some(Value::Document(d)) => Ok(d),
        // An empty sort or projection may come as an array.
        Some(Value::Array(d)) if d.is_empty() && name != "collation" => Ok(d),
        Some(v) => Err(not_an_object(name, v)),
    };
    if body.get("query").is_none() {
        return Err(Error::bad_value("required field query missing"));
    }
    let spec = ShapeSpec {
        query: part("query")?,
        sort: part("sort")?,
        projection: part("projection")?,
        collation: part("collation")?,
        op: cx.op.clone(),
    };
    if body.get("collation").is_some() {
        if spec.collation.is_empty() {
            return Err(Error::bad_value("optional field collation cannot be empty"));
        }
        if spec.collation.get("locale").is_none() {
            return Err(missing_field("collation", "locale"));
        }
    }
    let indexes = match body.get("indexes") {
        None => return Err(Error::bad_value("required field indexes missing")),
        Some(Value::Array(a)) => a,
        Some(v) => {
            return Err(Error::bad_value(format!(
                "required field indexes must be an array, but was {}",
                v.type_name()
            )));
        }
    };
    let mut allowed = Vec::new();
    for v in indexes.values() {
        match v {
            Value::Document(d) if d.is_empty() => {
                return Err(Error::bad_value("index specification cannot be empty"));
            }
            Value::String("") => return Err(Error::bad_value("Index name cannot be empty")),
            Value::Document(_) | Value::String(_) => allowed.push(ValueBuf::new(v)),
            _ => {
                return Err(Error::bad_value(
                    "each item in indexes must be an object or a string",
                ));
            }
        }
    }
    if allowed.is_empty() {
        return Err(Error::bad_value(
            "required field indexes must contain at least one index",
        ));
    }
    cx.engine().set_index_filter(cx.ns(), &spec, allowed)
}
