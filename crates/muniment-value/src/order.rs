//! MongoDB's canonical comparison of BSON values.
//!
//! Source: the manual, "Comparison/Sort Order". Types compare by rank, values within a rank by
//! value; numbers compare across their four types by exact value.

use crate::collation::Collator;
use crate::number;
use crate::raw::{Doc, Value};
use std::cmp::Ordering;

/// The depth at which comparison and key encoding stop descending. It is deeper than any valid document, and
/// no input can exhaust the stack. Deeper values count as equal.
pub(crate) const MAX_NESTING: usize = 250;

/// How texts compare.
trait Texts {
    fn cmp(&self, a: &str, b: &str) -> Ordering;
}

struct Bytes;

impl Texts for Bytes {
    #[inline]
    fn cmp(&self, a: &str, b: &str) -> Ordering {
        a.as_bytes().cmp(b.as_bytes())
    }
}

impl Texts for Collator {
    fn cmp(&self, a: &str, b: &str) -> Ordering {
        self.compare(a, b)
    }
}

/// Compares two values canonically, texts by a collation.
pub(crate) fn cmp_collated(a: Value<'_>, b: Value<'_>, collator: &Collator) -> Ordering {
    cmp_any(a, b, MAX_NESTING, collator)
}

/// Compares two values canonically.
#[inline]
pub fn cmp_values(a: Value<'_>, b: Value<'_>) -> Ordering {
    match (a, b) {
        (Value::Int32(x), Value::Int32(y)) => x.cmp(&y),
        (Value::String(x), Value::String(y)) => x.as_bytes().cmp(y.as_bytes()),
        (Value::ObjectId(x), Value::ObjectId(y)) => x.cmp(&y),
        (
            Value::Int32(_) | Value::Int64(_) | Value::Double(_),
            Value::Int32(_) | Value::Int64(_) | Value::Double(_),
        ) => number::cmp(a, b),
        (Value::DateTime(x), Value::DateTime(y)) => x.cmp(&y),
        _ => cmp_any(a, b, MAX_NESTING, &Bytes),
    }
}

fn cmp_any(a: Value<'_>, b: Value<'_>, depth: usize, texts: &impl Texts) -> Ordering {
    let ranks = a.ty().rank().cmp(&b.ty().rank());
    if ranks != Ordering::Equal {
        return ranks;
    }
    match (a, b) {
        (Value::String(x) | Value::Symbol(x), Value::String(y) | Value::Symbol(y)) => {
            texts.cmp(x, y)
        }
        (Value::ObjectId(x), Value::ObjectId(y)) => x.cmp(&y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(&y),
        (Value::DateTime(x), Value::DateTime(y)) => x.cmp(&y),
        (Value::Timestamp { t, i }, Value::Timestamp { t: t2, i: i2 }) => (t, i).cmp(&(t2, i2)),
        (Value::Document(x), Value::Document(y)) => cmp_elems(x, y, true, depth, texts),
        (Value::Array(x), Value::Array(y)) => cmp_elems(x, y, false, depth, texts),
        (
            Value::Binary { subtype, bytes },
            Value::Binary {
                subtype: s2,
                bytes: b2,
            },
        ) => (bytes.len(), subtype, bytes).cmp(&(b2.len(), s2, b2)),
        (
            Value::Regex { pattern, options },
            Value::Regex {
                pattern: p2,
                options: o2,
            },
        ) => (pattern, options).cmp(&(p2, o2)),
        (
            Value::DbPointer { namespace, id },
            Value::DbPointer {
                namespace: n2,
                id: i2,
            },
        ) => (namespace.len(), namespace, id).cmp(&(n2.len(), n2, i2)),
        (Value::Code(x), Value::Code(y)) => x.cmp(y),
        (
            Value::CodeWithScope { code, scope },
            Value::CodeWithScope {
                code: c2,
                scope: s2,
            },
        ) => code
            .cmp(c2)
            .then_with(|| cmp_elems(scope, s2, true, depth, &Bytes)),
        _ if a.is_number() => number::cmp(a, b),
        _ => Ordering::Equal,
    }
}

/// Compares two documents canonically: element by element, by type rank, then name, then value;
/// a document that ends first is less.
pub fn cmp_docs(a: Doc<'_>, b: Doc<'_>) -> Ordering {
    cmp_elems(a, b, true, MAX_NESTING, &Bytes)
}

fn cmp_elems(a: Doc<'_>, b: Doc<'_>, names: bool, depth: usize, texts: &impl Texts) -> Ordering {
    if depth == 0 || a.as_bytes() == b.as_bytes() {
        return Ordering::Equal;
    }
    let (mut ia, mut ib) = (a.iter(), b.iter());
    loop {
        let (x, y) = match (ia.next(), ib.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => (x, y),
        };
        let ranks = x.ty().rank().cmp(&y.ty().rank());
        let o = ranks
            .then_with(|| {
                if names {
                    x.name_bytes().cmp(y.name_bytes())
                } else {
                    Ordering::Equal
                }
            })
            .then_with(|| cmp_any(x.value(), y.value(), depth - 1, texts));
        if o != Ordering::Equal {
            return o;
        }
    }
}

/// Canonical equality: 1, 1.0 and NumberLong(1) are equal; field order matters.
pub fn values_equal(a: Value<'_>, b: Value<'_>) -> bool {
    cmp_values(a, b) == Ordering::Equal
}
