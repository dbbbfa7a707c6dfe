//! Columns: binary data of subtype 7, in which MongoDB keeps the values of one field of a
//! time-series bucket. Reading only.
//!
//! Format (MongoDB's *BSON column*): a sequence of parts that ends with a zero byte. Each part begins with a
//! control byte:
//!
//! - a BSON type (0x01…0x1F, 0x7F, 0xFF): a literal, which is an element with an empty name;
//! - 0x80…0xDF: differences from the previous value; the high half is the scale of doubles, the low half is
//!   the number of Simple-8b words that follow, minus one ([`simple8b`], [`state`]);
//! - 0xF0, 0xF1, 0xF2: interleaved documents (0xF2: arrays). A reference document follows, then the parts of
//!   the streams of its scalars, each at the point where its stream runs out of values, and a zero byte. With
//!   0xF0 arrays are scalars.
//!
//! Invariants: no input can make the reader panic, allocate more than the column's size for one value, or
//! return anything that is not well-formed BSON. The number of values is not known before they are read, and
//! may be far more than the number of bytes, so the caller has to limit it.

mod simple8b;
mod state;
#[cfg(test)]
mod tests;

use crate::validate::{MAX_DEPTH, value_len};
use crate::{Code, Doc, Error, Result, Type};
use state::State;

/// The subtype of binary data that has a column.
pub const COLUMN_SUBTYPE: u8 = 7;

/// The deepest nesting of a value. A value is part of a measurement, which may be stored.
const DEPTH: usize = MAX_DEPTH - 1;

/// The content of one row of a column.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a> {
    /// There are no more rows.
    End,
    /// The field is missing.
    Missing,
    /// The type of the value, and its bytes without type and name.
    Value(Type, &'a [u8]),
}

/// Reads the values of a column one after another.
pub struct ColumnReader<'a> {
    bytes: &'a [u8],
    at: usize,
    state: State<'a>,
    /// The interleaved documents that are being read, if any.
    parts: Option<Parts<'a>>,
    ended: bool,
}

/// Interleaved documents as streams of their scalars.
struct Parts<'a> {
    root: Type,
    steps: Vec<Part<'a>>,
    states: Vec<State<'a>>,
    /// The last document; empty if it was missing.
    row: Vec<u8>,
    /// Where the elements and the lengths of the open documents begin in `row`.
    open: Vec<(usize, usize)>,
}

