//! The ratchet: the ids of the tests that pass, in a folded form that keeps the file small and its changes
//! readable.
//!
//! A line without indentation names a test file. The lines below it each have a test function: a space, its
//! name, and its parameter sets, separated by tabs. The engine's name, with which every parameter set starts,
//! is left out. A parameter set that is only this name is `-`, and one that does not start with it comes
//! after `=`.

use std::collections::BTreeSet;
use std::fmt::Write;

const HEAD: &str = "# Tests of documentdb/functional-tests that pass; `cargo xtask conformance --update` writes this file.\n";
const ENGINE: &str = "mongodb";

/// Parses the file's text. An unknown form is an error that names the line.
pub fn parse(text: &str) -> Result<BTreeSet<String>, String> {
    let mut ids = BTreeSet::new();
    let mut file = "";
    for (n, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(rest) = line.strip_prefix(' ') else {
            file = line;
            continue;
        };
        if file.is_empty() {
            return Err(format!("line {}: a test without a file", n + 1));
        }
        let mut fields = rest.split('\t');
        let function = fields.next().unwrap_or_default();
        let mut bare = true;
        for field in fields {
            bare = false;
            let parameters = match field.strip_prefix('=') {
                Some(raw) => raw.to_owned(),
                None if field == "-" => ENGINE.to_owned(),
                None => format!("{ENGINE}-{field}"),
            };
            ids.insert(format!("{file}::{function}[{parameters}]"));
        }
        if bare {
            ids.insert(format!("{file}::{function}"));
        }
    }
    Ok(ids)
}

/// The text of a set of ids.
pub fn render(ids: &BTreeSet<String>) -> String {
    let mut out = String::from(HEAD);
    let (mut last_file, mut last_function) = ("", None);
    for id in ids {
        let (file, test) = id.split_once("::").unwrap_or((id, ""));
        if file != last_file {
            let _ = write!(out, "\n{file}");
            (last_file, last_function) = (file, None);
        }
        let parts = test.strip_suffix(']').and_then(|t| t.split_once('['));
        let (function, parameters) = match parts {
            Some((function, parameters)) => (function, Some(parameters)),
            None => (test, None),
        };
        if last_function != Some((function, parameters.is_some())) {
            let _ = write!(out, "\n {function}");
            last_function = Some((function, parameters.is_some()));
        }
        let Some(parameters) = parameters else {
            continue;
        };
        let engine_first = parameters.strip_prefix(ENGINE);
        out.push('\t');
        match engine_first.and_then(|p| p.strip_prefix('-')) {
            Some(rest) if !rest.starts_with(['=', '-']) && !rest.is_empty() => out.push_str(rest),
            _ if engine_first == Some("") => out.push('-'),
            _ => {
                out.push('=');
                out.push_str(parameters);
            }
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_list_is_read_back() {
        let ids: BTreeSet<String> = [
            "core/a/test_a.py::test_plain",
            "core/a/test_a.py::test_plain[mongodb]",
            "core/a/test_a.py::test_some[mongodb-one two]",
            "core/a/test_a.py::test_some[mongodb-[1]]",
            "core/a/test_a.py::test_some[mongodb-=]",
            "core/a/test_a.py::test_some[mongodb--]",
            "core/a/test_a.py::test_some[mongodb-]",
            "core/a/test_a.py::test_some[mongodbish]",
            "core/a/test_a.py::test_some[other-mongodb]",
            "core/b/test_b.py::TestClass::test_m[mongodb-x]",
        ]
        .map(str::to_owned)
        .into();
        let text = render(&ids);
        assert_eq!(parse(&text).as_ref(), Ok(&ids), "{text}");
        assert_eq!(text.matches("core/a/test_a.py").count(), 1);
        assert!(text.contains("\n test_some\t"));
        assert!(parse(" test_without_file").is_err());
    }
}
