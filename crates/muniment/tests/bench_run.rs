//! `muniment bench run` from end to end: a workload against a server that keeps running, so that the test can
//! look at the data that it left.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use muniment_value::doc;
use std::process::{Command, Output};
use testkit::{Server, ServerOptions};

/// Runs the lab. The results of an earlier run of the same test are removed, since the lab never overwrites a
/// run.
fn bench(args: &[&str]) -> Output {
    for pair in args.windows(2) {
        match pair {
            ["--out", dir] => {
                let _ = std::fs::remove_dir_all(dir);
            }
            ["--json", file] => {
                let _ = std::fs::remove_file(file);
            }
            _ => {}
        }
    }
    Command::new(env!("CARGO_BIN_EXE_muniment"))
        .args(["bench", "run"])
        .args(args)
        .arg("--tables")
        .output()
        .unwrap()
}

fn printed(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr)
}

fn count(server: &Server, coll: &str, filter: muniment_value::DocBuf) -> i64 {
    let r = server
        .connect()
        .command("shop_test", &doc! { "count": coll, "query": filter })
        .unwrap();
    r.as_doc().get("n").and_then(|n| n.as_i64_exact()).unwrap()
}

/// How often an operation has ended in this way, according to the table's row.
fn ended(text: &str, operation: &str, how: &str) -> i64 {
    let row = text.lines().find(|l| l.contains(operation)).unwrap();
    let of = row.split(how).nth(1).unwrap_or(" 0");
    let number: String = of
        .trim_start()
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == ',')
        .filter(char::is_ascii_digit)
        .collect();
    number.parse().unwrap()
}

#[test]
fn orders_leave_what_they_say() {
    let server = Server::start(ServerOptions::new());
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    // A database that the user has named stays after the run.
    let file = path("orders.toml");
    let text = String::from_utf8(bench(&["orders", "--print"]).stdout).unwrap();
    let text = text.replacen(
        "name = \"orders\"",
        "name = \"orders\"\ndatabase = \"shop_test\"",
        1,
    );
    // The operations of the warm-up are in no table.
    let text: String = text
        .lines()
        .filter(|l| !l.starts_with("warmup"))
        .map(|l| format!("{l}\n"))
        .collect();
    std::fs::write(&file, text).unwrap();
    let uri = format!("mongodb://{}", server.address());
    let (json, report) = (path("results.jsonl"), path("report"));
    let args = [
        &file,
        "--uri",
        &uri,
        "--set",
        "seconds=1",
        "--set",
        "records=700",
        "--set",
        "threads=3",
        "--set",
        "j=true",
        "--json",
        &json,
        "--out",
        &report,
    ];
    let out = bench(&args);
    let said = printed(&out);
    assert!(out.status.success(), "{said}");
    let placed = ended(&said, "place order", "ok");
    let deleted = ended(&said, "delete oldest", "ok");
    let paid = ended(&said, "pay next", "ok");
    assert!(placed > 0 && deleted > 0 && paid > 0, "{said}");
    assert_eq!(count(&server, "customers", doc! {}), 700);
    assert_eq!(count(&server, "products", doc! {}), 700);
    assert_eq!(
        count(&server, "orders", doc! {}),
        700 + placed - deleted,
        "{said}"
    );
    let with_date = count(&server, "orders", doc! { "paid": doc! { "$type": "date" } });
    assert!(
        with_date <= paid && with_date >= paid - deleted,
        "{with_date} of {paid}"
    );
    let indexes = server
        .connect()
        .command("shop_test", &doc! { "listIndexes": "orders" })
        .unwrap();
    let batch = indexes
        .as_doc()
        .get_doc("cursor")
        .unwrap()
        .get_array("firstBatch")
        .unwrap();
    assert_eq!(batch.count(), 4);
    let lines = std::fs::read_to_string(&json).unwrap();
    for want in [
        "\"shop\"",
        "shop newest of a customer",
        "load orders",
        "\"unit\":\"operations/s\"",
    ] {
        assert!(lines.contains(want), "{want} is missing in the JSON");
    }
    let html = std::fs::read_to_string(dir.path().join("report/report.html")).unwrap();
    assert!(html.contains("place order"));

    // The collections are not the lab's own, so they are not dropped without being asked.
    let again = bench(&args);
    assert!(!again.status.success());
    assert!(
        printed(&again)
            .contains("collection shop_test.customers has 700 documents: drop it, or say existing"),
        "{}",
        printed(&again)
    );
    assert_eq!(count(&server, "customers", doc! {}), 700);
}

