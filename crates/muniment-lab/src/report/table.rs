//! Tables, which are printed on a terminal, in HTML and as JSON.

use super::svg::escape;
use muniment_options::fold;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The heading, with the unit in it.
    pub name: String,
    /// Whether it holds figures, which are right-aligned.
    pub numeric: bool,
    /// Whether it holds a post's figures rather than ours.
    pub published: bool,
}

/// A table of text cells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Its title.
    pub title: String,
    /// The columns; the first one is the row's name.
    pub columns: Vec<Column>,
    /// The rows; short ones are filled up with empty cells.
    pub rows: Vec<Vec<String>>,
    /// A remark that is shown below the table.
    pub note: String,
}

impl Table {
    /// Makes an empty table. The first character of a column tells its kind: `<` text, `>` figures,
    /// `*` a post's figures.
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

    /// The table as text for a terminal of `width` letters, or for a file, which has no width.
    /// Columns are separated by two spaces, and a post's columns are headed `post:`. If the table
    /// is too wide, headings and texts are broken into lines; if that is not enough, the columns
    /// are divided into several blocks, each with the first column.
    pub fn text(&self, width: Option<usize>) -> String {
        let mut out = format!("{}\n", self.title);
        let all: Vec<usize> = (0..self.columns.len()).collect();
        match width.filter(|w| self.natural(&all) > *w) {
            None => self.block(&mut out, &all, &|i| self.widest(i)),
            Some(width) => {
                for (n, columns) in self.blocks(width).iter().enumerate() {
                    if n > 0 {
                        out.push('\n');
                    }
                    let widths = self.narrowed(columns, width);
                    self.block(&mut out, columns, &|i| {
                        let at = columns.iter().position(|c| *c == i);
                        at.and_then(|at| widths.get(at)).copied().unwrap_or(1)
                    });
                }
            }
        }
        if !self.note.is_empty() {
            let room = width.map_or(usize::MAX, |w| w.saturating_sub(2).max(1));
            for line in fold(&self.note, room) {
                let _ = writeln!(out, "  {line}");
            }
        }
        out
    }

    /// The heading of a column on a terminal.
    fn head(&self, i: usize) -> String {
        match self.columns.get(i) {
            Some(c) if c.published => format!("post: {}", c.name),
            Some(c) => c.name.clone(),
            None => String::new(),
        }
    }

    /// The width of a column's widest cell.
    fn cells(&self, i: usize) -> usize {
        let cells = self.rows.iter().filter_map(|r| r.get(i));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    }

    /// The width of a column if nothing in it is broken.
    fn widest(&self, i: usize) -> usize {
        self.cells(i).max(self.head(i).chars().count())
    }

    /// The least width of a column: figures are never broken, and neither are short words.
    fn least(&self, i: usize) -> usize {
        const WORD: usize = 14;
        let head = longest_word(&self.head(i));
        if self.columns.get(i).is_some_and(|c| c.numeric) {
            return self.cells(i).max(head);
        }
        let cells = self.rows.iter().filter_map(|r| r.get(i));
        let longest = cells.map(|c| longest_word(c)).max().unwrap_or(0);
        longest.max(head).min(WORD.max(head))
    }

    /// The width of a line of these columns if nothing is broken.
    fn natural(&self, columns: &[usize]) -> usize {
        columns.iter().map(|i| self.widest(*i) + 2).sum()
    }

    /// The columns in as few blocks as fit into `width`, each with the first column.
    fn blocks(&self, width: usize) -> Vec<Vec<usize>> {
        let line =
            |columns: &[usize]| -> usize { columns.iter().map(|i| self.least(*i) + 2).sum() };
        let mut out = vec![vec![0]];
        for i in 1..self.columns.len() {
            match out.last_mut() {
                Some(last) if last.len() == 1 || line(last) + self.least(i) + 2 <= width => {
                    last.push(i);
                }
                _ => out.push(vec![0, i]),
            }
        }
        out
    }

    /// Widths of these columns that fit into `width`: headings over figures are broken first, then
    /// the widest texts.
    fn narrowed(&self, columns: &[usize], width: usize) -> Vec<usize> {
        let least: Vec<usize> = columns.iter().map(|i| self.least(*i)).collect();
        let text = |i: &usize| self.columns.get(*i).is_some_and(|c| !c.numeric);
        let widths = columns.iter().zip(&least);
        let mut widths: Vec<usize> = widths
            .map(|(i, least)| if text(i) { self.widest(*i) } else { *least })
            .collect();
        while widths.iter().map(|w| w + 2).sum::<usize>() > width {
            let more = widths.iter_mut().zip(&least).filter(|(w, l)| **w > **l);
            let Some((widest, _)) = more.max_by_key(|(w, _)| **w) else {
                break;
            };
            *widest -= 1;
        }
        widths
    }

