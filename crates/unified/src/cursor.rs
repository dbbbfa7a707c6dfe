//! Cursors: batches as the server sends them.

use crate::client::{Call, Client, Kind, Settings};
use crate::failure::{Failure, whole};
use crate::session::SessionRef;
use bson::{Bson, Document, doc};
use std::collections::VecDeque;
use std::rc::Rc;

/// What opens a cursor.
pub struct Opening {
    /// Whose connection it is on.
    pub client: Rc<Client>,
    /// The database of the command.
    pub db: String,
    /// The command.
    pub body: Document,
    /// Its session, which the cursor keeps as long as it is open.
    pub session: SessionRef,
    /// Concerns and retries of the command.
    pub kind: Kind,
    /// Of the collection or database.
    pub settings: Settings,
    /// Fields for each getMore: `batchSize`, `maxTimeMS`, `comment`.
    pub more: Document,
    /// How many documents in all.
    pub limit: Option<i64>,
}

/// An open or exhausted cursor.
pub struct Cursor {
    client: Rc<Client>,
    db: String,
    collection: String,
    id: i64,
    batch: VecDeque<Document>,
    session: Option<SessionRef>,
    settings: Settings,
    more: Document,
    /// How many documents the limit still lets through.
    left: Option<i64>,
}

impl Cursor {
    /// Runs the command.
    ///
    /// # Errors
    /// As [`Client::run`]; a client's for a reply without a cursor.
    pub fn open(opening: Opening) -> Result<Cursor, Failure> {
        let reply = opening.client.run(Call {
            db: &opening.db,
            body: opening.body.clone(),
            sequences: Vec::new(),
            session: Some(&opening.session),
            kind: opening.kind,
            settings: &opening.settings,
        })?;
        crate::client::check_write(&reply)?;
        let opening = Opening {
            body: Document::new(),
            ..opening
        };
        Cursor::open_from(opening, &reply)
    }

    /// The cursor of a reply that is there.
    ///
    /// # Errors
    /// A client's for a reply without a cursor.
    pub fn open_from(opening: Opening, reply: &Document) -> Result<Cursor, Failure> {
        let mut cursor = Cursor {
            client: opening.client,
            db: opening.db,
            collection: String::new(),
            id: 0,
            batch: VecDeque::new(),
            session: Some(opening.session),
            settings: opening.settings,
            more: opening.more,
            left: opening.limit.map(i64::abs).filter(|n| *n > 0),
        };
        cursor.take(reply)?;
        Ok(cursor)
    }

    fn take(&mut self, reply: &Document) -> Result<(), Failure> {
        let bad = || Failure::of_client(format!("a reply without a cursor: {reply}"));
        let cursor = reply.get_document("cursor").map_err(|_| bad())?;
        self.id = cursor.get("id").and_then(whole).ok_or_else(bad)?;
        let ns = cursor.get_str("ns").unwrap_or_default();
        if let Some((db, collection)) = ns.split_once('.') {
            self.db = db.to_owned();
            self.collection = collection.to_owned();
        }
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))
            .map_err(|_| bad())?;
        for d in batch.iter().filter_map(Bson::as_document) {
            self.batch.push_back(d.clone());
        }
        if let Some(left) = &mut self.left {
            *left -= batch.len() as i64;
            if *left <= 0 && self.id != 0 {
                self.close();
            }
        }
        if self.id == 0 {
            self.session = None;
        }
        Ok(())
    }

    /// The next document, after at most one getMore.
    ///
    /// # Errors
    /// Of the getMore.
    pub fn next(&mut self) -> Result<Option<Document>, Failure> {
        if self.batch.is_empty() && self.id != 0 {
            self.get_more()?;
        }
        Ok(self.batch.pop_front())
    }

    /// The next document, however many batches it takes; `None` at the end.
    ///
    /// # Errors
    /// Of a getMore.
    pub fn next_document(&mut self) -> Result<Option<Document>, Failure> {
        loop {
            match self.next()? {
                None if self.id != 0 => {}
                found => return Ok(found),
            }
        }
    }

    /// All that is left.
    ///
    /// # Errors
    /// Of a getMore.
    pub fn all(&mut self) -> Result<Vec<Document>, Failure> {
        let mut all = Vec::new();
        while let Some(d) = self.next_document()? {
            all.push(d);
        }
        Ok(all)
    }

    fn get_more(&mut self) -> Result<(), Failure> {
        let mut body = doc! { "getMore": self.id, "collection": &self.collection };
        body.extend(self.more.clone());
        if let (Some(left), Some(size)) = (self.left, self.more.get("batchSize").and_then(whole)) {
            body.insert("batchSize", left.min(size));
        }
        let reply = self.client.run(Call {
            db: &self.db,
            body,
            sequences: Vec::new(),
            session: self.session.as_ref(),
            kind: Kind::Bare,
            settings: &self.settings,
        });
        match reply {
            Ok(reply) => self.take(&reply),
            Err(e) => {
                // The server has closed it, or the connection is gone.
                if !e.network {
                    self.id = 0;
                }
                self.close();
                Err(e)
            }
        }
    }

    /// Closes it on the server; whether that works is no matter.
    pub fn close(&mut self) {
        if self.id != 0 {
            let body = doc! { "killCursors": &self.collection, "cursors": [self.id] };
            self.id = 0;
            let _ = self.client.run(Call {
                db: &self.db,
                body,
                sequences: Vec::new(),
                session: self.session.as_ref(),
                kind: Kind::Bare,
                settings: &self.settings,
            });
        }
        self.session = None;
    }
}
