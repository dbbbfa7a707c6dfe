//! `abortReshardCollection`: ends what `reshardCollection` is doing, and leaves the collection as it was.

use crate::registry::CommandSpec;
use crate::router::sharded::reshard::abort;
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "abortReshardCollection",
    doc: "Ends dividing a collection anew, and leaves it as it was",
    ..CommandSpec::of_collection(abort, Action::ReshardCollection)
};
