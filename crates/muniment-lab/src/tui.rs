//! The full-screen view (`--tui`): the running step, its rate and latency, and the findings so far.
//! It draws on stderr; results still go to stdout, after the screen has been given back.

use crate::report::table::{bytes, ms, rate};
use muniment_load::load::Live;
use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Gauge, List, Paragraph, Sparkline, Wrap};
use std::collections::VecDeque;
use std::io::{self, Stderr, stderr};
use std::time::{Duration, Instant};

/// The content of the screen.
#[derive(Default)]
struct State {
    step: String,
    live: Live,
    /// The documents a second, one point every half second, newest last.
    rates: VecDeque<u64>,
    /// The p99 latency of the last second at each point, µs.
    p99s: VecDeque<u64>,
    /// A line for each experiment that is over.
    done: Vec<String>,
}

/// The number of points that the curves keep.
const HISTORY: usize = 240;
const BETWEEN_POINTS: Duration = Duration::from_millis(500);

impl State {
    fn step(&mut self, what: &str) {
        self.step = what.to_string();
        self.live = Live::default();
    }

    fn live(&mut self, live: &Live, point: bool) {
        self.live = *live;
        if point {
            self.rates.push_back(live.rate.max(0.0) as u64);
            let p99 = live.latency.map_or(0.0, |l| l.1);
            self.p99s.push_back((p99 * 1e3).max(0.0) as u64);
            while self.rates.len() > HISTORY {
                self.rates.pop_front();
                self.p99s.pop_front();
            }
        }
    }

    fn draw(&self, f: &mut Frame<'_>) {
        let [head, bar, figures, rates, p99s, done, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(3),
            Constraint::Max(8),
            Constraint::Max(6),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(f.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        f.render_widget(
            Line::styled(format!("muniment bench  {}", self.step), bold),
            head,
        );
        if let Some(share) = self.live.share() {
            f.render_widget(Gauge::default().ratio(share), bar);
        }
        let l = &self.live;
        let (p50, p99) = l.latency.unwrap_or((f64::NAN, f64::NAN));
        let mut words = vec![Line::from(format!(
            "{} documents in {:.0} s   {}/s   p50 {} ms   p99 {} ms",
            rate(l.documents as f64),
            l.seconds,
            rate(l.rate),
            ms(p50),
            ms(p99)
        ))];
        if let Some(s) = l.server {
            words.push(Line::from(format!(
                "server: {:.2} cores   {} resident   {}/s written   {}/s read",
                s.cpu,
                bytes(s.rss),
                bytes(s.written),
                bytes(s.read)
            )));
        }
        f.render_widget(Paragraph::new(words).wrap(Wrap { trim: true }), figures);
        curve(f, rates, "documents/s", &self.rates, |x| rate(x as f64));
        curve(f, p99s, "p99 of a second", &self.p99s, |x| {
            format!("{} ms", ms(x as f64 / 1e3))
        });
        let newest = self.done.iter().rev().map(|d| Line::from(d.as_str()));
        f.render_widget(
            List::new(newest).block(Block::bordered().title("Done")),
            done,
        );
        f.render_widget(
            Line::from("Ctrl-C ends cleanly and writes the report of what there is"),
            foot,
        );
    }
}

fn curve(
    f: &mut Frame<'_>,
    area: Rect,
    title: &str,
    values: &VecDeque<u64>,
    show: impl Fn(u64) -> String,
) {
    let room = usize::from(area.width.saturating_sub(2));
    let seen: Vec<u64> = values
        .iter()
        .skip(values.len().saturating_sub(room))
        .copied()
        .collect();
    let most = seen.iter().copied().max().unwrap_or(0);
    let title = format!("{title}, at most {}", show(most));
    f.render_widget(
        Sparkline::default()
            .block(Block::bordered().title(title))
            .max(most.max(1))
            .data(seen),
        area,
    );
}

/// The screen, taken until it is dropped.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    state: State,
    drawn: Option<Instant>,
    /// The time at which the curves got their last point.
    point: Option<Instant>,
}

impl Screen {
    /// Takes the terminal that stderr is connected to.
    ///
    /// # Errors
    /// The terminal does not answer.
    pub(crate) fn take() -> io::Result<Screen> {
        let mut screen = Screen {
            terminal: Terminal::new(CrosstermBackend::new(stderr()))?,
            state: State::default(),
            drawn: None,
            point: None,
        };
        // The library's own way to clear the terminal asks for the cursor's position and waits for
        // an answer on stdin, which may not be a terminal; this one does not ask.
        execute!(stderr(), EnterAlternateScreen, Clear(ClearType::All))?;
        screen.terminal.hide_cursor()?;
        Ok(screen)
    }

    /// Begins a new step.
    pub(crate) fn step(&mut self, what: &str) {
        self.state.step(what);
        self.draw();
    }

    /// Shows the state of the step's load.
    pub(crate) fn live(&mut self, live: &Live) {
        let due = self.point.is_none_or(|t| t.elapsed() >= BETWEEN_POINTS);
        if due {
            self.point = Some(Instant::now());
        }
        self.state.live(live, due);
        if self
            .drawn
            .is_none_or(|t| t.elapsed() >= Duration::from_millis(200))
        {
            self.draw();
        }
    }

    /// Notes that an experiment is over.
    pub(crate) fn done(&mut self, line: String) {
        self.state.done.push(line);
        self.draw();
    }

    fn draw(&mut self) {
        self.drawn = Some(Instant::now());
        // A terminal that has gone away is no reason to end an experiment.
        let _ = self.terminal.draw(|f| self.state.draw(f));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that has gone away is ignored here too.
        let _ = self.terminal.show_cursor();
        let _ = execute!(stderr(), LeaveAlternateScreen);
        let _ = Backend::flush(self.terminal.backend_mut());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_load::usage::ServerUsage;
    use ratatui::backend::TestBackend;

    fn drawn(state: &State, width: u16, height: u16) -> String {
        let mut t = Terminal::new(TestBackend::new(width, height)).unwrap();
        t.draw(|f| state.draw(f)).unwrap();
        t.backend().to_string()
    }

    #[test]
    fn the_screen_shows_what_runs_and_what_is_done() {
        let mut s = State::default();
        s.step("W3 default batch 1000");
        let mut live = Live {
            operations: 12_345,
            documents: 12_345,
            all: Some(20_000),
            rate: 4321.0,
            latency: Some((0.1, 2.5)),
            server: Some(ServerUsage {
                cpu: 1.25,
                rss: 5e7,
                ..ServerUsage::default()
            }),
            ..Live::default()
        };
        for i in 0..300u32 {
            live.seconds = f64::from(i);
            live.rate = 4000.0 + f64::from(i);
            s.live(&live, true);
        }
        s.done.push("w1: 3 s".into());
        assert_eq!(s.rates.len(), HISTORY);
        let text = drawn(&s, 100, 40);
        for want in [
            "W3 default batch 1000",
            "62%",
            "12,345 documents in 299 s",
            "4,299/s",
            "p99 2.50 ms",
            "server: 1.25 cores",
            "at most 4,299",
            "w1: 3 s",
            "Ctrl-C",
        ] {
            assert!(text.contains(want), "{want} is missing in\n{text}");
        }
    }

    #[test]
    fn a_small_screen_is_no_reason_to_fail() {
        let mut s = State::default();
        s.live(&Live::default(), true);
        for (w, h) in [(1, 1), (20, 3), (40, 10)] {
            drawn(&s, w, h);
        }
    }
}
