//! `collStats`.

use super::server_status::histogram;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::metrics::{Counted, LATENCY_NAMES};
use crate::registry::{CommandSpec, Routed, RunsOn, Target};
use crate::state::ServerState;
use muniment_auth::action::Action;
use muniment_exec::{BucketFigures, Database, GeneratedFigures, OpContext, Source};
use muniment_storage::Collection;
use muniment_value::args::{Field, Types, opt};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc, number};
use std::sync::Arc;

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
    runs_on: Some(RunsOn::Data),
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::stats::coll_stats),
        Needs::collection(&[Action::CollStats]),
    )
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
    let scale = scale(cx)?;
    let figures = match cx.source()? {
        Source::Generated(of) => generated(cx.engine().generated_figures(cx.op, of)?, scale),
        source => figures(cx.engine(), source.stored(), scale, cx.op)?,
    };
    cx.reply.field("ns", cx.op.namespace());
    cx.reply.elements(figures.as_doc());
    Ok(())
}

/// The figures of a generated collection, which is made when it is read.
pub(super) fn generated(g: GeneratedFigures, scale: u64) -> DocBuf {
    let by = |n: u64| number::narrow((n / scale) as i64);
    let mut w = doc! { "size": by(g.bytes), "count": number::narrow(g.count as i64) };
    if let Some(average) = g.bytes.checked_div(g.count) {
        w.append("avgObjSize", number::narrow(average as i64));
    }
    w.append("numOrphanDocs", 0);
    w.append("storageSize", by(g.stored));
    w.append("freeStorageSize", 0);
    w.append("capped", g.max.is_some());
    if let Some(n) = g.max {
        w.append("maxSize", by(n));
        w.append("max", 0);
    }
    w.append("nindexes", 0);
    w.append("indexDetails", DocBuf::new());
    w.append("indexBuilds", ArrayBuf::new());
    w.append("totalIndexSize", 0);
    w.append("totalSize", by(g.stored));
    w.append("indexSizes", DocBuf::new());
    w.append("scaleFactor", number::narrow(scale as i64));
    w
}

/// The figures of a collection that does not exist.
fn zeros(scale: u64) -> DocBuf {
    let mut w = DocBuf::new();
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
    w
}

