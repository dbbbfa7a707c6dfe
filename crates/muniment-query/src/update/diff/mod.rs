//! The difference of two documents as MongoDB's oplog has it (`{$v: 2, diff: …}`): found, applied
//! and described.
//!
//! A difference of documents has the sections `d` (fields that go), `u` (fields that become another
//! value), `i` (fields that are new, which stand at the end) and, named `s` and the field's name, the
//! differences of what lies below a field. A difference of arrays is marked `a: true` and has `l` (the
//! new length), `u<index>` and `s<index>`.
//!
//! Applying one twice does what applying it once does: what is not as the difference expects it
//! stays as it is.

mod apply;
mod describe;
mod encode;
#[cfg(test)]
mod tests;

pub use apply::apply;
pub use describe::{Description, describe};
pub use encode::{Below, encode, encode_by};

use muniment_value::{Doc, Elem, Error, Result, Value};

/// Arrays are not lengthened beyond this many elements, as by updates of a far index.
const MAX_LENGTH: usize = 1_500_000;

/// A difference of documents, taken apart.
#[derive(Clone, Copy)]
struct Sections<'d> {
    diff: Doc<'d>,
    /// Fields that go.
    gone: Doc<'d>,
    updates: Doc<'d>,
    /// Fields that go where they are, and stand at the end.
    inserts: Doc<'d>,
}

impl<'d> Sections<'d> {
    /// 9 FailedToParse for what is no difference of documents.
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

    /// The differences of what lies below fields, by the fields' names.
    fn below(&self) -> impl Iterator<Item = (&'d str, Doc<'d>)> + use<'d> {
        self.diff
            .iter()
            .filter_map(|e| Some((e.name().strip_prefix('s')?, e.value().as_doc()?)))
    }
}

/// No name may stand twice in a difference.
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

/// What an element of a difference of arrays, after its mark, says.
enum Change<'d> {
    Length(usize),
    Update(usize, Elem<'d>),
    Below(usize, Doc<'d>),
}

/// 9 FailedToParse for what cannot stand in a difference of arrays.
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

/// A field's name as it stands in the bytes.
type Name<'a> = &'a [u8];

/// How many things [`Few`] holds without an allocation.
const FEW: usize = 8;

/// A list that mostly has a few things, and then needs no allocation.
struct Few<T> {
    few: [T; FEW],
    len: usize,
    /// All of them, once they are more.
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

/// The place in `sorted` of the first thing with this name.
#[inline]
fn position<T>(sorted: &[T], name: Name<'_>, of: impl Fn(&T) -> Name<'_>) -> Option<usize> {
    if sorted.len() <= FEW {
        // Names of one length mostly differ in their first byte: cheaper than a call of memcmp.
        return sorted.iter().position(|t| {
            let n = of(t);
            n.len() == name.len() && n.first() == name.first() && n == name
        });
    }
    let at = sorted.partition_point(|t| of(t) < name);
    sorted.get(at).filter(|t| of(t) == name).map(|_| at)
}
