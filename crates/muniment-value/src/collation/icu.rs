//! The Unicode Collation Algorithm of the library `icu_collator`. No other module names that library.
//!
//! Its data is a recent CLDR, while MongoDB's (ICU 57.1) is of 2016, so the order of rare characters may
//! differ. Normalization is always on, as `normalization: true` demands; without it, ICU differs only for
//! combining marks in an unusual order.
//!
//! For the library, only the locale decides whether accents compare from the end (`backwards`). The provider
//! in this module changes that in the locale's metadata.

use crate::{Doc, Error, Result};
use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, MaxVariable, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_collator::provider::{
    Baked, CollationDiacriticsV1, CollationJamoV1, CollationMetadata, CollationMetadataV1,
    CollationReorderingV1, CollationRootV1, CollationSpecialPrimariesV1, CollationTailoringV1,
};
use icu_collator::{Collator, CollatorPreferences};
use icu_locale_core::Locale;
use icu_normalizer::provider::{Baked as Normalizer, NormalizerNfdDataV1, NormalizerNfdTablesV1};
use icu_provider::{DataError, DataPayload, DataProvider, DataRequest, DataResponse};
use std::cmp::Ordering;

/// Compares texts by the rules of a locale.
#[derive(Debug)]
pub(super) struct Texts(Collator);

/// The locale's defaults for the options that a collation leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Defaults {
    pub(super) case_first: &'static str,
    pub(super) alternate: &'static str,
    pub(super) backwards: bool,
}

/// The bit of [`CollationMetadata`] for accents that compare from the end.
const BACKWARDS: u32 = 1 << 7;

/// The library's data, except for the direction of accents.
struct Provider {
    /// `None` leaves the locale's direction.
    backwards: Option<bool>,
}

impl DataProvider<CollationMetadataV1> for Provider {
    fn load(
        &self,
        req: DataRequest<'_>,
    ) -> std::result::Result<DataResponse<CollationMetadataV1>, DataError> {
        let mut found: DataResponse<CollationMetadataV1> = Baked.load(req)?;
        if let Some(backwards) = self.backwards {
            let bits = found.payload.get().bits & !BACKWARDS;
            found.payload = DataPayload::from_owned(CollationMetadata {
                bits: if backwards { bits | BACKWARDS } else { bits },
            });
        }
        Ok(found)
    }
}

macro_rules! as_it_is {
    ($($marker:ty: $baked:expr),* $(,)?) => {$(
        impl DataProvider<$marker> for Provider {
            fn load(
                &self,
                req: DataRequest<'_>,
            ) -> std::result::Result<DataResponse<$marker>, DataError> {
                $baked.load(req)
            }
        }
    )*};
}

as_it_is! {
    CollationSpecialPrimariesV1: Baked,
    CollationRootV1: Baked,
    CollationTailoringV1: Baked,
    CollationDiacriticsV1: Baked,
    CollationJamoV1: Baked,
    CollationReorderingV1: Baked,
    NormalizerNfdDataV1: Normalizer,
    NormalizerNfdTablesV1: Normalizer,
}

/// Translates a locale in MongoDB's form (`de_AT@collation=phonebook`) into that of the library.
fn preferences(locale: &str) -> Result<CollatorPreferences> {
    let (base, variant) = match locale.split_once("@collation=") {
        Some((base, variant)) => (base, Some(variant)),
        None => (locale, None),
    };
    let base = match base {
        "en_US_POSIX" => "en-US-posix".to_owned(),
        base => base.replace('_', "-"),
    };
    let tag = match variant {
        // BCP 47 names have at most eight letters.
        Some("phonebook") => format!("{base}-u-co-phonebk"),
        Some("traditional") => format!("{base}-u-co-trad"),
        Some("dictionary") => format!("{base}-u-co-dict"),
        Some(variant) => format!("{base}-u-co-{variant}"),
        None => base,
    };
    let parsed: Locale = tag
        .parse()
        .map_err(|_| Error::bad_value(format!("Field 'locale' is invalid: {locale}")))?;
    Ok(parsed.into())
}

fn failed(e: &DataError) -> Error {
    Error::bad_value(format!("this collation is not available: {e}"))
}

/// The defaults of a locale.
///
/// # Errors
/// 2 BadValue for a locale that is not a language tag.
pub(super) fn defaults(locale: &str) -> Result<Defaults> {
    let provider = Provider { backwards: None };
    let c = Collator::try_new_unstable(&provider, preferences(locale)?, CollatorOptions::default())
        .map_err(|e| failed(&e))?;
    let options = c.as_borrowed().resolved_options();
    Ok(Defaults {
        case_first: match options.case_first {
            CollationCaseFirst::Upper => "upper",
            CollationCaseFirst::Lower => "lower",
            _ => "off",
        },
        alternate: match options.alternate_handling {
            AlternateHandling::Shifted => "shifted",
            _ => "non-ignorable",
        },
        // In CLDR, this is the only locale with it.
        backwards: locale.split('@').next() == Some("fr_CA"),
    })
}

impl Texts {
    /// The comparison that a complete collation document describes.
    ///
    /// # Errors
    /// 2 BadValue for a locale that is not a language tag.
    pub(super) fn new(spec: Doc<'_>) -> Result<Texts> {
        let text = |name| spec.get_str(name).unwrap_or_default();
        let flag = |name| spec.get(name).is_some_and(|v| v.truthy());
        let mut options = CollatorOptions::default();
        options.strength = Some(match spec.get("strength").and_then(|v| v.as_i64_exact()) {
            Some(1) => Strength::Primary,
            Some(2) => Strength::Secondary,
            Some(4) => Strength::Quaternary,
            Some(5) => Strength::Identical,
            _ => Strength::Tertiary,
        });
        options.alternate_handling = Some(match text("alternate") {
            "shifted" => AlternateHandling::Shifted,
            _ => AlternateHandling::NonIgnorable,
        });
        options.max_variable = Some(match text("maxVariable") {
            "space" => MaxVariable::Space,
            _ => MaxVariable::Punctuation,
        });
        options.case_level = Some(match flag("caseLevel") {
            true => CaseLevel::On,
            false => CaseLevel::Off,
        });
        let mut preferences = preferences(text("locale"))?;
        preferences.case_first = Some(match text("caseFirst") {
            "upper" => CollationCaseFirst::Upper,
            "lower" => CollationCaseFirst::Lower,
            _ => CollationCaseFirst::False,
        });
        preferences.numeric_ordering = Some(match flag("numericOrdering") {
            true => CollationNumericOrdering::True,
            false => CollationNumericOrdering::False,
        });
        let provider = Provider {
            backwards: Some(flag("backwards")),
        };
        Collator::try_new_unstable(&provider, preferences, options)
            .map(Texts)
            .map_err(|e| failed(&e))
    }

    /// Compares two texts.
    pub(super) fn compare(&self, a: &str, b: &str) -> Ordering {
        self.0.as_borrowed().compare(a, b)
    }

    /// Appends bytes whose `memcmp` order is the order of the texts.
    pub(super) fn sort_key(&self, s: &str, out: &mut Vec<u8>) {
        let Ok(()) = self.0.as_borrowed().write_sort_key_to(s, out);
    }
}