    /// Appends the headings, a rule and the rows of some columns.
    fn block(&self, out: &mut String, columns: &[usize], width: &dyn Fn(usize) -> usize) {
        let mut line = |cells: &[Vec<String>], from_below: bool| {
            let height = cells.iter().map(Vec::len).max().unwrap_or(0);
            for n in 0..height {
                let mut s = String::from("  ");
                for (i, cell) in columns.iter().zip(cells) {
                    let above = if from_below { height - cell.len() } else { 0 };
                    let part = n.checked_sub(above).and_then(|n| cell.get(n));
                    let part = part.map_or("", String::as_str);
                    let pad = width(*i).saturating_sub(part.chars().count());
                    let pad: String = std::iter::repeat_n(' ', pad).collect();
                    if self.columns.get(*i).is_some_and(|c| c.numeric) {
                        s += &format!("{pad}{part}  ");
                    } else {
                        s += &format!("{part}{pad}  ");
                    }
                }
                let _ = writeln!(out, "{}", s.trim_end());
            }
        };
        let heads = columns.iter().map(|i| fold(&self.head(*i), width(*i)));
        line(&heads.collect::<Vec<_>>(), true);
        let rule: usize = columns.iter().map(|i| width(*i) + 2).sum();
        line(&[vec!["-".repeat(rule.saturating_sub(2))]], false);
        for r in &self.rows {
            let cell = |i: &usize| fold(r.get(*i).map_or("", String::as_str), width(*i));
            line(&columns.iter().map(cell).collect::<Vec<_>>(), false);
        }
    }

    /// The table as HTML, in a container that scrolls sideways on a narrow screen.
    pub fn html(&self) -> String {
        let class = |i: usize| {
            let c = self.columns.get(i);
            match (c.is_some_and(|c| c.numeric), c.is_some_and(|c| c.published)) {
                (_, true) => " class=\"num pub\"",
                (true, _) => " class=\"num\"",
                _ => "",
            }
        };
        let name = match self.title.as_str() {
            "" => "Data",
            title => title,
        };
        // The container gets a tab index, so that it can be reached and scrolled with the keyboard.
        let mut o = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table>",
            escape(name)
        );
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

/// The number of letters of the longest word of `text`.
fn longest_word(text: &str) -> usize {
    let words = text.split_whitespace();
    words.map(|w| w.chars().count()).max().unwrap_or(0)
}

/// Formats a latency in ms with three significant digits.
pub(crate) fn ms(x: f64) -> String {
    if !x.is_finite() {
        return "–".to_string();
    }
    match x.abs() {
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}"),
        a if a >= 1.0 => format!("{x:.2}"),
        a if a >= 0.01 || a == 0.0 => format!("{x:.3}"),
        _ => format!("{x:.4}"),
    }
}

/// Formats a count or a rate: `1,234,567`, `102,000`, `12.3`. Whole numbers are exact; any other
/// number was measured and has three significant digits.
pub(crate) fn rate(x: f64) -> String {
    if !x.is_finite() {
        return "–".to_string();
    }
    let x = match x.abs() {
        a if a >= 1000.0 && x.fract() != 0.0 => {
            let step = 10f64.powf(a.log10().floor() - 2.0);
            (x / step).round() * step
        }
        _ => x,
    };
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

/// Formats a size as `1.20 GB`, with powers of ten as in the posts.
pub(crate) fn bytes(x: f64) -> String {
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
            (0.00042, "0.0004"),
            (1.5, "1.50"),
            (34.19, "34.2"),
            (1329.0, "1329"),
        ] {
            assert_eq!(ms(x), want);
        }
        for (x, want) in [
            (102345.6, "102,000"),
            (9996.4, "10,000"),
            (-1234.5, "-1,230"),
            (1234567.0, "1,234,567"),
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
        let lines: Vec<String> = t.text(None).lines().map(str::to_string).collect();
        assert_eq!(
            lines.get(1).map(String::as_str),
            Some("  name               ms  post: ms")
        );
        assert_eq!(
            lines.get(3).map(String::as_str),
            Some("  w:0              0.07       0.1")
        );
        assert_eq!(t.text(Some(80)), t.text(None));
        let h = t.html();
        assert!(h.contains("T &lt;1&gt;") && h.contains("a longer &amp; name"));
        assert!(h.contains("class=\"num pub\""));
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let mut t = Table::new(
            "T",
            &[
                "<load",
                "<what it does",
                ">server CPU µs/doc",
                ">n",
                "*average ms",
            ],
        );
        t.row([
            "default batch 1000",
            "inserts many small documents at once",
            "12.3",
            "1,000",
            "7",
        ])
        .row(["w:0", "waits for nothing", "4.5", "10", ""])
        .note("a note that is longer than the terminal is wide, and therefore broken");
        for width in [20, 30, 40, 60, 80] {
            let text = t.text(Some(width));
            for line in text.lines().skip(1) {
                assert!(line.chars().count() <= width, "{width}: {line}\n{text}");
            }
            // At every width, no text is lost and no figure is broken.
            for want in ["12.3", "1,000", "batch", "documents", "therefore", "post:"] {
                assert!(text.contains(want), "{want} at {width} in\n{text}");
            }
        }
        let text = t.text(Some(84));
        assert!(
            text.contains("\n  default batch 1000  inserts many small documents at once "),
            "{text}"
        );
    }
}
