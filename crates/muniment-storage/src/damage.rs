//! Finding where the damage is. The engine notices a damaged block by its checksum but does not
//! say which file it was reading; this reads the tables and says file and offset.
//!
//! Invariants: only reads; never allocates more than the file has bytes; runs only after the
//! engine has met damage, since it reads all tables.
//! Source of the format: lsm-tree 3.1 (blocks) and sfa 1.0 (sections), both read from their
//! published sources.

use parking_lot::Mutex;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_128;

/// A block's header: magic, type, checksum of the data, its length, the length when
/// uncompressed, and the low half word of the checksum of all that.
const HEADER: usize = 4 + 1 + 16 + 4 + 4 + 4;
const MAGIC: [u8; 4] = [b'L', b'S', b'M', 3];
/// A table of contents ends the file: magic, version, checksum type, checksum, position, length.
const TRAILER: u64 = 4 + 1 + 1 + 16 + 8 + 8;
/// Sections that are not made of blocks.
const RAW: [&[u8]; 2] = [b"table_version", b"linked_blob_files"];

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Where the damaged block begins, in bytes.
    pub offset: u64,
    /// What is wrong with it.
    pub what: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = self.file.display();
        write!(f, "{file} at offset {}: {}", self.offset, self.what)
    }
}

/// The first damaged place in the tables of the database in `dir`. Reading them all takes a
/// while, and whoever meets damage meets it again: an answer is good for a minute.
pub(crate) fn located(dir: &Path) -> Option<Damage> {
    static LAST: Mutex<Option<(PathBuf, Instant, Option<Damage>)>> = Mutex::new(None);
    let mut last = LAST.lock();
    if let Some((of, at, answer)) = &*last
        && of == dir
        && at.elapsed() < Duration::from_secs(60)
    {
        return answer.clone();
    }
    let answer = locate(dir).into_iter().next();
    *last = Some((dir.to_path_buf(), Instant::now(), answer.clone()));
    answer
}

/// The damaged places in the tables below the data directory, at most one a file.
pub(crate) fn locate(dir: &Path) -> Vec<Damage> {
    let mut found = Vec::new();
    for keyspace in children(&dir.join("keyspaces")) {
        for file in children(&keyspace.join("tables")) {
            found.extend(check_table(&file));
        }
    }
    found
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|e| e.path()).collect();
    paths.sort();
    paths
}

/// Reads one table through; `None` if it is whole (or was removed meanwhile).
pub(crate) fn check_table(path: &Path) -> Option<Damage> {
    let damage = |offset: u64, what: String| {
        Some(Damage {
            file: path.to_path_buf(),
            offset,
            what,
        })
    };
    let file = match File::open(path) {
        Ok(f) => f,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
        Err(e) => return damage(0, e.to_string()),
    };
    let len = match file.metadata() {
        Ok(m) => m.len(),
        Err(e) => return damage(0, e.to_string()),
    };
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let sections = match sections(&mut reader, len) {
        Ok(s) => s,
        Err((offset, what)) => return damage(offset, what),
    };
    for (name, start, end) in sections {
        if RAW.contains(&name.as_slice()) {
            continue;
        }
        let mut at = start;
        while at < end {
            match block(&mut reader, at, end) {
                Ok(next) => at = next,
                Err(what) => return damage(at, what),
            }
        }
    }
    None
}

type Section = (Vec<u8>, u64, u64);

/// The sections by the table of contents: name, start, end.
fn sections(r: &mut BufReader<File>, len: u64) -> Result<Vec<Section>, (u64, String)> {
    let trailer_at = len
        .checked_sub(TRAILER)
        .ok_or((0, format!("the file is cut: it has {len} bytes")))?;
    let bad = |what: &str| (trailer_at, what.to_string());
    let trailer = read(r, trailer_at, TRAILER as usize).map_err(|e| bad(&e))?;
    if trailer.get(..6) != Some(b"SFA!\x01\x00") {
        return Err(bad("the trailer is damaged or cut off"));
    }
    let checksum = number(&trailer, 6, 16);
    let toc_at = number(&trailer, 22, 8) as u64;
    let toc_len = trailer_at
        .checked_sub(toc_at)
        .ok_or_else(|| bad("the trailer is damaged"))?;
    let toc = read(r, toc_at, toc_len as usize).map_err(|e| (toc_at, e))?;
    if toc.get(..4) != Some(b"TOC!") {
        return Err(bad("the trailer or the table of contents is damaged"));
    }
    let bad = || (toc_at, "the table of contents is damaged".to_string());
    if xxh3_128(&toc) != checksum {
        return Err(bad());
    }
    let mut at = 8;
    let mut all = Vec::new();
    for _ in 0..number(&toc, 4, 4) {
        let (pos, size) = (number(&toc, at, 8) as u64, number(&toc, at + 8, 8) as u64);
        let name_len = number(&toc, at + 16, 2) as usize;
        let name = toc.get(at + 18..at + 18 + name_len).ok_or_else(bad)?;
        at += 18 + name_len;
        let end = pos
            .checked_add(size)
            .filter(|e| *e <= toc_at)
            .ok_or_else(bad)?;
        all.push((name.to_vec(), pos, end));
    }
    Ok(all)
}

