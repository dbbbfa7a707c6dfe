//! Initial sync over a network that breaks, and from a source that fails: real servers, over the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod set;

use muniment_value::{ArrayBuf, DocBuf, Value, array, doc, number};
use muniment_wire::Connection;
use set::lines;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::{ServerOptions, Set};

/// The number of documents before the sync begins, and the bytes of each.
const DOCUMENTS: i32 = 24_000;
const SIZE: usize = 1000;
/// The member that is filled.
const NEW: usize = 2;
const BEGINS: &str = "Starting initial sync";

/// A route to a member, on which a connection breaks after it has carried this many bytes.
struct Way {
    address: String,
    broken: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl Way {
    /// `pause` is the time that every 64 KiB take.
    fn to(member: &str, breaks_after: usize, pause: Duration) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (broken, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (member, counted, over) = (member.to_string(), broken.clone(), ended.clone());
        std::thread::spawn(move || {
            for near in listener.incoming() {
                if over.load(SeqCst) {
                    return;
                }
                let near = near.unwrap();
                let Ok(far) = TcpStream::connect(&member) else {
                    continue;
                };
                let (a, b) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || pass(a, b, usize::MAX, Duration::ZERO));
                let counted = counted.clone();
                std::thread::spawn(move || {
                    if pass(far, near, breaks_after, pause) {
                        counted.fetch_add(1, SeqCst);
                    }
                });
            }
        });
        Way {
            address,
            broken,
            ended,
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
        let _ = TcpStream::connect(&self.address);
    }
}

/// Passes bytes on. True if it broke the connection after this many bytes.
fn pass(mut from: TcpStream, mut to: TcpStream, most: usize, pause: Duration) -> bool {
    let (mut buffer, mut passed) = (vec![0; 64 << 10], 0);
    let broken = loop {
        match from.read(&mut buffer) {
            Ok(n) if n > 0 => {
                passed += n;
                if passed > most {
                    break true;
                }
                if to.write_all(&buffer[..n]).is_err() {
                    break false;
                }
                if n > 8192 {
                    sleep(pause);
                }
            }
            _ => break false,
        }
    };
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    broken
}

/// A set of three with some data.
fn filled() -> Set {
    let set = Set::start(3);
    let mut c = set.connect(set.primary());
    let index = doc! { "key": doc! { "n": 1 }, "name": "n" };
    let create = doc! { "createIndexes": "big", "indexes": array![index] };
    c.command("test", &create).unwrap();
    for batch in 0..DOCUMENTS / 1000 {
        insert(&mut c, "big", batch * 1000..(batch + 1) * 1000);
    }
    c.command("test", &doc! { "create": "empty" }).unwrap();
    insert(&mut c, "small", 0..5);
    set.settle();
    set
}

fn insert(c: &mut Connection, to: &str, ids: std::ops::Range<i32>) {
    // The text does not compress well.
    let mut x = 88_172_645_463_325_252_u64;
    let mut text = || {
        let mut bytes = Vec::with_capacity(SIZE);
        while bytes.len() < SIZE {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            bytes.extend_from_slice(&x.to_le_bytes());
        }
        bytes
    };
    let documents: ArrayBuf = ids
        .map(|i| {
            let bytes = text();
            let t = Value::Binary {
                subtype: 0,
                bytes: &bytes,
            };
            doc! { "_id": i, "n": i % 1000, "t": t }
        })
        .collect();
    c.command("test", &doc! { "insert": to, "documents": documents })
        .unwrap();
}

/// A set of three whose members are made by `member`, with this election timeout.
fn set_of(election_ms: i32, member: impl Fn(i32, &str) -> DocBuf) -> Set {
    let set = Set::prepare(3, &ServerOptions::new());
    let members: ArrayBuf = (0..3).map(|i| member(i, &set.host(i as usize))).collect();
    let settings = doc! { "electionTimeoutMillis": election_ms, "heartbeatIntervalMillis": 200 };
    let config = doc! { "_id": "rs0", "members": members, "settings": settings };
    // All members have votes by the end. The test does not wait until a delayed member has everything.
    set.connect(0)
        .command("admin", &doc! { "replSetInitiate": config })
        .unwrap();
    set
}

/// Empties the new member, which from its next start on reaches the others by these routes.
fn emptied(set: &mut Set, ways: &[(usize, &Way)]) {
    empty(set, NEW, ways);
}

fn empty(set: &mut Set, member: usize, ways: &[(usize, &Way)]) {
    empty_for(set, member, ways, "primary");
}

/// Empties a member, which is to be filled from the given kind of source.
fn empty_for(set: &mut Set, member: usize, ways: &[(usize, &Way)], source: &str) {
    let routes: Vec<String> = ways
        .iter()
        .map(|(of, way)| format!("{}={}", set.host(*of), way.address))
        .collect();
    let routes = format!("replMemberRoutes={}", routes.join(","));
    let member = &mut set.members[member];
    member.kill9();
    for entry in std::fs::read_dir(member.dir()).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }
    let source = format!("initialSyncSourceReadPreference={source}");
    let mut args = vec!["--replSet", "rs0", "--setParameter", &source];
    if !ways.is_empty() {
        args.extend(["--setParameter", &routes]);
    }
    member.set_args(&args);
    member.start_again();
}

