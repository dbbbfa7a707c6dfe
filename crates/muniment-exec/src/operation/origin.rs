//! What opened a cursor: currentOp and the profiler show it with its getMores.

use muniment_value::{Doc, DocBuf, Value};

/// Commands that open cursors are kept up to this size, in bytes; of longer ones the beginning is, as
/// text.
const LONGEST: usize = 16 << 10;

/// The command that opened a cursor.
#[derive(Debug)]
pub struct Origin {
    command: DocBuf,
    plan_summary: Option<String>,
}

impl Origin {
    /// The command as it came, and the summary of its plan.
    pub fn new(command: Doc<'_>, plan_summary: Option<String>) -> Origin {
        Origin {
            command: command.abridged(LONGEST),
            plan_summary,
        }
    }

    /// `originatingCommand`.
    pub fn command(&self) -> Doc<'_> {
        self.command.as_doc()
    }

    /// The command's `comment`, which its getMores have, too.
    pub fn comment(&self) -> Option<Value<'_>> {
        self.command().get("comment")
    }

    /// How its documents are found.
    pub fn plan_summary(&self) -> Option<&str> {
        self.plan_summary.as_deref()
    }
}
