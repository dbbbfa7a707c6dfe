//! Dividing a collection by another shard key.
//!
//! 1. The right to change the collection is taken, and all shards are told what the configuration says. Chunks are chosen,
//!    and the [`operation`] is noted in the configuration.
//! 2. Each shard that gets chunks, and the one that holds the database, gets a collection with a new UUID and a name of
//!    its own, which nobody uses. Its documents, and what sessions remember, are [copied](copy) into these, and then what
//!    has changed meanwhile, again and again, until little is left.
//! 3. All shards with documents are frozen: they take no writes, and routers wait. The rest is copied.
//! 4. The configuration decides, in the transaction that gives the right back. The time of the new generation is later
//!    than everything that was written to the old one.
//! 5. The shards are told: the new collection takes the place of the old one in one commit on each of them. The chunks of
//!    the old one are forgotten, and then the operation.
//!
//! A router that ends before 4 has changed nothing, and after it everything. The operation says what is to be taken away
//! or finished; the next router does it that meets a shard which waits, changes the collection, or is asked to, and
//! so does the balancer. `abortReshardCollection` takes the right away from the router that is at work, after which it
//! cannot decide.

mod copy;
pub mod operation;
mod plan;
pub mod progress;

pub use plan::Spread;

use self::copy::Copy;
use self::operation::{Operation, all, settle_all, shards_to};
use self::plan::{Plan, plan};
use self::progress::Progress;
use super::chunks::{known_now, not_sharded, note, with_lease};
use super::dividing::{ShardRequest, check_collection, has_index, index_of, is_key};
use super::lease::Lease;
use super::movement::time_of;
use super::place::{
    Ends, Stored, Told, all_agree, of_table, placed, retell, stored, tell, tell_streams,
};
use super::shard::write_chunks;
use crate::context::CommandContext;
use crate::router::configuration::read;
use crate::router::forward::run;
use crate::router::place::set_of;
use crate::router::{FORMER_KEYS, Known, Router};
use crate::uuid::{random_uuid, uuid_value};
use muniment_op::Interrupt;
use muniment_query::context::now_ms;
use muniment_shard::catalog::{Collection, Tag};
use muniment_shard::{Generation, RangeTable, ShardKey, Timestamp};
use muniment_value::{ArrayBuf, Code, DocBuf, Error, Result, Value, array, doc, new_object_id};
use std::sync::Arc;
use std::time::Duration;

/// For what the right to change the collection is taken.
const WHAT: &str = "reshardCollection";
/// The shards are frozen once a round has found so few changes.
const FEW: usize = 1000;
/// How often they are frozen while transactions use the collection.
const ATTEMPTS: u8 = 20;
/// The fields of the command that `currentOp` shows.
const SHOWN: [&str; 8] = [
    WHAT,
    "key",
    "unique",
    "numInitialChunks",
    "zones",
    "collation",
    "forceRedistribution",
    "shardDistribution",
];
/// So long the rest is copied: nobody can write meanwhile.
const LAST: Duration = Duration::from_secs(5);

/// What a client asks for.
pub struct ReshardRequest<'r> {
    /// The collection's full name.
    pub ns: &'r str,
    /// The new shard key.
    pub key: Arc<ShardKey>,
    /// How many chunks there are to be.
    pub chunks: Option<usize>,
    /// The ranges of zones by the new key.
    pub zones: Option<Vec<Tag>>,
    /// The client says that the collation of the key is the simple one.
    pub simple: bool,
    /// Documents are moved also if the key is what it is already.
    pub forced: bool,
    /// The shards that get documents.
    pub spread: Spread,
}

