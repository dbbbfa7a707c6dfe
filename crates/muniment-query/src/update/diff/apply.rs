//! Applies a difference to a document.

use super::super::{MAX_DOCUMENT, too_large};
use super::{Change, Few, Name, Sections, array_change, is_array, malformed, position};
use crate::bytes::{IndexName, close, head, open};
use muniment_value::{Doc, Elem, Result, Type};

/// Applies `diff` to `old`, and appends the resulting document to `out`. After an error `out` is as it was.
///
/// # Errors
/// 9 FailedToParse for a malformed difference; 17419 if the result is larger than a document may be.
pub fn apply(old: Doc<'_>, diff: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    let result = document(old, diff, out);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// The change to the fields with one name. If there are several changes, the first one counts.
#[derive(Clone, Copy, Default)]
enum Fate<'d> {
    /// It is removed; if it is an inserted field, it comes back at the end.
    #[default]
    Goes,
    /// It becomes this element.
    Update(&'d [u8]),
    Below(Doc<'d>),
}

impl Fate<'_> {
    fn rank(&self) -> u8 {
        match self {
            Fate::Goes => 0,
            Fate::Update(_) => 1,
            Fate::Below(_) => 2,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Field<'d> {
    name: Name<'d>,
    fate: Fate<'d>,
    /// Whether the document had the field.
    had: bool,
}

fn document(old: Doc<'_>, diff: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
    let sections = Sections::of(diff)?;
    let mut fields = Few::<Field<'_>>::new();
    let mut add = |name, fate| {
        fields.push(Field {
            name,
            fate,
            had: false,
        });
    };
    for e in sections.gone.iter().chain(sections.inserts) {
        add(e.name_bytes(), Fate::Goes);
    }
    for e in sections.updates {
        add(e.name_bytes(), Fate::Update(e.as_bytes()));
    }
    for (name, diff) in sections.below() {
        add(name.as_bytes(), Fate::Below(diff));
    }
    let fields = fields.as_mut_slice();
    fields.sort_unstable_by(|a, b| (a.name, a.fate.rank()).cmp(&(b.name, b.fate.rank())));
    let bytes = old.as_bytes();
    let start = open(out);
    let mut elems = Doc::new(bytes).iter();
    let mut kept = elems.offset();
    loop {
        let at = elems.offset();
        let Some(e) = elems.next() else { break };
        let Some(found) = position(fields, e.name_bytes(), |f| f.name) else {
            continue;
        };
        let Some(field) = fields.get_mut(found) else {
            continue;
        };
        field.had = true;
        let fate = field.fate;
        let run = bytes.get(kept..at).unwrap_or_default();
        match fate {
            Fate::Below(diff) if !fits(e, diff) => continue,
            Fate::Goes => out.extend_from_slice(run),
            Fate::Update(elem) => {
                out.extend_from_slice(run);
                out.extend_from_slice(elem);
            }
            Fate::Below(diff) => {
                out.extend_from_slice(run);
                head(out, e.ty(), e.name_bytes());
                below(e, diff, out)?;
            }
        }
        kept = elems.offset();
        check_size(out, start)?;
    }
    out.extend_from_slice(bytes.get(kept..elems.offset()).unwrap_or_default());
    for e in sections.updates {
        let field = position(fields, e.name_bytes(), |f| f.name).and_then(|at| fields.get(at));
        if field.is_some_and(|f| !f.had) {
            out.extend_from_slice(e.as_bytes());
        }
    }
    for e in sections.inserts {
        out.extend_from_slice(e.as_bytes());
    }
    close(out, start);
    check_size(out, start)
}

/// True if `diff` is a difference for the type of `e`.
fn fits(e: Elem<'_>, diff: Doc<'_>) -> bool {
    match e.ty() {
        Type::Document => !is_array(diff),
        Type::Array => is_array(diff),
        _ => false,
    }
}

/// Applies `diff`, which fits, to the value of `e`, and appends the result.
fn below(e: Elem<'_>, diff: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
    let old = Doc::new(e.raw_value());
    match e.ty() {
        Type::Array => array(old, diff, out),
        _ => document(old, diff, out),
    }
}

/// Fails if the result is too large to be stored. Each of many parts may be this large, so the result is not
/// built to its end.
fn check_size(out: &[u8], start: usize) -> Result<()> {
    match out.len().saturating_sub(start) > MAX_DOCUMENT {
        true => Err(too_large(17_419, "Resulting document after update")),
        false => Ok(()),
    }
}

fn array(old: Doc<'_>, diff: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
    let mut length = None;
    let mut changes: Vec<(usize, Elem<'_>)> = Vec::new();
    for e in diff.iter().skip(1) {
        match array_change(e)? {
            Change::Length(n) => length = Some(n),
            Change::Update(i, _) | Change::Below(i, _) => changes.push((i, e)),
        }
    }
    changes.sort_by_key(|(i, _)| *i);
    for pair in changes.windows(2) {
        if let [(a, twice), (b, _)] = pair
            && a == b
        {
            return Err(malformed(*twice));
        }
    }
    let end = changes.last().map_or(0, |(i, _)| i + 1);
    let length = length.unwrap_or_else(|| end.max(old.count()));
    let start = open(out);
    let mut elems = old.iter();
    let mut changes = changes.into_iter().peekable();
    for i in 0..length {
        let name = IndexName::new(i);
        let name = name.as_bytes();
        let had = elems.next();
        let change = match changes.next_if(|(at, _)| *at == i) {
            Some((_, e)) => Some(array_change(e)?),
            None => None,
        };
        match (change, had) {
            (Some(Change::Update(_, e)), _) => {
                head(out, e.ty(), name);
                out.extend_from_slice(e.raw_value());
            }
            (Some(Change::Below(_, diff)), Some(e)) if fits(e, diff) => {
                head(out, e.ty(), name);
                below(e, diff, out)?;
            }
            (_, Some(e)) => {
                head(out, e.ty(), name);
                out.extend_from_slice(e.raw_value());
                continue;
            }
            (_, None) => {
                head(out, Type::Null, name);
                continue;
            }
        }
        check_size(out, start)?;
    }
    close(out, start);
    check_size(out, start)
}
