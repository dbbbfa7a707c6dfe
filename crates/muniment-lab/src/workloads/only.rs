//! `--only NAME=VALUE,…`, which selects parts of experiments. An experiment names its dimensions in
//! its `SPEC`, and asks [`Only::keep`] for the values to run.

use super::Spec;
use crate::lab::Preset;
use muniment_load::fail::{Failure, Result};
use std::fmt::Write;

/// A dimension of an experiment, whose values it runs one after the other.
pub struct Dimension {
    /// Its name on the command line.
    pub name: &'static str,
    /// A few words about its values.
    pub about: &'static str,
    /// Its values with this preset; empty if only the server can tell them.
    pub values: fn(Preset) -> Vec<String>,
}

/// The placement of client and server of a single connection: a dimension of every experiment that
/// has such a load.
pub(crate) const CORES: Dimension = Dimension {
    name: "cores",
    about: "of a single connection's client and server",
    values: |_| texts(["one", "two"]),
};

/// Formats values as texts.
pub(crate) fn texts<T: ToString>(all: impl IntoIterator<Item = T>) -> Vec<String> {
    all.into_iter().map(|v| v.to_string()).collect()
}

/// The parsed `--only` options: dimensions with their values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Only(Vec<(String, Vec<String>)>);

impl Only {
    /// Adds `NAME=VALUE,VALUE…`; the values of a repeated name are collected.
    ///
    /// # Errors
    /// The text does not have this form.
    pub fn add(&mut self, text: &str) -> Result<()> {
        let parts = text.split_once('=').filter(|(n, v)| {
            !n.trim().is_empty() && v.split(',').all(|value| !value.trim().is_empty())
        });
        let (name, values) = parts.ok_or_else(|| {
            Failure(format!(
                "--only {text}: it must be NAME=VALUE,VALUE…, or a yardstick's number"
            ))
        })?;
        let name = name.trim();
        let values = values.split(',').map(|v| v.trim().to_string());
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some((_, all)) => all.extend(values),
            None => self.0.push((name.to_string(), values.collect())),
        }
        Ok(())
    }

    /// Whether no part was selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The values given for a dimension.
    pub fn values(&self, name: &str) -> Option<&[String]> {
        let found = self.0.iter().find(|(n, _)| n == name);
        found.map(|(_, v)| v.as_slice())
    }

    /// Refuses dimensions that none of `specs` has, and values that an experiment with that
    /// dimension does not have.
    ///
    /// # Errors
    /// The error lists the existing dimensions or values.
    pub fn check(&self, specs: &[&Spec], preset: Preset) -> Result<()> {
        for (name, values) in &self.0 {
            let mut known = false;
            for s in specs {
                let Some(d) = s.dimensions.iter().find(|d| d.name == name) else {
                    continue;
                };
                known = true;
                let there = (d.values)(preset);
                if let Some(other) = values.iter().find(|v| !there.contains(v))
                    && !there.is_empty()
                {
                    return Err(Failure(format!(
                        "--only {name}={other}: {} of {} with preset {} is {}",
                        name,
                        s.name,
                        preset.name(),
                        there.join(", ")
                    )));
                }
            }
            if !known {
                let there: Vec<String> = specs.iter().map(|s| has(s)).collect();
                return Err(Failure(format!(
                    "--only {name}: there is no '{name}' to choose from: {}",
                    match there.as_slice() {
                        [] => "the yardsticks have numbers, --only N".to_string(),
                        some => some.join("; "),
                    }
                )));
            }
        }
        Ok(())
    }

    /// The elements of `all` whose values were asked for, in their own order; all of them if
    /// dimension `name` was not given. `called` gives an element's value.
    ///
    /// # Errors
    /// A value was asked for that no element has.
    pub fn keep<T>(
        &self,
        name: &str,
        all: Vec<T>,
        called: impl Fn(&T) -> String,
    ) -> Result<Vec<T>> {
        let Some(wanted) = self.values(name) else {
            return Ok(all);
        };
        let there: Vec<String> = all.iter().map(&called).collect();
        if let Some(missing) = wanted.iter().find(|w| !there.contains(w)) {
            return Err(Failure(format!(
                "--only {name}={missing}: here {name} is {}",
                there.join(", ")
            )));
        }
        Ok(all
            .into_iter()
            .filter(|x| wanted.contains(&called(x)))
            .collect())
    }

    /// The warning that only a part of the experiment was run, if that is so.
    pub fn told(&self, spec: &Spec) -> Option<String> {
        let mine = |(name, _): &&(String, _)| spec.dimensions.iter().any(|d| d.name == name);
        let parts: Vec<String> = self
            .0
            .iter()
            .filter(mine)
            .map(|(name, values)| format!("{name} {}", values.join(", ")))
            .collect();
        (!parts.is_empty()).then(|| format!("Only a part was run: {}.", parts.join("; ")))
    }
}

