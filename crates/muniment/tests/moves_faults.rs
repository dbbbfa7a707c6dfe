//! Servers that end, stand still or hand over at any moment while ranges move and clients work.
//!
//! In the end each document is there once with all changes that were acknowledged, no shard is left undecided, ranges
//! move, and nothing is left but what is owned. `MUNIMENT_LONG=1` runs for half an hour; `MUNIMENT_SEED=n` draws the
//! same faults again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod moving;

use moving::load::{Load, Routers, routers_of};
use moving::*;
use muniment_value::doc;
use muniment_wire::Connection;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Cluster, Cut, Network, Server, ServerOptions, Set, shell};

fn is_long() -> bool {
    std::env::var_os("MUNIMENT_LONG").is_some_and(|v| v != "0")
}

/// A number for this run.
fn seed() -> u64 {
    let given = std::env::var("MUNIMENT_SEED").ok();
    let seed = given.and_then(|s| s.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        u64::from(now.subsec_nanos())
    });
    println!("MUNIMENT_SEED={seed}");
    seed
}

/// The clients of a run, and the one that moves ranges.
const WORK: [&str; 9] = [
    "change", "change", "insert", "insert", "batch", "audit", "read", "snapshot", "transfer",
];

/// Runs clients and moves while `fault` happens again and again, for this time. Then checks everything.
fn run_under(mut cluster: Cluster, time: Duration, mut fault: impl FnMut(&mut Faults<'_>)) {
    let mut c = cluster.connect();
    let load = Load::prepare(&mut c, true);
    let begun = Instant::now();
    let addresses = routers_of(&cluster);
    let Cluster {
        config,
        shards,
        routers,
    } = &mut cluster;
    // The second router stays, so that clients can go on; the first one moves ranges, and may end.
    thread::scope(|s| {
        let (load, addresses) = (&load, &addresses);
        let mut threads: Vec<_> = (WORK.into_iter().enumerate())
            .map(|(i, what)| s.spawn(move || load.work(addresses, i, what)))
            .collect();
        threads.push(s.spawn(move || load.moves(addresses, 0)));
        let mut faults = Faults {
            config,
            shards,
            router: &mut routers[0],
            addresses,
        };
        while begun.elapsed() < time && !threads.iter().any(|t| t.is_finished()) {
            fault(&mut faults);
        }
        load.stop.store(true, SeqCst);
    });
    println!("{:?}", load.done.lock().unwrap());
    // Within some seconds everything is decided.
    let mut c = cluster.routers[1].connect();
    let settled = Instant::now();
    for shard in &cluster.shards {
        shard.primary();
    }
    for ns in ["c", "bank"] {
        loop {
            let update = doc! { "q": doc! {}, "u": doc! { "$set": doc! { "last": settled.elapsed().as_nanos() as i64 } }, "multi": true };
            match c.command(
                "d",
                &doc! { "update": ns, "updates": muniment_value::array![update] },
            ) {
                Ok(reply) if reply.as_doc().get("writeErrors").is_none() => break,
                other => assert!(
                    settled.elapsed() < Duration::from_secs(40),
                    "{ns}: {other:?}"
                ),
            }
        }
    }
    load.check(&mut c);
    for ns in ["d.c", "d.bank"] {
        let mut moved = 0;
        for chunk in chunks(&mut c, ns) {
            let end = Instant::now() + Duration::from_secs(30);
            while let Err(e) = move_to(&mut c, ns, &chunk, other(&chunk.shard), false) {
                assert!(Instant::now() < end, "{ns}: {e}");
                thread::sleep(Duration::from_millis(100));
            }
            moved += 1;
        }
        assert_eq!(moved, 6);
    }
    load.check(&mut c);
    until_clean(&cluster, "d", "c", load.rows());
    until_clean(&cluster, "d", "bank", load.accounts());
    load.check(&mut c);
    for shard in &cluster.shards {
        let mut direct = shard.connect(shard.primary());
        for name in ["c", "bank"] {
            let valid = run(
                &mut direct,
                "d",
                &format!("{{validate: '{name}', full: true}}"),
            );
            assert!(valid.as_doc().get("valid").unwrap().truthy(), "{valid:?}");
        }
    }
}

/// What faults can happen to.
struct Faults<'f> {
    config: &'f mut Set,
    shards: &'f mut [Set],
    router: &'f mut Server,
    addresses: &'f Routers,
}

