//! Changes of the catalog: every one is a single record of the log, together with what belongs to
//! it.
//!
//! Who changes a collection has its DDL lock alone; who changes a name has that of the names
//! too, taken after it. Both waits ask the operation whether it may go on.

use crate::catalog::names::exists;
use crate::catalog::notes::drop_note;
use crate::catalog::{CollectionOptions, Entry, IndexEntry, IndexSpec};
use crate::collection::Collection;
use crate::commit::door::Opening;
use crate::commit::locked;
use crate::gate::Alone;
use crate::index::Index;
use crate::store::{Inner, Store, db_of, dropped, index_by_name};
use crate::transaction::Transaction;
use muniment_query::Interrupt;
use muniment_value::{Code, DocBuf, Error, Result};
use std::sync::Arc;

/// A collection that nobody else writes or changes while this is held.
pub struct Exclusive {
    collection: Arc<Collection>,
    opening: Opening,
    _guard: Alone,
}

impl Exclusive {
    /// Whose it is.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }
}

impl Inner {
    /// Drops a collection that a transaction made, if nobody relies on it.
    ///
    /// # Errors
    /// As a commit's.
    pub fn drop_if_empty(
        &self,
        collection: &Arc<Collection>,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let alone = self.exclusive(collection, opening, interrupt)?;
        let _names = locked(&self.naming, interrupt)?;
        if !collection.is_pending() || collection.count() > 0 {
            return Ok(());
        }
        self.commit_drop(alone.collection(), opening, interrupt)
    }

    /// Has a collection alone, for changes that are committed in this opening of the door.
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped; what `interrupt` says while it waits.
    pub fn exclusive(
        &self,
        collection: &Arc<Collection>,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<Exclusive> {
        let guard = collection.ddl.own(interrupt)?;
        if collection.is_dropped() {
            return Err(dropped(collection));
        }
        Ok(Exclusive {
            collection: collection.clone(),
            opening,
            _guard: guard,
        })
    }

    fn check_name(&self, namespace: &str) -> Result<()> {
        let catalog = self.catalog.read();
        if catalog.by_name(namespace).is_some() {
            return Err(exists(namespace));
        }
        let db = db_of(namespace);
        for other in catalog.names().map(|n| db_of(n)) {
            if other != db && other.eq_ignore_ascii_case(db) {
                return Err(Error::location(
                    13297,
                    format!(
                        "db already exists with different case already have: [{other}] trying to \
                         create [{db}]"
                    ),
                ));
            }
        }
        Ok(())
    }
}

impl Store {
    /// Has a collection alone: writers and other changes wait (and can be interrupted) until the
    /// guard is dropped. For what must not lose a write: conversions that copy a collection.
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped; 10107 NotWritablePrimary; what `interrupt` says while
    /// it waits.
    pub fn exclusive(
        &self,
        collection: &Arc<Collection>,
        interrupt: &dyn Interrupt,
    ) -> Result<Exclusive> {
        let opening = self.inner.door.opening()?;
        collection.claim();
        self.inner.exclusive(collection, opening, interrupt)
    }

