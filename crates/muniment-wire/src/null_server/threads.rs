//! A thread for each connection.

use super::Serve;
use super::replies::Replies;
use crate::frame::MessageReader;
use crate::stream::Stream;
use muniment_value::Result;
use std::collections::HashMap;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The threads, one for each connection.
pub(super) struct Threads {
    shared: Arc<Shared>,
    next: AtomicU64,
}

struct Shared {
    /// A handle on each open connection, to end it when the responder stops.
    open: Mutex<HashMap<u64, Stream>>,
    replies: Replies,
}

impl Threads {
    pub(super) fn new(replies: Replies) -> Threads {
        let shared = Shared {
            open: Mutex::new(HashMap::new()),
            replies,
        };
        Threads {
            shared: Arc::new(shared),
            next: AtomicU64::new(0),
        }
    }
}

impl Serve for Threads {
    fn take(&self, socket: TcpStream) -> io::Result<()> {
        let stream = Stream::from_tcp(socket)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.shared.connections().insert(id, stream.try_clone()?);
        let shared = Arc::clone(&self.shared);
        let spawned = thread::Builder::new()
            .name("null-conn".into())
            .stack_size(256 * 1024)
            .spawn(move || {
                // A connection ends when the client closes it, or with a message that the responder does not
                // understand.
                let _ = serve(stream, &shared.replies);
                shared.connections().remove(&id);
            });
        if spawned.is_err() {
            self.shared.connections().remove(&id);
        }
        spawned.map(drop)
    }

    fn end(&self) {
        for s in self.shared.connections().values() {
            let _ = s.shutdown();
        }
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, HashMap<u64, Stream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(stream: Stream, replies: &Replies) -> Result<()> {
    let mut reader = MessageReader::new(stream);
    let (mut out, mut plain) = (Vec::new(), Vec::new());
    loop {
        out.clear();
        let Some((header, message)) = reader.read()? else {
            return Ok(());
        };
        replies.answer(header, message, &mut plain, &mut out)?;
        if !out.is_empty() {
            reader.get_mut().write_all(&out)?;
        }
    }
}
