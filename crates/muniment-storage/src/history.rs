//! The names that collections had. A record of the log has only the number of a collection, and its
//! readers, such as change streams, need the name of that time.
//!
//! Changes of names are written into `META` with every cut, like everything that is derived from the
//! commits. They are forgotten together with the records of the log that need them.

use crate::keys;
use muniment_io::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What a reader of the log learns of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// `db.collection`.
    pub namespace: String,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// The collection is a time series.
    pub time_series: bool,
}

/// Former names, by the collection and by the commit that ended them.
#[derive(Default)]
pub(crate) struct History {
    all: HashMap<u32, BTreeMap<Timestamp, Arc<Named>>>,
    /// The same in the order of the commits.
    order: BTreeSet<(Timestamp, u32)>,
    /// Those that are not in `META` yet.
    unsaved: Vec<(Timestamp, u32)>,
}

impl History {
    /// Notes that a collection had this name until the commit at `until`.
    pub fn ended(&mut self, id: u32, until: Timestamp, named: Named) {
        self.unsaved.push((until, id));
        self.put(id, until, named);
    }

    fn put(&mut self, id: u32, until: Timestamp, named: Named) {
        let names = self.all.entry(id).or_default();
        names.insert(until, Arc::new(named));
        self.order.insert((until, id));
    }

    fn get(&self, id: u32, until: Timestamp) -> Option<&Arc<Named>> {
        self.all.get(&id)?.get(&until)
    }

    /// The name that a collection had in the commit at `at`; `None` if it still has it.
    pub fn name(&self, id: u32, at: Timestamp) -> Option<Arc<Named>> {
        let after = std::ops::Bound::Excluded(at);
        let mut later = self
            .all
            .get(&id)?
            .range((after, std::ops::Bound::Unbounded));
        later.next().map(|(_, named)| named.clone())
    }

    /// The changes of `META`: the names that ended since the last call, and, without a value, the names
    /// that no record of the log needs any more, when the log begins after `begins`.
    pub fn save(&mut self, begins: Timestamp) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let unsaved = std::mem::take(&mut self.unsaved);
        let puts = unsaved.into_iter().filter_map(|(until, id)| {
            let named = self.get(id, until)?;
            Some((keys::past_name(id, until), Some(encode(named))))
        });
        let mut puts: Vec<_> = puts.collect();
        while let Some((until, id)) = self.order.first().copied().filter(|(t, _)| *t <= begins) {
            self.order.pop_first();
            puts.push((keys::past_name(id, until), None));
            if let Some(names) = self.all.get_mut(&id) {
                names.remove(&until);
                if names.is_empty() {
                    self.all.remove(&id);
                }
            }
        }
        puts
    }

    /// Takes up an entry that [`History::save`] has put; false if it is malformed.
    pub fn load(&mut self, key: &[u8], value: &[u8]) -> bool {
        let read = || {
            let (id, until) = keys::past_name_of(key)?;
            Some((id, until, decode(value)?))
        };
        let Some((id, until, named)) = read() else {
            return false;
        };
        self.put(id, until, named);
        true
    }
}

fn encode(named: &Named) -> Vec<u8> {
    let mut out = vec![u8::from(named.time_series)];
    out.extend_from_slice(&named.uuid);
    out.extend_from_slice(named.namespace.as_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<Named> {
    let (time_series, rest) = bytes.split_first()?;
    let (uuid, namespace) = rest.split_first_chunk()?;
    Some(Named {
        namespace: String::from_utf8(namespace.to_vec()).ok()?,
        uuid: *uuid,
        time_series: *time_series != 0,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn named(namespace: &str) -> Named {
        Named {
            namespace: namespace.into(),
            uuid: [7; 16],
            time_series: namespace.ends_with('t'),
        }
    }

    #[test]
    fn names_are_those_of_their_time() {
        let mut h = History::default();
        h.ended(5, Timestamp(10), named("a.b"));
        h.ended(5, Timestamp(20), named("a.t"));
        h.ended(6, Timestamp(15), named("x.y"));
        let name = |h: &History, id, at| h.name(id, Timestamp(at)).map(|n| n.namespace.clone());
        assert_eq!(name(&h, 5, 9).unwrap(), "a.b");
        assert_eq!(name(&h, 5, 10).unwrap(), "a.t");
        assert_eq!(name(&h, 5, 20), None);
        assert_eq!(
            (name(&h, 6, 14).unwrap(), name(&h, 6, 15)),
            ("x.y".into(), None)
        );
        let saved = h.save(Timestamp::ZERO);
        assert_eq!(saved.len(), 3);
        let mut again = History::default();
        for (key, value) in &saved {
            assert!(again.load(key, value.as_ref().unwrap()));
        }
        assert!(!again.load(b"h", b""));
        assert_eq!(again.name(5, Timestamp(12)), h.name(5, Timestamp(12)));
        // Nothing new; the log begins after 15.
        let gone = again.save(Timestamp(15));
        assert_eq!(gone.iter().filter(|(_, v)| v.is_none()).count(), 2);
        assert_eq!(again.name(6, Timestamp(1)), None);
        assert_eq!(name(&again, 5, 12).unwrap(), "a.t");
    }
}
