//! Inserts of buckets, as mongorestore sends them to `system.buckets.NAME`. Each bucket is taken
//! apart, and all of its measurements are stored or none.

use super::TimeSeries;
use super::render::is_rendered;
use super::unpack::unpack;
use crate::database::Database;
use crate::operation::{OpContext, Statements};
use crate::verbs::write::BulkOutcome;
use crate::verbs::write::document::prepare;
use muniment_query::Interrupt;
use muniment_storage::{Busy, Collection, CommitId, NewBucket, Timestamp};
use muniment_value::{Code, Doc, Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Inserts buckets. The numbers in the outcome count buckets.
///
/// # Errors
/// Those of [`Database::insert_many`].
pub(crate) fn insert_buckets<'d>(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    namespace: &str,
    buckets: &mut dyn Iterator<Item = Doc<'d>>,
    ordered: bool,
) -> Result<BulkOutcome> {
    let mut out = BulkOutcome::default();
    for (index, bucket) in buckets.enumerate() {
        if op.retry().is_some_and(|r| r.executed(index).is_some()) {
            out.n += 1;
            continue;
        }
        let stored = op
            .check()
            .and_then(|()| insert_bucket(engine, op, collection, namespace, (index, bucket)));
        match stored {
            Ok((commit, measurements)) => {
                out.n += 1;
                out.commit = out.commit.max(commit);
                op.counters.written.fetch_add(measurements, Relaxed);
            }
            Err(error) if out.n == 0 && out.errors.is_empty() && ends(&error) => {
                return Err(error);
            }
            Err(error) => {
                let end = ordered || ends(&error);
                out.fail(index, &error);
                if end {
                    break;
                }
            }
        }
    }
    Ok(out)
}

fn insert_bucket(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: &Arc<Collection>,
    namespace: &str,
    (index, bucket): (usize, Doc<'_>),
) -> Result<(Option<CommitId>, u64)> {
    let series = TimeSeries::of(collection)
        .ok_or_else(|| Error::internal("buckets of what is no time series"))?;
    if bucket.byte_len() > MAX_DOCUMENT {
        return Err(Error::new(
            Code::BSONObjectTooLarge,
            format!(
                "object to insert too large. size in bytes: {}, max size: {MAX_DOCUMENT}",
                bucket.byte_len()
            ),
        ));
    }
    let unpacked = unpack(bucket, &series, op.work())?;
    for m in &unpacked.measurements {
        // Unpacking has put `_id` first and made missing ones, so nothing is changed here, only
        // checked.
        prepare(Doc::new(m), false)?;
    }
    let first = unpacked.measurements.first();
    let new = NewBucket {
        id: unpacked.id,
        namespace,
        measurements: &unpacked.measurements,
        rendered: first.is_some_and(|m| is_rendered(&series, unpacked.id, Doc::new(m))),
    };
    loop {
        // Each bucket has a write unit of its own. If it cannot be stored, dropping the unit also
        // drops what was staged of it.
        let mut unit = engine.store.write_unit(collection, &**op)?;
        // The series may be about to be divided since its name was looked up.
        op.check_seen(collection, Timestamp::MAX)?;
        match unit.insert_bucket(&new)? {
            Ok(()) => {
                let done = || vec![Statements::inserted(index..index + 1)];
                let remembered = op.retry().map(|r| (r, r.stage(&mut unit, done())));
                let commit = op.announcer.commit(|by| unit.commit_announced_by(by))?;
                if let Some(((retry, change), commit)) = remembered.zip(commit) {
                    retry.stored(change, commit);
                }
                return Ok((commit, unpacked.measurements.len() as u64));
            }
            Err(Busy) => drop(unit),
        }
        op.check()?;
    }
}

/// The largest bucket that is accepted, in bytes.
const MAX_DOCUMENT: usize = 16 << 20;

/// True for an error that concerns the whole command.
fn ends(e: &Error) -> bool {
    e.fails_command() || matches!(e.code(), Code::NamespaceNotFound | Code::OutOfDiskSpace)
}
