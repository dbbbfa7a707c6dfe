//! The operators: one file each (or one for a family of one shape), one line each in the registry.

mod arithmetic;
mod boolean;
mod compare;
mod cond;
mod exponential;
mod let_;
mod literal;
mod rand;
mod rounding;

use super::{EvalContext, Expr, OpSpec};
use muniment_value::{Result, Value};

/// All operators, sorted by name.
#[rustfmt::skip]
pub(super) const REGISTRY: &[&OpSpec] = &[
    &rounding::ABS,
    &arithmetic::ADD,
    &boolean::AND,
    &rounding::CEIL,
    &compare::CMP,
    &cond::COND,
    &literal::CONST,
    &arithmetic::DIVIDE,
    &compare::EQ,
    &exponential::EXP,
    &rounding::FLOOR,
    &compare::GT,
    &compare::GTE,
    &cond::IF_NULL,
    &let_::SPEC,
    &literal::LITERAL,
    &exponential::LN,
    &exponential::LOG,
    &exponential::LOG10,
    &compare::LT,
    &compare::LTE,
    &arithmetic::MOD,
    &arithmetic::MULTIPLY,
    &compare::NE,
    &boolean::NOT,
    &boolean::OR,
    &exponential::POW,
    &rand::SPEC,
    &rounding::ROUND,
    &exponential::SQRT,
    &arithmetic::SUBTRACT,
    &cond::SWITCH,
    &rounding::TRUNC,
];

/// Evaluates the i-th argument; missing when there is none.
fn arg<'a>(args: &'a [Expr], i: usize, ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    match args.get(i) {
        Some(e) => e.eval(ctx),
        None => Ok(None),
    }
}

/// Evaluates the i-th argument; `None` for missing, null and undefined.
fn arg_some<'a>(args: &'a [Expr], i: usize, ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    Ok(arg(args, i, ctx)?.filter(|v| !v.is_nullish()))
}

/// MongoDB's name of a value's type, with "missing".
fn type_name(v: Option<Value<'_>>) -> &'static str {
    v.map_or("missing", |v| v.type_name())
}

/// MongoDB's truth of a value; missing is false.
fn truthy(v: Option<Value<'_>>) -> bool {
    v.is_some_and(|v| v.truthy())
}

/// The only argument of a numeric operator; `None` for null and missing.
///
/// # Errors
/// 28765 when it is no number.
fn numeric<'a>(op: &str, args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    match arg_some(args, 0, ctx)? {
        Some(v) if !v.is_number() => Err(muniment_value::Error::location(
            28765,
            format!("{op} only supports numeric types, not {}", v.type_name()),
        )),
        v => Ok(v),
    }
}

/// A number as a double.
///
/// # Errors
/// 238 NotImplemented for decimal128, whose digits a double would lose.
fn double(op: &str, v: Value<'_>) -> Result<f64> {
    match v {
        Value::Decimal128(_) => Err(muniment_value::Error::new(
            muniment_value::Code::NotImplemented,
            format!("{op} of a decimal is not supported"),
        )),
        v => Ok(muniment_value::number::to_f64(v).unwrap_or(f64::NAN)),
    }
}

/// What most operators give for null and missing input.
const NULL: Result<Option<Value<'static>>> = Ok(Some(Value::Null));

/// The named arguments of an operator in their order.
struct Named<'s, 'v, const N: usize> {
    op: &'s str,
    names: [&'s str; N],
    values: [Option<Value<'v>>; N],
}

impl<'s, 'v, const N: usize> Named<'s, 'v, N> {
    /// Reads the fields `names` from an operand; codes: operand no object, unknown field.
    fn read(
        op: &'s str,
        operand: Value<'v>,
        names: [&'s str; N],
        not_object: i32,
        unknown: i32,
    ) -> Result<Self> {
        let Value::Document(d) = operand else {
            return Err(muniment_value::Error::location(
                not_object,
                format!("{op} only supports an object as its argument"),
            ));
        };
        let mut values = [None; N];
        for e in d {
            match names
                .iter()
                .position(|n| *n == e.name())
                .and_then(|i| values.get_mut(i))
            {
                Some(slot) => *slot = Some(e.value()),
                None => {
                    return Err(muniment_value::Error::location(
                        unknown,
                        format!("Unrecognized parameter to {op}: {}", e.name()),
                    ));
                }
            }
        }
        Ok(Named { op, names, values })
    }

    fn get(&self, i: usize) -> Option<Value<'v>> {
        self.values.get(i).copied().flatten()
    }

    /// The i-th argument, or an error with `code` that it is missing.
    fn need(&self, i: usize, code: i32) -> Result<Value<'v>> {
        self.get(i).ok_or_else(|| {
            muniment_value::Error::location(
                code,
                format!(
                    "Missing '{}' parameter to {}",
                    self.names.get(i).copied().unwrap_or_default(),
                    self.op
                ),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::REGISTRY;

    #[test]
    fn registry_is_sorted() {
        for pair in REGISTRY.windows(2) {
            assert!(
                pair[0].name < pair[1].name,
                "{} {}",
                pair[0].name,
                pair[1].name
            );
        }
    }
}
