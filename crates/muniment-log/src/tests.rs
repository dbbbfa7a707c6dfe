#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use muniment_io::SimDisk;
use muniment_io::sim::{EIO, Fault, Op};
use muniment_op::{Asked, NeverInterrupted};
use muniment_value::{Code, Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod concurrent;
mod cut;
mod damage;
mod faults;
mod model;
mod places;
mod refused;

const DIR: &str = "/log";

fn options(disk: &SimDisk) -> LogOptions {
    LogOptions {
        disk: Arc::new(disk.clone()),
        segment_bytes: 8192,
        ..LogOptions::new(Path::new(DIR))
    }
}

fn ts(n: u64) -> Timestamp {
    Timestamp(n << 8)
}

/// The payload of record `index`, in which any wrong byte can be noticed.
fn payload(index: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (index.wrapping_mul(0x9e37_79b9).wrapping_add(i * 7) >> 3) as u8)
        .collect()
}

/// The records that a log read when it was opened: index, term, timestamp, payload.
type Seen = Vec<(u64, u64, Timestamp, Vec<u8>)>;

fn open_from(options: LogOptions, from: Timestamp) -> Result<(Log, Seen)> {
    let mut seen = Vec::new();
    let log = Log::open(options, from, &mut |r| {
        seen.push((r.index, r.term, r.at, r.payload.to_vec()));
        Ok(())
    })?;
    Ok((log, seen))
}

fn open(disk: &SimDisk) -> Result<(Log, Seen)> {
    open_from(options(disk), Timestamp::ZERO)
}

fn append(log: &Log, len: usize) -> Result<u64> {
    let n = log.last().index + 1;
    let p = payload(n, len);
    let (a, b) = p.split_at(len / 3);
    log.append(n / 10, ts(n), &[a, b])
}

/// Checks that `seen` are the records from `first` on, each as [`append`] made it.
fn check(seen: &Seen, first: u64) {
    for (i, (index, term, at, bytes)) in seen.iter().enumerate() {
        let n = first + i as u64;
        assert_eq!((*index, *term, *at), (n, n / 10, ts(n)));
        assert!(*bytes == payload(n, bytes.len()), "payload of {n}");
    }
}

fn read_all(log: &Log, after: Timestamp) -> Seen {
    let mut reader = log.read(after);
    let mut seen = Vec::new();
    while let Some(r) = reader.next().unwrap() {
        seen.push((r.index, r.term, r.at, r.payload.to_vec()));
    }
    seen
}

fn segments(disk: &SimDisk) -> Vec<PathBuf> {
    let all = disk.paths().into_iter();
    all.filter(|p| p.extension().is_some_and(|e| e == "log"))
        .collect()
}

#[test]
fn durable_records_are_not_synced_again_for_later_ones() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    append(&log, 10).unwrap();
    append(&log, 10).unwrap();
    log.sync_up_to(1).unwrap();
    let syncs = log.stats().syncs;
    assert_eq!((log.durable(), syncs), (2, 1));
    append(&log, 10).unwrap();
    log.sync_up_to(2).unwrap();
    assert_eq!((log.durable(), log.stats().syncs), (2, syncs));
    log.sync_up_to(3).unwrap();
    assert_eq!(log.durable(), 3);
    // A sync up to a record that was never appended does not wait for it.
    log.sync_up_to(99).unwrap();
    append(&log, 10).unwrap();
    disk.inject(Fault::new(Op::Sync, EIO).on(".log").times(1));
    assert!(log.sync_up_to(4).is_err());
    assert!(log.sync_up_to(4).is_err());
}

