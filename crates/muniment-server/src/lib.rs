//! The server: listener, connections, command registry and metrics.
//!
//! A connection has a thread ([`connection`]) that hands every request to [`dispatch`], which
//! looks the command up in the [`registry`], checks its arguments against the command's table
//! ([`args`]) and runs it. One file below `commands/` is one command.
//!
//! Invariants: nothing a client sends ends the process or disturbs another client; every
//! request gets exactly one reply (or none, if it asks for none); no query logic lives here.

#![recursion_limit = "512"]

pub mod args;
mod catalog_figures;
pub mod cluster_parameters;
mod commands;
mod concern;
mod connection;
mod context;
mod dispatch;
mod failpoint;
mod figures;
mod generic;
mod guard;
mod heap;
mod housekeeping;
mod ingress;
mod listener;
pub mod log;
mod metrics;
mod namespace;
mod oplog_window;
mod options;
mod own_collections;
pub mod parameters;
mod profiler;
mod registry;
mod replica_set;
mod server;
mod sessions;
mod settings;
mod snapshots;
mod stack;
mod state;
mod transactions;
mod verbosity;

pub use options::{LogTarget, ServerOptions};
pub use registry::{Access, CommandSpec, Kind, Target, registry};
pub use server::{MAX_WIRE_VERSION, MONGODB_VERSION, Server, VERSION, build_info};
pub use state::ServerState;
