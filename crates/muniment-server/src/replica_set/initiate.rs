//! Becoming a member: at a start from what is remembered, by `replSetInitiate`, by another member
//! that calls; and the configuration that is forced.

use super::config::{SetConfig, invalid};
use super::driver::{Driver, ELECTION_TICKS, HEARTBEAT_TICKS};
use super::host_port::HostPort;
use super::node::Node;
use super::prove::Caller;
use super::{ReplicaSet, Role};
use crate::state::{ServerState, hostname};
use muniment_query::Interrupt;
use muniment_repl::{Core, InForce, LocalState, LogEnds, MemberId, Options, StateFile};
use muniment_value::{Code, Doc, Error, Result, doc};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The term of what was there before the set.
const FIRST_TERM: u64 = 1;
/// Longest wait for a server that is to be a member.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes up what an earlier run of the server remembered, or initiates the set where that is asked
/// for.
///
/// # Errors
/// 93 for a directory of another set, and for a configuration that cannot be used; what storing
/// the state raises.
pub fn start(server: &Arc<ServerState>) -> Result<()> {
    let file = state_file(server);
    let remembered = file.read()?;
    let Some(set) = &server.replica_set else {
        let told = match server.kept_for_set {
            true => {
                "The data can be read, and not written: the member has to go on from them. To write \
                 without the others, start it with --replSet and force a configuration of this \
                 member alone"
            }
            false => "It may write: the set has no other member",
        };
        if remembered.is_some() {
            server.log.startup_warning(
                20547,
                &format!(
                    "The data directory is that of a member of a replica set, but the server was \
                     started without --replSet. {told}"
                ),
            );
        }
        return Ok(());
    };
    let Some(state) = remembered else {
        if let Some(config) = super::local::of_older_version(server)? {
            begin(server, set, config, None)?;
            wait_for_primary(server, set);
            return Ok(());
        }
        if server.options.auto_initiate {
            let own = HostPort::of_listener(&server.options.bind_ip, server.port, &hostname());
            let config = SetConfig::default_of(set.name(), own.to_string());
            begin(server, set, config, None)?;
            wait_for_primary(server, set);
            return Ok(());
        }
        server.log.info(
            "REPL",
            21405,
            "ReplCoord",
            "Did not find local replica set configuration document at startup",
            &doc! { "replSet": set.name() },
        );
        return Ok(());
    };
    let mut state = state;
    let mut config = SetConfig::parse(Doc::new(&state.in_force.config.document))
        .map_err(|e| invalid(e.message()).context("the stored replica set configuration: "))?;
    if config.name != set.name() {
        return Err(invalid(format!(
            "Local replica set configuration document reports set name of {}, but command line \
             reports {}",
            config.name,
            set.name()
        )));
    }
    let own = config.own(server.port, &hostname());
    if own.is_none() && server.options.auto_initiate && config.members.len() == 1 {
        // Who lets the server initiate its set lets it say where it is, too.
        let own = HostPort::of_listener(&server.options.bind_ip, server.port, &hostname());
        if let Some(m) = config.members.first_mut() {
            m.host = own.to_string();
        }
        config.version += 1;
        let core = config.to_core();
        let next_id = state.in_force.config.next_id;
        let mut core = muniment_repl::Config { next_id, ..core };
        if let (Some(m), Some(old)) = (
            core.members.first_mut(),
            state.in_force.config.members.first(),
        ) {
            m.id = old.id;
        }
        state.force(core);
        match file.write(&state) {
            // A full disk keeps no set from having a primary that was initiated before: only who
            // writes can make room.
            Err(e) if e.code() == Code::OutOfDiskSpace => server.log.startup_warning(
                21_406,
                &format!("the configuration could not be stored: {e}"),
            ),
            other => other?,
        }
    } else if own.is_none() {
        server.log.startup_warning(
            21407,
            &format!(
                "The configuration of the replica set does not name this server (port {}): it is no \
                 member until a reconfiguration names it",
                server.port
            ),
        );
    }
    drive(server, set, file, state)?;
    // Who votes alone answers nobody before it is primary.
    wait_for_primary(server, set);
    Ok(())
}

/// Longest wait for an election that nobody else is asked about, and for the others to vote.
const ELECTED: Duration = Duration::from_secs(5);

/// Waits until who votes alone is primary, and has what every primary has.
fn wait_for_primary(server: &ServerState, set: &ReplicaSet) {
    if !server.options.machine.threads {
        // Who waits is who would do it.
        return;
    }
    let end = Instant::now() + ELECTED;
    let waits = || set.electing.load(Ordering::Acquire) || set.is_primary() && !set.is_prepared();
    while waits() && Instant::now() < end && !server.wait_for_stop_for(Duration::ZERO) {
        std::thread::sleep(Duration::from_micros(200));
    }
    // However that ended, what comes is told.
    set.electing.store(false, Ordering::Release);
}

