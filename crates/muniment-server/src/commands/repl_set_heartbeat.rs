//! `replSetHeartbeat`.

use super::repl_set::set_of;
use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::{Code, Error};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "replSetHeartbeat",
    doc: "Fails: it is a word between members of MongoDB's, and these members speak otherwise",
    kind: Kind::Admin,
    admin_only: true,
    // The fields differ between versions of MongoDB.
    open_fields: true,
    run: |cx| {
        set_of(cx)?;
        Err(Error::new(
            Code::CommandNotSupported,
            "replSetHeartbeat: the members of this set do not tell each other of themselves by commands, \
             and MongoDB's servers cannot be members of it. What members know of each other is in \
             replSetGetStatus",
        ))
    },
    ..CommandSpec::new(Routed::Refused, Needs::cluster(&[Action::ReplSetHeartbeat]))
};
