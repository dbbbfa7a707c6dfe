//! The image of the disk after a power cut. The documentation of the crate describes its format.

use crate::object::{Object, Unsynced, identity, lock, watched_path};
use crate::{Config, fatal};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a file is compared as a whole.
const COMPARE_EVERY: Duration = Duration::from_millis(300);

/// Held while the entries of a directory are recorded.
static PHOTO: Mutex<()> = Mutex::new(());

/// Takes the content of the directory at the very start for durable. If there is an image already, this
/// process is a later one on the same machine, whose power was not cut.
pub(crate) fn prepare(config: &Config) {
    let Some(shadow) = &config.shadow else {
        return;
    };
    let made = || -> io::Result<()> {
        fs::create_dir_all(shadow.join("dirs"))?;
        fs::create_dir_all(shadow.join("files"))?;
        if shadow.join("root").exists() {
            return Ok(());
        }
        let root = baseline(shadow, &config.dir)?;
        replace(shadow, &shadow.join("root"), root.as_bytes())
    };
    made().unwrap_or_else(|e| fatal(&format!("cannot begin the image: {e}")));
}

fn baseline(shadow: &Path, dir: &Path) -> io::Result<String> {
    let (id, _) = identity(dir, true).ok_or(ErrorKind::NotFound)?;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        match identity(&path, false) {
            Some((_, true)) => {
                baseline(shadow, &path)?;
            }
            Some((id, false)) => {
                let live = File::open(&path)?;
                let copy = File::create(shadow.join("files").join(id))?;
                let size = live.metadata()?.len();
                copy_data(&live, &copy, 0, size)?;
                copy.set_len(size)?;
            }
            None => {}
        }
    }
    photograph(shadow, dir, &id)?;
    Ok(id)
}

/// Makes the content of the file `fd` durable, or the entries of the directory `fd`.
pub(crate) fn sync(config: &Config, object: &Object, fd: RawFd) {
    let Some(shadow) = &config.shadow else {
        return;
    };
    let done = if object.is_dir {
        match watched_path(config, fd) {
            Some(path) => photograph(shadow, &path, &object.id),
            None => Ok(()),
        }
    } else {
        sync_file(shadow, object, fd).and_then(|()| {
            if config.ordered {
                sync_parents(config, shadow, fd)
            } else {
                Ok(())
            }
        })
    };
    done.unwrap_or_else(|e| fatal(&format!("cannot keep the image: {e}")));
    if !config.sync_delay.is_zero() {
        std::thread::sleep(config.sync_delay);
    }
}

fn sync_parents(config: &Config, shadow: &Path, fd: RawFd) -> io::Result<()> {
    let path = watched_path(config, fd);
    let mut at = path.as_deref().and_then(Path::parent);
    while let Some(dir) = at.filter(|d| d.starts_with(&config.dir)) {
        if let Some((id, true)) = identity(dir, true) {
            photograph(shadow, dir, &id)?;
        }
        at = dir.parent();
    }
    Ok(())
}

fn sync_file(shadow: &Path, object: &Object, fd: RawFd) -> io::Result<()> {
    let _one_at_a_time = lock(&object.syncing);
    let unsynced = {
        let mut u = lock(&object.unsynced);
        let fresh = Unsynced {
            whole: false,
            ranges: Vec::new(),
            least_size: None,
        };
        std::mem::replace(&mut *u, fresh)
    };
    // The descriptor may be write-only. This opens the same file, whatever its present name is.
    let live = File::open(format!("/proc/self/fd/{fd}"))?;
    let size = live.metadata()?.len();
    let target = shadow.join("files").join(&object.id);
    if unsynced.whole || !target.exists() {
        // The new copy is written to another file and renamed, since the durable content must not be lost
        // halfway.
        let fresh = beside(shadow);
        let copy = File::create_new(&fresh)?;
        copy_data(&live, &copy, 0, size)?;
        copy.set_len(size)?;
        return fs::rename(fresh, target);
    }
    let copy = OpenOptions::new().write(true).open(&target)?;
    if let Some(least) = unsynced.least_size
        && copy.metadata()?.len() > least
    {
        copy.set_len(least)?;
    }
    if copy.metadata()?.len() != size {
        copy.set_len(size)?;
    }
    for (from, to) in unsynced.ranges {
        copy_range(&live, &copy, from, to)?;
    }
    compare(object, &live, &File::open(&target)?)
}

