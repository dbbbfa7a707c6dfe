//! What clients do through routers: each is a fibre.

use super::cluster::{FIRST_ROUTER, ROUTERS, SHARDS, run_command, shard_name, short};
use super::fibres::{Here, here};
use super::oracle::{Asked, Many, Row, Seen};
use super::world::MS;
use muniment_value::{Code, Doc, DocBuf, Value, array, doc};
use std::sync::Arc;

/// The database and the collection.
pub(super) const DB: &str = "d";
pub(super) const ROWS: &str = "c";
/// The collection with accounts.
pub(super) const BANK: &str = "bank";
/// Keys are from 0 up to this.
pub(super) const KEYS: i64 = 100;
pub(super) const CLIENTS: usize = 3;
/// Clients with transactions have numbers from here on.
pub(super) const BANKERS: usize = 20;
/// Documents that are there at the beginning.
pub(super) const FIRST: i64 = 40;

/// What a reply says.
pub(super) enum Said {
    Done(DocBuf),
    Failed(Code, String),
    /// The connection has ended.
    Lost,
}

/// Errors that tell of servers that cannot be reached, or have ended.
const OF_FAULTS: [Code; 14] = [
    Code::HostUnreachable,
    Code::SocketException,
    Code::NetworkTimeout,
    Code::FailedToSatisfyReadPreference,
    Code::NotWritablePrimary,
    Code::NotPrimaryNoSecondaryOk,
    Code::NotPrimaryOrSecondary,
    Code::InterruptedAtShutdown,
    Code::ShutdownInProgress,
    Code::InterruptedDueToReplStateChange,
    Code::PrimarySteppedDown,
    Code::WriteConcernFailed,
    Code::CallbackCanceled,
    Code::Interrupted,
];

fn said(reply: Option<DocBuf>) -> Said {
    let Some(reply) = reply else {
        return Said::Lost;
    };
    let failed = |d: Doc<'_>| {
        let code = d.get("code").and_then(|v| v.as_i64_exact()).unwrap_or(-1);
        let text = d.get_str("errmsg").unwrap_or_default().to_string();
        Said::Failed(Code(code as i32), text)
    };
    let d = reply.as_doc();
    if !d.get("ok").is_some_and(|v| v.truthy()) {
        return failed(d);
    }
    let first = d
        .get_array("writeErrors")
        .and_then(|all| all.values().next());
    if let Some(e) = first.and_then(|v| v.as_doc()) {
        return failed(e);
    }
    if let Some(e) = d.get_doc("writeConcernError") {
        return failed(e);
    }
    Said::Done(reply)
}

pub(super) fn number(d: Doc<'_>, name: &str) -> i64 {
    d.get(name)
        .and_then(muniment_value::number::to_i64_exact)
        .unwrap_or(i64::MIN)
}

fn keys(low: i64, high: i64) -> DocBuf {
    doc! { "k": doc! { "$gte": low, "$lt": high } }
}

/// A client.
pub(super) struct Client {
    pub(super) here: Arc<Here>,
    pub(super) number: usize,
    pub(super) router: usize,
    /// The number of its last transaction or retryable write.
    pub(super) transaction: i64,
    next_id: i64,
}

impl Client {
    pub(super) fn new(number: usize) -> Client {
        let here = here().unwrap();
        Client {
            here,
            number,
            router: FIRST_ROUTER + number % ROUTERS,
            transaction: 0,
            next_id: 1000 * (number as i64 + 1),
        }
    }

    pub(super) fn below(&self, n: u64) -> u64 {
        self.here.world.lock().random.below(n)
    }

    pub(super) fn fails(&self, why: String) {
        self.here
            .world
            .lock()
            .fail(format!("client {}: {why}", self.number));
    }

    /// Nothing more is to be begun.
    pub(super) fn is_over(&self) -> bool {
        let inner = self.here.world.lock();
        inner.ends || inner.calm
    }

