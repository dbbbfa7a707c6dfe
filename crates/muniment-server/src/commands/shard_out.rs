//! `_shardOut`: a router has a shard keep the documents of an `$out`, step by step.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use bytes::Bytes;
use muniment_exec::HalfWritten;
use muniment_query::QueryContext;
use muniment_query::stage::out::OutSpec;
use muniment_value::args::{Types, opt, req, uuid};
use muniment_value::{Doc, DocBuf, Error, Result, Value, doc, number};

/// The command. The target's name is its first element.
///
/// - `step: "begin"` makes a collection with a name of its own, and returns it as `half`. `timeseries` has the options
///   of a time-series collection.
/// - `step: "write"` puts `documents` into it.
/// - `step: "finish"` has it take the target's name, in one step.
/// - `step: "discard"` drops it.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardOut",
    doc: "Internal: a router has a shard keep the documents of an $out, step by step",
    kind: Kind::Ddl,
    target: Target::Collection,
    write_concern: true,
    makes_collections: true,
    logged_when_slow: false,
    profiled: false,
    fields: &[
        req("step", Types::STRING),
        opt("timeseries", Types::OBJECT),
        opt("half", Types::OBJECT),
        opt("documents", Types::ARRAY),
        opt("bypassDocumentValidation", Types::SAFE_BOOL),
    ],
    run,
    ..CommandSpec::new(Routed::Refused, Needs::Member)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let outputs = &cx.server.outputs;
    let step = cx.args.str("step").unwrap_or_default();
    if step == "begin" {
        let mut operand = doc! { "db": cx.db(), "coll": cx.collection_name() };
        operand.append_some("timeseries", cx.args.doc("timeseries"));
        let spec = OutSpec::parse(Value::Document(operand.as_doc()), &QueryContext::new())?;
        let half = cx.engine().begin_out(cx.op, &spec)?;
        outputs.used(&half);
        cx.note_write();
        cx.reply.field("half", to_doc(&half));
        return Ok(());
    }
    let half = of_doc(cx)?;
    match step {
        "write" => {
            outputs.used(&half);
            let docs = cx.request.documents("documents");
            let docs: Vec<Bytes> = docs.map(|d| Bytes::copy_from_slice(d.as_bytes())).collect();
            let bypass = cx.args.bool("bypassDocumentValidation", false);
            cx.engine().write_out(cx.op, &half, &docs, bypass)?;
        }
        "finish" => {
            cx.engine().finish_out(cx.op, &half)?;
            outputs.ended(&half);
        }
        _ => {
            cx.engine().discard_out(&half);
            outputs.ended(&half);
        }
    }
    cx.note_write();
    Ok(())
}

fn to_doc(half: &HalfWritten) -> DocBuf {
    let binary = |bytes| Value::Binary { subtype: 4, bytes };
    let mut d = doc! {
        "temporary": half.temporary.as_str(), "made": binary(&half.made), "first": half.first,
    };
    if let Some((uuid, generation)) = &half.before {
        d.append("before", binary(uuid));
        d.append("generation", *generation as i64);
    }
    d
}

fn of_doc(cx: &CommandContext<'_>) -> Result<HalfWritten> {
    let d = cx.args.doc("half").unwrap_or(Doc::EMPTY);
    let id = |name: &str| d.get(name).map(|v| uuid("_shardOut", name, v)).transpose();
    let generation = d.get("generation").and_then(number::to_i64_exact);
    Ok(HalfWritten {
        target: cx.ns().to_string(),
        temporary: d.get_str("temporary").unwrap_or_default().to_string(),
        made: id("made")?.ok_or_else(|| Error::bad_value("the step is one of no collection"))?,
        before: id("before")?.zip(generation.map(|n| n as u64)),
        first: d.get("first").is_some_and(|v| v.truthy()),
    })
}
