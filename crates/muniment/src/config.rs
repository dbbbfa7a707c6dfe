//! The configuration file. It is YAML, which `saphyr-parser` reads; its events are collected into dotted keys
//! with their positions. The format of MongoDB 2.4 (`name = value`, one per line) is read as well.
//!
//! Invariants: anything that is not understood is an error with its line and column, and never skipped;
//! whatever the file contains, aliases cannot expand it to more than [`MOST_NODES`] nodes.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};
use std::collections::HashMap;
use std::fmt;

/// The most nodes of a file, including those that its aliases stand for.
const MOST_NODES: usize = 10_000;
/// The deepest nesting of a file.
const MOST_LEVELS: usize = 32;
/// The section whose keys are names of parameters: everything below one of them is its value.
const PARAMETERS: &str = "setParameter";

/// A position in the file. Lines and columns are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    line: usize,
    column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

impl From<&Marker> for Place {
    fn from(at: &Marker) -> Place {
        Place {
            line: at.line(),
            column: at.col() + 1,
        }
    }
}

/// One setting of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The dotted key, or the name of the flag in the old format.
    pub key: String,
    /// Its value; `None` for a key without one, such as a section in which every line is commented out.
    pub value: Option<String>,
    /// The position of the key.
    pub place: Place,
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum File {
    /// YAML: the dotted keys, in the order of the file.
    Keys(Vec<Setting>),
    /// The old format: flags without their dashes.
    Flags(Vec<Setting>),
}

/// Reads a file.
///
/// # Errors
/// A message that names the line and the column.
pub fn parse(text: &str) -> Result<File, String> {
    if is_old_form(text) {
        return old_form(text).map(File::Flags);
    }
    let mut settings = Vec::new();
    if let Some(root) = Reader::read(text)? {
        if !matches!(root.kind, Kind::Map(_)) {
            return Err(format!("{}: expected 'key: value'", root.place));
        }
        flatten(&root, "", root.place, &mut settings)?;
    }
    refuse_twice(&settings)?;
    let unreadable = |s: &&Setting| {
        let value = s.value.as_deref().unwrap_or_default();
        [s.key.as_str(), value]
            .iter()
            .any(|t| t.contains(char::REPLACEMENT_CHARACTER))
    };
    if let Some(s) = settings.iter().find(unreadable) {
        return Err(format!("{}: {} is not in UTF-8", s.place, s.key));
    }
    Ok(File::Keys(settings))
}

fn refuse_twice(settings: &[Setting]) -> Result<(), String> {
    let mut seen: HashMap<&str, Place> = HashMap::new();
    for s in settings {
        if let Some(first) = seen.insert(&s.key, s.place) {
            return Err(format!(
                "{}: {} is given twice, the first time in {first}",
                s.place, s.key
            ));
        }
    }
    Ok(())
}

/// A value of the file.
#[derive(Clone)]
struct Node {
    kind: Kind,
    place: Place,
}

#[derive(Clone)]
enum Kind {
    Text {
        text: String,
        /// Whether the text has no quotes.
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<(String, Place, Node)>),
}

impl Node {
    fn is_null(&self) -> bool {
        let Kind::Text { text, plain: true } = &self.kind else {
            return false;
        };
        matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }
}

