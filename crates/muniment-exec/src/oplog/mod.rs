//! Collections that are made when they are read: MongoDB's views of its log, `local.oplog.rs` first of
//! all.
//!
//! Each is one line of [`ALL`]: a name, and how a stream of its documents is opened, from a place on
//! or from its end back. A name is looked up here only where no stored collection has it, so nothing
//! else pays for them; find, count, distinct and pipelines read them as they read views. Nobody
//! writes them.

mod figures;
pub(crate) mod read;
pub(crate) mod render;
mod undone;

use crate::aggregate::AggregateRequest;
use crate::cursor::{CurrentOp, Cursor, CursorFlags};
use crate::database::Database;
use crate::find::{FindRequest, Hint, Parsed};
use crate::host::Link;
use crate::operation::OpContext;
use crate::plan::candidate::natural;
use bytes::Bytes;
pub use figures::GeneratedFigures;
use muniment_query::{DocStream, Filter, Pipeline, Projection, QueryContext, running};
use muniment_storage::{SessionHead, SessionKey, Store, Timestamp};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, doc, number};
pub use render::session_doc;
pub use undone::Undone;

use read::{Backward, Follower, Forward, Show, Span};
use std::sync::Arc;

/// The oplog.
pub const OPLOG: &str = "local.oplog.rs";

/// What a generated collection is made of.
enum Source {
    /// The log's entries.
    Log(Shown),
    /// What is stored beside the collections.
    Table(fn(&Database) -> Result<Rows>),
}

/// The documents of a table, from either end.
type Rows = Box<dyn DoubleEndedIterator<Item = Result<Bytes>> + Send>;

/// How entries of the log are shown.
struct Shown {
    /// Where their timestamps stand.
    path: &'static str,
    render: read::Render,
    /// Entries that are older have expired.
    since_ms: fn(&Database, &OpContext) -> i64,
}

impl Shown {
    /// What it comes to now.
    fn now(&self, database: &Database, op: &OpContext) -> Show {
        Show {
            render: self.render,
            since_ms: (self.since_ms)(database, op),
        }
    }
}

/// A generated collection.
pub(crate) struct Generated {
    namespace: &'static str,
    source: Source,
}

/// All of them, sorted.
static ALL: &[Generated] = &[
    Generated {
        namespace: "config.image_collection",
        source: Source::Table(images),
    },
    Generated {
        namespace: "config.system.preimages",
        source: Source::Log(Shown {
            path: "_id.ts",
            render: render::images,
            since_ms: |database, op| database.changes.images_since(op.now_ms()),
        }),
    },
    Generated {
        namespace: "config.transactions",
        source: Source::Table(transactions),
    },
    Generated {
        namespace: OPLOG,
        source: Source::Log(Shown {
            path: "ts",
            render: |entry| render::entry(entry).into_iter().collect(),
            since_ms: |_, _| i64::MIN,
        }),
    },
    Generated {
        namespace: "local.replset.election",
        source: Source::Table(|database| local(database, "local.replset.election")),
    },
    Generated {
        namespace: "local.replset.oplogWindow",
        source: Source::Table(|database| local(database, "local.replset.oplogWindow")),
    },
    Generated {
        namespace: "local.system.replset",
        source: Source::Table(|database| local(database, "local.system.replset")),
    },
];

/// What the server has for itself alone: a member of a set has it nowhere in the log, which is the
/// same on all members.
fn local(database: &Database, namespace: &str) -> Result<Rows> {
    let all = database.figures.get().map(|f| f.local(namespace));
    let all = all.unwrap_or_default().into_iter();
    Ok(Box::new(all.map(|d| Ok(Bytes::from(d.into_bytes())))))
}

/// The generated collection of this name.
pub(crate) fn generated(namespace: &str) -> Option<&'static Generated> {
    ALL.iter().find(|g| g.namespace == namespace)
}

/// True for the name of a collection that is made when it is read.
pub fn is_generated(namespace: &str) -> bool {
    generated(namespace).is_some()
}

