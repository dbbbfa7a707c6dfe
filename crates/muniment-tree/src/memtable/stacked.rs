//! An engine of several generations of memtables over a plain map, which plays the disk. It tests that what
//! the memtable drops is right whatever is beneath it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::MemTable;
use crate::conformance::{self, Harness};
use crate::trees::{Batch, Cursor, Direction, Faults, Hold, Range, Sizes, TreeId, Trees};
use crate::views::Views;
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::Interrupt;
use muniment_value::Result;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;

type Base = BTreeMap<(TreeId, Bytes), BTreeMap<Timestamp, Option<Bytes>>>;

struct State {
    active: Arc<MemTable>,
    /// The sealed memtables, oldest first, each with its cut.
    sealed: Vec<(Arc<MemTable>, Timestamp)>,
    cut: Timestamp,
    base: Base,
    persisted: Timestamp,
    committed: Option<Timestamp>,
}

struct Stacked {
    views: Arc<Views>,
    state: RwLock<State>,
    flushing: Mutex<()>,
    page: usize,
}

impl Stacked {
    fn new(base: Base, persisted: Timestamp, page: usize) -> Arc<Stacked> {
        Arc::new(Stacked {
            views: Views::new(Timestamp::ZERO),
            state: RwLock::new(State {
                active: Arc::new(MemTable::new()),
                sealed: Vec::new(),
                cut: persisted,
                base,
                persisted,
                committed: None,
            }),
            flushing: Mutex::new(()),
            page,
        })
    }

    fn dump(&self, table: &MemTable) -> Base {
        table.sweep(&self.views);
        let mut found = Base::new();
        for tree in table.trees() {
            let mut out = Vec::new();
            let mut after: Option<Bytes> = None;
            while table.dump(tree, after.as_deref(), self.page, &mut out) {
                after = out.last().map(|v| v.key.clone());
            }
            let order = |a: &super::Version, b: &super::Version| {
                a.key < b.key || (a.key == b.key && a.at > b.at)
            };
            assert!(out.is_sorted_by(order));
            for v in out {
                let versions = found.entry((tree, v.key)).or_default();
                versions.insert(v.at, v.value);
            }
        }
        found
    }
}

struct Rows(std::vec::IntoIter<(Bytes, Bytes)>, Direction);

impl Cursor for Rows {
    fn next(&mut self, _: &dyn Interrupt) -> Result<Option<(Bytes, Bytes)>> {
        Ok(self.0.next())
    }

    fn seek(&mut self, key: &[u8]) {
        while self
            .0
            .as_slice()
            .first()
            .is_some_and(|(k, _)| match self.1 {
                Direction::Forward => k[..] < *key,
                Direction::Backward => k[..] > *key,
            })
        {
            self.0.next();
        }
    }
}

