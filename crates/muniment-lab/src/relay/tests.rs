//! Tests the relay with sockets: it must never change bytes, its times must be right, and a
//! partition must look right from both ends.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::conditions::{Both, Conditions, Direction, What};
use super::measure::{ANY, bulk, round_trips, server};
use super::{Link, Relay, Route};
use muniment_load::rng::Rng;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn relay(to: SocketAddr, both: Conditions) -> (Relay, Link) {
    let route = Route {
        listen: ANY,
        to,
        conditions: Both {
            out: both,
            back: both,
        },
        refuse: false,
    };
    let relay = Relay::start(&[route], 7).unwrap();
    let link = relay.links().pop().unwrap();
    (relay, link)
}

/// Makes a connection through a new relay and returns both of its ends.
fn pair(both: Conditions) -> (Relay, Link, TcpStream, TcpStream) {
    let listener = TcpListener::bind(ANY).unwrap();
    let (relay, link) = relay(listener.local_addr().unwrap(), both);
    let near = TcpStream::connect(link.address()).unwrap();
    let far = listener.accept().unwrap().0;
    for s in [&near, &far] {
        s.set_nodelay(true).unwrap();
        s.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    (relay, link, near, far)
}

fn send(s: &mut TcpStream, text: &[u8]) {
    s.write_all(text).unwrap();
}

#[track_caller]
fn gets(s: &mut TcpStream, want: &[u8]) {
    let mut got = vec![0; want.len()];
    s.read_exact(&mut got).unwrap();
    assert_eq!(got, want);
}

/// Asserts that nothing arrives for a while.
#[track_caller]
fn silent(s: &mut TcpStream) {
    s.set_read_timeout(Some(millis(150))).unwrap();
    let e = s.read(&mut [0]).unwrap_err();
    assert!(matches!(
        e.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut
    ));
    s.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
}

/// A stream's bytes, which follow from its seed.
fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words = (0..length.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes());
    let mut all: Vec<u8> = words.collect();
    all.truncate(length);
    all
}

/// Sends `bytes` in pieces of all sizes, with occasional pauses.
fn trickle(mut s: &TcpStream, bytes: &[u8], seed: u64) {
    let mut rng = Rng::new(seed);
    let mut rest = bytes;
    while !rest.is_empty() {
        let most = [1, 50, 3000, 200_000][rng.below(4) as usize];
        let (now, later) = rest.split_at(rest.len().min(1 + rng.below(most) as usize));
        s.write_all(now).unwrap();
        rest = later;
        if rng.below(8) == 0 {
            std::thread::sleep(Duration::from_micros(rng.below(2000)));
        }
    }
    s.shutdown(Shutdown::Write).unwrap();
}

/// Many connections send both ways at once while the link is changed, cut and healed all the time.
/// Every stream must arrive whole, in order and with its end.
#[test]
fn bytes_are_never_changed_reordered_or_lost() {
    const CONNECTIONS: u64 = 24;
    const LENGTH: usize = 700_000;
    let listener = TcpListener::bind(ANY).unwrap();
    let (relay, link) = relay(
        listener.local_addr().unwrap(),
        Conditions {
            jitter: millis(3),
            loss: 0.01,
            timeout: Some(millis(5)),
            ..Conditions::delayed(millis(3))
        },
    );
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (over, link, listener) = (&over, &link, &listener);
        let control = relay.control().clone();
        scope.spawn(move || {
            let mut rng = Rng::new(3);
            while !over.load(Ordering::Acquire) {
                let direction = [None, Some(Direction::Out), Some(Direction::Back)];
                let direction = direction[rng.below(3) as usize];
                let what = match rng.below(8) {
                    0 => What::Delay(millis(rng.below(8))),
                    1 => What::Bandwidth(Some(2_000_000 + rng.below(60_000_000))),
                    2 => What::Bandwidth(None),
                    3 => What::Jitter(millis(rng.below(5))),
                    // Closing a port resets connections that have just arrived, so this waits until
                    // all are made.
                    4 if control.figures().unwrap().connections == CONNECTIONS => {
                        What::Refuse(rng.below(2) == 0)
                    }
                    5 => What::Cut,
                    _ => What::Heal,
                };
                link.change(direction, what).unwrap();
                std::thread::sleep(millis(rng.below(10)));
            }
            link.change(None, What::Heal).unwrap();
        });
        let far = scope.spawn(move || {
            let mut ends = Vec::new();
            for _ in 0..CONNECTIONS {
                let (mut s, _) = listener.accept().unwrap();
                ends.push(scope.spawn(move || {
                    // The first eight bytes name the stream.
                    let mut name = [0; 8];
                    s.read_exact(&mut name).unwrap();
                    let seed = u64::from_le_bytes(name);
                    let back = content(!seed, LENGTH);
                    std::thread::scope(|both| {
                        both.spawn(|| trickle(&s, &back, seed));
                        let mut all = Vec::new();
                        (&s).read_to_end(&mut all).unwrap();
                        assert!(all == content(seed, LENGTH), "stream {seed} out");
                    });
                }));
            }
            for e in ends {
                e.join().unwrap();
            }
        });
        let near: Vec<_> = (0..CONNECTIONS)
            .map(|seed| {
                scope.spawn(move || {
                    let mut s = TcpStream::connect(link.address()).unwrap();
                    s.write_all(&seed.to_le_bytes()).unwrap();
                    let out = content(seed, LENGTH);
                    std::thread::scope(|both| {
                        both.spawn(|| trickle(&s, &out, seed));
                        let mut all = Vec::new();
                        (&s).read_to_end(&mut all).unwrap();
                        assert!(all == content(!seed, LENGTH), "stream {seed} back");
                    });
                })
            })
            .collect();
        for n in near {
            n.join().unwrap();
        }
        far.join().unwrap();
        over.store(true, Ordering::Release);
    });
    let f = relay.control().figures().unwrap();
    assert_eq!((f.connections, f.trouble), (CONNECTIONS, None));
    let want = CONNECTIONS * LENGTH as u64;
    assert_eq!((f.bytes.out, f.bytes.back), (want + 8 * CONNECTIONS, want));
}

