//! The order-preserving key encoding: `memcmp` of two encodings equals the canonical comparison
//! of the values.
//!
//! One value is a first byte that gives its type bracket (numbers: also sign and size, see
//! `number.rs`; booleans: the value) and a payload. No encoding is a prefix of another, so
//! encodings can be concatenated, and the range of keys that start with one encoding is exactly
//! that value. Descending fields have every byte inverted. Values that compare equal (int32 1
//! and double 1.0) have equal encodings; what was lost stands in [`TypeBits`], which an index
//! entry keeps beside the key so that a covered query returns the value as it was stored.
//!
//! | value | after the first byte |
//! |---|---|
//! | text (string, symbol, code, regex parts) | bytes with 0x00 → 01 01, 0x01 → 01 02; 0x00 |
//! | document | per element: bracket byte, name, 0x00, value; then 0x00 |
//! | array | the values; then 0x00 |
//! | binary | length (one byte, or 0xFF and four), subtype, bytes |
//! | ObjectId, date, timestamp | 12 or 8 bytes, big-endian, the date's sign bit flipped |
//!
//! Invariants: first bytes lie within 0x0A…0xF0, so 0x00 ends a document or array below every
//! value and a suffix after a key cannot be taken for part of it. This is a storage format:
//! changing it makes databases unreadable.
//!
//! Not restored by decoding: element names of an array that are not 0, 1, 2 …

mod number;

use crate::order::MAX_NESTING;
use crate::{Code, Doc, Error, Result, Type, Value, ValueBuf};

/// What the encoding drops: the numeric types, −0, string or symbol, decimal exponents.
///
/// A sequence of items in step with the numbers and texts of the key; trailing defaults are not
/// written. One value's or a compound key's bits go into the same sequence.
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

    /// The bytes to store; empty when every value decodes to itself by default (int32 or int64
    /// where the number is whole and fits, else double; string).
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets all bits, keeps the memory.
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

/// Where [`put`] records what it drops.
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

/// The items of [`TypeBits`].
mod item {
    pub const DEFAULT: u8 = 0;
    pub const INT64: u8 = 2;
    pub const DOUBLE: u8 = 3;
    /// Followed by the 16 bytes.
    pub const DECIMAL: u8 = 4;
    pub const SYMBOL: u8 = 5;
    pub const NEGATIVE_ZERO: u8 = 6;
    /// A NaN that is not the usual one, followed by its 8 bytes.
    pub const NAN: u8 = 7;
}

/// First bytes.
mod first {
    pub const END: u8 = 0x00;
    pub const MIN_KEY: u8 = 0x0A;
    pub const UNDEFINED: u8 = 0x14;
    pub const NULL: u8 = 0x1E;
    pub const NAN: u8 = 0x28;
    pub const ZERO: u8 = 0x33;
    pub const NUMBER_MAX: u8 = 0x3D;
    pub const STRING: u8 = 0x46;
    pub const DOCUMENT: u8 = 0x50;
    pub const ARRAY: u8 = 0x5A;
    pub const BINARY: u8 = 0x64;
    pub const OBJECT_ID: u8 = 0x6E;
    pub const FALSE: u8 = 0x78;
    pub const TRUE: u8 = 0x79;
    pub const DATE: u8 = 0x82;
    pub const TIMESTAMP: u8 = 0x8C;
    pub const REGEX: u8 = 0x96;
    pub const DB_POINTER: u8 = 0xA0;
    pub const CODE: u8 = 0xAA;
    pub const CODE_WITH_SCOPE: u8 = 0xB4;
    pub const MAX_KEY: u8 = 0xF0;
}

/// Appends the encoding of `v`; `descending` inverts it.
#[inline]
pub fn encode(v: Value<'_>, descending: bool, out: &mut Vec<u8>) {
    encode_any(v, descending, out, &mut NoBits);
}

/// As [`encode`], and records what the encoding drops.
#[inline]
pub fn encode_with_bits(v: Value<'_>, descending: bool, out: &mut Vec<u8>, bits: &mut TypeBits) {
    encode_any(v, descending, out, bits);
}

/// The encoding of one value, ascending.
pub fn encoded(v: Value<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    encode(v, false, &mut out);
    out
}

#[inline]
fn encode_any(v: Value<'_>, descending: bool, out: &mut Vec<u8>, bits: &mut impl Bits) {
    let start = out.len();
    put(v, out, bits, MAX_NESTING);
    if descending {
        for b in out.get_mut(start..).unwrap_or_default() {
            *b = !*b;
        }
    }
}

