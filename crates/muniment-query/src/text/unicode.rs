//! Characters as text search sees them: delimiters, case, diacritics.

use super::Language;
use icu_normalizer::ComposingNormalizerBorrowed;
use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_properties::CodePointSetData;
use icu_properties::props::{
    Dash, Diacritic, Hyphen, PatternSyntax, QuotationMark, TerminalPunctuation, WhiteSpace,
};

/// True for a character between tokens: dashes, hyphens, quotation marks, punctuation, syntax and
/// white space. In English an apostrophe is part of the word.
pub(super) fn is_delimiter(c: char, language: &Language) -> bool {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => false,
        '\'' => !language.is_english(),
        '\0' => true,
        c => {
            CodePointSetData::new::<PatternSyntax>().contains(c)
                || CodePointSetData::new::<WhiteSpace>().contains(c)
                || CodePointSetData::new::<TerminalPunctuation>().contains(c)
                || CodePointSetData::new::<Dash>().contains(c)
                || CodePointSetData::new::<Hyphen>().contains(c)
                || CodePointSetData::new::<QuotationMark>().contains(c)
        }
    }
}

/// The character in lower case, one for one, so that all forms of a letter become the same.
pub(super) fn fold(c: char, turkish: bool) -> char {
    match c {
        'A'..='Z' if !(turkish && c == 'I') => c.to_ascii_lowercase(),
        'I' => 'ı',
        'İ' if turkish => 'i',
        // It has a capital letter in common with i, but is none of its forms.
        'ı' => c,
        c if c.is_ascii() => c,
        c => {
            let capital = single(c.to_uppercase(), c);
            single(capital.to_lowercase(), capital)
        }
    }
}

/// A changed letter, where it stays one character.
fn single(mut forms: impl ExactSizeIterator<Item = char>, otherwise: char) -> char {
    match (forms.len(), forms.next()) {
        (1, Some(c)) => c,
        _ => otherwise,
    }
}

/// Appends the character without its diacritics: nothing for one that is a diacritic itself.
pub(super) fn push_stripped(c: char, out: &mut String) {
    if c.is_ascii() {
        // The circumflex and the grave accent that stand alone.
        if !matches!(c, '^' | '`') {
            out.push(c);
        }
        return;
    }
    let diacritics = CodePointSetData::new::<Diacritic>();
    if diacritics.contains(c) {
        return;
    }
    let mut one = [0; 4];
    let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize(c.encode_utf8(&mut one));
    if !decomposed.chars().any(|d| diacritics.contains(d)) {
        out.push(c);
        return;
    }
    let bare: String = decomposed
        .chars()
        .filter(|d| !diacritics.contains(*d))
        .collect();
    out.push_str(&ComposingNormalizerBorrowed::new_nfc().normalize(&bare));
}

/// The text in the form in which phrases are looked for.
pub(super) fn normalized(text: &str, keep_case: bool, keep_marks: bool, turkish: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let c = if keep_case { c } else { fold(c, turkish) };
        if keep_marks {
            out.push(c);
        } else {
            push_stripped(c, &mut out);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn delimiters() {
        let (en, fr) = (Language::english(), Language::find("fr").unwrap());
        for c in " \t\n\0@$#-.,;:!?\"()[]{}<>|/\\=+*&%~`^…–—“”«»。、　・".chars() {
            assert!(is_delimiter(c, en), "{c:?}");
        }
        for c in "aZ0_éßж数こ’".chars().filter(|c| *c != '’') {
            assert!(!is_delimiter(c, en), "{c:?}");
        }
        assert!(!is_delimiter('\'', en) && is_delimiter('\'', fr));
    }

    #[test]
    fn letters_lose_case_and_marks() {
        for (text, want) in [
            ("CAFÉ", "cafe"),
            ("Ångström", "angstrom"),
            ("ΣΑΣ ς", "σασ σ"),
            ("e\u{301}", "e"),
            ("Straße", "straße"),
            ("한국", "한국"),
            ("ЙОЖ", "иож"),
        ] {
            assert_eq!(normalized(text, false, false, false), want, "{text}");
        }
        assert_eq!(normalized("Café", true, false, false), "Cafe");
        assert_eq!(normalized("Café", false, true, false), "café");
        assert_eq!(normalized("ISI İSİ", false, true, true), "ısı isi");
        assert_eq!(normalized("I ı", false, true, false), "i ı");
    }
}
