//! The JSON forms of numbers and bytes. JSON has no NaN and no infinity, so a figure that is not finite is
//! written as `null`, which is read as NaN. Bytes are in base64.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number that may be `null`.
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            s.serialize_f64(self.0)
        } else {
            s.serialize_none()
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Number, D::Error> {
        Ok(Number(Option::<f64>::deserialize(d)?.unwrap_or(f64::NAN)))
    }
}

/// Writes `null` for a number that is not finite.
pub fn serialize<S: Serializer>(x: &f64, s: S) -> Result<S::Ok, S::Error> {
    Number(*x).serialize(s)
}

/// Reads `null` as NaN.
pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Number::deserialize(d).map(|n| n.0)
}

/// Lists of numbers.
pub mod list {
    use super::Number;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes each number separately.
    pub fn serialize<S: Serializer>(x: &[f64], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(x.iter().map(|x| Number(*x)))
    }

    /// Reads each number separately.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<f64>, D::Error> {
        let all = Vec::<Number>::deserialize(d)?;
        Ok(all.into_iter().map(|n| n.0).collect())
    }
}

/// Lists of pairs of numbers.
pub mod pairs {
    use super::Number;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes each pair as an array of two.
    pub fn serialize<S: Serializer>(x: &[(f64, f64)], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(x.iter().map(|(x, y)| (Number(*x), Number(*y))))
    }

    /// Reads each pair from an array of two.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<(f64, f64)>, D::Error> {
        let all = Vec::<(Number, Number)>::deserialize(d)?;
        Ok(all.into_iter().map(|(x, y)| (x.0, y.0)).collect())
    }
}

/// Bytes as standard base64 with padding (RFC 4648).
pub mod base64 {
    use ::base64::Engine;
    use ::base64::engine::general_purpose::STANDARD;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes bytes as text.
    pub fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&STANDARD.encode(bytes))
    }

    /// Reads bytes from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        STANDARD
            .decode(String::deserialize(d)?)
            .map_err(|e| D::Error::custom(format!("no base64: {e}")))
    }
}
