//! The core of this member over its log as it is: at the start, and when the driver goes on with another one.

use super::{Driver, answer, times_of};
use crate::config::SetConfig;
use crate::set::ReplicaSet;
use muniment_consensus::{Core, LocalState, LogEnds, Options, Refusal};
use muniment_storage::Position;
use muniment_value::{Code, Doc, Error, Result};

/// The core of the member, over its log as it is; `aside`: the last record that it has set aside.
///
/// # Errors
/// 127 UnrecoverableRollbackError if the two do not fit.
pub(crate) fn core_of(
    set: &ReplicaSet,
    state: LocalState,
    aside: Option<Position>,
) -> Result<Core> {
    let store = &set.home.engine.store;
    let last = match aside {
        Some(last) => last,
        None => store.position()?.appended,
    };
    // What was there before the set, or before the copy of another member's data, is no part of
    // its log. Of a set that began with nothing the first term is noted before its first record, which
    // a power cut may have kept from being there.
    let base = state.terms.first().map_or(0, |(first, _)| *first);
    let base = base.min(last.index);
    let first = (store.log_begins_behind()?.index + 1).max(base + 1);
    let ends = LogEnds {
        first,
        last: last.index,
        last_term: (last.index >= first).then_some(last.term),
        committed: store.committed()?.index,
    };
    let mut seed = [0; 8];
    set.home.machine.clock.random(&mut seed)?;
    // A configuration that cannot be read is refused when the driver takes it.
    let config = SetConfig::parse(Doc::new(&state.in_force.config.document));
    let config = config.unwrap_or_else(|_| SetConfig::default_of("", String::new()));
    let options = Options {
        times: times_of(&config),
        seed: u64::from_le_bytes(seed),
    };
    Core::start(options, state, ends).map_err(|e| {
        Error::new(
            Code::UnrecoverableRollbackError,
            format!("this member cannot go on with its set: {e}"),
        )
    })
}

impl Driver {
    /// Refuses all requests that wait: they were asked of a core that goes.
    pub(super) fn refuse_all(&mut self) {
        let confirms = std::mem::take(&mut self.confirms).into_values();
        for outcome in self.outcomes.drain().map(|(_, o)| o).chain(confirms) {
            answer(&outcome, Err(Refusal::NotLeader));
        }
    }

    /// Goes on with another core over the same log, all of which is durable.
    pub(super) fn begin_anew(&mut self, core: Core) {
        // An unnamed member was frozen for that: `take_config` freezes it again if it still has to.
        let frozen = self.core.frozen_for().filter(|_| self.named);
        self.core = core;
        if let Some(ticks) = frozen {
            self.core.freeze(ticks);
        }
        self.abstain();
        self.core.full(self.node.id, self.node.is_full());
        self.configs.clear();
        self.told = self.core.last();
        self.durable = self.told;
        self.named = true;
    }
}
