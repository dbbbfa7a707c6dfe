//! Dotted paths: `a.b.0.c`, with MongoDB's implicit traversal of arrays.

use crate::{Doc, Type, Value};

/// A dotted path, split once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Empty if there is only one part, which is the text then.
    text: String,
    parts: Vec<String>,
}

impl Path {
    /// Splits `text` at its dots.
    pub fn new(text: &str) -> Path {
        // Most paths are one name.
        match text.contains('.') {
            false => Path {
                text: String::new(),
                parts: vec![text.to_string()],
            },
            true => Path {
                text: text.to_string(),
                parts: text.split('.').map(str::to_string).collect(),
            },
        }
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        match self.parts.as_slice() {
            [name] => name,
            _ => &self.text,
        }
    }

    /// The parts.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// Follows the path through documents and by numeric index through arrays, without implicit traversal.
    /// That is the meaning of a single-valued look-up.
    pub fn get_exact<'a>(&self, doc: Doc<'a>) -> Option<Value<'a>> {
        let mut parts = self.parts.iter();
        let mut at = doc.get(parts.next()?)?;
        for part in parts {
            at = match at {
                Value::Document(d) | Value::Array(d) => d.get(part)?,
                _ => return None,
            };
        }
        Some(at)
    }
}

/// The array index that a path part stands for: canonical decimal digits ("0", "12"; not "01").
pub fn array_index(part: &str) -> Option<usize> {
    let digits = part.as_bytes();
    let canonical = match digits {
        [b'0'] => true,
        [b'1'..=b'9', ..] => digits.len() <= 9 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if canonical { part.parse().ok() } else { None }
}

/// A visitor. It gets the value, the array index for the positional operator, and whether an array is to be
/// looked into as well. It returns true to stop.
type Visitor<'v, 'a> = dyn FnMut(Option<Value<'a>>, Option<usize>, bool) -> bool + 'v;

/// Visits every value that `parts` can stand for in `doc` under the rules of a *query*. Returns true if the
/// visitor did, which stops the walk.
///
/// An array on the way is traversed implicitly, which means that each of its documents is searched for the
/// rest of the path. It is also traversed by index: if the next part is "2", the third element is followed as
/// well, whether it is a document, an array or the end of the path. Arrays directly inside arrays are entered
/// only by index. The value at the end of the path is visited as it is; if it is an array, the caller decides
/// whether its elements count (see [`visit_leaves`]).
///
/// `None` is visited once for each document on the way in which the path does not exist. An array that has
/// neither documents nor the index contributes no visit at all: `{a: [1, 2]}` and the path `a.b` make no
/// call.
///
/// The second argument of the visitor is the index within the outermost array that was entered, for the
/// positional operator `$`. An array that was entered by index in the middle of the path does not count.
/// not count.
pub fn visit<'a>(
    doc: Doc<'a>,
    parts: &[String],
    visitor: &mut dyn FnMut(Option<Value<'a>>, Option<usize>) -> bool,
) -> bool {
    walk(doc, parts, None, &mut |v, i, _| visitor(v, i))
}

/// Does the same as [`visit`], except that for an array at the end of the path it first visits the elements,
/// each with its index, and then the array itself. That is what a comparison such as `{a: 5}` tests. An array
/// that a trailing index selected (`a.0`) is visited only as a whole, as MongoDB does.
pub fn visit_leaves<'a>(
    doc: Doc<'a>,
    parts: &[String],
    visitor: &mut dyn FnMut(Option<Value<'a>>, Option<usize>) -> bool,
) -> bool {
    walk(doc, parts, None, &mut |value, index, look_into| {
        if let Some(Value::Array(a)) = value
            && look_into
        {
            for (i, v) in a.values().enumerate() {
                if visitor(Some(v), index.or(Some(i))) {
                    return true;
                }
            }
        }
        visitor(value, index)
    })
}

fn walk<'a>(
    doc: Doc<'a>,
    parts: &[String],
    index: Option<usize>,
    visitor: &mut Visitor<'_, 'a>,
) -> bool {
    let mut at = doc;
    let mut parts = parts;
    while let Some((part, rest)) = parts.split_first() {
        let value = at.get(part);
        match value {
            Some(_) if rest.is_empty() => return visitor(value, index, true),
            Some(Value::Document(d)) => at = d,
            Some(Value::Array(a)) => return walk_array(a, rest, index, visitor),
            _ => return visitor(None, index, true),
        }
        parts = rest;
    }
    visitor(None, index, true)
}

/// Follows `parts`, which must not be empty, through the elements of an array. The number of parts bounds the
/// recursion, since each level consumes one.
fn walk_array<'a>(
    array: Doc<'a>,
    parts: &[String],
    index: Option<usize>,
    visitor: &mut Visitor<'_, 'a>,
) -> bool {
    let Some((first, rest)) = parts.split_first() else {
        return false;
    };
    let wanted = array_index(first);
    for (i, elem) in array.iter().enumerate() {
        let here = index.or(Some(i));
        let selected = wanted == Some(i);
        let is_doc = elem.ty() == Type::Document;
        if !is_doc && !selected {
            continue;
        }
        let value = elem.value();
        if let Value::Document(d) = value
            && walk(d, parts, here, visitor)
        {
            return true;
        }
        if selected {
            let stop = match value {
                _ if rest.is_empty() => visitor(Some(value), here, false),
                Value::Document(d) => walk(d, rest, index, visitor),
                Value::Array(a) => walk_array(a, rest, index, visitor),
                _ => false,
            };
            if stop {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::DocBuf;

    /// The visits as text: the value or "-", and the index.
    fn visits(json: &str, path: &str, leaves: bool) -> Vec<String> {
        let doc = DocBuf::from_json(json).unwrap();
        let mut seen = Vec::new();
        let f = if leaves { visit_leaves } else { visit };
        f(doc.as_doc(), Path::new(path).parts(), &mut |v, i| {
            let v = v.map_or("-".to_string(), |v| v.to_display());
            seen.push(i.map_or(v.clone(), |i| format!("{v}@{i}")));
            false
        });
        seen
    }

    #[test]
    fn traversal_is_mongodbs() {
        for (json, path, want) in [
            (r#"{"a": 5}"#, "a", &["5"][..]),
            (r#"{"a": 5}"#, "b", &["-"]),
            (r#"{"a": 5}"#, "a.b", &["-"]),
            (r#"{"a": {"b": 5}}"#, "a.b", &["5"]),
            (r#"{"a": [5, 6]}"#, "a", &["5@0", "6@1", "[ 5, 6 ]"]),
            (r#"{"a": [5, 6]}"#, "a.b", &[]),
            (r#"{"a": []}"#, "a.b", &[]),
            (r#"{"a": []}"#, "a", &["[]"]),
            (
                r#"{"a": [{"b": 1}, 3, {}, {"b": 2}]}"#,
                "a.b",
                &["1@0", "-@2", "2@3"],
            ),
            (
                r#"{"a": [{"b": [1, 2]}]}"#,
                "a.b",
                &["1@0", "2@0", "[ 1, 2 ]@0"],
            ),
            // Arrays in arrays are entered by index only.
            (r#"{"a": [[{"b": 1}]]}"#, "a.b", &[]),
            (r#"{"a": [[{"b": 1}]]}"#, "a.0.b", &["1@0"]),
            (r#"{"a": [5, [2, 4], 3]}"#, "a.1", &["[ 2, 4 ]@1"]),
            (r#"{"a": [5, {"1": 4}, 3]}"#, "a.1", &["4@1", "{ 1: 4 }@1"]),
            (r#"{"a": [5, {"b": 4}, 3]}"#, "a.1.b", &["-@1", "4"]),
            (r#"{"a": [5, [{"b": 4}], 3]}"#, "a.1.b", &["4@0"]),
            (r#"{"a": [5, 6]}"#, "a.01", &[]),
            (r#"{"a": {"0": 7}}"#, "a.0", &["7"]),
        ] {
            assert_eq!(visits(json, path, true), want, "{json} {path}");
        }
        assert_eq!(visits(r#"{"a": [5, 6]}"#, "a", false), ["[ 5, 6 ]"]);
    }

    #[test]
    fn a_visitor_stops_the_walk() {
        let doc = crate::doc! { "a": crate::array![1, 2, 3] };
        let mut n = 0;
        assert!(visit_leaves(
            doc.as_doc(),
            Path::new("a").parts(),
            &mut |_, _| {
                n += 1;
                n == 2
            }
        ));
        assert_eq!(n, 2);
    }

    #[test]
    fn indexes_are_canonical_digits() {
        assert_eq!(array_index("0"), Some(0));
        assert_eq!(array_index("120"), Some(120));
        for part in ["", "01", "-1", "+1", "1a", "9999999999"] {
            assert_eq!(array_index(part), None, "{part}");
        }
    }
}
