//! An open table.

use super::super::cache::{BlockCache, Cached};
use super::super::error::{damaged, io};
use super::super::trash::Trash;
use super::block::{Block, Entry, Find, MALFORMED};
use super::footer::{Footer, LEN, Properties};
use super::frame::{self, Handle, Kind};
use super::{filter, varint};
use bytes::Bytes;
use muniment_io::{Disk, File, Timestamp};
use muniment_value::{Error, Result};
use parking_lot::Mutex;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A table that can be read, or the rest of one: a compaction that has consumed the keys below some key
/// replaces the whole table by the rest ([`Table::starting_at`]). The front of the file is given back to the
/// disk after the last reader that could read there has gone.
pub(crate) struct Table {
    core: Arc<Core>,
    /// The key below which it has no keys any more. `None`: the table is whole.
    low: Option<Vec<u8>>,
    /// The offset of the block of its first key; nothing before it is read.
    start: u64,
    /// The properties of the rest, approximately.
    properties: Arc<Properties>,
}

/// The file of a table. It is removed after the table was [`Core::condemn`]ed and no reader holds it any
/// more.
pub(crate) struct Core {
    id: u64,
    file: Arc<dyn File>,
    size: u64,
    crc: u32,
    properties: Arc<Properties>,
    top: Block,
    /// The offset at which the partitions end.
    end: u64,
    /// The CRC-32C of the rest of the file, as it was read when the table was opened.
    tail_crc: u32,
    cache: Arc<BlockCache>,
    fronts: Mutex<Fronts>,
    /// A running compaction reads the table and will replace it.
    pub(crate) busy: AtomicBool,
    /// A compaction has found the table damaged. Later ones do not use it, so that one damaged table does not
    /// stop all compactions.
    pub(crate) suspect: AtomicBool,
    /// This is dropped last: a file that is still open keeps its room after its name is gone, and the thread
    /// that closes it then has to wait for the file system.
    place: Place,
}

/// Where the file is, and what becomes of it when no reader has the table any more.
struct Place {
    path: PathBuf,
    /// No state has the table any more, so its file is to be removed.
    condemned: AtomicBool,
    trash: Arc<Trash>,
}

/// The offsets at which the parts of the table begin that readers hold.
#[derive(Default)]
struct Fronts {
    starts: Vec<u64>,
    /// The offset up to which the file was given back, or is about to be.
    freed: u64,
}

/// The content of a partition's entry in the top index.
#[derive(Clone, Copy)]
pub(crate) struct Partition {
    pub(crate) filter: Handle,
    pub(crate) index: Handle,
}

impl Table {
    /// Opens a table. `expected` is the file's length and the footer's checksum, as the manifest has them.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected with the file, also if it is missing; I/O errors.
    pub(crate) fn open(
        disk: &dyn Disk,
        path: PathBuf,
        id: u64,
        expected: (u64, u32),
        cache: Arc<BlockCache>,
        trash: Arc<Trash>,
    ) -> Result<Table> {
        let core = Core::open(disk, path, id, expected, cache, trash)?;
        Ok(Table::of(Arc::new(core), None, 0))
    }

    fn of(core: Arc<Core>, low: Option<Vec<u8>>, start: u64) -> Table {
        core.fronts.lock().starts.push(start);
        let mut properties = core.properties.clone();
        if let Some(low) = &low {
            Arc::make_mut(&mut properties).narrow(low, start, core.end);
        }
        Table {
            core,
            low,
            start,
            properties,
        }
    }

    /// The table without the keys below `key`, which must not be greater than its last key.
    ///
    /// # Errors
    /// Those of a read.
    pub(crate) fn starting_at(&self, key: &[u8]) -> Result<Table> {
        let start = match key <= self.first() {
            true => self.start,
            false => self.offset_of(key)?.max(self.start),
        };
        Ok(Table::of(self.core.clone(), Some(key.to_vec()), start))
    }

    /// The file.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The key below which the table has no keys any more; `None` if it is whole.
    pub(crate) fn low(&self) -> Option<&[u8]> {
        self.low.as_deref()
    }

    /// The offset of the first block.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// True if a key is below those that remain.
    #[inline]
    pub(crate) fn is_before(&self, key: &[u8]) -> bool {
        self.low.as_ref().is_some_and(|low| key < &low[..])
    }

    /// The bytes of the file without the front that was given back, approximately.
    pub(crate) fn len(&self) -> u64 {
        self.core.size - self.start
    }

    /// The properties of the rest, approximately; of a whole table exactly.
    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    pub(crate) fn first(&self) -> &[u8] {
        &self.properties.first
    }

    pub(crate) fn last(&self) -> &[u8] {
        &self.properties.last
    }