#[test]
fn unacknowledged_inserts_are_all_there_and_a_pace_is_kept() {
    let server = Server::start(ServerOptions::new());
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("report").to_string_lossy().into_owned();
    let uri = format!("mongodb://{}", server.address());
    let file = dir.path().join("own.toml").to_string_lossy().into_owned();
    std::fs::write(
        &file,
        "name = \"own\"\ndatabase = \"shop_test\"\n[[collection]]\nname = \"c\"\nexisting = \"drop\"\n[[phase]]\nname = \"paced\"\nkind = \"run\"\noperations = 100\nrate = 200\nthreads = 2\nfresh = true\nwrite_concern = { w = 0 }\n[[phase.operation]]\nkind = \"insertMany\"\nbatch = 10\ndocument = { _id = { sequence = \"c\" }, pad = { text = 50 } }\n",
    )
    .unwrap();
    for _ in 0..2 {
        let o = bench(&[&file, "--uri", &uri, "--out", &out]);
        let said = printed(&o);
        assert!(o.status.success(), "{said}");
        assert_eq!(ended(&said, "insertMany  ", "sent"), 100);
        assert!(said.contains("insertMany, intended"), "{said}");
        assert!(!said.contains("were sent to c"), "{said}");
        assert_eq!(count(&server, "c", doc! {}), 1000);
        assert_eq!(count(&server, "c", doc! { "_id": 999 }), 1);
    }
    // A hundred operations at two hundred per second take half a second.
    let o = bench(&[
        &file,
        "--uri",
        &uri,
        "--out",
        &out,
        "--set",
        "operations=40",
        "--set",
        "rate=20",
    ]);
    let row = printed(&o);
    let row = row
        .lines()
        .find(|l| l.contains("insertMany  "))
        .unwrap()
        .to_string();
    let rate: f64 = row.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!((15.0..=25.0).contains(&rate), "{row}");
}

