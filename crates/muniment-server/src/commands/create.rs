//! `create`: collections and views.

use super::clustering::{clustered_index, expire_seconds, time_series};
use super::collection_options::{
    ACTIONS, LEVELS, MAX_CAPPED, capped_size, check_images, check_validator, id_index, images,
    images_doc, index_defaults, storage_engine, word,
};
use crate::audit::{self, Audits};
use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_auth::action::{Action, Actions};
use muniment_exec::{BUCKETS, View, check_view_pipeline};
use muniment_storage::CollectionOptions;
use muniment_value::args::{Field, Types, idle, opt, refused};
use muniment_value::{Code, Collation, Doc, Error, Result, Value, number};

const FIELDS: &[Field] = &[
    opt("capped", Types::SAFE_BOOL),
    opt("size", Types::NUMBER),
    opt("max", Types::NUMBER),
    opt("idIndex", Types::OBJECT),
    opt("autoIndexId", Types::SAFE_BOOL),
    idle(
        "flags",
        Types::NUMBER,
        "of the MMAPv1 engine; MongoDB ignores it since 4.2",
    ),
    opt("validator", Types::OBJECT),
    opt("validationLevel", Types::STRING),
    opt("validationAction", Types::STRING),
    opt("collation", Types::OBJECT),
    opt("viewOn", Types::STRING),
    opt("pipeline", Types::ARRAY),
    opt("timeseries", Types::OBJECT),
    opt("clusteredIndex", Types::ANY),
    opt("expireAfterSeconds", Types::NUMBER),
    // Settings of MongoDB's own engine: kept and shown, without effect.
    opt("indexOptionDefaults", Types::OBJECT),
    opt("storageEngine", Types::OBJECT),
    refused("encryptedFields", Types::OBJECT),
    opt("changeStreamPreAndPostImages", Types::OBJECT),
    opt("temp", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "create",
    doc: "Creates a collection or a view",
    kind: Kind::Ddl,
    target: Target::Collection,
    write_concern: true,
    in_transactions: true,
    api_v1: true,
    fields: FIELDS,
    audits: Some(Audits::changes("createCollection", audit::collection)),
    run,
    makes_collections: true,
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::ddl::anywhere),
        Needs::Of(needs),
    )
};

fn needs(asks: &Asks<'_>) -> bool {
    let body = asks.request.body;
    let mut actions = Actions::of(&[Action::CreateCollection]);
    if asks.has("capped") {
        actions.insert(Action::ConvertToCapped);
    }
    asks.may_here(actions)
        && body.get_str("viewOn").is_none_or(|on| {
            let pipeline = body.get_array("pipeline").unwrap_or(Doc::EMPTY);
            asks.may_run_pipeline(asks.request.db, Some(on), pipeline)
        })
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidOptions, message)
}

/// The size and number limits of a capped collection.
fn capped(cx: &CommandContext<'_>) -> Result<Option<(u64, Option<u64>)>> {
    let a = &cx.args;
    if a.get("clusteredIndex").is_some() {
        if a.bool("capped", false) {
            return Err(Error::location(
                6_049_200,
                "A capped collection cannot be created with the 'clusteredIndex' option",
            ));
        }
        if a.get("max").is_some() {
            return Err(Error::location(
                6_049_204,
                "The 'max' option cannot be used with the 'clusteredIndex' option",
            ));
        }
    }
    let size = a.int("size", 1, MAX_CAPPED)?;
    let max = a.int("max", i64::MIN, i64::from(i32::MAX))?;
    match (a.bool("capped", false), size) {
        (false, None) if max.is_none() => Ok(None),
        (false, _) => Err(invalid(
            "the 'capped' field needs to be true when either the 'size' or 'max' fields are \
             present",
        )),
        (true, None) => Err(invalid(
            "the 'size' field is required when 'capped' is true",
        )),
        (true, Some(size)) => Ok(Some((
            capped_size(size),
            max.filter(|n| *n > 0).map(|n| n as u64),
        ))),
    }
}

