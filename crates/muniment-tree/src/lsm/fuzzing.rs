//! The functions that the fuzz targets call, with arbitrary bytes in place of files.

use super::cache::BlockCache;
use super::manifest::Manifest;
use super::table::block::{Backward, Block, BlockBuilder};
use super::table::footer::Footer;
use super::table::frame::{Framer, Handle, Kind};
use super::table::{Scan, Table, TableIter, filter, put_varint};
use super::trash::Trash;
use crate::trees::Direction;
use bytes::Bytes;
use muniment_io::{Disk, Open, SimDisk, Timestamp};
use muniment_op::NeverInterrupted;
use muniment_value::{Code, Result};
use std::path::Path;
use std::sync::Arc;

/// Reads these bytes as a manifest, and as the body of a manifest. Each is read or refused; and a manifest
/// that was read is the same after writing and reading it again.
pub fn manifest(data: &[u8]) {
    let path = Path::new("MANIFEST");
    for bytes in [data.to_vec(), Manifest::around(data)] {
        match Manifest::decode(path, &bytes) {
            Ok(m) => assert_eq!(Manifest::decode(path, &m.encode()).ok(), Some(m)),
            Err(e) => assert!(
                [Code::DataCorruptionDetected, Code::MustUpgrade].contains(&e.code()),
                "{e}"
            ),
        }
    }
}

/// Reads a table whose blocks have these bytes, with valid checksums. Whatever the bytes are, reading ends,
/// with rows or with error 301.
///
/// The first byte tells which blocks are taken from the input (the others are made to fit); each of these has
/// its length (u16) before it.
pub fn table(data: &[u8]) {
    // A block by itself, as a reader meets it that follows a wrong handle.
    if let Some(block) = Block::new(Bytes::copy_from_slice(data)) {
        let _ = block.find(b"\0\0\0\x01key", 5);
        let _ = block.partition(|k| k < &b"\0\0\0\x01key"[..]);
        let mut back = Backward::default();
        if back.go_to(&block, b"\0\0\0\x01key", true).is_some() {
            while let Some(Some(_)) = back.peek(&block) {
                back.pop();
            }
        }
    }
    let Some(parts) = Parts::of(data) else {
        return;
    };
    let Ok(Some(table)) = parts.open() else {
        return;
    };
    let table = Arc::new(table);
    let ends = |result: Result<()>| {
        if let Err(e) = result {
            assert_eq!(e.code(), Code::DataCorruptionDetected, "{e}");
        }
    };
    for key in [&b"\0\0\0\x01key"[..], table.first(), table.last(), b""] {
        for at in [Timestamp::ZERO, Timestamp(5), Timestamp::MAX] {
            ends(table.get(key, filter::hash(key), at).map(|_| ()));
            for dir in [Direction::Forward, Direction::Backward] {
                ends(walk(&table, key, at, dir));
            }
        }
        ends(table.offset_of(key).map(|_| ()));
    }
    let mut scan = Scan::new(&table);
    ends((|| {
        while scan.step()? {
            let _ = (scan.key(), scan.at(), scan.value());
        }
        Ok(())
    })());
    let _ = table.check(None, &NeverInterrupted, &mut Vec::new());
}

/// Walks from a key to the end. A damaged index may lead in circles, so the number of steps is bounded.
fn walk(table: &Table, key: &[u8], at: Timestamp, dir: Direction) -> Result<()> {
    let mut iter = TableIter::new(at, dir);
    iter.seek(table, &NeverInterrupted, key, false)?;
    for _ in 0..10_000 {
        if !iter.valid() {
            break;
        }
        let _ = (iter.key().len(), iter.value());
        iter.step(table, &NeverInterrupted)?;
    }
    iter.skip_to(table, &NeverInterrupted, b"\0\0\0\x02")?;
    iter.rewind(table, &NeverInterrupted)
}

/// The blocks of a table; for `None` a fitting one is made.
#[derive(Default)]
struct Parts<'a> {
    data: &'a [u8],
    filter: Option<&'a [u8]>,
    index: Option<&'a [u8]>,
    top: Option<&'a [u8]>,
    properties: Option<&'a [u8]>,
}

