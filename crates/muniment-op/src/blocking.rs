//! How a pool of workers learns that one of its threads blocks.
//!
//! The pool is a property of the thread, not of an operation: each worker registers once, when it starts.

use std::cell::RefCell;
use std::sync::Arc;

/// A pool that wants to know when one of its threads is of no use for a while.
pub trait Blocks {
    /// The calling thread is about to block.
    fn begins(&self);

    /// The calling thread no longer blocks. Called once after each [`Blocks::begins`].
    fn ends(&self);
}

thread_local! {
    static POOL: RefCell<Option<Arc<dyn Blocks>>> = const { RefCell::new(None) };
}

/// Names the pool that the calling thread works for.
pub fn works_for(pool: Arc<dyn Blocks>) {
    POOL.with(|p| *p.borrow_mut() = Some(pool));
}

/// Runs something that may block the calling thread for long, and tells the thread's pool, if it has one.
#[inline]
pub fn blocking<T>(run: impl FnOnce() -> T) -> T {
    let _blocked = Blocked::begin();
    run()
}

/// Ends the announcement when dropped, also by a panic.
struct Blocked(Option<Arc<dyn Blocks>>);

impl Blocked {
    fn begin() -> Blocked {
        let pool = POOL.try_with(|p| p.borrow().clone()).ok().flatten();
        if let Some(pool) = &pool {
            pool.begins();
        }
        Blocked(pool)
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(pool) = &self.0 {
            pool.ends();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{Blocks, blocking, works_for};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

    #[derive(Default)]
    struct Count {
        now: AtomicI32,
        all: AtomicI32,
    }

    impl Blocks for Count {
        fn begins(&self) {
            self.now.fetch_add(1, Relaxed);
            self.all.fetch_add(1, Relaxed);
        }

        fn ends(&self) {
            self.now.fetch_sub(1, Relaxed);
        }
    }

    #[test]
    fn a_pool_learns_of_its_own_threads_only_and_of_the_end_after_a_panic() {
        let count = Arc::new(Count::default());
        blocking(|| assert_eq!(count.all.load(Relaxed), 0));
        let counts = Arc::clone(&count);
        let worker = std::thread::spawn(move || {
            works_for(counts.clone());
            blocking(|| assert_eq!(counts.now.load(Relaxed), 1));
            assert_eq!(counts.now.load(Relaxed), 0);
            blocking(|| std::panic::resume_unwind(Box::new(())));
        });
        assert!(worker.join().is_err());
        assert_eq!(count.now.load(Relaxed), 0);
        assert_eq!(count.all.load(Relaxed), 2);
    }
}
