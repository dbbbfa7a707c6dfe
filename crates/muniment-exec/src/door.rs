//! The crate's door: all that the server asks of the engine, with its errors.
//!
//! Each is a free function in the file that its body names; nothing within the crate comes through
//! this door, so that imports show what needs what.

use crate::*;
use muniment_query::Interrupt;
use muniment_storage::{Collection, CollectionOptions, Timestamp};
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, Value, ValueBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

impl Database {
    /// What a name stands for now, independent of any operation.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected for a view while the collection of views is closed; I/O errors.
    pub fn source(&self, namespace: &str) -> Result<Source> {
        Source::now(&self.store, namespace)
    }

    /// The views of a database with their full names, sorted. While their collection is closed none
    /// are known.
    ///
    /// # Errors
    /// I/O errors.
    pub fn views(&self, db: &str) -> Result<Vec<(String, View)>> {
        crate::view::all(&self.store, db)
    }

    /// Opens an aggregation.
    ///
    /// # Errors
    /// Those of [`Database::find`]; the stages' own; 73 InvalidNamespace when the first stage does not fit
    /// the target.
    pub fn aggregate(&self, op: &Arc<OpContext>, request: &AggregateRequest<'_>) -> Result<Cursor> {
        crate::verbs::aggregate::aggregate(self, op, request)
    }

    /// `changeStreamOptions.preAndPostImages.expireAfterSeconds`: for how long documents as they were
    /// before are shown, in seconds; 0: as long as the log has them. To be set by its owner.
    pub fn image_seconds(&self) -> Arc<AtomicI64> {
        crate::changes::image_seconds(self)
    }

    /// Counts. Without a filter this is the collection's exact counter; with one that an index
    /// answers alone, no document is read.
    ///
    /// # Errors
    /// Those of [`Database::find`].
    pub fn count(&self, op: &Arc<OpContext>, request: &CountRequest<'_>) -> Result<u64> {
        crate::verbs::count::count(self, op, request)
    }

    /// Creates a collection, unless a view has the name.
    ///
    /// # Errors
    /// 48 NamespaceExists and the storage's.
    pub fn create_collection(
        &self,
        namespace: &str,
        options: CollectionOptions,
        op: &OpContext,
    ) -> Result<Arc<Collection>> {
        crate::verbs::create::create_collection(self, namespace, options, op)
    }

    /// As [`Database::create_collection`], with a UUID that is given.
    ///
    /// # Errors
    /// 48 NamespaceExists, also for a UUID that another collection has, and the storage's.
    pub fn create_collection_as(
        &self,
        namespace: &str,
        options: CollectionOptions,
        uuid: Option<[u8; 16]>,
        op: &OpContext,
    ) -> Result<Arc<Collection>> {
        crate::verbs::create::create_collection_as(self, namespace, options, uuid, op)
    }

    /// Fills the first batch and appends the reply's element
    /// `cursor: {firstBatch: […], id, ns}` to the document being built in `out` (bytes only: the
    /// caller owns its length and end). The cursor is kept when it has more, unless
    /// `single_batch`. Returns the id (0: nothing kept).
    ///
    /// # Errors
    /// Those of [`Cursor::fill_batch`]; `out` is then as it was.
    pub fn first_batch(
        &self,
        op: &Arc<OpContext>,
        cursor: Cursor,
        owner: CursorOwner,
        limits: BatchLimits,
        out: &mut Vec<u8>,
    ) -> Result<i64> {
        crate::cursor::reply::first_batch(self, op, cursor, owner, limits, out)
    }

