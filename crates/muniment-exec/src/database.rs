//! What a server holds: the store with cursors, running operations and cached plans.

use crate::changes::Changes;
use crate::cursor::CursorManager;
use crate::operation::{OpContext, Operations};
use crate::plan::cache::PlanCache;
use crate::plan::filters::IndexFilters;
use crate::run::exec::{Output, Recipe};
use crate::run::sort::SortLimits;
use crate::tickets::Tickets;
use crate::write::Validators;
use muniment_query::expr::check_user_variable;
use muniment_query::{Expr, Filter, MemoryBudget, MetaSet, Needs, QueryContext};
use muniment_storage::{Collection, Store};
use muniment_value::{Collation, Doc, DocBuf, Error, Result, Value};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// Bytes a blocking sort or group holds in memory at first, as MongoDB's
/// internalQueryMaxBlockingSortMemoryUsageBytes.
const MEMORY_LIMIT: usize = 100 << 20;

/// One store with everything that runs on it. Shared by all connections.
pub struct Database {
    /// The data.
    pub store: Arc<Store>,
    /// Open cursors.
    pub cursors: CursorManager,
    /// Running operations, for currentOp and killOp.
    pub operations: Operations,
    pub(crate) plans: PlanCache,
    pub(crate) changes: Changes,
    memory_limit: AtomicUsize,
    /// What all stages together hold, and may hold.
    pub memory: Arc<MemoryBudget>,
    /// How many operations may execute at once.
    pub tickets: Tickets,
    /// Held while a collection or a view is created: they share their names.
    pub(crate) names: Mutex<()>,
    pub(crate) validators: Validators,
    pub(crate) index_filters: IndexFilters,
    pub(crate) spill_dir: PathBuf,
    /// The engine itself, for pipelines that outlive the call that opened them.
    pub(crate) me: Weak<Database>,
    /// What the server around it knows.
    pub(crate) figures: OnceLock<Arc<dyn Figures>>,
}

/// What stages tell about the server, which only the server knows: `$currentOp`'s connections,
/// `$listLocalSessions`, the latencies and sizes of `$collStats`.
pub trait Figures: Send + Sync {
    /// The documents of a stage, whose operand is checked; `None` for a stage it knows nothing
    /// about.
    ///
    /// # Errors
    /// The stage's own.
    fn documents(
        &self,
        op: &OpContext,
        stage: &str,
        operand: Doc<'_>,
        db: &str,
        collection: &str,
    ) -> Option<Result<Vec<DocBuf>>>;

    /// The documents of a collection that is this server's alone, beside what it stores.
    fn local(&self, namespace: &str) -> Vec<DocBuf>;
}

impl Database {
    /// An engine over `store`; blocking sorts and groups spill into `spill_dir` (`DBPATH/_tmp`),
    /// which is emptied now and created when needed.
    pub fn new(store: Arc<Store>, spill_dir: PathBuf) -> Arc<Database> {
        let _ = std::fs::remove_dir_all(&spill_dir);
        let engine = Arc::new_cyclic(|me| Database {
            me: me.clone(),
            figures: OnceLock::new(),
            store,
            cursors: CursorManager::new(),
            operations: Operations::new(),
            plans: PlanCache::default(),
            changes: Changes::default(),
            memory_limit: AtomicUsize::new(MEMORY_LIMIT),
            memory: Arc::default(),
            tickets: Tickets::default(),
            names: Mutex::new(()),
            validators: Validators::default(),
            index_filters: IndexFilters::default(),
            spill_dir,
        });
        engine.drop_temporary();
        engine
    }

    /// Sets who answers the stages that ask about the server; once.
    pub fn set_figures(&self, figures: Arc<dyn Figures>) {
        let _ = self.figures.set(figures);
    }

    /// Whether plans that read a whole collection are refused (`notablescan`).
    pub fn refuse_scans(&self, refuse: bool) {
        self.plans.no_scans.store(refuse, Relaxed);
    }

    /// Drops every cached plan of a namespace (`planCacheClear`); `None`: of all.
    pub fn clear_plan_cache(&self, namespace: Option<&str>) {
        match namespace {
            None => self.plans.clear(None),
            Some(ns) => {
                if let Some(c) = self.store.collection(ns) {
                    self.plans.clear(Some(&c));
                }
            }
        }
    }

    /// Sets the bytes that a sort, a group or any other stage that holds much may have in memory
    /// before it spills; 100 MiB at first.
    pub fn set_memory_limit(&self, bytes: usize) {
        self.memory_limit.store(bytes, Relaxed);
    }

