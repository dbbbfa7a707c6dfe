//! `$dateAdd` and `$dateSubtract`. Days and longer units count on the wall clock of the time zone,
//! shorter ones in elapsed time. Arguments: startDate, unit, amount, timezone.

use super::args::{self, Unit};
use super::{Civil, DAY_MS, Zone, days_from_civil, days_in_month};
use crate::expr::ops::{NULL, Named, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser};
use muniment_value::{Error, Result, Value};

/// The specification of `$dateAdd`.
pub(in crate::expr::ops) const ADD: OpSpec = OpSpec::new(
    "$dateAdd",
    Arity::Custom(|v, p| parse("$dateAdd", v, p)),
    "A date `amount` units later.",
    |args, ctx| eval("$dateAdd", false, args, ctx),
);

/// The specification of `$dateSubtract`.
pub(in crate::expr::ops) const SUBTRACT: OpSpec = OpSpec::new(
    "$dateSubtract",
    Arity::Custom(|v, p| parse("$dateSubtract", v, p)),
    "A date `amount` units earlier.",
    |args, ctx| eval("$dateSubtract", true, args, ctx),
);

fn parse(op: &str, operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let names = ["startDate", "unit", "amount", "timezone"];
    let named = Named::read(op, operand, names, 5166400, 5166401)?;
    Ok(vec![
        p.parse(named.need(0, 5166402)?)?,
        p.parse(named.need(1, 5166402)?)?,
        p.parse(named.need(2, 5166402)?)?,
        args::or_default(p, named.get(3), Value::String("UTC"))?,
    ])
}

fn eval<'a>(
    op: &str,
    subtract: bool,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
) -> Result<Option<Value<'a>>> {
    let (Some(start), Some(unit), Some(amount)) = (
        arg_some(args, 0, ctx)?,
        arg_some(args, 1, ctx)?,
        arg_some(args, 2, ctx)?,
    ) else {
        return NULL;
    };
    let unit = args::unit(op, unit)?;
    let Some(zone) = args::zone(args, 3, ctx)? else {
        return NULL;
    };
    let start = args::to_millis(start).ok_or_else(|| {
        Error::location(
            5166403,
            format!(
                "{op} requires startDate to be convertible to a date, but got {}",
                start.type_name()
            ),
        )
    })?;
    let mut n = amount.as_i64_exact().ok_or_else(|| {
        Error::location(
            5166405,
            format!(
                "{op} expects integer amount of time units, but got {}",
                amount.to_display()
            ),
        )
    })?;
    if subtract {
        n = n.checked_neg().ok_or_else(|| {
            Error::location(
                6045000,
                format!("invalid {op} 'amount' parameter value: {n}"),
            )
        })?;
    }
    add(start, unit, n, &zone).map(|ms| Some(Value::DateTime(ms)))
}

/// The most units between the first and the last date.
fn most(unit: Unit) -> i64 {
    const YEARS: i64 = 584_942_417;
    match (unit.months(), unit.days(), unit.millis()) {
        (Some(months), ..) => YEARS * 12 / months,
        (_, Some(days), _) => (u64::MAX / DAY_MS as u64) as i64 / days,
        (.., Some(1)) | (None, None, None) => i64::MAX,
        (.., Some(ms)) => (u64::MAX / ms as u64) as i64,
    }
}

