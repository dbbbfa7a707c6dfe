//! The workers of which the experiments are made.

use crate::docs;
use crate::lab::DB;
use muniment_load::conn::{self, Conn, InsertTemplate, Message, check, number_at};
use muniment_load::fail::{Failure, Result};
use muniment_load::load::{Divided, Worker};
use muniment_load::meter::Meter;
use muniment_load::rng::Rng;
use muniment_value::{DocBuf, Value, doc};
use std::os::fd::BorrowedFd;

/// Appends the next document to a message.
pub(crate) type Make = Box<dyn FnMut(&mut Vec<u8>) + Send>;

/// Sends messages made from a template and a source of documents; one message is one operation.
pub(crate) struct Inserts {
    conn: Conn,
    template: InsertTemplate,
    message: Message,
    make: Make,
    batch: u64,
}

impl Inserts {
    /// Single inserts into `coll` with documents from `make`.
    pub(crate) fn new(conn: Conn, coll: &str, concern: Option<&DocBuf>, make: Make) -> Inserts {
        Inserts {
            conn,
            template: Message::insert(DB, coll, concern),
            message: Message(Vec::new()),
            make,
            batch: 1,
        }
    }

    /// Single inserts of W1's documents.
    pub(crate) fn w1_document(conn: Conn, coll: &str, concern: Option<&DocBuf>) -> Inserts {
        Inserts::new(conn, coll, concern, Box::new(docs::w1))
    }

    /// Sends `n` documents in each message.
    pub(crate) fn batched(mut self, n: u64) -> Inserts {
        self.batch = n;
        self
    }
}

impl Worker for Inserts {
    #[inline]
    fn prepare(&mut self) -> bool {
        self.template.begin(&mut self.message);
        for _ in 0..self.batch {
            (self.make)(&mut self.message.0);
        }
        self.template.seal(&mut self.message);
        true
    }

    #[inline]
    fn operate(&mut self, meter: &mut Meter) -> Result<u64> {
        self.send(meter)?;
        match self.template.no_reply {
            true => Ok(self.batch),
            false => self.receive(meter),
        }
    }

    fn finish(&mut self) -> Result<()> {
        if self.template.no_reply {
            // A server handles the commands of one connection in order, so this reply shows that
            // the unacknowledged inserts before it have all been applied.
            self.conn.command("admin", &doc! { "ping": 1 })?;
        }
        Ok(())
    }

    fn divided(&mut self) -> Option<&mut dyn Divided> {
        match self.template.no_reply {
            true => None,
            false => Some(self),
        }
    }
}

impl Divided for Inserts {
    fn socket(&self) -> BorrowedFd<'_> {
        self.conn.socket()
    }

    fn send(&mut self, meter: &mut Meter) -> Result<()> {
        meter.payload(self.message.0.len());
        self.conn.send(&mut self.message)
    }

    fn receive(&mut self, _: &mut Meter) -> Result<u64> {
        check(self.conn.receive()?)?;
        Ok(self.batch)
    }
}

/// Finds 2 KB documents by a random `_id`.
pub(crate) struct Finds {
    conn: Conn,
    message: Message,
    at: usize,
    rng: Rng,
    documents: u64,
    must_match: bool,
}

impl Finds {
    /// Makes a worker for the `_id`s 0…`documents`. With `must_match`, a reply with another
    /// document than the requested one is an error; it is off for the null responder, which always
    /// answers the same document.
    pub(crate) fn new(
        conn: Conn,
        coll: &str,
        documents: u64,
        seed: u64,
        must_match: bool,
    ) -> Finds {
        let (message, at) = conn::find_by_id(DB, coll);
        Finds {
            conn,
            message,
            at,
            rng: Rng::new(seed),
            documents,
            must_match,
        }
    }
}

impl Worker for Finds {
    #[inline]
    fn operate(&mut self, _: &mut Meter) -> Result<u64> {
        let id = self.rng.below(self.documents) as i64;
        self.message.patch(self.at, &id.to_le_bytes());
        let reply = self.conn.call(&mut self.message)?;
        check(reply)?;
        let found = reply
            .get_doc("cursor")
            .and_then(|c| c.get_array("firstBatch"))
            .and_then(|b| b.get_doc("0"))
            .and_then(|d| number_at(d, "_id"));
        if found != Some(id as f64) && (self.must_match || found.is_none()) {
            return Err(Failure(format!("find by _id {id} did not return it")));
        }
        Ok(1)
    }
}

/// `$set`s one field of a 2 KB document by a random `_id`.
pub(crate) struct Updates {
    conn: Conn,
    message: Message,
    at: usize,
    value_at: usize,
    rng: Rng,
    documents: u64,
    must_match: bool,
}

impl Updates {
    /// Makes a worker; the arguments are those of [`Finds::new`].
    pub(crate) fn new(
        conn: Conn,
        coll: &str,
        documents: u64,
        seed: u64,
        must_match: bool,
    ) -> Updates {
        let (message, at, value_at) = conn::update_by_id(DB, coll);
        Updates {
            conn,
            message,
            at,
            value_at,
            rng: Rng::new(seed),
            documents,
            must_match,
        }
    }
}

impl Worker for Updates {
    #[inline]
    fn operate(&mut self, meter: &mut Meter) -> Result<u64> {
        meter.payload(self.message.0.len());
        let id = self.rng.below(self.documents) as i64;
        let value = self.rng.next_u64() as i32;
        self.message.patch(self.at, &id.to_le_bytes());
        self.message.patch(self.value_at, &value.to_le_bytes());
        let reply = self.conn.call(&mut self.message)?;
        check(reply)?;
        if self.must_match && number_at(reply, "n") != Some(1.0) {
            return Err(Failure(format!("update by _id {id} matched nothing")));
        }
        Ok(1)
    }
}

/// Counts the documents of a collection by a filter that looks at each. An operation is a document.
pub(crate) struct Scans {
    conn: Conn,
    message: Message,
    documents: u64,
}

impl Scans {
    /// Makes a worker for a collection of so many documents.
    pub(crate) fn new(conn: Conn, coll: &str, documents: u64) -> Scans {
        let count = doc! { "count": coll, "query": doc! { "no such field": Value::Null } };
        Scans {
            conn,
            message: Message::command(DB, &count),
            documents,
        }
    }
}

impl Worker for Scans {
    fn operate(&mut self, _: &mut Meter) -> Result<u64> {
        let reply = self.conn.call(&mut self.message)?;
        check(reply)?;
        let n = number_at(reply, "n");
        if n != Some(self.documents as f64) {
            let all = self.documents;
            return Err(Failure(format!("a count of {all} documents says {n:?}")));
        }
        Ok(self.documents)
    }
}
