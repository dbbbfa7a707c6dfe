//! `$dateDiff`: the number of a unit's boundaries between two dates. Arguments: startDate, endDate, unit,
//! timezone, startOfWeek.

use super::args::{self, Unit};
use super::{Civil, DAY_MS, Zone};
use crate::expr::ops::{NULL, Named, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser};
use muniment_value::{Error, Result, Value};

const OP: &str = "$dateDiff";

/// The specification.
pub(in crate::expr::ops) const SPEC: OpSpec = OpSpec::new(
    OP,
    Arity::Custom(parse),
    "How many boundaries of a unit lie between two dates, an int64.",
    eval,
);

fn parse(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let names = ["startDate", "endDate", "unit", "timezone", "startOfWeek"];
    let named = Named::read(OP, operand, names, 5166301, 5166302)?;
    let list = vec![
        p.parse(named.need(0, 5166303)?)?,
        p.parse(named.need(1, 5166304)?)?,
        p.parse(named.need(2, 5166305)?)?,
    ];
    args::with_calendar(p, list, named.get(3), named.get(4))
}

fn eval<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let (Some(start), Some(end), Some(unit)) = (
        arg_some(args, 0, ctx)?,
        arg_some(args, 1, ctx)?,
        arg_some(args, 2, ctx)?,
    ) else {
        return NULL;
    };
    let Some((unit, zone, first_day)) = args::calendar(OP, unit, args, ctx)? else {
        return NULL;
    };
    let start = args::named_millis(OP, "startDate", start)?;
    let end = args::named_millis(OP, "endDate", end)?;
    diff(start, end, unit, &zone, first_day).map(|n| Some(Value::Int64(n)))
}

/// The number of boundaries of `unit` between two moments in milliseconds since 1970. Weeks begin on
/// `first_day`, 1 (Monday) to 7.
///
/// # Errors
/// 5166308 if the milliseconds between them do not fit an int64.
fn diff(start: i64, end: i64, unit: Unit, zone: &Zone, first_day: i64) -> Result<i64> {
    if unit == Unit::Millisecond {
        return end
            .checked_sub(start)
            .ok_or_else(|| Error::location(5166308, "dateDiff overflowed"));
    }
    let (from, to) = (zone.to_local(start), zone.to_local(end));
    if let Some(length) = unit.millis() {
        // A clock change in between moves the wall clock, but not the elapsed time.
        let moved = (zone.offset_at(end) - zone.offset_at(start)) / length;
        return Ok(to.div_euclid(length) - from.div_euclid(length) - moved);
    }
    if let Some(length) = unit.months() {
        let months = |ms| {
            let c = Civil::from_millis(ms);
            (c.year * 12 + i64::from(c.month) - 1).div_euclid(length)
        };
        return Ok(months(to) - months(from));
    }
    let days = |ms: i64| ms.div_euclid(DAY_MS);
    if unit == Unit::Week {
        // Day 0, 1970-01-01, was a Thursday.
        let week = |ms| (days(ms) + 4 - first_day).div_euclid(7);
        return Ok(week(to) - week(from));
    }
    Ok(days(to) - days(from))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        // 2021-01-01, 2021-01-31 and the hours around New York's change of 2021-03-14.
        let d = "{'a': ['$date', 1609459200000], 'b': ['$date', 1612051200000], 'c': ['$date', 1615701600000], 'd': ['$date', 1615708800000], 'n': null, 'x': 1, 'min': ['$date', -9223372036854775808], 'max': ['$date', 9223372036854775807]}";
        for (from, to, rest, want) in [
            ("a", "b", "'unit': 'day'", Gives("['$long', 30]")),
            ("b", "a", "'unit': 'day'", Gives("['$long', -30]")),
            ("a", "b", "'unit': 'week'", Gives("['$long', 5]")),
            (
                "a",
                "b",
                "'unit': 'week', 'startOfWeek': 'Monday'",
                Gives("['$long', 4]"),
            ),
            (
                "a",
                "b",
                "'unit': 'week', 'startOfWeek': 'fri'",
                Gives("['$long', 4]"),
            ),
            ("a", "d", "'unit': 'month'", Gives("['$long', 2]")),
            (
                "a",
                "d",
                "'unit': 'year', 'timezone': '-01'",
                Gives("['$long', 1]"),
            ),
            ("a", "d", "'unit': 'quarter'", Gives("['$long', 0]")),
            (
                "c",
                "d",
                "'unit': 'millisecond'",
                Gives("['$long', 7200000]"),
            ),
            ("c", "d", "'unit': 'minute'", Gives("['$long', 120]")),
            (
                "c",
                "d",
                "'unit': 'hour', 'timezone': 'America/New_York'",
                Gives("['$long', 2]"),
            ),
            (
                "a",
                "b",
                "'unit': 'day', 'startOfWeek': 'nonsense'",
                Gives("['$long', 30]"),
            ),
            (
                "min",
                "max",
                "'unit': 'year'",
                Gives("['$long', 584554049]"),
            ),
            ("min", "max", "'unit': 'millisecond'", Fails(5166308)),
            ("n", "b", "'unit': 'day'", Gives("null")),
            ("a", "n", "'unit': 'day'", Gives("null")),
            ("a", "b", "'unit': '$n'", Gives("null")),
            ("a", "b", "'unit': 'day', 'timezone': '$n'", Gives("null")),
            (
                "a",
                "b",
                "'unit': 'week', 'startOfWeek': '$n'",
                Gives("null"),
            ),
            (
                "a",
                "b",
                "'unit': 'day', 'startOfWeek': '$n'",
                Gives("['$long', 30]"),
            ),
            (
                "a",
                "b",
                "'unit': 'day', 'startOfWeek': null",
                Gives("null"),
            ),
            ("x", "b", "'unit': 'day'", Fails(5166307)),
            ("a", "x", "'unit': 'day'", Fails(5166307)),
            ("a", "b", "'unit': 'Day'", Fails(9)),
            ("a", "b", "'unit': 1", Fails(5439013)),
            ("a", "b", "'unit': 'week', 'startOfWeek': 1", Fails(5439015)),
            (
                "a",
                "b",
                "'unit': 'week', 'startOfWeek': 'x'",
                Fails(5439016),
            ),
            ("a", "b", "'timezone': 'UTC'", Fails(5166305)),
            ("a", "b", "'unit': 'day', 'x': 1", Fails(5166302)),
        ] {
            let e =
                format!("{{'$dateDiff': {{'startDate': '${from}', 'endDate': '${to}', {rest}}}}}");
            check(d, &e, &want);
        }
        table(
            d,
            &[
                ("{'$dateDiff': {}}", Fails(5166303)),
                ("{'$dateDiff': {'startDate': '$a'}}", Fails(5166304)),
                ("{'$dateDiff': [1]}", Fails(5166301)),
            ],
        );
    }
}
