//! A member of a replica set: what it is, who the others are, and since when who is primary.
//!
//! The consensus is in `muniment-repl`; [`driver`] is the thread that drives it over this server's
//! log and the connections to the others ([`peer`], [`frame`]); [`node`] is what commands see of
//! that. What a member remembers beside the log stands in the file `replication` of its data
//! directory, never in the log, which is the same on all members; `local.system.replset` and
//! `local.replset.election` are made from it when they are read.
//!
//! Invariants: the role says primary only while the door of the storage is open, and a little less;
//! what changes the state moves the topology's counter on, behind the change. Must not know single
//! commands, but for those that need a primary although they write no documents.

mod acknowledge;
mod admit;
mod config;
mod driver;
mod forward;
mod frame;
mod host_port;
mod incoming;
mod initial_sync;
mod initiate;
mod key;
mod local;
mod member_config;
mod node;
mod peer;
mod prove;
mod report;
mod rollback;
mod routes;
#[cfg(test)]
mod simulation;
mod times;
mod world;

pub use acknowledge::{acknowledge, keeper, of_majority, write_concern_error};
pub use admit::{admit, writes};
pub use config::SetConfig;
pub use driver::{ELECTION_TICKS, Request};
pub use forward::forward;
pub use frame::OP_REPLICATION;
pub use host_port::HostPort;
pub use incoming::{Incoming, greet};
use initial_sync::Copies;
pub use initial_sync::{Copied, export};
pub use initiate::{initiate, start};
pub use key::Keys;
pub use local::documents as local_documents;
pub use member_config::MemberConfig;
pub use node::Node;
pub use peer::{Sockets, Ways};
pub use prove::{Proof, answer as answer_proof, check as check_caller};
pub use routes::Routes;
pub use times::{append_times, of as times_of, parse as parse_time};
pub use world::{Threads, World};

use crate::log::{iso8601, now_ms};
use crate::options::ServerOptions;
use crate::registry::Kind;
use crate::state::{Restart, ServerState};
use muniment_query::Interrupt;
use muniment_repl::{InForce, LocalState, MemberId, Refusal, StateFile};
use muniment_storage::Timestamp;
use muniment_value::{ArrayBuf, Code, DocBuf, Error, Result, Value, doc};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// So long a reconfiguration waits for another one, and for a new primary.
const SETTLES: Duration = Duration::from_secs(10);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(5);

/// What the member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// No configuration yet.
    Startup,
    /// It takes writes.
    Primary,
    /// It follows.
    Secondary,
    /// It follows, and is in maintenance.
    Recovering,
    /// It copies another member's data.
    Startup2,
    /// The configuration does not name this server.
    Removed,
}

/// What of a member's state others see: its role, the configuration's version and term, who it is,
/// who leads, and in which term.
type Shown = (
    Role,
    Option<(i64, Option<i64>)>,
    Option<i32>,
    Option<MemberId>,
    i64,
);

impl Role {
    /// `myState` and its name.
    pub fn state(self) -> (i32, &'static str) {
        match self {
            Role::Startup => (0, "STARTUP"),
            Role::Primary => (1, "PRIMARY"),
            Role::Secondary => (2, "SECONDARY"),
            Role::Recovering => (3, "RECOVERING"),
            Role::Startup2 => (5, "STARTUP2"),
            Role::Removed => (10, "REMOVED"),
        }
    }

    /// The name of a state that another member reports.
    pub fn name_of(state: i32) -> &'static str {
        let all = [
            Role::Startup,
            Role::Primary,
            Role::Secondary,
            Role::Recovering,
            Role::Startup2,
            Role::Removed,
        ];
        let found = all.iter().map(|r| r.state()).find(|(n, _)| *n == state);
        found.map_or("UNKNOWN", |(_, name)| name)
    }
}

/// The last election that was won.
#[derive(Clone, Copy, Debug)]
pub struct Election {
    /// `lastElectionReason`.
    pub reason: &'static str,
    /// The newest commit before it, and its term.
    pub before: (Timestamp, i64),
    /// Its first commit.
    pub at: Timestamp,
    /// When it was held, in milliseconds since 1970.
    pub began_ms: i64,
    /// When writes were taken, in milliseconds since 1970.
    pub ready_ms: i64,
}

