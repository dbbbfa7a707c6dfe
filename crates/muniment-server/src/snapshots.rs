//! Reads at a point in time outside of transactions (`readConcern: {level: "snapshot"}`). The views of such
//! reads are kept for a while, so that further commands can read at the same point with `atClusterTime`.
//!
//! A commit of several entries has a timestamp for each, but is seen as a whole or not at all. A client may
//! read at the timestamp of one of them, which it has from an event or from the oplog. It then sees the whole
//! commit, so that no entry which it was told of is missing. It also sees the commit's later entries, and if
//! it continues from that timestamp, it is told of them again, like any client that copies while others
//! write.

use crate::generic::Generic;
use crate::registry::CommandSpec;
use crate::state::ServerState;
use muniment_exec::OpContext;
use muniment_member::times_of;
use muniment_op::Interrupt;
use muniment_storage::{Snapshot, Store, Timestamp};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most views that are kept. Each is at another commit, so a busy server would otherwise keep one for
/// every read of the window.
const MOST: usize = 4096;

/// Views by their points in time, each with the time of its last use.
type Kept = BTreeMap<Timestamp, (Instant, Snapshot)>;

/// The views that are kept.
#[derive(Default)]
pub struct Snapshots {
    kept: Mutex<Kept>,
}

impl Snapshots {
    /// Lets an operation read at a point in time, if its command asks for that outside of a transaction.
    ///
    /// # Errors
    /// As [`Snapshots::view`].
    pub fn pin(
        &self,
        server: &ServerState,
        op: &OpContext,
        spec: &CommandSpec,
        generic: &Generic<'_>,
    ) -> Result<()> {
        // A cursor keeps the view of the command that opened it.
        let begins = !spec.continues_cursor() && !generic.in_transaction();
        let concern = generic.read_concern.filter(|_| begins);
        let store = &server.engine.store;
        match concern.and_then(|c| Some((c, c.get_str("level")?))) {
            Some((concern, "snapshot")) => {
                let at = concern.get("atClusterTime").map(times_of);
                let view = match at {
                    Some(at) => self.at(server, at, op)?,
                    None => match of_majority(store, op)? {
                        Some(view) => self.keep(view),
                        None => self.view(store, None)?,
                    },
                };
                // Other shards may be read at the same time.
                let at = at.unwrap_or(view.timestamp());
                op.pin(view.read_at(at));
            }
            // The majority may have less than this member. For a linearizable read, `replica_set::admit` has
            // ensured that the majority's view is not older than the read.
            Some((_, "majority" | "linearizable")) if let Some(view) = of_majority(store, op)? => {
                op.pin(view)
            }
            _ => {}
        }
        Ok(())
    }

    /// A view of a point in time, which sees transactions over several shards by their commit times. It is
    /// returned after the majority of the set has everything up to that point.
    ///
    /// # Errors
    /// Those of [`Snapshots::view`]; those of `interrupt`.
    pub fn at(
        &self,
        server: &ServerState,
        at: Timestamp,
        interrupt: &dyn Interrupt,
    ) -> Result<Snapshot> {
        Ok(self.complete(server, at, interrupt)?.read_at(at))
    }

    fn complete(
        &self,
        server: &ServerState,
        at: Timestamp,
        interrupt: &dyn Interrupt,
    ) -> Result<Snapshot> {
        let store = &server.engine.store;
        // The view is taken before the wait, because the data of that time can still be read now, and perhaps
        // not after the wait.
        let view = self.view(store, Some(at))?;
        let writable = server.is_writable();
        if !writable && server.replica_set.is_none() {
            // The data cannot change any more, and there is no majority to wait for.
            return Ok(view);
        }
        // A former primary that does not know its successor yet lacks what that one has committed, so only
        // the majority can confirm that nothing is missing. Also, a commit may already have its timestamp and
        // not be visible yet.
        if at > store.visible() && writable {
            store.commit_nothing(interrupt)?;
        }
        store.wait_for_majority(at, interrupt)?;
        if view.timestamp() >= at {
            return Ok(view);
        }
        store.wait_for_visible(at, interrupt)?;
        // If nothing was committed in between, this is the same view again.
        self.view(store, Some(at))
    }

    /// Keeps a view, so that other commands can read at the same point.
    fn keep(&self, view: Snapshot) -> Snapshot {
        let mut kept = self.kept.lock();
        if kept.len() >= MOST {
            thin_out(&mut kept);
        }
        kept.insert(view.timestamp(), (muniment_op::now(), view.clone()));
        view
    }

