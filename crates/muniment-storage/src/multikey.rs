//! Where documents have arrays: what makes an index multikey, and the planner more careful.
//!
//! An index with named fields has a mask for each of them; a wildcard index, whose paths are open,
//! has the set of the paths themselves. Both only ever grow.
//!
//! Invariant: what a document needs is visible to readers before its commit, and durable with it.

use crate::keys;
use muniment_value::IndexKeys;
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// The arrays of some documents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrays {
    /// Per field of the index, bit i set: part i of its path went through an array.
    pub masks: Vec<u64>,
    /// The paths at which a wildcard index found one.
    pub paths: Vec<String>,
}

impl Arrays {
    /// Those of one document.
    pub fn of(keys: &IndexKeys) -> Arrays {
        Arrays {
            masks: keys.multikey().to_vec(),
            paths: keys.arrays().to_vec(),
        }
    }

    /// Adds those of another document.
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

    /// What the catalog keeps of them for index `index`.
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
    /// What readers see: set before the commit that first needs it.
    masks: Vec<AtomicU64>,
    /// What a commit has made durable.
    saved_masks: Vec<AtomicU64>,
    paths: RwLock<BTreeSet<String>>,
    saved_paths: RwLock<BTreeSet<String>>,
}

impl Multikey {
    /// As it was saved, for an index of `fields` fields.
    pub fn new(fields: usize, saved: &Arrays) -> Multikey {
        let masks = || -> Vec<AtomicU64> {
            (0..fields)
                .map(|i| AtomicU64::new(saved.masks.get(i).copied().unwrap_or(0)))
                .collect()
        };
        let paths = || RwLock::new(saved.paths.iter().cloned().collect());
        Multikey {
            masks: masks(),
            saved_masks: masks(),
            paths: paths(),
            saved_paths: paths(),
        }
    }

    /// True when some document has an array on one of the index's paths.
    pub fn any(&self) -> bool {
        self.masks.iter().any(|m| m.load(Relaxed) != 0) || !self.paths.read().is_empty()
    }

    /// The masks of the fields.
    pub fn masks(&self) -> Vec<u64> {
        self.masks.iter().map(|m| m.load(SeqCst)).collect()
    }

    /// Per part of a path, bit i set: some document has an array there (a wildcard index).
    pub fn mask_of(&self, path: &str) -> u64 {
        let paths = self.paths.read();
        let ends = path.match_indices('.').map(|(at, _)| at);
        let mut mask = 0;
        for (i, end) in ends.chain([path.len()]).enumerate() {
            if path.get(..end).is_some_and(|p| paths.contains(p)) {
                mask |= 1 << i.min(63);
            }
        }
        mask
    }

    /// True if readers know of all arrays of a document.
    pub fn covers(&self, keys: &IndexKeys) -> bool {
        let mut masks = self.masks.iter().zip(keys.multikey());
        let paths = self.paths.read();
        masks.all(|(all, one)| one & !all.load(SeqCst) == 0)
            && keys.arrays().iter().all(|p| paths.contains(p))
    }

    /// True if there is one that no commit has saved yet.
    pub fn widens(&self, masks: &[u64], paths: &[String]) -> bool {
        let mut both = masks.iter().zip(&self.saved_masks);
        both.any(|(new, old)| new & !old.load(SeqCst) != 0)
            || (!paths.is_empty() && {
                let saved = self.saved_paths.read();
                paths.iter().any(|p| !saved.contains(p))
            })
    }

    /// Shows them to readers; `arrays` becomes what is to be saved.
    pub fn widen(&self, arrays: &mut Arrays) {
        arrays.masks.resize(self.masks.len(), 0);
        for (all, new) in self.masks.iter().zip(&mut arrays.masks) {
            *new |= all.fetch_or(*new, SeqCst);
        }
        if !arrays.paths.is_empty() {
            let saved = self.saved_paths.read();
            arrays.paths.retain(|p| !saved.contains(p));
            self.paths.write().extend(arrays.paths.iter().cloned());
        }
    }

    /// Notes that they are on the disk.
    pub fn saved(&self, arrays: &Arrays) {
        for (m, new) in self.saved_masks.iter().zip(&arrays.masks) {
            m.fetch_or(*new, SeqCst);
        }
        if !arrays.paths.is_empty() {
            let mut saved = self.saved_paths.write();
            saved.extend(arrays.paths.iter().cloned());
        }
    }

    /// What the catalog may keep of it: to be deleted with the index.
    pub fn known(&self) -> Arrays {
        Arrays {
            masks: self.masks(),
            paths: self.paths.read().iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
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
        let mut more = Arrays {
            masks: Vec::new(),
            paths: vec!["a".into(), "x".into()],
        };
        m.widen(&mut more);
        assert_eq!(more.paths, ["x"]);
        assert_eq!((m.mask_of("x"), m.any()), (1, true));
        let mut keys = IndexKeys::new();
        keys.begin(2);
        keys.mark_array("x");
        assert!(m.widens(&[], &more.paths) && m.covers(&keys));
        m.saved(&more);
        assert!(!m.widens(&[], &more.paths));
        assert_eq!(m.known().entries(7).count(), 3);
    }
}
