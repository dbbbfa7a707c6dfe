//! Updates: operators, replacements and pipelines, applied to raw documents in one pass.

use crate::context::{MatchInfo, QueryContext};
use crate::filter::Filter;
use muniment_value::{Doc, Result, Value};

/// A parsed update.
#[derive(Clone, Debug)]
pub struct Update {
    _private: (),
}

impl Update {
    /// Parses `u`: a replacement, a document of operators, or a pipeline. `array_filters` is the
    /// array of arrayFilters (empty if there are none).
    ///
    /// # Errors
    /// 9 FailedToParse, 40 ConflictingUpdateOperators, 56 EmptyFieldName, … with MongoDB's
    /// messages.
    pub fn parse(u: Value<'_>, array_filters: Doc<'_>, ctx: &QueryContext) -> Result<Update> {
        let _ = (u, array_filters, ctx);
        todo!()
    }

    /// True for a replacement document.
    pub fn is_replacement(&self) -> bool {
        todo!()
    }

    /// True when `apply` needs a [`MatchInfo`] (the positional `$`).
    pub fn needs_match_info(&self) -> bool {
        todo!()
    }

    /// Appends the updated document to `out` and tells whether it differs from `doc`; when it
    /// does not, `out` may be left as it was. `_id` is kept first and may not change.
    ///
    /// # Errors
    /// 66 ImmutableField, 28 PathNotViable, 14 TypeMismatch, … with MongoDB's messages;
    /// 10334 when the result is larger than a document may be.
    pub fn apply(&self, doc: Doc<'_>, info: MatchInfo, out: &mut Vec<u8>) -> Result<bool> {
        let _ = (doc, info, out);
        todo!()
    }

    /// Appends the document that an upsert inserts: the filter's equalities, then the update with
    /// `$setOnInsert`. Adds an ObjectId `_id` at the front when there is none.
    ///
    /// # Errors
    /// As [`Update::apply`]; 54 NotSingleValueField for contradicting equalities.
    pub fn upsert(&self, filter: &Filter, out: &mut Vec<u8>) -> Result<()> {
        let _ = (filter, out);
        todo!()
    }

    /// Whether the update can change a value at or below `path`: false lets the write path skip
    /// the index on it.
    pub fn may_touch(&self, path: &str) -> bool {
        let _ = path;
        todo!()
    }
}
