//! Cursors: memtables and tables as one sorted map, as of a timestamp.
//!
//! A cursor gathers rows in batches, of which the first are small. Between two batches it holds no memtable
//! and no table: its sources are positions in a [`State`] with a certain number. If the state has changed by
//! the next batch, they are located again in the new one, after the last key that the cursor has passed. So
//! an idle cursor keeps only its gathered rows and its current blocks in memory.
//!
//! Long runs of deleted keys are walked once and then skipped: see [`gaps`](super::gaps).
//!
//! Newer sources come first: the first source that has a key decides its value.

use super::gaps::{LEAST, behind};
use super::shared::Shared;
use super::state::{Run, State};
use super::table::{TableIter, internal_key, tree_end, user_key};
use crate::trees::{Cursor, Direction, Range, TreeId};
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::Interrupt;
use muniment_value::{Error, Result};
use std::cmp::Ordering;
use std::sync::Arc;

/// The rows of the first batch after opening or a jump, and of the largest batch.
const FIRST: usize = 4;
const LARGEST: usize = 256;

/// A batch ends when it has this many bytes, since values may be large.
const BYTES: usize = 128 << 10;

/// The most keys, live or deleted, that one batch passes.
const STEPS: usize = 2048;

/// After this many deleted keys a batch ends early, to look for a known gap.
const ASK: usize = LEAST / 8;

/// The longest walk that looks for the end of a gap, in keys.
const WALK: usize = 1 << 20;

/// The engine's cursor.
pub(crate) struct LsmCursor {
    shared: Arc<Shared>,
    merge: Sorted,
    /// The number of the state that the sources belong to; `None`: they must be opened.
    number: Option<u64>,
    /// The key that was passed last, if `begun`.
    passed: Vec<u8>,
    begun: bool,
    /// The key to jump to before the next batch.
    jump: Option<Bytes>,
    /// The rows of the batch: where their keys are in `keys`, and their values. One buffer for all keys costs
    /// much less than one per key.
    rows: Vec<(std::ops::Range<usize>, Bytes)>,
    keys: Bytes,
    place: usize,
    batch: usize,
    /// How many deleted keys were passed since the last row, or the last gap, and where they began.
    skipped: usize,
    skipped_from: Option<Bytes>,
    /// After this many deleted keys the cursor looks for a gap. It rises while that does not help this
    /// cursor.
    look: usize,
    ended: bool,
    error: Option<Error>,
}

/// What a walk over the sources reads, and the operation that it works for.
#[derive(Clone, Copy)]
struct Pass<'p> {
    state: &'p State,
    operation: &'p dyn Interrupt,
}

impl<'p> Pass<'p> {
    fn of(state: &'p State, operation: &'p dyn Interrupt) -> Pass<'p> {
        Pass { state, operation }
    }
}

/// The rest of the range, and the sources over it.
struct Sorted {
    tree: TreeId,
    range: Range,
    at: Timestamp,
    dir: Direction,
    /// The ends of the range as internal keys, as tables have them.
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    sources: Vec<Source>,
    /// The sources that are at a key: by key in the cursor's direction, then newer first.
    order: Vec<usize>,
}

enum Source {
    Memory(FromMemory),
    Tables(Box<FromTables>),
}

/// A position in a memtable. Rows are copied out of it, several at once.
#[derive(Default)]
struct FromMemory {
    /// The number of the memtable, newest first.
    number: usize,
    rows: Vec<(Bytes, Option<Bytes>)>,
    place: usize,
    more: bool,
    limit: usize,
}

/// A position in a run of tables.
struct FromTables {
    run: usize,
    table: usize,
    iter: TableIter,
    /// The table has keys beyond the range.
    bounded: bool,
    valid: bool,
}

