//! `aggregate`.

use super::cursor_reply::limits;
use crate::args::{Args, Field, Types, opt, refused, req};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Target};
use muniment_exec::{AggregateRequest, BatchLimits, Explainable, Hint, Verbosity};
use muniment_value::{Doc, Error, Result};

pub(super) const FIELDS: &[Field] = &[
    req("pipeline", Types::ARRAY),
    opt("cursor", Types::OBJECT),
    opt("explain", Types::SAFE_BOOL),
    opt("allowDiskUse", Types::SAFE_BOOL),
    opt("hint", Types::ANY),
    opt("let", Types::OBJECT),
    opt("bypassDocumentValidation", Types::SAFE_BOOL),
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
        bypass_document_validation: a.bool("bypassDocumentValidation", false),
    })
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
    let cursor = cx.engine().aggregate(cx.op, &request)?;
    let owner = cx.cursor_owner();
    cx.engine()
        .first_batch(cx.op, cursor, owner, limits, cx.reply.buffer())?;
    Ok(())
}
