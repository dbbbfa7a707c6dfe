//! The places that break a rule with a number and may do so for the time being: `exceptions.txt`.
//!
//! Invariant: the numbers only fall. A place that is worse than its number (or has none) is an error. A place
//! that is better is reported, and `cargo xtask tidy --lower` lowers the list to the present numbers. A
//! number can only be raised by editing the file, with a reason in the commit.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A rule with a number, and what it allows without an exception.
pub struct Rule {
    /// Its name in the list.
    pub name: &'static str,
    /// The number that is allowed everywhere.
    pub most: usize,
    /// The end of the message about a violation, after the place and the number.
    pub what: &'static str,
}

/// All rules.
pub const RULES: &[Rule] = &[
    Rule {
        name: "behind",
        most: 0,
        what: "times \"behind\" for time or order: say \"after\"",
    },
    Rule {
        name: "file",
        most: 900,
        what: "lines of production code",
    },
    Rule {
        name: "function",
        most: 70,
        what: "lines from fn to closing brace",
    },
    Rule {
        name: "paragraph",
        most: 120,
        what: "words in its longest paragraph",
    },
    Rule {
        name: "who",
        most: 0,
        what: "clauses whose subject is \"who\": name it (\"the client\", \"a waiting thread\")",
    },
];

/// The measurements: for each rule and place, a number and some words that help to find it.
pub type Measured = BTreeMap<(&'static str, String), (usize, String)>;

/// Notes a number for a place. The greatest one counts.
pub fn note(measured: &mut Measured, rule: &'static str, place: &str, number: usize, where_: &str) {
    let entry = measured.entry((rule, place.to_owned())).or_default();
    if number > entry.0 {
        *entry = (number, where_.to_owned());
    }
}

/// Everything that is worse than `list` allows, and how many of its lines could be lowered or removed.
pub fn judge(list: &str, measured: &Measured) -> Result<(Vec<String>, usize), String> {
    let allowed = parse(list)?;
    let mut wrong = Vec::new();
    for ((name, place), (number, where_)) in measured {
        let Some(rule) = RULES.iter().find(|r| r.name == *name) else {
            return Err(format!("there is no rule {name}"));
        };
        let most = allowed.get(&(*name, place.clone())).copied();
        if *number > most.unwrap_or(rule.most).max(rule.most) {
            let most = most.unwrap_or(rule.most);
            wrong.push(format!(
                "{place}: {number} {}; at most {most}{where_}",
                rule.what
            ));
        }
    }
    let now = |key: &(&'static str, String)| measured.get(key).map_or(0, |(number, _)| *number);
    let loose = allowed
        .iter()
        .filter(|(key, most)| now(key) < **most)
        .count();
    Ok((wrong, loose))
}

/// The list with every number lowered that can be, and without unnecessary lines.
pub fn lowered(list: &str, measured: &Measured) -> Result<String, String> {
    let mut out: String = list
        .lines()
        .take_while(|l| l.starts_with('#') || l.is_empty())
        .map(|l| format!("{l}\n"))
        .collect();
    for ((name, place), most) in parse(list)? {
        let now = measured
            .get(&(name, place.clone()))
            .map_or(0, |(number, _)| *number);
        let limit = RULES.iter().find(|r| r.name == name).map_or(0, |r| r.most);
        if now > limit {
            let _ = writeln!(out, "{name} {place} {}", now.min(most));
        }
    }
    Ok(out)
}

/// The lines of the list: rule, place, number.
fn parse(list: &str) -> Result<BTreeMap<(&'static str, String), usize>, String> {
    let mut out = BTreeMap::new();
    for line in list.lines() {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let parts: Vec<_> = line.split(' ').collect();
        let [name, place, number] = parts[..] else {
            return Err(format!("exceptions.txt: no rule, place and number: {line}"));
        };
        let rule = RULES.iter().find(|r| r.name == name);
        let (Some(rule), Ok(number)) = (rule, number.parse()) else {
            return Err(format!(
                "exceptions.txt: no such rule, or no number: {line}"
            ));
        };
        out.insert((rule.name, place.to_owned()), number);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LIST: &str = "# Head.\n\nfile a.rs 1000\nfile b.rs 950\nwho a.rs 3\n";

    fn measured(of: &[(&'static str, &str, usize)]) -> Measured {
        let mut out = Measured::new();
        for (rule, place, number) in of {
            note(&mut out, rule, place, *number, "");
        }
        out
    }

    #[test]
    fn a_place_that_is_worse_than_its_number_fails() {
        let now = measured(&[
            ("file", "a.rs", 1001),
            ("file", "c.rs", 901),
            ("who", "b.rs", 1),
        ]);
        let (wrong, _) = judge(LIST, &now).unwrap();
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        let now = measured(&[
            ("file", "a.rs", 1000),
            ("file", "c.rs", 900),
            ("who", "a.rs", 2),
        ]);
        let (wrong, loose) = judge(LIST, &now).unwrap();
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(loose, 2, "b.rs has none of it, and a.rs has one less");
    }

    #[test]
    fn lowering_never_raises() {
        let now = measured(&[
            ("file", "a.rs", 1200),
            ("file", "b.rs", 900),
            ("who", "a.rs", 1),
            ("who", "new.rs", 1),
        ]);
        let list = lowered(LIST, &now).unwrap();
        assert_eq!(list, "# Head.\n\nfile a.rs 1000\nwho a.rs 1\n");
    }

    #[test]
    fn a_line_that_is_none_is_told() {
        for line in ["file a.rs", "fil a.rs 3", "file a.rs three"] {
            assert!(parse(line).unwrap_err().contains(line), "{line}");
        }
    }
}
