//! The judgement: compares the writes that were sent and acknowledged with the state that was
//! found. Pure functions.

use super::found::Found;
use super::history::{History, What};
use std::time::{Duration, Instant};

/// The counts of one or more rounds. A write of n documents counts n times, an update once.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tally {
    /// Rounds judged.
    pub rounds: u64,
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// For each acknowledged write that is not there, the time from its acknowledgement to the
    /// crash, ms.
    pub lost_ages_ms: Vec<f64>,
    /// The updates among these: the counter is back at an older value.
    pub lost_updates: u64,
    /// Writes that are not there although a later one of the same writer is.
    pub holes: u64,
    /// Documents and updates that are there and were never sent.
    pub phantoms: u64,
    /// Documents whose content differs from what was sent, or a counter that is gone.
    pub damaged: u64,
    /// Writes that were sent, not acknowledged, and are there.
    pub in_flight_present: u64,
    /// Writes that were sent, not acknowledged, and are not there.
    pub in_flight_absent: u64,
    /// Batches of which a part is there.
    pub partial_batches: u64,
    /// Differences between collection and index, and failed validations.
    pub disagreements: u64,
    /// Writes that had not been answered and were sent again after the crash.
    pub sent_again: u64,
    /// Documents in the rollback files of the members of a set.
    pub undone: u64,
    /// Acknowledged writes that are neither there nor in a rollback file.
    pub untraced: u64,
    /// The first few faults in words.
    pub examples: Vec<String>,
}

impl Tally {
    /// Acknowledged writes that are not there.
    pub(crate) fn lost(&self) -> u64 {
        self.lost_ages_ms.len() as u64
    }

    /// The age of the oldest acknowledged write that is not there, ms.
    pub(crate) fn oldest_lost_ms(&self) -> Option<f64> {
        self.lost_ages_ms.iter().copied().reduce(f64::max)
    }

    /// The age of the newest acknowledged write that is not there, ms.
    pub(crate) fn newest_lost_ms(&self) -> Option<f64> {
        self.lost_ages_ms.iter().copied().reduce(f64::min)
    }

    /// The number of lost writes by age before the crash, in `steps` classes of `step` ms each.
    pub(crate) fn lost_by_age(&self, step: f64, steps: usize) -> Vec<f64> {
        let mut out = vec![0.0; steps];
        for age in &self.lost_ages_ms {
            if let Some(n) = out.get_mut((age / step) as usize) {
                *n += 1.0;
            }
        }
        out
    }

    /// Adds the counts of other rounds.
    pub(crate) fn add(&mut self, o: Tally) {
        self.rounds += o.rounds;
        self.acknowledged += o.acknowledged;
        self.lost_ages_ms.extend(o.lost_ages_ms);
        self.lost_updates += o.lost_updates;
        self.holes += o.holes;
        self.phantoms += o.phantoms;
        self.damaged += o.damaged;
        self.in_flight_present += o.in_flight_present;
        self.in_flight_absent += o.in_flight_absent;
        self.partial_batches += o.partial_batches;
        self.disagreements += o.disagreements;
        self.sent_again += o.sent_again;
        self.undone += o.undone;
        self.untraced += o.untraced;
        let room = 5usize.saturating_sub(self.examples.len());
        self.examples.extend(o.examples.into_iter().take(room));
    }

    /// The faults that no write concern allows, in words; empty if there are none.
    pub(crate) fn faults(&self) -> Vec<String> {
        [
            (self.holes, "holes"),
            (self.phantoms, "phantoms"),
            (self.damaged, "damaged"),
            (self.disagreements, "index disagreements"),
            (self.untraced, "lost without a trace"),
        ]
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{n} {what}"))
        .collect()
    }
}

/// Judges one round; `crash` is a time just before the crash.
pub(crate) fn judge(histories: &[History], found: &Found, crash: Instant) -> Tally {
    let mut t = Tally {
        rounds: 1,
        phantoms: found.foreign,
        damaged: found.damaged,
        disagreements: found.disagreements,
        examples: found.examples.clone(),
        ..Tally::default()
    };
    for (thread, (h, part)) in histories.iter().zip(&found.parts).enumerate() {
        let sent = part.numbers.partition_point(|n| *n <= h.inserted());
        let counter = match part.counter {
            Some(value) => value,
            None => {
                t.damaged += 1;
                t.examples
                    .push(format!("the counter of writer {thread} is gone"));
                0
            }
        };
        // Numbers begin at 1, so a document with number 0 was never sent.
        let zero = u64::from(part.numbers.first() == Some(&0));
        t.phantoms +=
            (part.numbers.len() - sent) as u64 + counter.saturating_sub(h.updated()) + zero;
        one(h, &part.numbers, counter, crash, &mut t);
    }
    t
}

