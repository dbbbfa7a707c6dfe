//! A collection as every operation sees it.

use crate::catalog::CollectionOptions;
use crate::damage::Health;
use crate::gate::Gate;
use crate::hints::Hints;
use crate::history::Named;
use crate::index::Index;
use crate::index_list::{IndexList, Indexes};
use crate::placement::Placement;
use crate::worklists::Worklists;
use muniment_io::Timestamp;
use muniment_io::spread::CachePadded;
use muniment_op::{Event, Interrupt, Lock, Sleepers};
use muniment_value::{Collation, Doc, DocBuf, Value};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

// A buffer for the key of an `_id` that is compared and then forgotten.
thread_local!(static ID_KEY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) });

/// The largest buffer that a thread keeps.
const LONGEST_KEPT: usize = 256;

/// The number of places over which a collection's busiest parts are spread, so that write units do not
/// contend for them.
pub(crate) const PLACES: usize = 4;

/// Flags for changes since the thread that acts on them looked the last time.
pub(crate) mod news {
    /// The trees do not have the current totals or multikey paths yet.
    pub const UNSAVED: u8 = 1;
    /// A document may expire earlier than was known.
    pub const EXPIRY: u8 = 2;
    /// Its size in memory or on the disk has changed.
    pub const SIZE: u8 = 4;
    /// All of these.
    pub const ALL: u8 = UNSAVED | EXPIRY | SIZE;
}

/// One collection. Handles are shared; a dropped collection's handle stays valid for reading the
/// snapshots that were open, and refuses writes.
pub struct Collection {
    pub(crate) id: u32,
    uuid: [u8; 16],
    capped: bool,
    time_series: bool,
    /// The record key of a document is its `_id`.
    clustered: bool,
    /// The tree in which an `_id` is looked up: that of `_id_`, or the documents' own. A collection has
    /// `_id_` either always or never. `None`: there is no such tree.
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
    /// A transaction that has not ended made it.
    pending: AtomicBool,
    /// Whether there is a placement, which is read far more often than the placement itself.
    placed: AtomicBool,
    placement: RwLock<Option<Arc<Placement>>>,
    /// See [`Collection::may_have_foreign_rows`].
    foreign: AtomicBool,
    /// See [`Collection::whole_since`].
    whole: AtomicU64,
    /// See [`Collection::displaced`].
    displaced: Mutex<Vec<DocBuf>>,
    named: AtomicU64,
    generation: AtomicU64,
    /// What has changed since it was looked at: see [`news`].
    news: AtomicU8,
    /// The number of the record that changed its catalog entry the last time.
    changed_in: AtomicU64,
    /// A part of it is damaged: see `damage`.
    pub(crate) hurt: AtomicBool,
    pub(crate) health: Mutex<Health>,
    /// Write units share it; DDL holds it alone.
    pub(crate) ddl: Gate<PLACES>,
    /// On cache lines of its own, because the fields beside it are read far more often than they change.
    pub(crate) flow: CachePadded<Flow>,
    /// For capped collections: held from a write unit's first insert to its commit, so that documents
    /// become visible in the order of their inserts.
    pub(crate) capped_order: Arc<Lock<()>>,
    /// Its size in bytes when it was measured, and the set of files that it had then.
    size: [AtomicU64; 2],
    /// The number of plans that read all of it, and how many of these wait at its end.
    scans: [AtomicU64; 2],
    /// See [`Collection::measured`].
    measured: [AtomicU64; 2],
    inserted: Event,
    /// The threads that build indexes of it or wait for such a build. They look again when its indexes
    /// have changed, or one of them cannot be built.
    pub(crate) building: Sleepers,
}

