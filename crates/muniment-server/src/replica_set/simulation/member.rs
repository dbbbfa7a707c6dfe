//! One member: the whole server except its sockets and threads, over a disk in memory.

use super::bugs::Bugs;
use super::hands::Hands;
use super::random::{Random, SimClock, Time};
use crate::connections::ConnShared;
use crate::context::{ConnLocal, Request};
use crate::options::{ClusterRole, ServerOptions};
use crate::replica_set::host_of;
use crate::request::{self, Caller};
use crate::server::{open_state, open_storage, parameters_of};
use crate::state::{Parts, ServerState};
use muniment_consensus::{Config, InForce, LocalState, StateFile};
use muniment_io::sim::Op;
use muniment_io::{Disk, Machine, SimDisk};
use muniment_logger::Logger;
use muniment_member::driver::Driver;
use muniment_member::node::{Node, Persister};
use muniment_member::{ReplicaSet, SetConfig, Told, initiate};
use muniment_op::NeverInterrupted;
use muniment_storage::{Chunk, CollectionOptions, Position, Store, StoreOptions};
use muniment_value::{Doc, DocBuf, Error, Result};
use muniment_wire::Stream;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

/// The set's name.
pub const SET: &str = "sim";
/// The first member's port.
const PORT: u16 = 27_001;
/// The election timeout in milliseconds; a twentieth of it is a tick.
pub const ELECTION_MS: i64 = 1000;

/// The configuration of `n` members.
pub fn config(n: usize, random: &mut Random) -> SetConfig {
    let mut members = muniment_value::ArrayBuf::new();
    for i in 0..n {
        let priority = random.pick(&[1, 1, 1, 2]);
        members.push(muniment_value::doc! {
            "_id": i as i32, "host": host(i), "priority": priority,
        });
    }
    let of = Of {
        set: SET.to_string(),
        role: ClusterRole::None,
    };
    config_of(&of, members, ELECTION_MS)
}

/// The configuration of a cluster's set with these members, whose keys are their numbers.
pub fn config_of_cluster(of: &Of, numbers: &[usize]) -> SetConfig {
    let members = numbers.iter().map(|number| {
        muniment_value::doc! { "_id": *number as i32, "host": host(*number) }
    });
    // A lone member looks at the clock less often.
    let election_ms = match numbers {
        [_] => 10 * ELECTION_MS,
        _ => ELECTION_MS,
    };
    config_of(of, members.collect(), election_ms)
}

fn config_of(of: &Of, members: muniment_value::ArrayBuf, election_ms: i64) -> SetConfig {
    let mut d = muniment_value::doc! {
        "_id": of.set.as_str(), "version": 1, "term": 0, "members": members,
        "settings": muniment_value::doc! {
            "electionTimeoutMillis": election_ms,
            "heartbeatIntervalMillis": 200,
            "replicaSetId": muniment_value::Value::ObjectId([7; 12]),
        },
    };
    let of_config = matches!(of.role, ClusterRole::Config);
    d.append_some("configsvr", of_config.then_some(true));
    SetConfig::parse(d.as_doc()).unwrap()
}

/// The address of the member with this number.
pub fn host(number: usize) -> String {
    format!("localhost:{}", PORT + number as u16)
}

/// The set that a member is of.
#[derive(Clone)]
pub struct Of {
    pub set: String,
    pub role: ClusterRole,
}

/// What a member has while its process lives.
pub struct Running {
    pub state: Arc<ServerState>,
    pub node: Arc<Node>,
    pub driver: Driver,
    pub hands: Hands,
    conn: Arc<ConnShared>,
    local: ConnLocal,
}

pub struct Member {
    pub number: usize,
    pub of: Of,
    pub disk: SimDisk,
    pub clock: Arc<SimClock>,
    pub running: Option<Running>,
    /// Counts its processes.
    pub run: u64,
    /// The power fails at an operation of the disk: what is left on the disk then.
    cut: Arc<Mutex<Option<SimDisk>>>,
    fell: Arc<AtomicBool>,
    /// Its disk has been made to fail.
    pub hurt: bool,
    bugs: Bugs,
    /// What it was told before it began anew.
    pub told: Told,
}

