//! Keeps documents for repeated reading: in memory, or in an anonymous file beyond the limit.
//!
//! Several cursors can read one spool, each forwards and at its own speed.

use super::Ticker;
use super::external::{SpillFile, scratch};
use crate::context::Runtime;
use bytes::Bytes;
use muniment_op::{Account, Share};
use muniment_value::Result;

/// The number of bytes that a cursor reads ahead from the file.
const READ_AHEAD: usize = 64 * 1024;

/// The bytes that a document needs in addition to its own.
const OVERHEAD: usize = size_of::<Bytes>() + 16;

/// Documents in the order in which they came.
pub(crate) struct Spool {
    what: &'static str,
    docs: Vec<Bytes>,
    bytes: usize,
    share: Option<Share>,
    file: Option<SpillFile>,
    count: u64,
}

/// A position in a spool.
pub(crate) struct Cursor {
    index: u64,
    offset: u64,
    /// The bytes that have been read from the file, and their offset.
    ahead: Vec<u8>,
    ahead_at: u64,
}

impl Spool {
    /// An empty spool; the message begins with `what` if spilling is not allowed.
    pub(crate) fn new(what: &'static str) -> Spool {
        Spool {
            what,
            docs: Vec::new(),
            bytes: 0,
            share: None,
            file: None,
            count: 0,
        }
    }

    /// The number of documents.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Appends a document.
    ///
    /// # Errors
    /// 292 above the memory limit if spilling is not allowed; those of the disk.
    pub(crate) fn push(&mut self, doc: Bytes, rt: &Runtime, ticker: &Ticker) -> Result<()> {
        self.count += 1;
        if let Some(file) = &mut self.file {
            return file.append(&doc);
        }
        self.bytes += doc.len() + OVERHEAD;
        self.docs.push(doc);
        let share = self
            .share
            .get_or_insert_with(|| Share::new(&rt.ledger, Account::Stages));
        if share.holds(self.bytes) || self.bytes > rt.memory_limit {
            let mut file = SpillFile::new(scratch(rt, self.what)?)?;
            for doc in std::mem::take(&mut self.docs) {
                ticker.tick()?;
                file.append(&doc)?;
            }
            self.file = Some(file);
            self.share = None;
        }
        Ok(())
    }

    /// Ends the input. From now on, buffered documents can be read too.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn finish(&mut self) -> Result<()> {
        match &mut self.file {
            Some(f) => f.flush(),
            None => Ok(()),
        }
    }

    /// A cursor before the first document.
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor {
            index: 0,
            offset: 0,
            ahead: Vec::new(),
            ahead_at: 0,
        }
    }
}

impl Cursor {
    /// The number of documents that it has passed.
    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    /// The next document; `None` at the end.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn next(&mut self, spool: &Spool) -> Result<Option<Bytes>> {
        if self.index >= spool.count {
            return Ok(None);
        }
        let doc = match &spool.file {
            None => usize::try_from(self.index)
                .ok()
                .and_then(|i| spool.docs.get(i))
                .cloned(),
            Some(file) => {
                let len = self.bytes(file, 4)?;
                let len = len.try_into().map_or(0, u32::from_le_bytes) as usize;
                let doc = Bytes::copy_from_slice(self.bytes(file, len)?);
                Some(doc)
            }
        };
        self.index += 1;
        Ok(doc)
    }

    /// The next `n` bytes of the file.
    fn bytes(&mut self, file: &SpillFile, n: usize) -> Result<&[u8]> {
        let mut from = usize::try_from(self.offset.saturating_sub(self.ahead_at)).unwrap_or(0);
        if self.ahead.len().saturating_sub(from) < n {
            self.ahead.resize(n.max(READ_AHEAD), 0);
            let got = file.read_at(&mut self.ahead, self.offset)?;
            self.ahead.truncate(got);
            self.ahead_at = self.offset;
            from = 0;
        }
        self.offset += n as u64;
        self.ahead
            .get(from..from + n)
            .ok_or_else(|| muniment_value::Error::internal("a spill file ends too early"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_value::doc;

    #[test]
    fn cursors_read_the_same_from_memory_and_from_disk() {
        let dir = tempfile::tempdir().unwrap();
        for limit in [10_000_000, 3000] {
            let rt = Runtime {
                memory_limit: limit,
                scratch: Some(crate::Scratch::unlimited(dir.path())),
                ..Runtime::for_tests()
            };
            let ticker = Ticker::new(&rt);
            let mut spool = Spool::new("test");
            let docs: Vec<Bytes> = (0..500_usize)
                .map(|i| {
                    // One document is larger than the bytes that are read ahead.
                    let pad = if i == 77 { 100_000 } else { i };
                    doc! { "i": i as i32, "pad": "x".repeat(pad) }
                        .into_bytes()
                        .into()
                })
                .collect();
            for d in &docs {
                spool.push(d.clone(), &rt, &ticker).unwrap();
            }
            spool.finish().unwrap();
            let (mut a, mut b) = (spool.cursor(), spool.cursor());
            for (i, d) in docs.iter().enumerate() {
                assert_eq!(a.next(&spool).unwrap().as_ref(), Some(d));
                if i % 2 == 0 {
                    assert_eq!(b.next(&spool).unwrap().as_ref(), Some(&docs[i / 2]));
                }
            }
            assert!(a.next(&spool).unwrap().is_none());
            assert_eq!((a.index(), b.index()), (500, 250));
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn spilling_must_be_allowed() {
        let rt = Runtime {
            memory_limit: 100,
            ..Runtime::for_tests()
        };
        let doc: Bytes = doc! { "pad": "x".repeat(100) }.into_bytes().into();
        let e = Spool::new("$facet")
            .push(doc, &rt, &Ticker::new(&rt))
            .unwrap_err();
        assert_eq!(e.code().0, 292);
    }
}
