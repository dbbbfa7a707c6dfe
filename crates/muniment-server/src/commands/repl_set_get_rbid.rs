//! `replSetGetRBID`.

use super::repl_set::set_of;
use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetGetRBID",
    doc: "A number that changes with each rollback of this member",
    kind: Kind::Admin,
    admin_only: true,
    run: |cx| {
        let (member, _) = set_of(cx)?.initialized()?;
        cx.reply.field("rbid", member.rollback_id as i32);
        Ok(())
    },
    ..CommandSpec::new(Routed::Refused, Needs::cluster(&[Action::ReplSetGetStatus]))
};
