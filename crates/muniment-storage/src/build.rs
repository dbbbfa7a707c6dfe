//! Online index builds.
//!
//! The index is registered first, while its operation has the collection alone, so that every write unit
//! after that maintains it. Then the documents are read in slices: a view tells which records there are;
//! the builder latches them, reads each one's newest version and commits its entries. A record that is
//! written before its slice is read as it is then; a record that is written later gets its entries from
//! its writer.
//!
//! Writers wait for the latches of one slice at most, and the builder waits for no writer: it passes
//! over records that another operation holds and comes back to them. To make the index ready it takes
//! the collection alone, in a moment in which no other operation has it.
//!
//! An index may be built to take the place of another of the same name. The old one is dropped in the
//! commit that makes the new one ready, and stays if the build fails.
//!
//! A crash leaves an index marked as building. Writers had maintained what was there, so the build
//! simply runs again over it.

use crate::catalog::{Entry, IndexEntry, IndexSpec, MAX_INDEXES};
use crate::collection::Collection;
use crate::commit::announce::Announce;
use crate::commit::door::{Door, Opening};
use crate::commit::stage::Stage;
use crate::entries::entry_of;
use crate::index::{Index, KeySet};
use crate::inner::Inner;
use crate::latch::{self, Latches, Tried};
use crate::multikey::Arrays;
use crate::store::{Store, dropped};
use crate::transaction::Transaction;
use crate::unit::{duplicate, taken_by_other};
use crate::watch::{UntilClosed, Watch};
use bytes::Bytes;
use muniment_op::{Account, Event, Interrupt, Share, Sleepers};
use muniment_query::running::{Steps, Work};
use muniment_tree::{Direction, Range};
use muniment_value::{Code, Doc, Error, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// A slice ends at this many documents, or bytes of documents or of entries.
const SLICE_DOCS: usize = 500;
const SLICE_BYTES: usize = 4 << 20;

impl Store {
    /// Builds an index online: writers go on meanwhile, and the index gets their changes. An identical
    /// index is returned as it is. (The caller has dealt with equal names and patterns: 85, 86.)
    ///
    /// # Errors
    /// 11000 DuplicateKey, 171, 67 (more than 64 indexes), whatever `interrupt` says.
    pub fn create_index(
        &self,
        collection: &Arc<Collection>,
        spec: IndexSpec,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Index>> {
        collection.claim();
        self.build_index(collection, spec, false, interrupt)
    }

    /// Builds several indexes, which become ready together. If one of them fails, none was ever ready.
    ///
    /// # Errors
    /// As [`Store::create_index`].
    pub fn create_indexes(
        &self,
        collection: &Arc<Collection>,
        specs: Vec<IndexSpec>,
        interrupt: &dyn Interrupt,
    ) -> Result<Vec<Arc<Index>>> {
        collection.claim();
        self.build_indexes(collection, specs, false, interrupt)
    }

    /// As [`Store::create_indexes`], on a collection that the transaction has just made.
    ///
    /// # Errors
    /// As [`Store::create_index`]; 263 unless the transaction made the collection itself and has written
    /// nothing to it.
    pub fn create_indexes_in(
        &self,
        transaction: &Transaction,
        collection: &Arc<Collection>,
        specs: Vec<IndexSpec>,
        interrupt: &dyn Interrupt,
    ) -> Result<Vec<Arc<Index>>> {
        transaction.leave_to_index(collection)?;
        self.build_indexes(collection, specs, false, interrupt)
    }

    /// Builds an index that takes the place of the ready one of the same name, which is used until
    /// then.
    ///
    /// # Errors
    /// As [`Store::create_index`]; the old index stays.
    pub fn replace_index(
        &self,
        collection: &Arc<Collection>,
        spec: IndexSpec,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Index>> {
        collection.claim();
        self.build_index(collection, spec, true, interrupt)
    }

    fn build_index(
        &self,
        collection: &Arc<Collection>,
        spec: IndexSpec,
        replace: bool,
        interrupt: &dyn Interrupt,
    ) -> Result<Arc<Index>> {
        let built = self.build_indexes(collection, vec![spec], replace, interrupt)?;
        let mut built = built.into_iter();
        built
            .next()
            .ok_or_else(|| Error::internal("an index that was built is not there"))
    }

    fn build_indexes(
        &self,
        collection: &Arc<Collection>,
        specs: Vec<IndexSpec>,
        replace: bool,
        interrupt: &dyn Interrupt,
    ) -> Result<Vec<Arc<Index>>> {
        let inner = &self.inner;
        let documents = specs.into_iter().map(IndexSpec::with_document);
        let specs: Vec<_> = documents.map(Arc::new).collect();
        let opening = inner.door.opening()?;
        loop {
            match inner.register_indexes(collection, &specs, replace, opening, interrupt)? {
                Some(Registered { all, new }) => {
                    if !new.is_empty() {
                        inner.finish_indexes(collection, &new, opening, interrupt)?;
                    }
                    return Ok(all);
                }
                // Another client builds one of these indexes, so this operation waits for the end of
                // that build.
                None => {
                    let builds = Builds {
                        watch: &inner.watch,
                        door: &inner.door,
                        collection,
                        all: &[],
                        opening,
                        interrupt,
                    };
                    let ended = || !is_built(collection, &specs);
                    Event::new().wait(&builds, ended)?;
                }
            }
        }
    }
}

/// A build, and the opening of the door in which it was begun.
pub(crate) type Begun = (Arc<Collection>, Arc<Index>, Opening);

/// The indexes that were asked for.
#[derive(Default)]
pub(crate) struct Registered {
    /// All indexes that were asked for.
    pub all: Vec<Arc<Index>>,
    /// The ones that are to be built.
    pub new: Vec<Arc<Index>>,
}

/// What happens to an index whose build fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unbuilt {
    /// It is taken away.
    Goes,
    /// It is taken away if it cannot be built of these documents and is not `_id_`. Otherwise it stays
    /// as it is, to be built another time.
    StaysIfItCan,
}

/// The result of writing a slice.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// The number of records that were dealt with.
    pub done: usize,
    /// The records among them that another operation was writing.
    pub held: Vec<Bytes>,
    /// The first latch that another operation had.
    pub busy: Option<u64>,
}

impl Written {
    /// Notes that another operation has the latch of a record, or of one of its keys.
    fn hold(&mut self, record: &Bytes, busy: u64) {
        self.held.push(record.clone());
        self.busy.get_or_insert(busy);
    }
}

/// Whether index builds may go on.
struct Builds<'b> {
    watch: &'b Watch,
    door: &'b Door,
    collection: &'b Collection,
    all: &'b [Arc<Index>],
    opening: Opening,
    interrupt: &'b dyn Interrupt,
}

