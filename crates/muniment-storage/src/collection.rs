//! A collection as every operation sees it.

use crate::catalog::CollectionOptions;
use crate::damage::Health;
use crate::gate::Gate;
use crate::hints::Hints;
use crate::history::Named;
use crate::index::Index;
use crate::index_list::{IndexList, Indexes};
use crate::worklists::Worklists;
use muniment_io::Timestamp;
use muniment_io::spread::CachePadded;
use muniment_op::{Event, Interrupt, Lock, Sleepers};
use muniment_value::{Collation, Doc, Value};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

// Room for the key of one `_id`, which is compared and forgotten.
thread_local!(static ID_KEY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) });

/// Bytes of it that a thread keeps.
const LONGEST_KEPT: usize = 256;

/// Among how many places what every write unit uses is spread.
pub(crate) const PLACES: usize = 4;

/// Flags for what has changed since the thread that acts on it looked the last time.
pub(crate) mod news {
    /// The trees do not hold the totals or multikey paths as they are.
    pub const UNSAVED: u8 = 1;
    /// Something may expire earlier.
    pub const EXPIRY: u8 = 2;
    /// It takes more or less memory or room on the disk.
    pub const SIZE: u8 = 4;
    /// All of it.
    pub const ALL: u8 = UNSAVED | EXPIRY | SIZE;
}

/// One collection. Handles are shared; a dropped collection's handle stays valid for reading the
/// snapshots that were open, and refuses writes.
pub struct Collection {
    pub(crate) id: u32,
    uuid: [u8; 16],
    capped: bool,
    time_series: bool,
    /// Documents stand by their `_id`.
    clustered: bool,
    /// The tree in which the `_id`s stand: that of `_id_`, which a collection has as long as it is
    /// there or never, or the documents' own. `None`: they stand nowhere.
    pub(crate) id_tree: Option<u32>,
    pub(crate) hints: Arc<Hints>,
    collation: Collation,
    pub(crate) lists: Arc<Worklists>,
    namespace: RwLock<Arc<str>>,
    options: RwLock<Arc<CollectionOptions>>,
    indexes: Indexes,
    dropped: AtomicBool,
    /// See [`Collection::keeps_images`].
    images: AtomicBool,
    /// A transaction made it that has not ended.
    pending: AtomicBool,
    named: AtomicU64,
    generation: AtomicU64,
    /// What has changed since it was looked at: see [`news`].
    news: AtomicU8,
    /// The number of the record that changed its catalog entry the last time.
    changed_in: AtomicU64,
    /// Something of it is damaged: see `damage`.
    pub(crate) hurt: AtomicBool,
    pub(crate) health: Mutex<Health>,
    /// Write units share it, DDL has it alone.
    pub(crate) ddl: Gate<PLACES>,
    /// Apart from all else, which is looked at far more often than it changes.
    pub(crate) flow: CachePadded<Flow>,
    /// Capped: held from a write unit's first insert to its commit, so that insertion order is
    /// the order of visibility.
    pub(crate) capped_order: Arc<Lock<()>>,
    /// Bytes as they were measured, and with which set of files.
    size: [AtomicU64; 2],
    /// Plans that read all of it, and those of them that wait at its end.
    scans: [AtomicU64; 2],
    /// See [`Collection::measured`].
    measured: [AtomicU64; 2],
    inserted: Event,
    /// The threads that build indexes of it or wait for such a build: they look again when its indexes
    /// have changed, or one of them cannot be built.
    pub(crate) building: Sleepers,
}

/// What inserts change.
#[derive(Default)]
pub(crate) struct Flow {
    docs: AtomicU64,
    bytes: AtomicU64,
    inserts: AtomicU64,
    /// Inserts beyond the greatest `_id`, and the numbers of records.
    pub append: Mutex<Append>,
    pub append_done: Event,
}

/// The greatest `_id` ever inserted (encoded), and the write units with inserts beyond it under way.
///
/// An `_id` above the maximum cannot exist, so an ascending insert needs no lookup. Until it
/// is committed its key lies in the write unit's run, and another unit that inserts a key which lies
/// in that run waits for the run to end.
#[derive(Default)]
pub(crate) struct Append {
    /// `None`: not read from the disk yet. Empty: no record was ever there.
    pub max: Option<Vec<u8>>,
    /// The last number that was given to a record. It never falls: a number that was in use, also
    /// one whose document is gone, is not given again.
    pub last: u64,
    pub runs: Vec<Run>,
}

