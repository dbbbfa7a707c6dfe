//! `updateSearchIndex`.

use super::search_index::REFUSED;
use crate::auth::Needs;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, opt, req};

const FIELDS: &[Field] = &[
    req("definition", Types::OBJECT),
    opt("id", Types::STRING),
    opt("name", Types::STRING),
];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "updateSearchIndex",
    fields: FIELDS,
    needs: Needs::collection(&[Action::UpdateSearchIndex]),
    ..REFUSED
};
