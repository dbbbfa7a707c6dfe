//! The way to one other member: a thread that connects, and sends what is to be sent to it.
//!
//! What is little and finds nothing before it goes from the driver's thread straight into the socket,
//! as far as that takes it at once, since waking another thread costs more than it. The rest is the
//! thread's.
//!
//! Messages of the consensus may be lost, so none is kept for a member that cannot be reached. Of
//! reports only the newest counts. Records of the log are read when they are sent, so that a slow
//! member costs no memory but their places.
//!
//! A member with a delay (`secondaryDelaySecs`) is sent no record before it is due: what stands behind
//! such a one is left out of the message, as if it had been lost, and the consensus asks for it again.
//! So the member has neither in its data nor in its log what it is not to have yet, also behind a
//! restart, or when it is started by itself to look at it.
//!
//! Invariant: messages of one connection arrive in the order in which they were given. Must not
//! wait for the member in any other thread.

use super::frame::{PIECE, put_message, put_record, put_report};
use super::prove::Caller;
use crate::log::now_ms;
use muniment_repl::{MemberId, Message};
use muniment_storage::{Records as LogRecords, Store, Timestamp};
use muniment_value::{Code, DocBuf, Error, Result};
use muniment_wire::{Connection, Stream};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// After a failure it is tried again.
const PAUSE: Duration = Duration::from_millis(250);
/// After a refusal: nothing but another key file helps.
const REFUSED: Duration = Duration::from_secs(2);
/// Messages that may wait; what comes then is lost, as on a network that is too slow.
const MOST: usize = 4096;

/// Messages that go on with each other's records become one of so many records at most.
const LONGEST: usize = 1024;
/// The thread reads more records than so many.
const FEW: usize = 64;
/// Who sends more bytes than so many at a time leaves the next ones to the thread, too.
const LITTLE: usize = 128 << 10;

/// Whom to connect to, and how.
pub struct To {
    /// The member's number.
    pub id: MemberId,
    /// Where it is, as the configuration says.
    pub host: String,
    /// What to connect to.
    pub dialled: String,
    /// As whom.
    pub caller: Caller,
    /// The command that opens the connection, without `$db`.
    pub greeting: DocBuf,
    /// Longest wait for an answer.
    pub patience: Duration,
    /// Longest silence of the network: a way that was cut off for as long is made anew, so that it is
    /// there soon after it can be again.
    pub silence: Duration,
}

/// The way to one other member: what the driver knows of it.
pub trait Way: Send {
    /// Where it leads.
    fn host(&self) -> &str;
    /// Sends a message with the next [`Way::flush`], if the member can be reached.
    fn send(&self, message: Message);
    /// Sends a report then, in the place of one that was not sent yet.
    fn report(&self, report: DocBuf);
    /// Sends what was given since the last time, or has somebody send it. Waits for nobody.
    fn flush(&self, store: &Arc<Store>);
    /// Records are so many seconds old, at least, when they are sent.
    fn set_delay(&self, secs: u32);
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
    /// Seconds by which records are older when they are sent.
    delay: AtomicU32,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Who sends. Who has the queue may only try to have it.
    sending: Mutex<Sending>,
}

/// What is being sent.
#[derive(Default)]
struct Sending {
    records: Records,
    out: Vec<u8>,
    /// What was sent last was much, and so is what comes next, likely.
    much: bool,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    report: Option<DocBuf>,
    /// There is something for the thread.
    called: bool,
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
            delay: AtomicU32::new(0),
            queue: Mutex::default(),
            wake: Condvar::new(),
            sending: Mutex::default(),
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

    fn set_delay(&self, secs: u32) {
        self.shared.delay.store(secs, Relaxed);
    }

    fn send(&self, message: Message) {
        let mut queue = self.shared.queue.lock();
        if queue.connected && queue.messages.len() < MOST {
            put_behind(&mut queue.messages, message);
        }
    }

    fn report(&self, report: DocBuf) {
        let mut queue = self.shared.queue.lock();
        if queue.connected {
            queue.report = Some(report);
        }
    }

    fn flush(&self, store: &Arc<Store>) {
        let mut queue = self.shared.queue.lock();
        if queue.messages.is_empty() && queue.report.is_none() {
            return;
        }
        if !self.shared.send_at_once(&mut queue, store) {
            queue.called = true;
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
            queue.called = false;
            queue.socket = None;
            queue.trouble = ended.err();
            drop(queue);
            // Its reader of records keeps the store.
            *self.sending.lock() = Sending::default();
            let mut queue = self.queue.lock();
            if queue.stop {
                return;
            }
            let refused = |e: &Error| e.code() == Code::AuthenticationFailed;
            let pause = match queue.trouble.as_ref().is_some_and(refused) {
                true => REFUSED,
                false => PAUSE,
            };
            self.wake.wait_for(&mut queue, pause);
            if queue.stop {
                return;
            }
        }
    }

