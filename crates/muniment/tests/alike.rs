//! Random commands have the same answers on one server, on three shards, and on three shards while ranges move all the
//! time.
//!
//! A round has a collection on a server, and the same one divided by a random key. Queries are compared as sets, or in
//! their order if they sort; after writes the whole collections are. `MUNIMENT_SEEDS=from..to` runs other rounds, and
//! `MUNIMENT_LONG=1` a thousand of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::*;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Result, Value, doc, keyenc};
use muniment_wire::Connection;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use testkit::Set;
use testkit::random::Rng;

const DB: &str = "alike";
/// How many commands a round has, half of them before the ranges begin to move.
const COMMANDS: usize = 60;

/// Keys by which collections are divided. A value may be an array only where no key has it.
const KEYS: [&str; 10] = [
    r#"{"_id": "hashed"}"#,
    r#"{"_id": 1}"#,
    r#"{"a": 1}"#,
    r#"{"a": "hashed"}"#,
    r#"{"b": 1, "_id": 1}"#,
    r#"{"a": 1, "b": "hashed"}"#,
    r#"{"c": "hashed", "_id": 1}"#,
    r#"{"a.x": 1}"#,
    r#"{"c": 1, "a": 1}"#,
    r#"{"b.x": "hashed"}"#,
];

fn j(text: &str) -> DocBuf {
    DocBuf::from_json(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// How two answers are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// In their order.
    Sorted,
    /// As sets.
    Any,
    /// As sets of values: which one of equal numbers is shown depends on the order of the input.
    Values,
}

/// A command, and how its answers are compared.
struct Asked {
    cmd: String,
    order: Order,
    /// It changes documents.
    writes: bool,
}

fn read(cmd: String, order: Order) -> Asked {
    Asked {
        cmd,
        order,
        writes: false,
    }
}

fn write(cmd: String) -> Asked {
    Asked {
        cmd,
        order: Order::Sorted,
        writes: true,
    }
}

/// A filter that often finds many documents.
fn filter(rng: &mut Rng, depth: usize) -> String {
    let narrow = rng.filter(depth);
    match rng.below(6) {
        0 => "{}".into(),
        1 | 2 => format!(r#"{{"$nor": [{narrow}]}}"#),
        3 => format!(r#"{{"$or": [{narrow}, {{"_id": {{"$mod": [3, 0]}}}}]}}"#),
        _ => narrow,
    }
}

/// A find, with everything that a router has a part in.
fn find(rng: &mut Rng) -> Asked {
    let filter = filter(rng, 2);
    let projection = rng.pick(&[
        "{}",
        "{}",
        r#"{"a": 1, "_id": 0}"#,
        r#"{"c": 1}"#,
        r#"{"_id": 1}"#,
        r#"{"a.x": 1}"#,
        r#"{"n": {"$ifNull": ["$a", "$b"]}, "_id": 0}"#,
        r#"{"a": 0}"#,
    ]);
    let mut cmd = format!(r#"{{"find": "@c", "filter": {filter}, "projection": {projection}"#);
    let sorted = rng.below(2) == 0;
    if sorted {
        cmd += &format!(r#", "sort": {}"#, rng.sort());
        if rng.below(2) == 0 {
            cmd += &format!(r#", "skip": {}, "limit": {}"#, rng.below(8), rng.below(20));
        }
    }
    cmd += &options(rng);
    let order = if sorted { Order::Sorted } else { Order::Any };
    read(format!("{cmd}}}"), order)
}

/// Options that all commands with a cursor have, without the brace that ends the command.
fn options(rng: &mut Rng) -> String {
    let mut text = String::new();
    if rng.below(2) == 0 {
        text += &format!(r#", "batchSize": {}"#, rng.below(12));
    }
    if rng.below(6) == 0 {
        text += r#", "collation": {"locale": "en", "strength": 2}"#;
    }
    if rng.below(6) == 0 {
        let level = rng.pick(&["local", "majority", "snapshot"]);
        text += &format!(r#", "readConcern": {{"level": "{level}"}}"#);
    }
    text
}

/// Stages that look into other collections, or put many documents into one.
fn wide(rng: &mut Rng) -> String {
    let filter = filter(rng, 1);
    let sort = rng.sort();
    let from = rng.pick(&["@c", "@other"]);
    match rng.below(10) {
        0 => format!(
            r#"{{"$lookup": {{"from": "{from}", "localField": "a", "foreignField": "b", "as": "l",
                "pipeline": [{{"$match": {filter}}}, {{"$sort": {sort}}}, {{"$limit": 5}}]}}}}"#
        ),
        1 => format!(
            r#"{{"$lookup": {{"from": "{from}", "let": {{"x": "$_id"}}, "as": "l", "pipeline": [
                {{"$match": {{"$expr": {{"$lt": ["$_id", {{"$mod": ["$$x", 7]}}]}}}}}},
                {{"$group": {{"_id": null, "n": {{"$sum": 1}}, "m": {{"$max": "$_id"}}}}}}]}}}}"#
        ),
        2 => format!(
            r#"{{"$unionWith": {{"coll": "{from}", "pipeline": [{{"$match": {filter}}}]}}}}"#
        ),
        3 => format!(
            r#"{{"$facet": {{"n": [{{"$count": "n"}}], "l": [{{"$match": {filter}}},
                {{"$sort": {sort}}}, {{"$limit": 4}}], "t": [{{"$group": {{"_id": {{"$type": "$a"}},
                "n": {{"$sum": 1}}}}}}, {{"$sort": {{"_id": 1}}}}]}}}}"#
        ),
        4 => r#"{"$setWindowFields": {"partitionBy": {"$type": "$b"}, "sortBy": {"_id": 1}, "output":
                {"r": {"$documentNumber": {}}, "s": {"$sum": "$_id", "window":
                {"documents": ["unbounded", "current"]}}}}}"#
            .into(),
        5 => format!(
            r#"{{"$graphLookup": {{"from": "{from}", "startWith": {{"$mod": ["$_id", 5]}}, "connectFromField": "up",
                "connectToField": "_id", "as": "l", "maxDepth": 3, "restrictSearchWithMatch": {filter}}}}}"#
        ),
        6 => r#"{"$bucketAuto": {"groupBy": "$_id", "buckets": 4, "output": {"n": {"$sum": 1},
                "l": {"$max": "$_id"}}}}"#
            .into(),
        7 => r#"{"$bucket": {"groupBy": {"$mod": ["$_id", 10]}, "boundaries": [0, 3, 7], "default": "rest",
                "output": {"n": {"$sum": 1}, "m": {"$avg": "$_id"}}}}"#
            .into(),
        8 => format!(
            r#"{{"$group": {{"_id": {{"$type": "$a"}}, "n": {{"$sum": 1}}, "m": {{"$avg": "$_id"}}, "top": {{"$topN":
                {{"n": 3, "sortBy": {sort}, "output": "$_id"}}}}, "d": {{"$stdDevPop": {{"$literal": 1}}}},
                "first": {{"$minN": {{"n": 2, "input": "$_id"}}}}}}}}"#
        ),
        _ => r#"{"$redact": {"$cond": [{"$eq": [{"$type": "$b"}, "string"]}, "$$PRUNE", "$$KEEP"]}}"#.into(),
    }
}

