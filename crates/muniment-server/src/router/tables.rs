//! What a router knows of sharded collections: which shard owns which part.
//!
//! A table is read from the configuration when a collection is first used, and again when a shard says that it knows
//! better (StaleConfig). That a collection is not sharded is remembered in the same way. Invariant: a table that is
//! out of date costs a repetition and never a wrong answer, since each shard compares the version that it is sent.

use super::configuration::{is_last, read_after, read_any, read_page};
use super::together::{Takes, Together};
use super::{Reach, Router, SetPool};
use crate::namespace::MAX_NAMESPACE;
use crate::placement::of_all_shards;
use crate::read_preference::{Mode, ReadPreference};
use crate::uuid::uuid_value;
use muniment_exec::{BUCKETS, Expected, TimeSeries};
use muniment_op::Interrupt;
use muniment_shard::catalog::{Chunk, Collection};
use muniment_shard::{Builder, RangeTable, Record, ShardKey, Timestamp, Version};
use muniment_value::{ArrayBuf, Code, Collation, Doc, DocBuf, Error, Result, Value, doc};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

/// So many names are remembered; then all are forgotten.
const MOST: usize = 100_000;
/// So many seconds after a collection got another shard key, a command may still be repeated that was sent before.
const RECENT: i64 = 3600;
/// The chunks that are read at once.
const PAGE: usize = 10_000;
/// How often chunks that change while they are read are read anew.
const ATTEMPTS: usize = 10;

/// The field of the document in `config.version` with the time at which a shard was last taken out.
pub const LAST_REMOVAL: &str = "lastShardRemoved";

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
    /// When a range has last come to a shard.
    pub changed: Timestamp,
    /// The shard keys that it had before, and until when.
    former: Vec<(Timestamp, ShardKey)>,
    /// It is used for a read at a time before that. All shards are asked then, since each knows what it owned.
    pub past: bool,
    series: Option<Arc<TimeSeries>>,
    /// A command names the buckets of this series. They are on all of its shards, and the shard key says nothing of them.
    pub buckets: bool,
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
            version: match self.past {
                true => Version::default(),
                false => self.table.version_of(shard),
            },
        };
        let mut versions = DocBuf::new();
        versions.append(self.ns(), crate::placement::version_of(&expected));
        match self.past {
            true => of_all_shards(versions, self.changed),
            false => versions,
        }
    }

    /// The collection for a read at a time.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable for a time before a shard was taken out; those of reading the configuration.
    pub fn at(
        self: Arc<Known>,
        on: &dyn Interrupt,
        router: &Router,
        time: Timestamp,
    ) -> Result<Arc<Known>> {
        if time >= self.changed {
            return Ok(self);
        }
        let version = read_any(on, router, "version", doc! { "_id": 1 })?.pop();
        let removal = version.as_ref().and_then(|d| d.as_doc().get(LAST_REMOVAL));
        if matches!(removal, Some(Value::Timestamp { t, i }) if time < Timestamp::new(t, i)) {
            return Err(Error::new(
                Code::SnapshotUnavailable,
                format!(
                    "a shard was taken out since, and what it had of {} at that time is gone with it",
                    self.ns()
                ),
            ));
        }
        let mut sets = self.sets.clone();
        for (_, set) in router.catalog.shards(on, router)? {
            if !sets.iter().any(|s| s.name == set.name) {
                sets.push(set);
            }
        }
        Ok(Arc::new(Known {
            past: true,
            ..self.with(self.table.clone(), self.changed, sets)
        }))
    }

    /// The same collection with another table, whose ranges have last come to a shard at `changed`.
    pub fn with(&self, table: RangeTable, changed: Timestamp, sets: Vec<Arc<SetPool>>) -> Known {
        Known {
            collection: self.collection.clone(),
            key: Arc::clone(&self.key),
            table,
            sets,
            changed,
            former: self.former.clone(),
            past: false,
            series: self.series.clone(),
            buckets: self.buckets,
        }
    }

    /// The time series that it is; `None` if it is none.
    pub fn series(&self) -> Option<&TimeSeries> {
        self.series.as_deref()
    }

    /// The same series for a command that names its buckets.
    fn of_buckets(&self) -> Known {
        Known {
            buckets: true,
            ..self.with(self.table.clone(), self.changed, self.sets.clone())
        }
    }

    /// The shard keys that it had not long ago. A command that was sent then may be sent again.
    pub fn recent_keys(&self) -> impl Iterator<Item = &ShardKey> {
        // Few collections have former keys, and only those need the time.
        let recent = |at: &Timestamp| i64::from(at.t) + RECENT >= muniment_op::wall_ms() / 1000;
        let former = self.former.iter().filter(move |(at, _)| recent(at));
        former.map(|(_, key)| key)
    }

    /// What the configuration is to say of its former keys once it has another one, from a time on.
    pub fn keys_before(&self, at: Timestamp) -> ArrayBuf {
        let recent =
            |until: &&(Timestamp, ShardKey)| i64::from(until.0.t) + RECENT >= i64::from(at.t);
        let former = self.former.iter().filter(recent);
        let former = former.map(|(until, key)| (*until, key));
        let all = former.chain([(at, &*self.key)]);
        all.map(|(until, key)| doc! { "key": key.pattern(), "until": until.to_value() })
            .collect()
    }

    /// The places of all shards that may have documents.
    pub fn all(&self) -> Vec<usize> {
        match self.past {
            true => (0..self.sets.len()).collect(),
            false => (0..self.table.shards().len())
                .filter(|shard| self.table.ranges_on(*shard) > 0)
                .collect(),
        }
    }

    /// The set of a shard, which is at this place of the table.
    ///
    /// # Errors
    /// 70 ShardNotFound, which cannot happen.
    pub fn set(&self, shard: usize) -> Result<&Arc<SetPool>> {
        self.sets.get(shard).ok_or_else(|| {
            let why = format!("Shard {shard} of {} not found", self.ns());
            Error::new(Code::ShardNotFound, why)
        })
    }
}

