//! Which operations of the simulated disk fail, and how many operations there were.

use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Opening a file in any way.
    Open,
    /// Opening a file that is created or emptied.
    Create,
    /// Reading from a file.
    Read,
    /// Writing to a file.
    Write,
    /// Making a file's bytes durable.
    Sync,
    /// Changing a file's length.
    SetLen,
    /// Giving back the front of a file.
    Free,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
    /// Listing a directory.
    List,
    /// Making a directory.
    CreateDir,
    /// Making a directory's names durable.
    SyncDir,
    /// Any operation.
    Any,
}

const OPS: usize = Op::Any as usize + 1;

/// A rule by which operations fail.
#[derive(Clone, Debug)]
pub struct Fault {
    op: Op,
    errno: i32,
    path: String,
    skip: u64,
    times: u64,
}

impl Fault {
    /// Makes every operation of this kind fail with this error number from now on.
    pub fn new(op: Op, errno: i32) -> Fault {
        Fault {
            op,
            errno,
            path: String::new(),
            skip: 0,
            times: u64::MAX,
        }
    }

    /// Restricts the fault to paths that contain this text.
    #[must_use]
    pub fn on(mut self, path: &str) -> Fault {
        self.path = path.to_owned();
        self
    }

    /// Lets the first `n` matching operations pass.
    #[must_use]
    pub fn after(mut self, n: u64) -> Fault {
        self.skip = n;
        self
    }

    /// Limits the fault to `n` operations.
    #[must_use]
    pub fn times(mut self, n: u64) -> Fault {
        self.times = n;
        self
    }

    fn applies(&self, op: Op, path: &Path) -> bool {
        (self.op == op || self.op == Op::Any)
            && (self.path.is_empty() || path.to_string_lossy().contains(&self.path))
    }
}

type Hook = Arc<dyn Fn(Op, &Path) + Send + Sync>;

/// The rules, the counters and the hook.
#[derive(Default)]
pub(super) struct Faults {
    rules: Mutex<Vec<Fault>>,
    hook: Mutex<Option<Hook>>,
    /// True if there are rules or a hook.
    armed: AtomicBool,
    counts: [AtomicU64; OPS],
}

impl Faults {
    pub(crate) fn add(&self, fault: Fault) {
        self.rules.lock().push(fault);
        self.armed.store(true, SeqCst);
    }

    pub(crate) fn clear(&self) {
        self.rules.lock().clear();
    }

    pub(crate) fn set_hook(&self, hook: Option<Hook>) {
        *self.hook.lock() = hook;
        self.armed.store(true, SeqCst);
    }

    pub(crate) fn count(&self, op: Op) -> u64 {
        self.counts.get(op as usize).map_or(0, |c| c.load(SeqCst))
    }

    fn counted(&self, op: Op) {
        // Opening to create counts as such and as opening, but as one operation.
        let any = (op != Op::Create).then_some(Op::Any);
        for op in [Some(op), any].into_iter().flatten() {
            if let Some(c) = self.counts.get(op as usize) {
                c.fetch_add(1, SeqCst);
            }
        }
    }

    /// Counts an operation. True if there is nothing more to check for it.
    pub(crate) fn idle(&self, op: Op) -> bool {
        let idle = !self.armed.load(SeqCst);
        if idle {
            self.counted(op);
        }
        idle
    }

    /// Counts an operation, and returns its error if it is to fail.
    pub(crate) fn check(&self, op: Op, path: &Path) -> io::Result<()> {
        self.counted(op);
        if !self.armed.load(SeqCst) {
            return Ok(());
        }
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook {
            hook(op, path);
        }
        for rule in self.rules.lock().iter_mut() {
            if !rule.applies(op, path) || (op == Op::Create && rule.op == Op::Any) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if rule.times > 0 {
                rule.times -= 1;
                return Err(io::Error::from_raw_os_error(rule.errno));
            }
        }
        Ok(())
    }
}
