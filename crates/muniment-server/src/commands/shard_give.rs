//! `_shardGive`: a router has a shard write nothing more to a range that moves away.

use crate::moving;
use crate::registry::{CommandSpec, Target};
use muniment_value::args::{Types, opt, req};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardGive",
    doc: "Internal: a router has a shard write nothing more to what moves away",
    target: Target::Collection,
    fields: &[
        req("uuid", Types::BINARY),
        req("id", Types::BINARY),
        opt("right", Types::TIMESTAMP),
        opt("range", Types::ARRAY),
    ],
    run: moving::donor::give,
    ..CommandSpec::between_members()
};
