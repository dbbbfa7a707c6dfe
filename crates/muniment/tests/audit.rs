//! `muniment bench audit` from end to end. An audit that cannot detect a loss is useless, so most of these
//! tests make servers lose writes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use muniment_value::doc;
use muniment_wire::Connection;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const BIN: &str = env!("CARGO_BIN_EXE_muniment");

/// With this seed the first twelve crashes come late, because a busy machine needs time to write.
const LATE: &str = "22166";

struct Audit {
    dir: tempfile::TempDir,
}

impl Audit {
    fn new() -> Audit {
        Audit {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let dir = self.dir.path();
        let mut c = Command::new(BIN);
        c.args(["bench", "audit", "--tables", "--data"]).arg(dir);
        c.arg("--out").arg(dir.join("report"));
        c.arg("--json").arg(dir.join("results.jsonl"));
        c.args(args);
        c
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The figure `name` of the result.
    fn figure(&self, name: &str) -> f64 {
        let text = std::fs::read_to_string(self.dir.path().join("results.jsonl")).unwrap();
        let at = text
            .find(&format!("\"name\":\"{name}\""))
            .unwrap_or_else(|| panic!("no figure {name} in {text}"));
        let value = text[at..].split("\"value\":").nth(1).unwrap();
        let end = value.find([',', '}']).unwrap();
        value[..end].parse().unwrap()
    }

    fn leftovers(&self) -> Vec<String> {
        std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|n| n.starts_with("muniment-bench-"))
            .collect()
    }
}

fn words(o: &Output) -> String {
    format!(
        "{}\n{}",
        String::from_utf8_lossy(&o.stdout),
        String::from_utf8_lossy(&o.stderr)
    )
}

#[test]
fn the_embedded_server_keeps_its_promises() {
    let a = Audit::new();
    let begin = Instant::now();
    let o = a.run(&["--rounds", "1", "--seconds", "0.6", "--seed", LATE]);
    let text = words(&o);
    assert!(o.status.success(), "{text}");
    assert!(begin.elapsed() < Duration::from_secs(60));
    for crash in ["process crash", "power loss"] {
        for concern in [
            "w:0",
            "w:1",
            "j:true",
            "majority",
            "transactions: all or nothing",
            "retries: exactly once",
        ] {
            let name = |what| format!("{concern}, {crash}: {what}");
            assert!(a.figure(&name("acknowledged")) > 0.0, "{text}");
            let may_lose = crash == "power loss" && concern.starts_with("w:");
            if !may_lose {
                assert_eq!(a.figure(&name("lost")), 0.0, "{text}");
            }
        }
    }
    assert!(!text.contains("BROKEN"), "{text}");
    let html = std::fs::read_to_string(a.dir.path().join("report/report.html")).unwrap();
    assert!(html.contains("Acknowledged writes after a crash") && html.contains(">KEPT<"));
    assert_eq!(a.leftovers(), Vec::<String>::new());
}

/// With `MUNIMENT_LONG=1`, the audit runs under every fault, with every check, five times.
#[test]
fn a_set_keeps_its_promises() {
    let a = Audit::new();
    let o = match std::env::var_os("MUNIMENT_LONG") {
        None => a.run(&[
            "--topology",
            "set",
            "--faults",
            "kill-primary,cut-primary",
            "--concerns",
            "w:1,majority",
            "--checks",
            "concerns,retries",
        ]),
        Some(_) => a.run(&["--topology", "set", "--preset", "paper", "--rounds", "5"]),
    };
    let text = words(&o);
    assert!(o.status.success(), "{text}");
    assert!(!text.contains("BROKEN"), "{text}");
    let name = |concern, what| format!("{concern}, primary cut off: {what}");
    for concern in ["w:1", "majority", "retries: exactly once"] {
        assert!(a.figure(&name(concern, "acknowledged")) > 0.0, "{text}");
    }
    assert_eq!(a.figure(&name("majority", "lost")), 0.0, "{text}");
    // A primary that is cut off continues with w:1 until it notices. An audit that does not detect this loss
    // cannot be trusted.
    assert!(a.figure(&name("w:1", "lost")) > 0.0, "{text}");
    assert_eq!(a.leftovers(), Vec::<String>::new());
}

#[test]
fn a_long_commit_interval_loses_writes_and_the_audit_sees_them() {
    let a = Audit::new();
    let o = a.run(&[
        "--concerns",
        "w:1",
        "--crash",
        "power",
        "--journalCommitInterval",
        "500",
        "--rounds",
        "3",
        "--seed",
        LATE,
        "--seconds",
        "1.0",
    ]);
    let text = words(&o);
    assert!(o.status.success(), "{text}");
    assert!(a.figure("w:1, power loss: lost") > 0.0, "{text}");
    let oldest = a.figure("w:1, power loss: oldest lost");
    assert!(oldest > 0.0, "{text}");
    assert!(text.contains("at most the last 500 ms"), "{text}");
    let html = std::fs::read_to_string(a.dir.path().join("report/report.html")).unwrap();
    assert!(html.contains("Lost writes by age"));
}

/// The disk claims to have synced but has not.
#[test]
fn a_disk_that_lies_breaks_the_promise_of_j_true() {
    let a = Audit::new();
    let args = format!("--concerns j:true --crash power --rounds 1 --seconds 0.5 --seed {LATE}");
    let o = a
        .command(&args.split(' ').collect::<Vec<_>>())
        .env("POWERLOSS_IGNORE_SYNC", "1")
        .output()
        .unwrap();
    let text = words(&o);
    assert_eq!(o.status.code(), Some(1), "{text}");
    assert!(
        text.contains("the promise of j:true on power loss was broken"),
        "{text}"
    );
    let acknowledged = a.figure("j:true, power loss: acknowledged");
    assert!(acknowledged > 0.0);
    assert_eq!(a.figure("j:true, power loss: lost"), acknowledged, "{text}");
}

/// The same holds for transactions and for writes that are sent again.
#[test]
fn a_disk_that_lies_breaks_the_promises_of_transactions_and_retries() {
    let a = Audit::new();
    let args = format!(
        "--checks transactions,retries --crash power --rounds 1 --seconds 0.5 --seed {LATE}"
    );
    let o = a
        .command(&args.split(' ').collect::<Vec<_>>())
        .env("POWERLOSS_IGNORE_SYNC", "1")
        .output()
        .unwrap();
    let text = words(&o);
    assert_eq!(o.status.code(), Some(1), "{text}");
    for check in ["transactions: all or nothing", "retries: exactly once"] {
        let broken = format!("the promise of {check} on power loss was broken");
        assert!(text.contains(&broken), "{text}");
        let figure = format!("{check}, power loss: lost");
        assert!(a.figure(&figure) > 0.0, "{text}");
    }
}

/// A server that the lab has not started. It ends with the test, however often it was killed meanwhile.
struct Foreign {
    dir: tempfile::TempDir,
    first: Child,
    port: u16,
    /// Further options, at every start.
    options: &'static str,
}

impl Foreign {
    fn start(options: &'static str) -> Foreign {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        let port_file = dir.path().join("port");
        let first = Command::new(BIN)
            .args(["serve", "--port", "0", "--bind_ip", "127.0.0.1", "--dbpath"])
            .arg(dir.path().join("data"))
            .arg("--portFile")
            .arg(&port_file)
            .args(options.split_whitespace())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let port = loop {
            let text = std::fs::read_to_string(&port_file).unwrap_or_default();
            if let Ok(port) = text.trim().parse() {
                break port;
            }
            assert!(begin.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(5));
        };
        Foreign {
            dir,
            first,
            port,
            options,
        }
    }

    fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}", self.port)
    }

    /// The command that runs `before`, starts the server again and records its process id.
    fn template(&self, before: &str) -> String {
        let d = self.dir.path().display();
        format!(
            "{before} echo $$ > {d}/pid; exec {BIN} serve --port {{port}} --bind_ip {{host}} --dbpath {d}/data {}",
            self.options
        )
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.first.kill();
        let _ = self.first.wait();
        if let Ok(pid) = std::fs::read_to_string(self.dir.path().join("pid")) {
            let _ = Command::new("kill").args(["-9", pid.trim()]).status();
        }
    }
}

/// Every connection logs in again, also after the server has come back.
#[test]
fn an_external_server_is_killed_and_started_by_templates() {
    let (a, server) = (Audit::new(), Foreign::start("--auth"));
    let roles = muniment_value::array!["root"];
    let root = doc! { "createUser": "root", "pwd": "hush", "roles": roles };
    let mut c = Connection::connect(&format!("127.0.0.1:{}", server.port)).unwrap();
    c.command("admin", &root).unwrap();
    let uri = server.uri().replace("://", "://root:hush@");
    // The first process is the test's own child. It has to be waited for, but its port is free at once.
    let o = a.run(&[
        "--uri",
        &uri,
        "--start",
        &server.template(""),
        "--kill",
        "kill -9 {pid}",
        "--rounds",
        "2",
        "--seed",
        LATE,
        "--seconds",
        "0.4",
        "--concerns",
        "w:1,j:true",
    ]);
    let text = words(&o);
    assert!(o.status.success(), "{text}");
    assert!(text.contains("PROCESS CRASH ONLY"), "{text}");
    assert!(a.figure("w:1, process crash: acknowledged") > 0.0);
    assert_eq!(a.figure("w:1, process crash: lost"), 0.0, "{text}");
}

