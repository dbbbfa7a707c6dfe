//! Reading the catalog at start, and committing and publishing changes of it.

use crate::catalog::Entry;
use crate::catalog::notes::{drop_note, entry_notes};
use crate::collection::Collection;
use crate::commit::announce::Announce;
use crate::commit::door::Opening;
use crate::commit::stage::Stage;
use crate::damage::Judged;
use crate::export::id_of;
use crate::index::Index;
use crate::inner::Inner;
use crate::keys;
use crate::multikey::Arrays;
use crate::store::damaged;
use bytes::Bytes;
use foldhash::HashMap;
use muniment_io::Timestamp;
use muniment_op::{Interrupt, NeverInterrupted};
use muniment_tree::{Cursor, Direction, Range, TreeId};
use muniment_value::{Code, Error, Result};
use std::sync::Arc;

/// A committed change of the catalog that may not be on the disk yet. The operation that made it
/// lets go of the names first and then waits for the log's sync ([`Inner::settle`]), before a
/// client is told of the change: meanwhile others can commit theirs, and one sync serves them all.
#[must_use]
pub(crate) struct Unsettled<T> {
    pub made: T,
    /// The number of the change's record in the log.
    index: u64,
}

impl Inner {
    /// Reads the catalog from the trees when the store opens. The records that the log has after
    /// the persisted cut are applied afterwards.
    pub fn load_catalog(&self) -> Result<()> {
        let meta = TreeId(keys::META);
        let path = &self.home.path;
        let newest = Timestamp::MAX;
        if let Some(v) = self.trees.get(meta, &keys::next_id(), newest)? {
            let id = <[u8; 4]>::try_from(&*v).map_err(|_| damaged(path, "next_id"))?;
            self.catalog.gave_ids_below(u32::from_le_bytes(id));
        }
        let with_tag = |tag: u8| self.with_tag(tag);
        let id_of = |key: &[u8]| {
            let id = id_of(key).filter(|_| key.len() == 5);
            id.ok_or_else(|| damaged(path, "the key of a catalog entry"))
        };
        let mut closed = HashMap::<u32, String>::default();
        let mut marks = with_tag(b'x');
        while let Some((key, why)) = marks.next(&NeverInterrupted)? {
            closed.insert(id_of(&key)?, String::from_utf8_lossy(&why).into_owned());
        }
        let arrays = self.read_arrays()?;
        let none = Arrays::default();
        // Totals are stored in the order of the ids, as the entries are.
        let mut totals = with_tag(b'n');
        let mut next = totals.next(&NeverInterrupted)?;
        let mut entries = with_tag(b'c');
        while let Some((key, value)) = entries.next(&NeverInterrupted)? {
            let id = id_of(&key)?;
            let entry = Entry::read(&value, id, &NeverInterrupted);
            let indexes = entry.indexes.iter().map(|i| {
                let arrays = arrays.get(&i.id).unwrap_or(&none);
                Index::of_entry(i, i.ready, arrays, &NeverInterrupted).map(Arc::new)
            });
            let indexes = indexes.collect::<Result<_>>()?;
            let c = self.publish_collection(id, entry, indexes, Timestamp::ZERO, false);
            let mut stored = None;
            while let Some((of, value)) = next.take() {
                let of = id_of(&of)?;
                if of > id {
                    next = Some((keys::totals(of).into(), value));
                    break;
                }
                stored = (of == id).then_some(value);
                next = totals.next(&NeverInterrupted)?;
            }
            let [docs, bytes, last] = totals_of(stored.as_deref());
            c.set_totals(docs, bytes);
            c.append().last = last;
            for index in c.all_indexes().iter() {
                if let Some(why) = closed.get(&index.id) {
                    c.close_index(index, why);
                }
            }
            if let Some(why) = closed.get(&id) {
                c.close(why);
            }
        }
        let mut past = with_tag(b'h');
        while let Some((key, value)) = past.next(&NeverInterrupted)? {
            if !self.catalog.load_past(&key, &value) {
                return Err(damaged(path, "a name that a collection had"));
            }
        }
        let mut pending = with_tag(b'd');
        while let Some((key, _)) = pending.next(&NeverInterrupted)? {
            // The time of the drop is not stored; it was before the cut that has the note.
            self.cuts.note_drop(id_of(&key)?, self.trees.persisted());
        }
        Ok(())
    }

