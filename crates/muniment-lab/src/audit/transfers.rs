//! Transactions must be all or nothing. Writers move amounts from the accounts of one collection to
//! those of another and write a receipt into each; after the crash, a transaction that left
//! anything must have left all of it.

use super::concern::Concern;
use super::document;
use super::found::{self, Found};
use super::history::History;
use super::writer::Work;
use crate::lab::DB;
use crate::linkbench::transaction::{self, Fault, Session, pause};
use muniment_load::access::Peer;
use muniment_load::conn::{Conn, Message};
use muniment_load::fail::Result;
use muniment_load::rng::Rng;
use muniment_value::{ArrayBuf, Doc, DocBuf, array, doc};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The collections that amounts are moved from and to.
pub(super) const COLLECTIONS: [&str; 2] = ["audit_from", "audit_to"];
/// The number of accounts of each collection; they are few, so that transactions conflict.
const ACCOUNTS: u64 = 8;
/// The balance of each account at the beginning.
const START: i64 = 1_000_000;

/// The content of one transaction, which follows from the round, the writer and the number.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    /// The account in each collection.
    accounts: [i64; 2],
    amount: i64,
}

impl Transfer {
    fn of(mark: u64, thread: usize, number: u64) -> Transfer {
        let mut rng = Rng::new(mark.wrapping_add(document::id(thread, number) as u64));
        let mut account = || document::counter_id(rng.below(ACCOUNTS) as usize);
        let accounts = [account(), account()];
        Transfer {
            accounts,
            amount: 1 + rng.below(100) as i64,
        }
    }

    /// The amount that it adds to its account in collection `side`.
    fn change(self, side: usize) -> i64 {
        if side == 0 { -self.amount } else { self.amount }
    }

    /// Its account in collection `side`.
    fn account(self, side: usize) -> i64 {
        let [from, to] = self.accounts;
        if side == 0 { from } else { to }
    }

    fn receipt(self, mark: u64, thread: usize, number: u64, side: usize) -> DocBuf {
        doc! {
            "_id": document::id(thread, number), "mark": mark as i64,
            "account": self.account(side), "change": self.change(side),
        }
    }
}

/// Creates both collections with their accounts, all of it durable.
///
/// # Errors
/// The server refuses a write.
pub(crate) fn prepare(server: &Peer, mark: u64) -> Result<()> {
    let mut c = Conn::connect(server)?;
    c.set_timeout(Some(Duration::from_secs(60)))?;
    for collection in COLLECTIONS {
        match c.command(DB, &doc! { "drop": collection }) {
            Err(e) if !e.0.contains("(26 ") => return Err(e),
            _ => {}
        }
        let accounts: ArrayBuf = (0..ACCOUNTS)
            .map(|a| {
                let id = document::counter_id(a as usize);
                doc! { "_id": id, "mark": mark as i64, "balance": START }
            })
            .collect();
        let durable = doc! { "w": "majority", "j": true, "wtimeout": 30_000 };
        c.command(
            DB,
            &doc! { "insert": collection, "documents": accounts, "writeConcern": durable },
        )?;
    }
    Ok(())
}

/// A writer of transactions.
pub(crate) struct Transfers {
    conn: Conn,
    session: Session,
    thread: usize,
    mark: u64,
}

impl Transfers {
    /// Makes writer number `thread` of the round with this mark; its commits have the write
    /// concern.
    ///
    /// # Errors
    /// There is no connection.
    pub(crate) fn new(
        server: &Peer,
        thread: usize,
        mark: u64,
        concern: &Concern,
    ) -> Result<Transfers> {
        let conn = Conn::connect(server)?;
        conn.set_timeout(Some(Duration::from_secs(15)))?;
        Ok(Transfers {
            conn,
            session: Session::new(mark ^ thread as u64).committing(concern.doc.clone()),
            thread,
            mark,
        })
    }

    /// Tries the transaction once. The history gets the number only when the commit is about to be
    /// sent, since a transaction without a commit can leave nothing.
    fn transfer(&mut self, number: u64, history: &mut History) -> std::result::Result<(), Fault> {
        let t = Transfer::of(self.mark, self.thread, number);
        self.session.begin();
        for (side, collection) in COLLECTIONS.into_iter().enumerate() {
            let update = doc! {
                "q": doc! { "_id": t.account(side) },
                "u": doc! { "$inc": doc! { "balance": t.change(side) } },
            };
            let receipt = t.receipt(self.mark, self.thread, number, side);
            for body in [
                doc! { "update": collection, "updates": array![update] },
                doc! { "insert": collection, "documents": array![receipt] },
            ] {
                let mut message = Message::command(DB, &body);
                transaction::call(&mut self.conn, Some(&mut self.session), &mut message)?;
            }
        }
        if history.inserted() < number {
            history.insert(1);
        }
        self.session.commit(&mut self.conn, || ())
    }
}

