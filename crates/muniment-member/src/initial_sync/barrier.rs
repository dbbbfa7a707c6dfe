//! The barrier that a member without any data has to pass before it may copy another one's.
//!
//! A member that has lost its disk has lost what it had acknowledged and how it had voted. So it must not
//! be filled with less than it had acknowledged, and must not vote a second time where it had voted. A
//! leader that is about to be replaced, or that does not know yet what is committed, could let both
//! happen: then an election among members that have as little could lose what the majority has
//! acknowledged.
//!
//! So the leader first has a record committed that it made after it was asked, which takes a majority
//! without that member. A candidate that got the member's forgotten vote, which was given before, also
//! needs a vote of that majority; but each member of it has the record, and refuses a candidate without
//! it. And whatever the member had acknowledged before is committed then, and in the copy.
//!
//! Sometimes the record cannot be had for long, because the other members lag behind by design
//! (`secondaryDelaySecs`) or nothing can be written, or cannot be had at all, because a leader with
//! priority 0 takes no writes. Then a majority without that member is asked whether this one leads, and
//! this one must have committed something in its term: so it knows of all that was acknowledged. That is
//! as good in sets of three. In larger ones it overlooks an election that has been standing still since
//! before the loss, with the lost vote in it.
//!
//! A member that is new to the leader has, as far as the leader knows, acknowledged nothing and voted for
//! nobody: then asking the majority is enough, too.
//!
//! If nothing can be committed without the member, as in a set of a primary, a secondary and an arbiter,
//! it is filled at once, and waits itself for the record before it votes or stands (`muniment-consensus`,
//! `core::anew`).

use super::super::ReplicaSet;
use super::super::driver::{Known, Request};
use super::super::node::Node;
use super::barriers::Barrier;
use muniment_consensus::{InForce, MemberId};
use muniment_exec::OpContext;
use muniment_op::{Interrupt, Sleepers};
use muniment_value::{Code, Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A member that asks waits for so long before it has to ask again.
const PATIENCE: Duration = Duration::from_secs(5);
/// For so long only the record is waited for; after that the majority is asked instead.
const LONG: Duration = Duration::from_secs(10);
/// What a member that has nothing is told when it may be filled.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// The term in which this member leads.
    pub term: u64,
    /// The place that it has to wait for before it votes or stands; 0: none.
    pub waits: u64,
}

/// Lets `member`, which has nothing, pass. `can_wait`: its version knows of [`Passed::waits`].
///
/// # Errors
/// 10107 if this member does not lead; 262 if the other one is to ask again; what ends the operation.
pub fn pass(
    op: &OpContext,
    set: &ReplicaSet,
    node: &Node,
    member: MemberId,
    can_wait: bool,
) -> Result<Passed> {
    let term = node.leading_term().ok_or_else(leads_not)?;
    let passed = Passed { term, waits: 0 };
    let in_force = Arc::clone(node.members().in_force());
    if nobody_else(&in_force, node.id, member) {
        return Ok(passed);
    }
    let votes = in_force.voters.contains(&member);
    if votes && can_wait && needs(op, node, member)? {
        let waits = match in_force.rank(node.id) {
            1.. => {
                let barrier = barrier(set, member, term);
                match record(set, member, &barrier, &patience(op)) {
                    Ok(record) => record,
                    Err(e) if barrier.since.elapsed() < LONG => return Err(e),
                    // Nothing can be written, so the majority is asked instead.
                    Err(_) => {
                        op.check()?;
                        settle_without(op, set, node, member, term)?;
                        return Ok(passed);
                    }
                }
            }
            0 if in_force.counts().writable == 2 => set.home.engine.store.appended()?.index,
            0 => 0,
        };
        if waits > 0 {
            confirm(op, node, member, Known::Perhaps)?;
            set.copies.barriers.passed(member);
            leads_still(node, term)?;
            return Ok(Passed { term, waits });
        }
    }
    match votes {
        true => settle(op, set, node, member, term)?,
        false => {
            confirm(op, node, member, Known::All)?;
            leads_still(node, term)?;
        }
    }
    Ok(passed)
}

