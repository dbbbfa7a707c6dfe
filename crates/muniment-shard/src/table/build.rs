//! Building a table from all chunks of a collection.

use super::block::{Block, MOST, Piece, Total};
use super::lows::Lows;
use super::{Generation, RangeTable, Record};
use crate::key::ShardKey;
use crate::stamp::Version;
use muniment_value::{Code, Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Builds a table from chunks in ascending order, such as a cursor over `config.chunks` sorted by `min` gives.
#[derive(Debug)]
pub struct Builder {
    key: Arc<ShardKey>,
    generation: Generation,
    shards: Vec<Arc<str>>,
    places: HashMap<Arc<str>, u32>,
    blocks: Vec<Arc<Block>>,
    pieces: Vec<Piece>,
    /// Where the next chunk has to begin.
    next: Vec<u8>,
}

impl RangeTable {
    /// A table of chunks in any order.
    ///
    /// # Errors
    /// Those of [`Builder::push`] and [`Builder::finish`].
    pub fn build(
        key: Arc<ShardKey>,
        generation: Generation,
        mut records: Vec<Record>,
    ) -> Result<RangeTable> {
        records.sort_by(|a, b| a.min.cmp(&b.min));
        let mut builder = Builder::new(key, generation);
        for r in &records {
            builder.push(&r.min, &r.max, &r.shard, r.version)?;
        }
        builder.finish()
    }

    /// The table of these blocks, whose totals are known.
    pub(super) fn of_blocks(
        key: Arc<ShardKey>,
        generation: Generation,
        shards: Vec<Arc<str>>,
        blocks: Vec<Arc<Block>>,
        totals: Vec<Total>,
    ) -> RangeTable {
        let firsts: Vec<Vec<u8>> = blocks.iter().map(|b| b.low(0)).collect();
        RangeTable {
            key,
            generation,
            shards,
            len: totals.iter().map(|t| t.ranges).sum(),
            blocks,
            firsts: Lows::of(firsts.iter().map(Vec::as_slice)),
            totals,
        }
    }
}

impl Builder {
    /// A builder without chunks.
    pub fn new(key: Arc<ShardKey>, generation: Generation) -> Builder {
        Builder {
            next: key.lowest(),
            key,
            generation,
            shards: Vec::new(),
            places: HashMap::new(),
            blocks: Vec::new(),
            pieces: Vec::with_capacity(MOST),
        }
    }

    /// Adds the next chunk.
    ///
    /// # Errors
    /// 117 ConflictingOperationInProgress, naming the place, if the chunk does not begin where the one before
    /// ended (the first: at the lowest bound), or does not end above its beginning. So chunks that were read
    /// while they changed are told from a whole collection's.
    pub fn push(&mut self, min: &[u8], max: &[u8], shard: &str, version: Version) -> Result<()> {
        if *min != *self.next {
            let what = if *min > *self.next { "gap" } else { "overlap" };
            let (next, min) = (self.key.show(&self.next), self.key.show(min));
            return Err(damaged(format!(
                "there is {what} where the next chunk has to begin at {next}: the chunk found there begins \
                 at {min}"
            )));
        }
        check_order(&self.key, min, max)?;
        let shard = match self.places.get(shard) {
            Some(place) => *place,
            None => {
                let place = self.shards.len() as u32;
                let name: Arc<str> = shard.into();
                self.shards.push(name.clone());
                self.places.insert(name, place);
                place
            }
        };
        self.pieces.push(Piece {
            low: std::mem::replace(&mut self.next, max.to_vec()),
            shard,
            version,
        });
        if self.pieces.len() == MOST {
            self.close_block();
        }
        Ok(())
    }

    /// The table.
    ///
    /// # Errors
    /// 117 ConflictingOperationInProgress if the last chunk does not end at the highest bound.
    pub fn finish(mut self) -> Result<RangeTable> {
        if self.next != self.key.highest() {
            let next = self.key.show(&self.next);
            return Err(damaged(format!("there is no chunk from {next} on")));
        }
        self.close_block();
        let mut totals = empty_totals(self.shards.len());
        for t in self.blocks.iter().flat_map(|b| b.totals()) {
            add(&mut totals, t);
        }
        Ok(RangeTable::of_blocks(
            self.key,
            self.generation,
            self.shards,
            self.blocks,
            totals,
        ))
    }

    fn close_block(&mut self) {
        if !self.pieces.is_empty() {
            self.blocks.push(Arc::new(Block::new(&self.pieces)));
            self.pieces.clear();
        }
    }
}

/// The totals of so many shards that have no ranges.
pub(super) fn empty_totals(shards: usize) -> Vec<Total> {
    let empty = |shard| Total {
        shard,
        ..Total::default()
    };
    (0..shards as u32).map(empty).collect()
}

/// Adds a block's part to the totals of the table.
pub(super) fn add(totals: &mut [Total], part: &Total) {
    if let Some(total) = totals.get_mut(part.shard as usize) {
        total.ranges += part.ranges;
        total.version = total.version.max(part.version);
    }
}

/// Checks that a chunk ends above its beginning.
pub(super) fn check_order(key: &ShardKey, min: &[u8], max: &[u8]) -> Result<()> {
    if min < max {
        return Ok(());
    }
    Err(damaged(format!(
        "the chunk from {} ends at {}, which is not above",
        key.show(min),
        key.show(max)
    )))
}

#[cold]
pub(super) fn damaged(what: String) -> Error {
    Error::new(
        Code::ConflictingOperationInProgress,
        format!("The chunks of a collection do not fit together: {what}"),
    )
}
