//! Regular expressions, which are those of PCRE2, as in MongoDB.
//!
//! A pattern cannot hang the server: a setting at the start of every pattern gives PCRE2 a match limit, and
//! reaching it is an error. Patterns that are only an anchored literal do not use the engine.

use muniment_value::{Error, Result, Value};
use std::sync::Arc;

/// The most steps of one match (PCRE2's match limit). They take some tens of milliseconds at worst.
const MATCH_LIMIT: u32 = 1_000_000;

/// The greatest length of a pattern in bytes, which is MongoDB's limit.
const MAX_PATTERN: usize = 16_384;

/// A compiled regular expression with its source.
#[derive(Clone, Debug)]
pub struct Regex {
    /// The pattern.
    pub pattern: String,
    /// The options, sorted.
    pub options: String,
    prefix: Option<(String, bool)>,
    engine: Engine,
}

#[derive(Clone, Debug)]
enum Engine {
    /// The text must start with the prefix.
    Prefix,
    Pcre(Arc<pcre2::bytes::Regex>),
}

impl Regex {
    /// Compiles a pattern with the options i, m, s, x, u.
    ///
    /// # Errors
    /// 51091 for a pattern that is not valid, 51108 for an unknown option.
    pub fn new(pattern: &str, options: &str) -> Result<Regex> {
        let invalid =
            |m: &str| Error::location(51091, format!("Regular expression is invalid: {m}"));
        if pattern.len() > MAX_PATTERN {
            return Err(invalid(&format!(
                "pattern of {} bytes is longer than {MAX_PATTERN}",
                pattern.len()
            )));
        }
        let flag = |c: char| Error::location(51108, format!("invalid flag in regex options: {c}"));
        if let Some(c) = options.chars().find(|c| !FLAGS.contains(c)) {
            return Err(flag(c));
        }
        if pattern.contains('\0') || options.contains('\0') {
            return Err(Error::bad_value(
                "Regular expression cannot contain an embedded null byte",
            ));
        }
        let mut sorted: Vec<char> = options.chars().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let prefix = literal_prefix(pattern, options);
        let engine = match &prefix {
            Some((_, true)) => Engine::Prefix,
            _ => {
                let compiled = compile(pattern, options).map_err(|e| match e {
                    CompileError::Flag(c) => flag(c),
                    CompileError::Pattern(m) => invalid(&m),
                })?;
                Engine::Pcre(Arc::new(compiled))
            }
        };
        Ok(Regex {
            pattern: pattern.to_string(),
            options: sorted.into_iter().collect(),
            prefix,
            engine,
        })
    }

    /// Compiles a regular expression value.
    ///
    /// # Errors
    /// See [`Regex::new`].
    pub fn from_value(pattern: &str, options: &str) -> Result<Regex> {
        Regex::new(pattern, options)
    }

    /// Whether a text matches.
    ///
    /// # Errors
    /// 51156 when the match needs more steps than allowed.
    pub fn is_match(&self, text: &[u8]) -> Result<bool> {
        match &self.engine {
            Engine::Prefix => Ok(self
                .prefix
                .as_ref()
                .is_some_and(|(p, _)| text.starts_with(p.as_bytes()))),
            Engine::Pcre(re) => re.is_match(text).map_err(|e| {
                Error::location(
                    51156,
                    format!(
                        "Error occurred while executing regular expression /{}/{}: {e}",
                        self.pattern, self.options
                    ),
                )
            }),
        }
    }

    /// The literal that every matching string starts with, for index bounds, and whether every string that
    /// starts with it matches (`^abc`). `None` for patterns without such a literal.
    pub fn literal_prefix(&self) -> Option<(&str, bool)> {
        self.prefix.as_ref().map(|(p, exact)| (p.as_str(), *exact))
    }

    /// The regular expression as a value.
    pub fn as_value(&self) -> Value<'_> {
        Value::Regex {
            pattern: &self.pattern,
            options: &self.options,
        }
    }
}

/// The flags a pattern may have.
const FLAGS: [char; 5] = ['i', 'm', 's', 'u', 'x'];

/// The reasons why a pattern cannot be compiled.
#[derive(Debug)]
pub(crate) enum CompileError {
    /// An unknown flag.
    Flag(char),
    /// The fault of the pattern.
    Pattern(String),
}

/// Compiles a pattern with the options i, m, s, x, u, and puts the limit on steps before it.
///
/// # Errors
/// See [`CompileError`].
pub(crate) fn compile(
    pattern: &str,
    options: &str,
) -> std::result::Result<pcre2::bytes::Regex, CompileError> {
    compile_for(pattern, options, true)
}

/// As [`compile`], for texts that are ASCII. PCRE2 then does not check all of the text for valid UTF-8 before
/// each match. `None` for patterns that need UTF-8 anyway.
pub(crate) fn compile_ascii(pattern: &str, options: &str) -> Option<pcre2::bytes::Regex> {
    if !pattern.is_ascii() || pattern.contains("(*") {
        return None;
    }
    compile_for(pattern, options, false).ok()
}

