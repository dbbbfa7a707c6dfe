//! A cursor over the memtable. It reads several rows ahead, more each time, and holds no lock between two
//! calls.

use crate::memtable::MemTable;
use crate::trees::{Cursor, Direction, Range, TreeId};
use bytes::{BufMut, Bytes, BytesMut};
use muniment_io::Timestamp;
use muniment_op::Interrupt;
use muniment_value::Result;
use std::sync::Arc;

/// The rows of the first read. Each further one reads four times as many, up to `MOST`.
const FIRST: usize = 8;
const MOST: usize = 512;

pub(super) struct MemoryCursor {
    table: Arc<MemTable>,
    tree: TreeId,
    /// The part of the range that has not been read yet.
    range: Range,
    at: Timestamp,
    dir: Direction,
    /// The rows that were read ahead, in the cursor's order. Those from `place` on have not been returned
    /// yet.
    rows: Vec<(Bytes, Option<Bytes>)>,
    place: usize,
    /// Set if there are no rows after `rows`.
    last: bool,
    ahead: usize,
}

impl MemoryCursor {
    pub(super) fn new(
        table: Arc<MemTable>,
        tree: TreeId,
        range: Range,
        at: Timestamp,
        dir: Direction,
    ) -> MemoryCursor {
        MemoryCursor {
            table,
            tree,
            range,
            at,
            dir,
            rows: Vec::new(),
            place: 0,
            last: false,
            ahead: FIRST,
        }
    }

    /// Reads the next rows. All of `rows` must have been returned.
    fn read(&mut self) {
        let after = self.rows.pop().map(|(key, _)| key);
        self.rows.clear();
        self.place = 0;
        self.last = !self.table.read(
            self.tree,
            &self.range,
            after.as_deref(),
            self.at,
            self.dir,
            self.ahead,
            &mut self.rows,
        );
        self.ahead = (self.ahead * 4).min(MOST);
    }
}

impl Cursor for MemoryCursor {
    fn next(&mut self, operation: &dyn Interrupt) -> Result<Option<(Bytes, Bytes)>> {
        loop {
            while let Some((key, value)) = self.rows.get_mut(self.place) {
                self.place += 1;
                if let Some(value) = value.take() {
                    return Ok(Some((key.clone(), value)));
                }
            }
            if self.last {
                return Ok(None);
            }
            operation.check()?;
            self.read();
        }
    }

    fn seek(&mut self, key: &[u8]) {
        let before = |row: &Bytes| match self.dir {
            Direction::Forward => row[..] < *key,
            Direction::Backward => row[..] > *key,
        };
        let rest = self.rows.get(self.place..).unwrap_or_default();
        // Most jumps are short, so the nearest rows are tried first.
        self.place += match rest.iter().take(4).position(|(row, _)| !before(row)) {
            Some(near) => near,
            None => rest.partition_point(|(row, _)| before(row)),
        };
        if self.place < self.rows.len() || self.last {
            return;
        }
        // The target is beyond the rows that were read ahead, so the rest of the range begins at the key. The
        // range never grows, so no row that was passed comes again.
        if self.rows.last().is_some_and(|(row, _)| !before(row)) {
            return;
        }
        match self.dir {
            Direction::Forward if *key > self.range.low[..] => {
                self.range.low = Bytes::copy_from_slice(key);
            }
            Direction::Backward if self.range.high.as_ref().is_none_or(|h| *key < h[..]) => {
                // This is the first key above `key`.
                let mut above = BytesMut::with_capacity(key.len() + 1);
                above.put_slice(key);
                above.put_u8(0);
                self.range.high = Some(above.freeze());
            }
            _ => return,
        }
        self.rows.clear();
        self.place = 0;
        self.ahead = FIRST;
    }
}
