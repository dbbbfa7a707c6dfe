//! A disk in memory, for tests, for the simulator, and for an engine without durability.
//!
//! It distinguishes what a reader sees from what a power cut leaves. A write is visible at once. It is
//! durable once [`File::sync`] has returned, and a name once [`Disk::sync_dir`] has. [`SimDisk::power_cut`]
//! returns the disk as it may look after a power failure: each write that was not synced is there as a whole,
//! not at all, or in some of its 512-byte sectors, independently of the others and drawn from a seed; each
//! change of a name that was not synced has happened or not (with half of the seeds in order, as on a
//! journaling file system, otherwise independently).
//!
//! A sector is written as a whole: its content is always that of one moment. A sync makes durable what was
//! written before the sync *began*. A failed sync does what Linux does: the pages count as clean, so that no
//! later sync makes them durable, though they may have reached the disk.
//!
//! A failed sync of a directory changes nothing, as on a file system with a journal: a later one makes the
//! names durable. Directories are durable as soon as they are made.
//!
//! Must not panic whatever a test does with it, since engines run on it too.

mod faults;
mod node;

pub use faults::{Fault, Op};

use crate::disk::{Disk, File, Open, Space};
use faults::Faults;
use node::{Data, Node};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Linux's number for "no space left on device".
pub const ENOSPC: i32 = 28;
/// Linux's number for "input/output error".
pub const EIO: i32 = 5;

/// Linux's number for "file too large".
const EFBIG: i32 = 27;
/// The longest file, in bytes.
const LONGEST: u64 = 1 << 34;
/// The unit in which a file's front is given back, in bytes. It is smaller than on real disks, since tests
/// have small files.
const BLOCK: u64 = 64;

/// The simulated disk. A clone is the same disk.
#[derive(Clone)]
pub struct SimDisk(Arc<Inner>);

struct Inner {
    names: Mutex<Names>,
    /// The number of writes and changes of length so far, over all files.
    writes: AtomicU64,
    /// The bytes that all files together may take; `u64::MAX` for no limit.
    capacity: AtomicU64,
    /// The size that the disk reports; `u64::MAX` if it reports none.
    size: AtomicU64,
    faults: Faults,
    /// If false, only what readers see is kept, and a power cut leaves it as it is.
    safe: bool,
}

#[derive(Default)]
struct Names {
    now: BTreeMap<PathBuf, Arc<Node>>,
    safe: BTreeMap<PathBuf, Arc<Node>>,
    /// The changes of names that are not durable yet, in order.
    pending: Vec<Change>,
    dirs: BTreeSet<PathBuf>,
}

enum Change {
    Create(PathBuf, Arc<Node>),
    Rename(PathBuf, PathBuf, Arc<Node>),
    Remove(PathBuf, Arc<Node>),
}

