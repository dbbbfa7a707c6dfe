//! Reads a whole table in the order of its file, without using the cache, for compactions.

use super::super::error::{damaged, io};
use super::block::{Block, Entry, MALFORMED};
use super::frame::{self, HEADER, Header, Kind};
use super::reader::{Core, Table};
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_value::{Code, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// How many bytes one call reads.
const WINDOW: usize = 512 << 10;

/// All versions of a table, in order. The part of the file that was read may be given back to the disk during
/// the scan.
pub(crate) struct Scan {
    table: Arc<Core>,
    /// The key below which versions are skipped.
    low: Option<Vec<u8>>,
    /// The bytes that were read ahead, from `offset` on.
    window: Bytes,
    /// The offset of the next block.
    offset: u64,
    block: Option<Block>,
    /// The offset of the current block, for messages.
    here: u64,
    next: usize,
    entry: Entry,
    key: Vec<u8>,
    seen: u64,
    /// The scan covers the whole table, so that its count can be compared with the properties.
    counts: bool,
}

impl Scan {
    pub(crate) fn new(table: &Table) -> Scan {
        Scan {
            table: table.core().clone(),
            low: table.low().map(<[u8]>::to_vec),
            window: Bytes::new(),
            offset: table.start(),
            counts: table.start() == 0,
            block: None,
            here: 0,
            next: 0,
            entry: Entry::default(),
            key: Vec::new(),
            seen: 0,
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn at(&self) -> Timestamp {
        Timestamp(self.entry.at)
    }

    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.block.as_ref()?.raw_value(&self.entry)
    }

    /// Goes to the next version. Returns false at the end. A table that is found damaged is marked as such.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected with file and offset; I/O errors.
    pub(crate) fn step(&mut self) -> Result<bool> {
        self.read().inspect_err(|e| {
            if e.code() == Code::DataCorruptionDetected {
                self.table.suspect.store(true, SeqCst);
            }
        })
    }

    fn read(&mut self) -> Result<bool> {
        loop {
            let Some(block) = self.block.as_ref().filter(|b| !b.is_end(self.next)) else {
                if !self.next_block()? {
                    return Ok(false);
                }
                continue;
            };
            let entry = block
                .entry(self.next)
                .filter(|e| e.shared <= self.key.len())
                .ok_or_else(|| damaged(self.table.path(), self.here, MALFORMED))?;
            self.key.truncate(entry.shared);
            self.key.extend_from_slice(block.suffix(&entry));
            self.next = entry.next;
            self.entry = entry;
            self.seen += 1;
            match &self.low {
                Some(low) if self.key < *low => {}
                Some(_) => {
                    self.low = None;
                    return Ok(true);
                }
                None => return Ok(true),
            }
        }
    }

    fn next_block(&mut self) -> Result<bool> {
        self.block = None;
        loop {
            let total = self.table.whole().total.entries;
            if self.offset >= self.table.end() {
                if self.counts && self.seen != total {
                    let what = format!("it has {} versions, not {total}", self.seen);
                    return Err(damaged(self.table.path(), self.offset, what));
                }
                return Ok(false);
            }
            let offset = self.offset;
            let table = self.table.clone();
            let bad = |what: &str| damaged(table.path(), offset, what);
            self.window(HEADER)?;
            let header = Header::read(&self.window).map_err(bad)?;
            self.window(header.size())?;
            let framed = self.window.split_to(header.size());
            self.offset += header.size() as u64;
            if header.kind == Kind::Data {
                let raw = frame::unframe(framed, table.id(), offset, Kind::Data).map_err(bad)?;
                self.block = Some(Block::new(raw).ok_or_else(|| bad(MALFORMED))?);
                self.here = offset;
                self.next = 0;
                return Ok(true);
            }
        }
    }

    /// Reads until `window` has `n` bytes from `offset` on.
    fn window(&mut self, n: usize) -> Result<()> {
        if self.window.len() >= n {
            return Ok(());
        }
        let have = self.window.len();
        let left = self.table.end() - self.offset;
        if left < n as u64 {
            let what = "a block goes beyond where blocks end";
            return Err(damaged(self.table.path(), self.offset, what));
        }
        let mut bytes = vec![0; left.min(n.max(WINDOW) as u64) as usize];
        let (old, new) = bytes.split_at_mut(have);
        old.copy_from_slice(&self.window);
        let from = self.offset + have as u64;
        self.table.file().read_exact_at(new, from).map_err(|e| {
            io(
                &format!("reading at offset {from} of"),
                self.table.path(),
                &e,
            )
        })?;
        self.window = Bytes::from(bytes);
        Ok(())
    }
}