/// The names of the generated collections of a database, sorted.
pub fn generated_in(db: &str) -> impl Iterator<Item = &'static str> {
    let of = |g: &'static Generated| Some((g.namespace.split_once('.')?, g));
    let all = ALL.iter().filter_map(of);
    all.filter(move |((d, _), _)| *d == db)
        .map(|((_, name), _)| name)
}

/// 73 for a write to a collection that is made when it is read.
///
/// # Errors
/// 73 InvalidNamespace.
pub fn refuse_generated(namespace: &str) -> Result<()> {
    match is_generated(namespace) {
        true => Err(Error::new(
            Code::InvalidNamespace,
            format!("cannot write to {namespace}"),
        )),
        false => Ok(()),
    }
}

fn transactions(database: &Database) -> Result<Rows> {
    let mut terms = database.store.terms()?;
    of_sessions(database, move |_, key, head, at| {
        let term = terms.of(at)?;
        Ok(Some(render::transaction(key, head.record(), at, term)))
    })
}

fn images(database: &Database) -> Result<Rows> {
    of_sessions(database, |store, key, head, at| {
        let newest = store.newest_statement(key, head)?;
        let number = head.record().number;
        Ok(newest.and_then(|newest| render::image(key, number, &newest, at)))
    })
}

/// A document for each session, made when it is its turn: an image may have 16 MiB. What was written
/// or forgotten meanwhile is shown as it is by then.
fn of_sessions(
    database: &Database,
    mut render: impl FnMut(&Store, &SessionKey, &SessionHead, Timestamp) -> Result<Option<Bytes>>
    + Send
    + 'static,
) -> Result<Rows> {
    let store = Arc::clone(&database.store);
    let keys = store.session_keys()?;
    let mut row = move |key: SessionKey| {
        running::check()?;
        match store.session_head_at(&key)? {
            Some((head, at)) => render(&store, &key, &head, at),
            None => Ok(None),
        }
    };
    Ok(Box::new(
        keys.into_iter().filter_map(move |key| row(key).transpose()),
    ))
}

/// Documents that are made one by one, in either direction.
struct Table {
    rows: Rows,
    backward: bool,
}

impl DocStream for Table {
    fn next(&mut self) -> Result<Option<Bytes>> {
        match self.backward {
            true => self.rows.next_back(),
            false => self.rows.next(),
        }
        .transpose()
    }
}

/// How much of a collection is read, and from which end.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    span: Span,
    backward: bool,
}

