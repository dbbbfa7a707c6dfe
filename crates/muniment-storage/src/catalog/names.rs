//! The catalog in memory: which collections there are.

use crate::catalog::notes::entry_notes;
use crate::catalog::{Entry, IndexEntry};
use crate::collection::Collection;
use crate::commit::door::Opening;
use crate::commit::stage::Stage;
use crate::index::Index;
use crate::keys;
use crate::multikey::Arrays;
use crate::store::{Inner, damaged};
use bytes::Bytes;
use foldhash::HashMap;
use muniment_io::Timestamp;
use muniment_query::Interrupt;
use muniment_tree::{Direction, Range, TreeId};
use muniment_value::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// The collections by their names and by their ids.
#[derive(Default)]
pub(crate) struct Catalog {
    names: HashMap<String, Arc<Collection>>,
    ids: HashMap<u32, Arc<Collection>>,
    /// When a collection last lost a name, for as long as a view is older than that.
    lost: HashMap<String, Timestamp>,
}

/// A tree whose drop was committed.
#[derive(Clone, Copy)]
pub(crate) struct DroppedTree {
    pub tree: TreeId,
    /// When it was dropped.
    pub at: Timestamp,
    /// The trees were told that nobody reads it any more.
    pub given_up: bool,
}

impl Catalog {
    /// The collection with this name.
    pub fn by_name(&self, namespace: &str) -> Option<Arc<Collection>> {
        self.names.get(namespace).cloned()
    }

    /// The collection with this id.
    pub fn by_id(&self, id: u32) -> Option<Arc<Collection>> {
        self.ids.get(&id).cloned()
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.names.keys()
    }

    /// All collections.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.names.values()
    }

    /// True if a collection has lost this name after `at`.
    pub fn lost_since(&self, namespace: &str, at: Timestamp) -> bool {
        self.lost.get(namespace).is_some_and(|lost| *lost > at)
    }

    /// Notes a name that is lost at `at`, and forgets those that no view is older than.
    pub fn note_lost(&mut self, namespace: String, at: Timestamp, oldest: Timestamp) {
        self.lost.retain(|_, lost| *lost > oldest);
        self.lost.insert(namespace, at);
    }

    /// `at`, `oldest`: as for [`Catalog::note_lost`].
    fn set(
        &mut self,
        namespace: &str,
        collection: &Arc<Collection>,
        at: Timestamp,
        oldest: Timestamp,
    ) {
        let old = collection.namespace();
        let held = self.names.get(&old);
        if old != namespace && held.is_some_and(|c| Arc::ptr_eq(c, collection)) {
            self.names.remove(&old);
            self.note_lost(old, at, oldest);
        }
        self.names.insert(namespace.to_string(), collection.clone());
        self.ids.insert(collection.id, collection.clone());
    }

    fn remove(&mut self, collection: &Arc<Collection>, at: Timestamp, oldest: Timestamp) {
        let name = collection.namespace();
        let held = self.names.get(&name);
        if held.is_some_and(|c| Arc::ptr_eq(c, collection)) {
            self.names.remove(&name);
            self.note_lost(name, at, oldest);
        }
        self.ids.remove(&collection.id);
    }
}

impl Inner {
    /// Reads the catalog as the trees hold it: at open, before the log behind the cut is applied.
    pub fn load_catalog(&self) -> Result<()> {
        let meta = TreeId(keys::META);
        let path = &self.path;
        let newest = Timestamp::MAX;
        if let Some(v) = self.trees.get(meta, &keys::next_id(), newest)? {
            let id = <[u8; 4]>::try_from(&*v).map_err(|_| damaged(path, "next_id"))?;
            self.next_id.fetch_max(u32::from_le_bytes(id), SeqCst);
        }
        let with_tag = |tag: u8| {
            let range = Range {
                low: Bytes::from(vec![tag]),
                high: Some(Bytes::from(vec![tag + 1])),
            };
            self.trees.cursor(meta, range, newest, Direction::Forward)
        };
        let id_of = |key: &[u8]| {
            key.get(1..)
                .and_then(|k| <[u8; 4]>::try_from(k).ok())
                .map(u32::from_be_bytes)
                .ok_or_else(|| damaged(path, "the key of a catalog entry"))
        };
        let mut entries = with_tag(b'c');
        while let Some((key, value)) = entries.next()? {
            let id = id_of(&key)?;
            let entry = Entry::from_doc(muniment_value::validate(&value)?, path)?;
            let mut indexes = Vec::new();
            for i in &entry.indexes {
                let arrays = self.read_arrays(i.id)?;
                let index = Index::new(i.id, i.spec.clone(), i.ready, &arrays)?;
                indexes.push(Arc::new(index));
            }
            let c = self.publish_collection(id, entry, indexes, Timestamp::ZERO)?;
            let [docs, bytes, last] = self.read_totals(id)?;
            c.set_totals(docs, bytes);
            c.append().last = last;
        }
        let mut past = with_tag(b'h');
        while let Some((key, value)) = past.next()? {
            if !self.history.lock().load(&key, &value) {
                return Err(damaged(path, "a name that a collection had"));
            }
        }
        let mut pending = with_tag(b'd');
        while let Some((key, _)) = pending.next()? {
            // When it was dropped is not kept: not after the cut that holds the note.
            let tree = TreeId(id_of(&key)?);
            self.note_drop(tree, self.trees.persisted());
        }
        Ok(())
    }