fn number(d: &DocBuf, path: &str) -> Option<i64> {
    let (above, last) = path.rsplit_once('/').unwrap_or(("", path));
    let mut names = above.split('/').filter(|n| !n.is_empty());
    let d = names.try_fold(d.as_doc(), |d, name| d.get_doc(name))?;
    d.get(last).and_then(number::to_i64_exact)
}

/// The new member's status; `None` if it does not answer, or knows no set yet.
fn status(set: &Set) -> Option<DocBuf> {
    let mut c = Connection::connect_timeout(&set.host(NEW), Duration::from_secs(1)).ok()?;
    c.command("admin", &doc! { "replSetGetStatus": 1 }).ok()
}

fn hash(set: &Set, i: usize) -> String {
    let cmd = doc! {
        "dbHash": 1,
        "$readPreference": doc! { "mode": "secondaryPreferred" },
    };
    let reply = set.connect(i).command("test", &cmd).unwrap();
    reply.as_doc().get_str("md5").unwrap().to_string()
}

/// Changes the data until it is told to stop.
fn write(c: &mut Connection, stop: &AtomicBool) {
    let mut i = 0;
    while !stop.load(SeqCst) {
        let name = format!("c{}", i % 5);
        insert(c, &name, i * 10..i * 10 + 10);
        let change = doc! { "q": doc! { "n": i % 1000 }, "u": doc! { "$inc": doc! { "n": 1000 } }, "multi": true };
        c.command("test", &doc! { "update": "big", "updates": array![change] })
            .unwrap();
        let gone = doc! { "q": doc! { "_id": DOCUMENTS - 1 - i }, "limit": 1 };
        c.command("test", &doc! { "delete": "big", "deletes": array![gone] })
            .unwrap();
        if i % 7 == 6 {
            c.command("test", &doc! { "drop": name.as_str() }).unwrap();
        }
        i += 1;
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_copy_goes_on_where_the_connection_broke() {
    if !testkit::persistent() {
        return;
    }
    let mut set = filled();
    let ways = [0, 1].map(|i| Way::to(&set.host(i), 3 << 20, Duration::from_millis(3)));
    let begun = lines(&set.members[NEW], BEGINS);
    emptied(&mut set, &[(0, &ways[0]), (1, &ways[1])]);
    let primary = set.primary();
    let stop = AtomicBool::new(false);
    let mut seen: Vec<DocBuf> = Vec::new();
    std::thread::scope(|s| {
        s.spawn(|| write(&mut set.connect(primary), &stop));
        let end = Instant::now() + Duration::from_secs(90);
        loop {
            assert!(Instant::now() < end, "{}", set.members[NEW].log());
            if let Some(d) = status(&set) {
                if number(&d, "myState") == Some(2) {
                    assert!(d.as_doc().get("initialSyncStatus").is_none(), "{d:?}");
                    break;
                }
                let told = d.as_doc().get_doc("initialSyncStatus");
                seen.extend(told.map(|d| d.to_buf()));
            }
            sleep(Duration::from_millis(10));
        }
        stop.store(true, SeqCst);
    });
    let broken = ways[primary].broken.load(SeqCst);
    assert!(broken >= 3, "{broken}");
    let log = |what: &str| lines(&set.members[NEW], what);
    assert_eq!(log(BEGINS), begun + 1);
    assert_eq!(log("Initial sync failed"), 0);
    assert!(log("Initial sync goes on where it was") >= 3);
    // The progress was reported, and never decreased.
    let figures = |path: &str| {
        seen.iter()
            .filter_map(|d| number(d, path))
            .collect::<Vec<_>>()
    };
    let big = |name: &str| figures(&format!("databases/test/test.big/{name}"));
    for of in [
        figures("approxTotalBytesCopied"),
        figures("operationsRetried"),
        figures("totalTimeUnreachableMillis"),
        big("documentsCopied"),
    ] {
        assert!(of.windows(2).all(|w| w[0] <= w[1]), "{of:?}");
        assert!(of.last() > of.first(), "{of:?}");
    }
    assert!(
        big("documentsToCopy")
            .iter()
            .all(|n| *n >= i64::from(DOCUMENTS) - 100)
    );
    assert_eq!(big("indexes").first(), Some(&2));
    let total = figures("approxTotalDataSize");
    assert!(
        total.last().unwrap() > &i64::from(DOCUMENTS * 1000),
        "{total:?}"
    );
    assert!(figures("failedInitialSyncAttempts").iter().all(|n| *n == 0));
    set.settle();
    assert_eq!(hash(&set, NEW), hash(&set, primary));
    // The status shows the sync only when it is requested.
    assert!(
        status(&set)
            .unwrap()
            .as_doc()
            .get("initialSyncStatus")
            .is_none()
    );
}

/// The members from which the new member was filled, in the order of the attempts since it was emptied.
fn sources(set: &Set, begun: usize) -> Vec<usize> {
    let log = set.members[NEW].log();
    let lines = log.lines().filter(|l| l.contains(BEGINS)).skip(begun);
    let from =
        |line: &str| (0..3).find(|i| line.contains(&format!("\"from\":\"{}\"", set.host(*i))));
    lines.map(|l| from(l).unwrap()).collect()
}

/// A secondary is as good a source as the primary. When it loses the copy, the primary is the next source.
#[test]
fn a_copy_comes_from_a_secondary() {
    if !testkit::persistent() {
        return;
    }
    let mut set = filled();
    let primary = set.primary();
    // The other secondary is to fill it.
    if primary == NEW {
        let down = doc! { "replSetStepDown": 60, "secondaryCatchUpPeriodSecs": 20 };
        set.connect(primary).command("admin", &down).unwrap();
    }
    let primary = set.primary();
    let other = (0..3).find(|i| *i != primary && *i != NEW).unwrap();
    let begun = lines(&set.members[NEW], BEGINS);
    empty_for(&mut set, NEW, &[], "nearest");
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| write(&mut set.connect(primary), &stop));
        set.until("it is not filled", || {
            (number(&status(&set)?, "myState") == Some(2)).then_some(())
        });
        stop.store(true, SeqCst);
    });
    assert_eq!(sources(&set, begun), [other]);
    set.settle();
    assert_eq!(hash(&set, NEW), hash(&set, primary));

    let slow = Way::to(&set.host(other), usize::MAX, Duration::from_millis(10));
    let begun = lines(&set.members[NEW], BEGINS);
    empty_for(&mut set, NEW, &[(other, &slow)], "secondaryPreferred");
    set.until("no copy began", || {
        let copied = number(&status(&set)?, "initialSyncStatus/approxTotalBytesCopied")?;
        (copied > 1 << 20).then_some(())
    });
    set.members[other].kill9();
    set.members[other].start_again();
    set.until("it is not filled by another one", || {
        (number(&status(&set)?, "myState") == Some(2)).then_some(())
    });
    let all = sources(&set, begun);
    assert!(
        all.len() >= 2 && all[0] == other && *all.last().unwrap() != other,
        "{all:?}"
    );
    set.settle();
    assert_eq!(hash(&set, NEW), hash(&set, set.primary()));
}