/// The moment `amount` units after `ms`, both in milliseconds since 1970. If the month does not have the day,
/// its last day is used.
///
/// # Errors
/// 5976500 for an amount beyond the range of dates, 5166406 for a result beyond it.
pub(crate) fn add(ms: i64, unit: Unit, amount: i64, zone: &Zone) -> Result<i64> {
    if amount.unsigned_abs() > most(unit).unsigned_abs() {
        return Err(Error::location(
            5976500,
            format!("invalid dateAdd 'amount' parameter value: {amount} {unit:?}"),
        ));
    }
    if amount == 0 {
        return Ok(ms);
    }
    let sum = if let Some(length) = unit.millis() {
        amount.checked_mul(length).and_then(|d| ms.checked_add(d))
    } else {
        let local = zone.to_local(ms);
        let days = if let Some(length) = unit.days() {
            local
                .div_euclid(DAY_MS)
                .checked_add(amount.saturating_mul(length))
        } else {
            let c = Civil::from_millis(local);
            // Neither factor is more than a few billions.
            let months = c.year * 12 + i64::from(c.month) - 1 + amount * unit.months().unwrap_or(1);
            let (year, month) = (months.div_euclid(12), months.rem_euclid(12) as u32 + 1);
            let day = c.day.min(days_in_month(year, month));
            Some(days_from_civil(year, month, day))
        };
        days.and_then(|d| d.checked_mul(DAY_MS))
            .and_then(|d| d.checked_add(local.rem_euclid(DAY_MS)))
            .and_then(|d| zone.to_utc(d))
    };
    sum.ok_or_else(|| Error::location(5166406, "dateAdd overflowed"))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        // 2020-01-31T10:00:00Z, 2021-03-14T05:30:00Z (half an hour after midnight in New York).
        table(
            "{'d': ['$date', 1580464800000], 's': ['$date', 1615699800000], 't': ['$ts', 1000], 'n': null, 'u': 'day', 'x': 'y', 'end': ['$date', 9223372036854775807]}",
            &[
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': 'month', 'amount': 1}}",
                    Gives("['$date', 1582970400000]"),
                ),
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': 'quarter', 'amount': -1}}",
                    Gives("['$date', 1572516000000]"),
                ),
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': 'year', 'amount': 1.0}}",
                    Gives("['$date', 1612087200000]"),
                ),
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': 'week', 'amount': ['$dec', '2']}}",
                    Gives("['$date', 1581674400000]"),
                ),
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': '$u', 'amount': 2}}",
                    Gives("['$date', 1580637600000]"),
                ),
                // The day of the clock change has 23 hours.
                (
                    "{'$dateAdd': {'startDate': '$s', 'unit': 'day', 'amount': 1, 'timezone': 'America/New_York'}}",
                    Gives("['$date', 1615782600000]"),
                ),
                (
                    "{'$dateAdd': {'startDate': '$s', 'unit': 'hour', 'amount': 24, 'timezone': 'America/New_York'}}",
                    Gives("['$date', 1615786200000]"),
                ),
                (
                    "{'$dateSubtract': {'startDate': '$t', 'unit': 'second', 'amount': 1}}",
                    Gives("['$date', 999000]"),
                ),
                (
                    "{'$dateSubtract': {'startDate': '$d', 'unit': 'millisecond', 'amount': -5}}",
                    Gives("['$date', 1580464800005]"),
                ),
                (
                    "{'$dateAdd': {'startDate': '$n', 'unit': 'day', 'amount': 1}}",
                    Gives("null"),
                ),
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': '$n', 'amount': 1}}",
                    Gives("null"),
                ),
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': 'day', 'amount': '$n'}}",
                    Gives("null"),
                ),
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': 'day', 'amount': 1, 'timezone': '$n'}}",
                    Gives("null"),
                ),
                (
                    "{'$dateAdd': {'startDate': '$x', 'unit': 'day', 'amount': 1}}",
                    Fails(5166403),
                ),
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': 'day', 'amount': 1.5}}",
                    Fails(5166405),
                ),
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': 'days', 'amount': 1}}",
                    Fails(9),
                ),
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': 5, 'amount': 1}}",
                    Fails(5439013),
                ),
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': 'day', 'amount': 1, 'timezone': 'x'}}",
                    Fails(40485),
                ),
                (
                    "{'$dateAdd': {'startDate': '$d', 'unit': 'month', 'amount': 30000000000}}",
                    Fails(5976500),
                ),
                (
                    "{'$dateAdd': {'startDate': '$end', 'unit': 'millisecond', 'amount': 1}}",
                    Fails(5166406),
                ),
                (
                    "{'$dateAdd': {'startDate': '$end', 'unit': 'year', 'amount': 1}}",
                    Fails(5166406),
                ),
                (
                    "{'$dateSubtract': {'startDate': '$d', 'unit': 'millisecond', 'amount': -9223372036854775808}}",
                    Fails(6045000),
                ),
                ("{'$dateAdd': {'unit': 'day', 'amount': 1}}", Fails(5166402)),
                ("{'$dateAdd': {'startDate': '$d', 'x': 1}}", Fails(5166401)),
                ("{'$dateAdd': 1}", Fails(5166400)),
            ],
        );
    }
}
