//! The bytes of segments and records. The head of the crate has the tables.
//!
//! Every number read from a file is checked here before it is used.

use crate::Position;
use muniment_io::Timestamp;

const MAGIC: &[u8; 8] = b"MUNIMLOG";
const VERSION: u32 = 1;
/// The bytes of a segment's header, which is followed by its begin.
pub(crate) const HEADER: usize = 512;
/// The bytes of a record's header.
pub(crate) const HEAD: usize = 40;
/// The bytes of a begin.
pub(crate) const BEGIN: usize = HEAD + 32;
/// The bytes of a mark.
pub(crate) const MARK: usize = HEAD + 8;
/// The offset of a segment's first record.
pub(crate) const FIRST: usize = HEADER + BEGIN;
/// The limit of indexes, ordinals and the like, so that adding one to them never overflows.
pub(crate) const HIGHEST: u64 = 1 << 62;
/// The longest payload, in bytes.
pub const MAX_PAYLOAD: usize = (1 << 30) - 1;

const BEGIN_BIT: u32 = 1 << 31;
const MARK_BIT: u32 = 1 << 30;

/// The bytes of a record with a payload of `len` bytes.
pub(crate) fn span(len: usize) -> usize {
    (HEAD + len).next_multiple_of(8)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let b = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(b.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let b = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(b.try_into().ok()?))
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub number: u64,
    pub salt: u64,
    pub size: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut b = [0; HEADER];
        let fields = [
            (0, *MAGIC),
            (8, u64::from(VERSION).to_le_bytes()),
            (16, self.number.to_le_bytes()),
            (24, self.salt.to_le_bytes()),
            (32, self.size.to_le_bytes()),
        ];
        for (at, bytes) in fields {
            b[at..at + 8].copy_from_slice(&bytes);
        }
        let crc = crc32c::crc32c(&b);
        b[12..16].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Decodes a header. `Err` says for people what is wrong.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, &'static str> {
        let mut b: [u8; HEADER] = bytes
            .get(..HEADER)
            .and_then(|b| b.try_into().ok())
            .ok_or("the file is shorter than its header")?;
        let crc = u32_at(&b, 12).unwrap_or_default();
        b[12..16].fill(0);
        if crc32c::crc32c(&b) != crc || b[..8] != *MAGIC {
            return Err("the segment's header is damaged");
        }
        if u32_at(&b, 8) != Some(VERSION) {
            return Err("the segment is of a version that is not known here");
        }
        let field = |at| u64_at(&b, at).unwrap_or_default();
        Ok(Header {
            number: field(16),
            salt: field(24),
            size: field(32),
        })
    }

    /// The value that the checksums of records begin with.
    pub(crate) fn seed(&self) -> u32 {
        crc32c::crc32c(&self.salt.to_le_bytes())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Begin,
    Mark,
}

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
    pub len: usize,
    pub payload_crc: u32,
    lag: u32,
    pub position: Position,
}

impl Head {
    /// The header of a record; `durable` is the index known to be durable.
    pub(crate) fn new(
        kind: Kind,
        position: Position,
        durable: u64,
        len: usize,
        payload_crc: u32,
    ) -> Head {
        let lag = position.index.saturating_sub(durable);
        Head {
            kind,
            len,
            payload_crc,
            lag: u32::try_from(lag).unwrap_or(u32::MAX),
            position,
        }
    }

