//! One index of a collection, and the keys a document has in it.

use crate::catalog::IndexSpec;
use crate::kinds::{self, IndexKind};
use muniment_query::{Filter, QueryContext};
use muniment_value::path::Path;
use muniment_value::{Doc, DocBuf, Error, IndexKeys, Result, Type, index_keys};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// One index of a collection.
pub struct Index {
    pub(crate) id: u32,
    spec: RwLock<Arc<IndexSpec>>,
    fields: Vec<(Path, bool)>,
    /// What makes the keys when the index is not plain.
    kind: Option<Arc<dyn IndexKind>>,
    partial: Option<Filter>,
    unique: bool,
    /// See `IndexSpec::prepare_unique`.
    prepares: AtomicBool,
    sparse: bool,
    is_id: bool,
    ready: AtomicBool,
    /// What readers see: set before the commit that first needs it.
    multikey: Vec<AtomicU64>,
    /// What a commit has made durable.
    saved: Vec<AtomicU64>,
    uses: AtomicU64,
    since: AtomicI64,
    /// Why the build that runs must fail: a writer met a duplicate key.
    build_failure: Mutex<Option<Error>>,
}

/// The keys of one document, reused from document to document.
#[derive(Default)]
pub(crate) struct KeySet {
    keys: IndexKeys,
    /// The partial filter leaves the document out, or the set stands for no document.
    excluded: bool,
}

impl KeySet {
    /// (encoded fields, type bits), ascending by key and without duplicates.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.keys
            .iter()
            .take(if self.excluded { 0 } else { usize::MAX })
    }

    /// Per field, bit i set: part i of the path went through an array.
    pub fn multikey(&self) -> &[u64] {
        if self.excluded {
            &[]
        } else {
            self.keys.multikey()
        }
    }

    /// Makes it the set of no document.
    pub fn clear(&mut self) {
        self.excluded = true;
    }
}

impl Index {
    /// An index as the catalog describes it.
    ///
    /// # Errors
    /// What parsing the partial filter says.
    pub(crate) fn new(id: u32, spec: IndexSpec, ready: bool, multikey: &[u64]) -> Result<Index> {
        let fields: Vec<(Path, bool)> = spec
            .key
            .as_doc()
            .iter()
            .map(|e| (Path::new(e.name()), descending(e.value())))
            .collect();
        let partial = match &spec.partial_filter {
            Some(f) => Some(Filter::parse(f.as_doc(), &QueryContext::new())?),
            None => None,
        };
        let masks = || -> Vec<AtomicU64> {
            (0..fields.len())
                .map(|i| AtomicU64::new(multikey.get(i).copied().unwrap_or(0)))
                .collect()
        };
        Ok(Index {
            id,
            is_id: is_id_pattern(&spec.key),
            unique: spec.unique || is_id_pattern(&spec.key),
            prepares: AtomicBool::new(spec.prepare_unique),
            sparse: spec.sparse,
            partial,
            multikey: masks(),
            saved: masks(),
            fields,
            kind: kinds::open(&spec)?,
            spec: RwLock::new(Arc::new(spec)),
            ready: AtomicBool::new(ready),
            uses: AtomicU64::new(0),
            since: AtomicI64::new(QueryContext::new().now_ms),
            build_failure: Mutex::new(None),
        })
    }

    /// The specification.
    pub fn spec(&self) -> Arc<IndexSpec> {
        self.spec.read().clone()
    }

    pub(crate) fn set_spec(&self, spec: IndexSpec) {
        self.prepares.store(spec.prepare_unique, Relaxed);
        *self.spec.write() = Arc::new(spec);
    }

    /// The fields in order, with true for descending.
    pub fn fields(&self) -> &[(Path, bool)] {
        &self.fields
    }

    /// What makes the keys when the index is not plain.
    pub fn kind(&self) -> Option<&Arc<dyn IndexKind>> {
        self.kind.as_ref()
    }

    /// True when the keys of field `field` hold something else than the values at its path.
    pub fn transforms(&self, field: usize) -> bool {
        self.kind.as_ref().is_some_and(|k| k.transforms(field))
    }

    /// The partial filter, parsed.
    pub fn partial_filter(&self) -> Option<&Filter> {
        self.partial.as_ref()
    }

