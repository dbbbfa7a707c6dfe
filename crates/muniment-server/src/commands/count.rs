//! `count`.

use crate::args::{Args, Field, Types, idle, opt, refused};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Target};
use muniment_exec::{CountRequest, Hint};
use muniment_value::{Doc, Result, number};

pub(super) const FIELDS: &[Field] = &[
    opt("query", Types::OBJECT),
    opt("limit", Types::NUMBER),
    opt("skip", Types::NUMBER),
    opt("hint", Types::ANY),
    opt("let", Types::OBJECT),
    idle("fields", Types::ANY, "MongoDB takes it for old shells and ignores it"),
    refused("collation", Types::OBJECT),
    refused("collectionUUID", Types::BINARY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "count",
    doc: "Counts the documents that match a filter",
    kind: Kind::Read,
    target: Target::Collection,
    read_concern: true,
    api_v1: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

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
        hint: match a.get("hint") {
            Some(v) => Hint::parse(v)?,
            None => None,
        },
        let_: a.doc("let").unwrap_or(Doc::EMPTY),
    })
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let request = request(&cx.args, cx.ns())?;
    let n = cx.engine().count(cx.op, &request)?;
    cx.reply.field("n", number::narrow(n as i64));
    Ok(())
}
