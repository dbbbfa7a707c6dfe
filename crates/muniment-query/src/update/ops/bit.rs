//! `$bit`: bitwise and, or, xor of whole numbers.

use super::put_if_new;
use crate::bytes::{show, show_id};
use crate::update::registry::{LeafOp, Outcome, ParseCx, Sink, Spec, Target};
use muniment_value::{Elem, Error, Result, Value};
use std::sync::Arc;

pub(crate) const SPEC: Spec = Spec {
    name: "$bit",
    doc: "Bitwise and, or, xor of a whole number.",
    parse,
};

#[derive(Debug)]
struct Bit(Vec<(Op, Operand)>);

#[derive(Clone, Copy, Debug)]
enum Op {
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug)]
enum Operand {
    Int(i32),
    Long(i64),
}

fn parse(_: &ParseCx<'_>, e: Elem<'_>, sink: &mut Sink<'_>) -> Result<()> {
    let Value::Document(d) = e.value() else {
        return Err(Error::bad_value(format!(
            "The $bit modifier is not compatible with a {}. You must pass in an embedded document: \
             {{$bit: {{field: {{and/or/xor: #}}}}",
            e.value().type_name()
        )));
    };
    let mut ops = Vec::new();
    for o in d {
        let op = match o.name() {
            "and" => Op::And,
            "or" => Op::Or,
            "xor" => Op::Xor,
            other => {
                return Err(Error::bad_value(format!(
                    "The $bit modifier only supports 'and', 'or', and 'xor', not '{other}' which \
                     is an unknown operator: {{{}}}",
                    show(o)
                )));
            }
        };
        let operand = match o.value() {
            Value::Int32(n) => Operand::Int(n),
            Value::Int64(n) => Operand::Long(n),
            other => {
                return Err(Error::bad_value(format!(
                    "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not \
                     supported here: {{{}}}",
                    other.type_name(),
                    show(o)
                )));
            }
        };
        ops.push((op, operand));
    }
    if ops.is_empty() {
        return Err(Error::bad_value(
            "You must pass in at least one bitwise operation. The format is: {$bit: {field: \
             {and/or/xor: #}}",
        ));
    }
    sink(e.name(), Arc::new(Bit(ops)))
}

impl LeafOp for Bit {
    fn apply(&self, t: &Target<'_>, out: &mut Vec<u8>) -> Result<Outcome> {
        let (mut n, mut long) = match t.old.map(|e| e.value()) {
            None => (0, false),
            Some(Value::Int32(n)) => (i64::from(n), false),
            Some(Value::Int64(n)) => (n, true),
            Some(other) => {
                return Err(Error::bad_value(format!(
                    "Cannot apply $bit to a value of non-integral type.{} has the field {} of \
                     non-integer type {}",
                    show_id(t.root)
                        .trim_start_matches('{')
                        .trim_end_matches('}'),
                    t.name_str(),
                    other.type_name()
                )));
            }
        };
        for (op, operand) in &self.0 {
            let m = match *operand {
                Operand::Int(m) => i64::from(m),
                Operand::Long(m) => {
                    long = true;
                    m
                }
            };
            n = match op {
                Op::And => n & m,
                Op::Or => n | m,
                Op::Xor => n ^ m,
            };
        }
        // Bitwise operations on sign-extended 32-bit numbers stay within 32 bits.
        let new = if long {
            Value::Int64(n)
        } else {
            Value::Int32(n as i32)
        };
        Ok(put_if_new(t.old, t.name, new, out))
    }
}

#[cfg(test)]
mod tests {
    use crate::update::testing::table;

    #[test]
    fn table_of_bit() {
        table(&[
            ("{a:13}", "{$bit:{a:{and:10}}}", "{a:8}"),
            ("{a:3}", "{$bit:{a:{or:5}}}", "{a:7}"),
            ("{a:1}", "{$bit:{a:{xor:5}}}", "{a:4}"),
            ("{a:-1}", "{$bit:{a:{and:255}}}", "{a:255}"),
            ("{a:1}", "{$bit:{a:{or:1}}}", "="),
            (
                "{a:1}",
                "{$bit:{a:{or:{$numberLong:'2'}}}}",
                "{a:{$numberLong:'3'}}",
            ),
            ("{}", "{$bit:{a:{or:5}}}", "{a:5}"),
            (
                "{_id:1,a:1.5}",
                "{$bit:{a:{or:5}}}",
                "2: Cannot apply $bit to a value of non-integral type._id: 1 has the field a of \
              non-integer type double",
            ),
            (
                "{}",
                "{$bit:{a:{}}}",
                "2: You must pass in at least one bitwise operation. The format is: {$bit: {field: \
              {and/or/xor: #}}",
            ),
            (
                "{}",
                "{$bit:{a:{nor:1}}}",
                "2: The $bit modifier only supports 'and', 'or', and 'xor', not 'nor' which is an \
              unknown operator: {nor: 1}",
            ),
            (
                "{}",
                "{$bit:{a:{or:1.5}}}",
                "2: The $bit modifier field must be an Integer(32/64 bit); a 'double' is not \
              supported here: {or: 1.5}",
            ),
        ]);
    }
}
