//! Checks the contract of each function, at each stage that data goes through.

use super::*;
use crate::trees::Cursor;
use muniment_op::NeverInterrupted;

pub(super) fn run(make: Make<'_>) {
    empty(&mut World::new(make));
    keys_of_every_kind(&mut World::new(make));
    versions(&mut World::new(make));
    ranges_and_seeks(&mut World::new(make));
    newest(&mut World::new(make));
    looked_back(&mut World::new(make));
    dropped(&mut World::new(make));
    short_lives(&mut World::new(make));
    cuts(&mut World::new(make));
    written_at_a_cut(&mut World::new(make));
    commit_point(&mut World::new(make));
    floor(&mut World::new(make));
}

const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// An empty engine has no data, which is not an error.
fn empty(world: &mut World) {
    assert_eq!(world.trees.persisted(), Timestamp::ZERO);
    assert!(!world.trees.name().is_empty());
    world.stages(&|world, stage| {
        assert_eq!(world.get(1, b"k", Timestamp::MAX), None, "{stage}");
        for dir in BOTH {
            let mut cursor = world
                .trees
                .cursor(TreeId(7), Range::default(), Timestamp::MAX, dir);
            cursor.seek(b"x");
            assert_eq!(cursor.next(&NeverInterrupted).unwrap(), None, "{stage}");
            cursor.seek(b"y");
            assert_eq!(cursor.next(&NeverInterrupted).unwrap(), None, "{stage}");
        }
    });
    world.trees.drop_tree(TreeId(7), Timestamp::ZERO);
    world.compact(Some(&[TreeId(9)]));
}

/// Empty keys and values, keys that are prefixes of others, zeros, keys of a megabyte.
fn keys_of_every_kind(world: &mut World) {
    let mut keys: Vec<Vec<u8>> = vec![
        vec![],
        vec![0],
        vec![0, 0],
        vec![0, 1],
        b"a".to_vec(),
        b"a\0".to_vec(),
        b"ab".to_vec(),
        b"b".to_vec(),
        vec![255],
        vec![255, 255],
    ];
    // These keys have a megabyte and differ only at the end.
    for end in [0u8, 1, 255] {
        let mut key = vec![b'm'; 1 << 20];
        key.push(end);
        keys.push(key);
    }
    keys.push(vec![b'm'; 1 << 20]);
    for i in 0..300u32 {
        keys.push([b"prefix that many keys have ", &i.to_be_bytes()[..]].concat());
    }
    keys.sort();
    let value = |key: &[u8]| Bytes::from(key.len().to_string().repeat(key.len() % 3));
    for (i, key) in keys.iter().enumerate() {
        // The keys are written in no particular order.
        let key = match i % 2 {
            0 => key,
            _ => &keys[keys.len() - 1 - (i | 1).min(keys.len() - 1)],
        };
        world.put(1, key, &value(key));
    }
    let batch = keys.iter().map(|k| op(1, k, Some(&value(k)), false));
    world.commit(batch.collect());
    world.stages(&|world, stage| {
        let view = world.trees.views().open();
        let at = view.timestamp();
        for key in &keys {
            assert_eq!(world.get(1, key, at), Some(value(key)), "{stage}");
            let mut other = key.clone();
            other.push(77);
            assert_eq!(world.get(1, &other, at), None, "{stage}");
            assert_eq!(world.get(2, key, at), None, "{stage}");
        }
        for dir in BOTH {
            let rows = world.scan(1, Range::default(), at, dir);
            let mut found: Vec<_> = rows.iter().map(|(k, _)| k.to_vec()).collect();
            if dir == Direction::Backward {
                found.reverse();
            }
            assert!(found == keys, "{stage}: {dir:?}");
            assert!(rows.iter().all(|(k, v)| *v == value(k)), "{stage}");
        }
    });
}

