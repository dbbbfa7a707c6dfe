#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::arbitrary;
use crate::doc;
use proptest::prelude::*;

fn collation(json: &str) -> Collation {
    let d = DocBuf::from_json(&json.replace('\'', "\"")).unwrap();
    Collation::parse(d.as_doc()).unwrap()
}

/// The texts in ascending order, with equal texts in groups. The order is checked through the comparison and
/// through the keys.
fn order(c: &Collation, texts: &[&str]) -> String {
    let mut sorted = texts.to_vec();
    sorted.sort_by(|a, b| c.cmp(Value::String(a), Value::String(b)));
    for a in texts {
        for b in texts {
            let (a, b) = (Value::String(a), Value::String(b));
            assert_eq!(
                c.encoded(a).cmp(&c.encoded(b)),
                c.cmp(a, b),
                "{a:?} {b:?} {c:?}"
            );
            assert_eq!(
                keyenc::encoded(c.key_value(a).as_value()),
                c.encoded(a),
                "{a:?}"
            );
        }
    }
    let mut out = String::new();
    for (i, t) in sorted.iter().enumerate() {
        if i > 0 {
            let before = Value::String(sorted[i - 1]);
            out.push_str(match c.cmp(before, Value::String(t)) {
                Ordering::Equal => " = ",
                _ => " < ",
            });
        }
        out.push_str(t);
    }
    out
}

#[test]
fn table_of_options() {
    for (spec, texts, want) in [
        (
            "{'locale':'en','strength':1}",
            &["b", "a", "A", "á"][..],
            "a = A = á < b",
        ),
        (
            "{'locale':'en','strength':2}",
            &["á", "A", "a"],
            "A = a < á",
        ),
        ("{'locale':'en'}", &["á", "A", "a", "B"], "a < A < á < B"),
        (
            "{'locale':'en','caseFirst':'upper'}",
            &["a", "A", "b"],
            "A < a < b",
        ),
        (
            "{'locale':'en','strength':1,'caseLevel':true}",
            &["á", "A", "a"],
            "á = a < A",
        ),
        (
            "{'locale':'en','numericOrdering':true}",
            &["10", "9", "a1"],
            "9 < 10 < a1",
        ),
        ("{'locale':'en'}", &["10", "9"], "10 < 9"),
        (
            "{'locale':'en','alternate':'shifted'}",
            &["a-b", "ab", "a b", "a.b"],
            "a-b = ab = a b = a.b",
        ),
        (
            "{'locale':'en','alternate':'shifted','maxVariable':'space'}",
            &["ab", "a b", "a-b"],
            "a-b < ab = a b",
        ),
        (
            "{'locale':'en','alternate':'shifted','strength':4}",
            &["a-b", "ab", "a b"],
            "a b < a-b < ab",
        ),
        ("{'locale':'en'}", &["e\u{301}", "é"], "e\u{301} = é"),
        ("{'locale':'en','strength':5}", &["a\0b", "ab"], "a\0b < ab"),
        (
            "{'locale':'fr'}",
            &["cote", "côte", "coté", "côté"],
            "cote < coté < côte < côté",
        ),
        (
            "{'locale':'fr_CA'}",
            &["cote", "côte", "coté", "côté"],
            "cote < côte < coté < côté",
        ),
        (
            "{'locale':'fr_CA','backwards':false}",
            &["cote", "côte", "coté", "côté"],
            "cote < coté < côte < côté",
        ),
        // This locale has rules of its own, and `backwards` is set.
        (
            "{'locale':'es','backwards':true}",
            &["cote", "côte", "coté", "nz", "ñ", "o"],
            "cote < côte < coté < nz < ñ < o",
        ),
        ("{'locale':'sv'}", &["z", "å", "ä", "a"], "a < z < å < ä"),
        ("{'locale':'de'}", &["ad", "ä", "ae"], "ä < ad < ae"),
        (
            "{'locale':'de@collation=phonebook'}",
            &["ad", "äd", "ae", "af"],
            "ad < ae < äd < af",
        ),
        (
            "{'locale':'tr','strength':1}",
            &["i", "I", "İ", "ı"],
            "I = ı < i = İ",
        ),
        ("{'locale':'zh'}", &["一", "丁", "七"], "丁 < 七 < 一"),
        ("{'locale':'ja'}", &["あ", "ア", "い"], "あ = ア < い"),
        (
            "{'locale':'en_US_POSIX','strength':1}",
            &["a", "B", "b", "A"],
            "A < B < a < b",
        ),
        (
            "{'locale':'simple','strength':1}",
            &["a", "B", "b", "A"],
            "A < B < a < b",
        ),
    ] {
        assert_eq!(order(&collation(spec), texts), want, "{spec}");
    }
}

