//! The results that an experiment hands over, and their three forms: text on the terminal, JSON
//! lines, and one self-contained HTML file.

pub(crate) mod command;
pub(crate) mod cost;
pub(crate) mod derived;
pub(crate) mod experiments;
pub(crate) mod figure;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod overlay;
pub(crate) mod percentiles;
pub(crate) mod plot;
pub(crate) mod scaling;
pub(crate) mod side_by_side;
pub(crate) mod svg;
pub(crate) mod table;
pub(crate) mod timeline;

pub(crate) use figure::{Better, Figure, Statistic};
use muniment_load::number;
use muniment_load::samples::SampleSet;
use plot::Plot;
use serde::{Deserialize, Serialize};
use table::Table;

/// The results of an experiment.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name on the command line.
    #[serde(rename = "experiment")]
    pub id: String,
    /// Its heading.
    pub title: String,
    /// A description of what it measures and how, in two or three sentences.
    pub about: String,
    /// The preset that it ran with.
    pub preset: String,
    /// The main findings, in a sentence each.
    pub findings: Vec<String>,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its plots.
    pub plots: Vec<Plot>,
    /// The differences from the post's experiment.
    pub deviations: Vec<String>,
    /// Reasons to distrust the results (client-bound, cut short, …).
    pub warnings: Vec<String>,
    /// The figures, for programs.
    pub figures: Vec<Figure>,
    /// The measurements, for programs; they have lines of their own in the JSON.
    #[serde(skip)]
    pub samples: Vec<SampleSet>,
    /// The time that it took.
    #[serde(with = "number")]
    pub seconds: f64,
}

impl Outcome {
    /// Adds a figure and returns it, so that more can be set.
    pub fn figure(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &str,
        published: Option<f64>,
    ) -> &mut Figure {
        let at = self.figures.len();
        self.figures
            .push(Figure::new(name.into(), value, unit, published));
        // This is the figure that was just pushed.
        &mut self.figures[at]
    }

    /// The text for a terminal of `width` letters, or for a file if there is no width.
    pub fn text(&self, width: Option<usize>) -> String {
        let mut o = format!(
            "\n== {}: {} (preset {}, {:.0} s)\n",
            self.id, self.title, self.preset, self.seconds
        );
        for t in &self.tables {
            o.push('\n');
            o.push_str(&t.text(width));
        }
        let mut list = |head: &str, lines: &[String]| {
            if !lines.is_empty() {
                o.push_str(&format!("\n{head}\n"));
                for l in lines {
                    o.push_str(&format!("  - {l}\n"));
                }
            }
        };
        list("Findings", &self.findings);
        list("Differs from the post", &self.deviations);
        list("WARNING", &self.warnings);
        o
    }
}

/// A whole run.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The command line as it was typed.
    pub command: String,
    /// The time at which it began, `2026-01-31 12:00 UTC`.
    pub started: String,
    /// The facts about the environment, as name and text.
    pub environment: Vec<(String, String)>,
    /// The experiments that ran; they have lines of their own in the JSON.
    #[serde(skip)]
    pub outcomes: Vec<Outcome>,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Whether a part of it failed.
    #[serde(default)]
    pub failed: bool,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::plot::{Axis, Mark, Scale, Series};
    use super::*;
    use muniment_load::hist::Latency;
    use muniment_load::samples::Interval;
    use muniment_load::usage::{ServerUsage, Usage};

    /// Makes a run that has one of everything, including values that are NaN or infinite.
    pub(crate) fn run() -> Run {
        let mut first = Table::new("Latency, ms", &["<concern", ">avg", "*avg"]);
        first.row(["w:1 <ack>", "0.10", "0.13"]).note("a note");
        let second = Table::new("Second table", &["<a"]);
        let axis = |l: &str, scale| Axis {
            label: l.into(),
            scale,
        };
        let series = |name: &str, mark, points: &[(f64, f64)]| Series {
            name: name.into(),
            mark,
            published: mark == Mark::Level,
            color: 1,
            points: points.to_vec(),
            ..Series::default()
        };
        let lines = Plot {
            title: "Plot title".into(),
            caption: String::new(),
            x: axis("query number", Scale::Linear),
            y: axis("ms", Scale::Log),
            categories: vec![],
            series: vec![
                series(
                    "w:1",
                    Mark::Line,
                    &[(1.0, 0.1 + 0.2), (2.0, 1e-7), (3.0, f64::NAN)],
                ),
                series("w:0", Mark::Dots, &[(1.5, 2.0), (f64::INFINITY, 3.0)]),
                series("post", Mark::Level, &[(0.0, 2.5)]),
            ],
        };
        let bars = Plot {
            title: "Bars".into(),
            caption: "how to read it".into(),
            x: axis("", Scale::Linear),
            y: axis("docs/s", Scale::Linear),
            categories: vec!["one two".into(), "three".into()],
            series: vec![series("ours", Mark::Bar, &[(0.0, 12345.0), (1.0, 6.5)])],
        };
        let mut latency = Latency::new();
        for i in 1..200 {
            latency.record(i * i * 1003);
        }
        let set = SampleSet {
            name: "w:1".into(),
            began: 1_700_000_000.123,
            workers: 1,
            placement: "two cores".into(),
            operations: latency.count(),
            timeline: vec![(0.0, 0.0), (0.3 - 0.1, 3.0), (1.5, 199.0)],
            each_ms: vec![0.1, f64::NAN],
            seconds: 1.5,
            intervals: vec![
                Interval {
                    length: 1.0,
                    operations: 199,
                    p50_ms: 0.5,
                    hdr: latency.hdr(),
                    server: Some(ServerUsage::default()),
                    ..Interval::default()
                },
                Interval {
                    start: 1.0,
                    p50_ms: f64::NAN,
                    ..Interval::default()
                },
            ],
            usage: Some(Usage::default()),
            latency,
        };
        let mut outcome = Outcome {
            id: "w1".into(),
            title: "T".into(),
            about: "what it measures".into(),
            preset: "smoke".into(),
            findings: vec!["a finding".into()],
            tables: vec![first, second],
            plots: vec![lines, bars],
            deviations: vec!["a deviation".into()],
            warnings: vec!["a warning".into()],
            samples: vec![set],
            seconds: 2.25,
            ..Outcome::default()
        };
        outcome
            .figure("w:1 avg", 0.3, "ms", Some(0.13))
            .of("w:1", Statistic::Mean);
        outcome.figure("none", f64::NAN, "docs/s", None);
        outcome
            .figure("2 ratio", 1.5, "×", None)
            .better(Better::Higher)
            .between(1.25, 1.75);
        Run {
            command: "muniment bench w1".into(),
            started: "today".into(),
            environment: vec![
                ("cpu".into(), "2 cores".into()),
                ("cpu".into(), "twice".into()),
            ],
            outcomes: vec![
                outcome,
                Outcome {
                    id: "w3".into(),
                    ..Outcome::default()
                },
            ],
            interrupted: true,
            failed: false,
        }
    }
}
