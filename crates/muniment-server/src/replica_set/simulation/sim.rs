//! The course of a run: what happens when, drawn from the seed.

use super::bugs::Bugs;
use super::clients::{Client, DB, OTHER, ROWS, Writes};
use super::course::Course;
use super::fill::Filling;
use super::locks::Locks;
use super::member::{Member, config};
use super::network::{Road, Wire};
use super::oracle::{Entry, Found, Oracle, compare, sum_of};
use super::random::{Random, Time};
use muniment_consensus::Refusal;
use muniment_op::Answer;
use muniment_storage::Records;
use muniment_value::doc;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A millisecond.
pub(super) const MS: u64 = 1000;

/// How rough a seed's world is.
pub(super) struct World {
    pub(super) delay: u64,
    /// Of a thousand messages so many break their connection.
    pub(super) loss: u64,
    pub(super) sync: u64,
    pub(super) fault_every: u64,
    pub(super) write_every: u64,
    pub(super) disk_faults: bool,
    /// Members lose their disks.
    pub(super) losses: bool,
    pub(super) admin: bool,
    pub(super) flushes: u64,
    /// Leaders fall soon after their election, before all members have heard from them.
    pub(super) storm: bool,
    pub(super) until: u64,
}

#[derive(Debug)]
pub(super) enum What {
    Turn(usize, u64),
    Due(usize, u64),
    Connect(u64),
    Serve(u64),
    Arrive(u64),
    Job(usize, u64),
    Sync(usize, u64),
    Work(usize),
    Start(usize),
    Fill(usize),
    Lose(usize, usize),
    Client(usize),
    Read,
    Fault,
    Heal,
    Fall(usize, u64),
    Room(usize),
    Admin,
    Lock,
    Unlock(usize, u64),
}

/// What the simulator knows of a member beside the member.
#[derive(Default)]
pub(super) struct Seen {
    /// Its log.
    pub(super) log: Vec<Entry>,
    /// What reads on in it.
    pub(super) reader: Option<Records>,
    /// So much of it is known to agree with what is committed.
    pub(super) committed: u64,
    pub(super) turning: bool,
    /// Its driver's thread rests until then.
    pub(super) due: u64,
    pub(super) syncing: bool,
    pub(super) working: bool,
    pub(super) leads: bool,
    /// What its process says before this time comes then.
    pub(super) late: u64,
    /// What majority reads have shown up to.
    pub(super) shown: u64,
}

pub struct Sim {
    pub(super) random: Random,
    pub(super) world: World,
    pub(super) time: Arc<Time>,
    pub(super) number: u64,
    pub(super) queue: BTreeMap<(u64, u64), What>,
    pub(super) members: Vec<Member>,
    pub(super) seen: Vec<Seen>,
    pub(super) roads: BTreeMap<u64, Road>,
    pub(super) wires: BTreeMap<u64, Wire>,
    pub(super) cut_off: BTreeSet<(usize, usize)>,
    /// The member that has lost its disk and is not filled yet.
    pub(super) hollow: Option<usize>,
    pub(super) fillings: BTreeMap<usize, Filling>,
    pub(super) clients: Vec<Client>,
    pub(super) token: i64,
    /// What failed on a disk that was hurt, or while the power failed: it may be in a log all the same.
    pub(super) perhaps: Vec<Writes>,
    pub(super) oracle: Oracle,
    pub(super) asked: Vec<Answer<Result<(), Refusal>>>,
    pub(super) calm: bool,
    pub(super) made: bool,
    pub(super) course: Course,
    pub(super) locks: Locks,
    /// What the catalog beside the rows is asked to become.
    pub(super) grammar: testkit::Grammar,
    /// Every step is printed (`MUNIMENT_TRACE=1`).
    pub(super) traced: bool,
}