#[test]
fn only_texts_collate() {
    let c = collation("{'locale':'en','strength':1}");
    let (a, b) = (
        doc! { "a": doc! { "b": "x" } },
        doc! { "a": doc! { "b": "X" } },
    );
    let name = doc! { "A": doc! { "b": "x" } };
    let v = |d: &DocBuf| ValueBuf::new(Value::Document(d.as_doc()));
    assert!(c.equal(v(&a).as_value(), v(&b).as_value()));
    assert!(!c.equal(v(&a).as_value(), v(&name).as_value()));
    assert_eq!(c.encoded(v(&a).as_value()), c.encoded(v(&b).as_value()));
    assert!(!c.equal(Value::Code("x"), Value::Code("X")));
    assert!(c.equal(Value::Int32(1), Value::Double(1.0)));
    assert!(has_text(v(&a).as_value()));
    assert!(!has_text(Value::Int32(1)));
}

#[test]
fn made_once_and_equal_by_meaning() {
    let (a, b) = (
        collation("{'locale':'en','strength':2}"),
        collation("{'strength':{'$numberLong':'2'},'locale':'en'}"),
    );
    assert_eq!(a, b);
    assert!(Arc::ptr_eq(a.0.as_ref().unwrap(), b.0.as_ref().unwrap()));
    assert_ne!(a, collation("{'locale':'en'}"));
    assert_ne!(a, Collation::SIMPLE);
    // The collation's own document means the same.
    assert_eq!(Collation::parse(a.to_doc().as_doc()).unwrap(), a);
    assert!(
        Collation::parse(Collation::SIMPLE.to_doc().as_doc())
            .unwrap()
            .is_simple()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Keys have the order of the comparison, and keys encode exactly the key values.
    #[test]
    fn keys_and_comparison_agree(
        a in arbitrary::value(),
        b in arbitrary::value(),
        texts in ("[aAáÁbB ß1-9-]{0,6}", "[aAáÁbB ß1-9-]{0,6}"),
        any in (".{0,8}", ".{0,8}"),
        which in 0..SPECS.len(),
    ) {
        let c = collation(SPECS[which]);
        let check = |a: Value<'_>, b: Value<'_>| {
            let (ka, kb) = (c.encoded(a), c.encoded(b));
            assert_eq!(ka.cmp(&kb), c.cmp(a, b), "{:?} {:?} {}", a, b, SPECS[which]);
            assert_eq!(&keyenc::encoded(c.key_value(a).as_value()), &ka);
            assert_eq!(keyenc::skip(&ka, false).unwrap(), ka.len());
        };
        check(a.as_value(), b.as_value());
        check(Value::String(&texts.0), Value::String(&texts.1));
        check(Value::String(&any.0), Value::String(&any.1));
    }
}

const SPECS: &[&str] = &[
    "{'locale':'en','strength':1}",
    "{'locale':'en','strength':2}",
    "{'locale':'en'}",
    "{'locale':'en','strength':5}",
    "{'locale':'en','strength':1,'caseLevel':true}",
    "{'locale':'en','caseFirst':'upper','strength':3}",
    "{'locale':'en','alternate':'shifted','strength':4}",
    "{'locale':'en','numericOrdering':true}",
    "{'locale':'fr_CA'}",
    "{'locale':'es','backwards':true}",
    "{'locale':'ja','strength':4}",
    "{'locale':'zh'}",
];
