//! The load: one worker inserts the nodes by ascending ids; the others take chunks of ids from the
//! end and insert their links and counts, 1024 a message.

use super::graph::{FIRST_ID, Graph, LINK_TYPES};
use super::payload::Payload;
use super::store::{COUNTS, LINKS, LinkKey, NODES, Store, now_ms};
use crate::lab::DB;
use muniment_load::conn::{Conn, InsertTemplate, Message, check};
use muniment_load::fail::Result;
use muniment_load::load::Worker;
use muniment_load::meter::Meter;
use muniment_load::rng::Rng;
use muniment_value::{DocBuf, doc};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The documents of one message.
const BATCH: usize = 1024;
/// The ids of one chunk.
const CHUNK: u64 = 2048;

/// A batch of documents that is ready to be sent.
struct Batch {
    kind: &'static str,
    documents: u64,
    message: Message,
}

/// Documents that wait until their batch is full.
struct Pending {
    kind: &'static str,
    template: InsertTemplate,
    bytes: Vec<u8>,
    documents: u64,
}

impl Pending {
    fn new(kind: &'static str, collection: &str) -> Pending {
        Pending {
            kind,
            template: Message::insert_unordered(DB, collection),
            bytes: Vec::new(),
            documents: 0,
        }
    }

    fn push(&mut self, d: &DocBuf, ready: &mut VecDeque<Batch>) {
        self.bytes.extend_from_slice(d.as_bytes());
        self.documents += 1;
        if self.documents >= BATCH as u64 {
            self.end(ready);
        }
    }

    fn end(&mut self, ready: &mut VecDeque<Batch>) {
        if self.documents > 0 {
            ready.push_back(Batch {
                kind: self.kind,
                documents: self.documents,
                message: self.template.message(&self.bytes),
            });
            self.bytes.clear();
            self.documents = 0;
        }
    }
}

enum Part {
    /// A loader of nodes, with the next node.
    Nodes(u64),
    /// A loader of links: the shared number of the next chunk, and the ids left in its own chunk.
    Links {
        chunks: Arc<AtomicU64>,
        ids: std::ops::Range<u64>,
    },
}

/// A worker of the load.
pub(crate) struct Loader {
    conn: Conn,
    graph: Arc<Graph>,
    store: Store,
    rng: Rng,
    payload: Payload,
    part: Part,
    /// Links or nodes.
    main: Pending,
    counts: Pending,
    ready: VecDeque<Batch>,
    finished: bool,
    data: Vec<u8>,
}

/// Makes the loaders of a graph: one for the nodes, and the others for the links.
pub(crate) fn loaders(graph: &Arc<Graph>, conns: Vec<Conn>) -> Vec<Loader> {
    let chunks = Arc::new(AtomicU64::new(graph.ids.div_ceil(CHUNK)));
    let (link, node) = graph.profile.medians();
    conns
        .into_iter()
        .enumerate()
        .map(|(i, conn)| {
            let mut rng = Rng::new(0x10ad_0000 + i as u64);
            let nodes = i == 0;
            Loader {
                conn,
                graph: graph.clone(),
                store: Store(graph.profile),
                payload: match nodes {
                    true => Payload::nodes(node, &mut rng),
                    false => Payload::links(link, &mut rng),
                },
                rng,
                part: match nodes {
                    true => Part::Nodes(0),
                    false => Part::Links {
                        chunks: chunks.clone(),
                        ids: 0..0,
                    },
                },
                main: match nodes {
                    true => Pending::new("LOAD_NODE_BULK", NODES),
                    false => Pending::new("LOAD_LINKS_BULK", LINKS),
                },
                counts: Pending::new("LOAD_COUNTS_BULK", COUNTS),
                ready: VecDeque::new(),
                finished: false,
                data: Vec::new(),
            }
        })
        .collect()
}

impl Loader {
    /// Makes the documents of one more id; false if no id is left.
    fn more(&mut self) -> bool {
        let id = match &mut self.part {
            Part::Nodes(next) => {
                if *next >= self.graph.ids {
                    return false;
                }
                let id = *next;
                *next += 1;
                self.payload.draw(&mut self.rng, &mut self.data);
                let node = self
                    .store
                    .node_document(FIRST_ID + id as i64, 1, &self.data);
                self.main.push(&node, &mut self.ready);
                return true;
            }
            Part::Links { chunks, ids } => {
                if ids.is_empty() {
                    let taken = chunks
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
                    let Ok(n) = taken else { return false };
                    let first = (n - 1) * CHUNK;
                    *ids = first..(first + CHUNK).min(self.graph.ids);
                }
                match ids.next() {
                    Some(id) => id,
                    None => return false,
                }
            }
        };
        let id1 = FIRST_ID + id as i64;
        let now = now_ms();
        for link_type in 0..LINK_TYPES.len() {
            let links = self.graph.degrees.of(id, link_type as u64);
            let mut newest = 0;
            for j in 0..links {
                let key = LinkKey {
                    id1,
                    link_type,
                    id2: id1 + j as i64,
                };
                let time = now - self.rng.below(1 << 32) as i64;
                newest = newest.max(time);
                self.payload.draw(&mut self.rng, &mut self.data);
                let link = self.store.link_document(&key, time, &self.data);
                self.main.push(&link, &mut self.ready);
            }
            if links > 0 {
                let key = LinkKey {
                    id1,
                    link_type,
                    id2: 0,
                };
                let count = self.store.count_document(&key, links, newest);
                self.counts.push(&count, &mut self.ready);
            }
        }
        true
    }
}

impl Worker for Loader {
    fn prepare(&mut self) -> bool {
        while self.ready.is_empty() && !self.finished {
            if !self.more() {
                self.finished = true;
                self.main.end(&mut self.ready);
                self.counts.end(&mut self.ready);
            }
        }
        !self.ready.is_empty()
    }

    fn operate(&mut self, meter: &mut Meter) -> Result<u64> {
        let Some(mut batch) = self.ready.pop_front() else {
            return Ok(0);
        };
        meter.payload(batch.message.0.len());
        let start = Instant::now();
        check(self.conn.call(&mut batch.message)?)?;
        meter.record(batch.kind, start);
        // The reported rate is that of links, so batches of other documents count nothing.
        Ok(if batch.kind == "LOAD_LINKS_BULK" {
            batch.documents
        } else {
            0
        })
    }
}

/// Empties the collections and makes the indexes. With `count_index` this includes v2's index on
/// counts, which the original's setup makes on a field that counts do not have.
pub(crate) fn prepare(conn: &mut Conn, graph: &Graph, count_index: bool) -> Result<()> {
    conn.command(DB, &doc! { "dropDatabase": 1 })?;
    for c in [LINKS, COUNTS, NODES] {
        conn.command(DB, &doc! { "create": c })?;
    }
    for (collection, index) in Store(graph.profile).indexes(count_index) {
        let create = doc! { "createIndexes": collection, "indexes": muniment_value::array![index] };
        conn.command(DB, &create)?;
    }
    Ok(())
}
