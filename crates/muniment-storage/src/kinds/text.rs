//! text: the terms of a document's strings with their scores.
//!
//! A document has a key for each of its terms: the plain fields before the text, then the term. Entries
//! of one term are in the order of their records, so that several terms are merged while they are read.
//! The score follows the type bits of the entry, and a change of the score alone rewrites the entry in
//! place. Plain fields after the text are checked but not stored, because no reader needs them before
//! the document. A unique index compares scores and the fields after the text as well, as MongoDB does.
//! There they are part of the key, and a term's entries are in their order.

use super::{IndexKind, KindSpec, TextIndex, set_option};
use crate::catalog::IndexSpec;
use crate::keys::KeyRange;
use muniment_query::filter::Pred;
use muniment_query::running::Work;
use muniment_query::text::{Language, TextSpec};
use muniment_value::keyenc::encode;
use muniment_value::path::{Path, array_index};
use muniment_value::{Code, Doc, DocBuf, Error, IndexKeys, Result, Value, ValueBuf};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const WEIGHTS: &str = "weights";
pub(super) const LANGUAGE: &str = "default_language";
pub(super) const OVERRIDE: &str = "language_override";
const VERSION: &str = "textIndexVersion";

/// The names that stand for the text fields in the key pattern.
const FTS: &str = "_fts";
const FTSX: &str = "_ftsx";

/// Weights are below this: MongoDB's limit.
const MAX_WEIGHT: i32 = 100_000;

/// The most terms of a document: MongoDB's limit.
const MAX_TERMS: usize = 400_000;

/// A longer term is cut, and a hash tells it apart from others with the same beginning. The lengths are
/// MongoDB's.
const LONG_TERM: usize = 256;
const KEPT_OF_LONG_TERM: usize = 224;

/// Bytes of a score after the type bits.
const SCORE: usize = 8;

/// The specification.
pub(super) const SPEC: KindSpec = KindSpec {
    name: "text",
    doc: "The words of strings, for $text.",
    options: &[LANGUAGE, OVERRIDE, VERSION, WEIGHTS],
    prepare,
    open,
};

fn cannot(what: impl Into<String>) -> Error {
    Error::new(Code::CannotCreateIndex, what)
}

fn is_text(v: Value<'_>) -> bool {
    v.as_str() == Some(SPEC.name)
}

/// The value of an option that must be a string; `default` if it is not given.
pub(super) fn string_option(spec: &IndexSpec, name: &str, default: &str) -> Result<String> {
    match spec.options.as_doc().get(name) {
        None => Ok(default.to_string()),
        Some(Value::String(s)) => Ok(s.to_string()),
        Some(v) => Err(Error::type_mismatch(format!(
            "The field '{name}' must be a string, but got {}",
            v.type_name()
        ))),
    }
}

/// Refuses `weights` on an index that is not a text index.
///
/// # Errors
/// 67 CannotCreateIndex.
pub(super) fn refuse_weights(spec: &IndexSpec) -> Result<()> {
    match spec.options.as_doc().get(WEIGHTS) {
        Some(_) => Err(cannot(
            "the field 'weights' can only be specified with text indexes",
        )),
        None => Ok(()),
    }
}

fn prepare(spec: &mut IndexSpec) -> Result<()> {
    super::refuse_collation(spec, SPEC.name)?;
    let mut weights = BTreeMap::new();
    spec.key = prepare_key(spec.key.as_doc(), &mut weights)?;
    add_weights(spec, &mut weights)?;
    for (path, weight) in &weights {
        check_weight(path, *weight)?;
    }
    if weights.is_empty() {
        return Err(cannot(
            "text index option 'weights' must name a field when the key pattern names none",
        ));
    }
    let language = string_option(spec, LANGUAGE, "english")?;
    if Language::find(&language).is_none() {
        return Err(cannot("default_language is not valid"));
    }
    let field = string_option(spec, OVERRIDE, "language")?;
    if field.is_empty() || field.starts_with('$') || field.contains('.') {
        return Err(cannot("language_override is not valid"));
    }
    check_version(super::number_option(spec, VERSION)?)?;
    let mut shown = DocBuf::new();
    for (path, weight) in &weights {
        shown.append(path, *weight);
    }
    set_option(spec, WEIGHTS, shown);
    set_option(spec, LANGUAGE, language.as_str());
    set_option(spec, OVERRIDE, field.as_str());
    set_option(spec, VERSION, 3);
    Ok(())
}

