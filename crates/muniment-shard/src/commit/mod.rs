//! Deciding a transaction over several shards: the coordinator, as a machine without I/O.
//!
//! Each shard that has written is a *participant*. The coordinator has each of them prepare its part, decides,
//! stores the decision, and then has each resolve its part. A participant that has voted yes does not end its
//! part by itself any more, and asks the coordinator when it hears nothing ([`answer`]).
//!
//! Messages may be lost and may come more than once, and each side may crash between any two steps: the
//! coordinator is made again of the stored decision ([`Coordinator::resume`]), or not at all if there is none.
//!
//! Invariants: nothing is resolved before the decision is stored and the majority has it; a stored decision is
//! never changed; the commit time is at or after the time at which each participant prepared; the decision is
//! forgotten only when all have resolved.

#[cfg(test)]
mod simulation;

/// What a participant answers when it is to prepare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote<T> {
    /// Its part is prepared, and the majority of its set has it. It was prepared at this time.
    Prepared(T),
    /// It has written nothing, and its part has ended.
    Nothing,
    /// It has resolved its part before: the transaction was committed.
    Committed,
    /// It has no such part, or cannot prepare it: the part is aborted.
    Refused,
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<T> {
    /// It is committed at this time.
    Commit(T),
    /// It is aborted.
    Abort,
}

/// What the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The transaction is committed.
    Committed,
    /// The transaction is aborted.
    Aborted,
}

/// What happens to a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<T> {
    /// A participant has voted.
    Voted(usize, Vote<T>),
    /// It has taken too long until all have voted.
    GaveUp,
    /// The decision is stored, and the majority has it.
    Stored,
    /// A participant has resolved its part, and the majority of its set has that.
    Resolved(usize),
}

/// What is to be done for a coordinator. Each may be done more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<T> {
    /// Have a participant prepare.
    Prepare(usize),
    /// Store the decision, unless there is one already.
    Store(Decision<T>),
    /// Have a participant resolve.
    Resolve(usize, Decision<T>),
    /// Remove the stored decision.
    Forget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase<T> {
    Voting,
    Storing(Decision<T>),
    Resolving(Decision<T>),
    /// It was committed before, and all have resolved.
    CommittedBefore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Participant<T> {
    vote: Option<Vote<T>>,
    resolved: bool,
}

/// The coordinator of one transaction.
#[derive(Clone, Debug)]
pub struct Coordinator<T> {
    participants: Vec<Participant<T>>,
    phase: Phase<T>,
    #[cfg(test)]
    resolves_early: bool,
}

impl<T: Copy + Ord> Coordinator<T> {
    /// Begins with this many participants.
    pub fn new(participants: usize) -> Coordinator<T> {
        Coordinator {
            participants: vec![
                Participant {
                    vote: None,
                    resolved: false,
                };
                participants
            ],
            phase: Phase::Voting,
            #[cfg(test)]
            resolves_early: false,
        }
    }

    /// Goes on after a start or an election, with the decision that is stored.
    pub fn resume(participants: usize, decision: Decision<T>) -> Coordinator<T> {
        Coordinator {
            phase: Phase::Resolving(decision),
            ..Coordinator::new(participants)
        }
    }

    /// Takes what has happened. What is to be done then is what [`Coordinator::actions`] says.
    pub fn input(&mut self, input: Input<T>) {
        match (input, self.phase) {
            (Input::Voted(i, vote), Phase::Voting) => {
                if let Some(p) = self.participants.get_mut(i) {
                    p.vote.get_or_insert(vote);
                }
                self.count();
            }
            (Input::GaveUp, Phase::Voting) => self.phase = Phase::Storing(Decision::Abort),
            (Input::Stored, Phase::Storing(decision)) => self.phase = Phase::Resolving(decision),
            (Input::Resolved(i), Phase::Resolving(_)) => {
                if let Some(p) = self.participants.get_mut(i) {
                    p.resolved = true;
                }
            }
            // It comes late, or once more.
            _ => {}
        }
    }

    /// Decides once all have voted, or one says that it is committed.
    fn count(&mut self) {
        if self
            .participants
            .iter()
            .any(|p| matches!(p.vote, Some(Vote::Committed)))
        {
            // The decision is forgotten only when all have resolved, so those that are silent have as well.
            self.phase = Phase::CommittedBefore;
            return;
        }
        let votes: Option<Vec<Vote<T>>> = self.participants.iter().map(|p| p.vote).collect();
        let Some(votes) = votes else { return };
        let times = votes.iter().filter_map(|vote| match vote {
            Vote::Prepared(at) => Some(*at),
            _ => None,
        });
        self.phase = match (votes.contains(&Vote::Refused), times.max()) {
            (false, Some(last)) => Phase::Storing(Decision::Commit(last)),
            (false, None) => Phase::CommittedBefore,
            (true, _) => Phase::Storing(Decision::Abort),
        };
    }

    /// What is to be done now: what was not answered is to be done again.
    pub fn actions(&self) -> Vec<Action<T>> {
        let all = || self.participants.iter().enumerate();
        let unresolved = || all().filter(|(_, p)| p.holds() && !p.resolved);
        match self.phase {
            Phase::Voting => {
                let silent = all().filter(|(_, p)| p.vote.is_none());
                silent.map(|(i, _)| Action::Prepare(i)).collect()
            }
            #[cfg(test)]
            Phase::Storing(decision) if self.resolves_early => {
                let early = unresolved().map(|(i, _)| Action::Resolve(i, decision));
                early.chain([Action::Store(decision)]).collect()
            }
            Phase::Storing(decision) => vec![Action::Store(decision)],
            Phase::Resolving(_) if unresolved().next().is_none() => vec![Action::Forget],
            Phase::Resolving(decision) => unresolved()
                .map(|(i, _)| Action::Resolve(i, decision))
                .collect(),
            Phase::CommittedBefore => Vec::new(),
        }
    }

    /// What the client is told; `None` while that is open.
    pub fn told(&self) -> Option<Told> {
        match self.phase {
            Phase::Voting | Phase::Storing(_) => None,
            Phase::Resolving(Decision::Abort) => Some(Told::Aborted),
            Phase::Resolving(Decision::Commit(_)) | Phase::CommittedBefore => Some(Told::Committed),
        }
    }
}

impl<T> Participant<T> {
    /// Whether it may have something prepared. One that was not heard of may.
    fn holds(&self) -> bool {
        matches!(self.vote, None | Some(Vote::Prepared(_)))
    }
}

/// What the coordinator's set knows of a transaction that it runs no coordinator for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known<T> {
    /// A coordinator is at work.
    Running,
    /// The stored decision.
    Decided(Decision<T>),
    /// The set's own part is committed: all participants have resolved, and the decision is forgotten.
    Forgotten,
    /// Nothing.
    Nothing,
}

