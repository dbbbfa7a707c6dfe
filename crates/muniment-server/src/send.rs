//! Sends replies, also to clients that do not read them.
//!
//! Invariants: a reply that the system accepts at once costs one write and nothing else; a client that takes
//! no byte of a reply for `munimentReplyTimeoutSeconds`, or next to nothing while others need the memory, is
//! cut off; the server's shutdown waits for no such client.

use crate::connections::ConnShared;
use crate::receive::Pace;
use crate::state::ServerState;
use muniment_exec::ReplyRoom;
use muniment_logger::Severity;
use muniment_op::blocking;
use muniment_value::{Code, doc};
use muniment_wire::Stream;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long a write blocks before the connection checks whether to go on.
pub const TICK: Duration = Duration::from_secs(1);

/// Writes what the system accepts, and waits up to [`TICK`] until it accepts anything.
fn write(stream: &Stream, bytes: &[u8]) -> io::Result<usize> {
    let written = blocking(|| stream.send(bytes));
    match written {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ) =>
        {
            Ok(0)
        }
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        other => other,
    }
}

/// Sends all of a reply.
///
/// # Errors
/// The socket's; an error if the client is too slow.
#[inline]
pub fn send(
    server: &ServerState,
    shared: &ConnShared,
    room: &ReplyRoom,
    bytes: &[u8],
) -> io::Result<()> {
    let n = shared.stream.write_at_once(bytes)?;
    match bytes.get(n..) {
        None | Some([]) => Ok(()),
        Some(rest) => send_rest(server, shared, room, bytes.len(), rest),
    }
}

#[inline(never)]
fn send_rest(
    server: &ServerState,
    shared: &ConnShared,
    room: &ReplyRoom,
    whole: usize,
    mut rest: &[u8],
) -> io::Result<()> {
    let mut pace = Pace::new();
    while !rest.is_empty() {
        let n = write(&shared.stream, rest)?;
        rest = rest.get(n..).unwrap_or_default();
        shared.stuck.store(n == 0, Relaxed);
        let slow = pace.moves(n, || room.is_in_the_way());
        if n == 0 && server.lifecycle.is_stopping() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let most = server.parameters.reply_timeout_secs.load(Relaxed);
        if slow || pace.stalls().as_secs() as i64 >= most {
            server.connections.slow.fetch_add(1, Relaxed);
            tell(server, shared, whole, rest.len(), &pace);
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

fn tell(server: &ServerState, shared: &ConnShared, whole: usize, left: usize, pace: &Pace) {
    let why = format!(
        "the client has left {left} of {whole} bytes of a reply untaken; it has taken none for {} \
         seconds",
        pace.stalls().as_secs()
    );
    server.log.log(
        Severity::Info,
        "NETWORK",
        22989,
        &format!("conn{}", shared.id),
        "Error sending response to client. Ending connection from remote",
        Some(&doc! {
            "error": doc! {
                "code": Code::NetworkTimeout.0, "codeName": "NetworkTimeout", "errmsg": why,
            },
            "remote": &*shared.peer,
            "connectionId": shared.id as i64,
        }),
    );
}
