//! The state file: after a failure or a power cut at any moment it is the old one or the new one,
//! and no bytes end its reader.

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
    };
    config.members[3].votes = false;
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
        disk.inject(Fault::new(op, errno).times(1));
        let error = file.write(&state(6)).unwrap_err();
        assert_eq!(
            error.code() == muniment_value::Code::OutOfDiskSpace,
            errno == ENOSPC
        );
        for seed in 0..50 {
            let now = on(&disk.power_cut(seed));
            assert!(now == Some(state(5)) || now == Some(state(6)), "{op:?}");
        }
        // The next one goes through, whatever the failed one left.
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

/// What decodes is what its encoding decodes to again.
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
        // With a head that fits, so that mutations get past the checksum.
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

#[test]
fn forcing_leaves_out_what_was_on_its_way() {
    let mut state = state(5);
    let mut alone = config(9);
    alone.members.truncate(2);
    state.force(alone.clone());
    assert_eq!(state.in_force.voters, BTreeSet::from([1, 2]));
    assert!(state.in_force.learners.is_empty() && state.configs.is_empty());
    assert_eq!(state.in_force.config, alone);
}