/// Divides a collection by another key.
///
/// # Errors
/// 118 NamespaceNotSharded; 115 CommandNotSupported for a time series; 341 ReshardCollectionAborted; 72, 2 for what
/// cannot be divided so; 61 ShardKeyNotFound for a document that can have no such key; 11000 DuplicateKey for two
/// documents with one `_id` that would come to one shard; 24 LockTimeout if transactions do not let the shards be frozen;
/// 46, 117 if another router changes the collection; those of the sets.
pub fn reshard(
    cx: &CommandContext<'_>,
    router: &Router,
    request: &ReshardRequest<'_>,
) -> Result<()> {
    let known = known_now(cx, router, request.ns)?;
    if known.collection.unsplittable {
        return Err(not_sharded(request.ns));
    }
    if known.series().is_some() {
        // Its documents are copied by their `_id`s.
        let why = format!("the time series {} keeps its shard key", request.ns);
        return Err(Error::new(Code::CommandNotSupported, why));
    }
    if is_key(&request.key, known.key.pattern()) && !request.forced {
        return Ok(());
    }
    with_lease(cx, router, (request.ns, WHAT), |lease, _| {
        // Only this right can be seized, at any age: its time is not later than that of one who has done so.
        lease.renew(cx, router)?;
        settle_all(cx, router, request.ns, lease.at)?;
        let known = known_now(cx, router, request.ns)?;
        all_agree(cx, router, &known, (&[], lease.at))?;
        begin(cx, router, lease, &known, request)
    })
}

/// Notes the operation, and leads it.
fn begin(
    cx: &CommandContext<'_>,
    router: &Router,
    lease: &Lease,
    known: &Arc<Known>,
    request: &ReshardRequest<'_>,
) -> Result<()> {
    let held = held(cx, router, known)?;
    let new = made_as(&held, request)?;
    let planned = lease.keep(cx, router, || plan(cx, router, known, request))?;
    let generation = Generation {
        uuid: new.uuid,
        timestamp: lease.at,
    };
    let records = planned.records.clone();
    let table = RangeTable::build(Arc::clone(&request.key), generation, records)?;
    let to_copy = sizes(cx, router, known)?;
    let operation = Operation {
        ns: known.ns().to_string(),
        new: generation,
        old: known.collection.generation,
        commits: false,
    };
    Operation::begins(cx, router, &noted(cx, known, &table, &operation))?;
    let mut command = DocBuf::new();
    for e in cx.request.body.iter().filter(|e| SHOWN.contains(&e.name())) {
        command.append_elem(e);
    }
    let shown = router
        .resharding
        .begin(known.ns(), command.as_doc(), to_copy);
    let this = Reshard {
        cx,
        router,
        lease,
        known,
        request,
        held,
        new,
        plan: planned,
        table,
        operation,
        progress: &shown,
    };
    let details = doc! { "oldKey": known.key.pattern(), "newKey": request.key.pattern() };
    note(
        cx,
        router,
        ("reshardCollection.start", known.ns()),
        &details,
    );
    match this.run() {
        Ok(()) => {}
        Err(e) => this.ended(e)?,
    }
    note(cx, router, ("reshardCollection.end", known.ns()), &details);
    let o = doc! {
        "reshardCollection": known.name(), "reshardUUID": uuid_value(&generation.uuid),
        "shardKey": request.key.pattern(), "oldShardKey": known.key.pattern(), "unique": false,
        "numInitialChunks": this.table.len() as i64,
    };
    tell_streams(
        cx,
        router,
        (known.ns(), &known.collection.generation.uuid),
        &o,
    );
    Ok(())
}

/// The collection as the shards with documents have it.
fn held(cx: &CommandContext<'_>, router: &Router, known: &Known) -> Result<Stored> {
    let one = known.all().first().copied().unwrap_or(0);
    let held = stored(cx, router, known.set(one)?, known.ns())?;
    let held = held.filter(|h| h.uuid == known.collection.generation.uuid);
    held.ok_or_else(|| {
        let why = format!("a shard that owns documents does not have {}", known.ns());
        Error::new(Code::NamespaceNotFound, why)
    })
}

/// The new collection: that which is there, with another UUID, and with an index that begins with the new key.
fn made_as(held: &Stored, request: &ReshardRequest<'_>) -> Result<Stored> {
    let wanted = ShardRequest {
        ns: request.ns,
        key: Arc::clone(&request.key),
        unique: false,
        chunks: None,
        simple: request.simple,
        unsplittable: false,
        series: None,
    };
    check_collection(held, &wanted)?;
    let mut indexes = held.indexes.clone();
    if !has_index(held, &request.key, false) {
        indexes.push(index_of(held, &request.key));
    }
    Ok(Stored {
        uuid: random_uuid(),
        options: held.options.clone(),
        indexes,
    })
}

