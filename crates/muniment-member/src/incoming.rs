//! What other members send: a connection that one of them has opened by `_replSetStream`, on which
//! it sends frames and hears nothing.

use super::ReplicaSet;
use super::driver::Event;
use super::frame::{Assembler, Frame};
use super::greeting::{self, Greeting};
use super::initiate;
use super::node::Node;
use super::report::Report;
use crate::home::Host;
use crate::lifecycle::{Lifecycle, Stopping};
use muniment_consensus::MemberId;
use muniment_value::{Code, Doc, Error, Result};
use std::sync::Arc;

/// Records with more bytes than this are appended by the driver's thread, and not by the receiving one.
const LITTLE: usize = 64 << 10;

/// The receiving end of another member's connection.
pub struct Incoming {
    node: Arc<Node>,
    from: MemberId,
    /// The address that the sender gave as its own, by a configuration of the version `by`.
    host: Option<String>,
    by: u64,
    /// The version of this member's configuration by which the address was checked last.
    checked: u64,
    /// The sender is to be removed, and is heard until that is committed.
    goes: bool,
    assembler: Assembler,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.node.inbox.put(Event::Left(self.from));
    }
}

impl Incoming {
    /// Takes a frame.
    ///
    /// # Errors
    /// 17 ProtocolError for what no member sends; 74 if the sender is no member any more, or that
    /// member is at another address. After any error the connection has to end.
    pub fn take(&mut self, life: &Lifecycle, message: &[u8]) -> Result<()> {
        self.check_place()?;
        match self.assembler.take(message)? {
            None => {}
            Some(Frame::Message(message, records)) => {
                self.check(message.from)?;
                let bytes = records.iter().map(|r| r.payload.len()).sum::<usize>();
                self.node
                    .inbox
                    .put_message(message, records, &Stopping(life));
                if bytes > LITTLE {
                    // While the driver's thread applies these, this thread reads what comes next.
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

    /// Checks the sender again if the configuration has changed since the last check.
    fn check_place(&mut self) -> Result<()> {
        let version = self.node.config_version();
        if (version == self.checked && !self.goes) || version < self.by {
            return Ok(());
        }
        let members = self.node.members();
        let mine = members.in_force();
        self.goes = greeting::is_going(mine, self.from);
        if !self.goes {
            greeting::is_at(&mine.config, self.from, self.host.as_deref())?;
        }
        self.checked = version;
        Ok(())
    }

    /// Checks that a message is from the member that has opened the connection.
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

/// Checks the name by which another member calls the set.
///
/// # Errors
/// 93 for that of another one.
pub fn check_name(set: &ReplicaSet, name: &str) -> Result<()> {
    match name == set.name() {
        true => Ok(()),
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
/// 188 for a version that has none in common with this one; 93 for another set or
/// another member; 74 if the caller is no member, or is elsewhere by the configuration; 23 and 110 if this
/// server is a member already, or has data.
pub fn greet(
    set: &Arc<ReplicaSet>,
    host: &Arc<dyn Host>,
    d: Doc<'_>,
    only_checks: bool,
) -> Result<Option<Incoming>> {
    let name = d.get_str("_replSetStream").unwrap_or_default();
    check_name(set, name)?;
    if only_checks {
        return match set.node() {
            Some(_) => Err(Error::new(Code::AlreadyInitialized, "already initialized")),
            None => initiate::check_empty(set).map(|()| None),
        };
    }
    let greeting = Greeting::of(d)?;
    let theirs = &greeting.in_force.config;
    let knows = |node: Arc<Node>| node.id == greeting.to && node.config_version() >= theirs.version;
    if !set.node().is_some_and(knows) {
        greeting::check_config(theirs, name)?;
    }
    let node = match set.node() {
        Some(node) => node,
        None => initiate::join(set, host, greeting.to, greeting.in_force.clone())?,
    };
    if set.member().config.and_then(|c| c.id) != greeting.set {
        return Err(Error::new(
            Code::InvalidReplicaSetConfig,
            format!("this server is a member of another replica set named {name}"),
        ));
    }
    let members = node.members();
    let mine = members.in_force();
    greeting.check(mine)?;
    if node.id != greeting.to {
        return Err(addressed_as_another(set, &node, greeting));
    }
    let (from, by) = (greeting.from, greeting.in_force.config.version);
    let incoming = Incoming {
        node: Arc::clone(&node),
        from,
        host: greeting.host,
        by,
        checked: mine.config.version,
        goes: greeting::is_going(mine, from),
        assembler: Assembler::default(),
    };
    if mine.config.version < by {
        let event = Event::Greeted(from, Box::new(greeting.in_force));
        node.inbox.put(event);
    }
    node.inbox.put(Event::Met(from));
    Ok(Some(incoming))
}

/// This server is addressed by a number that is not its own. If a configuration that is no older than its
/// own has the member of that number at this address, and not the member that this server was, it becomes
/// that member: its directory is that of a member that was removed, or a copy of another one's.
fn addressed_as_another(set: &ReplicaSet, node: &Node, greeting: Greeting) -> Error {
    let members = node.members();
    let mine = members.in_force();
    let theirs = &greeting.in_force.config;
    let (own, to) = (node.id, greeting.to);
    let stores = || set.home.engine.store.appended().is_ok_and(|p| p.index > 0);
    let full = theirs.is_arbiter(to) && stores();
    let becomes = !full
        && theirs.version >= mine.config.version
        && greeting::is_here(set.home.address.port, theirs, to)
        && !greeting::is_here(set.home.address.port, theirs, own);
    let what = match becomes {
        true => "is about to become that one",
        false if full => {
            "that one is an arbiter, whose directory is empty, and there are data in this one: \
             start the server with an empty directory"
        }
        false => "the configuration does not have that one here",
    };
    let e = Error::new(
        Code::InvalidReplicaSetConfig,
        format!(
            "this server is member number {own} of the set, and is addressed as number {to}: {what}"
        ),
    );
    if becomes {
        node.inbox.put(Event::Renumbered(Box::new(greeting)));
        return e;
    }
    greeting::with_config(e, mine)
}
