//! What is asked of a collection that is to be divided, and whether it can be.

use super::place::Stored;
use crate::context::CommandContext;
use crate::router::forward::run;
use crate::router::{Router, SetPool};
use muniment_shard::{KeyField, ShardKey};
use muniment_value::{Code, Doc, DocBuf, Elem, Error, Result, doc, number};
use std::sync::Arc;

/// What the client asks for.
pub struct ShardRequest<'r> {
    /// The collection's full name.
    pub ns: &'r str,
    /// The shard key.
    pub key: Arc<ShardKey>,
    /// Values of the shard key are to be unique.
    pub unique: bool,
    /// How many chunks an empty collection begins with, if its key begins hashed.
    pub chunks: Option<usize>,
    /// The collation that the client gives, which has to be the simple one.
    pub simple: bool,
    /// It is only tracked, and stays on one shard.
    pub unsplittable: bool,
    /// The options of a time series that the collection is, or is made as; `None` if the client gives none.
    pub series: Option<DocBuf>,
}

/// Whether a command that divides a collection says that its key compares by the simple collation.
///
/// # Errors
/// 2 BadValue for any other collation.
pub fn simple_collation(cx: &CommandContext<'_>) -> Result<bool> {
    match cx.args.doc("collation").map(|c| c.get_str("locale")) {
        None => Ok(false),
        Some(Some("simple")) => Ok(true),
        Some(_) => Err(Error::bad_value(format!(
            "The collation for {} must be {{locale: 'simple'}}",
            cx.spec.name
        ))),
    }
}

/// Refuses what cannot be asked for a time series with these options.
///
/// # Errors
/// 72 InvalidOptions; those of [`check_series_key`].
pub fn check_series(series: Doc<'_>, request: &ShardRequest<'_>) -> Result<()> {
    match (request.unsplittable, request.unique) {
        (true, _) => Ok(()),
        (false, true) => Err(Error::new(
            Code::InvalidOptions,
            "the shard key of a time series cannot be unique",
        )),
        (false, false) => check_series_key(series, &request.key),
    }
}

/// Refuses a key by which a time series with these options cannot be divided: it has the meta field, or fields within
/// that, and last the time.
///
/// # Errors
/// 5914000 if the time is not last; 5914001 for any other field; 2 BadValue if the time is hashed.
pub fn check_series_key(series: Doc<'_>, key: &ShardKey) -> Result<()> {
    let time = series.get_str("timeField").unwrap_or_default();
    let meta = series.get_str("metaField");
    let of_meta = |path: &str| {
        let rest = meta.and_then(|meta| path.strip_prefix(meta));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let last = key.fields().len().saturating_sub(1);
    for (i, field) in key.fields().iter().enumerate() {
        let path = field.path.as_str();
        if path == time && i != last {
            return Err(Error::location(
                5_914_000,
                format!("the time field '{time}' can be only at the end of the shard key pattern"),
            ));
        }
        if path == time && field.hashed {
            return Err(Error::bad_value(format!(
                "the time field '{time}' of a shard key must be ascending"
            )));
        }
        if path != time && !of_meta(path) {
            return Err(Error::location(
                5_914_001,
                format!(
                    "only the time field or meta field can be part of shard key pattern, and '{path}' is neither"
                ),
            ));
        }
    }
    Ok(())
}

/// Refuses a collection that cannot be divided as is asked for.
///
/// # Errors
/// 72 InvalidOptions; 2 BadValue; 5731500 for a time series with other options than the client gives, or for what is none;
/// those of its shard key.
pub fn check_collection(held: &Stored, request: &ShardRequest<'_>) -> Result<()> {
    let options = held.options.as_doc();
    let refused = |why: &str| Err(Error::new(Code::InvalidOptions, why));
    if options.get("capped").is_some_and(|v| v.truthy()) {
        return refused("can't shard a capped collection");
    }
    if options.get("collation").is_some() && !request.simple {
        return Err(Error::bad_value(
            "Collection has default collation, so the collation option must be set to {locale: 'simple'}",
        ));
    }
    if let Some(given) = &request.series
        && held.series().map(|series| series.as_bytes()) != Some(given.as_bytes())
    {
        return Err(Error::location(
            5_731_500,
            format!(
                "the 'timeseries' spec provided must match that of exists '{}' collection",
                request.ns
            ),
        ));
    }
    if let Some(series) = held.series() {
        check_series(series, request)?;
    }
    // On one shard, keys can be kept unique in any case.
    for index in held.indexes.iter().filter(|_| !request.unsplittable) {
        let index = index.as_doc();
        let unique = index.get("unique").is_some_and(|v| v.truthy());
        let key = index.get_doc("key").unwrap_or(Doc::EMPTY);
        if unique && !request.key.begins_index(key) {
            return refused(&format!(
                "can't shard collection '{}' with unique index on {} and proposed shard key {}: uniqueness can't \
                 be maintained unless shard key is a prefix",
                request.ns,
                key.to_display(),
                request.key.pattern().to_display(),
            ));
        }
    }
    Ok(())
}

/// Whether an index can find the documents of a range, and keeps keys unique if that is asked for.
pub fn has_index(held: &Stored, shard_key: &ShardKey, unique: bool) -> bool {
    let fits = |index: &DocBuf| {
        let index = index.as_doc();
        let key = index.get_doc("key").unwrap_or(Doc::EMPTY);
        let simple = index.get_doc("collation").is_none();
        let whole = ["sparse", "hidden"]
            .iter()
            .all(|f| !index.get(f).is_some_and(|v| v.truthy()))
            && index.get("partialFilterExpression").is_none();
        let keeps = index.get("unique").is_some_and(|v| v.truthy()) && is_key(shard_key, key);
        begins(shard_key, key) && simple && whole && (!unique || keeps)
    };
    is_key(shard_key, doc! { "_id": 1 }.as_doc()) || held.indexes.iter().any(fits)
}

/// The name of a unique index that would not be kept unique over shards, if there is one.
pub fn unkept(held: &Stored, shard_key: &ShardKey) -> Option<String> {
    let unique = held.indexes.iter().map(|index| index.as_doc());
    let mut unique = unique.filter(|d| d.get("unique").is_some_and(|v| v.truthy()));
    let kept = |index: Doc<'_>| {
        let key = index.get_doc("key").unwrap_or(Doc::EMPTY);
        begins(shard_key, key)
    };
    let found = unique.find(|index| !kept(*index))?;
    Some(found.get_str("name").unwrap_or_default().to_string())
}