/// The `_id`s that one write unit appended: everything it appended lies in `low..=high`.
pub(crate) struct Run {
    pub owner: u64,
    pub low: Vec<u8>,
    pub high: Vec<u8>,
}

impl Append {
    /// True if a write unit other than `owner` may be about to commit `key`.
    pub fn in_flight(&self, key: &[u8], owner: u64) -> bool {
        self.runs
            .iter()
            .any(|r| r.owner != owner && r.contains(key))
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// True if `owner` itself may have staged `key` here.
    pub fn mine(&self, key: &[u8], owner: u64) -> bool {
        self.runs
            .iter()
            .any(|r| r.owner == owner && r.contains(key))
    }

    /// `key` is the maximum now.
    pub fn raise(&mut self, key: &[u8]) {
        let max = self.max.get_or_insert_default();
        max.clear();
        max.extend_from_slice(key);
    }

    /// Notes that `owner` appends `key`, which is above the maximum.
    pub fn append(&mut self, key: &[u8], owner: u64) {
        self.raise(key);
        match self.runs.iter_mut().find(|r| r.owner == owner) {
            Some(run) => {
                run.high.clear();
                run.high.extend_from_slice(key);
            }
            None => self.runs.push(Run {
                owner,
                low: key.to_vec(),
                high: key.to_vec(),
            }),
        }
    }
}

impl Run {
    fn contains(&self, key: &[u8]) -> bool {
        *self.low <= *key && *key <= *self.high
    }
}

/// Most collections have none: those share one.
fn shared(options: CollectionOptions) -> Arc<CollectionOptions> {
    static NONE: OnceLock<Arc<CollectionOptions>> = OnceLock::new();
    let none = NONE.get_or_init(Arc::default);
    match options == **none {
        true => none.clone(),
        false => Arc::new(options),
    }
}

/// `changeStreamPreAndPostImages: {enabled: true}`.
fn options_keep_images(options: &CollectionOptions) -> bool {
    let images = options
        .document
        .as_doc()
        .get_doc("changeStreamPreAndPostImages");
    images.is_some_and(|d| d.get("enabled").is_some_and(|v| v.truthy()))
}

impl Collection {
    pub(crate) fn new(
        id: u32,
        namespace: &str,
        uuid: [u8; 16],
        options: CollectionOptions,
        indexes: Vec<Arc<Index>>,
        hints: Arc<Hints>,
        lists: Arc<Worklists>,
    ) -> Collection {
        let clustered = options.is_clustered();
        let capped = options.capped_size.is_some();
        let id_index = indexes.iter().find(|i| i.is_id());
        let id_tree = match clustered {
            true => Some(id),
            // A capped collection can do without: there it is an index as others until it is built.
            false if capped => id_index.filter(|i| i.is_ready()).map(|i| i.id),
            false => id_index.map(|i| i.id),
        };
        let images = options_keep_images(&options);
        let collection = Collection {
            id,
            uuid,
            capped,
            time_series: options.time_field.is_some(),
            clustered,
            hints,
            lists,
            id_tree: id_tree.filter(|_| options.time_field.is_none()),
            // The collection was not created, or not opened, with one that cannot be made.
            collation: options.collation().unwrap_or_default(),
            namespace: RwLock::new(namespace.into()),
            options: RwLock::new(shared(options)),
            indexes: Indexes::default(),
            dropped: AtomicBool::new(false),
            images: AtomicBool::new(images),
            pending: AtomicBool::new(false),
            named: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            news: AtomicU8::new(news::ALL & !news::UNSAVED),
            changed_in: AtomicU64::new(0),
            hurt: AtomicBool::new(false),
            health: Mutex::default(),
            ddl: Gate::default(),
            flow: CachePadded::default(),
            capped_order: Arc::default(),
            size: Default::default(),
            scans: Default::default(),
            measured: Default::default(),
            inserted: Event::new(),
            building: Sleepers::new(),
        };
        collection.set_indexes(indexes);
        collection
    }

    /// The full name, `db.collection`.
    pub fn namespace(&self) -> String {
        self.name().to_string()
    }

    /// The same, not copied.
    pub(crate) fn name(&self) -> Arc<str> {
        self.namespace.read().clone()
    }

