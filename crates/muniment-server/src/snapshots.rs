//! Reads at a point in time outside of transactions (`readConcern: {level: "snapshot"}`): the views
//! that such reads have opened are kept for a while, so that further commands can read at the same
//! point by `atClusterTime`.

use crate::generic::Generic;
use crate::replica_set::times_of;
use crate::state::ServerState;
use muniment_exec::OpContext;
use muniment_storage::{Snapshot, Store, Timestamp};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The views, by their points, with when they were asked for last.
#[derive(Default)]
pub struct Snapshots {
    kept: Mutex<BTreeMap<Timestamp, (Instant, Snapshot)>>,
}

impl Snapshots {
    /// Makes an operation read at a point in time, if its command asks for that outside of a
    /// transaction.
    ///
    /// # Errors
    /// As [`Snapshots::view`].
    pub fn pin(&self, server: &ServerState, op: &OpContext, generic: &Generic<'_>) -> Result<()> {
        let concern = generic.read_concern.filter(|_| !generic.in_transaction());
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