/// See the module's head.
#[derive(Default)]
pub struct Tables {
    known: RwLock<HashMap<String, Option<Arc<Known>>>>,
    /// Of tables that are not known yet, of which any member may tell.
    first_reads: Together<Option<Arc<Known>>>,
    /// Of the others, at the primary.
    later_reads: Together<Option<Arc<Known>>>,
}

impl Tables {
    /// The table of a collection; `None` if it is not sharded. The buckets of a series are where the series is.
    ///
    /// # Errors
    /// Those of reading the configuration.
    pub fn of(&self, on: &dyn Interrupt, router: &Router, ns: &str) -> Result<Option<Arc<Known>>> {
        let (db, name) = ns.split_once('.').unwrap_or_default();
        let Some(series) = name.strip_prefix(BUCKETS) else {
            return self.remembered(on, router, ns);
        };
        let known = self.remembered(on, router, &format!("{db}.{series}"))?;
        let series = known.filter(|known| known.series().is_some());
        Ok(series.map(|known| Arc::new(known.of_buckets())))
    }

    fn remembered(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        ns: &str,
    ) -> Result<Option<Arc<Known>>> {
        if ns.len() > BUCKETS.len() + MAX_NAMESPACE {
            // No collection has such a name, which a stage may give; it is not to be kept.
            return Ok(None);
        }
        if let Some(known) = self.known.read().get(ns) {
            return Ok(known.clone());
        }
        // A secondary may tell it while there is no primary: if it lags, the shards say so.
        let reach = Reach::By(ReadPreference::of(Mode::PrimaryPreferred));
        self.read(on, router, (ns, Takes::UnderWay), reach)
    }

    /// Reads a table again, at the primary of the configuration: it is as of a time after the call.
    ///
    /// # Errors
    /// As [`Tables::of`].
    pub fn refresh(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        ns: &str,
    ) -> Result<Option<Arc<Known>>> {
        self.read(on, router, (ns, Takes::Later), Reach::Primary)
    }

    fn read(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        (ns, takes): (&str, Takes),
        reach: Reach<'_>,
    ) -> Result<Option<Arc<Known>>> {
        let reads = match takes {
            Takes::UnderWay => &self.first_reads,
            Takes::Later => &self.later_reads,
        };
        reads.read(on, (ns, takes), || {
            let before = self.known.read().get(ns).cloned().flatten();
            let known = load(on, router, (ns, reach), before.as_deref())?.map(Arc::new);
            let mut all = self.known.write();
            if all.len() >= MOST {
                all.clear();
            }
            all.insert(ns.to_string(), known.clone());
            Ok(known)
        })
    }

    /// Forgets all of them.
    pub fn forget(&self) {
        self.known.write().clear();
    }
}

/// The time series that the configuration says a collection is.
fn series_of(collection: &Collection) -> Option<TimeSeries> {
    let fields = collection.rest.as_doc().get_doc(SERIES_FIELDS)?;
    let collation = collection.default_collation.as_ref();
    let collation = Collation::parse_some(collation.map(|d| d.as_doc())).ok()?;
    TimeSeries::of_fields(fields, collation)
}

/// The name of the field of `config.collections` with the options of a time series.
pub const SERIES_FIELDS: &str = "timeseriesFields";
/// The name of the field of `config.collections` with the former shard keys.
pub const FORMER_KEYS: &str = "formerKeys";