#[test]
fn errors_end_the_run_or_are_counted() {
    let server = Server::start(ServerOptions::new());
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("report").to_string_lossy().into_owned();
    let uri = format!("mongodb://{}", server.address());
    for (on_error, success, want) in [("stop", false, "E11000"), ("count", true, "error 4")] {
        let file = dir
            .path()
            .join(format!("{on_error}.toml"))
            .to_string_lossy()
            .into_owned();
        std::fs::write(
            &file,
            format!("name = \"own\"\n[[collection]]\nname = \"c\"\n[[phase]]\nkind = \"run\"\nfresh = true\noperations = 5\non_error = \"{on_error}\"\n[[phase.operation]]\nkind = \"insert\"\ndocument = {{ _id = 1 }}\n"),
        )
        .unwrap();
        let o = bench(&[&file, "--uri", &uri, "--out", &out]);
        let said = printed(&o);
        assert_eq!(o.status.success(), success, "{said}");
        assert!(said.contains(want), "{want} in {said}");
    }
    // The phases before the failed one are reported all the same.
    let file = dir.path().join("two.toml").to_string_lossy().into_owned();
    let phase = |name: &str, id: &str| {
        format!(
            "[[phase]]\nname = \"{name}\"\nkind = \"run\"\noperations = 5\n[[phase.operation]]\nkind = \"insert\"\ndocument = {{ _id = {id} }}\n"
        )
    };
    let text = format!(
        "name = \"two\"\n[[collection]]\nname = \"c\"\n{}{}",
        phase("first", "{ objectId = true }"),
        phase("second", "1")
    );
    std::fs::write(&file, text).unwrap();
    let o = bench(&[&file, "--uri", &uri, "--out", &out]);
    let said = printed(&o);
    assert!(!o.status.success() && said.contains("E11000"), "{said}");
    // There is one thread, and its finding names the cores.
    assert!(said.contains("\n  - first, "), "{said}");
    let o = bench(&["orders", "--set", "thread=1"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(printed(&o).contains("is 'threads' meant?"));
}

#[test]
fn one_thread_runs_on_one_core_and_on_two_as_often_as_its_file_allows() {
    let two = std::thread::available_parallelism().unwrap().get() > 1;
    let server = Server::start(ServerOptions::new());
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (file, out, json) = (path("own.toml"), path("report"), path("r.jsonl"));
    let phase = |name: &str, how: &str| {
        format!(
            "[[phase]]\nname = \"{name}\"\nkind = \"run\"\n{how}\n[[phase.operation]]\nkind = \"insert\"\ndocument = {{ phase = \"{name}\" }}\n"
        )
    };
    let text = format!(
        "name = \"own\"\ndatabase = \"shop_test\"\n[[collection]]\nname = \"c\"\n{}{}{}",
        phase("timed", "seconds = 0.2"),
        phase("counted", "operations = 7"),
        phase("many", "seconds = 0.2\nthreads = 3"),
    );
    std::fs::write(&file, text).unwrap();
    let uri = format!("mongodb://{}", server.address());
    let o = bench(&[&file, "--uri", &uri, "--out", &out, "--json", &json]);
    let said = printed(&o);
    assert!(o.status.success(), "{said}");
    let last = if two { "two cores" } else { "one core" };
    for want in [
        "timed, one core",
        &format!("timed, {last}"),
        &format!("counted, {last}"),
    ] {
        assert!(
            said.contains(&format!("\n  - {want}: ")),
            "{want} in {said}"
        );
    }
    assert_eq!(two, !said.contains("counted, one core"), "{said}");
    assert!(
        said.contains("\n  - many: ") && !said.contains("many, "),
        "{said}"
    );
    // Exactly seven documents were inserted.
    assert_eq!(count(&server, "c", doc! { "phase": "counted" }), 7);
    let placed = std::fs::read_to_string(&json).unwrap();
    assert!(placed.contains("\"workers\":1,\"placement\":\"one core\""));
    assert!(placed.contains("\"workers\":3,\"placement\":\"\""));
    assert!(!said.contains("wherever the scheduler"), "{said}");
}

#[test]
fn settings_and_targets_take_turns() {
    let server = Server::start(ServerOptions::new());
    let dir = tempfile::tempdir().unwrap();
    let (json, report) = (
        dir.path().join("r.jsonl").to_string_lossy().into_owned(),
        dir.path().join("report").to_string_lossy().into_owned(),
    );
    let running = format!("running=mongodb://{}", server.address());
    let program = format!("program={}", env!("CARGO_BIN_EXE_muniment"));
    let o = bench(&[
        "insert-batch",
        "--vary",
        "w=0",
        "batch=1,10,100",
        "--set",
        "operations=30",
        "--target",
        "own=embedded",
        "--target",
        &running,
        "--target",
        &program,
        "--turns",
        "2",
        "--json",
        &json,
        "--out",
        &report,
    ]);
    let text = printed(&o);
    assert!(o.status.success(), "{text}");
    // Every combination is measured on every target, and each target is compared with the first.
    for setting in ["w=0 batch=1", "w=0 batch=10", "w=0 batch=100"] {
        for target in ["own", "running", "program"] {
            assert!(text.contains(&format!("{target} {setting} ")), "{text}");
        }
        assert!(
            text.contains(&format!("{setting}: Compared with own")),
            "{text}"
        );
    }
    assert!(text.contains("program: Server version"), "{text}");
    let lines = std::fs::read_to_string(&json).unwrap();
    let measured = lines
        .lines()
        .filter(|l| l.contains("\"kind\":\"samples\""))
        .count();
    assert_eq!(measured, 3 * 3 * 2, "targets, settings, turns");
    assert!(
        std::fs::read_to_string(dir.path().join("report/report.html"))
            .unwrap()
            .contains("insert against batch")
    );
}

#[test]
fn rates_rise_to_the_knee_and_beyond() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().to_string_lossy().into_owned();
    let o = bench(&[
        "point-read",
        "--rates",
        "20,150",
        "--set",
        "seconds=0.4",
        "--set",
        "records=500",
        "--out",
        &report,
    ]);
    let text = printed(&o);
    assert!(o.status.success(), "{text}");
    let row = |percent: &str| {
        let row = text
            .lines()
            .find(|l| l.trim_start().starts_with(percent) && l.split_whitespace().count() == 11);
        let cells: Vec<f64> = row
            .unwrap_or_else(|| panic!("no row {percent}: {text}"))
            .split_whitespace()
            .map(|c| c.replace(',', "").parse().unwrap())
            .collect();
        cells
    };
    let (low, high) = (row("20 "), row("150 "));
    assert!((high[1] / low[1] - 7.5).abs() < 0.1, "{low:?} {high:?}");
    // One and a half times the server's capacity cannot be reached, so operations wait.
    assert!(high[2] < high[1] * 0.95, "{high:?}");
    assert!(high[7] > high[4], "intended above service: {high:?}");
}

/// The result of `compare` for two runs of the same command: by figure, its verdict and why there is none.
fn judged(dir: &std::path::Path, command: &[&str]) -> Vec<(String, String, String)> {
    let paths = ["a", "b"].map(|n| dir.join(n).to_string_lossy().into_owned());
    for out in &paths {
        let o = Command::new(env!("CARGO_BIN_EXE_muniment"))
            .arg("bench")
            .args(command)
            .args(["--out", out])
            .output()
            .unwrap();
        assert!(o.status.success(), "{}", printed(&o));
    }
    let o = Command::new(env!("CARGO_BIN_EXE_muniment"))
        .args(["bench", "compare", &paths[0], &paths[1], "--json", "-"])
        .output()
        .unwrap();
    let code = o.status.code();
    assert!(code == Some(0) || code == Some(1), "{}", printed(&o));
    let whole: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_string();
    let figures = whole["figures"].as_array().unwrap().iter();
    figures
        .map(|f| (text(&f["figure"]), text(&f["verdict"]), text(&f["why"])))
        .collect()
}

#[test]
fn two_runs_of_a_workload_are_judged() {
    let dir = tempfile::tempdir().unwrap();
    let command = [
        "run",
        "point-read",
        "--set",
        "seconds=1.5",
        "--set",
        "records=500",
        "--set",
        "threads=2",
    ];
    let figures = judged(dir.path(), &command);
    assert!(figures.len() >= 3, "{figures:?}");
    for (figure, verdict, why) in &figures {
        // So few documents are loaded within a moment.
        let short = figure.starts_with("load") && why.contains("too ");
        assert!(verdict != "open" || short, "{figure} is not judged: {why}");
    }
}

#[test]
fn two_runs_of_the_queries_are_judged() {
    let dir = tempfile::tempdir().unwrap();
    let command = ["query", "--only", "query=in-ids", "--only", "cores=one"];
    let figures = judged(dir.path(), &command);
    for what in ["in-ids, one core", "in-ids wall, one core"] {
        let found = figures.iter().find(|f| f.0 == what);
        let (figure, verdict, why) = found.unwrap_or_else(|| panic!("no {what}: {figures:?}"));
        assert!(verdict != "open", "{figure} is not judged: {why}");
    }
}
