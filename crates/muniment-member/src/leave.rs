//! What a primary does before its server ends: it lets another member lead, so that the set is without a
//! primary for a moment, and not until an election timeout has passed.
//!
//! Invariant: this ends in bounded time, whatever the disk, the driver and the other members do.

use super::ReplicaSet;
use muniment_op::{Interrupt, Sleepers, sleep_until};
use muniment_value::{Code, Error, Result};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The member that leaves is not to be primary again before its process ends.
const FOR_GOOD: Duration = Duration::from_secs(24 * 3600);
/// The driver may be silent for so long after the time that it was given for the hand-over.
const SLACK: Duration = Duration::from_secs(2);
/// The member waits for so long until the next primary leads, which may need this one's vote.
const VOTES: Duration = Duration::from_secs(1);
/// The member goes on for so long once another one leads, so that clients have heard of that, and what they
/// have sent is answered: if a connection is closed before the answer, some drivers do not know that the
/// transaction may be run again.
const QUIET: Duration = Duration::from_millis(250);
/// The member asks again so long after a refusal: the reason of the refusal ends in the driver, which tells
/// nobody when it does.
const AGAIN: Duration = Duration::from_millis(2);

/// When no member that could take over has been reached for so long, the whole set is being ended.
const ALONE: Duration = Duration::from_secs(1);

/// The interrupt of the waiting thread: it gives up when the time is over, or the server ends all the same.
struct Within<'a> {
    set: &'a ReplicaSet,
    interrupt: &'a dyn Interrupt,
    end: Instant,
    /// Since when no member that could take over was reached; `None`: the thread does not give up by that.
    alone: Option<Mutex<Option<Instant>>>,
}

impl Within<'_> {
    fn is_alone(&self) -> bool {
        let Some(alone) = &self.alone else {
            return false;
        };
        let able = self.set.reaches_a_successor();
        let mut since = alone.lock();
        match able {
            true => *since = None,
            false => *since = since.or(Some(Instant::now())),
        }
        since.is_some_and(|at| at.elapsed() > ALONE)
    }
}

impl Interrupt for Within<'_> {
    fn check(&self) -> Result<()> {
        self.interrupt.check()?;
        if self.set.home.lifecycle.wait_for_stop_for(Duration::ZERO) {
            return Err(Error::new(
                Code::InterruptedAtShutdown,
                "the server ends without waiting for another primary any longer",
            ));
        }
        if self.is_alone() {
            return Err(Error::new(
                Code::HostUnreachable,
                "no member that could take over can be reached",
            ));
        }
        if Instant::now() > self.end {
            return Err(Error::new(
                Code::ExceededTimeLimit,
                "the member could not step down in time: its replication does not answer, or nobody has \
                 taken over",
            ));
        }
        Ok(())
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        self.interrupt.sleepers(show);
        show(&self.set.home.lifecycle.sleepers);
    }

    fn wakes_at(&self) -> Option<Instant> {
        // Nothing wakes the thread when members can no longer be reached, so it looks now and then.
        let alone = self.alone.is_some().then(|| Instant::now() + ALONE / 4);
        let all = [self.interrupt.wakes_at(), Some(self.end), alone];
        all.into_iter().flatten().min()
    }
}

impl ReplicaSet {
    /// Before the server ends, has a primary step down as soon as another member has caught up, within
    /// this time, and waits until that one leads and clients have heard of it. A member that is no
    /// primary, or is alone in its set, has nothing to hand over.
    ///
    /// # Errors
    /// 262 if no other member has caught up within the time, or the driver does not answer; 11600 if the
    /// server ends all the same meanwhile; what `interrupt` says before the member has stepped down, and then
    /// it does not step down; 6 if the server `ends_anyway` and no member that could take over can be reached.
    pub fn hand_over(
        &self,
        within: Duration,
        ends_anyway: bool,
        interrupt: &dyn Interrupt,
    ) -> Result<()> {
        if !self.leads() || !self.has_others() {
            return Ok(());
        }
        let end = Instant::now() + within;
        let bounded = Within {
            set: self,
            interrupt,
            end: end + SLACK,
            alone: ends_anyway.then(Mutex::default),
        };
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.step_down(&bounded, FOR_GOOD, left, false) {
                Ok(()) => break,
                Err(e) if e.code() == Code::NotWritablePrimary && !self.leads() => break,
                // The member steps down already, or offers the leadership to another, which may not take it.
                Err(e) if e.code() == Code::ConflictingOperationInProgress => {}
                Err(e) if e.code() == Code::NotWritablePrimary => {}
                Err(e) => return Err(e),
            }
            sleep_until(Instant::now() + AGAIN, &bounded)?;
        }
        // This member leads no more, and is not to for long: whatever these waits bring, the server ends.
        let until = Instant::now() + VOTES;
        let led = || {
            let member = self.member();
            member.leader.is_some_and(|leader| leader != member.id)
        };
        let waited = self.wait_until(&bounded, until, led);
        let _ = waited.and_then(|_| sleep_until(Instant::now() + QUIET, &bounded));
        Ok(())
    }

    /// Whether this member leads, also while it takes no writes because it offers the leadership to another.
    fn leads(&self) -> bool {
        self.is_primary()
            || self
                .node()
                .is_some_and(|node| node.leading_term().is_some())
    }

    /// Whether a member that may be primary can be reached, as far as is known.
    fn reaches_a_successor(&self) -> bool {
        self.node().is_some_and(|node| {
            let members = node.members();
            let now = members.in_force();
            let troubles = node.troubles.lock();
            let others = now.voters.iter().filter(|id| **id != node.id);
            let mut able = others.filter(|id| now.rank(**id) > 0);
            able.any(|id| !troubles.contains_key(id))
        })
    }
}
