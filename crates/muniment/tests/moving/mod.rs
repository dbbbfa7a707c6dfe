//! What the tests of moves between shards share.
#![allow(dead_code)]

pub mod load;

use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Value, array, doc};
use muniment_wire::Connection;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub use testkit::ask::*;
use testkit::{Cluster, Server, ServerOptions, shell};

/// What clusters of these tests are started with: failpoints.
const ARGS: [&str; 2] = ["--setParameter", "enableTestCommands=1"];
/// What clusters are started with whose servers end: rows are deleted at once, since routers that end leave cursors, and
/// the transactions that they leave do not last for a minute.
const AT_ONCE: [&str; 4] = [
    "--setParameter",
    "orphanCleanupDelaySecs=0",
    "--setParameter",
    "transactionLifetimeLimitSeconds=5",
];

/// A cluster whose servers may end.
pub fn hasty_cluster(shards: usize, members: usize, routers: usize) -> Cluster {
    hasty_cluster_on(ServerOptions::new(), shards, members, routers)
}

/// The same with these options.
pub fn hasty_cluster_on(
    options: ServerOptions,
    shards: usize,
    members: usize,
    routers: usize,
) -> Cluster {
    let args = ARGS.iter().chain(&AT_ONCE);
    let options = args.fold(options, |options, arg| options.arg(*arg));
    let cluster = Cluster::prepare_on(&options, 1, shards, members, routers);
    cluster.add_shards(&mut cluster.connect());
    cluster
}

/// A cluster of shards of this many members each, and routers.
pub fn cluster(shards: usize, members: usize, routers: usize) -> Cluster {
    let cluster = Cluster::prepare(shards, members, routers, &ARGS);
    cluster.add_shards(&mut cluster.connect());
    cluster
}

pub fn as_set(docs: &[DocBuf]) -> BTreeSet<String> {
    docs.iter().map(|d| d.as_doc().to_display()).collect()
}

/// The names that a shard has in the database.
pub fn names(cluster: &Cluster, shard: usize) -> Vec<String> {
    let mut c = cluster.shards[shard].connect(0);
    let all = all(&mut c, "d", "{listCollections: 1}");
    let mut names: Vec<_> = all
        .iter()
        .map(|d| d.as_doc().get_str("name").unwrap().to_string())
        .filter(|name| !name.starts_with("system."))
        .collect();
    names.sort();
    names
}

/// Divides a collection by a key, and splits it at these points.
pub fn divide(c: &mut Connection, ns: &str, key: &str, at: &[&str]) {
    let shard = format!("{{shardCollection: '{ns}', key: {key}}}");
    run(c, "admin", &shard);
    for middle in at {
        let split = format!("{{split: '{ns}', middle: {middle}}}");
        run(c, "admin", &split);
    }
}

/// A chunk: its bounds and its shard.
#[derive(Clone, Debug)]
pub struct Chunk {
    pub min: DocBuf,
    pub max: DocBuf,
    pub shard: String,
}

/// The chunks of a collection, ascending.
pub fn chunks(c: &mut Connection, ns: &str) -> Vec<Chunk> {
    try_chunks(c, ns).unwrap()
}

pub fn try_chunks(c: &mut Connection, ns: &str) -> muniment_value::Result<Vec<Chunk>> {
    let of = c.find_all(
        "config",
        &doc! { "find": "collections", "filter": doc! { "_id": ns } },
    )?;
    let Some(of) = of.first() else {
        return Ok(Vec::new());
    };
    let uuid = of.as_doc().get("uuid").unwrap();
    let find =
        doc! { "find": "chunks", "filter": doc! { "uuid": uuid }, "sort": doc! { "min": 1 } };
    let all = c.find_all("config", &find)?;
    Ok(all.iter().map(|d| chunk(d.as_doc())).collect())
}

fn chunk(d: Doc<'_>) -> Chunk {
    Chunk {
        min: d.get_doc("min").unwrap().to_buf(),
        max: d.get_doc("max").unwrap().to_buf(),
        shard: d.get_str("shard").unwrap().to_string(),
    }
}

/// The other one of two shards.
pub fn other(shard: &str) -> &'static str {
    if shard == "s0" { "s1" } else { "s0" }
}

/// Moves a chunk.
pub fn move_to(
    c: &mut Connection,
    ns: &str,
    chunk: &Chunk,
    to: &str,
    waits: bool,
) -> muniment_value::Result<DocBuf> {
    let bounds = array![&chunk.min, &chunk.max];
    let cmd = doc! { "moveChunk": ns, "bounds": bounds, "to": to, "_waitForDelete": waits };
    c.command("admin", &cmd)
}

