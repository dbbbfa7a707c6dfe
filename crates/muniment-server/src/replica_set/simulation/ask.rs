//! What clients do, and what is read.

use super::clients::{DB, OTHER, Op, ROWS, Said, Wait, said, tokens_of};
use super::member::Running;
use super::oracle::{Change, Found, Rows, compare};
use super::random::Random;
use super::sim::{MS, Sim, What};
use muniment_consensus::{Concern, W};
use muniment_member::Role;
use muniment_value::{Code, Doc, DocBuf, doc, number};

/// The errors that a statement may fail with.
const EXPECTED: [Code; 7] = [
    Code::NotWritablePrimary,
    Code::InterruptedDueToReplStateChange,
    Code::PrimarySteppedDown,
    Code::OutOfDiskSpace,
    Code::NoSuchTransaction,
    Code::WriteConflict,
    Code::NotPrimaryNoSecondaryOk,
];
/// Further errors that a change of the catalog may fail with.
const OF_CATALOG: [Code; 3] = [
    Code::NamespaceNotFound,
    Code::NamespaceExists,
    Code::IndexNotFound,
];

/// The rows that a member shows; `None` where nothing is known of the majority.
pub(super) fn rows_of(r: &mut Running, level: &str) -> Result<Option<Rows>, String> {
    let mut rows = Rows::new();
    for collection in [ROWS, OTHER] {
        let mut body = doc! {
            "find": collection, "batchSize": 100_000, "singleBatch": true, "$db": DB,
        };
        body.append("readConcern", doc! { "level": level });
        body.append("$readPreference", doc! { "mode": "secondaryPreferred" });
        // The command would wait, and only this thread can bring what it waits for.
        let store = r.store();
        let there = store.collection(&format!("{DB}.{collection}"));
        let is_new = there.zip(store.majority());
        let is_new = is_new.is_some_and(|(c, majority)| c.named_since() > majority.at);
        if is_new && level == "majority" {
            return Ok(None);
        }
        let reply = r.command(body.as_doc());
        if let Said::Failed(code, _) = said(reply.as_doc())
            && code == Code::SnapshotUnavailable.0
            && level == "majority"
        {
            return Ok(None);
        }
        let cursor = reply.as_doc().get_doc("cursor");
        let batch = cursor.and_then(|c| c.get_array("firstBatch"));
        let batch = batch.ok_or_else(|| format!("a find says {reply:?}"))?;
        for d in batch.values().filter_map(|v| v.as_doc()) {
            let id = d.get("_id").and_then(number::to_i64_exact).unwrap_or(-1);
            rows.insert((collection, id), tokens_of(d));
        }
    }
    Ok(Some(rows))
}

impl Sim {
    /// The rows as a member shows them; `None` where it knows of no commit point that has the
    /// collections.
    pub(super) fn rows(&mut self, m: usize, level: &str) -> Result<Option<Rows>, String> {
        let r = self.members[m].running.as_mut().ok_or("it is not up")?;
        rows_of(r, level).map_err(|e| format!("member {m}: {e}"))
    }

    /// Reads all rows from some member, in one of two ways.
    pub(super) fn read(&mut self) -> Found {
        let m = self.random_below(self.members.len() as u64) as usize;
        let Some(r) = &self.members[m].running else {
            return Ok(());
        };
        let log = self.seen[m].log.len() as u64;
        let (Ok(p), Ok(c)) = (r.store().position(), r.store().committed()) else {
            return Ok(());
        };
        let state = r.set().member().role;
        if !matches!(state, Role::Primary | Role::Secondary) || p.applied.index != log {
            return Ok(());
        }
        self.course.reads += 1;
        let majority = self.random.one_in(2) && r.store().majority().is_some();
        let what = format!(
            "member {m}, read as {}",
            if majority { "majority" } else { "local" }
        );
        let end = if majority { c.index.min(log) } else { log };
        let wanted = self
            .oracle
            .rows(self.seen[m].log.iter().take(end as usize))?;
        let level = if majority { "majority" } else { "local" };
        let Some(found) = self.rows(m, level)? else {
            return self.after(m);
        };
        compare(&what, &found, &wanted)?;
        if majority {
            if end > self.oracle.committed.len() as u64 {
                return Err(format!("{what}: it shows {end}, which is not committed"));
            }
            if end < self.seen[m].shown {
                return Err(format!("{what}: it goes back to {end}"));
            }
            self.seen[m].shown = end;
        }
        self.after(m)
    }

