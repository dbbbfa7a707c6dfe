#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::trees::Op;
use std::sync::Arc;

const T: TreeId = TreeId(1);

fn op(key: &[u8], value: Option<&[u8]>, fresh: bool) -> Op {
    Op {
        tree: T,
        key: Bytes::copy_from_slice(key),
        value: value.map(Bytes::copy_from_slice),
        fresh,
    }
}

/// A memtable, its views and a counter. Each write is a commit that becomes visible.
struct Db {
    mem: MemTable,
    views: Arc<Views>,
    now: u64,
}

impl Db {
    fn new() -> Db {
        let (mem, views) = (MemTable::new(), Views::new(Timestamp::ZERO));
        Db { mem, views, now: 0 }
    }

    fn write(&mut self, op: Op) {
        self.now += 1;
        self.mem.apply(vec![op], Timestamp(self.now), &self.views);
        self.views.advance(Timestamp(self.now));
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.write(op(key, Some(value), false));
    }

    fn rows(&self, at: u64, dir: Direction) -> Vec<(Bytes, Option<Bytes>)> {
        let mut out = Vec::new();
        let mut after: Option<Bytes> = None;
        let range = Range::default();
        loop {
            let at = Timestamp(at);
            let more = self
                .mem
                .read(T, &range, after.as_deref(), at, dir, 7, &mut out);
            if !more {
                return out;
            }
            after = out.last().map(|(k, _)| k.clone());
        }
    }

    fn entries(&self) -> i64 {
        self.mem.tree(T).map_or(0, |tree| tree.recount().1)
    }

    fn versions(&self) -> Vec<Version> {
        let mut out = Vec::new();
        let mut after: Option<Bytes> = None;
        while self.mem.dump(T, after.as_deref(), 5, &mut out) {
            after = out.last().map(|v| v.key.clone());
        }
        out
    }
}

#[test]
fn a_hot_key_holds_few_versions() {
    let mut db = Db::new();
    db.put(b"k", b"0");
    for i in 0..1_000_000u32 {
        db.put(b"k", &i.to_be_bytes());
    }
    assert!(db.versions().len() <= 3, "{}", db.versions().len());
    let view = db.views.open();
    let seen = db.mem.get(T, b"k", view.timestamp());
    for i in 0..100_000u32 {
        db.put(b"k", &i.to_be_bytes());
        assert!(i % 1000 != 0 || db.versions().len() <= 5);
    }
    assert_eq!(db.mem.get(T, b"k", view.timestamp()), seen);
    assert!(db.versions().len() <= 5, "{}", db.versions().len());
    let used = db.mem.bytes();
    assert!(used < 10_000, "{used}");
    drop(view);
    db.mem.sweep(&db.views);
    assert_eq!(db.versions().len(), 1);
}

#[test]
fn many_views_of_a_hot_key() {
    let mut db = Db::new();
    let mut views = Vec::new();
    for i in 0..20_000u32 {
        db.put(b"k", &i.to_be_bytes());
        if i % 200 == 7 {
            views.push((db.views.open(), i));
        }
    }
    for (view, i) in &views {
        let found = db.mem.get(T, b"k", view.timestamp()).unwrap().unwrap();
        assert_eq!(found[..], i.to_be_bytes());
    }
    assert!(db.versions().len() <= 2 * views.len() + 4);
    let mut odd = false;
    views.retain(|_| {
        odd = !odd;
        odd
    });
    db.mem.sweep(&db.views);
    assert_eq!(db.versions().len(), views.len() + 1);
}

#[test]
fn born_and_deleted_in_memory_leaves_nothing() {
    for ascending in [true, false] {
        let mut db = Db::new();
        for i in 0..40_000u32 {
            let key = match ascending {
                true => i.to_be_bytes(),
                false => i.wrapping_mul(2_654_435_761).to_be_bytes(),
            };
            db.write(op(&key, Some(b"job"), true));
            db.write(op(&key, None, false));
            assert!(i % 50 != 0 || db.entries() <= 2 * LOOK as i64 + 2);
        }
        let left = db.rows(db.now, Direction::Forward).len();
        assert!(left <= LOOK as usize, "{left}");
        assert!(db.mem.bytes() < 40_000, "{}", db.mem.bytes());
        db.mem.sweep(&db.views);
        assert!(db.mem.is_empty() && db.mem.trees().is_empty());
        assert!(db.mem.bytes() < 10_000, "{}", db.mem.bytes());
    }
}

/// A million short-lived documents, deleted while a view holds some of them.
#[test]
fn a_view_holds_only_what_it_sees() {
    let mut db = Db::new();
    for i in 0..1000u32 {
        db.write(op(&i.to_be_bytes(), Some(b"old"), true));
    }
    let view = db.views.open();
    for i in 0..1000u32 {
        db.write(op(&i.to_be_bytes(), None, false));
    }
    for i in 1000..30_000u32 {
        db.write(op(&i.to_be_bytes(), Some(b"job"), true));
        db.write(op(&i.to_be_bytes(), None, false));
    }
    assert_eq!(db.rows(view.timestamp().0, Direction::Forward).len(), 1000);
    assert!(db.entries() <= 1100);
    drop(view);
    // There is no explicit sweep: writes sweep by themselves, at the latest after 65536 of them.
    for i in 0..140_000u32 {
        db.put(b"other", &i.to_be_bytes());
    }
    assert_eq!(db.entries(), 1);
}

