//! The process of the null router: it passes messages on between its clients and one server, and
//! reads nothing of them but their heads. What it costs is what the kernel and the protocol cost at
//! a router, so what a router costs more is work of its own.
//!
//! It is as cheap as such a process can be made with ordinary sockets: the clients of a worker share
//! one connection to the server, which may be over a Unix socket, and all that has come for a socket goes out in one write.

use muniment_load::fail::{Context, Result};
use muniment_wire::{Header, Stream};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, available_parallelism};

/// The bytes that one read takes at most.
const READ: usize = 64 << 10;
/// The most events that are told at once.
const EVENTS: usize = 256;
/// The number of the server's connection among a worker's sockets.
const SERVER: u64 = 0;

/// Serves until it is killed; once it listens, the port is written to `port_file`. `lost` is called when the server has
/// ended a connection.
pub(crate) fn serve(port_file: &Path, server: &str, lost: fn()) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").context("listening")?;
    let port = listener.local_addr().context("listening")?.port();
    let mut workers = Vec::new();
    for _ in 0..available_parallelism().map_or(1, usize::from) {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(io::Error::from);
        let epoll = Arc::new(epoll.context("making an epoll")?);
        let (give, take) = channel();
        let upstream = Stream::connect(server, None).context("connecting to the server")?;
        let mut worker = Worker::new(Arc::clone(&epoll), take, upstream).context("a worker")?;
        thread::spawn(move || {
            let _ = worker.run();
            lost();
        });
        workers.push((epoll, give));
    }
    let part = port_file.with_extension("part");
    std::fs::write(&part, port.to_string()).context("writing the port file")?;
    std::fs::rename(&part, port_file).context("writing the port file")?;
    for number in 1_u64.. {
        let (client, _) = listener.accept().context("accepting")?;
        let Some((epoll, give)) = workers.get(number as usize % workers.len().max(1)) else {
            continue;
        };
        let Ok((client, watched)) =
            Stream::from_tcp(client).and_then(|client| Ok((client.try_clone()?, client)))
        else {
            continue;
        };
        if give.send((number, client)).is_ok() {
            let _ = watch(epoll, &watched, number);
        }
    }
    Ok(())
}

fn watch(epoll: &OwnedFd, socket: &Stream, number: u64) -> io::Result<()> {
    rustix::io::ioctl_fionbio(socket, true)?;
    let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    Ok(epoll::add(
        epoll,
        socket,
        EventData::new_u64(number),
        flags,
    )?)
}

/// A socket, with what has come and what is to go.
struct Socket {
    stream: Stream,
    came: Vec<u8>,
    due: Vec<u8>,
}

impl Socket {
    fn new(stream: Stream) -> Socket {
        Socket {
            stream,
            came: Vec::new(),
            due: Vec::new(),
        }
    }

