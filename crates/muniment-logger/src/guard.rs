//! The unwind guard around every command: a bug costs one error reply, never the server.

use muniment_value::Error;
use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static REPORT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs a hook that keeps the place and the backtrace of a guarded panic instead of printing them.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if GUARDED.get() {
                let text = format!("{info}\n{}", Backtrace::force_capture());
                REPORT.with_borrow_mut(|r| *r = Some(text));
            } else {
                before(info);
            }
        }));
    });
}

/// A caught panic.
pub struct Caught {
    /// The panic's message.
    pub message: String,
    /// The panic's place and backtrace.
    pub report: String,
}

impl Caught {
    /// The panic as an error. `what` names the code that panicked.
    pub fn into_error(self, what: &str) -> Error {
        Error::internal(format!(
            "{what} panicked; this is a bug: {}: {}",
            self.message, self.report
        ))
    }
}

/// Runs `f`; a panic in it comes back as [`Caught`].
///
/// # Errors
/// The panic.
pub fn guarded<T>(f: impl FnOnce() -> T) -> Result<T, Caught> {
    let before = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    GUARDED.set(before);
    result.map_err(|payload| Caught {
        message: text_of(payload.as_ref()),
        report: REPORT.take().unwrap_or_default(),
    })
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic".to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    #[test]
    fn a_panic_is_caught_with_its_place() {
        super::install();
        let caught = super::guarded(|| panic!("broken {}", 7)).err().unwrap();
        assert_eq!(caught.message, "broken 7");
        assert!(caught.report.contains("guard.rs"), "{}", caught.report);
        assert_eq!(super::guarded(|| 3).ok(), Some(3));
    }
}
