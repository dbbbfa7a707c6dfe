//! Registers, which clients read, write and swap: the operations on each must be linearizable.

use crate::linear::{Operation, What, is_linearizable};
use crate::session::{Address, Session, code_of};
use crate::{DB, Rng};
use muniment_value::{DocBuf, array, doc, number};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// After this many operations another register is used.
const OPERATIONS: i64 = 120;

/// The state that the clients of registers share.
#[derive(Debug)]
pub struct Registers {
    begin: Instant,
    /// The clients end.
    pub stop: AtomicBool,
    operations: AtomicI64,
    values: AtomicI64,
}

/// The write concern majority, with a time limit.
fn concern() -> DocBuf {
    doc! { "w": "majority", "wtimeout": 4000 }
}

impl Default for Registers {
    fn default() -> Registers {
        Registers::new()
    }
}

impl Registers {
    /// No register has been used yet.
    pub fn new() -> Registers {
        Registers {
            begin: Instant::now(),
            stop: AtomicBool::new(false),
            operations: AtomicI64::new(0),
            values: AtomicI64::new(1),
        }
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// A read, a write or a swap of a register, and the command for it.
    fn draw(&self, kind: u64, register: i64, seen: i64) -> (What, DocBuf) {
        match kind {
            0 => {
                let find = doc! {
                    "find": "registers",
                    "filter": doc! { "_id": register },
                    "readConcern": doc! { "level": "linearizable" },
                    "maxTimeMS": 4000,
                };
                (What::Read(0), find)
            }
            1 => {
                let v = self.values.fetch_add(1, SeqCst);
                let update = doc! {
                    "q": doc! { "_id": register },
                    "u": doc! { "$set": doc! { "v": v } },
                    "upsert": true,
                };
                let update = doc! {
                    "update": "registers", "updates": array![update], "writeConcern": concern(),
                };
                (What::Write(v), update)
            }
            _ => {
                let v = self.values.fetch_add(1, SeqCst);
                let swap = doc! {
                    "findAndModify": "registers",
                    "query": doc! { "_id": register, "v": seen },
                    "update": doc! { "$set": doc! { "v": v } },
                    "writeConcern": concern(),
                };
                (What::Swapped(seen, v), swap)
            }
        }
    }

    /// Runs client number `i`. Returns its operations, by register.
    ///
    /// # Panics
    /// If a reply is wrong, or the test has failed elsewhere.
    pub fn run(&self, address: &Address, i: u64, seed: u64) -> Vec<(i64, Operation)> {
        let mut session = Session::new(address, 100 + i as u8);
        let mut rng = Rng::new(seed ^ (0x100 + i));
        let mut done = Vec::new();
        // The last number that it saw, which it expects when it swaps.
        let mut seen = (0, 0);
        while !self.stop.load(SeqCst) {
            let register = self.operations.fetch_add(1, SeqCst) / OPERATIONS;
            if seen.0 != register {
                seen = (register, 0);
            }
            // A register that does not exist yet cannot be swapped.
            let kinds = if seen.1 == 0 { 2 } else { 3 };
            let (what, command) = self.draw(rng.below(kinds), register, seen.1);
            let called = self.now();
            let reply = session.send(DB, &command);
            let answered = self.now();
            let Some((what, answered)) = outcome(&mut session, reply, what, answered) else {
                continue;
            };
            if answered.is_none() {
                // With many operations of unknown outcome, there are too many orders to check.
                let next = (register + 1) * OPERATIONS;
                self.operations.fetch_max(next, SeqCst);
                std::thread::sleep(Duration::from_millis(5));
            }
            seen.1 = match (what, answered) {
                (What::Read(v) | What::Write(v) | What::Swapped(_, v), Some(_)) => v,
                _ => seen.1,
            };
            let operation = Operation {
                called,
                answered,
                what,
            };
            done.push((register, operation));
        }
        done
    }

    /// Judges the operations of all clients. `last` are the registers' documents at the end.
    ///
    /// # Panics
    /// If a document is not a register.
    pub fn judge(&self, operations: Vec<(i64, Operation)>, last: &[DocBuf]) -> Found {
        let mut by_register: BTreeMap<i64, Vec<Operation>> = BTreeMap::new();
        for (register, operation) in operations {
            by_register.entry(register).or_default().push(operation);
        }
        // The last state of every register counts as a read.
        for d in last {
            let number = |name| d.as_doc().get(name).and_then(number::to_i64_exact).unwrap();
            let now = self.now();
            let read = Operation {
                called: now,
                answered: Some(now + 1),
                what: What::Read(number("v")),
            };
            by_register.entry(number("_id")).or_default().push(read);
        }
        let mut found = Found {
            registers: by_register.len(),
            ..Found::default()
        };
        for (register, all) in &mut by_register {
            all.sort_by_key(|o| o.called);
            found.answered += all.iter().filter(|o| o.answered.is_some()).count();
            if !is_linearizable(all) {
                let line = |o: &Operation| format!("{:?}", (o.called, o.answered, o.what));
                let lines: Vec<String> = all.iter().map(line).collect();
                let lines = lines.join("\n");
                found.wrong.push(format!("register {register}:\n{lines}"));
            }
        }
        found
    }
}

/// What was found of registers.
#[derive(Debug, Default)]
pub struct Found {
    /// How many there were.
    pub registers: usize,
    /// How many operations were answered.
    pub answered: usize,
    /// The registers that are not linearizable, with their operations.
    pub wrong: Vec<String>,
}

/// The operation that a reply shows; `None` if it shows nothing, or that nothing was done.
fn outcome(
    session: &mut Session<'_>,
    reply: Option<DocBuf>,
    what: What,
    answered: u64,
) -> Option<(What, Option<u64>)> {
    let writes = !matches!(what, What::Read(_));
    let unknown = writes.then_some((what, None));
    let Some(reply) = reply else {
        return unknown;
    };
    let d = reply.as_doc();
    if let Some(code) = code_of(&reply) {
        session.elsewhere();
        // The command was refused before anything was done.
        return unknown.filter(|_| code.0 != 10107);
    }
    if d.get("writeErrors").is_some() {
        // Two upserts of the same register ran at the same time, and one of them did nothing.
        return None;
    }
    let acknowledged = d.get("writeConcernError").is_none();
    let value = |d: Option<muniment_value::Doc<'_>>| {
        let v = d.and_then(|d| d.get("v")).and_then(number::to_i64_exact);
        v.unwrap_or(0)
    };
    let what = match what {
        What::Read(_) => {
            let cursor = d.get_doc("cursor").unwrap();
            let first = cursor.get_array("firstBatch").unwrap().values().next();
            What::Read(value(first.and_then(|v| v.as_doc())))
        }
        What::Swapped(old, new) => match d.get_doc("value") {
            Some(_) => What::Swapped(old, new),
            // An election may undo what was found.
            None if !acknowledged => return None,
            None => What::Kept(old),
        },
        other => other,
    };
    Some((what, acknowledged.then_some(answered)))
}