    pub(crate) fn encode(&self, seed: u32) -> [u8; HEAD] {
        let kind = match self.kind {
            Kind::Data => 0,
            Kind::Begin => BEGIN_BIT,
            Kind::Mark => MARK_BIT,
        };
        let mut b = [0; HEAD];
        b[4..8].copy_from_slice(&(self.len as u32 | kind).to_le_bytes());
        b[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        b[12..16].copy_from_slice(&self.lag.to_le_bytes());
        b[16..24].copy_from_slice(&self.position.index.to_le_bytes());
        b[24..32].copy_from_slice(&self.position.term.to_le_bytes());
        b[32..40].copy_from_slice(&self.position.at.0.to_le_bytes());
        let crc = crc32c::crc32c_append(seed, &b[4..]);
        b[..4].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// The valid header at `at`, whatever its payload.
    pub(crate) fn decode(bytes: &[u8], at: usize, seed: u32) -> Option<Head> {
        let b: &[u8; HEAD] = bytes.get(at..at.checked_add(HEAD)?)?.try_into().ok()?;
        if crc32c::crc32c_append(seed, &b[4..]) != u32_at(b, 0)? {
            return None;
        }
        let index = u64_at(b, 16).filter(|i| *i <= HIGHEST)?;
        let word = u32_at(b, 4)?;
        let kind = match word & (BEGIN_BIT | MARK_BIT) {
            0 => Kind::Data,
            BEGIN_BIT => Kind::Begin,
            MARK_BIT => Kind::Mark,
            _ => return None,
        };
        Some(Head {
            kind,
            len: (word & !(BEGIN_BIT | MARK_BIT)) as usize,
            payload_crc: u32_at(b, 8)?,
            lag: u32_at(b, 12)?,
            position: Position {
                index,
                term: u64_at(b, 24)?,
                at: Timestamp(u64_at(b, 32)?),
            },
        })
    }

    /// The index that was known to be durable when this was written, as far as the header can say.
    pub(crate) fn durable(&self) -> u64 {
        match self.lag {
            u32::MAX => 0,
            lag => self.position.index.saturating_sub(u64::from(lag)),
        }
    }
}

/// The whole valid record at `at` with its payload.
pub(crate) fn record(bytes: &[u8], at: usize, seed: u32) -> Option<(Head, &[u8])> {
    let head = Head::decode(bytes, at, seed)?;
    let from = at + HEAD;
    let payload = bytes.get(from..from.checked_add(head.len)?)?;
    (crc32c::crc32c(payload) == head.payload_crc).then_some((head, payload))
}

/// A segment's begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    /// The last record before the segment.
    pub before: Position,
    pub ordinal: u64,
    pub generation: u64,
    pub durable: u64,
    /// The number of the segment before; 0 if there was none.
    pub previous: u64,
}

impl Begin {
    pub(crate) fn encode(&self, seed: u32) -> [u8; BEGIN] {
        let mut b = [0; BEGIN];
        let fields = [self.ordinal, self.generation, self.durable, self.previous];
        for (i, field) in fields.iter().enumerate() {
            b[HEAD + 8 * i..HEAD + 8 * i + 8].copy_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c::crc32c(&b[HEAD..]);
        let head = Head::new(Kind::Begin, self.before, self.durable, BEGIN - HEAD, crc);
        b[..HEAD].copy_from_slice(&head.encode(seed));
        b
    }

    pub(crate) fn decode(bytes: &[u8], at: usize, seed: u32) -> Option<Begin> {
        let (head, p) = record(bytes, at, seed)?;
        if head.kind != Kind::Begin {
            return None;
        }
        Some(Begin {
            before: head.position,
            ordinal: u64_at(p, 0).filter(|n| *n <= HIGHEST)?,
            generation: u64_at(p, 8).filter(|n| *n <= HIGHEST)?,
            durable: u64_at(p, 16).filter(|n| *n <= head.position.index)?,
            previous: u64_at(p, 24)?,
        })
    }
}

/// A mark for a segment whose last record is at `position`. It says that everything up to `durable` is
/// durable.
pub(crate) fn mark(position: Position, durable: u64, seed: u32) -> [u8; MARK] {
    let mut b = [0; MARK];
    b[HEAD..].copy_from_slice(&durable.to_le_bytes());
    let crc = crc32c::crc32c(&b[HEAD..]);
    let head = Head::new(Kind::Mark, position, durable, MARK - HEAD, crc);
    b[..HEAD].copy_from_slice(&head.encode(seed));
    b
}

/// The evidence in a part of a segment, where records may be anywhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    /// The highest index that any of it says is durable.
    pub durable: u64,
    /// There are headers of records or begins, which must never be taken for valid later.
    pub records: bool,
}

impl Evidence {
    pub(crate) fn add(&mut self, other: Evidence) {
        self.durable = self.durable.max(other.durable);
        self.records |= other.records;
    }
}

/// Looks for evidence at every place after `from`.
pub(crate) fn scan(bytes: &[u8], from: usize, seed: u32) -> Evidence {
    let mut found = Evidence::default();
    let mut at = from.next_multiple_of(8);
    while let Some(word) = u64_at(bytes, at) {
        // Zeros are no header, and a length beyond the file needs no checksum to be refused.
        let len = (word >> 32) as u32 & !(BEGIN_BIT | MARK_BIT);
        if word != 0
            && at + HEAD + len as usize <= bytes.len().next_multiple_of(8)
            && let Some(head) = Head::decode(bytes, at, seed)
        {
            let mut durable = head.durable();
            found.records |= head.kind != Kind::Mark;
            if head.kind == Kind::Mark
                && let Some((_, payload)) = record(bytes, at, seed)
            {
                // A mark's payload may say more than a header can.
                durable = u64_at(payload, 0).unwrap_or_default();
            }
            found.durable = found.durable.max(durable);
        }
        at += 8;
    }
    found
}

/// Reads the records that follow `last`, from the offset `at` on, until the record with index `limit` was
/// read or the next one is not valid. Returns the offset after the last record that was read.
pub(crate) fn walk<E>(
    bytes: &[u8],
    mut at: usize,
    limit: u64,
    seed: u32,
    last: &mut Position,
    mut each: impl FnMut(usize, &Head, &[u8]) -> Result<(), E>,
) -> Result<usize, E> {
    while last.index < limit {
        let Some((head, payload)) = record(bytes, at, seed) else {
            break;
        };
        let p = head.position;
        if head.kind != Kind::Data || p.index != last.index + 1 || p.at <= last.at {
            break;
        }
        each(at, &head, payload)?;
        *last = p;
        at += span(head.len);
    }
    Ok(at)
}
