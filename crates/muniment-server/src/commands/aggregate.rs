//! `aggregate`.

use super::cursor_reply::limits;
use super::hint;
use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::metrics::OpKind;
use crate::registry::{CommandSpec, Explained, Kind, Routed, RunsOn, Target};
use crate::replica_set::forward;
use muniment_exec::{AggregateRequest, BatchLimits, Explainable, Verbosity, opens_change_stream};
use muniment_value::args::{Args, Field, Types, check_type, opt, refused, req};
use muniment_value::{Code, Doc, Elem, Error, Result, Value, number};

pub(super) const FIELDS: &[Field] = &[
    // Null is not "missing" here, unlike in other fields.
    req("pipeline", Types::ANY),
    opt("cursor", Types::OBJECT),
    opt("explain", Types::BOOL),
    opt("allowDiskUse", Types::BOOL),
    opt("hint", Types::ANY),
    opt("let", Types::OBJECT),
    opt("bypassDocumentValidation", Types::SAFE_BOOL),
    opt("collation", Types::OBJECT),
    refused("exchange", Types::OBJECT),
    refused("collectionUUID", Types::BINARY),
    refused("fromMongos", Types::SAFE_BOOL),
    refused("needsMerge", Types::SAFE_BOOL),
    refused("runtimeConstants", Types::OBJECT),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "aggregate",
    doc: "Runs documents through a pipeline of stages",
    kind: Kind::Read,
    // Counted as a query, as in MongoDB since 7.1.
    counted_as: Some(OpKind::Query),
    target: Target::CollectionOrDatabase,
    write_concern: true,
    is_read_operation: |body| !writes(body),
    read_concern: true,
    in_transactions: true,
    api_v1: true,
    fields: FIELDS,
    precheck,
    run,
    // The primary writes what an aggregation on a secondary finds: see `replica_set::forward`.
    runs_on: Some(RunsOn::Readable),
    snapshot_reads: true,
    writes_output: writes,
    is_change_stream: |_, body| opens_change_stream(body),
    explain: Some(explain),
    on_view: Some(|a, (_, db, name)| Explainable::Aggregate(&request(a, db, Some(name))?).stages()),
    ..CommandSpec::new(
        Routed::By(crate::router::sharded::aggregate::run),
        Needs::Of(needs),
    )
};

pub(super) fn needs(asks: &Asks<'_>) -> bool {
    let (db, collection) = asks.namespace.split_once('.').unwrap_or_default();
    let pipeline = asks
        .request
        .body
        .get_array("pipeline")
        .unwrap_or(Doc::EMPTY);
    let collection = (collection != "$cmd.aggregate").then_some(collection);
    asks.may_run_pipeline(db, collection, pipeline)
}

/// Stages that only read with the read concern "local".
const LOCAL_ONLY: [&str; 7] = [
    "$currentOp",
    "$listCatalog",
    "$listClusterCatalog",
    "$listLocalSessions",
    "$listSearchIndexes",
    "$listSessions",
    "$planCacheStats",
];

/// Stages that are not in version 1 of the Stable API.
const NOT_IN_API_V1: [&str; 15] = [
    "$currentOp",
    "$indexStats",
    "$listCatalog",
    "$listClusterCatalog",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$listSessions",
    "$planCacheStats",
    "$querySettings",
    "$queryStats",
    "$search",
    "$searchBeta",
    "$searchMeta",
    "$vectorSearch",
];

/// The error for an explained pipeline that comes with a write concern.
pub fn no_write_concern() -> Error {
    Error::failed_to_parse("Aggregation explain does not support the 'writeConcern' option")
}

fn precheck(body: Doc<'_>) -> Result<()> {
    if let Some(target) = body.first().map(|e| e.value())
        && target.is_number()
        && number::to_f64(target) != Some(1.0)
    {
        return Err(Error::bad_value(
            "Invalid command format: the 'aggregate' field must specify a collection name or 1",
        ));
    }
    for (field, expected) in [
        ("pipeline", "array"),
        ("explain", "bool"),
        ("allowDiskUse", "bool"),
        ("cursor", "object"),
    ] {
        if matches!(body.get(field), Some(Value::Null)) {
            return Err(Error::type_mismatch(format!(
                "BSON field 'aggregate.{field}' is the wrong type 'null', expected type \
                 '{expected}'"
            )));
        }
    }
    let explain = matches!(body.get("explain"), Some(Value::Bool(true)));
    if explain && body.get("writeConcern").is_some() {
        return Err(no_write_concern());
    }
    let terms = Terms {
        in_transaction: body.get("autocommit").is_some(),
        read_concern: body.get_doc("readConcern").and_then(|d| d.get_str("level")),
        api_strict: body.get("apiStrict").is_some_and(|v| v.truthy()),
    };
    if terms.api_strict && explain {
        return Err(not_in_api("the explain option of aggregate"));
    }
    let stages = body.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let mut stages = stages.values().filter_map(|v| v.as_doc()?.first());
    stages.try_for_each(|stage| terms.check(stage))
}

/// What the client asks for that not every stage can give.
struct Terms<'a> {
    in_transaction: bool,
    read_concern: Option<&'a str>,
    api_strict: bool,
}

