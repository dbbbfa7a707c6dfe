//! `invalidateUserCache`.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn};
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "invalidateUserCache",
    doc: "Has users and roles read anew; changes are noticed without it",
    kind: Kind::Admin,
    runs_on: Some(RunsOn::Any),
    run: |cx| {
        cx.server.engine.store.raise_accounts_generation();
        Ok(())
    },
    ..CommandSpec::new(Routed::Here, Needs::cluster(&[Action::InvalidateUserCache]))
};
