//! Members that are locked (fsyncLock) while everything else happens, and copies of their directories.
//!
//! A copy is made as a backup makes it: each file as it was at another moment of the lock. It has to start,
//! and to show a beginning of the one log.

use super::ask::rows_of;
use super::member::Member;
use super::oracle::{Entry, Found, compare, sum_of};
use super::random::Random;
use super::sim::{MS, Sim, What};
use muniment_io::{Disk, Open, SimDisk};
use muniment_member::Role;
use std::collections::BTreeMap;
use std::path::Path;

/// What is locked.
pub struct Locks {
    /// Drawn apart, so that a world without locks is what it was.
    random: Random,
    /// Members are locked in this world.
    are: bool,
    /// The disks of those that are, as they were at some moments of the lock.
    disks: BTreeMap<usize, Vec<SimDisk>>,
}

impl Locks {
    pub fn new(seed: u64) -> Locks {
        let mut random = Random::new(seed ^ 0x10c4);
        let are = random.one_in(2);
        Locks {
            random,
            are,
            disks: BTreeMap::new(),
        }
    }
}

impl Sim {
    /// Somebody locks a member that does not lead.
    pub(super) fn lock(&mut self) -> Found {
        if !self.locks.are || self.calm {
            return Ok(());
        }
        let next = (200 + self.locks.random.below(1500)) * MS;
        self.at(next, What::Lock);
        let m = self.locks.random.below(self.members.len() as u64) as usize;
        let Some(r) = &mut self.members[m].running else {
            return Ok(());
        };
        // A leader is not locked: its writes would wait for the end of the lock, which the simulator's only
        // thread has to bring about.
        let leads = r.store().is_door_open() || r.node.leading_term().is_some();
        let follows = r.set().member().role == Role::Secondary;
        if leads || !follows || r.node.is_syncing() || r.driver.has_ended() {
            return Ok(());
        }
        let locked = r.lock();
        let (disk, run) = (self.members[m].disk.fork(), self.members[m].run);
        if locked {
            self.course.locked += 1;
            self.locks.disks.insert(m, vec![disk]);
            let until = (50 + self.locks.random.below(2500)) * MS;
            self.at(until, What::Unlock(m, run));
        }
        self.after(m)
    }

    /// The lock ends. A copy that was made meanwhile is looked at.
    pub(super) fn unlock(&mut self, m: usize, run: u64) -> Found {
        if !self.is(m, run) {
            return Ok(());
        }
        let disks = self.locks.disks.remove(&m);
        let r = self.members[m].running.as_ref().unwrap();
        if r.store().write_lock_depth() == 0 || self.members[m].fell() {
            return self.after(m);
        }
        let now = self.members[m].disk.fork();
        let aside = Path::new("/db").join(muniment_member::aside::FILE);
        self.course.set_aside += u64::from(now.bytes(&aside).is_some());
        if let Some(mut disks) = disks
            && !self.members[m].hurt
        {
            disks.push(now);
            let copied = self.copy_of(m, &disks);
            copied.map_err(|e| format!("a copy of member {m} under its lock: {e}"))?;
        }
        self.members[m].running.as_ref().unwrap().unlock();
        self.after(m)
    }

    /// A copy has each file as it was at another moment.
    fn copy_of(&mut self, m: usize, disks: &[SimDisk]) -> Found {
        let copy = Member::new_disk();
        let random = &mut self.locks.random;
        for path in disks.iter().flat_map(SimDisk::paths) {
            let which = random.below(disks.len() as u64) as usize;
            let Some(bytes) = disks.get(which).and_then(|disk| disk.bytes(&path)) else {
                continue;
            };
            let folder = path.parent().unwrap();
            let put = copy.create_dir(folder).and_then(|()| {
                let file = copy.open(&path, Open::Create)?;
                file.write_at(&bytes, 0)
            });
            put.map_err(|e| e.to_string())?;
        }
        self.course.copied += 1;
        let mut random = Random::new(self.locks.random.next());
        let mut member = Member::new(m, &self.time, &mut random, self.members[m].bugs());
        member.disk = copy;
        let started = member.start(&mut random);
        started.map_err(|e| format!("it does not start: {e}"))?;
        let r = member.running.as_mut().unwrap();
        let failed = |e: muniment_value::Error| e.to_string();
        for _ in 0..10 {
            let turned = r.driver.turn(Vec::new(), self.time.instant());
            turned.map_err(failed)?;
        }
        let mut log = self.oracle.committed.clone();
        log.truncate(r.store().log_begins_behind().map_err(failed)?.index as usize);
        let mut records = r.store().records_behind(log.len() as u64).map_err(failed)?;
        while let Some(record) = records.next().map_err(failed)? {
            let entry = Entry {
                term: record.term,
                at: record.at,
                sum: sum_of(record.at.0, record.payload),
            };
            self.oracle.record(record.index, entry)?;
            log.push(entry);
        }
        let differences = r.differences();
        if !matches!(&differences, Ok(d) if d.is_empty()) {
            return Err(format!("{differences:?}"));
        }
        let had = self.seen[m].log.len();
        if log.len() < had {
            return Err(format!("it ends at {}, and the log at {had}", log.len()));
        }
        let wanted = self.oracle.rows(log.iter())?;
        let found = rows_of(r, "local")?.unwrap_or_default();
        member.stop();
        compare("its rows", &found, &wanted)
    }
}
