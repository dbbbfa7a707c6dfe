//! The directory of a copy of another member's data that takes the place of the member's own.
//!
//! A copy is made in a directory of its own below the data directory. When it is whole and on the
//! disk it gets a mark, and only then takes the place of the data, piece by piece; if that is
//! interrupted the next start goes on with it.

use muniment_value::{Code, Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The directory of a copy that is being made.
pub const COPY: &str = "initial-sync";
/// The mark of one that is whole.
const WHOLE: &str = "WHOLE";

fn failed(doing: &str, path: &Path, e: std::io::Error) -> Error {
    Error::from(e).context(&format!("{doing} {}: ", path.display()))
}

fn sync_dir(path: &Path) -> Result<()> {
    fs::File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(|e| failed("cannot sync", path, e))
}

/// Where a copy is to be made: an empty directory, whatever was there.
///
/// # Errors
/// The disk's.
pub fn begin_copy(dbpath: &Path) -> Result<PathBuf> {
    let copy = dbpath.join(COPY);
    if copy.exists() {
        fs::remove_dir_all(&copy).map_err(|e| failed("cannot remove", &copy, e))?;
    }
    fs::create_dir_all(&copy).map_err(|e| failed("cannot make", &copy, e))?;
    sync_dir(dbpath)?;
    Ok(copy)
}

/// Marks a copy as whole: all of it is on the disk.
///
/// # Errors
/// The disk's.
pub fn end_copy(copy: &Path) -> Result<()> {
    let mark = copy.join(WHOLE);
    fs::File::create(&mark)
        .and_then(|file| file.sync_all())
        .map_err(|e| failed("cannot write", &mark, e))?;
    sync_dir(copy)
}

/// Refuses a directory with a copy, for a caller that must not change the directory.
///
/// # Errors
/// 20 IllegalOperation if a copy lies there, which may take the place of the data.
pub fn refuse_copy(dbpath: &Path) -> Result<()> {
    match dbpath.join(COPY).exists() {
        false => Ok(()),
        true => Err(Error::new(
            Code::IllegalOperation,
            format!(
                "in {} lies a copy of another member's data, which the next start of the server takes \
                 up or throws away: start it before",
                dbpath.display()
            ),
        )),
    }
}

/// Puts a copy that is whole in the place of the data; removes one that is not.
///
/// # Errors
/// The disk's: then the next start goes on.
pub fn take_copy(dbpath: &Path) -> Result<()> {
    let copy = dbpath.join(COPY);
    if !copy.exists() {
        return Ok(());
    }
    if copy.join(WHOLE).exists() {
        let listed = fs::read_dir(&copy).map_err(|e| failed("cannot list", &copy, e))?;
        let mut names = Vec::new();
        for entry in listed {
            names.push(
                entry
                    .map_err(|e| failed("cannot list", &copy, e))?
                    .file_name(),
            );
        }
        // The lock is left: it belonged to the process that made the copy. The mark is removed last of all,
        // with the rest of the copy, so that an interrupted replacement goes on.
        names.retain(|n| n != WHOLE && n != "muniment.lock");
        // The state, which says to which member and place the data belong, comes after the data.
        names.sort_by_key(|n| n == muniment_consensus::FILE);
        for name in names {
            let (from, to) = (copy.join(&name), dbpath.join(&name));
            if to.is_dir() {
                fs::remove_dir_all(&to).map_err(|e| failed("cannot remove", &to, e))?;
            }
            fs::rename(&from, &to).map_err(|e| failed("cannot rename", &from, e))?;
            sync_dir(dbpath)?;
        }
    }
    fs::remove_dir_all(&copy).map_err(|e| failed("cannot remove", &copy, e))?;
    sync_dir(dbpath)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn write(dir: &Path, name: &str, text: &str) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(dir: &Path, name: &str) -> Option<String> {
        fs::read_to_string(dir.join(name)).ok()
    }

    /// A replacement that is interrupted after any step is completed by the next start.
    #[test]
    fn a_whole_copy_takes_the_place_of_the_data() {
        for interrupted in 0..=3 {
            let dir = tempfile::tempdir().unwrap();
            let db = dir.path();
            write(db, "log/1", "old");
            write(db, "log/2", "old");
            write(db, "trees/1", "old");
            write(db, "replication", "old");
            let copy = begin_copy(db).unwrap();
            write(&copy, "log/1", "new");
            write(&copy, "trees/9", "new");
            write(&copy, "replication", "new");
            end_copy(&copy).unwrap();
            // As if it had ended in between.
            for name in ["log", "trees", "replication"].iter().take(interrupted) {
                let _ = fs::remove_dir_all(db.join(name));
                fs::rename(copy.join(name), db.join(name)).unwrap();
            }
            take_copy(db).unwrap();
            take_copy(db).unwrap();
            assert_eq!(read(db, "log/1").as_deref(), Some("new"));
            assert_eq!(read(db, "log/2"), None);
            assert_eq!(read(db, "trees/1"), None);
            assert_eq!(read(db, "trees/9").as_deref(), Some("new"));
            assert_eq!(read(db, "replication").as_deref(), Some("new"));
            assert!(!copy.exists());
        }
    }

    #[test]
    fn a_copy_that_is_not_whole_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path();
        write(db, "log/1", "old");
        let copy = begin_copy(db).unwrap();
        write(&copy, "log/1", "new");
        take_copy(db).unwrap();
        assert_eq!(read(db, "log/1").as_deref(), Some("old"));
        assert!(!copy.exists());
        let copy = begin_copy(db).unwrap();
        write(&copy, "log/1", "new");
        assert!(read(&begin_copy(db).unwrap(), "log/1").is_none());
    }
}
