//! The report of one workload in several variants: medians, rates as lines or bars, and the
//! comparison.

use super::super::scaling::scaling;
use super::versus;
use crate::report::Outcome;
use crate::report::overlay::medians_of;
use crate::report::plot::{Axis, Mark, Plot, Series};
use crate::report::table::{Table, ms, rate};
use crate::vary::found::Found;
use crate::vary::settings::Dimension;
use muniment_load::placement::Placement;
use muniment_load::usl;

/// Adds the results to the report, as far as the measurement went.
pub(crate) fn tell(found: &Found, out: &mut Outcome) {
    out.samples.extend(found.samples.iter().cloned());
    for phase in &found.phases {
        let turns = Turns(found.turns(phase));
        out.tables.push(medians(found, phase, &turns));
        match found.axis() {
            Some(axis) => lines(found, phase, axis, &turns, out),
            None => out.plots.push(bars(found, phase, &turns)),
        }
    }
    for (setting, sheet) in &found.sheets {
        let before = out.findings.len();
        versus::tell(sheet, out);
        if setting.is_empty() {
            continue;
        }
        for f in out.findings.iter_mut().skip(before) {
            *f = format!("{setting}: {f}");
        }
        if let Some(t) = out.tables.last_mut() {
            t.title = format!("{setting}: {}", t.title);
        }
    }
}

/// The table of medians, with a row for each variant.
fn medians(found: &Found, phase: &str, turns: &Turns<'_>) -> Table {
    let mut t = Table::new(
        &format!("{phase}: {}", turns.heading()),
        &[
            "<variant",
            ">operations/s",
            ">documents/s",
            ">p50 ms",
            ">p99 ms",
            ">p99.9 ms",
            ">server CPU µs/op",
            ">KB written/op",
            ">largest RSS, MB",
        ],
    );
    // A load of one thread is represented by its run on two cores; its run on one core has a row of
    // its own.
    let alone = Placement::OneCore.called(phase);
    for (v, variant) in found.variants.iter().enumerate() {
        t.row(of_phase(found, v, phase, variant.name.clone()));
        if found.median(v, &format!("{alone} operations")).is_finite() {
            let name = Placement::OneCore.called(&variant.name);
            t.row(of_phase(found, v, &alone, name));
        }
    }
    t.note(turns.fewer());
    t
}

/// The row of variant `v`, called `name`.
fn of_phase(found: &Found, v: usize, phase: &str, name: String) -> [String; 9] {
    let of = |what: &str| found.median(v, &format!("{phase} {what}"));
    let (operations, documents) = (of("operations"), of("documents"));
    [
        name,
        rate(operations),
        rate(if documents.is_finite() {
            documents
        } else {
            operations
        }),
        ms(of("p50")),
        ms(of("p99")),
        ms(of("p99.9")),
        rate(of("server CPU")),
        rate(of("written")),
        rate(of("largest RSS")),
    ]
}

/// Adds the plot with lines over a numeric dimension.
fn lines(found: &Found, phase: &str, axis: &Dimension, turns: &Turns<'_>, out: &mut Outcome) {
    let lines = found.lines(phase, axis);
    if axis.key == "threads" && axis.values.len() >= usl::ENOUGH {
        for line in &lines {
            scaling(&line.name, &line.points(), out);
            let measured = out.plots.last_mut().and_then(|p| p.series.first_mut());
            if let Some(s) = measured {
                s.spread = line.spread();
            }
        }
        if lines.len() == 1 {
            return;
        }
    }
    let plot = Plot::new(
        &format!("{phase} against {}", axis.key),
        &turns.caption(),
        Axis::log(&axis.key),
        Axis::linear("documents or operations a second"),
    );
    let series = lines.into_iter().enumerate().map(|(i, line)| Series {
        spread: line.spread(),
        ..Series::new(line.name.as_str(), Mark::Line, i % 8, line.points())
    });
    out.plots.push(plot.series(series));
}

/// The plot with a bar for each variant.
fn bars(found: &Found, phase: &str, turns: &Turns<'_>) -> Plot {
    let variants = found.variants.iter().enumerate();
    let rates: Vec<_> = variants
        .map(|(v, variant)| (variant.name.as_str(), found.rate(v, phase)))
        .collect();
    let bars: Vec<_> = rates.iter().map(|(name, r)| (*name, r.0, None)).collect();
    let mut plot = Plot::beside(
        &format!("{phase}: documents or operations a second"),
        &turns.caption(),
        "variant",
        Axis::linear("a second"),
        &bars,
        "",
    );
    plot.series.truncate(1);
    if let Some(s) = plot.series.first_mut() {
        s.spread = rates.iter().map(|(_, rate)| rate.1).collect();
    }
    plot
}

/// The number of turns in which each variant was measured. After Ctrl-C or a failure there are
/// fewer than were asked for, and not always the same number for all.
struct Turns<'a>(Vec<(&'a str, usize)>);

