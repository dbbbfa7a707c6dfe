//! Zero-copy views over BSON bytes.

use std::fmt;

pub use crate::types::Type;

/// One BSON value, borrowed from the bytes that hold it.
///
/// Equality and order are not derived on purpose: use [`crate::values_equal`] and
/// [`crate::cmp_values`], which follow MongoDB's rules.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the names are the specification's own
pub enum Value<'a> {
    Double(f64),
    String(&'a str),
    Document(Doc<'a>),
    /// The elements are in a document whose names are "0", "1", …
    Array(Doc<'a>),
    Binary {
        subtype: u8,
        bytes: &'a [u8],
    },
    Undefined,
    ObjectId([u8; 12]),
    Bool(bool),
    /// Milliseconds since 1970-01-01T00:00:00Z.
    DateTime(i64),
    Null,
    Regex {
        pattern: &'a str,
        options: &'a str,
    },
    DbPointer {
        namespace: &'a str,
        id: [u8; 12],
    },
    Code(&'a str),
    Symbol(&'a str),
    CodeWithScope {
        code: &'a str,
        scope: Doc<'a>,
    },
    Int32(i32),
    /// `t` in seconds since 1970, `i` an ordinal within the second.
    Timestamp {
        t: u32,
        i: u32,
    },
    Int64(i64),
    /// IEEE 754-2008 decimal128 in the BID encoding, little-endian.
    Decimal128([u8; 16]),
    MaxKey,
    MinKey,
}

impl<'a> Value<'a> {
    /// The value's type.
    pub fn ty(&self) -> Type {
        match self {
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Document(_) => Type::Document,
            Value::Array(_) => Type::Array,
            Value::Binary { .. } => Type::Binary,
            Value::Undefined => Type::Undefined,
            Value::ObjectId(_) => Type::ObjectId,
            Value::Bool(_) => Type::Bool,
            Value::DateTime(_) => Type::DateTime,
            Value::Null => Type::Null,
            Value::Regex { .. } => Type::Regex,
            Value::DbPointer { .. } => Type::DbPointer,
            Value::Code(_) => Type::Code,
            Value::Symbol(_) => Type::Symbol,
            Value::CodeWithScope { .. } => Type::CodeWithScope,
            Value::Int32(_) => Type::Int32,
            Value::Timestamp { .. } => Type::Timestamp,
            Value::Int64(_) => Type::Int64,
            Value::Decimal128(_) => Type::Decimal128,
            Value::MaxKey => Type::MaxKey,
            Value::MinKey => Type::MinKey,
        }
    }

    /// MongoDB's alias of the value's type.
    pub fn type_name(&self) -> &'static str {
        self.ty().name()
    }

    /// True for the four numeric types.
    pub fn is_number(&self) -> bool {
        matches!(
            self,
            Value::Double(_) | Value::Int32(_) | Value::Int64(_) | Value::Decimal128(_)
        )
    }

    /// True for null and undefined.
    pub fn is_nullish(&self) -> bool {
        matches!(self, Value::Null | Value::Undefined)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&'a str> {
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// The document of a document value.
    pub fn as_doc(&self) -> Option<Doc<'a>> {
        match self {
            Value::Document(d) => Some(*d),
            _ => None,
        }
    }

    /// The elements of an array value.
    pub fn as_array(&self) -> Option<Doc<'a>> {
        match self {
            Value::Array(d) => Some(*d),
            _ => None,
        }
    }

    /// The value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// MongoDB's truth of a value: false, null, undefined and any numeric zero are false.
    pub fn truthy(&self) -> bool {
        match self {
            Value::Bool(b) => *b,
            Value::Null | Value::Undefined => false,
            Value::Int32(n) => *n != 0,
            Value::Int64(n) => *n != 0,
            Value::Double(n) => *n != 0.0,
            Value::Decimal128(_) => !crate::number::is_zero(*self),
            _ => true,
        }
    }

    /// The value as a whole number: int32, int64, or a double or decimal without fraction and
    /// in range.
    pub fn as_i64_exact(&self) -> Option<i64> {
        crate::number::to_i64_exact(*self)
    }
}

/// A view of one BSON document (or of the elements of an array), from its length prefix to its closing zero.
/// Creating a view checks nothing; reading is always bounds-checked. The bytes may be longer than the
/// document: the rest is not part of it, see [`Doc::behind`].
#[derive(Clone, Copy)]
pub struct Doc<'a>(&'a [u8]);

impl<'a> Doc<'a> {
    /// The empty document.
    pub const EMPTY: Doc<'static> = Doc(&[5, 0, 0, 0, 0]);

    /// A view of `bytes`, which must begin with a document that [`crate::validate()`] has accepted.
    pub fn new(bytes: &'a [u8]) -> Doc<'a> {
        Doc(bytes)
    }

    /// The bytes, from the length prefix to the closing zero.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0.get(..self.byte_len()).unwrap_or_default()
    }

    /// Size in bytes.
    #[inline]
    pub fn byte_len(&self) -> usize {
        // An impossible length means damage. Then all bytes count as the document.
        let len = self.0.first_chunk().map_or(0, |n| u32::from_le_bytes(*n)) as usize;
        if (5..=self.0.len()).contains(&len) {
            len
        } else {
            self.0.len()
        }
    }

    /// The bytes after the document among those that the view was made of. The documents of a pipeline have
    /// their metadata there.
    #[inline]
    pub fn behind(&self) -> &'a [u8] {
        self.0.get(self.byte_len()..).unwrap_or_default()
    }

    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.byte_len() <= 5
    }

    /// Iterates over the elements in order.
    pub fn iter(&self) -> DocIter<'a> {
        // The iteration ends at the closing zero, so later bytes do not matter.
        DocIter {
            bytes: self.0,
            pos: 4,
        }
    }

    /// Iterates over the elements from the one at `offset` on, which must come from [`DocIter::offset`] for
    /// these bytes.
    pub fn iter_from(&self, offset: usize) -> DocIter<'a> {
        DocIter {
            pos: offset,
            ..self.iter()
        }
    }

    /// Iterates over the values in order; for arrays.
    pub fn values(&self) -> impl Iterator<Item = Value<'a>> + Clone + use<'a> {
        self.iter().map(|e| e.value())
    }

    /// The number of elements, counted by walking over the bytes.
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// The element with this name.
    pub fn get_elem(&self, name: &str) -> Option<Elem<'a>> {
        self.iter().find(|e| e.is_named(name))
    }

    /// The value with this name.
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.get_elem(name).map(|e| e.value())
    }

    /// The string with this name, if there is one.
    pub fn get_str(&self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(|v| v.as_str())
    }

    /// The sub-document with this name, if there is one.
    pub fn get_doc(&self, name: &str) -> Option<Doc<'a>> {
        self.get(name).and_then(|v| v.as_doc())
    }

    /// The array with this name, if there is one.
    pub fn get_array(&self, name: &str) -> Option<Doc<'a>> {
        self.get(name).and_then(|v| v.as_array())
    }

    /// The first element.
    pub fn first(&self) -> Option<Elem<'a>> {
        self.iter().next()
    }

    /// An owned copy.
    pub fn to_buf(&self) -> crate::DocBuf {
        crate::DocBuf::from_doc(*self)
    }
}

