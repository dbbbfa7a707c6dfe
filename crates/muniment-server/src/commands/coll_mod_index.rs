//! `collMod.index`: expiry, hiding, and the way to a unique index: `prepareUnique` refuses new
//! duplicates, `unique` converts when there are none left.

use super::drop_indexes::same_pattern;
use crate::context::CommandContext;
use muniment_storage::{Collection, Direction, Index, IndexSpec, KeyRange};
use muniment_value::args::{Args, Field, Types, opt};
use muniment_value::{ArrayBuf, Code, Doc, Error, Result, Value, doc, number};
use std::sync::Arc;

const INDEX: &[Field] = &[
    opt("name", Types::STRING),
    opt("keyPattern", Types::OBJECT),
    opt("expireAfterSeconds", Types::NUMBER),
    opt("hidden", Types::SAFE_BOOL),
    opt("unique", Types::SAFE_BOOL),
    opt("prepareUnique", Types::SAFE_BOOL),
];

/// Limits of an error that lists duplicates: groups of documents, and bytes.
const MAX_VIOLATIONS: usize = 1000;
const MAX_VIOLATION_BYTES: usize = 1 << 20;

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidOptions, message)
}

/// The change to an index that the command asks for.
pub(super) struct IndexChange<'a> {
    source: Doc<'a>,
    name: Option<&'a str>,
    pattern: Option<Doc<'a>>,
    /// Seconds.
    expire: Option<i64>,
    hidden: Option<bool>,
    prepare_unique: Option<bool>,
    /// Convert to a unique index.
    pub unique: Option<bool>,
}