impl<'a> Parts<'a> {
    fn of(input: &'a [u8]) -> Option<Parts<'a>> {
        let (which, mut rest) = input.split_first()?;
        let mut next = || {
            let (len, more) = rest.split_first_chunk::<2>()?;
            let part = more.get(..usize::from(u16::from_le_bytes(*len)).min(more.len()))?;
            rest = more.get(part.len()..)?;
            Some(part)
        };
        let data = next()?;
        let mut take = |bit: u8| match which & bit {
            0 => None,
            _ => next(),
        };
        Some(Parts {
            data,
            filter: take(1),
            index: take(2),
            top: take(4),
            properties: take(8),
        })
    }

    fn open(&self) -> Result<Option<Table>> {
        let mut framer = Framer::default();
        let mut file = Vec::new();
        let mut write = |file: &mut Vec<u8>, kind, raw: &[u8]| {
            let compress = raw.first().is_some_and(|b| b & 1 == 1);
            framer.write(file, 0, 1, kind, raw, compress)
        };
        let index_of = |handles: &[Handle]| {
            let mut value = Vec::new();
            for handle in handles {
                put_varint(&mut value, handle.offset);
                put_varint(&mut value, handle.size.into());
            }
            let mut builder = BlockBuilder::index();
            builder.add(&[0xff; 9], 0, Some(&value));
            builder.finish().to_vec()
        };
        let data = write(&mut file, Kind::Data, self.data)?;
        let filter = write(&mut file, Kind::Filter, self.filter.unwrap_or(&[0xff; 32]))?;
        let made = index_of(&[data]);
        let index = write(&mut file, Kind::Index, self.index.unwrap_or(&made))?;
        let made = index_of(&[filter, index]);
        let top = write(&mut file, Kind::Top, self.top.unwrap_or(&made))?;
        let made = super::table::footer::Properties {
            first: b"\0\0\0\x01".to_vec(),
            last: vec![0xff; 9],
            newest: Timestamp::MAX,
            trees: vec![(crate::TreeId(1), super::table::footer::Counts::one())],
            ..Default::default()
        }
        .write();
        let raw = self.properties.unwrap_or(&made);
        let properties = write(&mut file, Kind::Properties, raw)?;
        let footer = Footer {
            top,
            properties,
            table: 1,
        }
        .write();
        file.extend_from_slice(&footer);
        let disk = SimDisk::memory();
        let path = Path::new("/1.table");
        let written = disk
            .open(path, Open::Create)
            .and_then(|f| f.write_at(&file, 0));
        if written.is_err() {
            return Ok(None);
        }
        let expected = (file.len() as u64, Footer::crc(&footer));
        let cache = Arc::new(BlockCache::new(1 << 20, 4096));
        let trash = Trash::new(Arc::new(disk.clone()), Arc::default());
        Table::open(&disk, path.to_path_buf(), 1, expected, cache, trash).map(Some)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// A data block in the form that the fuzz target takes.
    fn seed() -> Vec<u8> {
        let mut builder = BlockBuilder::data();
        for i in 0..60u8 {
            let key = [b"\0\0\0\x01key", &[i / 2][..]].concat();
            builder.add(&key, 90 - u64::from(i), (i % 5 > 0).then_some(b"value"));
        }
        let raw = builder.finish();
        [&[0][..], &(raw.len() as u16).to_le_bytes(), raw].concat()
    }

    fn corpus(target: &str, run: fn(&[u8])) {
        let dir = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
        let files: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
        assert!(!files.is_empty());
        for file in files {
            run(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }

    #[test]
    fn the_corpora_run() {
        corpus("lsm_table", table);
        corpus("lsm_manifest", manifest);
    }

    #[test]
    fn changed_tables_are_read_or_refused() {
        let good = seed();
        let parts = Parts::of(&good).unwrap();
        let opened = parts.open().unwrap().unwrap();
        let key = b"\0\0\0\x01key\x06";
        let found = opened.get(key, filter::hash(key), Timestamp(80)).unwrap();
        assert_eq!(found, Some(Some(Bytes::from_static(b"value"))));
        for i in 0..good.len() {
            for change in [1, 0x55, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[i] ^= change;
                table(&bytes);
                manifest(&bytes);
            }
        }
    }
}
