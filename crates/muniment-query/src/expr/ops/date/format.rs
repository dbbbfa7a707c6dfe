//! `$dateToString`, and the names of months and letters of formats, which `$dateFromString` uses as well.
//! Arguments: date, whether there is a format, format, timezone, onNull.

use super::{Civil, Zone, args};
use crate::expr::ops::{NULL, Named, arg, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use muniment_value::{Error, Result, Value};
use std::fmt::Write;

const OP: &str = "$dateToString";

/// The specification.
pub(in crate::expr::ops) const SPEC: OpSpec = OpSpec::new(
    OP,
    Arity::Custom(parse),
    "A date as text in a format.",
    eval,
);

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

fn parse(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let names = ["date", "format", "timezone", "onNull"];
    let named = Named::read(OP, operand, names, 18629, 18534)?;
    Ok(vec![
        p.parse(named.need(0, 18628)?)?,
        Expr::constant(Value::Bool(named.get(1).is_some())),
        args::or_default(p, named.get(1), Value::Null)?,
        args::or_default(p, named.get(2), Value::String("UTC"))?,
        args::or_default(p, named.get(3), Value::Null)?,
    ])
}

fn eval<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let date = arg_some(args, 0, ctx)?;
    let given = args
        .get(1)
        .and_then(Expr::as_constant)
        .is_some_and(|v| v.truthy());
    // An invalid format or zone is an error even if there is no date.
    let format = match arg_some(args, 2, ctx)? {
        None => None,
        Some(Value::String(f)) => {
            check(f, b"dGHjLmMSuUVwYzZbB%")?;
            Some(f)
        }
        Some(v) => {
            return Err(Error::location(
                18533,
                format!(
                    "{OP} requires that 'format' be a string, found: {} with value {}",
                    v.type_name(),
                    v.to_display()
                ),
            ));
        }
    };
    let zone = args::zone(args, 3, ctx)?;
    let Some(date) = date else {
        return arg(args, 4, ctx);
    };
    let Some(zone) = zone else {
        return NULL;
    };
    let format = match format {
        Some(f) => f,
        None if given => return NULL,
        None if zone.is_utc() => ISO,
        None => "%Y-%m-%dT%H:%M:%S.%L",
    };
    let text = print(args::millis(date)?, format, &zone)?;
    Ok(Some(Value::String(arena::alloc_str(ctx.arena, &text)?)))
}

/// A moment in milliseconds since 1970 in the form `2018-03-27T16:58:51.538Z`.
///
/// # Errors
/// 18537 for a year outside 0 to 9999.
pub(in crate::expr::ops) fn iso(ms: i64) -> Result<String> {
    print(ms, ISO, &Zone::UTC)
}

const ISO: &str = "%Y-%m-%dT%H:%M:%S.%LZ";

/// Checks that only these letters follow the percent signs of a format.
///
/// # Errors
/// 18535 for a percent sign at the end, 18536 for any other letter.
pub(super) fn check(format: &str, letters: &[u8]) -> Result<()> {
    let mut bytes = format.chars();
    while let Some(c) = bytes.next() {
        if c != '%' {
            continue;
        }
        match bytes.next() {
            None => {
                return Err(Error::location(
                    18535,
                    "Unmatched '%' at end of format string",
                ));
            }
            Some(c) if u8::try_from(c).is_ok_and(|c| letters.contains(&c)) => {}
            Some(c) => {
                return Err(Error::location(
                    18536,
                    format!("Invalid format character '%{c}' in format string"),
                ));
            }
        }
    }
    Ok(())
}

