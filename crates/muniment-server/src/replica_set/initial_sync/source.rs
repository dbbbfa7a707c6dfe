//! The source of an initial sync: sends what one view of its storage sees.
//!
//! When the connection breaks the view is kept for a while ([`KEPT`]), so that who copies asks for the
//! rest by a new connection; also when all was sent, as nobody knows what of it arrived, until the
//! copy is said to be whole, or of no use. Invariants: no view outlives the server's storage; of a
//! member one is kept at most; behind a part of a frame nothing else goes by its connection.

use super::super::frame::{put_export, put_report};
use super::super::prove::random;
use super::super::{ReplicaSet, Role, timestamp};
use super::barrier::{self, Barriers};
use crate::context::CommandContext;
use muniment_query::Interrupt;
use muniment_repl::{InForce, MemberId};
use muniment_storage::{Export, Exported};
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc, number};
use muniment_wire::Stream;
use parking_lot::{Condvar, Mutex};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long a view is kept that nobody reads: what is overwritten meanwhile takes room.
pub const KEPT: Duration = Duration::from_secs(300);
/// When who copies has taken nothing for about so long the connection counts as broken.
const STUCK: Duration = Duration::from_secs(60);
/// So long the thread of a broken connection may take to notice.
const NOTICED: Duration = Duration::from_secs(5);
/// How often who waits for that looks.
const ASKS: Duration = Duration::from_millis(100);
/// A view that is kept is between two connections at first: a full disk leaves it this time.
const GRACE: Duration = Duration::from_secs(5);
/// So long it may take until what is committed is in force.
const SETTLES: Duration = Duration::from_secs(1);
/// How often who waits for that looks.
const LOOK: Duration = Duration::from_millis(2);
/// Collections that are named, of which progress is told one by one: the rest is in the totals only.
const NAMED: usize = 10_000;

/// A copy that a member makes of this one's data.
struct Copying {
    /// Drawn, so that nobody is given another one after a restart.
    id: i64,
    /// Who makes it.
    member: MemberId,
    /// The connection that it goes by.
    stream: Option<Stream>,
    /// What is sent, while no connection sends it.
    kept: Option<Box<Sent>>,
    since: Instant,
}

/// What is sent.
struct Sent {
    export: Export,
    in_force: InForce,
    /// The term in which this member led then; 0: it did not.
    led: u64,
}

/// The copies that members make of this one's data.
#[derive(Default)]
pub struct Copies {
    all: Mutex<All>,
    /// For members that have nothing.
    pub(super) barriers: Barriers,
    /// A connection has left what it sent.
    left: Condvar,
}

#[derive(Default)]
struct All {
    ended: bool,
    copies: Vec<Copying>,
}

impl Copies {
    /// A new one, in place of that which the member has made so far.
    fn begin<'c>(&'c self, member: MemberId, stream: Stream, sent: Sent) -> Result<Lent<'c>> {
        let id = i64::from_le_bytes(random()?);
        let mut all = self.all.lock();
        if all.ended {
            return Err(super::super::ended());
        }
        all.copies
            .iter()
            .filter(|c| c.member == member)
            .for_each(Copying::interrupt);
        all.copies.retain(|c| c.member != member);
        self.left.notify_all();
        all.copies.push(Copying {
            id,
            member,
            stream: Some(stream),
            kept: None,
            since: Instant::now(),
        });
        Ok(Lent {
            copies: self,
            id,
            sent: Some(Box::new(sent)),
        })
    }

    /// Goes on with one by another connection.
    fn go_on<'c>(&'c self, id: i64, stream: Stream, op: &dyn Interrupt) -> Result<Lent<'c>> {
        let end = Instant::now() + NOTICED;
        let mut all = self.all.lock();
        loop {
            op.check()?;
            let copying = all.copies.iter_mut().find(|c| c.id == id);
            let copying = copying.ok_or_else(|| {
                Error::new(
                    Code::CursorNotFound,
                    format!("the copy {id} is not kept any more"),
                )
            })?;
            if let Some(sent) = copying.kept.take() {
                copying.stream = Some(stream);
                return Ok(Lent {
                    copies: self,
                    id,
                    sent: Some(sent),
                });
            }
            // The former connection has not noticed yet.
            copying.interrupt();
            self.left.wait_for(&mut all, ASKS);
            if Instant::now() > end {
                let what = format!("the copy {id} still goes by another connection");
                return Err(Error::new(Code::LockBusy, what));
            }
        }
    }

    /// It is whole, or of no use.
    fn end(&self, id: i64) {
        self.all.lock().copies.retain(|c| c.id != id);
        self.left.notify_all();
    }

    /// Drops what has been kept for longer than `most` without being sent.
    fn drop_kept(&self, most: Duration) {
        let old = |c: &Copying| c.kept.is_some() && c.since.elapsed() >= most;
        let mut all = self.all.lock();
        if all.copies.iter().any(old) {
            all.copies.retain(|c| !old(c));
            self.left.notify_all();
        }
    }

    /// Drops what has been kept for too long.
    pub fn expire(&self) {
        self.drop_kept(KEPT);
    }

    /// The disk is full: what is kept keeps the room of what was dropped meanwhile.
    pub fn give_room(&self) {
        self.drop_kept(GRACE);
    }

    /// The server ends: nothing is kept or sent any more.
    pub fn close(&self) {
        let mut all = self.all.lock();
        all.ended = true;
        all.copies.iter().for_each(Copying::interrupt);
        all.copies.clear();
        self.left.notify_all();
    }
}

