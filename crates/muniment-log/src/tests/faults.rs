//! One operation fails: what was acknowledged stays, and the log reports the error.

use super::*;
use muniment_io::sim::{EIO, ENOSPC, Fault, Op};
use muniment_op::NeverInterrupted;
use parking_lot::Mutex;
use std::collections::HashMap;

#[test]
fn a_failed_sync_is_never_acknowledged_later() {
    for reopen in [false, true] {
        for seed in 0..60 {
            let disk = SimDisk::new();
            let (log, _) = open(&disk).unwrap();
            append(&log, 100).unwrap();
            log.sync().unwrap();
            for _ in 0..8 {
                append(&log, 500).unwrap();
            }
            // The fault is for a segment in use, not for one that is being made.
            disk.inject(Fault::new(Op::Sync, EIO).on(".log").times(1));
            let e = log.wait_durable(9, &NeverInterrupted).unwrap_err();
            assert!(e.message().contains("sync"), "{e}");
            // The next sync would succeed, although the data may be lost.
            for result in [
                log.wait_durable(9, &NeverInterrupted),
                log.wait_durable(2, &NeverInterrupted),
                log.sync(),
                append(&log, 1).map(drop),
                append(&log, 100_000).map(drop),
                log.roll(),
            ] {
                assert_eq!(result.unwrap_err().message(), e.message());
            }
            log.wait_durable(1, &NeverInterrupted).unwrap();
            assert_eq!((log.durable(), log.is_dirty()), (1, true));
            assert_eq!(log.failure().unwrap().message(), e.message());
            drop(log);
            let mut least = 1;
            if reopen {
                // The records are read from the page cache, and made durable before they count.
                let (log, seen) = open(&disk).unwrap();
                assert_eq!((seen.len(), log.durable()), (9, 9));
                assert!(log.failure().is_none());
                assert_eq!(append(&log, 10).unwrap(), 10);
                log.wait_durable(10, &NeverInterrupted).unwrap();
                log.abandon();
                least = 10;
            }
            let (_, seen) = open(&disk.power_cut(seed)).unwrap();
            assert!(seen.len() >= least, "{}", seen.len());
            check(&seen, 1);
        }
    }
}

#[test]
fn a_record_in_parts_whose_append_failed_is_not_there_after_a_crash() {
    // The writes are two parts, the padding and the header. With this timestamp every byte of the header
    // counts.
    let late = Timestamp(u64::MAX - 1);
    for refused in 0..4 {
        let disk = SimDisk::new();
        let (log, _) = open(&disk).unwrap();
        append(&log, 100).unwrap();
        append(&log, 100).unwrap();
        disk.inject(
            Fault::new(Op::Write, EIO)
                .on(".log")
                .after(refused)
                .times(1),
        );
        let long = payload(3, 1001);
        let (a, b) = long.split_at(400);
        log.append(0, late, &[a, b]).unwrap_err();
        log.abandon();
        disk.heal();
        let (log, seen) = open(&disk).unwrap();
        assert_eq!(seen.len(), 2, "write {refused}");
        append(&log, 1001).unwrap();
        log.abandon();
        check(&open(&disk).unwrap().1, 1);
    }
}

#[test]
fn a_failed_append_is_dropped_even_if_it_is_there() {
    for (len, seed) in [(100, 0), (1001, 1), (100_000, 2)] {
        let disk = SimDisk::new();
        let (log, _) = open(&disk).unwrap();
        append(&log, 100).unwrap();
        append(&log, 100).unwrap();
        // As if the disk had written the record and reported that it had not.
        log.append(0, ts(3), &[&payload(99, len)]).unwrap();
        log.abandon();
        let until = |n| LogOptions {
            until: Some(n),
            ..options(&disk)
        };
        let (log, seen) = open_from(until(2), Timestamp::ZERO).unwrap();
        assert_eq!((seen.len(), log.last().index, log.durable()), (2, 2, 2));
        assert_eq!(append(&log, 200).unwrap(), 3);
        log.sync().unwrap();
        log.abandon();
        let (log, seen) = open(&disk.power_cut(seed)).unwrap();
        assert_eq!((seen.len(), log.last().index), (3, 3), "{len} bytes");
        check(&seen, 1);
        log.abandon();
        // Records that are part of the log are not cut.
        assert_eq!(open_from(until(3), Timestamp::ZERO).unwrap().1.len(), 3);
    }
}

