//! Tests of range tables: against a plain sorted list, and of what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::Interval;
use muniment_value::doc;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn key() -> Arc<ShardKey> {
    Arc::new(ShardKey::parse(doc! { "a": 1 }.as_doc()).unwrap())
}

fn generation() -> Generation {
    Generation {
        uuid: [7; 16],
        timestamp: Timestamp::new(5, 1),
    }
}

fn bound(n: i64) -> Vec<u8> {
    match n {
        i64::MIN => key().lowest(),
        i64::MAX => key().highest(),
        n => key().bound(doc! { "a": n }.as_doc()).unwrap(),
    }
}

fn record(min: i64, max: i64, shard: usize, version: (u32, u32)) -> Record {
    Record {
        min: bound(min),
        max: bound(max),
        shard: format!("shard{shard}").into(),
        version: Version::new(version.0, version.1),
    }
}

/// The ranges as a plain list: where each begins, with its shard and version.
type Plain = BTreeMap<i64, (usize, Version)>;

fn records(plain: &Plain) -> Vec<Record> {
    let ends = plain.keys().skip(1).copied().chain([i64::MAX]);
    plain
        .iter()
        .zip(ends)
        .map(|((min, (shard, v)), max)| record(*min, max, *shard, (v.major, v.minor)))
        .collect()
}

fn build(plain: &Plain) -> RangeTable {
    RangeTable::build(key(), generation(), records(plain)).unwrap()
}

/// A table of `n` ranges: from MinKey, 0, 10, 20, …
fn plain(n: i64, shards: usize) -> Plain {
    let start = |i: i64| if i == 0 { i64::MIN } else { 10 * (i - 1) };
    (0..n)
        .map(|i| (start(i), (i as usize % shards, Version::new(1, i as u32))))
        .collect()
}

fn same(table: &RangeTable, plain: &Plain) {
    assert_eq!(table.len(), plain.len());
    let as_record = |r: Range| Record {
        min: r.min,
        max: r.max,
        shard: table.shard_name(r.shard).into(),
        version: r.version,
    };
    let found: Vec<Record> = table.ranges().map(as_record).collect();
    assert_eq!(found, records(plain));
    for shard in 0..table.shards().len() {
        let name = table.shard_name(shard);
        let of: Vec<Version> = plain
            .values()
            .filter(|(s, _)| format!("shard{s}") == name)
            .map(|(_, v)| *v)
            .collect();
        assert_eq!(table.ranges_on(shard), of.len());
        assert_eq!(
            table.version_of(shard),
            of.iter().max().copied().unwrap_or_default()
        );
    }
    assert_eq!(Some(table.version()), plain.values().map(|(_, v)| *v).max());
    assert!(
        table
            .blocks
            .iter()
            .all(|b| (1..=block::MOST).contains(&b.len()))
    );
}

#[test]
fn keys_are_found() {
    for n in [1, 2, 511, 512, 513, 2000] {
        let plain = plain(n, 3);
        let table = build(&plain);
        same(&table, &plain);
        for k in (-15..10 * n + 15).chain([i64::MIN + 1, i64::MAX - 1]) {
            let (_, (shard, version)) = plain.range(..=k).next_back().unwrap();
            let range = table.find(&bound(k));
            assert_eq!(table.shard_name(range.shard), format!("shard{shard}"));
            assert_eq!(range.version, *version);
            assert!(range.min <= bound(k) && bound(k) < range.max);
            assert_eq!(table.owner(&bound(k)), range.shard);
        }
        let last = table.find(&key().highest());
        assert_eq!(last.max, key().highest());
    }
}

