//! Import circles: files of one crate that need each other, directly or through other files.
//!
//! An edge leads from a file to the file that defines a name it uses; re-exports are followed. The head of a
//! folder (`mod.rs`) and its `registry.rs` may know the content of the folder, so no edge leads from them to
//! its files. Test modules do not count. Needs that arise only from calling a method on a value are not seen,
//! since no import shows them.

use super::source::Source;
use crate::run::root;
use std::collections::{BTreeMap, BTreeSet};

/// How many files of a crate may be in circles. These numbers may only shrink, and a crate that is not listed
/// may have none.
const ALLOWED: &[(&str, usize)] = &[
    ("muniment-io", 2),
    ("muniment-lab", 22),
    ("muniment-log", 6),
    ("muniment-member", 6),
    ("muniment-query", 34),
    ("muniment-server", 29),
    ("muniment-storage", 32),
    ("muniment-tree", 2),
    ("muniment-value", 9),
    ("unified", 16),
];

/// Checks the sources of every crate.
pub fn check<'f>(files: impl Iterator<Item = &'f str>, wrong: &mut Vec<String>) {
    let mut crates: BTreeMap<&str, Vec<(&str, String)>> = BTreeMap::new();
    for file in files.filter(|f| f.ends_with(".rs")) {
        let Some((name, _)) = file
            .strip_prefix("crates/")
            .and_then(|f| f.split_once("/src/"))
        else {
            continue;
        };
        if let Ok(text) = std::fs::read_to_string(root().join(file)) {
            let code = Source::new(&text).production_code();
            crates.entry(name).or_default().push((file, code));
        }
    }
    for (name, files) in &crates {
        let circles = circles(files);
        let found: usize = circles.iter().map(Vec::len).sum();
        let allowed = ALLOWED.iter().find(|(n, _)| n == name);
        let allowed = allowed.map_or(0, |(_, most)| *most);
        if found > allowed {
            let circles: Vec<_> = circles.iter().map(|c| c.join(" ")).collect();
            wrong.push(format!(
                "crates/{name}: {found} files in import circles, {allowed} allowed:\n  {}",
                circles.join("\n  ")
            ));
        } else if found < allowed {
            wrong.push(format!(
                "crates/{name}: only {found} files in import circles: let `ALLOWED` say so"
            ));
        }
    }
}

/// The circles among files of one crate, each sorted, by their paths in `src`. Each file comes with its
/// [`Source::production_code`].
fn circles<'f>(files: &'f [(&str, String)]) -> Vec<Vec<&'f str>> {
    let mut modules = BTreeMap::new();
    for (path, text) in files {
        let path = path.split_once("/src/").map_or(*path, |(_, p)| p);
        let module = module_of(path);
        if module.first().is_some_and(|m| *m == "tests" || *m == "bin") {
            continue;
        }
        modules.insert(module, (path, Imports::read(&tokens(text))));
    }
    let graph = Graph { modules };
    let edges: BTreeMap<_, _> = graph.modules.keys().map(|m| (m, graph.edges(m))).collect();
    let mut found = components(&edges);
    found.retain(|c| c.len() > 1);
    let path = |m: &Module<'f>| graph.modules.get(m).map_or("", |(path, _)| *path);
    let mut found: Vec<Vec<&str>> = found
        .iter()
        .map(|c| c.iter().map(|m| path(m)).collect())
        .collect();
    found.iter_mut().for_each(|c| c.sort_unstable());
    found.sort();
    found
}

/// A module, as the names from the crate's root to it. The root itself is empty.
type Module<'f> = Vec<&'f str>;

fn module_of(path: &str) -> Module<'_> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut names: Vec<_> = path.split('/').collect();
    if matches!(names.last(), Some(&("mod" | "lib" | "main"))) {
        names.pop();
    }
    names
}

/// The references of a file to other modules.
#[derive(Default)]
struct Imports<'f> {
    /// The names that `use` introduces, with the paths that they stand for.
    brought: Vec<Use<'f>>,
    /// Paths in the code: two names or more.
    paths: Vec<Vec<&'f str>>,
    /// All names of the code outside `use`.
    names: BTreeSet<&'f str>,
}

struct Use<'f> {
    name: &'f str,
    path: Vec<&'f str>,
    /// Set for `pub use`, which counts only if the file uses the name itself.
    passed_on: bool,
}