#[test]
fn a_write_that_fails_appends_nothing_and_the_log_goes_on() {
    for seed in 0..60 {
        let disk = SimDisk::new();
        let (log, _) = open(&disk).unwrap();
        for _ in 0..5 {
            append(&log, 100).unwrap();
        }
        for errno in [EIO, ENOSPC] {
            let last = log.last();
            disk.inject(Fault::new(Op::Write, errno).on(".log").times(1));
            let e = append(&log, 1000).unwrap_err();
            let full = e.code() == Code::OutOfDiskSpace;
            assert_eq!(full, errno == ENOSPC, "{e}");
            assert_eq!(log.last(), last);
            append(&log, 30).unwrap();
        }
        log.sync().unwrap();
        assert_eq!(read_all(&log, Timestamp::ZERO).len(), 7);
        log.abandon();
        let (log, seen) = open(&disk.power_cut(seed)).unwrap();
        assert_eq!((seen.len(), log.last().index), (7, 7));
        check(&seen, 1);
    }
}

/// The last durable and the last appended index of a course with a failing operation.
fn some_work(disk: &SimDisk) -> (u64, u64) {
    let (mut durable, mut appended, mut from) = (0, 0, Timestamp::ZERO);
    for _ in 0..3 {
        let Ok((log, seen)) = open_from(options(disk), from) else {
            continue;
        };
        check(&seen, (from.0 >> 8) + 1);
        appended = log.last().index;
        for n in 0..60 {
            let len = if n == 30 { 20_000 } else { 300 };
            if append(&log, len).is_ok() {
                appended = log.last().index;
            }
            if n % 10 == 9 && log.sync().is_ok() {
                durable = appended;
            }
            if n % 25 == 24 {
                from = from.max(ts(durable / 2));
                let _ = log.trim(from);
            }
        }
    }
    let _ = from;
    (durable, appended)
}

#[test]
fn every_operation_in_turn_fails() {
    let clean = SimDisk::new();
    some_work(&clean);
    let all = clean.count(Op::Any);
    assert!(all > 300, "{all}");
    for errno in [EIO, ENOSPC] {
        for n in (0..all).step_by(3) {
            for times in [1, u64::MAX] {
                let disk = SimDisk::new();
                disk.inject(Fault::new(Op::Any, errno).after(n).times(times));
                let (durable, appended) = some_work(&disk);
                disk.heal();
                for disk in [disk.power_cut(n), disk] {
                    let from = ts(durable / 2);
                    let (log, seen) = open_from(options(&disk), from)
                        .unwrap_or_else(|e| panic!("operation {n}, {times} times: {e}"));
                    let last = log.last().index;
                    // There may be one record more, whose append failed.
                    assert!((durable..=appended + 1).contains(&last), "{n}");
                    check(&seen, durable / 2 + 1);
                    append(&log, 10).unwrap();
                    log.sync().unwrap();
                }
            }
        }
    }
}

#[test]
fn a_full_disk_stops_appends_and_nothing_else() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    disk.set_capacity(5 * 8192);
    let mut n = 0;
    let e = loop {
        match append(&log, 200) {
            Ok(index) => n = index,
            Err(e) => break e,
        }
    };
    assert_eq!(e.code(), Code::OutOfDiskSpace);
    assert!(n > 100, "{n}");
    assert_eq!(
        append(&log, 50_000).unwrap_err().code(),
        Code::OutOfDiskSpace
    );
    log.sync().unwrap();
    assert_eq!(read_all(&log, Timestamp::ZERO).len() as u64, n);
    // The log can be closed and opened, and a trim makes room.
    drop(log);
    let (log, seen) = open(&disk).unwrap();
    assert_eq!(seen.len() as u64, n);
    log.trim(ts(n)).unwrap();
    for _ in 0..60 {
        append(&log, 200).unwrap();
    }
    log.sync().unwrap();
    assert_eq!(log.last().index, n + 60);
}

