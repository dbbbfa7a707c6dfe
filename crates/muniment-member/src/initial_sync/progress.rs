//! How far an initial sync is: `replSetGetStatus.initialSyncStatus`.
//!
//! The fields are those of MongoDB 8. There is no `maxFailedInitialSyncAttempts`, as the number of attempts
//! has no limit. What is copied is of one moment, so that no operation is applied to it, and `appliedOps`
//! is 0. Trees of indexes are copied, too; in the estimate of the time that is left a tree counts with the
//! bytes that the source has for it.

use crate::timestamps::timestamp;
use muniment_logger::now_ms;
use muniment_storage::{Chunk, Timestamp};
use muniment_value::{ArrayBuf, Doc, DocBuf, Value, doc, number};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// So many of the last attempts are shown one by one.
const TOLD: usize = 10;

/// How far the copy of a collection is.
#[derive(Default)]
struct Part {
    namespace: String,
    documents: i64,
    bytes: i64,
    indexes: i64,
    documents_copied: i64,
    bytes_copied: i64,
    chunks: i64,
    begun: Option<(i64, Instant)>,
    ended: Option<(i64, Instant)>,
}

/// A tree of a collection.
struct Tree {
    part: usize,
    /// It holds the documents.
    documents: bool,
    /// No tree of the part comes later.
    last: bool,
    weight: f64,
    rows: u64,
}

/// One attempt.
struct Attempt {
    source: String,
    begun: Instant,
    /// The time of what is copied.
    at: Timestamp,
    parts: Vec<Part>,
    /// The trees that are not whole yet, by their numbers, in the order of which they come.
    trees: BTreeMap<u32, Tree>,
    /// The weight of all trees, and of those that are whole.
    weight: (f64, f64),
    other: (i64, i64),
    tries: i64,
    unreachable_since: Option<(i64, Instant)>,
    unreachable: Duration,
}

/// The initial sync of this member, if one is under way.
#[derive(Default)]
pub struct SyncProgress {
    begun: Option<(i64, Instant)>,
    failed: i64,
    attempts: VecDeque<DocBuf>,
    now: Option<Attempt>,
}

fn now() -> (i64, Instant) {
    (now_ms(), Instant::now())
}

fn ms(d: Duration) -> i64 {
    d.as_millis() as i64
}

impl SyncProgress {
    /// An attempt begins from this member.
    pub fn begin(&mut self, source: &str) {
        self.begun.get_or_insert_with(now);
        self.now = Some(Attempt {
            source: source.to_string(),
            begun: Instant::now(),
            at: Timestamp::ZERO,
            parts: Vec::new(),
            trees: BTreeMap::new(),
            weight: (0.0, 0.0),
            other: (0, 0),
            tries: 0,
            unreachable_since: None,
            unreachable: Duration::ZERO,
        });
    }

    /// Takes what there is to be copied as of this time, as the source says. What is malformed in it is left
    /// out without an error, since it is only shown to people.
    pub fn plan(&mut self, head: Doc<'_>, at: Timestamp) {
        let Some(attempt) = &mut self.now else {
            return;
        };
        let number = |d: Doc<'_>, name| d.get(name).and_then(number::to_i64_exact).unwrap_or(0);
        attempt.at = at;
        attempt.other = (number(head, "otherDocuments"), number(head, "otherBytes"));
        let all = head.get_array("collections");
        let all = all.iter().flat_map(|all| all.values());
        for d in all.filter_map(|v| v.as_doc()) {
            let part = Part {
                namespace: d.get_str("ns").unwrap_or_default().to_string(),
                documents: number(d, "documents"),
                bytes: number(d, "bytes"),
                ..Part::default()
            };
            let trees = d.get_array("trees");
            let trees = trees.iter().flat_map(|all| all.values());
            let trees: Vec<i64> = trees.filter_map(number::to_i64_exact).collect();
            attempt.add(part, &trees);
        }
    }

    /// A chunk came.
    pub fn came(&mut self, chunk: &Chunk) {
        if let Some(attempt) = &mut self.now {
            attempt.came(chunk);
        }
    }