fn compile_for(
    pattern: &str,
    options: &str,
    utf: bool,
) -> std::result::Result<pcre2::bytes::Regex, CompileError> {
    let mut builder = pcre2::bytes::RegexBuilder::new();
    builder.utf(utf).jit_if_available(true);
    for c in options.chars() {
        match c {
            'i' => builder.caseless(true),
            'm' => builder.multi_line(true),
            's' => builder.dotall(true),
            'x' => builder.extended(true),
            'u' => &mut builder,
            c => return Err(CompileError::Flag(c)),
        };
    }
    builder
        .build(&format!("(*LIMIT_MATCH={MATCH_LIMIT}){pattern}"))
        .map_err(|e| {
            let text = e.to_string();
            // An example: "PCRE2: error compiling pattern at offset 7: missing closing parenthesis".
            CompileError::Pattern(text.splitn(3, ": ").nth(2).unwrap_or(&text).to_owned())
        })
}

/// See [`Regex::literal_prefix`]. It is conservative: everything that is not clearly a literal ends the
/// prefix.
fn literal_prefix(pattern: &str, options: &str) -> Option<(String, bool)> {
    if options.contains(['i', 'm', 'x']) {
        return None;
    }
    let rest = pattern
        .strip_prefix('^')
        .or_else(|| pattern.strip_prefix("\\A"))?;
    // In an alternative, the anchor only holds for one branch.
    if rest.contains('|') {
        return None;
    }
    let mut prefix = String::new();
    let mut chars = rest.chars();
    let exact = loop {
        let before = chars.as_str();
        match chars.next() {
            None => break true,
            Some('\\') => match chars.next() {
                Some(c) if !c.is_alphanumeric() && c.is_ascii() => prefix.push(c),
                _ => break false,
            },
            // With these quantifiers the character before may be absent.
            Some('*' | '?' | '{') => {
                prefix.pop();
                break false;
            }
            Some('.') if before == ".*" => break true,
            Some('.' | '+' | '(' | ')' | '[' | ']' | '}' | '^' | '$') => break false,
            Some(c) => prefix.push(c),
        }
    };
    (!prefix.is_empty()).then_some((prefix, exact))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn literal_prefixes() {
        for (pattern, options, want) in [
            ("^abc", "", Some(("abc", true))),
            ("\\Aabc", "", Some(("abc", true))),
            ("^abc.*", "", Some(("abc", true))),
            ("^abc$", "", Some(("abc", false))),
            ("^abc", "s", Some(("abc", true))),
            ("^abc", "i", None),
            ("^abc", "m", None),
            ("^a bc", "x", None),
            ("abc", "", None),
            ("^abc|d", "", None),
            ("^ab*", "", Some(("a", false))),
            ("^ab+", "", Some(("ab", false))),
            ("^ab{2}", "", Some(("a", false))),
            ("^a\\.b", "", Some(("a.b", true))),
            ("^a\\d", "", Some(("a", false))),
            ("^é?", "", None),
            ("^", "", None),
            ("^(abc)", "", None),
        ] {
            let re = Regex::new(pattern, options).unwrap();
            assert_eq!(re.literal_prefix(), want, "/{pattern}/{options}");
        }
    }

    #[test]
    fn matching() {
        for (pattern, options, text, want) in [
            ("^ab", "", "abc", true),
            ("^ab", "", "cab", false),
            ("AB", "i", "xaby", true),
            ("^b", "m", "a\nb", true),
            ("a.b", "", "a\nb", false),
            ("a.b", "s", "a\nb", true),
            ("a b", "x", "ab", true),
            ("^É", "i", "é", true),
            ("^.$", "u", "é", true),
            ("(?<=a)b", "", "ab", true),
            ("(a)\\1", "", "aa", true),
        ] {
            let re = Regex::new(pattern, options).unwrap();
            assert_eq!(
                re.is_match(text.as_bytes()).unwrap(),
                want,
                "/{pattern}/{options} {text}"
            );
        }
    }

    #[test]
    fn bad_patterns_and_options() {
        let e = Regex::new("a(", "").unwrap_err();
        assert_eq!(e.code().0, 51091);
        assert_eq!(
            e.message(),
            "Regular expression is invalid: missing closing parenthesis"
        );
        assert_eq!(Regex::new("a", "z").unwrap_err().code().0, 51108);
        assert_eq!(Regex::new("a\0b", "").unwrap_err().code().0, 2);
        assert_eq!(
            Regex::new(&"a".repeat(40_000), "").unwrap_err().code().0,
            51091
        );
    }

    #[test]
    fn a_pattern_that_would_run_for_ever_is_stopped() {
        let re = Regex::new("^(([a-z])+.)+[A-Z]([a-z])+$", "").unwrap();
        let e = re.is_match("a".repeat(200).as_bytes()).unwrap_err();
        assert_eq!(e.code().0, 51156);
    }
}
