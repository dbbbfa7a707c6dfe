//! Clients that send everything again until they know the outcome: retryable writes, and transactions over
//! two collections.
//!
//! A client remembers its operations from the last one that is known to be on the disk, and sends them all
//! again, in order, whenever it has lost the server. The replies must then be consistent:
//!
//! - an operation that was acknowledged as journaled has happened, and a retry returns the first result;
//! - an operation that was acknowledged without the journal has happened, or a power cut has undone it: then
//!   a retry does it, once, and a transaction is undone as a whole;
//! - a session that knows of a later operation (225 TransactionTooOld) has kept all earlier ones.

use crate::follower::Told;
use crate::session::{Session, code_of};
use crate::{DB, Rng};
use muniment_value::{ArrayBuf, Code, DocBuf, array, doc, number};
use muniment_wire::Connection;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The number of counters that all clients share.
const COUNTERS: i64 = 6;

/// The effects of operations that a client knows to be done.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The sum that was added to `n` of the counters.
    pub added: i64,
    /// The documents that were inserted into `rows`.
    pub rows: i64,
    /// The transactions. Each adds 1 to `t` of two counters, and a document to `moves`.
    pub moved: i64,
}

/// How a client writes.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// How many of a hundred operations ask for the journal.
    pub journaled_percent: u64,
    /// Whether other acknowledged operations may be lost.
    pub may_lose: bool,
}

/// The write concern of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Concern {
    /// The default.
    Plain,
    /// The journal.
    Journaled,
    /// "majority", which means the same on a set of one member.
    Majority,
}

impl Concern {
    fn of(self, command: &DocBuf) -> DocBuf {
        let mut d = command.clone();
        let concern = match self {
            Concern::Plain => doc! { "w": 1 },
            Concern::Journaled => doc! { "w": 1, "j": true },
            Concern::Majority => doc! { "w": "majority" },
        };
        d.append("writeConcern", concern);
        d
    }
}

enum Kind {
    Added(i64),
    Returned,
    Rows(i64),
    Committed,
}

struct Operation {
    kind: Kind,
    command: DocBuf,
    concern: Concern,
    answered: bool,
    /// Set when the client was told that the operation is on the disk.
    durable: bool,
    /// The operation's result.
    value: Option<Vec<u8>>,
}

/// The outcome of an operation that was sent.
enum Said {
    Done {
        /// Set if all of it had been done before.
        again: bool,
        value: Option<Vec<u8>>,
    },
    /// The session knows of a later operation.
    Older,
    /// The transaction does not exist.
    Gone,
}

/// A client with a memory.
pub struct Client<'a> {
    session: Session<'a>,
    manner: Manner,
    name: u8,
    serial: i64,
    rng: Rng,
    /// The last operation that is known to be on the disk, and all later ones.
    pending: Vec<Operation>,
    /// Set if the server was lost after the pending operations were answered.
    lost_server: bool,
    /// The known effects.
    pub tally: Tally,
    /// How many operations were sent again.
    pub again: u64,
    /// How many acknowledged operations were lost, where that is allowed.
    pub lost: u64,
}

