//! Cuts of records that are whole and durable remove all of them or none, whatever happens.

use super::*;
use muniment_io::sim::{EIO, Fault, Op};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

fn cut_behind(disk: &SimDisk, index: u64) -> LogOptions {
    LogOptions {
        cut_behind: Some(index),
        ..options(disk)
    }
}

/// A disk with this many records in several segments, one of them in a segment of its own; all are durable.
fn written(n: u64) -> SimDisk {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    for i in 1..=n {
        append(&log, if i == n / 2 { 20_000 } else { 700 }).unwrap();
    }
    log.sync().unwrap();
    match n.is_multiple_of(2) {
        // Marked as durable, or as a crash of the process leaves the log.
        true => drop(log),
        false => log.abandon(),
    }
    disk
}

/// Appends records that can be told from those that were there before the cut.
fn again(log: &Log, n: u64) {
    for _ in 0..n {
        let index = log.last().index + 1;
        let found = log.append(9, ts(index), &[b"again", &payload(index, 300)]);
        assert_eq!(found.unwrap(), index);
    }
}

fn check_again(seen: &Seen, cut: u64, n: u64) {
    let (old, new) = seen.split_at(cut as usize);
    check(&old.to_vec(), 1);
    assert_eq!(new.len() as u64, n);
    assert!(new.iter().all(|r| r.1 == 9 && r.3.starts_with(b"again")));
}

#[test]
fn records_after_the_cut_are_gone_for_good() {
    for n in [60, 61] {
        for cut in [0, 1, 5, 11, 12, 29, 30, 31, 59, 60, 61, 70] {
            let disk = written(n);
            let left = cut.min(n);
            let (log, seen) = open_from(cut_behind(&disk, cut), Timestamp::ZERO).unwrap();
            assert_eq!((seen.len() as u64, log.last().index), (left, left));
            assert_eq!((log.durable(), log.last().term), (left, left / 10));
            check(&seen, 1);
            // As long as nothing was appended, the cut may be repeated.
            drop(log);
            let (log, _) = open_from(cut_behind(&disk, cut), Timestamp::ZERO).unwrap();
            again(&log, 40);
            assert_eq!(read_all(&log, Timestamp::ZERO).len() as u64, left + 40);
            log.sync().unwrap();
            log.abandon();
            for seed in 0..8 {
                let (_, seen) = open(&disk.power_cut(seed)).unwrap();
                check_again(&seen, left, 40);
            }
        }
    }
}

#[test]
fn a_power_cut_at_any_operation_leaves_all_or_nothing() {
    let n = 61;
    for cut in [0, 7, 30, 31, 50] {
        let mut at = 0;
        loop {
            let disk = written(n);
            let caught: Arc<Mutex<Option<SimDisk>>> = Arc::default();
            let (to, count, d) = (caught.clone(), AtomicU64::new(0), disk.clone());
            disk.set_hook(move |_, _| {
                if count.fetch_add(1, SeqCst) == at {
                    *to.lock() = Some(d.power_cut(at));
                }
            });
            let (log, _) = open_from(cut_behind(&disk, cut), Timestamp::ZERO).unwrap();
            log.abandon();
            disk.clear_hook();
            let Some(left) = caught.lock().take() else {
                assert!(at > 5, "{at}");
                break;
            };
            // The log is opened without the option.
            let (log, seen) = open(&left).unwrap();
            let last = log.last().index;
            assert!(last == n || last == cut, "{last}, operation {at}");
            check(&seen, 1);
            log.abandon();
            let (log, seen) = open_from(cut_behind(&left, cut), Timestamp::ZERO).unwrap();
            assert_eq!(seen.len() as u64, cut, "operation {at}");
            again(&log, 30);
            log.sync().unwrap();
            log.abandon();
            let (_, seen) = open(&left.power_cut(at)).unwrap();
            check_again(&seen, cut, 30);
            at += 1;
        }
    }
}

#[test]
fn a_cut_that_fails_can_be_done_later() {
    let n = 60;
    for cut in [3, 30, 44] {
        for after in 0..60 {
            let disk = written(n);
            disk.inject(Fault::new(Op::Any, EIO).after(after).times(1));
            let first = open_from(cut_behind(&disk, cut), Timestamp::ZERO);
            disk.heal();
            if let Ok((log, seen)) = first {
                assert_eq!(seen.len() as u64, cut);
                log.abandon();
            }
            for left in [disk.power_cut(after), disk] {
                let last = open(&left).unwrap().0.last().index;
                assert!(last == n || last == cut, "{last}, operation {after}");
                let (log, _) = open_from(cut_behind(&left, cut), Timestamp::ZERO).unwrap();
                again(&log, 3);
                log.sync().unwrap();
                log.abandon();
                check_again(&open(&left).unwrap().1, cut, 3);
            }
        }
    }
}

#[test]
fn records_that_are_in_use_are_not_cut() {
    let disk = written(61);
    for (cut, from) in [(10, 11), (10, 61), (0, 1), (44, 60)] {
        let e = open_from(cut_behind(&disk, cut), ts(from)).err().unwrap();
        assert!(e.message().contains("cannot be cut"), "{e}");
        assert_eq!(open(&disk).unwrap().1.len(), 61);
    }
    let (log, seen) = open_from(cut_behind(&disk, 50), ts(50)).unwrap();
    assert_eq!((seen.len(), log.last().index), (0, 50));
}

/// Damage before the cut is reported; damage after it does not matter.
#[test]
fn damage_after_the_cut_goes_with_it() {
    for (cut, is_sound) in [(40, false), (20, true)] {
        let disk = written(61);
        let bytes = payload(35, 700);
        let is_there = |p: &&PathBuf| {
            let file = disk.bytes(p).unwrap_or_default();
            file.windows(bytes.len()).any(|w| w == bytes)
        };
        let path = segments(&disk).iter().find(is_there).cloned().unwrap();
        let file = disk.bytes(&path).unwrap();
        let at = file.windows(700).position(|w| w == bytes).unwrap();
        assert!(disk.flip_bit(&path, at as u64 + 300, 0));
        let opened = open_from(cut_behind(&disk, cut), Timestamp::ZERO);
        assert_eq!(opened.is_ok(), is_sound);
    }
}
