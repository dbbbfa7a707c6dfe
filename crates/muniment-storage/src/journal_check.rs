//! The check of the journal files before fjall reads them.
//!
//! fjall's recovery cuts a journal at the first entry that does not parse, silently and wherever
//! it stands, and refuses to open when a batch's checksum is wrong, even in a torn tail. Neither
//! is what we promise. So we parse the files first, in the format of fjall 3.1 (source: its
//! `journal/entry.rs`; a test writes a journal with fjall and reads it here):
//!
//! batch = start item* end; start = 1, count u32, sequence number u64; item = 2, value type u8,
//! compression u8, keyspace u64, key length u16, value length u32, stored length u32, key, value;
//! clear = 4, keyspace u64; end = 3, xxh3-64 of the items, `FJL` 3. All little-endian. The file is
//! 64 MiB of zeros at first.
//!
//! The checksum leaves out the start, so a flipped sequence number would pass, and a batch would
//! then hide others or be taken for flushed. fjall numbers batches under the journal's mutex, so
//! the numbers ascend through all files; one that does not is damage.
//!
//! Damage at the end of the newest journal is a torn write: cut off. Damage with valid batches
//! behind it is not, unless a page of the damaged place is empty or was not full when it was last
//! written: then the power failed between two pages that were not synced since, and what stands
//! behind was not promised either.

use crate::engine::corrupt;
use muniment_value::Result;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

const PAGE: usize = 4096;
/// A page that ends with so many zeros was not yet full when it was last written. A batch of whole
/// pages hardly ever has them there, and if it does, a flipped bit in it passes for a torn write.
const UNWRITTEN: usize = 24;
const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";
/// Numbers between two batches go to flushes and compactions: a few, never as many as this.
const MAX_STEP: u64 = 1 << 24;

/// Checks every journal in `dir`, ascending, and cuts a torn tail off the newest.
///
/// # Errors
/// 301 DataCorruptionDetected naming file and offset, unless `accept_data_loss`: then the file is
/// cut where the damage begins, and later journals are put aside as `N.jnl.lost`.
pub(crate) fn check(dir: &Path, accept_data_loss: bool) -> Result<()> {
    let numbers = match crate::journal::numbers(dir) {
        Ok(n) => n,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    let newest = numbers.last().copied();
    let mut cut = false;
    let mut last = None;
    for n in numbers {
        let path = dir.join(format!("{n}.jnl"));
        if cut {
            std::fs::rename(&path, dir.join(format!("{n}.jnl.lost")))?;
            continue;
        }
        let data = read(&path)?;
        let valid = valid_prefix(&data, &mut last);
        if !accept_data_loss {
            present(dir, &path, &keyspaces(&data, valid))?;
        }
        let rest = data.get(valid..).unwrap_or_default();
        if rest.iter().all(|b| *b == 0) {
            continue;
        }
        let torn = Some(n) == newest
            && match next_batch(&data, valid) {
                None => true,
                Some(behind) => lost_page(&data, valid, behind),
            };
        if !torn && !accept_data_loss {
            return Err(corrupt(
                &path,
                &format!(
                    "the journal is damaged at offset {valid}, and valid writes follow. Nothing \
                     was changed; restore a backup, or open with accept_data_loss to cut the \
                     journal there"
                ),
            ));
        }
        let file = OpenOptions::new().write(true).open(&path)?;
        file.set_len(valid as u64)?;
        file.sync_all()?;
        cut = !torn;
    }
    if cut {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// The file up to its last data: the hole of zeros behind it is not read.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut data = Vec::new();
    let mut at = 0u64;
    while at < len {
        // SAFETY: lseek on a descriptor that `file` keeps open; no memory is involved.
        let start = unsafe { libc::lseek(file.as_raw_fd(), at as i64, libc::SEEK_DATA) };
        if start < 0 {
            if std::io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) {
                break; // only a hole is left
            }
            // A file system without SEEK_DATA: read it all.
            file.seek(SeekFrom::Start(at))?;
            file.read_to_end(&mut data)?;
            break;
        }
        // SAFETY: as above.
        let hole = unsafe { libc::lseek(file.as_raw_fd(), start, libc::SEEK_HOLE) };
        let end = if hole < start { len } else { hole as u64 };
        data.resize(start as usize, 0);
        file.seek(SeekFrom::Start(start as u64))?;
        (&mut file)
            .take(end - start as u64)
            .read_to_end(&mut data)?;
        at = end;
    }
    Ok(data)
}

/// The keyspaces that the valid batches in the first `valid` bytes of `data` write to.
fn keyspaces(data: &[u8], valid: usize) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let mut at = 0;
    // The batches are valid, so that every entry is whole.
    while at < valid {
        let (tag, id, len) = match data.get(at) {
            Some(&ITEM) => (ITEM, at + 3, item_len(data, at).unwrap_or(valid)),
            Some(&CLEAR) => (CLEAR, at + 1, 9),
            Some(_) => (START, 0, 13), // as long as the end
            None => break,
        };
        if tag != START
            && let Some(bytes) = data.get(id..id + 8).and_then(|b| b.try_into().ok())
        {
            found.insert(u64::from_le_bytes(bytes));
        }
        at += len;
    }
    found
}

