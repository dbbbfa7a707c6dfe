//! The `findAndModify` command: changes one document and returns it.

use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::hint::Hint;
use crate::source::Source;
use crate::verbs::write::change::Change;
use crate::verbs::write::change::Done;
use crate::verbs::write::change::Write;
use crate::verbs::write::perform::perform;
use bytes::Bytes;
use muniment_query::meta::without;
use muniment_query::{Clocks, Projection, QueryContext, Update};
use muniment_storage::CommitId;
use muniment_value::{Collation, Doc, DocBuf, Error, Result, Value, ValueBuf, doc};
use std::sync::Arc;

/// The fields of a `findAndModify` command.
#[derive(Clone, Debug)]
pub struct FindAndModifyRequest<'a> {
    /// `db.collection`.
    pub namespace: &'a str,
    /// `query`.
    pub filter: Doc<'a>,
    /// `sort`; empty for none.
    pub sort: Doc<'a>,
    /// Remove instead of updating.
    pub remove: bool,
    /// The update.
    pub update: Option<Value<'a>>,
    /// Return the new document.
    pub new: bool,
    /// The projection of the returned document; empty for none.
    pub fields: Doc<'a>,
    /// Insert when nothing matches.
    pub upsert: bool,
    /// `arrayFilters`; empty for none.
    pub array_filters: Doc<'a>,
    /// The hint.
    pub hint: Option<Hint<'a>>,
    /// The command's `let`.
    pub let_: Doc<'a>,
    /// How strings compare; `None` means by the collection's collation.
    pub collation: Option<Collation>,
    /// Skip the collection's validator.
    pub bypass_document_validation: bool,
    /// Keep the `Timestamp(0, 0)` of a replacement as it is.
    pub bypass_empty_ts_replacement: bool,
}

/// The result of a `findAndModify`.
#[derive(Clone, Debug, Default)]
pub struct FindAndModifyOutcome {
    /// The reply's `value`: `None` is null.
    pub value: Option<Bytes>,
    /// `lastErrorObject.n`.
    pub n: u64,
    /// `lastErrorObject.updatedExisting` (absent for remove).
    pub updated_existing: Option<bool>,
    /// `lastErrorObject.upserted`.
    pub upserted: Option<ValueBuf>,
    /// The commit to wait for with `j: true`.
    pub commit: Option<CommitId>,
}

/// MongoDB's prefix for an error that comes up after the document was found.
const FAILED: &str = "Plan executor error during findAndModify :: caused by :: ";

fn failed(e: Error) -> Error {
    in_find_and_modify(e.while_executing())
}

/// An error of findAndModify, which says so if it came up while documents were processed.
pub fn in_find_and_modify(e: Error) -> Error {
    e.executing_context(FAILED)
}

impl FindAndModifyOutcome {
    /// The reply without `ok`: `{lastErrorObject: {n, updatedExisting, upserted}, value}`.
    pub fn to_doc(&self) -> DocBuf {
        let mut last = doc! { "n": i32::try_from(self.n).unwrap_or(i32::MAX) };
        last.append_some("updatedExisting", self.updated_existing);
        last.append_some("upserted", self.upserted.as_ref().map(ValueBuf::as_value));
        doc! {
            "lastErrorObject": last,
            "value": self.value.as_ref().map(|b| Doc::new(b)),
        }
    }
}

impl<'a> FindAndModifyRequest<'a> {
    /// Refuses options that cannot go together.
    ///
    /// # Errors
    /// 9 FailedToParse.
    pub fn check(&self) -> Result<()> {
        let message = match (self.remove, self.update.is_some()) {
            (true, true) => "Cannot specify both an 'update' and 'remove'=true",
            (false, false) => "Either an update or remove=true must be specified",
            (true, false) if self.upsert => "Cannot specify both upsert=true and remove=true",
            (true, false) if self.new => {
                "Cannot specify both new=true and remove=true; 'remove' always returns the \
                 deleted document"
            }
            (true, false) if !self.array_filters.is_empty() => {
                "Cannot specify arrayFilters and remove=true"
            }
            _ => return Ok(()),
        };
        Err(Error::failed_to_parse(message))
    }

    /// The parsed update; `None` if the request removes.
    ///
    /// # Errors
    /// Those of [`Update::parse`].
    pub(crate) fn parse(&self, ctx: &QueryContext) -> Result<Option<Update>> {
        let Some(u) = self.update else {
            return Ok(None);
        };
        let update = Update::parse(u, self.array_filters, ctx)?;
        Ok(Some(
            update.keep_empty_timestamps(self.bypass_empty_ts_replacement),
        ))
    }

    /// The request as a write of one document.
    pub(crate) fn write<'w>(
        &self,
        ctx: &QueryContext,
        update: Option<&'w Update>,
    ) -> Result<Write<'w>>
    where
        'a: 'w,
    {
        let change = match update {
            Some(update) => Change::Update {
                update,
                upsert: self.upsert,
                bypass_validation: self.bypass_document_validation,
            },
            None => Change::Delete,
        };
        let write = Write::new(ctx, self.filter, self.sort, self.hint, false, change)?;
        Ok(Write {
            returns_fields: !self.fields.is_empty(),
            turn: None,
            ..write
        })
    }
}

/// Implements [`Database::find_and_modify`].
pub(crate) fn find_and_modify(
    engine: &Database,
    op: &Arc<OpContext>,
    request: &FindAndModifyRequest<'_>,
) -> Result<FindAndModifyOutcome> {
    request.check()?;
    let source = Source::now(&engine.store, request.namespace)?;
    let given = request.collation.as_ref();
    let ctx = source.context(op, request.namespace, request.let_, given)?;
    let ctx = ctx.with_clocks(Clocks::NowAndCluster);
    let update = request.parse(&ctx)?;
    let mut write = request.write(&ctx, update.as_ref())?;
    let projection = if request.fields.is_empty() {
        None
    } else {
        let ctx = ctx.clone().with_metadata(write.filter.metadata());
        let filter = Some(&write.filter);
        let projection = Projection::parse(request.fields, filter, &ctx)?;
        write.metadata = ctx.metadata.asked();
        Some(projection)
    };
    let mut done = Done::default();
    let shown = match op.retry().and_then(|r| r.returned()) {
        Some((outcome, shown)) => {
            done.matched = outcome.matched;
            done.upserted = outcome.upserted;
            shown.map(Bytes::from)
        }
        None => {
            perform(engine, op, request.namespace, &write, &mut done)
                .map_err(in_find_and_modify)?;
            match (request.remove, request.new) {
                (false, true) => done.new.take(),
                _ => done.old.take(),
            }
        }
    };
    let value = match (shown, projection) {
        (Some(doc), Some(p)) => {
            let info = match p.needs_match_info() {
                true => {
                    let filter = write.filter.without_planned();
                    let info = filter.matches_info(Doc::new(&doc), op.work());
                    info.map_err(failed)?.unwrap_or(done.info)
                }
                false => done.info,
            };
            let with = match done.metadata.as_slice() {
                [] => doc,
                metadata => Bytes::from([&*doc, metadata].concat()),
            };
            let mut out = Vec::new();
            p.apply(Doc::new(&with), info, &mut out, op.work())
                .map_err(failed)?;
            Some(without(out.into()))
        }
        (doc, _) => doc,
    };
    let n = done.matched + u64::from(done.upserted.is_some());
    Ok(FindAndModifyOutcome {
        value,
        n,
        updated_existing: (!request.remove).then_some(done.matched > 0),
        upserted: done.upserted,
        commit: done.commit,
    })
}
