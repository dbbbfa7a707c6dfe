//! `replSetGetStatus`: the set as this member sees it.

use super::repl_set::set_of;
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use crate::state::ServerState;
use muniment_auth::action::Action;
use muniment_consensus::{Counts, MemberId};
use muniment_logger::now_ms;
use muniment_member::{
    Election, Member, MemberConfig, Node, Role, SetConfig, date_of, op_time, timestamp, wall_ms,
};
use muniment_storage::{Position, Positions, Timestamp};
use muniment_value::args::{Types, opt};
use muniment_value::{ArrayBuf, Code, DocBuf, Error, Result, Value, doc};
use std::time::Duration;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetGetStatus",
    doc: "The state of the replica set as this member sees it",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[opt("initialSync", Types::NUMBER)],
    run,
    before_first_user: |_| true,
    ..CommandSpec::new(Routed::Refused, Needs::cluster(&[Action::ReplSetGetStatus]))
};

/// Writes the status into the reply.
pub(super) fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let set = set_of(cx)?;
    let (member, config) = set.initialized()?;
    let server = cx.server;
    let p = server.engine.store.position()?;
    let committed = server.engine.store.committed()?;
    let (state, _) = member.role.state();
    let applied = op_time(p.applied.at, p.applied.term as i64);
    let node = set.node();
    let source = set.sync_source(&member);
    let optimes = optimes(server, &p, committed);
    if member.role == Role::Removed {
        return Err(no_member(&applied, member.role));
    }
    let counts = node.as_deref().map(|n| n.members().in_force().counts());
    let count = |of: fn(&Counts) -> usize| counts.as_ref().map_or(0, of) as i32;
    let w = &mut cx.reply;
    w.field("set", config.name.as_str());
    w.field("date", Value::DateTime(now_ms()));
    w.field("myState", state);
    w.field("term", member.term);
    w.field("syncSourceHost", source.map_or("", |m| m.host.as_str()));
    w.field("syncSourceId", source.map_or(-1, |m| m.id));
    w.field("heartbeatIntervalMillis", config.heartbeat_ms);
    // As in MongoDB, a member that was added is counted once it has caught up.
    w.field("majorityVoteCount", count(|c| c.majority));
    w.field("writeMajorityCount", count(|c| c.write_majority));
    w.field("votingMembersCount", count(|c| c.voting));
    w.field("writableVotingMembersCount", count(|c| c.writable));
    w.field("optimes", optimes);
    w.field("lastStableRecoveryTimestamp", timestamp(committed.at));
    let hidden = cx
        .request
        .body
        .get("initialSync")
        .is_some_and(|v| !v.truthy());
    let syncing = node.as_deref().filter(|node| node.is_syncing() && !hidden);
    if let Some(status) = syncing.and_then(|node| node.progress.lock().to_doc()) {
        w.field("initialSyncStatus", &status);
    }
    let election = member.election.filter(|_| member.role == Role::Primary);
    if let Some(e) = &election {
        let votes = count(|c| c.majority);
        w.field(
            "electionCandidateMetrics",
            metrics(&member, &config, e, votes),
        );
    }
    let members: ArrayBuf = config
        .members
        .iter()
        .map(|m| match member.me == Some(m.id) {
            true => own(server, &p, &member, m, source, &config),
            false => other(node.as_deref(), m, &config),
        })
        .collect();
    w.field("members", members);
    Ok(())
}

/// The section `optimes`: how far this member is, and of what it knows that a majority has it.
fn optimes(server: &ServerState, p: &Positions, committed: Position) -> DocBuf {
    let [majority, applied, durable] =
        [committed, p.applied, p.durable].map(|p| op_time(p.at, p.term as i64));
    let [committed_wall, applied_wall, durable_wall] = [committed.at, p.applied.at, p.durable.at]
        .map(|at| Value::DateTime(wall_ms(&server.engine.store, at)));
    doc! {
        "lastCommittedOpTime": &majority,
        "lastCommittedWallTime": committed_wall,
        "readConcernMajorityOpTime": &majority,
        "appliedOpTime": &applied,
        "durableOpTime": &durable,
        "writtenOpTime": &applied,
        "lastAppliedWallTime": applied_wall,
        "lastDurableWallTime": durable_wall,
        "lastWrittenWallTime": applied_wall,
    }
}

/// 93 InvalidReplicaSetConfig, with the little that a server can say which the configuration does not name.
fn no_member(applied: &DocBuf, role: Role) -> Error {
    let (state, name) = role.state();
    let e = Error::new(
        Code::InvalidReplicaSetConfig,
        "Our replica set config is invalid or we are not a member of it",
    );
    e.with_extra(doc! { "state": state, "stateStr": name, "optime": applied })
}

/// The message that a member shows for itself, and others for it, while its disk is full.
const FULL: &str = "out of disk space: it takes no writes until there is more";

/// The `_id` in the configuration of a member of the consensus.
fn key_of(node: &Node, id: MemberId) -> Option<i32> {
    Some(node.members().in_force().config.member(id)?.key)
}

fn metrics(member: &Member, config: &SetConfig, e: &Election, votes: i32) -> DocBuf {
    let before = op_time(e.before.0, e.before.1);
    doc! {
        "lastElectionReason": e.reason,
        "lastElectionDate": Value::DateTime(e.began_ms),
        "electionTerm": member.term,
        "lastCommittedOpTimeAtElection": &before,
        "lastSeenWrittenOpTimeAtElection": &before,
        "lastSeenOpTimeAtElection": &before,
        "numVotesNeeded": votes,
        "priorityAtElection": member.own().map_or(0.0, |m| m.priority),
        "electionTimeoutMillis": config.election_ms,
        "newTermStartDate": Value::DateTime(e.ready_ms),
        "wMajorityWriteAvailabilityDate": Value::DateTime(e.ready_ms),
    }
}