/// What changes with the state.
#[derive(Clone, Debug)]
pub struct Member {
    /// What it is.
    pub role: Role,
    /// The configuration that holds.
    pub config: Option<Arc<SetConfig>>,
    /// Its number in the consensus; 0 before it has one.
    pub id: MemberId,
    /// Its `_id` in the configuration.
    pub me: Option<i32>,
    /// The newest term; 0: none.
    pub term: i64,
    /// Who leads in it.
    pub leader: Option<MemberId>,
    /// The election that made it primary.
    pub election: Option<Election>,
    /// `rbid`.
    pub rollback_id: u64,
    /// The configuration was forced here since the start.
    pub forced: bool,
    /// Members that only newer configurations have than the one in force here.
    pub ahead: BTreeMap<MemberId, Ahead>,
    /// How often maintenance was begun and not ended.
    pub maintenance: u32,
}

/// A member that the configuration in force here does not have yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The version of a configuration that has it.
    pub version: u64,
    /// Where it is.
    pub host: String,
}

impl Member {
    /// What `hello` shows of it.
    fn shown(&self) -> Shown {
        let config = self.config.as_ref().map(|c| (c.version, c.term));
        // A term without a leader is nobody's business.
        let term = self.leader.map_or(0, |_| self.term);
        (self.role, config, self.me, self.leader, term)
    }

    /// A configuration bears the term of the primary, as in MongoDB, where each writes it anew; but for
    /// one that was forced here, until the next start.
    fn show_term(&mut self) {
        let term = Some(self.term);
        if let Some(config) = &mut self.config
            && config.term != term
            && !self.forced
        {
            let mut shown = (**config).clone();
            shown.term = term;
            *config = Arc::new(shown);
        }
    }

    /// Its part of the configuration.
    pub fn own(&self) -> Option<&MemberConfig> {
        self.config.as_ref()?.member(self.me?)
    }
}

/// The set that this server was started as a member of.
pub struct ReplicaSet {
    name: String,
    member: RwLock<Member>,
    /// The role is primary.
    primary: AtomicBool,
    /// Commands tell the cluster's time: there was a configuration.
    timed: AtomicBool,
    /// It votes alone, and is about to be primary for the first time.
    electing: AtomicBool,
    /// As primary it has made what every primary has.
    prepared: AtomicBool,
    /// Held by who initiates the set or joins it.
    begins: Mutex<()>,
    node: RwLock<Option<Arc<Node>>>,
    /// What other members copy of this one's data.
    pub(crate) copies: Copies,
}

