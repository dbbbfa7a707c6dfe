//! The report of W4a: documents a second by write concern, with one thread and with ten, and the
//! ratios that the post mentions.

use crate::report::plot::{Axis, Mark, Plot, Series};
use crate::report::table::{Table, ms, rate};
use crate::report::{Outcome, Statistic};
use crate::workloads::w4a::{CONCERNS, Found, One, THREADS};
use muniment_load::placement::{self, Placement};

/// The only figure that the post printed: JOURNAL_SAFE with one thread, documents a second.
const PUBLISHED: f64 = 24.0;

/// Adds the results to the report.
pub(crate) fn tell(found: &Found, out: &mut Outcome) {
    let rates = Rates::of(&found.all);
    out.findings.extend(rates.said());
    for one in &found.all {
        let l = &one.load;
        let name = format!("{} {} threads", one.name, one.threads);
        out.figure(
            one.placement.called(&name),
            l.rate(),
            "docs/s",
            published(one),
        )
        .of(&l.samples.name, Statistic::Rate);
        out.samples.push(l.samples.clone());
        if l.cut_short {
            out.findings.push(format!(
                "{}: the time limit came after {} documents; the rate is of those.",
                l.samples.name,
                rate(l.documents as f64)
            ));
        }
    }
    out.tables.push(documents(found));
    let ratios = rates.ratios();
    let measured = ratios.iter().filter(|r| r.ours.is_finite());
    for r in measured.clone() {
        out.figure(r.name, r.ours, "ratio", r.post);
    }
    let any = measured.clone().count() > 0;
    out.tables
        .extend(any.then(|| beside_the_post(&ratios, rates.stands_for_one())));
    out.plots.push(rates.plot());
    out.plots.extend(any.then(|| plot(&ratios)));
}

/// The post's figure for this measurement, if it has one.
fn published(one: &One) -> Option<f64> {
    (one.name == "JOURNAL_SAFE" && one.threads == 1).then_some(PUBLISHED)
}

fn documents(found: &Found) -> Table {
    let mut t = Table::new(
        "Documents a second",
        &[
            "<write concern",
            "<means",
            ">threads",
            "<cores",
            ">n",
            ">sent/s",
            ">applied/s",
            ">avg ms",
            ">p99 ms",
            ">max ms",
            ">server CPU µs/doc",
            ">bytes written/doc",
            "*docs/s",
        ],
    );
    for one in &found.all {
        let l = &one.load;
        let h = &l.samples.latency;
        let written = l.server.map(|s| s.written / l.documents as f64);
        t.row([
            one.name.to_string(),
            one.means.to_string(),
            one.threads.to_string(),
            one.placement.name().to_string(),
            rate(l.documents as f64),
            rate(l.sent_rate()),
            rate(l.rate()),
            ms(h.mean_ms()),
            ms(h.quantile_ms(0.99)),
            ms(h.max_ms()),
            l.server_us_text(l.documents),
            written.map_or_else(|| "–".into(), |w| rate(w.round())),
            published(one).map_or_else(String::new, rate),
        ]);
    }
    if let Some(d) = &found.fdatasync {
        t.note(format!(
            "The disk's own 4 KiB write + fdatasync: p50 {} ms, {}/s.",
            ms(d.quantile_ms(0.5)),
            rate(1000.0 / d.quantile_ms(0.5))
        ));
    }
    t
}

/// The rates by concern, threads and placement.
struct Rates<'a> {
    all: &'a [One],
    /// The placements in which one thread was measured, in order.
    placements: Vec<Placement>,
}

