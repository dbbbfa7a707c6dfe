//! The process as an operator uses it: files of distributions, flags of tools, signals, and data directories
//! that are not Muniment's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{Doc, DocBuf, JsonMode, array, doc};
use muniment_wire::Connection;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::{Server, ServerOptions};

const PATIENCE: Duration = Duration::from_secs(30);

/// A directory with a `mongod` in it, and a place for data.
struct Home(TempDir);

impl Home {
    fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        let binary = env!("CARGO_BIN_EXE_muniment");
        std::os::unix::fs::symlink(binary, home.at("mongod")).unwrap();
        fs::create_dir(home.at("data")).unwrap();
        home
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.at(name).to_str().unwrap().to_string()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.at("mongod"));
        command
            .args(args)
            .env("TZ", "TST-05:30")
            .stdin(Stdio::null())
            .current_dir(self.0.path());
        // SAFETY: only async-signal-safe calls are made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // Under nohup the signal would be ignored, and a server respects that.
                libc::signal(libc::SIGHUP, libc::SIG_DFL);
                Ok(())
            });
        }
        command
    }

    /// Runs the program to its end.
    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts the program, with standard output in the file `out`, and waits until it answers.
    fn start(&self, args: &[&str]) -> Process {
        let port_file = self.at("port");
        let _ = fs::remove_file(&port_file);
        let data = self.path("data");
        let mut all = vec!["--port", "0", "--portFile", "port"];
        if !args.contains(&"--config") {
            all.extend(["--dbpath", &data]);
        }
        all.extend(args);
        let out = File::create(self.at("out")).unwrap();
        let mut command = self.command(&all);
        command.stdout(out.try_clone().unwrap()).stderr(out);
        let mut child = command.spawn().unwrap();
        let until = Instant::now() + PATIENCE;
        let port = loop {
            if let Ok(text) = fs::read_to_string(&port_file) {
                break text.trim().to_string();
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "{}", self.out());
            std::thread::sleep(Duration::from_millis(5));
        };
        Process { child, port }
    }

    fn out(&self) -> String {
        fs::read_to_string(self.at("out")).unwrap_or_default()
    }
}

struct Process {
    child: Child,
    port: String,
}

impl Process {
    fn connect(&self) -> Connection {
        Connection::connect(&format!("127.0.0.1:{}", self.port)).unwrap()
    }

    fn admin(&self, command: &DocBuf) -> DocBuf {
        self.connect().command("admin", command).unwrap()
    }

    fn signal(&self, number: i32) {
        // SAFETY: the function takes plain numbers.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, number) }, 0);
    }

    fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn at<'d>(d: Doc<'d>, path: &str) -> Option<&'d str> {
    let (sections, last) = path.rsplit_once('.')?;
    let section = sections.split('.').try_fold(d, |d, name| d.get_doc(name))?;
    section.get_str(last)
}

#[test]
fn the_files_of_distributions_start_it_unchanged() {
    let home = Home::new();
    let (data, log) = (home.path("data"), home.path("mongod.log"));
    let config = format!(
        "# mongod.conf\nstorage:\n  dbPath: {data}\n#  engine:\n#  wiredTiger:\n\nsystemLog:\n  \
         destination: file\n  logAppend: true\n  path: {log}\n\nnet:\n  port: 27017\n  bindIp: \
         127.0.0.1\n\nprocessManagement:\n  timeZoneInfo: /usr/share/zoneinfo\n\n#security:\n\n\
         #operationProfiling:\n\nreplication:\n\n#sharding:\n"
    );
    fs::write(home.at("mongod.conf"), config).unwrap();
    let p = home.start(&["--config", "mongod.conf", "--storageEngine", "wiredTiger"]);
    let options = p.admin(&doc! { "getCmdLineOpts": 1 });
    let parsed = options.as_doc().get_doc("parsed").unwrap();
    for (path, wanted) in [
        ("storage.dbPath", data.as_str()),
        ("storage.engine", "wiredTiger"),
        ("systemLog.destination", "file"),
        ("systemLog.path", &log),
        ("net.bindIp", "127.0.0.1"),
        ("processManagement.timeZoneInfo", "/usr/share/zoneinfo"),
    ] {
        assert_eq!(at(parsed, path), Some(wanted), "{path}");
    }
    let status = p.admin(&doc! { "serverStatus": 1 });
    let build = p.admin(&doc! { "buildInfo": 1 });
    let engine = at(status.as_doc(), "storageEngine.name").unwrap();
    assert_eq!(Some(engine), at(parsed, "storage.engine"));
    let engines = build.as_doc().get_array("storageEngines").unwrap();
    assert!(engines.values().any(|e| e.as_str() == Some(engine)));
    // There is one line for each option that has no effect here.
    let text = fs::read_to_string(&log).unwrap();
    let told: Vec<_> = text.lines().filter(|l| l.contains("\"why\":")).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("timeZoneInfo") && told[1].contains("wiredTiger"));
}