/// All options of a collection, checked, in the form that `listCollections` shows.
fn options(cx: &CommandContext<'_>, collation: &Collation) -> Result<CollectionOptions> {
    let a = &cx.args;
    let mut o = CollectionOptions::default();
    let d = &mut o.document;
    if let Some((size, max)) = capped(cx)? {
        o.capped_size = Some(size);
        // A client that wants another size than the profiler's makes the collection before it does.
        o.without_ids = cx.collection_name() == "system.profile";
        o.capped_max = max;
        d.append("capped", true);
        d.append("size", number::narrow(size as i64));
        if let Some(n) = max {
            d.append("max", number::narrow(n as i64));
        }
    }
    // Kept and shown as in MongoDB; the collection has its index `_id_` all the same.
    d.append_some("autoIndexId", a.get("autoIndexId").map(|v| v.truthy()));
    // The collection is dropped when the server starts again.
    if a.bool("temp", false) {
        d.append("temp", true);
    }
    if let Some(i) = a.doc("changeStreamPreAndPostImages")
        && images(i)?
    {
        check_images(cx.db())?;
        d.append("changeStreamPreAndPostImages", images_doc(true));
    }
    if let Some(s) = a.doc("storageEngine").filter(|s| !s.is_empty()) {
        storage_engine(s)?;
        d.append("storageEngine", s);
    }
    if let Some(s) = a.doc("indexOptionDefaults").filter(|s| !s.is_empty()) {
        index_defaults(s)?;
        d.append("indexOptionDefaults", s);
    }
    let level = word(a, "create", "validationLevel", LEVELS)?;
    let action = word(a, "create", "validationAction", ACTIONS)?;
    let given = a.doc("validator").filter(|v| !v.is_empty());
    if let Some(v) = given.filter(|_| !of_buckets(cx)) {
        check_validator(cx.db(), cx.collection_name(), v, cx.op)?;
        d.append("validator", v);
    }
    d.append_some("validationLevel", level);
    d.append_some("validationAction", action);
    d.append_some("collation", collation.spec());
    clustering(cx, &mut o)?;
    if let Some(id) = a.doc("idIndex") {
        id_index(id, collation)?;
    }
    Ok(o)
}

/// True if the command creates a bucket collection by its own name, as mongorestore does. It may then come
/// with all that such a collection is listed with: the validator of buckets and the clustered index.
fn of_buckets(cx: &CommandContext<'_>) -> bool {
    cx.collection_name().starts_with(BUCKETS) && cx.args.get("timeseries").is_some()
}

/// `clusteredIndex`, `timeseries` and `expireAfterSeconds`.
fn clustering(cx: &CommandContext<'_>, o: &mut CollectionOptions) -> Result<()> {
    let a = &cx.args;
    let clustered = match a.get("clusteredIndex") {
        Some(Value::Bool(true)) if of_buckets(cx) => None,
        Some(v) => clustered_index(v)?,
        None => None,
    };
    let series = a.doc("timeseries").map(time_series).transpose()?;
    let expire = a.get("expireAfterSeconds");
    if clustered.is_none() && series.is_none() {
        if expire.is_some() && a.get("viewOn").is_none() {
            return Err(invalid(
                "'expireAfterSeconds' is only supported on time-series collections or when the \
                 'clusteredIndex' option is specified",
            ));
        }
        return Ok(());
    }
    if series.is_some() {
        beside_time_series(cx)?;
    } else if a.get("idIndex").is_some() {
        return Err(invalid("'idIndex' is not allowed with 'clusteredIndex'"));
    }
    if let Some(v) = expire {
        o.document.append("expireAfterSeconds", expire_seconds(v)?);
    }
    o.document.append_some("clusteredIndex", clustered.as_ref());
    if let Some(s) = &series {
        o.time_field = s.as_doc().get_str("timeField").map(str::to_string);
        o.document.append("timeseries", s);
    }
    Ok(())
}

/// Refuses options that no time-series collection has. Only `capped` may be given, as false, which drivers
/// do.
///
/// # Errors
/// 72 InvalidOptions.
fn beside_time_series(cx: &CommandContext<'_>) -> Result<()> {
    let a = &cx.args;
    for option in [
        "capped",
        "autoIndexId",
        "idIndex",
        "validator",
        "validationLevel",
        "validationAction",
        "viewOn",
        "changeStreamPreAndPostImages",
        "clusteredIndex",
    ] {
        let of_bucket = matches!(option, "clusteredIndex" | "validator") && of_buckets(cx);
        let of_default = option == "capped" && !a.bool("capped", false);
        if a.get(option).is_some() && !of_bucket && !of_default {
            return Err(invalid(format!(
                "{}: 'timeseries' is not allowed with '{option}'",
                cx.ns()
            )));
        }
    }
    Ok(())
}

