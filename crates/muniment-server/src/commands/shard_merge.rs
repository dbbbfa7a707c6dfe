//! `_shardMerge`: a router has a shard write documents of a `$merge`.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed, Target};
use muniment_exec::{BulkOutcome, MergeRequest};
use muniment_value::args::{Types, opt, req};
use muniment_value::{ArrayBuf, Doc, Result, Value};

/// The command: `{_shardMerge: <target>, operand, documents, byKey?, let?, collation?, now?, …}`. Without documents, it
/// checks whether the target can be written to. The reply's `failed` has the documents that were not written, with the
/// errors, as `writeErrors` has them; the first one counts.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardMerge",
    doc: "Internal: a router has a shard write documents of a $merge",
    kind: Kind::Write,
    target: Target::Collection,
    write_concern: true,
    logged_when_slow: false,
    profiled: false,
    fields: &[
        req("operand", Types::OBJECT),
        opt("documents", Types::ARRAY),
        opt("byKey", Types::BOOL),
        opt("let", Types::OBJECT),
        opt("collation", Types::OBJECT),
        opt("now", Types::LONG),
        opt("bypassDocumentValidation", Types::SAFE_BOOL),
    ],
    run,
    ..CommandSpec::new(Routed::Refused, Needs::Member)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let docs: Vec<Doc<'_>> = cx.request.documents("documents").collect();
    cx.op_count = Some(docs.len() as u64);
    let request = MergeRequest {
        operand: cx.args.doc("operand").unwrap_or(Doc::EMPTY),
        db: cx.db(),
        by_key: cx.args.bool("byKey", false),
        docs,
        let_: cx.args.doc("let").unwrap_or(Doc::EMPTY),
        collation: cx.args.collation()?.unwrap_or_default(),
        now_ms: match cx.args.get("now") {
            Some(Value::Int64(ms)) => Some(ms),
            _ => None,
        },
        bypass_document_validation: cx.args.bool("bypassDocumentValidation", false),
    };
    let merged = cx.engine().merge(cx.op, &request)?;
    if !request.docs.is_empty() {
        cx.note_write();
    }
    let mut failed = BulkOutcome::default();
    for (place, e) in &merged.failed {
        failed.fail(*place, e);
    }
    let failed: ArrayBuf = failed.errors.iter().map(|e| e.to_doc()).collect();
    cx.reply.field("failed", failed);
    cx.reply.field("sparse", merged.sparse);
    Ok(())
}
