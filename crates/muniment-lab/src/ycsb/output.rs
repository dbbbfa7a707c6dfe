//! YCSB's own output: the status line and the summary, which its users' scripts parse.

use super::Phase;
use super::settings::{Interval, Settings};
use crate::environment;
use muniment_load::hist::Latency;
use muniment_load::load::Status;
use std::fmt::Write;

/// Formats a number as `1234.57`: at most two digits after the point, and none if they are zero
/// (Java's `#.##`).
fn short(x: f64) -> String {
    if !x.is_finite() {
        return "0".into();
    }
    let text = format!("{x:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Formats a double as Java does.
fn java_double(x: f64) -> String {
    let size = x.abs();
    if x == 0.0 || (1e-3..1e7).contains(&size) || !x.is_finite() {
        return format!("{x:?}");
    }
    let text = format!("{x:e}");
    match text.split_once('e') {
        Some((m, e)) if !m.contains('.') => format!("{m}.0E{e}"),
        Some((m, e)) => format!("{m}E{e}"),
        None => text,
    }
}

/// Formats a time in words: days and hours, hours and minutes, or seconds.
fn remaining(seconds: u64) -> String {
    let mut out = String::new();
    let mut add = |n: u64, word: &str| {
        if n > 0 {
            let s = if n == 1 { "" } else { "s" };
            let _ = write!(out, "{n} {word}{s} ");
        }
    };
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    add(days, "day");
    add(hours, "hour");
    if days == 0 {
        add(minutes, "minute");
    }
    if out.is_empty() {
        let s = if seconds == 1 { "" } else { "s" };
        let _ = write!(out, "{seconds} second{s} ");
    }
    out
}

/// Converts milliseconds to whole microseconds.
fn us(ms: f64) -> u64 {
    (ms * 1e3).round() as u64
}

fn summary(name: &str, l: &Latency) -> String {
    let q = |q: f64| us(l.quantile_ms(q));
    format!(
        "[{name}: Count={}, Max={}, Min={}, Avg={}, 50={}, 90={}, 99={}, 99.9={}, 99.99={}] ",
        l.count(),
        us(l.max_ms()),
        us(l.min_ms()),
        short(l.mean_ms() * 1e3),
        q(0.5),
        q(0.9),
        q(0.99),
        q(0.999),
        q(0.9999)
    )
}

/// Formats the status line.
pub(crate) fn status(s: &Status, settings: &Settings) -> String {
    // The time stands in front, as `2026-01-31 12:00:05:123` in UTC.
    let mut line = settings.label.clone();
    let _ = write!(
        line,
        "{} {} sec: {} operations; ",
        environment::utc_millis(),
        s.elapsed.as_secs(),
        s.operations
    );
    let all = s.operations as f64 / s.elapsed.as_secs_f64();
    if s.operations > 0 {
        let current = s.new as f64 / s.interval.as_secs_f64();
        let _ = write!(line, "{} current ops/sec; ", short(current));
    }
    if let Some(left) = s.left.filter(|l| *l > 0) {
        let seconds = (left as f64 / all).ceil();
        // Before the first operation is done the estimate is infinite, for which Java prints the
        // greatest long.
        let seconds = if seconds.is_finite() {
            seconds as u64
        } else {
            i64::MAX as u64
        };
        let _ = write!(line, "est completion in {}", remaining(seconds));
    }
    for (kind, m) in &s.kinds {
        if settings.interval != Interval::Intended && m.service.count() > 0 {
            line.push_str(&summary(kind, &m.service));
        }
        if settings.interval != Interval::Op && m.intended.count() > 0 {
            line.push_str(&summary(&intended(kind, settings.interval), &m.intended));
        }
    }
    line
}

fn intended(kind: &str, interval: Interval) -> String {
    match interval {
        Interval::Both => format!("Intended-{kind}"),
        _ => kind.to_string(),
    }
}

/// Formats a percentile as YCSB names it: `95th`, `1st`, `99.9`.
fn ordinal(p: f64) -> String {
    if p.fract() != 0.0 {
        return java_double(p);
    }
    let n = p as u64;
    let suffix = match (n % 100, n % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{n}{suffix}")
}

/// Formats the summary of a phase.
pub(crate) fn export(phase: &Phase, settings: &Settings) -> String {
    let mut out = String::new();
    let l = &phase.load;
    let milliseconds = (l.samples.seconds * 1e3).round();
    let rate = l.samples.operations as f64 * 1e3 / milliseconds.max(1.0);
    let _ = writeln!(out, "[OVERALL], RunTime(ms), {milliseconds}");
    let _ = writeln!(out, "[OVERALL], Throughput(ops/sec), {}", java_double(rate));
    for (kind, m) in &l.kinds {
        let mut one = |name: &str, h: &Latency, with_status: bool| {
            if h.count() > 0 {
                let _ = writeln!(out, "[{name}], Operations, {}", h.count());
                let mean = java_double(h.mean_ms() * 1e3);
                let _ = writeln!(out, "[{name}], AverageLatency(us), {mean}");
                let _ = writeln!(out, "[{name}], MinLatency(us), {}", us(h.min_ms()));
                let _ = writeln!(out, "[{name}], MaxLatency(us), {}", us(h.max_ms()));
                for p in &settings.percentiles {
                    let value = us(h.quantile_ms(p / 100.0));
                    let _ = writeln!(
                        out,
                        "[{name}], {}PercentileLatency(us), {value}",
                        ordinal(*p)
                    );
                }
            }
            if with_status {
                for (status, n) in &m.statuses {
                    let _ = writeln!(out, "[{name}], Return={status}, {n}");
                }
            }
        };
        match settings.interval {
            Interval::Op => one(kind, &m.service, true),
            Interval::Intended => one(kind, &m.intended, true),
            Interval::Both => {
                one(kind, &m.service, true);
                one(&intended(kind, Interval::Both), &m.intended, false);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_java_writes_them() {
        for (x, want) in [
            (4509.25, "4509.25"),
            (7295.0, "7295.0"),
            (1.0e7, "1.0E7"),
            (12_345_678.5, "1.23456785E7"),
            (0.0001, "1.0E-4"),
            (0.0, "0.0"),
        ] {
            assert_eq!(java_double(x), want);
        }
        for (x, want) in [
            (1234.567, "1234.57"),
            (10.0, "10"),
            (0.5, "0.5"),
            (100.1, "100.1"),
        ] {
            assert_eq!(short(x), want);
        }
        assert_eq!(
            [1.0, 2.0, 3.0, 11.0, 50.0, 99.0, 99.9].map(ordinal),
            ["1st", "2nd", "3rd", "11th", "50th", "99th", "99.9"]
        );
    }

    #[test]
    fn the_rest_of_the_time_in_words() {
        for (s, want) in [
            (0, "0 seconds "),
            (1, "1 second "),
            (59, "59 seconds "),
            (61, "1 minute "),
            (3700, "1 hour 1 minute "),
            (90_000, "1 day 1 hour "),
        ] {
            assert_eq!(remaining(s), want);
        }
    }

    #[test]
    fn the_lines_that_scripts_read() {
        let mut l = Latency::new();
        (1..=100_u64).for_each(|i| l.record(i * 1000));
        assert_eq!(
            summary("READ", &l),
            "[READ: Count=100, Max=100, Min=1, Avg=50.5, 50=50, 90=90, 99=99, 99.9=100, 99.99=100] "
        );
    }
}
