//! Java property files, in which YCSB's workloads are written, and typed access to their values.

use muniment_load::fail::{Failure, Result};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;

/// Names and values. It records which names were read, so that the others can be reported.
#[derive(Debug, Clone, Default)]
pub(crate) struct Properties {
    values: BTreeMap<String, String>,
    asked: RefCell<BTreeSet<String>>,
}

impl Properties {
    /// Adds the properties of a file; later lines override earlier ones. The format is that of
    /// `java.util.Properties`.
    ///
    /// # Errors
    /// An escape sequence is invalid.
    pub(crate) fn read(&mut self, text: &str) -> Result<()> {
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let mut logical = line.trim_start().to_string();
            if logical.is_empty() || logical.starts_with(['#', '!']) {
                continue;
            }
            while ends_in_backslash(&logical) {
                logical.pop();
                match lines.next() {
                    Some(next) => logical.push_str(next.trim_start()),
                    None => break,
                }
            }
            let (name, value) = split(&logical);
            self.set(&unescape(name)?, &unescape(value)?);
        }
        Ok(())
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_string(), value.to_string());
    }

    /// The value of a property, if it is set.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.asked.borrow_mut().insert(name.to_string());
        self.values.get(name).map(String::as_str)
    }

    /// The value of a property as a number, or `default`.
    ///
    /// # Errors
    /// The value is no such number.
    pub(crate) fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T>
    where
        T::Err: Display,
    {
        match self.text(name).map(str::trim) {
            None => Ok(default),
            Some(v) => v
                .parse()
                .map_err(|e| Failure(format!("property {name}={v}: {e}"))),
        }
    }

    /// Whether the value is `true`; any other value is false, as in Java.
    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        self.text(name)
            .map_or(default, |v| v.trim().eq_ignore_ascii_case("true"))
    }

    /// The properties that were set and never read.
    pub(crate) fn unused(&self) -> Vec<&str> {
        let asked = self.asked.borrow();
        self.values
            .keys()
            .map(String::as_str)
            .filter(|n| !asked.contains(*n))
            .collect()
    }
}

/// Whether an odd number of backslashes ends the line, which continues it in the next line.
fn ends_in_backslash(line: &str) -> bool {
    line.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1
}

/// Splits a line into name and value, both still escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|c: char| {
        let ends = !escaped && (c == '=' || c == ':' || c.is_whitespace());
        escaped = !escaped && c == '\\';
        ends
    });
    let Some(end) = end else { return (line, "") };
    let (name, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (name, rest.trim_start())
}

fn unescape(text: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\x0c'),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16)
                    .ok()
                    .and_then(char::from_u32);
                out.push(
                    code.ok_or_else(|| {
                        Failure(format!("\\u{digits} in '{text}' is no character"))
                    })?,
                );
            }
            Some(c) => out.push(c),
            None => {}
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_as_java_reads_them() {
        let mut p = Properties::default();
        p.read(
            "# comment\n! too\n\nrecordcount=1000\n  spaced : value with blanks  \nempty\n\
             long=a,\\\n    b\nesc\\=aped=x\\ty\\u00e9\nrecordcount=5\nblank key\n",
        )
        .unwrap();
        for (name, want) in [
            ("recordcount", "5"),
            ("spaced", "value with blanks  "),
            ("empty", ""),
            ("long", "a,b"),
            ("esc=aped", "x\tyé"),
            ("blank", "key"),
        ] {
            assert_eq!(p.text(name), Some(want), "{name}");
        }
        assert!(p.read("x=\\uzz").is_err());
    }

    #[test]
    fn values_have_types_and_the_unused_are_known() {
        let mut p = Properties::default();
        p.read("n=12\nbad=x\nyes=TRUE\nno=yes\nrest=1").unwrap();
        assert_eq!(p.number("n", 0_u64).unwrap(), 12);
        assert_eq!(p.number("absent", 7_u64).unwrap(), 7);
        let e = p.number("bad", 0_u64).unwrap_err().0;
        assert!(e.starts_with("property bad=x: "), "{e}");
        assert!(p.flag("yes", false) && !p.flag("no", true) && p.flag("absent", true));
        assert_eq!(p.unused(), ["rest"]);
    }
}
