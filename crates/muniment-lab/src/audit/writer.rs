//! The writers: each sends its next write as soon as the last one is answered, remembers all of
//! them, and ends when the server does.

use super::concern::Concern;
use super::document::{self, COLLECTION};
use super::history::History;
use crate::lab::DB;
use muniment_load::access::Peer;
use muniment_load::conn::{Conn, InsertTemplate, Message, check, number_at};
use muniment_load::fail::{Failure, Result};
use muniment_load::rng::Rng;
use muniment_value::{ArrayBuf, doc};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Under w:0, so many writes are sent before a command with a reply, which shows that they were
/// applied: a server handles the commands of one connection in order.
const FENCE: usize = 32;
/// The most writes that a writer remembers in one round; after that it waits for the crash.
const MOST: usize = 400_000;
/// The most documents in a batch.
const BATCH: u64 = 20;

/// The state of the crash, shared by all writers.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    /// The crash is about to happen, so errors are expected from now on.
    pub near: AtomicBool,
    /// The crash has happened; a writer that still runs ends.
    pub over: AtomicBool,
}

/// The way in which a kind of writer writes.
pub(crate) trait Work: Send {
    /// Makes one write, and notes in the history when it is sent and when it is acknowledged.
    ///
    /// # Errors
    /// The server refused the write, or went away.
    fn write(&mut self, history: &mut History) -> Result<()>;
}

/// Writes until the crash; returns the history.
///
/// # Errors
/// The server refused a write, or went away before it was crashed.
pub(crate) fn work(w: &mut dyn Work, thread: usize, fate: &Fate) -> Result<History> {
    let mut history = History::default();
    while !fate.over.load(Ordering::Acquire) {
        if history.writes.len() >= MOST {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        if let Err(e) = w.write(&mut history) {
            if fate.near.load(Ordering::Acquire) {
                break;
            }
            return Err(e.while_doing(&format!("writer {thread}, before the crash")));
        }
    }
    Ok(history)
}

/// The writer of single commands.
pub(crate) struct Writer<'a> {
    conn: Conn,
    thread: usize,
    mark: u64,
    concern: &'a Concern,
    rng: Rng,
    insert: InsertTemplate,
    message: Message,
}

impl<'a> Writer<'a> {
    /// Makes writer number `thread` of the round with this mark.
    ///
    /// # Errors
    /// There is no connection.
    pub(crate) fn new(
        server: &Peer,
        thread: usize,
        mark: u64,
        concern: &'a Concern,
    ) -> Result<Writer<'a>> {
        let conn = Conn::connect(server)?;
        // A host that is cut off sends nothing any more, not even a reset, so without a timeout the
        // writer would wait for ever.
        conn.set_timeout(Some(Duration::from_secs(15)))?;
        Ok(Writer {
            conn,
            thread,
            mark,
            concern,
            rng: Rng::new(mark ^ (thread as u64 + 1)),
            insert: Message::insert(DB, COLLECTION, Some(&concern.doc)),
            message: Message(Vec::new()),
        })
    }
}

impl Work for Writer<'_> {
    /// Of a hundred writes 60 insert one document, 15 insert a batch, and 25 update the counter.
    fn write(&mut self, history: &mut History) -> Result<()> {
        let dice = self.rng.below(100);
        if dice < 75 {
            let count = if dice < 60 {
                1
            } else {
                2 + self.rng.below(BATCH - 1) as u32
            };
            let first = history.insert(count);
            self.insert.begin(&mut self.message);
            for number in first..first + u64::from(count) {
                let d = document::document(self.mark, self.thread, number);
                self.message.0.extend_from_slice(d.as_bytes());
            }
            self.insert.seal(&mut self.message);
            self.send(history, f64::from(count))
        } else {
            let value = history.update();
            let mut updates = ArrayBuf::new();
            updates.push(document::update(self.mark, self.thread, value));
            let body = doc! {
                "update": COLLECTION, "updates": updates, "writeConcern": &self.concern.doc,
            };
            self.message = if self.concern.unacknowledged {
                Message::unacknowledged(DB, &body)
            } else {
                Message::command(DB, &body)
            };
            self.send(history, 1.0)
        }
    }
}

impl Writer<'_> {
    /// Sends the message and notes its acknowledgement, which must count `n` documents.
    fn send(&mut self, history: &mut History, n: f64) -> Result<()> {
        self.conn.send(&mut self.message)?;
        if !self.concern.unacknowledged {
            let reply = self.conn.receive()?;
            let now = Instant::now();
            check(reply)?;
            if number_at(reply, "n") != Some(n) {
                return Err(Failure(format!(
                    "the acknowledgement of {n} documents speaks of another number: {reply:?}"
                )));
            }
            history.acknowledge(now);
        } else if history.writes.len().is_multiple_of(FENCE) {
            self.conn.command("admin", &doc! { "ping": 1 })?;
            history.acknowledge(Instant::now());
        }
        Ok(())
    }
}
