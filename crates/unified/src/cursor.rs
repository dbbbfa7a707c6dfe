//! Cursors: batches as the server sends them; and change streams, which are opened again once after an error
//! that asks for it.

use crate::client::{Call, Client, Kind, Settings};
use crate::failure::{Failure, whole};
use crate::session::SessionRef;
use bson::{Bson, Document, doc};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a test waits for a document that does not come.
const PATIENCE: Duration = Duration::from_secs(10);

/// The parameters for opening a cursor.
pub(crate) struct Opening {
    /// The client on whose connection it is.
    pub client: Rc<Client>,
    /// The database of the command.
    pub db: String,
    /// The command.
    pub body: Document,
    /// Its session, which the cursor keeps while it is open.
    pub session: SessionRef,
    /// The kind of the command, for concerns and retries.
    pub kind: Kind,
    /// The settings of the collection or database.
    pub settings: Settings,
    /// Fields for each getMore: `batchSize`, `maxTimeMS`, `comment`.
    pub more: Document,
    /// The most documents in total.
    pub limit: Option<i64>,
}

/// An open or exhausted cursor.
pub(crate) struct Cursor {
    client: Rc<Client>,
    db: String,
    collection: String,
    id: i64,
    batch: VecDeque<Document>,
    session: Option<SessionRef>,
    settings: Settings,
    more: Document,
    /// How many more documents the limit allows.
    left: Option<i64>,
    stream: Option<Stream>,
}

/// The state from which a change stream is opened again where it was.
struct Stream {
    body: Document,
    kind: Kind,
    /// The token of the last position.
    token: Option<Bson>,
    /// The token after the current batch.
    behind: Option<Bson>,
    /// The time when it began, if there is no token.
    began: Option<Bson>,
    /// True once it has returned a document.
    given: bool,
}

impl Cursor {
    /// Runs the command and opens its cursor.
    ///
    /// # Errors
    /// The errors of [`Client::run`], or an error of the client for a reply without a cursor.
    pub(crate) fn open(opening: Opening) -> Result<Cursor, Failure> {
        let reply = opening.client.run(Call {
            db: &opening.db,
            body: opening.body.clone(),
            sequences: Vec::new(),
            session: Some(&opening.session),
            kind: opening.kind,
            settings: &opening.settings,
        })?;
        crate::client::check_write(&reply)?;
        Cursor::open_from(opening, &reply)
    }

    /// Makes the cursor of a reply that has arrived.
    ///
    /// # Errors
    /// An error of the client for a reply without a cursor.
    pub(crate) fn open_from(opening: Opening, reply: &Document) -> Result<Cursor, Failure> {
        let stage = stage(&opening.body);
        let stream = stage.map(|options| Stream {
            began: match options.get("startAtOperationTime") {
                None => reply.get("operationTime").cloned(),
                given => given.cloned(),
            },
            token: options
                .get("resumeAfter")
                .or(options.get("startAfter"))
                .cloned(),
            behind: None,
            given: false,
            body: opening.body.clone(),
            kind: opening.kind,
        });
        let mut cursor = Cursor {
            stream,
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
        if let Some(s) = &mut self.stream {
            s.behind = cursor.get("postBatchResumeToken").cloned();
            if batch.is_empty() && s.behind.is_some() {
                s.token = s.behind.clone();
            }
        }
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
    /// The error of the getMore.
    pub(crate) fn next(&mut self) -> Result<Option<Document>, Failure> {
        if self.batch.is_empty() && self.id != 0 {
            match self.get_more() {
                Err(e) if self.stream.is_some() && resumable(&e) => self.resume()?,
                other => other?,
            }
        }
        let next = self.batch.pop_front();
        if let (Some(s), Some(d)) = (&mut self.stream, &next) {
            let Some(id) = d.get("_id") else {
                self.close();
                return Err(Failure::of_client("a change without a resume token"));
            };
            s.given = true;
            s.token = match (&s.behind, self.batch.is_empty()) {
                (Some(behind), true) => Some(behind.clone()),
                _ => Some(id.clone()),
            };
        }
        Ok(next)
    }

    /// The next document, however many batches it takes; `None` at the end.
    ///
    /// # Errors
    /// The error of a getMore, or an error of the client if no document comes for long.
    pub(crate) fn next_document(&mut self) -> Result<Option<Document>, Failure> {
        let began = Instant::now();
        loop {
            if began.elapsed() > PATIENCE {
                let message = format!("no document came within {PATIENCE:?}");
                return Err(Failure::of_client(message));
            }
            match self.next()? {
                None if self.id != 0 => {}
                found => return Ok(found),
            }
        }
    }

    /// All remaining documents.
    ///
    /// # Errors
    /// The error of a getMore.
    pub(crate) fn all(&mut self) -> Result<Vec<Document>, Failure> {
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
                // Either the server has closed the cursor, or the connection is broken.
                if !e.network {
                    self.id = 0;
                }
                self.close();
                Err(e)
            }
        }
    }

    /// Opens a change stream again where it was.
    fn resume(&mut self) -> Result<(), Failure> {
        let Some(s) = &self.stream else {
            return Ok(());
        };
        let mut body = s.body.clone();
        let after = stage(&body).is_some_and(|o| o.contains_key("startAfter")) && !s.given;
        if let Ok(pipeline) = body.get_array_mut("pipeline")
            && let Some(Bson::Document(first)) = pipeline.first_mut()
            && let Ok(options) = first.get_document_mut("$changeStream")
        {
            for name in ["resumeAfter", "startAfter", "startAtOperationTime"] {
                options.remove(name);
            }
            let (name, at) = match (&s.token, &s.began) {
                (Some(token), _) if after => ("startAfter", Some(token)),
                (Some(token), _) => ("resumeAfter", Some(token)),
                (None, began) => ("startAtOperationTime", began.as_ref()),
            };
            if let Some(at) = at {
                options.insert(name, at.clone());
            }
        }
        let kind = s.kind;
        let session = self.client.session(None);
        let session = session.map_err(|_| Failure::of_client("no session"))?;
        let reply = self.client.run(Call {
            db: &self.db,
            body,
            sequences: Vec::new(),
            session: Some(&session),
            kind,
            settings: &self.settings,
        })?;
        self.session = Some(session);
        self.take(&reply)
    }

    /// Closes the cursor on the server. Errors are ignored.
    pub(crate) fn close(&mut self) {
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

/// The options of the change stream that a command opens, if it opens one.
fn stage(body: &Document) -> Option<&Document> {
    let first = body.get_array("pipeline").ok()?.first()?;
    first.as_document()?.get_document("$changeStream").ok()
}

/// Errors of a getMore after which a change stream is opened again: those of the connection, CursorNotFound,
/// and those that the server marks as resumable.
fn resumable(e: &Failure) -> bool {
    e.network || e.code == Some(43) || e.has_label("ResumableChangeStreamError")
}
