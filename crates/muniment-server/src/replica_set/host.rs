//! What the server does for its member ([`Host`]).

use crate::failpoint::STOP_PRODUCER;
use crate::registry::Kind;
use crate::state::ServerState;
use crate::{own_collections, settings};
use muniment_member::Host;
use std::sync::Arc;

/// The server as its member calls it.
pub fn host_of(server: &Arc<ServerState>) -> Arc<dyn Host> {
    Arc::<ServerState>::clone(server)
}

impl Host for ServerState {
    fn begin_leading(&self) {
        self.transactions.begin_leading();
    }

    fn end_transactions(&self) {
        self.transactions.kill_all(self);
    }

    fn take_settings(&self) {
        settings::take(self);
    }

    fn prepare_as_primary(&self) {
        own_collections::prepare_as_primary(self);
    }

    fn drops_records(&self) -> bool {
        self.failpoints.fires(STOP_PRODUCER)
    }

    fn is_write(&self, command: &str) -> bool {
        let kind = crate::registry::find(command).map(|spec| spec.kind);
        matches!(kind, Some(Kind::Write | Kind::Ddl))
    }
}