#[test]
fn the_visitors_error_is_returned_and_changes_nothing() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    for _ in 0..5 {
        append(&log, 10).unwrap();
    }
    drop(log);
    let e = Log::open(options(&disk), Timestamp::ZERO, &mut |r| match r.index {
        3 => Err(Error::new(Code::Interrupted, "stop")),
        _ => Ok(()),
    });
    assert_eq!(e.err().unwrap().code(), Code::Interrupted);
    assert_eq!(open(&disk).unwrap().1.len(), 5);
}

#[test]
fn a_sync_does_not_acknowledge_later_appends() {
    let disk = SimDisk::new();
    let log = Arc::new(open(&disk).unwrap().0);
    append(&log, 100).unwrap();
    let (l, once) = (log.clone(), std::sync::Once::new());
    disk.set_hook(move |op, path| {
        if op == Op::Sync && path.extension().is_some_and(|e| e == "log") {
            once.call_once(|| drop(append(&l, 100)));
        }
    });
    log.sync().unwrap();
    disk.clear_hook();
    assert_eq!(
        (log.last().index, log.durable(), log.is_dirty()),
        (2, 1, true)
    );
    log.sync().unwrap();
    assert_eq!(log.durable(), 2);
}

#[test]
fn nothing_is_written_after_the_end_that_a_failed_begin_may_have_set() {
    // Any part of the begin may have been written; in some of these rounds it is all of it.
    for round in 0..300 {
        let disk = SimDisk::new();
        let (log, _) = open(&disk).unwrap();
        for _ in 0..=round % 97 {
            append(&log, 1).unwrap();
        }
        disk.inject(Fault::new(Op::Write, EIO).on(".log").times(1));
        log.roll().unwrap_err();
        let last = append(&log, round / 97).unwrap();
        log.sync().unwrap();
        log.abandon();
        let (_, seen) = open(&disk).unwrap();
        assert_eq!(seen.len() as u64, last, "round {round}");
        check(&seen, 1);
    }
}

/// Readers see the record that got the index of a refused one before it is durable, and may pass it to
/// others. That index must never be the refused record's afterwards.
#[test]
fn a_record_that_was_refused_does_not_come_back_in_the_place_of_the_next_one() {
    for large in [false, true] {
        // Any part of the refused record may have been written; in some of these rounds it is all of it.
        for round in 0..400 {
            let disk = SimDisk::new();
            let (log, _) = open(&disk).unwrap();
            append(&log, 1 + round % 97).unwrap();
            log.sync().unwrap();
            disk.inject(Fault::new(Op::Write, EIO).on(".log").times(1));
            let refused = payload(99, if large { 9000 } else { 1 });
            log.append(0, ts(2), &[&refused]).unwrap_err();
            assert_eq!(append(&log, 1).unwrap(), 2);
            assert_eq!(read_all(&log, ts(1)).len(), 1);
            log.abandon();
            let (_, seen) = open(&disk.power_cut(round as u64)).unwrap();
            check(&seen, 1);
        }
    }
}

