//! A figure: a number that an experiment found, with the information that a later comparison needs
//! to judge it.

use muniment_load::number;
use serde::{Deserialize, Serialize};

/// The direction in which a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: the figure only describes.
    Neither,
}

/// The statistic of a sample set that a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// Its operations a second, or these times a constant.
    Rate,
    /// Its mean latency.
    Mean,
    /// Its median latency.
    P50,
    /// Its 99th percentile.
    P99,
}

/// The origin of a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The name of the sample sets of the same experiment (all that have it).
    pub samples: String,
    /// The statistic of these sample sets.
    pub statistic: Statistic,
}

/// A number that an experiment found, with the post's number if there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The name of the measurement.
    pub name: String,
    /// The value.
    #[serde(with = "number")]
    pub value: f64,
    /// The unit.
    pub unit: String,
    /// The post's value.
    pub published: Option<f64>,
    /// The direction in which it is better.
    pub better: Better,
    /// The samples that it was computed from, if they were kept.
    pub source: Option<Source>,
    /// The figure's own 95 % interval, if it was measured with one.
    pub interval: Option<(f64, f64)>,
}

impl Figure {
    /// Makes a figure. Its unit decides in which direction it is better, if in any.
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

    /// Sets the direction in which it is better, for units that do not tell.
    pub fn better(&mut self, better: Better) -> &mut Figure {
        self.better = better;
        self
    }

    /// Sets the samples that it was computed from.
    pub fn of(&mut self, samples: impl Into<String>, statistic: Statistic) -> &mut Figure {
        self.source = Some(Source {
            samples: samples.into(),
            statistic,
        });
        self
    }

    /// Sets its 95 % interval.
    pub fn between(&mut self, low: f64, high: f64) -> &mut Figure {
        // JSON cannot express an infinite end, so such an interval is dropped.
        self.interval = (low.is_finite() && high.is_finite()).then_some((low, high));
        self
    }
}

/// For rates more is better, for times and sizes less; other units do not tell.
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
