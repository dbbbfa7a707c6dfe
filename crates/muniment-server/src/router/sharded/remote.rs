//! Documents that come from a cursor on a shard.

use super::is_stale;
use super::unlimited;
use crate::context::CommandContext;
use crate::router::forward::{lsid, run_on};
use crate::router::shard_cursors::ShardCursor;
use crate::router::{Router, SetPool};
use crate::sets::Reply;
use crate::state::ServerState;
use bytes::Bytes;
use muniment_op::{Account, Interrupt, Operation, Share};
use muniment_query::DocStream;
use muniment_shard::Timestamp;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
use muniment_wire::client;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long the end of a cursor may take that is no longer needed.
const AWHILE: Duration = Duration::from_secs(1);

/// What commands of the router's own need that continue a command of a client, perhaps after it.
#[derive(Clone)]
pub struct Terms {
    server: Arc<ServerState>,
    /// The session and the transaction.
    pub session: DocBuf,
    /// `readConcern` and `$readPreference`, and no `maxTimeMS` where the shards' limit for reads is not for them.
    pub reads: DocBuf,
    /// The operation that waits for the results at the moment.
    pub on: Arc<dyn Interrupt>,
    /// What its writes need, and have come to.
    pub output: Arc<Output>,
}

/// What a command needs that writes its results.
#[derive(Default)]
pub struct Output {
    /// `writeConcern`, `comment` and `bypassDocumentValidation`.
    pub terms: DocBuf,
    /// Something was written that stays.
    pub wrote: AtomicBool,
}

impl Output {
    /// That of a command.
    pub fn of(cx: &CommandContext<'_>) -> Output {
        let mut terms = DocBuf::new();
        for name in ["writeConcern", "comment", "bypassDocumentValidation"] {
            terms.append_some(name, cx.request.body.get(name));
        }
        Output {
            terms,
            wrote: AtomicBool::new(false),
        }
    }

    /// What a part of the command came to. One that has written something does not begin anew.
    ///
    /// # Errors
    /// The part's; 175 QueryPlanKilled in the place of one that would have the command begin anew.
    pub fn guard(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(e) if is_stale(&e) && self.wrote.load(Relaxed) => Err(Error::new(
                Code::QueryPlanKilled,
                format!(
                    "a collection has changed while results were written, a part of which is written: {}",
                    e.message()
                ),
            )),
            done => done,
        }
    }
}

impl Terms {
    /// The time at which all shards are read, if there is one.
    pub fn time(&self) -> Option<Timestamp> {
        let concern = self.reads.as_doc().get_doc("readConcern")?;
        match concern.get("atClusterTime")? {
            Value::Timestamp { t, i } => Some(Timestamp::new(t, i)),
            _ => None,
        }
    }

    /// Whether the command is part of a transaction.
    pub fn in_transaction(&self) -> bool {
        self.session.as_doc().get("txnNumber").is_some()
    }

    /// Those of a command; `on` is the operation that uses its cursor.
    pub fn new(cx: &CommandContext<'_>, on: &Arc<dyn Interrupt>) -> Terms {
        let mut session = DocBuf::new();
        if let Some(key) = &cx.generic.session {
            session.append("lsid", lsid(key));
        }
        let in_transaction = cx.generic.in_transaction();
        if let Some(number) = cx.generic.txn_number.filter(|_| in_transaction) {
            session.append("txnNumber", number);
            session.append("autocommit", false);
        }
        let mut reads = DocBuf::new();
        // In a transaction its first statement has said how it reads.
        if let Some(concern) = cx.generic.read_concern.filter(|_| !in_transaction) {
            let mut concern = concern.to_buf();
            if let Some(at) = cx.op.reading_at() {
                let (t, i) = (at.seconds(), at.increment());
                concern.append("atClusterTime", Value::Timestamp { t, i });
            }
            reads.append("readConcern", concern);
        }
        reads.append_some(
            "$readPreference",
            cx.request.body.get_doc("$readPreference"),
        );
        // What the client allows is for the command as a whole, whose end is theirs.
        let limit = match cx.generic.max_time_given {
            true => Some(0),
            false => unlimited(cx),
        };
        reads.append_some("maxTimeMS", limit);
        Terms {
            server: Arc::clone(cx.server),
            session,
            reads,
            on: Arc::clone(on),
            output: Arc::default(),
        }
    }

    /// These for a command that writes its results.
    #[must_use]
    pub fn with_output(self, output: &Arc<Output>) -> Terms {
        Terms {
            output: Arc::clone(output),
            ..self
        }
    }

    /// The router.
    ///
    /// # Errors
    /// 1 if the server is none, which cannot happen.
    pub fn router(&self) -> Result<&Router> {
        let router = self.server.router.as_ref();
        router.ok_or_else(|| Error::internal("the server is no router"))
    }

    /// The server.
    pub fn server(&self) -> &Arc<ServerState> {
        &self.server
    }
}

