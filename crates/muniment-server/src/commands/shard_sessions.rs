//! `_shardSessions`: the shard that gets a range reads what sessions remember.

use crate::moving;
use crate::registry::{CommandSpec, Target};
use muniment_value::args::{Types, opt, req};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardSessions",
    doc: "Internal: the shard that gets a range reads what sessions remember",
    target: Target::Collection,
    fields: &[
        req("uuid", Types::BINARY),
        opt("range", Types::ARRAY),
        opt("after", Types::BINARY),
        opt("least", Types::TIMESTAMP),
    ],
    run: moving::donor::sessions,
    ..CommandSpec::between_members()
};
