//! What is done of statements for all documents that match, while ranges may move.
//!
//! Each shard does such a statement for the ranges that it owns, and none of them comes or goes meanwhile. If another
//! shard knows the collection otherwise, the statement is sent again, for the ranges that are not done.

use crate::placement::within;
use crate::router::tables::Known;
use muniment_op::{Mistake, makes};
use muniment_storage::{Owned, join_ranges, ranges_without};
use muniment_value::{Code, DocBuf, Error, Result};
use std::collections::BTreeMap;

/// The ranges for which statements are done, by the places of these in the command.
#[derive(Default)]
pub struct DoneRanges(BTreeMap<usize, Done>);

/// The ranges of one statement, and the UUID of the collection that has them: those of another key say nothing.
#[derive(Default)]
struct Done {
    of: [u8; 16],
    ranges: Vec<Owned>,
}

/// What is left for a shard.
pub enum Left {
    /// All that it owns.
    All,
    /// These ranges.
    Only(Vec<Owned>),
    /// Nothing.
    Nothing,
}

impl DoneRanges {
    /// Whether something is done of a statement.
    pub fn any(&self, place: usize) -> bool {
        self.0.contains_key(&place)
    }

    /// What a shard is still to do of a statement.
    ///
    /// # Errors
    /// 175 QueryPlanKilled if the collection was divided by another key since a part was done; 2 BadValue for a table whose
    /// ranges overlap, which there is not.
    pub fn left(&self, place: usize, known: &Known, shard: usize) -> Result<Left> {
        let Some(done) = self.0.get(&place) else {
            return Ok(Left::All);
        };
        if done.of != known.collection.generation.uuid {
            let ns = known.ns();
            let why = format!(
                "{ns} was divided by another key after some of the documents were written to"
            );
            return Err(Error::new(Code::QueryPlanKilled, why));
        }
        let left = ranges_without(&owned_by(known, shard)?, &done.ranges);
        Ok(match left.is_empty() {
            true => Left::Nothing,
            false => Left::Only(left),
        })
    }

    /// A shard has done its part.
    ///
    /// # Errors
    /// As [`DoneRanges::left`].
    pub fn did(&mut self, place: usize, known: &Known, shard: usize) -> Result<()> {
        let done = self.0.entry(place).or_default();
        let did = match makes(Mistake::NotAccounted) {
            true => vec![(Vec::new(), None)],
            false => owned_by(known, shard)?,
        };
        done.of = known.collection.generation.uuid;
        let new = ranges_without(&did, &done.ranges);
        done.ranges.extend(new);
        done.ranges = join_ranges(std::mem::take(&mut done.ranges))?;
        Ok(())
    }
}

impl Left {
    /// The field `shardVersion` for what is left; `None` if nothing is.
    pub fn limits(&self, versions: DocBuf, ns: &str) -> Option<DocBuf> {
        match self {
            Left::All => Some(versions),
            Left::Only(ranges) => Some(within(versions, ns, ranges)),
            Left::Nothing => None,
        }
    }
}

fn owned_by(known: &Known, shard: usize) -> Result<Vec<Owned>> {
    let highest = known.key.highest();
    let ranges = known.table.ranges().filter(|r| r.shard == shard);
    join_ranges(
        ranges
            .map(|r| (r.min, (r.max != highest).then_some(r.max)))
            .collect(),
    )
}
