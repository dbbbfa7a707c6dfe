//! The server: listener, connections, command registry and metrics.
//!
//! A connection has a thread ([`connection`]) that hands every request to [`request`], which
//! looks the command up in the [`mod@registry`], checks its arguments against the command's table
//! ([`muniment_value::args`]) and runs it. One file below `commands/` is one command.
//!
//! Invariants: nothing a client sends ends the process or disturbs another client; every
//! request gets exactly one reply (or none, if it asks for none); no query logic lives here.

#![recursion_limit = "512"]

mod audit;
mod auth;
mod catalog_figures;
pub mod cluster_parameters;
mod commands;
mod concern;
mod connection;
mod connections;
mod context;
mod distributed;
pub mod doctor;
mod failpoint;
mod figures;
mod front_door;
mod generic;
mod hangups;
mod heap;
mod housekeeping;
mod ingress;
mod link;
mod listener;
mod machine_figures;
pub mod memory;
mod metrics;
mod moving;
mod namespace;
mod oplog_window;
mod options;
mod outputs;
mod own_collections;
pub mod parameters;
mod placement;
mod pool;
mod profiler;
mod profiling;
mod read_preference;
mod receive;
mod registry;
mod replica_set;
mod request;
mod router;
mod send;
mod server;
mod serving;
mod sessions;
mod sets;
mod settings;
mod signals;
#[cfg(test)]
mod simulation;
mod snapshots;
mod stack;
mod startup;
mod state;
mod transactions;
mod uuid;
mod watch;

pub use muniment_logger::{LogTarget, Rotation};
pub use muniment_member::ClusterAuth;
pub use muniment_tls::{Mode as TlsMode, Protocol, Settings as TlsSettings};
pub use muniment_wire::compress::NEGOTIABLE;
pub use options::{
    AuditOptions, AuditTarget, ClusterRole, MakeDbPath, OptionNote, ServerOptions, SetAddress,
};
pub use profiler::check_filter as check_profile_filter;
pub use registry::{CommandSpec, Kind, Target, registry};
pub use server::{MAX_WIRE_VERSION, MONGODB_VERSION, Server, VERSION, build_info};
pub use state::ServerState;