impl Change {
    fn is_in(&self, dir: &Path) -> bool {
        match self {
            Change::Create(p, _) | Change::Remove(p, _) => p.parent() == Some(dir),
            Change::Rename(a, b, _) => a.parent() == Some(dir) || b.parent() == Some(dir),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Arc<Node>>) {
        let remove = |names: &mut BTreeMap<PathBuf, Arc<Node>>, path: &Path, node: &Arc<Node>| {
            if names.get(path).is_some_and(|n| Arc::ptr_eq(n, node)) {
                names.remove(path);
            }
        };
        match self {
            Change::Create(path, node) => {
                names.insert(path.clone(), node.clone());
            }
            Change::Rename(from, to, node) => {
                remove(names, from, node);
                names.insert(to.clone(), node.clone());
            }
            Change::Remove(path, node) => remove(names, path, node),
        }
    }
}

impl Default for SimDisk {
    fn default() -> SimDisk {
        SimDisk::new()
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> SimDisk {
        SimDisk::with(Names::default(), true)
    }

    /// An empty disk that keeps no second copy of the durable content, for an engine in memory. A power cut
    /// leaves everything.
    pub fn memory() -> SimDisk {
        SimDisk::with(Names::default(), false)
    }

    fn with(names: Names, safe: bool) -> SimDisk {
        SimDisk(Arc::new(Inner {
            names: Mutex::new(names),
            writes: AtomicU64::new(0),
            capacity: AtomicU64::new(u64::MAX),
            size: AtomicU64::new(u64::MAX),
            faults: Faults::default(),
            safe,
        }))
    }

    /// A disk as this one may look after a power cut at this moment, drawn from `seed`. This one continues as
    /// if nothing had happened. Faults and the capacity are not copied.
    pub fn power_cut(&self, seed: u64) -> SimDisk {
        if !self.0.safe {
            return self.fork();
        }
        let names = self.0.names.lock();
        let mut after = names.safe.clone();
        let in_order = draw(seed, u64::MAX, 0) & 1 == 0;
        let survive = match names.pending.len() as u64 {
            0 => 0,
            n => draw(seed, u64::MAX, 1) % (n + 1),
        };
        for (i, change) in names.pending.iter().enumerate() {
            let i = i as u64;
            if match in_order {
                true => i < survive,
                false => draw(seed, u64::MAX, i + 2) & 1 == 0,
            } {
                change.apply(&mut after);
            }
        }
        // All files are copied at one moment: no write or sync of any file may come in between.
        let nodes: Vec<(&PathBuf, &Arc<Node>)> = after.iter().collect();
        let mut once: BTreeMap<*const Node, Arc<Node>> = BTreeMap::new();
        let mut unique: Vec<&Arc<Node>> = nodes.iter().map(|(_, n)| *n).collect();
        unique.sort_by_key(|n| Arc::as_ptr(n));
        unique.dedup_by_key(|n| Arc::as_ptr(n));
        let guards: Vec<_> = unique.iter().map(|n| (*n, n.data.lock())).collect();
        for (node, data) in &guards {
            let path = node.path.lock().clone();
            once.insert(Arc::as_ptr(node), Node::new(path, data.after_cut(seed)));
        }
        drop(guards);
        let mut cut = Names {
            dirs: names.dirs.clone(),
            ..Names::default()
        };
        for (path, node) in nodes {
            if let Some(new) = once.get(&Arc::as_ptr(node)) {
                *new.path.lock() = path.clone();
                cut.now.insert(path.clone(), new.clone());
            }
        }
        cut.safe = cut.now.clone();
        SimDisk::with(cut, true)
    }

    /// A copy of what readers see, all of it durable. Faults and the capacity are not copied.
    pub fn fork(&self) -> SimDisk {
        let names = self.0.names.lock();
        let mut copy = Names {
            dirs: names.dirs.clone(),
            ..Names::default()
        };
        for (path, node) in &names.now {
            let data = Data::all_safe(node.data.lock().now.clone(), self.0.safe);
            copy.now.insert(path.clone(), Node::new(path.clone(), data));
        }
        copy.safe = copy.now.clone();
        SimDisk::with(copy, self.0.safe)
    }

    /// Adds a fault. The first fault that applies to an operation is used.
    pub fn inject(&self, fault: Fault) {
        self.0.faults.add(fault);
    }

    /// Removes all faults and the limit of the capacity.
    pub fn heal(&self) {
        self.0.faults.clear();
        self.0.capacity.store(u64::MAX, SeqCst);
    }

    /// Limits the bytes that all files together may take from now on. A write that needs more writes a part
    /// and fails with ENOSPC.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.capacity.store(bytes, SeqCst);
    }

    /// Limits the disk to this many bytes and makes it report that: [`Disk::space`] returns the size and the
    /// free room. With [`SimDisk::set_capacity`] alone the disk reports nothing, and is full all of a sudden.
    pub fn set_size(&self, bytes: u64) {
        self.0.size.store(bytes, SeqCst);
        self.set_capacity(bytes);
    }

    /// Calls `hook` before each operation, without any lock: for tests that stop or disturb one.
    pub fn set_hook(&self, hook: impl Fn(Op, &Path) + Send + Sync + 'static) {
        self.0.faults.set_hook(Some(Arc::new(hook)));
    }

    /// Removes the hook.
    pub fn clear_hook(&self) {
        self.0.faults.set_hook(None);
    }

    /// How many operations of this kind were tried (`Op::Any`: of all kinds).
    pub fn count(&self, op: Op) -> u64 {
        self.0.faults.count(op)
    }

