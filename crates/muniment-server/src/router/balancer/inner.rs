//! Commands that the balancer gives itself: they run as a router's do, on a connection with nobody at its other end.

use crate::concern::WriteConcern;
use crate::connections::ConnShared;
use crate::context::{CommandContext, ConnLocal, Request};
use crate::generic::Generic;
use crate::state::ServerState;
use muniment_exec::OpContext;
use muniment_value::args::Args;
use muniment_value::{Doc, DocBuf, Error, Result, doc};
use muniment_wire::{DocWriter, Stream};
use parking_lot::Mutex;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

/// A connection on which nothing is ever sent.
pub fn connection() -> Result<Arc<ConnShared>> {
    let pair = UnixStream::pair();
    let (stream, _) = pair.map_err(|e| Error::internal(format!("no pair of sockets: {e}")))?;
    Ok(Arc::new(ConnShared {
        id: 0,
        peer: "".into(),
        stream: Arc::new(Stream::Unix(stream)),
        remote: Arc::default(),
        since: Instant::now(),
        client: Mutex::default(),
        user: Mutex::default(),
        command: Mutex::default(),
        busy: false.into(),
        spoke: true.into(),
        stuck: false.into(),
        uuid: Default::default(),
    }))
}

/// Does something in the context of an operation of the balancer's.
///
/// # Errors
/// Those of `with`.
pub fn within<T>(
    server: &Arc<ServerState>,
    conn: &Arc<ConnShared>,
    op: &Arc<OpContext>,
    with: impl FnOnce(&CommandContext<'_>) -> Result<T>,
) -> Result<T> {
    // What is moved names its collection itself; a command on a sharded collection is all that is needed here.
    let spec = &crate::commands::split::COMMAND;
    let body: DocBuf = doc! { "split": "" };
    let request = Request {
        db: "admin",
        name: spec.name,
        body: body.as_doc(),
        sequences: &[],
        exhaust_allowed: false,
        unacknowledged: false,
        legacy: false,
    };
    let (mut local, mut reply) = (ConnLocal::default(), Vec::new());
    let cx = CommandContext {
        server,
        conn,
        local: &mut local,
        op,
        spec,
        request: &request,
        args: Args::parse(spec.name, spec.fields, Doc::EMPTY)?,
        generic: Generic::default(),
        write_concern: WriteConcern::IMPLICIT_OF_A_SET,
        reply: DocWriter::begin(&mut reply),
        commit: None,
        exhaust: false,
        op_count: None,
        more_ops: Vec::new(),
        uuid: None,
        transaction: None,
        said_ok: false,
        elsewhere: false,
    };
    with(&cx)
}
