//! Views: the timestamps at which there are readers.
//!
//! A view is opened at the visible timestamp: everything up to it is applied, and nothing after it is seen.
//! Writers and compactions ask which versions a view may still read.
//!
//! A store that must be able to open views of the past, as at the commit point of a replica set, calls
//! [`Views::keep_from`]: from then on no version is dropped that a view at or above that *floor* could read.
//! Future views can read from the *horizon* on, which is the floor, or the visible timestamp if there is no
//! floor.
//!
//! Views are in lists by the thread that opened them, so that threads on different cores do not wait for each
//! other when they open one.
//!
//! Invariant: a thread that reads the horizon *first* and then a list knows of every view in the list below
//! that timestamp, and views that are opened later are at or above it. The reason is that a view of the
//! present reads its timestamp while its list is locked, when the list's bound, which is read without the
//! lock, is already at or below the visible timestamp; and a view of the past is in its list before it checks
//! whether the horizon still admits it.

use muniment_io::{Spread, Timestamp, spread};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// All live views, and the visible timestamp.
#[derive(Default)]
pub struct Views {
    visible: spread::CachePadded<AtomicU64>,
    floor: spread::CachePadded<Floor>,
    live: Spread<List>,
    /// The timestamps from which transactions look back, each with the number of those transactions.
    writers: Mutex<BTreeMap<Timestamp, usize>>,
}

/// The range in which views of the past may be opened. It is read before versions are dropped, and by threads
/// that open such a view.
struct Floor {
    /// The versions that views at or above this timestamp could read are kept; [`NOBODY`] if there is no
    /// floor.
    keep: AtomicU64,
    /// The visible timestamp when the floor was set. Versions for older views may have been dropped before.
    since: AtomicU64,
    /// Held while one of the two is changed.
    change: Mutex<()>,
}

impl Default for Floor {
    fn default() -> Floor {
        Floor {
            keep: AtomicU64::new(NOBODY),
            since: AtomicU64::new(NOBODY),
            change: Mutex::default(),
        }
    }
}

/// The views of one place.
struct List {
    /// No view of the list is below this timestamp; [`NOBODY`] if the list is empty.
    bound: AtomicU64,
    /// The timestamps of the views, ascending, each with the number of views.
    all: Mutex<Vec<(Timestamp, usize)>>,
}

/// Stands for a timestamp after all others.
const NOBODY: u64 = u64::MAX;

impl Default for List {
    fn default() -> List {
        List {
            bound: AtomicU64::new(NOBODY),
            all: Mutex::default(),
        }
    }
}

/// A view. Until it is dropped, reads at [`View::timestamp`] find the data as of that time.
pub struct View {
    views: Arc<Views>,
    at: Timestamp,
    /// The place whose list has the view.
    place: usize,
}

/// A view for a short time, which costs less.
pub struct Glance<'v> {
    views: &'v Views,
    at: Timestamp,
    place: usize,
}

/// A writer that reads by a view and writes later, unless another one has written to the keys meanwhile.
/// Until this is dropped, a key that was put and deleted again in the meantime does not vanish: see
/// [`Trees::changed`](crate::Trees::changed).
pub struct Writing {
    views: Arc<Views>,
    from: Timestamp,
}

/// Tells which versions are still needed, as of one moment: see [`Views::needed`].
#[derive(Clone, Debug)]
pub struct Needed {
    /// The live views, ascending.
    live: Vec<Timestamp>,
    /// Views that are opened from now on are at or above this timestamp.
    horizon: Timestamp,
    /// A [`Writing`] needs the deletions from this timestamp on; [`Timestamp::MAX`] if none does.
    writers: Timestamp,
}

impl List {
    /// Enters a view of the present, and returns its timestamp.
    fn enter(&self, visible: &AtomicU64) -> Timestamp {
        let mut all = self.all.lock();
        if all.is_empty() {
            self.bound.store(visible.load(SeqCst), SeqCst);
            if cfg!(test) {
                // In tests, other threads should run here.
                std::thread::yield_now();
            }
        }
        let at = Timestamp(visible.load(SeqCst));
        add(&mut all, at);
        at
    }

