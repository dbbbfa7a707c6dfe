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

/// `muniment bench` with nothing but these arguments.
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

/// What the lab left in its data directory: nothing of an embedded server may stay.
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
    for want in [
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
    assert!(dir.0.join("report/histograms/w1-w-1.hlog").is_file());
    // The page can be made from what was kept, in either form, and is the same to the byte.
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
    // The environment, four concerns, the result.
    assert_eq!(lines.lines().count(), 6);
    assert!(lines.lines().all(|l| l.starts_with("{\"kind\":")));
    assert_eq!(leftovers(&dir.0), Vec::<PathBuf>::new());
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
    assert!(!out.status.success());
    let html = std::fs::read_to_string(dir.0.join("report/report.html")).unwrap();
    assert!(html.contains("interrupted"));
    assert!(
        String::from_utf8_lossy(&out.stderr)
            .contains("interrupted; what there was has been written")
    );
    assert_eq!(leftovers(&dir.0), Vec::<PathBuf>::new());
}

#[test]
fn a_file_that_is_no_run_is_said_to_be_none() {
    let dir = Dir::new("no-run");
    let file = dir.0.join("damaged.jsonl");
    std::fs::write(&file, "{\"kind\":\"run\",\"format\":2}\nnonsense\n").unwrap();
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
        (&["w9"][..], 2, "there is no experiment 'w9'"),
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
        let out = bench(&dir.0, args).output().unwrap();
        assert_eq!(out.status.code(), Some(code));
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(stderr.contains(want), "{stderr}");
    }
}
