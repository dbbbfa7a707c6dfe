//! A requester: performs the operations of the request phase on one connection.

use super::graph::{Chooser, Graph};
use super::payload::Payload;
use super::store::{LIST_LIMIT, LinkKey, Store};
use super::transaction::{self, Fault, Session, TRIES, pause};
use super::{Operation, Profile};
use crate::lab::DB;
use muniment_load::conn::{Conn, Message, number_at};
use muniment_load::fail::Result;
use muniment_load::load::Worker;
use muniment_load::meter::Meter;
use muniment_value::{Doc, doc};
use std::sync::Arc;
use std::time::Instant;

/// The share of lists that continue a list that was cut off, with the older links.
const HISTORY: f64 = 0.003;
/// The number of cut-off lists that a requester remembers.
const REMEMBERED: usize = 2048;
/// The status of a try that failed and was repeated.
pub(crate) const RETRIED: &str = "RETRIED";

/// The parameters of the next operation.
enum Next {
    /// A link to write; its payload is in the requester's buffer.
    Put { key: LinkKey },
    /// A link to hide.
    Hide { key: LinkKey },
    /// One command.
    Single { message: Message },
    /// One command that is repeated on transient errors, in a transaction of its own or not.
    Retried { message: Message, transaction: bool },
    /// Links of one node to read.
    Links { key: LinkKey, id2s: Vec<i64> },
    /// A list of links up to a time. `history` is the index of the remembered list that it
    /// continues, if it does.
    List {
        key: LinkKey,
        newest: i64,
        history: Option<usize>,
    },
}

/// The outcome of a try.
type Tried<T> = std::result::Result<T, Fault>;

/// A worker of the request phase.
pub(crate) struct Requester {
    conn: Conn,
    graph: Arc<Graph>,
    store: Store,
    chooser: Chooser,
    links: Payload,
    nodes: Payload,
    data: Vec<u8>,
    next: Option<(Operation, Next)>,
    /// Lists that were cut off, with the time of their last link.
    history: Vec<(LinkKey, i64)>,
    /// The number of links that lists have returned.
    pub listed: u64,
    /// The session for transactions, if the target has them.
    session: Option<Session>,
    /// Tries of the current operation that failed and were repeated.
    retries: u64,
    /// The bytes of its messages.
    sent: usize,
}

impl Requester {
    /// Makes requester number `n`. `transactions` runs those operations in a transaction for which
    /// v2 uses one.
    pub(crate) fn new(conn: Conn, graph: &Arc<Graph>, n: u64, transactions: bool) -> Requester {
        let mut chooser = Chooser::new(graph, 0x11_4b00 + n);
        let (link, node) = graph.profile.medians();
        Requester {
            conn,
            links: Payload::links(link, &mut chooser.rng),
            nodes: Payload::nodes(node, &mut chooser.rng),
            store: Store(graph.profile),
            graph: graph.clone(),
            chooser,
            data: Vec::new(),
            next: None,
            history: Vec::new(),
            listed: 0,
            session: transactions.then(|| Session::new(n)),
            retries: 0,
            sent: 0,
        }
    }

    fn key(&mut self, writes: bool, existing: f64) -> LinkKey {
        let id1 = self.chooser.id1(writes);
        let link_type = self.chooser.link_type();
        LinkKey {
            id1,
            link_type,
            id2: self.chooser.id2(id1, link_type, existing),
        }
    }

    fn choose(&mut self) -> (Operation, Next) {
        let operation = self.chooser.operation();
        let next = match operation {
            Operation::AddLink => self.link_to_put(0.05),
            Operation::UpdateLink => self.link_to_put(0.9),
            Operation::DeleteLink => Next::Hide {
                key: self.key(true, 0.9),
            },
            Operation::CountLink => {
                let key = self.key(false, 0.5);
                let message = self.store.get_count(&key);
                Next::Single { message }
            }
            Operation::GetLink => self.links_to_get(),
            Operation::GetLinkList => match self.older_list() {
                Some(older) => older,
                None => self.newest_list(),
            },
            Operation::AddNode => {
                self.nodes.draw(&mut self.chooser.rng, &mut self.data);
                let id = self.graph.new_node();
                Next::Retried {
                    message: self.store.add_node(id, &self.data),
                    transaction: true,
                }
            }
            Operation::UpdateNode => {
                let id = self.chooser.node_to_update();
                self.nodes.draw(&mut self.chooser.rng, &mut self.data);
                // The original opens a transaction here but sends the command without its session,
                // so the command is not part of a transaction; the same is sent here.
                Next::Retried {
                    message: self.store.update_node(id, &self.data),
                    transaction: false,
                }
            }
            Operation::DeleteNode => {
                let id = self.chooser.node_to_delete();
                Next::Retried {
                    message: self.store.delete_node(id),
                    transaction: false,
                }
            }
            Operation::GetNode => {
                let id = self.chooser.node_to_read();
                let message = self.store.get_node(id);
                Next::Single { message }
            }
        };
        (operation, next)
    }

