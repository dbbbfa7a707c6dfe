//! For tests only: made-up loads, and the comparison of an experiment's report with a checked copy
//! (`MUNIMENT_UPDATE_GOLDENS=1` writes the copy anew).

#![allow(clippy::unwrap_used)]

use crate::report::Outcome;
use muniment_load::hist::Latency;
use muniment_load::load::Load;
use muniment_load::meter::Measured;
use muniment_load::samples::SampleSet;
use muniment_load::usage::ServerUsage;
use std::fmt::Write;
use std::path::Path;

/// Latencies around `ms` milliseconds.
pub(crate) fn latency(ms: f64) -> Latency {
    let mut l = Latency::new();
    for i in 1..=100 {
        l.record((ms * 1e4 * f64::from(i) * 2.0) as u64);
    }
    l
}

/// A load of `documents` documents in `seconds` seconds, with latencies around `ms` milliseconds.
pub(crate) fn load(name: &str, documents: u64, seconds: f64, ms: f64) -> Load {
    Load {
        documents,
        sent_seconds: seconds * 0.9,
        client_cpu: seconds * 0.2,
        occupancy: 1.0,
        server: Some(ServerUsage {
            cpu: seconds * 0.5,
            cpu_step: 1e-9,
            read: 0.0,
            written: documents as f64 * 3000.0,
            rss: 1e8,
        }),
        samples: SampleSet {
            name: name.to_string(),
            operations: documents,
            seconds,
            latency: latency(ms),
            each_ms: vec![ms, 2.0 * ms],
            ..SampleSet::default()
        },
        ..Load::default()
    }
}

/// The measurements of one kind of operation, of which `n` ended with `status`.
pub(crate) fn measured(ms: f64, status: &'static str, n: u64) -> Measured {
    let mut m = Measured {
        service: latency(ms),
        ..Measured::default()
    };
    m.statuses.insert("OK", 100);
    m.statuses.insert(status, n);
    m
}

/// Compares the report of an experiment with `goldens/NAME.txt`.
pub(crate) fn check(name: &str, out: &Outcome) {
    let mut text = out.text(None);
    text.push_str("\nFigures\n");
    for f in &out.figures {
        let _ = writeln!(text, "{}", serde_json::to_string(f).unwrap());
    }
    for p in &out.plots {
        let mut plot = p.clone();
        let series = std::mem::take(&mut plot.series);
        let _ = writeln!(text, "\nPlot {}", serde_json::to_string(&plot).unwrap());
        for s in series {
            let _ = writeln!(text, "{}", serde_json::to_string(&s).unwrap());
        }
    }
    text.push_str("\nSamples\n");
    for s in &out.samples {
        let _ = writeln!(text, "{}", s.name);
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/experiments/goldens");
    let file = dir.join(format!("{name}.txt"));
    if std::env::var_os("MUNIMENT_UPDATE_GOLDENS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(text == kept, "{} is another one:\n{text}", file.display());
}