/// The parts that inserts change.
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
/// An `_id` above the maximum cannot exist, so an ascending insert needs no lookup. Until it is
/// committed its key lies in the write unit's run, and another unit that inserts a key which lies in
/// that run waits for the run to end.
#[derive(Default)]
pub(crate) struct Append {
    /// `None`: not read from the disk yet. Empty: there was never a record.
    pub max: Option<Vec<u8>>,
    /// The greatest `_id` of inserts that are prepared: `max` is at least this when it is read, although no
    /// tree has it yet.
    pub prepared: Vec<u8>,
    /// The last number that was given to a record. It never falls: a number is not given again, even if
    /// its document is gone.
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

    /// Takes the next number for a record.
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

    /// Makes `key` the maximum.
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

/// The options. Most collections have none, and share one empty set to save memory.
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
            // A capped collection can do without `_id_`. There it counts like other indexes until it is
            // built.
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
            // A collation that cannot be used keeps a collection from being created or opened, so this
            // default is never in use.
            collation: options.collation().unwrap_or_default(),
            namespace: RwLock::new(namespace.into()),
            options: RwLock::new(shared(options)),
            indexes: Indexes::default(),
            dropped: AtomicBool::new(false),
            images: AtomicBool::new(images),
            pending: AtomicBool::new(false),
            placed: AtomicBool::new(false),
            placement: RwLock::default(),
            foreign: AtomicBool::new(false),
            whole: AtomicU64::new(0),
            displaced: Mutex::default(),
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

    /// The full name without a copy.
    pub fn name(&self) -> Arc<str> {
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

    /// The name and UUID that readers of the log are told.
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

    /// What this shard owns of the collection; `None` if it is not sharded.
    #[inline]
    pub fn placement(&self) -> Option<Arc<Placement>> {
        match self.placed.load(SeqCst) {
            false => None,
            true => self.placement.read().clone(),
        }
    }

    pub(crate) fn set_placement(&self, placement: Option<Arc<Placement>>) {
        let mut held = self.placement.write();
        self.placed.store(placement.is_some(), SeqCst);
        let foreign = placement.as_ref().is_some_and(|p| p.has_moved());
        self.foreign.store(foreign, SeqCst);
        *held = placement;
    }

    /// The time at which the collection has ceased to be sharded. An older view has a part of it, and perhaps others'
    /// rows. Zero if it was not sharded since the start: no view is older than that.
    pub fn whole_since(&self) -> Timestamp {
        Timestamp(self.whole.load(SeqCst))
    }

    pub(crate) fn set_whole_since(&self, at: Timestamp) {
        self.whole.store(at.0, SeqCst);
    }

    /// Notes that a document of the range that arrives has no row here, because another document has its `_id`.
    pub fn displace(&self, doc: Doc<'_>) {
        let mut id = DocBuf::new();
        if let Some(e) = doc.get_elem("_id") {
            id.append_elem(e);
        }
        self.displaced.lock().push(id);
    }

    /// The `_id`s of documents of the arriving range that have given way to others here and were not asked for again
    /// since, as documents. They are in memory alone, as is how far a move has come.
    pub fn displaced(&self) -> Vec<DocBuf> {
        self.displaced.lock().clone()
    }

    /// The first ones of [`Collection::displaced`] were asked for again.
    pub fn asked_again(&self, count: usize) {
        let mut displaced = self.displaced.lock();
        let count = count.min(displaced.len());
        displaced.drain(..count);
    }

    /// False if each reader owns all rows that there are.
    #[inline]
    pub fn may_have_foreign_rows(&self) -> bool {
        self.foreign.load(SeqCst)
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

    /// All indexes, including those that are being built or closed.
    pub fn all_indexes(&self) -> IndexList {
        self.indexes.all()
    }

    pub(crate) fn set_indexes(&self, all: Vec<Arc<Index>>) {
        self.indexes.set(all);
        self.bump();
    }

    /// The state of inserts beyond the greatest `_id`.
    pub(crate) fn append(&self) -> MutexGuard<'_, Append> {
        self.flow.append.lock()
    }

    /// The number of documents: exact, without a scan, also after a crash.
    pub fn count(&self) -> u64 {
        self.flow.docs.load(SeqCst)
    }

    /// The documents' uncompressed size in bytes: exact, as [`Collection::count`].
    pub fn data_bytes(&self) -> u64 {
        self.flow.bytes.load(SeqCst)
    }

    /// Adds a commit's changes to the totals. Called after the commit is applied and before it is
    /// visible.
    pub(crate) fn add_totals(&self, docs: i64, bytes: i64) {
        if docs != 0 {
            self.flow.docs.fetch_add(docs as u64, SeqCst);
        }
        if bytes != 0 {
            self.flow.bytes.fetch_add(bytes as u64, SeqCst);
        }
        self.touch();
    }

    /// Sets the totals to the stored ones, when the store is opened.
    pub(crate) fn set_totals(&self, docs: u64, bytes: u64) {
        self.flow.docs.store(docs, SeqCst);
        self.flow.bytes.store(bytes, SeqCst);
    }

    /// Notes that it was written to, or has changed otherwise. Called after the change is applied and
    /// before it is visible.
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

    /// True if there is news of a kind ([`news`]). After the call the news counts as known.
    pub(crate) fn take_news(&self, kind: u8) -> bool {
        self.news.fetch_and(!kind, SeqCst) & kind != 0
    }

    /// Makes news that was taken news again, because acting on it failed.
    pub(crate) fn give_back_news(&self, kind: u8) {
        self.news.fetch_or(kind, SeqCst);
    }

    /// Notes that the record of this number changed its catalog entry.
    pub(crate) fn changed_by(&self, index: u64) {
        self.changed_in.fetch_max(index, SeqCst);
    }

    /// The number of the last record made here since the start that changed its catalog entry.
    pub(crate) fn changed_in(&self) -> u64 {
        self.changed_in.load(SeqCst)
    }

    /// Looks anew at whether its documents expire, after its options or indexes have changed.
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
        // Times of expiry that were computed before may be wrong now.
        self.news.fetch_or(news::EXPIRY | news::SIZE, SeqCst);
    }

