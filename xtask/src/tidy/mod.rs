//! Rules of this repository that no compiler checks.

mod circles;
mod exceptions;
mod pages;
mod prose;
mod source;

use crate::run::{output, root};
use exceptions::{Measured, note};
use prose::Paragraph;
use source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The list of places that may break a rule with a number for the time being.
const EXCEPTIONS: &str = "xtask/src/tidy/exceptions.txt";

/// The files with thread-local state, and the reasons for it. Other functions get everything that they need
/// in their arguments.
const THREAD_LOCALS: &[(&str, &str)] = &[
    (
        "crates/muniment-io/src/spread.rs",
        "the thread's place in what is spread over cache lines",
    ),
    (
        "crates/muniment-load/src/placement/mod.rs",
        "where the loads that a thread starts are pinned",
    ),
    (
        "crates/muniment-op/src/blocking.rs",
        "the pool that a worker belongs to, which it tells when it blocks",
    ),
    (
        "crates/muniment-op/src/simulated.rs",
        "the simulator that a thread lives in",
    ),
    (
        "crates/muniment-query/src/expr/arena.rs",
        "arenas and buffers that are used again",
    ),
    (
        "crates/muniment-query/src/expr/ops/date/zone.rs",
        "the zone that was looked up last",
    ),
    (
        "crates/muniment-query/src/expr/ops/rand.rs",
        "the state of a generator",
    ),
    (
        "crates/muniment-query/src/expr/ops/regex.rs",
        "patterns that are compiled: they are not Sync",
    ),
    (
        "crates/muniment-logger/src/guard.rs",
        "the hook of panics is told nothing but the thread",
    ),
    (
        "crates/muniment-storage/src/collection.rs",
        "a buffer for a key, used again",
    ),
    (
        "crates/muniment-storage/src/unit/mod.rs",
        "buffers of a write unit, used again",
    ),
    (
        "crates/muniment-wire/src/frame.rs",
        "request ids, which only have to differ on one connection",
    ),
    (
        "crates/powerloss/src/lib.rs",
        "whether the layer itself made the system call",
    ),
];

/// Checks all tracked files. With `--lower`, lowers the list of exceptions to the present numbers.
pub fn run(args: &[String]) -> Result<(), String> {
    let lower = match args {
        [] => false,
        [flag] if flag == "--lower" => true,
        other => return Err(format!("tidy does not know {other:?}")),
    };
    let list = output(Command::new("git").current_dir(root()).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    // A file that is not text, or was deleted and is not committed yet, is not checked.
    let texts: BTreeMap<&str, String> = list
        .lines()
        .filter_map(|f| Some((f, std::fs::read_to_string(root().join(f)).ok()?)))
        .collect();
    let mut wrong = Vec::new();
    let mut measured = Measured::new();
    for (file, text) in &texts {
        let mut complain = |what: &str| wrong.push(format!("{file}: {what}"));
        any_text(file, text, &mut complain);
        if file.ends_with(".md") {
            let paragraphs = prose::of_markdown(text);
            longest_paragraph(file, &paragraphs, &mut measured);
            worded(file, &paragraphs, &mut measured);
            pages::check(file, text, &texts, &mut wrong);
        }
    }
    rust(&texts, &mut wrong, &mut measured);
    one_commit_door(list.lines(), &mut wrong);
    circles::check(list.lines(), &mut wrong);
    formatted(list.lines(), &mut wrong)?;

    let exceptions = texts.get(EXCEPTIONS).map_or("", String::as_str);
    let (worse, loose) = exceptions::judge(exceptions, &measured)?;
    wrong.extend(worse);
    if lower {
        let lowered = exceptions::lowered(exceptions, &measured)?;
        std::fs::write(root().join(EXCEPTIONS), lowered).map_err(|e| e.to_string())?;
    } else if loose > 0 {
        println!("{loose} exceptions can be lowered: cargo xtask tidy --lower");
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "{} house rules broken:\n{}",
            wrong.len(),
            wrong.join("\n")
        ))
    }
}

/// Checks the rules for every text.
fn any_text(file: &str, text: &str, complain: &mut dyn FnMut(&str)) {
    if text.lines().any(|l| l.starts_with(concat!("<<<<", "<<< "))) {
        complain("a merge conflict marker");
    }
    if matches!(
        file.rsplit('.').next(),
        Some("rs" | "md" | "py" | "js" | "toml")
    ) && text.lines().any(|l| l.ends_with([' ', '\t']))
    {
        complain("trailing white space");
    }
}

fn longest_paragraph(file: &str, paragraphs: &[Paragraph], measured: &mut Measured) {
    for p in paragraphs {
        let place = format!(" (line {})", p.line + 1);
        note(measured, "paragraph", file, prose::words(&p.text), &place);
    }
}

/// Counts the violations of the rules for prose in a file.
fn worded(file: &str, paragraphs: &[Paragraph], measured: &mut Measured) {
    let mut count = |rule: &'static str, find: fn(&str) -> Vec<String>| {
        let found: Vec<String> = paragraphs
            .iter()
            .flat_map(|p| {
                let line = p.line + 1;
                find(&p.text)
                    .into_iter()
                    .map(move |words| format!("\n    line {line}: {words}"))
            })
            .collect();
        note(measured, rule, file, found.len(), &found.concat());
    };
    count("who", prose::headless);
    count("behind", prose::behind);
}

