//! Tests of the core: scenarios, the simulator, the state file, messages, write concerns.

mod bugs;
mod cluster;
mod concerns;
mod messages;
mod node;
mod oracle;
mod scripts;
mod sim;
mod state;

pub(crate) use bugs::Bugs;
