//! Walks a table as of a timestamp, and gives the newest version at or below it of each key.

use super::block::{Backward, Block, Entry};
use super::frame::{Handle, Kind};
use super::reader::{Table, index_entry};
use crate::Direction;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::Interrupt;
use muniment_value::Result;

/// How many steps a jump takes before it uses the index.
const NEAR: usize = 8;

/// How many blocks are walked between two checks whether to go on: each may have to be read from the disk.
const ASK: u32 = 8;

/// A position in a table. It holds neither the table nor the operation that walks over it: both are passed to
/// every call. After an error, also one of the operation, the position is undefined.
pub(crate) struct TableIter {
    dir: Direction,
    at: Timestamp,
    /// The position: the partition, the entry of its index, and the entry of that block.
    part: usize,
    index: Option<(Block, u64)>,
    slot: usize,
    block: Option<(Block, u64)>,
    /// Walking forward: the offset of the next entry.
    next: usize,
    entry: Entry,
    /// Walking forward: `key` is that of the entry before `next`.
    known: bool,
    /// Walking forward: a version of `key` was already given.
    shown: bool,
    back: Backward,
    key: Vec<u8>,
    value: Option<Bytes>,
    valid: bool,
    /// How many blocks it was at. The operation is asked now and then, since a step may walk over many
    /// versions that the view cannot see.
    blocks: u32,
}

impl TableIter {
    /// An iterator without a position: [`TableIter::seek`] or [`TableIter::rewind`] comes first.
    pub(crate) fn new(at: Timestamp, dir: Direction) -> TableIter {
        TableIter {
            dir,
            at,
            part: 0,
            index: None,
            slot: 0,
            block: None,
            next: 0,
            entry: Entry::default(),
            known: false,
            shown: false,
            back: Backward::default(),
            key: Vec::new(),
            value: None,
            valid: false,
            blocks: 0,
        }
    }

