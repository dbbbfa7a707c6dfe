//! A YCSB worker: encodes its next operation before the clock starts, sends it, and judges the
//! answer.
//!
//! The commands are those that YCSB's MongoDB binding causes the Java driver to send.

use super::core::{Chooser, Operation, Workload};
use super::settings::Settings;
use muniment_load::conn::{Conn, Message, check, number_at};
use muniment_load::fail::Result;
use muniment_load::load::Worker;
use muniment_load::meter::Meter;
use muniment_value::{ArrayBuf, Doc, DocBuf, Value, array, doc};
use std::sync::Arc;
use std::time::{Duration, Instant};

const OK: &str = "OK";
const ERROR: &str = "ERROR";
const NOT_FOUND: &str = "NOT_FOUND";
const UNEXPECTED_STATE: &str = "UNEXPECTED_STATE";
const BATCHED_OK: &str = "BATCHED_OK";

/// The name of a kind of operation, and the name of those that failed.
type Kind = (&'static str, &'static str);
const READ: Kind = ("READ", "READ-FAILED");
const UPDATE: Kind = ("UPDATE", "UPDATE-FAILED");
const INSERT: Kind = ("INSERT", "INSERT-FAILED");
const SCAN: Kind = ("SCAN", "SCAN-FAILED");

/// The next operation.
enum Next {
    Nothing,
    Read,
    Update,
    /// An insert; the transaction phase gives the number of the new record.
    Insert {
        new: Option<u64>,
    },
    Scan,
    ReadModifyWrite,
}

/// The work of one connection.
pub(crate) struct Client {
    conn: Conn,
    workload: Arc<Workload>,
    settings: Arc<Settings>,
    chooser: Chooser,
    load: bool,
    next: Next,
    message: Message,
    /// The update that follows the read in a read-modify-write.
    second: Message,
    /// The key and the value of the operation; the buffers are reused.
    key: String,
    value: Vec<u8>,
    /// Documents that wait until their batch is full.
    batch: ArrayBuf,
    batched: u64,
    /// The first error of the server, for the report.
    first_error: Arc<std::sync::OnceLock<String>>,
}

impl Client {
    /// Makes a worker of the load phase, or of the transaction phase.
    pub(crate) fn new(
        conn: Conn,
        workload: &Arc<Workload>,
        settings: &Arc<Settings>,
        load: bool,
        seed: u64,
        first_error: &Arc<std::sync::OnceLock<String>>,
    ) -> Client {
        Client {
            conn,
            chooser: workload.chooser(seed),
            workload: workload.clone(),
            settings: settings.clone(),
            load,
            next: Next::Nothing,
            message: Message(Vec::new()),
            second: Message(Vec::new()),
            key: String::new(),
            value: Vec::new(),
            batch: ArrayBuf::new(),
            batched: 0,
            first_error: first_error.clone(),
        }
    }

    fn command(&self, body: DocBuf) -> Message {
        Message::command(&self.settings.database, &body)
    }

    fn write(&self, mut body: DocBuf) -> Message {
        if let Some(c) = &self.settings.concern {
            body.append("writeConcern", c);
        }
        match self.settings.unacknowledged {
            true => Message::unacknowledged(&self.settings.database, &body),
            false => self.command(body),
        }
    }

    fn binary(&mut self, key: &str, field: usize, out: &mut DocBuf) {
        let workload = self.workload.clone();
        let Some(name) = workload.fields.get(field) else {
            return;
        };
        let mut bytes = Vec::new();
        self.chooser.value(&workload, key, name, &mut bytes);
        out.append(
            name,
            Value::Binary {
                subtype: 0,
                bytes: &bytes,
            },
        );
    }

    fn document(&mut self, key: &str) -> DocBuf {
        let mut d = doc! { "_id": key };
        for i in 0..self.workload.fields.len() {
            self.binary(key, i, &mut d);
        }
        d
    }

    fn projection(&mut self, workload: &Workload, by_name: bool) -> Option<DocBuf> {
        let mut p = DocBuf::new();
        if !workload.read_all_fields {
            let field = self.chooser.field(workload);
            p.append(workload.fields.get(field)?, 1);
        } else if by_name && (workload.data_integrity || workload.read_all_by_name) {
            workload.fields.iter().for_each(|f| {
                p.append(f, 1);
            });
        } else {
            return None;
        }
        Some(p)
    }

    /// Encodes a read of the chosen key as the message.
    fn read(&mut self, workload: &Workload, by_name: bool) {
        let projection = self.projection(workload, by_name);
        self.message.write(&self.settings.database, false, |b| {
            b.field("find", workload.table.as_str());
            b.open_document("filter")
                .field("_id", self.key.as_str())
                .close();
            if let Some(p) = &projection {
                b.field("projection", p);
            }
            b.field("limit", 1).field("singleBatch", true);
        });
    }

