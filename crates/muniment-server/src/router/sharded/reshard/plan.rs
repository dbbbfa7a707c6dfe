//! Where the documents of a collection are to be after it was divided anew.

use super::ReshardRequest;
use crate::context::CommandContext;
use crate::router::configuration::read;
use crate::router::forward::run;
use crate::router::sharded::shard::candidates;
use crate::router::{Known, Router};
use muniment_shard::catalog::Tag;
use muniment_shard::{Candidate, Record, ShardKey, Version, Zones, chunks_between, initial_chunks};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, array, doc};

/// So many documents are looked at for each chunk, to find keys that divide all of them evenly.
const SAMPLES: usize = 20;
/// So many are looked at on one shard at most.
const MOST: usize = 20_000;

/// What a client asks for of the shards that get documents.
pub enum Spread {
    /// Any shard may.
    Any,
    /// These shards may.
    Among(Vec<String>),
    /// Each of these ranges is on its shard.
    Ranges(Vec<(String, DocBuf, DocBuf)>),
}

/// The chunks, and the ranges of zones.
pub struct Plan {
    /// The chunks, ascending.
    pub records: Vec<Record>,
    /// What `config.tags` is to have.
    pub tags: Vec<Tag>,
}

/// Chooses the chunks.
///
/// # Errors
/// 2 BadValue if the collection has zones and none are given; those of the zones and of the shards.
pub fn plan(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    request: &ReshardRequest<'_>,
) -> Result<Plan> {
    let key = &request.key;
    let tags = match &request.zones {
        Some(tags) => tags.clone(),
        None if read(&**cx.op, router, "tags", doc! { "ns": request.ns })?.is_empty() => Vec::new(),
        None => return Err(Error::bad_value("Must specify value for zones field")),
    };
    let zones = tags.iter().map(|tag| tag.range(key));
    let zones = Zones::new(key, zones.collect::<Result<_>>()?)?;
    let all = candidates(cx, router)?;
    let among = match &request.spread {
        Spread::Ranges(ranges) => {
            let records = of_ranges(key, &all, ranges)?;
            return Ok(Plan { records, tags });
        }
        Spread::Among(names) => named(all, names)?,
        Spread::Any => all,
    };
    // A collection that needs no second chunk stays where its first one is.
    let first = known
        .table
        .shard_name(known.table.owner(&known.key.lowest()));
    let records = match key.begins_hashed() {
        true => initial_chunks(key, &zones, &among, first, request.chunks)?,
        false => {
            let wanted = request.chunks.unwrap_or(among.len());
            let points = points(cx, router, known, (key, wanted))?;
            if points.len() + 1 < request.chunks.unwrap_or(1) {
                return Err(Error::new(
                    NO_CARDINALITY,
                    "The shard key provided does not have enough cardinality to make the required amount of chunks",
                ));
            }
            chunks_between(key, &zones, &among, first, points)?
        }
    };
    Ok(Plan { records, tags })
}

/// MongoDB's code for a key that has too few values.
const NO_CARDINALITY: Code = Code(4_952_606);

fn named(all: Vec<Candidate>, names: &[String]) -> Result<Vec<Candidate>> {
    if let Some(unknown) = names.iter().find(|n| !all.iter().any(|c| *c.name == ***n)) {
        return Err(Error::new(
            Code::ShardNotFound,
            format!("Shard {unknown} not found, or it is being removed"),
        ));
    }
    Ok(all
        .into_iter()
        .filter(|c| names.iter().any(|n| **n == *c.name))
        .collect())
}

/// The chunks that a client chooses itself.
fn of_ranges(
    key: &ShardKey,
    all: &[Candidate],
    ranges: &[(String, DocBuf, DocBuf)],
) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for (shard, min, max) in ranges {
        let shard = named(all.to_vec(), std::slice::from_ref(shard))?;
        let shard = shard.first().map(|c| c.name.clone());
        records.push(Record {
            min: key.bound(min.as_doc())?,
            max: key.bound(max.as_doc())?,
            shard: shard.unwrap_or_else(|| "".into()),
            version: Version::default(),
        });
    }
    records.sort_by(|a, b| a.min.cmp(&b.min));
    let ends = (records.first(), records.last());
    let covers = ends.0.is_some_and(|r| r.min == key.lowest())
        && ends.1.is_some_and(|r| r.max == key.highest())
        && records
            .windows(2)
            .all(|w| matches!(w, [a, b] if a.max == b.min));
    if !covers {
        return Err(Error::bad_value(
            "the ranges of shardDistribution have to cover all keys, each once",
        ));
    }
    for (n, record) in records.iter_mut().enumerate() {
        record.version = Version::new(1, u32::try_from(n).unwrap_or(u32::MAX));
    }
    Ok(records)
}

