//! SORT: sorts rows after it has read all of them.

use super::{Cx, Row, Stage, Stats, Step};
use bytes::Bytes;
use muniment_query::stage::host::NoHost;
use muniment_query::stage::sorter::Sorter;
use muniment_query::{Ledger, MatchInfo, Runtime, Scratch, SortSpec};
use muniment_value::{Doc, DocBuf, Error, Result, doc};
use std::sync::Arc;

/// The resources that stages may use if they hold many rows.
#[derive(Clone, Debug)]
pub(crate) struct SortLimits {
    /// The most bytes in memory.
    pub memory: usize,
    /// The ledger of the memory that all operations together may hold.
    pub ledger: Arc<Ledger>,
    /// Where rows are spilled. `None` makes it an error to need more memory.
    pub scratch: Option<Scratch>,
}

impl SortLimits {
    /// The limits in the form that the query crate takes.
    pub(crate) fn runtime(&self, cx: &Cx) -> Runtime {
        Runtime {
            interrupt: cx.interrupt(),
            memory_limit: self.memory,
            ledger: self.ledger.clone(),
            scratch: self.scratch.clone(),
            host: Arc::new(NoHost),
            watched: false,
        }
    }
}

/// The sorting stage.
pub(crate) struct Sort {
    pub(super) input: Stage,
    spec: SortSpec,
    pattern: DocBuf,
    limit: Option<usize>,
    limits: SortLimits,
    sorter: Sorter,
    key: Vec<u8>,
    loaded: bool,
    pub(super) stats: Stats,
}

/// The size of the head of a stored row: its lengths and its array index.
const HEAD: usize = 16;
const NO_INDEX: u32 = u32::MAX;

impl Sort {
    /// A sort of `input`. With a limit, only so many first rows are kept.
    pub(crate) fn new(
        input: Stage,
        spec: SortSpec,
        pattern: DocBuf,
        limit: Option<usize>,
        limits: SortLimits,
    ) -> Sort {
        Sort {
            input,
            spec,
            pattern,
            limit,
            sorter: Sorter::new(limit.map(|n| n as u64), limits.memory, &limits.ledger),
            limits,
            key: Vec::new(),
            loaded: false,
            stats: Stats::default(),
        }
    }

    pub(super) fn next(&mut self, cx: &mut Cx) -> Result<Step> {
        while !self.loaded {
            match self.input.next(cx)? {
                Step::Pause => return Ok(Step::Pause),
                Step::Row(row) => {
                    self.stats.works += 1;
                    self.add(&row, cx)?;
                }
                Step::Eof => {
                    self.loaded = true;
                    self.sorter.finish(&self.limits.runtime(cx))?;
                }
            }
        }
        match self.sorter.next()? {
            Some(bytes) => {
                self.stats.works += 1;
                self.stats.advanced += 1;
                Ok(Step::Row(unpack(&bytes)))
            }
            None => {
                self.stats.eof = true;
                Ok(Step::Eof)
            }
        }
    }

    fn add(&mut self, row: &Row, cx: &Cx) -> Result<()> {
        self.key.clear();
        self.spec.key(Doc::new(&row.doc), &mut self.key)?;
        if !self.sorter.wants(&self.key) {
            return Ok(());
        }
        let head = head(row)?;
        let parts = [
            head.as_slice(),
            &row.record_key,
            &row.key,
            &row.bits,
            &row.doc,
        ];
        if self.sorter.push(&self.key, &parts)? {
            self.sorter.spill(&self.limits.runtime(cx))?;
        }
        Ok(())
    }

    pub(super) fn explain(&self, exec: bool) -> DocBuf {
        let mut d = doc! { "stage": "SORT" };
        if exec {
            self.stats.append(&mut d);
        }
        d.append("sortPattern", &self.pattern);
        d.append("memLimit", self.limits.memory as i64);
        d.append_some("limitAmount", self.limit.map(|n| n as i64));
        d.append("type", "simple");
        if exec {
            d.append("totalDataSizeSorted", self.sorter.total_bytes() as i64);
            d.append("usedDisk", self.sorter.spills() > 0);
            d.append("spills", self.sorter.spills() as i64);
            d.append("spilledDataStorageSize", self.sorter.spilled_bytes() as i64);
        }
        d.append("inputStage", self.input.explain(exec));
        d
    }
}

fn head(row: &Row) -> Result<[u8; HEAD]> {
    let len = |n: usize| {
        u32::try_from(n).map_err(|_| Error::internal("a sorted row is larger than 4 GiB"))
    };
    let index = row
        .info
        .array_index
        .map_or(Ok(NO_INDEX), u32::try_from)
        .unwrap_or(NO_INDEX);
    let parts = [
        index,
        len(row.record_key.len())?,
        len(row.key.len())?,
        len(row.bits.len())?,
    ];
    let mut head = [0; HEAD];
    for (to, n) in head.chunks_exact_mut(4).zip(parts) {
        to.copy_from_slice(&n.to_le_bytes());
    }
    Ok(head)
}

fn unpack(bytes: &Bytes) -> Row {
    let number = |i: usize| {
        let b = bytes.get(i * 4..i * 4 + 4).and_then(|b| b.try_into().ok());
        u32::from_le_bytes(b.unwrap_or_default())
    };
    let mut at = HEAD.min(bytes.len());
    let mut part = |len: usize| {
        let end = at.saturating_add(len).min(bytes.len());
        let part = bytes.slice(at..end);
        at = end;
        part
    };
    let index = number(0);
    Row {
        record_key: part(number(1) as usize),
        key: part(number(2) as usize),
        bits: part(number(3) as usize),
        doc: part(usize::MAX),
        info: MatchInfo {
            array_index: (index != NO_INDEX).then_some(index as usize),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn rows_survive_the_sort() {
        let row = Row {
            record_key: Bytes::from_static(b"record"),
            doc: Bytes::from_static(b"document"),
            key: Bytes::from_static(b"key"),
            bits: Bytes::from_static(b"b"),
            info: MatchInfo {
                array_index: Some(7),
            },
        };
        let bytes = [
            head(&row).unwrap().as_slice(),
            &row.record_key,
            &row.key,
            &row.bits,
            &row.doc,
        ]
        .concat();
        assert_eq!(format!("{:?}", unpack(&bytes.into())), format!("{row:?}"));
        assert!(unpack(&Bytes::new()).doc.is_empty());
    }
}
