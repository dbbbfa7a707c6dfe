//! Finds the difference of two documents.
//!
//! Must not: write a difference that [`super::apply()`] does not turn into exactly the new document. Recovery
//! depends on this.

use super::{Few, MAX_LENGTH, Name, position};
use crate::bytes::{IndexName, MAX_DOCUMENT, close, head, open};
use muniment_value::{Doc, Elem, Type};

/// Appends the difference from `old` to `new`, a document with MongoDB's sections, to `out`. It is empty if
/// the documents are equal. Applying it to `old` with [`super::apply()`] gives `new`, byte for byte.
///
/// Returns false, and leaves `out` as it was, if there is no such difference: because the name of a changed
/// field occurs twice, or `new` is larger than a document may be. Contents below a field are never a reason,
/// because the field can get its new value as a whole.
///
/// The difference may be larger than `new`, so a caller that can choose should compare the sizes. A field
/// with fields below it gets its new value as a whole if that is shorter.
pub fn encode(old: Doc<'_>, new: Doc<'_>, out: &mut Vec<u8>) -> bool {
    encode_at(old, new, None, out)
}

/// Decides about a field, given by the names that lead to it: true if its contents were changed separately,
/// so that their differences are written; false if the field's new value is written as a whole.
pub type Below<'p> = &'p dyn Fn(&[&[u8]]) -> bool;

/// As [`encode`], but `below` decides how changes of fields with fields below them are written.
pub fn encode_by(old: Doc<'_>, new: Doc<'_>, below: Below<'_>, out: &mut Vec<u8>) -> bool {
    let mut way = Way {
        below,
        names: Vec::new(),
    };
    encode_at(old, new, Some(&mut way), out)
}

/// The place in the documents whose difference is being determined.
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

/// The change to a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// It is not at its place in the new document.
    #[default]
    Gone,
    /// It is gone, and the new document has no further fields.
    GoneLast,
    /// It has another value at its place.
    Update,
    /// The difference of its contents is written.
    Below,
    /// It is at the end of the new document.
    Insert,
}

/// A field that differs. Fields are ordered by name.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Field<'a> {
    name: Name<'a>,
    fate: Fate,
    /// The new element, if it is an update.
    elem: &'a [u8],
}

/// Appends the difference of two documents. If there is none, or if it is certain to have at least `limit`
/// bytes, the result is false, and something may have been written.
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
    // The differences below fields were written first, since only they tell which fields are no updates.
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

/// The fields sorted by their names; `None` if the names do not identify them. Applying a difference changes
/// all fields of a name in the same way.
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
    // No unchanged field may have one of the names.
    let mut named = 0;
    let mut elems = old.iter();
    for e in elems.by_ref() {
        named += usize::from(position(sorted.as_slice(), e.name_bytes(), |f| f.name).is_some());
    }
    (named == in_old && elems.offset() + 1 == old.byte_len()).then_some(sorted)
}

/// Appends the section of the fields that are removed and not inserted again. As in MongoDB, fields after the
/// end of the new document come first, in their order, and then the others by name.
fn gone(fields: &[Field<'_>], sorted: &[Field<'_>], out: &mut Vec<u8>) {
    let at = section(b'd', out);
    let empty = out.len();
    for f in fields.iter().filter(|f| f.fate == Fate::GoneLast) {
        head(out, Type::Bool, f.name);
        out.push(0);
    }
    let mut sorted = sorted.iter().peekable();
    while let Some(f) = sorted.next() {
        // If the field is inserted again, that entry is the next one.
        let again = sorted.peek().is_some_and(|next| next.name == f.name);
        if f.fate == Fate::Gone && !again {
            head(out, Type::Bool, f.name);
            out.push(0);
        }
    }
    match out.len() == empty {
        // These bytes are the section's type, name, zero byte and length.
        true => out.truncate(at.saturating_sub(3)),
        false => close(out, at),
    }
}

/// Appends the difference of the contents of two elements, under `s` and `name`, if there is one and it is
/// shorter than the new value or wanted whatever its length.
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

/// As [`document`], for two arrays. The elements of the new one must have the names of array elements,
/// because applying a difference gives them these names.
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
        // The new length comes first.
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
