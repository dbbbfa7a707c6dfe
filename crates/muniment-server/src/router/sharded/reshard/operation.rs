//! What the configuration knows of a collection that is being divided anew: a document of
//! `config.reshardingOperations`. It is there as long as something is to be finished or taken away.

use crate::context::CommandContext;
use crate::namespace::RESHARDING;
use crate::router::Router;
use crate::router::configuration::read;
use crate::router::forward::run;
use crate::router::place::set_of;
use crate::router::sharded::is_stale;
use crate::router::sharded::lease::delete;
use crate::router::sharded::place::{Left, Told, agree, end, homes, placed, stored, tell};
use crate::router::{Known, SetPool};
use crate::uuid::uuid_value;
use muniment_shard::{Generation, Timestamp};
use muniment_value::{ArrayBuf, Code, DocBuf, Error, Result, Value, array, doc, uuid_text};
use std::sync::Arc;

/// The collection of these documents.
const ALL: &str = "reshardingOperations";

/// A document.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The collection's name.
    pub ns: String,
    /// The UUID that it gets, and the time that the part on each shard has as its generation's until it is decided.
    pub new: Generation,
    /// What it is now.
    pub old: Generation,
    /// The catching up is to end.
    pub commits: bool,
}

impl Operation {
    /// The name that the parts of the new collection have until it is decided.
    pub fn temporary(&self) -> String {
        let (db, _) = self.ns.split_once('.').unwrap_or_default();
        format!("{db}.{RESHARDING}{}", uuid_text(&self.old.uuid))
    }

    /// Writes the document for the first time.
    ///
    /// # Errors
    /// Those of the configuration's set.
    pub fn begins(cx: &CommandContext<'_>, router: &Router, document: &DocBuf) -> Result<()> {
        let insert = doc! {
            "insert": ALL, "documents": array![document],
            "writeConcern": doc! { "w": "majority" },
        };
        run(&**cx.op, router, &router.config, "config", &insert, false).map(drop)
    }

    /// Changes fields of the document. False if it is not there any more.
    ///
    /// # Errors
    /// Those of the configuration's set.
    pub fn set(&self, cx: &CommandContext<'_>, router: &Router, fields: DocBuf) -> Result<bool> {
        let change = doc! {
            "q": doc! { "_id": uuid_value(&self.new.uuid) }, "u": doc! { "$set": fields },
        };
        let update = doc! {
            "update": ALL, "updates": array![change], "writeConcern": doc! { "w": "majority" },
        };
        let reply = run(&**cx.op, router, &router.config, "config", &update, true)?;
        Ok(reply.as_doc().get("n").and_then(|v| v.as_i64_exact()) == Some(1))
    }

    /// Whether the configuration has decided for the new collection.
    ///
    /// # Errors
    /// Those of the configuration's set.
    pub fn is_decided(&self, cx: &CommandContext<'_>, router: &Router) -> Result<bool> {
        let known = router.tables.refresh(&**cx.op, router, &self.ns)?;
        Ok(known.is_some_and(|k| k.collection.generation.uuid == self.new.uuid))
    }

    /// Ends what is left of the operation, by what the configuration says. No router may be at work on the collection
    /// but the caller, whose right to that is of the time `right`.
    ///
    /// # Errors
    /// 117 ConflictingOperationInProgress if the operation began later than that; those of the sets.
    pub fn settle(&self, cx: &CommandContext<'_>, router: &Router, right: Timestamp) -> Result<()> {
        if self.new.timestamp > right {
            // The caller has lost its right, and another router has begun this since.
            let why = format!("another router has changed {} meanwhile", self.ns);
            return Err(Error::new(Code::ConflictingOperationInProgress, why));
        }
        let known = router.tables.refresh(&**cx.op, router, &self.ns)?;
        let uuid = known.as_ref().map(|k| k.collection.generation.uuid);
        match known {
            Some(known) if uuid == Some(self.new.uuid) => self.finish(cx, router, &known)?,
            // It has another name by now, so another router has finished this.
            _ if self.is_named(cx, router)? => {}
            known => {
                let old = known.filter(|_| uuid == Some(self.old.uuid));
                self.undo(cx, router, old, right)?;
            }
        }
        let left = doc! { "_id": uuid_value(&self.new.uuid) };
        delete(&**cx.op, router, ALL, left).map(drop)
    }

    /// Whether the configuration has the new collection, whatever its name.
    fn is_named(&self, cx: &CommandContext<'_>, router: &Router) -> Result<bool> {
        let of = doc! { "uuid": uuid_value(&self.new.uuid) };
        Ok(!read(&**cx.op, router, "collections", of)?.is_empty())
    }

