//! What routers and shards tell each other of sharded collections, beside a command: the field `shardVersion`.
//!
//! It is `{"db.collection": {uuid, timestamp, version}, …}`, with the sharded collections that the command uses; each
//! other collection is not sharded, as far as the router knows. `$merges: true` in it says that the router puts the
//! results together with those of other shards, `$allShards: <timestamp>` that it asks all shards of the cluster, `$now:
//! <date>` what `$$NOW` is on all of them, and `$clusterTime: <timestamp>` what `$$CLUSTER_TIME` is. A shard compares that
//! with its own state (see `muniment_storage::Placement`), so a router that does not know of a change learns of it by the
//! error StaleConfig.

use muniment_exec::{Expectations, Expected};
use muniment_shard::{Generation, Timestamp, Version};
use muniment_storage::{Owned, join_ranges, ranges_of_array, ranges_to_array};
use muniment_value::{Doc, DocBuf, Error, Result, Value, doc};
use muniment_wire::DocWriter;
use std::sync::Arc;

/// The name of the field.
pub const FIELD: &str = "shardVersion";

/// The name within the field that says that the router merges results. No collection has such a name.
const MERGES: &str = "$merges";

/// The name within the field that says that the router asks all shards.
const ALL_SHARDS: &str = "$allShards";

/// The field's value, if the router asks all shards of the cluster, whichever own something, and knows changes of ranges
/// up to a time: a member that lags may not know what the shard owned before.
pub fn of_all_shards(mut versions: DocBuf, changed: Timestamp) -> DocBuf {
    versions.append(ALL_SHARDS, changed.to_value());
    versions
}

/// The name within the field that says which ranges of a collection are meant.
const WITHIN: &str = "$within";

/// The field's value, if only these ranges of a collection are meant.
pub fn within(mut versions: DocBuf, ns: &str, ranges: &[Owned]) -> DocBuf {
    versions.append(WITHIN, doc! { "ns": ns, "ranges": ranges_to_array(ranges) });
    versions
}

/// The field's value, if the router merges results.
pub fn merging(mut versions: DocBuf) -> DocBuf {
    versions.append(MERGES, true);
    versions
}

/// The name within the field that says what `$$NOW` is.
const NOW: &str = "$now";

/// The name within the field that says what `$$CLUSTER_TIME` is.
const CLUSTER_TIME: &str = "$clusterTime";

/// The field's value for a command that began at the router at a time in milliseconds since 1970, and at a time of the
/// cluster.
pub fn at(versions: Doc<'_>, (now_ms, cluster): (i64, Option<(u32, u32)>)) -> DocBuf {
    let mut at = DocBuf::new();
    at.append(NOW, Value::DateTime(now_ms));
    at.append_some(
        CLUSTER_TIME,
        cluster.map(|(t, i)| Value::Timestamp { t, i }),
    );
    at.append_all(versions);
    at
}

/// As [`at`], written as fields of the innermost open document. The cluster's time is told only if the router puts
/// results together: another shard has its own.
pub fn write_at(
    w: &mut DocWriter<'_>,
    versions: Doc<'_>,
    (now_ms, cluster): (i64, Option<(u32, u32)>),
) {
    w.field(NOW, Value::DateTime(now_ms));
    if let Some((t, i)) = cluster.filter(|_| versions.get(MERGES).is_some()) {
        w.field(CLUSTER_TIME, Value::Timestamp { t, i });
    }
    w.elements(versions);
}

/// The version of one collection, as the field has it.
pub fn version_of(expected: &Expected) -> DocBuf {
    let uuid = Value::Binary {
        subtype: 4,
        bytes: &expected.generation.uuid,
    };
    doc! {
        "uuid": uuid,
        "timestamp": expected.generation.timestamp.to_value(),
        "version": expected.version.to_value(),
    }
}

