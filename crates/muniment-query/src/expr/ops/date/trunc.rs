//! `$dateTrunc`: the beginning of the bin of a date. Bins are counted from 2000-01-01T00:00 in the time zone,
//! and weeks from the first beginning of a week after that. Arguments: date, unit, binSize, timezone,
//! startOfWeek.

use super::args::{self, Unit};
use super::{Civil, DAY_MS, Zone, days_from_civil};
use crate::expr::ops::{NULL, Named, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser};
use muniment_value::{Error, Result, Value};

const OP: &str = "$dateTrunc";

/// The days from 1970 to 2000-01-01, a Saturday.
const REFERENCE_DAY: i64 = 10_957;

/// The largest bin size for days and longer units.
const MAX_BIN: i64 = 100_000_000_000;

/// The specification.
pub(in crate::expr::ops) const SPEC: OpSpec = OpSpec::new(
    OP,
    Arity::Custom(parse),
    "The beginning of the bin of `binSize` units that a date lies in.",
    eval,
);

fn parse(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let names = ["date", "unit", "binSize", "timezone", "startOfWeek"];
    let named = Named::read(OP, operand, names, 5439007, 5439008)?;
    let list = vec![
        p.parse(named.need(0, 5439009)?)?,
        p.parse(named.need(1, 5439010)?)?,
        args::or_default(p, named.get(2), Value::Int32(1))?,
    ];
    args::with_calendar(p, list, named.get(3), named.get(4))
}

fn eval<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let (Some(date), Some(bin), Some(unit)) = (
        arg_some(args, 0, ctx)?,
        arg_some(args, 2, ctx)?,
        arg_some(args, 1, ctx)?,
    ) else {
        return NULL;
    };
    let Some((unit, zone, first_day)) = args::calendar(OP, unit, args, ctx)? else {
        return NULL;
    };
    let date = args::named_millis(OP, "date", date)?;
    let bin = bin.as_i64_exact().ok_or_else(|| {
        Error::location(
            5439017,
            format!(
                "{OP} requires 'binSize' to be a 64-bit integer, but got value '{}' of type {}",
                bin.to_display(),
                bin.type_name()
            ),
        )
    })?;
    if bin <= 0 {
        return Err(Error::location(
            5439018,
            format!("{OP} requires 'binSize' to be greater than 0, but got value {bin}"),
        ));
    }
    trunc(date, unit, bin, &zone, first_day).map(|ms| Some(Value::DateTime(ms)))
}

