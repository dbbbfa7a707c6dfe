//! `$regexFind`, `$regexFindAll`, `$regexMatch`, with PCRE2 like the filters.
//!
//! Compiled patterns are cached per thread, so that a constant pattern is compiled once, and not for each
//! document. No pattern can run for long: see [`crate::filter::regex`]; a loop over many matches counts its
//! steps.

use super::{NULL, arg_some};
use crate::expr::{Arity, EvalContext, Expr, OpSpec, Parser, arena};
use crate::filter::regex::{self, CompileError};
use crate::running::Work;
use muniment_value::{Doc, Error, Result, Value};
use pcre2::bytes::{CaptureLocations, Regex};
use std::cell::RefCell;
use std::rc::Rc;

/// The specification of `$regexFind`.
pub(super) const FIND: OpSpec = OpSpec::new(
    "$regexFind",
    Arity::Custom(|v, p| parse("$regexFind", v, p)),
    "The first match of a regular expression: its text, code point index and captures; or null.",
    |args, ctx| {
        let Some(mut s) = Search::new("$regexFind", args, ctx)? else {
            return NULL;
        };
        Ok(Some(match s.next(ctx)? {
            Some(found) => Value::Document(found),
            None => Value::Null,
        }))
    },
);

/// The specification of `$regexFindAll`.
pub(super) const FIND_ALL: OpSpec = OpSpec::new(
    "$regexFindAll",
    Arity::Custom(|v, p| parse("$regexFindAll", v, p)),
    "Every match of a regular expression: its text, code point index and captures.",
    |args, ctx| {
        let Some(mut s) = Search::new("$regexFindAll", args, ctx)? else {
            return Ok(Some(Value::Array(Doc::EMPTY)));
        };
        let all = arena::build_array(ctx.arena, |w| {
            while let Some(found) = s.next(ctx)? {
                w.push(&Value::Document(found))?;
                arena::step(ctx.arena)?;
                if s.at_end() {
                    break;
                }
            }
            Ok(())
        })?;
        Ok(Some(Value::Array(all)))
    },
);

/// The specification of `$regexMatch`.
pub(super) const MATCH: OpSpec = OpSpec::new(
    "$regexMatch",
    Arity::Custom(|v, p| parse("$regexMatch", v, p)),
    "Whether a regular expression matches.",
    |args, ctx| {
        let found = match Search::new("$regexMatch", args, ctx)? {
            Some(s) => s.is_match()?,
            None => false,
        };
        Ok(Some(Value::Bool(found)))
    },
);

/// The operand's fields as arguments: input, regex, options (a constant null if it is missing).
fn parse(op: &str, operand: Value<'_>, p: &mut Parser<'_>) -> Result<Vec<Expr>> {
    let Value::Document(d) = operand else {
        return Err(Error::location(
            51103,
            format!(
                "{op} expects an object of named arguments but found: {}",
                operand.type_name()
            ),
        ));
    };
    let (mut input, mut regex, mut options) = (None, None, None);
    for e in d {
        let slot = match e.name() {
            "input" => &mut input,
            "regex" => &mut regex,
            "options" => &mut options,
            name => {
                return Err(Error::location(
                    31024,
                    format!("{op} found unknown argument: {name}"),
                ));
            }
        };
        *slot = Some(p.parse(e.value())?);
    }
    let need = |e: Option<Expr>, code, name: &str| {
        e.ok_or_else(|| Error::location(code, format!("{op} requires '{name}' parameter")))
    };
    Ok(vec![
        need(input, 31022, "input")?,
        need(regex, 31023, "regex")?,
        options.unwrap_or_else(|| Expr::constant(Value::Null)),
    ])
}

/// A pattern, compiled for all texts and, if possible, for ASCII ones.
struct Compiled {
    utf: Regex,
    ascii: Option<Regex>,
}

/// Shorter texts are not checked for characters beyond ASCII.
const SHORT: usize = 256;

/// After searching this many bytes the operation checks whether it may continue.
const CHECK_EVERY: usize = 4 << 20;