    /// The source cannot be reached, or can be again.
    pub fn unreachable(&mut self, yes: bool) {
        let Some(attempt) = &mut self.now else {
            return;
        };
        match (yes, attempt.unreachable_since.take()) {
            (true, since) => attempt.unreachable_since = Some(since.unwrap_or_else(now)),
            (false, Some((_, since))) => attempt.unreachable += since.elapsed(),
            (false, None) => {}
        }
    }

    /// This member tries once more to reach the source.
    pub fn tried(&mut self) {
        if let Some(attempt) = &mut self.now {
            attempt.tries += 1;
        }
    }

    /// The attempt has failed.
    pub fn failed(&mut self, why: &str) {
        self.failed += 1;
        self.unreachable(false);
        if let Some(a) = self.now.take() {
            self.attempts.push_back(doc! {
                "durationMillis": ms(a.begun.elapsed()),
                "status": why,
                "syncSource": a.source.as_str(),
                "operationsRetried": a.tries,
                "totalTimeUnreachableMillis": ms(a.unreachable),
            });
            if self.attempts.len() > TOLD {
                self.attempts.pop_front();
            }
        }
    }

    /// `initialSyncStatus`; `None` if no attempt was begun.
    pub fn to_doc(&self) -> Option<DocBuf> {
        let (begun_ms, begun) = self.begun?;
        let elapsed = begun.elapsed();
        let mut d = doc! {
            "failedInitialSyncAttempts": self.failed,
            "initialSyncStart": Value::DateTime(begun_ms),
            "totalInitialSyncElapsedMillis": ms(elapsed),
        };
        let attempts: ArrayBuf = self.attempts.iter().collect();
        d.append("initialSyncAttempts", attempts);
        d.append("appliedOps", 0_i64);
        if let Some(attempt) = &self.now {
            attempt.append_to(&mut d);
        }
        Some(d)
    }
}

impl Attempt {
    /// A collection; `trees`: numbers of its trees, that of the documents first, and their bytes.
    fn add(&mut self, mut part: Part, trees: &[i64]) {
        let of = self.parts.len();
        let last = trees.chunks(2).filter_map(|t| t.first()).max();
        for (i, tree) in trees.chunks_exact(2).enumerate() {
            let &[id, stored] = tree else { continue };
            let Ok(number) = u32::try_from(id) else {
                continue;
            };
            // The files do not show what is still in memory, so the documents count, too.
            let weight = stored.max(0) as f64 + part.documents.max(0) as f64 + 1.0;
            self.weight.0 += weight;
            let tree = Tree {
                part: of,
                documents: i == 0,
                last: last == Some(&id),
                weight,
                rows: 0,
            };
            self.trees.insert(number, tree);
        }
        part.indexes = (trees.len() as i64 / 2 - 1).max(0);
        // Of a collection without trees no chunk would come.
        part.ended = last.is_none().then(now);
        self.parts.push(part);
    }

    fn came(&mut self, chunk: &Chunk) {
        // The trees before this one are whole, also those of which no row came.
        while let Some(tree) = self.trees.first_entry() {
            if *tree.key() >= chunk.tree && !chunk.is_of_catalog() {
                break;
            }
            let tree = tree.remove();
            self.weight.1 += tree.weight;
            if let Some(part) = self.parts.get_mut(tree.part).filter(|_| tree.last) {
                part.ended = Some(now());
            }
        }
        let Some(tree) = self.trees.get_mut(&chunk.tree) else {
            return;
        };
        tree.rows += chunk.rows.len() as u64;
        let Some(part) = self.parts.get_mut(tree.part) else {
            return;
        };
        part.begun.get_or_insert_with(now);
        part.chunks += 1;
        if tree.documents {
            part.documents_copied += chunk.rows.len() as i64;
            let bytes = chunk.rows.iter().map(|(_, v)| v.len() as i64);
            part.bytes_copied += bytes.sum::<i64>();
        }
    }

