//! The worker of a phase: chooses an operation by weight, encodes it before the clock starts, sends
//! it, and reads the answer to its end.

use super::draw::Weighted;
use super::encode::{Encoder, Env, Hand};
use super::operation::{Kind, Operation};
use super::plan::{Phase, Plan};
use super::run::Ready;
use super::template::Node;
use muniment_load::conn::{Conn, InsertTemplate, Message, check, number_at};
use muniment_load::fail::{Failure, Result};
use muniment_load::load::{self, Divided};
use muniment_load::meter::Meter;
use muniment_value::{Doc, DocBuf, doc};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

enum Encoded {
    /// A command whose body is complete.
    Body(Encoder),
    /// The constant part of an insert, and the encoder of its documents.
    Insert(InsertTemplate, Encoder),
}

struct Op {
    name: &'static str,
    failed: &'static str,
    kind: Kind,
    batch: u64,
    silent: bool,
    /// Its answer is one message.
    single: bool,
    errors_count: bool,
    database: String,
    encoded: Encoded,
}

impl Op {
    fn new(o: &Operation, plan: &Plan, ready: &Ready, phase: &Phase) -> Result<Op> {
        let name = format!("{}/{}", phase.name, o.name);
        let env = Env::new(&ready.sequences, &ready.shared, &o.shape, &name);
        let database = o.database.clone().unwrap_or_else(|| plan.database.clone());
        let silent = o.silent();
        let mut tail = o.tail(&plan.database);
        let mut fields = o.body.clone();
        let encoded = match &o.document {
            Some(document) => {
                // The insert template appends the database itself.
                tail.pop();
                fields.extend(tail);
                let body = Node::Document(fields).constant();
                let body = body.ok_or_else(|| Failure(format!("{name}: it is not constant")))?;
                let template = Message::insert_command(&database, body, silent);
                Encoded::Insert(template, Encoder::new(document, &env)?)
            }
            None => {
                fields.extend(tail);
                Encoded::Body(Encoder::new(&Node::Document(fields), &env)?)
            }
        };
        Ok(Op {
            name: o.name,
            failed: o.failed,
            kind: o.kind,
            batch: o.batch,
            silent,
            single: !silent && is_single(o),
            errors_count: o.errors_count,
            database,
            encoded,
        })
    }
}

/// Whether the answer to an operation is always one message. The first batch of a find has up to 101 documents.
fn is_single(o: &Operation) -> bool {
    let field = |name: &str| o.body.iter().find(|(key, _)| key == name);
    let limit = || {
        let limit = Node::Document(vec![field("limit")?.clone()]).constant()?;
        number_at(limit.as_doc(), "limit")
    };
    match o.kind {
        Kind::Insert | Kind::InsertMany | Kind::Update | Kind::Delete | Kind::FindAndModify => true,
        Kind::Find if field("batchSize").is_some() => false,
        Kind::Find => limit().is_some_and(|n| n != 0.0 && n.abs() <= 101.0),
        Kind::Aggregate | Kind::Command => false,
    }
}

/// The work of one connection.
pub(crate) struct Worker {
    conn: Conn,
    ops: Vec<Op>,
    weights: Weighted,
    hand: Hand,
    message: Message,
    /// The message that asks for further batches of a cursor.
    more: Message,
    current: usize,
    documents: u64,
    /// When the message was sent.
    start: Instant,
    /// In a load phase, the number of documents that no worker has begun yet.
    left: Option<Arc<AtomicU64>>,
    unanswered: bool,
    first_error: Arc<OnceLock<String>>,
}

impl Worker {
    /// Makes a worker of `phase`.
    ///
    /// # Errors
    /// A generator cannot start.
    pub(crate) fn new(
        conn: Conn,
        plan: &Plan,
        phase: &Phase,
        ready: &Ready,
        seed: u64,
        left: Option<Arc<AtomicU64>>,
        first_error: &Arc<OnceLock<String>>,
    ) -> Result<Worker> {
        let weights: Vec<f64> = phase.work.iter().map(|o| o.weight).collect();
        let ops = phase.work.iter().map(|o| Op::new(o, plan, ready, phase));
        Ok(Worker {
            conn,
            ops: ops.collect::<Result<_>>()?,
            weights: Weighted::new(&weights),
            hand: Hand::new(seed, &ready.sequences),
            message: Message(Vec::new()),
            more: Message(Vec::new()),
            current: 0,
            documents: 0,
            start: Instant::now(),
            left,
            unanswered: false,
            first_error: first_error.clone(),
        })
    }

    /// The number of documents for the next message, which is less than a batch at the end of a
    /// load.
    fn share(&self, batch: u64) -> u64 {
        let Some(left) = &self.left else { return batch };
        let mut mine = 0;
        // The closure always returns `Some`, so the update cannot fail.
        let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            mine = n.min(batch);
            Some(n - mine)
        });
        mine
    }
}

