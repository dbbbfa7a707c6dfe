//! The course of a run: what happens when, drawn from the seed.

use super::bugs::Bug;
use super::cluster::{
    FIRST_ROUTER, Found, ROUTERS, SHARDS, is_router, run_request, shard_name, short,
};
use super::course::Course;
use super::fibres::{Scheduler, give, here};
use super::roads::Roads;
use super::server::Server;
use super::worker::{Job, Worker};
use super::world::{MS, Process, What, World};
use super::{activities, faults, ways};
use crate::connections::ConnShared;
use crate::options::{ClusterRole, ServerOptions, SetAddress};
use crate::replica_set::simulation::Bugs;
use crate::replica_set::simulation::member::{Member, Of, connection, host};
use crate::replica_set::simulation::random::{Random, SimClock};
use crate::server::{open_state, open_storage, parameters_of};
use crate::state::{Parts, ServerState};
use muniment_io::{Machine, SimDisk};
use muniment_logger::Logger;
use muniment_member::Told;
use muniment_op::lives_in;
use muniment_storage::EngineKind;
use muniment_value::DocBuf;
use muniment_wire::OpMsg;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

pub struct Sim {
    pub world: Arc<World>,
    /// The members of sets, by the numbers of their processes.
    pub servers: BTreeMap<usize, Server>,
    pub roads: Roads,
    threads: Vec<JoinHandle<()>>,
    workers: Vec<Arc<Worker>>,
    idle: Vec<Arc<Worker>>,
    pub ways: ways::Ways,
    /// The processes that have ended, as far as something still holds them.
    ended: Vec<Weak<ServerState>>,
}

fn name_of(set: usize) -> String {
    match set {
        0 => "cfg".to_string(),
        n => shard_name(n),
    }
}

/// The members of the sets: of most runs one each.
fn sets_of(seed: u64) -> Vec<Vec<usize>> {
    let mut random = Random::new(seed ^ 0x5e75);
    let mut next = FIRST_ROUTER + ROUTERS;
    let has_elections = random.one_in(3);
    let members = |set: usize| {
        let mut members = vec![set];
        if has_elections && random.below(3) > 0 {
            members.extend([next, next + 1]);
            next += 2;
        }
        members
    };
    (0..=SHARDS).map(members).collect()
}

impl Sim {
    pub fn new(seed: u64, bug: Option<Bug>) -> Result<Sim, String> {
        let world = World::new(seed, bug);
        lives_in(Some(Arc::new(Scheduler(Arc::clone(&world)))));
        let mut random = Random::new(seed ^ 0x5eed);
        let sets = sets_of(seed);
        let bugs = match bug {
            Some(Bug::OfMembers(bugs)) => bugs,
            _ => Bugs::default(),
        };
        let mut servers = BTreeMap::new();
        for (set, members) in sets.iter().enumerate() {
            let of = Of {
                set: name_of(set),
                role: match set {
                    0 => ClusterRole::Config,
                    _ => ClusterRole::Shard,
                },
            };
            for number in members {
                let drawn = (&world.time, &mut random);
                let member = Member::of(of.clone(), *number, drawn, bugs);
                servers.insert(*number, Server::new(member, set));
            }
        }
        let all = FIRST_ROUTER + ROUTERS + servers.len() - sets.len();
        world.lock().sets.clone_from(&sets);
        world.lock().processes = (0..all)
            .map(|number| Process {
                host: host(number),
                run: 0,
                state: None,
                conn: connection(),
                fell: Arc::default(),
            })
            .collect();
        let mut sim = Sim {
            servers,
            roads: Roads::default(),
            world,
            threads: Vec::new(),
            workers: Vec::new(),
            idle: Vec::new(),
            ways: ways::Ways::default(),
            ended: Vec::new(),
        };
        for members in &sets {
            sim.found(members, &mut random)?;
        }
        for r in FIRST_ROUTER..FIRST_ROUTER + ROUTERS {
            sim.start_router(r)?;
        }
        Ok(sim)
    }

    /// Runs to the end.
    pub fn run(mut self) -> Result<Course, String> {
        let found = self.live();
        let time = self.world.lock().now() / MS;
        let found = found.map_err(|e| format!("at {time} ms: {e}"));
        self.end();
        found?;
        Ok(self.world.lock().course)
    }

