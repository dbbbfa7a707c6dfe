//! Cursors on shards that cursors of clients need. The router's own ones read several of them; others were passed on to
//! the client as they are (`cursors.rs`).
//!
//! A client may read what one shard has for longer than another shard keeps a cursor that nobody uses. So the router
//! tells the members in time which cursors it still reads. These stay open as long as the client's cursor, which has a
//! time limit of its own. If the router ends, nobody tells the members any more, and they close them.

use super::forward::{Own, ask_own_of_all};
use super::presence::Stops;
use super::{Reach, Router, SetPool};
use crate::sets::Until;
use crate::state::ServerState;
use muniment_value::{ArrayBuf, Doc, DocBuf, doc};
use muniment_wire::client;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A member that has another time limit for its cursors hears of them at least this often.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);
/// So long the members' answers are waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most cursors in a message.
const MOST: usize = 100_000;

/// A cursor on a member of a shard.
pub struct ShardCursor {
    /// The member's set.
    pub set: Arc<SetPool>,
    /// The member.
    pub host: String,
    /// The number; 0 after the end.
    id: AtomicI64,
    /// When the member was last told of it.
    used: Mutex<Instant>,
}

impl ShardCursor {
    /// The cursor's number; 0 after its end.
    pub fn id(&self) -> i64 {
        self.id.load(Relaxed)
    }

    /// Notes that the cursor was used, and has this number; 0 if that was its end.
    pub fn goes_on(&self, id: i64) {
        self.id.store(id, Relaxed);
        *self.used.lock() = muniment_op::now();
    }

    fn is_silent(&self, every: Duration) -> bool {
        self.id() != 0 && muniment_op::since(*self.used.lock()) >= every
    }
}

/// The cursors on shards that the router's own cursors read.
#[derive(Default)]
pub struct ShardCursors(Mutex<Vec<Weak<ShardCursor>>>);

impl ShardCursors {
    /// The cursor with this number, which stays open until what this returns is dropped.
    pub fn begin(&self, set: &Arc<SetPool>, host: &str, id: i64) -> Arc<ShardCursor> {
        let cursor = Arc::new(ShardCursor {
            set: Arc::clone(set),
            host: host.to_string(),
            id: AtomicI64::new(id),
            used: Mutex::new(muniment_op::now()),
        });
        if id != 0 {
            self.0.lock().push(Arc::downgrade(&cursor));
        }
        cursor
    }

    /// The cursors of which the members have not been told for so long.
    fn silent(&self, every: Duration) -> Vec<Arc<ShardCursor>> {
        let mut silent = Vec::new();
        self.0.lock().retain(|cursor| match cursor.upgrade() {
            Some(cursor) => {
                let stays = cursor.id() != 0;
                if cursor.is_silent(every) {
                    silent.push(cursor);
                }
                stays
            }
            None => false,
        });
        silent
    }
}

/// Keeps cursors of a router until the server ends. On a server that is no router it returns at once.
pub fn keep(server: &Arc<ServerState>) {
    let Some(router) = &server.router else { return };
    while !server.lifecycle.wait_for_stop_for(Duration::from_secs(1)) {
        let every = (server.engine.cursors.timeout() / 4).min(LONGEST_SILENCE);
        let read = router.shard_cursors.silent(every);
        for cursor in &read {
            cursor.goes_on(cursor.id());
        }
        let read = read.iter().map(|c| (c.id(), &c.set, c.host.as_str()));
        ask(server, router, read, true);
        let passed_on = router.cursors.doubtful(muniment_op::now());
        let passed_on = passed_on.iter().map(|(id, e)| (*id, &e.set, &*e.host));
        for id in ask(server, router, passed_on, false) {
            router.cursors.remove(id);
        }
    }
}

/// A member of a shard, and the cursors that it is asked about.
struct Member<'c> {
    set: &'c Arc<SetPool>,
    ids: Vec<i64>,
}

/// Asks the members about their cursors, and has them keep these with `keep`. Returns those that are not open any more.
/// A member that does not answer in time is asked again later.
fn ask<'c>(
    server: &ServerState,
    router: &Router,
    cursors: impl Iterator<Item = (i64, &'c Arc<SetPool>, &'c str)>,
    keep: bool,
) -> Vec<i64> {
    let mut members: BTreeMap<(&str, &str), Member<'_>> = BTreeMap::new();
    for (id, set, host) in cursors {
        let ids = Vec::new();
        let member = members.entry((&set.name, host));
        member.or_insert(Member { set, ids }).ids.push(id);
    }
    let commands = members.iter().flat_map(|((_, host), member)| {
        let of_some = member.ids.chunks(MOST).map(|ids| {
            let ids: ArrayBuf = ids.iter().collect();
            doc! { "_shardCursors": 1, "cursors": ids, "keep": keep }
        });
        of_some.map(|command| (*host, member.set, command))
    });
    let commands: Vec<(&str, &Arc<SetPool>, DocBuf)> = commands.collect();
    let asked = commands.iter().map(|(host, set, command)| Own {
        set,
        db: "admin",
        command,
        versions: None,
        reach: Reach::Host(host),
    });
    let asked: Vec<_> = asked.collect();
    if asked.is_empty() {
        return Vec::new();
    }
    let on = Until {
        on: &Stops(server),
        until: muniment_op::now() + PATIENCE,
    };
    let mut gone = Vec::new();
    for reply in ask_own_of_all(&on, router, &asked).into_iter().flatten() {
        let said = reply.body.as_doc();
        if client::check_ok(said).is_ok() {
            let ids = said.get_array("gone").unwrap_or(Doc::EMPTY);
            gone.extend(ids.values().filter_map(|v| v.as_i64_exact()));
        }
    }
    gone
}