    /// Sends a command to the client's router.
    pub(super) fn send(&self, command: &DocBuf, db: &str) -> Said {
        let mut body = command.clone();
        body.append("$db", db);
        let world = &self.here.world;
        let (state, conn) = {
            let mut inner = world.lock();
            let process = &inner.processes[self.router];
            let (run, state, conn) = (
                process.run,
                process.state.clone(),
                Arc::clone(&process.conn),
            );
            let Some(state) = state else {
                return Said::Lost;
            };
            let fibre = inner.fibres.get_mut(&self.here.fibre).unwrap();
            fibre.place = Some((self.router, run));
            inner.trace(|| {
                format!(
                    "client {} at {}: {}",
                    self.number,
                    self.router,
                    short(body.as_doc())
                )
            });
            inner.oracle.doing.insert(self.number, short(body.as_doc()));
            body.append_some("$clusterTime", inner.oracle.time.clone());
            (state, conn)
        };
        let reply = run_command(&state, &conn, body.as_doc());
        let mut inner = world.lock();
        let dead = inner.is_dead(self.here.fibre);
        let fibre = inner.fibres.get_mut(&self.here.fibre).unwrap();
        (fibre.place, fibre.looks, fibre.dead_rests) = (None, 0, 0);
        inner.trace(|| format!("client {} is told: {}", self.number, short(reply.as_doc())));
        inner.oracle.doing.insert(self.number, "pauses".into());
        if !dead {
            inner.oracle.heard(reply.as_doc());
        }
        let unheard = !inner.calm && (self.number < CLIENTS || self.number >= BANKERS);
        let unheard = unheard && inner.rough.unheard > 0 && {
            let one_in = inner.rough.unheard;
            inner.random.one_in(one_in)
        };
        said((!dead && !unheard).then_some(reply))
    }

    /// Sends a command, which is one of a session.
    fn ask(&mut self, mut command: DocBuf) -> Said {
        self.pause_if_down();
        let id = [self.number as u8 + 1; 16];
        let id = Value::Binary {
            subtype: 4,
            bytes: &id,
        };
        command.append("lsid", doc! { "id": id });
        self.send(&command, DB)
    }

    /// Has a read show what was acknowledged before, although the member that it comes to may have been deposed without
    /// knowing it. In sets of one member that is so without asking.
    pub(super) fn concern(&self, level: &str) -> DocBuf {
        let inner = self.here.world.lock();
        let mut concern = doc! { "level": level };
        let time = inner.oracle.time.as_ref();
        let time = time.and_then(|d| d.as_doc().get("clusterTime"));
        concern.append_some("afterClusterTime", time.filter(|_| inner.has_elections()));
        concern
    }

    /// A read with a concern, if it needs one.
    fn concerned(&self, mut command: DocBuf) -> DocBuf {
        let has_one = command.as_doc().get("readConcern").is_some();
        if !has_one && self.here.world.lock().has_elections() {
            command.append("readConcern", self.concern("majority"));
        }
        command
    }

    /// Waits until the router is up, or takes another one.
    pub(super) fn pause_if_down(&mut self) {
        for _ in 0..100 {
            let up = {
                let inner = self.here.world.lock();
                inner.ends || inner.processes[self.router].state.is_some()
            };
            if up {
                return;
            }
            self.router = FIRST_ROUTER + self.below(ROUTERS as u64) as usize;
            self.here.sleep(20 * MS);
        }
    }

    /// Whether an error may come while servers fail. If not, the run has failed.
    pub(super) fn may_fail(&self, what: &DocBuf, code: Code, text: &str) -> bool {
        if OF_FAULTS.contains(&code) {
            return true;
        }
        let what = short(what.as_doc());
        self.fails(format!("{what} fails: {} {text}", code.0));
        false
    }

    /// Sends a retryable statement until it is acknowledged; `None` if the run is over before.
    pub(super) fn insist(&mut self, statement: DocBuf) -> Option<DocBuf> {
        self.transaction += 1;
        let mut statement = statement;
        statement.append("txnNumber", self.transaction);
        statement.append("writeConcern", doc! { "w": "majority" });
        let mut repeats = 0;
        loop {
            if self.here.world.lock().ends {
                return None;
            }
            match self.ask(statement.clone()) {
                Said::Done(reply) => {
                    let mut inner = self.here.world.lock();
                    inner.course.writes += 1;
                    inner.course.retries += u64::from(repeats > 0);
                    return Some(reply);
                }
                Said::Lost => {}
                Said::Failed(code, text) => {
                    if !self.may_fail(&statement, code, &text) {
                        return None;
                    }
                }
            }
            repeats += 1;
            self.router = FIRST_ROUTER + self.below(ROUTERS as u64) as usize;
            let longest = [50, 200, 2000][self.below(3) as usize];
            let pause = self.below(longest) * MS;
            self.here.sleep(pause);
        }
    }