impl ReplicaSet {
    /// A member without a configuration.
    pub fn new(name: String) -> ReplicaSet {
        ReplicaSet {
            name,
            member: RwLock::new(Member {
                role: Role::Startup,
                config: None,
                id: 0,
                me: None,
                term: 0,
                leader: None,
                election: None,
                rollback_id: 1,
                forced: false,
                ahead: BTreeMap::new(),
                maintenance: 0,
            }),
            primary: AtomicBool::new(false),
            timed: AtomicBool::new(false),
            electing: AtomicBool::new(false),
            prepared: AtomicBool::new(false),
            begins: Mutex::new(()),
            node: RwLock::new(None),
            copies: Copies::default(),
        }
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True while it takes writes.
    pub fn is_primary(&self) -> bool {
        self.primary.load(Ordering::Acquire)
    }

    /// The state now.
    pub fn member(&self) -> Member {
        self.member.read().clone()
    }

    /// The configuration that holds has other members.
    pub fn has_others(&self) -> bool {
        let member = self.member.read();
        member.config.as_ref().is_some_and(|c| c.members.len() > 1)
    }

    /// What drives the consensus, once there is a configuration.
    pub fn node(&self) -> Option<Arc<Node>> {
        self.node.read().clone()
    }

    /// The state and the configuration.
    ///
    /// # Errors
    /// 94 NotYetInitialized.
    pub fn initialized(&self) -> Result<(Member, Arc<SetConfig>)> {
        let member = self.member();
        let config = member.config.clone().ok_or_else(|| {
            Error::new(
                Code::NotYetInitialized,
                "no replset config has been received",
            )
            .with_extra(doc! { "info": "run rs.initiate(...) if not yet done for the set" })
        })?;
        Ok((member, config))
    }

    /// Changes the state, and tells those who wait for that.
    pub fn change(&self, server: &ServerState, change: impl FnOnce(&mut Member)) {
        let mut member = self.member.write();
        let before = member.shown();
        change(&mut member);
        // Whatever else happens to it: maintenance is a way of being a secondary.
        member.role = match (member.role, member.maintenance) {
            (Role::Secondary, 1..) => Role::Recovering,
            (Role::Recovering, 0) => Role::Secondary,
            (role, _) => role,
        };
        // Who is told of a primary may write at once.
        let primary = member.role == Role::Primary;
        self.primary.store(primary, Ordering::Release);
        self.timed.store(member.config.is_some(), Ordering::Release);
        let changed = member.shown() != before;
        drop(member);
        let tells = match self.electing.load(Ordering::Acquire) {
            true => primary,
            false => changed,
        };
        if tells {
            self.electing.store(false, Ordering::Release);
            server.topology_changed();
        }
    }

    /// What every primary has is there.
    pub fn is_prepared(&self) -> bool {
        self.prepared.load(Ordering::Acquire)
    }

    /// Takes no writes from here on: those that run are interrupted.
    pub fn no_primary(&self, server: &ServerState) {
        self.primary.store(false, Ordering::Release);
        for op in server.engine.operations.list() {
            let kind = crate::registry::find(op.command()).map(|spec| spec.kind);
            if matches!(kind, Some(Kind::Write | Kind::Ddl)) {
                op.kill(Code::InterruptedDueToReplStateChange);
            }
        }
        self.change(server, |m| {
            if m.role == Role::Primary {
                m.role = Role::Secondary;
                m.leader = None;
            }
        });
    }

    /// Takes another configuration.
    ///
    /// # Errors
    /// 10107 unless it is primary or `force`; 103 for what does not follow the one that holds; 74
    /// if it does not name this server.
    pub fn reconfigure(
        &self,
        server: &Arc<ServerState>,
        interrupt: &dyn Interrupt,
        mut config: SetConfig,
        force: bool,
    ) -> Result<()> {
        let (member, old) = self.initialized()?;
        if member.role != Role::Primary && !force {
            return Err(Error::new(
                Code::NotWritablePrimary,
                format!(
                    "New config is rejected :: caused by :: replSetReconfig should only be run on \
                     a writable PRIMARY. Current state {};",
                    member.role.state().1
                ),
            ));
        }
        config.check_follows(&old, force)?;
        let me = initiate::check_own(server, &config, Code::NodeNotFound)?;
        config.id = old.id;
        let node = self.node().ok_or_else(ended)?;
        let now = Arc::clone(node.members().in_force());
        if force {
            config.version = config.version.max(old.version + 1);
            config.term = None;
            let mut wanted = now.config.number(config.to_core());
            // This server stays the member that it is, wherever it was said to be.
            let own = wanted.members.iter_mut().find(|m| m.key == me);
            if let Some(own) = own {
                own.id = node.id;
            }
            let asked = |outcome| Request::Force(Box::new(wanted), outcome);
            return node.ask_and_wait(asked, interrupt)?.map_err(|_| {
                Error::new(
                    Code::ConfigurationInProgress,
                    "the member copies another one's data: wait for its end, or restart it",
                )
            });
        }
        config.term = Some(member.term);
        let wanted = now.config.number(config.to_core());
        let end = Instant::now() + SETTLES;
        let answer = loop {
            let wanted = Box::new(wanted.clone());
            let asked = |outcome| Request::Reconfigure(wanted, outcome);
            let answer = node.ask_and_wait(asked, interrupt)?;
            // A new primary is about to commit, or another change is.
            if answer != Err(Refusal::Busy) || Instant::now() > end {
                break answer;
            }
            std::thread::sleep(LOOK);
        };
        answer.map_err(|refusal| match refusal {
            Refusal::NotLeader => Error::new(Code::NotWritablePrimary, "not primary"),
            Refusal::Busy => Error::new(
                Code::ConfigurationInProgress,
                "Cannot run replSetReconfig because the node is currently updating its \
                 configuration",
            ),
            Refusal::NotElectable => config::invalid(
                "the primary has to stay a voting member with a priority above 0: step down first",
            ),
            Refusal::ManyVoters => Error::new(
                Code::NewReplicaSetConfigurationIncompatible,
                "Non force replica set reconfig can only add or remove at most 1 voting member.",
            ),
            Refusal::BadNumbers | Refusal::NobodyCaughtUp => {
                Error::internal("the members of the new configuration have no numbers")
            }
        })
    }

    /// Lets another member be primary, and is none itself for `time`.
    ///
    /// # Errors
    /// 10107 when it is none; 262 if nobody has caught up within `catch_up`, unless `force`.
    pub fn step_down(
        &self,
        interrupt: &dyn Interrupt,
        time: Duration,
        catch_up: Duration,
        force: bool,
    ) -> Result<()> {
        let not_primary = || Error::new(Code::NotWritablePrimary, "not primary so can't step down");
        if !self.is_primary() {
            return Err(not_primary());
        }
        let nobody = || {
            Error::new(
                Code::ExceededTimeLimit,
                format!(
                    "No electable secondaries caught up as of {}. Please use the replSetStepDown \
                     command with the argument {{force: true}} to force node to step down.",
                    iso8601(now_ms())
                ),
            )
        };
        let config = self.member().config;
        let electable = config.map_or(0, |c| c.members.iter().filter(|m| m.electable()).count());
        if electable < 2 && !force {
            return Err(nobody());
        }
        let node = self.node().ok_or_else(ended)?;
        let (patience, freeze) = (self.ticks(catch_up), self.ticks(time));
        let answer = node.ask_and_wait(
            |outcome| Request::StepDown(patience, freeze, force, outcome),
            interrupt,
        )?;
        answer.map_err(|refusal| match refusal {
            Refusal::NotLeader => not_primary(),
            Refusal::Busy => Error::new(
                Code::ConflictingOperationInProgress,
                "another stepdown is under way",
            ),
            _ => nobody(),
        })
    }

    /// Is no primary for `time` from now on; no time at all: may be one at once.
    ///
    /// # Errors
    /// 95 NotSecondary for a primary.
    pub fn freeze(&self, time: Duration, interrupt: &dyn Interrupt) -> Result<()> {
        let member = self.member();
        if !matches!(member.role, Role::Secondary | Role::Recovering) {
            return Err(Error::new(
                Code::NotSecondary,
                format!(
                    "cannot freeze node when primary or running for election. state: {}",
                    match member.role {
                        Role::Primary => "Primary",
                        _ => member.role.state().1,
                    }
                ),
            ));
        }
        let node = self.node().ok_or_else(ended)?;
        let ticks = self.ticks(time);
        let answer = node.ask_and_wait(|outcome| Request::Freeze(ticks, outcome), interrupt)?;
        answer.map_err(|_| ended())
    }

    /// Begins maintenance of this secondary once more, or ends it once.
    ///
    /// # Errors
    /// 95 NotSecondary for a primary; 96 when there is none to end.
    pub fn maintain(&self, begins: bool, interrupt: &dyn Interrupt) -> Result<()> {
        let node = self.node().ok_or_else(ended)?;
        node.ask_and_wait(|outcome| Request::Maintain(begins, outcome), interrupt)?
    }

    /// Whom this member has its log from.
    pub fn sync_source<'m>(&self, member: &'m Member) -> Option<&'m MemberConfig> {
        let leader = member.leader.filter(|leader| *leader != member.id);
        self.member_of(member, leader)
    }

    /// A member's part of the configuration.
    fn member_of<'m>(&self, member: &'m Member, id: Option<MemberId>) -> Option<&'m MemberConfig> {
        let node = self.node()?;
        let members = node.members();
        let key = members.in_force().config.member(id?)?.key;
        member.config.as_ref()?.member(key)
    }

    /// Where a member is, also one that only a newer configuration has.
    fn host_of<'m>(&self, member: &'m Member, id: Option<MemberId>) -> Option<&'m str> {
        match self.member_of(member, id) {
            Some(m) => Some(m.host.as_str()),
            None => Some(member.ahead.get(&id?)?.host.as_str()),
        }
    }

    /// A time in ticks of the driver, at least one unless it is none.
    fn ticks(&self, time: Duration) -> u64 {
        let timeout = self.member().config.map_or(10_000, |c| c.election_ms);
        let tick = (timeout.max(1) as u64 / ELECTION_TICKS).max(1);
        u64::try_from(time.as_millis())
            .unwrap_or(u64::MAX)
            .div_ceil(tick)
    }
}