/// Prints a moment in milliseconds since 1970. The format must have been checked.
///
/// # Errors
/// 18537 for a year outside 0 to 9999.
fn print(ms: i64, format: &str, zone: &Zone) -> Result<String> {
    let c = Civil::from_millis(zone.to_local(ms));
    let minutes = || zone.offset_at(ms) / 60_000;
    let month = || {
        MONTHS
            .get(c.month as usize - 1)
            .copied()
            .unwrap_or_default()
    };
    let year = |y: i64| {
        if (0..=9999).contains(&y) {
            return Ok(y);
        }
        Err(Error::location(
            18537,
            format!(
                "Could not convert date to string: date component was outside the supported range of 0-9999: {y}"
            ),
        ))
    };
    let mut out = String::with_capacity(format.len() + 16);
    let mut chars = format.chars();
    while let Some(letter) = chars.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        // Writing to a string does not fail.
        let _ = match chars.next().unwrap_or('%') {
            'Y' => write!(out, "{:04}", year(c.year)?),
            'G' => write!(out, "{:04}", year(c.iso_week().0)?),
            'm' => write!(out, "{:02}", c.month),
            'd' => write!(out, "{:02}", c.day),
            'H' => write!(out, "{:02}", c.hour),
            'M' => write!(out, "{:02}", c.minute),
            'S' => write!(out, "{:02}", c.second),
            'L' => write!(out, "{:03}", c.milli),
            'j' => write!(out, "{:03}", c.day_of_year()),
            'w' => write!(out, "{}", c.day_of_week()),
            'u' => write!(out, "{}", c.iso_day_of_week()),
            'U' => write!(out, "{:02}", c.week()),
            'V' => write!(out, "{:02}", c.iso_week().1),
            'z' => {
                let m = minutes();
                let sign = if m < 0 { '-' } else { '+' };
                write!(out, "{sign}{:02}{:02}", m.abs() / 60, m.abs() % 60)
            }
            'Z' => write!(out, "{}", minutes()),
            'b' => write!(out, "{}", month().get(..3).unwrap_or_default()),
            'B' => write!(out, "{}", month()),
            other => {
                out.push(other);
                Ok(())
            }
        };
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        // 2024-06-15T10:30:45.123Z
        let d = "{'d': ['$date', 1718447445123], 'n': null, 'x': 1, 'far': ['$date', 253402300800000], 'ny': 'America/New_York'}";
        for (rest, want) in [
            ("", "2024-06-15T10:30:45.123Z"),
            (", 'timezone': '$ny'", "2024-06-15T06:30:45.123"),
            (
                ", 'format': '%d|%G|%H|%j|%L|%m|%M|%S|%u|%U|%V|%w|%Y|%b|%B|%%'",
                "15|2024|10|167|123|06|30|45|6|23|24|7|2024|Jun|June|%",
            ),
            (", 'format': '%z %Z é'", "+0000 0 é"),
            (", 'format': '%z %Z', 'timezone': '$ny'", "-0400 -240"),
            (", 'format': '%z %Z', 'timezone': '+04:30'", "+0430 270"),
            (", 'format': ''", ""),
        ] {
            let e = format!("{{'$dateToString': {{'date': '$d'{rest}}}}}");
            let want = Box::leak(format!("'{want}'").into_boxed_str());
            check(d, &e, &Gives(want));
        }
        for (rest, want) in [
            ("'date': '$n', 'format': '%Y'", Gives("null")),
            ("'date': '$n', 'format': '%Y', 'onNull': 0", Gives("0")),
            ("'date': '$n', 'format': '%Q', 'onNull': 0", Fails(18536)),
            ("'date': '$missing', 'timezone': 'x'", Fails(40485)),
            ("'date': '$missing', 'onNull': '$missing'", Missing),
            ("'date': '$d', 'format': '$n'", Gives("null")),
            ("'date': '$d', 'timezone': '$n'", Gives("null")),
            ("'date': '$d', 'format': '%'", Fails(18535)),
            ("'date': '$d', 'format': '%é'", Fails(18536)),
            ("'date': '$d', 'format': 1", Fails(18533)),
            ("'date': '$x'", Fails(16006)),
            ("'date': '$far'", Fails(18537)),
            ("'format': '%Y'", Fails(18628)),
            ("'date': '$d', 'y': 1", Fails(18534)),
        ] {
            check(d, &format!("{{'$dateToString': {{{rest}}}}}"), &want);
        }
        check(d, "{'$dateToString': '$d'}", &Fails(18629));
    }
}