impl load::Worker for Worker {
    fn prepare(&mut self) -> bool {
        self.hand.acknowledge();
        self.current = self.weights.draw(&mut self.hand.rng);
        let Some(batch) = self.ops.get(self.current).map(|o| o.batch) else {
            return false;
        };
        self.documents = self.share(batch);
        if self.documents == 0 {
            return false;
        }
        let Some(op) = self.ops.get_mut(self.current) else {
            return false;
        };
        match &mut op.encoded {
            Encoded::Body(encoder) => {
                self.hand.next_document();
                self.message.begin(op.silent);
                encoder.write(&mut self.hand, &mut self.message.0);
                self.message.seal();
            }
            Encoded::Insert(template, document) => {
                template.begin(&mut self.message);
                for _ in 0..self.documents {
                    self.hand.next_document();
                    document.write(&mut self.hand, &mut self.message.0);
                }
                template.seal(&mut self.message);
            }
        }
        true
    }

    fn operate(&mut self, meter: &mut Meter) -> Result<u64> {
        self.send(meter)?;
        match self.ops.get(self.current) {
            Some(op) if op.silent => {
                self.unanswered = true;
                meter.record(op.name, self.start);
                meter.status(op.name, "sent");
                Ok(self.documents)
            }
            _ => self.receive(meter),
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.hand.acknowledge();
        if self.unanswered {
            // A server handles the commands of one connection in order, so this reply shows that
            // the unacknowledged writes before it have all been applied.
            self.conn.command("admin", &doc! { "ping": 1 })?;
        }
        Ok(())
    }

    fn divided(&mut self) -> Option<&mut dyn Divided> {
        match self.ops.iter().all(|o| o.single) {
            true => Some(self),
            false => None,
        }
    }
}

impl Divided for Worker {
    fn socket(&self) -> BorrowedFd<'_> {
        self.conn.socket()
    }

    fn send(&mut self, meter: &mut Meter) -> Result<()> {
        let Some(op) = self.ops.get(self.current) else {
            return Err(Failure::new("a phase without operations"));
        };
        if op.kind.writes() {
            meter.payload(self.message.0.len());
        }
        self.start = Instant::now();
        self.conn.send(&mut self.message)
    }

    fn receive(&mut self, meter: &mut Meter) -> Result<u64> {
        let start = self.start;
        let Some(op) = self.ops.get(self.current) else {
            return Err(Failure::new("a phase without operations"));
        };
        let answer = answer(&mut self.conn, &mut self.more, op, self.documents)?;
        match answer {
            Ok(n) => {
                meter.record(op.name, start);
                meter.status(op.name, if n == 0 { "nothing" } else { "ok" });
                Ok(n)
            }
            Err(e) if op.errors_count => {
                // Only the first error is kept; setting it again fails and is ignored.
                let _ = self.first_error.set(format!("{}: {e}", op.name));
                meter.record(op.failed, start);
                meter.status(op.failed, "error");
                Ok(0)
            }
            Err(e) => Err(e.while_doing(op.name)),
        }
    }
}

/// Reads the answer of an operation to its end: the number of documents that it concerned, or the
/// server's error.
fn answer(conn: &mut Conn, more: &mut Message, op: &Op, sent: u64) -> Result<Result<u64>> {
    let reply = conn.receive()?;
    if let Err(e) = check(reply) {
        return Ok(Err(e));
    }
    let n = |reply: Doc<'_>| number_at(reply, "n").unwrap_or(0.0) as u64;
    match op.kind {
        Kind::Insert | Kind::InsertMany => return Ok(Ok(sent)),
        Kind::Update | Kind::Delete => return Ok(Ok(n(reply))),
        Kind::FindAndModify => {
            let found = reply.get_doc("lastErrorObject").map_or(0, n);
            return Ok(Ok(found));
        }
        Kind::Aggregate | Kind::Command | Kind::Find => {}
    }
    let Some(cursor) = reply.get_doc("cursor") else {
        return Ok(Ok(1));
    };
    let mut documents = batch(cursor, "firstBatch");
    let mut id = number(cursor);
    if id == 0 {
        return Ok(Ok(documents));
    }
    let ns = cursor.get_str("ns").unwrap_or_default();
    let collection = ns.split_once('.').map_or(ns, |(_, c)| c).to_string();
    while id != 0 {
        let mut body = DocBuf::new();
        body.append("getMore", id)
            .append("collection", collection.as_str());
        *more = Message::command(&op.database, &body);
        let reply = conn.call(more)?;
        if let Err(e) = check(reply) {
            return Ok(Err(e));
        }
        let Some(cursor) = reply.get_doc("cursor") else {
            break;
        };
        documents += batch(cursor, "nextBatch");
        id = number(cursor);
    }
    Ok(Ok(documents))
}

fn batch(cursor: Doc<'_>, name: &str) -> u64 {
    cursor.get_array(name).map_or(0, |b| b.count() as u64)
}

fn number(cursor: Doc<'_>) -> i64 {
    cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap_or(0)
}
