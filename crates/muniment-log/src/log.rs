//! The log: appending, beginning new segments, trimming; and assembling it when it is opened.

use crate::format::{BEGIN, Begin, FIRST, HEAD, HEADER, Head, Kind, MARK, span};
use crate::group::Group;
use crate::large::LargeRecords;
use crate::ready::{Form, Ready};
use crate::recover::{Recovered, recover};
use crate::segment::{Prepared, Segment, Source, io_error, path, prepare};
use crate::spare::{KEEP, Spare};
use crate::{Position, Reader, Record};
use muniment_io::spread::CachePadded;
use muniment_io::{Disk, File, Open, OsDisk, Timestamp};
use muniment_op::Interrupt;
use muniment_value::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Release, SeqCst},
};
use std::time::{Duration, Instant};

/// The first and the longest pause after a trim that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The smallest segments, in bytes.
const LEAST: u64 = 4096;
/// The first segment of a log, in bytes.
const FIRST_BYTES: u64 = if cfg!(test) { LEAST } else { 1 << 20 };
/// How many times as large as the last segment the next one is, up to the requested size. Making a segment
/// costs as much as writing it full, so a small log must not wait for large ones.
const GROWTH: u64 = 4;

/// The options that a log is opened with.
#[derive(Clone)]
pub struct LogOptions {
    /// The log's own directory, which is created if it is missing.
    pub dir: PathBuf,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The bytes of a segment; at least 4096.
    pub segment_bytes: u64,
    /// Cuts the log where it is damaged, and puts the rest aside as `.lost` files.
    pub accept_data_loss: bool,
    /// The index of the last record, if it is known. Records after it belong to appends that failed.
    pub until: Option<u64>,
    /// Removes every record after this index for good, even durable ones, before [`Log::open`] returns. If
    /// that fails, or the machine stops meanwhile, the log has all of them or none. If the log ends at this
    /// index or before, nothing is done. So the option may be repeated until the cut is known to be done, but
    /// not after new records were appended.
    pub cut_behind: Option<u64>,
    /// If there is no log yet, the new one begins after this position: for a member that has received
    /// everything up to it in another way.
    pub begins_after: Option<Position>,
    /// Whether the log has a thread. Without one, a segment is made when it is needed, and the owner of the
    /// log calls [`Log::work`].
    pub background: bool,
}

impl LogOptions {
    /// Segments of 16 MiB on the machine's disk.
    pub fn new(dir: &Path) -> LogOptions {
        LogOptions {
            dir: dir.to_path_buf(),
            disk: Arc::new(OsDisk),
            segment_bytes: 16 << 20,
            accept_data_loss: false,
            until: None,
            cut_behind: None,
            begins_after: None,
            background: true,
        }
    }
}

/// The segments that stay for readers although the data no longer need them: the newest ones, up to this many
/// bytes together, and those with records later than this.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// The bytes of files to keep.
    pub bytes: u64,
    /// Records later than this are kept.
    pub later_than: Timestamp,
    /// Disk space is short, so files are removed instead of being kept for reuse.
    pub short: bool,
}

impl Default for Keep {
    fn default() -> Keep {
        Keep {
            bytes: 0,
            later_than: Timestamp::MAX,
            short: false,
        }
    }
}

/// Counters since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Records appended.
    pub commits: u64,
    /// Group syncs, including failed ones.
    pub syncs: u64,
    /// The microseconds that they took.
    pub sync_micros: u64,
    /// Calls of `wait_durable`.
    pub waits: u64,
}

/// The log.
pub struct Log {
    shared: Arc<Shared>,
    helper: Option<std::thread::JoinHandle<()>>,
    /// Dropping the log leaves its files as they are.
    abandoned: bool,
}