/// How many documents and bytes there are, about.
fn sizes(cx: &CommandContext<'_>, router: &Router, known: &Known) -> Result<(u64, u64)> {
    let (mut docs, mut bytes) = (0, 0);
    for shard in known.all() {
        let stats = doc! { "collStats": known.name() };
        let reply = run(
            &**cx.op,
            router,
            known.set(shard)?,
            known.db(),
            &stats,
            true,
        )?;
        let of = |name: &str| {
            let n = reply.as_doc().get(name).and_then(|v| v.as_i64_exact());
            u64::try_from(n.unwrap_or(0)).unwrap_or(0)
        };
        docs += of("count");
        bytes += of("size");
    }
    Ok((docs, bytes))
}

/// What the configuration is to know of the operation.
fn noted(
    cx: &CommandContext<'_>,
    known: &Known,
    table: &RangeTable,
    operation: &Operation,
) -> DocBuf {
    let names = |shards: Vec<String>| shards_to(shards.into_iter());
    let donors = known.all().into_iter();
    let donors = donors.map(|shard| known.table.shard_name(shard).to_string());
    let recipients = table.shards().iter().map(|name| name.to_string());
    let mut document = doc! {
        "_id": uuid_value(&operation.new.uuid),
        "ns": known.ns(),
        "ui": uuid_value(&operation.old.uuid),
        "tempNs": operation.temporary(),
        "reshardingKey": table.key().pattern(),
        "startTime": Value::DateTime(now_ms()),
        "state": "preparing-to-donate",
        "donorShards": names(donors.collect()),
        "recipientShards": names(recipients.collect()),
        "timestamp": operation.old.timestamp.to_value(),
        "began": operation.new.timestamp.to_value(),
    };
    document.append_some("comment", cx.request.body.get("comment"));
    document
}

struct Reshard<'r> {
    cx: &'r CommandContext<'r>,
    router: &'r Router,
    lease: &'r Lease,
    known: &'r Arc<Known>,
    request: &'r ReshardRequest<'r>,
    /// The collection as it is.
    held: Stored,
    /// The new one.
    new: Stored,
    plan: Plan,
    table: RangeTable,
    operation: Operation,
    progress: &'r Progress,
}