    /// Enters a view of the past. It does not count as one yet: see [`Views::open_at`].
    fn enter_at(&self, at: Timestamp) {
        let mut all = self.all.lock();
        add(&mut all, at);
        let first = all.first().map_or(NOBODY, |(at, _)| at.0);
        self.bound.fetch_min(first, SeqCst);
    }

    /// Enters one more view at the timestamp of a live view, if there is one.
    fn join(&self, at: Timestamp) -> bool {
        let mut all = self.all.lock();
        let found = all.binary_search_by_key(&at, |(at, _)| *at).is_ok();
        if found {
            add(&mut all, at);
        }
        found
    }

    /// Enters one more view at the timestamp of a live view.
    fn again(&self, at: Timestamp) {
        add(&mut self.all.lock(), at);
    }

    fn leave(&self, at: Timestamp) {
        let mut all = self.all.lock();
        if let Ok(i) = all.binary_search_by_key(&at, |(at, _)| *at) {
            all[i].1 -= 1;
            if all[i].1 == 0 {
                all.remove(i);
                let first = all.first().map_or(NOBODY, |(at, _)| at.0);
                self.bound.store(first, SeqCst);
            }
        }
    }
}

fn add(all: &mut Vec<(Timestamp, usize)>, at: Timestamp) {
    match all.binary_search_by_key(&at, |(at, _)| *at) {
        Ok(i) => all[i].1 += 1,
        Err(i) => all.insert(i, (at, 1)),
    }
}

impl Views {
    /// No open views. The next view opens at `visible`.
    pub fn new(visible: Timestamp) -> Arc<Views> {
        Arc::new(Views {
            visible: spread::CachePadded(AtomicU64::new(visible.0)),
            floor: spread::CachePadded::default(),
            live: Spread::default(),
            writers: Mutex::default(),
        })
    }

    /// The timestamp at which a view would open now.
    pub fn visible(&self) -> Timestamp {
        Timestamp(self.visible.0.load(SeqCst))
    }

    /// Makes everything up to `at`, which must be applied, visible to new views. The visible timestamp never
    /// goes back.
    pub fn advance(&self, at: Timestamp) {
        self.visible.0.fetch_max(at.0, SeqCst);
    }

    /// Keeps the versions that views at or above `at` can read from now on. The floor only rises.
    /// [`Timestamp::MAX`] removes it; then only the versions that live views read are kept.
    pub fn keep_from(&self, at: Timestamp) {
        let floor = &self.floor.0;
        let _alone = floor.change.lock();
        let kept = floor.keep.load(SeqCst);
        if at == Timestamp::MAX {
            floor.since.store(NOBODY, SeqCst);
            floor.keep.store(NOBODY, SeqCst);
        } else if kept == NOBODY {
            floor.keep.store(at.0, SeqCst);
            // A thread that has read the horizon before, and drops versions by it, has read the visible
            // timestamp before the floor, so its horizon is not above this one.
            floor.since.store(self.visible().0, SeqCst);
        } else {
            floor.keep.store(kept.max(at.0), SeqCst);
        }
    }

    /// Views that are opened from now on are at or above this timestamp.
    pub fn horizon(&self) -> Timestamp {
        // The order of the two reads matters: see `keep_from`.
        let visible = self.visible();
        visible.min(Timestamp(self.floor.0.keep.load(SeqCst)))
    }

    /// Opens a view at a timestamp from the floor up to the visible one, or at that of a live view. `None` if
    /// its versions may have been dropped, or it is not visible yet.
    pub fn open_at(self: &Arc<Self>, at: Timestamp) -> Option<View> {
        if at > self.visible() {
            return None;
        }
        let place = spread::place(usize::MAX);
        self.live.at(place).enter_at(at);
        // A thread that drops versions from now on knows of this view.
        let view = View {
            views: self.clone(),
            at,
            place,
        };
        let floor = &self.floor.0;
        let since = Timestamp(floor.since.load(SeqCst));
        if at >= self.visible() || (at >= since && at >= self.horizon()) {
            return Some(view);
        }
        drop(view);
        let mut lists = self.live.iter().enumerate();
        let (place, _) = lists.find(|(_, list)| list.join(at))?;
        Some(View {
            views: self.clone(),
            at,
            place,
        })
    }

