//! Logs what an operator must see, as an error or a warning, and not for each client: a disk that is full,
//! and that has room again; connections that are refused; slow syncs; writers that are held back; work in the
//! background that fails.
//!
//! A thread looks at the figures every second. Invariant: a lasting condition is logged when it begins, again
//! every [`AGAIN`] with its extent, and when it has ended. The threads that are affected log nothing, so that
//! the log grows with time and not with the number of clients.

use crate::state::ServerState;
use muniment_logger::Severity;
use muniment_storage::SpaceReport;
use muniment_value::{ArrayBuf, DocBuf, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How often the thread looks at the figures.
const LOOK: Duration = Duration::from_secs(1);
/// How often a lasting condition is logged again.
const AGAIN: Duration = Duration::from_secs(60);
/// How often refused connections and slow syncs are logged at most.
const AT_MOST: Duration = Duration::from_secs(10);
/// A sync that takes this long is slow.
const SLOW_SYNC: Duration = Duration::from_secs(1);
/// Writers count as stalled when they were held back for this share of the time, all of them together.
const STALLED: f64 = 0.5;

/// The figures at one moment.
#[derive(Clone, Default)]
struct Sight {
    /// The time since the server started.
    at: Duration,
    refused_connections: u64,
    open_connections: u64,
    space: Option<SpaceReport>,
    /// The longest sync since the last look.
    slowest_sync: Duration,
    /// For how long commits were held back, all of them together.
    delayed: Duration,
    /// The majority of the set lags too far.
    lags: bool,
    troubles: Vec<String>,
}

/// A line for the log.
struct Line {
    severity: Severity,
    component: &'static str,
    id: u32,
    msg: &'static str,
    attr: DocBuf,
}

/// A condition that lasts.
#[derive(Default)]
struct Lasting {
    /// When it was last logged, while it lasts.
    told: Option<Duration>,
    /// The value of its counter at that time.
    count: u64,
}

/// What is to be logged of a lasting condition.
#[derive(Debug, PartialEq, Eq)]
enum Tell {
    Nothing,
    Begins,
    /// It lasts; the number is by how much the counter has grown since it was last logged.
    GoesOn(u64),
    Ends(u64),
}

impl Lasting {
    fn look(&mut self, at: Duration, lasts: bool, counter: u64) -> Tell {
        let grown = counter.saturating_sub(self.count);
        let tell = match (self.told, lasts) {
            (None, false) => Tell::Nothing,
            (None, true) => Tell::Begins,
            (Some(_), false) => Tell::Ends(grown),
            (Some(told), true) if at.saturating_sub(told) >= AGAIN => Tell::GoesOn(grown),
            (Some(_), true) => return Tell::Nothing,
        };
        self.told = lasts.then_some(at);
        self.count = counter;
        tell
    }
}

/// What the thread remembers between two looks.
#[derive(Default)]
struct Watch {
    before: Sight,
    full: Lasting,
    lag: Lasting,
    stalled: Lasting,
    trouble: Lasting,
    refused_told: Option<Duration>,
    refused_before: u64,
    slow_told: Option<Duration>,
    slowest: Duration,
}

impl Watch {
    fn look(&mut self, now: Sight) -> Vec<Line> {
        let mut lines = Vec::new();
        self.space(&now, &mut lines);
        self.connections(&now, &mut lines);
        self.syncs(&now, &mut lines);
        self.writers(&now, &mut lines);
        self.troubles(&now, &mut lines);
        self.before = now;
        lines
    }

    fn space(&mut self, now: &Sight, lines: &mut Vec<Line>) {
        let Some(space) = now.space else { return };
        let refused = self.before.space.map_or(0, |s| s.refused);
        let lasts = space.is_short() || space.refused > refused;
        let tell = self.full.look(now.at, lasts, space.refused);
        let (severity, msg, grown) = match tell {
            Tell::Nothing => return,
            Tell::Begins => (
                Severity::Error,
                "The disk is full: writes are refused until there is room, but for those that delete",
                space.refused.saturating_sub(refused),
            ),
            Tell::GoesOn(n) => (
                Severity::Error,
                "The disk is still full: writes are refused",
                n,
            ),
            Tell::Ends(n) => (
                Severity::Warning,
                "There is room on the disk again: writes are taken",
                n,
            ),
        };
        lines.push(Line {
            severity,
            component: "STORAGE",
            id: 7_340_010,
            msg,
            attr: doc! {
                "freeMB": (space.free >> 20) as i64,
                "keptForTheEngineMB": (space.kept >> 20) as i64,
                "writesRefused": grown as i64,
            },
        });
    }

    fn connections(&mut self, now: &Sight, lines: &mut Vec<Line>) {
        let refused = now.refused_connections.saturating_sub(self.refused_before);
        if refused == 0 || !is_due(&mut self.refused_told, now.at) {
            return;
        }
        self.refused_before = now.refused_connections;
        lines.push(Line {
            severity: Severity::Warning,
            component: "NETWORK",
            id: 22942,
            msg: "Connections were refused",
            attr: doc! {
                "refused": refused as i64,
                "refusedInTotal": now.refused_connections as i64,
                "connectionCount": now.open_connections as i64,
            },
        });
    }

    fn syncs(&mut self, now: &Sight, lines: &mut Vec<Line>) {
        self.slowest = self.slowest.max(now.slowest_sync);
        if self.slowest < SLOW_SYNC || !is_due(&mut self.slow_told, now.at) {
            return;
        }
        let slowest = std::mem::take(&mut self.slowest);
        lines.push(Line {
            severity: Severity::Warning,
            component: "STORAGE",
            id: 7_340_011,
            msg: "The disk is slow: a sync of the journal takes long, and what waits for it does",
            attr: doc! { "slowestMillis": slowest.as_millis() as i64 },
        });
    }

    fn writers(&mut self, now: &Sight, lines: &mut Vec<Line>) {
        let delayed = now.delayed.saturating_sub(self.before.delayed);
        let passed = now.at.saturating_sub(self.before.at);
        let much = delayed.as_secs_f64() >= passed.as_secs_f64() * STALLED && !delayed.is_zero();
        let micros = now.delayed.as_micros() as u64;
        let told = self.stalled.look(now.at, much && !now.lags, micros);
        let millis = match told {
            Tell::Begins => Some(delayed.as_millis() as i64),
            Tell::GoesOn(n) => Some((n / 1000) as i64),
            // The end is not logged, since it comes and goes while a client loads many documents.
            Tell::Ends(_) | Tell::Nothing => None,
        };
        if let Some(millis) = millis {
            lines.push(Line {
                severity: Severity::Warning,
                component: "STORAGE",
                id: 7_340_012,
                msg: "Writers are held back: flushes or compactions are behind, or the disk is full",
                attr: doc! { "heldBackMillis": millis },
            });
        }
        let (severity, msg) = match self.lag.look(now.at, now.lags, micros) {
            Tell::Nothing => return,
            Tell::Begins | Tell::GoesOn(_) => (
                Severity::Warning,
                "Writers are held back: the majority of the replica set is behind",
            ),
            Tell::Ends(_) => (
                Severity::Info,
                "The majority of the replica set has caught up",
            ),
        };
        lines.push(Line {
            severity,
            component: "REPL",
            id: 7_340_013,
            msg,
            attr: DocBuf::new(),
        });
    }

    fn troubles(&mut self, now: &Sight, lines: &mut Vec<Line>) {
        let kind = |t: &String| t.split(':').next().unwrap_or_default().to_string();
        let new = now.troubles.iter().any(|t| {
            let known = self.before.troubles.iter().any(|b| kind(b) == kind(t));
            !known
        });
        let mut tell = self.trouble.look(now.at, !now.troubles.is_empty(), 0);
        if new {
            self.trouble.told = Some(now.at);
            tell = Tell::Begins;
        }
        let (severity, msg) = match tell {
            Tell::Nothing => return,
            Tell::Begins | Tell::GoesOn(_) => (
                Severity::Error,
                "Work of the storage in the background fails and is tried again",
            ),
            Tell::Ends(_) => (
                Severity::Warning,
                "Work of the storage in the background succeeds again",
            ),
        };
        let troubles: ArrayBuf = now.troubles.iter().map(String::as_str).collect();
        let mut attr = DocBuf::new();
        if !now.troubles.is_empty() {
            attr.append("troubles", troubles);
        }
        lines.push(Line {
            severity,
            component: "STORAGE",
            id: 7_340_014,
            msg,
            attr,
        });
    }
}

/// Whether a line that was last logged at `told` may be logged again. If so, notes that it is logged now.
fn is_due(told: &mut Option<Duration>, at: Duration) -> bool {
    if told.is_some_and(|t| at.saturating_sub(t) < AT_MOST) {
        return false;
    }
    *told = Some(at);
    true
}

/// Looks at the figures until the server ends.
pub fn keep_watch(server: &Arc<ServerState>) {
    let (start, mut watch) = (Instant::now(), Watch::default());
    while !server.lifecycle.wait_for_stop_for(LOOK) {
        for line in watch.look(sight(server, start)) {
            let Line {
                severity,
                component,
                id,
                msg,
                attr,
            } = line;
            server
                .log
                .log(severity, component, id, "watch", msg, Some(&attr));
        }
    }
}

fn sight(server: &ServerState, start: Instant) -> Sight {
    let store = &server.engine.store;
    let (_, _, lags) = store.flow_control();
    Sight {
        at: start.elapsed(),
        refused_connections: server.connections.rejected.load(Relaxed),
        open_connections: server.connections.open.load(Relaxed),
        space: store.space(),
        slowest_sync: store.slowest_sync(),
        delayed: Duration::from_micros(store.stats().delayed_micros),
        lags,
        troubles: store.troubles(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    fn space(free: u64, refused: u64) -> Option<SpaceReport> {
        let kept = 100 << 20;
        Some(SpaceReport {
            free: free << 20,
            kept,
            refused,
        })
    }

    /// The lines that are logged, second by second: severity, id, and the first figure.
    fn told(sights: Vec<Sight>) -> Vec<(usize, &'static str, u32, Option<i64>)> {
        let mut watch = Watch::default();
        let mut all = Vec::new();
        for (second, mut sight) in sights.into_iter().enumerate() {
            sight.at = Duration::from_secs(second as u64 + 1);
            for line in watch.look(sight) {
                let letter = match line.severity {
                    Severity::Error => "E",
                    Severity::Warning => "W",
                    _ => "I",
                };
                let figures = line.attr.as_doc();
                let figure = [
                    "writesRefused",
                    "refused",
                    "slowestMillis",
                    "heldBackMillis",
                ]
                .iter()
                .find_map(|name| figures.get(name)?.as_i64_exact());
                all.push((second, letter, line.id, figure));
            }
        }
        all
    }

    #[test]
    fn a_full_disk_is_told_of_when_it_fills_and_when_there_is_room() {
        let with = |free, refused| Sight {
            space: space(free, refused),
            ..Sight::default()
        };
        let mut sights = vec![with(200, 0), with(99, 3), with(99, 10), with(98, 10)];
        sights.extend(vec![with(98, 20); 70]);
        sights.extend([with(150, 21), with(150, 21), with(150, 21)]);
        assert_eq!(
            told(sights),
            [
                (1, "E", 7_340_010, Some(3)),
                (61, "E", 7_340_010, Some(17)),
                // A write was still refused in the second before this one.
                (75, "W", 7_340_010, Some(1)),
            ]
        );
    }

    #[test]
    fn refused_connections_are_counted() {
        let with = |n| Sight {
            refused_connections: n,
            ..Sight::default()
        };
        let sights = (0..25)
            .map(|n| with(if n < 2 { 0 } else { n * 100 }))
            .collect();
        assert_eq!(
            told(sights),
            [
                (2, "W", 22942, Some(200)),
                (12, "W", 22942, Some(1000)),
                (22, "W", 22942, Some(1000)),
            ]
        );
    }

    #[test]
    fn slow_syncs_and_held_back_writers() {
        let sync = |millis| Sight {
            slowest_sync: Duration::from_millis(millis),
            ..Sight::default()
        };
        let sights = vec![sync(999), sync(1500), sync(2500), sync(3), sync(0)];
        assert_eq!(told(sights), [(1, "W", 7_340_011, Some(1500))]);
        let held = |millis| Sight {
            delayed: Duration::from_millis(millis),
            ..Sight::default()
        };
        let mut sights = vec![held(0), held(400), held(1300), held(2300)];
        sights.extend(vec![held(2300); 3]);
        assert_eq!(told(sights), [(2, "W", 7_340_012, Some(900))]);
        let lags = |lags| Sight {
            lags,
            ..Sight::default()
        };
        let sights = vec![lags(false), lags(true), lags(true), lags(false)];
        assert_eq!(
            told(sights),
            [(1, "W", 7_340_013, None), (3, "I", 7_340_013, None)]
        );
    }

    #[test]
    fn troubles_are_told_of_by_their_kind() {
        let with = |troubles: &[&str]| Sight {
            troubles: troubles.iter().map(|t| (*t).to_string()).collect(),
            ..Sight::default()
        };
        let sights = vec![
            with(&[]),
            with(&["flush: a"]),
            with(&["flush: b"]),
            with(&["flush: b", "log: c"]),
            with(&["log: c"]),
            with(&[]),
        ];
        assert_eq!(
            told(sights),
            [
                (1, "E", 7_340_014, None),
                (3, "E", 7_340_014, None),
                (5, "W", 7_340_014, None),
            ]
        );
    }
}
