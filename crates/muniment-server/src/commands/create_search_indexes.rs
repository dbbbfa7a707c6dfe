//! `createSearchIndexes`.

use super::search_index::REFUSED;
use crate::registry::CommandSpec;
use muniment_value::args::{Field, Types, req};

const FIELDS: &[Field] = &[req("indexes", Types::ARRAY)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "createSearchIndexes",
    fields: FIELDS,
    ..REFUSED
};
