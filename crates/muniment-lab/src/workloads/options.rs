//! Options that belong to one experiment: declared in its `SPEC`, read with [`Given`].

use super::{ALL, Spec};
use crate::fail::{Failure, Result};
use std::fmt::Write;

/// One option of one experiment.
pub struct Opt {
    /// Its name on the command line, without the hyphens.
    pub name: &'static str,
    /// What its value is called in the help; empty for one that takes none.
    pub value: &'static str,
    /// What it does, a line.
    pub about: &'static str,
    /// Refuses a value, in words that begin with what would be right.
    pub check: fn(&str) -> Result<()>,
}

/// For options without a value.
pub fn none(_: &str) -> Result<()> {
    Ok(())
}

/// What of them was given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given(Vec<(&'static str, String)>);

impl Given {
    /// The value of an option, if it was given; empty for one that takes none.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.0.iter().rev();
        all.find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
    }

    /// The option called `name`, with the experiment it belongs to.
    pub fn known(name: &str) -> Option<(&'static Spec, &'static Opt)> {
        ALL.iter().find_map(|s| {
            let option = s.options.iter().find(|o| o.name == name)?;
            Some((*s, option))
        })
    }

    /// Takes a value.
    ///
    /// # Errors
    /// The option does not take this value.
    pub fn set(&mut self, option: &'static Opt, value: String) -> Result<()> {
        (option.check)(&value).map_err(|e| Failure(format!("--{} {value}: {e}", option.name)))?;
        self.0.push((option.name, value));
        Ok(())
    }

    /// Refuses options of experiments that are not among `names` (none: all of them run).
    ///
    /// # Errors
    /// Which option, and whose it is.
    pub fn belong(&self, names: &[String]) -> Result<()> {
        for (name, _) in &self.0 {
            if let Some((spec, _)) = Given::known(name)
                && !names.is_empty()
                && !names
                    .iter()
                    .any(|n| super::named(n).iter().any(|s| s.name == spec.name))
            {
                return Err(Failure(format!("--{name} belongs to '{}'", spec.name)));
            }
        }
        Ok(())
    }
}

/// The options of all experiments, for the help.
pub fn help() -> String {
    let mut o = String::new();
    for s in ALL {
        for option in s.options {
            let left = format!("--{} {}", option.name, option.value);
            let _ = writeln!(o, "  {:<16} {}: {}", left.trim_end(), s.name, option.about);
        }
    }
    o
}

/// A list of whole numbers from 1 to `most`.
///
/// # Errors
/// Says what would be right.
pub fn numbers(text: &str, most: usize) -> Result<Vec<usize>> {
    text.split(',')
        .map(|n| {
            let n = n.trim().parse().ok();
            n.filter(|n| (1..=most).contains(n)).ok_or_else(|| {
                Failure(format!(
                    "it must be numbers from 1 to {most}, separated by commas"
                ))
            })
        })
        .collect()
}

/// Seconds, above 0 and at most a day.
///
/// # Errors
/// Says what would be right.
pub fn seconds(text: &str) -> Result<f64> {
    let n = text.parse().ok();
    n.filter(|n| *n > 0.0 && *n <= 86_400.0)
        .ok_or_else(|| Failure::new("it must be seconds, above 0 and at most 86400"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_given_once_and_hide_no_general_option() {
        let mut names: Vec<&str> = ALL
            .iter()
            .flat_map(|s| s.options.iter().map(|o| o.name))
            .chain(["uri", "preset", "json", "out", "data", "only", "help"])
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn values_are_checked_and_the_last_one_counts() {
        let (spec, option) = Given::known("connections").unwrap();
        let mut given = Given::default();
        let e = given.set(option, "0,4".into()).unwrap_err().0;
        assert!(
            e.starts_with("--connections 0,4: it must be numbers from 1"),
            "{e}"
        );
        given.set(option, "1".into()).unwrap();
        given.set(option, "2,4".into()).unwrap();
        assert_eq!(given.get("connections"), Some("2,4"));
        assert_eq!(given.get("seconds"), None);
        assert!(given.belong(&[]).is_ok());
        assert!(given.belong(&[spec.name.to_string()]).is_ok());
        let e = given.belong(&["w1".into()]).unwrap_err().0;
        assert_eq!(e, "--connections belongs to 'ceiling'");
        assert!(Given::known("nonsense").is_none());
    }

    #[test]
    fn lists_and_times() {
        assert_eq!(numbers("1, 16", 16).unwrap(), [1, 16]);
        assert!(numbers("17", 16).is_err() && numbers("", 16).is_err());
        assert!(seconds("0.5").is_ok());
        for bad in ["0", "-1", "nan", "x", "1e9"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
