//! Conversion of JavaScript to BSON.
//!
//! Numbers become doubles, as in MongoDB, except for fields that were int32 before and are still whole.

use crate::to_js::Helpers;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muniment_value::decimal::Decimal;
use muniment_value::{ArrayBuf, Code, DocBuf, Error, Value, ValueBuf};
use rquickjs::object::Filter;
use rquickjs::{Array, Object, Type, Value as Js};
use std::collections::HashMap;

/// The deepest nesting of a value. A deeper one is taken for a cycle.
const MAX_DEPTH: usize = 150;

/// The largest value, in bytes.
const MAX_BYTES: usize = 64 << 20;

fn failed(message: impl Into<String>) -> Error {
    Error::new(Code::JSInterpreterFailure, message)
}

fn engine(e: rquickjs::Error) -> Error {
    failed(e.to_string())
}

fn text(v: &Js<'_>) -> Result<String, Error> {
    v.as_string()
        .and_then(|s| s.to_string().ok())
        .ok_or_else(|| failed("a string is not valid UTF-8"))
}

/// Converts values, and counts their bytes.
pub(crate) struct FromJs<'h, 'js> {
    helpers: &'h Helpers<'js>,
    bytes: usize,
}

impl<'h, 'js> FromJs<'h, 'js> {
    pub(crate) fn new(helpers: &'h Helpers<'js>) -> FromJs<'h, 'js> {
        FromJs { helpers, bytes: 0 }
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes;
        if self.bytes > MAX_BYTES {
            return Err(Error::new(
                Code::BSONObjectTooLarge,
                format!("a function's result exceeds {MAX_BYTES} bytes"),
            ));
        }
        Ok(())
    }

    /// Converts a value, which is nested in `depth` others.
    ///
    /// # Errors
    /// 139 JSInterpreterFailure, 17279 for a value that nests too deeply.
    pub(crate) fn value(&mut self, v: &Js<'js>, depth: usize) -> Result<ValueBuf, Error> {
        if depth > MAX_DEPTH {
            return Err(Error::location(
                17279,
                format!(
                    "Exceeded depth limit of {MAX_DEPTH} when converting js object to BSON. Do you have a cycle?"
                ),
            ));
        }
        self.grow(16)?;
        Ok(match v.type_of() {
            Type::Undefined | Type::Uninitialized => ValueBuf::new(Value::Undefined),
            Type::Null => ValueBuf::new(Value::Null),
            Type::Bool => ValueBuf::new(v.as_bool().unwrap_or_default()),
            Type::Int | Type::Float => ValueBuf::new(v.as_number().unwrap_or(f64::NAN)),
            Type::BigInt => {
                let n = v.as_big_int().cloned().map(rquickjs::BigInt::to_i64);
                ValueBuf::new(n.and_then(Result::ok).unwrap_or_default())
            }
            Type::String => {
                let s = text(v)?;
                self.grow(s.len())?;
                ValueBuf::new(s.as_str())
            }
            Type::Symbol => return Err(failed("a Symbol has no BSON type")),
            _ => match (v.as_array(), v.as_object()) {
                (Some(a), _) => self.array(a, depth)?,
                (None, Some(o)) if o.is_function() => {
                    if let Some(kind) = self.kind(o)? {
                        return special(&kind);
                    }
                    let to_string: rquickjs::Function<'js> = o.get("toString").map_err(engine)?;
                    let source: String = to_string
                        .call((rquickjs::function::This(o.clone()),))
                        .map_err(engine)?;
                    self.grow(source.len())?;
                    ValueBuf::new(Value::Code(&source))
                }
                (None, Some(o)) => self.object(o, depth)?,
                _ => return Err(failed("a value has no BSON type")),
            },
        })
    }

    /// The tag and the parts of an object that is not plain, or the order of the fields of a plain one.
    fn kind(&self, o: &Object<'js>) -> Result<Option<Vec<String>>, Error> {
        self.helpers.kind.call((o.clone(),)).map_err(engine)
    }