/// A trim that failed is tried again, and whatever a power cut leaves of it, the log has no gap.
#[test]
fn a_trim_that_failed_goes_on_later() {
    for op in [Op::Rename, Op::Remove, Op::SyncDir] {
        for after in 0..6 {
            for times in [1, 3] {
                let disk = SimDisk::new();
                let (log, _) = open(&disk).unwrap();
                for _ in 0..400 {
                    append(&log, 300).unwrap();
                }
                log.sync().unwrap();
                let before = segments(&disk).len();
                disk.inject(Fault::new(op, EIO).after(after).times(times));
                let mut failed = 0;
                let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
                while let Err(e) = log.trim(ts(390)) {
                    assert!(e.message().contains("log"), "{e}");
                    assert!(std::time::Instant::now() < until, "{e}");
                    failed += 1;
                    let cut = disk.power_cut(failed);
                    let (_, seen) = open_from(options(&cut), ts(390)).unwrap();
                    assert_eq!(seen.len(), 10);
                    check(&seen, 391);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                disk.heal();
                // The trim is complete, as if nothing had failed.
                assert!(before > 15 && segments(&disk).len() <= 4, "{op:?} {after}");
                assert!(failed > 0 || op == Op::Rename, "{op:?} {after}");
                for _ in 0..100 {
                    append(&log, 300).unwrap();
                }
                log.sync().unwrap();
                log.abandon();
                let (_, seen) = open_from(options(&disk.power_cut(after)), ts(390)).unwrap();
                assert_eq!(seen.len(), 110);
                check(&seen, 391);
            }
        }
    }
}

/// A trim that keeps failing is not tried again with every call.
#[test]
fn a_trim_that_goes_on_failing_is_put_off() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    for _ in 0..200 {
        append(&log, 300).unwrap();
    }
    log.sync().unwrap();
    disk.inject(Fault::new(Op::SyncDir, EIO));
    let before = disk.count(Op::SyncDir);
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_millis(200) {
        log.trim(ts(190)).unwrap_err();
    }
    let tries = disk.count(Op::SyncDir) - before;
    assert!((2..=9).contains(&tries), "{tries}");
}

/// Nothing remains of a large record that is prepared and not appended, and other appends do not wait while
/// one is prepared.
#[test]
fn a_large_record_is_prepared_beside_others() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    append(&log, 100).unwrap();
    let p = payload(2, 100_000);
    drop(log.prepare(&[&p]).unwrap());
    log.trim(Timestamp::ZERO).unwrap();
    // The current segment, and one that was made ahead beside the large record's.
    log.settle().unwrap();
    assert!(segments(&disk).len() <= 2, "{:?}", segments(&disk));
    let big = payload(4, 100_000);
    let ready = log.prepare(&[&big]).unwrap();
    // Other records are appended before it.
    append(&log, 100).unwrap();
    append(&log, 20_000).unwrap();
    assert_eq!(log.append_ready(0, ts(4), ready).unwrap(), 4);
    append(&log, 100).unwrap();
    let late = log.prepare(&[b"late"]).unwrap();
    let e = log.append_ready(0, ts(3), late).unwrap_err();
    assert_eq!(e.code(), Code::InternalError);
    log.sync().unwrap();
    log.abandon();
    for seed in 0..20 {
        let (_, seen) = open(&disk.power_cut(seed)).unwrap();
        assert_eq!(seen.len(), 5);
        check(&seen, 1);
    }
}

/// No file of a settled log changes by itself.
#[test]
fn a_settled_log_stands_still() {
    for n in [1, 5, 20, 21, 22, 23, 24, 25, 40] {
        let disk = SimDisk::new();
        let (log, _) = open(&disk).unwrap();
        for _ in 0..n {
            append(&log, 300).unwrap();
        }
        log.settle().unwrap();
        let files = || -> Vec<_> {
            let paths = disk.paths();
            paths.iter().map(|p| (p.clone(), disk.bytes(p))).collect()
        };
        let before = files();
        std::thread::sleep(std::time::Duration::from_millis(260));
        assert!(files() == before, "{n}");
        append(&log, 300).unwrap();
        log.settle().unwrap();
    }
}

fn growing(disk: &SimDisk) -> LogOptions {
    LogOptions {
        segment_bytes: 256 << 10,
        ..options(disk)
    }
}

/// The sizes of the segments, in the order in which they were made.
fn sizes(disk: &SimDisk) -> Vec<usize> {
    let size = |p: &std::path::PathBuf| disk.bytes(p).map_or(0, |b| b.len());
    segments(disk).iter().map(size).collect()
}