impl Reshard<'_> {
    fn run(&self) -> Result<()> {
        let (cx, router) = (self.cx, self.router);
        self.lease.keep(cx, router, || self.make())?;
        self.cx.at_step("reshardMade")?;
        let on = Arc::clone(cx.op) as Arc<dyn Interrupt>;
        let names = (&self.table, self.operation.temporary());
        let copy = Copy::new(on, router, self.known, names, self.progress)?;
        self.comes_to("cloning")?;
        self.lease.keep(cx, router, || copy.rows())?;
        self.cx.at_step("reshardCopied")?;
        self.comes_to("applying")?;
        let at = self.catch_up(&copy)?;
        self.decide(at)?;
        // If this fails, the next router that meets the shards does it.
        let _ = self.operation.settle(cx, router, self.lease.at);
        Ok(())
    }

    /// Makes the new collection on the shards, and writes its chunks.
    fn make(&self) -> Result<()> {
        let (cx, router) = (self.cx, self.router);
        let home = set_of(cx, router, self.known.db())?;
        let temporary = self.operation.temporary();
        for (name, set) in router.catalog.shards(&**cx.op, router)? {
            let shard = self.table.shard_named(&name);
            if shard.is_none() && set.name != home.name {
                continue;
            }
            let told = Told {
                ns: &temporary,
                stored: &self.new,
                placement: of_table(&self.table, shard, true)?.as_of(self.lease.at),
                ends: None,
            };
            tell(cx, router, &set, &told)?;
        }
        let generation = self.table.generation();
        write_chunks(
            cx,
            router,
            &self.request.key,
            &self.plan.records,
            generation,
        )
    }

    /// Copies what changes until nothing can change any more; the time after which nothing was written.
    fn catch_up(&self, copy: &Copy<'_>) -> Result<Timestamp> {
        for attempt in 1_u8.. {
            loop {
                let round = self.keep(|| copy.round(None))?;
                if round.touched < FEW && !round.more {
                    break;
                }
                let now = all(self.cx, self.router, Some(self.known.ns()))?;
                if now
                    .iter()
                    .any(|now| now.new.uuid == self.new.uuid && now.commits)
                {
                    break;
                }
            }
            self.cx.at_step("reshardCaughtUp")?;
            self.comes_to("blocking-writes")?;
            // A message that ends one attempt, and comes late, must not end a later one.
            let mut id = self.new.uuid;
            id[15] = attempt;
            match self.freeze(copy, &id) {
                Err(e) if e.code() == Code::LockTimeout && attempt < ATTEMPTS => {}
                other => return other,
            }
            // What could not be finished must not keep others waiting.
            self.thaw(&id)?;
            self.comes_to("applying")?;
        }
        Err(Error::internal("resharding has no end"))
    }

    /// Has the shards take no more writes, and copies the rest.
    fn freeze(&self, copy: &Copy<'_>, id: &[u8; 16]) -> Result<Timestamp> {
        let (cx, router) = (self.cx, self.router);
        let mut least = Vec::new();
        for set in copy.donors() {
            self.lease.renew(cx, router)?;
            let give = doc! {
                "_shardGive": self.known.name(), "uuid": uuid_value(&self.held.uuid),
                "id": uuid_value(id), "right": self.lease.at.to_value(),
            };
            let reply = run(&**cx.op, router, set, self.known.db(), &give, true)?;
            least.push(time_of(&reply)?);
        }
        self.cx.at_step("reshardFrozen")?;
        for set in copy.donors() {
            let now = stored(cx, router, set, self.known.ns())?;
            let same =
                |now: &Stored| now.indexes == self.held.indexes && now.options == self.held.options;
            if !now.is_some_and(|now| same(&now)) {
                return Err(Error::new(
                    Code::ConflictingOperationInProgress,
                    format!("{} was changed while it was divided anew", self.known.ns()),
                ));
            }
        }
        let until = muniment_op::now() + LAST;
        loop {
            let round = self.keep(|| copy.round(Some(&least)))?;
            if !round.more && !round.again {
                break;
            }
            if muniment_op::now() >= until {
                let why = "too much was written to the collection in the end of its copying";
                return Err(Error::new(Code::LockTimeout, why));
            }
        }
        self.cx.at_step("reshardComplete")?;
        Ok(least.into_iter().max().unwrap_or_default())
    }

    /// Has the shards take writes again.
    fn thaw(&self, id: &[u8; 16]) -> Result<()> {
        let (cx, router) = (self.cx, self.router);
        for shard in self.known.all() {
            let set = self.known.set(shard)?;
            let of = (self.known.ns(), &self.held.uuid);
            let placement = placed(self.known, Some(shard))?;
            let ends = Ends {
                id: uuid_value(id),
                right: None,
            };
            retell(cx, router, set, of, (placement, Some(ends)))?;
        }
        Ok(())
    }

    /// Has the configuration decide.
    fn decide(&self, at: Timestamp) -> Result<()> {
        let ns = self.known.ns();
        // Settings of the balancer may have changed since it was read first.
        let now = read(
            &**self.cx.op,
            self.router,
            "collections",
            doc! { "_id": ns },
        )?
        .pop();
        let now = now.map(|d| Collection::parse(d.as_doc())).transpose()?;
        let same = now.filter(|now| now.generation == self.known.collection.generation);
        let old = same.as_ref().unwrap_or(&self.known.collection);
        let mut rest = DocBuf::new();
        for e in old.rest.as_doc().iter().filter(|e| e.name() != FORMER_KEYS) {
            rest.append_elem(e);
        }
        rest.append(FORMER_KEYS, self.known.keys_before(at));
        let new = Collection {
            rest,
            epoch: new_object_id(),
            last_changed: now_ms(),
            generation: Generation {
                uuid: self.new.uuid,
                timestamp: at,
            },
            key: self.request.key.pattern().to_buf(),
            unique: false,
            ..old.clone()
        };
        let update = doc! {
            "q": doc! { "_id": ns, "uuid": uuid_value(&old.generation.uuid) }, "u": new.to_doc(),
        };
        let of_zones = doc! { "q": doc! { "ns": ns }, "limit": 0 };
        let mut statements = vec![
            doc! { "update": "collections", "updates": array![update] },
            doc! { "delete": "tags", "deletes": array![of_zones] },
        ];
        if !self.plan.tags.is_empty() {
            let tags: ArrayBuf = self.plan.tags.iter().map(Tag::to_doc).collect();
            statements.push(doc! { "insert": "tags", "documents": tags });
        }
        self.lease.commit(self.cx, self.router, statements)?;
        self.cx.at_step("reshardDecided")
    }

    /// What has failed is taken away, or finished if it was decided all the same.
    fn ended(&self, e: Error) -> Result<()> {
        let (cx, router, ns) = (self.cx, self.router, self.known.ns());
        if self.lease.renew(cx, router).is_ok() {
            // Nothing was decided, and nobody else is at work. If this fails, another router does it later.
            let _ = self.operation.settle(cx, router, self.lease.at);
            return Err(e);
        }
        // The right has gone with the decision, or another router has taken it. What is read under a new one is not
        // older than either.
        let Ok(lease) = Lease::take(cx, router, ns, WHAT) else {
            return Err(e);
        };
        let decided = self.operation.is_decided(cx, router);
        if decided.is_ok() {
            let _ = self.operation.settle(cx, router, lease.at);
        }
        lease.release(cx, router)?;
        match decided? {
            true => Ok(()),
            false => Err(Error::new(
                Code::ReshardCollectionAborted,
                format!("reshardCollection of {ns} was aborted"),
            )),
        }
    }

    fn keep<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.lease.renew(self.cx, self.router)?;
        self.lease.keep(self.cx, self.router, work)
    }

    /// Shows what the operation does now.
    fn comes_to(&self, state: &'static str) -> Result<()> {
        self.progress.is(state);
        self.lease.renew(self.cx, self.router)?;
        let noted = doc! { "state": state };
        self.operation.set(self.cx, self.router, noted).map(drop)
    }
}

