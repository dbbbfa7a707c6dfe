//! Inserts.

use super::bulk::{BulkOutcome, WriteError};
use super::core::SLICE_BYTES;
use crate::engine::Engine;
use crate::operation::OpContext;
use crate::timeseries::TimeSeries;
use bytes::Bytes;
use muniment_query::Interrupt;
use muniment_value::{Code, Doc, Elem, Error, Result, Type, Value, new_object_id};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// The largest document a client may store.
const MAX_DOCUMENT: usize = 16 << 20;

/// Options of an insert command.
#[derive(Clone, Copy, Debug)]
pub struct InsertOptions {
    /// Stop at the first error.
    pub ordered: bool,
    /// Skip the collection's validator.
    pub bypass_document_validation: bool,
    /// Keep `Timestamp(0, 0)` as it is (mongorestore).
    pub bypass_empty_ts_replacement: bool,
}

impl Default for InsertOptions {
    fn default() -> InsertOptions {
        InsertOptions {
            ordered: true,
            bypass_document_validation: false,
            bypass_empty_ts_replacement: false,
        }
    }
}

impl Engine {
    /// Inserts documents (validated BSON), creating the collection if it is not there. A missing
    /// `_id` is made, and `_id` is moved to the front. Documents become visible in slices of
    /// bounded size.
    ///
    /// # Errors
    /// Only what concerns the whole command (73 InvalidNamespace, interrupts, a full disk before
    /// anything was written); a document's own error is in the outcome.
    pub fn insert_many<'d>(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        docs: &mut dyn Iterator<Item = Doc<'d>>,
        options: InsertOptions,
    ) -> Result<BulkOutcome> {
        let mut out = BulkOutcome::default();
        let mut docs = docs.enumerate().peekable();
        while docs.peek().is_some() {
            let collection = self.collection_or_create(namespace)?;
            let mut set = match self.store.write_set(&collection) {
                Ok(s) => s,
                // Dropped since we looked: create it again.
                Err(e) if e.code() == Code::NamespaceNotFound => {
                    op.check()?;
                    continue;
                }
                Err(e) if out.n > 0 => {
                    let index = docs.peek().map_or(0, |(i, _)| *i);
                    out.errors.push(WriteError { index, error: e });
                    return Ok(out);
                }
                Err(e) => return Err(e),
            };
            let validator = self.checks(&collection, options.bypass_document_validation)?;
            let series = TimeSeries::of(&collection);
            let first = docs.peek().map_or(0, |(i, _)| *i);
            let mut staged = 0;
            let mut stop = false;
            for (index, doc) in docs.by_ref() {
                let result = prepare(doc, !options.bypass_empty_ts_replacement).and_then(|d| {
                    if let Some(s) = &series {
                        s.check_measurement(Doc::new(&d))?;
                    }
                    if let Some(v) = &validator {
                        v.0.check(&v.1, None, &d)?;
                    }
                    set.insert(d)
                });
                match result {
                    Ok(()) => staged += 1,
                    Err(error) => {
                        out.errors.push(WriteError { index, error });
                        if options.ordered {
                            stop = true;
                            break;
                        }
                    }
                }
                if set.staged_bytes() >= SLICE_BYTES {
                    break;
                }
            }
            match set.commit() {
                Ok(commit) => {
                    out.commit = out.commit.max(commit);
                    out.n += staged;
                    op.counters.written.fetch_add(staged, Relaxed);
                }
                Err(error) if out.n == 0 && out.errors.is_empty() => return Err(error),
                Err(error) => {
                    out.errors.push(WriteError {
                        index: first,
                        error,
                    });
                    out.errors.sort_by_key(|e| e.index);
                    return Ok(out);
                }
            }
            if stop {
                break;
            }
            op.check()?;
        }
        Ok(out)
    }
}

/// A document as it is stored: `_id` first, made if missing; `Timestamp(0, 0)` on the top level
/// becomes the time if `replace_timestamps`. One copy.
///
/// # Errors
/// 10334 BSONObjectTooLarge; 53 InvalidIdField; 52 DollarPrefixedFieldName in `_id`;
/// 2 BadValue for two `_id`s.
pub(crate) fn prepare(doc: Doc<'_>, replace_timestamps: bool) -> Result<Bytes> {
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
        return Ok(Bytes::copy_from_slice(bytes));
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
    Ok(Bytes::from(out))
}

/// A BSON timestamp of now, unlike any other of this process.
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
            // DBRef's own names may stand there.
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
        let moved = prepare(doc! { "a": 2, "_id": 1 }.as_doc(), true).unwrap();
        assert_eq!(moved, d.as_bytes());
        let made = prepare(doc! { "a": 2 }.as_doc(), true).unwrap();
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
    fn empty_timestamps_become_the_time() {
        let d = doc! { "_id": 1, "t": Value::Timestamp { t: 0, i: 0 } };
        let got = prepare(d.as_doc(), true).unwrap();
        assert!(matches!(Doc::new(&got).get("t"), Some(Value::Timestamp { t, .. }) if t > 0));
        assert_eq!(prepare(d.as_doc(), false).unwrap(), d.as_bytes());
    }
}