/// Judges one writer's writes, latest first: a write that is missing is a hole if a later one is
/// there.
fn one(h: &History, numbers: &[u64], counter: u64, crash: Instant, t: &mut Tally) {
    let mut later_is_there = false;
    for w in h.writes.iter().rev() {
        let (size, there, in_order) = match w.what {
            What::Insert { first, count } => {
                let end = first + u64::from(count);
                let from = numbers.partition_point(|n| *n < first);
                let to = numbers.partition_point(|n| *n < end);
                let there = (to - from) as u64;
                // A server applies a batch in order, so a part of a batch must be its beginning.
                let prefix = numbers
                    .get(from..to)
                    .is_some_and(|p| p.last().is_none_or(|l| l - first + 1 == there));
                (u64::from(count), there, prefix)
            }
            What::Update { value } => (1, u64::from(value <= counter), true),
        };
        let absent = size - there;
        if there > 0 && absent > 0 {
            t.partial_batches += 1;
        }
        if later_is_there {
            t.holes += absent;
        } else if !in_order {
            // The batch itself has a hole: its missing documents count if a later one of the batch
            // is there.
            t.holes += inner_holes(w.what, numbers);
        }
        later_is_there |= there > 0;
        match w.acknowledged {
            Some(at) => {
                t.acknowledged += size;
                let age = crash.saturating_duration_since(at).as_secs_f64() * 1e3;
                t.lost_ages_ms
                    .extend(std::iter::repeat_n(age, absent as usize));
                if matches!(w.what, What::Update { .. }) {
                    t.lost_updates += absent;
                }
            }
            None => {
                t.in_flight_present += there;
                t.in_flight_absent += absent;
            }
        }
    }
}

/// The number of missing documents of a batch before its last document that is there.
fn inner_holes(what: What, numbers: &[u64]) -> u64 {
    let What::Insert { first, count } = what else {
        return 0;
    };
    let there = numbers
        .iter()
        .filter(|n| (first..first + u64::from(count)).contains(n));
    let (count, last) = there.fold((0, first), |(c, _), n| (c + 1, *n));
    (last - first + 1).saturating_sub(count)
}

/// The promise of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// No acknowledged write is lost.
    NothingLost,
    /// Only what was acknowledged within this time before the crash may be lost.
    Within(Duration),
    /// A set may undo writes that were acknowledged within this time before the fault, or after it;
    /// all of them must be in rollback files.
    Undone(Duration),
    /// No promise is known.
    Unknown,
}

impl Promise {
    /// The promise in words.
    pub(crate) fn text(self) -> String {
        match self {
            Promise::NothingLost => "nothing is lost".into(),
            Promise::Within(d) => format!("at most the last {} ms", d.as_millis()),
            Promise::Undone(d) => format!(
                "at most the last {} s, and that is in rollback files",
                d.as_secs()
            ),
            Promise::Unknown => "none known".into(),
        }
    }
}

/// The outcome of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The promise was kept.
    Kept,
    /// The promise was not kept.
    Broken,
    /// There was no promise.
    NoPromise,
    /// Nothing was acknowledged, so nothing could be lost and the rounds show nothing.
    NothingShown,
    /// The check was not tried.
    LeftOut,
}