fn state_file(server: &ServerState) -> StateFile {
    let machine = &server.options.machine;
    StateFile::new(machine.disk.clone(), &server.options.dbpath)
}

/// Initiates the set over what this server has; the others of its members get all of it.
///
/// # Errors
/// 23 AlreadyInitialized; 93 for a configuration that is not this server's; 74 for members that
/// cannot be reached or are something else; what storing it raises.
pub fn initiate(
    server: &Arc<ServerState>,
    set: &ReplicaSet,
    config: SetConfig,
    interrupt: &dyn Interrupt,
) -> Result<()> {
    begin(server, set, config, Some(interrupt))?;
    wait_for_primary(server, set);
    wait_for_voters(server, set, interrupt);
    Ok(())
}

/// Waits until all vote that are to, as far as they come: members get their votes one by one, and whoever
/// has initiated a set of three counts on it to do without one.
fn wait_for_voters(server: &ServerState, set: &ReplicaSet, interrupt: &dyn Interrupt) {
    let Some(node) = set.node() else {
        return;
    };
    let waits = || {
        let members = node.members();
        let now = members.in_force();
        now.voters != now.config.wanted_voters()
    };
    let end = Instant::now() + ELECTED;
    // Who is interrupted has initiated the set all the same.
    while waits() && Instant::now() < end && interrupt.check().is_ok() {
        if server.wait_for_stop_for(Duration::from_millis(1)) {
            return;
        }
    }
}

/// The same without waiting for anything; without `interrupt` nobody is asked.
pub(super) fn begin(
    server: &Arc<ServerState>,
    set: &ReplicaSet,
    mut config: SetConfig,
    interrupt: Option<&dyn Interrupt>,
) -> Result<()> {
    let _begins = set.begins.lock();
    if set.node().is_some() {
        return Err(Error::new(Code::AlreadyInitialized, "already initialized"));
    }
    if config.name != set.name() {
        return Err(invalid(format!(
            "Attempting to initiate a replica set with name {}, but command line reports {}; \
             rejecting",
            config.name,
            set.name()
        )));
    }
    if interrupt.is_some() {
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
    }
    let me = check_own(server, &config, Code::InvalidReplicaSetConfig)?;
    if let Some(interrupt) = interrupt {
        check_others(server, set, &config, me, interrupt)?;
    }
    config.id = config.id.or_else(|| Some(muniment_value::new_object_id()));
    config.term = Some(FIRST_TERM as i64);
    let core = muniment_repl::Config::default().number(config.to_core());
    let id = core
        .members
        .iter()
        .find(|m| m.key == me)
        .map_or(0, |m| m.id);
    let store = &server.engine.store;
    store.sync()?;
    let last = store.position()?.appended.index;
    let terms = (last > 0)
        .then_some((last, FIRST_TERM))
        .into_iter()
        .collect();
    let state = LocalState::initiate(id, core, terms, last);
    let file = state_file(server);
    file.write(&state)?;
    drive(server, set, file, state)
}

/// Becomes the member `id` of a set that another member has told of.
///
/// # Errors
/// 110 where the server has data already.
pub fn join(server: &Arc<ServerState>, id: MemberId, in_force: InForce) -> Result<Arc<Node>> {
    let set = server.replica_set.as_ref().ok_or_else(super::ended)?;
    let _begins = set.begins.lock();
    if let Some(node) = set.node() {
        return Ok(node);
    }
    check_empty(server)?;
    SetConfig::parse(Doc::new(&in_force.config.document))?;
    // Nobody votes in it as yet: this member takes part in nothing before it has a copy. It may have
    // been a voter whose directory was emptied, and then has forgotten what it acknowledged.
    let state = LocalState {
        in_force: InForce {
            config: in_force.config,
            ..InForce::default()
        },
        ..LocalState::joining(id)
    };
    let file = state_file(server);
    file.write(&state)?;
    drive(server, set, file, state)?;
    set.node().ok_or_else(super::ended)
}

/// A server that joins a set has to have nothing of its own.
///
/// # Errors
/// 110 where it has.
pub fn check_empty(server: &ServerState) -> Result<()> {
    let names = server.engine.store.databases();
    let own = |db: &&String| !matches!(db.as_str(), "local" | "admin" | "config");
    match names.iter().find(own) {
        None if server.engine.store.position()?.appended.index == 0 => Ok(()),
        _ => Err(Error::new(
            Code::CannotInitializeNodeWithData,
            format!(
                "{} has data already, cannot initiate set. All members except initiator must be empty.",
                server.host
            ),
        )),
    }
}

