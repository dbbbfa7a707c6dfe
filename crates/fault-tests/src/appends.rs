//! Clients whose transactions append numbers to lists and read them: see [`isolation`](crate::isolation).

use crate::isolation::{Fate, Step, Transaction};
use crate::session::{Address, Session, code_of, has_label};
use crate::{DB, Rng};
use muniment_value::{Code, Doc, DocBuf, array, doc, number};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};

/// The number of lists that are in use at a time.
const ACTIVE: i64 = 8;
/// After this many committed transactions new lists replace the old ones, so that none gets long.
const EPOCH: usize = 100;

/// The state that all clients share.
pub struct Shared {
    /// The addresses of the servers.
    pub address: Address,
    /// Tells the clients to end.
    pub stop: AtomicBool,
    /// The number of committed transactions.
    pub committed: AtomicUsize,
    numbers: AtomicI64,
    manner: Manner,
}

/// How the clients read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// To one server.
    Alone,
    /// To one server, with a deliberate fault: reads see the newest state, not that of the transaction.
    Newest,
    /// To a set, with the write concern majority. If a transaction that is not committed reads something, an
    /// election may undo that, so it proves nothing.
    Majority,
    /// To routers before several shards, as to a set; transactions read one time of all shards.
    Shards,
}

impl Manner {
    /// Whether there are several servers, which may take over from each other.
    fn is_of_several(self) -> bool {
        matches!(self, Manner::Majority | Manner::Shards)
    }
}

impl Shared {
    /// State for clients of this server or set.
    pub fn new(address: Address, manner: Manner) -> Shared {
        Shared {
            address,
            stop: AtomicBool::new(false),
            committed: AtomicUsize::new(0),
            numbers: AtomicI64::new(1),
            manner,
        }
    }

    /// The number that the next append gets: says when something else happened, compared with appends.
    pub fn number(&self) -> i64 {
        self.numbers.load(SeqCst)
    }

    /// Runs transactions as client number `i` until it is told to end, and returns them.
    ///
    /// # Panics
    /// If a reply is wrong.
    pub fn run(&self, i: u64, seed: u64) -> Vec<Transaction> {
        let mut client = Client {
            shared: self,
            session: Session::new(&self.address, i as u8 + 1),
            rng: Rng::new(seed ^ (i + 1)),
            token: None,
        };
        let mut done = Vec::new();
        while !self.stop.load(SeqCst) {
            let mut t = client.run();
            if t.fate == Fate::Committed {
                self.committed.fetch_add(1, SeqCst);
            } else if self.manner.is_of_several() {
                t.steps.retain(|step| matches!(step, Step::Append(..)));
            }
            if !t.steps.is_empty() {
                done.push(t);
            }
        }
        done
    }
}

struct Client<'a> {
    shared: &'a Shared,
    session: Session<'a>,
    rng: Rng,
    /// What a router has said by which any other one can learn of the transaction.
    token: Option<DocBuf>,
}

/// The outcome of a command in a transaction.
enum Said {
    Ok(DocBuf),
    /// The transaction was aborted.
    GaveUp,
    /// There was no reply, or one that does not tell the outcome.
    Nothing,
}

impl Client<'_> {
    fn send(&mut self, db: &str, command: &DocBuf, starts: bool, inside: bool) -> Said {
        let mut command = match inside {
            true => self.session.in_transaction(command, starts),
            false => command.clone(),
        };
        if self.shared.manner == Manner::Shards {
            command.append_some("readConcern", starts.then(|| doc! { "level": "snapshot" }));
            command.append_some(
                "recoveryToken",
                self.token.as_ref().filter(|_| db == "admin"),
            );
        }
        let Some(reply) = self.session.send(db, &command) else {
            return Said::Nothing;
        };
        if let Some(token) = reply.as_doc().get_doc("recoveryToken") {
            self.token = Some(token.to_buf());
        }
        let several = self.shared.manner.is_of_several();
        match code_of(&reply) {
            None => Said::Ok(reply),
            Some(Code::WriteConflict) => Said::GaveUp,
            // Another primary may still have it, or not know of it yet.
            Some(Code::NoSuchTransaction) if several => Said::Nothing,
            Some(Code::NoSuchTransaction) => Said::GaveUp,
            Some(_) if several && retry(&reply) => {
                self.session.elsewhere();
                Said::Nothing
            }
            Some(_) => panic!("{reply:?}"),
        }
    }

    /// Commits. Asks again if a reply does not tell the outcome.
    fn commit(&mut self) -> Fate {
        let several = self.shared.manner.is_of_several();
        let mut commit = doc! { "commitTransaction": 1 };
        if several {
            commit.append("writeConcern", doc! { "w": "majority", "wtimeout": 5000 });
        }
        for _ in 0..if several { 3 } else { 1 } {
            match self.send("admin", &commit, false, true) {
                Said::Ok(reply) if reply.as_doc().get("writeConcernError").is_none() => {
                    return Fate::Committed;
                }
                Said::GaveUp => return Fate::Aborted,
                Said::Ok(_) | Said::Nothing => {}
            }
        }
        Fate::Unknown
    }

    fn run(&mut self) -> Transaction {
        self.session.begin();
        self.token = None;
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
                // The list is read by its `_id`, or by an index.
                let filter = match self.rng.below(2) {
                    0 => doc! { "_id": key },
                    _ => doc! { "k": key },
                };
                let find = doc! { "find": "lists", "filter": filter };
                let with = self.shared.manner != Manner::Newest;
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
                        // The reply may also have a conflict as a write error.
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
        t.fate = self.commit();
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

/// Whether a reply comes from a member that is not primary, or no longer, or from a set that is unavailable
/// for a while.
fn retry(reply: &DocBuf) -> bool {
    let elsewhere = matches!(
        code_of(reply),
        Some(
            Code::NotWritablePrimary
                | Code::NotPrimaryNoSecondaryOk
                | Code::NotPrimaryOrSecondary
                | Code::PrimarySteppedDown
                | Code::InterruptedDueToReplStateChange
                | Code::ShutdownInProgress
                | Code::InterruptedAtShutdown
        )
    );
    elsewhere || has_label(reply, "TransientTransactionError")
}

/// All lists, from their documents.
///
/// # Panics
/// If a document has no list.
pub fn lists(documents: &[DocBuf]) -> BTreeMap<i64, Vec<i64>> {
    let one = |d: &DocBuf| {
        let d = d.as_doc();
        let key = d.get("_id").and_then(number::to_i64_exact).unwrap();
        let list = d.get_array("list").unwrap();
        let list = list.values().filter_map(number::to_i64_exact);
        (key, list.collect())
    };
    documents.iter().map(one).collect()
}
