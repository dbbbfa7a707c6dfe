//! What a router knows of sharded collections: which shard owns which part.
//!
//! A table is read from the configuration when a collection is first used, and again when a shard says that it knows
//! better (StaleConfig). That a collection is not sharded is remembered in the same way. Invariant: a table that is
//! out of date costs a repetition and never a wrong answer, since each shard compares the version that it is sent.

use super::catalog::read_after;
use super::{Reach, Router, SetPool};
use muniment_exec::Expected;
use muniment_op::Interrupt;
use muniment_shard::catalog::{Chunk, Collection};
use muniment_shard::{RangeTable, Record, ShardKey, Version};
use muniment_value::{Code, DocBuf, Error, Result, Value, doc};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// So many names are remembered; then all are forgotten.
const MOST: usize = 100_000;
/// The chunks that are read at once.
const PAGE: usize = 10_000;
/// How often chunks that change while they are read are read anew.
const ATTEMPTS: usize = 10;

/// A sharded collection.
pub struct Known {
    /// Its document in `config.collections`.
    pub collection: Collection,
    /// Its shard key.
    pub key: Arc<ShardKey>,
    /// Which shard owns which part.
    pub table: RangeTable,
    /// The sets of the table's shards, in the table's order.
    pub sets: Vec<Arc<SetPool>>,
}

impl Known {
    /// The full name.
    pub fn ns(&self) -> &str {
        &self.collection.ns
    }

    /// Its database.
    pub fn db(&self) -> &str {
        self.ns().split_once('.').map_or("", |(db, _)| db)
    }

    /// Its name within the database.
    pub fn name(&self) -> &str {
        self.ns().split_once('.').map_or("", |(_, name)| name)
    }

    /// The field `shardVersion` for a shard, which is at this place of the table.
    pub fn versions(&self, shard: usize) -> DocBuf {
        let expected = Expected {
            generation: self.collection.generation,
            version: self.table.version_of(shard),
        };
        let mut versions = DocBuf::new();
        versions.append(self.ns(), crate::placement::version_of(&expected));
        versions
    }

    /// The set of a shard, which is at this place of the table.
    ///
    /// # Errors
    /// 70 ShardNotFound, which cannot happen.
    pub fn set(&self, shard: usize) -> Result<&Arc<SetPool>> {
        self.sets.get(shard).ok_or_else(|| {
            let why = format!("Shard {} not found", self.table.shard_name(shard));
            Error::new(Code::ShardNotFound, why)
        })
    }
}

/// See the module's head.
#[derive(Default)]
pub struct Tables {
    known: RwLock<HashMap<String, Option<Arc<Known>>>>,
}

impl Tables {
    /// The table of a collection; `None` if it is not sharded.
    ///
    /// # Errors
    /// Those of reading the configuration.
    pub fn of(&self, on: &dyn Interrupt, router: &Router, ns: &str) -> Result<Option<Arc<Known>>> {
        if let Some(known) = self.known.read().get(ns) {
            return Ok(known.clone());
        }
        // A secondary may tell it while there is no primary: if it lags, the shards say so.
        self.read(on, router, ns, Reach::PrimaryPreferred)
    }

    /// Reads a table again, at the primary of the configuration.
    ///
    /// # Errors
    /// As [`Tables::of`].
    pub fn refresh(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        ns: &str,
    ) -> Result<Option<Arc<Known>>> {
        self.read(on, router, ns, Reach::Primary)
    }

    fn read(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        ns: &str,
        reach: Reach<'_>,
    ) -> Result<Option<Arc<Known>>> {
        let before = self.known.read().get(ns).cloned().flatten();
        let known = load(on, router, (ns, reach), before.as_deref())?.map(Arc::new);
        let mut all = self.known.write();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(ns.to_string(), known.clone());
        Ok(known)
    }

    /// Forgets all of them.
    pub fn forget(&self) {
        self.known.write().clear();
    }
}

fn load(
    on: &dyn Interrupt,
    router: &Router,
    (ns, reach): (&str, Reach<'_>),
    before: Option<&Known>,
) -> Result<Option<Known>> {
    let mut attempt = 0;
    loop {
        let Some(d) = read_after(
            on,
            router,
            "collections",
            doc! { "_id": ns },
            ("_id", 1),
            reach,
        )?
        .pop() else {
            return Ok(None);
        };
        let collection = Collection::parse(d.as_doc())?;
        let key = Arc::new(collection.shard_key()?);
        let same = before.filter(|b| b.collection.generation == collection.generation);
        let table = match same {
            Some(before) => newer(on, router, before, reach),
            None => whole(on, router, &collection, &key, reach),
        };
        attempt += 1;
        match table {
            Ok(table) => {
                let sets = table.shards().iter();
                let sets = sets.map(|name| router.catalog.shard(on, router, name));
                let sets = sets.collect::<Result<Vec<_>>>()?;
                return Ok(Some(Known {
                    collection,
                    key,
                    table,
                    sets,
                }));
            }
            // They have changed while they were read.
            Err(e) if e.code() == Code::ConflictingOperationInProgress && attempt < ATTEMPTS => {
                on.check()?
            }
            Err(e) => return Err(e),
        }
    }
}

/// All chunks of a collection.
fn whole(
    on: &dyn Interrupt,
    router: &Router,
    collection: &Collection,
    key: &Arc<ShardKey>,
    reach: Reach<'_>,
) -> Result<RangeTable> {
    let changed = since(on, router, (collection, key), Version::default(), reach)?;
    // A chunk that was changed while they were read is there twice; the later one counts.
    let mut by_min: BTreeMap<Vec<u8>, Record> = BTreeMap::new();
    for record in changed {
        by_min.insert(record.min.clone(), record);
    }
    RangeTable::build(
        Arc::clone(key),
        collection.generation,
        by_min.into_values().collect(),
    )
}

/// The table with what has changed since it was read.
fn newer(
    on: &dyn Interrupt,
    router: &Router,
    before: &Known,
    reach: Reach<'_>,
) -> Result<RangeTable> {
    let (table, collection) = (&before.table, &before.collection);
    let changed = since(
        on,
        router,
        (collection, &before.key),
        table.version(),
        reach,
    )?;
    match changed.is_empty() {
        true => Ok(table.clone()),
        false => table.apply(changed),
    }
}

/// The chunks with a newer version, by version.
fn since(
    on: &dyn Interrupt,
    router: &Router,
    (collection, key): (&Collection, &ShardKey),
    mut version: Version,
    reach: Reach<'_>,
) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    loop {
        let uuid = Value::Binary {
            subtype: 4,
            bytes: &collection.generation.uuid,
        };
        let filter = doc! { "uuid": uuid, "lastmod": doc! { "$gt": version.to_value() } };
        let page = read_after(on, router, "chunks", filter, ("lastmod", PAGE), reach)?;
        for d in &page {
            let record = Chunk::parse(d.as_doc())?.record(key)?;
            version = version.max(record.version);
            records.push(record);
        }
        if page.len() < PAGE {
            return Ok(records);
        }
    }
}