#[test]
fn a_server_that_forgets_breaks_its_promise() {
    let (a, server) = (Audit::new(), Foreign::start(""));
    let data = server.dir.path().join("data");
    let forget = format!("rm -rf {}/*;", data.display());
    let o = a.run(&[
        "--uri",
        &server.uri(),
        "--start",
        &server.template(&forget),
        "--rounds",
        "1",
        "--seed",
        LATE,
        "--seconds",
        "0.4",
        "--concerns",
        "j:true",
    ]);
    let text = words(&o);
    assert_eq!(o.status.code(), Some(1), "{text}");
    let lost = a.figure("j:true, process crash: lost");
    assert!(lost > 0.0 && text.contains("BROKEN"), "{text}");
    assert_eq!(lost, a.figure("j:true, process crash: acknowledged"));
}

#[test]
fn ctrl_c_ends_between_crashes_and_writes_what_there_is() {
    let a = Audit::new();
    let mut child = a
        .command(&["--rounds", "1000", "--seconds", "0.3", "--concerns", "w:1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > Duration::from_secs(30) {
            let _ = child.kill();
            panic!("it does not end on Ctrl-C");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let o = child.wait_with_output().unwrap();
    let text = words(&o);
    assert_eq!(o.status.code(), Some(130), "{text}");
    assert!(text.contains("interrupted"), "{text}");
    assert!(a.dir.path().join("report/report.html").exists());
    assert_eq!(a.leftovers(), Vec::<String>::new());
}

#[test]
fn mistakes_are_said_plainly() {
    for (args, code, why) in [
        (&["--concerns", "maj"][..], 2, "'maj' is no write concern"),
        (
            &["--crash", "power", "--uri", "mongodb://h"][..],
            2,
            "needs the embedded server",
        ),
        (
            &["--uri", "mongodb://127.0.0.1:1"][..],
            2,
            "--start is needed",
        ),
        (
            &["--uri", "mongodb://127.0.0.1:1", "--start", "x"][..],
            1,
            "no server to work on",
        ),
        // An experiment that a standalone cannot run is an error of its own, before any crash.
        (
            &["--concerns", "w:2", "--crash", "process"][..],
            1,
            "before the crash: cannot use 'w' > 1",
        ),
    ] {
        let o = Audit::new().run(args);
        let text = words(&o);
        assert_eq!(o.status.code(), Some(code), "{text}");
        assert!(text.contains(why), "{text}");
    }
}