/// The key pattern as it is stored, `{…, _fts: "text", _ftsx: 1, …}`. Adds the text fields to `weights`.
fn prepare_key(key: Doc<'_>, weights: &mut BTreeMap<String, i32>) -> Result<DocBuf> {
    let mut out = DocBuf::new();
    // Whether the text fields have begun, and whether they have ended.
    let (mut begun, mut ended) = (false, false);
    for e in key {
        match e.name() {
            FTS if !is_text(e.value()) => return Err(cannot("expecting _fts:\"text\"")),
            FTSX if !begun || e.value().as_i64_exact() != Some(1) => {
                return Err(cannot("expecting _ftsx:1"));
            }
            FTSX => continue,
            name if is_text(e.value()) => {
                if ended {
                    return Err(cannot(
                        "'text' fields in index must all be adjacent: expected text index key to \
                         have no other fields between them",
                    ));
                }
                if !begun {
                    out.append(FTS, SPEC.name);
                    out.append(FTSX, 1);
                }
                begun = true;
                if name != FTS {
                    weights.insert(name.to_string(), 1);
                }
            }
            name => {
                if !matches!(e.value().as_i64_exact(), Some(1 | -1)) {
                    return Err(cannot(
                        "expected value 1 or -1 for non-text key in compound index",
                    ));
                }
                ended = begun;
                out.append(name, e.value());
            }
        }
    }
    Ok(out)
}

fn add_weights(spec: &IndexSpec, weights: &mut BTreeMap<String, i32>) -> Result<()> {
    match spec.options.as_doc().get(WEIGHTS) {
        None => {}
        Some(Value::String("$**")) => {
            weights.insert("$**".into(), 1);
        }
        Some(Value::Document(d)) => {
            for e in d {
                let v = e.value();
                if !v.is_number() {
                    return Err(cannot("weight for text index needs numeric type"));
                }
                let weight = match v {
                    Value::Double(n) => n as i32,
                    v => v
                        .as_i64_exact()
                        .and_then(|n| i32::try_from(n).ok())
                        .unwrap_or(MAX_WEIGHT),
                };
                weights.insert(e.name().to_string(), weight);
            }
        }
        Some(Value::String(_) | Value::Array(_)) => {
            return Err(cannot("text index option 'weights' must be an object"));
        }
        Some(v) => {
            return Err(Error::type_mismatch(format!(
                "The field 'weights' must be an object, but got {}",
                v.type_name()
            )));
        }
    }
    Ok(())
}

fn check_weight(path: &str, weight: i32) -> Result<()> {
    if weight <= 0 || weight >= MAX_WEIGHT {
        return Err(cannot(format!(
            "text index weight must be in the exclusive interval (0,{MAX_WEIGHT}) but found: \
             {weight}"
        )));
    }
    if path == "$**" {
        return Ok(());
    }
    if path.is_empty() {
        return Err(cannot("weight cannot be on an empty field"));
    }
    for part in path.split('.') {
        if part.is_empty() {
            return Err(cannot("weight cannot have empty path component"));
        }
        if part.starts_with('$') {
            return Err(cannot("weight cannot have path component with $ prefix"));
        }
    }
    Ok(())
}

fn check_version(given: Option<Value<'_>>) -> Result<()> {
    let version = match given {
        None => Some(3),
        Some(Value::Decimal128(_)) => None,
        Some(v) => v.as_i64_exact(),
    };
    match version {
        Some(3) => Ok(()),
        // These versions split texts into other words; only indexes of very old servers have them.
        Some(v @ (1 | 2)) => Err(cannot(format!(
            "text index version {v} is not supported, only version 3 is"
        ))),
        _ => Err(cannot(format!(
            "bad textIndexVersion: {}",
            given.map_or_else(String::new, |v| v.to_display())
        ))),
    }
}

