//! The binary from outside: version and help as tools read them, the configuration, the start in the
//! background, and the logs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{array, doc};
use muniment_wire::Connection;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions};

/// The binary under the name `mongod`, under which init scripts and mlaunch call it.
fn mongod(dir: &Path) -> std::path::PathBuf {
    let link = dir.join("mongod");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_muniment"), &link).unwrap();
    }
    link
}

fn run(program: &Path, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap()
}

#[test]
fn version_and_help_are_what_tools_parse() {
    let dir = tempfile::tempdir().unwrap();
    let out = run(&mongod(dir.path()), &["--version"]);
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.starts_with("db version v8.0."), "{text}");
    assert!(text.contains("Build Info: {"), "{text}");
    let out = run(&mongod(dir.path()), &["--help"]);
    let text = String::from_utf8(out.stdout).unwrap();
    let options: Vec<_> = text
        .lines()
        .filter_map(|l| l.trim_start().strip_prefix("--"))
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    for wanted in [
        "dbpath",
        "logpath",
        "port",
        "fork",
        "logappend",
        "wiredTigerCacheSizeGB",
        "bind_ip",
        "setParameter",
    ] {
        assert!(options.contains(&wanted), "{wanted} in {options:?}");
    }
}

#[test]
fn an_unknown_option_ends_with_2_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.yaml");
    let config = file.to_str().unwrap();
    let muniment = Path::new(env!("CARGO_BIN_EXE_muniment"));
    for (text, args, named) in [
        ("", vec!["--frobnicate"], "--frobnicate"),
        ("", vec!["--replSet", "rs/h:1"], "--replSet"),
        ("", vec!["--autoInitiate"], "--replSet"),
        ("", vec!["--storageEngine", "mmapv1"], "--storageEngine"),
        ("", vec!["--port", "99999"], "--port"),
        ("", vec!["--fork"], "--logpath"),
        ("", vec!["--setParameter", "nope=1", "--port", "0"], "nope"),
        ("net:\n  prot: 1\n", vec!["--config", config], "net.prot"),
        (
            "security:\n  authorization: perhaps\n",
            vec!["--config", config],
            "security.authorization",
        ),
        ("net: [1]\n", vec!["--config", config], "line 1"),
    ] {
        fs::write(&file, text).unwrap();
        let mut all = vec!["serve", "--dbpath", dir.path().to_str().unwrap()];
        all.extend(&args);
        let out = run(muniment, &all);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(named), "{args:?}: {said}");
    }
    for mode in ["router", "stat", "top", "nonsense"] {
        assert_eq!(run(muniment, &[mode]).status.code(), Some(2), "{mode}");
    }
}

