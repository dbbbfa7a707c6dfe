//! What a member of a set asks before a command runs: may it run here, and does it see what the
//! client has seen.

use super::times;
use crate::context::Request;
use crate::generic::Generic;
use crate::registry::{CommandSpec, Kind};
use crate::state::ServerState;
use muniment_exec::OpContext;
use muniment_query::Interrupt;
use muniment_repl::{Concern, W};
use muniment_storage::Timestamp;
use muniment_value::{Code, Doc, Error, Result};
use std::time::Duration;

/// Commands that need a primary beside those that write documents or change collections.
const PRIMARY: &[&str] = &[
    "refreshLogicalSessionCacheNow",
    "setClusterParameter",
    "setDefaultRWConcern",
    "setFeatureCompatibilityVersion",
    "setIndexCommitQuorum",
];
/// Commands that read what is replicated, beside those that read documents.
const READING: &[&str] = &[
    "collStats",
    "dbStats",
    "listCollections",
    "listDatabases",
    "listIndexes",
];

/// Where a command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Anywhere,
    /// Where data can be read: a cursor was opened where that was allowed.
    Cursor,
    /// Where data can be read, on a secondary only if the client says so.
    Readable,
    Primary,
}

fn place(spec: &CommandSpec, body: Doc<'_>) -> Place {
    match spec.kind {
        Kind::Write | Kind::Ddl => Place::Primary,
        Kind::Read if spec.name == "getMore" => Place::Cursor,
        // The primary writes what an aggregation finds: see `forward`.
        Kind::Read if writes(body) && spec.name != "aggregate" => Place::Primary,
        Kind::Read => Place::Readable,
        _ if PRIMARY.contains(&spec.name) => Place::Primary,
        _ if READING.contains(&spec.name) => Place::Readable,
        _ => Place::Anywhere,
    }
}

/// True for a reading command that writes what it finds into a collection.
pub fn writes(body: Doc<'_>) -> bool {
    let stages = body.get_array("pipeline").unwrap_or(Doc::EMPTY);
    let last = stages.values().last().and_then(|v| v.as_doc());
    let stage = last.and_then(|d| d.first()).map_or("", |e| e.name());
    let reduces = body.first().is_some_and(|e| e.is_named("mapReduce"));
    let inline = body
        .get_doc("out")
        .is_some_and(|d| d.get("inline").is_some());
    matches!(stage, "$out" | "$merge") || reduces && !inline
}

/// Checks that the command may run on this member now, takes the cluster's time that it brings, and
/// makes the time come after which it wants to read.
///
/// # Errors
/// 20 for a write to data that are kept for a set; 10107, 13435, 13436 for the member's state; 205 for a time too far ahead; 72 for a time to read
/// after that nobody has heard of.
pub fn admit(
    server: &ServerState,
    spec: &CommandSpec,
    op: &OpContext,
    request: &Request<'_>,
    generic: &Generic<'_>,
) -> Result<()> {
    let Some(set) = &server.replica_set else {
        let reads = place(spec, request.body) != Place::Primary && !writes(request.body);
        if server.kept_for_set && !reads {
            return Err(Error::new(
                Code::IllegalOperation,
                "the data are those of a member of a replica set and the server was started without \
                 --replSet: they can be read, and not written",
            ));
        }
        return Ok(());
    };
    if let Some(time) = generic.cluster_time {
        set.hear(server, time)?;
    }
    // Others have their own word on what there is in it.
    let makes = spec.kind == Kind::Write || matches!(spec.name, "create" | "createIndexes");
    // A transaction refuses it in its own words.
    let within = generic.in_transaction();
    if request.db == "local"
        && !within
        && (makes || spec.kind == Kind::Read && writes(request.body))
    {
        return Err(Error::new(
            Code::IllegalOperation,
            "the database local of a member of a replica set cannot be written to: what members store \
             is the same on all of them",
        ));
    }
    if !set.is_primary() && request.db != "local" {
        refuse(set, spec, request)?;
    }
    let Some(concern) = generic.read_concern else {
        return Ok(());
    };
    if concern.get_str("level") == Some("linearizable") {
        if !set.is_primary() {
            return Err(Error::new(
                Code::NotWritablePrimary,
                "cannot satisfy linearizable read concern on non-primary node",
            ));
        }
        if writes(request.body) {
            return Err(Error::new(
                Code::InvalidOptions,
                "$out cannot be used with a 'linearizable' read concern level",
            ));
        }
    }
    if concern.get_str("level") == Some("linearizable") {
        still_leads(server, set, op)?;
    }
    let at = concern.get("atClusterTime").map(times::of);
    // A primary has all there is at a time, and `Snapshots` sees to it that the majority has it.
    if let Some(at) = at.filter(|_| !set.is_primary()) {
        wait_for(server, set, op, "atClusterTime", at, false)?;
    }
    let Some(time) = concern.get("afterClusterTime").map(times::of) else {
        return Ok(());
    };
    let of_majority = matches!(concern.get_str("level"), Some("majority" | "snapshot"));
    wait_for(server, set, op, "afterClusterTime", time, of_majority)
}