impl<'a> Client<'a> {
    /// The client with the number `name`.
    pub fn new(session: Session<'a>, name: u8, rng: Rng, manner: Manner) -> Client<'a> {
        Client {
            session,
            manner,
            name,
            serial: 0,
            rng,
            pending: Vec::new(),
            lost_server: false,
            tally: Tally::default(),
            again: 0,
            lost: 0,
        }
    }

    /// Executes one operation until its outcome is known.
    ///
    /// # Panics
    /// If a reply is wrong.
    pub fn operate(&mut self) {
        self.settle_lost();
        self.session.begin();
        self.serial += 1;
        let id = format!("{:02x}-{}", self.name, self.serial);
        let counter = self.rng.below(COUNTERS as u64) as i64;
        match self.rng.below(4) {
            0 => {
                let count = 1 + self.rng.below(3) as i64;
                let one = |i: i64| {
                    let id = (counter + i) % COUNTERS;
                    doc! { "q": doc! { "_id": id }, "u": doc! { "$inc": doc! { "n": 1_i64 } } }
                };
                let updates: ArrayBuf = (0..count).map(one).collect();
                let update = doc! { "update": "counters", "updates": updates };
                self.write(Kind::Added(count), &update);
            }
            1 => {
                let command = doc! {
                    "findAndModify": "counters", "query": doc! { "_id": counter }, "new": true,
                    "update": doc! { "$inc": doc! { "n": 1_i64 } },
                };
                self.write(Kind::Returned, &command);
                // If the command is sent again, it returns the same document, and is on the disk if that is
                // asked for now.
                let concern = self.concern();
                let command = self.session.retryable(&concern.of(&command));
                if let Some(last) = self.pending.last_mut() {
                    (last.command, last.concern) = (command, concern);
                    self.settle(false);
                }
            }
            2 => {
                let ids = ["a", "b"].map(|part| doc! { "_id": format!("{id}-{part}") });
                let rows: ArrayBuf = ids.iter().map(DocBuf::as_doc).collect();
                self.write(Kind::Rows(2), &doc! { "insert": "rows", "documents": rows });
            }
            _ => self.transaction(&id, counter),
        }
    }

    /// Finds out which pending operations a lost server has kept.
    ///
    /// # Panics
    /// As for [`Client::operate`].
    pub fn settle_lost(&mut self) {
        if self.lost_server {
            self.settle(true);
        }
    }

    fn concern(&mut self) -> Concern {
        let journaled = self.rng.below(100) < self.manner.journaled_percent;
        match (journaled, self.rng.below(2)) {
            (false, _) => Concern::Plain,
            (true, 0) => Concern::Journaled,
            (true, _) => Concern::Majority,
        }
    }

    fn write(&mut self, kind: Kind, command: &DocBuf) {
        let concern = self.concern();
        let command = self.session.retryable(&concern.of(command));
        self.push(kind, command, concern);
    }

    fn push(&mut self, kind: Kind, command: DocBuf, concern: Concern) {
        self.pending.push(Operation {
            kind,
            command,
            concern,
            answered: false,
            durable: false,
            value: None,
        });
        self.settle(false);
    }

    /// Executes a transaction. A conflict, or a crash before the commit, aborts it.
    fn transaction(&mut self, id: &str, counter: i64) {
        let other = (counter + 1) % COUNTERS;
        let update = |id: i64| {
            let one = doc! { "q": doc! { "_id": id }, "u": doc! { "$inc": doc! { "t": 1_i64 } } };
            doc! { "update": "counters", "updates": array![one] }
        };
        let moved = doc! { "_id": id, "of": array![counter, other] };
        let steps = [
            update(counter),
            doc! { "insert": "moves", "documents": array![moved] },
            update(other),
        ];
        for (i, step) in steps.iter().enumerate() {
            let command = self.session.in_transaction(step, i == 0);
            // The transaction is lost together with the server.
            let Some(reply) = self.session.send(DB, &command) else {
                self.lost_server = true;
                return;
            };
            match code_of(&reply) {
                None => {}
                Some(Code::WriteConflict | Code::NoSuchTransaction) => return,
                Some(_) => panic!("{reply:?}"),
            }
        }
        let concern = self.concern();
        let commit = concern.of(&doc! { "commitTransaction": 1 });
        let commit = self.session.in_transaction(&commit, false);
        self.push(Kind::Committed, commit, concern);
    }

    /// Sends the last operation until it is answered; whenever the server was lost, all pending operations.
    fn settle(&mut self, mut all: bool) {
        'again: loop {
            let mut at = if all { 0 } else { self.pending.len() - 1 };
            while let Some(operation) = self.pending.get(at) {
                let db = match operation.kind {
                    Kind::Committed => "admin",
                    _ => DB,
                };
                let command = operation.command.clone();
                let again = operation.answered || all;
                let Some(reply) = self.session.send(db, &command) else {
                    (self.lost_server, all) = (true, true);
                    continue 'again;
                };
                self.again += u64::from(again);
                let said = read(&operation.kind, &reply);
                at += usize::from(self.judge(at, said, &reply, all));
            }
            break;
        }
        self.lost_server = false;
        // The log has one order, so everything before a durable operation is durable, too.
        if let Some(last) = self.pending.iter().rposition(|o| o.durable) {
            self.pending.drain(..last);
        }
    }

    /// Checks a reply; `after` tells whether the server was lost before. False if the operation must not be
    /// sent again.
    fn judge(&mut self, at: usize, said: Said, reply: &DocBuf, after: bool) -> bool {
        let is_last = at + 1 == self.pending.len();
        let may_lose = self.manner.may_lose && after;
        let o = &mut self.pending[at];
        let may_lose = may_lose && !o.durable;
        match said {
            Said::Older => assert!(o.answered && !is_last, "{reply:?} to {:?}", o.command),
            Said::Gone => {
                assert!(!o.answered || may_lose, "lost: {:?}: {reply:?}", o.command);
                if o.answered {
                    self.lost += 1;
                    self.tally.moved -= 1;
                }
                self.pending.remove(at);
                return false;
            }
            Said::Done { again, value } => {
                if o.answered && again {
                    assert_eq!(o.value, value, "another result: {reply:?}");
                } else if o.answered {
                    assert!(may_lose, "lost: {:?}: {reply:?}", o.command);
                    self.lost += 1;
                } else {
                    match o.kind {
                        Kind::Added(n) => self.tally.added += n,
                        Kind::Returned => self.tally.added += 1,
                        Kind::Rows(n) => self.tally.rows += n,
                        Kind::Committed => self.tally.moved += 1,
                    }
                }
                (o.answered, o.value) = (true, value);
                o.durable |= o.concern != Concern::Plain;
            }
        }
        true
    }
}