/// A key has its value of each time, as long as a view needs it.
fn versions(world: &mut World) {
    let mut views = Vec::new();
    for i in 0..100u32 {
        for key in [&b"k"[..], b"l"] {
            match i % 7 {
                3 => world.delete(1, key),
                _ => world.put(1, key, &i.to_be_bytes()),
            };
        }
        if i % 5 == 0 {
            views.push((world.trees.views().open(), i));
        }
        match i % 20 {
            4 => world.seal(),
            9 => world.flush(),
            14 => world.compact(None),
            _ => {}
        }
    }
    let check = |world: &World, stage: &str| {
        for (view, i) in &views {
            let at = view.timestamp();
            let value = (i % 7 != 3).then(|| Bytes::copy_from_slice(&i.to_be_bytes()));
            assert_eq!(world.get(1, b"k", at), value, "{stage} {i}");
            assert_eq!(world.get(1, b"l", at), value, "{stage} {i}");
            for dir in BOTH {
                let rows = world.scan(1, Range::default(), at, dir);
                assert_eq!(rows.len(), 2 * usize::from(value.is_some()), "{stage} {i}");
            }
        }
    };
    for stage in ["memory", "flushed", "compacted"] {
        check(world, stage);
        world.seal();
        world.flush();
        world.compact(None);
    }
    // Without the views only the newest version is left.
    views.clear();
    world.stages(&|world, stage| {
        let newest = Some(Bytes::copy_from_slice(&99u32.to_be_bytes()));
        assert_eq!(world.get(1, b"k", Timestamp::MAX), newest, "{stage}");
        let view = world.trees.views().open();
        assert_eq!(world.get(1, b"k", view.timestamp()), newest, "{stage}");
    });
}

fn ranges_and_seeks(world: &mut World) {
    let key = |i: usize| format!("{i:06}").into_bytes();
    let n = 2000;
    // The even numbers exist, except that every tenth of them was deleted again.
    for chunk in (0..n).collect::<Vec<_>>().chunks(50) {
        let batch = chunk.iter().map(|i| op(3, &key(2 * i), Some(b"v"), true));
        world.commit(batch.collect());
    }
    let gone = (0..n).step_by(10).map(|i| op(3, &key(2 * i), None, false));
    world.commit(gone.collect());
    let there = |i: &usize| i.is_multiple_of(2) && !i.is_multiple_of(20) && *i < 2 * n;
    world.stages(&|world, stage| {
        let view = world.trees.views().open();
        let at = view.timestamp();
        for (low, high) in [
            (0, 4000),
            (5, 5),
            (7, 3),
            (20, 21),
            (21, 22),
            (999, 1501),
            (1, 2),
        ] {
            for dir in BOTH {
                let rows = world.scan(3, range(&key(low), Some(&key(high))), at, dir);
                let mut expected: Vec<_> = (low..high.max(low)).filter(there).map(key).collect();
                if dir == Direction::Backward {
                    expected.reverse();
                }
                let found: Vec<_> = rows.iter().map(|(k, _)| k.to_vec()).collect();
                assert_eq!(found, expected, "{stage} {low} {high} {dir:?}");
            }
        }
        // The ranges go to the end of the tree, or begin before its first key.
        assert_eq!(world.scan(3, range(&key(3990), None), at, BOTH[1]).len(), 5);
        assert_eq!(
            world
                .scan(3, range(b"", Some(b"000003")), at, BOTH[0])
                .len(),
            1
        );
        for dir in BOTH {
            for step in [1, 2, 3, 19, 64, 500, 1999] {
                let keys = range(&key(100), Some(&key(3900)));
                let cursor = world.trees.cursor(TreeId(3), keys, at, dir);
                let context = format!("{stage} {dir:?} {step}");
                seek_in_steps(cursor, dir, step, &there, &context);
            }
        }
    });
}

