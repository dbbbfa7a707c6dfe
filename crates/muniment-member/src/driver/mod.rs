//! The driver of the consensus: it gives the core what happened, and does what the core says.
//!
//! Everything that reaches it goes through its [`Inbox`](crate::inbox::Inbox): what other members say,
//! requests of commands, how far log and disk are. It alone owns the core, the state file and the ways to
//! the other members, so none of them has a lock but the one on the driver. What it does when something
//! reached it, or time has passed, is a [`Driver::turn`]. A turn is taken by the driver's own thread, by a
//! thread that brings something ([`Node::help`]), or by the simulation of a set in virtual time.
//!
//! Invariants: effects are carried out in their order, and before anything else is given to the core; one
//! that cannot be carried out (a state that cannot be saved, a record that cannot be applied) ends the
//! process, because no member may go on from half of it. The driver must not wait for another member.

mod anew;
mod effects;
mod event;
mod full;
mod gone;
mod handle;
mod link;
mod maintain;
mod others;
mod pace;
mod renumber;
mod request;
mod room;
mod run;
mod shown;
mod still;
mod syncs;
mod turn;

use super::SetConfig;
use super::aside::Aside;
use super::frame::Record;
use super::node::Node;
use crate::home::Host;
use crate::set::ReplicaSet;
use crate::world::Mistake;
pub(crate) use anew::core_of;
pub use event::Event;
use full::Fullness;
use link::Link;
use muniment_consensus::{Core, Fatal, MemberId, Position, Role as CoreRole, StateFile, Times};
use muniment_logger::Severity;
use muniment_op::Teller;
use muniment_value::{Code, Error, doc};
pub use pace::{ticks, times_of};
pub use request::{Known, Outcome, Request};
pub use shown::role_of_arbiter;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;
use still::Still;
use syncs::Syncs;

/// `lastElectionReason` of a member that campaigned because it heard of no leader.
const TIMEOUT: &str = "electionTimeout";

/// Answers a request, if the thread that asked still waits.
fn answer<T>(outcome: &Teller<T>, with: T) {
    outcome.tell(with);
}

/// The driver.
pub struct Driver {
    set: Arc<ReplicaSet>,
    host: Arc<dyn Host>,
    node: Arc<Node>,
    core: Core,
    file: StateFile,
    peers: BTreeMap<MemberId, Link>,
    /// The place up to which the core was told of the log's records.
    told: u64,
    /// The place up to which it was told that they are durable.
    durable: u64,
    /// This member's own positions, as the core was last told of them.
    noted: Position,
    /// Configurations that went through the commit door and that the core was not told of yet.
    configs: Vec<(u64, Arc<[u8]>)>,
    /// The records of the message that is being handled.
    records: Vec<Record>,
    outcomes: HashMap<u64, Outcome>,
    /// Requests that wait until a majority confirms that this member leads: [`Request::Confirm`].
    confirms: BTreeMap<u64, Outcome>,
    role: (CoreRole, u64, Option<MemberId>),
    reported: Instant,
    /// What the times of reports count from.
    began: Instant,
    /// When the turn began.
    now: Instant,
    /// When the next tick is due.
    next: Instant,
    /// The length of a tick, in milliseconds.
    tick: u64,
    /// How long members wait for each other.
    times: Times,
    /// The driver's thread rests until then, and has to be called for anything earlier.
    rests_until: Option<Instant>,
    /// Something moved that the others are to hear of.
    moved: bool,
    /// How many ways each other member has open to this one.
    open: BTreeMap<MemberId, u32>,
    /// Whether this member's disk is full, and since when.
    fullness: Fullness,
    /// All the others are to hear of something soon.
    tells_all: bool,
    /// Members that have opened a way to this one, and are still to hear that it arrived.
    met: BTreeSet<MemberId>,
    /// When the log is to be synced.
    syncs: Syncs,
    /// The reason of an election that was asked for, or in which nobody else votes.
    alone: &'static str,
    /// The configuration names this server.
    named: bool,
    /// The version of a configuration without this member, which it was told of.
    left_out: Option<u64>,
    /// Ticks since an unnamed server last checked whether the configuration names it by now.
    unnamed: u64,
    /// What the driver does while this member's files are kept as they are.
    still: Still,
    done: bool,
}

impl Driver {
    /// A driver for a core that has just begun.
    pub fn new(
        set: &Arc<ReplicaSet>,
        host: Arc<dyn Host>,
        node: &Arc<Node>,
        core: Core,
        file: StateFile,
        now: Instant,
        aside: Option<Aside>,
    ) -> Driver {
        let last = core.last();
        let times = core.times();
        let mut driver = Driver {
            set: Arc::clone(set),
            host,
            node: Arc::clone(node),
            core,
            file,
            peers: BTreeMap::new(),
            told: last,
            durable: last,
            noted: Position::default(),
            configs: Vec::new(),
            records: Vec::new(),
            outcomes: HashMap::new(),
            confirms: BTreeMap::new(),
            role: (CoreRole::Follower, 0, None),
            reported: now,
            began: now,
            now,
            next: now,
            tick: 0,
            times,
            rests_until: None,
            moved: true,
            open: BTreeMap::new(),
            fullness: Fullness::default(),
            tells_all: false,
            met: BTreeSet::new(),
            syncs: Syncs::new(),
            alone: TIMEOUT,
            named: true,
            left_out: None,
            unnamed: 0,
            still: Still::new(aside),
            done: false,
        };
        driver.abstain();
        driver.freeze_again();
        driver
    }

    fn instant(&self) -> Instant {
        self.set.home.machine.clock.instant()
    }

    fn store(&self) -> &Arc<muniment_storage::Store> {
        &self.set.home.engine.store
    }

    fn votes_alone(&self) -> bool {
        let voters = &self.core.in_force().voters;
        voters.len() == 1 && voters.contains(&self.node.id)
    }

    /// This member is the only voter, and there is no learner either: no other member is told anything.
    fn is_alone(&self) -> bool {
        let now = self.core.in_force();
        now.voters.len() == 1 && now.voters.contains(&self.node.id) && now.learners.is_empty()
    }

    /// The configuration that holds, if there is one.
    fn config(&self) -> Option<Arc<SetConfig>> {
        self.set.member().config
    }

    /// Whether a simulation has this member make a mistake.
    fn makes(&self, mistake: Mistake) -> bool {
        self.set.home.world.makes(mistake)
    }

    fn info(&self, id: u32, message: &str, attr: &muniment_value::DocBuf) {
        self.set
            .home
            .log
            .info("REPL", id, "ReplCoord", message, attr);
    }

    fn warn(&self, message: &str, e: &Error) {
        self.set.home.log.log(
            Severity::Warning,
            "REPL",
            21_336,
            "ReplCoord",
            message,
            Some(&doc! { "error": self.set.home.log.error(e) }),
        );
    }

    /// Logs the error and stops the server: this member may not go on from half of an effect.
    fn fail(&self, message: &str, e: &Error) {
        self.set.home.log.log(
            Severity::Error,
            "REPL",
            21_128,
            "ReplCoord",
            message,
            Some(&doc! { "error": self.set.home.log.error(e) }),
        );
        let why = format!("{message}: {}", self.set.home.log.error(e));
        self.set.home.lifecycle.request_stop(&why);
    }
}

fn fatal(e: Fatal) -> Error {
    Error::new(
        Code::UnrecoverableRollbackError,
        format!(
            "this member cannot go on with the set: {e}. Stop it, empty its data directory, and start \
             it again: it copies everything from another member"
        ),
    )
}