impl Copying {
    /// Ends the connection that it goes by, if it still does.
    fn interrupt(&self) {
        if let Some(stream) = &self.stream {
            // It may have ended by itself.
            let _ = stream.shutdown();
        }
    }
}

/// What a connection sends; kept when that ends, however it does.
struct Lent<'c> {
    copies: &'c Copies,
    id: i64,
    sent: Option<Box<Sent>>,
}

impl Lent<'_> {
    fn sent(&mut self) -> Result<&mut Sent> {
        self.sent.as_deref_mut().ok_or_else(super::super::ended)
    }

    /// Nobody is to go on with it.
    fn drop_it(&mut self) {
        self.sent = None;
        self.copies.end(self.id);
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(sent) = self.sent.take() else {
            return;
        };
        let mut all = self.copies.all.lock();
        // If it was ended meanwhile it goes here.
        if let Some(copying) = all.copies.iter_mut().find(|c| c.id == self.id) {
            copying.kept = Some(sent);
            copying.stream = None;
            copying.since = Instant::now();
            self.copies.left.notify_all();
        }
    }
}

/// Answers `_replSetExport`: says where the state is that of, then sends it. With `goOn` it sends what
/// is behind the row that it names, with `end` nothing, and keeps nothing any more.
///
/// # Errors
/// 43 for a copy that is not kept; 46 for one that another connection sends; 74 for who is no member; 93 for
/// another set; 10107 and 13436 in a state in which nobody is a source; the storage's and the socket's.
pub fn export(cx: &mut CommandContext<'_>, set: &ReplicaSet) -> Result<()> {
    let (member, config) = set.initialized()?;
    let body = cx.request.body;
    let asked = match body.get("setId") {
        Some(Value::ObjectId(id)) => Some(id),
        _ => None,
    };
    if config.id != asked {
        return Err(super::super::config::invalid(
            "the copy is asked for by another set",
        ));
    }
    if let Some(end) = body.get("end") {
        let id = number::to_i64_exact(end);
        let bad = || Error::new(Code::BadValue, "end has to be the number of a copy");
        set.copies.end(id.ok_or_else(bad)?);
        return Ok(());
    }
    let mut stream = cx.conn.stream.try_clone()?;
    stream.set_write_timeout(Some(STUCK))?;
    let mut lent = match body.get_doc("goOn") {
        Some(go_on) => {
            let (id, behind) = wanted(go_on)?;
            let mut lent = set.copies.go_on(id, stream.try_clone()?, &**cx.op)?;
            lent.sent()?.export.go_on_behind(behind)?;
            lent
        }
        None => {
            if !matches!(member.role, Role::Primary | Role::Secondary) {
                return Err(Error::new(
                    Code::NotPrimaryOrSecondary,
                    "node is not in primary or recovering state",
                ));
            }
            let (from, sent) = begin(cx, set)?;
            set.copies.begin(from, stream.try_clone()?, sent)?
        }
    };
    let id = lent.id;
    let mut out = Vec::new();
    put_report(&mut out, head(id, lent.sent()?, body).as_doc());
    loop {
        let next = match cx.op.check() {
            Ok(()) => lent.sent()?.export.next().transpose(),
            Err(e) => Err(e),
        };
        match next {
            Ok(Some(chunk)) => put_export(&mut out, &chunk.to_bytes()),
            Ok(None) => break,
            // Of the storage, or who ends it does not want it to go on.
            Err(e) => {
                lent.drop_it();
                return Err(e);
            }
        }
        send(&mut stream, &out)?;
        out.clear();
    }
    send(&mut stream, &out)
}

