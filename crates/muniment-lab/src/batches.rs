//! insertMany: batches of documents that were encoded before the clock started, so that a worker
//! measures the server and not its own encoding.

use crate::docs;
use crate::lab::DB;
use muniment_load::conn::{Conn, InsertTemplate, Message, check};
use muniment_load::fail::Result;
use muniment_load::load::Worker;
use muniment_load::meter::Meter;
use muniment_load::rng::Rng;
use muniment_value::{DocBuf, doc};
use std::sync::Arc;

/// Encoded documents, back to back.
pub(crate) struct Documents {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Documents {
    /// Makes `n` of W3's documents.
    pub(crate) fn make(n: u64) -> Documents {
        let mut rng = Rng::new(3);
        let mut d = Documents {
            bytes: Vec::with_capacity(n as usize * 113),
            ends: Vec::with_capacity(n as usize + 1),
        };
        d.ends.push(0);
        let now = docs::now_ms();
        for _ in 0..n {
            docs::w3(&mut rng, now, docs::object_id(), &mut d.bytes);
            d.ends.push(d.bytes.len());
        }
        d
    }

    /// The number of documents.
    pub(crate) fn len(&self) -> u64 {
        self.ends.len() as u64 - 1
    }

    /// The documents from number `from` to before number `to`.
    pub(crate) fn slice(&self, from: u64, to: u64) -> &[u8] {
        let at = |i: u64| {
            self.ends
                .get(i as usize)
                .copied()
                .unwrap_or(self.bytes.len())
        };
        self.bytes.get(at(from)..at(to)).unwrap_or_default()
    }
}

/// A worker whose every operation is one insertMany.
pub(crate) struct Batches {
    conn: Conn,
    template: InsertTemplate,
    documents: Arc<Documents>,
    next: u64,
    total: u64,
    batch: u64,
    split: u64,
    messages: Vec<Message>,
    now: u64,
}

impl Batches {
    /// Inserts the first `total` of `documents` into `coll` in batches of `batch`; no message has
    /// more than `split` documents, since a server refuses batches above its maxWriteBatchSize.
    pub(crate) fn new(
        conn: Conn,
        coll: &str,
        concern: Option<&DocBuf>,
        documents: Arc<Documents>,
        total: u64,
        batch: u64,
        split: u64,
    ) -> Batches {
        Batches {
            conn,
            template: Message::insert(DB, coll, concern),
            documents,
            next: 0,
            total,
            batch,
            split,
            messages: Vec::new(),
            now: 0,
        }
    }
}

impl Worker for Batches {
    fn prepare(&mut self) -> bool {
        self.now = self.batch.min(self.total - self.next.min(self.total));
        let mut left = self.now;
        let mut used = 0;
        while left > 0 {
            let n = left.min(self.split);
            if self.messages.len() == used {
                self.messages.push(Message(Vec::new()));
            }
            if let Some(m) = self.messages.get_mut(used) {
                self.template.begin(m);
                m.0.extend_from_slice(self.documents.slice(self.next, self.next + n));
                self.template.seal(m);
            }
            used += 1;
            self.next += n;
            left -= n;
        }
        self.messages.truncate(used);
        true
    }

    fn operate(&mut self, meter: &mut Meter) -> Result<u64> {
        for m in &mut self.messages {
            meter.payload(m.0.len());
            self.conn.send(m)?;
            if !self.template.no_reply {
                check(self.conn.receive()?)?;
            }
        }
        Ok(self.now)
    }

    fn finish(&mut self) -> Result<()> {
        if self.template.no_reply {
            self.conn.command("admin", &doc! { "ping": 1 })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn documents_are_cut_where_they_end() {
        let d = Documents::make(10);
        let one = d.slice(3, 4);
        assert_eq!(
            u32::from_le_bytes(one[..4].try_into().unwrap()) as usize,
            one.len()
        );
        assert_eq!(d.slice(0, 10).len(), d.bytes.len());
        assert!(d.slice(10, 20).is_empty());
    }
}
