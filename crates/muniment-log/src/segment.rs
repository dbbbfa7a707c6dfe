//! Segments in memory, and the making of their files.

use crate::Position;
use crate::format::{FIRST, HEAD, HEADER, Header, MARK, span};
use muniment_io::{Disk, File, Open, Timestamp};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};

/// The size of a write into a new file. Larger writes make large folios in the page cache, into which small
/// writes are slow.
const PIECE: usize = 16 << 10;
/// How many bytes of a new file are synced at once. One sync of a whole file would keep the disk busy for
/// long, and clients wait for the syncs of the records that are appended meanwhile.
pub(crate) const STEP: usize = if cfg!(test) { 64 << 10 } else { 1 << 20 };
/// The bytes of records between two points of the sparse index.
const POINT_STEP: usize = 64 << 10;

/// The error of an operation on a file.
pub(crate) fn io_error(path: &Path, what: &str, e: std::io::Error) -> Error {
    Error::from(e).context(&format!("log: cannot {what} {}: ", path.display()))
}

/// 301 DataCorruptionDetected for a damaged file.
pub(crate) fn damage(path: &Path, offset: u64, what: &str) -> Error {
    let path = path.display();
    let message = format!("the log is damaged: {path} at offset {offset}: {what}");
    Error::new(Code::DataCorruptionDetected, message)
}

/// The path of the file with this number; `extension` says what the file is.
pub(crate) fn path(dir: &Path, number: u64, extension: &str) -> PathBuf {
    dir.join(format!("{number:08}.{extension}"))
}

/// A segment in use.
pub(crate) struct Segment {
    pub number: u64,
    pub ordinal: u64,
    pub size: u64,
    pub seed: u32,
    /// The last record before it.
    pub before: Position,
    /// The index of its last record, or of the last one before it. Published after the record was written.
    pub last: AtomicU64,
    /// The offset at which that record ends, or a later one that is written as well; `u64::MAX` if it is not
    /// known, which means the end of the file. Published before `last`.
    pub end: AtomicU64,
    /// The timestamp of that record. It is exact once the segment is no longer written to.
    pub last_at: AtomicU64,
    /// The sparse index: the record before each point, and the offset of the point.
    points: Mutex<Vec<(Position, usize)>>,
}

impl Segment {
    pub(crate) fn new(header: &Header, ordinal: u64, before: Position) -> Segment {
        Segment {
            number: header.number,
            ordinal,
            size: header.size,
            seed: header.seed(),
            before,
            last: AtomicU64::new(before.index),
            end: AtomicU64::new(u64::MAX),
            last_at: AtomicU64::new(before.at.0),
            points: Mutex::default(),
        }
    }

    /// Adds a point for the record at `offset`, which follows `before`, if a point is due. The next point is
    /// due at `next`.
    pub(crate) fn point(&self, before: Position, offset: usize, next: &mut usize) {
        if offset >= *next {
            self.points.lock().push((before, offset));
            *next = offset + POINT_STEP;
        }
    }

    /// A place at or before the first record that `is_passed` is false for: its offset, and the index of the
    /// record before it.
    pub(crate) fn seek(&self, is_passed: impl Fn(Position) -> bool) -> (usize, u64) {
        let points = self.points.lock();
        let n = points.partition_point(|(before, _)| is_passed(*before));
        match n.checked_sub(1).and_then(|n| points.get(n)) {
            Some((before, offset)) => (*offset, before.index),
            None => (FIRST, self.before.index),
        }
    }

    /// Appends the timestamps of the sparse index, beginning with that of the record before the segment.
    pub(crate) fn places(&self, out: &mut Vec<Timestamp>) {
        out.push(self.before.at);
        let points = self.points.lock();
        out.extend(
            points
                .iter()
                .map(|(before, _)| before.at)
                .filter(|at| *at > self.before.at),
        );
    }

    /// The offset of its mark.
    pub(crate) fn mark_at(&self) -> u64 {
        self.size - MARK as u64
    }

    /// The last record's timestamp.
    pub(crate) fn last_at(&self) -> Timestamp {
        Timestamp(self.last_at.load(Acquire))
    }
}

