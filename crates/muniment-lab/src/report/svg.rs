//! Draws plots as static SVG: lines, points and bars on linear or logarithmic axes. Colours are CSS
//! classes, so that one file serves light and dark mode. Every plot is drawn twice, wide and
//! narrow, and the style sheet shows the one that fits; its text stays readable on a phone that
//! way.

use super::plot::{Mark, Plot, Scale, Series};
use super::table::{Column, Table, rate};
use std::fmt::Write;

/// Escapes `text` for the content and attributes of HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    let mut o = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => o.push_str("&amp;"),
            '<' => o.push_str("&lt;"),
            '>' => o.push_str("&gt;"),
            '"' => o.push_str("&quot;"),
            // XML forbids most control characters, so they become spaces.
            c if c.is_control() => o.push(' '),
            c => o.push(c),
        }
    }
    o
}

/// Formats a number on an axis: `0.01`, `5`, `20k`, `1.5M`.
fn tick_text(v: f64) -> String {
    let trim = |s: String| {
        if s.contains('.') {
            s.trim_end_matches('0').trim_end_matches('.').to_string()
        } else {
            s
        }
    };
    match v.abs() {
        0.0 => "0".to_string(),
        a if a >= 1e6 => format!("{}M", trim(format!("{:.2}", v / 1e6))),
        a if a >= 1e3 => format!("{}k", trim(format!("{:.2}", v / 1e3))),
        a if a >= 1.0 => trim(format!("{v:.2}")),
        _ => trim(format!("{v:.6}")),
    }
}

