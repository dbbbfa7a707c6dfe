//! The judgement: what was sent and acknowledged against what is there. Pure functions.

use super::found::Found;
use super::history::{History, What};
use std::time::{Duration, Instant};

/// What rounds came to. A write of n documents counts n times, an update once.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tally {
    /// Rounds judged.
    pub rounds: u64,
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// How long before the crash each acknowledged write that is not there was acknowledged, ms.
    pub lost_ages_ms: Vec<f64>,
    /// Of these, updates: the counter is back at an older value.
    pub lost_updates: u64,
    /// Writes that are not there although a later one of the same writer is.
    pub holes: u64,
    /// Documents and updates that are there and were never sent.
    pub phantoms: u64,
    /// Documents with another content than was sent, or a counter that is gone.
    pub damaged: u64,
    /// Sent, not acknowledged, and there.
    pub in_flight_present: u64,
    /// Sent, not acknowledged, and not there.
    pub in_flight_absent: u64,
    /// Batches of which a part is there.
    pub partial_batches: u64,
    /// Differences between collection and index, and failed validations.
    pub disagreements: u64,
    /// Writes that had not been answered and were sent again after the crash.
    pub sent_again: u64,
    /// Documents in the files of what members of a set undid.
    pub undone: u64,
    /// Acknowledged writes that are neither there nor in these files.
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

    /// The age of the newest one, ms.
    pub(crate) fn newest_lost_ms(&self) -> Option<f64> {
        self.lost_ages_ms.iter().copied().reduce(f64::min)
    }

    /// How many of these were so old, in steps of so many ms from the moment of the crash.
    pub(crate) fn lost_by_age(&self, step: f64, steps: usize) -> Vec<f64> {
        let mut out = vec![0.0; steps];
        for age in &self.lost_ages_ms {
            if let Some(n) = out.get_mut((age / step) as usize) {
                *n += 1.0;
            }
        }
        out
    }

    /// Adds what other rounds came to.
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

    /// What no write concern allows, in words; empty if there is nothing of it.
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

/// Judges one round; `crash` is the moment just before it.
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
        // Number 0 is never sent.
        let zero = u64::from(part.numbers.first() == Some(&0));
        t.phantoms +=
            (part.numbers.len() - sent) as u64 + counter.saturating_sub(h.updated()) + zero;
        one(h, &part.numbers, counter, crash, &mut t);
    }
    t
}

/// One writer's writes, latest first: whatever is not there below the first that is, is a hole.
fn one(h: &History, numbers: &[u64], counter: u64, crash: Instant, t: &mut Tally) {
    let mut later_is_there = false;
    for w in h.writes.iter().rev() {
        let (size, there, in_order) = match w.what {
            What::Insert { first, count } => {
                let end = first + u64::from(count);
                let from = numbers.partition_point(|n| *n < first);
                let to = numbers.partition_point(|n| *n < end);
                let there = (to - from) as u64;
                // A batch is applied in order, so a part of it is its beginning.
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
            // Inside a batch: counted from its last document that is there.
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

/// Documents of a batch that are not there below its last that is.
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

/// What an acknowledgement promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// No acknowledged write is lost.
    NothingLost,
    /// Only what was acknowledged within this time before the crash may be lost.
    Within(Duration),
    /// A set may undo what was acknowledged within this time before the fault, or after it; all of
    /// it is in rollback files.
    Undone(Duration),
    /// No promise is known.
    Unknown,
}

impl Promise {
    /// In words.
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

/// How the comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The promise was kept.
    Kept,
    /// The promise was not kept.
    Broken,
    /// There was no promise.
    NoPromise,
    /// Nothing was acknowledged, so that nothing could be lost.
    NothingShown,
    /// It was not tried.
    LeftOut,
}

/// Whether rounds that came to `t` kept the promise; `allowance` is what a sync and the
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

    /// A history in which the last `in_flight` writes were not acknowledged; the others were,
    /// 10 ms apart, the newest 10 ms before the crash. `i` inserts one, `b` a batch of three,
    /// `u` updates.
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
        // The two newest of five are gone: 20 and 10 ms before the crash.
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
        // Of an acknowledged one the rest is lost.
        let t = judged("ib", 0, &[1, 2, 3], 0);
        assert_eq!((t.partial_batches, t.lost()), (1, 1));
        // Its end without its middle is a hole as well.
        let t = judged("ib", 1, &[1, 2, 4], 0);
        assert_eq!((t.partial_batches, t.holes), (1, 1));
        let t = judged("ib", 1, &[1, 4], 0);
        assert_eq!(t.holes, 2);
    }

    #[test]
    fn a_hole_is_absent_below_one_that_is_there() {
        let t = judged("iiii", 0, &[1, 3, 4], 0);
        assert_eq!((t.holes, t.lost()), (1, 1));
        // Nothing acknowledged, as with w:0: a hole is a fault all the same.
        let t = judged("iiii", 4, &[1, 4], 0);
        assert_eq!((t.holes, t.lost(), t.in_flight_absent), (2, 0, 2));
        let within = Promise::Within(Duration::from_secs(1));
        assert_eq!(verdict(&t, within, Duration::ZERO), Verdict::Broken);
        // Between kinds: an insert is there, the update before it is not.
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
        // Rolled back: the old primary acknowledged it, the new one goes on without it. The
        // judge knows no servers, only what was acknowledged and what is there.
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