/// Prints the display form, which limits the depth.
impl fmt::Debug for Doc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_display())
    }
}

/// One element of a document: its type, name and undecoded value.
#[derive(Clone, Copy)]
pub struct Elem<'a> {
    /// Type byte, name, zero, value. [`DocIter`] has checked that the type byte exists and is known.
    whole: &'a [u8],
    /// The offset of the value; the zero is right before it.
    value_at: usize,
}

impl<'a> Elem<'a> {
    /// The value's type, without decoding the value.
    #[inline]
    pub fn ty(&self) -> Type {
        self.whole
            .first()
            .and_then(|&b| Type::from_byte(b))
            .unwrap_or(Type::Null)
    }

    /// The name.
    #[inline]
    pub fn name(&self) -> &'a str {
        text(self.name_bytes())
    }

    /// The bytes of the name, which are cheaper to compare than [`Elem::name`].
    #[inline]
    pub fn name_bytes(&self) -> &'a [u8] {
        self.whole.get(1..self.value_at - 1).unwrap_or_default()
    }

    /// True if the element has this name.
    #[inline]
    pub fn is_named(&self, name: &str) -> bool {
        let (own, name) = (self.name_bytes(), name.as_bytes());
        // Names of the same length mostly differ in their first byte, which is cheaper to compare than a call
        // of memcmp.
        own.len() == name.len() && own.first() == name.first() && own == name
    }

    /// The value's bytes, without type and name.
    #[inline]
    pub fn raw_value(&self) -> &'a [u8] {
        self.whole.get(self.value_at..).unwrap_or_default()
    }

    /// The whole element: type byte, name, zero, value. Appending it to a document copies it.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.whole
    }

    /// The decoded value.
    #[inline]
    pub fn value(&self) -> Value<'a> {
        decode(self.ty(), self.raw_value())
    }
}

