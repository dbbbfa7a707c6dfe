//! The experiments. Each has a file with its `SPEC` and a line in [`ALL`], sorted by name.

pub(crate) mod apart;
pub(crate) mod ceiling;
pub(crate) mod concerns;
pub(crate) mod move_cost;
pub(crate) mod only;
pub(crate) mod options;
pub(crate) mod query;
pub(crate) mod router_cost;
pub(crate) mod scenarios;
pub(crate) mod sharded;
pub(crate) mod w1;
pub(crate) mod w2;
pub(crate) mod w3;
pub(crate) mod w4a;
pub(crate) mod w4b;
pub(crate) mod w5;

use crate::lab::Lab;
use crate::report::Outcome;
use muniment_load::fail::Result;
use muniment_options::Opt;

/// An experiment.
pub struct Spec {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// A description of what it measures and how.
    pub about: &'static str,
    /// The most disk space that the files of an embedded server take, roughly, in GB by preset
    /// (smoke, quick, paper). A run that has less is not begun.
    pub disk_gb: [f64; 3],
    /// The options that only it has.
    pub options: &'static [Opt],
    /// The dimensions that `--only` can select from.
    pub dimensions: &'static [only::Dimension],
    /// Runs the experiment. Results from before an error or Ctrl-C are in the outcome.
    pub run: fn(&mut Lab, &mut Outcome) -> Result<()>,
}

/// All experiments, sorted by name.
pub(crate) const ALL: &[&Spec] = &[
    &ceiling::SPEC,
    &query::SPEC,
    &w1::SPEC,
    &w2::SPEC,
    &w3::SPEC,
    &w4a::SPEC,
    &w4b::SPEC,
    &w5::SPEC,
];

/// All experiments in the order in which they run. Those that measure the lab itself come last, so
/// that a report begins with the results about servers.
pub(crate) fn in_order() -> Vec<&'static Spec> {
    let mut all = ALL.to_vec();
    all.sort_by_key(|s| s.name == ceiling::SPEC.name);
    all
}

/// The experiments that `name` stands for: one, or a family (`w4` is W4a and W4b).
pub(crate) fn named(name: &str) -> Vec<&'static Spec> {
    ALL.iter()
        .copied()
        .filter(|s| {
            s.name == name
                || s.name
                    .strip_prefix(name)
                    .is_some_and(|rest| matches!(rest, "a" | "b") && name.len() > 1)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn what_measures_the_lab_runs_last() {
        let names: Vec<&str> = in_order().iter().map(|s| s.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert_eq!((names[0], names.last()), ("query", Some(&"ceiling")));
    }

    #[test]
    fn the_registry_is_sorted_and_families_resolve() {
        assert!(ALL.is_sorted_by_key(|s| s.name));
        let names = |n| named(n).iter().map(|s| s.name).collect::<Vec<_>>();
        assert_eq!(names("w1"), ["w1"]);
        assert_eq!(names("w4"), ["w4a", "w4b"]);
        assert_eq!(names("w4b"), ["w4b"]);
        assert!(names("w").is_empty() && names("").is_empty() && names("x").is_empty());
    }
}
