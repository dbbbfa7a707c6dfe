//! What a load was like from second to second.

use crate::meter::Board;
use crate::procs;
use crate::samples::Interval;
use crate::usage::ServerUsage;

/// Builds the intervals of a load while it runs.
pub(super) struct Recorder<'a> {
    board: &'a Board,
    pid: Option<u32>,
    before: Option<procs::Sample>,
    last: Option<procs::Sample>,
    top_rss: f64,
    /// The resources that the server used in each past second.
    used: Vec<Option<ServerUsage>>,
    at_second: Option<procs::Sample>,
    intervals: Vec<Interval>,
    /// The p50 and p99 of the newest second, in ms.
    pub(super) newest: Option<[f64; 2]>,
    /// The resources that the server used in the newest second.
    pub(super) server_now: Option<ServerUsage>,
}

impl<'a> Recorder<'a> {
    /// The number of seconds that a worker's figures may be late.
    const PATIENCE: u64 = 30;

    pub(super) fn new(
        board: &'a Board,
        pid: Option<u32>,
        before: Option<procs::Sample>,
    ) -> Recorder<'a> {
        Recorder {
            board,
            pid,
            before,
            last: before,
            top_rss: before.map_or(0.0, |b| b.rss),
            used: Vec::new(),
            at_second: before,
            intervals: Vec::new(),
            newest: None,
            server_now: None,
        }
    }

    /// Reads the server's figures.
    pub(super) fn sample(&mut self) {
        if let Some(s) = self.pid.and_then(procs::sample) {
            self.top_rss = self.top_rss.max(s.rss);
            self.last = Some(s);
        }
    }

    /// Takes a look at the load after `t` seconds.
    pub(super) fn look(&mut self, t: f64) {
        let over = t as u64;
        if over <= self.used.len() as u64 {
            return;
        }
        self.sample();
        let used = self
            .at_second
            .zip(self.last)
            .map(|(a, b)| ServerUsage::between(&a, &b));
        self.at_second = self.last;
        self.server_now = used;
        // If a look is late and covers several seconds, all usage is attributed to the first of them.
        self.used.push(used);
        self.used.resize(over as usize, None);
        self.newest = self
            .board
            .newest()
            .map(|l| [l.quantile_ms(0.5), l.quantile_ms(0.99)]);
        self.take(over.saturating_sub(Self::PATIENCE), f64::INFINITY);
    }

    fn take(&mut self, before: u64, end: f64) {
        for (second, l) in self.board.take_seconds(before) {
            let start = second as f64;
            self.intervals.push(Interval {
                start,
                length: (end - start).clamp(1e-3, 1.0),
                operations: l.count(),
                p50_ms: l.quantile_ms(0.5),
                p99_ms: l.quantile_ms(0.99),
                max_ms: l.max_ms(),
                hdr: l.hdr(),
                server: self.used.get(second as usize).copied().flatten(),
            });
        }
    }

    /// The server's usage from the beginning to the newest sample.
    pub(super) fn whole(&self) -> Option<ServerUsage> {
        let mut u = ServerUsage::between(&self.before?, &self.last?);
        u.rss = self.top_rss;
        Some(u)
    }

    /// The intervals of a load that took `total` seconds.
    pub(super) fn finish(mut self, total: f64) -> Vec<Interval> {
        self.take(u64::MAX, total);
        // Seconds in which no operation ended are added, because they tell the most about a stall.
        for second in 0..total.ceil() as u64 {
            let start = second as f64;
            if self.intervals.iter().all(|i| i.start != start) {
                self.intervals.push(Interval {
                    start,
                    length: (total - start).clamp(1e-3, 1.0),
                    server: self.used.get(second as usize).copied().flatten(),
                    ..Interval::default()
                });
            }
        }
        self.intervals.sort_by(|a, b| a.start.total_cmp(&b.start));
        self.intervals
    }
}
