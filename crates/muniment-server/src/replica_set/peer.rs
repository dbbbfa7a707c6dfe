//! The way to one other member: a thread that connects, and sends what is to be sent to it.
//!
//! Messages of the consensus may be lost, so none is kept for a member that cannot be reached. Of
//! reports only the newest counts. Records of the log are read when they are sent, so that a slow
//! member costs no memory but their places.
//!
//! Invariant: messages of one connection arrive in the order in which they were given. Must not
//! wait for the member in any other thread.

use super::frame::{PIECE, put_message, put_record, put_report};
use muniment_repl::{MemberId, Message};
use muniment_storage::{Records as LogRecords, Store};
use muniment_value::{Code, DocBuf, Error, Result};
use muniment_wire::{Connection, Stream};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// After a failure it is tried again.
const PAUSE: Duration = Duration::from_millis(250);
/// Messages that may wait; what comes then is lost, as on a network that is too slow.
const MOST: usize = 4096;

/// Whom to connect to, and how.
pub struct To {
    /// The member's number.
    pub id: MemberId,
    /// Where it is, as the configuration says.
    pub host: String,
    /// What to connect to.
    pub dialled: String,
    /// The command that opens the connection, without `$db`.
    pub greeting: DocBuf,
    /// Longest wait for the answer to it.
    pub patience: Duration,
    /// Longest silence of the network: a way that was cut off for as long is made anew, so that it is
    /// there soon after it can be again.
    pub silence: Duration,
}

/// The way to one other member: what the driver knows of it.
pub trait Way: Send {
    /// Where it leads.
    fn host(&self) -> &str;
    /// Sends a message, if the member can be reached.
    fn send(&self, message: Message);
    /// Sends a report in the place of one that was not sent yet.
    fn report(&self, report: DocBuf);
    /// Why the member cannot be reached; `None` if it can.
    fn trouble(&self) -> Option<Error>;
}

/// Makes ways to other members.
pub trait Ways: Send + Sync {
    /// Begins to connect. Records that are to be sent are read from `store`.
    ///
    /// # Errors
    /// The system has no thread.
    fn to(&self, to: To, store: &Arc<Store>) -> Result<Box<dyn Way>>;
}

/// Ways over TCP and Unix sockets, each with a thread.
pub struct Sockets;

impl Ways for Sockets {
    fn to(&self, to: To, store: &Arc<Store>) -> Result<Box<dyn Way>> {
        Ok(Box::new(Peer::start(to, store)?))
    }
}

/// The way of a thread and a socket.
struct Peer {
    shared: Arc<Shared>,
}

struct Shared {
    to: To,
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    report: Option<DocBuf>,
    connected: bool,
    stop: bool,
    /// Why the last connection ended or could not be made.
    trouble: Option<Error>,
    /// The open socket, to end who waits in it.
    socket: Option<Stream>,
}

impl Peer {
    fn start(to: To, store: &Arc<Store>) -> Result<Peer> {
        let shared = Arc::new(Shared {
            to,
            queue: Mutex::default(),
            wake: Condvar::new(),
        });
        let (mine, store) = (Arc::clone(&shared), Arc::downgrade(store));
        std::thread::Builder::new()
            .name(format!("to member {}", shared.to.id))
            .stack_size(1 << 20)
            .spawn(move || mine.run(&store))?;
        Ok(Peer { shared })
    }
}

impl Way for Peer {
    fn host(&self) -> &str {
        &self.shared.to.host
    }

    fn send(&self, message: Message) {
        let mut queue = self.shared.queue.lock();
        if queue.connected && queue.messages.len() < MOST {
            queue.messages.push_back(message);
            self.shared.wake.notify_one();
        }
    }

    fn report(&self, report: DocBuf) {
        let mut queue = self.shared.queue.lock();
        if queue.connected {
            queue.report = Some(report);
            self.shared.wake.notify_one();
        }
    }

    fn trouble(&self) -> Option<Error> {
        self.shared.queue.lock().trouble.clone()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.stop = true;
        if let Some(socket) = queue.socket.take() {
            let _ = socket.shutdown();
        }
        self.shared.wake.notify_one();
    }
}