pub(crate) struct Shared {
    pub dir: PathBuf,
    pub disk: Arc<dyn Disk>,
    pub segment_bytes: u64,
    pub tail: CachePadded<Mutex<Tail>>,
    /// The index of the last record, published after the record was written.
    pub appended: CachePadded<AtomicU64>,
    /// The index of the last record when the log was opened.
    pub found: u64,
    pub durable: AtomicU64,
    /// A sync failed.
    pub failed: AtomicBool,
    pub group: Group,
    /// All segments, in order.
    pub order: Mutex<VecDeque<Arc<Segment>>>,
    /// The segments that may have records which are not durable, oldest first; never empty.
    pub unsynced: Mutex<Vec<Unsynced>>,
    /// The log has a thread.
    pub background: bool,
    pub spare: Mutex<Spare>,
    pub spare_changed: Condvar,
    pub mark_wanted: AtomicBool,
    /// The names of free files.
    pub free: Mutex<Vec<String>>,
    trim: Mutex<Trim>,
    pub large: LargeRecords,
    pub next_number: AtomicU64,
    /// The size of the last segment that was made for records of any size, in bytes.
    pub made: AtomicU64,
}

/// A segment and its open file.
pub(crate) type Unsynced = (Arc<Segment>, Arc<dyn File>);

/// The place of the next record.
pub(crate) struct Tail {
    pub segment: Arc<Segment>,
    pub file: Arc<dyn File>,
    pub offset: usize,
    /// The offset at which the segment's sparse index gets its next point.
    next_point: usize,
    pub last: Position,
    generation: u64,
    /// A write failed here. What follows the tail is unknown, and may be a begin in the next segment that
    /// says that this segment ends here. So nothing more may be written to this segment.
    pub bad: bool,
    /// The segment's mark already says that the last record is durable.
    pub marked: bool,
    /// The next segment was requested.
    asked: bool,
}

#[derive(Default)]
struct Trim {
    /// A file that could not be removed from the log, or may have been. It must be removed before any other,
    /// because trimming beyond it could leave a gap.
    stuck: Option<u64>,
    /// The error of the last trim, when to try again, and the pause until then.
    failed: Option<(Error, Instant, Duration)>,
    /// The number and size of files whose begin could not be written.
    discarded: Vec<(u64, u64)>,
}

impl Log {
    /// Opens the log, or creates a new one. `visit` gets every record later than `from`, in order. All
    /// records are durable when this returns. If it fails, `visit` may already have got some of them.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected for damage (not with `accept_data_loss`), the disk's, and those of `visit`;
    /// an error if records up to `from` would have to be cut.
    pub fn open(
        options: LogOptions,
        from: Timestamp,
        visit: &mut dyn FnMut(Record<'_>) -> Result<()>,
    ) -> Result<Log> {
        let mut options = options;
        options.segment_bytes = options.segment_bytes.max(LEAST).next_multiple_of(512);
        let found = recover(&options, from, visit)?;
        let shared = Arc::new(assemble(&options, found)?);
        let helper = match options.background {
            true => Some({
                let shared = shared.clone();
                std::thread::Builder::new()
                    .name("log".to_owned())
                    .spawn(move || shared.help())?
            }),
            false => None,
        };
        Ok(Log {
            shared,
            helper,
            abandoned: false,
        })
    }

    /// Appends a record whose payload is these parts joined, and returns its index. Readers see it at once.
    /// It is durable after [`Log::wait_durable`].
    ///
    /// # Errors
    /// `at` is not later than the last record's; the payload is longer than
    /// [`MAX_PAYLOAD`](crate::MAX_PAYLOAD); an earlier sync has failed; the disk's. Nothing was appended
    /// then.
    pub fn append(&self, term: u64, at: Timestamp, payload: &[&[u8]]) -> Result<u64> {
        self.append_ready(term, at, self.prepare(payload)?)
    }

    /// Does the part of an append that needs neither index nor timestamp, so that the caller which assigns
    /// these one after the other does little more than write. That part is checksum and copy, and for a
    /// payload that gets a segment of its own, writing and syncing the segment. If the result is not
    /// appended, nothing remains of it.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn prepare<'a>(&'a self, payload: &[&'a [u8]]) -> Result<Ready<'a>> {
        self.shared.prepare(payload)
    }

    /// Appends a payload that [`Log::prepare`] of this log has prepared: see [`Log::append`].
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn append_ready(&self, term: u64, at: Timestamp, ready: Ready<'_>) -> Result<u64> {
        self.shared.append(None, term, at, ready)
    }

