//! Becoming a member: at a start from what is remembered, by `replSetInitiate`, or by another member
//! that calls; and the core that goes on with a forced configuration.

use super::aside::{self, Aside};
use super::config::{COLLECTION, MAX_VERSION, SetConfig};
use super::driver::{self, Driver};
use super::host_port::HostPort;
use super::member_config::invalid;
use super::node::Node;
use super::{ReplicaSet, Role};
use crate::home::Host;
use crate::lifecycle::Ending;
use muniment_consensus::{InForce, LocalState, MemberId, StateFile};
use muniment_exec::{FindRequest, OpContext};
use muniment_logger::hostname;
use muniment_op::{Both, Interrupt};
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
pub fn start(set: &Arc<ReplicaSet>, host: &Arc<dyn Host>) -> Result<()> {
    let file = state_file(set);
    let remembered = file.read()?;
    let Some(state) = remembered else {
        if let Some(config) = of_older_version(set)? {
            begin(set, host, config, None)?;
            wait_for_primary(set);
            return Ok(());
        }
        if set.home.auto_initiate {
            let own = own_address(set);
            let mut config = SetConfig::default_of(set.name(), own.to_string());
            config.of_config = set.home.of_config;
            begin(set, host, config, None)?;
            wait_for_primary(set);
            return Ok(());
        }
        set.home.log.info(
            "REPL",
            21405,
            "ReplCoord",
            "Did not find local replica set configuration document at startup",
            &doc! { "replSet": set.name() },
        );
        return Ok(());
    };
    let mut state = state;
    let config = SetConfig::parse(Doc::new(&state.in_force.config.document))
        .map_err(|e| invalid(e.message()).context("the stored replica set configuration: "))?;
    if config.name != set.name() {
        return Err(invalid(format!(
            "Local replica set configuration document reports set name of {}, but command line \
             reports {}",
            config.name,
            set.name()
        )));
    }
    let own = config.own(set.home.address.port, &hostname());
    if own.is_none() && set.home.auto_initiate && config.members.len() == 1 {
        correct_own_address(set, &file, &mut state, config)?;
    } else if own.is_none() {
        set.home.log.startup_warning(
            21407,
            &format!(
                "The configuration of the replica set does not name this server (port {}): it is no \
                 member until a reconfiguration names it",
                set.home.address.port
            ),
        );
    }
    let aside = set_aside_before(set, &state)?;
    drive(set, host, file, state, aside)?;
    // A sole voter answers no client before it is primary.
    wait_for_primary(set);
    Ok(())
}

/// Gives the only member of the configuration the address of this server: a server that may initiate its set
/// by itself may also correct its own address.
fn correct_own_address(
    set: &ReplicaSet,
    file: &StateFile,
    state: &mut LocalState,
    mut config: SetConfig,
) -> Result<()> {
    let own = own_address(set);
    if let Some(m) = config.members.first_mut() {
        m.host = own.to_string();
    }
    config.version = MAX_VERSION.min(config.version + 1);
    let core = config.to_core();
    let next_id = state.in_force.config.next_id;
    let mut core = muniment_consensus::Config { next_id, ..core };
    if let (Some(m), Some(old)) = (
        core.members.first_mut(),
        state.in_force.config.members.first(),
    ) {
        m.id = old.id;
    }
    state.force(core);
    match file.write(state) {
        // A full disk does not keep a set that was initiated before from having a primary: only a
        // primary's writes (deletions) can make room.
        Err(e) if e.code() == Code::OutOfDiskSpace => set.home.log.startup_warning(
            21_406,
            &format!("the configuration could not be stored: {e}"),
        ),
        other => other?,
    }
    Ok(())
}

/// Longest wait for the election of a sole voter, and for the others to get their votes.
const ELECTED: Duration = Duration::from_secs(5);

/// Waits until a sole voter is primary, and has what every primary has.
fn wait_for_primary(set: &ReplicaSet) {
    if !set.home.machine.threads {
        // Without threads (in a simulation) the thread that waits is the one that would have to do the work.
        return;
    }
    let end = Instant::now() + ELECTED;
    let is_there =
        || !set.electing.load(Ordering::SeqCst) && (!set.is_primary() || set.is_prepared());
    let _ = set.wait_until(&Ending(&set.home.lifecycle), end, is_there);
    // From here on each change of the state is told to clients, however the wait has ended.
    set.electing.store(false, Ordering::Release);
}

