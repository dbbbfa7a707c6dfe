//! One index of a collection, and the keys a document has in it.

use crate::catalog::{IndexEntry, IndexSpec};
use crate::definition::Definition;
use crate::kinds::IndexKind;
use crate::multikey::{Arrays, Multikey};
use muniment_io::Timestamp;
use muniment_op::Interrupt;
use muniment_query::running::Work;
use muniment_query::{Filter, QueryContext};
use muniment_value::collation::key_hex;
use muniment_value::path::Path;
use muniment_value::{
    Collation, Doc, DocBuf, Error, IndexKeys, KeyLimits, Result, Type, Value, index_keys,
};
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

/// Bytes of a document's keys in an index that are made without asking for memory.
pub(crate) const AT_ONCE: usize = 256 << 10;

/// One index of a collection.
pub struct Index {
    pub(crate) id: u32,
    spec: RwLock<Arc<IndexSpec>>,
    fields: Arc<[(Path, bool)]>,
    /// Makes the keys when the index is not plain.
    kind: Option<Arc<dyn IndexKind>>,
    partial: Option<Arc<Filter>>,
    collation: Collation,
    unique: bool,
    /// See `IndexSpec::prepare_unique`.
    prepares: AtomicBool,
    sparse: bool,
    is_id: bool,
    ready: AtomicBool,
    complete: AtomicU64,
    dropped: AtomicBool,
    multikey: Multikey,
    uses: AtomicU64,
    since: AtomicI64,
    /// Why the running build has to fail: it or a writer met documents that the index cannot hold, or
    /// the index is being taken away.
    build_failure: Mutex<Option<Error>>,
    /// Why the index is closed: see [`Index::close`].
    damage: OnceLock<Box<str>>,
}

/// The keys of one document, reused from document to document.
#[derive(Default)]
pub(crate) struct KeySet {
    keys: IndexKeys,
    /// The partial filter leaves the document out, or there is no document.
    excluded: bool,
}

impl KeySet {
    /// The keys as (encoded fields, type bits), ascending by key and without duplicates.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.keys
            .iter()
            .take(if self.excluded { 0 } else { usize::MAX })
    }

    /// The keys with what is known of the document's arrays; `None` when there is no document.
    pub fn keys(&self) -> Option<&IndexKeys> {
        (!self.excluded).then_some(&self.keys)
    }

    /// The set when there is no document.
    pub fn none() -> KeySet {
        KeySet {
            excluded: true,
            ..KeySet::default()
        }
    }

    /// Makes it the set for no document.
    pub fn clear(&mut self) {
        self.excluded = true;
    }

    /// Bytes of memory that the keys take, including those for staging them.
    pub fn memory(&self) -> usize {
        match self.excluded {
            true => 0,
            false => self.keys.memory(),
        }
    }

    /// Frees its buffers.
    pub fn release(&mut self) {
        *self = KeySet::none();
    }

    /// Makes it the set of a document, or of none.
    ///
    /// # Errors
    /// As [`Index::keys_of`].
    pub fn fill(&mut self, index: &Index, doc: Option<Doc<'_>>, work: Work<'_>) -> Result<()> {
        match doc {
            Some(doc) => index.key_set(doc, self, work),
            None => {
                self.clear();
                Ok(())
            }
        }
    }
}

impl Index {
    /// An index as the catalog describes it.
    ///
    /// # Errors
    /// If the partial filter cannot be parsed; what stops `operation`.
    pub(crate) fn new(
        id: u32,
        spec: Arc<IndexSpec>,
        ready: bool,
        arrays: &Arrays,
        operation: &dyn Interrupt,
    ) -> Result<Index> {
        let definition = Definition::of(&spec, operation)?;
        let spec = definition.spec.clone();
        Ok(Index {
            id,
            is_id: is_id_pattern(&spec.key),
            unique: spec.unique || is_id_pattern(&spec.key),
            prepares: AtomicBool::new(spec.prepare_unique),
            sparse: spec.sparse,
            collation: spec.collation.clone(),
            partial: definition.partial.clone(),
            multikey: Multikey::new(definition.fields.len(), arrays),
            fields: definition.fields.clone(),
            kind: definition.kind.clone(),
            spec: RwLock::new(spec),
            ready: AtomicBool::new(ready),
            complete: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            uses: AtomicU64::new(0),
            since: AtomicI64::new(QueryContext::new().now_ms),
            build_failure: Mutex::new(None),
            damage: OnceLock::new(),
        })
    }

