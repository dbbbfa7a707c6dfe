//! The search of a `$text`, and the test whether a document matches it.

use super::tokens::{Keep, each_term};
use super::unicode::normalized;
use super::{Language, TextSpec};
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, doc};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The operand of a `$text`.
#[derive(Clone, Debug)]
pub struct TextQuery {
    /// The words and phrases.
    pub search: String,
    /// The language of the search; `None` for that of the index.
    pub language: Option<&'static Language>,
    /// Whether capital letters matter.
    pub case_sensitive: bool,
    /// Whether diacritics matter.
    pub diacritic_sensitive: bool,
}

/// A `$text` in the terms of the index that answers it.
#[derive(Clone, Debug)]
pub struct TextSearch {
    spec: Arc<TextSpec>,
    language: &'static Language,
    keep: Keep,
    /// The terms to look up in the index.
    terms: BTreeSet<String>,
    /// A document must have one of these. They are the same as `terms` if neither case nor diacritics matter.
    wanted: BTreeSet<String>,
    negated: BTreeSet<String>,
    /// The phrases as they were written.
    phrases: Vec<String>,
    negated_phrases: Vec<String>,
    /// The phrases in the form to which texts are converted before they are compared.
    looked_for: Vec<String>,
    refused: Vec<String>,
}

/// The parts of a search string.
#[derive(Default)]
struct Parts {
    words: String,
    negated: String,
    phrases: Vec<String>,
    negated_phrases: Vec<String>,
}

/// Splits a search string. A hyphen after white space negates everything up to the next white space.
/// Quotation marks enclose a phrase; its words are searched for too. A quotation mark without a closing one
/// does not begin a phrase.
fn parse(search: &str) -> Parts {
    let mut parts = Parts::default();
    let (mut negated, mut phrase) = (false, None::<usize>);
    let mut after_space = true;
    let mut chars = search.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if is_space(c) {
            after_space = true;
            continue;
        }
        if after_space && phrase.is_none() {
            negated = false;
        }
        match (c, phrase) {
            ('-', None) => negated |= after_space,
            ('-', Some(_)) => {}
            ('"', None) => phrase = Some(at + 1),
            ('"', Some(start)) => {
                let text = search.get(start..at).unwrap_or_default().to_string();
                if negated {
                    parts.negated_phrases.push(text);
                } else {
                    parts.phrases.push(text);
                }
                phrase = None;
            }
            _ => {
                let mut end = at + c.len_utf8();
                while let Some((next, c)) =
                    chars.next_if(|(_, c)| !is_space(*c) && !matches!(c, '-' | '"'))
                {
                    end = next + c.len_utf8();
                }
                let word = search.get(at..end).unwrap_or_default();
                // If a phrase is negated, its words are still allowed alone.
                let list = match (negated, phrase) {
                    (true, Some(_)) => None,
                    (true, None) => Some(&mut parts.negated),
                    (false, _) => Some(&mut parts.words),
                };
                if let Some(list) = list {
                    list.push_str(word);
                    list.push(' ');
                }
            }
        }
        after_space = false;
    }
    parts
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

fn terms_of(text: &str, language: &Language, keep: Keep) -> BTreeSet<String> {
    let mut terms = BTreeSet::new();
    each_term(text, language, keep, &mut |t| {
        if !terms.contains(t) {
            terms.insert(t.to_string());
        }
        true
    });
    terms
}

impl TextQuery {
    /// The operand with all its fields, as `explain` shows it.
    pub fn to_doc(&self, language: &str) -> DocBuf {
        doc! {
            "$search": self.search.as_str(),
            "$language": language,
            "$caseSensitive": self.case_sensitive,
            "$diacriticSensitive": self.diacritic_sensitive,
        }
    }

    /// The query in the terms of an index.
    pub fn bind(&self, spec: &Arc<TextSpec>) -> TextSearch {
        let language = self.language.unwrap_or(spec.default_language);
        let keep = Keep {
            case: self.case_sensitive,
            marks: self.diacritic_sensitive,
        };
        let parts = parse(&self.search);
        let form = |phrases: &[String]| {
            phrases
                .iter()
                .map(|p| normalized(p, keep.case, keep.marks, language.is_turkish()))
                .collect()
        };
        TextSearch {
            terms: terms_of(&parts.words, language, Keep::default()),
            wanted: terms_of(&parts.words, language, keep),
            negated: terms_of(&parts.negated, language, keep),
            looked_for: form(&parts.phrases),
            refused: form(&parts.negated_phrases),
            phrases: parts.phrases,
            negated_phrases: parts.negated_phrases,
            spec: spec.clone(),
            language,
            keep,
        }
    }
}

impl TextSearch {
    /// The terms to look up in the index, ascending. Every matching document has at least one of them.
    pub fn terms(&self) -> impl ExactSizeIterator<Item = &str> {
        self.terms.iter().map(String::as_str)
    }