    /// True if a document may expire earlier than was known at the last call.
    pub fn take_expiry_news(&self) -> bool {
        self.take_news(news::EXPIRY)
    }

    /// Its size as it was measured with this set of files.
    pub(crate) fn size_with(&self, files: u64) -> Option<u64> {
        let [size, measured] = &self.size;
        (measured.load(SeqCst) == files).then(|| size.load(SeqCst))
    }

    /// Notes its size with this set of files.
    pub(crate) fn set_size(&self, files: u64, bytes: u64) {
        let [size, measured] = &self.size;
        size.store(bytes, SeqCst);
        measured.store(files, SeqCst);
    }

    /// Notes that recovery has put this document under this record key.
    pub(crate) fn saw_insert(&self, record_key: &[u8], doc: Doc<'_>) {
        let mut append = self.append();
        if let Some(n) = number_of(record_key).filter(|_| self.is_numbered()) {
            append.last = append.last.max(n);
        }
        // The maximum is read at the first insert, which comes after recovery; it is not known before.
        if append.max.is_some()
            && let Some(id) = doc.get("_id")
        {
            let key = self.id_key(id);
            if append.max.as_ref().is_some_and(|max| key > *max) {
                append.max = Some(key);
            }
        }
    }

    /// Notes that a prepared transaction inserts a document: neither its number nor its `_id` is free,
    /// although the document is not there yet.
    pub(crate) fn saw_prepared(&self, record_key: &[u8], doc: Doc<'_>) {
        self.saw_insert(record_key, doc);
        let key = doc.get("_id").map(|id| self.id_key(id));
        let mut append = self.append();
        if let Some(key) = key.filter(|key| append.max.is_none() && *key > append.prepared) {
            append.prepared = key;
        }
    }

    /// True for an index whose entries are made together with the document's keys. The entry of `_id_`
    /// is made where the `_id` is claimed.
    pub(crate) fn has_entries(&self, index: &Index) -> bool {
        self.maintains(index) && Some(index.id) != self.id_tree
    }

