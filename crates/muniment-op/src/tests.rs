//! Waits that end for each possible reason, and notifications that are not lost.

use crate::*;
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The length of a wait that should end early. If it does not, the tests fail after this time.
const NEVER: Duration = Duration::from_secs(600);

/// A wait ends within this time after its cause, however busy the machine is.
const SOON: Duration = Duration::from_secs(20);

fn operation(limit: Option<Duration>) -> Operation {
    Operation::new(Instant::now(), limit)
}

/// Waits in another thread for an event that never comes, and returns the error and the time from the end of
/// `end` to the end of the wait.
fn ended_by(on: &dyn Interrupt, end: impl FnOnce()) -> (Code, Duration) {
    let event = Event::new();
    std::thread::scope(|s| {
        let waiting = s.spawn(|| {
            let until = Instant::now() + NEVER;
            let e = event.wait_until(on, until, || false).unwrap_err();
            (e.code(), Instant::now())
        });
        // A wait with a short limit may be over before this thread sees it.
        while event.waiting() == 0 && !waiting.is_finished() {
            std::thread::yield_now();
        }
        // By now the thread usually sleeps. If not, `end` runs at a rarer moment, which is tested as well.
        std::thread::sleep(Duration::from_millis(5));
        end();
        let ended = Instant::now();
        let (code, at) = waiting.join().unwrap();
        assert_eq!(event.waiting(), 0);
        (code, at.saturating_duration_since(ended))
    })
}

#[test]
fn a_kill_a_leaving_client_and_a_deadline_end_a_wait() {
    let op = operation(None);
    let (code, late) = ended_by(&op, || assert!(op.kill(Code::Interrupted)));
    assert_eq!(code, Code::Interrupted);
    assert!(late < SOON, "{late:?}");
    println!("kill: {late:?}");

    let client = Arc::new(Client::new());
    let op = operation(None).of_client(Some(client.clone()));
    std::thread::sleep(GRACE);
    let (code, late) = ended_by(&op, || client.leave());
    assert_eq!(code, Code::ClientDisconnect);
    assert!(late < SOON, "{late:?}");
    println!("client: {late:?}");
    // A kill also reaches the threads of an operation that has a client.
    let client = Arc::new(Client::new());
    let op = operation(None).of_client(Some(client));
    let (code, _) = ended_by(&op, || assert!(op.kill(Code::Interrupted)));
    assert_eq!(code, Code::Interrupted);

    let limit = Duration::from_millis(40);
    let op = operation(Some(limit));
    let (code, _) = ended_by(&op, || {});
    assert_eq!(code, Code::MaxTimeMSExpired);
    let took = op.started().elapsed();
    assert!(took >= limit && took < limit + SOON, "{took:?}");
    println!("deadline: {:?}", took - limit);
}

#[test]
fn a_part_ends_with_the_whole() {
    let whole = Arc::new(operation(None));
    let part = operation(None).part_of(Some(whole.clone()));
    let (code, _) = ended_by(&part, || assert!(whole.kill(Code::Interrupted)));
    assert_eq!(code, Code::Interrupted);
    let whole = Arc::new(operation(Some(Duration::from_millis(30))));
    let part = operation(None).part_of(Some(whole));
    assert_eq!(ended_by(&part, || {}).0, Code::MaxTimeMSExpired);
}

#[test]
fn a_short_operation_is_finished_for_a_client_that_has_gone() {
    let client = Arc::new(Client::new());
    client.leave();
    let op = operation(None).of_client(Some(client));
    // On a slow machine the grace time may be over already.
    let goes_on = op.check();
    assert!(goes_on.is_ok() || op.started().elapsed() >= GRACE);
    let (code, _) = ended_by(&op, || {});
    assert_eq!(code, Code::ClientDisconnect);
    assert!(op.started().elapsed() >= GRACE);
}

