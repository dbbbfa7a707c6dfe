//! The options of a collection that `create` takes and `collMod` changes.

use muniment_exec::OpContext;
use muniment_query::{Filter, QueryContext};
use muniment_value::args::{Args, Field, Types, opt, req};
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result, Value, doc};
use std::sync::Arc;

/// Capped sizes are rounded up to a multiple of this, in bytes.
const CAPPED_STEP: u64 = 256;

/// The greatest size of a capped collection, in bytes.
pub(super) const MAX_CAPPED: i64 = 1 << 50;

/// The size that is kept for a capped collection of this requested size.
pub(super) fn capped_size(size: i64) -> u64 {
    (size.max(1) as u64).div_ceil(CAPPED_STEP) * CAPPED_STEP
}

fn options(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidOptions, message)
}

/// An option that must be one of a few words.
///
/// # Errors
/// 2 BadValue.
pub(super) fn word<'a>(
    a: &Args<'a>,
    command: &str,
    name: &'static str,
    among: &[&str],
) -> Result<Option<&'a str>> {
    match a.str(name) {
        Some(w) if !among.contains(&w) => Err(Error::bad_value(format!(
            "Enumeration value '{w}' for field '{command}.{name}' is not a valid value."
        ))),
        other => Ok(other),
    }
}

/// `validationLevel`'s words.
pub(super) const LEVELS: &[&str] = &["off", "strict", "moderate"];
/// `validationAction`'s words.
pub(super) const ACTIONS: &[&str] = &["error", "warn", "errorAndLog"];

/// Checks a validator.
///
/// # Errors
/// 72 InvalidOptions for a collection that may have no validator; 2 BadValue for an operator that needs more
/// than the document; the errors of parsing.
pub(super) fn check_validator(
    db: &str,
    collection: &str,
    validator: Doc<'_>,
    op: &Arc<OpContext>,
) -> Result<()> {
    if validator.is_empty() {
        return Ok(());
    }
    if matches!(db, "admin" | "local" | "config") {
        return Err(options(format!(
            "Document validators are not allowed on collection {db}.{collection} in the {db} \
             internal database"
        )));
    }
    if collection.starts_with("system.") {
        return Err(options(format!(
            "Document validators are not allowed on system collection {db}.{collection}"
        )));
    }
    for name in ["$text", "$where"] {
        if uses(validator, name, 0) {
            return Err(Error::bad_value(format!(
                "{name} is not allowed in this context"
            )));
        }
    }
    let ctx = QueryContext {
        validator: true,
        ..QueryContext::new().with_operation(op.clone())
    };
    Filter::parse(validator, &ctx).map(drop)
}

/// Whether a filter uses this operator, at any depth.
fn uses(filter: Doc<'_>, operator: &str, depth: usize) -> bool {
    depth < 100
        && filter.iter().any(|e| {
            e.name() == operator
                || match (e.name(), e.value()) {
                    ("$and" | "$or" | "$nor", Value::Array(list)) => list
                        .values()
                        .filter_map(|v| v.as_doc())
                        .any(|d| uses(d, operator, depth + 1)),
                    _ => false,
                }
        })
}

const IMAGES: &[Field] = &[req("enabled", Types::BOOL)];

/// `changeStreamPreAndPostImages`: whether it is enabled.
///
/// # Errors
/// 14, 40414, 40415.
pub(super) fn images(d: Doc<'_>) -> Result<bool> {
    let a = Args::parse("changeStreamPreAndPostImages", IMAGES, d)?;
    Ok(a.bool("enabled", false))
}

/// Whether collections of a database may keep images.
///
/// # Errors
/// 72 InvalidOptions for one of the server's own databases.
pub(super) fn check_images(db: &str) -> Result<()> {
    if !matches!(db, "admin" | "config" | "local") {
        return Ok(());
    }
    Err(Error::new(
        Code::InvalidOptions,
        format!(
            "changeStreamPreAndPostImages collection option is not supported on the {db} database"
        ),
    ))
}

const DEFAULTS: &[Field] = &[opt("storageEngine", Types::OBJECT)];

