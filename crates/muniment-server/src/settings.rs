//! Settings that a server stores in collections of the database `config`, and so shares with the other
//! members of its set: the default concerns and the cluster parameters. What the collections hold is in
//! force, however it got there: by the setting's command, a client's own write, an earlier run of the server,
//! or another member's record that was applied here.
//!
//! Invariants: a value is in force when the client that wrote it is answered, and on a follower when its
//! record is reported as applied. Taking values over waits for no other thread, since the thread that
//! applies records must not wait.

use crate::cluster_parameters::{self, ClusterParameters};
use crate::commands::set_default_rw_concern;
use crate::concern::WriteConcern;
use crate::state::ServerState;
use muniment_value::Result;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::Duration;

/// The database of the collections.
pub const DB: &str = "config";

/// How long a client waits at most for a thread that stores a value, which a full disk may delay.
const PATIENCE: Duration = Duration::from_secs(1);

/// The default concerns that setDefaultRWConcern keeps.
#[derive(Clone, Debug, Default)]
pub struct DefaultConcern {
    /// Write concern, if it was set.
    pub write: Option<WriteConcern>,
    /// Read concern level, if it was set.
    pub read: Option<String>,
    /// When they were set, in milliseconds since 1970.
    pub set_at_ms: Option<i64>,
}

/// The settings in force, and the lock of storing them and putting them in force.
pub struct Settings {
    /// setClusterParameter.
    pub cluster: ClusterParameters,
    /// setDefaultRWConcern.
    pub default_concern: RwLock<DefaultConcern>,
    /// Held while a value is stored or read, until it is in force.
    changing: Mutex<()>,
    /// The stored values may differ from those in force.
    stale: AtomicBool,
}

impl Settings {
    /// The defaults, of a server that keeps images of documents for so many seconds unless it is told
    /// otherwise.
    pub fn new(image_seconds: Arc<AtomicI64>) -> Settings {
        Settings {
            cluster: ClusterParameters::new(image_seconds),
            default_concern: RwLock::default(),
            changing: Mutex::new(()),
            stale: AtomicBool::new(false),
        }
    }
}

/// Puts the stored values in force. If another thread is doing that, it includes the newest values.
pub fn take(server: &ServerState) {
    server.settings.stale.store(true, SeqCst);
    take_if_stale(server);
}

/// Puts in force what a client has just stored, before the client is answered. If another thread holds the
/// lock for long, that thread does it after the answer.
pub fn take_for_client(server: &ServerState) {
    let settings = &server.settings;
    settings.stale.store(true, SeqCst);
    if let Some(_changing) = settings.changing.try_lock_for(PATIENCE) {
        load_if_stale(server);
    }
    take_if_stale(server);
}

fn load_if_stale(server: &ServerState) {
    if server.settings.stale.swap(false, SeqCst) {
        set_default_rw_concern::load(server);
        cluster_parameters::load(server);
    }
}

fn take_if_stale(server: &ServerState) {
    let settings = &server.settings;
    // The thread that holds the lock checks `stale` again after it has released the lock, so no change is
    // missed.
    while settings.stale.load(SeqCst) {
        let Some(_changing) = settings.changing.try_lock() else {
            return;
        };
        load_if_stale(server);
    }
}

/// Stores a value and puts it in force, while no other thread does so.
///
/// # Errors
/// Those of `store`.
pub fn change<T>(server: &ServerState, store: impl FnOnce() -> Result<T>) -> Result<T> {
    let changing = server.settings.changing.lock();
    let stored = store();
    drop(changing);
    take_if_stale(server);
    stored
}
