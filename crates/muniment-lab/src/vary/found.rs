//! What the turns of several variants gave: figures in sheets, and what follows from them.

use super::Request;
use super::settings::{self, Dimension, Setting};
use crate::report::overlay::ends;
use crate::report::{Better, Figure, Outcome};
use crate::versus::Sheet;
use muniment_load::fail::Result;
use muniment_load::load::Load;
use muniment_load::samples::SampleSet;

/// One variant: a setting on a target.
pub(crate) struct Variant {
    /// The target's number.
    pub side: usize,
    /// What is set.
    pub setting: Setting,
    /// What it is called.
    pub name: String,
}

/// What the turns gave.
pub(crate) struct Found {
    /// The phases that are compared.
    pub phases: Vec<String>,
    /// The settings that were varied.
    pub dimensions: Vec<Dimension>,
    /// The targets' names, if there are several.
    pub targets: Vec<String>,
    /// In the order of targets, then of settings.
    pub variants: Vec<Variant>,
    /// With several targets a sheet for each setting, over the targets; else one over the settings,
    /// without a name.
    pub sheets: Vec<(String, Sheet)>,
    /// Every load that counts.
    pub samples: Vec<SampleSet>,
    /// Settings on one target.
    settings: usize,
}

/// What a line over a dimension shows.
pub(crate) struct Line {
    /// The other settings, or the phase where there are none.
    pub name: String,
    /// x, the median, and between what it was found.
    pub all: Vec<(f64, f64, (f64, f64))>,
}

impl Line {
    /// Its points, without what they were found between.
    pub(crate) fn points(&self) -> Vec<(f64, f64)> {
        self.all.iter().map(|p| (p.0, p.1)).collect()
    }

    /// What its points were found between.
    pub(crate) fn spread(&self) -> Vec<(f64, f64)> {
        self.all.iter().map(|p| p.2).collect()
    }
}

impl Found {
    /// Nothing yet, of what is asked for.
    ///
    /// # Errors
    /// Settings that cannot be combined.
    pub(crate) fn new(r: &Request) -> Result<Found> {
        let all = settings::combinations(&r.dimensions)?;
        let named: Vec<String> = all.iter().map(|s| settings::name(s)).collect();
        let targets: Vec<String> = match r.targets.as_slice() {
            [] | [_] => Vec::new(),
            several => several.iter().map(|t| t.name.clone()).collect(),
        };
        let alone = [String::new()];
        let sides = match targets.as_slice() {
            [] => &alone[..],
            several => several,
        };
        let mut variants = Vec::new();
        for (side, target) in sides.iter().enumerate() {
            variants.extend(all.iter().map(|setting| {
                Variant {
                    side,
                    setting: setting.clone(),
                    name: format!("{target} {}", settings::name(setting))
                        .trim()
                        .to_string(),
                }
            }));
        }
        let sheets = match targets.is_empty() {
            true => vec![(String::new(), Sheet::new(named))],
            false => {
                let over = |name| (name, Sheet::new(targets.clone()));
                named.into_iter().map(over).collect()
            }
        };
        let compared = match r.plan.runs() {
            [] => r.plan.loads(),
            runs => runs,
        };
        Ok(Found {
            phases: compared.iter().map(|p| p.name.clone()).collect(),
            dimensions: r.dimensions.clone(),
            targets,
            variants,
            sheets,
            samples: Vec::new(),
            settings: all.len(),
        })
    }

    /// Which sheet and which of its variants is variant `v`.
    fn place(&self, v: usize) -> (usize, usize) {
        if self.sheets.len() > 1 || self.settings == 1 {
            (v % self.settings, v / self.settings)
        } else {
            (0, v)
        }
    }

    /// The next turn of variant `v`: by phase the loads that count. One that was cut short by Ctrl-C
    /// does not.
    pub(crate) fn add(&mut self, v: usize, mut loads: Vec<(String, Load)>) -> Vec<(String, Load)> {
        loads.retain(|(_, load)| !load.stopped);
        let name = self.variants.get(v).map_or("", |v| v.name.as_str());
        let mut figures = Vec::new();
        for (phase, load) in &loads {
            figures.extend(figures_of(phase, load));
            let mut samples = load.samples.clone();
            samples.name = format!("{name} {phase}");
            self.samples.push(samples);
        }
        let (sheet, column) = self.place(v);
        if let Some((_, s)) = self.sheets.get_mut(sheet) {
            s.add(column, figures);
        }
        loads
    }

    /// The median of figure `figure` of variant `v`.
    pub(crate) fn median(&self, v: usize, figure: &str) -> f64 {
        let (sheet, column) = self.place(v);
        self.sheets
            .get(sheet)
            .map_or(f64::NAN, |(_, s)| s.median(column, figure))
    }

    /// Figure `figure` of variant `v`, turn by turn.
    fn values(&self, v: usize, figure: &str) -> Vec<f64> {
        let (sheet, column) = self.place(v);
        let sheet = self.sheets.get(sheet);
        sheet.map_or_else(Vec::new, |(_, s)| s.measured(column, figure))
    }

    /// In how many turns each variant was measured.
    pub(crate) fn turns(&self, phase: &str) -> Vec<(&str, usize)> {
        let figure = format!("{phase} operations");
        let each = self.variants.iter().enumerate();
        each.map(|(v, variant)| (variant.name.as_str(), self.values(v, &figure).len()))
            .collect()
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
    pub(crate) fn rate(&self, v: usize, phase: &str) -> (f64, (f64, f64)) {
        let figure = self.shown(v, phase);
        (self.median(v, &figure), ends(&self.values(v, &figure)))
    }

    /// The first dimension of numbers that has enough of them for a line.
    pub(crate) fn axis(&self) -> Option<&Dimension> {
        let numeric = |d: &&Dimension| d.values.len() > 2 && d.numbers().is_some();
        self.dimensions.iter().find(numeric)
    }

    /// A line over `axis` for each combination of the other settings.
    pub(crate) fn lines(&self, phase: &str, axis: &Dimension) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        for (v, variant) in self.variants.iter().enumerate() {
            let (on, rest): (Setting, Setting) = variant
                .setting
                .iter()
                .cloned()
                .partition(|(k, _)| *k == axis.key);
            let target = self.targets.get(variant.side).map_or("", String::as_str);
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