    /// `getMore`: appends `cursor: {nextBatch: […], id, ns}` to `out` and returns the id.
    ///
    /// # Errors
    /// 43 CursorNotFound "cursor id N not found"; 13 Unauthorized for another namespace or owner;
    /// 143 CursorInUse; 237 CursorKilled; what the plan raises (the cursor is gone then).
    pub fn get_more(
        &self,
        op: &Arc<OpContext>,
        request: &GetMoreRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<i64> {
        crate::cursor::reply::get_more(self, op, request, out)
    }

    /// The distinct values at a path: arrays count by their elements, numbers by value.
    ///
    /// # Errors
    /// Those of [`Database::find`]; 17217 "distinct too big, 16mb cap".
    pub fn distinct(&self, op: &Arc<OpContext>, request: &DistinctRequest<'_>) -> Result<ArrayBuf> {
        crate::verbs::distinct::distinct(self, op, request)
    }

    /// Explains: `{explainVersion, queryPlanner, executionStats}` (for an aggregation with stages
    /// on top `{explainVersion, stages: […]}`). Writes nothing. The caller adds `command`,
    /// `serverInfo`, `serverParameters` and `ok`.
    ///
    /// # Errors
    /// As the command itself.
    pub fn explain(
        &self,
        op: &Arc<OpContext>,
        what: &Explainable<'_>,
        verbosity: Verbosity,
    ) -> Result<DocBuf> {
        crate::verbs::explain::explain(self, op, what, verbosity)
    }

    /// Plans a find and opens its cursor (nothing is read yet). A collection that does not exist
    /// gives an empty cursor.
    ///
    /// # Errors
    /// What parsing filter, projection and sort raises; 2 BadValue for a bad hint
    /// ("error processing query: … planner returned error: bad hint"), for min/max without a
    /// fitting hint (51173 and its like), for a tailable cursor on a collection that is not
    /// capped.
    pub fn find(&self, op: &Arc<OpContext>, request: &FindRequest<'_>) -> Result<Cursor> {
        crate::verbs::find::find(self, op, request)
    }

    /// `$indexStats`: the uses of every index of a collection, or of the one below a view; with
    /// the server's name, where it is known.
    ///
    /// # Errors
    /// As reading a view.
    pub fn index_stats(&self, namespace: &str, host: Option<&str>) -> Result<Vec<DocBuf>> {
        crate::verbs::index_stats::index_stats(&self.store, namespace, host)
    }

    /// See [`GeneratedFigures`].
    ///
    /// # Errors
    /// I/O errors; what `op` says.
    pub fn generated_figures(
        &self,
        op: &OpContext,
        generated: &Generated,
    ) -> Result<GeneratedFigures> {
        crate::oplog::figures::generated_figures(self, op, generated)
    }

    /// The documents that entries later than `after` have made or changed, each once and as it stands
    /// now. What was deleted again is no document, and collections that are gone have none; of one that
    /// is closed there are those that can be read.
    ///
    /// # Errors
    /// 286 if the log no longer reaches back so far; 301 for what is damaged and not closed; the disk's.
    pub fn undone_by_giving_up(&self, after: Timestamp) -> Result<Undone> {
        crate::oplog::undone::undone_by_giving_up(&self.store, after)
    }

    /// `$planCacheStats`: the cached plans of a collection, or of the one below a view; with the
    /// server's name, where it is known.
    ///
    /// # Errors
    /// 50933 without such a collection; 40602 for time series, whose documents other stages make;
    /// as reading a view.
    pub fn plan_cache_stats(&self, namespace: &str, host: Option<&str>) -> Result<Vec<DocBuf>> {
        crate::verbs::plan_cache::plan_cache_stats(self, namespace, host)
    }

    /// `planCacheSetFilter`: from now on queries of this shape use no other index than
    /// `indexes` (names or key patterns). Cached plans of the collection are forgotten.
    ///
    /// # Errors
    /// 2 BadValue if there is no such collection; what parsing the query raises.
    pub fn set_index_filter(
        &self,
        namespace: &str,
        spec: &ShapeSpec<'_>,
        indexes: Vec<ValueBuf>,
    ) -> Result<()> {
        crate::verbs::plan_cache::set_index_filter(self, namespace, spec, indexes)
    }

    /// `planCacheClearFilters`: removes one filter, or all of a collection.
    ///
    /// # Errors
    /// What parsing the query raises.
    pub fn clear_index_filters(&self, namespace: &str, spec: Option<&ShapeSpec<'_>>) -> Result<()> {
        crate::verbs::plan_cache::clear_index_filters(self, namespace, spec)
    }

    /// `planCacheListFilters`: the filters of a collection, `{query, sort, projection,
    /// collation?, indexes}` each.
    pub fn list_index_filters(&self, namespace: &str) -> Vec<DocBuf> {
        crate::verbs::plan_cache::list_index_filters(self, namespace)
    }

    /// `planCacheClear` of one shape.
    ///
    /// # Errors
    /// What parsing the query raises.
    pub fn clear_cached_plan(&self, namespace: &str, spec: &ShapeSpec<'_>) -> Result<()> {
        crate::verbs::plan_cache::clear_cached_plan(self, namespace, spec)
    }

    /// Makes `db.system.views` say of the time-series collections of a database what there is. Nothing is
    /// done while it is closed.
    ///
    /// # Errors
    /// What waiting and writing raise; what was not written is written after the next change.
    pub fn settle_series(&self, op: &OpContext, db: &str) -> Result<()> {
        crate::timeseries::catalog::settle_series(self, op, db)
    }

    /// Refuses to drop the views of a database with time-series collections, unless they are closed: then
    /// they are of no use, and are made anew.
    ///
    /// # Errors
    /// 125 CommandFailed.
    pub fn refuse_to_drop_views(&self, namespace: &str) -> Result<()> {
        crate::timeseries::catalog::refuse_to_drop_views(&self.store, namespace)
    }

    /// A time-series collection with a metaField has an index on it and the time.
    ///
    /// # Errors
    /// What building it raises.
    pub fn create_series_index(
        &self,
        collection: &Arc<Collection>,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        crate::timeseries::create_series_index(&self.store, collection, interrupt)
    }

    /// Checks an update of a namespace that may be a time-series collection.
    ///
    /// # Errors
    /// Those of [`TimeSeries::check_update`].
    pub fn check_series_update(
        &self,
        namespace: &str,
        update: Value<'_>,
        multi: bool,
        upsert: bool,
    ) -> Result<()> {
        crate::timeseries::check_series_update(&self.store, namespace, update, multi, upsert)
    }

    /// See [`BucketFigures`].
    ///
    /// # Errors
    /// I/O errors.
    pub fn bucket_figures(&self, collection: &Arc<Collection>) -> Result<BucketFigures> {
        crate::timeseries::read::bucket_figures(self, collection)
    }

    /// One pass over every TTL index of which something is due: deletes what expired by now. The indexes
    /// take turns, so that none waits long for another, and the pass waits for no other operation: a
    /// document that one holds just now is left to the next pass.
    ///
    /// # Errors
    /// What `op` says; 10107 NotWritablePrimary. What is wrong with one index ends none of the others.
    pub fn ttl_pass(&self, op: &Arc<OpContext>) -> Result<TtlOutcome> {
        crate::verbs::ttl::ttl_pass(self, op)
    }

    /// Creates a view; its pipeline was checked with [`check_view_pipeline`].
    ///
    /// # Errors
    /// 48 NamespaceExists; 5, 165, 195 as for reading it; 167
    /// OptionNotSupportedOnView for another collation than the view's below.
    pub fn create_view(&self, op: &OpContext, namespace: &str, view: &View) -> Result<()> {
        crate::verbs::views::create_view(self, op, namespace, view)
    }

    /// Changes a view.
    ///
    /// # Errors
    /// 26 NamespaceNotFound; as [`Database::create_view`].
    pub fn modify_view(
        &self,
        op: &OpContext,
        namespace: &str,
        on: Option<&str>,
        pipeline: Option<ArrayBuf>,
    ) -> Result<()> {
        crate::verbs::views::modify_view(self, op, namespace, on, pipeline)
    }

    /// Drops a view. False if there is none.
    ///
    /// # Errors
    /// I/O errors.
    pub fn drop_view(&self, op: &OpContext, namespace: &str) -> Result<bool> {
        crate::verbs::views::drop_view(self, op, namespace)
    }

    /// Sets the function that is told of documents that are not valid, where `validationAction` says
    /// so: the namespace and `{failingDocumentId, details}`.
    pub fn on_validation_failure(&self, log: ValidationLog) {
        crate::verbs::write::perform::on_validation_failure(self, log)
    }

    /// Runs one delete statement; `matched` in the outcome is how many were deleted.
    ///
    /// # Errors
    /// The statement's error; what was deleted before stays deleted.
    pub fn delete(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        statement: &DeleteStatement<'_>,
    ) -> Result<StatementOutcome> {
        let mut outcome = StatementOutcome::default();
        self.delete_noting(op, namespace, statement, &mut outcome)?;
        Ok(outcome)
    }

    /// As [`Database::delete`], for a caller that wants to know what a statement did that failed.
    ///
    /// # Errors
    /// Those of [`Database::delete`].
    pub fn delete_noting(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        statement: &DeleteStatement<'_>,
        outcome: &mut StatementOutcome,
    ) -> Result<()> {
        crate::verbs::write::bulk::run_statement(self, op, namespace, statement, outcome)
    }

    /// Runs the statements of a delete command.
    pub fn delete_many<'d>(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        statements: &mut dyn Iterator<Item = Result<DeleteStatement<'d>>>,
        ordered: bool,
    ) -> BulkOutcome {
        crate::verbs::write::bulk::run_statements(self, op, namespace, statements, ordered)
    }

