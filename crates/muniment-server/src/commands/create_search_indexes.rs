//! `createSearchIndexes`.

use super::search_index::REFUSED;
use crate::auth::Needs;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, req};

const FIELDS: &[Field] = &[req("indexes", Types::ARRAY)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "createSearchIndexes",
    fields: FIELDS,
    needs: Needs::collection(&[Action::CreateSearchIndexes]),
    ..REFUSED
};
