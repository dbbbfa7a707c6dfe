//! The options of clustered and time-series collections, for `create` and `collMod`.

use muniment_exec::{granularity_span, series_options};
use muniment_value::args::{Args, Field, Types, check_type, opt, req};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Type, Value, doc, number};

/// Seconds that a bucket spans at most: a year.
const MAX_SPAN: i64 = 31_536_000;

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidOptions, message)
}

/// `expireAfterSeconds` of a collection.
///
/// # Errors
/// 72 InvalidOptions for a number below 0, or for one that would reach back beyond 1970.
pub(super) fn expire_seconds(v: Value<'_>) -> Result<i64> {
    let n = number::to_i64_clamped(v).unwrap_or(-1);
    if n < 0 {
        return Err(invalid(
            "TTL index 'expireAfterSeconds' option cannot be less than 0",
        ));
    }
    if n > muniment_logger::now_ms() / 1000 {
        return Err(invalid(
            "TTL index 'expireAfterSeconds' option must be within an acceptable range",
        ));
    }
    Ok(n)
}

const CLUSTERED: &[Field] = &[
    req("key", Types::OBJECT),
    req("unique", Types::SAFE_BOOL),
    opt("v", Types::NUMBER),
    opt("name", Types::STRING),
];

/// `create.clusteredIndex`: the index as `listCollections` shows it; `None` for false.
///
/// # Errors
/// 14, 40414, 40415, 197, and MongoDB's own 5979703, 5979700, 5979704.
pub(super) fn clustered_index(v: Value<'_>) -> Result<Option<DocBuf>> {
    let d = match v {
        Value::Document(d) => d,
        v if v.is_number() || matches!(v, Value::Bool(_)) => {
            if v.truthy() {
                return Err(Error::location(
                    5_979_703,
                    "'clusteredIndex: true' is only supported on time-series buckets",
                ));
            }
            return Ok(None);
        }
        v => {
            check_type(
                "create",
                "clusteredIndex",
                Types::SAFE_BOOL.or(Types::OBJECT),
                v.ty(),
            )?;
            return Ok(None);
        }
    };
    let a = Args::parse("create.clusteredIndex", CLUSTERED, d)?;
    let key = a.doc("key").unwrap_or(Doc::EMPTY);
    let first = key.first();
    let of_id = key.count() == 1
        && first.is_some_and(|e| e.name() == "_id" && number::to_i64_exact(e.value()) == Some(1));
    if !of_id {
        return Err(Error::new(
            Code::InvalidIndexSpecificationOption,
            "The clusteredIndex option is only supported with the key {_id: 1}",
        ));
    }
    if !a.bool("unique", false) {
        return Err(Error::location(
            5_979_700,
            "The clusteredIndex option requires unique: true",
        ));
    }
    if a.get("v").and_then(number::to_i64_clamped).unwrap_or(2) != 2 {
        return Err(Error::location(
            5_979_704,
            "The clusteredIndex option requires v: 2",
        ));
    }
    let name = a.str("name").filter(|n| !n.is_empty()).unwrap_or("_id_");
    Ok(Some(
        doc! { "v": 2, "key": doc! { "_id": 1 }, "name": name, "unique": true },
    ))
}

const TIME_SERIES: &[Field] = &[
    req("timeField", Types::STRING),
    opt("metaField", Types::STRING),
    opt("granularity", Types::STRING),
    opt("bucketMaxSpanSeconds", Types::NUMBER),
    opt("bucketRoundingSeconds", Types::NUMBER),
];

const CHANGE: &[Field] = &[
    opt("granularity", Types::STRING),
    opt("bucketMaxSpanSeconds", Types::NUMBER),
    opt("bucketRoundingSeconds", Types::NUMBER),
];

/// How measurements are grouped.
struct Bucketing<'a> {
    granularity: Option<&'a str>,
    /// Seconds.
    max_span: Option<i64>,
    /// Seconds.
    rounding: Option<i64>,
}

fn bucketing<'a>(path: &str, a: &Args<'a>) -> Result<Bucketing<'a>> {
    let granularity = a.str("granularity");
    if let Some(g) = granularity
        && granularity_span(g).is_none()
    {
        return Err(Error::bad_value(format!(
            "Enumeration value '{g}' for field '{path}.granularity' is not a valid value."
        )));
    }
    Ok(Bucketing {
        granularity,
        max_span: a.int("bucketMaxSpanSeconds", 1, MAX_SPAN)?,
        rounding: a.int("bucketRoundingSeconds", 1, MAX_SPAN)?,
    })
}

/// `create.timeseries`: the options as `listCollections` shows them, defaults included.
///
/// # Errors
/// 2, 14, 72, 40414, 40415.
pub(super) fn time_series(d: Doc<'_>) -> Result<DocBuf> {
    let a = Args::parse("create.timeseries", TIME_SERIES, d)?;
    let time = a.str("timeField").unwrap_or_default();
    let meta = a.str("metaField");
    for (name, field) in [("timeField", Some(time)), ("metaField", meta)] {
        let Some(field) = field else { continue };
        if field.contains('\0') {
            return Err(Error::bad_value(format!(
                "The '{name}' field contains a null byte"
            )));
        }
        if field.contains('.') {
            return Err(invalid(format!(
                "'{name}' must be a top-level field and not contain a '.'"
            )));
        }
    }
    if meta == Some("_id") {
        return Err(invalid(
            "The field specified for metaField cannot be \"_id\"",
        ));
    }
    if meta == Some(time) {
        return Err(invalid(
            "The field specified for metaField cannot be the same as the timeField",
        ));
    }
    let b = bucketing("create.timeseries", &a)?;
    let granularity = b.granularity.unwrap_or("seconds");
    let default = granularity_span(granularity).unwrap_or(3600);
    match (b.max_span, b.rounding) {
        (None, None) => Ok(series_options(
            time,
            meta,
            Some(granularity),
            default,
            default,
        )),
        (Some(n), None) if b.granularity.is_some() && n == default => Ok(series_options(
            time,
            meta,
            Some(granularity),
            default,
            default,
        )),
        (Some(a), Some(b_)) if a == b_ && b.granularity.is_none() => {
            Ok(series_options(time, meta, None, a, b_))
        }
        _ => Err(invalid(
            "bucketMaxSpanSeconds and bucketRoundingSeconds must be given together, be equal, \
             and come without a granularity",
        )),
    }
}

