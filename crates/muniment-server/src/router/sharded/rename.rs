//! Renaming a collection of which the configuration knows: one that is divided, or is away from the shard of its
//! database.
//!
//! 1. Both names are made known to the configuration: what is whole is tracked. The rights to change both are taken. If
//!    the new name is free, an empty collection takes it on the shard of the database, where it could be made otherwise.
//! 2. Each shard is told that the collections stay as they are for the moment, and routers wait.
//! 3. The configuration decides, in the transaction that gives both rights back. The document in `config.collections`
//!    says what is left to be done: `renamed: {from, replaces}`.
//! 4. The shards rename their parts (`_shardRename`), and drop what is replaced. The mark is taken away.
//!
//! A router that ends before 3 has renamed nothing; after 3, the next one that meets such a shard, or wants to change the
//! collection, does 4. The time of the decision is that of the collection's new generation: a step
//! that comes late changes nothing after a later rename.

use super::is_stale;
use super::lease::Lease;
use super::place::{
    Ends, Left, Stored, Told, end, no_series, of_table, placed, retell, stored, tell,
};
use super::renamed::finish_rename;
use super::reshard::operation::settle_all;
use super::settle::settle;
use super::whole::{bring_home, track, untrack};
use crate::commands::renaming::{RESERVED, Renaming, mismatch};
use crate::context::CommandContext;
use crate::router::configuration::read;
use crate::router::place::home_of;
use crate::router::{Known, Router};
use crate::uuid::{random_uuid, uuid_value};
use muniment_shard::catalog::{Collection, Tag};
use muniment_shard::{Generation, RangeTable, Record, ShardKey, Timestamp, Version};
use muniment_value::{
    ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, array, doc, new_object_id,
};
use std::sync::Arc;

/// Renames a collection of which the configuration knows, or which replaces one. False if the shard of the database can
/// do it alone.
///
/// # Errors
/// 26 NamespaceNotFound; 48 NamespaceExists; 125 CommandFailed for another database, or if the new name has zones; 361
/// CollectionUUIDMismatch; 46, 117 if another router changes one of them; those of the sets.
pub fn rename(cx: &CommandContext<'_>, router: &Router, request: &Renaming<'_>) -> Result<bool> {
    let mut tracked = false;
    for ns in [request.from, request.to] {
        let known = router.tables.refresh(&**cx.op, router, ns)?;
        tracked |= known.is_some();
        if !request.same_db && known.is_some_and(|known| !known.collection.unsplittable) {
            return Err(Error::new(
                Code::CommandFailed,
                format!(
                    "Source and destination collections must be on the same database because {ns} is sharded."
                ),
            ));
        }
    }
    if !tracked {
        return Ok(false);
    }
    if request.stay_temp {
        let why = "a collection that is tracked by the configuration does not stay temporary";
        return Err(Error::new(Code::IllegalOperation, why));
    }
    if !request.same_db {
        bring_home(cx, router, request.from)?;
        bring_home(cx, router, request.to)?;
        return Ok(false);
    }
    make_known(cx, router, request)?;
    let first = request.from.min(request.to);
    let second = request.from.max(request.to);
    let first = Lease::take(cx, router, first, "renameCollection")?;
    let taken = Lease::take(cx, router, second, "renameCollection");
    let second = match taken {
        Ok(second) => second,
        Err(e) => {
            let _ = first.release(cx, router);
            return Err(e);
        }
    };
    let mut this = Rename {
        cx,
        router,
        request,
        leases: [&first, &second],
        reserved: None,
    };
    // What a router has left of another change of the key comes first.
    // Both rights are held since the second one was taken, so all that is left is older.
    let mut held = [&first, &second].into_iter();
    let done = held.try_for_each(|lease| lease.renew(cx, router));
    let mut names = [request.from, request.to].into_iter();
    let done = done.and_then(|()| names.try_for_each(|ns| settle_all(cx, router, ns, second.at)));
    let done = done.and_then(|()| this.run());
    if let Err(e) = done {
        // If both can be given back, nothing was decided, and nobody else is at work.
        let given = [first.release(cx, router), second.release(cx, router)];
        if given.iter().all(|given| matches!(given, Ok(true))) {
            this.undo();
        }
        return Err(e);
    }
    // If this fails, it is done when somebody meets a shard that was not told.
    drop(settle(cx, router, request.to, Doc::EMPTY));
    if is_home(cx, router, request.to).unwrap_or(false) {
        drop(untrack(cx, router, request.to));
    }
    Ok(true)
}

/// Whether a collection is whole, and on the shard of its database.
fn is_home(cx: &CommandContext<'_>, router: &Router, ns: &str) -> Result<bool> {
    let Some(known) = router.tables.refresh(&**cx.op, router, ns)? else {
        return Ok(false);
    };
    let home = home_of(cx, router, known.db())?;
    let mut all = known.all().into_iter();
    Ok(known.collection.unsplittable
        && all.all(|shard| known.set(shard).is_ok_and(|set| set.name == home.name)))
}

