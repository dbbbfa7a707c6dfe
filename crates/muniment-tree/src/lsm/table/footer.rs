//! The footer and the properties of a table.

use super::frame::Handle;
use super::{put_varint, varint, varint_len};
use crate::TreeId;
use muniment_io::Timestamp;

/// Bytes of the footer.
pub(crate) const LEN: usize = 64;

/// The format that this code writes, and the only one that it reads.
pub(crate) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"MUNTABLE";

/// The footer, which is the end of a table's file.
///
/// | offset | |
/// |---|---|
/// | 0 | top index: offset (u64), size (u32) |
/// | 12 | properties: offset (u64), size (u32) |
/// | 24 | the table's number (u64) |
/// | 32 | zeros |
/// | 48 | format version (u32) |
/// | 52 | CRC-32C of bytes 0 to 52 (u32) |
/// | 56 | magic |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) top: Handle,
    pub(crate) properties: Handle,
    pub(crate) table: u64,
}

impl Footer {
    pub(crate) fn write(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[..8].copy_from_slice(&self.top.offset.to_le_bytes());
        out[8..12].copy_from_slice(&self.top.size.to_le_bytes());
        out[12..20].copy_from_slice(&self.properties.offset.to_le_bytes());
        out[20..24].copy_from_slice(&self.properties.size.to_le_bytes());
        out[24..32].copy_from_slice(&self.table.to_le_bytes());
        out[48..52].copy_from_slice(&VERSION.to_le_bytes());
        let crc = crc32c::crc32c(&out[..52]);
        out[52..56].copy_from_slice(&crc.to_le_bytes());
        out[56..].copy_from_slice(&MAGIC);
        out
    }

    /// Reads a footer. `Err` has the reason why it is invalid.
    pub(crate) fn read(bytes: &[u8; LEN]) -> Result<Footer, String> {
        let word = |at: usize| {
            let mut b = [0; 4];
            b.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(b)
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if bytes[56..] != MAGIC {
            return Err("the end of a table is not here".into());
        }
        if crc32c::crc32c(&bytes[..52]) != word(52) {
            return Err("the footer's checksum is wrong".into());
        }
        if word(48) != VERSION {
            return Err(format!(
                "it has table format {}, this version of Muniment reads {VERSION}",
                word(48)
            ));
        }
        let handle = |at| Handle {
            offset: long(at),
            size: word(at + 8),
        };
        Ok(Footer {
            top: handle(0),
            properties: handle(12),
            table: long(24),
        })
    }

    /// The footer's checksum, which tells this table's content from that of another one.
    pub(crate) fn crc(bytes: &[u8; LEN]) -> u32 {
        crc32c::crc32c(bytes)
    }
}

/// How much a table has of one tree, or of all trees together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The bytes in the file, approximately.
    pub(crate) bytes: u64,
    /// The number of versions.
    pub(crate) entries: u64,
    /// How many of these are deletions.
    pub(crate) tombstones: u64,
    /// How many of these have a newer version in the same table.
    pub(crate) superseded: u64,
}

/// What is known of a table without reading its blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
    pub(crate) oldest: Timestamp,
    pub(crate) newest: Timestamp,
    /// The newest version that supersedes one in the table; zero if none does.
    pub(crate) superseder: Timestamp,
    /// The newest deletion; zero if there is none.
    pub(crate) deletion: Timestamp,
    pub(crate) total: Counts,
    /// The counts of each tree, ascending.
    pub(crate) trees: Vec<(TreeId, Counts)>,
}

