//! The state file: after a failure or a power cut at any moment it is the old one or the new one, and no
//! bytes make its reader panic.

use crate::tests::cluster::member;
use crate::timer::Draw;
use crate::*;
use muniment_io::sim::{EIO, ENOSPC, Fault, Op};
use muniment_io::{Disk, SimDisk};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

const DIR: &str = "/data";

fn config(version: u64) -> Config {
    let mut config = Config {
        version,
        next_id: 5,
        members: (1..5).map(member).collect(),
        modes: BTreeMap::from([("each".into(), BTreeMap::from([("dc".into(), 2)]))]),
        document: b"document".to_vec(),
        more: BTreeMap::from([(7, b"of a later version".to_vec())]),
    };
    config.members[3].votes = false;
    config.members[3].arbiter = true;
    config.members[0].tags = BTreeMap::from([("dc".into(), "east".into())]);
    config
}

fn state(term: u64) -> LocalState {
    let change = ConfigRecord {
        change: Some(Change::Voter(3)),
        config: config(3),
    };
    LocalState {
        id: 2,
        term,
        vote: 1,
        commit: 40,
        known: 44,
        terms: vec![(1, 1), (30, term.min(4)), (41, term)],
        configs: BTreeMap::from([(41, change.encode())]),
        in_force: InForce {
            index: 35,
            voters: BTreeSet::from([1, 2]),
            learners: BTreeSet::from([3, 4]),
            config: config(2),
        },
        rollback_id: 3,
        cut: Some(45),
        waits: None,
    }
}

fn disk() -> (SimDisk, StateFile) {
    let disk = SimDisk::new();
    disk.create_dir(Path::new(DIR)).unwrap();
    let file = StateFile::new(Arc::new(disk.clone()), Path::new(DIR));
    (disk, file)
}

fn on(disk: &SimDisk) -> Option<LocalState> {
    let file = StateFile::new(Arc::new(disk.clone()), Path::new(DIR));
    file.read().unwrap()
}

#[test]
fn comes_back_as_it_was() {
    let (disk, file) = disk();
    assert_eq!(file.read().unwrap(), None);
    file.write(&state(5)).unwrap();
    assert_eq!(file.read().unwrap(), Some(state(5)));
    assert_eq!(on(&disk.power_cut(1)), Some(state(5)));
    file.remove().unwrap();
    assert_eq!(file.read().unwrap(), None);
    assert_eq!(on(&disk.power_cut(1)), None);
    file.remove().unwrap();
}

#[test]
fn a_power_cut_between_any_two_steps_leaves_the_old_or_the_new() {
    let (disk, file) = disk();
    for old in [None, Some(state(5))] {
        if let Some(old) = &old {
            file.write(old).unwrap();
        }
        let cuts = Arc::new(Mutex::new(Vec::new()));
        let (watched, seen) = (disk.clone(), cuts.clone());
        disk.set_hook(move |_, _| {
            let mut cuts = seen.lock().unwrap();
            cuts.extend((0..50).map(|seed| watched.power_cut(seed)));
        });
        file.write(&state(6)).unwrap();
        disk.clear_hook();
        let cuts = std::mem::take(&mut *cuts.lock().unwrap());
        assert!(cuts.len() >= 250, "five steps at least");
        let mut found = [0, 0];
        for cut in &cuts {
            let now = on(cut);
            assert!(now == old || now == Some(state(6)));
            found[usize::from(now == old)] += 1;
        }
        assert!(found[1] > 0);
        for seed in 0..50 {
            assert_eq!(on(&disk.power_cut(seed)), Some(state(6)));
        }
        file.remove().unwrap();
    }
}

#[test]
fn a_failure_of_any_step_is_told_and_leaves_the_old_or_the_new() {
    for (op, errno) in [
        (Op::Create, EIO),
        (Op::Write, ENOSPC),
        (Op::Sync, EIO),
        (Op::Rename, EIO),
        (Op::SyncDir, EIO),
    ] {
        let (disk, file) = disk();
        file.write(&state(5)).unwrap();
        // On a full disk the reserved room is freed, and the write is tried once more.
        let times = if errno == ENOSPC { 2 } else { 1 };
        disk.inject(Fault::new(op, errno).times(times));
        let error = file.write(&state(6)).unwrap_err();
        assert_eq!(
            error.code() == muniment_value::Code::OutOfDiskSpace,
            errno == ENOSPC
        );
        for seed in 0..50 {
            let now = on(&disk.power_cut(seed));
            assert!(now == Some(state(5)) || now == Some(state(6)), "{op:?}");
        }
        // The next write succeeds, whatever the failed one has left.
        file.write(&state(7)).unwrap();
        assert_eq!(on(&disk.power_cut(9)), Some(state(7)), "{op:?}");
    }
    let (disk, file) = disk();
    file.write(&state(5)).unwrap();
    for op in [Op::Open, Op::Read] {
        disk.inject(Fault::new(op, EIO).times(1));
        file.read().unwrap_err();
    }
    assert!(file.read().unwrap().is_some());
    disk.inject(Fault::new(Op::Remove, EIO).times(1));
    file.remove().unwrap_err();
    assert!(file.read().unwrap().is_some());
}