/// How the storage is opened.
pub struct Opening {
    /// As that of a member.
    pub member: bool,
    /// The place behind which the log has to be cut, as an earlier run has noted.
    pub cut_behind: Option<u64>,
    /// See [`ServerState::kept_for_set`]: then the place up to which everything is known to be committed.
    pub kept_for_set: Option<u64>,
}

/// Before the storage is opened, and with the directory's lock: takes the copy of another member's
/// data, if there is one, and tells how the storage is to be opened.
///
/// # Errors
/// A state that cannot be read.
pub fn opening(options: &ServerOptions) -> Result<Opening> {
    local::take_copy(&options.dbpath)?;
    let state = StateFile::new(options.machine.disk.clone(), &options.dbpath).read()?;
    let in_set = options.replica_set.is_some();
    // Who is alone in its set, and has nobody's vote to wait for, may write whatever it likes.
    let others = |state: &LocalState| {
        let now = &state.in_force;
        let alone = now.config.members.iter().all(|m| m.id == state.id)
            && now.voters.iter().eq([&state.id])
            && now.learners.is_empty();
        !alone
    };
    let kept = state.as_ref().filter(|state| !in_set && others(state));
    let kept_for_set = kept.map(|state| state.commit);
    Ok(Opening {
        member: in_set || kept_for_set.is_some(),
        cut_behind: state.and_then(|state| state.cut),
        kept_for_set,
    })
}

