//! What something long works for: the operation that loops ask every so often, and its JavaScript
//! engine.
//!
//! A [`Task`] belongs to what runs through many documents (a stage, a plan); a [`Work`] is the same as
//! an argument. Functions that cannot take long take none.

use muniment_js::{Engine, MOST_HEAP};
use muniment_op::{Account, Interrupt, NeverInterrupted, Share};
use muniment_value::{Code, Error, Result};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The heap of an engine at least.
const LEAST_HEAP: usize = 16 << 20;

/// A thread waits no longer than this for room for an engine's heap.
const PATIENCE: Duration = Duration::from_secs(15);

/// After so many steps of some nanoseconds each the operation is asked: some milliseconds.
const ASK_EVERY: usize = 1 << 16;

/// A document counts as so many steps: after 128 that took no others the operation is asked.
const DOCUMENT: usize = ASK_EVERY / 128;

/// Elements that are sorted at once: as many as even large documents take few milliseconds for.
const SORT_RUN: usize = 1 << 10;

/// How many steps have been taken since the operation was asked. One thread counts at a time; where
/// several share a count, they may lose steps of each other's.
#[derive(Debug, Default)]
pub struct Steps(AtomicUsize);

/// What a function that may take long works for.
#[derive(Clone, Copy)]
pub struct Work<'o>(Option<(&'o dyn Interrupt, &'o Steps)>);

impl fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Work"
        } else {
            "Work::unasked"
        })
    }
}

impl<'o> Work<'o> {
    /// Work for an operation, of which so many steps are done.
    #[inline]
    pub fn of(operation: &'o dyn Interrupt, steps: &'o Steps) -> Work<'o> {
        Work(Some((operation, steps)))
    }

    /// Work that nothing ends: on what is small, and in tests.
    #[inline]
    pub const fn unasked() -> Work<'static> {
        Work(None)
    }

    /// The same as a task, for what outlives the caller.
    pub fn task(self) -> Task {
        Task {
            operation: self.0.and_then(|(operation, _)| operation.shared()),
            steps: Steps::default(),
        }
    }

    /// The operation that this is done for.
    #[inline]
    pub fn operation(self) -> &'o dyn Interrupt {
        self.0.map_or(&NeverInterrupted, |(operation, _)| operation)
    }

    /// An error when the operation must stop.
    ///
    /// # Errors
    /// See [`Interrupt::check`].
    pub fn check(self) -> Result<()> {
        self.0.map_or(Ok(()), |(operation, _)| operation.check())
    }

    /// Counts `steps` of a loop, a step being some nanoseconds (a comparison, a byte that is parsed),
    /// and asks the operation now and then.
    ///
    /// # Errors
    /// As [`Work::check`].
    #[inline]
    pub fn steps(self, steps: usize) -> Result<()> {
        let Some((operation, taken)) = self.0 else {
            return Ok(());
        };
        let n = taken.0.load(Relaxed).saturating_add(steps);
        if n < ASK_EVERY {
            taken.0.store(n, Relaxed);
            return Ok(());
        }
        taken.0.store(0, Relaxed);
        operation.check()
    }

    /// One more document of a stream.
    ///
    /// # Errors
    /// As [`Work::check`].
    #[inline]
    pub fn tick(self) -> Result<()> {
        self.steps(DOCUMENT)
    }

    /// Sorts a list stably, in pieces between which the operation is asked.
    ///
    /// # Errors
    /// As [`Work::check`].
    pub fn sort_by<T: Copy>(
        self,
        list: &mut Vec<T>,
        mut compare: impl FnMut(&T, &T) -> Ordering,
    ) -> Result<()> {
        if list.len() <= SORT_RUN {
            list.sort_by(compare);
            return Ok(());
        }
        for run in list.chunks_mut(SORT_RUN) {
            run.sort_by(&mut compare);
            self.steps(SORT_RUN * 10)?;
        }
        let mut width = SORT_RUN;
        let mut merged: Vec<T> = Vec::with_capacity(list.len());
        while width < list.len() {
            merged.clear();
            for pair in list.chunks(width.saturating_mul(2)) {
                let (mut a, mut b) = pair.split_at(width.min(pair.len()));
                while let (Some((x, more_a)), Some((y, more_b))) =
                    (a.split_first(), b.split_first())
                {
                    self.steps(4)?;
                    if compare(y, x).is_lt() {
                        merged.push(*y);
                        b = more_b;
                    } else {
                        merged.push(*x);
                        a = more_a;
                    }
                }
                merged.extend_from_slice(a);
                merged.extend_from_slice(b);
            }
            std::mem::swap(list, &mut merged);
            width = width.saturating_mul(2);
        }
        Ok(())
    }

    /// Runs `f` with the operation's engine, which is started when it is first needed.
    ///
    /// # Errors
    /// 139 JSInterpreterFailure; what stops the operation; what `f` raises.
    pub fn with_engine<T>(self, f: impl FnOnce(&mut Engine) -> Result<T>) -> Result<T> {
        need_javascript("a function was called")?;
        let operation = self.operation();
        let mut kept = None;
        operation.keeps(&mut |k| kept = k.take());
        let mut booked = match kept.and_then(|it| it.downcast::<Booked>().ok()) {
            Some(booked) => booked,
            None => Box::new(Booked::start(operation)?),
        };
        let out = f(&mut booked.engine);
        // One that was stopped is not used again.
        if !out
            .as_ref()
            .is_err_and(|e| e.code() != Code::JSInterpreterFailure)
        {
            let mut booked = Some(booked);
            operation.keeps(&mut |k| {
                if let Some(booked) = booked.take() {
                    k.put(booked);
                }
            });
        }
        out
    }
}

