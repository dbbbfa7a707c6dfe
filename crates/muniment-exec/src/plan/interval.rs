//! Intervals of values, into which the predicates on one field are translated.
//!
//! Lists of intervals are ascending in canonical order and disjoint. The ends are values, so that
//! `explain` can print them. A scan encodes them with the key encoding, whose byte order is the
//! same.

use muniment_value::collation::key_hex;
use muniment_value::{Doc, Put, Value, ValueBuf, cmp_values};
use std::cmp::Ordering;

/// One interval of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    /// The lower end.
    pub low: ValueBuf,
    /// True when the lower end is inside.
    pub low_incl: bool,
    /// The upper end.
    pub high: ValueBuf,
    /// True when the upper end is inside.
    pub high_incl: bool,
}

impl Interval {
    /// An interval between two values.
    pub(crate) fn new(low: impl Put, low_incl: bool, high: impl Put, high_incl: bool) -> Interval {
        Interval {
            low: ValueBuf::new(low),
            low_incl,
            high: ValueBuf::new(high),
            high_incl,
        }
    }

    /// The interval of all values.
    pub(crate) fn all() -> Interval {
        Interval::new(Value::MinKey, true, Value::MaxKey, true)
    }

    /// The interval of one value.
    pub(crate) fn point(v: Value<'_>) -> Interval {
        Interval::new(v, true, v, true)
    }

    /// True if the interval has one value.
    pub(crate) fn is_point(&self) -> bool {
        self.low_incl
            && self.high_incl
            && cmp_values(self.low.as_value(), self.high.as_value()) == Ordering::Equal
    }

    /// True if the interval has all values.
    pub(crate) fn is_all(&self) -> bool {
        matches!(self.low.as_value(), Value::MinKey)
            && matches!(self.high.as_value(), Value::MaxKey)
            && self.low_incl
            && self.high_incl
    }

    fn is_empty(&self) -> bool {
        match cmp_values(self.low.as_value(), self.high.as_value()) {
            Ordering::Less => false,
            Ordering::Equal => !(self.low_incl && self.high_incl),
            Ordering::Greater => true,
        }
    }

    /// The least number of bytes that explain needs to show the interval.
    pub(crate) fn size(&self) -> usize {
        let end = |v: &ValueBuf| match v.as_value() {
            Value::String(s) | Value::Symbol(s) => 4 + s.len(),
            Value::Binary { bytes, .. } => 4 + bytes.len(),
            Value::Document(d) | Value::Array(d) => d.byte_len(),
            _ => 4,
        };
        end(&self.low) + end(&self.high)
    }

    /// The interval as `explain` prints it: `[5, 5]`, `(5, inf]`, `["a", "b")`. It is printed from
    /// high to low if `reversed`.
    pub(crate) fn display(&self, reversed: bool) -> String {
        self.display_by(reversed, show)
    }

    /// As [`Interval::display`], for an index with a collation, whose strings are collation keys.
    pub(crate) fn display_collated(&self, reversed: bool) -> String {
        self.display_by(reversed, |v| match v {
            Value::String(key) if !key.is_empty() => format!("CollationKey({})", key_hex(key)),
            v => show(v),
        })
    }

    fn display_by(&self, reversed: bool, show: impl Fn(Value<'_>) -> String) -> String {
        let (low, high) = (show(self.low.as_value()), show(self.high.as_value()));
        let open = |incl| if incl { '[' } else { '(' };
        let close = |incl| if incl { ']' } else { ')' };
        if reversed {
            format!(
                "{}{high}, {low}{}",
                open(self.high_incl),
                close(self.low_incl)
            )
        } else {
            format!(
                "{}{low}, {high}{}",
                open(self.low_incl),
                close(self.high_incl)
            )
        }
    }
}

/// A value as it is printed in index bounds.
fn show(v: Value<'_>) -> String {
    match v {
        Value::MinKey => "MinKey".into(),
        Value::MaxKey => "MaxKey".into(),
        Value::Double(n) if n.is_infinite() => if n > 0.0 { "inf" } else { "-inf" }.into(),
        Value::Undefined => "undefined".into(),
        Value::Null => "null".into(),
        Value::Document(d) if d.is_empty() => "{}".into(),
        Value::Array(d) if d.is_empty() => "[]".into(),
        Value::Regex { pattern, options } => format!("/{pattern}/{options}"),
        other => other.to_display(),
    }
}

/// Compares two lower ends.
fn cmp_low(a: &Interval, b: &Interval) -> Ordering {
    cmp_values(a.low.as_value(), b.low.as_value()).then_with(|| b.low_incl.cmp(&a.low_incl))
}

/// Compares two upper ends.
fn cmp_high(a: &Interval, b: &Interval) -> Ordering {
    cmp_values(a.high.as_value(), b.high.as_value()).then_with(|| a.high_incl.cmp(&b.high_incl))
}

/// The common part of two ascending lists.
pub(crate) fn intersect(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let mut out = Vec::new();
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let low = if cmp_low(x, y) == Ordering::Less {
            y
        } else {
            x
        };
        let high = if cmp_high(x, y) == Ordering::Less {
            x
        } else {
            y
        };
        let both = Interval {
            low: low.low.clone(),
            low_incl: low.low_incl,
            high: high.high.clone(),
            high_incl: high.high_incl,
        };
        if !both.is_empty() {
            out.push(both);
        }
        if cmp_high(x, y) == Ordering::Less {
            i += 1;
        } else {
            j += 1;
        }
    }
    out
}

