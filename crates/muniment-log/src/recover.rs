//! Opening a log: reads the files, decides which records count, and makes those durable.
//!
//! The head of the crate has the rules. Nothing is changed before it is certain that the log is sound (or
//! that loss is accepted), except that unfinished files are removed.

use crate::format::{Begin, Evidence, FIRST, HEADER, HIGHEST, Head, Header, MARK, scan, walk};
use crate::log::LogOptions;
use crate::segment::{Segment, damage, io_error, path, rewrite};
use crate::{Position, Record};
use muniment_io::{Open, Timestamp};
use muniment_value::{Code, Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const HOPE: &str = ". Nothing was changed; restore a backup, or open with accept_data_loss";

/// The result of reading the files.
pub(crate) struct Recovered {
    /// The segments of the log, in order.
    pub chain: Vec<Arc<Segment>>,
    pub last: Position,
    /// The offset in the last segment at which to continue; `None` if a new one must be begun.
    pub go_on: Option<usize>,
    /// Files that were never taken into use, and may be reused at once.
    pub unused: Vec<(u64, u64)>,
    /// Files that no longer count once the log's new segment is durable: number, size.
    pub dropped: Vec<(u64, u64)>,
    /// Files to put aside at that time.
    pub lost: Vec<u64>,
    /// Free files: number, length.
    pub free: Vec<(u64, u64)>,
    pub next_number: u64,
    pub generation: u64,
}

/// A segment's file.
struct Found {
    header: Header,
    len: u64,
    begin: Option<Begin>,
}

struct Files<'a> {
    options: &'a LogOptions,
    all: Vec<Found>,
    /// Segments whose header is damaged, if that is accepted.
    lost: Vec<u64>,
    free: Vec<(u64, u64)>,
    next_number: u64,
}

impl Files<'_> {
    fn path(&self, number: u64) -> PathBuf {
        path(&self.options.dir, number, "log")
    }

    fn length(&self, path: &Path) -> Result<u64> {
        let file = self.options.disk.open(path, Open::Read);
        file.and_then(|f| f.len())
            .map_err(|e| io_error(path, "open", e))
    }

    fn list(options: &LogOptions) -> Result<Files<'_>> {
        let dir = &options.dir;
        let disk = &options.disk;
        disk.create_dir(dir).map_err(|e| io_error(dir, "make", e))?;
        let mut files = Files {
            options,
            all: Vec::new(),
            lost: Vec::new(),
            free: Vec::new(),
            next_number: 1,
        };
        for name in disk.list(dir).map_err(|e| io_error(dir, "list", e))? {
            let Some((number, extension)) = name.split_once('.') else {
                continue;
            };
            let Some(number) = number.parse().ok().filter(|n: &u64| *n <= HIGHEST) else {
                continue;
            };
            let at = dir.join(&name);
            match extension {
                "tmp" => disk.remove(&at).map_err(|e| io_error(&at, "remove", e))?,
                "free" if at == path(dir, number, "free") => {
                    let len = files.length(&at)?;
                    files.free.push((number, len));
                }
                "log" if at == files.path(number) => files.look(number)?,
                "lost" => {}
                _ => continue,
            }
            files.next_number = files.next_number.max(number + 1);
        }
        Ok(files)
    }

    /// Reads a segment's header and begin.
    fn look(&mut self, number: u64) -> Result<()> {
        let path = self.path(number);
        let fail = |e| io_error(&path, "read", e);
        let file = self.options.disk.open(&path, Open::Read).map_err(fail)?;
        let mut len = file.len().map_err(fail)?;
        let mut bytes = vec![0; len.min(FIRST as u64) as usize];
        file.read_exact_at(&mut bytes, 0).map_err(fail)?;
        let header = match Header::decode(&bytes) {
            Ok(h) if h.number == number => h,
            Ok(h) => {
                let what = format!("this is segment {}, under another's name", h.number);
                return self.bad(number, &what);
            }
            Err(what) => return self.bad(number, what),
        };
        if header.size < (FIRST + MARK) as u64 {
            return self.bad(number, "the segment is smaller than can be");
        }
        if len < header.size {
            if !self.options.accept_data_loss {
                let what = format!("the file ends here, but was {} bytes{HOPE}", header.size);
                return Err(damage(&path, len, &what));
            }
            let file = self.options.disk.open(&path, Open::Write);
            file.and_then(|f| f.set_len(header.size).and_then(|()| f.sync()))
                .map_err(|e| io_error(&path, "write", e))?;
            len = header.size;
        }
        self.all.push(Found {
            header,
            len,
            begin: Begin::decode(&bytes, HEADER, header.seed()),
        });
        Ok(())
    }

    fn bad(&mut self, number: u64, what: &str) -> Result<()> {
        if !self.options.accept_data_loss {
            return Err(damage(&self.path(number), 0, &format!("{what}{HOPE}")));
        }
        self.lost.push(number);
        Ok(())
    }

    /// Reads all of a file.
    fn read(&self, found: &Found, buf: &mut Vec<u8>) -> Result<()> {
        let path = self.path(found.header.number);
        let fail = |e| io_error(&path, "read", e);
        let file = self.options.disk.open(&path, Open::Read).map_err(fail)?;
        let len = usize::try_from(found.len.min(found.header.size)).unwrap_or(usize::MAX);
        // The buffer is overwritten, so it need not be filled with zeros each time.
        buf.truncate(len);
        buf.try_reserve_exact(len - buf.len()).map_err(|_| {
            Error::new(
                Code::ExceededMemoryLimit,
                format!("log: no memory to read {}", path.display()),
            )
        })?;
        buf.resize(len, 0);
        file.read_exact_at(buf, 0).map_err(fail)
    }
}

