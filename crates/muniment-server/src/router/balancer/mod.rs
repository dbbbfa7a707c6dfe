//! The balancer: the primary of the configuration's set moves ranges of sharded collections, so that shards have about
//! the same of each, ranges are in their zones, and shards that are to be removed become empty.
//!
//! A round looks at the sizes that the shards tell ([`survey`]), asks the policy ([`muniment_shard::balance`]) what to
//! do for each collection, and does that, one move after the other. Nothing is remembered between rounds but when a
//! range is next taken up after a failure.
//!
//! Invariant: a round changes nothing that a client could not change by `split` and `moveRange` at a router, so the
//! balancer of a primary that was deposed and its successor's do no harm to each other.

mod inner;
pub mod settings;
mod survey;

pub use settings::Settings;
pub use survey::{Survey, chunk_bytes};

use super::configuration::read;
use super::sharded::chunks::note_action;
use super::sharded::lease::Lease;
use super::sharded::movement::{MoveRequest, move_range};
use super::sharded::reshard::operation;
use super::sharded::split::{SplitPoints, merge_all, settled_before, split_at, split_points};
use super::{Known, Router};
use crate::connections::ConnShared;
use crate::context::CommandContext;
use crate::distributed::own_set;
use crate::options::ClusterRole;
use crate::sets::Sets;
use crate::state::ServerState;
use muniment_exec::{OpContext, OpStart};
use muniment_logger::{Severity, guarded, now_ms};
use muniment_op::Interrupt;
use muniment_shard::balance::{Migration, Reason};
use muniment_shard::catalog::Collection;
use muniment_value::{Code, DocBuf, Error, Result, doc};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause between rounds.
const EVERY: Duration = Duration::from_secs(10);
/// How often it is looked whether somebody wants a round.
const LOOK: Duration = Duration::from_secs(1);
/// The pause after a round that moved something: there may be more.
const SOON: Duration = Duration::from_millis(200);
/// The first pause of a collection after a failure; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(10);
/// The longest pause of a collection.
const LONGEST: Duration = Duration::from_secs(600);
/// How often chunks are merged.
const MERGES_EVERY: Duration = Duration::from_secs(3600);
/// In this one of so many rounds all tables are read again, whether or not something is to be done.
const READS_EVERY: u64 = 6;
/// Most chunks of a shard that are merged at once.
const MOST_MERGED: usize = 1000;

/// Balances until the server ends. On a server that does not hold the configuration it returns at once.
pub fn keep(server: &Arc<ServerState>) {
    if server.options.role != ClusterRole::Config {
        return;
    }
    let mut waits = Waits::default();
    let mut pause = EVERY;
    while !waits_in_vain(server, pause) {
        pause = EVERY;
        if !server.is_writable() || server.replica_set.is_none() {
            waits = Waits::default();
            continue;
        }
        let op = server.engine.operations.begin(OpStart {
            command: "balancer",
            ..OpStart::default()
        });
        server.balancer.begin(&op);
        if server.lifecycle.is_stopping() {
            op.kill(Code::InterruptedAtShutdown);
        }
        let done = guarded(|| Round::begin(server, &op, &mut waits)?.run());
        server.balancer.end();
        match done {
            Ok(Ok(moved)) if moved > 0 => pause = SOON,
            Ok(Ok(_)) => {}
            Ok(Err(e)) => failed(server, "", &e),
            Err(caught) => failed(server, "", &Error::internal(caught.message)),
        }
    }
}

/// Waits for the next round. True if the server ends before.
fn waits_in_vain(server: &ServerState, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if server.lifecycle.wait_for_stop_for(left.min(LOOK)) {
            return true;
        }
        if server.balancer.is_wanted() || Instant::now() >= until {
            return false;
        }
    }
}

fn failed(server: &ServerState, ns: &str, e: &Error) {
    server.log.log(
        Severity::Warning,
        "SHARDING",
        21865,
        "Balancer",
        "A part of a balancer round has failed; it is tried again later",
        Some(&doc! { "ns": ns, "error": server.log.error(e) }),
    );
}

/// A collection, or its range with this lower bound.
type Part = (String, Option<Vec<u8>>);

/// What is remembered between rounds.
#[derive(Default)]
struct Waits {
    /// When something is next taken up after a failure, and after which pause: a range of a collection, by its lower
    /// bound, or the collection itself, without a bound.
    failed: HashMap<Part, (Instant, Duration)>,
    /// When chunks were last merged.
    merged: Option<Instant>,
}

