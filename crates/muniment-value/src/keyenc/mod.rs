//! The order-preserving key encoding: `memcmp` of two encodings equals the canonical comparison
//! of the values.
//!
//! A value is encoded as a first byte that gives its type bracket (for numbers also sign and size, see
//! `number.rs`; for booleans the value) and a payload. No encoding is a prefix of another, so encodings can
//! be concatenated, and the range of keys that start with one encoding has exactly that value. For descending
//! fields every byte is inverted. Values that compare equal (int32 1 and double 1.0) have equal encodings;
//! the lost information is in [`TypeBits`], which an index entry keeps next to the key, so that a covered
//! query returns the value as it was stored.
//!
//! | value | after the first byte |
//! |---|---|
//! | text (string, symbol, code, regex parts) | bytes with 0x00 → 01 01, 0x01 → 01 02; 0x00 |
//! | document | per element: bracket byte, name, 0x00, value; then 0x00 |
//! | array | the values; then 0x00 |
//! | binary | length (one byte, or 0xFF and four), subtype, bytes |
//! | ObjectId, date, timestamp | 12 or 8 bytes, big-endian, the date's sign bit flipped |
//!
//! Invariants: first bytes lie within 0x0A…0xF0, so the 0x00 at the end of a document or array sorts before
//! every value, and a suffix after a key cannot be mistaken for part of it. This is a storage format:
//! changing it makes databases unreadable.
//!
//! Decoding does not restore element names of an array that are not 0, 1, 2 …

mod decode;
mod number;

pub use decode::{decode, skip};

use crate::collation::Collator;
use crate::order::MAX_NESTING;
use crate::{Doc, Type, Value};

/// What the encoding drops: the numeric type, −0, string or symbol, exponents of decimals.
///
/// This is a sequence of items in step with the numbers and texts of the key; trailing default items are not
/// written. The items of all fields of a compound key are in one sequence.
#[derive(Clone, Debug, Default)]
pub struct TypeBits {
    bytes: Vec<u8>,
    defaults: usize,
}

impl TypeBits {
    /// No bits yet.
    pub fn new() -> TypeBits {
        TypeBits::default()
    }

    /// The bytes to store. They are empty if every value decodes to itself by default (a string; an int32 or
    /// int64 if the number is whole and fits, otherwise a double).
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all bits but keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.defaults = 0;
    }
}

