//! The errors that end a core for good.

use std::fmt;

/// Why a core cannot continue: this member's log is not one that the set could have left it with. Only an
/// initial sync helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fatal {
    /// Acknowledged records are gone: the log ends before the commit point.
    Lost {
        /// The commit point.
        committed: u64,
        /// The end of the log.
        last: u64,
    },
    /// The leader has a different record at a place that is committed here.
    Diverged {
        /// The place.
        index: u64,
    },
    /// The log is not cut as the state says it has to be, or its terms do not match those of the state.
    Inconsistent(&'static str),
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fatal::Lost { committed, last } => write!(
                f,
                "the log ends at {last}, but everything up to {committed} was acknowledged"
            ),
            Fatal::Diverged { index } => {
                write!(
                    f,
                    "the set has another record at {index}, which is committed"
                )
            }
            Fatal::Inconsistent(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Fatal {}
