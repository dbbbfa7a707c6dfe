//! Commands drawn from a grammar: everything that changes a catalog, valid and nearly valid.
//!
//! The rules are in `grammar.txt`. The caller draws the numbers, so that a seed gives the same commands
//! again, for real servers and simulated ones alike.

use crate::shell;
use muniment_value::DocBuf;
use std::collections::HashMap;
use std::fmt::Write;

const RULES: &str = include_str!("grammar.txt");

/// Below this depth only the first alternative of each rule is used.
const DEEPEST: usize = 12;

/// A command that was drawn.
pub struct Drawn {
    /// The database that it is sent to.
    pub db: String,
    /// The command without its database.
    pub body: DocBuf,
}

/// The rules, and the databases that the commands use.
pub struct Grammar {
    rules: HashMap<&'static str, Vec<&'static str>>,
    databases: Vec<String>,
}

impl Grammar {
    /// A grammar of commands about these databases.
    ///
    /// # Panics
    /// If the rules are malformed.
    pub fn new(databases: &[&str]) -> Grammar {
        let mut rules: HashMap<&str, Vec<&str>> = HashMap::new();
        let mut name = "";
        for line in RULES.lines() {
            match line.strip_prefix("  ") {
                Some(one) => rules.get_mut(name).unwrap().push(one),
                None if line.is_empty() || line.starts_with('#') => {}
                None => {
                    name = line.strip_suffix(':').unwrap();
                    assert!(rules.insert(name, Vec::new()).is_none(), "{name} twice");
                }
            }
        }
        Grammar {
            rules,
            databases: databases.iter().map(|d| (*d).to_string()).collect(),
        }
    }

    /// Draws a command. `below` draws a number below its argument.
    pub fn command(&self, below: &mut dyn FnMut(u64) -> u64) -> Drawn {
        let mut drawing = Drawing {
            grammar: self,
            db: self.databases[below(self.databases.len() as u64) as usize].clone(),
            below,
            depth: 0,
        };
        let mut text = String::new();
        drawing.rule("command", &mut text);
        let (db, body) = match text.strip_prefix("admin ") {
            Some(body) => ("admin".to_string(), body),
            None => (drawing.db, &*text),
        };
        Drawn {
            db,
            body: shell(body),
        }
    }
}

struct Drawing<'g> {
    grammar: &'g Grammar,
    db: String,
    below: &'g mut dyn FnMut(u64) -> u64,
    depth: usize,
}

impl Drawing<'_> {
    fn below(&mut self, n: usize) -> usize {
        (self.below)(n as u64) as usize
    }

    /// Draws a number of levels near the limits for stored documents, filters and messages.
    fn levels(&mut self) -> usize {
        match self.below(4) {
            0 => self.below(60),
            1 => 80 + self.below(25),
            _ => 160 + self.below(35),
        }
    }

    fn nested(&mut self, levels: usize, around: (&str, &str), inner: &str, out: &mut String) {
        out.push_str(&around.0.repeat(levels));
        out.push_str(inner);
        out.push_str(&around.1.repeat(levels));
    }

    fn rule(&mut self, name: &str, out: &mut String) {
        match name {
            "db" => out.push_str(&self.db.clone()),
            "n" => write!(out, "{}", self.below(20)).unwrap(),
            "long" => {
                let n = [100, 200, 235, 260, 2000][self.below(5)];
                out.push_str(&"x".repeat(n));
            }
            "deep-document" => {
                let n = self.levels();
                let around = [("{a: ", "}"), ("[", "]")][self.below(2)];
                self.nested(n, around, "1", out);
            }
            "deep-filter" => {
                let n = self.levels();
                match self.below(4) {
                    0 => self.nested(n / 2, ("{$and: [", "]}"), "{a: 1}", out),
                    1 => self.nested(n / 2, ("{$or: [{b: 1}, ", "]}"), "{a: 1}", out),
                    2 => {
                        out.push_str("{a: ");
                        self.nested(n, ("{$not: ", "}"), "{$gt: 0}", out);
                        out.push('}');
                    }
                    _ => {
                        out.push_str("{a: ");
                        self.nested(n, ("{b: ", "}"), "1", out);
                        out.push('}');
                    }
                }
            }
            "deep-schema" => {
                let n = self.levels() / 2;
                let around = [
                    ("{properties: {a: ", "}}"),
                    ("{not: ", "}"),
                    ("{allOf: [", "]}"),
                ];
                let around = around[self.below(3)];
                self.nested(n, around, "{bsonType: 'int'}", out);
            }
            "deep-spec" => {
                let n = self.levels();
                let around = ("{key: {a: 1}, name: 'x', originalSpec: ", "}");
                self.nested(n, around, "{key: {a: 1}, name: 'x'}", out);
            }
            _ => {
                let rules = &self.grammar.rules;
                let all = rules.get(name).unwrap_or_else(|| panic!("no rule {name}"));
                let one = match self.depth < DEEPEST {
                    true => all[self.below(all.len())],
                    false => all[0],
                };
                self.depth += 1;
                self.expand(one, out);
                self.depth -= 1;
            }
        }
    }

    fn expand(&mut self, text: &str, out: &mut String) {
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('<') {
            let (name, after) = behind.split_once('>').unwrap();
            out.push_str(before);
            match name.strip_suffix('*') {
                Some(name) => {
                    for _ in 0..self.below(4) {
                        out.push_str(", ");
                        self.rule(name, out);
                    }
                }
                None => self.rule(name, out),
            }
            rest = after;
        }
        out.push_str(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_rule_is_used_and_every_command_is_one() {
        let grammar = Grammar::new(&["d", "e"]);
        let mut state = 7_u64;
        let mut below = |n: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % n
        };
        let mut names = HashSet::new();
        for _ in 0..5000 {
            let drawn = grammar.command(&mut below);
            names.insert(drawn.body.as_doc().first().unwrap().name().to_string());
        }
        let (_, rest) = RULES.split_once("\ncommand:\n").unwrap();
        let lines = rest.lines().take_while(|line| line.starts_with(' '));
        let name = |line: &str| {
            let line = line.trim().trim_start_matches("admin ");
            let (name, _) = line.trim_start_matches('{').split_once(':').unwrap();
            name.to_string()
        };
        assert_eq!(names, lines.map(name).collect::<HashSet<_>>());
        for name in grammar.rules.keys().filter(|n| **n != "command") {
            let used = [format!("<{name}>"), format!("<{name}*>")];
            assert!(used.iter().any(|u| RULES.contains(u)), "{name}");
        }
    }
}
