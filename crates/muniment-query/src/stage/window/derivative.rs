//! `$derivative`: the average rate of change from a window's first to its last document.

use super::super::accumulators::Sliding;
use super::frame::bad_unit;
use super::registry::{Spec, check_sort_value};
use super::{Call, Framed, Function, check_beside};
use crate::bytes::put;
use crate::expr::Expr;
use crate::expr::ops::date::args::Unit;
use muniment_value::decimal::Decimal;
use muniment_value::{ArrayBuf, Error, Result, Value, ValueBuf, number};
use std::collections::VecDeque;

/// The bytes that a point takes, for two numbers with their buffers.
const POINT: usize = 128;

pub(super) const SPEC: Spec = Spec {
    name: "$derivative",
    doc: "The mean rate of change from a window's first to its last document.",
    parse,
};

/// The options of `$derivative` and `$integral`: the expression for `[sort value, input]`, and the unit's
/// length in milliseconds.
pub(super) fn options(call: &Call<'_>) -> Result<(Expr, Option<i64>)> {
    let options = call.options(&["input", "unit"])?;
    let input = call.need(options, "input")?;
    let unit = match options.get("unit") {
        None => None,
        Some(v) => {
            let unit = v
                .as_str()
                .and_then(Unit::parse)
                .ok_or_else(|| bad_unit(v))?;
            let length = unit
                .millis()
                .or(unit.days().map(|d| d * 86_400_000))
                .ok_or_else(|| {
                    Error::failed_to_parse(format!(
                        "unit must be 'week' or smaller, but found {}",
                        v.to_display()
                    ))
                })?;
            Some(length)
        }
    };
    call.sort_key()?;
    let key = call.order.sort.as_ref().and_then(|s| s.keys().first());
    let path = format!("${}", key.map_or("", |k| k.path.as_str()));
    let mut both = ArrayBuf::new();
    both.push(path.as_str());
    both.push(input);
    let expr = Expr::parse(Value::Array(both.as_doc()), call.ctx)?;
    Ok((expr, unit))
}

/// The sort value and the input of a document.
///
/// # Errors
/// The first code if there is a unit and the sort value is not a date, the second if there is none and it is
/// not a number.
pub(super) fn point(
    name: &str,
    v: Option<Value<'_>>,
    unit: bool,
    codes: (i32, i32),
) -> Result<(ValueBuf, ValueBuf)> {
    let mut values = v
        .and_then(|v| v.as_array())
        .into_iter()
        .flat_map(|a| a.values());
    let x = values.next().unwrap_or(Value::Null);
    let y = values.next().unwrap_or(Value::Null);
    check_sort_value(name, x, unit, codes)?;
    // A date counts as its whole number of milliseconds.
    let x = match x {
        Value::DateTime(ms) => Value::Int64(ms),
        x => x,
    };
    Ok((ValueBuf::new(x), ValueBuf::new(y)))
}

fn parse(call: &Call<'_>) -> Result<Function> {
    check_beside(call)?;
    if call.window().is_none() {
        return Err(Error::failed_to_parse(
            "$derivative requires explicit window bounds",
        ));
    }
    let (input, unit) = options(call)?;
    Ok(Function::Framed(Framed {
        relate: None,
        frame: call.frame()?,
        input,
        growing: None,
        sliding: Box::new(move || {
            Box::new(Derivative {
                unit,
                points: VecDeque::new(),
            })
        }),
        empty: None,
    }))
}

#[derive(Debug)]
struct Derivative {
    unit: Option<i64>,
    points: VecDeque<(ValueBuf, ValueBuf)>,
}

const CODES: (i32, i32) = (5_624_900, 5_624_902);

impl Derivative {
    fn rate(&self) -> Option<Value<'static>> {
        let ((x1, y1), (x2, y2)) = (self.points.front()?, self.points.back()?);
        if !y1.as_value().is_number() || !y2.as_value().is_number() {
            return None;
        }
        let dx = number::sub(x2.as_value(), x1.as_value()).ok()?;
        let dy = number::sub(y2.as_value(), y1.as_value()).ok()?;
        if number::is_zero(dx) {
            return None;
        }
        if matches!(dx, Value::Decimal128(_)) || matches!(dy, Value::Decimal128(_)) {
            let rate = number::to_decimal(dy)?.div(number::to_decimal(dx)?);
            let rate = match self.unit {
                Some(ms) => rate.mul(Decimal::from_i64(ms)),
                None => rate,
            };
            return Some(Value::Decimal128(rate.to_bid()));
        }
        let (dx, dy) = (number::to_f64(dx)?, number::to_f64(dy)?);
        Some(Value::Double(match self.unit {
            Some(ms) => dy / dx * ms as f64,
            None => dy / dx,
        }))
    }
}

impl Sliding for Derivative {
    fn heap(&self) -> usize {
        self.points.len() * POINT
    }

    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let p = point("$derivative", v, self.unit.is_some(), CODES)?;
        if !p.1.as_value().is_nullish() && !p.1.as_value().is_number() {
            return Err(Error::location(
                5_624_903,
                format!(
                    "$derivative input must not be a date or anything but a number, found {}",
                    p.1.as_value().type_name()
                ),
            ));
        }
        self.points.push_back(p);
        Ok(())
    }

    fn remove(&mut self, _: Option<Value<'_>>) -> Result<()> {
        self.points.pop_front();
        Ok(())
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        put(out, name, &self.rate());
    }
}