/// Checks the format of modules that a macro declares (commands, one line each), which `cargo fmt` does not
/// see.
fn formatted<'f>(
    files: impl Iterator<Item = &'f str>,
    wrong: &mut Vec<String>,
) -> Result<(), String> {
    let is_command = |f: &&str| f.starts_with("crates/muniment-server/src/commands/");
    let files: Vec<_> = files.filter(is_command).collect();
    let check = Command::new("rustfmt")
        .current_dir(root())
        .args(["--edition", "2024", "--check", "-l"])
        .args(files)
        .output()
        .map_err(|e| format!("rustfmt: {e}"))?;
    let named = String::from_utf8_lossy(&check.stdout);
    wrong.extend(
        named
            .lines()
            .map(|f| format!("{f}: not formatted: rustfmt --edition 2024")),
    );
    match check.status.success() || !named.is_empty() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&check.stderr).into_owned()),
    }
}

/// Checks that exactly one place of the product appends to the log: the commit door. Everything that is
/// stored has to pass it.
fn one_commit_door<'f>(files: impl Iterator<Item = &'f str>, wrong: &mut Vec<String>) {
    const DOOR: &str = "crates/muniment-storage/src/commit/mod.rs";
    let mut found = Vec::new();
    for file in files.filter(|f| f.starts_with("crates/muniment-storage/src/")) {
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        // Without white space, line breaks do not matter.
        let text: String = text.split_whitespace().collect();
        let appends = text.matches(concat!("log", ".append(")).count()
            + text.matches(concat!("log()", ".append(")).count()
            + text.matches(concat!(".append", "_ready(")).count();
        found.extend(std::iter::repeat_n(file, appends));
    }
    if found != [DOOR] {
        wrong.push(format!(
            "the log is appended to in {found:?}; only {DOOR} may do so, in one place"
        ));
    }
}

/// Checks the rules for Rust files. Those in tests/ at the root belong to suites of other projects' clients.
fn rust(texts: &BTreeMap<&str, String>, wrong: &mut Vec<String>, measured: &mut Measured) {
    let sources: BTreeMap<&str, Source> = texts
        .iter()
        .filter(|(file, _)| file.ends_with(".rs") && !file.starts_with("tests/"))
        .map(|(file, text)| (*file, Source::new(text)))
        .collect();
    let tests = test_files(&sources);
    let mut thread_locals = BTreeSet::new();
    for (file, source) in &sources {
        worded(file, &prose::of_comments(source), measured);
        let head = texts[file].lines().find(|l| !l.trim().is_empty());
        if !head.is_some_and(|l| l.starts_with("//!") || l.starts_with("#!")) {
            wrong.push(format!(
                "{file}: no module head (//!) that says what it is for"
            ));
        }
        if tests.contains(file) {
            continue;
        }
        unfinished(file, &texts[file], source, wrong);
        note(measured, "file", file, source.production_lines(), "");
        for function in source.functions() {
            let place = format!("{file}::{}", function.name);
            let line = format!(" (line {})", function.line + 1);
            note(measured, "function", &place, function.length, &line);
        }
        if source
            .production_code()
            .contains(concat!("thread_", "local!"))
        {
            thread_locals.insert(*file);
        }
    }
    let listed: BTreeSet<&str> = THREAD_LOCALS.iter().map(|(file, _)| *file).collect();
    for file in thread_locals.difference(&listed) {
        wrong.push(format!(
            "{file}: state that belongs to a thread; hand it over, or say in tidy's list why not"
        ));
    }
    for file in listed.difference(&thread_locals) {
        wrong.push(format!(
            "{file}: has no state that belongs to a thread any more; take it off tidy's list"
        ));
    }
}

/// The files that are compiled only for tests, benchmarks or examples: those in folders for that, and those
/// that a module declares under `#[cfg(test)]`, with everything below them.
fn test_files<'f>(sources: &BTreeMap<&'f str, Source>) -> BTreeSet<&'f str> {
    let mut roots = Vec::new();
    for (file, source) in sources {
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
        let of_module = match name {
            "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
            other => format!("{folder}/{}", other.trim_end_matches(".rs")),
        };
        for (module, path) in &source.test_modules {
            match path {
                Some(path) => roots.push(format!("{folder}/{path}")),
                None => {
                    roots.push(format!("{of_module}/{module}.rs"));
                    roots.push(format!("{of_module}/{module}/"));
                }
            }
        }
    }
    let in_folder = |file: &str| {
        ["/tests/", "/benches/", "/examples/"]
            .iter()
            .any(|d| file.contains(d))
    };
    let below = |file: &str| roots.iter().any(|r| file.starts_with(r.as_str()));
    let files = sources.keys().copied();
    files.filter(|f| in_folder(f) || below(f)).collect()
}

/// Finds marks of unfinished work in the production part.
fn unfinished(file: &str, text: &str, source: &Source, wrong: &mut Vec<String>) {
    // The marks are split, so that this file does not match.
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("X", "XX"),
    ];
    for (n, line) in text.lines().enumerate() {
        if !source.is_test(n) && marks.iter().any(|mark| line.contains(mark)) {
            let n = n + 1;
            wrong.push(format!("{file}: line {n}: a mark of unfinished work"));
        }
    }
}
