//! The ways to the other members, and when what is given to them is sent.
//!
//! Everything is sent at once, except the log's records for a member that is far away while no client
//! waits for it: those are gathered for a twentieth of the round trip. A message costs both members,
//! and whatever stands between them, far more than one more record in it does, and would take processor
//! time from clients that wait for a member near by.
//!
//! Invariants: what was given is sent in its order. Nothing waits longer than [`LONGEST`] once the
//! driver has its turn, and what a write concern needs, or another kind of message, does not wait at all.

use super::Driver;
use crate::peer::Way;
use muniment_consensus::{Body, Message};
use muniment_value::DocBuf;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A member with a round trip of at least this is far away.
const FAR: Duration = Duration::from_millis(10);
/// Records are gathered for this part of the round trip.
const PART: u32 = 20;
/// Records are gathered for no longer than this.
const LONGEST: Duration = Duration::from_millis(5);

/// The way to one other member.
pub struct Link {
    pub way: Box<dyn Way>,
    /// The address that this member gave as its own when it opened the way.
    pub told: Option<String>,
    /// The greeting with which the way is opened, which may happen again at any time.
    pub greeting: Arc<Mutex<DocBuf>>,
    /// The other member can be reached, and acknowledges at once what it gets.
    answers: bool,
    gathers: Gathers,
}

/// What may be gathered on a way, and until when.
struct Gathers {
    /// For how long; `None` if the member is near.
    span: Option<Duration>,
    given: Given,
    /// When what is gathered is to be sent.
    due: Option<Instant>,
}

/// What was given since the last time that something was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    Nothing,
    /// Records, or how far they are committed.
    Records,
    /// Something else, too.
    More,
}

impl Link {
    pub fn new(way: Box<dyn Way>, told: Option<String>, greeting: Arc<Mutex<DocBuf>>) -> Link {
        Link {
            way,
            told,
            greeting,
            answers: true,
            gathers: Gathers::new(),
        }
    }

    pub fn send(&mut self, message: Message) {
        self.gathers.note(Some(&message.body));
        self.way.send(message);
    }

    pub fn report(&mut self, report: DocBuf) {
        self.gathers.note(None);
        self.way.report(report);
    }
}

impl Gathers {
    fn new() -> Gathers {
        Gathers {
            span: None,
            given: Given::Nothing,
            due: None,
        }
    }

    /// A message was given, or a report.
    fn note(&mut self, message: Option<&Body>) {
        match (message, self.given) {
            (Some(Body::Append { .. }), Given::Nothing) => self.given = Given::Records,
            (Some(Body::Append { .. }), _) => {}
            _ => self.given = Given::More,
        }
    }

    /// Notes the round trip to the member.
    fn set_distance(&mut self, ping: Option<Duration>) {
        let far = ping.filter(|ping| *ping >= FAR);
        self.span = far.map(|ping| (ping / PART).min(LONGEST));
    }

    /// Whether what was given could wait for more.
    fn can_wait(&self) -> bool {
        self.span.is_some() && self.given == Given::Records
    }

    /// Whether what was given, which could wait, still does at the time `now`.
    fn waits(&mut self, now: Instant) -> bool {
        let Some(span) = self.span.filter(|_| self.can_wait()) else {
            return false;
        };
        now < *self.due.get_or_insert(now + span)
    }

    fn sent(&mut self) {
        self.given = Given::Nothing;
        self.due = None;
    }
}

impl Driver {
    /// Sends what was given to the ways to other members, except what waits for more.
    pub(super) fn send(&mut self) {
        let far = self.peers.values().any(|link| link.gathers.can_wait());
        let now = (far && !self.is_far_needed()).then(|| self.instant());
        for Link { way, gathers, .. } in self.peers.values_mut() {
            if !now.is_some_and(|now| gathers.waits(now)) {
                gathers.sent();
                way.flush(&self.set.home.engine.store);
            }
        }
    }

    /// Sends whatever was given.
    pub(super) fn send_all(&mut self) {
        for Link { way, gathers, .. } in self.peers.values_mut() {
            gathers.sent();
            way.flush(&self.set.home.engine.store);
        }
    }

    /// Whether a client waits for what the members near by cannot give.
    fn is_far_needed(&self) -> bool {
        let helps = |link: &Link| link.gathers.span.is_none() && link.answers;
        let cannot = |id| self.peers.get(&id).is_some_and(|link| !helps(link));
        self.node.waits_for(cannot)
    }

    /// When something that is gathered is to be sent.
    pub(super) fn gathered_until(&self) -> Option<Instant> {
        let links = self.peers.values();
        links.filter_map(|link| link.gathers.due).min()
    }

    /// Learns how far away the others are, and which of them answer at all.
    pub(super) fn measure_distances(&mut self) {
        let config = self.config();
        let silent = self.report_every() * 2;
        let now = self.instant();
        let in_force = self.core.in_force();
        let heard = self.node.heard.lock();
        for (id, link) in &mut self.peers {
            let member = in_force.config.member(*id);
            let delays = member
                .zip(config.as_ref())
                .and_then(|(m, config)| config.member(m.key))
                .is_some_and(|m| m.delay_secs > 0);
            let heard = heard.of(*id);
            let speaks = heard.is_some_and(|h| now.saturating_duration_since(h.at) < silent);
            link.answers = speaks && !delays && link.way.trouble().is_none();
            link.gathers.set_distance(heard.and_then(|h| h.ping));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn records() -> Body {
        Body::Append {
            index: 1,
            log_term: 1,
            commit: 1,
            entries: Vec::new(),
        }
    }

    #[test]
    fn nothing_waits_on_the_way_to_who_is_near() {
        let (mut g, now) = (Gathers::new(), Instant::now());
        for near in [None, Some(MS), Some(FAR - MS)] {
            g.set_distance(near);
            g.note(Some(&records()));
            assert!(!g.can_wait() && !g.waits(now) && g.due.is_none());
        }
    }

    #[test]
    fn records_for_who_is_far_wait_a_part_of_the_way() {
        let (mut g, now) = (Gathers::new(), Instant::now());
        for (ping, span) in [(10 * MS, MS / 2), (90 * MS, 9 * MS / 2), (900 * MS, 5 * MS)] {
            g.set_distance(Some(ping));
            assert!(!g.can_wait(), "nothing was given");
            g.note(Some(&records()));
            assert!(g.can_wait() && g.waits(now));
            // Records that come meanwhile do not delay the sending.
            g.note(Some(&records()));
            assert!(g.waits(now + span / 2) && g.due == Some(now + span));
            assert!(!g.waits(now + span));
            g.sent();
            assert!(!g.can_wait() && g.due.is_none());
        }
    }

    #[test]
    fn other_messages_and_reports_take_along_what_waits() {
        let (mut g, now) = (Gathers::new(), Instant::now());
        g.set_distance(Some(90 * MS));
        for other in [None, Some(Body::TimeoutNow)] {
            g.note(Some(&records()));
            assert!(g.waits(now));
            g.note(other.as_ref());
            assert!(!g.can_wait() && !g.waits(now));
            g.note(Some(&records()));
            assert!(!g.can_wait());
            g.sent();
        }
        // The member turns out to be near: what was gathered for it no longer waits.
        g.note(Some(&records()));
        assert!(g.waits(now));
        g.set_distance(Some(MS));
        assert!(!g.waits(now));
    }
}
