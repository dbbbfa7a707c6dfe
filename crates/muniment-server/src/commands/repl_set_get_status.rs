//! `replSetGetStatus`: the set as this member sees it.

use super::repl_set::set_of;
use crate::args::{Types, opt};
use crate::context::CommandContext;
use crate::log::now_ms;
use crate::registry::{CommandSpec, Kind};
use crate::replica_set::{
    Election, Member, MemberConfig, Node, Role, SetConfig, op_time, timestamp, wall_time,
};
use crate::state::ServerState;
use muniment_repl::MemberId;
use muniment_storage::{Positions, Timestamp};
use muniment_value::{ArrayBuf, DocBuf, Result, Value, doc};
use std::time::Duration;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetGetStatus",
    doc: "The state of the replica set as this member sees it",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[opt("initialSync", Types::NUMBER)],
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let set = set_of(cx)?;
    let (member, config) = set.initialized()?;
    let server = cx.server;
    let p = server.engine.store.position()?;
    let committed = server.engine.store.committed()?;
    let (state, _) = member.role.state();
    let applied = op_time(p.applied.at, p.applied.term as i64);
    let durable = op_time(p.durable.at, p.durable.term as i64);
    let majority = op_time(committed.at, committed.term as i64);
    let node = set.node();
    let source = set.sync_source(&member);
    let w = &mut cx.reply;
    w.field("set", config.name.as_str());
    w.field("date", Value::DateTime(now_ms()));
    w.field("myState", state);
    w.field("term", member.term);
    w.field("syncSourceHost", source.map_or("", |m| m.host.as_str()));
    w.field("syncSourceId", source.map_or(-1, |m| m.id));
    w.field("heartbeatIntervalMillis", config.heartbeat_ms);
    w.field("majorityVoteCount", config.majority() as i32);
    w.field("writeMajorityCount", config.majority() as i32);
    // As in MongoDB, who was added votes when it has caught up.
    let voting = node
        .as_deref()
        .map_or(0, |n| n.members().in_force().voters.len());
    w.field("votingMembersCount", voting as i32);
    w.field("writableVotingMembersCount", voting as i32);
    w.field(
        "optimes",
        doc! {
            "lastCommittedOpTime": &majority,
            "lastCommittedWallTime": wall_time(committed.at),
            "readConcernMajorityOpTime": &majority,
            "appliedOpTime": &applied,
            "durableOpTime": &durable,
            "writtenOpTime": &applied,
            "lastAppliedWallTime": wall_time(p.applied.at),
            "lastDurableWallTime": wall_time(p.durable.at),
            "lastWrittenWallTime": wall_time(p.applied.at),
        },
    );
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
        w.field("electionCandidateMetrics", metrics(&member, &config, e));
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

/// The `_id` in the configuration of a member of the consensus.
fn key_of(node: &Node, id: MemberId) -> Option<i32> {
    Some(node.members().in_force().config.member(id)?.key)
}

fn metrics(member: &Member, config: &SetConfig, e: &Election) -> DocBuf {
    let before = op_time(e.before.0, e.before.1);
    doc! {
        "lastElectionReason": e.reason,
        "lastElectionDate": Value::DateTime(e.began_ms),
        "electionTerm": member.term,
        "lastCommittedOpTimeAtElection": &before,
        "lastSeenWrittenOpTimeAtElection": &before,
        "lastSeenOpTimeAtElection": &before,
        "numVotesNeeded": config.majority() as i32,
        "priorityAtElection": member.own().map_or(0.0, |m| m.priority),
        "electionTimeoutMillis": config.election_ms,
        "newTermStartDate": Value::DateTime(e.ready_ms),
        "wMajorityWriteAvailabilityDate": Value::DateTime(e.ready_ms),
    }
}

/// What all members show of how far they are.
fn append_times(d: &mut DocBuf, applied: (Timestamp, i64), durable: (Timestamp, i64)) {
    let (newest, date) = (op_time(applied.0, applied.1), wall_time(applied.0));
    d.append("optime", &newest);
    d.append("optimeDurable", op_time(durable.0, durable.1));
    d.append("optimeDate", date);
    d.append("optimeDurableDate", wall_time(durable.0));
    d.append("optimeWritten", &newest);
    d.append("optimeWrittenDate", date);
    d.append("lastAppliedWallTime", date);
    d.append("lastDurableWallTime", wall_time(durable.0));
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
        "uptime": server.started.elapsed().as_secs() as i32,
    };
    append_times(
        &mut d,
        (p.applied.at, p.applied.term as i64),
        (p.durable.at, p.durable.term as i64),
    );
    d.append("syncSourceHost", source.map_or("", |m| m.host.as_str()));
    d.append("syncSourceId", source.map_or(-1, |m| m.id));
    d.append("infoMessage", "");
    if let Some(e) = member.election.filter(|_| member.role == Role::Primary) {
        d.append("electionTime", timestamp(e.at));
        d.append("electionDate", wall_time(e.at));
    }
    if member.maintenance > 0 {
        d.append("maintenanceMode", i64::from(member.maintenance));
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
    // Who cannot be reached and is silent itself has gone.
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
    append_times(&mut d, report.applied_at, report.durable_at);
    let date = |ms: Option<i64>| Value::DateTime(ms.unwrap_or(0));
    let at = heard.as_ref().map(|h| h.at_ms);
    d.append("lastHeartbeat", date(at));
    d.append("lastHeartbeatRecv", date(at));
    let ping = heard.as_ref().and_then(|h| h.ping);
    d.append("pingMs", ping.map_or(0, |p| p.as_millis() as i64));
    let message = trouble.filter(|_| lively.is_none());
    d.append(
        "lastHeartbeatMessage",
        message.as_ref().map_or("", |e| e.message()),
    );
    let source = report
        .follows
        .filter(|_| report.state != Role::Primary.state().0);
    let source = source.and_then(|id| key_of(node?, id));
    let host = source.and_then(|key| Some(config.member(key)?.host.as_str()));
    d.append("syncSourceHost", host.unwrap_or_default());
    d.append("syncSourceId", source.unwrap_or(-1));
    d.append("infoMessage", "");
    if let Some(at) = report.elected_at {
        d.append("electionTime", timestamp(at));
        d.append("electionDate", wall_time(at));
    }
    d.append("configVersion", report.config.0 as i32);
    d.append("configTerm", report.config.1);
    d
}
