//! Random transactions that append to lists and read them, over kills: what they read must be what
//! snapshot isolation allows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::isolation::{Fate, Step, Transaction, judge};
use fault_tests::session::{Address, Session, code_of};
use fault_tests::{DB, Rng, long, seed};
use muniment_value::{Code, Doc, DocBuf, array, doc, number};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use testkit::{Server, ServerOptions};

const CLIENTS: u64 = 4;
/// Lists that are in use at a time.
const ACTIVE: i64 = 8;
/// Committed transactions after which other lists take their place, so that none gets long.
const EPOCH: usize = 100;

/// What all clients share.
struct Shared {
    address: Address,
    stop: AtomicBool,
    /// Transactions that were committed.
    committed: AtomicUsize,
    numbers: AtomicI64,
    /// The fault put in: reads see the newest state, not that of the transaction.
    newest: bool,
}

struct Client<'a> {
    shared: &'a Shared,
    session: Session<'a>,
    rng: Rng,
}

/// How a command of a transaction ended.
enum Said {
    Ok(DocBuf),
    /// The transaction is given up.
    GaveUp,
    /// No answer came.
    Nothing,
}

impl Client<'_> {
    fn send(&mut self, db: &str, command: &DocBuf, starts: bool, inside: bool) -> Said {
        let command = match inside {
            true => &self.session.in_transaction(command, starts),
            false => command,
        };
        let Some(reply) = self.session.send(db, command) else {
            return Said::Nothing;
        };
        match code_of(&reply) {
            None => Said::Ok(reply),
            Some(Code::WriteConflict | Code::NoSuchTransaction) => Said::GaveUp,
            Some(_) => panic!("{reply:?}"),
        }
    }

    fn run(&mut self) -> Transaction {
        self.session.begin();
        let epoch = (self.shared.committed.load(SeqCst) / EPOCH) as i64;
        let mut t = Transaction {
            fate: Fate::Aborted,
            steps: Vec::new(),
        };
        let steps = 1 + self.rng.below(4);
        let mut inside = false;
        for _ in 0..steps {
            let key = epoch * ACTIVE + self.rng.below(ACTIVE as u64) as i64;
            if self.rng.below(2) == 0 {
                // By its `_id`, and by an index.
                let filter = match self.rng.below(2) {
                    0 => doc! { "_id": key },
                    _ => doc! { "k": key },
                };
                let find = doc! { "find": "lists", "filter": filter };
                let with = !self.shared.newest;
                let reply = match self.send(DB, &find, with && !inside, with) {
                    Said::Ok(reply) => reply,
                    _ => return t,
                };
                inside |= with;
                t.steps.push(Step::Read(key, list_of(&reply)));
            } else {
                let n = self.shared.numbers.fetch_add(1, SeqCst);
                let update = doc! {
                    "q": doc! { "_id": key }, "upsert": true,
                    "u": doc! { "$push": doc! { "list": n }, "$set": doc! { "k": key } },
                };
                let update = doc! { "update": "lists", "updates": array![update] };
                t.steps.push(Step::Append(key, n));
                match self.send(DB, &update, !inside, true) {
                    Said::Ok(reply) => {
                        // A conflict may also stand there.
                        assert!(reply.as_doc().get("writeErrors").is_none(), "{reply:?}");
                    }
                    _ => return t,
                }
                inside = true;
            }
        }
        if !inside {
            t.fate = Fate::Committed;
            return t;
        }
        t.fate = match self.send("admin", &doc! { "commitTransaction": 1 }, false, true) {
            Said::Ok(_) => Fate::Committed,
            Said::GaveUp => Fate::Aborted,
            Said::Nothing => Fate::Unknown,
        };
        t
    }
}

fn list_of(reply: &DocBuf) -> Vec<i64> {
    let cursor = reply.as_doc().get_doc("cursor").unwrap();
    let first = cursor.get_array("firstBatch").unwrap().values().next();
    let list = first.and_then(|d| d.as_doc()?.get_array("list"));
    let list = list.unwrap_or(Doc::EMPTY);
    list.values().filter_map(number::to_i64_exact).collect()
}

/// Runs transactions until so many were committed, with so many kills among them.
fn history(
    transactions: usize,
    kills: usize,
    newest: bool,
) -> (Vec<Transaction>, BTreeMap<i64, Vec<i64>>) {
    let seed = seed();
    let mut server = Server::start(ServerOptions::new());
    let mut c = server.connect();
    let spec = doc! { "key": doc! { "k": 1 }, "name": "k" };
    c.command(
        DB,
        &doc! { "createIndexes": "lists", "indexes": array![spec] },
    )
    .unwrap();
    let shared = Shared {
        address: Address::new(server.address()),
        stop: AtomicBool::new(false),
        committed: AtomicUsize::new(0),
        numbers: AtomicI64::new(1),
        newest,
    };
    let all = std::thread::scope(|scope| {
        let _guard = shared.address.guard();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|i| {
                let shared = &shared;
                scope.spawn(move || {
                    let mut client = Client {
                        shared,
                        session: Session::new(&shared.address, i as u8 + 1),
                        rng: Rng::new(seed ^ (i + 1)),
                    };
                    let mut done = Vec::new();
                    while !shared.stop.load(SeqCst) {
                        let t = client.run();
                        let committed = usize::from(t.fate == Fate::Committed);
                        shared.committed.fetch_add(committed, SeqCst);
                        if !t.steps.is_empty() {
                            done.push(t);
                        }
                    }
                    done
                })
            })
            .collect();
        let reach = |wanted: usize| {
            while shared.committed.load(SeqCst) < wanted {
                assert!(!clients.iter().any(|c| c.is_finished()), "a client failed");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        for kill in 1..=kills {
            let until = transactions * kill / (kills + 1);
            reach(until);
            server.kill9();
            server.start_again();
            shared.address.set(server.address());
        }
        reach(transactions);
        shared.stop.store(true, SeqCst);
        let all = clients.into_iter().flat_map(|c| c.join().unwrap());
        all.collect::<Vec<_>>()
    });
    let mut c = server.connect();
    let last = c.find_all(DB, &doc! { "find": "lists" }).unwrap();
    let last = last.iter().map(|d| {
        let d = d.as_doc();
        let key = d.get("_id").and_then(number::to_i64_exact).unwrap();
        let list = d.get_array("list").unwrap();
        (
            key,
            list.values().filter_map(number::to_i64_exact).collect(),
        )
    });
    (all, last.collect())
}

#[test]
fn transactions_are_isolated_as_snapshots() {
    let (transactions, kills) = if long() { (100_000, 40) } else { (2_500, 4) };
    let (all, last) = history(transactions, kills, false);
    let verdict = judge(&all, &last);
    println!(
        "{} transactions, {} committed, {kills} kills, {} write skews",
        all.len(),
        verdict.committed,
        verdict.write_skews
    );
    assert!(verdict.anomalies.is_empty(), "{:#?}", verdict.anomalies);
    assert!(
        verdict.committed > transactions / 4,
        "{}",
        verdict.committed
    );
    // They are possible, and random transactions meet some: without any, nothing was at risk.
    assert!(verdict.write_skews > 0);
}

/// The judge is worth something: reads that do not keep to the view are found.
#[test]
fn reads_of_the_newest_state_are_found() {
    let (all, last) = history(2_000, 0, true);
    let verdict = judge(&all, &last);
    println!("{} anomalies", verdict.anomalies.len());
    assert!(!verdict.anomalies.is_empty());
}