#[test]
fn a_reason_that_is_passed_over_hides_no_other() {
    let passed = Code::InterruptedDueToReplStateChange;
    let code = |r: Result<()>| r.err().map(|e| e.code());
    let op = operation(None);
    assert!(op.kill(passed));
    assert!(!op.kill(passed));
    assert_eq!(code(op.check()), Some(passed));
    assert_eq!(code(op.check_but_for(passed)), None);
    assert!(op.kill(Code::Interrupted));
    assert!(!op.kill(passed));
    op.spare(passed);
    for found in [op.check(), op.check_but_for(passed)] {
        assert_eq!(code(found), Some(Code::Interrupted));
    }
    let op = operation(Some(Duration::ZERO));
    op.kill(passed);
    let found = code(op.check_but_for(passed));
    assert_eq!(found, Some(Code::MaxTimeMSExpired));
    let op = operation(None);
    op.kill(passed);
    op.spare(passed);
    assert_eq!(code(op.check()), None);
}

#[test]
fn no_call_is_lost() {
    // One thread hands numbers to another one; both sleep without a limit in between.
    const ROUNDS: usize = 20_000;
    let (there, back) = (Event::new(), Event::new());
    let (sent, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|s| {
        s.spawn(|| {
            for n in 1..=ROUNDS {
                let came = || sent.load(SeqCst) == n;
                there.wait(&NeverInterrupted, came).unwrap();
                seen.store(n, SeqCst);
                back.notify_one(|()| true);
            }
        });
        for n in 1..=ROUNDS {
            sent.store(n, SeqCst);
            there.notify_all();
            let answered = || seen.load(SeqCst) == n;
            back.wait(&NeverInterrupted, answered).unwrap();
        }
    });
}

#[test]
fn of_many_that_wait_each_gets_its_turn_and_a_kill_loses_no_call() {
    // Many threads want one of a few places, and some of them are killed while they wait. A thread that gives
    // a place back calls only one waiter, and yet no thread may sleep for ever.
    let places = Mutex::new(2_u32);
    let freed = Event::new();
    let (inside, done, killed) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    let ops: Vec<Operation> = (0..16).map(|_| operation(None)).collect();
    std::thread::scope(|s| {
        for op in &ops {
            s.spawn(|| {
                for _ in 0..400 {
                    let take = || {
                        let mut places = places.lock();
                        *places = places.checked_sub(1)?;
                        Some(())
                    };
                    if freed.wait_for((), op, take).is_err() {
                        killed.fetch_add(1, SeqCst);
                        return;
                    }
                    assert!(inside.fetch_add(1, SeqCst) < 2);
                    std::thread::yield_now();
                    inside.fetch_sub(1, SeqCst);
                    *places.lock() += 1;
                    freed.notify_one(|()| true);
                    done.fetch_add(1, SeqCst);
                }
            });
        }
        for (n, op) in ops.iter().enumerate().filter(|(n, _)| n % 2 == 0) {
            while done.load(SeqCst) < n * 20 {
                std::thread::yield_now();
            }
            op.kill(Code::Interrupted);
        }
    });
    assert_eq!(*places.lock(), 2);
    assert!(killed.into_inner() <= 8 && done.into_inner() >= 8 * 400);
}

#[test]
fn a_call_for_one_reaches_the_first_of_its_key_alone() {
    let event: Event<u32> = Event::new();
    let free: Vec<AtomicBool> = (0..2).map(|_| AtomicBool::new(false)).collect();
    let order = Mutex::new(Vec::new());
    let woken = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for (n, key) in [1_u32, 0, 0].into_iter().enumerate() {
            let (event, free, order, woken) = (&event, &free, &order, &woken);
            s.spawn(move || {
                let take = || {
                    woken.fetch_add(1, SeqCst);
                    free[key as usize].swap(false, SeqCst).then_some(())
                };
                let got = event.wait_for(key, &NeverInterrupted, take);
                order.lock().push(n);
                got.unwrap();
            });
            while event.waiting() != n + 1 || woken.load(SeqCst) != n + 1 {
                std::thread::yield_now();
            }
        }
        for n in 1..=2 {
            free[0].store(true, SeqCst);
            event.notify_one(|key| *key == 0);
            while order.lock().len() != n {
                std::thread::yield_now();
            }
        }
        free[1].store(true, SeqCst);
        event.notify_one(|key| *key == 1);
    });
    assert_eq!(*order.lock(), [1, 2, 0]);
}

