//! `convertToCapped`: a capped copy takes the collection's place, without its other indexes.

use super::capped_copy::{copy, size};
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_auth::action::{Action, Actions};
use muniment_exec::CatalogChange;
use muniment_value::{Code, Error, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "convertToCapped",
    doc: "Makes a collection a capped one",
    kind: Kind::Ddl,
    target: Target::CollectionUnchecked,
    write_concern: true,
    open_fields: true,
    run,
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::ddl::refused),
        Needs::Of(|asks| asks.may_on_named(Actions::of(&[Action::ConvertToCapped]))),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let (db, name) = (cx.db(), namespace::lenient(cx.target())?);
    let ns = format!("{db}.{name}");
    let source = cx.engine().source(&ns)?;
    source.refuse_view_like(&ns)?;
    source.refuse_generated(&ns)?;
    if name.starts_with("system.buckets.") {
        return Err(Error::new(
            Code::IllegalOperation,
            format!("cannot convert the time-series buckets {ns}"),
        ));
    }
    if name == "system.views" {
        return Err(Error::bad_value(format!(
            "cannot convert {ns} to a capped collection"
        )));
    }
    if name == "system.profile" {
        return Err(Error::new(
            Code::IllegalOperation,
            format!("cannot convert the profiler's records {ns}: they are capped"),
        ));
    }
    let size = size(cx.request.body.get("size"))?;
    let store = &cx.engine().store;
    if store.collection(&ns).is_none() && ns.len() <= namespace::MAX_NAMESPACE {
        return Err(Error::new(
            Code::NamespaceNotFound,
            format!("source collection {ns} does not exist"),
        ));
    }
    let tag = tag();
    let copied = format!("tmp{tag}.convertToCapped.{name}");
    namespace::check_collection(db, &copied)?;
    let temporary = format!("{db}.{copied}");
    // Keeps writers out until the copy is complete, which would otherwise lack what they insert.
    let alone = match store.collection(&ns) {
        Some(source) => Some(store.exclusive(&source, &**cx.op)?),
        None => None,
    };
    copy(cx, &ns, &temporary, size)?;
    let replaced = match (&alone, store.collection(&temporary)) {
        (Some(old), Some(new)) if old.collection().namespace() == ns => {
            store.replace_collection(old, &new, &**cx.op)
        }
        _ => Err(Error::new(
            Code::NamespaceNotFound,
            format!("source collection {ns} does not exist"),
        )),
    };
    if let Err(e) = replaced {
        store.discard_collection(&temporary);
        return Err(e);
    }
    cx.op.note_change(|| CatalogChange::Renamed {
        from: temporary,
        to: ns.clone(),
    });
    cx.engine()
        .cursors
        .invalidate(&ns, "collection dropped: it was converted to a capped one");
    cx.note_write();
    Ok(())
}

/// Five characters that no other temporary name has.
fn tag() -> String {
    let unique = muniment_value::new_object_id();
    let last = unique.iter().rev().take(3);
    last.flat_map(|b| format!("{b:02x}").into_bytes())
        .take(5)
        .map(char::from)
        .collect()
}
