//! What a member of a set checks before a command runs: whether it may run here, and whether it sees what
//! the client has seen.

use crate::auth::may_on_cluster;
use crate::context::{ConnLocal, Request};
use crate::generic::Generic;
use crate::read_preference::Mode;
use crate::registry::{CommandSpec, Kind, RunsOn};
use crate::state::ServerState;
use muniment_auth::action::Action;
use muniment_consensus::{Concern, W};
use muniment_exec::OpContext;
use muniment_member::{ReplicaSet, Role, times_of};
use muniment_storage::Timestamp;
use muniment_value::{Code, Error, Result};
use std::time::Duration;

/// A follower gets what its primary has committed within this time, unless the two are parted.
const HEARD_WITHIN: Duration = Duration::from_secs(5);

/// Checks that the command may run on this member now, takes the cluster's time that it brings, and
/// makes the time come after which it wants to read.
///
/// # Errors
/// 20 for a write to data that are kept for a set; 10107, 13435, 13436 for the member's state; 205 for a time
/// too far ahead, 204 for one with a wrong signature; 72 for a time to read after that is later than the cluster's time.
pub fn admit(
    server: &ServerState,
    local: &ConnLocal,
    spec: &CommandSpec,
    op: &OpContext,
    request: &Request<'_>,
    generic: &Generic<'_>,
) -> Result<()> {
    let Some(set) = &server.replica_set else {
        let reads =
            spec.runs_on(request.body) != RunsOn::Primary && !(spec.writes_output)(request.body);
        if server.kept_for_set && !reads {
            return Err(Error::new(
                Code::IllegalOperation,
                "the data are those of a member of a replica set and the server was started without \
                 --replSet: they can be read, and not written",
            ));
        }
        return Ok(());
    };
    if let Some(time) = &generic.cluster_time {
        set.hear(time, || {
            may_on_cluster(server, local, Action::AdvanceClusterTime)
        })?;
    }
    // Others have their own word on what there is in it.
    let makes = spec.kind == Kind::Write || spec.makes_collections;
    // A transaction refuses it in its own words.
    let within = generic.in_transaction();
    if request.db == "local" && !within && (makes || (spec.writes_output)(request.body)) {
        return Err(Error::new(
            Code::IllegalOperation,
            "the database local of a member of a replica set cannot be written to: what members store \
             is the same on all of them",
        ));
    }
    if !set.is_primary() && request.db != "local" {
        refuse(set, spec, request, generic)?;
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
        if (spec.writes_output)(request.body) {
            return Err(Error::new(
                Code::InvalidOptions,
                "$out cannot be used with a 'linearizable' read concern level",
            ));
        }
    }
    if concern.get_str("level") == Some("linearizable") {
        still_leads(server, set, op)?;
    }
    let at = concern.get("atClusterTime").map(times_of);
    // A primary has all there is at a time, and `Snapshots` sees to it that the majority has it.
    if let Some(at) = at.filter(|_| !set.is_primary()) {
        wait_for(server, set, op, "atClusterTime", at, false)?;
    }
    let Some(time) = concern.get("afterClusterTime").map(times_of) else {
        return Ok(());
    };
    let of_majority = matches!(concern.get_str("level"), Some("majority" | "snapshot"));
    wait_after(server, set, op, time, of_majority)
}

/// Waits until this member has everything up to `time`, and has decided what was prepared by then: what another
/// shard has committed by that time has to be seen here as well.
fn wait_after(
    server: &ServerState,
    set: &ReplicaSet,
    op: &OpContext,
    time: Timestamp,
    of_majority: bool,
) -> Result<()> {
    wait_for(server, set, op, "afterClusterTime", time, of_majority)?;
    let store = &server.engine.store;
    match store.wait_until_decided(time, op)? && of_majority {
        // The record of what is committed by that time may be later.
        true => store.wait_for_majority(store.visible(), op),
        false => Ok(()),
    }
}

