//! The commands of both schemas, as the original's MongoDB stores cause the Java driver to send
//! them.

use super::Profile;
use super::graph::LINK_TYPES;
use crate::lab::DB;
use muniment_load::conn::Message;
use muniment_value::{DocBuf, Value, array, doc};
use std::time::{SystemTime, UNIX_EPOCH};

/// The collection of links.
pub(crate) const LINKS: &str = "linktable";
/// The collection of counts of links by node and type.
pub(crate) const COUNTS: &str = "counttable";
/// The collection of nodes.
pub(crate) const NODES: &str = "nodetable";
/// The only type that nodes have.
const NODE_TYPE: i32 = 2048;
/// The most links that a list returns.
pub(crate) const LIST_LIMIT: i32 = 10_000;

/// A link's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LinkKey {
    /// The node that it leads from.
    pub id1: i64,
    /// The index of its type in [`LINK_TYPES`].
    pub link_type: usize,
    /// The node that it leads to.
    pub id2: i64,
}

impl LinkKey {
    pub(crate) fn type_number(&self) -> i64 {
        LINK_TYPES.get(self.link_type).copied().unwrap_or(0)
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as i64)
}

fn binary(bytes: &[u8]) -> Value<'_> {
    Value::Binary { subtype: 0, bytes }
}

fn message(body: &DocBuf) -> Message {
    Message::command(DB, body)
}

/// The `_id` of a link in v2: type, id1 and id2, big-endian.
fn link_id(k: &LinkKey) -> [u8; 24] {
    let mut id = [0; 24];
    for (at, n) in id.chunks_exact_mut(8).zip([k.type_number(), k.id1, k.id2]) {
        at.copy_from_slice(&n.to_be_bytes());
    }
    id
}

/// The `_id` of a count in v2: id and type.
fn count_id(k: &LinkKey) -> [u8; 16] {
    let mut id = [0; 16];
    for (at, n) in id.chunks_exact_mut(8).zip([k.id1, k.type_number()]) {
        at.copy_from_slice(&n.to_be_bytes());
    }
    id
}

/// A schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Store(pub Profile);

impl Store {
    /// The filter of one link.
    fn link(&self, k: &LinkKey) -> DocBuf {
        match self.0 {
            Profile::V2 => doc! { "_id": binary(&link_id(k)) },
            Profile::Y2015 => {
                doc! { "link_type": k.type_number(), "id1": k.id1, "id2": k.id2 }
            }
        }
    }

    /// The filter of one count.
    fn count(&self, k: &LinkKey) -> DocBuf {
        match self.0 {
            Profile::V2 => doc! { "_id": binary(&count_id(k)) },
            Profile::Y2015 => doc! { "id": k.id1, "link_type": k.type_number() },
        }
    }

    /// A link as it is loaded.
    pub(crate) fn link_document(&self, k: &LinkKey, time: i64, data: &[u8]) -> DocBuf {
        let mut d = match self.0 {
            Profile::V2 => doc! { "_id": binary(&link_id(k)) },
            Profile::Y2015 => DocBuf::new(),
        };
        d.append("id1", k.id1)
            .append("link_type", k.type_number())
            .append("id2", k.id2)
            .append("visibility", 1)
            .append("version", 0)
            .append("time", time)
            .append("data", binary(data));
        d
    }

    /// A count as it is loaded.
    pub(crate) fn count_document(&self, k: &LinkKey, count: u64, time: i64) -> DocBuf {
        let mut d = match self.0 {
            Profile::V2 => doc! { "_id": binary(&count_id(k)) },
            Profile::Y2015 => DocBuf::new(),
        };
        d.append("id", k.id1)
            .append("link_type", k.type_number())
            .append("count", count as i64)
            .append("version", 0_i64)
            .append("time", time);
        d
    }

