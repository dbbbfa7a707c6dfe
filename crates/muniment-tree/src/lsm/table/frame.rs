//! The frame of a block in a file: a header, then the block, which is compressed if that pays.
//!
//! | offset | |
//! |---|---|
//! | 0 | kind ([`Kind`]) |
//! | 1 | compression: 0 none, 1 LZ4 block format |
//! | 2 | two bytes of zero |
//! | 4 | u32: bytes stored after the header |
//! | 8 | u32: bytes of the block itself |
//! | 12 | u32: CRC-32C (see below) |
//!
//! The checksum covers the table's number (u64), the offset in the file (u64), the first 12 bytes of the
//! header, and the stored bytes.

use super::super::error::{damaged, io};
use bytes::Bytes;
use muniment_io::File;
use muniment_value::{Error, Result};
use std::path::Path;

/// Bytes of the header.
pub(crate) const HEADER: usize = 16;

/// The largest block. A length beyond it is damage, and no memory is allocated for it.
pub(crate) const MAX_BLOCK: usize = 1 << 30;

/// LZ4 cannot expand a block to more than this many times its stored length.
const MAX_EXPANSION: usize = 255;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Data = 1,
    Index = 2,
    Filter = 3,
    Top = 4,
    Properties = 5,
}

impl Kind {
    fn from(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Data,
            2 => Kind::Index,
            3 => Kind::Filter,
            4 => Kind::Top,
            5 => Kind::Properties,
            _ => return None,
        })
    }
}

/// The place of a block: the offset of its header, and its bytes including the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) offset: u64,
    pub(crate) size: u32,
}

impl Handle {
    /// The offset after the block. It saturates, since a damaged handle may have any numbers.
    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(self.size.into())
    }
}

/// A header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    compressed: bool,
    stored: usize,
    raw: usize,
    crc: u32,
}

impl Header {
    /// Reads a header. `Err` has the reason why it is invalid.
    pub(crate) fn read(bytes: &[u8]) -> Result<Header, &'static str> {
        let Some(h) = bytes.first_chunk::<HEADER>() else {
            return Err("the file ends within a block's header");
        };
        let word = |at: usize| {
            let mut b = [0; 4];
            b.copy_from_slice(&h[at..at + 4]);
            u32::from_le_bytes(b)
        };
        let header = Header {
            kind: Kind::from(h[0]).ok_or("no block begins here")?,
            compressed: h[1] == 1,
            stored: word(4) as usize,
            raw: word(8) as usize,
            crc: word(12),
        };
        if h[1] > 1 || h[2] != 0 || h[3] != 0 {
            return Err("a block's header is wrong");
        }
        let expected = match header.compressed {
            true => header.raw <= header.stored.saturating_mul(MAX_EXPANSION),
            false => header.raw == header.stored,
        };
        if !expected || header.raw > MAX_BLOCK || header.stored > MAX_BLOCK {
            return Err("a block's lengths are wrong");
        }
        Ok(header)
    }

    /// The bytes that the block takes in the file, header included.
    pub(crate) fn size(&self) -> usize {
        HEADER + self.stored
    }
}

fn checksum(table: u64, offset: u64, header: &[u8], stored: &[u8]) -> u32 {
    let mut seed = [0; 28];
    seed[..8].copy_from_slice(&table.to_le_bytes());
    seed[8..16].copy_from_slice(&offset.to_le_bytes());
    seed[16..].copy_from_slice(&header[..12]);
    crc32c::crc32c_append(crc32c::crc32c(&seed), stored)
}

/// Writes blocks into their frames.
#[derive(Default)]
pub(crate) struct Framer {
    scratch: Vec<u8>,
    table: Option<lz4_flex::block::CompressTable>,
}

impl Framer {
    /// Appends `raw` to `out` as a block of table `table`. The first byte of `out` has the offset `base` in
    /// the file.
    ///
    /// # Errors
    /// If the block is too large.
    pub(crate) fn write(
        &mut self,
        out: &mut Vec<u8>,
        base: u64,
        table: u64,
        kind: Kind,
        raw: &[u8],
        compress: bool,
    ) -> Result<Handle> {
        if raw.len() > MAX_BLOCK {
            return Err(Error::internal(format!(
                "{} bytes are too many for a block",
                raw.len()
            )));
        }
        let offset = base + out.len() as u64;
        let mut stored = raw;
        if compress {
            let most = lz4_flex::block::get_maximum_output_size(raw.len());
            if self.scratch.len() < most {
                self.scratch.resize(most, 0);
            }
            let state = self
                .table
                .get_or_insert_with(lz4_flex::block::CompressTable::default);
            let packed = lz4_flex::block::compress_into_with_table(raw, &mut self.scratch, state);
            // A block that does not shrink by an eighth is stored as it is: decompressing it would not pay.
            if let Ok(n) = packed
                && n < raw.len() - raw.len() / 8
            {
                stored = self.scratch.get(..n).unwrap_or(raw);
            }
        }
        let mut header = [0; HEADER];
        header[0] = kind as u8;
        header[1] = u8::from(stored.len() != raw.len());
        header[4..8].copy_from_slice(&(stored.len() as u32).to_le_bytes());
        header[8..12].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        let crc = checksum(table, offset, &header, stored);
        header[12..].copy_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(stored);
        let size = (HEADER + stored.len()) as u32;
        if self.scratch.len() > 1 << 20 {
            self.scratch = Vec::new();
        }
        Ok(Handle { offset, size })
    }
}

/// Takes a block out of its frame. `Err` has the reason why it is invalid.
pub(crate) fn unframe(
    framed: Bytes,
    table: u64,
    offset: u64,
    kind: Kind,
) -> Result<Bytes, &'static str> {
    let header = Header::read(&framed)?;
    if header.size() != framed.len() {
        return Err("a block's length is not what its index says");
    }
    let stored = framed.slice(HEADER..);
    if checksum(table, offset, &framed, &stored) != header.crc {
        return Err("a block's checksum is wrong");
    }
    if header.kind != kind {
        return Err("a block is not of the kind that belongs here");
    }
    if !header.compressed {
        return Ok(stored);
    }
    let mut raw = vec![0; header.raw];
    match lz4_flex::block::decompress_into(&stored, &mut raw) {
        Ok(n) if n == header.raw => Ok(Bytes::from(raw)),
        _ => Err("a block cannot be unpacked"),
    }
}

/// Reads a block. `len` is the file's length.
///
/// # Errors
/// 301 DataCorruptionDetected with file and offset; I/O errors.
pub(crate) fn read(
    file: &dyn File,
    path: &Path,
    len: u64,
    table: u64,
    handle: Handle,
    kind: Kind,
) -> Result<Bytes> {
    let size = u64::from(handle.size);
    if size < HEADER as u64 || handle.offset.checked_add(size).is_none_or(|end| end > len) {
        return Err(damaged(
            path,
            handle.offset,
            "an index points outside the file",
        ));
    }
    let mut framed = vec![0; handle.size as usize];
    file.read_exact_at(&mut framed, handle.offset)
        .map_err(|e| io(&format!("reading at offset {} of", handle.offset), path, &e))?;
    unframe(Bytes::from(framed), table, handle.offset, kind)
        .map_err(|what| damaged(path, handle.offset, what))
}