#[test]
fn appends_are_there_after_reopening_and_for_readers() {
    let disk = SimDisk::new();
    let (log, seen) = open(&disk).unwrap();
    assert!(seen.is_empty());
    assert_eq!(log.last(), Position::default());
    assert!(!log.is_dirty());
    for n in 1..=300 {
        let len = [0, 1, 7, 8, 120, 700, 5000][n as usize % 7];
        assert_eq!(append(&log, len).unwrap(), n);
    }
    assert!(log.is_dirty());
    assert!(log.durable() < 300);
    log.wait_durable(300, &NeverInterrupted).unwrap();
    assert_eq!(log.durable(), 300);
    let e = log.append(1, ts(300), &[]).unwrap_err();
    assert_eq!(e.code(), Code::InternalError);
    assert!(log.wait_durable(301, &NeverInterrupted).is_err());
    let live = read_all(&log, Timestamp::ZERO);
    assert_eq!(live.len(), 300);
    check(&live, 1);
    for after in 0..300 {
        let part = read_all(&log, ts(after));
        assert_eq!(part[..], live[after as usize..]);
    }
    drop(log);
    for _ in 0..3 {
        let (log, seen) = open(&disk).unwrap();
        assert_eq!(seen, live);
        assert_eq!((log.last().index, log.last().at), (300, ts(300)));
        assert_eq!(log.durable(), 300);
        assert_eq!(read_all(&log, ts(100))[..], live[100..]);
    }
    let (_log, seen) = open_from(options(&disk), ts(250)).unwrap();
    assert_eq!(seen[..], live[250..]);
}

#[test]
fn a_clean_restart_needs_no_new_segment() {
    let disk = SimDisk::new();
    for n in 1..20 {
        let (log, seen) = open(&disk).unwrap();
        assert_eq!(seen.len() as u64, n - 1);
        append(&log, 50).unwrap();
        if n % 2 == 0 {
            // Like a crash of the process alone.
            log.abandon();
        }
    }
    // The segment that everything fits into, and a spare one, which a log requests as soon as it is written
    // to: the helper may have made it by now.
    assert!(segments(&disk).len() <= 2, "{:?}", segments(&disk));
}

#[test]
fn a_record_larger_than_a_segment() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    for len in [10, 100_000, 10, 8192, 7000, 300_000, 300_000, 10] {
        append(&log, len).unwrap();
    }
    log.sync().unwrap();
    assert_eq!(read_all(&log, Timestamp::ZERO).len(), 8);
    log.abandon();
    for seed in 0..20 {
        let (log, seen) = open(&disk.power_cut(seed)).unwrap();
        assert_eq!(seen.len(), 8);
        check(&seen, 1);
        assert_eq!(read_all(&log, Timestamp::ZERO), seen);
    }
}

#[test]
fn trimmed_segments_are_used_again_and_say_nothing() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    let mut most = 0;
    for n in 1..=3000 {
        append(&log, 100).unwrap();
        if n % 50 == 0 {
            log.trim(ts(n - 60.min(n))).unwrap();
            most = most.max(disk.used());
        }
    }
    assert!(most < 12 * 8192, "{most}");
    let first = log.begins_after();
    assert!(first > ts(2700), "{first}");
    let e = log.read(Timestamp::ZERO).next().unwrap_err();
    assert_eq!(e.code(), Code::ChangeStreamHistoryLost);
    check(&read_all(&log, ts(2950)), 2951);
    log.sync().unwrap();
    log.abandon();
    for seed in 0..50 {
        let cut = disk.power_cut(seed);
        let (log, seen) = open_from(options(&cut), ts(2940)).unwrap();
        assert_eq!((seen.len(), log.last().at), (60, ts(3000)));
        check(&seen, 2941);
        drop(log);
        // Records that are needed were trimmed, so the log must not open as if nothing were missing.
        let e = open(&cut).err().unwrap();
        assert_eq!(e.code(), Code::DataCorruptionDetected);
    }
}

