//! Which collections there is something to do about, so that work in the background looks at these
//! and not at every collection that there is.
//!
//! A collection tells of itself: it knows the lists of its store. An entry of a collection that was
//! dropped since is passed over by the reader of the list.

use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};

use muniment_io::Timestamp;
use muniment_tree::TreeId;

/// The lists of one store, by the ids of collections.
#[derive(Default)]
pub(crate) struct Worklists {
    /// Those whose totals or multikey paths have changed since the last cut.
    unsaved: Mutex<Vec<u32>>,
    /// Those of which something is damaged, or was.
    hurt: Mutex<BTreeSet<u32>>,
    /// Those that have something that expires.
    expiring: Mutex<BTreeSet<u32>>,
}

impl Worklists {
    /// A collection has something that the trees do not hold yet.
    pub fn unsaved(&self, id: u32) {
        self.unsaved.lock().push(id);
    }

    /// All that did so; they are taken to be written.
    pub fn take_unsaved(&self) -> Vec<u32> {
        std::mem::take(&mut *self.unsaved.lock())
    }

    /// Something of a collection is damaged.
    pub fn hurt(&self, id: u32) {
        self.hurt.lock().insert(id);
    }

    /// The collections of which something is damaged, or was.
    pub fn all_hurt(&self) -> Vec<u32> {
        self.hurt.lock().iter().copied().collect()
    }

    /// Whether a collection has something that expires.
    pub fn expires(&self, id: u32, something: bool) {
        let mut expiring = self.expiring.lock();
        match something {
            true => expiring.insert(id),
            false => expiring.remove(&id),
        };
    }

    /// The collections that have something that expires.
    pub fn all_expiring(&self) -> Vec<u32> {
        self.expiring.lock().iter().copied().collect()
    }

    /// A collection was dropped.
    pub fn forget(&self, id: u32) {
        self.hurt.lock().remove(&id);
        self.expiring.lock().remove(&id);
    }
}

/// Trees whose drops were committed, with the times of the commits.
#[derive(Default)]
pub(crate) struct DroppedTrees {
    /// Those that somebody may still read, about in the order of their drops.
    read: VecDeque<(TreeId, Timestamp)>,
    /// Those of which the trees were told that nobody reads them any more.
    given_up: Vec<(TreeId, Timestamp)>,
}

impl DroppedTrees {
    /// One that was dropped at `at`.
    pub fn add(&mut self, tree: TreeId, at: Timestamp) {
        self.read.push_back((tree, at));
    }

    /// Takes those that no view reads: `oldest` is the oldest that there is.
    pub fn take_unread(&mut self, oldest: Timestamp) -> Vec<(TreeId, Timestamp)> {
        let unread = self.read.iter().take_while(|(_, at)| *at <= oldest);
        let unread = unread.count();
        self.read.drain(..unread).collect()
    }

    /// The trees were told of these.
    pub fn gave_up(&mut self, trees: Vec<(TreeId, Timestamp)>) {
        self.given_up.extend(trees);
    }

    /// Those that were given up.
    pub fn given_up(&self) -> &[(TreeId, Timestamp)] {
        &self.given_up
    }

    /// Forgets those that were given up and of which `gone` says so; so many at most.
    pub fn forget(&mut self, most: usize, mut gone: impl FnMut(TreeId, Timestamp) -> bool) {
        let mut left = most;
        self.given_up.retain(|(tree, at)| {
            let is_gone = left > 0 && gone(*tree, *at);
            left -= usize::from(is_gone);
            !is_gone
        });
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.read.len() + self.given_up.len()
    }
}
