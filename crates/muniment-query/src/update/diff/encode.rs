//! Finds the difference of two documents.
//!
//! Must not: write a difference that [`super::apply()`] does not turn into exactly the new document;
//! recovery stands on it.

use super::{Few, MAX_LENGTH, Name, position};
use crate::bytes::{IndexName, MAX_DOCUMENT, close, head, open};
use muniment_value::{Doc, Elem, Type};

/// Appends the difference that leads from `old` to `new`, a document with MongoDB's sections, to
/// `out`; it is empty when nothing differs. [`super::apply()`] makes of `old` and the difference
/// `new`, byte for byte.
///
/// Returns false, and leaves `out` as it was, where there is no such difference: a field that
/// changes has a name that stands there twice, or `new` is larger than a document may be. What lies
/// below a field is never a reason, since the field can take its new value as a whole.
///
/// The difference may be larger than `new`: a caller that has the choice compares. A field with fields
/// below takes its new value as a whole where that is shorter.
pub fn encode(old: Doc<'_>, new: Doc<'_>, out: &mut Vec<u8>) -> bool {
    encode_at(old, new, None, out)
}

/// Whether what lies below a field, given with the names that lead to it, was changed by itself:
/// then it is told of, and else the field's new value as a whole.
pub type Below<'p> = &'p dyn Fn(&[&[u8]]) -> bool;

/// As [`encode`], but `below` decides about what is told of fields with fields below.
pub fn encode_by(old: Doc<'_>, new: Doc<'_>, below: Below<'_>, out: &mut Vec<u8>) -> bool {
    let mut way = Way {
        below,
        names: Vec::new(),
    };
    encode_at(old, new, Some(&mut way), out)
}

/// Where in a document its difference is being found.
struct Way<'p, 'a> {
    below: Below<'p>,
    names: Vec<&'a [u8]>,
}

fn encode_at<'a>(
    old: Doc<'_>,
    new: Doc<'a>,
    way: Option<&mut Way<'_, 'a>>,
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    let exact = new.byte_len() <= MAX_DOCUMENT && document(old, new, usize::MAX, way, out);
    if !exact {
        out.truncate(start);
    }
    exact
}

/// What becomes of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// Is not at its place in the new document.
    #[default]
    Gone,
    /// As `Gone`, and the new document has ended.
    GoneLast,
    /// Another value at its place.
    Update,
    /// A difference of what lies below it is written.
    Below,
    /// Stands at the end of the new document.
    Insert,
}

/// A field that differs. The order is that of names.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Field<'a> {
    name: Name<'a>,
    fate: Fate,
    /// The new element, of `Update`.
    elem: &'a [u8],
}

/// Appends the difference of two documents. False, with something written, when there is none or
/// it is certain to have `limit` bytes or more.
fn document<'a>(
    old: Doc<'_>,
    new: Doc<'a>,
    limit: usize,
    mut way: Option<&mut Way<'_, 'a>>,
    out: &mut Vec<u8>,
) -> bool {
    let (a, b) = (old.as_bytes(), new.as_bytes());
    let (old, new) = (Doc::new(a), Doc::new(b));
    let start = open(out);
    let mut fields = Few::<Field<'_>>::new();
    let mut updated = 0;
    let mut elems = old.iter();
    let mut at = 4;
    while let Some(was) = elems.next() {
        let rest = b.get(at..).unwrap_or_default();
        if rest.starts_with(was.as_bytes()) {
            at += was.as_bytes().len();
            continue;
        }
        let name = was.name_bytes();
        let mut field = Field {
            name,
            ..Field::default()
        };
        match new.iter_from(at).next() {
            Some(is) if is.name_bytes() == name => {
                at += is.as_bytes().len();
                field.fate = Fate::Below;
                if !below(was, is, name, way.as_deref_mut(), out) {
                    field.fate = Fate::Update;
                    field.elem = is.as_bytes();
                    updated += is.as_bytes().len();
                }
            }
            Some(_) => {}
            None => field.fate = Fate::GoneLast,
        }
        fields.push(field);
        if out.len() - start + updated >= limit {
            return false;
        }
        if a.get(elems.offset()..) == b.get(at..) {
            at = b.len().saturating_sub(1);
            break;
        }
    }
    let below_end = out.len();
    let inserted = b.get(at..b.len().saturating_sub(1)).unwrap_or_default();
    if below_end - start + updated + inserted.len() >= limit {
        return false;
    }
    let mut rest = new.iter_from(at);
    for e in rest.by_ref() {
        fields.push(Field {
            name: e.name_bytes(),
            fate: Fate::Insert,
            elem: &[],
        });
    }
    if rest.offset() + 1 != b.len() {
        return false;
    }
    if !fields.as_slice().is_empty() {
        let Some(sorted) = by_name(old, &fields) else {
            return false;
        };
        gone(fields.as_slice(), sorted.as_slice(), out);
    }
    if updated > 0 {
        let at = section(b'u', out);
        for f in fields.as_slice() {
            out.extend_from_slice(f.elem);
        }
        close(out, at);
    }
    if !inserted.is_empty() {
        let at = section(b'i', out);
        out.extend_from_slice(inserted);
        close(out, at);
    }
    // What lies below was written first, since only then it was known that it is no update.
    if let Some(body) = out.get_mut(start + 4..) {
        body.rotate_left(below_end - start - 4);
    }
    close(out, start);
    true
}

