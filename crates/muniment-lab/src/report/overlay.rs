//! Combines the plots of several runs or targets that drew the same. First the turns of each target
//! are combined by medians; then the series of all targets are put into one plot, or into as many
//! plots as are needed for their colours to differ.

use super::plot::{Plot, Series};
use muniment_load::placement::Placement;
use muniment_load::stats::median;
use std::fmt::Display;

/// The number of colours.
const COLOURS: usize = 8;

/// Lines of more points than this show single measurements, and a median over turns would hide what
/// they are meant to show.
const DENSE: usize = 60;

/// The plots of one target over its turns. A series that has the same x values in every turn
/// becomes the median; other series are taken from the first turn. The captions tell which.
pub(crate) fn over_turns(turns: &[Vec<Plot>]) -> Vec<Plot> {
    let Some((first, rest)) = turns.split_first() else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for p in first {
        let mut plot = p.clone();
        let (mut medians, mut single) = (false, false);
        for s in &mut plot.series {
            let others: Vec<&Series> = rest
                .iter()
                .filter_map(|t| {
                    let q = t.iter().find(|q| q.title == p.title)?;
                    q.series.iter().find(|o| same_points(o, s))
                })
                .collect();
            if rest.is_empty() || others.len() < rest.len() || s.points.len() > DENSE {
                single |= !s.published;
                continue;
            }
            medians |= !s.published;
            let own = s.points.clone();
            let mut spread = Vec::new();
            for (i, (point, first)) in s.points.iter_mut().zip(own).enumerate() {
                let values: Vec<f64> = others
                    .iter()
                    .filter_map(|o| o.points.get(i).map(|p| p.1))
                    .chain([first.1])
                    .filter(|y| y.is_finite())
                    .collect();
                point.1 = median(&values);
                spread.push(ends(&values));
            }
            // A series that is the same in all turns (a post's figures) has no spread.
            if spread.iter().any(|(low, high)| low < high) {
                s.spread = spread;
            }
        }
        let said = match (medians, single) {
            (true, false) => format!("{}.", medians_of(turns.len())),
            (true, true) => format!(
                "{}; lines of many points are the first turn's.",
                medians_of(turns.len())
            ),
            _ => "The first turn's.".to_string(),
        };
        plot.caption = format!("{} {said}", plot.caption).trim().to_string();
        out.push(plot);
    }
    out
}

/// The caption of a plot of medians; `turns` is the number of turns, or its range.
pub(crate) fn medians_of(turns: impl Display) -> String {
    format!("Medians of {turns} turns; bands and whiskers reach from the lowest to the highest")
}

/// The lowest and the highest of `values`; NaN if there are none.
pub(crate) fn ends(values: &[f64]) -> (f64, f64) {
    let by = |f: fn(f64, f64) -> f64| values.iter().copied().reduce(f).unwrap_or(f64::NAN);
    (by(f64::min), by(f64::max))
}

/// Whether two series have the same name and the same x values.
fn same_points(a: &Series, b: &Series) -> bool {
    a.name == b.name
        && a.published == b.published
        && a.points.len() == b.points.len()
        && a.points.iter().zip(&b.points).all(|(p, q)| p.0 == q.0)
}

/// Combines every plot that several of `all` have.
pub(crate) fn side_by_side(all: &[(&str, &[Plot])]) -> Vec<Plot> {
    let mut done: Vec<&Plot> = Vec::new();
    let mut out = Vec::new();
    for p in all.iter().flat_map(|(_, plots)| *plots) {
        if done.iter().any(|d| alike(d, p)) {
            continue;
        }
        done.push(p);
        let these: Vec<(&str, &Plot)> = all
            .iter()
            .filter_map(|(label, plots)| Some((*label, plots.iter().find(|q| alike(q, p))?)))
            .collect();
        if these.len() > 1 {
            out.extend(one(&these));
        }
    }
    out
}

/// Whether two plots show the same.
fn alike(p: &Plot, q: &Plot) -> bool {
    q.title == p.title
        && q.categories == p.categories
        && q.x.label == p.x.label
        && q.y.label == p.y.label
}

