//! `$inc`: adds to a number. The code is shared with `$mul`.

use crate::bytes::{put, show, show_id};
use crate::update::registry::{LeafOp, Outcome, ParseCx, Sink, Spec, Target};
use muniment_value::{Elem, Error, Result, Value, ValueBuf, number, values_equal};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$inc",
    doc: "Adds a number to a field; sets the field when it is missing.",
    parse,
};

/// `$inc` or `$mul`.
#[derive(Debug)]
pub(crate) struct Arithmetic {
    pub name: &'static str,
    pub operand: ValueBuf,
    /// The new value of a missing field.
    pub initial: ValueBuf,
    pub compute: fn(Value<'_>, Value<'_>, bool) -> Result<Value<'static>>,
}

fn parse(_: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    if !e.value().is_number() {
        return Err(Error::type_mismatch(format!(
            "Cannot increment with non-numeric argument: {{{}}}",
            show(e)
        )));
    }
    let op = Arithmetic {
        name: "$inc",
        operand: ValueBuf::new(e),
        initial: ValueBuf::new(e),
        compute: number::add,
    };
    sink(e.name(), Arc::new(op))
}

impl LeafOp for Arithmetic {
    fn apply(&self, t: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome> {
        let Some(old) = t.old else {
            put(out, t.name, &self.initial);
            return Ok(Outcome::Changed);
        };
        let value = old.value();
        if !value.is_number() {
            return Err(Error::type_mismatch(format!(
                "Cannot apply {} to a value of non-numeric type. {} has the field '{}' of \
                 non-numeric type {}",
                self.name,
                show_id(t.root),
                t.name_str(),
                value.type_name()
            )));
        }
        let new = (self.compute)(value, self.operand.as_value(), false).map_err(|_| {
            Error::bad_value(format!(
                "Failed to apply {} operations to current value ({}) for document {}",
                self.name,
                typed(value),
                show_id(t.root)
            ))
        })?;
        // A result of the same type and value is no change, even if the bytes differ (-0.0).
        if new.ty() == old.ty() && values_equal(new, value) {
            return Ok(Outcome::Unchanged);
        }
        put(out, t.name, &new);
        Ok(Outcome::Changed)
    }
}

/// A number with its type, in the form in which MongoDB prints the operands of failed arithmetic.
fn typed(v: Value<'_>) -> String {
    let ty = match v {
        Value::Int32(_) => "NumberInt",
        Value::Int64(_) => "NumberLong",
        Value::Decimal128(_) => "NumberDecimal",
        _ => "NumberDouble",
    };
    let text = match v {
        Value::Int64(n) => n.to_string(),
        v => v.to_display(),
    };
    format!("({ty}){text}")
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_inc() {
        table(&[
            ("{a:1}", "{$inc:{a:2}}", "{a:3}"),
            ("{a:1}", "{$inc:{a:0}}", "="),
            ("{a:-0.0}", "{$inc:{a:0.0}}", "="),
            ("{a:1}", "{$inc:{a:1.5}}", "{a:2.5}"),
            ("{}", "{$inc:{a:2}}", "{a:2}"),
            ("{}", "{$inc:{'a.b':2}}", "{a:{b:2}}"),
            (
                "{a:2147483647}",
                "{$inc:{a:1}}",
                "{a:{$numberLong:'2147483648'}}",
            ),
            (
                "{_id:1,a:'x'}",
                "{$inc:{a:1}}",
                "14: Cannot apply $inc to a value of non-numeric type. {_id: 1} has the field 'a' of \
              non-numeric type string",
            ),
            (
                "{_id:1,a:null}",
                "{$inc:{a:1}}",
                "14: Cannot apply $inc to a value of non-numeric type. {_id: 1} has the field 'a' of \
              non-numeric type null",
            ),
            (
                "{}",
                "{$inc:{a:'x'}}",
                "14: Cannot increment with non-numeric argument: {a: \"x\"}",
            ),
            (
                "{_id:1,a:{$numberLong:'9223372036854775807'}}",
                "{$inc:{a:1}}",
                "2: Failed to apply $inc operations to current value ((NumberLong)9223372036854775807) \
              for document {_id: 1}",
            ),
        ]);
    }
}
