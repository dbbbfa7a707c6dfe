//! One shard's part of a change stream.

use crate::router::forward::{self, Own, ask_own_of_all, begin_own};
use crate::router::sharded::remote::{Terms, no_cursor, number_of};
use crate::router::{Reach, Router, SetPool};
use crate::sets::{Reply, Sent};
use bytes::Bytes;
use muniment_exec::read_token;
use muniment_op::{Account, Operation, Share};
use muniment_storage::Timestamp;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
use muniment_wire::client;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a shard waits for events before it answers without any. The router's wait is not bound to this: an
/// answer that the client does not wait for is kept for its next batch.
const AWAITS: Duration = Duration::from_secs(1);
/// After so long without the answer that is due, the shard's member is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(5);
/// The pause before a shard is asked again to come to a time, after it could not be.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the end of cursors may take that are no longer needed.
const AWHILE: Duration = Duration::from_secs(1);

/// See the module's head.
pub struct Part {
    set: Arc<SetPool>,
    /// The shard's name; `None` for the configuration, whose events are the shards that are added and removed.
    pub shard: Option<String>,
    /// The member that has the cursor.
    host: String,
    db: String,
    collection: String,
    /// The cursor's number; 0 after its end.
    id: i64,
    batch: VecDeque<Bytes>,
    /// The memory of the batch.
    share: Share,
    /// After the batch no event comes up to this token.
    promise: DocBuf,
    /// The getMore that waits at the shard, and since when.
    asked: Option<(Sent, Instant)>,
    nudge: Nudge,
}

/// What a shard is asked for that is to come to a time, so that it can promise that nothing more happens before it.
#[derive(Default)]
struct Nudge {
    sent: Option<Sent>,
    /// The time of the last nudge.
    to: Timestamp,
    /// It failed, and is not repeated before this.
    not_before: Option<Instant>,
}

