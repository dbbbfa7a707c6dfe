//! Tests what a file may contain, what it may not, and what settings change.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::custom::sample;
use crate::custom::set::KEYS;

/// The text of a workload with a load and a run phase. `changes` replaces lines that begin with the
/// given text.
fn file(changes: &[(&str, &str)]) -> String {
    let lines = "\
name = \"t\"
[[collection]]
name = \"c\"
indexes = [{ key = { a = 1, b = -1 } }, { key = { t = \"text\" }, name = \"words\" }]
[[collection]]
name = \"d\"
[template.doc]
_id = { sequence = \"s\" }
a = 1
[[phase]]
name = \"load\"
kind = \"load\"
collection = \"c\"
document = \"doc\"
records = { smoke = 10, quick = 20 }
batch = 5
[[phase]]
kind = \"run\"
threads = 2
seconds = 1.5
rate = 100
write_concern = { w = \"majority\", j = true }
read_concern = \"majority\"
[[phase.operation]]
kind = \"find\"
collection = \"c\"
filter = { _id = { key = \"s\" } }
limit = 1
[[phase.operation]]
kind = \"update\"
collection = \"c\"
weight = 3
update = { \"$set\" = { a = 2 } }
";
    let mut out = String::new();
    for line in lines.lines() {
        let change = changes.iter().find(|(from, _)| line.starts_with(from));
        out.push_str(change.map_or(line, |(_, to)| to));
        out.push('\n');
    }
    out
}

fn parsed(changes: &[(&str, &str)]) -> Result<Plan> {
    Plan::parse(&file(changes), "t.toml", Preset::Smoke)
}

#[test]
fn a_file_becomes_a_plan() {
    let p = parsed(&[]).unwrap();
    assert_eq!(
        (p.database.as_str(), p.loads().len(), p.runs().len()),
        (DB, 1, 1)
    );
    assert_eq!(p.loads()[0].records, Some(10));
    let names: Vec<_> = p.collections[0]
        .indexes
        .iter()
        .map(|i| i.as_doc().get_str("name").unwrap().to_string())
        .collect();
    assert_eq!(names, ["a_1_b_-1", "words"]);
    assert_eq!(p.collections[0].existing, Existing::Drop);
    let run = &p.runs()[0];
    assert_eq!(
        (run.threads, run.seconds, run.rate, run.poisson),
        (2, Some(1.5), Some(100.0), false)
    );
    let commands = sample::of(&p).unwrap();
    for want in [
        r#"{"find":"c","filter":{"_id":"#,
        r#""limit":1,"readConcern":{"level":"majority"},"$db":"muniment_bench"}"#,
        r#"{"update":"c","updates":[{"q":{},"u":{"$set":{"a":2}}}],"writeConcern":{"w":"majority","j":true},"$db":"muniment_bench"}"#,
        r#"{"insert":"c","ordered":true,"documents":[{"_id":1001,"a":1}],"$db":"muniment_bench"}"#,
    ] {
        assert!(commands.contains(want), "{want} in\n{commands}");
    }
    assert!(
        Plan::parse(&file(&[]), "t.toml", Preset::Paper)
            .unwrap_err()
            .0
            .contains("t.toml, line 15: there is no value for preset paper")
    );
    let elsewhere = parsed(&[("name = \"t\"", "name = \"t\"\ndatabase = \"shop\"")]).unwrap();
    assert_eq!(elsewhere.collections[0].existing, Existing::Fail);
}

#[test]
fn every_kind_becomes_its_command() {
    for (lines, want) in [
        (
            "kind = \"aggregate\"\ncollection = \"c\"\npipeline = [{ \"$match\" = { a = 1 } }, { \"$limit\" = 5 }]\nbatchSize = 7",
            r#"{"aggregate":"c","pipeline":[{"$match":{"a":1}},{"$limit":5}],"cursor":{"batchSize":7},"#,
        ),
        (
            "kind = \"command\"\ncommand = { dbStats = 1 }\ndatabase = \"x\"",
            r#"{"dbStats":1,"$db":"x"}"#,
        ),
        (
            "kind = \"delete\"\ncollection = \"c\"\nfilter = { a = 1 }",
            r#"{"delete":"c","deletes":[{"q":{"a":1},"limit":1}],"#,
        ),
        (
            "kind = \"delete\"\ncollection = \"c\"\nmulti = true",
            r#"{"delete":"c","deletes":[{"q":{},"limit":0}],"#,
        ),
        (
            "kind = \"findAndModify\"\ncollection = \"c\"\nfilter = { a = 1 }\nremove = true",
            r#"{"findAndModify":"c","query":{"a":1},"remove":true,"#,
        ),
        (
            "kind = \"insert\"\ncollection = \"d\"\ndocument = { x = 1 }\nordered = false",
            r#"{"insert":"d","ordered":false,"documents":[{"x":1}],"#,
        ),
        (
            "kind = \"update\"\ncollection = \"c\"\nfilter = { a = 1 }\nupdate = [{ \"$set\" = { a = \"$b\" } }]\nmulti = true\nupsert = true",
            r#"{"update":"c","updates":[{"q":{"a":1},"u":[{"$set":{"a":"$b"}}],"multi":true,"upsert":true}],"#,
        ),
    ] {
        let text = format!(
            "name = \"t\"\n[[collection]]\nname = \"c\"\n[[collection]]\nname = \"d\"\n[[phase]]\nkind = \"run\"\nseconds = 1\n[[phase.operation]]\n{lines}\n"
        );
        let plan = Plan::parse(&text, "t.toml", Preset::Smoke)
            .unwrap_or_else(|e| unreachable!("{e}\n{text}"));
        let commands = sample::of(&plan).unwrap();
        assert!(commands.contains(want), "{want} in\n{commands}");
    }
}

#[test]
fn mistakes_are_said_with_file_and_line() {
    for (from, to, line, why) in [
        (
            "name = \"t\"",
            "nmae = \"t\"",
            1,
            "the file needs the key 'name' (is 'nmae' meant to be it?)",
        ),
        (
            "threads",
            "thraeds = 2",
            19,
            "[[phase]] of kind run has no key 'thraeds': is 'threads' meant?",
        ),
        (
            "threads",
            "threads = 0",
            19,
            "threads must be a whole number, 1 or more, not 0",
        ),
        (
            "threads",
            "threads = \"2\"",
            19,
            "threads must be a whole number, 1 or more, not \"2\"",
        ),
        (
            "kind = \"load\"",
            "kind = \"laod\"",
            12,
            "kind = \"laod\": is 'load' meant? there are load, run",
        ),
        (
            "kind = \"find\"",
            "kind = \"findOne\"",
            25,
            "there are aggregate, command",
        ),
        (
            "document",
            "document = \"dco\"",
            14,
            "there is no [template.dco]: is 'doc' meant?",
        ),
        (
            "filter",
            "filter = { _id = { key = \"x\" } }",
            27,
            "nothing takes numbers of the sequence 'x'",
        ),
        (
            "filter",
            "fitler = {}",
            27,
            "[[phase.operation]] of kind find has no key 'fitler': is 'filter' meant?",
        ),
        ("filter", "filter = 1", 27, "filter must be a table, not 1"),
        (
            "limit",
            "limit = 1\nmulti = true",
            29,
            "kind find has no key 'multi'",
        ),
        (
            "limit",
            "write_concern = { w = 1 }",
            24,
            "a find has no write_concern",
        ),
        (
            "limit",
            "distribution = \"zipfain\"",
            28,
            "is 'zipfian' meant?",
        ),
        (
            "weight",
            "distribution = \"zipfian\"",
            29,
            "no key in this operation is drawn by it",
        ),
        (
            "weight",
            "weight = 0",
            32,
            "weight must be a number above 0, not 0",
        ),
        (
            "weight",
            "name = \"find\"",
            24,
            "there are two operations named 'find'",
        ),
        ("update", "upsert = true", 29, "needs the key 'update'"),
        ("seconds", "", 17, "it needs operations or seconds, or both"),
        ("rate", "pace = \"poisson\"", 21, "pace belongs to rate"),
        (
            "rate",
            "rate = 0",
            21,
            "rate must be a number above 0, not 0",
        ),
        (
            "write_concern",
            "write_concern = { w = -1 }",
            22,
            "w must be a number of members",
        ),
        (
            "write_concern",
            "write_concern = { j = 1 }",
            22,
            "j must be true or false, not 1",
        ),
        (
            "write_concern",
            "write_concern = { x = 1 }",
            22,
            "write_concern has no key 'x'",
        ),
        (
            "indexes",
            "indexes = [{ kye = { a = 1 } }]",
            4,
            "an index needs key",
        ),
        (
            "indexes",
            "indexes = [{ key = { a = { int = { max = 3 } } } }]",
            4,
            "may not hold generators",
        ),
        (
            "name = \"d\"",
            "name = \"c\"",
            5,
            "two [[collection]] named c",
        ),
        (
            "name = \"load\"",
            "name = \"run\"",
            17,
            "two [[phase]] named run",
        ),
        (
            "records",
            "records = { smoke = 0 }",
            15,
            "records must be a whole number, 1 or more",
        ),
        (
            "batch",
            "batch = 5\nseconds = 0",
            17,
            "seconds must be a number above 0",
        ),
        (
            "batch",
            "read_concern = \"majority\"",
            10,
            "no operation of this phase reads",
        ),
        (
            "a = 1",
            "a = { enum = 1 }",
            9,
            "enum must be a table, not 1",
        ),
        ("a = 1", "a = ", 9, ""),
    ] {
        let e = parsed(&[(from, to)]).unwrap_err().0;
        let place = format!("t.toml, line {line}: ");
        assert!(e.starts_with(&place) && e.contains(why), "{to}: {e}");
    }
}

#[test]
fn what_is_kept_is_not_dropped_by_a_fresh_phase() {
    let keep = ("name = \"d\"", "name = \"d\"\nexisting = \"keep\"");
    assert!(parsed(&[keep]).is_ok());
    let e = parsed(&[keep, ("threads", "fresh = true")]).unwrap_err().0;
    assert!(
        e.contains("fresh = true would drop the collection d"),
        "{e}"
    );
}

#[test]
fn settings_change_what_has_them() {
    let mut p = parsed(&[]).unwrap();
    for (key, value) in [
        ("batch", "7"),
        ("distribution", "zipfian"),
        ("j", "false"),
        ("operations", "11"),
        ("pace", "poisson"),
        ("rate", "50"),
        ("readConcern", "local"),
        ("records", "12"),
        ("seconds", "2"),
        ("theta", "0.5"),
        ("threads", "3"),
        ("w", "0"),
        ("wtimeout", "9"),
    ] {
        p.set(key, value).unwrap();
    }
    let (load, run) = (&p.phases[0], &p.phases[1]);
    assert_eq!(
        (load.threads, load.records, load.work[0].batch),
        (1, Some(12), 7)
    );
    assert_eq!(
        (run.threads, run.operations, run.seconds),
        (3, Some(11), Some(2.0))
    );
    assert_eq!((run.rate, run.poisson), (Some(50.0), true));
    assert_eq!(run.work[0].shape, Shape::Zipfian(0.5));
    assert_eq!(run.work[1].shape, Shape::Uniform, "it draws no keys");
    let concern = run.work[1].write_concern.as_ref().unwrap();
    assert_eq!(
        concern.as_doc().to_display(),
        "{ j: false, w: 0, wtimeout: 9 }"
    );
    assert!(run.work[1].silent() && load.work[0].silent() && !run.work[0].silent());
    assert_eq!(
        run.work[0]
            .read_concern
            .as_ref()
            .unwrap()
            .as_doc()
            .get_str("level"),
        Some("local")
    );
    assert!(KEYS.is_sorted_by_key(|k| k.name));
}

#[test]
fn what_cannot_be_set_is_said() {
    for (key, value, why) in [
        (
            "thread",
            "1",
            "there is no setting 'thread': is 'threads' meant? there are batch, distribution",
        ),
        (
            "threads",
            "0",
            "threads=0: threads must be a whole number from 1 to 10,000",
        ),
        (
            "batch",
            "x",
            "batch=x: batch must be a whole number, 1 or more",
        ),
        (
            "distribution",
            "zipf",
            "distribution=zipf: there are exponential",
        ),
        ("j", "yes", "j=yes: j must be true or false"),
        ("pace", "fast", "pace=fast: pace must be steady or poisson"),
        (
            "rate",
            "-1",
            "rate=-1: rate must be a number above 0, or none",
        ),
        ("readConcern", "x", "readConcern must be one of local"),
        ("seconds", "0", "seconds must be a number above 0"),
        (
            "theta",
            "1",
            "theta=1: theta must be a number between 0 and 1",
        ),
        (
            "theta",
            "0.5",
            "theta=0.5: nothing in the workload t has theta",
        ),
        ("w", "-1", "w must be a number of members"),
        ("wtimeout", "x", "wtimeout must be a whole number of ms"),
    ] {
        let e = parsed(&[]).unwrap().set(key, value).unwrap_err().0;
        assert!(e.contains(why), "{key}={value}: {e}");
    }
}
