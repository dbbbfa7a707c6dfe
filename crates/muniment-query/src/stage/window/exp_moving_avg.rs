//! `$expMovingAvg`: a mean in which a value counts less the longer it is past.
//!
//! mean = value · α + mean before · (1 − α), with α given or 2 / (N + 1). What is no number leaves
//! the mean as it is.

use super::registry::Spec;
use super::{Call, Function, Row, Rowwise, check_beside};
use crate::bytes::put;
use crate::expr::arena::with_arena;
use crate::expr::{EvalContext, Expr};
use muniment_value::decimal::Decimal;
use muniment_value::{Error, Result, Value, ValueBuf, number};
use std::sync::Arc;

pub(super) const SPEC: Spec = Spec {
    name: "$expMovingAvg",
    doc: "A mean in which a value counts less the longer it is past.",
    parse,
};

fn parse(call: &Call<'_>) -> Result<Function> {
    check_beside(call)?;
    call.no_window()?;
    if call.order.sort.is_none() {
        return Err(Error::failed_to_parse(
            "$expMovingAvg requires an explicit 'sortBy'",
        ));
    }
    let options = call.options(&["input", "N", "alpha"])?;
    let input = Arc::new(Expr::parse(call.need(options, "input")?, call.ctx)?);
    let alpha = match (options.get("N"), options.get("alpha")) {
        (Some(n), None) => {
            let n = number::to_i64_exact(n)
                .filter(|i| n.is_number() && *i > 0)
                .ok_or_else(|| {
                    Error::failed_to_parse(format!(
                        "'N' field must be an integer above 0, but found {}",
                        n.to_display()
                    ))
                })?;
            Alpha {
                double: 2.0 / (n as f64 + 1.0),
                decimal: Decimal::from_i64(2).div(Decimal::from_i64(n.saturating_add(1))),
            }
        }
        (None, Some(a)) => {
            let double = number::to_f64(a).filter(|a| *a > 0.0 && *a < 1.0);
            let double = double.ok_or_else(|| {
                Error::failed_to_parse(format!(
                    "'alpha' must be between 0 and 1 (exclusive), found alpha: {}",
                    a.to_display()
                ))
            })?;
            Alpha {
                double,
                decimal: number::to_decimal(a).unwrap_or(Decimal::from_f64(double)),
            }
        }
        _ => {
            return Err(Error::failed_to_parse(
                "$expMovingAvg sub object must have exactly two fields: An 'input' field, and \
                 either an 'N' field or an 'alpha' field",
            ));
        }
    };
    Ok(Function::Rowwise(Box::new(move || {
        Box::new(Moving {
            input: Arc::clone(&input),
            alpha,
            mean: ValueBuf::new(Value::Null),
        })
    })))
}

#[derive(Clone, Copy)]
struct Alpha {
    double: f64,
    decimal: Decimal,
}

struct Moving {
    input: Arc<Expr>,
    alpha: Alpha,
    mean: ValueBuf,
}

impl Moving {
    fn next(&self, v: Value<'_>) -> Value<'static> {
        let decimals = [v, self.mean.as_value()]
            .iter()
            .any(|v| matches!(v, Value::Decimal128(_)));
        let first = !self.mean.as_value().is_number();
        if decimals {
            let d = |v| number::to_decimal(v).unwrap_or(Decimal::from_i64(0));
            let a = self.alpha.decimal;
            let mean = if first {
                d(v)
            } else {
                let rest = Decimal::from_i64(1).sub(a);
                d(v).mul(a).add(d(self.mean.as_value()).mul(rest))
            };
            return Value::Decimal128(mean.to_bid());
        }
        let f = |v| number::to_f64(v).unwrap_or(0.0);
        let a = self.alpha.double;
        Value::Double(if first {
            f(v)
        } else {
            f(v) * a + f(self.mean.as_value()) * (1.0 - a)
        })
    }
}

impl Rowwise for Moving {
    fn row(&mut self, row: &Row<'_>, name: &[u8], out: &mut Vec<u8>) -> Result<()> {
        with_arena(|arena| {
            let v = self.input.eval(&EvalContext::new(row.doc, arena))?;
            if let Some(v) = v.filter(Value::is_number) {
                self.mean = ValueBuf::new(self.next(v));
            }
            put(out, name, &self.mean);
            Ok(())
        })
    }
}
