//! The rules for documents that are stored: their size, their depth and their `_id`.

use muniment_value::{
    Code, Doc, Elem, Error, MAX_DEPTH, Result, Type, Value, nests_deeper, new_object_id,
};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// The largest document a client may store.
const MAX_DOCUMENT: usize = 16 << 20;

/// Returns the form in which a document is stored: `_id` comes first and is made if it is missing,
/// and with `replace_timestamps` a `Timestamp(0, 0)` on the top level becomes the time. The document
/// is copied only if it has to change.
///
/// # Errors
/// 10334 BSONObjectTooLarge; 15 Overflow; 53 InvalidIdField; 52 DollarPrefixedFieldName in `_id`;
/// 2 BadValue for two `_id`s.
pub(crate) fn prepare(doc: Doc<'_>, replace_timestamps: bool) -> Result<Cow<'_, [u8]>> {
    let bytes = doc.as_bytes();
    if bytes.len() > MAX_DOCUMENT {
        return Err(Error::new(
            Code::BSONObjectTooLarge,
            format!(
                "object to insert too large. size in bytes: {}, max size: {MAX_DOCUMENT}",
                bytes.len()
            ),
        ));
    }
    check_depth(doc)?;
    let mut id: Option<(usize, Elem<'_>)> = None;
    let mut zero_timestamp = false;
    for (i, e) in doc.iter().enumerate() {
        if e.name_bytes() == b"_id" {
            if id.is_some() {
                return Err(Error::bad_value(
                    "can't have multiple _id fields in one document",
                ));
            }
            check_id(e.value())?;
            id = Some((i, e));
        } else if e.ty() == Type::Timestamp {
            zero_timestamp |= e.raw_value() == [0; 8];
        }
    }
    zero_timestamp &= replace_timestamps;
    if let (Some((0, _)), false) = (&id, zero_timestamp) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut out = Vec::with_capacity(bytes.len() + 17);
    out.extend_from_slice(&[0; 4]);
    match &id {
        Some((_, e)) => out.extend_from_slice(e.as_bytes()),
        None => {
            out.push(Type::ObjectId as u8);
            out.extend_from_slice(b"_id\0");
            out.extend_from_slice(&new_object_id());
        }
    }
    for e in doc.iter() {
        if e.name_bytes() == b"_id" {
            continue;
        }
        if zero_timestamp && e.ty() == Type::Timestamp && e.raw_value() == [0; 8] {
            let head = e.as_bytes().len() - 8;
            out.extend_from_slice(e.as_bytes().get(..head).unwrap_or_default());
            out.extend_from_slice(&new_timestamp().to_le_bytes());
        } else {
            out.extend_from_slice(e.as_bytes());
        }
    }
    out.push(0);
    let n = (out.len() as u32).to_le_bytes();
    if let Some(head) = out.get_mut(..4) {
        head.copy_from_slice(&n);
    }
    Ok(Cow::Owned(out))
}

/// Refuses a document that nests deeper than stored documents may.
///
/// # Errors
/// 15 Overflow.
pub(crate) fn check_depth(doc: Doc<'_>) -> Result<()> {
    match nests_deeper(doc, MAX_DEPTH) {
        false => Ok(()),
        true => Err(Error::new(
            Code::Overflow,
            format!("cannot insert document because it exceeds {MAX_DEPTH} levels of nesting"),
        )),
    }
}

/// A BSON timestamp of the present second that differs from every other one made by this process.
fn new_timestamp() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let now = (seconds << 32) | 1;
    let before = LAST
        .fetch_update(Relaxed, Relaxed, |last| Some(now.max(last + 1)))
        .unwrap_or(0);
    now.max(before + 1)
}

fn check_id(id: Value<'_>) -> Result<()> {
    match id {
        Value::Array(_) | Value::Regex { .. } | Value::Undefined => Err(Error::new(
            Code::InvalidIdField,
            format!("The '_id' value cannot be of type {}", id.type_name()),
        )),
        Value::Document(d) => match d.iter().find(|e| e.name_bytes().first() == Some(&b'$')) {
            // A DBRef's own field names are allowed.
            Some(e) if !matches!(e.name(), "$ref" | "$id" | "$db") => Err(Error::new(
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{array, doc};

    #[test]
    fn documents_are_stored_with_id_first() {
        let d = doc! { "_id": 1, "a": 2 };
        assert_eq!(prepare(d.as_doc(), true).unwrap(), d.as_bytes());
        let d2 = doc! { "a": 2, "_id": 1 };
        let moved = prepare(d2.as_doc(), true).unwrap();
        assert_eq!(moved, d.as_bytes());
        let d3 = doc! { "a": 2 };
        let made = prepare(d3.as_doc(), true).unwrap();
        let first = Doc::new(&made).first().unwrap();
        assert_eq!((first.name(), first.ty()), ("_id", Type::ObjectId));
        assert_eq!(made.len(), doc! { "a": 2 }.len() + 17);
    }

    #[test]
    fn ids_that_cannot_be() {
        let code = |d: muniment_value::DocBuf| prepare(d.as_doc(), true).unwrap_err().code();
        assert_eq!(code(doc! { "_id": array![1] }), Code::InvalidIdField);
        assert_eq!(code(doc! { "_id": Value::Undefined }), Code::InvalidIdField);
        assert_eq!(
            code(doc! { "_id": doc! { "$x": 1 } }),
            Code::DollarPrefixedFieldName
        );
        assert_eq!(code(doc! { "_id": 1, "a": 1, "_id": 2 }), Code::BadValue);
    }

    #[test]
    fn documents_nest_as_deep_as_they_may_be_read() {
        let nested = |levels: usize| (2..levels).fold(doc! {}, |inner, _| doc! { "a": inner });
        let fits = doc! { "_id": 1, "a": nested(MAX_DEPTH) };
        assert!(prepare(fits.as_doc(), true).is_ok());
        muniment_value::validate(fits.as_bytes()).unwrap();
        let deep = doc! { "_id": 1, "a": nested(MAX_DEPTH + 1) };
        assert_eq!(
            prepare(deep.as_doc(), true).unwrap_err().code(),
            Code::Overflow
        );
    }

    #[test]
    fn empty_timestamps_become_the_time() {
        let d = doc! { "_id": 1, "t": Value::Timestamp { t: 0, i: 0 } };
        let got = prepare(d.as_doc(), true).unwrap();
        assert!(matches!(Doc::new(&got).get("t"), Some(Value::Timestamp { t, .. }) if t > 0));
        assert_eq!(prepare(d.as_doc(), false).unwrap(), d.as_bytes());
    }
}