#[test]
fn a_lock_goes_from_one_to_the_next_and_a_kill_ends_the_wait_for_it() {
    let lock = Arc::new(Lock::new(0_u32));
    std::thread::scope(|s| {
        for n in 0..8 {
            let lock = &lock;
            s.spawn(move || {
                let op = operation(None);
                for _ in 0..2000 {
                    match n % 2 {
                        0 => *lock.lock_for(&op).unwrap() += 1,
                        _ => *lock.lock_arc_for(&op).unwrap() += 1,
                    }
                }
            });
        }
    });
    assert_eq!(*lock.lock(), 16_000);
    let held = lock.try_lock().unwrap();
    assert!(lock.try_lock_arc().is_none());
    let op = operation(None);
    std::thread::scope(|s| {
        let waits = s.spawn(|| lock.lock_for(&op).map(|held| *held));
        while lock.waiting() == 0 {
            std::thread::yield_now();
        }
        op.kill(Code::Interrupted);
        let e = waits.join().unwrap().unwrap_err();
        assert_eq!(e.code(), Code::Interrupted);
    });
    let soon = Instant::now() + Duration::from_millis(5);
    assert!(lock.lock_until(&NeverInterrupted, soon).unwrap().is_none());
    drop(held);
    assert!(lock.lock_until(&NeverInterrupted, soon).unwrap().is_some());
}

/// An interrupt that tells a test that its operation is asked, which happens after the thread has looked at
/// what it waits for, and that ends the operation when the test says so.
#[derive(Default)]
struct Held {
    asked: AtomicBool,
    go: AtomicBool,
    panics: bool,
}

impl Interrupt for Held {
    fn check(&self) -> Result<()> {
        self.asked.store(true, SeqCst);
        while !self.go.load(SeqCst) {
            std::thread::yield_now();
        }
        assert!(!self.panics, "the operation panics");
        Err(Error::new(Code::Interrupted, "over"))
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
}

#[test]
fn a_thread_that_takes_a_lock_again_and_again_keeps_no_other_out() {
    let lock = Lock::new(());
    for _ in 0..100 {
        let got = AtomicBool::new(false);
        std::thread::scope(|s| {
            let mut held = lock.lock();
            s.spawn(|| {
                let held = lock.lock();
                got.store(true, SeqCst);
                drop(held);
            });
            while lock.waiting() == 0 {
                std::thread::yield_now();
            }
            let mut takes = 0;
            while !got.load(SeqCst) {
                drop(held);
                held = lock.lock();
                takes += 1;
                assert!(takes <= crate::lock::MOST + 1, "it was kept out");
            }
        });
    }
}

#[test]
fn a_lock_that_is_handed_to_a_thread_that_gives_up_goes_on_to_the_next() {
    for panics in [false, true] {
        for others in [0, 1] {
            let lock = Lock::new(());
            let on = Held {
                panics,
                ..Held::default()
            };
            std::thread::scope(|s| {
                let mut held = lock.try_lock();
                let first = s.spawn(|| {
                    let wait = std::panic::AssertUnwindSafe(|| lock.lock_for(&on).map(drop));
                    std::panic::catch_unwind(wait)
                });
                while !on.asked.load(SeqCst) {
                    std::thread::yield_now();
                }
                // It is in the line, and looks no more, so the lock is handed to it in the end.
                while held.is_some() {
                    drop(held);
                    held = lock.try_lock();
                }
                for _ in 0..others {
                    s.spawn(|| drop(lock.lock()));
                }
                while lock.waiting() <= others {
                    std::thread::yield_now();
                }
                on.go.store(true, SeqCst);
                let ended = first.join().unwrap();
                assert_eq!(ended.is_err(), panics);
                assert!(ended.is_err() || ended.is_ok_and(|got| got.is_err()));
                drop(lock.lock());
            });
            assert!(lock.try_lock().is_some());
        }
    }
}

#[test]
fn a_lock_is_lost_by_nobody_that_gives_up_or_panics() {
    let lock = Lock::new(0_u32);
    let done = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for n in 0..8_u32 {
            let (lock, done) = (&lock, &done);
            s.spawn(move || {
                for round in 0..1000_u32 {
                    let until = Instant::now() + Duration::from_micros(u64::from(round % 60));
                    let got = match (n + round) % 3 {
                        0 => Some(lock.lock()),
                        _ => lock.lock_until(&NeverInterrupted, until).unwrap(),
                    };
                    let Some(mut got) = got else { continue };
                    *got += 1;
                    done.fetch_add(1, SeqCst);
                    if round % 50 == n {
                        let panics = std::panic::AssertUnwindSafe(move || {
                            let _got = got;
                            std::panic::resume_unwind(Box::new(()));
                        });
                        std::panic::catch_unwind(panics).unwrap_err();
                    }
                }
            });
        }
    });
    assert_eq!(*lock.try_lock().unwrap() as usize, done.into_inner());
}