/// A step in the reconstruction of a document.
#[derive(Clone, Copy)]
enum Part<'a> {
    Enter(Type, &'a [u8]),
    /// The scalar with this number.
    Scalar(usize, &'a [u8]),
    /// `true`: the reference document is empty, too.
    Leave(bool),
}

fn invalid(what: &str) -> Error {
    Error::new(
        Code::InvalidBSON,
        format!("Invalid BSON Column encoding: {what}"),
    )
}

/// Checks the value of type `ty` at the front of `bytes`, and returns its bytes.
fn value_at(ty: Type, bytes: &[u8], depth: usize) -> Result<&[u8]> {
    let len = value_len(ty as u8, bytes, depth);
    len.and_then(|n| bytes.get(..n))
        .ok_or_else(|| invalid("a value is not well-formed BSON"))
}

/// The most streams of an interleaved column. Each takes some hundred bytes while it is read, and a reference
/// document may have one in every two bytes.
const MOST_STREAMS: usize = 1 << 16;

/// The number of elements of a document and of all documents in it.
fn scalars(d: Doc<'_>) -> usize {
    d.iter()
        .map(|e| match e.value() {
            crate::Value::Document(d) | crate::Value::Array(d) => 1 + scalars(d),
            _ => 1,
        })
        .sum()
}

impl<'a> ColumnReader<'a> {
    /// A reader of the data of a binary value of subtype 7.
    pub fn new(bytes: &'a [u8]) -> ColumnReader<'a> {
        ColumnReader {
            bytes,
            at: 0,
            state: State::default(),
            parts: None,
            ended: false,
        }
    }

    /// The next row.
    ///
    /// # Errors
    /// 22 InvalidBSON.
    #[allow(clippy::should_implement_trait)] // the result borrows from the reader
    pub fn next(&mut self) -> Result<Cell<'_>> {
        if self.ended {
            return Ok(Cell::End);
        }
        if self.parts.is_some() && self.next_document()? {
            return Ok(self.document());
        }
        loop {
            if let Some(there) = self.state.next()? {
                return Ok(if there {
                    self.state.cell()
                } else {
                    Cell::Missing
                });
            }
            match self.bytes.get(self.at).copied() {
                Some(0) if self.at + 1 == self.bytes.len() => {
                    self.ended = true;
                    return Ok(Cell::End);
                }
                Some(control @ 0xF0..=0xF2) => {
                    self.open_documents(control)?;
                    return match self.next_document()? {
                        true => Ok(self.document()),
                        false => Err(invalid("documents without any")),
                    };
                }
                _ => {
                    let (bytes, at) = (self.bytes, &mut self.at);
                    if load(bytes, at, &mut self.state, DEPTH)? {
                        return Ok(self.state.cell());
                    }
                }
            }
        }
    }

    fn document(&self) -> Cell<'_> {
        match &self.parts {
            Some(p) if !p.row.is_empty() => Cell::Value(p.root, p.row.get(2..).unwrap_or_default()),
            _ => Cell::Missing,
        }
    }

    fn open_documents(&mut self, control: u8) -> Result<()> {
        let rest = self.bytes.get(self.at + 1..).unwrap_or_default();
        let reference = value_at(Type::Document, rest, DEPTH)?;
        self.at += 1 + reference.len();
        let root = match control {
            0xF2 => Type::Array,
            _ => Type::Document,
        };
        if scalars(Doc::new(reference)) > MOST_STREAMS {
            return Err(invalid("documents with too many scalars"));
        }
        let mut parts = Parts {
            root,
            steps: Vec::new(),
            states: Vec::new(),
            row: Vec::new(),
            open: Vec::new(),
        };
        parts.take_apart(root, b"", Doc::new(reference), control != 0xF0);
        if parts.states.is_empty() {
            return Err(invalid("documents without a scalar"));
        }
        self.parts = Some(parts);
        Ok(())
    }

    /// Reconstructs the next document. Returns false if there is none any more, and the column continues with
    /// other parts.
    fn next_document(&mut self) -> Result<bool> {
        let Some(parts) = &mut self.parts else {
            return Ok(false);
        };
        let last = std::mem::take(&mut parts.row);
        for i in 0..parts.steps.len() {
            match parts.steps.get(i).copied() {
                Some(Part::Enter(ty, name)) => {
                    let element = parts.row.len();
                    parts.row.push(ty as u8);
                    parts.row.extend_from_slice(name);
                    parts.row.push(0);
                    parts.open.push((element, parts.row.len()));
                    parts.row.extend_from_slice(&[0; 4]);
                }
                Some(Part::Scalar(n, name)) => {
                    let Some(state) = parts.states.get_mut(n) else {
                        return Err(invalid("documents without a scalar"));
                    };
                    let there = match state.next()? {
                        Some(there) => there,
                        None if self.bytes.get(self.at) == Some(&0) => {
                            self.at += 1;
                            return self.close_documents(n, last);
                        }
                        None => {
                            let left = DEPTH.saturating_sub(parts.open.len()).max(1);
                            load(self.bytes, &mut self.at, state, left)?
                                || state.next()?.ok_or_else(|| invalid("no words"))?
                        }
                    };
                    if there && let Cell::Value(ty, raw) = state.cell() {
                        parts.row.push(ty as u8);
                        parts.row.extend_from_slice(name);
                        parts.row.push(0);
                        parts.row.extend_from_slice(raw);
                    }
                }
                Some(Part::Leave(empty)) => parts.leave(empty),
                None => {}
            }
        }
        Ok(true)
    }

    /// Handles the zero byte after documents, at which the stream `n` has run out of values.
    fn close_documents(&mut self, n: usize, last: Vec<u8>) -> Result<bool> {
        let Some(mut parts) = self.parts.take() else {
            return Ok(false);
        };
        if n != 0 {
            return Err(invalid("documents end within one"));
        }
        for state in &mut parts.states {
            if state.next()?.is_some() {
                return Err(invalid("a stream is longer than the first"));
            }
        }
        let ty = (!last.is_empty()).then_some(parts.root);
        let raw = last.get(2..).unwrap_or_default().to_vec();
        self.state = State::behind(ty, raw);
        Ok(false)
    }
}

/// Reads the part at `at`, which is a literal nested at most `depth` deep (true: it is the next value) or
/// words.
fn load<'a>(bytes: &'a [u8], at: &mut usize, state: &mut State<'a>, depth: usize) -> Result<bool> {
    let rest = bytes.get(*at..).unwrap_or_default();
    let Some((&control, behind)) = rest.split_first() else {
        return Err(invalid("no end"));
    };
    if let 0x01..=0x1F | 0x7F | 0xFF = control {
        let (Some(ty), Some((0, value))) = (Type::from_byte(control), behind.split_first()) else {
            return Err(invalid("a literal that there is not"));
        };
        let value = value_at(ty, value, depth)?;
        state.literal(ty, value);
        *at += 2 + value.len();
        return Ok(true);
    }
    let words = (usize::from(control & 15) + 1) * 8;
    let Some(words) = behind.get(..words) else {
        return Err(invalid("words are cut off"));
    };
    state.deltas(control, words)?;
    *at += 1 + words.len();
    Ok(false)
}

impl<'a> Parts<'a> {
    fn take_apart(&mut self, ty: Type, name: &'a [u8], reference: Doc<'a>, arrays: bool) {
        self.steps.push(Part::Enter(ty, name));
        for e in reference {
            let inner = match e.ty() {
                Type::Document => true,
                Type::Array => arrays,
                _ => false,
            };
            if inner {
                let d = Doc::new(e.raw_value());
                self.take_apart(e.ty(), e.name_bytes(), d, arrays);
            } else {
                let mut state = State::default();
                state.literal(e.ty(), e.raw_value());
                self.steps
                    .push(Part::Scalar(self.states.len(), e.name_bytes()));
                self.states.push(state);
            }
        }
        self.steps.push(Part::Leave(reference.is_empty()));
    }

    /// Ends a document. An empty document is left out, unless that of the reference is empty, too.
    fn leave(&mut self, empty: bool) {
        let Some((element, at)) = self.open.pop() else {
            return;
        };
        if self.row.len() == at + 4 && !empty {
            self.row.truncate(element);
            return;
        }
        self.row.push(0);
        let len = (self.row.len() - at) as u32;
        if let Some(to) = self.row.get_mut(at..at + 4) {
            to.copy_from_slice(&len.to_le_bytes());
        }
    }
}
