//! Connections that come, go, stall, are killed and run into their time limits, for long and many at a time.
//! When they have gone, nothing of them is left: no connection, thread, descriptor, cursor or memory.
//!
//! `MUNIMENT_LONG=1` has 2,000 connections at a time for half an hour, `MUNIMENT_TEST_WORKERS=0` a thread for
//! each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use muniment_value::{Doc, DocBuf, array, doc};
use muniment_wire::Connection;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use testkit::{Server, ServerOptions, endless, request_bytes};

/// How much is done.
struct Scale {
    /// Threads of the test, each with so many connections.
    threads: u64,
    each: usize,
    /// How long the first part takes, after which there must be nothing left, and the second one, after which
    /// there must be nothing more.
    parts: [Duration; 2],
}

fn scale() -> Scale {
    let seconds = |s| Duration::from_secs(s);
    match std::env::var_os("MUNIMENT_LONG") {
        None => Scale {
            threads: 4,
            each: 60,
            parts: [seconds(5), seconds(5)],
        },
        Some(_) => Scale {
            threads: 8,
            each: 250,
            parts: [seconds(300), seconds(1500)],
        },
    }
}

/// Numbers that look random (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// A connection of the test, and what its server owes it.
struct Client {
    socket: TcpStream,
    owed: Owed,
}

enum Owed {
    Nothing,
    /// The reply to an operation that goes on until it is killed by its comment.
    Endless(String),
    /// The rest of a message.
    Rest(Vec<u8>),
    /// A reply of some megabytes, of which the client takes nothing.
    Large,
}

impl Client {
    fn new(s: &Server) -> Client {
        let socket = TcpStream::connect(s.address()).unwrap();
        socket.set_nodelay(true).unwrap();
        let limit = Some(Duration::from_secs(120));
        socket.set_read_timeout(limit).unwrap();
        Client {
            socket,
            owed: Owed::Nothing,
        }
    }

    fn send(&mut self, command: &DocBuf) {
        self.socket.write_all(&request_bytes(command)).unwrap();
    }

    fn receive(&mut self) -> DocBuf {
        let mut reply = Vec::new();
        muniment_wire::read_message(&mut self.socket, &mut reply).unwrap();
        Doc::new(&reply[21..]).to_buf()
    }

    fn call(&mut self, command: &DocBuf) -> DocBuf {
        self.send(command);
        self.receive()
    }

    /// Has the kernel tell the server that the connection was reset, and not that it was closed.
    fn reset(self) {
        let linger = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        let len = size_of::<libc::linger>() as libc::socklen_t;
        // SAFETY: the socket is open, and the option is on this function's stack.
        let set = unsafe {
            let option = (&raw const linger).cast();
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                option,
                len,
            )
        };
        assert_eq!(set, 0);
    }
}

fn code_name(reply: &DocBuf) -> Option<String> {
    reply.as_doc().get_str("codeName").map(str::to_string)
}

/// What one thread of the test does with its connections.
struct Crew<'a> {
    s: &'a Server,
    name: String,
    dice: Dice,
    /// Kills, and looks on.
    control: Connection,
    clients: Vec<Client>,
    /// The rows whose insert was acknowledged, and those of which it is not known.
    rows: u64,
    doubtful: u64,
    /// Connections that the server ended because their client took nothing of a reply.
    cut_off: u64,
    next: u64,
    done: &'a AtomicU64,
}

