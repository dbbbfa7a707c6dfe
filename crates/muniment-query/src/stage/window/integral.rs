//! `$integral`: the area under the line through the documents of a window (by trapezoids).

use super::super::accumulators::Sliding;
use super::super::accumulators::sliding_numbers::RemovableSum;
use super::derivative::{options, point};
use super::registry::Spec;
use super::{Call, Framed, Function, check_beside};
use crate::bytes::put;
use muniment_value::decimal::Decimal;
use muniment_value::{Result, Value, ValueBuf, number};
use std::collections::VecDeque;

/// The bytes that a point takes, for two numbers with their buffers.
const POINT: usize = 128;

pub(super) const SPEC: Spec = Spec {
    name: "$integral",
    doc: "The area below the line through the documents of a window.",
    parse,
};

fn parse(call: &Call<'_>) -> Result<Function> {
    check_beside(call)?;
    let (input, unit) = options(call)?;
    Ok(Function::Framed(Framed {
        relate: None,
        frame: call.frame()?,
        input,
        growing: None,
        sliding: Box::new(move || {
            Box::new(Integral {
                unit,
                points: VecDeque::new(),
                area: RemovableSum::default(),
            })
        }),
        empty: None,
    }))
}

#[derive(Debug)]
struct Integral {
    unit: Option<i64>,
    /// The points whose values are numbers.
    points: VecDeque<(ValueBuf, ValueBuf)>,
    area: RemovableSum,
}

const CODES: (i32, i32) = (5_423_901, 5_423_902);

/// The area between two points; `None` if it cannot be computed.
fn area(a: &(ValueBuf, ValueBuf), b: &(ValueBuf, ValueBuf)) -> Option<Value<'static>> {
    let width = number::sub(b.0.as_value(), a.0.as_value()).ok()?;
    let height = number::add(a.1.as_value(), b.1.as_value(), true).ok()?;
    if matches!(width, Value::Decimal128(_)) || matches!(height, Value::Decimal128(_)) {
        let product = number::to_decimal(width)?.mul(number::to_decimal(height)?);
        let half = product.div(Decimal::from_i64(2));
        return Some(Value::Decimal128(half.to_bid()));
    }
    Some(Value::Double(
        number::to_f64(width)? * number::to_f64(height)? / 2.0,
    ))
}

impl Sliding for Integral {
    fn heap(&self) -> usize {
        self.points.len() * POINT
    }

    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let p = point("$integral", v, self.unit.is_some(), CODES)?;
        if !p.1.as_value().is_number() {
            return Ok(());
        }
        if let Some(more) = self.points.back().and_then(|last| area(last, &p)) {
            self.area.update(more, 1);
        }
        self.points.push_back(p);
        Ok(())
    }

    fn remove(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let p = point("$integral", v, self.unit.is_some(), CODES)?;
        if !p.1.as_value().is_number() {
            return Ok(());
        }
        if let Some(first) = self.points.pop_front()
            && let Some(less) = self.points.front().and_then(|next| area(&first, next))
        {
            self.area.update(less, -1);
        }
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        if self.points.is_empty() {
            return put(out, name, &Value::Null);
        }
        let v = match (self.area.sum(), self.unit) {
            (Value::Decimal128(b), unit) => {
                let d = Decimal::from_bid(b);
                let d = unit.map_or(d, |ms| d.div(Decimal::from_i64(ms)));
                Value::Decimal128(d.to_bid())
            }
            (v, unit) => {
                let n = number::to_f64(v).unwrap_or(f64::NAN);
                Value::Double(unit.map_or(n, |ms| n / ms as f64))
            }
        };
        put(out, name, &v);
    }
}
