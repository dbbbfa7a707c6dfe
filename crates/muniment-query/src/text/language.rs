//! The languages of text search: names, stemmers, stop words.

use rust_stemmers::{Algorithm, Stemmer};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::OnceLock;

/// A language of texts.
pub struct Language {
    /// Its name as index options show it.
    pub name: &'static str,
    /// The two-letter code that may be used instead.
    code: &'static str,
    stemmer: Option<Algorithm>,
    stop_words: OnceLock<HashSet<&'static str>>,
}

impl std::fmt::Debug for Language {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const fn language(name: &'static str, code: &'static str, stemmer: Option<Algorithm>) -> Language {
    Language {
        name,
        code,
        stemmer,
        stop_words: OnceLock::new(),
    }
}

/// MongoDB's languages with their codes (Norwegian is Bokmål, `nb`).
static LANGUAGES: [Language; 16] = [
    language("danish", "da", Some(Algorithm::Danish)),
    language("dutch", "nl", Some(Algorithm::Dutch)),
    language("english", "en", Some(Algorithm::English)),
    language("finnish", "fi", Some(Algorithm::Finnish)),
    language("french", "fr", Some(Algorithm::French)),
    language("german", "de", Some(Algorithm::German)),
    language("hungarian", "hu", Some(Algorithm::Hungarian)),
    language("italian", "it", Some(Algorithm::Italian)),
    language("none", "none", None),
    language("norwegian", "nb", Some(Algorithm::Norwegian)),
    language("portuguese", "pt", Some(Algorithm::Portuguese)),
    language("romanian", "ro", Some(Algorithm::Romanian)),
    language("russian", "ru", Some(Algorithm::Russian)),
    language("spanish", "es", Some(Algorithm::Spanish)),
    language("swedish", "sv", Some(Algorithm::Swedish)),
    language("turkish", "tr", Some(Algorithm::Turkish)),
];

/// The words that searches in English ignore: pronouns, auxiliaries and their contractions, articles,
/// conjunctions, prepositions.
#[rustfmt::skip]
const ENGLISH: &[&str] = &[
    "i", "me", "my", "myself", "we", "our", "ours", "ourselves", "you", "your", "yours",
    "yourself", "yourselves", "he", "him", "his", "himself", "she", "her", "hers", "herself",
    "it", "its", "itself", "they", "them", "their", "theirs", "themselves",
    "what", "which", "who", "whom", "this", "that", "these", "those",
    "am", "is", "are", "was", "were", "be", "been", "being", "have", "has", "had", "having",
    "do", "does", "did", "doing", "would", "should", "could", "ought", "cannot",
    "i'm", "you're", "he's", "she's", "it's", "we're", "they're",
    "i've", "you've", "we've", "they've", "i'd", "you'd", "he'd", "she'd", "we'd", "they'd",
    "i'll", "you'll", "he'll", "she'll", "we'll", "they'll",
    "isn't", "aren't", "wasn't", "weren't", "hasn't", "haven't", "hadn't",
    "doesn't", "don't", "didn't", "won't", "wouldn't", "shan't", "shouldn't", "can't",
    "couldn't", "mustn't", "let's", "that's", "who's", "what's", "here's", "there's", "when's",
    "where's", "why's", "how's",
    "a", "an", "the", "and", "but", "if", "or", "because", "as", "until", "while",
    "of", "at", "by", "for", "with", "about", "against", "between", "into", "through", "during",
    "before", "after", "above", "below", "to", "from", "up", "down", "in", "out", "on", "off",
    "over", "under", "again", "further", "then", "once", "here", "there", "when", "where",
    "why", "how", "all", "any", "both", "each", "few", "more", "most", "other", "some", "such",
    "no", "nor", "not", "only", "own", "same", "so", "than", "too", "very",
];

impl Language {
    /// The language with this name or code; case does not matter.
    pub fn find(name: &str) -> Option<&'static Language> {
        LANGUAGES
            .iter()
            .find(|l| l.name.eq_ignore_ascii_case(name) || l.code.eq_ignore_ascii_case(name))
    }

    /// English, which is the language if none is named.
    pub fn english() -> &'static Language {
        LANGUAGES.get(2).unwrap_or(&LANGUAGES[0])
    }

    /// True for a word, in lower case, that searches ignore.
    pub(super) fn is_stop_word(&self, word: &str) -> bool {
        let words = self.stop_words.get_or_init(|| match self.name {
            "none" => HashSet::new(),
            "english" => ENGLISH.iter().copied().collect(),
            // The library's list uses the general code for Norwegian.
            "norwegian" => library("no"),
            _ => library(self.code),
        });
        words.contains(word)
    }

    /// A word's stem.
    pub(super) fn stem<'w>(&self, word: &'w str) -> Cow<'w, str> {
        match self.stemmer {
            Some(algorithm) => Stemmer::create(algorithm).stem(word),
            None => Cow::Borrowed(word),
        }
    }

    /// True if a dotless i is the small letter of I.
    pub(super) fn is_turkish(&self) -> bool {
        self.name == "turkish"
    }

    /// True if an apostrophe is part of a word.
    pub(super) fn is_english(&self) -> bool {
        self.name == "english"
    }
}

fn library(code: &str) -> HashSet<&'static str> {
    stop_words::lookup(code)
        .unwrap_or_default()
        .iter()
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn languages_are_found_by_name_and_code() {
        assert!(LANGUAGES.is_sorted_by(|a, b| a.name < b.name));
        assert_eq!(Language::english().name, "english");
        for (name, want) in [
            ("english", Some("english")),
            ("EN", Some("english")),
            ("nb", Some("norwegian")),
            ("none", Some("none")),
            ("klingon", None),
            ("", None),
        ] {
            assert_eq!(Language::find(name).map(|l| l.name), want, "{name}");
        }
    }

    #[test]
    fn every_language_has_stems_and_stop_words() {
        for (name, stop, word, stem) in [
            ("danish", "og", "husene", "hus"),
            ("dutch", "een", "fietsen", "fiets"),
            ("english", "the", "running", "run"),
            ("finnish", "ja", "taloja", "talo"),
            ("french", "les", "courant", "cour"),
            ("german", "und", "häuser", "haus"),
            ("hungarian", "és", "házak", "ház"),
            ("italian", "che", "gatti", "gatt"),
            ("norwegian", "og", "husene", "hus"),
            ("portuguese", "não", "gatos", "gat"),
            ("romanian", "este", "pisicile", "pisic"),
            ("russian", "и", "кошки", "кошк"),
            ("spanish", "los", "corriendo", "corr"),
            ("swedish", "och", "husen", "hus"),
            ("turkish", "ve", "evler", "ev"),
        ] {
            let l = Language::find(name).unwrap();
            assert!(l.is_stop_word(stop), "{name} {stop}");
            assert_eq!(l.stem(word), stem, "{name} {word}");
        }
        let none = Language::find("none").unwrap();
        assert!(!none.is_stop_word("the"));
        assert_eq!(none.stem("running"), "running");
        assert_eq!(ENGLISH.len(), 174);
    }
}