/// Refuses a journal with writes for a keyspace that fjall would take for unfinished, and delete.
fn present(dir: &Path, journal: &Path, keyspaces: &BTreeSet<u64>) -> Result<()> {
    for id in keyspaces {
        let current = dir.join(format!("keyspaces/{id}/current"));
        if !current.exists() {
            let what = format!(
                "the file is missing, but {} has writes that belong there",
                journal.display()
            );
            return Err(corrupt(&current, &what));
        }
    }
    Ok(())
}

/// The length of the item at `at`.
fn item_len(data: &[u8], at: usize) -> Option<usize> {
    let e = data.get(at..)?;
    let key = u16::from_le_bytes(e.get(11..13)?.try_into().ok()?);
    let stored = u32::from_le_bytes(e.get(17..21)?.try_into().ok()?);
    Some(21 + usize::from(key) + stored as usize)
}

/// How many bytes of `data` are valid batches that follow on the batch numbered `last`, which
/// becomes the last of them.
fn valid_prefix(data: &[u8], last: &mut Option<u64>) -> usize {
    let mut at = 0;
    while let Some(end) = batch_end(data, at) {
        let number = sequence(data, at);
        if let Some(last) = *last
            && (number <= last || number - last > MAX_STEP)
        {
            break;
        }
        *last = Some(number);
        at = end;
    }
    at
}

