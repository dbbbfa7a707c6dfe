//! What reaches the driver.

use super::request::Request;
use crate::frame::Record;
use crate::greeting::Greeting;
use crate::report::Report;
use muniment_consensus::{InForce, MemberId, Message};

/// See the module's head.
pub enum Event {
    /// A message of another member, with its records.
    Received(Message, Vec<Record>),
    /// Another member reports how far it is.
    Report(Report),
    /// A member has opened its way to this one, and has a newer configuration.
    Greeted(MemberId, Box<InForce>),
    /// A member has greeted this one by another member's number, which this one is to take.
    Renumbered(Box<Greeting>),
    /// A member has opened its way to this one: what it was asked before that has not arrived there.
    Met(MemberId),
    /// A way that a member had opened to this one has ended.
    Left(MemberId),
    /// A request of a command.
    Ask(Request),
}
