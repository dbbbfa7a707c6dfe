//! Write concerns and their waiters, checked against counting by hand.

use crate::tests::cluster::{arbiter, member};
use crate::timer::Draw;
use crate::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn members() -> Members {
    let mut members: Vec<Member> = (1..=5).map(member).collect();
    for (m, dc) in members.iter_mut().zip(["a", "a", "b", "b", "c"]) {
        m.tags = BTreeMap::from([("dc".into(), dc.into()), ("rack".into(), m.id.to_string())]);
    }
    members[4].votes = false;
    let wanted = |dc, rack| BTreeMap::from([("dc".to_owned(), dc), ("rack".to_owned(), rack)]);
    let config = Config {
        version: 1,
        next_id: 6,
        members,
        modes: BTreeMap::from([
            ("both".into(), wanted(2, 3)),
            ("never".into(), wanted(4, 1)),
        ]),
        ..Config::default()
    };
    let in_force = InForce {
        index: 0,
        voters: BTreeSet::from([1, 2, 3, 4]),
        learners: BTreeSet::from([5]),
        config,
    };
    Members::new(1, Position::default(), Arc::new(in_force))
}

fn at(members: &Members, committed: u64) -> Progress<'_> {
    Progress { members, committed }
}

fn concern(w: W, journaled: bool) -> Concern {
    Concern { w, journaled }
}

fn position(applied: u64, durable: u64) -> Position {
    Position {
        written: applied,
        applied,
        durable,
    }
}

#[test]
fn which_members_count() {
    let mut m = members();
    m.report(1, position(10, 10));
    m.report(3, position(10, 4));
    m.report(5, position(10, 10));
    m.report(9, position(10, 10));
    let is = |m: &Members, w, journaled| concern(w, journaled).is_satisfied(10, at(m, 9));
    // The member without a vote counts; the one whose journal lags counts only without j.
    assert!(is(&m, W::Members(3), false) && !is(&m, W::Members(4), false));
    assert!(is(&m, W::Members(2), true) && !is(&m, W::Members(3), true));
    assert!(is(&m, W::Members(0), true));
    assert!(is(&m, W::Mode("both".into()), false) && !is(&m, W::Mode("both".into()), true));
    assert!(!is(&m, W::Mode("gone".into()), false));
    assert!(is(&m, W::Tags(BTreeMap::from([("dc".into(), 3)])), false));
    assert!(!is(&m, W::Majority, false));
    assert!(concern(W::Majority, true).is_satisfied(9, at(&m, 9)));
    // A member that is synced anew does not count.
    m.syncing(5, true);
    assert!(!is(&m, W::Members(3), false));
    m.syncing(5, false);
    assert!(is(&m, W::Members(3), false));
    // A position that was reported before the leadership began does not count, either.
    m.forget_others();
    assert!(is(&m, W::Members(1), false) && !is(&m, W::Members(2), false));
}

/// An arbiter has no records, whatever it reports, but it counts among the members of which a majority is
/// needed.
#[test]
fn arbiters_do_not_count() {
    let config = Config {
        version: 1,
        next_id: 4,
        members: vec![member(1), member(2), arbiter(3)],
        ..Config::default()
    };
    let in_force = InForce {
        index: 0,
        voters: BTreeSet::from([1, 2, 3]),
        learners: BTreeSet::new(),
        config,
    };
    let mut m = Members::new(1, position(10, 10), Arc::new(in_force));
    m.report(3, position(10, 10));
    let two = concern(W::Members(2), false);
    assert!(!two.is_satisfied(10, at(&m, 9)));
    m.report(2, position(10, 10));
    assert!(two.is_satisfied(10, at(&m, 9)));
    assert!(concern(W::Members(3), false).check(&m).is_err() && two.check(&m).is_ok());
    let majority = concern(W::Majority, true);
    assert!(
        majority.can_do_without(&m, |id| id == 3) && !majority.can_do_without(&m, |id| id == 2)
    );
}

#[test]
fn a_concern_that_can_never_be_satisfied_is_refused() {
    let m = members();
    let code = |w| concern(w, false).check(&m).err().map(|e| e.code().0);
    assert_eq!(code(W::Members(5)), None);
    assert_eq!(code(W::Members(6)), Some(100));
    assert_eq!(code(W::Majority), None);
    assert_eq!(code(W::Mode("both".into())), None);
    assert_eq!(code(W::Mode("never".into())), Some(100));
    assert_eq!(code(W::Mode("gone".into())), Some(79));
    assert_eq!(code(W::Tags(BTreeMap::from([("dc".into(), 3)]))), None);
    assert_eq!(code(W::Tags(BTreeMap::from([("dc".into(), 4)]))), Some(100));
    assert_eq!([1, 2, 3, 4, 5, 7].map(majority), [1, 2, 2, 3, 3, 4]);
}