impl Sim {
    pub fn new(seed: u64, bugs: Bugs) -> Sim {
        let mut random = Random::new(seed ^ 0x5eed);
        let n = random.pick(&[3, 3, 3, 3, 4, 5, 7]);
        let mut world = World {
            delay: (1 + random.below(40)) * MS,
            loss: random.pick(&[0, 0, 5, 30]),
            sync: random.pick(&[1, 5, 30, 120]) * MS,
            fault_every: (150 + random.below(800)) * MS,
            write_every: (10 + random.below(40)) * MS,
            disk_faults: random.one_in(2),
            losses: random.one_in(2),
            admin: random.one_in(2),
            flushes: random.pick(&[0, 60, 300]) * MS,
            storm: random.one_in(4),
            until: 6000 * MS,
        };
        if world.storm {
            world.fault_every *= 2;
            world.write_every = (2 + random.below(10)) * MS;
            world.admin = false;
        }
        let time = Time::new();
        let members: Vec<Member> = (0..n)
            .map(|i| Member::new(i, &time, &mut random, bugs))
            .collect();
        let founding = config(n, &mut random);
        let mut sim = Sim {
            random,
            world,
            time,
            number: 0,
            queue: BTreeMap::new(),
            seen: members.iter().map(|_| Seen::default()).collect(),
            members,
            roads: BTreeMap::new(),
            wires: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            hollow: None,
            fillings: BTreeMap::new(),
            clients: (0..3).map(Client::new).collect(),
            // Eight bytes that nothing else has.
            token: 7_000_000_000,
            perhaps: Vec::new(),
            oracle: Oracle::default(),
            asked: Vec::new(),
            calm: false,
            made: false,
            course: Course::default(),
            locks: Locks::new(seed),
            grammar: testkit::Grammar::new(&["ga", "gb"]),
            traced: std::env::var_os("MUNIMENT_TRACE").is_some(),
        };
        for i in 0..n {
            let (first, others) = sim.members.split_at_mut(i.max(1));
            match i {
                0 => first[0].found(&founding, None),
                _ => others[0].found(&founding, Some(&first[0].disk)),
            }
            let soon = sim.random_below(50 * MS);
            sim.at(soon, What::Start(i));
        }
        for i in 0..3 {
            sim.at(0, What::Client(i));
        }
        sim.at(sim.world.fault_every, What::Fault);
        sim.at(300 * MS, What::Read);
        sim.at(400 * MS, What::Lock);
        if sim.world.admin {
            sim.at(900 * MS, What::Admin);
        }
        sim
    }

    pub(super) fn random_below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    pub(super) fn now(&self) -> u64 {
        self.time.now()
    }

    pub(super) fn at(&mut self, after: u64, what: What) {
        self.number += 1;
        self.queue.insert((self.now() + after, self.number), what);
    }

