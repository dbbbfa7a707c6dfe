//! Reads that many threads ask for at the same time are made once.
//!
//! When a range has moved, each operation that meets the old version asks for the table anew. They get it from one read
//! or two: all of them may take what was read after they asked. There are two lines, and a thread that stands in one for
//! long goes to the other, so a read that gets no answer holds up nobody else, and no more than two are made at a time.

use muniment_op::{Interrupt, Lock};
use muniment_value::Result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// How long a thread stands in a line.
const PATIENCE: Duration = Duration::from_secs(3);

/// Which reads of others a thread may take the result of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Those that end after it asked.
    UnderWay,
    /// Those that begin after it asked.
    Later,
}

/// The reads that go on, by the names of what is read.
pub struct Together<T>(Mutex<HashMap<String, Arc<Reading<T>>>>);

impl<T> Default for Together<T> {
    fn default() -> Together<T> {
        Together(Mutex::default())
    }
}

/// Reads of one thing, one at a time in each line.
struct Reading<T> {
    lines: [Lock<()>; 2],
    /// The numbers of the read that has begun last, and of the last one of those that have ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// That one's number, and what it came to.
    last: Mutex<Option<(u64, Result<T>)>>,
}

impl<T> Default for Reading<T> {
    fn default() -> Reading<T> {
        Reading {
            lines: [Lock::new(()), Lock::new(())],
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            last: Mutex::new(None),
        }
    }
}

impl<T: Clone> Together<T> {
    /// What `read` gives, be it called by this thread or by another one that asked for the same. Its error counts for
    /// all, but for one that comes from the operation of the reading thread.
    ///
    /// # Errors
    /// Those of `read`; what `on` says meanwhile.
    pub fn read(
        &self,
        on: &dyn Interrupt,
        (name, takes): (&str, Takes),
        read: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let reading = {
            let mut all = self.0.lock();
            match all.get(name) {
                Some(reading) => Arc::clone(reading),
                None => Arc::clone(all.entry(name.to_string()).or_default()),
            }
        };
        let done = reading.read(on, (takes, PATIENCE), read);
        let mut all = self.0.lock();
        // The map has one, and this thread the other.
        if Arc::strong_count(&reading) == 2 {
            all.remove(name);
        }
        // While the map is locked: otherwise another thread would count this one, too.
        drop(reading);
        drop(all);
        done
    }
}

