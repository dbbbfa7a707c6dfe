//! Options that belong to one experiment. They are rows of its `SPEC`, and the experiment reads
//! them from [`crate::lab::Lab::options`].

use super::{ALL, Spec};
use muniment_load::fail::{Failure, Result};
use muniment_options::{Given, Group};

/// The options of these experiments, as groups of one help page.
pub(crate) fn groups(specs: &[&'static Spec]) -> Vec<Group> {
    let some = specs.iter().filter(|s| !s.options.is_empty());
    some.map(|s| Group::new(s.name, s.options)).collect()
}

/// Refuses options of experiments that are not among `names` (an empty list stands for all); they
/// would be ignored otherwise.
///
/// # Errors
/// The error names the option and the experiments that have it.
pub(crate) fn belong(given: &Given, names: &[String]) -> Result<()> {
    for (name, _) in given.options() {
        let has = |s: &&&Spec| s.options.iter().any(|o| o.name == name);
        if let Some(spec) = ALL.iter().find(has)
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