    fn insert(&mut self) {
        let (id, k) = (self.next_id, self.below(KEYS as u64) as i64);
        self.next_id += 1;
        {
            let mut inner = self.here.world.lock();
            let row = Row {
                k,
                ..Row::default()
            };
            inner.oracle.rows.insert(id, row);
        }
        let d = doc! { "_id": id, "k": k, "n": 0_i64, "m": 0_i64 };
        let Some(reply) = self.insist(doc! { "insert": ROWS, "documents": array![d] }) else {
            return;
        };
        if number(reply.as_doc(), "n") != 1 {
            self.fails(format!("an insert of {id} says {reply:?}"));
        }
        let mut inner = self.here.world.lock();
        let tick = inner.oracle.tick();
        inner.oracle.rows.get_mut(&id).unwrap().there = Some(tick);
    }

    /// One of the client's own documents, which is there.
    fn own(&self) -> Option<(i64, i64)> {
        let mut inner = self.here.world.lock();
        let inner = &mut *inner;
        let own = |id: i64| {
            id % CLIENTS as i64 == self.number as i64 || id / 1000 == self.number as i64 + 1
        };
        let there: Vec<(i64, i64)> = (inner.oracle.rows.iter())
            .filter(|(id, row)| own(**id) && row.there.is_some() && row.delete_begun.is_none())
            .filter(|(id, _)| **id < FIRST || **id / 1000 == self.number as i64 + 1)
            .map(|(id, row)| (*id, row.k))
            .collect();
        match there.is_empty() {
            true => None,
            false => Some(inner.random.pick(&there)),
        }
    }

    fn increment(&mut self) {
        let Some((id, k)) = self.own() else { return };
        {
            let mut inner = self.here.world.lock();
            let tick = inner.oracle.tick();
            inner.oracle.rows.get_mut(&id).unwrap().begun.push(tick);
        }
        // Some name no key, and so have to be found first.
        let q = match self.below(4) {
            0 => doc! { "_id": id },
            _ => doc! { "_id": id, "k": k },
        };
        let u = doc! { "q": q, "u": doc! { "$inc": doc! { "n": 1_i64 } } };
        let Some(reply) = self.insist(doc! { "update": ROWS, "updates": array![u] }) else {
            return;
        };
        if number(reply.as_doc(), "n") != 1 {
            self.fails(format!("an update of {id}, key {k}, says {reply:?}"));
        }
        let mut inner = self.here.world.lock();
        let tick = inner.oracle.tick();
        inner.oracle.rows.get_mut(&id).unwrap().done.push(tick);
    }

    fn delete(&mut self) {
        let Some((id, k)) = self.own() else { return };
        {
            let mut inner = self.here.world.lock();
            let tick = inner.oracle.tick();
            inner.oracle.rows.get_mut(&id).unwrap().delete_begun = Some(tick);
        }
        let q = doc! { "q": doc! { "_id": id, "k": k }, "limit": 1 };
        let Some(reply) = self.insist(doc! { "delete": ROWS, "deletes": array![q] }) else {
            return;
        };
        if number(reply.as_doc(), "n") != 1 {
            self.fails(format!("a deletion of {id}, key {k}, says {reply:?}"));
        }
        let mut inner = self.here.world.lock();
        let tick = inner.oracle.tick();
        inner.oracle.rows.get_mut(&id).unwrap().gone = Some(tick);
    }

    /// A range of keys.
    fn range(&self) -> (i64, i64) {
        let (a, b) = (
            self.below(KEYS as u64) as i64,
            self.below(KEYS as u64) as i64,
        );
        match self.below(3) {
            0 => (0, KEYS),
            _ => (a.min(b), a.max(b) + 1),
        }
    }

    pub(super) fn begin(&self, (low, high): (i64, i64)) -> Asked {
        let mut inner = self.here.world.lock();
        let begun = inner.oracle.tick();
        Asked { low, high, begun }
    }