/// What a participant is answered that asks for the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// This, once the majority has it.
    Decided(Decision<T>),
    /// It has to ask again.
    Open,
    /// It has resolved its part already, and the question is an old one.
    Old,
    /// An abort is stored first, unless there is a decision by then, and the question answered anew: otherwise a
    /// coordinator that begins after the answer could still commit.
    StoreAbort,
}

/// Answers a participant that is in doubt. What the set knows was read by its primary.
pub fn answer<T>(known: Known<T>) -> Answer<T> {
    match known {
        Known::Running => Answer::Open,
        Known::Decided(decision) => Answer::Decided(decision),
        Known::Forgotten => Answer::Old,
        Known::Nothing => Answer::StoreAbort,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_decides_when_all_have_voted_and_resolves_when_that_is_stored() {
        let mut c = Coordinator::new(3);
        assert_eq!(c.actions().len(), 3);
        c.input(Input::Voted(0, Vote::Prepared(5)));
        c.input(Input::Voted(0, Vote::Refused));
        c.input(Input::Voted(1, Vote::Nothing));
        assert_eq!(c.actions(), [Action::Prepare(2)]);
        c.input(Input::Stored);
        assert_eq!(c.told(), None);
        c.input(Input::Voted(2, Vote::Prepared(7)));
        let commit = Decision::Commit(7);
        assert_eq!(c.actions(), [Action::Store(commit)]);
        c.input(Input::GaveUp);
        assert_eq!((c.actions(), c.told()), (vec![Action::Store(commit)], None));
        c.input(Input::Stored);
        assert_eq!(c.told(), Some(Told::Committed));
        assert_eq!(
            c.actions(),
            [Action::Resolve(0, commit), Action::Resolve(2, commit)]
        );
        c.input(Input::Resolved(2));
        assert_eq!(c.actions(), [Action::Resolve(0, commit)]);
        c.input(Input::Resolved(0));
        assert_eq!(c.actions(), [Action::Forget]);
    }

    #[test]
    fn one_that_refuses_or_is_silent_aborts_all() {
        let mut c = Coordinator::new(2);
        c.input(Input::Voted(1, Vote::Prepared(7)));
        c.input(Input::Voted(0, Vote::Refused));
        assert_eq!(c.actions(), [Action::Store(Decision::Abort)]);
        c.input(Input::Stored);
        assert_eq!(c.told(), Some(Told::Aborted));
        assert_eq!(c.actions(), [Action::Resolve(1, Decision::Abort)]);
        let mut c = Coordinator::<u64>::new(2);
        c.input(Input::GaveUp);
        c.input(Input::Stored);
        assert_eq!(c.actions().len(), 2);
        // What was forgotten is told all the same.
        let mut c = Coordinator::<u64>::new(2);
        c.input(Input::Voted(1, Vote::Committed));
        c.input(Input::Voted(0, Vote::Refused));
        assert_eq!((c.told(), c.actions()), (Some(Told::Committed), vec![]));
    }
}
