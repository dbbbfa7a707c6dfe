//! `$mul`: multiplies a number.

use super::inc::Arithmetic;
use crate::bytes::show;
use crate::update::registry::{ParseCx, Sink, Spec};
use muniment_value::{Elem, Error, Result, Value, ValueBuf, number};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$mul",
    doc: "Multiplies a field by a number; a missing field becomes zero.",
    parse,
};

fn parse(_: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    let operand = e.value();
    if !operand.is_number() {
        return Err(Error::type_mismatch(format!(
            "Cannot multiply with non-numeric argument: {{{}}}",
            show(e)
        )));
    }
    let initial = match operand {
        Value::Double(_) => ValueBuf::new(0.0),
        Value::Int64(_) => ValueBuf::new(0_i64),
        // This is zero with exponent 0, in the BID encoding: the biased exponent is 6176.
        Value::Decimal128(_) => ValueBuf::new(Value::Decimal128((6176_u128 << 113).to_le_bytes())),
        _ => ValueBuf::new(0),
    };
    let op = Arithmetic {
        name: "$mul",
        operand: ValueBuf::new(operand),
        initial,
        compute: number::mul,
    };
    sink(e.name(), Arc::new(op))
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_mul() {
        table(&[
            ("{a:3}", "{$mul:{a:2}}", "{a:6}"),
            ("{a:3}", "{$mul:{a:1}}", "="),
            ("{}", "{$mul:{a:2}}", "{a:0}"),
            ("{}", "{$mul:{a:2.5}}", "{a:0.0}"),
            (
                "{}",
                "{$mul:{a:{$numberLong:'2'}}}",
                "{a:{$numberLong:'0'}}",
            ),
            (
                "{}",
                "{$mul:{a:{$numberDecimal:'2'}}}",
                "{a:{$numberDecimal:'0'}}",
            ),
            (
                "{}",
                "{$mul:{a:'x'}}",
                "14: Cannot multiply with non-numeric argument: {a: \"x\"}",
            ),
            (
                "{_id:1,a:[]}",
                "{$mul:{a:1}}",
                "14: Cannot apply $mul to a value of non-numeric type. {_id: 1} has the field 'a' of \
              non-numeric type array",
            ),
        ]);
    }
}