impl<'f> Imports<'f> {
    fn read(tokens: &[&'f str]) -> Imports<'f> {
        let mut source = Imports::default();
        let mut at = 0;
        let mut passed_on = false;
        while let Some(token) = tokens.get(at) {
            at = match *token {
                "use" => {
                    let mut path = Vec::new();
                    let next = source.take_tree(tokens, at + 1, &mut path, passed_on);
                    passed_on = false;
                    next
                }
                "pub" => {
                    passed_on = true;
                    match tokens.get(at + 1) {
                        Some(&"(") => end_of_group(tokens, at + 1),
                        _ => at + 1,
                    }
                }
                name if is_name(name) => {
                    passed_on = false;
                    let mut path = vec![name];
                    let mut next = at + 1;
                    while tokens.get(next) == Some(&"::")
                        && let Some(name) = tokens.get(next + 1).filter(|t| is_name(t))
                    {
                        path.push(name);
                        next += 2;
                    }
                    source.names.extend(&path);
                    if path.len() > 1 {
                        source.paths.push(path);
                    }
                    next
                }
                _ => {
                    passed_on = false;
                    at + 1
                }
            };
        }
        source
    }

    /// Reads the tree after `use`, or a part of it. Returns the position after it.
    fn take_tree(
        &mut self,
        tokens: &[&'f str],
        mut at: usize,
        path: &mut Vec<&'f str>,
        passed_on: bool,
    ) -> usize {
        let depth = path.len();
        loop {
            match tokens.get(at).copied() {
                Some("::") => at += 1,
                Some("{") => {
                    at += 1;
                    while tokens.get(at).is_some_and(|t| *t != "}") {
                        at = self.take_tree(tokens, at, path, passed_on);
                        at += usize::from(tokens.get(at) == Some(&","));
                    }
                    at += 1;
                    path.truncate(depth);
                    return at;
                }
                Some(name) if is_name(name) || name == "*" => {
                    at += 1;
                    if name != "self" || path.is_empty() {
                        path.push(name);
                    }
                    if tokens.get(at) == Some(&"::") {
                        continue;
                    }
                    let mut called = path.last().copied().unwrap_or_default();
                    if tokens.get(at) == Some(&"as") {
                        called = tokens.get(at + 1).copied().unwrap_or_default();
                        at += 2;
                    }
                    self.brought.push(Use {
                        name: called,
                        path: path.clone(),
                        passed_on,
                    });
                    path.truncate(depth);
                    return at;
                }
                _ => {
                    path.truncate(depth);
                    return at + 1;
                }
            }
        }
    }
}

struct Graph<'f> {
    modules: BTreeMap<Module<'f>, (&'f str, Imports<'f>)>,
}

impl<'f> Graph<'f> {
    /// The modules that a module needs.
    fn edges(&self, from: &Module<'f>) -> BTreeSet<&Module<'f>> {
        let mut out = BTreeSet::new();
        let Some((_, source)) = self.modules.get(from) else {
            return out;
        };
        // The folder of which this is the head or the registry.
        let own = match from.split_last() {
            Some((&"registry", folder)) => folder,
            _ => from,
        };
        let used = |u: &&Use<'f>| !u.passed_on || source.names.contains(u.name);
        let brought = source.brought.iter().filter(used).map(|u| &u.path);
        for path in brought.chain(&source.paths) {
            let to = self.target(from, path, 0);
            out.extend(to.filter(|to| !to.starts_with(own) && *to != from));
        }
        out
    }

    /// The module that defines the item of a path; `None` if it belongs to another crate.
    fn target(&self, from: &Module<'f>, path: &[&'f str], hops: usize) -> Option<&Module<'f>> {
        let mut rest = path;
        let mut at: Module<'f> = match rest.first().copied()? {
            "crate" => Vec::new(),
            "self" => from.clone(),
            "super" => from.clone(),
            name => {
                let mut child = from.clone();
                child.push(name);
                if !self.modules.contains_key(&child) {
                    return None;
                }
                from.clone()
            }
        };
        if matches!(rest.first(), Some(&("crate" | "self"))) {
            rest = rest.get(1..)?;
        }
        while rest.first() == Some(&"super") {
            at.pop();
            rest = rest.get(1..)?;
        }
        while let Some(name) = rest.first() {
            let mut child = at.clone();
            child.push(name);
            if !self.modules.contains_key(&child) {
                break;
            }
            at = child;
            rest = rest.get(1..)?;
        }
        let (at, (_, source)) = self.modules.get_key_value(&at)?;
        let Some(name) = rest.first() else {
            return Some(at);
        };
        // Chains of re-exports are short, and a circle of them must not be followed for ever.
        let found = source.brought.iter().find(|u| u.name == *name);
        match found.filter(|_| hops < 8) {
            Some(u) if at != from || rest.len() > 1 => {
                let mut path = u.path.clone();
                path.extend_from_slice(rest.get(1..)?);
                self.target(at, &path, hops + 1)
            }
            _ => Some(at),
        }
    }
}