impl<'a> IndexChange<'a> {
    /// Parses the document.
    ///
    /// # Errors
    /// 14, 40415; 72 for a document that does not name exactly one index and a change.
    pub fn parse(source: Doc<'a>) -> Result<IndexChange<'a>> {
        let a = Args::parse("collMod.index", INDEX, source)?;
        let flag = |name: &str| a.get(name).map(|v| v.truthy());
        let change = IndexChange {
            source,
            name: a.str("name"),
            pattern: a.doc("keyPattern"),
            expire: match a.get("expireAfterSeconds") {
                Some(v) => Some(seconds(v)?),
                None => None,
            },
            hidden: flag("hidden"),
            prepare_unique: flag("prepareUnique"),
            unique: flag("unique"),
        };
        match (change.name, change.pattern) {
            (Some(_), Some(_)) => return Err(invalid("Cannot specify both key pattern and name.")),
            (None, None) => return Err(invalid("Must specify either index name or key pattern.")),
            _ => {}
        }
        let nothing = change.expire.is_none()
            && change.hidden.is_none()
            && change.prepare_unique.is_none()
            && change.unique.is_none();
        if nothing {
            return Err(invalid(
                "no expireAfterSeconds, hidden, unique, or prepareUnique field",
            ));
        }
        if change.unique == Some(false) {
            return Err(Error::bad_value("Cannot make index non-unique"));
        }
        Ok(change)
    }
}

/// `expireAfterSeconds` of a TTL index; a number beyond 32 bits is clamped.
fn seconds(v: Value<'_>) -> Result<i64> {
    let n = number::to_i64_clamped(v).unwrap_or(-1);
    if n < 0 {
        return Err(invalid(
            "TTL index 'expireAfterSeconds' option cannot be less than 0",
        ));
    }
    Ok(n.min(i64::from(i32::MAX)))
}

/// A change that was checked against its index.
pub(super) struct Plan {
    old: Arc<IndexSpec>,
    new: IndexSpec,
    /// Whether the command named the TTL.
    expire: bool,
    /// Convert to a unique index.
    convert: bool,
}

/// Finds the index that the command names by its name or its key pattern.
///
/// # Errors
/// 27 IndexNotFound, 305 AmbiguousIndexKeyPattern, 6011800 for hiding what a clustered collection is.
fn find(
    cx: &CommandContext<'_>,
    collection: &Collection,
    change: &IndexChange<'_>,
) -> Result<Arc<IndexSpec>> {
    let indexes = collection.indexes();
    let clustered = collection.is_keyed_by_id();
    if clustered && change.name == Some("_id_") && change.hidden.is_some() {
        return Err(Error::location(
            6_011_800,
            "the 'clusteredIndex' cannot be hidden",
        ));
    }
    let mut found = indexes
        .iter()
        .filter(|i| !(clustered && i.is_id()))
        .map(|i| i.spec())
        .filter(|s| match (change.name, change.pattern) {
            (Some(n), _) => s.name == n,
            (_, Some(p)) => same_pattern(s.key.as_doc(), p),
            _ => false,
        });
    let old = found.next().ok_or_else(|| {
        Error::new(
            Code::IndexNotFound,
            format!(
                "cannot find index {} for ns {}",
                Value::Document(change.source).to_display(),
                cx.ns()
            ),
        )
    })?;
    if found.next().is_some() {
        return Err(Error::new(
            Code::AmbiguousIndexKeyPattern,
            format!(
                "index keyPattern {} matches more than one index, must use index name. ns {}",
                Value::Document(change.pattern.unwrap_or(Doc::EMPTY)).to_display(),
                cx.ns()
            ),
        ));
    }
    Ok(old)
}

/// Finds the index and checks whether it may be changed so.
///
/// # Errors
/// 27 IndexNotFound, 305 AmbiguousIndexKeyPattern, 72 InvalidOptions, 2 BadValue.
pub(super) fn plan(
    cx: &CommandContext<'_>,
    collection: &Collection,
    change: IndexChange<'_>,
) -> Result<Plan> {
    let old = find(cx, collection, &change)?;
    let is_id = old.name == "_id_";
    if change.expire.is_some() && is_id {
        return Err(invalid("the _id field does not support TTL indexes"));
    }
    // A text index has two fields, but it may have been made with this option.
    let gets = change.expire.is_some() && old.expire_after_seconds.is_none();
    if gets && old.key.as_doc().count() > 1 {
        return Err(invalid(
            "TTL indexes are single-field indexes, compound indexes do not support TTL",
        ));
    }
    if change.hidden.is_some() && is_id {
        return Err(Error::bad_value("can't hide _id index"));
    }
    let prepare = change.prepare_unique.filter(|p| *p != old.prepare_unique);
    if let Some(prepare) = prepare {
        if is_id || (prepare && old.unique) {
            return Err(invalid("the index is unique already"));
        }
        if change.expire.is_some() || change.hidden.is_some() || change.unique.is_some() {
            return Err(invalid(
                "collMod 'prepareUnique' cannot be combined with any other modification of the \
                 index",
            ));
        }
    }
    let convert = change.unique == Some(true) && !old.unique && !is_id;
    if convert && !old.prepare_unique {
        return Err(invalid(
            "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first.",
        ));
    }
    let new = old
        .changed(|new| {
            new.expire_after_seconds = change.expire.or(new.expire_after_seconds);
            new.hidden = change.hidden.unwrap_or(new.hidden);
            new.prepare_unique = prepare.unwrap_or(new.prepare_unique) && !convert;
            new.unique |= convert;
        })
        // Options that no index can be created with cannot be given to it later either.
        .map_err(|e| invalid(e.message()))?;
    super::time_series_index::check(collection.options().document.as_doc(), &new, cx.op)?;
    Ok(Plan {
        new,
        old,
        expire: change.expire.is_some(),
        convert,
    })
}

impl Plan {
    /// Changes the index, and writes the old and the new values into the reply.
    ///
    /// # Errors
    /// 359 CannotConvertIndexToUnique with the duplicates; the storage's.
    pub fn run(
        self,
        cx: &mut CommandContext<'_>,
        collection: &Arc<Collection>,
        dry_run: bool,
    ) -> Result<()> {
        let (old, new) = (&self.old, &self.new);
        if self.convert {
            let indexes = collection.indexes();
            if let Some(index) = indexes.iter().find(|i| i.spec().name == old.name) {
                check_duplicates(cx, collection, index)?;
            }
        }
        if dry_run {
            return Ok(());
        }
        let store = &cx.engine().store;
        if self.convert {
            // A unique index has entries of another form, so it is built anew beside the old one. The old one
            // stays if a writer has added duplicates in the meantime.
            let built = store.replace_index(collection, new.clone(), &**cx.op);
            built.map_err(|e| match e.code() {
                Code::DuplicateKey => Error::new(
                    Code::CannotConvertIndexToUnique,
                    format!("Cannot convert the index to unique: {}", e.message()),
                ),
                _ => e,
            })?;
            cx.note_write();
        } else if *new != **old {
            store.modify_index(collection, new.clone(), &**cx.op)?;
            cx.note_write();
        }
        let w = &mut cx.reply;
        if self.expire {
            if let Some(n) = old.expire_after_seconds {
                w.field("expireAfterSeconds_old", n);
            }
            if let Some(n) = new.expire_after_seconds {
                w.field("expireAfterSeconds_new", n);
            }
        }
        if old.hidden != new.hidden {
            w.field("hidden_old", old.hidden);
            w.field("hidden_new", new.hidden);
        }
        if self.convert {
            w.field("unique_new", true);
        } else if old.prepare_unique != new.prepare_unique {
            w.field("prepareUnique_old", old.prepare_unique);
            w.field("prepareUnique_new", new.prepare_unique);
        }
        Ok(())
    }
}

/// 359 CannotConvertIndexToUnique, with the `_id`s of the documents that have the same key.
fn check_duplicates(cx: &CommandContext<'_>, collection: &Collection, index: &Index) -> Result<()> {
    let snapshot = cx.engine().store.snapshot();
    let mut cursor = snapshot.entries(collection, index, &KeyRange::all(), Direction::Forward);
    let mut groups: Vec<Vec<bytes::Bytes>> = Vec::new();
    let mut last: Option<(bytes::Bytes, bytes::Bytes)> = None;
    let mut in_group = false;
    let mut steps = 0_u32;
    while let Some(e) = cursor.next(&**cx.op)? {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(1024) {
            muniment_op::Interrupt::check(&**cx.op)?;
        }
        let same = last.as_ref().is_some_and(|(key, _)| *key == e.key);
        if same {
            if !in_group {
                if groups.len() >= MAX_VIOLATIONS {
                    break;
                }
                groups.push(last.iter().map(|(_, r)| r.clone()).collect());
            }
            if let Some(g) = groups.last_mut() {
                g.push(e.record_key.clone());
            }
        }
        in_group = same;
        last = Some((e.key, e.record_key));
    }
    if groups.is_empty() {
        return Ok(());
    }
    let mut violations = ArrayBuf::new();
    for group in groups {
        if violations.as_doc().byte_len() > MAX_VIOLATION_BYTES {
            break;
        }
        let mut ids = ArrayBuf::new();
        for record in group.iter().take(MAX_VIOLATIONS) {
            if let Some(d) = snapshot.get(collection, record)? {
                ids.push(Doc::new(&d).get("_id").unwrap_or(Value::Null));
            }
        }
        violations.push(doc! { "ids": ids });
    }
    Err(Error::new(
        Code::CannotConvertIndexToUnique,
        "Cannot convert the index to unique. Please resolve conflicting documents before running \
         collMod again.",
    )
    .with_extra(doc! { "violations": violations }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::DocBuf;

    #[test]
    fn index_changes_are_parsed() {
        let code = |d: DocBuf| IndexChange::parse(d.as_doc()).map_or_else(|e| e.code().0, |_| 0);
        assert_eq!(code(doc! { "name": "a", "hidden": 1 }), 0);
        assert_eq!(code(doc! { "name": "a" }), 72);
        assert_eq!(code(doc! { "hidden": true }), 72);
        assert_eq!(
            code(doc! { "name": "a", "keyPattern": doc! { "a": 1 }, "hidden": 1 }),
            72
        );
        assert_eq!(code(doc! { "name": "a", "unique": false }), 2);
        assert_eq!(code(doc! { "name": "a", "expireAfterSeconds": -1 }), 72);
        assert_eq!(code(doc! { "name": "a", "expireAfterSeconds": "x" }), 14);
        assert_eq!(code(doc! { "name": "a", "foo": 1 }), 40415);
        assert_eq!(
            seconds(Value::Double(f64::INFINITY)).unwrap(),
            2_147_483_647
        );
        assert_eq!(seconds(Value::Double(50.7)).unwrap(), 50);
    }
}
