//! A change stream: gives the log's entries after a place as events.

use super::event::{Event, Full, Image, Look, Looked, Shown, has, next_event};
use super::feed::{Fetched, Waits};
use super::moved::steps;
use super::scope::Scope;
use super::shared::OwnReader;
use super::token::{Place, Token, number_of};
use crate::cursor::Tail;
use crate::database::Database;
use crate::operation::OpContext;
use crate::run::current::CurrentOp;
use bytes::Bytes;
use muniment_query::stage::change_stream::ChangeStreamSpec;
use muniment_query::{DocStream, Interrupt};
use muniment_storage::{LogEntry, Named, Timestamp};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Instant;

/// The operation is asked whether it may go on after so many entries without an event for this
/// stream.
const LOOK: usize = 256;

/// The place at which a stream begins.
pub(super) struct Start {
    /// Entries up to here are skipped.
    position: Timestamp,
    /// Events up to here are skipped too. A place is finer than an entry, which may hold several
    /// events.
    behind: Place,
    /// The event of the token after which the stream begins. It has to be one that the stream would
    /// give; otherwise the stream fails (280).
    sought: Option<Place>,
    /// The event of a token that names no shard, in a stream that is one shard's part: events up to
    /// it are left out if this shard has it.
    perhaps: Option<Place>,
    /// The token after which the stream begins, if the client gave one.
    token: Option<DocBuf>,
    /// The number of parts of the first event that the client has already.
    pub fragments: u32,
}

impl Start {
    /// Entries up to here are skipped.
    pub(super) fn position(&self) -> Timestamp {
        self.position
    }

    /// The beginning that the options ask for. Without any, it is after `newest`.
    ///
    /// # Errors
    /// Those of [`Token::parse`]; 260 InvalidResumeToken for an invalidation's token with
    /// `resumeAfter`, which cannot continue after one (`startAfter` can).
    pub(super) fn of(spec: &ChangeStreamSpec<'_>, newest: Timestamp) -> Result<Start> {
        let token = spec.resume_after.or(spec.start_after);
        let token = token.map(Token::parse).transpose()?;
        if spec.resume_after.is_some() && token.is_some_and(|t| t.place.invalidates) {
            return Err(Error::new(
                Code(260),
                "Attempting to resume a change stream using 'resumeAfter' is not allowed from an \
                 invalidate notification.",
            ));
        }
        let before = |t: u64| Timestamp(t.saturating_sub(1));
        let mut start = match (token, spec.start_at) {
            (Some(t), _) => Start::after(t, spec.shard.map(number_of)),
            (None, Some(t)) => Start::at(before(t)),
            (None, None) => Start::at(newest),
        };
        start.token = spec.resume_after.or(spec.start_after).map(|d| d.to_buf());
        Ok(start)
    }

    /// The beginning after everything up to a time.
    fn at(position: Timestamp) -> Start {
        Start {
            position,
            behind: Token::high_water(position.plus(1)).place,
            sought: None,
            perhaps: None,
            token: None,
            fragments: 0,
        }
    }

    /// The beginning after a token. `own` is the number of this shard, if the stream is its part of
    /// one of several shards.
    fn after(mut t: Token, own: Option<u64>) -> Start {
        let before = Timestamp(t.place.at.0.saturating_sub(1));
        match own.filter(|_| t.place.is_event) {
            // A stream of this server alone gives its events whatever a router calls the server.
            None => t.place.shard = 0,
            Some(_) if t.place.shard == 0 => {
                return Start {
                    perhaps: Some(t.place),
                    ..Start::at(before)
                };
            }
            // Events of one time are in the order of the shards.
            Some(own) if own < t.place.shard => return Start::at(t.place.at),
            Some(own) if own > t.place.shard => return Start::at(before),
            Some(_) => {}
        }
        // With the token of a part, the stream begins before the event, which is made and divided
        // again. The parts that the client has already are then left out.
        if t.fragment.is_some() {
            t.place.is_event = t.place.index > 0;
            t.place.index = t.place.index.saturating_sub(1);
        }
        let sought = t.place.is_event && t.fragment.is_none();
        Start {
            position: before,
            behind: t.place,
            sought: sought.then_some(t.place),
            perhaps: None,
            token: None,
            fragments: t.fragment.map_or(0, |n| n + 1),
        }
    }
}

/// The state that the stream shares with its cursor.
pub(super) struct State {
    engine: Arc<Database>,
    scope: Scope,
    /// It is one shard's part of a stream that a router merges.
    merged: bool,
    ended: AtomicBool,
    /// The time up to which entries were visible when the batch began.
    newest: AtomicU64,
    told: Mutex<Told>,
    ahead: Mutex<Ahead>,
}