fn put(v: Value<'_>, out: &mut Vec<u8>, bits: &mut impl Bits, depth: usize) {
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
            put_text(first::STRING, s, out);
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
            put_elements(d, true, out, bits, depth);
        }
        Value::Array(d) => {
            out.push(first::ARRAY);
            put_elements(d, false, out, bits, depth);
        }
        Value::Symbol(s) => {
            bits.item(item::SYMBOL, &[]);
            put_text(first::STRING, s, out);
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
            put_elements(scope, true, out, bits, depth);
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

fn put_escaped(s: &str, out: &mut Vec<u8>) {
    let s = s.as_bytes();
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

fn put_elements(d: Doc<'_>, names: bool, out: &mut Vec<u8>, bits: &mut impl Bits, depth: usize) {
    // Never reached by documents that passed validation; the comparison stops here as well.
    if depth > 0 {
        for e in d {
            if names {
                out.push(rank_bytes(e.ty()).0);
                out.extend_from_slice(e.name_bytes());
                out.push(0);
            }
            put(e.value(), out, bits, depth - 1);
        }
    }
    out.push(first::END);
}

/// Reads one value from the front of `key`; returns it and the rest. `bits` is consumed in step.
/// With empty bits the value is equal in order to the one encoded, of the default type.
///
/// # Errors
/// 22 InvalidBSON if `key` is no encoding: the file is damaged.
pub fn decode<'k>(
    key: &'k [u8],
    descending: bool,
    bits: &mut &[u8],
) -> Result<(ValueBuf, &'k [u8])> {
    let mut raw = Vec::new();
    let decode = |key: &[u8], raw: &mut Vec<u8>, bits: &mut &[u8]| {
        let mut r = Reader { key, invert: 0 };
        let ty = read(&mut r, bits, raw, MAX_NESTING)?;
        Some((ty, key.len() - r.key.len()))
    };
    let read = if descending {
        let n = skip(key, true)?;
        let inverted: Vec<u8> = key.iter().take(n).map(|b| !b).collect();
        decode(&inverted, &mut raw, bits)
    } else {
        decode(key, &mut raw, bits)
    };
    match read.and_then(|(ty, n)| Some((ty, key.get(n..)?))) {
        Some((ty, rest)) => Ok((ValueBuf::from_raw(ty, raw), rest)),
        None => Err(damaged()),
    }
}

#[cold]
fn damaged() -> Error {
    Error::new(Code::InvalidBSON, "not a valid index key encoding")
}

/// The length of the first encoded value in `key`, without decoding it.
///
/// # Errors
/// 22 InvalidBSON if `key` is no encoding.
#[inline]
pub fn skip(key: &[u8], descending: bool) -> Result<usize> {
    let mut r = Reader {
        key,
        invert: if descending { 0xFF } else { 0 },
    };
    match skip_value(&mut r, MAX_NESTING) {
        Some(()) => Ok(key.len() - r.key.len()),
        None => Err(damaged()),
    }
}

/// Reads a key, inverted or not.
struct Reader<'k> {
    key: &'k [u8],
    invert: u8,
}

impl<'k> Reader<'k> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (b, rest) = self.key.split_first()?;
        self.key = rest;
        Some(b ^ self.invert)
    }

    #[inline]
    fn take(&mut self, n: usize) -> Option<&'k [u8]> {
        let (bytes, rest) = self.key.split_at_checked(n)?;
        self.key = rest;
        Some(bytes)
    }

    /// Fixed bytes, as they were before inversion.
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut a: [u8; N] = self.take(N)?.try_into().ok()?;
        for b in &mut a {
            *b ^= self.invert;
        }
        Some(a)
    }

    /// Skips to behind the next terminator; returns what stands before it, still inverted.
    #[inline]
    fn until_end(&mut self) -> Option<&'k [u8]> {
        let n = self.key.iter().position(|&b| b == self.invert)?;
        let text = self.take(n)?;
        self.take(1)?;
        Some(text)
    }

    fn length(&mut self) -> Option<usize> {
        match self.byte()? {
            0xFF => Some(u32::from_be_bytes(self.array()?) as usize),
            n => Some(n.into()),
        }
    }
}

fn skip_value(r: &mut Reader<'_>, depth: usize) -> Option<()> {
    match r.byte()? {
        b @ first::NAN..=first::NUMBER_MAX => number::skip(r, b),
        first::OBJECT_ID => r.take(12).map(drop),
        first::STRING | first::CODE => r.until_end().map(drop),
        first::DATE | first::TIMESTAMP => r.take(8).map(drop),
        first::MIN_KEY
        | first::UNDEFINED
        | first::NULL
        | first::FALSE
        | first::TRUE
        | first::MAX_KEY => Some(()),
        first::DOCUMENT => skip_elements(r, true, depth),
        first::ARRAY => skip_elements(r, false, depth),
        first::BINARY => {
            let n = r.length()?;
            r.take(n.checked_add(1)?).map(drop)
        }
        first::REGEX => r.until_end().and_then(|_| r.until_end()).map(drop),
        first::DB_POINTER => {
            let n = u32::from_be_bytes(r.array()?) as usize;
            r.take(n.checked_add(12)?).map(drop)
        }
        first::CODE_WITH_SCOPE => {
            r.until_end()?;
            skip_elements(r, true, depth)
        }
        _ => None,
    }
}

fn skip_elements(r: &mut Reader<'_>, names: bool, depth: usize) -> Option<()> {
    loop {
        if r.key.first()? ^ r.invert == first::END {
            return r.take(1).map(drop);
        }
        if depth == 0 {
            return None;
        }
        if names {
            r.byte()?;
            r.until_end()?;
        }
        skip_value(r, depth - 1)?;
    }
}