    fn read_totals(&self, id: u32) -> Result<[u64; 3]> {
        let stored = self
            .trees
            .get(TreeId(keys::META), &keys::totals(id), Timestamp::MAX)?;
        Ok(totals_of(stored.as_deref()))
    }

    fn read_arrays(&self, index: u32) -> Result<Arrays> {
        let mut arrays = Arrays::default();
        let meta = TreeId(keys::META);
        let newest = Timestamp::MAX;
        if let Some(masks) = self.trees.get(meta, &keys::multikey(index), newest)? {
            let masks = masks.chunks_exact(8).filter_map(|c| c.try_into().ok());
            arrays.masks.extend(masks.map(u64::from_le_bytes));
        }
        let low = keys::array_path(index, "");
        let range = Range {
            high: muniment_value::keyenc::prefix_end(&low).map(Bytes::from),
            low: Bytes::from(low.clone()),
        };
        let mut paths = self.trees.cursor(meta, range, newest, Direction::Forward);
        while let Some((key, _)) = paths.next()? {
            let path = key.get(low.len()..).unwrap_or_default();
            let path = String::from_utf8_lossy(path).into_owned();
            arrays.paths.push(path);
        }
        Ok(arrays)
    }

    /// A fresh id.
    pub fn fresh_id(&self) -> Result<u32> {
        let id = self.next_id.fetch_add(1, SeqCst);
        if id >= u32::MAX - 1 {
            return Err(Error::internal("collection and index ids are used up"));
        }
        Ok(id)
    }

    /// The catalog entry of a collection, with these indexes.
    pub fn entry(collection: &Collection, indexes: &[Arc<Index>]) -> Entry {
        Entry {
            namespace: collection.namespace(),
            uuid: collection.uuid(),
            options: (*collection.options()).clone(),
            indexes: indexes
                .iter()
                .map(|i| IndexEntry {
                    id: i.id,
                    ready: i.is_ready(),
                    spec: (*i.spec()).clone(),
                })
                .collect(),
            pending: collection.is_pending(),
        }
    }

    /// The index handles of an entry: those that `held` has already, and new ones.
    ///
    /// # Errors
    /// What parsing a specification says.
    pub fn indexes_of(&self, held: Option<&Collection>, entry: &Entry) -> Result<Vec<Arc<Index>>> {
        let old = held.map(Collection::all_indexes).unwrap_or_default();
        entry
            .indexes
            .iter()
            .map(|i| match old.iter().find(|o| o.id == i.id) {
                Some(o) => Ok(o.clone()),
                // It becomes ready when it is published.
                None => Ok(Arc::new(Index::new(
                    i.id,
                    i.spec.clone(),
                    false,
                    &Arrays::default(),
                )?)),
            })
            .collect()
    }