impl Member {
    pub fn new(number: usize, time: &Arc<Time>, random: &mut Random, bugs: Bugs) -> Member {
        let of = Of {
            set: SET.to_string(),
            role: ClusterRole::None,
        };
        Member::of(of, number, (time, random), bugs)
    }

    /// A member of a set.
    pub fn of(
        of: Of,
        number: usize,
        (time, random): (&Arc<Time>, &mut Random),
        bugs: Bugs,
    ) -> Member {
        Member {
            number,
            of,
            disk: SimDisk::new(),
            clock: Arc::new(SimClock {
                time: time.clone(),
                ahead_ms: random.below(4000) as i64 - 2000,
                random: Mutex::new(Random::new(random.next())),
            }),
            running: None,
            run: 0,
            cut: Arc::default(),
            fell: Arc::default(),
            hurt: false,
            bugs,
            told: Told::default(),
        }
    }

    fn path() -> PathBuf {
        PathBuf::from("/db")
    }

    /// One with nothing but the directory.
    pub fn new_disk() -> SimDisk {
        let disk = SimDisk::new();
        disk.create_dir(&Member::path()).unwrap();
        disk
    }

    pub fn bugs(&self) -> Bugs {
        self.bugs
    }

    /// A disk with the copy of another member's data.
    pub fn import(&self, position: Position, chunks: Vec<Chunk>) -> Result<SimDisk> {
        let disk = Member::new_disk();
        let store = StoreOptions {
            machine: Machine {
                disk: Arc::new(disk.clone()),
                ..self.options().machine
            },
            ..StoreOptions::new(Member::path())
        };
        Store::import_locked(&store, position, chunks.into_iter().map(Ok))?;
        Ok(disk)
    }

    /// Makes the directory of a member that has been one from the beginning: what was there before the
    /// set is on the `first` one's disk.
    pub fn found(&mut self, config: &SetConfig, first: Option<&SimDisk>) {
        if let Some(first) = first {
            self.disk = first.fork();
        }
        let store = StoreOptions {
            machine: self.options().machine,
            ..StoreOptions::new(Member::path())
        };
        self.disk.create_dir(&Member::path()).unwrap();
        let store = Store::open_locked(store, None).unwrap();
        // A shard comes without databases.
        if first.is_none() && matches!(self.of.role, ClusterRole::None) {
            let options = CollectionOptions::default();
            let made = store.create_collection("t.rows", options, &NeverInterrupted);
            made.unwrap();
        }
        store.sync().unwrap();
        let last = store.position().unwrap().appended.index;
        store.close().unwrap();
        let terms = (last > 0).then_some((last, 1)).into_iter().collect();
        let core = Config::default().number(config.to_core());
        let own = core.members.iter().find(|m| m.key == self.number as i32);
        let state = LocalState {
            in_force: InForce {
                index: last,
                voters: core.wanted_voters(),
                learners: BTreeSet::new(),
                config: core.clone(),
            },
            ..LocalState::initiate(own.unwrap().id, core.clone(), terms, last)
        };
        self.state_file().write(&state).unwrap();
    }

    pub fn state_file(&self) -> StateFile {
        StateFile::new(Arc::new(self.disk.clone()), &Member::path())
    }

    fn options(&self) -> ServerOptions {
        ServerOptions {
            replica_set: Some(self.of.set.clone()),
            role: self.of.role.clone(),
            // Segments of the log are small, too.
            cache_bytes: Some(16 << 10),
            machine: Machine {
                disk: Arc::new(self.disk.clone()),
                clock: self.clock.clone(),
                threads: false,
            },
            ..ServerOptions::embedded(Member::path())
        }
    }

