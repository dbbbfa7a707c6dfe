//! Runs a simulator with many seeds.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// What happened in a run, counted.
pub(crate) trait Counted: Default + Debug + Send {
    /// Adds what happened in another run.
    fn add(&mut self, other: &Self);

    /// What has to happen in many runs, with how often it did.
    fn figures(&self) -> Vec<(&'static str, u64)>;
}

/// Runs the seeds that the environment names: one (`MUNIMENT_SEED`), the first so many (`MUNIMENT_SEEDS=n`), some
/// (`MUNIMENT_SEEDS=from..to`), 10,000 (`MUNIMENT_LONG`), or else the first `few`. The test is named in what says how to
/// run a seed again.
pub(crate) fn run_seeds<C: Counted>(
    test: &str,
    few: u64,
    run: impl Fn(u64) -> Result<C, String> + Sync,
) {
    let given = |name: &str| std::env::var(name).ok();
    let most = match std::env::var_os("MUNIMENT_LONG") {
        Some(_) => 10_000,
        None => few,
    };
    let one = given("MUNIMENT_SEED").and_then(|seed| seed.parse().ok());
    let some = given("MUNIMENT_SEEDS").map(|seeds| {
        let (from, to) = seeds.split_once("..").unwrap_or(("0", &seeds));
        let number = |n: &str| n.parse().expect("MUNIMENT_SEEDS is n or from..to");
        number(from)..number(to)
    });
    let one = one.map(|seed: u64| seed..seed + 1);
    run_all(test, one.or(some).unwrap_or(0..most), run);
}

/// Runs seeds, two at a time; of those that fail the lowest is reported, with how to run it again.
fn run_all<C: Counted>(
    test: &str,
    seeds: Range<u64>,
    run: impl Fn(u64) -> Result<C, String> + Sync,
) {
    let all: Mutex<BTreeMap<u64, Result<C, String>>> = Mutex::default();
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while !failed.load(SeqCst) {
                    let seed = next.fetch_add(1, SeqCst);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    let course = run(seed);
                    failed.fetch_or(course.is_err(), SeqCst);
                    all.lock().insert(seed, course);
                }
            });
        }
    });
    let mut sum = C::default();
    for (seed, course) in all.into_inner() {
        match course {
            Ok(c) => sum.add(&c),
            Err(why) => panic!(
                "seed {seed}: {why}\nrun it again: MUNIMENT_SEED={seed} cargo test -p muniment-server --lib {test}"
            ),
        }
    }
    println!("seeds {seeds:?}: {sum:?}");
    if seeds.end - seeds.start >= 100 {
        let never = sum.figures().into_iter().find(|(_, n)| *n == 0);
        assert!(never.is_none(), "it never happened: {never:?}");
    }
}

/// The first seed from `first` on that finds a bug, and nothing without it, and what it found.
pub(crate) fn first_to_find<C>(
    first: u64,
    with: impl Fn(u64) -> Result<C, String>,
    without: impl Fn(u64) -> Result<C, String>,
) -> Option<(u64, String)> {
    let mut found = (first..first + 1000).filter_map(|seed| Some((seed, with(seed).err()?)));
    found.find(|(seed, _)| without(*seed).is_ok())
}