    pub(super) fn client(&mut self, c: usize) -> Found {
        let next = 1 + self.random_below(2 * self.world.write_every);
        self.at(next, What::Client(c));
        if self.clients[c].wait.is_some() {
            return self.waits(c);
        }
        if self.clients[c].op.is_none() {
            if self.calm {
                return Ok(());
            }
            let Sim {
                clients,
                random,
                token,
                ..
            } = self;
            clients[c].draw(random, token);
        }
        let open = self.clients[c].op.as_ref().and_then(|op| op.open);
        if let Some((_, to, run)) = open {
            if self.is(to, run) {
                return self.send(c, to);
            }
            // It has gone with its process.
            self.clients[c].op = None;
            return Ok(());
        }
        let primary = self.clients[c]
            .primary
            .filter(|_| self.random.below(10) > 0);
        let primaries: Vec<usize> = (0..self.members.len())
            .filter(|m| self.seen[*m].leads)
            .collect();
        let to = match (primary, primaries.is_empty()) {
            (Some(m), _) => m,
            (None, false) => self.random.pick(&primaries),
            // Most clients wait until a member leads.
            (None, true) if self.random.below(4) > 0 => return Ok(()),
            (None, true) => self.random_below(self.members.len() as u64) as usize,
        };
        self.clients[c].primary = None;
        if self.members[to].running.is_none() {
            return Ok(());
        }
        if !self.made {
            return self.make(to);
        }
        match self.random.below(20) {
            0 => self.side(to),
            1 => self.drawn(to),
            _ => self.send(c, to),
        }
    }

    /// Does something to collections beside the rows: what comes and goes there is compared with the
    /// log alone. (The rows may be held by open transactions, for which a change of the catalog waits.)
    pub(super) fn side(&mut self, to: usize) -> Found {
        let names = ["side", "edge"];
        let (name, other) = (self.random.pick(&names), self.random.pick(&names));
        let (n, x) = (self.random.below(6) as i32, self.random.below(50) as i32);
        let key = |n: i32| format!("x{n}");
        let one = |n: i32, value: i32| {
            let mut d = DocBuf::new();
            d.append(&key(n), value);
            d
        };
        let below = |n: i32, value: i32| {
            let mut d = DocBuf::new();
            d.append(&key(n), doc! { "$lt": value });
            d
        };
        let mut body = match self.random.below(9) {
            0 => {
                let index = doc! { "name": key(n), "key": one(n, 1) };
                doc! { "createIndexes": name, "indexes": muniment_value::array![index] }
            }
            1 => doc! { "dropIndexes": name, "index": key(n) },
            2 => doc! { "drop": name },
            3 => {
                doc! { "create": name, "clusteredIndex": doc! { "key": doc! { "_id": 1 }, "unique": true } }
            }
            4 => doc! {
                "renameCollection": format!("{DB}.{name}"), "to": format!("{DB}.{other}2"),
                "dropTarget": true,
            },
            5 => {
                let q = doc! { "q": below(n, x), "limit": 0 };
                doc! { "delete": name, "deletes": muniment_value::array![q] }
            }
            6 => {
                let u = doc! { "$inc": one(n, 1), "$set": doc! { "y": x } };
                let q = doc! { "q": doc! { "_id": doc! { "$lt": x } }, "u": u, "multi": true };
                doc! { "update": name, "updates": muniment_value::array![q] }
            }
            _ => {
                let docs: muniment_value::ArrayBuf = (0..=n)
                    .map(|i| {
                        let mut d = one(i, x);
                        d.append("_id", x + i);
                        d.append("z", muniment_value::array![i, x]);
                        d
                    })
                    .collect();
                doc! { "insert": name, "documents": docs, "ordered": false }
            }
        };
        let of_admin = body.as_doc().get("renameCollection").is_some();
        body.append("$db", if of_admin { "admin" } else { DB });
        body.append("writeConcern", doc! { "w": 1 });
        let r = self.members[to].running.as_mut().unwrap();
        let reply = r.command(body.as_doc());
        let fell = self.members[to].fell();
        self.look(to)?;
        if let Said::Failed(code, text) = said(reply.as_doc()) {
            let ours = EXPECTED.iter().chain(&OF_CATALOG).any(|c| c.0 == code);
            // Some of what is inserted is there already, or it is renamed to itself.
            let ours = ours || code == Code::DuplicateKey.0 || code == Code::IllegalOperation.0;
            if !ours && !fell && !self.members[to].hurt {
                return Err(format!("member {to}: {body:?} fails: {code} {text}"));
            }
        }
        self.after(to)
    }