/// Does what a member that begins anew needs before its storage is opened again.
///
/// # Errors
/// The disk's.
pub fn prepare_restart(options: &ServerOptions, how: Restart) -> Result<()> {
    match how {
        Restart::Storage => Ok(()),
        Restart::Synced(copied) => initial_sync::finish(options, *copied),
    }
}

fn ended() -> Error {
    Error::new(Code::ShutdownInProgress, "replication is being shut down")
}

/// The command with which a member opens its connection to another one.
fn greeting(config: &SetConfig, in_force: &InForce, from: MemberId, to: MemberId) -> DocBuf {
    let mut d = doc! {
        "_replSetStream": config.name.as_str(),
        "from": from as i64,
        "to": to as i64,
        "inForce": Value::Binary { subtype: 0, bytes: &in_force.to_bytes() },
    };
    d.append_some("setId", config.id.map(Value::ObjectId));
    d
}

/// What a primary sees to that no secondary may: the collections that every set has.
fn became_primary(server: &Arc<ServerState>) {
    let state = Arc::clone(server);
    let prepare = move || {
        crate::own_collections::prepare_as_primary(&state);
        if let Some(set) = &state.replica_set {
            set.prepared.store(true, Ordering::Release);
        }
    };
    // They are written through the door, which whoever calls may be about to close.
    if let Err(e) = server.world.beside("primary", Box::new(prepare)) {
        server
            .log
            .startup_warning(20_557, &format!("the new primary has no thread: {e}"));
    }
}

/// A time of the cluster with its term, as MongoDB writes it.
pub fn op_time(at: Timestamp, term: i64) -> DocBuf {
    doc! { "ts": timestamp(at), "t": term }
}