/// Everything that was read ahead of the stream's place. It can be read again from there, so an
/// idle stream keeps none of it.
#[derive(Default)]
struct Ahead {
    own: Option<OwnReader>,
    entries: VecDeque<Arc<LogEntry>>,
    /// All entries up to here are in `entries`.
    until: Timestamp,
    /// The entry whose operations are being turned into events, and the next of them.
    current: Option<(Arc<LogEntry>, usize)>,
    /// The place at which the stream continues reading after it was idle. It is just before an
    /// entry of which only a part was given, so that the entry is read again.
    back: Option<Timestamp>,
}

struct Told {
    /// All entries up to here were read.
    position: Timestamp,
    /// The token of the newest event that the stream gave, in the event's form; empty if there is
    /// none. Every event has a token, so this buffer is reused for the next one.
    given: Vec<u8>,
    given_at: Timestamp,
    /// The token of the newest event that the cursor passed on; empty if there is none. At first it
    /// is the token after which the stream begins.
    passed: Vec<u8>,
    /// The time of that event's place.
    passed_at: Timestamp,
    /// Everything up to here was covered by the token of the last batch.
    replied: Timestamp,
}

/// The source of a change stream's pipeline.
pub(super) struct ChangeStream {
    state: Arc<State>,
    op: Arc<CurrentOp>,
    shown: Shown,
    wanted: Wanted,
    behind: Place,
    sought: Option<Place>,
    perhaps: Option<Place>,
    position: Timestamp,
}

/// The kinds of events that the first `$match` lets pass, or `None` if that cannot be told. Events
/// of other kinds are not made.
#[derive(Default)]
pub(super) struct Wanted(Option<Vec<String>>);

impl Wanted {
    /// Reads the kinds from the stages after `$changeStream`.
    pub(super) fn of(behind: Doc<'_>) -> Wanted {
        let first = behind.values().next().and_then(|v| v.as_doc()?.first());
        let filter = first.filter(|e| e.name() == "$match");
        let kind = filter.and_then(|e| e.value().as_doc()?.get("operationType"));
        let text = |v: Value<'_>| v.as_str().map(str::to_owned);
        Wanted(match kind {
            Some(Value::String(s)) => Some(vec![s.to_owned()]),
            Some(Value::Document(d)) if d.count() == 1 => match d.first() {
                Some(e) if e.name() == "$eq" => text(e.value()).map(|s| vec![s]),
                Some(e) if e.name() == "$in" => {
                    let all = e.value().as_array().unwrap_or(Doc::EMPTY);
                    all.values().map(text).collect()
                }
                _ => None,
            },
            _ => None,
        })
    }

    fn has(&self, kind: &str) -> bool {
        self.0
            .as_ref()
            .is_none_or(|all| all.iter().any(|k| k == kind))
    }
}

impl ChangeStream {
    pub(super) fn new(
        engine: &Arc<Database>,
        op: &Arc<CurrentOp>,
        scope: Scope,
        spec: &ChangeStreamSpec<'_>,
        start: &Start,
        wanted: Wanted,
    ) -> Result<ChangeStream> {
        let image = |mode: Option<&str>| match mode {
            Some("whenAvailable") => Image::WhenAvailable,
            Some("required") => Image::Required,
            _ => Image::Off,
        };
        let shown = Shown {
            full: match spec.full_document {
                Some("updateLookup") => Full::Lookup,
                mode => Full::After(image(mode)),
            },
            before: image(spec.before_change),
            expanded: spec.expanded,
            shard: spec.shard.map_or(0, number_of),
            images_since_ms: 0,
        };
        let begins = engine.store.log_begins_after()?;
        if start.position < begins {
            return Err(history_lost());
        }
        let state = State {
            engine: engine.clone(),
            scope,
            merged: spec.shard.is_some(),
            ended: AtomicBool::new(false),
            newest: AtomicU64::new(0),
            told: Mutex::new(Told {
                position: start.position,
                given: Vec::new(),
                given_at: Timestamp::ZERO,
                passed: start
                    .token
                    .clone()
                    .map_or_else(Vec::new, DocBuf::into_bytes),
                passed_at: start.behind.at,
                replied: start.position,
            }),
            ahead: Mutex::default(),
        };
        Ok(ChangeStream {
            state: Arc::new(state),
            op: op.clone(),
            shown,
            wanted,
            behind: start.behind,
            sought: start.sought,
            perhaps: start.perhaps,
            position: start.position,
        })
    }

    /// The state that the stream shares with its cursor.
    pub(super) fn tail(&self) -> Arc<State> {
        self.state.clone()
    }