/// Compares the whole file from time to time: a write that this layer has not seen must not go unnoticed.
fn compare(object: &Object, live: &File, copy: &File) -> io::Result<()> {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = lock(&LAST);
    if last.is_some_and(|at| at.elapsed() < COMPARE_EVERY) {
        return Ok(());
    }
    // The lock is held so that no write comes in between.
    let unsynced = lock(&object.unsynced);
    if unsynced.whole || !unsynced.ranges.is_empty() || unsynced.least_size.is_some() {
        return Ok(());
    }
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let size = live.metadata()?.len();
    let mut at = 0;
    while let Some(start) = next_data(live, at).filter(|s| *s < size) {
        let n = live.read_at(&mut a, start)?;
        let mut m = 0;
        while m < n {
            match copy.read_at(b.get_mut(m..n).unwrap_or_default(), start + m as u64)? {
                0 => break,
                more => m += more,
            }
        }
        if n == 0 || a.get(..n) != b.get(..m) {
            fatal(&format!(
                "a write to {} between {start} and {} passed this layer by",
                object.id,
                start + n as u64
            ));
        }
        at = start + n as u64;
    }
    *last = Some(Instant::now());
    Ok(())
}

/// The position of the first byte at or after `at` that is not in a hole.
fn next_data(file: &File, at: u64) -> Option<u64> {
    // SAFETY: the call takes plain numbers, and no code relies on the descriptor's position.
    let n = unsafe { libc::syscall(libc::SYS_lseek, file.as_raw_fd(), at, libc::SEEK_DATA) };
    u64::try_from(n).ok()
}

/// Copies the parts of `from..to` that are not holes.
fn copy_data(live: &File, copy: &File, from: u64, to: u64) -> io::Result<()> {
    let seek = |at: u64, whence: i32| {
        // SAFETY: the call takes plain numbers; the descriptor is open, and no code relies on its position.
        let n = unsafe { libc::syscall(libc::SYS_lseek, live.as_raw_fd(), at, whence) };
        u64::try_from(n).ok()
    };
    let mut at = from;
    while at < to {
        let Some(start) = seek(at, libc::SEEK_DATA).filter(|s| *s < to) else {
            return Ok(());
        };
        let end = seek(start, libc::SEEK_HOLE).unwrap_or(to).min(to);
        copy_range(live, copy, start, end)?;
        at = end;
    }
    Ok(())
}

fn copy_range(live: &File, copy: &File, from: u64, to: u64) -> io::Result<()> {
    let mut buf = vec![0; (to - from).min(1 << 20) as usize];
    let mut at = from;
    while at < to {
        let wanted = (to - at).min(buf.len() as u64) as usize;
        let piece = buf.get_mut(..wanted).unwrap_or_default();
        let n = live.read_at(piece, at)?;
        if n == 0 {
            return Ok(()); // truncated meanwhile
        }
        copy.write_all_at(piece.get(..n).unwrap_or_default(), at)?;
        at += n as u64;
    }
    Ok(())
}

/// Makes a directory's present entries durable.
fn photograph(shadow: &Path, dir: &Path, id: &str) -> io::Result<()> {
    let _one_at_a_time = lock(&PHOTO);
    // Reading a directory is not atomic with respect to renames, so it is read until two results are equal.
    let mut entries = read(dir)?;
    for _ in 0..100 {
        let again = read(dir)?;
        if again == entries {
            break;
        }
        entries = again;
    }
    replace(
        shadow,
        &shadow.join("dirs").join(id),
        entries.join("").as_bytes(),
    )?;
    drop_unreferred(shadow);
    Ok(())
}

/// Files whose last name was removed. Their durable content is useless once no durable name is left.
static DEAD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes that the last name of the file `id` was removed.
pub(crate) fn removed(id: String) {
    lock(&DEAD).push(id);
}

fn drop_unreferred(shadow: &Path) {
    let mut dead = lock(&DEAD);
    if dead.is_empty() {
        return;
    }
    let durable: Vec<String> = fs::read_dir(shadow.join("dirs"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|d| fs::read_to_string(d.path()).ok())
        .collect();
    dead.retain(|id| {
        let entry = format!("f {id} ");
        let referred = durable.iter().any(|text| text.contains(&entry));
        if !referred {
            // A file that was never synced has no content here.
            let _ = fs::remove_file(shadow.join("files").join(id));
        }
        referred
    });
}

fn read(dir: &Path) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    let all = match fs::read_dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(lines), // removed meanwhile
        other => other?,
    };
    for entry in all {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        let Some(name) = name.to_str().filter(|n| !n.contains('\n')) else {
            fatal(&format!("cannot keep the name {name:?}"));
        };
        // `None`: it was removed meanwhile, or is a socket.
        if let Some((id, is_dir)) = identity(&path, false) {
            let kind = if is_dir { 'd' } else { 'f' };
            lines.push(format!("{kind} {id} {name}\n"));
        }
    }
    lines.sort();
    Ok(lines)
}

/// Writes a file so that it has either its old or its new content.
fn replace(shadow: &Path, target: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = beside(shadow);
    fs::write(&fresh, bytes)?;
    fs::rename(fresh, target)
}

fn beside(shadow: &Path) -> std::path::PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    shadow.join(format!("tmp-{}-{n}", std::process::id()))
}
