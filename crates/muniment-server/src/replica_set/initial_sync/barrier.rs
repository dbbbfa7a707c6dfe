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
//! Where the record cannot be had, as the others are behind by design (`secondaryDelaySecs`), or nothing can
//! be written, time does it: who has led for several election timeouts since, and has committed something
//! in its term, is heard by a majority, and no election of before is still under way.
//!
//! Not asked is who leads only until it finds a better one, and so takes no writes: its term has just begun.

use super::super::ReplicaSet;
use super::super::node::Node;
use crate::context::CommandContext;
use muniment_query::Interrupt;
use muniment_repl::{InForce, MemberId};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// So long who asks waits in one go.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(5);
/// Who leads for so long, and three times as long as it would take to replace it, leads.
const LONG: Duration = Duration::from_secs(10);
/// Who has not asked for so long begins anew.
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
    fn of(&self, member: MemberId, term: u64) -> Barrier {
        let now = Instant::now();
        let mut all = self.0.lock();
        let new = Barrier {
            term,
            since: now,
            asked: now,
            record: None,
        };
        let barrier = all.entry(member).or_insert(new);
        if barrier.term != term || barrier.asked.elapsed() > FORGOTTEN {
            *barrier = new;
        }
        barrier.asked = now;
        *barrier
    }

    fn made(&self, member: MemberId, record: u64) {
        if let Some(barrier) = self.0.lock().get_mut(&member) {
            barrier.record = Some(record);
        }
    }

    /// The next copy needs another one.
    fn passed(&self, member: MemberId) {
        self.0.lock().remove(&member);
    }
}

/// Lets `member`, which has nothing, pass.
///
/// # Errors
/// 10107 for who does not lead; 262 if it is to ask again; what ends the operation.
pub fn pass(
    cx: &CommandContext<'_>,
    set: &ReplicaSet,
    node: &Node,
    member: MemberId,
) -> Result<()> {
    let Some(term) = node.leading_term() else {
        let what = "a member that has nothing is filled by who leads";
        return Err(Error::new(Code::NotWritablePrimary, what));
    };
    if !set.is_primary() || nobody_else(node.members().in_force(), node.id, member) {
        return Ok(());
    }
    let store = &cx.engine().store;
    let barriers = &set.copies.barriers;
    let until = Until {
        op: &**cx.op,
        end: Instant::now() + PATIENCE,
    };
    let Barrier { record, since, .. } = barriers.of(member, term);
    let record = match record {
        Some(record) => Some(record),
        None => store.commit_nothing(&until).ok().map(|made| made.index),
    };
    if let Some(record) = record {
        barriers.made(member, record);
    }
    let election = set.member().config.map_or(10_000, |c| c.election_ms);
    let election = Duration::from_millis(u64::try_from(election).unwrap_or(10_000));
    loop {
        cx.op.check()?;
        let committed = record.is_some_and(|record| node.committed() >= record);
        let long = since.elapsed() > LONG + 3 * election;
        let leads = node.leading_term() == Some(term);
        if leads && (committed || long && store.committed()?.term == term) {
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
