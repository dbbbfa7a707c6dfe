//! `replSetGetConfig`: a standalone says what it is.

use crate::registry::{CommandSpec, Kind};
use muniment_value::{Code, Error};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetGetConfig",
    doc: "Fails: a standalone has no configuration of a replica set",
    kind: Kind::Admin,
    admin_only: true,
    open_fields: true,
    run: |_| {
        Err(Error::new(
            Code::NoReplicationEnabled,
            "not running with --replSet",
        ))
    },
    ..CommandSpec::DEFAULT
};
