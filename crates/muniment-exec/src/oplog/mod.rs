//! Collections that are generated when they are read: the views that MongoDB gives of its log,
//! above all `local.oplog.rs`.
//!
//! Each is one entry of [`ALL`]: a name, and how a stream of its documents is opened, from a place
//! on or backwards from its end. A name is looked up here only if no stored collection has it, so
//! other collections pay nothing for these. Find, count, distinct and pipelines read them as they
//! read views. No client can write to them.

pub(crate) mod figures;
pub(crate) mod open;
pub(crate) mod read;
pub(crate) mod render;
pub(crate) mod undone;

pub use render::id_doc;

use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::hint::{Hint, natural};
use crate::run::current::CurrentOp;
use bytes::Bytes;
pub use figures::GeneratedFigures;
use muniment_query::{DocStream, Interrupt};
use muniment_storage::{SessionHead, SessionKey, Store, Timestamp};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, doc, number};
pub use undone::Undone;

use read::{Backward, Forward, Show, Span};
use std::sync::Arc;

/// The name of the oplog.
pub const OPLOG: &str = "local.oplog.rs";

/// The source of a generated collection.
pub(super) enum Made {
    /// The entries of the log.
    Log(Shown),
    /// Data that is stored beside the collections.
    Table(fn(&Database, Arc<dyn Interrupt>) -> Result<Rows>),
}

/// The documents of a table, from either end.
type Rows = Box<dyn DoubleEndedIterator<Item = Result<Bytes>> + Send>;

/// The way in which entries of the log are shown.
pub(super) struct Shown {
    /// The path of their timestamps.
    path: &'static str,
    render: read::Render,
    /// The time before which entries have expired.
    since_ms: fn(&Database, &OpContext) -> i64,
}

impl Shown {
    /// The same with the present values.
    pub(super) fn now(&self, database: &Database, op: &OpContext) -> Show {
        Show {
            render: self.render,
            since_ms: (self.since_ms)(database, op),
        }
    }
}

/// A generated collection.
pub struct Generated {
    namespace: &'static str,
    pub(super) source: Made,
}

/// All generated collections, sorted.
static ALL: &[Generated] = &[
    Generated {
        namespace: "config.image_collection",
        source: Made::Table(images),
    },
    Generated {
        namespace: "config.system.preimages",
        source: Made::Log(Shown {
            path: "_id.ts",
            render: render::images,
            since_ms: |database, op| database.changes.images_since(op.now_ms()),
        }),
    },
    Generated {
        namespace: "config.transactions",
        source: Made::Table(transactions),
    },
    Generated {
        namespace: OPLOG,
        source: Made::Log(Shown {
            path: "ts",
            render: |entry| render::entry(entry).into_iter().collect(),
            since_ms: |_, _| i64::MIN,
        }),
    },
    Generated {
        namespace: "local.replset.election",
        source: Made::Table(|database, _| local(database, "local.replset.election")),
    },
    Generated {
        namespace: "local.replset.oplogWindow",
        source: Made::Table(|database, _| local(database, "local.replset.oplogWindow")),
    },
    Generated {
        namespace: "local.system.replset",
        source: Made::Table(|database, _| local(database, "local.system.replset")),
    },
];

/// The documents that only this server has. A member of a set cannot have them in the log, which is
/// the same on all members.
fn local(database: &Database, namespace: &str) -> Result<Rows> {
    let all = database.figures.get().map(|f| f.local(namespace));
    let all = all.unwrap_or_default().into_iter();
    Ok(Box::new(all.map(|d| Ok(Bytes::from(d.into_bytes())))))
}

/// The generated collection with this name.
pub(crate) fn generated(namespace: &str) -> Option<&'static Generated> {
    ALL.iter().find(|g| g.namespace == namespace)
}

/// True if a collection with this name is generated when it is read.
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

/// Refuses a write to a generated collection.
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

fn transactions(database: &Database, op: Arc<dyn Interrupt>) -> Result<Rows> {
    let mut terms = database.store.terms()?;
    of_sessions(database, op, move |_, key, head, at| {
        let term = terms.of(at)?;
        Ok(Some(render::transaction(key, head.record(), at, term)))
    })
}