/// Combines several plots to one, or to as many as their series need.
fn one(all: &[(&str, &Plot)]) -> Vec<Plot> {
    let Some((_, first)) = all.first() else {
        return Vec::new();
    };
    let mut names: Vec<&str> = Vec::new();
    for s in all.iter().flat_map(|(_, p)| &p.series) {
        if !s.published && !names.contains(&s.name.as_str()) {
            names.push(&s.name);
        }
    }
    let theirs = all
        .iter()
        .any(|(_, p)| p.series.iter().any(|s| s.published));
    let room = ((COLOURS - usize::from(theirs)) / all.len()).max(1);
    let plots = packed(&names, room);
    let whole = plots.len() == 1;
    plots
        .iter()
        .map(|some| Plot {
            title: match whole {
                true => first.title.clone(),
                false => format!("{}: {}", first.title, called(some, &names).join("; ")),
            },
            caption: first.caption.clone(),
            x: first.x.clone(),
            y: first.y.clone(),
            categories: first.categories.clone(),
            series: together(all, some),
        })
        .collect()
}

/// The names without their placements, each once.
fn without<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut out: Vec<&str> = Vec::new();
    for name in names.iter().map(|n| Placement::without(n)) {
        if !out.contains(&name) {
            out.push(name);
        }
    }
    out
}

/// The names of a part for its title; a name whose placements are all in the part is given without
/// them.
fn called<'a>(part: &[&'a str], names: &[&'a str]) -> Vec<&'a str> {
    let whole = |base: &str| {
        let mut mine = names.iter().filter(|n| Placement::without(n) == base);
        mine.all(|n| part.contains(n))
    };
    let mut out: Vec<&str> = Vec::new();
    for name in part {
        let base = Placement::without(name);
        let name = if whole(base) { base } else { name };
        if !out.contains(&name) {
            out.push(name);
        }
    }
    out
}

/// Divides the names into as many parts as are needed, with at most `room` names in each. Names
/// that differ only in their placement stay together if possible.
fn packed<'a>(names: &[&'a str], room: usize) -> Vec<Vec<&'a str>> {
    if names.len() <= room {
        return vec![names.to_vec()];
    }
    let mut out: Vec<Vec<&str>> = Vec::new();
    for base in without(names) {
        let group: Vec<&str> = names
            .iter()
            .copied()
            .filter(|n| Placement::without(n) == base)
            .collect();
        match out.last_mut() {
            Some(last) if last.len() + group.len() <= room => last.extend(group),
            _ => out.extend(group.chunks(room).map(<[&str]>::to_vec)),
        }
    }
    out
}

/// The series of these names from all plots, followed by the published ones.
fn together(all: &[(&str, &Plot)], names: &[&str]) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    // The colour of each plot's first series, which a line fitted to it gets as well.
    let mut colour_of: Vec<Option<usize>> = vec![None; all.len()];
    for name in names {
        for ((label, p), colour) in all.iter().zip(&mut colour_of) {
            let found = p.series.iter().find(|s| !s.published && s.name == *name);
            let Some(s) = found else { continue };
            let color = series.len() % COLOURS;
            colour.get_or_insert(color);
            series.push(Series {
                name: match names.len() == 1 && all.iter().all(|(_, p)| ours(p) == 1) {
                    true => (*label).to_string(),
                    false => format!("{label}: {}", s.name),
                },
                color,
                ..s.clone()
            });
        }
    }
    let mut seen: Vec<&Series> = Vec::new();
    for ((label, p), colour) in all.iter().zip(&colour_of) {
        for s in p
            .series
            .iter()
            .filter(|s| s.published && belongs(s, p, names))
        {
            if seen
                .iter()
                .any(|o| o.name == s.name && o.points == s.points)
            {
                continue;
            }
            // The post's figures are the same for all; a fitted law differs for each.
            let own = all.iter().any(|(_, q)| {
                let same = q.series.iter().find(|o| o.published && o.name == s.name);
                same.is_some_and(|o| o.points != s.points)
            });
            seen.push(s);
            series.push(Series {
                name: match own {
                    true => format!("{label}: {}", s.name),
                    false => s.name.clone(),
                },
                color: match colour {
                    Some(c) if own => *c,
                    _ => COLOURS - 1,
                },
                ..s.clone()
            });
        }
    }
    series
}