impl Interrupt for Builds<'_> {
    fn check(&self) -> Result<()> {
        self.interrupt.check()?;
        self.watch.check_open()?;
        self.door.check(self.opening)?;
        failure(self.all)
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        self.interrupt.sleepers(show);
        show(&self.watch.stops);
        show(&self.collection.building);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.interrupt.wakes_at()
    }
}

/// True while one of these indexes is being built.
fn is_built(collection: &Collection, specs: &[Arc<IndexSpec>]) -> bool {
    let under_way =
        |i: &Arc<Index>| !i.is_ready() && !i.is_damaged() && i.build_failure().is_none();
    let all = collection.all_indexes();
    let mut built = all.iter().filter(|i| under_way(i));
    built.any(|i| specs.iter().any(|spec| i.spec() == *spec))
}

/// The error of a build whose index was taken away meanwhile.
fn gone(index: &Index) -> Error {
    index
        .build_failure()
        .unwrap_or_else(|| Error::new(Code::IndexBuildAborted, "the index was dropped"))
}

/// The error of the first of these builds that has failed.
fn failure(builds: &[Arc<Index>]) -> Result<()> {
    let failed = builds.iter().find_map(|i| i.build_failure());
    failed.map_or(Ok(()), Err)
}

/// The index with this specification, if it exists or is being built.
///
/// # Errors
/// 85 for another one of its name, unless that is to be replaced; 301 if it is closed.
fn there_already(
    collection: &Collection,
    all: &[Arc<Index>],
    spec: &Arc<IndexSpec>,
    replace: bool,
) -> Result<Option<Arc<Index>>> {
    for index in all {
        let theirs = index.spec();
        if theirs.name == spec.name {
            index.check_usable(collection)?;
        }
        if theirs == *spec {
            return Ok(Some(index.clone()));
        }
        if theirs.name == spec.name && !(replace && index.is_ready()) {
            return Err(Error::new(
                Code::IndexOptionsConflict,
                format!(
                    "An existing index has the same name as the requested index. Requested index: \
                     {}, existing index: {}",
                    spec.document.as_doc().to_display(),
                    theirs.document.as_doc().to_display()
                ),
            ));
        }
    }
    Ok(None)
}