    /// Sends what a grammar draws, right or not, to databases of its own: whatever a member accepts,
    /// all have to apply, and to open again.
    pub(super) fn drawn(&mut self, to: usize) -> Found {
        let Sim {
            grammar, random, ..
        } = self;
        let drawn = grammar.command(&mut |n| random.below(n));
        let mut body = drawn.body;
        body.append("$db", &*drawn.db);
        if !matches!(
            body.as_doc().first().map(|e| e.name()),
            Some("profile" | "validate")
        ) {
            body.append("writeConcern", doc! { "w": 1 });
        }
        let r = self.members[to].running.as_mut().unwrap();
        let reply = r.command(body.as_doc());
        let fell = self.members[to].fell();
        self.look(to)?;
        if let Said::Failed(code, text) = said(reply.as_doc())
            && code == Code::InternalError.0
            && !fell
            && !self.members[to].hurt
        {
            return Err(format!("member {to}: {body:?} fails: {code} {text}"));
        }
        self.course.drawn += 1;
        self.after(to)
    }

    /// Makes the collections and their indexes.
    pub(super) fn make(&mut self, to: usize) -> Found {
        let key = |name: &str, key: DocBuf, unique: bool| doc! { "name": name, "key": key, "unique": unique };
        let r = self.members[to].running.as_mut().unwrap();
        let mut done = true;
        for collection in [ROWS, OTHER] {
            let indexes = muniment_value::array![
                key("a", doc! { "a": 1 }, false),
                key("m", doc! { "m": 1, "a": -1 }, false),
                key("u", doc! { "u": 1 }, collection == ROWS)
            ];
            let body = doc! {
                "createIndexes": collection, "indexes": indexes, "$db": DB,
                "writeConcern": doc! { "w": 1 },
            };
            done &= said(r.command(body.as_doc()).as_doc()) == Said::Done;
        }
        let last = r.store().last_commit().map_or(u64::MAX, |c| c.index);
        let committed = r.store().committed().map_or(0, |p| p.index);
        self.made = done && committed >= last;
        self.after(to)
    }

    pub(super) fn send(&mut self, c: usize, to: usize) -> Found {
        let mut op = self.clients[c].op.take().unwrap();
        op.attempts += 1;
        self.course.retries += u64::from(op.attempts > 1);
        let mut outcome = Said::Done;
        // Of a transaction that may be committed, only the commit is sent again.
        let from = match op.unsure {
            true => op.commands.len() - 1,
            false => op.open.take().map_or(0, |(next, ..)| next),
        };
        let (run, mut random) = (self.members[to].run, Random::new(self.random.next()));
        let r = self.members[to].running.as_mut().unwrap();
        let mut reply = DocBuf::new();
        let transaction = op.kind == "transaction";
        for (i, command) in op.commands.iter().enumerate().skip(from) {
            op.unsure |= transaction && i + 1 == op.commands.len();
            reply = r.command(command.as_doc());
            outcome = said(reply.as_doc());
            if outcome != Said::Done {
                break;
            }
            if i + 1 < op.commands.len() && random.one_in(3) {
                op.open = Some((i + 1, to, run));
                break;
            }
        }
        let last = r.store().last_commit();
        let fell = self.members[to].fell();
        let failed = outcome != Said::Done;
        if fell || failed && self.members[to].hurt {
            self.perhaps.push(op.writes.clone());
        }
        self.look_for(to, Some(&op.writes))?;
        self.after(to)?;
        if fell || self.members[to].running.is_none() {
            // It never answers. A transaction that was not to be committed yet is gone with it.
            if !transaction || op.unsure {
                self.clients[c].op = Some(op);
            }
            return self.give_up(c);
        }
        match outcome {
            Said::Done if op.open.is_some() => {
                self.clients[c].op = Some(op);
                Ok(())
            }
            Said::Done => {
                self.one_was_done(&op, reply.as_doc())?;
                self.clients[c].primary = Some(to);
                if self.random.one_in(12) {
                    // The reply is lost, so that the client sends the same once more.
                    self.clients[c].op = Some(op);
                    return Ok(());
                }
                let Ok(last) = last else {
                    // The disk has failed since, so that it is not known which record is to be waited for.
                    self.clients[c].op = Some(op);
                    return self.give_up(c);
                };
                let entry = self.seen[to].log.get(last.index as usize - 1);
                let term = entry.map_or(0, |e| e.term);
                self.acknowledge(c, op, to, last.index, term)
            }
            Said::Failed(code, text) => {
                let ours = EXPECTED.iter().any(|c| c.0 == code);
                if !ours && !self.members[to].hurt {
                    return Err(format!("member {to}: {} fails: {code} {text}", op.kind));
                }
                // A transaction is aborted by its first failure; whether a failed commit was done is not known.
                let over = transaction && (!op.unsure || code == Code::NoSuchTransaction.0);
                if !over {
                    self.clients[c].op = Some(op);
                }
                self.give_up(c)
            }
        }
    }

