//! The blocking sort: in memory, the best k when there is a limit, spilled in sorted runs above
//! the memory limit.

use super::spill::{Merge, Run};
use super::{Cx, Row, Stage, Stats, Step};
use muniment_query::SortSpec;
use muniment_value::{Code, Doc, DocBuf, Error, Result, doc};
use std::path::PathBuf;

/// One row with its key.
pub type Keyed = (Vec<u8>, Row);

/// How a sort may use the machine.
#[derive(Clone, Debug)]
pub struct SortLimits {
    /// Bytes in memory.
    pub memory: usize,
    /// Where to spill; `None`: more is an error.
    pub spill_dir: Option<PathBuf>,
}

/// The blocking sort.
pub struct Sort {
    pub(super) input: Stage,
    spec: SortSpec,
    pattern: DocBuf,
    limit: Option<usize>,
    limits: SortLimits,
    rows: Vec<Keyed>,
    bytes: usize,
    total_bytes: u64,
    runs: Vec<Run>,
    merge: Option<Merge>,
    /// Sorted; taken from the end.
    output: Vec<Row>,
    loaded: bool,
    pub(super) stats: Stats,
}

impl Sort {
    /// A sort of `input`; with a limit only the first rows are kept.
    pub fn new(
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
            limits,
            rows: Vec::new(),
            bytes: 0,
            total_bytes: 0,
            runs: Vec::new(),
            merge: None,
            output: Vec::new(),
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
                    self.add(row)?;
                }
                Step::Eof => self.finish()?,
            }
        }
        self.stats.works += 1;
        let next = match &mut self.merge {
            Some(m) => m.next()?,
            None => self.output.pop(),
        };
        match next {
            Some(row) => {
                self.stats.advanced += 1;
                Ok(Step::Row(row))
            }
            None => {
                self.stats.works -= 1;
                self.stats.eof = true;
                Ok(Step::Eof)
            }
        }
    }

    fn add(&mut self, row: Row) -> Result<()> {
        let mut key = Vec::with_capacity(32);
        self.spec.key(Doc::new(&row.doc), &mut key)?;
        let size = key.len() + row.doc.len() + row.record_key.len() + std::mem::size_of::<Keyed>();
        self.bytes += size;
        self.total_bytes += size as u64;
        self.rows.push((key, row));
        if let Some(limit) = self.limit
            && self.rows.len() >= limit.saturating_mul(2).max(64)
        {
            self.keep_best(limit);
        }
        if self.bytes > self.limits.memory {
            self.spill()?;
        }
        Ok(())
    }

    /// Drops all but the first `limit` rows. Rows that are equal keep their order.
    fn keep_best(&mut self, limit: usize) {
        self.rows.sort_by(|a, b| a.0.cmp(&b.0));
        self.rows.truncate(limit);
        self.bytes = self
            .rows
            .iter()
            .map(|(k, r)| k.len() + r.doc.len() + r.record_key.len() + std::mem::size_of::<Keyed>())
            .sum();
    }

    fn spill(&mut self) -> Result<()> {
        let Some(dir) = &self.limits.spill_dir else {
            return Err(Error::new(
                Code::QueryExceededMemoryLimitNoDiskUseAllowed,
                format!(
                    "Executor error during find command :: caused by :: Sort exceeded memory \
                     limit of {} bytes, but did not opt in to external sorting.",
                    self.limits.memory
                ),
            ));
        };
        self.rows.sort_by(|a, b| a.0.cmp(&b.0));
        self.runs.push(Run::write(dir, self.rows.drain(..))?);
        self.bytes = 0;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.loaded = true;
        if self.runs.is_empty() {
            if let Some(limit) = self.limit {
                self.keep_best(limit);
            } else {
                self.rows.sort_by(|a, b| a.0.cmp(&b.0));
            }
            self.output = std::mem::take(&mut self.rows)
                .into_iter()
                .rev()
                .map(|(_, r)| r)
                .collect();
            return Ok(());
        }
        self.spill()?;
        self.merge = Some(Merge::open(std::mem::take(&mut self.runs), self.limit)?);
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
            d.append("totalDataSizeSorted", self.total_bytes as i64);
            d.append("usedDisk", self.merge.is_some());
            d.append(
                "spills",
                0_i64.max(self.merge.as_ref().map_or(0, Merge::runs) as i64),
            );
        }
        d.append("inputStage", self.input.explain(exec));
        d
    }
}