#[test]
fn a_copy_begins_anew_when_the_source_has_lost_it() {
    if !testkit::persistent() {
        return;
    }
    let mut set = filled();
    let ways = [0, 1].map(|i| Way::to(&set.host(i), usize::MAX, Duration::from_millis(10)));
    let begun = lines(&set.members[NEW], BEGINS);
    emptied(&mut set, &[(0, &ways[0]), (1, &ways[1])]);
    let primary = set.primary();
    set.until("no copy began", || {
        let d = status(&set)?;
        let copied = number(&d, "initialSyncStatus/approxTotalBytesCopied")?;
        (copied > 1 << 20).then_some(())
    });
    set.members[primary].kill9();
    set.members[primary].start_again();
    let mut failed = 0;
    set.until("it did not become a secondary", || {
        let d = status(&set)?;
        let attempts = number(&d, "initialSyncStatus/failedInitialSyncAttempts");
        failed = failed.max(attempts.unwrap_or(0));
        (number(&d, "myState") == Some(2)).then_some(())
    });
    assert!(failed >= 1);
    assert!(lines(&set.members[NEW], BEGINS) >= begun + 2);
    set.settle();
    assert_eq!(hash(&set, NEW), hash(&set, set.primary()));
}

/// Over one route no chunk ever gets through. Then another member leads, to which the route is good.
#[test]
fn a_copy_that_does_not_get_on_is_given_up_for_another_source() {
    if !testkit::persistent() {
        return;
    }
    let mut set = filled();
    let primary = set.primary();
    let bad = Way::to(&set.host(primary), 200 << 10, Duration::ZERO);
    let begun = lines(&set.members[NEW], BEGINS);
    emptied(&mut set, &[(primary, &bad)]);
    let again = "Initial sync goes on where it was";
    set.until("it does not try again", || {
        (lines(&set.members[NEW], again) >= 2).then_some(())
    });
    let down = doc! { "replSetStepDown": 60, "secondaryCatchUpPeriodSecs": 20 };
    set.connect(primary).command("admin", &down).unwrap();
    set.until("it did not become a secondary", || {
        (number(&status(&set)?, "myState") == Some(2)).then_some(())
    });
    assert!(lines(&set.members[NEW], BEGINS) > begun + 1);
    // The attempts are not made as fast as possible.
    let tries = lines(&set.members[NEW], again);
    assert!(tries < 120, "{tries}");
    set.settle();
    assert_eq!(hash(&set, NEW), hash(&set, primary));
}