/// A search in a text.
struct Search<'a> {
    work: Work<'a>,
    op: &'static str,
    compiled: Rc<Compiled>,
    ascii: bool,
    /// The bytes that were searched since the last check of the operation.
    searched: usize,
    /// The positions of the groups in the last match, allocated for the first match.
    places: Option<CaptureLocations>,
    text: &'a str,
    /// The byte at which the search for the next match begins, and its code point index.
    from: usize,
    index: usize,
}

fn failed(op: &str, e: &pcre2::Error) -> Error {
    Error::location(
        51156,
        format!("Error occurred while executing the regular expression in {op}. Result code: {e}"),
    )
}

impl<'a> Search<'a> {
    /// Begins a search; `None` if the input or the pattern is null.
    fn new(op: &'static str, args: &'a [Expr], ctx: &EvalContext<'a>) -> Result<Option<Self>> {
        let input = arg_some(args, 0, ctx)?;
        let pattern = arg_some(args, 1, ctx)?;
        let options = arg_some(args, 2, ctx)?;
        let options = match options {
            None => None,
            Some(Value::String(s)) => Some(s),
            Some(_) => {
                return Err(Error::location(
                    51106,
                    format!("{op} needs 'options' to be of type string"),
                ));
            }
        };
        let regex = match pattern {
            None => None,
            Some(Value::String(s)) => Some(cached(op, s, options.unwrap_or_default())?),
            Some(Value::Regex {
                pattern,
                options: own,
            }) => {
                if options.is_some() && !own.is_empty() {
                    return Err(Error::location(
                        51107,
                        format!(
                            "{op}: found regex option(s) specified in both 'regex' and 'option' fields"
                        ),
                    ));
                }
                Some(cached(op, pattern, options.unwrap_or(own))?)
            }
            Some(_) => {
                return Err(Error::location(
                    51105,
                    format!("{op} needs 'regex' to be of type string or regex"),
                ));
            }
        };
        let text = match input {
            None => None,
            Some(Value::String(s)) => Some(s),
            Some(_) => {
                return Err(Error::location(
                    51104,
                    format!("{op} needs 'input' to be of type string"),
                ));
            }
        };
        let (Some(regex), Some(text)) = (regex, text) else {
            return Ok(None);
        };
        let ascii = text.len() >= SHORT && regex.ascii.is_some() && text.is_ascii();
        Ok(Some(Search {
            op,
            places: None,
            compiled: regex,
            ascii,
            searched: 0,
            work: ctx.work(),
            text,
            from: 0,
            index: 0,
        }))
    }

    /// Whether the text matches.
    fn is_match(&self) -> Result<bool> {
        let ascii = self.compiled.ascii.as_ref().filter(|_| self.ascii);
        ascii
            .unwrap_or(&self.compiled.utf)
            .is_match(self.text.as_bytes())
            .map_err(|e| failed(self.op, &e))
    }

    fn at_end(&self) -> bool {
        self.from >= self.text.len()
    }

    /// The byte range of the next match.
    fn locate(&mut self) -> Result<Option<(usize, usize)>> {
        let bytes = self.text.as_bytes();
        self.searched += bytes.len() - self.from.min(bytes.len());
        if self.searched >= CHECK_EVERY {
            self.searched = 0;
            self.work.check()?;
        }
        let ascii = self.compiled.ascii.as_ref().filter(|_| self.ascii);
        let regex = ascii.unwrap_or(&self.compiled.utf);
        let places = self.places.get_or_insert_with(|| regex.capture_locations());
        let found = regex
            .captures_read_at(places, bytes, self.from)
            .map_err(|e| failed(self.op, &e))?;
        Ok(found.map(|m| (m.start(), m.end())))
    }

