//! `create`: collections and views.

use super::collection_options::{
    ACTIONS, LEVELS, MAX_CAPPED, capped_size, check_validator, id_index, images, images_doc,
    index_defaults, storage_engine, word,
};
use crate::args::{Field, Types, idle, opt, refused};
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Target};
use muniment_exec::{View, check_view_pipeline};
use muniment_query::collation;
use muniment_storage::CollectionOptions;
use muniment_value::{Code, Doc, DocBuf, Error, Result, number};

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
    refused("timeseries", Types::OBJECT),
    refused("clusteredIndex", Types::SAFE_BOOL.or(Types::OBJECT)),
    opt("expireAfterSeconds", Types::NUMBER),
    // Settings of MongoDB's own engine: kept and shown, as with any other engine of MongoDB.
    opt("indexOptionDefaults", Types::OBJECT),
    opt("storageEngine", Types::OBJECT),
    refused("encryptedFields", Types::OBJECT),
    opt("changeStreamPreAndPostImages", Types::OBJECT),
    refused("temp", Types::SAFE_BOOL),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "create",
    doc: "Creates a collection or a view",
    kind: Kind::Ddl,
    target: Target::Collection,
    write_concern: true,
    api_v1: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidOptions, message)
}

/// The size and number limits of a capped collection.
fn capped(cx: &CommandContext<'_>) -> Result<Option<(u64, Option<u64>)>> {
    let a = &cx.args;
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

/// Everything about a collection, checked, as `listCollections` shows it.
fn options(cx: &CommandContext<'_>, collation: Option<&DocBuf>) -> Result<CollectionOptions> {
    let a = &cx.args;
    let mut o = CollectionOptions::default();
    let d = &mut o.document;
    if let Some((size, max)) = capped(cx)? {
        o.capped_size = Some(size);
        o.capped_max = max;
        d.append("capped", true);
        d.append("size", number::narrow(size as i64));
        if let Some(n) = max {
            d.append("max", number::narrow(n as i64));
        }
    }
    if let Some(i) = a.doc("changeStreamPreAndPostImages")
        && images(i)?
    {
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
    if let Some(v) = a.doc("validator").filter(|v| !v.is_empty()) {
        check_validator(cx.db(), cx.collection_name(), v)?;
        d.append("validator", v);
    }
    d.append_some("validationLevel", level);
    d.append_some("validationAction", action);
    d.append_some("collation", collation);
    if let Some(id) = a.doc("idIndex") {
        id_index(id, collation)?;
    }
    Ok(o)
}

/// The view that the arguments describe, if they do.
fn view(cx: &CommandContext<'_>, collation: Option<DocBuf>) -> Result<Option<View>> {
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
    for option in ["timeseries", "idIndex", "expireAfterSeconds", "clusteredIndex"] {
        if a.get(option).is_some() {
            return Err(invalid(format!(
                "'{option}' is not allowed with 'viewOn'"
            )));
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
        pipeline: check_view_pipeline(cx.db(), a.array("pipeline").unwrap_or(Doc::EMPTY))?,
        collation,
    }))
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    namespace::check_create(cx.db(), cx.collection_name())?;
    if cx.collection_name().starts_with("system.buckets.") && cx.args.get("timeseries").is_none() {
        return Err(Error::new(
            Code::IllegalOperation,
            "Creating a system.buckets collection without time-series options is not allowed",
        ));
    }
    let auto_index_id = cx.args.get("autoIndexId").is_some();
    if !cx.args.bool("autoIndexId", true) {
        return Err(Error::location(
            50001,
            format!(
                "autoIndexId:false is not allowed for collection {} because it can be replicated",
                cx.ns()
            ),
        ));
    }
    let collation = match cx.args.doc("collation") {
        Some(c) => collation::parse(c)?,
        None => None,
    };
    let options = options(cx, collation.as_ref())?;
    if let Some(view) = view(cx, collation)? {
        cx.engine().create_view(cx.ns(), &view)?;
        cx.note_write();
        return Ok(());
    }
    if cx.args.get("expireAfterSeconds").is_some() {
        return Err(invalid(
            "'expireAfterSeconds' is only supported on time-series collections or when the \
             'clusteredIndex' option is specified",
        ));
    }
    let wanted = options.document.clone();
    match cx.engine().create_collection(cx.ns(), options) {
        Ok(_) => {}
        Err(e) if e.code() == Code::NamespaceExists => {
            // The same collection again is no error.
            let same = cx
                .engine()
                .store
                .collection(cx.ns())
                .is_some_and(|c| c.options().document == wanted);
            if !same {
                return Err(e);
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
