//! `$indexOfBytes` and `$indexOfCP`: the position of a text in another.

use super::{NULL, arg, arg_some, type_name};
use crate::expr::{Arity, EvalContext, Expr, OpSpec};
use crate::running::Work;
use muniment_value::{Error, Result, Value, number};

/// The specification of `$indexOfBytes`.
pub(super) const BYTES: OpSpec = OpSpec::new(
    "$indexOfBytes",
    Arity::Range(2, 4),
    "The byte index of a text's first occurrence between two positions, or -1.",
    |args, ctx| {
        let Some(s) = Search::read("$indexOfBytes", [40091, 40092], args, ctx)? else {
            return NULL;
        };
        let end = s.to.min(s.text.len());
        let found = match s.text.as_bytes().get(s.from..end) {
            Some(t) => find(t, s.wanted.as_bytes(), ctx.work())?,
            None => None,
        };
        Ok(Some(index(found.map(|i| s.from + i))))
    },
);

/// The specification of `$indexOfCP`.
pub(super) const CP: OpSpec = OpSpec::new(
    "$indexOfCP",
    Arity::Range(2, 4),
    "The code point index of a text's first occurrence between two positions, or -1.",
    |args, ctx| {
        let Some(s) = Search::read("$indexOfCP", [40093, 40094], args, ctx)? else {
            return NULL;
        };
        // A match must start before the end, but may extend beyond it.
        let begin = s.text.char_indices().map(|(at, _)| at).nth(s.from);
        let found = begin
            .and_then(|begin| {
                let rest = s.text.get(begin..)?;
                let at = rest.find(s.wanted)?;
                Some(s.from + rest.get(..at)?.chars().count())
            })
            .filter(|i| *i < s.to);
        let both_empty = s.text.is_empty() && s.wanted.is_empty() && s.from == 0;
        Ok(Some(index(found.or(both_empty.then_some(0)))))
    },
);

struct Search<'a> {
    text: &'a str,
    wanted: &'a str,
    from: usize,
    to: usize,
}

impl<'a> Search<'a> {
    /// Reads the arguments; `None` if the text is null. The codes are for arguments that are not strings.
    fn read(
        op: &str,
        codes: [i32; 2],
        args: &'a [Expr],
        ctx: &EvalContext<'a>,
    ) -> Result<Option<Search<'a>>> {
        let string = |v: Option<Value<'a>>, code, which: &str| match v {
            Some(Value::String(s)) => Ok(s),
            v => Err(Error::location(
                code,
                format!(
                    "{op} requires a string as the {which} argument, found: {}",
                    type_name(v)
                ),
            )),
        };
        let [text, wanted] = codes;
        let Some(v) = arg_some(args, 0, ctx)? else {
            return Ok(None);
        };
        let text = string(Some(v), text, "first")?;
        let wanted = string(arg(args, 1, ctx)?, wanted, "second")?;
        let position = |i, default, which: &str| -> Result<usize> {
            if args.len() <= i {
                return Ok(default);
            }
            let v = arg(args, i, ctx)?;
            let n = v
                .and_then(number::to_i64_exact)
                .and_then(|n| i32::try_from(n).ok())
                .ok_or_else(|| {
                    Error::location(
                        40096,
                        format!(
                            "{op} requires an integral {which} index, found a value of type: {}, with value: \"{}\"",
                            type_name(v),
                            v.unwrap_or(Value::Null).to_display()
                        ),
                    )
                })?;
            usize::try_from(n).map_err(|_| {
                Error::location(
                    40097,
                    format!("{op} requires a nonnegative {which} index, found: {n}"),
                )
            })
        };
        Ok(Some(Search {
            text,
            wanted,
            from: position(2, 0, "starting")?,
            to: position(3, usize::MAX, "ending")?,
        }))
    }
}

fn index(found: Option<usize>) -> Value<'static> {
    number::narrow(found.map_or(-1, |i| i64::try_from(i).unwrap_or(i64::MAX)))
}

/// The position of `wanted` in `text`. These are bytes, since a range may cut a character.
fn find(text: &[u8], wanted: &[u8], work: Work<'_>) -> Result<Option<usize>> {
    let Some((first, rest)) = wanted.split_first() else {
        return Ok(Some(0));
    };
    let mut at = 0;
    while let Some(tail) = text.get(at..) {
        let Some(next) = tail.iter().position(|b| b == first) else {
            return Ok(None);
        };
        at += next + 1;
        let here = text.get(at..).unwrap_or_default();
        // If the text almost repeats itself, it is compared at every byte, so the work is counted.
        let same = here.iter().zip(rest).take_while(|(a, b)| a == b).count();
        work.steps(next + same)?;
        if same == rest.len() {
            return Ok(Some(at - 1));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'s': 'caféé', 'n': null, 'i': 1}",
            &[
                ("{'$indexOfBytes': ['$s', 'é']}", Gives("3")),
                ("{'$indexOfBytes': ['$s', 'é', 4]}", Gives("5")),
                ("{'$indexOfBytes': ['$s', 'é', 4, 6]}", Gives("-1")),
                ("{'$indexOfBytes': ['$s', 'é', 4, 7]}", Gives("5")),
                ("{'$indexOfBytes': ['$s', '', 7]}", Gives("7")),
                ("{'$indexOfBytes': ['$s', '', 8]}", Gives("-1")),
                ("{'$indexOfBytes': ['$s', '', 4, 2]}", Gives("-1")),
                ("{'$indexOfBytes': ['$n', '$i', -1]}", Gives("null")),
                ("{'$indexOfBytes': ['$i', 'a']}", Fails(40091)),
                ("{'$indexOfBytes': ['$s', '$n', null]}", Fails(40092)),
                ("{'$indexOfBytes': ['$s', 'a', 1.5]}", Fails(40096)),
                ("{'$indexOfBytes': ['$s', 'a', -1]}", Fails(40097)),
                ("{'$indexOfBytes': ['$s']}", Fails(28667)),
                ("{'$indexOfCP': ['$s', 'é']}", Gives("3")),
                ("{'$indexOfCP': ['$s', 'é', 4]}", Gives("4")),
                ("{'$indexOfCP': ['$s', 'é', 4, 4]}", Gives("-1")),
                ("{'$indexOfCP': ['$s', 'éé', 0, 4]}", Gives("3")),
                ("{'$indexOfCP': ['$s', 'éé', 0, 3]}", Gives("-1")),
                ("{'$indexOfCP': ['$s', '', 4]}", Gives("4")),
                ("{'$indexOfCP': ['$s', '', 5]}", Gives("-1")),
                ("{'$indexOfCP': ['', '']}", Gives("0")),
                ("{'$indexOfCP': ['$s', '', 3, 2]}", Gives("-1")),
                ("{'$indexOfCP': ['$i', 'a']}", Fails(40093)),
                ("{'$indexOfCP': ['$s', '$i']}", Fails(40094)),
            ],
        );
    }
}
