//! Which members can be asked for a copy, by what they have reported of themselves.

use super::choose::{Candidate, Preference, choose};
use crate::lifecycle::{Stopping, ended};
use crate::node::Node;
use crate::role::Role;
use crate::set::ReplicaSet;
use muniment_consensus::MemberId;
use muniment_op::Interrupt;
use muniment_value::Result;
use std::time::{Duration, Instant};

/// The choice of a source waits for so long until the distances of the other members are known.
const MEASURES: Duration = Duration::from_secs(5);

/// A member of which nothing was heard for so long is no source.
const SILENT: Duration = Duration::from_secs(10);

/// The members that are to be asked for a copy, in order.
pub(crate) fn sources(set: &ReplicaSet, node: &Node, leader: MemberId) -> Result<Vec<MemberId>> {
    let preference = *set.home.parameters.sync_source.read();
    let (_, config) = set.initialized()?;
    let members = node.members();
    let open = |m: &&muniment_consensus::Member| {
        let shown = config.member(m.key);
        m.id != node.id && shown.is_some_and(|m| !m.arbiter && !m.hidden && m.delay_secs == 0)
    };
    let all = members.in_force().config.members.iter().filter(open);
    let all: Vec<MemberId> = all.map(|m| m.id).collect();
    let candidates = match preference {
        Preference::Primary => Vec::new(),
        _ => {
            let heartbeats = Duration::from_millis(config.heartbeat_ms.max(1) as u64 * 3);
            let until = Instant::now() + MEASURES.min(heartbeats);
            candidates(node, &all, until, &Stopping(&set.home.lifecycle))?
        }
    };
    Ok(choose(preference, leader, &candidates))
}

/// Waits until each of these members is a candidate, which it is once it has reported and its distance is
/// known. Returns those that are by `until`.
///
/// # Errors
/// 91 if the driver ends; the error of `on`.
fn candidates(
    node: &Node,
    members: &[MemberId],
    until: Instant,
    on: &dyn Interrupt,
) -> Result<Vec<Candidate>> {
    let all = || match node.inbox.is_stopped() {
        true => Some(Err(ended())),
        false => {
            let now = candidates_now(node, members);
            (now.len() == members.len()).then_some(Ok(now))
        }
    };
    let all = node.reported.wait_for_until((), on, until, all)?;
    all.unwrap_or_else(|| Ok(candidates_now(node, members)))
}

fn candidates_now(node: &Node, members: &[MemberId]) -> Vec<Candidate> {
    let heard = node.heard.lock();
    let candidate = |id: &MemberId| {
        let of = heard.of(*id).filter(|of| of.at.elapsed() < SILENT)?;
        let roles = [Role::Primary, Role::Secondary];
        let role = roles.into_iter().find(|r| r.state().0 == of.report.state)?;
        Some(Candidate {
            id: *id,
            role,
            ping: of.ping?,
        })
    };
    let open = members.iter().filter(|id| !node.avoids(**id));
    open.filter_map(candidate).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::lifecycle::Lifecycle;
    use crate::report::Report;
    use muniment_value::Code;

    /// A secondary reports, which takes `ms` milliseconds to get an answer.
    fn reports(node: &Node, from: MemberId, ms: i64) {
        let report = Report {
            from,
            state: Role::Secondary.state().0,
            echo: Some((0, 0)),
            ..Report::default()
        };
        let (now, patience) = (Instant::now(), Duration::from_secs(10));
        node.hear(|heard| heard.note(report, now, ms * 1000, 0, patience));
    }

    /// Has a thread wait for the members 2 and 3, of which only 2 has reported. Calls `then` once the thread
    /// waits. It is to end long before the time after which it would go on without the other one.
    fn candidates_after(
        node: &Node,
        life: &Lifecycle,
        then: impl FnOnce(),
    ) -> Result<Vec<Candidate>> {
        reports(node, 2, 30);
        let until = Instant::now() + Duration::from_secs(24 * 3600);
        std::thread::scope(|s| {
            let waits = s.spawn(|| candidates(node, &[2, 3], until, &Stopping(life)));
            while node.reported.waiting() == 0 {
                assert!(!waits.is_finished(), "the thread did not wait");
                std::thread::yield_now();
            }
            then();
            waits.join().unwrap()
        })
    }

    #[test]
    fn the_choice_waits_for_the_last_report() {
        let (node, life) = (Node::alone(), Lifecycle::default());
        let found = candidates_after(&node, &life, || reports(&node, 3, 80)).unwrap();
        let found: Vec<_> = found.iter().map(|c| (c.id, c.ping.as_millis())).collect();
        assert_eq!(found, [(2, 30), (3, 80)]);
        // Once the time has passed, those of which something was heard have to do.
        let found = candidates(&node, &[2, 4], Instant::now(), &Stopping(&life));
        assert_eq!(found.unwrap().len(), 1);
        // A source of which a copy has just failed is none.
        node.avoid(2);
        let found = candidates(&node, &[2, 3], Instant::now(), &Stopping(&life));
        assert_eq!(found.unwrap().len(), 1);
    }

    #[test]
    fn the_end_of_the_driver_and_of_the_server_end_the_wait_for_reports() {
        let life = Lifecycle::default();
        let stopped = Node::alone();
        let stops = candidates_after(&stopped, &life, || stopped.stop());
        assert_eq!(stops.unwrap_err().code(), Code::ShutdownInProgress);
        let node = Node::alone();
        let ends = candidates_after(&node, &life, || life.begin_stopping());
        assert_eq!(ends.unwrap_err().code(), Code::InterruptedAtShutdown);
        assert_eq!(node.reported.waiting(), 0);
    }
}