/// Appends how far a member is: the positions, and when they were reached by the wall clock.
fn append_times(
    d: &mut DocBuf,
    applied: (Timestamp, i64),
    durable: (Timestamp, i64),
    walls: (i64, i64),
) {
    let newest = op_time(applied.0, applied.1);
    let second = |ms: i64| Value::DateTime(ms - ms.rem_euclid(1000));
    let (date, durable_date) = (Value::DateTime(walls.0), Value::DateTime(walls.1));
    d.append("optime", &newest);
    d.append("optimeDurable", op_time(durable.0, durable.1));
    d.append("optimeDate", second(walls.0));
    d.append("optimeDurableDate", second(walls.1));
    d.append("optimeWritten", &newest);
    d.append("optimeWrittenDate", second(walls.0));
    d.append("lastAppliedWallTime", date);
    d.append("lastDurableWallTime", durable_date);
    d.append("lastWrittenWallTime", date);
}

fn own(
    server: &ServerState,
    p: &Positions,
    member: &Member,
    m: &MemberConfig,
    source: Option<&MemberConfig>,
    config: &SetConfig,
) -> DocBuf {
    let (state, name) = member.role.state();
    let mut d = doc! {
        "_id": m.id,
        "name": m.host.as_str(),
        "health": 1.0,
        "state": state,
        "stateStr": name,
        "uptime": server.lifecycle.started.elapsed().as_secs() as i32,
    };
    if !m.arbiter {
        append_times(
            &mut d,
            (p.applied.at, p.applied.term as i64),
            (p.durable.at, p.durable.term as i64),
            (
                wall_ms(&server.engine.store, p.applied.at),
                wall_ms(&server.engine.store, p.durable.at),
            ),
        );
    }
    d.append("syncSourceHost", source.map_or("", |m| m.host.as_str()));
    d.append("syncSourceId", source.map_or(-1, |m| m.id));
    let set = server.replica_set.as_ref();
    let full = set.and_then(|set| set.node()).is_some_and(|n| n.is_full());
    d.append("infoMessage", if full { FULL } else { "" });
    if let Some(e) = member.election.filter(|_| member.role == Role::Primary) {
        d.append("electionTime", timestamp(e.at));
        d.append("electionDate", date_of(e.at));
    }
    if member.told.maintenance > 0 {
        d.append("maintenanceMode", i64::from(member.told.maintenance));
    }
    d.append("configVersion", config.version as i32);
    d.append("configTerm", config.term.unwrap_or(-1));
    d.append("self", true);
    d.append("lastHeartbeatMessage", "");
    d
}

fn other(node: Option<&Node>, m: &MemberConfig, config: &SetConfig) -> DocBuf {
    let id = node.and_then(|node| {
        let members = node.members();
        let mut all = members.in_force().config.members.iter();
        all.find(|o| o.key == m.id).map(|o| o.id)
    });
    let heard = node.and_then(|node| node.heard.lock().of(id?).cloned());
    let trouble = node.and_then(|node| node.troubles.lock().get(&id?).cloned());
    let patience = Duration::from_secs(config.heartbeat_timeout_secs.max(1) as u64);
    // A member whose connection fails is shown as unreachable after a shorter silence.
    let beats = Duration::from_millis(config.heartbeat_ms.max(1) as u64 * 2);
    let patience = if trouble.is_some() {
        beats.min(patience)
    } else {
        patience
    };
    let lively = heard.as_ref().filter(|h| h.at.elapsed() < patience);
    let (state, name) = match lively {
        Some(h) => (h.report.state, Role::name_of(h.report.state)),
        None => (8, "(not reachable/healthy)"),
    };
    let mut d = doc! {
        "_id": m.id,
        "name": m.host.as_str(),
        "health": if lively.is_some() { 1.0 } else { 0.0 },
        "state": state,
        "stateStr": name,
        "uptime": lively.map_or(0, |h| h.since.elapsed().as_secs() as i32),
    };
    let report = lively.map(|h| h.report.clone()).unwrap_or_default();
    if !m.arbiter {
        append_times(&mut d, report.applied_at, report.durable_at, report.walls);
    }
    let date = |ms: Option<i64>| Value::DateTime(ms.unwrap_or(0));
    let at = heard.as_ref().map(|h| h.at_ms);
    d.append("lastHeartbeat", date(at));
    d.append("lastHeartbeatRecv", date(at));
    let ping = heard.as_ref().and_then(|h| h.ping);
    d.append("pingMs", ping.map_or(0, |p| p.as_millis() as i64));
    let trouble = trouble.filter(|_| lively.is_none());
    let message = match &trouble {
        Some(e) => e.message(),
        None if report.full => FULL,
        None => "",
    };
    d.append("lastHeartbeatMessage", message);
    let source = report
        .follows
        .filter(|_| report.state != Role::Primary.state().0 && !m.arbiter);
    let source = source.and_then(|id| key_of(node?, id));
    let host = source.and_then(|key| Some(config.member(key)?.host.as_str()));
    d.append("syncSourceHost", host.unwrap_or_default());
    d.append("syncSourceId", source.unwrap_or(-1));
    d.append("infoMessage", "");
    if let Some(at) = report.elected_at {
        d.append("electionTime", timestamp(at));
        d.append("electionDate", date_of(at));
    }
    d.append("configVersion", report.config.0 as i32);
    d.append("configTerm", report.config.1);
    d
}
