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
    use crate::report::svg::well_formed;
    use crate::report::tests::run;

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
}
