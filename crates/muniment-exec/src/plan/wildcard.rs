//! Wildcard indexes: one path of the filter makes an index on that path of them.
//!
//! Keys are (path, value), see `storage::kinds::wildcard`. A predicate on path p bounds the keys of
//! p alone, unless documents can be among the values: a document has no key of its own but for its
//! leaves, so then all keys of p and of the paths below it are read, and the predicate is matched
//! again.
//!
//! A document without the path has no key: a filter that such a document can match has no access
//! here. The one exception are the fields in front of a compound one.

use super::index_plan::{BoundIndex, IndexInfo, Wild, bind};
use super::interval::Interval;
use super::leaf::Leaves;
use muniment_query::filter::Pred;
use muniment_storage::kinds::Wildcard;
use muniment_value::path::Path;
use muniment_value::{Doc, Type, Value, ValueBuf, cmp_values};
use std::cmp::Ordering;
use std::sync::Arc;

/// The accesses of a wildcard index, one for each path of the filter that it has.
pub fn binds(
    info: &IndexInfo,
    wildcard: &Wildcard,
    leaves: &Leaves<'_>,
    hinted: bool,
) -> Vec<BoundIndex> {
    let mut paths: Vec<&str> = leaves.leaves.iter().map(|l| l.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut out: Vec<BoundIndex> = paths
        .into_iter()
        .map(Path::new)
        .filter(|p| wildcard.covers(p))
        .filter_map(|p| of_path(info, wildcard, &p, leaves, hinted))
        .collect();
    if out.is_empty() && wildcard.position() > 0 {
        out.extend(of_front(info, wildcard, leaves, hinted));
    }
    out
}

fn of_path(
    info: &IndexInfo,
    wildcard: &Wildcard,
    path: &Path,
    leaves: &Leaves<'_>,
    hinted: bool,
) -> Option<BoundIndex> {
    let at = wildcard.position();
    let fields = wildcard.fields(path);
    let mut multikey = vec![0; fields.len()];
    *multikey.get_mut(at + 1)? = info.index.multikey_path(path.as_str());
    let mut own = IndexInfo {
        is_multikey: multikey.iter().any(|&m| m != 0),
        multikey,
        sparse: true,
        fields: fields.into(),
        wild: Some(Wild { at, opaque: false }),
        ..info.clone()
    };
    let mut bound = bind(&Arc::new(own.clone()), leaves, hinted)?;
    if bound.bounded == 0 {
        return None;
    }
    let values = bound.fields.get_mut(at + 1)?;
    let mut paths = vec![Interval::point(Value::String(path.as_str()))];
    let documents = documents(values);
    own.wild = Some(Wild {
        at,
        opaque: documents != Documents::None,
    });
    if documents == Documents::Any {
        *values = vec![Interval::all()];
        // What begins with the path and a dot: the character after it is the slash.
        let (low, high) = (format!("{}.", path.as_str()), format!("{}/", path.as_str()));
        paths.push(Interval::new(low.as_str(), true, high.as_str(), false));
    }
    bound.info = Arc::new(own);
    *bound.fields.get_mut(at)? = paths;
    bound.count_points();
    Some(bound)
}

/// The fields in front of a compound one by themselves: every document has a key.
fn of_front(
    info: &IndexInfo,
    wildcard: &Wildcard,
    leaves: &Leaves<'_>,
    hinted: bool,
) -> Option<BoundIndex> {
    let at = wildcard.position();
    let own = IndexInfo {
        is_multikey: false,
        multikey: vec![0; at + 1],
        sparse: false,
        fields: info.fields().iter().take(at + 1).cloned().collect(),
        wild: Some(Wild { at, opaque: true }),
        ..info.clone()
    };
    let bound = bind(&Arc::new(own), leaves, hinted)?;
    // The path itself is always bounded.
    let bounds_front = bound
        .fields
        .first()
        .is_some_and(|f| !matches!(f.as_slice(), [i] if i.is_all()));
    bounds_front.then_some(bound)
}

/// Every path, and that of a document without one.
pub fn all_paths() -> Vec<Interval> {
    vec![
        Interval::point(Value::MinKey),
        Interval::new("", true, Value::Document(Doc::EMPTY), false),
    ]
}

/// Which documents can be among values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Documents {
    /// None.
    None,
    /// The empty one.
    Empty,
    /// Others.
    Any,
}

/// Which documents can be among the values of intervals.
pub fn documents(list: &[Interval]) -> Documents {
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

/// False for a predicate that speaks of a whole document or array that is not empty: they have no
/// key.
pub fn answers(pred: &Pred) -> bool {
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
