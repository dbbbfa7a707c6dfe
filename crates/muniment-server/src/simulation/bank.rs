//! Transactions over shards: clients move amounts between accounts, and read all accounts at one time.
//!
//! The accounts are documents of a collection whose ranges move as well. Each transfer takes from one and gives to
//! another one, and leaves its number with both. So a reader of one time finds all or nothing of it, and the sum of all
//! accounts is always the same.

use super::clients::{BANK, Client, DB, KEYS, Said, must, number};
use super::cluster::{FIRST_ROUTER, ROUTERS, short};
use super::ledger::{ACCOUNTS, Account, EACH, Transfer};
use super::world::MS;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Value, array, doc};
use std::collections::BTreeMap;

/// Makes the accounts, on two shards.
pub(super) fn prepare(client: &mut Client) {
    let ns = format!("{DB}.{BANK}");
    must(
        client,
        &doc! { "shardCollection": &ns, "key": doc! { "k": 1 } },
        "admin",
    );
    let account = |i: i64| doc! { "_id": i, "k": i * KEYS / ACCOUNTS, "b": EACH, "t": array![] };
    let docs: ArrayBuf = (0..ACCOUNTS).map(account).collect();
    must(client, &doc! { "insert": BANK, "documents": docs }, DB);
    let half = doc! { "moveRange": &ns, "min": doc! { "k": KEYS / 2 }, "toShard": "s2" };
    must(client, &half, "admin");
}

/// What became of a transaction's statement or end.
enum Came {
    Done(DocBuf),
    /// It is aborted.
    Aborted,
    Unknown,
}

/// A client of the bank.
pub(super) struct Banker {
    client: Client,
    /// What a router has said by which any other one can learn of the transaction.
    token: Option<DocBuf>,
    begun: bool,
}

impl Banker {
    pub(super) fn new(client: Client) -> Banker {
        Banker {
            client,
            token: None,
            begun: false,
        }
    }

    pub(super) fn live(&mut self) {
        while !self.client.is_over() {
            let of = self.client.below(ROUTERS as u64) as usize;
            self.client.router = FIRST_ROUTER + of;
            match self.client.below(3) {
                0 => self.audit(),
                _ => self.transfer(),
            }
            let pause = self.client.below(150) * MS;
            self.client.here.sleep(pause);
        }
    }

    /// Sends a message of the transaction.
    fn ask(&mut self, mut command: DocBuf, db: &str) -> Came {
        self.client.pause_if_down();
        let (id, n) = ([self.client.number as u8 + 1; 16], self.client.transaction);
        let id = Value::Binary {
            subtype: 4,
            bytes: &id,
        };
        command.append("lsid", doc! { "id": id });
        command.append("txnNumber", n);
        command.append("autocommit", false);
        if !self.begun {
            command.append("startTransaction", true);
            command.append("readConcern", self.client.concern("snapshot"));
            self.begun = true;
        }
        match self.client.send(&command, db) {
            Said::Done(reply) => {
                if let Some(token) = reply.as_doc().get_doc("recoveryToken") {
                    self.token = Some(token.to_buf());
                }
                Came::Done(reply)
            }
            Said::Failed(Code::NoSuchTransaction, _) => Came::Aborted,
            Said::Lost => Came::Unknown,
            Said::Failed(code, text) => {
                let passes = [
                    Code::WriteConflict,
                    Code::LockTimeout,
                    Code::StaleConfig,
                    Code::SnapshotUnavailable,
                    Code::SnapshotTooOld,
                    Code::TransactionTooOld,
                    Code::TransactionExceededLifetimeLimitSeconds,
                ];
                if !passes.contains(&code) {
                    self.client.may_fail(&command, code, &text);
                }
                Came::Unknown
            }
        }
    }

    fn begin(&mut self) {
        self.client.transaction += 1;
        (self.token, self.begun) = (None, false);
    }

    fn give_up(&mut self) {
        let mut abort = doc! { "abortTransaction": 1 };
        abort.append_some("recoveryToken", self.token.as_ref());
        drop(self.ask(abort, "admin"));
    }

