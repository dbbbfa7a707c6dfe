//! The chunks with which a sharded collection begins.

use crate::key::ShardKey;
use crate::stamp::Version;
use crate::table::Record;
use crate::zones::{ZoneOf, Zones};
use muniment_value::{Code, Error, Result, Value, keyenc};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A shard that may get chunks of a new collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: Arc<str>,
    /// Its zones.
    pub zones: Vec<Arc<str>>,
}

/// The chunks that a new collection has per shard at most.
const MOST_PER_SHARD: usize = 8192;

/// The first chunks of an empty collection, in the order of keys, with versions from 1|0 on.
///
/// - A key that begins with a hashed field is divided evenly: into one chunk for each shard, or as many as
///   are `requested`.
/// - Zones begin and end with chunks, and their chunks are on their shards in turn. Other chunks are on all
///   shards in turn.
/// - Without either there is one chunk, on the shard `primary` if it is among the candidates.
///
/// # Errors
/// 70 ShardNotFound without candidates; 72 InvalidOptions if a number of chunks is requested for a key that
/// does not begin hashed, or too large a number; 177 ZoneNotFound for a zone without shards.
pub fn initial_chunks(
    key: &ShardKey,
    zones: &Zones,
    shards: &[Candidate],
    primary: &str,
    requested: Option<usize>,
) -> Result<Vec<Record>> {
    let points = hashed_bounds(key, shards.len(), requested)?;
    chunks_between(key, zones, shards, primary, points)
}

/// Chunks that begin and end at these keys and where zones do, with versions from 1|0 on. They are on shards in turn as
/// [`initial_chunks`] says.
///
/// # Errors
/// 70 ShardNotFound without candidates; 177 ZoneNotFound for a zone without shards.
pub fn chunks_between(
    key: &ShardKey,
    zones: &Zones,
    shards: &[Candidate],
    primary: &str,
    points: impl IntoIterator<Item = Vec<u8>>,
) -> Result<Vec<Record>> {
    let mut bounds = BTreeSet::from([key.lowest(), key.highest()]);
    bounds.extend(points);
    for zone in zones.ranges() {
        bounds.insert(zone.min.clone());
        bounds.insert(zone.max.clone());
    }
    let ordered: Vec<Vec<u8>> = bounds.into_iter().collect();
    let alone = ordered.len() == 2 && zones.ranges().is_empty();
    let mut turns = Turns::new(shards, if alone { primary } else { "" });
    let chunk = |(n, ends): (usize, &[Vec<u8>])| {
        let [min, max] = ends else { return None };
        let shard = match zones.of(min, max) {
            ZoneOf::One(zone) => turns.next(Some(zone)),
            ZoneOf::None | ZoneOf::Divided(_) => turns.next(None),
        };
        Some(shard.map(|shard| Record {
            min: min.clone(),
            max: max.clone(),
            shard,
            version: Version::new(1, n as u32),
        }))
    };
    ordered.windows(2).enumerate().filter_map(chunk).collect()
}

/// The bounds that divide the hashes of the first field, if it is hashed.
fn hashed_bounds(key: &ShardKey, shards: usize, requested: Option<usize>) -> Result<Vec<Vec<u8>>> {
    let requested = requested.filter(|n| *n > 0);
    if let Some(n) = requested {
        let most = MOST_PER_SHARD.saturating_mul(shards.max(1));
        if !key.begins_hashed() || n > most {
            let why = match key.begins_hashed() {
                true => format!("it can be at most {most} with {shards} shards"),
                false => "the first field of the shard key is not hashed".to_string(),
            };
            return Err(Error::new(
                Code::InvalidOptions,
                format!("numInitialChunks cannot be {n}: {why}"),
            ));
        }
    }
    if !key.begins_hashed() {
        return Ok(Vec::new());
    }
    let bound = |hash: i64| {
        let mut bytes = keyenc::encoded(Value::Int64(hash));
        for _ in key.fields().iter().skip(1) {
            keyenc::encode(Value::MinKey, false, &mut bytes);
        }
        bytes
    };
    let points = split_points(requested.unwrap_or(shards));
    Ok(points.into_iter().map(bound).collect())
}

/// The hashes that divide all of them into `n` parts of the same size, symmetric around 0.
fn split_points(n: usize) -> Vec<i64> {
    let n = n as i64;
    if n < 2 {
        return Vec::new();
    }
    let step = i64::MAX / n * 2;
    // With an even number of parts 0 is a point; otherwise the middle part is around it.
    let first = if n % 2 == 0 { 0 } else { step / 2 };
    let mut points: Vec<i64> = (0..n / 2)
        .map(|k| first + k * step)
        .flat_map(|p| [p, -p])
        .collect();
    points.sort_unstable();
    points.dedup();
    points
}

/// Gives each zone's chunks to its shards in turn.
struct Turns<'s> {
    shards: &'s [Candidate],
    /// The shard of the first chunk outside of zones.
    first: usize,
    given: HashMap<Option<Arc<str>>, usize>,
}

