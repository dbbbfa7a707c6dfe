//! Deletes rows that this shard does not own any more.

use super::arrivals::Waste;
use crate::state::ServerState;
use muniment_exec::{OpContext, OpStart};
use muniment_logger::{Severity, guarded};
use muniment_op::{Interrupt, sleep_until};
use muniment_storage::{Busy, Collection, Moves, Owned, Placement, is_in, ranges_overlap};
use muniment_value::{Code, Doc, Result, doc};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// How often it is looked for something to do, as long as there are rows to clean.
const EVERY: Duration = Duration::from_millis(500);
/// How often it is looked for changes of ranges that can be forgotten.
const SELDOM: Duration = Duration::from_secs(60);
/// Rows that are deleted in one commit.
const AT_ONCE: usize = 500;
/// So long one collection is worked on before others have their turn.
const TURN: Duration = Duration::from_secs(2);
/// How often it is looked whether somebody still reads.
const LOOK: Duration = Duration::from_millis(20);
/// So long the end of transactions that use a collection is waited for.
const PATIENCE: Duration = Duration::from_millis(100);
/// What was owned at times longer ago than this is not remembered.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Cleans until the server ends. On a server that cannot be a shard it returns at once.
pub fn keep(server: &Arc<ServerState>) {
    if !server.options.role.may_be_shard() {
        return;
    }
    let mut cleaner = Cleaner::new();
    while !server.lifecycle.wait_for_stop_for(EVERY) {
        cleaner.turn(server);
    }
}

/// What cleaning keeps from one turn to the next.
pub(crate) struct Cleaner {
    /// The server led in the last turn.
    led: bool,
    looked: Instant,
}

impl Cleaner {
    /// Nothing was looked at yet.
    pub(crate) fn new() -> Cleaner {
        Cleaner {
            led: false,
            looked: muniment_op::now(),
        }
    }

    /// Cleans for a while, if there is something to clean.
    pub(crate) fn turn(&mut self, server: &Arc<ServerState>) {
        let leads = server.is_writable();
        if leads && !self.led {
            server.moving.waste.store(true, SeqCst);
        }
        self.led = leads;
        let seldom = muniment_op::since(self.looked) >= SELDOM;
        if !leads || !(server.moving.waste.swap(false, SeqCst) || seldom) {
            return;
        }
        self.looked = muniment_op::now();
        let op = server.engine.operations.begin(OpStart {
            command: "rangeDeleter",
            ..OpStart::default()
        });
        if server.lifecycle.is_stopping() {
            op.kill(Code::InterruptedAtShutdown);
        }
        let done = guarded(|| pass(server, &op));
        match done {
            Ok(Ok(false)) => {}
            other => {
                server.moving.waste.store(true, SeqCst);
                if let Ok(Err(e)) = other
                    && e.code() == Code::DataCorruptionDetected
                {
                    server.log.log(
                        Severity::Warning,
                        "SHARDING",
                        6_180_602,
                        "rangeDeleter",
                        "Rows that were given away could not be deleted; will try again",
                        Some(&doc! { "error": server.log.error(&e) }),
                    );
                }
            }
        }
    }
}

/// Looks at all collections once. True if there is something to do soon.
fn pass(server: &ServerState, op: &OpContext) -> Result<bool> {
    let mut again = false;
    let mut seen = HashMap::new();
    for collection in server.engine.store.with_foreign_rows() {
        op.check()?;
        let Some(placement) = collection.placement() else {
            continue;
        };
        forget_old(server, op, &collection)?;
        end_left(server, op, &collection)?;
        // What arrives may be left by its router at any time.
        again |= !placement.foreign().is_empty() || placement.moving().is_some();
        for range in placement.waste() {
            let until = || muniment_op::now() + TURN;
            let Some(lost) = visible_until(&placement, std::slice::from_ref(&range)) else {
                clean(server, op, &collection, &range, until())?;
                continue;
            };
            let key = (collection.uuid(), range, lost);
            let began = server.moving.since.lock().get(&key).copied();
            let began = began.unwrap_or_else(muniment_op::now);
            if may_begin(server, &collection, began) {
                clean(server, op, &collection, &key.1, until())?;
            }
            seen.insert(key, began);
        }
    }
    let mut since = server.moving.since.lock();
    // Those of parts that are to come back.
    since.retain(|(uuid, part, _), _| {
        let of_part = |(of, waste, _): &Waste| of == uuid && ranges_overlap(waste, part);
        seen.keys().any(of_part)
    });
    since.extend(seen);
    drop(since);
    Ok(again)
}