    /// The share that is done, 0 to 1.
    fn share(&self) -> f64 {
        let (all, whole) = self.weight;
        let current = self.trees.values().next().map_or(0.0, |tree| {
            let documents = self.parts.get(tree.part).map_or(0, |p| p.documents);
            tree.weight * (tree.rows as f64 / documents.max(1) as f64).min(1.0)
        });
        if all > 0.0 {
            (whole + current) / all
        } else {
            0.0
        }
    }

    fn append_to(&self, d: &mut DocBuf) {
        let sum = |f: fn(&Part) -> i64| self.parts.iter().map(f).fold(0, i64::saturating_add);
        let elapsed = self.begun.elapsed();
        let size = sum(|p| p.bytes).saturating_add(self.other.1);
        d.append("approxTotalDataSize", size);
        d.append("approxTotalBytesCopied", sum(|p| p.bytes_copied));
        let share = self.share();
        if share > 0.0 {
            let left = elapsed.as_millis() as f64 * (1.0 - share).max(0.0) / share;
            d.append("remainingInitialSyncEstimatedMillis", left as i64);
        }
        if self.at != Timestamp::ZERO {
            d.append("initialSyncOplogStart", timestamp(self.at));
        }
        d.append("syncSource", self.source.as_str());
        let mut unreachable = self.unreachable;
        if let Some((since_ms, since)) = self.unreachable_since {
            unreachable += since.elapsed();
            d.append("syncSourceUnreachableSince", Value::DateTime(since_ms));
            d.append("currentOutageDurationMillis", ms(since.elapsed()));
        }
        d.append("totalTimeUnreachableMillis", ms(unreachable));
        d.append("operationsRetried", self.tries);
        d.append("databases", self.databases());
    }

    fn databases(&self) -> DocBuf {
        let mut all: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
        for part in &self.parts {
            let db = part.namespace.split_once('.').map_or("", |(db, _)| db);
            all.entry(db).or_default().push(part);
        }
        let whole = |parts: &[&Part]| parts.iter().all(|p| p.ended.is_some());
        let cloned = all.values().filter(|parts| whole(parts)).count();
        let mut d = doc! {
            "databasesToClone": (all.len() - cloned) as i64,
            "databasesCloned": cloned as i64,
        };
        for (db, parts) in &all {
            let cloned = parts.iter().filter(|p| p.ended.is_some()).count();
            let mut of = doc! {
                "collections": parts.len() as i64,
                "clonedCollections": cloned as i64,
            };
            let begun = parts.iter().filter_map(|p| p.begun).min_by_key(|b| b.1);
            let ended = parts.iter().filter_map(|p| p.ended).max_by_key(|e| e.1);
            append_times(&mut of, begun, ended.filter(|_| whole(parts)));
            for part in parts {
                let mut one = doc! {
                    "documentsToCopy": part.documents,
                    "documentsCopied": part.documents_copied,
                    "bytesToCopy": part.bytes,
                    "approxBytesCopied": part.bytes_copied,
                    "indexes": part.indexes,
                    "receivedBatches": part.chunks,
                };
                append_times(&mut one, part.begun, part.ended);
                of.append(&part.namespace, one);
            }
            d.append(db, of);
        }
        d
    }
}