    /// The next entry.
    fn entry(&mut self, ahead: &mut Ahead) -> Result<Option<Arc<LogEntry>>> {
        let changes = &self.state.engine.changes;
        let (store, feed) = (&self.state.engine.store, &changes.feed);
        if let Some(back) = ahead.back.take() {
            self.position = back;
        }
        loop {
            if let Some(entry) = ahead.entries.pop_front() {
                self.position = entry.at;
                return Ok(Some(entry));
            }
            self.position = self.position.max(ahead.until);
            if self.position.0 >= self.state.newest.load(SeqCst) {
                return Ok(None);
            }
            // The stream's own reader goes only as far as the beginning of the shared entries:
            // later ones may not be on the disk yet.
            let shared = feed.after();
            if let Some(own) = ahead.own.as_mut().filter(|_| self.position < shared) {
                match own.entries.next().map_err(lost)? {
                    Some(entry) if entry.at <= shared => {
                        changes.read_by_itself.fetch_add(1, Relaxed);
                        self.position = entry.at;
                        return Ok(Some(Arc::new(entry)));
                    }
                    Some(_) => self.position = shared,
                    // The reader found no more entries. If it has not reached the shared ones, the
                    // records that follow are not visible yet; otherwise they contained nothing to
                    // show.
                    None if own.entries.position() < shared => return Ok(None),
                    None => self.position = shared,
                }
            }
            ahead.own = None;
            match feed
                .fetch(store, &self.state.scope, self.position)
                .map_err(lost)?
            {
                Fetched::Behind => ahead.own = Some(changes.own_reader(store, self.position)?),
                Fetched::Entries(all, until) => {
                    ahead.until = until;
                    if all.is_empty() {
                        self.position = self.position.max(until);
                        return Ok(None);
                    }
                    ahead.entries.extend(all);
                }
            }
        }
    }

    /// The next event.
    fn event(&mut self) -> Result<Option<Event>> {
        let state = self.state.clone();
        let op = self.op.get();
        self.shown.images_since_ms = state.engine.changes.images_since(op.now_ms());
        let lookup = |of: &Named, id: Value<'_>| state.look_up(&op, of, id);
        let mut looked = 0;
        // No other thread needs this lock while the cursor is in use.
        let mut ahead = state.ahead.lock();
        let mut current = ahead.current.take();
        loop {
            if state.ended.load(SeqCst) {
                return Ok(None);
            }
            if let Some((entry, mut from)) = current.take() {
                let wanted = |kind: &str| self.wanted.has(kind);
                let look = Look {
                    scope: &state.scope,
                    shown: &self.shown,
                    behind: self.behind,
                    wanted: &wanted,
                    lookup: &lookup,
                };
                if let Some(event) = next_event(&entry, &mut from, &look)? {
                    if let Some(place) = self.sought {
                        return Err(not_found(place));
                    }
                    if from < steps(&entry).len() {
                        ahead.current = Some((entry, from));
                    }
                    return Ok(Some(event));
                }
            }
            let Some(entry) = self.entry(&mut ahead)? else {
                state.told.lock().position = self.position;
                return Ok(None);
            };
            looked += 1;
            if looked % LOOK == 0 {
                self.op.check()?;
                state.told.lock().position = self.position;
            }
            if let Some(place) = self.sought
                && has(&entry, &state.scope, self.shown.expanded, place)
            {
                self.sought = None;
            }
            if let Some(place) = self.perhaps.take_if(|place| entry.at >= place.at)
                && has(&entry, &state.scope, self.shown.expanded, place)
            {
                let shard = self.shown.shard;
                self.behind = Place { shard, ..place };
            }
            current = Some((entry, 0));
        }
    }
}

impl DocStream for ChangeStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(event) = self.event()? else {
            return Ok(None);
        };
        self.behind = event.place;
        if event.ends {
            self.state.ended.store(true, SeqCst);
        }
        let token = event.doc.as_doc().get_doc("_id");
        self.state.gives_at(token, event.place.at, self.position);
        Ok(Some(Bytes::from(event.doc.into_bytes())))
    }
}

impl Told {
    fn gives(&mut self, token: Doc<'_>) {
        self.given.clear();
        self.given.extend_from_slice(token.as_bytes());
    }

    /// Notes that the event that was given last goes to the client.
    fn passes(&mut self) {
        self.passed_at = self.given_at;
        std::mem::swap(&mut self.passed, &mut self.given);
        self.given.clear();
    }
}

impl State {
    /// Notes that the stream gives an event, or a part of one, with this token.
    pub(super) fn gives(&self, token: Doc<'_>) {
        self.told.lock().gives(token);
    }

    fn gives_at(&self, token: Option<Doc<'_>>, event: Timestamp, position: Timestamp) {
        let mut told = self.told.lock();
        told.gives(token.unwrap_or(Doc::EMPTY));
        told.given_at = event;
        told.position = position;
    }

