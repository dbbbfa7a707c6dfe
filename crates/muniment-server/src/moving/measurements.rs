//! Measurements of a time series that arrive from another shard.
//!
//! No `_id` tells them apart, but the record key does: it was made once, on the shard that took the measurement, and
//! goes with it wherever it moves. So a step that is repeated finds what it wrote before.

use super::RECORD_KEYS;
use super::figures::Figures;
use super::stage::stage;
use muniment_exec::OpContext;
use muniment_storage::{Busy, Staged, WriteUnit};
use muniment_value::{Code, Doc, Error, Result, Value};

/// Deletes the measurements of a donor's reply that are gone, and writes the others; `open` opens a unit.
///
/// # Errors
/// 11000 DuplicateKey if this shard owns another measurement with the same record key; those of writing.
pub fn write<'s>(
    open: impl Fn() -> Result<WriteUnit<'s>>,
    op: &OpContext,
    reply: Doc<'_>,
    figures: &Figures,
) -> Result<()> {
    let list = |name: &str| reply.get_array(name).unwrap_or(Doc::EMPTY).values();
    let mut unit = open()?;
    for name in list("gone") {
        let record_key = bytes_of(name)?;
        (unit, ()) = stage(unit, &open, op, |unit| take(unit, record_key))?;
    }
    let mut keys = list(RECORD_KEYS);
    for doc in list("docs").filter_map(|v| v.as_doc()) {
        let record_key = bytes_of(keys.next().unwrap_or(Value::Null))?;
        let put = |unit: &mut WriteUnit<'s>| unit.put_measurement(record_key, doc.as_bytes());
        (unit, ()) = stage(unit, &open, op, put).map_err(|e| match e.code() {
            Code::StaleConfig => both_have(doc),
            _ => e,
        })?;
        figures.written.add(doc.byte_len());
    }
    unit.commit().map(drop)
}

/// Stages the deletion of a measurement that has left the range, if it is here as a foreign row.
fn take(unit: &mut WriteUnit<'_>, record_key: &[u8]) -> Staged<()> {
    let there = match unit.lock(record_key)? {
        Err(Busy) => return Ok(Err(Busy)),
        Ok(there) => there,
    };
    let Some(old) = there else {
        return Ok(Ok(()));
    };
    match unit.delete(record_key, &old) {
        // It lies in a range that this shard owns.
        Err(e) if e.code() == Code::StaleConfig => Ok(Ok(())),
        other => other,
    }
}

fn bytes_of(name: Value<'_>) -> Result<&[u8]> {
    match name {
        Value::Binary { bytes, .. } => Ok(bytes),
        _ => Err(Error::failed_to_parse(
            "the donor has told of a measurement without its record key",
        )),
    }
}

#[cold]
fn both_have(doc: Doc<'_>) -> Error {
    let why = format!(
        "the measurement {} is on both shards, so its range cannot be moved",
        doc.to_display()
    );
    Error::new(Code::DuplicateKey, why)
}