    /// True if it is at a key.
    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.valid
    }

    /// The internal key that it is at.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value at the position; `None` for a deletion.
    #[inline]
    pub(crate) fn value(&self) -> Option<Bytes> {
        match (self.dir, &self.block) {
            (Direction::Forward, Some((block, _))) => block.value(&self.entry),
            _ => self.value.clone(),
        }
    }

    /// Goes to the first key in its direction.
    pub(crate) fn rewind(&mut self, table: &Table, operation: &dyn Interrupt) -> Result<()> {
        match (self.dir, table.low()) {
            (Direction::Forward, Some(low)) => return self.seek(table, operation, low, false),
            (Direction::Forward, None) => self.place(table, operation, 0, 0)?,
            (Direction::Backward, _) => self.go_to_last_block(table, operation)?,
        }
        self.step(table, operation)
    }

    /// Goes to the first key at or past `key` in its direction; with `beyond`, to the first past it.
    pub(crate) fn seek(
        &mut self,
        table: &Table,
        operation: &dyn Interrupt,
        key: &[u8],
        beyond: bool,
    ) -> Result<()> {
        let (key, beyond) = match table.low().filter(|low| key < *low) {
            None => (key, beyond),
            Some(low) if self.dir == Direction::Forward => (low, false),
            // No key remains in that direction.
            Some(_) => {
                self.valid = false;
                self.block = None;
                return Ok(());
            }
        };
        match self.dir {
            Direction::Forward => {
                let before = |k: &[u8]| k < key || beyond && k == key;
                self.find(table, operation, before)?;
                if let Some((block, offset)) = &self.block {
                    self.next = block
                        .start(before)
                        .ok_or_else(|| table.malformed(*offset))?;
                }
                self.step(table, operation)?;
                while self.valid && before(&self.key) {
                    self.step(table, operation)?;
                }
                Ok(())
            }
            Direction::Backward => {
                self.find(table, operation, |k: &[u8]| k < key || !beyond && k == key)?;
                match &self.block {
                    Some((block, offset)) => self
                        .back
                        .go_to(block, key, !beyond)
                        .ok_or_else(|| table.malformed(*offset))?,
                    None => self.go_to_last_block(table, operation)?,
                }
                self.step(table, operation)
            }
        }
    }

    /// As [`TableIter::seek`], but never goes back, and is cheap if the key is near.
    pub(crate) fn skip_to(
        &mut self,
        table: &Table,
        operation: &dyn Interrupt,
        key: &[u8],
    ) -> Result<()> {
        for steps in 0..=NEAR {
            let there = match self.dir {
                Direction::Forward => &self.key[..] >= key,
                Direction::Backward => &self.key[..] <= key,
            };
            if there || !self.valid {
                return Ok(());
            }
            if steps < NEAR {
                self.step(table, operation)?;
            }
        }
        self.seek(table, operation, key, false)
    }

    /// Goes to the next key.
    #[inline]
    pub(crate) fn step(&mut self, table: &Table, operation: &dyn Interrupt) -> Result<()> {
        self.valid = false;
        match self.dir {
            Direction::Forward => self.forward(table, operation),
            Direction::Backward => self.backward(table, operation),
        }
    }

    fn forward(&mut self, table: &Table, operation: &dyn Interrupt) -> Result<()> {
        loop {
            let Some((block, offset)) = &self.block else {
                return Ok(());
            };
            if block.is_end(self.next) {
                self.place(table, operation, self.part, self.slot + 1)?;
                continue;
            }
            let entry = block
                .entry(self.next)
                .filter(|e| e.shared <= self.key.len())
                .ok_or_else(|| table.malformed(*offset))?;
            let suffix = block.suffix(&entry);
            self.next = entry.next;
            let same = match entry.shared {
                0 => self.known && self.key == suffix,
                shared => suffix.is_empty() && shared == self.key.len(),
            };
            if !same {
                self.key.truncate(entry.shared);
                self.key.extend_from_slice(suffix);
                self.known = true;
                self.shown = false;
            }
            if !self.shown && entry.at <= self.at.0 {
                self.entry = entry;
                self.shown = true;
                self.valid = true;
                return Ok(());
            }
        }
    }

    fn backward(&mut self, table: &Table, operation: &dyn Interrupt) -> Result<()> {
        loop {
            let Some((block, offset)) = &self.block else {
                return Ok(());
            };
            let last = self.back.peek(block);
            match last.ok_or_else(|| table.malformed(*offset))? {
                Some((key, _)) if table.is_before(key) => self.block = None,
                Some((key, entry)) => {
                    // Older versions come first, so the last visible one counts.
                    if self.valid && key != self.key {
                        return Ok(());
                    }
                    if entry.at <= self.at.0 {
                        if !self.valid {
                            self.key.clear();
                            self.key.extend_from_slice(key);
                            self.valid = true;
                        }
                        self.value = block.value(&entry);
                    }
                    self.back.pop();
                }
                // Everything before this block is gone.
                None if *offset <= table.start() => self.block = None,
                None if self.slot > 0 => self.place(table, operation, self.part, self.slot - 1)?,
                None if self.part > 0 => self.place(table, operation, self.part - 1, usize::MAX)?,
                None => self.block = None,
            }
        }
    }

    /// Goes to the block with the first entry whose key `before` is false for; nowhere if there is none.
    fn find(
        &mut self,
        table: &Table,
        operation: &dyn Interrupt,
        before: impl Fn(&[u8]) -> bool,
    ) -> Result<()> {
        self.valid = false;
        self.known = false;
        let part = table.find_partition(&before)?;
        self.go_to_partition(table, part)?;
        let mut slot = 0;
        if let Some((index, offset)) = &self.index {
            slot = index
                .partition(before)
                .ok_or_else(|| table.malformed(*offset))?;
        }
        self.place(table, operation, part, slot)
    }

    fn go_to_last_block(&mut self, table: &Table, operation: &dyn Interrupt) -> Result<()> {
        self.place(
            table,
            operation,
            table.top().restarts().saturating_sub(1),
            usize::MAX,
        )
    }

    fn go_to_partition(&mut self, table: &Table, part: usize) -> Result<()> {
        if part != self.part || self.index.is_none() {
            self.index = None;
            if let Some(p) = table.partition(part)? {
                let index = table.block(p.index, Kind::Index)?;
                self.index = Some((index, p.index.offset));
            }
            self.part = part;
        }
        Ok(())
    }

    /// Goes to the edge of a block (forward to its beginning, backward to its end): block `slot` of partition
    /// `part`, or else the first block of the next partition. `usize::MAX` means the last of the partition.
    fn place(
        &mut self,
        table: &Table,
        operation: &dyn Interrupt,
        part: usize,
        slot: usize,
    ) -> Result<()> {
        self.block = None;
        self.blocks += 1;
        if self.blocks.is_multiple_of(ASK) {
            operation.check()?;
        }
        self.go_to_partition(table, part)?;
        self.slot = slot;
        if let Some((index, _)) = &self.index
            && slot >= index.restarts()
        {
            if slot == usize::MAX {
                self.slot = index.restarts() - 1;
            } else {
                self.go_to_partition(table, part + 1)?;
                self.slot = 0;
            }
        }
        let Some((index, offset)) = &self.index else {
            return Ok(());
        };
        let (_, handle): (_, Handle) =
            index_entry(index, self.slot).ok_or_else(|| table.malformed(*offset))?;
        let block = table.block(handle, Kind::Data)?;
        self.next = 0;
        self.back.go_to_end(&block);
        self.block = Some((block, handle.offset));
        Ok(())
    }
}
