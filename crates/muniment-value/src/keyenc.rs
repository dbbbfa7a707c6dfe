//! The order-preserving key encoding: `memcmp` of two encodings equals the canonical comparison
//! of the values.
//!
//! One value is a rank byte and a payload that no other payload is a prefix of, so encodings can
//! be concatenated. Numbers: a sortable double that is the value rounded towards −∞, then 0x00
//! when that is exact, else 0x01 and the exact decimal digits. Descending fields have every byte
//! inverted. Types that compare equal (int32 1 and double 1.0) have equal encodings; what was
//! lost stands in [`TypeBits`], which an index entry keeps beside the key so that a covered query
//! returns the value as it was stored.

use crate::{Result, Value, ValueBuf};

/// What the encoding drops: the numeric types, −0, string or symbol, decimal exponents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeBits(Vec<u8>);

impl TypeBits {
    /// The bytes to store; empty when every value decodes to itself by default (int32 where the
    /// number is whole and fits, else double).
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends the encoding of `v`; `descending` inverts it.
pub fn encode(v: Value<'_>, descending: bool, out: &mut Vec<u8>) {
    let _ = (v, descending, out);
    todo!()
}

/// As [`encode`], and records what the encoding drops.
pub fn encode_with_bits(v: Value<'_>, descending: bool, out: &mut Vec<u8>, bits: &mut TypeBits) {
    let _ = (v, descending, out, bits);
    todo!()
}

/// Reads one value from the front of `key`; returns it and the rest. `bits` is consumed in step.
///
/// # Errors
/// 22 InvalidBSON if `key` is no encoding: the file is damaged.
pub fn decode<'k>(
    key: &'k [u8],
    descending: bool,
    bits: &mut &[u8],
) -> Result<(ValueBuf, &'k [u8])> {
    let _ = (key, descending, bits);
    todo!()
}

/// The length of the first encoded value in `key`, without decoding it.
///
/// # Errors
/// 22 InvalidBSON if `key` is no encoding.
pub fn skip(key: &[u8], descending: bool) -> Result<usize> {
    let _ = (key, descending);
    todo!()
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

/// The lowest and highest rank byte (inclusive) that values of `ty`'s bracket encode to,
/// ascending: for bounds such as "all numbers" or "all strings".
pub fn rank_byte(ty: crate::Type) -> u8 {
    let _ = ty;
    todo!()
}
