//! The model test: random commits, views, cursors, seals, flushes, compactions, drops and crashes,
//! compared with a plain map that keeps every version.

use super::*;
use crate::trees::Cursor;
use crate::views::View;
use muniment_op::NeverInterrupted;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub(super) fn run(make: Make<'_>) {
    if let Some(seed) = std::env::var("MUNIMENT_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
    {
        return model(make, seed, 20_000);
    }
    let (seeds, steps) = if long() { (60, 6000) } else { (6, 2500) };
    for seed in 1..=seeds {
        let run = AssertUnwindSafe(|| model(make, seed, steps));
        if let Err(panic) = catch_unwind(run) {
            eprintln!("the model test failed with MUNIMENT_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// A key's versions, oldest first.
type Versions = Vec<(Timestamp, Option<Bytes>)>;

/// A plain map with every version of every key.
#[derive(Default)]
struct Oracle(BTreeMap<(u32, Bytes), Versions>);

impl Oracle {
    fn get(&self, tree: u32, key: &[u8], at: Timestamp) -> Option<Bytes> {
        let versions = self.0.get(&(tree, Bytes::copy_from_slice(key)))?;
        let newest = versions.iter().rev().find(|(t, _)| *t <= at)?;
        newest.1.clone()
    }

    fn scan(&self, tree: u32, range: &Range, at: Timestamp, dir: Direction) -> Vec<Row> {
        let inside =
            |key: &Bytes| *key >= range.low && range.high.as_ref().is_none_or(|high| key < high);
        let from = (tree, Bytes::new())..(tree + 1, Bytes::new());
        let keys = self.0.range(from).map(|((_, key), _)| key);
        let rows = keys.filter(|key| inside(key)).filter_map(|key| {
            let value = self.get(tree, key, at)?;
            Some((key.clone(), value))
        });
        let mut rows: Vec<_> = rows.collect();
        if dir == Direction::Backward {
            rows.reverse();
        }
        rows
    }
}

/// A cursor that stays open while everything around it changes.
struct Kept {
    tree: u32,
    cursor: Box<dyn Cursor>,
    dir: Direction,
    rows: Vec<Row>,
    place: usize,
    _view: View,
}

struct Model {
    world: World,
    oracle: Oracle,
    random: Random,
    views: Vec<View>,
    kept: Vec<Kept>,
    trees: Vec<u32>,
    keys: Vec<Vec<u8>>,
    visible: Timestamp,
    /// The visible timestamp when the floor was set.
    since: Timestamp,
}

fn model(make: Make<'_>, seed: u64, steps: usize) {
    let mut random = Random(seed);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for _ in 0..20 << random.below(6) {
        let mut key: Vec<u8> = Vec::new();
        if random.percent(50) {
            key.extend_from_slice(b"the same front");
        }
        for _ in 0..random.below(9) {
            key.push([0, 1, b'a', b'b', 254, 255][random.below(6)]);
        }
        if random.percent(2) {
            key.resize(random.below(3000), b'x');
        }
        keys.push(key);
    }
    let mut model = Model {
        world: World::new(make),
        oracle: Oracle::default(),
        random,
        views: Vec::new(),
        kept: Vec::new(),
        trees: vec![1, 2, 5, 9],
        keys,
        visible: Timestamp::ZERO,
        since: Timestamp::ZERO,
    };
    for _ in 0..steps {
        model.step();
    }
    model.world.show();
    model.visible = model.world.now;
    model.everything();
    model.world.set_committed(model.world.now);
    model.world.seal();
    model.world.flush();
    model.world.compact(None);
    model.everything();
    model.crash();
    model.everything();
    let damage = model
        .world
        .trees
        .check(None, &NeverInterrupted)
        .expect("check");
    assert!(damage.is_empty(), "{damage:?}");
}

impl Model {
    fn key(&mut self) -> Vec<u8> {
        let key = self.random.below(self.keys.len());
        self.keys[key].clone()
    }

    fn tree(&mut self) -> u32 {
        let tree = self.random.below(self.trees.len());
        self.trees[tree]
    }

    fn dir(&mut self) -> Direction {
        match self.random.percent(50) {
            true => Direction::Forward,
            false => Direction::Backward,
        }
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..550 => self.commit(),
            550..600 => self.get(),
            600..640 => self.scan(),
            640..740 => self.follow(),
            740..780 => self.keep(),
            780..800 => self.open_at(),
            800..830 => {
                let view = self.world.trees.views().open();
                assert_eq!(view.timestamp(), self.visible);
                self.views.push(view);
            }
            830..850 if !self.views.is_empty() => {
                let view = self.random.below(self.views.len());
                self.views.push(self.views[view].clone());
            }
            850..910 if !self.views.is_empty() => {
                let view = self.random.below(self.views.len());
                self.views.swap_remove(view);
            }
            910..915 => self.views.clear(),
            915..930 if !self.kept.is_empty() => {
                let kept = self.random.below(self.kept.len());
                self.kept.swap_remove(kept);
            }
            930..955 => self.world.seal(),
            955..975 => self.world.flush(),
            975..985 => match self.random.percent(50) {
                true => self.world.compact(None),
                false => {
                    let some = [TreeId(self.tree()), TreeId(self.tree())];
                    self.world.compact(Some(&some));
                }
            },
            985..988 => self.drop_tree(),
            988..991 => self.crash(),
            991..993 => self.everything(),
            993..995 => self.trickle(),
            995 => self.floor(),
            996 => self.committed(),
            _ => self.show(),
        }
    }

    /// Sets the floor, or raises it.
    fn floor(&mut self) {
        let span = self.visible.0 as usize + 1;
        let at = Timestamp(self.visible.0 - self.random.below(span.min(300)) as u64);
        if self.world.floor.is_none() {
            self.since = self.visible;
        }
        self.world.keep_from(at);
    }

    /// Sets the commit point, or raises it, perhaps beyond what is visible.
    fn committed(&mut self) {
        let span = match self.world.committed {
            Some(_) => self.world.now.0 as usize + 1,
            // Before there is a commit point, anything may have been flushed.
            None => 1,
        };
        let at = Timestamp(self.world.now.0 - self.random.below(span.min(400)) as u64);
        self.world.set_committed(at);
    }

    /// Opens a view of the past, if that is possible.
    fn open_at(&mut self) {
        let span = self.world.now.0 as usize + 1;
        let back = self.random.below(span.min(500)) as u64;
        let at = match self.views.is_empty() || self.random.percent(60) {
            true => Timestamp(self.world.now.0 + 1 - back),
            false => self.at(),
        };
        let alive = self.views.iter().chain(self.kept.iter().map(|k| &k._view));
        let floor = self.world.floor.map(|floor| floor.max(self.since));
        let may = at <= self.visible
            && (at == self.visible
                || floor.is_some_and(|floor| at >= floor)
                || alive.map(View::timestamp).any(|t| t == at));
        let view = self.world.trees.views().open_at(at);
        assert_eq!(view.as_ref().map(View::timestamp), may.then_some(at));
        self.views.extend(view);
    }

    fn show(&mut self) {
        self.world.show();
        self.visible = self.world.now;
    }

    fn commit(&mut self) {
        let many = match self.random.percent(5) {
            true => 200,
            false => 12,
        };
        let mut batch: Batch = Vec::new();
        for _ in 0..=self.random.below(many) {
            let (tree, key) = (self.tree(), self.key());
            if batch.iter().any(|op| op.tree.0 == tree && op.key == key) {
                continue;
            }
            let value = (!self.random.percent(35)).then(|| {
                let size = match self.random.percent(3) {
                    true => 5000,
                    false => 60,
                };
                vec![self.random.next() as u8; self.random.below(size)]
            });
            let there = self.oracle.get(tree, &key, Timestamp::MAX).is_some();
            let fresh = value.is_some() && !there && self.random.percent(80);
            batch.push(op(tree, &key, value.as_deref(), fresh));
        }
        self.write(batch);
        if !self.random.percent(10) {
            self.show();
        }
    }

    fn write(&mut self, batch: Batch) {
        let at = self.world.apply(batch.clone());
        for op in batch {
            let versions = self.oracle.0.entry((op.tree.0, op.key)).or_default();
            versions.push((at, op.value));
        }
    }

    /// Writes one key again and again, and keys that live for two commits.
    fn trickle(&mut self) {
        let (tree, hot) = (self.tree(), self.key());
        for i in 0..100u32 {
            self.write(vec![op(tree, &hot, Some(&i.to_be_bytes()), false)]);
            let job = [b"job".to_vec(), self.world.now.0.to_be_bytes().to_vec()].concat();
            self.write(vec![op(tree, &job, Some(b"1"), true)]);
            if self.random.percent(5) {
                self.world.seal();
            }
            if self.random.percent(5) {
                self.views.push(self.world.trees.views().open());
            }
            self.write(vec![op(tree, &job, None, false)]);
            if self.random.percent(50) {
                self.show();
            }
        }
    }

    /// A timestamp at which a reader may read now.
    fn at(&mut self) -> Timestamp {
        if self.views.is_empty() || self.random.percent(15) {
            return Timestamp::MAX;
        }
        let view = self.random.below(self.views.len());
        self.views[view].timestamp()
    }

    fn get(&mut self) {
        for _ in 0..10 {
            let (tree, key, at) = (self.tree(), self.key(), self.at());
            let found = self.world.get(tree, &key, at);
            let expected = self.oracle.get(tree, &key, at);
            assert_eq!(found, expected, "tree {tree} key {key:?} at {at:?}");
        }
    }

    fn range(&mut self) -> Range {
        let low = match self.random.percent(40) {
            true => Vec::new(),
            false => self.key(),
        };
        let high = self.random.percent(60).then(|| self.key());
        range(&low, high.as_deref())
    }

    fn scan(&mut self) {
        let (tree, range, at, dir) = (self.tree(), self.range(), self.at(), self.dir());
        let found = self.world.scan(tree, range.clone(), at, dir);
        let expected = self.oracle.scan(tree, &range, at, dir);
        assert_eq!(found, expected, "tree {tree} {range:?} at {at:?} {dir:?}");
    }

    fn keep(&mut self) {
        let view = match self.views.is_empty() {
            true => self.world.trees.views().open(),
            false => {
                let view = self.random.below(self.views.len());
                self.views[view].clone()
            }
        };
        let (tree, range, dir, at) = (self.tree(), self.range(), self.dir(), view.timestamp());
        self.kept.push(Kept {
            tree,
            rows: self.oracle.scan(tree, &range, at, dir),
            cursor: self.world.trees.cursor(TreeId(tree), range, at, dir),
            dir,
            place: 0,
            _view: view,
        });
    }

    /// Takes some steps of one of the cursors.
    fn follow(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let kept = self.random.below(self.kept.len());
        for _ in 0..self.random.below(20) {
            let target = self.random.percent(20).then(|| self.key());
            let kept = &mut self.kept[kept];
            if let Some(key) = target {
                kept.cursor.seek(&key);
                let behind = |row: &&Row| match kept.dir {
                    Direction::Forward => row.0[..] < key[..],
                    Direction::Backward => row.0[..] > key[..],
                };
                kept.place += kept.rows[kept.place..].iter().take_while(behind).count();
            }
            let found = kept.cursor.next(&NeverInterrupted).expect("cursor");
            let expected = kept.rows.get(kept.place).cloned();
            assert_eq!(found, expected, "tree {} {:?}", kept.tree, kept.dir);
            kept.place = (kept.place + 1).min(kept.rows.len());
        }
    }

    fn drop_tree(&mut self) {
        self.views.clear();
        self.kept.clear();
        let gone = self.random.below(self.trees.len());
        let new = self.trees.iter().max().map_or(0, |t| t + 3);
        let gone = std::mem::replace(&mut self.trees[gone], new);
        self.world.drop_tree(gone);
        self.visible = self.world.now;
        self.oracle.0.retain(|(tree, _), _| *tree != gone);
    }

    fn crash(&mut self) {
        self.views.clear();
        self.kept.clear();
        if self.world.reopen() {
            self.visible = self.world.now;
            self.since = self.world.trees.persisted();
        }
    }

    /// Checks every row at every view.
    fn everything(&mut self) {
        let mut times: Vec<_> = self.views.iter().map(View::timestamp).collect();
        times.push(Timestamp::MAX);
        times.dedup();
        for tree in self.trees.clone() {
            for at in &times {
                for dir in [Direction::Forward, Direction::Backward] {
                    let found = self.world.scan(tree, Range::default(), *at, dir);
                    let expected = self.oracle.scan(tree, &Range::default(), *at, dir);
                    assert_eq!(found, expected, "tree {tree} at {at:?} {dir:?}");
                }
            }
        }
    }
}
