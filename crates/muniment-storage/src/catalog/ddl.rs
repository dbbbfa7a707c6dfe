//! Changes of the catalog. Each is a single record of the log, together with all that belongs to it.
//!
//! A change of a collection holds the collection's DDL lock alone. A change of a name also holds the
//! lock of the names, taken after it, and releases that before it waits for the log's sync: the record's
//! place in the log says what came first, and one sync serves all changes whose records are in the log
//! by then. Both waits ask the operation whether it may go on. While a change waits for a transaction
//! that has touched the collection, other operations go on with the collection.

use crate::catalog::names::{Unsettled, exists};
use crate::catalog::{CollectionOptions, Entry, IndexEntry, IndexSpec};
use crate::collection::Collection;
use crate::commit::door::Opening;
use crate::gate::{Alone, own_all};
use crate::index::Index;
use crate::inner::Inner;
use crate::placement::Placement;
use crate::store::{Store, db_of, dropped, index_by_name};
use crate::transaction::Transaction;
use muniment_op::Interrupt;
use muniment_value::{Code, DocBuf, Error, Result};
use std::sync::Arc;

/// A collection that no other thread writes or changes while this value is held.
pub struct Exclusive {
    collection: Arc<Collection>,
    opening: Opening,
    _guard: Alone,
}

impl Exclusive {
    /// The collection that is held.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }
}

impl Inner {
    /// Drops a collection that a transaction made, unless another operation relies on it.
    ///
    /// # Errors
    /// As a commit's.
    pub fn drop_if_empty(
        &self,
        collection: &Arc<Collection>,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let alone = self.exclusive_to_drop(collection, opening, interrupt)?;
        let dropped = {
            let _names = self.catalog.naming.lock_for(interrupt)?;
            if !collection.is_pending() || collection.count() > 0 {
                return Ok(());
            }
            self.commit_drop(alone.collection(), opening, interrupt)?
        };
        self.settle(dropped)
    }

