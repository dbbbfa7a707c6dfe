//! `$type`, `$isNumber`, `$convert` and its short forms `$toBool`, `$toDate`, `$toDecimal`,
//! `$toDouble`, `$toInt`, `$toLong`, `$toObjectId`, `$toString`.

use super::{Named, arg, arg_some, date, text, type_name};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use muniment_value::decimal::Decimal;
use muniment_value::{Code, Error, Result, Type, Value, number};

/// The specification of `$type`.
pub(super) const TYPE: OpSpec = OpSpec::new(
    "$type",
    Arity::Exactly(1),
    "The name of the operand's BSON type; \"missing\" for a missing field.",
    |args, ctx| Ok(Some(Value::String(type_name(arg(args, 0, ctx)?)))),
);

/// The specification of `$isNumber`.
pub(super) const IS_NUMBER: OpSpec = OpSpec::new(
    "$isNumber",
    Arity::Exactly(1),
    "Whether the operand is a number of any type.",
    |args, ctx| {
        let v = arg(args, 0, ctx)?;
        Ok(Some(Value::Bool(v.is_some_and(|v| v.is_number()))))
    },
);

macro_rules! short {
    ($($id:ident $name:literal $ty:ident $doc:literal;)*) => {$(
        /// The specification.
        pub(super) const $id: OpSpec = OpSpec::new($name, Arity::Custom(|v, p| parse_short($name, v, p)), $doc, |args, ctx| {
            match arg_some(args, 0, ctx)? {
                None => super::NULL,
                Some(v) => convert(v, Type::$ty, ctx).map(Some),
            }
        });
    )*};
}

short! {
    TO_BOOL "$toBool" Bool "Converts to a boolean.";
    TO_DATE "$toDate" DateTime "Converts to a date.";
    TO_DECIMAL "$toDecimal" Decimal128 "Converts to a decimal128.";
    TO_DOUBLE "$toDouble" Double "Converts to a double.";
    TO_INT "$toInt" Int32 "Converts to an int32.";
    TO_LONG "$toLong" Int64 "Converts to an int64.";
    TO_OBJECT_ID "$toObjectId" ObjectId "Converts to an ObjectId.";
    TO_STRING "$toString" String "Converts to a string.";
}

fn parse_short(op: &str, operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let Value::Array(items) = operand else {
        return Ok(vec![p.parse(operand)?]);
    };
    let args = p.parse_all(items)?;
    if args.len() != 1 {
        return Err(Error::location(
            50723,
            format!("{op} requires a single argument, got {}", args.len()),
        ));
    }
    Ok(args)
}

/// The specification of `$convert`. Arguments: input, to, onError or missing, onNull or missing,
/// then which of the last two were given.
pub(super) const CONVERT: OpSpec = OpSpec::new(
    "$convert",
    Arity::Custom(parse_convert),
    "Converts `input` to the type `to`, with `onError` and `onNull` in place of failures.",
    eval_convert,
);

fn parse_convert(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let code = Code::FailedToParse.0;
    let names = ["input", "to", "onError", "onNull"];
    let named = Named::read("$convert", operand, names, code, code)?;
    let mut args = vec![
        p.parse(named.need(0, code)?)?,
        p.parse(named.need(1, code)?)?,
    ];
    for i in 2..4 {
        let given = named.get(i);
        args.push(p.parse(given.unwrap_or(Value::Null))?);
        args.push(Expr::constant(Value::Bool(given.is_some())));
    }
    Ok(args)
}

fn eval_convert<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let given = |i: usize| {
        args.get(i)
            .and_then(Expr::as_constant)
            .is_some_and(|v| v.truthy())
    };
    let to = arg_some(args, 1, ctx)?;
    let Some(input) = arg_some(args, 0, ctx)? else {
        return if given(5) {
            arg(args, 4, ctx)
        } else {
            super::NULL
        };
    };
    let Some(to) = to else {
        return super::NULL;
    };
    match convert(input, target(to)?, ctx) {
        Ok(v) => Ok(Some(v)),
        Err(e) if e.code() == Code::ConversionFailure && given(3) => arg(args, 2, ctx),
        Err(e) => Err(e),
    }
}

