//! Conversions between binary data and text or numbers: formats, byte orders, subtypes.

use crate::expr::ops::text;
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose};
use muniment_value::{Code, Error, Result, Value};

/// The subtype of UUIDs.
pub(super) const UUID: u8 = 4;

/// The longest text that a conversion makes, in bytes.
const MAX_TEXT: usize = 16 << 20;

/// base64url in the forms that MongoDB reads: padded or not.
const URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The text form of binary data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Auto,
    Base64,
    Base64Url,
    Hex,
    Utf8,
    Uuid,
}

impl Format {
    /// The format that the argument `format` names.
    ///
    /// # Errors
    /// 4341115 if there is none, 4341114 if it is not a string, 4341125 for an unknown name.
    pub(super) fn parse(v: Option<Value<'_>>, from: &str, to: &str) -> Result<Format> {
        Ok(match v {
            None => {
                return Err(Error::location(
                    4341115,
                    format!("Format must be specified when converting from '{from}' to '{to}'"),
                ));
            }
            Some(Value::String("auto")) => Format::Auto,
            Some(Value::String("base64")) => Format::Base64,
            Some(Value::String("base64url")) => Format::Base64Url,
            Some(Value::String("hex")) => Format::Hex,
            Some(Value::String("utf8")) => Format::Utf8,
            Some(Value::String("uuid")) => Format::Uuid,
            Some(Value::String(s)) => {
                return Err(Error::location(
                    4341125,
                    format!("Invalid 'format' argument for $convert: {s}"),
                ));
            }
            Some(v) => {
                return Err(Error::location(
                    4341114,
                    format!(
                        "$convert requires that 'format' be a string, found: {} with value {}",
                        v.type_name(),
                        v.to_display()
                    ),
                ));
            }
        })
    }
}

/// Whether the argument `byteOrder` is big endian.
///
/// # Errors
/// 9130001 if it is not a string, 9130002 for an unknown name.
fn is_big(v: Option<Value<'_>>) -> Result<bool> {
    match v {
        None | Some(Value::String("little")) => Ok(false),
        Some(Value::String("big")) => Ok(true),
        Some(Value::String(s)) => Err(Error::location(
            9130002,
            format!("Invalid 'byteOrder' argument for $convert: {s}"),
        )),
        Some(v) => Err(Error::location(
            9130001,
            format!(
                "$convert requires that 'byteOrder' be a string, found: {} with value {}",
                v.type_name(),
                v.to_display()
            ),
        )),
    }
}

/// The subtype that `to.subtype` names.
///
/// # Errors
/// 4341108 if it is not a number, 4341106 if it is not a whole one, 4341107 if BSON has no such subtype.
pub(super) fn subtype(v: Value<'_>) -> Result<u8> {
    if !v.is_number() {
        return Err(Error::location(
            4341108,
            format!(
                "$convert's 'subtype' argument must be numeric, but is {}",
                v.type_name()
            ),
        ));
    }
    let n = v.as_i64_exact().ok_or_else(|| {
        Error::location(
            4341106,
            "In $convert, numeric 'subtype' argument is not an integer",
        )
    })?;
    u8::try_from(n)
        .ok()
        .filter(|n| matches!(n, 0..=9 | 128..=255))
        .ok_or_else(|| {
            Error::location(
                4341107,
                format!(
                    "In $convert, numeric value for 'subtype' does not correspond to a BinData type: {n}"
                ),
            )
        })
}

/// The text of binary data.
///
/// # Errors
/// 241 if the format does not fit the data, or the text is too long.
pub(super) fn to_text(bytes: &[u8], sub: u8, format: Format) -> Result<String> {
    let no_text = |why: &str| {
        let subtype = sub;
        let value = Value::Binary { subtype, bytes }.to_display();
        Error::new(
            Code::ConversionFailure,
            format!(
                "Failed to convert '{value}' to string in $convert with no onError value: {why}"
            ),
        )
    };
    let format = match format {
        Format::Auto if sub == UUID && bytes.len() == 16 => Format::Uuid,
        Format::Auto => Format::Base64,
        f => f,
    };
    let long = match format {
        Format::Base64 | Format::Base64Url => bytes.len().div_ceil(3) * 4,
        Format::Hex => bytes.len() * 2,
        _ => 0,
    };
    if long >= MAX_TEXT {
        return Err(super::failure(
            "Resulting string value exceeds maximum size (16MB)",
        ));
    }
    Ok(match format {
        Format::Auto | Format::Base64 => general_purpose::STANDARD.encode(bytes),
        Format::Base64Url => URL.encode(bytes),
        Format::Hex => text::hex(bytes).to_ascii_uppercase(),
        Format::Utf8 => std::str::from_utf8(bytes)
            .map_err(|_| no_text("BinData does not represent a valid UTF-8 string"))?
            .to_string(),
        Format::Uuid if sub != UUID || bytes.len() != 16 => {
            return Err(no_text("BinData does not represent a valid UUID"));
        }
        Format::Uuid => {
            let hex = text::hex(bytes);
            let part = |from, to| hex.get(from..to).unwrap_or_default();
            format!(
                "{}-{}-{}-{}-{}",
                part(0, 8),
                part(8, 12),
                part(12, 16),
                part(16, 20),
                part(20, 32)
            )
        }
    })
}

