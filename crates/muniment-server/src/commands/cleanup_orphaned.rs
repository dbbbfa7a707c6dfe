//! `cleanupOrphaned`: a shard deletes the rows that it does not own any more.

use crate::auth::Needs;
use crate::context::CommandContext;
use crate::moving;
use crate::namespace;
use crate::registry::{CommandSpec, Kind, Routed, RunsOn};
use muniment_auth::action::Action;
use muniment_value::Result;
use muniment_value::args::{Types, idle};

/// The command. It returns after all such rows of the collection are deleted, whichever cursors may still read them.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "cleanupOrphaned",
    doc: "Deletes the rows of a collection that the shard has given to others",
    kind: Kind::Admin,
    runs_on: Some(RunsOn::Primary),
    admin_only: true,
    fields: &[
        idle(
            "startingFromKey",
            Types::OBJECT,
            "all of them are deleted at once",
        ),
        idle(
            "secondaryThrottle",
            Types::SAFE_BOOL,
            "the rows are deleted in small commits",
        ),
    ],
    run,
    ..CommandSpec::new(Routed::Refused, Needs::cluster(&[Action::CleanupOrphaned]))
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let ns = cx.text_target()?;
    namespace::split(ns)?;
    if let Some(collection) = cx.engine().store.collection(ns) {
        moving::clean_now(cx.server, cx.op, &collection)?;
    }
    Ok(())
}
