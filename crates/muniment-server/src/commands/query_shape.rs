//! `queryShapeHash`: a hash of a command without its constants, as `explain` shows it.
//!
//! The hash identifies a shape within this server only; MongoDB computes another one.

use muniment_value::{Doc, Value};
use std::fmt::Write;

/// The parts of a command that belong to its shape, beside the filter.
const PARTS: &[&str] = &[
    "sort",
    "projection",
    "collation",
    "hint",
    "let",
    "min",
    "max",
    "key",
];

/// Parts whose values are kept in the shape: they are not constants but say what is done.
const KEPT: &[&str] = &["sort", "projection", "collation", "hint", "key"];

/// Operators and stages whose arguments are kept in the shape, for the same reason.
const KEPT_ARGUMENTS: &[&str] = &[
    "$type",
    "$exists",
    "$sort",
    "$project",
    "$unset",
    "$options",
    "$jsonSchema",
];

/// The hash of an explained command, 64 hexadecimal digits.
pub fn hash(command: Doc<'_>) -> String {
    let mut shape = String::new();
    if let Some(e) = command.first() {
        let _ = write!(shape, "{}:{:?}|", e.name(), e.value());
    }
    if let Some(pipeline) = command.get("pipeline") {
        value(pipeline, 0, &mut shape);
    }
    for name in ["filter", "query"] {
        if let Some(f) = command.get_doc(name) {
            filter(f, 0, &mut shape);
        }
    }
    for name in PARTS {
        if let Some(v) = command.get(name) {
            let _ = write!(shape, "|{name}:");
            if KEPT.contains(name) {
                let _ = write!(shape, "{v:?}");
            } else {
                value(v, 0, &mut shape);
            }
        }
    }
    let mut out = String::with_capacity(64);
    for round in 0_u64..4 {
        // 64-bit FNV-1a, begun with another seed for each quarter of the hash.
        let begin = 0xCBF2_9CE4_8422_2325_u64 ^ round.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let h = shape.bytes().fold(begin, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01B3)
        });
        let _ = write!(out, "{h:016X}");
    }
    out
}

/// Appends a filter's shape. An equality without an operator counts as `$eq`, and several fields as `$and`.
fn filter(d: Doc<'_>, depth: usize, out: &mut String) {
    if depth > 100 {
        return;
    }
    out.push_str("and[");
    for e in d {
        match (e.name(), e.value()) {
            ("$and", Value::Array(list)) => {
                for d in list.values().filter_map(|v| v.as_doc()) {
                    let mut clause = String::new();
                    filter(d, depth + 1, &mut clause);
                    // The clauses of a nested `$and` are clauses of the surrounding one.
                    let inner = clause
                        .strip_prefix("and[")
                        .and_then(|c| c.strip_suffix(']'));
                    out.push_str(inner.unwrap_or(&clause));
                }
            }
            (name @ ("$or" | "$nor"), Value::Array(list)) => {
                let _ = write!(out, "{name}:[");
                for d in list.values().filter_map(|v| v.as_doc()) {
                    filter(d, depth + 1, out);
                    out.push(',');
                }
                out.push_str("],");
            }
            (name, v) => {
                let _ = write!(out, "{name:?}:");
                let operators = v
                    .as_doc()
                    .and_then(|d| d.first())
                    .is_some_and(|e| e.name().starts_with('$'));
                if KEPT_ARGUMENTS.contains(&name) {
                    let _ = write!(out, "{v:?}");
                } else if operators || name.starts_with('$') {
                    value(v, depth + 1, out);
                } else {
                    let _ = write!(out, "{{\"$eq\":?{},}}", class(v));
                }
                out.push(',');
            }
        }
    }
    out.push(']');
}

fn class(v: Value<'_>) -> &'static str {
    if v.is_number() {
        "number"
    } else {
        v.type_name()
    }
}

/// True for a string that is a path or a variable, which belongs to the shape.
fn is_path(v: Value<'_>) -> bool {
    matches!(v, Value::String(s) if s.starts_with('$'))
}

fn value(v: Value<'_>, depth: usize, out: &mut String) {
    match v {
        _ if depth > 100 => out.push('…'),
        Value::Document(d) => {
            out.push('{');
            for e in d {
                let _ = write!(out, "{:?}:", e.name());
                if KEPT_ARGUMENTS.contains(&e.name()) {
                    // An array with one type means that type.
                    let only = e.value().as_array().filter(|a| a.count() == 1);
                    let kept = only.and_then(|a| a.values().next()).unwrap_or(e.value());
                    let _ = write!(out, "{kept:?}");
                } else if let ("$all", Value::Array(list)) = (e.name(), e.value()) {
                    // `$all` is as many predicates as it has values.
                    for v in list.values() {
                        value(v, depth + 1, out);
                        out.push('&');
                    }
                } else {
                    value(e.value(), depth + 1, out);
                }
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(list) => {
            let plain = list
                .values()
                .all(|v| !matches!(v, Value::Document(_) | Value::Array(_)) && !is_path(v));
            if plain {
                let mut classes: Vec<_> = list.values().map(class).collect();
                classes.dedup();
                match classes.as_slice() {
                    [one] => {
                        let _ = write!(out, "?array<?{one}>");
                    }
                    _ => out.push_str("?array<>"),
                }
                return;
            }
            out.push('[');
            for v in list.values() {
                value(v, depth + 1, out);
                out.push(',');
            }
            out.push(']');
        }
        v if is_path(v) => {
            let _ = write!(out, "{v:?}");
        }
        v => {
            let _ = write!(out, "?{}", class(v));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{DocBuf, array, doc};

    fn of(filter: DocBuf) -> String {
        hash(doc! { "find": "c", "filter": filter }.as_doc())
    }

    #[test]
    fn constants_are_no_part_of_a_shape() {
        let eq = |n: i32| of(doc! { "a": doc! { "$eq": n } });
        assert_eq!(eq(1).len(), 64);
        assert_eq!(eq(1), eq(2));
        assert_ne!(eq(1), of(doc! { "b": doc! { "$eq": 1 } }));
        assert_ne!(eq(1), of(doc! { "a": doc! { "$gt": 1 } }));
        assert_eq!(eq(1), of(doc! { "a": 5 }));
        let both = of(doc! { "a": 1, "b": 2 });
        let and = array![doc! { "a": 3 }, doc! { "b": 4 }];
        assert_eq!(both, of(doc! { "$and": and }));
        assert_ne!(both, of(doc! { "b": 1, "a": 2 }));
        let within = |list: muniment_value::ArrayBuf| of(doc! { "a": doc! { "$in": list } });
        assert_eq!(within(array![1]), within(array![2, 3.5]));
        assert_ne!(within(array![1]), within(array!["x"]));
        let all = |list: muniment_value::ArrayBuf| of(doc! { "a": doc! { "$all": list } });
        assert_eq!(all(array![1]), all(array![2]));
        assert_ne!(all(array![1]), all(array![1, 2]));
        let exists = |b: bool| of(doc! { "a": doc! { "$exists": b } });
        assert_ne!(exists(true), exists(false));
        let sorted = |n: i32| hash(doc! { "find": "c", "sort": doc! { "a": n } }.as_doc());
        assert_ne!(sorted(1), sorted(-1));
    }
}
