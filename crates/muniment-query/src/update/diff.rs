//! The difference of two documents as MongoDB's oplog has it (`{$v: 2, diff: …}`), applied to a
//! document.
//!
//! A difference of documents has the sections `d` (fields that go), `u` (fields that become another
//! value), `i` (fields that are new, which stand at the end) and, named `s` and the field's name, the
//! differences of what lies below a field. A difference of arrays is marked `a: true` and has `l` (the
//! new length), `u<index>` and `s<index>`.
//!
//! Applying one twice does what applying it once does: what is not as the difference expects it
//! stays as it is.

use super::{MAX_DOCUMENT, too_large};
use muniment_value::{ArrayBuf, Doc, DocBuf, Elem, Error, Result, Value};
use std::collections::{HashMap, HashSet};

/// Arrays are not lengthened beyond this many elements, as by updates of a far index.
const MAX_LENGTH: usize = 1_500_000;

/// The document that `diff` makes of `old`.
///
/// # Errors
/// 9 FailedToParse for what is no difference.
pub(crate) fn apply(old: Doc<'_>, diff: Doc<'_>) -> Result<DocBuf> {
    let sections = Sections::of(diff)?;
    let mut new = DocBuf::new();
    let mut had = HashSet::new();
    for e in old {
        let name = e.name();
        if sections.replaces.contains_key(name) {
            had.insert(name);
        }
        if sections.goes.contains(name) {
            continue;
        }
        if let Some(update) = sections.replaces.get(name) {
            new.append_elem(*update);
        } else {
            match (sections.below.get(name), e.value()) {
                (Some(diff), Value::Document(d)) if !is_array(*diff) => {
                    new.append(name, apply(d, *diff)?);
                }
                (Some(diff), Value::Array(a)) if is_array(*diff) => {
                    new.append(name, apply_array(a, *diff)?);
                }
                _ => {
                    new.append_elem(e);
                }
            }
        }
        check_size(new.as_bytes())?;
    }
    for e in sections.updates {
        if !had.contains(e.name()) {
            new.append_elem(e);
        }
    }
    new.append_all(sections.inserts);
    Ok(new)
}

/// What grows beyond what can be stored is not built to its end: each of many parts may be as large.
fn check_size(built: &[u8]) -> Result<()> {
    match built.len() > MAX_DOCUMENT {
        true => Err(too_large(17_419, "Resulting document after update")),
        false => Ok(()),
    }
}

/// The sections of a difference of documents, with their fields by name.
struct Sections<'d> {
    updates: Doc<'d>,
    inserts: Doc<'d>,
    /// Fields that go, or that stand at the end as inserted ones.
    goes: HashSet<&'d str>,
    replaces: HashMap<&'d str, Elem<'d>>,
    below: HashMap<&'d str, Doc<'d>>,
}