impl Faults<'_> {
    fn server(&mut self, n: usize) -> &mut Server {
        match n {
            0 => self.router,
            1 => &mut self.config.members[0],
            n => {
                let set = &mut self.shards[n % 2];
                let primary = set.members.len().min(n / 2) - 1;
                &mut set.members[primary]
            }
        }
    }
}

/// Servers of sets of one member are killed at random moments.
#[test]
fn servers_are_killed() {
    let mut dice = Dice(seed());
    let time = Duration::from_secs(if is_long() { 700 } else { 12 });
    run_under(hasty_cluster(2, 1, 2), time, |faults| {
        thread::sleep(Duration::from_millis(300 + dice.below(700) as u64));
        let server = faults.server(dice.below(4));
        server.kill9();
        thread::sleep(Duration::from_millis(dice.below(400) as u64));
        server.start_again();
        let address = faults.router.address();
        faults.addresses.lock().unwrap()[0] = address;
    });
}

/// Servers stand still for longer than a router's right to change a collection lasts, or shorter.
#[test]
fn servers_stand_still() {
    let mut dice = Dice(seed());
    let time = Duration::from_secs(if is_long() { 500 } else { 20 });
    let mut turn = 0;
    run_under(hasty_cluster(2, 1, 2), time, |faults| {
        thread::sleep(Duration::from_millis(200 + dice.below(800) as u64));
        let pid = faults
            .server(if turn == 0 { 0 } else { dice.below(4) })
            .pid()
            .unwrap();
        turn += 1;
        testkit::freeze(pid);
        let short = turn > 1 && dice.below(3) > 0;
        thread::sleep(Duration::from_millis(if short { 1000 } else { 9500 }));
        testkit::thaw(pid);
    });
}

/// Power cuts of servers of sets of one member: nothing that was acknowledged is lost, since it was in the journal.
#[test]
fn the_power_is_cut() {
    let mut dice = Dice(seed());
    let time = Duration::from_secs(if is_long() { 500 } else { 12 });
    let cluster = hasty_cluster_on(ServerOptions::new().powerloss(), 2, 1, 2);
    run_under(cluster, time, |faults| {
        thread::sleep(Duration::from_millis(300 + dice.below(700) as u64));
        let server = faults.server(1 + dice.below(3));
        server.cut_power();
        thread::sleep(Duration::from_millis(dice.below(400) as u64));
        server.start_again();
    });
}

/// The disk of a shard or of the configuration is full for a while: what it refuses is not done, what it has done stays,
/// and everything goes on when there is room.
#[test]
fn disks_are_full() {
    /// Less than a server keeps for itself.
    const SHORT: u64 = 200 << 20;
    let mut dice = Dice(seed());
    let time = Duration::from_secs(if is_long() { 400 } else { 15 });
    let cluster = hasty_cluster_on(ServerOptions::new().budget(u64::MAX), 2, 1, 2);
    let mut turn = 0;
    run_under(cluster, time, |faults| {
        thread::sleep(Duration::from_millis(200 + dice.below(500) as u64));
        let server = faults.server(1 + turn % 3);
        turn += 1;
        match dice.below(3) {
            0 => server.set_budget(SHORT),
            1 => server.set_budget(0),
            _ => server.set_writes(dice.below(40) as u64),
        }
        thread::sleep(Duration::from_millis(300 + dice.below(2000) as u64));
        server.set_budget(u64::MAX);
        if server.pid().is_some() && !server.is_running() {
            // It may have ended as it could not write; it starts again where it was.
            server.kill9();
            server.start_again();
        }
    });
}

/// Links between routers, shards and the configuration are cut, in one direction or both, and servers are cut off from
/// all others, for shorter and longer than a router's right to change a collection lasts.
#[test]
fn links_are_cut() {
    let mut dice = Dice(seed());
    let time = Duration::from_secs(if is_long() { 500 } else { 20 });
    let mut cluster = hasty_cluster(2, 1, 2);
    let mut network = Network::between(&mut cluster);
    let mut turn = 0;
    run_under(cluster, time, |_| {
        thread::sleep(Duration::from_millis(200 + dice.below(800) as u64));
        let cut = [Cut::Both, Cut::Out, Cut::In][dice.below(3)];
        match dice.below(3) {
            0 => {
                let server = dice.below(network.places());
                network.part(cut, |link| link.from == server || link.to == server);
            }
            _ => {
                let one = network.links()[dice.below(network.links().len())];
                network.part(cut, |link| link == one);
            }
        }
        turn += 1;
        let short = turn > 1 && dice.below(4) > 0;
        thread::sleep(Duration::from_millis(if short { 1000 } else { 9500 }));
        network.heal();
    });
}