    /// After too many attempts a client goes on without knowing.
    pub(super) fn give_up(&mut self, c: usize) -> Found {
        let op = self.clients[c].op.as_ref();
        if op.is_some_and(|op| op.attempts > 8) {
            self.clients[c].op = None;
        }
        Ok(())
    }

    /// Exactly one document was changed by each statement, however often it was sent.
    pub(super) fn one_was_done(&self, op: &Op, reply: Doc<'_>) -> Found {
        let n = match op.kind {
            "transaction" => return Ok(()),
            "findAndModify" => {
                let last = reply.get_doc("lastErrorObject");
                last.and_then(|d| d.get("n")).and_then(number::to_i64_exact)
            }
            _ => reply.get("n").and_then(number::to_i64_exact),
        };
        match n == Some(op.writes.tokens.len() as i64) {
            true => Ok(()),
            false => Err(format!(
                "{} of {:?}, sent {} times, says {reply:?}",
                op.kind, op.writes.tokens, op.attempts
            )),
        }
    }

    pub(super) fn acknowledge(
        &mut self,
        c: usize,
        op: Op,
        to: usize,
        index: u64,
        term: u64,
    ) -> Found {
        if !op.majority && !self.calm {
            return Ok(());
        }
        let run = self.members[to].run;
        let (now, short) = (self.time.instant(), self.random.one_in(2));
        let r = self.members[to].running.as_mut().unwrap();
        let concern = Concern {
            w: W::Majority,
            journaled: false,
        };
        let begun = r.node.begin_wait(index, &concern);
        // As in `Node::tell`, the waiting thread takes a short turn if nothing else is in the inbox; if
        // something is, the driver's thread takes the turn.
        let turned = match short && !r.node.inbox.has_news() && !r.driver.has_ended() {
            true => r.driver.short_turn(now),
            false => {
                r.node.inbox.look();
                Ok(())
            }
        };
        self.clients[c].op = Some(op);
        self.has_turned(to, turned)?;
        if !self.is(to, run) {
            // Nobody knows.
            return Ok(());
        }
        match begun {
            Ok(None) => self.is_acknowledged(c, index, term),
            Ok(Some(waiting)) => {
                let until = self.now() + 2000 * MS;
                self.clients[c].wait = Some(Wait {
                    member: to,
                    run,
                    waiting,
                    index,
                    term,
                    until,
                });
                self.after(to)
            }
            Err(_) => Ok(()),
        }
    }

    pub(super) fn is_acknowledged(&mut self, c: usize, index: u64, term: u64) -> Found {
        let client = &mut self.clients[c];
        let op = client.op.take().unwrap();
        for (token, changes) in &op.writes.tokens {
            if let [Change::Insert(row)] = changes.as_slice() {
                client.own.push(row.1);
            }
            self.oracle.acknowledged(index, term, *token)?;
        }
        Ok(())
    }

    pub(super) fn waits(&mut self, c: usize) -> Found {
        let wait = self.clients[c].wait.as_ref().unwrap();
        let alive = self.is(wait.member, wait.run);
        let (end, late) = (wait.waiting.end(), self.now() > wait.until);
        let (index, term, m) = (wait.index, wait.term, wait.member);
        match end {
            Some(Ok(())) if alive => {
                self.clients[c].wait = None;
                self.is_acknowledged(c, index, term)
            }
            None if alive && !late => Ok(()),
            // Nobody knows.
            _ => {
                let wait = self.clients[c].wait.take().unwrap();
                if let Some(r) = self.members[m].running.as_ref().filter(|_| alive) {
                    r.node.give_up(&wait.waiting);
                }
                if self.random.one_in(2) && !self.calm {
                    self.clients[c].op = None;
                }
                Ok(())
            }
        }
    }
}