impl LsmCursor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        tree: TreeId,
        range: Range,
        at: Timestamp,
        dir: Direction,
    ) -> LsmCursor {
        let ended = range.high.as_ref().is_some_and(|high| *high <= range.low);
        LsmCursor {
            shared,
            merge: Sorted::new(tree, range, at, dir),
            number: None,
            passed: Vec::new(),
            begun: false,
            jump: None,
            rows: Vec::new(),
            keys: Bytes::new(),
            place: 0,
            batch: FIRST,
            skipped: 0,
            skipped_from: None,
            look: LEAST,
            ended,
            error: None,
        }
    }

    /// Gathers the next rows.
    fn refill(&mut self, operation: &dyn Interrupt) -> Result<()> {
        self.rows.clear();
        self.place = 0;
        if self.shared.gaps.is_armed() && !self.jump_gap() {
            self.ended = true;
            return Ok(());
        }
        let state = self.shared.state();
        let pass = Pass::of(&state, operation);
        if self.number != Some(state.number) {
            self.number = None;
            if self.begun {
                let passed = Bytes::copy_from_slice(&self.passed);
                self.merge.narrow(passed, false);
            }
            if let Some(jump) = self.jump.take() {
                self.merge.narrow(jump, true);
            }
            self.merge.open(pass)?;
            self.number = Some(state.number);
        } else if let Some(jump) = self.jump.take() {
            self.merge.jump(pass, jump)?;
        }
        let mut bytes = 0;
        let mut keys = Vec::new();
        let mut gathered = Ok(());
        for _ in 0..STEPS {
            let start = keys.len();
            let value = match self.merge.row(pass, &mut keys) {
                Ok(Some(value)) => value,
                Ok(None) => {
                    self.ended = true;
                    break;
                }
                Err(e) => {
                    gathered = Err(e);
                    break;
                }
            };
            self.passed.clear();
            self.passed.extend_from_slice(&keys[start..]);
            self.begun = true;
            let Some(value) = value else {
                if self.skipped_from.is_none() {
                    self.skipped_from = Some(Bytes::copy_from_slice(&keys[start..]));
                }
                keys.truncate(start);
                self.skipped += 1;
                if self.skipped == ASK || self.skipped == self.look {
                    break;
                }
                continue;
            };
            self.skipped = 0;
            self.skipped_from = None;
            bytes += keys.len() - start + value.len();
            self.rows.push((start..keys.len(), value));
            if self.rows.len() >= self.batch || bytes >= BYTES {
                break;
            }
        }
        self.keys = Bytes::from(keys);
        if self.skipped >= self.look && gathered.is_ok() {
            gathered = self.find_gap(operation);
        }
        self.batch = (self.batch * 2).min(LARGEST);
        gathered
    }
}

impl LsmCursor {
    /// Jumps over the gap that the cursor has come to, if one is known. Returns false if nothing is left
    /// after it.
    fn jump_gap(&mut self) -> bool {
        let (tree, at, gaps) = (self.merge.tree, self.merge.at, &self.shared.gaps);
        let target = match self.merge.dir {
            Direction::Forward => {
                let low = match (&self.jump, self.begun) {
                    (Some(jump), _) => jump.clone(),
                    (None, true) => behind(&self.passed),
                    (None, false) => self.merge.range.low.clone(),
                };
                match gaps.over(tree, &low, at) {
                    Some(Some(high)) => high,
                    Some(None) => return false,
                    None => return true,
                }
            }
            Direction::Backward => {
                let high = match (&self.jump, self.begun) {
                    (Some(jump), _) => Some(behind(jump)),
                    (None, true) => Some(Bytes::copy_from_slice(&self.passed)),
                    (None, false) => self.merge.range.high.clone(),
                };
                match gaps.under(tree, high.as_deref(), at) {
                    Some(low) => low,
                    None => return true,
                }
            }
        };
        self.skipped = 0;
        self.look = LEAST;
        self.skipped_from = Some(target.clone());
        self.jump = Some(target);
        true
    }

