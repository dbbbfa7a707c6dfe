//! The engine of a server: the store with its cursors, running operations and cached plans.

use crate::changes::Changes;
use crate::cursor::CursorManager;
use crate::operation::{OpContext, Operations};
use crate::plan::cache::PlanCache;
use crate::plan::filters::IndexFilters;
use crate::run::recipe::{Output, Recipe};
use crate::run::sort::SortLimits;
use crate::tickets::Tickets;
use crate::verbs::write::Validators;
use crate::verbs::write::temporary::drop_temporary;
use muniment_op::Lock;
use muniment_query::{Filter, Ledger, MetaSet, Scratch};
use muniment_storage::{Collection, Store};
use muniment_value::{Doc, DocBuf, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// The memory in bytes that a blocking sort or group may take by default, as MongoDB's
/// internalQueryMaxBlockingSortMemoryUsageBytes.
const MEMORY_LIMIT: usize = 100 << 20;

/// When the first document expires, in milliseconds since 1970 (`MAX` if none will). The key has
/// the tree of the collection, and that of the TTL index or 0. Whatever has no entry here has to be
/// looked at.
type Expiries = HashMap<(u32, u32), i64>;

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
    /// The ledger of memory: what each account holds and may hold.
    pub memory: Arc<Ledger>,
    /// How many operations may execute at once.
    pub tickets: Tickets,
    /// Held while a collection or a view is created, because they share one name space.
    pub(crate) names: Lock<()>,
    pub(crate) validators: Validators,
    pub(crate) index_filters: IndexFilters,
    pub(crate) expiries: Mutex<Expiries>,
    pub(crate) scratch: Scratch,
    /// A reference to itself, for pipelines that outlive the call that opened them.
    pub(crate) me: Weak<Database>,
    /// Answers that only the surrounding server can give.
    pub(crate) figures: OnceLock<Arc<dyn Figures>>,
}

/// Answers that stages need and only the server knows: the connections of `$currentOp`,
/// `$listLocalSessions`, the latencies and sizes of `$collStats`.
pub trait Figures: Send + Sync {
    /// The documents of a stage whose operand has been checked; `None` if the server knows nothing
    /// about the stage.
    ///
    /// # Errors
    /// The errors of the stage.
    fn documents(
        &self,
        op: &OpContext,
        stage: &str,
        operand: Doc<'_>,
        db: &str,
        collection: &str,
    ) -> Option<Result<Vec<DocBuf>>>;

    /// The documents that the server itself has for a collection that is not replicated, beside
    /// those that are stored.
    fn local(&self, namespace: &str) -> Vec<DocBuf>;
}

impl Database {
    /// An engine over `store`. Blocking sorts and groups spill into `spill_dir` (`DBPATH/_tmp`),
    /// which is emptied now and created when it is needed.
    pub fn new(store: Arc<Store>, spill_dir: PathBuf) -> Arc<Database> {
        let _ = std::fs::remove_dir_all(&spill_dir);
        let space = Arc::downgrade(&store);
        let scratch = Scratch::new(spill_dir, move |bytes| match space.upgrade() {
            Some(store) => store.admit_file(bytes),
            None => Ok(()),
        });
        let engine = Arc::new_cyclic(|me| Database {
            me: me.clone(),
            figures: OnceLock::new(),
            tickets: Tickets::new(store.ledger()),
            memory: store.ledger().clone(),
            store,
            cursors: CursorManager::new(),
            operations: Operations::new(),
            plans: PlanCache::default(),
            changes: Changes::default(),
            memory_limit: AtomicUsize::new(MEMORY_LIMIT),
            names: Lock::new(()),
            validators: Validators::default(),
            index_filters: IndexFilters::default(),
            expiries: Mutex::default(),
            scratch,
        });
        drop_temporary(&engine.store);
        engine
    }

    /// Sets the [`Figures`], which answer the stages that ask about the server. Only the first call
    /// counts.
    pub fn set_figures(&self, figures: Arc<dyn Figures>) {
        let _ = self.figures.set(figures);
    }

    /// Sets whether plans that read a whole collection are refused (`notablescan`).
    pub fn refuse_scans(&self, refuse: bool) {
        self.plans.no_scans.store(refuse, Relaxed);
    }

    /// Drops every cached plan of a namespace, or with `None` of all (`planCacheClear`).
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

    /// Sets how many bytes a sort, a group or a similar stage may have in memory before it spills.
    /// The default is 100 MiB.
    pub fn set_memory_limit(&self, bytes: usize) {
        self.memory_limit.store(bytes, Relaxed);
    }

    /// The limits of a sort. It may use the disk unless the command says no.
    pub(crate) fn sort_limits(&self, allow_disk_use: Option<bool>) -> SortLimits {
        SortLimits {
            memory: self.memory_limit.load(Relaxed),
            ledger: self.memory.clone(),
            scratch: (allow_disk_use != Some(false)).then(|| self.scratch.clone()),
        }
    }

    /// A recipe for the documents that match a filter, without sort, projection and limit.
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
            sort_key: false,
            tailable: false,
            want_info: false,
            sort_limits: self.sort_limits(None),
            keys_only: false,
            needs: None,
            metadata: MetaSet::NONE,
            shared: None,
        }
    }
}