    fn connect(&self) -> Result<Stream> {
        let to = &self.to;
        let mut c = Connection::connect_timeout(&to.dialled, to.silence)?;
        c.stream().set_silence(to.silence)?;
        c.set_timeout(Some(to.patience))?;
        to.caller.prove(&mut c, &to.host)?;
        c.command("admin", &to.greeting)?;
        let socket = c.stream().try_clone()?;
        Ok(socket)
    }

    /// What is given from here on goes into this socket.
    fn open(&self, socket: &Stream) -> Result<()> {
        let mut queue = self.queue.lock();
        queue.socket = Some(socket.try_clone()?);
        queue.trouble = None;
        queue.connected = true;
        Ok(())
    }

    /// Sends until something fails or the end is asked for.
    fn serve(&self, store: &Arc<Store>, mut socket: Stream) -> Result<()> {
        self.open(&socket)?;
        loop {
            {
                let mut queue = self.queue.lock();
                while !queue.stop && !queue.called {
                    self.wake.wait(&mut queue);
                }
                if queue.stop {
                    return Ok(());
                }
            }
            let mut sending = self.sending.lock();
            let (messages, report) = {
                let mut queue = self.queue.lock();
                queue.called = false;
                (std::mem::take(&mut queue.messages), queue.report.take())
            };
            let mut bytes = sending.out.len();
            for mut message in messages {
                loop {
                    let delay = self.delay.load(Relaxed);
                    let rest = sending.put(store, &mut message, delay)?;
                    if sending.out.len() >= PIECE || rest.is_some() {
                        bytes += sending.out.len();
                        flush(&mut socket, &mut sending.out)?;
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
                put_report(&mut sending.out, report.as_doc());
            }
            bytes += sending.out.len();
            flush(&mut socket, &mut sending.out)?;
            sending.much = bytes > LITTLE;
            if sending.out.capacity() > 2 * PIECE {
                sending.out = Vec::new();
            }
        }
    }

    /// Sends what is there without waiting for anything; false if something is left for the thread.
    fn send_at_once(&self, queue: &mut Queue, store: &Arc<Store>) -> bool {
        let entries = |m: &Message| m.records().map_or(0, |r| r.count());
        let few = queue.messages.iter().map(entries).sum::<usize>() <= FEW;
        let Some(socket) = queue.socket.as_ref().filter(|_| few && !queue.called) else {
            return false;
        };
        let Some(mut sending) = self.sending.try_lock() else {
            return false;
        };
        // The thread finds out what is wrong.
        if sending.much || !sending.out.is_empty() || queue.report.is_some() && socket.has_ended() {
            return false;
        }
        let delay = self.delay.load(Relaxed);
        while sending.out.len() < LITTLE
            && let Some(mut message) = queue.messages.pop_front()
        {
            match sending.put(store, &mut message, delay) {
                Ok(None) => {}
                Ok(Some(rest)) => {
                    queue.messages.push_front(rest);
                    break;
                }
                Err(_) => {
                    queue.messages.push_front(message);
                    break;
                }
            }
        }
        if queue.messages.is_empty()
            && let Some(report) = queue.report.take()
        {
            put_report(&mut sending.out, report.as_doc());
        }
        sending.much = sending.out.len() > LITTLE;
        let sent = socket.write_at_once(&sending.out).unwrap_or(0);
        sending.out.drain(..sent);
        sending.out.is_empty() && queue.messages.is_empty()
    }
}

/// Puts a message behind those that wait, into the last of them if it only goes on with its records.
pub fn put_behind(messages: &mut VecDeque<Message>, message: Message) {
    let left = match messages.back_mut() {
        Some(last) => last.join(message, LONGEST),
        None => Some(message),
    };
    messages.extend(left);
}

fn flush(socket: &mut Stream, out: &mut Vec<u8>) -> Result<()> {
    socket.write_all(out)?;
    out.clear();
    Ok(())
}

/// Whether a record of this time is so many seconds old.
fn is_due(at: Timestamp, delay: u32) -> bool {
    delay == 0 || i64::from(at.seconds()) + i64::from(delay) <= now_ms() / 1000
}

impl Sending {
    /// Appends a message to what is sent; see [`Records::put`].
    fn put(
        &mut self,
        store: &Arc<Store>,
        message: &mut Message,
        delay: u32,
    ) -> Result<Option<Message>> {
        self.records.put(store, message, &mut self.out, delay)
    }
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
    /// the log no longer has is not sent at all: the member is told that it is too far behind. What is
    /// younger than `delay` is left out.
    pub fn put(
        &mut self,
        store: &Arc<Store>,
        message: &mut Message,
        out: &mut Vec<u8>,
        delay: u32,
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
                Some(record) if record.index == index && !is_due(record.at, delay) => {
                    self.reader = None;
                    message.truncate(n);
                    break;
                }
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
