//! The raw engine: W3's batches straight into fjall, with the server's own options, in a process
//! of its own. It is what the server's insert rate is measured against. This file alone knows the
//! engine; the rest of the lab is a black box over the wire.
//!
//! Orders come on stdin, one a line: `insert DOCUMENTS BATCH`. Each is answered on stdout with
//! the seconds it took. There is no periodic sync here, which makes the yardstick harder.

use crate::batches::Documents;
use crate::commands::{self, Spec};
use crate::fail::{Context, Failure, Result};
use crate::process::{self, Process};
use fjall::{Database, Keyspace, PersistMode};
use muniment_storage::engine::{Budget, Space, database_options, options, seal_if_full};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};
use std::time::Instant;

/// `muniment bench raw-engine DIR [CACHE_GB]`.
pub const COMMAND: Spec = Spec {
    name: "raw-engine",
    arguments: "DIR [CACHE_GB]",
    about: "",
    run: |args| commands::ended(serve(&args)),
};

/// The child's side: `DIR [CACHE_GB]`.
pub fn serve(args: &[OsString]) -> Result<()> {
    let Some(dir) = args.first() else {
        return Err(Failure::new("raw-engine DIR [CACHE_GB]"));
    };
    let gb: f64 = args
        .get(1)
        .and_then(|g| g.to_str())
        .and_then(|g| g.parse().ok())
        .unwrap_or(0.25);
    let budget = Budget::of((gb * 1024.0 * 1024.0 * 1024.0) as u64);
    let db = database_options(Path::new(dir), budget)
        .open()
        .context("opening the raw engine")?;
    let docs = db
        .keyspace(Space::Docs.name(), || options(Space::Docs))
        .context("opening the raw engine")?;
    let mut made = Documents::make(0);
    for (collection, line) in (1u64..).zip(std::io::stdin().lock().lines()) {
        let line = line?;
        let mut words = line.split_whitespace();
        let numbers = (words.next(), words.next(), words.next());
        let (Some("insert"), Some(Ok(n)), Some(Ok(batch))) = (
            numbers.0,
            numbers.1.map(str::parse::<u64>),
            numbers.2.map(str::parse::<u64>),
        ) else {
            return Err(Failure(format!("raw-engine does not understand '{line}'")));
        };
        if made.len() < n {
            made = Documents::make(n);
        }
        let seconds = insert(&db, &docs, budget, collection, &made, n, batch.max(1))?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{seconds}")?;
        out.flush()?;
    }
    Ok(())
}

/// Inserts `n` documents in batches; seconds.
fn insert(
    db: &Database,
    docs: &Keyspace,
    budget: Budget,
    collection: u64,
    made: &Documents,
    n: u64,
    batch: u64,
) -> Result<f64> {
    let begin = Instant::now();
    let mut at = 0;
    while at < n {
        let to = (at + batch).min(n);
        let mut b = db.batch().durability(Some(PersistMode::Buffer));
        for i in at..to {
            let d = made.slice(i, i + 1);
            // As the server's: the collection, then the encoded _id (a type byte and 12 bytes).
            let mut key = [7u8; 21];
            key[..8].copy_from_slice(&collection.to_be_bytes());
            key[9..].copy_from_slice(d.get(9..21).unwrap_or(&[0; 12]));
            b.insert(docs, key, d);
        }
        b.commit()
            .and_then(|()| seal_if_full(docs, Space::Docs, budget))
            .context("the raw engine")?;
        at = to;
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// The parent's side.
pub struct RawEngine {
    process: Process,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl RawEngine {
    /// Starts it.
    pub fn start(parent: &Path, cache_gb: f64) -> Result<RawEngine> {
        let mut process = process::raw_engine(parent, Some(cache_gb))?;
        let (orders, answers) = process
            .pipes()
            .ok_or_else(|| Failure::new("the raw engine has no pipes"))?;
        Ok(RawEngine {
            process,
            orders,
            answers: BufReader::new(answers),
        })
    }

    /// Documents a second for `n` documents in batches of `batch`.
    pub fn insert(&mut self, n: u64, batch: u64) -> Result<f64> {
        let mut answer = String::new();
        let asked = writeln!(self.orders, "insert {n} {batch}").and_then(|()| self.orders.flush());
        let read = asked.and_then(|()| self.answers.read_line(&mut answer));
        if read.is_err() || answer.is_empty() {
            self.process.check_alive()?;
        }
        let seconds: f64 = answer
            .trim()
            .parse()
            .map_err(|_| Failure(format!("the raw engine answered '{}'", answer.trim())))?;
        Ok(n as f64 / seconds)
    }
}
