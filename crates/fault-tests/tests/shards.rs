//! A cluster of shards under everything that can happen to it while ranges move all the time: kills, power cuts, stopped
//! processes, elections, cut links. Registers must be linearizable, and transactions over shards isolated as snapshots;
//! no write that was acknowledged may be lost.
//!
//! `MUNIMENT_LONG=1` runs for half an hour.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use fault_tests::appends::{Manner, Shared, lists};
use fault_tests::both::{Done, beside};
use fault_tests::isolation::judge;
use fault_tests::registers::Registers;
use fault_tests::session::Address;
use fault_tests::{DB, Rng, long, seed};
use muniment_value::{DocBuf, array, doc};
use muniment_wire::Connection;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Cluster, Cut, Network, Server, ServerOptions, freeze, thaw};

/// The time in which a cluster that nothing happens to any more has to have settled.
const PATIENCE: Duration = Duration::from_secs(60);

/// What happened, each with the number of the next append.
struct Trace<'t> {
    appends: &'t Shared,
    lines: Mutex<Vec<(i64, String)>>,
    begin: Instant,
}

impl Trace<'_> {
    fn note(&self, what: String) {
        let line = format!("{:8.3} {what}", self.begin.elapsed().as_secs_f64());
        let number = self.appends.number();
        self.lines.lock().unwrap().push((number, line));
    }

    /// What happened while these numbers were appended, or shortly before or after.
    fn around(&self, (low, high): (i64, i64)) -> String {
        const NEAR: i64 = 500;
        let lines = self.lines.lock().unwrap();
        let near = |n: i64| n + NEAR >= low && n <= high + NEAR;
        let near = lines.iter().filter(|(n, _)| near(*n));
        let near = near.map(|(n, line)| format!("before {n}: {line}\n"));
        near.collect()
    }
}

/// Moves chunks of both collections, and splits and joins them, until it is `over`. Counts moves.
fn moves(trace: &Trace<'_>, over: &AtomicBool, seed: u64, moved: &AtomicUsize) {
    let address = &trace.appends.address;
    let (mut rng, mut turn) = (Rng::new(seed ^ 0x30), 0);
    while !over.load(SeqCst) {
        turn += 1;
        let Some(address) = address.get(turn) else {
            return;
        };
        let Ok(mut c) = Connection::connect_timeout(&address, Duration::from_secs(2)) else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        c.set_timeout(Some(Duration::from_secs(30))).unwrap();
        // What fails was hit by a fault: another router goes on.
        while !over.load(SeqCst) {
            if let Err(e) = step(&mut c, &mut rng, moved, trace) {
                trace.note(format!("router {}: {e}", turn % 2));
                break;
            }
        }
    }
}

fn step(
    c: &mut Connection,
    rng: &mut Rng,
    moved: &AtomicUsize,
    trace: &Trace<'_>,
) -> muniment_value::Result<()> {
    let ns = format!("{DB}.{}", ["registers", "lists"][rng.below(2) as usize]);
    let all = c.find_all(
        "config",
        &doc! { "find": "collections", "filter": doc! { "_id": &*ns } },
    )?;
    let uuid = all.first().and_then(|d| d.as_doc().get("uuid"));
    let find = doc! { "find": "chunks", "filter": doc! { "uuid": uuid.unwrap() }, "sort": doc! { "min": 1 } };
    let chunks = c.find_all("config", &find)?;
    let chunk = chunks[rng.below(chunks.len() as u64) as usize].as_doc();
    let bound = |name| chunk.get_doc(name).unwrap();
    let bounds = array![bound("min"), bound("max")];
    if chunks.len() < 12 && rng.below(4) == 0 {
        let split = doc! { "split": &*ns, "bounds": bounds };
        // A range with few documents has no middle.
        let _ = c.command("admin", &split)?;
        return Ok(());
    }
    let to = ["s0", "s1"][rng.below(2) as usize];
    if chunk.get_str("shard") != Some(to) {
        let to_it = doc! { "moveChunk": &*ns, "bounds": bounds, "to": to };
        let what = to_it.as_doc().to_display();
        trace.note(format!("begins {what}"));
        c.command("admin", &to_it)?;
        trace.note(format!("has ended {what}"));
        moved.fetch_add(1, SeqCst);
    }
    Ok(())
}

/// All servers: the configuration's members, the shards', and the routers.
fn server(cluster: &mut Cluster, n: usize) -> &mut Server {
    let sets = std::iter::once(&mut cluster.config).chain(&mut cluster.shards);
    let members = sets.flat_map(|set| &mut set.members);
    members.chain(&mut cluster.routers).nth(n).unwrap()
}

