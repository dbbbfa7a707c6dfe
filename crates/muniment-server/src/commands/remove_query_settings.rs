//! `removeQuerySettings`: refused on a standalone, as in MongoDB.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;
use muniment_value::args::{Types, check_type};
use muniment_value::{Code, Error};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "removeQuerySettings",
    doc: "Fails: query settings belong to replica sets and clusters",
    kind: Kind::Admin,
    admin_only: true,
    run: |cx| {
        let query = Types::OBJECT.or(Types::STRING);
        check_type(
            "removeQuerySettings",
            "removeQuerySettings",
            query,
            cx.target().ty(),
        )?;
        Err(Error::new(
            Code::IllegalOperation,
            "removeQuerySettings can only run on replica sets or sharded clusters",
        ))
    },
    ..CommandSpec::new(Routed::Refused, Needs::cluster(&[Action::QuerySettings]))
};
