//! Sorted runs on disk and their merging, for the data that `$sort` and `$group` spill.
//!
//! A run is a scratch file. A record consists of two lengths (u32, little-endian), the key, and the document.

use super::Ticker;
use crate::context::Runtime;
use crate::scratch::{Scratch, ScratchFile};
use muniment_value::{Code, Error, Result};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};

/// If there are more runs than this, some are merged into one first, to bound the number of open files.
const MAX_RUNS: usize = 32;

/// The buffers for reading and for writing a file.
const READ_BUFFER: usize = 64 * 1024;
const WRITE_BUFFER: usize = 256 * 1024;

/// A key and a document.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub key: Vec<u8>,
    pub doc: Vec<u8>,
}

/// The scratch space in which `rt` lets a stage spill.
///
/// # Errors
/// 292 QueryExceededMemoryLimitNoDiskUseAllowed if it does not; the message begins with `what`.
pub(crate) fn scratch<'r>(rt: &'r Runtime, what: &str) -> Result<&'r Scratch> {
    rt.scratch.as_ref().ok_or_else(|| {
        Error::new(
            Code::QueryExceededMemoryLimitNoDiskUseAllowed,
            format!(
                "{what} exceeded memory limit of {} bytes, but did not opt in to external \
                 sorting. Aborting operation. Pass allowDiskUse:true to opt in.",
                rt.memory_limit
            ),
        )
    })
}

/// An anonymous file of documents, each after its length (u32, little-endian).
pub(crate) struct SpillFile {
    file: BufWriter<ScratchFile>,
}

impl SpillFile {
    /// An empty file.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn new(scratch: &Scratch) -> Result<SpillFile> {
        Ok(SpillFile {
            file: BufWriter::with_capacity(WRITE_BUFFER, scratch.file()?),
        })
    }

    /// Appends a document.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn append(&mut self, doc: &[u8]) -> Result<()> {
        let len = u32::try_from(doc.len())
            .map_err(|_| Error::internal("a spilled document is larger than 4 GiB"))?;
        self.file.write_all(&len.to_le_bytes())?;
        self.file.write_all(doc)?;
        Ok(())
    }

    /// Makes everything written so far readable.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn flush(&mut self) -> Result<()> {
        Ok(self.file.flush()?)
    }

    /// Fills `buf` from `offset` on. It returns fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        use std::os::unix::fs::FileExt;
        let mut got = 0;
        while let Some(rest) = buf.get_mut(got..)
            && !rest.is_empty()
        {
            match self
                .file
                .get_ref()
                .file()
                .read_at(rest, offset + got as u64)?
            {
                0 => break,
                n => got += n,
            }
        }
        Ok(got)
    }
}

/// The runs of one stage, oldest first.
pub(crate) struct Runs {
    scratch: Scratch,
    runs: Vec<Run>,
    bytes: u64,
}

struct Run {
    reader: BufReader<File>,
}

impl Runs {
    /// An empty list of runs, in the scratch space of `rt`.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed if spilling is not allowed; the message begins with
    /// `what`.
    pub(crate) fn new(rt: &Runtime, what: &str) -> Result<Runs> {
        Ok(Runs {
            scratch: scratch(rt, what)?.clone(),
            runs: Vec::new(),
            bytes: 0,
        })
    }

    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes one run from records that are sorted by key.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn write<K: AsRef<[u8]>, D: AsRef<[u8]>>(
        &mut self,
        records: impl Iterator<Item = (K, D)>,
        ticker: &Ticker,
    ) -> Result<()> {
        let mut w = RunWriter::new(&self.scratch)?;
        for (key, doc) in records {
            ticker.tick()?;
            w.put(key.as_ref(), doc.as_ref())?;
        }
        self.push(w)?;
        if self.runs.len() > MAX_RUNS {
            let older = std::mem::take(&mut self.runs);
            let mut merge = Merge::of(older)?;
            let mut w = RunWriter::new(&self.scratch)?;
            while let Some(r) = merge.next()? {
                ticker.tick()?;
                w.put(&r.key, &r.doc)?;
            }
            self.push(w)?;
        }
        Ok(())
    }