    /// Whether it is a collection of the database.
    pub(crate) fn is_in(&self, db: &str) -> bool {
        let rest = self.namespace.read();
        rest.strip_prefix(db)
            .is_some_and(|rest| rest.starts_with('.'))
    }

    pub(crate) fn set_namespace(&self, namespace: &str) {
        *self.namespace.write() = namespace.into();
        self.bump();
    }

    /// What readers of the log are told of it.
    pub(crate) fn named(&self) -> Named {
        Named {
            namespace: self.namespace(),
            uuid: self.uuid,
            time_series: self.time_series,
        }
    }

    /// True if the log keeps documents as they were before they were changed or deleted
    /// (`changeStreamPreAndPostImages`).
    pub fn keeps_images(&self) -> bool {
        self.images.load(SeqCst)
    }

    /// The collection's UUID, as `listCollections` shows it.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The number of the tree that holds its documents.
    pub fn tree(&self) -> u32 {
        self.id
    }

    /// The options.
    pub fn options(&self) -> Arc<CollectionOptions> {
        self.options.read().clone()
    }

    pub(crate) fn set_options(&self, options: CollectionOptions) {
        self.images.store(options_keep_images(&options), SeqCst);
        *self.options.write() = shared(options);
        self.bump();
    }

    /// All indexes that are ready and not closed, `_id_` first.
    pub fn indexes(&self) -> IndexList {
        self.indexes.ready()
    }

    /// All indexes that are listed: those that are ready, and those that are closed.
    pub fn listed_indexes(&self) -> Vec<Arc<Index>> {
        let all = self.all_indexes();
        let listed = all.iter().filter(|i| i.is_ready() || i.is_damaged());
        listed.cloned().collect()
    }

    /// All indexes, those that are being built too, and those that are closed.
    pub fn all_indexes(&self) -> IndexList {
        self.indexes.all()
    }

    pub(crate) fn set_indexes(&self, all: Vec<Arc<Index>>) {
        self.indexes.set(all);
        self.bump();
    }

    /// What is known of inserts beyond the greatest `_id`.
    pub(crate) fn append(&self) -> MutexGuard<'_, Append> {
        self.flow.append.lock()
    }

    /// How many documents there are: exact, without a scan, also after a crash.
    pub fn count(&self) -> u64 {
        self.flow.docs.load(SeqCst)
    }

    /// The documents' uncompressed size in bytes: exact, as [`Collection::count`].
    pub fn data_bytes(&self) -> u64 {
        self.flow.bytes.load(SeqCst)
    }

    /// Adds to the totals what a commit did: after it was applied and before it is visible.
    pub(crate) fn add_totals(&self, docs: i64, bytes: i64) {
        if docs != 0 {
            self.flow.docs.fetch_add(docs as u64, SeqCst);
        }
        if bytes != 0 {
            self.flow.bytes.fetch_add(bytes as u64, SeqCst);
        }
        self.touch();
    }

    /// The totals as they are stored, at open.
    pub(crate) fn set_totals(&self, docs: u64, bytes: u64) {
        self.flow.docs.store(docs, SeqCst);
        self.flow.bytes.store(bytes, SeqCst);
    }

    /// Something was written to it, or became known of it: after it was applied and before it is
    /// visible.
    #[inline]
    pub(crate) fn touch(&self) {
        if self.news.load(SeqCst) != news::ALL {
            self.tell();
        }
    }

    #[cold]
    fn tell(&self) {
        let known = self.news.fetch_or(news::ALL, SeqCst);
        if known & news::UNSAVED == 0 {
            self.lists.unsaved(self.id);
        }
    }

    /// True if there is news of a kind ([`news`]); after the call it counts as known.
    pub(crate) fn take_news(&self, kind: u8) -> bool {
        self.news.fetch_and(!kind, SeqCst) & kind != 0
    }

    /// News that were taken are news again: what was to be made of them failed.
    pub(crate) fn give_back_news(&self, kind: u8) {
        self.news.fetch_or(kind, SeqCst);
    }

    /// The record of this number changed its catalog entry.
    pub(crate) fn changed_by(&self, index: u64) {
        self.changed_in.fetch_max(index, SeqCst);
    }

    /// The number of the record that did so the last time, of those that were made here since the
    /// start.
    pub(crate) fn changed_in(&self) -> u64 {
        self.changed_in.load(SeqCst)
    }

