//! The content of a text index: its fields with their weights, and the terms of a document.

use super::Language;
use super::tokens::{Keep, each_term};
use muniment_value::{Doc, Error, Result, Value};
use std::collections::HashMap;

/// The text fields of an index, from its options.
#[derive(Clone, Debug)]
pub struct TextSpec {
    /// Paths with their weights, sorted by path.
    weights: Vec<(String, f64)>,
    /// Whether all strings of a document are indexed.
    wildcard: bool,
    /// The language of documents that do not name one, and of queries.
    pub default_language: &'static Language,
    /// The field in which a document, or part of one, names its language.
    pub language_override: String,
}

/// The name that stands for all fields.
const WILDCARD: &str = "$**";

/// The weight, in a wildcard index, of a field without a weight of its own.
const PLAIN_WEIGHT: f64 = 1.0;

/// The receiver of [`TextSpec::each_text`].
type Visitor<'v> = dyn FnMut(&str, &'static Language, f64) -> bool + 'v;

/// Counts a term in one text.
#[derive(Default)]
struct Tally {
    /// The number by which the next occurrence is divided.
    divisor: f64,
    count: f64,
    frequency: f64,
}

impl TextSpec {
    /// A specification; `weights` are paths or `$**`.
    pub fn new(
        weights: impl IntoIterator<Item = (String, f64)>,
        default_language: &'static Language,
        language_override: String,
    ) -> TextSpec {
        let mut weights: Vec<(String, f64)> = weights.into_iter().collect();
        weights.sort_by(|a, b| a.0.cmp(&b.0));
        TextSpec {
            wildcard: weights.iter().any(|(p, _)| p == WILDCARD),
            weights: weights.into_iter().filter(|(p, _)| p != WILDCARD).collect(),
            default_language,
            language_override,
        }
    }

    /// The weight of the strings at `path`, if they are indexed.
    fn weight(&self, path: &str) -> Option<f64> {
        let found = self.weights.binary_search_by(|(p, _)| p.as_str().cmp(path));
        match found.ok().and_then(|i| self.weights.get(i)) {
            Some((_, w)) => Some(*w),
            None => self.wildcard.then_some(PLAIN_WEIGHT),
        }
    }

    /// True if an indexed path lies below `path`.
    fn reaches_below(&self, path: &str) -> bool {
        let below = |p: &str| {
            p.strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        self.wildcard || self.weights.iter().any(|(p, _)| below(p))
    }

    /// True if the terms of a document can depend on a path for which `touched` returns true. (It also
    /// returns true for paths above and below the one that was written.)
    pub fn depends_on(&self, touched: &dyn Fn(&str) -> bool) -> bool {
        if self.wildcard || touched(&self.language_override) {
            return true;
        }
        self.weights.iter().any(|(path, _)| {
            let above = path.match_indices('.').filter_map(|(at, _)| path.get(..at));
            touched(path)
                || above
                    .into_iter()
                    .any(|p| touched(&format!("{p}.{}", self.language_override)))
        })
    }

    /// The language of a document, or of a sub-document in a document with the language `outer`.
    fn language_of(&self, doc: Doc<'_>, outer: &'static Language) -> Result<&'static Language> {
        match doc.get(&self.language_override) {
            None => Ok(outer),
            Some(Value::String(name)) => Language::find(name).ok_or_else(|| {
                Error::location(17262, format!("language override unsupported: {name}"))
            }),
            Some(_) => Err(Error::location(
                17261,
                "found language override field in document with non-string type",
            )),
        }
    }

    /// Calls `f` with every indexed string of `doc`, its language and its weight, until `f` returns false.
    ///
    /// # Errors
    /// 17261 and 17262 for an unknown language.
    pub(super) fn each_text(&self, doc: Doc<'_>, f: &mut Visitor<'_>) -> Result<()> {
        let mut path = String::new();
        self.in_document(doc, self.default_language, &mut path, f)
            .map(|_| ())
    }

