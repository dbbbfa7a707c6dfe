//! What a data directory says of the set that it is of, and how its storage is opened by that.

use crate::lifecycle::Restart;
use crate::{copy_dir, initial_sync};
use muniment_consensus::{LocalState, StateFile};
use muniment_io::Disk;
use muniment_value::Result;
use std::path::Path;
use std::sync::Arc;

/// How the storage is opened.
pub struct Opening {
    /// As the storage of a member of a set.
    pub member: bool,
    /// The place after which the log has to be cut, as an earlier run has noted.
    pub cut_behind: Option<u64>,
    /// The data are those of a member of a set with others, and the server is started without `--replSet`, so
    /// that they must not be changed: then the place up to which everything is known to be committed.
    pub kept_for_set: Option<u64>,
}

/// Puts a copy of another member's data in its place, if there is one, and returns how the storage is to be
/// opened. `in_set`: whether the server is started as a member of a set. The caller has the directory's lock and has not opened the storage yet.
///
/// # Errors
/// If the state cannot be read; the disk's.
pub fn opening(dir: &Path, disk: &Arc<dyn Disk>, in_set: bool) -> Result<Opening> {
    copy_dir::take_copy(dir)?;
    let state = StateFile::new(disk.clone(), dir).read()?;
    let kept = state.as_ref().filter(|state| !in_set && has_others(state));
    let kept_for_set = kept.map(|state| state.commit);
    Ok(Opening {
        member: in_set || kept_for_set.is_some(),
        cut_behind: state.and_then(|state| state.cut),
        kept_for_set,
    })
}

/// Whether there are others in the set. A member that is alone needs nobody else's vote or acknowledgement,
/// so its data may be written without the set, too.
fn has_others(state: &LocalState) -> bool {
    let now = &state.in_force;
    let alone = now.config.members.iter().all(|m| m.id == state.id)
        && now.voters.iter().eq([&state.id])
        && now.learners.is_empty();
    !alone
}

/// What a data directory says of the set that it is of.
pub struct Stored {
    /// There are others in the set.
    pub in_set: bool,
    /// See [`Opening::cut_behind`].
    pub cut: Option<u64>,
}

/// Reads what a data directory says of its set, for a caller that must not change the directory.
///
/// # Errors
/// The disk's; 301; 20 IllegalOperation while a copy of another member's data lies there that only a
/// start takes up.
pub fn stored(dir: &Path, disk: &Arc<dyn Disk>) -> Result<Stored> {
    copy_dir::refuse_copy(dir)?;
    let state = StateFile::new(disk.clone(), dir).read()?;
    Ok(Stored {
        in_set: state.as_ref().is_some_and(has_others),
        cut: state.and_then(|state| state.cut),
    })
}

/// Does what is needed before the storage of a member that begins anew is opened again.
///
/// # Errors
/// The disk's.
pub fn prepare_restart(dir: &Path, disk: &Arc<dyn Disk>, how: Restart) -> Result<()> {
    match how {
        Restart::Storage => Ok(()),
        Restart::Synced(copied) => initial_sync::finish(dir, disk, *copied),
    }
}
