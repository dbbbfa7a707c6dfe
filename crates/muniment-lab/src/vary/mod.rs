//! One workload in several variants: settings (`--vary`), targets (`--target`), or both, measured
//! in turns; and one workload at rising rates (`--rates`).

pub mod rates;
pub mod settings;

use crate::custom::{self, Plan, Ready};
use crate::lab::{Lab, Target};
use crate::report::overlay::{ends, medians_of};
use crate::report::plot::{Axis, Mark, Plot, Series};
use crate::report::scaling::scaling;
use crate::report::table::{Table, ms, rate};
use crate::report::{Better, Figure, Outcome};
use crate::targets::Named;
use crate::versus::{Sheet, order};
use muniment_load::fail::{Failure, Result};
use muniment_load::load::Load;
use muniment_load::placement::Placement;
use muniment_load::stop;
use muniment_load::usl;
use settings::{Dimension, Setting};
use std::time::Duration;

/// What is to be varied.
pub struct Request {
    /// The workload as it is without a variation.
    pub plan: Plan,
    /// The settings.
    pub dimensions: Vec<Dimension>,
    /// The targets; empty for the embedded server.
    pub targets: Vec<Named>,
    /// In how many turns.
    pub turns: usize,
    /// The embedded servers' cache, GiB.
    pub cache_gb: Option<f64>,
}

/// A target while its variants take turns.
struct Side {
    name: String,
    target: Target,
    ready: Ready,
}

/// One variant: a setting on a target.
struct Variant {
    side: usize,
    setting: Setting,
    plan: Plan,
    name: String,
}

/// Every variant in turns, and what they show.
///
/// # Errors
/// A setting that the workload does not have; no server; a workload that fails on it.
pub fn run(lab: &mut Lab, r: &Request, out: &mut Outcome) -> Result<()> {
    out.about.clone_from(&r.plan.about);
    let all = settings::combinations(&r.dimensions)?;
    let mut variants = Vec::new();
    let names: Vec<String> = match r.targets.as_slice() {
        [] | [_] => vec![String::new()],
        several => several.iter().map(|t| t.name.clone()).collect(),
    };
    for (side, target) in names.iter().enumerate() {
        for setting in &all {
            let mut plan = r.plan.clone();
            for (key, value) in setting {
                plan.set(key, value).map_err(|e| e.while_doing("--vary"))?;
            }
            let name = format!("{target} {}", settings::name(setting));
            variants.push(Variant {
                side,
                setting: setting.clone(),
                plan,
                name: name.trim().to_string(),
            });
        }
    }
    let mut sides = Vec::new();
    let mut done = Done::new(r, &all);
    let result = begin(lab, r, &mut sides, out)
        .and_then(|()| turns(lab, r, &variants, &mut sides, &mut done, out));
    for side in sides {
        lab.done(side.target);
    }
    done.write_down(r, &variants, out);
    result
}

/// Starts the targets and loads their data.
fn begin(lab: &mut Lab, r: &Request, sides: &mut Vec<Side>, out: &mut Outcome) -> Result<()> {
    let several = r.targets.len() > 1;
    let mut start = |lab: &mut Lab, name: &str| -> Result<()> {
        let mut target = lab.target(r.cache_gb)?;
        target.database.clone_from(&r.plan.database);
        let ready = custom::prepare(lab, &target, &r.plan);
        let mut ready = match ready {
            Ok(ready) => ready,
            Err(e) => {
                lab.done(target);
                return Err(e);
            }
        };
        out.warnings.append(&mut ready.warnings);
        sides.push(Side {
            name: name.to_string(),
            target,
            ready,
        });
        Ok(())
    };
    if r.targets.is_empty() {
        return start(lab, "embedded");
    }
    for t in &r.targets {
        lab.endpoint = t.endpoint.clone();
        lab.target_name = several.then(|| t.name.clone());
        start(lab, &t.name).map_err(|e| e.while_doing(&t.name))?;
    }
    Ok(())
}