    /// The recursion is bounded by the document's depth.
    fn in_document(
        &self,
        doc: Doc<'_>,
        outer: &'static Language,
        path: &mut String,
        f: &mut Visitor<'_>,
    ) -> Result<bool> {
        let language = self.language_of(doc, outer)?;
        for e in doc {
            let name = e.name();
            if self.wildcard && name == self.language_override {
                continue;
            }
            let above = path.len();
            if above > 0 {
                path.push('.');
            }
            path.push_str(name);
            let go_on = self.value(e.value(), language, path, f)?;
            path.truncate(above);
            if !go_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn value(
        &self,
        value: Value<'_>,
        language: &'static Language,
        path: &mut String,
        f: &mut Visitor<'_>,
    ) -> Result<bool> {
        match value {
            Value::String(text) => match self.weight(path) {
                Some(weight) => Ok(f(text, language, weight)),
                None => Ok(true),
            },
            Value::Document(d) if self.reaches_below(path) => {
                self.in_document(d, language, path, f)
            }
            Value::Array(a) if self.weight(path).is_some() || self.reaches_below(path) => {
                for v in a.values() {
                    if !self.value(v, language, path, f)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    /// The terms of `doc` with their scores, ascending by term. In each text, the first occurrence of a term
    /// counts 1, and each further one half of the one before. The sum is multiplied by one half plus half of
    /// the term's share of the text's terms, by 1.1 if the term is the whole text, and by the weight. The
    /// scores of all texts are added.
    ///
    /// # Errors
    /// 17261 and 17262 for an unknown language.
    pub fn terms(&self, doc: Doc<'_>) -> Result<Vec<(String, f64)>> {
        let mut scores: HashMap<String, f64> = HashMap::new();
        let mut tallies: HashMap<String, Tally> = HashMap::new();
        self.each_text(doc, &mut |text, language, weight| {
            let mut all = 0.0;
            each_term(text, language, Keep::default(), &mut |term| {
                if !tallies.contains_key(term) {
                    tallies.insert(term.to_string(), Tally::default());
                }
                if let Some(t) = tallies.get_mut(term) {
                    t.divisor = if t.count > 0.0 { t.divisor * 2.0 } else { 1.0 };
                    t.count += 1.0;
                    t.frequency += 1.0 / t.divisor;
                }
                all += 1.0;
                true
            });
            for (term, t) in tallies.drain() {
                let share = 0.5 * t.count / all + 0.5;
                let whole = if term.eq_ignore_ascii_case(text) {
                    1.1
                } else {
                    1.0
                };
                *scores.entry(term).or_default() += weight * t.frequency * share * whole;
            }
            true
        })?;
        let mut out: Vec<(String, f64)> = scores.into_iter().collect();
        out.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::DocBuf;

    fn spec(weights: &[(&str, f64)]) -> TextSpec {
        TextSpec::new(
            weights.iter().map(|(p, w)| (p.to_string(), *w)),
            Language::english(),
            "language".into(),
        )
    }

    fn terms(spec: &TextSpec, json: &str) -> Result<String> {
        let terms = spec.terms(DocBuf::from_json(json).unwrap().as_doc())?;
        let shown: Vec<String> = terms.iter().map(|(t, s)| format!("{t}={s}")).collect();
        Ok(shown.join(" "))
    }

    #[test]
    fn scores_follow_the_formula() {
        let one = spec(&[("a", 1.0)]);
        for (json, want) in [
            (r#"{"a": "coffee"}"#, "coffe=1"),
            (r#"{"a": "apple"}"#, "appl=1"),
            (r#"{"a": "Cat"}"#, "cat=1.1"),
            (r#"{"a": "cat dog"}"#, "cat=0.75 dog=0.75"),
            (r#"{"a": "the cat"}"#, "cat=1"),
            (r#"{"a": "cat cat cat"}"#, "cat=1.75"),
            (r#"{"a": "cat cat dog"}"#, "cat=1.25 dog=0.6666666666666666"),
            (r#"{"a": ["cat", "cat dog"]}"#, "cat=1.85 dog=0.75"),
            (r#"{"b": "cat"}"#, ""),
            (r#"{"a": {"b": "cat"}}"#, ""),
            (r#"{"a": [["cat"], 5, null, {"b": "dog"}]}"#, "cat=1.1"),
        ] {
            assert_eq!(terms(&one, json).unwrap(), want, "{json}");
        }
        let two = spec(&[("title", 10.0), ("body.text", 1.0)]);
        assert_eq!(
            terms(
                &two,
                r#"{"title": "cat", "body": [{"text": "cat dog", "x": "no"}]}"#
            )
            .unwrap(),
            "cat=11.75 dog=0.75"
        );
        let all = spec(&[("$**", 1.0), ("b", 3.0)]);
        assert_eq!(
            terms(&all, r#"{"a": {"c": ["x"]}, "b": "y", "language": "none"}"#).unwrap(),
            "x=1.1 y=3.3000000000000003"
        );
    }

    #[test]
    fn documents_name_their_language() {
        let one = spec(&[("a", 1.0), ("b.a", 1.0)]);
        for (json, want) in [
            (r#"{"a": "the cats"}"#, "cat=1"),
            (
                r#"{"a": "the cats", "language": "none"}"#,
                "cats=0.75 the=0.75",
            ),
            (
                r#"{"a": "cats", "b": [{"a": "cats", "language": "none"}, {"a": "cats"}]}"#,
                "cat=2 cats=1.1",
            ),
        ] {
            assert_eq!(terms(&one, json).unwrap(), want, "{json}");
        }
        for (json, code) in [
            (r#"{"language": 5}"#, 17261),
            (r#"{"language": "klingon"}"#, 17262),
            (r#"{"b": {"language": "klingon"}}"#, 17262),
        ] {
            let e = terms(&one, json).unwrap_err();
            assert_eq!(e.code().0, code, "{json}");
        }
        // The field `c` is not indexed, so its language does not matter.
        assert_eq!(terms(&one, r#"{"c": {"language": 5}}"#).unwrap(), "");
    }

    #[test]
    fn an_update_elsewhere_changes_nothing() {
        let one = spec(&[("a.b", 1.0)]);
        let touched = |path: &'static str| {
            move |p: &str| {
                p == path
                    || p.starts_with(&format!("{path}."))
                    || path.starts_with(&format!("{p}."))
            }
        };
        for (path, want) in [
            ("a", true),
            ("a.b", true),
            ("a.b.0", true),
            ("language", true),
            ("a.language", true),
            ("c", false),
            ("a.c", false),
        ] {
            assert_eq!(one.depends_on(&touched(path)), want, "{path}");
        }
        assert!(spec(&[("$**", 1.0)]).depends_on(&touched("c")));
    }
}
