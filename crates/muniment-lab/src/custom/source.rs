//! A TOML file as a tree in which every value knows its line, so that every error can name one; and
//! a reader of tables that refuses unknown keys.
//!
//! A table with the keys `smoke`, `quick` and `paper` may stand in place of any value; it is
//! replaced by the value for the chosen preset, so that the rest of the lab never sees the others.

use crate::lab::Preset;
use muniment_load::fail::Failure;
use muniment_options::{distance, meant};
use std::fmt::Display;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml::value::Datetime;

/// An error in the file, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bad {
    /// The line, from 1.
    pub line: usize,
    /// The error in words.
    pub text: String,
}

/// The result of reading a part of the file.
pub(crate) type Parsed<T> = Result<T, Bad>;

impl Bad {
    /// Converts it to the lab's error, with the file's name in front.
    pub(crate) fn in_file(self, file: &str) -> Failure {
        Failure(format!("{file}, line {}: {}", self.line, self.text))
    }
}

/// A value of the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number with a point.
    Number(f64),
    /// `true` or `false`.
    Flag(bool),
    /// A date, ms since 1970; without an offset it counts as UTC.
    Date(i64),
    List(Vec<Item>),
    /// A table, in the order of the file.
    Table(Vec<(Key, Item)>),
}

/// A value with its line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    pub value: Value,
    /// Its line, from 1.
    pub line: usize,
}

/// A key with its line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Key {
    pub name: String,
    /// Its line, from 1.
    pub line: usize,
}

/// Reads a whole file, and takes the values of `preset` where there are several.
///
/// # Errors
/// The text is no TOML, or a value for the preset is missing.
pub(crate) fn read(text: &str, preset: Preset) -> Parsed<Item> {
    let table = DeTable::parse(text).map_err(|e| Bad {
        line: e.span().map_or(1, |s| line_of(text, s.start)),
        text: e.message().to_string(),
    })?;
    let reader = Reader { text, preset };
    Ok(Item {
        value: Value::Table(reader.entries(table.get_ref())?),
        line: 1,
    })
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    before.iter().filter(|b| **b == b'\n').count() + 1
}

struct Reader<'a> {
    text: &'a str,
    preset: Preset,
}

impl Reader<'_> {
    fn entries(&self, table: &DeTable<'_>) -> Parsed<Vec<(Key, Item)>> {
        table
            .iter()
            .map(|(key, value)| {
                let key = Key {
                    name: key.get_ref().to_string(),
                    line: line_of(self.text, key.span().start),
                };
                Ok((key, self.item(value)?))
            })
            .collect()
    }

    fn item(&self, value: &Spanned<DeValue<'_>>) -> Parsed<Item> {
        let line = line_of(self.text, value.span().start);
        let bad = |text: String| Bad { line, text };
        let value = match value.get_ref() {
            DeValue::String(s) => Value::Text(s.to_string()),
            DeValue::Integer(n) => {
                let whole = i64::from_str_radix(n.as_str(), n.radix());
                Value::Whole(whole.map_err(|_| bad(format!("{n} does not fit into 64 bits")))?)
            }
            DeValue::Float(n) => {
                let number = n.as_str().parse();
                Value::Number(number.map_err(|_| bad(format!("{n} is no number")))?)
            }
            DeValue::Boolean(b) => Value::Flag(*b),
            DeValue::Datetime(d) => {
                let ms = milliseconds(d);
                Value::Date(ms.ok_or_else(|| {
                    bad(format!("{d} is a time of day; a date is needed with it"))
                })?)
            }
            DeValue::Array(a) => {
                Value::List(a.iter().map(|v| self.item(v)).collect::<Parsed<_>>()?)
            }
            DeValue::Table(t) => {
                let mut entries = self.entries(t)?;
                let names = ["smoke", "quick", "paper"];
                if entries.is_empty() || !entries.iter().all(|(k, _)| names.contains(&&*k.name)) {
                    Value::Table(entries)
                } else {
                    let want = self.preset.name();
                    let at = entries.iter().position(|(k, _)| k.name == want);
                    let at =
                        at.ok_or_else(|| bad(format!("there is no value for preset {want}")))?;
                    return Ok(entries.swap_remove(at).1);
                }
            }
        };
        Ok(Item { value, line })
    }
}

/// Milliseconds since 1970, UTC; `None` if it has no date.
fn milliseconds(d: &Datetime) -> Option<i64> {
    let date = d.date?;
    // The algorithm is "days from civil" (H. Hinnant, chrono-compatible low-level date algorithms).
    let (y, m) = (i64::from(date.year), i64::from(date.month));
    let y = if m <= 2 { y - 1 } else { y };
    let era = y.div_euclid(400);
    let in_era = y.rem_euclid(400);
    let of_year = (153 * ((m + 9) % 12) + 2) / 5 + i64::from(date.day) - 1;
    let days = era * 146_097 + in_era * 365 + in_era / 4 - in_era / 100 + of_year - 719_468;
    let mut ms = days * 86_400_000;
    if let Some(t) = d.time {
        let seconds =
            i64::from(t.hour) * 3600 + i64::from(t.minute) * 60 + i64::from(t.second.unwrap_or(0));
        ms += seconds * 1000 + i64::from(t.nanosecond.unwrap_or(0)) / 1_000_000;
    }
    if let Some(toml::value::Offset::Custom { minutes }) = d.offset {
        ms -= i64::from(minutes) * 60_000;
    }
    Some(ms)
}

