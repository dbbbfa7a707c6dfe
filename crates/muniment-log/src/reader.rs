//! Reads the log while it is appended to and trimmed.

use crate::format::{FIRST, HEAD, Head, Kind, record, span};
use crate::large::LARGE;
use crate::log::Shared;
use crate::segment::{Segment, damage, io_error, path};
use crate::{Position, Record, SharedRecord, Weigh};
use bytes::Bytes;
use muniment_io::{File, Open, Timestamp};
use muniment_value::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// How many bytes are read at once.
const CHUNK: usize = LARGE;

/// Reads records in order. After the last one, it can be asked again later for the next.
///
/// A trimmed segment is not reused while a reader is in it, so that the reader never gets another segment's
/// bytes. The next segment may be gone when the reader gets there (286).
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
    /// The buffer has records up to this index.
    limit: u64,
    buf: Vec<u8>,
    /// The offset of the buffer's first byte.
    buf_at: usize,
    /// The payload of the last record, if it is one that readers share.
    large: Option<Bytes>,
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

    /// A reader of the records after an index.
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
        let Some(head) = self.advance(None)? else {
            return Ok(None);
        };
        Ok(Some(Record {
            index: head.position.index,
            term: head.position.term,
            at: head.position.at,
            payload: self.payload(&head),
        }))
    }

    /// The next record, with a payload that the caller may keep. Large payloads are read once for all current
    /// readers. `weigh` is called before; if it refuses, the reader stays where it is.
    ///
    /// # Errors
    /// Those of [`Reader::next`]; those of `weigh`.
    pub fn next_shared(&mut self, weigh: Weigh<'_>) -> Result<Option<SharedRecord>> {
        let Some(head) = self.advance(Some(weigh))? else {
            return Ok(None);
        };
        let large = self.place.as_mut().and_then(|p| p.large.take());
        Ok(Some(SharedRecord {
            index: head.position.index,
            term: head.position.term,
            at: head.position.at,
            payload: large.unwrap_or_else(|| Bytes::copy_from_slice(self.payload(&head))),
        }))
    }

    /// The payload of the record that was read last.
    fn payload(&self, head: &Head) -> &[u8] {
        let payload = self.place.as_ref().and_then(|p| {
            let at = (p.offset - span(head.len)).checked_sub(p.buf_at)? + HEAD;
            p.buf.get(at..at + head.len)
        });
        payload.unwrap_or_default()
    }

    fn advance(&mut self, weigh: Option<Weigh<'_>>) -> Result<Option<Head>> {
        let shared = self.shared.clone();
        let head = loop {
            let place = match &mut self.place {
                Some(place) => place,
                none => none.insert(Place::find(&shared, |p| p.at <= self.last.at)?),
            };
            if place.index == place.limit {
                let mut last = place.segment.last.load(Acquire);
                if place.index == last {
                    // Whether there is a next segment is checked before the end of this one is read again: if
                    // there is one, that end is final.
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
                // Bytes after the old limit may have been read while they were being written.
                place.limit = last;
                place.buf.clear();
            }
            let head = place.load(&shared, weigh)?;
            place.index = head.position.index;
            place.offset += span(head.len);
            // The first records may be at or before the place that the reader is to begin after.
            if head.position.at > self.last.at && head.position.index > self.last.index {
                break head;
            }
        };
        self.last = head.position;
        Ok(Some(head))
    }
}

impl Place {
    /// The place before the first record that `is_passed` is false for. It must be true up to some record and
    /// false from there on.
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
            large: None,
        })
    }

    /// Ensures that the record at the offset is in the buffer, and returns its header.
    fn load(&mut self, shared: &Shared, weigh: Option<Weigh<'_>>) -> Result<Head> {
        let seed = self.segment.seed;
        self.large = None;
        let mut want = CHUNK;
        // At the second attempt the buffer begins with the record; at the third it has all of it.
        for _ in 0..3 {
            if let Some(at) = self.offset.checked_sub(self.buf_at) {
                if let Some((head, _)) = record(&self.buf, at, seed) {
                    if head.kind == Kind::Data && head.position.index == self.index + 1 {
                        return Ok(head);
                    }
                    break;
                }
                if let Some(head) = Head::decode(&self.buf, at, seed) {
                    let next = head.kind == Kind::Data && head.position.index == self.index + 1;
                    if let Some(weigh) = weigh.filter(|_| next && head.len > LARGE) {
                        self.large = Some(self.load_large(shared, &head, weigh)?);
                        return Ok(head);
                    }
                    want = want.max(span(head.len));
                }
            }
            self.fill(want, shared)?;
        }
        Err(self.damaged(shared))
    }

    /// The payload of the large record before which the reader is.
    fn load_large(&mut self, shared: &Shared, head: &Head, weigh: Weigh<'_>) -> Result<Bytes> {
        shared.large.get(head.position, || {
            let weight = weigh(head.len)?;
            self.buf = Vec::new();
            self.fill(span(head.len), shared)?;
            let bytes = std::mem::take(&mut self.buf);
            match record(&bytes, 0, self.segment.seed) {
                Some((_, payload)) => {
                    let payload = HEAD..HEAD + payload.len();
                    Ok((bytes, payload, weight))
                }
                None => Err(self.damaged(shared)),
            }
        })
    }

    fn damaged(&self, shared: &Shared) -> Error {
        let path = path(&shared.dir, self.segment.number, "log");
        let what = format!("record {} is damaged", self.index + 1);
        damage(&path, self.offset as u64, &what)
    }

    fn fill(&mut self, want: usize, shared: &Shared) -> Result<()> {
        let path = path(&shared.dir, self.segment.number, "log");
        let fail = |e| io_error(&path, "read", e);
        // Not everything that the file has, because a reader that follows the log reads one record at a time.
        let end = match self.segment.end.load(Acquire) {
            u64::MAX => self.file.len().map_err(fail)?,
            end => end,
        };
        let rest = end.saturating_sub(self.offset as u64);
        let n = usize::try_from(rest).unwrap_or(usize::MAX).min(want);
        let too_large = self.buf.capacity() > LARGE && n <= CHUNK;
        match too_large || self.buf.is_empty() && self.buf.capacity() < n {
            // Zeroed memory from the allocator costs nothing, and the memory of a large record is given back.
            true => self.buf = vec![0; n],
            false => self.buf.resize(n, 0),
        }
        self.buf_at = self.offset;
        let offset = self.offset as u64;
        self.file.read_exact_at(&mut self.buf, offset).map_err(fail)
    }
}

impl Shared {
    /// The segment after the one with this ordinal, if there is one.
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