    /// Which fields of which indexes hold arrays, as the trees have it, by the ids of the indexes.
    /// Most indexes have none.
    fn read_arrays(&self) -> Result<HashMap<u32, Arrays>> {
        let mut all = HashMap::<u32, Arrays>::default();
        let bad = || damaged(&self.home.path, "the arrays of an index");
        let mut of_fields = self.with_tag(b'm');
        while let Some((key, masks)) = of_fields.next(&NeverInterrupted)? {
            let index = id_of(&key).ok_or_else(bad)?;
            let masks = masks.chunks_exact(8).filter_map(|c| c.try_into().ok());
            let arrays = all.entry(index).or_default();
            arrays.masks.extend(masks.map(u64::from_le_bytes));
        }
        let mut of_paths = self.with_tag(b'w');
        while let Some((key, _)) = of_paths.next(&NeverInterrupted)? {
            let index = id_of(&key).ok_or_else(bad)?;
            let path = key.get(5..).unwrap_or_default();
            let path = String::from_utf8_lossy(path).into_owned();
            all.entry(index).or_default().paths.push(path);
        }
        Ok(all)
    }

    /// The rows of the catalog's tree whose keys begin with this letter.
    fn with_tag(&self, tag: u8) -> Box<dyn Cursor> {
        let range = Range {
            low: Bytes::from(vec![tag]),
            high: Some(Bytes::from(vec![tag + 1])),
        };
        let meta = TreeId(keys::META);
        self.trees
            .cursor(meta, range, Timestamp::MAX, Direction::Forward)
    }