fn section(name: u8, out: &mut Vec<u8>) -> usize {
    head(out, Type::Document, &[name]);
    open(out)
}

/// The fields sorted by their names; `None` if not all of them can be told by their names: what
/// applies the difference does to each field of a name the same.
fn by_name<'a>(old: Doc<'_>, fields: &Few<Field<'a>>) -> Option<Few<Field<'a>>> {
    let mut sorted = Few::new();
    let mut in_old = 0;
    for f in fields.as_slice() {
        sorted.push(*f);
        in_old += usize::from(f.fate != Fate::Insert);
    }
    sorted.as_mut_slice().sort_unstable();
    for pair in sorted.as_slice().windows(2) {
        if let [a, b] = pair
            && a.name == b.name
            && (a.fate, b.fate) != (Fate::Gone, Fate::Insert)
        {
            return None;
        }
    }
    // No field that stays as it is may have one of the names.
    let mut named = 0;
    let mut elems = old.iter();
    for e in elems.by_ref() {
        named += usize::from(position(sorted.as_slice(), e.name_bytes(), |f| f.name).is_some());
    }
    (named == in_old && elems.offset() + 1 == old.byte_len()).then_some(sorted)
}

/// Appends the section of the fields that go and do not come again: those after the end of the
/// new document as they stand, then the others by name, as MongoDB has them.
fn gone(fields: &[Field<'_>], sorted: &[Field<'_>], out: &mut Vec<u8>) {
    let at = section(b'd', out);
    let empty = out.len();
    for f in fields.iter().filter(|f| f.fate == Fate::GoneLast) {
        head(out, Type::Bool, f.name);
        out.push(0);
    }
    let mut sorted = sorted.iter().peekable();
    while let Some(f) = sorted.next() {
        // An insert of the same name stands next.
        let again = sorted.peek().is_some_and(|next| next.name == f.name);
        if f.fate == Fate::Gone && !again {
            head(out, Type::Bool, f.name);
            out.push(0);
        }
    }
    match out.len() == empty {
        // Type, name, zero and length of the section.
        true => out.truncate(at.saturating_sub(3)),
        false => close(out, at),
    }
}

/// Appends the difference of what lies below two elements as `s` and `name`, if there is one that
/// is shorter than the new value, or wanted whatever its length.
fn below<'a>(
    was: Elem<'_>,
    is: Elem<'a>,
    name: Name<'_>,
    way: Option<&mut Way<'_, 'a>>,
    out: &mut Vec<u8>,
) -> bool {
    let ty = is.ty();
    if was.ty() != ty {
        return false;
    }
    let diff = match ty {
        Type::Document => document,
        Type::Array => array,
        _ => return false,
    };
    let start = out.len();
    out.extend_from_slice(&[Type::Document as u8, b's']);
    out.extend_from_slice(name);
    out.push(0);
    let at = out.len();
    let (old, new) = (Doc::new(was.raw_value()), Doc::new(is.raw_value()));
    let shorter = match way {
        None => {
            let limit = new.byte_len();
            diff(old, new, limit, None, out) && out.len() - at < limit
        }
        Some(way) => {
            way.names.push(is.name_bytes());
            let wanted = (way.below)(&way.names) && diff(old, new, usize::MAX, Some(way), out);
            way.names.pop();
            wanted
        }
    };
    if !shorter {
        out.truncate(start);
    }
    shorter
}

/// As [`document`], of two arrays. The new one's elements must be named as an array's are, for
/// applying names them so.
fn array<'a>(
    old: Doc<'_>,
    new: Doc<'a>,
    limit: usize,
    mut way: Option<&mut Way<'_, 'a>>,
    out: &mut Vec<u8>,
) -> bool {
    let start = open(out);
    out.extend_from_slice(&[Type::Bool as u8, b'a', 0, 1]);
    let mut had = old.iter();
    let mut elems = new.iter();
    let mut length = 0;
    for is in elems.by_ref() {
        let name = IndexName::new(length);
        if is.name_bytes() != name.as_bytes() || length >= MAX_LENGTH {
            return false;
        }
        length += 1;
        let was = had.next();
        if let Some(was) = was {
            if was.ty() == is.ty() && was.raw_value() == is.raw_value() {
                continue;
            }
            if below(was, is, name.as_bytes(), way.as_deref_mut(), out) {
                continue;
            }
        }
        out.extend_from_slice(&[is.ty() as u8, b'u']);
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out.extend_from_slice(is.raw_value());
        if out.len() - start >= limit {
            return false;
        }
    }
    if elems.offset() + 1 != new.byte_len() {
        return false;
    }
    if had.next().is_some() {
        // The new length stands first.
        let at = start + 8;
        let end = out.len();
        head(out, Type::Int32, b"l");
        out.extend_from_slice(&(length as u32).to_le_bytes());
        let put = out.len() - end;
        if let Some(body) = out.get_mut(at..) {
            body.rotate_right(put);
        }
    }
    close(out, start);
    true
}