impl Turns<'_> {
    fn fewest_and_most(&self) -> (usize, usize) {
        let all = || self.0.iter().map(|(_, n)| *n);
        (all().min().unwrap_or(0), all().max().unwrap_or(0))
    }

    /// The number in words: `3`, or `2 to 3`.
    fn number(&self) -> String {
        match self.fewest_and_most() {
            (a, b) if a == b => a.to_string(),
            (a, b) => format!("{a} to {b}"),
        }
    }

    /// The words in the heading of a table.
    fn heading(&self) -> String {
        match self.fewest_and_most() {
            (1, 1) => "one turn".into(),
            _ => format!("medians of {} turns", self.number()),
        }
    }

    /// A sentence that names the variants with fewer turns; empty if there are none.
    fn fewer(&self) -> String {
        let (fewest, most) = self.fewest_and_most();
        let fewer = self.0.iter().filter(|(_, n)| *n < most);
        let fewer: Vec<String> = fewer.map(|(name, n)| format!("{name} ({n})")).collect();
        match fewest == most {
            true => String::new(),
            false => format!("Measured in fewer turns than {most}: {}.", fewer.join(", ")),
        }
    }

    /// The caption of a plot.
    fn caption(&self) -> String {
        let medians = match self.fewest_and_most() {
            (1, 1) => "One turn".into(),
            _ => medians_of(self.number()),
        };
        format!("{medians}. {}", self.fewer()).trim().to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::custom::Plan;
    use crate::lab::Preset;
    use crate::report::experiments::fixtures;
    use crate::targets::{Endpoint, Named};
    use crate::vary::Request;
    use muniment_load::load::Load;
    use muniment_load::samples::SampleSet;

    fn load(rate: u64, stopped: bool) -> Vec<(String, Load)> {
        let samples = SampleSet {
            operations: rate,
            seconds: 1.0,
            ..SampleSet::default()
        };
        let load = Load {
            samples,
            documents: rate,
            stopped,
            ..Load::default()
        };
        vec![("insert".to_string(), load)]
    }

    /// An empty result for these targets and settings.
    fn request(targets: &[&str], dimensions: &[&str], turns: usize) -> Found {
        let named = |name: &&str| Named {
            name: (*name).to_string(),
            endpoint: Endpoint::Embedded,
        };
        let parse = |d: &&str| Dimension::parse(d).unwrap();
        let r = Request {
            plan: Plan::read("insert", Preset::Smoke).unwrap(),
            dimensions: dimensions.iter().map(parse).collect(),
            targets: targets.iter().map(named).collect(),
            turns,
            cache_gb: None,
        };
        Found::new(&r).unwrap()
    }

    /// The report of two variants' turns, given as the rate of each turn and whether it was cut
    /// short.
    fn written(turns: [&[(u64, bool)]; 2]) -> Outcome {
        let mut found = request(&[], &["threads=1,2"], 3);
        for (v, turns) in turns.iter().enumerate() {
            for (rate, stopped) in *turns {
                let kept = found.add(v, load(*rate, *stopped));
                assert_eq!(kept.is_empty(), *stopped);
            }
        }
        let mut out = Outcome::default();
        tell(&found, &mut out);
        out
    }

    /// The report of variants that were each measured in so many turns, with one thread on one core
    /// and on two.
    fn measured(targets: &[&str], dimensions: &[&str], turns: usize) -> Outcome {
        let mut found = request(targets, dimensions, turns);
        let variants = found.variants.len();
        for turn in 0..turns {
            for v in 0..variants {
                let x = (v + 1) as f64;
                let documents = (1000.0 * x / (1.0 + 0.05 * x) * (1.0 + 0.01 * turn as f64)) as u64;
                let mut load = fixtures::load("x", documents, 2.0, 0.1 * x);
                if turn == 0 {
                    load.samples.operations /= 10;
                }
                let mut loads = vec![("insert".to_string(), load.clone())];
                if v == 0 {
                    loads.push((Placement::OneCore.called("insert"), load));
                }
                // The last variant's turn was interrupted.
                loads[0].1.stopped = v + 1 == variants && turn == 1;
                found.add(v, loads);
            }
        }
        let mut out = Outcome::default();
        tell(&found, &mut out);
        out
    }

    #[test]
    fn lines_bars_and_targets() {
        let threads = ["threads=1,2,4,8,16"];
        fixtures::check("vary-threads", &measured(&[], &threads, 2));
        let two = ["batch=1,10,100", "w=1,majority"];
        fixtures::check("vary-lines", &measured(&[], &two, 1));
        fixtures::check("vary-bars", &measured(&[], &["w=1,majority"], 6));
        let sets = ["batch=1,10,100"];
        fixtures::check("vary-targets", &measured(&["old", "new"], &sets, 6));
        fixtures::check("vary-alone", &measured(&["old", "new"], &[], 6));
    }

    #[test]
    fn all_turns_are_counted() {
        let all = &[(1000, false), (1200, false), (1100, false)];
        let out = written([all, all]);
        assert_eq!(out.tables[0].title, "insert: medians of 3 turns");
        assert_eq!(out.tables[0].note, "");
        assert_eq!(out.tables[0].rows[0][1], "1,100");
        assert_eq!(out.plots[0].caption, format!("{}.", medians_of(3)));
        assert_eq!(out.plots[0].series[0].spread[0], (1000.0, 1200.0));
        assert_eq!(out.samples.len(), 6);
    }

    #[test]
    fn a_load_that_was_cut_short_does_not_count() {
        let out = written([
            &[(1000, false), (1200, false)],
            &[(500, false), (9000, true)],
        ]);
        let fewer = "Measured in fewer turns than 2: threads=2 (1).";
        assert_eq!(out.tables[0].title, "insert: medians of 1 to 2 turns");
        assert_eq!(out.tables[0].note, fewer);
        let rates: Vec<&str> = out.tables[0].rows.iter().map(|r| r[1].as_str()).collect();
        assert_eq!(rates, ["1,100", "500"]);
        assert_eq!(
            out.plots[0].caption,
            format!("{}. {fewer}", medians_of("1 to 2"))
        );
        assert_eq!(out.plots[0].series[0].spread[1], (500.0, 500.0));
        assert_eq!(out.samples.len(), 3);
        let one = &[(1000, false)];
        let out = written([one, one]);
        assert_eq!(out.tables[0].title, "insert: one turn");
        assert_eq!(out.plots[0].caption, "One turn.");
    }
}
