//! The lab's one error: a sentence for the person at the terminal.

use std::fmt;

/// Why an experiment could not be run, in words that say what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(pub String);

/// The lab's result.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure that says `text`.
    pub fn new(text: impl Into<String>) -> Failure {
        Failure(text.into())
    }

    /// The same failure, with what was being done in front.
    pub fn while_doing(self, what: &str) -> Failure {
        Failure(format!("{what}: {}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whatever went wrong, in its own words. (So a failure is no [`std::error::Error`] itself: it is where
/// errors end.)
impl<E: std::error::Error> From<E> for Failure {
    fn from(e: E) -> Failure {
        Failure(e.to_string())
    }
}

/// Adds what was being done to any error.
pub trait Context<T> {
    /// `what` stands in front of the error's own words.
    fn context(self, what: &str) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: &str) -> Result<T> {
        self.map_err(|e| Failure(format!("{what}: {e}")))
    }
}
