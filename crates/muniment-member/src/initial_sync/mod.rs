//! Initial sync: a member that has nothing, or not enough to go on from, copies another member's data
//! as of a committed place of the log, and begins anew with it.
//!
//! The source, mostly the nearest member ([`choose`]), sends what one view of its storage sees
//! ([`source`]). If the member has lost its disk, the leader makes sure before that that it leads and
//! knows all that is committed ([`barrier`]); the source has to have as much. What arrives
//! ([`download`]) is written beside the data ([`copy_dir`]) and takes its place when the
//! member begins anew. Until then the member takes no part in anything: what it acknowledged meanwhile
//! would not be in the copy. A connection that breaks is opened again and the copy goes on where it was;
//! a member that ends begins another one.

mod barrier;
mod barriers;
mod choose;
mod copied;
mod copies;
mod download;
mod progress;
mod source;
mod sources;

pub use choose::Preference;
pub use copied::{Copied, state_of};
pub use copies::Copies;
pub use progress::SyncProgress;
pub use source::export;

use super::Role;
use super::copy_dir;
use super::greeting::{check_config, config_of};
use super::node::Node;
use crate::lifecycle::{Restart, Stopping};
use crate::set::ReplicaSet;
use download::Download;
use muniment_consensus::{MemberId, StateFile};
use muniment_io::Disk;
use muniment_logger::guarded;
use muniment_op::sleep_until;
use muniment_storage::{Position, Store, StoreOptions};
use muniment_value::{Code, Error, Result, doc};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Copies the data of the member `from` as of a place of the log that is not before `at_least`, in a
/// thread of its own, and has the server begin anew with it. A failure is logged, and the copy is tried
/// again when the leader says again that it is needed.
///
/// # Errors
/// The system has no thread.
pub fn begin(set: &Arc<ReplicaSet>, node: &Arc<Node>, from: MemberId, at_least: u64) -> Result<()> {
    if !node.begin_sync() {
        return Ok(());
    }
    set.change(|m| m.role = Role::Startup2);
    set.home.world.fill(set, node, from, at_least)
}

/// How long after a copy has failed the leader may ask for another one.
const PAUSE: Duration = Duration::from_millis(500);

/// Makes the copy, as the thread that does it.
pub fn run(set: &ReplicaSet, node: &Node, leader: MemberId, at_least: u64) {
    // The copy is guarded, so that after a panic, too, it can be tried again.
    let copied = guarded(|| copy(set, node, leader, at_least));
    match copied.unwrap_or_else(|caught| Err(caught.into_error("the initial sync"))) {
        Ok(copied) => set
            .home
            .lifecycle
            .request_restart(Restart::Synced(Box::new(copied))),
        Err(e) => {
            node.progress.lock().failed(e.message());
            let log = &set.home.log;
            let attr = doc! { "leader": leader as i64, "error": log.error(&e) };
            let failed = "Initial sync failed; it will be tried again";
            log.info("INITSYNC", 21_200, "initialsync", failed, &attr);
            // The end of the server ends the pause as well.
            let _ = sleep_until(Instant::now() + PAUSE, &Stopping(&set.home.lifecycle));
            let newer = config_of(&e).filter(|c| check_config(&c.config, set.name()).is_ok());
            if let Some(newer) = newer {
                node.hear_of(&newer);
            }
            node.end_sync();
        }
    }
}

/// What a copy has to be.
pub struct Wanted {
    /// It has to be as of this place or a later one.
    at_least: u64,
    /// The leader that has let this member pass, which has nothing, and the term in which it led.
    led: Option<(MemberId, u64)>,
    /// The place that this member has to wait for after the copy: see [`Copied::waits`].
    waits: u64,
}

impl Wanted {
    /// A copy as of this place or a later one.
    pub fn new(at_least: u64) -> Wanted {
        Wanted {
            at_least,
            led: None,
            waits: 0,
        }
    }

    /// The leader of this term has let the member pass, which has nothing, and knew that so much was
    /// committed. `waits`: see [`Copied::waits`].
    pub fn pass(&mut self, leader: MemberId, term: u64, committed: u64, waits: u64) {
        self.at_least = self.at_least.max(committed);
        self.led = Some((leader, term));
        self.waits = waits;
    }

    /// The place that it has to hold.
    pub fn at_least(&self) -> u64 {
        self.at_least
    }