fn append_times(d: &mut DocBuf, begun: Option<(i64, Instant)>, ended: Option<(i64, Instant)>) {
    let Some((begun_ms, begun)) = begun else {
        return;
    };
    d.append("start", Value::DateTime(begun_ms));
    if let Some((ended_ms, _)) = ended {
        d.append("end", Value::DateTime(ended_ms));
    }
    let until = ended.map_or_else(Instant::now, |e| e.1);
    d.append("elapsedMillis", ms(until.saturating_duration_since(begun)));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bytes::Bytes;
    use muniment_value::array;

    fn chunk(tree: u32, rows: usize) -> Chunk {
        let row = (Bytes::from_static(b"k"), Bytes::from_static(&[7; 50]));
        Chunk {
            tree,
            last: tree == 0,
            rows: vec![row; rows],
        }
    }

    fn number(d: &DocBuf, path: &[&str]) -> i64 {
        let (last, above) = path.split_last().unwrap();
        let d = above
            .iter()
            .fold(d.as_doc(), |d, name| d.get_doc(name).unwrap());
        number::to_i64_exact(d.get(last).unwrap()).unwrap()
    }

    /// Trees of two collections come in the order of their numbers, and some have no rows.
    #[test]
    fn what_has_come_is_told_by_collections() {
        let mut progress = SyncProgress::default();
        assert!(progress.to_doc().is_none());
        progress.begin("h:1");
        let collection = |ns: &str, documents: i64, trees| {
            doc! { "ns": ns, "documents": documents, "bytes": documents * 50, "trees": trees }
        };
        let head = doc! {
            "collections": array![
                collection("a.b.c", 40, array![10_i64, 4000_i64, 11_i64, 0_i64, 14_i64, 400_i64]),
                collection("a.none", 0, array![12_i64, 0_i64, 13_i64, 0_i64]),
                collection("z.y", 40, array![20_i64, 4000_i64, 21_i64, 0_i64]),
            ],
            "otherDocuments": 3_i64, "otherBytes": 30_i64,
        };
        progress.plan(head.as_doc(), Timestamp(5 << 32));
        let first = progress.to_doc().unwrap();
        assert_eq!(number(&first, &["approxTotalDataSize"]), 4030);
        assert!(
            first
                .as_doc()
                .get("remainingInitialSyncEstimatedMillis")
                .is_none()
        );
        let abc = |d: &DocBuf, name: &str| number(d, &["databases", "a", "a.b.c", name]);
        assert_eq!(
            (abc(&first, "indexes"), abc(&first, "documentsToCopy")),
            (2, 40)
        );
        progress.came(&chunk(10, 30));
        progress.unreachable(true);
        progress.tried();
        let d = progress.to_doc().unwrap();
        assert_eq!(
            (abc(&d, "documentsCopied"), abc(&d, "approxBytesCopied")),
            (30, 1500)
        );
        assert_eq!(number(&d, &["approxTotalBytesCopied"]), 1500);
        assert!(d.as_doc().get("syncSourceUnreachableSince").is_some());
        assert!(number(&d, &["remainingInitialSyncEstimatedMillis"]) >= 0);
        progress.unreachable(false);
        progress.came(&chunk(10, 10));
        // The last tree of this collection comes after those of another one.
        progress.came(&chunk(14, 40));
        let d = progress.to_doc().unwrap();
        assert_eq!(
            (abc(&d, "documentsCopied"), abc(&d, "receivedBatches")),
            (40, 3)
        );
        assert_eq!(number(&d, &["databases", "a", "clonedCollections"]), 1);
        assert!(d.as_doc().get("syncSourceUnreachableSince").is_none());
        progress.came(&chunk(20, 1));
        let d = progress.to_doc().unwrap();
        assert_eq!(number(&d, &["databases", "a", "clonedCollections"]), 2);
        let databases = |d: &DocBuf| {
            let of = |name| number(d, &["databases", name]);
            (of("databasesToClone"), of("databasesCloned"))
        };
        assert_eq!(databases(&d), (1, 1));
        progress.came(&chunk(0, 1));
        let d = progress.to_doc().unwrap();
        assert_eq!(databases(&d), (0, 2));
        assert_eq!(number(&d, &["remainingInitialSyncEstimatedMillis"]), 0);
        progress.failed("because");
        progress.begin("h:2");
        let d = progress.to_doc().unwrap();
        assert_eq!(number(&d, &["failedInitialSyncAttempts"]), 1);
        let attempts = d.as_doc().get_array("initialSyncAttempts").unwrap();
        let attempt = attempts.values().next().and_then(|v| v.as_doc()).unwrap();
        assert_eq!(attempt.get_str("status"), Some("because"));
        assert_eq!(attempt.get_str("syncSource"), Some("h:1"));
    }
}