    /// Encodes an update of the chosen key as the message, or as the second one.
    fn update(&mut self, workload: &Workload, second: bool) {
        let fields = match workload.write_all_fields {
            true => 0..workload.fields.len(),
            false => {
                let field = self.chooser.field(workload);
                field..field + 1
            }
        };
        let message = match second {
            true => &mut self.second,
            false => &mut self.message,
        };
        let unacknowledged = self.settings.unacknowledged;
        message.write(&self.settings.database, unacknowledged, |b| {
            b.field("update", workload.table.as_str());
            b.field("ordered", true);
            b.open_array("updates").open_document("0");
            b.open_document("q").field("_id", self.key.as_str()).close();
            b.open_document("u").open_document("$set");
            for name in workload.fields.get(fields).unwrap_or_default() {
                self.value.clear();
                self.chooser
                    .value(workload, &self.key, name, &mut self.value);
                let bytes = &self.value;
                b.field(name, Value::Binary { subtype: 0, bytes });
            }
            b.close().close().close().close();
            if let Some(c) = &self.settings.concern {
                b.field("writeConcern", c);
            }
        });
    }

    fn insert(&mut self, key: &str) -> Option<Message> {
        let document = self.document(key);
        let table = self.workload.table.clone();
        if self.settings.batch > 1 {
            self.batch.push(document);
            self.batched += 1;
            return (self.batched >= self.settings.batch).then(|| self.batch());
        }
        Some(if self.settings.upsert {
            self.write(doc! {
                "update": table,
                "ordered": true,
                "updates": array![doc! { "q": doc! { "_id": key }, "u": document, "upsert": true }],
            })
        } else {
            self.write(doc! { "insert": table, "ordered": true, "documents": array![document] })
        })
    }

    /// Encodes the waiting documents as one message.
    fn batch(&mut self) -> Message {
        self.batched = 0;
        let documents = std::mem::take(&mut self.batch);
        let table = self.workload.table.as_str();
        if self.settings.upsert {
            let mut updates = ArrayBuf::new();
            for d in documents.as_doc().iter().filter_map(|e| e.value().as_doc()) {
                let id = d.get("_id").unwrap_or(Value::Null);
                updates.push(
                    doc! { "q": doc! { "_id": id }, "u": doc! { "$set": d }, "upsert": true },
                );
            }
            return self.write(doc! { "update": table, "ordered": true, "updates": updates });
        }
        self.write(doc! { "insert": table, "ordered": false, "documents": documents })
    }

    /// Sends the message (the second one if `second` is set), records its latency and judges the
    /// reply.
    fn send(
        &mut self,
        second: bool,
        kind: Kind,
        meter: &mut Meter,
        judge: impl FnOnce(Doc<'_>) -> &'static str,
    ) -> Result<&'static str> {
        let start = Instant::now();
        let message = match second {
            true => &mut self.second,
            false => &mut self.message,
        };
        if kind != READ {
            meter.payload(message.0.len());
        }
        let status = if self.settings.unacknowledged && kind != READ {
            self.conn.send(message)?;
            OK
        } else {
            let reply = self.conn.call(message)?;
            match check(reply) {
                Ok(()) => judge(reply),
                Err(e) => {
                    let _ = self.first_error.set(e.0);
                    ERROR
                }
            }
        };
        meter.record(if status == OK { kind.0 } else { kind.1 }, start);
        meter.status(kind.0, status);
        Ok(status)
    }

    /// Performs a read, whose values are checked in integrity mode.
    fn do_read(&mut self, meter: &mut Meter) -> Result<()> {
        // The clones are made only in integrity mode, which needs them for the check.
        let check = self.workload.data_integrity;
        let check = check.then(|| (self.workload.clone(), self.key.clone()));
        let mut verified = None;
        let mut took = None;
        self.send(false, READ, meter, |reply| {
            let found = reply
                .get_doc("cursor")
                .and_then(|c| c.get_array("firstBatch"))
                .and_then(|b| b.values().next())
                .and_then(|v| v.as_doc());
            if let Some((workload, key)) = &check {
                took = Some(Instant::now());
                verified = Some(found.map_or(ERROR, |d| verify(workload, key, d)));
            }
            found.map_or(NOT_FOUND, |_| OK)
        })?;
        if let (Some(status), Some(start)) = (verified, took) {
            meter.record("VERIFY", start);
            meter.status("VERIFY", status);
        }
        Ok(())
    }

    fn do_update(&mut self, second: bool, meter: &mut Meter) -> Result<()> {
        self.send(second, UPDATE, meter, |reply| match number_at(reply, "n") {
            Some(n) if n > 0.0 => OK,
            _ => NOT_FOUND,
        })
        .map(|_| ())
    }

    /// Sends the prepared insert, and repeats it as the workload says; returns false if the load
    /// shall end.
    fn do_insert(&mut self, meter: &mut Meter) -> Result<bool> {
        if self.message.0.is_empty() {
            // The document waits for its batch, and YCSB counts it as done.
            meter.record(INSERT.0, Instant::now());
            meter.status(INSERT.0, BATCHED_OK);
            return Ok(true);
        }
        let mut tries = 0;
        loop {
            if self.send(false, INSERT, meter, |_| OK)? == OK {
                return Ok(true);
            }
            tries += 1;
            if !self.load || tries > self.workload.insert_retries {
                return Ok(!self.load || self.workload.keep_going);
            }
            let wait = self.workload.insert_retry_interval * (0.8 + 0.4 * self.chooser.unit());
            std::thread::sleep(Duration::try_from_secs_f64(wait).unwrap_or_default());
        }
    }