#[test]
fn a_round_trip_takes_what_it_should_and_little_more() {
    let (_relay, link) = relay(server().unwrap(), Conditions::delayed(millis(10)));
    let all = round_trips(link.address(), 60, Duration::from_secs(10), Duration::ZERO).unwrap();
    // A round trip is never shorter than the delay. The machine may be busy, so there is an upper
    // bound for the median only.
    assert!(all.min_ms() >= 19.99, "{}", all.min_ms());
    assert!(all.quantile_ms(0.5) < 60.0, "{}", all.quantile_ms(0.5));
    // The first byte of a connection arrives after the three ways of the handshake and its own.
    let t = Instant::now();
    round_trips(link.address(), 0, Duration::ZERO, Duration::ZERO).unwrap();
    assert!(t.elapsed() >= millis(40), "{:?}", t.elapsed());
}

#[test]
fn a_long_fat_pipe_is_filled() {
    let both = Conditions {
        bandwidth: Some(100_000_000),
        ..Conditions::delayed(millis(45))
    };
    let (relay, link) = relay(server().unwrap(), both);
    let (rate, total) = bulk(link.address(), millis(1500)).unwrap();
    let mb = rate / 1e6;
    assert!((5.0..=125.0).contains(&mb), "{mb} MB/s, {total} bytes");
    // Two connections share the bandwidth.
    let (a, b) = std::thread::scope(|s| {
        let to = link.address();
        let one = s.spawn(move || bulk(to, millis(1000)).unwrap().0);
        let two = s.spawn(move || bulk(to, millis(1000)).unwrap().0);
        (one.join().unwrap() / 1e6, two.join().unwrap() / 1e6)
    });
    assert!(a + b < 140.0 && a.min(b) > 2.0, "{a} and {b} MB/s");
    drop(relay);
}

#[test]
fn a_partition_holds_everything_and_a_heal_lets_it_go() {
    let (_relay, link, mut near, mut far) = pair(Conditions::delayed(millis(5)));
    send(&mut near, b"one");
    gets(&mut far, b"one");
    link.change(None, What::Cut).unwrap();
    send(&mut near, b"two");
    send(&mut far, b"eins");
    near.shutdown(Shutdown::Write).unwrap();
    silent(&mut far);
    silent(&mut near);
    let t = Instant::now();
    link.change(None, What::Heal).unwrap();
    gets(&mut near, b"eins");
    assert!(t.elapsed() >= millis(5));
    gets(&mut far, b"two");
    // The end arrived meanwhile as well.
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
    send(&mut far, b"zwei");
    gets(&mut near, b"zwei");
}

#[test]
fn a_partition_of_one_way_leaves_the_other() {
    let (_relay, link, mut near, mut far) = pair(Conditions::default());
    link.change(Some(Direction::Out), What::Cut).unwrap();
    send(&mut near, b"lost?");
    send(&mut far, b"heard");
    gets(&mut near, b"heard");
    silent(&mut far);
    link.change(Some(Direction::Out), What::Heal).unwrap();
    link.change(Some(Direction::Back), What::Cut).unwrap();
    gets(&mut far, b"lost?");
    send(&mut far, b"later");
    silent(&mut near);
    link.change(None, What::Heal).unwrap();
    gets(&mut near, b"later");
}