impl Item {
    /// An error about this value.
    pub(crate) fn bad(&self, text: impl Display) -> Bad {
        Bad {
            line: self.line,
            text: text.to_string(),
        }
    }

    /// The type of the value in words, for errors.
    pub(crate) fn described(&self) -> String {
        match &self.value {
            Value::Text(s) => format!("\"{s}\""),
            Value::Whole(n) => n.to_string(),
            Value::Number(n) => n.to_string(),
            Value::Flag(b) => b.to_string(),
            Value::Date(_) => "a date".into(),
            Value::List(_) => "a list".into(),
            Value::Table(_) => "a table".into(),
        }
    }

    fn wrong(&self, what: &str, right: &str) -> Bad {
        self.bad(format!("{what} must be {right}, not {}", self.described()))
    }

    /// The value as a string. `what` is its name in the error, here and in the following functions.
    ///
    /// # Errors
    /// The value has another type.
    pub(crate) fn text(&self, what: &str) -> Parsed<&str> {
        match &self.value {
            Value::Text(s) => Ok(s),
            _ => Err(self.wrong(what, "a string")),
        }
    }

    /// The value as a whole number that is not negative.
    ///
    /// # Errors
    /// The value is something else.
    pub(crate) fn count(&self, what: &str) -> Parsed<u64> {
        match self.value {
            Value::Whole(n) => n.try_into().ok(),
            _ => None,
        }
        .ok_or_else(|| self.wrong(what, "a whole number, 0 or more"))
    }

    /// The value as a whole number of at least 1.
    ///
    /// # Errors
    /// The value is something else.
    pub(crate) fn positive(&self, what: &str) -> Parsed<u64> {
        match self.count(what) {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(self.wrong(what, "a whole number, 1 or more")),
        }
    }

    /// The value as a whole number.
    ///
    /// # Errors
    /// The value is something else.
    pub(crate) fn whole(&self, what: &str) -> Parsed<i64> {
        match self.value {
            Value::Whole(n) => Ok(n),
            _ => Err(self.wrong(what, "a whole number")),
        }
    }

    /// The value as a finite number.
    ///
    /// # Errors
    /// The value is something else.
    pub(crate) fn number(&self, what: &str) -> Parsed<f64> {
        match self.value {
            Value::Whole(n) => Ok(n as f64),
            Value::Number(n) if n.is_finite() => Ok(n),
            _ => Err(self.wrong(what, "a number")),
        }
    }

    /// The value as a number above zero.
    ///
    /// # Errors
    /// The value is something else.
    pub(crate) fn above_zero(&self, what: &str) -> Parsed<f64> {
        match self.number(what) {
            Ok(n) if n > 0.0 => Ok(n),
            _ => Err(self.wrong(what, "a number above 0")),
        }
    }

    /// The value as a number in 0…1.
    ///
    /// # Errors
    /// The value is something else.
    pub(crate) fn share(&self, what: &str) -> Parsed<f64> {
        match self.number(what) {
            Ok(n) if (0.0..=1.0).contains(&n) => Ok(n),
            _ => Err(self.wrong(what, "a number from 0 to 1")),
        }
    }

    /// The value as `true` or `false`.
    ///
    /// # Errors
    /// The value is something else.
    pub(crate) fn flag(&self, what: &str) -> Parsed<bool> {
        match self.value {
            Value::Flag(b) => Ok(b),
            _ => Err(self.wrong(what, "true or false")),
        }
    }

    /// The value as a list.
    ///
    /// # Errors
    /// The value is something else.
    pub(crate) fn list(&self, what: &str) -> Parsed<&[Item]> {
        match &self.value {
            Value::List(l) => Ok(l),
            _ => Err(self.wrong(what, "a list")),
        }
    }

    /// The value as the entries of a table.
    ///
    /// # Errors
    /// The value is something else.
    pub(crate) fn table(&self, what: &str) -> Parsed<&[(Key, Item)]> {
        match &self.value {
            Value::Table(t) => Ok(t),
            _ => Err(self.wrong(what, "a table")),
        }
    }

