//! The catalog in memory: the collections, the names that they had before, and the next free id.
//!
//! Invariants: a collection's name and the list of past names change together, under the lock of
//! the collections, so that a reader that holds the lock finds the name at any commit in one of the
//! two. Names change only while the changing thread holds `naming`; recovery and a follower, which
//! apply what was decided elsewhere, need not. No id is given out twice.

use super::accounts::AccountsWatch;
use super::map::Collections;
use crate::collection::Collection;
use crate::hints::Hints;
use crate::history::{History, Named};
use crate::worklists::Worklists;
use muniment_io::{SpreadLock, Timestamp};
use muniment_op::Lock;
use muniment_value::{Error, Result};
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// The collections and their names, with what is found through them.
pub(crate) struct Catalog {
    collections: SpreadLock<Collections>,
    /// Held while names of collections change.
    pub naming: Lock<()>,
    /// Names that collections had.
    past: Mutex<History>,
    /// The next id of a collection or an index, which is its tree's id too.
    next_id: AtomicU32,
    /// The record numbers at which `_id`s were found last.
    pub hints: Arc<Hints>,
    /// Which collections have background work waiting.
    pub lists: Arc<Worklists>,
    /// The collections of users and roles.
    pub accounts: AccountsWatch,
}

impl Default for Catalog {
    fn default() -> Catalog {
        Catalog {
            collections: SpreadLock::default(),
            naming: Lock::new(()),
            past: Mutex::default(),
            next_id: AtomicU32::new(1),
            hints: Arc::default(),
            lists: Arc::default(),
            accounts: AccountsWatch::default(),
        }
    }
}

impl Catalog {
    /// The collections. They do not change while the result lives, so it must not be kept for long.
    #[inline]
    pub fn read(&self) -> impl Deref<Target = Collections> {
        self.collections.read()
    }

    /// All collections, in no order.
    pub fn all(&self) -> Vec<Arc<Collection>> {
        self.read().all().cloned().collect()
    }

    /// The collections with these ids, without those that do not exist any more.
    pub fn those(&self, ids: Vec<u32>) -> Vec<Arc<Collection>> {
        let collections = self.read();
        ids.into_iter()
            .filter_map(|id| collections.by_id(id))
            .collect()
    }

    /// An id that was never given out before.
    ///
    /// # Errors
    /// 1 if they are used up.
    pub fn fresh_id(&self) -> Result<u32> {
        let id = self.next_id.fetch_add(1, SeqCst);
        if id >= u32::MAX - 1 {
            return Err(Error::internal("collection and index ids are used up"));
        }
        Ok(id)
    }

    /// The id that is given next.
    pub fn next_id(&self) -> u32 {
        self.next_id.load(SeqCst)
    }

    /// Takes note that all ids below `next` were given out.
    pub fn gave_ids_below(&self, next: u32) {
        self.next_id.fetch_max(next, SeqCst);
    }

    /// Enters a collection that the commit at `at` makes; `oldest` is the time of the oldest view.
    pub fn add(&self, collection: &Arc<Collection>, at: Timestamp, oldest: Timestamp) {
        let mut collections = self.collections.write();
        collections.set(&collection.name(), collection, at, oldest);
        self.accounts
            .look_at(|name| collections.by_name(name).map(|c| c.id));
    }

    /// Gives a collection another name from the commit at `at` on; `oldest` is the time of the
    /// oldest view.
    pub fn rename(
        &self,
        collection: &Arc<Collection>,
        namespace: &str,
        at: Timestamp,
        oldest: Timestamp,
    ) {
        let mut collections = self.collections.write();
        self.past
            .lock()
            .ended(collection.id, at, collection.named());
        collection.set_named_since(at);
        collections.set(namespace, collection, at, oldest);
        collection.set_namespace(namespace);
        self.accounts
            .look_at(|name| collections.by_name(name).map(|c| c.id));
    }

    /// Removes a collection that the commit at `at` drops; `oldest` is the time of the oldest view.
    pub fn remove(&self, collection: &Arc<Collection>, at: Timestamp, oldest: Timestamp) {
        let mut collections = self.collections.write();
        collections.remove(collection, at, oldest);
        self.accounts
            .look_at(|name| collections.by_name(name).map(|c| c.id));
        self.past
            .lock()
            .ended(collection.id, at, collection.named());
    }

    /// Notes that a view, which is no collection by itself, has lost its name by `at`.
    pub fn note_lost(&self, namespace: &str, at: Timestamp, oldest: Timestamp) {
        self.collections.write().note_lost(namespace, at, oldest);
    }

    /// The name that a collection had at the commit at `at`. `None` if no collection has had this
    /// id.
    pub fn name_at(&self, id: u32, at: Timestamp) -> Option<Arc<Named>> {
        let collections = self.read();
        if let Some(past) = self.past.lock().name(id, at) {
            return Some(past);
        }
        collections.by_id(id).map(|c| Arc::new(c.named()))
    }

    /// See [`History::save`].
    pub fn save_past(&self, begins: Timestamp) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        self.past.lock().save(begins)
    }

    /// See [`History::load`].
    pub fn load_past(&self, key: &[u8], value: &[u8]) -> bool {
        self.past.lock().load(key, value)
    }
}
