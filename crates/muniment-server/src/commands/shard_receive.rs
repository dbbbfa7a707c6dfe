//! `_shardReceive`: a router has a shard bring a range of another shard here, step by step.

use crate::moving;
use crate::registry::{CommandSpec, Target};
use muniment_value::args::{Types, opt, req};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardReceive",
    doc: "Internal: a router has a shard bring a range here, step by step",
    target: Target::Collection,
    fields: &[
        req("uuid", Types::BINARY),
        req("id", Types::BINARY),
        opt("right", Types::TIMESTAMP),
        req("step", Types::STRING),
        opt("range", Types::ARRAY),
        opt("from", Types::STRING),
        opt("least", Types::TIMESTAMP),
    ],
    run: moving::recipient::receive,
    ..CommandSpec::between_members()
};
