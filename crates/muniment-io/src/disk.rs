//! Files and directories, as the log and the trees use them.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// For reading; the file must exist.
    Read,
    /// For reading and writing; the file must exist.
    Write,
    /// For reading and writing; the file is created, or emptied if it exists.
    Create,
}

/// A disk. A write is visible to every reader at once, but it survives a power cut only after a sync; a
/// file's *name* survives only after a sync of its directory.
pub trait Disk: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// Those of the machine, as for every function here.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>>;
    /// Opens a file for reading that keeps its name while any reader has it. The file may be closed in
    /// between, so there can be more such files than can be open at once.
    fn open_kept(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path, Open::Read)
    }
    /// Renames a file, which replaces a file that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes a directory and those above it, durably.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable. If it fails, nothing changes, and a later call makes the same
    /// names durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// The size of the disk that holds a directory, and how much of it is free.
    fn space(&self, dir: &Path) -> io::Result<Space>;
}

/// How much room a disk has, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The size of the disk; `u64::MAX` if it is unknown.
    pub total: u64,
    /// The bytes that can still be written; `u64::MAX` if that is unknown.
    pub free: u64,
}

impl Space {
    /// The space of a disk that does not report it, which is taken to have enough.
    pub const UNKNOWN: Space = Space {
        total: u64::MAX,
        free: u64::MAX,
    };
}

/// Replaces a file that is small enough to be written anew each time. After success the new file survives any
/// crash; after an error the old file or the new one is there.
///
/// # Errors
/// Those of the machine.
pub fn replace(disk: &dyn Disk, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = dir.join(format!("{name}.new"));
    let file = disk.open(&new, Open::Create)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&new, &dir.join(name))?;
    disk.sync_dir(dir)
}

/// Reads such a file, up to `most` bytes of it.
///
/// # Errors
/// Those of the machine.
pub fn whole(disk: &dyn Disk, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Open::Read)?;
    let len = file.len()?.min(most);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// An open file. Reads and writes have an explicit offset, so any thread may use it.
#[allow(clippy::len_without_is_empty)]
pub trait File: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`. Returns 0 at the end.
    ///
    /// # Errors
    /// Those of the machine, as for every function here.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `buf` at `offset`. After an error any part of it may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything written so far durable (fdatasync). After an error, bytes that were not durable
    /// before must never be taken to be.
    fn sync(&self) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Gives back to the disk the room of the bytes before `end`, rounded down to what the disk can give
    /// back. The file keeps its length. From then on these bytes are undefined: zeros, or their old values
    /// (which a power cut may bring back). This also works on a file that was opened for reading.
    fn free_front(&self, end: u64) -> io::Result<()>;

    /// Reads all of `buf` at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends earlier.
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            let n = self.read_at(buf, offset)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            offset += n as u64;
            buf = buf.get_mut(n..).unwrap_or_default();
        }
        Ok(())
    }
}
