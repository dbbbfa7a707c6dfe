//! What a write concern asks of the members of a set.

use muniment_value::DocBuf;
use std::sync::Arc;

/// `w`.
#[derive(Clone, Debug, PartialEq)]
pub enum W {
    /// This many members; 0 or 1 on a standalone.
    Nodes(i32),
    /// "majority": the standalone or the only member itself, journaled.
    Majority,
    /// A mode that the set's configuration names.
    Mode(Arc<str>),
    /// Numbers of members by tag.
    Tags(DocBuf),
}
