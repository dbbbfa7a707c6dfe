//! `update`.

use super::hint;
use crate::auth::{Asks, Needs};
use crate::commands::write_reply::{check_batch, report};
use crate::context::CommandContext;
use crate::metrics::OpKind;
use crate::registry::{CommandSpec, Explained, Kind, Routed, Statements, Target};
use crate::router::sharded::{spread::Writes, writes};
use muniment_auth::action::{Action, Actions};
use muniment_exec::{Explainable, UpdateStatement};
use muniment_value::args::{Args, Field, Types, opt, refused, req};
use muniment_value::{Doc, Error, Result, Value};

const FIELDS: &[Field] = &[
    opt("updates", Types::ARRAY),
    opt("stmtId", Types::NUMBER),
    opt("stmtIds", Types::ARRAY),
    opt("ordered", Types::BOOL),
    opt("bypassDocumentValidation", Types::SAFE_BOOL),
    opt("bypassEmptyTsReplacement", Types::SAFE_BOOL),
    opt("let", Types::OBJECT),
    refused("encryptionInformation", Types::OBJECT),
    refused("collectionUUID", Types::BINARY),
];

/// The fields of one statement.
const STATEMENT: &[Field] = &[
    req("q", Types::OBJECT),
    // Of any type: the parser of updates reports a wrong one itself (9 FailedToParse).
    req("u", Types::ANY),
    opt("c", Types::OBJECT),
    opt("multi", Types::SAFE_BOOL),
    opt("upsert", Types::SAFE_BOOL),
    opt("upsertSupplied", Types::SAFE_BOOL),
    opt("arrayFilters", Types::ARRAY),
    opt("hint", Types::ANY),
    opt("sort", Types::OBJECT),
    opt("collation", Types::OBJECT),
    refused("sampleId", Types::BINARY),
    refused(
        "allowShardKeyUpdatesWithoutFullShardKeyInQuery",
        Types::BOOL,
    ),
];

/// How many parsed statements of one command are kept until they run; later ones are parsed twice.
const KEPT: usize = 16;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "update",
    doc: "Changes documents",
    kind: Kind::Write,
    op: OpKind::Update,
    target: Target::Collection,
    write_concern: true,
    retryable_write: true,
    in_transactions: true,
    api_v1: true,
    fields: FIELDS,
    run,
    statements: Statements::List {
        field: "updates",
        many: |s| s.get("multi").is_some_and(|v| v.truthy()),
        many_text: "multi=true",
    },
    explain: Some(explain),
    ..CommandSpec::new(
        Routed::Shards(|cx, router, known| {
            // A wrong statement ends the command before anything is done.
            for d in cx.documents("updates")?.iter() {
                statement(d, Doc::EMPTY, false, false)?;
            }
            writes::run(cx, router, known, Writes::Updates)
        }),
        Needs::Of(needs),
    )
};

fn needs(asks: &Asks<'_>) -> bool {
    let upserts = |d: Doc<'_>| d.get("upsert").is_some_and(|v| v.truthy());
    let mut actions = Actions::of(&[Action::Update]);
    if asks.request.documents("updates").any(upserts) {
        actions.insert(Action::Insert);
    }
    asks.may_here(asks.with_bypass(actions))
}

/// Parses one element of `updates`.
pub(super) fn statement<'a>(
    d: Doc<'a>,
    let_: Doc<'a>,
    bypass_document_validation: bool,
    bypass_empty_ts_replacement: bool,
) -> Result<UpdateStatement<'a>> {
    let a = Args::parse("update.updates", STATEMENT, d)?;
    let multi = a.bool("multi", false);
    let update = a.get("u").unwrap_or(Value::Null);
    if a.get("c").is_some() && update.as_array().is_none() {
        return Err(Error::location(
            51198,
            "Constant values may only be specified for pipeline updates",
        ));
    }
    if multi && a.doc("sort").is_some() {
        return Err(Error::failed_to_parse(
            "Cannot specify sort with multi=true",
        ));
    }
    if a.bool("upsertSupplied", false) {
        return Err(Error::new(
            muniment_value::Code::NotImplemented,
            "BSON field 'update.updates.upsertSupplied' is not supported",
        ));
    }
    if let Value::Array(stages) = update {
        muniment_query::check_update_stages(stages)?;
    }
    let doc = |name: &str| a.doc(name).unwrap_or(Doc::EMPTY);
    Ok(UpdateStatement {
        multi,
        upsert: a.bool("upsert", false),
        hint: hint(&a)?,
        array_filters: a.array("arrayFilters").unwrap_or(Doc::EMPTY),
        sort: doc("sort"),
        constants: doc("c"),
        let_,
        collation: a.collation()?,
        bypass_document_validation,
        bypass_empty_ts_replacement,
        ..UpdateStatement::new(doc("q"), update)
    })
}

fn explain(cx: &mut CommandContext<'_>, of: &Explained<'_, '_>) -> Result<()> {
    let let_ = of.args.doc("let").unwrap_or(Doc::EMPTY);
    let statement = statement(
        super::explain::statement(cx, of, "updates")?,
        let_,
        false,
        false,
    )?;
    let what = Explainable::Update {
        namespace: of.namespace,
        statement: &statement,
    };
    super::explain::answer(cx, &what, of.verbosity, of.command)
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let updates = cx.documents("updates")?;
    check_batch(updates.len())?;
    crate::transactions::check_write(cx, cx.ns())?;
    crate::namespace::check_write(cx.db(), cx.collection_name())?;
    let let_ = cx.args.doc("let").unwrap_or(Doc::EMPTY);
    let bypass = cx.args.bool("bypassDocumentValidation", false);
    let empty = cx.args.bool("bypassEmptyTsReplacement", false);
    // All statements are parsed first, so that a malformed one fails the command before anything is written.
    // The first few are kept: most commands have no others, and parse none twice.
    let mut first = Vec::with_capacity(updates.len().min(KEPT));
    for (i, d) in updates.iter().enumerate() {
        let s = statement(d, let_, bypass, empty)?;
        if i < KEPT {
            first.push(s);
        }
    }
    let rest = updates.iter().skip(first.len());
    let mut statements = first
        .into_iter()
        .map(Ok)
        .chain(rest.map(|d| statement(d, let_, bypass, empty)));
    cx.op_count = Some(updates.len() as u64);
    let ordered = cx.args.bool("ordered", true);
    let outcome = cx
        .engine()
        .update_many(cx.op, cx.ns(), &mut statements, ordered);
    report(cx, &outcome, true)
}