/// Reads one value; appends its BSON bytes to `out`. The reader is not inverted.
fn read(r: &mut Reader<'_>, bits: &mut &[u8], out: &mut Vec<u8>, depth: usize) -> Option<Type> {
    use crate::Put;
    let b = r.byte()?;
    Some(match b {
        first::NAN..=first::NUMBER_MAX => number::read(r, b, bits, out)?,
        first::STRING => {
            let ty = match take_item(bits) {
                item::DEFAULT => Type::String,
                item::SYMBOL => Type::Symbol,
                _ => return None,
            };
            read_text(r)?.put(out);
            ty
        }
        first::CODE => {
            read_text(r)?.put(out);
            Type::Code
        }
        first::OBJECT_ID => {
            out.extend_from_slice(r.take(12)?);
            Type::ObjectId
        }
        first::DATE => {
            let n = u64::from_be_bytes(r.array()?) ^ 1 << 63;
            out.extend_from_slice(&n.to_le_bytes());
            Type::DateTime
        }
        first::TIMESTAMP => {
            out.extend_from_slice(&u64::from_be_bytes(r.array()?).to_le_bytes());
            Type::Timestamp
        }
        first::MIN_KEY => Type::MinKey,
        first::UNDEFINED => Type::Undefined,
        first::NULL => Type::Null,
        first::MAX_KEY => Type::MaxKey,
        first::FALSE | first::TRUE => {
            out.push(b - first::FALSE);
            Type::Bool
        }
        first::DOCUMENT => {
            read_elements(r, true, bits, out, depth)?;
            Type::Document
        }
        first::ARRAY => {
            read_elements(r, false, bits, out, depth)?;
            Type::Array
        }
        first::BINARY => {
            let n = r.length()?;
            let body = r.take(n.checked_add(1)?)?; // the subtype and the bytes
            out.extend_from_slice(&i32::try_from(n).ok()?.to_le_bytes());
            out.extend_from_slice(body);
            Type::Binary
        }
        first::REGEX => {
            for _ in 0..2 {
                let text = read_text(r)?;
                if text.contains('\0') {
                    return None;
                }
                out.extend_from_slice(text.as_bytes());
                out.push(0);
            }
            Type::Regex
        }
        first::DB_POINTER => {
            let n = u32::from_be_bytes(r.array()?) as usize;
            std::str::from_utf8(r.take(n)?).ok()?.put(out);
            out.extend_from_slice(r.take(12)?);
            Type::DbPointer
        }
        first::CODE_WITH_SCOPE => {
            let start = out.len();
            out.extend_from_slice(&[0; 4]);
            read_text(r)?.put(out);
            read_elements(r, true, bits, out, depth)?;
            close(start, out)?;
            Type::CodeWithScope
        }
        _ => return None,
    })
}

fn read_elements(
    r: &mut Reader<'_>,
    names: bool,
    bits: &mut &[u8],
    out: &mut Vec<u8>,
    depth: usize,
) -> Option<()> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut index = 0_u32;
    while *r.key.first()? != first::END {
        if depth == 0 {
            return None;
        }
        let type_at = out.len();
        out.push(0);
        if names {
            r.byte()?;
            let name = std::str::from_utf8(r.until_end()?).ok()?;
            out.extend_from_slice(name.as_bytes());
        } else {
            out.extend_from_slice(index.to_string().as_bytes());
            index += 1;
        }
        out.push(0);
        let ty = read(r, bits, out, depth - 1)?;
        *out.get_mut(type_at)? = ty as u8;
    }
    r.take(1)?;
    out.push(0);
    close(start, out)
}

/// Writes the length of what stands from `start` to the end in front of it.
fn close(start: usize, out: &mut [u8]) -> Option<()> {
    let n = i32::try_from(out.len() - start).ok()?;
    out.get_mut(start..start + 4)?
        .copy_from_slice(&n.to_le_bytes());
    Some(())
}

fn read_text(r: &mut Reader<'_>) -> Option<String> {
    let raw = r.until_end()?;
    let mut text = Vec::with_capacity(raw.len());
    let mut escaped = false;
    for &b in raw {
        match (escaped, b) {
            (true, 1 | 2) => text.push(b - 1),
            (true, _) => return None,
            (false, 1) => {}
            (false, b) => text.push(b),
        }
        escaped = !escaped && b == 1;
    }
    if escaped {
        return None;
    }
    String::from_utf8(text).ok()
}

fn take_item(bits: &mut &[u8]) -> u8 {
    match bits.split_first() {
        Some((b, rest)) => {
            *bits = rest;
            *b
        }
        None => item::DEFAULT,
    }
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

/// The half-open range of keys whose first field is in `ty`'s bracket: from the first, inclusive,
/// to the second, exclusive. For bounds such as "all strings". A range of numbers that is to
/// leave out NaN, as `{$lt: 5}` is, starts at the encoding of −∞ instead.
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
