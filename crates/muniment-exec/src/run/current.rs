//! The state that the plans of one command share: the operation that uses their cursor now, and one
//! view.

use crate::operation::OpContext;
use muniment_op::{Interrupt, Kept, Ledger, Sleepers};
use muniment_storage::{Collection, Snapshot, Store};
use muniment_value::{Code, Result};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// A plan as its cursor holds it.
pub(crate) trait Held: Send {
    /// Releases the plan's snapshot.
    fn save(&mut self);

    /// Books the keys and documents examined with the operation.
    fn flush(&mut self, op: &OpContext);
}

/// The operation that uses a cursor now, and the plans that run below the pipeline's stages. Stages
/// outlive the command that opened them, so they ask this for the operation of the moment.
pub(crate) struct CurrentOp {
    op: Mutex<Arc<OpContext>>,
    plans: Mutex<Plans>,
    /// The view that all plans of the command read. With one view, a join sees the other collection
    /// at the same time as the documents it joins to.
    view: Mutex<Option<Snapshot>>,
}

/// Plans that have to release their snapshots when the cursor idles.
#[derive(Default)]
struct Plans {
    list: Vec<Weak<Mutex<dyn Held>>>,
    /// When the list gets this long, plans that no longer exist are removed from it.
    clear_at: usize,
}

impl CurrentOp {
    pub(crate) fn new(op: &Arc<OpContext>) -> Arc<CurrentOp> {
        Arc::new(CurrentOp {
            op: Mutex::new(op.clone()),
            plans: Mutex::default(),
            view: Mutex::default(),
        })
    }

    /// The command's view of a collection. The plan that needs it first opens it.
    ///
    /// # Errors
    /// Those of [`OpContext::view`].
    pub(crate) fn view(&self, store: &Store, collection: &Collection) -> Result<Snapshot> {
        let op = self.get();
        if !op.reads_newest() {
            return op.view(store, collection);
        }
        let mut view = self.view.lock();
        let view = view.get_or_insert_with(|| store.snapshot()).clone();
        op.check_seen(collection, view.read_time())?;
        Ok(view)
    }

    pub(crate) fn get(&self) -> Arc<OpContext> {
        self.op.lock().clone()
    }

    /// Sets the operation that uses the cursor from now on.
    pub(crate) fn set(&self, op: &Arc<OpContext>) {
        *self.op.lock() = op.clone();
    }

    /// Adds a plan to those that release their snapshots with the cursor.
    pub(crate) fn register(&self, plan: &Arc<Mutex<impl Held + 'static>>) {
        let mut plans = self.plans.lock();
        if plans.list.len() >= plans.clear_at {
            plans.list.retain(|p| p.strong_count() > 0);
            plans.clear_at = (plans.list.len() * 2).max(16);
        }
        let plan: Weak<Mutex<dyn Held>> = Arc::downgrade(plan) as _;
        plans.list.push(plan);
    }

    /// Releases the view and everything that the plans hold.
    pub(crate) fn release(&self) {
        self.each_plan(|plan| plan.save());
        *self.view.lock() = None;
    }

    /// Calls `f` with every plan that still exists.
    pub(crate) fn each_plan(&self, mut f: impl FnMut(&mut dyn Held)) {
        let list: Vec<_> = self.plans.lock().list.clone();
        for plan in list.iter().filter_map(Weak::upgrade) {
            f(&mut *plan.lock());
        }
    }
}

impl Interrupt for CurrentOp {
    fn check(&self) -> Result<()> {
        self.op.lock().check()
    }

    fn check_but_for(&self, code: Code) -> Result<()> {
        self.op.lock().check_but_for(code)
    }

    fn ledger(&self) -> Option<Arc<Ledger>> {
        self.op.lock().ledger()
    }

    fn shared(&self) -> Option<Arc<dyn Interrupt>> {
        self.op.lock().shared()
    }

    fn keeps(&self, show: &mut dyn FnMut(&Kept)) {
        self.get().keeps(show);
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        self.op.lock().sleepers(show);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.op.lock().wakes_at()
    }
}
