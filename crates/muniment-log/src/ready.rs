//! A payload on its way into the log: all of an append that needs neither index nor timestamp.

use crate::format::{FIRST, HEAD, MARK, MAX_PAYLOAD, span};
use crate::log::Shared;
use crate::segment::{Prepared, Source, prepare};
use muniment_io::File;
use muniment_value::{Code, Error, Result};
use std::sync::atomic::Ordering::SeqCst;

/// A record up to so many bytes is put together first and written at once; of a longer one, copying it
/// would cost more than writing its parts one by one.
const AT_ONCE: usize = if cfg!(test) { 256 } else { 32 << 10 };

/// What [`Log::prepare`](crate::Log::prepare) made.
pub struct Ready<'a> {
    shared: &'a Shared,
    pub(crate) len: usize,
    /// The payload's checksum.
    pub(crate) crc: u32,
    pub(crate) form: Form<'a>,
}

/// In what form it is.
pub(crate) enum Form<'a> {
    /// To be written into the segment in use.
    Record(Record<'a>),
    /// In a segment of its own; taken when that becomes part of the log.
    Segment(Option<Prepared>),
}

/// A record but for its header.
pub(crate) enum Record<'a> {
    /// Put together, with room for the header.
    Whole(Vec<u8>),
    /// Its payload where it stands, and how many zeros follow it.
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
        // A record by itself fits whatever segment is next: they never become smaller.
        let form = if (FIRST + span(len) + MARK) as u64 > self.made.load(SeqCst) {
            // It fills its segment, so the next record needs another: beside this one's writing.
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

    /// Writes it after its header, which goes last: what an error or a crash leaves in between is
    /// no record.
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
