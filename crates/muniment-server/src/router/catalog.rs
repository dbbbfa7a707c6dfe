//! What a router knows of shards and databases. It reads that from the configuration's set when it needs it first.
//!
//! Invariant: the shard of a database never changes, so an entry that was read holds. (An entry outlives
//! `dropDatabase` for that reason.)

use super::forward::{Own, ask_own_of_all, run};
use super::{Reach, Router, SetPool};
use crate::options::SetAddress;
use muniment_op::Interrupt;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc};
use muniment_wire::client::check_ok;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// See the module's head.
#[derive(Default)]
pub struct Catalog {
    /// The shards by their names.
    shards: RwLock<HashMap<String, Arc<SetPool>>>,
    /// The shard of each database.
    databases: RwLock<HashMap<String, Arc<SetPool>>>,
}

/// The documents of a collection of the configuration, as a majority has them.
///
/// # Errors
/// Those of the way there, and the set's.
pub fn read(
    on: &dyn Interrupt,
    router: &Router,
    collection: &str,
    filter: DocBuf,
) -> Result<Vec<DocBuf>> {
    // A batch may hold 16 MiB, and a document of the configuration has some hundred bytes.
    read_after(
        on,
        router,
        collection,
        filter,
        ("_id", 10_000),
        Reach::Primary,
    )
}

/// As [`read`], for what cannot change, or is compared by the shards: while the configuration has no primary, a
/// secondary tells it.
///
/// # Errors
/// As [`read`].
pub fn read_any(
    on: &dyn Interrupt,
    router: &Router,
    collection: &str,
    filter: DocBuf,
) -> Result<Vec<DocBuf>> {
    let reach = Reach::PrimaryPreferred;
    read_after(on, router, collection, filter, ("_id", 10_000), reach)
}

/// The first `most` documents in the order of a field, as a majority has them.
///
/// # Errors
/// As [`read`].
pub fn read_after(
    on: &dyn Interrupt,
    router: &Router,
    collection: &str,
    filter: DocBuf,
    (by, most): (&str, usize),
    reach: Reach<'_>,
) -> Result<Vec<DocBuf>> {
    let mut found = Vec::new();
    let mut sort = DocBuf::new();
    sort.append(by, 1);
    let find = doc! {
        "find": collection, "filter": filter, "sort": sort,
        "readConcern": doc! { "level": "majority" }, "limit": most as i64, "batchSize": most as i64,
        "singleBatch": true, "$readPreference": doc! { "mode": "primaryPreferred" },
    };
    let own = Own {
        set: &router.config,
        db: "config",
        command: &find,
        versions: None,
        reach,
    };
    let reply = ask_own_of_all(on, router, &[own]).pop();
    let reply = reply
        .ok_or_else(|| Error::internal("a reply is lost"))??
        .body;
    check_ok(reply.as_doc())?;
    let cursor = reply.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
    for v in cursor
        .get_array("firstBatch")
        .unwrap_or(Doc::EMPTY)
        .values()
    {
        found.extend(v.as_doc().map(|d| d.to_buf()));
    }
    Ok(found)
}

impl Catalog {
    /// The set at an address, whether or not it is a shard.
    pub fn reach(&self, router: &Router, address: &SetAddress) -> Arc<SetPool> {
        router.sets.of(address)
    }

    /// Forgets everything, so that it is read again.
    pub fn forget(&self) {
        self.shards.write().clear();
        self.databases.write().clear();
    }

    /// The set of the shard with this name.
    ///
    /// # Errors
    /// 70 ShardNotFound.
    pub fn shard(&self, on: &dyn Interrupt, router: &Router, name: &str) -> Result<Arc<SetPool>> {
        if let Some(set) = self.shards.read().get(name) {
            return Ok(Arc::clone(set));
        }
        let all = self.shards(on, router)?;
        let mut all = all.into_iter();
        all.find(|(n, _)| n == name)
            .map(|(_, set)| set)
            .ok_or_else(|| Error::new(Code::ShardNotFound, format!("Shard {name} not found")))
    }

