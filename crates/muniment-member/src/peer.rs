//! The way to one other member: a thread that connects, and sends what is to be sent to it.
//!
//! If there is little to send and nothing waits before it, the driver's thread writes it straight into the
//! socket, as far as that takes it at once, since waking another thread costs more. The rest is left to
//! the way's own thread.
//!
//! Messages of the consensus may be lost, so none is kept for a member that cannot be reached. Of
//! reports only the newest counts. Records of the log are read when they are sent, so that a slow
//! member costs no memory but their places.
//!
//! A member with a delay (`secondaryDelaySecs`) is sent no record before it is due: a record that is not
//! due, and all after it, are left out of the message, as if they had been lost, and the consensus asks for
//! them again. So the member has neither in its data nor in its log what it is not to have yet, not even
//! after a restart, or when it is started by itself to look at its data.
//!
//! Invariant: messages of one connection arrive in the order in which they were given. Must not
//! wait for the member in any other thread.

use super::caller::{Caller, unreachable};
use super::frame::{PIECE, put_message, put_record, put_report};
use muniment_consensus::{MemberId, Message};
use muniment_storage::{Record, Records as LogRecords, Store};
use muniment_value::{Code, DocBuf, Error, Result};
use muniment_wire::Stream;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long after a failure the thread tries again to connect.
const PAUSE: Duration = Duration::from_millis(250);
/// The same after a refusal, which only another key file, version or configuration can end.
const REFUSED: Duration = Duration::from_secs(2);
/// Messages that may wait; what comes then is lost, as on a network that is too slow.
const MOST: usize = 4096;

/// Messages that go on with each other's records become one of so many records at most.
const LONGEST: usize = 1024;
/// If there are more records than this to send, the way's own thread reads them.
const FEW: usize = 64;
/// After more bytes than this at a time the next ones are left to the way's own thread, too.
const LITTLE: usize = 128 << 10;

/// The member to connect to, and how.
pub struct To {
    /// The member's number.
    pub id: MemberId,
    /// Where it is, as the configuration says.
    pub host: String,
    /// The address to connect to, which a route may have put in the place of `host`.
    pub dialled: String,
    /// This server, as it calls the member.
    pub caller: Caller,
    /// The command that opens the connection, without `$db`; the driver keeps it up to date.
    pub greeting: Arc<Mutex<DocBuf>>,
    /// Longest wait for an answer.
    pub patience: Duration,
    /// Longest silence of the network: a way that was cut off for as long is made anew, so that it is
    /// there soon after the network is.
    pub silence: Duration,
}

/// The way to one other member: what the driver knows of it.
pub trait Way: Send {
    /// Where it leads.
    fn host(&self) -> &str;
    /// Sends a message with the next [`Way::flush`], if the member can be reached.
    fn send(&self, message: Message);
    /// Sends a report with the next flush, in the place of one that was not sent yet.
    fn report(&self, report: DocBuf);
    /// Sends what was given since the last time, or has another thread send it. Waits for nothing.
    fn flush(&self, store: &Arc<Store>);
    /// Records are so many seconds old, at least, when they are sent.
    fn set_delay(&self, secs: u32);
    /// Changes how long the network may be silent: see [`To::silence`]. Nothing that was sent is lost by it.
    fn set_silence(&self, silence: Duration);
    /// Why the member cannot be reached; `None` if it can.
    fn trouble(&self) -> Option<Error>;
    /// Nobody listens where the member was: the machine that it was on is there, and has refused the last
    /// attempt to connect.
    fn is_refused(&self) -> bool;
    /// The member has closed its way to this one: checks at once whether this way still leads anywhere.
    fn probe(&self);
}

/// Makes ways to other members.
pub trait Ways: Send + Sync {
    /// Begins to connect. Records that are to be sent are read from `store`.
    ///
    /// # Errors
    /// If the system has no thread.
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
    /// Records are at least so many seconds old when they are sent.
    delay: AtomicU32,
    /// Milliseconds; changed with the queue held. See [`To::silence`].
    silence: AtomicU64,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Locked by the thread that sends. A thread that holds the queue may only try to lock it: the sender
    /// locks the queue meanwhile.
    sending: Mutex<Sending>,
}

