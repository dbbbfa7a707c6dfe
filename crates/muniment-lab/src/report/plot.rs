//! The data of a plot: axes and series of points. [`super::svg`] draws it.

use muniment_load::number;
use serde::{Deserialize, Serialize};

/// The scale of an axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Linear, from zero, or from the smallest value if that is negative.
    #[default]
    Linear,
    /// Logarithmic; values that are not positive are left out.
    Log,
    /// Percentages from 0 to below 100, with the same width for each further nine: 0, 90, 99, 99.9.
    Nines,
}

/// An axis of a plot.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity that it shows, with the unit.
    pub label: String,
    /// Its scale.
    pub scale: Scale,
}

impl Axis {
    /// Makes a linear axis.
    pub fn linear(label: &str) -> Axis {
        Axis {
            label: label.to_string(),
            scale: Scale::Linear,
        }
    }

    /// Makes a logarithmic axis.
    pub fn log(label: &str) -> Axis {
        Axis {
            label: label.to_string(),
            scale: Scale::Log,
        }
    }
}

/// The form in which a series is drawn.
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
    /// Its name in the legend.
    pub name: String,
    /// The form in which it is drawn.
    pub mark: Mark,
    /// Whether the figures are a post's; they are drawn dashed or hatched.
    pub published: bool,
    /// The number of its colour, 0–7. A post's series has the colour of our series that it belongs
    /// to.
    pub color: usize,
    /// The points, as (x, y).
    #[serde(with = "number::pairs")]
    pub points: Vec<(f64, f64)>,
    /// For each point the lowest and highest y that were measured: drawn as a band around a line,
    /// or as whiskers on a bar or dot. Empty if each point was measured once.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "number::pairs")]
    pub spread: Vec<(f64, f64)>,
}

impl Series {
    /// Makes a series of our measurements.
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

    /// Marks the series as a post's figures.
    pub fn published(self) -> Series {
        Series {
            published: true,
            ..self
        }
    }

    /// The points with the range that was measured for each, if it is known.
    pub(super) fn with_spread(&self) -> impl Iterator<Item = ((f64, f64), Option<(f64, f64)>)> {
        let spread = self.spread.iter().copied().map(Some);
        let points = self.points.iter().copied();
        points.zip(spread.chain(std::iter::repeat(None)))
    }
}

/// A category, our value, and the published or promised value if there is one.
pub(crate) type Bar<'a> = (&'a str, f64, Option<f64>);

/// A plot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plot {
    /// Its heading.
    pub title: String,
    /// A sentence on how to read it.
    pub caption: String,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// For bar plots: the names of the groups, x = 0, 1, ….
    pub categories: Vec<String>,
    /// The series; later ones are drawn over earlier ones.
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

    /// Adds categories for bars.
    pub fn categories<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Plot {
        Plot {
            categories: names.into_iter().map(str::to_string).collect(),
            ..self
        }
    }

    /// Adds series.
    pub fn series(self, series: impl IntoIterator<Item = Series>) -> Plot {
        Plot {
            series: series.into_iter().collect(),
            ..self
        }
    }

    /// Adds bars for each category: our value, and next to it the published or promised one if
    /// there is one.
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
