//! `mapReduce`: JavaScript functions that map documents to keys and values and reduce the values
//! of each key.
//!
//! Old; kept for clients that still send it. All emitted values are held in memory, up to a limit.

use super::reduction::{Out, out, results, writing};
use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Explained, Kind, Routed, Target};
use muniment_auth::action::{Action, Actions};
use muniment_auth::resource::Target as On;
use muniment_exec::{
    AggregateRequest, CountRequest, Explainable, FindRequest, MapReduceRequest, Verbosity,
};
use muniment_value::args::{Args, Field, Types, idle, opt, req};
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, Value, array, doc, number};

/// A function: a string or code.
const FUNCTION: Types = Types::STRING.or(Types::CODE);

pub(super) const FIELDS: &[Field] = &[
    req("map", FUNCTION),
    req("reduce", FUNCTION),
    req("out", Types::STRING.or(Types::OBJECT)),
    opt("finalize", FUNCTION),
    opt("query", Types::OBJECT),
    opt("sort", Types::OBJECT),
    opt("limit", Types::NUMBER),
    opt("scope", Types::OBJECT),
    idle("jsMode", Types::SAFE_BOOL, "values are always converted"),
    idle("verbose", Types::SAFE_BOOL, "MongoDB ignores it since 4.4"),
    idle(
        "bypassDocumentValidation",
        Types::SAFE_BOOL,
        "there are no validators on the output",
    ),
    opt("collation", Types::OBJECT),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "mapReduce",
    doc: "Maps documents to keys and values and reduces the values of each key, in JavaScript",
    kind: Kind::Read,
    target: Target::Collection,
    write_concern: true,
    read_concern: true,
    fields: FIELDS,
    run,
    writes_output,
    explain: Some(explain),
    ..CommandSpec::new(
        Routed::By(crate::router::sharded::map_reduce::run),
        Needs::Of(needs),
    )
};

fn needs(asks: &Asks<'_>) -> bool {
    let into = |db: &str, name: &str| {
        let all = [Action::Insert, Action::Update, Action::Remove];
        asks.may(
            On::Collection(db, name),
            asks.with_bypass(Actions::of(&all)),
        )
    };
    let own = asks.request.db;
    let writes = match asks.request.body.get("out") {
        Some(Value::String(name)) => into(own, name),
        Some(Value::Document(d)) => {
            let db = d.get_str("db").unwrap_or(own);
            ["replace", "merge", "reduce"]
                .iter()
                .all(|how| d.get_str(how).is_none_or(|name| into(db, name)))
        }
        _ => true,
    };
    writes && asks.may_here(Actions::of(&[Action::Find]))
}

/// The find whose documents are mapped.
fn input<'a>(args: &Args<'a>, ns: &'a str) -> Result<FindRequest<'a>> {
    Ok(FindRequest {
        filter: args.doc("query").unwrap_or(Doc::EMPTY),
        sort: args.doc("sort").unwrap_or(Doc::EMPTY),
        limit: args
            .get("limit")
            .and_then(number::to_i64_clamped)
            .and_then(|n| u64::try_from(n).ok())
            .unwrap_or(0),
        collation: args.collation()?,
        ..FindRequest::new(ns)
    })
}

/// Maps and reduces the documents of this server.
fn own_results(cx: &CommandContext<'_>, args: &Args<'_>, ns: &str) -> Result<(Vec<DocBuf>, usize)> {
    let given = args.collation()?;
    let collation = cx.engine().source(ns)?.collation(ns, given.as_ref())?;
    let mut cursor = cx.engine().find(cx.op, &input(args, ns)?)?;
    results(cx, args, &collation, &mut || cursor.next_doc(cx.op))
}

/// The stages into which MongoDB translates the functions, for `explain`.
fn stages(args: &Args<'_>, out: &Out) -> Vec<DocBuf> {
    let body = |name: &str| args.get(name).unwrap_or(Value::Null);
    let emit = doc! { "eval": body("map"), "this": "$$ROOT" };
    let emits = doc! { "emits": doc! { "$_internalJsEmit": emit }, "_id": false };
    let reduce = doc! { "data": "$emits", "eval": body("reduce") };
    let value = doc! { "$_internalJsReduce": reduce };
    let mut all = vec![
        doc! { "$project": emits },
        doc! { "$unwind": doc! { "path": "$emits" } },
        doc! { "$group": doc! { "_id": "$emits.k", "value": value } },
    ];
    if let Some(body) = args.get("finalize") {
        let call = doc! { "body": body, "args": array!["$_id", "$value"], "lang": "js" };
        let value = doc! { "$function": call };
        all.push(doc! { "$project": doc! { "_id": true, "value": value } });
    }
    if let Out::Stage(stage, _) = out {
        all.push(stage.clone());
    }
    all
}

/// Explains the find that the command begins with, and the stages after it. For executionStats the functions
/// are called, unless their results would be written.
fn explain(cx: &mut CommandContext<'_>, of: &Explained<'_, '_>) -> Result<()> {
    let (args, ns) = (&of.args, of.namespace);
    let out = out(args, cx.db())?;
    let request = input(args, ns)?;
    let runs = of.verbosity > Verbosity::QueryPlanner && matches!(out, Out::Inline);
    let mut given = Vec::new();
    if runs {
        let (results, emitted) = own_results(cx, args, ns)?;
        let mapped = cx.engine().count(cx.op, &counting(&request))?;
        given = [
            mapped,
            emitted as u64,
            results.len() as u64,
            results.len() as u64,
        ]
        .to_vec();
    }
    let given = given.into_iter().map(Some).chain(std::iter::repeat(None));
    let stages: Vec<(DocBuf, Option<u64>)> = stages(args, &out).into_iter().zip(given).collect();
    let what = MapReduceRequest {
        find: &request,
        stages: &stages,
    };
    super::explain::answer(cx, &Explainable::MapReduce(&what), of.verbosity, of.command)
}

/// Whether the command writes its results into a collection.
fn writes_output(body: Doc<'_>) -> bool {
    let out = body.get_doc("out");
    out.is_none_or(|d| d.get("inline").is_none())
}

/// The count of the documents that this find gives.
fn counting<'a>(find: &FindRequest<'a>) -> CountRequest<'a> {
    CountRequest {
        filter: find.filter,
        limit: find.limit,
        collation: find.collation.clone(),
        ..CountRequest::new(find.namespace)
    }
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let out = out(&cx.args, cx.db())?;
    let (results, _) = own_results(cx, &cx.args, cx.ns())?;
    let results: ArrayBuf = results.into_iter().collect();
    match out {
        Out::Inline => {
            cx.reply.field("results", Value::Array(results.as_doc()));
        }
        Out::Stage(stage, name) => {
            let pipeline = writing(&results, stage);
            let request = AggregateRequest::new(cx.db(), pipeline.as_doc(), Doc::EMPTY);
            let mut cursor = cx.engine().aggregate(cx.op, &request)?;
            while cursor.next_doc(cx.op)?.is_some() {}
            cx.reply.field("result", name);
        }
    }
    Ok(())
}
