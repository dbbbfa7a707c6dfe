//! `findAndModify`.

use super::hint;
use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Explained, Kind, Routed, Statements, Target};
use crate::router::sharded::modify;
use muniment_auth::action::{Action, Actions};
use muniment_exec::{Explainable, FindAndModifyRequest};
use muniment_value::args::{Args, Field, Types, opt};
use muniment_value::{Doc, Result};

pub(super) const FIELDS: &[Field] = &[
    opt("query", Types::OBJECT),
    opt("stmtId", Types::NUMBER),
    opt("sort", Types::OBJECT),
    opt("remove", Types::SAFE_BOOL),
    // Of any type: the parser of updates reports a wrong one itself (9 FailedToParse).
    opt("update", Types::ANY),
    opt("new", Types::SAFE_BOOL),
    opt("fields", Types::OBJECT),
    opt("upsert", Types::SAFE_BOOL),
    opt("arrayFilters", Types::ARRAY),
    opt("hint", Types::ANY),
    opt("let", Types::OBJECT),
    opt("bypassDocumentValidation", Types::SAFE_BOOL),
    opt("bypassEmptyTsReplacement", Types::SAFE_BOOL),
    opt("collation", Types::OBJECT),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "findAndModify",
    aliases: &["findandmodify"],
    doc: "Changes or deletes one document and returns it",
    kind: Kind::Write,
    target: Target::Collection,
    write_concern: true,
    retryable_write: true,
    read_concern: true,
    in_transactions: true,
    api_v1: true,
    fields: FIELDS,
    run,
    statements: Statements::One,
    explain: Some(explain),
    ..CommandSpec::new(
        Routed::Shards(|cx, router, known| {
            // Options that cannot go together end the command before a document is looked for.
            request(&cx.args, cx.ns())?.check()?;
            modify::run(cx, router, known)
        }),
        Needs::Of(needs),
    )
};

fn needs(asks: &Asks<'_>) -> bool {
    let mut actions = Actions::of(&[Action::Find]);
    match asks.has("remove") {
        true => actions.insert(Action::Remove),
        false => actions.insert(Action::Update),
    }
    if asks.has("upsert") {
        actions.insert(Action::Insert);
    }
    asks.may_here(asks.with_bypass(actions))
}

/// The request that the arguments describe.
pub(super) fn request<'a>(a: &Args<'a>, ns: &'a str) -> Result<FindAndModifyRequest<'a>> {
    let doc = |name: &str| a.doc(name).unwrap_or(Doc::EMPTY);
    Ok(FindAndModifyRequest {
        namespace: ns,
        filter: doc("query"),
        sort: doc("sort"),
        remove: a.bool("remove", false),
        update: a.get("update"),
        new: a.bool("new", false),
        fields: doc("fields"),
        upsert: a.bool("upsert", false),
        array_filters: a.array("arrayFilters").unwrap_or(Doc::EMPTY),
        hint: hint(a)?,
        let_: doc("let"),
        collation: a.collation()?,
        bypass_document_validation: a.bool("bypassDocumentValidation", false),
        bypass_empty_ts_replacement: a.bool("bypassEmptyTsReplacement", false),
    })
}

fn explain(cx: &mut CommandContext<'_>, of: &Explained<'_, '_>) -> Result<()> {
    let r = request(&of.args, of.namespace)?;
    super::explain::answer(
        cx,
        &Explainable::FindAndModify(&r),
        of.verbosity,
        of.command,
    )
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let request = request(&cx.args, cx.ns())?;
    crate::transactions::check_write(cx, cx.ns())?;
    crate::namespace::check_write(cx.db(), cx.collection_name())?;
    if let Some(u) = request.update {
        // `multi` is false: only one document is updated.
        cx.engine()
            .check_series_update(cx.ns(), u, false, request.upsert)?;
    }
    let outcome = cx.engine().find_and_modify(cx.op, &request)?;
    cx.note_commit(outcome.commit);
    cx.reply.elements(outcome.to_doc().as_doc());
    Ok(())
}