/// What is being sent.
#[derive(Default)]
struct Sending {
    records: Records,
    out: Vec<u8>,
    /// Much was sent last, so that what comes next is likely to be much, too.
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
    /// See [`Way::is_refused`].
    refused: bool,
    /// See [`Way::probe`].
    probed: bool,
    /// The open socket, by which a thread that waits in it can be ended.
    socket: Option<Stream>,
}

impl Peer {
    fn start(to: To, store: &Arc<Store>) -> Result<Peer> {
        let shared = Arc::new(Shared {
            delay: AtomicU32::new(0),
            silence: AtomicU64::new(millis(to.silence)),
            to,
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

    fn set_silence(&self, silence: Duration) {
        let queue = self.shared.queue.lock();
        self.shared.silence.store(millis(silence), Relaxed);
        if let Some(socket) = &queue.socket {
            // A socket that has failed is made anew.
            let _ = socket.set_silence(silence);
        }
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

    fn is_refused(&self) -> bool {
        self.shared.queue.lock().refused
    }

    fn probe(&self) {
        let mut queue = self.shared.queue.lock();
        if queue.connected {
            (queue.probed, queue.called) = (true, true);
            self.shared.wake.notify_one();
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
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
    /// The thread of the way. It holds the store only while it is connected: while it waits for a member that
    /// does not answer it must not keep the store from being closed.
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
            (queue.called, queue.probed) = (false, false);
            queue.socket = None;
            queue.trouble = ended.err();
            drop(queue);
            // What was being sent has a reader of records, which would keep the store.
            *self.sending.lock() = Sending::default();
            let mut queue = self.queue.lock();
            if queue.stop {
                return;
            }
            let refused = |e: &Error| {
                let codes = [
                    Code::AuthenticationFailed,
                    Code::IncompatibleServerVersion,
                    Code::NodeNotFound,
                ];
                codes.contains(&e.code())
            };
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
        let dialling = to.caller.dial(&to.host, &to.dialled, self.silence());
        let mut c = dialling.map_err(|e| {
            // A Unix socket whose file is gone has no listener either.
            let gone = to.dialled.contains('/') && e.kind() == ErrorKind::NotFound;
            self.queue.lock().refused = gone || e.kind() == ErrorKind::ConnectionRefused;
            unreachable(&to.dialled, &e)
        })?;
        self.queue.lock().refused = false;
        c.stream().set_silence(self.silence())?;
        c.set_timeout(Some(to.patience))?;
        to.caller.prove(&mut c, &to.host)?;
        let greeting = to.greeting.lock().clone();
        c.command("admin", &greeting)?;
        let socket = c.stream().try_clone()?;
        Ok(socket)
    }

    fn silence(&self) -> Duration {
        Duration::from_millis(self.silence.load(Relaxed))
    }

    /// What is given from here on goes into this socket.
    fn open(&self, socket: &Stream) -> Result<()> {
        let mut queue = self.queue.lock();
        // It may have changed meanwhile.
        socket.set_silence(self.silence())?;
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
            let (messages, report, probed) = {
                let mut queue = self.queue.lock();
                queue.called = false;
                let probed = std::mem::take(&mut queue.probed);
                (
                    std::mem::take(&mut queue.messages),
                    queue.report.take(),
                    probed,
                )
            };
            // The member never sends anything on this connection, so only its end can be read here. A
            // proxy in between may take what is sent after that end, so it is looked for with each report.
            if (report.is_some() || probed) && socket.has_ended() {
                return Err(Error::new(
                    Code::HostUnreachable,
                    "the member has closed the connection",
                ));
            }
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
        // If the connection has ended, the way's own thread finds that out.
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

/// Puts a message after those that wait, into the last of them if it only goes on with its records.
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

/// Whether a record is at least `delay` seconds old.
fn is_due(store: &Store, record: &Record<'_>, delay: u32) -> bool {
    delay == 0 || store.age(record) >= Duration::from_secs(u64::from(delay))
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

/// Reads the log's records in the order in which they are sent, mostly one after the other.
#[derive(Default)]
pub struct Records {
    /// A reader and the place of what it gives next.
    reader: Option<(LogRecords, u64)>,
    gathered: Vec<u8>,
}

impl Records {
    /// Appends a message with its records to `out`; returns what does not fit, as another message. If the
    /// log no longer has the records nothing is sent: the consensus tells the member that it is too far
    /// behind. Records that are younger than `delay` are left out.
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
                Some(record) if record.index == index && !is_due(store, &record, delay) => {
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