impl Inner {
    /// Registers those of the indexes that do not exist yet, in one commit. The same commit removes what
    /// a failed build has left. `None` while another client builds one of them: then nothing was
    /// registered.
    pub(crate) fn register_indexes(
        &self,
        collection: &Arc<Collection>,
        specs: &[Arc<IndexSpec>],
        replace: bool,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<Option<Registered>> {
        let _alone = self.exclusive(collection, opening, interrupt)?;
        let all = collection.all_indexes();
        // Failed builds are replaced. A thread that still works on one of them finds it gone.
        let kept = |i: &&Arc<Index>| i.is_ready() || i.is_damaged() || i.build_failure().is_none();
        let all: Vec<Arc<Index>> = all.iter().filter(kept).cloned().collect();
        let mut there: Vec<Option<Arc<Index>>> = Vec::with_capacity(specs.len());
        for spec in specs {
            let found = there_already(collection, &all, spec, replace)?;
            if found.as_ref().is_some_and(|i| !i.is_ready()) {
                return Ok(None);
            }
            there.push(found);
        }
        if there.iter().all(Option::is_some) {
            return Ok(Some(Registered {
                all: there.into_iter().flatten().collect(),
                new: Vec::new(),
            }));
        }
        // An index that is to be replaced stays until the build ends.
        let ready = collection.count() == 0 && !replace;
        let mut entry = Entry::of(collection, &all);
        let mut ids = Vec::with_capacity(specs.len());
        for (spec, there) in specs.iter().zip(&there) {
            if let Some(there) = there {
                ids.push(there.id);
                continue;
            }
            if entry.indexes.len() >= MAX_INDEXES {
                return Err(Error::new(
                    Code::CannotCreateIndex,
                    format!(
                        "add index fails, too many indexes for {} key:{}",
                        collection.namespace(),
                        spec.key.as_doc().to_display()
                    ),
                ));
            }
            let id = self.catalog.fresh_id()?;
            ids.push(id);
            entry.indexes.push(IndexEntry {
                id,
                ready,
                spec: spec.clone(),
                damage: None,
            });
        }
        let committed = self.change_entry(collection.id, entry, opening, interrupt);
        let now = collection.all_indexes();
        let found = ids.iter().map(|id| now.iter().find(|i| i.id == *id));
        let is_new = |i: &&Arc<Index>| !all.iter().any(|old| old.id == i.id);
        if let Err(e) = committed {
            // The commit failed, and yet the index exists. It is not certain to stay, and no build runs
            // for it, so it is taken away later.
            let left = found.flatten().filter(is_new);
            let left = left.map(|index| (collection.clone(), index.clone(), opening));
            self.leftovers.failed_builds.lock().extend(left);
            return Err(e);
        }
        let found: Option<Vec<Arc<Index>>> = found.map(|i| i.cloned()).collect();
        let found = found.ok_or_else(|| Error::internal("a new index is not there"))?;
        let new = match ready {
            true => Vec::new(),
            false => found.iter().filter(is_new).cloned().collect(),
        };
        Ok(Some(Registered { all: found, new }))
    }

    /// Scans, and makes the indexes ready, all in one commit, or takes them away again. If the door is
    /// closed meanwhile they are left as they are, and the next primary builds them. If the operation
    /// ends in the last step or anywhere else while the collection is in use, they are taken away later.
    pub(crate) fn finish_indexes(
        &self,
        collection: &Arc<Collection>,
        indexes: &[Arc<Index>],
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        self.end_builds(collection, indexes, Unbuilt::Goes, opening, interrupt)
    }

    /// As [`Inner::finish_indexes`], for one index. `unbuilt`: what happens to it if the build fails.
    pub(crate) fn end_build(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<Index>,
        unbuilt: Unbuilt,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let indexes = std::slice::from_ref(index);
        self.end_builds(collection, indexes, unbuilt, opening, interrupt)
    }

    fn end_builds(
        &self,
        collection: &Arc<Collection>,
        indexes: &[Arc<Index>],
        unbuilt: Unbuilt,
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let scan = |index: &Arc<Index>| self.scan(collection, (index, indexes), opening, interrupt);
        let scanned = indexes.iter().try_for_each(scan);
        let alone = match indexes.iter().any(|i| i.is_id()) {
            // The collection is closed until it has this index.
            true => self.exclusive_to_drop(collection, opening, interrupt),
            false => self.exclusive(collection, opening, interrupt),
        };
        self.door.check(opening)?;
        let mut result = failure(indexes).and(scanned);
        let leave = || {
            for index in indexes.iter().filter(|i| !i.is_ready()) {
                self.leave_build(collection, index, opening);
            }
        };
        let _alone = match alone {
            Ok(alone) => alone,
            Err(_) if collection.is_dropped() => {
                return Err(indexes
                    .first()
                    .map_or_else(|| dropped(collection), |i| gone(i)));
            }
            Err(e) => {
                if unbuilt == Unbuilt::Goes {
                    leave();
                }
                return Err(result.err().unwrap_or(e));
            }
        };
        let all = collection.all_indexes();
        let is_ours = |i: &Arc<Index>| indexes.iter().any(|ours| ours.id == i.id);
        let lost = |ours: &&Arc<Index>| !all.iter().any(|i| i.id == ours.id);
        if let Some(lost) = indexes.iter().find(lost) {
            // drop_index came first.
            result = Err(gone(lost));
        }
        if let Err(e) = result {
            let rest: Vec<_> = all.iter().filter(|i| !is_ours(i)).cloned().collect();
            let can_stay = |i: &Arc<Index>| i.build_failure().is_none() || i.is_id();
            let stays = unbuilt == Unbuilt::StaysIfItCan && indexes.iter().all(can_stay);
            if self.watch.is_closed() || rest.len() == all.len() || stays {
                return Err(e);
            }
            match self.commit_indexes(collection, &rest, opening, interrupt) {
                Err(e) if e.code() == Code::NotWritablePrimary => return Err(e),
                // If the disk is full, this is tried again later. The client gets the build's error.
                Err(_) => leave(),
                Ok(()) => {}
            }
            return Err(e);
        }
        let names: Vec<_> = indexes.iter().map(|i| i.spec().name.clone()).collect();
        let replaced = |i: &Arc<Index>| !is_ours(i) && names.contains(&i.spec().name);
        let rest: Vec<_> = all.iter().filter(|i| !replaced(i)).cloned().collect();
        let mut entry: Entry = Entry::of(collection, &rest);
        for i in &mut entry.indexes {
            i.ready |= indexes.iter().any(|ours| ours.id == i.id);
        }
        let committed = self.change_entry(collection.id, entry, opening, interrupt);
        if let Err(e) = committed {
            // The index may exist all the same, but is not certain to stay.
            if unbuilt == Unbuilt::Goes && e.code() != Code::NotWritablePrimary {
                leave();
            }
            return Err(e);
        }
        Ok(())
    }

    /// Leaves an index whose build has ended to be taken away later.
    fn leave_build(&self, collection: &Arc<Collection>, index: &Arc<Index>, opening: Opening) {
        index.fail_build(Error::new(
            Code::IndexBuildAborted,
            "the index build was aborted",
        ));
        collection.building.wake_all();
        let left = (collection.clone(), index.clone(), opening);
        self.leftovers.failed_builds.lock().push(left);
    }

    fn scan(
        &self,
        collection: &Arc<Collection>,
        (index, all): (&Arc<Index>, &[Arc<Index>]),
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        let builds = Builds {
            watch: &self.watch,
            door: &self.door,
            collection,
            all,
            opening,
            interrupt,
        };
        let mut after: Option<Bytes> = None;
        let mut held = VecDeque::new();
        loop {
            builds.check()?;
            let records = self.read_slice(collection, after.as_deref(), &builds)?;
            if records.is_empty() {
                break;
            }
            let slice = self.write_slice(collection, index, &records, opening, interrupt)?;
            after = records.get(slice.done.saturating_sub(1)).cloned();
            held.extend(slice.held);
        }
        // Other operations may hold these records for long, and no writer may have to wait for this
        // build meanwhile.
        while !held.is_empty() {
            let before = held.len();
            let mut round = before;
            let mut busy = None;
            while round > 0 {
                builds.check()?;
                let records: Vec<Bytes> = held.drain(..round.min(SLICE_DOCS)).collect();
                let slice = self.write_slice(collection, index, &records, opening, interrupt)?;
                round -= slice.done;
                busy = busy.or(slice.busy);
                let rest = records.iter().skip(slice.done).rev();
                rest.for_each(|record| held.push_front(record.clone()));
                held.extend(slice.held);
            }
            if let Some(busy) = busy.filter(|_| held.len() == before) {
                interrupt.waits_for_lock(true);
                let waited = self.units.latches.wait_free(busy, &builds);
                interrupt.waits_for_lock(false);
                waited?;
            }
        }
        Ok(())
    }

    /// The record keys of the next slice.
    fn read_slice(
        &self,
        collection: &Collection,
        after: Option<&[u8]>,
        interrupt: &dyn Interrupt,
    ) -> Result<Vec<Bytes>> {
        let range = Range {
            low: after.map_or_else(Bytes::new, |key| Bytes::from([key, &[0]].concat())),
            high: None,
        };
        let view = self.snapshot();
        let docs = view.raw_range(collection.id, range, Direction::Forward);
        let mut docs = docs.ok_or_else(crate::watch::closed)?;
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < SLICE_DOCS && bytes < SLICE_BYTES {
            let Some((key, doc)) = docs.next(interrupt)? else {
                break;
            };
            bytes += doc.len();
            records.push(key);
        }
        Ok(records)
    }

    /// Commits the entries of the first records of a slice, as many as fit. It passes over records that
    /// another operation holds, instead of waiting for them.
    pub(crate) fn write_slice(
        &self,
        collection: &Arc<Collection>,
        index: &Arc<Index>,
        records: &[Bytes],
        opening: Opening,
        interrupt: &dyn Interrupt,
    ) -> Result<Written> {
        // No drop may come in between, because after it there would be nothing to commit into.
        let _shared = collection.ddl.share(interrupt)?;
        if collection.is_dropped() || index.is_dropped() {
            return Err(gone(index));
        }
        let mut latches = Latched {
            latches: &self.units.latches,
            owner: self.units.next_owner(),
            held: Vec::new(),
        };
        let (mut arrays, mut set) = (Arrays::default(), KeySet::default());
        let (most, steps) = (self.units.key_limits(), Steps::default());
        let work = Work::of(interrupt, &steps);
        let mut share = Share::new(&self.home.ledger, Account::Writes);
        let mut written = Written::default();
        // (record, key, bits) of every entry.
        let mut found: Vec<(usize, Vec<u8>, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        for (i, record) in records.iter().enumerate() {
            if bytes > SLICE_BYTES {
                break;
            }
            written.done = i + 1;
            if let Err(busy) = latches.take(&[latch::record_hash(collection.id, record)]) {
                written.hold(record, busy);
                continue;
            }
            let Some(doc) = self.newest(collection.id, record)? else {
                continue; // deleted since
            };
            // These bytes are needed twice: as entries and in the record.
            let mut short = false;
            let mut hold = |more| {
                let held = share.try_hold(3 * (bytes + more));
                short = held.is_err();
                Ok(held?)
            };
            let made = index.key_set_within(Doc::new(&doc), &mut set, most, &mut hold, work);
            if let Err(e) = made {
                if !short {
                    // The index cannot be built while there is such a document.
                    index.fail_build(e.clone());
                }
                return Err(e);
            }
            if index.unique() {
                let hashes = set.iter().map(|(k, _)| latch::unique_hash(index.id, k));
                if let Err(busy) = latches.take(&hashes.collect::<Vec<_>>()) {
                    written.hold(record, busy);
                    continue;
                }
            }
            bytes += set
                .iter()
                .map(|(k, b)| k.len() + b.len() + 64)
                .sum::<usize>();
            found.extend(set.iter().map(|(k, b)| (i, k.to_vec(), b.to_vec())));
            if let Some(keys) = set.keys() {
                arrays.add(keys);
            }
        }
        share.holds(3 * bytes);
        let mut stage = Stage::new(opening);
        if index.unique() {
            let mut seen: HashMap<&[u8], usize> = HashMap::new();
            for (i, key, bits) in &found {
                let record = records.get(*i).map(|r| &**r).unwrap_or_default();
                let in_slice = seen.insert(key, *i).is_some_and(|other| other != *i);
                if in_slice || taken_by_other(self, &mut stage, index, key, record, interrupt)? {
                    let e = duplicate(collection, index, key, bits);
                    index.fail_build(e.clone());
                    return Err(e);
                }
            }
        }
        if found.is_empty() {
            return Ok(written);
        }
        let entries: Vec<(Vec<u8>, Vec<u8>)> = found
            .iter()
            .filter_map(|(i, key, bits)| Some(entry_of(index, key, bits, records.get(*i)?)))
            .collect();
        index.multikey().widen(&arrays);
        let placed = stage
            .log
            .entries(collection.id, index.id, &entries, &arrays.to_bytes());
        for (key, value) in placed {
            let (key, value) = (Stage::logged(key), Stage::logged(value));
            stage.put(index.id, key, Some(value), false);
        }
        self.commit(stage, Announce::Door, interrupt, |_| collection.touch())?;
        Ok(written)
    }

    /// Runs the builds that were interrupted by a crash, or by the end of another primary.
    pub(crate) fn resume_builds(
        &self,
        builds: Vec<(Arc<Collection>, Arc<Index>)>,
        opening: Opening,
    ) {
        for (collection, index) in builds {
            // A build that fails takes the index away; no client waits for its result.
            let _ = self.finish_indexes(&collection, &[index], opening, &UntilClosed(&self.watch));
        }
    }
}

/// The latches of a slice.
struct Latched<'s> {
    latches: &'s Latches,
    owner: u64,
    held: Vec<u64>,
}

impl Latched<'_> {
    /// Takes all of them. If another owner has one, takes none and returns that one.
    fn take(&mut self, hashes: &[u64]) -> std::result::Result<(), u64> {
        let before = self.held.len();
        for hash in hashes {
            match self.latches.try_lock(*hash, self.owner) {
                Tried::Taken => self.held.push(*hash),
                Tried::Mine => {}
                Tried::Busy => {
                    let busy = hash;
                    for hash in self.held.drain(before..) {
                        self.latches.unlock(hash, self.owner);
                    }
                    return Err(*busy);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        for hash in self.held.drain(..) {
            self.latches.unlock(hash, self.owner);
        }
    }
}