    /// After its options, or its indexes, came to be what an entry says.
    pub(crate) fn look_at_expiry(&self) {
        let options = self.options();
        let own = options
            .document
            .as_doc()
            .get("expireAfterSeconds")
            .is_some();
        let all = self.all_indexes();
        let expires = |i: &Arc<Index>| i.spec().expire_after_seconds.is_some();
        self.lists.expires(self.id, own || all.iter().any(expires));
        // What was known of when something expires is of before.
        self.news.fetch_or(news::EXPIRY | news::SIZE, SeqCst);
    }

    /// True if something may expire earlier than was known when this was asked the last time.
    pub fn take_expiry_news(&self) -> bool {
        self.take_news(news::EXPIRY)
    }

    /// What it took with this set of files when it was measured.
    pub(crate) fn size_with(&self, files: u64) -> Option<u64> {
        let [size, measured] = &self.size;
        (measured.load(SeqCst) == files).then(|| size.load(SeqCst))
    }

    /// Notes what it takes with this set of files.
    pub(crate) fn set_size(&self, files: u64, bytes: u64) {
        let [size, measured] = &self.size;
        size.store(bytes, SeqCst);
        measured.store(files, SeqCst);
    }

    /// Recovery has put this document under this record key.
    pub(crate) fn saw_insert(&self, record_key: &[u8], doc: Doc<'_>) {
        let mut append = self.append();
        if let Some(n) = number_of(record_key).filter(|_| self.is_numbered()) {
            append.last = append.last.max(n);
        }
        // The maximum is not known before the first insert, which comes after recovery.
        if append.max.is_some()
            && let Some(id) = doc.get("_id")
        {
            let key = self.id_key(id);
            if append.max.as_ref().is_some_and(|max| key > *max) {
                append.max = Some(key);
            }
        }
    }

    /// True for an index whose entries are made from a document's keys where it is written; the
    /// entry of `_id_` is made where the `_id` is claimed.
    pub(crate) fn has_entries(&self, index: &Index) -> bool {
        self.maintains(index) && Some(index.id) != self.id_tree
    }

    /// True for an index that has entries of its own, and is not closed.
    pub(crate) fn maintains(&self, index: &Index) -> bool {
        (!index.is_id() || !self.is_keyed_by_id()) && !index.is_damaged()
    }

    /// True while it is a part of a transaction that made it: lists leave it out.
    pub fn is_pending(&self) -> bool {
        self.pending.load(SeqCst)
    }

    pub(crate) fn set_pending(&self, pending: bool) {
        self.pending.store(pending, SeqCst);
    }

    /// Notes that somebody relies on the collection: it stays, whatever becomes of the transaction that
    /// made it. A drop checks that while it holds the collection alone and the names locked.
    pub fn claim(&self) {
        if self.is_pending() {
            self.set_pending(false);
        }
    }

