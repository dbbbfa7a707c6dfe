//! `$year`, `$month`, `$dayOfMonth` and the like: a part of a date in a time zone. Arguments: date and, if
//! given, timezone.

use super::{Civil, args};
use crate::expr::ops::{NULL, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser};
use muniment_value::{Error, Result, Value};

macro_rules! parts {
    ($($id:ident $name:literal $doc:literal |$c:ident| $value:expr;)*) => {$(
        /// The specification.
        pub(in crate::expr::ops) const $id: OpSpec = OpSpec::new(
            $name,
            Arity::Custom(|v, p| parse($name, v, p)),
            $doc,
            |args, ctx| {
                let Some($c) = civil(args, ctx)? else {
                    return NULL;
                };
                Ok(Some($value))
            },
        );
    )*};
}

fn int(n: impl Into<i64>) -> Value<'static> {
    let n = n.into();
    i32::try_from(n).map_or(Value::Int64(n), Value::Int32)
}

parts! {
    DAY_OF_MONTH "$dayOfMonth" "The day of the month, 1 to 31." |c| int(c.day);
    DAY_OF_WEEK "$dayOfWeek" "The day of the week, 1 (Sunday) to 7." |c| int(c.day_of_week());
    DAY_OF_YEAR "$dayOfYear" "The day of the year, 1 to 366." |c| int(c.day_of_year());
    HOUR "$hour" "The hour, 0 to 23." |c| int(c.hour);
    ISO_DAY_OF_WEEK "$isoDayOfWeek" "The day of the week, 1 (Monday) to 7." |c| int(c.iso_day_of_week());
    ISO_WEEK "$isoWeek" "The ISO 8601 week, 1 to 53." |c| int(c.iso_week().1);
    ISO_WEEK_YEAR "$isoWeekYear" "The year that the ISO 8601 week belongs to." |c| Value::Int64(c.iso_week().0);
    MILLISECOND "$millisecond" "The milliseconds, 0 to 999." |c| int(c.milli);
    MINUTE "$minute" "The minute, 0 to 59." |c| int(c.minute);
    MONTH "$month" "The month, 1 to 12." |c| int(c.month);
    SECOND "$second" "The second, 0 to 59." |c| int(c.second);
    WEEK "$week" "The week of the year, 0 to 53; weeks begin on Sunday." |c| int(c.week());
    YEAR "$year" "The year." |c| int(c.year);
}

/// Parses the operand, which is a date, an array of one, or `{date, timezone}`.
fn parse(op: &str, operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    match operand {
        Value::Document(d) if d.first().is_none_or(|e| !e.name().starts_with('$')) => {
            let (mut date, mut zone) = (None, None);
            for e in d {
                match e.name() {
                    "date" => date = Some(p.parse(e.value())?),
                    "timezone" => zone = Some(p.parse(e.value())?),
                    name => {
                        return Err(Error::location(
                            40535,
                            format!("unrecognized option to {op}: \"{name}\""),
                        ));
                    }
                }
            }
            let date = date.ok_or_else(|| {
                Error::location(
                    40539,
                    format!(
                        "missing 'date' argument to {op}, provided: {}",
                        operand.to_display()
                    ),
                )
            })?;
            Ok([date].into_iter().chain(zone).collect())
        }
        Value::Array(items) => {
            let args = p.parse_all(items)?;
            if args.len() != 1 {
                return Err(Error::location(
                    40536,
                    format!(
                        "{op} accepts exactly one argument if given an array, but was given {}",
                        args.len()
                    ),
                ));
            }
            Ok(args)
        }
        v => Ok(vec![p.parse(v)?]),
    }
}

fn civil<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Civil>> {
    let Some(date) = arg_some(args, 0, ctx)? else {
        return Ok(None);
    };
    let local = match args.len() {
        0 | 1 => args::millis(date)?,
        _ => match args::zone(args, 1, ctx)? {
            None => return Ok(None),
            Some(zone) => zone.to_local(args::millis(date)?),
        },
    };
    Ok(Some(Civil::from_millis(local)))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'d': ['$date', 1522169931538], 'n': null, 't': ['$ts', 86400], 's': 'x'}",
            &[
                ("{'$year': '$d'}", Gives("2018")),
                ("{'$month': ['$d']}", Gives("3")),
                ("{'$dayOfMonth': {'date': '$d'}}", Gives("27")),
                ("{'$hour': '$d'}", Gives("16")),
                (
                    "{'$hour': {'date': '$d', 'timezone': '+08:30'}}",
                    Gives("1"),
                ),
                (
                    "{'$dayOfMonth': {'date': '$d', 'timezone': '+0830'}}",
                    Gives("28"),
                ),
                ("{'$minute': '$d'}", Gives("58")),
                ("{'$second': '$d'}", Gives("51")),
                ("{'$millisecond': '$d'}", Gives("538")),
                ("{'$dayOfWeek': '$d'}", Gives("3")),
                ("{'$isoDayOfWeek': '$d'}", Gives("2")),
                ("{'$dayOfYear': '$d'}", Gives("86")),
                ("{'$week': '$d'}", Gives("12")),
                ("{'$isoWeek': '$d'}", Gives("13")),
                ("{'$isoWeekYear': '$d'}", Gives("['$long', 2018]")),
                ("{'$dayOfMonth': '$t'}", Gives("2")),
                (
                    "{'$hour': {'date': '$d', 'timezone': '+25:70'}}",
                    Gives("19"),
                ),
                (
                    "{'$hour': {'date': '$d', 'timezone': 'America/New_York'}}",
                    Gives("12"),
                ),
                ("{'$year': {}}", Fails(40539)),
                ("{'$year': '$n'}", Gives("null")),
                ("{'$year': '$missing'}", Gives("null")),
                ("{'$year': '$s'}", Fails(16006)),
                (
                    "{'$year': {'date': '$d', 'timezone': 'Mars/Olympus'}}",
                    Fails(40485),
                ),
                ("{'$year': {'date': '$d', 'timezone': 5}}", Fails(40517)),
                ("{'$year': {'dat': '$d'}}", Fails(40535)),
                ("{'$year': {'timezone': 'Z'}}", Fails(40539)),
                ("{'$year': ['$d', '$d']}", Fails(40536)),
            ],
        );
    }
}
