//! Clients that do everything with a divided collection while its ranges move, and know what has to be there.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};

/// The documents that are there from the beginning.
pub const DOCS: i64 = 600;
/// The accounts, which have 100 each.
const ACCOUNTS: i64 = 60;

/// The shard key of a document.
fn key_of(id: i64) -> i64 {
    id * 7919 % 10_000
}

/// The addresses of the routers, which may change.
pub type Routers = Mutex<Vec<String>>;

/// The addresses of a cluster's routers.
pub fn routers_of(cluster: &Cluster) -> Routers {
    Mutex::new(cluster.routers.iter().map(|r| r.address()).collect())
}

/// What clients do, and what they know.
pub struct Load {
    pub stop: AtomicBool,
    /// Servers may end: errors of connections and elections are no faults, and statements are repeated until they are
    /// answered.
    faults: bool,
    /// How often each document was changed.
    changes: Vec<AtomicI64>,
    /// How often all were.
    multi: AtomicI64,
    multi_lock: Mutex<()>,
    next: AtomicI64,
    here: Mutex<BTreeSet<i64>>,
    sessions: AtomicU64,
    /// How often each kind of work was done.
    pub done: Mutex<BTreeMap<&'static str, u64>>,
}

/// Errors that a client may see while servers end: of the network, elections, and of reads and placements that nobody has
/// settled yet.
fn is_fault(code: i32) -> bool {
    const FAULTS: [i32; 22] = [
        6, 7, 50, 63, 70, 89, 91, 112, 133, 134, 189, 202, 237, 246, 251, 262, 279, 9001, 10058,
        10107, 11600, 11602,
    ];
    FAULTS.contains(&code)
        || [13435, 13436, 13388, 14031, 43, 175, 244, 256, 267, 24].contains(&code)
}

/// The code of the first error among the statements of a reply.
fn statement_s_error(reply: &DocBuf) -> Option<i32> {
    let d = reply.as_doc();
    let errors = d.get_array("writeErrors");
    let of_bulk = d.get_doc("cursor").and_then(|c| c.get_array("firstBatch"));
    let all = errors.or(of_bulk)?.values();
    let mut codes = all.filter_map(|v| v.as_doc()?.get("code")?.as_i64_exact());
    codes.next().map(|code| code as i32)
}

/// A client of any of the routers.
pub struct Client<'a> {
    load: &'a Load,
    routers: &'a Routers,
    at: usize,
    connection: Option<Connection>,
    id: [u8; 16],
    number: i64,
    pub dice: Dice,
}

impl<'a> Client<'a> {
    pub fn new(load: &'a Load, routers: &'a Routers, at: usize) -> Client<'a> {
        let n = load.sessions.fetch_add(1, SeqCst);
        Client {
            load,
            routers,
            at,
            connection: None,
            id: session(77, n),
            number: 0,
            dice: Dice(n * 77 + 5),
        }
    }

    fn connection(&mut self) -> muniment_value::Result<&mut Connection> {
        if self.connection.is_none() {
            let address = {
                let all = self.routers.lock().unwrap();
                all[self.at % all.len()].clone()
            };
            let mut c = Connection::connect_timeout(&address, Duration::from_secs(2))?;
            c.set_timeout(Some(Duration::from_secs(40)))?;
            self.connection = Some(c);
        }
        Ok(self.connection.as_mut().unwrap())
    }

    /// One message, at another router after an error.
    pub fn once(&mut self, db: &str, cmd: &DocBuf) -> muniment_value::Result<DocBuf> {
        let result = self.connection().and_then(|c| c.command(db, cmd));
        if let Err(e) = &result {
            assert!(self.load.faults && is_fault(e.code().0), "{cmd:?}: {e}");
            self.connection = None;
            self.at += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        result
    }

    /// A retryable command until it succeeds.
    fn surely(&mut self, db: &str, cmd: DocBuf) -> DocBuf {
        self.number += 1;
        let mut cmd = numbered(cmd, &self.id, self.number);
        cmd.append("writeConcern", doc! { "w": "majority" });
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            assert!(Instant::now() < end, "{cmd:?} does not succeed");
            let Ok(reply) = self.once(db, &cmd) else {
                continue;
            };
            let d = reply.as_doc();
            if let Some(code) = statement_s_error(&reply) {
                assert!(self.load.faults && is_fault(code), "{cmd:?}: {reply:?}");
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            if d.get("writeConcernError").is_some() {
                assert!(self.load.faults, "{cmd:?}: {reply:?}");
                continue;
            }
            return reply;
        }
    }

    /// All documents of a read; `None` after a fault.
    fn read(&mut self, cmd: &DocBuf) -> Option<Vec<DocBuf>> {
        let faults = self.load.faults;
        let c = self.connection().ok()?;
        match c.find_all("d", cmd) {
            Ok(docs) => Some(docs),
            Err(e) => {
                assert!(faults && is_fault(e.code().0), "{cmd:?}: {e}");
                self.connection = None;
                self.at += 1;
                None
            }
        }
    }
}

