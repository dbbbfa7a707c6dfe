//! The content of a data or index block: entries whose keys leave out shared prefixes.
//!
//! First come the entries, then a u32 for each *restart* (the offset of an entry that has its whole key),
//! then the block's base timestamp (u64) and the number of restarts (u32). An entry is:
//!
//! | | |
//! |---|---|
//! | varint | bytes of its key that it shares with the entry before; 0 at a restart |
//! | varint | bytes of its key after these |
//! | varint | length of the value × 2; 1 for a deletion |
//! | varint | timestamp − base, zigzag (the base is the first entry's) |
//! | | the key's bytes, the value's |
//!
//! In an index block every entry is a restart, so that entries can be counted in both directions; its values
//! are handles.

use super::{put_varint, varint, varint_len};
use bytes::Bytes;
use std::ops::Range;

/// How many entries there are from one restart to the next.
const INTERVAL: usize = 16;

/// Keys longer than this are stored whole, since restoring them in a backward walk would take too much
/// memory.
const LONG_KEY: usize = 2048;

/// Builds a block.
pub(crate) struct BlockBuilder {
    out: Vec<u8>,
    restarts: Vec<u32>,
    /// How many entries follow until the next restart.
    left: usize,
    interval: usize,
    base: u64,
    key: Vec<u8>,
}

impl BlockBuilder {
    /// A builder for a data block.
    pub(crate) fn data() -> BlockBuilder {
        BlockBuilder {
            out: Vec::new(),
            restarts: Vec::new(),
            left: 0,
            interval: INTERVAL,
            base: 0,
            key: Vec::new(),
        }
    }

    /// A builder for an index block.
    pub(crate) fn index() -> BlockBuilder {
        BlockBuilder {
            interval: 1,
            ..BlockBuilder::data()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// The size of the block so far, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.out.len() + 4 * self.restarts.len() + 12
    }

    /// The last key added.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.key
    }

    /// Adds an entry after all others.
    pub(crate) fn add(&mut self, key: &[u8], at: u64, value: Option<&[u8]>) {
        if self.out.is_empty() {
            self.base = at;
        }
        let mut shared = 0;
        if self.left == 0 || key.len() > LONG_KEY {
            self.restarts.push(self.out.len() as u32);
            self.left = self.interval;
        } else {
            shared = common_prefix(&self.key, key);
        }
        self.left -= 1;
        put_varint(&mut self.out, shared as u64);
        put_varint(&mut self.out, (key.len() - shared) as u64);
        put_varint(&mut self.out, value.map_or(1, |v| (v.len() as u64) << 1));
        let delta = at.wrapping_sub(self.base) as i64;
        put_varint(&mut self.out, ((delta << 1) ^ (delta >> 63)) as u64);
        self.out.extend_from_slice(&key[shared..]);
        self.out.extend_from_slice(value.unwrap_or_default());
        self.key.truncate(shared);
        self.key.extend_from_slice(&key[shared..]);
    }

    /// The block's bytes, valid until the next [`BlockBuilder::clear`].
    pub(crate) fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.out.extend_from_slice(&restart.to_le_bytes());
        }
        self.out.extend_from_slice(&self.base.to_le_bytes());
        let n = self.restarts.len() as u32;
        self.out.extend_from_slice(&n.to_le_bytes());
        &self.out
    }

    /// Begins a new block.
    pub(crate) fn clear(&mut self) {
        if self.out.capacity() > 1 << 20 {
            self.out = Vec::new();
        }
        if self.key.capacity() > 1 << 20 {
            self.key = Vec::new();
        }
        self.out.clear();
        self.restarts.clear();
        self.key.clear();
        self.left = 0;
    }
}

/// How many bytes two keys share at their beginning.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut n = 0;
    for (x, y) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            return n + differ.trailing_zeros() as usize / 8;
        }
        n += 8;
    }
    n + a[n..]
        .iter()
        .zip(&b[n..])
        .take_while(|(x, y)| x == y)
        .count()
}