/// The view that the arguments describe, or `None` for a collection.
fn view(cx: &CommandContext<'_>, collation: Collation) -> Result<Option<View>> {
    let a = &cx.args;
    let Some(on) = a.str("viewOn") else {
        if a.get("pipeline").is_some() {
            return Err(invalid("'pipeline' requires 'viewOn' to also be specified"));
        }
        return Ok(None);
    };
    if on.is_empty() {
        return Err(Error::bad_value("'viewOn' cannot be empty"));
    }
    if a.get("clusteredIndex").is_some() {
        return Err(Error::location(
            6_026_500,
            "The 'clusteredIndex' option is not supported with views",
        ));
    }
    for option in ["idIndex", "expireAfterSeconds"] {
        if a.get(option).is_some() {
            return Err(invalid(format!("'{option}' is not allowed with 'viewOn'")));
        }
    }
    if let Some(i) = a.doc("changeStreamPreAndPostImages")
        && images(i)?
    {
        return Err(invalid(
            "'changeStreamPreAndPostImages' is not allowed with 'viewOn'",
        ));
    }
    namespace::check_collection(cx.db(), on)?;
    Ok(Some(View {
        on: on.to_string(),
        pipeline: check_view_pipeline(
            cx.ns(),
            a.array("pipeline").unwrap_or(Doc::EMPTY),
            cx.server.replica_set.is_some(),
            cx.op,
        )?,
        collation,
    }))
}

/// 20 IllegalOperation: a bucket collection cannot exist without a time series.
pub(super) fn no_series(ns: &str) -> Error {
    Error::new(
        Code::IllegalOperation,
        format!(
            "Creating a system.buckets collection without time-series options is not allowed: {ns}"
        ),
    )
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    namespace::check_create(cx.db(), cx.collection_name())?;
    let buckets = cx.collection_name().strip_prefix(BUCKETS);
    if buckets.is_some() && cx.args.get("timeseries").is_none() {
        return Err(no_series(cx.ns()));
    }
    // Buckets are made of measurements, so the time-series collection is created instead.
    let ns = buckets.map_or_else(|| cx.ns().to_string(), |name| format!("{}.{name}", cx.db()));
    let collation = Collation::parse_some(cx.args.doc("collation"))?;
    let options = options(cx, &collation)?;
    if options.time_field.is_some() && buckets.is_none() {
        // Buckets are read under this name, so it has to be a valid one, too.
        let name = format!("{BUCKETS}{}", cx.collection_name());
        namespace::check_collection(cx.db(), &name)?;
    }
    let auto_index_id = cx.args.get("autoIndexId").is_some();
    if !cx.args.bool("autoIndexId", true) && cx.db() != "local" {
        return Err(Error::location(
            50001,
            format!(
                "autoIndexId:false is not allowed for collection {} because it can be replicated",
                cx.ns()
            ),
        ));
    }
    if let Some(view) = view(cx, collation)? {
        cx.engine().create_view(cx.op, cx.ns(), &view)?;
        cx.note_write();
        return Ok(());
    }
    let wanted = options.document.clone();
    match cx
        .engine()
        .create_collection_as(&ns, options, cx.uuid, cx.op)
    {
        Ok(c) => {
            cx.engine().create_series_index(&c, &**cx.op)?;
            if c.is_time_series() {
                cx.engine().settle_series(cx.op, cx.db())?;
            }
        }
        Err(e) if e.code() == Code::NamespaceExists => {
            // Creating an identical collection again is an error only in a transaction.
            let there = cx.engine().store.collection(&ns);
            let same = cx.op.transaction().is_none()
                && there.is_some_and(|c| {
                    let of_it = cx.uuid.is_none_or(|u| c.uuid() == u);
                    of_it && c.options().document == wanted
                });
            if !same {
                return Err(e);
            }
            // Waits for the operation that created the collection, which may still be waiting for the disk.
            if let Some(there) = cx.engine().store.collection(&ns) {
                cx.engine().store.wait_settled(&there, &**cx.op)?;
            }
        }
        Err(e) => return Err(e),
    }
    if auto_index_id {
        cx.reply.field(
            "note",
            "The autoIndexId option is deprecated and will be removed in a future release",
        );
    }
    cx.note_write();
    Ok(())
}
