//! The timing of a direction: when bytes that enter come out. Nothing here knows a clock or a
//! socket; a time is a number of nanoseconds.
//!
//! Invariant: a [`Line`] returns its pieces in the order in which they entered, whatever jitter and
//! loss did to their times. A TCP stream keeps its order, so loss only costs time.

use super::conditions::{Conditions, LEAST_TIMEOUT};
use muniment_load::rng::Rng;
use std::collections::VecDeque;
use std::time::Duration;

/// The bytes of a segment, which is the unit of loss.
pub(super) const SEGMENT: usize = 1448;
/// The longest retransmission timeout, as in TCP.
const LONGEST_TIMEOUT: u64 = 120_000_000_000;

/// One direction of a link, which all connections of the link share.
pub(super) struct Wire {
    /// The conditions of the direction.
    pub conditions: Conditions,
    /// The time at which everything given to it so far has been put on the wire.
    free_at: u64,
    rng: Rng,
}

impl Wire {
    /// Makes an empty wire.
    pub(super) fn new(conditions: Conditions, seed: u64) -> Wire {
        Wire {
            conditions,
            free_at: 0,
            rng: Rng::new(seed),
        }
    }

    /// The time at which `bytes` that enter at `now` arrive at the other end. `round_trip` decides
    /// the cost of a lost segment.
    pub(super) fn carry(&mut self, now: u64, bytes: usize, round_trip: Duration) -> u64 {
        let c = self.conditions;
        if let Some(rate) = c.bandwidth {
            let takes = u128::from(bytes as u64) * 1_000_000_000 / u128::from(rate.max(1));
            self.free_at = now.max(self.free_at) + takes as u64;
        }
        let left = now.max(if c.bandwidth.is_some() {
            self.free_at
        } else {
            0
        });
        let jitter = (self.rng.unit() * 2.0 - 1.0) * nanos(c.jitter) as f64;
        let under_way = (nanos(c.delay) as f64 + jitter).max(0.0) as u64;
        left + under_way + self.stall(bytes, round_trip)
    }

    /// The time that lost segments cost: the timeout, and twice as much again for each time that a
    /// retransmission is lost too.
    fn stall(&mut self, bytes: usize, round_trip: Duration) -> u64 {
        let loss = self.conditions.loss;
        if loss <= 0.0 {
            return 0;
        }
        let segments = bytes.div_ceil(SEGMENT).max(1) as f64;
        if self.rng.unit() >= 1.0 - (1.0 - loss).powf(segments) {
            return 0;
        }
        let first = self.conditions.timeout;
        let mut timeout = nanos(first.unwrap_or(round_trip + LEAST_TIMEOUT));
        let mut stall = timeout;
        while self.rng.unit() < loss {
            timeout = (timeout * 2).min(LONGEST_TIMEOUT);
            stall += timeout;
        }
        stall
    }

    /// The time after `now` for which the wire is busy with bytes it has been given already.
    pub(super) fn backlog(&self, now: u64) -> u64 {
        match self.conditions.bandwidth {
            Some(_) => self.free_at.saturating_sub(now),
            None => 0,
        }
    }

    /// The number of bytes that should enter at once, so that the connections that share the wire
    /// take turns.
    pub(super) fn grain(&self, most: usize) -> usize {
        match self.conditions.bandwidth {
            // Each connection puts half a millisecond's worth of bytes on the wire.
            Some(rate) => (rate / 2000).clamp(SEGMENT as u64, most as u64) as usize,
            None => most,
        }
    }
}

/// Converts a duration to nanoseconds, limited to the range of the type.
pub(super) fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// A unit that passes through a direction of a connection.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    /// The connection itself; when it comes out, the server is connected to.
    Open,
    /// Bytes, and how many of them have been passed on already.
    Bytes(Vec<u8>, usize),
    /// The end of the bytes.
    End,
    /// A reset: the other side is gone.
    Reset,
}

/// The pieces under way in one direction of one connection.
#[derive(Default)]
pub(super) struct Line {
    queue: VecDeque<(u64, Piece)>,
    bytes: usize,
    newest: u64,
}

impl Line {
    /// Adds a piece at the end; it comes out at `due`, but not before the pieces that entered
    /// earlier.
    pub(super) fn push(&mut self, due: u64, piece: Piece) {
        if let Piece::Bytes(b, _) = &piece {
            self.bytes += b.len();
        }
        self.newest = self.newest.max(due);
        self.queue.push_back((self.newest, piece));
    }

    /// The time at which the first piece comes out.
    pub(super) fn due(&self) -> Option<u64> {
        self.queue.front().map(|f| f.0)
    }

    /// The first piece.
    pub(super) fn front(&mut self) -> Option<&mut Piece> {
        self.queue.front_mut().map(|f| &mut f.1)
    }

    /// Removes the first piece.
    pub(super) fn pop(&mut self) {
        if let Some((_, Piece::Bytes(b, _))) = self.queue.pop_front() {
            self.bytes -= b.len();
        }
    }

