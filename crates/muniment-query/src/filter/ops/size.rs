//! `$size`: the number of an array's elements.

use super::OpSpec;
use crate::filter::parse::FieldOperand;
use crate::filter::{FieldOp, Pred};
use crate::running::Work;
use muniment_value::{Error, Result, Value, ValueBuf, number};
use std::sync::Arc;

/// The specification.
pub(super) const SPEC: OpSpec =
    OpSpec::field("$size", "An array with this many elements.", |_, o| {
        parse(o)
    });

#[derive(Debug)]
struct Size(i64);

fn parse(o: &FieldOperand<'_>) -> Result<Option<Pred>> {
    let fail = |what: &str| {
        Err(Error::bad_value(format!(
            "Failed to parse $size. {what}: $size: {}",
            o.value.to_display()
        )))
    };
    if !o.value.is_number() {
        return fail("Expected a number in");
    }
    match o.value.as_i64_exact() {
        None => fail("Expected an integer"),
        Some(n) if n < 0 => fail("Expected a non-negative number in"),
        Some(n) if n > i64::from(i32::MAX) => fail("Cannot represent as a 32-bit integer"),
        Some(n) => Ok(Some(Pred::Other(Arc::new(Size(n))))),
    }
}

impl Size {
    fn holds(&self, value: Option<Value<'_>>) -> bool {
        match value {
            // Counting stops at one more than the wanted size.
            Some(Value::Array(items)) => {
                let most = usize::try_from(self.0)
                    .unwrap_or(usize::MAX)
                    .saturating_add(1);
                items.iter().take(most).count() as i64 == self.0
            }
            _ => false,
        }
    }
}

impl FieldOp for Size {
    fn name(&self) -> &'static str {
        "$size"
    }

    fn operand(&self) -> ValueBuf {
        ValueBuf::new(number::narrow(self.0))
    }

    fn matches(&self, value: Option<Value<'_>>, _: Work<'_>) -> Result<bool> {
        Ok(self.holds(value))
    }

    fn traverses_array(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'a': {'$size': 2}}",
            &["{'a': [1, 2]}"],
            &[
                "{'a': [1]}",
                "{'a': [1, 2, 3]}",
                "{'a': [[1, 2]]}",
                "{'a': 2}",
                "{}",
            ],
        );
        matches("{'a': {'$size': 0.0}}", &["{'a': []}"], &["{}"]);
        matches(
            "{'a.b': {'$size': 1}}",
            &["{'a': [{'b': [1]}]}"],
            &["{'a': [{'b': 1}]}"],
        );
        fails(
            "{'a': {'$size': -1}}",
            2,
            "Failed to parse $size. Expected a non-negative number in: $size: -1",
        );
        fails(
            "{'a': {'$size': 1.5}}",
            2,
            "Failed to parse $size. Expected an integer: $size: 1.5",
        );
        fails(
            "{'a': {'$size': 2147483648}}",
            2,
            "Failed to parse $size. Cannot represent as a 32-bit integer: $size: 2147483648",
        );
        fails(
            "{'a': {'$size': 'x'}}",
            2,
            "Failed to parse $size. Expected a number in: $size: \"x\"",
        );
    }
}
