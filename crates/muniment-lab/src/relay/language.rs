//! The language in which the running relay is told changes, one line each: `delay 45`, `partition
//! out`, `heal @2`.

use super::conditions::{Both, Conditions, Direction, MOST_LOSS, What};
use super::{Control, Figures};
use crate::report::table::{bytes, ms};
use muniment_load::fail::{Failure, Result};
use std::fmt::Write;
use std::time::Duration;

/// A parsed line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Line {
    /// A change of both directions or one, of all links or one (from 0).
    Change(Option<usize>, Option<Direction>, What),
    /// Asks for the conditions of the links.
    Status,
    /// Asks for the figures of the relay.
    Figures,
    /// Ends the relay.
    Quit,
}

/// The description of the language for the help text.
pub(crate) const HELP: &str =
    "  delay MS          one way; jitter MS: by how much that varies, either way
  bandwidth MB      megabytes a second for all connections of a link, or off
  loss PERCENT      of segments; each costs a timeout for which the stream stalls
  timeout MS        that timeout, or off: a round trip and 200 ms
  partition, heal   nothing passes; it does again
  refuse, hang      what becomes of new connections during a partition
  status, figures   how the links are; what the relay has done
  quit              end
Behind a change: out (from who connects) or in (towards it) for one direction, @N for the
N-th link alone, as in 'partition out @2'.
";

/// Parses a line.
///
/// # Errors
/// The line makes no sense; the error tells what would be right.
pub(crate) fn parse(line: &str) -> Result<Line> {
    understand(line).map_err(|why| Failure(format!("'{}': {why}", line.trim())))
}

/// Parses a line; the error tells only what would be right.
fn understand(line: &str) -> std::result::Result<Line, String> {
    let mut words = line.split_whitespace().peekable();
    let verb = words.next().unwrap_or_default();
    let alone = match verb {
        "status" => Some(Line::Status),
        "figures" => Some(Line::Figures),
        "quit" => Some(Line::Quit),
        _ => None,
    };
    if let Some(alone) = alone {
        return match words.next() {
            Some(_) => Err("nothing follows it: the line has this one word".into()),
            None => Ok(alone),
        };
    }
    let takes_value = matches!(verb, "delay" | "jitter" | "bandwidth" | "loss" | "timeout");
    let value = if takes_value { words.next() } else { None };
    let what = what(verb, value)?;
    let direction = words.peek().and_then(|w| direction_named(w));
    if direction.is_some() {
        words.next();
    }
    let mut link = None;
    if let Some(n) = words.peek().and_then(|w| w.strip_prefix('@')) {
        match n.parse::<usize>() {
            Ok(n) if n > 0 => link = Some(n - 1),
            _ => return Err("links are @1, @2, …".into()),
        }
        words.next();
    }
    if matches!(what, What::Refuse(_)) && direction.is_some() {
        return Err("it is about both directions".into());
    }
    match words.next() {
        Some(w) => Err(format!("'{w}' is neither out nor in nor @N")),
        None => Ok(Line::Change(link, direction, what)),
    }
}

/// The change that a verb and its value stand for.
fn what(verb: &str, value: Option<&str>) -> std::result::Result<What, &'static str> {
    const MS: &str = "it must be milliseconds, 0 to 3600000";
    let number = || {
        let n = value.and_then(|v| v.parse::<f64>().ok());
        n.filter(|n| n.is_finite() && *n >= 0.0)
    };
    let off = value == Some("off");
    let time = || {
        let n = number().filter(|n| *n <= 3_600_000.0);
        n.map(|ms| Duration::from_secs_f64(ms / 1e3))
    };
    match verb {
        "delay" => time().map(What::Delay).ok_or(MS),
        "jitter" => time().map(What::Jitter).ok_or(MS),
        "timeout" if off => Ok(What::Timeout(None)),
        "timeout" => time()
            .map(|t| What::Timeout(Some(t)))
            .ok_or("it must be milliseconds, 0 to 3600000, or off"),
        "bandwidth" if off => Ok(What::Bandwidth(None)),
        "bandwidth" => number()
            .filter(|mb| *mb >= 0.001)
            .map(|mb| What::Bandwidth(Some((mb * 1e6) as u64)))
            .ok_or("it must be megabytes a second, from 0.001, or off"),
        "loss" => number()
            .map(|n| n / 100.0)
            .filter(|share| *share <= MOST_LOSS)
            .map(What::Loss)
            .ok_or("it must be percent, 0 to 50"),
        "partition" => Ok(What::Cut),
        "heal" => Ok(What::Heal),
        "refuse" => Ok(What::Refuse(true)),
        "hang" => Ok(What::Refuse(false)),
        _ => Err(
            "there are delay, jitter, bandwidth, loss, timeout, partition, heal, refuse, hang, status, figures and quit",
        ),
    }
}

fn direction_named(word: &str) -> Option<Direction> {
    match word {
        "out" => Some(Direction::Out),
        "in" => Some(Direction::Back),
        _ => None,
    }
}

/// Obeys a line and returns the answer; `None` if the relay is to end.
///
/// # Errors
/// The line makes no sense, or it could not be obeyed.
pub(crate) fn obey(control: &Control, line: &str) -> Result<Option<String>> {
    Ok(Some(match parse(line)? {
        Line::Quit => return Ok(None),
        Line::Status => status(&control.conditions()?),
        Line::Figures => figures(&control.figures()?),
        Line::Change(link, direction, what) => {
            control.change(link, direction, what)?;
            "ok\n".into()
        }
    }))
}

