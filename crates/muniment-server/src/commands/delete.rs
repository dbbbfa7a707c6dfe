//! `delete`.

use super::hint;
use crate::auth::Needs;
use crate::commands::write_reply::{check_batch, report};
use crate::context::CommandContext;
use crate::metrics::OpKind;
use crate::registry::{CommandSpec, Explained, Kind, Routed, Statements, Target};
use crate::router::sharded::{spread::Writes, writes};
use muniment_auth::action::Action;
use muniment_exec::{DeleteStatement, Explainable};
use muniment_value::args::{Args, Field, Types, idle, opt, refused, req};
use muniment_value::{Doc, Error, Result, number};

const FIELDS: &[Field] = &[
    opt("deletes", Types::ARRAY),
    opt("stmtId", Types::NUMBER),
    opt("stmtIds", Types::ARRAY),
    opt("ordered", Types::BOOL),
    opt("let", Types::OBJECT),
    idle(
        "bypassDocumentValidation",
        Types::SAFE_BOOL,
        "what is deleted is not validated",
    ),
    refused("encryptionInformation", Types::OBJECT),
    refused("collectionUUID", Types::BINARY),
];

/// The fields of one statement.
const STATEMENT: &[Field] = &[
    req("q", Types::OBJECT),
    req("limit", Types::NUMBER),
    opt("hint", Types::ANY),
    opt("collation", Types::OBJECT),
    refused("sampleId", Types::BINARY),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "delete",
    doc: "Deletes documents",
    kind: Kind::Write,
    op: OpKind::Delete,
    target: Target::Collection,
    write_concern: true,
    retryable_write: true,
    in_transactions: true,
    api_v1: true,
    fields: FIELDS,
    run,
    statements: Statements::List {
        field: "deletes",
        many: |s| s.get("limit").and_then(number::to_i64_exact) == Some(0),
        many_text: "limit=0",
    },
    explain: Some(explain),
    ..CommandSpec::new(
        Routed::Shards(|cx, router, known| {
            // A wrong statement ends the command before anything is done.
            for d in cx.documents("deletes")?.iter() {
                statement(d, Doc::EMPTY)?;
            }
            writes::run(cx, router, known, Writes::Deletes)
        }),
        Needs::collection(&[Action::Remove]),
    )
};

/// Parses one element of `deletes`.
pub(super) fn statement<'a>(d: Doc<'a>, let_: Doc<'a>) -> Result<DeleteStatement<'a>> {
    let a = Args::parse("delete.deletes", STATEMENT, d)?;
    let limit = a.get("limit").and_then(number::to_i64_exact);
    let multi = match limit {
        Some(0) => true,
        Some(1) => false,
        _ => {
            return Err(Error::failed_to_parse(format!(
                "The limit field in delete objects must be 0 or 1. Got {}",
                a.get("limit").map(|v| v.to_display()).unwrap_or_default()
            )));
        }
    };
    Ok(DeleteStatement {
        filter: a.doc("q").unwrap_or(Doc::EMPTY),
        multi,
        hint: hint(&a)?,
        let_,
        collation: a.collation()?,
    })
}

fn explain(cx: &mut CommandContext<'_>, of: &Explained<'_, '_>) -> Result<()> {
    let let_ = of.args.doc("let").unwrap_or(Doc::EMPTY);
    let statement = statement(super::explain::statement(cx, of, "deletes")?, let_)?;
    let what = Explainable::Delete {
        namespace: of.namespace,
        statement: &statement,
    };
    super::explain::answer(cx, &what, of.verbosity, of.command)
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    crate::transactions::check_write(cx, cx.ns())?;
    crate::namespace::check_write(cx.db(), cx.collection_name())?;
    let deletes = cx.documents("deletes")?;
    check_batch(deletes.len())?;
    let let_ = cx.args.doc("let").unwrap_or(Doc::EMPTY);
    for d in deletes.iter() {
        statement(d, let_)?;
    }
    cx.op_count = Some(deletes.len() as u64);
    let ordered = cx.args.bool("ordered", true);
    let outcome = cx.engine().delete_many(
        cx.op,
        cx.ns(),
        &mut deletes.iter().map(|d| statement(d, let_)),
        ordered,
    );
    report(cx, &outcome, false)
}
