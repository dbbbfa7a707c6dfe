//! Records of the primary that a locked member has taken and not put into its log yet.
//!
//! Under fsyncLock the log stands still, so that its files can be copied one after the other: each of its
//! records says how far the log was durable, and a copy that held a later record without those before it
//! would be damaged. So what comes meanwhile goes into one file beside the log. The file only grows, at its
//! end, so that a copy which is read from front to back has a beginning of it. When the lock has ended the
//! records are put into the log, which is synced before the file is removed. After a crash between any two
//! of these steps, and in a copy, all of them are done again, and what the log has already is skipped.
//!
//! The file has a head, which says after which record of the log it begins, and then a frame for each
//! record. A frame says how far the file was durable when the frame was written. A frame that is not whole
//! although it was durable by a later one means damage, and is reported; any other ends the file.
//!
//! Invariants: each frame follows on the one before; nothing that was written is changed while the file is
//! there, except that a start cuts off what is not whole.

use crate::frame::Record;
use bytes::Bytes;
use muniment_io::{Disk, File, Open};
use muniment_storage::{Position, Timestamp};
use muniment_value::{Code, Error, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file's name in the data directory.
pub const FILE: &str = "replication.aside";
const MAGIC: &[u8; 8] = b"muniside";
const VERSION: u32 = 1;
/// Bytes of the file's head.
const HEAD: u64 = 44;
/// Each frame begins with this.
const MARK: u32 = 0x6d75_6e66;
/// Bytes of a frame before its record.
const FRAME: usize = 52;
/// Most bytes of a record.
const LONGEST: u32 = 1 << 30;
/// So many bytes are read at once in a search.
const STEP: usize = 1 << 20;

/// What a frame says of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The record's place.
    pub at: Position,
    /// The record is one of a configuration.
    pub config: bool,
    /// Everything up to this place was durable when the frame was written.
    synced: u64,
    len: u32,
    crc: u32,
}

/// The file.
pub struct Aside {
    path: PathBuf,
    file: Arc<dyn File>,
    salt: u32,
    /// The last record of the log when the file was made.
    base: Position,
    /// The last record in the file, or the base.
    last: Position,
    /// The file is durable up to this place.
    synced: u64,
    /// Bytes of the file's head and its whole frames.
    len: u64,
    /// The first frame that the log may not have.
    next: u64,
}

impl Aside {
    /// Makes the file, for records that follow on the record `base`.
    ///
    /// # Errors
    /// The disk's.
    pub fn create(disk: &Arc<dyn Disk>, dir: &Path, base: Position, salt: u32) -> Result<Aside> {
        let path = dir.join(FILE);
        let make = || {
            let file = disk.open(&path, Open::Create)?;
            file.write_at(&head(base, salt), 0)?;
            file.sync()?;
            disk.sync_dir(dir)?;
            io::Result::Ok(file)
        };
        let file = make().map_err(|e| failed("writing", &path, e))?;
        Ok(Aside {
            path,
            file,
            salt,
            base,
            last: base,
            synced: base.index,
            len: HEAD,
            next: HEAD,
        })
    }

