//! The copy as it arrives. A connection that breaks is opened anew, and the source asked for what is
//! behind the last row that came; only when it does not keep the copy any more, or another member
//! leads, the copy is given up.

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

/// A source may take so long to begin: what is committed has to be visible.
const PATIENCE: Duration = Duration::from_secs(60);
/// One that says nothing for so long in the middle has gone.
const SILENCE: Duration = Duration::from_secs(15);
/// One that cannot be reached in this time cannot be reached.
const REACHED: Duration = Duration::from_secs(5);
/// Then it is tried again.
const PAUSE: Duration = Duration::from_millis(250);
/// After so long another source will do, if there is one.
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
        let (connection, head) = open(server, node, host, &command)?;
        let copied = parse(head.as_doc()).ok_or_else(malformed)?;
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
                    self.whole = chunk.is_last();
                    if let Some((key, _)) = chunk.rows.last() {
                        self.last = Some((chunk.tree, key.clone()));
                    }
                    self.node.progress.lock().came(&chunk);
                    return Ok(Some(chunk));
                }
                Err(e) if is_of_network(&e) => self.go_on(&e)?,
                Err(e) => return Err(e),
            }
        }
    }

    /// The source needs to keep nothing any more.
    pub fn end(mut self) {
        let mut command = self.command.clone();
        command.append("end", self.copy);
        let mut tell = || {
            self.connection.send_command("admin", &command, 0, &[])?;
            // The answer to the export itself comes before that to this.
            (0..2).try_for_each(|_| self.connection.recv_bytes().map(|_| ()))
        };
        // If it does not hear it, it keeps it for a while.
        let _ = tell();
    }

    fn check(&self) -> Result<()> {
        match self.server.is_stopping() || self.node.inbox.is_stopped() {
            true => Err(super::super::ended()),
            false => Ok(()),
        }
    }

    /// Goes on by another connection.
    fn go_on(&mut self, broken: &Error) -> Result<()> {
        let since = Instant::now();
        let told = doc! { "from": self.host.as_str(), "error": broken.to_string() };
        let lost = "The connection of the initial sync broke; it will be opened again";
        self.server
            .log
            .info("INITSYNC", 21_201, "initialsync", lost, &told);
        self.node.progress.lock().unreachable(true);
        let opened = self.opened_again(since);
        self.node.progress.lock().unreachable(false);
        self.connection = opened?;
        let told = doc! {
            "from": self.host.as_str(),
            "unreachableMillis": since.elapsed().as_millis() as i64,
        };
        let again = "Initial sync goes on where it was";
        self.server
            .log
            .info("INITSYNC", 21_202, "initialsync", again, &told);
        Ok(())
    }

    fn opened_again(&self, since: Instant) -> Result<Connection> {
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
            self.node.progress.lock().tried();
            let e = match open(self.server, self.node, &self.host, &command) {
                Ok((connection, head)) => {
                    let same = parse(head.as_doc()).as_ref() == Some(&self.copied)
                        && copy_of(head.as_doc()) == Some(self.copy);
                    return same.then_some(connection).ok_or_else(malformed);
                }
                Err(e) if is_of_network(&e) || e.code() == Code::LockBusy => e,
                Err(e) => return Err(e),
            };
            let gone = since.elapsed();
            let leads = self.node.leads_meanwhile();
            let elsewhere = leads.is_some_and(|leads| leads != self.from);
            if gone > KEPT || (gone > ELSEWHERE && elsewhere) {
                return Err(e.context("the source has gone: "));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Connects, asks, and takes what goes before the chunks.
fn open(
    server: &Arc<ServerState>,
    node: &Node,
    host: &str,
    command: &DocBuf,
) -> Result<(Connection, DocBuf)> {
    let dialled = server.parameters.routes.read().to(host).to_string();
    let mut c = Caller::of(server).call(host, &dialled, REACHED)?;
    c.set_timeout(Some(PATIENCE))?;
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
    c.set_timeout(Some(SILENCE))?;
    Ok((c, head))
}

fn next_chunk(c: &mut Connection) -> Result<Chunk> {
    let message = c.recv_bytes()?;
    match Header::parse(message).map(|h| h.op_code) {
        Some(OP_REPLICATION) => {
            let bytes = Bytes::copy_from_slice(taken_export(message)?);
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

fn copy_of(d: Doc<'_>) -> Option<i64> {
    d.get("copy").and_then(number::to_i64_exact)
}

fn parse(d: Doc<'_>) -> Option<Copied> {
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
    };
    // No start would take a state with a configuration that is ahead of its data.
    (copied.in_force.index <= copied.position.index).then_some(copied)
}
