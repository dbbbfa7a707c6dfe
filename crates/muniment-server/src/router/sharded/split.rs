//! Splitting and merging of chunks, and the flag of those that were too large to be moved.

use super::chunks::{Change, Why, between, known_now, merge_of, replace, split_of, with_lease};
use super::zones;
use crate::context::CommandContext;
use crate::router::forward::run;
use crate::router::{Known, Router};
use crate::state::ServerState;
use crate::uuid::uuid_value;
use muniment_query::{Filter, QueryContext};
use muniment_shard::catalog::Chunk;
use muniment_shard::{Range, ShardKey, Timestamp, ZoneOf, Zones};
use muniment_value::{Code, Doc, Error, Result, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Which chunk a command is about.
pub enum Named<'n> {
    /// That of the document which a query finds: the query fixes the shard key.
    Find(Doc<'n>),
    /// That with these bounds.
    Bounds(Doc<'n>, Doc<'n>),
}

/// The bounds of a command's field `bounds`.
///
/// # Errors
/// 2 BadValue if they are not two documents.
pub fn bounds_of<'n>(list: Doc<'n>) -> Result<(Doc<'n>, Doc<'n>)> {
    let mut all = list.values();
    let mut next = |which: &str| {
        let bound = all.next().and_then(|v| v.as_doc());
        let bound = bound.filter(|d| !d.is_empty());
        bound.ok_or_else(|| Error::bad_value(format!("{which} bound not specified")))
    };
    let bounds = (next("lower")?, next("upper")?);
    match all.next() {
        None => Ok(bounds),
        Some(_) => Err(Error::bad_value(
            "there can only be two bounds, the lower and the upper one",
        )),
    }
}

/// The key bytes of a bound that a client gives.
///
/// # Errors
/// 96 OperationFailed, with `what`, if it is none of this shard key.
pub fn bound(key: &ShardKey, given: Doc<'_>, what: &str) -> Result<Vec<u8>> {
    key.bound(given).map_err(|_| {
        Error::new(
            Code::OperationFailed,
            format!(
                "{what} {} is not valid for shard key pattern {}",
                given.to_display(),
                key.pattern().to_display()
            ),
        )
    })
}

/// The range of the chunk that a command names.
///
/// # Errors
/// 96 OperationFailed if there is no such chunk, or the query does not fix the shard key; 9 for a query that cannot be
/// parsed.
pub fn range_of(known: &Known, named: &Named<'_>) -> Result<Range> {
    let key = &known.key;
    match named {
        Named::Find(query) => {
            let filter = Filter::parse(*query, &QueryContext::new())?;
            let fixed = key.key_of_filter(&filter).ok_or_else(|| {
                Error::new(
                    Code::OperationFailed,
                    format!("no shard key found in chunk query {}", query.to_display()),
                )
            })?;
            Ok(known.table.find(&fixed))
        }
        Named::Bounds(min, max) => {
            let (low, high) = bounds_bytes(key, *min, *max)?;
            let range = known.table.find(&low);
            match range.min == low && range.max == high {
                true => Ok(range),
                false => Err(Error::new(
                    Code::OperationFailed,
                    format!(
                        "no chunk found with the shard key bounds [{}, {})",
                        key.show(&low),
                        key.show(&high)
                    ),
                )),
            }
        }
    }
}

/// The key bytes of two bounds.
///
/// # Errors
/// 96 OperationFailed if they are none of this shard key.
pub fn bounds_bytes(key: &ShardKey, min: Doc<'_>, max: Doc<'_>) -> Result<(Vec<u8>, Vec<u8>)> {
    match (key.bound(min), key.bound(max)) {
        (Ok(low), Ok(high)) => Ok((low, high)),
        _ => Err(Error::new(
            Code::OperationFailed,
            format!(
                "shard key bounds [{},{}) are not valid for shard key pattern {}",
                min.to_display(),
                max.to_display(),
                key.pattern().to_display()
            ),
        )),
    }
}