impl Generated {
    /// Its path of timestamps; empty if it has none.
    fn path(&self) -> &'static str {
        match &self.source {
            Source::Log(shown) => shown.path,
            Source::Table(_) => "",
        }
    }

    /// True for a sort that is its own order, or the reverse (`true`).
    fn order_of(&self, sort: Doc<'_>) -> Option<bool> {
        let mut fields = sort.iter();
        match (fields.next(), fields.next()) {
            (Some(e), None) if e.name() == self.path() => match number::to_i64_exact(e.value()) {
                Some(1) => Some(false),
                Some(-1) => Some(true),
                _ => None,
            },
            _ => None,
        }
    }

    /// The direction that a hint asks for.
    ///
    /// # Errors
    /// 2 BadValue for one of an index.
    fn hinted(&self, hint: Option<Hint<'_>>) -> Result<Option<bool>> {
        let id = doc! { "_id": 1 };
        match hint {
            None => Ok(None),
            Some(Hint::Pattern(p)) if natural(p).is_some() => Ok(natural(p)),
            Some(Hint::Pattern(p)) if self.has_id_index() && p.as_bytes() == id.as_bytes() => {
                Ok(None)
            }
            Some(Hint::Name("_id_")) if self.has_id_index() => Ok(None),
            Some(_) => Err(Error::bad_value(format!(
                "error processing query: ns={} planner returned error :: caused by :: hint \
                 provided does not correspond to an existing index",
                self.namespace
            ))),
        }
    }

    /// True if it is shown with an index on `_id`.
    fn has_id_index(&self) -> bool {
        matches!(self.source, Source::Table(_))
    }

    /// What explain shows of reading it.
    pub(crate) fn plan(&self, filter: Doc<'_>, backward: bool) -> DocBuf {
        let mut d = doc! { "stage": "COLLSCAN" };
        if !filter.is_empty() {
            d.append("filter", filter);
        }
        d.append("direction", if backward { "backward" } else { "forward" });
        if let Source::Log(shown) = &self.source {
            let span = Span::ALL.within(filter, shown.path);
            if span.after > Span::ALL.after {
                d.append("minRecord", render::stamp(span.after.plus(1)));
            }
            if span.until < Span::ALL.until {
                d.append("maxRecord", render::stamp(span.until));
            }
        }
        d
    }

    /// The direction in which a sort or a hint has it read.
    ///
    /// # Errors
    /// 2 BadValue for a hint of an index.
    pub(crate) fn is_backward(&self, sort: Doc<'_>, hint: Option<Hint<'_>>) -> Result<bool> {
        let sorted = natural(sort).or_else(|| self.order_of(sort));
        Ok(sorted.or(self.hinted(hint)?).unwrap_or(false))
    }

    /// A stream of what an order says.
    fn open(
        &self,
        database: &Database,
        op: &Arc<CurrentOp>,
        order: Order,
    ) -> Result<Box<dyn DocStream>> {
        let Order { span, backward } = order;
        let store = &database.store;
        Ok(match &self.source {
            Source::Table(read) => Box::new(Table {
                rows: read(database)?,
                backward,
            }),
            Source::Log(shown) => {
                let show = shown.now(database, &op.get());
                match backward {
                    true => Box::new(Backward::open(store, op, span, show)?),
                    false => Box::new(Forward::open(store, op, span, show)?),
                }
            }
        })
    }

    /// The part that a query on `filter` reads, up to what it sees.
    fn span(&self, database: &Database, op: &OpContext, filter: Doc<'_>) -> Span {
        let newest = op.pinned().map(|view| view.timestamp());
        let seen = Span {
            until: newest.unwrap_or_else(|| database.store.visible()),
            ..Span::ALL
        };
        seen.within(filter, self.path())
    }

    /// What the first stages of a pipeline ask for, and the pipeline without a sort that is then done.
    fn ordered(
        &self,
        link: &Link,
        stages: Doc<'_>,
        hint: Option<Hint<'_>>,
    ) -> Result<(Order, Option<ArrayBuf>)> {
        let all: Vec<Doc<'_>> = stages.values().filter_map(|v| v.as_doc()).collect();
        let filter = all.first().and_then(|d| d.get_doc("$match"));
        let place = usize::from(filter.is_some());
        let sort = all.get(place).and_then(|d| d.get_doc("$sort"));
        let sorted = sort.and_then(|s| self.order_of(s));
        let rest = sorted.map(|_| {
            let kept = all.iter().enumerate().filter(|(n, _)| *n != place);
            kept.map(|(_, d)| *d).collect()
        });
        let backward = sorted.or(self.hinted(hint)?).unwrap_or(false);
        let filter = filter.unwrap_or(Doc::EMPTY);
        let span = self.span(&link.engine, &link.op.get(), filter);
        Ok((Order { span, backward }, rest))
    }
}

impl Link {
    /// Opens a pipeline over a generated collection.
    pub(crate) fn open_generated(
        &self,
        generated: &Generated,
        pipeline: Pipeline,
        stages: Doc<'_>,
        ctx: &QueryContext,
        hint: Option<Hint<'_>>,
    ) -> Result<Box<dyn DocStream>> {
        self.op.get().set_point_plan("COLLSCAN");
        let (order, rest) = generated.ordered(self, stages, hint)?;
        let source = generated.open(&self.engine, &self.op, order)?;
        let pipeline = match rest {
            Some(stages) => Pipeline::parse(stages.as_doc(), ctx)?,
            None => pipeline,
        };
        pipeline.open(source, &self.runtime()?)
    }
}

/// What a find does behind filter and sort. It goes on after its source had nothing more for now.
struct Window {
    source: Box<dyn DocStream>,
    filter: Filter,
    skip: u64,
    left: Option<u64>,
    projection: Option<Projection>,
    /// The filter has been applied below.
    filtered: bool,
}

