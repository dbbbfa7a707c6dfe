//! Reading the log while it is appended to and trimmed.

use crate::format::{FIRST, HEAD, Head, Kind, record, span};
use crate::log::Shared;
use crate::segment::{Segment, damage, io_error, path};
use crate::{Position, Record};
use muniment_io::{File, Open, Timestamp};
use muniment_value::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// Bytes read at once.
const CHUNK: usize = 256 << 10;

/// Reads records in order. At the end it can be asked again later.
///
/// A segment that a reader is in is not used again when it is trimmed, so that what it reads is
/// never another's; the next segment may be gone when it gets there (286).
pub struct Reader {
    shared: Arc<Shared>,
    place: Option<Place>,
    last: Position,
}

struct Place {
    segment: Arc<Segment>,
    file: Arc<dyn File>,
    /// The index of the record before `offset`.
    index: u64,
    offset: usize,
    /// Up to this index the buffer holds records.
    limit: u64,
    buf: Vec<u8>,
    /// The offset of the buffer's first byte.
    buf_at: usize,
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>, after: Timestamp) -> Reader {
        let last = Position {
            at: after,
            ..Position::default()
        };
        Reader {
            shared,
            place: None,
            last,
        }
    }

    /// Of the records behind an index.
    pub(crate) fn behind(shared: Arc<Shared>, index: u64) -> Result<Reader> {
        let place = Place::find(&shared, |p| p.index <= index)?;
        let last = Position {
            index,
            ..Position::default()
        };
        Ok(Reader {
            shared,
            place: Some(place),
            last,
        })
    }

    /// The next record; `None` if there is none yet.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost if it was trimmed, 301 DataCorruptionDetected, the disk's.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        let shared = self.shared.clone();
        let head = loop {
            let place = match &mut self.place {
                Some(place) => place,
                none => none.insert(Place::find(&shared, |p| p.at <= self.last.at)?),
            };
            if place.index == place.limit {
                let mut last = place.segment.last.load(Acquire);
                if place.index == last {
                    // First whether there is a next segment, then where this one ends: if there
                    // is, that is final.
                    let next = shared.following(place.segment.ordinal)?;
                    last = place.segment.last.load(Acquire);
                    if place.index == last {
                        match next {
                            Some(next) => *place = Place::enter(&shared, next)?,
                            None => return Ok(None),
                        }
                        continue;
                    }
                }
                // What was read behind the old limit may have been half written.
                place.limit = last;
                place.buf.clear();
            }
            let head = place.load(&shared)?;
            place.index = head.position.index;
            place.offset += span(head.len);
            // The first records may be at or before what the reader was to begin after.
            if head.position.at > self.last.at && head.position.index > self.last.index {
                break head;
            }
        };
        self.last = head.position;
        let place = self.place.as_ref();
        let payload = place.and_then(|p| {
            let at = (p.offset - span(head.len)).checked_sub(p.buf_at)? + HEAD;
            p.buf.get(at..at + head.len)
        });
        Ok(Some(Record {
            index: head.position.index,
            term: head.position.term,
            at: head.position.at,
            payload: payload.unwrap_or_default(),
        }))
    }
}

impl Place {
    /// Before the first record that `is_passed` is false for: it rises from true to false.
    fn find(shared: &Shared, is_passed: impl Fn(Position) -> bool) -> Result<Place> {
        let order = shared.order.lock();
        let found = order.iter().rev().find(|s| is_passed(s.before)).cloned();
        drop(order);
        let segment = found.ok_or_else(lost)?;
        let (offset, index) = segment.seek(is_passed);
        Ok(Place {
            offset,
            index,
            limit: index,
            ..Place::enter(shared, segment)?
        })
    }

    fn enter(shared: &Shared, segment: Arc<Segment>) -> Result<Place> {
        let path = path(&shared.dir, segment.number, "log");
        let file = shared.disk.open(&path, Open::Read).map_err(|e| {
            match e.kind() == std::io::ErrorKind::NotFound {
                true => lost(),
                false => io_error(&path, "open", e),
            }
        })?;
        Ok(Place {
            index: segment.before.index,
            limit: segment.before.index,
            offset: FIRST,
            segment,
            file,
            buf: Vec::new(),
            buf_at: 0,
        })
    }

    /// Sees to it that the record at the offset is in the buffer, and returns its header.
    fn load(&mut self, shared: &Shared) -> Result<Head> {
        let seed = self.segment.seed;
        let mut want = CHUNK;
        // The second time the buffer begins with the record, the third time it holds all of it.
        for _ in 0..3 {
            if let Some(at) = self.offset.checked_sub(self.buf_at) {
                if let Some((head, _)) = record(&self.buf, at, seed) {
                    if head.kind == Kind::Data && head.position.index == self.index + 1 {
                        return Ok(head);
                    }
                    break;
                }
                if let Some(head) = Head::decode(&self.buf, at, seed) {
                    want = want.max(span(head.len));
                }
            }
            self.fill(want, shared)?;
        }
        let path = path(&shared.dir, self.segment.number, "log");
        let what = format!("record {} is damaged", self.index + 1);
        Err(damage(&path, self.offset as u64, &what))
    }

    fn fill(&mut self, want: usize, shared: &Shared) -> Result<()> {
        let path = path(&shared.dir, self.segment.number, "log");
        let fail = |e| io_error(&path, "read", e);
        // Not all that the file has: who follows the log reads one record at a time.
        let end = match self.segment.end.load(Acquire) {
            u64::MAX => self.file.len().map_err(fail)?,
            end => end,
        };
        let rest = end.saturating_sub(self.offset as u64);
        let n = usize::try_from(rest).unwrap_or(usize::MAX).min(want);
        match self.buf.is_empty() && self.buf.capacity() < n {
            // Zeros from the allocator cost nothing.
            true => self.buf = vec![0; n],
            false => self.buf.resize(n, 0),
        }
        self.buf_at = self.offset;
        let offset = self.offset as u64;
        self.file.read_exact_at(&mut self.buf, offset).map_err(fail)
    }
}

impl Shared {
    /// The segment behind the one with this ordinal, if there is one.
    fn following(&self, ordinal: u64) -> Result<Option<Arc<Segment>>> {
        let order = self.order.lock();
        let first = order.front().map_or(0, |s| s.ordinal);
        let Some(n) = (ordinal + 1).checked_sub(first) else {
            return Err(lost());
        };
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        Ok(order.get(n).cloned())
    }
}

fn lost() -> Error {
    let what = "the log no longer reaches back so far: its oldest records were trimmed";
    Error::new(Code::ChangeStreamHistoryLost, what)
}