impl Crew<'_> {
    fn one(&mut self) {
        let at = self.dice.below(self.clients.len() as u64) as usize;
        let what = self.dice.below(100);
        let mut client = std::mem::replace(&mut self.clients[at], Client::new(self.s));
        match std::mem::replace(&mut client.owed, Owed::Nothing) {
            // Some clients go while the server owes them something.
            _ if what < 4 => return client.reset(),
            _ if what < 8 => return drop(client),
            _ if what < 10 => {
                client.socket.shutdown(Shutdown::Write).unwrap();
                return;
            }
            Owed::Endless(comment) => self.kill(&mut client, &comment),
            Owed::Rest(rest) => {
                client.socket.write_all(&rest).unwrap();
                let reply = client.receive();
                let ok = reply.as_doc().get("ok").and_then(|v| v.as_i64_exact());
                assert_eq!(ok, Some(1), "{reply:?}");
            }
            Owed::Large => {
                // A client that takes nothing for long is cut off.
                let mut reply = Vec::new();
                if muniment_wire::read_message(&mut client.socket, &mut reply).is_err() {
                    self.cut_off += 1;
                    return;
                }
                assert!(reply.len() > 4 << 20, "{} bytes", reply.len());
            }
            Owed::Nothing => self.begin(&mut client, what),
        }
        self.done.fetch_add(1, SeqCst);
        self.clients[at] = client;
    }

    fn kill(&mut self, client: &mut Client, comment: &str) {
        let find = doc! { "currentOp": 1, "command.comment": comment };
        // It may have been sent just now.
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            let found = self.control.command("admin", &find).unwrap();
            let ops = found.as_doc().get_array("inprog").unwrap();
            let ids: Vec<i64> = ops
                .values()
                .filter_map(|op| op.as_doc()?.get("opid")?.as_i64_exact())
                .collect();
            for id in &ids {
                let mut kill = doc! { "killOp": 1 };
                kill.append("op", *id);
                self.control.command("admin", &kill).unwrap();
            }
            if !ids.is_empty() {
                break;
            }
            assert!(Instant::now() < until, "{comment} does not run");
        }
        let reply = client.receive();
        assert_eq!(
            code_name(&reply).as_deref(),
            Some("Interrupted"),
            "{reply:?}"
        );
    }

    fn begin(&mut self, client: &mut Client, what: u64) {
        self.next += 1;
        let comment = format!("{}-{}", self.name, self.next);
        match what {
            10..60 => self.write(client),
            60..70 => {
                // A cursor that is left open, and goes with its client or its session.
                let find = doc! { "find": "large", "batchSize": 1, "$db": "t" };
                let reply = client.call(&find);
                assert!(reply.as_doc().get_doc("cursor").is_some(), "{reply:?}");
            }
            70..76 => {
                // A part of a message.
                let mut ping = request_bytes(&doc! { "ping": 1, "$db": "admin" });
                let rest = ping.split_off(1 + self.dice.below(ping.len() as u64 - 1) as usize);
                client.socket.write_all(&ping).unwrap();
                client.owed = Owed::Rest(rest);
            }
            76..80 => {
                client.send(&doc! { "find": "large", "batchSize": 100, "$db": "t" });
                client.owed = Owed::Large;
            }
            80..90 => {
                let limit = self.dice.below(20) as i64 + 1;
                let mut slow = endless(&comment);
                slow.append("$db", "t").append("maxTimeMS", limit);
                let reply = client.call(&slow);
                assert_eq!(
                    code_name(&reply).as_deref(),
                    Some("MaxTimeMSExpired"),
                    "{reply:?}"
                );
            }
            90..92 => {
                let mut slow = endless(&comment);
                slow.append("$db", "t");
                client.send(&slow);
                client.owed = Owed::Endless(comment);
            }
            _ => {
                // It waits for a change that never comes.
                let open = doc! { "aggregate": "quiet", "pipeline": array![doc! { "$changeStream": doc! {} }],
                "cursor": doc! {}, "$db": "t" };
                let reply = client.call(&open);
                let Some(cursor) = reply.as_doc().get_doc("cursor") else {
                    panic!("{reply:?}");
                };
                let id = cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap();
                client.send(
                    &doc! { "getMore": id, "collection": "quiet", "maxTimeMS": 600_000,
                    "comment": &*comment, "$db": "t" },
                );
                client.owed = Owed::Endless(comment);
            }
        }
    }

    fn write(&mut self, client: &mut Client) {
        let row = doc! { "_id": format!("{}-{}", self.name, self.next) };
        let insert = doc! { "insert": "rows", "documents": array![row], "$db": "t" };
        client.send(&insert);
        if self.dice.below(20) == 0 {
            // The client goes before its acknowledgement comes.
            client.socket.shutdown(Shutdown::Both).unwrap();
            *client = Client::new(self.s);
            self.doubtful += 1;
        } else {
            let reply = client.receive();
            assert_eq!(
                reply.as_doc().get("n").and_then(|v| v.as_i64_exact()),
                Some(1),
                "{reply:?}"
            );
            self.rows += 1;
        }
    }
}

/// What a server has.
#[derive(Debug)]
struct Has {
    connections: i64,
    cursors: i64,
    threads: usize,
    descriptors: usize,
    /// Bytes of the rows and of what they need beside them.
    data: u64,
    /// Resident bytes.
    memory: u64,
}