    fn array(&mut self, a: &Array<'js>, depth: usize) -> Result<ValueBuf, Error> {
        let mut out = ArrayBuf::new();
        for item in a.iter::<Js<'js>>() {
            out.push(self.value(&item.map_err(engine)?, depth + 1)?);
        }
        Ok(ValueBuf::new(Value::Array(out.as_doc())))
    }

    fn object(&mut self, o: &Object<'js>, depth: usize) -> Result<ValueBuf, Error> {
        let first = match self.kind(o)? {
            Some(kind) if kind.first().is_some_and(|k| k == "order") => kind,
            Some(kind) => return special(&kind),
            None => Vec::new(),
        };
        let mut out = DocBuf::new();
        let mut fields = Vec::new();
        for entry in o.own_props::<String, Js<'js>>(Filter::new().string().enum_only()) {
            fields.push(entry.map_err(engine)?);
        }
        if !first.is_empty() {
            // Fields keep the order in which they came; new ones come after them.
            let names = first.iter().skip(1).enumerate();
            let places: HashMap<&str, usize> = names.map(|(i, n)| (n.as_str(), i)).collect();
            let place = |name: &str| places.get(name).copied().unwrap_or(usize::MAX);
            fields.sort_by_key(|(name, _)| place(name));
        }
        for (name, v) in fields {
            if name.contains('\0') {
                return Err(failed("a field's name contains a null byte"));
            }
            self.grow(name.len() + 2)?;
            let was_int = |n: f64| {
                n.fract() == 0.0
                    && n.abs() < 2_147_483_648.0
                    && self
                        .helpers
                        .was_int
                        .call::<_, bool>((o.clone(), name.as_str()))
                        .unwrap_or_default()
            };
            match v.as_number() {
                Some(n) if was_int(n) => out.append(&name, n as i32),
                _ => {
                    let v = self.value(&v, depth + 1)?;
                    out.append(&name, v)
                }
            };
        }
        Ok(ValueBuf::new(out))
    }
}

/// A value of a type that JavaScript does not have, from its tag and parts.
fn special(kind: &[String]) -> Result<ValueBuf, Error> {
    let part = |i: usize| kind.get(i).map_or("", String::as_str);
    let id = || -> Option<[u8; 12]> {
        let hex = kind.last()?;
        let mut id = [0; 12];
        for (i, b) in id.iter_mut().enumerate() {
            *b = u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()?;
        }
        Some(id)
    };
    let bad = || failed(format!("a {} cannot be converted", part(0)));
    Ok(match part(0) {
        "long" => ValueBuf::new(part(1).parse::<i64>().map_err(|_| bad())?),
        "int" => ValueBuf::new(part(1).parse::<i32>().map_err(|_| bad())?),
        "num" => ValueBuf::new(part(1).parse::<f64>().map_err(|_| bad())?),
        "str" => ValueBuf::new(part(1)),
        "bool" => ValueBuf::new(part(1) == "true"),
        "dec" => {
            let d = Decimal::parse(part(1)).ok_or_else(bad)?;
            ValueBuf::new(Value::Decimal128(d.to_bid()))
        }
        "oid" => ValueBuf::new(Value::ObjectId(id().ok_or_else(bad)?)),
        "date" => {
            // An invalid date has the text NaN.
            let ms: f64 = part(1).parse().map_err(|_| bad())?;
            ValueBuf::new(Value::DateTime(ms as i64))
        }
        "ts" => ValueBuf::new(Value::Timestamp {
            t: part(1).parse().map_err(|_| bad())?,
            i: part(2).parse().map_err(|_| bad())?,
        }),
        "bin" => ValueBuf::new(Value::Binary {
            subtype: part(1).parse().map_err(|_| bad())?,
            bytes: &STANDARD.decode(part(2)).map_err(|_| bad())?,
        }),
        "re" => ValueBuf::new(Value::Regex {
            pattern: part(1),
            options: part(2),
        }),
        "code" => ValueBuf::new(Value::Code(part(1))),
        "ptr" => ValueBuf::new(Value::DbPointer {
            namespace: part(1),
            id: id().ok_or_else(bad)?,
        }),
        "MinKey" => ValueBuf::new(Value::MinKey),
        "MaxKey" => ValueBuf::new(Value::MaxKey),
        _ => return Err(bad()),
    })
}
