//! `replSetGetConfig`.

use super::repl_set::set_of;
use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::args::{Types, opt};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetGetConfig",
    doc: "The configuration of the replica set",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[opt("commitmentStatus", Types::SAFE_BOOL)],
    run: |cx| {
        let (_, config) = set_of(cx)?.initialized()?;
        cx.reply.field("config", config.to_doc());
        if cx.args.bool("commitmentStatus", false) {
            // A configuration is in force only after it is committed.
            cx.reply.field("commitmentStatus", true);
        }
        Ok(())
    },
    before_first_user: |_| true,
    ..CommandSpec::new(Routed::Refused, Needs::cluster(&[Action::ReplSetGetConfig]))
};