impl DocStream for Window {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if self.left == Some(0) {
                return Ok(None);
            }
            let Some(bytes) = self.source.next()? else {
                return Ok(None);
            };
            let doc = Doc::new(&bytes);
            if !self.filtered && !self.filter.matches(doc)? {
                continue;
            }
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.left = self.left.map(|n| n - 1);
            let Some(projection) = &self.projection else {
                return Ok(Some(bytes));
            };
            let info = match projection.needs_match_info() {
                true => self.filter.matches_info(doc)?,
                false => None,
            };
            let mut out = Vec::with_capacity(bytes.len());
            projection.apply(doc, info.unwrap_or_default(), &mut out)?;
            return Ok(Some(Bytes::from(out)));
        }
    }
}

/// Options of a find that only stored documents have.
fn refuse_options(r: &FindRequest<'_>) -> Result<()> {
    for (given, option) in [
        (!r.min.is_empty(), "min"),
        (!r.max.is_empty(), "max"),
        (r.return_key, "returnKey"),
        (r.show_record_id, "showRecordId"),
    ] {
        if given {
            return Err(Error::bad_value(format!(
                "Option {option} needs an index or a record, which {} has not",
                r.namespace
            )));
        }
    }
    Ok(())
}

impl Database {
    /// A find on a generated collection.
    pub(crate) fn find_generated(
        &self,
        op: &Arc<OpContext>,
        generated: &Generated,
        request: &FindRequest<'_>,
        parsed: Parsed,
        flags: CursorFlags,
    ) -> Result<Cursor> {
        refuse_options(request)?;
        let backward = generated.is_backward(request.sort, request.hint)?;
        let own = generated.order_of(request.sort);
        let sort = parsed.sort.as_ref().filter(|_| own.is_none());
        op.set_point_plan("COLLSCAN");
        let current = CurrentOp::new(op);
        let mut span = generated.span(self, op, request.filter);
        let mut tail: Option<Arc<Follower>> = None;
        let source: Box<dyn DocStream> = match &generated.source {
            Source::Log(shown) if request.tailable => {
                if sort.is_some() || backward || own.is_some() {
                    return Err(Error::bad_value(
                        "error processing query: tailable cursors may only be sorted by {$natural: 1}",
                    ));
                }
                span.until = Span::ALL.within(request.filter, generated.path()).until;
                let show = shown.now(self, op);
                let stream = Forward::open(&self.store, &current, span, show)?;
                tail = Some(stream.follower());
                Box::new(stream)
            }
            Source::Table(_) if request.tailable => {
                return Err(Error::bad_value(format!(
                    "error processing query: ns={} tailable cursor requested on non capped \
                     collection",
                    request.namespace
                )));
            }
            _ => generated.open(self, &current, Order { span, backward })?,
        };
        let filtered = sort.is_some();
        let source = match sort {
            None => source,
            Some((_, by)) => {
                let stages = [doc! { "$match": request.filter }, doc! { "$sort": by }];
                let stages: ArrayBuf = stages.into_iter().collect();
                let collation = parsed.filter.collation().clone();
                let ctx = self.query_context(op, request.let_, collation)?;
                let below = AggregateRequest {
                    allow_disk_use: request.allow_disk_use,
                    ..AggregateRequest::new("", Doc::EMPTY, Doc::EMPTY)
                };
                let link = Link::new(self, &current, &below)?;
                Pipeline::parse(stages.as_doc(), &ctx)?.open(source, &link.runtime()?)?
            }
        };
        let window = Window {
            source,
            filter: parsed.filter,
            skip: request.skip,
            left: (request.limit > 0).then_some(request.limit),
            projection: parsed.projection,
            filtered,
        };
        let mut cursor = Cursor::of_stream(request.namespace, None, Box::new(window), current)
            .opened_by(crate::cursor::Opener::Find);
        if let Some(tail) = tail {
            cursor = cursor.with_tail(tail);
        }
        cursor.flags = flags;
        Ok(cursor)
    }
}
