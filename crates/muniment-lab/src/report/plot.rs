//! What a plot is: axes and series of points. [`super::svg`] draws it.

use muniment_load::number;
use serde::{Deserialize, Serialize};

/// How an axis runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// From zero, or from the smallest value if it is negative.
    #[default]
    Linear,
    /// Decades; values that are not positive are left out.
    Log,
    /// Percentages, 0 to below 100, each nine as wide as the last: 0, 90, 99, 99.9.
    Nines,
}

/// One axis.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Axis {
    /// What it shows, with the unit.
    pub label: String,
    /// How it runs.
    pub scale: Scale,
}

impl Axis {
    /// An axis that runs evenly.
    pub fn linear(label: &str) -> Axis {
        Axis {
            label: label.to_string(),
            scale: Scale::Linear,
        }
    }

    /// An axis of decades.
    pub fn log(label: &str) -> Axis {
        Axis {
            label: label.to_string(),
            scale: Scale::Log,
        }
    }
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// A line with its points.
    #[default]
    Line,
    /// Points only.
    Dots,
    /// A line across the plot at the y value of the first point.
    Level,
    /// Bars; x is the index of the category.
    Bar,
}

/// A named set of points.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// How it is drawn.
    pub mark: Mark,
    /// True for a post's figures: drawn dashed or hatched.
    pub published: bool,
    /// Which colour, 0–7. A post's series takes the colour of ours that it belongs to.
    pub color: usize,
    /// (x, y).
    #[serde(with = "number::pairs")]
    pub points: Vec<(f64, f64)>,
    /// For each point between what it was found, lowest and highest y: a band around a line,
    /// whiskers on a bar or dot. Empty where each point was measured once.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "number::pairs")]
    pub spread: Vec<(f64, f64)>,
}

impl Series {
    /// What was measured, in one of the colours.
    pub fn new(
        name: impl Into<String>,
        mark: Mark,
        color: usize,
        points: Vec<(f64, f64)>,
    ) -> Series {
        Series {
            name: name.into(),
            mark,
            color,
            points,
            ..Series::default()
        }
    }

    /// The same as a post's figures.
    pub fn published(self) -> Series {
        Series {
            published: true,
            ..self
        }
    }

    /// Every point with what it was found between, if that is known.
    pub(super) fn with_spread(&self) -> impl Iterator<Item = ((f64, f64), Option<(f64, f64)>)> {
        let spread = self.spread.iter().copied().map(Some);
        let points = self.points.iter().copied();
        points.zip(spread.chain(std::iter::repeat(None)))
    }
}

/// A category, what was measured of it, and what somebody published or promised.
pub(crate) type Bar<'a> = (&'a str, f64, Option<f64>);

/// A plot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plot {
    /// Its heading.
    pub title: String,
    /// One sentence on how to read it.
    pub caption: String,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// For bar plots: the names of the groups, x = 0, 1, ….
    pub categories: Vec<String>,
    /// What is drawn, later on top.
    pub series: Vec<Series>,
}

impl Plot {
    /// An empty plot.
    pub fn new(title: &str, caption: &str, x: Axis, y: Axis) -> Plot {
        Plot {
            title: title.to_string(),
            caption: caption.to_string(),
            x,
            y,
            categories: Vec::new(),
            series: Vec::new(),
        }
    }

    /// The same with bars for each of these.
    pub fn categories<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Plot {
        Plot {
            categories: names.into_iter().map(str::to_string).collect(),
            ..self
        }
    }

    /// The same with these drawn in it.
    pub fn series(self, series: impl IntoIterator<Item = Series>) -> Plot {
        Plot {
            series: series.into_iter().collect(),
            ..self
        }
    }

    /// Bars: for each category what was measured, and beside it what somebody published or
    /// promised, where there is something.
    pub fn beside(
        title: &str,
        caption: &str,
        x: &str,
        y: Axis,
        rows: &[Bar<'_>],
        other: &str,
    ) -> Plot {
        let bars = |value: fn(&Bar<'_>) -> Option<f64>| {
            let values = rows.iter().map(value).enumerate();
            values.filter_map(|(i, y)| Some((i as f64, y?))).collect()
        };
        Plot::new(title, caption, Axis::linear(x), y)
            .categories(rows.iter().map(|row| row.0))
            .series([
                Series::new("measured", Mark::Bar, 0, bars(|row| Some(row.1))),
                Series::new(other, Mark::Bar, 1, bars(|row| row.2)).published(),
            ])
    }
}
