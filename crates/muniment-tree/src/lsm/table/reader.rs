//! An open table.

use super::super::cache::{BlockCache, Cached};
use super::super::error::{damaged, io};
use super::super::trash::Trash;
use super::block::{Block, Entry, Find, MALFORMED};
use super::footer::{Footer, LEN, Properties};
use super::frame::{self, Handle, Kind};
use super::{filter, varint};
use bytes::Bytes;
use muniment_io::{Disk, File, Open, Timestamp};
use muniment_value::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A table that can be read. Its file is removed when the table is [`Table::condemn`]ed and
/// nobody holds it any more.
pub(crate) struct Table {
    id: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    len: u64,
    crc: u32,
    properties: Properties,
    top: Block,
    /// Where the partitions end.
    end: u64,
    /// CRC-32C of what is behind, as it was read.
    tail_crc: u32,
    cache: Arc<BlockCache>,
    trash: Arc<Trash>,
    condemned: AtomicBool,
    /// A compaction reads it and will replace it.
    pub(crate) busy: AtomicBool,
    /// A compaction found it damaged. Others leave it alone, so that one bad table does not stop
    /// all compaction.
    pub(crate) suspect: AtomicBool,
}

/// What a partition's entry in the top index says.
#[derive(Clone, Copy)]
pub(crate) struct Partition {
    pub(crate) filter: Handle,
    pub(crate) index: Handle,
}