/// A block in memory.
#[derive(Clone)]
pub(crate) struct Block {
    data: Bytes,
    /// The offset at which the entries end and the restarts begin.
    end: usize,
    restarts: usize,
    base: u64,
}

/// An entry's place in its block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    /// How many bytes of the key are those of the entry before.
    pub(crate) shared: usize,
    pub(crate) at: u64,
    pub(crate) deleted: bool,
    suffix: usize,
    value: usize,
    /// Where the next entry begins.
    pub(crate) next: usize,
}

/// The text for a block whose content is invalid although its checksum is right.
pub(crate) const MALFORMED: &str = "an entry is malformed";

impl Block {
    /// A block of these bytes; `None` if they cannot be one.
    pub(crate) fn new(data: Bytes) -> Option<Block> {
        let (rest, n) = data.split_last_chunk::<4>()?;
        let (_, base) = rest.split_last_chunk::<8>()?;
        let restarts = u32::from_le_bytes(*n) as usize;
        let end = data
            .len()
            .checked_sub(restarts.checked_mul(4)?.checked_add(12)?)?;
        if restarts == 0 || end == 0 {
            return None;
        }
        let base = u64::from_le_bytes(*base);
        Some(Block {
            data,
            end,
            restarts,
            base,
        })
    }

    /// The block's size in memory, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.data.len()
    }

    /// The number of restarts; in an index, that of the entries.
    pub(crate) fn restarts(&self) -> usize {
        self.restarts
    }

    /// True if `offset` is the end of the entries.
    pub(crate) fn is_end(&self, offset: usize) -> bool {
        offset >= self.end
    }

    /// The offset of restart `i`; `None` beyond the last.
    pub(crate) fn restart(&self, i: usize) -> Option<usize> {
        if i >= self.restarts {
            return None;
        }
        let at = self.end + 4 * i;
        let bytes = self.data.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes) as usize)
    }

    /// The entry that begins at `offset`.
    #[inline]
    pub(crate) fn entry(&self, offset: usize) -> Option<Entry> {
        let data = self.data.get(..self.end)?;
        let mut at = offset;
        let shared = varint_len(data, &mut at)?;
        let rest = varint_len(data, &mut at)?;
        let length = varint_len(data, &mut at)?;
        let delta = varint(data, &mut at)?;
        let value = at.checked_add(rest)?;
        let next = value.checked_add(length >> 1)?;
        if next > self.end {
            return None;
        }
        let delta = (delta >> 1) ^ (delta & 1).wrapping_neg();
        Some(Entry {
            shared,
            at: self.base.wrapping_add(delta),
            deleted: length == 1,
            suffix: at,
            value,
            next,
        })
    }

    /// The bytes of an entry's key that are not shared with the entry before.
    #[inline]
    pub(crate) fn suffix(&self, entry: &Entry) -> &[u8] {
        self.data.get(entry.suffix..entry.value).unwrap_or_default()
    }

    /// An entry's value.
    #[inline]
    pub(crate) fn value(&self, entry: &Entry) -> Option<Bytes> {
        (!entry.deleted).then(|| self.data.slice(entry.value..entry.next))
    }

    /// An entry's value as bytes of the block.
    pub(crate) fn raw_value(&self, entry: &Entry) -> Option<&[u8]> {
        self.data
            .get(entry.value..entry.next)
            .filter(|_| !entry.deleted)
    }

    /// The whole key and the entry of a restart.
    pub(crate) fn whole(&self, restart: usize) -> Option<(&[u8], Entry)> {
        let entry = self.entry(self.restart(restart)?)?;
        (entry.shared == 0).then(|| (self.suffix(&entry), entry))
    }

    /// The first restart whose key `before` is false for; [`Block::restarts`] if it is true for all. `None`:
    /// the block is malformed.
    pub(crate) fn partition(&self, before: impl Fn(&[u8]) -> bool) -> Option<usize> {
        let (mut low, mut high) = (0, self.restarts);
        while low < high {
            let middle = low.midpoint(high);
            if before(self.whole(middle)?.0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    /// The offset to begin reading at, to come to the first entry whose key `before` is false for: a restart
    /// before that entry.
    pub(crate) fn start(&self, before: impl Fn(&[u8]) -> bool) -> Option<usize> {
        self.restart(self.partition(before)?.saturating_sub(1))
    }

    /// The newest version of `key` at or below `at`.
    pub(crate) fn find(&self, key: &[u8], at: u64) -> Option<Find> {
        let mut offset = self.start(|k| k < key)?;
        // How many bytes the previous entry's key shares with the sought key. An entry whose key shares more
        // than these with its predecessor is still below the sought key, as its predecessor was; an entry
        // whose key shares fewer is above it.
        let mut matched = 0;
        let mut here = false;
        while !self.is_end(offset) {
            let entry = self.entry(offset)?;
            offset = entry.next;
            let suffix = self.suffix(&entry);
            if here && entry.shared == key.len() && suffix.is_empty() {
                // This is another version of the key.
            } else if entry.shared < matched && entry.shared > 0 {
                return Some(Find::Absent);
            } else if !here && entry.shared > matched {
                continue;
            } else {
                // The next byte to compare is in this entry: it is a restart, or shares exactly what has
                // matched.
                let rest = key.get(entry.shared..)?;
                let common = common_prefix(suffix, rest);
                matched = entry.shared + common;
                if common == rest.len() && common == suffix.len() {
                    here = true;
                } else if here || suffix.get(common) > rest.get(common) {
                    return Some(Find::Absent);
                } else {
                    continue;
                }
            }
            if entry.at <= at {
                return Some(Find::Version(entry));
            }
        }
        Some(Find::Beyond)
    }
}

/// The outcome of [`Block::find`].
pub(crate) enum Find {
    Version(Entry),
    /// The table has no such version.
    Absent,
    /// This block does not have it, but the next one may.
    Beyond,
}

/// Walks a block backward. Keys are restored for one interval between restarts at a time.
#[derive(Default)]
pub(crate) struct Backward {
    /// The restart whose interval is restored; everything before it is not read yet.
    restart: usize,
    entries: Vec<(Range<usize>, Entry)>,
    keys: Vec<u8>,
}

impl Backward {
    /// Goes to the end of a block.
    pub(crate) fn go_to_end(&mut self, block: &Block) {
        self.entries.clear();
        self.restart = block.restarts();
    }

    /// Goes to the position after the last entry whose key is below `key`, or equal to it if `inclusive`.
    /// `None`: the block is malformed.
    pub(crate) fn go_to(&mut self, block: &Block, key: &[u8], inclusive: bool) -> Option<()> {
        let inside = |k: &[u8]| k < key || inclusive && k == key;
        self.restart = block.partition(inside)?;
        self.entries.clear();
        if self.restart > 0 {
            self.fill(block)?;
            let keys = &self.keys;
            let n = self
                .entries
                .partition_point(|(r, _)| keys.get(r.clone()).is_some_and(inside));
            self.entries.truncate(n);
        }
        Some(())
    }

    /// Restores the interval before the current one.
    fn fill(&mut self, block: &Block) -> Option<()> {
        let end = block.restart(self.restart);
        self.restart -= 1;
        let mut offset = block.restart(self.restart)?;
        self.entries.clear();
        self.keys.clear();
        let mut last = 0..0;
        while !block.is_end(offset) && end != Some(offset) {
            let entry = block.entry(offset)?;
            // An interval with too many entries, or with an entry that shares more than there is, cannot have
            // been written by this code.
            if entry.shared > last.len() || self.entries.len() >= INTERVAL {
                return None;
            }
            offset = entry.next;
            let start = self.keys.len();
            self.keys
                .extend_from_within(last.start..last.start + entry.shared);
            self.keys.extend_from_slice(block.suffix(&entry));
            last = start..self.keys.len();
            self.entries.push((last.clone(), entry));
        }
        (!self.entries.is_empty()).then_some(())
    }

    /// The entry before the position, which does not move until [`Backward::pop`]. `Some(None)`: the block's
    /// beginning; `None`: the block is malformed.
    #[allow(clippy::option_option)]
    pub(crate) fn peek(&mut self, block: &Block) -> Option<Option<(&[u8], Entry)>> {
        if self.entries.is_empty() {
            if self.restart == 0 {
                return Some(None);
            }
            self.fill(block)?;
        }
        let (range, entry) = self.entries.last()?;
        Some(Some((self.keys.get(range.clone())?, *entry)))
    }

    /// Moves past the entry that [`Backward::peek`] returned.
    pub(crate) fn pop(&mut self) {
        self.entries.pop();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    type Model = Vec<(Vec<u8>, u64, Option<Vec<u8>>)>;

    fn model() -> Model {
        let mut all = Vec::new();
        for i in 0..300u32 {
            let mut key = format!("key/{:05}", i * 7).into_bytes();
            if i % 50 == 3 {
                key.resize(3000, b'x');
            }
            for v in 0..1 + i % 4 {
                let at = u64::from(1000 - v * 10);
                let value = (i % 5 != 0).then(|| vec![b'v'; (i % 40) as usize]);
                all.push((key.clone(), at, value));
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        all
    }

    fn block(model: &Model) -> Block {
        let mut builder = BlockBuilder::data();
        for (key, at, value) in model {
            builder.add(key, *at, value.as_deref());
        }
        let size = builder.size();
        let bytes = builder.finish();
        assert_eq!(bytes.len(), size);
        Block::new(Bytes::copy_from_slice(bytes)).unwrap()
    }

    #[test]
    fn finds_what_a_model_finds() {
        let model = model();
        let block = block(&model);
        let mut keys: Vec<Vec<u8>> = model.iter().map(|e| e.0.clone()).collect();
        keys.extend((0..2200).map(|i| format!("key/{i:05}").into_bytes()));
        keys.extend([
            b"a".to_vec(),
            b"key".to_vec(),
            b"z".to_vec(),
            b"key/00021x".to_vec(),
        ]);
        for key in keys {
            for at in [0, 969, 970, 985, 1000, u64::MAX] {
                let expected = model.iter().find(|e| e.0 == key && e.1 <= at);
                match (block.find(&key, at).unwrap(), expected) {
                    (Find::Version(e), Some(m)) => {
                        assert_eq!((e.at, block.value(&e).as_deref()), (m.1, m.2.as_deref()));
                    }
                    (Find::Absent | Find::Beyond, None) => {}
                    _ => panic!("{} at {at}", String::from_utf8_lossy(&key)),
                }
            }
        }
    }

    #[test]
    fn goes_backward_from_everywhere() {
        let model = model();
        let block = block(&model);
        for (key, inclusive) in model.iter().flat_map(|e| [(&e.0, true), (&e.0, false)]) {
            let mut back = Backward::default();
            back.go_to(&block, key, inclusive).unwrap();
            let inside = |e: &&(Vec<u8>, u64, _)| &e.0 < key || inclusive && &e.0 == key;
            for m in model.iter().filter(inside).rev().take(40) {
                let (k, e) = back.peek(&block).unwrap().unwrap();
                assert_eq!((k, e.at), (&m.0[..], m.1));
                back.pop();
            }
        }
        let mut back = Backward::default();
        back.go_to_end(&block);
        for m in model.iter().rev() {
            assert_eq!(back.peek(&block).unwrap().unwrap().0, &m.0[..]);
            back.pop();
        }
        assert!(back.peek(&block).unwrap().is_none());
    }

    #[test]
    fn any_bytes_do_no_harm() {
        let good = block(&model()).data;
        for i in (0..good.len()).step_by(3) {
            for flip in [1, 0x80, 0xff] {
                let mut bytes = good.to_vec();
                bytes[i] ^= flip;
                let Some(block) = Block::new(Bytes::from(bytes)) else {
                    continue;
                };
                let _ = block.find(b"key/00700", 980);
                let mut back = Backward::default();
                if back.go_to(&block, b"key/00700", true).is_some() {
                    while let Some(Some(_)) = back.peek(&block) {
                        back.pop();
                    }
                }
            }
        }
    }
}
