//! Initial sync: a member that has nothing, or not enough to go on from, copies another member's data
//! as of a committed place of the log, and begins anew with it.
//!
//! The source sends what one view of its storage sees ([`source`]). Before, where the copy is for who has
//! lost its disk, it makes sure that it leads and knows all that is committed ([`barrier`]). What arrives
//! ([`download`]) is written beside the data ([`local`](super::local)) and takes its place when the
//! member begins anew. Until then the member takes no part in anything: what it acknowledged meanwhile
//! would not be in the copy. A connection that breaks is opened again and the copy goes on where it was;
//! a member that ends begins another one.

mod barrier;
mod download;
mod progress;
mod source;

pub use progress::SyncProgress;
pub use source::{Copies, export};

use super::Role;
use super::local;
use super::node::Node;
use crate::guard::guarded;
use crate::options::ServerOptions;
use crate::state::{Restart, ServerState};
use download::Download;
use muniment_repl::{InForce, MemberId, StateFile};
use muniment_storage::{Position, Store, StoreOptions};
use muniment_value::{Code, Error, Result, doc};
use std::sync::Arc;
use std::time::Duration;

/// A copy that is whole but for the member's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The last record of the log that it holds.
    pub position: Position,
    /// The configuration in force there.
    pub in_force: InForce,
    /// Its source, and the term in which that led; 0: it did not.
    pub led: (MemberId, u64),
}

/// Copies the data of the member `from` as of a place of the log that is not before `at_least`, in a
/// thread of its own, and has the server begin anew with it. What fails is told, and tried again when the
/// leader says again that it is needed.
///
/// # Errors
/// The system has no thread.
pub fn begin(
    server: &Arc<ServerState>,
    node: &Arc<Node>,
    from: MemberId,
    at_least: u64,
) -> Result<()> {
    let Some(set) = &server.replica_set else {
        return Ok(());
    };
    if !node.begin_sync() {
        return Ok(());
    }
    set.change(server, |m| m.role = Role::Startup2);
    let (state, syncing) = (Arc::clone(server), Arc::clone(node));
    let run = move || {
        // Whatever becomes of it, it can be tried again.
        let copied = guarded(|| copy(&state, &syncing, from, at_least));
        match copied.unwrap_or_else(|caught| Err(caught.into_error("the initial sync"))) {
            Ok(copied) => state.request_restart(Restart::Synced(Box::new(copied))),
            Err(e) => {
                syncing.progress.lock().failed(e.message());
                let attr = doc! { "from": from as i64, "error": e.to_string() };
                let failed = "Initial sync failed; it will be tried again";
                state
                    .log
                    .info("INITSYNC", 21_200, "initialsync", failed, &attr);
                std::thread::sleep(Duration::from_millis(500));
                syncing.end_sync();
            }
        };
    };
    server.spawn_member("initial sync", run)
}

fn copy(server: &Arc<ServerState>, node: &Node, from: MemberId, at_least: u64) -> Result<Copied> {
    let set = server.replica_set.as_ref().ok_or_else(super::ended)?;
    let (member, _) = set.initialized()?;
    let host = set
        .host_of(&member, Some(from))
        .ok_or_else(|| Error::new(Code::NodeNotFound, "the source is no member"))?;
    server.log.info(
        "INITSYNC",
        21_164,
        "initialsync",
        "Starting initial sync",
        &doc! { "from": host },
    );
    let dir = local::begin_copy(&server.options.dbpath)?;
    node.progress.lock().begin(host);
    let mut download = Download::begin(server, node, from, host)?;
    let copied = download.copied().clone();
    if copied.position.index < at_least {
        download.end();
        return Err(Error::new(
            Code::InvalidSyncSource,
            format!(
                "the source has committed up to {}, and {at_least} is wanted",
                copied.position.index
            ),
        ));
    }
    let options = StoreOptions {
        engine: server.options.engine,
        machine: server.options.machine.clone(),
        ..StoreOptions::new(&dir)
    };
    let chunks = std::iter::from_fn(|| download.next().transpose());
    let imported = Store::import(&options, copied.position, chunks);
    download.end();
    imported.map(|()| copied)
}

/// The state of a member whose copy is whole; nothing votes for it any more.
///
/// # Errors
/// The disk's.
pub fn finish(options: &ServerOptions, copied: Copied) -> Result<()> {
    let (dbpath, disk) = (&options.dbpath, options.machine.disk.clone());
    let Some(state) = StateFile::new(disk.clone(), dbpath).read()? else {
        return Err(super::ended());
    };
    let Copied {
        position,
        in_force,
        led,
    } = copied;
    let copy = dbpath.join(local::COPY);
    StateFile::new(disk, &copy).write(&state.synced(
        position.index,
        position.term,
        in_force,
        led,
    ))?;
    local::end_copy(&copy)
}
