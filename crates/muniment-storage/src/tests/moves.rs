//! Rows that a shard does not own: readers, units and the rows of a range.

use super::index::index;
use super::*;
use muniment_shard::{ShardKey, Version};
use muniment_value::Doc;
use std::collections::BTreeSet;

type At = muniment_shard::Timestamp;

fn made(store: &Store, name: &str, document: DocBuf) -> Arc<Collection> {
    let options = CollectionOptions {
        document,
        ..CollectionOptions::default()
    };
    store
        .create_collection(name, options, &NeverInterrupted)
        .unwrap()
}

/// How documents are kept: by numbers, by `_id`, and by numbers with `_id`s that compare without case.
fn kinds() -> [DocBuf; 3] {
    let key = doc! { "key": doc! { "_id": 1 }, "unique": true };
    [
        DocBuf::new(),
        doc! { "clusteredIndex": key },
        doc! { "collation": doc! { "locale": "en", "strength": 2 } },
    ]
}

fn shard_key(pattern: DocBuf) -> Arc<ShardKey> {
    Arc::new(ShardKey::parse(pattern.as_doc()).unwrap())
}

fn key_bytes(key: &ShardKey, d: DocBuf) -> Vec<u8> {
    key.key_of(d.as_doc()).unwrap()
}

/// Says what the shard owns.
fn place(store: &Store, c: &Arc<Collection>, change: impl FnOnce(Option<&Placement>) -> Placement) {
    store
        .place(c, &NeverInterrupted, |held| Ok(Some(change(held))))
        .unwrap();
}

fn owning(key: &Arc<ShardKey>, owned: Vec<Owned>, version: u32, changed: Timestamp) -> Placement {
    let p = Placement::new(
        At::new(1, 1),
        Version::new(version, 0),
        Arc::clone(key),
        owned,
        false,
    )
    .unwrap();
    p.as_of(At::new(changed.seconds(), changed.increment()))
}

fn id_of(d: &[u8]) -> i64 {
    Doc::new(d).get("n").unwrap().as_i64_exact().unwrap()
}

