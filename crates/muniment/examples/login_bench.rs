//! What failed logins tell and what they cost, on a server with `--auth` that has no user yet, or that was used
//! by this before:
//!
//!     muniment serve --auth --port 27099 --dbpath DIR &
//!     cargo run --release -p muniment --example login_bench -- 27099 pairs 10000
//!     cargo run --release -p muniment --example login_bench -- 27099 pressure 7
//!
//! `pairs N`: N logins with a wrong password and N with a wrong name, in random order within each pair, for each
//! mechanism. The difference of the two times is told with its 95 % interval (percentile bootstrap of the
//! median). The slowing of failed logins is off meanwhile.
//!
//! `pressure N`: eight clients find documents by `_id` for a second alone and for a second beside failed logins,
//! a thousand a second for each core, N times. It tells the median ratio of their rates, with the slowing (most
//! tries are refused at once) and without (each is tried).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_auth::scram::Mechanism;
use muniment_auth::scram::client::Client;
use muniment_value::{DocBuf, Result, Value, array, doc};
use muniment_wire::Connection;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MECHANISMS: [&str; 2] = ["SCRAM-SHA-1", "SCRAM-SHA-256"];
const CLIENTS: usize = 8;
const DOCUMENTS: i32 = 10_000;

/// A generator of random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

fn connect(port: u16) -> Connection {
    Connection::connect(&format!("127.0.0.1:{port}")).unwrap()
}

fn nonce() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("nonceOfTheBenchmark{:020}", NEXT.fetch_add(1, SeqCst))
}

/// A login with this password.
fn login(c: &mut Connection, name: &str, password: &str) -> Result<()> {
    let mut client = Client::new(Mechanism::Sha256, name, password, &nonce())?;
    let reply = c.command("admin", &start(MECHANISMS[1], &client.first()))?;
    let answer = client.next(payload(&reply).as_bytes())?;
    c.command("admin", &go_on(&answer)).map(|_| ())
}

fn start(mechanism: &str, first: &str) -> DocBuf {
    let bytes = first.as_bytes();
    doc! {
        "saslStart": 1, "mechanism": mechanism, "payload": Value::Binary { subtype: 0, bytes },
        "options": doc! { "skipEmptyExchange": true },
    }
}

fn go_on(answer: &str) -> DocBuf {
    let bytes = answer.as_bytes();
    doc! { "saslContinue": 1, "conversationId": 1, "payload": Value::Binary { subtype: 0, bytes } }
}

fn payload(reply: &DocBuf) -> String {
    match reply.as_doc().get("payload") {
        Some(Value::Binary { bytes, .. }) => String::from_utf8(bytes.to_vec()).unwrap(),
        _ => panic!("{reply:?}"),
    }
}

/// A login with a proof that is made up, which costs the client nothing: the times of its two commands. `None`
/// if it is refused at once.
fn fail(c: &mut Connection, mechanism: &str, name: &str) -> Option<[Duration; 2]> {
    let first = start(mechanism, &format!("n,,n={name},r={}", nonce()));
    let began = Instant::now();
    let reply = c.command("admin", &first);
    let started = began.elapsed();
    let told = payload(&reply.ok()?);
    let nonce = told.split(',').next().unwrap();
    let proof = match mechanism {
        "SCRAM-SHA-1" => "AAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        _ => "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    };
    let last = go_on(&format!("c=biws,{nonce},p={proof}"));
    let began = Instant::now();
    let e = c.command("admin", &last).unwrap_err();
    assert_eq!(e.code().0, 18, "{e}");
    Some([started, began.elapsed()])
}

/// A connection of root, whom it creates if there is no user yet.
fn root(port: u16) -> Connection {
    let mut c = connect(port);
    let create = doc! { "createUser": "root", "pwd": "rootpw", "roles": array!["root"] };
    let _ = c.command("admin", &create);
    login(&mut c, "root", "rootpw").unwrap();
    c
}