#[test]
fn new_connections_hang_or_are_refused() {
    let to = server().unwrap();
    let (_relay, link) = relay(to, Conditions::default());
    link.change(None, What::Cut).unwrap();
    let mut hangs = TcpStream::connect(link.address()).unwrap();
    send(&mut hangs, b"eover");
    silent(&mut hangs);
    link.change(None, What::Refuse(true)).unwrap();
    let e = TcpStream::connect(link.address()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
    // A connection that existed before the cut stays open.
    silent(&mut hangs);
    link.change(Some(Direction::Out), What::Heal).unwrap();
    let e = TcpStream::connect(link.address()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
    // Making a connection needs both ways, so one cut direction is enough to stop it.
    silent(&mut hangs);
    link.change(None, What::Heal).unwrap();
    gets(&mut hangs, b"over");
    round_trips(link.address(), 1, Duration::ZERO, Duration::ZERO).unwrap();
}

#[test]
fn ends_and_resets_go_through() {
    let (_relay, _, mut near, mut far) = pair(Conditions::delayed(millis(5)));
    send(&mut near, b"all");
    near.shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    far.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"all");
    // The other half of the connection is still open.
    send(&mut far, b"answer");
    drop(far);
    all.clear();
    near.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"answer");

    let (relay, _, near, mut far) = pair(Conditions::delayed(millis(5)));
    // Because of the unread bytes, the kernel sends a reset instead of an end.
    send(&mut far, b"never read");
    std::thread::sleep(millis(60));
    drop(near);
    let e = loop {
        match far.read(&mut [0; 16]) {
            Ok(0) => panic!("an end instead of a reset"),
            Ok(_) => {}
            Err(e) => break e,
        }
    };
    assert_eq!(e.kind(), ErrorKind::ConnectionReset);
    let begin = Instant::now();
    while relay.control().figures().unwrap().open > 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "it stays open");
        std::thread::sleep(millis(1));
    }
}

#[test]
fn who_sends_to_somebody_who_has_closed_is_reset() {
    let (_relay, _, mut near, far) = pair(Conditions::default());
    drop(far);
    // The end arrives first, as if only one direction had ended.
    assert_eq!(near.read(&mut [0]).unwrap(), 0);
    let begin = Instant::now();
    while near.write_all(b"anybody there?").is_ok() {
        assert!(begin.elapsed() < Duration::from_secs(20), "nobody says so");
        std::thread::sleep(millis(1));
    }
}

#[test]
fn nobody_at_the_other_end_is_a_reset_after_a_round_trip() {
    let nobody = muniment_wire::Reserved::new().unwrap();
    let (_relay, link) = relay(nobody.address(), Conditions::delayed(millis(20)));
    let mut s = TcpStream::connect(link.address()).unwrap();
    let t = Instant::now();
    let e = s.read(&mut [0]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ConnectionReset);
    assert!(t.elapsed() >= millis(38), "{:?}", t.elapsed());
}

#[test]
fn a_dropped_relay_is_gone_with_its_connections() {
    let (relay, link, mut near, mut far) = pair(Conditions::delayed(millis(1)));
    link.change(None, What::Cut).unwrap();
    send(&mut near, b"held");
    drop(relay);
    // The end is reported as an end or a reset; none of the held bytes arrive.
    assert_eq!(near.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(far.read(&mut [0]).unwrap_or(0), 0);
    assert!(TcpStream::connect(link.address()).is_err());
    let e = link.change(None, What::Heal).unwrap_err();
    assert!(e.0.contains("has ended"), "{e}");
}

#[test]
fn a_thousand_connections_are_served_by_one_thread() {
    const MANY: usize = 1000;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit {
        current: limit.maximum,
        ..limit
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
    let listener = TcpListener::bind(ANY).unwrap();
    let (relay, link) = relay(
        listener.local_addr().unwrap(),
        Conditions::delayed(millis(2)),
    );
    let far = std::thread::spawn(move || {
        let all: Vec<TcpStream> = (0..MANY).map(|_| listener.accept().unwrap().0).collect();
        for mut s in &all {
            let mut number = [0; 8];
            s.read_exact(&mut number).unwrap();
            let n = u64::from_le_bytes(number);
            s.write_all(&(n * 3).to_le_bytes()).unwrap();
        }
        all
    });
    let mut all: Vec<TcpStream> = (0..MANY)
        .map(|_| TcpStream::connect(link.address()).unwrap())
        .collect();
    for (n, s) in all.iter_mut().enumerate() {
        send(s, &(n as u64).to_le_bytes());
    }
    for (n, s) in all.iter_mut().enumerate() {
        gets(s, &(n as u64 * 3).to_le_bytes());
    }
    let figures = relay.control().figures().unwrap();
    assert_eq!(figures.open as usize, MANY);
    drop(far.join().unwrap());
    let relays = std::fs::read_dir("/proc/self/task").unwrap().filter(|t| {
        let name = t.as_ref().unwrap().path().join("comm");
        std::fs::read_to_string(name).is_ok_and(|n| n.trim() == "relay")
    });
    // Other tests run one relay each at the same time.
    assert!(relays.count() < 50);
}
