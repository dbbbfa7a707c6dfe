//! The state of this member of a replica set: its role, the configuration in force, and which of the other
//! members is primary since when; and what commands change of that.
//!
//! Invariants: the role is primary only while the storage's commit door is open: it becomes so after the
//! door opens, and ceases to be so before the door closes. A change of the state increments the topology's
//! counter, after the change.

use crate::caller::Caller;
use crate::config::SetConfig;
use crate::driver::{Request, ticks};
use crate::figures::Figures;
use crate::home::{Home, Host};
use crate::initial_sync::Copies;
use crate::lifecycle::ended;
use crate::member_config::MemberConfig;
use crate::node::Node;
use crate::role::Role;
use crate::signer::Signer;
use crate::timestamps::{op_time, wall_ms};
use muniment_consensus::{MemberId, Refusal};
use muniment_exec::OpContext;
use muniment_logger::{iso8601, now_ms};
use muniment_op::{Event, Interrupt, Sleepers};
use muniment_storage::{Store, Timestamp};
use muniment_value::{ArrayBuf, Code, DocBuf, Error, Result, Value, doc};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// What others see of a member's state: its role, the configuration's version and term, its `_id`, the
/// leader, and the leader's term.
type Shown = (
    Role,
    Option<(i64, Option<i64>)>,
    Option<i32>,
    Option<MemberId>,
    i64,
);

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

/// The state of this member.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its role.
    pub role: Role,
    /// The configuration in force.
    pub config: Option<Arc<SetConfig>>,
    /// Its number in the consensus; 0 before it has one.
    pub id: MemberId,
    /// Its `_id` in the configuration.
    pub me: Option<i32>,
    /// The newest term; 0: none.
    pub term: i64,
    /// The member that leads in this term.
    pub leader: Option<MemberId>,
    /// The election that made it primary.
    pub election: Option<Election>,
    /// `rbid`.
    pub rollback_id: u64,
    /// The configuration was forced here since the start.
    pub forced: bool,
    /// Members that only newer configurations have than the one in force here.
    pub ahead: BTreeMap<MemberId, Ahead>,
    /// What commands have told it.
    pub told: Told,
}

/// What commands have told a member. It is forgotten when the process ends, and kept when the storage is
/// only opened again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// How often maintenance was begun and not ended.
    pub maintenance: u32,
    /// The member is not to campaign before this time (`replSetFreeze`, `replSetStepDown`). The driver notes
    /// the time here when it ends, for the next driver.
    pub frozen_until: Option<Instant>,
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
        // A term is shown only once it has a leader.
        let term = self.leader.map_or(0, |_| self.term);
        (self.role, config, self.me, self.leader, term)
    }

    /// Gives the configuration the term of the primary, as in MongoDB, where each new primary writes it anew;
    /// except a configuration that was forced here, until the next start.
    pub(crate) fn show_term(&mut self) {
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

    /// The member's part of the configuration.
    pub fn own(&self) -> Option<&MemberConfig> {
        self.config.as_ref()?.member(self.me?)
    }
}

/// The set that this server was started as a member of.
pub struct ReplicaSet {
    name: String,
    /// What it has of the server.
    pub home: Home,
    pub(crate) member: RwLock<Member>,
    /// The role is primary.
    primary: AtomicBool,
    /// Replies tell the cluster's time: there is a configuration, and this member is no arbiter.
    pub(crate) timed: AtomicBool,
    /// What signs the cluster's time, if members know each other by a key.
    pub(crate) signer: Option<Signer>,
    /// It is the sole voter, and is about to be primary for the first time: until then no state is told.
    pub(crate) electing: AtomicBool,
    /// As primary it has made the collections that every primary has.
    prepared: AtomicBool,
    /// Held by the thread that initiates the set or joins it.
    pub(crate) begins: Mutex<()>,
    pub(crate) node: RwLock<Option<Arc<Node>>>,
    /// The threads that look again when the state has changed, as a command that was passed on to the primary does.
    pub(crate) watchers: Sleepers,
    /// The operations that were interrupted when it ceased to take writes.
    interrupted: Mutex<Vec<Weak<OpContext>>>,
    pub(crate) figures: Figures,
    /// What other members copy of this one's data.
    pub copies: Copies,
}

