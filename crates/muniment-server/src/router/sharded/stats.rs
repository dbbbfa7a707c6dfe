//! Sizes of collections and databases that several shards have: the sums of what the shards say.

use super::{Repeats, broadcast, is_stale};
use crate::context::CommandContext;
use crate::router::Router;
use crate::router::forward::{Beside, Part, ask_all, reach};
use crate::router::relay::database;
use crate::router::tables::Known;
use crate::sets::Reply;
use muniment_value::{Doc, DocBuf, Result, Value, number};
use muniment_wire::client;
use std::sync::Arc;

/// Figures of collStats that are added up.
const OF_COLLECTION: [&str; 8] = [
    "count",
    "size",
    "storageSize",
    "freeStorageSize",
    "numOrphanDocs",
    "totalIndexSize",
    "totalSize",
    "maxSize",
];
/// Figures of dbStats that are added up.
const OF_DATABASE: [&str; 9] = [
    "objects",
    "dataSize",
    "storageSize",
    "freeStorageSize",
    "indexFreeStorageSize",
    "totalFreeStorageSize",
    "indexSize",
    "totalSize",
    "indexes",
];

/// Runs `collStats`.
///
/// # Errors
/// The shards'.
pub fn coll_stats(cx: &mut CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
    let shards = known.all();
    let replies = broadcast(cx, router, known, &shards, cx.request.body)?;
    let bodies: Vec<Doc<'_>> = replies.iter().map(|r| r.body.as_doc()).collect();
    cx.reply.field("sharded", true);
    cx.reply.field("ns", known.ns());
    for name in OF_COLLECTION {
        if let Some(sum) = sum(&bodies, name) {
            cx.reply.field(name, sum);
        }
    }
    let (count, size) = (sum(&bodies, "count"), sum(&bodies, "size"));
    let of = |v: Option<Value<'_>>| v.and_then(number::to_f64).unwrap_or(0.0);
    if of(count) > 0.0 {
        cx.reply.field("avgObjSize", of(size) / of(count));
    }
    let mut sizes = DocBuf::new();
    let first = bodies.first().copied().unwrap_or(Doc::EMPTY);
    for e in first.get_doc("indexSizes").unwrap_or(Doc::EMPTY) {
        let each: Vec<Doc<'_>> = bodies
            .iter()
            .filter_map(|d| d.get_doc("indexSizes"))
            .collect();
        sizes.append_some(e.name(), sum(&each, e.name()));
    }
    cx.reply.field("indexSizes", sizes);
    for name in ["nindexes", "scaleFactor", "capped"] {
        if let Some(v) = first.get(name) {
            cx.reply.field(name, v);
        }
    }
    if let Some(series) = of_series(&bodies) {
        cx.reply.field("timeseries", series);
    }
    cx.reply.field("nchunks", known.table.len() as i32);
    let mut raw = DocBuf::new();
    for (shard, d) in shards.iter().zip(&bodies) {
        raw.append(known.table.shard_name(*shard), own(*d));
    }
    cx.reply.field("shards", raw);
    Ok(())
}