/// A list of the dimensions that an experiment has.
fn has(spec: &Spec) -> String {
    let names: Vec<&str> = spec.dimensions.iter().map(|d| d.name).collect();
    match names.as_slice() {
        [] => format!("{} has nothing", spec.name),
        some => format!("{} has {}", spec.name, some.join(", ")),
    }
}

/// The dimensions of all experiments, for the help.
pub(crate) fn help(specs: &[&Spec]) -> String {
    let mut o = String::new();
    for s in specs {
        let mut head = s.name;
        for d in s.dimensions.iter().filter(|d| d.name != CORES.name) {
            put(&mut o, head, d);
            head = "";
        }
    }
    put(&mut o, "all", &CORES);
    o
}

/// Appends one dimension, wrapped to the help's width.
fn put(o: &mut String, head: &str, d: &Dimension) {
    const WIDTH: usize = 78;
    let values = (d.values)(Preset::Smoke).join(",");
    let text = match values.as_str() {
        "" => format!("{}: {}", d.name, d.about),
        some => format!("{}={some} ({})", d.name, d.about),
    };
    let mut line = format!("  {head:<11} ");
    for part in text.split_inclusive([',', ' ']) {
        if line.chars().count() + part.trim_end().chars().count() > WIDTH {
            let _ = writeln!(o, "{}", line.trim_end());
            line = " ".repeat(16);
        }
        line.push_str(part);
    }
    let _ = writeln!(o, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::workloads::ALL;

    fn only(parts: &[&str]) -> Only {
        let mut o = Only::default();
        for p in parts {
            o.add(p).unwrap();
        }
        o
    }

    fn specs(names: &[&str]) -> Vec<&'static Spec> {
        names
            .iter()
            .flat_map(|n| crate::workloads::named(n))
            .collect()
    }

    #[test]
    fn parts_add_up_and_keep_their_order() {
        let o = only(&["batch=100,1", "batch=10", "cores = two"]);
        let kept = o.keep("batch", vec![1, 10, 100, 1000], ToString::to_string);
        assert_eq!(kept.unwrap(), [1, 10, 100]);
        assert_eq!(o.values("cores"), Some(&["two".to_string()][..]));
        let all = o.keep("clients", vec![1, 4], ToString::to_string);
        assert_eq!(all.unwrap(), [1, 4], "nothing was said of it");
        let e = o.keep("batch", vec![1, 10], ToString::to_string);
        assert_eq!(e.unwrap_err().0, "--only batch=100: here batch is 1, 10");
    }

    #[test]
    fn what_there_is_not_is_answered_with_what_there_is() {
        let check = |parts: &[&str], names: &[&str]| {
            only(parts)
                .check(&specs(names), Preset::Smoke)
                .map_err(|e| e.0)
        };
        assert_eq!(check(&["batch=1,10"], &["w3"]), Ok(()));
        // The other experiment has no such dimension and runs whole.
        assert_eq!(check(&["batch=1,10"], &["w1", "w3"]), Ok(()));
        // Values that only the server knows are checked after the server has been asked.
        assert_eq!(check(&["concern=w:2"], &["w1"]), Ok(()));
        let e = check(&["bacth=1"], &["w3"]).unwrap_err();
        assert_eq!(
            e,
            "--only bacth: there is no 'bacth' to choose from: w3 has batch, concern, cores"
        );
        let e = check(&["batch=3"], &["w3"]).unwrap_err();
        assert_eq!(
            e,
            "--only batch=3: batch of w3 with preset smoke is 1, 10, 100, 1000, 10000, 100000, 400000"
        );
        for bad in ["", "batch", "=1", "batch=", "batch=1,,2"] {
            let e = Only::default().add(bad).unwrap_err().0;
            assert!(e.contains("it must be NAME=VALUE"), "{bad}: {e}");
        }
    }

    #[test]
    fn a_part_is_called_one() {
        let o = only(&["batch=1", "clients=4"]);
        let told = |name: &str| o.told(specs(&[name])[0]);
        assert_eq!(told("w3").unwrap(), "Only a part was run: batch 1.");
        assert_eq!(told("w1"), None);
    }

    #[test]
    fn every_dimension_has_values_that_are_no_lists() {
        for s in ALL {
            for d in s.dimensions {
                for preset in [Preset::Smoke, Preset::Quick, Preset::Paper] {
                    let values = (d.values)(preset);
                    assert!(
                        values.iter().all(|v| !v.contains(',')),
                        "{} {}",
                        s.name,
                        d.name
                    );
                    let mut once = values.clone();
                    once.sort_unstable();
                    once.dedup();
                    assert_eq!(once.len(), values.len(), "{} {}", s.name, d.name);
                }
            }
        }
        let help = help(ALL);
        assert!(help.contains("batch=1,10,100") && help.contains("all         cores=one,two"));
        assert!(help.lines().all(|l| l.chars().count() <= 90), "{help}");
    }
}