    /// Begins a process.
    pub fn start(&mut self, random: &mut Random) -> Result<()> {
        let (hands, state) = self.open(random)?;
        self.drive(hands, state)
    }

    /// Begins one that initiates a set of its own.
    pub fn initiate(&mut self, random: &mut Random) -> Result<()> {
        self.disk.create_dir(&Member::path())?;
        let (hands, state) = self.open(random)?;
        let host = host_of(&state);
        initiate::begin(set_of(&state), &host, config(1, random), None)?;
        self.drive(hands, state)
    }

    /// Begins one that initiates a set of a cluster, of which it is the only member.
    pub fn initiate_alone(&mut self, random: &mut Random) -> Result<()> {
        self.disk.create_dir(&Member::path())?;
        let (hands, state) = self.open(random)?;
        let config = config_of_cluster(&self.of, &[self.number]);
        initiate::begin(set_of(&state), &host_of(&state), config, None)?;
        self.drive(hands, state)
    }

    fn open(&mut self, random: &mut Random) -> Result<(Hands, Arc<ServerState>)> {
        self.run += 1;
        let hands = Hands::new(
            self.disk.clone(),
            self.fell.clone(),
            self.bugs,
            random.next(),
        );
        let options = self.options();
        let (parameters, log) = (parameters_of(&options)?, Arc::new(Logger::silent()));
        let opened = open_storage(&options, &parameters, &log, None)?;
        let state = open_state(
            options,
            Parts {
                engine: opened.engine,
                log,
                audit: None,
                parameters,
                port: PORT + self.number as u16,
                socket: None,
                max_conns: 10,
                kept_for_set: opened.kept_for_set,
                oplog_window: opened.oplog_window,
                trust: muniment_member::Trust::default(),
                told: std::mem::take(&mut self.told),
                ways: Box::new(hands.clone()),
                world: Box::new(hands.clone()),
            },
        )?;
        // Writers would sleep.
        state.engine.store.set_flow_control(None);
        Ok((hands, state))
    }

    fn drive(&mut self, hands: Hands, state: Arc<ServerState>) -> Result<()> {
        let driver = hands.desk.lock().driver.take();
        let mut driver = driver.ok_or_else(|| Error::internal("there is no driver"))?;
        let node = set_of(&state).node();
        let node = node.ok_or_else(|| Error::internal("there is no node"))?;
        driver.begin(self.clock.time.instant())?;
        self.running = Some(Running {
            state,
            node,
            driver,
            hands,
            conn: connection(),
            local: ConnLocal::default(),
        });
        Ok(())
    }

    /// From the `n`th change of the disk on, nothing that the process does has any effect.
    pub fn fuse(&self, n: u64, seed: u64) {
        let (disk, cut, fell) = (self.disk.clone(), self.cut.clone(), self.fell.clone());
        let left = Mutex::new(n);
        self.disk.set_hook(move |op, _| {
            // Reads do not count: they change nothing, and how many there are depends on the caches.
            if matches!(op, Op::Open | Op::Read | Op::List) {
                return;
            }
            let mut left = left.lock();
            if *left == 0 && !fell.swap(true, SeqCst) {
                *cut.lock() = Some(disk.power_cut(seed));
            }
            *left = left.saturating_sub(1);
        });
    }

    /// The power has failed in the middle of something.
    pub fn fell(&self) -> bool {
        self.fell.load(SeqCst)
    }

    /// What [`Member::fell`] reads while the process lives.
    pub fn falls(&self) -> Arc<AtomicBool> {
        self.fell.clone()
    }

    /// Kills the process. What was written stays if only the `process` is killed; otherwise the power fails.
    pub fn crash(&mut self, process: bool, seed: u64) {
        let left = self.cut.lock().take();
        self.disk.clear_hook();
        let left = left.unwrap_or_else(|| match process {
            true => self.disk.fork(),
            false => self.disk.power_cut(seed),
        });
        if let Some(r) = self.running.take() {
            r.unlock();
        }
        self.disk = left;
        self.fell = Arc::default();
        // The faults were those of the former disk.
        self.hurt = false;
    }

