//! One write statement, parsed, and what it did.

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

/// What is done to a matching document.
#[derive(Clone, Copy)]
pub(crate) enum Change<'u> {
    /// Updated.
    Update {
        /// How.
        update: &'u Update,
        /// Inserted when nothing matches.
        upsert: bool,
        /// The collection's validator is not asked.
        bypass_validation: bool,
    },
    /// Deleted.
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
    /// What the sort and the projection ask for.
    pub metadata: MetaSet,
    /// The document is returned by a projection.
    pub returns_fields: bool,
    /// Set for work in the background, which waits for no other operation: where the turn ends.
    pub turn: Option<Turn>,
}

/// How much one piece of work in the background does before another gets its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Until when.
    pub until: Instant,
    /// So many documents.
    pub docs: u64,
}

impl Turn {
    /// True when so much was enough for this turn.
    pub fn is_over(&self, docs: u64) -> bool {
        docs >= self.docs || Instant::now() >= self.until
    }
}

/// What a write statement did.
#[derive(Default)]
pub(crate) struct Done {
    pub matched: u64,
    pub modified: u64,
    /// The last matched document as it was.
    pub old: Option<Bytes>,
    /// And as it is now; of an upsert the new document.
    pub new: Option<Bytes>,
    pub info: MatchInfo,
    /// The metadata of that document, as they stand after its fields.
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
        // One document at most: MongoDB does not even look at the order then.
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

    /// True when the collection's validator is not to be asked.
    pub(super) fn bypasses_validation(&self) -> bool {
        match &self.change {
            Change::Update {
                bypass_validation, ..
            } => *bypass_validation,
            Change::Delete => true,
        }
    }

    /// True when nothing that matches means an insert.
    pub(super) fn upserts(&self) -> bool {
        matches!(&self.change, Change::Update { upsert: true, .. })
    }

    /// How the document is looked up by its `_id`, without a plan.
    pub(super) fn look_up_summary(&self, collection: &Collection) -> &'static str {
        let write = match &self.change {
            Change::Update { .. } => Verb::Update,
            Change::Delete => Verb::Delete,
        };
        express::summary(collection, self.is_express(), Some(write))
    }

    /// True when a look-up by `_id` is all that the write needs.
    pub(super) fn is_express(&self) -> bool {
        !self.upserts() && !self.needs_info() && !self.returns_fields && self.metadata.is_empty()
    }

    pub(super) fn needs_info(&self) -> bool {
        matches!(&self.change, Change::Update { update, .. } if update.needs_match_info())
    }
}
