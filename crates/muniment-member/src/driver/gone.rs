//! Whether the primary's process has ended.
//!
//! A process that ends, however it does, leaves its sockets to the system, which closes them at once and
//! refuses new connections. A member that sees both of the primary tells the core, which then votes for
//! others and soon campaigns: [`muniment_consensus::Core::gone`]. A majority has to have seen the same, or
//! no member is elected: one that still hears of the primary refuses its preliminary vote. This only
//! decides how soon there is a new primary; as ever it is the votes that ensure that there are never two
//! in a term, and that what the majority has is kept.
//!
//! A primary whose process was started again at once refuses connections for a short time only. But then
//! it says itself that it does not lead, as does a primary that has stepped down, and that can be relied
//! on: a member that does not lead a term that it knows never leads it again.
//!
//! A primary that is stopped, far away or cut off closes nothing, and a machine that is gone refuses
//! nothing: only the election timeout detects these.

use super::Driver;
use muniment_consensus::MemberId;
use muniment_value::doc;
use std::sync::atomic::Ordering::Relaxed;

impl Driver {
    /// A member has opened a way to this one.
    pub(super) fn came_to(&mut self, member: MemberId) {
        *self.open.entry(member).or_default() += 1;
    }

    /// A way that a member had opened has ended.
    pub(super) fn left(&mut self, member: MemberId) {
        if let Some(open) = self.open.get_mut(&member) {
            *open = open.saturating_sub(1);
        }
        self.open.retain(|_, open| *open > 0);
        self.look_for_leader();
    }

    fn looks_for_leader(&self) -> bool {
        self.set.home.parameters.elects_when_gone.load(Relaxed)
    }

    /// A member has reported which leader it follows in which term, itself if it leads. A report that a
    /// member sent as a candidate may come after the first message that it sent as the leader. Then it counts
    /// as gone until the next of its messages as the leader.
    pub(super) fn told_of_leader(
        &mut self,
        member: MemberId,
        term: u64,
        follows: Option<MemberId>,
    ) {
        if follows == Some(member) {
            self.core.found(member);
            return;
        }
        let known = self.core.is_leader_gone() || self.core.leader() != Some(member);
        if known || term < self.core.term() || !self.looks_for_leader() {
            return;
        }
        self.core.gone(member);
        let host = self.peers.get(&member).map_or("", |link| link.way.host());
        self.info(
            21_344,
            "The primary leads no more: it has said so itself",
            &doc! { "primary": host, "term": self.core.term() as i64 },
        );
    }

    /// Sees whether the leader has ended.
    pub(super) fn look_for_leader(&mut self) {
        let leader = self.core.leader().filter(|id| *id != self.node.id);
        let Some(leader) = leader else {
            return;
        };
        let looks = self.looks_for_leader();
        let Some(link) = self.peers.get(&leader).filter(|_| looks) else {
            self.core.found(leader);
            return;
        };
        if self.open.contains_key(&leader) {
            return;
        }
        if !link.way.is_refused() {
            link.way.probe();
        } else if !self.core.is_leader_gone() {
            let host = link.way.host().to_string();
            self.core.gone(leader);
            self.info(
                21_343,
                "The primary has ended: it has closed its connections, and nobody listens where it was",
                &doc! { "primary": host, "term": self.core.term() as i64 },
            );
        }
    }
}
