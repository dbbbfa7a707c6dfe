//! `$substrCP`, `$substrBytes` and `$substr` (its former name), `$trim`, `$ltrim`, `$rtrim`.

use super::{NULL, arg, arg_some, text, type_name};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use crate::running::Work;
use muniment_value::decimal::{Decimal, Round};
use muniment_value::{Error, Result, Value, number};

/// The specification of `$substrCP`.
pub(super) const CP: OpSpec = OpSpec::new(
    "$substrCP",
    Arity::Exactly(3),
    "Part of a string, from a code point index, of so many code points.",
    |args, ctx| {
        let s = text::coerce(arg(args, 0, ctx)?, ctx)?;
        let count = |i, what: &str, codes: [i32; 2]| -> Result<i32> {
            let v = arg(args, i, ctx)?;
            let Some(n) = v.filter(Value::is_number) else {
                return Err(Error::location(
                    codes[0],
                    format!(
                        "$substrCP: {what} must be a numeric type (is BSON type {})",
                        type_name(v)
                    ),
                ));
            };
            number::to_i64_exact(n)
                .and_then(|n| i32::try_from(n).ok())
                .ok_or_else(|| {
                    Error::location(
                        codes[1],
                        format!("$substrCP: {what} cannot be represented as a 32-bit integral value: {}", n.to_display()),
                    )
                })
        };
        let start = count(1, "starting index", [34450, 34451])?;
        let len = count(2, "length", [34452, 34453])?;
        let whole = |n: i32, what: &str, code| {
            usize::try_from(n).map_err(|_| {
                Error::location(
                    code,
                    format!("$substrCP: the {what} must be nonnegative integer."),
                )
            })
        };
        let len = whole(len, "length", 34454)?;
        let start = whole(start, "starting index", 34455)?;
        let from = s.char_indices().nth(start).map_or(s.len(), |(i, _)| i);
        let rest = s.get(from..).unwrap_or_default();
        let to = rest.char_indices().nth(len).map_or(rest.len(), |(i, _)| i);
        Ok(Some(Value::String(rest.get(..to).unwrap_or_default())))
    },
);

/// The specification of `$substrBytes`.
pub(super) const BYTES: OpSpec = OpSpec::new(
    "$substrBytes",
    Arity::Exactly(3),
    "Part of a string, from a byte index, of so many bytes; a negative length means the rest.",
    |args, ctx| bytes("$substrBytes", args, ctx),
);

/// The specification of `$substr`.
pub(super) const SUBSTR: OpSpec = OpSpec::new(
    "$substr",
    Arity::Exactly(3),
    "The old name of $substrBytes.",
    |args, ctx| bytes("$substr", args, ctx),
);

fn bytes<'a>(op: &str, args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let s = text::coerce(arg(args, 0, ctx)?, ctx)?;
    let number = |i, code, what: &str| -> Result<i64> {
        match arg(args, i, ctx)? {
            Some(Value::Double(n)) if !(-9.3e18..9.3e18).contains(&n) => Err(Error::location(
                31109,
                format!(
                    "Can't coerce out of range value {} to long",
                    Value::Double(n).to_display()
                ),
            )),
            // The decimal is rounded; one that does not fit a long counts as the least long.
            Some(Value::Decimal128(b)) => {
                let whole = Decimal::from_bid(b).round_to(0, Round::HalfEven);
                let n = whole.to_i128_trunc().map(|(n, _)| n);
                Ok(n.and_then(|n| i64::try_from(n).ok()).unwrap_or(i64::MIN))
            }
            v => v.and_then(number::to_i64_clamped).ok_or_else(|| {
                Error::location(
                    code,
                    format!(
                        "{op}:  {what} must be a numeric type (is BSON type {})",
                        type_name(v)
                    ),
                )
            }),
        }
    };
    let start = number(1, 16034, "starting index")?;
    let len = number(2, 16035, "length")?;
    let start = usize::try_from(start).map_err(|_| {
        Error::location(
            50752,
            format!("{op}: starting index must be non-negative (got: {start})"),
        )
    })?;
    let boundary = |at: usize, code, what: &str| {
        if at < s.len() && !s.is_char_boundary(at) {
            return Err(Error::location(
                code,
                format!("{op}:  Invalid range, {what} is in the middle of a UTF-8 character."),
            ));
        }
        Ok(at.min(s.len()))
    };
    let from = boundary(start, 28656, "starting index")?;
    let to = match usize::try_from(len) {
        Ok(n) => boundary(start.saturating_add(n), 28657, "ending index")?,
        Err(_) => s.len(),
    };
    Ok(Some(Value::String(s.get(from..to).unwrap_or_default())))
}

macro_rules! trim {
    ($($id:ident $name:literal $doc:literal $left:literal $right:literal;)*) => {$(
        /// The specification.
        pub(super) const $id: OpSpec = OpSpec::new(
            $name,
            Arity::Custom(|v, p| parse_trim($name, v, p)),
            $doc,
            |args, ctx| trim($name, args, ctx, $left, $right),
        );
    )*};
}

trim! {
    TRIM "$trim" "Cuts white space, or the given characters, from both ends." true true;
    LTRIM "$ltrim" "Cuts white space, or the given characters, from the beginning." true false;
    RTRIM "$rtrim" "Cuts white space, or the given characters, from the end." false true;
}

