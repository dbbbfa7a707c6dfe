//! The preparation of passwords (SASLprep, RFC 4013), so that one password typed on two keyboards is the same
//! password.
//!
//! Only SCRAM-SHA-256 prepares its passwords. User names are compared as they are, as in MongoDB.

use muniment_value::{Error, Result};
use std::borrow::Cow;
use stringprep::tables;

/// Prepares a password for SCRAM-SHA-256. A password of printable ASCII characters stays as it is.
///
/// # Errors
/// 50687 for an empty password, and 50692 for one that has characters that are not allowed (control
/// characters, private use, not in Unicode 3.2 …), that mixes directions of writing, or of which nothing
/// remains. Neither says more about the password.
pub fn sasl_prep(password: &str) -> Result<Cow<'_, str>> {
    if password.is_empty() {
        return Err(Error::location(
            50687,
            "Error preflighting UTF-8 conversion: U_STRING_NOT_TERMINATED_WARNING",
        ));
    }
    if password.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return Ok(Cow::Borrowed(password));
    }
    // The crate looks for these only after the normalization, which newer Unicode may have taught to
    // turn them into others.
    if password.chars().any(tables::unassigned_code_point) {
        return Err(refused("U_STRINGPREP_UNASSIGNED_ERROR"));
    }
    match stringprep::saslprep(password) {
        Ok(prepared) if prepared.is_empty() => Err(refused("U_STRING_NOT_TERMINATED_WARNING")),
        Ok(prepared) => Ok(prepared),
        // The error's text has the character that is prohibited: it goes no further than this.
        Err(e) if e.to_string().contains("bidirectional") => {
            Err(refused("U_STRINGPREP_CHECK_BIDI_ERROR"))
        }
        Err(_) => Err(refused("U_STRINGPREP_PROHIBITED_ERROR")),
    }
}

/// The error for a password that cannot be prepared. MongoDB names the reason as its Unicode library does.
fn refused(reason: &str) -> Error {
    Error::location(50692, format!("Error preflighting normalization: {reason}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn prepares() {
        for (from, to) in [
            ("pencil", "pencil"),
            ("two words ~!", "two words ~!"),
            ("I\u{ad}X", "IX"),
            ("USER", "USER"),
            ("\u{aa}", "a"),
            ("\u{2168}", "IX"),
            ("a\u{a0}b", "a b"),
            ("a\u{2060}b", "ab"),
            ("e\u{301}", "\u{e9}"),
            ("\u{5d0}\u{5d1}", "\u{5d0}\u{5d1}"),
        ] {
            assert_eq!(sasl_prep(from).unwrap(), to, "{from:?}");
        }
        assert!(matches!(sasl_prep("pencil"), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn refuses() {
        for (password, reason) in [
            ("zq\u{0}", "PROHIBITED"),
            ("zq\u{7}", "PROHIBITED"),
            ("zq\u{7f}", "PROHIBITED"),
            ("zq\u{85}", "PROHIBITED"),
            ("zq\u{e000}", "PROHIBITED"),
            ("zq\u{fffd}", "PROHIBITED"),
            ("\u{627}1", "CHECK_BIDI"),
            ("zq\u{627}", "CHECK_BIDI"),
            ("zq\u{1f600}", "UNASSIGNED"),
            ("zq\u{1f100}", "UNASSIGNED"),
        ] {
            let e = sasl_prep(password).unwrap_err();
            let text = format!("Error preflighting normalization: U_STRINGPREP_{reason}_ERROR");
            assert_eq!((e.code().0, e.message()), (50692, &*text), "{password:?}");
            assert!(!format!("{e:?}{e}").contains("zq"));
        }
        assert_eq!(sasl_prep("").unwrap_err().code().0, 50687);
        assert_eq!(sasl_prep("\u{ad}").unwrap_err().code().0, 50692);
    }
}