#[test]
fn a_deletion_of_what_is_beneath_stays() {
    let mut db = Db::new();
    db.write(op(b"a", None, false));
    db.write(op(b"a", Some(b"1"), true));
    db.write(op(b"a", None, false));
    db.put(b"b", b"1");
    db.write(op(b"b", None, false));
    // A key that was fresh, then overwritten and deleted leaves nothing.
    db.write(op(b"c", Some(b"1"), true));
    db.put(b"c", b"2");
    db.write(op(b"c", None, false));
    db.mem.sweep(&db.views);
    let left = db.versions();
    let left: Vec<_> = left.iter().map(|v| (&v.key[..], v.at.0)).collect();
    assert_eq!(left, [(&b"a"[..], 3), (&b"b"[..], 5)]);
    assert_eq!(db.mem.get(T, b"a", Timestamp::MAX), Some(None));
    assert_eq!(db.mem.get(T, b"c", Timestamp::MAX), None);
    assert_eq!(db.mem.get(T, b"zzz", Timestamp::MAX), None);
}

#[test]
fn nothing_beneath_keeps_no_deletion() {
    let mut db = Db::new();
    db.mem = MemTable::bottom();
    db.write(op(b"never", None, false));
    db.put(b"a", b"1");
    db.write(op(b"a", None, false));
    db.mem.sweep(&db.views);
    assert!(db.mem.is_empty());
}

/// The commit is applied but not visible yet, so a version that a view may still open at stays.
#[test]
fn the_visible_timestamp_counts_as_a_view() {
    let mut db = Db::new();
    db.write(op(b"k", Some(b"1"), true));
    db.mem
        .apply(vec![op(b"k", None, false)], Timestamp(2), &db.views);
    db.mem.sweep(&db.views);
    let view = db.views.open();
    assert_eq!(
        db.mem.get(T, b"k", view.timestamp()),
        Some(Some("1".into()))
    );
    db.views.advance(Timestamp(2));
    db.mem.sweep(&db.views);
    assert_eq!(
        db.mem.get(T, b"k", view.timestamp()),
        Some(Some("1".into()))
    );
    drop(view);
    db.mem.sweep(&db.views);
    assert!(db.mem.is_empty());
}

#[test]
fn the_same_again_is_harmless() {
    let db = Db::new();
    for at in [5, 7, 7, 5, 6, 5] {
        let batch = vec![op(b"k", Some(&[at as u8]), false)];
        db.mem.apply(batch, Timestamp(at), &db.views);
    }
    let all: Vec<_> = db.versions().iter().map(|v| v.at.0).collect();
    assert_eq!(all, [7, 6, 5]);
    for (at, found) in [(4, None), (5, Some(5)), (6, Some(6)), (9, Some(7))] {
        let found = found.map(|v| Some(Bytes::from(vec![v])));
        assert_eq!(db.mem.get(T, b"k", Timestamp(at)), found);
    }
}

#[test]
fn ranges_and_pages() {
    let mut db = Db::new();
    let key = |i: u32| (i * 2).to_be_bytes();
    for i in 0..5000u32 {
        db.put(&key(i.wrapping_mul(7919) % 5000), b"v");
    }
    for (low, high) in [
        (0, 5000),
        (17, 18),
        (64, 128),
        (63, 4000),
        (4999, 5000),
        (9, 9),
    ] {
        for odd in [0u32, 1] {
            let range = Range {
                low: Bytes::copy_from_slice(&(low * 2u32 - odd.min(low)).to_be_bytes()),
                high: Some(Bytes::copy_from_slice(&(high * 2u32 - odd).to_be_bytes())),
            };
            for dir in [Direction::Forward, Direction::Backward] {
                let mut out = Vec::new();
                let mut after: Option<Bytes> = None;
                let max = Timestamp::MAX;
                while db
                    .mem
                    .read(T, &range, after.as_deref(), max, dir, 33, &mut out)
                {
                    after = out.last().map(|(k, _)| k.clone());
                }
                let mut expected: Vec<_> = (0..5000)
                    .map(|i| Bytes::copy_from_slice(&key(i)))
                    .filter(|k| *k >= range.low && *k < range.high.clone().unwrap())
                    .collect();
                if dir == Direction::Backward {
                    expected.reverse();
                }
                let keys: Vec<_> = out.into_iter().map(|(k, _)| k).collect();
                assert_eq!(keys, expected, "{range:?} {dir:?}");
            }
        }
    }
}