impl Has {
    /// Resident bytes that are no data. The allocator needs a quarter more for small rows than they have.
    fn beside_data(&self) -> u64 {
        self.memory.saturating_sub(self.data / 4 * 5)
    }
}

fn has(s: &Server, c: &mut Connection) -> Has {
    let status = c.command("admin", &doc! { "serverStatus": 1 }).unwrap();
    let status = status.as_doc();
    let number = |d: Doc<'_>, name| d.get(name).unwrap().as_i64_exact().unwrap();
    let count = |what| {
        let dir = format!("/proc/{}/{what}", s.pid().unwrap());
        std::fs::read_dir(dir).unwrap().count()
    };
    let cursor = status.get_doc("metrics").unwrap().get_doc("cursor");
    let cache = status.get_doc("wiredTiger").unwrap().get_doc("cache");
    Has {
        connections: number(status.get_doc("connections").unwrap(), "current"),
        cursors: number(cursor.unwrap().get_doc("open").unwrap(), "total"),
        threads: count("task"),
        descriptors: count("fd"),
        data: number(cache.unwrap(), "bytes currently in the cache") as u64,
        memory: s.rss_bytes(),
    }
}

/// Runs for so long. Returns the rows that are there, and those that may be.
fn run(s: &Server, scale: &Scale, part: usize, done: &AtomicU64) -> (u64, u64) {
    let until = Instant::now() + scale.parts[part];
    let crew = |n: u64| {
        let mut crew = Crew {
            s,
            name: format!("{part}-{n}"),
            dice: Dice(n + 100 * part as u64),
            control: s.connect(),
            clients: (0..scale.each).map(|_| Client::new(s)).collect(),
            rows: 0,
            doubtful: 0,
            cut_off: 0,
            next: 0,
            done,
        };
        while Instant::now() < until {
            crew.one();
        }
        println!("{}: {} clients were cut off", crew.name, crew.cut_off);
        (crew.rows, crew.doubtful)
    };
    std::thread::scope(|scope| {
        let crews: Vec<_> = (0..scale.threads)
            .map(|n| scope.spawn(move || crew(n)))
            .collect();
        let sums = crews.into_iter().map(|c| c.join().unwrap());
        sums.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    })
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    let scale = scale();
    let s = Server::start(
        ServerOptions::new()
            .arg("--setParameter")
            .arg("cursorTimeoutMillis=4000"),
    );
    let mut c = s.connect();
    let text = "x".repeat(1 << 20);
    for n in 0..4 {
        let rows = array![doc! { "_id": n, "x": &*text }];
        c.command("t", &doc! { "insert": "large", "documents": rows })
            .unwrap();
    }
    c.command("t", &doc! { "create": "quiet" }).unwrap();
    let before = has(&s, &mut c);
    let done = AtomicU64::new(0);
    let mut rows = (0, 0);
    let mut first: Option<Has> = None;
    for part in 0..scale.parts.len() {
        let (sure, perhaps) = run(&s, &scale, part, &done);
        rows = (rows.0 + sure, rows.1 + perhaps);
        let mut now = has(&s, &mut c);
        let until = Instant::now() + Duration::from_secs(120);
        let most = |first: &Option<Has>| {
            first
                .as_ref()
                .map_or(u64::MAX, |f| f.beside_data() / 10 * 11 + (16 << 20))
        };
        while now.connections > 1
            || now.cursors > 0
            || now.threads > before.threads + 3
            || now.descriptors > before.descriptors + 8
            || now.beside_data() > most(&first)
        {
            assert!(
                Instant::now() < until,
                "before: {before:?}, after the first part: {first:?}, now: {now:?}"
            );
            std::thread::sleep(Duration::from_millis(200));
            now = has(&s, &mut c);
        }
        println!("after {} actions: {now:?}", done.load(SeqCst));
        first.get_or_insert(now);
    }
    let count = c.command("t", &doc! { "count": "rows" }).unwrap();
    let count = count.as_doc().get("n").unwrap().as_i64_exact().unwrap() as u64;
    assert!(
        (rows.0..=rows.0 + rows.1).contains(&count),
        "{count} rows of {rows:?}"
    );
    assert!(done.load(SeqCst) > 1000);
}
