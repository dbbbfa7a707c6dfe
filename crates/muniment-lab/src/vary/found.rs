//! The results of several variants' turns: figures in sheets, and the lines that plots are made
//! from.

use super::Request;
use super::settings::{self, Dimension, Setting};
use crate::report::overlay::ends;
use crate::report::{Better, Figure, Outcome};
use crate::versus::Sheet;
use muniment_load::fail::Result;
use muniment_load::load::Load;
use muniment_load::samples::SampleSet;

/// A variant: a setting on a target.
pub(crate) struct Variant {
    /// The number of its target.
    pub side: usize,
    pub setting: Setting,
    pub name: String,
}

/// The results of all turns.
pub(crate) struct Found {
    /// The phases that are compared.
    pub phases: Vec<String>,
    /// The settings that were varied.
    pub dimensions: Vec<Dimension>,
    /// The targets' names, if there are several.
    pub targets: Vec<String>,
    /// The variants, in the order of targets and then of settings.
    pub variants: Vec<Variant>,
    /// The figures. With several targets there is a named sheet for each setting that compares the
    /// targets; otherwise one unnamed sheet compares the settings.
    pub sheets: Vec<(String, Sheet)>,
    /// The samples of every load that counts.
    pub samples: Vec<SampleSet>,
    /// The number of settings on one target.
    settings: usize,
}

/// A line of a plot over a dimension.
pub(crate) struct Line {
    /// The other settings, or the phase if there are none.
    pub name: String,
    /// For each point, x, the median, and the smallest and greatest value.
    pub all: Vec<(f64, f64, (f64, f64))>,
}

impl Line {
    /// The points without their ranges.
    pub(crate) fn points(&self) -> Vec<(f64, f64)> {
        self.all.iter().map(|p| (p.0, p.1)).collect()
    }

    /// The ranges of the points.
    pub(crate) fn spread(&self) -> Vec<(f64, f64)> {
        self.all.iter().map(|p| p.2).collect()
    }
}

impl Found {
    /// Makes an empty result for a request.
    ///
    /// # Errors
    /// The settings cannot be combined.
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

    /// The sheet of variant `v`, and its column there.
    fn place(&self, v: usize) -> (usize, usize) {
        if self.sheets.len() > 1 || self.settings == 1 {
            (v % self.settings, v / self.settings)
        } else {
            (0, v)
        }
    }

    /// Adds the next turn of variant `v` and returns its loads by phase. Loads that Ctrl-C cut
    /// short do not count and are dropped.
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

    /// The values of figure `figure` of variant `v`, turn by turn.
    fn values(&self, v: usize, figure: &str) -> Vec<f64> {
        let (sheet, column) = self.place(v);
        let sheet = self.sheets.get(sheet);
        sheet.map_or_else(Vec::new, |(_, s)| s.measured(column, figure))
    }

    /// The number of turns in which each variant was measured.
    pub(crate) fn turns(&self, phase: &str) -> Vec<(&str, usize)> {
        let figure = format!("{phase} operations");
        let each = self.variants.iter().enumerate();
        each.map(|(v, variant)| (variant.name.as_str(), self.values(v, &figure).len()))
            .collect()
    }

    /// The name of the figure of variant `v` that a plot shows: documents a second if they differ
    /// from operations a second.
    fn shown(&self, v: usize, phase: &str) -> String {
        let documents = format!("{phase} documents");
        match self.median(v, &documents).is_finite() {
            true => documents,
            false => format!("{phase} operations"),
        }
    }

    /// The median of that figure, and its smallest and greatest value.
    pub(crate) fn rate(&self, v: usize, phase: &str) -> (f64, (f64, f64)) {
        let figure = self.shown(v, phase);
        (self.median(v, &figure), ends(&self.values(v, &figure)))
    }

    /// The first numeric dimension that has enough values for a line.
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

/// The figures of a phase that are compared.
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