/// A member can vote and resign although its disk is full, more than once.
#[test]
fn a_full_disk_has_room_for_the_state() {
    let (disk, file) = disk();
    file.write(&state(5)).unwrap();
    disk.set_capacity(disk.used());
    for term in 6..20 {
        file.write(&state(term)).unwrap();
        assert_eq!(on(&disk.power_cut(term)), Some(state(term)));
    }
    // Here another program has taken the freed room.
    disk.remove(&Path::new(DIR).join("replication.room"))
        .unwrap();
    disk.set_capacity(disk.used());
    file.write(&state(20)).unwrap_err();
    disk.set_capacity(u64::MAX);
    file.write(&state(21)).unwrap();
    assert!(
        disk.bytes(&Path::new(DIR).join("replication.room"))
            .is_some()
    );
    file.remove().unwrap();
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), [""; 0]);
}

#[test]
fn damage_is_found() {
    let (disk, file) = disk();
    file.write(&state(5)).unwrap();
    let path = Path::new(DIR).join(FILE);
    let len = disk.bytes(&path).unwrap().len() as u64;
    for at in 0..len {
        assert!(disk.flip_bit(&path, at, (at % 8) as u8));
        file.read().unwrap_err();
        assert!(disk.flip_bit(&path, at, (at % 8) as u8));
    }
    assert!(file.read().unwrap().is_some());
}

/// Whatever decodes is the same after it was encoded and decoded again.
#[test]
fn any_bytes_can_be_read() {
    let mut draw = Draw::new(3);
    let whole = state(5).encode();
    let mut read = 0;
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=draw.below(3) {
            let at = draw.below(bytes.len() as u64) as usize;
            bytes[at] = draw.below(256) as u8;
        }
        bytes.truncate(24 + draw.below(2 * bytes.len() as u64) as usize);
        // The head is made to match, so that mutations pass the check of the checksum.
        let body = bytes.split_off(24);
        bytes.truncate(12);
        bytes.extend(crc32c::crc32c(&body).to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(body);
        if let Ok(state) = LocalState::decode(&bytes) {
            read += 1;
            assert_eq!(LocalState::decode(&state.encode()).as_ref(), Ok(&state));
        }
    }
    assert!(read > 20, "{read}");
}

