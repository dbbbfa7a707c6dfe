//! `$covariancePop` and `$covarianceSamp`.
//!
//! The sum of the products of the differences from the means is updated when a pair is added or removed
//! (Welford's recurrence for two variables). Pairs that are not finite are counted separately.

use super::super::accumulators::Sliding;
use super::super::accumulators::sliding_numbers::RemovableSum;
use super::registry::Spec;
use super::{Call, Framed, Function, check_beside};
use crate::bytes::put;
use crate::expr::Expr;
use muniment_value::decimal::Decimal;
use muniment_value::{Doc, Result, Value, number};

pub(super) const POP: Spec = Spec {
    name: "$covariancePop",
    doc: "The covariance of pairs that are the whole population.",
    parse: |call| parse(call, false),
};

pub(super) const SAMP: Spec = Spec {
    name: "$covarianceSamp",
    doc: "The covariance of pairs that are a sample.",
    parse: |call| parse(call, true),
};

fn parse(call: &Call<'_>, sample: bool) -> Result<Function> {
    check_beside(call)?;
    Ok(Function::Framed(Framed {
        relate: None,
        frame: call.frame()?,
        input: Expr::parse(call.operand, call.ctx)?,
        growing: None,
        sliding: Box::new(move || {
            Box::new(Covariance {
                sample,
                ..Covariance::default()
            })
        }),
        empty: None,
    }))
}

#[derive(Debug)]
struct Covariance {
    sample: bool,
    n: i64,
    x: RemovableSum,
    y: RemovableSum,
    products: Value<'static>,
    /// The sum over the pairs that are not finite.
    odd: RemovableSum,
}

impl Default for Covariance {
    fn default() -> Covariance {
        Covariance {
            sample: false,
            n: 0,
            x: RemovableSum::default(),
            y: RemovableSum::default(),
            products: Value::Double(0.0),
            odd: RemovableSum::default(),
        }
    }
}

/// The two numbers of a pair; `None` if the value is not such a pair, which is then ignored.
fn pair<'a>(v: Option<Value<'a>>) -> Option<(Value<'a>, Value<'a>)> {
    let a: Doc<'a> = v?.as_array()?;
    let mut values = a.values();
    match (values.next(), values.next(), values.next()) {
        (Some(x), Some(y), None) if x.is_number() && y.is_number() => Some((x, y)),
        _ => None,
    }
}

/// The sum of a pair that is not finite; `None` if it is finite.
fn odd(x: Value<'_>, y: Value<'_>) -> Option<Value<'static>> {
    let finite = |v| !number::is_nan(v) && !number::is_infinite(v);
    if finite(x) && finite(y) {
        return None;
    }
    let sum = number::to_f64(x).unwrap_or(f64::NAN) + number::to_f64(y).unwrap_or(f64::NAN);
    Some(match (x, y) {
        (Value::Decimal128(_), _) | (_, Value::Decimal128(_)) => {
            Value::Decimal128(Decimal::from_f64(sum).to_bid())
        }
        _ => Value::Double(sum),
    })
}

/// `n` with fifteen digits. MongoDB gives this number of digits to a double that becomes a decimal, and it
/// determines how many digits a quotient has.
fn fifteen_digits(n: i64) -> Decimal {
    let digits = n.unsigned_abs().checked_ilog10().unwrap_or(0) + 1;
    let zeros = 15_u32.saturating_sub(digits);
    let coefficient = u128::from(n.unsigned_abs()) * 10_u128.pow(zeros);
    let exponent = i32::try_from(zeros).map_or(0, |z| -z);
    Decimal::from_parts(n < 0, coefficient, exponent).unwrap_or(Decimal::from_i64(n))
}

impl Covariance {
    /// (x − mean of x) · (y − mean of y).
    fn product(x: Value<'_>, y: Value<'_>, xs: Value<'_>, ys: Value<'_>) -> Result<Value<'static>> {
        number::mul(number::sub(x, xs)?, number::sub(y, ys)?, true)
    }
}

impl Sliding for Covariance {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let Some((x, y)) = pair(v) else {
            return Ok(());
        };
        if let Some(sum) = odd(x, y) {
            self.odd.update(sum, 1);
            return Ok(());
        }
        let before = self.x.mean();
        self.n += 1;
        self.x.update(x, 1);
        self.y.update(y, 1);
        if self.n > 1 {
            let p = Covariance::product(x, y, before, self.y.mean())?;
            self.products = number::add(self.products, p, true)?;
        }
        Ok(())
    }

    fn remove(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let Some((x, y)) = pair(v) else {
            return Ok(());
        };
        if let Some(sum) = odd(x, y) {
            self.odd.update(sum, -1);
            return Ok(());
        }
        let before = self.y.mean();
        self.n -= 1;
        if self.n <= 0 {
            *self = Covariance {
                sample: self.sample,
                odd: self.odd,
                ..Covariance::default()
            };
            return Ok(());
        }
        self.x.update(x, -1);
        self.y.update(y, -1);
        let p = Covariance::product(x, y, self.x.mean(), before)?;
        self.products = number::sub(self.products, p)?;
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        let n = if self.sample { self.n - 1 } else { self.n };
        let v = if n <= 0 {
            Value::Null
        } else if self.n == 1 {
            Value::Double(0.0)
        } else if self.odd.count > 0 {
            self.odd.sum()
        } else {
            match self.products {
                Value::Decimal128(b) => {
                    Value::Decimal128(Decimal::from_bid(b).div(fifteen_digits(n)).to_bid())
                }
                v => Value::Double(number::to_f64(v).unwrap_or(f64::NAN) / n as f64),
            }
        };
        put(out, name, &v);
    }
}
