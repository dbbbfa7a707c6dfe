//! The copy as it arrives. When nothing more comes by a connection another one is opened, and the source is
//! asked for what comes after the last row that arrived. The copy is given up when the source answers that
//! it no longer keeps it, or with any other error that does not pass by itself; when nothing has come for
//! as long as the source keeps it ([`KEPT`]); and sooner when another member leads, which is a source, too,
//! or when nothing is heard of a source that is not the leader.

use super::super::frame::{Assembler, Frame, OP_REPLICATION, taken_export};
use super::super::greeting::{self, Greeting};
use super::super::node::Node;
use super::copies::KEPT;
use super::source::CAN_WAIT;
use super::{Copied, Wanted};
use crate::lifecycle::Stopping;
use crate::set::ReplicaSet;
use bytes::Bytes;
use muniment_consensus::{InForce, MemberId};
use muniment_op::sleep_until;
use muniment_storage::{Chunk, Position, Timestamp};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc, number};
use muniment_wire::{Connection, Header, OP_MSG, OpMsg};
use std::time::{Duration, Instant};

/// A source may say nothing for so long, at the beginning, when what is committed has to become visible, and
/// later. Each time that nothing came the time is doubled, as the source may walk over many deleted rows.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time is doubled so often at most.
const DOUBLES: u32 = 3;
/// So many attempts in a row may bring no row.
const MOST_TRIES: u32 = 1000;
/// The source may take so long to hear that it no longer needs to keep the copy.
const LEAVE: Duration = Duration::from_secs(2);
/// A source that was not reached within this time counts as one that cannot be reached.
const REACHED: Duration = Duration::from_secs(5);
/// How long after that it is tried again.
const PAUSE: Duration = Duration::from_millis(250);
/// When nothing has come for so long another source is taken, if there is one.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// A copy on its way.
pub struct Download<'s> {
    set: &'s ReplicaSet,
    node: &'s Node,
    from: MemberId,
    host: String,
    /// `_replSetExport` with the fields that every such command of this copy has.
    command: DocBuf,
    connection: Connection,
    copy: i64,
    copied: Copied,
    /// The last row that came.
    last: Option<(u32, Bytes)>,
    /// When the last chunk came, and how often this member has tried to go on since.
    came: Instant,
    tries: u32,
    whole: bool,
}

