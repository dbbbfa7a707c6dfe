//! Comparison operands, prepared so that an element is compared on its raw bytes.

use muniment_value::collation::has_text;
use muniment_value::{Collation, Elem, Type, Value, ValueBuf, cmp_values, number};
use std::cmp::Ordering;

/// The comparison of a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CmpOp {
    Eq,
    Lt,
    Lte,
    Gt,
    Gte,
}

impl CmpOp {
    #[inline]
    fn accepts(self, o: Ordering) -> bool {
        match self {
            CmpOp::Eq => o.is_eq(),
            CmpOp::Lt => o.is_lt(),
            CmpOp::Lte => o.is_le(),
            CmpOp::Gt => o.is_gt(),
            CmpOp::Gte => o.is_ge(),
        }
    }
}

/// The right side of a comparison.
#[derive(Clone, Debug)]
pub(super) enum Operand {
    /// An int32 or int64.
    Int(i64),
    /// A double that is not NaN.
    Double(f64),
    /// A NaN, double or decimal: equal only to NaN, and neither less nor greater than anything.
    NaN,
    Str(Box<[u8]>),
    Oid([u8; 12]),
    Null,
    MinKey,
    MaxKey,
    Other(ValueBuf),
    /// A text, document or array that is compared by a collation.
    Collated(Box<(ValueBuf, Collation)>),
}

/// The bytes of a raw string value, without length and terminator.
#[inline]
pub(super) fn string_bytes(raw: &[u8]) -> &[u8] {
    raw.get(4..raw.len().saturating_sub(1)).unwrap_or_default()
}

#[inline]
pub(super) fn raw_i32(raw: &[u8]) -> i32 {
    raw.try_into().map_or(0, i32::from_le_bytes)
}

#[inline]
pub(super) fn raw_i64(raw: &[u8]) -> i64 {
    raw.try_into().map_or(0, i64::from_le_bytes)
}

#[inline]
pub(super) fn raw_f64(raw: &[u8]) -> f64 {
    raw.try_into().map_or(0.0, f64::from_le_bytes)
}

/// Up to this absolute value every whole number is exactly a double.
const EXACT: i64 = 1 << 53;

/// Compares a whole number with a double exactly; `None` for NaN.
#[inline]
fn cmp_int_double(n: i64, d: f64) -> Option<Ordering> {
    if (-EXACT..=EXACT).contains(&n) {
        return (n as f64).partial_cmp(&d);
    }
    if d.is_nan() {
        return None;
    }
    Some(number::cmp(Value::Int64(n), Value::Double(d)))
}

impl Operand {
    pub(super) fn new(v: &ValueBuf, collation: &Collation) -> Operand {
        match v.as_value() {
            Value::String(_) | Value::Symbol(_) | Value::Document(_) | Value::Array(_)
                if !collation.is_simple() =>
            {
                Operand::Collated(Box::new((v.clone(), collation.clone())))
            }
            Value::Int32(n) => Operand::Int(i64::from(n)),
            Value::Int64(n) => Operand::Int(n),
            n if n.is_number() && number::is_nan(n) => Operand::NaN,
            Value::Double(n) => Operand::Double(n),
            Value::String(s) | Value::Symbol(s) => Operand::Str(s.as_bytes().into()),
            Value::ObjectId(id) => Operand::Oid(id),
            Value::Null => Operand::Null,
            Value::MinKey => Operand::MinKey,
            Value::MaxKey => Operand::MaxKey,
            _ => Operand::Other(v.clone()),
        }
    }

    /// Whether `elem op self` holds; `None` is a missing field.
    #[inline]
    pub(super) fn test(&self, op: CmpOp, elem: Option<&Elem<'_>>) -> bool {
        let Some(e) = elem else {
            return match self {
                // A missing field compares as null does, and lies between MinKey and MaxKey.
                Operand::Null => matches!(op, CmpOp::Eq | CmpOp::Lte | CmpOp::Gte),
                Operand::MinKey => matches!(op, CmpOp::Gt | CmpOp::Gte),
                Operand::MaxKey => matches!(op, CmpOp::Lt | CmpOp::Lte),
                _ => false,
            };
        };
        match self {
            Operand::MinKey => match e.ty() {
                Type::MinKey => matches!(op, CmpOp::Eq | CmpOp::Lte | CmpOp::Gte),
                _ => matches!(op, CmpOp::Gt | CmpOp::Gte),
            },
            Operand::MaxKey => match e.ty() {
                Type::MaxKey => matches!(op, CmpOp::Eq | CmpOp::Lte | CmpOp::Gte),
                _ => matches!(op, CmpOp::Lt | CmpOp::Lte),
            },
            _ => self.cmp(e).is_some_and(|o| op.accepts(o)),
        }
    }