/// The type that `to` names.
fn target(to: Value<'_>) -> Result<Type> {
    match to {
        Value::String(name) => (0..=u8::MAX)
            .filter_map(Type::from_byte)
            .find(|t| t.name() == name)
            .ok_or_else(|| Error::bad_value(format!("Unknown type name: {name}"))),
        Value::Document(d) => match d.get("type") {
            // One level: a type is a name or a number.
            Some(v @ (Value::String(_) | Value::Int32(_) | Value::Int64(_) | Value::Double(_))) => {
                target(v)
            }
            _ => Err(Error::failed_to_parse(
                "$convert's 'to' argument must have a 'type'",
            )),
        },
        v if v.is_number() => {
            let n = v.as_i64_exact().ok_or_else(|| {
                Error::failed_to_parse("In $convert, numeric 'to' argument is not an integer")
            })?;
            (0..=u8::MAX)
                .filter_map(Type::from_byte)
                .find(|t| i64::from(t.number()) == n)
                .ok_or_else(|| {
                    Error::failed_to_parse(format!(
                        "In $convert, numeric value for 'to' does not correspond to a BSON type: {n}"
                    ))
                })
        }
        v => Err(Error::failed_to_parse(format!(
            "$convert's 'to' argument must be a string or number, but is {}",
            v.type_name()
        ))),
    }
}

fn failure(what: impl std::fmt::Display) -> Error {
    Error::new(
        Code::ConversionFailure,
        format!("{what} in $convert with no onError value"),
    )
}

fn unparsable(what: &str, text: &str, why: &str) -> Error {
    Error::new(
        Code::ConversionFailure,
        format!("Failed to parse {what} '{text}' in $convert with no onError value: {why}"),
    )
}

fn overflow(v: Value<'_>) -> Error {
    Error::new(
        Code::ConversionFailure,
        format!(
            "Conversion would overflow target type in $convert with no onError value: {}",
            v.to_display()
        ),
    )
}

/// Converts a value that is not null.
fn convert<'a>(v: Value<'a>, to: Type, ctx: &EvalContext<'a>) -> Result<Value<'a>> {
    let unsupported = || {
        Err(failure(format_args!(
            "Unsupported conversion from {} to {}",
            v.type_name(),
            to.name()
        )))
    };
    if v.ty() == to {
        return Ok(v);
    }
    match to {
        Type::Bool => Ok(Value::Bool(v.truthy())),
        Type::Int32 => match whole(v)? {
            Some(n) => i32::try_from(n).map(Value::Int32).map_err(|_| overflow(v)),
            None => unsupported(),
        },
        Type::Int64 => match v {
            Value::DateTime(ms) => Ok(Value::Int64(ms)),
            v => match whole(v)? {
                Some(n) => Ok(Value::Int64(n)),
                None => unsupported(),
            },
        },
        Type::Double => match v {
            Value::Bool(b) => Ok(Value::Double(f64::from(u8::from(b)))),
            Value::DateTime(ms) => Ok(Value::Double(ms as f64)),
            Value::String(s) => parse_double(s),
            Value::Decimal128(b) => {
                let d = Decimal::from_bid(b);
                let n = d.to_f64();
                if n.is_infinite() && d.is_finite() {
                    return Err(overflow(v));
                }
                Ok(Value::Double(n))
            }
            v => number::to_f64(v).map_or_else(unsupported, |n| Ok(Value::Double(n))),
        },
        Type::Decimal128 => match v {
            Value::Bool(b) => Ok(decimal(Decimal::from_i64(i64::from(b)))),
            Value::DateTime(ms) => Ok(decimal(Decimal::from_i64(ms))),
            Value::String(s) => match Decimal::parse(s) {
                None => Err(unparsable("number", s, "Failed to parse string to decimal")),
                // Digits that come to nothing or to infinity were out of range.
                Some(d)
                    if (d.is_infinite() && s.bytes().any(|b| b.is_ascii_digit()))
                        || (d.is_zero()
                            && s.split(['e', 'E'])
                                .next()
                                .is_some_and(|m| m.bytes().any(|b| matches!(b, b'1'..=b'9')))) =>
                {
                    Err(unparsable(
                        "number",
                        s,
                        "Conversion from string to decimal would overflow",
                    ))
                }
                Some(d) => Ok(decimal(d)),
            },
            v => number::to_decimal(v).map_or_else(unsupported, |d| Ok(decimal(d))),
        },
        Type::String => match v {
            Value::Bool(b) => Ok(Value::String(if b { "true" } else { "false" })),
            Value::ObjectId(id) => Ok(Value::String(arena::alloc_str(ctx.arena, &text::hex(&id))?)),
            Value::Code(_) => unsupported(),
            v => match text::of(v) {
                Some(s) => Ok(Value::String(arena::alloc_str(ctx.arena, &s)?)),
                None => unsupported(),
            },
        },
        Type::DateTime => to_date(v).map_or_else(unsupported, |ms| ms.map(Value::DateTime)),
        Type::ObjectId => match v {
            Value::String(s) => parse_object_id(s),
            _ => unsupported(),
        },
        _ => unsupported(),
    }
}

