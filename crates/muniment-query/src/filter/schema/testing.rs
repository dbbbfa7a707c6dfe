//! Helpers for the keywords' table tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::Schema;
use crate::expr::testing::json;
use muniment_value::Value;

/// Asserts that the schema accepts the first documents and refuses the second.
pub(super) fn valid(schema: &str, yes: &[&str], no: &[&str]) {
    let s = Schema::parse(json(schema).as_doc()).unwrap_or_else(|e| panic!("{schema}: {e:?}"));
    for (docs, want) in [(yes, true), (no, false)] {
        for d in docs {
            let doc = json(d);
            let v = Value::Document(doc.as_doc());
            assert_eq!(s.matches(v).unwrap(), want, "{schema} on {d}");
            assert_eq!(s.failures(v).unwrap().is_empty(), want, "{schema} on {d}");
        }
    }
}

/// Asserts that the schema does not parse.
pub(super) fn fails(schema: &str, code: i32, message: &str) {
    match Schema::parse(json(schema).as_doc()) {
        Ok(s) => panic!("{schema} parsed: {s:?}"),
        Err(e) => assert_eq!((e.code().0, e.message()), (code, message), "{schema}"),
    }
}

/// Asserts how the rules explain that a document is not valid.
pub(super) fn explains(schema: &str, document: &str, rules: &str) {
    let s = Schema::parse(json(schema).as_doc()).unwrap_or_else(|e| panic!("{schema}: {e:?}"));
    let document = json(document);
    let got = s.failures(Value::Document(document.as_doc())).unwrap();
    let want = json(&format!("{{'r': {rules}}}"));
    let want = want.as_doc().get("r").unwrap().to_display();
    assert_eq!(Value::Array(got.as_doc()).to_display(), want, "{schema}");
}
