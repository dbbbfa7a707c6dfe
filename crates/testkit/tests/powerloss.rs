//! Tests of the power-loss layer with a small program: exactly the synced data survives.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

struct Disk {
    home: tempfile::TempDir,
    ordered: bool,
}

impl Disk {
    fn new() -> Disk {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("live")).unwrap();
        Disk {
            home,
            ordered: false,
        }
    }

    fn output(&self, steps: &str) -> Output {
        let home = self.home.path();
        let layer = powerloss_image::Settings {
            library: testkit::layer().to_owned(),
            dir: home.join("live"),
            shadow: Some(home.join("shadow")),
            ordered: self.ordered,
            sync_us: 0,
            budget: Some(home.join("budget")),
            clock: None,
        };
        let mut probe = Command::new(testkit::probe());
        probe.arg(steps).current_dir(home.join("live"));
        layer.apply(&mut probe);
        probe.output().unwrap()
    }

    /// Runs the steps, kills the program, and returns the disk after a power cut at that moment.
    fn after(&self, steps: &str) -> BTreeMap<String, String> {
        let budget = self.home.path().join("budget");
        if !budget.exists() {
            fs::write(budget, u64::MAX.to_string()).unwrap();
        }
        let out = self.output(steps);
        assert_eq!(
            out.status.signal(),
            Some(9),
            "{steps}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        let disk = self.home.path().join("disk");
        let _ = fs::remove_dir_all(&disk);
        testkit::materialise(&self.home.path().join("shadow"), &disk);
        read(&disk)
    }
}

fn read(dir: &Path) -> BTreeMap<String, String> {
    testkit::files_below(dir)
        .into_iter()
        .map(|f| {
            let name = f.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            let text = String::from_utf8_lossy(&fs::read(&f).unwrap()).replace('\0', "_");
            (name, text)
        })
        .collect()
}

fn files(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter()
        .map(|(n, t)| (n.to_string(), t.to_string()))
        .collect()
}

#[test]
fn only_synced_data_survives() {
    let table: &[(&str, &[(&str, &str)])] = &[
        // Nothing is synced, so nothing survives.
        ("write a 0 hello", &[]),
        // The file is synced, but not its name.
        ("write a 0 hello ; sync a", &[]),
        // The name is synced, but not the content.
        ("write a 0 hello ; sync .", &[("a", "")]),
        ("write a 0 hello ; sync a ; sync .", &[("a", "hello")]),
        ("write a 0 hello ; sync . ; datasync a", &[("a", "hello")]),
        // Unsynced changes are lost, whether made at an offset, by append, by truncation or by rewriting.
        (
            "write a 0 hello ; sync a ; sync . ; write a 1 EL",
            &[("a", "hello")],
        ),
        (
            "write a 0 hello ; sync a ; sync . ; append a X",
            &[("a", "hello")],
        ),
        (
            "write a 0 hello ; sync a ; sync . ; truncate a 2",
            &[("a", "hello")],
        ),
        (
            "write a 0 hello ; sync a ; sync . ; overwrite a new",
            &[("a", "hello")],
        ),
        // Synced changes survive.
        (
            "write a 0 hello ; sync a ; sync . ; write a 1 EL ; sync a",
            &[("a", "hELlo")],
        ),
        (
            "write a 0 hello ; sync a ; sync . ; append a X ; append a Y ; sync a ; append a Z",
            &[("a", "helloXY")],
        ),
        (
            "write a 0 hello ; sync a ; sync . ; truncate a 2 ; sync a",
            &[("a", "he")],
        ),
        (
            "write a 0 hello ; sync a ; sync . ; truncate a 2 ; truncate a 4 ; sync a",
            &[("a", "he__")],
        ),
        (
            "write a 0 hello ; sync a ; sync . ; truncate a 1 ; write a 3 X ; sync a",
            &[("a", "h__X")],
        ),
        (
            "write a 0 hello ; sync a ; sync . ; overwrite a new ; sync a",
            &[("a", "new")],
        ),
        (
            "truncate a 8 ; sync a ; sync . ; write a 2 xy ; datasync a ; write a 4 z",
            &[("a", "__xy____")],
        ),
        // Renames and removals survive once the directory is synced.
        ("write a 0 x ; sync a ; sync . ; rename a b", &[("a", "x")]),
        (
            "write a 0 x ; sync a ; sync . ; rename a b ; sync .",
            &[("b", "x")],
        ),
        (
            "write a 0 x ; sync a ; sync . ; rawrename a b",
            &[("a", "x")],
        ),
        (
            "write a 0 x ; sync a ; sync . ; rawrename a b ; sync .",
            &[("b", "x")],
        ),
        ("write a 0 x ; sync a ; sync . ; remove a", &[("a", "x")]),
        ("write a 0 x ; sync a ; sync . ; remove a ; sync .", &[]),
        // These are correct and incorrect ways to replace a file.
        (
            "write a 0 old ; sync a ; sync . ; write t 0 new ; sync t ; rename t a",
            &[("a", "old")],
        ),
        (
            "write a 0 old ; sync a ; sync . ; write t 0 new ; sync t ; rename t a ; sync .",
            &[("a", "new")],
        ),
        (
            "write a 0 old ; sync a ; sync . ; write t 0 new ; rename t a ; sync .",
            &[("a", "")],
        ),
        // A name that was removed and created again belongs to another file.
        (
            "write a 0 old ; sync a ; sync . ; remove a ; write a 0 new ; sync a",
            &[("a", "old")],
        ),
        (
            "write a 0 old ; sync a ; sync . ; remove a ; write a 0 new ; sync .",
            &[("a", "")],
        ),
        // Directories behave like this:
        ("mkdir d ; write d/a 0 x ; sync d/a ; sync d", &[]),
        ("mkdir d ; write d/a 0 x ; sync d/a ; sync .", &[]),
        (
            "mkdir d ; write d/a 0 x ; sync d/a ; sync d ; sync .",
            &[("d/a", "x")],
        ),
        (
            "mkdir d ; sync . ; write a 0 x ; sync a ; sync . ; rename a d/a ; sync d ; sync .",
            &[("d/a", "x")],
        ),
    ];
    for (steps, expected) in table {
        assert_eq!(Disk::new().after(steps), files(expected), "{steps}");
    }
}