/// Over random reports, each waiter is woken exactly when its concern is satisfied, and once.
#[test]
fn all_are_woken_in_time() {
    for seed in 0..50 {
        let mut draw = Draw::new(seed);
        let (mut m, mut committed) = (members(), 0);
        let mut waiters = Waiters::new();
        let mut waiting: BTreeMap<WaiterId, (u64, Concern)> = BTreeMap::new();
        let mut woken = 0;
        for index in 1..200 {
            let w = match draw.below(6) {
                n @ 0..3 => W::Members(1 + n as u32),
                3 => W::Majority,
                4 => W::Mode("both".into()),
                _ => W::Tags(BTreeMap::from([("dc".into(), 1 + draw.below(3) as u32)])),
            };
            let c = concern(w, draw.below(2) == 0);
            let done = c.is_satisfied(index, at(&m, committed));
            match waiters.wait(index, &c, at(&m, committed)) {
                None => assert!(done),
                Some(id) => {
                    assert!(!done);
                    waiting.insert(id, (index, c));
                }
            }
            if draw.below(10) == 0
                && let Some(id) = waiting.keys().next().copied()
            {
                waiters.leave(id);
                waiting.remove(&id);
            }
            let id = 1 + draw.below(5);
            let applied = draw.below(index + 1);
            m.report(id, position(applied, draw.below(applied + 1)));
            committed = committed.max(draw.below(index + 1));
            let woken_now: BTreeSet<_> = waiters.satisfied(at(&m, committed)).into_iter().collect();
            woken += woken_now.len();
            let satisfied = waiting
                .extract_if(.., |_, (index, c)| {
                    c.is_satisfied(*index, at(&m, committed))
                })
                .map(|(id, _)| id);
            assert_eq!(woken_now, satisfied.collect());
        }
        assert!(woken > 50, "{woken}");
        let rest: BTreeSet<_> = waiters.drain().into_iter().collect();
        assert_eq!(rest, waiting.into_keys().collect());
        assert!(waiters.is_empty());
    }
}

#[test]
fn a_waiter_that_can_never_be_woken_is_told() {
    let mut m = members();
    let mut waiters = Waiters::new();
    let five = waiters.wait(3, &concern(W::Members(5), false), at(&m, 0));
    let both = waiters.wait(3, &concern(W::Mode("both".into()), false), at(&m, 0));
    let two = waiters.wait(3, &concern(W::Members(2), false), at(&m, 0));
    assert!(!waiters.wait_for_disks());
    assert!(waiters.need(&m, |id| id == 5) && !waiters.need(&m, |_| false));
    assert!(waiters.hopeless(at(&m, 0)).is_empty());
    let mut less = (**m.in_force()).clone();
    less.config.members.pop();
    less.config.modes.clear();
    m.configure(Arc::new(less), 0);
    let told = waiters.hopeless(at(&m, 0));
    let told: Vec<_> = told
        .into_iter()
        .map(|(id, e)| (Some(id), e.code().0))
        .collect();
    assert_eq!(told, [(five, 100), (both, 79)]);
    assert_eq!(waiters.drain(), [two.unwrap()]);
    assert!(!waiters.need(&m, |_| true));
}

#[test]
fn which_members_are_needed() {
    let mut m = members();
    let can = |m: &Members, w, without: &[u64]| {
        let without = without.to_vec();
        concern(w, false).can_do_without(m, |id| without.contains(&id))
    };
    // Members 1 to 4 vote, in centres a, a, b and b; 5 does not, in c.
    assert!(can(&m, W::Members(2), &[3, 4, 5]) && !can(&m, W::Members(3), &[3, 4, 5]));
    assert!(can(&m, W::Majority, &[4, 5]) && !can(&m, W::Majority, &[3, 4]));
    let mode = |name: &str| W::Mode(name.into());
    assert!(can(&m, mode("both"), &[2, 5]) && !can(&m, mode("both"), &[3, 4, 5]));
    assert!(!can(&m, mode("unknown"), &[]));
    let tags = W::Tags(BTreeMap::from([("dc".into(), 3)]));
    assert!(can(&m, tags.clone(), &[2, 4]) && !can(&m, tags, &[5]));
    // A member that is being filled anew acknowledges nothing.
    m.syncing(2, true);
    assert!(!can(&m, W::Members(2), &[3, 4, 5]));
    // A member that is to vote but does not yet counts for the majority that a client was promised.
    let mut joining = (**m.in_force()).clone();
    joining.voters = BTreeSet::from([1]);
    joining.learners = BTreeSet::from([2, 3, 4, 5]);
    m.configure(Arc::new(joining), 0);
    assert!(can(&m, W::Majority, &[4]) && !can(&m, W::Majority, &[3, 4]));
}

