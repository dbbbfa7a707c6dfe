//! The command that opened a cursor. currentOp and the profiler show it with the cursor's getMores.

use muniment_value::{Doc, DocBuf, Value};

/// A command of up to this many bytes is kept whole. Of a longer one, the beginning is kept as
/// text.
const LONGEST: usize = 16 << 10;

/// The command that opened a cursor.
#[derive(Debug)]
pub struct Origin {
    command: DocBuf,
    plan_summary: Option<String>,
}

impl Origin {
    /// The command as the client sent it, and the summary of its plan.
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

    /// The command's `comment`, which applies to its getMores too.
    pub fn comment(&self) -> Option<Value<'_>> {
        self.command().get("comment")
    }

    /// The plan's summary.
    pub fn plan_summary(&self) -> Option<&str> {
        self.plan_summary.as_deref()
    }
}
