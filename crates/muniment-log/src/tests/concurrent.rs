//! Threads that append, wait, read, trim and roll, while copies of the disk are taken in the states that a
//! power cut would leave.

use super::*;
use muniment_op::{Asked, NeverInterrupted, Operation};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// The records in the order of their appends, and how far they were acknowledged.
#[derive(Default)]
struct Known {
    /// The last timestamp, and the payload number of each record, from index 1 on.
    order: Mutex<(u64, Vec<u64>)>,
    acked: AtomicU64,
    /// The timestamp up to which the log may have been trimmed.
    trimmed: Mutex<u64>,
}

fn bytes(number: u64) -> Vec<u8> {
    payload(number, (number * 37 % 400) as usize)
}

fn appender(log: &Log, known: &Known, thread: u64, count: u64) {
    for i in 0..count {
        let number = thread << 32 | i;
        let bytes = bytes(number);
        let index = {
            // Takes the timestamp and appends under one lock, as the commit door does.
            let mut order = known.order.lock();
            order.0 += 1;
            order.1.push(number);
            let index = log.append(1, ts(order.0), &[&bytes]).unwrap();
            assert_eq!(index, order.1.len() as u64);
            index
        };
        if i % 3 == thread % 3 {
            log.wait_durable(index, &NeverInterrupted).unwrap();
            assert!(log.durable() >= index);
            known.acked.fetch_max(index, SeqCst);
        }
    }
}

fn reader(log: &Log, known: &Known, done: &AtomicBool) -> u64 {
    let mut after = log.begins_after();
    let mut read = 0;
    let mut reader = log.read(after);
    loop {
        let finished = done.load(SeqCst);
        match reader.next() {
            Ok(Some(r)) => {
                assert_eq!(r.at, ts(r.index));
                assert!(r.at > after);
                after = r.at;
                let number = known.order.lock().1[r.index as usize - 1];
                assert!(r.payload == bytes(number), "record {}", r.index);
                read += 1;
            }
            Ok(None) if finished => {
                assert_eq!(after, log.last().at, "the reader missed some");
                return read;
            }
            Ok(None) => std::thread::yield_now(),
            Err(e) => {
                assert_eq!(e.code(), Code::ChangeStreamHistoryLost, "{e}");
                after = log.begins_after();
                reader = log.read(after);
            }
        }
    }
}