/// The outcome in a reply.
fn read(kind: &Kind, reply: &DocBuf) -> Said {
    match code_of(reply) {
        Some(Code::TransactionTooOld) => return Said::Older,
        Some(Code::NoSuchTransaction) if matches!(kind, Kind::Committed) => return Said::Gone,
        _ => {}
    }
    let r = reply.as_doc();
    assert!(r.get("ok").is_some_and(|v| v.truthy()), "{reply:?}");
    for field in ["writeErrors", "writeConcernError"] {
        assert!(r.get(field).is_none(), "{reply:?}");
    }
    let n = r.get("n").and_then(number::to_i64_exact);
    let retried = r.get_array("retriedStmtIds").map_or(0, |a| a.count()) as i64;
    match kind {
        Kind::Added(count) | Kind::Rows(count) => {
            assert_eq!(n, Some(*count), "{reply:?}");
            Said::Done {
                again: retried == *count,
                value: None,
            }
        }
        Kind::Returned => Said::Done {
            again: r.get("retriedStmtId").is_some(),
            value: r.get_doc("value").map(|d| d.as_bytes().to_vec()),
        },
        // The reply does not tell whether this attempt has committed it.
        Kind::Committed => Said::Done {
            again: true,
            value: None,
        },
    }
}

/// Makes the collections.
///
/// # Panics
/// If that fails.
pub fn prepare(c: &mut Connection) {
    let images = doc! { "enabled": true };
    c.command(
        DB,
        &doc! { "create": "counters", "changeStreamPreAndPostImages": images },
    )
    .unwrap();
    let one = |id: i64| doc! { "_id": id, "n": 0_i64, "t": 0_i64 };
    let counters: ArrayBuf = (0..COUNTERS).map(one).collect();
    let spec = doc! { "key": doc! { "t": 1 }, "name": "t" };
    for command in [
        doc! { "insert": "counters", "documents": counters },
        doc! { "createIndexes": "counters", "indexes": array![spec] },
        doc! { "create": "moves" },
        Concern::Journaled.of(&doc! { "create": "rows" }),
    ] {
        c.command(DB, &command).unwrap();
    }
}

/// The stored data. Every transaction in it must be complete.
///
/// # Panics
/// If one is not.
pub fn stored(c: &mut Connection) -> Tally {
    let mut moves: BTreeMap<i64, i64> = BTreeMap::new();
    let mut tally = Tally::default();
    for d in c.find_all(DB, &doc! { "find": "moves" }).unwrap() {
        tally.moved += 1;
        let of = d.as_doc().get_array("of").unwrap();
        for counter in of.values().filter_map(number::to_i64_exact) {
            *moves.entry(counter).or_default() += 1;
        }
    }
    for (id, counter) in counters(c) {
        let int = |field: &str| counter.as_doc().get(field).and_then(number::to_i64_exact);
        tally.added += int("n").unwrap();
        let moved = moves.get(&id).copied().unwrap_or(0);
        assert_eq!(
            int("t"),
            Some(moved),
            "half a transaction: counter {id} and its moves"
        );
    }
    tally.rows = c.find_all(DB, &doc! { "find": "rows" }).unwrap().len() as i64;
    tally
}

/// The counters.
///
/// # Panics
/// If they cannot be read.
pub fn counters(c: &mut Connection) -> BTreeMap<i64, DocBuf> {
    let find = doc! { "find": "counters", "filter": doc! { "_id": doc! { "$type": "number" } } };
    let all = c.find_all(DB, &find).unwrap();
    let one = |d: DocBuf| {
        let id = d.as_doc().get("_id").and_then(|v| v.as_i64_exact());
        (id.unwrap(), d)
    };
    all.into_iter().map(one).collect()
}

/// Waits until the clients have done so many more operations that some of each kind have been done whole, however busy
/// the machine is. `done` counts them.
///
/// # Panics
/// If they do nothing for a minute.
pub fn until_enough(done: &AtomicU64) {
    let wanted = done.load(SeqCst) + 60;
    let until = Instant::now() + Duration::from_secs(60);
    while done.load(SeqCst) < wanted {
        assert!(Instant::now() < until, "the clients do nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Checks that the server has everything that the clients know to be done, that a stream has returned all of
/// it, and that every collection is valid.
///
/// # Panics
/// If a check fails.
pub fn check(c: &mut Connection, tallies: &[Tally], told: &Told) {
    let mut all = Tally::default();
    for t in tallies {
        all.added += t.added;
        all.rows += t.rows;
        all.moved += t.moved;
    }
    assert_eq!(stored(c), all);
    assert_eq!(told.counters, counters(c));
    let told = (told.rows.len() as i64, told.moves.len() as i64);
    assert_eq!(told, (all.rows, all.moved));
    for name in ["counters", "rows", "moves"] {
        crate::wire::sound(c, DB, name);
    }
    assert!(
        all.moved > 0 && all.added > 0,
        "the load hardly ran: {all:?}"
    );
}
