//! Where the events of the audit log go: a file, the system's log, or standard output.
//!
//! Invariants: a file has whole lines only, whatever failed before; a line has been given to the system when
//! [`Sink::write`] returns without an error; a failure lasts no longer than its cause.

use crate::options::AuditTarget;
use muniment_logger::{Rotation, now_ms, put_aside, write_to_syslog};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The bytes of the disk that are reserved before an action whose event has to be written afterwards.
const RESERVE: i64 = 64 << 10;

/// See the module's head.
pub struct Sink {
    to: To,
    /// The events that could not be written since the last one that could.
    missed: u64,
}

enum To {
    File(Lines),
    Syslog(i32),
    Console,
}

impl Sink {
    /// Opens the place that the options name. A file keeps what it has.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(target: &AuditTarget) -> io::Result<Sink> {
        let to = match target {
            AuditTarget::File { path, rotation } => To::File(Lines::open(path, *rotation)?),
            AuditTarget::Syslog { facility } => To::Syslog(*facility),
            AuditTarget::Console => To::Console,
        };
        Ok(Sink { to, missed: 0 })
    }

    /// Writes a line. If lines before it were lost, the line that `gap` makes of their number comes first.
    ///
    /// # Errors
    /// Those of the file or of standard output. The line is not there then, and counts as lost.
    pub fn write(&mut self, line: &str, gap: impl Fn(u64) -> String) -> io::Result<()> {
        let mut text = String::with_capacity(line.len() + 1);
        if self.missed > 0 {
            text.push_str(&gap(self.missed));
            text.push('\n');
        }
        text.push_str(line);
        text.push('\n');
        self.put(&text).inspect_err(|_| self.missed += 1)?;
        self.missed = 0;
        Ok(())
    }

    /// Makes sure, as far as it can be known, that the next line can be written: a line that tells of lost
    /// ones is written now, and a file gets room on the disk.
    ///
    /// # Errors
    /// Nothing can be written now.
    pub fn ready(&mut self, gap: impl Fn(u64) -> String) -> io::Result<()> {
        if self.missed > 0 {
            let text = format!("{}\n", gap(self.missed));
            self.put(&text)?;
            self.missed = 0;
        }
        match &self.to {
            To::File(lines) => lines.reserve(),
            To::Syslog(_) | To::Console => Ok(()),
        }
    }

    /// Puts the file aside under a name with the time and begins a new one, or only opens it again, as the
    /// options say. Returns the name of the old file, if it has got one.
    ///
    /// # Errors
    /// The file cannot be renamed or created; the events then go on into the old one.
    pub fn rotate(&mut self) -> io::Result<Option<PathBuf>> {
        match &mut self.to {
            To::File(lines) => lines.rotate(),
            To::Syslog(_) | To::Console => Ok(None),
        }
    }

    fn put(&mut self, text: &str) -> io::Result<()> {
        match &mut self.to {
            To::File(lines) => lines.put(text),
            To::Syslog(facility) => {
                for line in text.lines() {
                    write_to_syslog(*facility, line);
                }
                Ok(())
            }
            To::Console => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()
            }
        }
    }
}

/// A file of lines.
struct Lines {
    file: File,
    path: PathBuf,
    rotation: Rotation,
    /// The file ends within a line, which could not be taken back.
    torn: bool,
}

