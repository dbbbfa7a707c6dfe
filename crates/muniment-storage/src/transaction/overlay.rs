//! The writes of a transaction, over what it sees of others.
//!
//! A transaction may write a hundred thousand keys and hold them until its commit, so a key takes few
//! bytes here: it and its value stay in the buffers that the statements staged them in, and an entry
//! says where. The entries of a tree are in the order of their keys, in chunks. They are sorted into
//! them only when a write is looked up, or when several statements are committed.

use crate::commit::stage::{Piece, Put, Sealed, part};
use bytes::Bytes;
use muniment_op::Interrupt;
use muniment_tree::{Batch, Cursor, Direction, Op as TreeOp, Range, TreeId};
use muniment_value::Result;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// The most entries of a chunk.
const CHUNK: usize = 256;

/// Bytes of memory that a written key takes in addition to key and value: its entry, the space that
/// chunks leave free, and its latch.
const PER_KEY: usize = 100;

/// Bytes of memory that a statement takes whatever it writes: the heads of its buffers.
const PER_STATEMENT: usize = 300;

/// The writes of a transaction by key, each with the statement that wrote it.
#[derive(Default)]
pub(crate) struct Overlay {
    written: RwLock<Written>,
}

#[derive(Default)]
struct Written {
    /// What statements have staged and no look-up has needed yet, in order. Many transactions only
    /// write, and then none of it needs to be sorted.
    raw: Vec<(Sealed, u32)>,
    buffers: Buffers,
    trees: BTreeMap<u32, Tree>,
    /// The earlier versions of keys that were written again.
    older: Vec<Version>,
}

/// The buffers that keys and values stand in. True: parts have to be copied out of it.
#[derive(Default)]
struct Buffers(Vec<(Bytes, bool)>);

/// The place of a key or a value.
#[derive(Clone, Copy)]
struct Span {
    buffer: u32,
    start: u32,
    end: u32,
}

impl Buffers {
    fn get(&self, span: Span) -> &[u8] {
        self.0
            .get(span.buffer as usize)
            .and_then(|(b, _)| b.get(span.start as usize..span.end as usize))
            .unwrap_or_default()
    }

    /// The bytes for a reader, which keeps the buffer alive meanwhile.
    fn share(&self, span: Span) -> Bytes {
        self.part(span, false)
    }

    /// The bytes as they go into the trees. They are copied if the buffer would otherwise stay for ever.
    fn store(&self, span: Span) -> Bytes {
        let copies = self.0.get(span.buffer as usize).is_some_and(|b| b.1);
        self.part(span, copies)
    }

    fn part(&self, span: Span, copies: bool) -> Bytes {
        match self.0.get(span.buffer as usize) {
            Some((buffer, _)) => part(buffer, span.start as usize..span.end as usize, copies),
            None => Bytes::new(),
        }
    }
}

/// The value that a statement left under a key.
#[derive(Clone, Copy)]
struct Version {
    statement: u32,
    /// The value; `None` means that the statement deleted the key.
    value: Option<Span>,
    /// The previous version: its place among the older ones, plus one.
    before: u32,
}

struct Entry {
    key: Span,
    newest: Version,
    /// The trees have no such key, and every version is a value.
    fresh: bool,
}

/// The entries of one tree, in chunks that are never empty.
#[derive(Default)]
struct Tree {
    chunks: Vec<Vec<Entry>>,
}

/// The place of an entry: the chunk, and the index in it.
type Place = (usize, usize);

impl Tree {
    /// The place of the first entry that is not before `key`, and whether it is `key`'s.
    fn find(&self, buffers: &Buffers, key: &[u8]) -> (Place, bool) {
        // Most keys come in order, so the end is tried first.
        if let Some(last) = self.chunks.last().and_then(|c| c.last())
            && buffers.get(last.key) < key
        {
            return ((self.chunks.len(), 0), false);
        }
        let first = |c: &Vec<Entry>| c.first().map_or(&[][..], |e| buffers.get(e.key));
        let chunk = self.chunks.partition_point(|c| first(c) <= key);
        let chunk = chunk.saturating_sub(1);
        let entries = self.chunks.get(chunk).map_or(&[][..], |c| &**c);
        match entries.binary_search_by(|e| buffers.get(e.key).cmp(key)) {
            Ok(at) => ((chunk, at), true),
            Err(at) if at == entries.len() && !entries.is_empty() => ((chunk + 1, 0), false),
            Err(at) => ((chunk, at), false),
        }
    }

