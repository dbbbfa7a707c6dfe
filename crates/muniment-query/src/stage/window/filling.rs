//! `$locf` and `$linearFill`: values for documents that do not have one.

use super::super::spool::Cursor;
use super::registry::Spec;
use super::stream::value;
use super::{Call, Function, Row, Rowwise, check_beside};
use crate::bytes::put;
use crate::expr::Expr;
use crate::running::Work;
use muniment_value::decimal::Decimal;
use muniment_value::{Doc, Error, Result, Value, ValueBuf, cmp_values, number};
use std::cmp::Ordering;
use std::sync::Arc;

pub(super) const LOCF: Spec = Spec {
    name: "$locf",
    doc: "The last value that was neither null nor missing.",
    parse: parse_locf,
};

pub(super) const LINEAR: Spec = Spec {
    name: "$linearFill",
    doc: "The value between the two around it, in proportion to the sort key.",
    parse: parse_linear,
};

fn parse_locf(call: &Call<'_>) -> Result<Function> {
    check_beside(call)?;
    call.no_window()?;
    let input = Arc::new(Expr::parse(call.operand, call.ctx)?);
    Ok(Function::Rowwise(Box::new(move || {
        Box::new(Locf {
            input: Arc::clone(&input),
            last: ValueBuf::new(Value::Null),
        })
    })))
}

struct Locf {
    input: Arc<Expr>,
    last: ValueBuf,
}

impl Rowwise for Locf {
    fn row(&mut self, row: &Row<'_>, name: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let v = value(&self.input, row.doc, row.work)?;
        if !v.as_value().is_nullish() {
            self.last = v;
        }
        put(out, name, &self.last);
        Ok(())
    }
}

fn parse_linear(call: &Call<'_>) -> Result<Function> {
    check_beside(call)?;
    call.no_window()?;
    let (by, _) = call.sort_key()?;
    let by = Arc::clone(by);
    let input = Arc::new(Expr::parse(call.operand, call.ctx)?);
    Ok(Function::Rowwise(Box::new(move || {
        Box::new(Linear {
            input: Arc::clone(&input),
            by: Arc::clone(&by),
            left: None,
            right: None,
            ahead: None,
            key: None,
        })
    })))
}

/// A sort value and a value.
struct Point {
    x: ValueBuf,
    y: ValueBuf,
    /// The number of its document.
    number: u64,
}

struct Linear {
    input: Arc<Expr>,
    by: Arc<Expr>,
    /// The points with values around the current document.
    left: Option<Point>,
    right: Option<Point>,
    /// The position of the search for `right`; `None` before it begins.
    ahead: Option<Cursor>,
    /// The sort value of the previous document.
    key: Option<ValueBuf>,
}

impl Linear {
    fn point(&self, doc: Doc<'_>, number: u64, work: Work<'_>) -> Result<Point> {
        let x = value(&self.by, doc, work)?;
        if !matches!(x.as_value(), Value::DateTime(_)) && !x.as_value().is_number() {
            return Err(Error::location(
                6_050_101,
                format!(
                    "The sort field of $linearFill must be numeric or a date, but found type: {}",
                    x.as_value().type_name()
                ),
            ));
        }
        let y = value(&self.input, doc, work)?;
        if !y.as_value().is_nullish() && !y.as_value().is_number() {
            return Err(Error::location(
                605_001,
                format!(
                    "Value to be filled must be numeric or nullish, but found type: {}",
                    y.as_value().type_name()
                ),
            ));
        }
        Ok(Point { x, y, number })
    }

    /// Finds the first point with a value after the document with this number.
    fn search(&mut self, row: &Row<'_>) -> Result<()> {
        if self.right.as_ref().is_some_and(|r| r.number > row.number) {
            return Ok(());
        }
        self.right = None;
        let mut cursor = match self.ahead.take() {
            Some(c) => c,
            None => row.spool.cursor(),
        };
        loop {
            let number = cursor.index();
            let Some(doc) = cursor.next(row.spool)? else {
                break;
            };
            if number <= row.number {
                continue;
            }
            let p = self.point(Doc::new(&doc), number, row.work)?;
            if p.y.as_value().is_number() {
                self.right = Some(p);
                break;
            }
        }
        self.ahead = Some(cursor);
        Ok(())
    }
}

/// y at `x` on the line through two points.
fn between(a: &Point, b: &Point, x: Value<'_>) -> Result<Value<'static>> {
    let plain = |v: Value<'_>| match v {
        Value::DateTime(ms) => ValueBuf::new(Value::Int64(ms)),
        v => ValueBuf::new(v),
    };
    let (x1, x2, x) = (plain(a.x.as_value()), plain(b.x.as_value()), plain(x));
    let (y1, y2) = (a.y.as_value(), b.y.as_value());
    let dx = number::sub(x.as_value(), x1.as_value())?;
    let width = number::sub(x2.as_value(), x1.as_value())?;
    let height = number::sub(y2, y1)?;
    let decimals = [dx, width, height, y1]
        .iter()
        .any(|v| matches!(v, Value::Decimal128(_)));
    if decimals {
        let d = |v| number::to_decimal(v).unwrap_or(Decimal::from_i64(0));
        let slope = d(height).div(d(width));
        return Ok(Value::Decimal128(d(y1).add(slope.mul(d(dx))).to_bid()));
    }
    let f = |v| number::to_f64(v).unwrap_or(f64::NAN);
    Ok(Value::Double(f(y1) + f(dx) * (f(height) / f(width))))
}

impl Rowwise for Linear {
    fn row(&mut self, row: &Row<'_>, name: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let p = self.point(row.doc, row.number, row.work)?;
        if let Some(before) = &self.key
            && cmp_values(before.as_value(), p.x.as_value()) == Ordering::Equal
        {
            return Err(Error::location(
                6_050_106,
                "There can be no repeated values in the sort field",
            ));
        }
        self.key = Some(p.x.clone());
        if p.y.as_value().is_number() {
            put(out, name, &p.y);
            self.left = Some(p);
            return Ok(());
        }
        if self.left.is_some() {
            self.search(row)?;
        }
        match (&self.left, &self.right) {
            (Some(a), Some(b)) => put(out, name, &between(a, b, p.x.as_value())?),
            _ => put(out, name, &Value::Null),
        }
        Ok(())
    }
}
