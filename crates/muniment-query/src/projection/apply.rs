//! Applies a projection in one pass over the raw document.

use super::{Action, Fields, Mode, Projection};
use crate::bytes::{IndexName, body, close, head, open, put};
use crate::context::MatchInfo;
use crate::expr::EvalContext;
use crate::expr::arena::Arena;
use crate::filter::Filter;
use crate::running::Work;
use muniment_value::{Doc, Elem, Error, Result, Type, Value};

#[derive(Clone, Copy)]
struct Cx<'a> {
    mode: Mode,
    eval: EvalContext<'a>,
    /// Tells the matched element of the first array below a positional field.
    info: MatchInfo,
    /// True below the array that has been cut to that element.
    cut: bool,
}

pub(super) fn apply<'a>(
    p: &'a Projection,
    doc: Doc<'a>,
    info: MatchInfo,
    arena: &'a Arena<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    let cx = Cx {
        mode: p.mode,
        eval: EvalContext::new(doc, arena),
        info,
        cut: false,
    };
    let result = cx.document(&p.root, doc, out);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// The fields of a level that a document has shown, by their places in it. The first 64 need no allocation.
#[derive(Default)]
struct Seen {
    early: u64,
    late: Vec<usize>,
}

impl Seen {
    /// Adds a field; false if it was there.
    #[inline]
    fn insert(&mut self, i: usize) -> bool {
        let new = !self.contains(i);
        match i < 64 {
            true => self.early |= 1 << i,
            false if new => self.late.push(i),
            false => {}
        }
        new
    }

    #[inline]
    fn contains(&self, i: usize) -> bool {
        match i < 64 {
            true => self.early & (1 << i) != 0,
            false => self.late.contains(&i),
        }
    }

    #[inline]
    fn remove(&mut self, i: usize) {
        match i < 64 {
            true => self.early &= !(1 << i),
            false => self.late.retain(|s| *s != i),
        }
    }
}

impl<'a> Cx<'a> {
    fn keeps(&self) -> bool {
        self.mode != Mode::Inclusion
    }

    /// Projects `doc` by `level`.
    fn document(&self, level: &'a Fields, doc: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
        let start = open(out);
        let mut seen = Seen::default();
        let mut left = level.fields.len();
        let bytes = doc.as_bytes();
        // The bytes from `run` to the current element are still to be copied.
        let mut run = 4;
        let mut elems = doc.iter();
        while left > 0 {
            let at = elems.offset();
            let Some(e) = elems.next() else { break };
            let Some(i) = level.find(e.name_bytes()) else {
                if !self.keeps() {
                    out.extend_from_slice(bytes.get(run..at).unwrap_or_default());
                    run = elems.offset();
                }
                continue;
            };
            let Some(field) = level.fields.get(i) else {
                continue;
            };
            if !seen.insert(i) {
                // If several fields have the same name, only the first one counts.
                if !self.keeps() {
                    out.extend_from_slice(bytes.get(run..at).unwrap_or_default());
                    run = elems.offset();
                }
                continue;
            }
            left -= 1;
            if matches!(field.action, Action::Include) {
                continue;
            }
            out.extend_from_slice(bytes.get(run..at).unwrap_or_default());
            run = elems.offset();
            if !self.existing(&field.action, e, out)? {
                // The field was not written at its old place. A value of it is written after the others, below.
                seen.remove(i);
            }
        }
        let end = if self.keeps() {
            bytes.len().saturating_sub(1)
        } else {
            elems.offset()
        };
        out.extend_from_slice(bytes.get(run..end).unwrap_or_default());
        if level.computes {
            for (i, field) in level.fields.iter().enumerate() {
                if !seen.contains(i) {
                    self.missing(field.name.as_bytes(), &field.action, doc, out)?;
                }
            }
        }
        close(out, start);
        Ok(())
    }

    /// Writes the result for an existing element. False if the result has to be written after the other
    /// fields.
    fn existing(&self, action: &'a Action, e: Elem<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let name = e.name_bytes();
        match action {
            Action::Include => out.extend_from_slice(e.as_bytes()),
            Action::Exclude => {}
            Action::Slice { skip, limit } => slice(e, *skip, *limit, out),
            Action::Positional => self.positional(e, out)?,
            Action::ElemMatch(filter) if self.keeps() => {
                elem_match(filter, e, out, self.eval.work())?
            }
            Action::Compute(expr) if self.keeps() => {
                if let Some(v) = expr.eval(&self.eval)? {
                    put(out, name, &v);
                }
            }
            Action::ElemMatch(_) | Action::Compute(_) => return Ok(false),
            Action::Below(level) => return self.below(level, name, e, out),
        }
        Ok(true)
    }

    /// Projects the value of `e` by the fields below it.
    fn below(
        &self,
        level: &'a Fields,
        name: &[u8],
        e: Elem<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match e.value() {
            Value::Document(d) => {
                head(out, Type::Document, name);
                self.document(level, d, out)?;
            }
            Value::Array(a) => {
                let one = !self.cut && only_positional(level);
                let index = match (one, self.info.array_index) {
                    (false, _) => None,
                    (true, Some(i)) => Some(i),
                    (true, None) => return Err(no_match()),
                };
                head(out, Type::Array, name);
                let inner = Cx {
                    cut: self.cut || one,
                    ..*self
                };
                inner.array(level, a, index, out)?;
            }
            _ if level.computes && !self.keeps() => return Ok(false),
            _ if self.mode == Mode::Addition => {
                head(out, Type::Document, name);
                self.document(level, Doc::EMPTY, out)?;
            }
            _ if self.keeps() => out.extend_from_slice(e.as_bytes()),
            _ => {}
        }
        Ok(true)
    }

