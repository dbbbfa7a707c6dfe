//! `fullDocument: "updateLookup"` in collections that are or were divided: the document may be on another shard now.

use crate::router::forward::{Own, ask_own_of_all};
use crate::router::sharded::is_stale;
use crate::router::sharded::remote::Terms;
use crate::router::{Known, Reach};
use bytes::Bytes;
use muniment_op::sleep_until;
use muniment_query::{DocStream, Filter, QueryContext};
use muniment_shard::targets;
use muniment_value::{Code, Doc, DocBuf, Error, Result, Value, doc};
use muniment_wire::client;
use std::sync::Arc;
use std::time::Duration;

/// So long a document is looked for while shards and router differ.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause before it is looked for again.
const PAUSE: Duration = Duration::from_millis(20);

/// The stage that adds the documents. An event that needs one has the collection's UUID in its place.
pub struct LookUps {
    source: Box<dyn DocStream>,
    terms: Terms,
}

impl LookUps {
    /// Adds documents to these events.
    pub fn new(source: Box<dyn DocStream>, terms: &Terms) -> LookUps {
        LookUps {
            source,
            terms: terms.clone(),
        }
    }

    /// The document with a key, as a majority has it now; `None` if there is none, or if the collection of this UUID
    /// is gone.
    fn look_up(&self, ns: &str, uuid: &[u8], key: Doc<'_>) -> Result<Option<DocBuf>> {
        let (router, on) = (self.terms.router()?, &*self.terms.on);
        let mut known = router.tables.of(on, router, ns)?;
        let is_it = |known: &Arc<Known>| known.collection.generation.uuid == uuid;
        if known.as_ref().is_some_and(|known| !is_it(known)) {
            known = router.tables.refresh(on, router, ns)?;
        }
        let until = muniment_op::now() + PATIENCE;
        loop {
            let found = match &known {
                Some(known) if is_it(known) => self.find(known, key),
                Some(_) => return Ok(None),
                None => self.find_whole(ns, uuid, key),
            };
            match found {
                Err(e) if is_stale(&e) && muniment_op::now() < until => {
                    sleep_until(muniment_op::now() + PAUSE, on)?;
                    known = router.tables.refresh(on, router, ns)?;
                }
                found => return found,
            }
        }
    }

    /// Looks in a collection that is not divided: on the shard of its database.
    fn find_whole(&self, ns: &str, uuid: &[u8], key: Doc<'_>) -> Result<Option<DocBuf>> {
        let (router, on) = (self.terms.router()?, &*self.terms.on);
        let (db, _) = ns.split_once('.').unwrap_or_default();
        let Some(set) = router.catalog.database(on, router, db, None)? else {
            return Ok(None);
        };
        let collection = Value::Binary {
            subtype: 4,
            bytes: uuid,
        };
        let mut filter = DocBuf::new();
        filter.append_some("_id", key.get("_id").map(|id| doc! { "$eq": id }));
        let find = find_of(collection, &filter);
        let asked = Own {
            set: &set,
            db,
            command: &find,
            versions: Some(Doc::EMPTY),
            reach: Reach::Primary,
        };
        match self.first_of(&[asked]) {
            Err(e) if e.code() == Code::NamespaceNotFound => Ok(None),
            found => found,
        }
    }

    fn find(&self, known: &Known, key: Doc<'_>) -> Result<Option<DocBuf>> {
        let mut filter = DocBuf::new();
        for e in key {
            filter.append(e.name(), doc! { "$eq": e.value() });
        }
        let parsed = Filter::parse(filter.as_doc(), &QueryContext::new())?;
        let shards = known
            .table
            .shards_in(&targets(&known.key, &parsed).intervals);
        let find = find_of(Value::String(known.name()), &filter);
        let versions: Vec<DocBuf> = shards.iter().map(|shard| known.versions(*shard)).collect();
        let mut asked = Vec::new();
        for (shard, versions) in shards.iter().zip(&versions) {
            asked.push(Own {
                set: known.set(*shard)?,
                db: known.db(),
                command: &find,
                versions: Some(versions.as_doc()),
                reach: Reach::Primary,
            });
        }
        self.first_of(&asked)
    }

    /// The first document that is found.
    fn first_of(&self, asked: &[Own<'_>]) -> Result<Option<DocBuf>> {
        let mut found = None;
        for reply in ask_own_of_all(&*self.terms.on, self.terms.router()?, asked) {
            let reply = reply?.body;
            client::check_ok(reply.as_doc())?;
            let cursor = reply.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
            let batch = cursor.get_array("firstBatch").unwrap_or(Doc::EMPTY);
            let first = batch.values().next().and_then(|v| v.as_doc());
            found = found.or(first.map(|d| d.to_buf()));
        }
        Ok(found)
    }
}

/// The command that looks for a document.
fn find_of(collection: Value<'_>, filter: &DocBuf) -> DocBuf {
    doc! {
        "find": collection, "filter": filter, "limit": 1, "singleBatch": true,
        "collation": doc! { "locale": "simple" }, "readConcern": doc! { "level": "majority" },
    }
}

impl DocStream for LookUps {
    fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(event) = self.source.next()? else {
            return Ok(None);
        };
        let d = Doc::new(&event);
        let (Some(Value::Binary { bytes: uuid, .. }), Some("update")) =
            (d.get("fullDocument"), d.get_str("operationType"))
        else {
            return Ok(Some(event));
        };
        let (ns, key) = (d.get_doc("ns"), d.get_doc("documentKey"));
        let (ns, key) = ns
            .zip(key)
            .ok_or_else(|| Error::internal("an event without a key"))?;
        let part = |name| ns.get_str(name).unwrap_or_default();
        let found = self.look_up(&format!("{}.{}", part("db"), part("coll")), uuid, key)?;
        let mut whole = DocBuf::new();
        for e in d {
            match (e.name(), &found) {
                ("fullDocument", Some(found)) => whole.append(e.name(), found),
                ("fullDocument", None) => whole.append(e.name(), Value::Null),
                _ => whole.append_elem(e),
            };
        }
        Ok(Some(whole.into_bytes().into()))
    }
}