impl<'s> Download<'s> {
    /// Begins a copy.
    ///
    /// # Errors
    /// What the source answers; if it cannot be reached.
    pub fn begin(
        set: &'s ReplicaSet,
        node: &'s Node,
        from: MemberId,
        host: &str,
        wanted: &Wanted,
    ) -> Result<Download<'s>> {
        let command = command(set, node, from)?;
        let mut first = command.clone();
        first.append("atLeast", wanted.at_least as i64);
        let empty = node.members().in_force().voters.is_empty() && wanted.led.is_none();
        first.append_some("empty", empty.then_some(true));
        let (connection, head) = open(set, node, host, &first, PATIENCE)?;
        let copied = parse(head.as_doc(), from).ok_or_else(malformed)?;
        node.progress.lock().plan(head.as_doc(), copied.position.at);
        Ok(Download {
            set,
            node,
            from,
            host: host.to_string(),
            command,
            connection,
            copy: copy_of(head.as_doc()).ok_or_else(malformed)?,
            copied,
            last: None,
            came: Instant::now(),
            tries: 0,
            whole: false,
        })
    }

    /// The member whose data are copied.
    pub fn from(&self) -> MemberId {
        self.from
    }

    /// The state that is copied.
    pub fn copied(&self) -> &Copied {
        &self.copied
    }

    /// The next chunk; `None` after the last one.
    ///
    /// # Errors
    /// What the source answers; if it has been gone for too long; 91 if the server ends.
    pub fn next(&mut self) -> Result<Option<Chunk>> {
        if self.whole {
            return Ok(None);
        }
        loop {
            self.check()?;
            match next_chunk(&mut self.connection) {
                Ok(chunk) => {
                    self.whole = chunk.last;
                    // A chunk without rows only says that the source is there.
                    self.came = Instant::now();
                    if let Some((key, _)) = chunk.rows.last() {
                        self.last = Some((chunk.tree, key.clone()));
                        self.tries = 0;
                    }
                    self.node.progress.lock().came(&chunk);
                    return Ok(Some(chunk));
                }
                Err(e) if is_of_network(&e) => self.go_on(e)?,
                Err(e) => return Err(e),
            }
        }
    }

    /// Tells the source that it need not keep the copy any more, whether it succeeded or not.
    pub fn end(self) {
        if self.check().is_err() {
            return;
        }
        let mut command = self.command.clone();
        command.append("end", self.copy);
        // A source that does not hear this keeps the copy for a while. It is told by another connection, as it
        // reads nothing from the one by which it sends.
        let told = called(self.set, &self.host, LEAVE);
        let _ = told.and_then(|mut c| c.command("admin", &command));
    }

    /// Since when nothing was heard of the source.
    fn silent_for(&self) -> Duration {
        let heard = self.node.heard.lock();
        let heard = heard.of(self.from);
        heard.map_or(Duration::MAX, |h| h.at.elapsed())
    }

    fn check(&self) -> Result<()> {
        match self.set.home.lifecycle.is_stopping() || self.node.inbox.is_stopped() {
            true => Err(super::super::ended()),
            false => Ok(()),
        }
    }

    /// Goes on by another connection.
    fn go_on(&mut self, broken: Error) -> Result<()> {
        let told = doc! { "from": self.host.as_str(), "error": broken.to_string() };
        let lost = "The connection of the initial sync broke; it will be opened again";
        self.set
            .home
            .log
            .info("INITSYNC", 21_201, "initialsync", lost, &told);
        self.node.progress.lock().unreachable(true);
        let opened = self.opened_again(broken);
        self.node.progress.lock().unreachable(false);
        self.connection = opened?;
        let told = doc! {
            "from": self.host.as_str(),
            "unreachableMillis": self.came.elapsed().as_millis() as i64,
        };
        let again = "Initial sync goes on where it was";
        self.set
            .home
            .log
            .info("INITSYNC", 21_202, "initialsync", again, &told);
        Ok(())
    }

    fn opened_again(&mut self, mut why: Error) -> Result<Connection> {
        let mut go_on = doc! { "copy": self.copy };
        if let Some((tree, key)) = &self.last {
            go_on.append("tree", i64::from(*tree));
            go_on.append(
                "key",
                Value::Binary {
                    subtype: 0,
                    bytes: key,
                },
            );
        }
        let mut command = self.command.clone();
        command.append("goOn", go_on);
        loop {
            self.check()?;
            // The time counts from the last chunk: a connection that opens and brings no chunk does not help.
            let gone = self.came.elapsed();
            let elsewhere = match self.copied.led {
                // A source that does not lead, and of which nothing is heard, is taken to be gone.
                (0, _) => self.silent_for() > ELSEWHERE,
                _ => {
                    let leads = self.node.leads_meanwhile();
                    leads.is_some_and(|leads| leads != self.from)
                }
            };
            let most = if elsewhere { ELSEWHERE } else { KEPT };
            if self.tries > MOST_TRIES || self.tries > 0 && gone > most {
                return Err(why.context("the source has gone: "));
            }
            if self.tries > 0 {
                sleep_until(Instant::now() + PAUSE, &Stopping(&self.set.home.lifecycle))?;
            }
            let patience = PATIENCE * (1 << self.tries.min(DOUBLES));
            self.tries += 1;
            self.node.progress.lock().tried();
            why = match open(self.set, self.node, &self.host, &command, patience) {
                Ok((connection, head)) => {
                    let same = parse(head.as_doc(), self.from).as_ref() == Some(&self.copied)
                        && copy_of(head.as_doc()) == Some(self.copy);
                    return same.then_some(connection).ok_or_else(malformed);
                }
                Err(e) if is_of_network(&e) || is_of_the_moment(&e) => e,
                Err(e) => return Err(e),
            };
        }
    }
}

/// A `_replSetExport` to this member, with the fields that each has.
fn command(set: &ReplicaSet, node: &Node, to: MemberId) -> Result<DocBuf> {
    let (_, config) = set.initialized()?;
    let in_force = node.newest();
    let greeting = Greeting {
        set: config.id,
        from: node.id,
        to,
        host: greeting::own_address(set.home.address.port, &in_force.config, node.id),
        in_force: InForce::clone(&in_force),
    };
    let mut greeting = greeting.to_doc();
    greeting.append(CAN_WAIT, true);
    Ok(doc! { "_replSetExport": set.name(), "greeting": greeting })
}

