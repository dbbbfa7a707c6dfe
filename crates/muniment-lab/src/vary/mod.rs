//! One workload in several variants: settings (`--vary`), targets (`--target`), or both, measured
//! in turns; and one workload at rising rates (`--rates`).

pub mod rates;
pub mod settings;

use crate::custom::{self, Plan, Ready};
use crate::fail::{Failure, Result};
use crate::lab::{Lab, Target};
use crate::load::Load;
use crate::placement::Placement;
use crate::report::scaling::scaling;
use crate::report::svg::{Axis, Mark, Plot, Scale, Series};
use crate::report::table::{Table, ms, rate};
use crate::report::{Better, Figure, Outcome};
use crate::stop;
use crate::targets::Named;
use crate::usl;
use crate::versus::{Sheet, order};
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
            let mut figures = Vec::new();
            for (phase, load) in &loads {
                figures.extend(figures_of(phase, load));
                let threads = variant.plan.threads() as usize;
                let name = format!("{} {phase}", variant.name);
                lab.doubt(&name, load, threads);
                let mut samples = load.samples.clone();
                samples.name = name;
                out.samples.push(samples);
            }
            done.add(v, figures);
        }
    }
    let mut seen = std::collections::HashSet::new();
    out.warnings.retain(|w| seen.insert(w.clone()));
    Ok(())
}

/// How long a server may take to finish what is behind a load.
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

    fn add(&mut self, v: usize, figures: Vec<Figure>) {
        let (sheet, column) = self.place(v);
        if let Some((_, s)) = self.sheets.get_mut(sheet) {
            s.add(column, figures);
        }
    }

    fn median(&self, v: usize, figure: &str) -> f64 {
        let (sheet, column) = self.place(v);
        self.sheets
            .get(sheet)
            .map_or(f64::NAN, |(_, s)| s.median(column, figure))
    }

    fn write_down(&self, r: &Request, variants: &[Variant], out: &mut Outcome) {
        let phases: Vec<&str> = match r.plan.runs() {
            [] => r.plan.loads().iter().map(|p| p.name.as_str()).collect(),
            runs => runs.iter().map(|p| p.name.as_str()).collect(),
        };
        for phase in phases {
            self.medians(phase, r, variants, out);
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
    fn medians(&self, phase: &str, r: &Request, variants: &[Variant], out: &mut Outcome) {
        let mut t = Table::new(
            &format!("{phase}: medians of {} turns", r.turns),
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
        out.tables.push(t);
    }

    /// Lines over the dimension that is numeric, or bars.
    fn plots(&self, phase: &str, r: &Request, variants: &[Variant], out: &mut Outcome) {
        let axis = r
            .dimensions
            .iter()
            .find(|d| d.values.len() > 2 && d.numbers().is_some());
        let what = |v: usize| {
            let documents = self.median(v, &format!("{phase} documents"));
            match documents.is_finite() {
                true => documents,
                false => self.median(v, &format!("{phase} operations")),
            }
        };
        let Some(axis) = axis else {
            let bars: Vec<(&str, f64, Option<f64>)> = variants
                .iter()
                .enumerate()
                .map(|(v, variant)| (variant.name.as_str(), what(v), None))
                .collect();
            let y = Axis {
                label: "a second".into(),
                scale: Scale::Linear,
            };
            let mut plot = Plot::beside(
                &format!("{phase}: documents or operations a second"),
                "Medians over the turns.",
                "variant",
                y,
                &bars,
                "",
            );
            plot.series.truncate(1);
            out.plots.push(plot);
            return;
        };
        let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        for (v, variant) in variants.iter().enumerate() {
            let rest: Setting = variant
                .setting
                .iter()
                .filter(|(k, _)| *k != axis.key)
                .cloned()
                .collect();
            let target = match r.targets.len() {
                0 | 1 => "",
                _ => r.targets.get(variant.side).map_or("", |t| t.name.as_str()),
            };
            let name = format!("{target} {}", settings::name(&rest));
            let name = match name.trim() {
                "" => phase,
                n => n,
            };
            let x = variant
                .setting
                .iter()
                .find(|(k, _)| *k == axis.key)
                .and_then(|(_, x)| x.parse().ok())
                .unwrap_or(f64::NAN);
            let point = (x, what(v));
            match lines.iter_mut().find(|(n, _)| n == name) {
                Some((_, points)) => points.push(point),
                None => lines.push((name.to_string(), vec![point])),
            }
        }
        for (_, points) in &mut lines {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        if axis.key == "threads" && axis.values.len() >= usl::ENOUGH {
            for (name, points) in &lines {
                scaling(name, points, out);
            }
            if lines.len() == 1 {
                return;
            }
        }
        out.plots.push(Plot {
            title: format!("{phase} against {}", axis.key),
            caption: "Medians over the turns.".into(),
            x: Axis {
                label: axis.key.clone(),
                scale: Scale::Log,
            },
            y: Axis {
                label: "documents or operations a second".into(),
                scale: Scale::Linear,
            },
            categories: Vec::new(),
            series: lines
                .into_iter()
                .enumerate()
                .map(|(i, (name, points))| Series {
                    name,
                    mark: Mark::Line,
                    published: false,
                    color: i % 8,
                    points,
                })
                .collect(),
        });
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