    /// Projects every element of an array. With `only`, it keeps a single one: the element at that index
    /// among those that the inclusion leaves. The inclusion comes before the cut, so elements without fields
    /// do not count.
    fn array(
        &self,
        level: &'a Fields,
        array: Doc<'_>,
        only: Option<usize>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = open(out);
        let mut n = 0;
        if let Some(only) = only {
            let stays = |e: &Elem<'_>| matches!(e.value(), Value::Document(_) | Value::Array(_));
            let e = array.iter().filter(stays).nth(only).ok_or_else(mismatch)?;
            return self.cut_to(level, e, start, out);
        }
        for e in array.iter() {
            let name = IndexName::new(n);
            let name = name.as_bytes();
            match e.value() {
                Value::Document(d) => {
                    head(out, Type::Document, name);
                    self.document(level, d, out)?;
                }
                Value::Array(a) => {
                    head(out, Type::Array, name);
                    self.array(level, a, None, out)?;
                }
                _ if level.computes => {
                    head(out, Type::Document, name);
                    self.document(level, Doc::EMPTY, out)?;
                }
                _ if self.keeps() => put(out, name, &e),
                _ => continue,
            }
            n += 1;
        }
        close(out, start);
        Ok(())
    }

    /// Writes the only element of an array that was begun at `start`.
    fn cut_to(
        &self,
        level: &'a Fields,
        e: Elem<'_>,
        start: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match e.value() {
            Value::Document(d) => {
                head(out, Type::Document, b"0");
                self.document(level, d, out)?;
            }
            Value::Array(a) => {
                head(out, Type::Array, b"0");
                self.array(level, a, None, out)?;
            }
            _ => {}
        }
        close(out, start);
        Ok(())
    }

    /// Writes a computed field that the document does not have, or that is not written at its old place.
    fn missing(
        &self,
        name: &[u8],
        action: &'a Action,
        doc: Doc<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match action {
            Action::Compute(expr) => {
                if let Some(v) = expr.eval(&self.eval)? {
                    put(out, name, &v);
                }
            }
            Action::ElemMatch(filter) => {
                let found = doc.iter().find(|e| e.name_bytes() == name);
                if let Some(e) = found {
                    elem_match(filter, e, out, self.eval.work())?;
                }
            }
            Action::Below(level) if level.computes => {
                head(out, Type::Document, name);
                self.document(level, Doc::EMPTY, out)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The end of the path of `a.$`: cuts an array to the matched element.
    fn positional(&self, e: Elem<'_>, out: &mut Vec<u8>) -> Result<()> {
        let array = match e.value() {
            Value::Array(array) if !self.cut => array,
            _ => {
                out.extend_from_slice(e.as_bytes());
                return Ok(());
            }
        };
        let index = self.info.array_index.ok_or_else(no_match)?;
        let item = array.iter().nth(index).ok_or_else(mismatch)?;
        head(out, Type::Array, e.name_bytes());
        let start = open(out);
        put(out, b"0", &item);
        close(out, start);
        Ok(())
    }
}

/// Whether the array at this level is the one that a positional operator below cuts.
fn only_positional(level: &Fields) -> bool {
    level.fields.iter().any(|f| match &f.action {
        Action::Positional => true,
        Action::Below(below) => only_positional(below),
        _ => false,
    })
}

fn no_match() -> Error {
    Error::location(
        51246,
        "positional operator '.$' couldn't find a matching element in the array",
    )
}

fn mismatch() -> Error {
    Error::location(51247, "positional operator '.$' element mismatch")
}

/// find's `$slice`: a part of an array. Other values stay as they are.
fn slice(e: Elem<'_>, skip: i64, limit: i64, out: &mut Vec<u8>) {
    let Value::Array(array) = e.value() else {
        out.extend_from_slice(e.as_bytes());
        return;
    };
    let first = if skip < 0 {
        let back = usize::try_from(skip.unsigned_abs()).unwrap_or(usize::MAX);
        array.count().saturating_sub(back)
    } else {
        usize::try_from(skip).unwrap_or(usize::MAX)
    };
    let limit = usize::try_from(limit).unwrap_or(0);
    head(out, Type::Array, e.name_bytes());
    let start = open(out);
    if first == 0 && limit >= array.count() {
        out.extend_from_slice(body(array));
    } else {
        for (n, item) in array.iter().skip(first).take(limit).enumerate() {
            put(out, IndexName::new(n).as_bytes(), &item);
        }
    }
    close(out, start);
}

/// `$elemMatch`: writes the first element that matches, if there is one.
fn elem_match(filter: &Filter, e: Elem<'_>, out: &mut Vec<u8>, work: Work<'_>) -> Result<()> {
    let Value::Array(array) = e.value() else {
        return Ok(());
    };
    let mut wrapped = Vec::new();
    for item in array {
        wrapped.clear();
        let start = open(&mut wrapped);
        head(&mut wrapped, Type::Array, b"e");
        let inner = open(&mut wrapped);
        put(&mut wrapped, b"0", &item);
        close(&mut wrapped, inner);
        close(&mut wrapped, start);
        if filter.matches(Doc::new(&wrapped), work)? {
            head(out, Type::Array, e.name_bytes());
            let start = open(out);
            put(out, b"0", &item);
            close(out, start);
            break;
        }
    }
    Ok(())
}
