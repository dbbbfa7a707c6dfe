//! The HTML report: one file without scripts, fonts or anything else that would be loaded from
//! elsewhere, so that it opens offline and can be kept as evidence.

use super::svg::escape;
use super::{Outcome, Run, side_by_side};
use crate::summary::counted;
use std::fmt::Write;

const STYLE: &str = include_str!("report.css");

pub(crate) fn page(run: &Run) -> String {
    let mut o = head("Muniment bench report");
    o.push_str("<header><h1>Muniment bench</h1>");
    provenance(&mut o, run);
    findings(&mut o, run);
    o.push_str("</header><main>");
    for x in &run.outcomes {
        outcome(&mut o, x, 2, "");
    }
    environment(&mut o, run, 2, "");
    o.push_str("</main>");
    end(
        &mut o,
        "Every measurement behind this page is in <code>results.json</code> beside it.",
    );
    o
}

/// One page of several runs: first the parts that they have in common, compared with each other,
/// then a chapter for each run.
pub(crate) fn pages(runs: &[Run]) -> String {
    let mut o = head("Muniment bench: several runs");
    let _ = write!(
        o,
        "<header><h1>Muniment bench: {} runs</h1>{}",
        runs.len(),
        side_by_side::runs(runs).html()
    );
    o.push_str("<nav aria-label=\"Contents\"><ol class=\"index\">");
    let shared = side_by_side::shared(runs);
    for s in &shared {
        let _ = write!(
            o,
            "<li><a href=\"#{}\"><span class=\"id\">{}</span> {}</a><span>side by side</span></li>",
            anchor("", &s.id),
            escape(&s.id),
            escape(&s.title)
        );
    }
    for (i, run) in runs.iter().enumerate() {
        let label = side_by_side::label(i);
        let _ = write!(
            o,
            "<li><a href=\"#{}\"><span class=\"id\">{label}</span> Run {label}</a><span>{}</span></li>",
            anchor(&label, ""),
            escape(&run.command)
        );
    }
    o.push_str("</ol></nav></header><main>");
    for s in &shared {
        outcome(&mut o, s, 2, "");
    }
    for (i, run) in runs.iter().enumerate() {
        let label = side_by_side::label(i);
        let _ = write!(
            o,
            "<div class=\"chapter\" id=\"{}\"><h2>Run {label}</h2>",
            anchor(&label, "")
        );
        provenance(&mut o, run);
        for x in &run.outcomes {
            outcome(&mut o, x, 3, &label);
        }
        environment(&mut o, run, 3, &label);
        o.push_str("</div>");
    }
    o.push_str("</main>");
    end(
        &mut o,
        "Runs that did not take turns differ by themselves; <code>muniment bench compare</code> judges two of them.",
    );
    o
}

fn head(title: &str) -> String {
    let mut o = String::with_capacity(256 * 1024);
    o.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">");
    let _ = write!(
        o,
        "<title>{title}</title><style>{STYLE}</style></head><body>"
    );
    o
}

fn end(o: &mut String, more: &str) {
    let _ = writeln!(
        o,
        "<footer><p>Compare shapes and ratios with a post's figures, never absolute figures across machines. {more}</p></footer></body></html>"
    );
}

fn provenance(o: &mut String, run: &Run) {
    let _ = write!(
        o,
        "<p class=\"meta\"><code>{}</code><br>{}</p>",
        escape(&run.command),
        escape(&run.started)
    );
    if run.interrupted {
        o.push_str("<p class=\"warn\">The run was interrupted: what follows is what there was by then.</p>");
    }
    if run.failed {
        o.push_str("<p class=\"warn\">Something of the run failed; its warnings say what.</p>");
    }
}

/// So many findings of an experiment stand at the beginning of the page; its chapter has all of
/// them.
const FOREMOST: usize = 3;