/// Checks `indexOptionDefaults`.
///
/// # Errors
/// 14, 40415; as [`storage_engine`].
pub(super) fn index_defaults(d: Doc<'_>) -> Result<()> {
    let a = Args::parse("create.indexOptionDefaults", DEFAULTS, d)?;
    match a.doc("storageEngine") {
        Some(d) => storage_engine(d),
        None => Ok(()),
    }
}

/// The settings that a configuration string of WiredTiger may contain.
const SETTINGS: &[&str] = &[
    "access_pattern_hint",
    "allocation_size",
    "app_metadata",
    "block_allocation",
    "block_compressor",
    "cache_resident",
    "checksum",
    "dictionary",
    "encryption",
    "format",
    "huffman_key",
    "huffman_value",
    "ignore_in_memory_cache_size",
    "immutable",
    "internal_item_max",
    "internal_key_max",
    "internal_key_truncate",
    "internal_page_max",
    "key_format",
    "key_gap",
    "leaf_item_max",
    "leaf_key_max",
    "leaf_page_max",
    "leaf_value_max",
    "log",
    "memory_page_image_max",
    "memory_page_max",
    "os_cache_dirty_max",
    "os_cache_max",
    "prefix_compression",
    "prefix_compression_min",
    "split_deepen_min_child",
    "split_deepen_per_child",
    "split_pct",
    "type",
    "value_format",
    "verbose",
    "write_timestamp_usage",
];

/// Checks `storageEngine`, the settings of MongoDB's own engine. They are kept and shown, but have no effect
/// here.
///
/// # Errors
/// 72 for another engine or field, 2 for something that cannot be a setting, 9 for a null byte.
pub(super) fn storage_engine(d: Doc<'_>) -> Result<()> {
    for e in d {
        let name = e.name();
        let Value::Document(settings) = e.value() else {
            return Err(Error::bad_value(format!(
                "'storageEngine.{name}' has to be an embedded document."
            )));
        };
        if name != "wiredTiger" {
            return Err(options(format!(
                "'{name}' is not a registered storage engine for this server"
            )));
        }
        for s in settings {
            match (s.name(), s.value()) {
                ("configString", Value::String(text)) => config_string(text)?,
                ("configString", v) => {
                    return Err(Error::type_mismatch(format!(
                        "'storageEngine.wiredTiger.configString' must be a string, not {}",
                        v.type_name()
                    )));
                }
                (other, _) => {
                    return Err(options(format!(
                        "'{other}' is not a supported option in storageEngine.wiredTiger"
                    )));
                }
            }
        }
    }
    Ok(())
}

fn config_string(text: &str) -> Result<()> {
    if text.contains('\0') {
        return Err(Error::failed_to_parse(
            "The storage engine's configString must not contain a null byte",
        ));
    }
    let mut depth = 0_i32;
    let mut item = String::new();
    let mut items = Vec::new();
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(std::mem::take(&mut item));
                continue;
            }
            _ => {}
        }
        item.push(c);
    }
    items.push(item);
    for item in items.iter().filter(|i| !i.trim().is_empty()) {
        let name = item.split(['=', ':']).next().unwrap_or_default().trim();
        if SETTINGS.binary_search(&name).is_err() {
            return Err(Error::bad_value(format!(
                "22: Invalid argument: unknown configuration key '{name}'"
            )));
        }
    }
    Ok(())
}

/// Checks `idIndex`.
///
/// # Errors
/// 2 BadValue for another key than `{_id: 1}`; those of an index specification.
pub(super) fn id_index(id: Doc<'_>, collation: &Collation) -> Result<()> {
    let has = |name: &str| id.get_elem(name).is_some();
    if let (Some(key), true) = (id.get_doc("key"), has("name")) {
        let first = key.first();
        let ascending = key.count() == 1
            && first.is_some_and(|e| e.name() == "_id" && e.value().as_i64_exact() == Some(1));
        if !ascending {
            return Err(Error::bad_value(format!(
                "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
                Value::Document(key).to_display()
            )));
        }
    }
    if let Some(v) = id.get("v")
        && v.is_number()
        && v.as_i64_exact().is_none()
    {
        return Err(Error::bad_value(format!(
            "Index version must be representable as a 32-bit integer, but got {}",
            v.to_display()
        )));
    }
    // The collation is that of the collection; the rest is checked like that of any other index.
    let mut plain = DocBuf::new();
    for e in id.iter().filter(|e| e.name() != "collation") {
        plain.append_elem(e);
    }
    muniment_storage::IndexSpec::parse(plain.as_doc())?;
    if let Some(v) = id.get("collation") {
        let Value::Document(c) = v else {
            return Err(Error::type_mismatch(format!(
                "The field 'collation' must be an object, but got {}",
                v.type_name()
            )));
        };
        if Collation::parse(c)? != *collation {
            return Err(Error::bad_value(
                "The _id index must have the same collation as the collection",
            ));
        }
    }
    Ok(())
}