/// A pipeline whose answer does not depend on the order in which documents come.
fn aggregate(rng: &mut Rng) -> Asked {
    let (mut stages, mut sorted) = rng.pipeline();
    let unwinds = stages.iter().any(|s| s.starts_with("{\"$unwind"));
    let groups = stages.last().is_some_and(|s| {
        ["{\"$group", "{\"$count", "{\"$sortByCount"]
            .iter()
            .any(|g| s.starts_with(g))
    });
    for stage in &mut stages {
        if let Some(narrow) = stage.strip_prefix("{\"$match\": ")
            && rng.below(2) == 0
        {
            let narrow = &narrow[..narrow.len() - 1];
            *stage = format!(r#"{{"$match": {{"$nor": [{narrow}]}}}}"#);
        }
    }
    // After an unwind several documents have the same `_id`, by which ties in sorts are decided.
    if unwinds {
        stages.retain(|s| !s.starts_with("{\"$limit") && !s.starts_with("{\"$skip"));
        sorted = false;
    }
    let mut order = match (groups, sorted) {
        (true, _) => Order::Values,
        (_, true) => Order::Sorted,
        _ => Order::Any,
    };
    if !groups && !unwinds && rng.below(2) == 0 {
        stages.push(wide(rng));
        order = Order::Values;
    }
    let options = options(rng);
    let (size, rest) = match options.strip_prefix(r#", "batchSize": "#) {
        Some(rest) => {
            let n: String = rest.chars().take_while(char::is_ascii_digit).collect();
            (
                format!(r#"{{"batchSize": {n}}}"#),
                rest[n.len()..].to_owned(),
            )
        }
        None => ("{}".to_owned(), options),
    };
    let stages = stages.join(", ");
    let cmd = format!(r#"{{"aggregate": "@c", "pipeline": [{stages}], "cursor": {size}{rest}}}"#);
    read(cmd, order)
}

fn other_reads(rng: &mut Rng) -> Asked {
    let filter = filter(rng, 2);
    match rng.below(4) {
        0 => read(
            format!(r#"{{"count": "@c", "query": {filter}}}"#),
            Order::Sorted,
        ),
        1 => read(
            format!(
                r#"{{"count": "@c", "query": {filter}, "skip": {}, "limit": {}}}"#,
                rng.below(6),
                rng.below(30)
            ),
            Order::Sorted,
        ),
        _ => {
            let key = rng.pick(&["a", "b", "c", "a.x", "b.x", "_id"]);
            read(
                format!(r#"{{"distinct": "@c", "key": "{key}", "query": {filter}}}"#),
                Order::Values,
            )
        }
    }
}

/// A change of fields that no key has. It may be repeated by its driver.
fn change(rng: &mut Rng, id: usize) -> Asked {
    let filter = filter(rng, 1);
    let update = match rng.below(6) {
        0 | 1 => r#"{"$inc": {"n": 1}}"#.to_owned(),
        2 => format!(r#"{{"$push": {{"l": {}}}}}"#, rng.below(5)),
        3 => r#"[{"$set": {"m": {"$add": [{"$ifNull": ["$m", 0]}, 1]}}}]"#.into(),
        4 => format!(
            r#"{{"$set": {{"s": {}}}, "$unset": {{"m": 1}}}}"#,
            rng.value(true)
        ),
        _ => r#"{"$mul": {"n": 2}, "$currentDate": {}}"#.into(),
    };
    match rng.below(8) {
        0..=2 => write(format!(
            r#"{{"update": "@c", "updates": [{{"q": {filter}, "u": {update}, "multi": true}}]}}"#
        )),
        3 => write(format!(
            r#"{{"update": "@c", "updates": [{{"q": {{"_id": {id}}}, "u": {update}}},
                {{"q": {{"_id": {}}}, "u": {update}}}]}}"#,
            id / 2
        )),
        4 => write(format!(
            r#"{{"findAndModify": "@c", "query": {filter}, "sort": {}, "update": {update}, "new": true}}"#,
            rng.sort()
        )),
        5 => write(format!(
            r#"{{"findAndModify": "@c", "query": {{"_id": {id}}}, "remove": true}}"#
        )),
        6 => write(format!(
            r#"{{"delete": "@c", "deletes": [{{"q": {{"$and": [{filter}, {{"_id": {{"$mod": [9, {}]}}}}]}}, "limit": 0}}]}}"#,
            rng.below(9)
        )),
        _ => write(format!(
            r#"{{"delete": "@c", "deletes": [{{"q": {{"_id": {id}}}, "limit": 1}}]}}"#
        )),
    }
}

/// New documents, changes of the fields that keys have, and pipelines that write.
fn wider_change(rng: &mut Rng, id: usize, turn: usize) -> Asked {
    let new = 1000 + 10 * turn;
    let field = rng.pick(&["a", "b", "c", "a.x", "b.x"]);
    let value = rng.pick(&["1", "2", "\"ab\"", "null", "4.5", "true"]);
    match rng.below(6) {
        // The document goes to the shard of its new key.
        0 => write(format!(
            r#"{{"update": "@c", "updates": [{{"q": {{"_id": {id}}}, "u": {{"$set": {{"{field}": {value}}}}}}}]}}"#
        )),
        1 => write(format!(
            r#"{{"findAndModify": "@c", "query": {{"_id": {id}}}, "update": {{"$set": {{"{field}": {value}}},
                "$inc": {{"n": 1}}}}, "new": true}}"#
        )),
        2 => write(format!(
            r#"{{"update": "@c", "updates": [{{"q": {{"_id": {new}, "a": {value}, "b": {id}}}, "u": {{"$inc": {{"n": 1}}}},
                "upsert": true}}]}}"#
        )),
        3 => {
            let docs = (new..new + 8).map(|id| {
                let (a, c) = (rng.below(6), rng.below(4));
                format!(r#"{{"_id": {id}, "a": {a}, "b": {{"x": {value}}}, "c": {c}}}"#)
            });
            let docs: Vec<String> = docs.collect();
            let ordered = rng.below(2) == 0;
            write(format!(
                r#"{{"insert": "@c", "documents": [{}], "ordered": {ordered}}}"#,
                docs.join(", ")
            ))
        }
        4 => write(format!(
            r#"{{"aggregate": "@c", "pipeline": [{{"$match": {}}}, {{"$set": {{"t": {turn}}}}}, {{"$merge":
                {{"into": "@other", "whenMatched": "{}", "whenNotMatched": "insert"}}}}], "cursor": {{}}}}"#,
            filter(rng, 1),
            rng.pick(&["replace", "merge", "keepExisting"])
        )),
        _ => write(format!(
            r#"{{"aggregate": "@other", "pipeline": [{{"$match": {}}}, {{"$set": {{"t": {turn}}}}}, {{"$merge":
                {{"into": "@c", "on": "_id", "whenMatched": [{{"$set": {{"t": "$$new.t"}}}}],
                "whenNotMatched": "discard"}}}}], "cursor": {{}}}}"#,
            filter(rng, 1)
        )),
    }
}