/// The number of series in a plot that are ours.
fn ours(p: &Plot) -> usize {
    p.series.iter().filter(|s| !s.published).count()
}

/// Whether a published series of `p` belongs to one of these names. It belongs to our series of the
/// same colour, in any placement; if no series has its colour, it belongs to all.
fn belongs(s: &Series, p: &Plot, names: &[&str]) -> bool {
    let mut mine = p
        .series
        .iter()
        .filter(|o| !o.published && o.color == s.color);
    let any = mine.clone().next().is_none();
    let same = |o: &Series, name: &&str| Placement::without(name) == Placement::without(&o.name);
    any || mine.any(|o| names.iter().any(|n| same(o, n)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use crate::report::plot::{Axis, Mark, Scale};

    fn series(name: &str, published: bool, color: usize, ys: &[f64]) -> Series {
        Series {
            name: name.into(),
            mark: Mark::Line,
            published,
            color,
            points: ys.iter().enumerate().map(|(i, y)| (i as f64, *y)).collect(),
            ..Series::default()
        }
    }

    fn plot(title: &str, series: Vec<Series>) -> Plot {
        let axis = |label: &str| Axis {
            label: label.into(),
            scale: Scale::Linear,
        };
        Plot {
            title: title.into(),
            caption: "How.".into(),
            x: axis("x"),
            y: axis("y"),
            categories: Vec::new(),
            series,
        }
    }

    fn names(p: &Plot) -> Vec<&str> {
        p.series.iter().map(|s| s.name.as_str()).collect()
    }

    #[test]
    fn turns_come_together_by_medians() {
        let turn = |y: f64| {
            let long = vec![y; DENSE + 1];
            vec![
                plot("sweep", vec![series("s", false, 0, &[y, 2.0 * y])]),
                plot("each", vec![series("e", false, 0, &long)]),
                plot(
                    "both",
                    vec![series("s", false, 0, &[y]), series("e", false, 1, &long)],
                ),
            ]
        };
        let mut turns = vec![turn(1.0), turn(5.0), turn(2.0)];
        // A plot that only one turn has is kept as it is.
        turns[0].push(plot("time", vec![series("t", false, 0, &[9.0])]));
        let out = over_turns(&turns);
        assert_eq!(out[0].series[0].points, [(0.0, 2.0), (1.0, 4.0)]);
        assert_eq!(out[0].series[0].spread, [(1.0, 5.0), (2.0, 10.0)]);
        assert_eq!(out[0].caption, format!("How. {}.", medians_of(3)));
        assert_eq!(out[1].series[0].points[7], (7.0, 1.0));
        assert_eq!(out[1].caption, "How. The first turn's.");
        assert_eq!(
            out[2].caption,
            format!(
                "How. {}; lines of many points are the first turn's.",
                medians_of(3)
            )
        );
        assert_eq!(out[3].series[0].points, [(0.0, 9.0)]);
        assert_eq!(over_turns(&turns[..1])[0].caption, "How. The first turn's.");
        assert!(over_turns(&[]).is_empty());
    }

    #[test]
    fn all_stand_in_one_plot_while_the_colours_last() {
        let of = |y: f64| {
            vec![plot(
                "p",
                vec![
                    series("w:1", false, 0, &[y]),
                    series("w:0", false, 1, &[y]),
                    series("post", true, 0, &[7.0]),
                ],
            )]
        };
        let (a, b) = (of(1.0), of(2.0));
        let out = side_by_side(&[("a", &a), ("b", &b)]);
        assert_eq!(out.len(), 1);
        assert_eq!(
            names(&out[0]),
            ["a: w:1", "b: w:1", "a: w:0", "b: w:0", "post"]
        );
        let colours: Vec<usize> = out[0].series.iter().map(|s| s.color).collect();
        assert_eq!(colours, [0, 1, 2, 3, 7]);
    }

    #[test]
    fn many_series_are_several_plots_and_none_is_lost() {
        let of = |y: f64| {
            let mut all: Vec<Series> = (0..8)
                .map(|i| series(&format!("s{i}"), false, i, &[y]))
                .collect();
            all.push(series("post of s6", true, 6, &[1.0]));
            vec![plot("p", all)]
        };
        let (a, b) = (of(1.0), of(2.0));
        let out = side_by_side(&[("a", &a), ("b", &b)]);
        assert_eq!(out.len(), 3);
        assert_eq!(out[0].title, "p: s0; s1; s2");
        let ours: usize = out.iter().map(super::ours).sum();
        assert_eq!(ours, 16);
        for p in &out {
            let mut colours: Vec<usize> = p.series.iter().map(|s| s.color).collect();
            colours.sort_unstable();
            colours.dedup();
            assert_eq!(colours.len(), p.series.len());
        }
        // A post's series is shown together with the series that it belongs to.
        assert!(!names(&out[0]).contains(&"post of s6"));
        assert!(names(&out[2]).contains(&"post of s6"));
        // Ten targets still get a plot, although there are no ten colours.
        let many: Vec<(String, Vec<Plot>)> = (0..10).map(|i| (i.to_string(), of(1.0))).collect();
        let many: Vec<(&str, &[Plot])> = many.iter().map(|(n, p)| (n.as_str(), &p[..])).collect();
        let out = side_by_side(&many);
        assert_eq!((out.len(), super::ours(&out[0])), (8, 10));
    }

    #[test]
    fn what_was_published_belongs_to_every_placement() {
        let of = |y: f64| {
            let ours = ["a, one core", "b, one core", "a, two cores", "b, two cores"];
            let mut all: Vec<Series> = ours
                .iter()
                .enumerate()
                .map(|(i, n)| series(n, false, i, &[y]))
                .collect();
            all.push(series("post of a", true, 0, &[1.0]));
            vec![plot("p", all)]
        };
        // With four targets a plot has room for one series of each.
        let all: Vec<(String, Vec<Plot>)> = (0..4).map(|i| (i.to_string(), of(1.0))).collect();
        let all: Vec<(&str, &[Plot])> = all.iter().map(|(n, p)| (n.as_str(), &p[..])).collect();
        let out = side_by_side(&all);
        let posts: Vec<bool> = out
            .iter()
            .map(|p| names(p).contains(&"post of a"))
            .collect();
        assert_eq!(posts, [true, true, false, false]);
        assert_eq!(out[1].title, "p: a, two cores");
    }

    #[test]
    fn placements_stay_together() {
        let names = [
            "a, one core",
            "a, two cores",
            "b, one core",
            "b, two cores",
            "c",
        ];
        let parts = packed(&names, 3);
        assert_eq!(
            parts,
            [&names[..2], &names[2..]],
            "c has room beside b's placements"
        );
        assert_eq!(called(&parts[1], &names), ["b", "c"]);
        assert_eq!(packed(&names, 5), [names.to_vec()]);
        assert_eq!(packed(&names, 1).len(), 5);
    }

    #[test]
    fn a_fitted_law_is_each_targets_own() {
        let of = |y: f64| {
            vec![plot(
                "p",
                vec![
                    series("measured", false, 0, &[y]),
                    series("law", true, 1, &[y]),
                ],
            )]
        };
        let (a, b) = (of(1.0), of(2.0));
        let out = side_by_side(&[("a", &a), ("b", &b)]);
        assert_eq!(names(&out[0]), ["a", "b", "a: law", "b: law"]);
        let colours: Vec<usize> = out[0].series.iter().map(|s| s.color).collect();
        assert_eq!(colours, [0, 1, 0, 1]);
        // A plot that only one target has cannot be compared.
        assert!(side_by_side(&[("a", &a), ("b", &[])]).is_empty());
    }
}
