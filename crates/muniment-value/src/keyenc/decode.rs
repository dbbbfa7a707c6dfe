//! Reading keys: decoding and skipping. Keys come from files, so nothing here trusts them.

use super::{first, item, number};
use crate::order::MAX_NESTING;
use crate::{Code, Error, Result, Type, ValueBuf};

/// Decodes one value from the front of `key`, and returns it and the rest. `bits` is consumed in step. With
/// empty bits, the value is equal in order to the encoded one, but has the default type.
///
/// # Errors
/// 22 InvalidBSON if `key` is not an encoding, which means that the file is damaged.
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
/// 22 InvalidBSON if `key` is not an encoding.
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
pub(super) struct Reader<'k> {
    pub(super) key: &'k [u8],
    pub(super) invert: u8,
}

impl<'k> Reader<'k> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let (b, rest) = self.key.split_first()?;
        self.key = rest;
        Some(b ^ self.invert)
    }

    #[inline]
    pub(super) fn take(&mut self, n: usize) -> Option<&'k [u8]> {
        let (bytes, rest) = self.key.split_at_checked(n)?;
        self.key = rest;
        Some(bytes)
    }

    /// Fixed bytes, as they were before inversion.
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut a: [u8; N] = self.take(N)?.try_into().ok()?;
        for b in &mut a {
            *b ^= self.invert;
        }
        Some(a)
    }

    /// Skips to the end of the next terminator. Returns the bytes before it, still inverted.
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
            read_binary(r, out)?;
            Type::Binary
        }
        first::REGEX => {
            read_c_string(r, out)?;
            read_c_string(r, out)?;
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

fn read_binary(r: &mut Reader<'_>, out: &mut Vec<u8>) -> Option<()> {
    let n = r.length()?;
    let body = r.take(n.checked_add(1)?)?; // the subtype and the bytes
    out.extend_from_slice(&i32::try_from(n).ok()?.to_le_bytes());
    out.extend_from_slice(body);
    Some(())
}

/// Reads a text that BSON ends with a zero byte, and that therefore contains none: a part of a regular
/// expression.
fn read_c_string(r: &mut Reader<'_>, out: &mut Vec<u8>) -> Option<()> {
    let text = read_text(r)?;
    if text.contains('\0') {
        return None;
    }
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Some(())
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

/// Writes the length of the bytes from `start` to the end in front of them.
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

pub(super) fn take_item(bits: &mut &[u8]) -> u8 {
    match bits.split_first() {
        Some((b, rest)) => {
            *bits = rest;
            *b
        }
        None => item::DEFAULT,
    }
}
