//! Moving a range to another shard.
//!
//! 1. The right to change the collection is taken, and all shards are told what the configuration says: whatever an
//!    earlier move has left undecided ends. The recipient gets the collection and its indexes.
//! 2. The recipient cleans old rows of the range, and copies what the donor has of it, again and again, until little is
//!    left.
//! 3. The donor is frozen: it takes no writes to the range, and routers wait. The recipient copies the rest, after which
//!    routers wait for it, too.
//! 4. The configuration decides, in the transaction that gives the right back. The time from which on the range is the
//!    recipient's is later than everything that was copied.
//! 5. Both shards are told. The donor deletes the rows later.
//!
//! A router that ends before 4 has moved nothing: once its right is old, [`settle`] ends what it has
//! begun. After 4, `settle` does 5. What is frozen stays so whichever member leads the donor's set, since it is a part
//! of the collection's catalog entry that the majority has; so nobody writes what is not copied.

use super::chunks::{Change, Why, between, move_of, note, replace, split_of, with_lease};
use super::lease::Lease;
use super::place::{Ends, Stored, agree, all_agree, placed, retell, stored};
use super::settle;
use crate::context::CommandContext;
use crate::moving::range_to;
use crate::router::configuration::read;
use crate::router::forward::run;
use crate::router::{Known, Router, SetPool};
use crate::uuid::{random_uuid, uuid_value};
use muniment_shard::{ShardKey, Timestamp};
use muniment_storage::Owned;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc};
use std::sync::Arc;
use std::time::Duration;

/// How often the donor is asked to give the range away, and the recipient to take it, while transactions use the
/// collection.
const ATTEMPTS: u8 = 20;
/// So long the recipient is asked to let a range arrive while transactions use the collection there.
const BEGIN: Duration = Duration::from_secs(15);
/// And so long while somebody reads rows of the range that were given away. A cursor may stay open for long, and others
/// wait for the right to change the collection.
const READERS: Duration = Duration::from_secs(3);

/// What is asked for.
pub struct MoveRequest<'r> {
    /// The collection's full name.
    pub ns: &'r str,
    /// The shard key that the bounds are of.
    pub key: &'r ShardKey,
    /// The lower bound, which is inside, as the bytes of a shard key.
    pub min: Vec<u8>,
    /// The upper bound, which is outside.
    pub max: Vec<u8>,
    /// The name of the shard that gets the range.
    pub to: &'r str,
    /// The rows are deleted on the other shard before the reply.
    pub wait_for_delete: bool,
}

/// A move under way.
struct Move<'m> {
    cx: &'m CommandContext<'m>,
    router: &'m Router,
    lease: &'m Lease,
    known: &'m Arc<Known>,
    request: &'m MoveRequest<'m>,
    id: [u8; 16],
    range: Owned,
    from: usize,
    donor: Arc<SetPool>,
    recipient: Arc<SetPool>,
}