/// What a command has answered, without what depends on the deployment.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Docs(Vec<String>),
    Number(String),
    Failed(Code),
}

/// A command with its collection's name.
fn named(text: &str, name: &str) -> DocBuf {
    j(&text
        .replace("@c", name)
        .replace("@other", &format!("{name}o")))
}

/// How often a command was repeated since its error said that it may succeed then.
static REPEATED: AtomicU64 = AtomicU64::new(0);
/// How many answers had something in them, how many had nothing, and how many were errors.
static ANSWERS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

fn answer(c: &mut Connection, name: &str, asked: &Asked, (id, turn): (&[u8; 16], i64)) -> Answer {
    let cmd = named(&asked.cmd, name);
    let first = cmd.as_doc().iter().next().unwrap().name().to_owned();
    let cursors = matches!(&*first, "find" | "aggregate");
    if asked.writes {
        // A statement about many documents cannot be repeated.
        let many = asked.cmd.contains(r#""multi": true"#) || asked.cmd.contains(r#""limit": 0"#);
        let cmd = if many { cmd } else { numbered(cmd, id, turn) };
        return match c.command(DB, &cmd) {
            Ok(reply) => Answer::Number(figures(reply.as_doc())),
            Err(e) => Answer::Failed(e.code()),
        };
    }
    // The snapshot of a read at an older time, and a view whose ranges have moved, may be asked for again.
    for _ in 0..20 {
        let result = match cursors {
            true => followed(c, &cmd).map(|docs| shown(&docs, asked.order)),
            false => c.command(DB, &cmd).map(|reply| {
                let reply = reply.as_doc();
                match reply.get_array("values") {
                    Some(values) => Answer::Docs(by_value(values.values())),
                    None => Answer::Number(format!("{:?}", reply.get("n").unwrap())),
                }
            }),
        };
        match result {
            Ok(answer) => return answer,
            Err(e) if is_transient(e.code()) => REPEATED.fetch_add(1, SeqCst),
            Err(e) => return Answer::Failed(e.code()),
        };
    }
    panic!("twenty times in vain: {}", asked.cmd);
}

/// All documents of a cursor, whose batches are all as small as the first one.
fn followed(c: &mut Connection, cmd: &DocBuf) -> Result<Vec<DocBuf>> {
    let body = cmd.as_doc();
    let (name, collection) = body.iter().next().map(|e| (e.name(), e.value())).unwrap();
    let options = match name {
        "aggregate" => body.get_doc("cursor").unwrap(),
        _ => body,
    };
    let batch = options
        .get("batchSize")
        .and_then(|v| v.as_i64_exact())
        .unwrap_or(0);
    let (mut docs, mut reply) = (Vec::new(), c.command(DB, cmd)?);
    loop {
        let cursor = reply.as_doc().get_doc("cursor").unwrap();
        let of_batch = ["firstBatch", "nextBatch"];
        let of_batch = of_batch.iter().find_map(|n| cursor.get_array(n)).unwrap();
        docs.extend(
            of_batch
                .values()
                .filter_map(|v| v.as_doc())
                .map(|d| d.to_buf()),
        );
        let id = cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap();
        if id == 0 {
            return Ok(docs);
        }
        let mut more = doc! { "getMore": id, "collection": collection };
        more.append_some("batchSize", (batch > 0).then_some(batch));
        reply = c.command(DB, &more)?;
    }
}

/// 246 SnapshotUnavailable and 175 QueryPlanKilled: drivers repeat such reads.
fn is_transient(code: Code) -> bool {
    matches!(code.0, 246 | 175)
}

/// What a write tells.
fn figures(reply: Doc<'_>) -> String {
    let names = ["n", "nModified", "value", "lastErrorObject", "writeErrors"];
    let told = names.map(|n| match (n, reply.get(n)) {
        ("writeErrors", Some(Value::Array(all))) => {
            let all = all.values().filter_map(|v| v.as_doc()?.get("code"));
            format!("{:?}", all.collect::<Vec<_>>())
        }
        (_, v) => format!("{v:?}"),
    });
    told.join(" ")
}

fn by_value<'v>(values: impl Iterator<Item = Value<'v>>) -> Vec<String> {
    let mut all: Vec<String> = values
        .map(|v| format!("{:02x?}", keyenc::encoded(v)))
        .collect();
    all.sort();
    all
}

