//! The cluster that is simulated.

use crate::connections::ConnShared;
use crate::context::{ConnLocal, Request};
use crate::request::{self, Caller};
use crate::state::ServerState;
use muniment_value::{Doc, DocBuf};
use muniment_wire::Sequence;
use std::sync::Arc;

/// What a step finds wrong.
pub type Found = Result<(), String>;

/// Shards; set 0 is the configuration's. The first members of the sets have the sets' numbers.
pub const SHARDS: usize = 2;
/// Routers come after the first members, and before the other ones.
pub const FIRST_ROUTER: usize = SHARDS + 1;
pub const ROUTERS: usize = 2;

/// Whether a server is a router.
pub fn is_router(number: usize) -> bool {
    (FIRST_ROUTER..FIRST_ROUTER + ROUTERS).contains(&number)
}

/// The name of a shard, which is that of its set.
pub fn shard_name(number: usize) -> String {
    format!("s{number}")
}

/// Runs a command, which names its database in `$db`, as a connection does.
pub fn run_command(state: &Arc<ServerState>, conn: &Arc<ConnShared>, body: Doc<'_>) -> DocBuf {
    run_request(state, conn, body, &[])
}

/// As [`run_command`], with sequences of documents beside it.
pub fn run_request(
    state: &Arc<ServerState>,
    conn: &Arc<ConnShared>,
    body: Doc<'_>,
    sequences: &[Sequence<'_>],
) -> DocBuf {
    let request = Request {
        db: body.get_str("$db").unwrap_or_default(),
        name: body.first().map_or("", |e| e.name()),
        body,
        sequences,
        exhaust_allowed: false,
        unacknowledged: false,
        legacy: false,
    };
    let counter = state.metrics.counter(1);
    let mut out = Vec::new();
    let caller = Caller {
        server: state,
        conn,
        counter: &counter,
        request: &request,
    };
    let mut local = ConnLocal {
        greeted: true,
        ..ConnLocal::default()
    };
    request::execute(caller, &mut local, &mut out);
    Doc::new(&out).to_buf()
}

/// The beginning of a document's text.
pub fn short(d: Doc<'_>) -> String {
    let text = format!("{d:?}");
    text.chars().take(400).collect()
}
