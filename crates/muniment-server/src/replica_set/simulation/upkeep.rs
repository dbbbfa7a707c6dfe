//! What the simulator does for a member: its turns, what it asks for, its starts and ends; and the checks of
//! its state.

use super::clients::{Writes, tokens_of};
use super::network::Road;
use super::oracle::{Entry, Found, sum_of};
use super::sim::{MS, Seen, Sim, What};
use muniment_member::Restart;
use muniment_value::{Code, Doc, Result};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;

impl Sim {
    /// The driver's thread wakes, takes a turn and rests.
    pub(super) fn turn(&mut self, m: usize) -> Found {
        let run = self.members[m].run;
        if let Some(r) = &mut self.members[m].running
            && !r.driver.rests_on()
        {
            r.driver.wake();
            self.help(m)?;
        }
        let (true, Some(r)) = (self.is(m, run), &mut self.members[m].running) else {
            return Ok(());
        };
        let (_, due) = r.driver.rest();
        self.rest_until(m, self.time.of(due));
        Ok(())
    }

    /// The driver's thread rests until a time, unless it is called.
    fn rest_until(&mut self, m: usize, due: u64) {
        let (now, before) = (self.now(), self.seen[m].due);
        if before > now && before <= due {
            return;
        }
        let after = due.saturating_sub(now).max(1);
        // Clocks run a little apart.
        let after = after + self.random_below(after / 10 + 1);
        self.seen[m].due = now + after;
        self.at(after, What::Due(m, self.members[m].run));
    }

    /// Some thread takes a turn.
    pub(super) fn help(&mut self, m: usize) -> Found {
        let now = self.time.instant();
        let Some(r) = &mut self.members[m].running else {
            return Ok(());
        };
        if r.driver.has_ended() {
            return Ok(());
        }
        let mut came = r.driver.came();
        r.hands.bugs.came(&mut came, r.store());
        let turned = r.driver.turn(came, now);
        self.has_turned(m, turned)
    }

    /// A member's driver has taken a turn.
    pub(super) fn has_turned(&mut self, m: usize, turned: Result<()>) -> Found {
        let (fell, ended) = (self.members[m].fell(), self.ended(m));
        match turned {
            Err(_) if fell => {}
            // An effect that cannot be carried out ends the process.
            Err(_) if ended || self.members[m].hurt => return self.crash(m),
            Err(e) => return Err(format!("member {m} cannot go on: {e}")),
            Ok(()) => {}
        }
        self.after(m)
    }

    /// The member was ended while it waited for room.
    pub(super) fn ended(&self, m: usize) -> bool {
        let r = self.members[m].running.as_ref();
        r.is_some_and(|r| r.hands.ended.load(SeqCst))
    }

    /// Checks the state of a member, and does what it asks for.
    pub(super) fn after(&mut self, m: usize) -> Found {
        if self.members[m].fell() {
            self.course.falls += 1;
            return self.crash(m);
        }
        if self.ended(m) {
            return self.crash(m);
        }
        self.look(m)?;
        let run = self.members[m].run;
        let Some(r) = &self.members[m].running else {
            return Ok(());
        };
        let fill = r.hands.desk.lock().fill.take();
        if let Some((leader, at_least)) = fill {
            self.begin_filling(m, leader, at_least);
        }
        let Some(r) = &self.members[m].running else {
            return Ok(());
        };
        let waited = r.hands.waited.swap(0, SeqCst) * MS;
        let called = r.node.persister.is_called();
        let (ways, jobs) = {
            let mut desk = r.hands.desk.lock();
            (std::mem::take(&mut desk.ways), desk.jobs.len())
        };
        let told = r.driver.has_news() || r.node.inbox.is_called_sooner();
        let has_ended = r.driver.has_ended();
        let put_off = r.driver.gathers_until().map(|at| self.time.of(at));
        let overdue = put_off.is_some_and(|at| at + 20 * MS < self.now());
        if !has_ended && (r.driver.oversleeps() || overdue) {
            return Err(format!("member {m} sleeps though something is put off"));
        }
        let (gathering, unsynced) = r.driver.gathers();
        self.course.gathering += u64::from(gathering);
        self.course.unsynced += u64::from(unsynced);
        if waited > 0 {
            self.seen[m].late = self.now() + waited;
        }
        for way in ways {
            self.number += 1;
            let road = self.number;
            let to = way.to as usize - 1;
            self.roads.insert(road, Road::new((m, run), to, way));
            let soon = self.random_below(5 * MS);
            self.at(soon, What::Connect(road));
        }
        if jobs > 0 {
            let soon = self.random_below(5 * MS);
            self.at(soon, What::Job(m, run));
        }
        if called && !std::mem::replace(&mut self.seen[m].syncing, true) {
            let soon = 1 + self.random_below(self.world.sync);
            self.at(soon, What::Sync(m, run));
        }
        if told && !std::mem::replace(&mut self.seen[m].turning, true) {
            let soon = 1 + self.random_below(2 * MS);
            self.at(soon, What::Turn(m, run));
        }
        if self.world.flushes > 0 {
            self.work_soon(m);
        }
        let serve: Vec<u64> = self
            .roads
            .iter_mut()
            .filter(|(_, road)| road.from == m && road.run == run && road.waits())
            .filter_map(|(id, road)| (!std::mem::replace(&mut road.serving, true)).then_some(*id))
            .collect();
        let late = self.seen[m].late.saturating_sub(self.now());
        for road in serve {
            let soon = late + self.random_below(MS);
            self.at(soon, What::Serve(road));
        }
        match has_ended {
            true => self.begin_anew(m),
            false => Ok(()),
        }
    }

