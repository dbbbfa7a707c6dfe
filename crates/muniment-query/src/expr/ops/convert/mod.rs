//! `$type`, `$isNumber`, `$convert` and its short forms `$toBool`, `$toDate`, `$toDecimal`,
//! `$toDouble`, `$toInt`, `$toLong`, `$toObjectId`, `$toString`, `$toUUID`.

mod binary;
mod numbers;

use self::binary::Format;
use super::{Named, arg, arg_some, date, text, type_name};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use muniment_value::decimal::Decimal;
use muniment_value::{Code, Error, Result, Type, Value, number};

/// The specification of `$type`.
pub(in crate::expr::ops) const TYPE: OpSpec = OpSpec::new(
    "$type",
    Arity::Exactly(1),
    "The name of the operand's BSON type; \"missing\" for a missing field.",
    |args, ctx| Ok(Some(Value::String(type_name(arg(args, 0, ctx)?)))),
);

/// The specification of `$isNumber`.
pub(in crate::expr::ops) const IS_NUMBER: OpSpec = OpSpec::new(
    "$isNumber",
    Arity::Exactly(1),
    "Whether the operand is a number of any type.",
    |args, ctx| {
        let v = arg(args, 0, ctx)?;
        Ok(Some(Value::Bool(v.is_some_and(|v| v.is_number()))))
    },
);

macro_rules! short {
    ($($id:ident $name:literal $ty:ident $subtype:literal $format:literal $doc:literal;)*) => {$(
        /// The specification.
        pub(in crate::expr::ops) const $id: OpSpec = OpSpec::new($name, Arity::Custom(|v, p| parse_short($name, v, p)), $doc, |args, ctx| {
            match arg_some(args, 0, ctx)? {
                None => super::NULL,
                Some(v) => {
                    let to = Target { ty: Some(Type::$ty), subtype: $subtype };
                    let how = How { format: Some(Value::String($format)), byte_order: None };
                    convert(v, to, how, ctx).map(Some)
                }
            }
        });
    )*};
}

short! {
    TO_BOOL "$toBool" Bool 0 "auto" "Converts to a boolean.";
    TO_DATE "$toDate" DateTime 0 "auto" "Converts to a date.";
    TO_DECIMAL "$toDecimal" Decimal128 0 "auto" "Converts to a decimal128.";
    TO_DOUBLE "$toDouble" Double 0 "auto" "Converts to a double.";
    TO_INT "$toInt" Int32 0 "auto" "Converts to an int32.";
    TO_LONG "$toLong" Int64 0 "auto" "Converts to an int64.";
    TO_OBJECT_ID "$toObjectId" ObjectId 0 "auto" "Converts to an ObjectId.";
    TO_STRING "$toString" String 0 "auto" "Converts to a string.";
    TO_UUID "$toUUID" Binary 4 "uuid" "Converts to a UUID.";
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

/// The specification of `$convert`. Arguments: input, to, format, byteOrder, whether there is an
/// onError, onError, onNull.
pub(in crate::expr::ops) const CONVERT: OpSpec = OpSpec::new(
    "$convert",
    Arity::Custom(parse_convert),
    "Converts `input` to the type `to`, with `onError` and `onNull` in place of failures.",
    eval_convert,
);

fn parse_convert(operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let code = Code::FailedToParse.0;
    let names = ["input", "to", "format", "byteOrder", "onError", "onNull"];
    let named = Named::read("$convert", operand, names, code, code)?;
    let optional = |i: usize| named.get(i).unwrap_or(Value::Null);
    Ok(vec![
        p.parse(named.need(0, code)?)?,
        p.parse(named.need(1, code)?)?,
        p.parse(optional(2))?,
        p.parse(optional(3))?,
        Expr::constant(Value::Bool(named.get(4).is_some())),
        p.parse(optional(4))?,
        p.parse(optional(5))?,
    ])
}

fn eval_convert<'a>(args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Value<'a>>> {
    let to = arg_some(args, 1, ctx)?;
    let Some(input) = arg_some(args, 0, ctx)? else {
        return arg(args, 6, ctx);
    };
    let Some(to) = to else {
        return super::NULL;
    };
    let to = target(to)?;
    let how = How {
        format: arg_some(args, 2, ctx)?,
        byte_order: arg_some(args, 3, ctx)?,
    };
    let on_error = args
        .get(4)
        .and_then(Expr::as_constant)
        .is_some_and(|v| v.truthy());
    match convert(input, to, how, ctx) {
        Ok(v) => Ok(Some(v)),
        Err(e) if on_error && e.code() == Code::ConversionFailure => arg(args, 5, ctx),
        Err(e) => Err(e),
    }
}

/// The target of a conversion.
#[derive(Clone, Copy)]
struct Target {
    /// `None` for the number 0, which stands for "no type", to which nothing converts.
    ty: Option<Type>,
    /// The subtype for binary data.
    subtype: u8,
}

/// The arguments that only some conversions use.
#[derive(Clone, Copy)]
struct How<'a> {
    format: Option<Value<'a>>,
    byte_order: Option<Value<'a>>,
}

