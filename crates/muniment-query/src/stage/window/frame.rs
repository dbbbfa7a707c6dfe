//! Windows: their first and last document, given by counting documents or by values of the sort key.

use super::Order;
use crate::expr::ops::date::Zone;
use crate::expr::ops::date::add::add;
use crate::expr::ops::date::args::Unit;
use muniment_value::{Doc, Error, Result, Value, ValueBuf, number};
use std::cmp::Ordering;

/// A window. `None` is unbounded; the offsets are relative to the current document.
#[derive(Clone, Debug)]
pub(in crate::stage) enum Frame {
    /// The first and the last document, as numbers of documents.
    Documents(Option<i64>, Option<i64>),
    /// The least and the greatest value of the sort key.
    Range {
        low: Option<ValueBuf>,
        high: Option<ValueBuf>,
        unit: Option<Unit>,
    },
}

impl Frame {
    /// The whole partition.
    pub(crate) const ALL: Frame = Frame::Documents(None, None);

    /// Parses a `window`.
    ///
    /// # Errors
    /// 9 FailedToParse for a value that is not a window; 5339900 for bounds in the wrong order; 5339901,
    /// 5339902 and 8947401 for a sort that the window cannot use.
    pub(crate) fn parse(window: Option<Value<'_>>, order: &Order) -> Result<Frame> {
        let Some(window) = window else {
            return Ok(Frame::ALL);
        };
        let Value::Document(d) = window else {
            return Err(Error::failed_to_parse("'window' field must be an object"));
        };
        for e in d {
            if !matches!(e.name(), "documents" | "range" | "unit") {
                return Err(Error::failed_to_parse(format!(
                    "'window' field can only contain 'documents', 'range' and 'unit', but found: \
                     {}",
                    e.name()
                )));
            }
        }
        let unit = match d.get("unit") {
            None => None,
            Some(v) => Some(
                v.as_str()
                    .and_then(Unit::parse)
                    .ok_or_else(|| bad_unit(v))?,
            ),
        };
        match (d.get("documents"), d.get("range")) {
            (Some(_), Some(_)) => Err(Error::failed_to_parse(
                "Window bounds can specify either 'documents' or 'range', not both.",
            )),
            (None, None) if unit.is_some() => Err(unit_without_range()),
            (None, None) => Ok(Frame::ALL),
            (Some(_), None) if unit.is_some() => Err(unit_without_range()),
            (Some(v), None) => documents(v, order),
            (None, Some(v)) => range(v, unit, order),
        }
    }
}

/// The error for a value that is not a unit of time.
pub(super) fn bad_unit(v: Value<'_>) -> Error {
    Error::failed_to_parse(match v {
        Value::String(s) => format!("unknown time unit value: {s}"),
        _ => "'unit' must be a string".to_string(),
    })
}

fn unit_without_range() -> Error {
    Error::failed_to_parse("Window bounds can only specify 'unit' with range-based bounds.")
}

/// The two elements of an array of bounds.
fn pair<'a>(name: &str, v: Value<'a>) -> Result<(Value<'a>, Value<'a>)> {
    let wrong = || {
        Error::failed_to_parse(format!(
            "Window bounds must be a 2-element array: {name}: {}",
            v.to_display()
        ))
    };
    let a: Doc<'a> = v.as_array().ok_or_else(wrong)?;
    let mut values = a.values();
    match (values.next(), values.next(), values.next()) {
        (Some(low), Some(high), None) => Ok((low, high)),
        _ => Err(wrong()),
    }
}

fn wrong_order(low: Value<'_>, high: Value<'_>) -> Error {
    Error::location(
        5_339_900,
        format!(
            "Lower bound must not exceed upper bound: [{}, {}]",
            low.to_display(),
            high.to_display()
        ),
    )
}

fn documents(v: Value<'_>, order: &Order) -> Result<Frame> {
    let (low, high) = pair("documents", v)?;
    let bound = |v: Value<'_>| match v {
        Value::String("unbounded") => Ok(None),
        Value::String("current") => Ok(Some(0)),
        v => number::to_i64_exact(v)
            .filter(|_| v.is_number())
            .map(Some)
            .ok_or_else(|| {
                Error::failed_to_parse(format!(
                    "Numeric document-based bounds must be an integer: {}",
                    v.to_display()
                ))
            }),
    };
    let (l, h) = (bound(low)?, bound(high)?);
    if let (Some(l), Some(h)) = (l, h)
        && l > h
    {
        return Err(wrong_order(low, high));
    }
    if (l.is_some() || h.is_some()) && order.sort.is_none() {
        return Err(Error::location(
            5_339_901,
            "Document-based bounds require a sortBy",
        ));
    }
    Ok(Frame::Documents(l, h))
}

fn range(v: Value<'_>, unit: Option<Unit>, order: &Order) -> Result<Frame> {
    let (low, high) = pair("range", v)?;
    let bound = |v: Value<'_>| match v {
        Value::String("unbounded") => Ok(None),
        Value::String("current") => Ok(Some(ValueBuf::new(Value::Int32(0)))),
        v if !v.is_number() => Err(Error::failed_to_parse(format!(
            "Range-based bounds expression must be a number: {}",
            v.to_display()
        ))),
        v if unit.is_some() && number::to_i64_exact(v).is_none() => {
            Err(Error::failed_to_parse(format!(
                "With 'unit', range-based bounds must be an integer: {}",
                v.to_display()
            )))
        }
        v => Ok(Some(ValueBuf::new(v))),
    };
    let (l, h) = (bound(low)?, bound(high)?);
    if let (Some(l), Some(h)) = (&l, &h)
        && number::cmp(l.as_value(), h.as_value()) == Ordering::Greater
    {
        return Err(wrong_order(low, high));
    }
    match order.single() {
        None => {
            return Err(Error::location(
                5_339_902,
                "Range-based window require sortBy a single field",
            ));
        }
        Some((_, false)) => {
            return Err(Error::location(
                8_947_401,
                "Range-based bounds require an ascending sortBy",
            ));
        }
        Some(_) => {}
    }
    Ok(Frame::Range {
        low: l,
        high: h,
        unit,
    })
}

/// Fails if a sort value cannot be used for a range.
///
/// # Errors
/// 5429414 for a value that is not a number, 5429513 for a value that is not a date if the range has a unit.
pub(super) fn check(v: Value<'_>, unit: Option<Unit>) -> Result<()> {
    match (unit, v) {
        (Some(_), Value::DateTime(_)) => Ok(()),
        (Some(_), v) => Err(Error::location(
            5_429_513,
            format!(
                "Invalid range: Expected the sortBy field to be a Date, but it was {}",
                v.type_name()
            ),
        )),
        (None, v) if v.is_number() => Ok(()),
        (None, v) => Err(Error::location(
            5_429_414,
            format!(
                "Invalid range: Expected the sortBy field to be a number, but it was {}",
                v.type_name()
            ),
        )),
    }
}

/// The end of a range, at the distance `by` from the value `from`. Both have been checked.
///
/// # Errors
/// Those of adding to dates.
pub(super) fn end(from: Value<'_>, by: Value<'_>, unit: Option<Unit>) -> Result<ValueBuf> {
    match (unit, from) {
        (Some(unit), Value::DateTime(ms)) => {
            let n = number::to_i64_exact(by).unwrap_or(0);
            Ok(ValueBuf::new(Value::DateTime(add(
                ms,
                unit,
                n,
                &Zone::UTC,
            )?)))
        }
        _ => Ok(ValueBuf::new(number::add(from, by, true)?)),
    }
}
