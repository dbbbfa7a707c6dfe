//! The shard that gets a range.
//!
//! It asks the donor for the rows, then for what sessions remember of retryable writes, and then again and again for
//! what has changed. All of that is written as foreign rows, which nobody sees. A step works for about a second, so
//! that the router can keep its right to change the collection in between.
//!
//! What is written is decided by what the donor has now, so steps may be repeated. What is in memory here is only how
//! far it has come: if it is lost, the move fails.

use super::arrivals::{Arrival, Phase};
use super::donor::is_of;
use super::stage::stage;
use super::{
    PATIENCE, clean, id_of, measurements, moved, next_of, plain_binary, range_of, range_to,
    right_of,
};
use crate::context::CommandContext;
use crate::distributed::durable;
use crate::options::SetAddress;
use muniment_exec::OpContext;
use muniment_member::{times_of, timestamp};
use muniment_op::{Interrupt, Mistake, makes};
use muniment_storage::{
    Busy, Changed, Collection, Moves, Owned, Placement, SessionKey, SessionRecord, Staged, Store,
    Timestamp, WriteUnit,
};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// So long a step works, about.
const STEP: Duration = Duration::from_secs(1);
/// So long the last step works: nobody can write to the range meanwhile.
const LAST: Duration = Duration::from_secs(3);

/// The port of a shard whose address names none.
const PORT: u16 = 27018;

/// A step's collection, and the move.
struct Step<'a> {
    cx: &'a CommandContext<'a>,
    collection: Arc<Collection>,
    id: [u8; 16],
}

/// `_shardReceive`: a step of a move that brings a range here.
///
/// # Errors
/// 11000 DuplicateKey if a document of the range has the `_id` of another one here; those of the donor; those of
/// writing; 263 if the move is not known here.
pub fn receive(cx: &mut CommandContext<'_>) -> Result<()> {
    let (collection, _) = moved(cx)?;
    let step = Step {
        cx,
        collection,
        id: id_of(cx)?,
    };
    let reply = match cx.args.str("step").unwrap_or_default() {
        "begin" => step.begin()?,
        "copy" => step.copy(None)?,
        "finish" => step.copy(Some(cx.args.get("least").map_or(Timestamp::ZERO, times_of)))?,
        "abort" => step.abort()?,
        other => return Err(Error::bad_value(format!("a move has no step '{other}'"))),
    };
    cx.reply.elements(reply.as_doc());
    Ok(())
}

