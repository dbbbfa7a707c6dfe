//! Everything at once: writers with a small commit door, a sealer, a flusher, a compactor, and readers that
//! check the invariants at every view.
//!
//! A group is a document with copies: the same number under one key in each of several trees, and one entry
//! in an index under the number itself. Each commit gives a group its next number, or deletes it, or restores
//! it. So at any view, a group has the same number everywhere and exactly one index entry, or does not exist
//! at all. Its number never goes back.

use super::*;
use muniment_op::NeverInterrupted as Never;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const COPIES: [u32; 3] = [1, 2, 3];
const INDEX: u32 = 4;
const JOBS: u32 = 5;
const GROUPS: u32 = 300;
const WRITERS: u32 = 3;

pub(super) fn run(make: Make<'_>) {
    let time = if long() { 60_000 } else { 800 };
    everything_at_once(make, Duration::from_millis(time));
}

#[derive(Default)]
struct Clock {
    now: u64,
    running: BTreeSet<u64>,
}

/// A small commit door.
struct Door {
    trees: Arc<dyn Trees>,
    clock: Mutex<Clock>,
    /// Held for reading while a commit is applied, and for writing by the sealer.
    applying: RwLock<()>,
    log: Mutex<BTreeMap<u64, Batch>>,
    stop: AtomicBool,
    commits: AtomicU64,
    checks: AtomicU64,
    /// The commit point, which is also the floor.
    committed: AtomicU64,
    past: AtomicU64,
}

impl Door {
    fn new(trees: Arc<dyn Trees>) -> Door {
        Door {
            trees,
            clock: Mutex::default(),
            applying: RwLock::new(()),
            log: Mutex::default(),
            stop: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            checks: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            past: AtomicU64::new(0),
        }
    }

    fn commit(&self, batch: Batch) {
        let applying = self.applying.read();
        let at = {
            let mut clock = self.clock.lock();
            clock.now += 1;
            let now = clock.now;
            clock.running.insert(now);
            self.log.lock().insert(now, batch.clone());
            now
        };
        self.trees.apply(batch, Timestamp(at));
        // Commits become visible in order, up to the first one that is still being applied.
        let mut clock = self.clock.lock();
        clock.running.remove(&at);
        let visible = clock.running.first().map_or(clock.now, |first| first - 1);
        self.trees.views().advance(Timestamp(visible));
        drop(clock);
        drop(applying);
        self.commits.fetch_add(1, SeqCst);
    }

    fn seal(&self) {
        let _alone = self.applying.write();
        let now = self.clock.lock().now;
        self.trees.seal(Timestamp(now)).expect("seal");
    }

    /// Repeats `work` until the time is over or another thread has failed.
    fn until_stopped(&self, pause: Duration, mut work: impl FnMut()) {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.store(true, SeqCst);
                }
            }
        }
        let _stop = Stop(&self.stop);
        while !self.stop.load(SeqCst) {
            work();
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
    }
}

fn group_key(group: u32) -> Vec<u8> {
    [b"group ".as_slice(), &group.to_be_bytes()].concat()
}

/// Numbers are scattered over the index, so that entries move far.
fn index_key(group: u32, number: u64) -> Vec<u8> {
    let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let parts: [&[u8]; 3] = [
        &scattered.to_be_bytes(),
        &group.to_be_bytes(),
        &number.to_be_bytes(),
    ];
    parts.concat()
}

/// Writes the groups of this writer.
fn writer(door: &Door, writer: u32) {
    let mut random = Random(u64::from(writer) + 77);
    let mut numbers: BTreeMap<u32, u64> = BTreeMap::new();
    let mut next = 0u64;
    let mut jobs: Vec<Vec<u8>> = Vec::new();
    door.until_stopped(Duration::ZERO, || {
        let group = random.below((GROUPS / WRITERS) as usize) as u32 * WRITERS + writer;
        // A tenth of the groups is hot.
        let group = match random.percent(50) {
            true => group % (GROUPS / 10 / WRITERS * WRITERS),
            false => group,
        };
        let group = group / WRITERS * WRITERS + writer;
        next += 1;
        let mut batch = Vec::new();
        let old = numbers.get(&group).copied();
        if let Some(old) = old {
            batch.push(op(INDEX, &index_key(group, old), None, false));
        }
        let new = (old.is_none() || !random.percent(20)).then_some(next);
        let value = new.map(|n| {
            let mut value = n.to_be_bytes().to_vec();
            value.resize(8 + random.below(100), b'.');
            value
        });
        for tree in COPIES {
            let fresh = old.is_none();
            batch.push(op(tree, &group_key(group), value.as_deref(), fresh));
        }
        match new {
            Some(new) => {
                batch.push(op(INDEX, &index_key(group, new), Some(b""), true));
                numbers.insert(group, new);
            }
            None => drop(numbers.remove(&group)),
        }
        door.commit(batch);
        // Each writer also has a queue, whose entries live briefly at the end of a tree.
        let job = [&writer.to_be_bytes()[..], &next.to_be_bytes()].concat();
        door.commit(vec![op(JOBS, &job, Some(&next.to_be_bytes()), true)]);
        jobs.push(job);
        if jobs.len() > 5 {
            let job = jobs.remove(0);
            door.commit(vec![op(JOBS, &job, None, false)]);
        }
    });
    // A writer may end anywhere, since the invariants hold at each commit.
}