/// As a BSON timestamp.
pub fn timestamp(at: Timestamp) -> Value<'static> {
    Value::Timestamp {
        t: at.seconds(),
        i: at.increment(),
    }
}

/// The second of a commit, as a date.
pub fn wall_time(at: Timestamp) -> Value<'static> {
    Value::DateTime(i64::from(at.seconds()) * 1000)
}

/// `topologyVersion`.
fn topology_version(server: &ServerState, counter: i64) -> DocBuf {
    doc! { "processId": Value::ObjectId(server.process_id), "counter": counter }
}

/// `topologyVersion` beside an error that says that the member is no primary: by it drivers know an
/// answer that is older than what they have heard since.
pub fn topology_of_error(server: &ServerState, code: Code) -> Option<DocBuf> {
    let not_primary = matches!(
        code,
        Code::NotWritablePrimary
            | Code::NotPrimaryNoSecondaryOk
            | Code::NotPrimaryOrSecondary
            | Code::InterruptedDueToReplStateChange
            | Code::PrimarySteppedDown
    );
    let told = not_primary && server.replica_set.is_some();
    told.then(|| topology_version(server, server.topology_counter()))
}

/// What `hello` and serverStatus say of the set, `primary` being the name of the field that tells
/// whether it takes writes, and `counter` the topology's, which was read before.
pub fn describe(server: &ServerState, set: &ReplicaSet, primary: &str, counter: i64) -> DocBuf {
    let member = set.member();
    let mut d = doc! { "topologyVersion": topology_version(server, counter) };
    let config = member
        .config
        .as_ref()
        .filter(|_| member.role != Role::Removed);
    let (Some(config), Some(own)) = (config, member.own()) else {
        d.append(primary, false);
        d.append("secondary", false);
        d.append("info", "Does not have a valid replica set config");
        d.append("isreplicaset", true);
        return d;
    };
    let is_primary = set.is_primary();
    let named = |electable: bool| -> ArrayBuf {
        let shown = config.members.iter().filter(|m| !m.hidden);
        shown
            .filter(|m| m.electable() == electable)
            .map(|m| m.host.as_str())
            .collect()
    };
    d.append("hosts", named(true));
    let passives = named(false);
    if !passives.as_doc().is_empty() {
        d.append("passives", passives);
    }
    d.append("setName", config.name.as_str());
    d.append("setVersion", config.version as i32);
    d.append(primary, is_primary);
    d.append("secondary", member.role == Role::Secondary);
    let leader = match is_primary {
        true => Some(own.host.as_str()),
        false => set.host_of(&member, member.leader),
    };
    d.append_some("primary", leader);
    for (is, name) in [(!own.electable(), "passive"), (own.hidden, "hidden")] {
        if is {
            d.append(name, true);
        }
    }
    if own.delay_secs > 0 {
        d.append("secondaryDelaySecs", i64::from(own.delay_secs));
    }
    if !own.tags.as_doc().is_empty() {
        d.append("tags", &own.tags);
    }
    d.append("me", own.host.as_str());
    if is_primary {
        d.append("electionId", Value::ObjectId(election_id(member.term)));
    }
    // Without a log there is nothing to tell.
    let p = server.engine.store.position().unwrap_or_default();
    let majority = server.engine.store.committed().unwrap_or_default();
    d.append(
        "lastWrite",
        doc! {
            "opTime": op_time(p.applied.at, p.applied.term as i64),
            "lastWriteDate": wall_time(p.applied.at),
            "majorityOpTime": op_time(majority.at, majority.term as i64),
            "majorityWriteDate": wall_time(majority.at),
        },
    );
    d
}

/// An election's id: greater with every term.
pub fn election_id(term: i64) -> [u8; 12] {
    let mut id = [0; 12];
    let (head, tail) = id.split_at_mut(4);
    head.copy_from_slice(&[0x7F, 0xFF, 0xFF, 0xFF]);
    tail.copy_from_slice(&term.to_be_bytes());
    id
}
