//! Building BSON values in the evaluation's bump arena.
//!
//! A value under construction grows in a scratch buffer that the thread reuses; the finished bytes are copied
//! into the arena once. The sizes are bounded, so that no expression can use up the memory.

use crate::running::Work;
use bumpalo::Bump;
use muniment_value::{Code, Doc, Error, Put, Result, Type, Value};
use std::cell::{Cell, RefCell};
use std::ops::Deref;

/// The largest single value an expression may build, in bytes: MongoDB's buffer limit.
pub const MAX_VALUE: usize = 64 << 20;

/// The most bytes that the evaluation of one document may hold in its arena.
pub const MAX_ARENA: usize = 256 << 20;

/// How many steps the loops of the expressions on one document may take.
pub const MAX_STEPS: u64 = if cfg!(test) { 100_000 } else { 50_000_000 };

/// After this many steps the operation checks whether it may continue.
const CHECK_EVERY: u64 = 1024;

/// The deepest nesting of a value in a variable.
const MAX_VALUE_DEPTH: usize = 400;

/// Where an evaluation puts what it computes, and what it works for.
pub struct Arena<'o> {
    bump: Bump,
    /// What loops ask.
    pub work: Work<'o>,
    /// How many steps the loops of the expressions on the document have taken.
    steps: Cell<u64>,
}

