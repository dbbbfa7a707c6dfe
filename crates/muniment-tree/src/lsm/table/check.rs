//! Reads a whole table and reports what is damaged.

use super::block::Block;
use super::filter;
use super::footer::{Counts, LEN};
use super::frame::{Handle, Kind};
use super::reader::{Partition, Table, index_entry};
use super::tree_of;
use crate::trees::TreeId;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::Interrupt;
use muniment_value::Result;
use std::fmt::Display;

/// The state of a walk through a table.
struct Walk<'a> {
    table: &'a Table,
    /// The trees to check; `None`: all.
    trees: Option<&'a [TreeId]>,
    interrupt: &'a dyn Interrupt,
    found: &'a mut Vec<String>,
    /// The offset at which the next block must begin.
    expected: u64,
    key: Vec<u8>,
    at: u64,
    /// The last separator. Every key from here on is above it, except for further versions of the same key.
    separator: Vec<u8>,
    total: Counts,
    oldest: u64,
    newest: u64,
    /// A part could not be read or was skipped, so the sums cannot be compared.
    holes: bool,
}

impl Table {
    /// Appends every damaged place of these trees (`None`: of all trees): file, offset, and what is wrong.
    ///
    /// # Errors
    /// Those of `interrupt`.
    pub(crate) fn check(
        &self,
        trees: Option<&[TreeId]>,
        interrupt: &dyn Interrupt,
        found: &mut Vec<String>,
    ) -> Result<()> {
        let is_here = |t: &TreeId| self.properties().tree(*t).is_some();
        if trees.is_some_and(|trees| !trees.iter().any(is_here)) {
            return Ok(());
        }
        let mut walk = Walk {
            table: self,
            trees,
            interrupt,
            found,
            expected: 0,
            key: Vec::new(),
            at: 0,
            separator: Vec::new(),
            total: Counts::default(),
            oldest: u64::MAX,
            newest: 0,
            holes: false,
        };
        let mut part = 0;
        loop {
            match self.partition(part) {
                Ok(Some(partition)) => match self.last_of(part) {
                    Some(last) if !walk.concerns(last) => {
                        walk.go_behind(partition);
                        walk.separator = last.to_vec();
                    }
                    _ => walk.partition(partition)?,
                },
                Ok(None) => break,
                Err(e) => {
                    walk.fail(e);
                    break;
                }
            }
            part += 1;
        }
        walk.end();
        self.check_tail(found);
        Ok(())
    }

    /// Checks the blocks after the partitions. They were valid when the table was opened, but may be damaged
    /// now.
    fn check_tail(&self, found: &mut Vec<String>) {
        let mut tail = vec![0; (self.size() - self.end()) as usize];
        let read = self.file().read_exact_at(&mut tail, self.end());
        let same = read.is_ok() && self.tail_crc() == crc32c::crc32c(&tail);
        if !same {
            let (path, end) = (self.path().display(), self.end());
            found.push(format!(
                "{path} is damaged at offset {end}: top index, properties or the last {LEN} bytes \
                 are not what they were"
            ));
        }
    }
}

