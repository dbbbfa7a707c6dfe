//! Something that threads wait for: how they stand in line, and how they are called.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst, fence};
use std::thread::Thread;

/// What threads wait for, and those that do, each with a key that says for what exactly.
///
/// A thread that changes what is waited for notifies the event afterwards, which is one load while
/// nobody waits. No wake-up is lost if what is waited for is guarded by a lock that both sides take, or made
/// of atomics that both sides use with `SeqCst`; with weaker ones the notifier puts a `SeqCst` fence
/// between.
#[derive(Debug)]
pub struct Event<K = ()> {
    /// How many wait.
    waiting: AtomicUsize,
    line: Mutex<Line<K>>,
}

/// Those that wait, in the order in which they came, so that their numbers ascend.
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
    /// It was called and has not looked since.
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
    /// Nobody waits.
    pub const fn new() -> Event<K> {
        Event {
            waiting: AtomicUsize::new(0),
            line: Mutex::new(Line {
                last: 0,
                all: VecDeque::new(),
            }),
        }
    }

    /// How many wait: a snapshot.
    pub fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// All that wait look again.
    #[inline]
    pub fn notify_all(&self) {
        self.notify_those(|_| true);
    }

    /// All that wait with such a key look again.
    #[inline]
    pub fn notify_those(&self, are: impl FnMut(&K) -> bool) {
        if self.waiting() > 0 {
            self.call_those(are);
        }
    }

    /// The one that came first of those with such a key looks again, unless it has been called already;
    /// then the next one does. A thread that is called and does not wait any longer passes the call on.
    #[inline]
    pub fn notify_one(&self, is: impl FnMut(&K) -> bool) {
        if self.waiting() > 0 {
            self.call_one(is);
        }
    }

    /// The threads are woken when the line is free again, since each of them takes it first.
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
        // Before anything that is waited for is looked at.
        fence(SeqCst);
        number
    }

    /// The waiter looks at what it waits for after this: what it was called for until now is settled.
    pub(crate) fn hear(&self, number: u64) {
        let mut line = self.line.lock();
        let at = line.at(number);
        if let Some(waiter) = at.and_then(|at| line.all.get_mut(at)) {
            waiter.called = false;
        }
    }
}

impl<K: PartialEq> Event<K> {
    /// The waiter goes. If it was called since it last looked, the call may have been meant for one alone:
    /// the next one of its key gets it.
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
