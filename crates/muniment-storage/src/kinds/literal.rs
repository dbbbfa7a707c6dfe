//! The values of plain fields in an index that is of a special kind.

use muniment_value::path::{Path, array_index};
use muniment_value::{Doc, IndexKeys, Value};

/// Appends every value that `path` means in `doc`: arrays on the way are entered, an array at the end is
/// one value. Notes in `keys` the parts of field `field` at which an array was entered.
pub(super) fn values_at<'a>(
    doc: Doc<'a>,
    path: &Path,
    field: usize,
    keys: &mut IndexKeys,
    out: &mut Vec<Value<'a>>,
) {
    in_document(doc, path.parts(), 0, field, keys, out);
}

/// As [`values_at`], with an array at the end of the path expanded into its elements (an empty one into
/// undefined), and null if there is no value: the values of a plain field.
pub(super) fn plain_values<'a>(
    doc: Doc<'a>,
    path: &Path,
    field: usize,
    keys: &mut IndexKeys,
    out: &mut Vec<Value<'a>>,
) {
    let mut found = Vec::new();
    values_at(doc, path, field, keys, &mut found);
    for v in found {
        match v {
            Value::Array(a) => {
                keys.mark_multikey(field, path.parts().len().saturating_sub(1));
                let before = out.len();
                out.extend(a.values());
                if out.len() == before {
                    out.push(Value::Undefined);
                }
            }
            v => out.push(v),
        }
    }
    if out.is_empty() {
        out.push(Value::Null);
    }
}

/// Recursion is bounded by the number of parts: each level consumes one.
fn in_document<'a>(
    doc: Doc<'a>,
    parts: &[String],
    depth: usize,
    field: usize,
    keys: &mut IndexKeys,
    out: &mut Vec<Value<'a>>,
) {
    let Some((part, rest)) = parts.split_first() else {
        return;
    };
    match doc.get(part) {
        Some(v) if rest.is_empty() => out.push(v),
        Some(Value::Document(d)) => in_document(d, rest, depth + 1, field, keys, out),
        Some(Value::Array(a)) => in_array(a, rest, depth, field, keys, out),
        _ => {}
    }
}

fn in_array<'a>(
    array: Doc<'a>,
    parts: &[String],
    depth: usize,
    field: usize,
    keys: &mut IndexKeys,
    out: &mut Vec<Value<'a>>,
) {
    keys.mark_multikey(field, depth);
    let Some((first, rest)) = parts.split_first() else {
        return;
    };
    let wanted = array_index(first);
    for (i, value) in array.values().enumerate() {
        if let Value::Document(d) = value {
            in_document(d, parts, depth + 1, field, keys, out);
        }
        if wanted != Some(i) {
            continue;
        }
        match value {
            v if rest.is_empty() => out.push(v),
            Value::Document(d) => in_document(d, rest, depth + 2, field, keys, out),
            Value::Array(a) => in_array(a, rest, depth + 1, field, keys, out),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::DocBuf;

    #[test]
    fn values_are_found_through_arrays() {
        for (json, path, want, mask) in [
            (r#"{"a": 1}"#, "a", &["1"][..], 0),
            (r#"{"b": 1}"#, "a", &["null"], 0),
            (r#"{"a": [1, 2]}"#, "a", &["1", "2"], 1),
            (r#"{"a": []}"#, "a", &["undefined"], 1),
            (
                r#"{"a": [{"b": 1}, {"b": [2, 3]}]}"#,
                "a.b",
                &["1", "2", "3"],
                3,
            ),
            (r#"{"a": [[5], {"b": 1}]}"#, "a.1.b", &["1"], 1),
            (r#"{"a": {"b": 7}}"#, "a.b", &["7"], 0),
        ] {
            let doc = DocBuf::from_json(json).unwrap();
            let (mut keys, mut out) = (IndexKeys::new(), Vec::new());
            keys.begin(1);
            plain_values(doc.as_doc(), &Path::new(path), 0, &mut keys, &mut out);
            let shown: Vec<String> = out.iter().map(|v| v.to_display()).collect();
            assert_eq!(
                (shown, keys.multikey()),
                (want.iter().map(|s| s.to_string()).collect(), &[mask][..]),
                "{json} {path}"
            );
        }
    }
}
