//! The states of windows that keep values sorted, in which adding and removing cost O(log n).

use super::arrays::no_array;
use super::first_last::size;
use super::sliding::array;
use super::top::sort_key;
use super::{Sliding, check_held};
use crate::bytes::{IndexName, close, head, open, put};
use crate::sort::SortSpec;
use muniment_value::{Collation, Result, Type, Value, ValueBuf, number};
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const WHAT: &str = "a window's values";

/// The bytes that a value in a tree needs in addition to its own.
const NODE: usize = 96;

/// `$min` and `$max`: keeps only values that no later value beats, best first.
#[derive(Debug)]
pub(crate) struct SlidingExtreme {
    wanted: Ordering,
    /// The values, each with its number in the order of arrival.
    best: VecDeque<(u64, ValueBuf)>,
    held: usize,
    added: u64,
    removed: u64,
    collation: Collation,
}

impl SlidingExtreme {
    pub(crate) fn new(wanted: Ordering, collation: &Collation) -> SlidingExtreme {
        SlidingExtreme {
            collation: collation.clone(),
            wanted,
            best: VecDeque::new(),
            held: 0,
            added: 0,
            removed: 0,
        }
    }
}

impl Sliding for SlidingExtreme {
    fn heap(&self) -> usize {
        self.held
    }

    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        self.added += 1;
        let Some(v) = v.filter(|v| !v.is_nullish()) else {
            return Ok(());
        };
        // Among equal values, `$min` returns the first one and `$max` the last one.
        while let Some((_, last)) = self.best.back() {
            let order = self.collation.cmp(v, last.as_value());
            let beaten = order == self.wanted
                || (order == Ordering::Equal && self.wanted == Ordering::Greater);
            if !beaten {
                break;
            }
            self.held = self.held.saturating_sub(size(last) + NODE);
            self.best.pop_back();
        }
        let v = ValueBuf::new(v);
        self.held += size(&v) + NODE;
        self.best.push_back((self.added, v));
        check_held(WHAT, self.held)
    }

    fn remove(&mut self, _: Option<Value<'_>>) -> Result<()> {
        self.removed += 1;
        if let Some((number, v)) = self.best.front()
            && *number == self.removed
        {
            self.held = self.held.saturating_sub(size(v) + NODE);
            self.best.pop_front();
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &self.best.front().map(|(_, v)| v));
    }
}

/// Values sorted by a key of bytes. Values with equal keys stay in the order in which they came.
#[derive(Debug, Default)]
struct Tree {
    values: BTreeMap<(Vec<u8>, u64), ValueBuf>,
    added: u64,
    held: usize,
}

impl Tree {
    fn add(&mut self, key: Vec<u8>, v: Value<'_>) -> Result<()> {
        self.added += 1;
        let v = ValueBuf::new(v);
        self.held += key.len() + size(&v) + NODE;
        self.values.insert((key, self.added), v);
        check_held(WHAT, self.held)
    }

    /// Removes the first of the values with this key.
    fn remove(&mut self, key: Vec<u8>) {
        let from = (key, 0);
        let Some(found) = self
            .values
            .range(from.clone()..)
            .next()
            .map(|(k, _)| k.clone())
            .filter(|k| k.0 == from.0)
        else {
            return;
        };
        if let Some(v) = self.values.remove(&found) {
            self.held = self.held.saturating_sub(found.0.len() + size(&v) + NODE);
        }
    }
}

/// `$minN` and `$maxN`.
#[derive(Debug)]
pub(super) struct SlidingBest {
    n: usize,
    wanted: Ordering,
    collation: Collation,
    tree: Tree,
}

impl SlidingBest {
    pub(crate) fn new(n: usize, wanted: Ordering, collation: &Collation) -> SlidingBest {
        SlidingBest {
            collation: collation.clone(),
            n,
            wanted,
            tree: Tree::default(),
        }
    }
}

