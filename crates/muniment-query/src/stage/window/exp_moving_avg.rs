//! `$expMovingAvg`: an average in which older values count less.
//!
//! mean = value · α + previous mean · (1 − α), where α is given or is 2 / (N + 1). A value that is not a
//! number leaves the mean as it is.

use super::registry::Spec;
use super::{Call, Function, Row, Rowwise, check_beside};
use crate::bytes::put;
use crate::expr::arena::with_arena;
use crate::expr::{EvalContext, Expr};
use muniment_value::decimal::Decimal;
use muniment_value::{Error, Result, Value, number};
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
            Decimal::from_i64(2).div(Decimal::from_i64(n.saturating_add(1)))
        }
        (None, Some(a)) => {
            let double = number::to_f64(a).filter(|a| *a > 0.0 && *a < 1.0);
            let double = double.ok_or_else(|| {
                Error::failed_to_parse(format!(
                    "'alpha' must be between 0 and 1 (exclusive), found alpha: {}",
                    a.to_display()
                ))
            })?;
            number::to_decimal(a).unwrap_or(Decimal::from_f64(double))
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
            mean: None,
            decimals: false,
        })
    })))
}

struct Moving {
    input: Arc<Expr>,
    alpha: Decimal,
    mean: Option<Decimal>,
    /// Whether there was a decimal. If so, the mean is a decimal too.
    decimals: bool,
}

impl Moving {
    /// Adds a number. The mean is always computed in decimals, so that its last digits are the same as
    /// MongoDB's.
    fn add(&mut self, v: Value<'_>) {
        let Some(n) = number::to_decimal(v) else {
            return;
        };
        self.decimals |= matches!(v, Value::Decimal128(_));
        self.mean = Some(match self.mean {
            None => n,
            Some(before) => {
                let rest = Decimal::from_i64(1).sub(self.alpha);
                n.mul(self.alpha).add(before.mul(rest))
            }
        });
    }

    fn mean(&self) -> Value<'static> {
        match self.mean {
            None => Value::Null,
            Some(mean) if self.decimals => Value::Decimal128(mean.to_bid()),
            Some(mean) => Value::Double(mean.to_f64()),
        }
    }
}

impl Rowwise for Moving {
    fn row(&mut self, row: &Row<'_>, name: &[u8], out: &mut Vec<u8>) -> Result<()> {
        with_arena(row.work, |arena| {
            let input = Arc::clone(&self.input);
            let v = input.eval(&EvalContext::new(row.doc, arena))?;
            if let Some(v) = v.filter(Value::is_number) {
                self.add(v);
            }
            put(out, name, &self.mean());
            Ok(())
        })
    }
}
