//! Resolves names. Every verb that reads or writes begins with this look-up.
//!
//! If a stored collection has the name, nothing else can have it, and one look-up in the catalog
//! finds it. Only other names are searched for elsewhere: among the collections that are generated
//! when they are read, the buckets of time-series collections, and the views.

use crate::context::query_context;
use crate::moved_databases::check_database;
use crate::operation::OpContext;
use crate::oplog::{Generated, generated};
use crate::timeseries::BUCKETS;
use crate::view::{self, Resolved, View, check_collation, not_a_collection};
use muniment_query::QueryContext;
use muniment_storage::{Collection, Store};
use muniment_value::{ArrayBuf, Code, Collation, Doc, Error, Result};
use std::sync::Arc;

/// The thing that a name stands for.
#[derive(Clone)]
pub enum Source {
    /// A stored collection, which may be a time series.
    Collection(Arc<Collection>),
    /// A view.
    View(View),
    /// The buckets of this time-series collection, `system.buckets.NAME`. They are made from its
    /// measurements when they are read.
    Buckets(Arc<Collection>),
    /// A collection that is generated when it is read, from the log or from what is stored beside
    /// it.
    Generated(&'static Generated),
    /// Nothing has the name.
    Absent,
}

impl Source {
    /// Resolves a name for an operation, which may see an older state.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable if the operation reads an older view in which a collection may have
    /// had the name; 13 for one that the operation's user has no right to; 175 QueryPlanKilled if the
    /// operation is bound to another collection; 13388 StaleConfig if a router expects another one; 301
    /// DataCorruptionDetected if the collection, or that of the views, is damaged; I/O errors.
    pub(crate) fn resolve(store: &Store, op: &OpContext, namespace: &str) -> Result<Source> {
        let source = match stored(store, op, namespace)? {
            Some(collection) => Source::Collection(collection),
            None => Source::beside(store, namespace)?,
        };
        match &source {
            Source::View(_) => op.reads_view(),
            // A router has to know of a series that is divided to find all of its buckets.
            Source::Buckets(series) => op.check_placement(&series.name(), Some(series))?,
            Source::Collection(_) | Source::Generated(_) | Source::Absent => {}
        }
        Ok(source)
    }

    /// Resolves a name as of now, independent of any operation.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected for a view while the collection of views is closed; I/O errors.
    pub(crate) fn now(store: &Store, namespace: &str) -> Result<Source> {
        match store.collection(namespace) {
            Some(collection) => Ok(Source::Collection(collection)),
            None => Source::beside(store, namespace),
        }
    }

    /// Resolves a name that no stored collection has.
    fn beside(store: &Store, namespace: &str) -> Result<Source> {
        if let Some(generated) = generated(namespace) {
            return Ok(Source::Generated(generated));
        }
        if let Some(series) = series_of(store, namespace) {
            return Ok(Source::Buckets(series));
        }
        let view = view::find(store, namespace)?;
        Ok(view.map_or(Source::Absent, Source::View))
    }

    /// The collection that stores the documents. For buckets that is the time series.
    pub fn stored(&self) -> Option<&Arc<Collection>> {
        match self {
            Source::Collection(c) | Source::Buckets(c) => Some(c),
            Source::View(_) | Source::Generated(_) | Source::Absent => None,
        }
    }

    /// The stored collection that has the name itself.
    pub(crate) fn collection(&self) -> Option<&Arc<Collection>> {
        match self {
            Source::Collection(c) => Some(c),
            _ => None,
        }
    }

    /// The time-series collection of which these are the buckets.
    pub fn buckets(&self) -> Option<&Arc<Collection>> {
        match self {
            Source::Buckets(c) => Some(c),
            _ => None,
        }
    }

    /// True for a time-series collection and for its buckets.
    pub(crate) fn is_series(&self) -> bool {
        self.stored().is_some_and(|c| c.is_time_series())
    }

    /// True for a view, and for a time-series collection, which is a view in MongoDB.
    pub fn is_view_like(&self) -> bool {
        match self {
            Source::View(_) => true,
            Source::Collection(c) => c.is_time_series(),
            Source::Buckets(_) | Source::Generated(_) | Source::Absent => false,
        }
    }

    /// The collation of a command on the name: its own, or else that of what it reads.
    ///
    /// # Errors
    /// 167 OptionNotSupportedOnView if it differs from the collation of a view.
    pub fn collation(&self, namespace: &str, given: Option<&Collation>) -> Result<Collation> {
        match (self, given) {
            (Source::Collection(c), given) => Ok(given.unwrap_or(c.collation()).clone()),
            (Source::View(view), Some(given)) => {
                check_collation(&view.collation, namespace, given)?;
                Ok(given.clone())
            }
            (Source::View(view), None) => Ok(view.collation.clone()),
            (_, given) => Ok(given.cloned().unwrap_or_default()),
        }
    }

    /// The context with which a command on the name is parsed: its `let` and its collation.
    ///
    /// # Errors
    /// Those of [`Source::collation`]; the errors of evaluating the variables.
    pub(crate) fn context(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        let_: Doc<'_>,
        given: Option<&Collation>,
    ) -> Result<QueryContext> {
        query_context(op, let_, self.collation(namespace, given)?)
    }

