//! `dropSearchIndex`.

use super::search_index::REFUSED;
use crate::auth::Needs;
use crate::registry::CommandSpec;
use muniment_auth::action::Action;
use muniment_value::args::{Field, Types, opt};

const FIELDS: &[Field] = &[opt("id", Types::STRING), opt("name", Types::STRING)];

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "dropSearchIndex",
    fields: FIELDS,
    needs: Needs::collection(&[Action::DropSearchIndex]),
    ..REFUSED
};
