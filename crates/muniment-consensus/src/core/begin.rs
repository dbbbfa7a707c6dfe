//! How a core begins: with what its member remembers, over the log as it is.

use super::anew::Anew;
use super::clock::{Clock, EXPIRED};
use super::{Core, Door, Effect, Fatal, Occasion, Role, WINDOW};
use crate::config::{ConfigRecord, InForce};
use crate::position::{Members, Position};
use crate::shadow::Shadow;
use crate::state::LocalState;
use crate::timer::{Draw, Times};
use raft::eraftpb::{ConfState, HardState};
use raft::{RawNode, StateRole};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Raft's own election timeout, a range that is never reached: the core decides when to campaign.
const NEVER: usize = usize::MAX / 4;

/// The options of a core.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long members wait for each other, until [`Core::set_times`] changes it.
    pub times: Times,
    /// The seed of all random draws.
    pub seed: u64,
}

/// The log as the storage found it. All of it is durable.
#[derive(Clone, Copy, Debug)]
pub struct LogEnds {
    /// The place of its first record, or of the next record if it has none.
    pub first: u64,
    /// The place of its last record; `first - 1` if it has none.
    pub last: u64,
    /// The last record's term, if there is one.
    pub last_term: Option<u64>,
    /// A place up to which everything is known to be committed: that of the persisted cut.
    pub committed: u64,
}

impl LogEnds {
    /// The place before the first record.
    fn base(&self) -> u64 {
        self.first.saturating_sub(1)
    }
}

impl Core {
    /// Begins with the remembered state and the log's ends.
    ///
    /// # Errors
    /// If the state and the log do not fit together.
    pub fn start(options: Options, state: LocalState, log: LogEnds) -> Result<Core, Fatal> {
        let last = log.last;
        if state.cut.is_some_and(|behind| last > behind) {
            return inconsistent("the log is not cut as it has to be");
        }
        let committed = state.commit.max(log.committed);
        if committed > last {
            return Err(Fatal::Lost { committed, last });
        }
        // Committed records that the log no longer has are in the persisted cut.
        let committed = committed.max(log.base());
        let in_force = Arc::new(in_force(&state, committed)?);
        let is_cut = state.cut.is_some();
        let mut core = Core::over(options, state, log, committed, in_force)?;
        if is_cut {
            // The cut is made, so the note of it is removed.
            core.save(None);
        }
        let in_force = Effect::Config(core.in_force.clone());
        core.effects
            .extend([in_force, Effect::Committed(committed)]);
        core.settle();
        Ok(core)
    }

    /// A core that has done nothing yet.
    fn over(
        options: Options,
        mut state: LocalState,
        log: LogEnds,
        committed: u64,
        in_force: Arc<InForce>,
    ) -> Result<Core, Fatal> {
        let last = log.last;
        let shadow = shadow(&mut state, &log, committed, &in_force)?;
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let Ok(node) = RawNode::new(&options_of_raft(state.id, committed), shadow, &logger) else {
            return inconsistent("the state is none that raft can begin with");
        };
        Ok(Core {
            anew: Anew::new(state.waits, committed, node.store().term_of(committed)),
            node,
            options,
            draw: Draw::new(options.seed),
            now: 0,
            clock: Clock::default(),
            patience: 0,
            drawn_for: (0, StateRole::Leader),
            tries: 0,
            gone: None,
            frozen_until: 0,
            frozen_by: None,
            occasion: Occasion::default(),
            abstaining: BTreeSet::new(),
            full: BTreeSet::new(),
            room_after: 0,
            late: BTreeSet::new(),
            effects: VecDeque::new(),
            door: Door::Closed,
            door_term: 0,
            deferred: VecDeque::new(),
            in_log: last,
            synced: last,
            durable: last,
            held: Vec::new(),
            batches: VecDeque::new(),
            saved: (state.term, state.vote),
            told_commit: committed,
            told_role: (Role::Follower, 0, 0),
            members: Members::new(state.id, Position::all(last), in_force.clone()),
            in_force: in_force.clone(),
            rollback_id: state.rollback_id,
            pending: None,
            unanswered: Vec::new(),
            transfer: None,
            takeover_after: 0,
            arbiter: in_force.config.is_arbiter(state.id),
            nonce: 0,
            told: BTreeMap::new(),
            prompt_first: 0,
            offers: 0,
            halted: false,
            #[cfg(test)]
            bugs: crate::tests::Bugs::default(),
        })
    }
}

fn inconsistent<T>(what: &'static str) -> Result<T, Fatal> {
    Err(Fatal::Inconsistent(what))
}

/// The configuration in force. The remembered one may be ahead of the log, whose changes are skipped when they
/// come again.
fn in_force(state: &LocalState, committed: u64) -> Result<InForce, Fatal> {
    let mut in_force = state.in_force.clone();
    let (missed, to) = (in_force.index + 1.., committed.max(state.known));
    for (index, record) in state.configs.range(missed).take_while(|c| *c.0 <= to) {
        match ConfigRecord::decode(record) {
            Some(record) => in_force.apply(*index, record),
            None => return inconsistent("a record of a configuration is damaged"),
        }
    }
    Ok(in_force)
}

/// The log as raft sees it. Takes its terms and configurations out of the state.
fn shadow(
    state: &mut LocalState,
    log: &LogEnds,
    committed: u64,
    in_force: &InForce,
) -> Result<Shadow, Fatal> {
    let hard = HardState {
        term: state.term,
        vote: state.vote,
        commit: committed,
        ..HardState::default()
    };
    let conf = ConfState {
        voters: in_force.voters.iter().copied().collect(),
        learners: in_force.learners.iter().copied().collect(),
        ..ConfState::default()
    };
    let terms = std::mem::take(&mut state.terms);
    let configs = std::mem::take(&mut state.configs);
    let ends = (log.base(), log.last);
    let Some(shadow) = Shadow::new(ends, terms, configs, hard, conf) else {
        return inconsistent("the terms of the log are not known");
    };
    let is_other = |term| shadow.term_of(log.last) != Some(term);
    match log.last_term.is_some_and(is_other) {
        true => inconsistent("the log ends with a record of another term than is known"),
        false => Ok(shadow),
    }
}

/// How raft is set up.
fn options_of_raft(id: u64, applied: u64) -> raft::Config {
    raft::Config {
        id,
        election_tick: EXPIRED,
        heartbeat_tick: 1,
        applied,
        // Zero would limit a message to one entry. The shadow limits their number instead.
        max_size_per_msg: raft::NO_LIMIT,
        max_committed_size_per_ready: 0,
        max_inflight_msgs: WINDOW,
        check_quorum: true,
        pre_vote: true,
        min_election_tick: NEVER,
        max_election_tick: NEVER + 1,
        batch_append: true,
        ..raft::Config::default()
    }
}
