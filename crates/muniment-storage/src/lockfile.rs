//! The lock on the data directory and its FORMAT file.

use crate::options::EngineKind;
use muniment_value::{Code, Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What FORMAT holds: the version of the directory's layout.
const FORMAT: &str = "muniment data directory, format 4\n";
/// What earlier versions wrote there: 1 before there was one log for all collections, 2 while documents
/// were stored in the order of `_id`, 3 while the log was not the oplog.
const EARLIER: [(&str, u32); 3] = [
    ("muniment data directory, format 1\n", 1),
    ("muniment data directory, format 2\n", 2),
    ("muniment data directory, format 3\n", 3),
];

/// The lock on the directory, held until the store and all shares of the lock are gone; the kernel
/// releases it when the process dies.
pub struct DirLock {
    file: Arc<File>,
}

impl DirLock {
    /// Shares the lock, which is held until both are gone.
    #[must_use]
    pub fn share(&self) -> DirLock {
        let file = Arc::clone(&self.file);
        DirLock { file }
    }

    /// Whether no share of it is left.
    pub fn is_only(&self) -> bool {
        Arc::strong_count(&self.file) == 1
    }

    /// Creates the directory if need be and locks it. `beside`: files that the options name, see
    /// [`crate::examine_directory`].
    ///
    /// # Errors
    /// 98 DBPathInUse naming the other process; I/O errors; 28662 if the directory has files that are
    /// not Muniment's; a message for people when another version made the directory.
    pub fn acquire(dir: &Path, engine: EngineKind, beside: &[PathBuf]) -> Result<DirLock> {
        crate::foreign::examine(dir, engine, beside)?;
        std::fs::create_dir_all(dir)
            .map_err(|e| Error::from(e).context(&format!("cannot create {}: ", dir.display())))?;
        let path = dir.join("muniment.lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| Error::from(e).context(&format!("cannot open {}: ", path.display())))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // An error here is ignored, because the message is clear without the number, too.
                let _ = file.read_to_string(&mut pid);
                let who = match pid.trim() {
                    "" => "another process".to_string(),
                    pid => format!("process {pid}"),
                };
                return Err(Error::new(
                    Code::DBPathInUse,
                    format!(
                        "Unable to lock the data directory {}: it is in use by {who}. Is another \
                         server already running on it?",
                        dir.display()
                    ),
                ));
            }
            Err(TryLockError::Error(e)) => {
                return Err(Error::from(e).context(&format!("cannot lock {}: ", path.display())));
            }
        }
        // The number is for people; a full disk must not keep a server from starting.
        let _ = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        match engine {
            EngineKind::Lsm => check_format(dir)?,
            EngineKind::Memory => refuse_data(dir)?,
        }
        Ok(DirLock {
            file: Arc::new(file),
        })
    }
}

fn check_format(dir: &Path) -> Result<()> {
    let path = dir.join("FORMAT");
    let earlier = |text: &str| EARLIER.iter().find(|(t, _)| *t == text).map(|(_, n)| *n);
    match std::fs::read_to_string(&path) {
        Ok(text) if text == FORMAT => Ok(()),
        Ok(text) if let Some(n) = earlier(&text) => Err(Error::new(
            Code::MustUpgrade,
            format!(
                "the data directory {} was written by an earlier version of muniment (format {n}), \
                 which this version cannot read. To carry the data over, start the earlier \
                 version on it, run mongodump, start this version on an empty directory, and run \
                 mongorestore",
                dir.display()
            ),
        )),
        Ok(text) => Err(Error::new(
            Code::MustUpgrade,
            format!(
                "the data directory {} was written in another format: {:?}, this server reads {:?}",
                dir.display(),
                text.trim(),
                FORMAT.trim()
            ),
        )),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            // The file is written aside and renamed, so that a crash leaves either none or the whole of
            // it.
            let temporary = dir.join("FORMAT.new");
            let mut file = File::create(&temporary)?;
            file.write_all(FORMAT.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&temporary, &path)?;
            File::open(dir)?.sync_all()?;
            Ok(())
        }
        Err(e) => Err(Error::from(e).context(&format!("cannot read {}: ", path.display()))),
    }
}

/// The memory engine keeps nothing in the directory, so it must not be started on one with data,
/// which would look empty.
fn refuse_data(dir: &Path) -> Result<()> {
    if !dir.join("FORMAT").exists() {
        return Ok(());
    }
    Err(Error::new(
        Code::InvalidOptions,
        format!(
            "the data directory {} holds data in files: --storageEngine memory would not show \
             them. Choose another directory, or leave the option out",
            dir.display()
        ),
    ))
}
