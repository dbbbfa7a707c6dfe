//! A payload that is prepared for the log: all of an append that needs neither index nor timestamp.

use crate::format::{FIRST, HEAD, MARK, MAX_PAYLOAD, span};
use crate::log::Shared;
use crate::segment::{Prepared, Source, prepare};
use muniment_io::File;
use muniment_value::{Code, Error, Result};
use std::sync::atomic::Ordering::SeqCst;

/// A record of up to this many bytes is assembled first and written at once. Copying a longer one would cost
/// more than writing its parts one by one.
const AT_ONCE: usize = if cfg!(test) { 256 } else { 32 << 10 };

/// The result of [`Log::prepare`](crate::Log::prepare).
pub struct Ready<'a> {
    shared: &'a Shared,
    pub(crate) len: usize,
    /// The payload's checksum.
    pub(crate) crc: u32,
    pub(crate) form: Form<'a>,
}

/// The form of a prepared payload.
pub(crate) enum Form<'a> {
    /// It is to be written into the current segment.
    Record(Record<'a>),
    /// It is in a segment of its own, which is taken when that becomes part of the log.
    Segment(Option<Prepared>),
}

/// A record without its header.
pub(crate) enum Record<'a> {
    /// It is assembled, with room for the header.
    Whole(Vec<u8>),
    /// The parts of its payload, and how many zeros follow them.
    Parts(Vec<&'a [u8]>, usize),
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        if let Form::Segment(made) = &mut self.form
            && let Some(made) = made.take()
        {
            self.shared.discard(&made);
        }
    }
}

impl Shared {
    pub(crate) fn prepare<'a>(&'a self, payload: &[&'a [u8]]) -> Result<Ready<'a>> {
        let len = payload.iter().map(|p| p.len()).sum::<usize>();
        if len > MAX_PAYLOAD {
            return Err(Error::new(
                Code::BSONObjectTooLarge,
                format!("log: a record of {len} bytes; at most {MAX_PAYLOAD} are possible"),
            ));
        }
        self.usable()?;
        let crc = payload
            .iter()
            .fold(0, |crc, part| crc32c::crc32c_append(crc, part));
        // A record that fits now also fits into the next segment, because segments never become smaller.
        let form = if (FIRST + span(len) + MARK) as u64 > self.made.load(SeqCst) {
            // It fills its segment, so the next record needs another one, which is made at the same time.
            self.want_spare();
            let number = self.next_number.fetch_add(1, SeqCst);
            let source = Source::Payload(payload, len);
            Form::Segment(Some(prepare(&*self.disk, &self.dir, number, source)?))
        } else {
            Form::Record(Record::new(payload, len))
        };
        Ok(Ready {
            shared: self,
            len,
            crc,
            form,
        })
    }
}

impl<'a> Record<'a> {
    fn new(payload: &[&'a [u8]], len: usize) -> Record<'a> {
        let span = span(len);
        if span > AT_ONCE {
            return Record::Parts(payload.to_vec(), span - HEAD - len);
        }
        let mut whole = Vec::with_capacity(span);
        whole.resize(HEAD, 0);
        for part in payload {
            whole.extend_from_slice(part);
        }
        whole.resize(span, 0);
        Record::Whole(whole)
    }

    /// Writes the record after the space for its header, and the header last: until then, an error or a crash
    /// leaves no record there.
    pub(crate) fn write(
        &mut self,
        head: &[u8; HEAD],
        file: &dyn File,
        offset: u64,
    ) -> std::io::Result<()> {
        match self {
            Record::Whole(whole) => {
                if let Some(to) = whole.get_mut(..HEAD) {
                    to.copy_from_slice(head);
                }
                file.write_at(whole, offset)
            }
            Record::Parts(parts, zeros) => {
                let mut at = offset + HEAD as u64;
                for part in parts {
                    file.write_at(part, at)?;
                    at += part.len() as u64;
                }
                if let Some(zeros @ [_, ..]) = [0; 8].get(..*zeros) {
                    file.write_at(zeros, at)?;
                }
                file.write_at(head, offset)
            }
        }
    }
}