#[test]
fn ordered_mode_keeps_the_names_of_synced_files() {
    let table: &[(&str, &[(&str, &str)])] = &[
        ("write a 0 hello", &[]),
        ("write a 0 hello ; sync a", &[("a", "hello")]),
        ("mkdir d ; write d/a 0 x ; sync d/a", &[("d/a", "x")]),
        ("write a 0 x ; sync a ; rename a b", &[("a", "x")]),
    ];
    for (steps, expected) in table {
        let disk = Disk {
            ordered: true,
            ..Disk::new()
        };
        assert_eq!(disk.after(steps), files(expected), "{steps}");
    }
}

#[test]
fn data_that_a_killed_process_left_unsynced_can_still_be_synced() {
    let disk = Disk::new();
    assert_eq!(
        disk.after("write a 0 one ; sync a ; sync . ; append a two"),
        files(&[("a", "one")])
    );
    // Another process runs on the same machine, so the page cache was not lost.
    assert_eq!(disk.after("append a three"), files(&[("a", "one")]));
    assert_eq!(disk.after("sync a"), files(&[("a", "onetwothree")]));
}

#[test]
fn files_that_exist_at_the_start_are_durable() {
    let disk = Disk::new();
    let live = disk.home.path().join("live");
    fs::create_dir(live.join("d")).unwrap();
    fs::write(live.join("d/a"), "old").unwrap();
    assert_eq!(disk.after("append d/a new"), files(&[("d/a", "old")]));
}

#[test]
fn a_full_disk() {
    let disk = Disk::new();
    fs::write(disk.home.path().join("budget"), "5").unwrap();
    disk.after(
        "write a 0 abc ; expect-full append a defgh ; expect-full append a x ; sync a ; sync .",
    );
    // The write at the limit was cut short, as on a real disk.
    let live = disk.home.path().join("live");
    assert_eq!(read(&live), files(&[("a", "abcde")]));
    // Space is freed while the program runs.
    let fill = "append b 12345 ; expect-full append b 6 ; budget ../budget 8 ; append b 678";
    disk.after(fill);
    assert_eq!(read(&live)["b"], "12345678");
    fs::write(disk.home.path().join("budget"), "0").unwrap();
    let out = disk.output("space");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "0\n");
}

#[test]
fn a_writable_shared_mapping_is_refused() {
    let disk = Disk::new();
    let out = disk.output("truncate a 4096 ; map a");
    assert_eq!(out.status.signal(), Some(6));
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        why.contains("writable shared mappings are not modelled"),
        "{why}"
    );
}

#[test]
fn a_write_past_the_layer_is_noticed() {
    let disk = Disk::new();
    // The first sync of a file copies the whole file; later ones rely on what the layer has seen.
    let out = disk.output("write a 0 hello ; sync a ; rawwrite a HE ; sync a");
    assert_eq!(out.status.signal(), Some(6));
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(why.contains("passed this layer by"), "{why}");
}

#[test]
fn a_clock_is_as_wrong_as_the_file_says() {
    let home = tempfile::tempdir().unwrap();
    let layer = powerloss_image::Settings {
        library: testkit::layer().to_owned(),
        clock: Some(home.path().join("clock")),
        ..Default::default()
    };
    let told = |ms: &str| {
        fs::write(home.path().join("clock"), ms).unwrap();
        let mut date = Command::new("date");
        layer.apply(date.arg("+%s%3N"));
        let out = date.output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.trim().parse::<i64>().unwrap()
    };
    let right = told("0");
    for ms in [3_600_700, -3_600_700] {
        let off = told(&ms.to_string()) - right - ms;
        assert!((0..60_000).contains(&off), "{ms}: {off}");
    }
}