    /// The newest version of a key at or below `at`: `None` if the table has none, `Some(None)` if it is a
    /// deletion. `hash` is the hash of `key`, which must not be below the first key.
    pub(crate) fn get(
        &self,
        key: &[u8],
        hash: u64,
        at: Timestamp,
    ) -> Result<Option<Option<Bytes>>> {
        let found = self.core.find(key, hash, at)?;
        Ok(found.map(|(block, entry)| block.value(&entry)))
    }

    /// When the newest version of a key was written, and whether it has a value. See [`Table::get`].
    pub(crate) fn changed(&self, key: &[u8], hash: u64) -> Result<Option<(Timestamp, bool)>> {
        let found = self.core.find(key, hash, Timestamp::MAX)?;
        Ok(found.map(|(_, entry)| (Timestamp(entry.at), !entry.deleted)))
    }

    /// How many bytes of the file are before the block that may have `key`, approximately.
    ///
    /// # Errors
    /// Those of a read.
    pub(crate) fn offset_of(&self, key: &[u8]) -> Result<u64> {
        match key <= self.first() {
            true => Ok(self.start),
            false => self.core.offset_of(key),
        }
    }
}

impl Deref for Table {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let mut fronts = self.core.fronts.lock();
        if let Some(i) = fronts.starts.iter().position(|s| *s == self.start) {
            fronts.starts.swap_remove(i);
        }
        // The remaining holders never read before their start, and the manifest no longer names the part
        // before it, so that part can be given back.
        let first = fronts.starts.iter().min().copied();
        if let Some(first) = first.filter(|first| *first > fronts.freed) {
            fronts.freed = first;
            drop(fronts);
            self.core.place.trash.free(self.core.file.clone(), first);
        }
    }
}

impl Core {
    fn open(
        disk: &dyn Disk,
        path: PathBuf,
        id: u64,
        expected: (u64, u32),
        cache: Arc<BlockCache>,
        trash: Arc<Trash>,
    ) -> Result<Core> {
        let file = disk
            .open_kept(&path)
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
        Ok(Core {
            id,
            file,
            size: len,
            crc,
            properties: Arc::new(p),
            top: block,
            end: top.offset,
            tail_crc,
            cache,
            fronts: Mutex::default(),
            busy: AtomicBool::new(false),
            suspect: AtomicBool::new(false),
            place: Place {
                path,
                condemned: AtomicBool::new(false),
                trash,
            },
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn path(&self) -> &Path {
        &self.place.path
    }

    /// The file's length.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The footer's checksum.
    pub(crate) fn crc(&self) -> u32 {
        self.crc
    }

    /// The properties of the whole table.
    pub(crate) fn whole(&self) -> &Properties {
        &self.properties
    }

    /// The offset at which the partitions end and the top index begins.
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

    /// Marks a table that nothing refers to any more. Its file is removed when the last reader has gone.
    pub(crate) fn condemn(&self) {
        self.place.condemned.store(true, Ordering::SeqCst);
    }

    /// 301 DataCorruptionDetected for a block that is malformed.
    pub(crate) fn malformed(&self, offset: u64) -> Error {
        damaged(&self.place.path, offset, MALFORMED)
    }

    /// Reads a block without using the cache.
    pub(crate) fn read(&self, handle: Handle, kind: Kind) -> Result<Bytes> {
        frame::read(
            &*self.file,
            &self.place.path,
            self.end,
            self.id,
            handle,
            kind,
        )
    }

    /// A block, from the cache or read into it.
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

    /// The partition `i`; `None` after the last.
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

    /// The separator of partition `i`, above which it has no keys; `None` after the last partition.
    pub(crate) fn last_of(&self, i: usize) -> Option<&[u8]> {
        self.top.whole(i).map(|(separator, _)| separator)
    }

    /// The first partition that may have a key which `before` is false for.
    pub(crate) fn find_partition(&self, before: impl Fn(&[u8]) -> bool) -> Result<usize> {
        self.top
            .partition(before)
            .ok_or_else(|| self.malformed(self.end))
    }

    /// The place of the version that [`Table::get`] returns.
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
                    // The next block may have older versions of the key.
                    Find::Beyond if place.0 == key => slot += 1,
                    Find::Beyond => return Ok(None),
                }
            }
            i += 1;
        }
        Ok(None)
    }

    fn offset_of(&self, key: &[u8]) -> Result<u64> {
        let i = self.find_partition(|k| k < key)?;
        let Some(partition) = self.partition(i)? else {
            return Ok(self.end);
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

impl Drop for Place {
    fn drop(&mut self) {
        if self.condemned.load(Ordering::SeqCst) {
            self.trash.throw(self.path.clone());
        }
    }
}

/// Entry `slot` of an index block: the separator and the data block. `None`: the block is malformed.
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
