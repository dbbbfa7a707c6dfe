//! Splits a text into its terms.

use super::Language;
use super::unicode::{fold, is_delimiter, push_stripped};

/// The properties of the text's letters that terms keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keep {
    /// Capital letters.
    pub(super) case: bool,
    /// Diacritics.
    pub(super) marks: bool,
}

/// Calls `f` with every term of `text`, in order and without stop words. If `f` returns false, it stops and
/// returns false too. Stop words are looked up, and words are stemmed, before diacritics are removed, because
/// both depend on diacritics.
pub(super) fn each_term(
    text: &str,
    language: &Language,
    keep: Keep,
    f: &mut dyn FnMut(&str) -> bool,
) -> bool {
    let mut lower = String::new();
    let mut bare = String::new();
    let turkish = language.is_turkish();
    for token in text.split(|c| is_delimiter(c, language)) {
        if token.is_empty() {
            continue;
        }
        lower.clear();
        lower.extend(token.chars().map(|c| fold(c, turkish)));
        if language.is_stop_word(&lower) {
            continue;
        }
        let stem = language.stem(if keep.case { token } else { &lower });
        let go_on = if keep.marks || stem.is_ascii() {
            f(&stem)
        } else {
            bare.clear();
            stem.chars().for_each(|c| push_stripped(c, &mut bare));
            f(&bare)
        };
        if !go_on {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    const NAMES: [&str; 16] = [
        "da", "nl", "en", "fi", "fr", "de", "hu", "it", "none", "nb", "pt", "ro", "ru", "es", "sv",
        "tr",
    ];

    fn terms(text: &str, language: &str, keep: Keep) -> String {
        let mut out: Vec<String> = Vec::new();
        let all = each_term(text, Language::find(language).unwrap(), keep, &mut |t| {
            out.push(t.to_string());
            true
        });
        assert!(all);
        out.join(" ")
    }

    #[test]
    fn texts_become_terms() {
        let plain = Keep::default();
        let case = Keep {
            case: true,
            marks: false,
        };
        let marks = Keep {
            case: false,
            marks: true,
        };
        for (text, language, keep, want) in [
            ("The quick brown foxes", "english", plain, "quick brown fox"),
            ("I don't run", "english", plain, "run"),
            ("well-known  facts!", "english", plain, "well known fact"),
            ("hello\0world@x", "english", plain, "hello world x"),
            ("Café COFFEE", "english", plain, "cafe coffe"),
            ("Café COFFEE", "english", case, "Cafe COFFEE"),
            ("Café COFFEE", "english", marks, "café coffe"),
            ("the Running", "none", plain, "the running"),
            ("数据库系统", "english", plain, "数据库系统"),
            ("je cours tous les jours", "fr", plain, "cour tous jour"),
            ("me gusta correr", "spanish", plain, "gust corr"),
            ("", "english", plain, ""),
        ] {
            assert_eq!(terms(text, language, keep), want, "{text}");
        }
    }

    #[test]
    fn no_text_is_too_strange() {
        // The stemmers are code of others, and they must accept everything that a client sends.
        let odd = [
            "ı İ ß ŉ ǰ ΐ ﬃ",
            "\u{301}\u{301}",
            "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
            "İİİİ",
            "éèê",
            "ÑÑÑ",
            "yyyyyyy",
            "Y'Y'Y",
            "ееее",
            "ъъъъъ",
            "gegegege",
            "ssssssss",
            "lılılı",
            "x\u{200d}y",
            "aé\u{fe0f}é",
        ];
        // The time for long words must grow only in proportion.
        let long = ["é", "ası", "ing", "'s", "ность", "ABc"]
            .map(|w| w.repeat(10_000))
            .join(" ");
        let mut n = 0u32;
        for name in NAMES {
            let l = Language::find(name).unwrap();
            for text in odd.iter().copied().chain([long.as_str()]) {
                for case in [false, true] {
                    each_term(text, l, Keep { case, marks: true }, &mut |_| {
                        n += 1;
                        true
                    });
                }
            }
            // These are all short words over letters that stemmers look at.
            let letters: Vec<char> = "aeiouyhlnrstéøőıяеёЙI'".chars().collect();
            for i in 0..letters.len().pow(3) {
                let word: String = [i, i / letters.len(), i / letters.len().pow(2)]
                    .iter()
                    .filter_map(|i| letters.get(i % letters.len()))
                    .collect();
                l.stem(&word);
                l.stem(&format!("ab{word}"));
            }
        }
        assert!(n > 100);
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(300))]
        #[test]
        fn any_text_has_terms(text in "\\PC{0,40}|[a-zA-Zéıßüъия' ]{0,60}", case: bool, marks: bool) {
            for name in NAMES {
                let language = Language::find(name).unwrap();
                each_term(&text, language, Keep { case, marks }, &mut |t| {
                    // Diacritics must be removed, whatever the stemmer returned.
                    assert!(marks || !t.contains('\u{301}'), "{t:?}");
                    true
                });
            }
        }
    }
}