    /// A reader of this table's keys.
    ///
    /// # Errors
    /// The value is no table.
    pub(crate) fn fields(&self, what: impl Into<String>) -> Parsed<Fields<'_>> {
        let what = what.into();
        let entries = self.table(&what)?;
        Ok(Fields {
            what,
            line: self.line,
            entries,
            known: Vec::new(),
        })
    }

    /// The value as one of several words.
    ///
    /// # Errors
    /// The value is none of them; the error lists them.
    pub(crate) fn one_of<T: Copy>(&self, what: &str, words: &[(&str, T)]) -> Parsed<T> {
        let all: Vec<&str> = words.iter().map(|(w, _)| *w).collect();
        let word = match &self.value {
            Value::Text(s) => s,
            _ => return Err(self.wrong(what, &format!("one of {}", all.join(", ")))),
        };
        let found = words.iter().find(|(w, _)| w == word);
        found.map(|(_, t)| *t).ok_or_else(|| {
            self.bad(format!(
                "{what} = \"{word}\": {}there are {}",
                meant(word, &all),
                all.join(", ")
            ))
        })
    }
}

/// Reads a table key by key; [`Fields::end`] refuses keys that were never read.
pub(crate) struct Fields<'a> {
    /// The name of the table in errors.
    pub what: String,
    /// The line in which it begins.
    pub line: usize,
    entries: &'a [(Key, Item)],
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The value of a key, if it is there.
    pub(crate) fn get(&mut self, name: &'static str) -> Option<&'a Item> {
        self.known.push(name);
        let entry = self.entries.iter().find(|(k, _)| k.name == name);
        entry.map(|(_, item)| item)
    }

    /// The value of a key that must be there.
    ///
    /// # Errors
    /// The key is missing.
    pub(crate) fn need(&mut self, name: &'static str) -> Parsed<&'a Item> {
        let found = self.get(name);
        found.ok_or_else(|| {
            let mut near = self.entries.iter().map(|(k, _)| &k.name);
            let near = near.find(|k| distance(k, name) <= 2);
            let hint = near.map_or_else(String::new, |k| format!(" (is '{k}' meant to be it?)"));
            Bad {
                line: self.line,
                text: format!("{} needs the key '{name}'{hint}", self.what),
            }
        })
    }

    /// An error about the whole table.
    pub(crate) fn bad(&self, text: impl Display) -> Bad {
        Bad {
            line: self.line,
            text: format!("{}: {text}", self.what),
        }
    }

    /// Ends the reading and refuses keys that were never read, which are most likely misspelt.
    ///
    /// # Errors
    /// There is such a key; the error names it and the key that may have been meant.
    pub(crate) fn end(mut self) -> Parsed<()> {
        let unknown = self
            .entries
            .iter()
            .find(|(k, _)| !self.known.contains(&k.name.as_str()));
        let Some((key, _)) = unknown else {
            return Ok(());
        };
        self.known.sort_unstable();
        self.known.dedup();
        Err(Bad {
            line: key.line,
            text: format!(
                "{} has no key '{}': {}it may have {}",
                self.what,
                key.name,
                meant(&key.name, &self.known),
                self.known.join(", ")
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn values_know_their_lines_and_presets_choose() {
        let file = "a = 1\n[t]\nb = { smoke = 2, paper = 3 }\nd = 2024-02-29T12:00:00.5+01:00\n";
        let root = read(file, Preset::Paper).unwrap();
        let mut f = root.fields("the file").unwrap();
        assert_eq!(f.need("a").unwrap().count("a"), Ok(1));
        let t = f.need("t").unwrap();
        f.end().unwrap();
        let mut t = t.fields("[t]").unwrap();
        let b = t.need("b").unwrap();
        assert_eq!((b.count("b"), b.line), (Ok(3), 3));
        assert_eq!(t.need("d").unwrap().value, Value::Date(1_709_204_400_500));
        let e = read(file, Preset::Quick).unwrap_err();
        assert_eq!(
            (e.line, e.text.as_str()),
            (3, "there is no value for preset quick")
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (text, ms) in [
            ("1970-01-01", 0),
            ("1969-12-31T23:59:59Z", -1000),
            ("2000-03-01", 951_868_800_000),
            ("2026-01-31T00:00:00Z", 1_769_817_600_000),
        ] {
            let root = read(&format!("d = {text}"), Preset::Smoke).unwrap();
            let d = root.table("").unwrap().first().unwrap().1.clone();
            assert_eq!(d.value, Value::Date(ms), "{text}");
        }
    }

    #[test]
    fn unknown_keys_are_refused_with_what_may_be_meant() {
        let root = read("name = 1\nthread = 2", Preset::Smoke).unwrap();
        let mut f = root.fields("[[phase]]").unwrap();
        f.get("threads");
        f.get("name");
        let e = f.end().unwrap_err();
        assert_eq!(e.line, 2);
        assert_eq!(
            e.text,
            "[[phase]] has no key 'thread': is 'threads' meant? it may have name, threads"
        );
    }

    #[test]
    fn what_is_no_toml_is_said_with_its_line() {
        let e = read("a = 1\nb = [1,\n", Preset::Smoke).unwrap_err();
        assert!(e.line >= 2, "{e:?}");
        let e = read("a = 1\na = 2\n", Preset::Smoke).unwrap_err();
        assert_eq!(e.line, 2, "{e:?}");
    }
}