    /// The bytes of all files together, without those that were given back.
    pub fn used(&self) -> u64 {
        let names = self.0.names.lock();
        names.now.values().map(|n| n.taken()).sum()
    }

    /// The bytes that may still be written; `u64::MAX` without a limit.
    pub fn free(&self) -> u64 {
        self.room()
    }

    /// All files, sorted.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.0.names.lock().now.keys().cloned().collect()
    }

    /// The content of a file that readers see; `None` if there is no such file.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let names = self.0.names.lock();
        let node = names.now.get(path)?;
        let data = node.data.lock();
        Some(data.now.clone())
    }

    /// Flips one bit of a file, as a bad disk does, both for readers and durably. False if the file is too
    /// short.
    pub fn flip_bit(&self, path: &Path, byte: u64, bit: u8) -> bool {
        let Some(old) = self
            .bytes(path)
            .and_then(|b| b.get(usize::try_from(byte).ok()?).copied())
        else {
            return false;
        };
        self.corrupt(path, byte, &[old ^ (1 << (bit & 7))])
    }

    /// Puts `bytes` into a file, as a bad disk does, both for readers and durably. False if the file is too
    /// short.
    pub fn corrupt(&self, path: &Path, offset: u64, bytes: &[u8]) -> bool {
        let names = self.0.names.lock();
        let Some(node) = names.now.get(path) else {
            return false;
        };
        let mut data = node.data.lock();
        data.corrupt(offset, bytes)
    }

    fn check(&self, op: Op, path: &Path) -> io::Result<()> {
        self.0.faults.check(op, path)
    }

    fn node(&self, path: &Path) -> io::Result<Arc<Node>> {
        let names = self.0.names.lock();
        let found = names.now.get(path).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The bytes by which files may still grow.
    fn room(&self) -> u64 {
        match self.0.capacity.load(SeqCst) {
            u64::MAX => u64::MAX,
            all => all.saturating_sub(self.used()),
        }
    }
}

impl Names {
    fn has_dir(&self, path: &Path) -> bool {
        path.parent().is_none_or(|p| {
            p.as_os_str().is_empty() || p == Path::new("/") || self.dirs.contains(p)
        })
    }

    fn change(&mut self, what: Change, keep: bool) {
        what.apply(&mut self.now);
        if keep {
            self.pending.push(what);
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        self.check(Op::Open, path)?;
        if how == Open::Create {
            self.check(Op::Create, path)?;
        }
        let node = match self.node(path) {
            Ok(node) => {
                if how == Open::Create {
                    let mut data = node.data.lock();
                    data.set_len(0, self.0.writes.fetch_add(1, SeqCst));
                    node.len.store(0, SeqCst);
                    node.freed.store(0, SeqCst);
                }
                node
            }
            Err(_) if how == Open::Create => {
                let mut names = self.0.names.lock();
                if !names.has_dir(path) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let data = Data::all_safe(Vec::new(), self.0.safe);
                let node = Node::new(path.to_path_buf(), data);
                let what = Change::Create(path.to_path_buf(), node.clone());
                names.change(what, self.0.safe);
                node
            }
            Err(e) => return Err(e),
        };
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            node,
            writable: how != Open::Read,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(Op::Rename, from)?;
        let mut names = self.0.names.lock();
        let node = names.now.get(from).cloned();
        let node = node.ok_or(io::ErrorKind::NotFound)?;
        if !names.has_dir(to) {
            return Err(io::ErrorKind::NotFound.into());
        }
        *node.path.lock() = to.to_path_buf();
        let what = Change::Rename(from.to_path_buf(), to.to_path_buf(), node);
        names.change(what, self.0.safe);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check(Op::Remove, path)?;
        let mut names = self.0.names.lock();
        let node = names.now.get(path).cloned();
        let node = node.ok_or(io::ErrorKind::NotFound)?;
        names.change(Change::Remove(path.to_path_buf(), node), self.0.safe);
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.check(Op::List, dir)?;
        let names = self.0.names.lock();
        if !names.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let all = names.now.keys().chain(&names.dirs);
        let mut here: Vec<String> = all
            .filter(|p| p.parent() == Some(dir))
            .filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned()))
            .collect();
        here.sort_unstable();
        Ok(here)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.check(Op::CreateDir, dir)?;
        let mut names = self.0.names.lock();
        let all = dir.ancestors().filter(|a| !a.as_os_str().is_empty());
        names.dirs.extend(all.map(Path::to_path_buf));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.check(Op::SyncDir, dir)?;
        let mut names = self.0.names.lock();
        let Names { safe, pending, .. } = &mut *names;
        pending.retain(|change| {
            let here = change.is_in(dir);
            if here {
                change.apply(safe);
            }
            !here
        });
        Ok(())
    }

    fn space(&self, _dir: &Path) -> io::Result<Space> {
        let total = self.0.size.load(SeqCst);
        Ok(Space {
            total,
            free: self.room(),
        })
    }
}