impl Sliding for SlidingBest {
    fn heap(&self) -> usize {
        self.tree.held
    }

    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        match v.filter(|v| !v.is_nullish()) {
            Some(v) => self.tree.add(self.collation.encoded(v), v),
            None => Ok(()),
        }
    }

    fn remove(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if let Some(v) = v.filter(|v| !v.is_nullish()) {
            self.tree.remove(self.collation.encoded(v));
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        if self.wanted == Ordering::Less {
            array(name, self.tree.values.values().take(self.n), out);
        } else {
            array(name, self.tree.values.values().rev().take(self.n), out);
        }
    }
}

/// `$top`, `$topN`, `$bottom` and `$bottomN`.
#[derive(Debug)]
pub(super) struct SlidingTop {
    n: usize,
    bottom: bool,
    single: bool,
    sort: Arc<SortSpec>,
    tree: Tree,
}

impl SlidingTop {
    pub(crate) fn new(n: usize, bottom: bool, single: bool, sort: Arc<SortSpec>) -> SlidingTop {
        SlidingTop {
            n,
            bottom,
            single,
            sort,
            tree: Tree::default(),
        }
    }

    /// The sort key of a value, which contains the document and the output.
    fn key(&self, v: Option<Value<'_>>) -> Result<Vec<u8>> {
        let mut key = Vec::new();
        if let Some(Value::Document(both)) = v {
            sort_key(&self.sort, both, &mut key)?;
        }
        Ok(key)
    }
}

impl Sliding for SlidingTop {
    fn heap(&self) -> usize {
        self.tree.held
    }

    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let output = v.and_then(|v| v.as_doc()).and_then(|both| both.get("o"));
        let key = self.key(v)?;
        self.tree.add(key, output.unwrap_or(Value::Null))
    }

    fn remove(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let key = self.key(v)?;
        self.tree.remove(key);
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        let values = &self.tree.values;
        let skip = if self.bottom {
            values.len().saturating_sub(self.n)
        } else {
            0
        };
        if self.single {
            let best = if self.bottom {
                values.values().next_back()
            } else {
                values.values().next()
            };
            put(out, name, &best);
        } else if skip > 0 {
            let last: Vec<&ValueBuf> = values.values().rev().take(self.n).collect();
            array(name, last.into_iter().rev(), out);
        } else {
            array(name, values.values().take(self.n), out);
        }
    }
}

/// `$addToSet` and `$setUnion`: counts how often each value occurs.
#[derive(Debug)]
pub(super) struct SlidingSet {
    /// The accumulator's name if the values are arrays whose elements are counted.
    elements: Option<&'static str>,
    values: BTreeMap<Vec<u8>, (usize, ValueBuf)>,
    held: usize,
    collation: Collation,
}

impl SlidingSet {
    pub(crate) fn new(elements: Option<&'static str>, collation: &Collation) -> SlidingSet {
        SlidingSet {
            collation: collation.clone(),
            elements,
            values: BTreeMap::new(),
            held: 0,
        }
    }

    fn add_one(&mut self, v: Value<'_>) -> Result<()> {
        let key = self.collation.encoded(v);
        if let Some((n, _)) = self.values.get_mut(&key) {
            *n += 1;
            return Ok(());
        }
        let v = ValueBuf::new(v);
        self.held += key.len() + size(&v) + NODE;
        self.values.insert(key, (1, v));
        check_held(WHAT, self.held)
    }

    fn remove_one(&mut self, v: Value<'_>) {
        let key = self.collation.encoded(v);
        if let Some((n, v)) = self.values.get_mut(&key) {
            *n -= 1;
            if *n == 0 {
                self.held = self.held.saturating_sub(key.len() + size(v) + NODE);
                self.values.remove(&key);
            }
        }
    }
}

impl Sliding for SlidingSet {
    fn heap(&self) -> usize {
        self.held
    }

    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        match (self.elements, v) {
            (_, None) => Ok(()),
            (None, Some(v)) => self.add_one(v),
            (Some(_), Some(Value::Array(a))) => a.values().try_for_each(|v| self.add_one(v)),
            (Some(name), Some(other)) => Err(no_array(name, other)),
        }
    }

    fn remove(&mut self, v: Option<Value<'_>>) -> Result<()> {
        match (self.elements, v) {
            (None, Some(v)) => self.remove_one(v),
            (Some(_), Some(Value::Array(a))) => a.values().for_each(|v| self.remove_one(v)),
            _ => {}
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        array(name, self.values.values().map(|(_, v)| v), out);
    }
}