/// Where a chunk is split.
pub enum At<'a> {
    /// In the middle of the documents of the chunk that is named.
    Median(Named<'a>),
    /// At this key.
    Key(Doc<'a>),
}

/// Splits a chunk.
///
/// # Errors
/// 118 NamespaceNotSharded; 96 OperationFailed for a key at which a chunk begins or ends, and those of [`range_of`];
/// 87 CannotSplit if the chunk has no middle; those of the sets.
pub fn split(cx: &CommandContext<'_>, router: &Router, ns: &str, at: &At<'_>) -> Result<()> {
    // Looking for the middle may take long, and other changes do not have to wait for it.
    let known = known_now(cx, router, ns)?;
    let at = match at {
        At::Key(key) => bound(&known.key, *key, "new split key")?,
        At::Median(named) => {
            let range = range_of(&known, named)?;
            let ask = SplitPoints::Middle;
            let found = split_points(cx, router, &known, &range, ask)?
                .into_iter()
                .next();
            found.ok_or_else(|| {
                Error::new(
                    Code::CannotSplit,
                    "Unable to find median in chunk because chunk is indivisible.",
                )
            })?
        }
    };
    split_at(cx, router, ns, &[at])
}

/// Splits the chunks of a collection at these keys, ascending.
///
/// # Errors
/// As [`split`].
pub fn split_at(cx: &CommandContext<'_>, router: &Router, ns: &str, at: &[Vec<u8>]) -> Result<()> {
    with_lease(cx, router, (ns, "split"), |lease, known| {
        let (key, Some(first), Some(last)) = (&known.key, at.first(), at.last()) else {
            return Ok(());
        };
        for point in at {
            let range = known.table.find(point);
            if range.min == *point || range.max == *point {
                return Err(Error::new(
                    Code::OperationFailed,
                    format!(
                        "new split key {} is a boundary key of existing chunk [{},{})",
                        key.show(point),
                        key.show(&range.min),
                        key.show(&range.max)
                    ),
                ));
            }
        }
        let end = known.table.find(last).max;
        let mut parts = Vec::new();
        for chunk in between(&**cx.op, router, known, (first, &end))? {
            let (min, max) = chunk.record(key).map(|r| (r.min, r.max))?;
            let within = at.iter().filter(|p| **p > min && **p < max);
            let within: Vec<Vec<u8>> = within.cloned().collect();
            if !within.is_empty() {
                parts.extend(split_of(&chunk, key, &within)?);
            }
        }
        let change = Change {
            why: Why::Split,
            chunks: parts,
        };
        replace(cx, router, (lease, known), change).map(drop)
    })
}

/// Which points of a chunk a shard looks for.
#[derive(Clone, Copy)]
pub enum SplitPoints {
    /// The key in the middle of its documents.
    Middle,
    /// So many keys at most, with so many bytes of documents between them.
    Bytes(u64, usize),
}

/// Keys at which a chunk can be split, as the shard that has it finds them: none if it has too few different keys.
///
/// # Errors
/// Those of the shard.
pub fn split_points(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    range: &Range,
    ask: SplitPoints,
) -> Result<Vec<Vec<u8>>> {
    let mut command = doc! {
        "_shardSplitPoints": known.name(),
        "keyPattern": known.key.pattern(),
        "min": known.key.bound_doc(&range.min)?,
        "max": known.key.bound_doc(&range.max)?,
    };
    if let SplitPoints::Bytes(bytes, most) = ask {
        command.append("bytes", i64::try_from(bytes).unwrap_or(i64::MAX));
        command.append("most", most as i64);
    }
    let set = known.set(range.shard)?;
    let reply = run(&**cx.op, router, set, known.db(), &command, true)?;
    let keys = reply.as_doc().get_array("splitKeys").unwrap_or(Doc::EMPTY);
    let keys = keys.values().filter_map(|v| v.as_doc());
    keys.map(|d| known.key.bound(d)).collect()
}

/// Merges the chunks between two bounds.
///
/// # Errors
/// 118 NamespaceNotSharded; 96 OperationFailed for bounds that are none of the shard key; 20 IllegalOperation if no
/// chunk begins or ends there, or the chunks are not all on one shard.
pub fn merge(
    cx: &CommandContext<'_>,
    router: &Router,
    ns: &str,
    (min, max): (Doc<'_>, Doc<'_>),
) -> Result<()> {
    with_lease(cx, router, (ns, "mergeChunks"), |lease, known| {
        let key = &known.key;
        let (low, high) = bounds_bytes(key, min, max)?;
        let refused = |why: &str| {
            let range = format!("[{}, {})", key.show(&low), key.show(&high));
            let text = format!("could not merge chunks, collection {ns} range {range} {why}");
            Err(Error::new(Code::IllegalOperation, text))
        };
        if low >= high {
            return refused("is empty");
        }
        let chunks = between(&**cx.op, router, known, (&low, &high))?;
        let ends = chunks.first().zip(chunks.last()).map(|(first, last)| {
            Ok::<_, Error>((
                key.bound(first.min.as_doc())?,
                key.bound(last.max.as_doc())?,
            ))
        });
        if ends.transpose()? != Some((low.clone(), high.clone())) {
            return refused("does not begin and end where chunks do");
        }
        if chunks
            .iter()
            .any(|c| Some(&c.shard) != chunks.first().map(|c| &c.shard))
        {
            return refused("has chunks on several shards");
        }
        // They are merged already.
        let Some(merged) = merge_of(&chunks).filter(|_| chunks.len() > 1) else {
            return Ok(());
        };
        let change = Change {
            why: Why::Merge,
            chunks: vec![merged],
        };
        replace(cx, router, (lease, known), change).map(drop)
    })
}

/// Merges the chunks of a shard that lie side by side, are not jumbo, belong to one zone, and came to the shard before
/// a time. At most `most` chunks are merged. The number of those that are gone.
///
/// # Errors
/// 118 NamespaceNotSharded; those of the sets.
pub fn merge_all(
    cx: &CommandContext<'_>,
    router: &Router,
    (ns, shard): (&str, &str),
    (before, most): (Timestamp, usize),
) -> Result<usize> {
    let known = known_now(cx, router, ns)?;
    if runs_of(cx, router, &known, (shard, before, most))?.is_empty() {
        return Ok(0);
    }
    with_lease(cx, router, (ns, "mergeAllChunksOnShard"), |lease, known| {
        let runs = runs_of(cx, router, known, (shard, before, most))?;
        let gone = runs.iter().map(|run| run.len() - 1).sum();
        let chunks: Vec<Chunk> = runs.iter().filter_map(|run| merge_of(run)).collect();
        if !chunks.is_empty() {
            let why = Why::Merge;
            replace(cx, router, (lease, known), Change { why, chunks })?;
        }
        Ok(gone)
    })
}

/// Chunks of a shard that can be merged, two or more in a row.
fn runs_of(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    (shard, before, most): (&str, Timestamp, usize),
) -> Result<Vec<Vec<Chunk>>> {
    // Nothing lies side by side: nothing has to be read.
    let place = known.table.shard_named(shard);
    let owners: Vec<bool> = known
        .table
        .ranges()
        .map(|r| Some(r.shard) == place)
        .collect();
    if !owners.windows(2).any(|w| matches!(w, [true, true])) {
        return Ok(Vec::new());
    }
    let zones = zones::of(&**cx.op, router, known)?;
    let (key, lowest) = (&known.key, known.key.lowest());
    let all = between(&**cx.op, router, known, (&lowest, &known.key.highest()))?;
    let mut runs: Vec<Vec<Chunk>> = Vec::new();
    let mut last: Option<(Vec<u8>, Option<Arc<str>>)> = None;
    let mut count = 0;
    for chunk in all {
        let (min, max) = chunk.record(key).map(|r| (r.min, r.max))?;
        let settled = chunk.on_current_shard_since.is_none_or(|at| at < before);
        let zone = zone_of(&zones, &min, &max);
        let Some(zone) = zone.filter(|_| chunk.shard == shard && !chunk.jumbo && settled) else {
            last = None;
            continue;
        };
        let goes_on = last
            .as_ref()
            .is_some_and(|(end, of)| *end == min && *of == zone);
        match runs.last_mut().filter(|_| goes_on) {
            Some(run) => run.push(chunk),
            None => runs.push(vec![chunk]),
        }
        last = Some((max, zone));
        count += 1;
        if count >= most {
            break;
        }
    }
    runs.retain(|run| run.len() > 1);
    Ok(runs)
}

/// The zone in which a range lies wholly, `Some(None)` if it is outside of all.
fn zone_of(zones: &Zones, min: &[u8], max: &[u8]) -> Option<Option<Arc<str>>> {
    match zones.of(min, max) {
        ZoneOf::None => Some(None),
        ZoneOf::One(zone) => Some(Some(Arc::clone(zone))),
        ZoneOf::Divided(_) => None,
    }
}

/// Removes the flag that a chunk was too large to be moved, or sets it.
///
/// # Errors
/// 118 NamespaceNotSharded; those of [`range_of`] and of the configuration's set.
pub fn flag_jumbo(
    cx: &CommandContext<'_>,
    router: &Router,
    (ns, named): (&str, &Named<'_>),
    jumbo: bool,
) -> Result<()> {
    let known = known_now(cx, router, ns)?;
    let range = range_of(&known, named)?;
    flag(cx, router, &known, &range, jumbo)
}

/// Sets or removes the flag of a chunk. It changes nothing for routers, so the version stays.
///
/// # Errors
/// Those of the configuration's set.
pub fn flag(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    range: &Range,
    jumbo: bool,
) -> Result<()> {
    let update = match jumbo {
        true => doc! { "$set": doc! { "jumbo": true } },
        false => doc! { "$unset": doc! { "jumbo": "" } },
    };
    let of = doc! {
        "uuid": uuid_value(&known.collection.generation.uuid),
        "lastmod": range.version.to_value(),
    };
    let command = doc! {
        "update": "chunks", "updates": muniment_value::array![doc! { "q": of, "u": update }],
        "writeConcern": doc! { "w": "majority" },
    };
    run(&**cx.op, router, &router.config, "config", &command, true).map(drop)
}

/// The time before which chunks have to have come to their shard to be merged: until then a read at an earlier time may
/// ask for the owner that a chunk had.
pub fn settled_before(server: &ServerState) -> Timestamp {
    let window = server.parameters.snapshot_window_secs.load(Relaxed).max(0);
    let seconds = muniment_op::wall_ms() / 1000 - window;
    Timestamp::new(u32::try_from(seconds).unwrap_or(0), 0)
}