    fn push(&mut self, w: RunWriter) -> Result<()> {
        self.bytes += w.bytes;
        self.runs.push(w.finish()?);
        Ok(())
    }

    /// All records in the order of their keys. Records with equal keys come in the order in which they were
    /// written.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn merge(self) -> Result<Merge> {
        Merge::of(self.runs)
    }
}

struct RunWriter {
    file: BufWriter<ScratchFile>,
    bytes: u64,
}

impl RunWriter {
    fn new(scratch: &Scratch) -> Result<RunWriter> {
        Ok(RunWriter {
            file: BufWriter::with_capacity(WRITE_BUFFER, scratch.file()?),
            bytes: 0,
        })
    }

    fn put(&mut self, key: &[u8], doc: &[u8]) -> Result<()> {
        let len = |b: &[u8]| {
            u32::try_from(b.len())
                .map(u32::to_le_bytes)
                .map_err(|_| Error::internal("a spilled record is larger than 4 GiB"))
        };
        self.file.write_all(&len(key)?)?;
        self.file.write_all(&len(doc)?)?;
        self.file.write_all(key)?;
        self.file.write_all(doc)?;
        self.bytes += (8 + key.len() + doc.len()) as u64;
        Ok(())
    }

    fn finish(self) -> Result<Run> {
        let file = self.file.into_inner();
        let mut file = file.map_err(|e| e.into_error())?.into_file();
        file.seek(SeekFrom::Start(0))?;
        Ok(Run {
            reader: BufReader::with_capacity(READ_BUFFER, file),
        })
    }
}

impl Run {
    /// Reads the next record's key and the length of its document, which the caller reads with [`Run::doc`];
    /// `None` at the end.
    fn next(&mut self) -> Result<Option<(Vec<u8>, usize)>> {
        let mut head = [0u8; 8];
        if let Err(e) = self.reader.read_exact(&mut head) {
            return match e.kind() {
                std::io::ErrorKind::UnexpectedEof => Ok(None),
                _ => Err(e.into()),
            };
        }
        let [a, b, c, d, e, f, g, h] = head;
        let mut key = vec![0; u32::from_le_bytes([a, b, c, d]) as usize];
        self.reader.read_exact(&mut key)?;
        Ok(Some((key, u32::from_le_bytes([e, f, g, h]) as usize)))
    }

    /// The document of the record whose key was read last.
    fn doc(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut doc = vec![0; len];
        self.reader.read_exact(&mut doc)?;
        Ok(doc)
    }
}

/// Merges several runs into one sorted stream. It holds the next key of each; a document is only read when it
/// is needed, because a group may be large.
pub(crate) struct Merge {
    runs: Vec<Run>,
    heads: BinaryHeap<Head>,
}

struct Head {
    key: Vec<u8>,
    /// The length of the document that is next in the run.
    len: usize,
    run: usize,
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Head {}
impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Head {
    /// The order is reversed, because the heap returns its greatest entry and the least key (of the oldest
    /// run) is wanted.
    fn cmp(&self, other: &Head) -> Ordering {
        (&other.key, other.run).cmp(&(&self.key, self.run))
    }
}

impl Merge {
    fn of(mut runs: Vec<Run>) -> Result<Merge> {
        let mut heads = BinaryHeap::new();
        for (run, r) in runs.iter_mut().enumerate() {
            if let Some((key, len)) = r.next()? {
                heads.push(Head { key, len, run });
            }
        }
        Ok(Merge { runs, heads })
    }

    /// The next record.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn next(&mut self) -> Result<Option<Record>> {
        let Some(mut head) = self.heads.peek_mut() else {
            return Ok(None);
        };
        let Some(run) = self.runs.get_mut(head.run) else {
            return Ok(None);
        };
        let doc = run.doc(head.len)?;
        let key = match run.next()? {
            Some((key, len)) => {
                head.len = len;
                std::mem::replace(&mut head.key, key)
            }
            None => std::collections::binary_heap::PeekMut::pop(head).key,
        };
        Ok(Some(Record { key, doc }))
    }

    /// The bytes that the merge holds.
    pub(crate) fn memory(&self) -> usize {
        let keys: usize = self.heads.iter().map(|h| h.key.len()).sum();
        self.runs.len() * READ_BUFFER + keys
    }
}
