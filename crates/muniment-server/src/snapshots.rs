//! Reads at a point in time outside of transactions (`readConcern: {level: "snapshot"}`): the views
//! that such reads have opened are kept for a while, so that further commands can read at the same
//! point by `atClusterTime`.

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
    /// A view of now, or of a point at which there is one.
    ///
    /// # Errors
    /// 239 SnapshotTooOld for a point in the past of which there is no view; 72 for one to come.
    pub fn view(&self, store: &Store, at: Option<Timestamp>) -> Result<Snapshot> {
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
