//! Where documents have arrays. Arrays make an index multikey, and the planner more careful.
//!
//! An index with named fields has a mask for each of them. A wildcard index, whose paths are open, has
//! the set of the paths themselves. Both only ever grow.
//!
//! Invariant: what a document needs is visible to readers before its commit. It is a function of the
//! documents, so it is not in the log: it is written into the trees at each cut, and applying the log
//! after the cut finds the rest again.

use crate::keys;
use muniment_value::IndexKeys;
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// The arrays of one or more documents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrays {
    /// Per field of the index, bit i set: part i of its path went through an array.
    pub masks: Vec<u64>,
    /// The paths at which a wildcard index found an array.
    pub paths: Vec<String>,
}

impl Arrays {
    /// The arrays of one document.
    pub fn of(keys: &IndexKeys) -> Arrays {
        Arrays {
            masks: keys.multikey().to_vec(),
            paths: keys.arrays().to_vec(),
        }
    }

    /// Adds the arrays of another document.
    pub fn add(&mut self, keys: &IndexKeys) {
        let masks = keys.multikey();
        self.masks.resize(masks.len().max(self.masks.len()), 0);
        for (all, one) in self.masks.iter_mut().zip(masks) {
            *all |= one;
        }
        for path in keys.arrays() {
            if let Err(at) = self.paths.binary_search(path) {
                self.paths.insert(at, path.clone());
            }
        }
    }

    /// The form in the log: masks, then paths, each list with its length before it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        keys::put_varint(self.masks.len(), &mut out);
        for mask in &self.masks {
            out.extend_from_slice(&mask.to_le_bytes());
        }
        for path in &self.paths {
            keys::put_varint(path.len(), &mut out);
            out.extend_from_slice(path.as_bytes());
        }
        out
    }

    /// Reads [`Arrays::to_bytes`]; `None` if it is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<Arrays> {
        let mut arrays = Arrays::default();
        let (n, mut at) = keys::get_varint(bytes)?;
        for _ in 0..n {
            let mask = bytes.get(at..at + 8)?.try_into().ok()?;
            arrays.masks.push(u64::from_le_bytes(mask));
            at += 8;
        }
        while at < bytes.len() {
            let (len, took) = keys::get_varint(bytes.get(at..)?)?;
            at += took;
            let path = bytes.get(at..at.checked_add(len)?)?;
            arrays.paths.push(String::from_utf8(path.to_vec()).ok()?);
            at += len;
        }
        Some(arrays)
    }

    /// True if it holds all of `other`.
    pub fn covers(&self, other: &Arrays) -> bool {
        let masks = self.masks.iter().chain(std::iter::repeat(&0));
        let mut both = masks.zip(&other.masks);
        both.all(|(a, b)| b & !a == 0) && other.paths.iter().all(|p| self.paths.contains(p))
    }

    /// The rows of the catalog's tree for them, for index `index`.
    pub fn entries(&self, index: u32) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let masks = self.masks.iter().any(|&m| m != 0).then(|| {
            let bytes = self.masks.iter().flat_map(|m| m.to_le_bytes()).collect();
            (keys::multikey(index), bytes)
        });
        let path = move |p: &String| (keys::array_path(index, p), Vec::new());
        masks.into_iter().chain(self.paths.iter().map(path))
    }
}

/// The arrays of all documents of an index.
pub(crate) struct Multikey {
    masks: Box<[AtomicU64]>,
    /// The array paths of a wildcard index; `None` for other indexes.
    paths: RwLock<Option<BTreeSet<String>>>,
    /// Counts the changes of masks and paths.
    version: AtomicU64,
    /// True if there is a change that the trees do not hold yet.
    dirty: AtomicBool,
    /// The threads that show arrays just now.
    widening: AtomicU32,
}

impl Multikey {
    /// The saved state of an index of `fields` fields.
    pub fn new(fields: usize, saved: &Arrays) -> Multikey {
        Multikey {
            masks: (0..fields)
                .map(|i| AtomicU64::new(saved.masks.get(i).copied().unwrap_or(0)))
                .collect(),
            paths: RwLock::new(match saved.paths.is_empty() {
                true => None,
                false => Some(saved.paths.iter().cloned().collect()),
            }),
            version: AtomicU64::new(0),
            dirty: AtomicBool::new(false),
            widening: AtomicU32::new(0),
        }
    }

