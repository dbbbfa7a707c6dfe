//! `_replSetProve`: a member that opens a connection to another one and the called member show each other
//! that they are members.

use crate::args::{Types, opt};
use crate::registry::{Access, CommandSpec, Kind};
use crate::replica_set::answer_proof;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_replSetProve",
    doc: "Internal: members of the replica set show each other that they know its key",
    kind: Kind::Admin,
    access: Access::Anyone,
    admin_only: true,
    fields: &[
        opt("from", Types::STRING),
        opt("to", Types::STRING),
        opt("nonce", Types::BINARY),
        opt("proofs", Types::ARRAY),
    ],
    run: answer_proof,
    ..CommandSpec::DEFAULT
};
