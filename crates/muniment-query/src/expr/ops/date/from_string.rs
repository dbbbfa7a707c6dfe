//! `$dateFromString`: a date from text, with or without a format. Arguments: dateString, whether there is a
//! format, format, timezone, whether there is an onError, onError, onNull.

use super::format::{self, MONTHS};
use super::read::{Found, Reader, invalid};
use super::{args, read};
use crate::expr::ops::{NULL, Named, arg, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser};
use muniment_value::{Code, Error, Result, Value};

const OP: &str = "$dateFromString";

/// The specification.
pub(in crate::expr::ops) const SPEC: OpSpec = OpSpec::new(
    OP,
    Arity::Custom(parse),
    "A date from text, with `onError` and `onNull` in place of failures.",
    eval,
);

fn parse(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let names = ["dateString", "format", "timezone", "onError", "onNull"];
    let named = Named::read(OP, operand, names, 40540, 40541)?;
    let given = |i: usize| Expr::constant(Value::Bool(named.get(i).is_some()));
    Ok(vec![
        p.parse(named.need(0, 40542)?)?,
        given(1),
        args::or_default(p, named.get(1), Value::Null)?,
        args::or_default(p, named.get(2), Value::String("UTC"))?,
        given(3),
        args::or_default(p, named.get(3), Value::Null)?,
        args::or_default(p, named.get(4), Value::Null)?,
    ])
}

fn eval<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let given = |i: usize| {
        args.get(i)
            .and_then(Expr::as_constant)
            .is_some_and(|v| v.truthy())
    };
    let text = arg_some(args, 0, ctx)?;
    // An invalid format or zone is an error even if there is no text.
    let format = match arg_some(args, 2, ctx)? {
        None => None,
        Some(Value::String(f)) => {
            format::check(f, b"dGHjLmMSuVYzZbB%")?;
            Some(f)
        }
        Some(v) => {
            return Err(Error::location(
                40684,
                format!(
                    "{OP} requires that 'format' be a string, found: {} with value {}",
                    v.type_name(),
                    v.to_display()
                ),
            ));
        }
    };
    let zone = args::zone(args, 3, ctx)?;
    let Some(text) = text else {
        return arg(args, 6, ctx);
    };
    let ms = match (text, zone) {
        (Value::String(_), None) => return NULL,
        (Value::String(text), Some(zone)) => match format {
            None if given(1) => return NULL,
            None => read(text, &zone),
            Some(f) => in_format(text, f).and_then(|found| found.finish(text, &zone)),
        },
        (v, _) => Err(Error::new(
            Code::ConversionFailure,
            format!(
                "{OP} requires that 'dateString' be a string, found: {} with value {}",
                v.type_name(),
                v.to_display()
            ),
        )),
    };
    match ms {
        Ok(ms) => Ok(Some(Value::DateTime(ms))),
        Err(e) if e.code() == Code::ConversionFailure && given(4) => arg(args, 5, ctx),
        Err(e) => Err(e),
    }
}

