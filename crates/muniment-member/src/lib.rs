//! A member of a replica set: its state, the other members, and the work that it does by itself.
//!
//! The consensus is in `muniment-consensus`; the [`driver`] drives it over the storage's log and the
//! connections to the other members ([`peer`], [`frame`], [`incoming`]); a [`Node`] is what commands see of
//! that, and a [`ReplicaSet`] is the member's state. What a member remembers outside the log stands in the file
//! `replication` of its data directory, never in the log, which is the same on all members;
//! `local.system.replset` and `local.replset.election` are made from it when they are read.
//!
//! What the member needs of its server is in [`home`]. Must not know commands, sessions or transactions: the
//! server asks the member for what commands need.

mod address;
pub mod aside;
mod ask;
mod caller;
mod concern;
mod config;
mod copy_dir;
pub mod driver;
mod figures;
pub mod frame;
mod greeting;
pub mod home;
mod host_port;
mod inbox;
pub mod incoming;
pub mod initial_sync;
pub mod initiate;
mod key;
mod leave;
mod lifecycle;
mod local;
mod member_config;
mod near;
pub mod node;
pub mod peer;
mod prove;
mod reconfigure;
mod report;
mod role;
mod rollback;
mod routes;
mod set;
mod signer;
mod statistics;
mod step_up;
mod stored;
mod times;
mod timestamps;
mod topology;
mod trust;
pub mod world;

pub use address::Address;
pub use ask::{Asking, ask_primary};
pub use caller::Caller;
pub use concern::W;
pub use config::{SetConfig, counts};
pub use driver::Request;
use driver::ticks;
pub use figures::Figures;
pub use frame::OP_REPLICATION;
pub use greeting::{FIELD as GREETING, answer as answer_greeting};
pub use home::{Home, Host, MemberParameters};
pub use host_port::HostPort;
pub use inbox::KeptBack;
pub use incoming::{Incoming, check_name, greet};
pub use initial_sync::{Copied, Preference, export};
pub use initiate::{initiate, start};
pub use key::Keys;
use lifecycle::ended;
pub use lifecycle::{Ending, Lifecycle, Restart, StopRequest, Stopping};
pub use local::documents as local_documents;
pub use member_config::{MemberConfig, invalid};
pub use near::{NEAR, Spot};
pub use node::Node;
pub use peer::{Sockets, Ways};
pub use prove::{LONGEST as LONGEST_NAME, Proof, Seen, answer as answer_proof};
pub use role::Role;
pub use routes::Routes;
pub use set::{
    Ahead, Election, Member, ReplicaSet, Told, describe, election_id, topology_of_error,
};
pub use statistics::{metrics, oplog};
pub use stored::{Opening, Stored, opening, prepare_restart, stored};
pub use times::{ClusterTime, append_times, parse as parse_time};
pub use timestamps::{date_of, of as times_of, op_time, timestamp, wall_ms};
pub use topology::Topology;
pub use trust::{ClusterAuth, Trust};
pub use world::{Threads, World};
