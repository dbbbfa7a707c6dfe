//! The waiters for acknowledgements: which write concern each waits for at which place, and which of them a
//! change of positions wakes.
//!
//! No thread sleeps here: the server parks its threads under the numbers that it gets, and asks after each
//! change which of them to wake. Waiters with the same concern are kept together, ordered by place, so that a
//! change only looks at the first few of each concern.
//!
//! Invariant: if a concern is satisfied at a place, it is satisfied at every place before it.

use crate::concern::{Concern, Progress};
use crate::config::MemberId;
use crate::position::Members;
use std::collections::{BTreeSet, HashMap};

/// A waiter's number.
pub type WaiterId = u64;

/// All waiters.
#[derive(Debug, Default)]
pub struct Waiters {
    next: WaiterId,
    /// The place that each waits for.
    places: HashMap<WaiterId, u64>,
    kinds: Vec<(Concern, BTreeSet<(u64, WaiterId)>)>,
}

impl Waiters {
    /// No waiters yet.
    pub fn new() -> Waiters {
        Waiters::default()
    }

    /// Adds a waiter until `concern` is satisfied for the write at `index`; `None` if it is satisfied
    /// already.
    pub fn wait(
        &mut self,
        index: u64,
        concern: &Concern,
        progress: Progress<'_>,
    ) -> Option<WaiterId> {
        if concern.is_satisfied(index, progress) {
            return None;
        }
        self.next += 1;
        let id = self.next;
        self.places.insert(id, index);
        match self.kinds.iter_mut().find(|(kind, _)| kind == concern) {
            Some((_, waiting)) => {
                waiting.insert((index, id));
            }
            None => {
                let waiting = BTreeSet::from([(index, id)]);
                self.kinds.push((concern.clone(), waiting));
            }
        }
        Some(id)
    }

    /// Removes a waiter that no longer waits.
    pub fn leave(&mut self, id: WaiterId) {
        let Some(index) = self.places.remove(&id) else {
            return;
        };
        for (_, waiting) in &mut self.kinds {
            waiting.remove(&(index, id));
        }
        self.kinds.retain(|(_, waiting)| !waiting.is_empty());
    }

    /// To be called when positions, the commit point or the configuration have changed: removes and returns
    /// the waiters whose concerns are satisfied now.
    pub fn satisfied(&mut self, progress: Progress<'_>) -> Vec<WaiterId> {
        let mut woken = Vec::new();
        for (concern, waiting) in &mut self.kinds {
            while let Some((index, id)) = waiting.first().copied()
                && concern.is_satisfied(index, progress)
            {
                waiting.pop_first();
                self.places.remove(&id);
                woken.push(id);
            }
        }
        self.kinds.retain(|(_, waiting)| !waiting.is_empty());
        woken
    }

    /// To be called when the configuration has changed: removes and returns the waiters whose concern can
    /// never be satisfied any more, each with the error of its concern ([`Concern::check`]).
    pub fn hopeless(&mut self, progress: Progress<'_>) -> Vec<(WaiterId, muniment_value::Error)> {
        let mut told = Vec::new();
        self.kinds
            .retain(|(concern, waiting)| match concern.check(progress.members) {
                Ok(()) => true,
                Err(e) => {
                    for (_, id) in waiting.iter() {
                        self.places.remove(id);
                        told.push((*id, e.clone()));
                    }
                    false
                }
            });
        told
    }

    /// To be called when the leadership is lost, so that no wait can end well: removes and returns all
    /// waiters.
    pub fn drain(&mut self) -> Vec<WaiterId> {
        self.places.clear();
        let kinds = std::mem::take(&mut self.kinds);
        let all = kinds.into_iter().flat_map(|(_, waiting)| waiting);
        all.map(|(_, id)| id).collect()
    }

    /// Whether a waiter's concern cannot be satisfied without those members.
    pub fn need(&self, members: &Members, those: impl Fn(MemberId) -> bool) -> bool {
        let mut kinds = self.kinds.iter();
        kinds.any(|(concern, _)| !concern.can_do_without(members, &those))
    }

    /// Whether a waiter waits for records to be durable at other members ([`Concern::waits_for_disks`]).
    pub fn wait_for_disks(&self) -> bool {
        self.kinds
            .iter()
            .any(|(concern, _)| concern.waits_for_disks())
    }

    /// Whether there are no waiters.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }
}
