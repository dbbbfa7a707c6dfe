//! `$minMaxScaler`: the position of a number between the least and the greatest one of its window, scaled to
//! the range from `min` to `max`, by default 0 to 1.

use super::super::accumulators::Sliding;
use super::super::accumulators::sliding_sorted::SlidingExtreme;
use super::registry::Spec;
use super::{Call, Framed, Function, check_beside};
use crate::bytes::{close, head, open};
use crate::expr::Expr;
use muniment_value::decimal::Decimal;
use muniment_value::{Collation, Doc, Error, Result, Type, Value, ValueBuf, number};
use std::cmp::Ordering;

pub(super) const SPEC: Spec = Spec {
    name: "$minMaxScaler",
    doc: "Where a number lies between the least and the greatest of its window.",
    parse,
};

fn parse(call: &Call<'_>) -> Result<Function> {
    check_beside(call)?;
    let (input, low, high) = match call.operand {
        Value::Document(d) if d.get("input").is_some() => {
            let o = call.options(&["input", "min", "max"])?;
            (
                call.need(o, "input")?,
                bound(call, o, "min", 0)?,
                bound(call, o, "max", 1)?,
            )
        }
        v => (v, ValueBuf::new(0), ValueBuf::new(1)),
    };
    if muniment_value::cmp_values(low.as_value(), high.as_value()) != Ordering::Less {
        return Err(Error::failed_to_parse(
            "$minMaxScaler requires 'min' to be less than 'max'",
        ));
    }
    let width = number::sub(high.as_value(), low.as_value())?;
    Ok(Function::Framed(Framed {
        relate: Some(Box::new(move |own, extremes| {
            scale(own, extremes, low.as_value(), width)
        })),
        frame: call.frame()?,
        input: Expr::parse(input, call.ctx)?,
        growing: None,
        sliding: Box::new(|| {
            // Collations do not matter for numbers.
            Box::new(Extremes {
                least: SlidingExtreme::new(Ordering::Less, &Collation::SIMPLE),
                greatest: SlidingExtreme::new(Ordering::Greater, &Collation::SIMPLE),
            })
        }),
        empty: None,
    }))
}

/// Reads a constant number from the options.
fn bound(call: &Call<'_>, options: Doc<'_>, name: &str, default: i32) -> Result<ValueBuf> {
    let Some(v) = options.get(name) else {
        return Ok(ValueBuf::new(default));
    };
    let expr = Expr::parse(v, call.ctx)?;
    match expr.as_constant() {
        Some(n) if n.is_number() => Ok(ValueBuf::new(n)),
        _ => Err(Error::failed_to_parse(format!(
            "$minMaxScaler requires '{name}' to be a constant number, but found {}",
            v.to_display()
        ))),
    }
}

/// (x − least) / (greatest − least) · width + low; `low` if all are equal.
fn scale(
    own: Option<Value<'_>>,
    extremes: Value<'_>,
    low: Value<'_>,
    width: Value<'_>,
) -> Result<ValueBuf> {
    let x = number_of(own)?;
    let mut found = extremes.as_array().into_iter().flat_map(|a| a.values());
    let (Some(least), Some(greatest)) = (found.next(), found.next()) else {
        return Ok(ValueBuf::new(Value::Null));
    };
    let range = number::sub(greatest, least)?;
    if number::is_zero(range) {
        return Ok(ValueBuf::new(low));
    }
    let part = number::sub(x, least)?;
    let decimal = |v: Value<'_>| number::to_decimal(v).unwrap_or(Decimal::from_i64(0));
    let part = match (part, range) {
        (Value::Decimal128(_), _) | (_, Value::Decimal128(_)) => {
            Value::Decimal128(decimal(part).div(decimal(range)).to_bid())
        }
        _ => {
            let double = |v| number::to_f64(v).unwrap_or(f64::NAN);
            Value::Double(double(part) / double(range))
        }
    };
    number::add(number::mul(part, width, true)?, low, true).map(ValueBuf::new)
}

fn number_of(v: Option<Value<'_>>) -> Result<Value<'_>> {
    v.filter(Value::is_number).ok_or_else(|| {
        Error::location(
            10_487_001,
            format!(
                "Input value of $minMaxScaler window function must be numeric, value is: {}",
                v.map_or("missing".to_string(), |v| v.to_display())
            ),
        )
    })
}

/// The least and the greatest value of a window, as an array.
#[derive(Debug)]
struct Extremes {
    least: SlidingExtreme,
    greatest: SlidingExtreme,
}

impl Sliding for Extremes {
    fn add(&mut self, v: Option<Value<'_>>) -> Result<()> {
        let v = Some(number_of(v)?);
        self.least.add(v)?;
        self.greatest.add(v)
    }

    fn remove(&mut self, v: Option<Value<'_>>) -> Result<()> {
        self.least.remove(v)?;
        self.greatest.remove(v)
    }

    fn finish(&self, name: &[u8], out: &mut Vec<u8>) {
        head(out, Type::Array, name);
        let start = open(out);
        self.least.finish(b"0", out);
        self.greatest.finish(b"1", out);
        close(out, start);
    }
}

#[cfg(test)]
mod tests {
    use crate::stage::testing::table;

    #[test]
    fn table_of_min_max_scaler() {
        let docs = "[{_id:1,a:1},{_id:2,a:5},{_id:3,a:13},{_id:4,a:21}]";
        for (operand, want) in [
            ("$minMaxScaler:'$a'", "0.0,0.2,0.6,1.0"),
            (
                "$minMaxScaler:{input:'$a',min:0,max:100}",
                "0.0,20.0,60.0,100.0",
            ),
            (
                "$minMaxScaler:{$add:['$a',1]},window:{documents:[-1,0]}",
                "0,1.0,1.0,1.0",
            ),
            (
                "$minMaxScaler:{input:'$a',min:-1,max:1},window:{documents:['current',1]}",
                "-1.0,-1.0,-1.0,-1",
            ),
        ] {
            let stage = format!(
                "[{{$setWindowFields:{{sortBy:{{_id:1}},output:{{r:{{{operand}}}}}}}}},\
                 {{$project:{{r:1}}}}]"
            );
            let want: Vec<String> = want
                .split(',')
                .enumerate()
                .map(|(i, r)| format!("{{_id:{},r:{r}}}", i + 1))
                .collect();
            table(&[(docs, &stage, &format!("[{}]", want.join(",")))]);
        }
        let of = |operand: &str| format!("[{{$setWindowFields:{{output:{{r:{operand}}}}}}}]");
        table(&[
            (
                "[{a:1},{a:'x'}]",
                &of("{$minMaxScaler:'$a'}"),
                "10487001: Input value of $minMaxScaler window function must be numeric, value \
                 is: \"x\"",
            ),
            (
                "[]",
                &of("{$minMaxScaler:{input:'$a',min:1,max:1}}"),
                "9: $minMaxScaler requires 'min' to be less than 'max'",
            ),
        ]);
    }
}
