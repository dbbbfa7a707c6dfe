//! The machine's own disk.

use crate::disk::{Disk, File, Open, Space};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

/// Space on the file system that holds `dir`; `None` if the file system does not report it (some network
/// ones).
fn space(dir: &Path) -> Option<Space> {
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
    Some(Space {
        total: total.saturating_mul(unit),
        free: free.saturating_mul(unit),
    })
}

/// The unit in which file systems can free bytes of a file, in bytes: a page.
#[cfg(target_os = "linux")]
const PAGE: u64 = 4096;

/// Frees the bytes before `end` of a file that is open for writing.
#[cfg(target_os = "linux")]
pub(crate) fn punch(file: &fs::File, end: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let end = end / PAGE * PAGE;
    let Ok(len) = libc::off_t::try_from(end) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    if len == 0 {
        return Ok(());
    }
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    loop {
        // SAFETY: the descriptor is open as long as `file` lives; the rest are plain numbers.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, len) } == 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// Other systems have no such call that all their file systems support.
#[cfg(not(target_os = "linux"))]
pub(crate) fn punch(_: &fs::File, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
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

    fn open_kept(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        crate::files::open(path)
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

    fn space(&self, dir: &Path) -> io::Result<Space> {
        Ok(space(dir).unwrap_or(Space::UNKNOWN))
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

    fn free_front(&self, end: u64) -> io::Result<()> {
        punch(self, end)
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
        let Space { total, free } = OsDisk.space(&deep).unwrap();
        assert!(free > 0 && total >= free);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_front_of_a_file_is_given_back() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let bytes: Vec<u8> = (0..1 << 20).map(|i| (i % 251) as u8 + 1).collect();
        OsDisk
            .open(&path, Open::Create)
            .unwrap()
            .write_at(&bytes, 0)
            .unwrap();
        let blocks = || fs::metadata(&path).unwrap().blocks();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        let before = blocks();
        // The file is opened for reading only, as tables are.
        let kept = OsDisk.open_kept(&path).unwrap();
        match kept.free_front(700_001) {
            // A file system that cannot do that reports it.
            Err(e) => assert!(crate::files::cannot(&e), "{e}"),
            Ok(()) => assert!(blocks() <= before - 1300, "{before} {}", blocks()),
        }
        assert_eq!(kept.len().unwrap(), 1 << 20);
        let mut rest = vec![0; (1 << 20) - 700_001];
        kept.read_exact_at(&mut rest, 700_001).unwrap();
        assert_eq!(rest, bytes[700_001..]);
        kept.free_front(0).unwrap();
        assert!(dir.path().exists());
    }
}