    fn get(&self, (chunk, at): Place) -> Option<&Entry> {
        self.chunks.get(chunk)?.get(at)
    }

    /// The place after this one.
    fn after(&self, (chunk, at): Place) -> Place {
        match self.chunks.get(chunk) {
            Some(entries) if at + 1 < entries.len() => (chunk, at + 1),
            _ => (chunk + 1, 0),
        }
    }

    /// The place before this one.
    fn before(&self, (chunk, at): Place) -> Option<Place> {
        match at.checked_sub(1) {
            Some(at) => Some((chunk, at)),
            None => {
                let chunk = chunk.checked_sub(1)?;
                Some((chunk, self.chunks.get(chunk)?.len().checked_sub(1)?))
            }
        }
    }

    /// Puts an entry at the place that [`Tree::find`] gave.
    fn insert(&mut self, (chunk, at): Place, entry: Entry) {
        // The place before the first entry of a chunk is also the place after the last one of the chunk
        // before it. Entries that come in order are added there.
        let (chunk, at) = match (chunk.checked_sub(1), at) {
            (Some(before), 0) => (before, self.chunks.get(before).map_or(0, Vec::len)),
            _ => (chunk, at),
        };
        let count = self.chunks.len();
        let Some(entries) = self.chunks.get_mut(chunk) else {
            self.chunks.push(vec![entry]);
            return;
        };
        if entries.len() < CHUNK {
            entries.insert(at, entry);
            return;
        }
        if chunk + 1 == count && at == CHUNK {
            // Keys come in order, so the full chunk is not split: both halves would stay half empty.
            let mut next = Vec::with_capacity(CHUNK);
            next.push(entry);
            self.chunks.push(next);
            return;
        }
        let mut upper = Vec::with_capacity(CHUNK);
        upper.extend(entries.drain(CHUNK / 2..));
        match at.checked_sub(CHUNK / 2) {
            Some(at) => upper.insert(at, entry),
            None => entries.insert(at, entry),
        }
        self.chunks.insert(chunk + 1, upper);
    }
}

impl Written {
    /// Sorts the statements that were not looked at yet.
    fn sort(&mut self) {
        for (sealed, statement) in std::mem::take(&mut self.raw) {
            let first = self.buffers.0.len() as u32;
            let shared = [
                (sealed.payload, sealed.copies),
                (sealed.arena, sealed.copies),
            ];
            let owned = sealed.owned.into_iter().map(|b| (b, false));
            self.buffers.0.extend(shared.into_iter().chain(owned));
            for put in &sealed.puts {
                self.put(put, first, statement);
            }
        }
    }

    /// The version that the statements up to `statement` have left.
    fn at(&self, entry: &Entry, statement: u32) -> Option<Version> {
        let mut version = entry.newest;
        while version.statement > statement {
            version = *self.older.get((version.before as usize).checked_sub(1)?)?;
        }
        Some(version)
    }

    fn put(&mut self, put: &Put, first: u32, statement: u32) {
        let span = |piece: Piece| {
            let (buffer, start, end) = match piece {
                Piece::Logged { start, end } => (first, start, end),
                Piece::Kept { start, end } => (first + 1, start, end),
                // The end is cut to that of the piece, which is shorter than a record.
                Piece::Owned { at } => (first + 2 + at, 0, u32::MAX),
            };
            let len = self.buffers.0.get(buffer as usize).map_or(0, |b| b.0.len());
            Span {
                buffer,
                start,
                end: end.min(len as u32),
            }
        };
        let key = span(put.key);
        let newest = Version {
            statement,
            value: put.value.map(span),
            before: 0,
        };
        let tree = self.trees.entry(put.tree).or_default();
        let (place, there) = tree.find(&self.buffers, self.buffers.get(key));
        let there = match there {
            true => tree
                .chunks
                .get_mut(place.0)
                .and_then(|c| c.get_mut(place.1)),
            false => None,
        };
        let Some(entry) = there else {
            let fresh = put.fresh;
            tree.insert(place, Entry { key, newest, fresh });
            return;
        };
        entry.fresh &= newest.value.is_some();
        let before = std::mem::replace(&mut entry.newest, newest);
        entry.newest.before = before.before;
        if before.statement < statement {
            self.older.push(before);
            entry.newest.before = self.older.len() as u32;
        }
    }
}

