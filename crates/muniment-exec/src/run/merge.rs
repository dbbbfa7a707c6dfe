//! SORT_MERGE: merges several scans that each come in the sort's order.
//!
//! Each scan has one value in each field before the sort's fields, and these follow in the same
//! directions in all scans. So the bytes of a key after the leading fields compare as the sort
//! does.
//!
//! Invariants: a document is given once, even if its keys change while the cursor idles; a row that
//! was read from an input and not yet given is read again from the next snapshot; no row that is
//! given sorts before one given earlier.

use super::seen::Seen;
use super::{Cx, Row, Stage, Stats, Step};
use bytes::Bytes;
use muniment_value::{ArrayBuf, DocBuf, Result, doc, keyenc};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The next row of an input.
struct Head {
    /// The sort's part of its key.
    key: Bytes,
    input: usize,
    row: Row,
    backward: bool,
}

impl Ord for Head {
    /// The greatest head is the next to be given. Among equal ones that is the head of the first
    /// input.
    fn cmp(&self, other: &Head) -> Ordering {
        let order = match self.backward {
            true => self.key.cmp(&other.key),
            false => other.key.cmp(&self.key),
        };
        order.then_with(|| other.input.cmp(&self.input))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// The merging stage.
pub(crate) struct SortMerge {
    pub(super) inputs: Vec<Stage>,
    heads: BinaryHeap<Head>,
    /// The inputs whose next row has to be read.
    wanted: Vec<usize>,
    /// True while the last of them is being read: its position has been marked.
    reading: bool,
    /// For each input, the directions of the fields before the sort's.
    leading: Vec<Vec<bool>>,
    backward: bool,
    pattern: DocBuf,
    /// The sort's part of the key that was given last.
    last: Bytes,
    /// True after the merge has continued from `last` on a newer snapshot.
    resumed: bool,
    seen: Seen,
    pub(super) stats: Stats,
}

impl SortMerge {
    /// A merge of `inputs`. `leading` has the directions of the fields before the sort's, in each
    /// of which an input has one value.
    pub(crate) fn new(
        inputs: Vec<Stage>,
        leading: Vec<Vec<bool>>,
        backward: bool,
        seen: Seen,
        pattern: DocBuf,
    ) -> SortMerge {
        SortMerge {
            heads: BinaryHeap::with_capacity(inputs.len()),
            wanted: (0..inputs.len()).rev().collect(),
            reading: false,
            inputs,
            leading,
            backward,
            pattern,
            last: Bytes::new(),
            resumed: false,
            seen,
            stats: Stats::default(),
        }
    }

    /// The sort's part of a key of the input.
    fn suffix(&self, input: usize, key: &Bytes) -> Result<Bytes> {
        let mut at = 0;
        for descending in self.leading.get(input).into_iter().flatten() {
            at += keyenc::skip(key.get(at..).unwrap_or_default(), *descending)?;
        }
        Ok(key.slice(at.min(key.len())..))
    }

    /// True if the row sorts before the last one given. It came into the newer snapshot too late to
    /// be given in order.
    fn is_late(&self, key: &Bytes) -> bool {
        self.resumed
            && match self.backward {
                true => *key > self.last,
                false => *key < self.last,
            }
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        loop {
            while let Some(&i) = self.wanted.last() {
                let Some(input) = self.inputs.get_mut(i) else {
                    break;
                };
                if !self.reading {
                    input.mark();
                    self.reading = true;
                }
                match input.next(cx)? {
                    Step::Row(row) => {
                        self.reading = false;
                        let key = self.suffix(i, &row.key)?;
                        if self.is_late(&key) {
                            continue;
                        }
                        self.wanted.pop();
                        self.heads.push(Head {
                            key,
                            input: i,
                            row,
                            backward: self.backward,
                        });
                    }
                    Step::Eof => {
                        self.reading = false;
                        self.wanted.pop();
                    }
                    Step::Pause => return Ok(Step::Pause),
                }
            }
            let Some(head) = self.heads.pop() else {
                self.stats.eof = true;
                return Ok(Step::Eof);
            };
            self.wanted.push(head.input);
            self.stats.works += 1;
            if !self.seen.insert(&head.row.record_key, cx)? {
                continue;
            }
            self.last = head.key;
            self.stats.advanced += 1;
            return Ok(Step::Row(head.row));
        }
    }

    /// Releases the storage's cursors. Rows that were read and not given are read again.
    pub(super) fn save(&mut self) {
        for head in self.heads.drain() {
            if let Some(input) = self.inputs.get_mut(head.input) {
                input.rewind();
            }
            self.wanted.insert(0, head.input);
        }
        self.inputs.iter_mut().for_each(Stage::save);
        self.resumed |= self.stats.advanced > 0;
    }

    pub(super) fn explain(&self, exec: bool) -> DocBuf {
        let mut d = doc! { "stage": "SORT_MERGE" };
        if exec {
            self.stats.append(&mut d);
        }
        d.append("sortPattern", &self.pattern);
        if exec {
            d.append("dupsTested", self.seen.tested as i64);
            d.append("dupsDropped", self.seen.dropped as i64);
        }
        let mut inputs = ArrayBuf::new();
        for i in &self.inputs {
            inputs.push(i.explain(exec));
        }
        d.append("inputStages", inputs);
        d
    }
}