/// Whether nobody reads the rows any more, or has had the time for that.
fn may_begin(server: &ServerState, collection: &Collection, began: Instant) -> bool {
    if had_time(server, began) {
        return true;
    }
    // Cursors on other members are not known here.
    let alone = server.replica_set.as_ref().is_none_or(|set| {
        let config = set.member().config;
        config.is_some_and(|c| c.members.len() == 1)
    });
    alone && !is_read(server, collection, began)
}

/// Until when readers may have begun that see rows of these ranges, which are waste. There are none if the rows came with
/// a move that was given up, or if some rows were deleted already, which ends the readers from before.
fn visible_until(placement: &Placement, waste: &[Owned]) -> Option<muniment_shard::Timestamp> {
    let lost = placement.lost_at(waste)?;
    (lost > placement.cleaned()).then_some(lost)
}

/// Whether those that may read rows which are waste since then have had the time for that.
fn had_time(server: &ServerState, began: Instant) -> bool {
    let delay = server.parameters.orphan_delay_secs.load(Relaxed).max(0);
    muniment_op::since(began) >= Duration::from_secs(delay.unsigned_abs())
}

/// Whether somebody reads the collection on this member who began before.
fn is_read(server: &ServerState, collection: &Collection, began: Instant) -> bool {
    let name = collection.name();
    let engine = &server.engine;
    // An operation keeps its cursor before it ends.
    engine.operations.any_older(&name, began) || engine.cursors.any_older(&name, began)
}

/// Waits until nobody on this member reads rows of a range that were given away, or has had the time for that, since a
/// range that comes back needs their place. False if time was over before.
///
/// # Errors
/// The operation's interrupt.
pub(super) fn wait_for_readers(
    server: &ServerState,
    op: &OpContext,
    collection: &Collection,
    range: &Owned,
    until: Instant,
) -> Result<bool> {
    let placement = collection.placement();
    let lost = placement.and_then(|p| visible_until(&p, &p.waste_in(range)));
    let Some(lost) = lost else {
        return Ok(true);
    };
    let uuid = collection.uuid();
    let began = {
        let mut since = server.moving.since.lock();
        // The range may have been given away as a part of a larger one, or one may have joined it later.
        let of_range = since.iter().filter(|((of, waste, at), _)| {
            *of == uuid && *at >= lost && ranges_overlap(waste, range)
        });
        let oldest = of_range.map(|(_, at)| *at).min();
        let key = (uuid, range.clone(), lost);
        oldest.unwrap_or_else(|| *since.entry(key).or_insert_with(muniment_op::now))
    };
    while is_read(server, collection, began) && !had_time(server, began) {
        let now = muniment_op::now();
        if now >= until {
            return Ok(false);
        }
        sleep_until(until.min(now + LOOK), op)?;
    }
    Ok(true)
}

/// Ends a move that brings a range here, if its router has left it before everything was here: the configuration cannot
/// have decided on it then. About others the configuration has to be asked, which a router does.
fn end_left(server: &ServerState, op: &OpContext, collection: &Arc<Collection>) -> Result<()> {
    let is_left = |held: Option<&Placement>| {
        let moving = held.and_then(|h| h.moving());
        moving.is_some_and(|m| m.arrives && !m.complete && !server.moving.goes_on(&m.id))
    };
    if !is_left(collection.placement().as_deref()) {
        return Ok(());
    }
    place(server, op, collection, |held| {
        let ended = held.filter(|h| is_left(Some(h))).map(|h| h.still());
        ended.or(held.cloned())
    })
    .map(drop)
}

/// Changes what the shard has noted of a collection, unless transactions use the collection for longer than a moment:
/// nothing here is worth that others wait. Whether it was changed.
fn place(
    server: &ServerState,
    op: &OpContext,
    collection: &Arc<Collection>,
    change: impl FnOnce(Option<&Placement>) -> Option<Placement>,
) -> Result<bool> {
    let on = (&*server.engine.store, op);
    match super::place(on, collection, PATIENCE, |held| Ok(change(held))) {
        Err(e) if e.code() == Code::LockTimeout => Ok(false),
        other => other.map(|()| true),
    }
}