/// Moves a range, which lies in one chunk, to a shard. If it is there already, nothing is done.
///
/// # Errors
/// 2 BadValue for a range that no chunk has; 70 ShardNotFound; 24 LockTimeout if transactions or writes of many
/// documents do not let the donor freeze the range; 11000 DuplicateKey if both shards have a document with the same
/// `_id`; 46, 117 if another router changes the collection; those of the sets.
pub fn move_range(
    cx: &CommandContext<'_>,
    router: &Router,
    request: &MoveRequest<'_>,
) -> Result<()> {
    let to = router.catalog.shard(&**cx.op, router, request.to)?;
    let donor = with_lease(cx, router, (request.ns, "moveRange"), |lease, known| {
        if *known.key != *request.key {
            return Err(Error::new(
                Code::ConflictingOperationInProgress,
                format!("the shard key of {} was changed meanwhile", request.ns),
            ));
        }
        let chunk = known.table.find(&request.min);
        if request.min >= request.max || request.min < chunk.min || request.max > chunk.max {
            return Err(Error::bad_value(format!(
                "the range to be moved does not lie in one chunk of {}",
                request.ns
            )));
        }
        if known.table.shard_name(chunk.shard) == request.to {
            return Ok(None);
        }
        let end = (request.max != known.key.highest()).then(|| request.max.clone());
        let donor = Arc::clone(known.set(chunk.shard)?);
        let this = Move {
            cx,
            router,
            lease,
            known,
            request,
            id: random_uuid(),
            range: (request.min.clone(), end),
            from: chunk.shard,
            donor: Arc::clone(&donor),
            recipient: Arc::clone(&to),
        };
        this.run()?;
        Ok(Some((donor, known.collection.generation.uuid)))
    })?;
    if let Some((donor, uuid)) = donor.filter(|_| request.wait_for_delete) {
        let (db, name) = request.ns.split_once('.').unwrap_or_default();
        let clean = doc! { "_shardClean": name, "uuid": uuid_value(&uuid) };
        run(&**cx.op, router, &donor, db, &clean, true)?;
    }
    Ok(())
}

