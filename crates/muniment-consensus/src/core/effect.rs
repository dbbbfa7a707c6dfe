//! What the driver tells the core, and what the core has it do.

use crate::config::{InForce, MemberId};
use crate::message::{Kind, Message};
use crate::state::LocalState;
use std::sync::Arc;

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Role {
    /// It follows a leader, or waits for one.
    #[default]
    Follower,
    /// It asks other members whether they would vote for it.
    PreCandidate,
    /// It asks for votes.
    Candidate,
    /// It is the leader.
    Leader,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// This member does not lead, or has lost the leadership while the request waited.
    NotLeader,
    /// Another change of the configuration is under way.
    Busy,
    /// This member would not be electable in the new configuration.
    NotElectable,
    /// More than one voter would be added or removed.
    ManyVoters,
    /// The members' numbers do not follow from the configuration in force.
    BadNumbers,
    /// No member that could take over has caught up in time.
    NobodyCaughtUp,
}

/// A record that the door put into the log.
#[derive(Clone, Debug)]
pub struct Appended {
    /// Its place.
    pub index: u64,
    /// The term of the door when it made the record.
    pub term: u64,
    /// The kind of the record.
    pub kind: Kind,
}

impl Appended {
    /// A record of data.
    pub fn plain(index: u64, term: u64) -> Appended {
        let kind = Kind::Plain;
        Appended { index, term, kind }
    }
}

/// What the driver has to do, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Make the state durable before going on.
    Save(Box<LocalState>),
    /// Close the door, then tell the core of everything that the door made
    /// ([`Core::appended`](crate::Core::appended)), and then call
    /// [`Core::door_closed`](crate::Core::door_closed). The core may defer messages that come in between, and
    /// the records of those messages have to be kept until then.
    CloseDoor,
    /// Open the door with this term. If a place is given, the first record is an empty one at this place:
    /// append it before continuing, and tell the core of it as of any other record.
    OpenDoor {
        /// The term of all records from here on.
        term: u64,
        /// The place of the empty record; `None` if the door was open in this term before.
        no_op: Option<u64>,
    },
    /// Append these records to the log, as they came with the message that was just received. If that fails,
    /// this core cannot be used any more: start again over the records that the log has.
    Append {
        /// The first place.
        first: u64,
        /// The last place.
        last: u64,
    },
    /// Put this record of a configuration through the door, and tell the core of it as of any other record.
    Write(Arc<[u8]>),
    /// Send a message, together with its records ([`Message::records`]).
    Send(Message),
    /// Note that everything up to here is committed.
    Committed(u64),
    /// Note the role of this member, and which leader it follows.
    Role {
        /// Its role.
        role: Role,
        /// The term.
        term: u64,
        /// The leader, if it is known.
        leader: Option<MemberId>,
    },
    /// Note that this configuration is in force.
    Config(Arc<InForce>),
    /// Answer the read with this token: it sees all that was acknowledged before it if it sees this place.
    Readable {
        /// The token that was given to [`Core::read`](crate::Core::read).
        token: u64,
        /// The place.
        index: u64,
    },
    /// Answer the request with this token.
    Outcome {
        /// The token of the request.
        token: u64,
        /// Success, or the reason for the refusal.
        result: Result<(), Refusal>,
    },
    /// Note that a member needs records that this member's log no longer has.
    FarBehind(MemberId),
    /// Begin an initial sync: this member needs records that the leader's log no longer has, or is new. The
    /// effect may come again and again until this core is replaced by one over a copy of the set's data
    /// ([`LocalState::synced`]). This core must be stopped before the copy takes the log's place.
    InitialSync {
        /// The leader to copy from.
        from: MemberId,
        /// The copy has to be as of this place or a later one, since this member may have acknowledged
        /// records up to here.
        at_least: u64,
    },
    /// Start the storage again, cut the log after this place, and begin with a new core. This one is done.
    Restart {
        /// The place of the last record to keep.
        cut_behind: u64,
    },
}