    /// Appends a record that has this index on another member, prepared by [`Log::prepare`] of this log.
    ///
    /// # Errors
    /// Those of [`Log::append`]; an error if it is not the next record, or its term is earlier than the last
    /// one's.
    pub fn append_at(&self, position: Position, ready: Ready<'_>) -> Result<()> {
        let Position { index, term, at } = position;
        self.shared.append(Some(index), term, at, ready).map(drop)
    }

    /// Makes everything durable, and returns when no work on the files is left: none of them changes until
    /// the next append, roll or trim.
    ///
    /// # Errors
    /// That of a failed sync, for good.
    pub fn settle(&self) -> Result<()> {
        self.shared.sync()?;
        self.shared.rest();
        Ok(())
    }

    /// Does the work of the log's thread while the log is idle, for a log without a thread.
    pub fn work(&self) {
        if self.shared.mark_wanted.swap(false, SeqCst) {
            self.shared.mark_tail();
        }
    }

    /// The last record; zeros if there never was one.
    pub fn last(&self) -> Position {
        self.shared.tail.lock().last
    }

    /// The position after which all records can be read: that of the last record that was trimmed, or that is
    /// only elsewhere; zeros if no record is missing.
    pub fn begins_behind(&self) -> Position {
        let order = self.shared.order.lock();
        order.front().map_or(Position::default(), |s| s.before)
    }

    /// Some positions of records, with their terms, that are known without reading: those before which the
    /// segments begin, and the last one.
    pub fn known(&self) -> Vec<Position> {
        let order = self.shared.order.lock();
        let mut known: Vec<_> = order.iter().map(|s| s.before).collect();
        drop(order);
        known.push(self.last());
        known
    }

    /// The index of the oldest record in the log, or of the next one if the log is empty.
    pub fn first_index(&self) -> u64 {
        self.begins_behind().index + 1
    }

    /// The index up to which everything is durable.
    pub fn durable(&self) -> u64 {
        self.shared.durable.load(SeqCst)
    }

    /// Returns when `index` is durable. One sync serves all waiting threads. No lock is held while
    /// `interrupt` is called.
    ///
    /// # Errors
    /// That of a failed sync, for good; and those of `interrupt`.
    pub fn wait_durable(&self, index: u64, interrupt: &dyn Interrupt) -> Result<()> {
        self.shared.wait_durable(index, interrupt)
    }

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// That of a failed sync, for good.
    pub fn sync(&self) -> Result<()> {
        self.shared.sync()
    }

    /// Makes everything up to this record durable. Does nothing if that record is already durable, even if
    /// later ones are not.
    ///
    /// # Errors
    /// That of a failed sync, for good.
    pub fn sync_up_to(&self, index: u64) -> Result<()> {
        let shared = &self.shared;
        let index = index.min(shared.appended.load(Acquire));
        shared.sync_until(|| shared.durable.load(SeqCst) >= index)
    }

    /// True if a record was appended that is not durable.
    pub fn is_dirty(&self) -> bool {
        self.shared.durable.load(SeqCst) < self.shared.appended.load(Acquire)
    }

