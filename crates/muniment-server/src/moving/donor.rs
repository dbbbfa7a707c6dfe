//! The shard that gives a range.

use super::{PATIENCE, RECORD_KEYS, id_of, moved, place, plain_binary, range_of, right_of};
use crate::context::CommandContext;
use crate::distributed::durable;
use muniment_member::{times_of, timestamp};
use muniment_op::{Interrupt, Mistake, makes};
use muniment_shard::ShardKey;
use muniment_storage::{
    Collection, Owned, Placement, SessionKey, SessionRecord, SessionState, Snapshot, Store, What,
    Whole, is_in,
};
use muniment_value::{ArrayBuf, Doc, DocBuf, Error, Result, Value, doc};
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of documents in one reply, about.
const BYTES: usize = 4 << 20;
/// Documents and `_id`s in one reply, at most.
const COUNT: usize = 20_000;
/// Sessions in one reply, at most.
const SESSIONS: usize = 1000;

/// The rows that a step asks for: those of a range, whoever owns them, or all that this shard owns if it names none.
struct Asked {
    range: Owned,
    view: Snapshot,
}

impl Asked {
    /// With `least`, the view is of this time at least.
    fn of(cx: &CommandContext<'_>, key: &ShardKey) -> Result<Asked> {
        come_to_least(cx)?;
        let store = &cx.engine().store;
        let view = store.majority_snapshot()?;
        let view = view.unwrap_or_else(|| store.snapshot());
        Ok(match cx.args.array("range") {
            Some(range) => Asked {
                range: range_of(Some(range))?,
                view: view.with_foreign_rows(),
            },
            None => Asked {
                range: (key.lowest(), None),
                view,
            },
        })
    }
}

/// Waits until the majority has come to the time `least`, if the command names one: a member that led before, and does not
/// know yet that it leads no more, never comes to what another one has told.
fn come_to_least(cx: &CommandContext<'_>) -> Result<()> {
    let store = &cx.engine().store;
    let Some(least) = cx.args.get("least").map(times_of) else {
        return Ok(());
    };
    if least > store.visible() {
        store.commit_nothing(&**cx.op)?;
    }
    store.wait_for_majority(least, &**cx.op)
}

/// `_shardRows`: the rows that are [`Asked`] for after a place, as far as one reply has room: `docs`, `at` (the time of
/// the view), and `next` (the place to go on from) if there are more. Measurements, which no `_id` tells apart, come with
/// their `recordKeys`.
///
/// # Errors
/// Those of reading.
pub fn rows(cx: &mut CommandContext<'_>) -> Result<()> {
    let (collection, placement) = moved(cx)?;
    let after = match cx.args.get("after") {
        Some(Value::Binary { bytes, .. }) => Some(bytes.to_vec()),
        _ => None,
    };
    let Asked { range, view } = Asked::of(cx, &placement.key)?;
    let mut rows = view.rows_of_range(&collection, &placement.key, &range, after.as_deref());
    let mut docs = ArrayBuf::new();
    let mut keys = collection.is_time_series().then(ArrayBuf::new);
    let mut next = None;
    let mut bytes = 0;
    while let Some(row) = rows.next(&**cx.op)? {
        docs.push(Doc::new(&row.doc));
        if let Some(keys) = &mut keys {
            keys.push(plain_binary(&row.record_key));
        }
        bytes += row.doc.len();
        cx.server.moving.figures.read.add(row.doc.len());
        if bytes >= BYTES || docs.len() >= COUNT {
            next = Some(row.place);
            break;
        }
    }
    cx.reply.field("docs", docs);
    if let Some(keys) = keys {
        cx.reply.field(RECORD_KEYS, keys);
    }
    cx.reply.field("at", timestamp(view.timestamp()));
    if let Some(bytes) = &next {
        cx.reply.field("next", Value::Binary { subtype: 0, bytes });
    }
    Ok(())
}

/// What has changed in a range.
#[derive(Default)]
struct Changes {
    docs: ArrayBuf,
    /// The record keys of the documents, if these are measurements.
    keys: ArrayBuf,
    gone: ArrayBuf,
    bytes: usize,
    count: usize,
    seen: HashSet<Vec<u8>>,
    sessions: BTreeSet<[u8; 48]>,
}

/// Where changes are looked for.
struct Within<'w> {
    view: &'w Snapshot,
    collection: &'w Collection,
    key: &'w ShardKey,
    range: &'w Owned,
}