impl Work for Transfers {
    /// Runs one transaction and repeats it, as drivers do, as long as its failures are transient.
    fn write(&mut self, history: &mut History) -> Result<()> {
        let number = history.inserted() + 1;
        let mut tries = 0;
        loop {
            match self.transfer(number, history) {
                Ok(()) => {
                    history.acknowledge(Instant::now());
                    return Ok(());
                }
                Err(Fault::Refused(r)) if r.transient => {
                    self.session.abort(&mut self.conn)?;
                    tries += 1;
                    // Writers pause for different times, so that those that conflicted do not
                    // conflict again at once.
                    std::thread::sleep(pause(tries.min(5)) / 20 * (1 + self.thread as u32 % 7));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// The content of one collection.
#[derive(Debug, Default)]
struct Side {
    balances: BTreeMap<i64, i64>,
    /// The changes to each account that the receipts add up to.
    changed: BTreeMap<i64, i64>,
    receipts: BTreeSet<(usize, u64)>,
}

/// The content of both collections after the crash.
struct Ledger {
    found: Found,
    mark: u64,
    sides: [Side; 2],
}

impl Ledger {
    fn new(mark: u64, writers: usize) -> Ledger {
        Ledger {
            found: Found::new(mark, writers),
            mark,
            sides: [Side::default(), Side::default()],
        }
    }

    /// Adds a document of collection `side`.
    fn document(&mut self, side: usize, d: Doc<'_>) {
        let int = |name: &str| d.get(name).and_then(|v| v.as_i64_exact());
        let writers = self.found.parts.len();
        let (Some(here), Some(id)) = (self.sides.get_mut(side), int("_id")) else {
            self.found.foreign += 1;
            return self
                .found
                .example(|| format!("a document that nobody sent: {d:?}"));
        };
        if let Some(balance) = int("balance") {
            here.balances.insert(id, balance);
            return;
        }
        let place = document::split(id).filter(|(thread, _)| *thread < writers);
        let Some((thread, number)) = place else {
            self.found.foreign += 1;
            return self
                .found
                .example(|| format!("a document that nobody sent: {d:?}"));
        };
        if !here.receipts.insert((thread, number)) {
            self.found.foreign += 1;
            return self.found.example(|| format!("_id {id} is there twice"));
        }
        let t = Transfer::of(self.mark, thread, number);
        *here.changed.entry(t.account(side)).or_default() += t.change(side);
        if t.receipt(self.mark, thread, number, side).as_bytes() != d.as_bytes() {
            self.found.damaged += 1;
            self.found
                .example(|| format!("receipt {number} of writer {thread} is damaged: {d:?}"));
        }
    }

    /// Ends the documents and returns the transactions that are there. Half a transaction is
    /// damage, and so is a balance that differs from the sum of the receipts.
    fn end(self) -> Found {
        let mut f = self.found;
        let [from, to] = &self.sides;
        for (thread, number) in from.receipts.symmetric_difference(&to.receipts) {
            f.damaged += 1;
            f.example(|| format!("half of transaction {number} of writer {thread} is there"));
        }
        for (thread, number) in from.receipts.union(&to.receipts) {
            if let Some(p) = f.parts.get_mut(*thread) {
                // The set is sorted, so the numbers are too.
                p.numbers.push(*number);
            }
        }
        for (side, collection) in self.sides.iter().zip(COLLECTIONS) {
            for a in 0..ACCOUNTS {
                let id = document::counter_id(a as usize);
                let want = START + side.changed.get(&id).copied().unwrap_or(0);
                let have = side.balances.get(&id).copied();
                if have != Some(want) {
                    f.damaged += 1;
                    f.example(|| {
                        format!(
                            "account {id} of {collection} holds {have:?}, its receipts make {want}"
                        )
                    });
                }
            }
        }
        let sum: i64 = self.sides.iter().flat_map(|s| s.balances.values()).sum();
        if sum != 2 * ACCOUNTS as i64 * START {
            f.damaged += 1;
            f.example(|| format!("all accounts hold {sum}, which is not what they began with"));
        }
        for p in &mut f.parts {
            // This check has no counter; 0 keeps its absence from counting as damage.
            p.counter = Some(0);
        }
        f
    }
}

/// Reads both collections.
///
/// # Errors
/// The server does not answer, or refuses the queries.
pub(crate) fn survey(c: &mut Conn, mark: u64, writers: usize) -> Result<Found> {
    let mut ledger = Ledger::new(mark, writers);
    for (side, collection) in COLLECTIONS.into_iter().enumerate() {
        let scan = doc! { "find": collection, "hint": doc! { "$natural": 1 } };
        found::each(c, collection, scan, |d| ledger.document(side, d))?;
        found::validate(c, collection, &mut ledger.found);
    }
    Ok(ledger.end())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use muniment_load::fake;

    const MARK: u64 = 11;

    /// The state found in two collections that have these transactions of writer 0. `skip` leaves
    /// out one document, given as side and number; `balance` is added to a balance.
    fn ledger(numbers: &[u64], skip: Option<(usize, usize)>, balance: i64) -> Found {
        let mut l = Ledger::new(MARK, 1);
        for side in 0..2 {
            let mut docs = Vec::new();
            let mut balances = [START; ACCOUNTS as usize];
            for n in numbers {
                let t = Transfer::of(MARK, 0, *n);
                let a = document::counter_of(t.account(side)).unwrap();
                balances[a] += t.change(side);
                docs.push(t.receipt(MARK, 0, *n, side));
            }
            balances[3] += balance;
            for (a, b) in balances.iter().enumerate() {
                docs.push(doc! { "_id": document::counter_id(a), "mark": 0i64, "balance": *b });
            }
            for (i, d) in docs.iter().enumerate() {
                if skip != Some((side, i)) {
                    l.document(side, d.as_doc());
                }
            }
        }
        l.end()
    }

    #[test]
    fn whole_transactions_are_numbered() {
        let f = ledger(&[1, 2, 5], None, 0);
        assert_eq!((f.damaged, f.foreign, f.disagreements), (0, 0, 0));
        assert_eq!(f.parts[0].numbers, [1, 2, 5]);
        assert_eq!(f.parts[0].counter, Some(0));
    }

    #[test]
    fn a_half_is_damage() {
        // The receipt in one collection is missing, and the balance there shows it as well.
        let f = ledger(&[1, 2], Some((1, 0)), 0);
        assert_eq!((f.damaged, f.foreign), (2, 0));
        assert!(f.examples[0].contains("half of transaction 1 of writer 0"));
        assert!(f.examples[1].contains("of audit_to holds"));
    }

    #[test]
    fn balances_follow_from_receipts() {
        // One account of each collection is off by one, and so is the sum.
        let f = ledger(&[1, 2], None, 1);
        assert_eq!(f.damaged, 3);
        // An account is missing.
        let f = ledger(&[1], Some((0, 1)), 0);
        assert_eq!(f.damaged, 2);
    }

    #[test]
    fn what_nobody_sent_is_foreign() {
        let mut l = Ledger::new(MARK, 1);
        l.document(0, doc! { "_id": "text" }.as_doc());
        let other = Transfer::of(MARK, 1, 1).receipt(MARK, 1, 1, 0);
        l.document(0, other.as_doc());
        let whole = Transfer::of(MARK, 0, 1).receipt(MARK, 0, 1, 0);
        l.document(0, whole.as_doc());
        l.document(0, whole.as_doc());
        assert_eq!(l.found.foreign, 3);
    }

    #[test]
    fn a_transfer_is_tried_again_and_noted_once() {
        let (address, heard) = fake::server(|n, _| {
            let mut refused = doc! { "ok": 0.0, "errmsg": "no", "code": 112 };
            refused.append("errorLabels", array!["TransientTransactionError"]);
            // The refused commands are the first update and the first commit.
            if n == 0 || n == 6 {
                refused
            } else {
                doc! { "n": 1, "ok": 1.0 }
            }
        });
        let concern = &super::super::concern::parse_list("majority+j:true").unwrap()[0];
        let mut w = Transfers::new(&Peer::open(address), 0, MARK, concern).unwrap();
        let mut h = History::default();
        w.write(&mut h).unwrap();
        assert_eq!((h.inserted(), h.writes.len()), (1, 1));
        assert!(h.writes[0].acknowledged.is_some());
        let sent: Vec<(String, i64)> = heard
            .all()
            .iter()
            .map(|d| {
                let d = d.as_doc();
                let number = d.get("txnNumber").and_then(|n| n.as_i64_exact());
                (d.first().unwrap().name().to_string(), number.unwrap())
            })
            .collect();
        let whole = ["update", "insert", "update", "insert", "commitTransaction"];
        let mut want = vec![("update".to_string(), 1), ("abortTransaction".into(), 1)];
        want.extend(whole.map(|c| (c.to_string(), 2)));
        want.extend(whole.map(|c| (c.to_string(), 3)));
        assert_eq!(sent, want);
        let commit = heard.all()[6].clone();
        let c = commit.as_doc().get_doc("writeConcern").unwrap();
        assert!(c.get("j").is_some_and(|j| j.truthy()));
    }
}
