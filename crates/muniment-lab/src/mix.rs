//! A mix of everything that takes a server's memory, at once: large inserts with many index keys,
//! open transactions, sorts and groups, clients that do not read, sessions, a change stream over
//! large transactions, messages that stop in the middle, and an ordinary load alongside.
//!
//! A refused command is counted and is not a failure, since refusing is how a server keeps its
//! memory. A connection that the server closes is opened again.

use crate::linkbench::transaction::Session;
use muniment_load::access::Peer;
use muniment_load::conn::{Conn, Message, number_at};
use muniment_load::fail::Result;
use muniment_load::rng::Rng;
use muniment_load::stop;
use muniment_value::{ArrayBuf, DocBuf, array, doc};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The database in which the mix works.
const DB: &str = "mix";
/// A client that waits longer than this for a reply gives the command up and closes its connection.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of documents in the collection that is read, and the bytes of each.
const READ: usize = 40_000;
const BYTES: usize = 1000;

/// The counts of one kind of client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// Commands that succeeded.
    pub done: u64,
    /// Commands that the server refused.
    pub refused: u64,
    /// Connections that the server closed, or on which the client gave up.
    pub closed: u64,
}

/// The counts of all clients, by kind.
pub type Tally = BTreeMap<&'static str, Done>;

/// The number of clients of each kind that run at once.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The clients of each of these kinds: inserts, sorts, transactions and the ordinary load.
    pub workers: usize,
    /// The transactions that each transaction client keeps open.
    pub transactions: usize,
    /// Clients that send requests and do not read the replies.
    pub slow: usize,
    /// Clients that begin a message and stop in the middle.
    pub partial: usize,
}

struct Mix<'m> {
    address: &'m str,
    until: Instant,
    tally: Mutex<Tally>,
}

/// Runs the mix for `time` on the server at `address`.
///
/// # Errors
/// The mix's data could not be loaded.
pub fn run(address: &str, size: Size, time: Duration) -> Result<Tally> {
    load(address)?;
    let mix = Mix {
        address,
        until: Instant::now() + time,
        tally: Mutex::default(),
    };
    std::thread::scope(|scope| {
        let mix = &mix;
        for n in 0..size.workers as u64 {
            scope.spawn(move || mix.client("multikey inserts", n, large));
            scope.spawn(move || mix.client("sorts and groups", n, sorts));
            scope.spawn(move || mix.client("ordinary load", n, ordinary));
            scope.spawn(move || {
                mix.client("open transactions", n, |c, rng| {
                    transactions(c, rng, size.transactions)
                })
            });
        }
        scope.spawn(move || mix.client("sessions", 0, sessions));
        scope.spawn(move || mix.client("large transactions", 0, large_transaction));
        scope.spawn(move || mix.client("change streams", 0, stream));
        scope.spawn(move || mix.sockets("slow readers", size.slow, &slow_reader()));
        scope.spawn(move || mix.sockets("partial messages", size.partial, &partial()));
    });
    Ok(mix.tally.into_inner().unwrap_or_default())
}

fn load(address: &str) -> Result<()> {
    let mut c = Conn::connect(&Peer::open(address))?;
    let indexes = array![doc! { "key": doc! { "a": 1 }, "name": "a_1" }];
    c.command(DB, &doc! { "createIndexes": "keys", "indexes": indexes })?;
    for name in ["stream", "held", "points", "sessions"] {
        c.command(DB, &doc! { "create": name })?;
    }
    let text = "x".repeat(BYTES);
    for from in (0..READ).step_by(1000) {
        let one = |i: usize| doc! { "_id": i as i64, "k": (i * 7919 % READ) as i64, "text": text.as_str() };
        let docs: ArrayBuf = (from..from + 1000).map(one).collect();
        c.command(DB, &doc! { "insert": "read", "documents": docs })?;
    }
    let one = array![doc! { "_id": 1, "n": 0, "text": "x".repeat(3900) }];
    c.command(DB, &doc! { "insert": "sessions", "documents": one })?;
    Ok(())
}