/// The strongly connected parts of a graph.
fn components<'g, 'f>(
    edges: &BTreeMap<&'g Module<'f>, BTreeSet<&'g Module<'f>>>,
) -> Vec<Vec<&'g Module<'f>>> {
    // There are so few files that computing what each one reaches is fast enough.
    let reached: BTreeMap<_, BTreeSet<_>> = edges
        .keys()
        .map(|from| {
            let mut seen = BTreeSet::new();
            let mut open = vec![*from];
            while let Some(at) = open.pop() {
                let next = edges.get(at).into_iter().flatten();
                open.extend(next.filter(|to| seen.insert(**to)));
            }
            (*from, seen)
        })
        .collect();
    let mut parts: Vec<Vec<&Module<'f>>> = Vec::new();
    for (module, seen) in &reached {
        let with = |p: &&mut Vec<&Module<'f>>| {
            p.first().is_some_and(|first| {
                seen.contains(first) && reached.get(first).is_some_and(|r| r.contains(module))
            })
        };
        match parts.iter_mut().find(with) {
            Some(part) => part.push(module),
            None => parts.push(vec![module]),
        }
    }
    parts
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The position after the group that opens at `at`.
fn end_of_group(tokens: &[&str], at: usize) -> usize {
    let mut depth = 0_usize;
    for (n, token) in tokens.iter().enumerate().skip(at) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return n + 1;
        }
    }
    tokens.len()
}

/// Names, `::` and single characters of code without comments and contents of literals.
fn tokens(code: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            ':' if rest.starts_with("::") => 2,
            c if c.is_alphanumeric() || c == '_' => rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at(taken);
        // Numbers and white space refer to nothing.
        out.extend(
            (!token.starts_with(|c: char| c.is_numeric() || c.is_whitespace())).then_some(token),
        );
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| (*path, Source::new(text).production_code()))
            .collect();
        circles(&files).iter().map(|c| c.join(" ")).collect()
    }

    #[test]
    fn two_files_that_need_each_other() {
        let files = [
            ("c/src/lib.rs", "mod a; mod b; pub use a::A;"),
            ("c/src/a.rs", "use crate::{b::B, c}; pub struct A(B);"),
            ("c/src/b.rs", "fn f() -> crate::a::A { todo() }"),
        ];
        assert_eq!(found(&files), ["a.rs b.rs"]);
    }

    #[test]
    fn names_that_are_passed_on_lead_to_where_they_are() {
        let files = [
            (
                "c/src/p/mod.rs",
                "mod x; mod y; pub(crate) use x::{X, f as g};",
            ),
            ("c/src/p/x.rs", "pub struct X;"),
            ("c/src/p/y.rs", "use super::X; use crate::p::g;"),
        ];
        assert!(found(&files).is_empty());
        // The head of a folder may use its files, but no other file may.
        let head = "mod x; mod y; pub use x::X; fn f(_: X) {}";
        let y = "use super::x::X; pub struct Y;";
        for (x, circle) in [
            ("pub struct X; fn g() { super::f(X) }", None),
            ("use super::y::Y; pub struct X;", Some("p/x.rs p/y.rs")),
        ] {
            let files = [
                ("c/src/p/mod.rs", head),
                ("c/src/p/x.rs", x),
                ("c/src/p/y.rs", y),
            ];
            let found = found(&files);
            assert_eq!(found.first().map(String::as_str), circle);
        }
    }

    #[test]
    fn tests_comments_and_texts_need_nothing() {
        let b = r##"
            // crate::a::A
            /* use crate::a; */
            const T: &str = "\" crate::a::A"; const R: &str = r#" " crate::a::A"#;
            fn f<'a>(c: char) -> bool { c == '"' || c == '\'' }
            #[cfg(test)] mod tests { use crate::a::A; }
            impl B { #[cfg(test)] fn t(&self) { crate::a::f() } }
        "##;
        let files = [("c/src/a.rs", "use crate::b::B;"), ("c/src/b.rs", b)];
        assert!(found(&files).is_empty());
        let real = format!("{b} fn last() {{ crate::a::f() }}");
        let files = [("c/src/a.rs", "use crate::b::B;"), ("c/src/b.rs", &real)];
        assert_eq!(found(&files), ["a.rs b.rs"]);
    }
}