impl<'d> Sections<'d> {
    fn of(diff: Doc<'d>) -> Result<Sections<'d>> {
        let mut s = Sections {
            updates: Doc::EMPTY,
            inserts: Doc::EMPTY,
            goes: HashSet::new(),
            replaces: HashMap::new(),
            below: HashMap::new(),
        };
        for section in diff {
            let Value::Document(d) = section.value() else {
                return Err(malformed(section));
            };
            let mut names = HashSet::new();
            if let Some(twice) = d.iter().find(|e| !names.insert(e.name())) {
                return Err(malformed(twice));
            }
            match section.name() {
                "d" => s.goes.extend(names),
                "u" => {
                    s.updates = d;
                    s.replaces = d.iter().map(|e| (e.name(), e)).collect();
                }
                "i" => {
                    s.inserts = d;
                    s.goes.extend(names);
                }
                name => {
                    let field = name.strip_prefix('s').ok_or_else(|| malformed(section))?;
                    if s.below.insert(field, d).is_some() {
                        return Err(malformed(section));
                    }
                }
            }
        }
        Ok(s)
    }
}

fn is_array(diff: Doc<'_>) -> bool {
    diff.first()
        .is_some_and(|e| e.name() == "a" && matches!(e.value(), Value::Bool(true)))
}

fn apply_array(old: Doc<'_>, diff: Doc<'_>) -> Result<ArrayBuf> {
    let mut length = None;
    let mut changes: Vec<(usize, Elem<'_>)> = Vec::new();
    for e in diff.iter().skip(1) {
        if e.name() == "l" {
            let n = e
                .value()
                .as_i64_exact()
                .and_then(|n| usize::try_from(n).ok());
            length = Some(n.filter(|n| *n <= MAX_LENGTH).ok_or_else(|| malformed(e))?);
            continue;
        }
        let index = e.name().strip_prefix(['u', 's']).map(str::parse::<usize>);
        match index {
            Some(Ok(i)) if i < MAX_LENGTH => changes.push((i, e)),
            _ => return Err(malformed(e)),
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
    let mut new = ArrayBuf::new();
    let mut elements = old.values();
    let mut changes = changes.into_iter().peekable();
    for i in 0..length {
        let had = elements.next();
        let change = changes.next_if(|(at, _)| *at == i).map(|(_, e)| e);
        let Some(e) = change else {
            new.push(had.unwrap_or(Value::Null));
            continue;
        };
        if e.name().starts_with('u') {
            new.push(e.value());
            continue;
        }
        let Value::Document(diff) = e.value() else {
            return Err(malformed(e));
        };
        match had {
            Some(Value::Document(d)) if !is_array(diff) => new.push(apply(d, diff)?),
            Some(Value::Array(a)) if is_array(diff) => new.push(apply_array(a, diff)?),
            other => new.push(other.unwrap_or(Value::Null)),
        };
        check_size(new.as_doc().as_bytes())?;
    }
    Ok(new)
}

fn malformed(e: Elem<'_>) -> Error {
    Error::failed_to_parse(format!(
        "A difference of documents has no field '{}' of type {}",
        e.name(),
        e.value().type_name()
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{array, doc};

    #[test]
    fn differences() {
        let old = doc! { "_id": 1, "a": 1, "b": doc! { "c": 1, "d": 2 }, "e": array![1, doc! { "f": 1 }, 3] };
        for (diff, new) in [
            (
                doc! { "u": doc! { "a": 2, "new": 1 } },
                doc! { "_id": 1, "a": 2, "b": doc! { "c": 1, "d": 2 }, "e": array![1, doc! { "f": 1 }, 3], "new": 1 },
            ),
            (
                doc! { "d": doc! { "a": false, "nothing": false }, "i": doc! { "b": 5 } },
                doc! { "_id": 1, "e": array![1, doc! { "f": 1 }, 3], "b": 5 },
            ),
            (
                doc! { "sb": doc! { "d": doc! { "c": false }, "i": doc! { "x": 1 } } },
                doc! { "_id": 1, "a": 1, "b": doc! { "d": 2, "x": 1 }, "e": array![1, doc! { "f": 1 }, 3] },
            ),
            (
                doc! { "se": doc! { "a": true, "u0": 9, "s1": doc! { "u": doc! { "f": 2 } }, "u4": 5 } },
                doc! { "_id": 1, "a": 1, "b": doc! { "c": 1, "d": 2 },
                "e": array![9, doc! { "f": 2 }, 3, Value::Null, 5] },
            ),
            (
                doc! { "se": doc! { "a": true, "l": 1 } },
                doc! { "_id": 1, "a": 1, "b": doc! { "c": 1, "d": 2 }, "e": array![1] },
            ),
            // What is of another kind, or is not there, stays.
            (
                doc! { "sa": doc! { "u": doc! { "x": 1 } }, "sb": doc! { "a": true, "u0": 1 },
                "sz": doc! { "u": doc! { "x": 1 } } },
                old.clone(),
            ),
        ] {
            let once = apply(old.as_doc(), diff.as_doc()).unwrap();
            assert_eq!(once, new, "{diff:?}");
            assert_eq!(
                apply(once.as_doc(), diff.as_doc()).unwrap(),
                new,
                "{diff:?}"
            );
        }
    }

    #[test]
    fn what_is_no_difference() {
        for diff in [
            doc! { "u": 1 },
            doc! { "x": doc! {} },
            doc! { "sa": doc! { "a": true, "u99999999999": 1 } },
            doc! { "sa": doc! { "a": true, "l": 2_000_000_000 } },
            doc! { "sa": doc! { "a": true, "s0": 1 } },
        ] {
            let old = doc! { "a": array![1] };
            let e = apply(old.as_doc(), diff.as_doc()).unwrap_err();
            assert_eq!(e.code().0, 9, "{diff:?}");
        }
    }
}
