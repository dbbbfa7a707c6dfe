//! Coordinating a transaction: the machine of `muniment_shard::commit`, with the sets that it speaks to and the
//! collection that it stores its decision in.

use super::messages::Asking;
use super::own::{durable, own_set};
use super::{decisions, participant};
use crate::options::SetAddress;
use crate::state::ServerState;
use muniment_exec::OpContext;
use muniment_op::{Interrupt, sleep_until};
use muniment_shard::commit::{Action, Coordinator, Decision, Input, Told};
use muniment_storage::{Timestamp, TransactionId};
use muniment_value::{Code, Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After this time without the votes of all, the transaction is aborted.
const VOTING: Duration = Duration::from_secs(30);
/// After this time the client is answered, and the thread of `doubts` has the rest resolve.
const RESOLVING: Duration = Duration::from_secs(2);
/// The pause before those are asked again that have not answered.
const PAUSE: Duration = Duration::from_millis(100);

/// The transaction of one thread.
struct Course<'a> {
    server: &'a ServerState,
    op: &'a Arc<OpContext>,
    id: TransactionId,
    participants: Vec<SetAddress>,
    machine: Coordinator<Timestamp>,
    /// The stint of leadership in which the votes were asked for.
    stint: u64,
}

/// Commits a transaction that these sets have written to, and returns how it has ended. With no sets, it is only
/// asked how it has ended, and aborted if it has not.
///
/// # Errors
/// Those of storing the decision, and what the operation says: the outcome is not known then.
pub fn commit(
    server: &ServerState,
    op: &Arc<OpContext>,
    id: TransactionId,
    participants: Vec<SetAddress>,
) -> Result<Told> {
    let _running = server.distributed.begin(id, &**op)?;
    if let Some(mut stored) = decisions::read(server, &id)? {
        // It was read here; that it stays is known when the majority has it.
        durable(server, op)?;
        if stored.participants.is_empty() {
            stored.participants = participants;
        }
        return resume(server, op, stored);
    }
    if participants.is_empty() {
        return recover(server, op, id);
    }
    // The commit is repeated, and all have resolved. Others are not asked, since one that is silent now must not have the
    // client told that the transaction is aborted.
    if participant::is_stored(server, &id)? {
        durable(server, op)?;
        return Ok(Told::Committed);
    }
    let machine = Coordinator::new(participants.len());
    Course {
        server,
        op,
        id,
        participants,
        machine,
        stint: server.transactions.stint(),
    }
    .run()
}

/// Goes on with a decision that is stored and that the majority has. The caller has the right to coordinate.
///
/// # Errors
/// What the operation says.
pub(super) fn resume(
    server: &ServerState,
    op: &Arc<OpContext>,
    mut stored: decisions::Stored,
) -> Result<Told> {
    if stored.participants.is_empty() {
        // An abort that a participant has asked for. It may be forgotten when this set's own part is aborted:
        // nothing can be committed without its vote.
        stored.participants = vec![own_set(server)?];
    }
    let machine = Coordinator::resume(stored.participants.len(), stored.decision);
    Course {
        server,
        op,
        id: stored.id,
        participants: stored.participants,
        machine,
        stint: server.transactions.stint(),
    }
    .run()
}

/// Learns how a transaction has ended of which no decision is stored. If this set's own part has not, the
/// transaction is aborted.
fn recover(server: &ServerState, op: &Arc<OpContext>, id: TransactionId) -> Result<Told> {
    if participant::has_committed(server, op, &id)? {
        return Ok(Told::Committed);
    }
    let own = own_set(server)?;
    let stored = decisions::store(server, op, &id, &[own], Decision::Abort)?;
    resume(server, op, stored)
}