fn shown(docs: &[DocBuf], order: Order) -> Answer {
    let text = |d: &DocBuf| d.as_doc().to_display();
    Answer::Docs(match order {
        Order::Sorted => docs.iter().map(text).collect(),
        Order::Any => {
            let mut all: Vec<String> = docs.iter().map(text).collect();
            all.sort();
            all
        }
        Order::Values => by_value(docs.iter().map(|d| Value::Document(d.as_doc()))),
    })
}

/// The two deployments, and a second router whose moves the first one has to learn of.
struct Both<'a> {
    alone: Connection,
    routed: Connection,
    mover: Connection,
    name: &'a str,
}

impl Both<'_> {
    /// Inserts documents, and makes indexes, in the same way on both.
    fn prepare(&mut self, rng: &mut Rng, key: &str) -> Vec<DocBuf> {
        let collation = match rng.below(4) {
            0 => r#", "collation": {"locale": "en", "strength": 2}"#,
            _ => "",
        };
        let create = j(&format!(r#"{{"create": "{}"{collation}}}"#, self.name));
        for c in [&mut self.alone, &mut self.routed] {
            c.command(DB, &create).unwrap();
        }
        let simple = doc! { "locale": "simple" };
        let ns = format!("{DB}.{}", self.name);
        let divide = doc! { "shardCollection": &*ns, "key": j(key), "collation": simple };
        self.routed.command("admin", &divide).unwrap();
        let arrays = rng.below(3) > 0;
        let mut docs: Vec<DocBuf> = Vec::new();
        for i in 0..80 {
            let mut d = rng.document(i, arrays);
            d.append("up", (i / 2) as i32);
            // What a shard refuses, such as an array under a key, is not there on the server either.
            let insert = doc! { "insert": self.name, "documents": muniment_value::array![&d] };
            let reply = self.routed.command(DB, &insert).unwrap();
            if reply.as_doc().get("writeErrors").is_some() {
                continue;
            }
            self.alone.command(DB, &insert).unwrap();
            docs.push(d);
        }
        assert!(docs.len() > 20, "{key}: {}", docs.len());
        for _ in 0..rng.below(4) {
            let create = format!(
                r#"{{"createIndexes": "{}", "indexes": [{}]}}"#,
                self.name,
                rng.index()
            );
            for c in [&mut self.alone, &mut self.routed] {
                // One that is there already, or that documents do not allow, does not matter here. On one shard of three
                // the documents may allow it.
                let _ = c.command(DB, &j(&create));
            }
        }
        // A second collection lies whole on the database's primary, or is divided by a hash.
        let other = format!("{}o", self.name);
        if rng.below(2) == 0 {
            let ns = format!("{DB}.{other}");
            let divide = doc! { "shardCollection": &*ns, "key": doc! { "_id": "hashed" } };
            self.routed.command("admin", &divide).unwrap();
        }
        let half: ArrayBuf = docs.iter().step_by(3).collect();
        for c in [&mut self.alone, &mut self.routed] {
            let insert = doc! { "insert": &*other, "documents": &half };
            c.command(DB, &insert).unwrap();
        }
        docs
    }

    /// Asks both, and compares.
    fn ask(&mut self, asked: &Asked, turn: (&[u8; 16], i64)) -> std::result::Result<(), String> {
        let want = answer(&mut self.alone, self.name, asked, turn);
        let got = answer(&mut self.routed, self.name, asked, turn);
        let names = [self.name.to_owned(), format!("{}o", self.name)];
        let all = |c: &mut Connection| {
            let mut all = Vec::new();
            for name in &names {
                let find = doc! { "find": &**name, "sort": doc! { "_id": 1 } };
                let docs = c.find_all(DB, &find).unwrap();
                all.extend(docs.iter().map(|d| d.as_doc().to_display()));
            }
            all
        };
        let kind = match &want {
            Answer::Docs(all) => usize::from(all.is_empty()),
            Answer::Number(_) => 0,
            Answer::Failed(_) => 2,
        };
        ANSWERS[kind].fetch_add(1, SeqCst);
        let mut told = Vec::new();
        if want != got {
            told.push(format!("want {want:?}\ngot  {got:?}"));
        }
        if asked.writes {
            let (want, got) = (all(&mut self.alone), all(&mut self.routed));
            let lacks = want.iter().filter(|d| !got.contains(d));
            let extra = got.iter().filter(|d| !want.contains(d));
            let (lacks, extra): (Vec<_>, Vec<_>) = (lacks.collect(), extra.collect());
            if want != got {
                told.push(format!("afterwards it lacks {lacks:?}, and has {extra:?}"));
            }
        }
        match told.is_empty() {
            true => Ok(()),
            false => Err(format!("{}\n{}", asked.cmd, told.join("\n"))),
        }
    }
}

/// Splits a collection at a document of its own, or joins two chunks, or moves one.
fn shuffle(c: &mut Connection, ns: &str, rng: &mut Rng, docs: &[DocBuf]) -> Result<()> {
    let all = chunks(c, ns);
    if all.is_empty() {
        return Ok(());
    }
    let at = rng.below(all.len());
    let chunk = &all[at];
    match rng.below(8) {
        0 | 1 => {
            let d = &docs[rng.below(docs.len())];
            let id = d.as_doc().get("_id").unwrap();
            c.command("admin", &doc! { "split": ns, "find": doc! { "_id": id } })?;
        }
        2 if at > 0 && all[at - 1].shard == chunk.shard => {
            let bounds = muniment_value::array![&all[at - 1].min, &chunk.max];
            c.command("admin", &doc! { "mergeChunks": ns, "bounds": bounds })?;
        }
        _ => {
            let to = ["s0", "s1", "s2"][rng.below(3)];
            move_to(c, ns, chunk, to, rng.below(3) == 0)?;
        }
    }
    Ok(())
}

/// One round. Returns what differed, and how many steps of the mover succeeded meanwhile.
fn round(seed: u64, cluster: &testkit::Cluster, alone: &Set) -> (Vec<String>, u64) {
    let mut rng = Rng::new(seed);
    let name = format!("r{seed}");
    let key = KEYS[seed as usize % KEYS.len()];
    let mut both = Both {
        alone: alone.connect(0),
        routed: cluster.connect(),
        mover: cluster.routers[1].connect(),
        name: &name,
    };
    let docs = both.prepare(&mut rng, key);
    let ns = format!("{DB}.{name}");
    let mut dice = rng.clone();
    for _ in 0..12 {
        let _ = shuffle(&mut both.mover, &ns, &mut dice, &docs);
    }
    let mut wrong = Vec::new();
    let mut commands = |both: &mut Both<'_>, turns: std::ops::Range<usize>, moves: bool| {
        for turn in turns {
            let asked = match rng.below(10) {
                0..=2 => find(&mut rng),
                3..=6 => aggregate(&mut rng),
                7 => other_reads(&mut rng),
                8 => {
                    let id = rng.below(80);
                    change(&mut rng, id)
                }
                _ => {
                    let id = rng.below(80);
                    wider_change(&mut rng, id, turn)
                }
            };
            if let Err(e) = both.ask(&asked, (&session(9, seed), turn as i64)) {
                wrong.push(format!("seed {seed}, {key}, moves {moves}: {e}"));
                if asked.writes {
                    return;
                }
            }
        }
    };
    commands(&mut both, 0..COMMANDS / 2, false);
    let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|s| {
        let mut mover = cluster.routers[1].connect();
        let (stop, moved, ns, docs) = (&stop, &moved, &ns, &docs);
        s.spawn(move || {
            while !stop.load(SeqCst) {
                if shuffle(&mut mover, ns, &mut dice, docs).is_ok() {
                    moved.fetch_add(1, SeqCst);
                }
            }
        });
        commands(&mut both, COMMANDS / 2..COMMANDS, true);
        stop.store(true, SeqCst);
    });
    for c in [&mut both.alone, &mut both.routed] {
        for name in [&name, &format!("{name}o")] {
            c.command(DB, &doc! { "drop": &**name }).unwrap();
        }
    }
    (wrong, moved.load(SeqCst))
}

