//! What other members send: a connection that one of them has opened by `_replSetStream`, on which
//! it sends frames and hears nothing.

use super::ReplicaSet;
use super::driver::Event;
use super::frame::{Assembler, Frame};
use super::initiate;
use super::node::Node;
use super::report::Report;
use crate::state::ServerState;
use muniment_repl::{InForce, MemberId};
use muniment_value::{Code, Doc, Error, Result, Value, number};
use std::sync::Arc;

/// Records with more bytes are another thread's to append.
const LITTLE: usize = 64 << 10;

/// The receiving end of another member's connection.
pub struct Incoming {
    node: Arc<Node>,
    from: MemberId,
    assembler: Assembler,
}

impl Incoming {
    /// Takes a frame.
    ///
    /// # Errors
    /// 17 ProtocolError for what no member sends; the connection has to end.
    pub fn take(&mut self, server: &ServerState, message: &[u8]) -> Result<()> {
        match self.assembler.take(message)? {
            None => {}
            Some(Frame::Message(message, records)) => {
                self.check(message.from)?;
                let stops = || server.is_stopping();
                let bytes = records.iter().map(|r| r.payload.len()).sum::<usize>();
                self.node.inbox.put_message(message, records, stops);
                if bytes > LITTLE {
                    // While that is applied this thread reads what comes next.
                    self.node.inbox.wake();
                } else {
                    self.node.help();
                }
            }
            Some(Frame::Report(d)) => {
                let report = Report::parse(d.as_doc());
                self.check(report.from)?;
                self.node.inbox.put_report(report);
                self.node.help();
            }
        }
        Ok(())
    }

    /// A connection is one member's.
    fn check(&self, from: MemberId) -> Result<()> {
        match from == self.from {
            true => Ok(()),
            false => Err(Error::new(
                Code::ProtocolError,
                format!(
                    "replication: member {from} on the connection of {}",
                    self.from
                ),
            )),
        }
    }
}

/// The set that another member names.
///
/// # Errors
/// 76 without `--replSet`; 93 for another one.
pub fn named_set<'s>(server: &'s ServerState, name: &str) -> Result<&'s ReplicaSet> {
    let set = server.replica_set.as_ref().ok_or_else(|| {
        Error::new(
            Code::NoReplicationEnabled,
            "This node was not started with replication enabled.",
        )
    })?;
    match name == set.name() {
        true => Ok(set),
        false => Err(Error::new(
            Code::InconsistentReplicaSetNames,
            format!(
                "replica set name doesn't match: this server is of {}, the other of {name}",
                set.name()
            ),
        )),
    }
}

/// Answers `_replSetStream`: another member wants to send. A server that is no member yet becomes
/// one. `only_checks`: whether it could, before the set is initiated.
///
/// # Errors
/// 76 without `--replSet`; 93 for another set or another member; 23 and 110 where the server has
/// been something else before.
pub fn greet(server: &Arc<ServerState>, d: Doc<'_>, only_checks: bool) -> Result<Option<Incoming>> {
    let name = d.get_str("_replSetStream").unwrap_or_default();
    let set = named_set(server, name)?;
    if only_checks {
        return match set.node() {
            Some(_) => Err(Error::new(Code::AlreadyInitialized, "already initialized")),
            None => initiate::check_empty(server).map(|()| None),
        };
    }
    let place = |name: &str| {
        let n = d.get(name).and_then(number::to_i64_exact);
        n.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0)
    };
    let in_force = match d.get("inForce") {
        Some(Value::Binary { bytes, .. }) => InForce::of_bytes(bytes),
        _ => None,
    };
    let (Some(from), Some(to), Some(in_force)) = (place("from"), place("to"), in_force) else {
        return Err(Error::failed_to_parse(
            "_replSetStream: from, to and inForce have to be given",
        ));
    };
    let node = match set.node() {
        Some(node) => node,
        None => initiate::join(server, to, in_force.clone())?,
    };
    let own = set.member().config.and_then(|c| c.id);
    let theirs = match d.get("setId") {
        Some(Value::ObjectId(id)) => Some(id),
        _ => None,
    };
    if own != theirs {
        return Err(Error::new(
            Code::InvalidReplicaSetConfig,
            format!("this server is a member of another replica set named {name}"),
        ));
    }
    if node.id != to {
        return Err(Error::new(
            Code::InvalidReplicaSetConfig,
            format!(
                "this server was member number {} of the set, and is addressed as number {to}: it \
                 has to begin with an empty directory",
                node.id
            ),
        ));
    }
    if from == to {
        return Err(Error::failed_to_parse(
            "_replSetStream: from this server itself",
        ));
    }
    if node.members().in_force().config.version < in_force.config.version {
        node.inbox.put(Event::Greeted(from, Box::new(in_force)));
    }
    node.inbox.put(Event::Met(from));
    Ok(Some(Incoming {
        node,
        from,
        assembler: Assembler::default(),
    }))
}
