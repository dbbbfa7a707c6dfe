//! Tests of the crate as the server uses it, on a store in a temporary directory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod basics;
mod changes;
mod closed;
mod collated;
mod concurrency;
mod explains;
mod geo;
mod interrupts;
mod lookups;
mod many;
mod metadata;
mod metamorphic;
mod model;
mod natural;
mod oplog;
mod pipelines;
mod positions;
mod races;
mod shards;
mod speed;
mod spills;
mod text;
mod transactions;
mod ttl;
mod views;
mod waits;
mod wildcard;

use crate::*;
use muniment_query::NeverInterrupted;
use muniment_storage::{Collection, EngineKind, IndexSpec, Store, StoreOptions};
use muniment_value::{Doc, DocBuf, JsonMode, Result};
use std::sync::Arc;
use std::time::Duration;

/// Documents as an insert takes them.
fn each<'d>(docs: &'d [DocBuf]) -> impl Fn() -> Box<dyn Iterator<Item = Doc<'d>> + 'd> + 'd {
    move || Box::new(docs.iter().map(DocBuf::as_doc))
}

/// An engine on a temporary directory.
pub(crate) struct Bench {
    pub engine: Arc<Database>,
    pub op: Arc<OpContext>,
    _dir: tempfile::TempDir,
}

pub(crate) const NS: &str = "test.c";

/// An aggregation of [`NS`] without options.
pub(crate) fn aggregation(pipeline: Doc<'_>) -> AggregateRequest<'_> {
    AggregateRequest {
        db: "test",
        collection: Some("c"),
        pipeline,
        hint: None,
        allow_disk_use: None,
        collation: None,
        let_: Doc::EMPTY,
        bypass_document_validation: false,
        member: false,
    }
}

/// The engine that the tests run on: `MUNIMENT_TEST_ENGINE`, or `lsm` if that is not set.
pub(crate) fn test_engine() -> EngineKind {
    let name = std::env::var("MUNIMENT_TEST_ENGINE").unwrap_or_else(|_| "lsm".into());
    let known = EngineKind::ALL.iter().find(|(n, _)| *n == name);
    known.unwrap_or_else(|| panic!("no engine {name}")).1
}

/// After every test, everything that is stored has to be what the log says.
impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let differences = self.engine.store.compare_with_log(&NeverInterrupted);
            let differences = differences.unwrap().unwrap_or_default();
            assert!(differences.is_empty(), "{differences:#?}");
        }
    }
}

/// A document in Extended JSON.
pub(crate) fn j(text: &str) -> DocBuf {
    DocBuf::from_json(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

pub(crate) fn text(d: &[u8]) -> String {
    Doc::new(d).to_json(JsonMode::Relaxed)
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with_cache(16 << 20)
    }

    pub(crate) fn with_cache(cache_bytes: u64) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            cache_bytes,
            ..StoreOptions::new(dir.path().join("db"))
        };
        Bench::open(dir, options)
    }

    /// An engine on the store of a member that is primary.
    pub(crate) fn member() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            member: true,
            ..StoreOptions::new(dir.path().join("db"))
        };
        let bench = Bench::open(dir, options);
        bench.engine.store.open_door(1).unwrap();
        bench
    }

    fn open(dir: tempfile::TempDir, options: StoreOptions) -> Bench {
        let store = Store::open(StoreOptions {
            engine: test_engine(),
            ..options
        })
        .unwrap();
        Bench {
            engine: Database::new(store, dir.path().join("db/_tmp")),
            op: OpContext::internal("test"),
            _dir: dir,
        }
    }

    pub(crate) fn insert(&self, docs: &[DocBuf]) -> BulkOutcome {
        self.engine
            .insert_many(&self.op, NS, &each(docs), InsertOptions::default())
            .unwrap()
    }

    pub(crate) fn insert_json(&self, docs: &[&str]) {
        let docs: Vec<DocBuf> = docs.iter().map(|d| j(d)).collect();
        let out = self.insert(&docs);
        assert!(out.errors.is_empty(), "{:?}", out.errors);
    }

    /// The collection [`NS`], which is created if it does not exist.
    pub(crate) fn collection(&self) -> Result<Arc<Collection>> {
        crate::verbs::write::perform::collection_or_create(&self.engine, &self.op, NS)
    }

    /// Creates an index. Its options are in the same document as `key`.
    pub(crate) fn index(&self, spec: &str) -> Result<()> {
        let collection = self.collection()?;
        let spec = IndexSpec::parse(j(spec).as_doc())?;
        self.engine
            .store
            .create_index(&collection, spec, &NeverInterrupted)?;
        Ok(())
    }

    pub(crate) fn run(&self, request: &FindRequest<'_>) -> Result<Vec<DocBuf>> {
        let mut cursor = self.engine.find(&self.op, request)?;
        let mut out = Vec::new();
        while let Some(d) = cursor.next_doc(&self.op)? {
            out.push(DocBuf::from_doc(Doc::new(&d)));
        }
        Ok(out)
    }

    /// The documents that match, as JSON.
    pub(crate) fn find(&self, filter: &str) -> Vec<String> {
        let filter = j(filter);
        let request = FindRequest {
            filter: filter.as_doc(),
            ..FindRequest::new(NS)
        };
        self.run(&request)
            .unwrap()
            .iter()
            .map(|d| text(d))
            .collect()
    }

    pub(crate) fn explain(&self, request: &FindRequest<'_>) -> DocBuf {
        self.engine
            .explain(
                &self.op,
                &Explainable::Find(request),
                Verbosity::ExecutionStats,
            )
            .unwrap()
    }

    pub(crate) fn update(
        &self,
        filter: &str,
        update: &str,
        multi: bool,
    ) -> Result<StatementOutcome> {
        let (q, u) = (j(filter), j(update));
        let statement = UpdateStatement {
            multi,
            ..UpdateStatement::new(q.as_doc(), muniment_value::Value::Document(u.as_doc()))
        };
        self.engine.update(&self.op, NS, &statement)
    }

    pub(crate) fn delete(&self, filter: &str, multi: bool) -> Result<StatementOutcome> {
        let q = j(filter);
        let statement = DeleteStatement {
            filter: q.as_doc(),
            multi,
            hint: None,
            collation: None,
            let_: Doc::EMPTY,
        };
        self.engine.delete(&self.op, NS, &statement)
    }
}