#[test]
fn options_that_have_an_equivalent_do_it() {
    let home = Home::new();
    let config = "operationProfiling: {filter: '{op: \"query\"}'}\n\
                  systemLog: {component: {storage: {journal: {verbosity: 2}}}}\n";
    fs::write(home.at("c.yaml"), config).unwrap();
    let p = home.start(&[
        "-f",
        "c.yaml",
        "-profile=2",
        "--slowms",
        "7",
        "--slowOpSampleRate",
        "0.5",
        "--networkMessageCompressors",
        "zlib",
        "--timeStampFormat",
        "iso8601-local",
        "--unixSocketPrefix",
        ".",
        "--filePermissions",
        "0600",
        "--verbose",
        "--setParameter",
        "logComponentVerbosity={network: {verbosity: 3}}",
    ]);
    let mut c = p.connect();
    let insert = doc! { "insert": "c", "documents": array![doc! { "_id": 1 }] };
    c.command("t", &insert).unwrap();
    let profile = c.command("t", &doc! { "profile": -1 }).unwrap();
    let profile = profile.as_doc();
    assert_eq!(profile.get("was").and_then(|v| v.as_i64_exact()), Some(2));
    assert_eq!(
        profile.get("slowms").and_then(|v| v.as_i64_exact()),
        Some(7)
    );
    let rate = profile.get("sampleRate");
    assert!(matches!(rate, Some(muniment_value::Value::Double(0.5))));
    let filter = profile
        .get_doc("filter")
        .unwrap()
        .to_json(JsonMode::Relaxed);
    assert!(filter.contains("query"), "{filter}");
    c.command("t", &doc! { "find": "c" }).unwrap();
    let count = doc! { "count": "system.profile", "query": doc! { "ns": "t.c", "op": "query" } };
    eventually("the find is recorded", || {
        let n = c.command("t", &count).unwrap();
        n.as_doc().get("n").and_then(|v| v.as_i64_exact()) == Some(1)
    });
    // A read of a database that does not exist creates none.
    c.command("nothing", &doc! { "find": "c" }).unwrap();
    let list = p.admin(&doc! { "listDatabases": 1, "nameOnly": true });
    assert!(!format!("{list:?}").contains("nothing"), "{list:?}");
    let hello = doc! { "hello": 1, "compression": array!["snappy", "zlib"] };
    let hello = c.command("admin", &hello).unwrap();
    let offered = hello.as_doc().get_array("compression").unwrap();
    let offered: Vec<_> = offered.values().filter_map(|v| v.as_str()).collect();
    assert_eq!(offered, ["zlib"]);
    let socket = home.at(&format!("mongodb-{}.sock", p.port));
    let mode = fs::metadata(socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let line = home.out();
    assert!(line.starts_with("{\"t\":{\"$date\":\"20") && line.contains("+05:30\"}"));
    let get = doc! { "getParameter": 1, "logComponentVerbosity": 1, "logLevel": 1 };
    let got = p.admin(&get);
    let levels = got.as_doc().get_doc("logComponentVerbosity").unwrap();
    let journal = levels.get_doc("storage").and_then(|s| s.get_doc("journal"));
    let journal = journal.unwrap().get("verbosity");
    assert_eq!(journal.and_then(|v| v.as_i64_exact()), Some(2));
    let network = levels.get_doc("network").unwrap().get("verbosity");
    assert_eq!(network.and_then(|v| v.as_i64_exact()), Some(3));
    let level = got.as_doc().get("logLevel").and_then(|v| v.as_i64_exact());
    assert_eq!(level, Some(1));
}

/// The forms of the command line that mongod accepts, and their effects.
#[test]
fn mongods_ways_to_write_an_option() {
    let home = Home::new();
    fs::write(
        home.at("c.yaml"),
        format!("storage: {{dbPath: {}}}\n", home.path("data")),
    )
    .unwrap();
    for (args, key, wanted) in [
        (&["-vv"][..], "systemLog.verbosity", 2),
        (&["--verbose"], "systemLog.verbosity", 1),
        (&["--verbose=vvv"], "systemLog.verbosity", 3),
        (&["--verbose", "4"], "systemLog.verbosity", 4),
        (&["-slowms", "5"], "operationProfiling.slowOpThresholdMs", 5),
        (&["-slowms=6"], "operationProfiling.slowOpThresholdMs", 6),
    ] {
        let mut all = vec!["-f", "c.yaml", "--port", "0", "--portFile", "port"];
        all.extend(args);
        let mut command = home.command(&all);
        command.stdout(Stdio::null());
        let p = with_files(&home, command, 1000);
        let options = p.admin(&doc! { "getCmdLineOpts": 1 });
        let (section, name) = key.split_once('.').unwrap();
        let parsed = options.as_doc().get_doc("parsed").unwrap();
        let got = parsed.get_doc(section).and_then(|s| s.get(name));
        assert_eq!(got.and_then(|v| v.as_i64_exact()), Some(wanted), "{args:?}");
        drop(p);
        fs::remove_file(home.at("port")).unwrap();
    }
}

#[test]
fn shutdown_ends_the_server_of_a_directory() {
    let home = Home::new();
    let data = home.path("data");
    let none = home.run(&["--shutdown", "--dbpath", &data]);
    assert_eq!(none.status.code(), Some(1));
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(
        said.contains("doesn't seem to be a server running"),
        "{said}"
    );
    let mut p = home.start(&[]);
    let ended = home.run(&["--shutdown", "--dbpath", &data]);
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{said}");
    let pid = p.child.id();
    assert_eq!(said, format!("killing process with pid: {pid}\n"));
    assert_eq!(p.wait().code(), Some(0));
    let repaired = home.run(&["--repair", "--dbpath", &data]);
    assert!(repaired.status.success(), "{repaired:?}");
}

#[test]
fn signals_are_what_they_are_to_mongodb() {
    for (signal, code) in [
        (libc::SIGTERM, Some(0)),
        (libc::SIGINT, Some(0)),
        (libc::SIGHUP, Some(0)),
        (libc::SIGXCPU, Some(0)),
        (libc::SIGQUIT, None),
    ] {
        let home = Home::new();
        let mut p = home.start(&[]);
        // These signals end nothing.
        for harmless in [libc::SIGPIPE, libc::SIGUSR1, libc::SIGUSR2, libc::SIGXFSZ] {
            p.signal(harmless);
        }
        // A thread gets its name some time after it was created.
        eventually("the threads are told of", || {
            p.signal(libc::SIGUSR2);
            home.out().contains("\"name\":\"listener\"")
        });
        p.admin(&doc! { "ping": 1 });
        p.signal(signal);
        let status = p.wait();
        assert_eq!(status.code(), code, "signal {signal}");
        if code.is_none() {
            assert_eq!(status.signal(), Some(signal));
        }
        let received = format!("\"Received signal\",\"attr\":{{\"signal\":{signal},");
        assert!(home.out().contains(&received), "{}", home.out());
    }
}

/// The rotated files of the log.
fn old_logs(home: &Home) -> Vec<String> {
    let names = fs::read_dir(home.0.path()).unwrap().flatten();
    let names = names.map(|e| e.file_name().into_string().unwrap());
    names.filter(|n| n.starts_with("log.")).collect()
}

#[test]
fn sigusr1_rotates_the_log_as_log_rotate_does() {
    let by_command = |p: &Process| {
        p.admin(&doc! { "logRotate": 1 });
    };
    let by_signal = |p: &Process| p.signal(libc::SIGUSR1);
    let ways: [&dyn Fn(&Process); 2] = [&by_command, &by_signal];
    for way in ways {
        let home = Home::new();
        let log = home.path("log");
        // By default, the old file gets a name with the time.
        let p = home.start(&["--logpath", &log]);
        for n in 1..3 {
            way(&p);
            eventually("there is an old log", || old_logs(&home).len() == n);
            eventually("the new log begins", || {
                let new = fs::read_to_string(&log).unwrap_or_default();
                new.lines().count() >= 1 && new.contains("Process Details")
            });
        }
        let first = old_logs(&home).into_iter().min().unwrap();
        let first = fs::read_to_string(home.at(&first)).unwrap();
        assert!(first.contains("Log rotation initiated"), "{first}");
        drop(p);
        // With logrotate's usual settings, another program has renamed the file.
        let home = Home::new();
        let log = home.path("log");
        let p = home.start(&["--logpath", &log, "--logappend", "--logRotate", "reopen"]);
        fs::rename(&log, home.at("moved")).unwrap();
        way(&p);
        eventually("the log is there again", || {
            fs::read_to_string(&log).is_ok_and(|t| t.contains("Process Details"))
        });
        assert!(old_logs(&home).is_empty());
        let moved = fs::read_to_string(home.at("moved")).unwrap();
        assert!(moved.contains("Waiting for connections"));
    }
}

#[test]
fn rotations_at_once_keep_every_line() {
    let home = Home::new();
    let log = home.path("log");
    let p = home.start(&["--logpath", &log]);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                let mut c = p.connect();
                for _ in 0..20 {
                    c.command("admin", &doc! { "logRotate": 1 }).unwrap();
                }
            });
        }
    });
    let old = old_logs(&home);
    assert_eq!(old.len(), 160);
    let told = |name: &str| {
        let text = fs::read_to_string(home.at(name)).unwrap();
        text.matches("\"id\":20721,").count()
    };
    let told: usize = old.iter().map(|name| told(name)).sum::<usize>() + told("log");
    assert_eq!(told, 160);
}