impl Sealed {
    /// Bytes of memory that it takes as a part of a transaction.
    pub(super) fn memory(&self) -> usize {
        let owned = self.owned.iter().map(Bytes::len).sum::<usize>();
        let buffers = self.payload.len() + self.arena.len() + owned;
        PER_STATEMENT + buffers + self.puts.len() * PER_KEY
    }
}

impl Overlay {
    /// What these have put.
    fn of<'s>(all: impl Iterator<Item = &'s Sealed>) -> Arc<Overlay> {
        let overlay = Overlay::default();
        all.for_each(|sealed| overlay.put(sealed.clone(), 0));
        Arc::new(overlay)
    }

    /// The value of a key; `Some(None)`: it was deleted.
    pub fn get(&self, tree: u32, key: &[u8], statement: u32) -> Option<Option<Bytes>> {
        let written = self.sorted();
        let tree = written.trees.get(&tree)?;
        let (place, there) = tree.find(&written.buffers, key);
        if !there {
            return None;
        }
        let version = written.at(tree.get(place)?, statement)?;
        Some(version.value.map(|v| written.buffers.share(v)))
    }

    /// Takes over what a statement has staged.
    pub(super) fn put(&self, sealed: Sealed, statement: u32) {
        self.written.write().raw.push((sealed, statement));
    }

    /// The writes, sorted for a look-up.
    fn sorted(&self) -> RwLockReadGuard<'_, Written> {
        let written = self.written.read();
        if written.raw.is_empty() {
            return written;
        }
        drop(written);
        let mut written = self.written.write();
        written.sort();
        RwLockWriteGuard::downgrade(written)
    }

    fn has(&self, tree: u32) -> bool {
        self.sorted().trees.contains_key(&tree)
    }

    /// The first key of a tree between two bounds, in a direction, that has a version up to `statement`.
    fn next(
        &self,
        tree: u32,
        statement: u32,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Option<(Bytes, Option<Bytes>)> {
        let written = self.sorted();
        let tree = written.trees.get(&tree)?;
        // The place of the first entry that is not below a bound.
        let from = |bound: Bound<&[u8]>, behind: bool| match bound {
            Bound::Unbounded => None,
            Bound::Included(key) | Bound::Excluded(key) => {
                let (place, there) = tree.find(&written.buffers, key);
                let over = there && behind == matches!(bound, Bound::Included(_));
                Some(if over { tree.after(place) } else { place })
            }
        };
        let within = |key: &[u8]| {
            let above = match low {
                Bound::Unbounded => Ordering::Greater,
                Bound::Included(low) => key.cmp(low).then(Ordering::Greater),
                Bound::Excluded(low) => key.cmp(low),
            };
            let below = match high {
                Bound::Unbounded => Ordering::Less,
                Bound::Included(high) => key.cmp(high).then(Ordering::Less),
                Bound::Excluded(high) => key.cmp(high),
            };
            above.is_gt() && below.is_lt()
        };
        let mut place = match direction {
            Direction::Forward => from(low, false).unwrap_or((0, 0)),
            Direction::Backward => {
                let end = from(high, true).unwrap_or((tree.chunks.len(), 0));
                tree.before(end)?
            }
        };
        loop {
            let entry = tree.get(place)?;
            let key = written.buffers.get(entry.key);
            if !within(key) {
                return None;
            }
            if let Some(version) = written.at(entry, statement) {
                let value = version.value.map(|v| written.buffers.share(v));
                return Some((written.buffers.share(entry.key), value));
            }
            place = match direction {
                Direction::Forward => tree.after(place),
                Direction::Backward => tree.before(place)?,
            };
        }
    }

    /// Adds all changes to a commit's and forgets them. They go tree by tree, the greatest number first.
    pub(super) fn move_to(&self, batch: &mut Batch) {
        let mut written = std::mem::take(&mut *self.written.write());
        if written.trees.is_empty() && written.raw.len() == 1 {
            // The puts of a single statement need no sorting, as those of any write unit.
            for (sealed, _) in written.raw {
                sealed.add_to(batch);
            }
            return;
        }
        written.sort();
        let chunks = written.trees.values().flat_map(|t| &t.chunks);
        batch.reserve_exact(chunks.map(Vec::len).sum());
        for (tree, keys) in written.trees.iter().rev() {
            batch.extend(keys.chunks.iter().flatten().map(|entry| {
                let value = entry.newest.value.map(|v| written.buffers.store(v));
                TreeOp {
                    tree: TreeId(*tree),
                    key: written.buffers.store(entry.key),
                    fresh: entry.fresh && value.is_some(),
                    value,
                }
            }));
        }
    }

    /// Forgets all writes.
    pub(super) fn clear(&self) {
        *self.written.write() = Written::default();
    }
}

