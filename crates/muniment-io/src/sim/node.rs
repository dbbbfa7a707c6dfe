//! A file of the simulated disk: what readers see, what is durable, and the writes in between.

use super::draw;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A disk writes this many bytes at once, or none of them.
const SECTOR: usize = 512;

/// A file, independent of its name.
pub(super) struct Node {
    pub path: Mutex<PathBuf>,
    pub len: AtomicU64,
    /// Bytes at the front that were given back. (Writing there again is not charged.)
    pub freed: AtomicU64,
    pub data: Mutex<Data>,
}

impl Node {
    pub(crate) fn new(path: PathBuf, data: Data) -> Arc<Node> {
        Arc::new(Node {
            path: Mutex::new(path),
            len: AtomicU64::new(data.now.len() as u64),
            freed: AtomicU64::new(0),
            data: Mutex::new(data),
        })
    }
}

impl Node {
    /// The bytes that the file takes on the disk.
    pub(crate) fn taken(&self) -> u64 {
        let freed = self.freed.load(SeqCst);
        self.len.load(SeqCst).saturating_sub(freed)
    }
}

/// The content of a file.
pub(super) struct Data {
    /// The bytes that readers see.
    pub now: Vec<u8>,
    /// The durable content; `None` if it is not needed.
    safe: Option<Safe>,
}

#[derive(Default)]
struct Safe {
    bytes: Vec<u8>,
    len: usize,
    /// For each sector that was written since the last sync: its content after each write, oldest first.
    sectors: BTreeMap<usize, Vec<Version<Box<[u8; SECTOR]>>>>,
    /// The lengths that the file has got since the last sync.
    lens: Vec<Version<usize>>,
}

struct Version<T> {
    write: u64,
    /// A sync has failed since the write, so no later sync makes it durable.
    failed: bool,
    what: T,
}

/// Takes from `versions` the one that a sync makes durable: the newest that the sync covers.
fn settle<T>(versions: &mut Vec<Version<T>>, before: u64) -> Option<T> {
    let n = versions
        .iter()
        .rposition(|v| v.write < before && !v.failed)?;
    versions.drain(..=n).next_back().map(|v| v.what)
}

fn mark_failed<T>(versions: &mut [Version<T>], before: u64) {
    for v in versions.iter_mut().filter(|v| v.write < before) {
        v.failed = true;
    }
}

impl Data {
    /// A file whose whole content is durable.
    pub(crate) fn all_safe(now: Vec<u8>, keep_safe: bool) -> Data {
        let safe = keep_safe.then(|| Safe {
            bytes: now.clone(),
            len: now.len(),
            ..Safe::default()
        });
        Data { now, safe }
    }

    pub(crate) fn write(&mut self, buf: &[u8], offset: u64, write: u64) {
        let Ok(from) = usize::try_from(offset) else {
            return;
        };
        let end = from + buf.len();
        if buf.is_empty() {
            return;
        }
        let old = self.now.len();
        if end > old {
            self.now.resize(end, 0);
            self.len_changed(write);
        }
        if let Some(to) = self.now.get_mut(from..end) {
            to.copy_from_slice(buf);
        }
        self.changed(from.min(old), end, write);
    }

    pub(crate) fn set_len(&mut self, len: u64, write: u64) {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let old = self.now.len();
        self.now.resize(len, 0);
        self.len_changed(write);
        // The bytes that are cut off read as zeros if the file grows again.
        self.changed(len.min(old), old, write);
    }

    fn len_changed(&mut self, write: u64) {
        let len = self.now.len();
        if let Some(safe) = &mut self.safe {
            safe.lens.push(Version {
                write,
                failed: false,
                what: len,
            });
        }
    }

    /// Notes the present content of the sectors from byte `from` to `end`.
    fn changed(&mut self, from: usize, end: usize, write: u64) {
        let Some(safe) = &mut self.safe else {
            return;
        };
        for sector in from / SECTOR..end.div_ceil(SECTOR) {
            let mut what = Box::new([0; SECTOR]);
            let at = sector * SECTOR;
            let upto = (at + SECTOR).min(self.now.len());
            let bytes = self.now.get(at..upto).unwrap_or_default();
            if let Some(to) = what.get_mut(..bytes.len()) {
                to.copy_from_slice(bytes);
            }
            safe.sectors.entry(sector).or_default().push(Version {
                write,
                failed: false,
                what,
            });
        }
    }

    /// Notes that a sync which began before write number `before` has succeeded.
    pub(crate) fn synced(&mut self, before: u64) {
        let Some(safe) = &mut self.safe else {
            return;
        };
        let bytes = &mut safe.bytes;
        safe.sectors.retain(|sector, versions| {
            if let Some(what) = settle(versions, before) {
                put(bytes, sector * SECTOR, &what[..]);
            }
            !versions.is_empty()
        });
        if let Some(len) = settle(&mut safe.lens, before) {
            safe.len = len;
        }
    }

    /// Notes that a sync which began before write number `before` has failed.
    pub(crate) fn sync_failed(&mut self, before: u64) {
        if let Some(safe) = &mut self.safe {
            for versions in safe.sectors.values_mut() {
                mark_failed(versions, before);
            }
            mark_failed(&mut safe.lens, before);
        }
    }

    /// The file after a power cut.
    pub(crate) fn after_cut(&self, seed: u64) -> Data {
        let Some(safe) = &self.safe else {
            return Data::all_safe(self.now.clone(), false);
        };
        let mut bytes = safe.bytes.clone();
        for (sector, versions) in &safe.sectors {
            for v in versions {
                if survives(seed, v.write, *sector as u64) {
                    put(&mut bytes, sector * SECTOR, &v.what[..]);
                }
            }
        }
        let mut len = safe.len;
        for v in &safe.lens {
            if survives(seed, v.write, u64::MAX) {
                len = v.what;
            }
        }
        bytes.resize(len, 0);
        Data::all_safe(bytes, true)
    }

    /// Changes bytes both for readers and durably.
    pub(crate) fn corrupt(&mut self, offset: u64, new: &[u8]) -> bool {
        let Ok(from) = usize::try_from(offset) else {
            return false;
        };
        let Some(to) = self.now.get_mut(from..from.saturating_add(new.len())) else {
            return false;
        };
        to.copy_from_slice(new);
        if let Some(safe) = &mut self.safe {
            put(&mut safe.bytes, from, new);
            for (i, b) in new.iter().enumerate() {
                let at = from + i;
                for v in safe.sectors.entry(at / SECTOR).or_default() {
                    if let Some(to) = v.what.get_mut(at % SECTOR) {
                        *to = *b;
                    }
                }
            }
        }
        true
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    if bytes.len() < at + new.len() {
        bytes.resize(at + new.len(), 0);
    }
    if let Some(to) = bytes.get_mut(at..at + new.len()) {
        to.copy_from_slice(new);
    }
}

/// True if this part of this write survives the power cut of this seed. A third of the writes survive as a
/// whole, a third not at all, and the others in about half of their sectors.
fn survives(seed: u64, write: u64, part: u64) -> bool {
    match draw(seed, write, 0) % 3 {
        0 => true,
        1 => false,
        _ => draw(seed, write, part.wrapping_add(1)) & 1 == 0,
    }
}
