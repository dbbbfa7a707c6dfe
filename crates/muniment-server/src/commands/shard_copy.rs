//! `_shardCopy`: a router writes documents into a collection that is to take the place of another one.

use crate::moving;
use crate::registry::{CommandSpec, Target};
use muniment_value::args::{Types, opt, req};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_shardCopy",
    doc: "Internal: a router writes documents into a collection that is to take the place of another one",
    target: Target::Collection,
    fields: &[
        req("uuid", Types::BINARY),
        req("lane", Types::NUMBER),
        req("number", Types::NUMBER),
        opt("docs", Types::ARRAY),
        opt("first", Types::BOOL),
        opt("gone", Types::ARRAY),
        opt("sessions", Types::ARRAY),
    ],
    run: moving::copies::copy,
    ..CommandSpec::between_members()
};