fn decimal(d: Decimal) -> Value<'static> {
    Value::Decimal128(d.to_bid())
}

/// The whole number for int32 and int64; `None` for types that do not convert.
fn whole(v: Value<'_>) -> Result<Option<i64>> {
    match v {
        Value::Bool(b) => Ok(Some(i64::from(b))),
        Value::String(s) => {
            let digits = s.strip_prefix(['-', '+']).unwrap_or(s);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                let why = match digits.bytes().next() {
                    None => "No digits",
                    Some(b) if b.is_ascii_digit() => "Did not consume whole string.",
                    _ => "Did not consume any digits",
                };
                return Err(unparsable("number", s, why));
            }
            s.parse()
                .map(Some)
                .map_err(|_| unparsable("number", s, "Overflow"))
        }
        Value::Int32(_) | Value::Int64(_) => Ok(number::to_i64_exact(v)),
        v if v.is_number() => {
            if number::is_nan(v) {
                return Err(failure("Attempt to convert NaN value to integer type"));
            }
            if number::is_infinite(v) {
                return Err(failure("Attempt to convert infinity value to integer type"));
            }
            let cut = match v {
                Value::Double(n) => (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0)
                    .contains(&n)
                    .then_some(n as i64),
                _ => number::to_decimal(v)
                    .and_then(Decimal::to_i128_trunc)
                    .and_then(|(n, _)| i64::try_from(n).ok()),
            };
            cut.map(Some).ok_or_else(|| overflow(v))
        }
        _ => Ok(None),
    }
}

fn parse_double(s: &str) -> Result<Value<'static>> {
    let plain = s.bytes().next().is_some_and(|b| !b.is_ascii_whitespace());
    match s.parse::<f64>() {
        Ok(n) if plain && (n.is_finite() || !s.bytes().any(|b| b.is_ascii_digit())) => {
            Ok(Value::Double(n))
        }
        Ok(_) if plain => Err(unparsable("number", s, "Out of range")),
        _ => Err(unparsable("number", s, "Did not consume whole string.")),
    }
}

/// Milliseconds since 1970; `None` for types that do not convert.
fn to_date(v: Value<'_>) -> Option<Result<i64>> {
    Some(match v {
        Value::Int64(ms) => Ok(ms),
        Value::Double(_) | Value::Decimal128(_) => match whole(v) {
            Ok(n) => Ok(n?),
            Err(e) => Err(e),
        },
        Value::Timestamp { t, .. } => Ok(i64::from(t) * 1000),
        Value::ObjectId([a, b, c, d, ..]) => Ok(i64::from(i32::from_be_bytes([a, b, c, d])) * 1000),
        Value::String(s) => date::read(s, &date::Zone::UTC),
        _ => return None,
    })
}

fn parse_object_id(s: &str) -> Result<Value<'static>> {
    if s.len() != 24 {
        let why = format!(
            "Invalid string length for parsing to OID, expected 24 but found {}",
            s.len()
        );
        return Err(unparsable("objectId", s, &why));
    }
    let mut id = [0; 12];
    for (byte, pair) in id.iter_mut().zip(s.as_bytes().chunks(2)) {
        let hex = std::str::from_utf8(pair)
            .ok()
            .filter(|p| p.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|p| u8::from_str_radix(p, 16).ok());
        *byte =
            hex.ok_or_else(|| unparsable("objectId", s, "Invalid character found in hex string"))?;
    }
    Ok(Value::ObjectId(id))
}

#[cfg(test)]
mod tests {
    use crate::expr::testing::*;

