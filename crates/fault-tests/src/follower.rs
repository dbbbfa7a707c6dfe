//! A change stream that is resumed from its token whenever the server comes back, and its events.

use crate::DB;
use crate::session::Address;
use muniment_value::{Doc, DocBuf, Value, array, doc};
use muniment_wire::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

/// How a stream is followed.
#[derive(Clone, Copy, Debug)]
pub struct Follow {
    /// The collection; `None` for the whole database of the load.
    pub collection: Option<&'static str>,
    /// The number of events in a batch.
    pub batch: i32,
    /// Whether it is resumed after the last event, instead of by the token of the last batch.
    pub by_event: bool,
}

impl Follow {
    /// Follows the stream from the first entry until `each` breaks, or the test has failed elsewhere. Returns
    /// how often the stream was opened.
    ///
    /// # Panics
    /// If the server refuses to resume it.
    pub fn run(self, address: &Address, mut each: impl FnMut(Doc<'_>) -> ControlFlow<()>) -> u64 {
        let mut opened = 0;
        let mut token: Option<DocBuf> = None;
        while let Some(at) = address.get(0) {
            let Ok(mut c) = Connection::connect(&at) else {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            };
            let mut reply = c.command_raw(DB, &self.open(token.as_ref()));
            opened += 1;
            while let Ok(r) = &reply {
                let cursor = r.as_doc().get_doc("cursor");
                let cursor = cursor.unwrap_or_else(|| panic!("{r:?}"));
                let first = cursor.get_array("firstBatch");
                let batch = first.or(cursor.get_array("nextBatch")).unwrap();
                for e in batch.values().map(|v| v.as_doc().unwrap()) {
                    if each(e).is_break() {
                        return opened;
                    }
                    if self.by_event {
                        token = e.get_doc("_id").map(|d| d.to_buf());
                    }
                }
                if !self.by_event || token.is_none() {
                    token = cursor.get_doc("postBatchResumeToken").map(|d| d.to_buf());
                }
                let id = cursor.get("id").unwrap();
                let more = doc! {
                    "getMore": id, "collection": self.collection.unwrap_or("$cmd.aggregate"),
                    "batchSize": self.batch, "maxTimeMS": 500,
                };
                if address.get(0).is_none() {
                    break;
                }
                reply = c.command_raw(DB, &more);
            }
        }
        opened
    }

    fn open(self, token: Option<&DocBuf>) -> DocBuf {
        let mut stage = doc! {
            "fullDocument": "whenAvailable", "fullDocumentBeforeChange": "whenAvailable",
        };
        match token {
            Some(t) => stage.append("resumeAfter", t),
            // The stream begins at the first entry of all.
            None => stage.append("startAtOperationTime", Value::Timestamp { t: 0, i: 1 }),
        };
        let pipeline = array![doc! { "$changeStream": stage }];
        let mut open = DocBuf::new();
        match self.collection {
            Some(name) => open.append("aggregate", name),
            None => open.append("aggregate", 1),
        };
        open.append("pipeline", pipeline);
        open.append("cursor", doc! { "batchSize": self.batch });
        open
    }
}

/// The state of the clients' collections according to the events (see [`crate::clients`]).
#[derive(Default, Debug)]
pub struct Told {
    /// The counters as of their last events.
    pub counters: BTreeMap<i64, DocBuf>,
    /// The `_id`s of `rows`.
    pub rows: BTreeSet<String>,
    /// The `_id`s of `moves`.
    pub moves: BTreeSet<String>,
    /// The number of events.
    pub events: u64,
}

impl Told {
    /// Takes an event.
    ///
    /// # Panics
    /// If the event does not follow from those before: one was left out or came twice.
    pub fn apply(&mut self, event: Doc<'_>) {
        self.events += 1;
        let id = event.get_doc("documentKey").unwrap().get("_id").unwrap();
        match event.get_doc("ns").unwrap().get_str("coll").unwrap() {
            "counters" => {
                let full = event.get_doc("fullDocument").unwrap();
                let id = id.as_i64_exact().unwrap();
                let before = self.counters.insert(id, full.to_buf());
                let said = event
                    .get_doc("fullDocumentBeforeChange")
                    .map(|d| d.to_buf());
                assert_eq!(said, before, "{}", event.to_display());
            }
            name => {
                let all = if name == "rows" {
                    &mut self.rows
                } else {
                    &mut self.moves
                };
                let new = all.insert(id.as_str().unwrap().to_string());
                assert!(new, "twice: {}", event.to_display());
            }
        }
    }
}
