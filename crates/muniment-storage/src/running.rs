//! The operation that the calling thread works for: cursors over the trees ask it on a long way over what
//! is deleted, and the parsing of definitions asks it about constants that take long.

use muniment_op::Interrupt;
use muniment_query::QueryContext;
use muniment_value::Result;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static OPERATION: RefCell<Option<Arc<dyn Interrupt>>> = const { RefCell::new(None) };
}

/// The thread works for an operation until this is dropped.
#[must_use]
pub struct Running {
    before: Option<Arc<dyn Interrupt>>,
}

/// The thread works for `operation` from here on.
pub fn enter(operation: Arc<dyn Interrupt>) -> Running {
    Running {
        before: OPERATION.replace(Some(operation)),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        OPERATION.set(self.before.take());
    }
}

/// An error when the operation must stop; nothing if the thread works for none.
///
/// # Errors
/// See [`Interrupt::check`].
pub(crate) fn check() -> Result<()> {
    let operation = OPERATION.with_borrow(Clone::clone);
    operation.map_or(Ok(()), |o| o.check())
}

/// What filters of definitions are parsed with, on behalf of that operation.
pub(crate) fn context() -> QueryContext {
    let ctx = QueryContext::new();
    match OPERATION.with_borrow(Clone::clone) {
        Some(operation) => ctx.with_operation(operation),
        None => ctx,
    }
}