/// The address by which a configuration that this server makes names it.
fn own_address(set: &ReplicaSet) -> HostPort {
    HostPort::of_listener(&set.home.bind_ip, set.home.address.port, &hostname())
}

/// The configuration that a version before this one stored as a document of `local`.
///
/// # Errors
/// 93 for one that cannot be used; the storage's.
fn of_older_version(set: &ReplicaSet) -> Result<Option<SetConfig>> {
    if set.home.engine.store.collection(COLLECTION).is_none() {
        return Ok(None);
    }
    let op = OpContext::internal("replication");
    let found = set
        .home
        .engine
        .find(&op, &FindRequest::new(COLLECTION))?
        .next_doc(&op)?;
    found.map(|d| SetConfig::parse(Doc::new(&d))).transpose()
}

fn state_file(set: &ReplicaSet) -> StateFile {
    let machine = &set.home.machine;
    StateFile::new(machine.disk.clone(), &set.home.dbpath)
}

/// Initiates the set over what this server has; the others of its members get all of it.
///
/// # Errors
/// 23 AlreadyInitialized; 93 for a configuration that is not this server's; 74 for members that
/// cannot be reached or are something else; what storing it raises.
pub fn initiate(
    set: &Arc<ReplicaSet>,
    host: &Arc<dyn Host>,
    config: SetConfig,
    interrupt: &dyn Interrupt,
) -> Result<()> {
    begin(set, host, config, Some(interrupt))?;
    wait_for_primary(set);
    wait_for_voters(set, interrupt);
    Ok(())
}

/// Waits for some time until all members vote that are to. Members get their votes one by one, and a client
/// that has initiated a set of three expects it to do without any one of them.
fn wait_for_voters(set: &ReplicaSet, interrupt: &dyn Interrupt) {
    let Some(node) = set.node() else {
        return;
    };
    let vote = || {
        let members = node.members();
        let now = members.in_force();
        now.voters == now.config.wanted_voters()
    };
    let end = Instant::now() + ELECTED;
    // An interrupt only ends the wait: the set is initiated all the same.
    let both = Both(interrupt, &Ending(&set.home.lifecycle));
    let _ = node.moved.wait_until(&both, end, vote);
}

/// Initiates the set as [`initiate`] does, without waiting for anything; without `interrupt` the other
/// members are not asked.
pub fn begin(
    set: &Arc<ReplicaSet>,
    host: &Arc<dyn Host>,
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
    let me = check_own(set, &config, Code::InvalidReplicaSetConfig)?;
    if config.member(me).is_some_and(|m| m.arbiter) {
        return Err(invalid(
            "the set is initiated by a member that can be primary, and this one is an arbiter",
        ));
    }
    config.check_arbiters(set.home.parameters.many_arbiters.load(Ordering::Relaxed))?;
    if let Some(interrupt) = interrupt {
        check_others(set, &config, me, interrupt)?;
    }
    config.id = config.id.or_else(|| Some(muniment_value::new_object_id()));
    config.term = Some(FIRST_TERM as i64);
    let core = muniment_consensus::Config::default().number(config.to_core());
    let id = core
        .members
        .iter()
        .find(|m| m.key == me)
        .map_or(0, |m| m.id);
    let store = &set.home.engine.store;
    store.sync()?;
    let last = store.position()?.appended.index;
    let terms = (last > 0)
        .then_some((last, FIRST_TERM))
        .into_iter()
        .collect();
    let state = LocalState::initiate(id, core, terms, last);
    let file = state_file(set);
    discard_aside(set)?;
    file.write(&state)?;
    drive(set, host, file, state, None)
}

/// Becomes the member `id` of a set that another member has told of.
///
/// # Errors
/// 110 where the server has data already.
pub fn join(
    set: &Arc<ReplicaSet>,
    host: &Arc<dyn Host>,
    id: MemberId,
    in_force: InForce,
) -> Result<Arc<Node>> {
    let _begins = set.begins.lock();
    if let Some(node) = set.node() {
        return Ok(node);
    }
    check_empty(set)?;
    SetConfig::parse(Doc::new(&in_force.config.document))?;
    // The state has no voters, so that this member takes part in nothing before it has a copy: it may have
    // been a voter whose directory was emptied, and then has forgotten what it acknowledged.
    let state = LocalState {
        in_force: InForce {
            config: in_force.config,
            ..InForce::default()
        },
        ..LocalState::joining(id)
    };
    let file = state_file(set);
    discard_aside(set)?;
    file.write(&state)?;
    drive(set, host, file, state, None)?;
    set.node().ok_or_else(super::ended)
}