    /// The language of the query.
    pub fn language(&self) -> &'static Language {
        self.language
    }

    /// True if having a term in the index is sufficient, so that no document needs to be read.
    pub fn is_by_terms(&self) -> bool {
        self.keep == Keep::default()
            && self.negated.is_empty()
            && self.looked_for.is_empty()
            && self.refused.is_empty()
    }

    /// Whether a document that has one of the terms satisfies the other conditions too.
    ///
    /// # Errors
    /// 17261 and 17262 for an unknown language.
    pub fn accepts(&self, doc: Doc<'_>) -> Result<bool> {
        if self.is_by_terms() {
            return Ok(true);
        }
        if self.keep != Keep::default() && !self.has_term(doc, &self.wanted, self.keep)? {
            return Ok(false);
        }
        if !self.negated.is_empty() && self.has_term(doc, &self.negated, self.keep)? {
            return Ok(false);
        }
        self.phrases_fit(doc)
    }

    /// Whether a document matches, determined without the index.
    ///
    /// # Errors
    /// 17261 and 17262 for an unknown language.
    pub fn matches(&self, doc: Doc<'_>) -> Result<bool> {
        Ok(self.has_term(doc, &self.terms, Keep::default())? && self.accepts(doc)?)
    }

    fn has_term(&self, doc: Doc<'_>, terms: &BTreeSet<String>, keep: Keep) -> Result<bool> {
        let mut found = false;
        self.spec.each_text(doc, &mut |text, language, _| {
            found = !each_term(text, language, keep, &mut |t| !terms.contains(t));
            !found
        })?;
        Ok(found)
    }

    /// Whether the document has all wanted phrases and none of the negated ones.
    fn phrases_fit(&self, doc: Doc<'_>) -> Result<bool> {
        if self.looked_for.is_empty() && self.refused.is_empty() {
            return Ok(true);
        }
        let mut missing: Vec<&str> = self.looked_for.iter().map(String::as_str).collect();
        let mut refused = false;
        let turkish = self.language.is_turkish();
        self.spec.each_text(doc, &mut |text, _, _| {
            let text = normalized(text, self.keep.case, self.keep.marks, turkish);
            refused = self.refused.iter().any(|p| text.contains(p.as_str()));
            missing.retain(|p| !text.contains(p));
            !refused && (!missing.is_empty() || !self.refused.is_empty())
        })?;
        Ok(missing.is_empty() && !refused)
    }

    /// The parsedTextQuery of `explain`.
    pub fn to_doc(&self) -> DocBuf {
        let list =
            |terms: &BTreeSet<String>| terms.iter().map(String::as_str).collect::<ArrayBuf>();
        let phrases = |p: &[String]| p.iter().map(String::as_str).collect::<ArrayBuf>();
        doc! {
            "terms": list(&self.wanted),
            "negatedTerms": list(&self.negated),
            "phrases": phrases(&self.phrases),
            "negatedPhrases": phrases(&self.negated_phrases),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn search(search: &str, case_sensitive: bool, diacritic_sensitive: bool) -> TextSearch {
        let spec = TextSpec::new(
            [("a".to_string(), 1.0)],
            Language::english(),
            "language".into(),
        );
        let query = TextQuery {
            search: search.into(),
            language: None,
            case_sensitive,
            diacritic_sensitive,
        };
        query.bind(&Arc::new(spec))
    }

    #[test]
    fn search_strings_are_taken_apart() {
        for (text, want) in [
            (
                "the Fox",
                r#"{"terms":["fox"],"negatedTerms":[],"phrases":[],"negatedPhrases":[]}"#,
            ),
            (
                "fox -brown-red - dog",
                r#"{"terms":["dog","fox"],"negatedTerms":["brown","red"],"phrases":[],"negatedPhrases":[]}"#,
            ),
            (
                r#"well-known "brown fox" -"red dog" end"#,
                r#"{"terms":["brown","end","fox","known","well"],"negatedTerms":[],"phrases":["brown fox"],"negatedPhrases":["red dog"]}"#,
            ),
            (
                r#""a-b c"#,
                r#"{"terms":["b","c"],"negatedTerms":[],"phrases":[],"negatedPhrases":[]}"#,
            ),
            (
                r#"-"x y"-"z" w"#,
                r#"{"terms":["w"],"negatedTerms":[],"phrases":[],"negatedPhrases":["x y","z"]}"#,
            ),
            (
                "",
                r#"{"terms":[],"negatedTerms":[],"phrases":[],"negatedPhrases":[]}"#,
            ),
        ] {
            let want = DocBuf::from_json(want).unwrap();
            assert_eq!(search(text, false, false).to_doc(), want, "{text}");
        }
    }

    #[test]
    fn documents_match() {
        for (text, case, marks, yes, no) in [
            (
                "fox",
                false,
                false,
                &["a Fox", "foxes"][..],
                &["dog", ""][..],
            ),
            ("fox dog", false, false, &["fox", "dogs"], &["cat"]),
            ("the", false, false, &[], &["the"]),
            (
                r#""brown fox""#,
                false,
                false,
                &["the Brown Fox", "brown foxes"],
                &["fox brown"],
            ),
            (
                r#""brown fox" quick"#,
                false,
                false,
                &["brown fox"],
                &["quick"],
            ),
            (
                "fox -brown",
                false,
                false,
                &["red fox"],
                &["brown fox", "brown"],
            ),
            (
                r#"fox -"brown fox""#,
                false,
                false,
                &["fox brown"],
                &["brown fox"],
            ),
            ("-fox", false, false, &[], &["dog", "fox"]),
            ("Coffee", true, false, &["Coffee"], &["coffee", "COFFEE"]),
            ("café", false, true, &["Café"], &["cafe"]),
            ("Café", true, true, &["Café"], &["Cafe", "café"]),
            (r#""Big Café""#, true, false, &["Big Cafe"], &["big café"]),
            ("Café -Red", true, false, &["Cafe red"], &["Cafe Red"]),
        ] {
            let s = search(text, case, marks);
            for (docs, want) in [(yes, true), (no, false)] {
                for d in docs {
                    let got = s.matches(doc! { "a": *d }.as_doc()).unwrap();
                    assert_eq!(got, want, "{text} {d}");
                }
            }
        }
        assert!(search("fox", false, false).is_by_terms());
        assert!(!search("fox -x", false, false).is_by_terms());
    }
}