    /// All shards, sorted by name, as they are now.
    ///
    /// # Errors
    /// Those of reading.
    pub fn shards(
        &self,
        on: &dyn Interrupt,
        router: &Router,
    ) -> Result<Vec<(String, Arc<SetPool>)>> {
        let mut all = Vec::new();
        for d in read_any(on, router, "shards", DocBuf::new())? {
            let d = d.as_doc();
            let (Some(name), Some(host)) = (d.get_str("_id"), d.get_str("host")) else {
                continue;
            };
            let set = router.sets.of(&SetAddress::parse(host, 27018)?);
            all.push((name.to_string(), set));
        }
        let known = all.iter().map(|(n, set)| (n.clone(), Arc::clone(set)));
        *self.shards.write() = known.collect();
        Ok(all)
    }

    /// The set of the shard that holds a database, if that was read before.
    pub fn known(&self, db: &str) -> Option<Arc<SetPool>> {
        self.databases.read().get(db).map(Arc::clone)
    }

    /// The set of the shard that holds a database; `None` if no shard does. With `creates`, a shard is chosen for
    /// it, or `wanted`.
    ///
    /// # Errors
    /// 70 ShardNotFound if there are no shards.
    pub fn database(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        db: &str,
        creates: Option<Option<&str>>,
    ) -> Result<Option<Arc<SetPool>>> {
        if let Some(set) = self.known(db) {
            return Ok(Some(set));
        }
        let mut found = read_any(on, router, "databases", doc! { "_id": db })?.pop();
        if let (None, Some(wanted)) = (&found, creates) {
            found = Some(self.create(on, router, db, wanted)?);
        }
        let Some(found) = found else {
            return Ok(None);
        };
        let primary = found.as_doc().get_str("primary").unwrap_or_default();
        let set = self.shard(on, router, primary)?;
        let mut databases = self.databases.write();
        databases.insert(db.to_string(), Arc::clone(&set));
        Ok(Some(set))
    }

    /// Chooses the shard of a new database: that with the fewest databases. If another router does the same at
    /// this time, the first one's choice holds.
    fn create(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        db: &str,
        wanted: Option<&str>,
    ) -> Result<DocBuf> {
        let shards = self.shards(on, router)?;
        let mut counts: BTreeMap<&str, usize> =
            shards.iter().map(|(name, _)| (name.as_str(), 0)).collect();
        for d in read(on, router, "databases", DocBuf::new())? {
            if let Some(count) = d
                .as_doc()
                .get_str("primary")
                .and_then(|p| counts.get_mut(p))
            {
                *count += 1;
            }
        }
        let least = || {
            counts
                .iter()
                .min_by_key(|(_, n)| **n)
                .map(|(name, _)| *name)
        };
        let primary = wanted.or_else(least).ok_or_else(|| {
            Error::new(
                Code::ShardNotFound,
                format!("Database {db} could not be created :: caused by :: No shards found"),
            )
        })?;
        if !counts.contains_key(primary) {
            let why = format!("Shard {primary} not found");
            return Err(Error::new(Code::ShardNotFound, why));
        }
        let uuid = crate::uuid::random_uuid();
        let uuid = Value::Binary {
            subtype: 4,
            bytes: &uuid,
        };
        let insert = doc! {
            "_id": db, "primary": primary, "partitioned": false,
            "version": doc! { "uuid": uuid, "lastMod": 1 },
        };
        let upsert = doc! {
            "findAndModify": "databases", "query": doc! { "_id": db },
            "update": doc! { "$setOnInsert": insert }, "upsert": true, "new": true,
            "writeConcern": doc! { "w": "majority" },
        };
        let reply = run(on, router, &router.config, "config", &upsert, true)?;
        let value = reply.as_doc().get_doc("value");
        value
            .map(|d| d.to_buf())
            .ok_or_else(|| Error::internal("the configuration's set has made no database"))
    }
}
