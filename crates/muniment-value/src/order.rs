//! MongoDB's canonical comparison of BSON values.
//!
//! Source: the manual, "Comparison/Sort Order". Types compare by rank, values within a rank by
//! value; numbers compare across their four types by exact value.

use crate::number;
use crate::raw::{Doc, Elem, Value};
use std::cmp::Ordering;

/// Compares two values canonically.
pub fn cmp_values(a: Value<'_>, b: Value<'_>) -> Ordering {
    let ranks = a.ty().rank().cmp(&b.ty().rank());
    if ranks != Ordering::Equal {
        return ranks;
    }
    match (a, b) {
        (Value::Int32(x), Value::Int32(y)) => x.cmp(&y),
        (Value::String(x) | Value::Symbol(x), Value::String(y) | Value::Symbol(y)) => {
            x.as_bytes().cmp(y.as_bytes())
        }
        (Value::ObjectId(x), Value::ObjectId(y)) => x.cmp(&y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(&y),
        (Value::DateTime(x), Value::DateTime(y)) => x.cmp(&y),
        (Value::Timestamp { t, i }, Value::Timestamp { t: t2, i: i2 }) => (t, i).cmp(&(t2, i2)),
        (Value::Document(x), Value::Document(y)) => cmp_docs(x, y),
        (Value::Array(x), Value::Array(y)) => cmp_arrays(x, y),
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
        ) => code.cmp(c2).then_with(|| cmp_docs(scope, s2)),
        _ if a.is_number() => number::cmp(a, b),
        _ => Ordering::Equal,
    }
}

/// Compares two documents canonically: element by element, by type rank, then name, then value;
/// a document that ends first is less.
pub fn cmp_docs(a: Doc<'_>, b: Doc<'_>) -> Ordering {
    cmp_elems(a, b, |x, y| x.name_bytes().cmp(y.name_bytes()))
}

fn cmp_arrays(a: Doc<'_>, b: Doc<'_>) -> Ordering {
    cmp_elems(a, b, |_, _| Ordering::Equal)
}

fn cmp_elems(a: Doc<'_>, b: Doc<'_>, names: impl Fn(&Elem<'_>, &Elem<'_>) -> Ordering) -> Ordering {
    if a.as_bytes() == b.as_bytes() {
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
        let o = x
            .ty()
            .rank()
            .cmp(&y.ty().rank())
            .then_with(|| names(&x, &y))
            .then_with(|| cmp_values(x.value(), y.value()));
        if o != Ordering::Equal {
            return o;
        }
    }
}

/// Canonical equality: 1, 1.0 and NumberLong(1) are equal; field order matters.
pub fn values_equal(a: Value<'_>, b: Value<'_>) -> bool {
    cmp_values(a, b) == Ordering::Equal
}