    /// Puts a view of the present into the calling thread's list. Returns its timestamp and the place of the
    /// list.
    fn enter(&self) -> (Timestamp, usize) {
        let place = spread::place(usize::MAX);
        (self.live.at(place).enter(&self.visible.0), place)
    }

    fn leave(&self, at: Timestamp, place: usize) {
        self.live.at(place).leave(at);
    }

    /// Opens a view of the present.
    pub fn open(self: &Arc<Self>) -> View {
        let (at, place) = self.enter();
        View {
            views: self.clone(),
            at,
            place,
        }
    }

    /// Opens a view of the present for a short time.
    pub fn glance(&self) -> Glance<'_> {
        let (at, place) = self.enter();
        Glance {
            views: self,
            at,
            place,
        }
    }

    /// A timestamp below which no view reads: approximately that of the oldest live view, or the horizon if
    /// there is none.
    pub fn oldest(&self) -> Timestamp {
        let horizon = self.horizon();
        let bounds = self.live.iter().map(|list| list.bound.load(SeqCst));
        bounds.map(Timestamp).fold(horizon, Timestamp::min)
    }

    /// The number of open views.
    pub fn count(&self) -> usize {
        let count = |list: &List| list.all.lock().iter().map(|(_, n)| n).sum::<usize>();
        self.live.iter().map(count).sum()
    }

    /// Tells which versions are needed now. A version that is not needed now will never be needed.
    pub fn needed(&self) -> Needed {
        let horizon = self.horizon();
        let mut live = Vec::new();
        for list in self.live.iter() {
            if list.bound.load(SeqCst) != NOBODY {
                live.extend(list.all.lock().iter().map(|(at, _)| *at));
            }
        }
        live.sort_unstable();
        live.dedup();
        // This is read after the horizon: a writer that comes later looks back to no earlier than the
        // horizon.
        let writers = self.writers.lock().keys().next().copied();
        Needed {
            live,
            horizon,
            writers: writers.unwrap_or(Timestamp::MAX),
        }
    }

    /// Begins to look back, for a view that is opened after this call, or for an older one at `at`.
    pub fn writing(self: &Arc<Self>, at: Option<Timestamp>) -> Writing {
        let mut writers = self.writers.lock();
        let visible = self.visible();
        let from = at.map_or(visible, |at| at.min(visible));
        *writers.entry(from).or_default() += 1;
        Writing {
            views: self.clone(),
            from,
        }
    }
}

impl Glance<'_> {
    /// The view sees everything up to this timestamp.
    pub fn timestamp(&self) -> Timestamp {
        self.at
    }
}

impl Drop for Glance<'_> {
    fn drop(&mut self) {
        self.views.leave(self.at, self.place);
    }
}

impl View {
    /// The view sees everything up to this timestamp.
    pub fn timestamp(&self) -> Timestamp {
        self.at
    }
}

impl Clone for View {
    fn clone(&self) -> View {
        self.views.live.at(self.place).again(self.at);
        View {
            views: self.views.clone(),
            ..*self
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.views.leave(self.at, self.place);
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut writers = self.views.writers.lock();
        if let Some(n) = writers.get_mut(&self.from) {
            *n -= 1;
            if *n == 0 {
                writers.remove(&self.from);
            }
        }
    }
}

impl Needed {
    /// True if no [`Writing`] looks back from before `at`.
    pub fn no_writer_before(&self, at: Timestamp) -> bool {
        at <= self.writers
    }

    /// Views that are opened from now on are at or above this timestamp.
    pub fn horizon(&self) -> Timestamp {
        self.horizon
    }

    /// True if a view may read the version written at `at` whose next newer version was written at
    /// `successor` (`None`: it is the newest).
    pub fn version(&self, at: Timestamp, successor: Option<Timestamp>) -> bool {
        let Some(successor) = successor else {
            return true;
        };
        if successor > self.horizon {
            return true;
        }
        let next = self.live.partition_point(|v| *v < at);
        self.live.get(next).is_some_and(|v| *v < successor)
    }

