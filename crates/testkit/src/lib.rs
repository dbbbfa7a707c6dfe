//! Test harness: the real binary as a child process that ends with the test, power cuts, full disks and
//! damaged files. It works on Linux.
//!
//! Everything here panics if the harness itself fails (there is no binary, the server does not start), since
//! a test cannot continue then. It must never be linked into a release.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod ask;
mod certs;
mod cluster;
mod damage;
mod grammar;
mod load;
mod network;
mod power;
pub mod random;
mod request;
mod script;
mod server;
mod set;
mod shell;

pub use certs::Authority;
pub use cluster::{Cluster, divided_and_alone};
pub use damage::{files_below, flip_bit, truncate_file};
pub use grammar::{Drawn, Grammar};
pub use load::Load;
pub use network::{Cut, Link, Network};
pub use power::{layer, materialise, probe};
pub use request::{endless, op_query, request_bytes};
pub use script::{Deployment, Difference, run_script, run_script_on};
pub use server::{Server, ServerOptions, ask_to_end, binary, end_at_once, freeze, thaw};
pub use set::Set;
pub use shell::{shell, shell_text, shell_value};

/// True if the servers keep their data. They do not if all tests are to run on the memory engine
/// (`MUNIMENT_TEST_ENGINE`).
pub fn persistent() -> bool {
    server::engine().is_none_or(|name| name != "memory")
}
