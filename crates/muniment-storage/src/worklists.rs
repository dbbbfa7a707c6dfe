//! The collections that background work has something to do for, so that it looks at these and not at
//! every collection there is.
//!
//! A collection knows the lists of its store and enters itself. The reader of a list passes over entries
//! of collections that were dropped since.

use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};

use muniment_io::Timestamp;
use muniment_tree::TreeId;

/// The lists of one store, by the ids of collections.
#[derive(Default)]
pub(crate) struct Worklists {
    /// Collections whose totals or multikey paths have changed since the last cut.
    unsaved: Mutex<Vec<u32>>,
    /// Collections with a part that is damaged, or was.
    hurt: Mutex<BTreeSet<u32>>,
    /// Collections with documents that expire.
    expiring: Mutex<BTreeSet<u32>>,
}

impl Worklists {
    /// Notes that a collection has changes that the trees do not hold yet.
    pub fn unsaved(&self, id: u32) {
        self.unsaved.lock().push(id);
    }

    /// Takes the list of these collections, which the caller writes.
    pub fn take_unsaved(&self) -> Vec<u32> {
        std::mem::take(&mut *self.unsaved.lock())
    }

    /// Notes that a part of a collection is damaged.
    pub fn hurt(&self, id: u32) {
        self.hurt.lock().insert(id);
    }

    /// The collections with a part that is damaged, or was.
    pub fn all_hurt(&self) -> Vec<u32> {
        self.hurt.lock().iter().copied().collect()
    }

    /// Notes whether documents of a collection expire.
    pub fn expires(&self, id: u32, something: bool) {
        let mut expiring = self.expiring.lock();
        match something {
            true => expiring.insert(id),
            false => expiring.remove(&id),
        };
    }

    /// The collections whose documents expire.
    pub fn all_expiring(&self) -> Vec<u32> {
        self.expiring.lock().iter().copied().collect()
    }

    /// Takes a collection that was dropped from the lists.
    pub fn forget(&self, id: u32) {
        self.hurt.lock().remove(&id);
        self.expiring.lock().remove(&id);
    }
}

/// Trees whose drops were committed, with the times of the commits.
#[derive(Default)]
pub(crate) struct DroppedTrees {
    /// Trees that a view may still read, about in the order of their drops.
    read: VecDeque<(TreeId, Timestamp)>,
    /// Trees that were given up because no view reads them any more.
    given_up: Vec<(TreeId, Timestamp)>,
}

impl DroppedTrees {
    /// Adds a tree that was dropped at `at`.
    pub fn add(&mut self, tree: TreeId, at: Timestamp) {
        self.read.push_back((tree, at));
    }

    /// Takes the trees that no view reads, when `oldest` is the timestamp of the oldest view.
    pub fn take_unread(&mut self, oldest: Timestamp) -> Vec<(TreeId, Timestamp)> {
        let unread = self.read.iter().take_while(|(_, at)| *at <= oldest);
        let unread = unread.count();
        self.read.drain(..unread).collect()
    }

    /// Notes that these trees were given up.
    pub fn gave_up(&mut self, trees: Vec<(TreeId, Timestamp)>) {
        self.given_up.extend(trees);
    }

    /// The trees that were given up.
    pub fn given_up(&self) -> &[(TreeId, Timestamp)] {
        &self.given_up
    }

    /// Forgets given-up trees for which `gone` is true, at most `most` of them.
    pub fn forget(&mut self, most: usize, mut gone: impl FnMut(TreeId, Timestamp) -> bool) {
        let mut left = most;
        self.given_up.retain(|(tree, at)| {
            let is_gone = left > 0 && gone(*tree, *at);
            left -= usize::from(is_gone);
            !is_gone
        });
    }

    /// The number of trees in both lists.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.read.len() + self.given_up.len()
    }
}