/// Has this member, and the majority, come to a time of the cluster.
///
/// # Errors
/// 72 InvalidOptions if there is no such time; what ends the operation.
pub fn reach(server: &ServerState, op: &OpContext, time: Timestamp) -> Result<()> {
    let Some(set) = &server.replica_set else {
        return Ok(());
    };
    wait_for(server, set, op, "_changesUpTo", time, false)?;
    let store = &server.engine.store;
    let lacks = store.majority().is_some_and(|majority| majority.at < time);
    if lacks && let Some(node) = set.node().filter(|_| set.is_primary()) {
        // Without somebody who waits for it, members sync only now and then.
        let concern = Concern {
            w: W::Majority,
            journaled: false,
        };
        node.wait(store.last_commit()?.index, &concern, None, None, op)?;
    }
    store.wait_for_majority(time, op)
}

/// Waits until this member has everything up to `time`. A primary sees at once what it has committed, and
/// commits an empty record to reach a time that only clients have heard of. A follower waits until it has
/// what the primary had at that time.
fn wait_for(
    server: &ServerState,
    set: &ReplicaSet,
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
    if time > known && !comes(server, set, op, time)? && time > store.clock() {
        let known = store.clock();
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
    let _waits = set.figures().waits();
    // What is visible never goes back, nor does what the majority has, so one can be awaited after the other.
    store.wait_for_visible(time, op)?;
    match of_majority {
        true => store.wait_for_majority(time, op),
        false => Ok(()),
    }
}

/// Waits for a time that this member has not heard of. Where users have to log in, the client's word is not enough
/// that there is such a time (see `ReplicaSet::hear`), and a follower hears of it from the primary a moment later. A
/// new primary, whose predecessor was a little ahead, comes to it by its own clock.
fn comes(server: &ServerState, set: &ReplicaSet, op: &OpContext, time: Timestamp) -> Result<bool> {
    if !server.auth.required {
        return Ok(false);
    }
    if set.is_primary() {
        let now = set.home.machine.clock.now_ms();
        let ahead = (i64::from(time.seconds()) + 1) * 1000 - now;
        let ahead = Duration::from_millis(u64::try_from(ahead).unwrap_or_default());
        if ahead <= HEARD_WITHIN {
            muniment_op::sleep_until(muniment_op::now() + ahead, op)?;
            // What is committed from now on is later.
            return Ok(true);
        }
        return Ok(false);
    }
    let before = Timestamp(time.0.saturating_sub(1));
    let until = muniment_op::now() + HEARD_WITHIN;
    server.engine.store.wait_past(before, until, op)
}

/// Has the majority confirm that no other member leads: an empty record is committed only then.
fn still_leads(server: &ServerState, set: &ReplicaSet, op: &OpContext) -> Result<()> {
    let (Some(node), Some(_)) = (set.node(), server.engine.store.majority()) else {
        return Ok(());
    };
    let commit = server.engine.store.commit_nothing(op)?;
    let concern = Concern {
        w: W::Majority,
        journaled: false,
    };
    node.wait(commit.index, &concern, None, None, op)?;
    // The storage may learn a moment later how far the majority is.
    server.engine.store.wait_for_majority(commit.at, op)
}

fn refuse(
    set: &ReplicaSet,
    spec: &CommandSpec,
    request: &Request<'_>,
    generic: &Generic<'_>,
) -> Result<()> {
    let place = spec.runs_on(request.body);
    if place == RunsOn::Any {
        return Ok(());
    }
    if place == RunsOn::Primary {
        return Err(Error::new(Code::NotWritablePrimary, "not primary"));
    }
    // A transaction cannot be had elsewhere, whatever the client says.
    if place == RunsOn::Readable && generic.in_transaction() {
        return Err(Error::new(Code::NotWritablePrimary, "not primary"));
    }
    let secondary_ok = generic
        .read_preference
        .is_some_and(|p| p.mode != Mode::Primary);
    if place != RunsOn::Data && !secondary_ok {
        return Err(Error::new(
            Code::NotPrimaryNoSecondaryOk,
            "not primary and secondaryOk=false",
        ));
    }
    match set.member().role {
        Role::Primary | Role::Secondary => Ok(()),
        Role::Recovering => Err(Error::new(
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
    use muniment_value::{Doc, array, doc};

    #[test]
    fn where_commands_may_run() {
        for (d, wanted) in [
            (doc! { "find": "c" }, RunsOn::Readable),
            (
                doc! { "aggregate": "c", "pipeline": array![] },
                RunsOn::Readable,
            ),
            (
                doc! { "aggregate": "c", "pipeline": array![doc! { "$out": "x" }] },
                RunsOn::Readable,
            ),
            (
                doc! { "mapReduce": "c", "out": doc! { "inline": 1 } },
                RunsOn::Readable,
            ),
            (doc! { "mapReduce": "c", "out": "x" }, RunsOn::Primary),
            (doc! { "insert": "c" }, RunsOn::Primary),
            (doc! { "create": "c" }, RunsOn::Primary),
            (doc! { "setDefaultRWConcern": 1 }, RunsOn::Primary),
            (doc! { "listCollections": 1 }, RunsOn::Readable),
            (doc! { "getMore": 1_i64 }, RunsOn::Data),
            (doc! { "dbHash": 1 }, RunsOn::Data),
            (doc! { "validate": "c" }, RunsOn::Data),
            (doc! { "explain": doc! { "find": "c" } }, RunsOn::Readable),
            (doc! { "profile": 0 }, RunsOn::Any),
            (doc! { "refreshLogicalSessionCacheNow": 1 }, RunsOn::Any),
            (doc! { "hello": 1 }, RunsOn::Any),
            (doc! { "serverStatus": 1 }, RunsOn::Any),
        ] {
            let body = d.as_doc();
            let spec = crate::registry::find(body.first().unwrap().name()).unwrap();
            assert_eq!(spec.runs_on(body), wanted, "{d:?}");
        }
    }

    /// For every command it was decided where it may run, as in MongoDB (its AllowedOnSecondary).
    #[test]
    fn every_command_has_its_place() {
        let anywhere = [
            "_changesUpTo",
            "_clusterAccounts",
            "_replSetExport",
            "_replSetHandOver",
            "_replSetProve",
            "_replSetStream",
            "_shardCursors",
            "authenticate",
            "buildInfo",
            "compact",
            "configureFailPoint",
            "connPoolStats",
            "connectionStatus",
            "currentOp",
            "endSessions",
            "fsync",
            "fsyncUnlock",
            "getClusterParameter",
            "getCmdLineOpts",
            "getDefaultRWConcern",
            "getDiagnosticData",
            "getLog",
            "getParameter",
            "getShardVersion",
            "hello",
            "hostInfo",
            "invalidateUserCache",
            "isMaster",
            "killAllSessions",
            "killAllSessionsByPattern",
            "killCursors",
            "killOp",
            "killSessions",
            "listCommands",
            "listSearchIndexes",
            "lockInfo",
            "logApplicationMessage",
            "logRotate",
            "logout",
            "ping",
            "profile",
            "refreshLogicalSessionCacheNow",
            "refreshSessions",
            "removeQuerySettings",
            "replSetAbortPrimaryCatchUp",
            "replSetFreeze",
            "replSetGetConfig",
            "replSetGetRBID",
            "replSetGetStatus",
            "replSetHeartbeat",
            "replSetInitiate",
            "replSetMaintenance",
            "replSetReconfig",
            "replSetResizeOplog",
            "replSetStepDown",
            "replSetStepUp",
            "replSetSyncFrom",
            "rolesInfo",
            "rotateCertificates",
            "saslContinue",
            "saslStart",
            "serverStatus",
            "setParameter",
            "setQuerySettings",
            "shutdown",
            "startSession",
            "testVersion2",
            "top",
            "usersInfo",
            "validateDBMetadata",
            "whatsmyuri",
        ];
        let told: Vec<&str> = crate::registry::registry()
            .iter()
            .filter(|spec| !spec.of_router && spec.runs_on(Doc::EMPTY) == RunsOn::Any)
            .map(|spec| spec.name)
            .collect();
        assert_eq!(told, anywhere);
    }
}