/// Deletes the rows of a range that this shard does not own and that do not arrive, and notes that before and after.
/// False if time was over before.
///
/// # Errors
/// Those of deleting.
pub(super) fn clean(
    server: &ServerState,
    op: &OpContext,
    collection: &Arc<Collection>,
    range: &Owned,
    until: Instant,
) -> Result<bool> {
    loop {
        op.check()?;
        let Some(placement) = collection.placement() else {
            return Ok(true);
        };
        let waste = placement.waste_in(range);
        if waste.is_empty() {
            return Ok(true);
        }
        // Readers that began when the rows were owned must fail from here on, and not find less.
        if placement.cleaning(&waste).cleaned() != placement.cleaned() {
            let noted = place(server, op, collection, |held| {
                held.map(|h| h.cleaning(&h.waste_in(range)))
            })?;
            if !noted {
                return Ok(false);
            }
            continue;
        }
        if delete_some(server, op, collection, (range, &placement))? {
            return none_left(server, op, collection, (range, &placement));
        }
        if muniment_op::now() >= until {
            return Ok(false);
        }
    }
}

/// Deletes some rows of a range in one commit. True if there were none.
fn delete_some(
    server: &ServerState,
    op: &OpContext,
    collection: &Arc<Collection>,
    (range, placement): (&Owned, &Placement),
) -> Result<bool> {
    let store = &server.engine.store;
    let view = store.snapshot().with_foreign_rows();
    let mut rows = view.rows_of_range(collection, &placement.key, range, None);
    let mut unit = store.write_unit(collection, op)?;
    unit.moves(Moves::Out);
    let (mut buf, mut count) = (Vec::new(), 0);
    loop {
        if count >= AT_ONCE {
            break;
        }
        let Some(row) = rows.next(op)? else {
            let none = count == 0;
            unit.commit()?;
            return Ok(none);
        };
        buf.clear();
        if !placement.is_waste(Doc::new(&row.doc), &mut buf)? {
            continue;
        }
        let Ok(there) = unit.lock(&row.record_key)? else {
            break;
        };
        // It may be another document by now, or one that is owned again.
        let Some(old) = there.filter(|old| is_in(&placement.key, range, old, &mut buf)) else {
            continue;
        };
        match unit.delete(&row.record_key, &old) {
            Ok(Ok(())) => {
                server.moving.figures.deleted.add(old.len());
                count += 1;
            }
            Ok(Err(Busy)) => break,
            Err(e) if e.code() == Code::StaleConfig => {}
            Err(e) => return Err(e),
        }
    }
    unit.commit()?;
    Ok(false)
}

/// Notes that a range has no rows any more. False if it may have some: those that became waste since the placement was
/// read were not looked at.
fn none_left(
    server: &ServerState,
    op: &OpContext,
    collection: &Arc<Collection>,
    (range, placement): (&Owned, &Placement),
) -> Result<bool> {
    let by = server.engine.store.clock().plus(1);
    let by = muniment_shard::Timestamp::new(by.seconds(), by.increment());
    let mut same = false;
    let noted = place(server, op, collection, |held| {
        same = held.is_some_and(|h| h.to_doc() == placement.to_doc());
        match same {
            true => held.map(|h| h.cleaned_of(&h.waste_in(range), by)),
            false => held.cloned(),
        }
    })?;
    Ok(noted && same)
}

/// Cleans all of a collection's rows that are not owned, whoever may still read them.
///
/// # Errors
/// Those of deleting.
pub fn clean_now(server: &ServerState, op: &OpContext, collection: &Arc<Collection>) -> Result<()> {
    let waste = collection
        .placement()
        .map(|p| p.waste())
        .unwrap_or_default();
    for range in waste {
        while !clean(server, op, collection, &range, muniment_op::now() + TURN)? {}
    }
    Ok(())
}

/// Forgets changes of ranges that are so old that no view is older.
fn forget_old(server: &ServerState, op: &OpContext, collection: &Arc<Collection>) -> Result<()> {
    let now = server.engine.store.visible().seconds();
    let before = now.saturating_sub(u32::try_from(REMEMBERED.as_secs()).unwrap_or(u32::MAX));
    let limit = muniment_shard::Timestamp::new(before, 0);
    let old = |p: &Placement| p.oldest_change().is_some_and(|at| at < limit);
    if !collection.placement().is_some_and(|p| old(&p)) {
        return Ok(());
    }
    place(server, op, collection, |held| {
        held.map(|h| h.forgetting(limit))
    })
    .map(drop)
}