    /// True for an index that has entries of its own, and is not closed.
    pub(crate) fn maintains(&self, index: &Index) -> bool {
        (!index.is_id() || !self.is_keyed_by_id()) && !index.is_damaged()
    }

    /// True while it belongs to the transaction that made it. Lists leave it out then.
    pub fn is_pending(&self) -> bool {
        self.pending.load(SeqCst)
    }

    pub(crate) fn set_pending(&self, pending: bool) {
        self.pending.store(pending, SeqCst);
    }

    /// Notes that another operation relies on the collection, so that it stays if the transaction that
    /// made it is aborted. A drop checks that while it holds the collection alone and the names locked.
    pub fn claim(&self) {
        if self.is_pending() {
            self.set_pending(false);
        }
    }

    /// True after the collection was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(SeqCst)
    }

    pub(crate) fn set_dropped(&self) {
        self.dropped.store(true, SeqCst);
        self.bump();
        self.notify_inserts(0);
    }

    /// The timestamp from which views know it by its name. A view that was opened before may know
    /// another collection by the name.
    pub fn named_since(&self) -> Timestamp {
        Timestamp(self.named.load(SeqCst))
    }

    pub(crate) fn set_named_since(&self, since: Timestamp) {
        self.named.store(since.0, SeqCst);
    }

    /// A number that changes whenever the indexes, their multikey paths, the options or the name change.
    /// A plan that was made for another generation is stale.
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

    /// Waits until the number of inserts is above `seen`, the collection is dropped, or `until`.
    /// awaitData cursors wait here.
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

    /// An `_id` as it stands in keys: the key of its entry in `_id_`, and of the document itself if the
    /// collection [is keyed by `_id`](Collection::is_keyed_by_id). Texts are encoded by the collection's
    /// collation.
    pub fn id_key(&self, id: Value<'_>) -> Vec<u8> {
        let mut key = Vec::with_capacity(24);
        self.collation.encode(id, false, &mut key);
        key
    }

    /// The collation of `_id`, and of commands that name none.
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

    /// True while a collection that needs `_id_` is being repaired and does not have it yet. It is
    /// closed until then.
    pub(crate) fn lacks_ids(&self) -> bool {
        self.is_numbered()
            && !self.capped
            && self
                .all_indexes()
                .iter()
                .any(|i| i.is_id() && !i.is_ready())
    }

    /// True if a document can be found by its `_id`, which is so except in time series.
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

    /// How often all of the collection was read since the start, and how often by a tailable cursor.
    pub fn scans(&self) -> (u64, u64) {
        let [total, tail] = &self.scans;
        (total.load(SeqCst), tail.load(SeqCst))
    }

    pub(crate) fn note_measured(&self, measurements: u64) {
        let [commits, all] = &self.measured;
        commits.fetch_add(1, SeqCst);
        all.fetch_add(measurements, SeqCst);
    }

    /// For a time-series collection: the number of commits with measurements since the start, and of the
    /// measurements.
    pub fn measured(&self) -> (u64, u64) {
        let [commits, all] = &self.measured;
        (commits.load(SeqCst), all.load(SeqCst))
    }

    /// True for a time-series collection: record keys begin with the time, and `_id` has no index and
    /// need not be unique.
    pub fn is_time_series(&self) -> bool {
        self.time_series
    }

    /// True for a collection created with `clusteredIndex`: a document's record key is its `_id`,
    /// which has no index.
    pub fn is_keyed_by_id(&self) -> bool {
        self.clustered
    }

    /// True if record keys are numbers in the order of the inserts, as eight big-endian bytes. `_id_`
    /// leads from an `_id` to its record.
    pub fn is_numbered(&self) -> bool {
        !self.clustered && !self.time_series
    }

    /// A record key as clients see it: the number, or the bytes of any other key.
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
