//! The statements of an `update` command, and how they are checked and parsed.

use super::bulk::{Statement, Target};
use crate::operation::OpContext;
use crate::plan::hint::Hint;
use crate::timeseries::TimeSeries;
use crate::verbs::write::change::Change;
use crate::verbs::write::change::Write;
use muniment_query::{Clocks, QueryContext, Update};
use muniment_value::{Collation, Doc, DocBuf, Error, Result, Value, doc};
use std::sync::Arc;

/// One element of `update.updates`.
#[derive(Clone, Debug)]
pub struct UpdateStatement<'a> {
    /// `q`.
    pub filter: Doc<'a>,
    /// `u`: operators, replacement or pipeline.
    pub update: Value<'a>,
    /// True if `u` is a difference of two documents in the form of MongoDB's oplog (`{$v: 2}`).
    pub is_diff: bool,
    /// True if the statement comes from an oplog entry. What a time series forbids to clients was
    /// checked when the entry was made, and is not checked again.
    pub is_entry: bool,
    /// Update all documents that match, not just one.
    pub multi: bool,
    /// Insert when nothing matches.
    pub upsert: bool,
    /// The hint.
    pub hint: Option<Hint<'a>>,
    /// `arrayFilters`; empty for none.
    pub array_filters: Doc<'a>,
    /// `sort` (8.0), for one document only; empty for none.
    pub sort: Doc<'a>,
    /// `c`: constants of a pipeline update; empty for none.
    pub constants: Doc<'a>,
    /// The command's `let`.
    pub let_: Doc<'a>,
    /// How strings compare; `None` means by the collection's collation.
    pub collation: Option<Collation>,
    /// Skip the collection's validator.
    pub bypass_document_validation: bool,
    /// Keep the `Timestamp(0, 0)` of a replacement as it is.
    pub bypass_empty_ts_replacement: bool,
}

impl<'a> UpdateStatement<'a> {
    /// A statement without options.
    pub fn new(filter: Doc<'a>, update: Value<'a>) -> UpdateStatement<'a> {
        UpdateStatement {
            filter,
            update,
            is_diff: false,
            is_entry: false,
            multi: false,
            upsert: false,
            hint: None,
            array_filters: Doc::EMPTY,
            sort: Doc::EMPTY,
            constants: Doc::EMPTY,
            let_: Doc::EMPTY,
            collation: None,
            bypass_document_validation: false,
            bypass_empty_ts_replacement: false,
        }
    }
}

impl<'a> UpdateStatement<'a> {
    /// Parses the update and refuses options that cannot go together.
    pub(crate) fn parse(&self, ctx: &QueryContext) -> Result<Update> {
        if self.is_diff {
            return Ok(Update::from_diff(
                self.update.as_doc().unwrap_or(Doc::EMPTY),
            ));
        }
        let update = Update::parse(self.update, self.array_filters, ctx)?
            .keep_empty_timestamps(self.bypass_empty_ts_replacement);
        if self.multi && update.is_replacement() {
            return Err(Error::failed_to_parse(
                "multi update is not supported for replacement-style update",
            ));
        }
        if self.multi && !self.sort.is_empty() {
            return Err(Error::failed_to_parse(
                "Cannot specify sort with multi=true",
            ));
        }
        if !self.constants.is_empty() && !matches!(self.update, Value::Array(_)) {
            return Err(Error::location(
                51198,
                "Constant values may only be specified for pipeline updates",
            ));
        }
        Ok(update)
    }

    /// The statement with its filter parsed.
    pub(crate) fn write<'w>(&self, ctx: &QueryContext, update: &'w Update) -> Result<Write<'w>>
    where
        'a: 'w,
    {
        Write::new(
            ctx,
            self.filter,
            self.sort,
            self.hint,
            self.multi,
            Change::Update {
                update,
                upsert: self.upsert,
                bypass_validation: self.bypass_document_validation,
            },
        )
    }
}

/// The `let` variables with a pipeline update's constants. These are values and no expressions, and hide variables of the
/// same name.
pub fn with_constants(let_: Doc<'_>, constants: Doc<'_>) -> DocBuf {
    let mut all = DocBuf::new();
    for e in constants {
        all.append(e.name(), doc! { "$literal": e.value() });
    }
    for e in let_.iter().filter(|e| constants.get(e.name()).is_none()) {
        all.append_elem(e);
    }
    all
}

impl Statement for UpdateStatement<'_> {
    fn with_write<R>(
        &self,
        op: &Arc<OpContext>,
        on: &Target<'_>,
        run: impl FnOnce(&Write<'_>) -> Result<R>,
    ) -> Result<R> {
        if !self.is_entry
            && let Some(series) = on.collection().and_then(|c| TimeSeries::of(c))
        {
            series.check_update(self.update, self.multi, self.upsert)?;
        }
        let variables = with_constants(self.let_, self.constants);
        let ctx = on.context(op, variables.as_doc(), self.collation.as_ref())?;
        let ctx = ctx.with_clocks(Clocks::NowAndCluster);
        let update = self.parse(&ctx)?;
        run(&self.write(&ctx, &update)?)
    }
}
