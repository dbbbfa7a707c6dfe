//! The copy as it arrives. When nothing comes by a connection any more it is opened anew, and the source
//! asked for what is behind the last row that came. The copy is given up when the source answers that it
//! has it no more, or anything else that is no matter of the moment; when nothing has come for as long
//! as it keeps it ([`KEPT`]); and sooner when another member leads, which is a source, too.

use super::super::frame::{Assembler, Frame, OP_REPLICATION, taken_export};
use super::super::node::Node;
use super::super::prove::Caller;
use super::Copied;
use super::source::KEPT;
use crate::state::ServerState;
use bytes::Bytes;
use muniment_repl::{InForce, MemberId};
use muniment_storage::{Chunk, Position, Timestamp};
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc, number};
use muniment_wire::{Connection, Header, OP_MSG, OpMsg};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A source may say nothing for so long: at the beginning, as what is committed has to be visible, and in
/// the middle. Each time that nothing came it gets twice the time, as it may walk over much that is deleted.
const PATIENCE: Duration = Duration::from_secs(60);
/// So often that is doubled.
const DOUBLES: u32 = 3;
/// So often it is tried again without a row that comes.
const MOST_TRIES: u32 = 1000;
/// So long the source may take to hear that it needs to keep nothing.
const LEAVE: Duration = Duration::from_secs(2);
/// One that cannot be reached in this time cannot be reached.
const REACHED: Duration = Duration::from_secs(5);
/// Then it is tried again.
const PAUSE: Duration = Duration::from_millis(250);
/// When nothing has come for so long another source will do, if there is one.
const ELSEWHERE: Duration = Duration::from_secs(10);

/// A copy on its way.
pub struct Download<'s> {
    server: &'s Arc<ServerState>,
    node: &'s Node,
    from: MemberId,
    host: String,
    /// `_replSetExport` and what every one of them says.
    command: DocBuf,
    connection: Connection,
    copy: i64,
    copied: Copied,
    /// The last row that came.
    last: Option<(u32, Bytes)>,
    /// When the last chunk came, and how often it was tried again since.
    came: Instant,
    tries: u32,
    whole: bool,
}

impl<'s> Download<'s> {
    /// Begins one.
    ///
    /// # Errors
    /// What the source answers; it cannot be reached.
    pub fn begin(
        server: &'s Arc<ServerState>,
        node: &'s Node,
        from: MemberId,
        host: &str,
    ) -> Result<Download<'s>> {
        let set = server
            .replica_set
            .as_ref()
            .ok_or_else(super::super::ended)?;
        let (_, config) = set.initialized()?;
        let mut command = doc! { "_replSetExport": set.name(), "from": node.id as i64 };
        command.append_some("setId", config.id.map(Value::ObjectId));
        let mut first = command.clone();
        let empty = node.members().in_force().voters.is_empty();
        first.append_some("empty", empty.then_some(true));
        let (connection, head) = open(server, node, host, &first, PATIENCE)?;
        let copied = parse(head.as_doc(), from).ok_or_else(malformed)?;
        node.progress.lock().plan(head.as_doc(), copied.position.at);
        Ok(Download {
            server,
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

    /// What it is a copy of.
    pub fn copied(&self) -> &Copied {
        &self.copied
    }

    /// The next chunk; `None` behind the last one.
    ///
    /// # Errors
    /// What the source answers; it has gone for too long; 91 the server ends.
    pub fn next(&mut self) -> Result<Option<Chunk>> {
        if self.whole {
            return Ok(None);
        }
        loop {
            self.check()?;
            match next_chunk(&mut self.connection) {
                Ok(chunk) => {
                    self.whole = chunk.last;
                    // Without a row it only says that the source is there.
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

    /// The source needs to keep nothing any more, whatever became of the copy.
    pub fn end(self) {
        if self.check().is_err() {
            return;
        }
        let mut command = self.command.clone();
        command.append("end", self.copy);
        // If it does not hear it, it keeps it for a while. It reads nothing from a connection by which it
        // sends.
        let told = called(self.server, &self.host, LEAVE);
        let _ = told.and_then(|mut c| c.command("admin", &command));
    }

    fn check(&self) -> Result<()> {
        match self.server.is_stopping() || self.node.inbox.is_stopped() {
            true => Err(super::super::ended()),
            false => Ok(()),
        }
    }

    /// Goes on by another connection.
    fn go_on(&mut self, broken: Error) -> Result<()> {
        let told = doc! { "from": self.host.as_str(), "error": broken.to_string() };
        let lost = "The connection of the initial sync broke; it will be opened again";
        self.server
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
        self.server
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
            // Since the last chunk: a way on which nothing but beginnings arrive is none.
            let gone = self.came.elapsed();
            let leads = self.node.leads_meanwhile();
            let elsewhere = leads.is_some_and(|leads| leads != self.from);
            let most = if elsewhere { ELSEWHERE } else { KEPT };
            if self.tries > MOST_TRIES || self.tries > 0 && gone > most {
                return Err(why.context("the source has gone: "));
            }
            if self.tries > 0 {
                std::thread::sleep(PAUSE);
            }
            let patience = PATIENCE * (1 << self.tries.min(DOUBLES));
            self.tries += 1;
            self.node.progress.lock().tried();
            why = match open(self.server, self.node, &self.host, &command, patience) {
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

/// Connects, asks, and takes what goes before the chunks.
fn open(
    server: &Arc<ServerState>,
    node: &Node,
    host: &str,
    command: &DocBuf,
    patience: Duration,
) -> Result<(Connection, DocBuf)> {
    let mut c = called(server, host, REACHED)?;
    c.set_timeout(Some(patience))?;
    node.syncs_from(c.stream().try_clone()?);
    c.send_command("admin", command, 0, &[])?;
    let head = c.recv_bytes()?;
    if Header::parse(head).map(|h| h.op_code) == Some(OP_MSG) {
        // It was refused.
        muniment_wire::check_ok(OpMsg::parse(head)?.body)?;
    }
    let Some(Frame::Report(head)) = Assembler::default().take(head)? else {
        return Err(malformed());
    };
    Ok((c, head))
}

fn called(server: &ServerState, host: &str, step: Duration) -> Result<Connection> {
    let dialled = server.parameters.routes.read().to(host).to_string();
    Caller::of(server).call(host, &dialled, step)
}

fn next_chunk(c: &mut Connection) -> Result<Chunk> {
    let message = c.recv_bytes()?;
    match Header::parse(message).map(|h| h.op_code) {
        Some(OP_REPLICATION) => {
            // What was damaged on the way is fetched again.
            let damaged = |e: Error| Error::new(Code::SocketException, e.message().to_string());
            let bytes = Bytes::copy_from_slice(taken_export(message).map_err(damaged)?);
            Chunk::from_bytes(&bytes).ok_or_else(malformed)
        }
        _ => {
            muniment_wire::check_ok(OpMsg::parse(message)?.body)?;
            // It ended before the catalog came.
            Err(malformed())
        }
    }
}

fn malformed() -> Error {
    Error::new(Code::ProtocolError, "the copy is malformed")
}

/// Nothing was answered: it can be asked again.
fn is_of_network(e: &Error) -> bool {
    let codes = [
        Code::HostUnreachable,
        Code::NetworkTimeout,
        Code::SocketException,
    ];
    codes.contains(&e.code())
}

/// The source is there, and may answer otherwise soon: a former connection still has the copy, as its
/// thread walks over much that is deleted, or there are more connections than it takes.
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
    };
    // No start would take a state with a configuration that is ahead of its data.
    (copied.in_force.index <= copied.position.index).then_some(copied)
}