    fn live(&mut self) -> Found {
        self.prepare()?;
        let until = {
            let mut inner = self.world.lock();
            let inner = &mut *inner;
            faults::draw(inner);
            let first = inner.random.below(faults::every(inner));
            inner.at(first, What::Fault);
            let longer = if inner.has_elections() { 4_000 } else { 0 };
            inner.now() + (1_500 + longer + inner.random.below(2_500)) * MS
        };
        activities::begin(&self.world);
        while self.world.lock().now() < until {
            self.step()?;
        }
        self.calm_down();
        // Rights of routers that have ended are old by then, and clients have come to an end.
        let end = self.world.lock().now() + 120_000 * MS;
        while !activities::are_done(&self.world) {
            self.step()?;
            if self.world.lock().now() > end {
                return Err(format!("it does not come to rest: {}", self.picture()));
            }
        }
        let rests = self.world.lock().now() + 15_000 * MS;
        while self.world.lock().now() < rests {
            self.step()?;
        }
        self.run_to_end("the end", activities::look_at_the_end)?;
        let rests = self.world.lock().now() + 5_000 * MS;
        while self.world.lock().now() < rests {
            self.step()?;
        }
        self.ways.at_the_end(&self.world)
    }

    /// Makes the cluster.
    fn prepare(&mut self) -> Found {
        self.run_to_end("the preparation", activities::prepare)
    }

    /// Runs a job to its end.
    fn run_to_end(&mut self, what: &str, job: fn()) -> Found {
        let done = Arc::new(Mutex::new(false));
        let told = Arc::clone(&done);
        let job: Job = Box::new(move || {
            job();
            *told.lock() = true;
        });
        let end = {
            let mut inner = self.world.lock();
            inner.spawn(None, 0, job);
            inner.now() + 120_000 * MS
        };
        while !*done.lock() {
            self.step()?;
            if self.world.lock().now() > end {
                return Err(format!("{what} does not end: {}", self.picture()));
            }
        }
        Ok(())
    }