    /// True when some document has an array on one of the index's paths.
    pub fn any(&self) -> bool {
        self.masks.iter().any(|m| m.load(Relaxed) != 0) || self.paths.read().is_some()
    }

    /// The masks of the fields.
    pub fn masks(&self) -> Vec<u64> {
        self.masks.iter().map(|m| m.load(SeqCst)).collect()
    }

    /// For a wildcard index: bit i set means that some document has an array at part i of the path.
    pub fn mask_of(&self, path: &str) -> u64 {
        let paths = self.paths.read();
        let Some(paths) = paths.as_ref() else {
            return 0;
        };
        let ends = path.match_indices('.').map(|(at, _)| at);
        let mut mask = 0;
        for (i, end) in ends.chain([path.len()]).enumerate() {
            if path.get(..end).is_some_and(|p| paths.contains(p)) {
                mask |= 1 << i.min(63);
            }
        }
        mask
    }

    /// True if readers know of all arrays of a document already.
    pub fn covers(&self, keys: &IndexKeys) -> bool {
        let mut masks = self.masks.iter().zip(keys.multikey());
        masks.all(|(all, one)| one & !all.load(SeqCst) == 0)
            && (keys.arrays().is_empty() || {
                let paths = self.paths.read();
                let known = |p| paths.as_ref().is_some_and(|paths| paths.contains(p));
                keys.arrays().iter().all(known)
            })
    }

    /// Shows the arrays to readers. It has to come before the commit that needs them, so that a plan
    /// that is made in between is only more careful. True if something is new.
    pub fn widen(&self, arrays: &Arrays) -> bool {
        let mut wider = false;
        self.widening.fetch_add(1, SeqCst);
        for (all, new) in self.masks.iter().zip(&arrays.masks) {
            if *new != 0 {
                wider |= new & !all.fetch_or(*new, SeqCst) != 0;
            }
        }
        if !arrays.paths.is_empty() {
            let mut paths = self.paths.write();
            let paths = paths.get_or_insert_default();
            for path in &arrays.paths {
                wider |= paths.insert(path.clone());
            }
        }
        if wider {
            self.version.fetch_add(1, SeqCst);
            self.dirty.store(true, SeqCst);
        }
        self.widening.fetch_sub(1, SeqCst);
        wider
    }

    /// A number that changes with every change.
    pub fn version(&self) -> u64 {
        self.version.load(SeqCst)
    }

    /// What is to be written into the trees at a cut; `None` if they hold all of it.
    pub fn unsaved(&self) -> Option<Arrays> {
        // Another thread may have committed what relies on arrays that `widen` has shown but not noted yet.
        let widening = self.widening.load(SeqCst) > 0;
        (self.dirty.swap(false, SeqCst) || widening).then(|| self.known())
    }

    /// All arrays that are known.
    pub fn known(&self) -> Arrays {
        Arrays {
            masks: self.masks(),
            paths: self
                .paths
                .read()
                .iter()
                .flat_map(|p| p.iter())
                .cloned()
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_path_is_known_by_its_prefixes() {
        let saved = Arrays {
            masks: Vec::new(),
            paths: vec!["a".into(), "a.b.c".into()],
        };
        let m = Multikey::new(2, &saved);
        for (path, mask) in [("a", 1), ("a.b", 1), ("a.b.c.d", 5), ("ab", 0), ("b.a", 0)] {
            assert_eq!(m.mask_of(path), mask, "{path}");
        }
        let more = Arrays {
            masks: Vec::new(),
            paths: vec!["a".into(), "x".into()],
        };
        assert!(m.unsaved().is_none());
        assert!(m.widen(&more) && !m.widen(&more));
        assert_eq!((m.mask_of("x"), m.any()), (1, true));
        let mut keys = IndexKeys::new();
        keys.begin(2);
        keys.mark_array("x");
        assert!(m.covers(&keys));
        assert_eq!(m.unsaved().unwrap().entries(7).count(), 3);
        assert!(m.unsaved().is_none());
        let all = m.known();
        let read = Arrays::from_bytes(&all.to_bytes()).unwrap();
        assert_eq!((read.masks, read.paths), (all.masks, all.paths));
    }
}