impl Step<'_> {
    fn store(&self) -> &Store {
        &self.cx.engine().store
    }

    fn op(&self) -> &OpContext {
        self.cx.op
    }

    fn place(
        &self,
        change: impl FnOnce(Option<&Placement>) -> Result<Option<Placement>>,
    ) -> Result<()> {
        let on = (self.store(), self.op());
        super::place(on, &self.collection, PATIENCE, change)
    }

    /// Cleans old rows of the range, and then has it arrive. The reply says whether it is `ready`, and if not,
    /// whether because of `readers`.
    fn begin(&self) -> Result<DocBuf> {
        let range = range_of(self.cx.args.array("range"))?;
        let donor = SetAddress::parse(self.cx.args.str("from").unwrap_or_default(), PORT)?;
        let until = muniment_op::now() + STEP;
        let (server, op) = (self.cx.server, self.op());
        if !clean::wait_for_readers(server, op, &self.collection, &range, until)? {
            return Ok(doc! { "ready": false, "readers": true });
        }
        if !clean::clean(server, op, &self.collection, &range, until)? {
            return Ok(doc! { "ready": false });
        }
        let arrival = Arrival {
            donor: self.cx.server.distributed.sets.of(&donor),
            range: range.clone(),
            phase: Phase::Rows(None),
            until: None,
            used: muniment_op::now(),
            stint: self.cx.server.transactions.stint(),
        };
        // Known before the range arrives, so that the cleaner does not take it for one that was left.
        self.cx.server.moving.begin(self.id, arrival);
        self.collection.asked_again(usize::MAX);
        let placed = self.place(|held| {
            let held = held.ok_or_else(|| Error::internal("a range of a whole collection"))?;
            let right = right_of(self.cx);
            held.receiving(self.id, range)
                .map(|next| Some(next.by_right(right)))
        });
        match placed {
            Err(e) if e.code() == Code::LockTimeout => Ok(doc! { "ready": false }),
            Err(e) => {
                self.cx.server.moving.end(&self.id);
                Err(e)
            }
            Ok(()) => {
                self.cx.server.moving.figures.received.fetch_add(1, Relaxed);
                Ok(doc! { "ready": true })
            }
        }
    }

    /// Copies for a while, or with `least` until everything up to this time has arrived.
    fn copy(&self, least: Option<Timestamp>) -> Result<DocBuf> {
        let found = self.cx.server.moving.arrival(&self.id);
        let found = found.ok_or_else(unknown)?;
        let Some(mut arrival) = found.try_lock() else {
            return Err(Error::new(
                Code::ConflictingOperationInProgress,
                "another step of the move is under way",
            ));
        };
        // What was copied while this member led before may have been taken back since.
        if arrival.stint != self.cx.server.transactions.stint() {
            return Err(unknown());
        }
        let all = self.rounds(&mut arrival, least)?;
        arrival.used = muniment_op::now();
        drop(arrival);
        if least.is_some() {
            durable(self.cx.server, self.op())?;
            self.cx.server.moving.end(&self.id);
        }
        let at = timestamp(self.store().visible());
        Ok(doc! { "caughtUp": all, "at": at })
    }

    /// Asks the donor and writes what it tells: for a while, or with `least` until everything up to this time is here,
    /// which is then noted. True if there was nothing more in the end.
    fn rounds(&self, arrival: &mut Arrival, least: Option<Timestamp>) -> Result<bool> {
        let until = muniment_op::now() + if least.is_some() { LAST } else { STEP };
        loop {
            self.op().check()?;
            if least.is_some() && makes(Mistake::LastRoundSkipped) {
                return self.complete();
            }
            let all = self.once(arrival, least)?;
            let Some(least) = least else {
                if all || muniment_op::now() >= until {
                    return Ok(all);
                }
                continue;
            };
            let reached = arrival.until.is_some_and(|at| at >= least);
            if all && reached && self.complete()? {
                return Ok(true);
            }
            if muniment_op::now() >= until {
                let why = "too much was written to the range in the end of its move";
                return Err(Error::new(Code::LockTimeout, why));
            }
        }
    }

    /// Notes that everything has arrived. False if a row has given way to another document since it was copied.
    fn complete(&self) -> Result<bool> {
        let mut complete = false;
        self.place(|held| {
            let of_this = |h: &&Placement| h.moving().is_some_and(|m| m.id == self.id);
            let held = held.filter(of_this).ok_or_else(ended)?;
            complete = self.collection.displaced().is_empty();
            Ok(Some(match complete {
                true => held.completed(),
                false => held.clone(),
            }))
        })?;
        Ok(complete)
    }

    /// Asks the donor once, and writes what it tells. True if there is nothing more for now.
    fn once(&self, arrival: &mut Arrival, least: Option<Timestamp>) -> Result<bool> {
        match arrival.phase.clone() {
            Phase::Rows(after) => {
                let mut more = DocBuf::new();
                more.append_some("after", after.as_deref().map(plain_binary));
                // Changes are asked for from the first reply's time on, so no later one may be of an earlier time.
                more.append_some("least", arrival.until.map(timestamp));
                let reply = self.ask(arrival, "_shardRows", more)?;
                let reply = reply.as_doc();
                // Later views are of later times, so what changes from here on will be told again.
                arrival.until = arrival.until.or(reply.get("at").map(times_of));
                self.write(arrival, reply, &[])?;
                arrival.phase = match next_of(reply) {
                    Some(next) => Phase::Rows(Some(next)),
                    None => Phase::Sessions(None),
                };
                Ok(false)
            }
            Phase::Sessions(after) => {
                let mut more = DocBuf::new();
                more.append_some("after", after.as_deref().map(plain_binary));
                more.append_some("least", arrival.until.map(timestamp));
                let reply = self.ask(arrival, "_shardSessions", more)?;
                self.remember(reply.as_doc())?;
                arrival.phase = match next_of(reply.as_doc()) {
                    Some(next) => Phase::Sessions(Some(next)),
                    None => Phase::Changes,
                };
                Ok(false)
            }
            Phase::Changes => {
                let after = arrival.until.unwrap_or(Timestamp::ZERO);
                let mut more = doc! { "after": timestamp(after) };
                more.append_some("least", least.map(timestamp));
                let again = self.collection.displaced();
                let ids: ArrayBuf = again.iter().collect();
                more.append("ids", ids);
                let reply = self.ask(arrival, "_shardChanges", more)?;
                let reply = reply.as_doc();
                // Before the donor is frozen, a transaction that has moved a document here may not have reached it yet.
                let last = least.map_or(&[][..], |_| &again);
                self.write(arrival, reply, last)?;
                self.remember(reply)?;
                self.collection.asked_again(again.len());
                arrival.until = reply.get("until").map(times_of);
                Ok(!reply.get("more").is_some_and(|v| v.truthy()))
            }
        }
    }

    fn ask(&self, arrival: &Arrival, command: &str, more: DocBuf) -> Result<DocBuf> {
        let ns = self.collection.name();
        let (db, name) = ns.split_once('.').unwrap_or_default();
        let uuid = self.collection.uuid();
        let mut body = DocBuf::new();
        body.append(command, name);
        body.append(
            "uuid",
            Value::Binary {
                subtype: 4,
                bytes: &uuid,
            },
        );
        body.append("range", range_to(&arrival.range));
        for e in more.as_doc() {
            body.append_elem(e);
        }
        arrival.donor.run(db, &body, None, true, self.op())
    }

    /// Deletes the documents of a reply that are gone, and writes the others. `again`: the `_id`s of documents that were
    /// asked for, with nothing changing any more, because other documents had theirs.
    fn write(&self, arrival: &mut Arrival, reply: Doc<'_>, again: &[DocBuf]) -> Result<()> {
        let range = arrival.range.clone();
        let open = || self.unit(&range);
        if self.collection.is_time_series() {
            let figures = &self.cx.server.moving.figures;
            return measurements::write(open, self.op(), reply, figures);
        }
        let mut unit = open()?;
        for id in reply.get_array("gone").unwrap_or(Doc::EMPTY).values() {
            let Some(id) = id.as_doc().and_then(|d| d.get("_id")) else {
                continue;
            };
            (unit, ()) = stage(unit, open, self.op(), |unit| take(unit, id))?;
        }
        for doc in reply.get_array("docs").unwrap_or(Doc::EMPTY).values() {
            let Some(doc) = doc.as_doc() else { continue };
            let mut put_it = true;
            (unit, ()) = stage(unit, open, self.op(), |unit| match put_it {
                false => Ok(Ok(())),
                // What gives way was changed on the donor since it was copied, so the donor tells of it again.
                true => put(unit, doc, &mut |_| {})
                    .map(|staged| staged.map(drop))
                    .or_else(|e| {
                        if e.code() != Code::StaleConfig {
                            return Err(e);
                        }
                        // Another document has its `_id`. It may have been deleted on the other shard since.
                        self.gives_way(doc, again)?;
                        put_it = false;
                        Ok(Ok(()))
                    }),
            })?;
            self.cx.server.moving.figures.written.add(doc.byte_len());
        }
        unit.commit().map(drop)
    }

    /// Notes that a document cannot be written, to ask for it again.
    ///
    /// # Errors
    /// 11000 DuplicateKey if it was asked for again already.
    fn gives_way(&self, doc: Doc<'_>, again: &[DocBuf]) -> Result<()> {
        if !again.iter().any(|a| id_bytes(a.as_doc()) == id_bytes(doc)) {
            self.collection.displace(doc);
            return Ok(());
        }
        let id = doc.get("_id").unwrap_or(Value::Null).to_display();
        let why =
            format!("a document with _id {id} is on both shards, so its range cannot be moved");
        Err(Error::new(Code::DuplicateKey, why))
    }

    /// A unit for foreign rows of the range, which still arrives in this move.
    fn unit(&self, range: &Owned) -> Result<WriteUnit<'_>> {
        let mut unit = self.store().write_unit(&self.collection, self.op())?;
        let held = self.collection.placement();
        match held.is_some_and(|p| is_of(&p, &self.id, range)) {
            true => unit.moves(Moves::In),
            false => return Err(ended()),
        }
        Ok(unit)
    }

    /// Takes over what sessions remember.
    fn remember(&self, reply: Doc<'_>) -> Result<()> {
        if makes(Mistake::SessionsForgotten) {
            return Ok(());
        }
        let mut told = reply.get_array("sessions").unwrap_or(Doc::EMPTY).values();
        told.try_for_each(|told| remember(self.cx, told))
    }

    /// Ends the move, after which the rows are waste.
    fn abort(&self) -> Result<DocBuf> {
        self.cx.server.moving.end(&self.id);
        let arrives = |p: &Arc<Placement>| p.moving().is_some_and(|m| m.arrives && m.id == self.id);
        if self.collection.placement().as_ref().is_some_and(arrives) {
            self.place(|held| {
                let of_this = held.filter(|h| h.moving().is_some_and(|m| m.id == self.id));
                Ok(of_this.map(|h| h.still()).or(held.cloned()))
            })?;
        }
        Ok(DocBuf::new())
    }
}

