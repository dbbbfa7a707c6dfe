//! `flushRouterConfig`.

use crate::auth::Needs;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_auth::action::Action;

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "flushRouterConfig",
    doc: "Forgets what is known of databases, shards and views, so that it is read again",
    kind: Kind::Admin,
    of_router: true,
    admin_only: true,
    ..CommandSpec::new(
        Routed::By(|cx, router| {
            router.catalog.forget();
            router.tables.forget();
            router.views.forget();
            cx.reply.field("flushed", true);
            Ok(())
        }),
        Needs::cluster(&[Action::FlushRouterConfig]),
    )
};
