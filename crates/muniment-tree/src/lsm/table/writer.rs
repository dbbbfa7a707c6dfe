//! Writes a table.

use super::super::error::io;
use super::block::{BlockBuilder, common_prefix};
use super::footer::{Counts, Footer, Properties};
use super::frame::{Framer, Handle, Kind};
use super::{filter, put_varint, tree_of};
use crate::TreeId;
use muniment_io::{Disk, File, Open, Timestamp};
use muniment_value::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many bytes are written to the disk in one call.
const CHUNK: usize = 256 << 10;

/// The size of an index block, in bytes.
const INDEX_BLOCK: usize = 8 << 10;

/// Writes one table. Versions must come by key ascending, then timestamp descending.
///
/// The file is synced every few megabytes: one long sync at the end would delay the log's syncs, which would
/// have to wait for it in the disk's queue.
pub(crate) struct TableWriter {
    path: PathBuf,
    id: u64,
    file: Arc<dyn File>,
    framer: Framer,
    block_bytes: usize,
    sync_bytes: u64,
    /// The bytes that are not in the file yet, and their offset in it.
    out: Vec<u8>,
    base: u64,
    unsynced: u64,
    block: BlockBuilder,
    /// A complete data block, whose index entry needs the next key; and its last key.
    pending: Option<Handle>,
    last: Vec<u8>,
    last_at: u64,
    index: BlockBuilder,
    hashes: Vec<u64>,
    top: BlockBuilder,
    properties: Properties,
    /// The tree that is being written.
    tree: Option<(TreeId, Counts)>,
}

/// The result of writing a table.
pub(crate) struct Written {
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) crc: u32,
}

impl TableWriter {
    /// Creates the file.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace; I/O errors.
    pub(crate) fn create(
        disk: &dyn Disk,
        path: PathBuf,
        id: u64,
        block_bytes: usize,
        sync_bytes: u64,
    ) -> Result<TableWriter> {
        let file = disk
            .open(&path, Open::Create)
            .map_err(|e| io("making", &path, &e))?;
        Ok(TableWriter {
            path,
            id,
            file,
            framer: Framer::default(),
            block_bytes,
            sync_bytes,
            out: Vec::with_capacity(CHUNK + 2 * block_bytes),
            base: 0,
            unsynced: 0,
            block: BlockBuilder::data(),
            pending: None,
            last: Vec::new(),
            last_at: 0,
            index: BlockBuilder::index(),
            hashes: Vec::new(),
            top: BlockBuilder::index(),
            properties: Properties::default(),
            tree: None,
        })
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The key that was added last.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last
    }

    /// The size of the file so far, approximately.
    pub(crate) fn size(&self) -> u64 {
        self.base + (self.out.len() + self.block.size()) as u64
    }

    /// Adds a version.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace; I/O errors. The table cannot be used after that.
    pub(crate) fn add(&mut self, key: &[u8], at: Timestamp, value: Option<&[u8]>) -> Result<()> {
        let new = self.tree.is_none() || self.last != key;
        let room = key.len() + value.map_or(0, <[u8]>::len);
        // A version that fills a block by itself gets its own, so that reads of small neighbours do not load
        // it.
        if !self.block.is_empty() && self.block.size() + room > self.block_bytes {
            self.end_block()?;
        }
        if let Some(handle) = self.pending.take() {
            let separator = separator(&self.last, key);
            self.add_index(&separator, handle)?;
        }
        if new || self.hashes.is_empty() {
            self.hashes.push(filter::hash(key));
        }
        self.block.add(key, at.0, value);
        self.count(key, at, value.is_none(), !new, room as u64);
        if new {
            self.last.clear();
            self.last.extend_from_slice(key);
        }
        self.last_at = at.0;
        Ok(())
    }

    fn count(&mut self, key: &[u8], at: Timestamp, deleted: bool, superseded: bool, bytes: u64) {
        let p = &mut self.properties;
        let tree = tree_of(key);
        let counts = match &mut self.tree {
            Some((t, counts)) if *t == tree => counts,
            other => {
                match other.take() {
                    Some(done) => p.trees.push(done),
                    None => {
                        p.first = key.to_vec();
                        p.oldest = at;
                    }
                }
                &mut other.insert((tree, Counts::default())).1
            }
        };
        counts.entries += 1;
        counts.bytes += bytes + 4;
        p.oldest = p.oldest.min(at);
        p.newest = p.newest.max(at);
        if deleted {
            counts.tombstones += 1;
            p.deletion = p.deletion.max(at);
        }
        if superseded {
            counts.superseded += 1;
            p.superseder = p.superseder.max(Timestamp(self.last_at));
        }
    }

    fn end_block(&mut self) -> Result<()> {
        let raw = self.block.finish();
        let handle = self
            .framer
            .write(&mut self.out, self.base, self.id, Kind::Data, raw, true)?;
        self.pending = Some(handle);
        self.block.clear();
        self.write_out(CHUNK)
    }

