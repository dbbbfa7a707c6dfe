//! The report of several variants: the figures of each, the table of their comparison with the
//! first one, and the ratios in words.

use crate::report::Outcome;
use crate::report::table::{Table, ms, rate};
use crate::versus::{Compared, Sheet, Sheets};
use muniment_load::stats::{MIN_PAIRS, Ratio, Verdict, interval, median};

/// If there are more differences than this, only those of rates are told one by one.
const MOST_FINDINGS: usize = 8;

/// Adds the results of all sheets of an experiment to the report.
pub(crate) fn tell_all(sheets: &Sheets, out: &mut Outcome) {
    sheets.all().for_each(|s| tell(s, out));
}

/// Adds the results of one sheet: medians, ratios and verdicts.
pub(crate) fn tell(sheet: &Sheet, out: &mut Outcome) {
    let figures = sheet.figures();
    for (name, unit) in &figures {
        figure(sheet, name, unit, out);
    }
    if sheet.names().len() < 2 || figures.is_empty() {
        return;
    }
    let compared = sheet.compared();
    out.tables.push(table(sheet, &figures, &compared));
    let prefix = match sheet.title() {
        "" => String::new(),
        title => format!("{title}: "),
    };
    let words = in_words(sheet, &compared);
    out.findings
        .extend(words.into_iter().map(|w| format!("{prefix}{w}")));
}

/// The name of the variant that the others are compared with.
fn base(sheet: &Sheet) -> &str {
    called(sheet, 0)
}

fn called(sheet: &Sheet, variant: usize) -> &str {
    sheet.names().get(variant).map_or("", String::as_str)
}

/// Adds one figure of every variant.
fn figure(sheet: &Sheet, name: &str, unit: &str, out: &mut Outcome) {
    for (i, variant) in sheet.names().iter().enumerate() {
        let called = match sheet.title() {
            "" => format!("{name}, {variant}"),
            title => format!("{name}, {title}, {variant}"),
        };
        let f = out.figure(called, sheet.median(i, name), unit, None);
        // The interval over the turns is kept, so that the figure of a later run can be judged with
        // it.
        if let Some((low, high)) = interval(&sheet.measured(i, name), median) {
            f.between(low, high);
        }
    }
}

/// The table of every variant compared with the first one, figure by figure.
fn table(sheet: &Sheet, figures: &[(String, String)], compared: &[Compared]) -> Table {
    let base = base(sheet);
    let title = match sheet.title() {
        "" => format!("Compared with {base}"),
        title => format!("{title}, compared with {base}"),
    };
    let mut t = Table::new(
        &title,
        &[
            "<figure",
            "<variant",
            "<unit",
            ">median",
            ">ratio",
            ">95 % from",
            ">to",
            ">turns",
            "<verdict",
        ],
    );
    if let Some(c) = t.columns.get_mut(4) {
        c.name = format!("over {base}");
    }
    for (name, unit) in figures {
        for (i, variant) in sheet.names().iter().enumerate() {
            let median = value(sheet.median(i, name), unit);
            let mut row = vec![name.clone(), variant.clone(), unit.clone(), median];
            let found = compared
                .iter()
                .find(|c| c.variant == i && c.figure == *name);
            row.extend(found.into_iter().flat_map(|c| judged(&c.ratio)));
            t.row(row);
        }
    }
    if sheet.title().is_empty() {
        t.note(format!(
            "Measured in turns, forwards and backwards (A B, B A, …); ratios are medians over the turns of the ratio within a turn, with a bootstrap 95 % interval. Fewer than {MIN_PAIRS} turns are too few to judge by."
        ));
    }
    t
}

fn value(x: f64, unit: &str) -> String {
    if unit == "ms" { ms(x) } else { rate(x) }
}

/// The cells of a ratio: the ratio, its interval, the number of turns, and the verdict.
fn judged(r: &Ratio) -> [String; 5] {
    let verdict = r.verdict();
    // An interval over few turns would say nothing.
    let end = |x: f64| match verdict {
        Verdict::TooFew => "–".to_string(),
        _ => format!("{x:.3}"),
    };
    [
        format!("{:.3}", r.median),
        end(r.low),
        end(r.high),
        r.pairs.to_string(),
        verdict.text().to_string(),
    ]
}

