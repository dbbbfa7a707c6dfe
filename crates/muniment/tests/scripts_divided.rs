//! The scripts in `scripts/` have the same replies from a router over three shards whose collections are divided by a
//! hash, also while their ranges move all the time. `scripts_divided.txt` lists the sections that differ, and why.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::*;
use muniment_value::{Doc, doc};
use muniment_wire::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use testkit::random::Rng;
use testkit::{Cluster, Deployment, Difference, run_script_on};

/// Commands before whose first use a collection is divided.
const FIRST_USES: [&str; 4] = ["insert", "update", "findAndModify", "createIndexes"];

/// Divides the collections that a script uses.
struct Divider<'a> {
    admin: Connection,
    known: BTreeSet<String>,
    /// Those that are divided now.
    divided: &'a Mutex<Vec<String>>,
}

impl Divider<'_> {
    fn divide(&mut self, db: &str, name: &str) {
        let ns = format!("{db}.{name}");
        let own = ["admin", "config", "local"].contains(&db) || name.starts_with("system.");
        if own || !self.known.insert(ns.clone()) {
            return;
        }
        let simple = doc! { "locale": "simple" };
        let key = doc! { "_id": "hashed" };
        let divide = doc! { "shardCollection": &*ns, "key": key, "collation": simple };
        // What cannot be divided, such as a view, stays as it is.
        if self.admin.command("admin", &divide).is_ok() {
            self.divided.lock().unwrap().push(ns);
        }
    }
}

/// The command's name, and the collection that it names.
fn named<'d>(command: Doc<'d>) -> (&'d str, Option<&'d str>) {
    let first = command.iter().next().unwrap();
    (first.name(), first.value().as_str())
}

impl Deployment for Divider<'_> {
    fn before(&mut self, db: &str, command: Doc<'_>) {
        // A transaction makes a collection that is whole.
        if command.get("autocommit").is_some() {
            return;
        }
        match named(command) {
            (verb, Some(name)) if FIRST_USES.contains(&verb) => self.divide(db, name),
            ("drop", Some(name)) => {
                self.known.remove(&format!("{db}.{name}"));
            }
            _ => {}
        }
    }

    fn after(&mut self, db: &str, command: Doc<'_>) {
        if let ("create", Some(name)) = named(command)
            && command.get("autocommit").is_none()
        {
            self.divide(db, name);
        }
    }

    fn one_order(&self) -> bool {
        false
    }
}

fn scripts() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut all = Vec::new();
    for dir in [dir.clone(), dir.join("manual")] {
        let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
        all.extend(entries.filter(|path| path.is_file()));
    }
    all.sort();
    all
}

/// A script's name and a section's title.
type Section = (String, String);

/// How many steps of a section differ.
#[derive(Clone, Copy, Debug)]
enum Steps {
    Exactly(usize),
    AtMost(usize),
}

/// Reads `scripts_divided.txt`.
fn listed() -> BTreeMap<Section, Steps> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts_divided.txt");
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with("//"));
    lines
        .map(|line| {
            let parts: Vec<&str> = line.split(" | ").collect();
            let [script, title, count, why] = parts[..] else {
                panic!("not a script, a title, a number and a reason: {line}");
            };
            assert!(!why.trim().is_empty(), "{line}");
            let steps = match (count, count.strip_prefix("<= ")) {
                ("any", _) => Steps::AtMost(usize::MAX),
                (_, Some(most)) => Steps::AtMost(most.parse().unwrap()),
                _ => Steps::Exactly(count.parse().unwrap()),
            };
            ((script.into(), title.into()), steps)
        })
        .collect()
}

/// Runs all scripts but some. `divided` gets the names of the collections that were divided.
fn differences(cluster: &Cluster, divided: &Mutex<Vec<String>>, but: &[&str]) -> Vec<Difference> {
    let mut all = Vec::new();
    for path in scripts() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if but.contains(&&*name) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let mut divider = Divider {
            admin: cluster.connect(),
            known: BTreeSet::new(),
            divided,
        };
        all.extend(run_script_on(
            &name,
            &text,
            &mut cluster.connect(),
            &mut divider,
        ));
    }
    all
}

