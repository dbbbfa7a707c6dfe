//! Progress on stderr: on a terminal one line that is rewritten and never wider than the terminal;
//! in a log, or on a terminal that cannot rewrite a line (`TERM=dumb`), one line every few seconds.
//! stdout stays free for the results. Nothing here is coloured.

use crate::report::table::{bytes, ms, rate};
use crate::stdout::width_of;
use crate::summary::cut;
use crate::tui::Screen;
use muniment_load::fail::{Context, Failure, Result};
use muniment_load::load::{Live, Onlooker};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The remaining time, documents, rate, latency and the server's load in words. The most important
/// part comes first, since the end may be cut off.
pub(crate) fn text(live: &Live) -> String {
    let mut o = match live.left() {
        Some(left) => format!("{} left, ", duration(left)),
        None => String::new(),
    };
    o += &format!(
        "{} docs, {}/s",
        rate(live.documents as f64),
        rate(live.rate)
    );
    if let Some((_, p99)) = live.latency {
        o += &format!(", p99 {} ms", ms(p99));
    }
    if let Some(s) = live.server {
        o += &format!(", server {:.1} cores, {}", s.cpu, bytes(s.rss));
    }
    o
}

/// Formats seconds for people: `38 s`, `4 min 10 s`, `2 h 05 min`.
fn duration(seconds: f64) -> String {
    let s = seconds.ceil().max(0.0) as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {:02} s", s / 60, s % 60),
        _ => format!("{} h {:02} min", s / 3600, s % 3600 / 60),
    }
}

/// Draws `share` (0 to 1) as a bar of `width` characters.
fn bar(share: f64, width: usize) -> String {
    let full = (share * width as f64).round() as usize;
    format!(
        "{}{}",
        "█".repeat(full),
        "░".repeat(width - full.min(width))
    )
}

/// The display of a run's progress.
pub struct Progress {
    terminal: bool,
    /// The number of the running experiment and the number of all experiments, if there are
    /// several.
    experiment: Option<(usize, usize)>,
    /// The same for the turns of a comparison.
    turn: Option<(usize, usize)>,
    what: String,
    shown: Option<Instant>,
    open: bool,
    screen: Option<Screen>,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

impl Progress {
    /// Makes a display that suits stderr: a terminal or a log.
    pub fn new() -> Progress {
        let term = std::env::var("TERM").ok();
        Progress {
            terminal: rewrites(std::io::stderr().is_terminal(), term.as_deref()),
            experiment: None,
            turn: None,
            what: String::new(),
            shown: None,
            open: false,
            screen: None,
        }
    }

    /// Takes the whole terminal instead of one line, until [`Progress::leave`].
    ///
    /// # Errors
    /// stderr is no terminal, or the terminal does not answer.
    pub fn full_screen(&mut self) -> Result<()> {
        if !self.terminal {
            return Err(Failure::new(
                "--tui: standard error is not a terminal that can be drawn on",
            ));
        }
        self.screen = Some(Screen::take().context("--tui")?);
        Ok(())
    }

    /// True while the whole terminal is taken.
    pub fn is_full_screen(&self) -> bool {
        self.screen.is_some()
    }

    /// Gives the terminal back.
    pub fn leave(&mut self) {
        self.screen = None;
    }

    /// Notes that an experiment is over; `line` tells its finding.
    pub fn done(&mut self, line: impl FnOnce() -> String) {
        if let Some(s) = &mut self.screen {
            s.done(line());
        }
    }

    /// Notes that experiment `i` of `n` begins.
    pub fn experiment(&mut self, i: usize, n: usize) {
        self.experiment = (n > 1).then_some((i, n));
    }

    /// Notes that a turn begins, as its number and the number of all turns; `None` when the turns
    /// are over.
    pub fn turn(&mut self, turn: Option<(usize, usize)>) {
        self.turn = turn.filter(|t| t.1 > 1);
    }

    /// Puts the experiment and the turn in front of `what`.
    fn placed(&self, what: &str) -> String {
        let of =
            |name: &str, at: Option<(usize, usize)>| at.map(|(i, n)| format!("{name} {i} of {n}"));
        let place = of("experiment", self.experiment).into_iter();
        let place: Vec<String> = place.chain(of("turn", self.turn)).collect();
        match place.is_empty() {
            true => what.to_string(),
            false => format!("{}: {what}", place.join(", ")),
        }
    }

    /// Begins a new step.
    pub fn step(&mut self, what: impl Into<String>) {
        self.end_line();
        self.what = self.placed(&what.into());
        self.shown = None;
        if let Some(s) = &mut self.screen {
            s.step(&self.what);
            return;
        }
        self.show("");
    }