    /// The error of a failed sync, which is final for this log.
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure()
    }

    /// Reads the records later than `after` that have not been trimmed.
    pub fn read(&self, after: Timestamp) -> Reader {
        Reader::new(self.shared.clone(), after)
    }

    /// Reads the records after an index.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost if the first of them was trimmed; the disk's.
    pub fn reader_at(&self, index: u64) -> Result<Reader> {
        Reader::behind(self.shared.clone(), index)
    }

    /// Removes segments whose records are all at or before `below`. Records that are not durable stay.
    ///
    /// # Errors
    /// The disk's. Segments that were already removed stay removed. For a while, which grows with each
    /// failure, calls return the same error without trying.
    pub fn trim(&self, below: Timestamp) -> Result<()> {
        self.trim_keeping(below, &Keep::default())
    }

    /// As [`Log::trim`], but keeps the segments that `keep` describes.
    ///
    /// # Errors
    /// As [`Log::trim`].
    pub fn trim_keeping(&self, below: Timestamp, keep: &Keep) -> Result<()> {
        self.shared.trim(below, keep)
    }

    /// The bytes of the segments with records later than `after`, and of the current segment.
    pub fn bytes_behind(&self, after: Timestamp) -> u64 {
        let order = self.shared.order.lock();
        let last = order.back().map_or(0, |s| s.ordinal);
        let behind = order
            .iter()
            .filter(|s| s.last_at() > after || s.ordinal == last);
        behind.map(|s| s.size).sum()
    }

    /// The timestamps of the sparse index, ascending. A reader that begins at one of them finds its place
    /// without reading much.
    pub fn places(&self) -> Vec<Timestamp> {
        let segments: Vec<_> = self.shared.order.lock().iter().cloned().collect();
        let mut places = Vec::new();
        for segment in segments {
            segment.places(&mut places);
        }
        places
    }

    /// The timestamps at which all segments but the last end, ascending.
    pub fn segment_ends(&self) -> Vec<Timestamp> {
        let order = self.shared.order.lock();
        let ended = order.len().saturating_sub(1);
        order.iter().take(ended).map(|s| s.last_at()).collect()
    }

    /// The bytes of all segments of the log.
    pub fn bytes(&self) -> u64 {
        self.shared.order.lock().iter().map(|s| s.size).sum()
    }

    /// The timestamp after which all records can be read.
    pub fn begins_after(&self) -> Timestamp {
        self.begins_behind().at
    }

    /// Counters.
    pub fn stats(&self) -> LogStats {
        self.shared.stats()
    }

    /// The longest sync since the last call, or the running one if that takes longer.
    pub fn slowest_sync(&self) -> Duration {
        self.shared.slowest_sync()
    }

    /// Begins a new segment now, so that the current one can be trimmed.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn roll(&self) -> Result<()> {
        let mut tail = self.shared.tail.lock();
        self.shared.usable()?;
        self.shared.roll(&mut tail)
    }

    /// Closes the log like a crash of the process: nothing more is written or synced.
    pub fn abandon(mut self) {
        self.abandoned = true;
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.stop_helper();
        if let Some(helper) = self.helper.take() {
            // The thread does not panic, and if it did, nothing would depend on it any more.
            let _ = helper.join();
        }
        if !self.abandoned && self.shared.sync().is_ok() && self.shared.mark_tail() {
            let file = self.shared.tail.lock().file.clone();
            // Best effort: the mark only helps to tell damage from a torn tail later.
            let _ = file.sync();
        }
    }
}

/// Assembles a log from what was found, and brings the files in line with it.
fn assemble(options: &LogOptions, mut found: Recovered) -> Result<Shared> {
    let disk = &options.disk;
    let dir = &options.dir;
    let mut files = free_files(options, &mut found)?;
    let mut number = found.next_number;
    let mut chain = found.chain;
    let mut generation = found.generation;
    let (segment, file, offset) = match (chain.last(), found.go_on) {
        (Some(segment), Some(offset)) => {
            let at = path(dir, segment.number, "log");
            let file = disk.open(&at, Open::Write);
            let file = file.map_err(|e| io_error(&at, "open", e))?;
            (segment.clone(), file, offset)
        }
        (previous, _) => {
            // The first file may be of another size.
            let free = (!files.is_empty()).then(|| files.remove(0));
            generation += 1;
            let begin = Begin {
                before: found.last,
                ordinal: previous.map_or(0, |s| s.ordinal) + 1,
                generation,
                durable: found.last.index,
                previous: previous.map_or(0, |s| s.number),
            };
            let (segment, file) = begin_segment(options, number, free, &begin)?;
            number += 1;
            chain.push(segment.clone());
            (segment, file, FIRST)
        }
    };
    segment.end.store(offset as u64, Release);
    let last = found.last;
    let made = segment.size.min(options.segment_bytes);
    let shared = Shared {
        dir: dir.clone(),
        disk: disk.clone(),
        segment_bytes: options.segment_bytes,
        tail: CachePadded(Mutex::new(Tail {
            segment: segment.clone(),
            file: file.clone(),
            offset,
            next_point: 0,
            last,
            generation,
            bad: false,
            marked: false,
            asked: false,
        })),
        appended: CachePadded(AtomicU64::new(last.index)),
        found: last.index,
        durable: AtomicU64::new(last.index),
        failed: AtomicBool::new(false),
        group: Group::default(),
        order: Mutex::new(chain.into()),
        unsynced: Mutex::new(vec![(segment, file)]),
        background: options.background,
        spare: Mutex::default(),
        spare_changed: Condvar::new(),
        mark_wanted: AtomicBool::new(false),
        free: Mutex::new(files.into_iter().map(|(name, _)| name).collect()),
        trim: Mutex::default(),
        large: LargeRecords::default(),
        next_number: AtomicU64::new(number),
        made: AtomicU64::new(made),
    };
    // From here on everything that counts is durable, so other files may be removed.
    for number in &found.lost {
        rename(options, *number, "lost")?;
    }
    for (number, len) in found.dropped {
        shared.retire(number, len, true)?;
    }
    if !found.lost.is_empty() {
        sync_dir(options)?;
    }
    Ok(shared)
}

