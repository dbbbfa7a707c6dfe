//! `mapReduce`: JavaScript functions that map documents to keys and values and reduce the values
//! of each key.
//!
//! Old; kept for clients that still send it. All emitted values are held in memory, up to a limit.

use crate::auth::{Asks, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Explained, Kind, Routed, Target};
use muniment_auth::action::{Action, Actions};
use muniment_auth::resource::Target as On;
use muniment_exec::{
    AggregateRequest, CountRequest, Explainable, FindRequest, MapReduceRequest, Verbosity,
};
use muniment_query::running::Work;
use muniment_value::args::{Args, Field, Types, idle, opt, req};
use muniment_value::{
    ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, ValueBuf, array, doc, number,
};
use std::sync::Arc;

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
        Routed::Shards(crate::router::sharded::ddl::refused),
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

/// The most that the emitted pairs may take, in bytes.
const MAX_EMITTED: usize = 100 << 20;

/// How many documents are mapped before the emitted pairs are fetched and counted against the limit.
const MAPPED_AT_ONCE: usize = 100;

/// Where the results go.
enum Out {
    Inline,
    /// A stage (`$merge` or `$out`) that writes the results, and the reply's `result`.
    Stage(DocBuf, ValueBuf),
}

fn out(args: &Args<'_>, own: &str) -> Result<Out> {
    let v = args.get("out");
    let replace = |db: &str, coll: &str, shown: ValueBuf| {
        let to = doc! { "db": db, "coll": coll };
        Out::Stage(doc! { "$out": to }, shown)
    };
    let d = match v {
        Some(Value::String(name)) => return Ok(replace(own, name, ValueBuf::new(name))),
        Some(Value::Document(d)) => d,
        _ => return Ok(Out::Inline),
    };
    let given = d.get("db").and_then(|v| v.as_str());
    let db = given.unwrap_or(own);
    // The reply names the database only if the command did.
    let shown = |name: &str| match given {
        Some(db) => ValueBuf::new(doc! { "db": db, "collection": name }),
        None => ValueBuf::new(name),
    };
    for e in d {
        match (e.name(), e.value()) {
            ("inline", _) => return Ok(Out::Inline),
            ("replace", Value::String(name)) => return Ok(replace(db, name, shown(name))),
            ("merge", Value::String(name)) => {
                let into = doc! { "db": db, "coll": name };
                let stage = doc! { "$merge": doc! { "into": into, "whenMatched": "replace" } };
                return Ok(Out::Stage(stage, shown(name)));
            }
            ("reduce", Value::String(name)) => {
                let into = doc! { "db": db, "coll": name };
                let merge = doc! { "into": into, "whenMatched": reducing(args) };
                return Ok(Out::Stage(doc! { "$merge": merge }, shown(name)));
            }
            _ => {}
        }
    }
    Err(Error::bad_value(
        "'out' must have one of the fields inline, replace, merge, reduce",
    ))
}

/// The stages for a key that the output collection already has: its value and the new one are reduced, and
/// the result is finalized.
fn reducing(args: &Args<'_>) -> ArrayBuf {
    let call = |name: &str, value: Value<'_>| {
        let body = args.get(name)?;
        let function = doc! { "body": body, "args": array!["$_id", value], "lang": "js" };
        Some(doc! { "$project": doc! { "value": doc! { "$function": function } } })
    };
    let both = array!["$value", "$$new.value"];
    let stages = [
        call("reduce", Value::Array(both.as_doc())),
        call("finalize", Value::String("$value")),
    ];
    stages.into_iter().flatten().collect()
}

fn function(args: &Args<'_>, name: &str) -> Option<Arc<str>> {
    match args.get(name) {
        Some(Value::String(s) | Value::Code(s)) => Some(s.into()),
        _ => None,
    }
}

