//! Commands on sharded collections.
//!
//! A command says in its declaration what is done with it if its collection is sharded ([`Routed::Shards`]). It is
//! sent to the shards that its filter can reach, with the version of the collection that the router knows
//! (`crate::placement`). A shard that knows better refuses it, the router reads the configuration again, and the
//! command begins anew, so clients see no error about placement, except in a transaction.
//!
//! [`Routed::Shards`]: crate::registry::Routed::Shards

pub mod aggregate;
pub mod bulk;
mod choose;
pub mod chunks;
pub mod ddl;
pub mod dividing;
mod done_ranges;
pub mod explain;
pub mod find;
pub mod host;
mod into;
pub mod lease;
pub mod map_reduce;
pub mod modify;
pub mod move_primary;
pub mod movement;
mod one;
mod output;
pub mod pipeline;
pub mod place;
pub mod read_by;
pub mod reads;
pub mod refine;
mod relocate;
pub mod remote;
pub mod rename;
mod renamed;
pub mod reshard;
mod settle;
pub mod shard;
pub mod split;
pub mod spread;
pub mod stats;
mod upsert;
pub mod view;
pub mod whole;
pub mod writes;
pub mod zones;

use self::remote::{Remote, Terms};
use super::forward::{Beside, Part, ask_all, bring_to_time, newest, reach};
use super::relay::{ask_one, back, tell};
use super::statements::abort;
use super::tables::Known;
use super::{Reach, Router, SetPool};
use crate::context::CommandContext;
use crate::sets::Reply;
use muniment_op::{Interrupt, sleep_until};
use muniment_query::{Filter, QueryContext};
use muniment_shard::{Interval, targets};
use muniment_storage::Timestamp;
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result, Value};
use muniment_wire::client;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long a command is repeated because shards and router differ.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause before a repetition, except the first.
const PAUSE: Duration = Duration::from_millis(20);

/// Counts how often a command was repeated because shards and router differ.
pub struct Repeats {
    until: Instant,
    count: usize,
}

impl Repeats {
    /// None yet.
    pub fn new() -> Repeats {
        Repeats {
            until: muniment_op::now() + PATIENCE,
            count: 0,
        }
    }

    /// Reads the configuration again before the next repetition.
    ///
    /// # Errors
    /// The shard's error if there may be none: after a while, and in a transaction; those of reading.
    pub fn next(
        &mut self,
        cx: &CommandContext<'_>,
        router: &Router,
        own: &str,
        why: Error,
    ) -> Result<()> {
        let extra = why.extra().as_doc().to_buf();
        let extra = extra.as_doc();
        // The database is on another shard by now, or a collection has other chunks.
        let gone = extra.get_str("db");
        let ns = extra.get_str("ns").unwrap_or(own);
        let look = || match gone {
            Some(db) => {
                router.catalog.forget_database(db);
                Ok(())
            }
            None => router.tables.refresh(&**cx.op, router, ns).map(drop),
        };
        if ns != own {
            // The command's collection may be a view over a sharded one, or reads such a view.
            router.views.forget();
        }
        if cx.generic.in_transaction() {
            look()?;
            return Err(why.with_label("TransientTransactionError"));
        }
        if muniment_op::now() >= self.until {
            return Err(why);
        }
        if self.count > 0 {
            // The shard may not have heard yet of what the configuration says, or the other way round.
            sleep_until(muniment_op::now() + PAUSE, &**cx.op)?;
        }
        self.count += 1;
        look()?;
        match (self.count > 2, gone) {
            (false, _) => Ok(()),
            (true, Some(db)) => move_primary::settle(cx, router, db),
            (true, None) => settle::settle(cx, router, ns, extra),
        }
    }
}

/// Whether a shard knows another version of a collection.
pub fn is_stale(e: &Error) -> bool {
    e.code() == Code::StaleConfig
}

/// The shards that a filter can reach, by their places in the table. A filter that cannot be parsed reaches all: they
/// report the error.
pub fn reached(
    cx: &CommandContext<'_>,
    known: &Known,
    filter: Doc<'_>,
    collation: Option<Doc<'_>>,
) -> Vec<usize> {
    if known.buckets {
        return known.all();
    }
    match parsed(cx, known, filter, collation).filter(|_| !known.past) {
        Some(filter) => known
            .table
            .shards_in(&targets(&known.key, &filter).intervals),
        None if known.past => known.all(),
        None => known.table.shards_in(&[Interval::all()]),
    }
}

