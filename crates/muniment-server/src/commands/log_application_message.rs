//! `logApplicationMessage`.

use crate::audit::{self, Audits};
use crate::auth::Needs;
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::Result;
use muniment_value::args::Types;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "logApplicationMessage",
    doc: "Writes a message of the client's into the audit log",
    kind: Kind::Admin,
    admin_only: true,
    audits: Some(Audits::each("applicationMessage", audit::message)),
    run,
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::ApplicationMessage]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    // The message is written by the road of all requests.
    cx.typed_target(Types::STRING).map(drop)
}