    pub fn step(&mut self) -> Found {
        let (at, what) = {
            let mut inner = self.world.lock();
            let Some(((at, _), what)) = inner.queue.pop_first() else {
                return Err("nothing is left to happen".into());
            };
            inner.course.steps += 1;
            self.world.time.go_to(at.max(inner.now()));
            let kind = std::mem::discriminant(&what);
            inner.course.note(at, format!("{kind:?}").as_bytes());
            (at, what)
        };
        match what {
            What::Resume(fibre, rests) => self.resume(fibre, rests)?,
            What::Deliver(line, message) => self.deliver(line, message)?,
            What::Reply(line, reply) => self.reply(line, reply)?,
            What::Break(line) => break_off(&self.world, line),
            What::Turn(m, run) => {
                if self.runs(m, run) {
                    self.server(m).called = false;
                    self.begin_turn(m);
                }
            }
            What::Due(m, run) => {
                if self.runs(m, run) && self.server(m).due == at {
                    self.begin_turn(m);
                }
            }
            What::Sync(m, run) => {
                if self.runs(m, run) {
                    self.sync(m);
                    self.after(m)?;
                }
            }
            What::Connect(road) => self.connect(road)?,
            What::Serve(road) => self.serve_road(road),
            What::Arrive(wire) => self.arrive(wire)?,
            What::Start(p) => self.start(p)?,
            What::Fault => self.fault()?,
            What::Heal => self.world.lock().cut.clear(),
            What::Crash(p, run) => {
                let is_up = self.world.lock().is_up((p, run));
                if is_up {
                    self.crash(p)?;
                }
            }
        }
        match self.world.lock().failure.take() {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// A fibre has the baton until it rests or ends.
    fn resume(&mut self, number: u64, rests: u64) -> Found {
        let (worker, new) = {
            let mut inner = self.world.lock();
            let Some(fibre) = inner.fibres.get_mut(&number) else {
                return Ok(());
            };
            if fibre.rests != rests {
                return Ok(());
            }
            fibre.rests += 1;
            if fibre.job.is_some() && inner.is_dead(number) {
                // Its process has ended before it began.
                inner.fibres.remove(&number);
                return Ok(());
            }
            let fibre = inner.fibres.get_mut(&number).unwrap();
            (fibre.worker.clone(), fibre.job.take())
        };
        let worker = match (worker, new) {
            (Some(worker), _) => worker,
            (None, Some(job)) => {
                let worker = match self.idle.pop() {
                    Some(worker) => worker,
                    None => {
                        let (worker, thread) = Worker::start();
                        self.threads.push(thread);
                        self.workers.push(Arc::clone(&worker));
                        worker
                    }
                };
                let world = Arc::clone(&self.world);
                let ended = move || drop(world.lock().fibres.remove(&number));
                give(&worker, (&self.world, number), job, ended);
                let mut inner = self.world.lock();
                inner.fibres.get_mut(&number).unwrap().worker = Some(Arc::clone(&worker));
                worker
            }
            (None, None) => return Ok(()),
        };
        let place = self.world.lock().fibres[&number].place;
        let panicked = worker.run();
        let is_left = self.world.lock().fibres.contains_key(&number);
        if !is_left {
            self.idle.push(worker);
        }
        if panicked {
            return Err("a panic, see above".into());
        }
        match place {
            Some((m, _)) if !is_router(m) => self.after(m),
            _ => Ok(()),
        }
    }

    fn deliver(&mut self, number: u64, message: Vec<u8>) -> Found {
        let hit = {
            let mut inner = self.world.lock();
            let inner = &mut *inner;
            let Some(line) = inner.lines.get(&number) else {
                return Ok(());
            };
            let (from, to) = (line.from, line.to);
            if inner.is_cut(from.0, to.0) {
                inner.hold_up(number, What::Deliver(number, message));
                return Ok(());
            }
            if !inner.is_up(to) {
                inner.at(0, What::Break(number));
                return Ok(());
            }
            inner.course.messages += 1;
            inner.trace(|| {
                let (from, to) = (from.0, to.0);
                format!("{from} -> {to} [{number}]: {}", describe(&message))
            });
            let moves = inner.lines[&number].user;
            let moves = inner.fibres.get(&moves).is_some_and(|f| f.moves);
            let hit = faults::aimed(inner, moves, (from, to));
            let state = inner.processes[to.0].state.clone().unwrap();
            let conn = Arc::clone(&inner.processes[to.0].conn);
            let job: Job = Box::new(move || serve(&state, &conn, number, &message));
            let fibre = inner.spawn(Some(to), 0, job);
            inner.fibres.get_mut(&fibre).unwrap().moves = moves;
            hit
        };
        match hit {
            Some(process) => self.crash(process),
            None => Ok(()),
        }
    }

    fn reply(&mut self, number: u64, reply: DocBuf) -> Found {
        let mut inner = self.world.lock();
        let inner = &mut *inner;
        let Some(line) = inner.lines.get(&number) else {
            return Ok(());
        };
        if inner.is_cut(line.from.0, line.to.0) {
            inner.hold_up(number, What::Reply(number, reply));
            return Ok(());
        }
        inner.trace(|| format!("   reply [{number}]: {}", short(reply.as_doc())));
        let line = inner.lines.get_mut(&number).unwrap();
        if line.ended {
            inner.lines.remove(&number);
            return Ok(());
        }
        line.reply = Some(reply);
        let user = line.user;
        inner.wake(user);
        Ok(())
    }

    /// A process is to begin.
    pub fn start(&mut self, p: usize) -> Found {
        if self.world.lock().processes[p].state.is_some() {
            return Ok(());
        }
        if is_router(p) {
            return self.start_router(p);
        }
        self.start_member(p)
    }

    fn start_router(&mut self, p: usize) -> Found {
        let mut inner = self.world.lock();
        let address = SetAddress {
            name: name_of(0),
            hosts: inner.sets[0].iter().map(|n| host(*n)).collect(),
        };
        inner.processes[p].run += 1;
        let random = Random::new(inner.random.next());
        let options = ServerOptions {
            role: ClusterRole::Router(address),
            engine: EngineKind::Memory,
            machine: Machine {
                disk: Arc::new(SimDisk::new()),
                clock: Arc::new(SimClock {
                    time: Arc::clone(&self.world.time),
                    ahead_ms: 0,
                    random: Mutex::new(random),
                }),
                threads: false,
            },
            ..ServerOptions::embedded(PathBuf::from("/router"))
        };
        let state = open_router(options, p).map_err(|e| format!("router {p}: {e}"))?;
        inner.trace(|| format!("router {p} is up, run {}", inner.processes[p].run));
        inner.processes[p].state = Some(state);
        Ok(())
    }

    /// The power of a server fails, or a router is killed.
    pub fn crash(&mut self, p: usize) -> Found {
        let mut inner = self.world.lock();
        let inner = &mut *inner;
        inner.trace(|| format!("server {p} crashes"));
        let state = inner.processes[p].state.clone();
        match self.servers.get_mut(&p) {
            Some(server) => {
                inner.course.crashes += 1;
                let (process, seed) = (inner.random.one_in(4), inner.random.next());
                server.ends(process, seed);
            }
            None => inner.course.killed += 1,
        }
        if let Some(state) = &state {
            state.begin_stopping();
            self.ended.push(Arc::downgrade(state));
            // Its fibres come to their ends only if none waits for a transaction that nobody uses.
            let state = Arc::clone(state);
            let kills: Job = Box::new(move || state.transactions.kill_all(&state));
            inner.spawn(None, 0, kills);
        }
        inner.gone(p);
        self.roads.gone(inner, p);
        let longest = inner.random.pick(&[20, 200, 900]);
        let later = (1 + inner.random.below(longest)) * MS;
        inner.at(later, What::Start(p));
        Ok(())
    }

    fn fault(&mut self) -> Found {
        let hit = {
            let mut inner = self.world.lock();
            let inner = &mut *inner;
            if inner.calm {
                return Ok(());
            }
            let next = 1 + inner.random.below(2 * faults::every(inner));
            inner.at(next, What::Fault);
            faults::fault(inner)
        };
        match hit {
            Some(faults::Hit::Crash(p)) => self.crash(p),
            Some(faults::Hit::Fuse(m, n, seed)) => {
                self.server(m).member.fuse(n, seed);
                Ok(())
            }
            Some(faults::Hit::StepDown(m)) => {
                self.step_down(m);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Nothing breaks from here on.
    fn calm_down(&mut self) {
        let mut inner = self.world.lock();
        let inner = &mut *inner;
        inner.trace(|| "calm".to_string());
        inner.calm = true;
        inner.cut.clear();
        for server in self.servers.values() {
            if !server.member.fell() {
                server.member.disk.clear_hook();
            }
        }
    }

    fn picture(&self) -> String {
        let inner = self.world.lock();
        let up: Vec<_> = inner.processes.iter().map(|p| p.state.is_some()).collect();
        format!(
            "up {up:?}, {} fibres; {}",
            inner.fibres.len(),
            inner.oracle.picture()
        )
    }

    /// Ends all fibres and threads.
    fn end(&mut self) {
        let fibres: Vec<u64> = {
            let mut inner = self.world.lock();
            inner.ends = true;
            let states = inner.processes.iter().filter_map(|p| p.state.clone());
            states.for_each(|state| state.begin_stopping());
            inner.fibres.keys().copied().collect()
        };
        for number in fibres {
            let worker = {
                let mut inner = self.world.lock();
                let fibre = inner.fibres.get_mut(&number);
                fibre.and_then(|f| {
                    f.job = None;
                    f.worker.clone()
                })
            };
            if let Some(worker) = worker {
                // It does not rest any more.
                worker.run();
            }
        }
        for worker in &self.workers {
            worker.quit();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let mut inner = self.world.lock();
        inner.fibres.clear();
        let states = inner.processes.iter_mut().filter_map(|p| p.state.take());
        let states: Vec<_> = states.collect();
        drop(inner);
        self.ended.extend(states.iter().map(Arc::downgrade));
        drop(states);
        // Cursors that are open hold their servers.
        for state in self.ended.iter().filter_map(Weak::upgrade) {
            state.engine.cursors.kill_all();
        }
    }
}

/// A connection breaks.
fn break_off(world: &World, number: u64) {
    let mut inner = world.lock();
    let Some(mut line) = inner.lines.remove(&number) else {
        return;
    };
    line.ended = true;
    inner.wake(line.user);
}

fn open_router(options: ServerOptions, p: usize) -> muniment_value::Result<Arc<ServerState>> {
    let (parameters, log) = (parameters_of(&options)?, Arc::new(Logger::silent()));
    let opened = open_storage(&options, &parameters, &log, None)?;
    let (ways, world) = (muniment_member::Sockets, muniment_member::Threads);
    let parts = Parts {
        engine: opened.engine,
        log,
        audit: None,
        parameters,
        port: 27_001 + p as u16,
        socket: None,
        max_conns: 10,
        kept_for_set: false,
        oplog_window: opened.oplog_window,
        trust: muniment_member::Trust::default(),
        told: Told::default(),
        ways: Box::new(ways),
        world: Box::new(world),
    };
    open_state(options, parts)
}

/// Executes a request, and sends the reply.
fn serve(state: &Arc<ServerState>, conn: &Arc<ConnShared>, line: u64, message: &[u8]) {
    let here = here().unwrap();
    let Ok(message) = OpMsg::parse(message) else {
        return here.world.lock().fail("a message cannot be parsed".into());
    };
    let reply = run_request(state, conn, message.body, &message.sequences);
    let mut inner = here.world.lock();
    if inner.is_dead(here.fibre) {
        return;
    }
    let loss = !inner.calm && inner.random.below(1000) < inner.rough.loss;
    let delay = inner.delay();
    let what = match loss {
        true => What::Break(line),
        false => What::Reply(line, reply),
    };
    inner.at(delay, what);
}

fn describe(message: &[u8]) -> String {
    OpMsg::parse(message).map_or_else(|e| e.to_string(), |m| short(m.body))
}
