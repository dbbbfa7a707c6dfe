//! `replSetMaintenance`.

use super::repl_set::set_of;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind};
use muniment_value::{Code, Error, Result};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetMaintenance",
    doc: "Fails: members have no maintenance mode",
    kind: Kind::Admin,
    admin_only: true,
    run,
    ..CommandSpec::DEFAULT
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let set = set_of(cx)?;
    set.initialized()?;
    Err(if set.is_primary() {
        Error::new(
            Code::NotSecondary,
            "primaries can't modify maintenance mode",
        )
    } else if cx.target().truthy() {
        Error::new(
            Code::IllegalOperation,
            "there is no maintenance mode: hide the member by a reconfiguration, or stop it",
        )
    } else {
        Error::new(Code::OperationFailed, "already out of maintenance mode")
    })
}