    /// The collection and the stages that a view consists of. Buckets and generated collections are
    /// read like views, so they count as views of themselves without stages. `None` for anything
    /// else.
    ///
    /// # Errors
    /// 165 ViewDepthLimitExceeded, 195 ViewPipelineMaxSizeExceeded.
    pub(crate) fn as_view(&self, store: &Store, namespace: &str) -> Result<Option<Resolved>> {
        let itself = |collation| Resolved {
            namespace: namespace.to_string(),
            pipeline: ArrayBuf::new(),
            collation,
        };
        Ok(match self {
            Source::View(view) => Some(view::resolve(store, namespace, view)?),
            Source::Buckets(series) => Some(itself(series.collation().clone())),
            Source::Generated(_) => Some(itself(Collation::default())),
            Source::Collection(_) | Source::Absent => None,
        })
    }

    /// Follows views down to the source below them.
    ///
    /// # Errors
    /// Those of [`Source::as_view`].
    pub(crate) fn below_views(self, store: &Store, namespace: &str) -> Result<Source> {
        match self {
            Source::View(view) => {
                let below = view::resolve(store, namespace, &view)?;
                Source::now(store, &below.namespace)
            }
            other => Ok(other),
        }
    }

    /// Refuses a view, for a command that changes a collection.
    ///
    /// # Errors
    /// 166 CommandNotSupportedOnView.
    pub fn refuse_view(&self, namespace: &str) -> Result<()> {
        match self {
            Source::View(_) => Err(not_a_collection(namespace)),
            _ => Ok(()),
        }
    }

    /// The same, and also refuses a time-series collection, which MongoDB treats as a view.
    ///
    /// # Errors
    /// 166 CommandNotSupportedOnView.
    pub fn refuse_view_like(&self, namespace: &str) -> Result<()> {
        match self.is_view_like() {
            true => Err(not_a_collection(namespace)),
            false => Ok(()),
        }
    }

    /// Refuses a generated collection, for a command that changes a collection.
    ///
    /// # Errors
    /// 73 InvalidNamespace.
    pub fn refuse_generated(&self, namespace: &str) -> Result<()> {
        match self {
            Source::Generated(_) => crate::oplog::refuse_generated(namespace),
            _ => Ok(()),
        }
    }

    /// Refuses any write other than an insert of buckets, unless the name stands for a stored
    /// collection or nothing.
    ///
    /// # Errors
    /// 115 CommandNotSupported for buckets, which are made from measurements; 166 for a view; 73
    /// for a generated collection.
    pub(crate) fn refuse_write(&self, namespace: &str) -> Result<()> {
        self.refuse_generated(namespace)?;
        match self {
            Source::Buckets(c) => Err(Error::new(
                Code::CommandNotSupported,
                format!(
                    "The buckets {namespace} are made of the measurements of {}: they can be read \
                     and inserted; change the measurements",
                    c.namespace()
                ),
            )),
            other => other.refuse_view(namespace),
        }
    }
}

/// The time-series collection whose buckets have this name, `db.system.buckets.NAME`.
pub fn series_of(store: &Store, namespace: &str) -> Option<Arc<Collection>> {
    let (db, name) = namespace.split_once('.')?;
    let series = name.strip_prefix(BUCKETS)?;
    let found = store.collection(&format!("{db}.{series}"));
    found.filter(|c| c.is_time_series())
}

/// The stored collection with this name, if there is one in the state that the operation sees.
///
/// # Errors
/// Those of [`Source::resolve`].
pub(crate) fn stored(
    store: &Store,
    op: &OpContext,
    namespace: &str,
) -> Result<Option<Arc<Collection>>> {
    op.check_opens(namespace)?;
    let found = named(store, op, namespace)?;
    op.check_placement(namespace, found.as_deref())?;
    // The buckets of a series that is divided are on its shards, wherever the database is.
    let divided = |series: Arc<Collection>| series.placement().is_some();
    if found.is_none() && !series_of(store, namespace).is_some_and(divided) {
        check_database(store, op, namespace)?;
    }
    if !op.may_mean(found.as_ref().map(|c| c.uuid())) {
        return Err(Error::new(
            Code::QueryPlanKilled,
            format!("collection renamed or dropped: {namespace}"),
        ));
    }
    if let Some(found) = &found {
        found.check_usable()?;
    }
    Ok(found)
}

/// The collection with this name, whether or not the operation is bound to another one.
fn named(store: &Store, op: &OpContext, namespace: &str) -> Result<Option<Arc<Collection>>> {
    let at = match (op.transaction(), op.pinned()) {
        (Some(transaction), _) => transaction.timestamp(),
        (None, Some(view)) => view.timestamp(),
        (None, None) => return Ok(store.collection(namespace)),
    };
    // A shard may have got its first range after the time at which all shards are asked what they owned.
    if store
        .collection(namespace)
        .is_some_and(|c| op.is_later_than(&c, at))
    {
        return Ok(None);
    }
    let found = store.collection_at(namespace, at)?;
    if found.is_none()
        && let Some((db, name)) = namespace.split_once('.')
    {
        // In the older view the name may have been that of a view or of buckets, so these look-ups
        // fail if that cannot be known.
        store.collection_at(&format!("{db}.system.views"), at)?;
        if let Some(series) = name.strip_prefix(BUCKETS) {
            store.collection_at(&format!("{db}.{series}"), at)?;
        }
    }
    Ok(found)
}