/// The writes of a transaction whose record is in the log, for views before that record.
pub(crate) struct Writes {
    sealed: Sealed,
    overlay: Arc<Overlay>,
}

impl Writes {
    /// What a record has put, with the bytes of memory that it takes.
    pub fn new(sealed: Sealed) -> (Writes, usize) {
        let bytes = sealed.memory();
        let overlay = Overlay::of(std::iter::once(&sealed));
        (Writes { sealed, overlay }, bytes)
    }

    /// All of these as one; they have no key in common.
    pub fn together(all: &[&Writes]) -> Option<Arc<Overlay>> {
        match all {
            [] => None,
            [one] => Some(one.overlay.clone()),
            all => Some(Overlay::of(all.iter().map(|w| &w.sealed))),
        }
    }
}

/// A cursor over a tree with what a transaction has written to it.
pub(crate) struct Merged {
    base: Box<dyn Cursor>,
    /// An entry that the base has given and that was not passed on yet.
    peeked: Option<(Bytes, Bytes)>,
    base_ended: bool,
    overlay: Arc<Overlay>,
    statement: u32,
    tree: u32,
    range: Range,
    direction: Direction,
    /// The cursor's position: it gives nothing before it.
    at: Bound<Bytes>,
}

impl Merged {
    /// A cursor over `base`. It is `base` itself if the transaction has written nothing to the tree.
    pub fn over(
        base: Box<dyn Cursor>,
        (overlay, statement): &(Arc<Overlay>, u32),
        tree: u32,
        range: Range,
        direction: Direction,
    ) -> Box<dyn Cursor> {
        if !overlay.has(tree) {
            return base;
        }
        Box::new(Merged {
            base,
            peeked: None,
            base_ended: false,
            overlay: overlay.clone(),
            statement: *statement,
            tree,
            range,
            direction,
            at: Bound::Unbounded,
        })
    }

    fn own(&self) -> Option<(Bytes, Option<Bytes>)> {
        let at = match &self.at {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(k) => Bound::Included(&**k),
            Bound::Excluded(k) => Bound::Excluded(&**k),
        };
        let low = Bound::Included(&*self.range.low);
        let high = match &self.range.high {
            Some(high) => Bound::Excluded(&**high),
            None => Bound::Unbounded,
        };
        let bounds = match (self.direction, at) {
            (_, Bound::Unbounded) => (low, high),
            (Direction::Forward, at) => (at, high),
            (Direction::Backward, at) => (low, at),
        };
        self.overlay
            .next(self.tree, self.statement, bounds, self.direction)
    }

    /// True if `a` comes before `b` in the cursor's direction.
    fn before(&self, a: &[u8], b: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => a < b,
            Direction::Backward => a > b,
        }
    }
}

