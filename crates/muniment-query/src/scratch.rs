//! Scratch space: anonymous files for data that stages cannot hold in memory.
//!
//! A file has no name (or loses it at once), so nobody can guess it, and nothing is left on the disk, not
//! even by a killed process. Invariant: space is requested before it is written to, so that no sort takes the
//! space that the database itself needs to go on.

use muniment_value::{Code, Error, Result};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Asks whether this many bytes may be written.
type Ask = dyn Fn(u64) -> Result<()> + Send + Sync;

/// A directory for scratch files, which is made when it is first needed, and the function that grants its
/// space.
#[derive(Clone)]
pub struct Scratch {
    dir: Arc<Path>,
    ask: Arc<Ask>,
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scratch").field(&self.dir).finish()
    }
}

impl Scratch {
    /// Scratch space in `dir`. `ask` refuses bytes for which there is no space.
    pub fn new(dir: PathBuf, ask: impl Fn(u64) -> Result<()> + Send + Sync + 'static) -> Scratch {
        Scratch {
            dir: dir.into(),
            ask: Arc::new(ask),
        }
    }

    /// Scratch space in `dir` that is limited only by the disk, for tests.
    pub fn unlimited(dir: &Path) -> Scratch {
        Scratch::new(dir.to_path_buf(), |_| Ok(()))
    }

    /// A new empty file.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace; 176 FileOpenFailed.
    pub fn file(&self) -> Result<ScratchFile> {
        let made = std::fs::create_dir_all(&self.dir);
        let file = made.and_then(|()| tempfile::tempfile_in(&self.dir));
        let file = file.map_err(|e| {
            let code = match e.raw_os_error() {
                Some(28) => Code::OutOfDiskSpace,
                _ => Code::FileOpenFailed,
            };
            let dir = self.dir.display();
            Error::new(code, format!("cannot spill to {dir}: {e}"))
        })?;
        Ok(ScratchFile {
            file,
            scratch: self.clone(),
        })
    }
}

/// An anonymous file. If its bytes are refused, a write fails with that error, wrapped.
pub struct ScratchFile {
    file: File,
    scratch: Scratch,
}

impl ScratchFile {
    /// The file itself, for reading.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file itself, after the last write.
    pub fn into_file(self) -> File {
        self.file
    }
}

impl Write for ScratchFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.scratch.ask)(bytes.len() as u64).map_err(|e| {
            let dir = self.scratch.dir.display();
            io::Error::other(e.context(&format!("cannot spill to {dir}: ")))
        })?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::BufWriter;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn a_refused_write_writes_nothing_and_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let left = Arc::new(AtomicU64::new(100));
        let of = left.clone();
        let scratch = Scratch::new(dir.path().join("new"), move |bytes| {
            let take = |left: u64| left.checked_sub(bytes);
            let taken = of.fetch_update(Relaxed, Relaxed, take);
            let refused = |_| Error::new(Code::OutOfDiskSpace, "no space");
            taken.map_err(refused).map(|_| ())
        });
        let mut file = BufWriter::with_capacity(64, scratch.file().unwrap());
        file.write_all(&[1; 90]).unwrap();
        file.write_all(&[1; 50]).unwrap();
        let e = Error::from(file.flush().unwrap_err());
        assert_eq!(e.code(), Code::OutOfDiskSpace);
        assert!(e.message().contains("cannot spill to") && e.message().ends_with("no space"));
        assert_eq!(file.get_ref().file().metadata().unwrap().len(), 90);
        // No file with a name is left.
        assert_eq!(
            std::fs::read_dir(dir.path().join("new")).unwrap().count(),
            0
        );
    }
}
