//! The common parts of the date operators' arguments: dates, time zones, units, days of the week.

use super::Zone;
use crate::expr::ops::arg_some;
use crate::expr::{EvalContext, Expr, Parser};
use muniment_value::{Error, Result, Value};

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Unit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
}

impl Unit {
    /// The unit of this name.
    pub(crate) fn parse(name: &str) -> Option<Unit> {
        Some(match name {
            "year" => Unit::Year,
            "quarter" => Unit::Quarter,
            "month" => Unit::Month,
            "week" => Unit::Week,
            "day" => Unit::Day,
            "hour" => Unit::Hour,
            "minute" => Unit::Minute,
            "second" => Unit::Second,
            "millisecond" => Unit::Millisecond,
            _ => return None,
        })
    }

    /// The length in milliseconds, if it is always the same.
    pub(crate) fn millis(self) -> Option<i64> {
        Some(match self {
            Unit::Hour => 3_600_000,
            Unit::Minute => 60_000,
            Unit::Second => 1000,
            Unit::Millisecond => 1,
            _ => return None,
        })
    }

    /// The length in days, for days and weeks.
    pub(crate) fn days(self) -> Option<i64> {
        Some(match self {
            Unit::Day => 1,
            Unit::Week => 7,
            _ => return None,
        })
    }

    /// The length in months, for months, quarters and years.
    pub(crate) fn months(self) -> Option<i64> {
        Some(match self {
            Unit::Month => 1,
            Unit::Quarter => 3,
            Unit::Year => 12,
            _ => return None,
        })
    }
}

/// The unit that `v` names.
///
/// # Errors
/// 5439013 if it is not a string, 9 for an unknown name.
pub(super) fn unit(op: &str, v: Value<'_>) -> Result<Unit> {
    let Value::String(name) = v else {
        return Err(Error::location(
            5439013,
            format!(
                "{op} requires 'unit' to be a string, but got {}",
                v.type_name()
            ),
        ));
    };
    Unit::parse(name).ok_or_else(|| {
        Error::failed_to_parse(format!(
            "{op} parameter 'unit' value parsing failed :: caused by :: unknown time unit value: {name}"
        ))
    })
}

/// The day of the week that `v` names: 1 (Monday) to 7. Case does not count.
///
/// # Errors
/// 5439015 if it is not a string, 5439016 for an unknown name.
pub(super) fn start_of_week(op: &str, v: Value<'_>) -> Result<i64> {
    const DAYS: [&str; 7] = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    let Value::String(name) = v else {
        return Err(Error::location(
            5439015,
            format!(
                "{op} requires 'startOfWeek' to be a string, but got {}",
                v.type_name()
            ),
        ));
    };
    let short = |day: &str| day.get(..3).is_some_and(|d| d.eq_ignore_ascii_case(name));
    DAYS.iter()
        .position(|day| day.eq_ignore_ascii_case(name) || short(day))
        .map(|i| i as i64 + 1)
        .ok_or_else(|| {
            Error::location(
                5439016,
                format!(
                    "{op} parameter 'startOfWeek' value cannot be recognized as a day of a week: {name}"
                ),
            )
        })
}

/// The i-th argument as a time zone; `None` for null and missing.
///
/// # Errors
/// 40517 if it is not a string, 40485 for an unknown zone.
pub(super) fn zone<'a>(args: &'a [Expr], i: usize, ctx: &EvalContext<'a>) -> Result<Option<Zone>> {
    match arg_some(args, i, ctx)? {
        None => Ok(None),
        Some(Value::String(id)) => Zone::find(id).map(Some),
        Some(v) => Err(Error::location(
            40517,
            format!(
                "timezone must evaluate to a string, found {}",
                v.type_name()
            ),
        )),
    }
}

/// A date, a timestamp or an ObjectId (whose seconds MongoDB reads as signed) as milliseconds
/// since 1970; `None` for other types.
pub(crate) fn to_millis(v: Value<'_>) -> Option<i64> {
    match v {
        Value::DateTime(ms) => Some(ms),
        Value::Timestamp { t, .. } => Some(i64::from(t) * 1000),
        Value::ObjectId([a, b, c, d, ..]) => {
            Some(i64::from(i32::from_be_bytes([a, b, c, d])) * 1000)
        }
        _ => None,
    }
}

/// Does the same as [`to_millis`].
///
/// # Errors
/// 16006 for other types.
pub(super) fn millis(v: Value<'_>) -> Result<i64> {
    to_millis(v).ok_or_else(|| {
        Error::location(
            16006,
            format!("can't convert from BSON type {} to Date", v.type_name()),
        )
    })
}

/// Does the same as [`to_millis`], for the operators whose messages name the argument.
///
/// # Errors
/// 5166307 for other types.
pub(super) fn named_millis(op: &str, name: &str, v: Value<'_>) -> Result<i64> {
    to_millis(v).ok_or_else(|| {
        Error::location(
            5166307,
            format!(
                "{op} requires '{name}' to be a date, but got {}",
                v.type_name()
            ),
        )
    })
}

/// Parses an optional argument, for which `default` stands if it is missing.
pub(super) fn or_default(
    p: &mut Parser<'_>,
    given: Option<Value<'_>>,
    default: Value<'_>,
) -> Result<Expr> {
    match given {
        Some(v) => p.parse(v),
        None => Ok(Expr::constant(default)),
    }
}

/// Adds the optional arguments timezone and startOfWeek to the three before them. A call with a constant null
/// among its arguments is null.
///
/// # Errors
/// Those of parsing.
pub(super) fn with_calendar(
    p: &mut Parser<'_>,
    mut list: Vec<Expr>,
    zone: Option<Value<'_>>,
    first_day: Option<Value<'_>>,
) -> Result<Vec<Expr>> {
    list.push(or_default(p, zone, Value::String("UTC"))?);
    list.push(or_default(p, first_day, Value::String("sunday"))?);
    if null_among(&list) {
        return Ok(vec![Expr::constant(Value::Null)]);
    }
    Ok(list)
}

/// The unit, the time zone and the first day of weeks, 1 (Monday) to 7, of a call whose arguments
/// [`with_calendar`] has completed; `None` if a relevant one is null.
///
/// # Errors
/// Those of [`unit()`], [`start_of_week`] and [`zone`].
pub(super) fn calendar<'a>(
    op: &str,
    name: Value<'_>,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
) -> Result<Option<(Unit, Zone, i64)>> {
    let unit = unit(op, name)?;
    let mut first_day = 7;
    if unit == Unit::Week {
        match arg_some(args, 4, ctx)? {
            Some(v) => first_day = start_of_week(op, v)?,
            None => return Ok(None),
        }
    }
    Ok(zone(args, 3, ctx)?.map(|zone| (unit, zone, first_day)))
}

/// True if one of the expressions is a constant null or missing, and not all are constants. MongoDB's
/// optimizer makes such a call null, even where its evaluation would not need that argument.
pub(super) fn null_among(args: &[Expr]) -> bool {
    args.iter().any(Expr::is_constant_null) && !args.iter().all(Expr::is_constant)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn days_of_the_week() {
        for (name, want) in [("monday", 1), ("MON", 1), ("Fri", 5), ("SUNDAY", 7)] {
            assert_eq!(start_of_week("$x", Value::String(name)).unwrap(), want);
        }
        for name in ["", "mo", "mond", "notaday"] {
            let e = start_of_week("$x", Value::String(name)).unwrap_err();
            assert_eq!(e.code().0, 5439016);
        }
        let e = start_of_week("$x", Value::Null).unwrap_err();
        assert_eq!(e.code().0, 5439015);
    }
}