/// Moves a cursor over the keys from 100 to 3900 in steps. `there` says which of them exist.
fn seek_in_steps(
    mut cursor: Box<dyn Cursor + '_>,
    dir: Direction,
    step: usize,
    there: &dyn Fn(&usize) -> bool,
    context: &str,
) {
    let key = |i: usize| format!("{i:06}").into_bytes();
    let place = |i: usize| match dir {
        Direction::Forward => i,
        Direction::Backward => 4000 - i,
    };
    let mut target = 50;
    let mut last = 0;
    while target < 4100 {
        cursor.seek(&key(place(target.min(4000))));
        // A seek backwards does nothing.
        cursor.seek(&key(place(target.saturating_sub(step + 1).min(4000))));
        let inside = |i: &usize| (100..3900).contains(&place(*i));
        let expected = (target.max(last + 1)..=4000).find(|i| there(&place(*i)) && inside(i));
        let found = cursor.next(&NeverInterrupted).unwrap();
        let found = found.map(|(k, _)| k.to_vec());
        let expected_key = expected.map(|i| key(place(i)));
        assert_eq!(found, expected_key, "{context} {target}");
        last = expected.unwrap_or(5000);
        target += step;
    }
    cursor.seek(&key(place(200)));
    assert_eq!(
        cursor.next(&NeverInterrupted).unwrap(),
        None,
        "{context}: after the end"
    );
}

/// `MAX` reads what is applied but not visible.
fn newest(world: &mut World) {
    world.put(1, b"k", b"old");
    world.seal();
    world.flush();
    let view = world.trees.views().open();
    let old = view.timestamp();
    assert_eq!(world.written(1, b"k"), Some(old));
    let new = world.apply(vec![
        op(1, b"k", Some(b"new"), false),
        op(1, b"m", Some(b"new"), true),
    ]);
    let check = |world: &World| {
        assert_eq!(world.written(1, b"k"), Some(new));
        assert_eq!(world.written(1, b"m"), Some(new));
        assert_eq!(
            (world.written(1, b"l"), world.written(2, b"k")),
            (None, None)
        );
        assert_eq!(world.get(1, b"k", Timestamp::MAX), Some("new".into()));
        assert_eq!(world.get(1, b"m", Timestamp::MAX), Some("new".into()));
        let later = world.trees.views().open();
        for at in [view.timestamp(), later.timestamp()] {
            assert_eq!(world.get(1, b"k", at), Some("old".into()));
            assert_eq!(world.get(1, b"m", at), None);
        }
        let all = |at| {
            world
                .scan(1, Range::default(), at, Direction::Forward)
                .len()
        };
        assert_eq!((all(view.timestamp()), all(Timestamp::MAX)), (1, 2));
    };
    check(world);
    world.seal();
    check(world);
    world.flush();
    check(world);
    world.compact(None);
    check(world);
    world.show();
    assert_eq!(world.get(1, b"k", view.timestamp()), Some("old".into()));
    world.apply(vec![op(1, b"k", None, false)]);
    assert_eq!(world.get(1, b"k", Timestamp::MAX), None);
    assert_eq!(world.get(1, b"k", view.timestamp()), Some("old".into()));
    assert_eq!(world.written(1, b"k"), None);
    world.seal();
    world.flush();
    assert_eq!(world.written(1, b"k"), None);
}

/// A transaction that writes by a view learns of every change since, even of a deletion that left no trace.
fn looked_back(world: &mut World) {
    let unchanged = world.put(1, b"old", b"1");
    let (trees, key) = (world.trees.clone(), b"k");
    let writing = trees.views().writing(None);
    let view = trees.views().open();
    world.commit(vec![op(1, key, Some(b"1"), true)]);
    let gone = world.delete(1, key);
    // Other writes meanwhile make the engine look for versions that it can drop.
    let churn = |world: &mut World| {
        for i in 0..2000u32 {
            world.commit(vec![op(1, &i.to_be_bytes(), Some(b"x"), true)]);
            world.delete(1, &i.to_be_bytes());
        }
    };
    churn(world);
    let check = |world: &World| {
        let changed = |key: &[u8]| world.trees.changed(TreeId(1), key).unwrap();
        assert_eq!(changed(key), Some((gone, false)));
        assert_eq!(changed(b"old"), Some((unchanged, true)));
        assert_eq!(changed(b"never"), None);
        assert_eq!(world.get(1, key, Timestamp::MAX), None);
        assert_eq!(world.written(1, key), None);
    };
    check(world);
    world.seal();
    check(world);
    world.flush();
    check(world);
    world.compact(None);
    check(world);
    drop((writing, view));
    churn(world);
    world.seal();
    world.flush();
    world.compact(None);
    assert_eq!(world.trees.changed(TreeId(1), key).unwrap(), None);
}