    /// Creates a collection with its `_id_` index. Namespace rules are the caller's.
    ///
    /// # Errors
    /// 48 NamespaceExists; 13297 DatabaseDifferCase; as a commit's.
    pub fn create_collection(
        &self,
        namespace: &str,
        options: CollectionOptions,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Collection>> {
        self.create_collection_as(namespace, options, None, interrupt)
    }

    /// As [`Store::create_collection`], with a UUID that is given.
    ///
    /// # Errors
    /// 48 NamespaceExists, also for a UUID that another collection has; as
    /// [`Store::create_collection`].
    pub fn create_collection_as(
        &self,
        namespace: &str,
        options: CollectionOptions,
        uuid: Option<[u8; 16]>,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Collection>> {
        self.create_as(namespace, options, uuid, None, interrupt)
    }

    /// The same, for a transaction as well.
    ///
    /// # Errors
    /// As [`Store::create_collection_as`]; [`Transaction::may_make`]'s.
    pub(crate) fn create_as(
        &self,
        namespace: &str,
        options: CollectionOptions,
        uuid: Option<[u8; 16]>,
        transaction: Option<&Transaction>,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Collection>> {
        let inner = &self.inner;
        let opening = match transaction {
            Some(transaction) => transaction.opening(),
            None => inner.door.opening()?,
        };
        let _names = locked(&inner.naming, interrupt)?;
        let there = inner.catalog.read().by_name(namespace);
        match (transaction, there) {
            (Some(transaction), there) => transaction.may_make(namespace, there.as_deref())?,
            // Whoever is told that it is there relies on that.
            (None, Some(there)) => there.claim(),
            (None, None) => {}
        }
        inner.check_name(namespace)?;
        if let Some(uuid) = uuid {
            self.check_uuid(uuid)?;
        }
        let id = inner.fresh_id()?;
        let mut indexes = Vec::new();
        if options.time_field.is_none() && !options.without_ids {
            indexes.push(IndexEntry {
                id: inner.fresh_id()?,
                ready: true,
                spec: IndexSpec::id_index(&options.collation()?),
            });
        }
        let entry = Entry {
            namespace: namespace.to_string(),
            uuid: match uuid {
                Some(uuid) => uuid,
                None => inner.new_uuid()?,
            },
            options,
            indexes,
            pending: transaction.is_some(),
        };
        let collection = inner.commit_entry(id, entry, None, opening, interrupt)?;
        // Nothing was ever there: no look at the disk.
        collection.append().max.get_or_insert_with(Vec::new);
        Ok(collection)
    }

    /// The collection with this UUID, whatever its database.
    pub fn collection_by_uuid(&self, uuid: [u8; 16]) -> Option<Arc<Collection>> {
        let databases = self.databases();
        let mut all = databases.iter().flat_map(|db| self.collections(db));
        all.find(|c| c.uuid() == uuid)
    }

    fn check_uuid(&self, uuid: [u8; 16]) -> Result<()> {
        match self.collection_by_uuid(uuid) {
            None => Ok(()),
            Some(c) => Err(Error::new(
                Code::NamespaceExists,
                format!("The collection {} has this UUID already", c.namespace()),
            )),
        }
    }

    /// Drops a collection at once; its space is reclaimed when nobody reads it any more. False if
    /// there is none.
    ///
    /// # Errors
    /// As a commit's.
    pub fn drop_collection(&self, namespace: &str, interrupt: &dyn Interrupt) -> Result<bool> {
        let inner = &self.inner;
        let opening = inner.door.opening()?;
        loop {
            let Some(collection) = self.collection(namespace) else {
                return Ok(false);
            };
            collection.abort_builds();
            let alone = match inner.exclusive(&collection, opening, interrupt) {
                Ok(a) => a,
                Err(e) if e.code() == Code::NamespaceNotFound => continue,
                Err(e) => return Err(e),
            };
            let _names = locked(&inner.naming, interrupt)?;
            if collection.namespace() != namespace {
                continue; // renamed meanwhile
            }
            inner.commit_drop(alone.collection(), opening, interrupt)?;
            return Ok(true);
        }
    }

    /// Drops a collection that a command made for itself; if that cannot be done now (a full disk),
    /// later.
    pub fn discard_collection(&self, namespace: &str) {
        let anyway = crate::store::UntilClosed(&self.inner);
        if self.drop_collection(namespace, &anyway).is_err()
            && let Some(collection) = self.collection(namespace)
        {
            self.inner.discarded.lock().push(collection);
        }
    }

    /// Renames, dropping the target in the same atomic step if `drop_target`.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 48 NamespaceExists; as a commit's.
    pub fn rename_collection(
        &self,
        from: &str,
        to: &str,
        drop_target: bool,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let not_found = || {
            Error::new(
                Code::NamespaceNotFound,
                format!("Source collection {from} does not exist"),
            )
        };
        let opening = self.inner.door.opening()?;
        loop {
            let collection = self.collection(from).ok_or_else(not_found)?;
            let target = self.collection(to);
            match &target {
                Some(_) if from == to => {
                    return Err(Error::new(
                        Code::IllegalOperation,
                        "Can't rename a collection to itself",
                    ));
                }
                Some(_) if !drop_target => {
                    return Err(Error::new(Code::NamespaceExists, "target namespace exists"));
                }
                Some(t) => t.abort_builds(),
                None => {}
            }
            if self.rename_one(&collection, target.as_ref(), (from, to), opening, interrupt)? {
                return Ok(());
            }
        }
    }

    /// False if a name changed meanwhile.
    fn rename_one(
        &self,
        collection: &Arc<Collection>,
        target: Option<&Arc<Collection>>,
        (from, to): (&str, &str),
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<bool> {
        let inner = &self.inner;
        // In the order of their ids, so that two renames cannot wait for each other.
        let mut both: Vec<&Arc<Collection>> = [collection].into_iter().chain(target).collect();
        both.sort_by_key(|c| c.id);
        let mut alone = Vec::new();
        for c in both {
            match inner.exclusive(c, opening, interrupt) {
                Ok(a) => alone.push(a),
                Err(e) if e.code() == Code::NamespaceNotFound => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        let _names = locked(&inner.naming, interrupt)?;
        let is = |c: Option<Arc<Collection>>, other: Option<&Arc<Collection>>| {
            c.map(|c| c.id) == other.map(|o| o.id)
        };
        if !is(self.collection(from), Some(collection)) || !is(self.collection(to), target) {
            return Ok(false);
        }
        if target.is_none() {
            inner.check_name(to)?;
        }
        collection.claim();
        let mut entry = Inner::entry(collection, &collection.all_indexes());
        entry.namespace = to.to_string();
        // A temporary collection gets a lasting name: it is kept when the server starts anew.
        let mut lasting = DocBuf::new();
        for e in entry.options.document.as_doc() {
            if e.name() != "temp" {
                lasting.append_elem(e);
            }
        }
        entry.options.document = lasting;
        inner.commit_entry(collection.id, entry, target, opening, interrupt)?;
        Ok(true)
    }

    /// Puts the collection `new` in the place of `old` in one step: it takes its name, and `old` is
    /// dropped. The caller has `old` alone.
    ///
    /// # Errors
    /// As a commit's.
    pub fn replace_collection(
        &self,
        old: &Exclusive,
        new: &Arc<Collection>,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let inner = &self.inner;
        old.collection.abort_builds();
        let opening = old.opening;
        let alone = inner.exclusive(new, opening, interrupt)?;
        let _names = locked(&inner.naming, interrupt)?;
        let mut entry = Inner::entry(new, &new.all_indexes());
        entry.namespace = old.collection.namespace();
        let gone = Some(&old.collection);
        inner.commit_entry(alone.collection.id, entry, gone, opening, interrupt)?;
        Ok(())
    }

    /// Drops an index by name.
    ///
    /// # Errors
    /// 27 IndexNotFound; 72 InvalidOptions for `_id_`; as a commit's.
    pub fn drop_index(
        &self,
        collection: &Arc<Collection>,
        name: &str,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let opening = self.inner.door.opening()?;
        let Some(index) = index_by_name(collection, name) else {
            return Err(index_not_found(name));
        };
        if index.is_id() {
            return Err(Error::new(Code::InvalidOptions, "cannot drop _id index"));
        }
        let named = |i: &Arc<Index>| i.spec().name == name;
        // Two of one name: one is being built to take the other's place.
        for i in collection.all_indexes().iter().filter(|i| named(i)) {
            i.fail_build(Error::new(
                Code::IndexBuildAborted,
                format!("index build of {name} was aborted: the index was dropped"),
            ));
        }
        let _alone = self.inner.exclusive(collection, opening, interrupt)?;
        let all = collection.all_indexes();
        let rest: Vec<_> = all.iter().filter(|i| !named(i)).cloned().collect();
        if rest.len() == all.len() {
            return Err(index_not_found(name));
        }
        self.inner
            .commit_indexes(collection, &rest, opening, interrupt)
    }

    /// collMod: replaces the specification of one index (TTL, hidden).
    ///
    /// # Errors
    /// 27 IndexNotFound; as a commit's.
    pub fn modify_index(
        &self,
        collection: &Arc<Collection>,
        spec: IndexSpec,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let opening = self.inner.door.opening()?;
        collection.claim();
        let _alone = self.inner.exclusive(collection, opening, interrupt)?;
        let Some(index) = index_by_name(collection, &spec.name) else {
            return Err(index_not_found(&spec.name));
        };
        let spec = spec.with_document();
        let mut entry = Inner::entry(collection, &collection.all_indexes());
        for i in &mut entry.indexes {
            if i.id == index.id {
                i.spec = spec.clone();
            }
        }
        self.inner
            .commit_entry(collection.id, entry, None, opening, interrupt)?;
        collection.bump();
        Ok(())
    }

    /// collMod: replaces the collection's options.
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped meanwhile; as a commit's.
    pub fn modify_options(
        &self,
        collection: &Arc<Collection>,
        options: CollectionOptions,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let opening = self.inner.door.opening()?;
        collection.claim();
        let _alone = self.inner.exclusive(collection, opening, interrupt)?;
        let mut entry = Inner::entry(collection, &collection.all_indexes());
        entry.options = options;
        self.inner
            .commit_entry(collection.id, entry, None, opening, interrupt)?;
        Ok(())
    }
}

impl Inner {
    pub fn commit_drop(
        &self,
        collection: &Arc<Collection>,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        self.check_open()?;
        let mut stage = crate::commit::stage::Stage::new(opening);
        stage.log.note(drop_note(collection).as_doc());
        stage.log.drop(collection.id);
        self.stage_drop_puts(&mut stage, collection);
        let commit = self.commit(stage, interrupt, |at| self.publish_drop(collection, at))?;
        self.log()?.wait_durable(commit.index, &|| Ok(()))
    }

    /// Leaves the collection with these indexes. The caller has it alone.
    ///
    /// # Errors
    /// As a commit's.
    pub fn commit_indexes(
        &self,
        collection: &Arc<Collection>,
        indexes: &[Arc<Index>],
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let entry = Inner::entry(collection, indexes);
        self.commit_entry(collection.id, entry, None, opening, interrupt)?;
        Ok(())
    }

    fn new_uuid(&self) -> Result<[u8; 16]> {
        let mut uuid = [0u8; 16];
        self.clock.random(&mut uuid)?;
        uuid[6] = (uuid[6] & 0x0F) | 0x40;
        uuid[8] = (uuid[8] & 0x3F) | 0x80;
        Ok(uuid)
    }
}

pub(crate) fn index_not_found(name: &str) -> Error {
    Error::new(
        Code::IndexNotFound,
        format!("index not found with name [{name}]"),
    )
}
