//! The state after the crash: read once through the collection and once through the secondary
//! index, and compared with what the audit writes.

use super::document::{self, COLLECTION, INDEX};
use crate::lab::DB;
use muniment_load::conn::Conn;
use muniment_load::fail::{Failure, Result};
use muniment_value::{Doc, DocBuf, doc};
use std::collections::BTreeSet;

/// The most examples of faults that are kept.
const EXAMPLES: usize = 5;

/// One writer's documents.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
    /// The numbers of its documents, sorted, each once.
    pub numbers: Vec<u64>,
    /// The value of its counter; `None` if that is not there.
    pub counter: Option<u64>,
}

/// The state that was found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// The documents of each writer.
    pub parts: Vec<Part>,
    /// Documents that the audit did not write in this round, or that are there twice.
    pub foreign: u64,
    /// Documents whose content differs from what was written.
    pub damaged: u64,
    /// Entries that only the collection or only the secondary index has, plus one if `validate`
    /// says that the collection is not valid.
    pub disagreements: u64,
    /// The first few faults in words.
    pub examples: Vec<String>,
    mark: u64,
    entries: BTreeSet<(i64, i64)>,
}

impl Found {
    /// An empty state for the round with this mark and so many writers.
    pub(crate) fn new(mark: u64, writers: usize) -> Found {
        Found {
            parts: vec![Part::default(); writers],
            mark,
            ..Found::default()
        }
    }

    /// Keeps the text of a fault, unless enough are kept already.
    pub(super) fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(text());
        }
    }

    /// Adds a document of the collection.
    pub(crate) fn document(&mut self, d: Doc<'_>) {
        let int = |name: &str| d.get(name).and_then(|v| v.as_i64_exact());
        let Some(id) = int("_id") else {
            self.foreign += 1;
            return self.example(|| format!("a document that nobody sent: {d:?}"));
        };
        if let Some(k) = int("k")
            && !self.entries.insert((k, id))
        {
            self.foreign += 1;
            return self.example(|| format!("_id {id} is there twice"));
        }
        let mark = self.mark;
        if let Some(thread) = document::counter_of(id) {
            let Some(part) = self.parts.get_mut(thread) else {
                self.foreign += 1;
                return self.example(|| format!("a counter that nobody has: {d:?}"));
            };
            let value = int("set").and_then(|n| u64::try_from(n).ok());
            part.counter = value;
            let whole = value.filter(|v| {
                int("added") == Some(*v as i64)
                    && int("mark") == Some(mark as i64)
                    && int("k") == Some(document::key(mark, id, *v))
            });
            if whole.is_none() {
                self.damaged += 1;
                self.example(|| format!("the counter of writer {thread} is damaged: {d:?}"));
            }
            return;
        }
        let place = document::split(id).and_then(|(t, n)| Some((self.parts.get_mut(t)?, t, n)));
        let Some((part, thread, number)) = place else {
            self.foreign += 1;
            return self.example(|| format!("a document that nobody sent: {d:?}"));
        };
        if int("mark").is_some_and(|m| m != mark as i64) {
            self.foreign += 1;
            return self.example(|| format!("a document of an earlier round: {d:?}"));
        }
        part.numbers.push(number);
        if document::document(mark, thread, number).as_bytes() != d.as_bytes() {
            self.damaged += 1;
            self.example(|| format!("document {number} of writer {thread} is damaged: {d:?}"));
        }
    }

    /// Ends the documents; the entries of the index come next.
    pub(crate) fn end_of_documents(&mut self) {
        for p in &mut self.parts {
            p.numbers.sort_unstable();
            p.numbers.dedup();
        }
    }

    /// Adds an entry of the secondary index.
    pub(crate) fn entry(&mut self, d: Doc<'_>) {
        let int = |name: &str| d.get(name).and_then(|v| v.as_i64_exact());
        let known = int("k")
            .zip(int("_id"))
            .is_some_and(|e| self.entries.remove(&e));
        if !known {
            self.disagreements += 1;
            self.example(|| format!("only in the index: {d:?}"));
        }
    }

    /// Ends the entries; documents that had no entry are missing from the index.
    pub(crate) fn end_of_entries(&mut self) {
        self.disagreements += self.entries.len() as u64;
        if let Some((k, id)) = self.entries.first().copied() {
            self.example(|| format!("not in the index: _id {id} with k {k}"));
        }
        self.entries.clear();
    }
}

/// Reads the whole state.
///
/// # Errors
/// The server does not answer, or refuses the queries.
pub(crate) fn survey(c: &mut Conn, mark: u64, writers: usize) -> Result<Found> {
    let mut found = Found::new(mark, writers);
    let scan = doc! { "find": COLLECTION, "hint": doc! { "$natural": 1 } };
    each(c, COLLECTION, scan, |d| found.document(d))?;
    found.end_of_documents();
    let by_index = doc! {
        "find": COLLECTION,
        "filter": doc! { "k": doc! { "$gte": i64::MIN } },
        "projection": doc! { "_id": 1, "k": 1 },
        "hint": INDEX,
    };
    match each(c, COLLECTION, by_index, |d| found.entry(d)) {
        Ok(()) => found.end_of_entries(),
        // The crash may have lost the index itself, and the collection with it; the query's hint
        // then fails.
        Err(e) if e.0.contains("(2 ") => {
            found.disagreements += 1;
            found.example(|| format!("the index {INDEX} is gone: {e}"));
        }
        Err(e) => return Err(e),
    }
    validate(c, COLLECTION, &mut found);
    Ok(found)
}

