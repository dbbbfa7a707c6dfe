//! Moving a database to another shard: the collections and time series that are not divided, the views, and the right to
//! make new ones.
//!
//! 1. Each collection is moved by itself, while clients use it (see [`whole`](super::whole)).
//! 2. The shard that had the database is told that it has left: no router makes a collection there from now on. What was
//!    made meanwhile follows; the views are copied.
//! 3. The configuration decides, in the transaction that gives the right back.
//! 4. What had to be tracked in between is tracked no more.
//!
//! If the router ends between 2 and 4, any router that is refused by a shard settles it by what the configuration says
//! ([`settle`]).

use super::chunks::note;
use super::lease::Lease;
use super::movement::refuse_shard;
use super::place::{Told, placed, stored, tell};
use super::whole::{track_and_move, untrack};
use crate::context::CommandContext;
use crate::router::configuration::read;
use crate::router::forward::run;
use crate::router::{Router, SetPool};
use muniment_exec::TEMPORARY;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, array, doc};
use std::sync::Arc;

/// So many new collections may wait for the end of the move.
const FEW: usize = 1;
/// How often new collections are moved before that.
const PASSES: usize = 10;

/// Moves a database to a shard. If it is there already, nothing is done.
///
/// # Errors
/// 26 NamespaceNotFound; 70 ShardNotFound; 20 IllegalOperation if it has a collection that cannot be moved; those of the
/// sets.
pub fn move_primary(cx: &CommandContext<'_>, router: &Router, db: &str, to: &str) -> Result<()> {
    refuse_shard(cx, router, to)?;
    let recipient = router.catalog.shard(&**cx.op, router, to)?;
    let lease = Lease::take(cx, router, db, "movePrimary")?;
    let done = read_database(cx, router, db).and_then(|before| {
        if before.primary == to {
            return Ok(());
        }
        let donor = router.catalog.shard(&**cx.op, router, &before.primary)?;
        let this = Move {
            cx,
            router,
            lease: &lease,
            before,
            donor,
            recipient,
            to,
        };
        let moved = this.run();
        if moved.is_err() {
            // If it was decided after all, this is what remains to be done.
            drop(lease.release(cx, router));
            drop(settle(cx, router, db));
        }
        moved
    });
    let released = lease.release(cx, router);
    router.catalog.forget_database(db);
    done?;
    released.map(drop)
}

fn read_database(cx: &CommandContext<'_>, router: &Router, db: &str) -> Result<Database> {
    let found = read(&**cx.op, router, "databases", doc! { "_id": db })?.pop();
    let found = found
        .ok_or_else(|| Error::new(Code::NamespaceNotFound, format!("Database {db} not found")))?;
    Ok(Database {
        name: db.to_string(),
        primary: found
            .as_doc()
            .get_str("primary")
            .unwrap_or_default()
            .to_string(),
    })
}

/// A database and the name of the shard that holds it.
struct Database {
    name: String,
    primary: String,
}

struct Move<'m> {
    cx: &'m CommandContext<'m>,
    router: &'m Router,
    lease: &'m Lease,
    before: Database,
    donor: Arc<SetPool>,
    recipient: Arc<SetPool>,
    to: &'m str,
}

