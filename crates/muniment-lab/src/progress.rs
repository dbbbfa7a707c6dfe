//! Progress on stderr: one line that is rewritten on a terminal, a line every few seconds in a
//! log. stdout stays for the results.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Says what is going on.
pub struct Progress {
    terminal: bool,
    what: String,
    shown: Option<Instant>,
    open: bool,
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
        }
    }

    /// A new step begins.
    pub fn step(&mut self, what: impl Into<String>) {
        self.end_line();
        self.what = what.into();
        self.shown = None;
        self.show("");
    }

    /// News of the step, shown now and then: often on a terminal, rarely in a log.
    pub fn news(&mut self, text: &str) {
        let every = Duration::from_millis(if self.terminal { 150 } else { 5000 });
        if self.shown.is_none_or(|t| t.elapsed() >= every) {
            self.show(text);
        }
    }

    fn show(&mut self, text: &str) {
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
