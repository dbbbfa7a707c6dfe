//! Write concerns and those who wait for them, against counting by hand.

use crate::tests::cluster::member;
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
        document: Vec::new(),
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
fn who_counts() {
    let mut m = members();
    m.report(1, position(10, 10));
    m.report(3, position(10, 4));
    m.report(5, position(10, 10));
    m.report(9, position(10, 10));
    let is = |m: &Members, w, journaled| concern(w, journaled).is_satisfied(10, at(m, 9));
    // The member without a vote counts, the one whose journal is behind only without j.
    assert!(is(&m, W::Members(3), false) && !is(&m, W::Members(4), false));
    assert!(is(&m, W::Members(2), true) && !is(&m, W::Members(3), true));
    assert!(is(&m, W::Members(0), true));
    assert!(is(&m, W::Mode("both".into()), false) && !is(&m, W::Mode("both".into()), true));
    assert!(!is(&m, W::Mode("gone".into()), false));
    assert!(is(&m, W::Tags(BTreeMap::from([("dc".into(), 3)])), false));
    assert!(!is(&m, W::Majority, false));
    assert!(concern(W::Majority, true).is_satisfied(9, at(&m, 9)));
    // Who is synced anew does not.
    m.syncing(5, true);
    assert!(!is(&m, W::Members(3), false));
    m.syncing(5, false);
    assert!(is(&m, W::Members(3), false));
    // What was told before the leadership began does not, either.
    m.forget_others();
    assert!(is(&m, W::Members(1), false) && !is(&m, W::Members(2), false));
}

#[test]
fn what_can_never_be_is_refused() {
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

/// Over random reports: everybody is woken exactly when its concern is satisfied, and once.
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
fn who_can_never_be_woken_is_told() {
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
    m.configure(Arc::new(less));
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
fn who_is_needed() {
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
    // Who is being filled anew acknowledges nothing.
    m.syncing(2, true);
    assert!(!can(&m, W::Members(2), &[3, 4, 5]));
    // Who is to vote and does not yet is part of the majority that is promised.
    let mut joining = (**m.in_force()).clone();
    joining.voters = BTreeSet::from([1]);
    joining.learners = BTreeSet::from([2, 3, 4, 5]);
    m.configure(Arc::new(joining));
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