impl Terms<'_> {
    /// Refuses a stage that cannot run on these terms.
    ///
    /// # Errors
    /// 263 OperationNotSupportedInTransaction, 72 InvalidOptions, 323 APIStrictError.
    fn check(&self, stage: Elem<'_>) -> Result<()> {
        let name = stage.name();
        if self.in_transaction && !runs_in_transactions(name) {
            return Err(Error::new(
                Code::OperationNotSupportedInTransaction,
                format!(
                    "Operation not permitted in transaction :: caused by :: Aggregation stage \
                     {name} cannot run within a multi-document transaction"
                ),
            ));
        }
        self.check_read_concern(name)?;
        match beyond_api_v1(stage) {
            Some(what) if self.api_strict => Err(not_in_api(what)),
            _ => Ok(()),
        }
    }

    fn check_read_concern(&self, stage: &str) -> Result<()> {
        let level = self.read_concern.unwrap_or("local");
        let writes = matches!(stage, "$out" | "$merge") && level == "linearizable";
        let message = if writes || (level != "local" && LOCAL_ONLY.contains(&stage)) {
            format!(
                "Aggregation stage {stage} cannot run with a readConcern other than 'local', \
                 or in a multi-document transaction. Current readConcern: {level}"
            )
        } else if stage == "$changeStream" && !matches!(self.read_concern, None | Some("majority"))
        {
            format!(
                "$changeStream cannot run with a readConcern other than 'majority'. Current \
                 readConcern: {level}"
            )
        } else {
            return Ok(());
        };
        Err(Error::new(Code::InvalidOptions, message))
    }
}

fn runs_in_transactions(stage: &str) -> bool {
    !LOCAL_ONLY.contains(&stage)
        && !matches!(
            stage,
            "$changeStream" | "$collStats" | "$indexStats" | "$out" | "$merge" | "$unionWith"
        )
}

/// What a stage asks for that is not in version 1 of the Stable API, if anything.
fn beyond_api_v1(stage: Elem<'_>) -> Option<&str> {
    let options = stage.value().as_doc().unwrap_or(Doc::EMPTY);
    match stage.name() {
        "$changeStream" => options
            .get("showExpandedEvents")
            .map(|_| "showExpandedEvents of $changeStream"),
        // Of `$collStats`, version 1 has only `count`.
        "$collStats" => options
            .iter()
            .any(|o| o.name() != "count")
            .then_some("$collStats"),
        name => NOT_IN_API_V1.contains(&name).then_some(name),
    }
}

/// 323: not part of the Stable API.
fn not_in_api(what: &str) -> Error {
    Error::new(
        Code(323),
        format!("Provided apiStrict:true, but {what} is not in API Version 1"),
    )
}

/// The request that the arguments describe.
pub(super) fn request<'a>(
    a: &Args<'a>,
    db: &'a str,
    collection: Option<&'a str>,
) -> Result<AggregateRequest<'a>> {
    Ok(AggregateRequest {
        db,
        collection,
        pipeline: match a.get("pipeline") {
            Some(v) => {
                check_type("aggregate", "pipeline", Types::ARRAY, v.ty())?;
                v.as_array().unwrap_or(Doc::EMPTY)
            }
            None => Doc::EMPTY,
        },
        hint: hint(a)?,
        allow_disk_use: a.get("allowDiskUse").map(|v| v.truthy()),
        let_: a.doc("let").unwrap_or(Doc::EMPTY),
        collation: a.collation()?,
        bypass_document_validation: a.bool("bypassDocumentValidation", false),
        member: false,
    })
}

fn explain(cx: &mut CommandContext<'_>, of: &Explained<'_, '_>) -> Result<()> {
    if of.generic.write_concern.is_some() {
        return Err(no_write_concern());
    }
    let r = AggregateRequest {
        member: cx.op.is_merged(),
        ..request(&of.args, cx.db(), of.collection)?
    };
    super::explain::answer(cx, &Explainable::Aggregate(&r), of.verbosity, of.command)
}

/// Whether the last stage writes what the pipeline finds into a collection.
fn writes(body: Doc<'_>) -> bool {
    let stages = body.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let last = stages.values().last().and_then(|v| v.as_doc());
    let stage = last.and_then(|d| d.first()).map_or("", |e| e.name());
    matches!(stage, "$out" | "$merge")
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    match writes(cx.request.body) {
        true if forward(cx)? => Ok(()),
        // A pipeline that writes is not retried when its plan is killed: what it has written stays.
        true => answer(cx),
        false => cx.replan(answer),
    }
}

fn answer(cx: &mut CommandContext<'_>) -> Result<()> {
    let collection = Some(cx.collection_name()).filter(|c| !c.is_empty());
    let request = AggregateRequest {
        member: cx.op.is_merged(),
        ..request(&cx.args, cx.db(), collection)?
    };
    let limits = limits(cx.args.doc("cursor"), BatchLimits::FIRST)?;
    if cx.args.bool("explain", false) {
        let what = Explainable::Aggregate(&request);
        return super::explain::answer(cx, &what, Verbosity::QueryPlanner, cx.request.body);
    }
    if cx.args.doc("cursor").is_none() {
        return Err(Error::failed_to_parse(
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    }
    let cursor = cx.engine().aggregate(cx.op, &request)?;
    cx.first_batch(cursor, limits)?;
    Ok(())
}
