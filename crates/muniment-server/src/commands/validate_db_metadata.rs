//! `validateDBMetadata`: lists the parts of the catalog that an API version does not have.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::namespace;
use crate::registry::{CommandSpec, Routed};
use crate::router::forward::ask;
use crate::router::{Reach, Router};
use muniment_auth::action::Action;
use muniment_auth::resource::Target as On;
use muniment_storage::IndexSpec;
use muniment_value::args::{Args, Field, Types, check_type, opt, req};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
use muniment_wire::client;
use std::collections::BTreeMap;

const FIELDS: &[Field] = &[
    req("apiParameters", Types::OBJECT),
    opt("db", Types::STRING),
    opt("collection", Types::STRING),
];

const PARAMETERS: &[Field] = &[
    req("version", Types::STRING),
    // Of any type: a null is refused as no boolean, and does not count as missing.
    opt("strict", Types::ANY),
    opt("deprecationErrors", Types::ANY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "validateDBMetadata",
    doc: "Indexes that an API version does not have",
    api_v1: true,
    fields: FIELDS,
    run,
    ..CommandSpec::new(
        Routed::By(over_shards),
        Needs::Of(|asks| {
            let db = asks.request.body.get_str("db").unwrap_or_default();
            asks.may_one(On::Database(db), Action::Validate)
        }),
    )
};

/// Checks the name of a database, which may be one that could not be created.
fn check_db(db: &str) -> Result<()> {
    if db.is_empty() {
        return Err(Error::location(28539, "db name is empty"));
    }
    if db.contains(['.', '\0']) || db.len() >= namespace::MAX_DB {
        return Err(Error::new(
            Code::InvalidNamespace,
            format!("Invalid database name: '{db}'"),
        ));
    }
    if db.contains([' ', '/', '\\', '"']) {
        return Err(Error::location(13280, format!("invalid db name: {db}")));
    }
    Ok(())
}

/// Whether version 1 of the Stable API has such an index.
fn allowed(spec: &IndexSpec) -> bool {
    let text = spec
        .key
        .as_doc()
        .iter()
        .any(|e| matches!(e.value(), Value::String("text")));
    !text && !spec.sparse
}

/// Asks all shards. A sharded collection has the same indexes on each.
fn over_shards(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let mut errors: BTreeMap<String, Vec<DocBuf>> = BTreeMap::new();
    for (_, set) in router.catalog.shards(&**cx.op, router)? {
        let reply = ask(cx, router, &set, cx.request.body, Reach::Primary)?;
        let body = reply.body.as_doc();
        client::check_ok(body)?;
        let of_shard = body.get_array("apiVersionErrors").unwrap_or(Doc::EMPTY);
        let mut told: BTreeMap<String, Vec<DocBuf>> = BTreeMap::new();
        for d in of_shard.values().filter_map(|v| v.as_doc()) {
            let ns = d.get_str("ns").unwrap_or_default();
            told.entry(ns.to_string()).or_default().push(d.to_buf());
        }
        for (ns, of_collection) in told {
            errors.entry(ns).or_insert(of_collection);
        }
    }
    let errors: ArrayBuf = errors.into_values().flatten().collect();
    cx.reply.field("apiVersionErrors", errors);
    Ok(())
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let parameters = cx.args.doc("apiParameters").unwrap_or(Doc::EMPTY);
    let parameters = Args::parse("validateDBMetadata.apiParameters", PARAMETERS, parameters)?;
    for name in ["strict", "deprecationErrors"] {
        if let Some(v) = parameters.get(name) {
            check_type(
                "validateDBMetadata.apiParameters",
                name,
                Types::BOOL,
                v.ty(),
            )?;
        }
    }
    let (db, collection) = (cx.args.str("db"), cx.args.str("collection"));
    if let Some(db) = db {
        check_db(db)?;
    }
    if let Some(c) = collection {
        namespace::lenient(Value::String(c))?;
    }
    let mut errors = ArrayBuf::new();
    if parameters.str("version") == Some("1") && parameters.bool("strict", false) {
        let store = &cx.engine().store;
        let databases = match db {
            Some(db) => vec![db.to_string()],
            None => store.databases(),
        };
        for c in databases.iter().flat_map(|db| store.collections(db)) {
            let ns = c.namespace();
            let name = ns.split_once('.').map_or("", |(_, name)| name);
            if collection.is_some_and(|wanted| wanted != name) {
                continue;
            }
            for index in c.indexes().iter() {
                let spec = index.spec();
                if !allowed(&spec) {
                    errors.push(doc! {
                        "ns": ns.as_str(),
                        "code": Code::APIStrictError.0,
                        "codeName": "APIStrictError",
                        "errmsg": format!(
                            "The index with name {} is not allowed in API version 1.",
                            spec.name
                        ),
                    });
                }
            }
        }
    }
    cx.reply.field("apiVersionErrors", errors);
    Ok(())
}
