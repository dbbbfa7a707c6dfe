//! Progress on stderr: one line that is rewritten on a terminal, a line every few seconds in a
//! log. stdout stays for the results.

use crate::fail::{Context, Failure, Result};
use crate::report::table::{bytes, ms, rate};
use crate::tui::Screen;
use crate::usage::ServerUsage;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How a load stands.
#[derive(Debug, Clone, Copy, Default)]
pub struct Live {
    /// Operations so far.
    pub operations: u64,
    /// Operations to do, if they have a number.
    pub all: Option<u64>,
    /// Seconds since it began.
    pub seconds: f64,
    /// Seconds after which it ends, if there is such a limit.
    pub limit: Option<f64>,
    /// Operations a second, over the last second.
    pub rate: f64,
    /// p50 and p99 of the last second, ms.
    pub latency: Option<(f64, f64)>,
    /// What the server used in the last second.
    pub server: Option<ServerUsage>,
}

impl Live {
    /// How much is done, 0 to 1: by operations or by time, whichever is further.
    pub fn share(&self) -> Option<f64> {
        let by_operations = self
            .all
            .filter(|n| *n > 0)
            .map(|n| self.operations as f64 / n as f64);
        let by_time = self.limit.map(|l| self.seconds / l);
        let share = match (by_operations, by_time) {
            (Some(a), Some(b)) => a.max(b),
            (a, b) => a.or(b)?,
        };
        Some(share.clamp(0.0, 1.0))
    }

    /// Rate, latency and the server's load in words.
    pub fn text(&self) -> String {
        let mut o = format!("{}/s", rate(self.rate));
        if let Some((_, p99)) = self.latency {
            o += &format!(", p99 {} ms", ms(p99));
        }
        if let Some(s) = self.server {
            o += &format!(", server {:.1} cores, {}", s.cpu, bytes(s.rss));
        }
        o
    }
}

/// `share` of 1 as a bar of so many characters.
fn bar(share: f64, width: usize) -> String {
    let full = (share * width as f64).round() as usize;
    format!(
        "{}{}",
        "█".repeat(full),
        "░".repeat(width - full.min(width))
    )
}

/// Says what is going on.
pub struct Progress {
    terminal: bool,
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
    /// For stderr as it is.
    pub fn new() -> Progress {
        Progress {
            terminal: std::io::stderr().is_terminal(),
            what: String::new(),
            shown: None,
            open: false,
            screen: None,
        }
    }

    /// Takes the whole terminal instead of a line, until [`Progress::leave`].
    ///
    /// # Errors
    /// stderr is no terminal, or it does not answer.
    pub fn full_screen(&mut self) -> Result<()> {
        if !self.terminal {
            return Err(Failure::new("--tui: standard error is not a terminal"));
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

    /// An experiment is over; says in a line what it found.
    pub fn done(&mut self, line: impl FnOnce() -> String) {
        if let Some(s) = &mut self.screen {
            s.done(line());
        }
    }

    /// A new step begins.
    pub fn step(&mut self, what: impl Into<String>) {
        self.end_line();
        self.what = what.into();
        self.shown = None;
        if let Some(s) = &mut self.screen {
            s.step(&self.what);
            return;
        }
        self.show("");
    }

    /// News of the step, shown now and then: often on a terminal, rarely in a log.
    pub fn news(&mut self, text: &str) {
        let every = Duration::from_millis(if self.terminal { 150 } else { 5000 });
        if self.shown.is_none_or(|t| t.elapsed() >= every) {
            self.show(text);
        }
    }

    /// How the step's load stands.
    pub fn live(&mut self, live: &Live) {
        if let Some(s) = &mut self.screen {
            s.live(live);
            return;
        }
        let head = match live.share() {
            Some(s) if self.terminal => format!("{} {:>3.0} %  ", bar(s, 20), s * 100.0),
            Some(s) => format!("{:.0} %, ", s * 100.0),
            None => String::new(),
        };
        self.news(&format!("{head}{}", live.text()));
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
            write!(err, "\r\x1b[K{}{sep}{text}", self.what)
        } else {
            writeln!(err, "{}{sep}{text}", self.what)
        };
        let _ = err.flush();
    }

    /// Leaves the line clean for what is printed next.
    pub fn end_line(&mut self) {
        if self.open {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
            self.open = false;
        }
    }
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
            seconds: 5.0,
            limit: Some(10.0),
            rate: 50.0,
            latency: Some((0.1, 0.42)),
            server: None,
        };
        assert_eq!(l.share(), Some(0.5));
        assert_eq!(l.text(), "50/s, p99 0.420 ms");
        assert_eq!(bar(0.5, 4), "██░░");
        l.limit = None;
        assert_eq!(l.share(), Some(0.25));
        l.all = None;
        assert_eq!(l.share(), None);
    }
}