impl fmt::Debug for Elem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.name(), self.value())
    }
}

/// Iterator over a document's elements.
#[derive(Clone)]
pub struct DocIter<'a> {
    bytes: &'a [u8],
    pos: usize,
}

impl<'a> DocIter<'a> {
    /// The offset of the next element within the document's bytes.
    pub fn offset(&self) -> usize {
        self.pos
    }
}

impl<'a> Iterator for DocIter<'a> {
    type Item = Elem<'a>;

    #[inline]
    fn next(&mut self) -> Option<Elem<'a>> {
        let rest = self.bytes.get(self.pos..)?;
        let (&ty, named) = rest.split_first()?;
        let shape = *SHAPES.get(usize::from(ty))?;
        if shape == INVALID {
            return None;
        }
        let value_at = nul_at(named)? + 2;
        let value = rest.get(value_at..)?;
        let len = if shape <= FIXED_MAX {
            usize::from(shape)
        } else {
            shaped_len(shape, value)?
        };
        let whole = rest.get(..value_at.checked_add(len)?)?;
        self.pos += whole.len();
        Some(Elem { whole, value_at })
    }
}

impl<'a> IntoIterator for Doc<'a> {
    type Item = Elem<'a>;
    type IntoIter = DocIter<'a>;
    fn into_iter(self) -> DocIter<'a> {
        self.iter()
    }
}

pub(crate) fn le_i32(b: &[u8], at: usize) -> Option<i32> {
    let a: [u8; 4] = b.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(i32::from_le_bytes(a))
}

/// The offset of the first zero byte.
#[inline]
pub(crate) fn nul_at(b: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let mut at = 0;
    let mut rest = b;
    while let Some((chunk, more)) = rest.split_first_chunk::<8>() {
        let w = u64::from_le_bytes(*chunk);
        // The lowest set bit marks the first zero byte; bits above it may be false alarms.
        let zero = w.wrapping_sub(LOW) & !w & (LOW << 7);
        if zero != 0 {
            return Some(at + (zero.trailing_zeros() / 8) as usize);
        }
        at += 8;
        rest = more;
    }
    rest.iter().position(|&c| c == 0).map(|n| at + n)
}

/// The length of the text before the first zero byte, and whether it is ASCII; `None` if there
/// is no zero.
#[inline]
pub(crate) fn cstr_len(b: &[u8]) -> Option<(usize, bool)> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;
    let mut at = 0;
    let mut high = 0;
    while let Some(chunk) = b.get(at..).and_then(|r| r.first_chunk::<8>()) {
        let w = u64::from_le_bytes(*chunk);
        // The lowest set bit marks the first zero byte; bits above it may be false alarms.
        let zero = w.wrapping_sub(LOW) & !w & HIGH;
        if zero != 0 {
            let before = zero.trailing_zeros() & !7;
            high |= w & HIGH & !(u64::MAX << before);
            return Some((at + (before / 8) as usize, high == 0));
        }
        high |= w & HIGH;
        at += 8;
    }
    let tail = b.get(at..)?;
    let n = tail.iter().position(|&c| c == 0)?;
    let ascii = high == 0 && tail.get(..n)?.is_ascii();
    Some((at + n, ascii))
}

/// The shape of a value by its type byte: up to [`FIXED_MAX`] its length, otherwise one of the constants
/// below.
static SHAPES: [u8; 256] = shapes();
const FIXED_MAX: u8 = 16;
const INVALID: u8 = 0xFF;
const TEXT: u8 = 0x80;
const WHOLE: u8 = 0x81;
const BINARY: u8 = 0x82;
const REGEX: u8 = 0x83;
const POINTER: u8 = 0x84;

