//! The properties of characters for text search: delimiters, case, diacritics.

use super::Language;
use icu_normalizer::ComposingNormalizerBorrowed;
use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_properties::CodePointSetData;
use icu_properties::props::{
    Dash, Diacritic, Hyphen, PatternSyntax, QuotationMark, TerminalPunctuation, WhiteSpace,
};
use std::sync::LazyLock;

/// True for a character that separates tokens: dashes, hyphens, quotation marks, punctuation, syntax and
/// white space. In English an apostrophe is part of the word.
pub(super) fn is_delimiter(c: char, language: &Language) -> bool {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => false,
        '\'' => !language.is_english(),
        '\0' => true,
        c => match DELIMITERS.get(c as usize / 64) {
            Some(bits) => bits >> (c as u32 % 64) & 1 == 1,
            None => has_delimiting_property(c),
        },
    }
}

/// A bit for every character of the basic plane: whether it is a delimiter.
static DELIMITERS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut bits = vec![0; 0x1_0000 / 64];
    for c in (0..0x1_0000).filter_map(char::from_u32) {
        if has_delimiting_property(c)
            && let Some(word) = bits.get_mut(c as usize / 64)
        {
            *word |= 1 << (c as u32 % 64);
        }
    }
    bits
});

fn has_delimiting_property(c: char) -> bool {
    CodePointSetData::new::<PatternSyntax>().contains(c)
        || CodePointSetData::new::<WhiteSpace>().contains(c)
        || CodePointSetData::new::<TerminalPunctuation>().contains(c)
        || CodePointSetData::new::<Dash>().contains(c)
        || CodePointSetData::new::<Hyphen>().contains(c)
        || CodePointSetData::new::<QuotationMark>().contains(c)
}

/// The character in lower case, converted one to one, so that all forms of a letter become the same.
pub(super) fn fold(c: char, turkish: bool) -> char {
    match c {
        'A'..='Z' if !(turkish && c == 'I') => c.to_ascii_lowercase(),
        'I' => 'ı',
        'İ' if turkish => 'i',
        // The dotless i has the same capital letter as i, but is a different letter.
        'ı' => c,
        c if c.is_ascii() => c,
        c => {
            let capital = single(c.to_uppercase(), c);
            single(capital.to_lowercase(), capital)
        }
    }
}

/// The converted letter, if it is a single character.
fn single(mut forms: impl ExactSizeIterator<Item = char>, otherwise: char) -> char {
    match (forms.len(), forms.next()) {
        (1, Some(c)) => c,
        _ => otherwise,
    }
}

/// Appends the character without its diacritics. A character that is a diacritic itself is dropped.
pub(super) fn push_stripped(c: char, out: &mut String) {
    if c.is_ascii() {
        // A circumflex or a grave accent alone is dropped.
        if !matches!(c, '^' | '`') {
            out.push(c);
        }
        return;
    }
    match STRIPPED.get(c as usize) {
        Some(Some(bare)) => return out.push(*bare),
        // Ideographs and Hangul syllables do not have diacritics.
        None if matches!(c, '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}') => {
            return out.push(c);
        }
        _ => {}
    }
    strip(c, out);
}

/// The characters of the alphabets without their diacritics, where the result is a single character.
static STRIPPED: LazyLock<Vec<Option<char>>> = LazyLock::new(|| {
    let one = |n: u32| {
        let mut out = String::new();
        strip(char::from_u32(n)?, &mut out);
        let mut chars = out.chars();
        chars.next().filter(|_| chars.next().is_none())
    };
    (0..0x2000).map(one).collect()
});

fn strip(c: char, out: &mut String) {
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

/// The text in the form in which phrases are searched for.
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
    fn tables_say_what_properties_say() {
        for c in (0x80..0x1_1000).filter_map(char::from_u32) {
            assert_eq!(
                is_delimiter(c, Language::english()),
                has_delimiting_property(c)
            );
            let (mut fast, mut slow) = (String::new(), String::new());
            push_stripped(c, &mut fast);
            strip(c, &mut slow);
            assert_eq!(fast, slow, "{c:?}");
        }
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