#[test]
fn an_answer_comes_or_there_is_none_or_nobody_waits_for_it_any_longer() {
    let (teller, answer) = question();
    std::thread::scope(|s| {
        s.spawn(move || teller.tell(7));
        assert_eq!(answer.wait(&NeverInterrupted).unwrap(), Some(7));
    });
    let (teller, answer) = question::<u32>();
    std::thread::scope(|s| {
        s.spawn(move || drop(teller));
        assert_eq!(answer.wait(&NeverInterrupted).unwrap(), None);
    });
    let (teller, answer) = question::<u32>();
    let op = operation(None);
    std::thread::scope(|s| {
        let waits = s.spawn(|| answer.wait(&op).unwrap_err().code());
        while !op.is_waiting() {
            std::thread::yield_now();
        }
        op.kill(Code::Interrupted);
        assert_eq!(waits.join().unwrap(), Code::Interrupted);
    });
    teller.tell(8);
}

#[test]
fn two_interrupts_end_what_waits_for_both() {
    for first in [true, false] {
        let (a, b) = (operation(None), operation(None));
        let ends = if first { &a } else { &b };
        let (code, _) = ended_by(&Both(&a, &b), || assert!(ends.kill(Code::Interrupted)));
        assert_eq!(code, Code::Interrupted);
        assert!(!a.is_waiting() && !b.is_waiting());
    }
}

#[test]
fn time_passes_for_a_wait_and_a_sleep() {
    let event = Event::new();
    let until = Instant::now() + Duration::from_millis(20);
    let op = operation(None);
    assert!(!event.wait_until(&op, until, || false).unwrap());
    assert!(Instant::now() >= until);
    let until = Instant::now() + Duration::from_millis(20);
    sleep_until(until, &op).unwrap();
    assert!(Instant::now() >= until);
    op.kill(Code::Interrupted);
    let e = sleep_until(until + NEVER, &op).unwrap_err();
    assert_eq!(e.code(), Code::Interrupted);
}

#[test]
fn an_interrupt_that_nobody_announces_is_asked_when_it_wishes() {
    let asked = AtomicUsize::new(0);
    let third = Asked(|| match asked.fetch_add(1, SeqCst) {
        0 | 1 => Ok(()),
        _ => Err(Error::new(Code::Interrupted, "enough")),
    });
    assert!(Event::new().wait(&third, || false).is_err());
}