/// A drop leaves other trees alone, and everything that a recovery needs.
fn dropped(world: &mut World) {
    for i in 0..3000u32 {
        let key = i.to_be_bytes();
        world.commit(vec![
            op(1, &key, Some(&[1; 100]), true),
            op(2, &key, Some(&[2; 100]), true),
        ]);
        if i == 1000 {
            world.seal();
            world.flush();
        }
    }
    let before = world.trees.sizes().memory;
    world.drop_tree(1);
    let after = world.trees.sizes().memory;
    assert!(
        after <= before && before - after > before / 4,
        "{before} {after}"
    );
    world.put(2, b"more", b"");
    // The engine crashes before the persisted cut has reached the drop.
    let check = |world: &World, stage: &str| {
        let rows = world.scan(2, Range::default(), Timestamp::MAX, Direction::Forward);
        assert_eq!(rows.len(), 3001, "{stage}");
    };
    if world.reopen() {
        check(world, "reopened");
    }
    world.stages(&check);
    world.trees.close();
    world.trees.close();
    check(world, "closed");
}

/// A value that is put and deleted again is gone, whichever way the two take.
fn short_lives(world: &mut World) {
    world.put(1, b"stays", b"");
    for i in 0..6000u32 {
        let key = i.to_be_bytes();
        world.commit(vec![op(1, &key, Some(b"job"), true)]);
        if i % 1000 == 500 {
            world.seal();
        }
        world.delete(1, &key);
        // Some keys are written and deleted again, so that an older version beneath would be noticed.
        if i % 3 == 0 {
            world.commit(vec![op(1, &key, Some(b"again"), true)]);
            world.delete(1, &key);
        }
        if i % 1000 == 700 {
            world.flush();
        }
    }
    world.stages(&|world, stage| {
        let view = world.trees.views().open();
        for dir in BOTH {
            let rows = world.scan(1, Range::default(), view.timestamp(), dir);
            assert_eq!(rows, [("stays".into(), Bytes::new())], "{stage}");
        }
    });
}

/// The persisted cut rises when a flush ends, even of nothing, and never by itself.
fn cuts(world: &mut World) {
    world.put(1, b"a", b"1");
    let first = world.now;
    world.seal();
    world.put(1, b"a", b"2");
    world.flush();
    assert_eq!(world.trees.persisted(), first);
    if world.reopen() {
        assert!(world.trees.persisted() >= first);
        assert_eq!(world.get(1, b"a", Timestamp::MAX), Some("2".into()));
    }
    world.commit(Vec::new());
    world.seal();
    world.flush();
    assert_eq!(world.trees.persisted(), world.now);
    // Nothing was written since.
    world.commit(Vec::new());
    world.seal();
    world.flush();
    assert_eq!(world.trees.persisted(), world.now);
    if world.reopen() {
        assert_eq!(world.trees.persisted(), world.now);
    }
    assert_eq!(world.get(1, b"a", Timestamp::MAX), Some("2".into()));
}

/// What is written at a cut stays, even if that cut is the persisted one already, and the last write of a key counts.
fn written_at_a_cut(world: &mut World) {
    world.put(1, b"a", b"1");
    world.seal();
    world.flush();
    for value in [Some("x"), Some("y"), None, Some("z")] {
        assert_eq!(world.trees.persisted(), world.now);
        let value = value.map(Bytes::from);
        let batch = vec![op(2, b"mark", value.as_deref(), false)];
        world.trees.apply_at_cut(batch, world.now);
        world.stages(&|world, stage| {
            assert_eq!(world.get(2, b"mark", Timestamp::MAX), value, "{stage}");
            let all = world.scan(2, Range::default(), world.now, Direction::Forward);
            let expected = value.iter().map(|v| (Bytes::from("mark"), v.clone()));
            assert_eq!(all, expected.collect::<Vec<_>>(), "{stage}");
            assert_eq!(world.get(1, b"a", world.now), Some("1".into()), "{stage}");
        });
    }
}