    /// True for the `_id_` index. On a collection that is not capped it has no entries of its
    /// own: the documents are clustered by `_id`.
    pub fn is_id(&self) -> bool {
        self.is_id
    }

    /// True if no two documents may have the same key (`_id_` is unique).
    pub fn unique(&self) -> bool {
        self.unique
    }

    /// True if no write may add a second document with the same key: the index is unique or
    /// about to become so.
    pub fn guards(&self) -> bool {
        self.unique || self.prepares.load(Relaxed)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(SeqCst)
    }

    pub(crate) fn set_ready(&self) {
        self.ready.store(true, SeqCst);
    }

    pub(crate) fn fail_build(&self, error: Error) {
        self.build_failure.lock().get_or_insert(error);
    }

    pub(crate) fn build_failure(&self) -> Option<Error> {
        self.build_failure.lock().clone()
    }

    /// Per field, which path components went through an array in some document (bit i = part
    /// i): empty for an index that is not multikey.
    pub fn multikey_paths(&self) -> Vec<u64> {
        if self.is_multikey() {
            self.multikey.iter().map(|m| m.load(SeqCst)).collect()
        } else {
            Vec::new()
        }
    }

    /// True when some document has an array on one of the index's paths.
    pub fn is_multikey(&self) -> bool {
        self.multikey.iter().any(|m| m.load(Relaxed) != 0)
    }

    /// True if `paths` has a bit that no commit has saved yet.
    pub(crate) fn widens(&self, paths: &[u64]) -> bool {
        paths
            .iter()
            .zip(&self.saved)
            .any(|(new, old)| new & !old.load(SeqCst) != 0)
    }

    /// Adds the bits for readers; returns all that are to be saved.
    pub(crate) fn widen(&self, paths: &[u64]) -> Vec<u64> {
        self.multikey
            .iter()
            .enumerate()
            .map(|(i, m)| {
                let new = paths.get(i).copied().unwrap_or(0);
                m.fetch_or(new, SeqCst) | new
            })
            .collect()
    }

    /// Notes that `paths` are on the disk.
    pub(crate) fn saved(&self, paths: &[u64]) {
        for (m, new) in self.saved.iter().zip(paths) {
            m.fetch_or(*new, SeqCst);
        }
    }

    /// How often the planner used it, and since when (ms since 1970): `$indexStats`.
    pub fn usage(&self) -> (u64, i64) {
        (self.uses.load(Relaxed), self.since.load(Relaxed))
    }

    /// Counts one use.
    pub fn note_use(&self) {
        self.uses.fetch_add(1, Relaxed);
    }

    /// The encoded keys that `doc` has in this index (none if sparse or partial leave it out).
    ///
    /// # Errors
    /// 171 CannotIndexParallelArrays.
    pub fn keys_of(&self, doc: Doc<'_>, keys: &mut Vec<Vec<u8>>) -> Result<()> {
        let mut set = KeySet::default();
        self.key_set(doc, &mut set)?;
        keys.extend(set.iter().map(|(k, _)| k.to_vec()));
        Ok(())
    }

    /// As [`Index::keys_of`], with type bits and multikey paths. Replaces what `set` held.
    pub(crate) fn key_set(&self, doc: Doc<'_>, set: &mut KeySet) -> Result<()> {
        set.excluded = match &self.partial {
            Some(filter) => !filter.matches(doc)?,
            None => false,
        };
        if set.excluded {
            return Ok(());
        }
        match &self.kind {
            None => index_keys(doc, &self.fields, self.sparse, &mut set.keys),
            Some(kind) => kind.keys(doc, &mut set.keys),
        }
    }

    /// The key pattern and the values of an encoded key: keyPattern and keyValue of E11000.
    pub(crate) fn key_value(&self, key: &[u8], bits: &[u8]) -> DocBuf {
        let mut values = DocBuf::new();
        let (mut rest, mut bits) = (key, bits);
        for (path, desc) in &self.fields {
            match muniment_value::keyenc::decode(rest, *desc, &mut bits) {
                Ok((value, r)) => {
                    values.append(path.as_str(), value);
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
    use muniment_value::Value;
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
