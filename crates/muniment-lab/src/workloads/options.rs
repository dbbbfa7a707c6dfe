//! Options that belong to one experiment. They are rows of its `SPEC`, and the experiment reads
//! them from [`crate::lab::Lab::options`].

use super::{ALL, Spec};
use crate::topology::option::{self, TOPOLOGY};
use muniment_load::fail::{Failure, Result};
use muniment_options::{Given, Group, Opt};

/// The options of these experiments, as groups of one help page. An option of several experiments
/// stands in the first one's group alone; it is the first in the lists of the others.
pub(crate) fn groups(specs: &[&'static Spec]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for s in specs {
        let shown = |o: &Opt| {
            let mut all = groups.iter().flat_map(|g| g.options);
            all.any(|other| other.name == o.name)
        };
        let shared = s.options.iter().take_while(|o| shown(o)).count();
        let own = s.options.get(shared..).unwrap_or_default();
        if !own.is_empty() {
            groups.push(Group::new(s.name, own));
        }
    }
    groups
}

/// Refuses options of experiments that are not among `names` (an empty list stands for all); they
/// would be ignored otherwise.
///
/// # Errors
/// The error names the option and the experiments that have it.
pub(crate) fn belong(given: &Given, names: &[String]) -> Result<()> {
    for (name, value) in given.options() {
        let has = |s: &&&Spec| s.options.iter().any(|o| o.name == name);
        let mut owners: Vec<&str> = ALL.iter().filter(has).map(|s| s.name).collect();
        if name == TOPOLOGY.name {
            owners.retain(|o| option::owner(value) == Some(o));
        }
        let owns = |n: &String| super::named(n).iter().any(|s| owners.contains(&s.name));
        if !owners.is_empty() && !names.is_empty() && !names.iter().any(owns) {
            let what = match name == TOPOLOGY.name {
                true => format!("{name} {value}"),
                false => name.to_string(),
            };
            return Err(Failure(format!(
                "--{what} belongs to '{}'",
                owners.join("' and '")
            )));
        }
    }
    Ok(())
}

/// Parses a list of whole numbers from 1 to `most`.
///
/// # Errors
/// The text is no such list; the error tells what would be right.
pub(crate) fn numbers(text: &str, most: usize) -> Result<Vec<usize>> {
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

/// Parses a number of seconds, above 0 and at most a day.
///
/// # Errors
/// The text is no such number; the error tells what would be right.
pub(crate) fn seconds(text: &str) -> Result<f64> {
    let n = text.parse().ok();
    n.filter(|n| *n > 0.0 && *n <= 86_400.0)
        .ok_or_else(|| Failure::new("it must be seconds, above 0 and at most 86400"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn options_belong_to_their_experiment() {
        let ceiling = super::super::named("ceiling")[0];
        let option = &ceiling.options[0];
        let mut given = Given::default();
        let e = given.add(option, "0,4".into()).unwrap_err().to_string();
        assert!(
            e.starts_with("--connections 0,4: it must be numbers from 1"),
            "{e}"
        );
        given.add(option, "1".into()).unwrap();
        assert!(belong(&given, &[]).is_ok());
        assert!(belong(&given, &[ceiling.name.to_string()]).is_ok());
        let e = belong(&given, &["w1".into()]).unwrap_err().0;
        assert_eq!(e, "--connections belongs to 'ceiling'");
        // Two experiments share this option, and its value tells which of them is meant.
        for (value, owner) in [("shards=1", "w5"), ("two-dcs", "w1")] {
            let mut given = Given::default();
            given.add(&TOPOLOGY, value.into()).unwrap();
            assert!(belong(&given, &["w3".into(), owner.into()]).is_ok());
            let others = ["w1", "w3", "w5"].map(String::from);
            let others: Vec<String> = others.into_iter().filter(|n| n != owner).collect();
            let e = belong(&given, &others).unwrap_err().0;
            assert_eq!(e, format!("--topology {value} belongs to '{owner}'"));
        }
    }

    #[test]
    fn an_option_of_several_experiments_is_shown_once() {
        let groups = groups(ALL);
        let mut names: Vec<&str> = groups
            .iter()
            .flat_map(|g| g.options.iter().map(|o| o.name))
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(names.contains(&TOPOLOGY.name));
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