    fn add_index(&mut self, separator: &[u8], handle: Handle) -> Result<()> {
        let mut value = Vec::with_capacity(16);
        put_handle(&mut value, handle);
        self.index.add(separator, 0, Some(&value));
        if self.index.size() >= INDEX_BLOCK {
            self.end_partition()?;
        }
        Ok(())
    }

    fn end_partition(&mut self) -> Result<()> {
        let mut value = Vec::with_capacity(32);
        let raw = filter::build(&self.hashes);
        self.hashes.clear();
        let (out, base, id) = (&mut self.out, self.base, self.id);
        let filter = self
            .framer
            .write(out, base, id, Kind::Filter, &raw, false)?;
        put_handle(&mut value, filter);
        let separator = self.index.last_key().to_vec();
        let raw = self.index.finish();
        let index = self.framer.write(out, base, id, Kind::Index, raw, true)?;
        put_handle(&mut value, index);
        self.index.clear();
        self.top.add(&separator, 0, Some(&value));
        self.write_out(CHUNK)
    }

    /// Writes the buffer to the file if it has at least this many bytes.
    fn write_out(&mut self, least: usize) -> Result<()> {
        if self.out.len() < least {
            return Ok(());
        }
        self.file
            .write_at(&self.out, self.base)
            .map_err(|e| io("writing", &self.path, &e))?;
        self.base += self.out.len() as u64;
        self.unsynced += self.out.len() as u64;
        if self.out.capacity() > 4 * CHUNK {
            self.out = Vec::new();
        }
        self.out.clear();
        if self.unsynced >= self.sync_bytes {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.unsynced = 0;
        self.file.sync().map_err(|e| io("syncing", &self.path, &e))
    }

    /// Completes the table, which is then durable except for its name.
    ///
    /// # Errors
    /// As [`TableWriter::add`].
    pub(crate) fn finish(&mut self) -> Result<Written> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        if let Some(handle) = self.pending.take() {
            let last = std::mem::take(&mut self.last);
            self.add_index(&last, handle)?;
            self.last = last;
        }
        if !self.index.is_empty() {
            self.end_partition()?;
        }
        let raw = self.top.finish();
        let (out, base, id) = (&mut self.out, self.base, self.id);
        let top = self.framer.write(out, base, id, Kind::Top, raw, true)?;
        self.properties.last = self.last.clone();
        self.properties.trees.extend(self.tree.take());
        // Counts of bytes of keys and values become the corresponding parts of the file.
        let size = self.base + self.out.len() as u64;
        let raw: u64 = self.properties.trees.iter().map(|t| t.1.bytes).sum();
        for (_, counts) in &mut self.properties.trees {
            let part = u128::from(counts.bytes) * u128::from(size) / u128::from(raw.max(1));
            counts.bytes = part as u64;
        }
        let raw = self.properties.write();
        let out = &mut self.out;
        let properties = self
            .framer
            .write(out, base, id, Kind::Properties, &raw, true)?;
        let footer = Footer {
            top,
            properties,
            table: id,
        }
        .write();
        self.out.extend_from_slice(&footer);
        self.write_out(0)?;
        self.sync()?;
        Ok(Written {
            id,
            size: self.base,
            crc: Footer::crc(&footer),
        })
    }
}

fn put_handle(out: &mut Vec<u8>, handle: Handle) {
    put_varint(out, handle.offset);
    put_varint(out, handle.size.into());
}

/// A short key at or above `a` and below `b`, where `a <= b`; `a` itself if they are equal.
fn separator(a: &[u8], b: &[u8]) -> Vec<u8> {
    let same = common_prefix(a, b);
    // Cuts `a` at the first byte that can be raised. Of the first byte that differs, the raised value must
    // stay below that of `b`; any byte after it can be raised, since `a` is already below `b`.
    let raised = a.iter().enumerate().skip(same).find(|(i, byte)| {
        let limit = if *i == same { b.get(same) } else { None };
        **byte < 0xff && limit.is_none_or(|limit| **byte + 1 < *limit)
    });
    match raised {
        Some((i, byte)) if i + 1 < a.len() && same < b.len() => {
            let mut short = a[..i].to_vec();
            short.push(byte + 1);
            short
        }
        _ => a.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_separate() {
        let keys: Vec<Vec<u8>> = (0u32..4096)
            .map(|i| {
                let digits = (0..6).map(|d| [0, 1, 2, 0xff][(i >> (2 * d)) as usize & 3]);
                digits.take(1 + i as usize % 6).collect()
            })
            .collect();
        for a in keys.iter().step_by(7) {
            for b in &keys {
                if a <= b {
                    let s = separator(a, b);
                    assert!(
                        a <= &s && (&s < b || a == b) && s.len() <= a.len(),
                        "{a:?} {b:?}"
                    );
                }
            }
        }
        assert_eq!(separator(b"abcdefgh", b"abzz"), b"abd");
        assert_eq!(separator(b"abcdefgh", b"abdz"), b"abce");
        assert_eq!(separator(b"ab", b"abd"), b"ab");
    }
}