type State = BTreeMap<u32, u64>;

fn direction(random: &mut Random) -> Direction {
    match random.percent(50) {
        true => Direction::Forward,
        false => Direction::Backward,
    }
}

/// Checks the invariants at a view, and returns the groups with their numbers.
fn check(trees: &dyn Trees, at: Timestamp, random: &mut Random) -> State {
    let number = |bytes: &[u8]| u64::from_be_bytes(*bytes.first_chunk().expect("8 bytes"));
    let group = |bytes: &[u8]| u32::from_be_bytes(*bytes.first_chunk().expect("4 bytes"));
    let mut state: Option<State> = None;
    for tree in COPIES {
        let rows = scan(trees, TreeId(tree), Range::default(), at, direction(random));
        let found: State = rows
            .iter()
            .map(|(k, v)| (group(&k[6..]), number(v)))
            .collect();
        assert_eq!(
            found.len(),
            rows.len(),
            "tree {tree} at {at:?}: a key twice"
        );
        match &state {
            None => state = Some(found),
            Some(first) => assert_eq!(*first, found, "tree {tree} at {at:?}"),
        }
    }
    let state = state.unwrap_or_default();
    let rows = scan(
        trees,
        TreeId(INDEX),
        Range::default(),
        at,
        direction(random),
    );
    let found: State = rows
        .iter()
        .map(|(k, _)| (group(&k[8..]), number(&k[12..])))
        .collect();
    assert_eq!(found.len(), rows.len(), "index at {at:?}: a group twice");
    assert_eq!(state, found, "index at {at:?}");
    for _ in 0..10 {
        let group = random.below(GROUPS as usize) as u32;
        let tree = TreeId(COPIES[random.below(COPIES.len())]);
        let found = trees.get(tree, &group_key(group), at).expect("get");
        let found = found.map(|v| number(&v));
        assert_eq!(found, state.get(&group).copied(), "group {group} at {at:?}");
    }
    let jobs = scan(trees, TreeId(JOBS), Range::default(), at, direction(random));
    let most = WRITERS as usize * 6;
    assert!(jobs.len() <= most, "{} jobs at {at:?}", jobs.len());
    state
}

/// Checks that the numbers of groups only rise from view to view.
fn reader(door: &Door, seed: u64) {
    let mut random = Random(seed);
    let mut last = State::new();
    door.until_stopped(Duration::ZERO, || {
        let view = door.trees.views().open();
        let state = check(&*door.trees, view.timestamp(), &mut random);
        for (group, number) in &state {
            let before = last.insert(*group, *number);
            assert!(
                before.is_none_or(|b| b <= *number),
                "group {group} went back"
            );
        }
        door.checks.fetch_add(1, SeqCst);
    });
}

/// Advances the commit point, never beyond what is visible, and keeps the versions that views at it read.
fn majority(door: &Door, random: &mut Random) {
    let committed = door.committed.load(SeqCst);
    let visible = door.trees.views().visible().0;
    let next = committed + random.below((visible - committed) as usize + 1) as u64;
    door.committed.store(next, SeqCst);
    door.trees.set_committed(Timestamp(next));
    door.trees.views().keep_from(Timestamp(next));
}

