//! Building BSON: owned documents and arrays, and the [`doc!`](crate::doc) and
//! [`array!`](crate::array) macros.

use crate::raw::{Doc, Elem, Type, Value, decode};
use std::fmt;

/// A type that can be a value in a document.
pub trait Put {
    /// The BSON type of the value.
    fn put_type(&self) -> Type;
    /// Appends the value's bytes (without type and name).
    fn put(&self, out: &mut Vec<u8>);
}

/// An owned BSON document, always complete and well formed.
#[derive(Clone)]
pub struct DocBuf(
    /// An empty vector means the empty document, which therefore costs no allocation. Most options of most
    /// commands are empty documents.
    Vec<u8>,
);

/// An owned BSON array.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ArrayBuf {
    doc: DocBuf,
    next: u32,
}

/// An owned BSON value.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ValueBuf {
    ty: Type,
    raw: Vec<u8>,
}

impl DocBuf {
    /// The empty document.
    pub fn new() -> DocBuf {
        DocBuf(Vec::new())
    }

    /// The empty document with room for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> DocBuf {
        DocBuf(Vec::with_capacity(bytes.max(5)))
    }

    /// A copy of `doc`.
    pub fn from_doc(doc: Doc<'_>) -> DocBuf {
        match doc.is_empty() {
            true => DocBuf::new(),
            false => DocBuf(doc.as_bytes().to_vec()),
        }
    }

    /// Takes `bytes`, which must be one whole document that was validated or built here.
    pub fn from_bytes_trusted(bytes: Vec<u8>) -> DocBuf {
        DocBuf(bytes)
    }

    /// A view of the document.
    pub fn as_doc(&self) -> Doc<'_> {
        Doc::new(self.as_bytes())
    }

    /// The bytes of the document.
    pub fn as_bytes(&self) -> &[u8] {
        match self.0.is_empty() {
            true => Doc::EMPTY.as_bytes(),
            false => &self.0,
        }
    }

    /// The bytes of the document, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        match self.0.is_empty() {
            true => Doc::EMPTY.as_bytes().to_vec(),
            false => self.0,
        }
    }

    fn reopen(&mut self) {
        if self.0.pop().is_none() {
            self.0.reserve(64);
            self.0.extend_from_slice(&[0; 4]);
        }
    }

    fn close(&mut self) {
        self.0.push(0);
        let n = (self.0.len() as u32).to_le_bytes();
        if let Some(head) = self.0.get_mut(..4) {
            head.copy_from_slice(&n);
        }
    }

    /// Appends `name: value`. BSON names cannot have a NUL, so the name is cut at one.
    pub fn append(&mut self, name: &str, value: impl Put) -> &mut DocBuf {
        self.append_ref(name, &value)
    }

    /// Does the same as [`DocBuf::append`], by reference.
    pub fn append_ref(&mut self, name: &str, value: &(impl Put + ?Sized)) -> &mut DocBuf {
        self.reopen();
        self.0.push(value.put_type() as u8);
        put_cstring(name, &mut self.0);
        value.put(&mut self.0);
        self.close();
        self
    }

    /// Appends `name: value` when there is a value.
    pub fn append_some(&mut self, name: &str, value: Option<impl Put>) -> &mut DocBuf {
        if let Some(v) = value {
            self.append(name, v);
        }
        self
    }

    /// Appends a copy of an element of another document.
    pub fn append_elem(&mut self, elem: Elem<'_>) -> &mut DocBuf {
        self.reopen();
        self.0.extend_from_slice(elem.as_bytes());
        self.close();
        self
    }

    /// Appends copies of all elements of `other`.
    pub fn append_all(&mut self, other: Doc<'_>) -> &mut DocBuf {
        if other.is_empty() {
            return self;
        }
        self.reopen();
        let b = other.as_bytes();
        self.0
            .extend_from_slice(b.get(4..b.len().saturating_sub(1)).unwrap_or_default());
        self.close();
        self
    }
}