    /// A view of the present, or of a point in time for which there is one.
    ///
    /// # Errors
    /// 239 SnapshotTooOld for a past point without a view; 72 for a point in the future.
    fn view(&self, store: &Store, at: Option<Timestamp>) -> Result<Snapshot> {
        let mut kept = self.kept.lock();
        if let Some(at) = at
            && let Some((used, view)) = kept.get_mut(&at)
        {
            *used = muniment_op::now();
            return Ok(view.clone());
        }
        // The clock is read before the view is taken, so that commits which the view lacks have later
        // timestamps.
        let clock = store.clock();
        let view = store.snapshot();
        let now = view.timestamp();
        if let Some(at) = at {
            if at > clock.max(now) {
                return Err(Error::new(
                    Code::InvalidOptions,
                    format!(
                        "readConcern atClusterTime value must not be greater than the current \
                         clusterTime. Requested clusterTime: {at}; current clusterTime: {clock}"
                    ),
                ));
            }
            if at < now {
                let seen = seen_at(store, &kept, at).map_err(|e| too_old(at, e))?;
                if let Some((used, view)) = kept.get_mut(&seen) {
                    *used = muniment_op::now();
                    return Ok(view.clone());
                }
                drop(kept);
                let view = store.snapshot_at(seen).ok_or_else(|| no_view(at))?;
                return Ok(self.keep(view));
            }
        }
        if kept.len() >= MOST && !kept.contains_key(&now) {
            thin_out(&mut kept);
        }
        let slot = kept
            .entry(now)
            .or_insert_with(|| (muniment_op::now(), view));
        slot.0 = muniment_op::now();
        Ok(slot.1.clone())
    }

    /// Drops views that were not used during this time.
    pub fn tick(&self, window: Duration) {
        self.kept
            .lock()
            .retain(|_, (used, _)| muniment_op::since(*used) < window);
    }
}

/// A view of what the majority has; `None` if this server is alone. If the collection of the command was made only just
/// now, or this member has begun only just now and does not know yet how far the majority is, it waits until the view has
/// the collection, as MongoDB does.
fn of_majority(store: &Store, op: &OpContext) -> Result<Option<Snapshot>> {
    // Data that were those of a member have no majority that could come to have more.
    if !store.is_kept()
        && let Some(majority) = store.majority()
        && let Some(collection) = store.collection(op.namespace())
        && collection.named_since() > majority.at
    {
        store.wait_for_majority(collection.named_since(), op)?;
    }
    store.majority_snapshot()
}

/// The point to read at in place of `at`, when later commits are already visible: the end of the commit that
/// `at` is within; or else the point of a kept view, if nothing was committed between it and `at`.
fn seen_at(store: &Store, kept: &Kept, at: Timestamp) -> Result<Timestamp> {
    let Some(next) = store.record_from(at)? else {
        return Ok(at);
    };
    if next.contains(&at) {
        return Ok(*next.end());
    }
    let Some((before, _)) = kept.range(..=at).next_back() else {
        return Ok(at);
    };
    let behind = store.record_from(before.plus(1))?;
    Ok(if behind == Some(next) { *before } else { at })
}

/// 239 SnapshotTooOld.
fn no_view(at: Timestamp) -> Error {
    Error::new(
        Code::SnapshotTooOld,
        format!("Read timestamp {at} is older than the oldest available timestamp."),
    )
}

/// 239 SnapshotTooOld if the log does not reach back that far.
fn too_old(at: Timestamp, e: Error) -> Error {
    match e.code() {
        Code::ChangeStreamHistoryLost => no_view(at),
        _ => e,
    }
}