impl Lines {
    fn open(path: &Path, rotation: Rotation) -> io::Result<Lines> {
        if path.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                "the path has to name a file, not a directory",
            ));
        }
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .mode(0o600)
            .open(path)?;
        Ok(Lines {
            torn: ends_within_a_line(&mut file)?,
            file,
            path: path.to_path_buf(),
            rotation,
        })
    }

    fn put(&mut self, text: &str) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        // The newline keeps the rest of a torn line apart from this one.
        if self.torn {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(text.as_bytes());
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return Err(self.failed(done, io::ErrorKind::WriteZero.into())),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(done, e)),
            }
        }
        self.torn = false;
        Ok(())
    }

    /// Takes back what a write has written before it failed.
    fn failed(&mut self, written: usize, e: io::Error) -> io::Error {
        let shortened = || {
            let len = self.file.metadata()?.len();
            self.file.set_len(len.saturating_sub(written as u64))
        };
        if written > 0 && shortened().is_err() {
            self.torn = true;
        }
        e
    }

    /// Reserves room for the next lines after the file's end.
    fn reserve(&self) -> io::Result<()> {
        let metadata = self.file.metadata()?;
        if !metadata.is_file() {
            return Ok(());
        }
        let (fd, end) = (self.file.as_raw_fd(), metadata.len() as i64);
        // SAFETY: the call takes plain numbers, and the descriptor is open.
        let done = unsafe { libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, end, RESERVE) };
        let e = io::Error::last_os_error();
        match (done, e.raw_os_error()) {
            (0, _) => Ok(()),
            (_, Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG | libc::EIO)) => Err(e),
            // Not every file system can reserve room.
            _ => Ok(()),
        }
    }

    fn rotate(&mut self) -> io::Result<Option<PathBuf>> {
        let rename = self.rotation == Rotation::Rename && self.path.is_file();
        let aside = match rename {
            true => Some(put_aside(&self.path, now_ms())?),
            // If the file is gone, another program has already renamed it.
            false => None,
        };
        let before = self.file.metadata().ok().filter(|m| m.is_file());
        let next = Lines::open(&self.path, self.rotation)?;
        // Gives back the room that was reserved in the old file.
        if let Some(before) = before {
            let _ = self.file.set_len(before.len());
        }
        *self = next;
        Ok(aside)
    }
}

/// Whether a file's last byte is not the end of a line: the process or the machine ended within a write.
fn ends_within_a_line(file: &mut File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn open(path: &Path, rotation: Rotation) -> Sink {
        let path = path.to_path_buf();
        Sink::open(&AuditTarget::File { path, rotation }).unwrap()
    }

    fn gap(n: u64) -> String {
        format!("{n} lost")
    }

    /// What is written to /dev/full fails, as on a full disk.
    fn full() -> Lines {
        Lines::open(Path::new("/dev/full"), Rotation::Rename).unwrap()
    }

    #[test]
    fn lost_lines_are_counted_and_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let mut sink = open(&path, Rotation::Rename);
        sink.write("a", gap).unwrap();
        let To::File(good) = std::mem::replace(&mut sink.to, To::File(full())) else {
            panic!("no file");
        };
        assert!(sink.ready(gap).is_ok(), "nothing has failed yet");
        assert!(sink.write("b", gap).is_err() && sink.write("c", gap).is_err());
        assert!(sink.ready(gap).is_err());
        sink.to = To::File(good);
        sink.write("d", gap).unwrap();
        sink.write("e", gap).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "a\n2 lost\nd\ne\n");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_torn_line_stays_apart_from_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        std::fs::write(&path, "a\nhalf").unwrap();
        let mut sink = open(&path, Rotation::Rename);
        sink.write("b", gap).unwrap();
        sink.write("c", gap).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nhalf\nb\nc\n");
    }

    #[test]
    fn a_part_that_was_written_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let mut lines = Lines::open(&path, Rotation::Rename).unwrap();
        lines.put("a\n").unwrap();
        lines.file.write_all(b"par").unwrap();
        let e = lines.failed(3, io::ErrorKind::StorageFull.into());
        assert_eq!(e.kind(), io::ErrorKind::StorageFull);
        assert!(!lines.torn);
        lines.put("b\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\n");
    }

    #[test]
    fn rotation_renames_or_reopens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        let mut sink = open(&path, Rotation::Rename);
        sink.write("a", gap).unwrap();
        sink.ready(gap).unwrap();
        let aside = sink.rotate().unwrap().unwrap();
        sink.write("b", gap).unwrap();
        assert_eq!(std::fs::read_to_string(&aside).unwrap(), "a\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "b\n");
        let mut sink = open(&path, Rotation::Reopen);
        let moved = dir.path().join("moved");
        std::fs::rename(&path, &moved).unwrap();
        sink.write("c", gap).unwrap();
        assert_eq!(sink.rotate().unwrap(), None);
        sink.write("d", gap).unwrap();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "b\nc\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "d\n");
    }
}
