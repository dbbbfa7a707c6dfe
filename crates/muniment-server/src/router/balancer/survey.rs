//! What the balancer knows of a cluster, and what is to be done for a collection.

use super::Settings;
use crate::router::configuration::read;
use crate::router::forward::{Own, ask_own_of_all};
use crate::router::sharded::zones;
use crate::router::{Known, Reach, Router};
use crate::uuid::uuid_value;
use muniment_op::Interrupt;
use muniment_shard::balance::{Load, Plan, plan};
use muniment_shard::catalog::{Chunk, Shard};
use muniment_value::{ArrayBuf, Doc, DocBuf, Result, doc};
use muniment_wire::client::check_ok;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The cluster at the beginning of a round.
pub struct Survey {
    shards: Vec<Shard>,
    /// The documents of `config.tags` of each collection.
    tags: BTreeMap<String, Vec<DocBuf>>,
    /// The bytes that each shard has of each collection, in step with `shards`.
    bytes: BTreeMap<String, Vec<u64>>,
}

impl Survey {
    /// Asks for all of it, for these collections.
    ///
    /// # Errors
    /// Those of the sets: a shard that does not answer ends the round.
    pub fn of(on: &dyn Interrupt, router: &Router, collections: &[String]) -> Result<Survey> {
        let shards = read(on, router, "shards", DocBuf::new())?;
        let shards = shards.iter().map(|d| Shard::parse(d.as_doc()));
        let shards: Vec<Shard> = shards.collect::<Result<_>>()?;
        let mut tags: BTreeMap<String, Vec<DocBuf>> = BTreeMap::new();
        for d in read(on, router, "tags", DocBuf::new())? {
            let ns = d.as_doc().get_str("ns").unwrap_or_default().to_string();
            tags.entry(ns).or_default().push(d);
        }
        let bytes = sizes(on, router, &shards, collections)?;
        Ok(Survey {
            shards,
            tags,
            bytes,
        })
    }

    /// Whether anything could be moved at all.
    pub fn has_choice(&self) -> bool {
        self.shards.len() > 1
    }

    /// What is to be done for a collection. The ranges with the lower bounds `waiting` are left alone.
    ///
    /// # Errors
    /// Those of the configuration's set.
    pub fn plan(
        &self,
        on: &dyn Interrupt,
        router: &Router,
        known: &Known,
        (settings, waiting): (&Settings, &BTreeSet<Vec<u8>>),
    ) -> Result<Plan> {
        let tags = self.tags.get(known.ns()).map_or(&[][..], Vec::as_slice);
        let zones = zones::of_tags(tags, &known.key)?;
        let bytes = self.bytes.get(known.ns());
        let loads = self.shards.iter().enumerate().map(|(at, s)| Load {
            name: s.name.as_str().into(),
            bytes: bytes.and_then(|all| all.get(at)).copied().unwrap_or(0),
            draining: s.draining,
            zones: s.zones.iter().map(|z| Arc::from(z.as_str())).collect(),
        });
        let loads: Vec<Load> = loads.collect();
        let size = chunk_bytes(known, settings);
        let first = plan(&known.table, &zones, &loads, waiting, size);
        if first.is_empty() {
            return Ok(first);
        }
        // Only what is to be moved is worth the question which chunks cannot be.
        let mut jumbo = jumbo(on, router, known)?;
        match jumbo.is_empty() {
            true => Ok(first),
            false => {
                jumbo.extend(waiting.iter().cloned());
                Ok(plan(&known.table, &zones, &loads, &jumbo, size))
            }
        }
    }
}

/// The size of the ranges of a collection that are moved.
pub fn chunk_bytes(known: &Known, settings: &Settings) -> u64 {
    let own = known.collection.max_chunk_size;
    let own = own.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    own.unwrap_or(settings.chunk_bytes)
}

/// The lower bounds of the chunks that are flagged as too large to be moved.
fn jumbo(on: &dyn Interrupt, router: &Router, known: &Known) -> Result<BTreeSet<Vec<u8>>> {
    let of = doc! { "uuid": uuid_value(&known.collection.generation.uuid), "jumbo": true };
    let found = read(on, router, "chunks", of)?;
    let bounds = found.iter().map(|d| {
        let chunk = Chunk::parse(d.as_doc())?;
        known.key.bound(chunk.min.as_doc())
    });
    bounds.collect()
}

/// How many bytes each shard has of each collection.
fn sizes(
    on: &dyn Interrupt,
    router: &Router,
    shards: &[Shard],
    collections: &[String],
) -> Result<BTreeMap<String, Vec<u64>>> {
    let names: ArrayBuf = collections.iter().map(String::as_str).collect();
    let command = doc! { "_shardSizes": 1, "namespaces": names };
    let sets: Vec<_> = shards
        .iter()
        .map(|s| router.catalog.shard(on, router, &s.name))
        .collect::<Result<_>>()?;
    let asked = sets.iter().map(|set| Own {
        set,
        db: "admin",
        command: &command,
        versions: None,
        reach: Reach::Primary,
    });
    let asked: Vec<_> = asked.collect();
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for reply in ask_own_of_all(on, router, &asked) {
        let reply = reply?.body;
        check_ok(reply.as_doc())?;
        let sizes = reply.as_doc().get_array("sizes").unwrap_or(Doc::EMPTY);
        let mut sizes = sizes.values();
        for ns in collections {
            let bytes = sizes.next().and_then(|v| v.as_i64_exact()).unwrap_or(0);
            let of = all.entry(ns.clone()).or_default();
            of.push(u64::try_from(bytes).unwrap_or(0));
        }
    }
    Ok(all)
}
