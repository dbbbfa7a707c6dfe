//! `find`.

use crate::cursor::Cursor;
use crate::engine::Engine;
use crate::operation::OpContext;
use muniment_value::{Doc, Result, Value};
use std::sync::Arc;

/// An index hint.
#[derive(Clone, Copy, Debug)]
pub enum Hint<'a> {
    /// By name.
    Name(&'a str),
    /// By key pattern, or `{$natural: ±1}`.
    Pattern(Doc<'a>),
}

impl<'a> Hint<'a> {
    /// Reads a command's `hint`: a string or a document; an empty document is no hint.
    ///
    /// # Errors
    /// 9 FailedToParse "Hint must be a string or an object".
    pub fn parse(value: Value<'a>) -> Result<Option<Hint<'a>>> {
        let _ = value;
        todo!()
    }
}

/// A `find` command's content. `Default` gives an empty filter and no option.
#[derive(Clone, Debug)]
pub struct FindRequest<'a> {
    /// `db.collection`.
    pub namespace: &'a str,
    /// The filter.
    pub filter: Doc<'a>,
    /// The projection; empty for none.
    pub projection: Doc<'a>,
    /// The sort; empty for none. `{$natural: ±1}` is understood.
    pub sort: Doc<'a>,
    /// Documents to skip.
    pub skip: u64,
    /// Most documents to return over all batches; 0 for no limit.
    pub limit: u64,
    /// The hint.
    pub hint: Option<Hint<'a>>,
    /// Inclusive lower bound on the hinted index's keys; empty for none.
    pub min: Doc<'a>,
    /// Exclusive upper bound; empty for none.
    pub max: Doc<'a>,
    /// Return index keys instead of documents.
    pub return_key: bool,
    /// Add `$recordId`.
    pub show_record_id: bool,
    /// Tailable, for capped collections.
    pub tailable: bool,
    /// getMore waits for data; with `tailable` only.
    pub await_data: bool,
    /// The cursor does not time out.
    pub no_cursor_timeout: bool,
    /// Close the cursor after the first batch.
    pub single_batch: bool,
    /// `allowDiskUse`: `Some(false)` makes a sort above the memory limit an error.
    pub allow_disk_use: Option<bool>,
    /// The command's `let`, as it came (values may be expressions).
    pub let_: Doc<'a>,
}

impl<'a> FindRequest<'a> {
    /// A find of everything in `namespace`.
    pub fn new(namespace: &'a str) -> FindRequest<'a> {
        FindRequest {
            namespace,
            filter: Doc::EMPTY,
            projection: Doc::EMPTY,
            sort: Doc::EMPTY,
            skip: 0,
            limit: 0,
            hint: None,
            min: Doc::EMPTY,
            max: Doc::EMPTY,
            return_key: false,
            show_record_id: false,
            tailable: false,
            await_data: false,
            no_cursor_timeout: false,
            single_batch: false,
            allow_disk_use: None,
            let_: Doc::EMPTY,
        }
    }
}

impl Engine {
    /// Plans a find and opens its cursor (nothing is read yet). A collection that does not exist
    /// gives an empty cursor.
    ///
    /// # Errors
    /// What parsing filter, projection and sort raises; 2 BadValue for a bad hint
    /// ("error processing query: … planner returned error: bad hint"), for min/max without a
    /// fitting hint (51173 and its like), for a tailable cursor on a collection that is not
    /// capped.
    pub fn find(&self, op: &Arc<OpContext>, request: &FindRequest<'_>) -> Result<Cursor> {
        let _ = (op, request);
        todo!()
    }
}