/// The figures of a collection; zeros for one that does not exist.
fn figures(
    engine: &Database,
    of: Option<&Arc<Collection>>,
    scale: u64,
    op: &OpContext,
) -> Result<DocBuf> {
    let Some(c) = of else {
        return Ok(zeros(scale));
    };
    let store = &engine.store;
    let by = |n: u64| number::narrow((n / scale) as i64);
    let mut w = DocBuf::new();
    let (mut size, count) = (c.data_bytes(), c.count());
    let buckets = match c.is_time_series() {
        true => Some(engine.bucket_figures(c, op)?),
        false => None,
    };
    if let Some(b) = &buckets {
        size = b.bytes;
    }
    let storage = store.storage_bytes(c);
    let options = c.options();
    let indexes = c.indexes();
    let mut sizes = Vec::with_capacity(indexes.len());
    for i in indexes.iter() {
        sizes.push((i.spec().name.clone(), store.index_bytes(c, i, op)?));
    }
    let total_index: u64 = sizes.iter().map(|(_, n)| n).sum();
    w.append("size", by(size));
    match &buckets {
        Some(b) => {
            w.append("timeseries", time_series(c, b));
        }
        None => {
            w.append("count", number::narrow(count as i64));
            if let Some(average) = size.checked_div(count) {
                w.append("avgObjSize", number::narrow(average as i64));
            }
        }
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
    w.append("wiredTiger", as_wired_tiger(c, storage, &by));
    w.append("nindexes", indexes.len() as i32);
    w.append("indexDetails", index_details(c, &sizes, &by));
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

/// Those of WiredTiger's figures that have a meaning here: where the collection is stored, and its size.
fn as_wired_tiger(c: &Collection, storage: u64, by: &dyn Fn(u64) -> Value<'static>) -> DocBuf {
    doc! {
        "type": "lsm",
        "uri": format!("statistics:table:collection-{}", c.tree()),
        "block-manager": doc! { "file size in bytes": by(storage) },
    }
}

/// The details of each index beside its size: in which tree it is stored, and what it takes on disk.
fn index_details(
    c: &Collection,
    sizes: &[(String, u64)],
    by: &dyn Fn(u64) -> Value<'static>,
) -> DocBuf {
    let mut d = DocBuf::new();
    // The index on `_id` of a clustered collection is the collection itself.
    let clustered = super::list_indexes::clustered_id(c);
    if let Some(index) = &clustered {
        d.append(index.as_doc().get_str("name").unwrap_or("_id_"), index);
    }
    for (index, (name, bytes)) in c.indexes().iter().zip(sizes) {
        if index.is_id() && clustered.is_some() {
            continue;
        }
        d.append(
            name,
            doc! {
                "ident": format!("index-{}", index.tree()),
                "block-manager": doc! { "file size in bytes": by(*bytes) },
            },
        );
    }
    d
}

/// The section `timeseries`. The server makes buckets when they are read and never opens, closes, writes or
/// waits for one, so those figures are 0. It does count commits and the measurements in them.
fn time_series(c: &Collection, b: &BucketFigures) -> DocBuf {
    let mut d = doc! { "bucketsNs": b.namespace.as_str() };
    d.append("bucketCount", number::narrow(b.count as i64));
    if let Some(average) = b.bytes.checked_div(b.count) {
        d.append("avgBucketSize", number::narrow(average as i64));
    }
    for name in [
        "numBucketInserts",
        "numBucketUpdates",
        "numBucketsOpenedDueToMetadata",
        "numBucketsClosedDueToCount",
        "numBucketsClosedDueToSchemaChange",
        "numBucketsClosedDueToSize",
        "numBucketsClosedDueToTimeForward",
        "numBucketsClosedDueToTimeBackward",
        "numBucketsClosedDueToMemoryThreshold",
    ] {
        d.append(name, 0);
    }
    let (commits, measurements) = c.measured();
    d.append("numCommits", number::narrow(commits as i64));
    d.append("numMeasurementsGroupCommitted", 0);
    d.append("numWaits", 0);
    d.append(
        "numMeasurementsCommitted",
        number::narrow(measurements as i64),
    );
    if let Some(average) = measurements.checked_div(commits) {
        d.append(
            "avgNumMeasurementsPerCommit",
            number::narrow(average as i64),
        );
    }
    for name in [
        "numBucketsClosedDueToReopening",
        "numBucketsArchivedDueToMemoryThreshold",
        "numBucketsArchivedDueToTimeBackward",
        "numBucketsReopened",
        "numBucketsKeptOpenDueToLargeMeasurements",
        "numBucketsClosedDueToCachePressure",
        "numBucketsFrozen",
        "numCompressedBucketsConvertedToUnsorted",
        "numBucketsFetched",
        "numBucketsQueried",
        "numBucketFetchesFailed",
        "numBucketQueriesFailed",
        "numBucketReopeningsFailed",
        "numDuplicateBucketsReopened",
    ] {
        d.append(name, 0);
    }
    d
}

/// How long the operations of a namespace took in total; with `histograms`, also the distribution.
fn latencies(server: &ServerState, ns: &str, histograms: bool) -> DocBuf {
    let entry = server.metrics.top_entry(ns);
    let mut d = DocBuf::new();
    let mut add = |name: &str, times: &Counted, (time, count): (u64, u64)| {
        let mut section = DocBuf::new();
        if histograms {
            section.append("histogram", histogram(times));
        }
        section.append("latency", time as i64);
        section.append("ops", count as i64);
        section.append("queryableEncryptionLatencyMicros", 0_i64);
        d.append(name, section);
    };
    let sections = entry.histograms().into_iter().zip(entry.latencies());
    for (name, (times, sums)) in LATENCY_NAMES.iter().zip(sections) {
        add(name, &times, sums);
    }
    // There are none on a standalone server.
    add("transactions", &Counted::default(), (0, 0));
    d
}

/// The one document that the aggregation stage `$collStats` gives. The operand is already checked.
///
/// # Errors
/// 26 NamespaceNotFound if the operand asks about documents and the collection does not exist.
pub(crate) fn stage(
    server: &ServerState,
    op: &OpContext,
    ns: &str,
    operand: Doc<'_>,
) -> Result<DocBuf> {
    let source = server.engine.source(ns)?;
    let are_buckets = source.buckets().is_some();
    let collection = source.stored();
    let needed = ["storageStats", "count", "queryExecStats"];
    let made = match &source {
        Source::Generated(of) => Some(server.engine.generated_figures(op, of)?),
        _ => None,
    };
    let exists = collection.is_some() || made.is_some();
    if !exists && needed.iter().any(|n| operand.get(n).is_some()) {
        source.refuse_view(ns)?;
        return Err(Error::new(
            Code::NamespaceNotFound,
            format!("Collection [{ns}] not found."),
        ));
    }
    let mut d = doc! {
        "ns": ns,
        "host": server.address.host.as_str(),
        "localTime": Value::DateTime(muniment_logger::now_ms()),
    };
    if let Some(options) = operand.get_doc("latencyStats") {
        let histograms = options.get("histograms").is_some_and(|v| v.truthy());
        d.append("latencyStats", latencies(server, ns, histograms));
    }
    if let Some(options) = operand.get_doc("storageStats") {
        let scale = muniment_query::stage::coll_stats_scale(options)?;
        let scale = scale.max(1) as u64;
        let figures = match made {
            Some(g) => generated(g, scale),
            None => figures(&server.engine, collection, scale, op)?,
        };
        d.append("storageStats", figures);
    }
    if let Some(g) = made.filter(|_| operand.get("count").is_some()) {
        d.append("count", number::narrow(g.count as i64));
    }
    let Some(collection) = collection else {
        return Ok(d);
    };
    if operand.get("count").is_some() {
        let count = match are_buckets {
            true => server.engine.bucket_figures(collection, op)?.count,
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