    /// The number of bytes under way.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Delays all pieces until at least `moment`.
    pub(super) fn not_before(&mut self, moment: u64) {
        for (due, _) in &mut self.queue {
            *due = moment.max(*due);
        }
        self.newest = self.newest.max(moment);
    }

    /// Removes everything that is under way.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MS: u64 = 1_000_000;
    const RTT: Duration = Duration::from_millis(90);

    fn wire(c: Conditions) -> Wire {
        Wire::new(c, 7)
    }

    #[test]
    fn a_delay_is_the_delay_and_jitter_stays_within_its_bounds() {
        let mut w = wire(Conditions::delayed(Duration::from_millis(45)));
        assert_eq!(w.carry(5 * MS, 1000, RTT), 50 * MS);
        w.conditions.jitter = Duration::from_millis(2);
        let times: Vec<u64> = (0..10_000).map(|_| w.carry(0, 1, RTT)).collect();
        let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        assert!((43 * MS..=43 * MS + MS / 100).contains(least), "{least}");
        assert!((47 * MS - MS / 100..=47 * MS).contains(most), "{most}");
        let mean = times.iter().sum::<u64>() / 10_000;
        assert!(mean.abs_diff(45 * MS) < MS / 20, "{mean}");
        // Jitter that exceeds the delay must not let bytes arrive before they were sent.
        w.conditions.delay = Duration::ZERO;
        assert!((0..1000).all(|_| w.carry(MS, 1, RTT) >= MS));
    }

    #[test]
    fn bandwidth_is_shared_and_idle_time_is_not_saved_up() {
        let mut w = wire(Conditions {
            bandwidth: Some(1_000_000),
            ..Conditions::default()
        });
        assert_eq!(w.carry(0, 1000, RTT), MS);
        // Bytes that come meanwhile wait for those that are on the wire already.
        assert_eq!(w.carry(MS / 2, 1000, RTT), 2 * MS);
        assert_eq!(w.backlog(MS), MS);
        assert_eq!(w.carry(10 * MS, 1000, RTT), 11 * MS);
        assert_eq!(w.grain(1 << 18), SEGMENT);
        w.conditions.bandwidth = Some(100_000_000);
        assert_eq!(w.grain(1 << 18), 50_000);
        w.conditions.bandwidth = None;
        assert_eq!((w.grain(1 << 18), w.backlog(0)), (1 << 18, 0));
    }

    #[test]
    fn loss_costs_timeouts_as_often_as_segments_are_lost() {
        let mut w = wire(Conditions {
            loss: 0.01,
            ..Conditions::delayed(Duration::from_millis(45))
        });
        let n = 200_000;
        let stalls: Vec<u64> = (0..n).map(|_| w.carry(0, 100, RTT) - 45 * MS).collect();
        let lost = stalls.iter().filter(|s| **s > 0).count() as f64;
        assert!((lost / f64::from(n) - 0.01).abs() < 0.001, "{lost}");
        // A stall lasts a round trip and 200 ms; a lost retransmission adds twice that.
        assert!(
            stalls
                .iter()
                .all(|s| [0, 290, 870, 2030].contains(&(s / MS)))
        );
        assert!(stalls.contains(&(870 * MS)));
        // One of ten segments is lost more often than a single one.
        let mut hit = |bytes| {
            let stalled = (0..20_000).filter(|_| w.carry(0, bytes, RTT) > 45 * MS);
            stalled.count() as f64 / 20_000.0
        };
        assert!((hit(10 * SEGMENT) - 0.0956).abs() < 0.01);
        w.conditions.timeout = Some(Duration::from_millis(30));
        assert!((0..1000).any(|_| w.carry(0, 1, RTT) == 75 * MS));
    }

    #[test]
    fn order_is_kept_whatever_the_times() {
        let mut w = wire(Conditions {
            jitter: Duration::from_millis(40),
            loss: 0.05,
            ..Conditions::delayed(Duration::from_millis(45))
        });
        let mut l = Line::default();
        for i in 0..2000u64 {
            let due = w.carry(i * MS / 10, 100, RTT);
            l.push(due, Piece::Bytes(vec![(i % 251) as u8; 3], 0));
        }
        assert_eq!(l.bytes(), 6000);
        let mut last = 0;
        for i in 0..2000u64 {
            let due = l.due().unwrap();
            assert!(due >= last);
            last = due;
            assert_eq!(
                l.front(),
                Some(&mut Piece::Bytes(vec![(i % 251) as u8; 3], 0))
            );
            l.pop();
        }
        assert_eq!((l.bytes(), l.due()), (0, None));
    }

    #[test]
    fn what_a_partition_held_comes_no_earlier_than_it_is_told_and_in_order() {
        let mut l = Line::default();
        l.push(10, Piece::Open);
        l.push(30, Piece::End);
        l.not_before(20);
        assert_eq!(l.due(), Some(20));
        l.pop();
        assert_eq!(l.due(), Some(30));
        // Pieces that enter after the heal do not overtake the held ones.
        l.not_before(100);
        l.push(50, Piece::Reset);
        l.pop();
        assert_eq!(l.due(), Some(100));
        l.clear();
        assert_eq!(l.due(), None);
    }
}
