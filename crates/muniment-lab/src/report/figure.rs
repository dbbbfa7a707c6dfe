//! A figure: one number that an experiment found, and what a later comparison needs to judge it.

use muniment_load::number;
use serde::{Deserialize, Serialize};

/// Which way a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: it describes.
    Neither,
}

/// What of a sample set a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Its operations a second, or a constant times them.
    Rate,
    /// Its mean latency.
    Mean,
    /// Its median latency.
    P50,
    /// Its 99th percentile.
    P99,
}

/// Where a figure comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The name of the sample sets of the same experiment (all that have it).
    pub samples: String,
    /// What of them.
    pub statistic: Statistic,
}

/// One number that an experiment found, with the post's beside it where there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// How much.
    #[serde(with = "number")]
    pub value: f64,
    /// In what.
    pub unit: String,
    /// The post's.
    pub published: Option<f64>,
    /// Which way is better.
    pub better: Better,
    /// The samples it comes from, if they were kept.
    pub source: Option<Source>,
    /// Its own 95 % interval, if it was measured with one.
    pub interval: Option<(f64, f64)>,
}

impl Figure {
    /// A figure whose unit tells which way is better, if any.
    pub fn new(name: String, value: f64, unit: &str, published: Option<f64>) -> Figure {
        Figure {
            name,
            value,
            unit: unit.to_string(),
            published,
            better: by_unit(unit),
            source: None,
            interval: None,
        }
    }

    /// Says which way is better where the unit does not.
    pub fn better(&mut self, better: Better) -> &mut Figure {
        self.better = better;
        self
    }

    /// Says which samples it comes from.
    pub fn of(&mut self, samples: impl Into<String>, statistic: Statistic) -> &mut Figure {
        self.source = Some(Source {
            samples: samples.into(),
            statistic,
        });
        self
    }

    /// Says its 95 % interval.
    pub fn between(&mut self, low: f64, high: f64) -> &mut Figure {
        // What is no number could not be written.
        self.interval = (low.is_finite() && high.is_finite()).then_some((low, high));
        self
    }
}

/// More is better of rates, less of times and sizes; of anything else the unit does not tell.
fn by_unit(unit: &str) -> Better {
    if unit.contains("/s") {
        return Better::Higher;
    }
    match unit.split(['/', ' ']).next() {
        Some("ns" | "µs" | "us" | "ms" | "s" | "bytes" | "B" | "kB" | "KB" | "MB" | "GB") => {
            Better::Lower
        }
        _ => Better::Neither,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_tell_the_direction() {
        for (unit, want) in [
            ("docs/s", Better::Higher),
            ("documents/s a core", Better::Higher),
            ("ms", Better::Lower),
            ("µs/doc", Better::Lower),
            ("bytes", Better::Lower),
            ("ratio", Better::Neither),
            ("×", Better::Neither),
            ("commits", Better::Neither),
        ] {
            assert_eq!(
                Figure::new("f".into(), 1.0, unit, None).better,
                want,
                "{unit}"
            );
        }
    }
}