/// Sends all of it, or ends the connection: an answer behind a part of a frame would be taken for the rest.
fn send(stream: &mut Stream, bytes: &[u8]) -> Result<()> {
    stream.write_all(bytes).inspect_err(|_| {
        // It may have ended by itself.
        let _ = stream.shutdown();
    })?;
    Ok(())
}

/// A row: the number of its tree, and its key.
type Row<'d> = (u32, &'d [u8]);

/// What a `goOn` names: the copy, and the row behind which it goes on.
fn wanted<'d>(go_on: Doc<'d>) -> Result<(i64, Option<Row<'d>>)> {
    let bad = || Error::new(Code::BadValue, "goOn wants copy, and tree with key");
    let number = |name| go_on.get(name).and_then(number::to_i64_exact);
    let id = number("copy").ok_or_else(bad)?;
    let behind = match (number("tree"), go_on.get("key")) {
        (None, None) => None,
        (Some(tree), Some(Value::Binary { bytes, .. })) => {
            Some((u32::try_from(tree).map_err(|_| bad())?, bytes))
        }
        _ => return Err(bad()),
    };
    Ok((id, behind))
}

/// Who asks, and a view of what is committed, with the configuration in force there.
fn begin(cx: &CommandContext<'_>, set: &ReplicaSet) -> Result<(MemberId, Sent)> {
    let node = set.node().ok_or_else(super::super::ended)?;
    let from = cx.request.body.get("from").and_then(number::to_i64_exact);
    let from = from.and_then(|from| MemberId::try_from(from).ok());
    let in_force = Arc::clone(node.members().in_force());
    let other = |from: &MemberId| *from != node.id && in_force.config.member(*from).is_some();
    let from = from.filter(other);
    let nobody = || Error::new(Code::NodeNotFound, "the copy is asked for by no member");
    let from = from.ok_or_else(nobody)?;
    let empty = matches!(cx.request.body.get("empty"), Some(Value::Bool(true)));
    let led = match empty {
        true => barrier::pass(cx, set, &node, from)?,
        false => node.leading_term().unwrap_or(0),
    };
    loop {
        let export = cx.engine().store.export(&**cx.op)?;
        let place = export.position().index;
        // What is committed is in force a moment later; if it is a later one by then, once more.
        let end = Instant::now() + SETTLES;
        let found = loop {
            cx.op.check()?;
            match node.in_force_at(place) {
                None if Instant::now() < end => std::thread::sleep(LOOK),
                found => break found,
            }
        };
        if let Some(in_force) = found {
            let in_force = InForce::clone(&in_force);
            if empty && node.leading_term() != Some(led) {
                let what = "this member led when it was asked, and does no more";
                return Err(Error::new(Code::NotWritablePrimary, what));
            }
            let sent = Sent {
                export,
                in_force,
                led,
            };
            return Ok((from, sent));
        }
    }
}

/// What goes before the chunks: the copy's number, the place that it is of, and, when it begins, what
/// there is to be copied.
fn head(id: i64, sent: &Sent, asked: Doc<'_>) -> DocBuf {
    let position = sent.export.position();
    let mut head = doc! {
        "copy": id,
        "index": position.index as i64,
        "term": position.term as i64,
        "at": timestamp(position.at),
        "led": sent.led as i64,
        "inForce": Value::Binary { subtype: 0, bytes: &sent.in_force.to_bytes() },
    };
    if asked.get("goOn").is_none() {
        let all = sent.export.collections();
        let named: ArrayBuf = all.iter().take(NAMED).map(told).collect();
        head.append("collections", named);
        let (documents, bytes) = all.iter().skip(NAMED).fold((0, 0), |(n, bytes), c| {
            (n + c.documents as i64, bytes + c.bytes as i64)
        });
        head.append("otherDocuments", documents);
        head.append("otherBytes", bytes);
    }
    head
}

fn told(c: &Exported) -> DocBuf {
    let mut trees = ArrayBuf::new();
    for (tree, stored) in &c.trees {
        trees.push(i64::from(*tree));
        trees.push(*stored as i64);
    }
    doc! {
        "ns": c.namespace.as_str(),
        "documents": c.documents as i64,
        "bytes": c.bytes as i64,
        "trees": trees,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn nothing_goes_behind_a_part_of_a_frame() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut near = Stream::Unix(near);
        near.set_write_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        // Nobody takes it.
        send(&mut near, &vec![7; 32 << 20]).unwrap_err();
        let reader = std::thread::spawn(move || {
            let mut came = Vec::new();
            far.read_to_end(&mut came).unwrap();
            came
        });
        assert!(near.write_all(b"an answer").is_err());
        let came = reader.join().unwrap();
        assert!(!came.is_empty() && came.iter().all(|b| *b == 7));
    }
}