/// Reads at the commit point and a little above it, where versions would be gone without a floor.
fn reader_of_the_past(door: &Door) {
    let mut random = Random(815);
    let mut last = State::new();
    door.until_stopped(Duration::ZERO, || {
        let committed = door.committed.load(SeqCst);
        let ahead = door.trees.views().visible().0.saturating_sub(committed);
        let at = committed + random.below(ahead as usize + 1) as u64;
        for at in [committed, at] {
            // The commit point may have advanced meanwhile.
            let Some(view) = door.trees.views().open_at(Timestamp(at)) else {
                assert!(door.trees.views().horizon().0 > at);
                continue;
            };
            let state = check(&*door.trees, view.timestamp(), &mut random);
            if at == committed {
                for (group, number) in &state {
                    let before = last.insert(*group, *number);
                    assert!(before.is_none_or(|b| b <= *number), "{group} went back");
                }
            }
            door.past.fetch_add(1, SeqCst);
        }
    });
}

/// Holds a view for long, and checks that it always sees the same.
fn patient(door: &Door) {
    let mut random = Random(4711);
    door.until_stopped(Duration::ZERO, || {
        let view = door.trees.views().open();
        let first = check(&*door.trees, view.timestamp(), &mut random);
        let mut slow = door.trees.cursor(
            TreeId(1),
            Range::default(),
            view.timestamp(),
            Direction::Forward,
        );
        let mut seen = 0;
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(10));
            for _ in 0..GROUPS / 20 + 1 {
                seen += usize::from(slow.next(&NeverInterrupted).expect("cursor").is_some());
            }
            let again = check(&*door.trees, view.timestamp(), &mut random);
            assert_eq!(first, again, "a view changed");
        }
        assert_eq!(seen, first.len(), "a slow cursor");
    });
}

fn everything_at_once(make: Make<'_>, time: Duration) {
    let mut harness = make();
    let door = Door::new(harness.trees());
    door.trees.set_committed(Timestamp::ZERO);
    door.trees.views().keep_from(Timestamp::ZERO);
    let ms = Duration::from_millis;
    std::thread::scope(|scope| {
        let door = &door;
        for i in 0..WRITERS {
            scope.spawn(move || writer(door, i));
        }
        for seed in [1, 2] {
            scope.spawn(move || reader(door, seed));
        }
        scope.spawn(move || patient(door));
        scope.spawn(move || reader_of_the_past(door));
        scope.spawn(move || {
            let mut random = Random(99);
            door.until_stopped(ms(4), || majority(door, &mut random));
        });
        scope.spawn(move || door.until_stopped(ms(3), || door.seal()));
        scope.spawn(move || {
            door.until_stopped(ms(5), || {
                door.trees.flush().expect("flush");
                let persisted = door.trees.persisted().0;
                assert!(persisted <= door.committed.load(SeqCst), "not committed");
                let mut log = door.log.lock();
                *log = log.split_off(&(persisted + 1));
            });
        });
        scope.spawn(move || {
            door.until_stopped(ms(10), || {
                door.trees.compact(None, &Never).expect("compact");
            });
        });
        let end = Instant::now() + time;
        while Instant::now() < end && !door.stop.load(SeqCst) {
            std::thread::sleep(ms(5));
        }
        door.stop.store(true, SeqCst);
    });
    let (commits, checks) = (door.commits.load(SeqCst), door.checks.load(SeqCst));
    let past = door.past.load(SeqCst);
    assert!(
        commits > 100 && checks > 1 && past > 1,
        "{commits} commits, {checks} checks, {past} of the past"
    );
    let Door {
        trees, clock, log, ..
    } = door;
    let now = Timestamp(clock.into_inner().now);
    assert_eq!(trees.views().visible(), now);
    assert_eq!(trees.views().count(), 0);
    let before = check(&*trees, Timestamp::MAX, &mut Random(5));
    drop(trees);
    // After a crash at this point, the persisted state and the log together must give the same state again.
    if harness.reopen() {
        let trees = harness.trees();
        assert!(trees.persisted() <= now, "a cut that nobody made");
        replay(&*trees, log.into_inner());
        let after = check(&*trees, Timestamp::MAX, &mut Random(6));
        assert_eq!(before, after, "after the crash");
        assert_eq!(
            trees.check(None, &Never).expect("check"),
            Vec::<String>::new()
        );
    }
}

/// Applies what the log has and the trees have not persisted.
fn replay(trees: &dyn Trees, log: BTreeMap<u64, Batch>) {
    let persisted = trees.persisted();
    trees.views().advance(persisted);
    for (at, batch) in log {
        if at > persisted.0 {
            trees.apply(batch, Timestamp(at));
            trees.views().advance(Timestamp(at));
        }
    }
}
