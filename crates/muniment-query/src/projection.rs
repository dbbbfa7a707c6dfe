//! Projections of find, and the shape of `$project`.

use crate::context::{MatchInfo, QueryContext};
use crate::filter::Filter;
use muniment_value::{Doc, Result};

/// A parsed projection.
#[derive(Clone, Debug)]
pub struct Projection {
    _private: (),
}

impl Projection {
    /// Parses find's `projection`; `filter` is the command's (the positional `$` must name an
    /// array that it mentions).
    ///
    /// # Errors
    /// MongoDB's codes, e.g. 31254 "Cannot do inclusion on field a in exclusion projection".
    pub fn parse(doc: Doc<'_>, filter: Option<&Filter>, ctx: &QueryContext) -> Result<Projection> {
        let _ = (doc, filter, ctx);
        todo!()
    }

    /// Appends the projected document to `out`.
    ///
    /// # Errors
    /// What expressions raise.
    pub fn apply(&self, doc: Doc<'_>, info: MatchInfo, out: &mut Vec<u8>) -> Result<()> {
        let _ = (doc, info, out);
        todo!()
    }

    /// True when `apply` needs a [`MatchInfo`] from [`Filter::matches_info`].
    pub fn needs_match_info(&self) -> bool {
        todo!()
    }

    /// For covered queries: the dotted paths (with `_id` if it is included) when the projection
    /// is a plain inclusion that needs nothing else.
    pub fn included_paths(&self) -> Option<Vec<String>> {
        todo!()
    }
}