struct SimFile {
    disk: SimDisk,
    node: Arc<Node>,
    writable: bool,
}

impl SimFile {
    fn check(&self, op: Op) -> io::Result<()> {
        if self.disk.0.faults.idle(op) {
            return Ok(());
        }
        let path = self.node.path.lock().clone();
        self.disk.check(op, &path)
    }

    fn writable(&self) -> io::Result<()> {
        match self.writable {
            true => Ok(()),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    fn write(&self, buf: &[u8], offset: u64) {
        let mut data = self.node.data.lock();
        let number = self.disk.0.writes.fetch_add(1, SeqCst);
        data.write(buf, offset, number);
        self.node.len.store(data.now.len() as u64, SeqCst);
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check(Op::Read)?;
        let data = self.node.data.lock();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = data.now.get(from..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        if let (Some(to), Some(bytes)) = (buf.get_mut(..n), rest.get(..n)) {
            to.copy_from_slice(bytes);
        }
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.writable()?;
        if offset.saturating_add(buf.len() as u64) > LONGEST {
            return Err(io::Error::from_raw_os_error(EFBIG));
        }
        if let Err(e) = self.check(Op::Write) {
            // After a failed write any part of it may be in the file.
            let n = self.disk.0.writes.load(SeqCst);
            let part = draw(n, offset, 3) % (buf.len() as u64 + 1);
            self.write(buf.get(..part as usize).unwrap_or_default(), offset);
            return Err(e);
        }
        let len = self.node.len.load(SeqCst);
        let grows = (offset + buf.len() as u64).saturating_sub(len);
        let room = self.disk.room();
        if grows > room {
            let part = (buf.len() as u64).saturating_sub(grows - room);
            self.write(buf.get(..part as usize).unwrap_or_default(), offset);
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        self.write(buf, offset);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // A write that happens while the sync runs is not covered.
        let before = self.disk.0.writes.load(SeqCst);
        let result = self.check(Op::Sync);
        let mut data = self.node.data.lock();
        match &result {
            Ok(()) => data.synced(before),
            Err(_) => data.sync_failed(before),
        }
        result
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.node.len.load(SeqCst))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.writable()?;
        if len > LONGEST {
            return Err(io::Error::from_raw_os_error(EFBIG));
        }
        self.check(Op::SetLen)?;
        if len.saturating_sub(self.node.len.load(SeqCst)) > self.disk.room() {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        let mut data = self.node.data.lock();
        data.set_len(len, self.disk.0.writes.fetch_add(1, SeqCst));
        self.node.len.store(data.now.len() as u64, SeqCst);
        self.node.freed.fetch_min(len, SeqCst);
        Ok(())
    }

    fn free_front(&self, end: u64) -> io::Result<()> {
        self.check(Op::Free)?;
        let end = end.min(self.node.len.load(SeqCst)) / BLOCK * BLOCK;
        let from = self.node.freed.fetch_max(end, SeqCst);
        if from < end {
            // Until a sync, this has happened or not, as with a write.
            self.write(&vec![0; (end - from) as usize], from);
        }
        Ok(())
    }
}

/// A number drawn from a seed for one subject and one part of it (SplitMix64's mixing).
fn draw(seed: u64, thing: u64, part: u64) -> u64 {
    let mut x = seed;
    for add in [thing, part] {
        x = x.wrapping_add(add).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
    }
    x
}

#[cfg(test)]
mod tests;
