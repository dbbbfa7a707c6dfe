//! A table with a few chunks changed: by splits, moves and merges.

use super::block::{Block, MOST, Piece, Total};
use super::build::{add, check_order, damaged, empty_totals};
use super::{Place, RangeTable, Record};
use crate::stamp::Version;
use muniment_value::Result;
use std::sync::Arc;

/// A block that a change leaves with fewer ranges than this is joined with the next one.
const LEAST: usize = MOST / 8;

impl RangeTable {
    /// The table after some chunks have changed. The changes are the chunks as they are now; each replaces
    /// what was in its place. Changes that the table has already are accepted.
    ///
    /// # Errors
    /// 117 ConflictingOperationInProgress, naming the place, if the changes overlap each other, replace only
    /// a part of a range, or are older than what they replace. Then the table has to be built anew from all
    /// chunks.
    pub fn apply(&self, mut changes: Vec<Record>) -> Result<RangeTable> {
        changes.sort_by(|a, b| a.min.cmp(&b.min));
        for c in &changes {
            check_order(&self.key, &c.min, &c.max)?;
            self.check_version(c)?;
        }
        let mut weaver = Weaver::new(self);
        for run in runs(&self.key, &changes)? {
            let (Some(first), Some(last)) = (run.first(), run.last()) else {
                continue;
            };
            weaver.copy_to(self.beginning(&first.min)?);
            weaver.insert(run);
            weaver.at = match last.max == self.key.highest() {
                true => self.end(),
                false => self.beginning(&last.max)?,
            };
        }
        Ok(weaver.finish())
    }

    /// The place of the range that begins exactly at a bound.
    fn beginning(&self, bound: &[u8]) -> Result<Place> {
        let place = self.place(bound);
        match self.low(place) == *bound {
            true => Ok(place),
            false => Err(damaged(format!(
                "a change begins or ends at {}, inside the range from {}, of which the rest is missing",
                self.key.show(bound),
                self.key.show(&self.low(place))
            ))),
        }
    }

    /// Checks that a change is not older than what it replaces.
    fn check_version(&self, change: &Record) -> Result<()> {
        let end = self.place_from(&change.max);
        let mut place = self.place(&change.min);
        while place < end {
            let old = self.range(place);
            let known = old.version == change.version
                && old.min == change.min
                && old.max == change.max
                && self.shard_name(old.shard) == &*change.shard;
            if old.version >= change.version && !known {
                return Err(damaged(format!(
                    "the chunk from {} has version {}, but the table has version {} from {} on",
                    self.key.show(&change.min),
                    change.version,
                    old.version,
                    self.key.show(&old.min)
                )));
            }
            place = self.after(place);
        }
        Ok(())
    }
}

/// Divides sorted changes into runs, in which each ends where the next one begins.
fn runs<'c>(
    key: &crate::key::ShardKey,
    changes: &'c [Record],
) -> Result<impl Iterator<Item = &'c [Record]>> {
    let overlap = changes
        .windows(2)
        .find(|w| matches!(w, [a, b] if a.max > b.min));
    if let Some([a, b]) = overlap {
        return Err(damaged(format!(
            "the chunk from {} overlaps the one from {}",
            key.show(&a.min),
            key.show(&b.min)
        )));
    }
    Ok(changes.chunk_by(|a, b| a.max == b.min))
}

/// Makes a new table from parts of an old one and new ranges.
struct Weaver<'t> {
    old: &'t RangeTable,
    /// The next place of the old table.
    at: Place,
    shards: Vec<Arc<str>>,
    blocks: Vec<Arc<Block>>,
    /// Ranges that are not in a block yet.
    pieces: Vec<Piece>,
    /// The old blocks that the new table has too, ascending.
    kept: Vec<usize>,
    /// The places of the blocks that only the new table has.
    made: Vec<usize>,
}

impl<'t> Weaver<'t> {
    fn new(old: &'t RangeTable) -> Weaver<'t> {
        Weaver {
            old,
            at: Place::default(),
            shards: old.shards.clone(),
            blocks: Vec::with_capacity(old.blocks.len() + 1),
            pieces: Vec::new(),
            kept: Vec::with_capacity(old.blocks.len()),
            made: Vec::new(),
        }
    }

    /// Takes over the old ranges up to a place.
    fn copy_to(&mut self, place: Place) {
        while let Some(block) = self.old.blocks.get(self.at.block) {
            if self.at.at == 0 && self.pieces.len() >= LEAST {
                self.close_blocks();
            }
            if self.at.block >= place.block {
                self.pieces.extend(block.pieces(self.at.at, place.at));
                break;
            }
            if self.at.at == 0 && self.pieces.is_empty() {
                self.kept.push(self.at.block);
                self.blocks.push(block.clone());
            } else {
                self.pieces.extend(block.pieces(self.at.at, block.len()));
            }
            self.at = Place {
                block: self.at.block + 1,
                at: 0,
            };
        }
        self.at = place;
    }

    fn insert(&mut self, run: &[Record]) {
        for r in run {
            let shard = match self.shards.iter().position(|s| *s == r.shard) {
                Some(place) => place,
                None => {
                    self.shards.push(r.shard.clone());
                    self.shards.len() - 1
                }
            };
            self.pieces.push(Piece {
                low: r.min.clone(),
                shard: shard as u32,
                version: r.version,
            });
        }
    }

    /// Makes blocks of about the same size from the pieces.
    fn close_blocks(&mut self) {
        let blocks = self.pieces.len().div_ceil(MOST).max(1);
        let each = self.pieces.len().div_ceil(blocks).max(1);
        for part in self.pieces.chunks(each) {
            self.made.push(self.blocks.len());
            self.blocks.push(Arc::new(Block::new(part)));
        }
        self.pieces.clear();
    }

    fn finish(mut self) -> RangeTable {
        self.copy_to(self.old.end());
        self.close_blocks();
        let totals = self.totals();
        RangeTable::of_blocks(
            self.old.key.clone(),
            self.old.generation,
            self.shards,
            self.blocks,
            totals,
        )
    }

    /// The totals of the new table: those of the old one without the blocks that are gone, and with those
    /// that were made. Only a shard that lost its highest version has to be looked up in all blocks.
    fn totals(&self) -> Vec<Total> {
        let mut gone = empty_totals(self.shards.len());
        let mut kept = self.kept.iter().peekable();
        for (at, block) in self.old.blocks.iter().enumerate() {
            if kept.next_if(|k| **k == at).is_none() {
                block.totals().iter().for_each(|t| add(&mut gone, t));
            }
        }
        let mut made = empty_totals(self.shards.len());
        for block in self.made.iter().filter_map(|at| self.blocks.get(*at)) {
            block.totals().iter().for_each(|t| add(&mut made, t));
        }
        let mut totals = Vec::with_capacity(self.shards.len());
        for (shard, (gone, made)) in gone.iter().zip(&made).enumerate() {
            let old = self.old.totals.get(shard).copied().unwrap_or_default();
            let lost = gone.version == old.version && made.version < old.version;
            totals.push(Total {
                shard: shard as u32,
                ranges: (old.ranges + made.ranges).saturating_sub(gone.ranges),
                version: match lost {
                    true => self.highest(shard as u32),
                    false => old.version.max(made.version),
                },
            });
        }
        totals
    }

    fn highest(&self, shard: u32) -> Version {
        let of = self.blocks.iter().filter_map(|b| b.total(shard));
        of.map(|t| t.version).max().unwrap_or_default()
    }
}
