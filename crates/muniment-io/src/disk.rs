//! Files and directories, as the log and the trees use them.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// For reading; it must be there.
    Read,
    /// For reading and writing; it must be there.
    Write,
    /// For reading and writing; made, or emptied if it is there.
    Create,
}

/// A disk: what is written is there for every reader at once, and for certain after a power cut
/// only once it was synced; a file's *name* only once its directory was.
pub trait Disk: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// The machine's, as with every function here.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>>;
    /// Opens a file for reading that stays where it is, with its name, for as long as anybody has it:
    /// it may be closed meanwhile, so that there can be more of them than can be open.
    fn open_kept(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path, Open::Read)
    }
    /// Gives a file another name, replacing what has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes a directory and those above it, for certain.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable. One that fails changes nothing: a later one makes
    /// durable what this one should have.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// The size of the disk that holds a directory, and how much of it is free.
    fn space(&self, dir: &Path) -> io::Result<Space>;
}

/// How much room a disk has, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it; `u64::MAX` where nobody knows.
    pub total: u64,
    /// What can still be written; `u64::MAX` where nobody knows.
    pub free: u64,
}

impl Space {
    /// Of a disk that does not say: it is taken to have space.
    pub const UNKNOWN: Space = Space {
        total: u64::MAX,
        free: u64::MAX,
    };
}

/// Puts `bytes` in the place of a file that is small enough to be written anew each time. When this has
/// returned, the new one is there after any crash; when it failed, the old one or the new one is.
///
/// # Errors
/// The machine's.
pub fn replace(disk: &dyn Disk, dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = dir.join(format!("{name}.new"));
    let file = disk.open(&new, Open::Create)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&new, &dir.join(name))?;
    disk.sync_dir(dir)
}

/// What such a file holds, up to `most` bytes of it.
///
/// # Errors
/// The machine's.
pub fn whole(disk: &dyn Disk, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, Open::Read)?;
    let len = file.len()?.min(most);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// An open file. Reads and writes name their place, so any thread may use it.
#[allow(clippy::len_without_is_empty)]
pub trait File: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`; 0 at the end.
    ///
    /// # Errors
    /// The machine's, as with every function here.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `buf` at `offset`. When it fails, any part of it may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything written so far durable (fdatasync). After a failure nothing that was not
    /// durable before may ever be taken to be.
    fn sync(&self) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Cuts or grows (with zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Gives the disk back the room that the bytes before `end` take, rounded down to what the disk can
    /// give back. The file keeps its length. From then on these bytes are undefined: zeros, or what they
    /// were (a power cut may bring them back). Works on a file that was opened for reading, too.
    fn free_front(&self, end: u64) -> io::Result<()>;

    /// Reads all of `buf` at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before.
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
