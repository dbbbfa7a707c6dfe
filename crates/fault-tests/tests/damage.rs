//! Damaged files: a torn or damaged end of the journal is cut off; a damaged table is reported with file and
//! offset, and no document is missing without an error.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::{Rng, long, seed};
use muniment_value::{ArrayBuf, DocBuf, doc};
use muniment_wire::Connection;
use std::path::{Path, PathBuf};
use testkit::{Server, ServerOptions, files_below, flip_bit, truncate_file};

const DB: &str = "damage";

fn insert(c: &mut Connection, docs: Vec<DocBuf>) {
    let n = docs.len() as i64;
    let cmd = doc! {
        "insert": "c",
        "documents": docs.iter().map(DocBuf::as_doc).collect::<ArrayBuf>(),
        "writeConcern": doc! { "w": 1, "j": true },
    };
    let reply = c.command(DB, &cmd).unwrap();
    assert_eq!(
        reply.as_doc().get("n").and_then(|v| v.as_i64_exact()),
        Some(n),
        "{reply:?}"
    );
}

/// The ids that a full scan finds, in order.
fn scan(c: &mut Connection) -> muniment_value::Result<Vec<i64>> {
    let docs = c.find_all(DB, &doc! { "find": "c", "sort": doc! { "_id": 1 } })?;
    Ok(docs
        .iter()
        .map(|d| {
            d.as_doc()
                .get("_id")
                .and_then(|v| v.as_i64_exact())
                .unwrap()
        })
        .collect())
}

fn is_segment(f: &Path) -> bool {
    f.parent().is_some_and(|p| p.ends_with("log"))
}

fn is_table(f: &Path) -> bool {
    f.parent().is_some_and(|p| p.ends_with("trees")) && f.extension().is_some_and(|e| e == "table")
}

/// Makes a file look as if its end had not been written. A power cut leaves a segment in this state, since a
/// segment has its full length from the beginning.
fn zero_from(file: &Path, at: u64) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at as usize..].fill(0);
    std::fs::write(file, bytes).unwrap();
}

/// The newest journal, and the position of its last byte that is not zero.
fn journal_end(dir: &Path) -> (PathBuf, u64) {
    let journals = files_below(dir).into_iter().filter_map(|f| {
        let is_journal = is_segment(&f);
        let bytes = is_journal.then(|| std::fs::read(&f).unwrap())?;
        // An idle log writes a mark, perhaps at the very end of the file, where there is no record.
        let records = bytes
            .get(..bytes.len().saturating_sub(512))
            .unwrap_or(&bytes);
        let last = records.iter().rposition(|b| *b != 0)?;
        // A segment that was prepared has only a header.
        if last < 512 {
            return None;
        }
        let changed = f.metadata().unwrap().modified().unwrap();
        Some((changed, f, last as u64))
    });
    let (_, file, last) = journals.max().expect("a journal");
    (file, last)
}

#[test]
fn a_damaged_end_of_the_journal_is_cut_off() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut server = Server::start(ServerOptions::new());
    let mut next = 0_i64;
    for round in 0..if long() { 60 } else { 6 } {
        let mut c = server.connect();
        let from = next;
        for _ in 0..20 {
            insert(&mut c, vec![doc! { "_id": next, "text": rng.text(50) }]);
            next += 1;
        }
        server.kill9();
        let (file, last) = journal_end(&server.dir());
        // This is within the last write, since each write has more than 50 bytes.
        let at = last - rng.below(40);
        if round % 2 == 0 {
            zero_from(&file, at);
        } else {
            flip_bit(&file, at, rng.below(8) as u8);
        }
        server.start_again();
        let mut c = server.connect();
        let ids = scan(&mut c).unwrap();
        let expected: Vec<i64> = (0..ids.len() as i64).collect();
        assert_eq!(ids, expected, "not a prefix");
        // The damage reaches the last write or two (a write may end with zeros), but no more.
        let left = ids.len() as i64;
        assert!(
            left >= next - 2,
            "{left} of {next}, damage at {at} of {last}"
        );
        assert!(left > from);
        next = left;
    }
}

#[test]
fn damage_in_the_middle_of_the_journal_is_reported() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut server = Server::start(ServerOptions::new());
    let mut c = server.connect();
    for i in 0..200 {
        insert(
            &mut c,
            vec![doc! { "_id": i as i64, "text": rng.text(500) }],
        );
    }
    drop(c);
    server.kill9();
    let (file, last) = journal_end(&server.dir());
    for _ in 0..if long() { 30 } else { 4 } {
        // Half of the journal comes after this point, and was acknowledged as journaled.
        let at = last / 4 + rng.below(last / 4);
        let bit = rng.below(8) as u8;
        flip_bit(&file, at, bit);
        let started = server.try_start();
        let what = format!("bit {bit} of byte {at} of {last} in {}", file.display());
        assert!(started.is_err(), "{what}: started as if nothing were wrong");
        let log = server.log();
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(log.contains(name), "{what}: no file: {log}");
        assert!(log.contains("offset"), "{what}: no offset: {log}");
        flip_bit(&file, at, bit);
    }
    server.start_again();
    assert_eq!(scan(&mut server.connect()).unwrap().len(), 200);
}

