//! Follows the rest of a path from an element. It does the same as [`muniment_value::path::visit_leaves`]
//! does from a document, but over raw elements and without dynamic calls.

use super::compile::Part;
use muniment_value::{Doc, Elem, Type};

/// A match, with the index in the outermost array through which it was found. If the path names an array's
/// element by its number, that array does not count, so the positional operator gets no index.
pub(super) type Found = Option<Option<usize>>;

/// The contents of an element that is a document or an array.
#[inline]
pub(super) fn inner<'a>(e: &Elem<'a>) -> Doc<'a> {
    Doc::new(e.raw_value())
}

/// The element called `name`.
#[inline]
pub(super) fn lookup<'a>(doc: Doc<'a>, name: &[u8]) -> Option<Elem<'a>> {
    doc.iter().find(|e| e.name_bytes() == name)
}

/// Visits the values that `rest` stands for below `at` until `f` accepts one. `leaves` says whether an array
/// at the end of the path is tried element by element before it is tried as a whole. The recursion is bounded
/// by the length of `rest` and by the document's depth.
pub(super) fn walk<'a>(
    at: Option<Elem<'a>>,
    rest: &[Part],
    leaves: bool,
    f: &mut impl FnMut(Option<&Elem<'a>>) -> bool,
) -> Found {
    let Some(e) = at else {
        return f(None).then_some(None);
    };
    // In MongoDB a dot at the end of a path has no effect before an array: `a.` is the same as `a` there.
    let rest = match rest {
        [last] if last.name.is_empty() && e.ty() == Type::Array => &[],
        rest => rest,
    };
    let Some((part, deeper)) = rest.split_first() else {
        if leaves && e.ty() == Type::Array {
            for (i, x) in inner(&e).iter().enumerate() {
                if f(Some(&x)) {
                    return Some(Some(i));
                }
            }
        }
        return f(Some(&e)).then_some(None);
    };
    match e.ty() {
        Type::Document => walk(lookup(inner(&e), &part.name), deeper, leaves, f),
        Type::Array => {
            for (i, x) in inner(&e).iter().enumerate() {
                let selected = part.index == Some(i);
                if x.ty() == Type::Document
                    && walk(lookup(inner(&x), &part.name), deeper, leaves, f).is_some()
                {
                    return Some(Some(i));
                }
                if !selected {
                    continue;
                }
                if deeper.is_empty() {
                    if f(Some(&x)) {
                        return Some(None);
                    }
                } else if matches!(x.ty(), Type::Document | Type::Array) {
                    let found = walk(Some(x), deeper, leaves, f);
                    if found.is_some() {
                        return found;
                    }
                }
            }
            None
        }
        _ => f(None).then_some(None),
    }
}
