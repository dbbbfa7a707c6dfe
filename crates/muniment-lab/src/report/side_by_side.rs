//! Several runs on one page: a description of each, the figures that they share in columns, and
//! their plots laid over each other.

use super::plot::Plot;
use super::table::{Table, ms, rate};
use super::{Figure, Outcome, Run, overlay};

/// The name of a run: A, B, … Z, and then its number.
pub(crate) fn label(i: usize) -> String {
    match u8::try_from(i) {
        Ok(n) if n < 26 => char::from(b'A' + n).to_string(),
        _ => (i + 1).to_string(),
    }
}

/// The table that describes the runs.
pub(crate) fn runs(runs: &[Run]) -> Table {
    let columns = ["<run", "<command", "<began", "<host", "<server", "<preset"];
    let mut t = Table::new("The runs", &columns);
    for (i, run) in runs.iter().enumerate() {
        let of = |key: &str| {
            let found = run.environment.iter().find(|(k, _)| k == key);
            found.map_or("not known", |(_, v)| v.as_str())
        };
        let mut presets: Vec<&str> = run.outcomes.iter().map(|x| x.preset.as_str()).collect();
        presets.dedup();
        t.row([
            label(i),
            run.command.clone(),
            run.started.clone(),
            format!("{}, cores {}", of("CPU"), of("Cores")),
            of("Server version").to_string(),
            presets.join(", "),
        ]);
    }
    t
}

/// An outcome for each experiment that several runs have, with the figures and plots of all of
/// them.
pub(crate) fn shared(runs: &[Run]) -> Vec<Outcome> {
    let mut out: Vec<Outcome> = Vec::new();
    for x in runs.iter().flat_map(|r| &r.outcomes) {
        if out.iter().any(|o| o.id == x.id) {
            continue;
        }
        let all: Vec<(String, &Outcome)> = runs
            .iter()
            .enumerate()
            .filter_map(|(i, r)| Some((label(i), r.outcomes.iter().find(|y| y.id == x.id)?)))
            .collect();
        if all.len() > 1 {
            out.push(one(x, &all));
        }
    }
    out
}

fn one(first: &Outcome, all: &[(String, &Outcome)]) -> Outcome {
    let mut o = Outcome {
        id: first.id.clone(),
        title: first.title.clone(),
        about: first.about.clone(),
        ..Outcome::default()
    };
    if all.iter().any(|(_, x)| x.preset != first.preset) {
        o.warnings
            .push("The runs had different presets: their figures are of different amounts.".into());
    }
    let mut columns = vec!["<figure".to_string(), "<unit".to_string()];
    columns.extend(all.iter().map(|(l, _)| format!(">{l}")));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut t = Table::new("Figures", &columns);
    let mut seen: Vec<&str> = Vec::new();
    for f in all.iter().flat_map(|(_, x)| &x.figures) {
        if seen.contains(&f.name.as_str()) {
            continue;
        }
        seen.push(&f.name);
        let mut row = vec![f.name.clone(), f.unit.clone()];
        row.extend(all.iter().map(|(_, x)| {
            let found = x
                .figures
                .iter()
                .find(|g| g.name == f.name && g.unit == f.unit);
            found.map_or_else(|| "–".into(), value)
        }));
        t.row(row);
    }
    if !t.rows.is_empty() {
        o.tables.push(t);
    }
    let plots: Vec<(&str, &[Plot])> = all
        .iter()
        .map(|(l, x)| (l.as_str(), x.plots.as_slice()))
        .collect();
    o.plots = overlay::side_by_side(&plots);
    o
}

fn value(f: &Figure) -> String {
    if f.unit == "ms" {
        ms(f.value)
    } else {
        rate(f.value)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use crate::report::tests::run;

    #[test]
    fn what_runs_share_stands_side_by_side() {
        let (a, mut b) = (run(), run());
        b.outcomes[0].figures.remove(1);
        b.outcomes[0].plots.remove(1);
        b.outcomes[0].preset = "quick".into();
        b.outcomes.remove(1);
        let all = shared(&[a, b]);
        assert_eq!(all.len(), 1, "only one run has w3");
        let o = &all[0];
        assert!(o.warnings[0].contains("different presets"));
        assert_eq!(o.tables[0].rows[0], ["w:1 avg", "ms", "0.300", "0.300"]);
        assert_eq!(o.tables[0].rows[1], ["none", "docs/s", "–", "–"]);
        // Only one run has the plot of bars, so it is left out.
        assert_eq!(o.plots.len(), 1);
        let names: Vec<&str> = o.plots[0].series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["A: w:1", "B: w:1", "A: w:0", "B: w:0", "post"]);
        let colours: Vec<usize> = o.plots[0].series.iter().map(|s| s.color).collect();
        assert_eq!(colours, [0, 1, 2, 3, 7]);
    }

    #[test]
    fn runs_have_letters_then_numbers() {
        assert_eq!(
            (label(0), label(25), label(26)),
            ("A".into(), "Z".into(), "27".into())
        );
    }
}
