//! The lists of a collection's indexes: read by every write and every plan, changed by DDL alone.
//!
//! Taking a list counts a reference, and a counter that all cores change travels between their caches.
//! So a collection that is read often has several copies of the list, each for some of the threads. Most
//! of very many collections are not read often; these have one list, which takes little memory.

use crate::collection::PLACES;
use crate::index::Index;
use muniment_io::spread::{CachePadded, Spread, SpreadLock};
use parking_lot::RwLock;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// After this many reads a collection gets several copies of its list.
const OFTEN: u32 = 64;

/// The indexes of a collection at one time.
#[derive(Clone)]
pub struct IndexList(Held);

#[derive(Clone)]
enum Held {
    One(Arc<[Arc<Index>]>),
    /// A copy on cache lines of its own.
    OfPlace(Arc<CachePadded<Vec<Arc<Index>>>>),
}

impl IndexList {
    fn of_place(&self) -> IndexList {
        IndexList(Held::OfPlace(Arc::new(CachePadded(self.to_vec()))))
    }
}

impl Deref for IndexList {
    type Target = [Arc<Index>];

    #[inline]
    fn deref(&self) -> &[Arc<Index>] {
        match &self.0 {
            Held::One(list) => list,
            Held::OfPlace(list) => list,
        }
    }
}

impl Default for IndexList {
    fn default() -> IndexList {
        IndexList(Held::One(Arc::default()))
    }
}

impl FromIterator<Arc<Index>> for IndexList {
    fn from_iter<I: IntoIterator<Item = Arc<Index>>>(all: I) -> IndexList {
        IndexList(Held::One(all.into_iter().collect()))
    }
}

/// The two lists of one time.
#[derive(Clone, Default)]
struct Both {
    /// Includes indexes that are being built, because writers maintain them.
    all: IndexList,
    ready: IndexList,
}

/// The lists as they are now.
#[derive(Default)]
pub(crate) struct Indexes {
    now: RwLock<Both>,
    reads: AtomicU32,
    /// The copies. A reader makes them while it holds `now`, so that no change is missed.
    places: OnceLock<Box<SpreadLock<Spread<Both, PLACES>, PLACES>>>,
}

impl Indexes {
    /// The list of all indexes.
    #[inline]
    pub fn all(&self) -> IndexList {
        self.read(|both| &both.all)
    }

    /// The list of the indexes that can be read.
    #[inline]
    pub fn ready(&self) -> IndexList {
        self.read(|both| &both.ready)
    }

    #[inline]
    fn read(&self, which: impl Fn(&Both) -> &IndexList) -> IndexList {
        match self.places.get() {
            Some(places) => which(places.read().own()).clone(),
            None => {
                let both = self.now.read();
                if self.reads.fetch_add(1, Relaxed) >= OFTEN {
                    self.places
                        .get_or_init(|| Box::new(SpreadLock::new(spread(&both))));
                }
                which(&both).clone()
            }
        }
    }

    /// Changes the lists.
    pub fn set(&self, all: Vec<Arc<Index>>) {
        let is_ready = |i: &Arc<Index>| i.is_ready() && !i.is_damaged();
        let all: IndexList = all.into_iter().collect();
        let ready = match all.iter().all(is_ready) {
            true => all.clone(),
            false => all.iter().filter(|i| is_ready(i)).cloned().collect(),
        };
        let mut now = self.now.write();
        *now = Both { all, ready };
        if let Some(places) = self.places.get() {
            *places.write() = spread(&now);
        }
    }
}

fn spread(both: &Both) -> Spread<Both, PLACES> {
    Spread::of(|_| Both {
        all: both.all.of_place(),
        ready: both.ready.of_place(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::catalog::IndexSpec;
    use crate::multikey::Arrays;
    use muniment_value::doc;
    use std::sync::atomic::AtomicBool;

    fn index(id: u32, ready: bool) -> Arc<Index> {
        let name = format!("a_{id}");
        let d = doc! { "key": doc! { "a": 1 }, "name": name };
        let spec = Arc::new(IndexSpec::parse(d.as_doc()).unwrap());
        Arc::new(
            Index::new(
                id,
                spec,
                ready,
                &Arrays::default(),
                &muniment_op::NeverInterrupted,
            )
            .unwrap(),
        )
    }

    #[test]
    fn readers_see_every_change_however_often_they_read() {
        let indexes = Indexes::default();
        let ids = |list: IndexList| list.iter().map(|i| i.id).collect::<Vec<_>>();
        for round in 0..2 * OFTEN {
            let (a, b) = (2 * round, 2 * round + 1);
            indexes.set(vec![index(a, true), index(b, false)]);
            assert_eq!(ids(indexes.all()), [a, b]);
            assert_eq!(ids(indexes.ready()), [a]);
            assert_eq!(indexes.places.get().is_some(), 2 * round + 1 > OFTEN);
        }
    }

    /// After one thread has set the list, no other thread reads the former one, even while the copies
    /// are made.
    #[test]
    fn a_change_while_the_places_are_made_is_not_lost() {
        for _ in 0..50 {
            let indexes = Indexes::default();
            let stop = AtomicBool::new(false);
            std::thread::scope(|s| {
                for _ in 0..2 {
                    s.spawn(|| {
                        let mut last = 0;
                        while !stop.load(Relaxed) {
                            let now = indexes.all().first().map_or(0, |i| i.id);
                            assert!(now >= last, "{now} after {last}");
                            last = now;
                        }
                    });
                }
                for n in 1..20 {
                    indexes.set(vec![index(n, true)]);
                    assert_eq!(indexes.all()[0].id, n);
                }
                stop.store(true, Relaxed);
            });
        }
    }
}