/// Settles what `member` has forgotten: has a new record committed without it, or, if that cannot be had for
/// long, has a majority without it confirm that this member leads in `term`.
///
/// # Errors
/// 10107 if this member does not lead; 262 if `member` is to ask again; what ends the operation.
pub fn settle(
    op: &OpContext,
    set: &ReplicaSet,
    node: &Node,
    member: MemberId,
    term: u64,
) -> Result<()> {
    if node.members().in_force().rank(node.id) > 0 {
        let barrier = barrier(set, member, term);
        match recorded(set, node, member, &barrier, &patience(op)) {
            Ok(()) => return Ok(()),
            Err(e) if barrier.since.elapsed() < LONG => return Err(e),
            // The majority is asked instead.
            Err(_) => op.check()?,
        }
    }
    settle_without(op, set, node, member, term)
}

/// As [`settle`], without a record.
fn settle_without(
    op: &OpContext,
    set: &ReplicaSet,
    node: &Node,
    member: MemberId,
    term: u64,
) -> Result<()> {
    confirm(op, node, member, Known::All)?;
    set.copies.barriers.passed(member);
    leads_still(node, term)
}

fn barrier(set: &ReplicaSet, member: MemberId, term: u64) -> Barrier {
    let election = set.member().config.map_or(10_000, |c| c.election_ms);
    let election = Duration::from_millis(u64::try_from(election).unwrap_or(10_000));
    set.copies.barriers.of(member, term, election)
}

fn leads_still(node: &Node, term: u64) -> Result<()> {
    match node.leading_term() == Some(term) {
        true => Ok(()),
        false => Err(leads_not()),
    }
}

fn patience(op: &OpContext) -> Until<'_> {
    Until {
        op,
        end: Instant::now() + PATIENCE,
    }
}

/// Whether nothing can be committed without `member`, as the driver knows.
fn needs(op: &OpContext, node: &Node, member: MemberId) -> Result<bool> {
    let ask = |outcome| Request::Needs(member, outcome);
    Ok(node.ask_and_wait(ask, &patience(op))?.is_ok())
}

/// Forgets what `member` has acknowledged, and has a majority without it confirm that this member leads.
///
/// # Errors
/// 10107 if this member does not lead, or does not know what it has to know; 262 if `member` is to ask
/// again; what ends the operation.
pub fn confirm(op: &OpContext, node: &Node, member: MemberId, known: Known) -> Result<()> {
    let ask = |outcome| Request::Confirm(member, known, outcome);
    let answer = node.ask_and_wait(ask, &patience(op))?;
    answer.map_err(|_| leads_not())
}

fn leads_not() -> Error {
    let what = "a member that has nothing is filled by who leads";
    Error::new(Code::NotWritablePrimary, what)
}

/// The barrier's record, or a new one.
fn record(set: &ReplicaSet, member: MemberId, barrier: &Barrier, until: &Until<'_>) -> Result<u64> {
    let record = match barrier.record {
        Some(record) => record,
        None => set.home.engine.store.commit_nothing(until)?.index,
    };
    set.copies.barriers.made(member, barrier.term, record);
    Ok(record)
}

/// Waits until the barrier's record, or a new one, is committed in its term.
fn recorded(
    set: &ReplicaSet,
    node: &Node,
    member: MemberId,
    barrier: &Barrier,
    until: &Until<'_>,
) -> Result<()> {
    let record = record(set, member, barrier, until)?;
    // The term is checked after the commit point: a record of another term may stand at the same place.
    let passed = || node.committed() >= record && node.leading_term() == Some(barrier.term);
    node.moved.wait(until, passed)?;
    set.copies.barriers.passed(member);
    Ok(())
}

/// Whether no member but these two votes or is to vote, so that there is none to ask.
fn nobody_else(in_force: &InForce, own: MemberId, member: MemberId) -> bool {
    let wanted = in_force.config.wanted_voters();
    let mut all = in_force.voters.iter().chain(&wanted);
    all.all(|id| *id == own || *id == member)
}

/// An operation that waits for so long at most.
struct Until<'a> {
    op: &'a dyn Interrupt,
    end: Instant,
}

impl Interrupt for Until<'_> {
    fn check(&self) -> Result<()> {
        self.op.check()?;
        match Instant::now() < self.end {
            true => Ok(()),
            false => Err(Error::new(
                Code::ExceededTimeLimit,
                "the majority has not confirmed that this member leads",
            )),
        }
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        self.op.sleepers(show);
    }

    fn wakes_at(&self) -> Option<Instant> {
        let sooner = self.op.wakes_at();
        Some(sooner.map_or(self.end, |at| at.min(self.end)))
    }
}
