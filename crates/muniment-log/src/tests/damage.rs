//! Every byte of a small log, flipped, zeroed or missing: the log never gives a wrong record, never silently
//! gives fewer records than were durable, and never panics.

use super::*;
use muniment_io::Disk;

const SMALL: u64 = 4096;

fn small(disk: &SimDisk, accept: bool) -> LogOptions {
    LogOptions {
        segment_bytes: SMALL,
        accept_data_loss: accept,
        ..options(disk)
    }
}

/// A log of three segments that was synced now and then and closed cleanly.
fn written() -> (SimDisk, Seen) {
    let disk = SimDisk::new();
    let (log, _) = open_from(small(&disk, false), Timestamp::ZERO).unwrap();
    for n in 1..=24 {
        append(&log, [0, 130, 333, 701][n as usize % 4]).unwrap();
        if n % 5 == 0 {
            log.sync().unwrap();
        }
    }
    let all = read_all(&log, Timestamp::ZERO);
    assert!(segments(&disk).len() >= 3);
    drop(log);
    (disk.fork(), all)
}

/// Opens a damaged log. `Ok(n)`: it has the first `n` records, and can be continued from there.
fn outcome(disk: &SimDisk, all: &Seen, accept: bool) -> Result<usize> {
    let (log, seen) = open_from(small(disk, accept), Timestamp::ZERO)?;
    assert!(seen[..] == all[..seen.len()], "a wrong record");
    assert!(read_all(&log, Timestamp::ZERO) == seen);
    let n = seen.len() as u64;
    assert_eq!(append(&log, 77).unwrap(), n + 1);
    drop(log);
    let (_, again) = open_from(small(disk, false), Timestamp::ZERO).unwrap();
    assert_eq!(again.len(), seen.len() + 1, "old records came back");
    assert!(again[..seen.len()] == seen[..]);
    assert_eq!(again[seen.len()].3, payload(n + 1, 77));
    Ok(seen.len())
}

#[test]
fn every_byte_flipped() {
    let (disk, all) = written();
    let (mut told, mut harmless) = (0, 0);
    for path in segments(&disk) {
        for byte in 0..SMALL {
            let copy = disk.fork();
            assert!(copy.flip_bit(&path, byte, (byte % 8) as u8));
            match outcome(&copy, &all, false) {
                Ok(n) => {
                    assert_eq!(n, all.len(), "{} byte {byte}", path.display());
                    harmless += 1;
                }
                Err(e) => {
                    assert_eq!(e.code(), Code::DataCorruptionDetected);
                    let file = path.to_string_lossy();
                    assert!(e.message().contains(&*file), "{e}, not {file}");
                    told += 1;
                    if byte % 31 == 0 {
                        assert!(outcome(&copy, &all, true).unwrap() < all.len());
                    }
                }
            }
        }
    }
    assert!(told > 8000 && harmless > 100, "{told} {harmless}");
}

#[test]
fn every_sector_zeroed_and_every_length() {
    let (disk, all) = written();
    for path in segments(&disk) {
        for at in (0..SMALL).step_by(64) {
            let copy = disk.fork();
            let n = 512.min(SMALL - at) as usize;
            copy.corrupt(&path, at, &vec![0; n]);
            let cut = disk.fork();
            let file = cut.open(&path, muniment_io::Open::Write).unwrap();
            file.set_len(at).unwrap();
            for copy in [copy, cut] {
                match outcome(&copy.fork(), &all, false) {
                    Ok(n) => assert_eq!(n, all.len(), "{} {at}", path.display()),
                    Err(e) => assert_eq!(e.code(), Code::DataCorruptionDetected),
                }
                outcome(&copy, &all, true).unwrap();
            }
        }
    }
}

#[test]
fn every_missing_segment_is_named() {
    let (disk, all) = written();
    for path in segments(&disk) {
        let copy = disk.fork();
        copy.remove(&path).unwrap();
        let e = outcome(&copy, &all, false).unwrap_err();
        assert_eq!(e.code(), Code::DataCorruptionDetected);
        let newest = segments(&disk).last() == Some(&path);
        let oldest = segments(&disk).first() == Some(&path);
        if !newest && !oldest {
            assert!(e.message().contains(&*path.to_string_lossy()), "{e}");
        }
        assert!(outcome(&copy, &all, true).unwrap() < all.len());
    }
}

#[test]
fn a_renamed_segment_is_not_taken_for_another() {
    let (disk, all) = written();
    let paths = segments(&disk);
    let spare = Path::new("/log/x");
    disk.rename(&paths[0], spare).unwrap();
    disk.rename(&paths[1], &paths[0]).unwrap();
    disk.rename(spare, &paths[1]).unwrap();
    let e = outcome(&disk, &all, false).unwrap_err();
    assert!(e.message().contains("under another's name"), "{e}");
}

#[test]
fn a_damaged_record_is_told_by_readers() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    for _ in 0..10 {
        append(&log, 300).unwrap();
    }
    disk.flip_bit(&segments(&disk)[0], 584 + 5 * 344 + 100, 1);
    let mut reader = log.read(Timestamp::ZERO);
    for n in 1..=5 {
        assert_eq!(reader.next().unwrap().unwrap().index, n);
    }
    for _ in 0..2 {
        let e = reader.next().unwrap_err();
        assert_eq!(e.code(), Code::DataCorruptionDetected);
        assert!(e.message().contains("offset 2304"), "{e}");
    }
}

#[test]
fn an_idle_log_is_marked_by_itself() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    for _ in 0..10 {
        append(&log, 300).unwrap();
    }
    log.sync().unwrap();
    let damaged = || {
        let copy = disk.fork();
        copy.flip_bit(&segments(&disk)[0], 584 + 9 * 344 + 100, 1);
        open(&copy).err()
    };
    let start = std::time::Instant::now();
    while damaged().is_none() {
        assert!(start.elapsed().as_secs() < 20, "no mark");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(damaged().unwrap().code(), Code::DataCorruptionDetected);
    // The next record overwrites the mark.
    append(&log, 300).unwrap();
    assert_eq!(read_all(&log, Timestamp::ZERO).len(), 11);
}

#[test]
fn unsynced_records_after_a_hole_never_come_back() {
    // Records 6 to 10 were not synced; the power cut took the seventh.
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    for n in 1..=10 {
        append(&log, 300).unwrap();
        if n == 5 {
            log.sync().unwrap();
        }
    }
    log.abandon();
    let path = segments(&disk)[0].clone();
    disk.corrupt(&path, 584 + 6 * 344, &[0; 344]);
    let (log, seen) = open(&disk).unwrap();
    assert_eq!(seen.len(), 6);
    // Another seventh record of the same size: the old eighth would fit after it.
    log.append(0, ts(7), &[&payload(7, 300)]).unwrap();
    log.sync().unwrap();
    log.abandon();
    let (log, seen) = open(&disk).unwrap();
    assert_eq!(seen.len(), 7);
    assert_eq!(log.last().index, 7);
}