fn step_down(c: &mut Connection) {
    let _ = c.command(
        "admin",
        &shell("{replSetStepDown: 1, secondaryCatchUpPeriodSecs: 5, force: true}"),
    );
}

/// Primaries of sets of three hand over or are killed.
#[test]
fn primaries_change() {
    let mut dice = Dice(seed());
    let time = Duration::from_secs(if is_long() { 600 } else { 15 });
    run_under(hasty_cluster(2, 3, 2), time, |faults| {
        thread::sleep(Duration::from_millis(500 + dice.below(1000) as u64));
        let set = &mut faults.shards[dice.below(2)];
        let primary = set.primary();
        match dice.below(3) {
            0 => step_down(&mut set.connect(primary)),
            _ => {
                set.members[primary].kill9();
                set.primary();
                set.members[primary].start_again();
            }
        }
    });
}

/// The primary of either shard changes at each step of a move: the move fails or ends, and nothing is lost.
#[test]
fn a_primary_changes_at_a_step() {
    let mut cluster = hasty_cluster(2, 3, 1);
    let mut c = cluster.connect();
    divide(&mut c, "d.c", "{k: 1}", &["{k: 100}"]);
    insert(
        &mut c,
        "d",
        "c",
        (0..200).map(|i| doc! { "_id": i, "k": i, "n": 0 }),
    );
    let mut n = 0;
    for (turn, step) in [
        "afterBegin",
        "afterCopy",
        "afterGive",
        "afterFinish",
        "afterCommit",
    ]
    .into_iter()
    .enumerate()
    {
        for gives in [true, false] {
            let chunk = chunks(&mut c, "d.c")[0].clone();
            let to = other(&chunk.shard);
            let which = usize::from((if gives { chunk.shard.as_str() } else { to }) == "s1");
            let kills = (turn + usize::from(gives)) % 2 == 0;
            let mut killed = None;
            let moved = {
                let shard = &cluster.shards[which];
                let primary = shard.primary();
                while_stopped(&cluster, step, ("d.c", &chunk, to), || {
                    if kills {
                        testkit::end_at_once(shard.members[primary].pid().unwrap());
                        killed = Some(primary);
                    } else {
                        step_down(&mut shard.connect(primary));
                    }
                    shard.primary();
                })
            };
            if let Some(primary) = killed {
                cluster.shards[which].members[primary].kill9();
                cluster.shards[which].members[primary].start_again();
            }
            let when = format!("{step}, the one that gives: {gives}, kills: {kills}: {moved:?}");
            let begun = Instant::now();
            let update = shell("{update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}");
            // If it failed, what was done of it on one shard would not be known.
            let reply = c.command("d", &update);
            let reply = reply.unwrap_or_else(|e| panic!("{when}: {e}"));
            assert!(
                reply.as_doc().get("writeErrors").is_none(),
                "{when}: {reply:?}"
            );
            assert_eq!(number(&reply, "nModified"), 200, "{when}");
            n += 1;
            assert!(
                begun.elapsed() < Duration::from_secs(25),
                "{when}: {:?}",
                begun.elapsed()
            );
            let sum = all(
                &mut c,
                "d",
                "{aggregate: 'c', pipeline: [{$group: {_id: null, n: {$sum: '$n'}, c: {$sum: 1}}}], cursor: {}}",
            );
            assert_eq!(
                (number(&sum[0], "c"), number(&sum[0], "n")),
                (200, 200 * n),
                "{when}"
            );
            cluster.shards[which].settle();
            until_clean(&cluster, "d", "c", 200);
        }
    }
}