/// The bytes for which a text stands.
///
/// # Errors
/// 241 if the text is not in the format, or the format does not fit the subtype.
pub(super) fn from_text(s: &str, sub: u8, format: Format) -> Result<Vec<u8>> {
    let unparsable = |why: &str| super::unparsable("BinData", s, why);
    if (format == Format::Uuid) != (sub == UUID) {
        return Err(unparsable(
            "Only the 'uuid' format is allowed with the UUID subtype",
        ));
    }
    let base64 = |engine: &GeneralPurpose, least: usize| {
        let last = match s.len() % 4 {
            0 => 4,
            n => n,
        };
        engine.decode(s).map_err(|_| {
            unparsable(match last < least {
                true => "invalid base64",
                false => "Invalid base64 character",
            })
        })
    };
    match format {
        Format::Base64 => base64(&general_purpose::STANDARD, 4),
        Format::Base64Url => base64(&URL, 2),
        Format::Hex if s.len() % 2 == 1 => Err(unparsable("Hex blob with odd digit count")),
        Format::Hex => from_hex(s).ok_or_else(|| {
            let wrong = s.bytes().find(|b| !b.is_ascii_hexdigit()).unwrap_or(0);
            unparsable(&format!(
                "The character \\x{wrong:02x} failed to parse from hex."
            ))
        }),
        Format::Utf8 => Ok(s.as_bytes().to_vec()),
        Format::Auto => Err(unparsable("Invalid format 'auto'")),
        Format::Uuid => {
            let dashes = s.bytes().enumerate().all(|(i, b)| {
                let here = matches!(i, 8 | 13 | 18 | 23);
                (b == b'-') == here
            });
            (s.len() == 36 && dashes)
                .then(|| from_hex(&s.replace('-', "")))
                .flatten()
                .ok_or_else(|| unparsable(&format!("Invalid UUID string: {s}")))
        }
    }
}

fn from_hex(s: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16);
    s.as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            [a, b] => u8::try_from(digit(*a)? * 16 + digit(*b)?).ok(),
            _ => None,
        })
        .collect()
}

/// A number's bytes, as wide as its type; `None` for types that do not convert.
///
/// # Errors
/// See [`is_big`].
pub(super) fn from_number(v: Value<'_>, order: Option<Value<'_>>) -> Result<Option<Vec<u8>>> {
    let mut bytes = match v {
        Value::Int32(n) => n.to_le_bytes().to_vec(),
        Value::Int64(n) => n.to_le_bytes().to_vec(),
        Value::Double(n) => n.to_le_bytes().to_vec(),
        _ => return Ok(None),
    };
    if is_big(order)? {
        bytes.reverse();
    }
    Ok(Some(bytes))
}

/// The signed whole number in at most this many bytes.
///
/// # Errors
/// 241 for a length other than 1, 2, 4 or (if allowed) 8.
pub(super) fn to_whole(bytes: &[u8], most: usize, order: Option<Value<'_>>) -> Result<i64> {
    if !matches!(bytes.len(), 1 | 2 | 4 | 8) || bytes.len() > most {
        return Err(wrong_length(bytes.len()));
    }
    let mut le = bytes.to_vec();
    if is_big(order)? {
        le.reverse();
    }
    let fill = if le.last().is_some_and(|b| *b >= 128) {
        255
    } else {
        0
    };
    let mut wide = [fill; 8];
    for (to, from) in wide.iter_mut().zip(&le) {
        *to = *from;
    }
    Ok(i64::from_le_bytes(wide))
}

/// The floating point number in 4 or 8 bytes.
///
/// # Errors
/// 241 for any other length.
pub(super) fn to_double(bytes: &[u8], order: Option<Value<'_>>) -> Result<f64> {
    if !matches!(bytes.len(), 4 | 8) {
        return Err(wrong_length(bytes.len()));
    }
    let mut le = bytes.to_vec();
    if is_big(order)? {
        le.reverse();
    }
    if let Ok(four) = <[u8; 4]>::try_from(le.as_slice()) {
        return Ok(f32::from_le_bytes(four).into());
    }
    <[u8; 8]>::try_from(le.as_slice())
        .map(f64::from_le_bytes)
        .map_err(|_| wrong_length(le.len()))
}

fn wrong_length(n: usize) -> Error {
    super::failure(format_args!(
        "Failed to convert binData to a number: it has {n} bytes"
    ))
}
