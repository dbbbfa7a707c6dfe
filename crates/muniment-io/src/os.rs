//! The machine's own disk.

use crate::disk::{Disk, File, Open};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

/// Free bytes for us, and the size, of the file system that holds `dir`; `None` if it does not say.
pub fn space(dir: &Path) -> Option<(u64, u64)> {
    let mut path = dir.as_os_str().as_bytes().to_vec();
    path.push(0);
    // SAFETY: statvfs is plain data for which zeros are valid.
    let mut st: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero and `st` is writable.
    if unsafe { libc::statvfs(path.as_ptr().cast(), &mut st) } != 0 {
        return None;
    }
    // The fields' types differ between platforms.
    #[allow(clippy::unnecessary_cast)]
    let (unit, free, total) = (st.f_frsize as u64, st.f_bavail as u64, st.f_blocks as u64);
    Some((free.saturating_mul(unit), total.saturating_mul(unit)))
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match how {
            Open::Read => {}
            Open::Write => {
                options.write(true);
            }
            Open::Create => {
                options.write(true).create(true).truncate(true);
            }
        }
        Ok(Arc::new(options.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.as_os_str().is_empty() || dir.is_dir() {
            return Ok(());
        }
        let parent = match dir.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        self.create_dir(parent)?;
        match fs::create_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            other => other?,
        }
        self.sync_dir(parent)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        // A file system that does not say (some network ones) is taken to have space.
        Ok(space(dir).map_or(u64::MAX, |(free, _)| free))
    }
}

impl File for fs::File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match FileExt::read_at(self, buf, offset) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        fs::File::set_len(self, len)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn files_and_names() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("x/y");
        OsDisk.create_dir(&deep).unwrap();
        OsDisk.create_dir(&deep).unwrap();
        let (a, b) = (deep.join("a"), deep.join("b"));
        assert!(OsDisk.open(&a, Open::Read).is_err());
        assert!(OsDisk.open(&a, Open::Write).is_err());
        let f = OsDisk.open(&a, Open::Create).unwrap();
        f.write_at(b"hello", 3).unwrap();
        f.sync().unwrap();
        assert_eq!(f.len().unwrap(), 8);
        let mut buf = [1; 8];
        f.read_exact_at(&mut buf, 0).unwrap();
        assert_eq!(&buf, b"\0\0\0hello");
        assert_eq!(f.read_at(&mut buf, 8).unwrap(), 0);
        assert!(f.read_exact_at(&mut buf, 1).is_err());
        f.set_len(4).unwrap();
        OsDisk.rename(&a, &b).unwrap();
        OsDisk.sync_dir(&deep).unwrap();
        assert_eq!(OsDisk.list(&deep).unwrap(), ["b"]);
        assert_eq!(OsDisk.open(&b, Open::Write).unwrap().len().unwrap(), 4);
        assert!(OsDisk.create_dir(&b).is_err(), "there is a file");
        OsDisk.open(&b, Open::Create).unwrap();
        assert_eq!(OsDisk.open(&b, Open::Read).unwrap().len().unwrap(), 0);
        OsDisk.remove(&b).unwrap();
        assert!(OsDisk.list(&deep).unwrap().is_empty());
        let (free, total) = space(&deep).unwrap();
        assert!(free > 0 && total >= free);
        assert!(OsDisk.free_space(&deep).unwrap() > 0);
    }
}
