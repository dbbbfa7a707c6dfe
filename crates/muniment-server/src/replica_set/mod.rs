//! A replica set of one member: who it is, since when it is primary, and what it stores of that in
//! `local.system.replset` and `local.replset.election`.
//!
//! Invariants: one change of the state at a time; a term is on the disk before anybody is told of
//! it, but for one that a full disk has no room for, after which the next election takes the same
//! (nobody else ever votes); what changes the state moves the topology's counter on, behind the change. Must not know
//! single commands, but for those that need a primary although they write no documents.

mod admit;
mod config;
mod times;

pub use admit::admit;
pub use config::{HostPort, SetConfig};
pub use times::{append_times, of as times_of, parse as parse_time};

use crate::concern::W;
use crate::context::CommandContext;
use crate::log::{Severity, now_ms};
use crate::own_collections;
use crate::state::{ServerState, hostname};
use config::invalid;
use muniment_exec::{FindRequest, OpContext, UpdateStatement};
use muniment_query::Interrupt;
use muniment_storage::{CollectionOptions, Timestamp};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, array, doc, number};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where the configuration stands.
const CONFIG: &str = "local.system.replset";
/// Where the last election stands.
const ELECTION: &str = "local.replset.election";
/// The `_id` of that document.
const LAST_VOTE: &str = "lastVote";
/// `rbid`: nothing is ever rolled back where one member is all there is.
pub const ROLLBACK_ID: i32 = 1;
/// How often who stepped down looks whether it may be primary again.
const LOOK: Duration = Duration::from_millis(100);

/// What the member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// No configuration yet.
    Startup,
    /// It takes writes.
    Primary,
    /// It stepped down, and is primary again at this time.
    Secondary(Instant),
    /// The configuration does not name this server.
    Removed,
}