impl Changes {
    /// Adds a document as it is now, or that it is gone; `id` is `{_id}`.
    fn add(&mut self, within: &Within<'_>, id: Doc<'_>) -> Result<()> {
        let Some(value) = id.get("_id") else {
            return Ok(());
        };
        if !self.seen.insert(id.as_bytes().to_vec()) {
            return Ok(());
        }
        self.count += 1;
        let now = within.view.find_by_id(within.collection, value)?;
        if !self.is_there(within, now.as_ref().map(|(_, doc)| &**doc)) {
            self.bytes += id.as_bytes().len();
            self.gone.push(id);
        }
        Ok(())
    }

    /// The same for a measurement, which its record key names.
    fn add_measurement(&mut self, within: &Within<'_>, record_key: &[u8]) -> Result<()> {
        if !self.seen.insert(record_key.to_vec()) {
            return Ok(());
        }
        self.count += 1;
        self.bytes += record_key.len();
        let now = within.view.get(within.collection, record_key)?;
        let name = plain_binary(record_key);
        match self.is_there(within, now.as_deref()) {
            true => self.keys.push(name),
            false => self.gone.push(name),
        };
        Ok(())
    }

    /// Adds what a row is now, if it lies in the range. False if it does not, or is not there.
    fn is_there(&mut self, within: &Within<'_>, now: Option<&[u8]>) -> bool {
        let mut buf = Vec::new();
        let there = now.filter(|doc| is_in(within.key, within.range, doc, &mut buf));
        if let Some(doc) = there {
            self.bytes += doc.len();
            self.docs.push(Doc::new(doc));
        }
        there.is_some()
    }

    fn is_full(&self) -> bool {
        self.bytes >= BYTES || self.count >= COUNT || self.sessions.len() >= SESSIONS
    }
}

/// `_shardChanges`: the documents that are [`Asked`] for and were changed after a time, as they are now (`docs`), the `_id`s of
/// those that are not in the range any more (`gone`), the sessions that have written meanwhile, the time up to which
/// that is all (`until`), and whether there is `more`. With `least`, the reply goes up to this time at least. The
/// documents with these `ids` are told in any case. Without `after`, no others are, and as many of these as the reply has
/// room for (`told`). Measurements are named by their record keys: under `recordKeys` those of the documents, and in
/// `gone` instead of `_id`s.
///
/// # Errors
/// Those of reading; 286 if the log does not reach back so far.
pub fn changes(cx: &mut CommandContext<'_>) -> Result<()> {
    let (collection, placement) = moved(cx)?;
    let after = cx.args.get("after").map(times_of);
    let store = &cx.engine().store;
    let Asked { range, view } = Asked::of(cx, &placement.key)?;
    let (mut until, mut more) = (view.timestamp(), false);
    let mut entries = store.log_entries(after.unwrap_or(until))?;
    let within = Within {
        view: &view,
        collection: &collection,
        key: &placement.key,
        range: &range,
    };
    let measured = collection.is_time_series();
    let mut found = Changes::default();
    let mut answered = 0_i32;
    for id in cx.args.array("ids").unwrap_or(Doc::EMPTY).values() {
        if after.is_none() && found.is_full() {
            break;
        }
        found.add(&within, id.as_doc().unwrap_or(Doc::EMPTY))?;
        answered += 1;
    }
    // A reader of the log that has nothing more for now has perhaps not come to the view's time.
    let mut ends = false;
    while let Some(entry) = entries.next()? {
        cx.op.check()?;
        if entry.at > view.timestamp() {
            ends = true;
            break;
        }
        for op in &entry.ops {
            if op.of.as_ref().is_none_or(|of| of.uuid != collection.uuid()) {
                continue;
            }
            if let Some((key, _)) = entry.session
                && !matches!(entry.whole, Whole::Transaction(_))
            {
                found.sessions.insert(key.to_bytes());
            }
            if measured {
                found.add_measurement(&within, &op.record_key)?;
            } else if let Some(id) = id_in(&op.what) {
                found.add(&within, id.as_doc())?;
            }
        }
        if found.is_full() {
            (until, more) = (entry.at, entry.at < view.timestamp());
            ends = true;
            break;
        }
    }
    let read = entries.position();
    if !ends && read < until {
        (until, more) = (read, true);
    }
    let sessions = sessions_of(cx, &found.sessions)?;
    cx.reply.field("docs", found.docs);
    if measured {
        cx.reply.field(RECORD_KEYS, found.keys);
    }
    cx.reply.field("gone", found.gone);
    cx.reply.field("sessions", sessions);
    cx.reply.field("told", answered);
    cx.reply.field("until", timestamp(until));
    cx.reply.field("more", more);
    Ok(())
}