    /// The limits of a sort: `allowDiskUse` is on unless the command says no.
    pub(crate) fn sort_limits(&self, allow_disk_use: Option<bool>) -> SortLimits {
        SortLimits {
            memory: self.memory_limit.load(Relaxed),
            budget: self.memory.clone(),
            spill_dir: (allow_disk_use != Some(false)).then(|| self.spill_dir.clone()),
        }
    }

    /// A recipe for the rows of a filter: no sort, no projection, no limit.
    pub(crate) fn recipe(&self, collection: &Arc<Collection>, filter: &Filter) -> Recipe {
        Recipe {
            store: self.store.clone(),
            collection: collection.clone(),
            filter: filter.clone(),
            sort: None,
            skip: 0,
            limit: None,
            output: Output::Whole,
            show_record_id: false,
            tailable: false,
            want_info: false,
            sort_limits: self.sort_limits(None),
            keys_only: false,
            needs: None,
            metadata: MetaSet::NONE,
            shared: None,
        }
    }

    /// How a command on a collection or view compares texts: as it says, else as what it reads
    /// does.
    ///
    /// # Errors
    /// 167 OptionNotSupportedOnView for another collation than a view's.
    pub fn collation_for(&self, namespace: &str, given: Option<&Collation>) -> Result<Collation> {
        let collection = self.store.collection(namespace);
        self.collation_on(namespace, collection.as_deref(), given)
    }

    /// The same, for who has looked the collection up.
    ///
    /// # Errors
    /// As [`Database::collation_for`].
    pub(crate) fn collation_on(
        &self,
        namespace: &str,
        collection: Option<&Collection>,
        given: Option<&Collation>,
    ) -> Result<Collation> {
        if let Some(c) = collection {
            return Ok(given.unwrap_or(c.collation()).clone());
        }
        match (self.view(namespace)?, given) {
            (None, given) => Ok(given.cloned().unwrap_or_default()),
            (Some(view), None) => Ok(view.collation),
            (Some(view), Some(given)) => {
                view.check_collation(namespace, given)?;
                Ok(view.collation)
            }
        }
    }

    /// What parsing needs, with the command's `let` evaluated.
    pub(crate) fn query_context(
        &self,
        op: &OpContext,
        let_: Doc<'_>,
        collation: Collation,
    ) -> Result<QueryContext> {
        let mut ctx = QueryContext::at(op.now_ms()).with_collation(collation);
        if !let_.is_empty() {
            bind_variables(let_, &mut ctx)?;
        }
        Ok(ctx)
    }
}

/// Variables that the server sets.
const BUILTIN: [&str; 3] = ["NOW", "CLUSTER_TIME", "USER_ROLES"];

/// Evaluates a `let` document into the context. Its values are constant expressions, which may
/// use the variables before them.
fn bind_variables(let_: Doc<'_>, ctx: &mut QueryContext) -> Result<()> {
    let arena = bumpalo::Bump::new();
    for e in let_.iter() {
        if BUILTIN.contains(&e.name()) {
            return Err(Error::location(
                4_738_901,
                format!("Attempt to set internal constant: {}", e.name()),
            ));
        }
        check_user_variable(e.name())?;
        if let Some(name) = BUILTIN.iter().find(|n| mentions(e.value(), n)) {
            return Err(Error::location(
                51144,
                format!("Builtin variable '$${name}' is not available"),
            ));
        }
        let expr = Expr::parse(e.value(), ctx)?;
        let mut needs = Needs::default();
        needs.expr(&expr);
        if needs.into_paths().is_none_or(|p| !p.is_empty()) {
            return Err(Error::location(
                4_890_500,
                "Command let Expression tried to access a field, but this is not allowed because \
                 command let expressions run before the query examines any documents.",
            ));
        }
        let eval = muniment_query::expr::EvalContext::new(Doc::EMPTY, &arena);
        let value = expr.eval(&eval).map_err(|e| {
            Error::new(
                e.code(),
                format!("Command let Expression does not evaluate: {}", e.message()),
            )
        })?;
        match value {
            Some(v) => {
                ctx.variables.append(e.name(), v);
            }
            None => ctx.missing.push(e.name().to_string()),
        }
    }
    Ok(())
}

/// True if the expression reads the variable, as far as its text tells.
fn mentions(v: Value<'_>, variable: &str) -> bool {
    match v {
        Value::String(s) => s
            .strip_prefix("$$")
            .is_some_and(|n| n.split('.').next() == Some(variable)),
        Value::Document(d) | Value::Array(d) => d
            .iter()
            .any(|e| e.name() != "$literal" && mentions(e.value(), variable)),
        _ => false,
    }
}
