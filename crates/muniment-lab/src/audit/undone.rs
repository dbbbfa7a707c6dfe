//! The writes that members report as undone: reads the BSON files below `rollback` in their
//! directories, and looks there for acknowledged writes that are gone. Apart from reading files,
//! pure functions.

use super::document;
use super::found::{Found, Part};
use super::history::{History, What};
use super::judge::Tally;
use muniment_load::fail::{Context, Failure, Result};
use muniment_value::{Doc, MAX_DEPTH, validate_first};
use std::path::{Path, PathBuf};

/// The directory for rollback files, below a member's `--dbpath`.
const DIRECTORY: &str = "rollback";

/// The writes that were undone in a round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Undone {
    /// For each writer, its documents and the greatest value of its counter.
    pub parts: Vec<Part>,
    /// The number of documents of the round, in all files of all members.
    pub documents: u64,
    /// Those among them whose content differs from what was sent.
    pub damaged: u64,
    mark: u64,
}

impl Undone {
    /// An empty result for the round with this mark and so many writers.
    pub(crate) fn new(mark: u64, writers: usize) -> Undone {
        Undone {
            parts: vec![Part::default(); writers],
            mark,
            ..Undone::default()
        }
    }

    /// Adds a document of a file. Documents of other rounds or other collections do not count.
    pub(crate) fn document(&mut self, d: Doc<'_>) {
        let int = |name: &str| d.get(name).and_then(|v| v.as_i64_exact());
        if int("mark") != Some(self.mark as i64) {
            return;
        }
        let Some(id) = int("_id") else { return };
        let mark = self.mark;
        if let Some(thread) = document::counter_of(id) {
            let value = int("set").and_then(|n| u64::try_from(n).ok());
            if let (Some(part), Some(value)) = (self.parts.get_mut(thread), value) {
                part.counter = part.counter.max(Some(value));
                self.documents += 1;
            }
            return;
        }
        if let Some((thread, number)) = document::split(id)
            && let Some(part) = self.parts.get_mut(thread)
        {
            part.numbers.push(number);
            self.documents += 1;
            if document::document(mark, thread, number).as_bytes() != d.as_bytes() {
                self.damaged += 1;
            }
        }
    }

    /// Adds the content of a file: documents, one after the other.
    ///
    /// # Errors
    /// The bytes are not a sequence of documents.
    pub(crate) fn file(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (d, rest) = validate_first(bytes, MAX_DEPTH)
                .map_err(|e| Failure(format!("no BSON document: {}", e.message())))?;
            self.document(d);
            bytes = rest;
        }
        Ok(())
    }

    /// Adds every file below a member's `--dbpath`.
    ///
    /// # Errors
    /// A file cannot be read, or holds no BSON.
    pub(crate) fn member(&mut self, data: &Path) -> Result<()> {
        for file in files(&data.join(DIRECTORY))? {
            let what = format!("reading {}", file.display());
            let bytes = std::fs::read(&file).context(&what)?;
            self.file(&bytes).map_err(|e| e.while_doing(&what))?;
        }
        for p in &mut self.parts {
            p.numbers.sort_unstable();
            p.numbers.dedup();
        }
        Ok(())
    }
}

/// All `.bson` files below a directory, which need not exist.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(dir) = left.pop() {
        if !dir.is_dir() {
            continue;
        }
        let what = format!("reading {}", dir.display());
        for entry in std::fs::read_dir(&dir).context(&what)? {
            let path = entry.context(&what)?.path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|e| e == "bson") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Adds to a round's tally the acknowledged writes that are neither there nor in a rollback file.
