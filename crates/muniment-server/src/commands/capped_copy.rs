//! Copies of a collection into a new capped one: cloneCollectionAsCapped and convertToCapped.

use crate::context::CommandContext;
use muniment_exec::{FindRequest, InsertOptions};
use muniment_storage::CollectionOptions;
use muniment_value::{Code, Doc, Error, Result, Value, number};

/// The greatest size of a capped collection, in bytes.
const MAX_SIZE: i64 = 1 << 50;
/// Capped sizes are rounded up to a multiple of this, in bytes.
const STEP: u64 = 256;
/// Documents written at a time, at most.
const BATCH: usize = 1000;
/// A batch that has this many bytes gets no further document.
const BATCH_BYTES: usize = 4 << 20;

/// The `size` of the new collection.
///
/// # Errors
/// 72 InvalidOptions unless it is a number above 0, 2 BadValue above 2^50.
pub(super) fn size(v: Option<Value<'_>>) -> Result<u64> {
    let n = v.and_then(number::to_i64_clamped).unwrap_or(0);
    if n <= 0 {
        return Err(Error::new(
            Code::InvalidOptions,
            "Capped collection size must be greater than zero",
        ));
    }
    if n > MAX_SIZE {
        return Err(Error::bad_value(
            "Capped collection size must be less than or equal to 2^50",
        ));
    }
    Ok((n as u64).div_ceil(STEP) * STEP)
}

/// Creates `to`, capped at `size` bytes, with the options of `from`, and copies the documents of `from` in
/// their natural order. If not all of them fit, the oldest are dropped. Removes `to` again if the copy fails.
///
/// # Errors
/// 26 NamespaceNotFound, 48 NamespaceExists; interrupts and I/O errors.
pub(super) fn copy(cx: &CommandContext<'_>, from: &str, to: &str, size: u64) -> Result<()> {
    let Some(source) = cx.engine().store.collection(from) else {
        return Err(Error::new(
            Code::NamespaceNotFound,
            format!("source collection {from} does not exist"),
        ));
    };
    let given = source.options();
    let mut options = CollectionOptions {
        capped_size: Some(size),
        capped_max: given.capped_max,
        ..CollectionOptions::default()
    };
    options.document.append("capped", true);
    options.document.append("size", number::narrow(size as i64));
    for e in given.document.as_doc() {
        // A capped collection is always in the order of insertion, so it cannot be clustered.
        if !matches!(e.name(), "capped" | "size" | "clusteredIndex") {
            options.document.append_elem(e);
        }
    }
    let made = cx.engine().create_collection(to, options, cx.op)?;
    let copied = copy_documents(cx, from, to, made.uuid());
    if copied.is_err() {
        cx.engine().store.discard_collection(to);
    }
    copied
}

fn copy_documents(cx: &CommandContext<'_>, from: &str, to: &str, made: [u8; 16]) -> Result<()> {
    let engine = cx.engine();
    let mut cursor = engine.find(cx.op, &FindRequest::new(from))?;
    loop {
        let (mut batch, mut bytes) = (Vec::with_capacity(BATCH), 0);
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            let Some(d) = cursor.next_doc(cx.op)? else {
                break;
            };
            bytes += d.len();
            batch.push(d);
        }
        if batch.is_empty() {
            return Ok(());
        }
        let done = engine.insert_many(
            cx.op,
            to,
            &|| Box::new(batch.iter().map(|d| Doc::new(d))),
            InsertOptions {
                bypass_document_validation: true,
                bypass_empty_ts_replacement: true,
                only: Some(made),
                ..InsertOptions::default()
            },
        )?;
        if let Some(e) = done.errors.into_iter().next() {
            return Err(e.error);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn sizes() {
        let code = |v| size(v).map_or_else(|e| e.code().0, |n| n as i32);
        assert_eq!(code(Some(Value::Int32(1))), 256);
        assert_eq!(code(Some(Value::Double(4096.9))), 4096);
        for v in [
            None,
            Some(Value::Int32(0)),
            Some(Value::Double(0.9)),
            Some(Value::Double(f64::NAN)),
            Some(Value::String("4096")),
        ] {
            assert_eq!(code(v), 72);
        }
        assert_eq!(code(Some(Value::Double(f64::INFINITY))), 2);
        assert_eq!(code(Some(Value::Int64(MAX_SIZE + 1))), 2);
    }
}
