//! Latency by percentile, as HdrHistogram's tools draw it: the axis is stretched towards 100 %, so
//! that the latency of one operation in ten thousand can be seen as well as the median.

use super::derived::largest;
use super::plot::{Axis, Mark, Plot, Scale, Series};
use muniment_load::hist::Latency;
use muniment_load::samples::SampleSet;

/// The heading by which the plot is recognised.
pub(crate) const TITLE: &str = "Latency by percentile";

/// The most loads that are drawn, chosen by their number of operations.
const MOST: usize = 8;
/// A load of fewer operations has no tail to show.
const FEWEST: u64 = 100;
/// The number of points for each nine.
const POINTS: i32 = 10;

/// The plot of all loads of `samples` that have enough operations, with one line for all loads of
/// the same name. `None` if there are none.
pub(crate) fn plot(samples: &[SampleSet]) -> Option<Plot> {
    let mut all: Vec<(&str, Latency)> = Vec::new();
    for s in samples {
        match all.iter_mut().find(|(name, _)| *name == s.name) {
            Some((_, l)) => l.merge(&s.latency),
            None => all.push((&s.name, s.latency.clone())),
        }
    }
    all.retain(|(_, l)| l.count() >= FEWEST);
    let many = all.len();
    let all = largest(all, MOST, |(_, l)| l.count());
    if all.is_empty() {
        return None;
    }
    let mut caption =
        "How many of the operations took no longer. Each line ends where one operation is left."
            .to_string();
    if many > all.len() {
        caption += &format!(
            " The {} loads of the most operations; {} more are in results.json.",
            all.len(),
            many - all.len()
        );
    }
    Some(Plot {
        title: TITLE.into(),
        caption,
        x: Axis {
            label: "% of the operations".into(),
            scale: Scale::Nines,
        },
        y: Axis {
            label: "ms".into(),
            scale: Scale::Log,
        },
        categories: Vec::new(),
        series: all
            .iter()
            .enumerate()
            .map(|(i, (name, l))| Series {
                name: (*name).to_string(),
                mark: Mark::Line,
                color: i % 8,
                points: points(l),
                ..Series::default()
            })
            .collect(),
    })
}

/// The points (percent, ms) of a line, up to the last percentile that an operation lies beyond.
fn points(l: &Latency) -> Vec<(f64, f64)> {
    (0..)
        .map(|k| 10f64.powf(-f64::from(k) / f64::from(POINTS)))
        .take_while(|beyond| beyond * l.count() as f64 >= 0.999)
        .map(|beyond| (100.0 * (1.0 - beyond), l.quantile_ms(1.0 - beyond)))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn load(name: &str, n: u64) -> SampleSet {
        let mut latency = Latency::new();
        (1..=n).for_each(|i| latency.record(i * 1_000_000));
        SampleSet {
            name: name.into(),
            latency,
            ..SampleSet::default()
        }
    }

    #[test]
    fn a_line_goes_as_far_as_there_are_operations() {
        assert!(plot(&[load("few", FEWEST - 1)]).is_none());
        // A load that ran twice is one line of both.
        let p = plot(&[load("a", 500), load("b", 100), load("a", 500)]).unwrap();
        let names: Vec<&str> = p.series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let a = &p.series[0].points;
        assert_eq!(a[0].0, 0.0);
        let at = |percent: f64| a.iter().find(|p| (p.0 - percent).abs() < 1e-9).unwrap().1;
        assert!((at(90.0) - 450.0).abs() < 1.0 && (at(99.0) - 495.0).abs() < 1.0);
        assert!((a.last().unwrap().0 - 99.9).abs() < 1e-6, "of a thousand");
        assert!((p.series[1].points.last().unwrap().0 - 99.0).abs() < 1e-6);
    }

    #[test]
    fn of_many_loads_the_largest_are_drawn() {
        let many: Vec<SampleSet> = (0..11).map(|i| load(&i.to_string(), FEWEST + i)).collect();
        let p = plot(&many).unwrap();
        assert_eq!((p.series.len(), p.series[0].name.as_str()), (8, "3"));
        assert!(p.caption.contains("3 more"));
        // The largest load comes last, after more than enough equal ones.
        let mut many: Vec<SampleSet> = (0..11).map(|i| load(&i.to_string(), FEWEST)).collect();
        many.push(load("largest", 2 * FEWEST));
        let p = plot(&many).unwrap();
        let names: Vec<&str> = p.series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["0", "1", "2", "3", "4", "5", "6", "largest"]);
        assert!(p.caption.contains("4 more"));
    }
}