/// Those that are not listed, or more than are listed.
fn unlisted<'d>(found: &'d [Difference], listed: &BTreeMap<Section, Steps>) -> Vec<&'d Difference> {
    let counts = counted(found);
    let more = |d: &&Difference| {
        let section = section(d);
        let whole = (section.0.clone(), "*".to_owned());
        let most = match listed.get(&section).or_else(|| listed.get(&whole)) {
            Some(Steps::Exactly(n) | Steps::AtMost(n)) => *n,
            None => 0,
        };
        let internal = d.text.contains("InternalError") || d.text.contains("replied 1: ");
        counts[&section] > most || internal
    };
    found.iter().filter(more).collect()
}

fn section(d: &Difference) -> Section {
    (d.at.0.clone(), d.title.clone())
}

/// How many steps of each section differ.
fn counted(found: &[Difference]) -> BTreeMap<Section, usize> {
    let steps: BTreeSet<_> = found.iter().map(|d| (section(d), d.at.1)).collect();
    let mut counts = BTreeMap::new();
    for (section, _) in steps {
        *counts.entry(section).or_default() += 1;
    }
    counts
}

fn shown(differences: &[&Difference]) -> String {
    let all: Vec<String> = differences.iter().map(|d| d.to_string()).collect();
    all.join("\n")
}

#[test]
fn every_script_replies_over_divided_collections_as_it_says() {
    let cluster = hasty_cluster(3, 1, 1);
    let divided = Mutex::default();
    let found = differences(&cluster, &divided, &[]);
    let listed = listed();
    let wrong = unlisted(&found, &listed);
    let counts = counted(&found);
    let fewer = listed.iter().filter(|(section, steps)| {
        let n = counts.get(section).copied().unwrap_or(0);
        matches!(steps, Steps::Exactly(most) if n < *most)
    });
    let fewer: Vec<_> = fewer.collect();
    assert!(wrong.is_empty(), "{}", shown(&wrong));
    assert!(
        fewer.is_empty(),
        "they differ less than is listed: {fewer:?}"
    );
    let divided = divided.lock().unwrap().len();
    assert!(divided > 900, "only {divided} collections were divided");
}

#[test]
fn every_script_replies_so_while_ranges_move() {
    let cluster = cluster(3, 1, 2);
    let divided: Mutex<Vec<String>> = Mutex::default();
    let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    let found = thread::scope(|s| {
        let mut c = cluster.routers[1].connect();
        let (stop, moved, divided) = (&stop, &moved, &divided);
        s.spawn(move || {
            let mut rng = Rng::new(1);
            while !stop.load(SeqCst) {
                let newest = divided.lock().unwrap().last().cloned();
                // It may have been dropped since.
                let all = newest.and_then(|ns| Some((try_chunks(&mut c, &ns).ok()?, ns)));
                let Some((all, ns)) = all.filter(|(all, _)| !all.is_empty()) else {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                };
                let to = ["s0", "s1", "s2"][rng.below(3)];
                // The scripts are to go on, too.
                thread::sleep(Duration::from_millis(20));
                if move_to(&mut c, &ns, &all[rng.below(all.len())], to, false).is_ok() {
                    moved.fetch_add(1, SeqCst);
                }
            }
        });
        // A transaction that meets a move ends with an error that says that it may be run again.
        let with_transactions = ["transactions.txt", "retryable_writes.txt"];
        let found = differences(&cluster, divided, &with_transactions);
        stop.store(true, SeqCst);
        found
    });
    let moved = moved.load(SeqCst);
    println!("{moved} moves");
    let wrong = unlisted(&found, &listed());
    assert!(wrong.is_empty(), "{}", shown(&wrong));
    assert!(moved > 100, "only {moved} moves");
}
