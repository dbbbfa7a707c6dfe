//! How far the operations of this router have come that divide collections anew, as `currentOp` shows them.

use muniment_value::{Doc, DocBuf, doc};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// One operation.
pub struct Progress {
    ns: String,
    /// The command.
    command: DocBuf,
    since: Instant,
    /// What it is doing.
    state: Mutex<&'static str>,
    /// So many documents and bytes are there to be copied, about.
    to_copy: (u64, u64),
    documents: AtomicU64,
    bytes: AtomicU64,
    changes: AtomicU64,
}

impl Progress {
    /// A document was copied.
    pub fn copied(&self, doc: Doc<'_>) {
        self.documents.fetch_add(1, Relaxed);
        self.bytes.fetch_add(doc.byte_len() as u64, Relaxed);
    }

    /// So many changes were brought after the documents.
    pub fn changed(&self, count: usize) {
        self.changes.fetch_add(count as u64, Relaxed);
    }

    /// It has come to another state.
    pub fn is(&self, state: &'static str) {
        *self.state.lock() = state;
    }

    fn to_doc(&self) -> DocBuf {
        let long = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let elapsed = self.since.elapsed();
        let (documents, bytes) = (self.documents.load(Relaxed), self.bytes.load(Relaxed));
        let mut d = doc! {
            "type": "op",
            "desc": format!("ReshardingCoordinatorService {}", self.ns),
            "op": "command",
            "ns": &self.ns,
            "originatingCommand": &self.command,
            "totalOperationTimeElapsedSecs": long(elapsed.as_secs()),
        };
        // As long for each byte as until now.
        let left = self.to_copy.1.saturating_sub(bytes);
        let remaining = (bytes > 0).then(|| elapsed.as_secs_f64() * left as f64 / bytes as f64);
        d.append_some(
            "remainingOperationTimeEstimatedSecs",
            remaining.map(|secs| secs as i64),
        );
        d.append("approxDocumentsToCopy", long(self.to_copy.0));
        d.append("approxBytesToCopy", long(self.to_copy.1));
        d.append("documentsCopied", long(documents));
        d.append("bytesCopied", long(bytes));
        d.append("oplogEntriesApplied", long(self.changes.load(Relaxed)));
        d.append("coordinatorState", *self.state.lock());
        d.append("active", true);
        d
    }
}

/// The operations under way.
#[derive(Default)]
pub struct Running(Mutex<Vec<Arc<Progress>>>);

/// An operation under way, until this is dropped.
pub struct Shown<'r>(&'r Running, Arc<Progress>);

impl Running {
    /// An operation begins.
    pub fn begin(&self, ns: &str, command: Doc<'_>, to_copy: (u64, u64)) -> Shown<'_> {
        let new = Arc::new(Progress {
            ns: ns.to_string(),
            command: command.to_buf(),
            since: Instant::now(),
            state: Mutex::new("preparing-to-donate"),
            to_copy,
            documents: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        });
        self.0.lock().push(Arc::clone(&new));
        Shown(self, new)
    }

    /// All of them, as `currentOp` shows them.
    pub fn to_docs(&self) -> Vec<DocBuf> {
        self.0.lock().iter().map(|one| one.to_doc()).collect()
    }
}

impl std::ops::Deref for Shown<'_> {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.1
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.0.lock().retain(|one| !Arc::ptr_eq(one, &self.1));
    }
}