impl Mix<'_> {
    fn goes_on(&self) -> bool {
        Instant::now() < self.until && !stop::asked()
    }

    fn count(&self, kind: &'static str, f: impl FnOnce(&mut Done)) {
        if let Ok(mut tally) = self.tally.lock() {
            f(tally.entry(kind).or_default());
        }
    }

    /// Starts a client that repeats its commands until the time is over.
    fn client(
        &self,
        kind: &'static str,
        seed: u64,
        turn: impl Fn(&mut Client<'_>, &mut Rng) -> Result<()>,
    ) {
        let mut rng = Rng::new(seed + 1);
        while self.goes_on() {
            let connected = Conn::connect(&Peer::open(self.address)).and_then(|c| {
                c.set_timeout(Some(PATIENCE))?;
                Ok(c)
            });
            let Ok(conn) = connected else {
                self.count(kind, |d| d.closed += 1);
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            let mut client = Client {
                mix: self,
                kind,
                conn,
            };
            while self.goes_on() {
                if turn(&mut client, &mut rng).is_err() {
                    self.count(kind, |d| d.closed += 1);
                    break;
                }
            }
        }
    }

    /// Opens connections that send `bytes` and then nothing more; a connection that the server
    /// closes is opened again.
    fn sockets(&self, kind: &'static str, n: usize, bytes: &[u8]) {
        let mut open: Vec<TcpStream> = Vec::new();
        while self.goes_on() {
            open.retain(|s| {
                let ended = s.set_nonblocking(true).is_err()
                    || matches!(s.peek(&mut [0]), Ok(0))
                    || s.take_error().is_ok_and(|e| e.is_some());
                if ended {
                    self.count(kind, |d| d.closed += 1);
                }
                !ended
            });
            while open.len() < n && self.goes_on() {
                let sent = TcpStream::connect(self.address).and_then(|mut s| {
                    s.set_write_timeout(Some(Duration::from_millis(200)))?;
                    // A partial write is enough, because the server stops reading until it has
                    // room.
                    let _ = s.write_all(bytes);
                    Ok(s)
                });
                let Ok(s) = sent else { break };
                self.count(kind, |d| d.done += 1);
                open.push(s);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

struct Client<'c> {
    mix: &'c Mix<'c>,
    kind: &'static str,
    conn: Conn,
}

impl Client<'_> {
    /// Sends a command; `None` if the server refused it.
    fn call(&mut self, db: &str, body: &DocBuf) -> Result<Option<DocBuf>> {
        let reply = self.conn.call(&mut Message::command(db, body))?;
        let ok = number_at(reply, "ok") == Some(1.0) && reply.get("writeErrors").is_none();
        let reply = ok.then(|| reply.to_buf());
        self.mix.count(self.kind, |d| match ok {
            true => d.done += 1,
            false => d.refused += 1,
        });
        Ok(reply)
    }
}

fn numbers(rng: &mut Rng, n: usize) -> ArrayBuf {
    (0..n).map(|_| rng.next_u64() as i64).collect()
}

fn large(c: &mut Client<'_>, rng: &mut Rng) -> Result<()> {
    let docs: ArrayBuf = (0..4).map(|_| doc! { "a": numbers(rng, 50_000) }).collect();
    c.call(DB, &doc! { "insert": "keys", "documents": docs })?;
    c.call(
        DB,
        &doc! { "delete": "keys", "deletes": array![doc! { "q": doc! {}, "limit": 1 }] },
    )?;
    Ok(())
}

fn sorts(c: &mut Client<'_>, _: &mut Rng) -> Result<()> {
    let group = doc! { "_id": doc! { "$mod": array!["$k", 10] }, "all": doc! { "$push": "$text" } };
    let pipelines = [
        array![
            doc! { "$sort": doc! { "k": 1 } },
            doc! { "$group": group },
            doc! { "$project": doc! { "n": doc! { "$size": "$all" } } },
        ],
        array![
            doc! { "$sort": doc! { "text": 1, "k": -1 } },
            doc! { "$limit": 30_000 }
        ],
    ];
    for pipeline in pipelines {
        let cursor = doc! { "batchSize": 10 };
        let body = doc! { "aggregate": "read", "pipeline": pipeline, "cursor": cursor };
        c.call(DB, &body)?;
    }
    Ok(())
}

fn ordinary(c: &mut Client<'_>, rng: &mut Rng) -> Result<()> {
    let id = rng.below(20_000) as i64;
    let set = doc! { "$set": doc! { "n": rng.next_u64() as i64, "text": "y".repeat(500) } };
    let update = doc! { "q": doc! { "_id": id }, "u": set, "upsert": true };
    c.call(DB, &doc! { "update": "points", "updates": array![update] })?;
    let id = rng.below(READ as u64) as i64;
    c.call(DB, &doc! { "find": "read", "filter": doc! { "_id": id } })?;
    Ok(())
}

/// The documents of one transaction, some 100 KB.
fn batch(rng: &mut Rng) -> ArrayBuf {
    let text = "z".repeat(BYTES);
    let one = |_| doc! { "n": rng.next_u64() as i64, "text": text.as_str() };
    (0..100).map(one).collect()
}

fn in_transaction(mut body: DocBuf, session: &Session, first: bool) -> DocBuf {
    body.append("lsid", session.lsid())
        .append("txnNumber", 1_i64);
    if first {
        body.append("startTransaction", true);
    }
    body.append("autocommit", false);
    body
}

fn transactions(c: &mut Client<'_>, rng: &mut Rng, n: usize) -> Result<()> {
    let sessions: Vec<Session> = (0..n).map(|_| Session::new(rng.next_u64())).collect();
    for session in &sessions {
        for part in 0..5 {
            let body = doc! { "insert": "held", "documents": batch(rng) };
            if c.call(DB, &in_transaction(body, session, part == 0))?
                .is_none()
            {
                break;
            }
        }
    }
    for session in &sessions {
        let end = in_transaction(doc! { "abortTransaction": 1 }, session, false);
        c.call("admin", &end)?;
    }
    Ok(())
}

fn large_transaction(c: &mut Client<'_>, rng: &mut Rng) -> Result<()> {
    let session = Session::new(rng.next_u64());
    for part in 0..100 {
        let body = doc! { "insert": "stream", "documents": batch(rng) };
        if c.call(DB, &in_transaction(body, &session, part == 0))?
            .is_none()
        {
            return Ok(());
        }
    }
    let end = in_transaction(doc! { "commitTransaction": 1 }, &session, false);
    c.call("admin", &end)?;
    Ok(())
}

fn stream(c: &mut Client<'_>, _: &mut Rng) -> Result<()> {
    let pipeline = array![doc! { "$changeStream": doc! {} }];
    let body = doc! { "aggregate": "stream", "pipeline": pipeline, "cursor": doc! {} };
    let Some(opened) = c.call(DB, &body)? else {
        return Ok(());
    };
    let cursor = opened.as_doc().get_doc("cursor");
    let Some(id) = cursor.and_then(|d| d.get("id")) else {
        return Ok(());
    };
    while c.mix.goes_on() {
        let mut more = DocBuf::new();
        more.append("getMore", id).append("collection", "stream");
        more.append("maxTimeMS", 500);
        if c.call(DB, &more)?.is_none() {
            break;
        }
    }
    Ok(())
}

fn sessions(c: &mut Client<'_>, rng: &mut Rng) -> Result<()> {
    let session = Session::new(rng.next_u64());
    let body = doc! {
        "findAndModify": "sessions", "query": doc! { "_id": 1 },
        "update": doc! { "$inc": doc! { "n": 1 } }, "lsid": session.lsid(), "txnNumber": 1_i64,
    };
    c.call(DB, &body)?;
    Ok(())
}

/// A find whose batch has 16 MB.
fn slow_reader() -> Vec<u8> {
    Message::command(DB, &doc! { "find": "read", "batchSize": 100_000 }).0
}

/// The beginning of a message that claims to have 40 MB.
fn partial() -> Vec<u8> {
    let whole = Message::command(DB, &doc! { "ping": 1, "x": "x".repeat(3 << 20) });
    let mut bytes = whole.0;
    if let Some(len) = bytes.first_chunk_mut::<4>() {
        *len = 40_000_000_u32.to_le_bytes();
    }
    bytes
}

/// Renders the counts in one line.
pub fn describe(tally: &Tally) -> String {
    let one = |(kind, d): (&&str, &Done)| {
        format!(
            "{kind}: {} done, {} refused, {} closed",
            d.done, d.refused, d.closed
        )
    };
    tally.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_partial_message_claims_more_than_it_has() {
        let bytes = partial();
        let claimed = u32::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
        assert_eq!(claimed, 40_000_000);
        assert!(bytes.len() > 3 << 20 && bytes.len() < claimed);
    }

    #[test]
    fn what_is_told_names_every_kind() {
        let mut tally = Tally::default();
        tally.entry("sessions").or_default().done = 3;
        tally.entry("slow readers").or_default().closed = 2;
        let text = describe(&tally);
        assert!(
            text.contains("sessions: 3 done") && text.contains("2 closed"),
            "{text}"
        );
    }
}
