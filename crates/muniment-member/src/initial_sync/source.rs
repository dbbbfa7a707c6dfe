//! The source of an initial sync: sends what one view of its storage sees.
//!
//! When the connection breaks the view is kept for a while ([`KEPT`](super::copies::KEPT)), so that the member that copies can
//! ask for the rest by a new connection. It is also kept when all was sent, since nobody knows how much of
//! that arrived, until the member says that the copy is whole, or of no use. Invariants: no view outlives
//! the server's storage; at most one is kept for each member; after a part of a frame nothing else is
//! sent by its connection.

use super::super::driver::Known;
use super::super::frame::{put_export, put_report};
use super::super::greeting::{FIELD, Greeting};
use super::super::member_config::invalid;
use super::super::node::Node;
use super::super::{ReplicaSet, Role, timestamp};
use super::barrier::{self, Passed};
use super::copies::Sent;
use muniment_consensus::{InForce, MemberId};
use muniment_exec::OpContext;
use muniment_op::Interrupt;
use muniment_storage::Exported;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, Value, doc, number};
use muniment_wire::Stream;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// In the greeting: the member that copies knows of [`Passed::waits`].
pub const CAN_WAIT: &str = "canWait";
/// When the member that copies has taken nothing for about so long the connection counts as broken.
const STUCK: Duration = Duration::from_secs(60);
/// So long it may take until what is committed is in force.
const SETTLES: Duration = Duration::from_secs(1);
/// So long it may take until as much is committed as the copy has to have.
const REACHES: Duration = Duration::from_secs(5);
/// Collections that are named, of which progress is told one by one: the rest is in the totals only.
const NAMED: usize = 10_000;

/// Answers `_replSetExport`, whose connection is `stream`: says as of which place of the log the state is, then sends it. With `goOn` it
/// sends what comes after the row that is named; with `end` it sends nothing, and no longer keeps the view.
/// With `pass` the leader answers what a member that has nothing needs to know before it copies from any
/// member.
///
/// # Errors
/// 43 for a copy that is not kept; 46 for one that another connection sends; 74 if the caller is no member;
/// 93 for another set; 188 for a version that has none in common with this one; 10107 and 13436 in a state
/// in which a member is no source; the storage's and the socket's.
pub fn export(set: &ReplicaSet, body: Doc<'_>, stream: &Stream, op: &OpContext) -> Result<DocBuf> {
    let (member, config) = set.initialized()?;
    let greeting = Greeting::of(body)?;
    if config.id != greeting.set {
        return Err(invalid("the copy is asked for by another set"));
    }
    if let Some(end) = body.get("end") {
        let id = number::to_i64_exact(end);
        let bad = || Error::new(Code::BadValue, "end has to be the number of a copy");
        set.copies.end(id.ok_or_else(bad)?);
        return Ok(DocBuf::new());
    }
    if matches!(body.get("asks"), Some(Value::Bool(true))) {
        let votes = votes(op, set, &greeting)?;
        return Ok(doc! { "votes": votes });
    }
    if matches!(body.get("pass"), Some(Value::Bool(true))) {
        return pass(op, set, &greeting, can_wait(body));
    }
    let mut stream = stream.try_clone()?;
    stream.set_write_timeout(Some(STUCK))?;
    let mut lent = match body.get_doc("goOn") {
        Some(go_on) => {
            let (id, behind) = wanted(go_on)?;
            let mut lent = set.copies.go_on(id, stream.try_clone()?, op)?;
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
            let (from, sent) = begin(op, set, &greeting, body)?;
            set.copies.begin(from, stream.try_clone()?, sent)?
        }
    };
    let id = lent.id;
    let mut out = Vec::new();
    put_report(&mut out, head(id, lent.sent()?, body).as_doc());
    loop {
        let next = match op.check() {
            Ok(()) => lent.sent()?.export.read(op),
            Err(e) => Err(e),
        };
        match next {
            Ok(Some(chunk)) => put_export(&mut out, &chunk.to_bytes()),
            Ok(None) => break,
            // The storage has failed, or the operation was ended on purpose: the copy is not to go on.
            Err(e) => {
                lent.drop_it();
                return Err(e);
            }
        }
        send(&mut stream, &out)?;
        out.clear();
    }
    send(&mut stream, &out).map(|()| DocBuf::new())
}

/// Answers a member that has nothing, and asks whether it may be filled.
fn pass(op: &OpContext, set: &ReplicaSet, greeting: &Greeting, can_wait: bool) -> Result<DocBuf> {
    let (node, from) = (asked_by(set, greeting)?, greeting.from);
    let passed = barrier::pass(op, set, &node, from, can_wait)?;
    // The commit point is read after the barrier was passed: all that the member had acknowledged is
    // committed by then, or stands before the place that the member waits for.
    let committed = node.committed();
    if node.leading_term() != Some(passed.term) {
        return Err(leads_no_more());
    }
    Ok(doc! {
        "led": passed.term as i64,
        "committed": committed as i64,
        "waits": passed.waits as i64,
    })
}

