//! `setIndexCommitQuorum`: refused on a standalone, as in MongoDB.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn, Target};
use muniment_auth::action::Action;
use muniment_value::{Code, Error};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "setIndexCommitQuorum",
    doc: "Fails: on a standalone nobody votes on index builds",
    kind: Kind::Admin,
    target: Target::Collection,
    open_fields: true,
    run: |_| {
        Err(Error::new(
            Code::NoReplicationEnabled,
            "setIndexCommitQuorum is only supported on members of a replica set: this server is a \
             standalone, whose index builds need no votes",
        ))
    },
    runs_on: Some(RunsOn::Primary),
    ..CommandSpec::new(
        Routed::Shards(crate::router::sharded::ddl::everywhere),
        Needs::collection(&[Action::CreateIndex]),
    )
};