    /// Reads all that has come. Returns false at the end.
    fn read(&mut self, room: &mut [u8]) -> bool {
        loop {
            match self.stream.read(room) {
                Ok(0) => return false,
                Ok(n) => {
                    self.came
                        .extend_from_slice(room.get(..n).unwrap_or_default());
                    if n < room.len() {
                        return true;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Writes all that is to go.
    fn flush(&mut self) -> io::Result<()> {
        let mut rest = self.due.as_slice();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(n) => rest = rest.get(n..).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let room = PollFd::new(&self.stream, PollFlags::OUT);
                    poll(&mut [room], None)?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.due.clear();
        Ok(())
    }
}

/// Takes the whole messages that `came` begins with, with their heads.
fn each_message(came: &mut Vec<u8>, mut show: impl FnMut(Header, &mut [u8])) -> Option<()> {
    let mut at = 0;
    while let Some(head) = came.get(at..).filter(|rest| rest.len() >= Header::LEN) {
        let header = Header::parse(head)?;
        let len = header.checked_len().ok()?;
        let Some(message) = came.get_mut(at..at + len) else {
            break;
        };
        show(header, message);
        at += len;
    }
    came.drain(..at);
    Some(())
}

/// Some of the clients, and their connection to the server.
struct Worker {
    epoll: Arc<OwnedFd>,
    /// The clients that are new, with their numbers.
    incoming: Receiver<(u64, Stream)>,
    server: Socket,
    clients: HashMap<u64, Socket>,
    /// The client of each message that waits for its reply, and the message's number at that client.
    asked: HashMap<i32, (u64, i32)>,
    last: i32,
}

impl Worker {
    fn new(
        epoll: Arc<OwnedFd>,
        incoming: Receiver<(u64, Stream)>,
        upstream: Stream,
    ) -> io::Result<Worker> {
        watch(&epoll, &upstream, SERVER)?;
        Ok(Worker {
            epoll,
            incoming,
            server: Socket::new(upstream),
            clients: HashMap::new(),
            asked: HashMap::new(),
            last: 0,
        })
    }

    /// Passes messages on until the server ends the connection.
    fn run(&mut self) -> io::Result<()> {
        let mut room = vec![0; READ];
        let mut answered = Vec::new();
        loop {
            let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
            let told = match epoll::wait(&*self.epoll, events.as_mut_slice(), None) {
                Ok((told, _)) => told.iter().map(|e| e.data.u64()).collect::<Vec<_>>(),
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            self.clients
                .extend(self.incoming.try_iter().map(|(n, s)| (n, Socket::new(s))));
            for number in told {
                match number {
                    SERVER => self.server_answers(&mut room, &mut answered)?,
                    client => self.client_sends(client, &mut room),
                }
            }
            self.server.flush()?;
            for number in answered.drain(..) {
                if let Some(client) = self.clients.get_mut(&number)
                    && client.flush().is_err()
                {
                    self.clients.remove(&number);
                }
            }
        }
    }

    fn client_sends(&mut self, number: u64, room: &mut [u8]) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        let goes_on = client.read(room);
        let (asked, last, due) = (&mut self.asked, &mut self.last, &mut self.server.due);
        let sound = each_message(&mut client.came, |header, message| {
            *last = last.wrapping_add(1);
            asked.insert(*last, (number, header.request_id));
            put(message, 4, *last);
            due.extend_from_slice(message);
        });
        if !goes_on || sound.is_none() {
            self.clients.remove(&number);
        }
    }

    fn server_answers(&mut self, room: &mut [u8], answered: &mut Vec<u64>) -> io::Result<()> {
        let goes_on = self.server.read(room);
        let (asked, clients) = (&mut self.asked, &mut self.clients);
        let sound = each_message(&mut self.server.came, |header, message| {
            let Some((number, its)) = asked.remove(&header.response_to) else {
                return;
            };
            if let Some(client) = clients.get_mut(&number) {
                put(message, 8, its);
                client.due.extend_from_slice(message);
                answered.push(number);
            }
        });
        match goes_on && sound.is_some() {
            true => Ok(()),
            false => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// Writes a number into a message's head.
fn put(message: &mut [u8], at: usize, number: i32) {
    if let Some(field) = message.get_mut(at..at + 4) {
        field.copy_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use muniment_value::{DocBuf, doc};
    use muniment_wire::{Connection, Form, NullServer};
    use std::time::{Duration, Instant};

    #[test]
    fn each_client_gets_the_replies_to_its_own_messages() {
        let nothing = DocBuf::new();
        let server = NullServer::start_as(Form::Threads, "127.0.0.1:0", nothing.as_doc()).unwrap();
        let address = format!("127.0.0.1:{}", server.port());
        let dir = crate::process::TempDir::new(&std::env::temp_dir()).unwrap();
        let file = dir.path().join("port");
        let its = file.clone();
        thread::spawn(move || serve(&its, &address, || {}));
        let begun = Instant::now();
        let port = loop {
            if let Ok(port) = std::fs::read_to_string(&file) {
                break port;
            }
            assert!(begun.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(2));
        };
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let address = format!("127.0.0.1:{port}");
                thread::spawn(move || {
                    let mut c = Connection::connect(&address).unwrap();
                    // A reply to another message is an error of the connection.
                    for _ in 0..200 {
                        c.command("admin", &doc! { "ping": 1 }).unwrap();
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|c| c.join().unwrap());
    }

    #[test]
    fn a_part_of_a_message_waits_for_the_rest() {
        let mut whole = Vec::new();
        for n in [16_i32, 20] {
            let at = whole.len();
            whole.resize(at + n as usize, 0);
            put(&mut whole[at..], 0, n);
        }
        let mut came = whole[..30].to_vec();
        let mut seen = Vec::new();
        each_message(&mut came, |_, m| seen.push(m.len())).unwrap();
        assert_eq!((seen.clone(), came.len()), (vec![16], 14));
        came.extend_from_slice(&whole[30..]);
        each_message(&mut came, |_, m| seen.push(m.len())).unwrap();
        assert_eq!((seen, came.len()), (vec![16, 20], 0));
        let mut wrong = vec![0xff; 16];
        assert!(each_message(&mut wrong, |_, _| {}).is_none());
    }
}
