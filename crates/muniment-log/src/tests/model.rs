//! Random courses of all operations, against an oracle that knows every record.

use super::*;
use muniment_io::sim::{EIO, ENOSPC, Fault, Op};
use muniment_op::NeverInterrupted;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

type Entry = (u64, u64, Timestamp, Vec<u8>);

/// The records that may be in the log.
struct Oracle {
    /// The appended records that no crash has lost, from index 1 on.
    appended: Vec<Entry>,
    /// Failed appends. One may be found after a crash if no record with its index was durable.
    ghosts: Vec<Entry>,
    /// How many records are certainly durable.
    durable: u64,
    /// The timestamp up to which no record is needed.
    trimmed: Timestamp,
    /// The records after this one are to be cut; it is not known yet whether they were.
    cut: Option<u64>,
}

impl Oracle {
    /// Now and then decides that the records after some record are to be cut, whether they are durable or
    /// not.
    fn may_cut(&mut self, rng: &mut Rng) {
        if self.cut.is_none() && rng.below(4) == 0 {
            let needed = self.appended.partition_point(|e| e.2 <= self.trimmed) as u64;
            let more = self.appended.len() as u64 - needed;
            self.cut = Some(needed + rng.below(more + 1));
            self.durable = self.durable.min(self.cut.unwrap_or(u64::MAX));
        }
    }

    /// Checks the records that a crash has left, and continues from them.
    fn crashed(&mut self, seen: &Seen, last: u64) {
        let from = self.appended.partition_point(|e| e.2 <= self.trimmed) as u64;
        assert_eq!(last, from + seen.len() as u64);
        assert!(last >= self.durable, "{last}, but {} durable", self.durable);
        if let Some(cut) = self.cut.take() {
            assert!(last <= cut, "{last}, but cut after {cut}");
        }
        for found in seen {
            let known = self.appended.get(found.0 as usize - 1);
            if known == Some(found) {
                continue;
            }
            let ghost = self.ghosts.contains(found) && found.0 == last && last > self.durable;
            assert!(ghost, "record {} was never appended: {:?}", found.0, known);
            self.appended.truncate(last as usize - 1);
            self.appended.push(found.clone());
        }
        self.appended.truncate(last as usize);
        self.ghosts.clear();
        self.durable = last;
    }
}

/// Keeps the disk in the state that a power cut at some operation would leave.
#[derive(Clone, Default)]
struct Trap {
    armed: Arc<AtomicBool>,
    countdown: Arc<AtomicU64>,
    caught: Arc<Mutex<Option<SimDisk>>>,
}

impl Trap {
    fn set(&self, disk: &SimDisk, after: u64, seed: u64) {
        self.countdown.store(after + 1, SeqCst);
        self.armed.store(true, SeqCst);
        let (trap, d) = (self.clone(), disk.clone());
        disk.set_hook(move |_, _| {
            let down = |n: u64| n.checked_sub(1);
            if trap.countdown.fetch_update(SeqCst, SeqCst, down) == Ok(1) {
                *trap.caught.lock() = Some(d.power_cut(seed));
            }
        });
    }

    /// The disk at the cut, if the cut was reached.
    fn take(&self) -> Option<SimDisk> {
        if self.armed.load(SeqCst) && self.countdown.load(SeqCst) == 0 {
            self.armed.store(false, SeqCst);
            // Another thread of the log may be just taking the copy.
            loop {
                if let Some(cut) = self.caught.lock().take() {
                    return Some(cut);
                }
                std::thread::yield_now();
            }
        }
        None
    }
}

fn course(seed: u64, faults: bool) {
    let mut rng = Rng(seed);
    let mut disk = SimDisk::new();
    let mut oracle = Oracle {
        appended: Vec::new(),
        ghosts: Vec::new(),
        durable: 0,
        trimmed: Timestamp::ZERO,
        cut: None,
    };
    let mut clock = 0;
    let mut nonce = seed << 20;
    let trap = Trap::default();
    for _life in 0..12 {
        // The opening itself may be cut short, several times.
        let log = loop {
            if rng.below(3) == 0 {
                trap.set(&disk, rng.below(40), rng.next());
            }
            if faults && rng.below(4) == 0 {
                inject(&disk, &mut rng);
            }
            oracle.may_cut(&mut rng);
            let cut = LogOptions {
                cut_behind: oracle.cut,
                ..options(&disk)
            };
            let opened = open_from(cut, oracle.trimmed);
            let caught = trap.take();
            match (opened, caught) {
                (opened, Some(cut)) => {
                    if let Ok((log, _)) = opened {
                        log.abandon();
                    }
                    disk = cut;
                }
                (Ok((log, seen)), None) => {
                    oracle.crashed(&seen, log.last().index);
                    break log;
                }
                (Err(e), None) => {
                    assert_ne!(e.code(), Code::DataCorruptionDetected, "{e}");
                    assert!(faults, "{e}");
                    disk.heal();
                }
            }
        };
        if rng.below(2) == 0 {
            trap.set(&disk, rng.below(300), rng.next());
        }
        let mut caught = None;
        for _ in 0..rng.below(150) {
            let acked = oracle.durable;
            step(&log, &mut rng, &mut oracle, &mut clock, &mut nonce, faults);
            if faults && rng.below(40) == 0 {
                inject(&disk, &mut rng);
            }
            if faults && rng.below(20) == 0 {
                disk.heal();
            }
            caught = trap.take();
            if caught.is_some() {
                // Records that became durable after the cut are lost with it.
                oracle.durable = acked;
                break;
            }
        }
        disk.clear_hook();
        trap.armed.store(false, SeqCst);
        let cut = match (caught, rng.below(3)) {
            (Some(cut), _) => Some(cut),
            (None, 0) => Some(disk.power_cut(rng.next())),
            _ => None,
        };
        match cut {
            Some(cut) => {
                log.abandon();
                disk = cut;
            }
            // Only the process ends. The page cache stays as it is, even if a sync has failed.
            None if rng.below(2) == 0 => log.abandon(),
            None => drop(log),
        }
        if rng.below(2) == 0 {
            disk.heal();
        }
    }
}

