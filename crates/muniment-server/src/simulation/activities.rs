//! What is done through routers in the course of a run: by clients, by those that move ranges, and at the begin and the
//! end.

use super::admin::{self, Admin};
use super::bank::{self, Banker};
use super::clients::{BANK, BANKERS, CLIENTS, Client, DB, FIRST, KEYS, ROWS, must};
use super::cluster::{FIRST_ROUTER, ROUTERS, SHARDS, shard_name};
use super::oracle::Row;
use super::world::{MS, World};
use muniment_value::doc;
use std::sync::Arc;

/// At most. Movers count on from the clients.
const MOVERS: usize = 2;

/// A fibre counts as busy until it ends.
struct Busy(Arc<World>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.lock().oracle.busy -= 1;
    }
}

/// Clients and movers begin.
pub fn begin(world: &Arc<World>) {
    let mut inner = world.lock();
    // The last one changes the catalog.
    let movers = 1 + inner.random.below(MOVERS as u64) as usize;
    for number in (0..=CLIENTS + movers).chain([BANKERS, BANKERS + 1]) {
        let busy = Busy(Arc::clone(world));
        inner.oracle.busy += 1;
        let soon = inner.random.below(50 * MS);
        let job = Box::new(move || {
            let _busy = busy;
            let mut client = Client::new(number);
            match number {
                _ if number < CLIENTS => client.live(),
                _ if number >= BANKERS => Banker::new(client).live(),
                _ if number < CLIENTS + movers => client.live_as_mover(),
                _ => Admin::new(client).live(),
            }
        });
        let fibre = inner.spawn(None, soon, job);
        inner.fibres.get_mut(&fibre).unwrap().moves = (CLIENTS..BANKERS).contains(&number);
    }
}

/// Whether all of them have ended.
pub fn are_done(world: &World) -> bool {
    world.lock().oracle.busy == 0
}

/// Makes the cluster, and the first documents.
pub fn prepare() {
    let mut client = Client::new(90);
    for n in 1..=SHARDS {
        let host = client.here.world.lock().processes[n].host.clone();
        let name = shard_name(n);
        must(
            &mut client,
            &doc! { "addShard": format!("{name}/{host}"), "name": &name },
            "admin",
        );
    }
    let ns = format!("{DB}.{ROWS}");
    must(
        &mut client,
        &doc! { "enableSharding": DB, "primaryShard": shard_name(1) },
        "admin",
    );
    must(
        &mut client,
        &doc! { "shardCollection": &ns, "key": doc! { "k": 1 } },
        "admin",
    );
    let docs: muniment_value::ArrayBuf = (0..FIRST)
        .map(|id| {
            let k = client.below(KEYS as u64) as i64;
            let mut inner = client.here.world.lock();
            let tick = inner.oracle.tick();
            let row = Row {
                k,
                there: Some(tick),
                ..Row::default()
            };
            inner.oracle.rows.insert(id, row);
            doc! { "_id": id, "k": k, "n": 0_i64, "m": 0_i64 }
        })
        .collect();
    must(&mut client, &doc! { "insert": ROWS, "documents": docs }, DB);
    let half = doc! { "moveRange": &ns, "min": doc! { "k": KEYS / 2 }, "toShard": shard_name(2) };
    must(&mut client, &half, "admin");
    bank::prepare(&mut client);
}

/// Everything is healed: all documents are found through each router, whatever moves.
pub fn look_at_the_end() {
    let mut client = Client::new(91);
    let ns = format!("{DB}.{ROWS}");
    for r in FIRST_ROUTER..FIRST_ROUTER + ROUTERS {
        client.router = r;
        client.pause_if_down();
        look(&mut client);
        admin::look(&mut client);
        let mut other = Client::new(92 + r);
        other.router = r;
        Banker::new(other).look_at_the_end();
    }
    // Shards without a chunk are asked only when something moves.
    for n in 1..=SHARDS {
        let last = doc! { "k": KEYS - 1 };
        for ns in [ns.clone(), format!("{DB}.{}", BANK)] {
            let command = doc! { "moveRange": ns, "min": &last, "toShard": shard_name(n) };
            must(&mut client, &command, "admin");
        }
    }
    look(&mut client);
    admin::end(&mut client);
}

fn look(client: &mut Client) {
    let asked = client.begin((0, KEYS));
    for attempt in 0.. {
        let Some(found) = client.read(doc! { "find": ROWS, "batchSize": 1000 }) else {
            let mut inner = client.here.world.lock();
            if attempt > 50 {
                inner.fail("at the end documents cannot be read".into());
            }
            if inner.failure.is_some() || inner.ends {
                return;
            }
            drop(inner);
            client.here.sleep(200 * MS);
            continue;
        };
        let mut inner = client.here.world.lock();
        let checked = inner.oracle.check_scan(&found, &asked);
        if let Err(why) = checked {
            inner.fail(format!("at the end: {why}"));
        }
        return;
    }
}
