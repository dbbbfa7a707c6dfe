//! What the (path, value) keys of a wildcard index say about the values at a path.

use super::interval::Interval;
use muniment_query::filter::Pred;
use muniment_value::{Doc, Type, Value, ValueBuf, cmp_values};
use std::cmp::Ordering;

/// The intervals of all paths, including the one that stands for a document without any.
pub(crate) fn all_paths() -> Vec<Interval> {
    vec![
        Interval::point(Value::MinKey),
        Interval::new("", true, Value::Document(Doc::EMPTY), false),
    ]
}

/// Which documents can be among some values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Documents {
    /// No document.
    None,
    /// The empty document only.
    Empty,
    /// Other documents.
    Any,
}

/// Which documents can be among the values of the intervals.
pub(crate) fn documents(list: &[Interval]) -> Documents {
    let empty = ValueBuf::new(Value::Document(Doc::EMPTY));
    let mut found = Documents::None;
    for i in list {
        let begins = cmp_values(i.low.as_value(), empty.as_value()) != Ordering::Greater;
        match cmp_values(i.high.as_value(), empty.as_value()) {
            Ordering::Greater if begins || i.low.as_value().ty() == Type::Document => {
                return Documents::Any;
            }
            Ordering::Equal if i.high_incl && begins => found = Documents::Empty,
            _ => {}
        }
    }
    found
}

/// False for a predicate about a whole document or array that is not empty, since these have no
/// key.
pub(crate) fn answers(pred: &Pred) -> bool {
    let leaf = |v: &ValueBuf| match v.as_value() {
        Value::Document(d) | Value::Array(d) => d.is_empty(),
        _ => true,
    };
    let scalar = |v: &ValueBuf| !matches!(v.as_value(), Value::Document(_) | Value::Array(_));
    match pred {
        Pred::Eq(v) => leaf(v),
        Pred::In { values, .. } => values.iter().all(leaf),
        Pred::Lt(v) | Pred::Lte(v) | Pred::Gt(v) | Pred::Gte(v) => scalar(v),
        Pred::Not(inner) => match &**inner {
            Pred::Eq(v) => scalar(v),
            Pred::In { values, .. } => values.iter().all(scalar),
            other => answers(other),
        },
        Pred::And(list) | Pred::ElemMatchValue(list) => list.iter().all(answers),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn intervals_meet_documents_or_not() {
        let empty = Value::Document(Doc::EMPTY);
        let one = muniment_value::doc! { "x": 1 };
        use Documents::{Any, Empty, None};
        for (interval, want) in [
            (Interval::point(Value::Int32(5)), None),
            (Interval::all(), Any),
            (Interval::point(empty), Empty),
            (Interval::new("", true, empty, false), None),
            (Interval::new("", true, empty, true), Empty),
            (
                Interval::new(&one, true, Value::Array(Doc::EMPTY), false),
                Any,
            ),
            (
                Interval::new(Value::Array(Doc::EMPTY), true, Value::MaxKey, true),
                None,
            ),
            (Interval::new(Value::Null, false, Value::MaxKey, true), Any),
        ] {
            assert_eq!(
                documents(std::slice::from_ref(&interval)),
                want,
                "{interval:?}"
            );
        }
    }
}
