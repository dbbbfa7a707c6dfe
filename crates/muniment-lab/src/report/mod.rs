//! What an experiment hands over, and the three forms it takes: text on the terminal, JSON
//! lines, and one self-contained HTML file.

pub mod html;
pub mod scaling;
pub mod svg;
pub mod table;

use crate::hist::{Latency, base64, finite};
use crate::usage::{ServerUsage, Usage};
use serde_json::{Value, json};
use svg::Plot;
use table::Table;

/// A second of a load.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interval {
    /// When it began, s since the load's beginning.
    pub start: f64,
    /// How long it was, s: less than one at the end.
    pub length: f64,
    /// Operations that ended in it.
    pub operations: u64,
    /// Their median, ms.
    pub p50_ms: f64,
    /// Their 99th percentile, ms.
    pub p99_ms: f64,
    /// The longest, ms.
    pub max_ms: f64,
    /// All their latencies in ns: an HDR histogram, V2, deflated.
    pub hdr: Vec<u8>,
    /// The server's CPU s, bytes read and written in it, and resident bytes at its end.
    pub server: Option<ServerUsage>,
}

impl Interval {
    fn json(&self) -> Value {
        json!({
            "start_s": finite(self.start),
            "length_s": finite(self.length),
            "operations": self.operations,
            "p50_ms": finite(self.p50_ms),
            "p99_ms": finite(self.p99_ms),
            "max_ms": finite(self.max_ms),
            "hdr_v2_deflate_base64_ns": base64(&self.hdr),
            "server": self.server.map_or(Value::Null, |s| s.json()),
        })
    }
}

/// One set of measurements as it was taken: nothing is thrown away before the JSON.
#[derive(Clone, Default)]
pub struct SampleSet {
    /// Which variant.
    pub name: String,
    /// Latency of the operations.
    pub latency: Latency,
    /// (seconds since the start, operations finished until then).
    pub timeline: Vec<(f64, f64)>,
    /// Every latency in ms, in order, when there were few enough to keep.
    pub each_ms: Vec<f64>,
    /// Operations and how long they took altogether.
    pub operations: u64,
    /// Seconds from the first send to the last acknowledgement.
    pub seconds: f64,
    /// Second by second.
    pub intervals: Vec<Interval>,
    /// What it cost.
    pub usage: Option<Usage>,
}

impl SampleSet {
    fn json(&self, experiment: &str) -> Value {
        json!({
            "kind": "samples",
            "experiment": experiment,
            "name": self.name,
            "operations": self.operations,
            "seconds": finite(self.seconds),
            "latency": self.latency.json(),
            "timeline_s_ops": self.timeline.iter().map(|(t, n)| json!([finite(*t), finite(*n)])).collect::<Vec<_>>(),
            "each_ms": self.each_ms.iter().map(|x| finite(*x)).collect::<Vec<_>>(),
            "intervals": self.intervals.iter().map(Interval::json).collect::<Vec<_>>(),
            "usage": self.usage.map_or(Value::Null, |u| u.json()),
        })
    }
}

/// One number that an experiment found, with the post's beside it where there is one.
#[derive(Debug, Clone)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// How much.
    pub value: f64,
    /// In what.
    pub unit: String,
    /// The post's.
    pub published: Option<f64>,
}

/// What an experiment found.
#[derive(Clone, Default)]
pub struct Outcome {
    /// Its name on the command line.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// What it measures and how, in two or three sentences.
    pub about: String,
    /// The preset it ran with.
    pub preset: String,
    /// The main findings, a sentence each.
    pub findings: Vec<String>,
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its plots.
    pub plots: Vec<Plot>,
    /// In what it differs from the post.
    pub deviations: Vec<String>,
    /// What stands against trusting it (client-bound, cut short, …).
    pub warnings: Vec<String>,
    /// The figures, for programs.
    pub figures: Vec<Figure>,
    /// The measurements, for programs.
    pub samples: Vec<SampleSet>,
    /// How long it took.
    pub seconds: f64,
}

impl Outcome {
    /// Adds a figure.
    pub fn figure(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &str,
        published: Option<f64>,
    ) {
        self.figures.push(Figure {
            name: name.into(),
            value,
            unit: unit.to_string(),
            published,
        });
    }

    /// For the terminal.
    pub fn text(&self) -> String {
        let mut o = format!(
            "\n== {}: {} (preset {}, {:.0} s)\n",
            self.id, self.title, self.preset, self.seconds
        );
        for t in &self.tables {
            o.push('\n');
            o.push_str(&t.text());
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

    /// One JSON line a sample set, then one for the result.
    pub fn json(&self) -> Vec<Value> {
        let mut lines: Vec<Value> = self.samples.iter().map(|s| s.json(&self.id)).collect();
        lines.push(json!({
            "kind": "result",
            "experiment": self.id,
            "title": self.title,
            "preset": self.preset,
            "seconds": finite(self.seconds),
            "figures": self.figures.iter().map(|f| json!({
                "name": f.name, "value": finite(f.value), "unit": f.unit,
                "published": f.published.map_or(Value::Null, finite),
            })).collect::<Vec<_>>(),
            "tables": self.tables.iter().map(Table::json).collect::<Vec<_>>(),
            "findings": self.findings,
            "deviations": self.deviations,
            "warnings": self.warnings,
        }));
        lines
    }
}

/// A whole run.
#[derive(Clone, Default)]
pub struct Run {
    /// What was typed.
    pub command: String,
    /// When it began, `2026-01-31 12:00 UTC`.
    pub started: String,
    /// The environment: a name and a text each.
    pub environment: Vec<(String, String)>,
    /// The experiments that ran.
    pub outcomes: Vec<Outcome>,
    /// True if it was interrupted.
    pub interrupted: bool,
}

impl Run {
    /// Every line of the JSON form: the environment, then each experiment's.
    pub fn json(&self) -> Vec<Value> {
        let environment: serde_json::Map<String, Value> = self
            .environment
            .iter()
            .map(|(k, v)| (k.clone(), Value::String(v.clone())))
            .collect();
        let mut lines = vec![json!({
            "kind": "environment",
            "format": 1,
            "command": self.command,
            "started": self.started,
            "interrupted": self.interrupted,
            "environment": environment,
        })];
        lines.extend(self.outcomes.iter().flat_map(Outcome::json));
        lines
    }
}
