//! The ratchet: the ids of the tests that pass, in a folded form that keeps the file small and its changes
//! readable.
//!
//! A line without indentation names a test file. The lines below it each have a test function: a space, its
//! name, and its parameter sets, separated by tabs. The engine's name, with which every parameter set starts,
//! is left out. A parameter set that is only this name is `-`, and one that does not start with it comes
//! after `=`.

use std::collections::BTreeSet;
use std::fmt::Write;

/// The first line of a list of those that pass.
pub const PASSING: &str = "# Tests of documentdb/functional-tests that pass; `cargo xtask conformance --update` writes this file.\n";
/// The first line of the list of those that pass on a server, and fail through a router.
pub const DIFFERING: &str = "# Tests of documentdb/functional-tests that pass on a server and fail through a router, by their reasons; `cargo xtask conformance --sharded --update` writes this file.\n";
/// The reason of those that `--update` finds.
pub const UNEXPLAINED: &str = "Not explained yet.";
/// Ids, with the reason for each group of them.
pub type Reasons = Vec<(String, BTreeSet<String>)>;
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

/// Parses a list whose comments each give a reason for the ids after them. The first comment is the head.
pub fn parse_reasons(text: &str) -> Result<Reasons, String> {
    let mut reasons = Reasons::new();
    let mut texts: Vec<(&str, Vec<&str>)> = vec![("", Vec::new())];
    for line in text.lines().skip(1) {
        match (line.strip_prefix("# "), texts.last_mut()) {
            (Some(reason), _) => texts.push((reason, Vec::new())),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    for (reason, lines) in texts {
        let ids = parse(&lines.join("\n"))?;
        if !ids.is_empty() {
            reasons.push((reason.to_owned(), ids));
        }
    }
    Ok(reasons)
}

/// The text of a list with reasons, after this first line.
pub fn render_reasons(head: &str, reasons: &Reasons) -> String {
    let mut out = String::from(head);
    for (reason, ids) in reasons {
        let _ = write!(out, "\n# {reason}\n{}", render("", ids));
    }
    out
}

/// The text of a set of ids, after this first line.
pub fn render(head: &str, ids: &BTreeSet<String>) -> String {
    let mut out = String::from(head);
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
        let text = render(PASSING, &ids);
        assert_eq!(parse(&text).as_ref(), Ok(&ids), "{text}");
        assert_eq!(text.matches("core/a/test_a.py").count(), 1);
        assert!(text.contains("\n test_some\t"));
        assert!(parse(" test_without_file").is_err());
    }

    #[test]
    fn reasons_are_read_back() {
        let ids = |all: &[&str]| all.iter().map(|id| (*id).to_owned()).collect();
        let reasons = vec![
            (
                "One.".to_owned(),
                ids(&["a.py::test_a[mongodb-x]", "b.py::test_b"]),
            ),
            ("Two.".to_owned(), ids(&["a.py::test_a[mongodb]"])),
        ];
        let text = render_reasons(DIFFERING, &reasons);
        assert_eq!(parse_reasons(&text).as_ref(), Ok(&reasons), "{text}");
        assert_eq!(parse(&text).map(|all| all.len()), Ok(3));
    }
}