/// What comes next of a part.
#[derive(Clone, Copy)]
pub enum Next<'p> {
    /// An event with this token.
    Event(&'p str),
    /// The shard's stream has ended here.
    End(&'p str),
    /// Nothing up to here, and it is not known what later.
    Unknown(&'p str),
}

impl<'p> Next<'p> {
    /// The token.
    pub fn token(self) -> &'p str {
        match self {
            Next::Event(token) | Next::End(token) | Next::Unknown(token) => token,
        }
    }
}

/// The digits of a token.
fn digits(token: Doc<'_>) -> &str {
    token.get_str("_data").unwrap_or_default()
}

impl Part {
    /// The part that a reply with a cursor begins.
    ///
    /// # Errors
    /// 1 if there is no cursor in it; 146 if there is no memory for its batch.
    pub fn new(
        terms: &Terms,
        set: &Arc<SetPool>,
        reply: &Reply,
        shard: Option<String>,
    ) -> Result<Part> {
        let cursor = reply.body.as_doc().get_doc("cursor");
        let cursor = cursor.ok_or_else(no_cursor)?;
        let ns = cursor.get_str("ns").unwrap_or_default();
        let (db, collection) = ns.split_once('.').unwrap_or_default();
        let mut part = Part {
            set: Arc::clone(set),
            shard,
            host: reply.host.clone(),
            db: db.to_string(),
            collection: collection.to_string(),
            id: number_of(cursor),
            batch: VecDeque::new(),
            share: Share::new(&terms.server().engine.memory, Account::Cursors),
            promise: DocBuf::new(),
            asked: None,
            nudge: Nudge::default(),
        };
        part.take(cursor, "firstBatch")?;
        Ok(part)
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        &self.set.name
    }

    /// What comes next.
    pub fn next(&self) -> Next<'_> {
        match self.batch.front() {
            Some(event) => {
                let id = Doc::new(event).get_doc("_id").unwrap_or(Doc::EMPTY);
                Next::Event(digits(id))
            }
            None if self.id == 0 => Next::End(digits(self.promise.as_doc())),
            None => Next::Unknown(digits(self.promise.as_doc())),
        }
    }

    /// Up to which token everything of this part was given, if nothing more of it is there.
    pub fn promise(&self) -> Option<&DocBuf> {
        self.batch.is_empty().then_some(&self.promise)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<Bytes> {
        self.batch.pop_front()
    }

    fn take(&mut self, cursor: Doc<'_>, name: &str) -> Result<()> {
        let batch = cursor.get_array(name).unwrap_or(Doc::EMPTY);
        self.share.try_hold_alone(batch.byte_len())?;
        let docs = batch.values().filter_map(|v| v.as_doc());
        self.batch = docs.map(|d| Bytes::copy_from_slice(d.as_bytes())).collect();
        let promise = cursor.get_doc("postBatchResumeToken");
        self.promise = promise.map(|d| d.to_buf()).ok_or_else(no_cursor)?;
        Ok(())
    }

    /// Asks the shard for more, if there is nothing more and it was not asked yet.
    ///
    /// # Errors
    /// Those of the way there.
    pub fn ask(&mut self, terms: &Terms) -> Result<()> {
        if !self.batch.is_empty() || self.id == 0 || self.asked.is_some() {
            return Ok(());
        }
        let mut command = doc! {
            "getMore": self.id, "collection": self.collection.as_str(),
            "maxTimeMS": i64::try_from(AWAITS.as_millis()).unwrap_or(i64::MAX),
        };
        command.append_all(terms.session.as_doc());
        let own = Own {
            set: &self.set,
            db: &self.db,
            command: &command,
            versions: None,
            reach: Reach::Host(&self.host),
        };
        let sent = begin_own(&*terms.on, terms.router()?, &own)?;
        self.asked = Some((sent, Instant::now()));
        Ok(())
    }

    /// Takes the shard's answer, if it is there; whether it was.
    ///
    /// # Errors
    /// The shard's; those of the way there, if it is there no more.
    pub fn receive(&mut self, terms: &Terms) -> Result<bool> {
        self.nudged(terms)?;
        let Some((sent, since)) = self.asked.take() else {
            return Ok(false);
        };
        if !sent.has_reply() {
            let mut since = since;
            if since.elapsed() > AWAITS + SILENCE {
                self.set.is_there(&sent)?;
                since = Instant::now();
            }
            self.asked = Some((sent, since));
            return Ok(false);
        }
        let reply = self.set.receive_reply(sent, &*terms.on)?.body;
        let body = reply.as_doc();
        terms.router()?.times.heard(body);
        if let Err(e) = client::check_ok(body) {
            // After any error the shard has the cursor no more.
            self.id = 0;
            return Err(e);
        }
        let cursor = body.get_doc("cursor").ok_or_else(no_cursor)?;
        self.id = number_of(cursor);
        self.take(cursor, "nextBatch")?;
        Ok(true)
    }

    /// Whether the shard's promise is older than this.
    pub fn is_behind(&self, time: Timestamp) -> bool {
        let promised = read_token(self.promise.as_doc());
        self.batch.is_empty() && promised.is_ok_and(|(at, _)| at < time)
    }

    /// Has the shard come to the cluster's newest time, which is not before `at`, unless it was asked to.
    ///
    /// # Errors
    /// Those of the way there.
    pub fn come_to(&mut self, terms: &Terms, at: Timestamp) -> Result<()> {
        let nudge = &self.nudge;
        let pauses = nudge.not_before.is_some_and(|then| Instant::now() < then);
        if nudge.sent.is_some() || nudge.to >= at || pauses {
            return Ok(());
        }
        let to = terms.router()?.times.at().max(at);
        self.send_nudge(terms, to, None)
    }

    fn send_nudge(&mut self, terms: &Terms, to: Timestamp, host: Option<String>) -> Result<()> {
        let command = up_to(to);
        let own = Own {
            set: &self.set,
            db: "admin",
            command: &command,
            versions: None,
            reach: host.as_deref().map_or(Reach::Primary, Reach::Host),
        };
        let sent = begin_own(&*terms.on, terms.router()?, &own)?;
        self.nudge = Nudge {
            sent: Some(sent),
            to,
            not_before: None,
        };
        Ok(())
    }

    /// Takes the answer to a nudge, if it is there. The primary comes to the time first; if another member has the
    /// cursor, that one is told afterwards.
    fn nudged(&mut self, terms: &Terms) -> Result<()> {
        let Some(sent) = self.nudge.sent.take_if(|sent| sent.has_reply()) else {
            return Ok(());
        };
        let reply = self.set.receive_reply(sent, &*terms.on);
        let good = reply.and_then(|reply| {
            terms.router()?.times.heard(reply.body.as_doc());
            client::check_ok(reply.body.as_doc()).map(|()| reply.host)
        });
        match good {
            Ok(host) if host == self.host => Ok(()),
            Ok(_) => self.send_nudge(terms, self.nudge.to, Some(self.host.clone())),
            // There may be another primary soon. If the cursor is lost, its own answer says so.
            Err(_) => {
                terms.on.check()?;
                self.nudge = Nudge {
                    not_before: Some(Instant::now() + PAUSE),
                    ..Nudge::default()
                };
                Ok(())
            }
        }
    }

    /// What an answer is waited for of.
    pub fn awaited(&self) -> impl Iterator<Item = &Sent> {
        let asked = self.asked.as_ref().map(|(sent, _)| sent);
        asked.into_iter().chain(&self.nudge.sent)
    }
}

/// A time as a value.
pub fn stamp(at: Timestamp) -> Value<'static> {
    Value::Timestamp {
        t: at.seconds(),
        i: at.increment(),
    }
}

/// The command that has a set come to a time.
fn up_to(time: Timestamp) -> DocBuf {
    doc! { "_changesUpTo": 1, "time": stamp(time) }
}

/// Has these sets come to a time.
///
/// # Errors
/// The first set's.
pub fn come_to(terms: &Terms, sets: &[Arc<SetPool>], time: Timestamp) -> Result<()> {
    for reply in forward::come_to(&*terms.on, terms.router()?, sets.iter(), stamp(time)) {
        client::check_ok(reply?.body.as_doc())?;
    }
    Ok(())
}

/// Ends the cursors of parts.
pub fn end(terms: &Terms, router: &Router, parts: &mut [Part]) {
    let mut commands = Vec::new();
    for part in parts.iter_mut() {
        // An answer that comes late would be taken for that of the next command, so its connection ends.
        part.asked = None;
        let mut cursors = ArrayBuf::new();
        cursors.push(part.id);
        let mut command = doc! { "killCursors": part.collection.as_str(), "cursors": cursors };
        command.append_some("lsid", terms.session.as_doc().get("lsid"));
        commands.push(command);
    }
    let open = parts.iter().zip(&commands).filter(|(part, _)| part.id != 0);
    let asked = open.map(|(part, command)| Own {
        set: &part.set,
        db: &part.db,
        command,
        versions: None,
        reach: Reach::Host(&part.host),
    });
    let awhile = Operation::new(Instant::now(), Some(AWHILE));
    // If it fails, the shard closes the cursor when nobody has used it for a while.
    drop(ask_own_of_all(&awhile, router, &asked.collect::<Vec<_>>()));
}

/// 43: a shard's stream has ended without an event that says so.
pub fn ended(name: &str) -> Error {
    Error::new(
        Code::CursorNotFound,
        format!("the change stream of the shard {name} has ended"),
    )
}
