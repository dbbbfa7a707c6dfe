//! Tests of the core: scenarios, the simulator, the state file, messages and write concerns.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

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

/// A core may be driven by any thread, though only by one at a time.
#[test]
fn can_be_sent() {
    fn is_send<T: Send>() {}
    is_send::<crate::Core>();
}