    pub(super) fn work_soon(&mut self, m: usize) {
        if !std::mem::replace(&mut self.seen[m].working, true) {
            let soon = 1 + self.random_below(self.world.flushes.max(100 * MS));
            self.at(soon, What::Work(m));
        }
    }

    /// Flushes, compacts, opens a log anew that has failed.
    pub(super) fn work(&mut self, m: usize) -> Found {
        self.seen[m].working = false;
        let Some(r) = &self.members[m].running else {
            return Ok(());
        };
        if r.store().write_lock_depth() > 0 {
            // This would wait for the end of the lock, which only the simulator's one thread can bring.
            self.work_soon(m);
            return Ok(());
        }
        if self.world.flushes > 0 && self.random.one_in(3) {
            // A failure shows in the figures.
            let flushed = r.store().flush();
            self.course.flushes += u64::from(flushed.is_ok());
        }
        r.store().work();
        r.node.inbox.look();
        self.nothing_uncommitted_in_files(m)?;
        self.after(m)
    }

    /// Checks that nothing above the commit point is in a file of the trees.
    pub(super) fn nothing_uncommitted_in_files(&self, m: usize) -> Found {
        let Some(r) = &self.members[m].running else {
            return Ok(());
        };
        let committed = self.oracle.committed.len();
        let (log, cut) = (&self.seen[m].log, r.store().persisted());
        match log.get(committed).filter(|e| e.at <= cut) {
            None => Ok(()),
            Some(_) => Err(format!(
                "member {m} has record {} in its trees' files, and only {committed} are committed",
                committed + 1
            )),
        }
    }

    /// Checks what is new in a member's log, and what the member says to be committed.
    pub(super) fn look(&mut self, m: usize) -> Found {
        self.look_for(m, None)
    }

    /// Does the same; what is new may have been written by this statement.
    pub(super) fn look_for(&mut self, m: usize, writes: Option<&Writes>) -> Found {
        let Some(r) = &self.members[m].running else {
            return Ok(());
        };
        if self.members[m].fell() {
            // The power has failed: what the member did since has no effect.
            return Ok(());
        }
        let store = r.store();
        let seen = &mut self.seen[m];
        // While the disk is full there may be no log to read, and what is committed is told all the same.
        let p = store.position().unwrap_or_default();
        let oracle = &mut self.oracle;
        while (seen.log.len() as u64) < p.appended.index {
            let failed = |e| format!("member {m}: {e}");
            let reader = match seen.reader.take() {
                Some(reader) => reader,
                None => store
                    .records_behind(seen.log.len() as u64)
                    .map_err(|e| failed(e.to_string()))?,
            };
            let reader = seen.reader.insert(reader);
            let Some(record) = reader.next().map_err(|e| failed(e.to_string()))? else {
                break;
            };
            let (index, term) = (record.index, record.term);
            let entry = Entry {
                term,
                at: record.at,
                sum: sum_of(record.at.0, record.payload),
            };
            oracle.record(index, entry).map_err(failed)?;
            seen.log.push(entry);
            let statements = self.perhaps.iter().chain(writes);
            for (token, changes) in statements.flat_map(|w| w.of_record(record.payload)) {
                // The next update of the same row may have it once more.
                if !oracle.has_written(*token, &seen.log) {
                    oracle.does(index, term, *token, changes);
                }
            }
        }
        let committed = r.node.committed().min(seen.log.len() as u64);
        while seen.committed < committed {
            seen.committed += 1;
            let entry = seen.log[seen.committed as usize - 1];
            self.oracle
                .commits(seen.committed, entry)
                .map_err(|e| format!("member {m}: {e}"))?;
        }
        let leads = r.set().is_primary();
        let elected = leads && !seen.leads;
        seen.leads = leads;
        if elected {
            self.course.elections += 1;
            self.elected_beside(m);
        }
        if elected && self.world.storm {
            let (soon, run) = (self.random_below(150 * MS), self.members[m].run);
            self.at(soon, What::Fall(m, run));
        }
        let what = [p.appended.index, committed, p.durable.index];
        let now = self.time.now();
        if self.traced {
            println!("       member {m}: {what:?}");
        }
        for n in what {
            self.note(now, n * 8 + m as u64);
        }
        Ok(())
    }