fn images(database: &Database, op: Arc<dyn Interrupt>) -> Result<Rows> {
    of_sessions(database, op, |store, key, head, at| {
        let newest = store.newest_statement(key, head)?;
        let number = head.record().number;
        Ok(newest.and_then(|newest| render::image(key, number, &newest, at)))
    })
}

/// A document for each session. Each is made when its turn comes, because an image may have 16 MiB.
/// Sessions that are written or forgotten meanwhile are shown as they are by then.
fn of_sessions(
    database: &Database,
    op: Arc<dyn Interrupt>,
    mut render: impl FnMut(&Store, &SessionKey, &SessionHead, Timestamp) -> Result<Option<Bytes>>
    + Send
    + 'static,
) -> Result<Rows> {
    let store = Arc::clone(&database.store);
    let keys = store.session_keys(None, usize::MAX, &*op)?;
    let mut row = move |key: SessionKey| {
        // Most sessions may have nothing to show, so the loop asks before each.
        op.check()?;
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
    op: Arc<CurrentOp>,
    backward: bool,
}

impl DocStream for Table {
    fn next(&mut self) -> Result<Option<Bytes>> {
        self.op.check()?;
        match self.backward {
            true => self.rows.next_back(),
            false => self.rows.next(),
        }
        .transpose()
    }
}

/// The part of a collection that is read, and the end from which.
#[derive(Clone, Copy)]
pub(super) struct Order {
    pub span: Span,
    pub backward: bool,
}

impl Generated {
    /// The path of its timestamps; empty if it has none.
    pub(super) fn path(&self) -> &'static str {
        match &self.source {
            Made::Log(shown) => shown.path,
            Made::Table(_) => "",
        }
    }

    /// `Some` if the sort is the collection's own order (false) or the reverse (true).
    pub(super) fn order_of(&self, sort: Doc<'_>) -> Option<bool> {
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
    /// 2 BadValue for a hint of an index.
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

    /// True if the collection is shown with an index on `_id`.
    fn has_id_index(&self) -> bool {
        matches!(self.source, Made::Table(_))
    }

    /// The plan that explain shows for a read.
    pub(crate) fn plan(&self, filter: Doc<'_>, backward: bool) -> DocBuf {
        let mut d = doc! { "stage": "COLLSCAN" };
        if !filter.is_empty() {
            d.append("filter", filter);
        }
        d.append("direction", if backward { "backward" } else { "forward" });
        if let Made::Log(shown) = &self.source {
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

    /// True if a sort or a hint asks to read backwards.
    ///
    /// # Errors
    /// 2 BadValue for a hint of an index.
    pub(crate) fn is_backward(&self, sort: Doc<'_>, hint: Option<Hint<'_>>) -> Result<bool> {
        let sorted = natural(sort).or_else(|| self.order_of(sort));
        Ok(sorted.or(self.hinted(hint)?).unwrap_or(false))
    }

    /// Opens a stream of the documents in an order.
    pub(super) fn open(
        &self,
        database: &Database,
        op: &Arc<CurrentOp>,
        order: Order,
    ) -> Result<Box<dyn DocStream>> {
        let Order { span, backward } = order;
        let store = &database.store;
        Ok(match &self.source {
            Made::Table(read) => Box::new(Table {
                rows: read(database, op.clone())?,
                op: op.clone(),
                backward,
            }),
            Made::Log(shown) => {
                let show = shown.now(database, &op.get());
                match backward {
                    true => Box::new(Backward::open(store, op, span, show)?),
                    false => Box::new(Forward::open(store, op, span, show)?),
                }
            }
        })
    }

    /// The part that a query with `filter` has to read, up to what it may see.
    pub(super) fn span(&self, database: &Database, op: &OpContext, filter: Doc<'_>) -> Span {
        let newest = op.pinned().map(|view| view.timestamp());
        let seen = Span {
            until: newest.unwrap_or_else(|| database.store.visible()),
            ..Span::ALL
        };
        seen.within(filter, self.path())
    }

    /// The order that the first stages of a pipeline ask for, and the pipeline without the sort
    /// that this makes unnecessary.
    pub(super) fn ordered(
        &self,
        database: &Database,
        op: &OpContext,
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
        let span = self.span(database, op, filter);
        Ok((Order { span, backward }, rest))
    }
}
