//! The difference of two documents in the form of MongoDB's oplog (`{$v: 2, diff: …}`): finding it, applying
//! it and describing it.
//!
//! A difference of documents has the sections `d` (removed fields), `u` (fields with new values), and `i`
//! (new fields, which are at the end). The differences of fields' contents are named `s` followed by the
//! field's name. A difference of arrays is marked with `a: true` and has `l` (the new length), `u<index>` and
//! `s<index>`.
//!
//! Applying a difference twice has the same result as applying it once: a field that is not as the difference
//! expects stays as it is.

mod apply;
mod describe;
mod encode;
#[cfg(test)]
mod tests;

pub use apply::apply;
pub use describe::{Description, describe};
pub use encode::{Below, encode, encode_by};

use muniment_value::{Doc, Elem, Error, Result, Value};

/// Arrays are not made longer than this many elements, as by updates with a far index.
const MAX_LENGTH: usize = 1_500_000;

/// The sections of a difference of documents.
#[derive(Clone, Copy)]
struct Sections<'d> {
    diff: Doc<'d>,
    /// Removed fields.
    gone: Doc<'d>,
    updates: Doc<'d>,
    /// Fields that are removed at their old place and added at the end.
    inserts: Doc<'d>,
}

impl<'d> Sections<'d> {
    /// Fails with 9 FailedToParse if it is not a difference of documents.
    fn of(diff: Doc<'d>) -> Result<Sections<'d>> {
        unique(diff)?;
        let mut s = Sections {
            diff,
            gone: Doc::EMPTY,
            updates: Doc::EMPTY,
            inserts: Doc::EMPTY,
        };
        for section in diff {
            let Value::Document(d) = section.value() else {
                return Err(malformed(section));
            };
            unique(d)?;
            match section.name_bytes() {
                b"d" => s.gone = d,
                b"u" => s.updates = d,
                b"i" => s.inserts = d,
                [b's', ..] => {}
                _ => return Err(malformed(section)),
            }
        }
        Ok(s)
    }

    /// The differences of the contents of fields, by the fields' names.
    fn below(&self) -> impl Iterator<Item = (&'d str, Doc<'d>)> + use<'d> {
        self.diff
            .iter()
            .filter_map(|e| Some((e.name().strip_prefix('s')?, e.value().as_doc()?)))
    }
}

/// Fails if a name occurs twice in a difference.
fn unique(d: Doc<'_>) -> Result<()> {
    let mut seen = Few::<Name<'_>>::new();
    for e in d {
        seen.push(e.name_bytes());
    }
    let seen = seen.as_mut_slice();
    seen.sort_unstable();
    for pair in seen.windows(2) {
        if let [a, b] = pair
            && a == b
        {
            let twice = d.iter().find(|e| e.name_bytes() == *a);
            return twice.map_or(Ok(()), |e| Err(malformed(e)));
        }
    }
    Ok(())
}

fn is_array(diff: Doc<'_>) -> bool {
    diff.first()
        .is_some_and(|e| e.name_bytes() == b"a" && matches!(e.value(), Value::Bool(true)))
}

/// The meaning of an element of a difference of arrays, after the mark.
enum Change<'d> {
    Length(usize),
    Update(usize, Elem<'d>),
    Below(usize, Doc<'d>),
}

/// Fails with 9 FailedToParse for an element that is not allowed in a difference of arrays.
fn array_change(e: Elem<'_>) -> Result<Change<'_>> {
    if e.name_bytes() == b"l" {
        return e
            .value()
            .as_i64_exact()
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| *n <= MAX_LENGTH)
            .map(Change::Length)
            .ok_or_else(|| malformed(e));
    }
    let index = e.name().strip_prefix(['u', 's']).map(str::parse::<usize>);
    let Some(Ok(index)) = index else {
        return Err(malformed(e));
    };
    match e.value() {
        _ if index >= MAX_LENGTH => Err(malformed(e)),
        _ if e.name_bytes().first() == Some(&b'u') => Ok(Change::Update(index, e)),
        Value::Document(diff) => Ok(Change::Below(index, diff)),
        _ => Err(malformed(e)),
    }
}

fn malformed(e: Elem<'_>) -> Error {
    Error::failed_to_parse(format!(
        "A difference of documents has no field '{}' of type {}",
        e.name(),
        e.value().type_name()
    ))
}

/// A field's name as bytes.
type Name<'a> = &'a [u8];

/// The number of items that [`Few`] holds without an allocation.
const FEW: usize = 8;

/// A list that usually has only a few items, and then does not allocate.
struct Few<T> {
    few: [T; FEW],
    len: usize,
    /// All items, if there are too many for `few`.
    many: Vec<T>,
}

impl<T: Copy + Default> Few<T> {
    #[inline]
    fn new() -> Few<T> {
        Few {
            few: [T::default(); FEW],
            len: 0,
            many: Vec::new(),
        }
    }

    #[inline]
    fn push(&mut self, t: T) {
        if let Some(place) = self.few.get_mut(self.len) {
            *place = t;
            self.len += 1;
            return;
        }
        if self.many.is_empty() {
            self.many.extend_from_slice(&self.few);
        }
        self.many.push(t);
    }

    #[inline]
    fn as_slice(&self) -> &[T] {
        match self.many.is_empty() {
            true => self.few.get(..self.len).unwrap_or_default(),
            false => &self.many,
        }
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [T] {
        match self.many.is_empty() {
            true => self.few.get_mut(..self.len).unwrap_or_default(),
            false => &mut self.many,
        }
    }
}

/// The index in `sorted` of the first item with this name.
#[inline]
fn position<T>(sorted: &[T], name: Name<'_>, of: impl Fn(&T) -> Name<'_>) -> Option<usize> {
    if sorted.len() <= FEW {
        // Names of the same length usually differ in their first byte, so comparing that first is cheaper
        // than calling memcmp.
        return sorted.iter().position(|t| {
            let n = of(t);
            n.len() == name.len() && n.first() == name.first() && n == name
        });
    }
    let at = sorted.partition_point(|t| of(t) < name);
    sorted.get(at).filter(|t| of(t) == name).map(|_| at)
}
