//! All operations at the same time, on the machine's own disk, with an oracle that knows every row.

use super::super::{LsmOptions, LsmTrees};
use super::world::{Model, Random, bytes, rows};
use crate::trees::{Batch, Direction, Op, Range, TreeId, Trees};
use muniment_io::Timestamp;
use muniment_op::NeverInterrupted;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn options(dir: &std::path::Path) -> LsmOptions {
    LsmOptions {
        cache_bytes: 256 << 10,
        memtable_bytes: 64 << 10,
        block_bytes: 1 << 10,
        table_bytes: 32 << 10,
        ratio: 4,
        ..LsmOptions::new(dir)
    }
}

/// The commit door, which assigns one timestamp after another.
struct Door {
    trees: Arc<LsmTrees>,
    model: RwLock<Model>,
    now: Mutex<Timestamp>,
}

impl Door {
    fn commit(&self, batch: Batch) {
        let mut now = self.now.lock();
        now.0 += 1;
        self.model.write().apply(&batch, *now);
        self.trees.apply(batch, *now);
        self.trees.views().advance(*now);
        if self.trees.sizes().memory - self.trees.sizes().sealed > 64 << 10 {
            self.trees.seal(*now).unwrap();
        }
    }
}

#[test]
fn everything_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let door = Arc::new(Door {
        trees: LsmTrees::open(options(dir.path())).unwrap(),
        model: RwLock::default(),
        now: Mutex::new(Timestamp(1)),
    });
    let stop = AtomicBool::new(false);
    let (scans, commits) = (AtomicU64::new(0), AtomicU64::new(0));
    let seconds = std::env::var("SECONDS_AT_ONCE").map_or(6, |s| s.parse().unwrap());
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (door, stop, commits) = (&door, &stop, &commits);
            scope.spawn(move || {
                let random = &mut Random(writer);
                while !stop.load(SeqCst) {
                    let mut batch = Batch::new();
                    // A document and its index entry. Each writer has its own keys.
                    for _ in 0..1 + random.below(10) {
                        let key = format!("{writer}/{:05}", random.below(3000));
                        if batch.iter().any(|op: &Op| op.key == key) {
                            continue;
                        }
                        let value = (random.below(4) > 0).then(|| {
                            bytes(vec![random.below(256) as u8; random.below(200) as usize])
                        });
                        for tree in [1, 2] {
                            batch.push(Op {
                                tree: TreeId(tree),
                                key: bytes(&key),
                                value: value.clone(),
                                fresh: false,
                            });
                        }
                    }
                    batch.sort_by(|a, b| a.tree.cmp(&b.tree).then(a.key.cmp(&b.key)));
                    door.commit(batch);
                    commits.fetch_add(1, SeqCst);
                    // Waits as back-pressure would make a writer wait.
                    while door.trees.sizes().sealed > 1 << 20 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
        for reader in 0..2u64 {
            let (door, stop, scans) = (&door, &stop, &scans);
            scope.spawn(move || {
                let random = &mut Random(100 + reader);
                while !stop.load(SeqCst) {
                    let view = door.trees.views().open();
                    let at = view.timestamp();
                    if random.below(4) == 0 {
                        std::thread::sleep(Duration::from_millis(random.below(100)));
                    }
                    let low = bytes(format!("{}/{:05}", random.below(2), random.below(3000)));
                    let high = bytes([&low[..6], b"9"].concat());
                    let range = Range {
                        high: (random.below(5) > 0).then_some(high),
                        low,
                    };
                    let expected = door.model.read().scan(TreeId(1), &range, at);
                    for tree in [1, 2] {
                        let dir = match random.below(2) {
                            0 => Direction::Forward,
                            _ => Direction::Backward,
                        };
                        let mut found =
                            rows(door.trees.cursor(TreeId(tree), range.clone(), at, dir));
                        if dir == Direction::Backward {
                            found.reverse();
                        }
                        assert!(found == expected, "tree {tree}, {range:?} at {at:?}");
                    }
                    for _ in 0..20 {
                        let key = bytes(format!("{}/{:05}", random.below(2), random.below(3000)));
                        let expected = door.model.read().get(TreeId(2), &key, at);
                        assert_eq!(door.trees.get(TreeId(2), &key, at).unwrap(), expected);
                    }
                    scans.fetch_add(1, SeqCst);
                }
            });
        }
        let (door, stop) = (&door, &stop);
        scope.spawn(move || {
            while !stop.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(300));
                door.trees
                    .compact(Some(&[TreeId(1)]), &NeverInterrupted)
                    .unwrap();
                assert_eq!(
                    door.trees.check(None, &NeverInterrupted).unwrap(),
                    Vec::<String>::new()
                );
                door.trees.health().unwrap();
            }
        });
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, SeqCst);
    });
    let now = *door.now.lock();
    door.trees.seal(now).unwrap();
    door.trees.flush().unwrap();
    door.trees.close();
    assert!(scans.load(SeqCst) > 20 && commits.load(SeqCst) > 500);
    let model = std::mem::take(&mut *door.model.write());
    drop(door);
    let trees = LsmTrees::open(options(dir.path())).unwrap();
    assert_eq!(trees.persisted(), now);
    for tree in [1, 2].map(TreeId) {
        let found = rows(trees.cursor(tree, Range::default(), now, Direction::Forward));
        assert!(found == model.scan(tree, &Range::default(), now));
    }
}