    fn many(&mut self) {
        let (low, high) = self.range();
        let asked = self.begin((low, high));
        let index = {
            let mut inner = self.here.world.lock();
            inner.oracle.many.push(Many {
                low,
                high,
                begun: asked.begun,
                done: None,
            });
            inner.oracle.many.len() - 1
        };
        let u = doc! {
            "q": keys(low, high), "u": doc! { "$inc": doc! { "m": 1_i64 } }, "multi": true,
        };
        let command = doc! {
            "update": ROWS, "updates": array![u], "writeConcern": doc! { "w": "majority" },
        };
        match self.ask(command.clone()) {
            Said::Done(reply) => {
                let mut inner = self.here.world.lock();
                let inner = &mut *inner;
                let n = number(reply.as_doc(), "n");
                let counted = inner.oracle.check_count(n, &asked);
                if let Err(why) = counted {
                    inner.fail(format!(
                        "client {}: {}: {why}",
                        self.number,
                        short(command.as_doc())
                    ));
                }
                let tick = inner.oracle.tick();
                inner.oracle.many[index].done = Some(tick);
                inner.course.many += 1;
            }
            Said::Lost => {}
            Said::Failed(code, text) => drop(self.may_fail(&command, code, &text)),
        }
    }

    /// Reads documents to the end of the cursor; `None` if that cannot be.
    pub(super) fn read(&mut self, command: DocBuf) -> Option<Vec<Seen>> {
        let mut found = Vec::new();
        let collection = command.as_doc().first().and_then(|e| e.value().as_str());
        let collection = collection.unwrap_or_default().to_string();
        let (mut command, mut batches) = (self.concerned(command), 0);
        loop {
            let reply = match self.ask(command.clone()) {
                Said::Done(reply) => reply,
                Said::Lost => return None,
                // The cursor has ended with a server, or rows that it needs are gone.
                Said::Failed(
                    Code::CursorNotFound
                    | Code::QueryPlanKilled
                    | Code::SnapshotUnavailable
                    | Code::SnapshotTooOld,
                    _,
                ) => return None,
                Said::Failed(code, text) => {
                    self.may_fail(&command, code, &text);
                    return None;
                }
            };
            let cursor = reply.as_doc().get_doc("cursor").unwrap_or(Doc::EMPTY);
            let batch = cursor
                .get_array("firstBatch")
                .or(cursor.get_array("nextBatch"));
            for d in batch
                .unwrap_or(Doc::EMPTY)
                .values()
                .filter_map(|v| v.as_doc())
            {
                found.push(Seen {
                    id: number(d, "_id"),
                    k: number(d, "k"),
                    n: number(d, "n"),
                    m: number(d, "m"),
                });
            }
            let id = number(cursor, "id");
            if id == 0 {
                return Some(found);
            }
            batches += 1;
            let pause = self.below(30) * MS;
            self.here.sleep(pause);
            command = doc! { "getMore": id, "collection": &collection, "batchSize": 8 };
            if batches > 100 {
                return None;
            }
        }
    }

    fn scan(&mut self) {
        let (low, high) = self.range();
        let asked = self.begin((low, high));
        let filter = match (low, high) {
            (0, KEYS) => DocBuf::new(),
            _ => keys(low, high),
        };
        let batch = [2, 8, 1000][self.below(3) as usize];
        let mut command = doc! { "find": ROWS, "filter": filter, "batchSize": batch };
        match self.below(3) {
            0 => drop(command.append("readConcern", self.concern("snapshot"))),
            1 => drop(command.append("sort", doc! { "k": 1, "_id": 1 })),
            _ => {}
        }
        let Some(found) = self.read(command.clone()) else {
            return;
        };
        let mut inner = self.here.world.lock();
        inner.course.scans += 1;
        let checked = inner.oracle.check_scan(&found, &asked);
        if let Err(why) = checked {
            inner.fail(format!(
                "client {}: {}: {why}",
                self.number,
                short(command.as_doc())
            ));
        }
    }