    /// True once the collection was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(SeqCst)
    }

    pub(crate) fn set_dropped(&self) {
        self.dropped.store(true, SeqCst);
        self.bump();
        self.notify_inserts(0);
    }

    /// Views from here on know it by its name: one that was opened before may know another
    /// collection by it.
    pub fn named_since(&self) -> Timestamp {
        Timestamp(self.named.load(SeqCst))
    }

    pub(crate) fn set_named_since(&self, since: Timestamp) {
        self.named.store(since.0, SeqCst);
    }

    /// A number that changes whenever the indexes, their multikey paths, the options or the name
    /// change: plans made for another generation are stale.
    pub fn generation(&self) -> u64 {
        self.generation.load(SeqCst)
    }

    pub(crate) fn bump(&self) {
        self.generation.fetch_add(1, SeqCst);
        self.building.wake_all();
    }

    /// The number of inserts ever made since the store was opened: for [`Collection::wait_insert`].
    pub fn inserts(&self) -> u64 {
        self.flow.inserts.load(SeqCst)
    }

    /// Waits until the number of inserts is above `seen`, the collection is dropped, or `until`: what
    /// awaitData cursors wait on.
    ///
    /// # Errors
    /// What `interrupt` says.
    pub fn wait_insert(
        &self,
        seen: u64,
        until: Instant,
        interrupt: &dyn Interrupt,
    ) -> muniment_value::Result<()> {
        let ready = || self.inserts() > seen || self.is_dropped();
        self.inserted.wait_until(interrupt, until, ready)?;
        Ok(())
    }

    pub(crate) fn notify_inserts(&self, n: u64) {
        self.flow.inserts.fetch_add(n, SeqCst);
        self.inserted.notify_all();
    }

    /// An `_id` as it stands in keys: the key of its entry in `_id_`, and of the document itself
    /// where [`Collection::is_keyed_by_id`]. Texts stand in it by the collection's collation.
    pub fn id_key(&self, id: Value<'_>) -> Vec<u8> {
        let mut key = Vec::with_capacity(24);
        self.collation.encode(id, false, &mut key);
        key
    }

    /// How texts compare where a command says nothing else, and in `_id`.
    pub fn collation(&self) -> &Collation {
        &self.collation
    }

    /// True if this is the document whose `_id` has this key.
    pub(crate) fn has_id_key(&self, doc: &[u8], key: &[u8]) -> bool {
        let id = Doc::new(doc).get("_id");
        id.is_some_and(|id| {
            let mut own = ID_KEY.take();
            own.clear();
            self.collation.encode(id, false, &mut own);
            let same = own == key;
            if own.capacity() <= LONGEST_KEPT {
                ID_KEY.set(own);
            }
            same
        })
    }

    /// True while `_id_` is not built in a collection that cannot do without it: it is repaired, and
    /// closed until then.
    pub(crate) fn lacks_ids(&self) -> bool {
        self.is_numbered()
            && !self.capped
            && self
                .all_indexes()
                .iter()
                .any(|i| i.is_id() && !i.is_ready())
    }

    /// True if a document is found by its `_id`: everywhere but in time series.
    pub fn finds_by_id(&self) -> bool {
        self.id_tree.is_some()
    }

    /// Makes every index build that runs stop with 276 IndexBuildAborted.
    pub(crate) fn abort_builds(&self) {
        for index in self.all_indexes().iter().filter(|i| !i.is_ready()) {
            index.fail_build(muniment_value::Error::new(
                muniment_value::Code::IndexBuildAborted,
                format!("index build was aborted: {} was dropped", self.namespace()),
            ));
        }
        self.building.wake_all();
    }

    /// Counts a plan that reads all of the collection, for `$collStats`.
    pub fn note_scan(&self, tailable: bool) {
        let [total, tail] = &self.scans;
        total.fetch_add(1, SeqCst);
        tail.fetch_add(u64::from(tailable), SeqCst);
    }

    /// How often all of the collection was read since the start, and how often by a tailable
    /// cursor.
    pub fn scans(&self) -> (u64, u64) {
        let [total, tail] = &self.scans;
        (total.load(SeqCst), tail.load(SeqCst))
    }

    pub(crate) fn note_measured(&self, measurements: u64) {
        let [commits, all] = &self.measured;
        commits.fetch_add(1, SeqCst);
        all.fetch_add(measurements, SeqCst);
    }

    /// Commits of measurements since the start, and how many these were: of a time-series
    /// collection.
    pub fn measured(&self) -> (u64, u64) {
        let [commits, all] = &self.measured;
        (commits.load(SeqCst), all.load(SeqCst))
    }

    /// True for a time-series collection: record keys begin with the time, `_id` has no index and
    /// need not be unique.
    pub fn is_time_series(&self) -> bool {
        self.time_series
    }

    /// True for a collection created with `clusteredIndex`: a document's record key is its `_id`,
    /// which has no index.
    pub fn is_keyed_by_id(&self) -> bool {
        self.clustered
    }

    /// True if record keys are numbers in the order of the inserts: eight bytes, the first comes
    /// lowest. `_id_` leads from an `_id` to its record.
    pub fn is_numbered(&self) -> bool {
        !self.clustered && !self.time_series
    }

    /// A record key as clients see it: the number, or the bytes of what else it is.
    pub fn record_id<'k>(&self, record_key: &'k [u8]) -> Value<'k> {
        match number_of(record_key).filter(|_| self.is_numbered()) {
            Some(n) => Value::Int64(n as i64),
            None => Value::Binary {
                subtype: 0,
                bytes: record_key,
            },
        }
    }

    /// True for a capped collection.
    pub fn is_capped(&self) -> bool {
        self.capped
    }
}

/// The number of a record of a collection that [is numbered](Collection::is_numbered).
pub(crate) fn number_of(record_key: &[u8]) -> Option<u64> {
    record_key.try_into().ok().map(u64::from_be_bytes)
}