/// Reads text by a format whose letters were checked.
fn in_format(text: &str, format: &str) -> Result<Found> {
    let mut r = Reader::new(text);
    let mut found = Found::default();
    let (mut year, mut day_of_year) = (None, None);
    let (mut iso_year, mut iso_week, mut iso_day) = (None, 1, 1);
    let mut chars = format.chars();
    while let Some(letter) = chars.next() {
        if letter != '%' {
            r.literal(letter)?;
            continue;
        }
        match chars.next().unwrap_or('%') {
            'Y' => year = Some(r.number(4, 4)?),
            'm' => found.month = Some(r.number(1, 2)?),
            'd' => found.day = Some(r.number(1, 2)?),
            'j' => day_of_year = Some(r.number(1, 3)?),
            'G' => iso_year = Some(r.number(4, 4)?),
            'V' => iso_week = r.number(1, 2)?,
            'u' => iso_day = r.number(1, 1)?,
            'H' => found.clock().0 = r.number(1, 2)?,
            'M' => found.clock().1 = r.number(2, 2)?,
            'S' => found.clock().2 = r.number(2, 2)?,
            'L' => found.clock().3 = r.millis()?,
            'z' => found.zone = Some(r.zone()?),
            'Z' => found.zone = Some(r.minutes_zone()?),
            'b' | 'B' => {
                let word = r.word();
                let month = MONTHS.iter().position(|m| {
                    m.eq_ignore_ascii_case(word)
                        || m.get(..3).is_some_and(|m| m.eq_ignore_ascii_case(word))
                });
                let month = month.ok_or_else(|| r.fail("A textual month could not be found"))?;
                found.month = Some(month as u32 + 1);
            }
            other => r.literal(other)?,
        }
    }
    if !r.is_done() {
        return Err(r.fail("Trailing data"));
    }
    if let Some((h, m, s, _)) = found.time
        && (h > 23 || m > 59 || s > 59)
    {
        return Err(invalid(text, "The parsed time was invalid"));
    }
    found.year = year.map(i64::from);
    if let Some(year) = iso_year {
        if !(1..=53).contains(&iso_week) || !(1..=7).contains(&iso_day) {
            return Err(invalid(text, "The parsed date was invalid"));
        }
        found.set_iso_week(year.into(), iso_week, iso_day);
    } else if let (Some(year), Some(day)) = (year, day_of_year) {
        // The days count from 0, unlike those that $dateToString prints; MongoDB does the same.
        found.set_day_of_year(year.into(), i64::from(day));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        let d = "{'s': '2017-02-08T12:10:40.787', 'n': null, 'x': 1, 'bad': 'not-a-date', 'ny': 'America/New_York', 'z': '2017-02-08T12:10:40.787Z'}";
        for (rest, want) in [
            ("'dateString': '$s'", 1_486_555_840_787),
            ("'dateString': '$s', 'timezone': '$ny'", 1_486_573_840_787),
            (
                "'dateString': '06-15-2018', 'format': '%m-%d-%Y'",
                1_529_020_800_000,
            ),
            (
                "'dateString': 'june 5 2018', 'format': '%B %d %Y', 'timezone': '+01'",
                1_528_153_200_000,
            ),
            (
                "'dateString': '2018-06-15T10:30:45.12', 'format': '%Y-%m-%dT%H:%M:%S.%L'",
                1_529_058_645_120,
            ),
            ("'dateString': '2024', 'format': '%G'", 1_704_067_200_000),
            (
                "'dateString': '2024-W24-6', 'format': '%G-W%V-%u'",
                1_718_409_600_000,
            ),
            (
                "'dateString': '2024 167', 'format': '%Y %j'",
                1_718_496_000_000,
            ),
            (
                "'dateString': '100% 2024-06-15 +0530', 'format': '100%% %Y-%m-%d %z'",
                1_718_389_800_000,
            ),
            (
                "'dateString': '2024-06-15 -330', 'format': '%Y-%m-%d %Z'",
                1_718_429_400_000,
            ),
        ] {
            let want: i64 = want;
            let want = Box::leak(format!("['$date', {want}]").into_boxed_str());
            check(
                d,
                &format!("{{'$dateFromString': {{{rest}}}}}"),
                &Gives(want),
            );
        }
        for (rest, want) in [
            ("'dateString': '$n'", Gives("null")),
            ("'dateString': '$missing', 'onNull': 5", Gives("5")),
            ("'dateString': '$s', 'timezone': '$n'", Gives("null")),
            ("'dateString': '$s', 'format': '$n'", Gives("null")),
            ("'dateString': '$bad'", Fails(241)),
            ("'dateString': '$bad', 'onError': '$x'", Gives("1")),
            ("'dateString': '$x'", Fails(241)),
            ("'dateString': '$x', 'onError': null", Gives("null")),
            ("'dateString': '$z', 'timezone': '$ny'", Fails(241)),
            ("'dateString': '2018', 'format': '%Y'", Fails(241)),
            ("'dateString': '201', 'format': '%Y'", Fails(241)),
            (
                "'dateString': '2018-01-01x', 'format': '%Y-%m-%d'",
                Fails(241),
            ),
            (
                "'dateString': '2018-02-30', 'format': '%Y-%m-%d'",
                Fails(241),
            ),
            (
                "'dateString': '2018-01-01 24', 'format': '%Y-%m-%d %H'",
                Fails(241),
            ),
            (
                "'dateString': '2018-01-01', 'format': '%Y-%m-%d %H'",
                Fails(241),
            ),
            ("'dateString': '2018-é', 'format': '%Y-%b'", Fails(241)),
            ("'dateString': '$s', 'format': '%U'", Fails(18536)),
            ("'dateString': '$s', 'format': 1", Fails(40684)),
            ("'dateString': '$s', 'timezone': 'Z'", Fails(40485)),
            ("'dateString': '$s', 'timezone': 1", Fails(40517)),
            ("'format': '%Y'", Fails(40542)),
            ("'dateString': '$s', 'y': 1", Fails(40541)),
        ] {
            check(d, &format!("{{'$dateFromString': {{{rest}}}}}"), &want);
        }
        check(d, "{'$dateFromString': '$s'}", &Fails(40540));
    }
}