    /// Runs a findAndModify.
    ///
    /// # Errors
    /// 9 FailedToParse for contradicting options; the update's own; 11000 with keyPattern and
    /// keyValue.
    pub fn find_and_modify(
        &self,
        op: &Arc<OpContext>,
        request: &FindAndModifyRequest<'_>,
    ) -> Result<FindAndModifyOutcome> {
        crate::verbs::write::find_and_modify::find_and_modify(self, op, request)
    }

    /// Inserts documents (validated BSON), creating the collection if it is not there. A missing
    /// `_id` is made, and `_id` is moved to the front. Documents become visible in slices of
    /// bounded size. What a collection that is dropped meanwhile has not taken goes into a new one.
    ///
    /// # Errors
    /// Only what concerns the whole command (73 InvalidNamespace, interrupts, a full disk before
    /// anything was written); a document's own error is in the outcome.
    pub fn insert_many(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        docs: &Documents<'_>,
        options: InsertOptions,
    ) -> Result<BulkOutcome> {
        crate::verbs::write::insert::insert_many(self, op, namespace, docs, options)
    }

    /// Appends a document as it is to a capped collection; an `_id` is made only where the collection
    /// has an index on it. Does nothing if there is none of this name.
    ///
    /// # Errors
    /// As a commit's.
    pub fn append(&self, op: &Arc<OpContext>, namespace: &str, doc: Doc<'_>) -> Result<()> {
        crate::verbs::write::insert::append(self, op, namespace, doc)
    }

    /// Runs one update statement.
    ///
    /// # Errors
    /// The statement's error; what earlier documents of a multi-update changed stays changed.
    pub fn update(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        statement: &UpdateStatement<'_>,
    ) -> Result<StatementOutcome> {
        let mut outcome = StatementOutcome::default();
        self.update_noting(op, namespace, statement, &mut outcome)?;
        Ok(outcome)
    }

    /// As [`Database::update`], for a caller that wants to know what a statement did that failed.
    ///
    /// # Errors
    /// Those of [`Database::update`].
    pub fn update_noting(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        statement: &UpdateStatement<'_>,
        outcome: &mut StatementOutcome,
    ) -> Result<()> {
        crate::verbs::write::bulk::run_statement(self, op, namespace, statement, outcome)
    }

    /// Runs the statements of an update command.
    pub fn update_many<'d>(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        statements: &mut dyn Iterator<Item = Result<UpdateStatement<'d>>>,
        ordered: bool,
    ) -> BulkOutcome {
        crate::verbs::write::bulk::run_statements(self, op, namespace, statements, ordered)
    }
}
