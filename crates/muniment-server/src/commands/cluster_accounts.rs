//! `_clusterAccounts`: a router asks the configuration for users and roles.

use crate::auth::{self, Needs};
use crate::context::CommandContext;
use crate::registry::{CommandSpec, Kind, Routed};
use muniment_op::sleep_until;
use muniment_value::args::{Types, opt};
use muniment_value::{ArrayBuf, Doc, Result};
use std::time::{Duration, Instant};

/// It looks for a change so long after something was committed, since the change is noted a moment later.
const NOTED: Duration = Duration::from_millis(5);
/// How long it waits for one.
const LONGEST: Duration = Duration::from_secs(5);

/// The command.
pub const COMMAND: CommandSpec = CommandSpec {
    name: "_clusterAccounts",
    doc: "Internal: a router asks for users and roles, as soon as they differ from what it has",
    kind: Kind::Admin,
    admin_only: true,
    fields: &[opt("since", Types::STRING)],
    logged_when_slow: false,
    profiled: false,
    run,
    ..CommandSpec::new(Routed::Refused, Needs::Member)
};

fn run(cx: &mut CommandContext<'_>) -> Result<()> {
    let since = cx.args.str("since").unwrap_or_default();
    let until = Instant::now() + LONGEST;
    // Read before the documents, so that a change in between is told with the next answer.
    let mut state = auth::state_of(cx.server);
    while state == since && Instant::now() < until {
        let store = &cx.server.engine.store;
        store.wait_past(store.visible(), until, &**cx.op)?;
        sleep_until(Instant::now() + NOTED, &**cx.op)?;
        state = auth::state_of(cx.server);
    }
    cx.reply.field("state", state.as_str());
    if state != since {
        for (field, namespace) in [("users", auth::USERS), ("roles", auth::ROLES)] {
            let all = auth::all(cx.server, namespace, Doc::EMPTY)?;
            cx.reply.field(field, all.into_iter().collect::<ArrayBuf>());
        }
    }
    Ok(())
}
