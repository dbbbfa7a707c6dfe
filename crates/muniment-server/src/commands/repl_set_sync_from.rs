//! `replSetSyncFrom`.

use super::repl_set::set_of;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind};
use crate::replica_set::HostPort;
use muniment_value::{Code, Error, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetSyncFrom",
    doc: "Fails: the only member of a set has nobody to copy from",
    kind: Kind::Admin,
    admin_only: true,
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let set = set_of(cx)?;
    let (_, config) = set.initialized()?;
    let from = HostPort::parse(cx.target().as_str().unwrap_or_default())?.to_string();
    Err(if set.is_primary() {
        Error::new(Code::NotSecondary, "primaries don't sync")
    } else if from == config.host {
        Error::new(Code::InvalidOptions, "I cannot sync from myself")
    } else {
        Error::new(
            Code::NodeNotFound,
            format!("Could not find member \"{from}\" in replica set"),
        )
    })
}