#[test]
fn where_room_is_short_no_file_waits_to_be_used_again() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    let waiting = || {
        let paths = disk.paths().into_iter();
        paths
            .filter(|p| p.extension().is_some_and(|e| e == "free"))
            .count()
    };
    for n in 1..=600 {
        append(&log, 100).unwrap();
        if n % 100 == 0 {
            log.trim(ts(n - 60)).unwrap();
        }
    }
    assert!(waiting() > 0);
    let short = Keep {
        short: true,
        ..Keep::default()
    };
    log.trim_keeping(ts(590), &short).unwrap();
    assert_eq!(waiting(), 0);
    assert!(log.begins_after() > ts(400));
    for _ in 0..200 {
        append(&log, 100).unwrap();
    }
    log.trim_keeping(ts(790), &short).unwrap();
    assert_eq!(waiting(), 0);
    log.sync().unwrap();
    check(&read_all(&log, ts(780)), 781);
    log.abandon();
    for seed in 0..20 {
        let (log, seen) = open_from(options(&disk.power_cut(seed)), ts(790)).unwrap();
        assert_eq!((seen.len(), log.last().at), (10, ts(800)));
        assert_eq!(append(&log, 3).unwrap(), 801);
    }
}

#[test]
fn an_emptied_log_counts_on() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    for _ in 0..5 {
        append(&log, 10).unwrap();
    }
    log.roll().unwrap();
    log.trim(ts(5)).unwrap();
    assert_eq!(log.begins_after(), ts(5));
    log.abandon();
    for seed in 0..50 {
        let (log, seen) = open_from(options(&disk.power_cut(seed)), ts(5)).unwrap();
        assert!(seen.is_empty());
        assert_eq!((log.last().index, log.last().at), (5, ts(5)));
        assert_eq!(append(&log, 3).unwrap(), 6);
    }
}

#[test]
fn a_reader_in_a_trimmed_segment_reads_on_or_is_told() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    for _ in 0..40 {
        append(&log, 400).unwrap();
    }
    let mut reader = log.read(Timestamp::ZERO);
    assert_eq!(reader.next().unwrap().unwrap().index, 1);
    log.trim(ts(40)).unwrap();
    for _ in 0..100 {
        append(&log, 400).unwrap();
        log.trim(log.last().at).unwrap();
    }
    let mut n = 1;
    let e = loop {
        match reader.next() {
            Ok(Some(r)) => {
                n += 1;
                assert_eq!((r.index, r.payload), (n, &payload(n, 400)[..]));
            }
            Ok(None) => panic!("the end"),
            Err(e) => break e,
        }
    };
    assert!(n > 5, "{n}");
    assert_eq!(e.code(), Code::ChangeStreamHistoryLost);
}

#[test]
fn waiting_can_be_interrupted() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    append(&log, 10).unwrap();
    let e = log
        .wait_durable(1, &Asked(|| Err(Error::new(Code::Interrupted, "killed"))))
        .unwrap_err();
    assert_eq!(e.code(), Code::Interrupted);
    log.wait_durable(1, &NeverInterrupted).unwrap();
}

#[test]
fn on_the_machines_disk() {
    let dir = tempfile::tempdir().unwrap();
    let options = || LogOptions {
        segment_bytes: 64 << 10,
        ..LogOptions::new(&dir.path().join("log"))
    };
    let (log, _) = open_from(options(), Timestamp::ZERO).unwrap();
    for n in 1..=2000u64 {
        append(&log, 200).unwrap();
        if n % 100 == 0 {
            log.wait_durable(n, &NeverInterrupted).unwrap();
        }
    }
    append(&log, 1 << 20).unwrap();
    assert_eq!(read_all(&log, Timestamp::ZERO).len(), 2001);
    drop(log);
    let (log, seen) = open_from(options(), Timestamp::ZERO).unwrap();
    assert_eq!(seen.len(), 2001);
    check(&seen, 1);
    log.trim(ts(1900)).unwrap();
    drop(log);
    let (_, seen) = open_from(options(), ts(1900)).unwrap();
    assert_eq!(seen.len(), 101);
}