impl<T: Clone> Reading<T> {
    fn read(
        &self,
        on: &dyn Interrupt,
        (takes, patience): (Takes, Duration),
        read: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = match takes {
            Takes::UnderWay => self.ended.load(SeqCst),
            Takes::Later => self.begun.load(SeqCst),
        };
        let of_others = || {
            let last = self.last.lock();
            let (number, done) = last.as_ref()?;
            (*number > before).then(|| done.clone())
        };
        let mut lines = self.lines.iter().cycle();
        let _alone = loop {
            let Some(line) = lines.next() else { continue };
            let alone = line.lock_until(on, muniment_op::now() + patience)?;
            if let Some(done) = of_others() {
                return done;
            }
            if let Some(alone) = alone {
                break alone;
            }
        };
        let number = self.begun.fetch_add(1, SeqCst) + 1;
        let done = read();
        if done.is_ok() || on.check().is_ok() {
            let mut last = self.last.lock();
            if last.as_ref().is_none_or(|(other, _)| *other < number) {
                *last = Some((number, done.clone()));
            }
        }
        self.ended.fetch_max(number, SeqCst);
        done
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{PATIENCE, Takes, Together};
    use muniment_op::{Interrupt, NeverInterrupted, Sleepers};
    use muniment_value::{Code, Error, Result};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    /// While a read goes on, `many` threads ask for the same; the results of all, the reader's first.
    fn meanwhile(
        takes: Takes,
        many: usize,
        read: impl Fn(usize) -> Result<usize> + Sync,
    ) -> Vec<Result<usize>> {
        let together = Together::default();
        let reads = AtomicUsize::new(0);
        let next = || read(reads.fetch_add(1, SeqCst));
        thread::scope(|scope| {
            let (begins, begun) = channel();
            let (ends, end) = channel::<()>();
            let (together, next) = (&together, &next);
            let first = scope.spawn(move || {
                together.read(&NeverInterrupted, ("c", takes), || {
                    begins.send(()).unwrap();
                    end.recv().unwrap();
                    next()
                })
            });
            begun.recv().unwrap();
            let ask = move || together.read(&NeverInterrupted, ("c", takes), next);
            let others: Vec<_> = (0..many).map(|_| scope.spawn(ask)).collect();
            let waiting = || {
                let all = together.0.lock();
                all.get("c").unwrap().lines[0].waiting()
            };
            while waiting() < many {
                thread::sleep(Duration::from_millis(1));
            }
            ends.send(()).unwrap();
            let all = [first].into_iter().map(|t| t.join().unwrap());
            let all: Vec<_> = all
                .chain(others.into_iter().map(|t| t.join().unwrap()))
                .collect();
            assert!(together.0.lock().is_empty());
            all
        })
    }

    #[test]
    fn all_that_ask_during_a_read_share_the_next_one() {
        let all = meanwhile(Takes::Later, 20, Ok);
        assert_eq!(*all[0].as_ref().unwrap(), 0);
        assert!(
            all[1..].iter().all(|n| *n.as_ref().unwrap() == 1),
            "{all:?}"
        );
    }

    #[test]
    fn those_that_may_share_the_read_under_way() {
        let all = meanwhile(Takes::UnderWay, 20, Ok);
        assert!(all.iter().all(|n| *n.as_ref().unwrap() == 0), "{all:?}");
    }

    #[test]
    fn an_error_counts_for_all() {
        let read = |n| Err(Error::new(Code::HostUnreachable, format!("read {n}")));
        let all = meanwhile(Takes::Later, 20, read);
        let texts = all[1..].iter().map(|e| e.as_ref().unwrap_err().message());
        assert!(texts.into_iter().all(|text| text == "read 1"), "{all:?}");
    }

    struct Killed;

    impl Interrupt for Killed {
        fn check(&self) -> Result<()> {
            Err(Error::new(Code::Interrupted, "killed"))
        }

        fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
    }

    #[test]
    fn the_end_of_the_reading_operation_is_its_own() {
        let reading = super::Reading::default();
        let how = (Takes::UnderWay, PATIENCE);
        let killed = reading.read(&Killed, how, || -> Result<usize> {
            Killed.check().map(|()| 1)
        });
        assert_eq!(killed.unwrap_err().code(), Code::Interrupted);
        let next = reading.read(&NeverInterrupted, how, || Ok(2));
        assert_eq!(next.unwrap(), 2);
    }

    #[test]
    fn what_has_ended_before_is_read_again() {
        let reading = super::Reading::default();
        for takes in [Takes::UnderWay, Takes::Later] {
            for n in 0..3 {
                let read = reading.read(&NeverInterrupted, (takes, PATIENCE), || Ok(n));
                assert_eq!(read.unwrap(), n);
            }
        }
    }

    #[test]
    fn a_read_without_an_answer_holds_up_nobody() {
        let reading = super::Reading::default();
        let how = (Takes::Later, Duration::from_millis(10));
        for stuck in &reading.lines {
            let _stuck = stuck.lock();
            let read = reading.read(&NeverInterrupted, how, || Ok(1));
            assert_eq!(read.unwrap(), 1);
        }
        // With both of them stuck, all wait until one goes on.
        let stuck = reading.lines.each_ref().map(|line| line.lock());
        let reads = AtomicUsize::new(0);
        let ask = || reading.read(&NeverInterrupted, how, || Ok(reads.fetch_add(1, SeqCst)));
        thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            thread::sleep(Duration::from_millis(50));
            assert_eq!(reads.load(SeqCst), 0);
            drop(stuck);
            all.into_iter().for_each(|t| drop(t.join().unwrap()));
        });
        // Each of them asked before any read began.
        assert!(reads.load(SeqCst) <= 2);
    }
}
