//! `$concat`, `$toUpper`, `$toLower`, `$strcasecmp`, `$strLenCP`, `$strLenBytes`, `$split`.

use super::{NULL, arg, arg_some, text, type_name};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, arena};
use muniment_value::{Error, Result, Value};

/// The specification of `$concat`.
pub(super) const CONCAT: OpSpec = OpSpec::new(
    "$concat",
    Arity::Any,
    "Strings joined; null if one is null.",
    |args, ctx| {
        let mut out = String::new();
        for e in args {
            match e.eval(ctx)? {
                None | Some(Value::Null | Value::Undefined) => return NULL,
                Some(Value::String(s)) => {
                    arena::check_string(out.len() + s.len())?;
                    out.push_str(s);
                }
                Some(v) => {
                    return Err(Error::location(
                        16702,
                        format!("$concat only supports strings, not {}", v.type_name()),
                    ));
                }
            }
        }
        Ok(Some(Value::String(arena::alloc_str(ctx.arena, &out)?)))
    },
);

fn mapped<'a>(
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    f: fn(&str) -> String,
) -> Result<Option<Value<'a>>> {
    let s = text::coerce(arg(args, 0, ctx)?, ctx)?;
    Ok(Some(Value::String(arena::alloc_str(ctx.arena, &f(s))?)))
}

/// The specification of `$toUpper`.
pub(super) const TO_UPPER: OpSpec = OpSpec::new(
    "$toUpper",
    Arity::Exactly(1),
    "ASCII letters in upper case.",
    |args, ctx| mapped(args, ctx, str::to_ascii_uppercase),
);

/// The specification of `$toLower`.
pub(super) const TO_LOWER: OpSpec = OpSpec::new(
    "$toLower",
    Arity::Exactly(1),
    "ASCII letters in lower case.",
    |args, ctx| mapped(args, ctx, str::to_ascii_lowercase),
);

/// The specification of `$strcasecmp`.
pub(super) const STRCASECMP: OpSpec = OpSpec::new(
    "$strcasecmp",
    Arity::Exactly(2),
    "-1, 0 or 1: how two strings compare without regard to the case of ASCII letters.",
    |args, ctx| {
        let upper = |i| -> Result<String> {
            Ok(text::coerce(arg(args, i, ctx)?, ctx)?.to_ascii_uppercase())
        };
        Ok(Some(Value::Int32(upper(0)?.cmp(&upper(1)?) as i32)))
    },
);

fn length<'a>(
    op: &str,
    code: i32,
    args: &'a [Expr],
    ctx: &EvalContext<'a>,
    f: impl Fn(&str) -> usize,
) -> Result<Option<Value<'a>>> {
    match arg(args, 0, ctx)? {
        Some(Value::String(s)) => Ok(Some(muniment_value::number::narrow(f(s) as i64))),
        v => Err(Error::location(
            code,
            format!("{op} requires a string argument, found: {}", type_name(v)),
        )),
    }
}

/// The specification of `$strLenCP`.
pub(super) const STR_LEN_CP: OpSpec = OpSpec::new(
    "$strLenCP",
    Arity::Exactly(1),
    "The number of code points.",
    |args, ctx| length("$strLenCP", 34471, args, ctx, |s| s.chars().count()),
);

/// The specification of `$strLenBytes`.
pub(super) const STR_LEN_BYTES: OpSpec = OpSpec::new(
    "$strLenBytes",
    Arity::Exactly(1),
    "The number of bytes in UTF-8.",
    |args, ctx| length("$strLenBytes", 34473, args, ctx, str::len),
);

fn split_string<'a>(v: Value<'a>, code: i32, which: &str) -> Result<&'a str> {
    match v {
        Value::String(s) => Ok(s),
        v => Err(Error::location(
            code,
            format!(
                "$split requires an expression that evaluates to a string as a {which} argument, found: {}",
                v.type_name()
            ),
        )),
    }
}

/// The specification of `$split`.
pub(super) const SPLIT: OpSpec = OpSpec::new(
    "$split",
    Arity::Exactly(2),
    "The pieces of a string between separators.",
    |args, ctx| {
        let (Some(text), Some(sep)) = (arg_some(args, 0, ctx)?, arg_some(args, 1, ctx)?) else {
            return NULL;
        };
        let (s, sep) = (
            split_string(text, 40085, "first")?,
            split_string(sep, 10503900, "second")?,
        );
        if sep.is_empty() {
            return Err(Error::location(
                40087,
                "$split requires a non-empty separator",
            ));
        }
        let pieces = arena::build_array(ctx.arena, |w| s.split(sep).try_for_each(|p| w.push(p)))?;
        Ok(Some(Value::Array(pieces)))
    },
);

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'s': 'aéB', 'n': null, 'i': 12, 'd': ['$date', 0], 'o': {}}",
            &[
                ("{'$concat': ['$s', '-', 'x']}", Gives("'aéB-x'")),
                ("{'$concat': []}", Gives("''")),
                ("{'$concat': ['$s', '$n']}", Gives("null")),
                ("{'$concat': ['$s', '$i']}", Fails(16702)),
                ("{'$toUpper': '$s'}", Gives("'AéB'")),
                ("{'$toLower': '$s'}", Gives("'aéb'")),
                ("{'$toLower': '$n'}", Gives("''")),
                ("{'$toLower': '$i'}", Gives("'12'")),
                ("{'$toUpper': '$d'}", Gives("'1970-01-01T00:00:00.000Z'")),
                ("{'$toUpper': '$o'}", Fails(16007)),
                ("{'$strcasecmp': ['aB', 'Ab']}", Gives("0")),
                ("{'$strcasecmp': ['a', 'B']}", Gives("-1")),
                ("{'$strLenCP': '$s'}", Gives("3")),
                ("{'$strLenBytes': '$s'}", Gives("4")),
                ("{'$strLenCP': '$n'}", Fails(34471)),
                ("{'$strLenBytes': '$missing'}", Fails(34473)),
                ("{'$split': ['a-b--c', '-']}", Gives("['a', 'b', '', 'c']")),
                ("{'$split': ['abc', '-']}", Gives("['abc']")),
                ("{'$split': ['$n', '-']}", Gives("null")),
                ("{'$split': ['$i', '-']}", Fails(40085)),
                ("{'$split': ['$i', '$n']}", Gives("null")),
                ("{'$split': ['a', '$i']}", Fails(10503900)),
                ("{'$split': ['a', '']}", Fails(40087)),
            ],
        );
    }

    #[test]
    fn strings_cannot_fill_the_memory() {
        let double = "{'$reduce': {'input': {'$range': [0, 40]}, 'initialValue': '0123456789', 'in': {'$concat': ['$$value', '$$value']}}}";
        check("{}", double, &Fails(16493));
    }
}
