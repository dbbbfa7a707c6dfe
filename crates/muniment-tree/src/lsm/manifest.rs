//! The manifest: the list of the tables, and the persisted cut.
//!
//! It is small (some 30 bytes per table), so every change writes a whole new one, syncs it and renames it
//! into place. In a log of changes, a bad end could be a torn write or damage; here everything that is not
//! exactly what was written is damage.
//!
//! | offset | |
//! |---|---|
//! | 0 | magic (8 bytes) |
//! | 8 | format version (u32) |
//! | 12 | CRC-32C of everything else (u32) |
//! | 16 | the body |
//!
//! The body is in varints: the manifest's number, the cut, the next table's number and the number of fresh
//! runs; then for each table its run (first the fresh runs, newest first, then the levels), its number and
//! its bytes, and its footer's checksum (u32). From version 2 on, each table also has a length and a key
//! below which it has no keys any more (length 0: it is whole).
//!
//! Version 1 is written while all tables are whole, so that older versions of Muniment can read it.

use super::error::{damaged, io};
use super::state::DEPTH;
use super::table::{put_varint, varint, varint_len};
use muniment_io::{Disk, Open, Timestamp};
use muniment_value::{Code, Error, Result};
use std::path::{Path, PathBuf};

/// The manifest's name.
pub(crate) const NAME: &str = "MANIFEST";
/// Its name while it is being written.
pub(crate) const NEW: &str = "MANIFEST.new";

const MAGIC: [u8; 8] = *b"MUNTREES";
/// The newest format that this code writes. It reads older ones, too.
const VERSION: u32 = 2;
/// The format for manifests that have only whole tables.
const WHOLE: u32 = 1;
const HEAD: usize = 16;

/// The content of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Each manifest has a higher number than the one before.
    pub(crate) number: u64,
    pub(crate) cut: Timestamp,
    /// No table has this number or a higher one.
    pub(crate) next_table: u64,
    pub(crate) fresh: usize,
    pub(crate) tables: Vec<Named>,
}

/// A table in the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The table's run among all runs, newest first.
    pub(crate) run: usize,
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) crc: u32,
    /// The key below which the table has no keys any more; empty if it is whole.
    pub(crate) low: Vec<u8>,
}

/// The path of a table's file.
pub(crate) fn table_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:012}.table"))
}

/// The number of the table with this file name; `None` for other files.
pub(crate) fn table_id(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".table")?;
    let plain = digits.len() >= 12 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 32 * self.tables.len());
        out.extend_from_slice(&MAGIC);
        let version = match self.tables.iter().all(|t| t.low.is_empty()) {
            true => WHOLE,
            false => VERSION,
        };
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for n in [
            self.number,
            self.cut.0,
            self.next_table,
            self.fresh as u64,
            self.tables.len() as u64,
        ] {
            put_varint(&mut out, n);
        }
        for t in &self.tables {
            for n in [t.run as u64, t.id, t.size] {
                put_varint(&mut out, n);
            }
            out.extend_from_slice(&t.crc.to_le_bytes());
            if version > WHOLE {
                put_varint(&mut out, t.low.len() as u64);
                out.extend_from_slice(&t.low);
            }
        }
        let crc = checksum(&out);
        out[12..HEAD].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a manifest. `path` is only for messages.
    ///
    /// # Errors
    /// 301 if it is not exactly what was written; 158 MustUpgrade for a newer format.
    pub(crate) fn decode(path: &Path, data: &[u8]) -> Result<Manifest> {
        let bad = |offset: usize, what: &str| damaged(path, offset as u64, what);
        let Some(head) = data.first_chunk::<HEAD>() else {
            return Err(bad(data.len(), "it is too short for a manifest"));
        };
        if head[..8] != MAGIC {
            return Err(bad(0, "it is no manifest"));
        }
        if checksum(data).to_le_bytes() != head[12..] {
            return Err(bad(12, "the checksum is wrong"));
        }
        let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if !(WHOLE..=VERSION).contains(&version) {
            return Err(Error::new(
                Code::MustUpgrade,
                format!(
                    "{} has format {version}; this version of Muniment reads {VERSION}. It was \
                     written by a newer version",
                    path.display()
                ),
            ));
        }
        let mut at = HEAD;
        Self::body(data, &mut at, version).ok_or_else(|| bad(at, "it is malformed"))
    }

    fn body(data: &[u8], at: &mut usize, version: u32) -> Option<Manifest> {
        let mut m = Manifest {
            number: varint(data, at)?,
            cut: Timestamp(varint(data, at)?),
            next_table: varint(data, at)?,
            fresh: usize::try_from(varint(data, at)?).ok()?,
            tables: Vec::new(),
        };
        let count = varint(data, at)?;
        for _ in 0..count {
            let run = usize::try_from(varint(data, at)?).ok()?;
            let (id, size) = (varint(data, at)?, varint(data, at)?);
            let crc = u32::from_le_bytes(*data.get(*at..)?.first_chunk::<4>()?);
            *at += 4;
            let mut low = Vec::new();
            if version > WHOLE {
                let n = varint_len(data, at)?;
                low = data.get(*at..at.checked_add(n)?)?.to_vec();
                *at += n;
            }
            if run >= m.fresh.checked_add(DEPTH)? || id >= m.next_table {
                return None;
            }
            m.tables.push(Named {
                run,
                id,
                size,
                crc,
                low,
            });
        }
        // Every fresh run has at least one table.
        (*at == data.len() && m.fresh <= m.tables.len()).then_some(m)
    }

    /// A manifest's bytes with an arbitrary body, for fuzzing.
    pub(crate) fn around(body: &[u8]) -> Vec<u8> {
        let mut out = [&MAGIC[..], &VERSION.to_le_bytes(), &[0; 4], body].concat();
        let crc = checksum(&out);
        out[12..HEAD].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The manifest of a directory; `None` if it has none.
    ///
    /// # Errors
    /// As [`Manifest::decode`]; I/O errors.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path, names: &[String]) -> Result<Option<Manifest>> {
        let path = dir.join(NAME);
        if !names.iter().any(|n| n == NAME) {
            return match names.iter().find(|n| table_id(n).is_some()) {
                None => Ok(None),
                Some(table) => Err(Error::new(
                    Code::DataCorruptionDetected,
                    format!("{} is missing, but {table} is there", path.display()),
                )),
            };
        }
        let read = || {
            let file = disk.open(&path, Open::Read)?;
            let mut data = vec![0; usize::try_from(file.len()?).unwrap_or(usize::MAX)];
            file.read_exact_at(&mut data, 0)?;
            Ok(data)
        };
        let data = read().map_err(|e| io("reading", &path, &e))?;
        Manifest::decode(&path, &data).map(Some)
    }
}

