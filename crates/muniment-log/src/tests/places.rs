//! Records by their indexes: reading after an index, appending at one, beginning a log after one.

use super::*;

fn position(index: u64, term: u64) -> Position {
    Position {
        index,
        term,
        at: ts(index),
    }
}

#[test]
fn readers_begin_behind_an_index() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    assert_eq!(
        (log.first_index(), log.begins_behind()),
        (1, Position::default())
    );
    assert!(log.reader_at(0).unwrap().next().unwrap().is_none());
    for n in 1..=300 {
        append(&log, [0, 90, 700, 9000][n as usize % 4]).unwrap();
    }
    for reopened in [false, true] {
        let log = match reopened {
            true => &open(&disk).unwrap().0,
            false => &log,
        };
        for behind in 0..=300 {
            let mut reader = log.reader_at(behind).unwrap();
            let next = reader
                .next()
                .unwrap()
                .map(|r| (r.index, r.payload.to_vec()));
            assert_eq!(
                next.as_ref().map(|r| r.0),
                (behind < 300).then_some(behind + 1)
            );
            if let Some((index, bytes)) = next {
                assert_eq!(bytes, payload(index, bytes.len()));
            }
        }
        if !reopened {
            log.settle().unwrap();
        }
    }
    // One reader waits at the end, and one waits for a record beyond it.
    let (mut end, mut ahead) = (log.reader_at(300).unwrap(), log.reader_at(302).unwrap());
    for n in 301..=303 {
        assert!(end.next().unwrap().is_none() && ahead.next().unwrap().is_none());
        append(&log, 50).unwrap();
        assert_eq!(end.next().unwrap().unwrap().index, n);
    }
    assert_eq!(ahead.next().unwrap().unwrap().index, 303);
    log.trim(ts(200)).unwrap();
    let first = log.first_index();
    assert!((2..=201).contains(&first), "{first}");
    assert_eq!(log.begins_behind(), position(first - 1, (first - 1) / 10));
    let mut reader = log.reader_at(first - 1).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().index, first);
    let e = log.reader_at(first - 2).err().unwrap();
    assert_eq!(e.code(), Code::ChangeStreamHistoryLost);
}

#[test]
fn only_the_next_record_can_be_appended_at_its_index() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk).unwrap();
    let at = |p: Position, len| log.append_at(p, log.prepare(&[&payload(p.index, len)])?);
    at(position(1, 1), 10).unwrap();
    at(position(2, 1), 20_000).unwrap();
    for refused in [
        position(2, 1),
        position(4, 1),
        position(0, 1),
        position(3, 0),
    ] {
        for len in [10, 20_000] {
            assert_eq!(at(refused, len).unwrap_err().code(), Code::InternalError);
        }
    }
    let early = Position {
        at: ts(2),
        ..position(3, 1)
    };
    assert_eq!(at(early, 10).unwrap_err().code(), Code::InternalError);
    at(position(3, 4), 10).unwrap();
    assert_eq!(log.last(), position(3, 4));
    let seen = read_all(&log, Timestamp::ZERO);
    let terms: Vec<_> = seen.iter().map(|r| (r.0, r.1)).collect();
    assert_eq!(terms, [(1, 1), (2, 1), (3, 4)]);
}

#[test]
fn a_log_begins_where_what_is_before_it_came_otherwise() {
    let start = Position {
        index: 1000,
        term: 7,
        at: ts(1000),
    };
    for seed in 0..60 {
        let disk = SimDisk::new();
        let begins = |disk: &SimDisk| LogOptions {
            begins_after: Some(start),
            ..options(disk)
        };
        let (log, seen) = open_from(begins(&disk), ts(1000)).unwrap();
        assert!(seen.is_empty());
        assert_eq!(
            (log.last(), log.durable(), log.first_index()),
            (start, 1000, 1001)
        );
        log.abandon();
        // The new log is there as soon as it is open. From then on the option has no effect.
        let disk = disk.power_cut(seed);
        let (log, _) = open_from(options(&disk), ts(1000)).unwrap();
        assert_eq!(log.last(), start);
        for n in 1001..=1040 {
            let bytes = payload(n, 600);
            let ready = log.prepare(&[&bytes]).unwrap();
            log.append_at(position(n, 7), ready).unwrap();
        }
        log.sync().unwrap();
        log.abandon();
        let disk = disk.power_cut(seed);
        let (log, seen) = open_from(begins(&disk), ts(1000)).unwrap();
        assert_eq!(
            (seen.len(), log.last().index, log.first_index()),
            (40, 1040, 1001)
        );
        assert_eq!(log.begins_behind(), start);
        let e = log.reader_at(999).err().unwrap();
        assert_eq!(e.code(), Code::ChangeStreamHistoryLost);
        drop(log);
        // A caller that has less than what comes before the log cannot use it.
        let e = open_from(options(&disk), ts(999)).err().unwrap();
        assert_eq!(e.code(), Code::DataCorruptionDetected);
    }
}
