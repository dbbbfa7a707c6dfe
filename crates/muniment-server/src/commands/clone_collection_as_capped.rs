//! `cloneCollectionAsCapped`.

use super::capped_copy::{copy, size};
use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_auth::action::{Action, Actions};
use muniment_auth::resource::Target as On;
use muniment_value::args::{Types, check_type};
use muniment_value::{Code, Error, Result, Type, Value};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "cloneCollectionAsCapped",
    doc: "Copies a collection into a new capped one",
    kind: Kind::Ddl,
    target: Target::CollectionUnchecked,
    write_concern: true,
    open_fields: true,
    run,
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::ddl::refused),
        Needs::Of(needs),
    )
};

fn needs(asks: &Asks<'_>) -> bool {
    let to = asks
        .request
        .body
        .get_str("toCollection")
        .unwrap_or_default();
    let writes = [Action::Insert, Action::CreateIndex, Action::ConvertToCapped];
    asks.may_on_named(Actions::of(&[Action::Find]))
        && asks.may(On::Collection(asks.request.db, to), Actions::of(&writes))
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let name = cx.spec.name;
    let text = |field: &str, v: Option<Value<'_>>| {
        check_type(name, field, Types::STRING, v.map_or(Type::Null, |v| v.ty()))
    };
    let (from, to) = (Some(cx.target()), cx.request.body.get("toCollection"));
    text(name, from)?;
    text("toCollection", to)?;
    let from = from.and_then(|v| v.as_str()).unwrap_or_default();
    let to = to.and_then(|v| v.as_str()).unwrap_or_default();
    let db = cx.db();
    let (source, target) = (format!("{db}.{from}"), format!("{db}.{to}"));
    // A name that is too long cannot be that of a collection, so the copy reports that the source is missing.
    // A name of valid length that contains forbidden characters is reported here.
    if from.contains('$') || source.len() <= namespace::MAX_NAMESPACE {
        namespace::check_collection(db, from)?;
        namespace::check_dollar(from)?;
    }
    namespace::check_create(db, to)?;
    let size = size(cx.request.body.get("size"))?;
    for (ns, collection) in [(&source, from), (&target, to)] {
        cx.engine().source(ns)?.refuse_view_like(ns)?;
        if collection.starts_with("system.buckets.") {
            return Err(Error::new(
                Code::IllegalOperation,
                format!("{name} is not supported on the time-series buckets {ns}"),
            ));
        }
    }
    let store = &cx.engine().store;
    for ns in [&source, &target] {
        cx.op.check_placement(ns, store.collection(ns).as_deref())?;
    }
    if store.collection(&source).is_none() {
        return Err(Error::new(
            Code::NamespaceNotFound,
            format!("cloneCollectionAsCapped: source collection {source} does not exist"),
        ));
    }
    if store.collection(&target).is_some() {
        return Err(Error::new(
            Code::NamespaceExists,
            format!(
                "cloneCollectionAsCapped failed - destination collection {target} already exists"
            ),
        ));
    }
    copy(cx, &source, &target, size)?;
    cx.note_write();
    Ok(())
}
