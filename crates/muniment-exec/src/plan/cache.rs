//! The plan cache: which plan won a trial, by collection and query shape.
//!
//! Invariants: an entry is valid only for the indexes that the collection had when the entry was
//! made (the collection's generation). `run::choose` runs an entry's plan and evicts the entry if
//! the plan needs many times the steps that it won with.

use super::shape::{COMMAND, NEEDS, hash};
use muniment_storage::Collection;
use muniment_value::{ArrayBuf, DocBuf, Value, doc};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The most shapes that are remembered.
const CACHE_SIZE: usize = 5000;

/// The shape of the query itself, without what a command and its needs add to the cached shape.
fn query_shape(shape: &str) -> &str {
    shape.split([COMMAND, NEEDS]).next().unwrap_or(shape)
}

/// The hash by which explain and the profiler name a cached shape.
pub(crate) fn shape_hash(shape: &str) -> String {
    hash(shape.split(NEEDS).next().unwrap_or(shape))
}

/// The details of a plan's victory, for `$planCacheStats`.
#[derive(Debug)]
pub(crate) struct Won {
    /// The time in milliseconds since 1970.
    pub at_ms: i64,
    /// The query as `{query, sort, projection}`.
    pub query: DocBuf,
    /// The plan's stages.
    pub plan: DocBuf,
    /// The figures of every plan in the trial, the winner's first.
    pub trials: Vec<DocBuf>,
    /// The scores of these plans.
    pub scores: Vec<f64>,
}

impl Won {
    fn size(&self) -> usize {
        self.query.as_bytes().len()
            + self.plan.as_bytes().len()
            + self
                .trials
                .iter()
                .map(|t| t.as_bytes().len())
                .sum::<usize>()
    }

    /// Drops the parts that only people read if they are large: a query may name a million values.
    pub(crate) fn strip(&mut self, most: usize) {
        if self.size() > most {
            self.query = DocBuf::new();
            self.plan = DocBuf::new();
            self.trials.clear();
        }
    }
}

/// A plan that won, as the cache remembers it.
#[derive(Clone)]
pub(crate) struct Entry {
    generation: u64,
    /// The plan's signature.
    pub signature: Arc<str>,
    /// The number of steps that its trial took.
    pub works: u64,
    won: Arc<Won>,
}

impl Entry {
    fn to_doc(&self, shape: &str, filtered: bool, host: Option<&str>) -> DocBuf {
        let hash = shape_hash(shape);
        let won = &self.won;
        let size = shape.len() + self.signature.len() + won.size();
        let mut d = doc! {
            "version": "1",
            "queryHash": hash.as_str(),
            "planCacheShapeHash": hash.as_str(),
            "planCacheKey": hash.as_str(),
            // Unlike MongoDB's, an entry here is used from the beginning.
            "isActive": true,
            "works": i64::try_from(self.works).unwrap_or(i64::MAX),
            "worksType": "works",
            "timeOfCreation": Value::DateTime(won.at_ms),
            "createdFromQuery": &won.query,
            "cachedPlan": &won.plan,
            "creationExecStats": won.trials.iter().collect::<ArrayBuf>(),
            "candidatePlanScores": won.scores.iter().copied().collect::<ArrayBuf>(),
            "indexFilterSet": filtered,
            "estimatedSizeBytes": i64::try_from(size).unwrap_or(i64::MAX),
        };
        d.append_some("host", host);
        d
    }
}

/// The winners by collection and query shape.
#[derive(Default)]
pub(crate) struct PlanCache {
    /// `notablescan`: no plan may read a whole collection.
    pub no_scans: AtomicBool,
    entries: Mutex<HashMap<([u8; 16], String), Entry>>,
}

impl PlanCache {
    /// The winner of a shape; `None` if the collection's indexes have changed since.
    pub(crate) fn get(&self, collection: &Collection, shape: &str) -> Option<Entry> {
        let entry = self
            .entries
            .lock()
            .get(&(collection.uuid(), shape.to_string()))
            .cloned()?;
        (entry.generation == collection.generation()).then_some(entry)
    }

    /// Remembers the winner of a shape.
    pub(crate) fn put(
        &self,
        collection: &Collection,
        shape: &str,
        signature: &str,
        works: u64,
        won: Won,
    ) {
        let mut entries = self.entries.lock();
        if entries.len() >= CACHE_SIZE {
            entries.clear();
        }
        entries.insert(
            (collection.uuid(), shape.to_string()),
            Entry {
                generation: collection.generation(),
                signature: signature.into(),
                works,
                won: Arc::new(won),
            },
        );
    }

    /// Forgets one entry.
    pub(crate) fn evict(&self, collection: &Collection, shape: &str) {
        self.entries
            .lock()
            .remove(&(collection.uuid(), shape.to_string()));
    }

    /// Forgets all plans of one query shape, whichever commands they were made for.
    pub(crate) fn evict_shape(&self, collection: &Collection, shape: &str) {
        let uuid = collection.uuid();
        self.entries
            .lock()
            .retain(|(u, s), _| *u != uuid || query_shape(s) != shape);
    }

    /// Forgets the plans of one collection, or of all.
    pub(crate) fn clear(&self, collection: Option<&Collection>) {
        match collection {
            None => self.entries.lock().clear(),
            Some(c) => {
                let uuid = c.uuid();
                self.entries.lock().retain(|(u, _), _| *u != uuid);
            }
        }
    }

    /// A collection's valid entries with their shapes, sorted by shape.
    fn of(&self, collection: &Collection) -> Vec<(String, Entry)> {
        let (uuid, generation) = (collection.uuid(), collection.generation());
        let mut all: Vec<(String, Entry)> = self
            .entries
            .lock()
            .iter()
            .filter(|((u, _), e)| *u == uuid && e.generation == generation)
            .map(|((_, shape), e)| (shape.clone(), e.clone()))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// The documents of `$planCacheStats` for a collection, sorted by shape. `filtered` says
    /// whether an index filter exists for a shape.
    pub(crate) fn stats(
        &self,
        collection: &Collection,
        filtered: impl Fn(&str) -> bool,
        host: Option<&str>,
    ) -> Vec<DocBuf> {
        let entries = self.of(collection).into_iter();
        let told = |(shape, entry): (String, Entry)| {
            entry.to_doc(&shape, filtered(query_shape(&shape)), host)
        };
        entries.map(told).collect()
    }
}