/// Data that is not committed is never persisted, however it is sealed and flushed.
fn commit_point(world: &mut World) {
    let first = world.put(1, b"a", b"1");
    world.set_committed(first);
    world.seal();
    world.flush();
    assert_eq!(world.trees.persisted(), first);
    let mut cuts = Vec::new();
    for i in 0..3u8 {
        world.put(1, b"a", &[i]);
        cuts.push(world.put(1, &[i], &[7; 1000]));
        world.seal();
        world.flush();
        world.compact(None);
        assert_eq!(world.trees.persisted(), first);
    }
    let sizes = world.trees.sizes();
    assert!(sizes.uncommitted == sizes.sealed && sizes.sealed_count <= 3);
    assert!(sizes.uncommitted > 3000 || !world.trees.is_durable());
    // The commit point is below the first cut, so nothing more is persisted; and the persisted cut never
    // sinks.
    world.set_committed(Timestamp(cuts[0].0 - 1));
    world.flush();
    assert_eq!(world.trees.persisted(), first);
    world.set_committed(cuts[1]);
    world.set_committed(cuts[0]);
    world.flush();
    assert_eq!(world.trees.persisted(), cuts[1]);
    let sizes = world.trees.sizes();
    assert!((1000..2500).contains(&sizes.uncommitted) || !world.trees.is_durable());
    let check = |world: &World| {
        assert_eq!(world.get(1, b"a", Timestamp::MAX), Some(vec![2].into()));
        assert_eq!(
            world.get(1, &[2], Timestamp::MAX),
            Some(vec![7; 1000].into())
        );
    };
    check(world);
    if world.reopen() {
        assert_eq!(world.trees.persisted(), cuts[1]);
        check(world);
        world.seal();
    }
    world.set_committed(world.now);
    world.stages(&|world, _| check(world));
    assert_eq!(world.trees.sizes().uncommitted, 0);
}

/// A view of the past finds the data of its time, through all stages.
fn floor(world: &mut World) {
    world.put(1, b"gone", b"");
    world.keep_from(world.now);
    let begin = world.now;
    for i in 0..60u32 {
        match i % 3 {
            2 => world.delete(1, b"k"),
            _ => world.put(1, b"k", &i.to_be_bytes()),
        };
        // This key is put and deleted at once.
        world.commit(vec![op(1, &i.to_be_bytes(), Some(b"job"), true)]);
        world.delete(1, &i.to_be_bytes());
        if i % 10 == 9 {
            world.seal();
        }
        if i % 20 == 19 {
            world.flush();
        }
    }
    let check = |world: &World, from: u32| {
        for i in from..60 {
            let at = Timestamp(begin.0 + 1 + u64::from(i) * 3);
            let view = world.trees.views().open_at(at).expect("above the floor");
            assert_eq!(view.timestamp(), at);
            let value = (i % 3 != 2).then(|| Bytes::copy_from_slice(&i.to_be_bytes()));
            assert_eq!(world.get(1, b"k", at), value, "{i}");
            let job = world
                .trees
                .views()
                .open_at(Timestamp(at.0 + 1))
                .expect("floor");
            let rows = world.scan(1, Range::default(), job.timestamp(), Direction::Backward);
            assert_eq!(rows.len(), 2 + usize::from(value.is_some()), "{i}");
        }
    };
    check(world, 0);
    world.seal();
    world.flush();
    check(world, 0);
    world.compact(None);
    check(world, 0);
    let middle = Timestamp(begin.0 + 1 + 90);
    world.keep_from(middle);
    assert!(
        world
            .trees
            .views()
            .open_at(Timestamp(middle.0 - 1))
            .is_none()
    );
    world.compact(None);
    check(world, 30);
    // Versions that no view can ask for any more are dropped.
    world.keep_from(world.now);
    world.stages(&|world, stage| {
        let view = world.trees.views().open_at(world.now).expect("now");
        let rows = world.scan(1, Range::default(), view.timestamp(), Direction::Forward);
        assert_eq!(rows.len(), 1, "{stage}");
        assert!(
            world
                .trees
                .views()
                .open_at(Timestamp(world.now.0 - 1))
                .is_none()
        );
    });
}
