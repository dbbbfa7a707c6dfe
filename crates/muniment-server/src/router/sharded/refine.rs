//! Giving the shard key of a collection more fields. No document moves: what belongs together by the longer key belongs
//! together by the shorter one.
//!
//! 1. The right to change the collection is taken, and all shards are told what the configuration says.
//! 2. The shards store no more documents that can have no key by the longer one. Those that there are are looked
//!    through meanwhile.
//! 3. The shards are told that it is being decided: routers wait.
//! 4. The configuration decides, in the transaction that gives the right back. The collection has a new generation, so a
//!    router that knows the shorter key is refused by each shard.
//! 5. The shards are told.
//!
//! A router that ends before 4 has changed nothing, and after it everything: [`settle`](super::settle) tells the shards
//! what the configuration says, by which a shard ends 2 and 3 or does 5.

use super::chunks::{known_now, not_sharded, note, with_lease};
use super::dividing::{check_keys, check_series_key, has_index, is_key, unkept};
use super::lease::Lease;
use super::place::{all_agree, placed, retell, retell_soon, stored, tell_streams};
use crate::context::CommandContext;
use crate::router::configuration::read;
use crate::router::forward::run;
use crate::router::tables::SERIES_FIELDS;
use crate::router::{Known, Router};
use crate::uuid::uuid_value;
use muniment_query::context::now_ms;
use muniment_shard::ShardKey;
use muniment_shard::catalog::Tag;
use muniment_value::{
    ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, array, doc, new_object_id,
};
use std::sync::Arc;

/// How often shards are asked while transactions use the collection.
const ATTEMPTS: usize = 20;

/// Gives the shard key more fields. Nothing is done if it is the collection's key already.
///
/// # Errors
/// 118 NamespaceNotSharded; 72 InvalidOptions if the key does not begin with the present one, or if no index begins with
/// it; 61 ShardKeyNotFound if a document can have no such key; 24 LockTimeout if transactions do not let the shards note
/// it; 46, 117 if another router changes the collection; those of the sets.
pub fn refine(
    cx: &CommandContext<'_>,
    router: &Router,
    ns: &str,
    key: &Arc<ShardKey>,
    keeps_unique: bool,
) -> Result<()> {
    let known = known_now(cx, router, ns)?;
    if known.collection.unsplittable {
        return Err(not_sharded(ns));
    }
    if is_key(key, known.key.pattern()) {
        return Ok(());
    }
    with_lease(
        cx,
        router,
        (ns, "refineCollectionShardKey"),
        |lease, known| {
            check(&known.key, key)?;
            if let Some(series) = known.collection.rest.as_doc().get_doc(SERIES_FIELDS) {
                check_series_key(series, key)?;
            }
            let this = Refine {
                cx,
                router,
                lease,
                known,
                key,
            };
            all_agree(cx, router, known, (&[], lease.at))?;
            this.check_indexes(keeps_unique && known.collection.unique)?;
            let details = doc! { "oldKey": known.key.pattern(), "newKey": key.pattern() };
            note(cx, router, ("refineCollectionShardKey.start", ns), &details);
            this.run()?;
            note(cx, router, ("refineCollectionShardKey.end", ns), &details);
            let o = doc! {
                "refineCollectionShardKey": known.name(), "shardKey": key.pattern(), "oldShardKey": known.key.pattern(),
            };
            tell_streams(cx, router, (ns, &known.collection.generation.uuid), &o);
            Ok(())
        },
    )
}

fn check(old: &ShardKey, new: &ShardKey) -> Result<()> {
    match new.extends(old) {
        true => Ok(()),
        false => Err(Error::new(
            Code::InvalidOptions,
            format!(
                "refineCollectionShardKey shard key {} is not an extension of shard key {}",
                new.pattern().to_display(),
                old.pattern().to_display()
            ),
        )),
    }
}

struct Refine<'r> {
    cx: &'r CommandContext<'r>,
    router: &'r Router,
    lease: &'r Lease,
    known: &'r Arc<Known>,
    key: &'r Arc<ShardKey>,
}