impl PartialEq for DocBuf {
    fn eq(&self, other: &DocBuf) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for DocBuf {}

impl std::hash::Hash for DocBuf {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Default for DocBuf {
    fn default() -> DocBuf {
        DocBuf::new()
    }
}

impl std::ops::Deref for DocBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for DocBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_doc().fmt(f)
    }
}

impl ArrayBuf {
    /// The empty array.
    pub fn new() -> ArrayBuf {
        ArrayBuf {
            doc: DocBuf::new(),
            next: 0,
        }
    }

    /// Appends a value.
    pub fn push(&mut self, value: impl Put) -> &mut ArrayBuf {
        let mut digits = [0u8; 10];
        let name = decimal(self.next, &mut digits);
        self.doc.append(name, value);
        self.next += 1;
        self
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.next as usize
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.next == 0
    }

    /// A view of the elements.
    pub fn as_doc(&self) -> Doc<'_> {
        self.doc.as_doc()
    }
}

impl Default for ArrayBuf {
    fn default() -> ArrayBuf {
        ArrayBuf::new()
    }
}

impl fmt::Debug for ArrayBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_doc().values()).finish()
    }
}

impl<T: Put> FromIterator<T> for ArrayBuf {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> ArrayBuf {
        let mut a = ArrayBuf::new();
        for v in iter {
            a.push(v);
        }
        a
    }
}

/// The decimal digits of `n`: the name of the n-th array element.
fn decimal(n: u32, buf: &mut [u8; 10]) -> &str {
    let mut at = buf.len();
    let mut n = n;
    loop {
        at -= 1;
        if let Some(b) = buf.get_mut(at) {
            *b = b'0' + (n % 10) as u8;
        }
        n /= 10;
        if n == 0 || at == 0 {
            break;
        }
    }
    std::str::from_utf8(buf.get(at..).unwrap_or_default()).unwrap_or("0")
}

impl ValueBuf {
    /// An owned copy of `value`.
    pub fn new(value: impl Put) -> ValueBuf {
        let mut raw = Vec::new();
        value.put(&mut raw);
        ValueBuf {
            ty: value.put_type(),
            raw,
        }
    }

    pub(crate) fn from_raw(ty: Type, raw: Vec<u8>) -> ValueBuf {
        ValueBuf { ty, raw }
    }

    /// A view of the value.
    pub fn as_value(&self) -> Value<'_> {
        decode(self.ty, &self.raw)
    }

    /// The value's bytes, without type and name.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// The type.
    pub fn ty(&self) -> Type {
        self.ty
    }
}

impl fmt::Debug for ValueBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_value().fmt(f)
    }
}

fn put_string(s: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&((s.len() + 1) as u32).to_le_bytes());
    out.extend_from_slice(s.as_bytes());
    out.push(0);
}

/// Appends a text that cannot have a NUL, and is cut at one.
fn put_cstring(s: &str, out: &mut Vec<u8>) {
    let s = s.as_bytes();
    let end = crate::raw::nul_at(s).unwrap_or(s.len());
    out.extend_from_slice(s.get(..end).unwrap_or_default());
    out.push(0);
}

macro_rules! put_number {
    ($($t:ty => $ty:ident),*) => {$(
        impl Put for $t {
            fn put_type(&self) -> Type { Type::$ty }
            fn put(&self, out: &mut Vec<u8>) { out.extend_from_slice(&self.to_le_bytes()); }
        }
    )*};
}
put_number!(i32 => Int32, i64 => Int64, f64 => Double);

impl Put for bool {
    fn put_type(&self) -> Type {
        Type::Bool
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl Put for str {
    fn put_type(&self) -> Type {
        Type::String
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_string(self, out);
    }
}

impl Put for String {
    fn put_type(&self) -> Type {
        Type::String
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_string(self, out);
    }
}

impl Put for Doc<'_> {
    fn put_type(&self) -> Type {
        Type::Document
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl Put for DocBuf {
    fn put_type(&self) -> Type {
        Type::Document
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
}

impl Put for ArrayBuf {
    fn put_type(&self) -> Type {
        Type::Array
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.doc.as_bytes());
    }
}

impl Put for ValueBuf {
    fn put_type(&self) -> Type {
        self.ty
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.raw);
    }
}

impl Put for Elem<'_> {
    fn put_type(&self) -> Type {
        self.ty()
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.raw_value());
    }
}