    /// Commits a collection's entry as it is to be from now on. The caller holds the collection's
    /// DDL lock and, where names change, that of the names, and has read everything that its
    /// decision depends on in this opening of the door. When this returns others see the change,
    /// but it is not on the disk.
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
    ) -> Result<Unsettled<Arc<Collection>>> {
        self.watch.check_open()?;
        let held = self.catalog.read().by_id(id);
        let indexes = indexes_of(held.as_deref(), &entry, interrupt)?;
        let mut stage = Stage::new(opening);
        if let Some(gone) = drop {
            stage.log.drop(gone.id);
            stage.drop_puts(gone);
        }
        let before = held.as_deref().map(|c| {
            let all = c.all_indexes();
            let mut before = Entry::of(c, &all);
            for (i, held) in before.indexes.iter_mut().zip(all.iter()) {
                if held.is_damaged() {
                    // Its `document` is made from the fields that could be read, for the note.
                    i.spec = Arc::new((*i.spec).clone().with_document());
                }
            }
            before
        });
        for note in entry_notes(before.as_ref(), &entry, drop.map(|c| &**c)) {
            stage.log.note(note.as_doc());
        }
        let doc = entry.to_doc();
        entry.check(doc.as_doc(), before.as_ref())?;
        let next_id = self.catalog.next_id();
        let logged = stage.log.collection(id, next_id, doc.as_bytes());
        stage.entry_puts(id, held.as_deref(), &entry, logged);
        let mut result = Err(Error::internal("the catalog was not changed"));
        let commit = self.commit(stage, Announce::Door, interrupt, |at| {
            // Before the drop: a name that passes from one to the other must not be missing.
            result = Ok(self.publish_collection(id, entry, indexes, at, true));
            if let Some(gone) = drop {
                self.publish_drop(gone, at);
            }
        })?;
        let made = result?;
        made.changed_by(commit.index);
        Ok(Unsettled {
            made,
            index: commit.index,
        })
    }

    /// Commits a drop. The caller holds the collection's DDL lock and that of the names. When this
    /// returns others do not find the collection any more.
    ///
    /// # Errors
    /// As a commit's.
    pub fn commit_drop(
        &self,
        collection: &Arc<Collection>,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<Unsettled<()>> {
        self.watch.check_open()?;
        let mut stage = Stage::new(opening);
        stage.log.note(drop_note(collection).as_doc());
        stage.log.drop(collection.id);
        stage.drop_puts(collection);
        let commit = self.commit(stage, Announce::Door, interrupt, |at| {
            self.publish_drop(collection, at);
        })?;
        let (made, index) = ((), commit.index);
        Ok(Unsettled { made, index })
    }

    /// Waits until a change is on the disk, since clients expect that a crash does not undo it.
    ///
    /// # Errors
    /// Those of the sync: the change was made, but may not survive a crash.
    pub fn settle<T>(&self, change: Unsettled<T>) -> Result<T> {
        self.journal
            .log()?
            .wait_durable(change.index, &NeverInterrupted)?;
        Ok(change.made)
    }

    /// Returns once the last change of a collection's catalog entry is on the disk: for a caller
    /// that tells a client of something that another client has just made.
    ///
    /// # Errors
    /// Those of the sync; what `interrupt` says.
    pub fn wait_settled(&self, collection: &Collection, interrupt: &dyn Interrupt) -> Result<()> {
        let log = self.journal.log()?;
        // A log that was opened anew may end before that record.
        let index = collection.changed_in().min(log.last().index);
        log.wait_durable(index, interrupt)
    }

    /// Makes a collection what its entry says, and closes the parts of it that are damaged. The puts are
    /// in the trees already, but not visible yet, and no later commit becomes visible meanwhile. So what
    /// takes long is not done again: with `checked` a new validator was parsed before the record was
    /// logged (see [`Entry::check_new`]), and is known to be readable.
    pub fn publish_collection(
        &self,
        id: u32,
        entry: Entry,
        indexes: Vec<Arc<Index>>,
        at: Timestamp,
        checked: bool,
    ) -> Arc<Collection> {
        self.publish_indexes(&entry, &indexes);
        let damage = entry.damage.clone();
        let held = self.catalog.read().by_id(id);
        let validator = match &held {
            Some(c) if c.options().raw_validator() == entry.options.raw_validator() => Judged::Same,
            _ if checked => Judged::Readable,
            _ => Judged::Unknown,
        };
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
                if entry.placement.is_none() && c.placement().is_some() {
                    c.set_whole_since(at);
                }
                c.set_placement(entry.placement);
                if !entry.pending {
                    c.claim();
                }
                if *c.name() != *entry.namespace {
                    let oldest = self.trees.views().oldest();
                    self.catalog.rename(&c, &entry.namespace, at, oldest);
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
                    self.catalog.hints.clone(),
                    self.catalog.lists.clone(),
                ));
                c.set_named_since(at);
                c.set_pending(entry.pending);
                c.set_placement(entry.placement);
                self.catalog.add(&c, at, self.trees.views().oldest());
                c
            }
        };
        collection.look_at_health(validator);
        collection.look_at_expiry();
        if let Some(e) = damage {
            collection.close(e.message());
        }
        collection
    }

    /// Makes the indexes what the entry says of them.
    fn publish_indexes(&self, entry: &Entry, indexes: &[Arc<Index>]) {
        // All entries that the build has committed into a new index are visible by now.
        let since = self.trees.views().visible();
        for (index, i) in indexes.iter().zip(&entry.indexes) {
            if i.ready && index.complete_since().is_none() {
                index.set_ready(since);
            }
            if index.spec() != i.spec {
                index.set_spec(i.spec.clone());
            }
            if let Some(e) = &i.damage {
                index.close(e.message());
            }
        }
    }

    /// Takes a collection out of the catalog. The puts are in the trees already, but not visible
    /// yet.
    pub fn publish_drop(&self, collection: &Arc<Collection>, at: Timestamp) {
        let oldest = self.trees.views().oldest();
        self.catalog.remove(collection, at, oldest);
        collection.set_dropped();
        self.catalog.lists.forget(collection.id);
        for index in collection.all_indexes().iter() {
            index.set_dropped();
            self.give_up(index.id, at);
        }
        self.give_up(collection.id, at);
    }

    /// Notes that the drop of a tree was committed at `at`. Its space is reclaimed after its last
    /// reader has let go of it.
    fn give_up(&self, tree: u32, at: Timestamp) {
        self.cuts.note_drop(tree, at);
        self.watch.call();
    }
}

/// The index handles for an entry: those of `held` where it has the index already, else new ones.
///
/// # Errors
/// What stops `operation` while the definition of a new one is parsed.
pub(crate) fn indexes_of(
    held: Option<&Collection>,
    entry: &Entry,
    operation: &dyn Interrupt,
) -> Result<Vec<Arc<Index>>> {
    let old = held.map(Collection::all_indexes).unwrap_or_default();
    entry
        .indexes
        .iter()
        .map(|i| match old.iter().find(|o| o.id == i.id) {
            Some(o) => Ok(o.clone()),
            // Publishing the entry makes it ready.
            None => Index::of_entry(i, false, &Arrays::default(), operation).map(Arc::new),
        })
        .collect()
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

/// The error 48 NamespaceExists.
pub(crate) fn exists(namespace: &str) -> Error {
    Error::new(
        Code::NamespaceExists,
        format!("Collection {namespace} already exists."),
    )
}
