//! The crate's door: everything that the server asks of the engine, with the errors that it may
//! get.
//!
//! Each function here calls a free function in the file that its body names. Nothing within the
//! crate comes through this door, so that imports show which part needs which.

use crate::*;
use bytes::Bytes;
use muniment_query::stage::host::Host;
use muniment_query::stage::out::OutSpec;
use muniment_query::{Interrupt, QueryContext, Runtime};
use muniment_storage::{Collection, CollectionOptions, Timestamp};
use muniment_value::{ArrayBuf, Collation, Doc, DocBuf, Result, Value, ValueBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

impl Database {
    /// Resolves a name as of now, independent of any operation.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected for a view while the collection of views is closed; I/O errors.
    pub fn source(&self, namespace: &str) -> Result<Source> {
        Source::now(&self.store, namespace)
    }

    /// The views of a database with their full names, sorted. While the collection that stores them
    /// is closed, the list is empty.
    ///
    /// # Errors
    /// I/O errors; what stops `operation`.
    pub fn views(&self, db: &str, operation: &dyn Interrupt) -> Result<Vec<(String, View)>> {
        crate::view::all(&self.store, db, operation)
    }

    /// Opens an aggregation.
    ///
    /// # Errors
    /// Those of [`Database::find`]; the errors of the stages; 73 InvalidNamespace if the first
    /// stage does not fit the target.
    pub fn aggregate(&self, op: &Arc<OpContext>, request: &AggregateRequest<'_>) -> Result<Cursor> {
        crate::verbs::aggregate::aggregate(self, op, request)
    }

    /// Merges documents of a router's `$merge` into a collection. Without documents, it only checks whether that is
    /// possible.
    ///
    /// # Errors
    /// Those of opening the stage; of a document that cannot be identified, after which nothing is written.
    pub fn merge(&self, op: &Arc<OpContext>, request: &MergeRequest<'_>) -> Result<Merged> {
        crate::verbs::write::merge::merge(self, op, request)
    }

    /// Makes the collection that the documents of a router's `$out` go to, until it takes the target's name.
    ///
    /// # Errors
    /// Those of opening the stage.
    pub fn begin_out(&self, op: &Arc<OpContext>, spec: &OutSpec) -> Result<HalfWritten> {
        HalfWritten::begin(self, op, spec)
    }

    /// Writes documents of a router's `$out`.
    ///
    /// # Errors
    /// The first document's that cannot be written.
    pub fn write_out(
        &self,
        op: &Arc<OpContext>,
        half: &HalfWritten,
        docs: &[Bytes],
        bypass_document_validation: bool,
    ) -> Result<()> {
        half.write(self, op, docs, bypass_document_validation)
    }

    /// Has the collection of a router's `$out` take the target's name.
    ///
    /// # Errors
    /// 125 CommandFailed if the target has changed since the beginning; as a commit's.
    pub fn finish_out(&self, op: &Arc<OpContext>, half: &HalfWritten) -> Result<()> {
        half.finish(self, op)
    }

    /// Drops the collection of a router's `$out`, if it has not taken the target's name.
    pub fn discard_out(&self, half: &HalfWritten) {
        half.discard(self);
    }

    /// `changeStreamOptions.preAndPostImages.expireAfterSeconds`: how long the earlier versions of
    /// documents are shown, in seconds; 0 means for as long as the log has them. The caller sets
    /// it.
    pub fn image_seconds(&self) -> Arc<AtomicI64> {
        crate::changes::image_seconds(self)
    }

    /// Has the change streams that a router merges tell it that they have come up to this time, which
    /// the majority has come to.
    pub fn ask_changes(&self, up_to: muniment_storage::Timestamp) {
        self.changes.feed.ask(up_to);
    }

    /// Counts documents. Without a filter this reads the collection's exact counter. With a filter
    /// that an index answers alone, no document is read.
    ///
    /// # Errors
    /// Those of [`Database::find`].
    pub fn count(&self, op: &Arc<OpContext>, request: &CountRequest<'_>) -> Result<u64> {
        crate::verbs::count::count(self, op, request)
    }

    /// Creates a collection, unless a view has the name.
    ///
    /// # Errors
    /// 48 NamespaceExists; the errors of the storage.
    pub fn create_collection(
        &self,
        namespace: &str,
        options: CollectionOptions,
        op: &OpContext,
    ) -> Result<Arc<Collection>> {
        crate::verbs::create::create_collection(self, namespace, options, op)
    }

    /// As [`Database::create_collection`], with a given UUID.
    ///
    /// # Errors
    /// 48 NamespaceExists, also if another collection has the UUID; the errors of the storage.
    pub fn create_collection_as(
        &self,
        namespace: &str,
        options: CollectionOptions,
        uuid: Option<[u8; 16]>,
        op: &OpContext,
    ) -> Result<Arc<Collection>> {
        crate::verbs::create::create_collection_as(self, namespace, options, uuid, op)
    }

    /// Fills the first batch and appends the reply's element `cursor: {firstBatch: […], id, ns}` to
    /// the document that is being built in `out`. The caller writes that document's length and end.
    /// If there is more, the cursor is kept, unless the request said `single_batch`. Returns the
    /// id; 0 means that no cursor was kept.
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

    /// What runs the stages of a pipeline whose documents come from elsewhere, such as the shards of a cluster. `host` is
    /// the database around it.
    pub fn runtime(
        &self,
        interrupt: Arc<dyn Interrupt>,
        host: Arc<dyn Host>,
        allow_disk_use: Option<bool>,
    ) -> Runtime {
        let limits = self.sort_limits(allow_disk_use);
        Runtime {
            interrupt,
            memory_limit: limits.memory,
            ledger: limits.ledger,
            scratch: limits.scratch,
            host,
            watched: false,
        }
    }

    /// The context in which the expressions of a command are parsed.
    ///
    /// # Errors
    /// Those of evaluating `let_`.
    pub fn context(
        &self,
        op: &Arc<OpContext>,
        let_: Doc<'_>,
        collation: Collation,
    ) -> Result<QueryContext> {
        crate::context::query_context(op, let_, collation)
    }

    /// `getMore`: appends `cursor: {nextBatch: […], id, ns}` to `out` and returns the id.
    ///
    /// # Errors
    /// 43 CursorNotFound "cursor id N not found"; 13 Unauthorized for another namespace or owner;
    /// 143 CursorInUse; 237 CursorKilled; the errors of the plan, after which the cursor no longer
    /// exists.
    pub fn get_more(
        &self,
        op: &Arc<OpContext>,
        request: &GetMoreRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Result<i64> {
        crate::cursor::reply::get_more(self, op, request, out)
    }

    /// The distinct values at a path. Arrays count by their elements, and numbers by value.
    ///
    /// # Errors
    /// Those of [`Database::find`]; 17217 "distinct too big, 16mb cap".
    pub fn distinct(&self, op: &Arc<OpContext>, request: &DistinctRequest<'_>) -> Result<ArrayBuf> {
        crate::verbs::distinct::distinct(self, op, request)
    }

    /// Explains a command: `{explainVersion, queryPlanner, executionStats}`, or for an aggregation
    /// with stages above the plan `{explainVersion, stages: […]}`. Writes nothing. The caller adds
    /// `command`, `serverInfo`, `serverParameters` and `ok`.
    ///
    /// # Errors
    /// The errors of the command itself.
    pub fn explain(
        &self,
        op: &Arc<OpContext>,
        what: &Explainable<'_>,
        verbosity: Verbosity,
    ) -> Result<DocBuf> {
        crate::verbs::explain::explain(self, op, what, verbosity)
    }

    /// Plans a find and opens its cursor; nothing is read yet. The cursor is empty if the
    /// collection does not exist.
    ///
    /// # Errors
    /// The errors of parsing the filter, the projection and the sort; 2 BadValue for a bad hint
    /// ("error processing query: … planner returned error: bad hint") and for a tailable cursor on
    /// a collection that is not capped; 51173 and similar codes for min and max without a fitting
    /// hint.
    pub fn find(&self, op: &Arc<OpContext>, request: &FindRequest<'_>) -> Result<Cursor> {
        crate::verbs::find::find(self, op, request)
    }

    /// `$indexStats`: the uses of every index of a collection, or of the one below a view. `host`
    /// is the server's name, if it is known.
    ///
    /// # Errors
    /// The errors of reading a view.
    pub fn index_stats(&self, namespace: &str, host: Option<&str>) -> Result<Vec<DocBuf>> {
        crate::verbs::index_stats::index_stats(&self.store, namespace, host)
    }

    /// Computes the [`GeneratedFigures`] of a generated collection.
    ///
    /// # Errors
    /// I/O errors; the interruption of `op`.
    pub fn generated_figures(
        &self,
        op: &OpContext,
        generated: &Generated,
    ) -> Result<GeneratedFigures> {
        crate::oplog::figures::generated_figures(self, op, generated)
    }

    /// The documents that entries later than `after` have inserted or changed, each once and as it
    /// is now. Documents that were deleted again are left out, and so are those of collections that
    /// no longer exist. Of a closed collection, only the documents that can be read are included.
    ///
    /// # Errors
    /// 286 if the log no longer reaches back that far; 301 for damage in something that is not
    /// closed; the errors of the disk.
    pub fn undone_by_giving_up(&self, after: Timestamp) -> Result<Undone> {
        crate::oplog::undone::undone_by_giving_up(&self.store, after)
    }

    /// `$planCacheStats`: the cached plans of a collection, or of the one below a view. `host` is
    /// the server's name, if it is known.
    ///
    /// # Errors
    /// 50933 if there is no such collection; 40602 for a time series, whose documents come from
    /// other stages; the errors of reading a view.
    pub fn plan_cache_stats(&self, namespace: &str, host: Option<&str>) -> Result<Vec<DocBuf>> {
        crate::verbs::plan_cache::plan_cache_stats(self, namespace, host)
    }

    /// `planCacheSetFilter`: from now on, queries of this shape use only `indexes` (names or key
    /// patterns). The collection's cached plans are forgotten.
    ///
    /// # Errors
    /// 2 BadValue if there is no such collection; the errors of parsing the query.
    pub fn set_index_filter(
        &self,
        namespace: &str,
        spec: &ShapeSpec<'_>,
        indexes: Vec<ValueBuf>,
    ) -> Result<()> {
        crate::verbs::plan_cache::set_index_filter(self, namespace, spec, indexes)
    }

    /// `planCacheClearFilters`: removes one filter, or all filters of a collection.
    ///
    /// # Errors
    /// The errors of parsing the query.
    pub fn clear_index_filters(&self, namespace: &str, spec: Option<&ShapeSpec<'_>>) -> Result<()> {
        crate::verbs::plan_cache::clear_index_filters(self, namespace, spec)
    }

    /// `planCacheListFilters`: the filters of a collection, each `{query, sort, projection,
    /// collation?, indexes}`.
    pub fn list_index_filters(&self, namespace: &str) -> Vec<DocBuf> {
        crate::verbs::plan_cache::list_index_filters(self, namespace)
    }

    /// `planCacheClear` for one shape.
    ///
    /// # Errors
    /// The errors of parsing the query.
    pub fn clear_cached_plan(&self, namespace: &str, spec: &ShapeSpec<'_>) -> Result<()> {
        crate::verbs::plan_cache::clear_cached_plan(self, namespace, spec)
    }

    /// Updates `db.system.views`, so that it lists the time-series collections of a database. Does
    /// nothing while that collection is closed.
    ///
    /// # Errors
    /// The errors of waiting and writing. What was not written is written after the next change.
    pub fn settle_series(&self, op: &OpContext, db: &str) -> Result<()> {
        crate::timeseries::catalog::settle_series(self, op, db)
    }

    /// Refuses to drop the collection of views of a database with time-series collections. If it is
    /// closed it may be dropped: it is useless then and is made anew.
    ///
    /// # Errors
    /// 125 CommandFailed.
    pub fn refuse_to_drop_views(&self, namespace: &str) -> Result<()> {
        crate::timeseries::catalog::refuse_to_drop_views(&self.store, namespace)
    }

    /// Creates the index that every time-series collection with a metaField has: on the metaField
    /// and the time.
    ///
    /// # Errors
    /// The errors of building the index.
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

    /// Computes the [`BucketFigures`] of a time-series collection.
    ///
    /// # Errors
    /// I/O errors; what stops `operation`.
    pub fn bucket_figures(
        &self,
        collection: &Arc<Collection>,
        operation: &dyn Interrupt,
    ) -> Result<BucketFigures> {
        crate::timeseries::read::bucket_figures(self, collection, operation)
    }

    /// One pass over every TTL index in which something is due: deletes the documents that have
    /// expired. The indexes take turns, so that none waits long for another. The pass waits for no
    /// other operation: a document that one holds is left to the next pass.
    ///
    /// # Errors
    /// The interruption of `op`; 10107 NotWritablePrimary. The failure of one index does not end
    /// the others.
    pub fn ttl_pass(&self, op: &Arc<OpContext>) -> Result<TtlOutcome> {
        crate::verbs::ttl::ttl_pass(self, op)
    }

    /// Creates a view whose pipeline was checked with [`check_view_pipeline`].
    ///
    /// # Errors
    /// 48 NamespaceExists; 5, 165 and 195 as for reading it; 167 OptionNotSupportedOnView if a view
    /// below has another collation.
    pub fn create_view(&self, op: &OpContext, namespace: &str, view: &View) -> Result<()> {
        crate::verbs::views::create_view(self, op, namespace, view)
    }

    /// Changes a view.
    ///
    /// # Errors
    /// 26 NamespaceNotFound; those of [`Database::create_view`].
    pub fn modify_view(
        &self,
        op: &OpContext,
        namespace: &str,
        on: Option<&str>,
        pipeline: Option<ArrayBuf>,
    ) -> Result<()> {
        crate::verbs::views::modify_view(self, op, namespace, on, pipeline)
    }

    /// Drops a view. Returns false if there is none.
    ///
    /// # Errors
    /// I/O errors.
    pub fn drop_view(&self, op: &OpContext, namespace: &str) -> Result<bool> {
        crate::verbs::views::drop_view(self, op, namespace)
    }

    /// Sets the function that logs invalid documents where `validationAction` asks for that. It
    /// gets the namespace and `{failingDocumentId, details}`.
    pub fn on_validation_failure(&self, log: ValidationLog) {
        crate::verbs::write::perform::on_validation_failure(self, log)
    }

    /// Runs one delete statement. In the outcome, `matched` is the number of deleted documents.
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

    /// As [`Database::delete`], for a caller that needs the outcome even if the statement fails.
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
    /// 9 FailedToParse for options that contradict each other; the errors of the update; 11000 with
    /// keyPattern and keyValue.
    pub fn find_and_modify(
        &self,
        op: &Arc<OpContext>,
        request: &FindAndModifyRequest<'_>,
    ) -> Result<FindAndModifyOutcome> {
        crate::verbs::write::find_and_modify::find_and_modify(self, op, request)
    }

    /// Inserts documents, which have to be valid BSON, and creates the collection if it does not
    /// exist. A missing `_id` is made, and `_id` is moved to the front. Documents become visible in
    /// slices of limited size. If the collection is dropped meanwhile, the documents that it had
    /// not stored go into a new one.
    ///
    /// # Errors
    /// Only errors that concern the whole command (73 InvalidNamespace, interrupts, a full disk
    /// before anything was written). A document's own error is in the outcome.
    pub fn insert_many(
        &self,
        op: &Arc<OpContext>,
        namespace: &str,
        docs: &Documents<'_>,
        options: InsertOptions,
    ) -> Result<BulkOutcome> {
        crate::verbs::write::insert::insert_many(self, op, namespace, docs, options)
    }

    /// Appends a document unchanged to a capped collection. An `_id` is added only if the
    /// collection has an index on it. Does nothing if there is no such collection.
    ///
    /// # Errors
    /// The errors of a commit.
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

    /// As [`Database::update`], for a caller that needs the outcome even if the statement fails.
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
