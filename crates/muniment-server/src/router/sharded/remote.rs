//! Documents that come from a cursor on a shard.

use crate::context::CommandContext;
use crate::router::SetPool;
use crate::router::forward::{lsid, run_on};
use crate::router::sets::Reply;
use crate::state::ServerState;
use bytes::Bytes;
use muniment_op::{Interrupt, Operation};
use muniment_query::DocStream;
use muniment_value::{ArrayBuf, Code, Doc, DocBuf, Error, Result, doc};
use muniment_wire::client;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the end of a cursor may take that is no longer needed.
const AWHILE: Duration = Duration::from_secs(1);

/// The rest of a cursor's documents. When it is dropped, so is the cursor on the shard.
pub struct Remote {
    server: Arc<ServerState>,
    set: Arc<SetPool>,
    host: String,
    db: String,
    collection: String,
    /// The cursor's number; 0 after its end.
    id: i64,
    /// The session and the transaction, as getMore has to name them.
    terms: DocBuf,
    batch: VecDeque<Bytes>,
    on: Arc<dyn Interrupt>,
}

impl Remote {
    /// The documents of a reply with a cursor.
    ///
    /// # Errors
    /// 1 if there is no cursor in it.
    pub fn new(
        cx: &CommandContext<'_>,
        set: &Arc<SetPool>,
        reply: &Reply,
        on: &Arc<dyn Interrupt>,
    ) -> Result<Remote> {
        let cursor = reply
            .body
            .as_doc()
            .get_doc("cursor")
            .ok_or_else(no_cursor)?;
        let ns = cursor.get_str("ns").unwrap_or_default();
        let (db, collection) = ns.split_once('.').unwrap_or_default();
        let mut terms = DocBuf::new();
        if let Some(session) = &cx.generic.session {
            terms.append("lsid", lsid(session));
        }
        if let Some(number) = cx
            .generic
            .txn_number
            .filter(|_| cx.generic.in_transaction())
        {
            terms.append("txnNumber", number);
            terms.append("autocommit", false);
        }
        Ok(Remote {
            server: Arc::clone(cx.server),
            set: Arc::clone(set),
            host: reply.host.clone(),
            db: db.to_string(),
            collection: collection.to_string(),
            id: cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap_or(0),
            terms,
            batch: documents(cursor, "firstBatch"),
            on: Arc::clone(on),
        })
    }

    fn read_on(&mut self) -> Result<()> {
        let Some(router) = &self.server.router else {
            return Err(no_cursor());
        };
        let mut command = doc! { "getMore": self.id, "collection": self.collection.as_str() };
        command.append_all(self.terms.as_doc());
        let reply = run_on(&*self.on, router, &self.set, &self.host, &self.db, &command)?;
        let body = reply.as_doc();
        if let Err(e) = client::check_ok(body) {
            // After any error the shard has the cursor no more.
            self.id = 0;
            return Err(e);
        }
        let cursor = body.get_doc("cursor").ok_or_else(no_cursor)?;
        self.id = cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap_or(0);
        self.batch = documents(cursor, "nextBatch");
        Ok(())
    }
}

fn documents(cursor: Doc<'_>, batch: &str) -> VecDeque<Bytes> {
    let batch = cursor.get_array(batch).unwrap_or(Doc::EMPTY);
    let docs = batch.values().filter_map(|v| v.as_doc());
    docs.map(|d| Bytes::copy_from_slice(d.as_bytes())).collect()
}

#[cold]
fn no_cursor() -> Error {
    Error::new(Code::InternalError, "a shard has answered without a cursor")
}

impl DocStream for Remote {
    fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(d) = self.batch.pop_front() {
                return Ok(Some(d));
            }
            if self.id == 0 {
                return Ok(None);
            }
            self.on.check()?;
            self.read_on()?;
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let Some(router) = self.server.router.as_ref().filter(|_| self.id != 0) else {
            return;
        };
        let mut cursors = ArrayBuf::new();
        cursors.push(self.id);
        let mut command = doc! { "killCursors": self.collection.as_str(), "cursors": cursors };
        if let Some(lsid) = self.terms.as_doc().get("lsid") {
            command.append("lsid", lsid);
        }
        let awhile = Operation::new(Instant::now(), Some(AWHILE));
        // If it fails, the shard closes the cursor when nobody has used it for a while.
        let _ = run_on(&awhile, router, &self.set, &self.host, &self.db, &command);
    }
}
