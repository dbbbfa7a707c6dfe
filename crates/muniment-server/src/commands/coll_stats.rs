//! `collStats`.

use crate::args::{Field, Types, opt};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Target};
use crate::state::ServerState;
use muniment_exec::Database;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc, number};

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
    let figures = figures(cx.engine(), cx.ns(), scale(cx)?)?;
    cx.reply.field("ns", cx.op.namespace());
    cx.reply.elements(figures.as_doc());
    Ok(())
}

/// The figures of a collection; zeros for one that does not exist.
fn figures(engine: &Database, ns: &str, scale: u64) -> Result<DocBuf> {
    let store = &engine.store;
    let by = |n: u64| number::narrow((n / scale) as i64);
    let mut w = DocBuf::new();
    let of_buckets = engine.buckets_of(ns);
    let are_buckets = of_buckets.is_some();
    let Some(c) = of_buckets.or_else(|| store.collection(ns)) else {
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
        return Ok(w);
    };
    let (mut size, mut count) = (c.data_bytes(), c.count());
    let buckets = match c.is_time_series() {
        true => Some(engine.bucket_figures(&c)?),
        false => None,
    };
    if let Some(b) = buckets.as_ref().filter(|_| are_buckets) {
        (size, count) = (b.bytes, b.count);
    }
    let storage = store.storage_bytes(&c);
    let options = c.options();
    let indexes = c.indexes();
    let sizes: Vec<_> = indexes
        .iter()
        .map(|i| (i.spec().name.clone(), store.index_bytes(&c, i)))
        .collect();
    let total_index: u64 = sizes.iter().map(|(_, n)| n).sum();
    w.append("size", by(size));
    w.append("count", number::narrow(count as i64));
    if let Some(average) = size.checked_div(count) {
        w.append("avgObjSize", number::narrow(average as i64));
    }
    w.append("numOrphanDocs", 0);
    if let Some(b) = &buckets {
        let mut d = doc! { "bucketsNs": b.namespace.as_str() };
        d.append("bucketCount", number::narrow(b.count as i64));
        if let Some(average) = b.bytes.checked_div(b.count) {
            d.append("avgBucketSize", number::narrow(average as i64));
        }
        w.append("timeseries", d);
    }
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
    Ok(w)
}

/// What the aggregation stage `$collStats` gives: one document. The operand is checked.
///
/// # Errors
/// 26 for a collection that does not exist, where its documents are asked about.
pub(crate) fn stage(server: &ServerState, ns: &str, operand: Doc<'_>) -> Result<DocBuf> {
    let store = &server.engine.store;
    let buckets = server.engine.buckets_of(ns);
    let are_buckets = buckets.is_some();
    let collection = buckets.or_else(|| store.collection(ns));
    let needed = ["storageStats", "count", "queryExecStats"];
    if collection.is_none() && needed.iter().any(|n| operand.get(n).is_some()) {
        server.engine.refuse_view(ns)?;
        return Err(Error::new(
            Code::NamespaceNotFound,
            format!("Collection [{ns}] not found."),
        ));
    }
    let mut d = doc! {
        "ns": ns,
        "host": server.host.as_str(),
        "localTime": Value::DateTime(crate::log::now_ms()),
    };
    if operand.get("latencyStats").is_some() {
        let [reads, writes, commands] = server.metrics.top_entry(ns).latencies();
        let figure = |(time, count)| doc! { "latency": time as i64, "ops": count as i64 };
        d.append(
            "latencyStats",
            doc! {
                "reads": figure(reads),
                "writes": figure(writes),
                "commands": figure(commands),
                // There are none on a standalone server.
                "transactions": doc! { "latency": 0_i64, "ops": 0_i64 },
            },
        );
    }
    if let Some(options) = operand.get_doc("storageStats") {
        let scale = muniment_query::stage::coll_stats_scale(options)?;
        let figures = figures(&server.engine, ns, scale.max(1) as u64)?;
        d.append("storageStats", figures);
    }
    let Some(collection) = collection else {
        return Ok(d);
    };
    if operand.get("count").is_some() {
        let count = match are_buckets {
            true => server.engine.bucket_figures(&collection)?.count,
            false => collection.count(),
        };
        d.append("count", number::narrow(count as i64));
    }
    if operand.get("queryExecStats").is_some() {
        let (total, tailable) = collection.scans();
        d.append(
            "queryExecStats",
            doc! {
                "collectionScans": doc! {
                    "total": total as i64,
                    "nonTailable": total.saturating_sub(tailable) as i64,
                },
            },
        );
    }
    Ok(d)
}
