//! `listSearchIndexes`: asks as a command what the stage `$listSearchIndexes` asks in a pipeline.

use super::search_index::REFUSED;
use crate::args::{Field, Types, opt};
use crate::registry::{CommandSpec, Kind};

const FIELDS: &[Field] = &[opt("id", Types::STRING), opt("name", Types::STRING)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "listSearchIndexes",
    kind: Kind::Diagnostic,
    fields: FIELDS,
    ..REFUSED
};