    /// Chooses a link to write, which exists with probability `existing`, and draws its payload.
    fn link_to_put(&mut self, existing: f64) -> Next {
        let key = self.key(true, existing);
        self.links.draw(&mut self.chooser.rng, &mut self.data);
        Next::Put { key }
    }

    /// Chooses some links of one node.
    fn links_to_get(&mut self) -> Next {
        let mut key = self.key(false, 0.5);
        let n = self.chooser.multiget();
        let id2s: Vec<i64> = (0..n)
            .map(|_| self.chooser.id2(key.id1, key.link_type, 0.5))
            .collect();
        key.id2 = id2s.first().copied().unwrap_or(key.id2);
        Next::Links { key, id2s }
    }

    /// Now and then continues a list that was cut off, if there is one.
    fn older_list(&mut self) -> Option<Next> {
        if self.history.is_empty() || self.chooser.rng.unit() >= HISTORY {
            return None;
        }
        let at = self.chooser.rng.below(self.history.len() as u64) as usize;
        let (key, newest) = self.history.get(at).copied()?;
        Some(Next::List {
            key,
            newest,
            history: Some(at),
        })
    }

    /// Chooses a node whose newest links are listed.
    fn newest_list(&mut self) -> Next {
        Next::List {
            key: LinkKey {
                id1: self.chooser.id1(false),
                link_type: self.chooser.link_type(),
                id2: 0,
            },
            newest: i64::MAX,
            history: None,
        }
    }