    pub(super) fn start(&mut self, m: usize) -> Found {
        if self.members[m].running.is_some() {
            return Ok(());
        }
        self.seen[m] = Seen {
            late: self.seen[m].late,
            ..Seen::default()
        };
        let started = self.members[m].start(&mut self.random);
        if self.members[m].fell() {
            self.course.falls += 1;
            return self.crash(m);
        }
        if let Err(e) = started {
            // A disk that is full or fails keeps it from starting.
            let room = self.members[m].disk.free() < u64::MAX;
            if room && e.code() == Code::OutOfDiskSpace || self.members[m].hurt {
                self.members[m].running = None;
                self.at(300 * MS, What::Start(m));
                return Ok(());
            }
            return Err(format!("member {m} does not start: {e}"));
        }
        let r = self.members[m].running.as_ref().unwrap();
        // Of a copy the log begins later; what was before it is committed.
        let begins = r.store().log_begins_behind().unwrap_or_default().index as usize;
        match self.oracle.committed.get(..begins) {
            Some(before) => self.seen[m].log = before.to_vec(),
            None => {
                return Err(format!(
                    "member {m} has a copy up to {begins}, which is not committed"
                ));
            }
        }
        let differences = r.differences();
        match differences {
            Ok(d) if d.is_empty() => {}
            // The power has failed meanwhile.
            _ if self.members[m].fell() => return self.after(m),
            found => return Err(format!("member {m} after its start: {found:?}")),
        }
        let run = self.members[m].run;
        self.course.restarts += 1;
        let soon = 1 + self.random_below(50 * MS);
        self.seen[m].due = self.now() + soon;
        self.at(soon, What::Due(m, run));
        self.after(m)?;
        self.nothing_uncommitted_in_files(m)
    }

    /// The power fails, or the process is killed.
    pub(super) fn crash(&mut self, m: usize) -> Found {
        self.no_source(m);
        self.course.crashes += 1;
        let (process, seed) = (self.random.one_in(4), self.random.next());
        self.members[m].crash(process, seed);
        self.gone(m);
        let later = (1 + self.random_below(700)) * MS;
        self.at(later, What::Start(m));
        Ok(())
    }

    /// The member's process has ended.
    pub(super) fn gone(&mut self, m: usize) {
        self.seen[m].leads = false;
        let run = self.members[m].run;
        self.roads
            .retain(|_, road| road.from != m || road.run != run);
        // What it has sent may still arrive; what was on the way to it has nowhere to go.
        self.wires
            .retain(|_, wire| wire.to != m && (wire.from != m || !wire.flight.is_empty()));
        let roads = &self.roads;
        let broken: Vec<u64> = roads
            .iter()
            .filter(|(_, r)| r.to == m)
            .map(|(id, _)| *id)
            .collect();
        for road in broken {
            self.break_off(road);
        }
    }

    /// A member gives up records, and goes on from what is on its disk.
    pub(super) fn begin_anew(&mut self, m: usize) -> Found {
        let r = self.members[m].running.as_ref().unwrap();
        let why = r.state.lifecycle.wait_for_stop();
        if why.restart != Some(Restart::Storage) {
            return Err(format!("member {m} ends: {}", why.reason));
        }
        let state = self.members[m].state_file().read();
        let state = state.map_err(|e| format!("member {m}: {e}"))?;
        let cut = state.and_then(|s| s.cut);
        let cut = cut.ok_or_else(|| format!("member {m} begins anew for nothing"))?;
        self.given_up(m, cut)?;
        match self.random.one_in(4) {
            true => self.crash(m),
            false => {
                self.no_source(m);
                self.members[m].stop_to_begin_anew();
                self.gone(m);
                self.at(1, What::Start(m));
                Ok(())
            }
        }
    }

    /// Checks that what a member gives up was not acknowledged, and stands in files.
    pub(super) fn given_up(&mut self, m: usize, cut: u64) -> Found {
        let mut tokens = BTreeSet::new();
        for (i, entry) in self.seen[m].log.iter().enumerate().skip(cut as usize) {
            self.course.given_up += 1;
            let found = self.oracle.gave_up(i as u64 + 1, entry.term);
            tokens.extend(found.map_err(|e| format!("member {m}: {e}"))?);
        }
        // What was deleted again is in no file.
        let rows = self.rows(m, "local")?.unwrap_or_default();
        let there: BTreeSet<i64> = rows.values().flatten().copied().collect();
        let disk = &self.members[m].disk;
        let paths = disk.paths().into_iter();
        let files = paths.filter(|p| p.to_string_lossy().contains("/rollback/"));
        let mut kept = BTreeSet::new();
        for bytes in files.filter_map(|p| disk.bytes(&p)) {
            let mut rest: &[u8] = &bytes;
            // A power cut may have left half of an older one.
            while let Some(head) = rest.first_chunk::<4>()
                && let Some((one, behind)) =
                    rest.split_at_checked(u32::from_le_bytes(*head) as usize)
                && muniment_value::validate(one).is_ok()
            {
                kept.extend(tokens_of(Doc::new(one)));
                rest = behind;
            }
        }
        let lost = tokens
            .iter()
            .find(|t| there.contains(t) && !kept.contains(t));
        match lost {
            None => Ok(()),
            Some(token) => Err(format!(
                "member {m} gives token {token} up, which is in none of its rollback files"
            )),
        }
    }
}
