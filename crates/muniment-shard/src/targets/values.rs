//! The values of one field that a comparison allows, as intervals of their encodings.

use super::MOST;
use super::area::Values;
use crate::interval::{Interval, coarsen, union};
use crate::key::KeyField;
use muniment_value::collation::has_text;
use muniment_value::hashed::hash64;
use muniment_value::{Type, Value, keyenc, number};

/// How the filter compares texts. Keys always hold them as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Texts {
    /// Byte by byte: equal texts are the same text.
    Exact,
    /// By a collation: texts that are equal, or between two others, can be anywhere among the keys.
    Collated,
}

/// The side of a value on which a range lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Below,
    Above,
}

/// What a field has in keys of documents whose value equals one of these.
pub(super) fn equal<'v>(
    field: &KeyField,
    values: impl Iterator<Item = Value<'v>>,
    texts: Texts,
) -> Values {
    let mut points: Vec<Vec<u8>> = Vec::new();
    for v in values {
        let known = match v {
            // An equality with an array is also met by an array of arrays, and neither is in a key.
            Value::Array(_) => false,
            v if texts == Texts::Collated && has_text(v) => false,
            v if field.hashed => put_hashes(v, &mut points),
            v => {
                points.push(keyenc::encoded(v));
                true
            }
        };
        if !known {
            return Values::Any;
        }
        // A list may have undefined among its values, which null is close to in many ways.
        if matches!(v, Value::Undefined) {
            points.push(keyenc::encoded(field_value(field, Value::Null)));
        }
    }
    points.sort_unstable();
    points.dedup();
    let run = points.len().div_ceil(MOST).max(1);
    let of_run = |run: &[Vec<u8>]| {
        let (first, last) = (run.first()?, run.last()?);
        Some(Interval::between(first.clone(), keyenc::prefix_end(last)))
    };
    Values::In(points.chunks(run).filter_map(of_run).collect())
}

fn field_value<'v>(field: &KeyField, v: Value<'v>) -> Value<'v> {
    match field.hashed {
        true => Value::Int64(hash64(v)),
        false => v,
    }
}

/// Adds the encodings of the hashes that values equal to `v` can have. False if they are not known.
///
/// The hash of a number is that of a whole one. A double is cut off and a decimal is rounded, so 1.5 has one
/// hash as a double and another one as a decimal, though the two are equal.
fn put_hashes(v: Value<'_>, points: &mut Vec<Vec<u8>>) -> bool {
    let mut put = |hash: i64| points.push(keyenc::encoded(Value::Int64(hash)));
    match v {
        v if v.is_number() => {
            put(hash64(v));
            if let Some(n) = number::to_f64(v).filter(|n| n.fract() != 0.0) {
                put(hash64(Value::Int64(n.trunc() as i64)));
                put(hash64(Value::Int64(n.round_ties_even() as i64)));
            }
        }
        v if has_fraction(v) => return false,
        v => put(hash64(v)),
    }
    true
}

/// True if there is a number that is not whole in a value. The recursion is bounded by the depth of documents.
fn has_fraction(v: Value<'_>) -> bool {
    match v {
        Value::Document(d) | Value::Array(d) => d.values().any(has_fraction),
        Value::CodeWithScope { scope, .. } => scope.values().any(has_fraction),
        v => v.is_number() && number::to_i64_exact(v).is_none(),
    }
}

/// The values of a field below or above one, within its bracket of types.
pub(super) fn range(
    field: &KeyField,
    v: Value<'_>,
    side: Side,
    inclusive: bool,
    texts: Texts,
) -> Values {
    if field.hashed {
        return Values::Any;
    }
    let only = |list: Vec<Interval>| Values::In(coarsen(union(list), MOST));
    let itself = || Interval::prefix(keyenc::encoded(v));
    let (low, high) = match v.ty() {
        // Everything compares with MinKey and MaxKey. An array compares element by element.
        Type::MinKey | Type::MaxKey | Type::Array => return Values::Any,
        // These compare only with themselves.
        _ if v.is_nullish() || number::is_nan(v) => {
            return only(inclusive.then(itself).into_iter().collect());
        }
        Type::String | Type::Symbol | Type::Document if texts == Texts::Collated => {
            return Values::Any;
        }
        Type::Double | Type::Int32 | Type::Int64 | Type::Decimal128 => {
            // NaN is in the bracket and in no range.
            let low = keyenc::encoded(Value::Double(f64::NEG_INFINITY));
            (low, keyenc::bracket(v.ty(), false).1)
        }
        ty => {
            let (low, high) = keyenc::bracket(ty, false);
            (low.to_vec(), high)
        }
    };
    let at = itself();
    only(vec![match (side, inclusive) {
        (Side::Below, false) => Interval::between(low, Some(at.low)),
        (Side::Below, true) => Interval::between(low, at.high),
        (Side::Above, true) => Interval::between(at.low, Some(high.to_vec())),
        (Side::Above, false) => Interval::between(
            at.high.unwrap_or_else(|| high.to_vec()),
            Some(high.to_vec()),
        ),
    }])
}
