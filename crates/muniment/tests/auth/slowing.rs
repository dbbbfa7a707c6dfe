//! Guessing passwords is slow, on however many connections, and others are not.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Ends the guessers, also when the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// How many connections guess at once.
const GUESSERS: usize = 60;

#[test]
fn guesses_on_many_connections_take_turns() {
    let server = auth();
    let mut r = root(&server);
    for name in ["guessed", "other"] {
        user(&mut r, name, "['read']");
    }
    let done = AtomicBool::new(false);
    // Tries that got an answer of the server's, by which a guess is judged; tries that were refused before.
    let (judged, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _ends = Ends(&done);
        for _ in 0..GUESSERS {
            let (server, done, judged, refused) = (&server, &done, &judged, &refused);
            scope.spawn(move || {
                let mut c = server.connect();
                while !done.load(SeqCst) {
                    let mut client = client("guessed", "wrong", SHA1);
                    let first = client.first();
                    match sasl_start(&mut c, "own", SHA1, first.as_bytes(), true) {
                        Err(e) => {
                            assert_eq!((e.code().0, e.message()), (18, FAILED));
                            refused.fetch_add(1, SeqCst);
                            // The guesser does not keep the test's machine busy.
                            std::thread::sleep(Duration::from_millis(20));
                        }
                        Ok(reply) => {
                            let answer = client.next(&payload(&reply)).unwrap();
                            let told = sasl_continue(&mut c, "own", answer.as_bytes());
                            assert_eq!(told.unwrap_err().code().0, 18);
                            judged.fetch_add(1, SeqCst);
                        }
                    }
                }
            });
        }
        server.until("tries are refused at once", || {
            (refused.load(SeqCst) > 10).then_some(())
        });
        // While tries wait, others log in and are served at once: there is neither a name, nor a thread, nor a
        // ticket that they have to wait for.
        let began = Instant::now();
        let before = judged.load(SeqCst);
        for _ in 0..20 {
            let mut c = as_user(&server, "other");
            expect(&mut c, "own", 0, &["{find: 'c'}"]);
        }
        let waiting = inprog(
            &mut r,
            "{currentOp: 1, 'command.saslStart': {$exists: true}}",
        );
        let took = began.elapsed();
        // The other's logins came between few guesses, whatever the machine does.
        let between = judged.load(SeqCst) - before;
        let most = 6 + (took.as_secs_f64() / 2.0) as usize;
        assert!(between <= most, "{between} guesses in {took:?}: {waiting}");
        let start = Instant::now();
        let before = judged.load(SeqCst);
        std::thread::sleep(Duration::from_secs(4));
        let guesses = judged.load(SeqCst) - before;
        let most = 6 + (start.elapsed().as_secs_f64() / 2.0) as usize;
        assert!(
            guesses <= most,
            "{guesses} guesses in {:?}",
            start.elapsed()
        );
    });
    let log = server.log();
    let told = log.matches("Logins are refused at once").count();
    assert!((1..=6).contains(&told), "{told}");
    // The name that was guessed at logs in when there is a slot, and does not wait after that.
    let mut c = server.connect();
    server.until("the guessed one logs in", || {
        login(&mut c, "own", "guessed", "pw", SHA1).ok()
    });
    for _ in 0..10 {
        let mut c = as_user(&server, "guessed");
        expect(&mut c, "own", 0, &["{find: 'c'}"]);
    }
}

/// An application that opens many connections at once is not taken for a crowd of guessers: the first login
/// that succeeds lets the others go on.
#[test]
fn many_first_logins_at_once_go_on_with_the_first_that_succeeds() {
    let server = auth();
    let mut r = root(&server);
    user(&mut r, "u", "['read']");
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| as_user(&server, "u"));
        }
    });
    // In turns they would take a minute, and most would be refused.
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn the_slowing_can_be_switched_off() {
    let server = auth();
    let mut r = root(&server);
    user(&mut r, "u", "['read']");
    let off = "{setParameter: 1, munimentSlowFailedLogins: false}";
    run(&mut r, "admin", off);
    let began = Instant::now();
    let mut c = server.connect();
    for _ in 0..30 {
        assert!(login(&mut c, "own", "u", "wrong", SHA1).is_err());
    }
    // In slots this would take half a minute.
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}