/// The rest of a cursor's documents. When it is dropped, so is the cursor on the shard.
pub struct Remote {
    terms: Terms,
    cursor: Arc<ShardCursor>,
    db: String,
    collection: String,
    batch: VecDeque<Bytes>,
    /// The memory of the batch.
    share: Share,
}

/// The documents of replies with cursors, of these sets.
///
/// # Errors
/// As [`Remote::new`]. No cursor is left open then.
pub fn streams(
    terms: &Terms,
    sets: &[(Arc<SetPool>, DocBuf)],
    replies: &[Reply],
) -> Result<Vec<Box<dyn DocStream>>> {
    let remotes = replies.iter().zip(sets).map(|(reply, (set, _))| {
        let remote = Remote::new(terms, set, reply)?;
        Ok(Box::new(remote) as Box<dyn DocStream>)
    });
    all_or_none(remotes)
}

/// All streams; after an error those of later replies are made all the same, since each ends its cursor when it is
/// dropped.
///
/// # Errors
/// The first.
pub fn all_or_none(
    streams: impl Iterator<Item = Result<Box<dyn DocStream>>>,
) -> Result<Vec<Box<dyn DocStream>>> {
    let made: Vec<_> = streams.collect();
    made.into_iter().collect()
}

impl Remote {
    /// The documents of a reply with a cursor.
    ///
    /// # Errors
    /// 1 if there is no cursor in it.
    pub fn new(terms: &Terms, set: &Arc<SetPool>, reply: &Reply) -> Result<Remote> {
        let cursor = reply.body.as_doc().get_doc("cursor");
        let cursor = cursor.ok_or_else(no_cursor)?;
        let ns = cursor.get_str("ns").unwrap_or_default();
        let (db, collection) = ns.split_once('.').unwrap_or_default();
        let share = Share::new(&terms.server.engine.memory, Account::Cursors);
        let mut remote = Remote {
            terms: terms.clone(),
            cursor: (terms.router()?.shard_cursors).begin(set, &reply.host, number_of(cursor)),
            db: db.to_string(),
            collection: collection.to_string(),
            batch: VecDeque::new(),
            share,
        };
        remote.take(cursor, "firstBatch")?;
        Ok(remote)
    }

    /// Takes a batch.
    ///
    /// # Errors
    /// 146 ExceededMemoryLimit if there is no room for it beside those of others.
    fn take(&mut self, cursor: Doc<'_>, batch: &str) -> Result<()> {
        let batch = cursor.get_array(batch).unwrap_or(Doc::EMPTY);
        self.share.try_hold_alone(batch.byte_len())?;
        let docs = batch.values().filter_map(|v| v.as_doc());
        self.batch = docs.map(|d| Bytes::copy_from_slice(d.as_bytes())).collect();
        Ok(())
    }

    fn read_on(&mut self) -> Result<()> {
        let mut command =
            doc! { "getMore": self.cursor.id(), "collection": self.collection.as_str() };
        command.append_all(self.terms.session.as_doc());
        let (router, on) = (self.terms.router()?, &*self.terms.on);
        let (set, host) = (&self.cursor.set, &self.cursor.host);
        let reply = run_on(on, router, set, host, &self.db, &command)?;
        let body = reply.as_doc();
        if let Err(e) = client::check_ok(body) {
            // After any error the shard has the cursor no more.
            self.cursor.goes_on(0);
            return Err(e);
        }
        let cursor = body.get_doc("cursor").ok_or_else(no_cursor)?;
        self.cursor.goes_on(number_of(cursor));
        self.take(cursor, "nextBatch")
    }
}

pub fn number_of(cursor: Doc<'_>) -> i64 {
    cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap_or(0)
}

#[cold]
pub fn no_cursor() -> Error {
    Error::internal("a shard has answered without a cursor")
}

impl DocStream for Remote {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(d) = self.batch.pop_front() {
                return Ok(Some(d));
            }
            if self.cursor.id() == 0 {
                return Ok(None);
            }
            self.terms.on.check()?;
            self.read_on()?;
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let id = self.cursor.id();
        // It is not to be kept open any more, also if it cannot be closed now.
        self.cursor.goes_on(0);
        if id == 0 {
            return;
        }
        let Ok(router) = self.terms.router() else {
            return;
        };
        let mut cursors = ArrayBuf::new();
        cursors.push(id);
        let mut command = doc! { "killCursors": self.collection.as_str(), "cursors": cursors };
        command.append_some("lsid", self.terms.session.as_doc().get("lsid"));
        let awhile = Operation::new(muniment_op::now(), Some(AWHILE));
        // If it fails, the shard closes the cursor when nobody has used it for a while.
        let (set, host) = (&self.cursor.set, &self.cursor.host);
        let _ = run_on(&awhile, router, set, host, &self.db, &command);
    }
}