/// The type that `to` names.
fn target(to: Value<'_>) -> Result<Target> {
    match to {
        Value::Document(d) => {
            let ty = match d.get("type") {
                Some(v) => target_type(v)?,
                None => {
                    return Err(Error::failed_to_parse(
                        "$convert's 'to' argument must have a 'type'",
                    ));
                }
            };
            let subtype = d.get("subtype").map_or(Ok(0), binary::subtype)?;
            Ok(Target { ty, subtype })
        }
        v => Ok(Target {
            ty: target_type(v)?,
            subtype: 0,
        }),
    }
}

fn target_type(to: Value<'_>) -> Result<Option<Type>> {
    let types = || (0..=u8::MAX).filter_map(Type::from_byte);
    match to {
        Value::String(name) => types()
            .find(|t| t.name() == name)
            .map(Some)
            .ok_or_else(|| Error::bad_value(format!("Unknown type name: {name}"))),
        v if v.is_number() => {
            let n = v.as_i64_exact().ok_or_else(|| {
                Error::failed_to_parse("In $convert, numeric 'to' argument is not an integer")
            })?;
            if n == 0 {
                return Ok(None);
            }
            types()
                .find(|t| i64::from(t.number()) == n)
                .map(Some)
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

/// Converts a value other than null.
fn convert<'a>(v: Value<'a>, to: Target, how: How<'_>, ctx: &EvalContext<'a>) -> Result<Value<'a>> {
    let unsupported = || {
        Err(failure(format_args!(
            "Unsupported conversion from {} to {}",
            v.type_name(),
            to.ty.map_or("missing", Type::name)
        )))
    };
    let Some(ty) = to.ty else {
        return unsupported();
    };
    match (ty, v) {
        (Type::Binary, v) => to_binary(v, to.subtype, how, ctx),
        (ty, v) if v.ty() == ty && converts(ty) => Ok(v),
        (Type::Bool, v) => Ok(Value::Bool(v.truthy())),
        (Type::Int32, Value::Binary { bytes, .. }) => {
            let n = binary::to_whole(bytes, 4, how.byte_order)?;
            i32::try_from(n).map(Value::Int32).map_err(|_| overflow(v))
        }
        (Type::Int32, v) => match numbers::whole(v)? {
            Some(n) => i32::try_from(n).map(Value::Int32).map_err(|_| overflow(v)),
            None => unsupported(),
        },
        (Type::Int64, Value::DateTime(ms)) => Ok(Value::Int64(ms)),
        (Type::Int64, Value::Binary { bytes, .. }) => {
            binary::to_whole(bytes, 8, how.byte_order).map(Value::Int64)
        }
        (Type::Int64, v) => match numbers::whole(v)? {
            Some(n) => Ok(Value::Int64(n)),
            None => unsupported(),
        },
        (Type::Double, Value::Bool(b)) => Ok(Value::Double(f64::from(u8::from(b)))),
        (Type::Double, Value::DateTime(ms)) => Ok(Value::Double(ms as f64)),
        (Type::Double, Value::String(s)) => numbers::double(s).map(Value::Double),
        (Type::Double, Value::Binary { bytes, .. }) => {
            binary::to_double(bytes, how.byte_order).map(Value::Double)
        }
        (Type::Double, v @ Value::Decimal128(b)) => {
            let d = Decimal::from_bid(b);
            let n = d.to_f64();
            if n.is_infinite() && d.is_finite() {
                return Err(overflow(v));
            }
            Ok(Value::Double(n))
        }
        (Type::Double, v) => number::to_f64(v).map_or_else(unsupported, |n| Ok(Value::Double(n))),
        (Type::Decimal128, Value::Bool(b)) => Ok(decimal(Decimal::from_i64(i64::from(b)))),
        (Type::Decimal128, Value::DateTime(ms)) => Ok(decimal(Decimal::from_i64(ms))),
        (Type::Decimal128, Value::String(s)) => numbers::decimal(s),
        (Type::Decimal128, v) => number::to_decimal(v).map_or_else(unsupported, |d| Ok(decimal(d))),
        (Type::String, Value::Bool(b)) => Ok(Value::String(if b { "true" } else { "false" })),
        (Type::String, Value::ObjectId(id)) => {
            let hex = text::hex(&id);
            Ok(Value::String(arena::alloc_str(ctx.arena, &hex)?))
        }
        (Type::String, Value::Binary { bytes, subtype }) => {
            let format = Format::parse(how.format, "binData", "string")?;
            let s = binary::to_text(bytes, subtype, format)?;
            Ok(Value::String(arena::alloc_str(ctx.arena, &s)?))
        }
        (Type::String, Value::DateTime(ms)) => {
            let s = date::format::iso(ms)?;
            Ok(Value::String(arena::alloc_str(ctx.arena, &s)?))
        }
        (Type::String, v) => match text::of(v) {
            Some(s) => Ok(Value::String(arena::alloc_str(ctx.arena, &s)?)),
            None => unsupported(),
        },
        (Type::DateTime, v) => to_date(v).map_or_else(unsupported, |ms| ms.map(Value::DateTime)),
        (Type::ObjectId, Value::String(s)) => parse_object_id(s),
        _ => unsupported(),
    }
}

/// True for types to which values convert, at least from the type itself.
fn converts(ty: Type) -> bool {
    matches!(
        ty,
        Type::Bool
            | Type::Int32
            | Type::Int64
            | Type::Double
            | Type::Decimal128
            | Type::String
            | Type::DateTime
            | Type::ObjectId
    )
}

fn to_binary<'a>(
    v: Value<'a>,
    subtype: u8,
    how: How<'_>,
    ctx: &EvalContext<'a>,
) -> Result<Value<'a>> {
    let bytes = match v {
        Value::Binary { subtype: own, .. } if own == subtype => return Ok(v),
        Value::Binary { .. } => {
            return Err(failure(
                "Conversions between different binData subtypes are not supported",
            ));
        }
        Value::String(s) => {
            let format = Format::parse(how.format, "string", "binData")?;
            binary::from_text(s, subtype, format)?
        }
        v => binary::from_number(v, how.byte_order)?.ok_or_else(|| {
            failure(format_args!(
                "Unsupported conversion from {} to binData",
                v.type_name()
            ))
        })?,
    };
    arena::check_size(ctx.arena, bytes.len())?;
    Ok(Value::Binary {
        subtype,
        bytes: ctx.arena.alloc_slice_copy(&bytes),
    })
}

