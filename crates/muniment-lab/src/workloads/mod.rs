//! The experiments. One file each, with its `SPEC`; one line each in [`ALL`], sorted by name.

mod apart;
mod ceiling;
mod concerns;
pub mod only;
pub mod options;
mod query;
mod w1;
mod w2;
mod w3;
mod w4a;
mod w4b;
mod w5;

use crate::fail::Result;
use crate::lab::Lab;
use crate::report::Outcome;

/// One experiment.
pub struct Spec {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What it measures and how.
    pub about: &'static str,
    /// The options that only it has.
    pub options: &'static [options::Opt],
    /// What it goes through, for `--only`.
    pub dimensions: &'static [only::Dimension],
    /// Runs it. What was found before an error or Ctrl-C is in the outcome.
    pub run: fn(&mut Lab, &mut Outcome) -> Result<()>,
}

/// Every experiment, sorted by name.
pub const ALL: &[&Spec] = &[
    &ceiling::SPEC,
    &query::SPEC,
    &w1::SPEC,
    &w2::SPEC,
    &w3::SPEC,
    &w4a::SPEC,
    &w4b::SPEC,
    &w5::SPEC,
];

/// The experiments that `name` stands for: one, or a family (`w4` is W4a and W4b).
pub fn named(name: &str) -> Vec<&'static Spec> {
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
    use super::*;

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