    /// True if no view sees anything older than `at`. A deletion at or below `at` with nothing older beneath
    /// then changes no view's result.
    pub fn nobody_before(&self, at: Timestamp) -> bool {
        at <= self.horizon && self.live.first().is_none_or(|v| *v >= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_needed_by_views_that_can_read_it() {
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

    #[test]
    fn views_of_the_past_open_from_the_floor_on() {
        let views = Views::new(Timestamp(10));
        let at = |n| views.open_at(Timestamp(n)).map(|v| v.timestamp().0);
        // Without a floor, views open at the present and at the timestamps of live views.
        assert_eq!((at(9), at(10), at(11)), (None, Some(10), None));
        let old = views.open();
        views.advance(Timestamp(20));
        assert_eq!(
            (at(9), at(10), at(15), at(20)),
            (None, Some(10), None, Some(20))
        );
        views.keep_from(Timestamp(12));
        // Versions that were dropped before are not available for it.
        assert_eq!((at(15), at(20), at(10)), (None, Some(20), Some(10)));
        drop(old);
        assert_eq!(
            (views.oldest(), views.horizon()),
            (Timestamp(12), Timestamp(12))
        );
        views.advance(Timestamp(40));
        assert_eq!(
            (at(10), at(19), at(25), at(40)),
            (None, None, Some(25), Some(40))
        );
        let needed = views.needed();
        assert!(needed.version(Timestamp(3), Some(Timestamp(13))));
        assert!(!needed.version(Timestamp(3), Some(Timestamp(12))));
        assert!(!needed.nobody_before(Timestamp(13)) && needed.nobody_before(Timestamp(12)));
        let held = views.open_at(Timestamp(25));
        views.keep_from(Timestamp(30));
        views.keep_from(Timestamp(21));
        assert_eq!((at(29), at(30), at(25)), (None, Some(30), Some(25)));
        assert_eq!(views.oldest(), Timestamp(25));
        assert!(views.needed().version(Timestamp(20), Some(Timestamp(26))));
        drop(held);
        assert_eq!((at(25), views.oldest()), (None, Timestamp(30)));
        views.keep_from(Timestamp::MAX);
        assert_eq!(
            (at(30), views.oldest(), views.count()),
            (None, Timestamp(40), 0)
        );
    }

    /// A thread that drops versions below the oldest view must never overlook a view.
    #[test]
    fn no_view_is_overlooked_while_it_opens() {
        use std::sync::atomic::AtomicBool;
        let views = Views::new(Timestamp(1));
        let (given_up, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|s| {
            s.spawn(|| {
                let began = std::time::Instant::now();
                for at in 2.. {
                    views.advance(Timestamp(at));
                    if at % 64 == 0 && began.elapsed().as_millis() > 300 {
                        break;
                    }
                }
                stop.store(true, SeqCst);
            });
            for by_list in [true, false] {
                let (views, given_up, stop) = (&views, &given_up, &stop);
                s.spawn(move || {
                    while !stop.load(SeqCst) {
                        let oldest = match by_list {
                            true => {
                                let needed = views.needed();
                                let first = needed.live.first().copied();
                                first.unwrap_or(needed.horizon).min(needed.horizon)
                            }
                            false => views.oldest(),
                        };
                        given_up.fetch_max(oldest.0, SeqCst);
                    }
                });
            }
            for glances in [true, false, true] {
                let (views, given_up, stop) = (&views, &given_up, &stop);
                s.spawn(move || {
                    let mut held = Vec::new();
                    while !stop.load(SeqCst) {
                        if glances {
                            let view = views.glance();
                            assert!(given_up.load(SeqCst) <= view.timestamp().0);
                            continue;
                        }
                        held.push(views.open());
                        held.push(held[held.len() / 2].clone());
                        for view in &held {
                            assert!(given_up.load(SeqCst) <= view.timestamp().0);
                        }
                        if held.len() > 8 {
                            held.drain(..5);
                        }
                    }
                });
            }
        });
        assert_eq!(views.count(), 0);
        assert_eq!(views.oldest(), views.visible());
    }
}