fn open(spec: &IndexSpec) -> Result<Arc<dyn IndexKind>> {
    let options = spec.options.as_doc();
    let weights = options.get_doc(WEIGHTS).unwrap_or(Doc::EMPTY);
    let weights = weights.iter().map(|e| {
        let weight = e.value().as_i64_exact().unwrap_or(1);
        (e.name().to_string(), weight as f64)
    });
    let language = options.get_str(LANGUAGE).and_then(Language::find);
    let text = TextSpec::new(
        weights,
        language.unwrap_or_else(Language::english),
        options.get_str(OVERRIDE).unwrap_or("language").to_string(),
    );
    let mut plain = [Vec::new(), Vec::new()];
    let mut behind = 0;
    for e in spec.key.as_doc() {
        match e.name() {
            FTS | FTSX => behind = 1,
            name => {
                let field = (Path::new(name), crate::index::descending(e.value()));
                if let Some(list) = plain.get_mut(behind) {
                    list.push(field);
                }
            }
        }
    }
    let [before, after] = plain;
    Ok(Arc::new(Text {
        spec: Arc::new(text),
        before,
        after,
        unique: spec.unique,
    }))
}

#[derive(Debug)]
struct Text {
    spec: Arc<TextSpec>,
    /// The plain fields before the text, with true for descending.
    before: Vec<(Path, bool)>,
    /// The plain fields after the text.
    after: Vec<(Path, bool)>,
    unique: bool,
}

/// The value of a plain field: null if it is missing.
///
/// # Errors
/// 201 CannotBuildIndexKeys for an array on the path, unless the path names an element of it.
fn plain_value<'a>(doc: Doc<'a>, path: &Path) -> Result<Value<'a>> {
    let mut value = Value::Document(doc);
    let mut parts = path.parts().iter().peekable();
    while let Some(part) = parts.next() {
        let d = match value {
            Value::Document(d) | Value::Array(d) => d,
            _ => return Ok(Value::Null),
        };
        let names_one = parts.peek().is_some_and(|next| array_index(next).is_some());
        match d.get(part) {
            Some(Value::Array(_)) if !names_one => {
                return Err(Error::new(
                    Code::CannotBuildIndexKeys,
                    format!(
                        "Field '{}' of text index contains an array in document: {}",
                        path.as_str(),
                        Value::Document(doc).to_display()
                    ),
                ));
            }
            Some(v) => value = v,
            None => return Ok(Value::Null),
        }
    }
    Ok(value)
}

/// The term in the form that keys have.
fn key_term(term: &str) -> Cow<'_, str> {
    if term.len() <= LONG_TERM {
        return Cow::Borrowed(term);
    }
    let hash = xxhash_rust::xxh3::xxh3_128(term.as_bytes());
    let cut = (0..=KEPT_OF_LONG_TERM)
        .rev()
        .find(|&at| term.is_char_boundary(at));
    let kept = term.get(..cut.unwrap_or(0)).unwrap_or_default();
    Cow::Owned(format!("{kept}{hash:032x}"))
}

impl IndexKind for Text {
    fn name(&self) -> &'static str {
        SPEC.name
    }

    fn keys(&self, doc: Doc<'_>, out: &mut IndexKeys, _: Work<'_>) -> Result<()> {
        let fields = self.before.len() + 2 + self.after.len();
        out.begin(fields);
        let terms = self.spec.terms(doc)?;
        let values = |list: &[(Path, bool)]| {
            list.iter()
                .map(|(path, descending)| Ok((plain_value(doc, path)?, *descending)))
                .collect::<Result<Vec<_>>>()
        };
        let (before, after) = (values(&self.before)?, values(&self.after)?);
        if terms.len() > MAX_TERMS {
            return Err(Error::location(
                16732,
                format!(
                    "too many unique keys for a single document to have a text index, max = \
                     {MAX_TERMS}{}",
                    doc.get("_id")
                        .map_or_else(String::new, |id| id.to_display())
                ),
            ));
        }
        if terms.len() > 1 {
            out.mark_multikey(self.before.len(), 0);
        }
        for (term, score) in &terms {
            for (v, descending) in &before {
                out.push(*v, *descending);
            }
            out.push(Value::String(&key_term(term)), false);
            if self.unique {
                out.push(Value::Double(*score), false);
                for (v, descending) in &after {
                    out.push(*v, *descending);
                }
            }
            out.end_key_with(&score.to_le_bytes())?;
        }
        out.finish();
        Ok(())
    }

    fn transforms(&self, field: usize) -> bool {
        // The fields after the text are not in the keys.
        field >= self.before.len()
    }

    fn bounds(&self, _: usize, _: &Pred) -> Option<Vec<(ValueBuf, ValueBuf)>> {
        None
    }

    fn reads(&self, _: &[(Path, bool)], touched: &dyn Fn(&str) -> bool) -> bool {
        let mut plain = self.before.iter().chain(&self.after);
        plain.any(|(p, _)| touched(p.as_str())) || self.spec.depends_on(touched)
    }

    fn text(&self) -> Option<&dyn TextIndex> {
        Some(self)
    }
}