/// `{enabled: true}`.
pub(super) fn images_doc(enabled: bool) -> DocBuf {
    doc! { "enabled": enabled }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::array;

    #[test]
    fn validators_that_cannot_be() {
        let code = |db: &str, c: &str, d: DocBuf| {
            check_validator(db, c, d.as_doc(), &OpContext::internal("create"))
                .map_or_else(|e| e.code().0, |()| 0)
        };
        let fine = || doc! { "a": doc! { "$gt": 0 } };
        assert_eq!(code("d", "c", fine()), 0);
        assert_eq!(code("d", "c", doc! {}), 0);
        assert_eq!(code("admin", "c", fine()), 72);
        assert_eq!(code("d", "system.js", fine()), 72);
        assert_eq!(code("d", "c", doc! { "$where": "true" }), 2);
        let nested = doc! { "$or": array![doc! { "$text": doc! { "$search": "x" } }] };
        assert_eq!(code("d", "c", nested), 2);
        assert_eq!(code("d", "c", doc! { "$foo": 1 }), 2);
        let random = doc! { "$expr": doc! { "$lt": array![doc! { "$rand": doc! {} }, 0.5] } };
        assert_eq!(code("d", "c", random), 3_040_500);
        assert_eq!(code("d", "c", doc! { "$sampleRate": 0.5 }), 3_040_500);
        let script = doc! { "body": "x", "args": array![], "lang": "js" };
        let script = doc! { "$expr": doc! { "$function": script } };
        assert_eq!(code("d", "c", script), 4_660_800);
    }

    #[test]
    fn settings_of_an_engine() {
        assert!(SETTINGS.is_sorted());
        let code = |d: DocBuf| storage_engine(d.as_doc()).map_or_else(|e| e.code().0, |()| 0);
        let with = |s: &str| doc! { "wiredTiger": doc! { "configString": s } };
        assert_eq!(code(with("")), 0);
        assert_eq!(
            code(with("block_compressor=zstd,log=(enabled=true,file_max=1)")),
            0
        );
        assert_eq!(code(with("invalid=bad")), 2);
        assert_eq!(code(with("a\0b")), 9);
        assert_eq!(code(doc! { "wiredTiger": 1 }), 2);
        assert_eq!(code(doc! { "wiredTiger": doc! { "x": 1 } }), 72);
        assert_eq!(code(doc! { "other": doc! {} }), 72);
    }

    #[test]
    fn id_indexes() {
        let code = |d: DocBuf| {
            id_index(d.as_doc(), &Collation::SIMPLE).map_or_else(|e| e.code().0, |()| 0)
        };
        let key = || doc! { "_id": 1 };
        assert_eq!(code(doc! { "key": key(), "name": "_id_", "v": 2 }), 0);
        assert_eq!(code(doc! { "key": doc! { "x": 1 }, "name": "_id_" }), 2);
        assert_eq!(
            code(doc! { "key": doc! { "_id": "hashed" }, "name": "_id_" }),
            2
        );
        assert_eq!(code(doc! { "key": key() }), 9);
        assert_eq!(code(doc! { "key": 1, "name": "_id_" }), 14);
        assert_eq!(code(doc! { "key": key(), "name": "" }), 67);
        assert_eq!(code(doc! { "key": key(), "name": "_id_", "v": 2.5 }), 2);
        assert_eq!(code(doc! { "key": key(), "name": "_id_", "v": 3 }), 67);
        assert_eq!(
            code(doc! { "key": key(), "name": "_id_", "unique": true }),
            197
        );
    }
}