impl Waits {
    /// Whether a collection may be taken up.
    fn may(&self, ns: &str) -> bool {
        let of = self.failed.get(&(ns.to_string(), None));
        of.is_none_or(|(at, _)| *at <= Instant::now())
    }

    /// The lower bounds of the ranges of a collection that are left alone for now.
    fn ranges(&self, ns: &str) -> BTreeSet<Vec<u8>> {
        let now = Instant::now();
        let waiting = self
            .failed
            .iter()
            .filter(|((of, _), (at, _))| of == ns && *at > now);
        waiting.filter_map(|((_, min), _)| min.clone()).collect()
    }

    fn note(&mut self, ns: &str, min: Option<&[u8]>, good: bool) {
        let of = (ns.to_string(), min.map(<[u8]>::to_vec));
        if good {
            self.failed.remove(&of);
            return;
        }
        let before = self.failed.get(&of).map(|(_, pause)| *pause * 2);
        let pause = before.unwrap_or(FIRST).min(LONGEST);
        self.failed.insert(of, (Instant::now() + pause, pause));
    }
}

struct Round<'r> {
    server: &'r Arc<ServerState>,
    op: &'r Arc<OpContext>,
    router: &'r Router,
    conn: Arc<ConnShared>,
    settings: Settings,
    waits: &'r mut Waits,
    began: Instant,
    candidates: i32,
    moved: i32,
    errors: i32,
}

