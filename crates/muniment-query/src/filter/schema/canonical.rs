//! Equality as JSON Schema defines it: the order of an object's fields does not matter.

use muniment_value::{ArrayBuf, DocBuf, Value, ValueBuf, keyenc};

/// A byte string that is the same for equal values.
pub(super) fn key(v: Value<'_>) -> Vec<u8> {
    match v {
        Value::Document(_) | Value::Array(_) => keyenc::encoded(sorted(v, 0).as_value()),
        v => keyenc::encoded(v),
    }
}

/// Documents nested deeper than this are not sorted. It is more than a client may send.
const MAX_DEPTH: usize = 200;

fn sorted(v: Value<'_>, depth: usize) -> ValueBuf {
    match v {
        Value::Document(d) if depth < MAX_DEPTH => {
            let mut fields: Vec<_> = d.iter().map(|e| (e.name(), e.value())).collect();
            fields.sort_by_key(|(name, _)| *name);
            let mut out = DocBuf::new();
            for (name, v) in fields {
                out.append(name, sorted(v, depth + 1));
            }
            ValueBuf::new(out)
        }
        Value::Array(a) if depth < MAX_DEPTH => {
            let mut out = ArrayBuf::new();
            for v in a.values() {
                out.push(sorted(v, depth + 1));
            }
            ValueBuf::new(out)
        }
        v => ValueBuf::new(v),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::key;
    use crate::expr::testing::value;

    #[test]
    fn order_of_fields_does_not_count() {
        let same = |a: &str, b: &str| key(value(a).as_value()) == key(value(b).as_value());
        assert!(same("{'a': 1, 'b': 2}", "{'b': 2.0, 'a': 1}"));
        assert!(same(
            "[{'a': {'x': 1, 'y': 2}}]",
            "[{'a': {'y': 2, 'x': 1}}]"
        ));
        assert!(!same("[1, 2]", "[2, 1]"));
        assert!(!same("{'a': 1}", "{'a': 1, 'b': 1}"));
        assert!(!same("0", "false"));
    }
}
