//! `$dateFromParts`: a date from year, month and day, or from ISO year, week and day. Parts beyond their
//! range carry over. Arguments: whether by ISO week, the seven parts, timezone.

use super::{DAY_MS, args, days_from_civil};
use crate::expr::ops::{NULL, Named, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser};
use muniment_value::{Code, Error, Result, Value};

const OP: &str = "$dateFromParts";

/// The specification.
pub(in crate::expr::ops) const SPEC: OpSpec = OpSpec::new(
    OP,
    Arity::Custom(parse),
    "A date from its parts, by calendar or by ISO week.",
    eval,
);

const NAMES: [&str; 11] = [
    "year",
    "month",
    "day",
    "isoWeekYear",
    "isoWeek",
    "isoDayOfWeek",
    "hour",
    "minute",
    "second",
    "millisecond",
    "timezone",
];

fn parse(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let named = Named::read(OP, operand, NAMES, 40519, 40518)?;
    let has = |i: usize| named.get(i).is_some();
    let iso = has(3);
    if !has(0) && !iso {
        return Err(Error::location(
            40516,
            format!("{OP} requires either 'year' or 'isoWeekYear' to be present"),
        ));
    }
    if has(0) && (iso || has(4) || has(5)) {
        return Err(Error::location(
            40489,
            format!("{OP} does not allow mixing natural dates with ISO dates"),
        ));
    }
    if iso && (has(1) || has(2)) {
        return Err(Error::location(
            40525,
            format!("{OP} does not allow mixing ISO dates with natural dates"),
        ));
    }
    let mut list = vec![Expr::constant(Value::Bool(iso))];
    for i in if iso { 3..6 } else { 0..3 } {
        list.push(args::or_default(p, named.get(i), Value::Int32(1))?);
    }
    for i in 6..10 {
        list.push(args::or_default(p, named.get(i), Value::Int32(0))?);
    }
    list.push(args::or_default(p, named.get(10), Value::String("UTC"))?);
    Ok(list)
}

fn eval<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let iso = args
        .first()
        .and_then(Expr::as_constant)
        .is_some_and(|v| v.truthy());
    let names = NAMES.get(if iso { 3..6 } else { 0..3 }).unwrap_or_default();
    let names = names.iter().chain(NAMES.get(6..10).unwrap_or_default());
    let mut parts = [0_i64; 7];
    for (i, (part, name)) in parts.iter_mut().zip(names).enumerate() {
        let Some(v) = arg_some(args, i + 1, ctx)? else {
            return NULL;
        };
        *part = number(name, v)?;
    }
    let Some(zone) = args::zone(args, 8, ctx)? else {
        return NULL;
    };
    let [year, second, third, hours, minutes, seconds, millis] = parts;
    let days = if iso {
        // Week 1 is that of January 4th; day 0, 1970-01-01, was a Thursday.
        let fourth = days_from_civil(year, 1, 4);
        let monday = fourth - (fourth + 3).rem_euclid(7);
        monday + (second - 1) * 7 + third - 1
    } else {
        let months = year * 12 + second - 1;
        days_from_civil(months.div_euclid(12), months.rem_euclid(12) as u32 + 1, 1) + third - 1
    };
    // All parts except seconds and milliseconds are small.
    let whole = days * DAY_MS + hours * 3_600_000 + minutes * 60_000;
    let ms = seconds
        .checked_mul(1000)
        .and_then(|s| s.checked_add(millis))
        .and_then(|s| s.checked_add(whole))
        .and_then(|ms| zone.to_utc(ms))
        .ok_or_else(|| Error::new(Code::DurationOverflow, "the date's parts exceed its range"))?;
    Ok(Some(Value::DateTime(ms)))
}

/// A part as a number, checked against its bounds.
fn number(name: &str, v: Value<'_>) -> Result<i64> {
    let n = v.as_i64_exact().ok_or_else(|| {
        Error::location(
            40515,
            format!(
                "'{name}' must evaluate to an integer, found {} with value {}",
                v.type_name(),
                v.to_display()
            ),
        )
    })?;
    match name {
        "year" | "isoWeekYear" if !(1..=9999).contains(&n) => Err(Error::location(
            40523,
            format!("'{name}' must evaluate to an integer in the range 1 to 9999, found {n}"),
        )),
        "second" | "millisecond" => Ok(n),
        _ if i16::try_from(n).is_err() => Err(Error::location(
            31034,
            format!(
                "'{name}' must evaluate to a value in the range [-32768, 32767]; value {n} is not in range"
            ),
        )),
        _ => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        let d = "{'y': 2020, 'n': null, 's': 'x', 'tz': 'America/New_York'}";
        for (parts, want) in [
            ("'year': '$y'", 1_577_836_800_000),
            (
                "'year': 2017, 'month': 2, 'day': 8, 'hour': 12, 'minute': 30, 'second': 45, 'millisecond': 123",
                1_486_557_045_123,
            ),
            ("'year': 2017, 'month': 14", 1_517_443_200_000),
            ("'year': 2017, 'month': 0", 1_480_550_400_000),
            ("'year': '$y', 'day': 0, 'hour': 24", 1_577_836_800_000),
            ("'year': '$y', 'second': -1", 1_577_836_799_000),
            ("'isoWeekYear': '$y'", 1_577_664_000_000),
            (
                "'isoWeekYear': 2017, 'isoWeek': 6, 'isoDayOfWeek': 3, 'hour': 12",
                1_486_555_200_000,
            ),
            ("'year': '$y', 'timezone': '$tz'", 1_577_854_800_000),
            (
                "'year': '$y', 'month': 7, 'timezone': '$tz'",
                1_593_576_000_000,
            ),
        ] {
            let want: i64 = want;
            let want = Box::leak(format!("['$date', {want}]").into_boxed_str());
            check(
                d,
                &format!("{{'$dateFromParts': {{{parts}}}}}"),
                &Gives(want),
            );
        }
        for (parts, want) in [
            ("'year': '$n'", Gives("null")),
            ("'year': '$y', 'minute': '$missing'", Gives("null")),
            ("'year': '$y', 'timezone': '$n'", Gives("null")),
            ("'year': '$s'", Fails(40515)),
            ("'year': 2020.5", Fails(40515)),
            ("'year': 0", Fails(40523)),
            ("'isoWeekYear': 10000", Fails(40523)),
            ("'year': '$y', 'day': 40000", Fails(31034)),
            ("'year': '$y', 'second': 9223372036854775807", Fails(159)),
            ("'year': '$y', 'isoWeek': 1", Fails(40489)),
            ("'isoWeekYear': '$y', 'day': 1", Fails(40525)),
            ("'month': 1", Fails(40516)),
            ("'year': '$y', 'x': 1", Fails(40518)),
        ] {
            check(d, &format!("{{'$dateFromParts': {{{parts}}}}}"), &want);
        }
        check(d, "{'$dateFromParts': 1}", &Fails(40519));
    }
}
