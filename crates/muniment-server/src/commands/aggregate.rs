//! `aggregate`.

use super::cursor_reply::limits;
use crate::args::{Args, Field, Types, idle, opt, refused, req};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Target};
use muniment_exec::{AggregateRequest, BatchLimits, Explainable, Hint, Verbosity};
use muniment_value::{Doc, DocBuf, Error, Result, Value, doc};

pub(super) const FIELDS: &[Field] = &[
    req("pipeline", Types::ARRAY),
    opt("cursor", Types::OBJECT),
    opt("explain", Types::SAFE_BOOL),
    opt("allowDiskUse", Types::SAFE_BOOL),
    opt("hint", Types::ANY),
    opt("let", Types::OBJECT),
    idle(
        "bypassDocumentValidation",
        Types::SAFE_BOOL,
        "there are no validators",
    ),
    refused("collation", Types::OBJECT),
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
    target: Target::CollectionOrDatabase,
    write_concern: true,
    read_concern: true,
    api_v1: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

/// The request that the arguments describe.
pub(super) fn request<'a>(
    a: &Args<'a>,
    db: &'a str,
    collection: Option<&'a str>,
) -> Result<AggregateRequest<'a>> {
    Ok(AggregateRequest {
        db,
        collection,
        pipeline: a.array("pipeline").unwrap_or(Doc::EMPTY),
        hint: match a.get("hint") {
            Some(v) => Hint::parse(v)?,
            None => None,
        },
        allow_disk_use: a.get("allowDiskUse").map(|v| v.truthy()),
        let_: a.doc("let").unwrap_or(Doc::EMPTY),
    })
}

/// The documents of a leading stage that only the server can answer.
fn own_stage(cx: &CommandContext<'_>, pipeline: Doc<'_>) -> Result<Option<Vec<DocBuf>>> {
    let first = pipeline
        .values()
        .next()
        .and_then(|v| v.as_doc())
        .and_then(|d| d.first());
    let Some(stage) = first else { return Ok(None) };
    let collectionless = cx.target().is_number();
    match stage.name() {
        "$collStats" if !collectionless => {
            super::coll_stats::stage(cx, stage.value()).map(|d| Some(vec![d]))
        }
        "$listLocalSessions" if collectionless => Ok(Some(local_sessions(cx))),
        _ => Ok(None),
    }
}

/// SHA-256 of nothing: the digest of the user that is nobody.
const NOBODY: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

fn local_sessions(cx: &CommandContext<'_>) -> Vec<DocBuf> {
    let now = crate::log::now_ms();
    let describe = |(id, idle): ([u8; 16], std::time::Duration)| {
        doc! {
            "_id": doc! {
                "id": Value::Binary { subtype: 4, bytes: &id },
                "uid": Value::Binary { subtype: 0, bytes: &NOBODY },
            },
            "lastUse": Value::DateTime(now - idle.as_millis() as i64),
        }
    };
    cx.server.sessions.list().into_iter().map(describe).collect()
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let collection = Some(cx.collection_name()).filter(|c| !c.is_empty());
    let request = request(&cx.args, cx.db(), collection)?;
    if cx.args.bool("explain", false) {
        let what = Explainable::Aggregate(&request);
        return super::explain::answer(cx, &what, Verbosity::QueryPlanner, cx.request.body);
    }
    if cx.args.doc("cursor").is_none() {
        return Err(Error::failed_to_parse(
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    }
    let limits = limits(cx.args.doc("cursor"), BatchLimits::FIRST)?;
    let cursor = match own_stage(cx, request.pipeline)? {
        Some(documents) => {
            let documents = documents.into_iter().map(|d| d.into_bytes().into());
            cx.engine()
                .aggregate_over(cx.op, &request, documents.collect())?
        }
        None => cx.engine().aggregate(cx.op, &request)?,
    };
    let owner = cx.cursor_owner();
    cx.engine()
        .first_batch(cx.op, cursor, owner, limits, cx.reply.buffer())?;
    Ok(())
}