#[test]
fn the_segments_of_a_young_log_grow() {
    let disk = SimDisk::new();
    let (log, _) = open_from(growing(&disk), Timestamp::ZERO).unwrap();
    assert_eq!(sizes(&disk), [4096]);
    for _ in 0..2000 {
        append(&log, 200).unwrap();
    }
    let made = sizes(&disk);
    assert!(made.starts_with(&[4096, 16384, 65536, 262_144]), "{made:?}");
    drop(log);
    let (log, seen) = open_from(growing(&disk), Timestamp::ZERO).unwrap();
    assert_eq!(seen.len(), 2000);
    // Segments that have grown do not become small again.
    for _ in 0..4000 {
        append(&log, 200).unwrap();
    }
    log.settle().unwrap();
    let later = sizes(&disk).split_off(4);
    assert!(later.len() > 2, "{later:?}");
    assert!(later.iter().all(|size| *size == 262_144), "{later:?}");
}

#[test]
fn a_new_segment_is_synced_in_small_steps() {
    let disk = SimDisk::new();
    let (log, _) = open_from(growing(&disk), Timestamp::ZERO).unwrap();
    // For each unfinished file, the writes since its last sync; and the highest of these numbers.
    let counts = Arc::new(Mutex::new((HashMap::new(), 0)));
    let counted = counts.clone();
    disk.set_hook(move |op, path| {
        if path.extension().is_some_and(|e| e == "tmp") {
            let (unsynced, most) = &mut *counted.lock();
            let now: &mut usize = unsynced.entry(path.to_path_buf()).or_default();
            *now = if op == Op::Write { *now + 1 } else { 0 };
            *most = (*now).max(*most);
        }
    });
    // Segments are made ahead, and one for a record that fits into no other.
    for _ in 0..3000 {
        append(&log, 200).unwrap();
    }
    append(&log, 900 << 10).unwrap();
    log.settle().unwrap();
    disk.clear_hook();
    let most = counts.lock().1;
    assert!((1..=crate::segment::STEP >> 14).contains(&most), "{most}");
    drop(log);
    let (_, seen) = open_from(growing(&disk), Timestamp::ZERO).unwrap();
    assert_eq!(seen.len(), 3001);
    assert_eq!(seen[3000].3, payload(3001, 900 << 10));
}

/// Records that are too large for the next segments, in a log whose durable records are all in the trees. A
/// power cut before the sync may take any of them, and no record is missing then.
#[test]
fn large_records_in_a_young_log_and_a_power_cut() {
    for seed in 0..60 {
        let disk = SimDisk::new();
        let (log, _) = open_from(growing(&disk), Timestamp::ZERO).unwrap();
        append(&log, 100).unwrap();
        log.sync().unwrap();
        for len in [100_000, 10_000, 100, 60_000, 200_000, 100] {
            append(&log, len).unwrap();
        }
        log.abandon();
        for from in [0, 1] {
            let cut = disk.power_cut(seed);
            let (log, seen) = open_from(growing(&cut), ts(from)).unwrap();
            check(&seen, from + 1);
            assert!(from == 1 || !seen.is_empty(), "{seed}: what was durable");
            append(&log, 100_000).unwrap();
            log.sync().unwrap();
            let n = log.last().index;
            drop(log);
            let (_, seen) = open_from(growing(&cut), ts(from)).unwrap();
            assert_eq!(seen.len() as u64, n - from);
        }
    }
}

/// A torn record makes a new segment necessary. On a full disk the one that was made ahead serves.
#[test]
fn a_young_log_with_a_torn_tail_opens_on_a_full_disk() {
    for seed in 0..60 {
        let disk = SimDisk::new();
        let (log, _) = open_from(growing(&disk), Timestamp::ZERO).unwrap();
        append(&log, 100).unwrap();
        log.settle().unwrap();
        append(&log, 2000).unwrap();
        log.abandon();
        let cut = disk.power_cut(seed);
        let used: usize = cut
            .paths()
            .iter()
            .filter_map(|p| cut.bytes(p))
            .map(|b| b.len())
            .sum();
        cut.set_capacity(used as u64);
        let (_, seen) = open_from(growing(&cut), Timestamp::ZERO).unwrap();
        assert!(!seen.is_empty());
        check(&seen, 1);
    }
}
