//! The check of the data after a crash.

use crate::writer::{COLLECTIONS, DB, History, Load, State, Writer};
use muniment_value::{Doc, DocBuf, array, doc};
use muniment_wire::Connection;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The acknowledged writes that must survive.
#[derive(Clone, Copy, Debug)]
pub enum Promise {
    /// All of them: the process was killed, but the machine kept running.
    All,
    /// Those acknowledged as journaled, and those acknowledged longer than `bound` before the power cut.
    Journaled {
        /// The moment of the power cut.
        cut: Instant,
        /// The journal's commit interval plus the delay that the machine's scheduling may add.
        bound: Duration,
    },
}

/// Creates the collections' indexes: unique, multikey, compound, sparse, partial, wildcard.
pub fn create_indexes(c: &mut Connection) {
    for coll in COLLECTIONS {
        let indexes = array![
            doc! { "key": doc! { "u": 1 }, "name": "u_1", "unique": true },
            doc! { "key": doc! { "tags": 1 }, "name": "tags_1" },
            doc! { "key": doc! { "a": 1, "b": -1 }, "name": "a_1_b_-1" },
            doc! { "key": doc! { "s": 1 }, "name": "s_1", "sparse": true },
            doc! {
                "key": doc! { "b": 1 }, "name": "b_1",
                "partialFilterExpression": doc! { "a": doc! { "$gt": 20 } },
            },
            doc! {
                "key": doc! { "$**": 1 }, "name": "all",
                "wildcardProjection": doc! { "padding": 0, "b": 0 },
            },
            doc! { "key": doc! { "a": 1, "b": "text" }, "name": "a_1_b_text" },
        ];
        c.command(DB, &doc! { "createIndexes": coll, "indexes": indexes })
            .unwrap();
    }
}

impl Load {
    /// Checks the data that the server has now, and makes it the writers' memory. Returns how many
    /// acknowledged writes were lost although the promise allowed that.
    ///
    /// # Panics
    /// If a promise was broken.
    pub fn judge(&mut self, c: &mut Connection, promise: Promise) -> usize {
        let mut found: Vec<BTreeMap<i64, State>> = Vec::new();
        for coll in COLLECTIONS {
            let docs = c
                .find_all(DB, &doc! { "find": coll, "hint": doc! { "_id": 1 } })
                .unwrap();
            let mut by_id = BTreeMap::new();
            for d in &docs {
                let read = State::read(d.as_doc());
                let (id, state) = read.unwrap_or_else(|| panic!("half a document: {d:?}"));
                assert!(by_id.insert(id, state).is_none(), "{coll}: {id} twice");
            }
            found.push(by_id);
        }
        let mut lost = 0;
        for w in &mut self.writers {
            lost += judge_writer(w, &mut found, promise);
        }
        for (coll, rest) in COLLECTIONS.iter().zip(&found) {
            assert!(rest.is_empty(), "{coll}: never written: {rest:?}");
        }
        lost
    }
}

