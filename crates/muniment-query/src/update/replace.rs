//! Replacement documents, and the rules that every stored document must obey: the types of `_id`, field
//! names, and timestamps that the server fills in.

use super::tree::dollar_field;
use crate::bytes::{close, open, put, show};
use muniment_value::{Code, Doc, Elem, Error, Result, Type, Value, values_equal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A parsed replacement.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    /// The `_id` element, if the replacement has one, as a document with only that field.
    id: Option<Vec<u8>>,
    /// Whether it is the first element.
    id_leads: bool,
    /// All other elements.
    rest: Vec<u8>,
    zero_timestamps: bool,
}

impl Replacement {
    /// Checks and copies a replacement document.
    ///
    /// # Errors
    /// 52 DollarPrefixedFieldName for a field such as `$set` after plain fields.
    pub(crate) fn parse(doc: Doc<'_>) -> Result<Replacement> {
        let mut r = Replacement {
            id: None,
            id_leads: doc.first().is_some_and(|e| e.name_bytes() == b"_id"),
            rest: Vec::with_capacity(doc.byte_len()),
            zero_timestamps: false,
        };
        for e in doc {
            let name = e.name();
            if name.starts_with('$') && !matches!(name, "$id" | "$ref" | "$db") {
                return Err(dollar_field(name, name));
            }
            if name == "_id" {
                if r.id.is_none() {
                    let mut id = Vec::new();
                    let start = open(&mut id);
                    id.extend_from_slice(e.as_bytes());
                    close(&mut id, start);
                    r.id = Some(id);
                }
                continue;
            }
            r.zero_timestamps |= zero_timestamp(e);
            r.rest.extend_from_slice(e.as_bytes());
        }
        Ok(r)
    }

    /// Makes the replacement store `Timestamp(0, 0)` as it is.
    pub(crate) fn keep_empty_timestamps(&mut self) {
        self.zero_timestamps = false;
    }

    fn id(&self) -> Option<Elem<'_>> {
        self.id.as_ref().and_then(|id| Doc::new(id).first())
    }

    /// Writes the replacement of `doc`, with `doc`'s `_id`.
    ///
    /// # Errors
    /// 66 ImmutableField if the replacement has another `_id`.
    pub(crate) fn apply(&self, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let old = doc.get_elem("_id");
        let id = self.id();
        if let (Some(old), Some(id)) = (old, id) {
            check_same_id(old, id)?;
        }
        let start = open(out);
        if let Some(id) = old.or(id) {
            out.extend_from_slice(id.as_bytes());
        }
        out.extend_from_slice(&self.rest);
        close(out, start);
        if self.zero_timestamps
            && let Some(new) = out.get_mut(start..)
        {
            fill_zero_timestamps(new);
        }
        // As in MongoDB, a replacement only counts as no change if it is exactly the document itself,
        // including `_id`.
        Ok(!self.id_leads || out.get(start..) != Some(doc.as_bytes()))
    }
}

/// 66, for an operator that would change `_id`.
pub(crate) fn immutable_id(path: &str) -> Error {
    Error::new(
        Code::ImmutableField,
        format!("Performing an update on the path '{path}' would modify the immutable field '_id'"),
    )
}

/// Fails with 66 unless `new` is equal to the `_id` that the document had.
pub(crate) fn check_same_id(old: Elem<'_>, new: Elem<'_>) -> Result<()> {
    if values_equal(old.value(), new.value()) {
        return Ok(());
    }
    Err(Error::new(
        Code::ImmutableField,
        format!(
            "After applying the update, the (immutable) field '_id' was found to have been altered \
             to {}",
            show(new)
        ),
    ))
}