    /// Commits a collection's entry as it is to be from now on. The caller has the collection's
    /// DDL lock and, where names change, that of the names, and has read what it goes by in this
    /// opening of the door.
    ///
    /// # Errors
    /// As a commit's.
    pub fn commit_entry(
        &self,
        id: u32,
        entry: Entry,
        drop: Option<&Arc<Collection>>,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Collection>> {
        self.check_open()?;
        let held = self.catalog.read().by_id(id);
        let indexes = self.indexes_of(held.as_deref(), &entry)?;
        // Without it its documents would be looked for under other keys.
        entry.options.collation()?;
        let mut stage = Stage::new(opening);
        if let Some(gone) = drop {
            stage.log.drop(gone.id);
            self.stage_drop_puts(&mut stage, gone);
        }
        let before = held.as_deref().map(|c| Inner::entry(c, &c.all_indexes()));
        for note in entry_notes(before.as_ref(), &entry, drop.map(|c| &**c)) {
            stage.log.note(note.as_doc());
        }
        let doc = entry.to_doc();
        let next_id = self.next_id.load(SeqCst);
        let logged = stage.log.collection(id, next_id, doc.as_bytes());
        self.stage_entry_puts(&mut stage, id, held.as_deref(), &entry, logged);
        let mut result = Err(Error::internal("the catalog was not changed"));
        let commit = self.commit(stage, interrupt, |at| {
            // In this order, so that a name that passes from one to the other is never nobody's.
            result = self.publish_collection(id, entry, indexes, at);
            if let Some(gone) = drop {
                self.publish_drop(gone, at);
            }
        })?;
        // DDL is rare and callers expect it to stay.
        self.log()?.wait_durable(commit.index, &|| Ok(()))?;
        result
    }

    /// Makes a collection what its entry says. The puts are in the trees, and not visible yet.
    pub fn publish_collection(
        &self,
        id: u32,
        entry: Entry,
        indexes: Vec<Arc<Index>>,
        at: Timestamp,
    ) -> Result<Arc<Collection>> {
        // Everything that was committed into a new index is visible by now.
        let since = self.trees.views().visible();
        for (index, i) in indexes.iter().zip(&entry.indexes) {
            if i.ready && index.complete_since().is_none() {
                index.set_ready(since);
            }
            if *index.spec() != i.spec {
                index.set_spec(i.spec.clone());
            }
        }
        let held = self.catalog.read().by_id(id);
        let collection = match held {
            Some(c) => {
                for gone in c.all_indexes().iter() {
                    if !indexes.iter().any(|i| i.id == gone.id) {
                        gone.set_dropped();
                        self.give_up(gone.id, at);
                    }
                }
                if *c.options() != entry.options {
                    c.set_options(entry.options);
                }
                c.set_indexes(indexes);
                if !entry.pending {
                    c.claim();
                }
                let oldest = self.trees.views().oldest();
                let mut catalog = self.catalog.write();
                let renamed = c.namespace() != entry.namespace;
                if renamed {
                    self.history.lock().ended(id, at, c.named());
                    c.set_named_since(at);
                }
                catalog.set(&entry.namespace, &c, at, oldest);
                if renamed {
                    c.set_namespace(&entry.namespace);
                }
                c
            }
            None => {
                let c = Arc::new(Collection::new(
                    id,
                    &entry.namespace,
                    entry.uuid,
                    entry.options,
                    indexes,
                    self.hints.clone(),
                ));
                c.set_named_since(at);
                c.set_pending(entry.pending);
                let oldest = self.trees.views().oldest();
                let mut catalog = self.catalog.write();
                catalog.set(&entry.namespace, &c, at, oldest);
                drop(catalog);
                c
            }
        };
        Ok(collection)
    }

    /// Takes a collection out of the catalog. The puts are in the trees, and not visible yet.
    pub fn publish_drop(&self, collection: &Arc<Collection>, at: Timestamp) {
        let oldest = self.trees.views().oldest();
        let mut catalog = self.catalog.write();
        catalog.remove(collection, at, oldest);
        let named = collection.named();
        self.history.lock().ended(collection.id, at, named);
        drop(catalog);
        collection.set_dropped();
        for index in collection.all_indexes().iter() {
            index.set_dropped();
            self.give_up(index.id, at);
        }
        self.give_up(collection.id, at);
    }

    /// A tree whose drop was committed at `at`: it goes when nobody reads it any more.
    fn give_up(&self, tree: u32, at: Timestamp) {
        self.note_drop(TreeId(tree), at);
        self.wake.notify_all();
    }

    fn note_drop(&self, tree: TreeId, at: Timestamp) {
        self.dropped.lock().push(DroppedTree {
            tree,
            at,
            given_up: false,
        });
    }
}

/// A collection's totals as they are stored: documents, bytes, the last number of a record.
pub(crate) fn totals_of(stored: Option<&[u8]>) -> [u64; 3] {
    let number = |at: usize| {
        stored
            .and_then(|v| v.get(at..at + 8))
            .and_then(|b| <[u8; 8]>::try_from(b).ok())
            .map_or(0, u64::from_le_bytes)
    };
    [number(0), number(8), number(16)]
}

/// The totals in their stored form.
pub(crate) fn totals_bytes(totals: [u64; 3]) -> Vec<u8> {
    totals.map(u64::to_le_bytes).concat()
}

/// 48 NamespaceExists.
pub(crate) fn exists(namespace: &str) -> Error {
    Error::new(
        Code::NamespaceExists,
        format!("Collection {namespace} already exists."),
    )
}