/// Collects the parser's events.
struct Reader<'t> {
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'t> Reader<'t> {
    /// The only document of the file; `None` if the file is empty.
    fn read(text: &'t str) -> Result<Option<Node>, String> {
        let mut reader = Reader {
            parser: Parser::new_from_str(text),
            anchors: HashMap::new(),
            nodes: 0,
        };
        let mut root = None;
        loop {
            let (event, span) = reader.next()?;
            match event {
                Event::StreamEnd => return Ok(root.filter(|node: &Node| !node.is_null())),
                Event::DocumentStart(_) if root.is_some() => {
                    let place = Place::from(&span.start);
                    return Err(format!("{place}: a second document begins"));
                }
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
                event => root = Some(reader.node(event, span, 0)?),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), String> {
        match self.parser.next_event() {
            Some(Ok(found)) => Ok(found),
            Some(Err(e)) => Err(format!("{}: {}", Place::from(e.marker()), e.info())),
            None => Err("the file ends too early".to_string()),
        }
    }

    /// The node that begins with this event.
    fn node(&mut self, event: Event<'t>, span: Span, level: usize) -> Result<Node, String> {
        let place = Place::from(&span.start);
        if level > MOST_LEVELS {
            return Err(format!(
                "{place}: nested more than {MOST_LEVELS} levels deep"
            ));
        }
        self.count(1, place)?;
        let (anchor, kind) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                let text = text.into_owned();
                (anchor, Kind::Text { text, plain })
            }
            Event::SequenceStart(anchor, _) => (anchor, Kind::List(self.list(level)?)),
            Event::MappingStart(anchor, _) => (anchor, Kind::Map(self.map(level)?)),
            Event::Alias(id) => {
                let found = self.anchors.get(&id).cloned();
                let found = found.ok_or_else(|| format!("{place}: an alias of nothing"))?;
                self.count(size(&found), place)?;
                return Ok(found);
            }
            other => return Err(format!("{place}: expected a value, not {other:?}")),
        };
        let node = Node { kind, place };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn count(&mut self, more: usize, place: Place) -> Result<(), String> {
        self.nodes += more;
        match self.nodes > MOST_NODES {
            true => Err(format!("{place}: more than {MOST_NODES} values")),
            false => Ok(()),
        }
    }

    fn list(&mut self, level: usize) -> Result<Vec<Node>, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, span) => items.push(self.node(event, span, level + 1)?),
            }
        }
    }

    fn map(&mut self, level: usize) -> Result<Vec<(String, Place, Node)>, String> {
        let mut entries: Vec<(String, Place, Node)> = Vec::new();
        loop {
            let (event, span) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(entries),
                found => found,
            };
            let key = self.node(event, span, level + 1)?;
            let Kind::Text { text, .. } = key.kind else {
                return Err(format!("{}: a key has to be a text", key.place));
            };
            if text.is_empty() {
                return Err(format!("{}: a value without a key", key.place));
            }
            if let Some((_, first, _)) = entries.iter().find(|(k, ..)| *k == text) {
                return Err(format!(
                    "{}: {text} is given twice, the first time in {first}",
                    key.place
                ));
            }
            let (event, span) = self.next()?;
            let value = self.node(event, span, level + 1)?;
            entries.push((text, key.place, value));
        }
    }
}

/// The number of nodes in a node.
fn size(node: &Node) -> usize {
    1 + match &node.kind {
        Kind::Text { .. } => 0,
        Kind::List(items) => items.iter().map(size).sum(),
        Kind::Map(entries) => entries.iter().map(|(_, _, v)| size(v)).sum(),
    }
}

/// Appends the settings of a node with this dotted key, whose position is `place`.
fn flatten(node: &Node, key: &str, place: Place, out: &mut Vec<Setting>) -> Result<(), String> {
    let in_section = key.split_once('.').filter(|(s, _)| *s == PARAMETERS);
    let value = match &node.kind {
        _ if node.is_null() => None,
        Kind::Text { text, .. } => Some(text.clone()),
        _ if in_section.is_some() => Some(json(node)),
        Kind::List(items) => Some(joined(key, items)?),
        Kind::Map(entries) => {
            for (name, at, below) in entries {
                let dotted = match key {
                    "" => name.clone(),
                    above => format!("{above}.{name}"),
                };
                flatten(below, &dotted, *at, out)?;
            }
            return Ok(());
        }
    };
    out.push(Setting {
        key: key.to_string(),
        value,
        place,
    });
    Ok(())
}

/// A list of texts in the form of the flags, with commas.
fn joined(key: &str, items: &[Node]) -> Result<String, String> {
    let mut texts = Vec::new();
    for item in items {
        match &item.kind {
            Kind::Text { text, .. } if !item.is_null() => texts.push(text.as_str()),
            _ => {
                return Err(format!(
                    "{}: {key} has to be a value, or a list of values",
                    item.place
                ));
            }
        }
    }
    Ok(texts.join(","))
}

