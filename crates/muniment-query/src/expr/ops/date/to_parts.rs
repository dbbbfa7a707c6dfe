//! `$dateToParts`: a document of a date's parts. Arguments: date, timezone, iso8601.

use super::{Civil, args};
use crate::expr::ops::{NULL, Named, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use muniment_value::{Error, Result, Value};

const OP: &str = "$dateToParts";

/// The specification.
pub(in crate::expr::ops) const SPEC: OpSpec = OpSpec::new(
    OP,
    Arity::Custom(parse),
    "A document of a date's parts, by calendar or by ISO week.",
    eval,
);

fn parse(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let named = Named::read(OP, operand, ["date", "timezone", "iso8601"], 40524, 40520)?;
    Ok(vec![
        p.parse(named.need(0, 40522)?)?,
        args::or_default(p, named.get(1), Value::String("UTC"))?,
        args::or_default(p, named.get(2), Value::Bool(false))?,
    ])
}

fn eval<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let Some(zone) = args::zone(args, 1, ctx)? else {
        return NULL;
    };
    let iso = match arg_some(args, 2, ctx)? {
        None => return NULL,
        Some(Value::Bool(b)) => b,
        Some(v) => {
            return Err(Error::location(
                40521,
                format!("iso8601 must evaluate to a bool, found {}", v.type_name()),
            ));
        }
    };
    let Some(date) = arg_some(args, 0, ctx)? else {
        return NULL;
    };
    let c = Civil::from_millis(zone.to_local(args::millis(date)?));
    let out = arena::build_doc(ctx.arena, |w| {
        if iso {
            let (year, week) = c.iso_week();
            w.put("isoWeekYear", &(year as i32));
            w.put("isoWeek", &(week as i32));
            w.put("isoDayOfWeek", &(c.iso_day_of_week() as i32));
        } else {
            w.put("year", &(c.year as i32));
            w.put("month", &(c.month as i32));
            w.put("day", &(c.day as i32));
        }
        w.put("hour", &(c.hour as i32));
        w.put("minute", &(c.minute as i32));
        w.put("second", &(c.second as i32));
        w.put("millisecond", &(c.milli as i32));
        Ok(())
    })?;
    Ok(Some(Value::Document(out)))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        // 2017-01-01T01:29:09.123Z
        table(
            "{'d': ['$date', 1483234149123], 'n': null, 'x': 1}",
            &[
                (
                    "{'$dateToParts': {'date': '$d'}}",
                    Gives(
                        "{'year': 2017, 'month': 1, 'day': 1, 'hour': 1, 'minute': 29, 'second': 9, 'millisecond': 123}",
                    ),
                ),
                (
                    "{'$dateToParts': {'date': '$d', 'timezone': 'America/New_York'}}",
                    Gives(
                        "{'year': 2016, 'month': 12, 'day': 31, 'hour': 20, 'minute': 29, 'second': 9, 'millisecond': 123}",
                    ),
                ),
                (
                    "{'$dateToParts': {'date': '$d', 'iso8601': true}}",
                    Gives(
                        "{'isoWeekYear': 2016, 'isoWeek': 52, 'isoDayOfWeek': 7, 'hour': 1, 'minute': 29, 'second': 9, 'millisecond': 123}",
                    ),
                ),
                ("{'$dateToParts': {'date': '$n'}}", Gives("null")),
                (
                    "{'$dateToParts': {'date': '$d', 'iso8601': '$n'}}",
                    Gives("null"),
                ),
                (
                    "{'$dateToParts': {'date': '$d', 'timezone': '$n'}}",
                    Gives("null"),
                ),
                ("{'$dateToParts': {'date': '$x'}}", Fails(16006)),
                (
                    "{'$dateToParts': {'date': '$d', 'iso8601': 1}}",
                    Fails(40521),
                ),
                ("{'$dateToParts': {}}", Fails(40522)),
                ("{'$dateToParts': {'date': '$d', 'y': 1}}", Fails(40520)),
                ("{'$dateToParts': '$d'}", Fails(40524)),
            ],
        );
    }
}