    /// Walks on from the first deleted key to the next live row, and notes the gap in between.
    fn find_gap(&mut self, operation: &dyn Interrupt) -> Result<()> {
        let (gaps, dir, tree) = (&self.shared.gaps, self.merge.dir, self.merge.tree);
        self.look = self.look.saturating_mul(8);
        let Some(from) = self.skipped_from.clone().filter(|_| gaps.arm()) else {
            return Ok(());
        };
        let range = match dir {
            Direction::Forward => Range {
                low: from,
                high: self.merge.range.high.clone(),
            },
            Direction::Backward => Range {
                low: self.merge.range.low.clone(),
                high: Some(behind(&from)),
            },
        };
        let Some(walk) = gaps.register(tree, range.low.clone(), range.high.clone(), dir) else {
            return Ok(());
        };
        // The state is read after the walk was registered, since the walk must see all earlier writes.
        let state = self.shared.state();
        let pass = Pass::of(&state, operation);
        let mut merge = Sorted::new(tree, range, Timestamp::MAX, dir);
        let mut keys = Vec::new();
        let mut passed = 0;
        let mut edge = None;
        let mut walked = merge.open(pass);
        while walked.is_ok() {
            keys.clear();
            match merge.row(pass, &mut keys) {
                Ok(None) => break,
                Ok(Some(None)) if passed < WALK => {
                    passed += 1;
                    if passed.is_multiple_of(STEPS) {
                        walked = operation.check();
                    }
                }
                Ok(Some(_)) => {
                    edge = Some(match dir {
                        Direction::Forward => Bytes::copy_from_slice(&keys),
                        Direction::Backward => behind(&keys),
                    });
                    break;
                }
                Err(e) => walked = Err(e),
            }
        }
        if walked.is_ok() && passed >= LEAST {
            gaps.finish(&walk, edge, self.shared.persisted());
        } else {
            gaps.give_up(&walk);
        }
        walked
    }
}

impl Cursor for LsmCursor {
    fn next(&mut self, operation: &dyn Interrupt) -> Result<Option<(Bytes, Bytes)>> {
        loop {
            if let Some((key, value)) = self.rows.get_mut(self.place) {
                self.place += 1;
                return Ok(Some((self.keys.slice(key.clone()), std::mem::take(value))));
            }
            if let Some(e) = &self.error {
                return Err(e.clone());
            }
            if self.ended {
                return Ok(None);
            }
            let filled = self.refill(operation);
            // A long way without rows is interrupted here, and continues with the next call if there is one.
            // An error on the way is not reported to an operation that must end. The operation may have been
            // stopped on the way and spared since, so what it said there counts as well.
            let stopped = match &filled {
                Err(e) if e.is_interruption() => Some(e.clone()),
                Ok(()) if !self.rows.is_empty() => None,
                _ => operation.check().err(),
            };
            if let Some(e) = stopped {
                // The sources may be anywhere now, so they are located again after the last key that was
                // passed.
                self.number = None;
                match self.rows.is_empty() {
                    true => return Err(e),
                    false => continue,
                }
            }
            if let Err(e) = filled {
                self.error = Some(e);
            }
        }
    }

    fn seek(&mut self, key: &[u8]) {
        let before = |k: &[u8]| match self.merge.dir {
            Direction::Forward => k < key,
            Direction::Backward => k > key,
        };
        let rows = self.rows.get(self.place..).unwrap_or_default();
        let key_of = |k: &std::ops::Range<usize>| self.keys.get(k.clone()).unwrap_or_default();
        let skip = rows.partition_point(|(k, _)| before(key_of(k)));
        let all = skip == rows.len();
        self.place += skip;
        if all && self.jump.as_ref().is_none_or(|jump| before(jump)) {
            self.jump = Some(Bytes::copy_from_slice(key));
            self.batch = FIRST;
        }
    }
}

