//! What a server holds: the store with cursors, running operations and cached plans.

use crate::cursor::CursorManager;
use crate::operation::Operations;
use muniment_storage::Store;
use std::path::PathBuf;
use std::sync::Arc;

/// One store with everything that runs on it. Shared by all connections.
pub struct Engine {
    /// The data.
    pub store: Arc<Store>,
    /// Open cursors.
    pub cursors: CursorManager,
    /// Running operations, for currentOp and killOp.
    pub operations: Operations,
    pub(crate) spill_dir: PathBuf,
}

impl Engine {
    /// An engine over `store`; blocking sorts and groups spill into `spill_dir` (`DBPATH/_tmp`),
    /// which is emptied now and created when needed.
    pub fn new(store: Arc<Store>, spill_dir: PathBuf) -> Engine {
        let _ = std::fs::remove_dir_all(&spill_dir);
        Engine {
            store,
            cursors: CursorManager::new(),
            operations: Operations::new(),
            spill_dir,
        }
    }

    /// Drops every cached plan of a namespace (`planCacheClear`); `None`: of all.
    pub fn clear_plan_cache(&self, namespace: Option<&str>) {
        let _ = namespace;
        todo!()
    }
}