fn seeds() -> (u64, u64) {
    let long = std::env::var("MUNIMENT_LONG").is_ok();
    let given = std::env::var("MUNIMENT_SEEDS").ok();
    let given = given.and_then(|s| {
        let (from, to) = s.split_once("..")?;
        Some((from.parse().ok()?, to.parse().ok()?))
    });
    given.unwrap_or((1, if long { 1000 } else { 16 }))
}

#[test]
fn shards_answer_as_one_server_also_while_ranges_move() {
    let cluster = cluster(3, 1, 2);
    let alone = Set::start(1);
    let (from, to) = seeds();
    let (mut wrong, mut moved) = (Vec::new(), 0);
    for seed in from..to {
        let (more, moves) = round(seed, &cluster, &alone);
        wrong.extend(more);
        moved += moves;
        if wrong.len() > 30 {
            break;
        }
    }
    let [full, empty, failed] = ANSWERS.each_ref().map(|n| n.load(SeqCst));
    let repeated = REPEATED.load(SeqCst);
    println!("{moved} steps of the mover, {repeated} reads repeated");
    println!("{full} answers, {empty} empty ones, {failed} errors");
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n\n"));
    assert!(moved > to - from, "only {moved} steps of the mover");
    assert!(full > 2 * (empty + failed), "most answers say nothing");
}