    /// See [`Wanted::pass`].
    pub fn led(&self) -> Option<(MemberId, u64)> {
        self.led
    }

    /// Checks that a copy is what is wanted. One that was let pass by a leader has to be of that leader's term
    /// or an earlier one: in a later term this member may have voted for another member.
    ///
    /// # Errors
    /// 119 InvalidSyncSource.
    pub fn check(&self, copied: &Copied) -> Result<()> {
        let Position { index, term, .. } = copied.position;
        let why = match self.led {
            _ if index < self.at_least => {
                format!(
                    "the source has committed up to {index}, and {} is wanted",
                    self.at_least
                )
            }
            Some((_, led)) if term > led => "another member leads meanwhile".to_string(),
            // What was there before the set has no term, and no member could begin with it.
            _ if index > 0 && term == 0 => "the set has committed nothing yet".to_string(),
            _ => return Ok(()),
        };
        Err(Error::new(Code::InvalidSyncSource, why))
    }
}

fn copy(set: &ReplicaSet, node: &Node, leader: MemberId, at_least: u64) -> Result<Copied> {
    let mut wanted = Wanted::new(at_least);
    let sources = sources::sources(set, node, leader)?;
    if node.members().in_force().voters.is_empty() && sources != [leader] {
        let host = host_of(set, leader)?;
        let (led, committed, waits) = download::pass(set, node, leader, &host)?;
        wanted.pass(leader, led, committed, waits);
    }
    let dir = copy_dir::begin_copy(&set.home.dbpath)?;
    let mut refused = None;
    let begun = sources.iter().find_map(|from| {
        let begun = begin_download(set, node, *from, &wanted);
        begun.map_err(|e| refused = Some((*from, e))).ok()
    });
    let Some(mut download) = begun else {
        let nobody = || Error::new(Code::InvalidSyncSource, "there is no member to copy from");
        return Err(refused.map_or_else(nobody, |(_, e)| e));
    };
    if let Some((from, e)) = refused {
        node.avoid(from);
        let attr = doc! { "from": from as i64, "error": e.to_string() };
        let other = "A member was not taken as the source of an initial sync";
        set.home
            .log
            .info("INITSYNC", 21_203, "initialsync", other, &attr);
    }
    let mut copied = download.copied().clone();
    copied.led = wanted.led.unwrap_or(copied.led);
    copied.waits = copied.waits.max(wanted.waits);
    let from = download.from();
    let options = StoreOptions {
        engine: set.home.engine_kind,
        machine: set.home.machine.clone(),
        ..StoreOptions::new(&dir)
    };
    let chunks = std::iter::from_fn(|| download.next().transpose());
    let imported = Store::import(&options, copied.position, chunks);
    download.end();
    if imported.is_err() {
        node.avoid(from);
    }
    imported.map(|()| copied)
}

fn host_of(set: &ReplicaSet, id: MemberId) -> Result<String> {
    let (member, _) = set.initialized()?;
    let host = set.host_of(&member, Some(id)).map(str::to_string);
    host.ok_or_else(|| Error::new(Code::NodeNotFound, "the source is no member"))
}

fn begin_download<'s>(
    set: &'s ReplicaSet,
    node: &'s Node,
    from: MemberId,
    wanted: &Wanted,
) -> Result<Download<'s>> {
    let host = host_of(set, from)?;
    let attr = doc! { "from": host.as_str() };
    let starting = "Starting initial sync";
    set.home
        .log
        .info("INITSYNC", 21_164, "initialsync", starting, &attr);
    node.progress.lock().begin(&host);
    let download = Download::begin(set, node, from, &host, wanted)?;
    match wanted.check(download.copied()) {
        Ok(()) => Ok(download),
        Err(e) => {
            download.end();
            Err(e)
        }
    }
}

/// Writes the state of a member whose copy is whole, and marks the copy as whole. The driver has ended by
/// then, so the state can no longer change.
///
/// # Errors
/// The disk's.
pub fn finish(dbpath: &Path, disk: &Arc<dyn Disk>, copied: Copied) -> Result<()> {
    let Some(state) = StateFile::new(disk.clone(), dbpath).read()? else {
        return Err(super::ended());
    };
    let copy = dbpath.join(copy_dir::COPY);
    StateFile::new(disk.clone(), &copy).write(&state_of(&state, copied))?;
    copy_dir::end_copy(&copy)
}
