//! `distinct`.

use super::hint;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Explained, Kind, Routed, Target};
use muniment_auth::action::Action;
use muniment_exec::{DistinctRequest, Explainable};
use muniment_value::args::{Args, Field, Types, opt, refused, req};
use muniment_value::{Doc, Error, Result, Value};

pub(super) const FIELDS: &[Field] = &[
    req("key", Types::STRING),
    opt("query", Types::OBJECT),
    opt("hint", Types::ANY),
    opt("let", Types::OBJECT),
    opt("collation", Types::OBJECT),
    refused("collectionUUID", Types::BINARY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "distinct",
    doc: "The distinct values of a field",
    kind: Kind::Read,
    target: Target::CollectionOrUuid,
    read_concern: true,
    in_transactions: true,
    fields: FIELDS,
    is_read_operation: |_| true,
    run,
    snapshot_reads: true,
    explain: Some(explain),
    on_view: Some(|a, (ns, _, _)| Explainable::Distinct(&request(a, ns)?).stages()),
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::reads::distinct),
        Needs::collection(&[Action::Find]),
    )
};

/// The request that the arguments describe.
pub(super) fn request<'a>(a: &Args<'a>, ns: &'a str) -> Result<DistinctRequest<'a>> {
    if a.str("key").is_some_and(|k| k.contains('\0')) {
        return Err(Error::location(
            31032,
            "Key field cannot contain an embedded null byte",
        ));
    }
    Ok(DistinctRequest {
        namespace: ns,
        key: a.str("key").unwrap_or_default(),
        filter: a.doc("query").unwrap_or(Doc::EMPTY),
        hint: hint(a)?,
        let_: a.doc("let").unwrap_or(Doc::EMPTY),
        collation: a.collation()?,
    })
}

fn explain(cx: &mut CommandContext<'_>, of: &Explained<'_, '_>) -> Result<()> {
    let r = request(&of.args, of.namespace)?;
    super::explain::answer(cx, &Explainable::Distinct(&r), of.verbosity, of.command)
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    cx.replan(answer)
}

fn answer(cx: &mut CommandContext<'_>) -> Result<()> {
    let request = request(&cx.args, cx.ns())?;
    let values = cx.engine().distinct(cx.op, &request)?;
    cx.reply.field("values", values);
    if let Some(view) = cx.op.pinned() {
        let at = view.timestamp();
        let (t, i) = (at.seconds(), at.increment());
        cx.reply.field("atClusterTime", Value::Timestamp { t, i });
    }
    if cx.source()?.is_view_like() {
        // MongoDB makes this reply out of that of an aggregation, whose `ok` is an int.
        cx.reply.field("ok", 1);
        cx.said_ok = true;
    }
    Ok(())
}