/// The trace of an undone update is a counter in a file that had reached the update's value.
pub(crate) fn account(t: &mut Tally, histories: &[History], found: &Found, undone: &Undone) {
    t.undone += undone.documents;
    t.damaged += undone.damaged;
    let parts = found.parts.iter().zip(&undone.parts);
    for (thread, (h, (there, undone))) in histories.iter().zip(parts).enumerate() {
        let counter = there.counter.unwrap_or(0);
        for w in h.writes.iter().filter(|w| w.acknowledged.is_some()) {
            let nowhere = match w.what {
                What::Insert { first, count } => {
                    let numbers = first..first + u64::from(count);
                    let has = |part: &Part, n: u64| part.numbers.binary_search(&n).is_ok();
                    numbers
                        .filter(|n| !has(there, *n) && !has(undone, *n))
                        .count() as u64
                }
                What::Update { value } => {
                    u64::from(value > counter && Some(value) > undone.counter)
                }
            };
            if nowhere > 0 && t.untraced == 0 {
                t.examples.push(format!(
                    "{:?} of writer {thread} was acknowledged, is not there and is in no rollback file",
                    w.what
                ));
            }
            t.untraced += nowhere;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::judge::{self, Promise, Verdict};
    use super::*;
    use muniment_value::{DocBuf, doc};
    use std::time::{Duration, Instant};

    const MARK: u64 = 7;

    fn counter(thread: usize, value: i64) -> DocBuf {
        let id = document::counter_id(thread);
        doc! { "_id": id, "mark": MARK as i64, "k": 0i64, "set": value, "added": value }
    }

    /// Judges a round in which four inserts and two updates were acknowledged, and the first two
    /// inserts and the first update are there.
    fn round(files: &[DocBuf]) -> Tally {
        let crash = Instant::now() + Duration::from_secs(9);
        let mut h = History::default();
        for update in [false, false, true, false, true, false] {
            if update {
                h.update();
            } else {
                h.insert(1);
            }
            h.acknowledge(crash - Duration::from_millis(5));
        }
        let mut found = Found::new(MARK, 1);
        found.parts = vec![Part {
            numbers: vec![1, 2],
            counter: Some(1),
        }];
        let mut undone = Undone::new(MARK, 1);
        let bytes: Vec<u8> = files.iter().flat_map(|d| d.as_bytes().to_vec()).collect();
        undone.file(&bytes).unwrap();
        let mut t = judge::judge(&[h.clone()], &found, crash);
        account(&mut t, &[h], &found, &undone);
        t
    }

    fn verdict(t: &Tally) -> Verdict {
        judge::verdict(t, Promise::Undone(Duration::from_secs(1)), Duration::ZERO)
    }

    #[test]
    fn what_was_undone_has_a_trace() {
        let all = [
            document::document(MARK, 0, 3),
            document::document(MARK, 0, 4),
            counter(0, 2),
        ];
        let t = round(&all);
        assert_eq!((t.lost(), t.undone, t.untraced), (3, 3, 0));
        assert_eq!(verdict(&t), Verdict::Kept);
        // Where no loss is allowed, an undone write counts as lost.
        let strict = judge::verdict(&t, Promise::NothingLost, Duration::ZERO);
        assert_eq!(strict, Verdict::Broken);
        // Every one of the documents is needed as a trace.
        for i in 0..all.len() {
            let mut less = all.to_vec();
            less.remove(i);
            let t = round(&less);
            assert_eq!((t.lost(), t.untraced), (3, 1), "{i}");
            assert_eq!(verdict(&t), Verdict::Broken);
            assert!(t.examples.iter().any(|e| e.contains("no rollback file")));
        }
        // A counter with a smaller value is no trace of the update.
        let t = round(&[all[0].clone(), all[1].clone(), counter(0, 1)]);
        assert_eq!(t.untraced, 1);
    }

    #[test]
    fn other_rounds_and_collections_do_not_count_and_damage_does() {
        let mut changed = document::document(MARK, 0, 3);
        changed.append("more", 1);
        let mut u = Undone::new(MARK, 1);
        for d in [
            document::document(MARK + 1, 0, 1),
            document::document(MARK, 5, 1),
            doc! { "_id": "a user's" },
            doc! { "_id": 3i64 },
        ] {
            u.document(d.as_doc());
        }
        assert_eq!((u.documents, u.damaged), (0, 0));
        u.document(changed.as_doc());
        assert_eq!((u.documents, u.damaged), (1, 1));
        let e = u.file(&[9, 0, 0, 0, 1]).unwrap_err().0;
        assert!(e.contains("no BSON document"), "{e}");
    }

    #[test]
    fn files_are_found_wherever_they_are_below() {
        let dir = crate::process::TempDir::new(&std::env::temp_dir()).unwrap();
        let mut u = Undone::new(MARK, 1);
        // A member that has undone nothing has no directory for rollback files.
        u.member(dir.path()).unwrap();
        let below = dir.path().join("rollback/muniment_bench.audit");
        std::fs::create_dir_all(&below).unwrap();
        let write = |name: &str, d: DocBuf| std::fs::write(below.join(name), d.as_bytes()).unwrap();
        write("removed.1.bson", document::document(MARK, 0, 3));
        write("removed.2.bson", document::document(MARK, 0, 2));
        write("removed.txt", document::document(MARK, 0, 1));
        u.member(dir.path()).unwrap();
        assert_eq!(u.parts.first().unwrap().numbers, [2, 3]);
        std::fs::write(below.join("bad.bson"), [1, 2]).unwrap();
        assert!(u.member(dir.path()).is_err());
    }
}