#[test]
fn a_log_takes_the_place_of_nothing_but_a_log() {
    let home = Home::new();
    let out = home.run(&[
        "--dbpath",
        &home.path("data"),
        "--logpath",
        &home.path("data"),
    ]);
    assert!(!out.status.success() && home.at("data").is_dir());
    // A log that is not a regular file is written to, and never renamed.
    let pipe = home.at("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    let mut p = home.start(&["--logpath", pipe.to_str().unwrap()]);
    p.admin(&doc! { "logRotate": 1 });
    p.signal(libc::SIGTERM);
    assert!(p.child.wait().unwrap().success());
    assert!(reader.join().unwrap().contains("Waiting for connections"));
    assert!(old_logs(&home).is_empty());
    // The log must not be among the database's own files either.
    let data = home.path("data");
    for name in ["log", "trees/x", "FORMAT"] {
        let path = format!("{data}/{name}");
        let out = home.run(&["--dbpath", &data, "--logpath", &path, "--port", "0"]);
        assert_eq!(out.status.code(), Some(2), "{name}");
    }
    drop(home.start(&[]));
}

#[test]
fn other_users_cannot_read_the_servers_files() {
    let mode = |home: &Home, name: &str| {
        let found = fs::metadata(home.at(name)).unwrap().permissions();
        found.mode() & 0o077
    };
    let home = Home::new();
    let log = home.path("log");
    let p = home.start(&["--logpath", &log, "--pidfilepath", "pid"]);
    for name in ["log", "pid", "data/FORMAT", "data/log", "data/trees"] {
        assert_eq!(mode(&home, name), 0, "{name}");
    }
    drop(p);
    let home = Home::new();
    let p = home.start(&["--setParameter", "honorSystemUmask=true"]);
    assert_ne!(mode(&home, "data/FORMAT"), 0);
    drop(p);
}

#[test]
fn options_mean_the_same_in_any_order() {
    let home = Home::new();
    let sock = home.path("sock");
    fs::create_dir(&sock).unwrap();
    let data = home.path("data");
    let conf = home.path("conf");
    let text = format!(
        "# caf\u{e9}\nstorage: {{dbPath: {data}}}\nsystemLog: {{logAppend: true, component: {{ftdc: \
         {{verbosity: 0}}}}}}\nnet:\n  unixDomainSocket: {{enabled: false, pathPrefix: {sock}}}\n"
    );
    // The file has an encoding other than UTF-8.
    let latin: Vec<u8> = text.chars().map(|c| c as u8).collect();
    fs::write(&conf, latin).unwrap();
    let p = home.start(&[
        "--config",
        &conf,
        "--bind_ip",
        "127.0.0.1,no.such.host.invalid",
    ]);
    assert_eq!(fs::read_dir(&sock).unwrap().count(), 0);
    let mut c = p.connect();
    let told = lines(&mut c, "global", 23_021);
    assert!(
        told.iter().any(|l| l.contains("no.such.host.invalid")),
        "{told:?}"
    );
    drop(p);
    let out = home.run(&["--port", "0", "--port", "0", "--dbpath", &data]);
    assert_eq!(out.status.code(), Some(2));
    let told = String::from_utf8(out.stderr).unwrap();
    assert!(
        told.contains("Multiple occurrences of option '--port'"),
        "{told}"
    );
    let out = home.run(&["--dbpth", &data]);
    let told = String::from_utf8(out.stderr).unwrap();
    assert!(told.contains("'--dbpth': is '--dbpath' meant?"), "{told}");
    // On a new machine there is nothing to repair.
    fs::create_dir(home.at("new")).unwrap();
    assert!(
        home.run(&["--repair", "--dbpath", &home.path("new")])
            .status
            .success()
    );
}

#[test]
fn a_unit_that_asks_for_no_fork_gets_none() {
    let home = Home::new();
    let (log, data) = (home.path("log"), home.path("data"));
    let args = [
        "--fork",
        "--logpath",
        &log,
        "--dbpath",
        &data,
        "--port",
        "0",
    ];
    let mut command = home.command(&args);
    let mut child = command
        .env("MONGODB_CONFIG_OVERRIDE_NOFORK", "1")
        .spawn()
        .unwrap();
    eventually("it serves", || {
        fs::read_to_string(&log).is_ok_and(|t| t.contains("Waiting for connections"))
    });
    assert!(child.try_wait().unwrap().is_none());
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("MONGODB_CONFIG_OVERRIDE_NOFORK"), "{text}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Makes a directory, and checks that a start on it is refused and what the refusal names.
fn refused(make: impl FnOnce(&Path), args: &[&str], code: i32, named: &[&str]) {
    let home = Home::new();
    let data = home.at("data");
    make(&data);
    let before = listing(&data);
    let mut all = vec!["--port", "0", "--dbpath", data.to_str().unwrap()];
    all.extend(args);
    let out = home.run(&all);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{said}");
    for text in named {
        assert!(said.contains(text), "{text} in: {said}");
    }
    assert_eq!(
        listing(&data),
        before,
        "a directory that is refused is left as it is"
    );
}

fn listing(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|e| e.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn write(dir: &Path, names: &[&str]) {
    for name in names {
        match name.strip_suffix('/') {
            Some(name) => fs::create_dir(dir.join(name)).unwrap(),
            None => fs::write(dir.join(name), "x").unwrap(),
        }
    }
}

#[test]
fn a_directory_that_is_not_muniments_is_refused_and_left_as_it_is() {
    let wired_tiger = [
        "WiredTiger",
        "WiredTiger.wt",
        "storage.bson",
        "journal/",
        "mongod.lock",
    ];
    for args in [&[][..], &["--storageEngine", "inMemory"]] {
        refused(
            |dir| write(dir, &wired_tiger),
            args,
            100,
            &[
                "MongoDB (WiredTiger)",
                "mongodump --port",
                "mongorestore --port",
            ],
        );
    }
    let mmap = ["local.0", "local.ns", "journal/"];
    refused(|dir| write(dir, &mmap), &[], 100, &["MMAPv1", "mongodump"]);
    refused(
        |dir| write(dir, &["holiday.jpg"]),
        &[],
        100,
        &["holiday.jpg"],
    );
    // These are Muniment's own directories, after the loss of FORMAT, and after MongoDB was started on them.
    for (remove, add, named) in [
        ("FORMAT", None, "FORMAT"),
        ("", Some("WiredTiger"), "WiredTiger"),
    ] {
        let made = |dir: &Path| {
            let home = Home::new();
            drop(home.start(&[]));
            if !remove.is_empty() {
                fs::remove_file(home.at("data").join(remove)).unwrap();
            }
            write(&home.at("data"), add.as_slice());
            fs::remove_dir(dir).unwrap();
            fs::rename(home.at("data"), dir).unwrap();
        };
        refused(made, &[], 100, &[named]);
    }
}

#[test]
fn harmless_files_in_a_data_directory_keep_no_server_from_starting() {
    let home = Home::new();
    let data = home.at("data");
    write(
        &data,
        &[
            "lost+found/",
            "mongod.lock",
            "diagnostic.data/",
            ".gitkeep",
            "old.log",
        ],
    );
    let log = home.path("data/mongod.log");
    let pid = home.path("data/mongod.pid");
    for n in 0..3 {
        let p = home.start(&["--logpath", &log, "--pidfilepath", &pid]);
        p.admin(&doc! { "logRotate": 1 });
        let said = format!("{:?}", p.admin(&doc! { "getLog": "global" }));
        let warned = said.contains("something that is not the server's");
        assert_eq!(warned, n == 2, "{said}");
        if n == 1 {
            write(&data, &["holiday.jpg"]);
        }
    }
}

#[test]
fn a_directory_that_is_not_there_is_an_error_for_mongod() {
    let home = Home::new();
    let missing = home.path("missing");
    let out = home.run(&["--port", "0", "--dbpath", &missing]);
    assert_eq!(out.status.code(), Some(100));
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    let named = format!("Data directory {missing} not found. Create the missing directory");
    assert!(
        said.contains(&named) && said.contains("NonExistentPath"),
        "{said}"
    );
    assert!(!home.at("missing").exists());
    // Under its own name the program creates the directory, and says so, but not the directories above it.
    let serve = |dir: &str| {
        let mut command = home.command(&["serve", "--port", "0", "--portFile", "port", "--dbpath"]);
        let arg0 = "muniment";
        command
            .arg0(arg0)
            .arg(dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let out = serve(&home.path("missing/deep"))
        .wait_with_output()
        .unwrap();
    assert_eq!(out.status.code(), Some(100), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("missing/deep"));
    assert!(!home.at("missing").exists());
    let child = serve(&missing);
    eventually("it answers", || home.at("port").exists());
    // SAFETY: the function takes plain numbers.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("was not there and has been made"), "{said}");
}

/// Everything that the server answers to these bytes before it closes the connection.
fn answer_to(p: &Process, bytes: &[u8]) -> Vec<u8> {
    use std::io::{Read, Write};
    let mut s = std::net::TcpStream::connect(format!("127.0.0.1:{}", p.port)).unwrap();
    s.set_read_timeout(Some(PATIENCE)).unwrap();
    s.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    s.read_to_end(&mut answer).unwrap();
    answer
}

#[test]
fn clients_of_other_protocols_are_answered_in_theirs() {
    let home = Home::new();
    let p = home.start(&[]);
    let http = "HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: \
                85\r\n\r\nIt looks like you are trying to access MongoDB over HTTP on the native driver \
                port.\r\n";
    let long = format!("POST /x HTTP/1.1\r\n\r\n{}", "x".repeat(100_000));
    for request in ["GET / HTTP/1.1\r\n\r\n", "HEAD / HTTP/1.0\r\n\r\n", &long] {
        let answer = answer_to(&p, request.as_bytes());
        assert_eq!(String::from_utf8_lossy(&answer), http);
    }
    // The bytes are a greeting of TLS 1.3, and the answer is the alert handshake_failure.
    let mut greeting = vec![22, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3];
    greeting.resize(517, 7);
    assert_eq!(answer_to(&p, &greeting), [21, 3, 1, 0, 2, 2, 40]);
    let said = home.out();
    assert!(said.contains("SSLHandshakeFailed") && said.contains("start it with --tlsMode"));
    assert!(said.contains("HTTP request over a native MongoDB connection"));
    // Messages of MongoDB's protocol are still answered, and meaningless bytes close the connection without
    // an answer.
    p.admin(&doc! { "ping": 1 });
    assert!(answer_to(&p, &[0xFF; 32]).is_empty());
}

#[test]
fn features_that_do_not_exist_yet_say_so() {
    let home = Home::new();
    let p = home.start(&[]);
    let mut c = p.connect();
    for (command, code, named) in [
        (
            doc! { "saslStart": 1, "mechanism": "GSSAPI", "payload": "" },
            334,
            "GSSAPI",
        ),
        (doc! { "authenticate": 1 }, 334, "MONGODB-X509"),
        (doc! { "rotateCertificates": 1 }, 20, "uses no TLS"),
        (doc! { "nonsense": 1 }, 59, "no such command"),
    ] {
        let reply = c.command_raw("admin", &command).unwrap();
        let d = reply.as_doc();
        let got = d.get("code").and_then(|v| v.as_i64_exact());
        assert_eq!(got, Some(code), "{d:?}");
        assert!(d.get_str("errmsg").unwrap().contains(named), "{d:?}");
    }
    c.command("admin", &doc! { "logout": 1 }).unwrap();
}

/// The lines of the log with this number.
fn lines(c: &mut Connection, log: &str, id: u32) -> Vec<String> {
    let reply = c.command("admin", &doc! { "getLog": log }).unwrap();
    let lines = reply.as_doc().get_array("log").unwrap();
    let lines = lines.values().filter_map(|v| v.as_str());
    let number = format!("\"id\":{id},");
    lines
        .filter(|l| l.contains(&number))
        .map(str::to_string)
        .collect()
}

/// Starts a command that writes the file `port`, and limits the number of its open files.
fn with_files(home: &Home, mut command: Command, files: u64) -> Process {
    // SAFETY: only an async-signal-safe call is made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit {
                rlim_cur: files,
                rlim_max: files,
            };
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            Ok(())
        });
    }
    let child = command.spawn().unwrap();
    eventually("it answers", || home.at("port").exists());
    let port = fs::read_to_string(home.at("port")).unwrap();
    let port = port.trim().to_string();
    Process { child, port }
}

#[test]
fn startup_warnings_name_what_is_not_as_it_should_be() {
    let home = Home::new();
    let mut command = home.command(&["--port", "0", "--portFile", "port"]);
    command
        .arg("--dbpath")
        .arg(home.at("data"))
        .stdout(Stdio::null());
    let p = with_files(&home, command, 1000);
    let mut c = p.connect();
    let mut told = |id| lines(&mut c, "startupWarnings", id);
    assert_eq!(told(22120).len(), 1);
    assert_eq!(told(22140).len(), 1);
    let files = told(22184);
    let figures = "\"currentValue\":1000,\"recommendedMinimum\":64000";
    assert!(files.len() == 1 && files[0].contains(figures), "{files:?}");
    // SAFETY: the function only returns a number.
    let root = unsafe { libc::geteuid() } == 0;
    assert_eq!(told(22138).len(), usize::from(root));
}

#[test]
fn refused_connections_are_one_line_with_their_number() {
    let s = Server::start(ServerOptions::new().arg("--maxConns").arg("5"));
    let address = format!("127.0.0.1:{}", s.port());
    let mut kept = Vec::new();
    // The connection with which the harness saw that the server answers may still exist.
    eventually("five are connected", || {
        let c = Connection::connect(&address);
        let usable = c.and_then(|mut c| c.command("admin", &doc! { "ping": 1 }).map(|_| c));
        kept.extend(usable);
        kept.len() == 5
    });
    let more: Vec<_> = (0..20)
        .map(|_| std::net::TcpStream::connect(&address).unwrap())
        .collect();
    let c = kept.last_mut().unwrap();
    eventually("it is told", || !lines(c, "global", 22942).is_empty());
    let told = lines(c, "global", 22942);
    assert!(
        told.len() == 1 && told[0].contains("\"s\":\"W\""),
        "{told:?}"
    );
    assert!(told[0].contains("\"refused\":"), "{told:?}");
    drop(more);
}

#[test]
fn a_slow_disk_and_a_full_one_are_told_of() {
    if !testkit::persistent() {
        return;
    }
    let insert = doc! { "insert": "c", "documents": array![doc! { "x": 1 }],
    "writeConcern": doc! { "j": true } };
    let options = ServerOptions::new().powerloss();
    let s = Server::start(options.sync_delay(Duration::from_millis(1200)));
    let mut c = s.connect();
    c.command("t", &insert).unwrap();
    eventually("the slow sync is told", || {
        let told = lines(&mut c, "global", 7_340_011);
        told.iter().any(|l| l.contains("\"s\":\"W\""))
    });
    drop(s);
    let s = Server::start(ServerOptions::new().budget(u64::MAX));
    let mut c = s.connect();
    s.set_budget(0);
    let _ = c.command("t", &insert);
    let told = |c: &mut Connection, severity: &str| {
        let mut all = lines(c, "global", 7_340_010);
        all.extend(lines(c, "global", 7_340_014));
        all.iter().any(|l| l.contains(severity))
    };
    eventually("the full disk is told", || told(&mut c, "\"s\":\"E\""));
    s.set_budget(u64::MAX);
    eventually("and that there is room", || told(&mut c, "\"s\":\"W\""));
}

#[test]
fn a_server_without_file_descriptors_says_so() {
    let home = Home::new();
    let data = home.path("data");
    let mut command = home.command(&["--port", "0", "--portFile", "port", "--dbpath", &data]);
    let out = File::create(home.at("out")).unwrap();
    command.stdout(out);
    let p = with_files(&home, command, 64);
    let address = format!("127.0.0.1:{}", p.port);
    let connect = |_| std::net::TcpStream::connect(&address).unwrap();
    let held: Vec<_> = (0..100).map(connect).collect();
    eventually("it is told", || {
        home.out().contains("Out of file descriptors")
    });
    drop(held);
    eventually("it serves again", || {
        let c = Connection::connect(&address);
        c.is_ok_and(|mut c| c.command("admin", &doc! { "ping": 1 }).is_ok())
    });
    let said = home.out();
    let told: Vec<_> = said
        .lines()
        .filter(|l| l.contains("\"id\":23023,"))
        .collect();
    assert!(
        told.len() == 1 && told[0].contains("\"s\":\"E\""),
        "{told:?}"
    );
}

/// The arguments of mongodb-memory-server, and the lines by which it recognizes that a server is ready, is
/// primary, or has failed.
#[test]
fn mongodb_memory_server_finds_what_it_looks_for() {
    let home = Home::new();
    let args = [
        "--storageEngine",
        "wiredTiger",
        "--bind_ip",
        "127.0.0.1",
        "--noauth",
    ];
    let p = home.start(&args);
    eventually("it is ready", || {
        home.out().contains("\"Waiting for connections\"")
    });
    let second = home.run(&["--port", "0", "--dbpath", &home.path("data")]);
    let said = String::from_utf8_lossy(&second.stdout).into_owned();
    let failed = said
        .lines()
        .find(|l| l.contains("DBException in initAndListen,"));
    let failed = DocBuf::from_json(failed.expect("a line of the failure")).unwrap();
    let error = at(failed.as_doc(), "attr.error").unwrap();
    assert!(error.contains("DBPathInUse"), "{error}");
    fs::create_dir(home.at("other")).unwrap();
    let other = home.path("other");
    let taken = home.run(&["--port", &p.port, "--nounixsocket", "--dbpath", &other]);
    let said = String::from_utf8_lossy(&taken.stdout).into_owned();
    assert!(
        said.to_lowercase().contains("address already in use"),
        "{said}"
    );
    drop(p);
    let set = [
        "--replSet",
        "testset",
        "--storageEngine",
        "wiredTiger",
        "--noauth",
    ];
    let member = Home::new();
    let p = member.start(&set);
    let host = format!("127.0.0.1:{}", p.port);
    let members = array![doc! { "_id": 0, "host": host }];
    let config = doc! { "_id": "testset", "members": members };
    p.admin(&doc! { "replSetInitiate": config });
    eventually("it is primary", || {
        let said = member.out();
        said.contains("Transition to primary complete; database writes are now permitted")
    });
}

/// Whatever the process's umask is, what the server writes is for its owner alone.
#[test]
fn files_are_for_their_owner_alone() {
    let home = tempfile::tempdir().unwrap();
    let wrapper = home.path().join("lax");
    let text = format!(
        "#!/bin/sh\numask 0\nexec {} \"$@\"\n",
        testkit::binary().display()
    );
    std::fs::write(&wrapper, text).unwrap();
    std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o700)).unwrap();
    let named = |name: &str| home.path().join(name).to_str().unwrap().to_string();
    let options = testkit::ServerOptions::new()
        .arg("--logpath")
        .arg(named("log"))
        .arg("--auditDestination")
        .arg("file")
        .arg("--auditPath")
        .arg(named("audit"))
        .arg("--replSet")
        .arg("rs0")
        .arg("--autoInitiate");
    let mut server = testkit::Server::prepare(options);
    server.set_binary(Some(&wrapper));
    server.start_again();
    let mut c = server.connect();
    let docs: Vec<_> = (0..3000)
        .map(|i| muniment_value::doc! { "i": i, "text": "x".repeat(500) })
        .collect();
    let insert = muniment_value::doc! { "insert": "c" };
    c.command_with("test", &insert, &[("documents", &docs)])
        .unwrap();
    for cmd in [
        "{createIndexes: 'c', indexes: [{key: {i: 1}, name: 'i'}]}",
        "{fsync: 1}",
    ] {
        let db = if cmd.contains("fsync") {
            "admin"
        } else {
            "test"
        };
        c.command(db, &testkit::shell(cmd)).unwrap();
    }
    let mut all = testkit::files_below(&server.dir());
    all.extend(["log", "audit"].map(|name| home.path().join(name)));
    assert!(all.len() > 5, "{all:?}");
    for path in all {
        // The server may have removed it since: a segment of the log, or a table that another one takes the place of.
        let mode = match std::fs::metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            found => found.unwrap().permissions().mode(),
        };
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
}