/// Does bad things to the cluster, until the end.
fn misfortunes(
    cluster: &mut Cluster,
    network: &mut Network,
    trace: &Trace<'_>,
    rng: &mut Rng,
    until: Instant,
) -> BTreeMap<&'static str, usize> {
    let mut count = BTreeMap::new();
    let pause = |rng: &mut Rng, least: u64, most: u64| {
        thread::sleep(Duration::from_millis(least + rng.below(most - least)));
    };
    let data = network.places() - cluster.routers.len();
    while Instant::now() < until {
        pause(rng, 300, 1500);
        let any = rng.below(network.places() as u64) as usize;
        let cut = [Cut::Both, Cut::Out, Cut::In][rng.below(3) as usize];
        trace.note(format!("something befalls {any}"));
        let name = match rng.below(8) {
            0 | 1 => {
                server(cluster, any).kill9();
                pause(rng, 50, 3000);
                server(cluster, any).start_again();
                "killed"
            }
            2 => {
                let pid = server(cluster, any).pid().unwrap();
                freeze(pid);
                pause(rng, 500, 4000);
                thaw(pid);
                "frozen"
            }
            3 => {
                let one = rng.below(data as u64) as usize;
                server(cluster, one).cut_power();
                pause(rng, 50, 3000);
                server(cluster, one).start_again();
                "power cut"
            }
            4 => {
                // A whole set.
                let set = rng.below(1 + cluster.shards.len() as u64) as usize;
                let members = cluster.config.members.len();
                let all = set * members..(set + 1) * members;
                all.clone().for_each(|n| server(cluster, n).kill9());
                all.for_each(|n| server(cluster, n).start_again());
                "set killed"
            }
            5 => {
                network.part(cut, |link| link.from == any || link.to == any);
                pause(rng, 500, 5000);
                network.heal();
                "cut off"
            }
            _ => {
                let one = rng.below(network.links().len() as u64) as usize;
                let one = network.links()[one];
                network.part(cut, |link| link == one);
                pause(rng, 500, 10_000);
                network.heal();
                "link cut"
            }
        };
        for (i, router) in cluster.routers.iter().enumerate() {
            trace.appends.address.set_one(i, router.address());
        }
        trace.note(format!("over: {name} {any} {cut:?}"));
        *count.entry(name).or_default() += 1;
    }
    count
}

/// All documents of a collection, when the cluster has settled.
fn last_state(cluster: &Cluster, of: &str) -> Vec<DocBuf> {
    let until = Instant::now() + PATIENCE;
    loop {
        match cluster.connect().find_all(
            DB,
            &doc! { "find": of, "readConcern": doc! { "level": "majority" } },
        ) {
            Ok(all) => return all,
            Err(e) => assert!(Instant::now() < until, "{of}: {e}"),
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn shards_are_linearizable_and_isolated_whatever_happens() {
    let time = Duration::from_secs(if long() { 1800 } else { 30 });
    let seed = seed();
    let options = ServerOptions::new().powerloss();
    let mut cluster = Cluster::prepare_on(&options, 3, 2, 3, 2);
    cluster.add_shards(&mut cluster.connect());
    let mut network = Network::between(&mut cluster);
    let mut c = cluster.connect();
    for name in ["registers", "lists"] {
        let divide =
            doc! { "shardCollection": format!("{DB}.{name}"), "key": doc! { "_id": "hashed" } };
        c.command("admin", &divide).unwrap();
    }
    let index = doc! { "key": doc! { "k": 1 }, "name": "k" };
    let create = doc! { "createIndexes": "lists", "indexes": array![index] };
    c.command(DB, &create).unwrap();
    let routers = cluster.routers.iter().map(|r| r.address()).collect();
    let appends = Shared::new(Address::of_set(routers), Manner::Shards);
    let (registers, moved) = (Registers::new(), AtomicUsize::new(0));
    let trace = Trace {
        appends: &appends,
        lines: Mutex::default(),
        begin: Instant::now(),
    };
    let done = beside((&appends, &registers), seed, || {
        let over = AtomicBool::new(false);
        thread::scope(|s| {
            let _guard = trace.appends.address.guard();
            let (over, trace, moved) = (&over, &trace, &moved);
            let mover = s.spawn(move || moves(trace, over, seed, moved));
            let mut rng = Rng::new(seed);
            let until = Instant::now() + time;
            let what = misfortunes(&mut cluster, &mut network, trace, &mut rng, until);
            over.store(true, SeqCst);
            mover.join().unwrap();
            what
        })
    });
    let Done {
        transactions,
        operations,
        work: what,
    } = done;
    let last = lists(&last_state(&cluster, "lists"));
    let verdict = judge(&transactions, &last);
    let found = registers.judge(operations, &last_state(&cluster, "registers"));
    println!(
        "{what:?}: {} moves, {} transactions committed of {}, {} operations on {} registers, {} write skews",
        moved.load(SeqCst),
        verdict.committed,
        transactions.len(),
        found.answered,
        found.registers,
        verdict.write_skews,
    );
    if !verdict.anomalies.is_empty() {
        let lost = verdict.anomalies.iter().filter_map(|a| {
            let number = a.strip_prefix("lost: ")?.split(' ').next()?;
            number.parse::<i64>().ok()
        });
        let low = lost.clone().min().unwrap_or(0);
        println!("{}", trace.around((low, lost.max().unwrap_or(i64::MAX))));
        panic!("{:#?}", verdict.anomalies);
    }
    assert!(found.wrong.is_empty(), "{}", found.wrong.join("\n"));
    assert!(verdict.committed > 50, "{}", verdict.committed);
    assert!(found.registers > 2, "{}", found.registers);
    assert!(moved.load(SeqCst) > 0);
}