impl Role {
    /// `myState` and its name.
    pub fn state(self) -> (i32, &'static str) {
        match self {
            Role::Startup => (0, "STARTUP"),
            Role::Primary => (1, "PRIMARY"),
            Role::Secondary(_) => (2, "SECONDARY"),
            Role::Removed => (10, "REMOVED"),
        }
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
    /// The newest term; 0: none.
    pub term: i64,
    /// The election that made it primary.
    pub election: Option<Election>,
}

/// The set that this server was started as a member of.
pub struct ReplicaSet {
    name: String,
    member: RwLock<Member>,
    /// The role is primary.
    primary: AtomicBool,
    /// Commands tell the cluster's time: there was a configuration.
    timed: AtomicBool,
    /// Held by who changes the state.
    change: Mutex<()>,
}

impl ReplicaSet {
    /// A member without a configuration.
    pub fn new(name: String) -> ReplicaSet {
        ReplicaSet {
            name,
            member: RwLock::new(Member {
                role: Role::Startup,
                config: None,
                term: 0,
                election: None,
            }),
            primary: AtomicBool::new(false),
            timed: AtomicBool::new(false),
            change: Mutex::new(()),
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

    fn set(&self, server: &ServerState, change: impl FnOnce(&mut Member)) {
        let mut member = self.member.write();
        change(&mut member);
        // Who is told of a primary may write at once.
        self.primary
            .store(member.role == Role::Primary, Ordering::Release);
        self.timed.store(member.config.is_some(), Ordering::Release);
        drop(member);
        server.topology_changed();
    }

    /// Initiates the set and makes this member its primary.
    ///
    /// # Errors
    /// 23 AlreadyInitialized; 93 for a configuration that is not this server's; what storing it
    /// raises.
    pub fn initiate(
        &self,
        server: &ServerState,
        op: &Arc<OpContext>,
        mut config: SetConfig,
    ) -> Result<()> {
        let _change = self.change.lock();
        if self.member.read().config.is_some() {
            return Err(Error::new(Code::AlreadyInitialized, "already initialized"));
        }
        if config.name != self.name {
            return Err(invalid(format!(
                "Attempting to initiate a replica set with name {}, but command line reports {}; \
                 rejecting",
                config.name, self.name
            )));
        }
        if config.version != 1 {
            return Err(invalid(format!(
                "Configuration used to initiate a replica set must have version 1, but found {}",
                config.version
            )));
        }
        if config.id.is_some() {
            return Err(invalid(
                "Cannot specify settings.replicaSetId in a configuration that initiates a set",
            ));
        }
        self.check_own(server, &config, Code::InvalidReplicaSetConfig)?;
        config.id = Some(muniment_value::new_object_id());
        config.term = None;
        self.elect(server, op, config, "electionTimeout")
    }

    /// Whether the only member is this server.
    fn check_own(&self, server: &ServerState, config: &SetConfig, code: Code) -> Result<()> {
        if HostPort::parse(&config.host)?.is_own(server.port, &hostname()) {
            return Ok(());
        }
        Err(Error::new(
            code,
            format!(
                "No host described in new configuration with {{version: {}, term: {}}} for replica \
                 set {} maps to this node",
                config.version,
                config.term.unwrap_or(0),
                self.name
            ),
        ))
    }

    /// Holds an election, which the only voter wins. The caller holds `change`. A full disk keeps
    /// no set from having a primary that was initiated before: only who writes can make room.
    fn elect(
        &self,
        server: &ServerState,
        op: &Arc<OpContext>,
        mut config: SetConfig,
        reason: &'static str,
    ) -> Result<()> {
        let store = &server.engine.store;
        let began_ms = now_ms();
        let known = self.member.read().term;
        let before = (store.visible(), if known == 0 { -1 } else { known });
        // A configuration that no primary wrote is its first one, or was forced.
        let initiated = config.term.is_some() || config.version > 1;
        let term = known
            .max(last_vote(server, op)?)
            .max(config.term.unwrap_or(0))
            + 1;
        config.term = Some(term);
        let vote = doc! { "_id": LAST_VOTE, "term": term, "candidateIndex": 0_i64 };
        let stored = put(server, op, ELECTION, vote.as_doc())
            .and_then(|()| put(server, op, CONFIG, config.to_doc().as_doc()));
        match stored {
            Err(e) if e.code() == Code::OutOfDiskSpace && initiated => {
                server.log.startup_warning(
                    21_406,
                    &format!("the election of term {term} could not be stored: {e}"),
                );
            }
            other => other?,
        }
        let election = Election {
            reason,
            before,
            at: store.visible(),
            began_ms,
            ready_ms: now_ms(),
        };
        server.log.info(
            "REPL",
            21331,
            "ReplCoord",
            "Transition to primary complete; database writes are now permitted",
            &doc! { "term": term },
        );
        self.set(server, |m| {
            m.role = Role::Primary;
            m.config = Some(Arc::new(config));
            m.term = term;
            m.election = Some(election);
        });
        Ok(())
    }

    /// Takes another configuration.
    ///
    /// # Errors
    /// 10107 unless it is primary or `force`; 103 for what does not follow the one that holds; 74
    /// for another host; what storing it raises.
    pub fn reconfigure(
        &self,
        server: &ServerState,
        op: &Arc<OpContext>,
        mut config: SetConfig,
        force: bool,
    ) -> Result<()> {
        let _change = self.change.lock();
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
        let differs = |what: String| Error::new(Code::NewReplicaSetConfigurationIncompatible, what);
        if config.name != old.name {
            return Err(differs(format!(
                "New and old configurations differ in replica set name; old was {}, and new is {}",
                old.name, config.name
            )));
        }
        if config.id.is_some() && config.id != old.id {
            return Err(differs(
                "New and old configurations differ in replica set ID".to_string(),
            ));
        }
        if config.member != old.member && config.host == old.host {
            return Err(differs(format!(
                "New and old configurations both have members with host of {} but in the new \
                 configuration the _id field is {} and in the old configuration it is {} for \
                 replica set {}",
                old.host, config.member, old.member, old.name
            )));
        }
        if force {
            config.version = config.version.max(old.version + 1);
        } else if config.version <= old.version {
            return Err(differs(format!(
                "New replica set configuration version must be greater than old, but {} is not \
                 greater than {} for replica set {}",
                config.version, old.version, old.name
            )));
        }
        self.check_own(server, &config, Code::NodeNotFound)?;
        config.id = old.id;
        config.term = (!force).then_some(member.term);
        put(server, op, CONFIG, config.to_doc().as_doc())?;
        let removed = member.role == Role::Removed;
        self.set(server, |m| m.config = Some(Arc::new(config.clone())));
        match removed {
            true => self.elect(server, op, config, "electionTimeout"),
            false => Ok(()),
        }
    }

    /// Is no primary for `time`, and then one again.
    ///
    /// # Errors
    /// 10107 when it is none; 262 unless `force`: there is nobody who could take over.
    pub fn step_down(&self, server: &Arc<ServerState>, time: Duration, force: bool) -> Result<()> {
        let _change = self.change.lock();
        if !self.is_primary() {
            return Err(Error::new(
                Code::NotWritablePrimary,
                "not primary so can't step down",
            ));
        }
        // MongoDB waits secondaryCatchUpPeriodSecs for secondaries, of which there are none.
        if !force {
            return Err(Error::new(
                Code::ExceededTimeLimit,
                format!(
                    "No electable secondaries caught up as of {}. Please use the replSetStepDown \
                     command with the argument {{force: true}} to force node to step down.",
                    crate::log::iso8601(now_ms())
                ),
            ));
        }
        let until = Instant::now()
            .checked_add(time)
            .ok_or_else(|| Error::bad_value("stepdown period is too long"))?;
        let state = Arc::clone(server);
        std::thread::Builder::new()
            .name("stepdown".to_string())
            .stack_size(1 << 20)
            .spawn(move || wait_for_election(&state))?;
        self.set(server, |m| m.role = Role::Secondary(until));
        Ok(())
    }

    /// Is no primary for `time` from now on; no time at all: may be one at once.
    ///
    /// # Errors
    /// 95 NotSecondary for a primary; what an election raises.
    pub fn freeze(&self, server: &ServerState, op: &Arc<OpContext>, time: Duration) -> Result<()> {
        let member = self.member();
        let Role::Secondary(until) = member.role else {
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
        };
        let now = Instant::now();
        let until = match time.is_zero() {
            true => now,
            false => until.max(now.checked_add(time).unwrap_or(until)),
        };
        let change = self.change.lock();
        let mut member = self.member.write();
        if let Role::Secondary(at) = &mut member.role {
            *at = until;
        }
        drop(member);
        drop(change);
        self.elect_when_due(server, op).map(|_| ())
    }

    /// Is primary again if the time of a stepdown has passed; true when there is nothing to wait for.
    ///
    /// # Errors
    /// What storing the new term raises.
    fn elect_when_due(&self, server: &ServerState, op: &Arc<OpContext>) -> Result<bool> {
        let _change = self.change.lock();
        let member = self.member();
        let (Role::Secondary(until), Some(config)) = (member.role, member.config) else {
            return Ok(true);
        };
        if Instant::now() < until {
            return Ok(false);
        }
        self.elect(server, op, (*config).clone(), "singleNodePromptElection")?;
        Ok(true)
    }
}

/// Waits for the end of a stepdown, in a thread of its own.
fn wait_for_election(server: &Arc<ServerState>) {
    let Some(set) = &server.replica_set else {
        return;
    };
    let op = OpContext::internal("stepdown");
    while !server.wait_for_stop_for(LOOK) {
        match set.elect_when_due(server, &op) {
            Ok(true) => return,
            Ok(false) => {}
            // Whatever it was (a full disk, fsyncLock) may pass.
            Err(e) => server.log.log(
                Severity::Warning,
                "REPL",
                21336,
                "ReplCoord",
                "The election after a stepdown failed; will try again",
                Some(&doc! { "error": e.to_string() }),
            ),
        }
    }
}

/// Takes up what an earlier run of the server stored, or initiates the set where that is asked for.
///
/// # Errors
/// 93 for a directory of another set, and for a configuration that cannot be used; what storing
/// the election raises.
pub fn start(server: &ServerState) -> Result<()> {
    let op = OpContext::internal("replication");
    let stored = stored(server, &op, CONFIG, doc! {})?;
    let Some(set) = &server.replica_set else {
        if stored.is_some() {
            server.log.startup_warning(
                20547,
                "Document(s) exist in 'system.replset', but started without --replSet. Database \
                 contents may appear inconsistent with the writes that were visible when this node \
                 was running as part of a replica set. Restart with --replSet unless you are doing \
                 maintenance and no other clients are connected",
            );
        }
        return Ok(());
    };
    let (port, machine) = (server.port, hostname());
    let auto = server.options.auto_initiate;
    let own = || HostPort::of_listener(&server.options.bind_ip, port, &machine).to_string();
    let Some(stored) = stored else {
        return match auto {
            true => set.initiate(server, &op, SetConfig::default_of(&set.name, own())),
            false => {
                server.log.info(
                    "REPL",
                    21405,
                    "ReplCoord",
                    "Did not find local replica set configuration document at startup",
                    &doc! { "replSet": set.name() },
                );
                Ok(())
            }
        };
    };
    let mut config = SetConfig::parse(stored.as_doc())
        .map_err(|e| invalid(e.message()).context("the stored replica set configuration: "))?;
    if config.name != set.name {
        return Err(invalid(format!(
            "Local replica set configuration document reports set name of {}, but command line \
             reports {}",
            config.name, set.name
        )));
    }
    let _change = set.change.lock();
    let is_own = HostPort::parse(&config.host).is_ok_and(|h| h.is_own(port, &machine));
    if !is_own && auto {
        // Who lets the server initiate its set lets it say where it is, too.
        config.host = own();
        config.version += 1;
    } else if !is_own {
        server.log.startup_warning(
            21407,
            &format!(
                "The configuration of the replica set names {} as its only member, which is not \
                 this server (port {port}): it is no member until a forced reconfiguration names it",
                config.host
            ),
        );
        let term = last_vote(server, &op)?;
        set.set(server, |m| {
            m.role = Role::Removed;
            m.config = Some(Arc::new(config));
            m.term = term;
        });
        return Ok(());
    }
    set.elect(server, &op, config, "electionTimeout")
}

/// The term of the last election; 0 before the first one.
fn last_vote(server: &ServerState, op: &Arc<OpContext>) -> Result<i64> {
    let found = stored(server, op, ELECTION, doc! { "_id": LAST_VOTE })?;
    let term = found.as_ref().and_then(|d| d.as_doc().get("term"));
    Ok(term.and_then(number::to_i64_clamped).unwrap_or(0).max(0))
}

/// The first document that matches.
fn stored(
    server: &ServerState,
    op: &Arc<OpContext>,
    ns: &str,
    filter: DocBuf,
) -> Result<Option<DocBuf>> {
    if server.engine.store.collection(ns).is_none() {
        return Ok(None);
    }
    let request = FindRequest {
        filter: filter.as_doc(),
        ..FindRequest::new(ns)
    };
    let found = server.engine.find(op, &request)?.next_doc(op)?;
    Ok(found.map(|d| Doc::new(&d).to_buf()))
}

/// Stores a document under its `_id` and waits until it is on the disk.
fn put(server: &ServerState, op: &Arc<OpContext>, ns: &str, d: Doc<'_>) -> Result<()> {
    let mut filter = DocBuf::new();
    filter.append("_id", d.get("_id").unwrap_or(Value::Null));
    let statement = UpdateStatement {
        upsert: true,
        ..UpdateStatement::new(filter.as_doc(), Value::Document(d))
    };
    own_collections::collection(server, op, ns, CollectionOptions::default())?;
    server.engine.update(op, ns, &statement)?;
    let store = &server.engine.store;
    let interrupt: &dyn Interrupt = &**op;
    store.wait_journaled(store.last_commit(), interrupt)
}

/// `writeConcernError` of a command whose write concern a set of one member can never satisfy.
pub fn write_concern_error(cx: &CommandContext<'_>) -> Option<DocBuf> {
    let set = cx.server.replica_set.as_ref()?;
    let wc = &cx.write_concern;
    if !cx.spec.write_concern || matches!(wc.w, W::Majority | W::Nodes(..=1)) {
        return None;
    }
    let e = set.member().config?.unsatisfiable(&wc.w)?;
    let mut asked = wc.to_doc();
    asked.append("provenance", wc.provenance.name());
    Some(doc! {
        "code": e.code().0,
        "codeName": e.code().name().as_ref(),
        "errmsg": e.message(),
        "errInfo": doc! { "writeConcern": asked },
    })
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
    let config = member.config.filter(|_| member.role != Role::Removed);
    let Some(config) = config else {
        d.append(primary, false);
        d.append("secondary", false);
        d.append("info", "Does not have a valid replica set config");
        d.append("isreplicaset", true);
        return d;
    };
    let is_primary = member.role == Role::Primary;
    let host = config.host.as_str();
    d.append("hosts", array![host]);
    d.append("setName", config.name.as_str());
    d.append("setVersion", config.version as i32);
    d.append(primary, is_primary);
    d.append("secondary", !is_primary);
    if is_primary {
        d.append("primary", host);
    }
    if !config.tags.as_doc().is_empty() {
        d.append("tags", &config.tags);
    }
    d.append("me", host);
    if is_primary {
        d.append("electionId", Value::ObjectId(election_id(member.term)));
    }
    let at = server.engine.store.visible();
    let newest = op_time(at, member.term);
    d.append(
        "lastWrite",
        doc! {
            "opTime": &newest,
            "lastWriteDate": wall_time(at),
            "majorityOpTime": &newest,
            "majorityWriteDate": wall_time(at),
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
