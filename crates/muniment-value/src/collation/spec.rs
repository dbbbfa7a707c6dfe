//! The `collation` document of commands, collections, indexes and views.
//!
//! Checks the document and fills in missing options from the locale, so that equal collations are equal
//! documents.
//!
//! Source: the MongoDB manual, "Collation" and "Collation Locales and Default Parameters".

use super::icu;
use crate::{Code, Doc, DocBuf, Error, Result, Value, doc, number};

/// The languages that have a collation (with a script or region where the manual names only that), sorted.
const LOCALES: &[&str] = &[
    "af", "am", "ar", "as", "az", "be", "bg", "bn", "bs", "bs_Cyrl", "ca", "chr", "cs", "cy", "da",
    "de", "dsb", "dz", "ee", "el", "en", "eo", "es", "et", "fa", "fi", "fil", "fo", "fr", "ga",
    "gl", "gu", "ha", "haw", "he", "hi", "hr", "hsb", "hu", "hy", "id", "ig", "is", "it", "ja",
    "ka", "kk", "kl", "km", "kn", "ko", "kok", "ky", "lb", "lkt", "ln", "lo", "lt", "lv", "mk",
    "ml", "mn", "mr", "ms", "mt", "my", "nb", "ne", "nl", "nn", "om", "or", "pa", "pl", "ps", "pt",
    "ro", "ru", "se", "si", "sk", "sl", "smn", "sq", "sr", "sv", "sw", "ta", "te", "th", "to",
    "tr", "ug", "uk", "ur", "vi", "wae", "yi", "yo", "zh", "zu",
];

/// The version of the rules, by MongoDB's numbering.
pub const VERSION: &str = "57.1";

/// Checks a collation and completes it. `None` means the comparison of bytes (`{locale: "simple"}`).
///
/// # Errors
/// 14 TypeMismatch, 2 BadValue, 40414 without a locale, 40415 for an unknown field, 161
/// IncompatibleCollationVersion.
pub(super) fn parse(d: Doc<'_>) -> Result<Option<DocBuf>> {
    only_known(d)?;
    let locale = locale(d)?;
    let case_level = flag(d, "caseLevel")?;
    let numeric_ordering = flag(d, "numericOrdering")?;
    let normalization = flag(d, "normalization")?;
    let backwards = flag(d, "backwards")?;
    let strength = strength(d)?;
    let case_first = choice(d, "caseFirst", &["off", "upper", "lower"])?;
    let alternate = choice(d, "alternate", &["non-ignorable", "shifted"])?;
    let max_variable = choice(d, "maxVariable", &["punct", "space"])?;
    check_version(d)?;
    // The other options have no meaning then.
    if locale == "simple" {
        return Ok(None);
    }
    let invalid = |what: &str| {
        Err(Error::bad_value(format!(
            "{what} in: {}",
            Value::Document(d).to_display()
        )))
    };
    if !known_locale(locale) {
        return invalid("Field 'locale' is invalid");
    }
    let defaults = icu::defaults(locale)?;
    let case_first = case_first.unwrap_or(defaults.case_first);
    if case_first != "off" && case_level != Some(true) && strength < 3 {
        return invalid(
            "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2",
        );
    }
    if backwards == Some(true) && strength == 1 {
        return invalid("'backwards' is invalid with 'strength' of 1");
    }
    Ok(Some(doc! {
        "locale": locale,
        "caseLevel": case_level.unwrap_or(false),
        "caseFirst": case_first,
        "strength": strength,
        "numericOrdering": numeric_ordering.unwrap_or(false),
        "alternate": alternate.unwrap_or(defaults.alternate),
        "maxVariable": max_variable.unwrap_or("punct"),
        "normalization": normalization.unwrap_or(false),
        "backwards": backwards.unwrap_or(defaults.backwards),
        "version": VERSION,
    }))
}

fn only_known(d: Doc<'_>) -> Result<()> {
    const KNOWN: &[&str] = &[
        "locale",
        "caseLevel",
        "caseFirst",
        "strength",
        "numericOrdering",
        "alternate",
        "maxVariable",
        "normalization",
        "backwards",
        "version",
    ];
    match d.iter().find(|e| !KNOWN.contains(&e.name())) {
        None => Ok(()),
        Some(e) => Err(Error::location(
            40415,
            format!("BSON field 'collation.{}' is an unknown field.", e.name()),
        )),
    }
}

fn locale<'d>(d: Doc<'d>) -> Result<&'d str> {
    match d.get("locale") {
        None | Some(Value::Null | Value::Undefined) => Err(Error::location(
            40414,
            "BSON field 'collation.locale' is missing but a required field",
        )),
        Some(Value::String(s)) => Ok(s),
        Some(v) => Err(mismatch("locale", v, "string")),
    }
}

fn flag(d: Doc<'_>, name: &str) -> Result<Option<bool>> {
    match d.get(name) {
        None => Ok(None),
        Some(Value::Bool(b)) => Ok(Some(b)),
        // MongoDB accepts null for every flag except this one.
        Some(Value::Null | Value::Undefined) if name != "backwards" => Ok(None),
        Some(v) => Err(mismatch(name, v, "bool")),
    }
}

