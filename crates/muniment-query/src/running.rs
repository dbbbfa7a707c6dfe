//! What the calling thread works for: the operation that long loops ask, and its JavaScript
//! engine.
//!
//! A command enters before it runs and leaves when the guard is dropped; the engine ends with it,
//! so that no script leaves anything behind for another operation.

pub use muniment_js::Engine;
use muniment_js::MOST_HEAP;
use muniment_op::{Account, Interrupt, NeverInterrupted, Share};
use muniment_value::{Code, Error, Result};
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

thread_local! {
    static OPERATION: RefCell<Option<Arc<dyn Interrupt>>> = const { RefCell::new(None) };
    static ENGINE: RefCell<Option<Booked>> = const { RefCell::new(None) };
    static SPENT: Cell<usize> = const { Cell::new(0) };
    static STOPPED: Cell<bool> = const { Cell::new(false) };
}

/// The heap of an engine at least.
const LEAST_HEAP: usize = 16 << 20;

/// A thread waits no longer than this for room for an engine's heap.
const PATIENCE: Duration = Duration::from_secs(15);

/// After so many steps of some nanoseconds each the operation is asked: some milliseconds.
const ASK_EVERY: usize = 1 << 16;

/// Elements that are sorted at once: as many as even large documents take few milliseconds for.
const SORT_RUN: usize = 1 << 10;

/// The thread works for an operation until this is dropped.
#[must_use]
pub struct Running {
    before: Option<Arc<dyn Interrupt>>,
}

/// The thread works for `operation` from here on.
pub fn enter(operation: Arc<dyn Interrupt>) -> Running {
    Running {
        before: OPERATION.replace(Some(operation)),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        OPERATION.set(self.before.take());
        STOPPED.set(false);
        ENGINE.set(None);
    }
}

/// An error when the operation must stop; nothing if the thread works for none.
///
/// # Errors
/// See [`Interrupt::check`].
pub fn check() -> Result<()> {
    let operation = OPERATION.with_borrow(Clone::clone);
    operation.map_or(Ok(()), |o| o.check())
}

/// Counts `steps` of a loop, a step being some nanoseconds (a comparison, a byte that is parsed)
/// and asks the operation now and then.
///
/// # Errors
/// As [`check`].
#[inline]
pub fn work(steps: usize) -> Result<()> {
    let n = SPENT.get().saturating_add(steps);
    if n < ASK_EVERY {
        SPENT.set(n);
        return Ok(());
    }
    SPENT.set(0);
    check()
}

/// As [`work`], for loops in functions that cannot fail: true when the operation must stop. What such a
/// function then returns is worth nothing; [`give_up`] turns it into an error, in a caller that can
/// fail.
#[inline]
pub fn spent(steps: usize) -> bool {
    if STOPPED.get() {
        return true;
    }
    let stop = work(steps).is_err();
    if stop {
        STOPPED.set(true);
    }
    stop
}

/// The error when [`spent`] has said that the operation must stop.
///
/// # Errors
/// As [`check`].
#[inline]
pub fn give_up() -> Result<()> {
    if !STOPPED.get() {
        return Ok(());
    }
    STOPPED.set(false);
    check()?;
    Err(Error::new(Code::Interrupted, "operation was interrupted"))
}

/// Sorts a list stably, in pieces between which the operation is asked.
///
/// # Errors
/// As [`check`].
pub fn sort_by<T: Copy>(
    list: &mut Vec<T>,
    mut compare: impl FnMut(&T, &T) -> Ordering,
) -> Result<()> {
    if list.len() <= SORT_RUN {
        list.sort_by(compare);
        return Ok(());
    }
    for run in list.chunks_mut(SORT_RUN) {
        run.sort_by(&mut compare);
        work(SORT_RUN * 10)?;
    }
    let mut width = SORT_RUN;
    let mut merged: Vec<T> = Vec::with_capacity(list.len());
    while width < list.len() {
        merged.clear();
        for pair in list.chunks(width.saturating_mul(2)) {
            let (mut a, mut b) = pair.split_at(width.min(pair.len()));
            while let (Some((x, more_a)), Some((y, more_b))) = (a.split_first(), b.split_first()) {
                work(4)?;
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

/// Runs `f` with the operation's engine, which is started when it is first needed.
///
/// # Errors
/// 139 JSInterpreterFailure; what stops the operation; what `f` raises.
pub fn with_engine<T>(f: impl FnOnce(&mut Engine) -> Result<T>) -> Result<T> {
    need_javascript("a function was called")?;
    let mut engine = match ENGINE.take() {
        Some(e) => e,
        None => {
            let operation = OPERATION.with_borrow(Clone::clone);
            let operation = operation.unwrap_or_else(|| Arc::new(NeverInterrupted));
            let (heap, share) = room(&*operation)?;
            Booked {
                engine: Engine::start(operation, heap)?,
                _share: share,
            }
        }
    };
    let out = f(&mut engine.engine);
    // One that was stopped is not used again.
    if !out
        .as_ref()
        .is_err_and(|e| e.code() != Code::JSInterpreterFailure)
    {
        ENGINE.set(Some(engine));
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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
            sort_by(&mut list, |a, b| a.0.cmp(&b.0)).unwrap();
            assert!(list == expected, "{n}");
        }
        let _running = enter(Arc::new(Patience(AtomicUsize::new(3))));
        let mut list: Vec<u32> = (0..1_000_000).rev().collect();
        let e = sort_by(&mut list, Ord::cmp).unwrap_err();
        assert_eq!(e.code(), Code::MaxTimeMSExpired);
    }

    #[test]
    fn what_cannot_fail_gives_up_later() {
        let running = enter(Arc::new(Patience(AtomicUsize::new(0))));
        assert!(!spent(1));
        give_up().unwrap();
        assert!(spent(ASK_EVERY) && spent(1));
        assert_eq!(give_up().unwrap_err().code(), Code::MaxTimeMSExpired);
        assert!(!spent(1));
        assert!(spent(ASK_EVERY));
        drop(running);
        // The next operation knows nothing of it.
        give_up().unwrap();
    }
}