/// The value of a parameter, as in `--setParameter NAME=VALUE`.
fn json(node: &Node) -> String {
    let quoted = |text: &str| {
        let mut out = String::new();
        muniment_logger::json_string(text, &mut out);
        out
    };
    match &node.kind {
        Kind::Text { text, plain } => {
            let bare = text.parse::<f64>().is_ok_and(f64::is_finite)
                || matches!(text.as_str(), "true" | "false" | "null");
            match bare && *plain {
                true => text.clone(),
                false => quoted(text),
            }
        }
        Kind::List(items) => {
            let items: Vec<_> = items.iter().map(json).collect();
            format!("[{}]", items.join(","))
        }
        Kind::Map(entries) => {
            let pair = |(k, _, v): &(String, Place, Node)| format!("{}:{}", quoted(k), json(v));
            let pairs: Vec<_> = entries.iter().map(pair).collect();
            format!("{{{}}}", pairs.join(","))
        }
    }
}

/// Whether the first line with any content has the form `name = value`.
fn is_old_form(text: &str) -> bool {
    let mut lines = text
        .lines()
        .map(|l| l.trim_start_matches('\u{feff}').trim());
    let first = lines.find(|l| !l.is_empty() && !l.starts_with('#'));
    first
        .and_then(|l| l.split_once('='))
        .is_some_and(|(name, _)| {
            let name = name.trim_end();
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
        })
}

/// A document as people write it in options, with or without quotes around its names, as JSON.
///
/// # Errors
/// A message for people if the text is not a document.
pub fn document(text: &str) -> Result<String, String> {
    let none = || format!("'{text}' is not a document");
    match Reader::read(text) {
        Ok(Some(node)) if matches!(node.kind, Kind::Map(_)) => Ok(json(&node)),
        Ok(_) => Err(none()),
        Err(e) => Err(format!("{}: {e}", none())),
    }
}

