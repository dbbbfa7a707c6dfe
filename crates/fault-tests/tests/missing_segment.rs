//! A file that is missing from the middle of the log is reported, and never skipped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::wire::{index, insert, int};
use fault_tests::{Rng, seed};
use muniment_value::{DocBuf, doc};
use muniment_wire::Connection;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use testkit::{Server, ServerOptions, files_below};

const DB: &str = "missing";

/// The files of the log, oldest first: the files in one directory that are of one kind, have numbers as
/// names, and are not empty.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut kinds: BTreeMap<_, Vec<PathBuf>> = BTreeMap::new();
    for file in files_below(dir) {
        let kind = file.extension().map(|e| e.to_owned());
        let is_log = kind
            .as_ref()
            .is_some_and(|k| ["jnl", "log", "seg", "wal"].iter().any(|l| k == l))
            || file.parent().is_some_and(|p| p.ends_with("log"));
        let used = std::fs::read(&file).is_ok_and(|b| b.iter().take(4096).any(|x| *x != 0));
        if is_log && used {
            let parent = file.parent().map(Path::to_path_buf);
            kinds.entry((parent, kind)).or_default().push(file);
        }
    }
    let mut most = kinds.into_values().max_by_key(Vec::len).unwrap_or_default();
    // The names are sorted by length first, so that 9 comes before 10.
    most.sort_by_key(|f| (f.as_os_str().len(), f.clone()));
    most
}

fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp")
        .args(["-a", "--sparse=always"])
        .args([from, to])
        .status();
    assert!(status.unwrap().success());
}

/// How many documents a scan finds, how many the index finds, and how many a count reports.
fn counts(c: &mut Connection) -> muniment_value::Result<[i64; 3]> {
    let mut by = |hint: DocBuf| -> muniment_value::Result<i64> {
        let project = doc! { "_id": 1 };
        let find = doc! { "find": "c", "projection": project, "hint": hint };
        Ok(c.find_all(DB, &find)?.len() as i64)
    };
    let found = [by(doc! { "$natural": 1 })?, by(doc! { "x": 1 })?];
    let n = c.command(DB, &doc! { "count": "c" })?;
    Ok([found[0], found[1], int(n.as_doc(), "n")])
}

/// If a file is missing from the middle of the log while an earlier one is still needed, it is reported by
/// its name, or all documents exist without it.
#[test]
fn a_missing_middle_segment_of_the_log_is_reported() {
    let mut rng = Rng::new(seed());
    // The memory is large, so that nothing is written to tables soon and the log is needed.
    let options = ServerOptions::new().arg("--cacheSizeGB").arg("4");
    let mut server = Server::start(options);
    let mut c = server.connect();
    let spec = r#"{"key": {"x": 1}, "name": "x_1"}"#;
    index(&mut c, DB, "c", spec).unwrap();
    let mut next = 0_i64;
    while segments(&server.dir()).len() < 4 {
        let text = rng.text(100_000);
        let docs: Vec<_> = (next..next + 100)
            .map(|i| doc! { "_id": i, "x": i, "text": text.as_str() })
            .collect();
        insert(&mut c, DB, "c", &docs).unwrap();
        next += 100;
        assert!(
            next < 12_000,
            "the log has but one or two files: {:?}",
            segments(&server.dir())
        );
    }
    drop(c);
    server.kill9();
    let kept = server.dir().with_extension("kept");
    copy(&server.dir(), &kept);
    let all = segments(&server.dir());
    let names: Vec<_> = all.iter().map(|f| f.file_name().unwrap()).collect();
    println!("{next} documents, {names:?}");
    let mut wrong = Vec::new();
    for file in &all[1..all.len() - 1] {
        std::fs::remove_file(file).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        let logged = server.log().len();
        match server.try_start() {
            Err(_) => {
                let log = server.log();
                let said = &log[logged..];
                // Nothing refers to the newest file by name, only to the durable records in it.
                if !said.contains(name) && !said.contains("the segment with it is missing") {
                    wrong.push(format!("{name}: refused without naming it: {said}"));
                }
            }
            Ok(()) => {
                match counts(&mut server.connect()) {
                    Ok(n) if n == [next; 3] => {}
                    Ok(n) => wrong.push(format!(
                        "{name}: no error, and of {next} documents are found, by an index, \
                         counted: {n:?}"
                    )),
                    Err(e) => println!("{name}: {e}"),
                }
                server.kill9();
            }
        }
        std::fs::remove_dir_all(server.dir()).unwrap();
        copy(&kept, &server.dir());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    server.start_again();
    assert_eq!(counts(&mut server.connect()).unwrap(), [next; 3]);
}