fn decimal(d: Decimal) -> Value<'static> {
    Value::Decimal128(d.to_bid())
}

/// Milliseconds since 1970; `None` for types that do not convert.
fn to_date(v: Value<'_>) -> Option<Result<i64>> {
    Some(match v {
        Value::Int64(ms) => Ok(ms),
        Value::Double(_) | Value::Decimal128(_) => match numbers::whole(v) {
            Ok(n) => Ok(n?),
            Err(e) => Err(e),
        },
        Value::Timestamp { .. } | Value::ObjectId(_) => Ok(date::args::to_millis(v)?),
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
                (
                    "{'$convert': {'input': '$s', 'to': {'type': 'int', 'subtype': 5}}}",
                    Gives("12"),
                ),
                (
                    "{'$convert': {'input': '$s', 'to': {'type': 'binData', 'subtype': 10}}}",
                    Fails(4341107),
                ),
                (
                    "{'$convert': {'input': '$s', 'to': {'type': 'binData', 'subtype': 'x'}}}",
                    Fails(4341108),
                ),
                (
                    "{'$convert': {'input': '$s', 'to': {'type': 'binData', 'subtype': 0.5}}}",
                    Fails(4341106),
                ),
                ("{'$convert': {'input': '$s', 'to': 0}}", Fails(241)),
                ("{'$convert': {'input': '$s', 'to': 255}}", Fails(9)),
                (
                    "{'$convert': {'input': '$s', 'to': 'binData'}}",
                    Fails(4341115),
                ),
                (
                    "{'$convert': {'input': '$s', 'to': 'binData', 'format': 1}}",
                    Fails(4341114),
                ),
                (
                    "{'$convert': {'input': '$s', 'to': 'binData', 'format': 'x'}}",
                    Fails(4341125),
                ),
                (
                    "{'$convert': {'input': '$s', 'to': 'binData', 'format': 'auto'}}",
                    Fails(241),
                ),
                (
                    "{'$convert': {'input': '$s', 'to': 'binData', 'format': 'hex'}}",
                    Gives("['$bin', 18]"),
                ),
                (
                    "{'$convert': {'input': 'AQID', 'to': 'binData', 'format': 'base64'}}",
                    Gives("['$bin', 1, 2, 3]"),
                ),
                (
                    "{'$convert': {'input': 'AQ', 'to': 'binData', 'format': 'base64'}}",
                    Fails(241),
                ),
                (
                    "{'$convert': {'input': 'AQ', 'to': 'binData', 'format': 'base64url'}}",
                    Gives("['$bin', 1]"),
                ),
                (
                    "{'$convert': {'input': ['$bin', 195, 169], 'to': 'string', 'format': 'utf8'}}",
                    Gives("'é'"),
                ),
                (
                    "{'$convert': {'input': ['$bin', 195], 'to': 'string', 'format': 'utf8'}}",
                    Fails(241),
                ),
                (
                    "{'$convert': {'input': ['$bin', 1, 171], 'to': 'string', 'format': 'hex'}}",
                    Gives("'01AB'"),
                ),
                (
                    "{'$convert': {'input': ['$bin', 1], 'to': 'string', 'format': 'uuid'}}",
                    Fails(241),
                ),
                (
                    "{'$convert': {'input': '$i', 'to': 'binData', 'byteOrder': 'big'}}",
                    Gives("['$bin', 0, 0, 0, 5]"),
                ),
                (
                    "{'$convert': {'input': '$i', 'to': 'binData', 'byteOrder': 'x'}}",
                    Fails(9130002),
                ),
                (
                    "{'$convert': {'input': '$i', 'to': 'binData', 'byteOrder': 1}}",
                    Fails(9130001),
                ),
                ("{'$convert': {'input': '$b', 'to': 'binData'}}", Fails(241)),
                (
                    "{'$convert': {'input': ['$bin', 255], 'to': 'long'}}",
                    Gives("['$long', -1]"),
                ),
                ("{'$toInt': [['$bin', 1, 2, 3]]}", Fails(241)),
                ("{'$toInt': [['$bin', 0, 128]]}", Gives("-32768")),
                ("{'$toDouble': [['$bin', 0, 0, 128, 63]]}", Gives("1.0")),
                ("{'$toString': [['$bin', 1]]}", Gives("'AQ=='")),
                (
                    "{'$toString': {'$toUUID': '01020304-0506-0708-090a-0b0c0d0e0f10'}}",
                    Gives("'01020304-0506-0708-090a-0b0c0d0e0f10'"),
                ),
                (
                    "{'$toUUID': '0102030405060708090a0b0c0d0e0f10'}",
                    Fails(241),
                ),
                ("{'$toUUID': '$n'}", Gives("null")),
                ("{'$convert': {'input': '$d', 'to': 'object'}}", Fails(241)),
                ("{'$convert': {'input': '$x', 'to': 'object'}}", Fails(241)),
                (
                    "{'$convert': {'input': {'$toDate': 253402300800000}, 'to': 'string'}}",
                    Fails(18537),
                ),
                (
                    "{'$convert': {'input': {'$toDate': 253402300800000}, 'to': 'string', 'onError': 1}}",
                    Fails(18537),
                ),
                ("{'$convert': {'to': 'int'}}", Fails(9)),
                ("{'$convert': {'input': 1}}", Fails(9)),
                ("{'$convert': {'input': 1, 'to': 'int', 'x': 1}}", Fails(9)),
            ],
        );
    }
}
