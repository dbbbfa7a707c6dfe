//! The lab logs in to a server with `--auth`, and its password is found nowhere afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use muniment_value::{array, doc};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use testkit::{Server, ServerOptions};

const PASSWORD: &str = "hush@hush:/é";
const ENCODED: &str = "hush%40hush%3A%2F%C3%A9";
/// What both of them have, and nothing else has.
const SECRET: &str = "hush";

/// A server with one user, who has both mechanisms and the roles that docs/lab.md names.
fn server() -> Server {
    let server = Server::start(ServerOptions::new().arg("--auth"));
    let mut c = server.connect();
    let own = |role: &str| doc! { "role": role, "db": "muniment_bench" };
    let roles = array![own("readWrite"), own("dbAdmin"), "clusterMonitor"];
    let user = doc! { "createUser": "bench", "pwd": PASSWORD, "roles": roles };
    c.command("admin", &user).unwrap();
    server
}

fn lab(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_muniment"))
        .args(["bench", "run", "point-read", "--preset", "smoke"])
        .args(["--set", "seconds=1", "--set", "records=1000"])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn printed(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr)
}

/// The files below a directory that have this text.
fn files_with(dir: &Path, text: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_with(&path, text, found);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        if bytes.windows(text.len()).any(|w| w == text.as_bytes()) {
            found.push(path.display().to_string());
        }
    }
}

/// Waits until the lab has hidden its password from the list of processes.
#[cfg(target_os = "linux")]
fn wait_until_hidden(lab: &mut Child, of: &Server) {
    let file = format!("/proc/{}/cmdline", lab.id());
    of.until("the password is hidden", || {
        let shown = std::fs::read(&file).unwrap_or_default();
        let shown = String::from_utf8_lossy(&shown);
        let ended = !matches!(lab.try_wait(), Ok(None));
        (ended || shown.contains("bench:***") && !shown.contains(SECRET)).then_some(())
    });
    assert!(matches!(lab.try_wait(), Ok(None)), "it ended too early");
}

#[test]
fn a_workload_logs_in_and_leaves_no_password() {
    let server = server();
    let dir = tempfile::tempdir().unwrap();
    let outs = ["one", "two"].map(|n| dir.path().join(n).to_string_lossy().into_owned());
    let uri = format!("mongodb://bench:{ENCODED}@{}", server.address());
    let ours = format!("a={uri}/shop?authSource=admin");
    let other = format!("b={uri}/?authMechanism=SCRAM-SHA-1");
    for (targets, out) in [
        vec!["--target", ours.as_str()],
        vec!["--target", &ours, "--target", &other, "--turns", "1"],
    ]
    .into_iter()
    .zip(&outs)
    {
        let mut lab = lab(&[&targets[..], &["--out", out]].concat());
        #[cfg(target_os = "linux")]
        wait_until_hidden(&mut lab, &server);
        let done = lab.wait_with_output().unwrap();
        let text = printed(&done);
        assert!(done.status.success(), "{text}");
        assert!(!text.contains(SECRET), "{text}");
    }
    let mut found = Vec::new();
    files_with(dir.path(), SECRET, &mut found);
    assert!(found.is_empty(), "{found:?}");
    // The files were searched where they should name the user.
    files_with(dir.path(), "mongodb://bench:***@", &mut found);
    assert!(
        found.iter().any(|f| f.ends_with("results.json")),
        "{found:?}"
    );
    assert!(
        found.iter().any(|f| f.ends_with("report.html")),
        "{found:?}"
    );
}

#[test]
fn a_login_that_fails_is_said_with_words() {
    let server = server();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let address = server.address();
    for (who, options, why) in [
        (
            format!("bench:{ENCODED}wrong@"),
            "",
            "as bench@admin with SCRAM-SHA-256: Authentication failed. (18 AuthenticationFailed)",
        ),
        (
            format!("bench:{ENCODED}@"),
            "?authSource=shop",
            "as bench@shop with SCRAM-SHA-1: Authentication failed.",
        ),
        (
            format!("bench:{ENCODED}@"),
            "?authMechanism=GSSAPI",
            "authMechanism=GSSAPI is not supported",
        ),
        (String::new(), "", "requires authentication"),
    ] {
        let uri = format!("mongodb://{who}{address}/{options}");
        let done = lab(&["--uri", &uri, "--out", out])
            .wait_with_output()
            .unwrap();
        let text = printed(&done);
        assert!(!done.status.success() && text.contains(why), "{text}");
        assert!(!text.contains(SECRET), "{text}");
        let _ = std::fs::remove_dir_all(out);
    }
}