impl Refine<'_> {
    /// Each shard with documents needs an index by which it finds those of a range.
    fn check_indexes(&self, unique: bool) -> Result<()> {
        for shard in self.known.all() {
            let set = self.known.set(shard)?;
            let held = stored(self.cx, self.router, set, self.known.ns())?;
            if let Some(index) = held.as_ref().and_then(|held| unkept(held, self.key)) {
                return Err(Error::new(
                    Code::InvalidOptions,
                    format!(
                        "The unique index {index} of collection {} does not begin with the proposed shard key {}",
                        self.known.ns(),
                        self.key.pattern().to_display()
                    ),
                ));
            }
            if held.is_some_and(|held| has_index(&held, self.key, unique)) {
                continue;
            }
            return Err(Error::new(
                Code::InvalidOptions,
                format!(
                    "Please create an index that starts with the proposed shard key {} before refining the shard key \
                     of collection {}",
                    self.key.pattern().to_display(),
                    self.known.ns()
                ),
            ));
        }
        Ok(())
    }

    fn run(&self) -> Result<()> {
        let (cx, router) = (self.cx, self.router);
        let done = self.prepare().and_then(|()| self.decide());
        if let Err(e) = done {
            // If the right can be given back, nothing was decided. Otherwise the next router that meets the shards
            // ends it.
            if matches!(self.lease.release(cx, router), Ok(true)) {
                self.tell(self.known);
            }
            return Err(e);
        }
        // If this fails, the next router that meets the shards does it.
        let now = router.tables.refresh(&**cx.op, router, self.known.ns())?;
        if let Some(now) = now {
            self.tell(&now);
        }
        self.cx.at_step("refineTold")
    }

    /// Tells all shards what the configuration says, without the right to the collection: what another router has begun
    /// since is not ended. What fails is done by the next router that meets the shards.
    fn tell(&self, known: &Known) {
        let (cx, router) = (self.cx, self.router);
        let Ok(shards) = router.catalog.shards(&**cx.op, router) else {
            return;
        };
        for (name, set) in shards {
            let of = (known.ns(), &known.collection.generation.uuid);
            let placement = placed(known, known.table.shard_named(&name));
            drop(placement.and_then(|p| {
                let told = (p.said_by(self.lease.at), None);
                retell(cx, router, &set, of, told)
            }));
        }
    }

    /// Has all shards delete rows that they do not own: such a row may have no longer key, and would pass for owned.
    fn clean(&self) -> Result<()> {
        let (cx, router) = (self.cx, self.router);
        let (db, name) = self.known.ns().split_once('.').unwrap_or_default();
        let uuid = self.known.collection.generation.uuid;
        let clean = doc! { "_shardClean": name, "uuid": uuid_value(&uuid) };
        for (_, set) in router.catalog.shards(&**cx.op, router)? {
            match run(&**cx.op, router, &set, db, &clean, true) {
                Err(e) if e.code() == Code::NamespaceNotFound => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Has the shards store no document without such a key, and then no router use the collection.
    fn prepare(&self) -> Result<()> {
        self.mark(false)?;
        self.cx.at_step("refineMarked")?;
        // The fields of the present key have been checked always.
        let new = self.key.fields().get(self.known.key.fields().len()..);
        let new = (self.known.ns(), new.unwrap_or_default());
        self.lease.keep(self.cx, self.router, || {
            let sets = self.known.all().into_iter();
            let mut sets = sets.map(|shard| self.known.set(shard));
            sets.try_for_each(|set| check_keys(self.cx, self.router, set?, new))?;
            self.clean()
        })?;
        self.lease.renew(self.cx, self.router)?;
        self.mark(true)?;
        self.check_indexes(false)?;
        self.cx.at_step("refineFrozen")
    }

    /// Tells the shards with documents that the key is about to have more fields.
    fn mark(&self, undecided: bool) -> Result<()> {
        for attempt in 1.. {
            self.lease.renew(self.cx, self.router)?;
            let mut all = self.known.all().into_iter();
            match all.try_for_each(|shard| self.mark_one(shard, undecided)) {
                Err(e) if e.code() == Code::LockTimeout && attempt < ATTEMPTS => {}
                other => return other,
            }
            // A transaction that one shard waits for must not hold up what others can do.
            if undecided {
                let mut all = self.known.all().into_iter();
                drop(all.try_for_each(|shard| self.mark_one(shard, false)));
            }
        }
        Err(Error::internal("telling the shards of the key has no end"))
    }

    fn mark_one(&self, shard: usize, undecided: bool) -> Result<()> {
        let of = (self.known.ns(), &self.known.collection.generation.uuid);
        let placement = placed(self.known, Some(shard))?;
        let marked = placement.refining(Arc::clone(self.key), undecided);
        let marked = marked.said_by(self.lease.at);
        retell_soon(self.cx, self.router, self.known.set(shard)?, of, marked)
    }

    /// Has the configuration decide.
    fn decide(&self) -> Result<()> {
        let ns = self.known.ns();
        let uuid = self.known.collection.generation.uuid;
        let update = doc! {
            "q": doc! { "_id": ns, "uuid": uuid_value(&uuid) },
            "u": doc! { "$set": doc! {
                "key": self.key.pattern(),
                "timestamp": self.lease.at.to_value(),
                "lastmodEpoch": Value::ObjectId(new_object_id()),
                "lastmod": Value::DateTime(now_ms()),
            } },
        };
        let mut statements = vec![
            doc! { "update": "collections", "updates": array![update] },
            doc! { "update": "chunks", "updates": array![self.chunks()?] },
        ];
        let tags = self.tags()?;
        if !tags.is_empty() {
            statements.push(doc! { "update": "tags", "updates": tags });
        }
        self.lease.commit(self.cx, self.router, statements)?;
        self.cx.at_step("refineDecided")
    }

    /// The update that gives the bounds of all chunks the new fields.
    fn chunks(&self) -> Result<DocBuf> {
        let (old, new) = (&self.known.key, self.key);
        let highest = (
            old.bound_doc(&old.highest())?,
            new.bound_doc(&new.highest())?,
        );
        let mut lowest = DocBuf::new();
        for field in new.fields().iter().skip(old.fields().len()) {
            lowest.append(field.path.as_str(), Value::MinKey);
        }
        let longer =
            |bound: &str| doc! { "$mergeObjects": array![bound, doc! { "$literal": &lowest }] };
        let is_highest = doc! { "$eq": array!["$max", doc! { "$literal": highest.0 }] };
        let max = array![is_highest, doc! { "$literal": highest.1 }, longer("$max")];
        let set = doc! { "min": longer("$min"), "max": doc! { "$cond": max } };
        Ok(doc! {
            "q": doc! { "uuid": uuid_value(&self.known.collection.generation.uuid) },
            "u": array![doc! { "$set": set }],
            "multi": true,
        })
    }

    /// The updates that do so for the ranges of zones.
    fn tags(&self) -> Result<ArrayBuf> {
        let found = read(
            &**self.cx.op,
            self.router,
            "tags",
            doc! { "ns": self.known.ns() },
        )?;
        let mut updates = ArrayBuf::new();
        for d in &found {
            let tag = Tag::parse(d.as_doc())?;
            let bounds = doc! {
                "min": self.longer(tag.min.as_doc()), "max": self.longer(tag.max.as_doc()),
            };
            updates.push(doc! { "q": doc! { "_id": &tag.id }, "u": doc! { "$set": bounds } });
        }
        Ok(updates)
    }

    /// A bound of a zone, which may have a part of the key's fields.
    fn longer(&self, bound: Doc<'_>) -> DocBuf {
        let given = bound.iter().count();
        let is_highest = given == self.known.key.fields().len()
            && bound.values().all(|v| matches!(v, Value::MaxKey));
        let rest = if is_highest {
            Value::MaxKey
        } else {
            Value::MinKey
        };
        let mut longer = bound.to_buf();
        for field in self.key.fields().iter().skip(given) {
            longer.append(field.path.as_str(), rest);
        }
        longer
    }
}