/// The conditions of links in words, one line for each direction.
pub(crate) fn status(links: &[Both<Conditions>]) -> String {
    let mut text = String::new();
    for (i, link) in links.iter().enumerate() {
        for (name, c) in [("out", &link.out), ("in", &link.back)] {
            let _ = write!(text, "@{} {name}:", i + 1);
            if c.cut {
                text += " partitioned,";
            }
            let _ = write!(text, " delay {} ms", ms(c.delay.as_secs_f64() * 1e3));
            if !c.jitter.is_zero() {
                let _ = write!(text, " ± {} ms", ms(c.jitter.as_secs_f64() * 1e3));
            }
            if let Some(b) = c.bandwidth {
                let _ = write!(text, ", {}/s", bytes(b as f64));
            }
            if c.loss > 0.0 {
                let _ = write!(text, ", {} % lost", c.loss * 100.0);
            }
            if let Some(t) = c.timeout {
                let _ = write!(text, ", timeout {} ms", ms(t.as_secs_f64() * 1e3));
            }
            text.push('\n');
        }
    }
    text
}

/// The relay's figures in words.
pub(crate) fn figures(f: &Figures) -> String {
    let l = &f.lateness;
    let mut text = format!(
        "{} connections, {} of them open; {} out, {} in; {:.2} s of CPU\n",
        f.connections,
        f.open,
        bytes(f.bytes.out as f64),
        bytes(f.bytes.back as f64),
        f.cpu_seconds
    );
    if l.count() > 0 {
        let _ = writeln!(
            text,
            "{} pieces given on, later than due by: p50 {} ms, p99 {} ms, p99.9 {} ms, at most {} ms",
            l.count(),
            ms(l.quantile_ms(0.5)),
            ms(l.quantile_ms(0.99)),
            ms(l.quantile_ms(0.999)),
            ms(l.max_ms())
        );
    }
    if let Some(t) = &f.trouble {
        let _ = writeln!(text, "the system refused: {t}");
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_understood() {
        use Direction::{Back, Out};
        let t = Duration::from_millis;
        for (line, want) in [
            ("delay 45", Line::Change(None, None, What::Delay(t(45)))),
            (
                " jitter 0 out ",
                Line::Change(None, Some(Out), What::Jitter(t(0))),
            ),
            (
                "bandwidth 100 in @2",
                Line::Change(Some(1), Some(Back), What::Bandwidth(Some(100_000_000))),
            ),
            (
                "bandwidth off",
                Line::Change(None, None, What::Bandwidth(None)),
            ),
            (
                "loss 0.5 @1",
                Line::Change(Some(0), None, What::Loss(0.005)),
            ),
            (
                "timeout 30",
                Line::Change(None, None, What::Timeout(Some(t(30)))),
            ),
            ("timeout off", Line::Change(None, None, What::Timeout(None))),
            ("partition", Line::Change(None, None, What::Cut)),
            ("partition out", Line::Change(None, Some(Out), What::Cut)),
            ("heal @3", Line::Change(Some(2), None, What::Heal)),
            ("refuse", Line::Change(None, None, What::Refuse(true))),
            ("hang", Line::Change(None, None, What::Refuse(false))),
            ("status", Line::Status),
            ("figures", Line::Figures),
            ("quit", Line::Quit),
        ] {
            assert_eq!(parse(line).unwrap(), want, "{line}");
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        for (line, why) in [
            ("", "there are delay,"),
            ("lag 3", "there are delay,"),
            ("delay", "it must be milliseconds"),
            ("delay soon", "it must be milliseconds"),
            ("delay -1", "it must be milliseconds"),
            ("delay 45 up", "'up' is neither"),
            ("delay 45 @0", "links are @1"),
            ("delay 45 @1 out", "'out' is neither"),
            ("loss 51", "percent, 0 to 50"),
            ("bandwidth 0", "from 0.001, or off"),
            ("loss off", "percent"),
            ("refuse in", "both directions"),
            ("quit now", "nothing follows it"),
        ] {
            let e = parse(line).unwrap_err().0;
            assert!(e.contains(why), "{line}: {e}");
        }
    }

    #[test]
    fn the_help_names_every_verb_and_a_status_says_everything() {
        for verb in [
            "delay",
            "jitter",
            "bandwidth",
            "loss",
            "timeout",
            "partition",
            "heal",
            "refuse",
            "hang",
            "status",
            "figures",
            "quit",
        ] {
            assert!(HELP.contains(verb), "{verb}");
        }
        let c = Conditions {
            delay: Duration::from_millis(45),
            jitter: Duration::from_millis(1),
            bandwidth: Some(100_000_000),
            loss: 0.005,
            timeout: Some(Duration::from_millis(30)),
            cut: true,
        };
        let text = status(&[Both {
            out: c,
            back: Conditions::default(),
        }]);
        let mut lines = text.lines();
        let first = lines.next().unwrap();
        assert!(
            first.starts_with("@1 out: partitioned, delay 45"),
            "{first}"
        );
        assert!(
            first.contains("± 1") && first.contains("0.5 % lost"),
            "{first}"
        );
        assert!(lines.next().unwrap().starts_with("@1 in: delay 0"));
    }
}