#[test]
fn whose_disks_are_waited_for() {
    let disks = |w, journaled| concern(w, journaled).waits_for_disks();
    let mode = || W::Mode("both".into());
    assert!(disks(W::Majority, false) && disks(W::Majority, true));
    assert!(!disks(W::Members(1), true) && !disks(W::Members(2), false));
    assert!(disks(W::Members(2), true) && disks(mode(), true) && !disks(mode(), false));
    let (m, mut waiters) = (members(), Waiters::new());
    let two = concern(W::Members(2), false);
    waiters.wait(3, &two, at(&m, 0)).unwrap();
    assert!(!waiters.wait_for_disks());
    let most = waiters.wait(3, &concern(W::Majority, false), at(&m, 0));
    assert!(waiters.wait_for_disks());
    waiters.leave(most.unwrap());
    assert!(!waiters.wait_for_disks());
}

/// Records that the first voters of a new set commit alone are not at the majority that a client was
/// promised, not even after the other members have got their votes.
#[test]
fn records_committed_by_fewer_than_the_founders_are_waited_for() {
    let mut m = members();
    let majority = concern(W::Majority, false);
    let has = |m: &Members, index| majority.is_satisfied(index, at(m, index));
    let mut founding = (**m.in_force()).clone();
    let voters = std::mem::replace(&mut founding.voters, BTreeSet::from([1]));
    founding.learners = BTreeSet::from([2, 3, 4, 5]);
    let mut founded = founding.clone();
    (founded.voters, founded.learners) = (voters, BTreeSet::from([5]));
    m.configure(Arc::new(founding), 0);
    m.report(1, position(12, 12));
    assert!(!has(&m, 7));
    // The log ends at 10 when the last founder gets its vote.
    m.configure(Arc::new(founded.clone()), 10);
    assert!(!has(&m, 7) && !has(&m, 10) && has(&m, 11));
    m.report(2, position(7, 7));
    m.report(3, position(7, 7));
    assert!(has(&m, 7) && !has(&m, 8));
    // A later configuration does not change that.
    m.configure(Arc::new(founded), 20);
    assert!(!has(&m, 8) && has(&m, 11));
}

/// Founders count before they vote; a member that was added later counts once it votes.
#[test]
fn which_members_are_counted() {
    let founded = Config {
        version: 1,
        ..Config::default().number(Config {
            members: (1..=3).map(member).collect(),
            ..Config::default()
        })
    };
    let mut more = founded.clone();
    more.members.extend([member(7), member(8)]);
    more.members[4].votes = false;
    let added = founded.number(more);
    let again = added.number(Config {
        more: BTreeMap::new(),
        ..added.clone()
    });
    assert_eq!(again, added);
    let counted = |config: &Config, voters: &[u64]| {
        let in_force = InForce {
            voters: voters.iter().copied().collect(),
            config: config.clone(),
            ..InForce::default()
        };
        let c = in_force.counts();
        [c.voting, c.writable, c.majority, c.write_majority]
    };
    assert_eq!(counted(&founded, &[1]), [1, 1, 1, 2]);
    assert_eq!(counted(&founded, &[1, 2, 3]), [3, 3, 2, 2]);
    assert_eq!(counted(&added, &[1, 2, 3]), [3, 3, 2, 2]);
    assert_eq!(counted(&added, &[1, 2, 3, 4]), [4, 4, 3, 3]);
    // Members 2 and 3 should vote but do not at present, as after the loss of their directories. Founders
    // still count for a write.
    assert_eq!(counted(&added, &[1, 4]), [2, 2, 2, 3]);
}

/// The configuration has the address of a removed voter until its vote is gone, also when encoded, and no
/// longer.
#[test]
fn a_going_member_can_be_found_until_it_has_gone() {
    let founded = Config {
        version: 1,
        ..Config::default().number(Config {
            members: (1..=3).map(member).collect(),
            ..Config::default()
        })
    };
    assert!(founded.going().is_empty());
    let mut left = founded.clone();
    left.version = 2;
    left.members.pop();
    let left = founded.number(left);
    let host = founded.members[2].host.clone();
    let record = ConfigRecord {
        change: None,
        config: left.clone(),
    };
    let read = ConfigRecord::decode(&record.encode()).unwrap();
    assert_eq!(read.config.going(), BTreeMap::from([(3, host)]));
    let mut gone = left.clone();
    gone.is_gone(2);
    assert_eq!(gone, left);
    gone.is_gone(3);
    assert!(gone.going().is_empty());
    // The next configuration knows the members that it removes itself.
    let mut next = left.clone();
    next.members.pop();
    let next = left.number(next);
    assert_eq!(next.going().into_keys().collect::<Vec<_>>(), [2]);
}
