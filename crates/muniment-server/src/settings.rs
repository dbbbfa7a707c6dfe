//! Settings that a server stores in collections of the database `config`, and so has in common with
//! the other members of its set: the default concerns and the cluster parameters. What the collections
//! hold is in force, however it came there: by the setting's command, a client's own write, an earlier
//! run of the server, or another member's record that was applied here.
//!
//! Invariants: a value is in force when the client that wrote it is answered, and on a follower when its
//! record is reported as applied. Taking values over waits for no other thread, since the thread that
//! applies records must not wait.

use crate::cluster_parameters;
use crate::commands::set_default_rw_concern;
use crate::state::ServerState;
use muniment_value::Result;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// The database of the collections.
pub const DB: &str = "config";

/// A client waits at most so long for a thread that stores a value, which a full disk may hold up.
const PATIENCE: Duration = Duration::from_secs(1);

/// The lock under which settings are stored and taken over.
#[derive(Default)]
pub struct Settings {
    /// Held from the storing of a value, or the reading of it, until it is in force.
    changing: Mutex<()>,
    /// What is stored may differ from what is in force.
    stale: AtomicBool,
}

/// Puts in force what is stored; if another thread is doing so, that thread takes this, too.
pub fn take(server: &ServerState) {
    server.settings.stale.store(true, SeqCst);
    take_if_stale(server);
}

/// Puts in force what a client has just stored, before it is answered. If it would have to wait for long for
/// another thread, that is left to the other thread.
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
    // A thread that holds the lock looks once more after it has given the lock back.
    while settings.stale.load(SeqCst) {
        let Some(_changing) = settings.changing.try_lock() else {
            return;
        };
        load_if_stale(server);
    }
}

/// Stores a value and puts it in force, while no other thread does.
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