impl Move<'_> {
    fn run(&self) -> Result<()> {
        let held = self.prepare()?;
        self.note("moveChunk.start");
        let mut frozen = None;
        match self.copy(&held, &mut frozen) {
            Ok(at) => self.decide(at, frozen),
            Err(e) => {
                self.undo(frozen);
                self.note("moveChunk.error");
                Err(e)
            }
        }
    }

    /// Sends a step to a shard.
    fn ask(&self, set: &SetPool, command: &str, more: DocBuf) -> Result<DocBuf> {
        let uuid = self.known.collection.generation.uuid;
        let mut body = DocBuf::new();
        body.append(command, self.known.name());
        body.append("uuid", uuid_value(&uuid));
        if more.as_doc().get("id").is_none() {
            body.append("id", uuid_value(&self.id));
        }
        body.append("right", self.lease.at.to_value());
        for e in more.as_doc() {
            body.append_elem(e);
        }
        run(
            &**self.cx.op,
            self.router,
            set,
            self.known.db(),
            &body,
            true,
        )
    }

    fn receive(&self, step: &str, mut more: DocBuf) -> Result<DocBuf> {
        self.lease.renew(self.cx, self.router)?;
        more.append("step", step);
        self.ask(&self.recipient, "_shardReceive", more)
    }

    /// Has both shards agree with the configuration; the collection as the donor has it.
    fn prepare(&self) -> Result<Stored> {
        let (cx, router, ns) = (self.cx, self.router, self.known.ns());
        let held = stored(cx, router, &self.donor, ns)?;
        let held = held.filter(|h| h.uuid == self.known.collection.generation.uuid);
        let held = held.ok_or_else(|| {
            Error::new(
                Code::NamespaceNotFound,
                format!("the shard that owns the range does not have {ns}"),
            )
        })?;
        let right = self.lease.at;
        let donor = (&*self.donor, Some(self.from));
        agree(cx, router, self.known, donor, (None, right))?;
        // Each shard has to note the time of each change of its ranges, so it must know of the last one before the next.
        let others = [&*self.donor, &*self.recipient];
        all_agree(cx, router, self.known, (&others, right))?;
        let place = self.known.table.shard_named(self.request.to);
        let recipient = (&*self.recipient, place);
        agree(cx, router, self.known, recipient, (Some(&held), right))?;
        if place.is_some_and(|place| self.known.table.ranges_on(place) > 0) {
            // It is told of changes of indexes, so what differs may just be changing.
            return Ok(held);
        }
        // A shard that has no chunk is not told of indexes that are dropped.
        let there = stored(cx, router, &self.recipient, ns)?;
        let there = there.map(|t| t.indexes).unwrap_or_default();
        for index in there.iter().filter(|i| !held.indexes.contains(i)) {
            let name = index.as_doc().get_str("name").unwrap_or_default();
            let drop = doc! {
                "dropIndexes": self.known.name(), "index": name,
                "writeConcern": doc! { "w": "majority" },
            };
            run(
                &**cx.op,
                router,
                &self.recipient,
                self.known.db(),
                &drop,
                true,
            )?;
        }
        Ok(held)
    }

    /// Copies the range, with the donor frozen in the end, under the id that is `frozen`; the time from which on it is the
    /// recipient's.
    fn copy(&self, held: &Stored, frozen: &mut Option<[u8; 16]>) -> Result<Timestamp> {
        let (began, mut read_since) = (muniment_op::now(), None);
        let begin = || doc! { "range": range_to(&self.range), "from": self.donor.text() };
        loop {
            let reply = self.receive("begin", begin())?;
            let (who, since, patience) = match is(&reply, "readers") {
                _ if is(&reply, "ready") => break,
                true => {
                    let since = *read_since.get_or_insert_with(muniment_op::now);
                    ("readers older than its last move", since, READERS)
                }
                false => ("transactions", began, BEGIN),
            };
            if muniment_op::since(since) >= patience {
                let (ns, to) = (self.known.ns(), &self.request.to);
                let why = format!("{who} use {ns} on {to}");
                return Err(Error::new(Code::LockTimeout, why));
            }
        }
        self.cx.at_step("afterBegin")?;
        for attempt in 1_u8.. {
            while !is(&self.receive("copy", DocBuf::new())?, "caughtUp") {}
            self.cx.at_step("afterCopy")?;
            // A message that ends one attempt, and comes late, must not end a later one.
            let mut id = self.id;
            id[15] = attempt;
            *frozen = Some(id);
            match self.freeze(held, &id) {
                Err(e) if e.code() == Code::LockTimeout && attempt < ATTEMPTS => {}
                other => return other,
            }
            // What could not be finished must not keep others waiting.
            self.thaw(&id)?;
        }
        Err(Error::internal("a move has no end"))
    }

    /// Has the donor take no more writes to the range, and the recipient copy the rest.
    fn freeze(&self, held: &Stored, id: &[u8; 16]) -> Result<Timestamp> {
        self.lease.renew(self.cx, self.router)?;
        let range = doc! { "range": range_to(&self.range), "id": uuid_value(id) };
        let given = time_of(&self.ask(&self.donor, "_shardGive", range)?)?;
        self.cx.at_step("afterGive")?;
        let now = stored(self.cx, self.router, &self.donor, self.known.ns())?;
        if now.is_none_or(|now| now.indexes != held.indexes || now.options != held.options) {
            return Err(Error::new(
                Code::ConflictingOperationInProgress,
                format!("{} was changed while a range of it moved", self.known.ns()),
            ));
        }
        let least = doc! { "least": given.to_value() };
        let complete = time_of(&self.receive("finish", least)?)?;
        self.cx.at_step("afterFinish")?;
        Ok(given.max(complete))
    }

    /// Has the donor take writes to the range again.
    fn thaw(&self, id: &[u8; 16]) -> Result<()> {
        let of = (self.known.ns(), &self.known.collection.generation.uuid);
        let placement = placed(self.known, Some(self.from))?;
        let ends = Ends {
            id: uuid_value(id),
            right: None,
        };
        let told = (placement, Some(ends));
        retell(self.cx, self.router, &self.donor, of, told)
    }

    /// Has the configuration decide.
    fn decide(&self, at: Timestamp, frozen: Option<[u8; 16]>) -> Result<()> {
        let (cx, router, key) = (self.cx, self.router, &self.known.key);
        let bounds = (self.request.min.as_slice(), self.request.max.as_slice());
        let decided = between(&**cx.op, router, self.known, bounds).and_then(|chunks| {
            let [chunk] = chunks.as_slice() else {
                return Err(Error::internal("a range of several chunks moves"));
            };
            let (min, max) = (
                key.bound(chunk.min.as_doc())?,
                key.bound(chunk.max.as_doc())?,
            );
            let inner = [(&self.request.min, &min), (&self.request.max, &max)];
            let inner = inner.into_iter().filter(|(at, end)| at != end);
            let inner: Vec<Vec<u8>> = inner.map(|(at, _)| at.clone()).collect();
            let moved = usize::from(self.request.min != min);
            let mut parts = split_of(chunk, key, &inner)?;
            if let Some(part) = parts.get_mut(moved) {
                *part = move_of(part, self.request.to, at);
            }
            let details = self.details();
            let change = Change {
                why: Why::Move("moveChunk.commit", &details),
                chunks: parts,
            };
            replace(cx, router, (self.lease, self.known), change)
        });
        let Err(e) = decided else {
            self.note_success();
            return Ok(());
        };
        // The configuration may have decided all the same.
        let released = self.lease.release(cx, router);
        let now = router.tables.refresh(&**cx.op, router, self.known.ns())?;
        let moved = now.as_ref().is_some_and(|now| {
            now.table.shard_name(now.table.owner(&self.request.min)) == self.request.to
        });
        match (moved, released) {
            (true, _) => {
                let _ = settle::settle(cx, router, self.known.ns(), Doc::EMPTY);
                Ok(())
            }
            // The right was still there, so the configuration has not decided, and never will.
            (false, Ok(true)) => {
                self.undo(frozen);
                Err(e)
            }
            // Another router has taken the right, and may have left it to others to have the donor take writes again.
            (false, Ok(false)) => {
                let _ = settle::settle(cx, router, self.known.ns(), Doc::EMPTY);
                Err(e)
            }
            // It is not known. The next router that meets the shards ends it.
            (false, Err(_)) => Err(e),
        }
    }

    /// Ends the move on both shards. If that fails, the next router that meets them does it.
    fn undo(&self, frozen: Option<[u8; 16]>) {
        if let Some(id) = frozen {
            drop(self.thaw(&id));
        }
        let abort = doc! { "step": "abort" };
        drop(self.ask(&self.recipient, "_shardReceive", abort));
    }

    fn details(&self) -> DocBuf {
        let bound = |key: &[u8]| self.known.key.bound_doc(key).unwrap_or_default();
        doc! {
            "min": bound(&self.request.min), "max": bound(&self.request.max),
            "from": self.known.table.shard_name(self.from), "to": self.request.to,
        }
    }

    /// What tools count as moves that have succeeded.
    fn note_success(&self) {
        let mut details = self.details();
        details.append("note", "success");
        note(
            self.cx,
            self.router,
            ("moveChunk.from", self.known.ns()),
            &details,
        );
    }

    fn note(&self, what: &str) {
        note(
            self.cx,
            self.router,
            (what, self.known.ns()),
            &self.details(),
        );
    }
}

fn is(reply: &DocBuf, what: &str) -> bool {
    reply.as_doc().get(what).is_some_and(|v| v.truthy())
}

/// The time of a step's reply.
pub fn time_of(reply: &DocBuf) -> Result<Timestamp> {
    match reply.as_doc().get("at") {
        Some(Value::Timestamp { t, i }) => Ok(Timestamp::new(t, i)),
        _ => Err(Error::internal("a shard tells no time")),
    }
}

/// Refuses a shard that there is not, as a command names it, and one that is to be removed.
///
/// # Errors
/// 70 ShardNotFound; 20 IllegalOperation.
pub fn refuse_shard(cx: &CommandContext<'_>, router: &Router, name: &str) -> Result<()> {
    router.catalog.shard(&**cx.op, router, name)?;
    let drains = doc! { "_id": name, "draining": true };
    match read(&**cx.op, router, "shards", drains)?.is_empty() {
        true => Ok(()),
        false => Err(Error::new(
            Code::IllegalOperation,
            format!("Shard {name} is draining, and gets nothing more"),
        )),
    }
}
