//! `replSetGetStatus`: the only member sees itself.

use super::repl_set::set_of;
use crate::args::{Types, idle};
use crate::context::CommandContext;
use crate::log::now_ms;
use crate::registry::{CommandSpec, Kind};
use crate::replica_set::{Role, op_time, timestamp, wall_time};
use muniment_value::{Result, Value, array, doc};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetGetStatus",
    doc: "The state of the replica set as this member sees it",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[idle(
        "initialSync",
        Types::NUMBER,
        "the only member never copied from another one",
    )],
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let (member, config) = set_of(cx)?.initialized()?;
    let server = cx.server;
    let at = server.engine.store.visible();
    let (state, state_name) = member.role.state();
    let (newest, date) = (op_time(at, member.term), wall_time(at));
    let w = &mut cx.reply;
    w.field("set", config.name.as_str());
    w.field("date", Value::DateTime(now_ms()));
    w.field("myState", state);
    w.field("term", member.term);
    w.field("syncSourceHost", "");
    w.field("syncSourceId", -1);
    w.field("heartbeatIntervalMillis", config.heartbeat_ms);
    w.field("majorityVoteCount", 1);
    w.field("writeMajorityCount", 1);
    w.field("votingMembersCount", 1);
    w.field("writableVotingMembersCount", 1);
    w.field(
        "optimes",
        doc! {
            "lastCommittedOpTime": &newest,
            "lastCommittedWallTime": date,
            "readConcernMajorityOpTime": &newest,
            "appliedOpTime": &newest,
            "durableOpTime": &newest,
            "writtenOpTime": &newest,
            "lastAppliedWallTime": date,
            "lastDurableWallTime": date,
            "lastWrittenWallTime": date,
        },
    );
    w.field("lastStableRecoveryTimestamp", timestamp(at));
    let election = member.election.filter(|_| member.role == Role::Primary);
    if let Some(e) = election {
        let before = op_time(e.before.0, e.before.1);
        w.field(
            "electionCandidateMetrics",
            doc! {
                "lastElectionReason": e.reason,
                "lastElectionDate": Value::DateTime(e.began_ms),
                "electionTerm": member.term,
                "lastCommittedOpTimeAtElection": &before,
                "lastSeenWrittenOpTimeAtElection": &before,
                "lastSeenOpTimeAtElection": &before,
                "numVotesNeeded": 1,
                "priorityAtElection": config.priority,
                "electionTimeoutMillis": config.election_ms,
                "newTermStartDate": Value::DateTime(e.ready_ms),
                "wMajorityWriteAvailabilityDate": Value::DateTime(e.ready_ms),
            },
        );
    }
    let mut me = doc! {
        "_id": config.member,
        "name": config.host.as_str(),
        "health": 1.0,
        "state": state,
        "stateStr": state_name,
        "uptime": server.started.elapsed().as_secs() as i32,
        "optime": &newest,
        "optimeDate": date,
        "optimeWritten": &newest,
        "optimeWrittenDate": date,
        "lastAppliedWallTime": date,
        "lastDurableWallTime": date,
        "lastWrittenWallTime": date,
        "syncSourceHost": "",
        "syncSourceId": -1,
        "infoMessage": "",
    };
    if let Some(e) = election {
        me.append("electionTime", timestamp(e.at));
        me.append("electionDate", wall_time(e.at));
    }
    me.append("configVersion", config.version as i32);
    me.append("configTerm", config.term.unwrap_or(-1));
    me.append("self", true);
    me.append("lastHeartbeatMessage", "");
    w.field("members", array![me]);
    Ok(())
}