/// The sheet's ratios in words; the table has all of them. If there are many differences, those of
/// the rates are told, followed by a summary of all.
fn in_words(sheet: &Sheet, compared: &[Compared]) -> Vec<String> {
    let base = base(sheet);
    let with = |want: &[Verdict]| -> Vec<&Compared> {
        let all = compared.iter();
        all.filter(|c| want.contains(&c.ratio.verdict())).collect()
    };
    let different = with(&[Verdict::Higher, Verdict::Lower]);
    let few = different.len() <= MOST_FINDINGS;
    let mut out: Vec<String> = different
        .iter()
        .filter(|c| few || c.is_rate)
        .take(MOST_FINDINGS)
        .map(|c| difference(sheet, c))
        .collect();
    if !few {
        let count = |v| with(&[v]).len();
        out.push(format!(
            "Higher than of {base} in {}, lower in {} of {} comparisons; the median of their ratios is {:.2}.",
            count(Verdict::Higher),
            count(Verdict::Lower),
            compared.len(),
            median(&compared.iter().map(|c| c.ratio.median).collect::<Vec<_>>())
        ));
    }
    let same = with(&[Verdict::NoDifference]).len();
    if same > 0 {
        out.push(format!(
            "No difference shown in {same} of {} comparisons.",
            compared.len()
        ));
    }
    out.extend(too_few(sheet, &with(&[Verdict::TooFew])));
    out
}

fn difference(sheet: &Sheet, c: &Compared) -> String {
    format!(
        "{}: {} is {:.2} × that of {} ({:.2} … {:.2}): {}.",
        called(sheet, c.variant),
        c.figure,
        c.ratio.median,
        base(sheet),
        c.ratio.low,
        c.ratio.high,
        c.ratio.verdict().text()
    )
}