/// Asks the leader to let this member pass, which has nothing. Returns the term in which it leads, the place
/// up to which it then knows everything to be committed, and the place that this member has to wait for.
///
/// # Errors
/// What the leader answers; if it cannot be reached.
pub fn pass(
    set: &ReplicaSet,
    node: &Node,
    leader: MemberId,
    host: &str,
) -> Result<(u64, u64, u64)> {
    let mut c = called(set, host, REACHED)?;
    c.set_timeout(Some(PATIENCE))?;
    node.syncs_from(c.stream().try_clone()?);
    let mut command = command(set, node, leader)?;
    command.append("pass", true);
    let reply = c.command("admin", &command)?;
    let place = |name: &str| {
        let n = reply.as_doc().get(name).and_then(number::to_i64_exact);
        n.and_then(|n| u64::try_from(n).ok()).ok_or_else(malformed)
    };
    // A leader of an older version names no place to wait for.
    let waits = place("waits").unwrap_or(0);
    Ok((place("led")?, place("committed")?, waits))
}

/// Connects, asks for the copy, and takes what the source sends before the chunks.
fn open(
    set: &ReplicaSet,
    node: &Node,
    host: &str,
    command: &DocBuf,
    patience: Duration,
) -> Result<(Connection, DocBuf)> {
    let mut c = called(set, host, REACHED)?;
    c.set_timeout(Some(patience))?;
    node.syncs_from(c.stream().try_clone()?);
    c.send_command("admin", command, 0, &[])?;
    let head = c.recv_bytes()?;
    if Header::parse(head).map(|h| h.op_code) == Some(OP_MSG) {
        // An ordinary reply instead of a frame is a refusal.
        muniment_wire::check_ok(OpMsg::parse(head)?.body)?;
    }
    let Some(Frame::Report(head)) = Assembler::default().take(head)? else {
        return Err(malformed());
    };
    Ok((c, head))
}

fn called(set: &ReplicaSet, host: &str, step: Duration) -> Result<Connection> {
    set.caller().call(host, step)
}

fn next_chunk(c: &mut Connection) -> Result<Chunk> {
    let message = c.recv_bytes()?;
    match Header::parse(message).map(|h| h.op_code) {
        Some(OP_REPLICATION) => {
            // Damage on the way counts as a failure of the network, so that the piece is fetched again.
            let damaged = |e: Error| Error::new(Code::SocketException, e.message().to_string());
            let bytes = Bytes::copy_from_slice(taken_export(message).map_err(damaged)?);
            Chunk::from_bytes(&bytes).ok_or_else(malformed)
        }
        _ => {
            muniment_wire::check_ok(OpMsg::parse(message)?.body)?;
            // The copy ended before the catalog came.
            Err(malformed())
        }
    }
}

fn malformed() -> Error {
    Error::new(Code::ProtocolError, "the copy is malformed")
}

/// Whether the source has not answered, so that it can be asked again.
fn is_of_network(e: &Error) -> bool {
    let codes = [
        Code::HostUnreachable,
        Code::NetworkTimeout,
        Code::SocketException,
    ];
    codes.contains(&e.code())
}

/// Whether the source has refused for a reason that soon passes: a former connection still has the copy, as
/// its thread walks over many deleted rows, or the source has as many connections as it takes.
fn is_of_the_moment(e: &Error) -> bool {
    [Code::LockBusy, Code::ResourceExhausted].contains(&e.code())
}

fn copy_of(d: Doc<'_>) -> Option<i64> {
    d.get("copy").and_then(number::to_i64_exact)
}

fn parse(d: Doc<'_>, from: MemberId) -> Option<Copied> {
    let place = |name: &str| u64::try_from(number::to_i64_exact(d.get(name)?)?).ok();
    let Some(Value::Binary { bytes, .. }) = d.get("inForce") else {
        return None;
    };
    let at = d.get("at").map_or(Timestamp::ZERO, super::super::times_of);
    let copied = Copied {
        position: Position {
            index: place("index")?,
            term: place("term")?,
            at,
        },
        in_force: InForce::of_bytes(bytes)?,
        led: match place("led")? {
            0 => (0, 0),
            term => (from, term),
        },
        waits: place("waits").unwrap_or(0),
    };
    // A configuration that is ahead of its data is refused here, since no start would take such a state.
    (copied.in_force.index <= copied.position.index).then_some(copied)
}
