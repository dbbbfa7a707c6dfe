//! `insert`.

use crate::auth::Needs;
use crate::commands::write_reply::{check_batch, report};
use crate::context::CommandContext;
use crate::metrics::OpKind;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Routed, Statements, Target};
use crate::router::sharded::{spread::Writes, writes};
use muniment_auth::action::{Action, Actions};
use muniment_exec::InsertOptions;
use muniment_value::Result;
use muniment_value::args::{Field, Types, opt, refused};

const FIELDS: &[Field] = &[
    opt("documents", Types::ARRAY),
    opt("stmtId", Types::NUMBER),
    opt("stmtIds", Types::ARRAY),
    opt("ordered", Types::BOOL),
    opt("bypassDocumentValidation", Types::SAFE_BOOL),
    opt("bypassEmptyTsReplacement", Types::SAFE_BOOL),
    refused("encryptionInformation", Types::OBJECT),
    refused("collectionUUID", Types::BINARY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "insert",
    doc: "Inserts documents",
    kind: Kind::Write,
    op: OpKind::Insert,
    target: Target::Collection,
    write_concern: true,
    retryable_write: true,
    in_transactions: true,
    api_v1: true,
    fields: FIELDS,
    run,
    statements: Statements::List {
        field: "documents",
        many: |_| false,
        many_text: "",
    },
    ..CommandSpec::new(
        Routed::Shards(|cx, router, known| writes::run(cx, router, known, Writes::Inserts)),
        Needs::Of(|asks| asks.may_here(asks.with_bypass(Actions::of(&[Action::Insert])))),
    )
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let documents = cx.documents("documents")?;
    check_batch(documents.len())?;
    crate::transactions::check_write(cx, cx.ns())?;
    namespace::check_write(cx.db(), cx.collection_name())?;
    let options = InsertOptions {
        ordered: cx.args.bool("ordered", true),
        bypass_document_validation: cx.args.bool("bypassDocumentValidation", false),
        bypass_empty_ts_replacement: cx.args.bool("bypassEmptyTsReplacement", false),
        only: None,
    };
    cx.op_count = Some(documents.len() as u64);
    let outcome = cx
        .engine()
        .insert_many(cx.op, cx.ns(), &|| documents.iter(), options)?;
    report(cx, &outcome, false)
}