    pub(super) fn note(&mut self, what: u64, of: u64) {
        let trace = sum_of(self.course.trace, &what.to_le_bytes());
        self.course.trace = sum_of(trace, &of.to_le_bytes());
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<Course, String> {
        let found = self.live();
        found.map_err(|e| format!("{e}\n{}", self.picture()))?;
        self.course.committed = self.oracle.committed.len() as u64;
        self.course.acknowledged = self.oracle.acknowledgements();
        Ok(self.course)
    }

    pub(super) fn live(&mut self) -> Found {
        while self.now() < self.world.until {
            self.step()?;
        }
        self.calm_down();
        let end = self.now() + 60_000 * MS;
        while self.now() < end && !self.at_rest() {
            for _ in 0..20 {
                self.step()?;
            }
        }
        match self.at_rest() {
            true => self.all_is_well(),
            false => Err("the set does not come to rest".into()),
        }
    }

    pub(super) fn step(&mut self) -> Found {
        let Some(((at, _), what)) = self.queue.pop_first() else {
            return Err("nothing is left to happen".into());
        };
        self.time.go_to(at.max(self.now()));
        self.course.steps += 1;
        if self.traced {
            let ms = self.now() / MS;
            println!("{ms:6} {what:?}");
        }
        match what {
            What::Turn(m, run) => {
                if self.is(m, run) {
                    self.seen[m].turning = false;
                    self.turn(m)?;
                }
            }
            What::Due(m, run) => {
                // It may have rested anew since.
                if self.is(m, run) && self.seen[m].due == at {
                    self.turn(m)?;
                }
            }
            What::Connect(road) => self.connect(road),
            What::Serve(road) => self.serve(road)?,
            What::Arrive(wire) => self.arrive(wire)?,
            What::Job(m, run) => {
                if self.is(m, run) {
                    let r = self.members[m].running.as_ref().unwrap();
                    let jobs = std::mem::take(&mut r.hands.desk.lock().jobs);
                    jobs.into_iter().for_each(|job| job());
                    self.after(m)?;
                }
            }
            What::Sync(m, run) => {
                if self.is(m, run) {
                    self.seen[m].syncing = false;
                    let r = self.members[m].running.as_ref().unwrap();
                    if !r.sync() {
                        self.work_soon(m);
                    }
                    self.after(m)?;
                }
            }
            What::Work(m) => self.work(m)?,
            What::Start(m) => self.start(m)?,
            What::Fill(m) => self.fill(m)?,
            What::Lose(m, stale) => {
                if !self.calm {
                    self.lose_beside(m, stale)?;
                }
            }
            What::Client(c) => self.client(c)?,
            What::Read => {
                self.read()?;
                let next = (50 + self.random_below(400)) * MS;
                self.at(next, What::Read);
            }
            What::Fault => {
                if !self.calm {
                    self.fault()?;
                    let next = 1 + self.random_below(2 * self.world.fault_every);
                    self.at(next, What::Fault);
                }
            }
            What::Heal => self.cut_off.clear(),
            What::Fall(m, run) => {
                if !self.calm && self.is(m, run) {
                    self.fall(m)?;
                }
            }
            What::Lock => self.lock()?,
            What::Unlock(m, run) => self.unlock(m, run)?,
            What::Room(m) => self.members[m].disk.set_capacity(u64::MAX),
            What::Admin => {
                if !self.calm {
                    self.admin()?;
                    let next = (200 + self.random_below(1500)) * MS;
                    self.at(next, What::Admin);
                }
            }
        }
        Ok(())
    }

    pub(super) fn is(&self, m: usize, run: u64) -> bool {
        self.members[m].run == run && self.members[m].running.is_some()
    }

    /// Nothing breaks from here on.
    pub(super) fn calm_down(&mut self) {
        self.calm = true;
        self.cut_off.clear();
        for m in 0..self.members.len() {
            self.members[m].disk.heal();
            if !self.members[m].fell() {
                self.members[m].disk.clear_hook();
            }
            self.at(1, What::Start(m));
            self.at(1, What::Unlock(m, self.members[m].run));
            self.work_soon(m);
        }
    }

    /// One leads, and all have what it has, committed.
    pub(super) fn at_rest(&self) -> bool {
        let leaders: Vec<usize> = (0..self.members.len())
            .filter(|m| self.seen[*m].leads)
            .collect();
        let [leader] = leaders.as_slice() else {
            return false;
        };
        let log = &self.seen[*leader].log;
        let busy = self
            .clients
            .iter()
            .any(|c| c.op.is_some() || c.wait.is_some());
        let same = (0..self.members.len()).all(|m| {
            let seen = &self.seen[m];
            self.members[m].running.is_some()
                && seen.log.len() == log.len()
                && seen.log.last() == log.last()
                && seen.committed == log.len() as u64
        });
        same && !busy
    }

    pub(super) fn all_is_well(&mut self) -> Found {
        self.oracle.all_there()?;
        let wanted = self.oracle.rows(self.oracle.committed.iter())?;
        let mut hashes = BTreeSet::new();
        for m in 0..self.members.len() {
            for level in ["local", "majority"] {
                let found = self.rows(m, level)?.unwrap_or_default();
                compare(&format!("member {m} at the end"), &found, &wanted)?;
            }
            let r = self.members[m].running.as_mut().unwrap();
            let differences = r.differences();
            if !matches!(&differences, Ok(d) if d.is_empty()) {
                return Err(format!("member {m} at the end: {differences:?}"));
            }
            let body =
                doc! { "dbHash": 1, "$db": DB, "$readPreference": doc! { "mode": "nearest" } };
            let reply = r.command(body.as_doc());
            let hash = reply.as_doc().get_str("md5").map(str::to_string);
            hashes.insert(hash.ok_or_else(|| format!("dbHash says {reply:?}"))?);
            for collection in [ROWS, OTHER] {
                let body = doc! {
                    "validate": collection, "full": true, "$db": DB,
                    "$readPreference": doc! { "mode": "nearest" },
                };
                let reply = r.command(body.as_doc());
                if !reply.as_doc().get("valid").is_some_and(|v| v.truthy()) && self.made {
                    return Err(format!("member {m} at the end: {reply:?}"));
                }
            }
        }
        match hashes.len() {
            1 => Ok(()),
            _ => Err("the members' hashes differ".into()),
        }
    }

    pub(super) fn picture(&self) -> String {
        let lines = self.members.iter().enumerate().map(|(m, member)| {
            let seen = &self.seen[m];
            let up = member.running.as_ref().map(|r| {
                let p = r
                    .store()
                    .position()
                    .map(|p| (p.appended, p.applied.index, p.durable.index));
                (
                    r.set().member().role,
                    r.set().member().term,
                    r.node.committed(),
                    p,
                )
            });
            format!(
                "{m}: run {} {up:?}, log {}, committed {}",
                member.run,
                seen.log.len(),
                seen.committed
            )
        });
        let lines: Vec<String> = lines.collect();
        let clients = self.clients.iter().map(|c| {
            let op = c.op.as_ref().map(|o| (o.kind, o.attempts));
            format!("client {}: {op:?} waits {}", c.number, c.wait.is_some())
        });
        let now = self.now() / MS;
        format!(
            "at {now} ms, {} committed\n{}\n{}",
            self.oracle.committed.len(),
            lines.join("\n"),
            clients.collect::<Vec<_>>().join("\n")
        )
    }
}