fn checksum(data: &[u8]) -> u32 {
    let (head, rest) = data.split_at(HEAD.min(data.len()));
    crc32c::crc32c_append(crc32c::crc32c(head.get(..12).unwrap_or(head)), rest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn some() -> Manifest {
        let table = |run, id| Named {
            run,
            id,
            size: 77_000,
            crc: 0xdead_beef,
            low: Vec::new(),
        };
        Manifest {
            number: 9,
            cut: Timestamp::new(1_700_000_000, 7),
            next_table: 400,
            fresh: 2,
            tables: vec![table(0, 300), table(1, 200), table(1, 201), table(7, 5)],
        }
    }

    #[test]
    fn reads_what_it_wrote_and_nothing_else() {
        reads(some(), WHOLE);
        let mut cut = some();
        cut.tables[2].low = b"\0\0\0\x07key".to_vec();
        reads(cut, VERSION);
    }

    fn reads(manifest: Manifest, version: u32) {
        let path = Path::new("MANIFEST");
        let bytes = manifest.encode();
        assert_eq!(bytes[8..12], version.to_le_bytes());
        assert_eq!(Manifest::decode(path, &bytes).unwrap(), manifest);
        for i in 0..bytes.len() {
            let e = Manifest::decode(path, &bytes[..i]).unwrap_err();
            assert_eq!(e.code(), Code::DataCorruptionDetected);
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[i] ^= 1 << bit;
                let e = Manifest::decode(path, &other).unwrap_err();
                assert_eq!(e.code(), Code::DataCorruptionDetected, "{i}.{bit}");
            }
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Manifest::decode(path, &longer).is_err());
        let mut newer = bytes;
        newer[8] = VERSION as u8 + 1;
        let crc = checksum(&newer);
        newer[12..16].copy_from_slice(&crc.to_le_bytes());
        let e = Manifest::decode(path, &newer).unwrap_err();
        assert_eq!(e.code(), Code::MustUpgrade);
    }

    #[test]
    fn names_of_tables() {
        for id in [0, 7, u64::from(u32::MAX), u64::MAX] {
            let path = table_path(Path::new("d"), id);
            assert_eq!(
                table_id(path.file_name().unwrap().to_str().unwrap()),
                Some(id)
            );
        }
        for name in [
            "MANIFEST",
            "1.table",
            "00000000001x.table",
            "000000000001.tmp",
        ] {
            assert_eq!(table_id(name), None);
        }
    }
}