impl TextIndex for Text {
    fn spec(&self) -> &Arc<TextSpec> {
        &self.spec
    }

    fn before(&self) -> &[(Path, bool)] {
        &self.before
    }

    fn postings(&self, before: &[ValueBuf], term: &str) -> KeyRange {
        let mut key = Vec::new();
        for (v, (_, descending)) in before.iter().zip(&self.before) {
            encode(v.as_value(), *descending, &mut key);
        }
        encode(Value::String(&key_term(term)), false, &mut key);
        KeyRange::prefix(key)
    }

    fn score(&self, bits: &[u8]) -> f64 {
        let at = bits.len().saturating_sub(SCORE);
        let score = bits.get(at..).and_then(|b| b.try_into().ok());
        score.map_or(0.0, f64::from_le_bytes)
    }

    fn by_record(&self) -> bool {
        !self.unique
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn parse(spec: &str) -> Result<IndexSpec> {
        let d = DocBuf::from_json(&format!("{{\"name\": \"x\", {spec}}}")).unwrap();
        IndexSpec::parse(d.as_doc())
    }

    fn keys(kind: &dyn IndexKind, json: &str) -> Result<IndexKeys> {
        let mut out = IndexKeys::new();
        kind.keys(
            DocBuf::from_json(json).unwrap().as_doc(),
            &mut out,
            Work::unasked(),
        )?;
        Ok(out)
    }

    #[test]
    fn specifications_are_completed() {
        for (spec, key, weights) in [
            (
                r#""key": {"b": "text", "a": "text"}"#,
                r#"{"_fts": "text", "_ftsx": 1}"#,
                r#"{"a": 1, "b": 1}"#,
            ),
            (
                r#""key": {"p": 1, "a": "text", "s": -1}, "weights": {"a": 7, "c.d": 2.0}"#,
                r#"{"p": 1, "_fts": "text", "_ftsx": 1, "s": -1}"#,
                r#"{"a": 7, "c.d": 2}"#,
            ),
            (
                r#""key": {"$**": "text"}"#,
                r#"{"_fts": "text", "_ftsx": 1}"#,
                r#"{"$**": 1}"#,
            ),
        ] {
            let parsed = parse(spec).unwrap();
            assert_eq!(parsed.key, DocBuf::from_json(key).unwrap(), "{spec}");
            let d = parsed.document.as_doc();
            let shown = d.get_doc(WEIGHTS).unwrap().to_buf();
            assert_eq!(shown, DocBuf::from_json(weights).unwrap(), "{spec}");
            let names: Vec<&str> = d.iter().map(|e| e.name()).skip(3).collect();
            assert_eq!(names, [WEIGHTS, LANGUAGE, OVERRIDE, VERSION]);
            // The specification that listIndexes shows makes the same index.
            assert_eq!(IndexSpec::parse(d).unwrap(), parsed, "{spec}");
        }
    }

    #[test]
    fn specifications_are_checked() {
        let text = r#""key": {"a": "text"}"#;
        for (spec, code) in [
            (
                r#""key": {"a": "text", "b": 1, "c": "text"}"#.to_string(),
                67,
            ),
            (r#""key": {"a": "text", "b": 2}"#.to_string(), 67),
            (r#""key": {"a": "text", "b": "2dsphere"}"#.to_string(), 67),
            (r#""key": {"_fts": "text", "_ftsx": 1}"#.to_string(), 67),
            (r#""key": {"_ftsx": 1, "a": "text"}"#.to_string(), 67),
            (r#""key": {"_fts": 1, "a": "text"}"#.to_string(), 67),
            (format!(r#"{text}, "weights": {{"a": 0}}"#), 67),
            (format!(r#"{text}, "weights": {{"a": -1}}"#), 67),
            (format!(r#"{text}, "weights": {{"a": 100000}}"#), 67),
            (format!(r#"{text}, "weights": {{"a": "1"}}"#), 67),
            (format!(r#"{text}, "weights": {{"$a": 1}}"#), 67),
            (format!(r#"{text}, "weights": "x""#), 67),
            (format!(r#"{text}, "weights": 1"#), 14),
            (format!(r#"{text}, "default_language": "klingon""#), 67),
            (format!(r#"{text}, "default_language": 1"#), 14),
            (format!(r#"{text}, "language_override": """#), 67),
            (format!(r#"{text}, "language_override": "a.b""#), 67),
            (format!(r#"{text}, "language_override": 1"#), 14),
            (format!(r#"{text}, "textIndexVersion": 4"#), 67),
            (format!(r#"{text}, "textIndexVersion": 2"#), 67),
            (format!(r#"{text}, "textIndexVersion": "3""#), 14),
            (r#""key": {"a": 1}, "weights": {"a": 1}"#.to_string(), 67),
        ] {
            assert_eq!(parse(&spec).unwrap_err().code(), Code(code), "{spec}");
        }
        assert!(
            parse(&format!(
                r#"{text}, "weights": {{"a": 99999}}, "textIndexVersion": 3.0"#
            ))
            .is_ok()
        );
    }

    #[test]
    fn documents_have_a_key_for_each_term() {
        let kind = |spec| open(&parse(spec).unwrap()).unwrap();
        let one = kind(r#""key": {"a": "text"}"#);
        for (json, n) in [
            (r#"{"a": "the cat sat"}"#, 2),
            (r#"{"a": ["cat", "cats"]}"#, 1),
            (r#"{"a": 5}"#, 0),
            ("{}", 0),
        ] {
            assert_eq!(keys(&*one, json).unwrap().len(), n, "{json}");
        }
        assert!(keys(&*one, r#"{"a": "cat dog"}"#).unwrap().is_multikey());
        let all = keys(&*one, r#"{"a": "cat"}"#).unwrap();
        let (key, bits) = all.iter().next().unwrap();
        let text = one.text().unwrap();
        assert_eq!(KeyRange::prefix(key.to_vec()), text.postings(&[], "cat"));
        assert!((text.score(bits) - 1.1).abs() < 1e-12 && text.by_record());

        let two = kind(r#""key": {"p": -1, "a": "text", "s": 1}"#);
        let all = keys(&*two, r#"{"p": 7, "a": "cat", "s": 1}"#).unwrap();
        let range = two.text().unwrap().postings(&[ValueBuf::new(7)], "cat");
        assert_eq!(
            KeyRange::prefix(all.iter().next().unwrap().0.to_vec()),
            range
        );
        for json in [r#"{"p": [1], "a": "cat"}"#, r#"{"a": "cat", "s": []}"#] {
            let e = keys(&*two, json).err().unwrap();
            assert_eq!(e.code(), Code::CannotBuildIndexKeys, "{json}");
        }
        assert!(keys(&*one, r#"{"a": "x", "language": 1}"#).is_err());

        // In a unique index, keys with different scores or different fields after the text are
        // different.
        let unique = kind(r#""key": {"a": "text", "s": 1}, "unique": true"#);
        let key = |json| {
            keys(&*unique, json)
                .unwrap()
                .iter()
                .next()
                .unwrap()
                .0
                .to_vec()
        };
        assert_ne!(key(r#"{"a": "cat"}"#), key(r#"{"a": "cat cat"}"#));
        assert_ne!(key(r#"{"a": "cat"}"#), key(r#"{"a": "cat", "s": 1}"#));
        assert!(!unique.text().unwrap().by_record());
    }

    #[test]
    fn long_terms_are_cut_and_told_apart() {
        let long = |end: &str| format!("{}{end}", "é".repeat(200));
        assert_eq!(key_term("short"), "short");
        let (x, y) = (long("x"), long("y"));
        assert_eq!(key_term(&x).len(), LONG_TERM);
        assert_ne!(key_term(&x), key_term(&y));
    }
}