#[test]
fn damaged_tables_name_the_place() {
    let good = records(&plain(3, 2));
    let table = |change: &dyn Fn(&mut Vec<Record>)| {
        let mut list = good.clone();
        change(&mut list);
        let e = RangeTable::build(key(), generation(), list).unwrap_err();
        assert_eq!(
            e.code(),
            muniment_value::Code::ConflictingOperationInProgress
        );
        e.message().to_string()
    };
    for (message, part) in [
        (table(&|l| l.clear()), "no chunk from { a: MinKey }"),
        (
            table(&|l| drop(l.remove(0))),
            "gap where the next chunk has to begin at { a: MinKey }",
        ),
        (
            table(&|l| drop(l.remove(1))),
            "gap where the next chunk has to begin at { a: 0 }",
        ),
        (table(&|l| drop(l.remove(2))), "no chunk from { a: 10 }"),
        (
            table(&|l| l[1].max = bound(15)),
            "overlap where the next chunk has to begin at { a: 15 }",
        ),
        (
            table(&|l| l[1].max = bound(0)),
            "from { a: 0 } ends at { a: 0 }",
        ),
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn splits_moves_and_merges() {
    let mut plain = plain(5, 2);
    let table = build(&plain);
    // A split of [10, 20), a move of [20, 30) to a new shard, and both again.
    let changes = vec![
        record(20, 30, 7, (2, 0)),
        record(10, 13, 0, (1, 8)),
        record(13, 20, 0, (1, 9)),
    ];
    let table = table.apply(changes.clone()).unwrap();
    plain.insert(10, (0, Version::new(1, 8)));
    plain.insert(13, (0, Version::new(1, 9)));
    plain.insert(20, (7, Version::new(2, 0)));
    same(&table, &plain);
    same(&table.apply(changes).unwrap(), &plain);
    same(&table.apply(Vec::new()).unwrap(), &plain);
    // A merge of everything.
    let table = table
        .apply(vec![record(i64::MIN, i64::MAX, 1, (3, 0))])
        .unwrap();
    same(&table, &Plain::from([(i64::MIN, (1, Version::new(3, 0)))]));
    assert_eq!(table.version_of(0), Version::default());
}

#[test]
fn a_shard_that_loses_its_newest_range_has_the_version_of_the_others() {
    let mut plain = plain(2000, 4);
    let table = build(&plain);
    let table = table.apply(vec![record(19970, 19980, 0, (2, 0))]).unwrap();
    plain.insert(19970, (0, Version::new(2, 0)));
    same(&table, &plain);
    assert_eq!(table.version_of(2), Version::new(1, 1994));
}

#[test]
fn changes_that_do_not_fit() {
    let table = build(&plain(5, 2));
    for (changes, part) in [
        (
            vec![record(13, 20, 0, (2, 0))],
            "begins or ends at { a: 13 }",
        ),
        (
            vec![record(10, 13, 0, (2, 0))],
            "begins or ends at { a: 13 }",
        ),
        (vec![record(10, 10, 0, (2, 0))], "ends at { a: 10 }"),
        (
            vec![record(10, 20, 0, (1, 1))],
            "has version 1|1, but the table has version 1|2",
        ),
        (
            vec![record(10, 30, 0, (2, 0)), record(20, 30, 0, (2, 1))],
            "overlaps",
        ),
    ] {
        let e = table.apply(changes).unwrap_err();
        assert!(e.message().contains(part), "{e}");
    }
}

#[test]
fn shards_of_intervals() {
    let table = build(&plain(3000, 3));
    let shards = |list: &[Interval]| table.shards_in(list);
    let point = |n: i64| Interval::prefix(bound(n));
    let range = |a: i64, b: i64| Interval::between(bound(a), Some(bound(b)));
    assert_eq!(shards(&[Interval::all()]), [0, 1, 2]);
    assert_eq!(shards(&[]), [0; 0]);
    assert_eq!(shards(&[point(5)]), [1]);
    assert_eq!(shards(&[range(10, 20)]), [2]);
    assert_eq!(shards(&[range(10, 21)]), [0, 2]);
    assert_eq!(shards(&[point(5), point(15)]), [1, 2]);
    assert_eq!(shards(&[Interval::between(bound(29_985), None)]), [2]);
    let ranges = |list: &[Interval]| table.ranges_in(list).count();
    assert_eq!(ranges(&[point(5), point(6), range(7, 11)]), 2);
    assert_eq!(ranges(&[Interval::all()]), 3000);
    assert_eq!(ranges(&[range(0, 10_000)]), 1000);
}

#[derive(Clone, Debug)]
enum Change {
    Split(usize, i64),
    Move(usize, usize),
    Merge(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<usize>(), 1..10_i64).prop_map(|(r, at)| Change::Split(r, at)),
        (any::<usize>(), 0..6_usize).prop_map(|(r, to)| Change::Move(r, to)),
        (any::<usize>(), 2..900_usize).prop_map(|(r, n)| Change::Merge(r, n)),
    ]
}

/// Makes the change in the plain list, and returns where changed ranges begin.
fn make(plain: &mut Plain, change: &Change, version: &mut u32) -> Vec<i64> {
    let place = |r: usize| *plain.keys().nth(r % plain.len()).unwrap();
    let mut next = || {
        *version += 1;
        Version::new(2, *version)
    };
    match *change {
        Change::Split(r, at) => {
            let min = place(r);
            let shard = plain[&min].0;
            let middle = min.max(-1000) + at;
            if plain
                .range(min + 1..)
                .next()
                .is_some_and(|(k, _)| *k <= middle)
            {
                return Vec::new();
            }
            plain.insert(min, (shard, next()));
            plain.insert(middle, (shard, next()));
            vec![min, middle]
        }
        Change::Move(r, to) => {
            let min = place(r);
            plain.insert(min, (to, next()));
            vec![min]
        }
        Change::Merge(r, n) => {
            let min = place(r);
            let shard = plain[&min].0;
            let gone: Vec<i64> = plain
                .range(min..)
                .skip(1)
                .take(n - 1)
                .map(|(k, _)| *k)
                .collect();
            plain.retain(|k, _| !gone.contains(k));
            plain.insert(min, (shard, next()));
            vec![min]
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn changes_are_the_same_as_building_anew(
        n in 1..2500_i64,
        steps in prop::collection::vec(prop::collection::vec(change(), 1..5), 1..8),
    ) {
        let mut plain = plain(n, 4);
        let mut table = build(&plain);
        let mut version = 0;
        for step in &steps {
            let mut begins = std::collections::BTreeSet::new();
            for change in step {
                begins.extend(make(&mut plain, change, &mut version));
            }
            let changed = |r: &Record| begins.iter().any(|b| bound(*b) == r.min);
            let changes = records(&plain).into_iter().filter(changed).collect();
            table = table.apply(changes).unwrap();
            same(&table, &plain);
        }
    }
}
