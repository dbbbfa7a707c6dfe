//! `dropSearchIndex`.

use super::search_index::REFUSED;
use crate::args::{Field, Types, opt};
use crate::registry::CommandSpec;

const FIELDS: &[Field] = &[opt("id", Types::STRING), opt("name", Types::STRING)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "dropSearchIndex",
    fields: FIELDS,
    ..REFUSED
};