fn parse_trim(op: &str, operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let Value::Document(d) = operand else {
        return Err(Error::location(
            50696,
            format!(
                "{op} only supports an object as an argument, found {}",
                operand.type_name()
            ),
        ));
    };
    let (mut input, mut chars) = (None, None);
    for e in d {
        match e.name() {
            "input" => input = Some(p.parse(e.value())?),
            "chars" => chars = Some(p.parse(e.value())?),
            name => {
                return Err(Error::location(
                    50694,
                    format!("{op} found an unknown argument: {name}"),
                ));
            }
        }
    }
    let input =
        input.ok_or_else(|| Error::location(50695, format!("{op} requires an 'input' field")))?;
    Ok([input].into_iter().chain(chars).collect())
}

/// The white space that MongoDB trims: ASCII's and Unicode's spaces, and NUL.
fn is_space(c: char) -> bool {
    matches!(c, '\0' | '\t'..='\r' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}')
}

/// The bytes of the first characters that are white space, or in `set`.
fn cut(chars: impl Iterator<Item = char>, set: Option<&str>, work: Work<'_>) -> Result<usize> {
    let mut bytes = 0;
    for c in chars {
        let goes = match set {
            None => is_space(c),
            Some(set) => {
                // Each character is looked up among all those that are cut, so the work is counted.
                work.steps(set.len())?;
                set.contains(c)
            }
        };
        if !goes {
            break;
        }
        bytes += c.len_utf8();
    }
    Ok(bytes)
}

fn trim<'a>(
    op: &str,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    left: bool,
    right: bool,
) -> Result<Option<Value<'a>>> {
    let string = |i, code, what: &str| match arg_some(args, i, ctx)? {
        None => Ok(None),
        Some(Value::String(s)) => Ok(Some(s)),
        Some(v) => Err(Error::location(
            code,
            format!(
                "{op} requires {what} to be a string, got {} (of type {})",
                v.to_display(),
                v.type_name()
            ),
        )),
    };
    let Some(mut s) = string(0, 50699, "its input")? else {
        return NULL;
    };
    let set = match args.get(1) {
        None => None,
        Some(_) => match string(1, 50700, "'chars'")? {
            None => return NULL,
            set => set,
        },
    };
    if left {
        let cut = cut(s.chars(), set, ctx.work())?;
        s = s.get(cut..).unwrap_or_default();
    }
    if right {
        let cut = cut(s.chars().rev(), set, ctx.work())?;
        s = s.get(..s.len() - cut).unwrap_or_default();
    }
    Ok(Some(Value::String(arena::alloc_str(ctx.arena, s)?)))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'s': 'aébc', 'n': null}",
            &[
                ("{'$substrCP': ['$s', 1, 2]}", Gives("'éb'")),
                ("{'$substrCP': ['$s', 9, 2]}", Gives("''")),
                ("{'$substrCP': ['$n', 0, 2]}", Gives("''")),
                ("{'$substrCP': [1234, 1, 2]}", Gives("'23'")),
                ("{'$substrCP': ['$s', 'x', 2]}", Fails(34450)),
                ("{'$substrCP': ['$s', 0.5, 2]}", Fails(34451)),
                ("{'$substrCP': ['$s', -1, 2]}", Fails(34455)),
                ("{'$substrCP': ['$s', 0, 'x']}", Fails(34452)),
                ("{'$substrCP': ['$s', 0, -1]}", Fails(34454)),
                ("{'$substrBytes': ['$s', 0, 3]}", Gives("'aé'")),
                ("{'$substrBytes': ['$s', 3, -1]}", Gives("'bc'")),
                ("{'$substr': ['$s', 2, 1]}", Fails(28656)),
                ("{'$substr': ['abc', ['$dec', '1.5'], 1]}", Gives("'c'")),
                ("{'$substr': ['abc', 1.9, 1]}", Gives("'b'")),
                ("{'$substr': ['abc', ['$dec', 'NaN'], 1]}", Fails(50752)),
                ("{'$substr': ['abc', 1e20, 1]}", Fails(31109)),
                ("{'$substrCP': ['abc', -1, -1]}", Fails(34454)),
                ("{'$substr': ['$s', 0, 2]}", Fails(28657)),
                ("{'$substr': ['$s', -1, 2]}", Fails(50752)),
                ("{'$trim': {'input': '  ab '}}", Gives("'ab'")),
                (
                    "{'$ltrim': {'input': 'xxabx', 'chars': 'x'}}",
                    Gives("'abx'"),
                ),
                (
                    "{'$rtrim': {'input': 'xxabx', 'chars': 'xb'}}",
                    Gives("'xxa'"),
                ),
                ("{'$trim': {'input': '$n'}}", Gives("null")),
                ("{'$trim': {'input': 1}}", Fails(50699)),
                ("{'$trim': {'input': 'a', 'chars': 1}}", Fails(50700)),
                ("{'$trim': {'chars': 'a'}}", Fails(50695)),
                ("{'$trim': {'input': 'a', 'x': 1}}", Fails(50694)),
                ("{'$trim': 'a'}", Fails(50696)),
            ],
        );
    }
}