    /// Waits until the caller has the collection to itself, for changes that are committed in this
    /// opening of the door.
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped; 301 DataCorruptionDetected if it is closed; what
    /// `interrupt` says while it waits.
    pub fn exclusive(
        &self,
        collection: &Arc<Collection>,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<Exclusive> {
        let alone = self.exclusive_to_drop(collection, opening, interrupt)?;
        collection.check_usable()?;
        Ok(alone)
    }

    /// As [`Inner::exclusive`], but also of a collection that is closed because it is damaged: for
    /// a caller that drops or repairs it.
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped; what `interrupt` says while it waits.
    pub fn exclusive_to_drop(
        &self,
        collection: &Arc<Collection>,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<Exclusive> {
        let mut all = self.exclusive_all(&[collection], opening, interrupt)?;
        all.pop()
            .ok_or_else(|| Error::internal("no collection to have alone"))
    }

    /// As [`Inner::exclusive_to_drop`], of several collections. While one of them is waited for,
    /// none of the others is held, so this waiting cannot be part of a deadlock.
    ///
    /// # Errors
    /// As [`Inner::exclusive_to_drop`].
    fn exclusive_all(
        &self,
        all: &[&Arc<Collection>],
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<Vec<Exclusive>> {
        let gates: Vec<_> = all.iter().map(|c| &c.ddl).collect();
        let guards = own_all(&gates, interrupt)?;
        if let Some(gone) = all.iter().find(|c| c.is_dropped()) {
            return Err(dropped(gone));
        }
        let held = all.iter().zip(guards);
        Ok(held
            .map(|(collection, guard)| Exclusive {
                collection: Arc::clone(collection),
                opening,
                _guard: guard,
            })
            .collect())
    }

    fn check_name(&self, namespace: &str) -> Result<()> {
        let catalog = self.catalog.read();
        if catalog.by_name(namespace).is_some() {
            return Err(exists(namespace));
        }
        let db = db_of(namespace);
        match catalog.other_case(db) {
            None => Ok(()),
            Some(other) => Err(Error::location(
                13297,
                format!(
                    "db already exists with different case already have: [{other}] trying to \
                     create [{db}]"
                ),
            )),
        }
    }
}

/// A collection that was made but may not be on the disk yet; [`Store::settle`] waits for that.
#[must_use]
pub struct Created(Unsettled<Arc<Collection>>);

impl Created {
    /// The collection.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.0.made
    }
}

impl Store {
    /// Waits until the caller has the collection to itself: writers and other changes wait (and can
    /// be interrupted) until the guard is dropped. A conversion that copies a collection uses this,
    /// since it would lose the writes that were made meanwhile.
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped; 10107 NotWritablePrimary; what `interrupt` says
    /// while it waits.
    pub fn exclusive(
        &self,
        collection: &Arc<Collection>,
        interrupt: &dyn Interrupt,
    ) -> Result<Exclusive> {
        let opening = self.inner.door.opening()?;
        collection.claim();
        self.inner.exclusive(collection, opening, interrupt)
    }

    /// Creates a collection with its `_id_` index. The caller has checked the rules for namespaces.
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
        let created = self.begin_collection(namespace, options, uuid, interrupt)?;
        self.settle(created)
    }

    /// As [`Store::create_collection_as`], but without waiting for the disk: a caller that holds a
    /// lock of its own can let go of it before it has the collection [settled](Store::settle).
    /// Others see the collection when this returns, but a crash could still undo it, so no client
    /// may be told of it before it is settled.
    ///
    /// # Errors
    /// As [`Store::create_collection_as`].
    pub fn begin_collection(
        &self,
        namespace: &str,
        options: CollectionOptions,
        uuid: Option<[u8; 16]>,
        interrupt: &dyn Interrupt,
    ) -> Result<Created> {
        self.create_as(namespace, options, uuid, None, interrupt)
    }

    /// Returns the collection when it is on the disk.
    ///
    /// # Errors
    /// Those of the log's sync: the collection exists, but a crash may take it away.
    pub fn settle(&self, created: Created) -> Result<Arc<Collection>> {
        self.inner.settle(created.0)
    }

    /// Returns once the collection, as it is now, is on the disk: for a caller that tells a client
    /// of what another client has made or changed, which a crash must not undo after the reply.
    ///
    /// # Errors
    /// Those of the log's sync; what `interrupt` says.
    pub fn wait_settled(&self, collection: &Collection, interrupt: &dyn Interrupt) -> Result<()> {
        self.inner.wait_settled(collection, interrupt)
    }

    /// As [`Store::begin_collection`]; a collection that is made in a `transaction` bears its mark
    /// until the transaction ends.
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
    ) -> Result<Created> {
        let inner = &self.inner;
        let opening = match transaction {
            Some(transaction) => transaction.opening(),
            None => inner.door.opening()?,
        };
        let _names = inner.catalog.naming.lock_for(interrupt)?;
        let there = inner.catalog.read().by_name(namespace);
        match (transaction, there) {
            (Some(transaction), there) => transaction.may_make(namespace, there.as_deref())?,
            // The client learns from the error that it exists, and may rely on it.
            (None, Some(there)) => there.claim(),
            (None, None) => {}
        }
        inner.check_name(namespace)?;
        if let Some(uuid) = uuid {
            self.check_uuid(uuid)?;
        }
        let id = inner.catalog.fresh_id()?;
        let mut indexes = Vec::new();
        if options.time_field.is_none() && !options.without_ids {
            indexes.push(IndexEntry {
                id: inner.catalog.fresh_id()?,
                ready: true,
                spec: Arc::new(IndexSpec::id_index(&options.collation()?)),
                damage: None,
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
            placement: None,
            damage: None,
        };
        let created = inner.commit_entry(id, entry, None, opening, interrupt)?;
        // A new collection has no documents, so the first insert need not read the disk.
        created.made.append().max.get_or_insert_with(Vec::new);
        Ok(Created(created))
    }

    /// The collection with this UUID, whatever its database.
    pub fn collection_by_uuid(&self, uuid: [u8; 16]) -> Option<Arc<Collection>> {
        self.inner.catalog.read().by_uuid(uuid).next().cloned()
    }

    /// The collection with this UUID in one database.
    pub fn collection_by_uuid_in(&self, db: &str, uuid: [u8; 16]) -> Option<Arc<Collection>> {
        let catalog = self.inner.catalog.read();
        catalog.by_uuid(uuid).find(|c| c.is_in(db)).cloned()
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

    /// Drops a collection at once; its space is reclaimed after the last reader has let go of it.
    /// False if there is no such collection.
    ///
    /// # Errors
    /// As a commit's.
    pub fn drop_collection(&self, namespace: &str, interrupt: &dyn Interrupt) -> Result<bool> {
        match self.begin_drop(namespace, interrupt)? {
            Some(dropped) => self.inner.settle(dropped).map(|()| true),
            None => Ok(false),
        }
    }

    /// Drops these collections, each by a record of its own, and waits for the disk once. Names
    /// without a collection are skipped; `dropped` is called with the name of every collection that
    /// was dropped.
    ///
    /// # Errors
    /// As a commit's: collections that were dropped before the error stay dropped.
    pub fn drop_collections(
        &self,
        namespaces: impl Iterator<Item = String>,
        dropped: &mut dyn FnMut(&str),
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let mut last = None;
        let mut result = Ok(());
        for namespace in namespaces {
            match interrupt
                .check()
                .and_then(|()| self.begin_drop(&namespace, interrupt))
            {
                Ok(Some(one)) => {
                    dropped(&namespace);
                    last = Some(one);
                }
                Ok(None) => {}
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }
        // The log keeps the order: once the last drop is on the disk, so are those before it.
        let settled = last.map_or(Ok(()), |last| self.inner.settle(last));
        result.and(settled)
    }

    /// `None` if there is no such collection.
    fn begin_drop(
        &self,
        namespace: &str,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<Unsettled<()>>> {
        let inner = &self.inner;
        let opening = inner.door.opening()?;
        loop {
            let Some(collection) = self.collection(namespace) else {
                return Ok(None);
            };
            collection.abort_builds();
            let alone = match inner.exclusive_to_drop(&collection, opening, interrupt) {
                Ok(a) => a,
                Err(e) if e.code() == Code::NamespaceNotFound => continue,
                Err(e) => return Err(e),
            };
            let _names = inner.catalog.naming.lock_for(interrupt)?;
            if collection.namespace() != namespace {
                continue; // renamed meanwhile
            }
            let dropped = inner.commit_drop(alone.collection(), opening, interrupt)?;
            return Ok(Some(dropped));
        }
    }

    /// Drops a collection that a command made for itself. If it cannot be dropped now (the disk is
    /// full, say), it is put on a list and dropped later.
    pub fn discard_collection(&self, namespace: &str) {
        let anyway = crate::watch::UntilClosed(&self.inner.watch);
        if self.drop_collection(namespace, &anyway).is_err()
            && let Some(collection) = self.collection(namespace)
        {
            self.inner.leftovers.discarded.lock().push(collection);
        }
    }

    /// Renames a collection; with `drop_target`, a collection that has the name `to` is dropped in
    /// the same atomic step. A temporary collection becomes a lasting one.
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
        self.rename_as(from, to, drop_target, false, interrupt)
    }

    /// As [`Store::rename_collection`]; with `stay_temp`, a temporary collection stays temporary.
    ///
    /// # Errors
    /// As [`Store::rename_collection`].
    pub fn rename_as(
        &self,
        from: &str,
        to: &str,
        drop_target: bool,
        stay_temp: bool,
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
            let names = (from, to);
            let target = target.as_ref();
            let which = (&collection, None);
            if self.rename_one(which, target, names, stay_temp, opening, interrupt)? {
                return Ok(());
            }
        }
    }

    /// Renames this collection, and drops this target in the same atomic step. Returns false if the target's name belongs
    /// to another collection by now, or the collection is not of this generation any more.
    ///
    /// # Errors
    /// As a commit's.
    pub fn rename_this(
        &self,
        (collection, generation): (&Arc<Collection>, u64),
        target: Option<&Arc<Collection>>,
        names: (&str, &str),
        interrupt: &dyn Interrupt,
    ) -> Result<bool> {
        let opening = self.inner.door.opening()?;
        if let Some(target) = target {
            target.abort_builds();
        }
        let which = (collection, Some(generation));
        self.rename_one(which, target, names, false, opening, interrupt)
    }

    /// Returns false if one of the names has changed meanwhile; the caller looks them up anew.
    fn rename_one(
        &self,
        (collection, generation): (&Arc<Collection>, Option<u64>),
        target: Option<&Arc<Collection>>,
        (from, to): (&str, &str),
        stay_temp: bool,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<bool> {
        let inner = &self.inner;
        // Locked in the order of their ids: two renames must not wait for each other.
        let mut both: Vec<&Arc<Collection>> = [collection].into_iter().chain(target).collect();
        both.sort_by_key(|c| c.id);
        let _alone = match inner.exclusive_all(&both, opening, interrupt) {
            Ok(alone) => alone,
            Err(e) if e.code() == Code::NamespaceNotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        collection.check_usable()?;
        let names = inner.catalog.naming.lock_for(interrupt)?;
        let is = |c: Option<Arc<Collection>>, other: Option<&Arc<Collection>>| {
            c.map(|c| c.id) == other.map(|o| o.id)
        };
        let same = generation.is_none_or(|generation| generation == collection.generation());
        if !same || !is(self.collection(from), Some(collection)) || !is(self.collection(to), target)
        {
            return Ok(false);
        }
        if target.is_none() {
            inner.check_name(to)?;
        }
        collection.claim();
        let mut entry = Entry::of(collection, &collection.all_indexes());
        entry.namespace = to.to_string();
        // Without `temp`, the collection is kept when the server starts anew.
        let mut lasting = DocBuf::new();
        for e in entry.options.document.as_doc() {
            if stay_temp || e.name() != "temp" {
                lasting.append_elem(e);
            }
        }
        entry.options.document = lasting;
        let renamed = inner.commit_entry(collection.id, entry, target, opening, interrupt)?;
        drop(names);
        inner.settle(renamed)?;
        Ok(true)
    }

    /// Puts the collection `new` in the place of `old` in one step: `new` takes the name of `old`,
    /// which is dropped. The caller has `old` alone.
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
        let names = inner.catalog.naming.lock_for(interrupt)?;
        let mut entry = Entry::of(new, &new.all_indexes());
        entry.namespace = old.collection.namespace();
        let gone = Some(&old.collection);
        let replaced = inner.commit_entry(alone.collection.id, entry, gone, opening, interrupt)?;
        drop(names);
        inner.settle(replaced)?;
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
        // There may be two of one name, if one is being built to take the other's place.
        for i in collection.all_indexes().iter().filter(|i| named(i)) {
            i.fail_build(Error::new(
                Code::IndexBuildAborted,
                format!("index build of {name} was aborted: the index was dropped"),
            ));
        }
        collection.building.wake_all();
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
    /// 27 IndexNotFound; 301 DataCorruptionDetected if it is closed; as a commit's.
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
        index.check_usable(collection)?;
        let spec = Arc::new(spec.with_document());
        let mut entry = Entry::of(collection, &collection.all_indexes());
        for i in &mut entry.indexes {
            if i.id == index.id {
                i.spec = spec.clone();
            }
        }
        self.inner
            .change_entry(collection.id, entry, opening, interrupt)?;
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
        self.modify_entry(collection, interrupt, |entry| {
            entry.options = options;
            Ok(())
        })
    }

    /// Says what this shard owns of a collection; `None`: the collection is not sharded. `change` is told what it owns
    /// so far, while nobody else has the collection.
    ///
    /// # Errors
    /// Those of `change`; 26 NamespaceNotFound if it was dropped meanwhile; as a commit's.
    pub fn place(
        &self,
        collection: &Arc<Collection>,
        interrupt: &dyn Interrupt,
        change: impl FnOnce(Option<&Placement>) -> Result<Option<Placement>>,
    ) -> Result<()> {
        self.modify_entry(collection, interrupt, |entry| {
            entry.placement = change(entry.placement.as_deref())?.map(Arc::new);
            Ok(())
        })
    }

    /// Has a collection for this shard alone again, after a generation that `is_meant` has ended here. Nothing is changed if
    /// the collection has another one, or none.
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped meanwhile; as a commit's.
    pub fn end_placement(
        &self,
        collection: &Arc<Collection>,
        interrupt: &dyn Interrupt,
        is_meant: impl FnOnce(&Placement) -> bool,
    ) -> Result<()> {
        self.modify_entry(collection, interrupt, |entry| {
            if let Some(ended) = entry.placement.take_if(|p| is_meant(p)) {
                entry.options.ended = entry.options.ended.max(ended.timestamp);
            }
            Ok(())
        })
    }

    /// Changes the collection's catalog entry, while nobody else has the collection.
    ///
    /// # Errors
    /// As [`Store::modify_options`].
    pub(crate) fn modify_entry(
        &self,
        collection: &Arc<Collection>,
        interrupt: &dyn Interrupt,
        change: impl FnOnce(&mut Entry) -> Result<()>,
    ) -> Result<()> {
        let opening = self.inner.door.opening()?;
        collection.claim();
        let _alone = self.inner.exclusive(collection, opening, interrupt)?;
        let mut entry = Entry::of(collection, &collection.all_indexes());
        change(&mut entry)?;
        self.inner
            .change_entry(collection.id, entry, opening, interrupt)
    }
}

impl Inner {
    /// Replaces the collection's list of indexes by these. The caller has it alone.
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
        let entry = Entry::of(collection, indexes);
        self.change_entry(collection.id, entry, opening, interrupt)
    }

    /// Commits a change of a collection's entry that changes no name, and waits for the disk. The
    /// caller has the collection alone.
    ///
    /// # Errors
    /// As a commit's.
    pub fn change_entry(
        &self,
        id: u32,
        entry: Entry,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let changed = self.commit_entry(id, entry, None, opening, interrupt)?;
        self.settle(changed).map(drop)
    }

    fn new_uuid(&self) -> Result<[u8; 16]> {
        let mut uuid = [0u8; 16];
        self.home.clock.random(&mut uuid)?;
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