/// At least one arbiter fewer votes than there are voters with data.
#[test]
fn arbiters_beyond_those_with_data_do_not_vote() {
    let voters = |arbiters: &[u64], silent: &[u64]| {
        let mut config = Config {
            members: (1..=5).map(member).collect(),
            ..Config::default()
        };
        for m in &mut config.members {
            m.arbiter = arbiters.contains(&m.id);
            m.votes = !silent.contains(&m.id);
        }
        config.wanted_voters().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(voters(&[], &[]), [1, 2, 3, 4, 5]);
    assert_eq!(voters(&[2, 5], &[]), [1, 2, 3, 4, 5]);
    assert_eq!(voters(&[2, 5], &[1]), [2, 3, 4]);
    assert_eq!(voters(&[2, 3, 4, 5], &[]), [1]);
    assert_eq!(voters(&[3, 4, 5], &[2]), [1]);
}

#[test]
fn forcing_leaves_out_what_was_on_its_way() {
    let mut state = state(5);
    let mut alone = config(9);
    alone.members.truncate(2);
    state.force(alone.clone());
    assert_eq!(state.in_force.voters, BTreeSet::from([1, 2]));
    assert!(state.in_force.learners.is_empty() && state.configs.is_empty());
    // A leader has to put the configuration into the log if there are other members.
    assert!(state.in_force.config.is_forced());
    alone.set_forced(Some(&BTreeSet::from([1, 2])));
    assert_eq!(state.in_force.config, alone);
    // A new member, which has nothing, does not vote before it has caught up, neither here nor at any member
    // that takes over this configuration.
    let mut other = self::state(5);
    other.in_force.config.members.truncate(1);
    let mut replaced = state.in_force.config.clone();
    replaced.set_forced(None);
    replaced.members[1].id = 77;
    replaced.next_id = 78;
    state.force(replaced);
    assert_eq!(state.in_force.voters, BTreeSet::from([1]));
    assert_eq!(state.in_force.learners, BTreeSet::from([77]));
    other.force(state.in_force.config.clone());
    assert_eq!(other.in_force.voters, BTreeSet::from([1]));
    // A member that is left alone has to tell the former members when they come back. One that was alone
    // before has no other member to tell.
    alone.members.truncate(1);
    state.force(alone.clone());
    assert!(state.in_force.config.is_forced());
    state.in_force.config.set_forced(None);
    state.force(alone);
    assert!(!state.in_force.config.is_forced());
}

/// The address of a member may change. A different `_id` means a different member, even at the same address.
#[test]
fn a_member_that_moves_keeps_its_number() {
    let now = config(2);
    let mut next = now.clone();
    for m in &mut next.members {
        m.id = 0;
        m.host = format!("elsewhere{}:1", m.key);
    }
    next.members[3].key = 99;
    let ids: Vec<_> = now
        .number(next.clone())
        .members
        .iter()
        .map(|m| m.id)
        .collect();
    assert_eq!(ids, [1, 2, 3, 5]);
    next.members[3].key = now.members[3].key;
    assert_eq!(now.number(next).next_id, 5);
}

#[test]
fn additions_of_a_later_version_to_a_configuration_are_kept() {
    let mut config = config(2);
    assert!(!config.is_forced());
    config.set_forced(Some(&BTreeSet::from([1])));
    let in_force = InForce {
        config: config.clone(),
        ..InForce::default()
    };
    let bytes = in_force.to_bytes();
    assert_eq!(InForce::of_bytes(&bytes), Some(in_force));
    for n in 1..bytes.len() {
        let cut = InForce::of_bytes(&bytes[..n]);
        assert!(cut.is_none_or(|c| c.config.more.len() < 2), "{n}");
    }
    config.set_forced(None);
    assert_eq!(config.more.len(), 1);
    let record = ConfigRecord {
        change: None,
        config,
    };
    assert_eq!(ConfigRecord::decode(&record.encode()), Some(record));
}

/// A directory becomes that of another member, which is not bound by the promises in it.
#[test]
fn a_directory_becomes_that_of_another_member() {
    let before = state(9);
    let mut with_data = before.clone();
    with_data.renumber(8, None);
    assert_eq!((with_data.id, with_data.vote, with_data.term), (8, 0, 9));
    assert_eq!(with_data.in_force, before.in_force);
    let mut without = before;
    without.renumber(8, Some(config(7)));
    assert!(without.in_force.voters.is_empty() && without.configs.is_empty());
    assert_eq!(LocalState::decode(&without.encode()), Ok(without.clone()));
    let (disk, file) = disk();
    file.write(&without).unwrap();
    assert_eq!(on(&disk), Some(without));
}

/// The wait of a member that had nothing is remembered until its log has everything. The file has a version
/// of its own while there is a wait, and the usual one otherwise.
#[test]
fn the_wait_of_a_filled_member_is_remembered() {
    let version = |state: &LocalState| state.encode()[8];
    let mut plain = state(9);
    plain.in_force.index = 5;
    assert_eq!(version(&plain), 1);
    let copy = |waits| plain.synced(10, 4, plain.in_force.clone(), (1, 9), waits);
    assert_eq!(copy(10).waits, None);
    let mut waits = copy(12);
    let wait = Wait {
        place: 12,
        term: 9,
        votes: false,
    };
    assert_eq!((waits.waits, version(&waits)), (Some(wait), 2));
    assert_eq!(LocalState::decode(&waits.encode()), Ok(waits.clone()));
    // A later copy keeps the wait until it has everything.
    let again = |last| waits.synced(last, 4, waits.in_force.clone(), (1, 9), 0);
    assert_eq!([again(11).waits, again(12).waits], [Some(wait), None]);
    let later = waits.synced(11, 10, waits.in_force.clone(), (1, 10), 0);
    assert_eq!(later.waits, None, "a record of a later term");
    // While another voter has data, a configuration that was forced elsewhere gives the member its vote back,
    // but no more.
    let mut elsewhere = copy(0);
    elsewhere.id = 1;
    elsewhere.force(config(9));
    let newer = elsewhere.in_force.config;
    waits.force(newer);
    let votes = Wait {
        votes: true,
        ..wait
    };
    assert_eq!(waits.waits, Some(votes));
    assert_eq!(LocalState::decode(&waits.encode()), Ok(waits.clone()));
    let again = waits.synced(11, 4, waits.in_force.clone(), (1, 9), 12);
    assert_eq!(again.waits, Some(votes), "a later copy keeps that, too");
    // A member on which a configuration is forced does not wait.
    let mut here = copy(12);
    here.force(config(9));
    assert_eq!(here.waits, None);
    // Nor does a member that is left alone.
    let mut alone = copy(12);
    let mut left = config(9);
    left.members.retain(|m| m.id == alone.id);
    left.set_forced(Some(&BTreeSet::from([alone.id])));
    alone.force(left);
    assert_eq!(alone.waits, None);
}

/// A member that has lost its directory has lost its vote in it. In the term of the leader that the copy is
/// made from, that vote was for this leader; otherwise it could be given twice.
#[test]
fn a_copy_in_a_term_without_a_vote_takes_the_leader_s() {
    let mut state = state(5);
    (state.term, state.vote) = (5, 0);
    let vote = |state: &LocalState, led| {
        let synced = state.synced(10, 4, state.in_force.clone(), led, 0);
        (synced.term, synced.vote)
    };
    assert_eq!(vote(&state, (1, 5)), (5, 1));
    assert_eq!(vote(&state, (1, 4)), (5, 0));
    state.vote = 3;
    assert_eq!(vote(&state, (1, 5)), (5, 3));
    assert_eq!(vote(&state, (1, 6)), (6, 1));
}

/// A member that does not stand for election has nothing to do while there is no leader for long.
#[test]
fn a_member_that_may_not_stand_is_not_busy_with_it() {
    let config = Config::default().number(Config {
        version: 1,
        members: vec![
            crate::tests::cluster::member(1),
            crate::tests::cluster::member(2),
        ],
        ..Config::default()
    });
    let options = crate::Options {
        times: crate::Times::of(10_000),
        seed: 1,
    };
    let log = crate::LogEnds {
        first: 1,
        last: 0,
        last_term: None,
        committed: 0,
    };
    let mut state = LocalState::initiate(1, config, vec![], 0);
    state.in_force.voters.insert(2);
    state.in_force.learners.clear();
    let mut core = crate::Core::start(options, state, log).unwrap();
    core.freeze(u64::MAX);
    core.pass(50_000);
    assert_eq!(core.due_in(), 10_000);
    core.freeze(0);
    assert_eq!(core.due_in(), 1);
}

/// The record of a forced configuration names the voters from it on, both for members that have heard of the
/// configuration and for those that know it from the log alone. Older records change nothing where it is
/// known.
#[test]
fn the_record_of_a_forced_configuration_says_who_votes() {
    let mut forced = state(5);
    let mut left = config(9);
    left.members.truncate(2);
    forced.force(left);
    let mut forced = forced.in_force;
    let record = ConfigRecord::settling(&forced);
    let at = forced.index + 10;
    for (voters, learners) in [
        (vec![1, 2, 3, 4], vec![]),
        (vec![3, 4], vec![1]),
        (vec![1], vec![2, 3]),
        (vec![1, 2], vec![]),
    ] {
        let mut old = InForce {
            index: 1,
            voters: voters.into_iter().collect(),
            learners: learners.into_iter().collect(),
            config: config(8),
        };
        for change in [Change::Remove(4), Change::Voter(3), Change::Learner(1)] {
            let config = config(7);
            let change = Some(change);
            forced.apply(at - 1, ConfigRecord { change, config });
        }
        forced.apply(at, record.clone());
        let mut voters = old.voters.clone();
        for step in old.steps(&record) {
            match step {
                Change::Voter(id) => _ = voters.insert(id),
                Change::Learner(id) | Change::Remove(id) => _ = voters.remove(&id),
            }
            assert!(!voters.is_empty());
        }
        old.apply(at, record.clone());
        assert_eq!(old, forced);
        assert_eq!(old.voters, BTreeSet::from([1, 2]));
        assert!(old.learners.is_empty());
        assert_eq!(old.config.more.len(), 1, "what a later version added");
        // The record after it changes one member only.
        let config = old.config.clone();
        let change = Some(Change::Remove(2));
        old.apply(at + 1, ConfigRecord { change, config });
        assert_eq!(old.voters, BTreeSet::from([1]));
    }
}