#[test]
fn the_rows_of_a_range_are_found_by_any_index() {
    let indexes = [
        None,
        Some(doc! { "key": doc! { "a": 1 }, "name": "plain" }),
        Some(doc! { "key": doc! { "a": 1, "b": -1 }, "name": "longer" }),
        Some(doc! { "key": doc! { "a": 1, "n": 1 }, "name": "unique", "unique": true }),
        Some(doc! { "key": doc! { "a": "hashed" }, "name": "hashed" }),
        // These do not have each document under the bytes of its key.
        Some(doc! { "key": doc! { "a": -1 }, "name": "descending" }),
        Some(doc! { "key": doc! { "a": 1 }, "name": "sparse", "sparse": true }),
        Some(
            doc! { "key": doc! { "a": 1 }, "name": "partial", "partialFilterExpression": doc! { "n": doc! { "$gt": 30 } } },
        ),
        Some(
            doc! { "key": doc! { "a": 1 }, "name": "collated", "collation": doc! { "locale": "en", "strength": 1 } },
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut number = 0;
    for pattern in [
        doc! { "a": 1 },
        doc! { "a": "hashed" },
        doc! { "a": 1, "b": 1 },
    ] {
        let key = shard_key(pattern.clone());
        for spec in &indexes {
            for kind in kinds() {
                number += 1;
                let c = made(&store, &format!("db.c{number}"), kind.clone());
                if let Some(spec) = spec {
                    index(&store, &c, spec.clone());
                }
                let when = format!("{pattern:?}, {spec:?}, {kind:?}");
                let mut keys = Vec::new();
                for n in 0..60_i32 {
                    let mut d = doc! { "_id": format!("i{n}"), "n": n, "b": n % 3 };
                    match n % 5 {
                        0 => {}
                        1 => drop(d.append("a", Value::Null)),
                        2 => drop(d.append("a", f64::from(n % 7))),
                        3 => drop(d.append("a", format!("S{}", n % 7))),
                        _ => drop(d.append("a", n % 7)),
                    }
                    insert(&store, &c, d.clone()).unwrap();
                    keys.push((key_bytes(&key, d), i64::from(n)));
                }
                keys.sort();
                let view = store.snapshot();
                for (from, to) in [(0, 60), (0, 20), (7, 35), (40, 60), (15, 16)] {
                    let (min, max) = (keys[from].0.clone(), keys.get(to).map(|k| k.0.clone()));
                    let range: Owned = (min.clone(), max.clone());
                    let wanted = keys
                        .iter()
                        .filter(|k| k.0 >= min && max.as_ref().is_none_or(|m| k.0 < *m));
                    let wanted: Vec<i64> = wanted.map(|k| k.1).collect();
                    let mut rows = view.rows_of_range(&c, &key, &range, None);
                    let mut found = Vec::new();
                    while let Some(row) = rows.next(&NeverInterrupted).unwrap() {
                        found.push((row.place, id_of(&row.doc)));
                    }
                    let all: BTreeSet<i64> = found.iter().map(|f| f.1).collect();
                    assert_eq!(
                        (found.len(), all),
                        (wanted.len(), wanted.into_iter().collect()),
                        "{when}"
                    );
                    // Reading goes on after any place.
                    for i in (0..found.len()).step_by(7) {
                        let mut rows = view.rows_of_range(&c, &key, &range, Some(&found[i].0));
                        for (_, n) in &found[i + 1..] {
                            let row = rows.next(&NeverInterrupted).unwrap().unwrap();
                            assert_eq!(id_of(&row.doc), *n, "{when}: after {i}");
                        }
                        assert!(rows.next(&NeverInterrupted).unwrap().is_none());
                    }
                }
            }
        }
    }
}

/// What a view shows, in each way of reading.
fn shown(view: &Snapshot, c: &Arc<Collection>, i: &Arc<Index>, when: &str) -> BTreeSet<i64> {
    let mut docs = view.docs(c, &KeyRange::all(), Direction::Forward);
    let mut all = BTreeSet::new();
    while let Some((key, d)) = docs.next(&NeverInterrupted).unwrap() {
        assert!(view.get(c, &key).unwrap().is_some());
        all.insert(id_of(&d));
    }
    let mut entries = view.entries(c, i, &KeyRange::all(), Direction::Backward);
    let mut by_index = BTreeSet::new();
    while let Some(e) = entries.next(&NeverInterrupted).unwrap() {
        by_index.insert(id_of(&view.get(c, &e.record_key).unwrap().unwrap()));
    }
    assert_eq!(all, by_index, "{when}");
    for n in 0..20_i32 {
        let found = view.find_by_id(c, Value::String(&format!("i{n}"))).unwrap();
        assert_eq!(found.is_some(), all.contains(&i64::from(n)), "{when}: {n}");
    }
    all
}

#[test]
fn readers_see_what_is_owned_at_their_time() {
    for kind in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let c = made(&store, "db.c", kind.clone());
        let i = index(
            &store,
            &c,
            doc! { "key": doc! { "n": 1 }, "name": "n", "unique": true },
        );
        for n in 0..20_i32 {
            insert(&store, &c, doc! { "_id": format!("i{n}"), "n": n }).unwrap();
        }
        let key = shard_key(doc! { "n": 1 });
        let at = |n: i32| key_bytes(&key, doc! { "n": n });
        let all: BTreeSet<i64> = (0..20).collect();
        place(&store, &c, |_| {
            owning(&key, vec![(at(0), None)], 1, Timestamp::ZERO)
        });
        assert!(!c.may_have_foreign_rows());
        let before = store.snapshot();
        // It gives 5 to 9 away at this time.
        let lost = store.clock().plus(1);
        store.advance_clock(lost);
        let owned = vec![(at(0), Some(at(5))), (at(10), None)];
        place(&store, &c, |held| {
            held.unwrap()
                .followed_by(owning(&key, owned.clone(), 2, lost))
        });
        let now = store.snapshot();
        let left: BTreeSet<i64> = (0..5).chain(10..20).collect();
        assert_eq!(shown(&before, &c, &i, "before"), all);
        assert_eq!(shown(&now, &c, &i, "now"), left);
        assert_eq!(
            shown(
                &store.snapshot().of_owner_at(before.timestamp()),
                &c,
                &i,
                "then"
            ),
            all
        );
        assert_eq!(
            shown(&store.snapshot().with_foreign_rows(), &c, &i, "all"),
            all
        );
        let within: Arc<[Owned]> = vec![(at(3), Some(at(12)))].into();
        let some = store.snapshot().within(within);
        assert_eq!(
            shown(&some, &c, &i, "within"),
            BTreeSet::from([3, 4, 10, 11])
        );
        let glance = |n: i32| {
            store
                .glance()
                .unwrap()
                .find_by_id(&c, Value::String(&format!("i{n}")))
                .unwrap()
        };
        assert!(glance(4).is_some() && glance(7).is_none());
        let seven = before.entry(&c, &i, &at_index(&before, &c, &i, 7)).unwrap();
        assert!(seven.is_some() && now.entry(&c, &i, &seven.unwrap().key).unwrap().is_none());
        // They are deleted, which views of the time before do not notice.
        let mut unit = store.write_unit(&c, &NeverInterrupted).unwrap();
        unit.moves(Moves::Out);
        for n in 5..10 {
            let (key, old) = before
                .find_by_id(&c, Value::String(&format!("i{n}")))
                .unwrap()
                .unwrap();
            assert_eq!(unit.lock(&key).unwrap().unwrap().as_deref(), Some(&old[..]));
            unit.delete(&key, &old).unwrap().unwrap();
        }
        unit.commit().unwrap();
        let by = store.clock().plus(1);
        place(&store, &c, |held| {
            let held = held.unwrap();
            held.cleaned_of(&held.waste(), At::new(by.seconds(), by.increment()))
        });
        assert_eq!(shown(&before, &c, &i, "before, later"), all);
        assert_eq!(shown(&now, &c, &i, "between, later"), left);
        assert_eq!(shown(&store.snapshot(), &c, &i, "in the end"), left);
        assert_eq!(c.count(), 15);
    }
}

/// The index key of a document.
fn at_index(view: &Snapshot, c: &Arc<Collection>, i: &Arc<Index>, n: i64) -> Vec<u8> {
    let mut entries = view.entries(c, i, &KeyRange::all(), Direction::Forward);
    while let Some(e) = entries.next(&NeverInterrupted).unwrap() {
        if id_of(&view.get(c, &e.record_key).unwrap().unwrap()) == n {
            return e.key.to_vec();
        }
    }
    panic!("no {n}")
}

/// Writes one document as a move does, or as a client does.
fn write(
    store: &Store,
    c: &Arc<Collection>,
    moves: Option<Moves>,
    d: DocBuf,
) -> muniment_value::Result<()> {
    let mut unit = store.write_unit(c, &NeverInterrupted).unwrap();
    if let Some(moves) = moves {
        unit.moves(moves);
    }
    unit.insert(&bytes(d))?.unwrap();
    unit.commit().map(drop)
}

#[test]
fn units_of_moves_and_of_clients() {
    for kind in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let c = made(&store, "db.c", kind);
        index(
            &store,
            &c,
            doc! { "key": doc! { "n": 1, "u": 1 }, "name": "u", "unique": true },
        );
        let key = shard_key(doc! { "n": 1 });
        let at = |n: i32| key_bytes(&key, doc! { "n": n });
        place(&store, &c, |_| {
            owning(&key, vec![(at(0), Some(at(10)))], 1, Timestamp::ZERO)
        });
        let code = |r: muniment_value::Result<()>| r.map_err(|e| e.code().0);
        let begun = store.clock();
        let doc_of = |id: &str, n: i32| doc! { "_id": id, "n": n, "u": 1 };
        assert_eq!(code(write(&store, &c, None, doc_of("x", 12))), Err(13388));
        assert_eq!(
            code(write(&store, &c, Some(Moves::In), doc_of("x", 5))),
            Err(13388)
        );
        // 10 to 14 arrive.
        place(&store, &c, |held| {
            held.unwrap()
                .receiving([1; 16], (at(10), Some(at(15))))
                .unwrap()
        });
        assert!(c.may_have_foreign_rows());
        for n in 10..15 {
            write(&store, &c, Some(Moves::In), doc_of(&format!("i{n}"), n)).unwrap();
        }
        assert_eq!(all(&store, &c).len(), 0);
        assert_eq!(
            code(write(&store, &c, Some(Moves::In), doc_of("i10", 10))),
            Err(11000)
        );
        let in_the_way = |d: DocBuf| {
            let mut unit = store.write_unit(&c, &NeverInterrupted).unwrap();
            unit.in_the_way_of(d.as_doc()).unwrap().len()
        };
        assert_eq!(
            (in_the_way(doc_of("y", 11)), in_the_way(doc_of("y", 16))),
            (1, 0)
        );
        // A client's document takes the place of one that arrives, which is noted.
        let lock = |id: &str| {
            let mut unit = store.write_unit(&c, &NeverInterrupted).unwrap();
            unit.lock_by_id(Value::String(id))
                .unwrap()
                .unwrap()
                .is_some()
        };
        assert!(!lock("i10"));
        write(&store, &c, None, doc_of("i10", 3)).unwrap();
        assert!(lock("i10"));
        assert_eq!(c.displaced(), [doc! { "_id": "i10" }]);
        assert_eq!(
            code(write(&store, &c, Some(Moves::In), doc_of("i10", 10))),
            Err(11000)
        );
        c.asked_again(1);
        assert!(c.displaced().is_empty());
        // After everything is there, it does not.
        place(&store, &c, |held| held.unwrap().completed());
        assert_eq!(code(write(&store, &c, None, doc_of("i11", 4))), Err(11000));
        // Without the move these rows are waste, and in nobody's way.
        place(&store, &c, |held| held.unwrap().still());
        write(&store, &c, None, doc_of("i11", 4)).unwrap();
        write(&store, &c, None, doc_of("i12", 5)).unwrap();
        assert!(c.displaced().is_empty());
        // Also where the unit has the record's latch.
        let mut unit = store.write_unit(&c, &NeverInterrupted).unwrap();
        assert!(
            unit.lock_by_id(Value::String("i13"))
                .unwrap()
                .unwrap()
                .is_none()
        );
        unit.insert(&bytes(doc_of("i13", 6))).unwrap().unwrap();
        unit.commit().unwrap();
        let ids: BTreeSet<i64> = all(&store, &c)
            .iter()
            .map(|d| id_of(d.as_bytes()))
            .collect();
        assert_eq!(ids, BTreeSet::from([3, 4, 5, 6]));
        assert_eq!(c.count(), 5);
        // A unit finds what is within its ranges.
        let mut unit = store.write_unit(&c, &NeverInterrupted).unwrap();
        unit.within(vec![(at(4), Some(at(5)))].into());
        let mut there = |id: &str| {
            unit.lock_by_id(Value::String(id))
                .unwrap()
                .unwrap()
                .is_some()
        };
        assert_eq!(
            ["i10", "i11", "i12", "i14"].map(&mut there),
            [false, true, false, false]
        );
        drop(unit);
        whole_of(&store, begun);
    }
}

/// The log tells what moves have done from what clients have.
fn whole_of(store: &Store, begun: Timestamp) {
    let mut entries = store.log_entries(begun).unwrap();
    let (mut moved, mut own) = (0, 0);
    while let Some(entry) = entries.next().unwrap() {
        let changes = entry.ops.iter().filter(|op| op.of.is_some()).count();
        match entry.whole {
            Whole::Moved => moved += changes,
            _ => own += changes,
        }
    }
    // Five rows came, and four gave way.
    assert_eq!((moved, own), (9, 4));
}
