//! The request of a find, and its parsed form.

use crate::plan::hint::{Hint, natural};
use crate::plan::query::{LookUp, Told};
use crate::run::recipe::ProjectionKind;
use crate::verbs::head::Head;
use muniment_query::{Filter, MetaSet, Projection, QueryContext, SortSpec};
use muniment_value::{Collation, Doc, DocBuf, Error, Result, Value};

/// The fields of a `find` command. `Default` gives an empty filter and no option.
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
    /// Add `$sortKey`, by which the router of a cluster merges the documents of its shards (see
    /// [`muniment_query::split`]). The find has a sort, or it measures distances.
    pub sort_key: bool,
    /// Tailable, for capped collections.
    pub tailable: bool,
    /// getMore waits for data. This counts only together with `tailable`.
    pub await_data: bool,
    /// The cursor does not time out.
    pub no_cursor_timeout: bool,
    /// Close the cursor after the first batch.
    pub single_batch: bool,
    /// The client gave the first batch's size.
    pub batched: bool,
    /// `allowDiskUse`: `Some(false)` makes a sort above the memory limit an error.
    pub allow_disk_use: Option<bool>,
    /// The command's `let`, as it came (values may be expressions).
    pub let_: Doc<'a>,
    /// How strings compare; `None` means by the collection's collation.
    pub collation: Option<Collation>,
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
            sort_key: false,
            tailable: false,
            await_data: false,
            no_cursor_timeout: false,
            single_batch: false,
            batched: false,
            allow_disk_use: None,
            let_: Doc::EMPTY,
            collation: None,
        }
    }
}

impl FindRequest<'_> {
    /// The part of the request that all queries have.
    pub(crate) fn head(&self) -> Head<'_> {
        Head {
            namespace: self.namespace,
            filter: self.filter,
            hint: self.hint,
            let_: self.let_,
            collation: self.collation.as_ref(),
        }
    }

    /// True if no option but the filter decides which document is found, so that an `_id` can be
    /// looked up directly.
    pub(super) fn may_look_up(&self) -> bool {
        self.hint.is_none()
            && self.min.is_empty()
            && self.max.is_empty()
            && self.skip == 0
            && !self.show_record_id
            && !self.tailable
    }

    /// What the planner is told of the request besides its filter.
    pub(super) fn told(&self) -> Told<'_> {
        Told {
            limit: self.limit,
            skip: self.skip,
            sort: Some(self.sort),
            projection: Some(self.projection),
        }
    }

    /// The short cuts that MongoDB's planner takes for such a request.
    pub(super) fn look_up(&self, metadata: MetaSet) -> LookUp {
        let by_id = self.may_look_up();
        let simple = projection_kind(self.projection) == ProjectionKind::Simple;
        let express = by_id && !self.return_key && !self.batched && metadata.is_empty();
        LookUp {
            by_id,
            express: express && simple,
            by_field: express && self.projection.is_empty(),
            one: self.limit == 1,
        }
    }
}

/// A find with everything parsed; execution and explain both work from it.
pub(crate) struct Parsed {
    pub filter: Filter,
    pub sort: Option<(SortSpec, DocBuf)>,
    pub natural: Option<bool>,
    pub projection: Option<Projection>,
    /// The metadata that the sort and the projection ask for.
    pub metadata: MetaSet,
}

impl Parsed {
    pub(crate) fn new(
        ctx: &QueryContext,
        filter: Doc<'_>,
        sort: Doc<'_>,
        projection: Doc<'_>,
    ) -> Result<Parsed> {
        let filter = Filter::parse_query(filter, ctx)?;
        let given = filter.metadata();
        let behind;
        let ctx = if given.is_empty() {
            ctx
        } else {
            behind = ctx.clone().with_metadata(given);
            &behind
        };
        let natural = natural(sort);
        if sort.count() > 1 && sort.iter().any(|e| e.name() == "$natural") {
            return Err(Error::bad_value(
                "Cannot include '$natural' in compound sort",
            ));
        }
        let sort = if sort.is_empty() || natural.is_some() {
            None
        } else {
            Some((SortSpec::parse(sort, ctx)?, sort.to_buf()))
        };
        let projection = if projection.is_empty() {
            None
        } else {
            Some(Projection::parse(projection, Some(&filter), ctx)?)
        };
        Ok(Parsed {
            filter,
            sort,
            natural,
            projection,
            metadata: ctx.metadata.asked(),
        })
    }
}

/// `Simple` if the projection has only numbers and booleans on top-level names.
pub(crate) fn projection_kind(source: Doc<'_>) -> ProjectionKind {
    let simple = source.iter().all(|e| {
        !e.name().contains(['.', '$'])
            && (e.value().is_number() || matches!(e.value(), Value::Bool(_)))
    });
    if simple {
        ProjectionKind::Simple
    } else {
        ProjectionKind::Default
    }
}