    /// Opens the file that an earlier process, or the member whose directory was copied, has left; `None` if
    /// it has no records that a log which ends with `log` lacks. Of these it keeps the ones of which the
    /// member knows enough, as `known` says, up to the first of which it does not; the rest is cut off.
    ///
    /// # Errors
    /// 127 if it is damaged or does not follow on the log; the disk's.
    pub fn open(
        disk: &Arc<dyn Disk>,
        dir: &Path,
        log: Position,
        known: impl Fn(&Frame) -> bool,
    ) -> Result<Option<Aside>> {
        let path = dir.join(FILE);
        let file = match disk.open(&path, Open::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| failed("reading", &path, e))?,
        };
        let read = |e| failed("reading", &path, e);
        let end = file.len().map_err(read)?;
        let mut bytes = [0; HEAD as usize];
        if end >= HEAD {
            file.read_exact_at(&mut bytes, 0).map_err(read)?;
        }
        let Some((base, salt)) = base_of(&bytes) else {
            // The head is synced before anything follows it, so a crash leaves a torn head only at the end.
            return match end > HEAD {
                true => Err(damaged(&path, 0, "its head cannot be read")),
                false => discard(disk, dir).map(|()| None),
            };
        };
        let mut aside = Aside {
            path: path.clone(),
            file,
            salt,
            base,
            last: base,
            synced: 0,
            len: HEAD,
            next: HEAD,
        };
        let apart = |at: u64| Err(damaged(&path, at, "it does not follow on the log"));
        loop {
            let at = aside.len;
            let found = aside.frame_at(at, end).map_err(read)?;
            let Some((frame, _)) = found else {
                let later = aside.durable_behind(at, end).map_err(read)?;
                if later {
                    return Err(damaged(&path, at, "a record is damaged"));
                }
                break;
            };
            if base.index > log.index || base.index == log.index && base != log {
                return apart(0);
            }
            let last = aside.last;
            if frame.at.index != last.index + 1
                || frame.at.term < last.term
                || frame.at.at <= last.at
            {
                return Err(damaged(
                    &path,
                    at,
                    "a record does not follow on the one before",
                ));
            }
            if frame.at.index == log.index && frame.at != log {
                return apart(at);
            }
            if frame.at.index > log.index && !known(&frame) {
                break;
            }
            aside.last = frame.at;
            aside.len = at + frame.bytes();
            if frame.at.index <= log.index {
                aside.next = aside.len;
            }
        }
        if aside.last.index <= log.index {
            return discard(disk, dir).map(|()| None);
        }
        let settle = || {
            aside.file.set_len(aside.len)?;
            aside.file.sync()?;
            disk.sync_dir(dir)
        };
        settle().map_err(|e| failed("writing", &path, e))?;
        aside.synced = aside.last.index;
        Ok(Some(aside))
    }

    /// The last record in the file, or the one after which it begins.
    pub fn last(&self) -> Position {
        self.last
    }

    /// The last record of the log when the file was made.
    pub fn base(&self) -> Position {
        self.base
    }

    /// Bytes that the file takes.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Appends a record; `config`: it is one of a configuration. After a failure a part of it may stand in
    /// the file, so that nothing more may be appended.
    ///
    /// # Errors
    /// The disk's; 14031 OutOfDiskSpace.
    pub fn append(&mut self, record: &Record, config: bool) -> Result<()> {
        let at = Position {
            index: record.index,
            term: record.term,
            at: record.at,
        };
        if at.index != self.last.index + 1 {
            return Err(Error::internal(format!(
                "record {} does not follow on {}",
                at.index, self.last.index
            )));
        }
        let len = u32::try_from(record.payload.len()).ok();
        let Some(len) = len.filter(|len| *len <= LONGEST) else {
            return Err(Error::internal("a record is too long to be set aside"));
        };
        let frame = Frame {
            at,
            config,
            synced: self.synced,
            len,
            crc: crc32c::crc32c(&record.payload),
        };
        let mut bytes = frame.encode(self.salt).to_vec();
        bytes.extend_from_slice(&record.payload);
        let put = self.file.write_at(&bytes, self.len);
        put.map_err(|e| failed("writing", &self.path, e))?;
        self.len += frame.bytes();
        self.last = at;
        Ok(())
    }

    /// Makes everything in the file durable.
    ///
    /// # Errors
    /// The disk's: afterwards nothing that was not durable before may be taken for durable.
    pub fn sync(&mut self) -> Result<()> {
        let synced = self.file.sync();
        synced.map_err(|e| failed("syncing", &self.path, e))?;
        self.synced = self.last.index;
        Ok(())
    }

    /// The next records that a log which ends with the record `log` does not have: of about so many bytes,
    /// and one at least if there is one.
    ///
    /// # Errors
    /// 127 if one of them is damaged; the disk's.
    pub fn next(&mut self, log: u64, bytes: u64) -> Result<Vec<Record>> {
        let (mut records, mut taken) = (Vec::new(), 0);
        let mut at = self.next;
        while at < self.len && taken < bytes {
            let found = self.frame_at(at, self.len);
            let found = found.map_err(|e| failed("reading", &self.path, e))?;
            let Some((frame, payload)) = found else {
                return Err(damaged(&self.path, at, "a record is damaged"));
            };
            at += frame.bytes();
            if frame.at.index <= log {
                self.next = at;
                continue;
            }
            taken += frame.bytes();
            records.push(Record {
                index: frame.at.index,
                term: frame.at.term,
                at: frame.at.at,
                payload,
            });
        }
        Ok(records)
    }

    /// The frame at a place of the file, which ends at `end`, with its record; `None` if it is not whole.
    fn frame_at(&self, at: u64, end: u64) -> io::Result<Option<(Frame, Bytes)>> {
        let mut bytes = [0; FRAME];
        if end.saturating_sub(at) < FRAME as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut bytes, at)?;
        let frame = Frame::decode(&bytes, self.salt);
        let Some(frame) = frame.filter(|f| f.bytes() <= end - at) else {
            return Ok(None);
        };
        let mut payload = vec![0; frame.len as usize];
        self.file.read_exact_at(&mut payload, at + FRAME as u64)?;
        let whole = crc32c::crc32c(&payload) == frame.crc;
        Ok(whole.then(|| (frame, payload.into())))
    }

    /// Whether a frame after this place says that what stands at this place was durable.
    fn durable_behind(&self, at: u64, end: u64) -> io::Result<bool> {
        let missing = self.last.index + 1;
        let mut from = at + 1;
        while end.saturating_sub(from) >= FRAME as u64 {
            let n = (end - from).min(STEP as u64) as usize;
            let mut bytes = vec![0; n];
            self.file.read_exact_at(&mut bytes, from)?;
            let found = bytes.windows(FRAME).any(|window| {
                let frame = window.first_chunk().map(|b| Frame::decode(b, self.salt));
                frame.flatten().is_some_and(|f| f.synced >= missing)
            });
            if found {
                return Ok(true);
            }
            from += (n + 1 - FRAME) as u64;
        }
        Ok(false)
    }
}