impl Put for Value<'_> {
    fn put_type(&self) -> Type {
        self.ty()
    }
    fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Value::Double(n) => n.put(out),
            Value::String(s) | Value::Code(s) | Value::Symbol(s) => put_string(s, out),
            Value::Document(d) | Value::Array(d) => out.extend_from_slice(d.as_bytes()),
            Value::Binary { subtype, bytes } => {
                out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                out.push(subtype);
                out.extend_from_slice(bytes);
            }
            Value::Undefined | Value::Null | Value::MaxKey | Value::MinKey => {}
            Value::ObjectId(id) => out.extend_from_slice(&id),
            Value::Bool(b) => out.push(u8::from(b)),
            Value::DateTime(n) | Value::Int64(n) => n.put(out),
            Value::Regex { pattern, options } => {
                put_cstring(pattern, out);
                put_cstring(options, out);
            }
            Value::DbPointer { namespace, id } => {
                put_string(namespace, out);
                out.extend_from_slice(&id);
            }
            Value::CodeWithScope { code, scope } => {
                let n = 4 + 4 + code.len() + 1 + scope.byte_len();
                out.extend_from_slice(&(n as u32).to_le_bytes());
                put_string(code, out);
                out.extend_from_slice(scope.as_bytes());
            }
            Value::Int32(n) => n.put(out),
            Value::Timestamp { t, i } => {
                out.extend_from_slice(&((u64::from(t) << 32) | u64::from(i)).to_le_bytes());
            }
            Value::Decimal128(b) => out.extend_from_slice(&b),
        }
    }
}

/// A document with these fields, which is written directly to its place.
impl<const N: usize> Put for [(&str, Value<'_>); N] {
    fn put_type(&self) -> Type {
        Type::Document
    }
    fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        for (name, value) in self {
            out.push(value.put_type() as u8);
            put_cstring(name, out);
            value.put(out);
        }
        out.push(0);
        let len = ((out.len() - start) as u32).to_le_bytes();
        if let Some(head) = out.get_mut(start..start + 4) {
            head.copy_from_slice(&len);
        }
    }
}

impl<T: Put + ?Sized> Put for &T {
    fn put_type(&self) -> Type {
        (**self).put_type()
    }
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }
}

/// `None` is null.
impl<T: Put> Put for Option<T> {
    fn put_type(&self) -> Type {
        self.as_ref().map_or(Type::Null, Put::put_type)
    }
    fn put(&self, out: &mut Vec<u8>) {
        if let Some(v) = self {
            v.put(out);
        }
    }
}

/// Builds a [`DocBuf`]: `doc! { "ok": 1.0, "cursor": doc! { "id": 0_i64 } }`.
#[macro_export]
macro_rules! doc {
    () => { $crate::DocBuf::new() };
    ($($name:literal : $value:expr),+ $(,)?) => {{
        let mut d = $crate::DocBuf::new();
        $( d.append($name, $value); )+
        d
    }};
}

/// Builds an [`ArrayBuf`]: `array![1, "two", doc! {}]`.
#[macro_export]
macro_rules! array {
    ($($value:expr),* $(,)?) => {{
        #[allow(unused_mut)]
        let mut a = $crate::ArrayBuf::new();
        $( a.push($value); )*
        a
    }};
}

#[cfg(test)]
mod tests {
    use crate::{Value, validate};

    #[test]
    fn nul_in_names_and_patterns_cuts_them() {
        let re = Value::Regex {
            pattern: "a\0b",
            options: "i\0",
        };
        let d = doc! { "x\0y": 1, "re": re };
        assert!(validate(d.as_bytes()).is_ok());
        assert_eq!(d.as_doc().to_display(), "{ x: 1, re: /a/i }");
    }

    #[test]
    fn array_names_count() {
        let a: crate::ArrayBuf = (0..1001).collect();
        assert!(
            a.as_doc()
                .iter()
                .enumerate()
                .all(|(i, e)| e.name() == i.to_string())
        );
        assert_eq!(a.len(), 1001);
    }
}
