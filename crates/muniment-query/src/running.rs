//! What the calling thread works for: the operation that long loops ask, and its JavaScript
//! engine.
//!
//! A command enters before it runs and leaves when the guard is dropped; the engine ends with it,
//! so that no script leaves anything behind for another operation.

use crate::context::Interrupt;
pub use muniment_js::Engine;
use muniment_value::{Code, Error, Result};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static OPERATION: RefCell<Option<Arc<dyn Interrupt>>> = const { RefCell::new(None) };
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
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
        ENGINE.set(None);
    }
}

/// An error when the operation must stop; nothing if the thread works for none.
///
/// # Errors
/// See [`Interrupt::check`].
pub fn check() -> Result<()> {
    let operation = OPERATION.with_borrow(Clone::clone);
    operation.map_or(Ok(()), |o| o.check())
}

/// Switches JavaScript on or off for the whole process.
pub fn set_javascript(on: bool) {
    muniment_js::set_enabled(on);
}

/// An error when functions are switched off.
///
/// # Errors
/// 31264.
pub(crate) fn need_javascript(what: &str) -> Result<()> {
    if muniment_js::enabled() {
        return Ok(());
    }
    Err(Error::location(
        31264,
        format!("Cannot run server-side javascript without the javascript engine enabled: {what}"),
    ))
}

/// Runs `f` with the operation's engine, which is started when it is first needed.
///
/// # Errors
/// 139 JSInterpreterFailure; what stops the operation; what `f` raises.
pub fn with_engine<T>(f: impl FnOnce(&mut Engine) -> Result<T>) -> Result<T> {
    need_javascript("a function was called")?;
    let operation = OPERATION.with_borrow(Clone::clone);
    let mut engine = match ENGINE.take() {
        Some(e) => e,
        None => Engine::start(Arc::new(move || match &operation {
            Some(o) => o.check(),
            None => Ok(()),
        }))?,
    };
    let out = f(&mut engine);
    // One that was stopped is not used again.
    if !out
        .as_ref()
        .is_err_and(|e| e.code() != Code::JSInterpreterFailure)
    {
        ENGINE.set(Some(engine));
    }
    out
}