/// The ratios that have too few turns, in a sentence for each variant.
fn too_few(sheet: &Sheet, all: &[&Compared]) -> Vec<String> {
    let mut variants: Vec<usize> = all.iter().map(|c| c.variant).collect();
    variants.sort_unstable_by_key(|v| called(sheet, *v));
    variants.dedup();
    variants
        .into_iter()
        .map(|variant| {
            let mine: Vec<_> = all.iter().filter(|c| c.variant == variant).collect();
            let turns = mine.iter().map(|c| c.ratio.pairs).max().unwrap_or(0);
            let mut ratios: Vec<String> = mine
                .iter()
                .take(MOST_FINDINGS)
                .map(|c| format!("{} {:.3}", c.figure, c.ratio.median))
                .collect();
            if mine.len() > MOST_FINDINGS {
                ratios.push(format!("{} more in the table", mine.len() - MOST_FINDINGS));
            }
            format!(
                "Too few turns to judge ({turns} of at least {MIN_PAIRS}). {} over {}: {}.",
                called(sheet, variant),
                base(sheet),
                ratios.join("; ")
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::report::experiments::fixtures::check;
    use crate::report::{Figure, Statistic};
    use crate::versus::order;
    use muniment_load::samples::SampleSet;

    fn figures(rate: f64) -> Vec<Figure> {
        let mut o = Outcome::default();
        o.figure("inserts", rate, "docs/s", None);
        o.figure("p99", 1e3 / rate, "ms", None);
        o.figures
    }

    #[test]
    fn a_difference_is_found_and_none_is_not() {
        let mut s = Sheet::new(vec!["a".into(), "b".into(), "c".into()]);
        let noise = [1.01, 0.98, 1.02, 0.99, 1.0, 0.985];
        for (turn, n) in noise.iter().enumerate() {
            // The machine becomes slower with every turn.
            let machine = 1000.0 * 0.8f64.powi(turn as i32);
            for v in order(3, turn) {
                let x = [1.0, 1.5, *n][v];
                s.add(v, figures(machine * x));
            }
        }
        let mut out = Outcome::default();
        tell(&s, &mut out);
        assert_eq!(s.ratio(1, "inserts").unwrap().verdict(), Verdict::Higher);
        assert_eq!(s.ratio(1, "p99").unwrap().verdict(), Verdict::Lower);
        assert_eq!(
            s.ratio(2, "inserts").unwrap().verdict(),
            Verdict::NoDifference
        );
        assert_eq!(
            out.findings[0],
            "b: inserts is 1.50 × that of a (1.50 … 1.50): higher."
        );
        assert_eq!(
            out.findings[2],
            "No difference shown in 2 of 4 comparisons."
        );
        assert_eq!(out.tables[0].rows.len(), 6);
        assert_eq!(out.tables[0].rows[2][8], "no difference shown");
    }

    #[test]
    fn few_turns_are_said_to_be_few_and_show_their_ratios() {
        let mut s = Sheet::new(vec!["a".into(), "b".into()]);
        for _ in 0..MIN_PAIRS - 1 {
            s.add(0, figures(1000.0));
            s.add(1, figures(2000.0));
        }
        let mut out = Outcome::default();
        tell(&s, &mut out);
        assert_eq!(
            out.findings,
            ["Too few turns to judge (4 of at least 5). b over a: inserts 2.000; p99 0.500."]
        );
        assert_eq!(
            out.tables[0].rows[1][4..],
            ["2.000", "–", "–", "4", "too few turns to judge"]
        );
        s.add(0, figures(1000.0));
        s.add(1, figures(2000.0));
        let mut out = Outcome::default();
        tell(&s, &mut out);
        assert!(out.findings[0].contains("inserts is 2.00 × that of a"));
    }

    #[test]
    fn many_differences_are_counted() {
        let mut s = Sheet::of("p99", vec!["a".into(), "b".into()]);
        for _ in 0..MIN_PAIRS {
            for (v, x) in [(0, 1.0), (1, 3.0)] {
                let all = (0..=MOST_FINDINGS)
                    .map(|i| Figure::new(format!("load {i}"), x, "ms", None))
                    .collect();
                s.add(v, all);
            }
        }
        let mut out = Outcome::default();
        tell(&s, &mut out);
        assert_eq!(
            out.findings,
            [
                "p99: Higher than of a in 9, lower in 0 of 9 comparisons; the median of their ratios is 3.00."
            ]
        );
        assert_eq!(out.tables[0].title, "p99, compared with a");
        assert_eq!(out.figures[1].name, "load 0, p99, b");
    }

    #[test]
    fn loads_are_judged_by_rate_slow_end_and_costs() {
        let turn = |x: f64| {
            let load = |name: &str, x: f64| SampleSet {
                name: name.into(),
                operations: 1000,
                seconds: x,
                latency: {
                    let mut l = muniment_load::hist::Latency::new();
                    l.record((x * 1e6) as u64);
                    l
                },
                usage: Some(muniment_load::usage::Usage {
                    units: 1000,
                    server: Some(muniment_load::usage::ServerUsage {
                        cpu: x,
                        written: x * 1e6,
                        rss: x * 1e8,
                        ..muniment_load::usage::ServerUsage::default()
                    }),
                    ..muniment_load::usage::Usage::default()
                }),
                ..SampleSet::default()
            };
            let mut o = Outcome {
                // The first load is repeated, so its median counts.
                samples: vec![
                    load("one", x),
                    load("one", 3.0 * x),
                    load("one", x),
                    load("two", x),
                ],
                ..Outcome::default()
            };
            o.figure("two, by its own", 5.0, "docs/s", None)
                .of("two", Statistic::Rate);
            o
        };
        let mut s = Sheets::new(&["a".into(), "b".into()]);
        for _ in 0..MIN_PAIRS {
            s.add(0, &turn(1.0));
            s.add(1, &turn(0.5));
        }
        let mut out = Outcome::default();
        tell_all(&s, &mut out);
        let titles: Vec<&str> = out.tables.iter().map(|t| t.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "Compared with a",
                "Rate, compared with a",
                "p99, compared with a",
                "Server CPU a document, compared with a",
                "Bytes written a document, compared with a",
                "Largest resident size, compared with a"
            ]
        );
        let names =
            |i: usize| -> Vec<String> { out.tables[i].rows.iter().map(|r| r[0].clone()).collect() };
        assert_eq!(names(1), ["one", "one"], "two's rate is a figure already");
        assert_eq!(names(3), ["one", "one", "two", "two"]);
        let cpu = &out.tables[3].rows;
        assert_eq!(cpu[0][3], "1,000");
        assert_eq!((cpu[1][3].as_str(), cpu[1][4].as_str()), ("500", "0.500"));
        assert_eq!(cpu[1][8], "lower");
        assert_eq!(out.tables[5].rows[0][3], "300");
        assert_eq!(out.tables[5].rows[1][8], "lower");
        check("versus", &out);
    }

    #[test]
    fn one_variant_is_not_compared() {
        let mut s = Sheet::new(vec!["only".into()]);
        s.add(0, figures(10.0));
        let mut out = Outcome::default();
        tell(&s, &mut out);
        assert!(out.tables.is_empty());
        assert_eq!(out.figures[0].name, "inserts, only");
    }
}