/// `collMod.timeseries`: the new options.
///
/// # Errors
/// 2, 14, 40415; 72 for a change that would make buckets shorter.
pub(super) fn change_time_series(d: Doc<'_>, old: Doc<'_>) -> Result<DocBuf> {
    let a = Args::parse("collMod.timeseries", CHANGE, d)?;
    let b = bucketing("collMod.timeseries", &a)?;
    let time = old.get_str("timeField").unwrap_or_default();
    let meta = old.get_str("metaField");
    let was = |name: &str| old.get(name).and_then(number::to_i64_exact);
    let old_span = was("bucketMaxSpanSeconds").unwrap_or(0);
    let old_rounding = was("bucketRoundingSeconds").unwrap_or(0);
    let shorter = || {
        invalid(
            "Invalid transition for timeseries: the span of a bucket can only be increased, by \
             granularity or by equal bucketMaxSpanSeconds and bucketRoundingSeconds",
        )
    };
    match (b.granularity, b.max_span, b.rounding) {
        (None, None, None) => Ok(old.to_buf()),
        (Some(g), None, None) => {
            let new = granularity_span(g).unwrap_or(0);
            if new < old_span {
                return Err(shorter());
            }
            Ok(series_options(time, meta, Some(g), new, new))
        }
        (None, Some(max), Some(rounding)) => {
            if max != rounding || max < old_span || rounding < old_rounding {
                return Err(shorter());
            }
            Ok(series_options(time, meta, None, max, rounding))
        }
        _ => Err(shorter()),
    }
}

/// `collMod.expireAfterSeconds`: the new number of seconds; `None` for "off".
///
/// # Errors
/// 14 for another type, 72 for another word or an illegal number.
pub(super) fn change_expiry(v: Value<'_>) -> Result<Option<i64>> {
    match v {
        Value::String("off") => Ok(None),
        Value::String(_) => Err(invalid(
            "expireAfterSeconds must be a number or the string 'off'",
        )),
        v => {
            let types = Types::NUMBER.or(Types::STRING);
            check_type("collMod", "expireAfterSeconds", types, v.ty())?;
            if v.ty() == Type::Null {
                return Err(invalid("expireAfterSeconds must be a number"));
            }
            expire_seconds(v).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn clustered_indexes() {
        let code = |d: DocBuf| {
            clustered_index(Value::Document(d.as_doc())).map_or_else(|e| e.code().0, |_| 0)
        };
        let id = || doc! { "_id": 1 };
        assert_eq!(code(doc! { "key": id(), "unique": true, "v": 2.9 }), 0);
        assert_eq!(code(doc! { "key": id(), "unique": false }), 5_979_700);
        assert_eq!(
            code(doc! { "key": id(), "unique": true, "v": 1 }),
            5_979_704
        );
        assert_eq!(code(doc! { "key": doc! { "x": 1 }, "unique": true }), 197);
        assert_eq!(code(doc! { "unique": true }), 40414);
        assert!(clustered_index(Value::Bool(false)).unwrap().is_none());
        assert!(clustered_index(Value::Bool(true)).is_err());
        let listed = clustered_index(Value::Document(
            doc! { "key": id(), "unique": 1, "name": "x" }.as_doc(),
        ));
        let wanted = doc! { "v": 2, "key": id(), "name": "x", "unique": true };
        assert_eq!(listed.unwrap(), Some(wanted));
    }

    #[test]
    fn time_series_options() {
        let parse = |d: DocBuf| time_series(d.as_doc());
        assert_eq!(
            parse(doc! { "timeField": "t", "metaField": "m" }).unwrap(),
            doc! { "timeField": "t", "metaField": "m", "granularity": "seconds",
            "bucketMaxSpanSeconds": 3600 }
        );
        let code = |d: DocBuf| time_series(d.as_doc()).map_or_else(|e| e.code().0, |_| 0);
        assert_eq!(code(doc! { "timeField": "a.b" }), 72);
        assert_eq!(code(doc! { "timeField": "t", "metaField": "t" }), 72);
        assert_eq!(code(doc! { "timeField": "t", "granularity": "days" }), 2);
        assert_eq!(
            code(doc! { "timeField": "t", "bucketMaxSpanSeconds": 300 }),
            72
        );
        let old = parse(doc! { "timeField": "t", "granularity": "minutes" }).unwrap();
        let change = |d: DocBuf| change_time_series(d.as_doc(), old.as_doc());
        assert!(change(doc! { "granularity": "hours" }).is_ok());
        assert!(change(doc! { "granularity": "seconds" }).is_err());
        assert!(change(doc! { "timeField": "x" }).is_err());
    }
}
