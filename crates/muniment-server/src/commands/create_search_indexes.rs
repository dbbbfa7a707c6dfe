//! `createSearchIndexes`.

use super::search_index::REFUSED;
use crate::args::{Field, Types, req};
use crate::registry::CommandSpec;

const FIELDS: &[Field] = &[req("indexes", Types::ARRAY)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "createSearchIndexes",
    fields: FIELDS,
    ..REFUSED
};
