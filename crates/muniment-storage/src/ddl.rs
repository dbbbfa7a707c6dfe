//! Changes of the catalog: every one is a single batch, together with the data it belongs to.

use crate::catalog::{CollectionOptions, Entry, IndexEntry, IndexSpec};
use crate::collection::Collection;
use crate::engine::{Engine, EngineSnapshot, Space};
use crate::index::Index;
use crate::keys;
use crate::multikey::Arrays;
use crate::store::{Inner, Store, damaged, db_of, dropped, index_by_name};
use muniment_value::{Code, Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

impl Inner {
    /// Writes the layout's version into a new store, checks that of an old one.
    pub fn create_layout(&self, engine: &Arc<Engine>) -> Result<()> {
        let path = self.engine_path();
        let version = crate::catalog::LAYOUT_VERSION.to_le_bytes();
        match engine.newest(Space::Meta, &keys::layout())? {
            Some(v) if *v == version => Ok(()),
            Some(_) => Err(damaged(&path, "the layout version is unknown")),
            None => {
                let mut batch = engine.batch(1);
                batch.put(Space::Meta, keys::layout(), version.to_vec());
                batch.commit()
            }
        }
    }

    /// Reads the catalog: at open, and again after the engine was opened anew. Then handles that
    /// are held are kept and corrected: a change whose commit failed may be there after all.
    pub fn load_catalog(&self, snapshot: &EngineSnapshot) -> Result<()> {
        let path = self.engine_path();
        if let Some(v) = snapshot.get(Space::Meta, &keys::next_id())? {
            let id = <[u8; 4]>::try_from(&*v).map_err(|_| damaged(&path, "next_id"))?;
            self.next_id.fetch_max(u32::from_le_bytes(id), SeqCst);
        }
        let mut known: HashMap<u32, Arc<Collection>> = self
            .names
            .read()
            .values()
            .map(|c| (c.id, c.clone()))
            .collect();
        let mut names = HashMap::new();
        let mut entries = snapshot.range(Space::Meta, vec![b'c'], vec![b'c' + 1]);
        while let Some((key, value)) = entries.next()? {
            let id = key
                .get(1..)
                .and_then(|k| <[u8; 4]>::try_from(k).ok())
                .map(u32::from_be_bytes)
                .ok_or_else(|| damaged(&path, "the key of a catalog entry"))?;
            let doc = muniment_value::validate(&value)?;
            let entry = Entry::from_doc(doc, &path)?;
            // Without it its documents would be looked for under other keys.
            entry.options.collation()?;
            let held = known.remove(&id);
            let mut indexes = Vec::new();
            for i in entry.indexes {
                let old = held
                    .as_ref()
                    .and_then(|c| c.all_indexes().iter().find(|o| o.id == i.id).cloned());
                if let Some(old) = old {
                    if i.ready {
                        old.set_ready();
                    }
                    old.set_spec(i.spec);
                    indexes.push(old);
                    continue;
                }
                let arrays = read_arrays(snapshot, i.id)?;
                indexes.push(Arc::new(Index::new(i.id, i.spec, i.ready, &arrays)?));
            }
            let collection = match held {
                Some(c) => {
                    c.set_namespace(&entry.namespace);
                    c.set_options(entry.options);
                    c.set_indexes(indexes);
                    c
                }
                None => Arc::new(Collection::new(
                    id,
                    &entry.namespace,
                    entry.uuid,
                    entry.options,
                    indexes,
                )),
            };
            let (docs, bytes) = read_totals(snapshot, id)?;
            collection.docs.store(docs, SeqCst);
            collection.bytes.store(bytes, SeqCst);
            names.insert(entry.namespace, collection);
        }
        *self.names.write() = names;
        for gone in known.values() {
            gone.set_dropped();
        }
        Ok(())
    }

    /// A fresh id; the caller puts [`keys::next_id`] into its batch with [`Inner::next_id_bytes`].
    pub fn fresh_id(&self) -> Result<u32> {
        let id = self.next_id.fetch_add(1, SeqCst);
        if id >= u32::MAX - 1 {
            return Err(Error::internal("collection and index ids are used up"));
        }
        Ok(id)
    }

    pub fn next_id_bytes(&self) -> Vec<u8> {
        self.next_id.load(SeqCst).to_le_bytes().to_vec()
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
        }
    }

    /// Runs a batch of DDL: shares the gate with every other commit.
    pub fn commit_ddl(
        &self,
        stage: impl FnOnce(&mut crate::engine::Batch) -> Result<()>,
    ) -> Result<()> {
        self.check_open()?;
        let engine = self.engine()?;
        self.admit(&engine, 0)?;
        let _gate = self.gate.read();
        let mut batch = engine.batch(8);
        stage(&mut batch)?;
        batch.commit().inspect_err(|_| self.write_failed())?;
        let commit = self.journal.committed();
        // DDL is rare and callers expect it to stay.
        self.journal.wait(commit)
    }
}