    fn point(&mut self) {
        let Some((id, k)) = self.own() else { return };
        let asked = self.begin((k, k + 1));
        let filter = match self.below(3) {
            0 => doc! { "_id": id },
            _ => doc! { "k": k, "_id": id },
        };
        let command = doc! { "find": ROWS, "filter": filter };
        let Some(found) = self.read(command) else {
            return;
        };
        let mut inner = self.here.world.lock();
        inner.course.reads += 1;
        let [seen] = found.as_slice() else {
            return inner.fail(format!(
                "client {}: of document {id} with key {k} there is {found:?}",
                self.number
            ));
        };
        // Nobody else increments it.
        let exact = inner.oracle.rows[&id].done.len() as i64 == seen.n;
        let checked = inner.oracle.check_row(seen, &asked);
        if let (Err(_), _) | (_, false) = (&checked, exact) {
            inner.fail(format!(
                "client {}: {seen:?}: {checked:?}, exact {exact}",
                self.number
            ));
        }
    }

    fn count(&mut self) {
        let (low, high) = self.range();
        let asked = self.begin((low, high));
        let command = match (low, high) {
            (0, KEYS) => doc! { "count": ROWS },
            _ => doc! { "count": ROWS, "query": keys(low, high) },
        };
        let command = self.concerned(command);
        match self.ask(command.clone()) {
            Said::Done(reply) => {
                let mut inner = self.here.world.lock();
                inner.course.counts += 1;
                let counted = inner
                    .oracle
                    .check_count(number(reply.as_doc(), "n"), &asked);
                if let Err(why) = counted {
                    inner.fail(format!(
                        "client {}: {}: {why}",
                        self.number,
                        short(command.as_doc())
                    ));
                }
            }
            Said::Lost | Said::Failed(Code::QueryPlanKilled | Code::SnapshotUnavailable, _) => {}
            Said::Failed(code, text) => drop(self.may_fail(&command, code, &text)),
        }
    }

    pub(super) fn live(&mut self) {
        while !self.is_over() {
            match self.below(20) {
                0..=2 => self.insert(),
                3..=8 => self.increment(),
                9 => self.delete(),
                10..=11 => self.many(),
                12..=14 => self.scan(),
                15..=17 => self.point(),
                _ => self.count(),
            }
            let pause = self.below(120) * MS;
            self.here.sleep(pause);
        }
    }

    /// Changes where documents live.
    pub(super) fn live_as_mover(&mut self) {
        while !self.is_over() {
            self.router = FIRST_ROUTER + self.below(ROUTERS as u64) as usize;
            self.pause_if_down();
            super::faults::aim(&mut self.here.world.lock());
            let moved = self.move_some();
            {
                let mut inner = self.here.world.lock();
                match moved {
                    true => inner.course.moves += 1,
                    false => inner.course.failed_moves += 1,
                }
            }
            let pause = self.below(300) * MS;
            self.here.sleep(pause);
        }
    }

    /// Asks for a move, which may not be possible.
    fn move_some(&mut self) -> bool {
        let (a, b) = (self.below(10) as i64 * 10, self.below(10) as i64 * 10);
        let to = shard_name(1 + self.below(SHARDS as u64) as usize);
        let name = [ROWS, ROWS, BANK][self.below(3) as usize];
        let ns = format!("{DB}.{name}");
        let command = match self.below(6) {
            0 => doc! { "split": &ns, "middle": doc! { "k": a } },
            1 => doc! { "mergeAllChunksOnShard": &ns, "shard": to },
            2 => doc! { "moveRange": &ns, "min": doc! { "k": a }, "toShard": to },
            3 => {
                doc! { "moveRange": &ns, "max": doc! { "k": a }, "toShard": to, "waitForDelete": true }
            }
            _ => doc! {
                "moveRange": &ns, "min": doc! { "k": a.min(b) }, "max": doc! { "k": a.max(b) + 10 },
                "toShard": to,
            },
        };
        matches!(self.send(&command, "admin"), Said::Done(_))
    }
}

/// Sends a command until it is done.
pub(super) fn must(client: &mut Client, command: &DocBuf, db: &str) {
    for _ in 0..200 {
        client.pause_if_down();
        match client.send(command, db) {
            Said::Done(_) => return,
            Said::Lost => {}
            Said::Failed(code, text) => {
                let again = [
                    Code::LockTimeout,
                    Code::LockBusy,
                    Code::ConflictingOperationInProgress,
                ];
                if !again.contains(&code) && !client.may_fail(command, code, &text) {
                    return;
                }
            }
        }
        if client.here.world.lock().ends {
            return;
        }
        client.here.sleep(100 * MS);
    }
    client.fails(format!("{command:?} cannot be done"));
}
