//! The common helpers of the operators' table tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::Update;
use crate::context::{MatchInfo, QueryContext};
use crate::filter::Filter;
use crate::running::Work;
use muniment_value::{Doc, DocBuf, Result, Value, doc};

/// Parses loose JSON, in which names need no quotes and quotes may be single.
pub(crate) fn json(text: &str) -> DocBuf {
    let mut strict = String::new();
    let mut chars = text.chars().peekable();
    let mut quoted = None;
    while let Some(c) = chars.next() {
        match (quoted, c) {
            (None, '\'' | '"') => {
                quoted = Some(c);
                strict.push('"');
            }
            (Some(q), c) if c == q => {
                quoted = None;
                strict.push('"');
            }
            (None, c) if c.is_ascii_alphabetic() || c == '_' || c == '$' => {
                let mut word = String::from(c);
                while let Some(&n) = chars.peek() {
                    if !(n.is_ascii_alphanumeric() || n == '_' || n == '$') {
                        break;
                    }
                    word.push(n);
                    chars.next();
                }
                if matches!(word.as_str(), "true" | "false" | "null") {
                    strict.push_str(&word);
                } else {
                    strict.push_str(&format!("\"{word}\""));
                }
            }
            (_, c) => strict.push(c),
        }
    }
    DocBuf::from_json(&strict).unwrap_or_else(|e| panic!("{strict}: {e}"))
}

/// Parses loose JSON of an array.
pub(crate) fn json_array(text: &str) -> DocBuf {
    let d = json(&format!("{{v:{text}}}"));
    d.as_doc().get_array("v").unwrap().to_buf()
}

/// Parses an update (a document, or an array for a pipeline).
pub(crate) fn parse(u: &str, filters: &str) -> Result<Update> {
    let ctx = QueryContext::new();
    let filters = json_array(filters);
    if u.starts_with('[') {
        let u = json_array(u);
        Update::parse(Value::Array(u.as_doc()), filters.as_doc(), &ctx)
    } else {
        let u = json(u);
        Update::parse(Value::Document(u.as_doc()), filters.as_doc(), &ctx)
    }
}

/// Applies `u` to `d`; `None` if nothing changes.
pub(crate) fn apply(d: &str, u: &str) -> Result<Option<DocBuf>> {
    apply_with(d, u, None, "[]")
}

fn apply_with(d: &str, u: &str, index: Option<usize>, filters: &str) -> Result<Option<DocBuf>> {
    let update = parse(u, filters)?;
    let d = json(d);
    let mut out = b"before".to_vec();
    let info = MatchInfo { array_index: index };
    let changed = update.apply(d.as_doc(), info, &mut out, Work::unasked())?;
    assert!(out.starts_with(b"before"));
    let new = out.get(6..).unwrap().to_vec();
    Ok(changed.then(|| DocBuf::from_bytes_trusted(new)))
}

fn check(context: &str, got: Result<Option<DocBuf>>, want: &str) {
    match got {
        Err(e) => assert_eq!(
            format!("{}: {}", e.code().0, e.message()),
            want,
            "{context}"
        ),
        Ok(None) => assert_eq!("=", want, "{context}"),
        Ok(Some(d)) => {
            muniment_value::validate(d.as_bytes()).unwrap();
            if want == "=" || !want.starts_with('{') {
                panic!("{context}: got {:?}, want {want}", d);
            }
            assert!(
                d.as_bytes() == json(want).as_bytes(),
                "{context}: got {:?}, want {want}",
                d
            );
        }
    }
}

/// Runs rows of document, update, and expected result: a document, `=` for no change, or `code: message`.
pub(crate) fn table(rows: &[(&str, &str, &str)]) {
    for (d, u, want) in rows {
        check(&format!("{d} {u}"), apply(d, u), want);
    }
}

/// As [`table`], with the index of the matched array element and array filters.
pub(crate) fn table_with(index: usize, filters: &str, rows: &[(&str, &str, &str)]) {
    for (d, u, want) in rows {
        check(
            &format!("{d} {u}"),
            apply_with(d, u, Some(index), filters),
            want,
        );
    }
}

/// Runs rows of filter, update, and the document that an upsert inserts.
pub(crate) fn upserts(rows: &[(&str, &str, &str)]) {
    for (f, u, want) in rows {
        let run = || {
            let f = json(f);
            let filter = Filter::parse(f.as_doc(), &QueryContext::new())?;
            let mut out = Vec::new();
            parse(u, "[]")?.upsert(&filter, &mut out, Work::unasked())?;
            Ok(Some(DocBuf::from_bytes_trusted(out)))
        };
        check(&format!("{f} {u}"), run(), want);
    }
}

#[test]
fn loose_json_is_read() {
    let d = json("{a:1,'b.c':[true,null],$x:'y'}");
    assert_eq!(d, {
        let mut want = doc! { "a": 1 };
        want.append("b.c", muniment_value::array![true, Value::Null]);
        want.append("$x", "y");
        want
    });
    assert_eq!(Doc::EMPTY.as_bytes(), json("{}").as_bytes());
}
