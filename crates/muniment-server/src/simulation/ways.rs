//! What shards own, compared after each step and at the end.

use super::cluster::{Found, SHARDS, run_command};
use super::world::World;
use crate::replica_set::simulation::member::connection;
use crate::state::ServerState;
use crate::uuid::uuid_value;
use muniment_op::NeverInterrupted;
use muniment_shard::ShardKey;
use muniment_shard::catalog::Chunk;
use muniment_storage::{Collection, Owned, Placement};
use muniment_value::{Doc, doc};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The collections.
const ALL: [&str; 2] = ["d.c", "d.bank"];

/// What was compared last.
#[derive(Default)]
pub struct Ways {
    seen: [[Option<Arc<Placement>>; SHARDS]; ALL.len()],
    /// The newest terms of the shards' leaders. One of an older term may not know yet that it leads no more: what it
    /// says is never committed.
    terms: [i64; SHARDS],
}

/// The server that leads a shard, with its term.
fn leader(world: &World, shard: usize) -> Option<(i64, Arc<ServerState>)> {
    let inner = world.lock();
    let (term, number) = inner.leader(shard)?;
    Some((term, inner.processes[number].state.clone()?))
}

/// The ranges that a shard takes writes to.
fn writable(placement: &Placement) -> Vec<Owned> {
    let frozen = placement.moving().filter(|m| !m.arrives);
    let frozen = frozen.map(|m| m.range.clone());
    let all = placement.owned().to_vec();
    match frozen {
        Some(frozen) => muniment_storage::ranges_without(&all, &[frozen]),
        None => all,
    }
}

/// Whether two ranges have a key in common.
fn overlap(a: &Owned, b: &Owned) -> bool {
    let ends_before = |a: &Owned, b: &Owned| a.1.as_ref().is_some_and(|end| *end <= b.0);
    !ends_before(a, b) && !ends_before(b, a)
}

impl Ways {
    /// No two shards take writes to the same key.
    pub fn look(&mut self, world: &World) -> Found {
        let mut leaders: [Option<Arc<ServerState>>; SHARDS] = Default::default();
        for (i, (led, newest)) in leaders.iter_mut().zip(&mut self.terms).enumerate() {
            let leader = leader(world, i + 1).filter(|(term, _)| term >= newest);
            if let Some((term, state)) = leader {
                (*newest, *led) = (term, Some(state));
            }
        }
        for (ns, seen) in ALL.iter().zip(&mut self.seen) {
            look_at(&leaders, ns, seen)?;
        }
        Ok(())
    }

    /// Shards own what the configuration says, together everything, and have no other rows.
    pub fn at_the_end(&self, world: &World) -> Found {
        ALL.iter().try_for_each(|ns| is_settled(world, ns))?;
        let sets = world.lock().sets.clone();
        sets.iter()
            .try_for_each(|members| are_equal(world, members))
    }
}

/// Compares what the shards own of a collection, if that has changed since.
fn look_at(
    leaders: &[Option<Arc<ServerState>>; SHARDS],
    ns: &str,
    seen: &mut [Option<Arc<Placement>>; SHARDS],
) -> Found {
    let placement = |state: &Option<Arc<ServerState>>| {
        let collection = state.as_ref()?.engine.store.collection(ns);
        collection?.placement()
    };
    let now: Vec<_> = leaders.iter().map(placement).collect();
    let same = |(a, b): (&Option<Arc<Placement>>, &Option<Arc<Placement>>)| match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    };
    if now.iter().zip(&*seen).all(same) {
        return Ok(());
    }
    for (seen, now) in seen.iter_mut().zip(&now) {
        seen.clone_from(now);
    }
    for (i, a) in now.iter().enumerate() {
        for b in now.iter().skip(i + 1) {
            let (Some(a), Some(b)) = (a, b) else { continue };
            for x in writable(a) {
                if let Some(y) = writable(b).iter().find(|y| overlap(&x, y)) {
                    return Err(format!("two shards take writes to {x:?} and {y:?} of {ns}"));
                }
            }
        }
    }
    Ok(())
}

/// All members of a set have the same documents.
fn are_equal(world: &World, members: &[usize]) -> Found {
    let mut hashes = BTreeSet::new();
    for number in members {
        let (state, conn) = {
            let inner = world.lock();
            let process = &inner.processes[*number];
            (process.state.clone(), Arc::clone(&process.conn))
        };
        let state = state.ok_or_else(|| format!("server {number} is not up"))?;
        for db in ["config", "d"] {
            let body = doc! {
                "dbHash": 1, "$db": db, "$readPreference": doc! { "mode": "nearest" },
            };
            let reply = run_command(&state, &conn, body.as_doc());
            let hash = reply.as_doc().get_str("md5").map(str::to_string);
            hashes.insert((db, hash.ok_or_else(|| format!("dbHash says {reply:?}"))?));
        }
    }
    match hashes.len() {
        2 => Ok(()),
        _ => Err(format!("the hashes of {members:?} differ: {hashes:?}")),
    }
}