pub(crate) fn read_totals(snapshot: &EngineSnapshot, id: u32) -> Result<(u64, u64)> {
    let Some(v) = snapshot.get(Space::Meta, &keys::totals(id))? else {
        return Ok((0, 0));
    };
    let number = |range: std::ops::Range<usize>| {
        v.get(range)
            .and_then(|b| <[u8; 8]>::try_from(b).ok())
            .map_or(0, u64::from_le_bytes)
    };
    Ok((number(0..8), number(8..16)))
}

fn read_arrays(snapshot: &EngineSnapshot, index: u32) -> Result<Arrays> {
    let mut arrays = Arrays::default();
    if let Some(masks) = snapshot.get(Space::Meta, &keys::multikey(index))? {
        let masks = masks.chunks_exact(8).filter_map(|c| c.try_into().ok());
        arrays.masks.extend(masks.map(u64::from_le_bytes));
    }
    let low = keys::array_path(index, "");
    if let Some(high) = muniment_value::keyenc::prefix_end(&low) {
        let mut paths = snapshot.range(Space::Meta, low.clone(), high);
        while let Some((key, _)) = paths.next()? {
            let path = key.get(low.len()..).unwrap_or_default();
            arrays
                .paths
                .push(String::from_utf8_lossy(path).into_owned());
        }
    }
    Ok(arrays)
}

fn new_uuid() -> Result<[u8; 16]> {
    use std::io::Read;
    let mut uuid = [0u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut uuid)?;
    uuid[6] = (uuid[6] & 0x0F) | 0x40;
    uuid[8] = (uuid[8] & 0x3F) | 0x80;
    Ok(uuid)
}

fn exists(namespace: &str) -> Error {
    Error::new(
        Code::NamespaceExists,
        format!("Collection {namespace} already exists."),
    )
}

impl Store {
    /// Creates a collection with its `_id_` index. Namespace rules are the caller's.
    ///
    /// # Errors
    /// 48 NamespaceExists; 13297 DatabaseDifferCase.
    pub fn create_collection(
        &self,
        namespace: &str,
        options: CollectionOptions,
    ) -> Result<Arc<Collection>> {
        let inner = &self.inner;
        let _ddl = inner.ddl.lock();
        self.check_name(namespace)?;
        let id = inner.fresh_id()?;
        let index_id = inner.fresh_id()?;
        let mut indexes = Vec::new();
        if options.time_field.is_none() {
            let spec = IndexSpec::id_index(&options.collation()?);
            let index = Index::new(index_id, spec, true, &Arrays::default())?;
            indexes.push(Arc::new(index));
        }
        let collection = Arc::new(Collection::new(
            id,
            namespace,
            new_uuid()?,
            options,
            indexes,
        ));
        // Nothing was ever there: no look at the disk.
        collection.append.lock().max = Some(Vec::new());
        let entry = Inner::entry(&collection, &collection.all_indexes());
        inner.commit_ddl(|batch| {
            batch.put(Space::Meta, keys::next_id(), inner.next_id_bytes());
            batch.put(Space::Meta, keys::catalog(id), entry.to_doc().into_bytes());
            Ok(())
        })?;
        inner
            .names
            .write()
            .insert(namespace.to_string(), collection.clone());
        Ok(collection)
    }

