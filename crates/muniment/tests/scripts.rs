//! The scripts in `scripts/`: commands and their replies, one file for each subject. `testkit` describes
//! their format. Those in `scripts/manual/` are the examples of MongoDB's manual, with a section for each;
//! the section's title names the page.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use testkit::{Server, ServerOptions, run_script};

#[test]
fn every_script_replies_as_it_says() {
    run_folder("tests/scripts");
}

#[test]
fn the_manual_s_examples_reply_as_they_say() {
    run_folder("tests/scripts/manual");
}

fn run_folder(folder: &str) {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let s = Server::start(
        ServerOptions::new()
            .arg("--setParameter")
            .arg("enableTestCommands=1"),
    );
    let mut c = s.connect();
    let mut failures = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        failures.extend(run_script(&name, &text, &mut c));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
