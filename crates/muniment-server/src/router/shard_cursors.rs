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
        self.told();
    }

    /// Notes that the member is told of it now.
    fn told(&self) {
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
        read.iter().for_each(|cursor| cursor.told());
        let read = read.iter().map(|c| (c.id(), &c.set, c.host.as_str()));
        ask(server, router, read, true);
        let passed_on = router.cursors.doubtful(muniment_op::now());
        let passed_on = passed_on.iter().map(|(id, e)| (*id, &e.set, &*e.host));
        let answers = ask(server, router, passed_on, false);
        answers
            .gone
            .iter()
            .for_each(|id| router.cursors.remove(*id));
        let answered = answers.answered.iter();
        answered.for_each(|id| router.cursors.note_open(*id));
        let unanswered = answers.unanswered.iter();
        unanswered.for_each(|id| router.cursors.unanswered(*id));
    }
}

/// A member of a shard, and the cursors that it is asked about.
struct Member<'c> {
    set: &'c Arc<SetPool>,
    ids: Vec<i64>,
}

/// What members have said of cursors.
#[derive(Default)]
struct Answers {
    /// Those of members that have answered.
    answered: Vec<i64>,
    /// Those of them that are not open any more.
    gone: Vec<i64>,
    /// Those of members that have not answered in time.
    unanswered: Vec<i64>,
}

/// Asks the members about their cursors, and has them keep these with `keep`.
fn ask<'c>(
    server: &ServerState,
    router: &Router,
    cursors: impl Iterator<Item = (i64, &'c Arc<SetPool>, &'c str)>,
    keep: bool,
) -> Answers {
    let mut members: BTreeMap<(&str, &str), Member<'_>> = BTreeMap::new();
    for (id, set, host) in cursors {
        let ids = Vec::new();
        let member = members.entry((&set.name, host));
        member.or_insert(Member { set, ids }).ids.push(id);
    }
    let commands = members.iter().flat_map(|((_, host), member)| {
        let of_some = member.ids.chunks(MOST).map(|ids| {
            let all: ArrayBuf = ids.iter().collect();
            (
                ids,
                doc! { "_shardCursors": 1, "cursors": all, "keep": keep },
            )
        });
        of_some.map(|(ids, command)| (*host, member.set, ids, command))
    });
    let commands: Vec<(&str, &Arc<SetPool>, &[i64], DocBuf)> = commands.collect();
    let asked = commands.iter().map(|(host, set, _, command)| Own {
        set,
        db: "admin",
        command,
        versions: None,
        reach: Reach::Host(host),
    });
    let asked: Vec<_> = asked.collect();
    if asked.is_empty() {
        return Answers::default();
    }
    let on = Until {
        on: &Stops(server),
        until: muniment_op::now() + PATIENCE,
    };
    let mut answers = Answers::default();
    let replies = ask_own_of_all(&on, router, &asked);
    for (reply, (_, _, ids, _)) in replies.into_iter().zip(&commands) {
        let said = reply.and_then(|reply| {
            client::check_ok(reply.body.as_doc())?;
            Ok(reply.body)
        });
        match said {
            Ok(said) => {
                answers.answered.extend_from_slice(ids);
                let gone = said.as_doc().get_array("gone").unwrap_or(Doc::EMPTY);
                let gone = gone.values().filter_map(|v| v.as_i64_exact());
                answers.gone.extend(gone);
            }
            Err(_) => answers.unanswered.extend_from_slice(ids),
        }
    }
    answers
}