impl Rates<'_> {
    fn of(all: &[One]) -> Rates<'_> {
        let mut placements: Vec<Placement> = Vec::new();
        for one in all.iter().filter(|o| o.threads == 1) {
            if !placements.contains(&one.placement) {
                placements.push(one.placement);
            }
        }
        Rates { all, placements }
    }

    /// The placement of one thread that counts where there can be only one figure.
    fn stands_for_one(&self) -> Placement {
        placement::representative(&self.placements)
    }

    /// A rate; NaN if it was not measured.
    fn at(&self, name: &str, threads: u64, placement: Placement) -> f64 {
        let mut all = self.all.iter();
        all.find(|o| o.name == name && o.threads == threads && o.placement == placement)
            .map_or(f64::NAN, |o| o.load.rate())
    }

    fn one(&self, name: &str) -> f64 {
        self.at(name, 1, self.stands_for_one())
    }

    fn ten(&self, name: &str) -> f64 {
        self.at(name, THREADS, Placement::Anywhere)
    }

    /// A sentence with the concerns that were measured with one thread and with ten.
    fn said(&self) -> Option<String> {
        let said: Vec<String> = CONCERNS
            .iter()
            .map(|c| (c.0, self.one(c.0), self.ten(c.0)))
            .filter(|(_, one, ten)| one.is_finite() && ten.is_finite())
            .map(|(name, one, ten)| format!("{name} {} and {}", rate(one), rate(ten)))
            .collect();
        (!said.is_empty()).then(|| {
            format!(
                "Documents/s with one thread and with ten: {}.",
                said.join("; ")
            )
        })
    }

    /// The ratios that the post states, which are the only part of it that can be compared.
    fn ratios(&self) -> [Ratio; 5] {
        let tenfold = |name, of, post, words| Ratio {
            name,
            ours: self.ten(of) / self.one(of),
            post,
            words,
        };
        [
            Ratio {
                name: "SAFE/NORMAL time",
                ours: self.one("NORMAL") / self.one("SAFE"),
                post: Some(3.5),
                words: "SAFE takes 3.5 × NORMAL",
            },
            tenfold("SAFE 10:1", "SAFE", Some(1.4), "SAFE × 1.4 with 10 threads"),
            tenfold(
                "JOURNAL_SAFE 10:1",
                "JOURNAL_SAFE",
                Some(10.0),
                "JOURNAL_SAFE × 10 with 10 threads",
            ),
            tenfold("NONE 10:1", "NONE", None, "falls with 10 threads"),
            tenfold("NORMAL 10:1", "NORMAL", None, "falls with 10 threads"),
        ]
    }

    fn plot(&self) -> Plot {
        let points = |threads: u64, placement: Placement| -> Vec<(f64, f64)> {
            let all = CONCERNS.iter().enumerate();
            all.map(|(i, c)| (i as f64, self.at(c.0, threads, placement)))
                .filter(|p| p.1.is_finite())
                .collect()
        };
        let one = self.placements.iter().enumerate();
        let one = one.map(|(i, p)| Series::new(p.called("1 thread"), Mark::Bar, i, points(1, *p)));
        let ten = points(THREADS, Placement::Anywhere);
        let ten = Series::new("10 threads", Mark::Bar, self.placements.len(), ten);
        let post = vec![(1.0, PUBLISHED)];
        Plot::new(
            "Documents a second by write concern",
            "Logarithmic, since JOURNAL_SAFE waits for the disk. The post gives only JOURNAL_SAFE's 24/s with one thread.",
            Axis::linear("write concern"),
            Axis::log("documents/s"),
        )
        .categories(CONCERNS.iter().map(|c| c.0))
        .series(
            one.chain([ten])
                .filter(|s| !s.points.is_empty())
                .chain([Series::new("post, 1 thread", Mark::Bar, 0, post).published()]),
        )
    }
}

/// A statement of the post.
struct Ratio {
    name: &'static str,
    /// Our ratio; NaN if it was not measured.
    ours: f64,
    post: Option<f64>,
    words: &'static str,
}

fn beside_the_post(ratios: &[Ratio], one: Placement) -> Table {
    let mut t = Table::new("Ratios", &["<ratio", ">ours", "*ratio", "*in words"]);
    for r in ratios.iter().filter(|r| r.ours.is_finite()) {
        t.row([
            r.name.to_string(),
            format!("{:.2}", r.ours),
            r.post.map_or_else(|| "below 1".into(), |p| p.to_string()),
            r.words.to_string(),
        ]);
    }
    t.note(match one.name() {
        "" => "10:1 is the rate with ten threads over the rate with one.".to_string(),
        name => format!(
            "10:1 is the rate with ten threads over the rate with one, which is the one on {name}, as in all ratios."
        ),
    });
    t
}

fn plot(ratios: &[Ratio]) -> Plot {
    let bars = |value: fn(&Ratio) -> Option<f64>| -> Vec<(f64, f64)> {
        let all = ratios.iter().enumerate();
        all.filter_map(|(i, r)| Some((i as f64, value(r)?)))
            .collect()
    };
    let ours = bars(|r| Some(r.ours).filter(|x| x.is_finite()));
    Plot::new(
        "Ratios, ours and the post's",
        "SAFE/NORMAL is a ratio of times with one thread; 10:1 is rate with ten threads over rate with one.",
        Axis::linear("ratio"),
        Axis::linear("ratio"),
    )
    .categories(ratios.iter().map(|r| r.name))
    .series([
        Series::new("ours", Mark::Bar, 0, ours),
        Series::new("post", Mark::Bar, 0, bars(|r| r.post)).published(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::experiments::fixtures::{check, latency, load};

    #[test]
    fn whole_and_part() {
        let mut found = Found {
            fdatasync: Some(latency(0.5)),
            ..Found::default()
        };
        for (k, (name, means, _)) in CONCERNS.iter().enumerate() {
            for (i, (threads, placement)) in [
                (1, Placement::OneCore),
                (1, Placement::TwoCores),
                (THREADS, Placement::Anywhere),
            ]
            .into_iter()
            .enumerate()
            {
                let label = placement.called(&format!("{name}, {threads}"));
                let mut load = load(
                    &label,
                    10_000,
                    0.5 + (k + 1) as f64 / (i + 1) as f64,
                    0.1 * (k + 1) as f64,
                );
                load.cut_short = k == 1 && i == 0;
                if k == 2 {
                    load.server = None;
                }
                found.all.push(One {
                    name,
                    means,
                    threads,
                    placement,
                    load,
                });
            }
        }
        let mut out = Outcome::default();
        tell(&found, &mut out);
        check("w4a", &out);
        let mut out = Outcome::default();
        found.fdatasync = None;
        found.all.truncate(2);
        tell(&found, &mut out);
        check("w4a-part", &out);
    }
}