fn turns(
    lab: &mut Lab,
    r: &Request,
    variants: &[Variant],
    sides: &mut [Side],
    done: &mut Done,
    out: &mut Outcome,
) -> Result<()> {
    // Without a run phase the load is what is measured, and it begins anew each time.
    let anew = r.plan.runs().is_empty() || r.dimensions.iter().any(|d| d.key == "records");
    for turn in 0..r.turns {
        for v in order(variants.len(), turn) {
            let Some(variant) = variants.get(v).filter(|_| !stop::asked()) else {
                continue;
            };
            let Some(side) = sides.get_mut(variant.side) else {
                continue;
            };
            let mut loads = Vec::new();
            if anew {
                side.ready = custom::prepare(lab, &side.target, &variant.plan)?;
                loads.append(&mut side.ready.loads);
            }
            lab.settle(&side.target, LONGEST_PAUSE);
            let label = format!("{} (turn {})", variant.name, turn + 1);
            let measured = custom::measure(
                lab,
                &side.target,
                &variant.plan,
                label.trim(),
                &mut side.ready,
                &mut loads,
            );
            if let Err(e) = measured {
                side.target.check_alive()?;
                return Err(e.while_doing(&format!("{}, {}", side.name, variant.name)));
            }
            out.warnings.append(&mut side.ready.warnings);
            for (phase, load) in done.add(v, &variant.name, loads, out) {
                let threads = variant.plan.threads() as usize;
                lab.doubt(&format!("{} {phase}", variant.name), &load, threads);
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    out.warnings.retain(|w| seen.insert(w.clone()));
    Ok(())
}

/// How long a server may take to finish the work that a load leaves to it.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// What is compared of a phase.
fn figures_of(phase: &str, load: &Load) -> Vec<Figure> {
    let mut o = Outcome::default();
    let n = load.samples.operations.max(1) as f64;
    let l = &load.samples.latency;
    o.figure(
        format!("{phase} operations"),
        load.samples.operations as f64 / load.samples.seconds,
        "operations/s",
        None,
    );
    if load.documents != load.samples.operations {
        o.figure(
            format!("{phase} documents"),
            load.rate(),
            "documents/s",
            None,
        );
    }
    for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        o.figure(format!("{phase} {name}"), l.quantile_ms(q), "ms", None);
    }
    if let Some(s) = load.server {
        o.figure(
            format!("{phase} server CPU"),
            s.cpu * 1e6 / n,
            "µs/operation",
            None,
        )
        .better(Better::Lower);
        o.figure(
            format!("{phase} written"),
            s.written / n / 1e3,
            "KB/operation",
            None,
        )
        .better(Better::Lower);
        o.figure(format!("{phase} largest RSS"), s.rss / 1e6, "MB", None);
    }
    o.figures
}

/// What the turns gave.
struct Done {
    /// With several targets a sheet for each setting, over the targets; else one over the settings.
    sheets: Vec<(String, Sheet)>,
    /// Settings on one target.
    settings: usize,
}

impl Done {
    fn new(r: &Request, all: &[Setting]) -> Done {
        let sheets = if r.targets.len() > 1 {
            let names: Vec<String> = r.targets.iter().map(|t| t.name.clone()).collect();
            all.iter()
                .map(|s| (settings::name(s), Sheet::new(names.clone())))
                .collect()
        } else {
            let names = all.iter().map(|s| settings::name(s)).collect();
            vec![(String::new(), Sheet::new(names))]
        };
        Done {
            sheets,
            settings: all.len(),
        }
    }

    /// Which sheet and which of its variants is variant `v`.
    fn place(&self, v: usize) -> (usize, usize) {
        if self.sheets.len() > 1 || self.settings == 1 {
            (v % self.settings, v / self.settings)
        } else {
            (0, v)
        }
    }

    /// The next turn of variant `v`, called `name`: by phase the loads that count. One that was cut
    /// short by Ctrl-C does not.
    fn add(
        &mut self,
        v: usize,
        name: &str,
        mut loads: Vec<(String, Load)>,
        out: &mut Outcome,
    ) -> Vec<(String, Load)> {
        loads.retain(|(_, load)| !load.stopped);
        let mut figures = Vec::new();
        for (phase, load) in &loads {
            figures.extend(figures_of(phase, load));
            let mut samples = load.samples.clone();
            samples.name = format!("{name} {phase}");
            out.samples.push(samples);
        }
        let (sheet, column) = self.place(v);
        if let Some((_, s)) = self.sheets.get_mut(sheet) {
            s.add(column, figures);
        }
        loads
    }

    /// How many turns of `phase` there were: of each variant as many as were measured.
    fn turns(&self, phase: &str, variants: &[Variant]) -> Turns {
        let figure = format!("{phase} operations");
        let each = variants.iter().enumerate();
        Turns(
            each.map(|(v, variant)| (variant.name.clone(), self.values(v, &figure).len()))
                .collect(),
        )
    }

    fn median(&self, v: usize, figure: &str) -> f64 {
        let (sheet, column) = self.place(v);
        self.sheets
            .get(sheet)
            .map_or(f64::NAN, |(_, s)| s.median(column, figure))
    }

    /// Figure `figure` of variant `v`, turn by turn.
    fn values(&self, v: usize, figure: &str) -> Vec<f64> {
        let (sheet, column) = self.place(v);
        let all = self
            .sheets
            .get(sheet)
            .map(|(_, s)| s.values(column, figure));
        let all = all.into_iter().flatten();
        all.filter(|x| x.is_finite()).collect()
    }

    fn write_down(&self, r: &Request, variants: &[Variant], out: &mut Outcome) {
        let phases: Vec<&str> = match r.plan.runs() {
            [] => r.plan.loads().iter().map(|p| p.name.as_str()).collect(),
            runs => runs.iter().map(|p| p.name.as_str()).collect(),
        };
        for phase in phases {
            self.medians(phase, variants, out);
            self.plots(phase, r, variants, out);
        }
        for (setting, sheet) in &self.sheets {
            let before = out.findings.len();
            sheet.write_down(out);
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

    /// A row a variant.
    fn medians(&self, phase: &str, variants: &[Variant], out: &mut Outcome) {
        let turns = self.turns(phase, variants);
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
        // One thread stands for itself on two cores; what it did on one has a row of its own.
        let alone = Placement::OneCore.called(phase);
        let rows = variants
            .iter()
            .enumerate()
            .flat_map(|(v, variant)| [(v, variant, phase), (v, variant, alone.as_str())]);
        for (v, variant, phase) in rows {
            let of = |what: &str| self.median(v, &format!("{phase} {what}"));
            let operations = of("operations");
            if phase == alone && !operations.is_finite() {
                continue;
            }
            let documents = of("documents");
            t.row([
                match phase == alone {
                    true => Placement::OneCore.called(&variant.name),
                    false => variant.name.clone(),
                },
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
            ]);
        }
        t.note(turns.fewer());
        out.tables.push(t);
    }

    /// The figure of variant `v` that a plot shows: documents, where they are not the operations.
    fn shown(&self, v: usize, phase: &str) -> String {
        let documents = format!("{phase} documents");
        match self.median(v, &documents).is_finite() {
            true => documents,
            false => format!("{phase} operations"),
        }
    }

    /// The median of that figure, and between what it was found.
    fn rate(&self, v: usize, phase: &str) -> (f64, (f64, f64)) {
        let figure = self.shown(v, phase);
        (self.median(v, &figure), ends(&self.values(v, &figure)))
    }

    /// Lines over the dimension that is numeric, or bars.
    fn plots(&self, phase: &str, r: &Request, variants: &[Variant], out: &mut Outcome) {
        let caption = self.turns(phase, variants).caption();
        let numeric = |d: &&Dimension| d.values.len() > 2 && d.numbers().is_some();
        let Some(axis) = r.dimensions.iter().find(numeric) else {
            out.plots.push(self.bars(phase, variants, &caption));
            return;
        };
        let lines = self.lines(phase, r, axis, variants);
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
            &caption,
            Axis::log(&axis.key),
            Axis::linear("documents or operations a second"),
        );
        let series = lines.into_iter().enumerate().map(|(i, line)| Series {
            spread: line.spread(),
            ..Series::new(line.name.as_str(), Mark::Line, i % 8, line.points())
        });
        out.plots.push(plot.series(series));
    }

    /// A bar for each variant.
    fn bars(&self, phase: &str, variants: &[Variant], caption: &str) -> Plot {
        let rates: Vec<_> = (0..variants.len()).map(|v| self.rate(v, phase)).collect();
        let bars: Vec<(&str, f64, Option<f64>)> = variants
            .iter()
            .zip(&rates)
            .map(|(variant, rate)| (variant.name.as_str(), rate.0, None))
            .collect();
        let mut plot = Plot::beside(
            &format!("{phase}: documents or operations a second"),
            caption,
            "variant",
            Axis::linear("a second"),
            &bars,
            "",
        );
        plot.series.truncate(1);
        if let Some(s) = plot.series.first_mut() {
            s.spread = rates.iter().map(|rate| rate.1).collect();
        }
        plot
    }

    /// A line over `axis` for each combination of the other settings.
    fn lines(&self, phase: &str, r: &Request, axis: &Dimension, variants: &[Variant]) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        for (v, variant) in variants.iter().enumerate() {
            let (on, rest): (Setting, Setting) = variant
                .setting
                .iter()
                .cloned()
                .partition(|(k, _)| *k == axis.key);
            let target = match r.targets.len() {
                0 | 1 => "",
                _ => r.targets.get(variant.side).map_or("", |t| t.name.as_str()),
            };
            let name = format!("{target} {}", settings::name(&rest));
            let name = match name.trim() {
                "" => phase,
                n => n,
            };
            let x = on.first().and_then(|(_, x)| x.parse().ok());
            let (median, between) = self.rate(v, phase);
            let point = (x.unwrap_or(f64::NAN), median, between);
            match lines.iter_mut().find(|l| l.name == name) {
                Some(line) => line.all.push(point),
                None => lines.push(Line {
                    name: name.to_string(),
                    all: vec![point],
                }),
            }
        }
        for line in &mut lines {
            line.all.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        lines
    }
}

/// What a line of a plot shows.
struct Line {
    name: String,
    /// x, the median, and between what it was found.
    all: Vec<(f64, f64, (f64, f64))>,
}

impl Line {
    fn points(&self) -> Vec<(f64, f64)> {
        self.all.iter().map(|p| (p.0, p.1)).collect()
    }

    fn spread(&self) -> Vec<(f64, f64)> {
        self.all.iter().map(|p| p.2).collect()
    }
}

/// How many turns of each variant were measured: fewer than were asked for after Ctrl-C or a
/// failure, and then not always as many of each.
struct Turns(Vec<(String, usize)>);

impl Turns {
    fn fewest_and_most(&self) -> (usize, usize) {
        let all = || self.0.iter().map(|(_, n)| *n);
        (all().min().unwrap_or(0), all().max().unwrap_or(0))
    }

    /// `3`, or `2 to 3`.
    fn number(&self) -> String {
        match self.fewest_and_most() {
            (a, b) if a == b => a.to_string(),
            (a, b) => format!("{a} to {b}"),
        }
    }

    /// What stands over a table.
    fn heading(&self) -> String {
        match self.fewest_and_most() {
            (1, 1) => "one turn".into(),
            _ => format!("medians of {} turns", self.number()),
        }
    }

    /// Of which variants there were fewer; empty if of none.
    fn fewer(&self) -> String {
        let (fewest, most) = self.fewest_and_most();
        let fewer = self.0.iter().filter(|(_, n)| *n < most);
        let fewer: Vec<String> = fewer.map(|(name, n)| format!("{name} ({n})")).collect();
        match fewest == most {
            true => String::new(),
            false => format!("Measured in fewer turns than {most}: {}.", fewer.join(", ")),
        }
    }

    /// What stands under a plot.
    fn caption(&self) -> String {
        let medians = match self.fewest_and_most() {
            (1, 1) => "One turn".into(),
            _ => medians_of(self.number()),
        };
        format!("{medians}. {}", self.fewer()).trim().to_string()
    }
}

/// A workload whose settings cannot be varied as asked is refused before anything is started.
///
/// # Errors
/// What is wrong with the first such setting.
pub fn check(r: &Request) -> Result<()> {
    for setting in settings::combinations(&r.dimensions)? {
        let mut plan = r.plan.clone();
        for (key, value) in &setting {
            plan.set(key, value).map_err(|e| e.while_doing("--vary"))?;
        }
    }
    if r.turns == 0 {
        return Err(Failure::new("--turns 0: at least one is needed"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::lab::Preset;
    use crate::report::experiments::fixtures;
    use crate::targets::Endpoint;
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

    /// What is written down of the turns of each of two variants: the rate of each, and whether it
    /// was cut short.
    fn written(turns: [&[(u64, bool)]; 2]) -> Outcome {
        let r = Request {
            plan: Plan::read("insert", Preset::Smoke).unwrap(),
            dimensions: vec![Dimension::parse("threads=1,2").unwrap()],
            targets: Vec::new(),
            turns: 3,
            cache_gb: None,
        };
        let all = settings::combinations(&r.dimensions).unwrap();
        let variants: Vec<Variant> = all
            .iter()
            .map(|s| Variant {
                side: 0,
                setting: s.clone(),
                plan: r.plan.clone(),
                name: settings::name(s),
            })
            .collect();
        let mut done = Done::new(&r, &all);
        let mut out = Outcome::default();
        for (v, turns) in turns.iter().enumerate() {
            for (rate, stopped) in *turns {
                let kept = done.add(v, &variants[v].name, load(*rate, *stopped), &mut out);
                assert_eq!(kept.is_empty(), *stopped);
            }
        }
        done.write_down(&r, &variants, &mut out);
        out
    }

    /// Targets and settings, each variant measured in so many turns; one thread on one core and on two.
    fn measured(targets: &[&str], dimensions: &[&str], turns: usize) -> Outcome {
        let named = |name: &&str| Named {
            name: (*name).to_string(),
            endpoint: Endpoint::Embedded,
        };
        let r = Request {
            plan: Plan::read("insert", Preset::Smoke).unwrap(),
            dimensions: dimensions
                .iter()
                .map(|d| Dimension::parse(d).unwrap())
                .collect(),
            targets: targets.iter().map(named).collect(),
            turns,
            cache_gb: None,
        };
        let all = settings::combinations(&r.dimensions).unwrap();
        let names = match targets {
            [] => &[""],
            some => some,
        };
        let mut variants = Vec::new();
        for (side, target) in names.iter().enumerate() {
            variants.extend(all.iter().map(|s| Variant {
                side,
                setting: s.clone(),
                plan: r.plan.clone(),
                name: format!("{target} {}", settings::name(s)).trim().to_string(),
            }));
        }
        let mut done = Done::new(&r, &all);
        let mut out = Outcome::default();
        for turn in 0..turns {
            for (v, variant) in variants.iter().enumerate() {
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
                // One turn of the last variant was interrupted.
                loads[0].1.stopped = v + 1 == variants.len() && turn == 1;
                done.add(v, &variant.name, loads, &mut out);
            }
        }
        done.write_down(&r, &variants, &mut out);
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