    /// The indexes, as collection and specification. With `absent`, this includes v2's index on
    /// `id1` of the counts, a field that they do not have (theirs is `id`).
    pub(crate) fn indexes(&self, absent: bool) -> Vec<(&'static str, DocBuf)> {
        match self.0 {
            Profile::V2 => {
                let links = doc! {
                    "key": doc! { "id1": 1, "link_type": 1, "time": 1, "visibility": 1 },
                    "name": "id1_link_type_time_visibility",
                };
                let counts = doc! {
                    "key": doc! { "id1": 1, "link_type": 1 },
                    "name": "id1_link_type",
                };
                let counts = absent.then_some((COUNTS, counts));
                [(LINKS, links)].into_iter().chain(counts).collect()
            }
            Profile::Y2015 => vec![
                (
                    LINKS,
                    doc! {
                        "key": doc! { "link_type": 1, "id1": 1, "id2": 1 },
                        "name": "link_type_id1_id2",
                        "unique": true,
                    },
                ),
                (
                    LINKS,
                    doc! {
                        "key": doc! {
                            "id1": 1, "link_type": 1, "visibility": 1, "time": 1, "id2": 1,
                            "version": 1, "data": 1,
                        },
                        "name": "id1_link_type",
                    },
                ),
                (
                    COUNTS,
                    doc! {
                        "key": doc! { "id": 1, "link_type": 1 },
                        "name": "id_link_type",
                        "unique": true,
                    },
                ),
            ],
        }
    }

    /// Writes a link. The reply tells its visibility before the write (v2), or whether the write
    /// changed it (2015).
    pub(crate) fn put_link(&self, k: &LinkKey, data: &[u8]) -> Message {
        let time = now_ms();
        let on_insert = doc! { "id1": k.id1, "link_type": k.type_number(), "id2": k.id2 };
        match self.0 {
            Profile::V2 => message(&doc! {
                "findAndModify": LINKS,
                "query": self.link(k),
                "fields": doc! { "visibility": 1, "_id": 0 },
                "update": doc! {
                    "$setOnInsert": on_insert,
                    "$set": doc! {
                        "visibility": 1, "version": 0, "time": time, "data": binary(data),
                    },
                },
                "upsert": true,
                "new": false,
            }),
            Profile::Y2015 => {
                let mut all = DocBuf::new();
                all.append("version", 0)
                    .append("time", time)
                    .append("data", binary(data));
                update(
                    LINKS,
                    self.link(k),
                    doc! { "$setOnInsert": all, "$set": doc! { "visibility": 1 } },
                    true,
                )
            }
        }
    }

    /// In 2015, the second step of writing a link that existed already: sets its payload.
    pub(crate) fn update_link_data(&self, k: &LinkKey, data: &[u8]) -> Message {
        let set = doc! { "data": binary(data), "time": now_ms(), "version": 0 };
        update(LINKS, self.link(k), doc! { "$set": set }, false)
    }

    /// Hides a link; the reply tells whether it was visible.
    pub(crate) fn hide_link(&self, k: &LinkKey) -> Message {
        let hide = doc! { "$set": doc! { "visibility": 0 } };
        match self.0 {
            Profile::V2 => message(&doc! {
                "findAndModify": LINKS,
                "query": self.link(k),
                "fields": doc! { "visibility": 1, "_id": 0 },
                "update": hide,
                "new": false,
            }),
            Profile::Y2015 => update(LINKS, self.link(k), hide, false),
        }
    }

    /// Adds to a count. When it subtracts, v2 asks for the count before the change.
    pub(crate) fn add_to_count(&self, k: &LinkKey, by: i64) -> Message {
        let mut on_insert = DocBuf::new();
        if self.0 == Profile::V2 {
            on_insert
                .append("id", k.id1)
                .append("link_type", k.type_number());
        }
        let mut change = doc! {
            "$inc": doc! { "count": by, "version": 1_i64 },
            "$set": doc! { "time": now_ms() },
        };
        if !on_insert.as_doc().is_empty() {
            change.append("$setOnInsert", on_insert);
        }
        if self.0 == Profile::V2 && by < 0 {
            return message(&doc! {
                "findAndModify": COUNTS,
                "query": self.count(k),
                "update": change,
                "upsert": true,
                "new": false,
            });
        }
        update(COUNTS, self.count(k), change, true)
    }

    /// Reads a count.
    pub(crate) fn get_count(&self, k: &LinkKey) -> Message {
        find_one(COUNTS, self.count(k))
    }

    /// Reads one link.
    pub(crate) fn get_link(&self, k: &LinkKey) -> Message {
        find_one(LINKS, self.link(k))
    }

    /// In 2015, reads several links of one node and type.
    pub(crate) fn get_links(&self, k: &LinkKey, id2s: &[i64]) -> Message {
        message(&doc! {
            "find": LINKS,
            "filter": several(k, id2s),
        })
    }

    /// In 2015, counts those links.
    pub(crate) fn count_links(&self, k: &LinkKey, id2s: &[i64]) -> Message {
        counted(several(k, id2s))
    }

