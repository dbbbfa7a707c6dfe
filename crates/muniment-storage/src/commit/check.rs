//! The check that every record passes before it is appended. It is read by the functions with which
//! recovery and other members will read it: a record that these refuse would close a collection on all
//! of them, or keep a server from starting.
//!
//! Catalog entries, entries of index builds, entries of sessions and notes are read whole. A change of
//! documents is read up to the documents: these passed `validate` when they came, or were computed
//! within its limits, and applying them looks at nothing but their bytes. That a difference of fields
//! leads from one document to the other follows from how it is made (`query::update::diff`, with its
//! property tests); a build for tests checks each one (`unit::stage_update`).

use super::ops::{self, Op, Reader};
use crate::catalog::{Catalog, Entry};
use crate::multikey::Arrays;
use crate::session_key::SessionKey;
use crate::sessions::SessionRecord;
use crate::transaction::{Outcome, Row, TransactionId};
use muniment_op::Interrupt;
use muniment_value::{Error, MAX_MESSAGE_DEPTH, Result, validate_depth};
use std::ops::Range;

/// Whether a record can be applied.
///
/// # Errors
/// Why not; what stops `operation` while definitions are parsed.
pub(super) fn check_record(
    catalog: &Catalog,
    payload: &[u8],
    operation: &dyn Interrupt,
) -> Result<()> {
    let ops = Reader::new(payload).ok_or_else(|| refused(0, "its format"))?;
    check_operations(catalog, ops, payload, operation)
}

/// The same for operations, which start at an offset of `payload`.
///
/// # Errors
/// As [`check_record`].
pub(super) fn check_operations(
    catalog: &Catalog,
    mut ops: Reader<'_>,
    payload: &[u8],
    operation: &dyn Interrupt,
) -> Result<()> {
    let part = |range: &Range<usize>| payload.get(range.clone()).unwrap_or_default();
    while let Some(op) = ops.next().map_err(|at| refused(at, "an operation"))? {
        let is = |is: bool, at: usize, what: &str| match is {
            true => Ok(()),
            false => Err(refused(at, what)),
        };
        match op {
            Op::Insert { doc, .. } | Op::Replace { doc, .. } => {
                is(is_document(part(&doc)), doc.start, "a document")?;
            }
            Op::Diff { diff, .. } => {
                is(is_document(part(&diff)), diff.start, "a difference")?;
            }
            Op::Image { doc } => is(is_document(part(&doc)), doc.start, "an image")?,
            Op::Key { doc } => is(is_document(part(&doc)), doc.start, "a key")?,
            Op::Delete { .. } | Op::Config { .. } => {}
            Op::Note { doc } => {
                // A note may hold options that are nested deeper in it than in the catalog.
                validate_depth(part(&doc), MAX_MESSAGE_DEPTH).map_err(|e| e.context("a note: "))?;
            }
            Op::Collection { id, entry, .. } => {
                let (stored, held) = (part(&entry), catalog.read().by_id(id));
                let read = Entry::read(stored, id, operation);
                read.check_new(stored, held.as_deref(), operation)
                    .map_err(|e| {
                        let what = format!("the catalog entry of {}: ", read.namespace);
                        e.context(&what)
                    })?;
            }
            Op::Drop { id } => {
                let there = catalog.read().by_id(id).is_some();
                is(there, 0, "a drop of what is not there")?;
            }
            Op::Entries {
                entries, arrays, ..
            } => {
                let at = entries.start;
                is(ops::pairs(payload, entries).is_some(), at, "entries")?;
                let read = Arrays::from_bytes(part(&arrays)).is_some();
                is(read, arrays.start, "the arrays of entries")?;
            }
            Op::Prepare { key, row } => {
                let read = TransactionId::from_bytes(part(&key)).is_some();
                is(read, key.start, "the name of a prepared transaction")?;
                check_prepared(catalog, part(&row), row.start, operation)?;
            }
            Op::Resolve { key, outcome } => {
                let read = TransactionId::from_bytes(part(&key)).is_some()
                    && Outcome::from_bytes(part(&outcome)).is_some();
                is(read, key.start, "the end of a prepared transaction")?;
            }
            Op::Session { key, added } => {
                let read = SessionKey::from_bytes(part(&key)).is_some();
                is(read, key.start, "a session's key")?;
                let read = added.is_empty() || SessionRecord::is_readable(part(&added));
                is(read, added.start, "what a session has done")?;
            }
        }
    }
    Ok(())
}

/// Whether the row of a prepared transaction can be applied later. Resolving will read the operations as it
/// would read those of any record. `at` is the row's offset in its record.
///
/// # Errors
/// As [`check_record`].
fn check_prepared(
    catalog: &Catalog,
    row: &[u8],
    at: usize,
    operation: &dyn Interrupt,
) -> Result<()> {
    let row = Row::decode(row).ok_or_else(|| refused(at, "a prepared transaction"))?;
    let ops = Reader::at(row.operations, 0);
    check_operations(catalog, ops, row.operations, operation)?;
    let known = |id: &u32| catalog.read().by_id(*id).is_some();
    match row.collections().iter().all(known) {
        true => Ok(()),
        false => Err(refused(at, "a collection of a prepared transaction")),
    }
}

/// The error 1 InternalError: the code that made the record has made it wrong.
#[cold]
fn refused(at: usize, what: &str) -> Error {
    Error::internal(format!(
        "the write was refused, and nothing of it is stored: {what} at byte {at} of its record could \
         not be applied by a start or by another member"
    ))
}

/// True if the length at the start of these bytes says that they are one document.
fn is_document(bytes: &[u8]) -> bool {
    let len = bytes.first_chunk().map(|n| i32::from_le_bytes(*n));
    bytes.len() >= 5
        && bytes.last() == Some(&0)
        && len.and_then(|n| usize::try_from(n).ok()) == Some(bytes.len())
}