/// Gives a segment's file another extension.
fn rename(options: &LogOptions, number: u64, extension: &str) -> Result<()> {
    let from = path(&options.dir, number, "log");
    let to = path(&options.dir, number, extension);
    let renamed = options.disk.rename(&from, &to);
    renamed.map_err(|e| io_error(&from, "rename", e))
}

fn sync_dir(options: &LogOptions) -> Result<()> {
    let synced = options.disk.sync_dir(&options.dir);
    synced.map_err(|e| io_error(&options.dir, "sync", e))
}

/// The free files that are kept: their names and lengths. Removes the others.
fn free_files(options: &LogOptions, found: &mut Recovered) -> Result<Vec<(String, u64)>> {
    // Files that were never used can serve at once, so that a log on a full disk can be opened. They are
    // renamed first: a file with a number might be taken for a segment while it is given another's header.
    let mut free = std::mem::take(&mut found.unused);
    for (number, _) in &free {
        rename(options, *number, "free")?;
    }
    free.append(&mut found.free);
    // The directory is also synced if an earlier start has renamed the files and ended before its sync.
    if !free.is_empty() {
        sync_dir(options)?;
    }
    let goes_on = !found.chain.is_empty() && found.go_on.is_some();
    free.sort_by_key(|(_, len)| (*len != options.segment_bytes, std::cmp::Reverse(*len)));
    let mut files = Vec::new();
    for (number, len) in free {
        let at = path(&options.dir, number, "free");
        // If a segment is needed at once, one of another size will do, since the disk may be full.
        let fit = len == options.segment_bytes || !goes_on && files.is_empty();
        if fit && len >= LEAST && files.len() < KEEP {
            files.push((format!("{number:08}.free"), len));
        } else {
            let removed = options.disk.remove(&at);
            removed.map_err(|e| io_error(&at, "remove", e))?;
        }
    }
    Ok(files)
}

/// Makes the segment in which the log goes on, from a free file if there is one. Its begin is durable after.
fn begin_segment(
    options: &LogOptions,
    number: u64,
    free: Option<(String, u64)>,
    begin: &Begin,
) -> Result<(Arc<Segment>, Arc<dyn File>)> {
    let source = match &free {
        Some((name, len)) => Source::Free(name, *len),
        // The first segment is small, so that it is made quickly.
        None => Source::New(options.segment_bytes.min(FIRST_BYTES)),
    };
    let made = prepare(&*options.disk, &options.dir, number, source)?;
    let segment = Arc::new(Segment::new(&made.header, begin.ordinal, begin.before));
    let at = path(&options.dir, made.header.number, "log");
    let bytes = begin.encode(segment.seed);
    let written = made.file.write_at(&bytes, HEADER as u64);
    written
        .and_then(|()| made.file.sync())
        .map_err(|e| io_error(&at, "write", e))?;
    Ok((segment, made.file))
}

impl Shared {
    /// The size of the next segment.
    pub(crate) fn next_bytes(&self) -> u64 {
        let made = self.made.load(SeqCst);
        (made * GROWTH).min(self.segment_bytes)
    }