impl PartialEq for TypeBits {
    fn eq(&self, other: &TypeBits) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for TypeBits {}

/// Records what [`put`] drops.
trait Bits {
    fn item(&mut self, item: u8, payload: &[u8]);
}

struct NoBits;

impl Bits for NoBits {
    #[inline]
    fn item(&mut self, _: u8, _: &[u8]) {}
}

impl Bits for TypeBits {
    #[inline]
    fn item(&mut self, item: u8, payload: &[u8]) {
        if item == item::DEFAULT {
            self.defaults += 1;
        } else {
            self.bytes.resize(self.bytes.len() + self.defaults, 0);
            self.defaults = 0;
            self.bytes.push(item);
            self.bytes.extend_from_slice(payload);
        }
    }
}

/// Writes texts for [`put`].
trait Texts {
    fn put(&self, s: &str, out: &mut Vec<u8>);
}

struct Bytes;

impl Texts for Bytes {
    #[inline]
    fn put(&self, s: &str, out: &mut Vec<u8>) {
        put_escaped(s, out);
    }
}

impl Texts for Collator {
    fn put(&self, s: &str, out: &mut Vec<u8>) {
        let mut key = Vec::with_capacity(2 * s.len() + 8);
        self.write_key(s, &mut key);
        put_escaped_bytes(&key, out);
    }
}

/// The items of [`TypeBits`].
mod item {
    pub(crate) const DEFAULT: u8 = 0;
    pub(crate) const INT64: u8 = 2;
    pub(crate) const DOUBLE: u8 = 3;
    /// The 16 bytes of the decimal follow.
    pub(crate) const DECIMAL: u8 = 4;
    pub(crate) const SYMBOL: u8 = 5;
    pub(crate) const NEGATIVE_ZERO: u8 = 6;
    /// An unusual NaN, whose 8 bytes follow.
    pub(crate) const NAN: u8 = 7;
}

/// First bytes.
mod first {
    pub(crate) const END: u8 = 0x00;
    pub(crate) const MIN_KEY: u8 = 0x0A;
    pub(crate) const UNDEFINED: u8 = 0x14;
    pub(crate) const NULL: u8 = 0x1E;
    pub(crate) const NAN: u8 = 0x28;
    pub(crate) const ZERO: u8 = 0x33;
    pub(crate) const NUMBER_MAX: u8 = 0x3D;
    pub(crate) const STRING: u8 = 0x46;
    pub(crate) const DOCUMENT: u8 = 0x50;
    pub(crate) const ARRAY: u8 = 0x5A;
    pub(crate) const BINARY: u8 = 0x64;
    pub(crate) const OBJECT_ID: u8 = 0x6E;
    pub(crate) const FALSE: u8 = 0x78;
    pub(crate) const TRUE: u8 = 0x79;
    pub(crate) const DATE: u8 = 0x82;
    pub(crate) const TIMESTAMP: u8 = 0x8C;
    pub(crate) const REGEX: u8 = 0x96;
    pub(crate) const DB_POINTER: u8 = 0xA0;
    pub(crate) const CODE: u8 = 0xAA;
    pub(crate) const CODE_WITH_SCOPE: u8 = 0xB4;
    pub(crate) const MAX_KEY: u8 = 0xF0;
}

/// Appends the encoding of `v`; `descending` inverts it.
#[inline]
pub fn encode(v: Value<'_>, descending: bool, out: &mut Vec<u8>) {
    encode_any(v, descending, out, &mut NoBits, &Bytes);
}

/// Does the same as [`encode`], with collation keys for texts.
pub(crate) fn encode_collated(v: Value<'_>, descending: bool, out: &mut Vec<u8>, texts: &Collator) {
    encode_any(v, descending, out, &mut NoBits, texts);
}

/// Does the same as [`encode_with_bits`], with collation keys for texts.
pub(crate) fn encode_collated_with_bits(
    v: Value<'_>,
    descending: bool,
    out: &mut Vec<u8>,
    bits: &mut TypeBits,
    texts: &Collator,
) {
    encode_any(v, descending, out, bits, texts);
}

/// Does the same as [`encode`], and records what the encoding drops.
#[inline]
pub fn encode_with_bits(v: Value<'_>, descending: bool, out: &mut Vec<u8>, bits: &mut TypeBits) {
    encode_any(v, descending, out, bits, &Bytes);
}

/// The encoding of one value, ascending.
pub fn encoded(v: Value<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    encode(v, false, &mut out);
    out
}

#[inline]
fn encode_any(
    v: Value<'_>,
    descending: bool,
    out: &mut Vec<u8>,
    bits: &mut impl Bits,
    texts: &impl Texts,
) {
    let start = out.len();
    put(v, out, bits, texts, MAX_NESTING);
    if descending {
        for b in out.get_mut(start..).unwrap_or_default() {
            *b = !*b;
        }
    }
}

fn put(v: Value<'_>, out: &mut Vec<u8>, bits: &mut impl Bits, texts: &impl Texts, depth: usize) {
    match v {
        Value::Int32(n) => number::put_int(n.into(), true, out, bits),
        Value::Int64(n) => number::put_int(n, false, out, bits),
        Value::ObjectId(id) => {
            let mut b = [first::OBJECT_ID; 13];
            b[1..].copy_from_slice(&id);
            out.extend_from_slice(&b);
        }
        Value::String(s) => {
            bits.item(item::DEFAULT, &[]);
            out.push(first::STRING);
            texts.put(s, out);
        }
        Value::Double(n) => number::put_double(n, out, bits),
        Value::Decimal128(b) => number::put_decimal(b, out, bits),
        Value::Bool(b) => out.push(if b { first::TRUE } else { first::FALSE }),
        Value::DateTime(n) => put_u64(first::DATE, n as u64 ^ 1 << 63, out),
        Value::Timestamp { t, i } => {
            put_u64(first::TIMESTAMP, u64::from(t) << 32 | u64::from(i), out);
        }
        Value::Null => out.push(first::NULL),
        Value::Undefined => out.push(first::UNDEFINED),
        Value::MinKey => out.push(first::MIN_KEY),
        Value::MaxKey => out.push(first::MAX_KEY),
        Value::Document(d) => {
            out.push(first::DOCUMENT);
            put_elements(d, true, out, bits, texts, depth);
        }
        Value::Array(d) => {
            out.push(first::ARRAY);
            put_elements(d, false, out, bits, texts, depth);
        }
        Value::Symbol(s) => {
            bits.item(item::SYMBOL, &[]);
            out.push(first::STRING);
            texts.put(s, out);
        }
        Value::Binary { subtype, bytes } => {
            out.push(first::BINARY);
            match u8::try_from(bytes.len()) {
                Ok(n) if n < 0xFF => out.push(n),
                _ => {
                    out.push(0xFF);
                    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                }
            }
            out.push(subtype);
            out.extend_from_slice(bytes);
        }
        Value::Regex { pattern, options } => {
            put_text(first::REGEX, pattern, out);
            put_escaped(options, out);
        }
        Value::DbPointer { namespace, id } => {
            out.push(first::DB_POINTER);
            out.extend_from_slice(&(namespace.len() as u32).to_be_bytes());
            out.extend_from_slice(namespace.as_bytes());
            out.extend_from_slice(&id);
        }
        Value::Code(s) => put_text(first::CODE, s, out),
        Value::CodeWithScope { code, scope } => {
            put_text(first::CODE_WITH_SCOPE, code, out);
            // Neither code nor its scope counts as text for a collation.
            put_elements(scope, true, out, bits, &Bytes, depth);
        }
    }
}

fn put_u64(first: u8, n: u64, out: &mut Vec<u8>) {
    let mut b = [first; 9];
    b[1..].copy_from_slice(&n.to_be_bytes());
    out.extend_from_slice(&b);
}

fn put_text(first: u8, s: &str, out: &mut Vec<u8>) {
    out.push(first);
    put_escaped(s, out);
}

#[inline]
fn put_escaped(s: &str, out: &mut Vec<u8>) {
    put_escaped_bytes(s.as_bytes(), out);
}

fn put_escaped_bytes(s: &[u8], out: &mut Vec<u8>) {
    out.reserve(s.len() + 1);
    // A fold without an early exit compiles to vector code.
    if s.iter().fold(false, |found, &b| found | (b <= 1)) {
        for &b in s {
            match b {
                0 | 1 => out.extend_from_slice(&[1, b + 1]),
                b => out.push(b),
            }
        }
    } else {
        out.extend_from_slice(s);
    }
    out.push(0);
}

fn put_elements(
    d: Doc<'_>,
    names: bool,
    out: &mut Vec<u8>,
    bits: &mut impl Bits,
    texts: &impl Texts,
    depth: usize,
) {
    // A valid document never reaches this depth. The comparison stops there as well.
    if depth > 0 {
        for e in d {
            if names {
                out.push(rank_bytes(e.ty()).0);
                out.extend_from_slice(e.name_bytes());
                out.push(0);
            }
            put(e.value(), out, bits, texts, depth - 1);
        }
    }
    out.push(first::END);
}

/// The smallest byte string greater than every string with this prefix; `None` if there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

/// The lowest first byte of the encodings of `ty`'s bracket, ascending; see [`rank_bytes`].
pub fn rank_byte(ty: Type) -> u8 {
    rank_bytes(ty).0
}

/// The lowest and the highest first byte (both inclusive) that values of `ty`'s bracket encode
/// to, ascending. The bracket of numbers starts with NaN.
pub fn rank_bytes(ty: Type) -> (u8, u8) {
    let one = match ty {
        Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => {
            return (first::NAN, first::NUMBER_MAX);
        }
        Type::Bool => return (first::FALSE, first::TRUE),
        Type::MinKey => first::MIN_KEY,
        Type::Undefined => first::UNDEFINED,
        Type::Null => first::NULL,
        Type::String | Type::Symbol => first::STRING,
        Type::Document => first::DOCUMENT,
        Type::Array => first::ARRAY,
        Type::Binary => first::BINARY,
        Type::ObjectId => first::OBJECT_ID,
        Type::DateTime => first::DATE,
        Type::Timestamp => first::TIMESTAMP,
        Type::Regex => first::REGEX,
        Type::DbPointer => first::DB_POINTER,
        Type::Code => first::CODE,
        Type::CodeWithScope => first::CODE_WITH_SCOPE,
        Type::MaxKey => first::MAX_KEY,
    };
    (one, one)
}

/// The half-open range of keys whose first field is in `ty`'s bracket, from the first (inclusive) to the
/// second (exclusive), for bounds such as "all strings". A range of numbers without NaN, such as that of
/// `{$lt: 5}`, starts at the encoding of −∞ instead.
pub fn bracket(ty: Type, descending: bool) -> ([u8; 1], [u8; 1]) {
    let (low, high) = rank_bytes(ty);
    // First bytes lie within 0x0A…0xF0 (inverted 0x0F…0xF5): adding one cannot overflow.
    if descending {
        ([!high], [!low + 1])
    } else {
        ([low], [high + 1])
    }
}

#[cfg(test)]
mod tests;