#[test]
fn it_forks_and_logs_and_takes_a_configuration_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (config, log, pid_file, port_file) = (at("c.yaml"), at("log"), at("pid"), at("port"));
    fs::create_dir(at("data")).unwrap();
    fs::write(
        &config,
        format!(
            "storage:\n  dbPath: {}\nnet:\n  port: 0\nsystemLog:\n  destination: file\n  path: \
             \"{log}\"\nprocessManagement:\n  fork: true\n  pidFilePath: {pid_file}\n",
            at("data")
        ),
    )
    .unwrap();
    let args = ["--config", &config, "--portFile", &port_file];
    let out = run(&mongod(dir.path()), &args);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}");
    assert!(
        said.contains("child process started successfully, parent exiting"),
        "{said}"
    );
    let read = |p: &str| fs::read_to_string(p).unwrap().trim().to_string();
    let (pid, port) = (read(&pid_file), read(&port_file));
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    assert_eq!(name.trim(), "mongod");
    let mut c = Connection::connect(&format!("127.0.0.1:{port}")).unwrap();
    let options = c.command("admin", &doc! { "getCmdLineOpts": 1 }).unwrap();
    let parsed = options.as_doc().get_doc("parsed").unwrap();
    assert_eq!(parsed.get_str("config"), Some(config.as_str()));
    assert!(parsed.get_doc("processManagement").is_some());
    // A second server on the same directory says why it does not start.
    let out = run(&mongod(dir.path()), &["--config", &config]);
    assert_eq!(out.status.code(), Some(100));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        said.contains("ERROR: child process failed") && said.contains(&pid),
        "{said}"
    );
    let _ = c.command("admin", &doc! { "shutdown": 1 });
    let deadline = Instant::now() + Duration::from_secs(10);
    while Path::new(&format!("/proc/{pid}")).exists() {
        assert!(Instant::now() < deadline, "the server does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!Path::new(&pid_file).exists() && !Path::new(&port_file).exists());
    for line in fs::read_to_string(&log).unwrap().lines() {
        let d = muniment_value::DocBuf::from_json(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        for field in ["t", "s", "c", "id", "ctx", "msg"] {
            assert!(d.as_doc().get(field).is_some(), "{field} in {line}");
        }
    }
}

#[test]
fn an_address_may_be_named_twice() {
    let s = Server::start(
        ServerOptions::new()
            .arg("--bind_ip")
            .arg("localhost,127.0.0.1"),
    );
    let mut c = s.connect();
    assert!(c.command("admin", &doc! { "ping": 1 }).is_ok());
    let out = Command::new(env!("CARGO_BIN_EXE_muniment"))
        .args(["serve", "--nounixsocket", "--dbpath"])
        .arg(s.dir().with_file_name("other"))
        .args(["--port", &s.port().to_string()])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(48), "the port is taken");
    assert!(String::from_utf8_lossy(&out.stderr).contains("cannot listen on"));
}

#[test]
fn slow_operations_are_logged_and_get_log_has_them() {
    let s = Server::start(ServerOptions::new().arg("--slowms").arg("0"));
    let mut c = s.connect();
    c.command(
        "t",
        &doc! { "insert": "slow", "documents": array![doc! { "_id": "x" }] },
    )
    .unwrap();
    let reply = c.command("admin", &doc! { "getLog": "global" }).unwrap();
    let lines = reply.as_doc().get_array("log").unwrap();
    let slow = lines
        .values()
        .filter_map(|v| v.as_str())
        .find(|l| l.contains("Slow query") && l.contains("t.slow"));
    let slow = slow.expect("the insert in the log");
    assert!(
        slow.contains("\"durationMillis\":") && slow.contains("\"c\":\"COMMAND\""),
        "{slow}"
    );
    let reply = c
        .command("admin", &doc! { "getLog": "startupWarnings" })
        .unwrap();
    let total = reply.as_doc().get("totalLinesWritten").unwrap();
    assert_eq!(
        total.as_i64_exact().unwrap() as usize,
        reply.as_doc().get_array("log").unwrap().count()
    );
    assert!(c.command("admin", &doc! { "getLog": "nope" }).is_err());
}

#[test]
fn the_default_concern_outlives_the_server() {
    if !testkit::persistent() {
        return;
    }
    let mut s = Server::start(ServerOptions::new());
    let get = |s: &Server| {
        let mut c = s.connect();
        c.command("admin", &doc! { "getDefaultRWConcern": 1 })
            .unwrap()
    };
    let before = get(&s);
    assert_eq!(
        before.as_doc().get_str("defaultWriteConcernSource"),
        Some("implicit")
    );
    let mut c = s.connect();
    let zero = doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": doc! { "w": 0 } };
    assert!(c.command("admin", &zero).is_err());
    let set = doc! { "setDefaultRWConcern": 1,
    "defaultWriteConcern": doc! { "w": 1, "j": true }, "writeConcern": doc! { "j": true } };
    c.command("admin", &set).unwrap();
    s.kill9();
    s.start_again();
    let after = get(&s);
    assert_eq!(
        after.as_doc().get_str("defaultWriteConcernSource"),
        Some("global")
    );
    let wc = after.as_doc().get_doc("defaultWriteConcern").unwrap();
    assert!(wc.get("j").unwrap().truthy(), "{after:?}");
}

#[test]
fn indexes_conflict_as_mongodbs_do() {
    let s = Server::start(ServerOptions::new());
    let mut c = s.connect();
    let mut create = |specs: muniment_value::ArrayBuf| {
        let reply = c
            .command_raw("t", &doc! { "createIndexes": "c", "indexes": specs })
            .unwrap();
        let code = reply.as_doc().get("code").and_then(|v| v.as_i64_exact());
        (code.unwrap_or(0), reply)
    };
    let a = || doc! { "a": 1 };
    let (code, reply) = create(array![doc! { "key": a(), "name": "a_1" }]);
    assert_eq!(code, 0);
    let n =
        |r: &muniment_value::DocBuf, f: &str| r.as_doc().get(f).unwrap().as_i64_exact().unwrap();
    assert_eq!(
        (n(&reply, "numIndexesBefore"), n(&reply, "numIndexesAfter")),
        (1, 2)
    );
    assert!(
        reply
            .as_doc()
            .get("createdCollectionAutomatically")
            .unwrap()
            .truthy()
    );
    let (code, reply) = create(array![doc! { "key": a(), "name": "a_1" }]);
    assert_eq!(code, 0);
    assert_eq!(
        reply.as_doc().get_str("note"),
        Some("all indexes already exist")
    );
    for (spec, code) in [
        (doc! { "key": a(), "name": "other" }, 85),
        (
            doc! { "key": a(), "name": "a_1", "expireAfterSeconds": 5 },
            85,
        ),
        (doc! { "key": doc! { "b": 1 }, "name": "a_1" }, 86),
        (doc! { "key": a(), "name": "a_1", "unique": true }, 86),
        (doc! { "key": doc! { "b": "nope" }, "name": "b" }, 67),
        (doc! { "key": doc! { "b": 0 }, "name": "b" }, 67),
        (doc! { "key": doc! {}, "name": "b" }, 67),
        (doc! { "key": doc! { "b": 1 }, "name": "b", "frob": 1 }, 197),
        (doc! { "key": doc! { "b": 1 } }, 9),
        (doc! { "name": "b" }, 9),
        (doc! { "key": 1, "name": "b" }, 14),
    ] {
        let (got, reply) = create(array![&spec]);
        assert_eq!(got, code, "{spec:?}: {reply:?}");
    }
    assert_eq!(create(array![]).0, 2);
    // If one index of a command fails, the others are not created either.
    let (code, _) = create(array![
        doc! { "key": doc! { "c": 1 }, "name": "c_1" },
        doc! { "key": doc! { "d": 1 }, "name": "a_1" },
    ]);
    assert_eq!(code, 86);
    let all = c.find_all("t", &doc! { "listIndexes": "c" }).unwrap();
    assert_eq!(all.len(), 2, "{all:?}");
    for (index, code) in [("nope", 27), ("_id_", 72), ("a_1", 0)] {
        let reply = c
            .command_raw("t", &doc! { "dropIndexes": "c", "index": index })
            .unwrap();
        let got = reply.as_doc().get("code").and_then(|v| v.as_i64_exact());
        assert_eq!(got.unwrap_or(0), code, "{index}: {reply:?}");
    }
}