impl Trees for Stacked {
    fn name(&self) -> &'static str {
        "stacked"
    }

    fn is_durable(&self) -> bool {
        true
    }

    fn views(&self) -> &Arc<Views> {
        &self.views
    }

    fn get(&self, tree: TreeId, key: &[u8], at: Timestamp) -> Result<Option<Bytes>> {
        let state = self.state.read();
        let sealed = state.sealed.iter().rev().map(|(table, _)| table);
        for table in std::iter::once(&state.active).chain(sealed) {
            if let Some(found) = table.get(tree, key, at) {
                return Ok(found);
            }
        }
        let versions = state.base.get(&(tree, Bytes::copy_from_slice(key)));
        let newest = versions.and_then(|v| v.range(..=at).next_back());
        Ok(newest.and_then(|(_, value)| value.clone()))
    }

    fn changed(&self, tree: TreeId, key: &[u8]) -> Result<Option<(Timestamp, bool)>> {
        let state = self.state.read();
        let sealed = state.sealed.iter().rev().map(|(table, _)| table);
        for table in std::iter::once(&state.active).chain(sealed) {
            if let Some(found) = table.changed(tree, key) {
                return Ok(Some(found));
            }
        }
        let versions = state.base.get(&(tree, Bytes::copy_from_slice(key)));
        let newest = versions.and_then(|v| v.last_key_value());
        Ok(newest.map(|(at, value)| (*at, value.is_some())))
    }

    fn cursor(&self, tree: TreeId, range: Range, at: Timestamp, dir: Direction) -> Box<dyn Cursor> {
        let state = self.state.read();
        let mut rows: BTreeMap<Bytes, Option<Bytes>> = BTreeMap::new();
        let from = (tree, Bytes::new())..(TreeId(tree.0 + 1), Bytes::new());
        for ((_, key), versions) in state.base.range(from) {
            let inside = *key >= range.low && range.high.as_ref().is_none_or(|h| key < h);
            let newest = versions.range(..=at).next_back();
            if inside && let Some((_, value)) = newest {
                rows.insert(key.clone(), value.clone());
            }
        }
        let sealed = state.sealed.iter().map(|(table, _)| table);
        for table in sealed.chain(std::iter::once(&state.active)) {
            let mut out = Vec::new();
            let mut after: Option<Bytes> = None;
            let page = self.page;
            while table.read(tree, &range, after.as_deref(), at, dir, page, &mut out) {
                after = out.last().map(|(k, _)| k.clone());
            }
            rows.extend(out);
        }
        let rows = rows.into_iter().filter_map(|(k, v)| Some((k, v?)));
        let mut rows: Vec<_> = rows.collect();
        if dir == Direction::Backward {
            rows.reverse();
        }
        Box::new(Rows(rows.into_iter(), dir))
    }

    fn apply(&self, batch: Batch, at: Timestamp) {
        let active = self.state.read().active.clone();
        active.apply(batch, at, &self.views);
    }

    fn apply_at_cut(&self, batch: Batch, cut: Timestamp) {
        self.apply(batch, cut);
    }

    fn seal(&self, cut: Timestamp) -> Result<()> {
        let mut state = self.state.write();
        state.cut = cut;
        if !state.active.is_empty() {
            let old = std::mem::replace(&mut state.active, Arc::new(MemTable::new()));
            state.sealed.push((old, cut));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let _alone = self.flushing.lock();
        let (last, committed) = {
            let state = self.state.read();
            (state.cut, state.committed.unwrap_or(Timestamp::MAX))
        };
        loop {
            let first = self.state.read().sealed.first().cloned();
            let Some((table, cut)) = first.filter(|(_, cut)| *cut <= last.min(committed)) else {
                break;
            };
            let found = self.dump(&table);
            let mut state = self.state.write();
            for (key, versions) in found {
                state.base.entry(key).or_default().extend(versions);
            }
            state.sealed.remove(0);
            state.persisted = cut;
        }
        let mut state = self.state.write();
        if last <= committed {
            state.persisted = state.persisted.max(last);
        }
        Ok(())
    }

    fn set_committed(&self, at: Timestamp) {
        let mut state = self.state.write();
        state.committed = state.committed.max(Some(at));
    }

    fn persisted(&self) -> Timestamp {
        self.state.read().persisted
    }

    fn drop_tree(&self, tree: TreeId, at: Timestamp) {
        let mut state = self.state.write();
        for (table, _) in &state.sealed {
            table.remove_tree(tree);
        }
        state.active.remove_tree(tree);
        if state.persisted >= at {
            state.base.retain(|(t, _), _| *t != tree);
        }
    }

    fn compact(&self, _: Option<&[TreeId]>, interrupt: &dyn Interrupt) -> Result<()> {
        interrupt.check()?;
        let needed = self.views.needed();
        self.state.write().base.retain(|_, versions| {
            let times: Vec<_> = versions.keys().copied().collect();
            for (i, at) in times.iter().enumerate() {
                if !needed.version(*at, times.get(i + 1).copied()) {
                    versions.remove(at);
                }
            }
            while let Some((at, None)) = versions.first_key_value()
                && needed.nobody_before(*at)
            {
                versions.pop_first();
            }
            !versions.is_empty()
        });
        Ok(())
    }

    fn check(&self, _trees: Option<&[TreeId]>, _interrupt: &dyn Interrupt) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn sizes(&self) -> Sizes {
        let state = self.state.read();
        let sealed: u64 = state.sealed.iter().map(|(table, _)| table.bytes()).sum();
        let committed = state.committed.unwrap_or(Timestamp::MAX);
        let waiting = state.sealed.iter().filter(|(_, cut)| *cut > committed);
        Sizes {
            memory: sealed + state.active.bytes(),
            sealed,
            uncommitted: waiting.map(|(table, _)| table.bytes()).sum(),
            sealed_count: state.sealed.len(),
            ..Sizes::default()
        }
    }

    fn tree_bytes(&self, tree: TreeId) -> u64 {
        self.state
            .read()
            .base
            .keys()
            .filter(|(t, _)| *t == tree)
            .count() as u64
    }

    fn hold(&self, _: &dyn Interrupt) -> Result<Hold> {
        Ok(Hold::nothing())
    }

    fn faults(&self) -> Faults {
        Faults::default()
    }

    fn close(&self) {}
}

struct Stack(Arc<Stacked>);

impl Harness for Stack {
    fn trees(&self) -> Arc<dyn Trees> {
        self.0.clone()
    }

    fn reopen(&mut self) -> bool {
        let old = self.0.state.read();
        let new = Stacked::new(old.base.clone(), old.persisted, self.0.page);
        drop(old);
        self.0 = new;
        true
    }
}

#[test]
fn conformance() {
    for page in [1, 1000] {
        let make = || Stacked::new(Base::new(), Timestamp::ZERO, page);
        conformance::run(&|| Box::new(Stack(make())));
    }
}

/// The trees that a scan reads contain live data and little else, even in old generations.
#[test]
fn an_old_generation_is_swept_before_its_flush() {
    let stacked = Stacked::new(Base::new(), Timestamp::ZERO, 10);
    let op = |i: u64, value: Option<&'static [u8]>| crate::trees::Op {
        tree: TreeId(1),
        key: Bytes::copy_from_slice(&i.to_be_bytes()),
        fresh: value.is_some(),
        value: value.map(Bytes::from_static),
    };
    for i in 0..1000 {
        stacked.apply(vec![op(i, Some(b"v"))], Timestamp(2 * i + 1));
        stacked.apply(vec![op(i, None)], Timestamp(2 * i + 2));
        stacked.views.advance(Timestamp(2 * i + 2));
    }
    stacked.apply(vec![op(5000, Some(b"v"))], Timestamp(5000));
    stacked.seal(Timestamp(5000)).unwrap();
    stacked.flush().unwrap();
    assert_eq!(stacked.tree_bytes(TreeId(1)), 1);
}