/// The collation in a command or a statement. An empty one is none: the collection's is used.
pub fn collation_in(of: Doc<'_>) -> Option<Doc<'_>> {
    of.get_doc("collation").filter(|d| !d.is_empty())
}

/// The parsed filter.
fn parsed(
    cx: &CommandContext<'_>,
    known: &Known,
    filter: Doc<'_>,
    collation: Option<Doc<'_>>,
) -> Option<Filter> {
    let own = known.collection.default_collation.as_ref();
    let collation = collation.or(own.map(|d| d.as_doc()));
    let collation = Collation::parse_some(collation).ok()?;
    let query = QueryContext::new()
        .with_collation(collation)
        .on_behalf_of(&**cx.op);
    Filter::parse(filter, &query).ok()
}

/// Whether a shard says that a database has gone elsewhere.
pub fn is_gone(e: &Error) -> bool {
    is_stale(e) && e.extra().as_doc().get_str("db").is_some()
}

/// Sends the same command to these shards at once. Each reply is one of success.
///
/// # Errors
/// Those of [`gather`].
pub fn broadcast(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    shards: &[usize],
    body: Doc<'_>,
) -> Result<Vec<Reply>> {
    let mut sets = Vec::new();
    for shard in shards {
        sets.push((Arc::clone(known.set(*shard)?), known.versions(*shard)));
    }
    gather(cx, router, &sets, body)
}

/// A set, and what it is to expect (see [`crate::placement`]).
pub type OnSet = (Arc<SetPool>, DocBuf);

/// Sends the same command to these sets at once. Each reply is one of success. Reads at a snapshot have one time.
///
/// # Errors
/// Those of the way there; the first set's error, but rather one of placement. No cursor is left open then.
pub fn gather(
    cx: &CommandContext<'_>,
    router: &Router,
    sets: &[OnSet],
    body: Doc<'_>,
) -> Result<Vec<Reply>> {
    let concern = cx
        .generic
        .read_concern
        .filter(|_| !cx.generic.in_transaction());
    let concern = concern.filter(|d| d.get_str("level") == Some("snapshot"));
    let chosen = concern.is_some_and(|d| d.get("atClusterTime").is_some());
    let (Some(concern), true, false) = (concern, sets.len() > 1, chosen) else {
        return at_once(cx, router, sets, body);
    };
    // What the client has seen acknowledged is not after it.
    let newest = newest(cx, router);
    let Some(Value::Timestamp { t, i }) =
        newest.as_ref().and_then(|d| d.as_doc().get("clusterTime"))
    else {
        return at_once(cx, router, sets, body);
    };
    cx.op.reads_at(Timestamp::new(t, i));
    let mut concern = concern.to_buf();
    concern.append("atClusterTime", Value::Timestamp { t, i });
    let mut at = DocBuf::new();
    for e in body {
        match e.name() {
            "readConcern" => at.append("readConcern", concern.clone()),
            _ => at.append_elem(e),
        };
    }
    at_once(cx, router, sets, at.as_doc())
}

fn at_once(
    cx: &CommandContext<'_>,
    router: &Router,
    sets: &[OnSet],
    body: Doc<'_>,
) -> Result<Vec<Reply>> {
    let all: Vec<&Arc<SetPool>> = sets.iter().map(|(set, _)| set).collect();
    bring_to_time(cx, router, &all);
    let parts = sets.iter().map(|(set, versions)| Part {
        set,
        db: cx.db(),
        body,
        beside: Beside::Nothing,
        versions: Some(versions.as_doc()),
        reach: reach(cx),
    });
    let parts: Vec<_> = parts.collect();
    let mut failed: Option<Error> = None;
    let mut replies = Vec::new();
    for reply in ask_parts(cx, router, &parts) {
        let checked = reply.and_then(|reply| client::check_ok(reply.body.as_doc()).map(|()| reply));
        replies.push(match checked {
            Ok(reply) => Some(reply),
            Err(e) => {
                failed = match failed {
                    Some(first) if is_stale(&first) || !is_stale(&e) => Some(first),
                    _ => Some(e),
                };
                None
            }
        });
    }
    match failed {
        None => Ok(replies.into_iter().flatten().collect()),
        Some(e) => {
            close(cx, sets, replies.into_iter());
            Err(e)
        }
    }
}

/// Ends the cursors of replies, which are those of the sets, as far as there are any.
fn close(cx: &CommandContext<'_>, sets: &[OnSet], replies: impl Iterator<Item = Option<Reply>>) {
    let on: Arc<dyn Interrupt> = Arc::clone(cx.op) as Arc<dyn Interrupt>;
    let terms = Terms::new(cx, &on);
    for (reply, (set, _)) in replies.zip(sets) {
        // It ends its cursor when it is dropped.
        drop(reply.map(|reply| Remote::new(&terms, set, &reply)));
    }
}

/// Sends parts at once; in a transaction one after the other.
fn ask_parts(cx: &CommandContext<'_>, router: &Router, parts: &[Part<'_>]) -> Vec<Result<Reply>> {
    match cx.generic.in_transaction() {
        true => parts.iter().map(|part| ask_one(cx, router, part)).collect(),
        false => ask_all(cx, router, parts),
    }
}

