//! What a router says of itself in the configuration: that it is there (`config.mongos`), every half a minute; and that
//! there is a cluster (`config.version`), which tools look for. It hears at the same time which shards are no more.

use super::Router;
use super::forward::run;
use crate::server::MONGODB_VERSION;
use crate::state::ServerState;
use muniment_logger::now_ms;
use muniment_op::{Interrupt, Sleepers};
use muniment_value::{Code, DocBuf, Error, Result, Value, array, doc};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// As often as MongoDB's routers say that they are there.
const EVERY: Duration = Duration::from_secs(30);
/// The pause after it could not be said.
const PAUSE: Duration = Duration::from_secs(1);

/// Ends work of the router's own when the server stops.
pub(super) struct Stops<'s>(pub &'s ServerState);

impl Interrupt for Stops<'_> {
    fn check(&self) -> Result<()> {
        match self.0.lifecycle.is_stopping() {
            true => Err(Error::new(
                Code::InterruptedAtShutdown,
                "interrupted at shutdown",
            )),
            false => Ok(()),
        }
    }

    fn sleepers(&self, _: &mut dyn FnMut(&Sleepers)) {}
}

/// Says it until the server ends. On a server that is no router it returns at once.
pub fn keep(server: &Arc<ServerState>) {
    let Some(router) = &server.router else { return };
    let began = (Instant::now(), now_ms());
    let mut pause = Duration::ZERO;
    while !server.lifecycle.wait_for_stop_for(pause) {
        let done = router.catalog.shards(&Stops(server), router).map(drop);
        pause = match done.and_then(|()| say(server, router, began)) {
            Ok(()) => EVERY,
            Err(_) => PAUSE,
        };
    }
}

fn say(server: &ServerState, router: &Router, began: (Instant, i64)) -> Result<()> {
    let on = Stops(server);
    let id = Value::ObjectId(muniment_value::new_object_id());
    upsert(
        &on,
        router,
        "version",
        doc! { "_id": 1 },
        doc! { "$setOnInsert": doc! { "clusterId": id } },
    )?;
    let host = format!("{}:{}", muniment_logger::hostname(), server.address.port);
    let now = doc! {
        "ping": Value::DateTime(now_ms()),
        "up": began.0.elapsed().as_secs() as i64,
        "waiting": true,
        "mongoVersion": MONGODB_VERSION,
    };
    let created = doc! { "created": Value::DateTime(began.1) };
    upsert(
        &on,
        router,
        "mongos",
        doc! { "_id": host },
        doc! { "$set": now, "$setOnInsert": created },
    )
}

fn upsert(
    on: &dyn Interrupt,
    router: &Router,
    collection: &str,
    query: DocBuf,
    change: DocBuf,
) -> Result<()> {
    let update = doc! {
        "update": collection,
        "updates": array![doc! { "q": query, "u": change, "upsert": true }],
    };
    run(on, router, &router.config, "config", &update, true).map(|_| ())
}
