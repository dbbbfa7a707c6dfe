//! A requester: one connection's operations of the request phase.

use super::graph::{Chooser, Graph};
use super::payload::Payload;
use super::store::{LIST_LIMIT, LinkKey, Store};
use super::{Operation, Profile};
use crate::conn::{Conn, Message, check, number_at};
use crate::fail::Result;
use crate::lab::DB;
use crate::load::Worker;
use crate::meter::Meter;
use muniment_value::{Doc, doc};
use std::sync::Arc;
use std::time::Instant;

/// Share of the lists that ask for what is older than a list that was cut off.
const HISTORY: f64 = 0.003;
/// Cut-off lists that a requester remembers.
const REMEMBERED: usize = 2048;

/// What the next operation needs beside its kind.
enum Next {
    /// A link to write, with its payload.
    Put { key: LinkKey },
    /// A link to hide.
    Hide { key: LinkKey },
    /// One command.
    Single { message: Message },
    /// Links to get.
    Links { key: LinkKey, id2s: Vec<i64> },
    /// A list, up to this time; `history`: which remembered one.
    List {
        key: LinkKey,
        newest: i64,
        history: Option<usize>,
    },
}

/// One requester.
pub struct Requester {
    conn: Conn,
    graph: Arc<Graph>,
    store: Store,
    chooser: Chooser,
    links: Payload,
    nodes: Payload,
    data: Vec<u8>,
    next: Option<(Operation, Next)>,
    /// Lists that were cut off, and the time of their last link.
    history: Vec<(LinkKey, i64)>,
    /// Links that lists gave.
    pub listed: u64,
}

impl Requester {
    /// Requester number `n`.
    pub fn new(conn: Conn, graph: &Arc<Graph>, n: u64) -> Requester {
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
            Operation::AddLink | Operation::UpdateLink => {
                let existing = if operation == Operation::AddLink {
                    0.05
                } else {
                    0.9
                };
                let key = self.key(true, existing);
                self.links.draw(&mut self.chooser.rng, &mut self.data);
                Next::Put { key }
            }
            Operation::DeleteLink => Next::Hide {
                key: self.key(true, 0.9),
            },
            Operation::CountLink => {
                let key = self.key(false, 0.5);
                Next::Single {
                    message: self.store.get_count(&key),
                }
            }
            Operation::GetLink => {
                let mut key = self.key(false, 0.5);
                let n = self.chooser.multiget();
                let id2s: Vec<i64> = (0..n)
                    .map(|_| self.chooser.id2(key.id1, key.link_type, 0.5))
                    .collect();
                key.id2 = id2s.first().copied().unwrap_or(key.id2);
                Next::Links { key, id2s }
            }
            Operation::GetLinkList => {
                if !self.history.is_empty() && self.chooser.rng.unit() < HISTORY {
                    let at = self.chooser.rng.below(self.history.len() as u64) as usize;
                    if let Some((key, newest)) = self.history.get(at).copied() {
                        let history = Some(at);
                        return (
                            operation,
                            Next::List {
                                key,
                                newest,
                                history,
                            },
                        );
                    }
                }
                let id1 = self.chooser.id1(false);
                let link_type = self.chooser.link_type();
                Next::List {
                    key: LinkKey {
                        id1,
                        link_type,
                        id2: 0,
                    },
                    newest: i64::MAX,
                    history: None,
                }
            }
            Operation::AddNode => {
                self.nodes.draw(&mut self.chooser.rng, &mut self.data);
                let id = self.graph.new_node();
                Next::Single {
                    message: self.store.add_node(id, &self.data),
                }
            }
            Operation::UpdateNode => {
                let id = self.chooser.node_to_update();
                self.nodes.draw(&mut self.chooser.rng, &mut self.data);
                Next::Single {
                    message: self.store.update_node(id, &self.data),
                }
            }
            Operation::DeleteNode => Next::Single {
                message: {
                    let id = self.chooser.node_to_delete();
                    self.store.delete_node(id)
                },
            },
            Operation::GetNode => Next::Single {
                message: {
                    let id = self.chooser.node_to_read();
                    self.store.get_node(id)
                },
            },
        };
        (operation, next)
    }

    /// Sends and checks; gives what `see` makes of the reply.
    fn call<T>(&mut self, mut m: Message, see: impl FnOnce(Doc<'_>) -> T) -> Result<T> {
        let reply = self.conn.call(&mut m)?;
        check(reply)?;
        Ok(see(reply))
    }

    /// Writes a link and, when it becomes visible by that, counts it.
    fn put(&mut self, key: &LinkKey) -> Result<()> {
        let data = std::mem::take(&mut self.data);
        let message = self.store.put_link(key, &data);
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
            let update = self.store.update_link_data(key, &data);
            self.call(update, |_| ())?;
        }
        self.data = data;
        Ok(())
    }

    fn hide(&mut self, key: &LinkKey) -> Result<()> {
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

    /// v2 asks for each, 2015 for all and their number.
    fn links(&mut self, key: &LinkKey, id2s: &[i64]) -> Result<()> {
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

    /// Reads a cursor to its end: how many documents, and the last one's time.
    fn drain(&mut self, mut m: Message) -> Result<(u64, i64)> {
        let (mut n, mut last) = (0, 0);
        let name = super::store::LINKS;
        loop {
            let reply = self.conn.call(&mut m)?;
            check(reply)?;
            let Some(cursor) = reply.get_doc("cursor") else {
                return Ok((n, last));
            };
            for batch in ["firstBatch", "nextBatch"] {
                let Some(documents) = cursor.get_array(batch) else {
                    continue;
                };
                for d in documents.values().filter_map(|v| v.as_doc()) {
                    n += 1;
                    if n == LIST_LIMIT as u64 {
                        last = d.get("time").and_then(|v| v.as_i64_exact()).unwrap_or(0);
                    }
                }
            }
            let id = cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap_or(0);
            if id == 0 {
                return Ok((n, last));
            }
            m = Message::command(DB, &doc! { "getMore": id, "collection": name });
        }
    }

    fn list(&mut self, key: &LinkKey, newest: i64, history: Option<usize>) -> Result<()> {
        if self.graph.profile == Profile::Y2015 {
            let count = self.store.count_list(key, newest);
            self.call(count, |_| ())?;
        }
        let find = self
            .store
            .get_list(key, newest, i32::from(history.is_some()));
        let (n, last) = self.drain(find)?;
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
        let done = match next {
            Next::Put { key } => self.put(&key),
            Next::Hide { key } => self.hide(&key),
            Next::Single { message } => self.call(message, |_| ()),
            Next::Links { key, id2s } => self.links(&key, &id2s),
            Next::List {
                key,
                newest,
                history,
            } => self.list(&key, newest, history),
        };
        let (name, failed) = operation.names();
        meter.record(if done.is_ok() { name } else { failed }, start);
        done.map(|()| 1)
    }
}