    fn transfer(&mut self) {
        let from = self.client.below(ACCOUNTS as u64) as i64;
        let to = (from + 1 + self.client.below(ACCOUNTS as u64 - 1) as i64) % ACCOUNTS;
        let amount = 1 + self.client.below(9) as i64;
        self.begin();
        let id = self.client.number as i64 * 100_000 + self.client.transaction;
        for (account, by) in [(from, -amount), (to, amount)] {
            // Some name no key, and so have to be found first.
            let mut q = doc! { "_id": account };
            let keyed = self.client.below(3) > 0;
            q.append_some("k", keyed.then_some(account * KEYS / ACCOUNTS));
            let u = doc! { "$inc": doc! { "b": by }, "$push": doc! { "t": id } };
            let update = doc! { "update": BANK, "updates": array![doc! { "q": q, "u": u }] };
            match self.ask(update, DB) {
                Came::Done(reply) if number(reply.as_doc(), "n") == 1 => {}
                Came::Done(reply) => {
                    return self
                        .client
                        .fails(format!("a transfer from {account} says {reply:?}"));
                }
                Came::Aborted | Came::Unknown => return self.give_up(),
            }
            let pause = self.client.below(10) * MS;
            self.client.here.sleep(pause);
        }
        let known = Transfer {
            sent: true,
            ..Transfer::default()
        };
        let note = |this: &Self, f: &dyn Fn(&mut Transfer, u64)| {
            let mut inner = this.client.here.world.lock();
            let tick = inner.oracle.tick();
            f(
                inner.oracle.ledger.transfers.entry(id).or_insert(known),
                tick,
            );
        };
        note(self, &|_, _| {});
        match self.commit() {
            Came::Done(_) => note(self, &|transfer, tick| transfer.committed = Some(tick)),
            Came::Aborted => note(self, &|transfer, _| transfer.aborted = true),
            Came::Unknown => return,
        }
        self.client.here.world.lock().course.transfers += 1;
    }

    /// Commits, and asks again until the outcome is known, or for long in vain.
    fn commit(&mut self) -> Came {
        for _ in 0..200 {
            let mut commit =
                doc! { "commitTransaction": 1, "writeConcern": doc! { "w": "majority" } };
            commit.append_some("recoveryToken", self.token.as_ref());
            match self.ask(commit, "admin") {
                Came::Unknown => {}
                known => return known,
            }
            if self.client.here.world.lock().ends {
                break;
            }
            self.client.router = FIRST_ROUTER + self.client.below(ROUTERS as u64) as usize;
            let pause = self.client.below(200) * MS;
            self.client.here.sleep(pause);
        }
        Came::Unknown
    }

    /// Reads all accounts at one time, in a transaction or by one statement.
    pub(super) fn audit(&mut self) {
        let begun = self.client.here.world.lock().oracle.tick();
        let found = match self.client.below(2) {
            0 => self.read_in_transaction(),
            _ => self.read_snapshot(),
        };
        let Some(found) = found else { return };
        let mut inner = self.client.here.world.lock();
        inner.course.audits += 1;
        if let Err(why) = inner.oracle.ledger.check(&found, begun) {
            inner.fail(format!("client {}: {why}", self.client.number));
        }
    }

    fn read_in_transaction(&mut self) -> Option<BTreeMap<i64, Account>> {
        self.begin();
        let mut found = BTreeMap::new();
        for half in 0..2_i64 {
            let (low, high) = (half * KEYS / 2, (half + 1) * KEYS / 2);
            let filter = doc! { "k": doc! { "$gte": low, "$lt": high } };
            let Came::Done(reply) = self.ask(doc! { "find": BANK, "filter": filter }, DB) else {
                self.give_up();
                return None;
            };
            put(&reply, &mut found);
            let pause = self.client.below(40) * MS;
            self.client.here.sleep(pause);
        }
        self.give_up();
        Some(found)
    }

    fn read_snapshot(&mut self) -> Option<BTreeMap<i64, Account>> {
        self.client.pause_if_down();
        let find = doc! { "find": BANK, "readConcern": self.client.concern("snapshot") };
        match self.client.send(&find, DB) {
            Said::Done(reply) => {
                let mut found = BTreeMap::new();
                put(&reply, &mut found);
                Some(found)
            }
            Said::Lost | Said::Failed(Code::SnapshotUnavailable | Code::SnapshotTooOld, _) => None,
            Said::Failed(code, text) => {
                self.client.may_fail(&find, code, &text);
                None
            }
        }
    }

    /// Everything is healed: the accounts are right, and no transaction holds anything any more.
    pub(super) fn look_at_the_end(&mut self) {
        let before = self.client.here.world.lock().course.audits;
        for _ in 0..50 {
            self.audit();
            let inner = self.client.here.world.lock();
            if inner.course.audits > before || inner.failure.is_some() || inner.ends {
                return;
            }
            drop(inner);
            self.client.here.sleep(200 * MS);
        }
        self.client
            .fails("at the end the accounts cannot be read".into());
    }
}

/// Takes the accounts from a reply with one batch.
fn put(reply: &DocBuf, found: &mut BTreeMap<i64, Account>) {
    let cursor = reply.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
    let batch = cursor.get_array("firstBatch").unwrap_or(Doc::EMPTY);
    for d in batch.values().filter_map(|v| v.as_doc()) {
        let transfers = d.get_array("t").unwrap_or(Doc::EMPTY).values();
        let account = Account {
            balance: number(d, "b"),
            transfers: transfers.filter_map(|v| v.as_i64_exact()).collect(),
        };
        let twice = found.insert(number(d, "_id"), account).is_some();
        assert!(!twice, "an account is found twice: {}", short(d));
    }
}
