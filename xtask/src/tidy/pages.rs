//! Checks that pages are right about the repository: that the files exist to which they link or that they
//! name, and that the functions exist in the tables of `docs/internals`.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Checks a page. `texts` has all files of the repository.
pub fn check(page: &str, text: &str, texts: &BTreeMap<&str, String>, wrong: &mut Vec<String>) {
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let mut fenced = false;
    for (n, line) in text.lines().enumerate() {
        let mut complain = |what: String| wrong.push(format!("{page}: line {}: {what}", n + 1));
        if names_commit(line) {
            complain(
                "names a commit, whose hash may change: name a file that it added".to_string(),
            );
        }
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        let missing = paths(line, texts);
        for path in &missing {
            complain(format!("names {path}, which is not there"));
        }
        for target in links(line) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let place = normal(&folder.join(file));
            let linked = match file {
                "" => Some(text),
                _ => texts.get(place.as_str()).map(String::as_str),
            };
            if linked.is_none()
                && !is_folder(&place, texts)
                && !crate::run::root().join(&place).exists()
            {
                complain(format!("links to {file}, which is not there"));
            }
            let has = |t: &str| t.lines().any(|l| l.starts_with('#') && slug(l) == anchor);
            if !anchor.is_empty()
                && file.ends_with(".md") | file.is_empty()
                && !linked.is_some_and(has)
            {
                complain(format!("links to #{anchor}, which is no heading there"));
            }
        }
        let Some((file, functions)) = step(line) else {
            continue;
        };
        let in_crates = format!("crates/{file}");
        match texts.get(in_crates.as_str()).or_else(|| texts.get(file)) {
            None if missing.contains(&file) => {}
            None => complain(format!("there is no file {file}")),
            Some(source) => {
                let missing = functions.into_iter().filter(|name| !defines(source, name));
                missing.for_each(|name| complain(format!("there is no fn {name} in {file}")));
            }
        }
    }
}

/// Whether a line tells to look at a commit by its hash. When history is rewritten, nobody notices that
/// the commit is gone until a reader gets an error instead of an example.
fn names_commit(line: &str) -> bool {
    line.match_indices("git show ").any(|(at, begin)| {
        let word = line[at + begin.len()..].split([' ', '`', ':']).next();
        word.is_some_and(|w| w.len() >= 7 && w.chars().all(|c| c.is_ascii_hexdigit()))
    })
}

/// The paths that a line names in code and that nothing in the repository has. A path begins with a
/// folder of the repository or with a crate's name. A word with a placeholder, such as `tests/NAME.rs`,
/// is none.
fn paths<'l>(line: &'l str, texts: &BTreeMap<&str, String>) -> Vec<&'l str> {
    let code = line.split('`').skip(1).step_by(2);
    let words = code.flat_map(str::split_whitespace);
    let missing = words.filter(|word| {
        let path = word.trim_end_matches('/');
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c);
        let Some((first, _)) = path.split_once('/').filter(|_| path.chars().all(plain)) else {
            return false;
        };
        let in_crates = format!("crates/{path}");
        let ours = ["crates", "docs", "tests", "xtask", "fuzz", "benchmarks"].contains(&first)
            || is_folder(&format!("crates/{first}"), texts);
        let there = |path: &str| texts.contains_key(path) || is_folder(path, texts);
        ours && ![path, in_crates.as_str()].into_iter().any(there)
    });
    missing.collect()
}

/// A row `| file.rs | function() | … |` of such a table: the file, and the names of its functions.
fn step(row: &str) -> Option<(&str, Vec<&str>)> {
    let mut cells = row.strip_prefix('|')?.split('|').map(str::trim);
    let file = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
    let functions = cells
        .next()?
        .split('`')
        .filter_map(|w| w.strip_suffix("()"));
    let is_path = file.ends_with(".rs") && file.contains('/') && !file.contains(['`', ' ']);
    is_path.then(|| (file, functions.collect()))
}

/// Whether a source file has a function with this name.
fn defines(source: &str, name: &str) -> bool {
    let begins = format!("fn {name}");
    source.match_indices(&begins).any(|(at, _)| {
        let next = source[at + begins.len()..].chars().next();
        matches!(next, Some('(' | '<'))
    })
}

/// The targets of a line's links into the repository.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](")
        .filter_map(|(at, _)| line[at + 2..].split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

fn is_folder(place: &str, texts: &BTreeMap<&str, String>) -> bool {
    let folder = format!("{place}/");
    texts.keys().any(|file| file.starts_with(&folder))
}

/// A path without `..`.
fn normal(path: &Path) -> String {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out.to_string_lossy().into_owned()
}

/// The name of a heading in links, by GitHub's rule.
fn slug(heading: &str) -> String {
    let kept = heading
        .trim_start_matches('#')
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c })
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_target_is_reported() {
        let texts = BTreeMap::from([
            (
                "crates/a/src/b.rs",
                "pub fn one() {}\nfn two<T>() {}\n".to_owned(),
            ),
            ("docs/c.md", "# It is: so\n".to_owned()),
        ]);
        let of = |page: &str| {
            let mut wrong = Vec::new();
            check("docs/internals/page.md", page, &texts, &mut wrong);
            wrong
        };
        let fine = "[x](../c.md) [y](../c.md#it-is-so) [z](https://example.org/a.md) [w](../../crates/a)\n\
                    | `a/src/b.rs` | `one()`, `two()` | what |\n`crates/a/src/NAME.rs` `git show HEAD` \
                    `other/file`\n```\n[not](a-link)\n```\n";
        assert!(of(fine).is_empty(), "{:?}", of(fine));
        for page in [
            "[x](c.md)",
            "[x](../c.md#so-it-is)",
            "| `a/src/b.rs` | `three()` | what |",
            "| `a/src/b.rs` | `on()` | what |",
            "| `a/src/c.rs` | `one()` | what |",
            "| `c/src/b.rs` | `one()` | what |",
            "read `a/src` and `crates/a/src/c.rs`",
            "`git show 097967b1 -- crates/a`",
            "```\ngit show 097967b1\n```",
        ] {
            assert_eq!(of(page).len(), 1, "{page}: {:?}", of(page));
        }
    }
}