/// Checks whether `v` may be a document's `_id`.
///
/// # Errors
/// 53 InvalidIdField for arrays, regular expressions and undefined; 52 DollarPrefixedFieldName
/// for a document with a field that begins with a dollar.
pub fn validate_id(v: Value<'_>) -> Result<()> {
    match v {
        Value::Array(_) | Value::Regex { .. } | Value::Undefined => Err(Error::new(
            Code::InvalidIdField,
            format!("The '_id' value cannot be of type {}", v.type_name()),
        )),
        Value::Document(d) => match d.iter().find(|e| e.name_bytes().first() == Some(&b'$')) {
            Some(e) if !matches!(e.name(), "$id" | "$ref" | "$db") => Err(Error::new(
                Code::DollarPrefixedFieldName,
                format!(
                    "_id fields may not contain '$'-prefixed fields: {} is not valid for storage.",
                    e.name()
                ),
            )),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn zero_timestamp(e: Elem<'_>) -> bool {
    e.ty() == Type::Timestamp && e.raw_value() == [0; 8] && e.name_bytes() != b"_id"
}

/// Sets every top-level `Timestamp(0, 0)` of a document (but not `_id`) to the current time, as MongoDB does
/// for inserts and replacements. This works in place, because the size stays the same.
pub fn fill_zero_timestamps(doc: &mut [u8]) {
    let mut at = 4;
    loop {
        let view = Doc::new(doc);
        let mut elems = view.iter();
        let mut found = None;
        // A document holds few timestamps, so starting over after each is cheap enough, and it
        // keeps the borrow of the view away from the write.
        while let Some(e) = elems.next() {
            if elems.offset() > at && zero_timestamp(e) {
                found = Some(elems.offset());
                break;
            }
        }
        let Some(end) = found else { return };
        at = end;
        let mut new = Vec::with_capacity(8);
        muniment_value::Put::put(&next_timestamp(), &mut new);
        if let Some(to) = doc.get_mut(end.saturating_sub(8)..end) {
            to.copy_from_slice(&new);
        }
    }
}

/// A timestamp of the current second that is greater than every earlier one of this process.
pub(crate) fn next_timestamp() -> Value<'static> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let floor = (seconds << 32) | 1;
    let mut given = floor;
    let _ = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
        given = floor.max(last.saturating_add(1));
        Some(given)
    });
    Value::Timestamp {
        t: (given >> 32) as u32,
        i: given as u32,
    }
}

/// Appends `doc` with `_id` at the front. If there is none, an ObjectId is made.
pub(crate) fn id_first(doc: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
    let start = open(out);
    match doc.get_elem("_id") {
        Some(id) => {
            validate_id(id.value())?;
            out.extend_from_slice(id.as_bytes());
            for e in doc.iter().filter(|e| e.name_bytes() != b"_id") {
                out.extend_from_slice(e.as_bytes());
            }
        }
        None => {
            put(
                out,
                b"_id",
                &Value::ObjectId(muniment_value::new_object_id()),
            );
            out.extend_from_slice(crate::bytes::body(doc));
        }
    }
    close(out, start);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::update::testing::table;
    use muniment_value::doc;

    #[test]
    fn table_of_replacements() {
        table(&[
            ("{_id:1,a:1}", "{b:2}", "{_id:1,b:2}"),
            ("{_id:1,a:1}", "{}", "{_id:1}"),
            ("{_id:1,a:1}", "{_id:1,a:1}", "="),
            ("{_id:1,a:1}", "{a:1}", "{_id:1,a:1}"),
            (
                "{_id:1,a:1}",
                "{a:{$x:1},'b.c':2}",
                "{_id:1,a:{$x:1},'b.c':2}",
            ),
            (
                "{_id:1}",
                "{_id:2}",
                "66: After applying the update, the (immutable) field '_id' was found to have been \
              altered to _id: 2",
            ),
            (
                "{_id:1}",
                "{a:1,$set:{b:1}}",
                "52: The dollar ($) prefixed field '$set' in '$set' is not allowed in the context of \
              an update's replacement document. Consider using an aggregation pipeline with \
              $replaceWith.",
            ),
        ]);
    }

    #[test]
    fn zero_timestamps_are_filled_at_the_top_only() {
        let zero = Value::Timestamp { t: 0, i: 0 };
        let d = doc! { "_id": zero, "a": zero, "b": doc! { "c": zero }, "d": 1, "e": zero };
        let mut bytes = d.into_bytes();
        fill_zero_timestamps(&mut bytes);
        let d = Doc::new(&bytes);
        let get = |d: Doc<'_>, n: &str| match d.get(n).unwrap() {
            Value::Timestamp { t, i } => (t, i),
            _ => (7, 7),
        };
        assert_eq!(get(d, "_id"), (0, 0));
        assert!(get(d, "a") > (0, 0));
        assert!(get(d, "e") > get(d, "a"));
        assert_eq!(get(d.get_doc("b").unwrap(), "c"), (0, 0));
    }

    #[test]
    fn ids_of_the_wrong_type_are_refused() {
        assert!(validate_id(Value::Int32(1)).is_ok());
        let e = validate_id(Value::Array(Doc::EMPTY)).unwrap_err();
        assert_eq!(e.code(), Code::InvalidIdField);
        let d = doc! { "$x": 1 };
        let e = validate_id(Value::Document(d.as_doc())).unwrap_err();
        assert_eq!(e.code(), Code::DollarPrefixedFieldName);
    }
}