impl<'r> Round<'r> {
    fn begin(
        server: &'r Arc<ServerState>,
        op: &'r Arc<OpContext>,
        waits: &'r mut Waits,
    ) -> Result<Round<'r>> {
        let own = own_set(server)?;
        let made = || {
            let routes = &server.parameters.member.routes;
            let sets = Sets::new(server.address.port, &server.trust, routes);
            Router::of_set(&own, sets)
        };
        let router = server.balancer.router(made);
        Ok(Round {
            settings: Settings::read(&**op, router)?,
            conn: inner::connection()?,
            server,
            op,
            router,
            waits,
            began: Instant::now(),
            candidates: 0,
            moved: 0,
            errors: 0,
        })
    }

    /// How many ranges were moved.
    fn run(mut self) -> Result<i32> {
        let busy = self.resharded()?;
        if !self.settings.may_work(now_ms()) {
            return Ok(0);
        }
        let mut all = self.collections()?;
        all.retain(|c| !busy.contains(&c.ns));
        let names: Vec<String> = all.iter().map(|c| c.ns.clone()).collect();
        if names.is_empty() {
            return Ok(0);
        }
        let survey = Survey::of(&**self.op, self.router, &names)?;
        if survey.has_choice() {
            for collection in &all {
                if !collection.no_balance && self.waits.may(&collection.ns) {
                    let done = self.balance(&survey, collection);
                    self.take(&collection.ns, None, done)?;
                }
            }
        }
        self.merge(&all)?;
        self.tell();
        Ok(self.moved)
    }

    /// Ends what routers have left that divided collections anew. The names of those that routers are at work on, whose
    /// ranges cannot move.
    fn resharded(&mut self) -> Result<BTreeSet<String>> {
        let (router, mut busy) = (self.router, BTreeSet::new());
        let all = |cx: &CommandContext<'_>| operation::all(cx, router, None);
        for one in inner::within(self.server, &self.conn, self.op, all)? {
            let done = inner::within(self.server, &self.conn, self.op, |cx| {
                let of = (one.ns.as_str(), "reshardCollection");
                Lease::if_free(cx, router, of, |lease| one.settle(cx, router, lease.at))
            });
            if matches!(done, Ok(None)) {
                busy.insert(one.ns.clone());
            }
            self.take(&one.ns, None, done.map(drop))?;
        }
        Ok(busy)
    }

    /// The collections that can be balanced.
    fn collections(&self) -> Result<Vec<Collection>> {
        let mut all = Vec::new();
        for d in read(&**self.op, self.router, "collections", DocBuf::new())? {
            let collection = Collection::parse(d.as_doc())?;
            if collection.permit_migrations && !collection.unsplittable {
                all.push(collection);
            }
        }
        Ok(all)
    }

    /// Notes how a part of the round came out: that for a collection, or for its range from `min` on. Only what ends the
    /// whole round is an error here.
    fn take(&mut self, ns: &str, min: Option<&[u8]>, done: Result<()>) -> Result<()> {
        self.waits.note(ns, min, done.is_ok());
        if let Err(e) = done {
            self.op.check()?;
            self.errors += 1;
            failed(self.server, ns, &e);
        }
        Ok(())
    }

    /// Does what is to be done for a collection.
    fn balance(&mut self, survey: &Survey, collection: &Collection) -> Result<()> {
        let (on, router, ns) = (&**self.op, self.router, collection.ns.as_str());
        let reads = self.server.balancer.status().0.is_multiple_of(READS_EVERY);
        let known = router.tables.of(on, router, ns)?;
        let known = known.filter(|k| k.collection == *collection && !reads);
        let waiting = self.waits.ranges(ns);
        let plan_of = |known: &Known| survey.plan(on, router, known, (&self.settings, &waiting));
        let known = match known {
            // Nothing is done by a table that may be old.
            Some(known) if plan_of(&known)?.is_empty() => return Ok(()),
            _ => router.tables.refresh(on, router, ns)?,
        };
        let Some(mut known) = known else {
            return Ok(());
        };
        let mut plan = plan_of(&known)?;
        if !plan.splits.is_empty() {
            inner::within(self.server, &self.conn, self.op, |cx| {
                split_at(cx, router, ns, &plan.splits)
            })?;
            let Some(now) = router.tables.refresh(on, router, ns)? else {
                return Ok(());
            };
            known = now;
            plan = plan_of(&known)?;
        }
        for migration in &plan.migrations {
            self.candidates += 1;
            if !self.still_may()? {
                return Ok(());
            }
            let done = self.migrate(&known, migration);
            self.moved += i32::from(done.is_ok());
            self.take(ns, Some(&migration.min), done)?;
        }
        Ok(())
    }

    /// Whether the balancer was not stopped during the round.
    fn still_may(&self) -> Result<bool> {
        let now = Settings::read(&**self.op, self.router)?;
        Ok(now.may_work(now_ms()))
    }

    /// Moves a range, or the first part of it if it is larger than a chunk.
    fn migrate(&self, known: &Arc<Known>, migration: &Migration) -> Result<()> {
        let (router, size) = (self.router, chunk_bytes(known, &self.settings));
        inner::within(self.server, &self.conn, self.op, |cx| {
            let range = known.table.find(&migration.min);
            let ask = SplitPoints::Bytes(size, 1);
            let point = split_points(cx, router, known, &range, ask)?.pop();
            let request = MoveRequest {
                ns: known.ns(),
                key: &known.key,
                min: migration.min.clone(),
                max: point.unwrap_or_else(|| migration.max.clone()),
                to: &migration.to,
                wait_for_delete: self.settings.wait_for_delete,
            };
            move_range(cx, router, &request)
        })
    }

    /// Merges chunks that lie side by side, once an hour.
    fn merge(&mut self, all: &[Collection]) -> Result<()> {
        let due = self
            .waits
            .merged
            .is_none_or(|at| at.elapsed() >= MERGES_EVERY);
        if !due || !self.settings.merges {
            return Ok(());
        }
        self.waits.merged = Some(Instant::now());
        let before = settled_before(self.server);
        for collection in all {
            let ns = collection.ns.as_str();
            let may = collection.rest.as_doc().get("enableAutoMerge");
            if collection.no_balance || may.is_some_and(|v| !v.truthy()) {
                continue;
            }
            let Some(known) = self.router.tables.of(&**self.op, self.router, ns)? else {
                continue;
            };
            for shard in known.table.shards() {
                let done = inner::within(self.server, &self.conn, self.op, |cx| {
                    merge_all(cx, self.router, (ns, shard), (before, MOST_MERGED))
                });
                self.take(ns, None, done.map(drop))?;
            }
        }
        Ok(())
    }

    /// Writes into `config.actionlog` what the round has done, if it has done or tried anything.
    fn tell(&self) {
        if self.candidates == 0 && self.errors == 0 {
            return;
        }
        let details = doc! {
            "executionTimeMillis": self.began.elapsed().as_millis() as i64,
            "errorOccurred": self.errors > 0,
            "candidateChunks": self.candidates,
            "chunksMoved": self.moved,
        };
        let told = inner::within(self.server, &self.conn, self.op, |cx| {
            note_action(cx, self.router, "balancer.round", &details);
            Ok(())
        });
        drop(told);
    }
}

/// How `balancerCollectionStatus` calls the reason of a move.
pub fn violation(reason: Reason) -> &'static str {
    match reason {
        Reason::Draining => "draining",
        Reason::Zone => "zoneViolation",
        Reason::Size => "chunksImbalance",
    }
}
