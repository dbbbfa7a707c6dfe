//! A question to another thread, and its answer.

use crate::event::Event;
use crate::interrupt::Interrupt;
use muniment_value::Result;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Makes a question. The first end is for the thread that answers it, once, and the second for the one that
/// waits.
pub fn question<T>() -> (Teller<T>, Answer<T>) {
    let slot = Arc::new(Slot {
        told: Mutex::new(None),
        over: AtomicBool::new(false),
        event: Event::new(),
    });
    (Teller(Arc::clone(&slot)), Answer(slot))
}

struct Slot<T> {
    told: Mutex<Option<T>>,
    /// Set when the answer was given, or the thread that could give it has gone.
    over: AtomicBool,
    event: Event,
}

impl<T> Slot<T> {
    fn end(&self) {
        self.over.store(true, SeqCst);
        self.event.notify_all();
    }
}

/// The end of the thread that answers. If it is dropped without an answer, there will be none.
pub struct Teller<T>(Arc<Slot<T>>);

impl<T> Teller<T> {
    /// Gives the answer. Only the first one counts.
    pub fn tell(&self, answer: T) {
        self.0.told.lock().get_or_insert(answer);
        self.0.end();
    }
}

impl<T> Drop for Teller<T> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The end of the thread that waits for the answer.
pub struct Answer<T>(Arc<Slot<T>>);

impl<T> Answer<T> {
    /// Waits for the answer; `None` if there will be none. An answer that was given before the operation had
    /// to stop is returned.
    ///
    /// # Errors
    /// The error of `on`.
    pub fn wait(self, on: &dyn Interrupt) -> Result<Option<T>> {
        let waited = self.0.event.wait(on, || self.0.over.load(SeqCst));
        match self.0.told.lock().take() {
            Some(answer) => Ok(Some(answer)),
            None => waited.map(|()| None),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::sleepers::Sleepers;
    use muniment_value::{Code, Error};

    /// Gives the answer at the very moment in which the operation is asked whether it must stop, and it must.
    struct Tells(Mutex<Option<Teller<i32>>>);

    impl Interrupt for Tells {
        fn check(&self) -> Result<()> {
            if let Some(teller) = self.0.lock().take() {
                teller.tell(1);
            }
            Err(Error::new(Code::Interrupted, "over"))
        }

        fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
    }

    #[test]
    fn an_answer_that_was_given_counts() {
        let (teller, answer) = question();
        let tells = Tells(Mutex::new(Some(teller)));
        assert_eq!(answer.wait(&tells).unwrap(), Some(1));
        let (teller, answer) = question::<i32>();
        assert!(answer.wait(&Tells(Mutex::new(None))).is_err());
        drop(teller);
    }
}