/// Fills the collection until there are tables of some size. Returns the number of documents.
fn fill(server: &Server, rng: &mut Rng) -> i64 {
    let mut c = server.connect();
    let mut next = 0_i64;
    loop {
        for _ in 0..10 {
            let docs = (next..next + 500).map(|i| doc! { "_id": i, "text": rng.text(2000) });
            insert(&mut c, docs.collect());
            next += 500;
        }
        if !tables(&server.dir()).is_empty() {
            return next;
        }
        assert!(next < 500_000, "no table after a gigabyte");
    }
}

/// The table files with more than a megabyte.
fn tables(dir: &Path) -> Vec<PathBuf> {
    let mut tables = files_below(dir);
    tables.retain(|f| is_table(f) && f.metadata().is_ok_and(|m| m.len() > 1 << 20));
    tables
}

#[test]
fn a_damaged_table_is_reported() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut server = Server::start(ServerOptions::new());
    let count = fill(&server, &mut rng);
    assert!(server.terminate().success());
    let all: Vec<i64> = (0..count).collect();
    for _ in 0..if long() { 30 } else { 4 } {
        let tables = tables(&server.dir());
        let file = &tables[rng.below(tables.len() as u64) as usize];
        let at = rng.below(file.metadata().unwrap().len());
        let bit = rng.below(8) as u8;
        flip_bit(file, at, bit);
        let what = format!("bit {bit} of byte {at} of {}", file.display());
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        match server.try_start() {
            Err(_) => reported(&server.log(), &name, &what),
            Ok(()) => {
                let mut c = server.connect();
                match scan(&mut c) {
                    // A scan does not use the damaged bytes.
                    Ok(ids) => assert!(ids == all, "{what}: {} of {count} documents", ids.len()),
                    Err(e) => {
                        reported(e.message(), &name, &what);
                        let v = c.command(DB, &doc! { "validate": "c", "full": true });
                        let valid =
                            v.is_ok_and(|r| r.as_doc().get("valid").is_some_and(|b| b.truthy()));
                        assert!(!valid, "{what}: validate sees nothing");
                    }
                }
                drop(c);
                server.kill9();
            }
        }
        flip_bit(file, at, bit);
    }
    server.start_again();
    assert_eq!(scan(&mut server.connect()).unwrap(), all);
}

#[test]
fn damage_to_any_other_file_loses_nothing_silently() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut server = Server::start(ServerOptions::new());
    let count = fill(&server, &mut rng);
    assert!(server.terminate().success());
    let all: Vec<i64> = (0..count).collect();
    let kept = server.dir().with_extension("kept");
    copy(&server.dir(), &kept);
    let mut others = files_below(&server.dir());
    others.retain(|f| {
        let empty = f.metadata().unwrap().len() == 0;
        let table = is_table(f);
        let journal = is_segment(f);
        !empty && !table && !journal
    });
    let rounds = if long() { 8 * others.len() } else { 6 };
    for _ in 0..rounds {
        let file = &others[rng.below(others.len() as u64) as usize];
        let len = file.metadata().unwrap().len();
        let at = rng.below(len);
        let what = match rng.below(3) {
            0 => {
                truncate_file(file, at);
                format!("cut at {at}")
            }
            1 => {
                std::fs::remove_file(file).unwrap();
                "removed".into()
            }
            _ => {
                flip_bit(file, at, rng.below(8) as u8);
                format!("a bit of byte {at} flipped")
            }
        };
        let what = format!("{} of {len} bytes: {what}", file.display());
        println!("{what}");
        if server.try_start().is_ok() {
            // An error is allowed, but not a scan that misses documents.
            if let Ok(ids) = scan(&mut server.connect()) {
                assert!(ids == all, "{what}: {} of {count} documents", ids.len());
            }
            server.kill9();
        } else {
            let log = server.log();
            let said = log.lines().rev().find(|l| l.starts_with("muniment:"));
            let said = said.unwrap_or_else(|| panic!("{what}: no reason given: {log}"));
            assert!(!said.contains("panicked"), "{what}: {said}");
        }
        std::fs::remove_dir_all(server.dir()).unwrap();
        copy(&kept, &server.dir());
    }
    server.start_again();
    assert_eq!(scan(&mut server.connect()).unwrap(), all);
}

/// Copies a directory tree, including holes.
fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp")
        .args(["-a", "--sparse=always"])
        .args([from, to])
        .status();
    assert!(status.unwrap().success());
}

/// Checks that the message names the file and an offset.
fn reported(message: &str, file: &str, what: &str) {
    let named = message.contains(&format!("trees/{file}"));
    assert!(
        named,
        "{what}: the message does not name the file: {message}"
    );
    assert!(
        message.contains("offset"),
        "{what}: the message does not name an offset: {message}"
    );
}

#[test]
fn a_missing_table_is_reported() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut server = Server::start(ServerOptions::new());
    let count = fill(&server, &mut rng);
    assert!(server.terminate().success());
    let file = tables(&server.dir()).pop().unwrap();
    let aside = server.dir().with_extension("aside");
    std::fs::rename(&file, &aside).unwrap();
    match server.try_start() {
        Err(_) => {
            let (log, name) = (server.log(), file.file_name().unwrap());
            let said = log.contains("DataCorruptionDetected");
            assert!(said && log.contains(name.to_str().unwrap()), "{log}");
        }
        Ok(()) => {
            let found = scan(&mut server.connect());
            assert!(
                found.is_err(),
                "{} of {count} documents without an error",
                found.unwrap().len()
            );
            server.kill9();
        }
    }
    std::fs::rename(&aside, &file).unwrap();
    server.start_again();
    assert_eq!(scan(&mut server.connect()).unwrap().len() as i64, count);
}
