//! The surroundings of a query while it is parsed and while it runs.

use crate::meta::{MetaSet, Metadata};
use crate::running::Task;
use crate::scratch::Scratch;
use crate::stage::host::{Host, NoHost};
use muniment_op::{Interrupt, Ledger, NeverInterrupted};
use muniment_value::{Code, Collation, DocBuf, Error, Result};
use std::sync::Arc;

/// The information that parsing needs.
#[derive(Clone, Debug)]
pub struct QueryContext {
    /// `$$NOW`: milliseconds since 1970, fixed for the whole command.
    pub now_ms: i64,
    /// The command's `let` document, already evaluated to constants: name → value.
    pub variables: DocBuf,
    /// Variables that are defined and missing (`let: {v: "$absent"}` of a `$lookup`).
    pub missing: Vec<String>,
    /// Variables that are defined and get their values later. A pipeline that runs once per document is first
    /// parsed with these, to find its errors.
    pub unbound: Vec<String>,
    /// The database of the pipeline.
    pub db: String,
    /// The collection of the pipeline; empty for `aggregate: 1`.
    pub collection: String,
    /// The number of enclosing sub-pipelines.
    pub sub_pipelines: usize,
    /// Whether one of them belongs to a `$facet`.
    pub in_facet: bool,
    /// The time variables that are defined.
    pub clocks: Clocks,
    /// `$$CLUSTER_TIME`, as seconds and increment, on a server that is part of a replica set or a sharded cluster.
    pub cluster_time: Option<(u32, u32)>,
    /// The metadata that documents have, and those that are asked for.
    pub metadata: Metadata,
    /// The collation for comparing texts.
    pub collation: Collation,
    /// Whether a failing constant expression fails when it is evaluated, not when it is parsed. This is so in
    /// updates, which MongoDB does not optimize before there is a document.
    pub late_constants: bool,
    /// Whether this is the validator of a collection, in which expressions with varying results are refused.
    pub validator: bool,
    /// Whether the pipeline comes from a member of the cluster, and so may have the stages and the fields that
    /// only [`crate::split`] writes. For a client, it may not.
    pub member: bool,
    /// What parsing works for: constants are evaluated, and geometries are checked.
    pub task: Task,
}

/// The time variables that a command knows. MongoDB's commands differ: on a server that is not part of a
/// cluster, only updates by pipeline know the cluster time.
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

/// The deepest nesting of sub-pipelines, which is MongoDB's limit.
const MAX_SUB_PIPELINES: usize = 20;

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    muniment_op::wall_ms()
}

impl QueryContext {
    /// A context with the clock's time and no variables.
    pub fn new() -> QueryContext {
        QueryContext::at(now_ms())
    }

    /// A context without variables, for a command that began at a time in milliseconds since 1970.
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
            cluster_time: None,
            metadata: Metadata::default(),
            collation: Collation::SIMPLE,
            late_constants: false,
            validator: false,
            member: false,
            task: Task::default(),
        }
    }

    /// This context with other time variables.
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

    /// This context of an operation, which parsing asks.
    #[must_use]
    pub fn with_operation(mut self, operation: Arc<dyn Interrupt>) -> QueryContext {
        self.task = Task::of(operation);
        self
    }

    /// This context of an operation that the caller has borrowed. An operation that cannot be shared is not
    /// asked.
    #[must_use]
    pub fn on_behalf_of(mut self, operation: &dyn Interrupt) -> QueryContext {
        self.task = operation.shared().map_or_else(Task::default, Task::of);
        self
    }

    /// This context for a pipeline that a member of the cluster sends.
    #[must_use]
    pub fn of_member(mut self) -> QueryContext {
        self.member = true;
        self
    }

    /// This context after a stage that gives documents more metadata.
    #[must_use]
    pub fn with_metadata(mut self, given: MetaSet) -> QueryContext {
        self.metadata.available = self.metadata.available.and(given);
        self
    }

    /// The context of a pipeline inside a stage, which begins with other documents.
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
        inner.member = false;
        inner.metadata.available = MetaSet::NONE;
        Ok(inner)
    }
}

impl Default for QueryContext {
    fn default() -> QueryContext {
        QueryContext::new()
    }
}

/// The details of a match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchInfo {
    /// The index of the array element through which the filter matched, which `$` stands for in updates and
    /// projections. If several conditions matched through arrays, the last one counts, as in MongoDB.
    pub array_index: Option<usize>,
}

/// The resources of running stages.
#[derive(Clone)]
pub struct Runtime {
    /// Tells when to stop.
    pub interrupt: Arc<dyn Interrupt>,
    /// How many bytes a blocking stage (sort, group) may hold in memory before it spills.
    pub memory_limit: usize,
    /// The account book of the memory of all operations together.
    pub ledger: Arc<Ledger>,
    /// The place for spilled data; `None` if spilling is not allowed (`allowDiskUse: false`). Exceeding the
    /// limit is then an error: 292 QueryExceededMemoryLimitNoDiskUseAllowed.
    pub scratch: Option<Scratch>,
    /// The database, for the stages that read or write other collections.
    pub host: Arc<dyn Host>,
    /// Whether the stages have to record what they did (explain).
    pub watched: bool,
}

impl Runtime {
    /// A runtime without interrupts and spilling, with 100 MiB, for tests.
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