/// The `_id` of the member that this server is.
///
/// # Errors
/// `code` if there is none.
pub fn check_own(server: &ServerState, config: &SetConfig, code: Code) -> Result<i32> {
    let own = config.own(server.port, &hostname());
    own.map(|m| m.id).ok_or_else(|| {
        Error::new(
            code,
            format!(
                "No host described in new configuration with {{version: {}, term: {}}} for replica \
                 set {} maps to this node",
                config.version,
                config.term.unwrap_or(0),
                config.name
            ),
        )
    })
}

/// Asks all others whether they can be members.
fn check_others(
    server: &ServerState,
    set: &ReplicaSet,
    config: &SetConfig,
    me: i32,
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let caller = Caller::of(server);
    let mut failed = Vec::new();
    for m in config.members.iter().filter(|m| m.id != me) {
        interrupt.check()?;
        let dialled = server.parameters.routes.read().to(&m.host).to_string();
        let asked = caller.call(&m.host, &dialled, PATIENCE).and_then(|mut c| {
            c.command(
                "admin",
                &doc! { "_replSetStream": set.name(), "onlyChecks": true },
            )
        });
        match asked {
            Ok(_) => {}
            Err(e) if e.code() == Code::CannotInitializeNodeWithData => {
                return Err(Error::new(
                    e.code(),
                    format!(
                        "'{}' has data already, cannot initiate set. All members except initiator must be empty.",
                        m.host
                    ),
                ));
            }
            Err(e) => failed.push(format!("{} failed with {}", m.host, e.message())),
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Error::new(
            Code::NodeNotFound,
            format!(
                "replSetInitiate quorum check failed because not all proposed set members responded \
                 affirmatively: {}",
                failed.join(", ")
            ),
        )),
    }
}

/// Has the consensus driven.
fn drive(
    server: &Arc<ServerState>,
    set: &ReplicaSet,
    file: StateFile,
    state: LocalState,
) -> Result<()> {
    let store = &server.engine.store;
    let (id, rollback_id, term) = (state.id, state.rollback_id, state.term);
    // Who joins and has nothing yet is no secondary.
    let empty = store.position()?.appended.index == 0 && !state.in_force.voters.contains(&id);
    let alone = state.in_force.voters.len() == 1 && state.in_force.voters.contains(&id);
    let core = core_of(server, state)?;
    let node = Arc::new(Node::new(id, core.members().clone(), core.committed()));
    *set.node.write() = Some(Arc::clone(&node));
    // Who votes alone is primary in a moment, and tells of nothing before.
    set.electing.store(alone, Ordering::Release);
    set.change(server, |m| {
        m.role = if empty {
            Role::Startup2
        } else {
            Role::Secondary
        };
        (m.id, m.rollback_id, m.term) = (id, rollback_id + 1, term as i64);
    });
    let listener = Arc::clone(&node);
    store.listen(move |p| listener.inbox.appended(p.index))?;
    let now = server.options.machine.clock.instant();
    let driver = Driver::new(server, &node, core, file, now);
    server.world.drive(server, &node, driver)
}

/// The core of the member, over its log as it is.
///
/// # Errors
/// 127 UnrecoverableRollbackError if the two do not fit.
pub fn core_of(server: &ServerState, state: LocalState) -> Result<Core> {
    let store = &server.engine.store;
    let p = store.position()?;
    // What was there before the set, or before the copy of another member's data, is no part of
    // its log. Of a set that began with nothing the first term is noted before its first record, which
    // a power cut may have kept from being there.
    let base = state.terms.first().map_or(0, |(first, _)| *first);
    let base = base.min(p.appended.index);
    let first = (store.log_begins_behind()?.index + 1).max(base + 1);
    let ends = LogEnds {
        first,
        last: p.appended.index,
        last_term: (p.appended.index >= first).then_some(p.appended.term),
        committed: store.committed()?.index,
    };
    let mut seed = [0; 8];
    server.options.machine.clock.random(&mut seed)?;
    let options = Options {
        election_ticks: ELECTION_TICKS,
        heartbeat_ticks: HEARTBEAT_TICKS,
        seed: u64::from_le_bytes(seed),
    };
    Core::start(options, state, ends).map_err(|e| {
        Error::new(
            Code::UnrecoverableRollbackError,
            format!("this member cannot go on with its set: {e}"),
        )
    })
}
