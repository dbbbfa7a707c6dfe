//! Random work, step by step, with cursors and views that live across steps.

use super::world::{Random, World, bytes};
use crate::trees::{Cursor, Direction, Range, TreeId, Trees};
use bytes::Bytes;
use muniment_io::Timestamp;
use muniment_op::NeverInterrupted;

/// A cursor, with the rows that it still has to return.
struct Open {
    cursor: Box<dyn Cursor>,
    rest: Vec<(Bytes, Bytes)>,
    dir: Direction,
    at: Timestamp,
    tree: TreeId,
}

impl Open {
    fn some(&mut self, random: &mut Random) {
        if random.below(4) == 0 {
            let key = bytes(format!("key{:04}", random.below(400)));
            self.cursor.seek(&key);
            self.rest.retain(|(k, _)| match self.dir {
                Direction::Forward => *k >= key,
                Direction::Backward => *k <= key,
            });
        }
        for _ in 0..random.below(30) {
            let row = self.cursor.next(&NeverInterrupted).unwrap();
            let expected = (!self.rest.is_empty()).then(|| self.rest.remove(0));
            assert_eq!(
                row, expected,
                "{:?} {:?} {:?}",
                self.tree, self.at, self.dir
            );
        }
    }
}

fn open(world: &World, random: &mut Random) -> Option<Open> {
    let view = &world.views[random.below(world.views.len() as u64) as usize];
    let tree = TreeId([1, 2, 3, 255, 256, u32::MAX][random.below(6) as usize]);
    if world.dropped.contains_key(&tree) {
        return None;
    }
    let edge = |random: &mut Random| bytes(format!("key{:04}", random.below(410)));
    let range = Range {
        low: match random.below(2) {
            0 => Bytes::new(),
            _ => edge(random),
        },
        high: (random.below(2) == 0).then(|| edge(random)),
    };
    let dir = match random.below(2) {
        0 => Direction::Forward,
        _ => Direction::Backward,
    };
    let at = view.timestamp();
    let mut rest = world.model.scan(tree, &range, at);
    if dir == Direction::Backward {
        rest.reverse();
    }
    Some(Open {
        cursor: world.trees.cursor(tree, range, at, dir),
        rest,
        dir,
        at,
        tree,
    })
}

fn run(seed: u64, steps: usize) {
    let random = &mut Random(seed);
    let mut world = World::new();
    let mut cursors: Vec<Open> = Vec::new();
    for step in 0..steps {
        match random.below(100) {
            0..55 => {
                let batch = world.batch(random);
                world.commit(batch);
            }
            55..62 => {
                let view = world.trees.views().open();
                world.views.push(view);
            }
            62..66 if !world.views.is_empty() => {
                // A view ends, and so do the cursors that read at it.
                let i = random.below(world.views.len() as u64) as usize;
                let at = world.views.swap_remove(i).timestamp();
                cursors.retain(|c| c.at != at);
            }
            66..70 => world.trees.seal(world.now).unwrap(),
            70..80 => {
                world.trees.work().unwrap();
            }
            80..82 => world.settle(),
            82 => world.trees.compact(None, &NeverInterrupted).unwrap(),
            83 => world
                .trees
                .compact(Some(&[TreeId(2)]), &NeverInterrupted)
                .unwrap(),
            84 if step > steps / 2 => {
                let tree = TreeId([1, 3, 256][random.below(3) as usize]);
                world.commit(Vec::new());
                if !world.dropped.contains_key(&tree) {
                    let now = world.now;
                    cursors.retain(|c| c.tree != tree);
                    world.dropped.insert(tree, now);
                    world.trees.drop_tree(tree, now);
                }
            }
            85 if random.below(3) == 0 => {
                cursors.clear();
                world.power_cut(seed ^ step as u64);
            }
            86..92 if !world.views.is_empty() => cursors.extend(open(&world, random)),
            92.. if !cursors.is_empty() => {
                let i = random.below(cursors.len() as u64) as usize;
                cursors[i].some(random);
            }
            _ => {}
        }
        if step % 97 == 0 {
            world.verify(Timestamp::MAX);
            for view in &world.views {
                world.verify(view.timestamp());
            }
            assert_eq!(
                world.trees.check(None, &NeverInterrupted).unwrap(),
                Vec::<String>::new()
            );
        }
    }
    cursors.clear();
    world.views.clear();
    world.trees.seal(world.now).unwrap();
    world.trees.compact(None, &NeverInterrupted).unwrap();
    world.settle();
    world.verify(world.now);
    // No dead version is left, and no file that is not needed.
    let state = world.trees.shared.state();
    for table in state.levels.tables() {
        let p = table.properties();
        assert_eq!((p.total.tombstones, p.total.superseded), (0, 0), "{p:?}");
        assert!(
            p.trees
                .iter()
                .all(|(tree, _)| !world.dropped.contains_key(tree))
        );
    }
    world.trees.work().unwrap();
    assert_eq!(world.disk.paths().len(), 1 + state.levels.tables().count());
}

#[test]
fn random_work_agrees_with_the_model() {
    for seed in 0..8 {
        run(seed, 1200);
    }
}

/// For long runs: `SEEDS=from..to`.
#[test]
#[ignore = "long"]
fn random_work_for_long() {
    let seeds = std::env::var("SEEDS").unwrap_or("100..200".into());
    let (from, to) = seeds.split_once("..").unwrap();
    for seed in from.parse().unwrap()..to.parse().unwrap() {
        run(seed, 4000);
    }
}
