//! What surrounds a query while it is parsed and while it runs.

use crate::meta::{MetaSet, Metadata};
use crate::scratch::Scratch;
use crate::stage::host::{Host, NoHost};
use muniment_op::{Interrupt, Ledger, NeverInterrupted};
use muniment_value::{Code, Collation, DocBuf, Error, Result};
use std::sync::Arc;

/// What parsing needs to know.
#[derive(Clone, Debug)]
pub struct QueryContext {
    /// `$$NOW`: milliseconds since 1970, fixed for the whole command.
    pub now_ms: i64,
    /// The command's `let` document, already evaluated to constants: name → value.
    pub variables: DocBuf,
    /// Variables that are defined and missing (`let: {v: "$absent"}` of a `$lookup`).
    pub missing: Vec<String>,
    /// Variables that are defined and get their values later: a pipeline that runs once per
    /// document is parsed with these first, for its errors.
    pub unbound: Vec<String>,
    /// The database of the pipeline.
    pub db: String,
    /// The collection of the pipeline; empty for `aggregate: 1`.
    pub collection: String,
    /// How many sub-pipelines are around what is parsed.
    pub sub_pipelines: usize,
    /// Whether one of them is `$facet`'s.
    pub in_facet: bool,
    /// The variables about time that there are.
    pub clocks: Clocks,
    /// The metadata of documents that are there and those that are asked for.
    pub metadata: Metadata,
    /// How texts compare.
    pub collation: Collation,
    /// A constant expression that fails does so where it is evaluated, not where it is parsed: in
    /// updates, which MongoDB does not optimize before there is a document.
    pub late_constants: bool,
    /// A client gives a collection a validator: what must say the same each time is refused.
    pub validator: bool,
}

/// Which variables about time a command knows. MongoDB's commands differ: only updates by pipeline
/// know the cluster time of a server that is no cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clocks {
    /// `$$NOW`.
    #[default]
    Now,
    /// `$$NOW` and `$$CLUSTER_TIME`.
    NowAndCluster,
    /// None: count, distinct, and the filters of listings.
    None,
}

/// MongoDB's limit on sub-pipelines in sub-pipelines.
const MAX_SUB_PIPELINES: usize = 20;

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as i64)
}

impl QueryContext {
    /// A context with the clock's time and no variables.
    pub fn new() -> QueryContext {
        QueryContext::at(now_ms())
    }

    /// A context of a command that began at a time, in milliseconds since 1970; without variables.
    pub fn at(now_ms: i64) -> QueryContext {
        QueryContext {
            now_ms,
            variables: DocBuf::new(),
            missing: Vec::new(),
            unbound: Vec::new(),
            db: String::new(),
            collection: String::new(),
            sub_pipelines: 0,
            in_facet: false,
            clocks: Clocks::default(),
            metadata: Metadata::default(),
            collation: Collation::SIMPLE,
            late_constants: false,
            validator: false,
        }
    }

    /// This context with other variables about time.
    #[must_use]
    pub fn with_clocks(mut self, clocks: Clocks) -> QueryContext {
        self.clocks = clocks;
        self
    }

    /// This context with another collation.
    #[must_use]
    pub fn with_collation(mut self, collation: Collation) -> QueryContext {
        self.collation = collation;
        self
    }

    /// This context after something that gives documents more metadata.
    #[must_use]
    pub fn with_metadata(mut self, given: MetaSet) -> QueryContext {
        self.metadata.available = self.metadata.available.and(given);
        self
    }

    /// The context of a pipeline inside a stage, which begins with documents of its own.
    ///
    /// # Errors
    /// 232 MaxSubPipelineDepthExceeded.
    pub fn nested(&self) -> Result<QueryContext> {
        if self.sub_pipelines >= MAX_SUB_PIPELINES {
            return Err(Error::new(
                Code::MaxSubPipelineDepthExceeded,
                format!(
                    "Maximum number of nested sub-pipelines exceeded. Limit is {MAX_SUB_PIPELINES}"
                ),
            ));
        }
        let mut inner = self.clone();
        inner.sub_pipelines += 1;
        inner.metadata.available = MetaSet::NONE;
        Ok(inner)
    }
}

impl Default for QueryContext {
    fn default() -> QueryContext {
        QueryContext::new()
    }
}

/// What a match found out beside "yes".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchInfo {
    /// The index of the array element that the filter matched through: what `$` stands for in
    /// updates and projections. The last array condition that matched wins, as in MongoDB.
    pub array_index: Option<usize>,
}

/// What running stages need.
#[derive(Clone)]
pub struct Runtime {
    /// When to stop.
    pub interrupt: Arc<dyn Interrupt>,
    /// Bytes a blocking stage (sort, group) may hold in memory before it spills.
    pub memory_limit: usize,
    /// What all operations together may hold.
    pub ledger: Arc<Ledger>,
    /// Where to spill; `None` means that spilling is not allowed (`allowDiskUse: false`), and
    /// the limit is an error: 292 QueryExceededMemoryLimitNoDiskUseAllowed.
    pub scratch: Option<Scratch>,
    /// The database around the pipeline, for the stages that read or write other collections.
    pub host: Arc<dyn Host>,
    /// Somebody asks what the stages did (explain).
    pub watched: bool,
}

impl Runtime {
    /// No interrupts, 100 MiB, no spilling: for tests.
    pub fn for_tests() -> Runtime {
        Runtime {
            interrupt: Arc::new(NeverInterrupted),
            memory_limit: 100 << 20,
            ledger: Arc::default(),
            scratch: None,
            host: Arc::new(NoHost),
            watched: false,
        }
    }
}