impl Sorted {
    fn new(tree: TreeId, range: Range, at: Timestamp, dir: Direction) -> Sorted {
        Sorted {
            tree,
            range,
            at,
            dir,
            low: Vec::new(),
            high: None,
            sources: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Excludes everything before `key`, and `key` itself unless it is `inside`.
    fn narrow(&mut self, key: Bytes, inside: bool) {
        match self.dir {
            Direction::Forward => {
                let low = if inside { key } else { behind(&key) };
                if low > self.range.low {
                    self.range.low = low;
                }
            }
            Direction::Backward => {
                let high = if inside { behind(&key) } else { key };
                if self.range.high.as_ref().is_none_or(|h| high < *h) {
                    self.range.high = Some(high);
                }
            }
        }
    }

    /// Opens all sources at the beginning of the range.
    fn open(&mut self, pass: Pass<'_>) -> Result<()> {
        self.sources.clear();
        self.order.clear();
        let Range { low, high } = &self.range;
        if high.as_ref().is_some_and(|high| high <= low) {
            return Ok(());
        }
        self.low = internal_key(self.tree, low);
        self.high = match high {
            Some(high) => Some(internal_key(self.tree, high)),
            None => tree_end(self.tree),
        };
        for (number, mem) in pass.state.memtables().enumerate() {
            if !mem.is_empty() {
                self.sources.push(Source::Memory(FromMemory {
                    number,
                    limit: FIRST,
                    ..FromMemory::default()
                }));
            }
        }
        for run in 0..pass.state.levels.fresh.len() + pass.state.levels.deep.len() {
            if pass.state.levels.run(run).is_some_and(|r| !r.0.is_empty()) {
                self.sources.push(Source::Tables(Box::new(FromTables {
                    run,
                    table: 0,
                    iter: TableIter::new(self.at, self.dir),
                    bounded: true,
                    valid: false,
                })));
            }
        }
        let mut sources = std::mem::take(&mut self.sources);
        let opened = sources.iter_mut().try_for_each(|source| match source {
            Source::Memory(m) => {
                m.fill(self, pass, None);
                Ok(())
            }
            Source::Tables(t) => t.open(self, pass),
        });
        self.sources = sources;
        opened?;
        self.sort();
        Ok(())
    }

    /// Jumps forward in the cursor's direction, to the first key that is not before `key`.
    fn jump(&mut self, pass: Pass<'_>, key: Bytes) -> Result<()> {
        self.narrow(key.clone(), true);
        self.order.clear();
        if self
            .range
            .high
            .as_ref()
            .is_some_and(|h| *h <= self.range.low)
        {
            self.sources.clear();
            return Ok(());
        }
        match self.dir {
            Direction::Forward => self.low = internal_key(self.tree, &self.range.low),
            Direction::Backward => {
                let high = self.range.high.as_ref();
                self.high = high.map(|h| internal_key(self.tree, h));
            }
        }
        let target = internal_key(self.tree, &key);
        let mut sources = std::mem::take(&mut self.sources);
        let moved = sources.iter_mut().try_for_each(|source| match source {
            Source::Memory(m) => {
                m.skip_to(self, pass, &key);
                Ok(())
            }
            Source::Tables(t) => t.skip_to(self, pass, &target),
        });
        self.sources = sources;
        moved?;
        self.sort();
        Ok(())
    }

    fn sort(&mut self) {
        let sources = &self.sources;
        let valid = (0..sources.len()).filter(|i| sources[*i].key().is_some());
        let mut order: Vec<usize> = valid.collect();
        order.sort_by(|a, b| self.compare(*a, *b).then(a.cmp(b)));
        self.order = order;
    }

    #[inline]
    fn compare(&self, a: usize, b: usize) -> Ordering {
        let key = |i: usize| {
            self.sources
                .get(i)
                .and_then(Source::key)
                .unwrap_or_default()
        };
        match self.dir {
            Direction::Forward => key(a).cmp(key(b)),
            Direction::Backward => key(b).cmp(key(a)),
        }
    }

    /// Appends the next key to `keys` and returns its value, which is `None` for a deletion; `None` at the
    /// end. After an error the sources cannot be used any more.
    #[inline]
    #[allow(clippy::option_option)]
    fn row(&mut self, pass: Pass<'_>, keys: &mut Vec<u8>) -> Result<Option<Option<Bytes>>> {
        let Some(source) = self.order.first().and_then(|i| self.sources.get(*i)) else {
            return Ok(None);
        };
        let first = self.order.first().copied().unwrap_or_default();
        keys.extend_from_slice(source.key().unwrap_or_default());
        let value = source.value();
        // The older sources that have the same key come right after it.
        while let Some(second) = self.order.get(1).copied()
            && self.compare(first, second) == Ordering::Equal
        {
            self.step(pass, 1)?;
        }
        self.step(pass, 0)?;
        Ok(Some(value))
    }

    /// Advances the source at position `i` of the order, and restores the order.
    #[inline]
    fn step(&mut self, pass: Pass<'_>, mut i: usize) -> Result<()> {
        let Some(number) = self.order.get(i).copied() else {
            return Ok(());
        };
        let mut sources = std::mem::take(&mut self.sources);
        let moved = match sources.get_mut(number) {
            Some(Source::Memory(m)) => {
                m.step(self, pass);
                Ok(())
            }
            Some(Source::Tables(t)) => t.step(self, pass),
            None => Ok(()),
        };
        self.sources = sources;
        moved?;
        if self.sources.get(number).and_then(Source::key).is_none() {
            self.order.remove(i);
            return Ok(());
        }
        while let Some(next) = self.order.get(i + 1).copied()
            && self.compare(number, next).then(number.cmp(&next)) == Ordering::Greater
        {
            self.order.swap(i, i + 1);
            i += 1;
        }
        Ok(())
    }
}

impl Source {
    #[inline]
    fn key(&self) -> Option<&[u8]> {
        match self {
            Source::Memory(m) => m.rows.get(m.place).map(|row| &row.0[..]),
            Source::Tables(t) => t.valid.then(|| user_key(t.iter.key())),
        }
    }

    #[inline]
    fn value(&self) -> Option<Bytes> {
        match self {
            Source::Memory(m) => m.rows.get(m.place)?.1.clone(),
            Source::Tables(t) => t.iter.value(),
        }
    }
}

impl FromMemory {
    fn fill(&mut self, of: &Sorted, pass: Pass<'_>, after: Option<&[u8]>) {
        self.rows.clear();
        self.place = 0;
        // The first page has one row more than a batch takes, so that no batch ends exactly with a page. The
        // next page, which is larger, is then read only when a batch needs its first row, and perhaps never.
        let limit = self.limit + usize::from(after.is_none());
        self.more = pass.state.memtable(self.number).is_some_and(|mem| {
            let (range, rows) = (&of.range, &mut self.rows);
            mem.read(of.tree, range, after, of.at, of.dir, limit, rows)
        });
        self.limit = (self.limit * 2).min(LARGEST);
    }

    fn step(&mut self, of: &Sorted, pass: Pass<'_>) {
        self.place += 1;
        if self.place >= self.rows.len() && self.more {
            let last = self.rows.pop();
            self.fill(of, pass, last.as_ref().map(|row| &row.0[..]));
        }
    }

    fn skip_to(&mut self, of: &Sorted, pass: Pass<'_>, key: &[u8]) {
        let rows = self.rows.get(self.place..).unwrap_or_default();
        self.place += rows.partition_point(|(k, _)| match of.dir {
            Direction::Forward => &k[..] < key,
            Direction::Backward => &k[..] > key,
        });
        if self.place >= self.rows.len() && self.more {
            self.limit = FIRST;
            self.fill(of, pass, None);
        }
    }
}

impl FromTables {
    fn open(&mut self, of: &Sorted, pass: Pass<'_>) -> Result<()> {
        let Some(run) = pass.state.levels.run(self.run) else {
            return Ok(());
        };
        self.table = match (of.dir, &of.high) {
            (Direction::Forward, _) => run.position(&of.low),
            (Direction::Backward, Some(high)) => run.0.partition_point(|t| t.first() < &high[..]),
            (Direction::Backward, None) => run.0.len(),
        };
        if of.dir == Direction::Backward {
            self.table = self.table.wrapping_sub(1);
        }
        self.enter(of, pass, run, true)
    }

    /// Goes to the first key of the current table or of a later one; with `seek`, to the first that is in the
    /// range.
    fn enter(&mut self, of: &Sorted, pass: Pass<'_>, run: &Run, mut seek: bool) -> Result<()> {
        self.valid = false;
        while let Some(table) = run.0.get(self.table) {
            let high = of.high.as_deref();
            let inside = match of.dir {
                Direction::Forward => high.is_none_or(|high| table.first() < high),
                Direction::Backward => table.last() >= &of.low[..],
            };
            if !inside {
                // This table is beyond the range, and so are all after it.
                self.table = usize::MAX;
                return Ok(());
            }
            // A table whose versions are all newer than the view has nothing for it.
            if table.properties().oldest <= of.at {
                self.bounded = match of.dir {
                    Direction::Forward => high.is_some_and(|high| table.last() >= high),
                    Direction::Backward => table.first() < &of.low[..],
                };
                self.iter = TableIter::new(of.at, of.dir);
                match (seek, of.dir, high) {
                    (true, Direction::Forward, _) => {
                        self.iter.seek(table, pass.operation, &of.low, false)?
                    }
                    (true, Direction::Backward, Some(high)) => {
                        self.iter.seek(table, pass.operation, high, true)?;
                    }
                    _ => self.iter.rewind(table, pass.operation)?,
                }
                if self.iter.valid() {
                    self.valid = self.is_inside(of);
                    if !self.valid {
                        self.table = usize::MAX;
                    }
                    return Ok(());
                }
            }
            seek = false;
            self.table = match of.dir {
                Direction::Forward => self.table + 1,
                Direction::Backward => self.table.wrapping_sub(1),
            };
        }
        Ok(())
    }

    #[inline]
    fn is_inside(&self, of: &Sorted) -> bool {
        !self.bounded
            || match of.dir {
                Direction::Forward => of.high.as_deref().is_none_or(|h| self.iter.key() < h),
                Direction::Backward => self.iter.key() >= &of.low[..],
            }
    }

    #[inline]
    fn step(&mut self, of: &Sorted, pass: Pass<'_>) -> Result<()> {
        let Some(run) = pass.state.levels.run(self.run) else {
            return Ok(());
        };
        let Some(table) = run.0.get(self.table) else {
            return Ok(());
        };
        self.valid = false;
        self.iter.step(table, pass.operation)?;
        self.settle(of, pass, run)
    }

    #[inline]
    fn settle(&mut self, of: &Sorted, pass: Pass<'_>, run: &Run) -> Result<()> {
        if self.iter.valid() {
            self.valid = self.is_inside(of);
            return Ok(());
        }
        self.table = match of.dir {
            Direction::Forward => self.table + 1,
            Direction::Backward => self.table.wrapping_sub(1),
        };
        self.enter(of, pass, run, false)
    }

    fn skip_to(&mut self, of: &Sorted, pass: Pass<'_>, key: &[u8]) -> Result<()> {
        if !self.valid {
            return Ok(());
        }
        let Some(run) = pass.state.levels.run(self.run) else {
            return Ok(());
        };
        let Some(table) = run.0.get(self.table) else {
            return Ok(());
        };
        let here = match of.dir {
            Direction::Forward => key <= table.last(),
            Direction::Backward => key >= table.first(),
        };
        if !here {
            return self.open(of, pass);
        }
        self.valid = false;
        self.iter.skip_to(table, pass.operation, key)?;
        self.settle(of, pass, run)
    }
}
