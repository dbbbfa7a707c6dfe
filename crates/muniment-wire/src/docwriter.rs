//! Writing a document field by field straight into a buffer, so that a reply is built in place:
//! the stored documents of a cursor's batch are copied once, from the storage into the reply.

use crate::frame::set_i32;
use muniment_value::{Doc, Put, Type};

/// Writes one document at the end of a buffer. Sub-documents and arrays are opened and closed;
/// [`DocWriter::finish`] closes what is still open.
pub struct DocWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Where the open documents start, outermost first; the `u32` is the number of the next array element.
    open: Vec<(usize, u32)>,
    start: (usize, u32),
}

impl<'o> DocWriter<'o> {
    /// Begins a document at the end of `out`.
    pub fn begin(out: &'o mut Vec<u8>) -> DocWriter<'o> {
        let start = (out.len(), 0);
        out.extend_from_slice(&[0; 4]);
        DocWriter {
            out,
            open: Vec::new(),
            start,
        }
    }

    fn name(&mut self, ty: Type, name: &str) {
        self.out.push(ty as u8);
        let end = name.find('\0').unwrap_or(name.len());
        self.out
            .extend_from_slice(name.get(..end).unwrap_or_default().as_bytes());
        self.out.push(0);
    }

    /// Appends `name: value` to the innermost open document. A NUL cuts the name there.
    pub fn field(&mut self, name: &str, value: impl Put) -> &mut Self {
        self.name(value.put_type(), name);
        value.put(self.out);
        self
    }

    /// Appends all elements of `doc`.
    pub fn elements(&mut self, doc: Doc<'_>) -> &mut Self {
        let b = doc.as_bytes();
        self.out
            .extend_from_slice(b.get(4..b.len().saturating_sub(1)).unwrap_or_default());
        self
    }

    fn open(&mut self, ty: Type, name: &str) -> &mut Self {
        self.name(ty, name);
        self.open.push((self.out.len(), 0));
        self.out.extend_from_slice(&[0; 4]);
        self
    }

    /// Opens the sub-document `name`.
    pub fn open_document(&mut self, name: &str) -> &mut Self {
        self.open(Type::Document, name)
    }

    /// Opens the array `name`; fill it with [`DocWriter::item`].
    pub fn open_array(&mut self, name: &str) -> &mut Self {
        self.open(Type::Array, name)
    }

    /// Appends the next element of the innermost open array.
    pub fn item(&mut self, value: impl Put) -> &mut Self {
        let (_, number) = self.open.last_mut().unwrap_or(&mut self.start);
        let n = *number;
        *number += 1;
        self.out.push(value.put_type() as u8);
        let mut digits = [0u8; 10];
        self.out.extend_from_slice(decimal(n, &mut digits));
        self.out.push(0);
        value.put(self.out);
        self
    }

    /// Closes the innermost open document or array.
    pub fn close(&mut self) -> &mut Self {
        if let Some((at, _)) = self.open.pop() {
            self.end(at);
        }
        self
    }

    fn end(&mut self, at: usize) {
        self.out.push(0);
        // A document whose size exceeds an i32 exceeds a message, too, which the message's `finish` refuses.
        let len = (self.out.len() - at) as i32;
        set_i32(self.out, at, len);
    }

    /// The buffer, for a caller that appends whole elements of the innermost open document.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Bytes written so far.
    pub fn byte_len(&self) -> usize {
        self.out.len() - self.start.0
    }

    /// Closes everything and returns the document's size in bytes.
    pub fn finish(mut self) -> usize {
        while !self.open.is_empty() {
            self.close();
        }
        self.end(self.start.0);
        self.out.len() - self.start.0
    }
}

/// The decimal digits of `n`.
fn decimal(n: u32, buf: &mut [u8; 10]) -> &[u8] {
    let mut at = buf.len();
    let mut n = n;
    for (i, b) in buf.iter_mut().enumerate().rev() {
        *b = b'0' + (n % 10) as u8;
        at = i;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    buf.get(at..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use muniment_value::{array, doc};

    #[test]
    fn writes_what_the_builders_write() {
        let mut out = vec![1, 2, 3];
        let mut w = DocWriter::begin(&mut out);
        w.open_document("cursor").open_array("firstBatch");
        for i in 0..12 {
            w.item(doc! { "_id": i });
        }
        w.close().field("id", 0_i64).field("ns", "db.c").close();
        w.field("ok", 1.0);
        let n = w.finish();
        let batch = (0..12).map(|i| doc! { "_id": i }).collect();
        let _: &muniment_value::ArrayBuf = &batch;
        let expected = doc! {
            "cursor": doc! { "firstBatch": batch, "id": 0_i64, "ns": "db.c" },
            "ok": 1.0,
        };
        assert_eq!(&out[3..], expected.as_bytes());
        assert_eq!(n, expected.as_bytes().len());
    }

    #[test]
    fn finish_closes_what_is_open() {
        let mut out = Vec::new();
        let mut w = DocWriter::begin(&mut out);
        w.open_document("a").open_array("b").item(1).item("x");
        w.finish();
        assert_eq!(out, doc! { "a": doc! { "b": array![1, "x"] } }.as_bytes());
    }

    #[test]
    fn numbers_in_decimal() {
        let mut b = [0; 10];
        for n in [0, 9, 10, 4_294_967_295] {
            assert_eq!(decimal(n, &mut b), n.to_string().as_bytes());
        }
    }
}