/// Inserts documents.
pub fn insert(c: &mut Connection, db: &str, name: &str, docs: impl Iterator<Item = DocBuf>) {
    let docs: Vec<DocBuf> = docs.collect();
    for part in docs.chunks(1000) {
        let part: ArrayBuf = part.iter().collect();
        let reply = c
            .command(db, &doc! { "insert": name, "documents": part })
            .unwrap();
        assert!(reply.as_doc().get("writeErrors").is_none(), "{reply:?}");
    }
}

/// A session's id.
pub fn session(byte: u8, number: u64) -> [u8; 16] {
    let mut id = [byte; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    id
}

/// A command with a session and a number, so that it can be sent again.
pub fn numbered(mut command: DocBuf, session: &[u8; 16], number: i64) -> DocBuf {
    let id = Value::Binary {
        subtype: 4,
        bytes: session,
    };
    command.append("lsid", doc! { "id": id });
    command.append("txnNumber", number);
    command
}

/// A statement of a transaction.
pub fn statement(
    c: &mut Connection,
    db: &str,
    cmd: &str,
    (session, number): (&[u8; 16], i64),
    starts: bool,
) -> muniment_value::Result<DocBuf> {
    let mut cmd = numbered(shell(cmd), session, number);
    cmd.append("autocommit", false);
    cmd.append_some("startTransaction", starts.then_some(true));
    c.command(db, &cmd)
}

/// The rows of a collection that a shard has, whoever owns them: those that `validate` counts.
pub fn rows_on(c: &mut Connection, db: &str, name: &str) -> i64 {
    match c.command(db, &doc! { "collStats": name }) {
        Ok(stats) => number(&stats, "count"),
        Err(e) => panic!("{name}: {e}"),
    }
}

/// Waits until the shards have exactly these many rows of a collection, all of which are owned. What a move has brought
/// that nobody goes on with counts as left after 15 seconds, and a shard may look for that a minute later.
pub fn until_clean(cluster: &Cluster, db: &str, name: &str, rows: i64) {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let counts: Vec<i64> = cluster
            .shards
            .iter()
            .map(|s| rows_on(&mut s.connect(s.primary()), db, name))
            .collect();
        if counts.iter().sum::<i64>() == rows {
            return;
        }
        assert!(
            Instant::now() < end,
            "{name}: {counts:?} rows, and not {rows}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sets the failpoint that stops moves at a step, at the router of a connection. How often it has stopped one before.
pub fn stop_at(c: &mut Connection, step: &str) -> i64 {
    let data = doc! { "step": step };
    let cmd = doc! { "configureFailPoint": "munimentMoveStep", "mode": "alwaysOn", "data": data };
    number(&c.command("admin", &cmd).unwrap(), "count")
}

/// Lets moves go on.
pub fn go_on(c: &mut Connection) {
    let cmd = doc! { "configureFailPoint": "munimentMoveStep", "mode": "off" };
    c.command("admin", &cmd).unwrap();
}

/// Begins something at the first router, which stops at a step. What it comes to.
pub fn stopped<T: Debug + Send + 'static>(
    cluster: &Cluster,
    step: &str,
    work: impl FnOnce(&mut Connection) -> T + Send + 'static,
) -> JoinHandle<T> {
    stopped_at(&cluster.routers[0], step, work)
}

/// The same at this router.
pub fn stopped_at<T: Debug + Send + 'static>(
    router: &Server,
    step: &str,
    work: impl FnOnce(&mut Connection) -> T + Send + 'static,
) -> JoinHandle<T> {
    let mut c = router.connect();
    let before = stop_at(&mut c, step);
    let mut worker = router.connect();
    let works = std::thread::spawn(move || work(&mut worker));
    let end = Instant::now() + Duration::from_secs(30);
    while stop_at(&mut c, step) == before {
        assert!(Instant::now() < end, "nothing has come to {step}");
        if works.is_finished() {
            panic!("{step}: {:?}", works.join());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    works
}

/// Begins a move that stops at a step, does something, and lets the move go on; how the move ended.
pub fn while_stopped(
    cluster: &Cluster,
    step: &str,
    (ns, chunk, to): (&str, &Chunk, &str),
    act: impl FnOnce(),
) -> muniment_value::Result<DocBuf> {
    let (ns, chunk, to) = (ns.to_string(), chunk.clone(), to.to_string());
    let moved = stopped(cluster, step, move |c| move_to(c, &ns, &chunk, &to, false));
    act();
    go_on(&mut cluster.connect());
    moved.join().unwrap()
}

/// Numbers that look random.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n as u64) as usize
    }
}
