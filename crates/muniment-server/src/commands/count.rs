//! `count`.

use super::hint;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Explained, Kind, Routed, Target};
use muniment_auth::action::Action;
use muniment_exec::{CountRequest, Explainable};
use muniment_value::args::{Args, Field, Types, idle, opt, refused};
use muniment_value::{Doc, Error, Result, number};

pub(super) const FIELDS: &[Field] = &[
    opt("query", Types::OBJECT),
    opt("limit", Types::ANY),
    opt("skip", Types::NUMBER),
    opt("hint", Types::ANY),
    opt("let", Types::OBJECT),
    idle(
        "fields",
        Types::ANY,
        "MongoDB takes it for old shells and ignores it",
    ),
    opt("collation", Types::OBJECT),
    refused("collectionUUID", Types::BINARY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "count",
    doc: "Counts the documents that match a filter",
    kind: Kind::Read,
    target: Target::CollectionOrUuid,
    read_concern: true,
    api_v1: true,
    fields: FIELDS,
    precheck,
    is_read_operation: |_| true,
    run,
    instead_in_transactions: "Please see http://dochub.mongodb.org/core/transaction-count for a \
                              recommended alternative.",
    explain: Some(explain),
    on_view: Some(|a, (ns, _, _)| Explainable::Count(&request(a, ns)?).stages()),
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::reads::count),
        Needs::collection(&[Action::Find]),
    )
};

/// `limit` is parsed by rules of its own: a whole number whose absolute value fits.
fn precheck(body: Doc<'_>) -> Result<()> {
    let Some(v) = body.get("limit") else {
        return Ok(());
    };
    if !v.is_number() {
        return Err(Error::bad_value("limit value is not a valid number"));
    }
    match number::to_i64_exact(v) {
        None => Err(Error::failed_to_parse(format!(
            "limit value is not a whole number of 64 bits: {}",
            v.to_display()
        ))),
        Some(i64::MIN) => Err(Error::bad_value("limit value has no absolute value")),
        Some(_) => Ok(()),
    }
}

/// The request that the arguments describe.
pub(super) fn request<'a>(a: &Args<'a>, ns: &'a str) -> Result<CountRequest<'a>> {
    Ok(CountRequest {
        namespace: ns,
        filter: a.doc("query").unwrap_or(Doc::EMPTY),
        skip: a.int("skip", 0, i64::MAX)?.unwrap_or(0) as u64,
        // A negative limit counts as its absolute value.
        limit: a
            .int("limit", i64::MIN, i64::MAX)?
            .unwrap_or(0)
            .unsigned_abs(),
        hint: hint(a)?,
        let_: a.doc("let").unwrap_or(Doc::EMPTY),
        collation: a.collation()?,
    })
}

fn explain(cx: &mut CommandContext<'_>, of: &Explained<'_, '_>) -> Result<()> {
    let r = request(&of.args, of.namespace)?;
    super::explain::answer(cx, &Explainable::Count(&r), of.verbosity, of.command)
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    cx.replan(answer)
}

fn answer(cx: &mut CommandContext<'_>) -> Result<()> {
    let request = request(&cx.args, cx.ns())?;
    let n = cx.engine().count(cx.op, &request)?;
    cx.reply.field("n", number::narrow(n as i64));
    Ok(())
}
