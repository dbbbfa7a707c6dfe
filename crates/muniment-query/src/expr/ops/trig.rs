//! Trigonometry: `$sin`, `$cos`, `$tan`, their inverses, the hyperbolic functions and their inverses,
//! `$atan2`, `$degreesToRadians`, `$radiansToDegrees`. The result is a decimal for a decimal, otherwise a
//! double.

use super::{NULL, arg_some, double, numeric};
use crate::expr::{Arity, EvalContext, Expr, OpSpec};
use muniment_value::decimal::Decimal;
use muniment_value::{Error, Result, Value, number};

/// The arguments for which a function is defined.
#[derive(Clone, Copy)]
enum Domain {
    All,
    /// The numbers between two bounds, inclusive.
    Between(f64, f64, &'static str),
    /// All numbers except the infinities.
    Finite,
}

macro_rules! functions {
    ($($id:ident $name:literal $domain:expr, $f:path, $d:path, $doc:literal;)*) => {$(
        /// The specification.
        pub(super) const $id: OpSpec = OpSpec::new(
            $name,
            Arity::Exactly(1),
            $doc,
            |args, ctx| one($name, args, ctx, $domain, $f, $d),
        );
    )*};
}

const UNIT: Domain = Domain::Between(-1.0, 1.0, "[-1,1]");
const FROM_ONE: Domain = Domain::Between(1.0, f64::INFINITY, "[1,inf]");

functions! {
    ACOS "$acos" UNIT, f64::acos, Decimal::acos, "The inverse cosine, in radians.";
    ACOSH "$acosh" FROM_ONE, f64::acosh, Decimal::acosh, "The inverse hyperbolic cosine.";
    ASIN "$asin" UNIT, f64::asin, Decimal::asin, "The inverse sine, in radians.";
    ASINH "$asinh" Domain::All, f64::asinh, Decimal::asinh, "The inverse hyperbolic sine.";
    ATAN "$atan" Domain::All, f64::atan, Decimal::atan, "The inverse tangent, in radians.";
    ATANH "$atanh" UNIT, f64::atanh, Decimal::atanh, "The inverse hyperbolic tangent.";
    COS "$cos" Domain::Finite, f64::cos, Decimal::cos, "The cosine of radians.";
    COSH "$cosh" Domain::All, f64::cosh, Decimal::cosh, "The hyperbolic cosine.";
    SIN "$sin" Domain::Finite, f64::sin, Decimal::sin, "The sine of radians.";
    SINH "$sinh" Domain::All, f64::sinh, Decimal::sinh, "The hyperbolic sine.";
    TAN "$tan" Domain::Finite, f64::tan, Decimal::tan, "The tangent of radians.";
    TANH "$tanh" Domain::All, f64::tanh, Decimal::tanh, "The hyperbolic tangent.";
    DEGREES_TO_RADIANS "$degreesToRadians" Domain::All, radians, decimal_radians, "Degrees as radians.";
    RADIANS_TO_DEGREES "$radiansToDegrees" Domain::All, degrees, decimal_degrees, "Radians as degrees.";
}

fn radians(n: f64) -> f64 {
    n * (std::f64::consts::PI / 180.0)
}

fn degrees(n: f64) -> f64 {
    n * (180.0 / std::f64::consts::PI)
}

/// A constant with 34 digits times a decimal.
fn scaled(d: Decimal, by: &str) -> Decimal {
    d.mul(Decimal::parse(by).unwrap_or(Decimal::NAN))
}

fn decimal_radians(d: Decimal) -> Decimal {
    scaled(d, "0.01745329251994329576923690768488613")
}

fn decimal_degrees(d: Decimal) -> Decimal {
    scaled(d, "57.29577951308232087679815481410517")
}

fn one<'a>(
    op: &str,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    domain: Domain,
    f: fn(f64) -> f64,
    d: fn(Decimal) -> Decimal,
) -> Result<Option<Value<'a>>> {
    let Some(v) = numeric(op, args, ctx)? else {
        return NULL;
    };
    let (inside, range) = match domain {
        Domain::All => (true, ""),
        Domain::Finite => (!number::is_infinite(v), "(-inf,inf)"),
        Domain::Between(least, most, range) => {
            let below = number::cmp(v, Value::Double(least)).is_lt();
            let above = number::cmp(v, Value::Double(most)).is_gt();
            (!below && !above, range)
        }
    };
    if !inside && !number::is_nan(v) {
        return Err(Error::location(
            50989,
            format!(
                "cannot apply {op} to {}, value must be in {range}",
                v.to_display()
            ),
        ));
    }
    Ok(Some(match v {
        Value::Decimal128(b) => Value::Decimal128(d(Decimal::from_bid(b)).to_bid()),
        v => Value::Double(f(double(v))),
    }))
}

/// The specification of `$atan2`.
pub(super) const ATAN2: OpSpec = OpSpec::new(
    "$atan2",
    Arity::Exactly(2),
    "The angle of the point whose y and x are the operands, in radians.",
    |args, ctx| {
        let (Some(y), Some(x)) = (arg_some(args, 0, ctx)?, arg_some(args, 1, ctx)?) else {
            return NULL;
        };
        for (v, code) in [(y, 51044), (x, 51045)] {
            if !v.is_number() {
                return Err(Error::location(
                    code,
                    format!("$atan2 only supports numeric types, not {}", v.type_name()),
                ));
            }
        }
        let decimals = match (y, x) {
            (Value::Decimal128(_), _) | (_, Value::Decimal128(_)) => {
                number::to_decimal(y).zip(number::to_decimal(x))
            }
            _ => None,
        };
        Ok(Some(match decimals {
            Some((y, x)) => Value::Decimal128(y.atan2(x).to_bid()),
            None => Value::Double(double(y).atan2(double(x))),
        }))
    },
);

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'n': null, 's': 'x'}",
            &[
                ("{'$sin': 0}", Gives("0.0")),
                ("{'$cos': 0}", Gives("1.0")),
                ("{'$tan': ['$n']}", Gives("null")),
                ("{'$acos': 1}", Gives("0.0")),
                ("{'$atan': '$missing'}", Gives("null")),
                ("{'$acosh': 1}", Gives("0.0")),
                ("{'$atan2': [0, -1]}", Gives("3.141592653589793")),
                ("{'$degreesToRadians': 180}", Gives("3.141592653589793")),
                ("{'$radiansToDegrees': 3.141592653589793}", Gives("180.0")),
                (
                    "{'$degreesToRadians': [['$dec', '180']]}",
                    Gives("['$dec', '3.141592653589793238462643383279503']"),
                ),
                (
                    "{'$sin': [['$dec', '1']]}",
                    Gives("['$dec', '0.8414709848078965066525023216302990']"),
                ),
                ("{'$asin': 2}", Fails(50989)),
                ("{'$acosh': 0.5}", Fails(50989)),
                ("{'$atanh': [['$dec', '1.1']]}", Fails(50989)),
                ("{'$cos': {'$literal': ['$inf']}}", Fails(50989)),
                ("{'$atanh': 1}", Gives("['$inf']")),
                ("{'$sinh': '$s'}", Fails(28765)),
                ("{'$atan2': ['$s', 1]}", Fails(51044)),
                ("{'$atan2': [1, '$s']}", Fails(51045)),
                ("{'$atan2': ['$n', '$s']}", Gives("null")),
            ],
        );
    }
}