/// The sequence number of the batch that begins at `at`.
fn sequence(data: &[u8], at: usize) -> u64 {
    data.get(at + 5..at + 13)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

/// Where the batch that begins at `at` ends; `None` if there is no valid one.
fn batch_end(data: &[u8], at: usize) -> Option<usize> {
    let start = data.get(at..)?;
    if *start.first()? != START {
        return None;
    }
    let count = u32::from_le_bytes(start.get(1..5)?.try_into().ok()?);
    let items = at + 13;
    let mut pos = items;
    for _ in 0..count {
        let e = data.get(pos..)?;
        pos += match *e.first()? {
            ITEM => item_len(data, pos)?,
            CLEAR => 9,
            _ => return None,
        };
    }
    let end = data.get(pos..pos + 13)?;
    let checksum = u64::from_le_bytes(end.get(1..9)?.try_into().ok()?);
    let whole = *end.first()? == END
        && end.get(9..13)? == TRAILER
        && xxh3_64(data.get(items..pos)?) == checksum;
    whole.then_some(pos + 13)
}

/// The first valid batch that begins behind `at`.
fn next_batch(data: &[u8], at: usize) -> Option<usize> {
    (at + 1..data.len()).find(|&p| data.get(p) == Some(&START) && batch_end(data, p).is_some())
}

/// True if a page between `from` and `to` ends with zeros: it is as it was before the writes
/// that filled it, or was never written.
fn lost_page(data: &[u8], from: usize, to: usize) -> bool {
    (from / PAGE..to / PAGE).any(|page| {
        let end = (page + 1) * PAGE;
        data.get(end - UNWRITTEN..end)
            .is_some_and(|tail| tail.iter().all(|b| *b == 0))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::engine::{Engine, Space};
    use muniment_value::Code;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    /// A database with ten batches in its journal; returns where each ends.
    fn write(dir: &Path) -> Vec<usize> {
        let engine = Arc::new(Engine::open(dir, 1 << 20).unwrap());
        for i in 0..10u8 {
            let mut batch = engine.batch(2);
            batch.put(Space::Docs, vec![0, 0, 0, 1, i], vec![i + 1; 100]);
            batch.put(Space::Index, vec![0, 0, 0, 2, i], vec![]);
            batch.delete(Space::Meta, vec![i]);
            batch.commit().unwrap();
        }
        drop(engine);
        let data = read(&dir.join("0.jnl")).unwrap();
        let mut ends = Vec::new();
        let mut at = 0;
        while let Some(end) = batch_end(&data, at) {
            ends.push(end);
            at = end;
        }
        assert_eq!(ends.len(), 10);
        ends
    }

    fn count(dir: &Path) -> usize {
        let engine = Arc::new(Engine::open(dir, 1 << 20).unwrap());
        (0..10u8)
            .filter(|i| {
                let found = engine.newest(Space::Docs, &[0, 0, 0, 1, *i]).unwrap();
                let index = engine.newest(Space::Index, &[0, 0, 0, 2, *i]).unwrap();
                assert_eq!(found.is_some(), index.is_some(), "half of a batch");
                found.is_some()
            })
            .count()
    }

    fn flip(path: &Path, at: usize) {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let mut b = [0];
        file.read_exact_at(&mut b, at as u64).unwrap();
        file.write_all_at(&[b[0] ^ 8], at as u64).unwrap();
    }

    #[test]
    fn a_clean_journal_passes_untouched() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path());
        let len = dir.path().join("0.jnl").metadata().unwrap().len();
        check(dir.path(), false).unwrap();
        assert_eq!(dir.path().join("0.jnl").metadata().unwrap().len(), len);
        assert_eq!(count(dir.path()), 10);
        check(dir.path(), false).unwrap();
        assert_eq!(count(dir.path()), 10);
    }

    #[test]
    fn every_damage_of_the_last_batch_is_cut_off() {
        let whole = tempfile::tempdir().unwrap();
        let ends = write(whole.path());
        let copy = whole.path().join("0.jnl");
        let original = read(&copy).unwrap();
        for at in ends[8]..ends[9] {
            std::fs::write(&copy, &original).unwrap();
            if at % 2 == 0 {
                flip(&copy, at);
            } else {
                let file = OpenOptions::new().write(true).open(&copy).unwrap();
                file.set_len(at as u64).unwrap();
            }
            check(whole.path(), false).unwrap();
            let data = read(&copy).unwrap();
            // A sequence number that was flipped upwards passes in the last batch, where it
            // changes nothing.
            let valid = valid_prefix(&data, &mut None);
            assert!(valid == ends[8] || valid == ends[9], "at {at}: {valid}");
        }
        assert_eq!(count(whole.path()), 9);
    }

    #[test]
    fn damage_in_the_middle_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let ends = write(dir.path());
        let path = dir.path().join("0.jnl");
        flip(&path, ends[4] + 60);
        let e = check(dir.path(), false).unwrap_err();
        assert_eq!(e.code(), Code::DataCorruptionDetected);
        assert!(e.message().contains("0.jnl"), "{e}");
        assert!(e.message().contains(&format!("offset {}", ends[4])), "{e}");
        check(dir.path(), true).unwrap();
        assert_eq!(count(dir.path()), 5);
    }

    #[test]
    fn a_keyspace_that_fjall_would_delete_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path());
        let data = read(&dir.path().join("0.jnl")).unwrap();
        let written = keyspaces(&data, valid_prefix(&data, &mut None));
        assert!(written.len() >= 3, "{written:?}");
        for id in written {
            let current = dir.path().join(format!("keyspaces/{id}/current"));
            let aside = dir.path().join("aside");
            std::fs::rename(&current, &aside).unwrap();
            let e = check(dir.path(), false).unwrap_err();
            assert!(
                e.message().contains(&format!("keyspaces/{id}/current")),
                "{e}"
            );
            std::fs::rename(&aside, &current).unwrap();
        }
        check(dir.path(), false).unwrap();
        assert_eq!(count(dir.path()), 10);
    }

    #[test]
    fn every_flip_in_the_middle_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let ends = write(dir.path());
        let path = dir.path().join("0.jnl");
        for byte in ends[4]..ends[5] {
            flip(&path, byte);
            let e = check(dir.path(), false).unwrap_err();
            // If a sequence number went up, what shows is the next one.
            let named = [ends[4], ends[5]]
                .iter()
                .any(|at| e.message().contains(&format!("offset {at}")));
            assert!(named, "byte {byte}: {e}");
            flip(&path, byte);
        }
        check(dir.path(), false).unwrap();
        assert_eq!(count(dir.path()), 10);
    }

    #[test]
    fn a_lost_page_is_a_torn_tail() {
        let dir = tempfile::tempdir().unwrap();
        {
            let engine = Arc::new(Engine::open(dir.path(), 1 << 20).unwrap());
            for i in 0..10u8 {
                let mut batch = engine.batch(2);
                batch.put(Space::Docs, vec![0, 0, 0, 1, i], vec![i + 1; 3000]);
                batch.put(Space::Index, vec![0, 0, 0, 2, i], vec![]);
                batch.commit().unwrap();
            }
        }
        let path = dir.path().join("0.jnl");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        // The end of the second page is as it was before the second batch.
        let original = read(&path).unwrap();
        file.write_all_at(&[0; 500], 2 * PAGE as u64 - 500).unwrap();
        check(dir.path(), false).unwrap();
        assert_eq!(
            valid_prefix(&read(&path).unwrap(), &mut None),
            batch_end(&original, 0).map_or(0, |e| { batch_end(&original, e).unwrap() })
        );
        // A page that never came.
        file.write_all_at(&original, 0).unwrap();
        file.write_all_at(&[0; PAGE], 2 * PAGE as u64).unwrap();
        drop(file);
        check(dir.path(), false).unwrap();
        assert_eq!(count(dir.path()), 2);
    }
}
