//! `find`.

use super::hint;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::metrics::OpKind;
use crate::registry::{CommandSpec, Explained, Kind, Routed, Target};
use muniment_auth::action::Action;
use muniment_exec::{BatchLimits, Explainable, FindRequest};
use muniment_value::args::{Args, Field, Types, check_type, idle, opt};
use muniment_value::{Doc, Error, Result};

pub(super) const FIELDS: &[Field] = &[
    // Of any type, since a null is accepted and means no filter.
    opt("filter", Types::ANY),
    opt("projection", Types::OBJECT),
    opt("sort", Types::OBJECT),
    opt("hint", Types::ANY),
    opt("skip", Types::NUMBER),
    opt("limit", Types::NUMBER),
    opt("batchSize", Types::NUMBER),
    opt("singleBatch", Types::SAFE_BOOL),
    opt("min", Types::OBJECT),
    opt("max", Types::OBJECT),
    opt("returnKey", Types::SAFE_BOOL),
    opt("showRecordId", Types::SAFE_BOOL),
    opt("tailable", Types::SAFE_BOOL),
    opt("awaitData", Types::SAFE_BOOL),
    opt("noCursorTimeout", Types::SAFE_BOOL),
    opt("allowDiskUse", Types::SAFE_BOOL),
    opt("let", Types::OBJECT),
    opt("collation", Types::OBJECT),
    idle(
        "allowPartialResults",
        Types::SAFE_BOOL,
        "one server has all results",
    ),
    idle("oplogReplay", Types::SAFE_BOOL, "ignored since MongoDB 4.4"),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "find",
    doc: "Returns the documents that match a filter",
    kind: Kind::Read,
    op: OpKind::Query,
    target: Target::CollectionOrUuid,
    read_concern: true,
    in_transactions: true,
    api_v1: true,
    fields: FIELDS,
    is_read_operation: |_| true,
    run,
    snapshot_reads: true,
    explain: Some(explain),
    on_view: Some(|a, (ns, _, _)| Explainable::Find(&request(a, ns)?).stages()),
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::find::run),
        Needs::collection(&[Action::Find]),
    )
};

/// The request that the arguments describe.
pub(super) fn request<'a>(a: &Args<'a>, ns: &'a str) -> Result<FindRequest<'a>> {
    let limit = a.int("limit", i64::MIN, i64::MAX)?.unwrap_or(0);
    if limit < 0 {
        return Err(Error::bad_value(format!(
            "BSON field 'limit' value must be >= 0, actual value '{limit}'"
        )));
    }
    if let Some(v) = a.get("filter") {
        check_type("find", "filter", Types::OBJECT, v.ty())?;
    }
    let doc = |name: &str| a.doc(name).unwrap_or(Doc::EMPTY);
    let request = FindRequest {
        filter: doc("filter"),
        projection: doc("projection"),
        sort: doc("sort"),
        skip: a.int("skip", 0, i64::MAX)?.unwrap_or(0) as u64,
        limit: limit as u64,
        hint: hint(a)?,
        min: doc("min"),
        max: doc("max"),
        return_key: a.bool("returnKey", false),
        show_record_id: a.bool("showRecordId", false),
        tailable: a.bool("tailable", false),
        await_data: a.bool("awaitData", false),
        no_cursor_timeout: a.bool("noCursorTimeout", false),
        single_batch: a.bool("singleBatch", false),
        batched: a.get("batchSize").is_some(),
        allow_disk_use: a.get("allowDiskUse").map(|v| v.truthy()),
        let_: doc("let"),
        collation: a.collation()?,
        ..FindRequest::new(ns)
    };
    if request.await_data && !request.tailable {
        return Err(Error::failed_to_parse(
            "Cannot set 'awaitData' without also setting 'tailable'",
        ));
    }
    if request.tailable && request.single_batch {
        return Err(Error::bad_value(
            "cannot use tailable option with the 'singleBatch' option",
        ));
    }
    Ok(request)
}

fn explain(cx: &mut CommandContext<'_>, of: &Explained<'_, '_>) -> Result<()> {
    let r = request(&of.args, of.namespace)?;
    super::explain::answer(cx, &Explainable::Find(&r), of.verbosity, of.command)
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    cx.replan(answer)
}

fn answer(cx: &mut CommandContext<'_>) -> Result<()> {
    let request = FindRequest {
        sort_key: cx.op.is_merged(),
        ..request(&cx.args, cx.ns())?
    };
    let limits = match cx.args.int("batchSize", 0, i64::MAX)? {
        Some(n) => BatchLimits::of(n as usize),
        None => BatchLimits::FIRST,
    };
    let cursor = cx.engine().find(cx.op, &request)?;
    cx.first_batch(cursor, limits)?;
    Ok(())
}