/// A router has the configuration forget a collection, and ends before that is decided, or before it tells the shards. What
/// the other shard has left of it is dropped when the collection is divided anew, and nothing is left of it anywhere when
/// it is dropped.
#[test]
fn a_router_ends_while_it_untracks() {
    let mut cluster = hasty_cluster(2, 1, 2);
    let mut c = cluster.routers[1].connect();
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    let cases = [
        ("again", "afterUntrack"),
        ("gone", "afterUntrack"),
        ("gone", "duringUntrack"),
    ];
    for (name, step) in cases {
        run(
            &mut c,
            "d",
            &format!("{{insert: '{name}', documents: [{{k: 1}}, {{k: 2}}]}}"),
        );
        run(
            &mut c,
            "admin",
            &format!("{{moveCollection: 'd.{name}', toShard: 's1'}}"),
        );
        assert_eq!(names(&cluster, 1), [name]);
        let home = format!("{{moveCollection: 'd.{name}', toShard: 's0'}}");
        let moved = stopped(&cluster, step, move |c| c.command("admin", &shell(&home)));
        cluster.routers[0].kill9();
        assert!(moved.join().unwrap().is_err());
        assert_eq!(names(&cluster, 1), [name]);
        if name == "again" {
            run(
                &mut c,
                "admin",
                "{shardCollection: 'd.again', key: {_id: 1}}",
            );
            assert!(names(&cluster, 1).is_empty());
            let found = all(&mut c, "d", "{find: 'again'}");
            assert_eq!(found.len(), 2);
        }
        run(&mut c, "d", &format!("{{drop: '{name}'}}"));
        for shard in 0..2 {
            assert!(names(&cluster, shard).is_empty(), "{name}, {step}");
        }
        cluster.routers[0].start_again();
    }
    assert!(all(&mut c, "d", "{checkMetadataConsistency: 1}").is_empty());
}

/// A router has the configuration forget a divided collection, and ends when one of the shards has dropped it. The drop is
/// repeated, or the database is dropped, and nothing is left of the collection anywhere.
#[test]
fn a_router_ends_while_it_drops() {
    let mut cluster = hasty_cluster(2, 1, 2);
    let mut c = cluster.routers[1].connect();
    // Whichever shard has the database.
    let cases = [
        ("s0", "{drop: 'c'}"),
        ("s1", "{drop: 'c'}"),
        ("s0", "{dropDatabase: 1}"),
        ("s1", "{dropDatabase: 1}"),
    ];
    for (primary, again) in cases {
        run(&mut c, "admin", "{enableSharding: 'd'}");
        run(
            &mut c,
            "admin",
            &format!("{{movePrimary: 'd', to: '{primary}'}}"),
        );
        let divide = "{shardCollection: 'd.c', key: {_id: 'hashed'}}";
        run(&mut c, "admin", divide);
        run(
            &mut c,
            "d",
            "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}, {_id: 4}]}",
        );
        let dropped = stopped(&cluster, "duringDrop", |c| {
            c.command("d", &shell("{drop: 'c'}"))
        });
        cluster.routers[0].kill9();
        assert!(dropped.join().unwrap().is_err());
        run(&mut c, "d", again);
        for shard in 0..2 {
            assert!(names(&cluster, shard).is_empty(), "{primary}, {again}");
        }
        assert!(all(&mut c, "d", "{checkMetadataConsistency: 1}").is_empty());
        cluster.routers[0].start_again();
    }
}

/// A router ends while it untracks a collection, another one drops it, and a third one settles what the first has left
/// before the shard of the database has heard of the drop. Nothing of the collection is left.
#[test]
fn a_collection_is_dropped_while_others_settle() {
    let mut cluster = hasty_cluster(2, 1, 2);
    let mut c = cluster.routers[1].connect();
    run(&mut c, "admin", "{enableSharding: 'd', primaryShard: 's0'}");
    run(&mut c, "d", "{insert: 'c', documents: [{k: 1}, {k: 2}]}");
    run(&mut c, "admin", "{moveCollection: 'd.c', toShard: 's1'}");
    let moved = stopped(&cluster, "duringUntrack", |c| {
        c.command("admin", &shell("{moveCollection: 'd.c', toShard: 's0'}"))
    });
    cluster.routers[0].kill9();
    assert!(moved.join().unwrap().is_err());
    cluster.routers[0].start_again();
    let dropped = stopped(&cluster, "duringDrop", |c| {
        c.command("d", &shell("{drop: 'c'}"))
    });
    let _ = c.command("d", &shell("{find: 'c'}"));
    go_on(&mut cluster.connect());
    dropped.join().unwrap().unwrap();
    assert!(all(&mut c, "d", "{find: 'c'}").is_empty());
    for shard in 0..2 {
        assert!(names(&cluster, shard).is_empty());
    }
    assert!(all(&mut c, "d", "{checkMetadataConsistency: 1}").is_empty());
}
