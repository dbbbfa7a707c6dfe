//! What a name stands for: the one look-up that every reading and writing verb begins with.
//!
//! A name that a stored collection has is that collection's alone, and finding it is one look in the
//! catalog. Only a name that none has is looked for elsewhere: among what is made when it is read,
//! the buckets of time-series collections, and the views.

use crate::context::query_context;
use crate::operation::OpContext;
use crate::oplog::{Generated, generated};
use crate::timeseries::BUCKETS;
use crate::view::{self, Resolved, View, check_collation, not_a_collection};
use muniment_query::QueryContext;
use muniment_storage::{Collection, Store};
use muniment_value::{ArrayBuf, Code, Collation, Doc, Error, Result};
use std::sync::Arc;

/// What a name stands for.
#[derive(Clone)]
pub enum Source {
    /// A stored collection; that of a time series is one.
    Collection(Arc<Collection>),
    /// A view.
    View(View),
    /// The buckets of this time-series collection, `system.buckets.NAME`: they are made of its
    /// measurements when they are read.
    Buckets(Arc<Collection>),
    /// A collection that is made when it is read, of the log or of what is stored beside it.
    Generated(&'static Generated),
    /// Nothing has the name.
    Absent,
}

impl Source {
    /// What has the name for an operation, which may see an older state.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable if the operation reads at an older view, which may know a collection by
    /// the name; 175 QueryPlanKilled if it is bound to another one; 301 DataCorruptionDetected if the
    /// collection, or that of the views, is damaged; I/O errors.
    pub(crate) fn resolve(store: &Store, op: &OpContext, namespace: &str) -> Result<Source> {
        match stored(store, op, namespace)? {
            Some(collection) => Ok(Source::Collection(collection)),
            None => Source::beside(store, namespace),
        }
    }

    /// What has the name now, independent of any operation.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected for a view while the collection of views is closed; I/O errors.
    pub(crate) fn now(store: &Store, namespace: &str) -> Result<Source> {
        match store.collection(namespace) {
            Some(collection) => Ok(Source::Collection(collection)),
            None => Source::beside(store, namespace),
        }
    }

    /// What has a name that no stored collection has.
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

    /// The collection that holds the documents: the time series of buckets, too.
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

    /// The time-series collection whose buckets have the name.
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

    /// True for a view and for what MongoDB has as one, a time-series collection.
    pub fn is_view_like(&self) -> bool {
        match self {
            Source::View(_) => true,
            Source::Collection(c) => c.is_time_series(),
            Source::Buckets(_) | Source::Generated(_) | Source::Absent => false,
        }
    }

    /// How a command on the name compares texts: as it says, else as what it reads does.
    ///
    /// # Errors
    /// 167 OptionNotSupportedOnView for another collation than a view's.
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

    /// What a command on the name is parsed with: its `let`, and how its texts compare.
    ///
    /// # Errors
    /// Those of [`Source::collation`], and what evaluating the variables raises.
    pub(crate) fn context(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        let_: Doc<'_>,
        given: Option<&Collation>,
    ) -> Result<QueryContext> {
        query_context(op, let_, self.collation(namespace, given)?)
    }

    /// What a view comes down to; `None` for what is none. Buckets are read as views are, and so is
    /// what is made when it is read: theirs is one of themselves.
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

    /// What lies below all views.
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

    /// Refuses what no client may change by that name.
    ///
    /// # Errors
    /// 166 CommandNotSupportedOnView for a view.
    pub fn refuse_view(&self, namespace: &str) -> Result<()> {
        match self {
            Source::View(_) => Err(not_a_collection(namespace)),
            _ => Ok(()),
        }
    }

    /// The same, also for a time-series collection, which MongoDB takes for a view.
    ///
    /// # Errors
    /// 166 CommandNotSupportedOnView.
    pub fn refuse_view_like(&self, namespace: &str) -> Result<()> {
        match self.is_view_like() {
            true => Err(not_a_collection(namespace)),
            false => Ok(()),
        }
    }

    /// Refuses to change what is made when it is read.
    ///
    /// # Errors
    /// 73 InvalidNamespace.
    pub fn refuse_generated(&self, namespace: &str) -> Result<()> {
        match self {
            Source::Generated(_) => crate::oplog::refuse_generated(namespace),
            _ => Ok(()),
        }
    }

    /// Refuses a write that is not an insert of buckets: only stored documents can be changed.
    ///
    /// # Errors
    /// 115 CommandNotSupported for buckets, which are made of measurements; 166 for a view; 73 for what
    /// is made when it is read.
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

/// The time-series collection whose buckets this namespace names, `db.system.buckets.NAME`.
fn series_of(store: &Store, namespace: &str) -> Option<Arc<Collection>> {
    let (db, name) = namespace.split_once('.')?;
    let series = name.strip_prefix(BUCKETS)?;
    let found = store.collection(&format!("{db}.{series}"));
    found.filter(|c| c.is_time_series())
}

/// The stored collection of this name, if there is one in what the operation sees.
///
/// # Errors
/// Those of [`Source::resolve`].
pub(crate) fn stored(
    store: &Store,
    op: &OpContext,
    namespace: &str,
) -> Result<Option<Arc<Collection>>> {
    let found = named(store, op, namespace)?;
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

/// The collection of this name, whichever it is.
fn named(store: &Store, op: &OpContext, namespace: &str) -> Result<Option<Arc<Collection>>> {
    let at = match (op.transaction(), op.pinned()) {
        (Some(transaction), _) => transaction.timestamp(),
        (None, Some(view)) => view.timestamp(),
        (None, None) => return Ok(store.collection(namespace)),
    };
    let found = store.collection_at(namespace, at)?;
    if found.is_none()
        && let Some((db, name)) = namespace.split_once('.')
    {
        // Of what else it may have been the name.
        store.collection_at(&format!("{db}.system.views"), at)?;
        if let Some(series) = name.strip_prefix(BUCKETS) {
            store.collection_at(&format!("{db}.{series}"), at)?;
        }
    }
    Ok(found)
}
