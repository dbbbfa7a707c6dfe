//! An event that threads wait for: how they line up, and how they are notified.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst, fence};
use std::thread::Thread;

/// An event that threads wait for, with the waiting threads, each of which has a key that says what it waits
/// for.
///
/// A thread that changes the condition of a wait notifies the event afterwards, which costs one load while no
/// thread waits. No notification is lost if the condition is guarded by a lock that both sides take, or
/// consists of atomics that both sides use with `SeqCst`; with weaker orderings the notifier needs a `SeqCst`
/// fence in between.
#[derive(Debug)]
pub struct Event<K = ()> {
    /// The number of waiting threads.
    waiting: AtomicUsize,
    line: Mutex<Line<K>>,
}

/// The waiting threads, in the order of their arrival, so that their numbers ascend.
#[derive(Debug)]
struct Line<K> {
    last: u64,
    all: VecDeque<Waiter<K>>,
}

impl<K> Line<K> {
    fn at(&self, number: u64) -> Option<usize> {
        self.all.binary_search_by_key(&number, |w| w.number).ok()
    }
}

#[derive(Debug)]
struct Waiter<K> {
    number: u64,
    key: K,
    thread: Thread,
    /// The thread was called and has not checked its condition since.
    called: bool,
}

impl<K> Waiter<K> {
    fn call(&mut self) {
        if !std::mem::replace(&mut self.called, true) {
            self.thread.unpark();
        }
    }
}

impl<K> Default for Event<K> {
    fn default() -> Event<K> {
        Event::new()
    }
}

impl<K> Event<K> {
    /// An event without waiting threads.
    pub const fn new() -> Event<K> {
        Event {
            waiting: AtomicUsize::new(0),
            line: Mutex::new(Line {
                last: 0,
                all: VecDeque::new(),
            }),
        }
    }

    /// The number of waiting threads, as of one moment.
    pub fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Makes all waiting threads check their conditions again.
    #[inline]
    pub fn notify_all(&self) {
        self.notify_those(|_| true);
    }

    /// Makes all waiting threads with such a key check their conditions again.
    #[inline]
    pub fn notify_those(&self, are: impl FnMut(&K) -> bool) {
        if self.waiting() > 0 {
            self.call_those(are);
        }
    }

    /// Makes the first waiting thread with such a key check its condition again. If it was called already,
    /// the next one is called. A thread that is called but no longer waits passes the call on.
    #[inline]
    pub fn notify_one(&self, is: impl FnMut(&K) -> bool) {
        if self.waiting() > 0 {
            self.call_one(is);
        }
    }

    /// Calls the threads only after the line is free again, since each of them takes it first.
    #[cold]
    fn call_those(&self, mut are: impl FnMut(&K) -> bool) {
        let mut called = Vec::new();
        {
            let mut line = self.line.lock();
            for waiter in line.all.iter_mut().filter(|w| are(&w.key)) {
                if !std::mem::replace(&mut waiter.called, true) {
                    called.push(waiter.thread.clone());
                }
            }
        }
        called.iter().for_each(Thread::unpark);
    }

    #[cold]
    fn call_one(&self, mut is: impl FnMut(&K) -> bool) {
        let mut line = self.line.lock();
        let mut waiters = line.all.iter_mut();
        if let Some(waiter) = waiters.find(|w| !w.called && is(&w.key)) {
            waiter.call();
        }
    }

    pub(crate) fn enter(&self, key: K, thread: &Thread) -> u64 {
        let mut line = self.line.lock();
        line.last += 1;
        let number = line.last;
        line.all.push_back(Waiter {
            number,
            key,
            thread: thread.clone(),
            called: false,
        });
        self.waiting.store(line.all.len(), SeqCst);
        // The thread is in the line before it checks its condition.
        fence(SeqCst);
        number
    }

    /// Notes that the waiter is about to check its condition, which answers all calls until now. Returns
    /// whether there was one.
    pub(crate) fn hear(&self, number: u64) -> bool {
        let mut line = self.line.lock();
        let at = line.at(number);
        let waiter = at.and_then(|at| line.all.get_mut(at));
        waiter.is_some_and(|waiter| std::mem::take(&mut waiter.called))
    }
}

impl<K: PartialEq> Event<K> {
    /// Removes a waiter. If it was called since it last checked, the call may have been meant for one thread
    /// alone, so the next waiter with the same key gets it.
    pub(crate) fn leave(&self, number: u64) {
        let mut line = self.line.lock();
        let at = line.at(number);
        let Some(left) = at.and_then(|at| line.all.remove(at)) else {
            return;
        };
        self.waiting.store(line.all.len(), SeqCst);
        if left.called {
            let mut others = line.all.iter_mut();
            if let Some(next) = others.find(|w| !w.called && w.key == left.key) {
                next.call();
            }
        }
    }
}
