//! Helpers for table tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{EvalContext, Expr};
use crate::context::QueryContext;
use bumpalo::Bump;
use muniment_value::{ArrayBuf, Doc, DocBuf, Value, ValueBuf};

/// Converts plain JSON with single quotes to BSON. Whole numbers become int32 (or int64 if they are too
/// large). Extended JSON is not read, so that `{'$type': 2}` stays an operator. Values that JSON does not
/// have are written `['$long', 5]`, `['$date', 5]`, `['$undefined']`, `['$minKey']`, `['$maxKey']`, `['$re',
/// 'p', 'i']`, `['$NaN']`, `['$oid', n]`.
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
                "$bin" => {
                    let bytes: Vec<u8> = items[1..]
                        .iter()
                        .map(|b| b.as_i64().unwrap() as u8)
                        .collect();
                    return ValueBuf::new(Value::Binary {
                        subtype: 0,
                        bytes: &bytes,
                    });
                }
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

/// The expected result of an expression.
#[derive(Debug)]
pub(crate) enum Want {
    /// This value, with exactly this type.
    Value(&'static str),
    /// Missing.
    Missing,
    /// An error with this code, from parsing or evaluation.
    Error(i32),
}
pub(crate) use Want::{Error as Fails, Missing, Value as Gives};

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
        _ => panic!("{expr:.200} on {doc:.200}: want {want:?}, got another kind of result"),
    }
}

fn run(e: Value<'_>, d: Doc<'_>, ctx: &QueryContext) -> muniment_value::Result<Option<ValueBuf>> {
    let e = Expr::parse(e, ctx)?;
    let arena = Bump::new();
    Ok(e.eval(&EvalContext::new(d, &arena))?.map(ValueBuf::new))
}

/// Runs a table of (expression, expected result) on one document.
pub(crate) fn table(doc: &str, rows: &[(&str, Want)]) {
    for (expr, want) in rows {
        check(doc, expr, want);
    }
}
