//! `replSetAbortPrimaryCatchUp`.

use super::repl_set::set_of;
use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::{Code, Error};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetAbortPrimaryCatchUp",
    doc: "Fails: an elected member has everything that was committed, so there is no catch-up to end",
    kind: Kind::Admin,
    admin_only: true,
    run: |cx| {
        set_of(cx)?.initialized()?;
        Err(Error::new(
            Code::IllegalOperation,
            "The node is not in catch-up mode.",
        ))
    },
    ..CommandSpec::new(
        Routed::Refused,
        Needs::cluster(&[Action::ReplSetStateChange]),
    )
};