    /// Has the new collection take the place of the old one on all shards, which drops the old one.
    fn finish(&self, cx: &CommandContext<'_>, router: &Router, known: &Known) -> Result<()> {
        let (db, name) = self.ns.split_once('.').unwrap_or_default();
        let home = set_of(cx, router, db)?;
        let homes = homes(cx, router, known)?;
        let sets: Vec<_> = homes.iter().map(|(set, _)| Arc::clone(set)).collect();
        for (set, shard) in &homes {
            let place = doc! {
                "_shardPlace": name, "uuid": uuid_value(&self.new.uuid),
                "placement": placed(known, *shard)?.to_doc(), "home": set.name == home.name,
                "writeConcern": doc! { "w": "majority" },
            };
            let replaced = || run(&**cx.op, router, set, db, &place, true);
            let done = match replaced() {
                // The database has come to this shard meanwhile.
                Err(e) if e.code() == Code::NamespaceNotFound && shard.is_none() => {
                    make_empty(cx, router, known, set, &sets)?;
                    replaced()
                }
                other => other,
            };
            match done {
                // It knows more than this router.
                Err(e) if is_stale(&e) => {}
                other => drop(other?),
            }
        }
        let is_home = |set: &SetPool| homes.iter().any(|(home, _)| home.name == set.name);
        for (_, set) in router.catalog.shards(&**cx.op, router)? {
            if !is_home(&set) {
                let of = (&self.old.uuid, self.old.timestamp);
                end(cx, router, &set, &self.ns, of, Left::Dropped)?;
            }
        }
        self.forget_chunks(cx, router, &self.old)
    }

    /// Takes the new collection away, and has the shards write to the old one again, if it is there.
    fn undo(
        &self,
        cx: &CommandContext<'_>,
        router: &Router,
        old: Option<Arc<Known>>,
        right: Timestamp,
    ) -> Result<()> {
        if let Some(known) = old {
            for (name, set) in router.catalog.shards(&**cx.op, router)? {
                let shard = known.table.shard_named(&name);
                match agree(cx, router, &known, (&set, shard), (None, right)) {
                    // What moves there is of a later right.
                    Err(e) if e.extra().as_doc().get("moving").is_some() => return Err(e),
                    Err(e) if is_stale(&e) || e.code() == Code::NamespaceNotFound => {}
                    other => other?,
                }
            }
        }
        self.take_away(cx, router, right)
    }

    /// Takes the new collection away, which nothing refers to.
    fn take_away(&self, cx: &CommandContext<'_>, router: &Router, right: Timestamp) -> Result<()> {
        let of = (&self.new.uuid, self.new.timestamp);
        for (_, set) in router.catalog.shards(&**cx.op, router)? {
            end(cx, router, &set, &self.temporary(), of, Left::Goes)?;
        }
        // Another router may have it divided anew since, after it was whole. Chunks of that are later than the right.
        let until = doc! { "$lte": right.to_value() };
        let chunks = doc! {
            "uuid": uuid_value(&self.new.uuid), "onCurrentShardSince": until,
        };
        delete(&**cx.op, router, "chunks", chunks).map(drop)
    }

    fn forget_chunks(
        &self,
        cx: &CommandContext<'_>,
        router: &Router,
        of: &Generation,
    ) -> Result<()> {
        let chunks = doc! { "uuid": uuid_value(&of.uuid) };
        delete(&**cx.op, router, "chunks", chunks).map(drop)
    }
}

/// Makes the new collection on a shard that has nothing of it, as it is on the others.
fn make_empty(
    cx: &CommandContext<'_>,
    router: &Router,
    known: &Known,
    set: &SetPool,
    others: &[Arc<SetPool>],
) -> Result<()> {
    for other in others {
        let held = stored(cx, router, other, known.ns())?;
        let Some(held) = held.filter(|h| h.uuid == known.collection.generation.uuid) else {
            continue;
        };
        let told = Told {
            ns: known.ns(),
            stored: &held,
            placement: placed(known, None)?,
            ends: None,
        };
        return tell(cx, router, set, &told);
    }
    Ok(())
}

/// The operations on collections: all of them, or those on one.
///
/// # Errors
/// Those of the configuration's set.
pub fn all(cx: &CommandContext<'_>, router: &Router, ns: Option<&str>) -> Result<Vec<Operation>> {
    let filter = ns.map_or(DocBuf::new(), |ns| doc! { "ns": ns });
    let found = read(&**cx.op, router, ALL, filter)?;
    found.into_iter().map(parse).collect()
}

fn parse(d: DocBuf) -> Result<Operation> {
    let wrong = || Error::failed_to_parse(format!("a document of config.{ALL} has no known form"));
    let of = d.as_doc();
    let generation = |uuid: &str, time: &str| {
        let (Some(Value::Binary { bytes, .. }), Some(Value::Timestamp { t, i })) =
            (of.get(uuid), of.get(time))
        else {
            return Err(wrong());
        };
        Ok(Generation {
            uuid: <[u8; 16]>::try_from(bytes).map_err(|_| wrong())?,
            timestamp: Timestamp::new(t, i),
        })
    };
    Ok(Operation {
        ns: of.get_str("ns").ok_or_else(wrong)?.to_string(),
        new: generation("_id", "began")?,
        old: generation("ui", "timestamp")?,
        commits: of.get("commits").is_some_and(|v| v.truthy()),
    })
}

/// The shards of a document, by MongoDB's names.
pub fn shards_to(names: impl Iterator<Item = String>) -> ArrayBuf {
    names.map(|name| doc! { "id": name }).collect()
}

/// Ends what routers have left of operations on a collection. No router may be at work on it but the caller, whose right
/// to that is of the time `right`.
///
/// # Errors
/// Those of the sets.
pub fn settle_all(
    cx: &CommandContext<'_>,
    router: &Router,
    ns: &str,
    right: Timestamp,
) -> Result<()> {
    let mut left = all(cx, router, Some(ns))?.into_iter();
    left.try_for_each(|operation| operation.settle(cx, router, right))
}
