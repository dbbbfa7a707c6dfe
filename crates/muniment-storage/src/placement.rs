//! What a shard owns of a sharded collection.
//!
//! The placement is a part of the collection's catalog entry: it goes through the log, to followers, into new
//! members and through recovery as the entry does, and a change of it has the collection alone. So a write unit,
//! which shares the collection from its first check to its commit, stores no document that the shard does not own
//! at that commit.
//!
//! Stored form: `{timestamp, version, key, owned: [min, max, min, max, …], undecided?}`. Bounds are keys of
//! [`ShardKey`] as binary; the ranges ascend and do not touch, and the last bound is empty where a range has no
//! end.

use muniment_shard::{Generation, ShardKey, Timestamp, Version};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
use std::sync::Arc;

/// A range of keys: the lower bound, which is inside, and the upper one, which is outside. `None`: no end.
pub type Owned = (Vec<u8>, Option<Vec<u8>>);

/// What a shard owns of a sharded collection, and since when.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The time at which the collection was sharded; with its UUID this is the generation.
    pub timestamp: Timestamp,
    /// The newest version among the shard's chunks; zero if it has none.
    pub version: Version,
    /// The shard key.
    pub key: Arc<ShardKey>,
    /// The ranges, ascending, which do not touch.
    owned: Vec<Owned>,
    /// The command that shards the collection has not ended yet.
    pub undecided: bool,
}

impl Placement {
    /// A placement of these ranges, in any order. Ranges that touch are joined.
    ///
    /// # Errors
    /// 2 BadValue if ranges overlap.
    pub fn new(
        timestamp: Timestamp,
        version: Version,
        key: Arc<ShardKey>,
        mut ranges: Vec<Owned>,
        undecided: bool,
    ) -> Result<Placement> {
        ranges.sort();
        let mut owned: Vec<Owned> = Vec::new();
        for (min, max) in ranges {
            if max.as_ref().is_some_and(|max| *max <= min) {
                return Err(Error::bad_value("an owned range ends before it begins"));
            }
            match owned.last_mut() {
                Some((_, None)) => return Err(overlap()),
                Some((_, Some(end))) if *end > min => return Err(overlap()),
                Some((_, end @ Some(_))) if end.as_ref() == Some(&min) => *end = max,
                _ => owned.push((min, max)),
            }
        }
        Ok(Placement {
            timestamp,
            version,
            key,
            owned,
            undecided,
        })
    }

    /// The generation of the collection with this UUID.
    pub fn generation(&self, uuid: [u8; 16]) -> Generation {
        Generation {
            uuid,
            timestamp: self.timestamp,
        }
    }

    /// The ranges, ascending, which do not touch.
    pub fn owned(&self) -> &[Owned] {
        &self.owned
    }

    /// Whether a key is owned.
    pub fn owns(&self, key: &[u8]) -> bool {
        let after = self.owned.partition_point(|(min, _)| min.as_slice() <= key);
        let range = after.checked_sub(1).and_then(|i| self.owned.get(i));
        range.is_some_and(|(_, max)| max.as_deref().is_none_or(|max| key < max))
    }

    /// Whether a document is owned; `key` is a buffer for its key.
    ///
    /// # Errors
    /// 61 ShardKeyNotFound for a document that cannot have a key.
    pub fn owns_doc(&self, doc: Doc<'_>, key: &mut Vec<u8>) -> Result<bool> {
        key.clear();
        self.key.write_key(doc, key)?;
        Ok(self.owns(key))
    }