/// Sends all of it, or ends the connection: an answer after a part of a frame would be taken for its rest.
fn send(stream: &mut Stream, bytes: &[u8]) -> Result<()> {
    stream.write_all(bytes).inspect_err(|_| {
        // Shutting down fails if the connection has ended by itself, which is just as well.
        let _ = stream.shutdown();
    })?;
    Ok(())
}

/// A row: the number of its tree, and its key.
type Row<'d> = (u32, &'d [u8]);

/// What a `goOn` names: the copy, and the row after which it goes on.
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

/// The node, if the caller is another member, at the address that the configuration has for it.
fn asked_by(set: &ReplicaSet, greeting: &Greeting) -> Result<Arc<Node>> {
    let node = set.node().ok_or_else(super::super::ended)?;
    let in_force = Arc::clone(node.members().in_force());
    greeting.check(&in_force)?;
    let known = in_force.config.member(greeting.from).is_some();
    // The caller takes what it is told here for the word of the member that it means, so that must be this one.
    let meant = greeting.to == node.id;
    match known && meant && greeting.from != node.id {
        true => Ok(node),
        false => Err(Error::new(
            Code::NodeNotFound,
            "the copy is asked for by no member, or of another one",
        )),
    }
}

/// Whether the member that asks, which has nothing, knows of [`Passed::waits`].
fn can_wait(asked: Doc<'_>) -> bool {
    let greeting = asked.get_doc(FIELD).unwrap_or(Doc::EMPTY);
    matches!(greeting.get(CAN_WAIT), Some(Value::Bool(true)))
}

/// Whether the member that asks may have voted and acknowledged already. It has a directory that is not
/// its own, so that it would know nothing of that. If it does not vote, what was acknowledged under its
/// number is forgotten here, and it does not vote before it has acknowledged everything anew.
///
/// The caller may give up its data by the answer, so only a leader gives one.
fn votes(op: &OpContext, set: &ReplicaSet, greeting: &Greeting) -> Result<bool> {
    let node = asked_by(set, greeting)?;
    let Some(term) = node.leading_term() else {
        let what = "whether a member has voted is said by who leads";
        return Err(Error::new(Code::NotWritablePrimary, what));
    };
    barrier::confirm(op, &node, greeting.from, Known::All)?;
    let votes = || node.members().in_force().voters.contains(&greeting.from);
    if !votes() {
        // It may have had a vote before, and may have one again soon.
        barrier::settle(op, set, &node, greeting.from, term)?;
    }
    Ok(votes())
}

fn leads_no_more() -> Error {
    let what = "this member led when it was asked, and does no more";
    Error::new(Code::NotWritablePrimary, what)
}

/// Waits until so much is committed as the copy has to have.
fn wait_for(op: &OpContext, node: &Node, at_least: u64) -> Result<()> {
    let end = Instant::now() + REACHES;
    let has = || node.committed() >= at_least;
    match node.moved.wait_until(op, end, has)? {
        true => Ok(()),
        false => Err(Error::new(
            Code::InvalidSyncSource,
            format!(
                "this member has committed up to {}, and {at_least} is wanted",
                node.committed()
            ),
        )),
    }
}

/// The member that asks, and a view of what is committed, with the configuration in force there.
fn begin(
    op: &OpContext,
    set: &ReplicaSet,
    greeting: &Greeting,
    body: Doc<'_>,
) -> Result<(MemberId, Sent)> {
    let (node, from) = (asked_by(set, greeting)?, greeting.from);
    let at_least = body.get("atLeast").and_then(number::to_i64_exact);
    let at_least = at_least.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let empty = matches!(body.get("empty"), Some(Value::Bool(true)));
    let can_wait = can_wait(body);
    let Passed { term: led, waits } = match empty {
        true => barrier::pass(op, set, &node, from, can_wait)?,
        false => Passed {
            term: node.leading_term().unwrap_or(0),
            waits: 0,
        },
    };
    wait_for(op, &node, at_least)?;
    loop {
        let export = set.home.engine.store.export(op)?;
        let place = export.position().index;
        // What is committed is in force a moment later; if it is a later one by then, once more.
        let end = Instant::now() + SETTLES;
        let in_force = || node.in_force_at(place);
        let found = node.moved.wait_for_until((), op, end, in_force)?;
        if let Some(in_force) = found {
            let in_force = InForce::clone(&in_force);
            if empty && node.leading_term() != Some(led) {
                return Err(leads_no_more());
            }
            let sent = Sent {
                export,
                in_force,
                led,
                waits,
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
        "waits": sent.waits as i64,
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
