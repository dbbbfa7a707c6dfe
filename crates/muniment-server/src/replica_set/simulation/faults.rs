//! What goes wrong, and what administrators ask for.

use super::member::ELECTION_MS;
use super::oracle::Found;
use super::sim::{MS, Sim, What};
use muniment_io::sim::{EIO, Fault, Op as DiskOp};
use muniment_member::driver::Request;
use muniment_op::question;

impl Sim {
    pub(super) fn fault(&mut self) -> Found {
        let n = self.members.len();
        let any = self.random_below(n as u64) as usize;
        let leader = (0..n).find(|m| self.seen[*m].leads);
        let victim = match self.random.one_in(2) {
            true => leader.unwrap_or(any),
            false => any,
        };
        let heal = (50 + self.random_below(2500)) * MS;
        if self.world.losses && self.random.one_in(4) {
            return self.lose_disk(victim);
        }
        match self.random_below(if self.world.disk_faults { 14 } else { 11 }) {
            0 => self.crash_if_up(victim)?,
            1 => {
                // And once more while it starts again.
                self.crash_if_up(victim)?;
                let (n, seed) = (self.random_below(60), self.random.next());
                self.members[victim].fuse(n, seed);
            }
            2 | 3 => {
                let (n, seed) = (self.random_below(40), self.random.next());
                self.members[victim].fuse(n, seed);
            }
            4 | 5 => {
                let side: Vec<bool> = (0..n).map(|_| self.random.one_in(2)).collect();
                for (a, b) in pairs(n) {
                    if side[a] != side[b] {
                        self.cut_off.insert((a, b));
                    }
                }
                self.at(heal, What::Heal);
            }
            6 => {
                for (a, b) in pairs(n) {
                    if a == victim || b == victim {
                        self.cut_off.insert((a, b));
                    }
                }
                self.at(heal, What::Heal);
            }
            7 => {
                for (a, b) in pairs(n) {
                    if a == victim && self.random.one_in(2) {
                        self.cut_off.insert((a, b));
                    }
                }
                self.at(heal, What::Heal);
            }
            8 => {
                if self.random.one_in(2) {
                    for m in 0..n {
                        self.crash_if_up(m)?;
                    }
                }
            }
            9 => {
                // Asked to end, as by a signal, and started again.
                if self.members[victim].running.is_some() {
                    self.no_source(victim);
                    self.members[victim].stop();
                    self.gone(victim);
                    self.at(heal / 4, What::Start(victim));
                }
            }
            10 => self.cut_off.clear(),
            11 | 12 => {
                let member = &mut self.members[victim];
                member.hurt = true;
                self.course.disk_faults += 1;
                let op = self.random.pick(&[DiskOp::Sync, DiskOp::Write]);
                let on = self.random.pick(&["/log", ""]);
                let skip = self.random.below(20);
                let fault = Fault::new(op, EIO).on(on).after(skip).times(1);
                self.members[victim].disk.inject(fault);
                self.work_soon(victim);
            }
            _ => {
                let member = &mut self.members[victim];
                member.hurt = true;
                self.course.disk_faults += 1;
                let room = self.random.below(60_000);
                let disk = &self.members[victim].disk;
                disk.set_capacity(disk.used() + room);
                self.at(heal, What::Room(victim));
            }
        }
        Ok(())
    }

    /// Makes a leader fall: it crashes, or is cut off. A member that was cut off before is back.
    pub(super) fn fall(&mut self, m: usize) -> Found {
        self.cut_off.clear();
        if self.random.one_in(2) {
            return self.crash(m);
        }
        for (a, b) in pairs(self.members.len()) {
            if a == m || b == m {
                self.cut_off.insert((a, b));
            }
        }
        let heal = (300 + self.random_below(1500)) * MS;
        self.at(heal, What::Heal);
        Ok(())
    }

    pub(super) fn crash_if_up(&mut self, m: usize) -> Found {
        match self.members[m].running.is_some() {
            true => self.crash(m),
            false => Ok(()),
        }
    }

    /// What an administrator asks a primary for.
    pub(super) fn admin(&mut self) -> Found {
        let Some(m) = (0..self.members.len()).find(|m| self.seen[*m].leads) else {
            return Ok(());
        };
        let (to, from) = question();
        let r = self.members[m].running.as_ref().unwrap();
        let request = match self.random.below(5) {
            0 => {
                let now = r.node.members().in_force().clone();
                let which = self.random.below(now.config.members.len() as u64) as usize;
                let other = now.config.members[which].id;
                let patience = self.random.below(20) * (ELECTION_MS as u64 / 20);
                Request::HandOver(r.node.token(), other, patience, to)
            }
            1 | 2 => {
                let force = self.random.one_in(2);
                let (patience, freeze) = (self.random.below(20), self.random.below(40));
                let tick = ELECTION_MS as u64 / 20;
                Request::StepDown(r.node.token(), patience * tick, freeze * tick, force, to)
            }
            _ => {
                let now = r.node.members().in_force().clone();
                let member = r.set().member();
                let Some(mut config) = member.config.as_deref().cloned() else {
                    return Ok(());
                };
                config.version += 1;
                config.term = Some(member.term);
                let voting = config.members.iter().filter(|m| m.votes).count();
                let other = self.random.below(config.members.len() as u64) as usize;
                let other = &mut config.members[other];
                if other.votes && voting > 3 {
                    (other.votes, other.priority) = (false, 0.0);
                } else {
                    (other.votes, other.priority) = (true, 1.0 + self.random.below(2) as f64);
                }
                self.course.configs += 1;
                let wanted = now.config.number(config.to_core());
                Request::Reconfigure(Box::new(wanted), to)
            }
        };
        r.node.ask(request);
        self.asked.push(from);
        self.after(m)
    }
}

fn pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n)
        .flat_map(move |a| (0..n).map(move |b| (a, b)))
        .filter(|(a, b)| a != b)
}