    /// The stored form.
    pub fn to_doc(&self) -> DocBuf {
        let mut owned = ArrayBuf::new();
        for (min, max) in &self.owned {
            for bytes in [min.as_slice(), max.as_deref().unwrap_or_default()] {
                owned.push(Value::Binary { subtype: 0, bytes });
            }
        }
        let mut d = doc! {
            "timestamp": self.timestamp.to_value(),
            "version": self.version.to_value(),
            "key": self.key.pattern(),
            "owned": owned,
        };
        d.append_some("undecided", self.undecided.then_some(true));
        d
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// 9 FailedToParse, which names the field; those of [`ShardKey::parse`] and of [`Placement::new`].
    pub fn parse(d: Doc<'_>) -> Result<Placement> {
        let lacks = |what: &str| Error::failed_to_parse(format!("a placement has no valid {what}"));
        let numbers = |name: &str| match d.get(name) {
            Some(Value::Timestamp { t, i }) => Ok((t, i)),
            _ => Err(lacks(name)),
        };
        let (t, i) = numbers("timestamp")?;
        let (major, minor) = numbers("version")?;
        let key = ShardKey::parse(d.get_doc("key").ok_or_else(|| lacks("key"))?)?;
        let mut ranges = Vec::new();
        let stored = d.get_array("owned").ok_or_else(|| lacks("owned"))?;
        let mut bounds = stored.values().map(|v| match v {
            Value::Binary { bytes, .. } => Ok(bytes),
            _ => Err(lacks("owned")),
        });
        while let Some(min) = bounds.next() {
            let max = bounds.next().ok_or_else(|| lacks("owned"))??;
            ranges.push((min?.to_vec(), (!max.is_empty()).then(|| max.to_vec())));
        }
        let undecided = d.get("undecided").is_some_and(|v| v.truthy());
        let (timestamp, version) = (Timestamp::new(t, i), Version::new(major, minor));
        Placement::new(timestamp, version, Arc::new(key), ranges, undecided)
    }
}

fn overlap() -> Error {
    Error::bad_value("owned ranges overlap")
}

/// The error 13388 StaleConfig: what the client, a router, knows of the collection is not what is so here.
/// Routers then read the configuration again, and no client of theirs sees it. `held` is the UUID of
/// the collection that is here, and its placement: the error says which generation that is.
pub fn stale(namespace: &str, held: Option<([u8; 16], &Placement)>, why: &str) -> Error {
    let mut extra = doc! { "ns": namespace };
    if let Some((uuid, placement)) = held {
        let bytes = uuid.as_slice();
        extra.append("uuid", Value::Binary { subtype: 4, bytes });
        extra.append("timestamp", placement.timestamp.to_value());
        extra.append("undecided", placement.undecided);
    }
    Error::new(Code::StaleConfig, format!("{namespace}: {why}")).with_extra(extra)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn key() -> Arc<ShardKey> {
        Arc::new(ShardKey::parse(doc! { "a": 1 }.as_doc()).unwrap())
    }

    fn at(n: i32) -> Vec<u8> {
        key().key_of(doc! { "a": n }.as_doc()).unwrap()
    }

    fn placed(ranges: Vec<Owned>) -> Result<Placement> {
        let (t, v) = (Timestamp::new(7, 1), Version::new(1, 2));
        Placement::new(t, v, key(), ranges, false)
    }

    #[test]
    fn ranges_that_touch_are_joined() {
        let p = placed(vec![
            (at(20), None),
            (at(0), Some(at(5))),
            (at(5), Some(at(10))),
        ])
        .unwrap();
        assert_eq!(p.owned(), [(at(0), Some(at(10))), (at(20), None)]);
        let mut buf = Vec::new();
        for (n, owned) in [(-1, false), (0, true), (9, true), (10, false), (20, true)] {
            let is = p.owns_doc(doc! { "a": n }.as_doc(), &mut buf).unwrap();
            assert_eq!(is, owned, "{n}");
        }
        let array = doc! { "a": muniment_value::array![1] };
        assert!(p.owns_doc(array.as_doc(), &mut buf).is_err());
        let again = Placement::parse(p.to_doc().as_doc()).unwrap();
        assert_eq!(again.to_doc(), p.to_doc());
        assert!(!placed(Vec::new()).unwrap().owns(&at(0)));
    }

    #[test]
    fn ranges_that_cannot_be() {
        assert!(placed(vec![(at(0), Some(at(5))), (at(4), None)]).is_err());
        assert!(placed(vec![(at(0), None), (at(4), None)]).is_err());
        assert!(placed(vec![(at(3), Some(at(3)))]).is_err());
        let e = Placement::parse(doc! { "timestamp": 1 }.as_doc()).unwrap_err();
        assert!(e.message().contains("timestamp"), "{e}");
    }
}