/// Whether a directory has the file.
pub fn is_there(disk: &Arc<dyn Disk>, dir: &Path) -> bool {
    disk.open(&dir.join(FILE), Open::Read).is_ok()
}

/// Removes the file of a directory, if there is one. The log has to have everything that counts, and to be
/// durable.
///
/// # Errors
/// The disk's.
pub fn discard(disk: &Arc<dyn Disk>, dir: &Path) -> Result<()> {
    let path = dir.join(FILE);
    let removed = match disk.remove(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other,
    };
    let gone = removed.and_then(|()| disk.sync_dir(dir));
    gone.map_err(|e| failed("removing", &path, e))
}

impl Frame {
    fn bytes(&self) -> u64 {
        FRAME as u64 + u64::from(self.len)
    }

    fn encode(&self, salt: u32) -> [u8; FRAME] {
        let numbers = [self.at.index, self.at.term, self.at.at.0, self.synced];
        let mut w = Vec::with_capacity(FRAME);
        w.extend_from_slice(&MARK.to_le_bytes());
        w.extend_from_slice(&self.len.to_le_bytes());
        numbers
            .iter()
            .for_each(|n| w.extend_from_slice(&n.to_le_bytes()));
        w.extend_from_slice(&u32::from(self.config).to_le_bytes());
        w.extend_from_slice(&self.crc.to_le_bytes());
        w.extend_from_slice(&crc32c::crc32c_append(salt, &w).to_le_bytes());
        let mut bytes = [0; FRAME];
        bytes.copy_from_slice(&w);
        bytes
    }

    fn decode(bytes: &[u8; FRAME], salt: u32) -> Option<Frame> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        let small = |at: usize| Some(u32::from_le_bytes(*body.get(at..)?.first_chunk()?));
        let number = |at: usize| Some(u64::from_le_bytes(*body.get(at..)?.first_chunk()?));
        let len = small(4)?;
        if small(0)? != MARK
            || len > LONGEST
            || crc32c::crc32c_append(salt, body) != u32::from_le_bytes(*crc)
        {
            return None;
        }
        Some(Frame {
            at: Position {
                index: number(8)?,
                term: number(16)?,
                at: Timestamp(number(24)?),
            },
            synced: number(32)?,
            config: small(40)? != 0,
            len,
            crc: small(44)?,
        })
    }
}

fn head(base: Position, salt: u32) -> Vec<u8> {
    let mut w = MAGIC.to_vec();
    w.extend_from_slice(&VERSION.to_le_bytes());
    w.extend_from_slice(&salt.to_le_bytes());
    for n in [base.index, base.term, base.at.0] {
        w.extend_from_slice(&n.to_le_bytes());
    }
    w.extend_from_slice(&crc32c::crc32c(&w).to_le_bytes());
    w
}

