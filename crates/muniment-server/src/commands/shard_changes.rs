//! `_shardChanges`: the shard that gets a range asks what has changed in it.

use crate::moving;
use crate::registry::{CommandSpec, Target};
use muniment_value::args::{Types, opt, req};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardChanges",
    doc: "Internal: the shard that gets a range asks what has changed in it",
    target: Target::Collection,
    fields: &[
        req("uuid", Types::BINARY),
        opt("range", Types::ARRAY),
        opt("after", Types::TIMESTAMP),
        opt("least", Types::TIMESTAMP),
        opt("ids", Types::ARRAY),
    ],
    run: moving::donor::changes,
    ..CommandSpec::between_members()
};
