//! One parsed write statement, and its result.

use super::slices::Tally;
use crate::operation::{Retry, StatementOutcome, Statements};
use crate::plan::access::Verb;
use crate::plan::express;
use crate::plan::hint::{Hint, natural};
use bytes::Bytes;
use muniment_query::{Filter, MatchInfo, MetaSet, QueryContext, SortSpec, Update};
use muniment_storage::{Collection, CommitId};
use muniment_value::{Doc, DocBuf, Result, ValueBuf};
use std::time::Instant;

/// The change that is made to a matching document.
#[derive(Clone, Copy)]
pub(crate) enum Change<'u> {
    /// The document is updated.
    Update {
        /// The update that is applied.
        update: &'u Update,
        /// True if the update inserts a document when nothing matches.
        upsert: bool,
        /// True if the collection's validator is not applied.
        bypass_validation: bool,
    },
    /// The document is deleted.
    Delete,
}

/// One write statement, parsed.
#[derive(Clone)]
pub(crate) struct Write<'w> {
    pub filter: Filter,
    /// The filter as the client wrote it, if it comes from a client.
    pub source: Option<Doc<'w>>,
    pub sort: Option<(SortSpec, DocBuf)>,
    pub natural: Option<bool>,
    pub hint: Option<Hint<'w>>,
    pub multi: bool,
    pub change: Change<'w>,
    /// The metadata that the sort and the projection ask for.
    pub metadata: MetaSet,
    /// True if the document is returned through a projection.
    pub returns_fields: bool,
    /// The end of this turn of background work, which never waits for another operation. `None` for
    /// the statements of clients.
    pub turn: Option<Turn>,
}

/// How much one piece of work in the background does before another gets its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The time at which the turn ends.
    pub until: Instant,
    /// The number of documents after which the turn ends.
    pub docs: u64,
}

impl Turn {
    /// True if the turn is over after so many documents.
    pub(crate) fn is_over(&self, docs: u64) -> bool {
        docs >= self.docs || muniment_op::now() >= self.until
    }
}

/// The result of a write statement.
#[derive(Default)]
pub(crate) struct Done {
    pub matched: u64,
    pub modified: u64,
    /// The last matched document as it was.
    pub old: Option<Bytes>,
    /// That document as it is now, or the document that an upsert inserted.
    pub new: Option<Bytes>,
    pub info: MatchInfo,
    /// The metadata of that document, encoded as they follow its fields.
    pub metadata: Vec<u8>,
    pub upserted: Option<ValueBuf>,
    pub commit: Option<CommitId>,
}

impl Tally for Done {
    fn add(&mut self, later: Done) {
        let (matched, modified) = (self.matched, self.modified);
        if later.matched > 0 || later.upserted.is_some() {
            let metadata = std::mem::take(&mut self.metadata);
            *self = later;
            if self.metadata.is_empty() {
                self.metadata = metadata;
            }
            self.matched += matched;
            self.modified += modified;
        }
    }

    fn statements(&self, retry: &Retry) -> Vec<Statements> {
        if self.matched == 0 && self.upserted.is_none() {
            return Vec::new();
        }
        let outcome = StatementOutcome {
            matched: self.matched,
            modified: self.modified,
            upserted: self.upserted.clone(),
            commit: None,
        };
        vec![retry.of_current(&outcome, self.old.as_ref(), self.new.as_ref())]
    }
}

impl From<Done> for StatementOutcome {
    fn from(done: Done) -> StatementOutcome {
        StatementOutcome {
            matched: done.matched,
            modified: done.modified,
            upserted: done.upserted,
            commit: done.commit,
        }
    }
}

impl<'w> Write<'w> {
    /// Parses the parts that all writes have.
    pub(crate) fn new(
        ctx: &QueryContext,
        source: Doc<'w>,
        sort: Doc<'_>,
        hint: Option<Hint<'w>>,
        multi: bool,
        change: Change<'w>,
    ) -> Result<Write<'w>> {
        let natural = natural(sort);
        let filter = Filter::parse_query(source, ctx)?;
        let behind;
        let ctx = if filter.metadata().is_empty() {
            ctx
        } else {
            behind = ctx.clone().with_metadata(filter.metadata());
            &behind
        };
        // With a condition on `_id` at most one document matches, and MongoDB does not even parse
        // the sort then.
        let one = filter.id_equality().is_some();
        let sort = if sort.is_empty() || natural.is_some() || one {
            None
        } else {
            Some((SortSpec::parse(sort, ctx)?, sort.to_buf()))
        };
        Ok(Write {
            filter,
            source: Some(source),
            sort,
            natural,
            hint,
            multi,
            change,
            metadata: ctx.metadata.asked(),
            returns_fields: false,
            turn: None,
        })
    }

    /// True if the collection's validator is not applied.
    pub(super) fn bypasses_validation(&self) -> bool {
        match &self.change {
            Change::Update {
                bypass_validation, ..
            } => *bypass_validation,
            Change::Delete => true,
        }
    }

    /// True if the statement inserts a document when nothing matches.
    pub(super) fn upserts(&self) -> bool {
        matches!(&self.change, Change::Update { upsert: true, .. })
    }

    /// The plan summary for a look-up of the document by its `_id`, without a plan.
    pub(super) fn look_up_summary(&self, collection: &Collection) -> &'static str {
        let write = match &self.change {
            Change::Update { .. } => Verb::Update,
            Change::Delete => Verb::Delete,
        };
        express::summary(collection, self.is_express(), Some(write))
    }

    /// True if the write needs nothing but a look-up by `_id`, so that MongoDB shows it as an
    /// EXPRESS stage.
    pub(super) fn is_express(&self) -> bool {
        !self.upserts() && !self.needs_info() && !self.returns_fields && self.metadata.is_empty()
    }

    pub(super) fn needs_info(&self) -> bool {
        matches!(&self.change, Change::Update { update, .. } if update.needs_match_info())
    }
}