    /// Sends a message, checks the reply, and returns the result of `see` for it.
    fn call<T>(&mut self, mut m: Message, see: impl FnOnce(Doc<'_>) -> T) -> Tried<T> {
        self.sent += m.0.len();
        transaction::call(&mut self.conn, self.session.as_mut(), &mut m).map(see)
    }

    /// Runs `body`, within a transaction if `transaction` is set and the target has them. In v2 the
    /// whole of `body` is repeated when the server says that this may help.
    fn retried<T>(
        &mut self,
        transaction: bool,
        mut body: impl FnMut(&mut Requester) -> Tried<T>,
    ) -> Tried<T> {
        let mut tries = 0;
        loop {
            let tried = match transaction && self.session.is_some() {
                true => self.in_transaction(&mut body),
                false => body(self),
            };
            tries += 1;
            match tried {
                Err(Fault::Refused(r))
                    if r.transient && tries < TRIES && self.graph.profile == Profile::V2 =>
                {
                    self.retries += 1;
                    std::thread::sleep(pause(tries));
                }
                other => return other,
            }
        }
    }

    fn in_transaction<T>(&mut self, body: &mut impl FnMut(&mut Requester) -> Tried<T>) -> Tried<T> {
        if let Some(s) = &mut self.session {
            s.begin();
        }
        let done = body(self);
        let Some(s) = &mut self.session else {
            return done;
        };
        match done {
            Ok(t) => s.commit(&mut self.conn, || self.retries += 1).map(|()| t),
            Err(Fault::Refused(r)) => {
                s.abort(&mut self.conn).map_err(Fault::Broken)?;
                Err(Fault::Refused(r))
            }
            broken => broken,
        }
    }

    /// Writes a link, and increments its count if the write made the link visible.
    fn put(&mut self, key: &LinkKey, data: &[u8]) -> Tried<()> {
        let message = self.store.put_link(key, data);
        let v2 = self.graph.profile == Profile::V2;
        let (was_there, changed) = self.call(message, |reply| {
            if v2 {
                let before = reply.get_doc("value");
                let visible = before.and_then(|d| number_at(d, "visibility"));
                (before.is_some(), visible != Some(1.0))
            } else {
                let inserted = reply.get("upserted").is_some();
                (
                    !inserted,
                    inserted || number_at(reply, "nModified") == Some(1.0),
                )
            }
        })?;
        if changed {
            let count = self.store.add_to_count(key, 1);
            self.call(count, |_| ())?;
        }
        if was_there && !v2 {
            let update = self.store.update_link_data(key, data);
            self.call(update, |_| ())?;
        }
        Ok(())
    }

    fn hide(&mut self, key: &LinkKey) -> Tried<()> {
        let message = self.store.hide_link(key);
        let v2 = self.graph.profile == Profile::V2;
        let was_visible = self.call(message, |reply| {
            if v2 {
                let before = reply.get_doc("value");
                before.and_then(|d| number_at(d, "visibility")) == Some(1.0)
            } else {
                number_at(reply, "nModified") == Some(1.0)
            }
        })?;
        if was_visible {
            let count = self.store.add_to_count(key, -1);
            self.call(count, |_| ())?;
        }
        Ok(())
    }

    /// Reads links: v2 asks for each of them; 2015 asks for all at once and counts them first.
    fn links(&mut self, key: &LinkKey, id2s: &[i64]) -> Tried<()> {
        if self.graph.profile == Profile::Y2015 {
            let count = self.store.count_links(key, id2s);
            self.call(count, |_| ())?;
            let find = self.store.get_links(key, id2s);
            return self.drain(find).map(|_| ());
        }
        for id2 in id2s {
            let find = self.store.get_link(&LinkKey { id2: *id2, ..*key });
            self.call(find, |_| ())?;
        }
        Ok(())
    }

    /// Reads a cursor to its end; returns the number of documents, and the time of number
    /// [`LIST_LIMIT`], after which a list is cut off (0 if there are fewer).
    fn drain(&mut self, mut m: Message) -> Tried<(u64, i64)> {
        let (mut n, mut last) = (0, 0);
        loop {
            let id = self.call(m, |reply| {
                let cursor = reply.get_doc("cursor")?;
                for batch in ["firstBatch", "nextBatch"] {
                    let documents = cursor.get_array(batch).unwrap_or(Doc::EMPTY);
                    for d in documents.values().filter_map(|v| v.as_doc()) {
                        n += 1;
                        if n == LIST_LIMIT as u64 {
                            last = d.get("time").and_then(|v| v.as_i64_exact()).unwrap_or(0);
                        }
                    }
                }
                cursor.get("id").and_then(|v| v.as_i64_exact())
            })?;
            match id {
                None | Some(0) => return Ok((n, last)),
                Some(id) => {
                    let more = doc! { "getMore": id, "collection": super::store::LINKS };
                    m = Message::command(DB, &more);
                }
            }
        }
    }

    fn list(&mut self, key: &LinkKey, newest: i64, history: Option<usize>) -> Tried<()> {
        let (n, last) = self.retried(true, |s| {
            if s.graph.profile == Profile::Y2015 {
                let count = s.store.count_list(key, newest);
                s.call(count, |_| ())?;
            }
            let find = s.store.get_list(key, newest, i32::from(history.is_some()));
            s.drain(find)
        })?;
        self.listed += n;
        let cut_off = n >= LIST_LIMIT as u64;
        match history {
            Some(at) if cut_off => {
                if let Some(entry) = self.history.get_mut(at) {
                    entry.1 = last;
                }
            }
            Some(at) if at < self.history.len() => {
                self.history.swap_remove(at);
            }
            _ if cut_off && !self.history.iter().any(|(k, _)| k == key) => {
                if self.history.len() < REMEMBERED {
                    self.history.push((*key, last));
                } else {
                    let at = self.chooser.rng.below(REMEMBERED as u64) as usize;
                    if let Some(entry) = self.history.get_mut(at) {
                        *entry = (*key, last);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Worker for Requester {
    fn prepare(&mut self) -> bool {
        self.next = Some(self.choose());
        true
    }

    fn operate(&mut self, meter: &mut Meter) -> Result<u64> {
        let Some((operation, next)) = self.next.take() else {
            return Ok(0);
        };
        let start = Instant::now();
        self.retries = 0;
        let done = match next {
            Next::Put { key } => {
                let data = std::mem::take(&mut self.data);
                let done = self.retried(true, |s| s.put(&key, &data));
                self.data = data;
                done
            }
            Next::Hide { key } => self.retried(true, |s| s.hide(&key)),
            Next::Single { message } => self.call(message, |_| ()),
            Next::Retried {
                message,
                transaction,
            } => self.retried(transaction, |s| s.call(message.clone(), |_| ())),
            Next::Links { key, id2s } => self.links(&key, &id2s),
            Next::List {
                key,
                newest,
                history,
            } => self.list(&key, newest, history),
        };
        let sent = std::mem::take(&mut self.sent);
        if operation.writes() {
            meter.payload(sent);
        }
        let (name, failed) = operation.names();
        meter.record(if done.is_ok() { name } else { failed }, start);
        for _ in 0..self.retries {
            meter.status(name, RETRIED);
        }
        Ok(done.map(|()| 1)?)
    }

    fn finish(&mut self) -> Result<()> {
        match &mut self.session {
            Some(s) => s.over(&mut self.conn),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