fn judge_writer(w: &mut Writer, found: &mut [BTreeMap<i64, State>], promise: Promise) -> usize {
    // The last write that certainly survived, and a document as evidence for each lost write.
    let mut survived = 0;
    let mut lost: BTreeMap<i64, String> = BTreeMap::new();
    for (coll, memory) in w.memory.iter_mut().enumerate() {
        for (id, history) in memory.iter_mut() {
            let state = found[coll].remove(id);
            let matches = |h: &&(i64, Option<State>)| h.1 == state;
            let (Some(first), Some(last)) = (
                history.iter().find(matches).map(|h| h.0),
                history.iter().rev().find(matches).map(|h| h.0),
            ) else {
                panic!(
                    "writer {}, {} {id}: a state it never had: {state:?}\nhistory: {history:?}",
                    w.number, COLLECTIONS[coll]
                );
            };
            survived = survived.max(first);
            for (v, _) in history.iter().filter(|h| h.0 > last) {
                lost.entry(*v).or_insert_with(|| {
                    format!("{} {id}: {history:?}, found {state:?}", COLLECTIONS[coll])
                });
            }
            *history = vec![(last, state)] as History;
        }
        memory.retain(|_, h| h.iter().any(|(_, s)| s.is_some()));
    }
    let mut lost_acknowledged = 0;
    for write in &w.writes {
        let (Some(at), Some(shown)) = (write.acknowledged, lost.get(&write.v)) else {
            continue;
        };
        lost_acknowledged += 1;
        let what = format!("writer {}, write {} was lost: {shown}", w.number, write.v);
        assert!(write.v > survived, "{what}\nbut write {survived} survived");
        match promise {
            Promise::All => panic!("{what}\nit was acknowledged"),
            Promise::Journaled { cut, bound } => {
                assert!(!write.journaled, "{what}\nit was acknowledged as journaled");
                let age = cut.saturating_duration_since(at);
                assert!(
                    age <= bound,
                    "{what}\nit was acknowledged {age:?} before the cut"
                );
            }
        }
    }
    w.writes.clear();
    lost_acknowledged
}

/// Checks every collection with `validate {full: true}`.
///
/// # Panics
/// If a collection is invalid.
pub fn valid(c: &mut Connection) {
    for coll in COLLECTIONS {
        let reply = c
            .command(DB, &doc! { "validate": coll, "full": true })
            .unwrap();
        let valid = reply.as_doc().get("valid").is_some_and(|v| v.truthy());
        assert!(valid, "{coll}: {reply:?}");
    }
}

/// Does the same as [`valid`], and checks that each index has exactly the entries for the documents, as far
/// as queries through it can show that.
///
/// # Panics
/// If a check fails.
pub fn consistent(c: &mut Connection) {
    valid(c);
    for coll in COLLECTIONS {
        let all = ids(c, coll, doc! {}, "_id_");
        let through = [
            ("u_1", doc! { "u": doc! { "$gte": 0_i64 } }),
            ("a_1_b_-1", doc! { "a": doc! { "$gte": -1_000_000 } }),
            ("s_1", doc! { "s": doc! { "$gte": 0 } }),
            ("tags_1", doc! { "tags": doc! { "$gte": 0, "$lte": 14 } }),
            ("all", doc! { "tags": doc! { "$gte": 0, "$lte": 14 } }),
            ("all", doc! { "s": doc! { "$exists": true } }),
            (
                "b_1",
                doc! { "b": doc! { "$gte": "" }, "a": doc! { "$gt": 20 } },
            ),
        ];
        for (index, filter) in through {
            let by_index = ids(c, coll, filter.clone(), index);
            let by_scan = ids(c, coll, filter, "$natural");
            assert_eq!(by_index, by_scan, "{coll} through {index}");
            if matches!(index, "u_1" | "a_1_b_-1") {
                assert_eq!(by_index, all, "{coll} through {index}");
            }
        }
        let counted = c.command(DB, &doc! { "count": coll }).unwrap();
        let n = counted.as_doc().get("n").and_then(|v| v.as_i64_exact());
        assert_eq!(n, Some(all.len() as i64), "{coll}: count");
    }
}

/// The sorted ids that a query through an index (or `$natural`) finds.
fn ids(c: &mut Connection, coll: &str, filter: DocBuf, index: &str) -> Vec<i64> {
    let mut cmd = doc! { "find": coll, "filter": filter, "projection": doc! { "_id": 1 } };
    if index == "$natural" {
        cmd.append("hint", doc! { "$natural": 1 });
    } else {
        cmd.append("hint", index);
    }
    let id = |d: Doc<'_>| d.get("_id").and_then(|v| v.as_i64_exact()).unwrap();
    let docs = c.find_all(DB, &cmd).unwrap();
    let mut ids: Vec<i64> = docs.iter().map(|d| id(d.as_doc())).collect();
    ids.sort_unstable();
    ids
}
