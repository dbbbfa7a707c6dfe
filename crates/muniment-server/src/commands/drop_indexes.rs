//! `dropIndexes`.

use super::create_indexes::counted;
use crate::audit::{self, Audits};
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_auth::action::Action;
use muniment_exec::{CatalogChange, TimeSeries};
use muniment_storage::Collection;
use muniment_value::args::{Types, check_type, req};
use muniment_value::{Code, Doc, Error, Result, Value, number};
use std::sync::Arc;

const INDEX: Types = Types::STRING.or(Types::OBJECT).or(Types::ARRAY);

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "dropIndexes",
    aliases: &["deleteIndexes"],
    doc: "Drops indexes",
    kind: Kind::Ddl,
    target: Target::Collection,
    write_concern: true,
    api_v1: true,
    fields: &[req("index", Types::ANY)],
    audits: Some(Audits::changes("dropIndex", audit::dropped_index)),
    run,
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::ddl::drop_indexes),
        Needs::collection(&[Action::DropIndex]),
    )
};

fn is_id_key(key: Doc<'_>) -> bool {
    key.count() == 1
        && key
            .first()
            .is_some_and(|e| e.name() == "_id" && number::to_i64_exact(e.value()) == Some(1))
}

/// True if the argument `index` is "*", alone or as the only one of a list.
fn means_all(index: Option<Value<'_>>) -> bool {
    let alone = match index {
        Some(Value::Array(list)) if list.count() == 1 => list.values().next(),
        v => v,
    };
    alone.and_then(|v| v.as_str()) == Some("*")
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let store = &cx.engine().store;
    if let Some(v) = cx.args.get("index") {
        // A null counts as a value of the wrong type here, not as a missing field.
        check_type("dropIndexes", "index", INDEX, v.ty())?;
    }
    let source = cx.source()?;
    source.refuse_view(cx.ns())?;
    source.refuse_generated(cx.ns())?;
    let series = source.buckets().and_then(|c| TimeSeries::of(c));
    let collection = source
        .stored()
        .ok_or_else(|| Error::new(Code::NamespaceNotFound, format!("ns not found {}", cx.ns())))?;
    let before = counted(collection);
    let index = cx.args.get("index");
    let by_id = match index {
        Some(Value::String(name)) => name == "_id_",
        Some(Value::Document(key)) => is_id_key(key),
        _ => false,
    };
    if by_id && collection.is_keyed_by_id() {
        return Err(Error::location(
            5_979_800,
            "It is illegal to drop the clusteredIndex",
        ));
    }
    let all = means_all(index);
    let names = match index {
        _ if all => all_but_id(collection),
        Some(index) => named(collection, series.as_ref(), index)?,
        None => Vec::new(),
    };
    for name in &names {
        store.drop_index(collection, name, &**cx.op)?;
        cx.op.note_change(|| CatalogChange::DroppedIndex {
            namespace: collection.namespace(),
            name: name.clone(),
        });
    }
    if !names.is_empty() {
        cx.note_write();
    }
    cx.reply.field("nIndexesWas", before as i32);
    if all {
        cx.reply
            .field("msg", "non-_id indexes dropped for collection");
    }
    Ok(())
}

fn all_but_id(c: &Collection) -> Vec<String> {
    let indexes = c.listed_indexes();
    let others = indexes.iter().filter(|i| !i.is_id());
    others.map(|i| i.spec().name.clone()).collect()
}

/// The names of the indexes that the argument `index` asks for. `series` is the time series if the command
/// was sent to its buckets, whose key patterns are translated.
///
/// # Errors
/// 27 IndexNotFound, 72 for the index on `_id`, 305 AmbiguousIndexKeyPattern, 14 for an element of a list.
fn named(
    c: &Arc<Collection>,
    series: Option<&TimeSeries>,
    index: Value<'_>,
) -> Result<Vec<String>> {
    match index {
        Value::String(name) => Ok(vec![by_name(c, name)?]),
        Value::Document(key) => {
            let own = series.and_then(|s| s.key_of_series(key));
            Ok(vec![by_key(c, own.as_ref().map_or(key, |k| k.as_doc()))?])
        }
        Value::Array(list) => {
            let name = |v: Value<'_>| match v {
                Value::String(name) => by_name(c, name),
                v => Err(Error::type_mismatch(format!(
                    "BSON field 'dropIndexes.index' is the wrong type '{}', expected types \
                     '[string, object]'",
                    v.type_name()
                ))),
            };
            list.values().map(name).collect()
        }
        _ => Ok(Vec::new()),
    }
}

fn no_id() -> Error {
    Error::new(Code::InvalidOptions, "cannot drop _id index")
}

fn by_name(c: &Arc<Collection>, name: &str) -> Result<String> {
    if name == "_id_" {
        return Err(no_id());
    }
    if c.listed_indexes().iter().any(|i| i.spec().name == name) {
        return Ok(name.to_string());
    }
    Err(Error::new(
        Code::IndexNotFound,
        format!("index not found with name [{name}]"),
    ))
}

fn by_key(c: &Arc<Collection>, key: Doc<'_>) -> Result<String> {
    let indexes = c.listed_indexes();
    let mut found = indexes
        .iter()
        .map(|i| i.spec())
        .filter(|s| same_pattern(s.key.as_doc(), key));
    match (found.next(), found.next()) {
        (Some(s), None) if s.name == "_id_" => Err(no_id()),
        (Some(s), None) => Ok(s.name.clone()),
        (Some(_), Some(_)) => Err(Error::new(
            Code::AmbiguousIndexKeyPattern,
            format!(
                "{} indexes found for key: {}, identify by name instead.",
                2 + found.count(),
                Value::Document(key).to_display()
            ),
        )),
        (None, _) => Err(Error::new(
            Code::IndexNotFound,
            format!(
                "can't find index with key: {}",
                Value::Document(key).to_display()
            ),
        )),
    }
}

/// True for the same fields in the same order with equal values, whatever the types of the numbers.
pub(super) fn same_pattern(a: Doc<'_>, b: Doc<'_>) -> bool {
    a.count() == b.count()
        && a.iter().zip(b.iter()).all(|(x, y)| {
            x.name() == y.name() && muniment_value::values_equal(x.value(), y.value())
        })
}