/// Has the configuration know of both collections, as far as they are there.
fn make_known(cx: &CommandContext<'_>, router: &Router, request: &Renaming<'_>) -> Result<()> {
    let db = request.db();
    let home = home_of(cx, router, db)?;
    let uuid_of = |ns: &str| -> Result<Option<[u8; 16]>> {
        match router.tables.of(&**cx.op, router, ns)? {
            Some(known) if known.series().is_some() => Err(no_series(ns)),
            Some(known) => Ok(Some(known.collection.generation.uuid)),
            None => match stored(cx, router, &home, ns)? {
                Some(held) if held.series().is_some() => Err(no_series(ns)),
                held => Ok(held.map(|held| held.uuid)),
            },
        }
    };
    let source = uuid_of(request.from)?.ok_or_else(|| {
        let why = format!("Source collection {} does not exist", request.from);
        Error::new(Code::NamespaceNotFound, why)
    })?;
    let target = match uuid_of(request.to) {
        Err(e) if e.code() == Code::CommandNotSupportedOnView => {
            let why = format!("a view already exists with that name: {}", request.to);
            return Err(Error::new(Code::NamespaceExists, why));
        }
        other => other?,
    };
    for (wanted, ns, is) in [
        (request.source_uuid, request.from, Some(source)),
        (request.target_uuid, request.to, target),
    ] {
        let Some(wanted) = wanted.filter(|wanted| Some(*wanted) != is) else {
            continue;
        };
        let named = read(
            &**cx.op,
            router,
            "collections",
            doc! { "uuid": uuid_value(&wanted) },
        )?;
        let named = named.first().and_then(|d| d.as_doc().get_str("_id"));
        return Err(mismatch(
            ns,
            wanted,
            named.and_then(|ns| ns.strip_prefix(db)?.strip_prefix('.')),
        ));
    }
    if target.is_some() && !request.drop_target {
        return Err(Error::new(Code::NamespaceExists, "target namespace exists"));
    }
    if !read(&**cx.op, router, "tags", doc! { "ns": request.to })?.is_empty() {
        return Err(Error::new(
            Code::CommandFailed,
            format!(
                "Can't rename to target collection {} because it must not have associated tags",
                request.to
            ),
        ));
    }
    for (ns, there) in [(request.from, true), (request.to, target.is_some())] {
        if there && router.tables.of(&**cx.op, router, ns)?.is_none() {
            track(cx, router, ns)?;
        }
    }
    Ok(())
}

/// A rename under way.
struct Rename<'r> {
    cx: &'r CommandContext<'r>,
    router: &'r Router,
    request: &'r Renaming<'r>,
    /// The rights, in the order in which they were taken.
    leases: [&'r Lease; 2],
    /// The collection that keeps others from taking the new name.
    reserved: Option<([u8; 16], Timestamp)>,
}