/// Stages a document in the place of what has its `_id`, and of what has its unique keys, of which `gives_way` is told.
/// True if another version of it was there.
///
/// # Errors
/// 13388 StaleConfig if that is a document of this shard's own.
pub(super) fn put(
    unit: &mut WriteUnit<'_>,
    doc: Doc<'_>,
    gives_way: &mut dyn FnMut(Doc<'_>),
) -> Staged<bool> {
    match put_over(unit, doc) {
        Err(e) if e.code() == Code::DuplicateKey => {}
        other => return other,
    }
    for record_key in unit.in_the_way_of(doc)? {
        let there = match unit.lock(&record_key)? {
            Err(Busy) => return Ok(Err(Busy)),
            Ok(there) => there,
        };
        let Some(old) = there.filter(|old| id_bytes(Doc::new(old)) != id_bytes(doc)) else {
            continue;
        };
        if unit.delete(&record_key, &old)?.is_err() {
            return Ok(Err(Busy));
        }
        gives_way(Doc::new(&old));
    }
    put_over(unit, doc)
}

/// Stages a document in the place of what has its `_id`. True if that was another version of it.
fn put_over(unit: &mut WriteUnit<'_>, doc: Doc<'_>) -> Staged<bool> {
    let inserted = |staged: Staged<()>| staged.map(|s| s.map(|()| false));
    match unit.insert(doc.as_bytes()) {
        Err(e) if e.code() == Code::DuplicateKey => {}
        other => return inserted(other),
    }
    let id = doc.get("_id").unwrap_or(Value::Null);
    let there = match unit.lock_by_id(id)? {
        Err(Busy) => return Ok(Err(Busy)),
        Ok(there) => there,
    };
    match there {
        Some((_, old)) if *old == *doc.as_bytes() => Ok(Ok(false)),
        Some((record_key, old)) => {
            let new = bytes::Bytes::copy_from_slice(doc.as_bytes());
            let staged = unit.update(&record_key, &old, &new, Changed::Whole, &|_| true)?;
            Ok(staged.map(|()| true))
        }
        None => inserted(unit.insert(doc.as_bytes())),
    }
}

/// Takes over what a session remembers on another shard.
///
/// # Errors
/// 9 FailedToParse; those of writing.
pub(super) fn remember(cx: &CommandContext<'_>, told: Value<'_>) -> Result<()> {
    let bytes = |name: &str| match told.as_doc().and_then(|d| d.get(name)) {
        Some(Value::Binary { bytes, .. }) => Some(bytes),
        _ => None,
    };
    let key = bytes("key").and_then(SessionKey::from_bytes);
    let record = bytes("record").and_then(SessionRecord::decode);
    let Some((key, record)) = key.zip(record) else {
        return Err(Error::failed_to_parse(
            "the donor has told of a session in no known form",
        ));
    };
    let (server, op) = (cx.server, cx.op);
    server.transactions.take_over(server, op, key, &record)
}

/// A document's `_id` as it is stored.
pub(super) fn id_bytes<'d>(doc: Doc<'d>) -> Option<&'d [u8]> {
    doc.get_elem("_id").map(|e| e.as_bytes())
}

fn unknown() -> Error {
    Error::new(
        Code::InvalidOptions,
        "this server does not know the move: another member may have led the set when it began",
    )
}

/// Stages the deletion of a document that has left the range, if it is here as a foreign row.
pub(super) fn take(unit: &mut WriteUnit<'_>, id: Value<'_>) -> Staged<()> {
    let there = match unit.lock_by_id(id)? {
        Err(Busy) => return Ok(Err(Busy)),
        Ok(there) => there,
    };
    let Some((record_key, old)) = there else {
        return Ok(Ok(()));
    };
    match unit.delete(&record_key, &old) {
        // It was moved within this shard's own ranges: by an update of its key.
        Err(e) if e.code() == Code::StaleConfig => Ok(Ok(())),
        other => other,
    }
}

fn ended() -> Error {
    Error::new(
        Code::ConflictingOperationInProgress,
        "the move has ended on the shard that gets the range",
    )
}