fn former_keys(collection: &Collection) -> Vec<(Timestamp, ShardKey)> {
    let list = collection.rest.as_doc().get_array(FORMER_KEYS);
    let all = list.unwrap_or(Doc::EMPTY).values();
    let parsed = all.filter_map(|v| {
        let d = v.as_doc()?;
        let Some(Value::Timestamp { t, i }) = d.get("until") else {
            return None;
        };
        let key = ShardKey::parse(d.get_doc("key")?).ok()?;
        Some((Timestamp::new(t, i), key))
    });
    parsed.collect()
}

fn load(
    on: &dyn Interrupt,
    router: &Router,
    (ns, mut reach): (&str, Reach<'_>),
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
            Ok((table, changed)) => {
                let sets = sets_of(on, router, &table, same)?;
                return Ok(Some(Known {
                    former: former_keys(&collection),
                    series: series_of(&collection).map(Arc::new),
                    collection,
                    key,
                    table,
                    sets,
                    changed,
                    past: false,
                    buckets: false,
                }));
            }
            // They have changed while they were read.
            Err(e)
                if matches!(
                    e.code(),
                    // The second one: the bounds of chunks are of another shard key. The third one: a
                    // transaction of many writes was committed while they were read.
                    Code::ConflictingOperationInProgress
                        | Code::ShardKeyNotFound
                        | Code::SnapshotUnavailable
                ) && attempt < ATTEMPTS =>
            {
                reach = Reach::Primary;
                on.check()?;
            }
            Err(e) => return Err(e),
        }
    }
}

/// The sets of a table's shards. One that the table read `before` had and that owns nothing any more may have been
/// taken out of the cluster since; nobody asks it.
fn sets_of(
    on: &dyn Interrupt,
    router: &Router,
    table: &RangeTable,
    before: Option<&Known>,
) -> Result<Vec<Arc<SetPool>>> {
    let set = |(shard, name): (usize, &Arc<str>)| {
        let known = before.and_then(|b| b.sets.get(shard));
        match known.filter(|_| table.ranges_on(shard) == 0) {
            Some(known) => Ok(Arc::clone(known)),
            None => router.catalog.shard(on, router, name),
        }
    };
    table.shards().iter().enumerate().map(set).collect()
}

/// All chunks of a collection. There may be millions of them, so none is kept but in the table.
fn whole(
    on: &dyn Interrupt,
    router: &Router,
    collection: &Collection,
    key: &Arc<ShardKey>,
    reach: Reach<'_>,
) -> Result<(RangeTable, Timestamp)> {
    let mut builder = Builder::new(Arc::clone(key), collection.generation);
    let (mut changed, mut place, mut last) = (Timestamp::default(), None, None);
    loop {
        let mut filter = doc! { "uuid": uuid_value(&collection.generation.uuid) };
        filter.append_some("min", last.map(|min: DocBuf| doc! { "$gt": min }));
        let page = read_page(
            on,
            router,
            "chunks",
            filter,
            ("min", PAGE),
            (reach, &mut place),
        )?;
        for d in &page {
            let chunk = Chunk::parse(d.as_doc())?;
            let record = chunk.record(key)?;
            changed = changed.max(chunk.on_current_shard_since.unwrap_or_default());
            builder.push(&record.min, &record.max, &record.shard, record.version)?;
        }
        if is_last(&page, PAGE) {
            return Ok((builder.finish()?, changed));
        }
        last = page
            .last()
            .and_then(|d| Some(d.as_doc().get_doc("min")?.to_buf()));
    }
}

/// The table with what has changed since it was read.
fn newer(
    on: &dyn Interrupt,
    router: &Router,
    before: &Known,
    reach: Reach<'_>,
) -> Result<(RangeTable, Timestamp)> {
    let (table, collection) = (&before.table, &before.collection);
    let (records, changed) = since(
        on,
        router,
        (collection, &before.key),
        table.version(),
        reach,
    )?;
    let table = match records.is_empty() {
        true => table.clone(),
        false => table.apply(records)?,
    };
    Ok((table, changed.max(before.changed)))
}

/// The chunks with a newer version, by version, and when one of them has last come to its shard.
fn since(
    on: &dyn Interrupt,
    router: &Router,
    (collection, key): (&Collection, &ShardKey),
    mut version: Version,
    reach: Reach<'_>,
) -> Result<(Vec<Record>, Timestamp)> {
    let mut records = Vec::new();
    let mut changed = Timestamp::default();
    loop {
        let uuid = uuid_value(&collection.generation.uuid);
        let filter = doc! { "uuid": uuid, "lastmod": doc! { "$gt": version.to_value() } };
        let page = read_after(on, router, "chunks", filter, ("lastmod", PAGE), reach)?;
        for d in &page {
            let chunk = Chunk::parse(d.as_doc())?;
            let record = chunk.record(key)?;
            changed = changed.max(chunk.on_current_shard_since.unwrap_or_default());
            version = version.max(record.version);
            records.push(record);
        }
        if is_last(&page, PAGE) {
            return Ok((records, changed));
        }
    }
}