/// A primary sees at once what it has committed; a time that only the clients have heard of comes with
/// a commit of nothing. Who follows waits until it has what the primary had then.
fn wait_for(
    server: &ServerState,
    set: &super::ReplicaSet,
    op: &OpContext,
    what: &str,
    time: Timestamp,
    of_majority: bool,
) -> Result<()> {
    let store = &server.engine.store;
    let reached = || match store.majority().filter(|_| of_majority) {
        Some(majority) => majority.at >= time && store.visible() >= time,
        None => store.visible() >= time,
    };
    if reached() {
        return Ok(());
    }
    let known = store.clock();
    if time > known {
        return Err(Error::new(
            Code::InvalidOptions,
            format!(
                "readConcern {what} value must not be greater than the current clusterTime. \
                 Requested clusterTime: {time}; current clusterTime: {known}"
            ),
        ));
    }
    if set.is_primary() && time > store.visible() {
        store.commit_nothing(op)?;
    }
    while !store.wait_until(SLICE, reached) {
        op.check()?;
    }
    Ok(())
}

/// Has the majority say that nobody else leads: a record that changes nothing is committed only then.
fn still_leads(server: &ServerState, set: &super::ReplicaSet, op: &OpContext) -> Result<()> {
    let (Some(node), Some(_)) = (set.node(), server.engine.store.majority()) else {
        return Ok(());
    };
    let commit = server.engine.store.commit_nothing(op)?;
    let concern = Concern {
        w: W::Majority,
        journaled: false,
    };
    node.wait(commit.index, &concern, None, op)?;
    // The storage may learn a moment later how far the majority is.
    server.engine.store.wait_for_majority(commit.at, op)
}

/// How often who waits asks its operation.
const SLICE: Duration = Duration::from_millis(20);

fn refuse(set: &super::ReplicaSet, spec: &CommandSpec, request: &Request<'_>) -> Result<()> {
    let place = place(spec, request.body);
    if place == Place::Anywhere {
        return Ok(());
    }
    if place == Place::Primary {
        return Err(Error::new(Code::NotWritablePrimary, "not primary"));
    }
    let preference = request.body.get_doc("$readPreference");
    let secondary_ok = preference
        .and_then(|d| d.get_str("mode"))
        .is_some_and(|mode| mode != "primary");
    if place != Place::Cursor && !secondary_ok {
        return Err(Error::new(
            Code::NotPrimaryNoSecondaryOk,
            "not primary and secondaryOk=false",
        ));
    }
    match set.member().role {
        super::Role::Primary | super::Role::Secondary => Ok(()),
        super::Role::Recovering => Err(Error::new(
            Code::NotPrimaryOrSecondary,
            "node is recovering",
        )),
        _ => Err(Error::new(
            Code::NotPrimaryOrSecondary,
            "node is not in primary or recovering state",
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use muniment_value::{array, doc};

    #[test]
    fn where_commands_may_run() {
        for (d, wanted) in [
            (doc! { "find": "c" }, Place::Readable),
            (
                doc! { "aggregate": "c", "pipeline": array![] },
                Place::Readable,
            ),
            (
                doc! { "aggregate": "c", "pipeline": array![doc! { "$out": "x" }] },
                Place::Readable,
            ),
            (
                doc! { "mapReduce": "c", "out": doc! { "inline": 1 } },
                Place::Readable,
            ),
            (doc! { "mapReduce": "c", "out": "x" }, Place::Primary),
            (doc! { "insert": "c" }, Place::Primary),
            (doc! { "create": "c" }, Place::Primary),
            (doc! { "setDefaultRWConcern": 1 }, Place::Primary),
            (doc! { "listCollections": 1 }, Place::Readable),
            (doc! { "getMore": 1_i64 }, Place::Cursor),
            (doc! { "hello": 1 }, Place::Anywhere),
            (doc! { "serverStatus": 1 }, Place::Anywhere),
        ] {
            let body = d.as_doc();
            let spec = crate::registry::find(body.first().unwrap().name()).unwrap();
            assert_eq!(place(spec, body), wanted, "{d:?}");
        }
        for name in PRIMARY.iter().chain(READING) {
            assert!(crate::registry::find(name).is_some(), "{name}");
        }
    }
}