/// A member that has lost its disk is filled only by a leader that the others confirm. Another member might
/// lead, and might have acknowledged records that only it and the empty member had.
#[test]
fn an_emptied_voter_is_filled_by_the_true_leader() {
    if !testkit::persistent() {
        return;
    }
    // The leader takes some time to notice.
    let mut set = set_of(60_000, |i, host| doc! { "_id": i, "host": host });
    // The other member must have a copy before it is stopped: two empty members of three confirm nothing.
    set.settle();
    let primary = set.primary();
    assert_ne!(primary, NEW);
    let other = &set.members[1 - primary];
    let stopped = Stopped::new(other.pid().unwrap());
    emptied(&mut set, &[]);
    set.until("it was not refused", || {
        let d = status(&set)?;
        let failed = number(&d, "initialSyncStatus/failedInitialSyncAttempts")?;
        assert_ne!(number(&d, "myState"), Some(2));
        (failed >= 1).then_some(())
    });
    assert!(lines(&set.members[NEW], "has not confirmed") >= 1);
    drop(stopped);
    set.settle();
    assert_eq!(hash(&set, NEW), hash(&set, primary));
}

/// The only other voter is a delayed one, which gets records an hour late, so the leader cannot wait for a
/// new record to be committed, and relies on having led for long enough.
#[test]
fn an_emptied_voter_beside_a_delayed_one_is_filled() {
    if !testkit::persistent() {
        return;
    }
    // In another term the leader would also have to wait for its first record, and rightly so.
    let mut set = set_of(30_000, |i, host| {
        let mut d = doc! { "_id": i, "host": host };
        if i == 1 {
            d.append("priority", 0.0);
            d.append("secondaryDelaySecs", 3600);
        }
        d
    });
    let primary = set.primary();
    assert_ne!(primary, 1);
    let lost = 2 - primary;
    let mut c = set.connect(primary);
    insert(&mut c, "small", 0..5);
    set.until("the other has not all", || {
        (hash(&set, lost) == hash(&set, primary)).then_some(())
    });
    empty(&mut set, lost, &[]);
    set.until("it is not filled", || {
        let mut c = Connection::connect_timeout(&set.host(lost), Duration::from_secs(1)).ok()?;
        let d = c.command("admin", &doc! { "replSetGetStatus": 1 }).ok()?;
        (number(&d, "myState") == Some(2)).then_some(())
    });
    assert!(lines(&set.members[lost], "has not confirmed") >= 1);
    set.until("it has not all", || {
        (hash(&set, lost) == hash(&set, primary)).then_some(())
    });
}