    /// Reads a list of visible links, the newest first, up to `newest`.
    pub(crate) fn get_list(&self, k: &LinkKey, newest: i64, skip: i32) -> Message {
        let mut body = doc! {
            "find": LINKS,
            "filter": list(k, newest),
            "projection": doc! {
                "id1": 1, "link_type": 1, "id2": 1, "visibility": 1, "data": 1, "version": 1,
                "time": 1, "_id": 0,
            },
            "sort": doc! { "time": -1 },
            "limit": LIST_LIMIT,
        };
        if skip > 0 {
            body.append("skip", skip);
        }
        message(&body)
    }

    /// In 2015, counts the links of a list before it is read.
    pub(crate) fn count_list(&self, k: &LinkKey, newest: i64) -> Message {
        counted(list(k, newest))
    }

    /// Makes a node's document.
    pub(crate) fn node_document(&self, id: i64, version: i64, data: &[u8]) -> DocBuf {
        doc! {
            "_id": id,
            "type": NODE_TYPE,
            "version": version,
            "time": (now_ms() / 1000) as i32,
            "data": binary(data),
        }
    }

    pub(crate) fn add_node(&self, id: i64, data: &[u8]) -> Message {
        let node = self.node_document(id, 1, data);
        message(&doc! { "insert": NODES, "ordered": false, "documents": array![node] })
    }

    /// Reads a node.
    pub(crate) fn get_node(&self, id: i64) -> Message {
        find_one(NODES, doc! { "_id": id })
    }

    /// Writes a node's payload.
    pub(crate) fn update_node(&self, id: i64, data: &[u8]) -> Message {
        let set = doc! {
            "version": 2_i64, "time": (now_ms() / 1000) as i32, "data": binary(data),
        };
        update(
            NODES,
            doc! { "_id": id, "type": NODE_TYPE },
            doc! { "$set": set },
            false,
        )
    }

    pub(crate) fn delete_node(&self, id: i64) -> Message {
        message(&doc! {
            "delete": NODES,
            "deletes": array![doc! { "q": doc! { "_id": id, "type": NODE_TYPE }, "limit": 1 }],
        })
    }
}

fn update(collection: &str, query: DocBuf, change: DocBuf, upsert: bool) -> Message {
    message(&doc! {
        "update": collection,
        "updates": array![doc! { "q": query, "u": change, "upsert": upsert }],
    })
}

fn find_one(collection: &str, filter: DocBuf) -> Message {
    message(&doc! {
        "find": collection, "filter": filter, "limit": 1, "singleBatch": true,
    })
}

fn several(k: &LinkKey, id2s: &[i64]) -> DocBuf {
    let mut list = muniment_value::ArrayBuf::new();
    id2s.iter().for_each(|id| {
        list.push(*id);
    });
    doc! { "link_type": k.type_number(), "id1": k.id1, "id2": doc! { "$in": list } }
}

fn list(k: &LinkKey, newest: i64) -> DocBuf {
    doc! {
        "id1": k.id1,
        "link_type": k.type_number(),
        "time": doc! { "$gte": 0_i64, "$lte": newest },
        "visibility": 1,
    }
}

/// A count in the form in which drivers' countDocuments sends it.
fn counted(filter: DocBuf) -> Message {
    message(&doc! {
        "aggregate": LINKS,
        "pipeline": array![
            doc! { "$match": filter },
            doc! { "$group": doc! { "_id": 1, "n": doc! { "$sum": 1 } } },
        ],
        "cursor": doc! {},
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn the_index_on_an_absent_field_is_made_when_asked_for() {
        let names = |s: Store, absent| {
            let all = s.indexes(absent).into_iter();
            all.map(|(c, i)| format!("{c}.{}", i.as_doc().get_str("name").unwrap_or("")))
                .collect::<Vec<_>>()
        };
        let v2 = Store(Profile::V2);
        assert_eq!(
            names(v2, false),
            ["linktable.id1_link_type_time_visibility"]
        );
        assert_eq!(names(v2, true)[1], "counttable.id1_link_type");
        let old = Store(Profile::Y2015);
        assert_eq!(names(old, true), names(old, false));
    }

    #[test]
    fn keys_are_big_endian() {
        let k = LinkKey {
            id1: 5,
            link_type: 1,
            id2: -1,
        };
        let id = link_id(&k);
        assert_eq!(id[..8], 123_456_790_i64.to_be_bytes());
        assert_eq!((id[15], id[23]), (5, 0xff));
        assert_eq!(count_id(&k)[8..], 123_456_790_i64.to_be_bytes());
    }
}