/// A segment that is part of the log.
struct Link {
    found: Found,
    begin: Begin,
}

/// Reads the log. `visit` gets the records later than `from`.
pub(crate) fn recover(
    options: &LogOptions,
    from: Timestamp,
    visit: &mut dyn FnMut(Record<'_>) -> Result<()>,
) -> Result<Recovered> {
    let mut files = Files::list(options)?;
    let (used, unused): (Vec<_>, Vec<_>) = std::mem::take(&mut files.all)
        .into_iter()
        .partition(|f| f.begin.is_some());
    let generation = used.iter().filter_map(|f| f.begin).map(|b| b.generation);
    let generation = generation.max().unwrap_or(0);
    let (mut chain, dropped) = link(used);
    let size = |f: &Found| (f.header.number, f.len);
    let mut dropped: Vec<_> = dropped.iter().map(size).collect();
    let mut lost = std::mem::take(&mut files.lost);
    let mut behind = gaps(&files, &mut chain, from, &mut lost, &mut dropped)?;
    let mut fresh = options.begins_after.unwrap_or_default();
    let starts = chain.iter().rposition(|l| l.begin.before.at <= from);
    if let (None, Some(first)) = (starts, chain.first()) {
        if !options.accept_data_loss {
            return Err(missing(&files, first));
        }
        // The rest is useless without what is missing, so a new log is begun.
        fresh = Position {
            at: from,
            ..Position::default()
        };
        let all = chain.drain(..).chain(behind.drain(..));
        lost.extend(all.map(|l| l.found.header.number));
    }
    let start = starts.unwrap_or(0);
    let segments = segments(&chain);
    let mut reading = Reading {
        last: chain.get(start).map_or(fresh, |l| l.begin.before),
        newest: start,
        offset: FIRST,
        evidence: Evidence::default(),
    };
    reading.read(&files, &chain, &segments, from, visit)?;
    let Reading {
        last,
        newest,
        offset,
        mut evidence,
    } = reading;
    // Everything after the place where reading has ended may show how far the log was durable.
    add_evidence(
        &files,
        chain.iter().skip(newest + 1).chain(&behind),
        &mut evidence,
    )?;
    let mut never_used = Vec::new();
    let mut suspect = String::new();
    let mut buf = Vec::new();
    for found in &unused {
        files.read(found, &mut buf)?;
        let here = scan(&buf, HEADER, found.header.seed());
        evidence.add(here);
        if !here.records {
            never_used.push(size(found));
            continue;
        }
        let path = files.path(found.header.number);
        suspect = format!(" ({} has records without a valid begin)", path.display());
        match here.durable > last.index {
            true => lost.push(found.header.number),
            false => dropped.push(size(found)),
        }
    }
    if let Some(cut) = options.cut_behind.filter(|cut| *cut <= last.index) {
        may_cut(cut, last, from)?;
        // The records after the cut may have been durable, and are removed all the same.
        evidence.durable = evidence.durable.min(cut);
    }
    let damaged = evidence.durable > last.index;
    if damaged && !options.accept_data_loss {
        // Reading has come to a gap between segments.
        if let (Some(next), true) = (behind.first(), newest + 1 == chain.len()) {
            return Err(missing(&files, next));
        }
        let found = chain.get(newest).map(|l| &l.found).or(unused.first());
        return Err(broken_off(
            &files,
            found,
            offset,
            last,
            (evidence.durable, &suspect),
        ));
    }
    let cut = chain.split_off((newest + 1).min(chain.len()));
    for link in cut.iter().chain(&behind) {
        match damaged {
            true => lost.push(link.found.header.number),
            false => dropped.push(size(&link.found)),
        }
    }
    let mut segments: Vec<_> = segments.into_iter().take(chain.len()).collect();
    while let Some(i) = make_durable(&files, &chain, evidence.durable.min(last.index), last)? {
        // There is damage in records up to `from`, which were not read above and are not needed.
        lost.extend(chain.drain(..=i).map(|l| l.found.header.number));
        segments.drain(..=i);
    }
    let fit = chain
        .last()
        .is_some_and(|l| l.found.len == l.found.header.size);
    Ok(Recovered {
        go_on: (fit && !evidence.records && !damaged).then_some(offset),
        chain: segments,
        last,
        unused: never_used,
        dropped,
        lost,
        free: files.free,
        next_number: files.next_number,
        generation,
    })
}

/// The segments that the log consists of.
fn segments(chain: &[Link]) -> Vec<Arc<Segment>> {
    let segment = |l: &Link| Segment::new(&l.found.header, l.begin.ordinal, l.begin.before);
    let segments: Vec<_> = chain.iter().map(|l| Arc::new(segment(l))).collect();
    // A segment that is not read ends where the next one's begin says.
    for (segment, next) in segments.iter().zip(chain.iter().skip(1)) {
        segment.last.store(next.begin.before.index, Relaxed);
        segment.last_at.store(next.begin.before.at.0, Relaxed);
    }
    segments
}

/// How far the records have been read.
struct Reading {
    /// The last record.
    last: Position,
    /// The place in the chain of the segment with it, and the offset after it.
    newest: usize,
    offset: usize,
    /// What was seen of how far the log was durable.
    evidence: Evidence,
}

impl Reading {
    /// Reads on, as far as the records are sound and follow each other. `visit` gets those later than `from`.
    fn read(
        &mut self,
        files: &Files<'_>,
        chain: &[Link],
        segments: &[Arc<Segment>],
        from: Timestamp,
        visit: &mut dyn FnMut(Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let Reading { last, evidence, .. } = self;
        let mut buf = Vec::new();
        let known = files.options.until.into_iter();
        let most = known.chain(files.options.cut_behind).min();
        for (i, (link, segment)) in chain.iter().zip(segments).enumerate().skip(self.newest) {
            files.read(&link.found, &mut buf)?;
            let next = chain.get(i + 1).map(|n| n.begin.before);
            let limit = next.map(|n| n.index).into_iter().chain(most).min();
            evidence.durable = evidence.durable.max(link.begin.durable);
            let mut before = *last;
            let mut next_point = 0;
            let at = walk(
                &buf,
                FIRST,
                limit.unwrap_or(u64::MAX),
                segment.seed,
                last,
                |at, head, payload| {
                    evidence.durable = evidence.durable.max(head.durable());
                    segment.point(before, at, &mut next_point);
                    before = head.position;
                    if head.position.at <= from {
                        return Ok(());
                    }
                    visit(Record {
                        index: head.position.index,
                        term: head.position.term,
                        at: head.position.at,
                        payload,
                    })
                },
            )?;
            segment.last.store(last.index, Relaxed);
            segment.last_at.store(last.at.0, Relaxed);
            (self.newest, self.offset) = (i, at);
            if next != Some(*last) {
                evidence.add(scan(&buf, at, segment.seed));
                break;
            }
        }
        Ok(())
    }
}

/// Adds what the records of segments that were not read show of how far the log was durable.
fn add_evidence<'a>(
    files: &Files<'_>,
    links: impl Iterator<Item = &'a Link>,
    evidence: &mut Evidence,
) -> Result<()> {
    let mut buf = Vec::new();
    for link in links {
        files.read(&link.found, &mut buf)?;
        evidence.records = true;
        evidence.durable = evidence.durable.max(link.begin.durable);
        evidence.add(scan(&buf, FIRST, link.found.header.seed()));
    }
    Ok(())
}

/// The error for a log that ends at `offset` of this file although records after `last` were durable.
fn broken_off(
    files: &Files<'_>,
    found: Option<&Found>,
    offset: usize,
    last: Position,
    (durable, suspect): (u64, &str),
) -> Error {
    let what = format!(
        "record {} is damaged, or the segment with it is missing{suspect}, though everything up to \
         record {durable} was durable{HOPE} to cut the log there",
        last.index + 1,
    );
    let at = found.map_or_else(
        || files.options.dir.clone(),
        |f| files.path(f.header.number),
    );
    damage(&at, offset as u64, &what)
}

/// Checks that no records are cut which the caller already has from the log: those up to `from`.
fn may_cut(cut: u64, last: Position, from: Timestamp) -> Result<()> {
    if last.index == cut && last.at >= from {
        return Ok(());
    }
    Err(Error::internal(format!(
        "log: what is behind record {cut} cannot be cut: records up to the one of {from} are in use"
    )))
}

/// The segments that count, in order, and those that later ones have replaced.
fn link(mut used: Vec<Found>) -> (Vec<Link>, Vec<Found>) {
    used.sort_by_key(|f| f.begin.map(|b| b.generation));
    let mut chain: Vec<Link> = Vec::new();
    let mut dropped = Vec::new();
    for found in used {
        let Some(begin) = found.begin else { continue };
        while let Some(old) = chain.pop_if(|l| l.begin.ordinal >= begin.ordinal) {
            dropped.push(old.found);
        }
        chain.push(Link { found, begin });
    }
    (chain, dropped)
}

/// True if `b` is the segment after `a`, and not after another segment that has replaced `a`.
fn joined(a: &Link, b: &Link) -> bool {
    b.begin.ordinal == a.begin.ordinal + 1
        && b.begin.before.index >= a.begin.before.index
        && b.begin.previous == a.found.header.number
}

/// Cuts the chain at the first gap, and returns the rest. A gap is legal if nothing after it was durable, or
/// if no record was in it: begins that no record followed may be lost. If everything before a gap was durable
/// (as everything up to `from` is) and a record is missing, a segment is missing. If that is accepted, the
/// segments before the gap are put aside, as none of them is needed.
fn gaps(
    files: &Files<'_>,
    chain: &mut Vec<Link>,
    from: Timestamp,
    lost: &mut Vec<u64>,
    dropped: &mut Vec<(u64, u64)>,
) -> Result<Vec<Link>> {
    let gap = |pair: &[Link]| matches!(pair, [a, b] if !joined(a, b));
    let needless = |pair: &[Link]| gap(pair) && pair.iter().all(|l| l.begin.before.at <= from);
    if let Some(last) = chain.windows(2).rposition(needless) {
        let mut complete = true;
        for pair in chain.windows(2).take(last + 1).filter(|p| needless(p)) {
            if let [a, b] = pair
                && !reaches(files, a, b)?
            {
                complete = false;
                if !files.options.accept_data_loss {
                    return Err(missing(files, b));
                }
            }
        }
        let before = chain
            .drain(..=last)
            .map(|l| (l.found.header.number, l.found.len));
        match complete {
            true => dropped.extend(before),
            false => lost.extend(before.map(|(number, _)| number)),
        }
    }
    let first = chain.windows(2).position(gap);
    let keep = first.map_or(chain.len(), |i| i + 1);
    Ok(chain.split_off(keep))
}

/// True if the records of `a` lead up to where `b` begins.
fn reaches(files: &Files<'_>, a: &Link, b: &Link) -> Result<bool> {
    let (mut last, end) = (a.begin.before, b.begin.before);
    if last != end {
        let mut buf = Vec::new();
        files.read(&a.found, &mut buf)?;
        let seed = a.found.header.seed();
        let each = |_, _: &Head, _: &[u8]| Ok::<(), Error>(());
        walk(&buf, FIRST, end.index, seed, &mut last, each)?;
    }
    Ok(last == end)
}

/// The error for a gap before `link`.
fn missing(files: &Files<'_>, link: &Link) -> Error {
    let path = files.path(link.begin.previous);
    let what = format!(
        "the segment is missing or its begin is damaged, and {} follows on it{HOPE} to put aside \
         what it parts from the rest",
        files.path(link.found.header.number).display()
    );
    damage(&path, 0, &what)
}

/// Writes everything again that is not known to be durable, and syncs it: it may be in the page cache only,
/// where the kernel may take it for clean. With accepted loss, returns a segment that turns out to be
/// damaged.
fn make_durable(
    files: &Files<'_>,
    chain: &[Link],
    durable: u64,
    last: Position,
) -> Result<Option<usize>> {
    // A begin is durable if a record after it is.
    let known = |l: &Link| l.begin.before.index < durable;
    let first = chain.iter().rposition(known).unwrap_or(0);
    let mut buf = Vec::new();
    for (i, link) in chain.iter().enumerate().skip(first) {
        let limit = chain.get(i + 1).map_or(last, |n| n.begin.before);
        if known(link) && limit.index <= durable {
            continue;
        }
        files.read(&link.found, &mut buf)?;
        let mut at = link.begin.before;
        let mut from = (!known(link)).then_some(HEADER);
        let seed = link.found.header.seed();
        let end = walk(
            &buf,
            FIRST,
            limit.index,
            seed,
            &mut at,
            |offset, head, _| {
                if head.position.index > durable {
                    from.get_or_insert(offset);
                }
                Ok::<(), Error>(())
            },
        )?;
        let path = files.path(link.found.header.number);
        if at != limit && files.options.accept_data_loss && i + 1 < chain.len() {
            return Ok(Some(i));
        }
        if at != limit {
            let what = format!("record {} is damaged{HOPE}", at.index + 1);
            return Err(damage(&path, end as u64, &what));
        }
        let from = from.unwrap_or(end);
        let bytes = buf.get(from..end).unwrap_or_default();
        files
            .options
            .disk
            .open(&path, Open::Write)
            .and_then(|file| rewrite(&*file, bytes, from))
            .map_err(|e| io_error(&path, "write", e))?;
    }
    Ok(None)
}