fn call(f: &Arc<str>, args: &ArrayBuf, work: Work<'_>) -> Result<ValueBuf> {
    work.with_engine(|e| e.call(f, None, args.as_doc()))
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

/// Maps every document, and returns the pairs that the function emitted.
fn map(
    cx: &CommandContext<'_>,
    request: &FindRequest<'_>,
    f: &Arc<str>,
) -> Result<Vec<(ValueBuf, ValueBuf)>> {
    let work = cx.op.work();
    let mut cursor = cx.engine().find(cx.op, request)?;
    let (mut pairs, mut bytes) = (Vec::new(), 0);
    loop {
        let mut mapped = 0;
        while mapped < MAPPED_AT_ONCE
            && let Some(d) = cursor.next_doc(cx.op)?
        {
            work.with_engine(|e| e.call(f, Some(Doc::new(&d)), Doc::EMPTY))?;
            mapped += 1;
        }
        let emitted = work.with_engine(|e| e.emitted())?;
        let Value::Array(emitted) = emitted.as_value() else {
            break;
        };
        bytes += emitted.byte_len();
        if bytes > MAX_EMITTED {
            return Err(Error::new(
                Code::ExceededMemoryLimit,
                format!("mapReduce: the emitted values need more than {MAX_EMITTED} bytes"),
            ));
        }
        for pair in emitted.values().filter_map(|v| v.as_array()) {
            let mut pair = pair.values();
            let key = pair.next().filter(|v| !v.is_nullish());
            let value = pair.next().unwrap_or(Value::Null);
            pairs.push((
                ValueBuf::new(key.unwrap_or(Value::Null)),
                ValueBuf::new(value),
            ));
        }
        if mapped < MAPPED_AT_ONCE {
            break;
        }
    }
    Ok(pairs)
}

/// Maps and reduces. Returns the results, and how many pairs were emitted.
fn results(cx: &CommandContext<'_>, args: &Args<'_>, ns: &str) -> Result<(Vec<DocBuf>, usize)> {
    let (Some(f), Some(reduce)) = (function(args, "map"), function(args, "reduce")) else {
        return Err(Error::bad_value("map and reduce must be functions"));
    };
    let finalize = function(args, "finalize");
    for e in args.doc("scope").unwrap_or(Doc::EMPTY) {
        cx.op
            .work()
            .with_engine(|engine| engine.set_global(e.name(), e.value()))?;
    }
    let given = args.collation()?;
    let collation = cx.engine().source(ns)?.collation(ns, given.as_ref())?;
    let mut pairs = map(cx, &input(args, ns)?, &f)?;
    pairs.sort_by(|a, b| collation.cmp(a.0.as_value(), b.0.as_value()));
    let mut results = Vec::new();
    let groups = pairs.chunk_by(|a, b| collation.equal(a.0.as_value(), b.0.as_value()));
    for group in groups {
        let Some((key, first)) = group.first() else {
            continue;
        };
        let mut value = first.clone();
        if group.len() > 1 {
            let values: ArrayBuf = group.iter().map(|(_, v)| v).collect();
            value = call(
                &reduce,
                &array![key, Value::Array(values.as_doc())],
                cx.op.work(),
            )?;
        }
        if let Some(f) = &finalize {
            value = call(f, &array![key, value], cx.op.work())?;
        }
        results.push(doc! { "_id": key, "value": value });
    }
    Ok((results, pairs.len()))
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
        let (results, emitted) = results(cx, args, ns)?;
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
    let (results, _) = results(cx, &cx.args, cx.ns())?;
    match out {
        Out::Inline => {
            let results: ArrayBuf = results.into_iter().collect();
            cx.reply.field("results", Value::Array(results.as_doc()));
        }
        Out::Stage(stage, name) => {
            let results: ArrayBuf = results.into_iter().collect();
            let results = doc! { "$literal": Value::Array(results.as_doc()) };
            let pipeline = array![doc! { "$documents": results }, stage];
            let request = AggregateRequest::new(cx.db(), pipeline.as_doc(), Doc::EMPTY);
            let mut cursor = cx.engine().aggregate(cx.op, &request)?;
            while cursor.next_doc(cx.op)?.is_some() {}
            cx.reply.field("result", name);
        }
    }
    Ok(())
}