/// Sorts the list, drops empty intervals, and joins those that touch.
pub(crate) fn union(mut list: Vec<Interval>) -> Vec<Interval> {
    list.retain(|i| !i.is_empty());
    list.sort_by(cmp_low);
    let mut out: Vec<Interval> = Vec::with_capacity(list.len());
    for next in list {
        if let Some(last) = out.last_mut() {
            let o = cmp_values(next.low.as_value(), last.high.as_value());
            let joined = match o {
                Ordering::Less => true,
                Ordering::Equal => next.low_incl || last.high_incl,
                Ordering::Greater => false,
            };
            if joined {
                if cmp_high(last, &next) == Ordering::Less {
                    last.high = next.high;
                    last.high_incl = next.high_incl;
                }
                continue;
            }
        }
        out.push(next);
    }
    out
}

/// The intervals of everything that is not in the ascending, disjoint list.
pub(crate) fn complement(list: &[Interval]) -> Vec<Interval> {
    let mut out = Vec::new();
    let mut low = ValueBuf::new(Value::MinKey);
    let mut low_incl = true;
    for i in list {
        let gap = Interval {
            low: low.clone(),
            low_incl,
            high: i.low.clone(),
            high_incl: !i.low_incl,
        };
        if !gap.is_empty() {
            out.push(gap);
        }
        low = i.high.clone();
        low_incl = !i.high_incl;
    }
    let last = Interval {
        low,
        low_incl,
        high: ValueBuf::new(Value::MaxKey),
        high_incl: true,
    };
    if !last.is_empty() {
        out.push(last);
    }
    out
}

/// The bracket of types that `v` compares with: its lowest value, its highest, and whether the
/// highest is inside (some brackets have no greatest value and end where the next type begins).
/// `None` for types without an order of their own that an index could use.
pub(crate) fn bracket(v: Value<'_>) -> Option<Interval> {
    Some(match v {
        Value::Double(_) | Value::Int32(_) | Value::Int64(_) | Value::Decimal128(_) => {
            Interval::new(f64::NEG_INFINITY, true, f64::INFINITY, true)
        }
        Value::String(_) | Value::Symbol(_) => {
            Interval::new("", true, Value::Document(Doc::EMPTY), false)
        }
        Value::Document(_) => Interval::new(
            Value::Document(Doc::EMPTY),
            true,
            Value::Array(Doc::EMPTY),
            false,
        ),
        Value::Binary { .. } => Interval::new(
            Value::Binary {
                subtype: 0,
                bytes: &[],
            },
            true,
            Value::ObjectId([0; 12]),
            false,
        ),
        Value::ObjectId(_) => Interval::new(
            Value::ObjectId([0; 12]),
            true,
            Value::ObjectId([0xFF; 12]),
            true,
        ),
        Value::Bool(_) => Interval::new(false, true, true, true),
        Value::DateTime(_) => Interval::new(
            Value::DateTime(i64::MIN),
            true,
            Value::DateTime(i64::MAX),
            true,
        ),
        Value::Timestamp { .. } => Interval::new(
            Value::Timestamp { t: 0, i: 0 },
            true,
            Value::Timestamp {
                t: u32::MAX,
                i: u32::MAX,
            },
            true,
        ),
        Value::Regex { .. } => Interval::new(
            Value::Regex {
                pattern: "",
                options: "",
            },
            true,
            Value::DbPointer {
                namespace: "",
                id: [0; 12],
            },
            false,
        ),
        Value::DbPointer { .. } => Interval::new(
            Value::DbPointer {
                namespace: "",
                id: [0; 12],
            },
            true,
            Value::Code(""),
            false,
        ),
        Value::Code(_) => Interval::new(
            Value::Code(""),
            true,
            Value::CodeWithScope {
                code: "",
                scope: Doc::EMPTY,
            },
            false,
        ),
        Value::CodeWithScope { .. } => Interval::new(
            Value::CodeWithScope {
                code: "",
                scope: Doc::EMPTY,
            },
            true,
            Value::MaxKey,
            false,
        ),
        Value::Array(_) | Value::Null | Value::Undefined | Value::MinKey | Value::MaxKey => {
            return None;
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn show_all(l: &[Interval]) -> String {
        l.iter()
            .map(|i| i.display(false))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn algebra_of_lists() {
        let points = union(vec![
            Interval::point(Value::Int32(7)),
            Interval::point(Value::Int32(3)),
            Interval::point(Value::Double(3.0)),
        ]);
        assert_eq!(points.len(), 2);
        let range = vec![Interval::new(3, false, 9, true)];
        assert_eq!(intersect(&points, &range).len(), 1);
        let rest = complement(&points);
        assert_eq!(rest.len(), 3);
        assert_eq!(complement(&rest), points);
        assert!(complement(&[Interval::all()]).is_empty());
        assert!(complement(&[])[0].is_all());
        let joined = union(vec![
            Interval::new(1, true, 5, false),
            Interval::new(5, true, 8, true),
        ]);
        assert_eq!(joined, vec![Interval::new(1, true, 8, true)]);
        let apart = union(vec![
            Interval::new(1, true, 5, false),
            Interval::new(5, false, 8, true),
        ]);
        assert_eq!(apart.len(), 2);
    }

    #[test]
    fn bounds_print_as_in_explain() {
        assert_eq!(show_all(&[Interval::all()]), "[MinKey, MaxKey]");
        assert_eq!(
            show_all(&[Interval::new(5, false, f64::INFINITY, true)]),
            "(5, inf]"
        );
        assert_eq!(
            Interval::new("a", true, "b", false).display(false),
            "[\"a\", \"b\")"
        );
        assert_eq!(
            Interval::new("a", true, "b", false).display(true),
            "(\"b\", \"a\"]"
        );
    }
}
