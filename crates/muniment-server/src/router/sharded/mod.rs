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
pub mod ddl;
pub mod explain;
pub mod find;
mod host;
mod lease;
pub mod modify;
mod one;
mod pipeline;
mod place;
pub mod reads;
mod relocate;
mod remote;
mod settle;
pub mod shard;
pub mod spread;
pub mod stats;
mod upsert;
pub mod view;
pub mod writes;

use super::forward::{Beside, Part, ask_all, reach};
use super::relay::{ask_one, back};
use super::tables::Known;
use super::{Reach, Router, SetPool};
use crate::context::CommandContext;
use crate::sets::Reply;
use muniment_op::sleep_until;
use muniment_query::{Filter, QueryContext};
use muniment_shard::{Interval, targets};
use muniment_value::{Code, Collation, Doc, DocBuf, Error, Result};
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
            until: Instant::now() + PATIENCE,
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
        ns: &str,
        why: Error,
    ) -> Result<()> {
        let extra = why.extra().as_doc();
        let ns = extra.get_str("ns").unwrap_or(ns).to_string();
        if cx.generic.in_transaction() {
            router.tables.refresh(&**cx.op, router, &ns)?;
            return Err(why.with_label("TransientTransactionError"));
        }
        if Instant::now() >= self.until {
            return Err(why);
        }
        if self.count > 0 {
            // The shard may not have heard yet of what the configuration says, or the other way round.
            sleep_until(Instant::now() + PAUSE, &**cx.op)?;
        }
        self.count += 1;
        router.tables.refresh(&**cx.op, router, &ns)?;
        if self.count > 2 {
            settle::settle(cx, router, &ns, extra)?;
        }
        Ok(())
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
    match parsed(cx, known, filter, collation) {
        Some(filter) => known
            .table
            .shards_in(&targets(&known.key, &filter).intervals),
        None => known.table.shards_in(&[Interval::all()]),
    }
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

/// Sends the same command to these shards at once. Each reply is one of success.
///
/// # Errors
/// Those of the way there; the first shard's error, but rather one of placement.
pub fn broadcast(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    shards: &[usize],
    body: Doc<'_>,
) -> Result<Vec<Reply>> {
    let versions: Vec<DocBuf> = shards.iter().map(|shard| known.versions(*shard)).collect();
    let mut parts = Vec::new();
    for (shard, versions) in shards.iter().zip(&versions) {
        parts.push(Part {
            set: known.set(*shard)?,
            db: cx.db(),
            body,
            beside: Beside::Nothing,
            versions: Some(versions.as_doc()),
            reach: reach(cx),
        });
    }
    let replies = ask_parts(cx, router, &parts);
    let mut good = Vec::new();
    let mut first = None;
    for reply in replies {
        match reply.and_then(|reply| client::check_ok(reply.body.as_doc()).map(|()| reply)) {
            Ok(reply) => good.push(reply),
            Err(e) if is_stale(&e) => return Err(e),
            Err(e) => {
                first.get_or_insert(e);
            }
        }
    }
    first.map_or(Ok(good), Err)
}

/// A set, and what it is to expect (see [`crate::placement`]).
pub type OnSet = (Arc<SetPool>, DocBuf);

/// Sends the same command to these sets at once. Each reply is one of success.
///
/// # Errors
/// Those of the way there; the first set's error.
pub fn gather(
    cx: &CommandContext<'_>,
    router: &Router,
    sets: &[OnSet],
    body: Doc<'_>,
) -> Result<Vec<Reply>> {
    let parts = sets.iter().map(|(set, versions)| Part {
        set,
        db: cx.db(),
        body,
        beside: Beside::Nothing,
        versions: Some(versions.as_doc()),
        reach: reach(cx),
    });
    let parts: Vec<_> = parts.collect();
    let mut good = Vec::new();
    for reply in ask_parts(cx, router, &parts) {
        let reply = reply?;
        client::check_ok(reply.body.as_doc())?;
        good.push(reply);
    }
    Ok(good)
}

/// Sends parts at once; in a transaction one after the other.
fn ask_parts(cx: &CommandContext<'_>, router: &Router, parts: &[Part<'_>]) -> Vec<Result<Reply>> {
    match cx.generic.in_transaction() {
        true => parts.iter().map(|part| ask_one(cx, router, part)).collect(),
        false => ask_all(cx, router, parts),
    }
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

/// All places of a table's shards that have chunks.
pub fn all_of(known: &Known) -> Vec<usize> {
    (0..known.table.shards().len())
        .filter(|shard| known.table.ranges_on(*shard) > 0)
        .collect()
}

/// What a command of the router's own needs of the client's: its transaction, time and comment.
pub fn with_terms(cx: &CommandContext<'_>, mut command: DocBuf) -> DocBuf {
    const OF_TRANSACTION: [&str; 3] = ["txnNumber", "autocommit", "startTransaction"];
    for e in cx.request.body {
        let of_transaction = OF_TRANSACTION.contains(&e.name()) && cx.generic.in_transaction();
        if of_transaction || matches!(e.name(), "maxTimeMS" | "comment") {
            command.append_elem(e);
        }
    }
    command
}

/// The member that everything of a write goes to.
const PRIMARY: Reach<'static> = Reach::Primary;