/// Writes the findings of the experiments, which a reader wants to know first.
fn findings(o: &mut String, run: &Run) {
    o.push_str(
        "<nav aria-labelledby=\"findings\"><h2 id=\"findings\">Findings</h2><ol class=\"index\">",
    );
    for x in &run.outcomes {
        let _ = write!(
            o,
            "<li><a href=\"#{}\"><span class=\"id\">{}</span> {}</a><div>",
            anchor("", &x.id),
            escape(&x.id),
            escape(&x.title),
        );
        let failed = x.warnings.iter().filter(|w| w.starts_with("Failed: "));
        let mut said = failed.chain(x.findings.iter().take(FOREMOST)).peekable();
        if said.peek().is_none() {
            let _ = write!(o, "<p>{}.</p>", counted(x.figures.len(), "figure"));
        }
        for f in said {
            let _ = write!(o, "<p>{}</p>", escape(f));
        }
        let more = x.findings.len().saturating_sub(FOREMOST);
        let told: Vec<String> = [(more, "more finding"), (x.warnings.len(), "warning")]
            .into_iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| counted(n, what))
            .collect();
        if !told.is_empty() {
            let _ = write!(o, "<p class=\"more\">{}</p>", told.join(", "));
        }
        o.push_str("</div></li>");
    }
    let _ = write!(
        o,
        "<li><a href=\"#{}\">Environment</a></li></ol></nav>",
        anchor("", "environment")
    );
}

fn environment(o: &mut String, run: &Run, level: u8, prefix: &str) {
    let _ = write!(
        o,
        "<section id=\"{}\"><h{level}>Environment</h{level}><dl>",
        anchor(prefix, "environment")
    );
    for (k, v) in &run.environment {
        let _ = write!(o, "<dt>{}</dt><dd>{}</dd>", escape(k), escape(v));
    }
    o.push_str("</dl></section>");
}

/// A name for links within the page.
fn anchor(prefix: &str, id: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    match prefix {
        "" => id.chars().map(safe).collect(),
        p => format!("run-{p}-{id}").chars().map(safe).collect(),
    }
}

fn outcome(o: &mut String, x: &Outcome, level: u8, prefix: &str) {
    let _ = write!(
        o,
        "<section id=\"{}\"><h{level}><span class=\"id\">{}</span> {}</h{level}>",
        anchor(prefix, &x.id),
        escape(&x.id),
        escape(&x.title),
    );
    if !x.about.is_empty() {
        let _ = write!(o, "<p>{}</p>", escape(&x.about));
    }
    if !x.preset.is_empty() {
        let _ = write!(
            o,
            "<p class=\"meta\">preset {} · {:.0} s</p>",
            escape(&x.preset),
            x.seconds
        );
    }
    if !x.warnings.is_empty() {
        o.push_str("<div class=\"warn\"><b>Warnings</b><ul>");
        for w in &x.warnings {
            let _ = write!(o, "<li>{}</li>", escape(w));
        }
        o.push_str("</ul></div>");
    }
    list(o, "Findings", &x.findings, level + 1);
    for p in &x.plots {
        o.push_str(&p.html());
    }
    for t in &x.tables {
        o.push_str(&t.html());
    }
    list(o, "Differs from the post", &x.deviations, level + 1);
    o.push_str("</section>");
}

fn list(o: &mut String, head: &str, lines: &[String], level: u8) {
    if lines.is_empty() {
        return;
    }
    let _ = write!(o, "<h{level}>{head}</h{level}><ul>");
    for l in lines {
        let _ = write!(o, "<li>{}</li>", escape(l));
    }
    o.push_str("</ul>");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
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

    #[test]
    fn a_page_opens_with_the_findings() {
        let mut run = run();
        run.outcomes[0].findings = (1..=5).map(|i| format!("finding {i}")).collect();
        run.outcomes[1].warnings = vec!["Failed: it fell".into()];
        let p = page(&run);
        let first = p.split("<section").next().unwrap();
        for want in [
            "<h2 id=\"findings\">Findings</h2>",
            "<p>finding 3</p>",
            "2 more findings, 1 warning",
            "<p>Failed: it fell</p>",
        ] {
            assert!(first.contains(want), "{want} is missing in {first}");
        }
        assert!(!first.contains("finding 4"));
        assert!(p.contains("<li>finding 5</li>"));
    }

    #[test]
    fn several_runs_stand_side_by_side_and_in_chapters() {
        let mut other = run();
        other.command = "muniment bench w1 again".into();
        let p = pages(&[run(), other]);
        well_formed(&p, &["meta", "br"]).unwrap();
        for want in [
            "2 runs",
            "muniment bench w1 again",
            "id=\"w1\"",
            "id=\"run-A-w1\"",
            "id=\"run-B-environment\"",
            "A: w:1",
            "B: w:1",
            "<h4>Findings</h4>",
        ] {
            assert!(p.contains(want), "{want} is missing");
        }
        let ids: Vec<&str> = p.split(" id=\"").skip(1).collect();
        let mut seen = std::collections::HashSet::new();
        for id in ids {
            let id = id.split('"').next().unwrap();
            assert!(seen.insert(id), "{id} stands twice");
            assert!(id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
        }
    }
}