impl Walk<'_> {
    fn fail(&mut self, what: impl Display) {
        self.holes = true;
        self.found.push(what.to_string());
    }

    fn bad(&mut self, offset: u64, what: &str) {
        let path = self.table.path().display();
        self.fail(format!("{path} is damaged at offset {offset}: {what}"));
    }

    fn at(&mut self, handle: Handle) {
        if handle.offset != self.expected {
            self.bad(handle.offset, "blocks do not follow each other");
        }
        self.expected = handle.end();
    }

    /// Whether the keys between the last separator and this one may have something of the trees, and still
    /// exist.
    fn concerns(&self, separator: &[u8]) -> bool {
        let from = tree_of(&self.separator);
        let to = tree_of(separator);
        let between = |t: &TreeId| (from..=to).contains(t);
        !self.table.is_before(separator) && self.trees.is_none_or(|trees| trees.iter().any(between))
    }

    /// Continues after a partition that could not be read.
    fn go_behind(&mut self, partition: Partition) {
        self.holes = true;
        self.expected = partition.index.end();
    }

    fn partition(&mut self, partition: Partition) -> Result<()> {
        let index = self.table.read(partition.index, Kind::Index);
        let filter = self.table.read(partition.filter, Kind::Filter);
        let filter: Bytes = filter.unwrap_or_else(|e| {
            self.fail(e);
            Bytes::new()
        });
        let index = match index {
            Ok(raw) => Block::new(raw),
            Err(e) => {
                self.fail(e);
                // Without its index, the end of its data blocks is not known.
                self.go_behind(partition);
                return Ok(());
            }
        };
        let Some(index) = index else {
            self.bad(partition.index.offset, "the index is malformed");
            return Ok(());
        };
        for slot in 0..index.restarts() {
            match index_entry(&index, slot) {
                Some((separator, handle)) => {
                    self.interrupt.check()?;
                    let separator = separator.to_vec();
                    match self.concerns(&separator) {
                        true => self.block(handle, &separator, &filter),
                        false => {
                            self.holes = true;
                            self.at(handle);
                        }
                    }
                    self.separator = separator;
                }
                None => self.bad(partition.index.offset, "the index is malformed"),
            }
        }
        self.at(partition.filter);
        self.at(partition.index);
        Ok(())
    }

    fn block(&mut self, handle: Handle, separator: &[u8], filter: &[u8]) {
        self.at(handle);
        let raw = match self.table.read(handle, Kind::Data) {
            Ok(raw) => raw,
            Err(e) => return self.fail(e),
        };
        let Some(block) = Block::new(raw) else {
            return self.bad(handle.offset, "the block is malformed");
        };
        let mut offset = 0;
        let mut key: Vec<u8> = Vec::new();
        while !block.is_end(offset) {
            let Some(entry) = block.entry(offset).filter(|e| e.shared <= key.len()) else {
                return self.bad(handle.offset, "an entry is malformed");
            };
            key.truncate(entry.shared);
            key.extend_from_slice(block.suffix(&entry));
            offset = entry.next;
            let first = self.total.entries == 0;
            let same = !first && self.key == key;
            let rises = first || self.key < key || same && entry.at < self.at;
            if !rises && !self.holes {
                return self.bad(handle.offset, "entries are not in order");
            }
            if key[..] > *separator || key < self.separator {
                return self.bad(handle.offset, "the index leads to other keys");
            }
            if !filter.is_empty() && !filter::may_contain(filter, filter::hash(&key)) {
                return self.bad(handle.offset, "the filter does not know a key");
            }
            self.total.entries += 1;
            self.total.tombstones += u64::from(entry.deleted);
            self.total.superseded += u64::from(same);
            self.oldest = self.oldest.min(entry.at);
            self.newest = self.newest.max(entry.at);
            let known = self.table.whole().tree(tree_of(&key)).is_some();
            if first && !self.holes && key != self.table.whole().first || !known {
                self.bad(handle.offset, "the properties do not know a key");
            }
            self.key.clone_from(&key);
            self.at = entry.at;
        }
    }

    fn end(&mut self) {
        if self.expected != self.table.end() {
            self.bad(self.expected, "blocks end early");
        }
        let p = self.table.whole();
        let sums = (
            self.total.entries,
            self.total.tombstones,
            self.total.superseded,
            Timestamp(self.oldest),
            Timestamp(self.newest),
            &self.key[..],
        );
        let written = (
            p.total.entries,
            p.total.tombstones,
            p.total.superseded,
            p.oldest,
            p.newest,
            self.table.last(),
        );
        if !self.holes && sums != written {
            self.bad(self.table.end(), "the properties do not fit the data");
        }
    }
}