/// A server that joins a set has to have nothing of its own.
///
/// # Errors
/// 110 where it has.
pub fn check_empty(set: &ReplicaSet) -> Result<()> {
    let names = set.home.engine.store.databases();
    let own = |db: &&String| !matches!(db.as_str(), "local" | "admin" | "config");
    match names.iter().find(own) {
        None if set.home.engine.store.position()?.appended.index == 0 => Ok(()),
        _ => Err(Error::new(
            Code::CannotInitializeNodeWithData,
            format!(
                "{} has data already, cannot initiate set. All members except initiator must be empty.",
                set.home.address.host
            ),
        )),
    }
}

/// The `_id` of the member that this server is.
///
/// # Errors
/// `code` if there is none.
pub fn check_own(set: &ReplicaSet, config: &SetConfig, code: Code) -> Result<i32> {
    let own = config.own(set.home.address.port, &hostname());
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
    set: &ReplicaSet,
    config: &SetConfig,
    me: i32,
    interrupt: &dyn Interrupt,
) -> Result<()> {
    let caller = set.caller();
    let mut failed = Vec::new();
    for m in config.members.iter().filter(|m| m.id != me) {
        interrupt.check()?;
        let asked = caller.call(&m.host, PATIENCE).and_then(|mut c| {
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

/// Begins to drive the consensus.
fn drive(
    set: &Arc<ReplicaSet>,
    host: &Arc<dyn Host>,
    file: StateFile,
    state: LocalState,
    aside: Option<Aside>,
) -> Result<()> {
    let store = &set.home.engine.store;
    let (id, rollback_id, term) = (state.id, state.rollback_id, state.term);
    // A member that joins and has nothing yet is no secondary.
    let joins = state.in_force.voters.is_empty();
    let nothing = store.position()?.appended.index == 0;
    let empty = joins || nothing && !state.in_force.voters.contains(&id);
    let alone = state.in_force.voters.len() == 1 && state.in_force.voters.contains(&id);
    let core = driver::core_of(set, state, aside.as_ref().map(Aside::last))?;
    let (arbiter, waits) = (core.is_arbiter(id), core.is_empty_arbiter());
    let node = Arc::new(Node::new(id, core.members().clone(), core.committed()));
    *set.node.write() = Some(Arc::clone(&node));
    // A sole voter is primary in a moment, and tells clients of no state before that.
    set.electing.store(alone, Ordering::Release);
    set.change(|m| {
        m.role = match empty {
            _ if arbiter => driver::role_of_arbiter(waits),
            true => Role::Startup2,
            false => Role::Secondary,
        };
        (m.id, m.rollback_id, m.term) = (id, rollback_id + 1, term as i64);
    });
    let listener = Arc::clone(&node);
    store.listen(move |p, announce| listener.inbox.appended(p.index, announce))?;
    let now = set.home.machine.clock.instant();
    let driver = Driver::new(set, Arc::clone(host), &node, core, file, now, aside);
    set.home.world.drive(set, &node, driver)
}

/// What a locked member had set aside when it ended, as far as the state knows of it: in a copy of the
/// directory the state may be older than the file.
fn set_aside_before(set: &ReplicaSet, state: &LocalState) -> Result<Option<Aside>> {
    if state.in_force.voters.is_empty() {
        // It begins with a copy of everything.
        discard_aside(set)?;
        return Ok(None);
    }
    let log = set.home.engine.store.position()?.appended;
    let known = |frame: &aside::Frame| {
        let index = frame.at.index;
        let after = state.terms.partition_point(|(first, _)| *first <= index);
        let term = after.checked_sub(1).and_then(|i| state.terms.get(i));
        term.is_some_and(|(_, term)| *term == frame.at.term)
            && (!frame.config || state.configs.contains_key(&index))
    };
    let found = Aside::open(&set.home.machine.disk, &set.home.dbpath, log, known)?;
    if let Some(found) = &found {
        let attr = doc! {
            "logEndsAt": log.index as i64,
            "lastRecord": found.last().index as i64,
        };
        set.home.log.info(
            "REPL",
            21_413,
            "ReplCoord",
            "This member was locked when it ended, or its directory when it was copied: what it has set \
             aside is put into its log",
            &attr,
        );
    }
    Ok(found)
}

/// Removes what another member, or this one in another set, has set aside in this directory.
fn discard_aside(set: &ReplicaSet) -> Result<()> {
    aside::discard(&set.home.machine.disk, &set.home.dbpath)
}
