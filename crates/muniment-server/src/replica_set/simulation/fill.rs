//! Initial syncs: members lose their disks, and copy what another one has while everything else happens.
//!
//! The steps are those of `initial_sync`, taken in virtual time, with its storage, its rules for what a
//! copy has to be and the state that a copied member begins with. Only connection and directory differ:
//! chunks are handed over, and the copy is a disk that takes the place of the other.
//!
//! Only one member at a time has lost its disk, since two of three would have lost what was acknowledged.

use super::member::Member;
use super::oracle::Found;
use super::sim::{MS, Sim, What};
use muniment_consensus::{InForce, LocalState, MemberId};
use muniment_member::initial_sync::{Copied, Wanted};
use muniment_member::{Role, initial_sync};
use muniment_op::NeverInterrupted;
use muniment_storage::{Chunk, Export};

/// A copy on its way.
pub(super) struct Filling {
    /// The process that makes it.
    run: u64,
    leader: MemberId,
    wanted: Wanted,
    /// The member has nothing, and the leader has not let it pass.
    empty: bool,
    /// What the leader has to have committed, in this term.
    record: Option<(u64, u64)>,
    from: Option<Source>,
    /// When it is given up.
    until: u64,
}

struct Source {
    member: usize,
    run: u64,
    export: Export,
    copied: Copied,
    chunks: Vec<Chunk>,
}

/// How a step of it ended.
enum Step {
    Goes,
    Failed,
    Whole,
}

impl Sim {
    /// A member loses its disk, and is told of the set by another one.
    pub(super) fn lose_disk(&mut self, m: usize) -> Found {
        if self.hollow.is_some() || self.fillings.contains_key(&m) {
            return Ok(());
        }
        let Ok(Some(state)) = self.members[m].state_file().read() else {
            return Ok(());
        };
        if self.members[m].running.is_some() {
            self.crash(m)?;
        }
        let joining = LocalState {
            in_force: InForce {
                config: state.in_force.config,
                ..InForce::default()
            },
            ..LocalState::joining(state.id)
        };
        self.members[m].disk = Member::new_disk();
        self.members[m].state_file().write(&joining).unwrap();
        self.hollow = Some(m);
        self.course.emptied += 1;
        self.at(MS, What::Start(m));
        Ok(())
    }

    /// A member that has helped to elect another leader loses its disk, and is found by the former leader,
    /// which does not know yet that it no longer leads.
    pub(super) fn lose_beside(&mut self, m: usize, stale: usize) -> Found {
        self.cut_off.clear();
        for other in 0..self.members.len() {
            for pair in [m, stale]
                .into_iter()
                .filter(|_| other != m && other != stale)
            {
                self.cut_off.insert((pair, other));
                self.cut_off.insert((other, pair));
            }
        }
        let heal = (300 + self.random_below(2500)) * MS;
        self.at(heal, What::Heal);
        self.lose_disk(m)
    }

    /// A member was elected: the former leader may think that it still leads.
    pub(super) fn elected_beside(&mut self, m: usize) {
        let all = 0..self.members.len();
        let Some(stale) = all.clone().find(|o| *o != m && self.seen[*o].leads) else {
            return;
        };
        let others: Vec<usize> = all.filter(|o| *o != m && *o != stale).collect();
        if self.world.losses && self.random.one_in(2) {
            let victim = self.random.pick(&others);
            let soon = self.random_below(300 * MS);
            self.at(soon, What::Lose(victim, stale));
        }
    }

    /// A member has asked to be filled.
    pub(super) fn begin_filling(&mut self, m: usize, leader: MemberId, at_least: u64) {
        let Some(r) = &self.members[m].running else {
            return;
        };
        let filling = Filling {
            run: self.members[m].run,
            leader,
            wanted: Wanted::new(at_least),
            empty: r.node.members().in_force().voters.is_empty(),
            record: None,
            from: None,
            until: self.now() + 5000 * MS,
        };
        self.fillings.insert(m, filling);
        let soon = self.random_below(50 * MS);
        self.at(soon, What::Fill(m));
    }

    /// A member's process has ended: no member copies from it any more, and its own copy has ended.
    pub(super) fn no_source(&mut self, m: usize) {
        for filling in self.fillings.values_mut() {
            filling.from.take_if(|from| from.member == m);
        }
        self.fillings.remove(&m);
    }

    pub(super) fn fill(&mut self, m: usize) -> Found {
        let Some(mut filling) = self.fillings.remove(&m) else {
            return Ok(());
        };
        if !self.is(m, filling.run) {
            return Ok(());
        }
        let copies = filling.from.is_some();
        let step = match (copies, filling.empty) {
            (false, true) => self.pass(m, &mut filling)?,
            (false, false) => self.choose(m, &mut filling)?,
            (true, _) => self.copy(m, &mut filling)?,
        };
        match step {
            Step::Goes if copies || self.now() < filling.until => {
                self.fillings.insert(m, filling);
                let soon = (1 + self.random_below(30)) * MS;
                self.at(soon, What::Fill(m));
                Ok(())
            }
            Step::Goes | Step::Failed => {
                let r = self.members[m].running.as_ref().unwrap();
                r.node.end_sync();
                self.after(m)
            }
            Step::Whole => self.filled(m, filling),
        }
    }