/// What the shards say of the buckets of a time series: the sums, and averages over all.
fn of_series(bodies: &[Doc<'_>]) -> Option<DocBuf> {
    let each = bodies.iter().filter_map(|d| d.get_doc("timeseries"));
    let each: Vec<Doc<'_>> = each.collect();
    let of = |d: &Doc<'_>, name| d.get(name).and_then(number::to_i64_clamped).unwrap_or(0);
    let average = |name, counted| {
        let total: i64 = each.iter().map(|d| of(d, name) * of(d, counted)).sum();
        let count: i64 = each.iter().map(|d| of(d, counted)).sum();
        number::narrow(total / count.max(1))
    };
    let mut out = DocBuf::new();
    for e in *each.first()? {
        match e.name() {
            name @ "avgBucketSize" => out.append(name, average(name, "bucketCount")),
            name @ "avgNumMeasurementsPerCommit" => out.append(name, average(name, "numCommits")),
            name if e.value().is_number() => {
                out.append_some(name, sum(&each, name));
                &mut out
            }
            _ => out.append_elem(e),
        };
    }
    Some(out)
}

/// Runs `validate`.
///
/// # Errors
/// The shards'.
pub fn validate(cx: &mut CommandContext<'_>, router: &Router, known: &Arc<Known>) -> Result<()> {
    let replies = super::ddl::on_homes(cx, router, known, cx.request.body)?;
    let bodies: Vec<Doc<'_>> = replies.iter().map(|(_, r)| r.body.as_doc()).collect();
    let valid = bodies
        .iter()
        .all(|d| d.get("valid").is_some_and(|v| v.truthy()));
    cx.reply.field("ns", known.ns());
    cx.reply.field("valid", valid);
    for name in ["nInvalidDocuments", "nNonCompliantDocuments", "nrecords"] {
        if let Some(sum) = sum(&bodies, name) {
            cx.reply.field(name, sum);
        }
    }
    let mut raw = DocBuf::new();
    for (set, reply) in &replies {
        raw.append(&set.text(), own(reply.body.as_doc()));
    }
    cx.reply.field("raw", raw);
    Ok(())
}

/// Runs `dataSize`, whose first element is the collection's full name.
///
/// # Errors
/// The shards'.
pub fn data_size(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    let ns = cx.request.body.first().and_then(|e| e.value().as_str());
    let mut repeats = Repeats::new();
    loop {
        let known = match ns {
            Some(ns) => router.tables.of(&**cx.op, router, ns)?,
            None => None,
        };
        let done = match known {
            Some(known) => size_on_shards(cx, router, &known),
            None => database(cx, router),
        };
        match done {
            Err(e) if is_stale(&e) => repeats.next(cx, router, ns.unwrap_or_default(), e)?,
            done => return done,
        }
    }
}

/// The sums of what the shards have. Each looks no further than the limits, which their sum may exceed, too.
fn size_on_shards(cx: &mut CommandContext<'_>, router: &Router, known: &Known) -> Result<()> {
    let replies = broadcast(cx, router, known, &known.all(), cx.request.body)?;
    let bodies: Vec<Doc<'_>> = replies.iter().map(|r| r.body.as_doc()).collect();
    let estimate = bodies.iter().find_map(|d| d.get("estimate"));
    if let Some(estimate) = estimate {
        cx.reply.field("estimate", estimate);
    }
    let mut reached = bodies.iter().any(|d| d.get("maxReached").is_some());
    for (name, limit) in [("size", "maxSize"), ("numObjects", "maxObjects")] {
        if let Some(sum) = sum(&bodies, name) {
            let most = cx.args.get(limit).and_then(number::to_i64_clamped);
            let most = most.filter(|most| *most != 0);
            reached |= most.is_some_and(|n| number::to_i64_clamped(sum).is_some_and(|all| all > n));
            cx.reply.field(name, sum);
        }
    }
    if reached {
        cx.reply.field("maxReached", true);
    }
    if let Some(sum) = sum(&bodies, "millis") {
        cx.reply.field("millis", sum);
    }
    Ok(())
}

/// Runs `dbStats` on all shards.
///
/// # Errors
/// The shards'.
pub fn db_stats(cx: &mut CommandContext<'_>, router: &Router) -> Result<()> {
    if crate::router::place::OF_CONFIG.contains(&cx.db()) {
        return database(cx, router);
    }
    let shards = router.catalog.shards(&**cx.op, router)?;
    let parts = shards.iter().map(|(_, set)| Part {
        set,
        db: cx.db(),
        body: cx.request.body,
        beside: Beside::Nothing,
        versions: None,
        reach: reach(cx),
    });
    let parts: Vec<_> = parts.collect();
    let replies = ask_all(cx, router, &parts).into_iter();
    let replies: Vec<Reply> = replies.collect::<Result<_>>()?;
    for reply in &replies {
        client::check_ok(reply.body.as_doc())?;
    }
    let bodies: Vec<Doc<'_>> = replies.iter().map(|r| r.body.as_doc()).collect();
    cx.reply.field("db", cx.request.db);
    // A sharded collection is on several shards, and counts once.
    for name in ["collections", "views"] {
        let of = |d: &Doc<'_>| d.get(name).and_then(|v| v.as_i64_exact());
        cx.reply
            .field(name, bodies.iter().filter_map(of).max().unwrap_or(0));
    }
    for name in OF_DATABASE {
        if let Some(sum) = sum(&bodies, name) {
            cx.reply.field(name, sum);
        }
    }
    cx.reply.field("avgObjSize", average(&bodies));
    let first = bodies.first().copied().unwrap_or(Doc::EMPTY);
    for name in ["scaleFactor", "fsUsedSize", "fsTotalSize"] {
        if let Some(v) = first.get(name) {
            cx.reply.field(name, v);
        }
    }
    let mut raw = DocBuf::new();
    for ((_, set), reply) in shards.iter().zip(&replies) {
        raw.append(&set.text(), own(reply.body.as_doc()));
    }
    cx.reply.field("raw", raw);
    Ok(())
}

/// A figure of all shards together; `None` if no shard has it. The sum has the type of the first.
fn sum<'v>(of: &[Doc<'_>], name: &str) -> Option<Value<'v>> {
    let values: Vec<Value<'_>> = of.iter().filter_map(|d| d.get(name)).collect();
    match values.first()? {
        Value::Double(_) => Some(Value::Double(
            values.iter().filter_map(|v| number::to_f64(*v)).sum(),
        )),
        first => {
            let sum = values.iter().filter_map(|v| v.as_i64_exact()).sum();
            Some(match first {
                Value::Int64(_) => Value::Int64(sum),
                _ => number::narrow(sum),
            })
        }
    }
}

/// The average size of a database's documents. Each shard tells it in bytes, whatever the scale of the other figures.
fn average(of: &[Doc<'_>]) -> f64 {
    let figure = |d: &Doc<'_>, name: &str| d.get(name).and_then(number::to_f64).unwrap_or(0.0);
    let bytes = of
        .iter()
        .map(|d| figure(d, "avgObjSize") * figure(d, "objects"));
    let (bytes, objects): (f64, f64) = (bytes.sum(), of.iter().map(|d| figure(d, "objects")).sum());
    match objects > 0.0 {
        true => bytes / objects,
        false => 0.0,
    }
}

/// A reply without what the server says of itself.
fn own(reply: Doc<'_>) -> DocBuf {
    let mut out = DocBuf::new();
    for e in reply {
        if !["$clusterTime", "operationTime"].contains(&e.name()) {
            out.append_elem(e);
        }
    }
    out
}