/// Whether a pattern is that of the shard key.
pub fn is_key(key: &ShardKey, pattern: Doc<'_>) -> bool {
    begins(key, pattern) && pattern.iter().count() == key.fields().len()
}

/// Whether a pattern has the fields of the shard key first.
fn begins(key: &ShardKey, pattern: Doc<'_>) -> bool {
    let mut names = pattern.iter();
    key.fields().iter().all(|f| {
        let fits = |e: Elem<'_>| match f.hashed {
            true => e.value().as_str() == Some("hashed"),
            false => number::to_f64(e.value()) == Some(1.0),
        };
        names
            .next()
            .is_some_and(|e| e.is_named(f.path.as_str()) && fits(e))
    })
}

/// The index on a shard key that a collection gets which has none that fits. Its name is none that is taken.
pub fn index_of(held: &Stored, key: &ShardKey) -> DocBuf {
    let mut name = index_name(key);
    let is = |index: &DocBuf| index.as_doc().get_str("name") == Some(name.as_str());
    if held.indexes.iter().any(is) {
        name.push_str("_shardKey");
    }
    let mut index = doc! { "key": key.pattern(), "name": name };
    if held.options.as_doc().get("collation").is_some() {
        index.append("collation", doc! { "locale": "simple" });
    }
    index
}

/// The name that drivers give an index: `a_1_b_hashed`.
fn index_name(key: &ShardKey) -> String {
    let parts = key.pattern();
    let parts = parts.iter().map(|e| match e.value().as_str() {
        Some(kind) => format!("{}_{kind}", e.name()),
        None => format!("{}_1", e.name()),
    });
    parts.collect::<Vec<_>>().join("_")
}

/// Refuses documents that can have no shard key.
///
/// # Errors
/// Those of [`check_keys`].
pub fn check_documents(
    cx: &CommandContext<'_>,
    router: &Router,
    (primary, held): (&SetPool, &Stored),
    request: &ShardRequest<'_>,
) -> Result<()> {
    // A measurement's time is a date in any case.
    let time = held.series().and_then(|series| series.get_str("timeField"));
    let fields = request.key.fields().iter();
    let fields = fields.filter(|f| Some(f.path.as_str()) != time);
    let fields: Vec<KeyField> = fields.cloned().collect();
    check_keys(cx, router, primary, (request.ns, &fields))
}

/// Refuses documents of a set that can have no value in these fields of a shard key.
///
/// # Errors
/// 61 ShardKeyNotFound; those of the set.
pub fn check_keys(
    cx: &CommandContext<'_>,
    router: &Router,
    primary: &SetPool,
    (ns, fields): (&str, &[KeyField]),
) -> Result<()> {
    let (db, name) = ns.split_once('.').unwrap_or_default();
    // An `_id` is no array in any case.
    for field in fields.iter().filter(|f| f.path.as_str() != "_id") {
        let path = field.path.as_str();
        let ends = path.match_indices('.').map(|(i, _)| i).chain([path.len()]);
        for end in ends {
            let part = path.get(..end).unwrap_or(path);
            let mut filter = DocBuf::new();
            filter.append(part, doc! { "$type": "array" });
            let find = doc! {
                "find": name, "filter": filter, "limit": 1, "projection": doc! { "_id": 1 },
                "singleBatch": true,
            };
            let reply = run(&**cx.op, router, primary, db, &find, true)?;
            let cursor = reply.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
            let batch = cursor.get_array("firstBatch").unwrap_or(Doc::EMPTY);
            if let Some(d) = batch.values().next().and_then(|v| v.as_doc()) {
                return Err(Error::new(
                    Code::ShardKeyNotFound,
                    format!(
                        "the document {} has an array at {part}, where the shard key cannot have one",
                        d.to_display()
                    ),
                ));
            }
        }
    }
    Ok(())
}