    fn reaches(&self, a: usize, b: usize) -> bool {
        !self.cut_off.contains(&(a, b)) && !self.cut_off.contains(&(b, a))
    }

    /// The leader has a record committed that it makes after it was asked.
    fn pass(&mut self, m: usize, filling: &mut Filling) -> Result<Step, String> {
        let leader = filling.leader as usize - 1;
        let Some(r) = self.members[leader].running.as_ref() else {
            return Ok(Step::Failed);
        };
        let Some(term) = r.node.leading_term().filter(|_| self.reaches(m, leader)) else {
            return Ok(Step::Failed);
        };
        let unasked = self.members[m].bugs().copies_unasked;
        let Some((asked, record)) = filling.record.filter(|_| !unasked) else {
            if unasked {
                filling
                    .wanted
                    .pass(filling.leader, term, r.node.committed(), 0);
                filling.empty = false;
                return Ok(Step::Goes);
            }
            let made = r.store().commit_nothing(&NeverInterrupted);
            filling.record = made.ok().map(|commit| (term, commit.index));
            self.after(leader)?;
            return Ok(Step::Goes);
        };
        if term != asked {
            return Ok(Step::Failed);
        }
        let committed = r.node.committed();
        if committed >= record {
            filling.wanted.pass(filling.leader, term, committed, 0);
            filling.empty = false;
        }
        Ok(Step::Goes)
    }

    /// Begins to copy from any member that has as much as is wanted.
    fn choose(&mut self, m: usize, filling: &mut Filling) -> Result<Step, String> {
        let from = self.random_below(self.members.len() as u64) as usize;
        let Some(r) = self.members[from].running.as_ref().filter(|_| from != m) else {
            return Ok(Step::Goes);
        };
        let role = r.set().member().role;
        let able = matches!(role, Role::Primary | Role::Secondary) && self.reaches(m, from);
        if !able || self.members[from].fell() || r.node.is_syncing() {
            return Ok(Step::Goes);
        }
        if r.node.committed() < filling.wanted.at_least() {
            return Ok(Step::Goes);
        }
        let Ok(export) = r.store().export(&NeverInterrupted) else {
            return Ok(Step::Goes);
        };
        let position = export.position();
        let Some(in_force) = r.node.in_force_at(position.index) else {
            return Ok(Step::Goes);
        };
        let led = r
            .node
            .leading_term()
            .map_or((0, 0), |term| (from as u64 + 1, term));
        let copied = Copied {
            position,
            in_force: InForce::clone(&in_force),
            led,
            waits: 0,
        };
        if filling.wanted.check(&copied).is_err() {
            return Ok(Step::Failed);
        }
        filling.from = Some(Source {
            member: from,
            run: self.members[from].run,
            export,
            copied,
            chunks: Vec::new(),
        });
        Ok(Step::Goes)
    }

    fn copy(&mut self, m: usize, filling: &mut Filling) -> Result<Step, String> {
        let Some(from) = &mut filling.from else {
            return Ok(Step::Failed);
        };
        let (member, run) = (from.member, from.run);
        if self.members[member].run != run || self.members[member].running.is_none() {
            return Ok(Step::Failed);
        }
        if self.cut_off.contains(&(m, member)) || self.cut_off.contains(&(member, m)) {
            return Ok(Step::Goes);
        }
        for _ in 0..1 + self.random.below(4) {
            match from.export.next() {
                None => return Ok(Step::Whole),
                Some(Ok(chunk)) => from.chunks.push(chunk),
                // Its disk fails.
                Some(Err(_)) => return Ok(Step::Failed),
            }
        }
        Ok(Step::Goes)
    }

    /// The copy takes the place of the member's data.
    fn filled(&mut self, m: usize, filling: Filling) -> Found {
        let Some(Source {
            mut copied,
            chunks,
            export,
            ..
        }) = filling.from
        else {
            return Ok(());
        };
        drop(export);
        copied.led = filling.wanted.led().unwrap_or(copied.led);
        let state = self.members[m].state_file().read();
        let Ok(Some(state)) = state else {
            return self.crash(m);
        };
        let disk = self.members[m].import(copied.position, chunks);
        let disk = disk.map_err(|e| format!("member {m} cannot be filled: {e}"))?;
        self.no_source(m);
        self.members[m].stop();
        self.gone(m);
        self.members[m].disk = disk;
        let synced = initial_sync::state_of(&state, copied);
        self.members[m].state_file().write(&synced).unwrap();
        self.hollow.take_if(|hollow| *hollow == m);
        self.course.filled += 1;
        self.at(MS, What::Start(m));
        Ok(())
    }
}