fn inject(disk: &SimDisk, rng: &mut Rng) {
    let ops = [
        Op::Any,
        Op::Write,
        Op::Sync,
        Op::SyncDir,
        Op::Rename,
        Op::Open,
        Op::Remove,
    ];
    let errno = [EIO, ENOSPC][rng.below(2) as usize];
    let op = ops[rng.below(7) as usize];
    let fault = Fault::new(op, errno).after(rng.below(10));
    disk.inject(fault.times(1 + rng.below(4)));
}

fn step(
    log: &Log,
    rng: &mut Rng,
    oracle: &mut Oracle,
    clock: &mut u64,
    nonce: &mut u64,
    faults: bool,
) {
    let last = log.last().index;
    assert_eq!(last, oracle.appended.len() as u64);
    let ok = |r: Result<()>| match r {
        Ok(()) => true,
        Err(e) => {
            assert!(faults && e.code() != Code::DataCorruptionDetected, "{e}");
            false
        }
    };
    match rng.below(40) {
        0 => {
            if ok(log.sync()) {
                assert!(!log.is_dirty());
                oracle.durable = last;
            }
        }
        1..4 => {
            let index = 1 + rng.below(last.max(1));
            if last > 0 && ok(log.wait_durable(index, &NeverInterrupted)) {
                assert!(log.durable() >= index);
                oracle.durable = oracle.durable.max(index);
            }
        }
        4 => {
            ok(log.roll());
        }
        5 | 6 => {
            // Only durable records may be trimmed.
            let some = rng.below(oracle.durable + 1) as usize;
            let below = oracle.appended[..some]
                .last()
                .map_or(Timestamp::ZERO, |e| e.2);
            oracle.trimmed = oracle.trimmed.max(below);
            ok(log.trim(below));
        }
        7 => {
            let start = oracle
                .appended
                .partition_point(|e| e.2 <= log.begins_after());
            let after = start + rng.below((last + 1).saturating_sub(start as u64)) as usize;
            let at = oracle.appended[..after]
                .last()
                .map_or(Timestamp::ZERO, |e| e.2);
            let mut reader = log.read(at);
            for expected in &oracle.appended[after..] {
                match reader.next() {
                    Ok(r) => {
                        let r = r.expect("the end comes too early");
                        let found = (r.index, r.term, r.at, r.payload.to_vec());
                        assert_eq!(found, *expected);
                    }
                    Err(e) => {
                        ok(Err(e));
                        return;
                    }
                }
            }
            match reader.next() {
                Ok(r) => assert!(r.is_none()),
                Err(e) => assert!(!ok(Err(e))),
            }
        }
        _ => {
            *clock += 1 + rng.below(3);
            *nonce += 1;
            let len = match rng.below(40) {
                0 => 9000 + rng.below(20_000),
                1..4 => rng.below(4000),
                _ => rng.below(200),
            };
            let bytes = payload(*nonce, len as usize);
            let entry = (last + 1, *nonce % 5, ts(*clock), bytes);
            let (a, b) = entry.3.split_at(rng.below(len + 1) as usize);
            match log.append(entry.1, entry.2, &[a, b]) {
                Ok(index) => {
                    assert_eq!(index, last + 1);
                    oracle.appended.push(entry);
                }
                Err(e) => {
                    ok(Err(e));
                    oracle.ghosts.push(entry);
                }
            }
        }
    }
    assert!(log.durable() <= log.last().index);
}

fn courses(seeds: std::ops::Range<u64>, faults: bool) {
    for seed in seeds {
        let run = std::panic::AssertUnwindSafe(|| course(seed, faults));
        if let Err(e) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}, faults {faults}");
            std::panic::resume_unwind(e);
        }
    }
}

fn runs(ordinary: u64) -> std::ops::Range<u64> {
    match std::env::var_os("MUNIMENT_LONG") {
        Some(_) => 0..ordinary * 50,
        None => 0..ordinary,
    }
}

#[test]
fn power_cuts_at_any_moment() {
    courses(runs(150), false);
}

#[test]
fn power_cuts_and_failing_operations() {
    courses(runs(150), true);
}