/// A segment's file that is ready to be used: its header and its name are durable.
pub(crate) struct Prepared {
    pub header: Header,
    pub file: Arc<dyn File>,
}

/// The size of a segment made for one payload of `len` bytes.
pub(crate) fn size_for(len: usize) -> u64 {
    (FIRST + span(len) + MARK) as u64
}

/// The source of a new segment's file.
pub(crate) enum Source<'a> {
    /// Zeros.
    New(u64),
    /// A free file of this name and size.
    Free(&'a str, u64),
    /// A new file for one record with this payload, which is written as well.
    Payload(&'a [&'a [u8]], usize),
}

/// Makes the file of segment `number`. If it fails, what it leaves is not taken for a segment in use.
pub(crate) fn prepare(
    disk: &dyn Disk,
    dir: &Path,
    number: u64,
    source: Source<'_>,
) -> Result<Prepared> {
    let (from, size) = match &source {
        Source::New(size) => (path(dir, number, "tmp"), *size),
        Source::Free(name, size) => (dir.join(name), *size),
        Source::Payload(_, len) => (path(dir, number, "tmp"), size_for(*len)),
    };
    let header = Header {
        number,
        salt: salt(number),
        size,
    };
    let to = path(dir, number, "log");
    let result = fill(disk, &from, &header, &source)
        .map_err(|e| io_error(&from, "make", e))
        .and_then(|file| {
            disk.rename(&from, &to)
                .and_then(|()| disk.sync_dir(dir))
                .map_err(|e| io_error(&to, "make", e))?;
            Ok(Prepared { header, file })
        });
    if result.is_err() {
        // Best effort, since opening the log removes them as well.
        let _ = disk.remove(&from);
        let _ = disk.remove(&to);
    }
    result
}

fn fill(
    disk: &dyn Disk,
    path: &Path,
    header: &Header,
    source: &Source<'_>,
) -> std::io::Result<Arc<dyn File>> {
    let how = match source {
        Source::Free(..) => Open::Write,
        _ => Open::Create,
    };
    let file = disk.open(path, how)?;
    let mut unsynced = 0;
    let mut write = |bytes: &[u8], at: u64| {
        file.write_at(bytes, at)?;
        unsynced += bytes.len();
        if unsynced >= STEP {
            unsynced = 0;
            file.sync()?;
        }
        Ok::<_, std::io::Error>(())
    };
    let mut piece = vec![0; PIECE];
    let encoded = header.encode();
    match source {
        Source::New(size) => {
            let mut at = 0;
            while at < *size {
                let n = (size - at).min(PIECE as u64);
                let piece = piece.get_mut(..n as usize).unwrap_or_default();
                if at == 0
                    && let Some(to) = piece.get_mut(..HEADER)
                {
                    to.copy_from_slice(&encoded);
                    write(piece, 0)?;
                    piece.fill(0);
                } else {
                    write(piece, at)?;
                }
                at += n;
            }
        }
        Source::Free(..) => write(&encoded, 0)?,
        Source::Payload(parts, _) => {
            let mut start = encoded.to_vec();
            start.resize(FIRST + HEAD, 0);
            write(&start, 0)?;
            let mut at = start.len() as u64;
            for part in parts.iter().flat_map(|part| part.chunks(STEP)) {
                write(part, at)?;
                at += part.len() as u64;
            }
            let rest = header.size.saturating_sub(at) as usize;
            write(piece.get(..rest).unwrap_or_default(), at)?;
        }
    }
    file.sync()?;
    Ok(file)
}

/// Writes existing bytes again, so that a sync writes them to the disk even if the page cache takes them for
/// clean.
pub(crate) fn rewrite(file: &dyn File, bytes: &[u8], offset: usize) -> std::io::Result<()> {
    let mut at = offset as u64;
    for piece in bytes.chunks(PIECE) {
        file.write_at(piece, at)?;
        at += piece.len() as u64;
    }
    file.sync()
}

/// A random number. It affects only checksums, so a simulated run takes the same course with any number.
fn salt(number: u64) -> u64 {
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u64(number);
    hasher.finish()
}
