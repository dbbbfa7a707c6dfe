//! The size of a collection that is generated when it is read.

use super::read::{Show, Span};
use super::{Generated, Made};
use crate::database::Database;
use crate::operation::OpContext;
use muniment_query::{Interrupt, NeverInterrupted};
use muniment_storage::{Store, Timestamp};
use muniment_value::Result;
use std::sync::Arc;

/// The number of documents in a generated collection, and their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratedFigures {
    /// The number of documents. Those of a small log are counted; for a large one it is an estimate
    /// from 256 places.
    pub count: u64,
    /// Their bytes in the form in which they are shown.
    pub bytes: u64,
    /// The bytes on the disk; 0 for data that is stored with everything else.
    pub stored: u64,
    /// The most bytes that are kept, if older documents are dropped for newer ones.
    pub max: Option<u64>,
}

/// The number of places in the log, some 64 KiB each, that are read to estimate the whole.
const SAMPLE: usize = 256;

/// Implements [`Database::generated_figures`].
pub(crate) fn generated_figures(
    engine: &Database,
    op: &OpContext,
    generated: &Generated,
) -> Result<GeneratedFigures> {
    match &generated.source {
        Made::Table(read) => {
            let (mut count, mut bytes) = (0, 0);
            let asked = op.shared().unwrap_or_else(|| Arc::new(NeverInterrupted));
            for row in read(engine, asked)? {
                op.check()?;
                count += 1;
                bytes += row?.len() as u64;
            }
            Ok(GeneratedFigures {
                count,
                bytes,
                stored: 0,
                max: None,
            })
        }
        Made::Log(shown) => {
            let (count, bytes) = sample(&engine.store, op, shown.now(engine, op))?;
            let (stored, max) = engine.store.log_size()?;
            Ok(GeneratedFigures {
                count,
                bytes,
                stored,
                max: Some(max),
            })
        }
    }
}

/// The number of documents that the log shows, and their bytes.
fn sample(store: &Store, op: &OpContext, show: Show) -> Result<(u64, u64)> {
    let places = store.log_places()?;
    let ends = places.iter().skip(1).copied();
    let blocks = places.iter().copied().zip(ends.chain([Span::ALL.until]));
    let step = places.len().div_ceil(SAMPLE).max(1);
    let (mut count, mut bytes, mut looked_at) = (0_u64, 0_u64, 0_u64);
    for (begin, end) in blocks.step_by(step) {
        op.check()?;
        looked_at += 1;
        let (n, size) = block(store, begin, end, show)?;
        count += n;
        bytes += size;
    }
    let whole = |n: u64| (n as f64 * places.len() as f64 / looked_at.max(1) as f64) as u64;
    Ok(match step {
        1 => (count, bytes),
        _ => (whole(count), whole(bytes)),
    })
}

/// The same for the entries after `begin` and up to `end`. Zero if they have been dropped
/// meanwhile.
fn block(store: &Store, begin: Timestamp, end: Timestamp, show: Show) -> Result<(u64, u64)> {
    if begin < store.log_begins_after()? {
        return Ok((0, 0));
    }
    let mut entries = store.log_entries(begin)?;
    let (mut count, mut bytes) = (0, 0);
    while entries.position() < end {
        match entries.next()? {
            Some(entry) if entry.at <= end => {
                let all = show.documents(&entry);
                count += all.len() as u64;
                bytes += all.iter().map(|d| d.len() as u64).sum::<u64>();
            }
            _ => break,
        }
    }
    Ok((count, bytes))
}