/// `name = value`, one per line; `#` begins a comment.
fn old_form(text: &str) -> Result<Vec<Setting>, String> {
    let mut settings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let place = Place {
            line: at + 1,
            column: 1,
        };
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (key, value) = line
            .split_once('=')
            .ok_or_else(|| format!("{place}: expected 'key: value', found '{line}'"))?;
        settings.push(Setting {
            key: key.trim().to_string(),
            value: Some(value.trim().to_string()),
            place,
        });
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::{File, document, parse};

    fn keys(text: &str) -> Vec<(String, Option<String>)> {
        match parse(text).unwrap_or_else(|e| panic!("{e}: {text}")) {
            File::Keys(s) => s.into_iter().map(|s| (s.key, s.value)).collect(),
            File::Flags(_) => panic!("no YAML: {text}"),
        }
    }

    fn check(text: &str, wanted: &[(&str, &str)]) {
        let got = keys(text);
        let got: Vec<_> = got
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_deref().unwrap_or("(none)")))
            .collect();
        assert_eq!(got, wanted, "{text}");
    }

    #[test]
    fn forms_of_yaml() {
        let block = "\
# comment
storage:
  dbPath: \"/a b\"   # where
  journal:
      commitIntervalMs: 20
net:
    port: 1
    bindIp: 127.0.0.1,::1
    unixDomainSocket:
        enabled: no
";
        let wanted = [
            ("storage.dbPath", "/a b"),
            ("storage.journal.commitIntervalMs", "20"),
            ("net.port", "1"),
            ("net.bindIp", "127.0.0.1,::1"),
            ("net.unixDomainSocket.enabled", "no"),
        ];
        check(block, &wanted);
        check(&block.replace('\n', "\r\n"), &wanted);
        check(&format!("\u{feff}---\n{block}...\n"), &wanted);
        let json = "{\"storage\": {\"dbPath\": \"/a b\", \"journal\": {\"commitIntervalMs\": 20}},\n \
                    \"net\": {\"port\": 1, \"bindIp\": [\"127.0.0.1\", \"::1\"],\n\
                    \t\"unixDomainSocket\": {\"enabled\": \"no\"}}}";
        check(json, &wanted);
        check("net: {port: 1}\nstorage: {}\n", &[("net.port", "1")]);
        check("net.port: 1", &[("net.port", "1")]);
        check("a:\n  - x\n  - 'y, z'\n", &[("a", "x,y, z")]);
        check("a: |\n  x\n  y\n", &[("a", "x\ny\n")]);
        check("a: >-\n  x\n  y\n", &[("a", "x y")]);
        check("a: &p /d\nb: *p\n", &[("a", "/d"), ("b", "/d")]);
        check("'a': 'it''s'", &[("a", "it's")]);
        check("b: ::,0.0.0.0", &[("b", "::,0.0.0.0")]);
        check("b: [::1, 127.0.0.1]", &[("b", "::1,127.0.0.1")]);
        check("a: b#c # d", &[("a", "b#c")]);
        // Every line of a section may be commented out, and a value may be missing.
        check(
            "security:\n#  a: 1\nb: ~\n",
            &[("security", "(none)"), ("b", "(none)")],
        );
        for empty in ["", "# nothing\n", "---\n", "{}"] {
            check(empty, &[]);
        }
    }

    #[test]
    fn a_parameter_may_have_a_document_as_its_value() {
        check(
            "setParameter:\n  enableTestCommands: 1\n  logComponentVerbosity:\n    verbosity: 1\n    \
             network: {verbosity: 2, x: \"1\"}\n  a: [true, b]\n",
            &[
                ("setParameter.enableTestCommands", "1"),
                (
                    "setParameter.logComponentVerbosity",
                    r#"{"verbosity":1,"network":{"verbosity":2,"x":"1"}}"#,
                ),
                ("setParameter.a", r#"[true,"b"]"#),
            ],
        );
    }

    #[test]
    fn anything_not_understood_is_an_error_with_its_place() {
        for (bad, place) in [
            ("- a", "line 1, column 1"),
            ("a: 1\n\tb: 1", "line 1, column 4"),
            ("a", "line 1, column 1"),
            ("a: 1\na: 2", "line 2, column 1"),
            ("net:\n  port: 1\nnet.port: 2", "line 3, column 1"),
            ("a: \"x", "line 1"),
            ("a: 1\nb", "line 3, column 1"),
            ("a: [1\nb: 2", "line 2"),
            ("a: {b: 1", "line 2, column 1"),
            ("a: [[1]]", "line 1, column 5"),
            ("a: 1\n---\nb: 2", "line 2, column 1"),
            ("[a]: 1", "line 1, column 1"),
            ("a: *b", "line 1"),
        ] {
            let e = parse(bad).expect_err(bad);
            assert!(e.contains(place), "{bad:?}: {e}");
        }
        // Each alias stands for ten of the one before it.
        let mut bomb = "a0: &a0 x\n".to_string();
        for n in 1..12 {
            let before = vec![format!("*a{}", n - 1); 10].join(", ");
            bomb += &format!("a{n}: &a{n} [{before}]\n");
        }
        assert!(parse(&bomb).unwrap_err().contains("values"));
        let deep = format!("a: {}{}", "[".repeat(5000), "]".repeat(5000));
        assert!(parse(&deep).is_err());
    }

    #[test]
    fn documents_need_no_quotes() {
        for (text, wanted) in [
            ("{}", "{}"),
            (
                "{ op: \"query\", millis: { $gt: 2000 } }",
                r#"{"op":"query","millis":{"$gt":2000}}"#,
            ),
            (r#"{"a": [1, true, "1"]}"#, r#"{"a":[1,true,"1"]}"#),
        ] {
            assert_eq!(document(text).unwrap(), wanted);
        }
        for bad in ["", "a", "[1]", "{a: ", "{a: 1} b"] {
            assert!(
                document(bad).unwrap_err().contains("not a document"),
                "{bad}"
            );
        }
    }

    #[test]
    fn the_form_of_2_4() {
        let text = "# mongodb.conf\ndbpath=/d\n\nfork = true  # yes\nport=1\n";
        let File::Flags(flags) = parse(text).unwrap() else {
            panic!("taken for YAML");
        };
        let got: Vec<_> = flags
            .iter()
            .map(|s| (s.key.as_str(), s.value.as_deref().unwrap()))
            .collect();
        assert_eq!(got, [("dbpath", "/d"), ("fork", "true"), ("port", "1")]);
        let e = parse("dbpath=/d\nnonsense\n").unwrap_err();
        assert!(e.starts_with("line 2"), "{e}");
    }
}
