//! What reaches the thread that drives the consensus: events of other threads and members, the door's
//! records, and calls to look again.
//!
//! Invariant: events are taken in the order in which they came. What is put in while the driver rests
//! wakes it, but for messages and reports, after which the caller takes a turn itself
//! ([`Node::help`](super::node::Node::help)), and the record that a request keeps back ([`KeptBack`]).

use super::driver::Event;
use super::frame::Record;
use super::report::Report;
use muniment_consensus::Message;
use muniment_op::Interrupt;
use muniment_storage::{Announce, Announcer};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Instant;

/// So many bytes of records may wait for the driver. While they do, no more is read from other members'
/// connections.
pub const ROOM: usize = 64 << 20;

/// While it lives the driver is not woken for the next record that its request makes. When it is dropped,
/// also by an error or a panic, the driver is told of that record, unless it was told before.
pub struct KeptBack<'n> {
    inbox: &'n Inbox,
    announcer: &'n Announcer,
}

impl<'n> KeptBack<'n> {
    /// Keeps back the next record that is made with this announcer.
    pub fn begin(inbox: &'n Inbox, announcer: &'n Announcer) -> KeptBack<'n> {
        announcer.keep_next();
        KeptBack { inbox, announcer }
    }

    /// Whether a record is kept back, of which the caller is going to tell the driver now. The next one is
    /// kept back again.
    pub fn take(&self) -> bool {
        self.announcer.take()
    }
}

impl Drop for KeptBack<'_> {
    fn drop(&mut self) {
        if self.announcer.end() {
            self.inbox.look();
        }
    }
}

/// What reaches the driver.
#[derive(Default)]
pub struct Inbox {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    /// The driver took what was there.
    room: muniment_op::Event,
    /// The driver waits, or is about to.
    asleep: AtomicBool,
    /// The place of the newest record that the door made.
    appended: AtomicU64,
    /// Somebody is to be told of each record at once.
    eager: AtomicBool,
    /// The log is durable, or visible, further than the driver knows.
    look: AtomicBool,
    /// The driver's thread rests for longer than it may.
    sooner: AtomicBool,
    stop: AtomicBool,
}

/// What waits for the driver.
#[derive(Default)]
struct Waiting {
    events: Vec<Event>,
    /// The bytes of its records.
    bytes: usize,
}

impl Inbox {
    /// Puts something into it.
    pub fn put(&self, event: Event) {
        self.waiting.lock().events.push(event);
        self.wake.notify_one();
    }

    /// Puts a message of another member into it, once there is room for its records or no other records
    /// wait, or once the connection's operation (`on`) or the driver ends. The driver is not woken: see
    /// [`Node::help`](super::node::Node::help).
    pub fn put_message(&self, message: Message, records: Vec<Record>, on: &dyn Interrupt) {
        let bytes = records.iter().map(|r| r.payload.len()).sum::<usize>();
        let full = |w: &Waiting| w.bytes > 0 && w.bytes + bytes > ROOM;
        let mut waiting = self.waiting.lock();
        // After the driver has ended nobody takes what waits, so there never would be room.
        while full(&waiting) && !self.is_stopped() && on.check().is_ok() {
            drop(waiting);
            let room = || self.is_stopped() || !full(&self.waiting.lock());
            let _ = self.room.wait(on, room);
            waiting = self.waiting.lock();
        }
        waiting.bytes += bytes;
        waiting.events.push(Event::Received(message, records));
    }

    /// How many events wait, and the bytes of their records.
    pub fn held(&self) -> (usize, usize) {
        let waiting = self.waiting.lock();
        (waiting.events.len(), waiting.bytes)
    }

    /// Puts another member's report on itself into it. As with [`Inbox::put_message`], the driver is not
    /// woken.
    pub fn put_report(&self, report: Report) {
        self.waiting.lock().events.push(Event::Report(report));
    }

    /// Wakes the driver.
    pub fn wake(&self) {
        self.call();
    }

    /// Somebody has put something into it that nobody has taken.
    pub fn has_news(&self) -> bool {
        self.look.load(SeqCst) || !self.waiting.lock().events.is_empty()
    }

    /// The door made a record, and the driver is to be told of it unless the thread that made it does that.
    /// Called while the door is held, so it costs next to nothing.
    pub fn appended(&self, index: u64, announce: Announce) {
        self.appended.store(index, SeqCst);
        if announce == Announce::Door && self.eager.load(Relaxed) && self.asleep.load(SeqCst) {
            self.call();
        }
    }

