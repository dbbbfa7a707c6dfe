//! `muniment doctor`: finds damage in a data directory that no server has open, and repairs it.

use muniment_io::{OsDisk, Overlay};
use muniment_storage::{DirLock, EngineKind, Repaired, Store, StoreOptions};
use muniment_value::{Code, Error, Result};
use std::path::Path;
use std::sync::Arc;

/// Lists the damages, one line each. Nothing in the directory is changed.
///
/// # Errors
/// If there is no data; 98 DBPathInUse while a server uses the directory; the errors that keep a server from
/// starting.
pub fn examine(dir: &Path) -> Result<Vec<String>> {
    let (mut options, lock, _) = take(dir)?;
    options.machine.disk = Arc::new(Overlay::over(Arc::new(OsDisk)));
    options.machine.threads = false;
    let store = Store::open_locked(options, Some(lock))?;
    let damages = store.damages();
    store.close()?;
    Ok(damages.iter().map(ToString::to_string).collect())
}

/// Repairs the damages. Returns what was repaired and what could not be, one line each.
///
/// # Errors
/// Those of [`examine`] and of [`Store::repair`]; 20 IllegalOperation for a member of a replica set of
/// several.
pub fn repair(dir: &Path) -> Result<Repaired> {
    let (options, lock, in_set) = take(dir)?;
    if in_set {
        return Err(Error::new(Code::IllegalOperation, of_a_set(dir)));
    }
    Store::repair(&options, &lock)
}

/// Locks and opens the directory. Also returns whether it belongs to a member of a set of several.
fn take(dir: &Path) -> Result<(StoreOptions, DirLock, bool)> {
    if !dir.join("FORMAT").is_file() {
        return Err(Error::bad_value(format!(
            "there is no data directory of muniment at {}",
            dir.display()
        )));
    }
    let lock = DirLock::acquire(dir, EngineKind::Lsm, &[])?;
    let mut options = StoreOptions::new(dir);
    let state = muniment_member::stored(dir, &options.machine.disk)?;
    options.cut_behind = state.cut;
    options.member = state.in_set;
    Ok((options, lock, state.in_set))
}

fn of_a_set(dir: &Path) -> String {
    format!(
        "{} is the data of a member of a replica set. Its log is the log of all members, and a record \
         that it alone had would part it from the others: nothing was changed. Start it; what is damaged \
         is closed, and everything else serves. Drop what is damaged on the primary (`dropIndexes`, \
         `drop`), and build the index again there. What another member has undamaged, this one gets if \
         its directory is emptied, so that it copies the others' data. To keep the documents of a \
         collection that is damaged on every member, make one of them the only one of its set \
         (`replSetReconfig` with {{force: true}}), stop it, repair its directory, start it, and add the \
         others again with empty directories.",
        dir.display()
    )
}