    #[test]
    fn table_test() {
        table(
            "{'i': 5, 'f': 2.9, 's': '12', 'n': null, 'b': true, 'd': ['$date', 1000], 'o': ['$oid', 1], 'x': {}, 'l': ['$long', 5]}",
            &[
                ("{'$type': '$i'}", Gives("'int'")),
                ("{'$type': '$missing'}", Gives("'missing'")),
                ("{'$type': '$n'}", Gives("'null'")),
                ("{'$isNumber': '$f'}", Gives("true")),
                ("{'$isNumber': '$s'}", Gives("false")),
                ("{'$toInt': '$f'}", Gives("2")),
                ("{'$toInt': '$s'}", Gives("12")),
                ("{'$toInt': '+012'}", Gives("12")),
                ("{'$toInt': '$b'}", Gives("1")),
                ("{'$toInt': '$n'}", Gives("null")),
                ("{'$toInt': '$missing'}", Gives("null")),
                ("{'$toInt': '1.5'}", Fails(241)),
                ("{'$toInt': 'x'}", Fails(241)),
                ("{'$toInt': ''}", Fails(241)),
                ("{'$toInt': 3000000000}", Fails(241)),
                ("{'$toInt': '$d'}", Fails(241)),
                ("{'$toInt': '$x'}", Fails(241)),
                ("{'$toInt': [['$NaN']]}", Fails(241)),
                ("{'$toInt': [['$dec', '7.9']]}", Gives("7")),
                ("{'$toLong': '$i'}", Gives("['$long', 5]")),
                ("{'$toLong': '$d'}", Gives("['$long', 1000]")),
                ("{'$toLong': 1e30}", Fails(241)),
                ("{'$toDouble': '$i'}", Gives("5.0")),
                ("{'$toDouble': '2.5e1'}", Gives("25.0")),
                ("{'$toDouble': 'x'}", Fails(241)),
                ("{'$toDecimal': '1.50'}", Gives("['$dec', '1.50']")),
                ("{'$toDecimal': '1E9999'}", Fails(241)),
                ("{'$toDecimal': '1E-9999'}", Fails(241)),
                ("{'$toDecimal': '0E-9999'}", Gives("['$dec', '0E-6176']")),
                ("{'$toDecimal': [1, 2]}", Fails(50723)),
                ("{'$toDecimal': '$i'}", Gives("['$dec', '5']")),
                ("{'$toBool': '$i'}", Gives("true")),
                ("{'$toBool': 0.0}", Gives("false")),
                ("{'$toBool': ''}", Gives("true")),
                ("{'$toString': '$i'}", Gives("'5'")),
                ("{'$toString': '$f'}", Gives("'2.9'")),
                ("{'$toString': '$b'}", Gives("'true'")),
                ("{'$toString': '$d'}", Gives("'1970-01-01T00:00:01.000Z'")),
                ("{'$toString': '$o'}", Gives("'000000000000000000000001'")),
                ("{'$toString': '$x'}", Fails(241)),
                (
                    "{'$toDate': '1970-01-01T00:00:01Z'}",
                    Gives("['$date', 1000]"),
                ),
                ("{'$toDate': '$l'}", Gives("['$date', 5]")),
                ("{'$toDate': '$o'}", Gives("['$date', 0]")),
                ("{'$toDate': '$i'}", Fails(241)),
                ("{'$toDate': 'x'}", Fails(241)),
                (
                    "{'$toObjectId': '000000000000000000000001'}",
                    Gives("['$oid', 1]"),
                ),
                ("{'$toObjectId': 'x'}", Fails(241)),
                ("{'$toObjectId': 'zzzzzzzzzzzzzzzzzzzzzzzz'}", Fails(241)),
                ("{'$convert': {'input': '$s', 'to': 'int'}}", Gives("12")),
                ("{'$convert': {'input': '$s', 'to': 16}}", Gives("12")),
                (
                    "{'$convert': {'input': 'x', 'to': 'int', 'onError': 'bad'}}",
                    Gives("'bad'"),
                ),
                (
                    "{'$convert': {'input': '$n', 'to': 'int', 'onNull': 'none'}}",
                    Gives("'none'"),
                ),
                ("{'$convert': {'input': '$n', 'to': 'int'}}", Gives("null")),
                ("{'$convert': {'input': '$s', 'to': '$n'}}", Gives("null")),
                ("{'$convert': {'input': 'x', 'to': 'int'}}", Fails(241)),
                ("{'$convert': {'input': 'x', 'to': 'foo'}}", Fails(2)),
                ("{'$convert': {'input': 'x', 'to': 1.5}}", Fails(9)),
                ("{'$convert': {'to': 'int'}}", Fails(9)),
                ("{'$convert': {'input': 1}}", Fails(9)),
                ("{'$convert': {'input': 1, 'to': 'int', 'x': 1}}", Fails(9)),
            ],
        );
    }
}
