//! The raw engine: writes W3's batches straight into the log and the trees, with the server's own
//! options, in a process of its own. The server's insert rate is measured against it. This is the
//! only file that knows the engine; the rest of the lab is a black box over the wire.
//!
//! A document costs the same entries as in the server: a record under its number, and the entry of
//! `_id_` that leads to it. The ratio therefore tells the cost of all layers above the engine.
//!
//! Orders come on stdin, one a line: `insert DOCUMENTS BATCH`. Each is answered on stdout with the
//! seconds that it took. There is no periodic sync here, which makes the yardstick harder to match.

use crate::batches::Documents;
use crate::commands::{self, Spec};
use crate::process::{self, Process};
use bytes::Bytes;
use muniment_io::{Clock, SystemClock, Timestamp};
use muniment_load::fail::{Context, Failure, Result};
use muniment_log::{Log, LogOptions};
use muniment_storage::Budget;
use muniment_tree::lsm::{LsmOptions, LsmTrees};
use muniment_tree::{Op, TreeId, Trees};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;
use std::time::Instant;

/// `muniment bench raw-engine DIR [CACHE_GB]`.
pub(crate) const COMMAND: Spec = Spec {
    name: "raw-engine",
    arguments: "DIR [CACHE_GB]",
    about: "",
    page: commands::of_a_child,
    run: |given| Ok(commands::ended(serve(given.words()))),
};

/// Runs the child process; `args` are `DIR [CACHE_GB]`.
pub(crate) fn serve(args: &[OsString]) -> Result<()> {
    let Some(dir) = args.first() else {
        return Err(Failure::new("raw-engine DIR [CACHE_GB]"));
    };
    let gb: f64 = args
        .get(1)
        .and_then(|g| g.to_str())
        .and_then(|g| g.parse().ok())
        .unwrap_or(0.25);
    let budget = Budget::of((gb * 1024.0 * 1024.0 * 1024.0) as u64);
    let dir = Path::new(dir);
    let lsm = LsmOptions {
        cache_bytes: budget.block_cache,
        memtable_bytes: budget.memtable,
        ..LsmOptions::new(dir.join("trees"))
    };
    let mut engine = Engine {
        trees: LsmTrees::open(lsm).context("opening the raw engine")?,
        log: Log::open(
            LogOptions::new(&dir.join("log")),
            Timestamp::ZERO,
            &mut |_| Ok(()),
        )
        .context("opening the raw engine")?,
        budget,
        last: Timestamp::ZERO,
    };
    let mut made = Documents::make(0);
    for (collection, line) in (1u32..).zip(std::io::stdin().lock().lines()) {
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
        let seconds = engine.insert(collection, &made, n, batch.max(1))?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{seconds}")?;
        out.flush()?;
    }
    Ok(())
}

/// The log and the trees without anything above them.
struct Engine {
    trees: Arc<dyn Trees>,
    log: Log,
    budget: Budget,
    last: Timestamp,
}

/// Bytes of a record's key, and below those of an `_id` key: a type byte and 12 bytes.
const NUMBER: usize = 8;
const ID: usize = 13;
/// Bytes of an entry of `_id_`: the `_id`, then the entry's value, which is the length of the
/// record's key, that key, and no type bits.
const ENTRY: usize = ID + 1 + NUMBER;

impl Engine {
    /// Inserts `n` documents in batches and returns the seconds that this took.
    fn insert(&mut self, collection: u32, made: &Documents, n: u64, batch: u64) -> Result<f64> {
        let begin = Instant::now();
        let mut at = 0;
        while at < n {
            let to = (at + batch).min(n);
            let docs = (to - at) as usize;
            // `payload` is the content of the log record; `entries` holds index entries, which only
            // the trees need.
            let mut payload = Vec::with_capacity(docs * 160);
            let mut entries = Vec::with_capacity(docs * ENTRY);
            let mut places = Vec::with_capacity(docs);
            for i in at..to {
                let d = made.slice(i, i + 1);
                let number = (i + 1).to_be_bytes();
                let key = payload.len();
                payload.extend_from_slice(&number);
                let doc = payload.len();
                payload.extend_from_slice(d);
                places.push((key, doc, payload.len()));
                entries.push(7);
                entries.extend_from_slice(d.get(9..21).unwrap_or(&[0; 12]));
                entries.push(NUMBER as u8);
                entries.extend_from_slice(&number);
            }
            self.commit(collection, payload, entries, &places)?;
            at = to;
        }
        Ok(begin.elapsed().as_secs_f64())
    }

    fn commit(
        &mut self,
        collection: u32,
        payload: Vec<u8>,
        entries: Vec<u8>,
        places: &[(usize, usize, usize)],
    ) -> Result<()> {
        self.last = self.last.next(SystemClock.now_ms());
        let (payload, entries) = (Bytes::from(payload), Bytes::from(entries));
        self.log
            .append(0, self.last, &[&payload])
            .context("the raw engine")?;
        let put = |tree: u32, key: Bytes, value: Bytes| Op {
            tree: TreeId(tree),
            key,
            value: Some(value),
            fresh: true,
        };
        let (records, ids) = (2 * collection - 1, 2 * collection);
        let ids = (0..places.len()).map(|i| {
            let at = i * ENTRY;
            let key = entries.slice(at..at + ID);
            put(ids, key, entries.slice(at + ID..at + ENTRY))
        });
        let records = places.iter().map(|(key, doc, end)| {
            let key = payload.slice(*key..*doc);
            put(records, key, payload.slice(*doc..*end))
        });
        self.trees.apply(ids.chain(records).collect(), self.last);
        self.trees.views().advance(self.last);
        let sizes = self.trees.sizes();
        if sizes.memory - sizes.sealed >= self.budget.memtable {
            self.trees.seal(self.last).context("the raw engine")?;
            self.log
                .trim(self.trees.persisted())
                .context("the raw engine")?;
        }
        Ok(())
    }
}

/// The parent's side: the process and the pipes to it.
pub(crate) struct RawEngine {
    process: Process,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl RawEngine {
    /// Starts the process.
    pub(crate) fn start(parent: &Path, cache_gb: f64) -> Result<RawEngine> {
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

    /// Inserts `n` documents in batches of `batch` and returns the documents a second.
    pub(crate) fn insert(&mut self, n: u64, batch: u64) -> Result<f64> {
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
