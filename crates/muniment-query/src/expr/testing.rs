//! Helpers for table tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::arena::Arena;
use super::{EvalContext, Expr};
use crate::context::QueryContext;
use crate::running::Work;
use muniment_value::{ArrayBuf, Doc, DocBuf, Value, ValueBuf};

/// Converts plain JSON with single quotes to BSON. Whole numbers become int32 (or int64 if they are too
/// large). Extended JSON is not read, so that `{'$type': 2}` stays an operator. These arrays stand for
/// values that JSON does not have:
///
/// | array | value |
/// |---|---|
/// | `['$long', 5]`, `['$dec', '1.5']`, `['$NaN']`, `['$inf']` | an int64, a decimal, doubles |
/// | `['$date', ms]`, `['$ts', seconds]` | a date, a timestamp (with the increment 1) |
/// | `['$oid', n]` | an ObjectId whose last byte is `n` |
/// | `['$bin', 1, 2]`, `['$binOf', 5, 1, 2]` | the bytes 1, 2 with the subtype 0 or 5 |
/// | `['$re', 'pattern', 'i']` | a regular expression |
/// | `['$undefined']`, `['$minKey']`, `['$maxKey']` | these values |
///
/// Expressions are written in the same way, so no field of a test's document may be called `bin`,
/// `date` and so on: `['$bin', '$x']` would be no list of two fields.
pub(crate) fn json(text: &str) -> DocBuf {
    let v: serde_json::Value =
        serde_json::from_str(&text.replace('\'', "\"")).unwrap_or_else(|e| panic!("{e} in {text}"));
    let v = convert(&v);
    DocBuf::from_doc(
        v.as_value()
            .as_doc()
            .unwrap_or_else(|| panic!("no document: {text}")),
    )
}

/// As [`json`], for any value.
pub(crate) fn value(text: &str) -> ValueBuf {
    let d = json(&format!("{{'v': {text}}}"));
    ValueBuf::new(d.as_doc().get("v").unwrap())
}

fn convert(v: &serde_json::Value) -> ValueBuf {
    use serde_json::Value as J;
    match v {
        J::Null => ValueBuf::new(Value::Null),
        J::Bool(b) => ValueBuf::new(*b),
        J::Number(n) => match n.as_i64() {
            Some(i) => match i32::try_from(i) {
                Ok(i) => ValueBuf::new(i),
                Err(_) => ValueBuf::new(i),
            },
            None => ValueBuf::new(n.as_f64().unwrap()),
        },
        J::String(s) => ValueBuf::new(s.as_str()),
        J::Array(items) => {
            let first = items.first().and_then(|f| f.as_str()).unwrap_or("");
            let n = || items[1].as_i64().unwrap();
            match first {
                "$long" => return ValueBuf::new(n()),
                "$date" => return ValueBuf::new(Value::DateTime(n())),
                "$dec" => {
                    let d = muniment_value::decimal::Decimal::parse(items[1].as_str().unwrap());
                    return ValueBuf::new(Value::Decimal128(d.unwrap().to_bid()));
                }
                "$ts" => {
                    return ValueBuf::new(Value::Timestamp {
                        t: n() as u32,
                        i: 1,
                    });
                }
                "$undefined" => return ValueBuf::new(Value::Undefined),
                "$minKey" => return ValueBuf::new(Value::MinKey),
                "$maxKey" => return ValueBuf::new(Value::MaxKey),
                "$NaN" => return ValueBuf::new(f64::NAN),
                "$inf" => return ValueBuf::new(f64::INFINITY),
                "$oid" => {
                    let mut id = [0; 12];
                    id[11] = n() as u8;
                    return ValueBuf::new(Value::ObjectId(id));
                }
                "$bin" => return binary(0, &items[1..]),
                "$binOf" => return binary(n() as u8, &items[2..]),
                "$re" => {
                    return ValueBuf::new(Value::Regex {
                        pattern: items[1].as_str().unwrap(),
                        options: items.get(2).and_then(|o| o.as_str()).unwrap_or(""),
                    });
                }
                _ => {}
            }
            let mut a = ArrayBuf::new();
            for i in items {
                a.push(convert(i));
            }
            ValueBuf::new(Value::Array(a.as_doc()))
        }
        J::Object(fields) => {
            let mut d = DocBuf::new();
            for (k, v) in fields {
                d.append(k, convert(v));
            }
            ValueBuf::new(d)
        }
    }
}

fn binary(subtype: u8, items: &[serde_json::Value]) -> ValueBuf {
    let bytes: Vec<u8> = items.iter().map(|b| b.as_i64().unwrap() as u8).collect();
    ValueBuf::new(Value::Binary {
        subtype,
        bytes: &bytes,
    })
}

/// The expected result of an expression.
#[derive(Debug)]
pub(crate) enum Want {
    /// This value, with exactly this type.
    Value(&'static str),
    /// Missing.
    Missing,
    /// An error with this code, from parsing or evaluation.
    Error(i32),
    /// An error with this code and these words.
    ErrorText(i32, &'static str),
}
pub(crate) use Want::{Error as Fails, ErrorText as Says, Missing, Value as Gives};

/// Parses and evaluates `expr` on `doc` twice: as it is written, and with every literal replaced by a field
/// that holds it. So constant folding and evaluation must agree.
pub(crate) fn check(doc: &str, expr: &str, want: &Want) {
    let ctx = QueryContext::new();
    let d = json(doc);
    let e = value(expr);
    let got = run(e.as_value(), d.as_doc(), &ctx);
    match (want, &got) {
        (Want::Value(w), Ok(Some(g))) => {
            let w = value(w);
            assert_eq!(&w, g, "{expr} on {doc}");
        }
        (Want::Missing, Ok(None)) => {}
        (Want::Error(code), Err(e)) => assert_eq!(e.code().0, *code, "{expr} on {doc}: {e:?}"),
        (Want::ErrorText(code, text), Err(e)) => {
            assert_eq!((e.code().0, e.message()), (*code, *text), "{expr} on {doc}");
        }
        _ => panic!("{expr:.200} on {doc:.200}: want {want:?}, got another kind of result"),
    }
}

fn run(e: Value<'_>, d: Doc<'_>, ctx: &QueryContext) -> muniment_value::Result<Option<ValueBuf>> {
    let e = Expr::parse(e, ctx)?;
    let arena = Arena::new(Work::unasked());
    Ok(e.eval(&EvalContext::new(d, &arena))?.map(ValueBuf::new))
}

/// Runs a table of (expression, expected result) on one document.
pub(crate) fn table(doc: &str, rows: &[(&str, Want)]) {
    for (expr, want) in rows {
        check(doc, expr, want);
    }
}
