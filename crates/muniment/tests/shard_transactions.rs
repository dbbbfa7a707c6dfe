//! Transactions over several shards of real servers, also while these are killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{Code, DocBuf, Error, Result};
use muniment_wire::Connection;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Cluster, Set, shell};

/// A client's session, with the number of its newest transaction.
struct Session<'c> {
    c: &'c mut Connection,
    id: u32,
    number: i64,
    began: bool,
    concern: &'static str,
}

impl<'c> Session<'c> {
    fn new(c: &'c mut Connection, id: u32) -> Session<'c> {
        Session {
            c,
            id,
            number: 0,
            began: false,
            concern: "",
        }
    }

    fn begin(&mut self, concern: &'static str) {
        self.number += 1;
        self.began = false;
        self.concern = concern;
    }

    fn rest(&self) -> String {
        format!(
            "lsid: {{id: UUID('00000000-0000-4000-8000-{:012}')}}, txnNumber: NumberLong({}), autocommit: false",
            self.id, self.number
        )
    }

    fn run(&mut self, db: &str, statement: &str) -> Result<DocBuf> {
        let starts = match std::mem::replace(&mut self.began, true) {
            true => String::new(),
            false if self.concern.is_empty() => ", startTransaction: true".to_string(),
            false => format!(
                ", startTransaction: true, readConcern: {{level: '{}'}}",
                self.concern
            ),
        };
        let command = format!("{{{statement}, {}{starts}}}", self.rest());
        let reply = self.c.command(db, &shell(&command))?;
        if let Some(errors) = reply.as_doc().get_array("writeErrors") {
            let first = errors
                .values()
                .next()
                .and_then(|v| v.as_doc()?.get("code")?.as_i64_exact());
            return Err(Error::new(
                Code(first.unwrap_or(0) as i32),
                "a write failed",
            ));
        }
        Ok(reply)
    }

    fn commit(&mut self) -> Result<DocBuf> {
        let commit = format!("{{commitTransaction: 1, {}}}", self.rest());
        self.c.command("admin", &shell(&commit))
    }

    /// The balance of an account, in the transaction.
    fn balance(&mut self, db: &str, account: u64) -> Result<i64> {
        let reply = self.run(db, &format!("find: 'c', filter: {{_id: {account}}}"))?;
        let batch = reply
            .as_doc()
            .get_doc("cursor")
            .and_then(|c| c.get_array("firstBatch"));
        let first = batch.and_then(|b| b.values().next()?.as_doc()?.get("n")?.as_i64_exact());
        first.ok_or_else(|| Error::new(Code::InternalError, format!("no account: {reply:?}")))
    }

    fn add(&mut self, db: &str, account: u64, n: i64) -> Result<DocBuf> {
        let update =
            format!("update: 'c', updates: [{{q: {{_id: {account}}}, u: {{$inc: {{n: {n}}}}}}}]");
        self.run(db, &update)
    }
}

fn run(c: &mut Connection, db: &str, cmd: &str) -> DocBuf {
    let reply = c.command(db, &shell(cmd));
    reply.unwrap_or_else(|e| panic!("{db}: {cmd}: {e}"))
}

/// A cluster whose database `a` is on the first shard, and `b` on the second, with this many accounts each.
fn start(members: usize, routers: usize, accounts: u64) -> Cluster {
    let args = ["--setParameter", "enableTestCommands=1"];
    let cluster = Cluster::prepare(2, members, routers, &args);
    let mut c = cluster.connect();
    cluster.add_shards(&mut c);
    run(&mut c, "admin", "{enableSharding: 'a', primaryShard: 's0'}");
    run(&mut c, "admin", "{enableSharding: 'b', primaryShard: 's1'}");
    for db in ["a", "b"] {
        let all: Vec<String> = (0..accounts)
            .map(|i| format!("{{_id: {i}, n: 100}}"))
            .collect();
        let insert = format!(
            "{{insert: 'c', documents: [{}], writeConcern: {{w: 'majority'}}}}",
            all.join(", ")
        );
        run(&mut c, db, &insert);
    }
    cluster
}

/// What a client sees now of account 0 in each database.
fn now(cluster: &Cluster) -> [i64; 2] {
    let mut c = cluster.connect();
    ["a", "b"].map(|db| {
        let found = c
            .find_all(db, &shell("{find: 'c', filter: {_id: 0}}"))
            .unwrap();
        found[0].as_doc().get("n").unwrap().as_i64_exact().unwrap()
    })
}

fn figure(set: &Set, name: &str) -> i64 {
    let mut c = set.connect(set.primary());
    let status = run(&mut c, "admin", "{serverStatus: 1}");
    let transactions = status.as_doc().get_doc("transactions").unwrap();
    transactions.get(name).unwrap().as_i64_exact().unwrap()
}

fn prepared(cluster: &Cluster) -> i64 {
    cluster
        .shards
        .iter()
        .map(|s| figure(s, "totalPrepared"))
        .sum()
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    result.unwrap_err().code().0
}

#[test]
fn it_takes_effect_on_all_shards_or_on_none() {
    let cluster = start(1, 2, 3);
    let (mut c, mut other) = (cluster.connect(), cluster.routers[1].connect());
    let mut s = Session::new(&mut c, 1);
    // One shard has written: nothing is prepared.
    s.begin("");
    s.add("a", 0, 1).unwrap();
    s.commit().unwrap();
    s.begin("");
    assert_eq!(s.balance("b", 0).unwrap(), 100);
    s.add("a", 0, 1).unwrap();
    s.add("b", 77, 1).unwrap();
    s.commit().unwrap();
    s.begin("snapshot");
    assert_eq!(
        (s.balance("a", 0).unwrap(), s.balance("b", 0).unwrap()),
        (102, 100)
    );
    s.commit().unwrap();
    assert_eq!((now(&cluster), prepared(&cluster)), ([102, 100], 0));
    // Both have.
    s.begin("");
    s.add("b", 0, -2).unwrap();
    let reply = s.add("a", 0, 2).unwrap();
    let reply = reply.as_doc();
    assert!(reply.get("readOnly").is_none() && reply.get("atClusterTime").is_none());
    let token = reply.get_doc("recoveryToken").unwrap();
    assert_eq!(token.get_str("recoveryShardId"), Some("s1"));
    assert_eq!(now(&cluster), [102, 100]);
    s.commit().unwrap();
    assert_eq!((now(&cluster), prepared(&cluster)), ([104, 98], 2));
    // The same again, here and at another router.
    s.commit().unwrap();
    let again = format!(
        "{{commitTransaction: 1, {}, recoveryToken: {{recoveryShardId: 's1'}}}}",
        s.rest()
    );
    run(&mut other, "admin", &again);
    assert_eq!(now(&cluster), [104, 98]);
    // A statement that fails on one shard aborts the transaction on all.
    s.begin("");
    s.add("a", 0, 1).unwrap();
    assert_eq!(
        code(s.run("b", "insert: 'c', documents: [{_id: 0}]")),
        11000
    );
    assert_eq!(code(s.add("a", 0, 1)), 251);
    let commit = format!("{{commitTransaction: 1, {}}}", s.rest());
    let refused = s.c.command_raw("admin", &shell(&commit)).unwrap();
    let labels = refused.as_doc().get_array("errorLabels").unwrap();
    let labels: Vec<_> = labels.values().filter_map(|v| v.as_str()).collect();
    assert_eq!(labels, ["TransientTransactionError"]);
    assert_eq!(code(s.commit()), 251);
    s.begin("");
    s.add("a", 0, 1).unwrap();
    s.add("b", 0, 1).unwrap();
    let abort = format!("{{abortTransaction: 1, {}}}", s.rest());
    run(s.c, "admin", &abort);
    assert_eq!(code(s.commit()), 251);
    assert_eq!(now(&cluster), [104, 98]);
    // The errors of bulkWrite are within its reply.
    s.begin("");
    s.add("a", 0, 1).unwrap();
    let bulk = "bulkWrite: 1, ops: [{insert: 0, document: {_id: 0}}], nsInfo: [{ns: 'b.c'}]";
    s.run("admin", bulk).unwrap();
    assert_eq!(code(s.commit()), 251);
    assert_eq!(now(&cluster), [104, 98]);
    // One that another router has begun, and that it asks for, is aborted.
    s.begin("");
    s.add("a", 0, 1).unwrap();
    s.add("b", 0, 1).unwrap();
    let recover = format!(
        "{{commitTransaction: 1, {}, recoveryToken: {{recoveryShardId: 's0'}}}}",
        s.rest()
    );
    assert_eq!(code(other.command("admin", &shell(&recover))), 251);
    assert_eq!(code(s.commit()), 251);
    assert_eq!(now(&cluster), [104, 98]);
    // Collections are not made in one.
    s.begin("");
    s.add("a", 0, 1).unwrap();
    s.run("b", "insert: 'new', documents: [{_id: 0}]").unwrap();
    assert_eq!(code(s.commit()), 251);
    assert_eq!(
        (now(&cluster), figure(&cluster.shards[0], "currentPrepared")),
        ([104, 98], 0)
    );
    // A client that goes to a shard itself cannot ask for any of this where members know each other; without a
    // key it is told what is missing.
    let mut direct = cluster.shards[0].connect(0);
    assert_eq!(
        code(direct.command("admin", &shell("{_clusterPrepare: 1}"))),
        40414
    );
    assert_eq!(code(c.command("admin", &shell("{_clusterPrepare: 1}"))), 59);
}

#[test]
fn a_snapshot_is_one_time_on_all_shards() {
    let cluster = start(1, 1, 3);
    let (mut c, mut d) = (cluster.connect(), cluster.connect());
    let mut reader = Session::new(&mut c, 1);
    reader.begin("snapshot");
    assert_eq!(reader.balance("a", 0).unwrap(), 100);
    let mut writer = Session::new(&mut d, 2);
    writer.begin("");
    writer.add("a", 0, 7).unwrap();
    writer.add("b", 0, -7).unwrap();
    writer.commit().unwrap();
    assert_eq!(reader.balance("b", 0).unwrap(), 100);
    // What was written since cannot be written.
    assert_eq!(code(reader.add("b", 0, 1)), 112);
    reader.begin("snapshot");
    assert_eq!(
        (
            reader.balance("a", 0).unwrap(),
            reader.balance("b", 0).unwrap()
        ),
        (107, 93)
    );
    reader.commit().unwrap();
}

/// Whether somebody else can write to the accounts at once.
fn are_free(cluster: &Cluster) {
    let mut other = cluster.connect();
    for db in ["a", "b"] {
        let update =
            "{update: 'c', updates: [{q: {_id: 0}, u: {$inc: {free: 1}}}], maxTimeMS: 3000}";
        run(&mut other, db, update);
    }
}

#[test]
fn a_failed_statement_aborts_the_transaction_on_all_shards() {
    let cluster = start(1, 1, 1);
    let mut c = cluster.connect();
    let mut s = Session::new(&mut c, 1);
    s.begin("");
    s.add("a", 0, 1).unwrap();
    let twice = s.run("b", "insert: 'c', documents: [{_id: 0}]");
    assert_eq!(code(twice), Code::DuplicateKey.0);
    are_free(&cluster);
    assert_eq!(code(s.commit()), Code::NoSuchTransaction.0);
    assert_eq!(now(&cluster), [100, 100]);
}

#[test]
fn a_later_number_ends_an_open_transaction_on_all_shards() {
    let cluster = start(1, 1, 1);
    let mut c = cluster.connect();
    let mut s = Session::new(&mut c, 1);
    let other = "{insert: 'other', documents: [{_id: 1}]}";
    run(s.c, "a", other);
    for later in 0..2 {
        s.begin("");
        s.add("a", 0, 1).unwrap();
        s.add("b", 0, 1).unwrap();
        s.begin("");
        match later {
            // Another transaction, with a part on one of the shards.
            0 => {
                s.run("a", "find: 'other', filter: {_id: 1}").unwrap();
                are_free(&cluster);
                s.commit().unwrap();
            }
            // A retryable write.
            _ => {
                let rest = s.rest().replace(", autocommit: false", "");
                let insert = format!("{{insert: 'other', documents: [{{_id: 2}}], {rest}}}");
                run(s.c, "a", &insert);
                are_free(&cluster);
            }
        }
    }
    // A commit whose answer was not heard is left to its course.
    s.begin("");
    s.add("a", 0, 1).unwrap();
    s.add("b", 0, 1).unwrap();
    s.commit().unwrap();
    s.begin("");
    s.run("a", "find: 'other', filter: {_id: 1}").unwrap();
    s.commit().unwrap();
    assert_eq!(now(&cluster), [101, 101]);
}

/// Has a command of members fail on a shard until it is told otherwise, or starts again.
fn fail(cluster: &Cluster, shard: usize, command: &str, on: bool) {
    let mode = if on { "'alwaysOn'" } else { "'off'" };
    cluster.shards[shard].fail_commands(&[command], mode, "errorCode: 8");
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn kill_and_start(cluster: &mut Cluster, shard: usize) {
    let set = &mut cluster.shards[shard];
    let primary = set.primary();
    set.members[primary].kill9();
    if set.members.len() > 1 {
        set.primary();
    }
    set.members[primary].start_again();
    set.primary();
}

/// Commits a transaction of which the second shard does not learn the decision, whoever asks whom.
fn commit_unheard(cluster: &Cluster, s: &mut Session<'_>) {
    fail(cluster, 1, "_clusterResolve", true);
    fail(cluster, 0, "_clusterDecision", true);
    s.begin("");
    s.add("a", 0, 5).unwrap();
    s.add("b", 0, -5).unwrap();
    s.commit().unwrap();
    assert_eq!(figure(&cluster.shards[1], "currentPrepared"), 1);
    assert_eq!(now(cluster), [105, 100]);
}

fn nothing_stays(cluster: &Cluster) {
    for shard in &cluster.shards {
        until("a decision stays", || {
            let mut c = shard.connect(0);
            let all = shell("{find: 'transaction_coordinators'}");
            c.find_all("config", &all).unwrap().is_empty()
        });
        assert_eq!(figure(shard, "currentPrepared"), 0);
    }
}

/// The coordinator is killed after its decision, before the other shard has heard of it.
#[test]
fn a_decision_outlives_its_coordinator() {
    let mut cluster = start(1, 1, 2);
    let mut c = cluster.connect();
    let mut s = Session::new(&mut c, 1);
    commit_unheard(&cluster, &mut s);
    kill_and_start(&mut cluster, 0);
    fail(&cluster, 0, "_clusterDecision", true);
    fail(&cluster, 1, "_clusterResolve", false);
    until("the other shard hears nothing", || {
        now(&cluster) == [105, 95]
    });
    s.commit().unwrap();
    nothing_stays(&cluster);
}

/// The coordinator's own part is not resolved yet when another router asks how the transaction has ended.
#[test]
fn another_router_learns_of_a_decision_that_is_not_resolved() {
    let cluster = start(1, 2, 2);
    let (mut c, mut other) = (cluster.connect(), cluster.routers[1].connect());
    let mut s = Session::new(&mut c, 1);
    for shard in [0, 1] {
        fail(&cluster, shard, "_clusterResolve", true);
    }
    s.begin("");
    s.add("a", 0, 5).unwrap();
    s.add("b", 0, -5).unwrap();
    // Neither shard has resolved, unless it has asked already.
    s.commit().unwrap();
    let again = format!(
        "{{commitTransaction: 1, {}, recoveryToken: {{recoveryShardId: 's0'}}}}",
        s.rest()
    );
    run(&mut other, "admin", &again);
    // The session goes on only after the transaction has ended.
    for shard in [0, 1] {
        fail(&cluster, shard, "_clusterResolve", false);
    }
    s.begin("");
    s.add("a", 0, 1).unwrap();
    s.add("b", 0, -1).unwrap();
    s.commit().unwrap();
    assert_eq!(now(&cluster), [106, 94]);
    nothing_stays(&cluster);
}

/// What is prepared outlives the end of sessions, the time limit of transactions and the process. A participant
/// that hears nothing asks.
#[test]
fn a_participant_holds_what_it_has_prepared_and_asks() {
    let mut cluster = start(1, 1, 2);
    let (mut c, mut d) = (cluster.connect(), cluster.connect());
    let mut s = Session::new(&mut c, 1);
    run(&mut d, "b", "{insert: 'other', documents: [{_id: 0}]}");
    commit_unheard(&cluster, &mut s);
    let mut direct = cluster.shards[1].connect(0);
    run(
        &mut direct,
        "admin",
        "{setParameter: 1, transactionLifetimeLimitSeconds: 1}",
    );
    run(&mut direct, "admin", "{killAllSessions: []}");
    let began = Instant::now();
    // A read at a time waits for the decision, as does a write to what is prepared; a read of the present does not.
    let at = "readConcern: {level: 'snapshot'}, maxTimeMS: 1500";
    let find = format!("{{find: 'c', filter: {{_id: 0}}, {at}}}");
    assert_eq!(code(d.command("b", &shell(&find))), 50);
    run(&mut d, "b", &format!("{{find: 'other', {at}}}"));
    let update = "{update: 'c', updates: [{q: {_id: 0}, u: {$inc: {n: 1}}}], maxTimeMS: 1000}";
    assert_eq!(code(d.command("b", &shell(update))), 50);
    assert!(began.elapsed() > Duration::from_secs(2));
    assert_eq!(figure(&cluster.shards[1], "currentPrepared"), 1);
    kill_and_start(&mut cluster, 1);
    fail(&cluster, 1, "_clusterResolve", true);
    fail(&cluster, 0, "_clusterDecision", false);
    until("it does not ask", || now(&cluster) == [105, 95]);
    fail(&cluster, 1, "_clusterResolve", false);
    nothing_stays(&cluster);
}

/// The coordinator is killed before it has decided, when the other shard has voted.
#[test]
fn without_a_decision_all_is_aborted() {
    let mut cluster = start(1, 1, 2);
    fail(&cluster, 0, "_clusterPrepare", true);
    let router = cluster.connect();
    let committed = std::thread::scope(|s| {
        let commit = s.spawn(move || {
            let mut c = router;
            let mut s = Session::new(&mut c, 1);
            s.begin("");
            s.add("a", 0, 5).unwrap();
            s.add("b", 0, -5).unwrap();
            s.commit().map(drop)
        });
        until("the other shard does not vote", || {
            figure(&cluster.shards[1], "currentPrepared") == 1
        });
        kill_and_start(&mut cluster, 0);
        commit.join().unwrap()
    });
    assert_eq!(code(committed), 251);
    until("the other shard holds what it has prepared", || {
        figure(&cluster.shards[1], "currentPrepared") == 0
    });
    assert_eq!(now(&cluster), [100, 100]);
    let mut c = cluster.connect();
    run(
        &mut c,
        "b",
        "{update: 'c', updates: [{q: {_id: 0}, u: {$inc: {n: 1}}}]}",
    );
    assert_eq!(now(&cluster), [100, 101]);
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

const ACCOUNTS: u64 = 6;

/// One transfer between the shards. `None`: its outcome is not known.
fn transfer(s: &mut Session<'_>, rng: &mut Random) -> Option<bool> {
    let (from, to) = match rng.below(3) {
        0 => ("b", "a"),
        1 => ("a", "b"),
        _ => ("a", "a"),
    };
    let (one, two) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
    s.begin(if rng.below(2) == 0 { "snapshot" } else { "" });
    let n = rng.below(9) as i64 + 1;
    let moved = s.add(from, one, -n).and_then(|_| s.add(to, two, n));
    if moved.is_err() {
        return Some(false);
    }
    for _ in 0..40 {
        match s.commit() {
            Ok(_) => return Some(true),
            Err(e) if e.code() == Code::NoSuchTransaction => return Some(false),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    None
}

fn sum(s: &mut Session<'_>) -> Result<i64> {
    s.begin("snapshot");
    let mut sum = 0;
    for account in 0..ACCOUNTS {
        sum += s.balance("a", account)?;
    }
    for account in 0..ACCOUNTS {
        sum += s.balance("b", account)?;
    }
    s.commit()?;
    Ok(sum)
}

/// Money moves between the shards, whose primaries are killed. Each snapshot sees all of it.
#[test]
fn no_money_is_lost_or_made_while_shards_are_killed() {
    bank(1);
}

/// The same with an election after each kill.
#[test]
fn no_money_is_lost_or_made_while_others_become_primary() {
    bank(3);
}

fn bank(members: usize) {
    let mut cluster = start(members, 2, ACCOUNTS);
    let all = 2 * 100 * ACCOUNTS as i64;
    let seed = std::env::var("MUNIMENT_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let seed: u64 = seed.unwrap_or(7);
    let rounds = std::env::var("MUNIMENT_ROUNDS")
        .ok()
        .and_then(|s| s.parse().ok());
    let rounds: u64 = rounds.unwrap_or(6);
    let stop = AtomicBool::new(false);
    let (committed, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures: Mutex<Vec<String>> = Mutex::default();
    let mut connections: Vec<Connection> =
        (0..5).map(|i| cluster.routers[i % 2].connect()).collect();
    std::thread::scope(|s| {
        for (i, mut c) in connections.drain(..).enumerate() {
            let (stop, committed, seen, failures) = (&stop, &committed, &seen, &failures);
            s.spawn(move || {
                let mut rng = Random(seed * 100 + i as u64);
                let mut session = Session::new(&mut c, 10 + i as u32);
                while !stop.load(SeqCst) {
                    if i < 3 {
                        let done = transfer(&mut session, &mut rng);
                        committed.fetch_add(u64::from(done == Some(true)), SeqCst);
                    } else if let Ok(found) = sum(&mut session) {
                        seen.fetch_add(1, SeqCst);
                        if found != all {
                            failures
                                .lock()
                                .unwrap()
                                .push(format!("{found} instead of {all}"));
                            stop.store(true, SeqCst);
                        }
                    }
                }
            });
        }
        let mut rng = Random(seed);
        for _ in 0..rounds {
            if stop.load(SeqCst) {
                break;
            }
            std::thread::sleep(Duration::from_millis(500 + rng.below(1500)));
            kill_and_start(&mut cluster, rng.below(2) as usize);
        }
        std::thread::sleep(Duration::from_secs(1));
        stop.store(true, SeqCst);
    });
    assert_eq!(*failures.lock().unwrap(), Vec::<String>::new());
    let counted = (committed.load(SeqCst), seen.load(SeqCst));
    eprintln!("seed {seed}: {} transfers, {} sums", counted.0, counted.1);
    assert!(counted.0 > 5 && counted.1 > 5, "{counted:?}");
    for shard in &cluster.shards {
        until("something stays prepared", || {
            figure(shard, "currentPrepared") == 0
        });
        let mut c = shard.connect(shard.primary());
        for db in ["a", "b"] {
            let valid = c.command(db, &shell("{validate: 'c'}"));
            if let Ok(valid) = valid {
                assert!(valid.as_doc().get("valid").unwrap().truthy(), "{valid:?}");
            }
        }
    }
    let mut c = cluster.connect();
    let mut session = Session::new(&mut c, 99);
    assert_eq!(sum(&mut session).unwrap(), all);
}