impl ReplicaSet {
    /// A member without a configuration.
    pub fn new(name: String, home: Home) -> ReplicaSet {
        let signer = home.trust.keys.as_deref().map(Signer::new);
        ReplicaSet {
            name,
            home,
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
                told: Told::default(),
            }),
            primary: AtomicBool::new(false),
            timed: AtomicBool::new(false),
            signer,
            electing: AtomicBool::new(false),
            prepared: AtomicBool::new(false),
            begins: Mutex::new(()),
            node: RwLock::new(None),
            watchers: Sleepers::new(),
            interrupted: Mutex::default(),
            figures: Figures::default(),
            copies: Copies::default(),
        }
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True while this member takes writes.
    pub fn is_primary(&self) -> bool {
        self.primary.load(Ordering::Acquire)
    }

    /// What this member counts.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// This server as a caller of other members.
    pub(crate) fn caller(&self) -> Caller {
        let Home { address, trust, .. } = &self.home;
        let routes = self.home.parameters.routes.clone();
        Caller::new(
            self.name.clone(),
            address.host.clone(),
            trust.clone(),
            routes,
        )
    }

    /// The state now.
    pub fn member(&self) -> Member {
        self.member.read().clone()
    }

    /// Whether the configuration in force has other members.
    pub fn has_others(&self) -> bool {
        let member = self.member.read();
        member.config.as_ref().is_some_and(|c| c.members.len() > 1)
    }

    /// Whether a write waits for a majority if neither the client nor the cluster's default says otherwise.
    pub fn implies_majority(&self) -> bool {
        let member = self.member.read();
        member.config.as_ref().is_none_or(|c| c.implies_majority())
    }

    /// What commands see of the consensus, once there is a configuration.
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

    /// Changes the state, and wakes the threads that wait for that.
    pub fn change(&self, change: impl FnOnce(&mut Member)) {
        let mut member = self.member.write();
        let before = member.shown();
        change(&mut member);
        // After any change of its role: a secondary in maintenance is in state RECOVERING.
        member.role = match (member.role, member.told.maintenance) {
            (Role::Secondary, 1..) => Role::Recovering,
            (Role::Recovering, 0) => Role::Secondary,
            (role, _) => role,
        };
        // This is set before anybody is told: a client that hears of a primary may write at once.
        let primary = member.role == Role::Primary;
        self.primary.store(primary, Ordering::Release);
        // An arbiter has no log, and so does not know the cluster's time.
        let timed = member.config.is_some() && member.role != Role::Arbiter;
        self.timed.store(timed, Ordering::Release);
        let changed = member.shown() != before;
        let tells = match self.electing.load(Ordering::Acquire) {
            true => primary,
            false => changed,
        };
        if tells {
            self.electing.store(false, Ordering::Release);
            // The counter moves while the state is locked: see `topology_of_error`.
            self.home.topology.change();
        }
        drop(member);
        self.watchers.wake_all();
    }

    /// Waits until `is_so`, which only looks at this member's state, or until `end`; false if it is not so
    /// by then.
    ///
    /// # Errors
    /// What `on` says.
    pub(crate) fn wait_until(
        &self,
        on: &dyn Interrupt,
        end: Instant,
        is_so: impl Fn() -> bool,
    ) -> Result<bool> {
        let watching = Watching {
            watchers: &self.watchers,
            on,
        };
        Event::new().wait_until(&watching, end, is_so)
    }

    /// Whether this primary has made the collections that every primary has.
    pub fn is_prepared(&self) -> bool {
        self.prepared.load(Ordering::Acquire)
    }

    /// This member takes no writes from here on. Running writes are interrupted, after the change of the
    /// state, which tells their clients why, is shown.
    pub fn no_primary(&self, host: &dyn Host) {
        let was_primary = self.is_primary();
        self.change(|m| {
            if m.role == Role::Primary {
                m.role = Role::Secondary;
                m.leader = None;
            }
        });
        let (mut killed, mut running) = (0, 0);
        let mut interrupted = self.interrupted.lock();
        interrupted.clear();
        for op in self.home.engine.operations.list() {
            if host.is_write(op.command()) {
                if op.kill(Code::InterruptedDueToReplStateChange) {
                    interrupted.push(Arc::downgrade(&op));
                }
                killed += 1;
            } else {
                running += 1;
            }
        }
        if was_primary {
            self.figures.stepped_down(killed, running);
        }
    }

    /// This member takes writes again in the term in which it had ceased to. Operations that have not noticed
    /// their interruption yet, or that wait for other members to have what they wrote, go on as if they had
    /// not been interrupted.
    pub fn primary_again(&self) {
        for op in self.interrupted.lock().drain(..) {
            if let Some(op) = op.upgrade() {
                op.spare(Code::InterruptedDueToReplStateChange);
            }
        }
    }

    /// Lets another member be primary; this one is not to be primary for `time`.
    ///
    /// # Errors
    /// 10107 if it is not primary; 262 if no other member has caught up within `catch_up`, unless `force`.
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
        let (patience, freeze) = (ticks(catch_up), ticks(time));
        let asked = |token, outcome| Request::StepDown(token, patience, freeze, force, outcome);
        let answer = node.ask_or_take_back(asked, interrupt)?;
        answer.map_err(|refusal| match refusal {
            Refusal::NotLeader => not_primary(),
            Refusal::Busy => Error::new(
                Code::ConflictingOperationInProgress,
                "another stepdown is under way",
            ),
            _ => nobody(),
        })
    }

    /// Keeps this member from becoming primary for `time`; with a `time` of zero it may at once.
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
        let ticks = ticks(time);
        let answer = node.ask_and_wait(|outcome| Request::Freeze(ticks, outcome), interrupt)?;
        answer.map_err(|_| ended())
    }

    /// Begins maintenance of this secondary, or ends it. Each beginning needs an end of its own.
    ///
    /// # Errors
    /// 95 NotSecondary for a primary; 96 if there is no maintenance to end.
    pub fn maintain(&self, begins: bool, interrupt: &dyn Interrupt) -> Result<()> {
        let node = self.node().ok_or_else(ended)?;
        node.ask_and_wait(|outcome| Request::Maintain(begins, outcome), interrupt)?
    }

    /// The member that this one has its log from.
    pub fn sync_source<'m>(&self, member: &'m Member) -> Option<&'m MemberConfig> {
        let has_log = member.role != Role::Arbiter;
        let leader = member
            .leader
            .filter(|leader| *leader != member.id && has_log);
        self.member_of(member, leader)
    }

    /// A member's part of the configuration.
    fn member_of<'m>(&self, member: &'m Member, id: Option<MemberId>) -> Option<&'m MemberConfig> {
        let node = self.node()?;
        let members = node.members();
        let key = members.in_force().config.member(id?)?.key;
        member.config.as_ref()?.member(key)
    }

    /// The address of a member, by the newest configuration that it has told of.
    pub(crate) fn host_of<'m>(&self, member: &'m Member, id: Option<MemberId>) -> Option<&'m str> {
        match member.ahead.get(&id?) {
            Some(ahead) => Some(ahead.host.as_str()),
            None => Some(self.member_of(member, id)?.host.as_str()),
        }
    }
}

