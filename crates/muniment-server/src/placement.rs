//! What routers and shards tell each other of sharded collections, beside a command: the field `shardVersion`.
//!
//! It is `{"db.collection": {uuid, timestamp, version}, …}`, with the sharded collections that the command uses; each
//! other collection is not sharded, as far as the router knows. `$merges: true` in it says that the router puts the
//! results together with those of other shards. A shard compares that with its own state (see
//! `muniment_storage::Placement`), so a router that does not know of a change learns of it by the error StaleConfig.

use muniment_exec::{Expectations, Expected};
use muniment_shard::{Generation, Timestamp, Version};
use muniment_value::{Doc, DocBuf, Error, Result, Value, doc};

/// The name of the field.
pub const FIELD: &str = "shardVersion";

/// The name within the field that says that the router merges results. No collection has such a name.
const MERGES: &str = "$merges";

/// The field's value, if the router merges results.
pub fn merging(mut versions: DocBuf) -> DocBuf {
    versions.append(MERGES, true);
    versions
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
    let mut merges = false;
    for e in versions {
        if e.name() == MERGES {
            merges = e.value().truthy();
            continue;
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
    Ok(Expectations { sharded, merges })
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
        assert!(merged.sharded.is_empty() && merged.merges);
        let e = expectations(doc! { "a.b": 1 }.as_doc()).unwrap_err();
        assert!(e.message().contains("a.b"), "{e}");
    }
}