fn base_of(bytes: &[u8; HEAD as usize]) -> Option<(Position, u32)> {
    let (body, crc) = bytes.split_last_chunk::<4>()?;
    let small = |at: usize| Some(u32::from_le_bytes(*body.get(at..)?.first_chunk()?));
    let number = |at: usize| Some(u64::from_le_bytes(*body.get(at..)?.first_chunk()?));
    let whole = crc32c::crc32c(body) == u32::from_le_bytes(*crc);
    if !body.starts_with(MAGIC) || !whole || small(8)? != VERSION {
        return None;
    }
    let base = Position {
        index: number(16)?,
        term: number(24)?,
        at: Timestamp(number(32)?),
    };
    Some((base, small(12)?))
}

fn failed(doing: &str, path: &Path, e: io::Error) -> Error {
    Error::from(e).context(&format!("{doing} {}: ", path.display()))
}

fn damaged(path: &Path, at: u64, why: &str) -> Error {
    Error::new(
        Code::UnrecoverableRollbackError,
        format!(
            "{}, which has records that this member acknowledged while it was locked, cannot be used from \
             byte {at} on: {why}. Empty the data directory, and start the member again: it copies \
             everything from another one",
            path.display()
        ),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use muniment_io::SimDisk;

    const DIR: &str = "/db";

    fn place(index: u64) -> Position {
        Position {
            index,
            term: 1 + index / 8,
            at: Timestamp(index * 10),
        }
    }

    fn record(index: u64) -> Record {
        let at = place(index);
        Record {
            index,
            term: at.term,
            at: at.at,
            payload: vec![index as u8; 20 + index as usize].into(),
        }
    }

    fn new_disk() -> (SimDisk, Arc<dyn Disk>) {
        let disk = SimDisk::new();
        disk.create_dir(Path::new(DIR)).unwrap();
        (disk.clone(), Arc::new(disk))
    }

    /// A file with these records after the fifth, synced after each.
    fn with(disk: &Arc<dyn Disk>, indexes: std::ops::RangeInclusive<u64>) -> Aside {
        let mut aside = Aside::create(disk, Path::new(DIR), place(5), 77).unwrap();
        for index in indexes {
            aside.append(&record(index), index == 7).unwrap();
            aside.sync().unwrap();
        }
        aside
    }

    fn reopened(disk: &Arc<dyn Disk>, log: u64) -> Result<Option<Aside>> {
        Aside::open(disk, Path::new(DIR), place(log), |_| true)
    }

    fn all(aside: &mut Aside, log: u64) -> Vec<u64> {
        let records = aside.next(log, u64::MAX).unwrap();
        assert!(records.iter().all(|r| *r == record(r.index)));
        records.iter().map(|r| r.index).collect()
    }

    fn path() -> PathBuf {
        Path::new(DIR).join(FILE)
    }

    #[test]
    fn what_was_appended_is_there_again() {
        let (_, disk) = new_disk();
        assert!(reopened(&disk, 5).unwrap().is_none());
        let mut aside = with(&disk, 6..=9);
        assert_eq!(all(&mut aside, 5), [6, 7, 8, 9]);
        let mut again = reopened(&disk, 5).unwrap().unwrap();
        assert_eq!((again.last(), again.base()), (place(9), place(5)));
        // It goes on where it ended, and gives what is wanted at once.
        again.append(&record(10), false).unwrap();
        again.append(&record(12), false).unwrap_err();
        assert_eq!(again.next(5, 1).unwrap(), [record(6)]);
        assert_eq!(all(&mut again, 5), [6, 7, 8, 9, 10]);
    }

    /// After a crash between any two steps of it, and when the lock came again in the middle.
    #[test]
    fn what_the_log_has_already_is_passed_over() {
        for log in 5..=9 {
            let (disk, shared) = new_disk();
            let mut aside = with(&shared, 6..=9);
            let rest: Vec<u64> = (log + 1..=9).collect();
            assert_eq!(all(&mut aside, log), rest);
            let again = reopened(&shared, log).unwrap();
            assert_eq!(again.is_some(), log < 9);
            assert_eq!(disk.bytes(&path()).is_some(), log < 9);
            if let Some(mut again) = again {
                assert_eq!(all(&mut again, log), rest);
            }
        }
    }

    /// A copy may have any beginning of the file.
    #[test]
    fn a_beginning_of_it_gives_the_records_that_are_whole() {
        let (disk, shared) = new_disk();
        drop(with(&shared, 6..=8));
        let whole = disk.bytes(&path()).unwrap();
        for len in 0..whole.len() {
            let (_, copy) = new_disk();
            let file = copy.open(&path(), Open::Create).unwrap();
            file.write_at(&whole[..len], 0).unwrap();
            let found = reopened(&copy, 5).unwrap();
            let mut left = len.saturating_sub(HEAD as usize);
            let mut wanted = Vec::new();
            for index in 6..=8 {
                let bytes = FRAME + record(index).payload.len();
                if left < bytes {
                    break;
                }
                left -= bytes;
                wanted.push(index);
            }
            let found = found.map_or(Vec::new(), |mut aside| {
                let found = all(&mut aside, 5);
                // What is appended next follows on what is whole.
                let next = aside.last().index + 1;
                aside.append(&record(next), false).unwrap();
                let again = reopened(&copy, 5).unwrap().unwrap();
                assert_eq!(again.last(), place(next));
                found
            });
            assert_eq!(found, wanted, "{len} bytes");
        }
    }

    #[test]
    fn a_flipped_byte_is_reported_unless_it_is_in_the_last_frame() {
        let (disk, shared) = new_disk();
        drop(with(&shared, 6..=8));
        let whole = disk.bytes(&path()).unwrap();
        let last = whole.len() - FRAME - record(8).payload.len();
        for at in 0..whole.len() {
            let (_, copy) = new_disk();
            let mut bytes = whole.to_vec();
            bytes[at] ^= 4;
            let file = copy.open(&path(), Open::Create).unwrap();
            file.write_at(&bytes, 0).unwrap();
            match reopened(&copy, 5) {
                Err(e) => {
                    assert!(at < last, "{at}: {e}");
                    assert_eq!(e.code(), Code::UnrecoverableRollbackError);
                }
                Ok(found) => {
                    assert!(at >= last, "byte {at} of {}", whole.len());
                    assert_eq!(found.unwrap().last(), place(7));
                }
            }
        }
    }

    /// What was never synced may be there in part, a later piece without an earlier one.
    #[test]
    fn what_was_not_synced_ends_it_without_a_word() {
        let (disk, shared) = new_disk();
        let mut aside = with(&shared, 6..=7);
        let synced = aside.bytes() as usize;
        for index in 8..=10 {
            aside.append(&record(index), false).unwrap();
        }
        let mut bytes = disk.bytes(&path()).unwrap().to_vec();
        bytes[synced + 3] ^= 1;
        shared
            .open(&path(), Open::Create)
            .and_then(|f| f.write_at(&bytes, 0))
            .unwrap();
        assert_eq!(reopened(&shared, 5).unwrap().unwrap().last(), place(7));
    }

    #[test]
    fn one_that_does_not_follow_on_the_log_is_reported() {
        let (_, disk) = new_disk();
        drop(with(&disk, 6..=9));
        let of = |index, term, at| Position {
            index,
            term,
            at: Timestamp(at),
        };
        for log in [
            place(4),
            of(5, 2, 50),
            of(5, 1, 51),
            of(7, 1, 70),
            of(8, 2, 81),
        ] {
            let opened = Aside::open(&disk, Path::new(DIR), log, |_| true);
            let is_there = place(log.index) == log && log.index >= 5;
            assert_eq!(opened.is_ok(), is_there, "{log:?}");
        }
    }

    #[test]
    fn what_the_member_does_not_know_of_is_cut_off() {
        let (_, disk) = new_disk();
        drop(with(&disk, 6..=9));
        let dir = Path::new(DIR);
        let of_term = |f: &Frame| f.at.term == 1;
        let found = Aside::open(&disk, dir, place(5), of_term).unwrap().unwrap();
        assert_eq!(found.last(), place(7));
        assert_eq!(reopened(&disk, 5).unwrap().unwrap().last(), place(7));
        let plain = |f: &Frame| !f.config;
        let found = Aside::open(&disk, dir, place(5), plain).unwrap().unwrap();
        assert_eq!(found.last(), place(6));
        assert!(
            Aside::open(&disk, dir, place(5), |_| false)
                .unwrap()
                .is_none()
        );
        assert!(reopened(&disk, 5).unwrap().is_none());
    }
}