/// The operation for which something runs through many documents, if there is one, and how many steps
/// that took since it was asked.
#[derive(Default)]
pub struct Task {
    operation: Option<Arc<dyn Interrupt>>,
    steps: Steps,
}

impl Task {
    /// A task of an operation.
    pub fn of(operation: Arc<dyn Interrupt>) -> Task {
        Task {
            operation: Some(operation),
            steps: Steps::default(),
        }
    }

    /// The task as an argument.
    #[inline]
    pub fn work(&self) -> Work<'_> {
        match &self.operation {
            Some(operation) => Work::of(&**operation, &self.steps),
            None => Work::unasked(),
        }
    }
}

impl Clone for Task {
    /// A task of the same operation that counts its own steps.
    fn clone(&self) -> Task {
        Task {
            operation: self.operation.clone(),
            steps: Steps::default(),
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}

/// Switches JavaScript on or off for the whole process.
pub fn set_javascript(on: bool) {
    muniment_js::set_enabled(on);
}

/// An error when functions are switched off.
///
/// # Errors
/// 31264.
pub(crate) fn need_javascript(what: &str) -> Result<()> {
    if muniment_js::enabled() {
        return Ok(());
    }
    Err(Error::location(
        31264,
        format!("Cannot run server-side javascript without the javascript engine enabled: {what}"),
    ))
}

/// An engine, and what its heap takes of the ledger.
struct Booked {
    engine: Engine,
    _share: Option<Share>,
}

impl Booked {
    fn start(operation: &dyn Interrupt) -> Result<Booked> {
        let (heap, share) = room(operation)?;
        let beside = operation.shared();
        let beside = beside.unwrap_or_else(|| Arc::new(NeverInterrupted));
        Ok(Booked {
            engine: Engine::start(beside, heap)?,
            _share: share,
        })
    }
}

/// Waits for room for an engine's heap. What a script may take is set aside when it starts, for it
/// cannot be told to give anything back: an eighth of what there is for all of them, within bounds.
fn room(operation: &dyn Interrupt) -> Result<(usize, Option<Share>)> {
    let Some(ledger) = operation.ledger() else {
        return Ok((MOST_HEAP, None));
    };
    let heap = (ledger.figures(Account::Scripts).limit / 8).clamp(LEAST_HEAP, MOST_HEAP);
    let mut share = Share::new(&ledger, Account::Scripts);
    let until = Instant::now() + PATIENCE;
    // One engine must always be possible. The wait has an end, because the waiting operation may hold
    // the latch of a document for which the operations that have an engine wait.
    ledger.wait_for_room(operation, until, || share.try_hold_alone(heap))?;
    Ok((heap, Some(share)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    /// Stops after having been asked so often.
    struct Patience(AtomicUsize);

    impl Interrupt for Patience {
        fn check(&self) -> Result<()> {
            let left = self.0.load(Relaxed);
            if left == 0 {
                return Err(Error::new(
                    Code::MaxTimeMSExpired,
                    "operation exceeded time limit",
                ));
            }
            self.0.store(left - 1, Relaxed);
            Ok(())
        }

        fn sleepers(&self, _: &mut dyn FnMut(&muniment_op::Sleepers)) {}
    }

    #[test]
    fn sorts_are_stable_and_stop() {
        let mut x = 7_u32;
        for n in [0, 1, 5, SORT_RUN, SORT_RUN + 1, 5 * SORT_RUN + 3, 40_000] {
            let mut list: Vec<(u32, usize)> = (0..n)
                .map(|i| {
                    x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (x % 500, i)
                })
                .collect();
            let mut expected = list.clone();
            expected.sort_by_key(|(k, _)| *k);
            let work = Work::unasked();
            work.sort_by(&mut list, |a, b| a.0.cmp(&b.0)).unwrap();
            assert!(list == expected, "{n}");
        }
        let task = Task::of(Arc::new(Patience(AtomicUsize::new(3))));
        let mut list: Vec<u32> = (0..1_000_000).rev().collect();
        let e = task.work().sort_by(&mut list, Ord::cmp).unwrap_err();
        assert_eq!(e.code(), Code::MaxTimeMSExpired);
    }

    #[test]
    fn steps_add_up_until_the_operation_is_asked() {
        let task = Task::of(Arc::new(Patience(AtomicUsize::new(1))));
        for _ in 0..2 * ASK_EVERY - 1 {
            task.work().steps(1).unwrap();
        }
        let e = task.work().steps(1).unwrap_err();
        assert_eq!(e.code(), Code::MaxTimeMSExpired);
        // Each has its own count.
        task.clone().work().steps(ASK_EVERY - 1).unwrap();
    }
}
