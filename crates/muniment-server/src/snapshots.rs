//! Reads at a point in time outside of transactions (`readConcern: {level: "snapshot"}`): the views
//! that such reads have opened are kept for a while, so that further commands can read at the same
//! point by `atClusterTime`.

use crate::generic::Generic;
use crate::registry::CommandSpec;
use crate::replica_set::times_of;
use crate::state::ServerState;
use muniment_exec::OpContext;
use muniment_storage::{Snapshot, Store, Timestamp};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Most views that are kept. Each is of another commit, so a busy server would have one for every
/// read within the window.
const MOST: usize = 4096;

/// Views by their points, with when they were asked for last.
type Kept = BTreeMap<Timestamp, (Instant, Snapshot)>;

/// The views.
#[derive(Default)]
pub struct Snapshots {
    kept: Mutex<Kept>,
}

impl Snapshots {
    /// Makes an operation read at a point in time, if its command asks for that outside of a
    /// transaction.
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
        // A cursor has the view that its command was given.
        let begins = spec.name != "getMore" && !generic.in_transaction();
        let concern = generic.read_concern.filter(|_| begins);
        let Some(concern) = concern.filter(|c| c.get_str("level") == Some("snapshot")) else {
            return Ok(());
        };
        let at = concern.get("atClusterTime").map(times_of);
        op.pin(self.view(&server.engine.store, at)?);
        Ok(())
    }

    /// A view of now, or of a point at which there is one.
    ///
    /// # Errors
    /// 239 SnapshotTooOld for a point in the past of which there is no view; 72 for one to come.
    fn view(&self, store: &Store, at: Option<Timestamp>) -> Result<Snapshot> {
        let mut kept = self.kept.lock();
        if let Some(at) = at
            && let Some((used, view)) = kept.get_mut(&at)
        {
            *used = Instant::now();
            return Ok(view.clone());
        }
        let view = store.snapshot();
        let now = view.timestamp();
        match at {
            Some(at) if at > now => {
                return Err(Error::new(
                    Code::InvalidOptions,
                    format!(
                        "readConcern atClusterTime value must not be greater than the current \
                         clusterTime. Requested clusterTime: {at}; current clusterTime: {now}"
                    ),
                ));
            }
            Some(at) if at < now => {
                return Err(Error::new(
                    Code::SnapshotTooOld,
                    format!("Read timestamp {at} is older than the oldest available timestamp."),
                ));
            }
            _ => {}
        }
        if kept.len() >= MOST && !kept.contains_key(&now) {
            thin_out(&mut kept);
        }
        let slot = kept.entry(now).or_insert_with(|| (Instant::now(), view));
        slot.0 = Instant::now();
        Ok(slot.1.clone())
    }

    /// Lets go of views that nobody has asked for in so long.
    pub fn tick(&self, window: Duration) {
        self.kept
            .lock()
            .retain(|_, (used, _)| used.elapsed() < window);
    }
}

/// Lets go of an eighth of them: of those that were asked for the longest time ago.
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
    use muniment_query::NeverInterrupted;
    use muniment_storage::{CollectionOptions, EngineKind, StoreOptions};
    use muniment_value::doc;

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
            // One that is asked for stays.
            assert!(snapshots.view(&store, Some(first)).is_ok());
        }
        assert!(snapshots.kept.lock().len() <= MOST);
        let gone = snapshots.view(&store, oldest).err();
        assert_eq!(gone.map(|e| e.code()), Some(Code::SnapshotTooOld));
        snapshots.tick(Duration::ZERO);
        assert!(snapshots.kept.lock().is_empty());
    }
}