    /// Ends everything except the process, which begins anew from the disk.
    pub fn stop_to_begin_anew(&mut self) {
        if let Some(r) = &self.running {
            r.driver.note_frozen();
            self.told = r.set().member().told;
        }
        self.stop();
    }

    /// Ends the process in order.
    pub fn stop(&mut self) {
        let Some(r) = self.running.take() else { return };
        self.disk.clear_hook();
        r.unlock();
        r.state.begin_stopping();
        r.state.transactions.kill_all(&r.state);
        r.state.engine.cursors.kill_all();
        r.state.end_member();
        // An error does not matter, as the disk is read again.
        let _ = r.state.engine.store.close();
    }
}

impl Running {
    /// Its parts: the driver may then take its turns in another thread.
    pub fn apart(self) -> (Arc<ServerState>, Arc<Node>, Driver, Hands) {
        (self.state, self.node, self.driver, self.hands)
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.state.engine.store
    }

    pub fn set(&self) -> &Arc<ReplicaSet> {
        set_of(&self.state)
    }

    /// Locks what is written, as fsync does; false if that failed.
    pub fn lock(&mut self) -> bool {
        self.node.locking.fetch_add(1, SeqCst);
        self.driver.begin_still();
        let locked = self.store().lock_writes(&NeverInterrupted);
        self.node.locking.fetch_sub(1, SeqCst);
        locked.is_ok()
    }

    /// Takes all locks back.
    pub fn unlock(&self) {
        let never = &muniment_op::NeverInterrupted;
        while self.store().write_lock_depth() > 0 && self.store().unlock_writes(never).is_ok() {}
        self.node.inbox.look();
    }

    /// Runs a command as a client's connection does.
    pub fn command(&mut self, body: Doc<'_>) -> DocBuf {
        let request = Request {
            db: body.get_str("$db").unwrap_or_default(),
            name: body.first().map_or("", |e| e.name()),
            body,
            sequences: &[],
            exhaust_allowed: false,
            unacknowledged: false,
            legacy: false,
        };
        let counter = self.state.metrics.counter(1);
        let mut out = Vec::new();
        let caller = Caller {
            server: &self.state,
            conn: &self.conn,
            counter: &counter,
            request: &request,
        };
        request::execute(caller, &mut self.local, &mut out);
        Doc::new(&out).to_buf()
    }

    /// Has the log synced; false if that failed.
    pub fn sync(&self) -> bool {
        Persister::sync(&self.node, self.store())
    }

    /// What differs between the state and the log.
    pub fn differences(&self) -> Result<Vec<String>> {
        let found = self.store().compare_with_log(&NeverInterrupted)?;
        if self.store().log_begins_behind()?.index > 0 {
            // Copied data, which the log does not have, is compared with the rows that the oracle knows.
            return Ok(found.unwrap_or_default());
        }
        Ok(found.unwrap_or_else(|| vec!["the log does not begin with its first record".into()]))
    }
}

fn set_of(state: &ServerState) -> &Arc<ReplicaSet> {
    state.replica_set.as_ref().unwrap()
}

/// A connection on which nothing is ever sent.
pub(crate) fn connection() -> Arc<ConnShared> {
    let (stream, _) = UnixStream::pair().unwrap();
    let stream = Arc::new(Stream::Unix(stream));
    // The other end is dropped: nothing ever comes or goes here.
    Arc::new(ConnShared {
        id: 1,
        peer: "".into(),
        remote: Arc::default(),
        stuck: false.into(),
        stream,
        since: Instant::now(),
        client: Mutex::default(),
        command: Mutex::default(),
        spoke: AtomicBool::new(false),
        busy: AtomicBool::new(false),
        user: Mutex::default(),
        uuid: Default::default(),
    })
}