/// Does everything at the same time, and calls `cut` again and again.
fn everything(options: LogOptions, threads: u64, count: u64, cut: &mut dyn FnMut(&Known)) {
    let (log, _) = open_from(options, Timestamp::ZERO).unwrap();
    let known = Known::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let (log, known, done) = (&log, &known, &done);
        let writers: Vec<_> = (0..threads)
            .map(|t| s.spawn(move || appender(log, known, t, count)))
            .collect();
        let readers: Vec<_> = (0..2)
            .map(|_| s.spawn(|| reader(log, known, done)))
            .collect();
        let trimmer = s.spawn(move || {
            while !done.load(SeqCst) {
                let below = known.acked.load(SeqCst).saturating_sub(500);
                *known.trimmed.lock() = below;
                log.trim(ts(below)).unwrap();
                if below % 7 == 0 {
                    log.roll().unwrap();
                }
                log.sync().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        while !writers.iter().all(|w| w.is_finished()) {
            cut(known);
        }
        for w in writers {
            w.join().unwrap();
        }
        done.store(true, SeqCst);
        trimmer.join().unwrap();
        for r in readers {
            assert!(r.join().unwrap() > 0);
        }
    });
    assert_eq!(log.last().index, threads * count);
    let stats = log.stats();
    assert_eq!(stats.commits, threads * count);
    assert!(stats.syncs > 0 && stats.waits > 0);
}

#[test]
fn threads_and_power_cuts() {
    let disk = SimDisk::new();
    let mut seed = 0;
    everything(options(&disk), 4, 3000, &mut |known| {
        seed += 1;
        // Records that were acknowledged before the cut must be there; records that were trimmed before need
        // not.
        let acked = known.acked.load(SeqCst);
        let (cut, from) = {
            let trimmed = known.trimmed.lock();
            (disk.power_cut(seed), *trimmed)
        };
        let (log, seen) =
            open_from(options(&cut), ts(from)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(log.last().index >= acked, "{} of {acked}", log.last().index);
        let order = known.order.lock();
        for (index, _, at, payload) in seen {
            assert_eq!(at, ts(index));
            assert!(payload == bytes(order.1[index as usize - 1]));
        }
    });
    assert!(seed > 1, "{seed}");
}

#[test]
fn threads_on_the_machines_disk() {
    let dir = tempfile::tempdir().unwrap();
    let options = LogOptions {
        segment_bytes: 64 << 10,
        ..LogOptions::new(dir.path())
    };
    everything(options, 8, 500, &mut |_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
    });
}

#[test]
fn one_sync_serves_all_who_wait() {
    let disk = SimDisk::new();
    disk.set_hook(|op, _| {
        if op == muniment_io::sim::Op::Sync {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    });
    let (log, _) = open(&disk).unwrap();
    let clock = Mutex::new(0);
    std::thread::scope(|s| {
        for _ in 0..16 {
            s.spawn(|| {
                for _ in 0..20 {
                    let index = {
                        let mut clock = clock.lock();
                        *clock += 1;
                        log.append(1, ts(*clock), &[b"x"]).unwrap()
                    };
                    log.wait_durable(index, &NeverInterrupted).unwrap();
                }
            });
        }
    });
    let stats = log.stats();
    assert_eq!(stats.waits, 320);
    assert!(stats.syncs <= 80, "{} syncs", stats.syncs);
}

#[test]
fn a_thread_that_gives_up_leaves_no_other_asleep() {
    let disk = SimDisk::new();
    disk.set_hook(|op, _| {
        if op == muniment_io::sim::Op::Sync {
            std::thread::sleep(Duration::from_micros(300));
        }
    });
    let (log, _) = open(&disk).unwrap();
    let clock = Mutex::new(0);
    let gave_up = AtomicU64::new(0);
    std::thread::scope(|s| {
        for thread in 0..12_u64 {
            let (log, clock, gave_up) = (&log, &clock, &gave_up);
            s.spawn(move || {
                for i in 0..150 {
                    let index = {
                        let mut clock = clock.lock();
                        *clock += 1;
                        log.append(1, ts(*clock), &[b"x"]).unwrap()
                    };
                    // Some threads are interrupted at once, others at a later check, which may be just when
                    // they were chosen to lead.
                    let patience = (i * 7 + thread) % 5;
                    let looks = AtomicU64::new(0);
                    let asked =
                        Asked(
                            || match patience < 3 && looks.fetch_add(1, SeqCst) >= patience {
                                true => Err(Error::internal("given up")),
                                false => Ok(()),
                            },
                        );
                    let waited = log.wait_durable(index, &asked);
                    match waited {
                        Ok(()) => assert!(log.durable() >= index),
                        Err(_) => drop(gave_up.fetch_add(1, SeqCst)),
                    }
                }
            });
        }
    });
    assert!(gave_up.into_inner() > 0);
    // A forgotten thread would still sleep, as no other thread comes at the end to wake it.
    assert!(log.stats().syncs > 0);
}

#[test]
fn a_kill_ends_the_wait_for_a_sync_that_does_not_end() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    for len in [10, 20] {
        append(&log, len).unwrap();
    }
    let blocked = std::sync::Arc::new(AtomicBool::new(true));
    let entered = std::sync::Arc::new(AtomicBool::new(false));
    let (blocks, enters) = (blocked.clone(), entered.clone());
    disk.set_hook(move |op, _| {
        while op == muniment_io::sim::Op::Sync && blocks.load(SeqCst) {
            enters.store(true, SeqCst);
            std::thread::yield_now();
        }
    });
    let op = Operation::new(std::time::Instant::now(), None);
    std::thread::scope(|s| {
        let leads = s.spawn(|| log.wait_durable(1, &NeverInterrupted));
        while !entered.load(SeqCst) {
            std::thread::yield_now();
        }
        let waits = s.spawn(|| log.wait_durable(2, &op));
        while !op.is_waiting() {
            assert!(!waits.is_finished(), "it did not wait");
            std::thread::yield_now();
        }
        let killed = std::time::Instant::now();
        op.kill(Code::Interrupted);
        let e = waits.join().unwrap().unwrap_err();
        println!("sync of the log: {:?}", killed.elapsed());
        assert_eq!(e.code(), Code::Interrupted);
        assert!(!leads.is_finished() && !op.is_waiting());
        blocked.store(false, SeqCst);
        leads.join().unwrap().unwrap();
    });
    log.wait_durable(2, &NeverInterrupted).unwrap();
}