    /// Notes that a segment of this size was made.
    pub(crate) fn note_made(&self, bytes: u64) {
        self.made.fetch_max(bytes, SeqCst);
    }

    /// The error that refuses appends after a failed sync.
    pub(crate) fn usable(&self) -> Result<()> {
        match self.failed.load(SeqCst) {
            true => Err(self
                .failure()
                .unwrap_or_else(|| Error::internal("log: a sync failed"))),
            false => Ok(()),
        }
    }

    /// Checks whether a record with this timestamp may follow and, if it already has an index, whether it is
    /// the next one.
    fn may_append(&self, tail: &Tail, index: Option<u64>, term: u64, at: Timestamp) -> Result<()> {
        self.usable()?;
        if let Some(index) = index
            && (index != tail.last.index + 1 || term < tail.last.term)
        {
            return Err(Error::internal(format!(
                "log: record {index} of term {term} does not follow on {} of term {}",
                tail.last.index, tail.last.term
            )));
        }
        if at <= tail.last.at {
            return Err(Error::internal(format!(
                "log: {at} does not follow on {}",
                tail.last.at
            )));
        }
        Ok(())
    }

    fn append(
        &self,
        index: Option<u64>,
        term: u64,
        at: Timestamp,
        mut ready: Ready<'_>,
    ) -> Result<u64> {
        let (len, crc, need) = (ready.len, ready.crc, span(ready.len));
        let mut tail = self.tail.lock();
        self.may_append(&tail, index, term, at)?;
        let record = match &mut ready.form {
            Form::Record(record) => record,
            Form::Segment(made) => {
                let Some(made) = made.take() else {
                    return Err(Error::internal("log: a payload cannot be appended twice"));
                };
                let position = tail.last.next(term, at);
                let durable = self.durable.load(SeqCst);
                let head = Head::new(Kind::Data, position, durable, len, crc);
                self.begin(&mut tail, made, Some(head))?;
                self.appended(&mut tail, position, need);
                return Ok(position.index);
            }
        };
        if tail.bad || (tail.offset + need + MARK) as u64 > tail.segment.size {
            self.roll(&mut tail)?;
        }
        let position = tail.last.next(term, at);
        let durable = self.durable.load(SeqCst);
        let head = Head::new(Kind::Data, position, durable, len, crc).encode(tail.segment.seed);
        if let Err(e) = record.write(&head, &*tail.file, tail.offset as u64) {
            tail.bad = true;
            let path = path(&self.dir, tail.segment.number, "log");
            return Err(io_error(&path, "write", e));
        }
        self.appended(&mut tail, position, need);
        // While segments grow, this one will be full soon.
        let grows = tail.segment.size < self.segment_bytes;
        if !tail.asked && (grows || tail.offset as u64 > tail.segment.size / 2) {
            tail.asked = true;
            self.want_spare();
        }
        Ok(position.index)
    }

    /// Publishes the record that was written at the tail.
    fn appended(&self, tail: &mut Tail, position: Position, span: usize) {
        let segment = &*tail.segment;
        segment.point(tail.last, tail.offset, &mut tail.next_point);
        tail.offset += span;
        segment.end.store(tail.offset as u64, Release);
        segment.last_at.store(position.at.0, Release);
        segment.last.store(position.index, Release);
        self.appended.store(position.index, Release);
        tail.last = position;
        tail.marked = false;
    }

    /// Continues in a new segment.
    fn roll(&self, tail: &mut Tail) -> Result<()> {
        let made = self.take_spare()?;
        self.begin(tail, made, None)
    }

