//! SORT_MERGE: several scans of one index, each in order, merged.
//!
//! Each scan has one value in the fields before the sort's, and the sort's fields follow in the
//! same directions in all of them, so the bytes of a key behind those fields compare as the sort.

use super::seen::Seen;
use super::sort::SortLimits;
use super::{Cx, Row, Stage, Stats, Step};
use muniment_value::{ArrayBuf, DocBuf, Result, doc, keyenc};

enum Head {
    Wanted,
    Row(Row),
    Eof,
}

/// The merge.
pub struct SortMerge {
    pub(super) inputs: Vec<Stage>,
    heads: Vec<Head>,
    /// Per input, the directions of the fields before the sort's.
    leading: Vec<Vec<bool>>,
    backward: bool,
    pattern: DocBuf,
    /// Set where a document may come twice.
    seen: Option<Seen>,
    pub(super) stats: Stats,
}

impl SortMerge {
    /// A merge of `inputs`; `leading` has the directions of the fields that each input has one
    /// value of, before the sort's; with `seen`, what comes twice is dropped.
    pub fn new(
        inputs: Vec<Stage>,
        leading: Vec<Vec<bool>>,
        backward: bool,
        seen: Option<SortLimits>,
        pattern: DocBuf,
    ) -> SortMerge {
        SortMerge {
            heads: inputs.iter().map(|_| Head::Wanted).collect(),
            inputs,
            leading,
            backward,
            pattern,
            seen: seen.map(Seen::new),
            stats: Stats::default(),
        }
    }

    /// Where the sort key begins in a key.
    fn suffix<'k>(&self, input: usize, key: &'k [u8]) -> Result<&'k [u8]> {
        let mut at = 0;
        for descending in self.leading.get(input).into_iter().flatten() {
            at += keyenc::skip(key.get(at..).unwrap_or_default(), *descending)?;
        }
        Ok(key.get(at..).unwrap_or_default())
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        loop {
            for (input, head) in self.inputs.iter_mut().zip(&mut self.heads) {
                if matches!(head, Head::Wanted) {
                    *head = match input.next(cx)? {
                        Step::Row(row) => Head::Row(row),
                        Step::Eof => Head::Eof,
                        Step::Pause => return Ok(Step::Pause),
                    };
                }
            }
            let mut best: Option<(usize, &[u8])> = None;
            for (i, head) in self.heads.iter().enumerate() {
                let Head::Row(row) = head else {
                    continue;
                };
                let key = self.suffix(i, &row.key)?;
                let better = match best {
                    None => true,
                    Some((_, b)) if self.backward => key > b,
                    Some((_, b)) => key < b,
                };
                if better {
                    best = Some((i, key));
                }
            }
            let best = best.map(|(i, _)| i);
            let Some(head) = best.and_then(|i| self.heads.get_mut(i)) else {
                self.stats.eof = true;
                return Ok(Step::Eof);
            };
            let Head::Row(row) = std::mem::replace(head, Head::Wanted) else {
                continue;
            };
            self.stats.works += 1;
            if let Some(seen) = &mut self.seen
                && !seen.insert(&row.record_key, cx)?
            {
                continue;
            }
            self.stats.advanced += 1;
            return Ok(Step::Row(row));
        }
    }

    pub(super) fn explain(&self, exec: bool) -> DocBuf {
        let mut d = doc! { "stage": "SORT_MERGE" };
        if exec {
            self.stats.append(&mut d);
        }
        d.append("sortPattern", &self.pattern);
        if exec {
            let dups = self.seen.as_ref().map_or((0, 0), |s| (s.tested, s.dropped));
            d.append("dupsTested", dups.0 as i64);
            d.append("dupsDropped", dups.1 as i64);
        }
        let mut inputs = ArrayBuf::new();
        for i in &self.inputs {
            inputs.push(i.explain(exec));
        }
        d.append("inputStages", inputs);
        d
    }
}
