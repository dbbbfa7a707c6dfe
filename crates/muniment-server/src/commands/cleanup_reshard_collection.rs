//! `cleanupReshardCollection`: takes away, or finishes, what a router has left of `reshardCollection` that has ended.

use crate::registry::CommandSpec;
use crate::router::sharded::reshard::clean_up;
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "cleanupReshardCollection",
    doc: "Takes away what a router has left of dividing a collection anew",
    ..CommandSpec::of_collection(clean_up, Action::ReshardCollection)
};
