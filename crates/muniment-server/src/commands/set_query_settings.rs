//! `setQuerySettings`: refused on a standalone, as in MongoDB.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::args::{Types, check_type, req};
use muniment_value::{Code, Error};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "setQuerySettings",
    doc: "Fails: query settings belong to replica sets and clusters",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[req("settings", Types::OBJECT)],
    run: |cx| {
        let query = Types::OBJECT.or(Types::STRING);
        check_type(
            "setQuerySettings",
            "setQuerySettings",
            query,
            cx.target().ty(),
        )?;
        Err(Error::new(
            Code::IllegalOperation,
            "setQuerySettings can only run on replica sets or sharded clusters",
        ))
    },
    ..CommandSpec::new(Routed::Refused, Needs::cluster(&[Action::QuerySettings]))
};
