//! Who reads at which timestamp.
//!
//! A view is opened at the visible timestamp: everything up to it is applied, nothing behind it
//! is seen. Writers and compactions ask which versions somebody may still read.
//!
//! Invariant: a view is in the list before its timestamp is used, and its timestamp is read while
//! the list is locked. So whoever reads the visible timestamp *first* and then the list knows of
//! every view below it, and views opened later are at or above it.

use muniment_io::Timestamp;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// All views that are alive, and the visible timestamp.
#[derive(Default)]
pub struct Views {
    visible: AtomicU64,
    live: Mutex<BTreeMap<Timestamp, usize>>,
}

/// One view: reads at [`View::timestamp`] find what was there, until it is dropped.
pub struct View {
    views: Arc<Views>,
    at: Timestamp,
}

/// Which versions are still needed, as of one moment: see [`Views::needed`].
#[derive(Clone, Debug)]
pub struct Needed {
    /// The live views, ascending.
    live: Vec<Timestamp>,
    /// Views opened from now on are at or above it.
    visible: Timestamp,
}

impl Views {
    /// Nobody reads; `visible` is where the next view opens.
    pub fn new(visible: Timestamp) -> Arc<Views> {
        Arc::new(Views {
            visible: AtomicU64::new(visible.0),
            live: Mutex::default(),
        })
    }

    /// Where a view would open now.
    pub fn visible(&self) -> Timestamp {
        Timestamp(self.visible.load(SeqCst))
    }

    /// Everything up to `at` is applied: new views see it. Never goes back.
    pub fn advance(&self, at: Timestamp) {
        self.visible.fetch_max(at.0, SeqCst);
    }

    /// A view of now.
    pub fn open(self: &Arc<Self>) -> View {
        let mut live = self.live.lock();
        let at = self.visible();
        *live.entry(at).or_default() += 1;
        View {
            views: self.clone(),
            at,
        }
    }

    /// The oldest view that is alive; the visible timestamp if there is none.
    pub fn oldest(&self) -> Timestamp {
        let visible = self.visible();
        match self.live.lock().first_key_value() {
            Some((at, _)) => visible.min(*at),
            None => visible,
        }
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        self.live.lock().values().sum()
    }

    /// Which versions are needed now. What is not needed now never will be.
    pub fn needed(&self) -> Needed {
        let visible = self.visible();
        let live = self.live.lock();
        Needed {
            live: live.keys().copied().collect(),
            visible,
        }
    }
}

impl View {
    /// What it sees: everything up to here.
    pub fn timestamp(&self) -> Timestamp {
        self.at
    }
}

impl Clone for View {
    fn clone(&self) -> View {
        *self.views.live.lock().entry(self.at).or_default() += 1;
        View {
            views: self.views.clone(),
            at: self.at,
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let mut live = self.views.live.lock();
        if let Some(n) = live.get_mut(&self.at) {
            *n -= 1;
            if *n == 0 {
                live.remove(&self.at);
            }
        }
    }
}

impl Needed {
    /// Views opened from now on are at or above it.
    pub fn visible(&self) -> Timestamp {
        self.visible
    }

    /// True if somebody may read the version written at `at` whose next newer version was written
    /// at `successor` (`None`: it is the newest).
    pub fn version(&self, at: Timestamp, successor: Option<Timestamp>) -> bool {
        let Some(successor) = successor else {
            return true;
        };
        if successor > self.visible {
            return true;
        }
        let next = self.live.partition_point(|v| *v < at);
        self.live.get(next).is_some_and(|v| *v < successor)
    }

    /// True if nobody sees anything older than `at`: a deletion at or below it, with nothing
    /// older beneath, says nothing to anybody.
    pub fn nobody_before(&self, at: Timestamp) -> bool {
        at <= self.visible && self.live.first().is_none_or(|v| *v >= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_needed_by_who_can_read_it() {
        let views = Views::new(Timestamp(10));
        let old = views.open();
        views.advance(Timestamp(20));
        let needed = views.needed();
        let is = |at, next| needed.version(Timestamp(at), Some(Timestamp(next)));
        assert!(is(5, 11) && is(10, 15) && !is(11, 15) && !is(2, 10) && is(11, 21));
        assert!(needed.version(Timestamp(3), None));
        assert!(!needed.nobody_before(Timestamp(11)) && needed.nobody_before(Timestamp(10)));
        assert!(!needed.nobody_before(Timestamp(21)));
        let twin = old.clone();
        drop(old);
        assert_eq!((views.oldest(), views.count()), (Timestamp(10), 1));
        drop(twin);
        assert_eq!((views.oldest(), views.count()), (Timestamp(20), 0));
        assert!(!views.needed().version(Timestamp(10), Some(Timestamp(15))));
        views.advance(Timestamp(15));
        assert_eq!(views.visible(), Timestamp(20));
    }
}
