//! The lab's only error type: a sentence for the person at the terminal.

use std::fmt;

/// The reason why an experiment could not be run, in words that tell what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(pub String);

/// The lab's result.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with this text.
    pub fn new(text: impl Into<String>) -> Failure {
        Failure(text.into())
    }

    /// The same failure, with the attempted action before its text.
    pub fn while_doing(self, what: &str) -> Failure {
        Failure(format!("{what}: {}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Converts every error by its own text. (This is why a failure is not a [`std::error::Error`] itself: this
/// conversion would then conflict with that of a failure to itself.)
impl<E: std::error::Error> From<E> for Failure {
    fn from(e: E) -> Failure {
        Failure(e.to_string())
    }
}

/// Adds the attempted action to any error.
pub trait Context<T> {
    /// Puts `what` before the error's own text.
    fn context(self, what: &str) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: &str) -> Result<T> {
        self.map_err(|e| Failure(format!("{what}: {e}")))
    }
}