    /// The next match as a document. The search then continues after it.
    fn next(&mut self, ctx: &EvalContext<'a>) -> Result<Option<Doc<'a>>> {
        let Some((start, end)) = self.locate()? else {
            return Ok(None);
        };
        let piece = |from, to| self.text.get(from..to).unwrap_or_default();
        let index = self.index + piece(self.from, start).chars().count();
        let idx = i32::try_from(index).unwrap_or(i32::MAX);
        let captures = arena::build_array(ctx.arena, |w| {
            let Some(places) = &self.places else {
                return Ok(());
            };
            for i in 1..places.len() {
                match places.get(i) {
                    Some((from, to)) => w.push(piece(from, to))?,
                    None => w.push(&Value::Null)?,
                }
            }
            Ok(())
        })?;
        let found = arena::build_doc(ctx.arena, |w| {
            w.put("match", piece(start, end));
            w.put("idx", &idx);
            w.put("captures", &Value::Array(captures));
            Ok(())
        })?;
        // After an empty match, one character is skipped, since its match was found.
        let next = match piece(start, end) {
            "" => {
                start
                    + piece(start, self.text.len())
                        .chars()
                        .next()
                        .map_or(1, char::len_utf8)
            }
            _ => end,
        };
        self.index = index + piece(start, next.min(self.text.len())).chars().count();
        self.from = next;
        Ok(Some(found))
    }
}

/// How many compiled patterns a thread keeps.
const KEPT: usize = 16;

struct Kept {
    pattern: String,
    options: String,
    regex: Rc<Compiled>,
}

thread_local! {
    static CACHE: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// The compiled pattern, from the thread's cache if possible. The last used pattern is the first in the
/// cache.
fn cached(op: &str, pattern: &str, options: &str) -> Result<Rc<Compiled>> {
    CACHE.with_borrow_mut(|all| {
        let at = all
            .iter()
            .position(|k| k.pattern == pattern && k.options == options);
        if let Some(at) = at {
            if let Some(head) = all.get_mut(..=at) {
                head.rotate_right(1);
            }
        } else {
            let regex = Rc::new(compile(op, pattern, options)?);
            all.truncate(KEPT - 1);
            all.insert(
                0,
                Kept {
                    pattern: pattern.to_owned(),
                    options: options.to_owned(),
                    regex,
                },
            );
        }
        all.first()
            .map(|k| Rc::clone(&k.regex))
            .ok_or_else(|| Error::internal("no compiled pattern"))
    })
}

/// The longest pattern of an expression, in bytes.
const MAX_PATTERN: usize = 16 << 10;

fn compile(op: &str, pattern: &str, options: &str) -> Result<Compiled> {
    let bad = |m: &str| Error::location(51111, format!("Invalid Regex in {op}: {m}"));
    if pattern.contains('\0') {
        return Err(Error::location(
            51109,
            format!("{op}: regular expression cannot contain an embedded null byte"),
        ));
    }
    if options.contains('\0') {
        return Err(Error::location(
            51110,
            format!("{op}: regular expression options cannot contain an embedded null byte"),
        ));
    }
    if pattern.len() > MAX_PATTERN {
        return Err(bad("regular expression is too large"));
    }
    let utf = regex::compile(pattern, options).map_err(|e| match e {
        CompileError::Flag(c) => {
            Error::location(51108, format!("{op}: invalid flag in regex options: {c}"))
        }
        CompileError::Pattern(m) => bad(&m),
    })?;
    let ascii = regex::compile_ascii(pattern, options);
    Ok(Compiled { utf, ascii })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use crate::expr::testing::*;

    #[test]
    fn find() {
        table(
            "{'s': 'aébéb', 'n': null, 'i': 1, 'p': 'é(b)?'}",
            &[
                (
                    "{'$regexFind': {'input': '$s', 'regex': '$p'}}",
                    Gives("{'match': 'éb', 'idx': 1, 'captures': ['b']}"),
                ),
                (
                    "{'$regexFind': {'input': '$s', 'regex': '(x)|(b)'}}",
                    Gives("{'match': 'b', 'idx': 2, 'captures': [null, 'b']}"),
                ),
                (
                    "{'$regexFind': {'input': '$s', 'regex': 'z'}}",
                    Gives("null"),
                ),
                (
                    "{'$regexFind': {'input': '$n', 'regex': 'z'}}",
                    Gives("null"),
                ),
                (
                    "{'$regexFind': {'input': 'AB', 'regex': ['$re', 'b', 'i']}}",
                    Gives("{'match': 'B', 'idx': 1, 'captures': []}"),
                ),
                (
                    "{'$regexFind': {'input': 'AB', 'regex': 'b', 'options': 'i'}}",
                    Gives("{'match': 'B', 'idx': 1, 'captures': []}"),
                ),
                ("{'$regexFind': 1}", Fails(51103)),
                ("{'$regexFind': {'regex': 'a'}}", Fails(31022)),
                ("{'$regexFind': {'input': 'a'}}", Fails(31023)),
                (
                    "{'$regexFind': {'input': 'a', 'regex': 'a', 'x': 1}}",
                    Fails(31024),
                ),
                (
                    "{'$regexFind': {'input': '$i', 'regex': 'a'}}",
                    Fails(51104),
                ),
                (
                    "{'$regexFind': {'input': '$i', 'regex': '$i'}}",
                    Fails(51105),
                ),
                (
                    "{'$regexFind': {'input': '$n', 'regex': 'a', 'options': '$i'}}",
                    Fails(51106),
                ),
                (
                    "{'$regexFind': {'input': '$i', 'regex': ['$re', 'b', 'i'], 'options': ''}}",
                    Fails(51107),
                ),
                (
                    "{'$regexFind': {'input': '$n', 'regex': 'a', 'options': 'z'}}",
                    Fails(51108),
                ),
                (
                    "{'$regexFind': {'input': '$n', 'regex': '(a'}}",
                    Fails(51111),
                ),
                (
                    "{'$regexFind': {'input': '$n', 'regex': '$n', 'options': 'z'}}",
                    Gives("null"),
                ),
            ],
        );
    }

    #[test]
    fn long_texts_are_searched_alike() {
        for (text, regex) in [
            ("ab", "a(b)"),
            ("aé", "(?i)É|a"),
            ("aB", "(?i)\\\\x{62}|A"),
            ("a b", "\\\\w|\\\\s"),
            ("xyz", "[^é]"),
        ] {
            let count = |n: usize| {
                let input = text.repeat(n);
                format!(
                    "{{'$size': {{'$regexFindAll': {{'input': '{input}', 'regex': '{regex}'}}}}}}"
                )
            };
            let number = |expr: &str| {
                let ctx = crate::context::QueryContext::new();
                let e = value(expr);
                let e = crate::expr::Expr::parse(e.as_value(), &ctx).expect("valid");
                e.as_constant().and_then(|v| v.as_i64_exact())
            };
            let (one, many) = (number(&count(1)), number(&count(500)));
            assert_eq!(one.map(|n| n * 500), many, "{text} {regex}");
            assert!(one > Some(0), "{text} {regex}");
        }
    }

    #[test]
    fn all_and_match() {
        table(
            "{'s': 'aébéb', 'n': null}",
            &[
                (
                    "{'$regexFindAll': {'input': '$s', 'regex': 'éb'}}",
                    Gives(
                        "[{'match': 'éb', 'idx': 1, 'captures': []}, {'match': 'éb', 'idx': 3, 'captures': []}]",
                    ),
                ),
                (
                    "{'$map': {'input': {'$regexFindAll': {'input': '$s', 'regex': ''}}, 'in': '$$this.idx'}}",
                    Gives("[0, 1, 2, 3, 4]"),
                ),
                (
                    "{'$regexFindAll': {'input': '', 'regex': ''}}",
                    Gives("[{'match': '', 'idx': 0, 'captures': []}]"),
                ),
                (
                    "{'$map': {'input': {'$regexFindAll': {'input': 'baab', 'regex': '(?<=b)a|a$'}}, 'in': '$$this.match'}}",
                    Gives("['a']"),
                ),
                (
                    "{'$regexFindAll': {'input': '$n', 'regex': 'a'}}",
                    Gives("[]"),
                ),
                (
                    "{'$regexMatch': {'input': '$s', 'regex': 'b$'}}",
                    Gives("true"),
                ),
                (
                    "{'$regexMatch': {'input': '$n', 'regex': 'b$'}}",
                    Gives("false"),
                ),
                (
                    "{'$regexMatch': {'input': 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'regex': '^(([a-z])+.)+[A-Z]([a-z])+$'}}",
                    Fails(51156),
                ),
            ],
        );
    }
}
