//! A disk over another one, which it only reads. Changes are kept in memory.

use crate::{Disk, File, Open, SimDisk, Space};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shows the files of another disk together with changes that the other disk never sees. With it, a directory
/// can be inspected by functions that first put it in order.
pub struct Overlay {
    below: Arc<dyn Disk>,
    above: SimDisk,
    /// Names below that are removed, or belong to a file of this disk.
    gone: Mutex<BTreeSet<PathBuf>>,
}

impl Overlay {
    /// An overlay without changes.
    pub fn over(below: Arc<dyn Disk>) -> Overlay {
        Overlay {
            below,
            above: SimDisk::memory(),
            gone: Mutex::default(),
        }
    }

    fn gone(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the file below is visible.
    fn shows(&self, path: &Path) -> bool {
        !self.gone().contains(path)
    }

    /// Creates a file of this disk.
    fn make(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        if let Some(dir) = path.parent() {
            self.above.create_dir(dir)?;
        }
        let file = self.above.open(path, Open::Create)?;
        self.gone().insert(path.to_path_buf());
        Ok(file)
    }

    /// Copies the file to this disk.
    fn lift(&self, path: &Path) -> io::Result<()> {
        if !self.shows(path) {
            return Ok(());
        }
        let below = self.below.open(path, Open::Read)?;
        let mut bytes = vec![0; usize::try_from(below.len()?).unwrap_or(usize::MAX)];
        below.read_exact_at(&mut bytes, 0)?;
        self.make(path)?.write_at(&bytes, 0)
    }
}

/// A file of the disk below, which cannot be changed.
struct OnlyRead(Arc<dyn File>);

impl File for OnlyRead {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn free_front(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Disk for Overlay {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        match how {
            Open::Create => self.make(path),
            Open::Read if self.shows(path) => Ok(Arc::new(OnlyRead(self.below.open(path, how)?))),
            Open::Read => self.above.open(path, how),
            Open::Write => {
                self.lift(path)?;
                self.above.open(path, how)
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.lift(from)?;
        if let Some(dir) = to.parent() {
            self.above.create_dir(dir)?;
        }
        self.above.rename(from, to)?;
        self.gone().insert(to.to_path_buf());
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if self.shows(path) {
            // This fails if there is no such file.
            self.below.open(path, Open::Read)?;
            self.gone().insert(path.to_path_buf());
            return Ok(());
        }
        self.above.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let above = self.above.list(dir);
        let mut names: BTreeSet<String> = match self.below.list(dir) {
            Ok(names) => names.into_iter().collect(),
            Err(e) if above.is_err() => return Err(e),
            Err(_) => BTreeSet::new(),
        };
        names.retain(|name| self.shows(&dir.join(name)));
        names.extend(above.unwrap_or_default());
        Ok(names.into_iter().collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.above.create_dir(dir)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn space(&self, _: &Path) -> io::Result<Space> {
        Ok(Space::UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::{replace, whole};

    #[test]
    fn changes_are_visible_and_the_disk_below_stays_as_it_is() {
        let below = SimDisk::memory();
        let dir = Path::new("/d");
        below.create_dir(dir).unwrap();
        for name in ["a", "b", "c"] {
            let file = below.open(&dir.join(name), Open::Create).unwrap();
            file.write_at(name.as_bytes(), 0).unwrap();
        }
        let before = below.fork();
        let over = Overlay::over(Arc::new(below.fork()));
        let read = |name: &str| whole(&over, &dir.join(name), 99).ok();
        assert_eq!(read("a").unwrap(), b"a");
        over.open(&dir.join("a"), Open::Write)
            .unwrap()
            .write_at(b"xy", 1)
            .unwrap();
        assert_eq!(read("a").unwrap(), b"axy");
        over.remove(&dir.join("b")).unwrap();
        assert!(read("b").is_none() && over.remove(&dir.join("b")).is_err());
        over.rename(&dir.join("c"), &dir.join("d")).unwrap();
        assert!(read("c").is_none());
        assert_eq!(read("d").unwrap(), b"c");
        replace(&over, dir, "e", b"new").unwrap();
        assert_eq!(over.list(dir).unwrap(), ["a", "d", "e"]);
        over.create_dir(Path::new("/other")).unwrap();
        assert!(over.list(Path::new("/other")).unwrap().is_empty());
        for name in ["a", "b", "c"] {
            let path = dir.join(name);
            assert_eq!(below.bytes(&path), before.bytes(&path));
        }
        assert_eq!(below.list(dir).unwrap(), ["a", "b", "c"]);
    }
}