    /// The door made a record that the driver does not know.
    pub fn has_more(&self, told: u64) -> bool {
        self.eager.load(Relaxed) && self.appended.load(SeqCst) > told
    }

    /// The log became durable, or what is in it visible.
    pub fn look(&self) {
        self.note_look();
        self.call();
    }

    /// As [`Inbox::look`], where the calling thread is going to take a turn, or the driver takes one soon.
    pub fn note_look(&self) {
        self.look.store(true, SeqCst);
    }

    /// The driver's thread is to see again how long it may rest. Whatever turns others take, this stays
    /// until it has ([`Inbox::rests`]).
    pub fn sooner(&self) {
        self.sooner.store(true, SeqCst);
        self.call();
    }

    /// The driver's thread sees how long it may rest. Like [`Inbox::sooner`] it is called only by the thread
    /// that has the driver.
    pub fn rests(&self) {
        self.sooner.store(false, SeqCst);
    }

    /// The driver's thread has been called by [`Inbox::sooner`].
    pub fn is_called_sooner(&self) -> bool {
        self.sooner.load(SeqCst)
    }

    /// The driver ends.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.call();
        self.room.notify_all();
    }

    /// True once the driver has to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// Whether the driver wants to hear of each record at once: where there are other members.
    pub fn set_eager(&self, eager: bool) {
        self.eager.store(eager, SeqCst);
    }

    fn call(&self) {
        drop(self.waiting.lock());
        self.wake.notify_one();
    }

    /// Waits until something came, or until `until`. `told`: the place of the newest record that the
    /// driver knows.
    pub fn wait(&self, told: u64, until: Instant) {
        let mut waiting = self.waiting.lock();
        loop {
            self.asleep.store(true, SeqCst);
            let new = self.eager.load(Relaxed) && self.appended.load(SeqCst) > told;
            let called = [&self.look, &self.sooner, &self.stop];
            let called = called.iter().any(|flag| flag.load(SeqCst));
            if new || called || !waiting.events.is_empty() || Instant::now() >= until {
                self.asleep.store(false, SeqCst);
                return;
            }
            self.wake.wait_until(&mut waiting, until);
        }
    }

    /// Takes what came. Only the thread that has the driver calls this, so that events stay in order.
    pub fn take(&self) -> Vec<Event> {
        self.look.store(false, SeqCst);
        let came = std::mem::take(&mut *self.waiting.lock()).events;
        self.room.notify_all();
        came
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use bytes::Bytes;
    use muniment_consensus::Body;
    use muniment_op::NeverInterrupted;
    use muniment_value::{Error, Result};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    fn put(inbox: &Inbox, bytes: &Bytes) {
        let message = Message {
            from: 1,
            to: 2,
            term: 1,
            body: Body::Append {
                index: 0,
                log_term: 0,
                commit: 0,
                entries: Vec::new(),
            },
        };
        let record = Record {
            index: 1,
            term: 1,
            at: Default::default(),
            payload: bytes.clone(),
        };
        inbox.put_message(message, vec![record], &NeverInterrupted);
    }

    /// Records that are sent faster than they are stored wait in the sender. One message is always taken,
    /// however long it is.
    #[test]
    fn records_wait_for_room() {
        let inbox = Inbox::default();
        let (half, all) = (
            Bytes::from(vec![0; ROOM / 2]),
            Bytes::from(vec![0; ROOM * 2]),
        );
        put(&inbox, &all);
        assert_eq!(inbox.take().len(), 1);
        put(&inbox, &half);
        put(&inbox, &half);
        std::thread::scope(|s| {
            let third = s.spawn(|| put(&inbox, &half));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!third.is_finished());
            assert_eq!(inbox.take().len(), 2);
            third.join().unwrap();
            assert_eq!(inbox.take().len(), 1);
            // When the driver ends, a thread that waits for room goes on.
            put(&inbox, &all);
            let last = s.spawn(|| put(&inbox, &half));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!last.is_finished());
            inbox.stop();
            last.join().unwrap();
        });
    }

    /// Whether a resting driver is woken by `what`.
    pub fn wakes(inbox: &Inbox, what: impl FnOnce()) -> bool {
        let told = inbox.appended.load(SeqCst);
        inbox.take();
        std::thread::scope(|s| {
            let driver = s.spawn(|| {
                let until = Instant::now() + Duration::from_secs(60);
                inbox.wait(told, until);
            });
            while !inbox.asleep.load(SeqCst) || inbox.waiting.is_locked() {
                std::thread::yield_now();
            }
            what();
            let patience = Instant::now() + Duration::from_millis(100);
            while !driver.is_finished() && Instant::now() < patience {
                std::thread::yield_now();
            }
            let woken = driver.is_finished();
            inbox.look();
            woken
        })
    }

    /// Other threads take turns, too: when they empty the inbox, the call to the driver's thread must stay.
    #[test]
    fn who_rests_too_long_is_called_whatever_others_take() {
        let inbox = Inbox::default();
        assert!(wakes(&inbox, || {
            inbox.sooner();
            inbox.take();
        }));
        inbox.take();
        let began = Instant::now();
        inbox.wait(0, began + Duration::from_secs(60));
        assert!(began.elapsed() < Duration::from_secs(60));
        inbox.rests();
        assert!(!wakes(&inbox, || ()));
    }

    /// What a request does that makes a record as the door does.
    pub fn make(inbox: &Inbox, announcer: &Announcer, index: u64) {
        let committed = announcer.commit(|announce| {
            inbox.appended(index, announce);
            Ok(Some(index))
        });
        assert_eq!(committed.unwrap(), Some(index));
    }

    fn eager() -> (Inbox, Announcer) {
        let inbox = Inbox::default();
        inbox.set_eager(true);
        (inbox, Announcer::default())
    }

    /// One record of a request is kept back, and the driver hears of further ones at once.
    #[test]
    fn one_record_is_kept_back_and_no_other() {
        let (inbox, announcer) = eager();
        assert!(wakes(&inbox, || make(&inbox, &announcer, 1)));
        let kept = KeptBack::begin(&inbox, &announcer);
        assert!(!wakes(&inbox, || make(&inbox, &announcer, 2)));
        for index in 3..5 {
            assert!(wakes(&inbox, || make(&inbox, &announcer, index)));
        }
        // Once the request has told of its record, the next one is kept back.
        assert!(kept.take() && !kept.take());
        assert!(!wakes(&inbox, || make(&inbox, &announcer, 5)));
        assert!(wakes(&inbox, || make(&inbox, &announcer, 6)));
        assert!(wakes(&inbox, || drop(kept)));
        assert!(wakes(&inbox, || make(&inbox, &announcer, 7)));
    }

    /// Where a commit has made no record, the next record is kept back.
    #[test]
    fn what_makes_no_record_uses_nothing_up() {
        let (inbox, announcer) = eager();
        let kept = KeptBack::begin(&inbox, &announcer);
        let refused = announcer.commit(|announce| -> Result<Option<()>> {
            assert_eq!(announce, Announce::Caller);
            Err(Error::internal("refused"))
        });
        assert!(refused.is_err());
        assert_eq!(announcer.commit(|_| Ok(None::<()>)).unwrap(), None);
        assert!(!wakes(&inbox, || make(&inbox, &announcer, 1)));
        assert!(wakes(&inbox, || drop(kept)));
    }

    /// However a request ends, the driver hears of the record that was kept back and not told of, and of
    /// nothing where there is none.
    #[test]
    fn what_was_not_told_is_told_at_the_end() {
        let (inbox, announcer) = eager();
        let kept = KeptBack::begin(&inbox, &announcer);
        assert!(!wakes(&inbox, || make(&inbox, &announcer, 1)));
        assert!(wakes(&inbox, || drop(kept)));
        let kept = KeptBack::begin(&inbox, &announcer);
        assert!(!wakes(&inbox, || drop(kept)));
        let kept = KeptBack::begin(&inbox, &announcer);
        make(&inbox, &announcer, 2);
        assert!(kept.take() && !wakes(&inbox, || drop(kept)));
        let panics = |after_record: bool| {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _kept = KeptBack::begin(&inbox, &announcer);
                if after_record {
                    make(&inbox, &announcer, 3);
                    panic!("after its record");
                }
                let _ = announcer.commit(|announce| -> Result<Option<()>> {
                    inbox.appended(4, announce);
                    panic!("inside the commit");
                });
            }));
            assert!(panicked.is_err());
        };
        assert!(wakes(&inbox, || panics(true)));
        assert!(wakes(&inbox, || panics(false)));
    }
}
