//! Change streams: pipelines over the log.
//!
//! `feed` reads the end of the log once for all streams and wakes those whom something may concern;
//! `scope` says what a stream watches; `event` makes events of operations; `token` tells where a
//! stream stands; `stream` is the source that a pipeline's other stages run on; `split` takes large
//! events apart.
//!
//! Invariants: a stream gives every event behind its place once, in the log's order, and only what is
//! kept (see `feed`); who begins behind a token gets what follows its event, also after a restart;
//! where the log does not reach back so far the stream fails (286) and never leaves anything out.

mod event;
pub(crate) mod feed;
pub(crate) mod scope;
mod split;
mod stream;
mod token;

use crate::aggregate::AggregateRequest;
use crate::cursor::{CurrentOp, Cursor};
use crate::database::Database;
use crate::host::Link;
use crate::operation::OpContext;
use feed::Feed;
use muniment_query::stage::change_stream::{ChangeStreamSpec, SPLIT, check_behind};
use muniment_query::{Clocks, Pipeline, QueryContext};
use muniment_value::{ArrayBuf, Code, Elem, Error, Result};
use scope::Scope;
use split::Splitter;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use stream::{ChangeStream, Start, Wanted};

/// What all change streams of a server share.
#[derive(Default)]
pub(crate) struct Changes {
    feed: Arc<Feed>,
    /// For how long documents as they were before are shown, in seconds; 0: as long as the log has
    /// them.
    image_seconds: Arc<AtomicI64>,
    /// Entries that streams have read from the log each for itself, being further back than what all
    /// share.
    read_by_itself: AtomicU64,
}

impl Changes {
    /// Entries that were read from the log: once for all streams, and by streams for themselves.
    #[cfg(test)]
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.feed.entries_read(), self.read_by_itself.load(Relaxed))
    }

    /// Documents as they were before are shown of entries that are not older than this, in
    /// milliseconds since 1970.
    pub(crate) fn images_since(&self, now_ms: i64) -> i64 {
        match self.image_seconds.load(Relaxed) {
            0 => 0,
            seconds => now_ms.saturating_sub(seconds.saturating_mul(1000)),
        }
    }
}

impl Database {
    /// `changeStreamOptions.preAndPostImages.expireAfterSeconds`: for how long documents as they were
    /// before are shown, in seconds; 0: as long as the log has them. To be set by its owner.
    pub fn image_seconds(&self) -> Arc<AtomicI64> {
        self.changes.image_seconds.clone()
    }

    /// Opens a pipeline that begins with `$changeStream`.
    ///
    /// # Errors
    /// The stage's own; 20 IllegalOperation for a stage that may not stand behind it; 73
    /// InvalidNamespace and 72 InvalidOptions for what cannot be watched; 166 for a view; 286
    /// ChangeStreamHistoryLost when the log does not reach back to where it is to begin.
    pub(crate) fn open_changes(
        &self,
        op: &Arc<OpContext>,
        request: &AggregateRequest<'_>,
        stage: Elem<'_>,
    ) -> Result<Cursor> {
        let spec = ChangeStreamSpec::parse(stage)?;
        check_behind(request.pipeline)?;
        let scope = self.watched(request, &spec)?;
        let collation = request.collation.clone().unwrap_or_default();
        let ctx = QueryContext {
            db: request.db.to_string(),
            collection: request.collection.unwrap_or_default().to_string(),
            ..self
                .query_context(op, request.let_, collation)?
                .with_clocks(Clocks::NowAndCluster)
        };
        let mut stages = ArrayBuf::new();
        let mut splits = false;
        for v in request.pipeline.values().skip(1) {
            let first = v.as_doc().and_then(|d| d.first());
            match first.filter(|e| e.name() == SPLIT) {
                Some(e) if e.value().as_doc().is_some_and(|d| d.is_empty()) => splits = true,
                Some(_) => {
                    return Err(Error::location(
                        7_182_800,
                        format!("{SPLIT} spec should be an empty object"),
                    ));
                }
                None => drop(stages.push(v)),
            }
        }
        let pipeline = Pipeline::parse(stages.as_doc(), &ctx)?;
        let current = CurrentOp::new(op);
        let link = Link::new(self, &current, request)?;
        let newest = match self.store.majority() {
            // It would wait for ever.
            Some(majority) if self.store.is_kept() => majority.at,
            _ => self.store.visible(),
        };
        let start = Start::of(&spec, newest)?;
        if spec.resume_after.or(spec.start_after).is_none() && spec.start_at.is_none() {
            // Its first token says this place. Where a power cut or an election takes back what is
            // before it, what is written later would lie there too, and nobody who resumes would be
            // told.
            match self.store.majority() {
                None => self.store.sync()?,
                Some(_) => self.store.wait_for_majority(start.position(), &**op)?,
            }
        }
        if start.fragments > 0 && !splits {
            return Err(Error::new(
                Code::ChangeStreamFatalError,
                format!(
                    "cannot resume stream; the resume token is of a part of an event, which only \
                     a stream with {SPLIT} has"
                ),
            ));
        }
        // By another collation other texts may be equal.
        let wanted = match &request.collation {
            None => Wanted::of(stages.as_doc()),
            Some(_) => Wanted::default(),
        };
        let source = ChangeStream::new(&link.engine, &current, scope, &spec, &start, wanted)?;
        let state = source.tail();
        let stream = pipeline.open(Box::new(source), &link.runtime()?)?;
        let stream = match splits {
            true => Box::new(Splitter::new(stream, state.clone(), start.fragments)),
            false => stream,
        };
        op.watches_changes();
        Ok(Cursor::of_stream(&request.namespace(), None, stream, current).with_tail(state))
    }

    /// What a stream watches.
    fn watched(
        &self,
        request: &AggregateRequest<'_>,
        spec: &ChangeStreamSpec<'_>,
    ) -> Result<Scope> {
        let (db, collection) = (request.db, request.collection);
        let refused = |what: &str| {
            Err(Error::new(
                Code::InvalidNamespace,
                format!("$changeStream may not be opened on the internal {what}"),
            ))
        };
        if spec.all {
            if db != "admin" || collection.is_some() {
                return Err(Error::new(
                    Code::InvalidOptions,
                    format!(
                        "A $changeStream with 'allChangesForCluster:true' may only be opened on \
                         the 'admin' database, and with no collection name; found {}",
                        request.namespace()
                    ),
                ));
            }
            return Ok(Scope::Cluster);
        }
        if matches!(db, "admin" | "config" | "local") {
            return refused(&format!("{db} database"));
        }
        if let Some(c) = collection {
            let namespace = format!("{db}.{c}");
            if c.starts_with("system.") {
                return refused(&format!("{namespace} collection"));
            }
            if self.view(&namespace)?.is_some() {
                return Err(Error::new(
                    Code::CommandNotSupportedOnView,
                    format!("$changeStream is not supported on views: {namespace}"),
                ));
            }
            let series = self.store.collection(&namespace);
            if series.is_some_and(|c| c.is_time_series()) {
                return Err(Error::new(
                    Code::CommandNotSupportedOnView,
                    format!(
                        "$changeStream is not supported on time-series collections: {namespace}"
                    ),
                ));
            }
        }
        Ok(Scope::of(db, collection, false))
    }
}