/// An operation that looks again whenever the member's state has changed.
struct Watching<'w> {
    watchers: &'w Sleepers,
    on: &'w dyn Interrupt,
}

impl Interrupt for Watching<'_> {
    fn check(&self) -> Result<()> {
        self.on.check()
    }

    fn sleepers(&self, show: &mut dyn FnMut(&Sleepers)) {
        self.on.sleepers(show);
        show(self.watchers);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.on.wakes_at()
    }
}

/// Makes the collections that every set has, which only a primary may make.
pub(crate) fn became_primary(set: &Arc<ReplicaSet>, host: &Arc<dyn Host>) {
    let (primary, host) = (Arc::clone(set), Arc::clone(host));
    let prepare = move || {
        host.prepare_as_primary();
        primary.prepared.store(true, Ordering::SeqCst);
        primary.watchers.wake_all();
    };
    // A thread of its own makes them: they are written through the commit door, which the calling thread,
    // as the driver, may be about to close.
    if let Err(e) = set.home.world.beside("primary", Box::new(prepare)) {
        set.home
            .log
            .startup_warning(20_557, &format!("the new primary has no thread: {e}"));
    }
}

/// `topologyVersion` beside an error that says that the member is no primary: it lets drivers recognize an
/// answer that is older than what they have heard since. The counter is read while the state is locked, so
/// that it is never the one of the state in which the member was still primary: a driver would take the
/// error for an old one, and send the command to the same member again.
pub fn topology_of_error(set: Option<&ReplicaSet>, code: Code) -> Option<DocBuf> {
    let not_primary = matches!(
        code,
        Code::NotWritablePrimary
            | Code::NotPrimaryNoSecondaryOk
            | Code::NotPrimaryOrSecondary
            | Code::InterruptedDueToReplStateChange
            | Code::PrimarySteppedDown
    );
    let set = set.filter(|_| not_primary)?;
    let _state = set.member.read();
    Some(set.home.topology.version(set.home.topology.counter()))
}