fn slows(root: &mut Connection, on: bool) {
    let set = doc! { "setParameter": 1, "munimentSlowFailedLogins": on };
    root.command("admin", &set).unwrap();
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn pairs(port: u16, n: usize) {
    let mut r = root(port);
    slows(&mut r, false);
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for mechanism in MECHANISMS {
        let mut c = connect(port);
        let mut times = [[const { Vec::new() }; 2], [const { Vec::new() }; 2]];
        for _ in 0..n {
            let known_first = random.next() % 2;
            for i in 0..2 {
                let known = (i == known_first) as usize;
                let name = if known == 1 { "root" } else { "toor" };
                let took = fail(&mut c, mechanism, name).unwrap();
                for (of, took) in times[known].iter_mut().zip(took) {
                    of.push(took.as_secs_f64() * 1e6);
                }
            }
        }
        for (step, name) in ["saslStart", "saslContinue"].into_iter().enumerate() {
            let (nobody, known) = (&times[0][step], &times[1][step]);
            let mut differences: Vec<f64> = nobody.iter().zip(known).map(|(a, b)| a - b).collect();
            let difference = median(&mut differences);
            let spread = differences[n * 3 / 4] - differences[n / 4];
            let mut again = Vec::new();
            for _ in 0..1000 {
                let mut of: Vec<f64> = (0..n)
                    .map(|_| differences[(random.next() % n as u64) as usize])
                    .collect();
                again.push(median(&mut of));
            }
            again.sort_by(f64::total_cmp);
            println!(
                "{mechanism} {name}: wrong password {:.1} us, wrong name {:.1} us; name - password \
                 {difference:.2} us (95 % {:.2} to {:.2}), interquartile range {spread:.1} us",
                median(&mut known.clone()),
                median(&mut nobody.clone()),
                again[25],
                again[974],
            );
        }
    }
    slows(&mut r, true);
}

/// Finds by `_id` in a second, of eight clients; and failed logins, of which so many were refused at once.
fn second(all: &mut [Connection], port: u16, logins: u32) -> (u64, u64, u64) {
    let done = AtomicBool::new(false);
    let finds = AtomicU64::new(0);
    let (mut tried, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        for (i, c) in all.iter_mut().enumerate() {
            let (done, finds) = (&done, &finds);
            scope.spawn(move || {
                let mut random = Random(i as u64 + 1);
                while !done.load(SeqCst) {
                    let id = (random.next() % DOCUMENTS as u64) as i32;
                    let find = doc! { "find": "c", "filter": doc! { "_id": id }, "limit": 1 };
                    c.command("own", &find).unwrap();
                    finds.fetch_add(1, SeqCst);
                }
            });
        }
        let began = Instant::now();
        let mut attacker = connect(port);
        for n in 0..logins {
            let at = began + Duration::from_secs(1) * n / logins;
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if began.elapsed() >= Duration::from_secs(1) {
                break;
            }
            tried += 1;
            refused += u64::from(fail(&mut attacker, MECHANISMS[1], &format!("u{n}")).is_none());
        }
        let rest = Duration::from_secs(1).saturating_sub(began.elapsed());
        std::thread::sleep(rest);
        done.store(true, SeqCst);
    });
    (finds.load(SeqCst), tried, refused)
}

fn pressure(port: u16, turns: usize) {
    let mut r = root(port);
    let _ = r.command("own", &doc! { "drop": "c" });
    let mut documents = muniment_value::ArrayBuf::new();
    for id in 0..DOCUMENTS {
        documents.push(doc! { "_id": id, "text": "x".repeat(100) });
    }
    let insert = doc! { "insert": "c", "documents": documents };
    r.command("own", &insert).unwrap();
    let mut all: Vec<Connection> = (0..CLIENTS).map(|_| root(port)).collect();
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    for on in [true, false] {
        slows(&mut r, on);
        let (mut ratios, mut tried, mut refused) = (Vec::new(), 0, 0);
        second(&mut all, port, 0);
        for turn in 0..turns {
            let mut rates = [0.0; 2];
            for half in 0..2 {
                let beside = (turn + half) % 2;
                let logins = beside as u32 * 1000 * cores;
                let (finds, t, r) = second(&mut all, port, logins);
                rates[beside] = finds as f64;
                (tried, refused) = (tried + t, refused + r);
            }
            ratios.push(rates[1] / rates[0]);
        }
        let ratio = median(&mut ratios);
        println!(
            "slowing {}: the rate beside failed logins is {ratio:.3} of that alone ({:.3} to {:.3} in {turns} \
             turns); {} failed logins a second, {refused} of {tried} refused at once",
            if on { "on" } else { "off" },
            ratios[0],
            ratios[turns - 1],
            tried / turns as u64,
        );
    }
    slows(&mut r, true);
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<usize>().ok());
    match (number(1), args.get(2).map(String::as_str), number(3)) {
        (Some(port), Some("pairs"), Some(n)) if n > 0 => pairs(port as u16, n),
        (Some(port), Some("pressure"), Some(n)) if n > 0 => pressure(port as u16, n),
        _ => {
            eprintln!("usage: login_bench PORT pairs|pressure N");
            std::process::exit(2);
        }
    }
}
