//! The HTML report: one file without scripts, fonts or anything else from elsewhere, so that it
//! opens offline and can be kept as evidence.

use super::svg::escape;
use super::{Outcome, Run};
use std::fmt::Write;

const STYLE: &str = include_str!("report.css");

/// The whole page.
pub fn page(run: &Run) -> String {
    let mut o = String::with_capacity(256 * 1024);
    o.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\"><title>Muniment bench report</title><style>");
    o.push_str(STYLE);
    o.push_str("</style></head><body><header><h1>Muniment bench</h1>");
    let _ = write!(
        o,
        "<p class=\"meta\"><code>{}</code><br>{}</p>",
        escape(&run.command),
        escape(&run.started)
    );
    if run.interrupted {
        o.push_str("<p class=\"warn\">The run was interrupted: what follows is what there was by then.</p>");
    }
    if run.outcomes.len() > 1 {
        o.push_str("<nav>");
        for x in &run.outcomes {
            let _ = write!(o, "<a href=\"#{0}\">{0}</a> ", escape(&x.id));
        }
        o.push_str("<a href=\"#environment\">environment</a></nav>");
    }
    o.push_str("</header><main>");
    for x in &run.outcomes {
        outcome(&mut o, x);
    }
    o.push_str("<section id=\"environment\"><h2>Environment</h2><dl>");
    for (k, v) in &run.environment {
        let _ = write!(o, "<dt>{}</dt><dd>{}</dd>", escape(k), escape(v));
    }
    o.push_str("</dl></section></main><footer><p>Compare shapes and ratios with a post's figures, never absolute figures across machines. Every measurement behind this page is in <code>results.json</code> beside it.</p></footer></body></html>\n");
    o
}

fn outcome(o: &mut String, x: &Outcome) {
    let _ = write!(
        o,
        "<section id=\"{}\"><h2><span class=\"id\">{}</span> {}</h2><p>{}</p><p class=\"meta\">preset {} · {:.0} s</p>",
        escape(&x.id),
        escape(&x.id),
        escape(&x.title),
        escape(&x.about),
        escape(&x.preset),
        x.seconds
    );
    if !x.warnings.is_empty() {
        o.push_str("<div class=\"warn\"><b>Warnings</b><ul>");
        for w in &x.warnings {
            let _ = write!(o, "<li>{}</li>", escape(w));
        }
        o.push_str("</ul></div>");
    }
    list(o, "Findings", &x.findings);
    for p in &x.plots {
        o.push_str(&p.html());
    }
    for t in &x.tables {
        o.push_str(&t.html());
    }
    list(o, "Differs from the post", &x.deviations);
    o.push_str("</section>");
}

fn list(o: &mut String, head: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = write!(o, "<h3>{head}</h3><ul>");
    for l in lines {
        let _ = write!(o, "<li>{}</li>", escape(l));
    }
    o.push_str("</ul>");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::report::svg::{Axis, Mark, Plot, Scale, Series, well_formed};
    use crate::report::table::Table;

    fn run() -> Run {
        let mut first = Table::new("Latency, ms", &["<concern", ">avg", "*avg"]);
        first.row(["w:1 <ack>", "0.10", "0.13"]);
        let second = Table::new("Second table", &["<a"]);
        let axis = |l: &str| Axis {
            label: l.into(),
            scale: Scale::Linear,
        };
        Run {
            command: "muniment bench w1".into(),
            started: "today".into(),
            environment: vec![("cpu".into(), "2 cores".into())],
            outcomes: vec![Outcome {
                id: "w1".into(),
                title: "T".into(),
                tables: vec![first, second],
                plots: vec![Plot {
                    title: "Plot title".into(),
                    caption: String::new(),
                    x: axis("query number"),
                    y: axis("ms"),
                    categories: vec![],
                    series: vec![Series {
                        name: "w:1".into(),
                        mark: Mark::Line,
                        published: false,
                        color: 1,
                        points: vec![(1.0, 2.0), (2.0, 3.0)],
                    }],
                }],
                deviations: vec!["a deviation".into()],
                warnings: vec!["a warning".into()],
                ..Outcome::default()
            }],
            interrupted: true,
        }
    }

    #[test]
    fn the_page_holds_everything_and_loads_nothing() {
        let p = page(&run());
        for want in [
            "Latency, ms",
            "w:1 &lt;ack&gt;",
            "Second table",
            "Plot title",
            "a deviation",
            "a warning",
            "interrupted",
            "2 cores",
            "class=\"plot wide\"",
            "class=\"plot narrow\"",
            "<details>",
            "prefers-color-scheme",
            "name=\"viewport\"",
        ] {
            assert!(p.contains(want), "{want} is missing");
        }
        for never in ["<script", "http://", "https://", "src=", "@import", "url("] {
            assert!(!p.contains(never), "{never} loads something");
        }
        well_formed(&p, &["meta", "br"]).unwrap();
    }

    #[test]
    fn json_lines_begin_with_the_environment_and_parse() {
        let lines = run().json();
        assert_eq!(lines.first().unwrap()["kind"], "environment");
        assert_eq!(lines.last().unwrap()["kind"], "result");
        assert_eq!(lines.last().unwrap()["tables"][0]["rows"][0][1], "0.10");
    }
}
