//! `$mod`: compares the remainder of a division of whole numbers.

use super::OpSpec;
use crate::filter::parse::FieldOperand;
use crate::filter::{FieldOp, Pred};
use crate::running::Work;
use muniment_value::decimal::Decimal;
use muniment_value::{Error, Result, Value, ValueBuf, array, number};
use std::sync::Arc;

/// The specification.
pub(super) const SPEC: OpSpec = OpSpec::field(
    "$mod",
    "The value, cut to a whole number, divided by the first number leaves the second.",
    |_, o| parse(o),
);

#[derive(Debug)]
struct Mod {
    divisor: i64,
    remainder: i64,
}

/// The value as a whole number without its fraction, if it is finite and in the range of int64.
fn whole(v: Value<'_>) -> Option<i64> {
    match v {
        Value::Int32(n) => Some(i64::from(n)),
        Value::Int64(n) => Some(n),
        Value::Double(n) => ((-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0)
            .contains(&n))
        .then_some(n as i64),
        v if v.is_number() => number::to_decimal(v)
            .and_then(Decimal::to_i128_trunc)
            .and_then(|(n, _)| i64::try_from(n).ok()),
        _ => None,
    }
}

fn parse(o: &FieldOperand<'_>) -> Result<Option<Pred>> {
    let Value::Array(items) = o.value else {
        return Err(Error::bad_value("malformed mod, needs to be an array"));
    };
    let mut items = items.values();
    let (Some(d), Some(r)) = (items.next(), items.next()) else {
        return Err(Error::bad_value("malformed mod, not enough elements"));
    };
    if items.next().is_some() {
        return Err(Error::bad_value("malformed mod, too many elements"));
    }
    let number = |v: Value<'_>, what: &str| {
        if !v.is_number() {
            return Err(Error::bad_value(format!(
                "malformed mod, {what} not a number"
            )));
        }
        whole(v).ok_or_else(|| {
            Error::bad_value(format!(
                "malformed mod, {what} value is invalid :: caused by :: Unable to coerce {} to integral type",
                v.to_display()
            ))
        })
    };
    let divisor = number(d, "divisor")?;
    let remainder = number(r, "remainder")?;
    if divisor == 0 {
        return Err(Error::bad_value("divisor cannot be 0"));
    }
    Ok(Some(Pred::Other(Arc::new(Mod { divisor, remainder }))))
}

impl Mod {
    fn holds(&self, value: Option<Value<'_>>) -> bool {
        value
            .and_then(whole)
            .is_some_and(|n| n.wrapping_rem(self.divisor) == self.remainder)
    }
}

impl FieldOp for Mod {
    fn name(&self) -> &'static str {
        "$mod"
    }

    fn operand(&self) -> ValueBuf {
        ValueBuf::new(Value::Array(
            array![number::narrow(self.divisor), number::narrow(self.remainder)].as_doc(),
        ))
    }

    fn matches(&self, value: Option<Value<'_>>, _: Work<'_>) -> Result<bool> {
        Ok(self.holds(value))
    }

    fn wants_number(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::filter::tests::{fails, matches};

    #[test]
    fn table_test() {
        matches(
            "{'a': {'$mod': [4, 1]}}",
            &[
                "{'a': 5}",
                "{'a': 5.9}",
                "{'a': ['$long', 9]}",
                "{'a': [2, 5]}",
            ],
            &[
                "{'a': 4}",
                "{'a': '5'}",
                "{'a': ['$NaN']}",
                "{'a': ['$inf']}",
                "{}",
            ],
        );
        matches("{'a': {'$mod': [4, -1]}}", &["{'a': -5}"], &["{'a': 3}"]);
        matches("{'a': {'$mod': [4.7, 0]}}", &["{'a': 8}"], &["{'a': 7}"]);
        matches(
            "{'a': {'$mod': [-1, 0]}}",
            &["{'a': ['$long', -9223372036854775808]}"],
            &[],
        );
        fails(
            "{'a': {'$mod': 1}}",
            2,
            "malformed mod, needs to be an array",
        );
        fails(
            "{'a': {'$mod': [1]}}",
            2,
            "malformed mod, not enough elements",
        );
        fails(
            "{'a': {'$mod': [1, 2, 3]}}",
            2,
            "malformed mod, too many elements",
        );
        fails(
            "{'a': {'$mod': ['x', 2]}}",
            2,
            "malformed mod, divisor not a number",
        );
        fails(
            "{'a': {'$mod': [1, 'x']}}",
            2,
            "malformed mod, remainder not a number",
        );
        matches(
            "{'a': {'$mod': [['$dec', '4.5'], 1]}}",
            &["{'a': ['$dec', '5.9']}"],
            &["{'a': ['$dec', '1e30']}", "{'a': ['$dec', 'NaN']}"],
        );
        fails(
            "{'a': {'$mod': [['$dec', '1E+30'], 0]}}",
            2,
            "malformed mod, divisor value is invalid :: caused by :: Unable to coerce 1E+30 to integral type",
        );
        fails("{'a': {'$mod': [0, 1]}}", 2, "divisor cannot be 0");
    }
}