/// Reads the field.
///
/// # Errors
/// 9 FailedToParse.
pub fn expectations(versions: Doc<'_>) -> Result<Expectations> {
    let mut sharded = Vec::new();
    let (mut merges, mut all_shards) = (false, None);
    let (mut within, mut now_ms, mut cluster_time) = (None, None, None);
    for e in versions {
        match e.name() {
            NOW => {
                let Value::DateTime(at) = e.value() else {
                    return Err(Error::failed_to_parse("$now is a date"));
                };
                now_ms = Some(at);
                continue;
            }
            CLUSTER_TIME => {
                let Value::Timestamp { t, i } = e.value() else {
                    return Err(Error::failed_to_parse("$clusterTime is a timestamp"));
                };
                cluster_time = Some(muniment_storage::Timestamp::new(t, i));
                continue;
            }
            MERGES => {
                merges = e.value().truthy();
                continue;
            }
            ALL_SHARDS => {
                let Value::Timestamp { t, i } = e.value() else {
                    return Err(Error::failed_to_parse("$allShards is a timestamp"));
                };
                all_shards = Some(muniment_storage::Timestamp::new(t, i));
                continue;
            }
            WITHIN => {
                let limit = e.value().as_doc().and_then(limits);
                within = Some(limit.ok_or_else(|| {
                    Error::failed_to_parse("shardVersion has no valid ranges in $within")
                })?);
                continue;
            }
            _ => {}
        }
        let read = e.value().as_doc().and_then(expected);
        let Some(expected) = read else {
            return Err(Error::failed_to_parse(format!(
                "the shardVersion of {} is {}, and not {{ uuid, timestamp, version }}",
                e.name(),
                e.value().to_display()
            )));
        };
        sharded.push((e.name().to_string(), expected));
    }
    Ok(Expectations {
        sharded,
        merges,
        all_shards,
        within,
        now_ms,
        cluster_time,
    })
}

fn limits(d: Doc<'_>) -> Option<(String, Arc<[Owned]>)> {
    let ranges = ranges_of_array(d.get_array("ranges")?)?;
    let ranges = join_ranges(ranges).ok()?;
    Some((d.get_str("ns")?.to_string(), ranges.into()))
}

fn expected(d: Doc<'_>) -> Option<Expected> {
    let Some(Value::Binary { bytes, .. }) = d.get("uuid") else {
        return None;
    };
    let Some(Value::Timestamp { t, i }) = d.get("timestamp") else {
        return None;
    };
    let Some(Value::Timestamp { t: major, i: minor }) = d.get("version") else {
        return None;
    };
    Some(Expected {
        generation: Generation {
            uuid: <[u8; 16]>::try_from(bytes).ok()?,
            timestamp: Timestamp::new(t, i),
        },
        version: Version::new(major, minor),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn there_and_back() {
        let one = Expected {
            generation: Generation {
                uuid: [3; 16],
                timestamp: Timestamp::new(5, 6),
            },
            version: Version::new(7, 8),
        };
        let read = expectations(doc! { "a.b": version_of(&one) }.as_doc()).unwrap();
        assert_eq!(read.sharded, [("a.b".to_string(), one)]);
        let none = expectations(Doc::EMPTY).unwrap();
        assert!(none.sharded.is_empty() && !none.merges);
        let merged = expectations(merging(DocBuf::new()).as_doc()).unwrap();
        assert!(merged.sharded.is_empty() && merged.merges && merged.all_shards.is_none());
        let all = expectations(of_all_shards(DocBuf::new(), Timestamp::new(3, 4)).as_doc());
        let all = all.unwrap();
        assert!(all.all_shards == Some(muniment_storage::Timestamp::new(3, 4)) && !all.merges);
        assert!(expectations(doc! { "$allShards": true }.as_doc()).is_err());
        let ranges = [(vec![1], Some(vec![2])), (vec![3], None)];
        let some = within(DocBuf::new(), "a.b", &ranges);
        let (ns, read) = expectations(some.as_doc()).unwrap().within.unwrap();
        assert_eq!((ns.as_str(), &*read), ("a.b", &ranges[..]));
        assert!(expectations(doc! { "$within": 1 }.as_doc()).is_err());
        let e = expectations(doc! { "a.b": 1 }.as_doc()).unwrap_err();
        assert!(e.message().contains("a.b"), "{e}");
    }
}
