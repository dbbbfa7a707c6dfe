//! `_shardRows`: the shard that gets a range reads its rows.

use crate::moving;
use crate::registry::{CommandSpec, Target};
use muniment_value::args::{Types, opt, req};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardRows",
    doc: "Internal: the shard that gets a range reads its rows",
    target: Target::Collection,
    fields: &[
        req("uuid", Types::BINARY),
        opt("range", Types::ARRAY),
        opt("least", Types::TIMESTAMP),
        opt("after", Types::BINARY),
    ],
    run: moving::donor::rows,
    ..CommandSpec::between_members()
};