fn strength(d: Doc<'_>) -> Result<i32> {
    match d.get("strength") {
        None | Some(Value::Null | Value::Undefined) => Ok(3),
        Some(v) if v.is_number() => match number::to_i64_clamped(v) {
            Some(n @ 1..=5) => Ok(n as i32),
            n => Err(Error::bad_value(format!(
                "Enumeration value '{}' for field 'collation.strength' is not a valid value.",
                n.unwrap_or(0)
            ))),
        },
        Some(v) => Err(mismatch_of(
            "strength",
            v,
            "types '[long, int, decimal, double]'",
        )),
    }
}

fn check_version(d: Doc<'_>) -> Result<()> {
    match d.get("version") {
        None | Some(Value::Null | Value::Undefined | Value::String(VERSION)) => Ok(()),
        Some(Value::String(other)) => Err(Error::new(
            Code::IncompatibleCollationVersion,
            format!("Requested collation version {other} is not available; only {VERSION} is"),
        )),
        Some(v) => Err(mismatch("version", v, "string")),
    }
}

fn mismatch(name: &str, v: Value<'_>, wanted: &str) -> Error {
    mismatch_of(name, v, &format!("type '{wanted}'"))
}

fn mismatch_of(name: &str, v: Value<'_>, wanted: &str) -> Error {
    Error::type_mismatch(format!(
        "BSON field 'collation.{name}' is the wrong type '{}', expected {wanted}",
        v.type_name()
    ))
}

fn choice<'c>(d: Doc<'_>, name: &str, among: &[&'c str]) -> Result<Option<&'c str>> {
    match d.get(name) {
        None | Some(Value::Null | Value::Undefined) => Ok(None),
        Some(Value::String(s)) => among
            .iter()
            .find(|c| **c == s)
            .copied()
            .map(Some)
            .ok_or_else(|| {
                Error::bad_value(format!(
                    "Enumeration value '{s}' for field 'collation.{name}' is not a valid value."
                ))
            }),
        Some(v) => Err(mismatch(name, v, "string")),
    }
}

/// `language[_Script][_REGION][_VARIANT][@collation=variant]`.
fn known_locale(locale: &str) -> bool {
    let base = match locale.split_once('@') {
        Some((base, "collation=search")) if !base.is_empty() => base,
        Some((base, variant)) if variant.starts_with("collation=") => base,
        Some(_) => return false,
        None => locale,
    };
    let mut parts = base.split('_');
    let language = parts.next().unwrap_or_default();
    let plausible = |p: &str| {
        let letters = p.chars().all(|c| c.is_ascii_alphanumeric());
        letters && (2..=8).contains(&p.len()) && p.starts_with(|c: char| c.is_ascii_uppercase())
    };
    LOCALES.binary_search(&language).is_ok() && parts.clone().count() <= 3 && parts.all(plausible)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn json(text: &str) -> DocBuf {
        DocBuf::from_json(&text.replace('\'', "\"")).unwrap()
    }

    #[test]
    fn missing_options_are_filled_in() {
        let full = parse(json("{'locale': 'en', 'strength': 2.9}").as_doc())
            .unwrap()
            .unwrap();
        let want = json(
            "{'locale': 'en', 'caseLevel': false, 'caseFirst': 'off', 'strength': 2, \
             'numericOrdering': false, 'alternate': 'non-ignorable', 'maxVariable': 'punct', \
             'normalization': false, 'backwards': false, 'version': '57.1'}",
        );
        assert_eq!(full, want);
        assert!(
            parse(json("{'locale': 'simple'}").as_doc())
                .unwrap()
                .is_none()
        );
        // These defaults are those of the locale.
        for (l, name, value) in [
            ("fr_CA", "backwards", Value::Bool(true)),
            ("fr", "backwards", Value::Bool(false)),
            ("th", "alternate", Value::String("shifted")),
            ("da", "caseFirst", Value::String("upper")),
            ("mt", "caseFirst", Value::String("upper")),
        ] {
            let full = parse(doc! { "locale": l }.as_doc()).unwrap().unwrap();
            assert!(
                crate::values_equal(full.as_doc().get(name).unwrap(), value),
                "{l} {name}"
            );
        }
        for l in [
            "zh_Hant",
            "sr_Latn",
            "en_US",
            "de@collation=phonebook",
            "en_US_POSIX",
        ] {
            assert!(parse(doc! { "locale": l }.as_doc()).is_ok(), "{l}");
        }
    }

    #[test]
    fn invalid_collations_are_refused() {
        assert!(LOCALES.is_sorted());
        for (text, code) in [
            ("{}", 40414),
            ("{'locale': 1}", 14),
            ("{'locale': 'invalid_locale_xyz'}", 2),
            ("{'locale': 'en', 'strength': 6}", 2),
            ("{'locale': 'en', 'strength': '3'}", 14),
            ("{'locale': 'en', 'backwards': null}", 14),
            ("{'locale': 'en', 'caseLevel': 1}", 14),
            ("{'locale': 'en', 'strength': 2, 'caseFirst': 'upper'}", 2),
            ("{'locale': 'en', 'caseFirst': 'x'}", 2),
            ("{'locale': 'en', 'version': 'x'}", 161),
            ("{'locale': 'en', 'Strength': 3}", 40415),
        ] {
            let e = parse(json(text).as_doc()).unwrap_err();
            assert_eq!(e.code().0, code, "{text}: {e:?}");
        }
    }
}
