//! Members that have lost their disks, in a set that can commit nothing without them.
//!
//! A member that has lost its disk has forgotten what it acknowledged and how it voted. Mostly it takes part
//! in nothing before its leader has had a record committed by the others that was made since, so that all of
//! what it has forgotten is settled by then, and before its copy has all that it may have acknowledged. But
//! in a set in which every commit needs every voter with data, as one of a primary, a secondary and an
//! arbiter, the others can commit nothing: a leader that was elected since could not even commit the record
//! with which its term begins, and the member would never be filled.
//!
//! In such a set ([`Core::needs`]) the member is filled at once with what the leader knows to be committed,
//! and acknowledges records from then on, but **it neither votes nor stands before it has heard that
//! everything up to a place R, or a record of a later term than R's, is committed**
//! ([`LocalState::waits`](crate::LocalState::waits), which is on its disk before it sends any message). R is
//! a record that the leader made after the member had said that it has nothing. And a majority without the
//! member has confirmed since then that the leader leads ([`Core::confirm`]).
//!
//! *No acknowledged write is lost.* Say that the member S begins anew under the leader P of the term T.
//!
//! 1. P's log has every record that was committed before S lost its disk. A record of a term below T: no
//!    member votes after having forgotten something, so the members that elected P had all that they had
//!    acknowledged, as ever in raft. A record of term T: P made it. A record of a term above T: it would need
//!    P's acknowledgement in that term, as every commit does, and P would not lead in T any more. All this
//!    goes by the configuration in force at P: a later one would have been committed, and be in P's log,
//!    where [`Core::needs`] looks.
//! 2. So all of them are before R, which was made later, and which no leader could have committed before.
//! 3. While S waits, a leader is elected by members that have forgotten nothing, and has all that is
//!    committed. What S acknowledges meanwhile is a copy of the log of such a leader.
//! 4. When S hears from a leader that everything up to R's place is committed, and has it on its disk, its
//!    log up to there is that of the set, with all that S had acknowledged and that was committed (2). From
//!    there on S, like any voter, refuses its vote to a candidate that has less. The same holds for a record
//!    of a later term, whose leader had all that was committed before (3): R itself may be lost, as P need
//!    not have had it on its disk.
//!
//! *No two members lead in one term.* S may have voted in a term T' above T for a member X whose candidacy is
//! still under way. If X is S itself, that candidacy has ended with the loss; and had S been elected by then,
//! a majority without S would know of T', and would not have confirmed P. If X is another member with data,
//! it became a candidate before S lost its disk, and what S waits for is committed only with X's
//! acknowledgement. X gives that to P for R, which was made since, or to a leader that was elected since, as
//! P would not have been confirmed otherwise; in both cases after X had become a candidate in T', and so in
//! no earlier term. P's term is earlier; and a member that acknowledges another leader's records in T' or
//! later is no longer a candidate in T'.
//!
//! *A leader can be elected.* While S waits, a leader needs the votes of the others alone. P's log has no
//! change of the voters that is not in force when P confirms ([`Core::needs`]), and none gets there before R
//! is committed ([`Core::confirm`]). A later leader begins no such change before it has a record committed in
//! its term. So a member that has the change from it has heard that S's wait is over.
//!
//! *A configuration is forced.* If it is forced on S itself, S is to lead with what it has, and waits for
//! nothing any more. The same holds if S is the only voter with data that is left. If S is told of a
//! configuration that was forced elsewhere, and another voter has data, S votes from then on, since otherwise
//! it may be that no member can be elected. But S does not stand: it may have less than what was
//! acknowledged, which the other voter has.
//!
//! A leader that takes no writes, because its priority is 0, makes no R. If only it and S have data (so that
//! X can only be S) the end of its log serves instead: by 1 all is before that.

use super::{Core, RaftEntry, RaftMessage};
use crate::config::{ConfigRecord, MemberId};
use crate::convert::bytes_of;
use crate::state::Wait;

/// What a core knows about members that begin anew, itself among them.
#[derive(Default)]
pub(super) struct Anew {
    /// Until this ends, this member does not stand for election, and does not vote unless [`Wait::votes`] is
    /// set.
    pub(super) waits: Option<Wait>,
    /// A term and a place. In this term this member let a member be filled without which nothing can be
    /// committed, and until everything up to this place is committed no member's vote changes.
    pub(super) filling: (u64, u64),
}

impl Anew {
    /// The state of a member that has everything up to `committed`, where there is a record of `term`. Its
    /// wait may have ended without that having been saved.
    pub(super) fn new(waits: Option<Wait>, committed: u64, term: Option<u64>) -> Anew {
        Anew {
            waits: waits.filter(|waits| !waits.ends(committed, term)),
            ..Anew::default()
        }
    }
}

impl Core {
    /// Whether this member leads and nothing can be committed without the other one, because every commit
    /// needs every voter with data.
    pub fn needs(&self, member: MemberId) -> bool {
        let now = &self.in_force;
        let counts = now.counts();
        // A later configuration that changes the voters may be in force at other members already.
        let applied = self.applied();
        let mut later = self.node.store().configs().range(applied + 1..);
        let stay = later.all(|(_, record)| {
            ConfigRecord::decode(record).is_some_and(|record| now.steps(&record).is_empty())
        });
        self.leads()
            && now.voters.contains(&member)
            && !now.config.is_arbiter(member)
            && counts.writable == counts.majority
            && stay
    }

    /// Asks a majority whether this member leads. It does so as [`Core::read`] does, but even if this member
    /// has committed nothing in its term yet, and so may not know of everything that is committed. The answer
    /// is an [`Effect::Readable`](super::Effect::Readable). Returns false if this member does not lead. No
    /// member's vote changes in this term before everything that the log has now is committed.
    pub fn confirm(&mut self, token: u64) -> bool {
        if self.halted || !self.leads() {
            return false;
        }
        self.anew.filling = (self.term(), self.raft_last());
        let raft = &mut self.node.raft;
        let entry = RaftEntry {
            data: bytes_of(token).into(),
            ..RaftEntry::default()
        };
        let request = RaftMessage {
            from: raft.id,
            entries: vec![entry].into(),
            ..RaftMessage::default()
        };
        let (committed, id) = (raft.raft_log.committed, raft.id);
        raft.read_only.add_request(committed, request, id);
        // Raft repeats the question with every heartbeat.
        raft.ping();
        self.settle();
        true
    }

    /// Whether this member waits for something to be committed, and does not stand for election until then.
    pub fn waits(&self) -> bool {
        #[cfg(test)]
        if self.bugs.waits_for_nothing {
            return false;
        }
        self.anew.waits.is_some()
    }

    /// Whether this member votes. While it waits, it does so only if a configuration was forced meanwhile.
    pub(super) fn votes(&self) -> bool {
        !self.waits() || self.anew.waits.is_some_and(|waits| waits.votes)
    }

    /// Notes that more is committed, and durable here. True if that ends the wait.
    pub(super) fn note_committed(&mut self) -> bool {
        let applied = self.applied();
        let term = || self.node.store().term_of(applied);
        let ended = self.anew.waits.take_if(|waits| waits.ends(applied, term()));
        ended.is_some()
    }
}
