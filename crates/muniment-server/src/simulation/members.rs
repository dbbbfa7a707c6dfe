//! The members of sets: their turns, what they ask for, and their starts.
//!
//! A member's driver takes each turn in a fibre, since a turn may wait for what others have locked.

use super::bugs::Bug;
use super::cluster::{Found, run_command};
use super::fibres::here;
use super::server::{Server, Up};
use super::sim::Sim;
use super::ways;
use super::worker::Job;
use super::world::{MS, What};
use crate::distributed::Doubts;
use crate::moving::Cleaner;
use crate::options::ClusterRole;
use crate::replica_set::simulation::member::{config_of_cluster, connection};
use crate::replica_set::simulation::random::Random;
use crate::state::ServerState;
use muniment_member::node::Persister;
use muniment_value::{Result, doc};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Sim {
    pub fn server(&mut self, m: usize) -> &mut Server {
        self.servers.get_mut(&m).unwrap()
    }

    pub fn runs(&self, m: usize, run: u64) -> bool {
        self.servers[&m].up.is_some() && self.world.lock().processes[m].run == run
    }

    /// Makes the members of a set, and begins their processes.
    pub fn found(&mut self, members: &[usize], random: &mut Random) -> Found {
        if let [alone] = members {
            let made = self.server(*alone).member.initiate_alone(random);
            made.map_err(|e| format!("member {alone} is not initiated: {e}"))?;
            self.has_started(*alone);
            return Ok(());
        }
        let mut first = None;
        for m in members {
            let member = &mut self.server(*m).member;
            let config = config_of_cluster(&member.of, members);
            member.found(&config, first.as_ref());
            first.get_or_insert(member.disk.clone());
        }
        for m in members {
            let started = self.server(*m).member.start(random);
            started.map_err(|e| format!("member {m} does not start: {e}"))?;
            self.has_started(*m);
            self.after(*m)?;
        }
        Ok(())
    }

    /// A turn of a member's driver begins, unless one goes on: what comes meanwhile is looked at after that.
    pub fn begin_turn(&mut self, m: usize) {
        let world = Arc::clone(&self.world);
        let Some(up) = &mut self.server(m).up else {
            return;
        };
        if up.turn.is_some() {
            return;
        }
        let turned = Arc::<Mutex<Option<Result<()>>>>::default();
        up.turn = Some(Arc::clone(&turned));
        let (driver, hands, state) = (
            Arc::clone(&up.driver),
            up.hands.clone(),
            Arc::clone(&up.state),
        );
        let time = Arc::clone(&world);
        let job: Job = Box::new(move || {
            let mut driver = driver.lock();
            let done = match driver.rests_on() {
                true => Ok(()),
                false => {
                    driver.wake();
                    let mut came = driver.came();
                    hands.bugs.came(&mut came, &state.engine.store);
                    driver.turn(came, time.time.instant())
                }
            };
            *turned.lock() = Some(done);
        });
        let mut inner = world.lock();
        let place = (m, inner.processes[m].run);
        inner.spawn(Some(place), 0, job);
    }

    /// The driver rests until it is due, unless it is called.
    fn rest(&mut self, m: usize) {
        let world = Arc::clone(&self.world);
        let server = self.server(m);
        let Some(up) = &server.up else { return };
        let (_, due) = up.driver.lock().rest();
        let mut inner = world.lock();
        let (due, now) = (world.time.of_up(due), inner.now());
        if server.due > now && server.due <= due {
            return;
        }
        let after = due.saturating_sub(now).max(1);
        server.due = now + after;
        let run = inner.processes[m].run;
        inner.at(after, What::Due(m, run));
    }

    /// Has a member's log synced.
    pub fn sync(&mut self, m: usize) {
        let server = self.server(m);
        server.syncing = false;
        if let Some(up) = &server.up {
            Persister::sync(&up.node, &up.state.engine.store);
        }
    }

    /// Does what a member asks for.
    pub fn after(&mut self, m: usize) -> Found {
        let server = self.server(m);
        if server.member.fell() && server.up.is_some() {
            self.world.lock().course.falls += 1;
            return self.crash(m);
        }
        let Some(up) = &mut server.up else {
            return Ok(());
        };
        let turned = up.turn.as_ref().and_then(|turn| turn.lock().take());
        if let Some(turned) = turned {
            up.turn = None;
            turned.map_err(|e| format!("member {m} cannot go on: {e}"))?;
            if up.driver.lock().has_ended() {
                return self.begin_anew(m);
            }
            self.rest(m);
        }
        let server = self.server(m);
        let Some(up) = &mut server.up else {
            return Ok(());
        };
        let called = up.node.persister.is_called();
        let (jobs, ways) = {
            let mut desk = up.hands.desk.lock();
            if desk.fill.is_some() {
                return Err(format!(
                    "member {m} is to be filled, which it has no reason for"
                ));
            }
            (
                std::mem::take(&mut desk.jobs),
                std::mem::take(&mut desk.ways),
            )
        };
        let told =
            up.turn.is_none() && (up.driver.lock().has_news() || up.node.inbox.is_called_sooner());
        let leads = up.state.is_writable();
        let elected = leads && !server.leads;
        server.leads = leads;
        let set = server.set;
        let syncs = called && !std::mem::replace(&mut server.syncing, true);
        let turns = told && !std::mem::replace(&mut server.called, true);
        if set > 0 {
            self.ways.look(&self.world)?;
        }
        self.new_roads(m, ways);
        let mut inner = self.world.lock();
        let inner = &mut *inner;
        if elected && inner.sets[set].len() > 1 {
            inner.course.elections += 1;
            inner.trace(|| format!("server {m} leads"));
        }
        let place = (m, inner.processes[m].run);
        for job in jobs {
            inner.spawn(Some(place), 100, job);
        }
        if syncs {
            let soon = 1 + inner.random.below(30 * MS);
            inner.at(soon, What::Sync(m, place.1));
        }
        if turns {
            let soon = 1 + inner.random.below(MS);
            inner.at(soon, What::Turn(m, place.1));
        }
        self.roads.serve_soon(inner, place);
        Ok(())
    }

    /// A member gives up records: its process begins anew, from what is on its disk.
    fn begin_anew(&mut self, m: usize) -> Found {
        if self.world.lock().sets[self.servers[&m].set].len() == 1 {
            return Err(format!(
                "member {m} begins anew, which it has no reason for"
            ));
        }
        self.world.lock().course.rollbacks += 1;
        self.crash(m)
    }

    pub fn start_member(&mut self, m: usize) -> Found {
        let seed = self.world.lock().random.next();
        let started = self.server(m).member.start(&mut Random::new(seed));
        if self.servers[&m].member.fell() {
            return self.crash(m);
        }
        started.map_err(|e| format!("member {m} does not start: {e}"))?;
        self.world.lock().course.restarts += 1;
        self.has_started(m);
        self.after(m)
    }

    /// A member's process has begun.
    fn has_started(&mut self, m: usize) {
        let world = Arc::clone(&self.world);
        let server = self.server(m);
        let (state, node, driver, hands) = server.member.running.take().unwrap().apart();
        (server.called, server.syncing, server.leads) = (false, false, false);
        server.up = Some(Up {
            state: Arc::clone(&state),
            node,
            hands,
            driver: Arc::new(Mutex::new(driver)),
            turn: None,
        });
        let mut inner = world.lock();
        let inner = &mut *inner;
        inner.processes[m].run += 1;
        let place = (m, inner.processes[m].run);
        inner.processes[m].state = Some(Arc::clone(&state));
        inner.processes[m].fell = server.member.falls();
        let delay = inner.random.pick(&[0, 0, 1, 3]);
        state.parameters.orphan_delay_secs.store(delay, Relaxed);
        let lifetime = inner.random.pick(&[1, 3, 10]);
        let parameters = &state.parameters;
        parameters
            .transaction_lifetime_secs
            .store(lifetime, Relaxed);
        inner.trace(|| format!("server {m} is up, run {}", place.1));
        let soon = 1 + inner.random.below(20 * MS);
        server.due = inner.now() + soon;
        inner.at(soon, What::Due(m, place.1));
        let housekeeping: Job = Box::new(move || keep_house(&state));
        inner.spawn(Some(place), 10 * MS, housekeeping);
    }

    /// A primary is told to step down.
    pub fn step_down(&mut self, m: usize) {
        let Some(up) = &self.servers[&m].up else {
            return;
        };
        let state = Arc::clone(&up.state);
        let job: Job = Box::new(move || {
            let body = doc! { "replSetStepDown": 3, "secondaryCatchUpPeriodSecs": 1, "force": true, "$db": "admin" };
            run_command(&state, &connection(), body.as_doc());
        });
        let mut inner = self.world.lock();
        inner.course.stepdowns += 1;
        inner.trace(|| format!("server {m} is to step down"));
        let place = (m, inner.processes[m].run);
        inner.spawn(Some(place), 0, job);
    }
}

/// What a member does by itself, until its process ends.
fn keep_house(state: &Arc<ServerState>) {
    let here = here().unwrap();
    let (mut cleaner, mut doubts) = (Cleaner::new(), Doubts::default());
    let mut forgets = here.world.bug == Some(Bug::FreezeForgotten);
    while !here.is_dead() {
        if forgets && state.is_writable() {
            forgets = false;
            ways::thaw(state);
        }
        if state.options.role == ClusterRole::Shard {
            cleaner.turn(state);
        }
        doubts.turn(state);
        crate::housekeeping::end_old(state);
        state.engine.store.work();
        here.sleep(if forgets { MS } else { 500 * MS });
    }
}