/// `{_id}` of the document that an operation has changed.
fn id_in(what: &What) -> Option<DocBuf> {
    match what {
        What::Insert { doc } | What::Replace { doc } => {
            let mut id = DocBuf::new();
            id.append_elem(Doc::new(doc).get_elem("_id")?);
            Some(id)
        }
        What::Update { id, .. } | What::Delete { id } => Some(muniment_exec::id_doc(id)),
        What::Note { .. } => None,
    }
}

/// Waits until the majority has what sessions were read to remember: if a write is given up after an election, the other
/// shard must not remember that it was executed.
fn confirm(cx: &CommandContext<'_>) -> Result<()> {
    match makes(Mistake::SessionsUnconfirmed) {
        true => Ok(()),
        false => durable(cx.server, cx.op),
    }
}

/// What these sessions remember of retryable writes.
fn sessions_of(cx: &CommandContext<'_>, sessions: &BTreeSet<[u8; 48]>) -> Result<ArrayBuf> {
    let keys = sessions.iter().filter_map(|b| SessionKey::from_bytes(b));
    let told = keys.map(|key| session_of(&cx.engine().store, &key));
    let told = told.collect::<Result<Vec<_>>>()?;
    if !sessions.is_empty() {
        confirm(cx)?;
    }
    Ok(told.into_iter().flatten().collect())
}

/// What a session remembers of retryable writes: `{key, record}`.
fn session_of(store: &Store, key: &SessionKey) -> Result<Option<DocBuf>> {
    let Some(session) = store.session(key)? else {
        return Ok(None);
    };
    let head = session.head().record();
    if head.state != SessionState::Retryable {
        return Ok(None);
    }
    let mut record = SessionRecord::new(head.number, head.state, head.at_ms);
    for run in session.runs() {
        record.push(run.clone());
    }
    let (key, record) = (key.to_bytes(), record.encode());
    let binary = |bytes| Value::Binary { subtype: 0, bytes };
    Ok(Some(
        doc! { "key": binary(&key), "record": binary(&record) },
    ))
}

/// `_shardSessions`: what sessions remember of retryable writes, after a session's key, and `next` if there are more.
///
/// # Errors
/// Those of reading.
pub fn sessions(cx: &mut CommandContext<'_>) -> Result<()> {
    let after = match cx.args.get("after") {
        Some(Value::Binary { bytes, .. }) => SessionKey::from_bytes(bytes),
        _ => None,
    };
    let store = &cx.engine().store;
    come_to_least(cx)?;
    let keys = store.session_keys(after.as_ref(), SESSIONS, &**cx.op)?;
    let mut sessions = ArrayBuf::new();
    let mut bytes = 0;
    let mut last = None;
    for key in &keys {
        last = Some(key);
        let told = session_of(store, key)?;
        if let Some(told) = told {
            bytes += told.as_bytes().len();
            sessions.push(told);
        }
        if bytes >= BYTES {
            break;
        }
    }
    confirm(cx)?;
    cx.reply.field("sessions", sessions);
    let whole = keys.len() < SESSIONS && last == keys.last();
    if let Some(last) = last.filter(|_| !whole) {
        let bytes = &last.to_bytes()[..];
        cx.reply.field("next", Value::Binary { subtype: 0, bytes });
    }
    Ok(())
}

/// `_shardGive`: nothing is written to a range from here on, or to the whole collection if none is named, and routers
/// wait; `at` is a time from which on that is so.
///
/// # Errors
/// 24 LockTimeout if transactions that use the collection do not end soon; those of [`Placement::giving`].
pub fn give(cx: &mut CommandContext<'_>) -> Result<()> {
    let (collection, _) = moved(cx)?;
    let id = id_of(cx)?;
    let range = cx.args.array("range").map(|r| range_of(Some(r)));
    let range = range.transpose()?;
    let right = right_of(cx);
    let store = &cx.engine().store;
    place((store, cx.op), &collection, PATIENCE, |held| {
        let held = held.ok_or_else(|| Error::internal("a range of a whole collection"))?;
        if makes(Mistake::NoGate) {
            return Ok(Some(held.clone()));
        }
        match range {
            Some(range) => held.giving(id, range),
            None => held.giving_all(id),
        }
        .map(|next| Some(next.by_right(right)))
    })?;
    cx.server.moving.figures.given.fetch_add(1, Relaxed);
    durable(cx.server, cx.op)?;
    cx.reply.field("at", timestamp(store.visible()));
    Ok(())
}

/// Whether a placement is that of a range which is about to be given away, or arrives, in this move.
pub fn is_of(placement: &Placement, id: &[u8; 16], range: &Owned) -> bool {
    let moving = placement.moving();
    moving.is_some_and(|m| m.id == *id && m.range == *range)
}