impl Move<'_> {
    fn run(&self) -> Result<()> {
        let (cx, router, db) = (self.cx, self.router, self.before.name.as_str());
        let details = doc! { "from": &self.before.primary, "to": self.to };
        note(cx, router, ("movePrimary.start", db), &details);
        // While the last ones are moved no router makes collections, so there should be few.
        let mut passes = 0;
        while self.collections()? > FEW && passes < PASSES {
            passes += 1;
        }
        leave(cx, router, self.lease, (&self.donor, db), true)?;
        self.collections()?;
        self.views()?;
        self.divided()?;
        self.decide()?;
        router.catalog.forget_database(db);
        note(cx, router, ("movePrimary.commit", db), &details);
        cx.at_step("movePrimaryDecided")?;
        tidy(cx, router, db, (&self.donor, self.to))
    }

    /// The configuration decides.
    fn decide(&self) -> Result<()> {
        let (cx, router, db) = (self.cx, self.router, self.before.name.as_str());
        leave(cx, router, self.lease, (&self.recipient, db), false)?;
        cx.at_step("beforeDecision")?;
        let update = doc! {
            "q": doc! { "_id": db, "primary": &self.before.primary },
            "u": doc! { "$set": doc! { "primary": self.to }, "$inc": doc! { "version.lastMod": 1 } },
        };
        let update = doc! { "update": "databases", "updates": array![update] };
        self.lease.commit(cx, router, vec![update])
    }

    /// Moves the collections that the donor has and that are not tracked; their number.
    fn collections(&self) -> Result<usize> {
        let mut count = 0;
        let db = self.before.name.as_str();
        for d in list(self.cx, self.router, &self.donor, db)? {
            let d = d.as_doc();
            let name = d.get_str("name").unwrap_or_default();
            let ns = format!("{db}.{name}");
            self.lease.renew(self.cx, self.router)?;
            match d.get_str("type") {
                // Those of an $out end with it.
                Some("collection" | "timeseries")
                    if name.starts_with("system.") || name.starts_with(TEMPORARY) => {}
                Some("collection" | "timeseries") => {
                    let known = self
                        .router
                        .tables
                        .refresh(&**self.cx.op, self.router, &ns)?;
                    let there = known.is_some_and(|known| {
                        let owner = known.table.owner(&known.key.lowest());
                        !known.collection.unsplittable || known.table.shard_name(owner) == self.to
                    });
                    if !there {
                        track_and_move(self.cx, self.router, &ns, self.to)?;
                        count += 1;
                    }
                }
                // The views are copied.
                _ => {}
            }
        }
        Ok(count)
    }

    fn views(&self) -> Result<()> {
        let db = self.before.name.as_str();
        // What an earlier move has left there is out of date.
        drop_views(self.cx, self.router, self.lease, (&self.recipient, db))?;
        for d in list(self.cx, self.router, &self.donor, db)? {
            let d = d.as_doc();
            if d.get_str("type") != Some("view") {
                continue;
            }
            let mut create = doc! { "create": d.get_str("name").unwrap_or_default() };
            create.append_all(d.get_doc("options").unwrap_or(Doc::EMPTY));
            create.append("writeConcern", doc! { "w": "majority" });
            match run(
                &**self.cx.op,
                self.router,
                &self.recipient,
                db,
                &create,
                true,
            ) {
                Err(e) if e.code() == Code::NamespaceExists => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// The shard of a database has all of its collections, be they divided and have nothing there.
    fn divided(&self) -> Result<()> {
        let (cx, router) = (self.cx, self.router);
        for ns in tracked(cx, router, &self.before.name)? {
            let Some(known) = router.tables.refresh(&**cx.op, router, &ns)? else {
                continue;
            };
            let place = known
                .sets
                .iter()
                .position(|s| s.name == self.recipient.name);
            let has = stored(cx, router, &self.recipient, &ns)?.is_some();
            let Some(held) = stored(cx, router, &self.donor, &ns)?.filter(|_| !has) else {
                continue;
            };
            let told = Told {
                ns: &ns,
                stored: &held,
                placement: placed(&known, place)?,
                ends: None,
            };
            tell(cx, router, &self.recipient, &told)?;
        }
        Ok(())
    }
}

/// What a shard has in a database, as listCollections tells it.
fn list(cx: &CommandContext<'_>, router: &Router, set: &SetPool, db: &str) -> Result<Vec<DocBuf>> {
    let list = doc! { "listCollections": 1, "cursor": doc! { "batchSize": 1_000_000 } };
    let reply = run(&**cx.op, router, set, db, &list, true)?;
    let cursor = reply.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
    if cursor.get("id").and_then(|v| v.as_i64_exact()) != Some(0) {
        return Err(Error::internal(
            "there are too many collections for one batch",
        ));
    }
    let all = cursor
        .get_array("firstBatch")
        .unwrap_or(Doc::EMPTY)
        .values();
    Ok(all.filter_map(|v| v.as_doc()).map(|d| d.to_buf()).collect())
}

/// The collections of a database that the configuration knows.
fn tracked(cx: &CommandContext<'_>, router: &Router, db: &str) -> Result<Vec<String>> {
    let within = doc! { "_id": doc! { "$gte": format!("{db}."), "$lt": format!("{db}/") } };
    let found = read(&**cx.op, router, "collections", within)?;
    let names = found.iter().filter_map(|d| d.as_doc().get_str("_id"));
    Ok(names.map(str::to_string).collect())
}

/// Tells a shard whether it has left a database, by the right to move it.
fn leave(
    cx: &CommandContext<'_>,
    router: &Router,
    lease: &Lease,
    (set, db): (&SetPool, &str),
    left: bool,
) -> Result<()> {
    let tell = doc! { "_shardLeaveDatabase": 1, "left": left, "at": lease.at.to_value() };
    run(&**cx.op, router, set, db, &tell, true).map(drop)
}

/// After the database has come to a shard: collections that are whole there are tracked no more, and the views are
/// taken away where it was, unless it has gone on meanwhile.
fn tidy(
    cx: &CommandContext<'_>,
    router: &Router,
    db: &str,
    (donor, to): (&SetPool, &str),
) -> Result<()> {
    for ns in tracked(cx, router, db)? {
        let known = router.tables.refresh(&**cx.op, router, &ns)?;
        let whole = known.is_some_and(|known| {
            let owner = known.table.owner(&known.key.lowest());
            known.collection.unsplittable && known.table.shard_name(owner) == to
        });
        if whole {
            untrack(cx, router, &ns)?;
        }
    }
    let work = |lease: &Lease| match read_database(cx, router, db)?.primary == to {
        true => drop_views(cx, router, lease, (donor, db)),
        false => Ok(()),
    };
    Lease::if_free(cx, router, (db, "settle"), work).map(drop)
}

/// Drops the views that a shard has in a database, by the right to move it.
fn drop_views(
    cx: &CommandContext<'_>,
    router: &Router,
    lease: &Lease,
    (set, db): (&SetPool, &str),
) -> Result<()> {
    let all = list(cx, router, set, db)?;
    let views = all.iter().map(|d| d.as_doc());
    let views = views.filter(|d| d.get_str("type") == Some("view"));
    let views: ArrayBuf = views.filter_map(|d| d.get("name")).collect();
    if views.is_empty() {
        return Ok(());
    }
    let taken = doc! {
        "_shardDropViews": 1, "views": views, "at": lease.at.to_value(),
        "writeConcern": doc! { "w": "majority" },
    };
    run(&**cx.op, router, set, db, &taken, true).map(drop)
}

/// Ends what a router has left undone that moved a database, unless one is at work. The configuration says where the
/// database is.
///
/// # Errors
/// Those of the sets.
pub fn settle(cx: &CommandContext<'_>, router: &Router, db: &str) -> Result<()> {
    router.catalog.forget_database(db);
    // The right keeps others from moving it away meanwhile, from a shard that would then not know that it has left.
    let work = |lease: &Lease| {
        let now = read_database(cx, router, db)?;
        let shards = router.catalog.shards(&**cx.op, router)?;
        for (_, set) in shards.iter().filter(|(name, _)| *name != now.primary) {
            // A move that was not decided may have told it that it has the database. If it cannot be reached, neither can
            // it mislead a router.
            drop(leave(cx, router, lease, (set, db), true));
        }
        let set = router.catalog.shard(&**cx.op, router, &now.primary)?;
        leave(cx, router, lease, (&set, db), false)
    };
    Lease::if_free(cx, router, (db, "settle"), work).map(drop)
}