#[test]
fn a_removed_tree_gives_its_memory_back() {
    let mut db = Db::new();
    for i in 0..10_000u32 {
        db.put(&i.to_be_bytes(), &[7; 100]);
        db.put(&i.to_be_bytes(), &[8; 100]);
    }
    assert!(db.mem.bytes() > 10_000 * 200);
    db.mem.remove_tree(T);
    assert_eq!((db.mem.bytes(), db.mem.is_empty()), (0, true));
    db.mem.sweep(&db.views);
    assert_eq!(db.mem.get(T, &5u32.to_be_bytes(), Timestamp::MAX), None);
    db.put(b"k", b"again");
    assert_eq!(db.mem.trees(), [T]);
}

/// The counted bytes equal those of a walk over everything, whatever has happened before.
#[test]
fn the_count_of_bytes_does_not_drift() {
    let mut db = Db::new();
    let mut x = 7u64;
    let mut views = VecDeque::new();
    for i in 0..200_000u32 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = ((x >> 33) % 3000 * 0x1_0001).to_be_bytes();
        match x >> 60 {
            0..6 => db.write(op(&key, None, false)),
            n => db.write(op(&key, Some(&vec![1; n as usize * 9]), n % 2 == 0)),
        }
        if i % 100 == 0 {
            views.push_back(db.views.open());
        }
        if i % 5000 == 0 {
            views.truncate(5);
        }
    }
    let tree = db.mem.tree(T).unwrap();
    let (bytes, entries) = tree.recount();
    assert_eq!((db.mem.bytes() as i64, db.entries()), (bytes, entries));
    views.clear();
    db.mem.sweep(&db.views);
    let (bytes, entries) = tree.recount();
    assert_eq!((db.mem.bytes() as i64, db.entries()), (bytes, entries));
    assert_eq!(db.versions().len() as i64, entries);
}

#[test]
fn keys_that_differ_in_zeros_at_their_end_are_told_apart() {
    // The keys are every string of up to nine zeros and ones after a long prefix, and some others. For many
    // of them, the part of a key that a search sees without fetching it is the same.
    let mut keys: Vec<Vec<u8>> = vec![Vec::new(), vec![0], vec![0, 0], vec![255; 12]];
    for len in 0..=9_u32 {
        for bits in 0..1_u32 << len {
            let tail = (0..len).map(|i| (bits >> i & 1) as u8);
            keys.push(b"0123456789".iter().copied().chain(tail).collect());
        }
    }
    let mut db = Db::new();
    let (put, left): (Vec<_>, Vec<_>) = (0..keys.len()).partition(|i| i % 3 != 0);
    let mut mixed = put.clone();
    mixed.sort_by_key(|i| i.wrapping_mul(2_654_435_761) % 4093);
    for i in mixed {
        db.put(&keys[i], &(i as u32).to_be_bytes());
    }
    let at = Timestamp(db.now);
    for i in put.iter().copied() {
        let value = Bytes::copy_from_slice(&(i as u32).to_be_bytes());
        assert_eq!(db.mem.get(T, &keys[i], at), Some(Some(value)), "{i}");
    }
    for i in left {
        assert_eq!(db.mem.get(T, &keys[i], at), None, "{i}");
    }
    let mut sorted: Vec<_> = put.iter().map(|i| keys[*i].clone()).collect();
    sorted.sort();
    for dir in [Direction::Forward, Direction::Backward] {
        let rows = db.rows(db.now, dir);
        let found: Vec<_> = rows.iter().map(|(k, _)| k.to_vec()).collect();
        assert_eq!(found, sorted);
        sorted.reverse();
    }
}

#[test]
fn keys_after_the_last_one_may_lack_its_prefix() {
    // Keys ascend, so that the last leaf has a prefix. Then come some that break it, at each of its lengths,
    // and again some between and after these.
    let mut key = *b"prefix-00000";
    for broken in 0..key.len() {
        let mut db = Db::new();
        let mut want = std::collections::BTreeMap::new();
        let mut write = |db: &mut Db, key: &[u8], value: Option<&[u8]>| {
            db.write(op(key, value, false));
            let value = value.map(Bytes::copy_from_slice);
            want.insert(Bytes::copy_from_slice(key), value);
        };
        for n in 0..200_u32 {
            key[7..].copy_from_slice(format!("{n:05}").as_bytes());
            write(&mut db, &key, Some(&n.to_le_bytes()));
        }
        let last = key;
        assert_eq!(db.mem.get(T, b"q", Timestamp(db.now)), None);
        assert_eq!(db.mem.get(T, b"prefix-00", Timestamp(db.now)), None);
        for by in [1, 2, 100] {
            let mut other = last;
            other[broken] = last[broken].wrapping_add(by);
            for short in [broken + 1, other.len()] {
                write(&mut db, &other[..short], Some(b"other"));
                write(&mut db, &[&last[..], &[by][..]].concat(), Some(b"behind"));
                write(&mut db, &last, (by != 2).then_some(&b"again"[..]));
            }
        }
        let at = Timestamp(db.now);
        for (key, value) in &want {
            assert_eq!(db.mem.get(T, key, at), Some(value.clone()), "{broken}");
        }
        let rows = db.rows(db.now, Direction::Forward);
        let want: Vec<_> = want.into_iter().collect();
        assert_eq!(rows, want, "{broken}");
    }
}