/// Keys that divide the documents into so many parts, ascending. There are fewer if the documents have too few keys.
fn points(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    (key, parts): (&ShardKey, usize),
) -> Result<Vec<Vec<u8>>> {
    if parts < 2 {
        return Ok(Vec::new());
    }
    let (on, name) = (&**cx.op, known.name());
    let mut counts = Vec::new();
    for shard in known.all() {
        let set = known.set(shard)?;
        let reply = run(on, router, set, known.db(), &doc! { "count": name }, true)?;
        let n = reply.as_doc().get("n").and_then(|v| v.as_i64_exact());
        counts.push((set, usize::try_from(n.unwrap_or(0)).unwrap_or(0)));
    }
    let total: usize = counts.iter().map(|(_, n)| n).sum();
    let wanted = parts.saturating_mul(SAMPLES).min(total);
    let of_id = key.fields().iter().any(|f| f.path.as_str() == "_id");
    let mut fields = doc! { "_id": i32::from(of_id) };
    for field in key.fields().iter().filter(|f| f.path.as_str() != "_id") {
        fields.append(field.path.as_str(), 1);
    }
    let mut keys = Vec::new();
    for (set, count) in counts.into_iter().filter(|(_, n)| *n > 0) {
        let size = wanted.saturating_mul(count).div_ceil(total).min(MOST);
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        let sample = doc! { "$sample": doc! { "size": size } };
        let batch = doc! { "batchSize": size };
        let pipeline = array![sample, doc! { "$project": &fields }];
        let aggregate = doc! { "aggregate": name, "pipeline": pipeline, "cursor": batch };
        let reply = run(on, router, set, known.db(), &aggregate, true)?;
        let cursor = reply.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
        // Should there be more than one batch has room for, the first ones are as good.
        let open = cursor.get("id").and_then(|v| v.as_i64_exact());
        if let Some(id) = open.filter(|id| *id != 0) {
            let ids: ArrayBuf = std::iter::once(Value::Int64(id)).collect();
            let kill = doc! { "killCursors": name, "cursors": ids };
            drop(run(on, router, set, known.db(), &kill, true));
        }
        let batch = cursor.get_array("firstBatch").unwrap_or(Doc::EMPTY);
        for d in batch.values().filter_map(|v| v.as_doc()) {
            keys.push(key.key_of(d)?);
        }
    }
    Ok(evenly(keys, parts))
}

/// Keys that divide these into so many parts of about the same size.
fn evenly(mut keys: Vec<Vec<u8>>, parts: usize) -> Vec<Vec<u8>> {
    keys.sort();
    let least = keys.first().cloned();
    let at = |i: usize| keys.get(i * keys.len() / parts).cloned();
    let mut points: Vec<Vec<u8>> = (1..parts).filter_map(at).collect();
    points.dedup();
    // Nothing is before the least one.
    points.retain(|p| Some(p) != least.as_ref());
    points
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn keys_that_divide_others_evenly() {
        let keys = |all: &[u8]| -> Vec<Vec<u8>> { all.iter().map(|k| vec![*k]).collect() };
        let ten: Vec<u8> = (0..10).rev().collect();
        assert_eq!(evenly(keys(&ten), 2), keys(&[5]));
        assert_eq!(evenly(keys(&ten), 4), keys(&[2, 5, 7]));
        assert_eq!(evenly(keys(&[3, 3, 3, 3]), 4), keys(&[]));
        assert_eq!(evenly(keys(&[3, 3, 3, 4]), 4), keys(&[4]));
        assert_eq!(evenly(Vec::new(), 4), keys(&[]));
    }
}