impl Table {
    /// Opens a table. `expected`: the file's length and the footer's checksum, as the manifest
    /// has them.
    ///
    /// # Errors
    /// 301 naming the file, also if it is not there; I/O errors.
    pub(crate) fn open(
        disk: &dyn Disk,
        path: PathBuf,
        id: u64,
        expected: (u64, u32),
        cache: Arc<BlockCache>,
        trash: Arc<Trash>,
    ) -> Result<Table> {
        let file = disk
            .open(&path, Open::Read)
            .map_err(|e| io("opening", &path, &e))?;
        let len = file.len().map_err(|e| io("opening", &path, &e))?;
        let bad = |offset: u64, what: &str| damaged(&path, offset, what);
        if len != expected.0 {
            let what = format!("it has {len} bytes, not {}", expected.0);
            return Err(bad(len.min(expected.0), &what));
        }
        let Some(end) = len.checked_sub(LEN as u64) else {
            return Err(bad(0, "it is too short for a table"));
        };
        let mut bytes = [0; LEN];
        file.read_exact_at(&mut bytes, end)
            .map_err(|e| io(&format!("reading at offset {end} of"), &path, &e))?;
        let footer = Footer::read(&bytes).map_err(|what| bad(end, &what))?;
        let crc = Footer::crc(&bytes);
        if footer.table != id || crc != expected.1 {
            return Err(bad(end, "it is another table than the manifest names"));
        }
        let (top, properties) = (footer.top, footer.properties);
        if top.offset.checked_add(top.size.into()) != Some(properties.offset)
            || properties.offset.checked_add(properties.size.into()) != Some(end)
        {
            return Err(bad(end, "the footer's places are wrong"));
        }
        let raw = frame::read(&*file, &path, len, id, properties, Kind::Properties)?;
        let p = Properties::read(&raw)
            .ok_or_else(|| bad(properties.offset, "the properties are malformed"))?;
        let raw = frame::read(&*file, &path, len, id, top, Kind::Top)?;
        let mut tail = vec![0; (len - top.offset) as usize];
        file.read_exact_at(&mut tail, top.offset)
            .map_err(|e| io("opening", &path, &e))?;
        let tail_crc = crc32c::crc32c(&tail);
        let block = Block::new(raw).ok_or_else(|| bad(top.offset, MALFORMED))?;
        Ok(Table {
            id,
            path,
            file,
            len,
            crc,
            properties: p,
            top: block,
            end: top.offset,
            tail_crc,
            cache,
            trash,
            condemned: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            suspect: AtomicBool::new(false),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file's length.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The footer's checksum.
    pub(crate) fn crc(&self) -> u32 {
        self.crc
    }

    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    pub(crate) fn first(&self) -> &[u8] {
        &self.properties.first
    }

    pub(crate) fn last(&self) -> &[u8] {
        &self.properties.last
    }

    /// Where partitions end and the top index begins.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// See [`Table::check`].
    pub(crate) fn tail_crc(&self) -> u32 {
        self.tail_crc
    }

    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }

    pub(crate) fn top(&self) -> &Block {
        &self.top
    }

    /// Nothing names the table any more: its file goes when the last reader has gone.
    pub(crate) fn condemn(&self) {
        self.condemned.store(true, Ordering::SeqCst);
    }

    /// 301 at a block's place.
    pub(crate) fn malformed(&self, offset: u64) -> Error {
        damaged(&self.path, offset, MALFORMED)
    }

    /// A block past the cache.
    pub(crate) fn read(&self, handle: Handle, kind: Kind) -> Result<Bytes> {
        frame::read(&*self.file, &self.path, self.end, self.id, handle, kind)
    }

    /// A block, through the cache.
    pub(crate) fn block(&self, handle: Handle, kind: Kind) -> Result<Block> {
        if let Some(Cached::Block(block)) = self.cache.get(self.id, handle.offset) {
            return Ok(block);
        }
        let raw = self.read(handle, kind)?;
        let block = Block::new(raw).ok_or_else(|| self.malformed(handle.offset))?;
        self.cache
            .insert(self.id, handle.offset, Cached::Block(block.clone()));
        Ok(block)
    }

    fn filter(&self, handle: Handle) -> Result<Bytes> {
        if let Some(Cached::Filter(filter)) = self.cache.get(self.id, handle.offset) {
            return Ok(filter);
        }
        let filter = self.read(handle, Kind::Filter)?;
        self.cache
            .insert(self.id, handle.offset, Cached::Filter(filter.clone()));
        Ok(filter)
    }

    /// Partition `i`; `None` behind the last.
    pub(crate) fn partition(&self, i: usize) -> Result<Option<Partition>> {
        if i >= self.top.restarts() {
            return Ok(None);
        }
        let read = || {
            let (_, entry) = self.top.whole(i)?;
            let value = self.top.raw_value(&entry)?;
            let at = &mut 0;
            Some(Partition {
                filter: handle(value, at)?,
                index: handle(value, at)?,
            })
        };
        read().map(Some).ok_or_else(|| self.malformed(self.end))
    }

    /// The key at or below which all keys of partition `i` are; `None` behind the last.
    pub(crate) fn last_of(&self, i: usize) -> Option<&[u8]> {
        self.top.whole(i).map(|(separator, _)| separator)
    }

    /// The first partition that may have a key for which `before` is not true.
    pub(crate) fn find_partition(&self, before: impl Fn(&[u8]) -> bool) -> Result<usize> {
        self.top
            .partition(before)
            .ok_or_else(|| self.malformed(self.end))
    }

    /// The newest version of a key at or below `at`: `None` if there is none here, `Some(None)` if
    /// it is a deletion. `hash` is the key's.
    pub(crate) fn get(
        &self,
        key: &[u8],
        hash: u64,
        at: Timestamp,
    ) -> Result<Option<Option<Bytes>>> {
        let found = self.find(key, hash, at)?;
        Ok(found.map(|(block, entry)| block.value(&entry)))
    }

    /// When the newest version of a key was written: as [`Table::get`].
    pub(crate) fn written(&self, key: &[u8], hash: u64) -> Result<Option<Option<Timestamp>>> {
        let found = self.find(key, hash, Timestamp::MAX)?;
        Ok(found.map(|(_, entry)| (!entry.deleted).then_some(Timestamp(entry.at))))
    }

    /// Where the version stands that [`Table::get`] gives.
    fn find(&self, key: &[u8], hash: u64, at: Timestamp) -> Result<Option<(Block, Entry)>> {
        let mut i = self.find_partition(|k| k < key)?;
        let mut asked = false;
        while let Some(partition) = self.partition(i)? {
            if !asked && !filter::may_contain(&self.filter(partition.filter)?, hash) {
                return Ok(None);
            }
            asked = true;
            let index = self.block(partition.index, Kind::Index)?;
            let wrong = || self.malformed(partition.index.offset);
            let mut slot = index.partition(|k| k < key).ok_or_else(wrong)?;
            while slot < index.restarts() {
                let place = index_entry(&index, slot).ok_or_else(wrong)?;
                let block = self.block(place.1, Kind::Data)?;
                let found = block.find(key, at.0);
                match found.ok_or_else(|| self.malformed(place.1.offset))? {
                    Find::Version(entry) => return Ok(Some((block, entry))),
                    Find::Absent => return Ok(None),
                    // Its older versions may be in the next block.
                    Find::Beyond if place.0 == key => slot += 1,
                    Find::Beyond => return Ok(None),
                }
            }
            i += 1;
        }
        Ok(None)
    }

    /// About how many bytes of the file are before `key`.
    ///
    /// # Errors
    /// As a read.
    pub(crate) fn offset_of(&self, key: &[u8]) -> Result<u64> {
        if key <= self.first() {
            return Ok(0);
        }
        let i = self.find_partition(|k| k < key)?;
        let Some(partition) = self.partition(i)? else {
            return Ok(self.len);
        };
        let index = self.block(partition.index, Kind::Index)?;
        let wrong = || self.malformed(partition.index.offset);
        let slot = index.partition(|k| k < key).ok_or_else(wrong)?;
        if slot >= index.restarts() {
            return Ok(partition.index.offset);
        }
        Ok(index_entry(&index, slot).ok_or_else(wrong)?.1.offset)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.condemned.load(Ordering::SeqCst) {
            self.trash.throw(self.path.clone());
        }
    }
}

/// Entry `slot` of an index block: the separator and the data block. `None`: malformed.
pub(crate) fn index_entry(index: &Block, slot: usize) -> Option<(&[u8], Handle)> {
    let (separator, entry) = index.whole(slot)?;
    let value = index.raw_value(&entry)?;
    Some((separator, handle(value, &mut 0)?))
}

fn handle(value: &[u8], at: &mut usize) -> Option<Handle> {
    Some(Handle {
        offset: varint(value, at)?,
        size: u32::try_from(varint(value, at)?).ok()?,
    })
}
