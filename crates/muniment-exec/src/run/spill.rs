//! Sorted runs on disk and their merge.
//!
//! A run is a file of records: four little-endian lengths (key, record key, document, index key
//! bits are not kept) and the bytes. Files are deleted as soon as they are open, so that nothing
//! is left after a crash.

use super::Row;
use super::sort::Keyed;
use bytes::Bytes;
use muniment_query::MatchInfo;
use muniment_value::{Error, Result};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const NO_INDEX: u32 = u32::MAX;

/// One sorted run.
pub struct Run {
    file: File,
}

fn length(n: usize) -> Result<[u8; 4]> {
    u32::try_from(n)
        .map(u32::to_le_bytes)
        .map_err(|_| Error::internal("a sort record is larger than 4 GiB"))
}

impl Run {
    /// Writes rows that are sorted already.
    pub fn write(dir: &Path, rows: impl Iterator<Item = Keyed>) -> Result<Run> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        std::fs::create_dir_all(dir)?;
        let name = format!(
            "sort-{}-{}.run",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = dir.join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        std::fs::remove_file(&path)?;
        let mut out = BufWriter::with_capacity(1 << 18, file);
        for (key, row) in rows {
            out.write_all(&length(key.len())?)?;
            out.write_all(&length(row.record_key.len())?)?;
            out.write_all(&length(row.doc.len())?)?;
            let index = row
                .info
                .array_index
                .map_or(Ok(NO_INDEX), u32::try_from)
                .unwrap_or(NO_INDEX);
            out.write_all(&index.to_le_bytes())?;
            out.write_all(&key)?;
            out.write_all(&row.record_key)?;
            out.write_all(&row.doc)?;
        }
        let mut file = out.into_inner().map_err(|e| Error::from(e.into_error()))?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Run { file })
    }
}

struct Reader {
    input: BufReader<File>,
}

impl Reader {
    fn next(&mut self) -> Result<Option<Keyed>> {
        let mut head = [0_u8; 16];
        match self.input.read_exact(&mut head) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        let part = |i: usize| {
            let b: [u8; 4] = head
                .get(i * 4..i * 4 + 4)
                .and_then(|s| s.try_into().ok())
                .unwrap_or_default();
            u32::from_le_bytes(b)
        };
        let mut read = |n: u32| -> Result<Vec<u8>> {
            let mut v = vec![0; n as usize];
            self.input.read_exact(&mut v)?;
            Ok(v)
        };
        let key = read(part(0))?;
        let record_key = Bytes::from(read(part(1))?);
        let doc = Bytes::from(read(part(2))?);
        let index = part(3);
        let info = MatchInfo {
            array_index: (index != NO_INDEX).then_some(index as usize),
        };
        let row = Row {
            record_key,
            doc,
            info,
            ..Row::default()
        };
        Ok(Some((key, row)))
    }
}

/// The merge of several runs.
pub struct Merge {
    readers: Vec<Reader>,
    /// The next row of every run that has one; equal keys in the order of the runs.
    heads: Vec<Option<Row>>,
    heap: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    left: usize,
}

impl Merge {
    /// Opens the runs; gives at most `limit` rows.
    pub fn open(runs: Vec<Run>, limit: Option<usize>) -> Result<Merge> {
        let mut merge = Merge {
            readers: Vec::new(),
            heads: Vec::new(),
            heap: BinaryHeap::new(),
            left: limit.unwrap_or(usize::MAX),
        };
        for (i, run) in runs.into_iter().enumerate() {
            merge.readers.push(Reader {
                input: BufReader::with_capacity(1 << 16, run.file),
            });
            merge.heads.push(None);
            merge.load(i)?;
        }
        Ok(merge)
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.readers.len()
    }

    fn load(&mut self, i: usize) -> Result<()> {
        let (Some(reader), Some(head)) = (self.readers.get_mut(i), self.heads.get_mut(i)) else {
            return Ok(());
        };
        if let Some((key, row)) = reader.next()? {
            *head = Some(row);
            self.heap.push(Reverse((key, i)));
        }
        Ok(())
    }

    /// The next row.
    pub fn next(&mut self) -> Result<Option<Row>> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(Reverse((_, i))) = self.heap.pop() else {
            return Ok(None);
        };
        self.left -= 1;
        let row = self.heads.get_mut(i).and_then(Option::take);
        self.load(i)?;
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn runs_merge_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let rows = |from: u8| {
            (from..200).step_by(3).map(|n| {
                let row = Row {
                    doc: Bytes::from(vec![n; 3]),
                    ..Row::default()
                };
                (vec![n], row)
            })
        };
        let runs = vec![
            Run::write(dir.path(), rows(0)).unwrap(),
            Run::write(dir.path(), rows(2)).unwrap(),
            Run::write(dir.path(), rows(1)).unwrap(),
        ];
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let mut merge = Merge::open(runs, Some(150)).unwrap();
        let mut got = Vec::new();
        while let Some(r) = merge.next().unwrap() {
            got.push(r.doc[0]);
        }
        assert_eq!(got, (0..150).collect::<Vec<u8>>());
    }
}
