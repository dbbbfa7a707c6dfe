//! What stands between a member that has nothing and its copy.
//!
//! Who has lost its disk has lost what it had acknowledged and how it had voted. So it must not be filled
//! with less than that, and its new word must not count beside its old one. A leader that is about to be
//! replaced, or that does not know yet what is committed, might do both: then an election among those who
//! have as little could lose what the majority has acknowledged.
//!
//! So the leader first has a record committed that it made after it was asked, which takes a majority
//! without that member. Whoever in it the others would need to elect somebody by a vote that was given
//! before has the record, and refuses who has not; and whatever the member had acknowledged before is
//! committed then, and in the copy.
//!
//! Where the record cannot be had for long, as the others are behind by design (`secondaryDelaySecs`) or
//! nothing can be written, or at all, as who leads with priority 0 takes no writes, a majority without
//! that member is asked whether this one leads, and it must have committed something in its term: then it
//! knows of all that was acknowledged. That is as good in sets of three. In larger ones it leaves out an
//! election that has been standing still since before the loss, with the lost vote in it.
//!
//! A member that is new to the leader has acknowledged nothing and voted for nobody that it knows of: then
//! the question is enough, too.

use super::super::ReplicaSet;
use super::super::driver::Request;
use super::super::node::Node;
use crate::context::CommandContext;
use muniment_query::Interrupt;
use muniment_repl::{InForce, MemberId};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long who asks waits in one go.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(5);
/// So long the record is waited for, and nothing else.
const LONG: Duration = Duration::from_secs(10);
/// Who has not asked for so long, and an election timeout, begins anew.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// What is waited for, by members. It stays while they ask again and again.
#[derive(Default)]
pub struct Barriers(Mutex<BTreeMap<MemberId, Barrier>>);

#[derive(Clone, Copy)]
struct Barrier {
    term: u64,
    since: Instant,
    asked: Instant,
    /// The record, once there is one.
    record: Option<u64>,
}

impl Barriers {
    /// That of a member in this term.
    fn of(&self, member: MemberId, term: u64, election: Duration) -> Barrier {
        let now = Instant::now();
        let mut all = self.0.lock();
        let new = Barrier {
            term,
            since: now,
            asked: now,
            record: None,
        };
        let barrier = all.entry(member).or_insert(new);
        if barrier.term != term || barrier.asked.elapsed() > FORGOTTEN + election {
            *barrier = new;
        }
        barrier.asked = now;
        *barrier
    }

    fn made(&self, member: MemberId, term: u64, record: u64) {
        let mut all = self.0.lock();
        if let Some(barrier) = all.get_mut(&member).filter(|b| b.term == term) {
            barrier.record = Some(record);
        }
    }

    /// The next copy needs another one.
    fn passed(&self, member: MemberId) {
        self.0.lock().remove(&member);
    }
}

/// Lets `member`, which has nothing, pass; gives the term in which this member leads.
///
/// # Errors
/// 10107 for who does not lead; 262 if it is to ask again; what ends the operation.
pub fn pass(
    cx: &CommandContext<'_>,
    set: &ReplicaSet,
    node: &Node,
    member: MemberId,
) -> Result<u64> {
    let term = node.leading_term().ok_or_else(leads_not)?;
    let in_force = Arc::clone(node.members().in_force());
    if nobody_else(&in_force, node.id, member) {
        return Ok(term);
    }
    let patience = || Until {
        op: &**cx.op,
        end: Instant::now() + PATIENCE,
    };
    if in_force.voters.contains(&member) && in_force.rank(node.id) > 0 {
        let election = set.member().config.map_or(10_000, |c| c.election_ms);
        let election = Duration::from_millis(u64::try_from(election).unwrap_or(10_000));
        let barrier = set.copies.barriers.of(member, term, election);
        match recorded(cx, set, node, member, &barrier, &patience()) {
            Ok(()) => return Ok(term),
            Err(e) if barrier.since.elapsed() < LONG => return Err(e),
            // The other way.
            Err(_) => cx.op.check()?,
        }
    }
    let ask = |outcome| Request::Confirm(member, outcome);
    let answer = node.ask_and_wait(ask, &patience())?;
    answer.map_err(|_| leads_not())?;
    set.copies.barriers.passed(member);
    match node.leading_term() == Some(term) {
        true => Ok(term),
        false => Err(leads_not()),
    }
}

fn leads_not() -> Error {
    let what = "a member that has nothing is filled by who leads";
    Error::new(Code::NotWritablePrimary, what)
}

/// Waits until the barrier's record, or a new one, is committed in its term.
fn recorded(
    cx: &CommandContext<'_>,
    set: &ReplicaSet,
    node: &Node,
    member: MemberId,
    barrier: &Barrier,
    until: &Until<'_>,
) -> Result<()> {
    let barriers = &set.copies.barriers;
    let record = match barrier.record {
        Some(record) => record,
        None => cx.engine().store.commit_nothing(until)?.index,
    };
    barriers.made(member, barrier.term, record);
    loop {
        // In this order: what was made in another term may stand at the same place.
        if node.committed() >= record && node.leading_term() == Some(barrier.term) {
            barriers.passed(member);
            return Ok(());
        }
        until.check()?;
        std::thread::sleep(LOOK);
    }
}

/// Nobody but these two votes or is to: there is nobody to ask.
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
}