/// Sorted values in a sequence of blocks, in which the k-th value is found quickly.
#[derive(Debug, Default)]
struct Blocks {
    blocks: Vec<Vec<f64>>,
    len: usize,
}

/// A block is split at twice this size.
const BLOCK: usize = 512;

impl Blocks {
    /// The block that `n` belongs to.
    fn block(&self, n: f64) -> usize {
        let at = self
            .blocks
            .partition_point(|b| b.last().is_some_and(|last| last.total_cmp(&n).is_lt()));
        at.min(self.blocks.len().saturating_sub(1))
    }

    fn insert(&mut self, n: f64) {
        self.len += 1;
        let at = self.block(n);
        let Some(block) = self.blocks.get_mut(at) else {
            self.blocks.push(vec![n]);
            return;
        };
        let place = block.partition_point(|x| x.total_cmp(&n).is_le());
        block.insert(place, n);
        if block.len() >= 2 * BLOCK {
            let rest = block.split_off(BLOCK);
            self.blocks.insert(at + 1, rest);
        }
    }

    fn remove(&mut self, n: f64) {
        let at = self.block(n);
        let Some(block) = self.blocks.get_mut(at) else {
            return;
        };
        let place = block.partition_point(|x| x.total_cmp(&n).is_lt());
        if block.get(place).is_some_and(|x| x.total_cmp(&n).is_eq()) {
            block.remove(place);
            self.len -= 1;
            if block.is_empty() {
                self.blocks.remove(at);
            }
        }
    }

    fn get(&self, mut k: usize) -> Option<f64> {
        for b in &self.blocks {
            match b.get(k) {
                Some(n) => return Some(*n),
                None => k -= b.len(),
            }
        }
        None
    }
}

/// `$median` and `$percentile`.
#[derive(Debug)]
pub(super) struct SlidingPercentile {
    ps: Arc<Vec<f64>>,
    single: bool,
    values: Blocks,
}

impl SlidingPercentile {
    pub(crate) fn new(ps: Arc<Vec<f64>>, single: bool) -> SlidingPercentile {
        SlidingPercentile {
            ps,
            single,
            values: Blocks::default(),
        }
    }

    fn at(&self, p: f64) -> Option<f64> {
        let rank = (p * self.values.len as f64).ceil() as usize;
        self.values.get(rank.saturating_sub(1))
    }
}

impl Sliding for SlidingPercentile {
    fn heap(&self) -> usize {
        self.values.len * size_of::<f64>()
    }

    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if let Some(n) = v.and_then(number::to_f64).filter(|n| !n.is_nan()) {
            self.values.insert(n);
        }
        check_held(WHAT, self.values.len * size_of::<f64>())
    }

    fn remove(&mut self, v: Option<Value<'_>>) -> Result<()> {
        if let Some(n) = v.and_then(number::to_f64).filter(|n| !n.is_nan()) {
            self.values.remove(n);
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        if self.single {
            return put(out, name, &self.ps.first().and_then(|p| self.at(*p)));
        }
        head(out, Type::Array, name);
        let start = open(out);
        for (i, p) in self.ps.iter().enumerate() {
            put(out, IndexName::new(i).as_bytes(), &self.at(*p));
        }
        close(out, start);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn blocks_agree_with_a_sorted_list() {
        let (mut blocks, mut list) = (Blocks::default(), Vec::new());
        let mut x = 7_u32;
        let mut all = VecDeque::new();
        for i in 0..20_000 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let n = f64::from((x >> 16) % 1000);
            blocks.insert(n);
            list.insert(list.partition_point(|v| *v <= n), n);
            all.push_back(n);
            if i > 5000 {
                let gone = all.pop_front().unwrap();
                blocks.remove(gone);
                list.remove(list.partition_point(|v| *v < gone));
            }
            let k = (x >> 8) as usize % list.len();
            assert_eq!(blocks.get(k), Some(list[k]));
            assert_eq!(blocks.len, list.len());
        }
        assert!(blocks.get(list.len()).is_none());
    }
}