fn update(q: DocBuf, u: DocBuf, multi: bool) -> DocBuf {
    let one = doc! { "q": q, "u": u, "multi": multi };
    doc! { "update": "c", "updates": array![one] }
}

impl Load {
    /// Makes the collections, divided at some points.
    pub fn prepare(c: &mut Connection, faults: bool) -> Load {
        let at = |field: &str, step: i64| -> Vec<String> {
            (1..6)
                .map(|i| format!("{{{field}: {}}}", i * step))
                .collect()
        };
        let (of_c, of_bank) = (at("k", 1700), at("a", ACCOUNTS / 6));
        let texts = |all: &'_ [String]| all.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        divide(
            c,
            "d.c",
            "{k: 1}",
            &texts(&of_c).iter().map(String::as_str).collect::<Vec<_>>(),
        );
        divide(
            c,
            "d.bank",
            "{a: 1}",
            &texts(&of_bank)
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        );
        insert(
            c,
            "d",
            "c",
            (0..DOCS)
                .map(|i| doc! { "_id": i, "k": key_of(i), "n": 0, "m": 0, "pad": "x".repeat(60) }),
        );
        insert(
            c,
            "d",
            "bank",
            (0..ACCOUNTS).map(|i| doc! { "_id": i, "a": i, "b": 100 }),
        );
        run(
            c,
            "d",
            "{createIndexes: 'c', indexes: [{key: {m: 1}, name: 'm'}]}",
        );
        Load {
            stop: AtomicBool::new(false),
            faults,
            changes: (0..DOCS).map(|_| AtomicI64::new(0)).collect(),
            multi: AtomicI64::new(0),
            multi_lock: Mutex::new(()),
            next: AtomicI64::new(DOCS),
            here: Mutex::default(),
            sessions: AtomicU64::new(1),
            done: Mutex::default(),
        }
    }

    fn note(&self, what: &'static str) {
        *self.done.lock().unwrap().entry(what).or_default() += 1;
    }

    /// Does something again and again until the end.
    pub fn work<'a>(&'a self, routers: &'a Routers, at: usize, what: &'static str) {
        let mut client = Client::new(self, routers, at);
        while !self.stop.load(SeqCst) {
            match what {
                "change" => self.change(&mut client),
                "insert" => self.insert(&mut client),
                "multi" => self.change_all(&mut client),
                "batch" => self.batch(&mut client),
                "audit" => self.audit(&mut client),
                "read" => self.read(&mut client),
                "snapshot" => self.snapshot(&mut client),
                "transfer" => self.transfer(&mut client),
                other => panic!("{other}"),
            }
            self.note(what);
        }
    }

    /// Changes a document, by its key or by its `_id` alone.
    fn change(&self, c: &mut Client<'_>) {
        let i = c.dice.below(DOCS as usize) as i64;
        let mut q = doc! { "_id": i };
        if c.dice.below(2) == 0 {
            q.append("k", key_of(i));
        }
        let inc = doc! { "$inc": doc! { "n": 1 } };
        let reply = match c.dice.below(4) {
            0 => {
                let reply = c.surely(
                    "d",
                    doc! { "findAndModify": "c", "query": q, "update": inc },
                );
                assert!(reply.as_doc().get_doc("value").is_some(), "{i}: {reply:?}");
                reply
            }
            _ => {
                let reply = c.surely("d", update(q, inc, false));
                assert_eq!(number(&reply, "n"), 1, "{i}: {reply:?}");
                reply
            }
        };
        drop(reply);
        self.changes[i as usize].fetch_add(1, SeqCst);
    }

    /// Inserts a document, and deletes every other one again.
    fn insert(&self, c: &mut Client<'_>) {
        let i = self.next.fetch_add(1, SeqCst);
        let new = doc! { "_id": i, "k": key_of(i), "n": 0, "x": 1 };
        let reply = c.surely("d", doc! { "insert": "c", "documents": array![new] });
        assert_eq!(number(&reply, "n"), 1);
        match c.dice.below(4) {
            0 | 1 => {
                let q = doc! { "_id": i };
                let reply = c.surely(
                    "d",
                    doc! { "delete": "c", "deletes": array![doc! { "q": q, "limit": 1 }] },
                );
                assert_eq!(number(&reply, "n"), 1, "{i}: {reply:?}");
            }
            2 => {
                // It goes elsewhere.
                let u = doc! { "$set": doc! { "k": key_of(i + 313) } };
                let reply = c.surely("d", update(doc! { "_id": i, "x": 1 }, u, false));
                assert_eq!(number(&reply, "n"), 1, "{i}: {reply:?}");
                self.here.lock().unwrap().insert(i);
            }
            _ => {
                self.here.lock().unwrap().insert(i);
            }
        }
    }

    /// Changes all documents in one statement. It cannot be repeated, so it is not done where servers end.
    fn change_all(&self, c: &mut Client<'_>) {
        let _alone = self.multi_lock.lock().unwrap();
        let q = doc! { "m": doc! { "$gte": 0 } };
        let inc = doc! { "$inc": doc! { "m": 1 } };
        let (db, cmd) = match c.dice.below(2) {
            0 => ("d", update(q, inc, true)),
            _ => {
                let op = doc! { "update": 0, "filter": q, "updateMods": inc, "multi": true };
                let info = doc! { "ns": "d.c" };
                (
                    "admin",
                    doc! { "bulkWrite": 1, "ops": array![op], "nsInfo": array![info] },
                )
            }
        };
        let reply = c.once(db, &cmd).unwrap();
        assert_eq!(number(&reply, "nModified"), DOCS, "{cmd:?}: {reply:?}");
        self.multi.fetch_add(1, SeqCst);
    }

    /// Inserts documents of many ranges in one command, changes each in one command, and deletes them again.
    fn batch(&self, c: &mut Client<'_>) {
        const SIZE: i64 = 12;
        let from = self.next.fetch_add(SIZE, SeqCst);
        let ids: Vec<i64> = (from..from + SIZE).collect();
        let ordered = c.dice.below(2) == 0;
        let new = |i: &i64| doc! { "_id": *i, "k": key_of(*i), "n": 0, "y": 1 };
        let inserted = match c.dice.below(2) {
            0 => {
                let docs: ArrayBuf = ids.iter().map(new).collect();
                c.surely(
                    "d",
                    doc! { "insert": "c", "documents": docs, "ordered": ordered },
                )
            }
            _ => {
                let ops: ArrayBuf = ids
                    .iter()
                    .map(|i| doc! { "insert": 0, "document": new(i) })
                    .collect();
                let info = array![doc! { "ns": "d.c" }];
                c.surely(
                    "admin",
                    doc! { "bulkWrite": 1, "ops": ops, "nsInfo": info, "ordered": ordered },
                )
            }
        };
        let done = inserted
            .as_doc()
            .get("n")
            .or(inserted.as_doc().get("nInserted"));
        assert_eq!(
            done.and_then(|n| n.as_i64_exact()),
            Some(SIZE),
            "{inserted:?}"
        );
        let change = |i: &i64| {
            let mut q = doc! { "_id": *i };
            q.append_some("k", (i % 2 == 0).then(|| key_of(*i)));
            doc! { "q": q, "u": doc! { "$inc": doc! { "n": 1 } } }
        };
        let changes: ArrayBuf = ids.iter().map(change).collect();
        let changed = c.surely(
            "d",
            doc! { "update": "c", "updates": changes, "ordered": ordered },
        );
        assert_eq!(
            (number(&changed, "n"), number(&changed, "nModified")),
            (SIZE, SIZE),
            "{changed:?}"
        );
        if let Some(found) = c.read(&doc! { "find": "c", "filter": doc! { "_id": doc! { "$gte": from, "$lt": from + SIZE } } }) {
            assert!(found.len() as i64 == SIZE && found.iter().all(|d| number(d, "n") == 1), "{found:?}");
        }
        if self.faults {
            let gone = |i: &i64| doc! { "q": doc! { "_id": *i }, "limit": 1 };
            let gone: ArrayBuf = ids.iter().map(gone).collect();
            let gone = c.surely(
                "d",
                doc! { "delete": "c", "deletes": gone, "ordered": ordered },
            );
            assert_eq!(number(&gone, "n"), SIZE, "{gone:?}");
        } else {
            let q = doc! { "_id": doc! { "$gte": from, "$lt": from + SIZE } };
            let gone = c
                .once(
                    "d",
                    &doc! { "delete": "c", "deletes": array![doc! { "q": q, "limit": 0 }] },
                )
                .unwrap();
            assert_eq!(number(&gone, "n"), SIZE, "{gone:?}");
        }
    }

    /// Reads all accounts in a transaction, twice.
    fn audit(&self, c: &mut Client<'_>) {
        c.number += 1;
        let (id, n) = (c.id, c.number);
        let of = move |cmd: DocBuf| {
            let mut cmd = numbered(cmd, &id, n);
            cmd.append("autocommit", false);
            cmd
        };
        let mut first = of(
            doc! { "find": "bank", "batchSize": 1000, "readConcern": doc! { "level": "snapshot" } },
        );
        first.append("startTransaction", true);
        let again = of(
            doc! { "find": "bank", "batchSize": 1000, "filter": doc! { "b": doc! { "$gt": -1_000_000 } } },
        );
        for cmd in [first, again] {
            let Ok(connection) = c.connection() else {
                return;
            };
            match connection.command("d", &cmd) {
                Ok(reply) => {
                    let cursor = reply.as_doc().get_doc("cursor").unwrap();
                    let sum = sum_of(cursor.get_array("firstBatch").unwrap().values());
                    assert_eq!(sum, (ACCOUNTS, 100 * ACCOUNTS), "{cmd:?}");
                }
                Err(e) => {
                    let again = e.labels().contains(&"TransientTransactionError");
                    assert!(again || self.faults, "{e}");
                    break;
                }
            }
            std::thread::sleep(Duration::from_millis(c.dice.below(60) as u64));
        }
        if let Ok(connection) = c.connection() {
            let _ = connection.command("admin", &of(doc! { "commitTransaction": 1 }));
        }
        if self.faults {
            c.connection = None;
            c.at += 1;
        }
    }

    /// Reads everything, in one of several ways.
    fn read(&self, c: &mut Client<'_>) {
        let all = doc! { "m": doc! { "$gte": 0 } };
        let group = doc! { "_id": doc! { "$mod": array!["$_id", 10] }, "c": doc! { "$sum": 1 } };
        let (what, found) = match c.dice.below(5) {
            0 => (
                "count",
                c.once("d", &doc! { "count": "c", "query": all })
                    .ok()
                    .map(|r| number(&r, "n")),
            ),
            1 => (
                "find",
                c.read(&doc! { "find": "c", "filter": all, "batchSize": 50 })
                    .map(|d| distinct(&d)),
            ),
            2 => {
                let find =
                    doc! { "find": "c", "filter": all, "sort": doc! { "k": 1 }, "batchSize": 70 };
                ("sorted", c.read(&find).map(|d| distinct(&d)))
            }
            3 => {
                let pipeline = array![doc! { "$match": all }, doc! { "$group": group }];
                let docs =
                    c.read(&doc! { "aggregate": "c", "pipeline": pipeline, "cursor": doc! {} });
                (
                    "group",
                    docs.map(|d| d.iter().map(|d| number(d, "c")).sum()),
                )
            }
            _ => {
                let look = doc! {
                    "from": "c", "localField": "_id", "foreignField": "_id", "as": "o",
                };
                let some = doc! { "m": doc! { "$gte": 0 }, "_id": doc! { "$lt": 20 } };
                let pipeline = array![
                    doc! { "$match": some },
                    doc! { "$lookup": look },
                    doc! { "$unwind": "$o" }
                ];
                let cmd = doc! { "aggregate": "c", "pipeline": pipeline, "cursor": doc! { "batchSize": 3 } };
                ("lookup", c.read(&cmd).map(|d| d.len() as i64 + DOCS - 20))
            }
        };
        if let Some(found) = found {
            assert_eq!(found, DOCS, "{what}");
        }
    }

    /// Reads the sum of all accounts at one time, and again later at the same time.
    fn snapshot(&self, c: &mut Client<'_>) {
        let find =
            doc! { "find": "bank", "batchSize": 1000, "readConcern": doc! { "level": "snapshot" } };
        let Ok(first) = c.once("d", &find) else {
            return;
        };
        let cursor = first.as_doc().get_doc("cursor").unwrap();
        let (count, sum) = sum_of(cursor.get_array("firstBatch").unwrap().values());
        assert_eq!((count, sum), (ACCOUNTS, 100 * ACCOUNTS), "now");
        let at = cursor.get("atClusterTime").unwrap();
        std::thread::sleep(Duration::from_millis(c.dice.below(300) as u64));
        let again = doc! {
            "find": "bank", "batchSize": 7, "readConcern": doc! { "level": "snapshot", "atClusterTime": at },
        };
        if let Some(docs) = c.read(&again) {
            let sum: i64 = docs.iter().map(|d| number(d, "b")).sum();
            assert_eq!(
                (docs.len() as i64, sum),
                (ACCOUNTS, 100 * ACCOUNTS),
                "again"
            );
        }
    }

    /// Moves something from an account to another one, in a transaction.
    fn transfer(&self, c: &mut Client<'_>) {
        let (from, to) = (
            c.dice.below(ACCOUNTS as usize) as i64,
            c.dice.below(ACCOUNTS as usize) as i64,
        );
        if from == to {
            return;
        }
        c.number += 1;
        let (id, n) = (c.id, c.number);
        let of = move |cmd: DocBuf| {
            let mut cmd = numbered(cmd, &id, n);
            cmd.append("autocommit", false);
            cmd
        };
        for (i, (a, by)) in [(from, -1), (to, 1)].into_iter().enumerate() {
            let one = doc! { "q": doc! { "a": a }, "u": doc! { "$inc": doc! { "b": by } } };
            let mut cmd = of(doc! { "update": "bank", "updates": array![one] });
            cmd.append_some("startTransaction", (i == 0).then_some(true));
            let Ok(connection) = c.connection() else {
                return;
            };
            let ended = match connection.command("d", &cmd) {
                Ok(reply) => match statement_s_error(&reply) {
                    Some(code) if is_fault(code) => Some(Error::location(code, "a statement")),
                    _ => {
                        assert_eq!(number(&reply, "n"), 1, "{reply:?}");
                        None
                    }
                },
                Err(e) => Some(e),
            };
            if let Some(e) = ended {
                let again = e.labels().contains(&"TransientTransactionError");
                assert!(again || self.faults, "{e}");
                if self.faults {
                    c.connection = None;
                    c.at += 1;
                }
                if let Ok(c) = c.connection() {
                    let _ = c.command("admin", &of(doc! { "abortTransaction": 1 }));
                }
                return;
            }
        }
        let mut commit = of(doc! { "commitTransaction": 1 });
        commit.append("writeConcern", doc! { "w": "majority" });
        // Where it is not known whether it was committed, the sum is the same either way.
        if let Ok(c) = c.connection() {
            let _ = c.command("admin", &commit);
        }
    }

    /// Moves chunks between two shards.
    pub fn moves<'a>(&'a self, routers: &'a Routers, at: usize) {
        let mut client = Client::new(self, routers, at);
        while !self.stop.load(SeqCst) {
            let ns = ["d.c", "d.c", "d.bank"][client.dice.below(3)];
            let all = client.connection().and_then(|c| try_chunks(c, ns));
            let Ok(all) = all else {
                client.connection = None;
                client.at += 1;
                continue;
            };
            let chunk = all[client.dice.below(all.len())].clone();
            let to = other(&chunk.shard);
            let waits = client.dice.below(4) == 0;
            let moved = client
                .connection()
                .and_then(|c| move_to(c, ns, &chunk, to, waits));
            match moved {
                Ok(_) => self.note("move"),
                // Transactions were in the way.
                Err(e) if e.code().0 == 24 => self.note("busy"),
                Err(e) => {
                    assert!(self.faults, "{ns} {chunk:?}: {e}");
                    self.note("failed");
                    client.connection = None;
                    client.at += 1;
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    /// Compares what there is with what clients know.
    pub fn check(&self, c: &mut Connection) {
        let docs = c
            .find_all(
                "d",
                &doc! { "find": "c", "filter": doc! { "_id": doc! { "$lt": DOCS } } },
            )
            .unwrap();
        assert_eq!((docs.len() as i64, distinct(&docs)), (DOCS, DOCS));
        for d in &docs {
            let id = number(d, "_id");
            let wanted = (
                self.changes[id as usize].load(SeqCst),
                self.multi.load(SeqCst),
            );
            assert_eq!((number(d, "n"), number(d, "m")), wanted, "{d:?}");
        }
        let new = c
            .find_all("d", &doc! { "find": "c", "filter": doc! { "x": 1 } })
            .unwrap();
        let ids: BTreeSet<i64> = new.iter().map(|d| number(d, "_id")).collect();
        assert_eq!((&ids, new.len()), (&*self.here.lock().unwrap(), ids.len()));
        let bank = c.find_all("d", &doc! { "find": "bank" }).unwrap();
        let sum: i64 = bank.iter().map(|d| number(d, "b")).sum();
        assert_eq!((bank.len() as i64, sum), (ACCOUNTS, 100 * ACCOUNTS));
        let all = DOCS + new.len() as i64;
        assert_eq!(number(&run(c, "d", "{count: 'c'}"), "n"), all);
    }

    /// The documents that there are in the end.
    pub fn rows(&self) -> i64 {
        DOCS + self.here.lock().unwrap().len() as i64
    }

    /// The accounts.
    pub fn accounts(&self) -> i64 {
        ACCOUNTS
    }
}

fn distinct(docs: &[DocBuf]) -> i64 {
    let ids: BTreeSet<i64> = docs.iter().map(|d| number(d, "_id")).collect();
    ids.len() as i64
}

fn sum_of<'v>(docs: impl Iterator<Item = Value<'v>>) -> (i64, i64) {
    let b = |v: Value<'_>| {
        v.as_doc()
            .unwrap()
            .get("b")
            .unwrap()
            .as_i64_exact()
            .unwrap()
    };
    docs.fold((0, 0), |(n, sum), d| (n + 1, sum + b(d)))
}