/// Checks the block at `at` and returns where the next one begins.
fn block(r: &mut BufReader<File>, at: u64, end: u64) -> Result<u64, String> {
    let head = read(r, at, HEADER)?;
    let checked = head.get(..HEADER - 4).unwrap_or_default();
    if checked.get(..4) != Some(&MAGIC)
        || xxh3_128(checked) as u32 != number(&head, HEADER - 4, 4) as u32
    {
        return Err("the header of a block is damaged".into());
    }
    let data_len = number(&head, 21, 4) as u64;
    let next = at + HEADER as u64 + data_len;
    if next > end {
        return Err(format!("a block of {data_len} bytes does not fit"));
    }
    let data = read(r, at + HEADER as u64, data_len as usize)?;
    let (expected, got) = (number(&head, 5, 16), xxh3_128(&data));
    if expected != got {
        return Err(format!(
            "a block of {data_len} bytes has the checksum {got:032x}, expected {expected:032x}"
        ));
    }
    Ok(next)
}

/// `n` bytes at `at`, without trusting `n`: the buffer grows as bytes come.
fn read(r: &mut BufReader<File>, at: u64, n: usize) -> Result<Vec<u8>, String> {
    let here = r.stream_position().map_err(|e| e.to_string())?;
    let step = at as i64 - here as i64;
    if step != 0 {
        // Relative, so that what is buffered is not thrown away.
        r.seek(SeekFrom::Current(step)).map_err(|e| e.to_string())?;
    }
    let mut bytes = Vec::new();
    r.take(n as u64)
        .read_to_end(&mut bytes)
        .map_err(|e| e.to_string())?;
    if bytes.len() < n {
        return Err(format!("the file ends {} bytes early", n - bytes.len()));
    }
    Ok(bytes)
}

/// The little-endian number of `n` bytes at `at`; 0 beyond the end.
fn number(b: &[u8], at: usize, n: usize) -> u128 {
    let bytes = b.get(at..at + n).unwrap_or_default();
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| (value << 8) | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use fjall::{Database, KeyspaceCreateOptions};
    use std::os::unix::fs::FileExt;

    /// A directory with one table of some hundred kilobytes.
    fn table(dir: &Path) -> PathBuf {
        let db = Database::builder(dir).open().unwrap();
        let k = db.keyspace("k", KeyspaceCreateOptions::default).unwrap();
        for i in 0..3000_u64 {
            let noise = xxh3_128(&i.to_be_bytes()).to_le_bytes();
            k.insert(i.to_be_bytes(), noise.repeat(6)).unwrap();
        }
        k.rotate_memtable_and_wait().unwrap();
        let all: Vec<PathBuf> = children(&dir.join("keyspaces"))
            .iter()
            .flat_map(|k| children(&k.join("tables")))
            .collect();
        all.into_iter()
            .max_by_key(|f| f.metadata().unwrap().len())
            .unwrap()
    }

    #[test]
    fn finds_file_and_block_of_every_flip() {
        let dir = tempfile::tempdir().unwrap();
        let file = table(dir.path());
        assert_eq!(locate(dir.path()), vec![]);
        let len = file.metadata().unwrap().len();
        assert!(len > 100_000, "{len}");
        let f = File::options().read(true).write(true).open(&file).unwrap();
        // The table's version number and the length of the contents have no checksum.
        let (mut tried, mut missed) = (0, 0);
        for at in (0..len).step_by(997).chain(len - 600..len) {
            let mut b = [0];
            f.read_exact_at(&mut b, at).unwrap();
            f.write_all_at(&[b[0] ^ 4], at).unwrap();
            tried += 1;
            match locate(dir.path()).as_slice() {
                [] => missed += 1,
                [d] => {
                    assert_eq!(d.file, file);
                    let near = d.offset <= at || at > len - 600; // a damaged trailer misleads a little
                    assert!(near && at.abs_diff(d.offset) < 70_000, "{at}: {d}");
                }
                more => panic!("{more:?}"),
            }
            f.write_all_at(&b, at).unwrap();
        }
        assert!(missed <= 12, "{missed} of {tried} flips were not found");
        f.set_len(len / 2).unwrap();
        assert_eq!(locate(dir.path()).len(), 1);
        f.set_len(3).unwrap();
        assert_eq!(locate(dir.path()).len(), 1);
    }
}
