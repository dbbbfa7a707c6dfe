//! `_replSetExport`: a member of the replica set copies what this one has.

use super::repl_set::set_of;
use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_member::{GREETING, export};
use muniment_value::args::{Types, opt};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_replSetExport",
    doc: "Internal: another member of the replica set copies everything that is committed",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[
        opt(GREETING, Types::OBJECT),
        opt("asks", Types::BOOL),
        opt("empty", Types::BOOL),
        opt("atLeast", Types::NUMBER),
        opt("pass", Types::BOOL),
        opt("goOn", Types::OBJECT),
        opt("end", Types::NUMBER),
    ],
    run: |cx| {
        let set = set_of(cx)?;
        let reply = export(set, cx.request.body, &cx.conn.stream, cx.op)?;
        cx.reply.elements(reply.as_doc());
        Ok(())
    },
    ..CommandSpec::new(Routed::Refused, Needs::Member)
};