    fn check_name(&self, namespace: &str) -> Result<()> {
        let names = self.inner.names.read();
        if names.contains_key(namespace) {
            return Err(exists(namespace));
        }
        let db = db_of(namespace);
        for other in names.keys().map(|n| db_of(n)) {
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

    /// Drops a collection at once; its space is reclaimed behind the client's back. False if
    /// there is none.
    ///
    /// # Errors
    /// I/O errors.
    pub fn drop_collection(&self, namespace: &str) -> Result<bool> {
        let _ddl = self.inner.ddl.lock();
        let Some(collection) = self.collection(namespace) else {
            return Ok(false);
        };
        collection.abort_builds();
        let _alone = collection.ddl.write();
        self.inner
            .commit_ddl(|batch| stage_drop(&collection, batch))?;
        self.inner.names.write().remove(namespace);
        collection.set_dropped();
        self.inner.start_reclaim();
        Ok(true)
    }

    /// Renames, dropping the target in the same atomic step if `drop_target`.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 48 NamespaceExists.
    pub fn rename_collection(&self, from: &str, to: &str, drop_target: bool) -> Result<()> {
        let inner = &self.inner;
        let _ddl = inner.ddl.lock();
        let Some(collection) = self.collection(from) else {
            return Err(Error::new(
                Code::NamespaceNotFound,
                format!("Source collection {from} does not exist"),
            ));
        };
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
            None => self.check_name(to)?,
        }
        let _alone = collection.ddl.write();
        let _target_alone = target.as_ref().map(|t| t.ddl.write());
        let mut entry = Inner::entry(&collection, &collection.all_indexes());
        entry.namespace = to.to_string();
        inner.commit_ddl(|batch| {
            if let Some(t) = &target {
                stage_drop(t, batch)?;
            }
            batch.put(
                Space::Meta,
                keys::catalog(collection.id),
                entry.to_doc().into_bytes(),
            );
            Ok(())
        })?;
        let mut names = inner.names.write();
        names.remove(from);
        if let Some(t) = &target {
            t.set_dropped();
        }
        collection.set_namespace(to);
        names.insert(to.to_string(), collection.clone());
        drop(names);
        if target.is_some() {
            inner.start_reclaim();
        }
        Ok(())
    }

    /// Drops an index by name.
    ///
    /// # Errors
    /// 27 IndexNotFound; 72 InvalidOptions for `_id_`.
    pub fn drop_index(&self, collection: &Arc<Collection>, name: &str) -> Result<()> {
        let _ddl = self.inner.ddl.lock();
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
        let _alone = collection.ddl.write();
        let all = collection.all_indexes();
        let (gone, rest): (Vec<_>, Vec<_>) = all.iter().cloned().partition(named);
        self.inner.swap_indexes(collection, rest, &gone)
    }

    /// collMod: replaces the specification of one index (TTL, hidden).
    ///
    /// # Errors
    /// 27 IndexNotFound.
    pub fn modify_index(&self, collection: &Arc<Collection>, spec: IndexSpec) -> Result<()> {
        let _ddl = self.inner.ddl.lock();
        let _alone = collection.ddl.write();
        if collection.is_dropped() {
            return Err(dropped(collection));
        }
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
        self.inner.commit_ddl(|batch| {
            let key = keys::catalog(collection.id);
            batch.put(Space::Meta, key, entry.to_doc().into_bytes());
            Ok(())
        })?;
        index.set_spec(spec);
        collection.bump();
        Ok(())
    }

    /// collMod: replaces the collection's options.
    ///
    /// # Errors
    /// 26 NamespaceNotFound if it was dropped meanwhile.
    pub fn modify_options(
        &self,
        collection: &Arc<Collection>,
        options: CollectionOptions,
    ) -> Result<()> {
        let _ddl = self.inner.ddl.lock();
        let _alone = collection.ddl.write();
        if collection.is_dropped() {
            return Err(dropped(collection));
        }
        let mut entry = Inner::entry(collection, &collection.all_indexes());
        entry.options = options.clone();
        self.inner.commit_ddl(|batch| {
            let key = keys::catalog(collection.id);
            batch.put(Space::Meta, key, entry.to_doc().into_bytes());
            Ok(())
        })?;
        collection.set_options(options);
        Ok(())
    }
}

impl Inner {
    /// Removes an index that may be ready or being built. The caller holds the DDL locks.
    pub fn remove_index(&self, collection: &Arc<Collection>, index: &Arc<Index>) -> Result<()> {
        let rest: Vec<Arc<Index>> = collection
            .all_indexes()
            .iter()
            .filter(|i| i.id != index.id)
            .cloned()
            .collect();
        self.swap_indexes(collection, rest, std::slice::from_ref(index))
    }

    /// Leaves the collection with the indexes `rest`, without those of `gone`, in one commit. The
    /// caller holds the DDL locks.
    pub fn swap_indexes(
        &self,
        collection: &Arc<Collection>,
        rest: Vec<Arc<Index>>,
        gone: &[Arc<Index>],
    ) -> Result<()> {
        let entry = Inner::entry(collection, &rest);
        self.commit_ddl(|batch| {
            let key = keys::catalog(collection.id);
            batch.put(Space::Meta, key, entry.to_doc().into_bytes());
            gone.iter().for_each(|i| stage_drop_index(i, batch));
            Ok(())
        })?;
        collection.set_indexes(rest);
        if !gone.is_empty() {
            self.start_reclaim();
        }
        Ok(())
    }
}

pub(crate) fn index_not_found(name: &str) -> Error {
    Error::new(
        Code::IndexNotFound,
        format!("index not found with name [{name}]"),
    )
}

fn stage_drop(collection: &Collection, batch: &mut crate::engine::Batch) -> Result<()> {
    batch.delete(Space::Meta, keys::catalog(collection.id));
    batch.delete(Space::Meta, keys::totals(collection.id));
    batch.put(
        Space::Meta,
        keys::drop_pending(b'D', collection.id),
        Vec::new(),
    );
    for index in collection.all_indexes().iter() {
        stage_drop_index(index, batch);
    }
    Ok(())
}

fn stage_drop_index(index: &Index, batch: &mut crate::engine::Batch) {
    for (key, _) in index.multikey().known().entries(index.id) {
        batch.delete(Space::Meta, key);
    }
    batch.put(Space::Meta, keys::drop_pending(b'I', index.id), Vec::new());
}