/// Lets the server check its own files.
pub(super) fn validate(c: &mut Conn, collection: &str, found: &mut Found) {
    let checked = c.command(DB, &doc! { "validate": collection, "full": true });
    match checked {
        Ok(r) if r.as_doc().get("valid").is_some_and(|v| v.truthy()) => {}
        // A collection that does not exist is not checked.
        Err(e) if e.0.contains("(26 ") => {}
        Ok(r) => {
            found.disagreements += 1;
            found.example(|| format!("validate: {:?}", r.as_doc()));
        }
        Err(e) => {
            found.disagreements += 1;
            found.example(|| e.0);
        }
    }
}

/// Gives every document that a find in `collection` returns to a function.
pub(super) fn each(
    c: &mut Conn,
    collection: &str,
    find: DocBuf,
    mut f: impl FnMut(Doc<'_>),
) -> Result<()> {
    let mut reply = c.command(DB, &find)?;
    loop {
        let cursor = reply.as_doc().get_doc("cursor");
        let cursor = cursor.ok_or_else(|| Failure::new("find: the reply has no cursor"))?;
        let batch = ["firstBatch", "nextBatch"]
            .iter()
            .find_map(|b| cursor.get_array(b));
        for d in batch.iter().flat_map(|b| b.values()) {
            if let Some(d) = d.as_doc() {
                f(d);
            }
        }
        match cursor.get("id").and_then(|v| v.as_i64_exact()) {
            Some(0) | None => return Ok(()),
            Some(id) => {
                reply = c.command(DB, &doc! { "getMore": id, "collection": collection })?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    const MARK: u64 = 7;

    fn seen(docs: &[DocBuf]) -> Found {
        let mut f = Found::new(MARK, 2);
        for d in docs {
            f.document(d.as_doc());
        }
        f.end_of_documents();
        f
    }

    #[test]
    fn whole_documents_are_numbered() {
        let f = seen(&[
            document::document(MARK, 0, 2),
            document::document(MARK, 0, 1),
            document::document(MARK, 1, 9),
            document::counter(MARK, 1),
        ]);
        assert_eq!(f.parts[0].numbers, [1, 2]);
        assert_eq!(f.parts[1].numbers, [9]);
        assert_eq!((f.parts[0].counter, f.parts[1].counter), (None, Some(0)));
        assert_eq!((f.foreign, f.damaged), (0, 0));
    }

    #[test]
    fn what_nobody_sent_is_foreign() {
        let whole = document::document(MARK, 0, 1);
        for d in [
            document::document(MARK, 2, 1),     // There is no such writer.
            document::document(MARK + 1, 0, 3), // It belongs to another round.
            document::counter(MARK, 2),
            doc! { "_id": "text" },
            whole.clone(), // It is there twice.
        ] {
            let f = seen(&[whole.clone(), d.clone()]);
            assert_eq!((f.foreign, f.parts[0].numbers.len()), (1, 1), "{d:?}");
            assert_eq!(f.examples.len(), 1);
        }
    }

    #[test]
    fn changed_documents_are_damaged() {
        let mut longer = document::document(MARK, 0, 1);
        longer.append("x", 1);
        let mut cut = DocBuf::new();
        for e in document::document(MARK, 0, 1).as_doc() {
            if e.name() != "text" {
                cut.append_elem(e);
            }
        }
        // The two fields of the counter do not agree.
        let id = document::counter_id(0);
        let half = doc! { "_id": id, "mark": MARK as i64, "k": document::key(MARK, id, 2), "set": 2i64, "added": 1i64 };
        let old_key = doc! { "_id": id, "mark": MARK as i64, "k": document::key(MARK, id, 1), "set": 2i64, "added": 2i64 };
        for d in [longer, cut, half, old_key] {
            let f = seen(std::slice::from_ref(&d));
            assert_eq!((f.foreign, f.damaged), (0, 1), "{d:?}");
        }
    }

    #[test]
    fn index_and_collection_are_held_against_each_other() {
        let entry = |n: u64| {
            let d = document::document(MARK, 0, n);
            doc! { "_id": document::id(0, n), "k": d.as_doc().get("k").unwrap() }
        };
        let check = |entries: &[u64]| {
            let mut f = seen(&[
                document::document(MARK, 0, 1),
                document::document(MARK, 0, 2),
            ]);
            for e in entries {
                f.entry(entry(*e).as_doc());
            }
            f.end_of_entries();
            f.disagreements
        };
        assert_eq!(check(&[2, 1]), 0);
        assert_eq!(check(&[1]), 1);
        assert_eq!(check(&[1, 2, 3]), 1);
        assert_eq!(check(&[1, 1, 2]), 1);
        assert_eq!(check(&[3]), 3);
    }
}