/// Drops an eighth of the views: those whose last use was the longest ago.
fn thin_out(kept: &mut Kept) {
    let mut used: Vec<(Instant, Timestamp)> = kept.iter().map(|(at, v)| (v.0, *at)).collect();
    used.sort_unstable();
    for (_, at) in used.iter().take(MOST / 8) {
        kept.remove(at);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_op::NeverInterrupted;
    use muniment_storage::{CollectionOptions, EngineKind, StoreOptions};
    use muniment_value::doc;

    #[test]
    fn within_a_commit_the_whole_of_it_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::new(dir.path())).unwrap();
        let never = &NeverInterrupted;
        let c = store
            .create_collection("d.c", CollectionOptions::default(), never)
            .unwrap();
        let put = |ids: std::ops::Range<i32>| {
            let mut unit = store.write_unit(&c, never).unwrap();
            for i in ids {
                let doc = bytes::Bytes::from(doc! { "_id": i }.into_bytes());
                assert!(unit.insert(&doc).unwrap().is_ok());
            }
            unit.commit().unwrap();
            store.visible()
        };
        // Each document is changed, so the commit has an entry for each.
        let change = |x: i32| {
            let mut unit = store.write_unit(&c, never).unwrap();
            for i in 0..5 {
                let (key, old) = unit
                    .lock_by_id(muniment_value::Value::Int32(i))
                    .unwrap()
                    .unwrap()
                    .unwrap();
                let new = bytes::Bytes::from(doc! { "_id": i, "x": x }.into_bytes());
                let how = muniment_storage::Changed::Whole;
                assert!(
                    unit.update(&key, &old, &new, how, &|_| true)
                        .unwrap()
                        .is_ok()
                );
            }
            unit.commit().unwrap();
            store.visible()
        };
        let changed = |view: &Snapshot| {
            let found = view
                .find_by_id(&c, muniment_value::Value::Int32(0))
                .unwrap();
            let doc = found.unwrap().1;
            muniment_value::Doc::new(&doc)
                .get("x")
                .and_then(|v| v.as_i64_exact())
        };
        let snapshots = Snapshots::default();
        let view = |at| snapshots.view(&store, Some(at));
        put(0..5);
        let last = change(1);
        let entries = |after: Timestamp| {
            let mut all = Vec::new();
            let mut entries = store.log_entries(after).unwrap();
            while let Some(e) = entries.next().unwrap() {
                all.push(e.at);
            }
            all
        };
        let told = entries(last.minus(5));
        assert_eq!(told.len(), 5);
        for at in told.iter().rev() {
            let view = view(*at).unwrap();
            assert_eq!((view.timestamp(), changed(&view)), (last, Some(1)));
        }
        // The same as long as the view is kept, and also for points that are within no commit.
        store.advance_clock(last.plus(1 << 20));
        let between = last.plus(1000);
        assert_eq!(changed(&view(between).unwrap()), Some(1));
        let later = change(2);
        assert!(later > between);
        assert_eq!(changed(&view(told[0]).unwrap()), Some(1));
        assert_eq!(changed(&view(between).unwrap()), Some(1));
        let told = entries(last);
        assert_eq!(told.len(), 5);
        assert_eq!(changed(&view(told[0]).unwrap()), Some(2));
        // At other points there is no view any more, or not yet.
        let third = change(3);
        change(4);
        let code = |at| view(at).err().map(|e| e.code());
        assert_eq!(code(third), Some(Code::SnapshotTooOld));
        assert_eq!(code(third.minus(2)), Some(Code::SnapshotTooOld));
        assert_eq!(code(later.minus(1)), None);
        assert_eq!(code(store.clock().plus(1)), Some(Code::InvalidOptions));
        assert_eq!(code(Timestamp(1)), Some(Code::SnapshotTooOld));
    }

    #[test]
    fn views_are_bounded_in_number() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions {
            engine: EngineKind::Memory,
            ..StoreOptions::new(dir.path())
        })
        .unwrap();
        let never = &NeverInterrupted;
        let c = store
            .create_collection("d.c", CollectionOptions::default(), never)
            .unwrap();
        let snapshots = Snapshots::default();
        let first = snapshots.view(&store, None).unwrap().timestamp();
        let used = snapshots.view(&store, Some(first)).unwrap().timestamp();
        assert_eq!(used, first);
        let mut oldest = None;
        for i in 0..MOST as i32 + 10 {
            let mut unit = store.write_unit(&c, never).unwrap();
            let doc = bytes::Bytes::from(doc! { "_id": i }.into_bytes());
            assert!(unit.insert(&doc).unwrap().is_ok());
            unit.commit().unwrap();
            let at = snapshots.view(&store, None).unwrap().timestamp();
            oldest.get_or_insert(at);
            // A view that is used stays.
            assert!(snapshots.view(&store, Some(first)).is_ok());
        }
        assert!(snapshots.kept.lock().len() <= MOST);
        let gone = snapshots.view(&store, oldest).err();
        assert_eq!(gone.map(|e| e.code()), Some(Code::SnapshotTooOld));
        snapshots.tick(Duration::ZERO);
        assert!(snapshots.kept.lock().is_empty());
    }
}