impl Rename<'_> {
    fn run(&mut self) -> Result<()> {
        let source = self.now(self.request.from)?;
        let source = source.ok_or_else(|| self.changed(self.request.from))?;
        let target = self.now(self.request.to)?;
        if target.is_some() && !self.request.drop_target {
            return Err(Error::new(Code::NamespaceExists, "target namespace exists"));
        }
        let replaces = match &target {
            Some(target) => target.collection.generation.uuid,
            None => self.reserve()?,
        };
        self.cx.at_step("afterReserve")?;
        for known in [Some(&source), target.as_ref()].into_iter().flatten() {
            self.tell_all(known, true)?;
        }
        self.cx.at_step("afterFreeze")?;
        self.decide(&source, &target, replaces)?;
        self.cx.at_step("afterCommit")
    }

    fn changed(&self, ns: &str) -> Error {
        Error::new(
            Code::ConflictingOperationInProgress,
            format!("another command has changed {ns} meanwhile"),
        )
    }

    /// A collection as the configuration has it now.
    fn now(&self, ns: &str) -> Result<Option<Arc<Known>>> {
        let known = self.router.tables.refresh(&**self.cx.op, self.router, ns)?;
        if let Some(known) = &known {
            finish_rename(self.cx, self.router, known)?;
        }
        self.router.tables.refresh(&**self.cx.op, self.router, ns)
    }

    /// Has an empty collection take the new name on the shard of the database, so that nobody else does; its UUID.
    fn reserve(&mut self) -> Result<[u8; 16]> {
        let (cx, router, ns) = (self.cx, self.router, self.request.to);
        let home = home_of(cx, router, self.request.db())?;
        if stored(cx, router, &home, ns)?.is_some() {
            return Err(self.changed(ns));
        }
        let generation = Generation {
            uuid: random_uuid(),
            timestamp: self.leases[0].at,
        };
        let key = Arc::new(ShardKey::parse(doc! { "_id": 1 }.as_doc())?);
        let all = Record {
            min: key.lowest(),
            max: key.highest(),
            shard: "".into(),
            version: Version::new(1, 0),
        };
        let table = RangeTable::build(key, generation, vec![all])?;
        let mut options = DocBuf::new();
        options.append(RESERVED, true);
        let empty = Stored {
            uuid: generation.uuid,
            options,
            indexes: Vec::new(),
        };
        self.reserved = Some((generation.uuid, generation.timestamp));
        let told = Told {
            ns,
            stored: &empty,
            placement: of_table(&table, Some(0), true)?.as_of(generation.timestamp),
            ends: None,
        };
        tell(cx, router, &home, &told)?;
        Ok(generation.uuid)
    }

    /// Tells all shards what they own of a collection. With `waits`, routers wait from then on.
    fn tell_all(&self, known: &Known, waits: bool) -> Result<()> {
        let (cx, router) = (self.cx, self.router);
        for (name, set) in router.catalog.shards(&**cx.op, router)? {
            if waits {
                for lease in self.leases {
                    lease.renew(cx, router)?;
                }
            }
            let right = self.leases.iter().map(|lease| lease.at).max();
            let placement = placed(known, known.table.shard_named(&name))?;
            let placement = placement.said_by(right.unwrap_or_default());
            let placement = if waits {
                placement.staying()
            } else {
                placement
            };
            let of = (known.ns(), &known.collection.generation.uuid);
            let told = |ends| retell(cx, router, &set, of, (placement.clone(), ends));
            let done = match told(None) {
                Err(e) if is_stale(&e) && waits => match e.extra().as_doc().get("moving") {
                    Some(id) => told(Some(Ends { id, right })),
                    None => Err(e),
                },
                other => other,
            };
            match done {
                // Without the right to it, what another router has begun since is not to be ended.
                Err(e) if is_stale(&e) && !waits => {}
                Err(e) if e.code() == Code::NamespaceNotFound => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn decide(
        &self,
        source: &Known,
        target: &Option<Arc<Known>>,
        replaces: [u8; 16],
    ) -> Result<()> {
        let (cx, router, request) = (self.cx, self.router, self.request);
        let uuid = source.collection.generation.uuid;
        let one = |ns: &str, uuid: &[u8; 16]| {
            array![doc! { "q": doc! { "_id": ns, "uuid": uuid_value(uuid) }, "limit": 1 }]
        };
        let mut rest = source.collection.rest.clone();
        rest.append(
            "renamed",
            doc! { "from": request.from, "replaces": uuid_value(&replaces) },
        );
        let collection = Collection {
            ns: request.to.to_string(),
            epoch: new_object_id(),
            last_changed: muniment_query::context::now_ms(),
            generation: Generation {
                uuid,
                timestamp: self.leases[1].at,
            },
            rest,
            ..source.collection.clone()
        };
        let mut statements =
            vec![doc! { "delete": "collections", "deletes": one(request.from, &uuid) }];
        if target.is_some() {
            statements
                .push(doc! { "delete": "collections", "deletes": one(request.to, &replaces) });
        }
        statements.push(doc! { "insert": "collections", "documents": array![collection.to_doc()] });
        let tags = read(&**cx.op, router, "tags", doc! { "ns": request.from })?;
        if !tags.is_empty() {
            let renamed = tags.iter().map(|d| {
                let tag = Tag::parse(d.as_doc())?;
                let id = Value::ObjectId(new_object_id());
                Ok(Tag {
                    id: muniment_value::ValueBuf::new(id),
                    ns: request.to.to_string(),
                    ..tag
                }
                .to_doc())
            });
            let renamed = renamed.collect::<Result<ArrayBuf>>()?;
            let old = array![doc! { "q": doc! { "ns": request.from }, "limit": 0 }];
            statements.push(doc! { "delete": "tags", "deletes": old });
            statements.push(doc! { "insert": "tags", "documents": renamed });
        }
        self.leases[0].commit_with(&[self.leases[1]], cx, router, statements)?;
        for ns in [request.from, request.to] {
            router.tables.refresh(&**cx.op, router, ns)?;
        }
        Ok(())
    }

    /// Has routers wait no more, after nothing was decided. What fails here is done by the next router that waits.
    fn undo(&self) {
        let (cx, router) = (self.cx, self.router);
        for ns in [self.request.from, self.request.to] {
            if let Ok(Some(known)) = router.tables.refresh(&**cx.op, router, ns) {
                drop(self.tell_all(&known, false));
            }
        }
        if let (Some((uuid, at)), Ok(home)) =
            (self.reserved, home_of(cx, router, self.request.db()))
        {
            drop(end(
                cx,
                router,
                &home,
                self.request.to,
                (&uuid, at),
                Left::Goes,
            ));
        }
    }
}