impl Cursor for Merged {
    fn next(&mut self, operation: &dyn Interrupt) -> Result<Option<(Bytes, Bytes)>> {
        loop {
            if self.peeked.is_none() && !self.base_ended {
                self.peeked = self.base.next(operation)?;
                self.base_ended = self.peeked.is_none();
            }
            let Some((key, value)) = self.own() else {
                return Ok(self.peeked.take());
            };
            if let Some((base, _)) = &self.peeked {
                if self.before(base, &key) {
                    return Ok(self.peeked.take());
                }
                if *base == key {
                    self.peeked = None;
                }
            }
            self.at = Bound::Excluded(key.clone());
            if let Some(value) = value {
                return Ok(Some((key, value)));
            }
        }
    }

    fn seek(&mut self, key: &[u8]) {
        if self
            .peeked
            .as_ref()
            .is_some_and(|(k, _)| self.before(k, key))
        {
            self.peeked = None;
        }
        if self.peeked.is_none() {
            self.base.seek(key);
        }
        let behind = match &self.at {
            Bound::Unbounded => match self.direction {
                Direction::Forward => *key > *self.range.low,
                Direction::Backward => self.range.high.as_ref().is_none_or(|high| *key < **high),
            },
            Bound::Included(at) | Bound::Excluded(at) => self.before(at, key),
        };
        if behind {
            self.at = Bound::Included(Bytes::copy_from_slice(key));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::commit::door::Opening;
    use crate::commit::stage::Stage;
    use std::collections::HashSet;

    /// A linear congruential generator, by MMIX's constants.
    struct Rng(u64);

    impl Rng {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
            self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % n
        }
    }

    type Model = BTreeMap<(u32, Vec<u8>), Vec<(u32, Option<Vec<u8>>)>>;

    fn key(rng: &mut Rng, ordered: bool, n: &mut u32) -> Vec<u8> {
        *n += 1;
        match ordered {
            true => n.to_be_bytes().to_vec(),
            false => (rng.below(900) as u16).to_be_bytes().to_vec(),
        }
    }

    fn seen(versions: &[(u32, Option<Vec<u8>>)], at: u32) -> Option<&Option<Vec<u8>>> {
        versions.iter().rev().find(|v| v.0 <= at).map(|v| &v.1)
    }

    /// The entries between two bounds, by the model.
    fn between(
        model: &Model,
        tree: u32,
        at: u32,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let above = |k: &[u8]| match low {
            Bound::Unbounded => true,
            Bound::Included(b) => k >= b,
            Bound::Excluded(b) => k > b,
        };
        let below = |k: &[u8]| match high {
            Bound::Unbounded => true,
            Bound::Included(b) => k <= b,
            Bound::Excluded(b) => k < b,
        };
        let keys = model
            .iter()
            .filter(|((t, k), _)| *t == tree && above(k) && below(k));
        keys.filter_map(|((_, k), all)| Some((k.clone(), seen(all, at)?.clone())))
            .collect()
    }

    fn walk(
        overlay: &Overlay,
        tree: u32,
        at: u32,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        let mut last: Option<Bytes> = None;
        loop {
            let bounds = match (&last, direction) {
                (None, _) => (low, high),
                (Some(k), Direction::Forward) => (Bound::Excluded(&**k), high),
                (Some(k), Direction::Backward) => (low, Bound::Excluded(&**k)),
            };
            let Some((key, value)) = overlay.next(tree, at, bounds, direction) else {
                break;
            };
            found.push((key.to_vec(), value.map(|v| v.to_vec())));
            last = Some(key);
        }
        if direction == Direction::Backward {
            found.reverse();
        }
        found
    }

    #[test]
    fn it_is_what_an_ordered_map_with_versions_is() {
        let buffers = crate::commit::buffers::Buffers::new(false);
        for seed in 0..32 {
            let ordered = seed % 3 == 0;
            // In some transactions nothing is looked up before the commit, with one statement or with
            // many; in others something is looked up in between.
            let (statements, looks) = match seed % 4 {
                0 => (1, false),
                1 => (30, false),
                n => (30, n == 2),
            };
            let mut rng = Rng(seed + 1);
            let overlay = Overlay::default();
            let mut model = Model::new();
            let (mut deleted, mut beneath) = (HashSet::new(), HashSet::new());
            let mut n = 0;
            for statement in 1..=statements {
                let mut stage = Stage::new(Opening::NONE);
                stage.replaces();
                for i in 0..rng.below(120) {
                    let tree = 1 + rng.below(2) as u32;
                    let key = key(&mut rng, ordered, &mut n);
                    let value = (rng.below(4) > 0).then(|| match rng.below(20) {
                        // The value is long enough for an allocation of its own.
                        0 => vec![i as u8; 2000],
                        _ => format!("{seed} {statement} {i}").into_bytes(),
                    });
                    let piece = stage.keep(&[&key]);
                    let kept = value.clone().map(|v| stage.keep_value(&Bytes::from(v)));
                    stage.put(tree, piece, kept, true);
                    if value.is_none() {
                        deleted.insert((tree, key.clone()));
                        if !model.contains_key(&(tree, key.clone())) {
                            beneath.insert((tree, key.clone()));
                        }
                    }
                    let all = model.entry((tree, key)).or_default();
                    all.retain(|v| v.0 < statement);
                    all.push((statement, value));
                }
                overlay.put(stage.seal(0, &buffers), statement);
                if looks && rng.below(3) == 0 {
                    let all = (Bound::Unbounded, Bound::Unbounded);
                    let expected = between(&model, 1, statement, all);
                    let found = walk(&overlay, 1, statement, all, Direction::Forward);
                    assert_eq!(found, expected);
                }
            }
            let looked = if seed % 4 < 2 { 0 } else { 300 };
            for _ in 0..looked {
                let tree = 1 + rng.below(2) as u32;
                let at = rng.below(32) as u32;
                let (a, b) = (key(&mut rng, false, &mut 0), key(&mut rng, false, &mut 0));
                let mut any = |k| match rng.below(3) {
                    0 => Bound::Unbounded,
                    1 => Bound::Included(k),
                    _ => Bound::Excluded(k),
                };
                let bounds = (any(&*a), any(&*b));
                let expected = between(&model, tree, at, bounds);
                for direction in [Direction::Forward, Direction::Backward] {
                    assert_eq!(walk(&overlay, tree, at, bounds, direction), expected);
                }
                let got = overlay.get(tree, &a, at).map(|v| v.map(|v| v.to_vec()));
                let all = model.get(&(tree, a.clone()));
                assert_eq!(got.as_ref(), all.and_then(|all| seen(all, at)));
            }
            let mut batch = Batch::new();
            overlay.move_to(&mut batch);
            assert!(batch.windows(2).all(|w| w[0].tree >= w[1].tree));
            assert_eq!(batch.len(), model.len());
            for op in batch {
                let key = (op.tree.0, op.key.to_vec());
                let newest = model[&key].last().unwrap();
                assert_eq!(op.value.map(|v| v.to_vec()), newest.1);
                // A key whose first write is a deletion was there before.
                assert!(!(op.fresh && beneath.contains(&key)));
                assert!(op.fresh || deleted.contains(&key));
            }
            let mut again = Batch::new();
            overlay.move_to(&mut again);
            assert!(again.is_empty());
        }
    }

    #[test]
    fn keys_in_order_fill_their_chunks() {
        let buffers = crate::commit::buffers::Buffers::new(false);
        let overlay = Overlay::default();
        let mut stage = Stage::new(Opening::NONE);
        for i in 0..10_000_u32 {
            let key = stage.keep(&[&i.to_be_bytes()]);
            stage.put(1, key, Some(key), true);
        }
        overlay.put(stage.seal(0, &buffers), 1);
        let written = overlay.sorted();
        assert_eq!(written.trees[&1].chunks.len(), 10_000_usize.div_ceil(CHUNK));
        assert!(size_of::<Entry>() <= 44, "{}", size_of::<Entry>());
    }
}