impl Properties {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for key in [&self.first, &self.last] {
            put_varint(&mut out, key.len() as u64);
            out.extend_from_slice(key);
        }
        for at in [self.oldest, self.newest, self.superseder, self.deletion] {
            put_varint(&mut out, at.0);
        }
        put_varint(&mut out, self.trees.len() as u64);
        for (tree, counts) in &self.trees {
            put_varint(&mut out, tree.0.into());
            for n in [
                counts.bytes,
                counts.entries,
                counts.tombstones,
                counts.superseded,
            ] {
                put_varint(&mut out, n);
            }
        }
        out
    }

    /// Reads properties; `None` if they are malformed.
    pub(crate) fn read(data: &[u8]) -> Option<Properties> {
        let at = &mut 0;
        let mut key = || {
            let n = varint_len(data, at)?;
            let key = data.get(*at..at.checked_add(n)?)?.to_vec();
            *at += n;
            Some(key)
        };
        let (first, last) = (key()?, key()?);
        let mut p = Properties {
            first,
            last,
            oldest: Timestamp(varint(data, at)?),
            newest: Timestamp(varint(data, at)?),
            superseder: Timestamp(varint(data, at)?),
            deletion: Timestamp(varint(data, at)?),
            ..Properties::default()
        };
        for _ in 0..varint(data, at)? {
            let tree = TreeId(u32::try_from(varint(data, at)?).ok()?);
            let counts = Counts {
                bytes: varint(data, at)?,
                entries: varint(data, at)?,
                tombstones: varint(data, at)?,
                superseded: varint(data, at)?,
            };
            p.total.add(&counts)?;
            if p.trees.last().is_some_and(|(t, _)| *t >= tree) {
                return None;
            }
            p.trees.push((tree, counts));
        }
        let sound = *at == data.len()
            && p.first <= p.last
            && p.first.len() >= super::TREE
            && p.oldest <= p.newest
            && p.total.entries > 0;
        sound.then_some(p)
    }

    /// Removes the keys before `low`, whose block begins at byte `start` of `end`. The rest of each tree is
    /// estimated from the remaining part of the file, and is never nothing.
    pub(crate) fn narrow(&mut self, low: &[u8], start: u64, end: u64) {
        if low <= &self.first[..] {
            return;
        }
        self.first = low.to_vec();
        let tree = super::tree_of(low);
        let gone = self.trees.partition_point(|(t, _)| *t < tree);
        let before: u64 = self.trees.drain(..gone).map(|(_, c)| c.bytes).sum();
        let all = before + self.trees.iter().map(|(_, c)| c.bytes).sum::<u64>();
        // In the unit of the counts, which is bytes before compression.
        let passed = (u128::from(all) * u128::from(start) / u128::from(end.max(1))) as u64;
        if let Some((t, counts)) = self.trees.first_mut()
            && *t == tree
        {
            counts.scale(passed.saturating_sub(before));
        }
        let mut total = Counts::default();
        for (_, counts) in &self.trees {
            // The parts cannot overflow, since the whole counts could be added.
            let _ = total.add(counts);
        }
        self.total = total;
    }

    /// The counts of a tree.
    pub(crate) fn tree(&self, tree: TreeId) -> Option<&Counts> {
        let i = self.trees.binary_search_by_key(&tree, |t| t.0).ok()?;
        self.trees.get(i).map(|t| &t.1)
    }
}

impl Counts {
    /// Removes this many bytes and a proportional part of the other counts. One entry always remains.
    fn scale(&mut self, gone: u64) {
        let (all, left) = (self.bytes.max(1), self.bytes.saturating_sub(gone).max(1));
        let part = |n: u64| (u128::from(n) * u128::from(left) / u128::from(all)) as u64;
        self.entries = part(self.entries).max(1);
        self.tombstones = part(self.tombstones).min(self.entries);
        self.superseded = part(self.superseded).min(self.entries);
        self.bytes = left;
    }

    /// The counts of a single version, for fuzzing.
    pub(crate) fn one() -> Counts {
        Counts {
            entries: 1,
            ..Counts::default()
        }
    }

    /// Adds other counts. Returns `None` if the sums are not valid.
    fn add(&mut self, other: &Counts) -> Option<()> {
        self.bytes = self.bytes.checked_add(other.bytes)?;
        self.entries = self.entries.checked_add(other.entries)?;
        self.tombstones = self.tombstones.checked_add(other.tombstones)?;
        self.superseded = self.superseded.checked_add(other.superseded)?;
        (self.tombstones <= self.entries && self.superseded <= self.entries).then_some(())
    }
}