    /// A document as it is now; with other members, as the majority has it. There is none if its
    /// collection has been replaced by another.
    fn look_up(&self, op: &OpContext, of: &Named, id: Value<'_>) -> Result<Looked> {
        op.check()?;
        let store = &self.engine.store;
        let collection = store.collection(&of.namespace);
        let collection = collection.filter(|c| c.uuid() == of.uuid);
        let whole = collection.filter(|c| !self.merged || c.placement().is_none());
        let Some(collection) = whole else {
            return Ok(match self.merged {
                true => Looked::Elsewhere,
                false => Looked::Here(None),
            });
        };
        // The documents of a closed collection cannot be read.
        if collection.check_usable().is_err() {
            return Ok(Looked::Here(None));
        }
        let found = match store.majority_snapshot()? {
            Some(view) => view.find_by_id(&collection, id)?,
            None => store.glance()?.find_by_id(&collection, id)?,
        };
        Ok(Looked::Here(found.map(|(_, doc)| doc)))
    }
}

impl Tail for State {
    fn begins(&self) {
        self.newest.store(self.engine.store.visible().0, SeqCst);
    }

    fn rests(&self) {
        let has_own = self.ahead.lock().own.is_some();
        if has_own && self.engine.changes.has_many_readers() {
            self.idles();
        }
    }

    fn idles(&self) {
        let mut ahead = self.ahead.lock();
        let current = ahead.current.as_ref();
        *ahead = Ahead {
            back: current.map(|(entry, _)| entry.at.minus(1)),
            ..Ahead::default()
        };
    }

    fn wait(&self, op: &Arc<OpContext>, until: Instant) -> Result<()> {
        let (position, replied) = {
            let told = self.told.lock();
            (told.position, told.replied)
        };
        let changes = &self.engine.changes;
        let waits = Waits {
            scope: &self.scope,
            after: position,
            told: if self.merged { replied } else { Timestamp::MAX },
        };
        changes.feed.wait(&self.engine.store, &waits, op, until);
        op.check()
    }

    fn has_news(&self) -> bool {
        let told = self.told.lock();
        let replied = told.replied;
        self.merged && told.position > replied && self.engine.changes.feed.asked() > replied
    }

    fn passes(&self, doc: Doc<'_>) -> Result<()> {
        let mut told = self.told.lock();
        check_token(doc, Doc::new(&told.given))?;
        told.passes();
        Ok(())
    }

    fn token(&self, drained: bool) -> Option<DocBuf> {
        let mut told = self.told.lock();
        if self.merged && drained {
            // Other shards may have events of the time at which this one's newest was, or the stream has
            // ended and the router gives their earlier ones before.
            told.replied = told.position;
            return Some(Token::high_water(told.position.plus(1)).to_doc());
        }
        told.replied = told.position.minus(1);
        let newest = told.passed_at >= told.position || self.has_ended();
        Some(match newest || !drained {
            true if !told.passed.is_empty() => DocBuf::from_doc(Doc::new(&told.passed)),
            _ => Token::high_water(told.position.plus(1)).to_doc(),
        })
    }

    fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    fn is_change_stream(&self) -> bool {
        true
    }
}

/// Checks that an event still has its token after all stages.
///
/// # Errors
/// 280 ChangeStreamFatalError.
pub(super) fn check_token(event: Doc<'_>, given: Doc<'_>) -> Result<()> {
    let found = event.get_doc("_id");
    if found.is_some_and(|d| d.as_bytes() == given.as_bytes()) {
        return Ok(());
    }
    let shown = event
        .get("_id")
        .map_or("nothing".into(), |v| v.to_display());
    Err(Error::new(
        Code::ChangeStreamFatalError,
        format!(
            "Encountered an event whose _id field, which contains the resume token, was modified by \
             the pipeline. Modifying the _id field of an event makes it impossible to resume the \
             stream from that point. Only transformations that retain the unmodified _id field are \
             allowed. Expected: {} but found: {shown}",
            given.to_display()
        ),
    ))
}

/// Error 280 ChangeStreamFatalError, if the token's event is not one that this stream gives.
fn not_found(place: Place) -> Error {
    let token = Token {
        place,
        uuid: None,
        fragment: None,
    };
    Error::new(
        Code::ChangeStreamFatalError,
        format!(
            "cannot resume stream; the resume token was not found. {}",
            token.to_doc().as_doc().to_display()
        ),
    )
}

/// Error 286 ChangeStreamHistoryLost.
fn history_lost() -> Error {
    Error::new(
        Code::ChangeStreamHistoryLost,
        "Resume of change stream was not possible, as the resume point may no longer be in the \
         oplog.",
    )
}

fn lost(e: Error) -> Error {
    match e.code() {
        Code::ChangeStreamHistoryLost => history_lost(),
        // The label tells the driver to resume from its token. That works when other streams have
        // released the entries that they keep in memory.
        Code::ExceededMemoryLimit => e.with_label("ResumableChangeStreamError"),
        _ => e,
    }
}