/// See [`Ways::at_the_end`].
fn is_settled(world: &World, ns: &str) -> Found {
    let mut owned: Vec<Owned> = Vec::new();
    let mut said: Vec<(String, Owned)> = Vec::new();
    let config = leader(world, 0).map(|(_, state)| state);
    let config = config.ok_or("nobody leads the configuration")?;
    let mut key = None;
    for shard in 1..=SHARDS {
        let state = leader(world, shard).map(|(_, state)| state);
        let state = state.ok_or_else(|| format!("nobody leads shard {shard}"))?;
        let collection = state.engine.store.collection(ns);
        let collection = collection.ok_or_else(|| format!("shard {shard} has no {ns}"))?;
        let placement = collection.placement();
        let placement = placement.ok_or_else(|| format!("{ns} is whole on shard {shard}"))?;
        if placement.moving().is_some() || placement.undecided {
            return Err(format!(
                "shard {shard} still moves something: {:?}",
                placement.to_doc()
            ));
        }
        foreign(&state, &collection, &placement, shard)?;
        let name = super::cluster::shard_name(shard);
        said.extend(placement.owned().iter().map(|r| (name.clone(), r.clone())));
        owned.extend(placement.owned().iter().cloned());
        key = Some((Arc::clone(&placement.key), collection.uuid()));
    }
    owned.sort();
    let (key, uuid) = key.ok_or("there is no key")?;
    whole(&key, &owned)?;
    agrees(&config, &said, (&key, &uuid))
}

/// These ranges, which are sorted, are all keys, and each key once.
fn whole(key: &ShardKey, ranges: &[Owned]) -> Found {
    let mut end = Some(key.lowest());
    for (min, max) in ranges {
        if Some(min) != end.as_ref() {
            return Err(format!("after {end:?} the next range is from {min:?}"));
        }
        end.clone_from(max);
    }
    match end {
        None => Ok(()),
        Some(end) => Err(format!("the ranges end at {end:?}")),
    }
}

/// Nothing is frozen any more.
pub fn thaw(state: &ServerState) {
    for ns in ALL {
        if let Some(collection) = state.engine.store.collection(ns) {
            thaw_one(state, &collection);
        }
    }
}

fn thaw_one(state: &ServerState, collection: &Arc<Collection>) {
    let is_frozen = |p: &Placement| p.moving().is_some_and(|m| !m.arrives);
    if collection.placement().is_some_and(|p| is_frozen(&p)) {
        let thawed = state
            .engine
            .store
            .place(collection, &NeverInterrupted, |held| {
                Ok(held.map(|held| held.still()))
            });
        // The member may fall meanwhile.
        drop(thawed);
    }
}

/// No row is left that the shard does not own.
fn foreign(
    state: &ServerState,
    collection: &Arc<Collection>,
    placement: &Placement,
    shard: usize,
) -> Found {
    let all: Owned = (Vec::new(), None);
    let view = state.engine.store.snapshot().with_foreign_rows();
    let mut rows = view.rows_of_range(collection, &placement.key, &all, None);
    let mut key = Vec::new();
    while let Some(row) = rows.next(&NeverInterrupted).map_err(|e| e.to_string())? {
        key.clear();
        let owned = placement.key.write_key(Doc::new(&row.doc), &mut key);
        if owned.is_err() || !placement.owns(&key) {
            let d = Doc::new(&row.doc).to_buf();
            return Err(format!("shard {shard} keeps {d:?}, which it does not own"));
        }
    }
    Ok(())
}

/// The chunks that the configuration has of the collection with this UUID say the same.
fn agrees(
    config: &Arc<ServerState>,
    said: &[(String, Owned)],
    (key, uuid): (&ShardKey, &[u8; 16]),
) -> Found {
    let body = doc! {
        "find": "chunks", "filter": doc! { "uuid": uuid_value(uuid) }, "batchSize": 10_000, "$db": "config",
    };
    let reply = run_command(config, &connection(), body.as_doc());
    let batch = reply
        .as_doc()
        .get_doc("cursor")
        .and_then(|c| c.get_array("firstBatch"));
    let mut chunks = Vec::new();
    for d in batch
        .unwrap_or(Doc::EMPTY)
        .values()
        .filter_map(|v| v.as_doc())
    {
        let chunk = Chunk::parse(d).map_err(|e| e.to_string())?;
        let min = key.bound(chunk.min.as_doc()).map_err(|e| e.to_string())?;
        let max = key.bound(chunk.max.as_doc()).map_err(|e| e.to_string())?;
        let max = (max != key.highest()).then_some(max);
        let reaches = |to: &Option<Vec<u8>>| match (to, &max) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(to), Some(max)) => max <= to,
        };
        let holds = |(from, to): &Owned| *from <= min && reaches(to);
        let owner = said.iter().find(|(_, range)| holds(range));
        if owner.map(|(name, _)| name) != Some(&chunk.shard) {
            return Err(format!(
                "the configuration says {d:?}, and the shards {said:?}"
            ));
        }
        chunks.push((min, max));
    }
    chunks.sort();
    whole(key, &chunks)
}
