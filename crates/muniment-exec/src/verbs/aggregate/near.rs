//! `$geoNear`: the first stage of a pipeline, which reads a geospatial index.

use crate::database::Database;
use crate::operation::OpContext;
use crate::plan::hint::Hint;
use crate::plan::query::Query;
use crate::plan::shape::shape;
use crate::run::choose::Choice;
use crate::run::current::CurrentOp;
use crate::run::exec::{Exec, into_bytes};
use crate::run::recipe::Recipe;
use crate::verbs::planning::plan;
use bytes::Bytes;
use muniment_query::stage::GeoNear;
use muniment_query::{DocStream, QueryContext};
use muniment_storage::Collection;
use muniment_value::path::Path;
use muniment_value::{Code, Doc, Error, Result, Value};
use parking_lot::Mutex;
use std::sync::Arc;

/// The plan's documents, with their distances filled in.
pub(crate) struct NearRows {
    exec: Arc<Mutex<Exec>>,
    op: Arc<CurrentOp>,
    stage: GeoNear,
    key: Path,
}

impl NearRows {
    /// The rows of `exec`, which releases its snapshot when the cursor of `op` idles.
    pub(crate) fn new(exec: Exec, stage: GeoNear, key: Path, op: &Arc<CurrentOp>) -> NearRows {
        NearRows::of(Arc::new(Mutex::new(exec)), stage, key, op)
    }

    /// The same for a plan that the caller keeps for itself too, as explain does.
    pub(crate) fn of(
        exec: Arc<Mutex<Exec>>,
        stage: GeoNear,
        key: Path,
        op: &Arc<CurrentOp>,
    ) -> NearRows {
        op.register(&exec);
        NearRows {
            exec,
            op: op.clone(),
            stage,
            key,
        }
    }
}

impl DocStream for NearRows {
    fn next(&mut self) -> Result<Option<Bytes>> {
        let mut exec = self.exec.lock();
        let Some(row) = exec.next_row(&self.op.get())? else {
            return Ok(None);
        };
        let doc = into_bytes(&exec, row)?;
        let mut out = Vec::with_capacity(doc.len() + 64);
        let work = exec.cx.work();
        self.stage
            .append(Doc::new(&doc), &self.key, &mut out, work)?;
        Ok(Some(out.into()))
    }
}

/// The field that a `$geoNear` without `key` measures: the one of the only 2d index, or else of the
/// only 2dsphere index.
fn only_key(collection: &Collection) -> Result<String> {
    for kind in ["2d", "2dsphere"] {
        let indexes = collection.indexes();
        let mut found = indexes
            .iter()
            .filter(|i| !i.spec().hidden && i.kind().is_some_and(|k| k.name() == kind));
        let Some(index) = found.next() else {
            continue;
        };
        if found.next().is_some() {
            return Err(Error::new(
                Code::IndexNotFound,
                format!(
                    "There is more than one {kind} index on {}; unsure which to use for $geoNear",
                    collection.namespace()
                ),
            ));
        }
        let spec = index.spec();
        let mut fields = spec.key.as_doc().iter();
        if let Some(e) = fields.find(|e| e.value().as_str() == Some(kind)) {
            return Ok(e.name().to_string());
        }
    }
    Err(Error::new(
        Code::IndexNotFound,
        "$geoNear requires a 2d or 2dsphere index, but none were found",
    ))
}

/// How an aggregation is to be planned, apart from its stages.
pub(crate) struct Planning<'h> {
    /// Its hint.
    pub hint: Option<Hint<'h>>,
    /// Whether a sort may spill.
    pub allow_disk_use: Option<bool>,
    /// True if the plan is made for explain.
    pub explain: bool,
}

/// Plans a `$geoNear`; returns its stage, the field that it measures, and the plan.
///
/// # Errors
/// The errors of parsing the stage; 26 NamespaceNotFound, 27 IndexNotFound, 291
/// NoQueryExecutionPlans.
pub(crate) fn plan_geo_near(
    engine: &Database,
    op: &Arc<OpContext>,
    collection: Option<&Arc<Collection>>,
    ctx: &QueryContext,
    operand: Value<'_>,
    how: &Planning<'_>,
) -> Result<(GeoNear, Path, Choice)> {
    let stage = GeoNear::parse(operand, ctx)?;
    let Some(collection) = collection else {
        return Err(Error::new(
            Code::NamespaceNotFound,
            format!(
                "$geoNear requires a geo index to run, but {}.{} does not exist",
                ctx.db, ctx.collection
            ),
        ));
    };
    let key = match &stage.key {
        Some(k) => k.clone(),
        None => only_key(collection)?,
    };
    let filter = Arc::new(stage.filter(&key));
    let query = Query {
        hint: how.hint,
        ..Query::of(&filter)
    };
    let recipe = Recipe {
        sort_limits: engine.sort_limits(how.allow_disk_use),
        metadata: ctx.metadata.asked(),
        ..engine.recipe(collection, &filter)
    };
    let choice = plan(
        engine,
        op,
        &query,
        &recipe,
        || shape(&filter, Doc::EMPTY, Doc::EMPTY).into(),
        how.explain,
    )?;
    Ok((stage, Path::new(&key), choice))
}