    /// The index of a catalog entry, closed if the entry is damaged.
    ///
    /// # Errors
    /// What stops `operation` before it is known what the index is.
    pub(crate) fn of_entry(
        entry: &IndexEntry,
        ready: bool,
        arrays: &Arrays,
        operation: &dyn Interrupt,
    ) -> Result<Index> {
        let opened = match &entry.damage {
            None => Index::new(entry.id, entry.spec.clone(), ready, arrays, operation),
            Some(e) => Err(e.clone()),
        };
        if opened.is_err() {
            operation.check()?;
        }
        Ok(opened.unwrap_or_else(|e| {
            let id_index = is_id_pattern(&entry.spec.key);
            let index = Index {
                id: entry.id,
                fields: Arc::default(),
                kind: None,
                partial: None,
                collation: Collation::SIMPLE,
                unique: entry.spec.unique || id_index,
                prepares: AtomicBool::new(entry.spec.prepare_unique),
                sparse: false,
                is_id: id_index,
                ready: AtomicBool::new(ready),
                complete: AtomicU64::new(0),
                dropped: AtomicBool::new(false),
                multikey: Multikey::new(0, arrays),
                uses: AtomicU64::new(0),
                since: AtomicI64::new(QueryContext::new().now_ms),
                build_failure: Mutex::new(None),
                damage: OnceLock::new(),
                spec: RwLock::new(entry.spec.clone()),
            };
            index.close(e.message());
            index
        }))
    }

    /// Closes the index because it is damaged. From then on no plan reads it and no write maintains it.
    pub(crate) fn close(&self, reason: &str) {
        self.damage.get_or_init(|| reason.into());
        self.set_dropped();
    }

    /// The reason why it is closed, if it is.
    pub fn damage(&self) -> Option<&str> {
        self.damage.get().map(|why| &**why)
    }

    /// True if it is closed.
    pub fn is_damaged(&self) -> bool {
        self.damage.get().is_some()
    }

    /// True if it is closed and should keep two documents from having the same key, which is not checked
    /// then.
    pub(crate) fn leaves_unguarded(&self) -> bool {
        self.is_damaged() && (self.unique || self.spec().unique || self.prepares.load(Relaxed))
    }

    /// The number of its tree.
    pub fn tree(&self) -> u32 {
        self.id
    }

    /// The specification.
    pub fn spec(&self) -> Arc<IndexSpec> {
        self.spec.read().clone()
    }

    pub(crate) fn set_spec(&self, spec: Arc<IndexSpec>) {
        self.prepares.store(spec.prepare_unique, Relaxed);
        let mut held = self.spec.write();
        if held.hidden != spec.hidden {
            // The counters begin anew, as for a new index, because plans could not use it while it was
            // hidden.
            self.uses.store(0, Relaxed);
            self.since.store(QueryContext::new().now_ms, Relaxed);
        }
        *held = spec;
    }

    /// The fields of its keys in order, with true for descending.
    pub fn fields(&self) -> &Arc<[(Path, bool)]> {
        &self.fields
    }

    /// False when a document keeps its keys as long as `touched` is false for the paths whose values
    /// changed.
    pub(crate) fn reads(&self, touched: &dyn Fn(&str) -> bool) -> bool {
        match &self.kind {
            None => self.fields.iter().any(|(p, _)| touched(p.as_str())),
            Some(kind) => kind.reads(&self.fields, touched),
        }
    }

    /// Makes the keys when the index is not plain.
    pub fn kind(&self) -> Option<&Arc<dyn IndexKind>> {
        self.kind.as_ref()
    }

    /// True when the keys of field `field` do not hold the values at its path.
    pub fn transforms(&self, field: usize) -> bool {
        self.kind.as_ref().is_some_and(|k| k.transforms(field))
    }

    /// The order and equality of texts in it.
    pub fn collation(&self) -> &Collation {
        &self.collation
    }

    /// The partial filter, parsed.
    pub fn partial_filter(&self) -> Option<&Filter> {
        self.partial.as_deref()
    }

    /// True for the `_id_` index. On a clustered collection it has no entries of its own, because the
    /// record keys are the `_id`s.
    pub fn is_id(&self) -> bool {
        self.is_id
    }

    /// True if no two documents may have the same key (`_id_` is unique).
    pub fn unique(&self) -> bool {
        self.unique
    }

    /// True if no write may add a second document with the same key: the index is unique or about to
    /// become so.
    pub fn guards(&self) -> bool {
        (self.unique || self.prepares.load(Relaxed)) && !self.is_damaged()
    }

    /// True when it is built.
    pub fn is_ready(&self) -> bool {
        self.ready.load(SeqCst)
    }

    /// Makes it ready, and complete for every view from `since` on.
    pub(crate) fn set_ready(&self, since: Timestamp) {
        self.complete.store(since.0, SeqCst);
        self.ready.store(true, SeqCst);
    }

    /// The timestamp from which views find everything in it; `None` while it is being built. A view that
    /// was opened before must not be read through it.
    pub fn complete_since(&self) -> Option<Timestamp> {
        self.is_ready()
            .then(|| Timestamp(self.complete.load(SeqCst)))
    }