impl Course<'_> {
    fn run(mut self) -> Result<Told> {
        let began = muniment_op::now();
        let mut decided = None;
        loop {
            let actions = self.machine.actions();
            match actions.first() {
                Some(Action::Prepare(_)) => {
                    self.prepare(&actions, began + VOTING)?;
                    self.op.check()?;
                    if muniment_op::since(began) >= VOTING {
                        self.machine.input(Input::GaveUp);
                    }
                }
                Some(Action::Store(decision)) => self.store(*decision)?,
                Some(Action::Resolve(..)) => {
                    let since = *decided.get_or_insert_with(muniment_op::now);
                    self.resolve(&actions, since + RESOLVING);
                    if muniment_op::since(since) >= RESOLVING {
                        break;
                    }
                }
                Some(Action::Forget) => {
                    // It stays until the next attempt if it cannot be removed, which does no harm.
                    let _ = decisions::forget(self.server, self.op, &self.id);
                    break;
                }
                None => break,
            }
            if self.machine.actions() == actions {
                sleep_until(muniment_op::now() + PAUSE, &**self.op)?;
            }
        }
        let told = self.machine.told();
        told.ok_or_else(|| Error::internal("a transaction without an outcome"))
    }

    /// Asks these participants, all at once, and hands each answer to the machine.
    fn ask<T: Send>(
        &mut self,
        asked: Vec<usize>,
        until: Instant,
        ask: impl Fn(&Asking<'_>, &SetAddress) -> Result<T> + Sync,
        input: impl Fn(usize, T) -> Input<Timestamp>,
    ) {
        let asking = Asking {
            server: self.server,
            op: self.op,
            until,
            id: self.id,
        };
        let asked: Vec<(usize, &SetAddress)> = asked
            .into_iter()
            .filter_map(|i| Some((i, self.participants.get(i)?)))
            .collect();
        let answers: Vec<(usize, Result<T>)> = match &asked[..] {
            [(i, set)] => vec![(*i, ask(&asking, set))],
            // A simulator has one thread.
            all if muniment_op::is_simulated() => {
                all.iter().map(|(i, set)| (*i, ask(&asking, set))).collect()
            }
            all => std::thread::scope(|s| {
                let (asking, ask) = (&asking, &ask);
                let threads: Vec<_> = all
                    .iter()
                    .map(|(i, set)| (*i, s.spawn(move || ask(asking, set))))
                    .collect();
                let panicked = || Error::internal("asking another set failed because of a bug");
                let join = |(i, t): (_, std::thread::ScopedJoinHandle<'_, Result<T>>)| {
                    (i, t.join().unwrap_or_else(|_| Err(panicked())))
                };
                threads.into_iter().map(join).collect()
            }),
        };
        for (i, answer) in answers {
            // One that has not answered is asked again.
            if let Ok(answer) = answer {
                self.machine.input(input(i, answer));
            }
        }
    }

    fn prepare(&mut self, actions: &[Action<Timestamp>], until: Instant) -> Result<()> {
        let own = own_set(self.server)?;
        let all = actions.iter().filter_map(|a| match a {
            Action::Prepare(i) => Some(*i),
            _ => None,
        });
        let ask = |asking: &Asking<'_>, set: &SetAddress| asking.prepare(set, &own);
        self.ask(all.collect(), until, ask, Input::Voted);
        Ok(())
    }

    fn resolve(&mut self, actions: &[Action<Timestamp>], until: Instant) {
        let mut decided = Decision::Abort;
        let mut all = Vec::new();
        for action in actions {
            if let Action::Resolve(i, decision) = action {
                decided = *decision;
                all.push(*i);
            }
        }
        let ask = |asking: &Asking<'_>, set: &SetAddress| asking.resolve(set, decided);
        self.ask(all, until, ask, |i, ()| Input::Resolved(i));
    }

    fn store(&mut self, decision: Decision<Timestamp>) -> Result<()> {
        // Another member may have led meanwhile, stored that the transaction is aborted, and forgotten it when its own
        // part was.
        if self.stint != self.server.transactions.stint() {
            return Err(Error::new(Code::NotWritablePrimary, "not primary"));
        }
        if let Decision::Commit(at) = decision {
            // What the client is told is not earlier than the commit.
            self.server.engine.store.advance_clock(at);
        }
        let stored =
            decisions::store(self.server, self.op, &self.id, &self.participants, decision)?;
        match stored.decision == decision {
            true => self.machine.input(Input::Stored),
            // A participant has asked before, and was answered that.
            false => self.machine = Coordinator::resume(self.participants.len(), stored.decision),
        }
        Ok(())
    }
}
