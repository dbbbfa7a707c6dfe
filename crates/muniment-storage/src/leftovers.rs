//! What operations could not clear away when they ended, because other operations held it. A thread of
//! its own clears it away, and waits longer each time.
//!
//! Invariant: an entry is cleared away only under the opening of the door in which it was left. Under a
//! later opening, the primary of the other term has dealt with it already.

use crate::build::Begun;
use crate::collection::Collection;
use crate::commit::door::Opening;
use crate::cuts::Patient;
use crate::gate::{MOMENT, own_all};
use crate::inner::Inner;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// The longest time for which the thread that clears away waits for one thing.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The lists of what is left.
#[derive(Default)]
pub(crate) struct Leftovers {
    /// Index builds that failed and could not be taken away yet.
    pub failed_builds: Mutex<Vec<Begun>>,
    /// Collections that a command made for itself and that could not be dropped yet.
    pub discarded: Mutex<Vec<Arc<Collection>>>,
    /// Collections of aborted transactions that other operations held at that time, with the opening of
    /// the door in which each transaction was begun.
    pub aborted: Mutex<Vec<(Arc<Collection>, Opening)>>,
    /// Collections that are in use and, by the records of another primary, may bear the mark of a
    /// transaction that made them.
    pub marked: Mutex<HashSet<u32>>,
}

impl Leftovers {
    /// True if there is nothing to clear away.
    fn is_empty(&self) -> bool {
        self.failed_builds.lock().is_empty()
            && self.discarded.lock().is_empty()
            && self.aborted.lock().is_empty()
    }
}

impl Inner {
    /// The interrupt of background work that may take this long.
    pub fn patient(&self, patience: Option<Duration>) -> Patient<'_> {
        Patient::new(&self.watch, &self.cuts, patience)
    }

    /// The thread that clears away. For a collection that is in use all the time it waits longer each
    /// time.
    pub fn clear_loop(&self) {
        let mut patience = MOMENT;
        while !self.watch.pause(Duration::from_millis(100)) {
            if self.cuts.is_still() {
                continue;
            }
            patience = match self.clear_away(patience) {
                true => MOMENT,
                false => (patience * 2).min(LONGEST_WAIT),
            };
        }
    }

    /// Clears away what operations left, and waits this long for each entry; false if something is left.
    /// Nothing is written while the door is closed.
    pub fn clear_away(&self, patience: Duration) -> bool {
        if let Ok(opening) = self.door.opening() {
            self.remove_failed_builds(opening, patience);
            self.drop_discarded(opening, patience);
            self.drop_aborted(opening, patience);
        }
        self.leftovers.is_empty()
    }

    /// Takes away failed index builds.
    fn remove_failed_builds(&self, opening: Opening, patience: Duration) {
        let left = std::mem::take(&mut *self.leftovers.failed_builds.lock());
        // Builds of another opening were dealt with by the primary of that time.
        for (collection, index, begun) in left.into_iter().filter(|b| b.2 == opening) {
            let waits = own_all(&[&collection.ddl], &self.patient(Some(patience)));
            let Ok(_alone) = waits else {
                self.leftovers
                    .failed_builds
                    .lock()
                    .push((collection, index, begun));
                continue;
            };
            let all = collection.all_indexes();
            let rest: Vec<_> = all.iter().filter(|i| i.id != index.id).cloned().collect();
            if rest.len() < all.len()
                && !collection.is_dropped()
                && self
                    .commit_indexes(&collection, &rest, opening, &self.patient(None))
                    .is_err()
            {
                let left = (collection.clone(), index, begun);
                self.leftovers.failed_builds.lock().push(left);
            }
        }
    }

    /// Drops the collections of aborted transactions that other operations held at that time.
    fn drop_aborted(&self, opening: Opening, patience: Duration) {
        let left = std::mem::take(&mut *self.leftovers.aborted.lock());
        for (collection, _) in left.into_iter().filter(|l| l.1 == opening) {
            self.end_made(&collection, opening, &self.patient(Some(patience)));
        }
    }

    /// Drops the collections that commands made for themselves and could not drop.
    fn drop_discarded(&self, opening: Opening, patience: Duration) {
        let left = std::mem::take(&mut *self.leftovers.discarded.lock());
        for collection in left.into_iter().filter(|c| !c.is_dropped()) {
            let waits = own_all(&[&collection.ddl], &self.patient(Some(patience)));
            let dropped = waits.is_ok_and(|_alone| {
                let names = self.catalog.naming.lock();
                let dropped = self.commit_drop(&collection, opening, &self.patient(None));
                drop(names);
                dropped.and_then(|dropped| self.settle(dropped)).is_ok()
            });
            if !dropped {
                self.leftovers.discarded.lock().push(collection);
            }
        }
    }
}
