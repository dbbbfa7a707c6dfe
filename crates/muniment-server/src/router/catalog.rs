//! What a router knows of shards and databases. It reads that from the configuration's set when it needs it first.
//!
//! Invariant: a shard that a database has left refuses what a router sends it, so an entry that is out of date costs a
//! repetition. (An entry outlives `dropDatabase`, since the database comes back to the same shard.)

use super::configuration::{aggregated, read, read_any};
use super::forward::run;
use super::sharded::lease::Lease;
use super::together::{Takes, Together};
use super::{Router, SetPool};
use crate::options::SetAddress;
use muniment_op::Interrupt;
use muniment_value::{Code, DocBuf, Error, Result, Value, array, doc};
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
    /// Databases that are looked for to be used, wherever they are.
    looks: Together<Option<Arc<SetPool>>>,
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

    /// Forgets where a database is.
    pub fn forget_database(&self, db: &str) {
        self.databases.write().remove(db);
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
        let now: HashMap<String, Arc<SetPool>> = known.collect();
        let mut shards = self.shards.write();
        let lost = shards.keys().any(|name| !now.contains_key(name));
        *shards = now;
        drop(shards);
        if lost {
            // What is known may name a shard that is no more, which cannot say that this is out of date.
            self.databases.write().clear();
            router.tables.forget();
        }
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
        match creates {
            // All that use a new database at the same time have it created once.
            Some(None) => self.looks.read(on, (db, Takes::Later), || {
                self.look(on, router, db, creates)
            }),
            _ => self.look(on, router, db, creates),
        }
    }

    fn look(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        db: &str,
        creates: Option<Option<&str>>,
    ) -> Result<Option<Arc<SetPool>>> {
        let mut found = read_any(on, router, "databases", doc! { "_id": db })?.pop();
        if let (None, Some(wanted)) = (&found, creates) {
            // A shard that is taken out meanwhile waits for this, and so does a name that differs in case alone.
            let lease = Lease::take_on(on, router, &db.to_ascii_lowercase(), "createDatabase")?;
            let made = self.create(on, router, db, wanted);
            lease.release_on(on, router)?;
            found = Some(made?);
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
        // A shard that is being removed gets nothing new.
        let drains = read(on, router, "shards", doc! { "draining": true })?;
        let drains = |name: &str| {
            drains
                .iter()
                .any(|d| d.as_doc().get_str("_id") == Some(name))
        };
        let stay = shards.iter().filter(|(name, _)| !drains(name));
        let mut counts: BTreeMap<&str, i64> = stay.map(|(name, _)| (name.as_str(), 0)).collect();
        // The shard of a name that differs in case alone: it refuses to have both (13297). That it is being removed is no
        // reason to have the two on different shards.
        let mut beside = None;
        for d in spread(on, router, db)? {
            let d = d.as_doc();
            let primary = d.get_str("_id").unwrap_or_default();
            if let Some(count) = counts.get_mut(primary) {
                *count = d.get("n").and_then(|v| v.as_i64_exact()).unwrap_or(0);
            }
            if d.get("beside").is_some_and(|v| v.truthy()) {
                beside = Some(primary.to_string());
            }
        }
        let least = || {
            counts
                .iter()
                .min_by_key(|(_, n)| **n)
                .map(|(name, _)| *name)
        };
        let primary = beside.as_deref().or(wanted);
        let primary = primary.or_else(least).ok_or_else(|| {
            Error::new(
                Code::ShardNotFound,
                format!("Database {db} could not be created :: caused by :: No shards found"),
            )
        })?;
        if beside.is_none() && !counts.contains_key(primary) {
            let why = format!("Shard {primary} not found");
            return Err(Error::new(Code::ShardNotFound, why));
        }
        let version = first_version(router);
        let insert = doc! {
            "_id": db, "primary": primary, "partitioned": false, "version": version,
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

/// How many databases each shard has, and whether one of them differs from a name in case alone: `{_id, n, beside}`. The
/// configuration counts them, for there may be many.
fn spread(on: &dyn Interrupt, router: &Router, db: &str) -> Result<Vec<DocBuf>> {
    let lower = doc! { "$literal": db.to_ascii_lowercase() };
    let is_beside = doc! { "$eq": array![doc! { "$toLower": "$_id" }, lower] };
    let group = doc! {
        "_id": "$primary", "n": doc! { "$sum": 1 }, "beside": doc! { "$max": is_beside },
    };
    aggregated(on, router, "databases", array![doc! { "$group": group }])
}

/// The version of a new database, as the configuration has it.
fn first_version(router: &Router) -> DocBuf {
    let uuid = crate::uuid::random_uuid();
    let uuid = Value::Binary {
        subtype: 4,
        bytes: &uuid,
    };
    let mut version = doc! { "uuid": uuid };
    let newest = router.times.newest();
    let newest = newest.as_ref().and_then(|d| d.as_doc().get("clusterTime"));
    version.append(
        "timestamp",
        newest.unwrap_or(Value::Timestamp { t: 0, i: 1 }),
    );
    version.append("lastMod", 1);
    version
}