fn none(what: &str) -> Error {
    Error::new(
        Code::NoSuchReshardCollection,
        format!("Could not find in-progress resharding operation to {what}"),
    )
}

/// The operation that is under way on a collection.
fn one(cx: &CommandContext<'_>, router: &Router, (ns, what): (&str, &str)) -> Result<Operation> {
    all(cx, router, Some(ns))?.pop().ok_or_else(|| none(what))
}

/// Ends what is under way, and leaves the collection as it was.
///
/// # Errors
/// 339 NoSuchReshardCollection; 340 ReshardCollectionCommitted if it is decided already; those of the sets.
pub fn abort(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    one(cx, router, (ns, "abort"))?;
    let lease = Lease::seize(cx, router, ns, (WHAT, "abortReshardCollection"))?;
    let done = one(cx, router, (ns, "abort")).and_then(|operation| {
        let decided = operation.is_decided(cx, router)?;
        operation.settle(cx, router, lease.at)?;
        match decided {
            false => Ok(()),
            true => Err(Error::new(
                Code::ReshardCollectionCommitted,
                "Can't abort resharding operation after the decision has been persisted",
            )),
        }
    });
    lease.release(cx, router)?;
    done
}

/// Has what is under way catch up no longer: the shards are frozen as soon as all documents were copied.
///
/// # Errors
/// 339 NoSuchReshardCollection; those of the configuration's set.
pub fn commit(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let operation = one(cx, router, (ns, "commit"))?;
    match operation.set(cx, router, doc! { "commits": true })? {
        true => Ok(()),
        false => Err(none("commit")),
    }
}

/// Takes away, or finishes, what a router has left that has ended.
///
/// # Errors
/// 338 ReshardCollectionInProgress if a router is at work on the collection; those of the sets.
pub fn clean_up(cx: &mut CommandContext<'_>, router: &Router, ns: &str) -> Result<()> {
    let of = (ns, "cleanupReshardCollection");
    let done = Lease::if_free(cx, router, of, |lease| settle_all(cx, router, ns, lease.at))?;
    done.ok_or_else(|| {
        Error::new(
            Code::ReshardCollectionInProgress,
            format!("a router is at work on {ns}"),
        )
    })
}