/// Formats a percentage with a digit for each of its nines: `90`, `99.9`, `99.874`.
fn nines_text(v: f64) -> String {
    let nines = along(Scale::Nines, v).unwrap_or(0.0);
    let text = format!("{v:.*}", (nines - 1e-6).ceil().max(1.0) as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Formats a number of a data table.
fn data(y: f64) -> String {
    match y {
        y if !y.is_finite() => "–".to_string(),
        y if y.abs() >= 1000.0 => rate(y),
        y => format!("{y:.4}"),
    }
}

/// The width of a letter of a label (a capital) and the height of its line, in pixels.
const LETTER: f64 = 8.0;
const LINE: f64 = 13.0;

/// The width of a digit of the figure at a bar, in pixels.
const DIGIT: f64 = 7.0;

/// The free space to the right of the axes, in pixels.
const MARGIN: f64 = 14.0;

/// The characters after which a label may be broken.
const BREAKS: [char; 5] = [' ', '_', '/', ':', '-'];

/// Whether `text` has a piece of more than `most` letters, so that it would be broken within a
/// word.
fn breaks_words(text: &str, most: usize) -> bool {
    text.split_inclusive(BREAKS)
        .any(|p| p.trim_end().chars().count() > most)
}

/// Breaks `text` into lines of at most `most` letters: at spaces and after `_`, `/`, `:` and `-`,
/// and within a word only if there is no other way.
fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let pieces = text.split_inclusive(BREAKS).flat_map(|piece| {
        let letters: Vec<char> = piece.chars().collect();
        let fits = piece.trim_end().chars().count() <= most;
        let parts = if fits { letters.len().max(1) } else { most };
        letters
            .chunks(parts)
            .map(|c| c.iter().collect::<String>())
            .collect::<Vec<_>>()
    });
    for piece in pieces {
        match lines.last_mut() {
            Some(l) if (l.clone() + &piece).trim_end().chars().count() <= most => {
                l.push_str(&piece);
            }
            _ => lines.push(piece),
        }
    }
    lines.iter().map(|l| l.trim_end().to_string()).collect()
}

/// The range of an axis and its ticks.
struct Span {
    lo: f64,
    hi: f64,
    scale: Scale,
    ticks: Vec<f64>,
}

impl Span {
    fn new(
        values: impl Iterator<Item = f64>,
        scale: Scale,
        wanted: usize,
        from_zero: bool,
    ) -> Span {
        let log = scale == Scale::Log;
        let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
        for v in values.filter(|v| along(scale, *v).is_some()) {
            lo = lo.min(v);
            hi = hi.max(v);
        }
        if !lo.is_finite() {
            (lo, hi) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        match scale {
            Scale::Log => return Span::decades(lo, hi, wanted),
            Scale::Nines => return Span::nines(hi, wanted),
            Scale::Linear => {}
        }
        if from_zero {
            lo = lo.min(0.0);
        }
        if hi <= lo {
            hi = lo + 1.0;
        }
        let rough = (hi - lo) / wanted.max(2) as f64;
        let pow = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .iter()
            .map(|m| m * pow)
            .find(|s| *s >= rough * 0.999)
            .unwrap_or(10.0 * pow);
        let first = (lo / step).floor();
        let last = if from_zero {
            (hi / step - 1e-9).ceil()
        } else {
            (hi / step).floor()
        };
        let ticks: Vec<f64> = (0..=((last - first).clamp(0.0, 50.0) as usize))
            .map(|i| (first + i as f64) * step)
            .filter(|t| *t >= lo - step * 1e-6)
            .collect();
        if from_zero {
            hi = hi.max(last * step);
        }
        Span {
            lo,
            hi,
            scale,
            ticks,
        }
    }

    /// A range from 0 to the nine that contains `hi`.
    fn nines(hi: f64, wanted: usize) -> Span {
        let last = along(Scale::Nines, hi).unwrap_or(1.0);
        let last = (last - 1e-6).ceil().clamp(1.0, 9.0) as i32;
        let ticks = (0..=last).map(|n| 100.0 * (1.0 - 10f64.powi(-n)));
        let ticks: Vec<f64> = ticks.collect();
        let every = ticks.len().div_ceil(wanted + 1).max(1);
        Span {
            lo: 0.0,
            hi: ticks.last().copied().unwrap_or(90.0),
            scale: Scale::Nines,
            ticks: ticks.into_iter().step_by(every).collect(),
        }
    }

    fn decades(lo: f64, hi: f64, wanted: usize) -> Span {
        // Whole decades leave much empty space if the data fill only one or two, so the ticks then
        // have steps of 1, 2 and 5.
        let (a, b) = (lo.log10(), hi.log10());
        let fine = b - a < 2.5;
        let marks: &[f64] = if fine { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let mut all = Vec::new();
        for d in (a.floor() as i32 - 1)..=(b.ceil() as i32 + 1) {
            for m in marks {
                all.push(m * 10f64.powi(d));
            }
        }
        let below = all.iter().rposition(|t| *t <= lo * 1.0001).unwrap_or(0);
        let above = all
            .iter()
            .position(|t| *t >= hi * 0.9999)
            .unwrap_or(all.len() - 1)
            .max(below + 1);
        let used = all.get(below..=above).unwrap_or_default();
        let every = used.len().div_ceil(wanted.max(2) + 2).max(1);
        Span {
            lo: used.first().copied().unwrap_or(lo),
            hi: used.last().copied().unwrap_or(hi),
            scale: Scale::Log,
            ticks: used.iter().copied().step_by(every).collect(),
        }
    }

    /// The position along the axis, 0..=1; `None` if the axis does not reach `v`.
    fn at(&self, v: f64) -> Option<f64> {
        let f = |x: f64| along(self.scale, x);
        let (lo, hi) = (f(self.lo)?, f(self.hi)?);
        let r = (f(v)? - lo) / (hi - lo);
        r.is_finite().then_some(r.clamp(-0.02, 1.02))
    }
}

/// The position of `v` along a scale; `None` if the scale has no place for it.
fn along(scale: Scale, v: f64) -> Option<f64> {
    let at = match scale {
        Scale::Linear => v,
        Scale::Log if v > 0.0 => v.log10(),
        Scale::Nines if (0.0..100.0).contains(&v) => -(1.0 - v / 100.0).log10(),
        Scale::Log | Scale::Nines => return None,
    };
    at.is_finite().then_some(at)
}

/// The area inside the axes, in pixels.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Frame {
    fn x(&self, r: f64) -> f64 {
        self.left + r * self.width
    }
    fn y(&self, r: f64) -> f64 {
        self.top + (1.0 - r) * self.height
    }
}

impl Plot {
    /// The plot as a figure with its legend and its data table.
    pub fn html(&self) -> String {
        let mut o = String::from("<figure>");
        let _ = write!(o, "<figcaption><b>{}</b>", escape(&self.title));
        if !self.caption.is_empty() {
            let _ = write!(o, "<span>{}</span>", escape(&self.caption));
        }
        o.push_str("</figcaption>");
        self.legend(&mut o);
        o.push_str(&self.svg(860.0, 360.0, "wide"));
        o.push_str(&self.svg(380.0, 300.0, "narrow"));
        o.push_str("<details><summary>Data</summary>");
        o.push_str(&self.data_table().html());
        o.push_str("</details></figure>");
        o
    }

    fn legend(&self, o: &mut String) {
        o.push_str("<ul class=\"legend\">");
        // A load that was measured several times has several series, but one entry here.
        let mut named: Vec<(&str, bool, usize)> = Vec::new();
        for s in &self.series {
            let this = (s.name.as_str(), s.published, s.color);
            if named.contains(&this) {
                continue;
            }
            named.push(this);
            let _ = write!(
                o,
                "<li><svg width=\"26\" height=\"12\" aria-hidden=\"true\">{}</svg>{}</li>",
                swatch(s),
                escape(&s.name)
            );
        }
        o.push_str("</ul>");
    }

    /// The table of the numbers that the plot shows.
    pub fn data_table(&self) -> Table {
        const MOST: usize = 400;
        let mut t = Table::new("", &["<series", ">x", ">y"]);
        if let Some(c) = t.columns.get_mut(1) {
            c.name.clone_from(&self.x.label);
        }
        if let Some(c) = t.columns.get_mut(2) {
            c.name.clone_from(&self.y.label);
        }
        let spread = self.series.iter().any(|s| !s.spread.is_empty());
        if spread {
            let column = |name: &str| Column {
                name: name.into(),
                numeric: true,
                published: false,
            };
            t.columns.extend([column("lowest"), column("highest")]);
        }
        let mut left_out = 0;
        for s in &self.series {
            let step = s.points.len().div_ceil(MOST).max(1);
            left_out += s.points.len() - s.points.len().div_ceil(step);
            for ((x, y), between) in s.with_spread().step_by(step) {
                let (x, y) = (&x, &y);
                let x = match self.categories.get(*x as usize) {
                    Some(c) => c.clone(),
                    None if !x.is_finite() => "–".to_string(),
                    None if self.x.scale == Scale::Nines => nines_text(*x),
                    None if x.fract() == 0.0 => rate(*x),
                    None => format!("{x:.2}"),
                };
                let mut row = vec![s.name.clone(), x, data(*y)];
                if spread {
                    let (low, high) = between.unwrap_or((f64::NAN, f64::NAN));
                    row.extend([data(low), data(high)]);
                }
                t.row(row);
            }
        }
        if left_out > 0 {
            t.note("Evenly thinned; every value is in results.json.");
        }
        t
    }

    /// The drawing without legend and table.
    pub fn svg(&self, width: f64, height: f64, class: &str) -> String {
        let narrow = width < 500.0;
        let bars = !self.categories.is_empty();
        let inner = width - 58.0 - MARGIN;
        let room = inner / self.categories.len().max(1) as f64 / LETTER;
        let most = (room as usize).max(4);
        // If a label would be broken within words, all labels are drawn upright instead.
        let upright = self.categories.iter().any(|c| breaks_words(c, most));
        let labels: Vec<Vec<String>> = self
            .categories
            .iter()
            .map(|c| match upright {
                true => vec![c.clone()],
                false => wrap(c, most),
            })
            .collect();
        let lines = labels.iter().map(Vec::len).max().unwrap_or(1);
        let letters = self.categories.iter().map(|c| c.chars().count()).max();
        let below = match upright {
            true => 20.0 + LETTER * letters.unwrap_or(0) as f64,
            false => (20.0 + LINE * lines as f64).max(46.0),
        };
        let height = height + (below - 46.0).clamp(0.0, 120.0);
        let frame = Frame {
            left: 58.0,
            top: 26.0,
            width: inner,
            height: height - 26.0 - below,
        };
        let all = || self.series.iter().flat_map(|s| s.points.iter());
        let xs = all().map(|p| p.0);
        let xspan = if bars {
            Span {
                lo: -0.5,
                hi: self.categories.len() as f64 - 0.5,
                scale: Scale::Linear,
                ticks: Vec::new(),
            }
        } else {
            Span::new(xs, self.x.scale, if narrow { 4 } else { 8 }, false)
        };
        let spread = self.series.iter().flat_map(|s| s.spread.iter());
        let ys = all().map(|p| p.1).chain(spread.flat_map(|s| [s.0, s.1]));
        let yspan = Span::new(ys, self.y.scale, 5, true);
        let mut o = String::new();
        let _ = write!(
            o,
            "<svg class=\"plot {class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
            escape(&self.title)
        );
        self.axes(&mut o, &frame, (&xspan, &yspan), height, (&labels, upright));
        for (i, s) in self.series.iter().enumerate() {
            match s.mark {
                Mark::Bar => self.bars(&mut o, i, s, &frame, (&xspan, &yspan)),
                Mark::Level => level(&mut o, s, &frame, &yspan),
                Mark::Line | Mark::Dots => line(&mut o, s, &frame, &xspan, &yspan),
            }
        }
        o.push_str("</svg>");
        o
    }

    fn axes(
        &self,
        o: &mut String,
        f: &Frame,
        (xs, ys): (&Span, &Span),
        height: f64,
        (labels, upright): (&[Vec<String>], bool),
    ) {
        self.y_axis(o, f, ys);
        self.x_ticks(o, f, xs);
        for (i, lines) in labels.iter().enumerate() {
            let Some(x) = xs.at(i as f64).map(|r| f.x(r)) else {
                continue;
            };
            category(o, x, f.top + f.height, lines, upright);
        }
        if self.categories.is_empty() {
            let _ = write!(
                o,
                "<text class=\"axis\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                f.left + f.width,
                height - 8.0,
                escape(&self.x.label)
            );
        }
    }

    /// Draws the y axis: its label, and a line with its figure at each tick.
    fn y_axis(&self, o: &mut String, f: &Frame, ys: &Span) {
        let _ = write!(
            o,
            "<text class=\"axis\" x=\"4\" y=\"14\">{}</text>",
            escape(&self.y.label)
        );
        for t in &ys.ticks {
            let Some(y) = ys.at(*t).map(|r| f.y(r)) else {
                continue;
            };
            let class = if *t == 0.0 { "base" } else { "grid" };
            let _ = write!(
                o,
                "<path class=\"{class}\" d=\"M{:.1} {y:.1}H{:.1}\"/><text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                f.left,
                f.left + f.width,
                f.left - 7.0,
                y + 4.0,
                tick_text(*t)
            );
        }
    }

    /// Draws the ticks of the x axis with their figures.
    fn x_ticks(&self, o: &mut String, f: &Frame, xs: &Span) {
        let below = f.top + f.height;
        for t in &xs.ticks {
            let Some(x) = xs.at(*t).map(|r| f.x(r)) else {
                continue;
            };
            let text = match self.x.scale {
                Scale::Nines => nines_text(*t),
                _ => tick_text(*t),
            };
            // A long figure at the end is moved left, because it would leave the drawing otherwise.
            let edge = f.left + f.width + MARGIN - 1.0;
            let half = text.chars().count() as f64 * DIGIT / 2.0;
            let (anchor, at) = match x + half > edge {
                true => ("end", edge),
                false => ("middle", x),
            };
            let _ = write!(
                o,
                "<path class=\"grid\" d=\"M{x:.1} {below:.1}v5\"/><text class=\"tick\" text-anchor=\"{anchor}\" x=\"{at:.1}\" y=\"{:.1}\">{text}</text>",
                below + 18.0,
            );
        }
    }

    fn bars(&self, o: &mut String, me: usize, s: &Series, f: &Frame, (xs, ys): (&Span, &Span)) {
        let group = f.width / self.categories.len().max(1) as f64;
        let gap = 2.0;
        // All bars have the same width; a group is centred on the bars that it has.
        let most = self.series.iter().filter(|s| s.mark == Mark::Bar).count();
        let full = (group * 0.78 / most.max(1) as f64).min(64.0);
        let bar = (full - gap).max(2.0);
        for ((x, y), between) in s.with_spread() {
            let (Some(xr), Some(yr)) = (xs.at(x), ys.at(y)) else {
                continue;
            };
            let here = |(_, s): &(usize, &Series)| {
                s.mark == Mark::Bar && s.points.iter().any(|p| p.0 == x)
            };
            let count = self.series.iter().enumerate().filter(here).count();
            let index = self.series.iter().enumerate().take(me).filter(here).count();
            let left = f.x(xr) - full * count as f64 / 2.0 + full * index as f64 + gap / 2.0;
            let top = f.y(yr.max(0.0));
            let _ = write!(
                o,
                "<rect class=\"c{}{}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{bar:.1}\" height=\"{:.1}\" rx=\"1.5\"><title>{}: {}</title></rect>",
                s.color,
                if s.published { " pub" } else { "" },
                (f.top + f.height - top).max(0.5),
                escape(&s.name),
                tick_text(y)
            );
            let middle = left + bar / 2.0;
            let highest = between
                .and_then(|b| whisker(o, middle, b, f, ys))
                .map_or(top, |high| high.min(top));
            let value = value_text(y);
            // If the figure is wider than its bar it would overlap the next one, so only the data
            // table has it.
            if value.chars().count() as f64 * DIGIT <= full {
                let _ = write!(
                    o,
                    "<text class=\"value\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{value}</text>",
                    middle,
                    highest - 4.0,
                );
            }
        }
    }
}

/// Draws a line from the lowest to the highest value at `x` with short ends; returns the position
/// of its upper end.
fn whisker(o: &mut String, x: f64, (low, high): (f64, f64), f: &Frame, ys: &Span) -> Option<f64> {
    let (low, high) = (f.y(ys.at(low)?), f.y(ys.at(high)?));
    let (left, right) = (x - 4.0, x + 4.0);
    let _ = write!(
        o,
        "<path class=\"whisker\" d=\"M{left:.1} {high:.1}H{right:.1}M{x:.1} {high:.1}V{low:.1}M{left:.1} {low:.1}H{right:.1}\"/>"
    );
    Some(high)
}

/// Draws the area between the lowest and the highest value of each point of a line.
fn band(o: &mut String, s: &Series, f: &Frame, xs: &Span, ys: &Span) {
    let at: Vec<(f64, f64, f64)> = s
        .with_spread()
        .filter_map(|((x, _), b)| {
            let (low, high) = b?;
            Some((f.x(xs.at(x)?), f.y(ys.at(low)?), f.y(ys.at(high)?)))
        })
        .collect();
    if at.len() < 2 {
        return;
    }
    let mut d = String::from("M");
    for (x, _, high) in &at {
        let _ = write!(d, "{x:.1} {high:.1}L");
    }
    for (x, low, _) in at.iter().rev() {
        let _ = write!(d, "{x:.1} {low:.1}L");
    }
    d.pop();
    let _ = write!(o, "<path class=\"b{} band\" d=\"{d}Z\"/>", s.color);
}

/// The figure at a bar, with three significant digits.
fn value_text(v: f64) -> String {
    match v.abs() {
        a if a >= 1e6 => format!("{:.2}M", v / 1e6),
        a if a >= 1e5 => format!("{:.0}k", v / 1e3),
        a if a >= 1e4 => format!("{:.1}k", v / 1e3),
        a if a >= 1e3 => format!("{:.2}k", v / 1e3),
        a if a >= 100.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        _ => format!("{v:.2}"),
    }
}

fn swatch(s: &Series) -> String {
    let p = if s.published { " pub" } else { "" };
    let c = s.color;
    match s.mark {
        Mark::Bar => format!(
            "<rect class=\"c{c}{p}\" x=\"7\" y=\"0.5\" width=\"12\" height=\"11\" rx=\"1.5\"/>"
        ),
        Mark::Dots => format!("<circle class=\"d{c}{p}\" cx=\"13\" cy=\"6\" r=\"3\"/>"),
        Mark::Level => format!("<path class=\"l{c}{p} level\" d=\"M0 6H26\"/>"),
        Mark::Line => {
            format!(
                "<path class=\"l{c}{p}\" d=\"M0 6H26\"/><circle class=\"d{c}{p}\" cx=\"13\" cy=\"6\" r=\"3\"/>"
            )
        }
    }
}

/// Draws a category's name below the middle of its bars, in lines or upright.
fn category(o: &mut String, x: f64, below: f64, lines: &[String], upright: bool) {
    if upright {
        let y = below + 10.0;
        let _ = write!(
            o,
            "<text class=\"tick\" text-anchor=\"end\" transform=\"translate({:.1} {y:.1}) rotate(-90)\">{}</text>",
            x + 4.0,
            escape(&lines.concat())
        );
        return;
    }
    for (k, line) in lines.iter().enumerate() {
        let _ = write!(
            o,
            "<text class=\"tick\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            below + 16.0 + LINE * k as f64,
            escape(line)
        );
    }
}

fn level(o: &mut String, s: &Series, f: &Frame, ys: &Span) {
    let Some(y) = s.points.first().and_then(|p| ys.at(p.1)).map(|r| f.y(r)) else {
        return;
    };
    let _ = write!(
        o,
        "<path class=\"l{}{} level\" d=\"M{:.1} {y:.1}H{:.1}\"/>",
        s.color,
        if s.published { " pub" } else { "" },
        f.left,
        f.left + f.width
    );
}

fn line(o: &mut String, s: &Series, f: &Frame, xs: &Span, ys: &Span) {
    let p = if s.published { " pub" } else { "" };
    match s.mark {
        Mark::Dots => {
            for ((x, _), between) in s.with_spread() {
                if let Some((at, b)) = xs.at(x).zip(between) {
                    whisker(o, f.x(at), b, f, ys);
                }
            }
        }
        _ => band(o, s, f, xs, ys),
    }
    let at: Vec<(f64, f64)> = s
        .points
        .iter()
        .filter_map(|(x, y)| Some((f.x(xs.at(*x)?), f.y(ys.at(*y)?))))
        .collect();
    if s.mark == Mark::Line && at.len() > 1 {
        let mut d = String::new();
        for (i, (x, y)) in at.iter().enumerate() {
            let _ = write!(d, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
        }
        let _ = write!(o, "<path class=\"l{}{p}\" d=\"{d}\"/>", s.color);
    }
    // Points on a dense line would only make it thicker.
    let r = match (s.mark, at.len()) {
        (Mark::Line, n) if n > 60 => return,
        (Mark::Dots, n) if n > 150 => 1.6,
        _ => 3.0,
    };
    for (x, y) in at {
        let _ = write!(
            o,
            "<circle class=\"d{}{p}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\"/>",
            s.color
        );
    }
}

/// For tests of this module and of the report: fails unless `text` is one well-formed element tree
/// in the subset of XML that is written here (no comments, no processing instructions).
#[cfg(test)]
pub(crate) fn well_formed(text: &str, void: &[&str]) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(i) = rest.find('<') {
        if rest[..i].contains('>') && open.last().is_none_or(|o| o != "style") {
            return Err(format!(
                "a stray > before {}",
                &rest[i..rest.len().min(i + 40)]
            ));
        }
        let end = rest[i..].find('>').ok_or("an unclosed tag")? + i;
        let tag = &rest[i + 1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('!') {
            continue;
        }
        if tag.matches('"').count() % 2 == 1 {
            return Err(format!("unbalanced quotes in <{tag}>"));
        }
        let name = tag.trim_start_matches('/').trim_end_matches('/');
        let name = name.split_whitespace().next().unwrap_or("").to_string();
        if tag.starts_with('/') {
            if open.pop().as_deref() != Some(&name) {
                return Err(format!("</{name}> closes nothing"));
            }
        } else if !tag.ends_with('/') && !void.contains(&name.as_str()) {
            open.push(name);
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("left open: {open:?}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::report::plot::Axis;

    fn plot(mark: Mark, x: Scale, y: Scale, points: Vec<(f64, f64)>) -> Plot {
        Plot {
            title: "a < b & \"c\"".into(),
            caption: "how".into(),
            x: Axis {
                label: "x".into(),
                scale: x,
            },
            y: Axis {
                label: "y".into(),
                scale: y,
            },
            categories: if mark == Mark::Bar {
                vec!["w:1 one".into(), "j".into()]
            } else {
                vec![]
            },
            series: vec![
                Series {
                    name: "ours".into(),
                    mark,
                    published: false,
                    color: 0,
                    points: points.clone(),
                    ..Series::default()
                },
                Series {
                    name: "post".into(),
                    mark,
                    published: true,
                    color: 0,
                    points,
                    ..Series::default()
                },
            ],
        }
    }

    #[test]
    fn every_mark_and_scale_is_well_formed() {
        let odd = vec![
            (0.0, 0.0),
            (1.0, 5.0),
            (f64::NAN, 1.0),
            (2.0, f64::INFINITY),
            (1e9, -3.0),
        ];
        for mark in [Mark::Line, Mark::Dots, Mark::Bar, Mark::Level] {
            for scale in [Scale::Linear, Scale::Log] {
                for points in [odd.clone(), vec![], vec![(3.0, 3.0)]] {
                    let p = plot(mark, scale, scale, points);
                    let s = p.svg(860.0, 360.0, "wide");
                    well_formed(&s, &[]).unwrap();
                    assert!(!s.contains("NaN") && !s.contains("inf"), "{s}");
                    well_formed(&p.html(), &[]).unwrap();
                }
            }
        }
    }

    #[test]
    fn points_land_where_they_should() {
        let s = Span::new([1.0, 400_000.0].into_iter(), Scale::Log, 8, false);
        assert_eq!(s.at(1.0), Some(0.0));
        assert!((s.at(1000.0).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(s.at(0.0), None);
        let s = Span::new([3.0, 97.0].into_iter(), Scale::Linear, 5, true);
        assert_eq!(s.ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(s.at(50.0), Some(0.5));
    }

    #[test]
    fn nines_are_equally_wide_and_have_their_digits() {
        let s = Span::new([0.0, 99.95].into_iter(), Scale::Nines, 8, false);
        assert_eq!(s.ticks.len(), 5, "{:?}", s.ticks);
        let texts: Vec<String> = s.ticks.iter().map(|t| nines_text(*t)).collect();
        assert_eq!(texts, ["0", "90", "99", "99.9", "99.99"]);
        assert!((s.at(99.0).unwrap() - 0.5).abs() < 1e-6);
        assert_eq!((s.at(100.0), s.at(-1.0)), (None, None));
        let few = Span::new([99.99995].into_iter(), Scale::Nines, 4, false);
        let texts: Vec<String> = few.ticks.iter().map(|t| nines_text(*t)).collect();
        assert_eq!(texts, ["0", "99", "99.99", "99.9999"]);
        assert_eq!(nines_text(87.4107), "87.4");
        assert_eq!(nines_text(99.87412), "99.874");
    }

    #[test]
    fn what_was_found_between_is_a_band_or_whiskers_and_in_the_data() {
        for (mark, want) in [
            (Mark::Line, "class=\"b0 band\""),
            (Mark::Dots, "class=\"whisker\""),
            (Mark::Bar, "class=\"whisker\""),
        ] {
            let points = vec![(0.0, 5.0), (1.0, 6.0)];
            let mut p = plot(mark, Scale::Linear, Scale::Linear, points);
            let without = p.svg(860.0, 360.0, "wide");
            assert!(!without.contains(want));
            assert_eq!(p.data_table().columns.len(), 3);
            p.series[0].spread = vec![(4.0, 7.0), (5.0, 1234.0)];
            let s = p.svg(860.0, 360.0, "wide");
            assert!(s.contains(want), "{s}");
            well_formed(&s, &[]).unwrap();
            assert!(s.contains(">1.25k<") || s.contains(">1.5k<") || s.contains(">1k<"));
            let t = p.data_table();
            assert_eq!(t.rows[1][3..], ["5.0000", "1,234"]);
        }
    }

    #[test]
    fn a_legend_names_each_line_once() {
        let mut p = plot(Mark::Line, Scale::Linear, Scale::Linear, vec![(0.0, 5.0)]);
        p.series.push(p.series[0].clone());
        let h = p.html();
        let legend = h.split("</ul>").next().unwrap();
        assert_eq!(legend.matches("<li>").count(), 2, "ours and the post's");
    }

    #[test]
    fn long_labels_are_broken_where_they_may_be() {
        for (text, most, want) in [
            ("w:1", 6, vec!["w:1"]),
            ("S1 (2 threads)", 8, vec!["S1 (2", "threads)"]),
            (
                "JOURNAL_SAFE/NORMAL",
                8,
                vec!["JOURNAL_", "SAFE/", "NORMAL"],
            ),
            ("indistinguishable", 6, vec!["indist", "inguis", "hable"]),
        ] {
            assert_eq!(wrap(text, most), want);
        }
        assert!(wrap("", 5).is_empty());
        assert!(breaks_words("group-one indistinguishable", 8));
        assert!(!breaks_words("group-one S1 (2 threads)", 8));
    }

    #[test]
    fn ticks_are_short() {
        for (v, want) in [
            (0.0, "0"),
            (0.05, "0.05"),
            (5.0, "5"),
            (2500.0, "2.5k"),
            (1e6, "1M"),
            (400_000.0, "400k"),
        ] {
            assert_eq!(tick_text(v), want);
        }
    }

    #[test]
    fn the_checker_finds_faults() {
        assert!(well_formed("<a><b></a>", &[]).is_err());
        assert!(well_formed("<a x=\"1></a>", &[]).is_err());
        assert!(well_formed("<a>1 > 0</a>", &[]).is_err());
        assert!(well_formed("<a><br></a>", &["br"]).is_ok());
    }
}