/// The beginning of the bin with `bin` (> 0) units around a moment, both in milliseconds since 1970. Weeks
/// begin on `first_day`, 1 (Monday) to 7.
///
/// # Errors
/// 5439002 and 5439006 if the bin is too large, 5439005 if the result is beyond the range of dates.
pub(crate) fn trunc(ms: i64, unit: Unit, bin: i64, zone: &Zone, first_day: i64) -> Result<i64> {
    let overflow = || Error::location(5439005, "dateTrunc overflowed");
    if let Some(length) = unit.millis() {
        let bin = bin.checked_mul(length).ok_or_else(|| {
            Error::location(
                5439002,
                format!("dateTrunc unsupported binSize value: {bin}"),
            )
        })?;
        let from = zone.to_utc(REFERENCE_DAY * DAY_MS).unwrap_or_default();
        let past = (i128::from(ms) - i128::from(from)).rem_euclid(i128::from(bin)) as i64;
        return ms.checked_sub(past).ok_or_else(overflow);
    }
    if bin > MAX_BIN {
        return Err(Error::location(
            5439006,
            format!("dateTrunc unsupported binSize value: {bin}"),
        ));
    }
    let floor = |n: i64, bin: i64| n - n.rem_euclid(bin);
    let local = zone.to_local(ms);
    let day = if let Some(length) = unit.days() {
        let mut reference = REFERENCE_DAY;
        if unit == Unit::Week {
            reference += (first_day - 6).rem_euclid(7);
        }
        reference + floor(local.div_euclid(DAY_MS) - reference, bin * length)
    } else {
        let c = Civil::from_millis(local);
        let months = c.year * 12 + i64::from(c.month) - 1 - 2000 * 12;
        let months = 2000 * 12 + floor(months, bin * unit.months().unwrap_or(1));
        // The moment is so early that the count of days would overflow.
        if months < -12_000_000_000 {
            return Err(overflow());
        }
        days_from_civil(months.div_euclid(12), months.rem_euclid(12) as u32 + 1, 1)
    };
    day.checked_mul(DAY_MS)
        .and_then(|ms| zone.to_utc(ms))
        .ok_or_else(overflow)
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn odd_bins() {
        // The moment is 2010-01-01T10:45:20.450Z.
        for (bin, unit, want) in [
            (7, "millisecond", "2010-01-01T10:45:20.445Z"),
            (7, "second", "2010-01-01T10:45:16.000Z"),
            (13, "minute", "2010-01-01T10:37:00.000Z"),
            (13, "hour", "2010-01-01T00:00:00.000Z"),
            (7, "day", "2009-12-26T00:00:00.000Z"),
            (2, "week", "2009-12-20T00:00:00.000Z"),
            (7, "week", "2009-12-06T00:00:00.000Z"),
            (13, "month", "2009-10-01T00:00:00.000Z"),
            (7, "quarter", "2008-10-01T00:00:00.000Z"),
            (7, "year", "2007-01-01T00:00:00.000Z"),
        ] {
            let e = format!(
                "{{'$toString': {{'$dateTrunc': {{'date': '$d', 'unit': '{unit}', 'binSize': {bin}}}}}}}"
            );
            let want = Box::leak(format!("'{want}'").into_boxed_str());
            check("{'d': ['$date', 1262342720450]}", &e, &Gives(want));
        }
    }

    #[test]
    fn table_test() {
        // 2021-03-20T11:37:05.500Z, a Saturday.
        let d = "{'d': ['$date', 1616240225500], 'n': null, 'x': 1, 'min': ['$date', -9223372036854775808]}";
        for (rest, want) in [
            ("'unit': 'millisecond'", 1_616_240_225_500),
            ("'unit': 'second'", 1_616_240_225_000),
            ("'unit': 'minute', 'binSize': 15", 1_616_239_800_000),
            ("'unit': 'hour'", 1_616_238_000_000),
            ("'unit': 'hour', 'binSize': 2.0", 1_616_234_400_000),
            ("'unit': 'hour', 'timezone': '+05:45'", 1_616_238_900_000),
            ("'unit': 'day'", 1_616_198_400_000),
            (
                "'unit': 'day', 'timezone': 'America/New_York'",
                1_616_212_800_000,
            ),
            ("'unit': 'week'", 1_615_680_000_000),
            ("'unit': 'week', 'startOfWeek': 'Mon'", 1_615_766_400_000),
            ("'unit': 'week', 'binSize': 2", 1_615_680_000_000),
            ("'unit': 'month'", 1_614_556_800_000),
            ("'unit': 'month', 'binSize': 6", 1_609_459_200_000),
            ("'unit': 'quarter'", 1_609_459_200_000),
            ("'unit': 'year', 'binSize': 10", 1_577_836_800_000),
        ] {
            let e = format!("{{'$dateTrunc': {{'date': '$d', {rest}}}}}");
            let want: i64 = want;
            let want = Box::leak(format!("['$date', {want}]").into_boxed_str());
            check(d, &e, &Gives(want));
        }
        for (rest, want) in [
            ("'date': '$n', 'unit': 'day'", Gives("null")),
            ("'date': '$d', 'unit': '$n'", Gives("null")),
            (
                "'date': '$d', 'unit': 'day', 'startOfWeek': null",
                Gives("null"),
            ),
            (
                "'date': '$d', 'unit': 'day', 'binSize': '$n'",
                Gives("null"),
            ),
            ("'date': '$x', 'unit': 'day'", Fails(5166307)),
            ("'date': '$d', 'unit': 'day', 'binSize': 0", Fails(5439018)),
            (
                "'date': '$d', 'unit': 'day', 'binSize': 0.5",
                Fails(5439017),
            ),
            (
                "'date': '$d', 'unit': 'hour', 'binSize': 9000000000000000000",
                Fails(5439002),
            ),
            (
                "'date': '$d', 'unit': 'year', 'binSize': 100000000001",
                Fails(5439006),
            ),
            (
                "'date': '$min', 'unit': 'year', 'binSize': 100000000000",
                Fails(5439005),
            ),
            ("'date': '$min', 'unit': 'day'", Fails(5439005)),
            ("'unit': 'day'", Fails(5439009)),
            ("'date': '$d'", Fails(5439010)),
            ("'date': '$d', 'unit': 'day', 'y': 1", Fails(5439008)),
        ] {
            check(d, &format!("{{'$dateTrunc': {{{rest}}}}}"), &want);
        }
        check(d, "{'$dateTrunc': 'x'}", &Fails(5439007));
    }
}
