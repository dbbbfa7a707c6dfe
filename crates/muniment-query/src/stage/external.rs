//! Sorted runs on disk and their merging: what `$sort` and `$group` spill.
//!
//! A run is an anonymous temporary file in the spill directory: it has no name (or loses it at
//! once), so nobody can guess it and nothing is left behind, not even by a killed process.
//! A record is two lengths (u32, little-endian), the key, the document.

use super::Ticker;
use crate::context::Runtime;
use muniment_value::{Code, Error, Result};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// More runs than this are merged into one first, to bound the open files.
const MAX_RUNS: usize = 32;

/// Buffer of one run while it is read.
const READ_BUFFER: usize = 64 * 1024;

/// A key and a document.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub key: Vec<u8>,
    pub doc: Vec<u8>,
}

/// Where `rt` lets a stage spill.
///
/// # Errors
/// 292 QueryExceededMemoryLimitNoDiskUseAllowed when it may not; `what` begins the message.
pub(crate) fn spill_dir<'r>(rt: &'r Runtime, what: &str) -> Result<&'r Path> {
    let Some(dir) = &rt.spill_dir else {
        return Err(Error::new(
            Code::QueryExceededMemoryLimitNoDiskUseAllowed,
            format!(
                "{what} exceeded memory limit of {} bytes, but did not opt in to external \
                 sorting. Aborting operation. Pass allowDiskUse:true to opt in.",
                rt.memory_limit
            ),
        ));
    };
    std::fs::create_dir_all(dir).map_err(|e| spill_error(dir, &e))?;
    Ok(dir)
}

/// An anonymous file of documents, each behind its length (u32, little-endian).
pub(crate) struct SpillFile {
    file: BufWriter<File>,
}

impl SpillFile {
    /// An empty file below `dir`.
    ///
    /// # Errors
    /// What the disk raises.
    pub fn new(dir: &Path) -> Result<SpillFile> {
        let file = tempfile::tempfile_in(dir).map_err(|e| spill_error(dir, &e))?;
        Ok(SpillFile {
            file: BufWriter::with_capacity(256 * 1024, file),
        })
    }

    /// Appends a document.
    ///
    /// # Errors
    /// What the disk raises.
    pub fn append(&mut self, doc: &[u8]) -> Result<()> {
        let len = u32::try_from(doc.len())
            .map_err(|_| Error::internal("a spilled document is larger than 4 GiB"))?;
        self.file.write_all(&len.to_le_bytes())?;
        self.file.write_all(doc)?;
        Ok(())
    }

    /// Makes everything readable.
    ///
    /// # Errors
    /// What the disk raises.
    pub fn flush(&mut self) -> Result<()> {
        Ok(self.file.flush()?)
    }

    /// Fills `buf` from `offset` on; fewer bytes only at the end.
    ///
    /// # Errors
    /// What the disk raises.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        use std::os::unix::fs::FileExt;
        let mut got = 0;
        while let Some(rest) = buf.get_mut(got..)
            && !rest.is_empty()
        {
            match self.file.get_ref().read_at(rest, offset + got as u64)? {
                0 => break,
                n => got += n,
            }
        }
        Ok(got)
    }
}

/// The runs of one stage, oldest first.
pub(crate) struct Runs {
    dir: std::path::PathBuf,
    runs: Vec<Run>,
    bytes: u64,
}

struct Run {
    reader: BufReader<File>,
}

impl Runs {
    /// Runs below `rt`'s spill directory.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed when there is none; `what` begins the message.
    pub fn new(rt: &Runtime, what: &str) -> Result<Runs> {
        let dir = spill_dir(rt, what)?;
        Ok(Runs {
            dir: dir.to_path_buf(),
            runs: Vec::new(),
            bytes: 0,
        })
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes one run of records that come sorted by key.
    ///
    /// # Errors
    /// What the disk raises.
    pub fn write<K: AsRef<[u8]>, D: AsRef<[u8]>>(
        &mut self,
        records: impl Iterator<Item = (K, D)>,
        ticker: &mut Ticker,
    ) -> Result<()> {
        let mut w = RunWriter::new(&self.dir)?;
        for (key, doc) in records {
            ticker.tick()?;
            w.put(key.as_ref(), doc.as_ref())?;
        }
        self.push(w)?;
        if self.runs.len() > MAX_RUNS {
            let older = std::mem::take(&mut self.runs);
            let mut merge = Merge::of(older)?;
            let mut w = RunWriter::new(&self.dir)?;
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

    /// All records in the order of their keys; equal keys in the order in which they were
    /// written.
    ///
    /// # Errors
    /// What the disk raises.
    pub fn merge(self) -> Result<Merge> {
        Merge::of(self.runs)
    }
}

fn spill_error(dir: &Path, e: &std::io::Error) -> Error {
    let code = match e.raw_os_error() {
        Some(28) => Code::OutOfDiskSpace,
        _ => Code::FileOpenFailed,
    };
    Error::new(code, format!("cannot spill to {}: {e}", dir.display()))
}

struct RunWriter {
    file: BufWriter<File>,
    bytes: u64,
}

impl RunWriter {
    fn new(dir: &Path) -> Result<RunWriter> {
        let file = tempfile::tempfile_in(dir).map_err(|e| spill_error(dir, &e))?;
        Ok(RunWriter {
            file: BufWriter::with_capacity(256 * 1024, file),
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
        let mut file = self
            .file
            .into_inner()
            .map_err(|e| Error::from(e.into_error()))?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Run {
            reader: BufReader::with_capacity(READ_BUFFER, file),
        })
    }
}

impl Run {
    /// The next record; `None` at the end.
    fn next(&mut self) -> Result<Option<Record>> {
        let mut head = [0u8; 8];
        if let Err(e) = self.reader.read_exact(&mut head) {
            return match e.kind() {
                std::io::ErrorKind::UnexpectedEof => Ok(None),
                _ => Err(e.into()),
            };
        }
        let [a, b, c, d, e, f, g, h] = head;
        let mut record = Record {
            key: vec![0; u32::from_le_bytes([a, b, c, d]) as usize],
            doc: vec![0; u32::from_le_bytes([e, f, g, h]) as usize],
        };
        self.reader.read_exact(&mut record.key)?;
        self.reader.read_exact(&mut record.doc)?;
        Ok(Some(record))
    }
}

/// Several runs as one sorted stream.
pub(crate) struct Merge {
    runs: Vec<Run>,
    heads: BinaryHeap<Head>,
}

struct Head {
    record: Record,
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
    /// Reversed: the heap gives its greatest, and the least key of the oldest run is wanted.
    fn cmp(&self, other: &Head) -> Ordering {
        (&other.record.key, other.run).cmp(&(&self.record.key, self.run))
    }
}

impl Merge {
    fn of(mut runs: Vec<Run>) -> Result<Merge> {
        let mut heads = BinaryHeap::new();
        for (run, r) in runs.iter_mut().enumerate() {
            if let Some(record) = r.next()? {
                heads.push(Head { record, run });
            }
        }
        Ok(Merge { runs, heads })
    }

    /// The next record.
    ///
    /// # Errors
    /// What the disk raises.
    pub fn next(&mut self) -> Result<Option<Record>> {
        let Some(mut head) = self.heads.peek_mut() else {
            return Ok(None);
        };
        let next = match self.runs.get_mut(head.run) {
            Some(r) => r.next()?,
            None => None,
        };
        Ok(Some(match next {
            Some(record) => std::mem::replace(&mut head.record, record),
            None => std::collections::binary_heap::PeekMut::pop(head).record,
        }))
    }
}