    /// Shows how the step stands; calls that come too soon after the last shown one are skipped,
    /// since a log would fill with lines otherwise.
    pub fn news(&mut self, text: &str) {
        let every = Duration::from_millis(if self.terminal { 150 } else { 5000 });
        if self.shown.is_none_or(|t| t.elapsed() >= every) {
            self.show(text);
        }
    }

    fn show(&mut self, text: &str) {
        if self.screen.is_some() {
            return;
        }
        self.shown = Some(Instant::now());
        let mut err = std::io::stderr().lock();
        let sep = if text.is_empty() { "" } else { ": " };
        // A broken stderr is no reason to end an experiment.
        let _ = if self.terminal {
            self.open = true;
            // One letter is left free: a line that fills the terminal would wrap, and a wrapped
            // line cannot be rewritten.
            let width = width_of(&std::io::stderr()).map(|w| w - 1);
            let line = fit(&self.what, &format!("{sep}{text}"), width);
            write!(err, "\r\x1b[K{line}")
        } else {
            writeln!(err, "{}{sep}{text}", self.what)
        };
        let _ = err.flush();
    }

    /// Ends the rewritten line, so that the next output begins on a line of its own.
    pub fn end_line(&mut self) {
        if self.open {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
            self.open = false;
        }
    }
}

/// Shows the state of the step's load.
impl Onlooker for Progress {
    fn live(&mut self, live: &Live) {
        if let Some(s) = &mut self.screen {
            s.live(live);
            return;
        }
        let head = match live.share() {
            // The bar repeats what the figures say, so it is drawn only where there is room.
            Some(s) if self.terminal && width_of(&std::io::stderr()) >= Some(100) => {
                format!("{} {:>3.0} %, ", bar(s, 20), s * 100.0)
            }
            Some(s) => format!("{:.0} %, ", s * 100.0),
            None => String::new(),
        };
        self.news(&format!("{head}{}", text(live)));
    }
}

/// Whether a line can be rewritten: only on a terminal, and not if `TERM` says that it is a dumb
/// one.
fn rewrites(terminal: bool, term: Option<&str>) -> bool {
    terminal && term != Some("dumb")
}

/// Joins `what` and its state in one line of `width`. The name of the step is shortened first,
/// since it changes least.
fn fit(what: &str, text: &str, width: Option<usize>) -> String {
    let Some(w) = width else {
        return format!("{what}{text}");
    };
    let rest = w.saturating_sub(text.chars().count());
    cut(
        &format!("{}{text}", cut(what, Some(rest.max(w / 2)))),
        width,
    )
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end_line();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_further_fills_the_bar() {
        let mut l = Live {
            operations: 250,
            all: Some(1000),
            documents: 2500,
            seconds: 5.0,
            limit: Some(10.0),
            rate: 50.0,
            latency: Some((0.1, 0.42)),
            server: None,
        };
        assert_eq!(l.share(), Some(0.5));
        assert_eq!(text(&l), "5 s left, 2,500 docs, 50/s, p99 0.420 ms");
        assert_eq!(bar(0.5, 4), "██░░");
        l.limit = None;
        assert_eq!(l.share(), Some(0.25));
        assert_eq!(l.left(), Some(15.0));
        l.all = None;
        assert_eq!(l.share(), None);
        assert_eq!(text(&l), "2,500 docs, 50/s, p99 0.420 ms");
        assert_eq!(duration(250.0), "4 min 10 s");
        assert_eq!(duration(7500.0), "2 h 05 min");
    }

    #[test]
    fn a_line_is_never_wider_than_the_terminal_and_says_where_it_stands() {
        assert!(rewrites(true, Some("xterm")) && rewrites(true, None));
        assert!(!rewrites(true, Some("dumb")) && !rewrites(false, Some("xterm")));
        let mut p = Progress::new();
        p.experiment(1, 1);
        assert_eq!(p.placed("W1"), "W1");
        p.experiment(3, 8);
        p.turn(Some((2, 5)));
        assert_eq!(p.placed("W1"), "experiment 3 of 8, turn 2 of 5: W1");
        let text = ": 12 s left, 2,500 docs, 50/s, p99 0.420 ms, server 1.0 cores, 50 MB";
        for width in [20, 40, 79, 200] {
            let line = fit(
                "experiment 3 of 8: W3 default batch 400000",
                text,
                Some(width),
            );
            assert!(line.chars().count() <= width, "{line}");
        }
        let line = fit("experiment 3 of 8: W3 default batch 400000", text, Some(79));
        assert!(line.starts_with("experiment 3 of 8: W3 default"), "{line}");
        assert!(line.contains("12 s left, 2,500 docs"), "{line}");
    }
}
