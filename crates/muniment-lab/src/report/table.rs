//! Tables: one value, printed on a terminal, in HTML and as JSON.

use super::svg::escape;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The heading, with the unit in it.
    pub name: String,
    /// True for figures (right-aligned).
    pub numeric: bool,
    /// True when the column holds a post's figures rather than ours.
    pub published: bool,
}

/// A table of text cells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The columns, first the row's name.
    pub columns: Vec<Column>,
    /// The rows; short ones are filled with empty cells.
    pub rows: Vec<Vec<String>>,
    /// A remark below it.
    pub note: String,
}

impl Table {
    /// An empty table. Columns by a mark in front: `<` text, `>` figure, `*` a post's figure.
    pub fn new(title: &str, columns: &[&str]) -> Table {
        let columns = columns
            .iter()
            .map(|c| {
                let (mark, name) = c.split_at(c.len().min(1));
                Column {
                    name: name.to_string(),
                    numeric: mark != "<",
                    published: mark == "*",
                }
            })
            .collect();
        Table {
            title: title.to_string(),
            columns,
            ..Table::default()
        }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) -> &mut Table {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the remark.
    pub fn note(&mut self, text: impl Into<String>) -> &mut Table {
        self.note = text.into();
        self
    }

    /// For a terminal: columns aligned by two spaces, a post's columns headed `post:`.
    pub fn text(&self) -> String {
        let heads: Vec<String> = self
            .columns
            .iter()
            .map(|c| {
                if c.published {
                    format!("post: {}", c.name)
                } else {
                    c.name.clone()
                }
            })
            .collect();
        let widths: Vec<usize> = heads
            .iter()
            .enumerate()
            .map(|(i, h)| {
                self.rows
                    .iter()
                    .filter_map(|r| r.get(i))
                    .map(|c| c.chars().count())
                    .chain([h.chars().count()])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let line = |cells: &[String]| {
            let mut s = String::from("  ");
            for (i, w) in widths.iter().enumerate() {
                let cell = cells.get(i).map_or("", String::as_str);
                let pad = w.saturating_sub(cell.chars().count());
                if self.columns.get(i).is_some_and(|c| c.numeric) {
                    s.extend(std::iter::repeat_n(' ', pad));
                    s.push_str(cell);
                } else {
                    s.push_str(cell);
                    s.extend(std::iter::repeat_n(' ', pad));
                }
                s.push_str("  ");
            }
            s.trim_end().to_string()
        };
        let mut out = format!("{}\n{}\n", self.title, line(&heads));
        let rule = widths
            .iter()
            .map(|w| w + 2)
            .sum::<usize>()
            .saturating_sub(2);
        let _ = writeln!(out, "  {}", "-".repeat(rule));
        for r in &self.rows {
            let _ = writeln!(out, "{}", line(r));
        }
        if !self.note.is_empty() {
            let _ = writeln!(out, "  {}", self.note);
        }
        out
    }

    /// As an HTML table inside a container that scrolls sideways on a narrow screen.
    pub fn html(&self) -> String {
        let class = |i: usize| {
            let c = self.columns.get(i);
            match (c.is_some_and(|c| c.numeric), c.is_some_and(|c| c.published)) {
                (_, true) => " class=\"num pub\"",
                (true, _) => " class=\"num\"",
                _ => "",
            }
        };
        let mut o = String::from("<div class=\"scroll\"><table>");
        if !self.title.is_empty() {
            let _ = write!(o, "<caption>{}</caption>", escape(&self.title));
        }
        o.push_str("<thead><tr>");
        for (i, c) in self.columns.iter().enumerate() {
            let mark = if c.published {
                "<small>post</small> "
            } else {
                ""
            };
            let _ = write!(
                o,
                "<th scope=\"col\"{}>{mark}{}</th>",
                class(i),
                escape(&c.name)
            );
        }
        o.push_str("</tr></thead><tbody>");
        for r in &self.rows {
            o.push_str("<tr>");
            for i in 0..self.columns.len() {
                let cell = r.get(i).map_or("", String::as_str);
                let verdict = match cell {
                    "PASS" | "KEPT" => format!("<b class=\"pass\">{cell}</b>"),
                    "FALLS SHORT" | "BROKEN" | "NOTHING SHOWN" => {
                        format!("<b class=\"short\">{cell}</b>")
                    }
                    c => escape(c),
                };
                if i == 0 {
                    let _ = write!(o, "<th scope=\"row\"{}>{verdict}</th>", class(i));
                } else {
                    let _ = write!(o, "<td{}>{verdict}</td>", class(i));
                }
            }
            o.push_str("</tr>");
        }
        o.push_str("</tbody></table></div>");
        if !self.note.is_empty() {
            let _ = write!(o, "<p class=\"note\">{}</p>", escape(&self.note));
        }
        o
    }
}

/// A latency in ms with three significant digits.
pub fn ms(x: f64) -> String {
    if !x.is_finite() {
        return "–".to_string();
    }
    match x.abs() {
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        a if a >= 1.0 => format!("{x:.2}"),
        _ => format!("{x:.3}"),
    }
}

/// A rate or count: `1 234 567` from 1000 up (thin spaces are left to no one's font), three
/// significant digits below.
pub fn rate(x: f64) -> String {
    if !x.is_finite() {
        return "–".to_string();
    }
    if x.abs() < 1000.0 {
        return if x.abs() >= 100.0 || x.fract() == 0.0 {
            format!("{x:.0}")
        } else if x.abs() >= 10.0 {
            format!("{x:.1}")
        } else {
            format!("{x:.2}")
        };
    }
    let digits = format!("{:.0}", x.abs());
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    if x < 0.0 { format!("-{out}") } else { out }
}

/// A size: `1.20 GB`, powers of ten as in the posts.
pub fn bytes(x: f64) -> String {
    if !x.is_finite() {
        return "–".to_string();
    }
    for (unit, n) in [("GB", 1e9), ("MB", 1e6), ("kB", 1e3)] {
        if x >= n {
            return format!("{:.*} {unit}", if x >= 100.0 * n { 0 } else { 2 }, x / n);
        }
    }
    format!("{x:.0} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (x, want) in [
            (0.0671, "0.067"),
            (1.5, "1.50"),
            (34.19, "34.2"),
            (1329.0, "1329"),
        ] {
            assert_eq!(ms(x), want);
        }
        for (x, want) in [
            (102345.6, "102,346"),
            (999.0, "999"),
            (12.34, "12.3"),
            (3.0, "3"),
            (0.5, "0.50"),
        ] {
            assert_eq!(rate(x), want);
        }
        assert_eq!(ms(f64::NAN), "–");
        for (x, want) in [
            (144e9, "144 GB"),
            (1.44e9, "1.44 GB"),
            (2401.0, "2.40 kB"),
            (12.0, "12 B"),
        ] {
            assert_eq!(bytes(x), want);
        }
    }

    #[test]
    fn text_is_aligned_and_html_escaped() {
        let mut t = Table::new("T <1>", &["<name", ">ms", "*ms"]);
        t.row(["w:0", "0.07", "0.1"])
            .row(["a longer & name", "12.5"]);
        let lines: Vec<String> = t.text().lines().map(str::to_string).collect();
        assert_eq!(
            lines.get(1).map(String::as_str),
            Some("  name               ms  post: ms")
        );
        assert_eq!(
            lines.get(3).map(String::as_str),
            Some("  w:0              0.07       0.1")
        );
        let h = t.html();
        assert!(h.contains("T &lt;1&gt;") && h.contains("a longer &amp; name"));
        assert!(h.contains("class=\"num pub\""));
    }
}
