//! `commitReshardCollection`: has `reshardCollection` come to its end as soon as all documents were copied.

use crate::registry::CommandSpec;
use crate::router::sharded::reshard::commit;
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "commitReshardCollection",
    doc: "Has dividing a collection anew come to its end at once",
    ..CommandSpec::of_collection(commit, Action::ReshardCollection)
};