const fn shapes() -> [u8; 256] {
    let mut t = [INVALID; 256];
    t[Type::Double as usize] = 8;
    t[Type::String as usize] = TEXT;
    t[Type::Document as usize] = WHOLE;
    t[Type::Array as usize] = WHOLE;
    t[Type::Binary as usize] = BINARY;
    t[Type::Undefined as usize] = 0;
    t[Type::ObjectId as usize] = 12;
    t[Type::Bool as usize] = 1;
    t[Type::DateTime as usize] = 8;
    t[Type::Null as usize] = 0;
    t[Type::Regex as usize] = REGEX;
    t[Type::DbPointer as usize] = POINTER;
    t[Type::Code as usize] = TEXT;
    t[Type::Symbol as usize] = TEXT;
    t[Type::CodeWithScope as usize] = WHOLE;
    t[Type::Int32 as usize] = 4;
    t[Type::Timestamp as usize] = 8;
    t[Type::Int64 as usize] = 8;
    t[Type::Decimal128 as usize] = 16;
    t[Type::MaxKey as usize] = 0;
    t[Type::MinKey as usize] = 0;
    t
}

/// The length in bytes of a value with that shape at the front of `b`; `None` if `b` is too short to tell, or
/// the length is impossible.
#[inline]
fn shaped_len(shape: u8, b: &[u8]) -> Option<usize> {
    if shape == REGEX {
        let p = nul_at(b)?;
        return Some(p + nul_at(b.get(p + 1..)?)? + 2);
    }
    let n = i32::from_le_bytes(*b.first_chunk::<4>()?);
    let (extra, least) = match shape {
        TEXT => (4, 1),
        WHOLE => (0, 5),
        BINARY => (5, 0),
        _ => (4 + 12, 1),
    };
    if n < least {
        return None;
    }
    (n as usize).checked_add(extra)
}

/// Text that was valid when it was checked. Invalid text is replaced by a replacement character, so that a
/// view of unchecked bytes cannot cause undefined behaviour.
fn text(b: &[u8]) -> &str {
    std::str::from_utf8(b).unwrap_or("\u{FFFD}")
}

fn string(b: &[u8]) -> &str {
    let n = le_i32(b, 0).unwrap_or(1).max(1) as usize;
    text(b.get(4..4 + n - 1).unwrap_or_default())
}

fn array<const N: usize>(b: &[u8]) -> [u8; N] {
    b.get(..N).and_then(|s| s.try_into().ok()).unwrap_or([0; N])
}

/// Decodes `raw`, whose length [`shaped_len`] has determined.
#[inline]
pub(crate) fn decode(ty: Type, raw: &[u8]) -> Value<'_> {
    match ty {
        Type::Double => Value::Double(f64::from_le_bytes(array(raw))),
        Type::String => Value::String(string(raw)),
        Type::Document => Value::Document(Doc(raw)),
        Type::Array => Value::Array(Doc(raw)),
        Type::Binary => Value::Binary {
            subtype: raw.get(4).copied().unwrap_or(0),
            bytes: raw.get(5..).unwrap_or_default(),
        },
        Type::Undefined => Value::Undefined,
        Type::ObjectId => Value::ObjectId(array(raw)),
        Type::Bool => Value::Bool(raw.first().is_some_and(|&b| b != 0)),
        Type::DateTime => Value::DateTime(i64::from_le_bytes(array(raw))),
        Type::Null => Value::Null,
        Type::Regex => {
            let mut parts = raw.split(|&b| b == 0);
            Value::Regex {
                pattern: text(parts.next().unwrap_or_default()),
                options: text(parts.next().unwrap_or_default()),
            }
        }
        Type::DbPointer => {
            let at = raw.len().saturating_sub(12);
            Value::DbPointer {
                namespace: string(raw),
                id: array(raw.get(at..).unwrap_or_default()),
            }
        }
        Type::Code => Value::Code(string(raw)),
        Type::Symbol => Value::Symbol(string(raw)),
        Type::CodeWithScope => {
            let inner = raw.get(4..).unwrap_or_default();
            let n = 4 + le_i32(inner, 0).unwrap_or(1).max(1) as usize;
            Value::CodeWithScope {
                code: string(inner),
                scope: Doc(inner.get(n..).unwrap_or(Doc::EMPTY.0)),
            }
        }
        Type::Int32 => Value::Int32(i32::from_le_bytes(array(raw))),
        Type::Timestamp => {
            let n = u64::from_le_bytes(array(raw));
            Value::Timestamp {
                t: (n >> 32) as u32,
                i: n as u32,
            }
        }
        Type::Int64 => Value::Int64(i64::from_le_bytes(array(raw))),
        Type::Decimal128 => Value::Decimal128(array(raw)),
        Type::MaxKey => Value::MaxKey,
        Type::MinKey => Value::MinKey,
    }
}
