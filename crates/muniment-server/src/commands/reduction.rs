//! What mapReduce comes to: its functions are called for documents, wherever these are found, and the results go where
//! the command says.

use crate::context::CommandContext;
use bytes::Bytes;
use muniment_query::running::Work;
use muniment_value::args::Args;
use muniment_value::{
    ArrayBuf, Code, Collation, Doc, DocBuf, Error, Result, Value, ValueBuf, array, doc,
};
use std::sync::Arc;

/// The most that the emitted pairs may take, in bytes.
const MAX_EMITTED: usize = 100 << 20;

/// How many documents are mapped before the emitted pairs are fetched and counted against the limit.
const MAPPED_AT_ONCE: usize = 100;

/// Where the results go.
pub enum Out {
    /// Into the reply.
    Inline,
    /// A stage (`$merge` or `$out`) that writes the results, and the reply's `result`.
    Stage(DocBuf, ValueBuf),
}

/// Where a command has its results go; `own` is its database.
///
/// # Errors
/// 2 BadValue.
pub fn out(args: &Args<'_>, own: &str) -> Result<Out> {
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

/// The documents that are mapped, one after the other.
pub type Input<'i> = &'i mut dyn FnMut() -> Result<Option<Bytes>>;

/// Maps every document, and returns the pairs that the function emitted.
fn map(
    cx: &CommandContext<'_>,
    input: Input<'_>,
    f: &Arc<str>,
) -> Result<Vec<(ValueBuf, ValueBuf)>> {
    let work = cx.op.work();
    let (mut pairs, mut bytes) = (Vec::new(), 0);
    loop {
        let mut mapped = 0;
        while mapped < MAPPED_AT_ONCE
            && let Some(d) = input()?
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

/// Maps and reduces. Returns the results, and how many pairs were emitted. Keys compare by the collation.
///
/// # Errors
/// Those of the functions and of the input; 146 ExceededMemoryLimit for too many pairs.
pub fn results(
    cx: &CommandContext<'_>,
    args: &Args<'_>,
    collation: &Collation,
    input: Input<'_>,
) -> Result<(Vec<DocBuf>, usize)> {
    let (Some(f), Some(reduce)) = (function(args, "map"), function(args, "reduce")) else {
        return Err(Error::bad_value("map and reduce must be functions"));
    };
    let finalize = function(args, "finalize");
    for e in args.doc("scope").unwrap_or(Doc::EMPTY) {
        cx.op
            .work()
            .with_engine(|engine| engine.set_global(e.name(), e.value()))?;
    }
    let mut pairs = map(cx, input, &f)?;
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

/// The pipeline that writes results by a stage.
pub fn writing(results: &ArrayBuf, stage: DocBuf) -> ArrayBuf {
    let results = doc! { "$literal": Value::Array(results.as_doc()) };
    array![doc! { "$documents": results }, stage]
}
