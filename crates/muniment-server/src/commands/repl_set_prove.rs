//! `_replSetProve`: two members prove to each other that they belong to the set, when one opens a connection
//! to the other.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed};
use crate::replica_set::answer_proof;
use muniment_value::args::{Types, opt};

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_replSetProve",
    doc: "Internal: members of the replica set show each other that they know its key",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[
        opt("from", Types::STRING),
        opt("to", Types::STRING),
        opt("nonce", Types::BINARY),
        opt("proofs", Types::ARRAY),
        opt("x509", Types::BOOL),
    ],
    run: answer_proof,
    ..CommandSpec::new(Routed::Refused, Needs::Nothing)
};
