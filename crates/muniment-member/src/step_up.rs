//! `replSetStepUp`: a member takes over from the primary, which hands over to it and no other, or asks for
//! the votes if there is no primary.
//!
//! The primary is asked over a separate connection, since it alone can hand over: members that hear of a
//! leader vote for no other member.

use super::driver::Request;
use super::{MemberConfig, ReplicaSet, ask, ended, ticks};
use muniment_consensus::MemberId;
use muniment_exec::OpContext;
use muniment_op::Interrupt;
use muniment_value::{Code, Error, Result, doc};
use muniment_wire::client::check_ok;
use std::time::{Duration, Instant};

/// The primary waits for so long until the member has what it has itself.
const CATCHES_UP: Duration = Duration::from_secs(10);
/// It may take so long until the member that was elected takes writes.
const ELECTION: Duration = Duration::from_secs(5);

impl ReplicaSet {
    /// Has this member be primary, and waits for it; a primary is left as it is.
    ///
    /// # Errors
    /// 125 CommandFailed if it is not elected, with the reason where it is known; what the operation says.
    pub fn step_up(&self, op: &OpContext) -> Result<()> {
        if self.is_primary() {
            return Ok(());
        }
        let node = self.node().ok_or_else(ended)?;
        let member = self.member();
        if !member.own().is_some_and(MemberConfig::electable) {
            return Err(failed("the member has priority 0, or is none of the set"));
        }
        let asked = match member.leader.filter(|leader| *leader != member.id) {
            Some(_) => {
                let command = doc! { "_replSetHandOver": 1, "to": node.id as i64 };
                let reply = ask::ask_primary(self, op, "admin", command, None);
                reply.and_then(|d| check_ok(d.as_doc()))
            }
            None => {
                let campaigned = node.ask_and_wait(Request::StepUp, op)?;
                campaigned.map_err(|_| {
                    failed("the member may not be primary, or was told to wait (see replSetFreeze)")
                })
            }
        };
        match asked {
            // The primary has ceased to lead before it answered, mostly because it did what it was asked for.
            Err(e) if e.code() == Code::InterruptedDueToReplStateChange => {}
            Err(e) => {
                op.check()?;
                return Err(failed(e.message()));
            }
            Ok(()) => {}
        }
        let end = Instant::now() + ELECTION;
        match self.wait_until(op, end, || self.is_primary())? {
            true => Ok(()),
            false => Err(failed("nobody has elected it in time")),
        }
    }

    /// Lets this member be primary in place of this one.
    ///
    /// # Errors
    /// 10107 when this one is no primary; 262 if the other one cannot take over; what `interrupt` says.
    pub fn hand_over_to(&self, to: MemberId, interrupt: &dyn Interrupt) -> Result<()> {
        if !self.is_primary() {
            return Err(Error::new(Code::NotWritablePrimary, "not primary"));
        }
        let node = self.node().ok_or_else(ended)?;
        let patience = ticks(CATCHES_UP);
        let asked = |token, outcome| Request::HandOver(token, to, patience, outcome);
        node.ask_or_take_back(asked, interrupt)?.map_err(|_| {
            Error::new(
                Code::ExceededTimeLimit,
                "the primary could not hand over: the member has priority 0 or no vote, was told not to \
                 campaign, did not catch up in time, or another step down is under way",
            )
        })
    }
}

fn failed(why: &str) -> Error {
    Error::new(Code::CommandFailed, format!("Election failed. {why}"))
}