    /// Takes a segment into use; `record` is the header of a record whose payload is already in it.
    fn begin(&self, tail: &mut Tail, made: Prepared, record: Option<Head>) -> Result<()> {
        tail.generation += 1;
        let begin = Begin {
            before: tail.last,
            ordinal: tail.segment.ordinal + 1,
            generation: tail.generation,
            durable: self.durable.load(SeqCst),
            previous: tail.segment.number,
        };
        let segment = Segment::new(&made.header, begin.ordinal, begin.before);
        let mut bytes = Vec::with_capacity(BEGIN + HEAD);
        bytes.extend_from_slice(&begin.encode(segment.seed));
        if let Some(head) = record {
            bytes.extend_from_slice(&head.encode(segment.seed));
        }
        let mut written = made.file.write_at(&bytes, HEADER as u64);
        if tail.bad {
            // The record whose write failed may be on disk all the same, with the index that the next one
            // gets. After a power cut it would be taken for that next one, unless a durable begin says
            // otherwise; and other members may have received the next one from here by then.
            written = written.and_then(|()| made.file.sync());
        }
        if let Err(e) = written {
            // The begin may be on disk all the same, and then says that the old segment ends here.
            tail.bad = true;
            self.discard(&made);
            let path = path(&self.dir, made.header.number, "log");
            return Err(io_error(&path, "write", e));
        }
        segment.end.store(FIRST as u64, Release);
        let segment = Arc::new(segment);
        // Both lists get the segment before a record in it counts.
        self.order.lock().push_back(segment.clone());
        self.unsynced
            .lock()
            .push((segment.clone(), made.file.clone()));
        tail.segment = segment;
        tail.file = made.file;
        tail.offset = FIRST;
        tail.next_point = 0;
        tail.bad = false;
        tail.marked = false;
        tail.asked = false;
        Ok(())
    }

    /// Remembers a file that was made but is not part of the log.
    pub(crate) fn discard(&self, made: &Prepared) {
        let header = &made.header;
        let mut trim = self.trim.lock();
        trim.discarded.push((header.number, header.size));
    }

    fn trim(&self, below: Timestamp, keep: &Keep) -> Result<()> {
        let trim = &mut *self.trim.lock();
        if let Some((e, again, _)) = &trim.failed
            && Instant::now() < *again
        {
            return Err(e.clone());
        }
        let result = self.trim_once(trim, below, keep);
        trim.failed = result.as_ref().err().map(|e| {
            let last = trim.failed.as_ref().map_or(Duration::ZERO, |f| f.2);
            let pause = (last * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            (e.clone(), Instant::now() + pause, pause)
        });
        result
    }

    fn trim_once(&self, trim: &mut Trim, below: Timestamp, keep: &Keep) -> Result<()> {
        if let Some(number) = trim.stuck {
            self.remove_stuck(number)?;
            trim.stuck = None;
        }
        // This comes first, because a begin whose write failed must not survive the segment before it.
        while let Some((number, size)) = trim.discarded.pop() {
            trim.stuck = Some(number);
            self.retire(number, size, true)?;
            trim.stuck = None;
        }
        if keep.short {
            self.remove_free()?;
        }
        // The successor's begin must be durable, or the log would have no beginning.
        let (count, newest) = {
            let order = self.order.lock();
            let sealed = order.len().saturating_sub(1);
            let mut rest: u64 = order.iter().map(|s| s.size).sum();
            let mut may_go = |s: &Segment| {
                rest -= s.size;
                let last = s.last_at();
                last <= below && last <= keep.later_than && rest >= keep.bytes
            };
            let count = order.iter().take(sealed).take_while(|s| may_go(s)).count();
            (count, order.get(count).map_or(0, |s| s.ordinal))
        };
        if count == 0 {
            return Ok(());
        }
        let oldest_unsynced = || self.unsynced.lock().first().map_or(0, |(s, _)| s.ordinal);
        self.sync_until(|| oldest_unsynced() >= newest)?;
        for _ in 0..count {
            let Some(segment) = self.order.lock().pop_front() else {
                break;
            };
            // A file is not reused if a thread reads the segment or holds it for a moment. It is removed when
            // that thread lets go of it.
            let reuse = Arc::strong_count(&segment) == 1 && !keep.short;
            // One after the other, oldest first, so that a power cut leaves no gap.
            trim.stuck = Some(segment.number);
            self.retire(segment.number, segment.size, reuse)?;
            trim.stuck = None;
        }
        Ok(())
    }
}

impl Position {
    fn next(self, term: u64, at: Timestamp) -> Position {
        Position {
            index: self.index + 1,
            term,
            at,
        }
    }
}