impl<'o> Arena<'o> {
    /// An empty arena.
    pub fn new(work: Work<'o>) -> Arena<'o> {
        Arena::of(Bump::new(), work)
    }

    fn of(bump: Bump, work: Work<'o>) -> Arena<'o> {
        Arena {
            bump,
            work,
            steps: Cell::new(0),
        }
    }
}

impl Deref for Arena<'_> {
    type Target = Bump;

    fn deref(&self) -> &Bump {
        &self.bump
    }
}

/// Begins a new document, whose loops have taken no steps yet.
pub(super) fn start_steps(arena: &Arena<'_>) {
    arena.steps.set(0);
}

/// Counts a step.
///
/// # Errors
/// 402 ResourceExhausted beyond [`MAX_STEPS`].
pub(super) fn step(arena: &Arena<'_>) -> Result<()> {
    let n = arena.steps.get() + 1;
    arena.steps.set(n);
    if n.is_multiple_of(CHECK_EVERY) {
        arena.work.check()?;
    }
    if n > MAX_STEPS {
        return Err(Error::new(
            Code::ResourceExhausted,
            format!(
                "the loops of the expressions on one document took more than {MAX_STEPS} steps"
            ),
        ));
    }
    Ok(())
}

/// Fails if `v` nests too deeply for a variable.
///
/// # Errors
/// 15 Overflow.
pub(super) fn check_depth(v: Value<'_>) -> Result<()> {
    fn deeper(v: Value<'_>, levels: usize) -> bool {
        match v {
            Value::Document(_) | Value::Array(_) if levels == 0 => true,
            Value::Document(d) | Value::Array(d) => d
                .iter()
                .filter(|e| matches!(e.ty(), Type::Document | Type::Array))
                .any(|e| deeper(e.value(), levels - 1)),
            _ => false,
        }
    }
    if deeper(v, MAX_VALUE_DEPTH) {
        return Err(Error::new(
            Code::Overflow,
            format!("an expression's value exceeds the nesting depth of {MAX_VALUE_DEPTH}"),
        ));
    }
    Ok(())
}

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static ARENAS: RefCell<Vec<Bump>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` with an empty arena whose memory the thread reuses.
pub fn with_arena<T>(work: Work<'_>, f: impl FnOnce(&Arena<'_>) -> T) -> T {
    let bump = ARENAS.with_borrow_mut(Vec::pop).unwrap_or_default();
    let arena = Arena::of(bump, work);
    let out = f(&arena);
    let Arena { mut bump, .. } = arena;
    bump.reset();
    if bump.allocated_bytes() <= 1 << 20 {
        ARENAS.with_borrow_mut(|pool| pool.push(bump));
    }
    out
}

fn with_scratch<T>(f: impl FnOnce(&mut Vec<u8>) -> Result<T>) -> Result<T> {
    let mut buf = SCRATCH.with_borrow_mut(Vec::pop).unwrap_or_default();
    buf.clear();
    let out = f(&mut buf);
    if buf.capacity() <= 1 << 20 {
        SCRATCH.with_borrow_mut(|pool| pool.push(buf));
    }
    out
}

/// Fails if there is no room for `bytes` more.
///
/// # Errors
/// 10334 if a single value is too large, 146 if there is too much in the arena.
pub fn check_size(arena: &Arena<'_>, bytes: usize) -> Result<()> {
    if bytes > MAX_VALUE {
        return Err(Error::new(
            Code::BSONObjectTooLarge,
            format!(
                "an expression's value of {bytes} bytes exceeds the limit of {MAX_VALUE} bytes"
            ),
        ));
    }
    if arena.allocated_bytes().saturating_add(bytes) > MAX_ARENA {
        return Err(Error::new(
            Code::ExceededMemoryLimit,
            format!("the expressions on one document need more than {MAX_ARENA} bytes"),
        ));
    }
    Ok(())
}

/// The least length, in bytes, that is too long for a string.
const MAX_STRING: usize = 16 << 20;

/// Fails if a string of this many bytes is too long.
///
/// # Errors
/// 16493.
pub fn check_string(bytes: usize) -> Result<()> {
    if bytes >= MAX_STRING {
        return Err(Error::location(
            16493,
            "Tried to create string longer than 16MB",
        ));
    }
    Ok(())
}

/// A copy of `text` in the arena.
///
/// # Errors
/// 16493 if the text is too long; see [`check_size`].
pub fn alloc_str<'a>(arena: &'a Arena<'_>, text: &str) -> Result<&'a str> {
    check_string(text.len())?;
    check_size(arena, text.len())?;
    Ok(arena.alloc_str(text))
}

/// A deep copy of `value` in the arena, for values outside of it.
///
/// # Errors
/// See [`check_size`].
pub fn copy_value<'a>(arena: &'a Arena<'_>, value: Value<'_>) -> Result<Value<'a>> {
    let copy_doc = |d: Doc<'_>| -> Result<Doc<'a>> {
        check_size(arena, d.byte_len())?;
        Ok(Doc::new(arena.alloc_slice_copy(d.as_bytes())))
    };
    Ok(match value {
        Value::Double(n) => Value::Double(n),
        Value::String(s) => Value::String(alloc_str(arena, s)?),
        Value::Document(d) => Value::Document(copy_doc(d)?),
        Value::Array(d) => Value::Array(copy_doc(d)?),
        Value::Binary { subtype, bytes } => {
            check_size(arena, bytes.len())?;
            Value::Binary {
                subtype,
                bytes: arena.alloc_slice_copy(bytes),
            }
        }
        Value::Undefined => Value::Undefined,
        Value::ObjectId(id) => Value::ObjectId(id),
        Value::Bool(b) => Value::Bool(b),
        Value::DateTime(n) => Value::DateTime(n),
        Value::Null => Value::Null,
        Value::Regex { pattern, options } => Value::Regex {
            pattern: alloc_str(arena, pattern)?,
            options: alloc_str(arena, options)?,
        },
        Value::DbPointer { namespace, id } => Value::DbPointer {
            namespace: alloc_str(arena, namespace)?,
            id,
        },
        Value::Code(s) => Value::Code(alloc_str(arena, s)?),
        Value::Symbol(s) => Value::Symbol(alloc_str(arena, s)?),
        Value::CodeWithScope { code, scope } => Value::CodeWithScope {
            code: alloc_str(arena, code)?,
            scope: copy_doc(scope)?,
        },
        Value::Int32(n) => Value::Int32(n),
        Value::Timestamp { t, i } => Value::Timestamp { t, i },
        Value::Int64(n) => Value::Int64(n),
        Value::Decimal128(b) => Value::Decimal128(b),
        Value::MaxKey => Value::MaxKey,
        Value::MinKey => Value::MinKey,
    })
}

/// Writes a document's elements into a buffer.
pub struct DocWriter<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
}

impl<'b> DocWriter<'b> {
    /// Starts a document at the end of `out`.
    pub fn new(out: &'b mut Vec<u8>) -> DocWriter<'b> {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        DocWriter { out, start }
    }

    /// Appends `name: value`.
    pub fn put(&mut self, name: &str, value: &(impl Put + ?Sized)) {
        self.out.push(value.put_type() as u8);
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(0);
        value.put(self.out);
    }

    /// The number of bytes so far.
    pub fn byte_len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Closes the document.
    pub fn finish(self) {
        self.out.push(0);
        let len = (self.out.len() - self.start) as u32;
        if let Some(head) = self.out.get_mut(self.start..self.start + 4) {
            head.copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// Writes an array's elements into a buffer.
pub struct ArrayWriter<'b> {
    doc: DocWriter<'b>,
    next: u32,
    work: Work<'b>,
}

impl<'b> ArrayWriter<'b> {
    /// Starts an array at the end of `out`.
    pub fn new(out: &'b mut Vec<u8>, work: Work<'b>) -> ArrayWriter<'b> {
        ArrayWriter {
            doc: DocWriter::new(out),
            next: 0,
            work,
        }
    }

    /// Appends a value.
    ///
    /// # Errors
    /// 10334 if the array becomes larger than [`MAX_VALUE`].
    pub fn push(&mut self, value: &(impl Put + ?Sized)) -> Result<()> {
        self.work.steps(16)?;
        let out = &mut *self.doc.out;
        out.push(value.put_type() as u8);
        push_decimal(self.next, out);
        out.push(0);
        value.put(out);
        self.next = self.next.wrapping_add(1);
        if self.doc.byte_len() > MAX_VALUE {
            return Err(Error::new(
                Code::BSONObjectTooLarge,
                format!("an expression's array exceeds the limit of {MAX_VALUE} bytes"),
            ));
        }
        Ok(())
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.next as usize
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.next == 0
    }

    /// Closes the array.
    pub fn finish(self) {
        self.doc.finish();
    }
}

fn push_decimal(n: u32, out: &mut Vec<u8>) {
    let mut div = 1;
    while n / div >= 10 {
        div *= 10;
    }
    while div > 0 {
        out.push(b'0' + (n / div % 10) as u8);
        div /= 10;
    }
}

/// Builds a document in the arena.
///
/// # Errors
/// Those of `f`; see [`check_size`].
pub fn build_doc<'a>(
    arena: &'a Arena<'_>,
    f: impl FnOnce(&mut DocWriter<'_>) -> Result<()>,
) -> Result<Doc<'a>> {
    with_scratch(|buf| {
        let mut w = DocWriter::new(buf);
        f(&mut w)?;
        w.finish();
        check_size(arena, buf.len())?;
        Ok(Doc::new(arena.alloc_slice_copy(buf)))
    })
}

/// Builds an array in the arena.
///
/// # Errors
/// Those of `f`; see [`check_size`].
pub fn build_array<'a>(
    arena: &'a Arena<'_>,
    f: impl FnOnce(&mut ArrayWriter<'_>) -> Result<()>,
) -> Result<Doc<'a>> {
    with_scratch(|buf| {
        let mut w = ArrayWriter::new(buf, arena.work);
        f(&mut w)?;
        w.finish();
        check_size(arena, buf.len())?;
        Ok(Doc::new(arena.alloc_slice_copy(buf)))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn arrays_number_their_elements() {
        let bump = Arena::new(Work::unasked());
        let a = build_array(&bump, |w| {
            for i in 0..1001 {
                w.push(&i)?;
            }
            Ok(())
        })
        .unwrap();
        for (i, e) in a.iter().enumerate() {
            assert_eq!(e.name(), i.to_string());
        }
        assert_eq!(a.count(), 1001);
    }

    #[test]
    fn nested_builders_do_not_share_a_buffer() {
        let bump = Arena::new(Work::unasked());
        let d = build_doc(&bump, |w| {
            w.put("a", &1);
            let inner = build_doc(&bump, |w| {
                w.put("x", &2);
                Ok(())
            })?;
            w.put("b", &Value::Document(inner));
            Ok(())
        })
        .unwrap();
        assert_eq!(
            d.as_bytes(),
            muniment_value::doc! { "a": 1, "b": muniment_value::doc! { "x": 2 } }.as_bytes()
        );
    }
}