impl<'s> Turns<'s> {
    fn new(shards: &'s [Candidate], first: &str) -> Turns<'s> {
        Turns {
            shards,
            first: shards.iter().position(|s| *s.name == *first).unwrap_or(0),
            given: HashMap::new(),
        }
    }

    fn next(&mut self, zone: Option<&Arc<str>>) -> Result<Arc<str>> {
        let fits = |s: &&Candidate| zone.is_none_or(|z| s.zones.contains(z));
        let fitting: Vec<&Candidate> = self.shards.iter().filter(fits).collect();
        let given = self.given.entry(zone.cloned()).or_insert(match zone {
            Some(_) => 0,
            None => self.first,
        });
        let place = *given % fitting.len().max(1);
        *given += 1;
        match (fitting.get(place), zone) {
            (Some(shard), _) => Ok(shard.name.clone()),
            (None, Some(zone)) => Err(Error::new(
                Code::ZoneNotFound,
                format!("the zone {zone} has keys of the collection, but no shard"),
            )),
            (None, None) => Err(Error::new(
                Code::ShardNotFound,
                "there is no shard for the chunks of a collection",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::stamp::Timestamp;
    use crate::table::{Generation, RangeTable};
    use crate::zones::ZoneRange;
    use muniment_value::{DocBuf, doc};

    fn key(pattern: DocBuf) -> ShardKey {
        ShardKey::parse(pattern.as_doc()).unwrap()
    }

    fn shards(zones: &[&[&str]]) -> Vec<Candidate> {
        let candidate = |(n, zones): (usize, &&[&str])| Candidate {
            name: format!("s{n}").into(),
            zones: zones.iter().map(|z| Arc::from(*z)).collect(),
        };
        zones.iter().enumerate().map(candidate).collect()
    }

    fn zone(key: &ShardKey, min: DocBuf, max: DocBuf, zone: &str) -> ZoneRange {
        ZoneRange {
            min: key.extended_bound(min.as_doc()).unwrap(),
            max: key.extended_bound(max.as_doc()).unwrap(),
            zone: zone.into(),
        }
    }

    fn shown(key: &ShardKey, zones: Vec<ZoneRange>, shards: &[Candidate]) -> String {
        let zones = Zones::new(key, zones).unwrap();
        let chunks = initial_chunks(key, &zones, shards, "s1", None).unwrap();
        let generation = Generation {
            uuid: [0; 16],
            timestamp: Timestamp::new(1, 1),
        };
        RangeTable::build(Arc::new(key.clone()), generation, chunks.clone()).unwrap();
        let each = chunks
            .iter()
            .map(|c| format!("{} {}", key.show(&c.min), c.shard));
        each.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn hashes_are_divided_as_in_mongodb() {
        assert_eq!(split_points(1), [0; 0]);
        assert_eq!(split_points(2), [0]);
        let third = 3_074_457_345_618_258_602;
        assert_eq!(split_points(3), [-third, third]);
        let quarter = 4_611_686_018_427_387_902;
        assert_eq!(split_points(4), [-quarter, 0, quarter]);
        assert_eq!(split_points(1000).len(), 999);
    }

    #[test]
    fn one_chunk_or_one_for_each_shard() {
        let three = shards(&[&[], &[], &[]]);
        assert_eq!(
            shown(&key(doc! { "a": 1 }), vec![], &three),
            "{ a: MinKey } s1"
        );
        let hashed = key(doc! { "h": "hashed", "b": 1 });
        assert_eq!(
            shown(&hashed, vec![], &three),
            "{ h: MinKey, b: MinKey } s0, { h: -3074457345618258602, b: MinKey } s1, \
             { h: 3074457345618258602, b: MinKey } s2"
        );
        let later = key(doc! { "b": 1, "h": "hashed" });
        assert_eq!(shown(&later, vec![], &three), "{ b: MinKey, h: MinKey } s1");
        let chunks = initial_chunks(&hashed, &Zones::default(), &three, "s1", Some(10)).unwrap();
        assert_eq!((chunks.len(), &*chunks[9].shard), (10, "s0"));
        assert_eq!(chunks[9].version, Version::new(1, 9));
    }

    #[test]
    fn zones_have_chunks_on_their_shards() {
        let key = key(doc! { "a": 1, "b": 1 });
        let zones = vec![
            zone(&key, doc! { "a": 10 }, doc! { "a": 20 }, "EU"),
            zone(&key, doc! { "a": 20 }, doc! { "a": 30 }, "US"),
            zone(
                &key,
                doc! { "a": 40 },
                doc! { "a": Value::MaxKey, "b": Value::MaxKey },
                "EU",
            ),
        ];
        let shards = shards(&[&["US"], &["EU"], &["EU"]]);
        assert_eq!(
            shown(&key, zones, &shards),
            "{ a: MinKey, b: MinKey } s0, { a: 10, b: MinKey } s1, { a: 20, b: MinKey } s0, \
             { a: 30, b: MinKey } s1, { a: 40, b: MinKey } s2"
        );
    }

    #[test]
    fn what_is_refused() {
        let ranged = key(doc! { "a": 1 });
        let hashed = key(doc! { "a": "hashed" });
        let one = shards(&[&[]]);
        let none = Zones::default();
        let code = |r: Result<Vec<Record>>| r.unwrap_err().code();
        let refused = initial_chunks(&ranged, &none, &one, "s0", Some(2));
        assert_eq!(code(refused), Code::InvalidOptions);
        let refused = initial_chunks(&hashed, &none, &one, "s0", Some(8193));
        assert_eq!(code(refused), Code::InvalidOptions);
        let refused = initial_chunks(&ranged, &none, &[], "s0", None);
        assert_eq!(code(refused), Code::ShardNotFound);
        let range = zone(&ranged, doc! { "a": 1 }, doc! { "a": 2 }, "EU");
        let zones = Zones::new(&ranged, vec![range]).unwrap();
        let refused = initial_chunks(&ranged, &zones, &one, "s0", None);
        assert_eq!(code(refused), Code::ZoneNotFound);
    }
}