impl Shared {
    /// Who waits for a member that does not answer keeps no store that is to be closed.
    fn run(&self, store: &Weak<Store>) {
        loop {
            let ended = self.connect().and_then(|socket| {
                let store = store.upgrade().ok_or_else(super::ended)?;
                self.serve(&store, socket)
            });
            let mut queue = self.queue.lock();
            queue.connected = false;
            queue.messages.clear();
            queue.report = None;
            queue.socket = None;
            queue.trouble = ended.err();
            if queue.stop {
                return;
            }
            self.wake.wait_for(&mut queue, PAUSE);
            if queue.stop {
                return;
            }
        }
    }

    fn connect(&self) -> Result<Stream> {
        let mut c = Connection::connect_timeout(&self.to.dialled, self.to.silence)?;
        c.stream().set_silence(self.to.silence)?;
        c.set_timeout(Some(self.to.patience))?;
        c.command("admin", &self.to.greeting)?;
        let socket = c.stream().try_clone()?;
        let mut queue = self.queue.lock();
        queue.socket = Some(socket.try_clone()?);
        queue.trouble = None;
        queue.connected = true;
        Ok(socket)
    }

    /// Sends until something fails or the end is asked for.
    fn serve(&self, store: &Arc<Store>, mut socket: Stream) -> Result<()> {
        let mut records = Records::default();
        let mut out = Vec::new();
        loop {
            let (messages, report) = {
                let mut queue = self.queue.lock();
                while !queue.stop && queue.messages.is_empty() && queue.report.is_none() {
                    self.wake.wait(&mut queue);
                }
                if queue.stop {
                    return Ok(());
                }
                (std::mem::take(&mut queue.messages), queue.report.take())
            };
            for mut message in messages {
                loop {
                    let rest = records.put(store, &mut message, &mut out)?;
                    if out.len() >= PIECE || rest.is_some() {
                        flush(&mut socket, &mut out)?;
                    }
                    match rest {
                        Some(rest) => message = rest,
                        None => break,
                    }
                }
            }
            if let Some(report) = report {
                // The member never sends anything on it. Something between the two may take what is
                // sent all the same; this is asked now and then.
                if socket.has_ended() {
                    return Err(Error::new(
                        Code::HostUnreachable,
                        "the member has closed the connection",
                    ));
                }
                put_report(&mut out, report.as_doc());
            }
            flush(&mut socket, &mut out)?;
            if out.capacity() > 2 * PIECE {
                out = Vec::new();
            }
        }
    }
}

fn flush(socket: &mut Stream, out: &mut Vec<u8>) -> Result<()> {
    socket.write_all(out)?;
    out.clear();
    Ok(())
}

/// Reads the log's records in the order in which they are sent, mostly one behind the other.
#[derive(Default)]
pub struct Records {
    /// A reader and the place of what it gives next.
    reader: Option<(LogRecords, u64)>,
    gathered: Vec<u8>,
}

impl Records {
    /// Appends a message with its records to `out`; what does not fit is left for another one. What
    /// the log no longer has is not sent at all: the member is told that it is too far behind.
    pub fn put(
        &mut self,
        store: &Arc<Store>,
        message: &mut Message,
        out: &mut Vec<u8>,
    ) -> Result<Option<Message>> {
        let Some(wanted) = message.records() else {
            put_message(out, message, &[]);
            return Ok(None);
        };
        self.gathered.clear();
        let mut n = 0;
        for index in wanted {
            if self.gathered.len() >= PIECE {
                break;
            }
            let reader = match self.reader.take() {
                Some((reader, next)) if next == index => reader,
                _ => store.records_behind(index.saturating_sub(1))?,
            };
            let (reader, _) = self.reader.insert((reader, index + 1));
            match reader.next()? {
                Some(record) if record.index == index => {
                    put_record(&mut self.gathered, record.at, record.payload);
                }
                _ => {
                    self.reader = None;
                    return Ok(None);
                }
            }
            n += 1;
        }
        let rest = message.split_off(n);
        put_message(out, message, &self.gathered);
        Ok(rest)
    }
}