    /// Compares an element with the operand; `None` if the element is outside the operand's type bracket, or
    /// if one of two numbers is a NaN.
    #[inline]
    fn cmp(&self, e: &Elem<'_>) -> Option<Ordering> {
        let raw = e.raw_value();
        match self {
            Operand::Int(n) => match e.ty() {
                Type::Int32 => Some(i64::from(raw_i32(raw)).cmp(n)),
                Type::Int64 => Some(raw_i64(raw).cmp(n)),
                Type::Double => cmp_int_double(*n, raw_f64(raw)).map(Ordering::reverse),
                Type::Decimal128 => cmp_decimal(e.value(), Value::Int64(*n)),
                _ => None,
            },
            Operand::Double(d) => match e.ty() {
                Type::Double => raw_f64(raw).partial_cmp(d),
                Type::Int32 => f64::from(raw_i32(raw)).partial_cmp(d),
                Type::Int64 => cmp_int_double(raw_i64(raw), *d),
                Type::Decimal128 => cmp_decimal(e.value(), Value::Double(*d)),
                _ => None,
            },
            Operand::NaN => match e.ty() {
                Type::Double if raw_f64(raw).is_nan() => Some(Ordering::Equal),
                Type::Decimal128 if number::is_nan(e.value()) => Some(Ordering::Equal),
                _ => None,
            },
            Operand::Str(s) => match e.ty() {
                Type::String | Type::Symbol => Some(string_bytes(raw).cmp(s)),
                _ => None,
            },
            Operand::Oid(id) => match e.ty() {
                Type::ObjectId => Some(raw.cmp(id)),
                _ => None,
            },
            Operand::Null => (e.ty() == Type::Null).then_some(Ordering::Equal),
            Operand::MinKey | Operand::MaxKey => None,
            Operand::Collated(c) => {
                let (v, collation) = &**c;
                (e.ty().rank() == v.ty().rank()).then(|| collation.cmp(e.value(), v.as_value()))
            }
            Operand::Other(v) => {
                if e.ty().rank() != v.ty().rank() {
                    return None;
                }
                let value = e.value();
                if value.is_number() && number::is_nan(value) {
                    return None;
                }
                Some(cmp_values(value, v.as_value()))
            }
        }
    }
}

/// Compares a decimal with a number that is not NaN.
fn cmp_decimal(a: Value<'_>, b: Value<'_>) -> Option<Ordering> {
    (!number::is_nan(a)).then(|| number::cmp(a, b))
}

/// The values of `$in`, sorted for a binary search.
#[derive(Clone, Debug)]
pub(super) struct InSet {
    values: Values,
    /// The position of null, which a missing field equals.
    null: Option<usize>,
}

#[derive(Clone, Debug)]
enum Values {
    /// Only int32 and int64.
    Ints(Box<[i64]>),
    Strings(Box<[Box<[u8]>]>),
    /// Sorted canonically.
    Any(Box<[ValueBuf]>),
    /// With texts among them, sorted by the collation.
    Collated(Box<[ValueBuf]>, Collation),
}

impl InSet {
    /// `values` must be sorted canonically, with texts sorted by the collation.
    pub(super) fn new(values: &[ValueBuf], collation: &Collation) -> InSet {
        let null = values.iter().position(|v| v.ty() == Type::Null);
        if !collation.is_simple() && values.iter().any(|v| has_text(v.as_value())) {
            let values = Values::Collated(values.into(), collation.clone());
            return InSet { values, null };
        }
        let ints: Option<Box<[i64]>> = values
            .iter()
            .map(|v| match v.as_value() {
                Value::Int32(n) => Some(i64::from(n)),
                Value::Int64(n) => Some(n),
                _ => None,
            })
            .collect();
        let strings: Option<Box<[Box<[u8]>]>> = values
            .iter()
            .map(|v| v.as_value().as_str().map(|s| s.as_bytes().into()))
            .collect();
        let values = match (ints, strings) {
            (Some(ints), _) => Values::Ints(ints),
            (_, Some(strings)) => Values::Strings(strings),
            _ => Values::Any(values.into()),
        };
        InSet { values, null }
    }

    #[inline]
    pub(super) fn contains(&self, elem: Option<&Elem<'_>>) -> bool {
        self.position(elem).is_some()
    }

    /// The number of values.
    pub(super) fn len(&self) -> usize {
        match &self.values {
            Values::Ints(v) => v.len(),
            Values::Strings(v) => v.len(),
            Values::Any(v) | Values::Collated(v, _) => v.len(),
        }
    }

    /// The position of the value that equals the element.
    #[inline]
    pub(super) fn position(&self, elem: Option<&Elem<'_>>) -> Option<usize> {
        let Some(e) = elem else {
            return self.null;
        };
        let raw = e.raw_value();
        match &self.values {
            Values::Ints(ints) => {
                let n = match e.ty() {
                    Type::Int32 => i64::from(raw_i32(raw)),
                    Type::Int64 => raw_i64(raw),
                    Type::Double | Type::Decimal128 => number::to_i64_exact(e.value())?,
                    _ => return None,
                };
                ints.binary_search(&n).ok()
            }
            Values::Strings(strings) => match e.ty() {
                Type::String | Type::Symbol => {
                    let s = string_bytes(raw);
                    strings.binary_search_by(|x| (**x).cmp(s)).ok()
                }
                _ => None,
            },
            Values::Collated(values, collation) => {
                let v = e.value();
                values
                    .binary_search_by(|x| collation.cmp(x.as_value(), v))
                    .ok()
            }
            Values::Any(values) => {
                let v = e.value();
                values
                    .binary_search_by(|x| cmp_values(x.as_value(), v))
                    .ok()
            }
        }
    }
}
