//! `collStats`.

use crate::args::{Args, Field, Types, opt, refused};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Target};
use muniment_storage::Store;
use muniment_value::{ArrayBuf, DocBuf, Error, Result, Value, doc, number};
use std::sync::atomic::Ordering::Relaxed;

const FIELDS: &[Field] = &[opt("scale", Types::NUMBER)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "collStats",
    aliases: &["collstats"],
    doc: "Sizes of a collection and its indexes",
    target: Target::Collection,
    read_concern: true,
    fields: FIELDS,
    run,
    ..CommandSpec::DEFAULT
};

/// The `scale` argument.
pub(super) fn scale(cx: &CommandContext<'_>) -> Result<u64> {
    match cx.args.get("scale").and_then(number::to_i64_clamped) {
        None => Ok(1),
        Some(n) if n >= 1 => Ok(n as u64),
        Some(n) => Err(Error::bad_value(format!(
            "BSON field 'scale' value must be >= 1, actual value '{n}'"
        ))),
    }
}

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let figures = figures(&cx.engine().store, cx.ns(), scale(cx)?);
    cx.reply.field("ns", cx.op.namespace());
    cx.reply.elements(figures.as_doc());
    Ok(())
}

/// The figures of a collection; zeros for one that does not exist.
fn figures(store: &Store, ns: &str, scale: u64) -> DocBuf {
    let by = |n: u64| number::narrow((n / scale) as i64);
    let mut w = DocBuf::new();
    let Some(c) = store.collection(ns) else {
        for name in [
            "size",
            "count",
            "numOrphanDocs",
            "storageSize",
            "totalSize",
            "nindexes",
            "totalIndexSize",
        ] {
            w.append(name, 0);
        }
        w.append("indexDetails", DocBuf::new());
        w.append("indexSizes", DocBuf::new());
        w.append("scaleFactor", number::narrow(scale as i64));
        return w;
    };
    let (size, count) = (c.data_bytes(), c.count());
    let storage = store.storage_bytes(&c);
    let options = c.options();
    let indexes = c.indexes();
    let sizes: Vec<_> = indexes
        .iter()
        .map(|i| (i.spec().name.clone(), store.index_bytes(i)))
        .collect();
    let total_index: u64 = sizes.iter().map(|(_, n)| n).sum();
    w.append("size", by(size));
    w.append("count", number::narrow(count as i64));
    if let Some(average) = size.checked_div(count) {
        w.append("avgObjSize", number::narrow(average as i64));
    }
    w.append("numOrphanDocs", 0);
    w.append("storageSize", by(storage));
    w.append("freeStorageSize", 0);
    w.append("capped", options.capped_size.is_some());
    if let Some(n) = options.capped_size {
        w.append("maxSize", by(n));
        w.append(
            "max",
            number::narrow(options.capped_max.unwrap_or(0) as i64),
        );
    }
    w.append("nindexes", indexes.len() as i32);
    w.append("indexDetails", DocBuf::new());
    w.append("indexBuilds", ArrayBuf::new());
    w.append("totalIndexSize", by(total_index));
    w.append("totalSize", by(storage + total_index));
    let mut all = DocBuf::new();
    for (name, n) in &sizes {
        all.append(name, by(*n));
    }
    w.append("indexSizes", all);
    w.append("scaleFactor", number::narrow(scale as i64));
    w
}

const STAGE: &[Field] = &[
    opt("count", Types::OBJECT),
    opt("storageStats", Types::OBJECT),
    opt("latencyStats", Types::OBJECT),
    refused("queryExecStats", Types::OBJECT),
    refused("operationStats", Types::OBJECT),
];

/// What the aggregation stage `$collStats` gives: one document.
///
/// # Errors
/// 26 for a collection that does not exist; 14, 40415 for bad fields.
pub(super) fn stage(cx: &CommandContext<'_>, spec: Value<'_>) -> Result<DocBuf> {
    let Value::Document(spec) = spec else {
        return Err(Error::type_mismatch(format!(
            "BSON field '$collStats' is the wrong type '{}', expected type 'object'",
            spec.type_name()
        )));
    };
    let a = Args::parse("$collStats", STAGE, spec)?;
    let collection = cx.collection()?;
    let mut d = doc! {
        "ns": cx.ns(),
        "host": cx.server.host.as_str(),
        "localTime": Value::DateTime(crate::log::now_ms()),
    };
    if a.get("latencyStats").is_some() {
        let entry = cx.server.metrics.top_entry(cx.ns());
        let figure = |i: usize| {
            let (time, count) = entry.figures.get(i).map_or((0, 0), |(t, n)| {
                (t.load(Relaxed) as i64, n.load(Relaxed) as i64)
            });
            doc! { "latency": time, "ops": count }
        };
        d.append(
            "latencyStats",
            doc! { "reads": figure(1), "writes": figure(2), "commands": figure(8) },
        );
    }
    if let Some(options) = a.doc("storageStats") {
        let scale = options.get("scale").and_then(number::to_i64_clamped);
        let scale = scale.unwrap_or(1).max(1) as u64;
        let figures = figures(&cx.engine().store, cx.ns(), scale);
        d.append("storageStats", figures);
    }
    if a.get("count").is_some() {
        d.append("count", number::narrow(collection.count() as i64));
    }
    Ok(d)
}