/// What `hello` and serverStatus say of the set, `primary` being the name of the field that tells
/// whether it takes writes, and `counter` the topology's, which was read before.
pub fn describe(set: &ReplicaSet, primary: &str, counter: i64) -> DocBuf {
    let member = set.member();
    let mut d = doc! { "topologyVersion": set.home.topology.version(counter) };
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
    let named = |electable: bool, arbiter: bool| -> ArrayBuf {
        let shown = config.members.iter().filter(|m| !m.hidden);
        shown
            .filter(|m| m.electable() == electable && m.arbiter == arbiter)
            .map(|m| m.host.as_str())
            .collect()
    };
    d.append("hosts", named(true, false));
    for (name, named) in [
        ("passives", named(false, false)),
        ("arbiters", named(false, true)),
    ] {
        if !named.as_doc().is_empty() {
            d.append(name, named);
        }
    }
    d.append("setName", config.name.as_str());
    d.append("setVersion", config.version as i32);
    // 2 stands for a set, as opposed to the mirrored servers of older versions.
    d.append_some("configsvr", config.of_config.then_some(2));
    d.append(primary, is_primary);
    d.append("secondary", member.role == Role::Secondary);
    let leader = match is_primary {
        true => Some(own.host.as_str()),
        false => set.host_of(&member, member.leader),
    };
    d.append_some("primary", leader);
    for (is, name) in [
        (own.arbiter, "arbiterOnly"),
        (!own.arbiter && !own.electable(), "passive"),
        (own.hidden, "hidden"),
    ] {
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
    d.append("lastWrite", last_write(&set.home.engine.store));
    d
}

/// `lastWrite`. A member without a log (an arbiter) has no writes to report.
fn last_write(store: &Store) -> DocBuf {
    let p = store.position().unwrap_or_default();
    let majority = store.committed().unwrap_or_default();
    let wall = |at| Value::DateTime(wall_ms(store, at));
    doc! {
        "opTime": op_time(p.applied.at, p.applied.term as i64),
        "lastWriteDate": wall(p.applied.at),
        "majorityOpTime": op_time(majority.at, majority.term as i64),
        "majorityWriteDate": wall(majority.at),
    }
}

/// An election's id: greater with every term.
pub fn election_id(term: i64) -> [u8; 12] {
    let mut id = [0; 12];
    let (head, tail) = id.split_at_mut(4);
    head.copy_from_slice(&[0x7F, 0xFF, 0xFF, 0xFF]);
    tail.copy_from_slice(&term.to_be_bytes());
    id
}