/// Sends the primary of one shard a command on a collection; the reply, be it an error.
///
/// # Errors
/// Those of the way there.
pub fn ask_shard(
    cx: &CommandContext<'_>,
    router: &Router,
    (known, shard): (&Known, usize),
    body: Doc<'_>,
    beside: Beside<'_>,
) -> Result<Reply> {
    let versions = known.versions(shard);
    let part = Part {
        set: known.set(shard)?,
        db: known.db(),
        body,
        beside,
        versions: Some(versions.as_doc()),
        reach: Reach::Primary,
    };
    ask_one(cx, router, &part)
}

/// Passes the command on to one shard, and its reply back.
///
/// # Errors
/// The shard's.
pub fn to_one(
    cx: &mut CommandContext<'_>,
    router: &Router,
    known: &Known,
    shard: usize,
) -> Result<()> {
    let (set, versions) = (known.set(shard)?, known.versions(shard));
    let part = Part {
        set,
        db: cx.db(),
        body: cx.request.body,
        beside: Beside::AsSent,
        versions: Some(versions.as_doc()),
        reach: reach(cx),
    };
    let reply = ask_one(cx, router, &part)?;
    back(cx, router, set, &reply)
}

/// The time that the client has chosen for a read outside of transactions.
pub fn time_of_read(cx: &CommandContext<'_>) -> Option<muniment_shard::Timestamp> {
    let concern = cx
        .generic
        .read_concern
        .filter(|_| !cx.generic.in_transaction())?;
    match concern.get("atClusterTime")? {
        Value::Timestamp { t, i } => Some(muniment_shard::Timestamp::new(t, i)),
        _ => None,
    }
}

/// What a command of the router's own needs of the client's: its transaction, time and comment.
pub fn with_terms(cx: &CommandContext<'_>, mut command: DocBuf) -> DocBuf {
    const OF_TRANSACTION: [&str; 3] = ["txnNumber", "autocommit", "startTransaction"];
    for e in cx.request.body {
        let of_transaction = OF_TRANSACTION.contains(&e.name()) && cx.generic.in_transaction();
        let given =
            matches!(e.name(), "maxTimeMS" | "comment") && !matches!(e.value(), Value::Null);
        if of_transaction || given {
            command.append_elem(e);
        }
    }
    command.append_some("maxTimeMS", unlimited(cx));
    command
}

/// The `maxTimeMS` of a read that is part of a write without one: the shards' limit for reads is not for it.
pub fn unlimited(cx: &CommandContext<'_>) -> Option<i32> {
    let reads = (cx.spec.is_read_operation)(cx.request.body);
    (!reads && !cx.generic.max_time_given).then_some(0)
}

/// Tells the client which shard knows how its transaction ends, after a command of several parts.
pub fn told(cx: &mut CommandContext<'_>, router: &Router) {
    let id = cx.generic.session.zip(cx.generic.txn_number);
    let known = id.filter(|_| cx.generic.in_transaction());
    let known = known.and_then(|id| router.transactions.of(&id));
    if let Some(set) = known.as_ref().and_then(|known| known.coordinator()) {
        tell(cx, router, &Arc::clone(set));
    }
}

/// Aborts the client's transaction, because a statement has failed at the router.
pub fn fails(cx: &CommandContext<'_>, router: &Router) {
    let id = cx.generic.session.zip(cx.generic.txn_number);
    let Some(id) = id.filter(|_| cx.generic.in_transaction()) else {
        return;
    };
    router.transactions.fails(&id);
    if let Some(known) = router.transactions.of(&id) {
        abort(cx, router, &known);
    }
}

/// The member that everything of a write goes to.
const PRIMARY: Reach<'static> = Reach::Primary;
