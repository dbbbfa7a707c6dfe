//! The plots of loads second by second: rate and p99 latency over time.

use super::derived::largest;
use super::plot::{Axis, Mark, Plot, Scale, Series};
use muniment_load::samples::{Interval, SampleSet};

/// Loads of fewer seconds are not drawn.
const FEWEST: usize = 5;
/// The most loads that are drawn; the longest ones are chosen.
const MOST: usize = 8;

/// The headings by which these plots are recognised.
pub(crate) const TITLES: [&str; 2] = [
    "Operations a second against time",
    "99th percentile of each second",
];

/// The plots of the longest loads of `samples`: operations a second, and p99 of each second. There
/// are none if all loads were short.
pub(crate) fn plots(samples: &[SampleSet]) -> Vec<Plot> {
    let (long, left_out) = longest(samples);
    let mut caption = "Second by second, each load from its own beginning.".to_string();
    if left_out > 0 {
        caption += &format!(" The {MOST} longest; {left_out} more are in results.json.");
    }
    drawn(&long, &caption)
}

/// The plots of several targets that ran the same. Each target shows the loads that are among the
/// longest on any of them, so that the targets can be compared.
pub(crate) fn of_all(targets: &[Vec<SampleSet>]) -> Vec<Vec<Plot>> {
    let mut names: Vec<&str> = Vec::new();
    for s in targets.iter().flat_map(|t| longest(t).0) {
        if !names.contains(&s.name.as_str()) {
            names.push(&s.name);
        }
    }
    let caption = "Second by second, each load from its own beginning: the longest of any target.";
    let of = |samples: &Vec<SampleSet>| {
        let found = names
            .iter()
            .filter_map(|n| samples.iter().find(|s| s.name == *n));
        drawn(&found.collect::<Vec<_>>(), caption)
    };
    targets.iter().map(of).collect()
}

/// The longest loads in the order in which they ran, and the number of long loads that are left
/// out.
fn longest(samples: &[SampleSet]) -> (Vec<&SampleSet>, usize) {
    let long: Vec<&SampleSet> = samples
        .iter()
        .filter(|s| s.intervals.len() >= FEWEST)
        .collect();
    let left_out = long.len().saturating_sub(MOST);
    let long = largest(long, MOST, |s| s.intervals.len() as u64);
    (long, left_out)
}

fn drawn(loads: &[&SampleSet], caption: &str) -> Vec<Plot> {
    if loads.is_empty() {
        return Vec::new();
    }
    // The repetitions of a load have the same colour.
    let mut names: Vec<&str> = Vec::new();
    for s in loads {
        if !names.contains(&s.name.as_str()) {
            names.push(&s.name);
        }
    }
    let mut caption = caption.to_string();
    if names.len() < loads.len() {
        caption += " What was measured again is a line of the same colour.";
    }
    let colour = |s: &SampleSet| names.iter().position(|n| *n == s.name).unwrap_or(0) % 8;
    let draw = |title: &str, label: &str, scale, value: &dyn Fn(&Interval) -> f64| Plot {
        title: title.into(),
        caption: caption.clone(),
        x: Axis {
            label: "seconds".into(),
            scale: Scale::Linear,
        },
        y: Axis {
            label: label.into(),
            scale,
        },
        categories: Vec::new(),
        series: loads
            .iter()
            .map(|s| Series {
                name: s.name.clone(),
                mark: Mark::Line,
                published: false,
                color: colour(s),
                points: points(&s.intervals, value),
                ..Series::default()
            })
            .collect(),
    };
    vec![
        draw(TITLES[0], "operations/s", Scale::Linear, &|i| {
            i.operations as f64 / i.length
        }),
        draw(TITLES[1], "ms", Scale::Log, &|i| i.p99_ms),
    ]
}

/// At most three hundred points; in a long load each is the mean of neighbouring seconds. The last
/// second is left out if it is shorter than half a second.
fn points(intervals: &[Interval], value: &dyn Fn(&Interval) -> f64) -> Vec<(f64, f64)> {
    let whole: Vec<&Interval> = intervals.iter().filter(|i| i.length >= 0.5).collect();
    let together = whole.len().div_ceil(300).max(1);
    whole
        .chunks(together)
        .filter_map(|c| {
            let first = c.first()?;
            let values: Vec<f64> = c
                .iter()
                .map(|i| value(i))
                .filter(|v| v.is_finite())
                .collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            mean.is_finite().then_some((first.start + 0.5, mean))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    fn load(name: &str, seconds: usize) -> SampleSet {
        SampleSet {
            name: name.into(),
            intervals: (0..seconds)
                .map(|i| Interval {
                    start: i as f64,
                    length: if i + 1 == seconds { 0.1 } else { 1.0 },
                    operations: 10 * i as u64,
                    p99_ms: if i == 2 { f64::NAN } else { 1.0 },
                    ..Interval::default()
                })
                .collect(),
            ..SampleSet::default()
        }
    }

    #[test]
    fn long_loads_are_lines_and_short_ones_are_not() {
        assert!(plots(&[load("short", 4)]).is_empty());
        let p = plots(&[load("short", 4), load("a", 6)]);
        assert_eq!(p.len(), 2);
        assert_eq!(p[0].series.len(), 1);
        assert_eq!(p[0].series[0].points[4], (4.5, 40.0));
        assert_eq!(p[0].series[0].points.len(), 5, "not the tenth of a second");
        assert_eq!(
            p[1].series[0].points.len(),
            4,
            "nothing ended in one second"
        );
        assert!(!p[0].caption.contains("more"));
    }

    #[test]
    fn a_load_that_was_repeated_has_one_colour() {
        let p = plots(&[load("a", 6), load("b", 6), load("a", 6)]);
        let colours: Vec<usize> = p[0].series.iter().map(|s| s.color).collect();
        assert_eq!(colours, [0, 1, 0]);
        assert!(p[0].caption.contains("measured again"));
    }

    #[test]
    fn targets_draw_the_same_loads() {
        // A load that is long on one target is short on the other.
        let a = vec![load("x", 9), load("y", 2), load("z", 3)];
        let b = vec![load("x", 3), load("y", 7), load("z", 3)];
        let all = of_all(&[a, b]);
        for plots in &all {
            let names: Vec<&str> = plots[0].series.iter().map(|s| s.name.as_str()).collect();
            assert_eq!(names, ["x", "y"]);
        }
        assert!(
            of_all(&[vec![load("x", 2)], Vec::new()])
                .concat()
                .is_empty()
        );
    }

    #[test]
    fn only_the_longest_of_many() {
        let many: Vec<SampleSet> = (0..12).map(|i| load(&i.to_string(), 10 + i)).collect();
        let p = plots(&many);
        let names: Vec<&str> = p[0].series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["4", "5", "6", "7", "8", "9", "10", "11"]);
        assert!(p[0].caption.contains("4 more"));
        // The longest load comes last, after more than enough equal ones.
        let mut many: Vec<SampleSet> = (0..11).map(|i| load(&i.to_string(), 10)).collect();
        many.push(load("longest", 20));
        let p = plots(&many);
        let names: Vec<&str> = p[0].series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["0", "1", "2", "3", "4", "5", "6", "longest"]);
        assert!(p[0].caption.contains("4 more"));
        let day = plots(&[load("day", 86_400)]);
        assert!(day[0].series[0].points.len() <= 300);
    }
}
