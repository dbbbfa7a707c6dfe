//! Settings that a server stores in collections of the database `config`, and so has in common with
//! the other members of its set: the default concerns and the cluster parameters. What the collections
//! hold is in force, however it came there: by the setting's command, a client's own write, an earlier
//! run of the server, or another member's record that was applied here.
//!
//! Invariants: a value is in force when whoever wrote it is answered, and on a member that follows when
//! its record is told to be applied. Taking values waits for nobody, as the thread that follows must not.

use crate::cluster_parameters;
use crate::commands::set_default_rw_concern;
use crate::state::ServerState;
use muniment_value::Result;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// The database of the collections.
pub const DB: &str = "config";

/// Who stores a value may be held up by a full disk.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who stores or takes settings.
#[derive(Default)]
pub struct Settings {
    /// Held from the storing of a value, or the reading of it, until it is in force.
    changing: Mutex<()>,
    /// What is stored may be other than what is in force.
    stale: AtomicBool,
}

/// Puts in force what is stored; if somebody else is at it, that one does.
pub fn take(server: &ServerState) {
    server.settings.stale.store(true, SeqCst);
    take_if_stale(server);
}

/// Puts in force what a client has just stored, before it is answered; not if that waits for long.
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
    // Whoever holds the lock looks once more when it has given it back.
    while settings.stale.load(SeqCst) {
        let Some(_changing) = settings.changing.try_lock() else {
            return;
        };
        load_if_stale(server);
    }
}

/// Stores a value and puts it in force, while nobody else does.
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