    fn do_scan(&mut self, meter: &mut Meter) -> Result<u64> {
        let start = Instant::now();
        let mut n = 0;
        let mut status = OK;
        loop {
            let reply = self.conn.call(&mut self.message)?;
            if let Err(e) = check(reply) {
                let _ = self.first_error.set(e.0);
                status = ERROR;
                break;
            }
            let Some(cursor) = reply.get_doc("cursor") else {
                break;
            };
            for batch in ["firstBatch", "nextBatch"] {
                n += cursor.get_array(batch).map_or(0, |b| b.count() as u64);
            }
            let id = cursor.get("id").and_then(|v| v.as_i64_exact()).unwrap_or(0);
            if id == 0 {
                break;
            }
            let more = doc! { "getMore": id, "collection": self.workload.table.as_str() };
            self.message = self.command(more);
        }
        if n == 0 {
            status = ERROR;
        }
        meter.record(if status == OK { SCAN.0 } else { SCAN.1 }, start);
        meter.status(SCAN.0, status);
        Ok(n)
    }
}

/// Checks that every value is the one that follows from its key and field.
fn verify(w: &Workload, key: &str, d: Doc<'_>) -> &'static str {
    let mut want = Vec::new();
    let mut fields = 0;
    for e in d {
        let Value::Binary { bytes: got, .. } = e.value() else {
            continue;
        };
        want.clear();
        Workload::checked_value(key, e.name(), w.checked_length(), &mut want);
        if got != want {
            return UNEXPECTED_STATE;
        }
        fields += 1;
    }
    if fields == 0 { ERROR } else { OK }
}

impl Worker for Client {
    fn prepare(&mut self) -> bool {
        let workload = self.workload.clone();
        if self.load {
            let key = workload.key(workload.next_load_key());
            self.message = self.insert(&key).unwrap_or(Message(Vec::new()));
            self.next = Next::Insert { new: None };
            return true;
        }
        let Some(operation) = self.chooser.operation(&workload) else {
            return false;
        };
        if operation == Operation::Insert {
            let n = workload.new_keys.take();
            let key = workload.key(n);
            self.message = self.insert(&key).unwrap_or(Message(Vec::new()));
            self.next = Next::Insert { new: Some(n) };
            return true;
        }
        let n = self.chooser.record(&workload);
        workload.write_key(n, &mut self.key);
        self.next = match operation {
            Operation::Read => {
                self.read(&workload, true);
                Next::Read
            }
            Operation::Update => {
                self.update(&workload, false);
                Next::Update
            }
            Operation::ReadModifyWrite => {
                self.read(&workload, false);
                self.update(&workload, true);
                Next::ReadModifyWrite
            }
            _ => {
                let n = self.chooser.scan_length();
                let mut body = doc! {
                    "find": workload.table.as_str(),
                    "filter": doc! { "_id": doc! { "$gte": self.key.as_str() } },
                    "sort": doc! { "_id": 1 },
                };
                if let Some(p) = self.projection(&workload, false) {
                    body.append("projection", p);
                }
                body.append("limit", n as i64);
                self.message = self.command(body);
                Next::Scan
            }
        };
        true
    }

    fn operate(&mut self, meter: &mut Meter) -> Result<u64> {
        match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Nothing => Ok(0),
            Next::Read => self.do_read(meter).map(|()| 1),
            Next::Update => self.do_update(false, meter).map(|()| 1),
            Next::Scan => self.do_scan(meter),
            Next::Insert { new } => {
                let goes_on = self.do_insert(meter);
                if let Some(n) = new {
                    // A failed insert is acknowledged too; keys above it would never become
                    // readable otherwise.
                    self.workload.new_keys.acknowledge(n);
                }
                if !goes_on? {
                    let why = self.first_error.get().cloned().unwrap_or_default();
                    return Err(muniment_load::fail::Failure(format!(
                        "an insert failed: {why}"
                    )));
                }
                Ok(1)
            }
            Next::ReadModifyWrite => {
                let start = Instant::now();
                self.do_read(meter)?;
                self.do_update(true, meter)?;
                meter.record("READ-MODIFY-WRITE", start);
                Ok(1)
            }
        }
    }

    fn finish(&mut self) -> Result<()> {
        if self.batched > 0 {
            // YCSB loses an incomplete last batch; here it is sent.
            let mut last = self.batch();
            self.conn.send(&mut last)?;
            if !self.settings.unacknowledged {
                check(self.conn.receive()?)?;
            }
        }
        if self.settings.unacknowledged {
            self.conn.command("admin", &doc! { "ping": 1 })?;
        }
        Ok(())
    }
}