/// The only member that may lead for long has lost its disk. The member that leads in its place takes no
/// writes, but still fills it.
#[test]
fn the_only_one_that_may_lead_is_filled() {
    if !testkit::persistent() {
        return;
    }
    let mut set = set_of(1000, |i, host| {
        let priority = if i == 0 { 1.0 } else { 0.0 };
        doc! { "_id": i, "host": host, "priority": priority }
    });
    assert_eq!(set.primary(), 0);
    insert(&mut set.connect(0), "small", 0..5);
    set.settle();
    empty(&mut set, 0, &[]);
    // A member that is elected in its place may be primary for a moment.
    set.until("it does not lead", || (set.primary() == 0).then_some(()));
    set.settle();
    assert_eq!(hash(&set, 0), hash(&set, 1));
    let mut c = set.connect(0);
    let cmd = doc! { "count": "small" };
    let reply = c.command("test", &cmd).unwrap();
    assert_eq!(number(&reply, "n"), Some(5));
}

/// A process that is stopped until this is dropped.
struct Stopped(rustix::process::Pid);

impl Stopped {
    fn new(pid: u32) -> Stopped {
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::CONT);
    }
}

/// A signal that comes while a member begins anew after its copy is handled by whichever server runs at that
/// time.
#[test]
fn a_member_that_begins_anew_ends_when_it_is_told_to() {
    if !testkit::persistent() {
        return;
    }
    let mut set = Set::start(3);
    let primary = set.primary();
    insert(&mut set.connect(primary), "small", 0..100);
    set.settle();
    let new = (0..3).find(|i| *i != primary).unwrap();
    const ANEW: &str = "the member begins anew";
    for pause in [0, 1, 3, 10, 30] {
        let before = lines(&set.members[new], ANEW);
        empty(&mut set, new, &[]);
        let member = &set.members[new];
        member.until("it does not begin anew", || {
            (lines(member, ANEW) > before).then_some(())
        });
        sleep(Duration::from_millis(pause));
        let member = &mut set.members[new];
        assert!(member.terminate().success());
        member.start_again();
    }
}
