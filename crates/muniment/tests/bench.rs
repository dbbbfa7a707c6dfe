//! `muniment bench` from end to end: its own embedded server, its report, and Ctrl-C.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let d =
            std::env::temp_dir().join(format!("muniment-bench-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&d).unwrap();
        Dir(d)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bench(dir: &Path, args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_muniment"));
    c.arg("bench")
        .args(args)
        .arg("--tables")
        .arg("--out")
        .arg(dir.join("report"))
        .arg("--json")
        .arg(dir.join("results.jsonl"))
        .arg("--data")
        .arg(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    c
}

/// Runs `muniment bench` with only these arguments.
fn plain(args: &[&std::ffi::OsStr]) -> Output {
    let mut c = Command::new(env!("CARGO_BIN_EXE_muniment"));
    c.arg("bench").args(args).output().unwrap()
}

fn ends_within(mut child: Child, limit: Duration) -> Output {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > limit {
            let _ = child.kill();
            panic!("still running after {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// The files that the lab has left in its data directory. Nothing of an embedded server may stay.
fn leftovers(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| {
            p.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("muniment-bench-")
        })
        .collect()
}

#[test]
fn w1_runs_and_writes_its_report() {
    let dir = Dir::new("w1");
    let out = bench(&dir.0, &["w1"]).output().unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{stdout}\n{stderr}");
    // If there are two cores, each concern is measured on one and on two.
    let placements: &[&str] = match std::thread::available_parallelism().unwrap().get() {
        1 => &["one core"],
        _ => &["one core", "two cores"],
    };
    for p in placements {
        assert!(stdout.contains(&format!("w:1, {p}")), "{stdout}");
    }
    for want in [
        "One connection: the server pinned to CPU",
        "w:0",
        "w:1",
        "j:true",
        "majority",
        "post: avg",
        "11.2",
        "Environment",
        "Null responder",
    ] {
        assert!(stdout.contains(want), "{want} is missing in\n{stdout}");
    }
    let html = std::fs::read_to_string(dir.0.join("report/report.html")).unwrap();
    assert!(html.contains("<svg") && html.contains("Latency of one insert"));
    let hlog = dir.0.join("report/histograms/w1-w-1-one-core.hlog");
    assert!(hlog.is_file());
    // The page can be made from the kept results, in either form, and is identical.
    for kept in ["report", "results.jsonl"] {
        let again = dir.0.join("again");
        let out = plain(&[
            "report".as_ref(),
            dir.0.join(kept).as_os_str(),
            "--out".as_ref(),
            again.as_os_str(),
        ]);
        assert!(out.status.success(), "{out:?}");
        assert_eq!(
            std::fs::read_to_string(again.join("report.html")).unwrap(),
            html,
            "{kept}"
        );
    }
    let (a, b) = (dir.0.join("report"), dir.0.join("results.jsonl"));
    let out = plain(&["compare".as_ref(), a.as_os_str(), b.as_os_str()]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let lines = std::fs::read_to_string(dir.0.join("results.jsonl")).unwrap();
    // The lines are the environment, four concerns in every placement, and the result.
    assert_eq!(lines.lines().count(), 4 * placements.len() + 2);
    assert!(lines.lines().all(|l| l.starts_with("{\"kind\":")));
    assert_eq!(leftovers(&dir.0), Vec::<PathBuf>::new());
}

/// The lines of `results.jsonl`.
fn results(dir: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(dir.join("results.jsonl")).unwrap();
    text.lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

#[test]
fn a_part_on_two_targets_is_compared_with_every_plot_and_cost() {
    let dir = Dir::new("compared");
    let me = format!("b={}", env!("CARGO_BIN_EXE_muniment"));
    let args = [
        "w3",
        "--only",
        "batch=100,1000",
        "--only",
        "concern=default",
        "--only",
        "cores=one",
        "--cacheSizeGB",
        "0.25",
        "--target",
        "a=embedded",
        "--target",
        &me,
        "--turns",
        "2",
    ];
    let out = bench(&dir.0, &args).output().unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success(),
        "{stdout}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(
        !stdout.contains("w:0 batch") && !stdout.contains("two cores  "),
        "{stdout}"
    );
    let all = results(&dir.0);
    let of = |id: &str| {
        let found = all
            .iter()
            .find(|l| l["kind"] == "result" && l["experiment"] == id);
        found.unwrap_or_else(|| panic!("{id} is missing in {stdout}"))
    };
    // Only the requested parts were measured, and the report says so.
    let first = of("w3-a");
    assert_eq!(first["tables"][0]["rows"].as_array().unwrap().len(), 2);
    let deviations = first["deviations"].to_string();
    assert!(
        deviations.contains("Only a part was run: batch 100, 1000; concern default; cores one.")
    );
    assert!(deviations.contains("a cache of 0.25 GiB"));
    let cache = all[0]["environment"].as_array().unwrap().iter();
    assert_eq!(cache.filter(|e| e[1] == "268 MB").count(), 2, "{}", all[0]);
    // Every plot of the experiment shows both targets.
    let compared = of("w3-compared");
    let series: Vec<&str> = compared["plots"][0]["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["name"].as_str().unwrap())
        .collect();
    assert_eq!(series, ["a", "b", "post, default concern"]);
    // The report has rates, slow percentiles and costs with their ratios, but two turns are not enough for
    // verdicts.
    let tables = compared["tables"].as_array().unwrap();
    for title in [
        "Compared with a",
        "p99, compared with a",
        "Server CPU a document, compared with a",
        "Bytes written a document, compared with a",
        "Largest resident size, compared with a",
    ] {
        let t = tables.iter().find(|t| t["title"] == title);
        let t = t.unwrap_or_else(|| panic!("{title} is missing in {stdout}"));
        let judged: Vec<_> = t["rows"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|r| r[1] == "b")
            .collect();
        for row in &judged {
            let ratio: f64 = row[4].as_str().unwrap().parse().unwrap();
            assert!(ratio > 0.0);
            assert_eq!(
                (&row[5], &row[8]),
                (&"–".into(), &"too few turns to judge".into())
            );
        }
        assert_eq!(
            judged.len(),
            if title.starts_with("Largest") { 1 } else { 2 }
        );
    }
    let findings = compared["findings"].to_string();
    assert!(
        findings.contains("Too few turns to judge (2 of at least 5). b over a: default batch 100")
    );
    assert!(!findings.contains("No difference"), "{findings}");
    assert_eq!(leftovers(&dir.0), Vec::<PathBuf>::new());
}

/// A server that is not a child of the lab is pinned while it is measured, and released afterwards.
#[test]
fn a_server_that_runs_already_is_as_free_afterwards_as_before() {
    let dir = Dir::new("freed");
    let server = testkit::Server::start(testkit::ServerOptions::new());
    let uri = format!("mongodb://{}", server.address());
    let cores = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid().unwrap())).unwrap();
        let mut all: Vec<String> = tasks
            .filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("status")).ok())
            .filter_map(|s| {
                Some(
                    s.lines()
                        .find(|l| l.starts_with("Cpus_allowed_list:"))?
                        .to_string(),
                )
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let before = cores();
    let args = ["w1", "--only", "concern=w:1", "--uri", &uri];
    let child = bench(&dir.0, &args).spawn().unwrap();
    // During the measurement it is pinned, if there is more than one core.
    let mut pinned = false;
    let begin = Instant::now();
    let mut child = child;
    while child.try_wait().unwrap().is_none() {
        pinned |= cores() != before;
        assert!(begin.elapsed() < Duration::from_secs(60), "it still runs");
        std::thread::sleep(Duration::from_micros(200));
    }
    let out = child.wait_with_output().unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{stdout}");
    assert!(stdout.contains("w:1, one core"), "{stdout}");
    assert!(pinned || before[0].ends_with("\t0"), "it never was pinned");
    assert_eq!(cores(), before);
}

#[test]
fn ctrl_c_ends_cleanly_and_writes_what_there_is() {
    let dir = Dir::new("ctrl-c");
    let child = bench(&dir.0, &["w3"]).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let out = ends_within(child, Duration::from_secs(30));
    assert_eq!(out.status.code(), Some(130));
    let html = std::fs::read_to_string(dir.0.join("report/report.html")).unwrap();
    assert!(html.contains("interrupted"));
    assert!(
        String::from_utf8_lossy(&out.stderr)
            .contains("interrupted; what there was has been written")
    );
    assert_eq!(leftovers(&dir.0), Vec::<PathBuf>::new());
}

#[test]
fn a_run_that_is_killed_left_no_good_one() {
    let dir = Dir::new("killed");
    let mut child = in_dir(&dir.0, &[&CEILING[..], &["w1", "w3"]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let written = || {
        let runs = std::fs::read_dir(dir.0.join("bench-report")).ok()?;
        let mut files = runs.flatten().map(|run| run.path().join("results.json"));
        std::fs::read_to_string(files.next()?).ok()
    };
    let results = loop {
        if let Some(text) = written() {
            break text;
        }
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(results.contains("\"interrupted\":true"), "{results}");
    assert!(!dir.0.join("bench-report/latest").exists());
}

#[test]
fn results_that_cannot_be_given_are_a_failure() {
    let dir = Dir::new("full");
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let out = in_dir(&dir.0, &[&CEILING[..], &["--json", "-"]].concat())
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("writing to standard output"), "{said}");
}

/// A command in `dir`, in which `muniment bench` makes the directory of the run.
fn in_dir(dir: &Path, args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_muniment"));
    c.current_dir(dir)
        .args(["bench"])
        .args(args)
        .args(["--data"])
        .arg(dir)
        .env("TERM", "dumb")
        .env("NO_COLOR", "1");
    c
}

const CEILING: [&str; 5] = ["ceiling", "--connections", "1", "--seconds", "1.2"];

#[test]
fn a_run_never_overwrites_another_and_says_how_it_stands_against_the_last() {
    let dir = Dir::new("kept");
    let link = || std::fs::read_link(dir.0.join("bench-report/latest")).ok();
    // Standard output has only JSON lines; the summary goes elsewhere.
    let out = in_dir(&dir.0, &[&CEILING[..], &["--json", "-"]].concat())
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "{stderr}");
    assert!(stdout.lines().count() > 2, "{stdout}");
    for line in stdout.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    assert!(stderr.contains("\nReport: bench-report/"), "{stderr}");
    assert!(
        !stderr.contains('\x1b') && !stderr.contains('\r'),
        "{stderr}"
    );
    let first = link().unwrap();
    // The second run gets a directory next to the first, and is compared with it.
    let out = in_dir(&dir.0, &CEILING).output().unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{stdout}");
    assert!(stdout.lines().count() <= 12, "{stdout}");
    assert!(
        stdout.contains(&format!("\nAgainst {}: ", first.display())),
        "{stdout}"
    );
    assert!(!stdout.contains("nothing to judge"), "{stdout}");
    let second = link().unwrap();
    assert_ne!(first, second);
    // A run that fails gets a directory as well, but the link stays.
    let uri = ["w1", "--uri", "mongodb://127.0.0.1:1"];
    let out = in_dir(&dir.0, &uri).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let stdout = String::from_utf8_lossy(&out.stdout);
    assert!(stdout.contains("w1         FAILED: no server"), "{stdout}");
    assert!(
        stdout.contains(&format!("(latest is still {})", second.display())),
        "{stdout}"
    );
    assert_eq!(link(), Some(second));
    let runs = std::fs::read_dir(dir.0.join("bench-report"))
        .unwrap()
        .count();
    assert_eq!(runs, 4, "three runs and a link");
    // For a directory of runs, the last successful one is read.
    let out = in_dir(&dir.0, &[]).get_program().to_owned();
    let out = Command::new(out)
        .current_dir(&dir.0)
        .args(["bench", "compare", "bench-report", "bench-report/latest"])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(0), "{out:?}");
}

#[test]
fn where_it_cannot_write_is_said_before_the_first_measurement() {
    let dir = Dir::new("before");
    let begin = Instant::now();
    let kept = dir.0.join("kept");
    std::fs::create_dir_all(&kept).unwrap();
    std::fs::write(kept.join("results.json"), "[]").unwrap();
    std::fs::write(dir.0.join("lines.jsonl"), "{}").unwrap();
    for (args, want) in [
        (
            ["--out", "kept"],
            "--out kept: there is a run in it already",
        ),
        (["--out", "lines.jsonl"], "--out lines.jsonl: "),
        (
            ["--json", "no/such/dir/x.jsonl"],
            "--json no/such/dir/x.jsonl: No such file",
        ),
        (
            ["--json", "lines.jsonl"],
            "there is something in it already",
        ),
    ] {
        let out = in_dir(&dir.0, &["w4b", args[0], args[1]]).output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(want), "{stderr}");
    }
    // The directory for servers is a file.
    for args in [&["w4b"][..], &["run", "insert"]] {
        let mut c = Command::new(env!("CARGO_BIN_EXE_muniment"));
        let data = dir.0.join("lines.jsonl");
        c.current_dir(&dir.0).arg("bench").args(args).arg("--data");
        let out = c.arg(data).output().unwrap();
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains("give another directory with --data"),
            "{stderr}"
        );
    }
    assert!(begin.elapsed() < Duration::from_secs(20));
    assert!(!dir.0.join("bench-report").exists(), "nothing was measured");
}

#[test]
fn a_file_that_is_no_run_is_said_to_be_none() {
    let dir = Dir::new("no-run");
    let file = dir.0.join("damaged.jsonl");
    std::fs::write(&file, "{\"kind\":\"run\",\"format\":3}\nnonsense\n").unwrap();
    let file = file.as_os_str();
    for (args, code) in [
        (&["report".as_ref(), file][..], 1),
        (&["compare".as_ref(), file, file][..], 2),
    ] {
        let out = plain(args);
        assert_eq!(out.status.code(), Some(code));
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(
            stderr.contains("damaged.jsonl: line 2, column "),
            "{stderr}"
        );
    }
}

#[test]
fn mistakes_are_said_plainly() {
    let dir = Dir::new("mistakes");
    for (args, code, want) in [
        (
            &["w9"][..],
            2,
            "there is no experiment 'w9' (is 'w1' meant?)",
        ),
        (&["w1", "--presett", "quick"][..], 2, "is '--preset' meant?"),
        (
            &["w3", "--only", "batch=3"][..],
            2,
            "batch of w3 with preset smoke is 1, 10, 100, 1000",
        ),
        (
            &["w1", "--only", "concern=w:7"][..],
            1,
            "--only concern=w:7: here concern is w:0, w:1, j:true, majority",
        ),
        (
            &["w1", "--only", "size=1"][..],
            2,
            "there is no 'size' to choose from: w1 has concern, cores",
        ),
        (
            &["w1", "--uri", "mongodb://127.0.0.1:1"][..],
            1,
            "no server to work on",
        ),
        (
            &["w1", "--preset", "huge"][..],
            2,
            "there are smoke, quick and paper",
        ),
    ] {
        // The runs that fail have run before, and their files are kept.
        let _ = std::fs::remove_dir_all(dir.0.join("report"));
        let _ = std::fs::remove_file(dir.0.join("results.jsonl"));
        let out = bench(&dir.0, args).output().unwrap();
        assert_eq!(out.status.code(), Some(code));
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(stderr.contains(want), "{stderr}");
    }
}

#[test]
fn every_word_that_may_be_asked_about_has_its_page() {
    let said = |args: &[&str]| {
        let mut c = Command::new(env!("CARGO_BIN_EXE_muniment"));
        let out = c.args(args).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        (
            out.status.code(),
            text,
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    for (args, begins) in [
        (&["help"][..], "Muniment: a MongoDB-compatible"),
        (&["help", "serve"], "muniment serve"),
        (&["help", "doctor"], ""),
        (&["help", "docs"], "Prints a generated page"),
        (&["help", "bench"], "Runs published benchmark experiments"),
        (&["help", "bench", "w1"], "w1: Write-concern latency"),
        (&["help", "bench", "compare"], "Compares two runs"),
        (&["bench", "help", "w1"], "w1: Write-concern latency"),
        (&["bench", "w1", "--help"], "w1: Write-concern latency"),
        (&["bench", "yardsticks", "--help"], "yardsticks: "),
        (&["bench", "help", "run"], "Runs a workload of your own"),
        (&["help", "completions"], "Prints completions for a shell"),
        (&["completions", "bash"], "complete -F _muniment muniment"),
        (&["completions", "fish"], "complete -c muniment -f"),
        (&["completions", "zsh"], "#compdef muniment"),
        (&["man"], ".TH MUNIMENT 1"),
    ] {
        let (code, stdout, stderr) = said(args);
        assert_eq!(code, Some(0), "{args:?}: {stderr}");
        assert!(
            !stdout.is_empty() && stdout.to_lowercase().contains(&begins.to_lowercase()),
            "{args:?}: {stdout}"
        );
    }
    for (args, want) in [
        (&["servr"][..], "is 'serve' meant?"),
        (&["help", "bnch"], "is 'bench' meant?"),
        (&["nonsense"], "there is no command 'nonsense'"),
        (&["bench", "comprae"], "is 'compare' meant?"),
        (&["bench", "help", "w8"], "is 'w1' meant?"),
        (
            &["bench", "run", "insert", "--vari", "w=0,1"],
            "is '--vary' meant?",
        ),
        (&["bench", "audit", "--round", "1"], "is '--rounds' meant?"),
        (&["--dbpath", "d"], "muniment serve --dbpath d"),
        (&["completions", "ksh"], "the shells are: bash, fish, zsh"),
        (&["man", "serve"], "unexpected argument 'serve'"),
    ] {
        let (code, _, stderr) = said(args);
        assert_eq!(code, Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(want), "{args:?}: {stderr}");
        assert!(stderr.lines().count() < 20, "{args:?}: {stderr}");
    }
}

/// The processes of servers that have their files below `dir`, with their command lines.
fn servers(dir: &Path) -> Vec<(u32, String)> {
    let dir = dir.to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").unwrap();
    let all = all.filter_map(|e| {
        let pid: u32 = e.ok()?.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        (line.contains(&dir) && !line.contains(" bench ")).then_some((pid, line))
    });
    all.collect()
}

/// The table with this title, as rows of texts.
fn table(results: &[serde_json::Value], title: &str) -> Vec<Vec<String>> {
    let mut tables = results
        .iter()
        .filter_map(|l| l["tables"].as_array())
        .flatten();
    let found = tables.find(|t| t["title"] == title).unwrap();
    let row = |r: &serde_json::Value| {
        let cells = r.as_array().unwrap().iter();
        cells.map(|c| c.as_str().unwrap().to_string()).collect()
    };
    found["rows"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn shards_of_one_machine_hold_all_documents_and_end() {
    let dir = Dir::new("shards");
    let args = [
        "w5",
        "--topology",
        "shards=server,1,2",
        "--only",
        "scenario=S1,S5,router,move",
    ];
    let out = bench(&dir.0, &args).output().unwrap();
    let stdout = String::from_utf8_lossy(&out.stdout);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{stdout}\n{stderr}");
    let results = results(&dir.0);
    let column = |rows: &[Vec<String>], i: usize| -> Vec<String> {
        rows.iter().map(|r| r[i].clone()).collect()
    };
    let counts = ["one server", "1 shard", "2 shards"];
    for title in ["Rates by number of shards", "CPU time, µs an operation"] {
        let rows = table(&results, title);
        assert_eq!(column(&rows, 0), ["S1", "S1", "S1", "S5", "S5", "S5"]);
        assert_eq!(column(&rows, 1), [counts, counts].concat(), "{title}");
    }
    // S5 reads alone, so what each cluster holds is what was loaded.
    let held = table(&results, "What each server holds at the end");
    assert_eq!(column(&held, 0), counts);
    for (row, servers) in held.iter().zip([1, 1, 2]) {
        let each: Vec<u64> = row[1]
            .split(" / ")
            .map(|n| n.replace(',', "").parse().unwrap())
            .collect();
        assert_eq!(
            (each.len(), each.iter().sum()),
            (servers, 10_000),
            "{row:?}"
        );
        // The hash divides them about evenly.
        assert!(each.iter().all(|n| *n > 4500), "{row:?}");
    }
    let router = table(&results, "What the router costs");
    assert_eq!(router.len(), 6, "{router:?}");
    let moves = table(&results, "What a move costs");
    assert_eq!(moves.len(), 3, "{moves:?}");
    let figures: Vec<&serde_json::Value> = results
        .iter()
        .filter_map(|l| l["figures"].as_array())
        .flatten()
        .collect();
    for name in [
        "S5, one server",
        "S5, 2 shards: p99",
        "S1, 2 shards: CPU of router",
        "S1, 2 shards: CPU of configuration",
        "router's CPU, find by _id",
        "null router's CPU, find by _id",
        "a move, beside writers",
    ] {
        let found = figures.iter().find(|f| f["name"] == name);
        let value = found.and_then(|f| f["value"].as_f64());
        assert!(value.is_some_and(|v| v > 0.0), "{name}: {value:?}");
    }
    let html = std::fs::read_to_string(dir.0.join("report/report.html")).unwrap();
    assert!(html.contains("Operations a second by number of shards"));
    assert_eq!(leftovers(&dir.0), Vec::<PathBuf>::new());
    assert_eq!(servers(&dir.0), []);
}

#[test]
fn a_shard_that_dies_is_named_and_takes_the_others_with_it() {
    let dir = Dir::new("shard-dies");
    let args = [
        "w5",
        "--topology",
        "shards=2",
        "--machines",
        "0.5",
        "--only",
        "scenario=S1",
    ];
    let mut child = bench(&dir.0, &args).spawn().unwrap();
    let begin = Instant::now();
    let victim = loop {
        let all = servers(&dir.0);
        let has = |what: &str| all.iter().find(|(_, line)| line.contains(what));
        if let (Some(_), Some((pid, _))) = (has(" router "), has("shard1")) {
            break *pid;
        }
        assert_eq!(child.try_wait().unwrap(), None, "it has ended");
        assert!(begin.elapsed() < Duration::from_secs(60), "{all:?}");
        std::thread::sleep(Duration::from_millis(10));
    };
    let victim = rustix::process::Pid::from_raw(victim as i32).unwrap();
    rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
    let out = ends_within(child, Duration::from_secs(120));
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success(), "{stderr}");
    assert!(
        stderr.contains("2 shards: shard1: the embedded server has ended"),
        "{stderr}"
    );
    assert_eq!(leftovers(&dir.0), Vec::<PathBuf>::new());
    assert_eq!(servers(&dir.0), []);
}
