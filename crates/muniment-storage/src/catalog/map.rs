//! The collections by their names, their databases, their ids and their UUIDs.
//!
//! Every look-up and every change takes the same time however many collections there are, and a
//! question about one database looks at that database alone.
//!
//! Invariant: all maps hold the same collections, each under the name that it has. They change
//! together under the catalog's lock.

use crate::collection::Collection;
use crate::store::db_of;
use foldhash::HashMap;
use muniment_io::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The collections.
#[derive(Default)]
pub(crate) struct Collections {
    names: HashMap<Arc<str>, Arc<Collection>>,
    ids: HashMap<u32, Arc<Collection>>,
    /// The id is part of the key, since a damaged catalog may have a UUID twice.
    uuids: BTreeSet<([u8; 16], u32)>,
    databases: BTreeMap<Box<str>, Database>,
    /// The names of databases by their case-folded form. There is more than one name for a form
    /// only if another version or another member made them: `create` refuses them.
    folded: HashMap<Box<str>, Vec<Box<str>>>,
    lost: Lost,
}

/// One database.
#[derive(Default)]
struct Database {
    /// By full name.
    collections: BTreeMap<Arc<str>, Arc<Collection>>,
    kinds: Kinds,
}

/// How many collections of each kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// All of them.
    pub all: usize,
    /// Capped ones.
    pub capped: usize,
    /// Those created with `clusteredIndex`.
    pub clustered: usize,
    /// Time series.
    pub series: usize,
}

impl Kinds {
    fn of(collection: &Collection) -> Kinds {
        Kinds {
            all: 1,
            capped: usize::from(collection.is_capped()),
            clustered: usize::from(collection.is_keyed_by_id()),
            series: usize::from(collection.is_time_series()),
        }
    }

    fn each(&mut self, other: Kinds, change: impl Fn(usize, usize) -> usize) {
        self.all = change(self.all, other.all);
        self.capped = change(self.capped, other.capped);
        self.clustered = change(self.clustered, other.clustered);
        self.series = change(self.series, other.series);
    }
}

/// When collections last lost their names. A name is kept here for as long as some view is older
/// than its loss.
#[derive(Default)]
struct Lost {
    names: HashMap<String, Timestamp>,
    /// The same in the order in which it was noted, so that the oldest are found first.
    order: VecDeque<(Timestamp, String)>,
}

impl Lost {
    fn note(&mut self, name: &str, at: Timestamp, oldest: Timestamp) {
        while self.order.front().is_some_and(|(lost, _)| *lost <= oldest) {
            // Another collection may have had the name and lost it since.
            if let Some((lost, name)) = self.order.pop_front()
                && self.names.get(&name).is_some_and(|newest| *newest <= lost)
            {
                self.names.remove(&name);
            }
        }
        self.names.insert(name.to_string(), at);
        self.order.push_back((at, name.to_string()));
    }
}

impl Collections {
    /// The collection with this name.
    #[inline]
    pub fn by_name(&self, namespace: &str) -> Option<Arc<Collection>> {
        self.names.get(namespace).cloned()
    }

    /// The collection with this id.
    pub fn by_id(&self, id: u32) -> Option<Arc<Collection>> {
        self.ids.get(&id).cloned()
    }

    /// The collections with this UUID: one, unless a catalog entry is damaged.
    pub fn by_uuid(&self, uuid: [u8; 16]) -> impl Iterator<Item = &Arc<Collection>> {
        let all = self.uuids.range((uuid, 0)..=(uuid, u32::MAX));
        all.filter_map(|(_, id)| self.ids.get(id))
    }

    /// All collections.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.names.values()
    }

    /// The names of the databases that have a collection, ascending.
    pub fn databases(&self) -> impl Iterator<Item = &str> {
        self.databases.keys().map(|name| &**name)
    }

    /// The collections of a database by name, ascending.
    pub fn collections(&self, db: &str) -> impl Iterator<Item = &Arc<Collection>> {
        let all = self.databases.get(db).map(|db| db.collections.values());
        all.into_iter().flatten()
    }

    /// What kinds of collections a database has.
    pub fn kinds(&self, db: &str) -> Kinds {
        self.databases
            .get(db)
            .map(|db| db.kinds)
            .unwrap_or_default()
    }

    /// The database whose name differs from this one by case alone, if there is one.
    pub fn other_case(&self, db: &str) -> Option<&str> {
        let all = self.folded.get(&*db.to_ascii_lowercase())?;
        all.iter().map(|name| &**name).find(|name| *name != db)
    }

    /// True if a collection has lost this name after `at`.
    pub fn lost_since(&self, namespace: &str, at: Timestamp) -> bool {
        let lost = self.lost.names.get(namespace);
        lost.is_some_and(|lost| *lost > at)
    }

    /// Notes that a name was lost at `at`, and forgets the losses that every view is younger than
    /// (`oldest` is the time of the oldest view).
    pub fn note_lost(&mut self, namespace: &str, at: Timestamp, oldest: Timestamp) {
        self.lost.note(namespace, at, oldest);
    }

    /// Enters a collection under this name, and takes it from the name that it had. `at`, `oldest`:
    /// as for [`Collections::note_lost`].
    pub fn set(
        &mut self,
        namespace: &str,
        collection: &Arc<Collection>,
        at: Timestamp,
        oldest: Timestamp,
    ) {
        let old = collection.name();
        if *old != *namespace {
            self.take(&old, collection, at, oldest);
        }
        let name: Arc<str> = match *old == *namespace {
            true => old,
            false => namespace.into(),
        };
        self.names.insert(name.clone(), collection.clone());
        self.ids.insert(collection.id, collection.clone());
        self.uuids.insert((collection.uuid(), collection.id));
        let db = db_of(namespace);
        if !self.databases.contains_key(db) {
            self.databases.insert(db.into(), Database::default());
            let folded = db.to_ascii_lowercase().into();
            self.folded.entry(folded).or_default().push(db.into());
        }
        if let Some(db) = self.databases.get_mut(db) {
            let replaced = db.collections.insert(name, collection.clone());
            if let Some(replaced) = replaced {
                db.kinds.each(Kinds::of(&replaced), |n, less| n - less);
            }
            db.kinds.each(Kinds::of(collection), |n, more| n + more);
        }
    }

    /// Removes a collection from all maps.
    pub fn remove(&mut self, collection: &Arc<Collection>, at: Timestamp, oldest: Timestamp) {
        self.take(&collection.name(), collection, at, oldest);
        self.ids.remove(&collection.id);
        self.uuids.remove(&(collection.uuid(), collection.id));
    }

    /// Removes a name, if it is this collection's: another one may have taken it in the same
    /// change.
    fn take(&mut self, name: &str, collection: &Arc<Collection>, at: Timestamp, oldest: Timestamp) {
        let held = self.names.get(name);
        if !held.is_some_and(|c| Arc::ptr_eq(c, collection)) {
            return;
        }
        self.names.remove(name);
        self.note_lost(name, at, oldest);
        let db_name = db_of(name);
        let Some(db) = self.databases.get_mut(db_name) else {
            return;
        };
        if db.collections.remove(name).is_some() {
            db.kinds.each(Kinds::of(collection), |n, less| n - less);
        }
        if db.collections.is_empty() {
            self.databases.remove(db_name);
            let folded = db_name.to_ascii_lowercase();
            if let Some(all) = self.folded.get_mut(&*folded) {
                all.retain(|other| **other != *db_name);
                if all.is_empty() {
                    self.folded.remove(&*folded);
                }
            }
        }
    }
}