/// Whether the rounds counted in `t` kept the promise; `allowance` is the time that a sync and the
/// machine's scheduling may add to a promised time.
pub(crate) fn verdict(t: &Tally, promise: Promise, allowance: Duration) -> Verdict {
    if t.acknowledged == 0 && t.faults().is_empty() {
        return Verdict::NothingShown;
    }
    let lost = match promise {
        Promise::Unknown => return Verdict::NoPromise,
        Promise::NothingLost => t.lost() > 0,
        Promise::Within(d) | Promise::Undone(d) => {
            let limit = (d + allowance).as_secs_f64() * 1e3;
            t.oldest_lost_ms().is_some_and(|age| age > limit)
        }
    };
    if lost || !t.faults().is_empty() {
        Verdict::Broken
    } else {
        Verdict::Kept
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::found::Part;
    use super::*;

    /// A history whose last `in_flight` writes were not acknowledged. The others were, 10 ms apart,
    /// the newest 10 ms before the crash. In `writes`, `i` inserts one document, `b` a batch of
    /// three, and `u` updates.
    fn history(writes: &str, in_flight: usize, crash: Instant) -> History {
        let mut h = History::default();
        let n = writes.len() - in_flight;
        for (i, w) in writes.chars().enumerate() {
            match w {
                'i' => drop(h.insert(1)),
                'b' => drop(h.insert(3)),
                _ => drop(h.update()),
            }
            if i < n {
                h.acknowledge(crash - Duration::from_millis(10 * (n - i) as u64));
            }
        }
        h
    }

    fn found(numbers: &[u64], counter: u64) -> Found {
        let mut f = Found::new(1, 1);
        f.parts = vec![Part {
            numbers: numbers.to_vec(),
            counter: Some(counter),
        }];
        f
    }

    fn judged(writes: &str, in_flight: usize, numbers: &[u64], counter: u64) -> Tally {
        let crash = Instant::now() + Duration::from_secs(100);
        judge(
            &[history(writes, in_flight, crash)],
            &found(numbers, counter),
            crash,
        )
    }

    #[test]
    fn everything_there_is_no_fault() {
        let t = judged("iubi", 0, &[1, 2, 3, 4, 5], 1);
        assert_eq!((t.acknowledged, t.lost(), t.rounds), (6, 0, 1));
        assert_eq!(t.faults(), Vec::<String>::new());
        let allowance = Duration::ZERO;
        assert_eq!(verdict(&t, Promise::NothingLost, allowance), Verdict::Kept);
        assert_eq!(verdict(&t, Promise::Unknown, allowance), Verdict::NoPromise);
    }

    #[test]
    fn acknowledged_and_lost_has_an_age() {
        // The two newest of five are missing: they were acknowledged 20 and 10 ms before the crash.
        let t = judged("iiiii", 0, &[1, 2, 3], 0);
        assert_eq!((t.lost(), t.holes, t.lost_updates), (2, 0, 0));
        assert!((t.oldest_lost_ms().unwrap() - 20.0).abs() < 1e-6);
        assert!((t.newest_lost_ms().unwrap() - 10.0).abs() < 1e-6);
        let none = Duration::ZERO;
        assert_eq!(verdict(&t, Promise::NothingLost, none), Verdict::Broken);
        let within = |ms| Promise::Within(Duration::from_millis(ms));
        assert_eq!(verdict(&t, within(20), none), Verdict::Kept);
        assert_eq!(verdict(&t, within(19), none), Verdict::Broken);
        let allowance = Duration::from_millis(1);
        assert_eq!(verdict(&t, within(19), allowance), Verdict::Kept);
    }

    #[test]
    fn in_flight_counts_neither_way() {
        let there = judged("iib", 1, &[1, 2, 3, 4, 5], 0);
        assert_eq!((there.in_flight_present, there.in_flight_absent), (3, 0));
        let gone = judged("iib", 1, &[1, 2], 0);
        assert_eq!((gone.in_flight_present, gone.in_flight_absent), (0, 3));
        for t in [there, gone] {
            assert_eq!((t.acknowledged, t.lost(), t.holes), (2, 0, 0));
            assert_eq!(
                verdict(&t, Promise::NothingLost, Duration::ZERO),
                Verdict::Kept
            );
        }
    }

    #[test]
    fn a_part_of_a_batch_is_reported() {
        let t = judged("ib", 1, &[1, 2], 0);
        assert_eq!((t.partial_batches, t.holes), (1, 0));
        assert_eq!((t.in_flight_present, t.in_flight_absent), (1, 2));
        // The missing rest of an acknowledged batch counts as lost.
        let t = judged("ib", 0, &[1, 2, 3], 0);
        assert_eq!((t.partial_batches, t.lost()), (1, 1));
        // A batch whose middle is missing although its end is there has a hole.
        let t = judged("ib", 1, &[1, 2, 4], 0);
        assert_eq!((t.partial_batches, t.holes), (1, 1));
        let t = judged("ib", 1, &[1, 4], 0);
        assert_eq!(t.holes, 2);
    }

    #[test]
    fn a_hole_is_absent_below_one_that_is_there() {
        let t = judged("iiii", 0, &[1, 3, 4], 0);
        assert_eq!((t.holes, t.lost()), (1, 1));
        // Nothing is acknowledged, as with w:0; a hole is a fault nevertheless.
        let t = judged("iiii", 4, &[1, 4], 0);
        assert_eq!((t.holes, t.lost(), t.in_flight_absent), (2, 0, 2));
        let within = Promise::Within(Duration::from_secs(1));
        assert_eq!(verdict(&t, within, Duration::ZERO), Verdict::Broken);
        // Holes are found across kinds: an insert is there, the update before it is not.
        let t = judged("iui", 0, &[1, 2], 0);
        assert_eq!((t.holes, t.lost(), t.lost_updates), (1, 1, 1));
        // An update is there, the batch before it is not.
        let t = judged("ibu", 0, &[1], 1);
        assert_eq!((t.holes, t.lost()), (3, 3));
    }

    #[test]
    fn a_counter_that_went_back_has_lost_updates() {
        let t = judged("uuuu", 1, &[], 1);
        assert_eq!((t.acknowledged, t.lost(), t.lost_updates), (3, 2, 2));
        assert_eq!((t.in_flight_absent, t.holes), (1, 0));
    }

    #[test]
    fn phantoms_were_never_sent() {
        assert_eq!(judged("i", 0, &[1, 2, 9], 0).phantoms, 2);
        assert_eq!(judged("i", 0, &[0, 1], 0).phantoms, 1);
        assert_eq!(judged("u", 0, &[], 3).phantoms, 2);
        let mut f = found(&[1], 0);
        f.foreign = 4;
        let crash = Instant::now() + Duration::from_secs(1);
        let t = judge(&[history("i", 0, crash)], &f, crash);
        assert_eq!(t.phantoms, 4);
        assert_eq!(
            verdict(&t, Promise::NothingLost, Duration::ZERO),
            Verdict::Broken
        );
    }

    #[test]
    fn damage_and_disagreements_break_every_promise() {
        let crash = Instant::now() + Duration::from_secs(1);
        let h = [history("i", 0, crash)];
        let mut damaged = found(&[1], 0);
        damaged.damaged = 1;
        let mut index = found(&[1], 0);
        index.disagreements = 1;
        let mut no_counter = found(&[1], 0);
        no_counter.parts = vec![Part {
            numbers: vec![1],
            counter: None,
        }];
        for f in [damaged, index, no_counter] {
            let t = judge(&h, &f, crash);
            assert_eq!(t.lost(), 0);
            assert_eq!(t.faults().len(), 1);
            for p in [
                Promise::NothingLost,
                Promise::Within(Duration::from_secs(9)),
            ] {
                assert_eq!(verdict(&t, p, Duration::ZERO), Verdict::Broken);
            }
        }
    }

    #[test]
    fn a_write_that_a_new_primary_does_not_have_is_lost() {
        // This is a rollback: the old primary acknowledged the writes, and the new primary goes on
        // without them. The judge knows no servers, only what was acknowledged and what is there.
        let t = judged("iiu", 0, &[1], 0);
        assert_eq!((t.lost(), t.holes), (2, 0));
        assert_eq!(
            verdict(&t, Promise::Unknown, Duration::ZERO),
            Verdict::NoPromise
        );
        assert_eq!(
            verdict(&t, Promise::NothingLost, Duration::ZERO),
            Verdict::Broken
        );
    }

    #[test]
    fn without_an_acknowledgement_nothing_is_shown() {
        let t = judged("ii", 2, &[], 0);
        let verdict = verdict(&t, Promise::NothingLost, Duration::ZERO);
        assert_eq!(verdict, Verdict::NothingShown);
    }

    #[test]
    fn rounds_add_up() {
        let mut sum = judged("ii", 0, &[1], 0);
        sum.add(judged("iib", 1, &[1, 2, 3], 0));
        assert_eq!((sum.rounds, sum.acknowledged, sum.lost()), (2, 4, 1));
        assert_eq!((sum.in_flight_present, sum.in_flight_absent), (1, 2));
        assert_eq!(sum.partial_batches, 1);
    }
}