    /// True when it was dropped or closed. Plans that use it must end.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(SeqCst)
    }

    pub(crate) fn set_dropped(&self) {
        self.dropped.store(true, SeqCst);
    }

    /// True while it is being built to be unique. Two documents may have the same key then, and an entry
    /// may be another document's.
    pub(crate) fn is_contested(&self) -> bool {
        self.unique && !self.is_ready() && !self.is_damaged()
    }

    /// Forgets what made another build of it fail.
    pub(crate) fn begin_build(&self) {
        *self.build_failure.lock() = None;
    }

    pub(crate) fn fail_build(&self, error: Error) {
        self.build_failure.lock().get_or_insert(error);
    }

    pub(crate) fn build_failure(&self) -> Option<Error> {
        self.build_failure.lock().clone()
    }

    /// For each field, the path components that went through an array in some document (bit i = part i).
    /// Empty for an index that is not multikey.
    pub fn multikey_paths(&self) -> Vec<u64> {
        if self.is_multikey() {
            self.multikey.masks()
        } else {
            Vec::new()
        }
    }

    /// The same for one path of a wildcard index.
    pub fn multikey_path(&self, path: &str) -> u64 {
        self.multikey.mask_of(path)
    }

    /// True when some document has an array on one of the index's paths.
    pub fn is_multikey(&self) -> bool {
        self.multikey.any()
    }

    /// A number that changes whenever a document has an array where none had one. A plan that was made
    /// before does not know of it, and must not be used with views that were opened after.
    pub fn multikey_version(&self) -> u64 {
        self.multikey.version()
    }

    pub(crate) fn multikey(&self) -> &Multikey {
        &self.multikey
    }

    /// How often the planner used it, and since when (ms since 1970): `$indexStats`.
    pub fn usage(&self) -> (u64, i64) {
        (self.uses.load(Relaxed), self.since.load(Relaxed))
    }

    /// Counts one use.
    pub fn note_use(&self) {
        self.uses.fetch_add(1, Relaxed);
    }

    /// The encoded keys that `doc` has in this index (none if `sparse` or the partial filter leave it
    /// out).
    ///
    /// # Errors
    /// 171 CannotIndexParallelArrays.
    pub fn keys_of(&self, doc: Doc<'_>, keys: &mut Vec<Vec<u8>>) -> Result<()> {
        let mut set = KeySet::default();
        self.key_set(doc, &mut set, Work::unasked())?;
        keys.extend(set.iter().map(|(k, _)| k.to_vec()));
        Ok(())
    }

    /// As [`Index::keys_of`], with type bits and multikey paths. Replaces what `set` held.
    pub(crate) fn key_set(&self, doc: Doc<'_>, set: &mut KeySet, work: Work<'_>) -> Result<()> {
        set.excluded = match &self.partial {
            Some(filter) => !filter.matches(doc, work)?,
            None => false,
        };
        if set.excluded {
            return Ok(());
        }
        set.keys.collate(&self.collation);
        match &self.kind {
            None => index_keys(doc, &self.fields, self.sparse, &mut set.keys),
            Some(kind) => kind.keys(doc, &mut set.keys, work),
        }
    }

    /// As [`Index::key_set`], for a document that a client writes. Large keys are made in steps. Before
    /// each step `hold` is asked for the bytes that it may take, so that the memory is booked before it
    /// is used.
    ///
    /// # Errors
    /// As [`Index::key_set`]; 201 beyond the limits; what `hold` says.
    pub(crate) fn key_set_within(
        &self,
        doc: Doc<'_>,
        set: &mut KeySet,
        most: KeyLimits,
        hold: &mut dyn FnMut(usize) -> Result<()>,
        work: Work<'_>,
    ) -> Result<()> {
        let mut bytes = AT_ONCE.min(most.bytes);
        loop {
            set.keys.limit(KeyLimits { bytes, ..most });
            match self.key_set(doc, set, work) {
                Err(_) if set.keys.is_cut() && bytes < most.bytes => {
                    bytes = bytes.saturating_mul(4).min(most.bytes);
                    hold(bytes)?;
                }
                made => return made,
            }
        }
    }

    /// The values of an encoded key, under the pattern's field names: keyValue of E11000. A text of a
    /// collated index is shown by its collation key, because the key does not have the text.
    pub(crate) fn key_value(&self, key: &[u8], bits: &[u8]) -> DocBuf {
        let mut values = DocBuf::new();
        let (mut rest, mut bits) = (key, bits);
        for (path, desc) in self.fields.iter() {
            match muniment_value::keyenc::decode(rest, *desc, &mut bits) {
                Ok((value, r)) => {
                    match value.as_value() {
                        Value::String(key) if !self.collation.is_simple() => {
                            values.append(path.as_str(), key_hex(key).as_str());
                        }
                        value => {
                            values.append(path.as_str(), value);
                        }
                    }
                    rest = r;
                }
                Err(_) => break,
            }
        }
        values
    }
}

/// True for a key pattern value that means descending.
pub(crate) fn descending(v: muniment_value::Value<'_>) -> bool {
    match v {
        Value::Int32(n) => n < 0,
        Value::Int64(n) => n < 0,
        Value::Double(n) => n < 0.0,
        Value::Decimal128(b) => b.last().is_some_and(|top| top & 0x80 != 0),
        _ => false,
    }
}

/// True for `{_id: 1}`.
pub(crate) fn is_id_pattern(key: &DocBuf) -> bool {
    let mut fields = key.as_doc().iter();
    match (fields.next(), fields.next()) {
        (Some(e), None) => {
            e.name() == "_id"
                && matches!(e.ty(), Type::Int32 | Type::Int64 | Type::Double)
                && !descending(e.value())
        }
        _ => false,
    }
}
